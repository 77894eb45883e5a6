// Part of verify: is shared memory used safely? The control structure alone is run, with 0, 1, 2 ... trips of every loop whose
// count is not constant and both sides of every such condition; slots are followed through the states below. The ring
// repeats after `stages` trips, so 2 * stages + 2 trips show every meeting of a copy with a read.
//
//   a slot is   EMPTY    nobody wrote it
//               FLYING   a copy is on its way: until a wait retires its group
//               LANDED   written, but other threads may not see it before a barrier
//               READY    written and visible to all
// and may have been read since the last barrier: then it must not be written.
#include "verify.h"

#include <string.h>

enum slot_state { EMPTY, FLYING, LANDED, READY };
enum { STEPS_MAX = 200000, TRIALS_MAX = 40 };

struct slot {
    enum slot_state state;
    int group; // FLYING: which
    bool read; // since the last barrier
};
struct ring {
    struct check *v;
    struct slot **slots; // by buf id
    int64_t *value;      // by op id: scalars
    bool *known;
    int64_t *counter, *origin;   // by op id, by axis id
    int opened, closed, retired; // groups: copies so far in the open one; counts
    int trips;                   // of loops without constant bounds
    bool taken;                  // which side of conditions
    int steps;
    bool failed;
};

static bool ring_fault(struct ring *r, const struct op *op, const char *what, const struct buf *b, int slot)
{
    if (!r->failed)
        fault(r->v, op->loc, "slot %d of '%s' %s (in a run with %d trips)", slot, b->name, what, r->trips);
    r->failed = true;
    return false;
}

// ---- scalars -----------------------------------------------------------------------------------------------------

static bool scalar(const struct ring *r, const struct op *op, int64_t *out)
{
    *out = r->value[op->id];
    return r->known[op->id];
}

static bool arithmetic(enum opcode code, int64_t a, int64_t b, int64_t *out)
{
    switch ((int)code) {
    case OP_ADD: *out = a + b; return true;
    case OP_SUB: *out = a - b; return true;
    case OP_MUL: *out = a * b; return true;
    case OP_DIV: *out = b ? a / b : 0; return true;
    case OP_REM: *out = b ? a % b : 0; return true;
    case OP_AND: *out = a & b; return true;
    case OP_MIN: *out = a < b ? a : b; return true;
    case OP_MAX: *out = a > b ? a : b; return true;
    case OP_EQ: *out = a == b; return true;
    case OP_LT: *out = a < b; return true;
    }
    return false;
}

static void compute(struct ring *r, const struct op *op)
{
    int64_t a = 0, b = 0;
    if (op->type.rank)
        return;
    r->known[op->id] = true;
    if (op->code == OP_CONST)
        r->value[op->id] = op->ival;
    else if (op->code == OP_ORIGIN && op->region && op->region->code == OP_EACH)
        r->value[op->id] = r->counter[op->region->id];
    else if (op->code == OP_ORIGIN && !op->region)
        r->value[op->id] = r->origin[op->axis->id];
    else if (op->nargs == 2 && scalar(r, op->args[0], &a) && scalar(r, op->args[1], &b))
        r->known[op->id] = arithmetic(op->code, a, b, &r->value[op->id]);
    else if (op->code == OP_SELECT && scalar(r, op->args[0], &a))
        r->known[op->id] = scalar(r, op->args[a ? 1 : 2], &r->value[op->id]);
    else
        r->known[op->id] = false;
}

// ---- shared memory -----------------------------------------------------------------------------------------------

static struct slot *slot_of(struct ring *r, const struct op *op, const struct buf *b, const struct op *index, int *n)
{
    int64_t i;
    if (!scalar(r, index, &i) || i < 0 || i >= b->stages) {
        if (!r->failed)
            fault(r->v, op->loc, "which slot of '%s' this is cannot be told, or it is outside 0..%d", b->name,
                  b->stages - 1);
        r->failed = true;
        return NULL;
    }
    if (!r->slots[b->id])
        r->slots[b->id] = NEWN(r->v->c->arena, struct slot, b->stages);
    *n = (int)i;
    return &r->slots[b->id][i];
}

static void write_slot(struct ring *r, const struct op *op, enum slot_state becomes)
{
    int n;
    struct slot *s = slot_of(r, op, op->buf2, op->args[0], &n);
    if (!s)
        return;
    if (s->read)
        ring_fault(r, op, "is written while other warps may still read it", op->buf2, n);
    if (s->state == FLYING)
        ring_fault(r, op, "is written while a copy to it is on its way", op->buf2, n);
    s->state = becomes;
    s->group = r->closed;
    r->opened += becomes == FLYING;
}

static void read_slot(struct ring *r, const struct op *op, const struct buf *b, const struct op *index)
{
    static const char *const why[] = { "is read but never written", "is read before its copy was waited for",
                                       "is read before a barrier makes it visible" };
    int n;
    struct slot *s = slot_of(r, op, b, index, &n);
    if (!s)
        return;
    if (s->state != READY)
        ring_fault(r, op, why[s->state], b, n);
    s->read = true;
}

static void each_slot(struct ring *r, void (*fn)(struct ring *r, struct slot *s))
{
    for (int i = 0; i < r->v->k->bufs.n; i++)
        for (int j = 0; r->slots[i] && j < r->v->k->bufs.v[i]->stages; j++)
            fn(r, &r->slots[i][j]);
}

static void land(struct ring *r, struct slot *s)
{
    if (s->state == FLYING && s->group < r->retired)
        s->state = LANDED;
}

static void show(struct ring *r, struct slot *s)
{
    (void)r;
    s->read = false;
    if (s->state == LANDED)
        s->state = READY;
}

static void wait_for(struct ring *r, int64_t pending)
{
    int done = r->closed - (int)pending;
    r->retired = done > r->retired ? done : r->retired;
    each_slot(r, land);
}

// ---- control -----------------------------------------------------------------------------------------------------

static void run_block(struct ring *r, const struct block *b);

static void loop(struct ring *r, const struct op *op)
{
    int64_t lo, hi, step = op->code == OP_FOR ? op->axis->size : 1;
    bool fixed = scalar(r, op->args[0], &lo) & scalar(r, op->args[1], &hi);
    int64_t trips = fixed ? (hi > lo ? (hi - lo + step - 1) / step : 0) : r->trips;
    if (!scalar(r, op->args[0], &lo))
        lo = 0;
    if (fixed && trips > TRIALS_MAX) // the ring repeats: a constant count behaves as any other
        trips = r->trips;
    for (int64_t i = 0; i < trips && !r->failed; i++) {
        if (op->code == OP_FOR)
            r->origin[op->axis->id] = lo + i * step;
        else
            r->counter[op->id] = lo + i;
        run_block(r, op->body);
    }
}

static void branch(struct ring *r, const struct op *op)
{
    int64_t cond;
    if (!scalar(r, op->args[0], &cond))
        cond = r->taken;
    if (cond)
        run_block(r, op->body);
    else if (op->other)
        run_block(r, op->other);
}

static void run_op(struct ring *r, const struct op *op)
{
    switch ((int)op->code) {
    case OP_FOR:
    case OP_EACH: loop(r, op); break;
    case OP_IF: branch(r, op); break;
    case OP_PARALLEL:
    case OP_ROLE: run_block(r, op->body); break;
    case OP_AT:
        if (!scalar(r, op->args[0], &r->origin[op->axis->id]))
            r->origin[op->axis->id] = 0;
        run_block(r, op->body);
        break;
    case OP_COPY: write_slot(r, op, FLYING); break;
    case OP_PUT: write_slot(r, op, LANDED); break;
    case OP_COMMIT:
        r->closed++;
        r->opened = 0;
        break;
    case OP_WAIT: wait_for(r, op->ival); break;
    case OP_BARRIER: each_slot(r, show); break;
    case OP_MMA:
        read_slot(r, op, op->buf, op->args[1]);
        read_slot(r, op, op->buf2, op->args[2]);
        break;
    default: compute(r, op);
    }
}

static void run_block(struct ring *r, const struct block *b)
{
    for (int i = 0; i < b->ops.n && !r->failed && r->steps++ < STEPS_MAX; i++)
        run_op(r, b->ops.v[i]);
}

static bool uses_shared(void *user, struct op *op)
{
    int *stages = user;
    if (op->code == OP_SHARED && op->buf->stages > *stages)
        *stages = op->buf->stages;
    return true;
}

static void trial(struct check *v, int trips, bool taken)
{
    const struct kernel *k = v->k;
    struct ring r = { .v = v, .trips = trips, .taken = taken };
    r.slots = NEWN(v->c->arena, struct slot *, k->bufs.n + 1);
    r.value = NEWN(v->c->arena, int64_t, k->nops + 1);
    r.known = NEWN(v->c->arena, bool, k->nops + 1);
    r.counter = NEWN(v->c->arena, int64_t, k->nops + 1);
    r.origin = NEWN(v->c->arena, int64_t, k->axes.n + 1);
    run_block(&r, k->body);
    if (!r.failed && (r.opened || r.retired < r.closed))
        fault(v, k->loc, "the kernel ends with copies that nobody waited for (in a run with %d trips)", trips);
}

void check_ring(struct check *v)
{
    int stages = 0;
    walk(v->k->body, uses_shared, &stages);
    for (int n = 0; stages && n <= 2 * stages + 2 && !v->faults; n++) {
        trial(v, n, true);
        if (!v->faults)
            trial(v, n, false);
    }
}
