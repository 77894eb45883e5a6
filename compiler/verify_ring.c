// Part of verify: is shared memory used safely? The kernel is run on the machine that eval uses (machine.c), with scalars only,
// as far as they can be known: 0, 1, 2 ... trips of every loop whose count is not constant, two tiles with different counts
// where a persistent grid carries its rings from tile to tile, both sides of conditions that cannot be told, roles in both
// orders. A ring repeats after `stages` trips and its parities after twice as many, so 2 * stages + 2 trips show every
// meeting of a copy with a read. The machine finds the faults: machine.h says which.
//
// A value is KNOWN, UNKNOWN, or ASSUMED: it comes from a trip count of this run. Counts that are the same value run alike,
// others differ. An assumed value stands for larger ones too: comparing it with a constant past this run's counts tells
// nothing.
#include "verify.h"

#include "eval.h"

#include <string.h>

enum { STEPS_MAX = 200000, FIXED_MAX = 40, COUNTS_MAX = 16, TILES = 2 };
enum certainty { UNKNOWN, ASSUMED, KNOWN };

struct fact {
    double v;
    enum certainty how;
};
struct facts { // of one program
    struct fact *op, *var, *origin, *counter;
    int tile;
};
struct ring {
    struct check *v;
    struct machine m;
    struct facts *now;
    int *rank; // by op id: 1 + which trip count this is; 0: none
    const struct op *counts[COUNTS_MAX];
    int ncounts, most;            // the longest run
    int trips[TILES];             // of each tile
    bool taken;                   // which side of conditions
    bool asked_trips, asked_side; // did it matter?
};

// ---- which values are trip counts --------------------------------------------------------------------------------

static bool same(const struct op *a, const struct op *b)
{
    if (a == b)
        return true;
    unsigned flags = op_infos[a->code].flags;
    bool fixed = flags & F_PURE || (a->code == OP_LOAD && (a->buf->kind == BUF_IN || a->buf->kind == BUF_MAP));
    if (a->code != b->code || !fixed || a->type.rank || b->type.rank || a->type.elem != b->type.elem ||
        a->nargs != b->nargs)
        return false;
    if (a->ival != b->ival || memcmp(&a->fval, &b->fval, sizeof a->fval) != 0 || a->dim != b->dim ||
        a->param != b->param || a->axis != b->axis || a->region != b->region || a->clause != b->clause ||
        a->buf != b->buf)
        return false;
    for (int i = 0; i < a->nargs; i++)
        if (!same(a->args[i], b->args[i]))
            return false;
    return true;
}

static bool note_count(void *user, struct op *op)
{
    struct ring *r = user;
    int i = 0;
    if (op->code != OP_EACH || !op->args[1] || op->args[1]->code == OP_CONST)
        return true;
    while (i < r->ncounts && !same(r->counts[i], op->args[1]))
        i++;
    if (i == COUNTS_MAX)
        i--;
    r->counts[i] = op->args[1];
    r->ncounts = i == r->ncounts ? i + 1 : r->ncounts;
    r->rank[op->args[1]->id] = i + 1;
    return true;
}

static int trips_of(struct ring *r, int rank)
{
    r->asked_trips = true;
    return (r->trips[r->now->tile] + rank) % (r->most + 1);
}

// ---- scalars -----------------------------------------------------------------------------------------------------

static bool elementwise(const struct op *op)
{
    enum type_rule rule = op_infos[op->code].rule;
    return rule >= TR_SAME && rule <= TR_CAST && op->nargs >= 1 && op->nargs <= 3;
}

static struct fact combine(const struct ring *r, const struct op *op)
{
    struct fact a[3] = { { 0 } }, unknown = { 0 };
    enum certainty how = KNOWN;
    for (int i = 0; i < op->nargs; i++) {
        a[i] = r->now->op[op->args[i]->id];
        how = a[i].how < how ? a[i].how : how;
    }
    if (op->code == OP_SELECT && a[0].how != UNKNOWN) // the other side is not looked at
        return a[a[0].v != 0 ? 1 : 2];
    if (op_infos[op->code].rule == TR_COMPARE)
        for (int i = 0; i < 2; i++)
            if (a[i].how == KNOWN && a[1 - i].how == ASSUMED && a[i].v > r->most)
                return unknown;
    return how == UNKNOWN ? unknown : (struct fact){ ev_element(op, a[0].v, a[1].v, a[2].v), how };
}

static struct fact leaf(const struct ring *r, const struct op *op)
{
    if (op->code == OP_CONST)
        return (struct fact){ elem_is_float(op->type.elem) ? op->fval : (double)op->ival, KNOWN };
    if (op->code == OP_DIM && op->dim->bound >= 0)
        return (struct fact){ (double)op->dim->bound, KNOWN };
    if (op->code == OP_GET)
        return r->now->var[op->var->id];
    if (op->code == OP_ORIGIN && op->region && op->region->code == OP_EACH)
        return r->now->counter[op->region->id];
    if (op->code == OP_ORIGIN && !op->region)
        return r->now->origin[op->axis->id];
    return (struct fact){ 0 };
}

static void run(struct machine *m, const struct op *op)
{
    struct ring *r = m->user;
    struct fact *to = &r->now->op[op->id];
    if (op->code == OP_VAR || op->code == OP_SET) {
        r->now->var[op->var->id] = r->now->op[op->args[0]->id];
        return;
    }
    if (op->code == OP_AT || op->code == OP_RANGE) {
        r->now->origin[op->axis->id] = r->now->op[op->args[0]->id];
        return;
    }
    *to = op->type.rank ? (struct fact){ 0 } : elementwise(op) ? combine(r, op) : leaf(r, op);
    if (to->how == UNKNOWN && r->rank[op->id])
        *to = (struct fact){ trips_of(r, r->rank[op->id] - 1), ASSUMED };
}

// ---- the machine's domain ----------------------------------------------------------------------------------------

static void enter(struct machine *m, struct program *p)
{
    struct ring *r = m->user;
    struct facts *f = p->values;
    if (!f) {
        p->values = f = NEW(m->c->arena, struct facts);
        f->op = NEWN(m->c->arena, struct fact, m->k->nops + 1);
        f->var = NEWN(m->c->arena, struct fact, m->k->vars.n + 1);
        f->origin = NEWN(m->c->arena, struct fact, m->k->axes.n + 1);
        f->counter = NEWN(m->c->arena, struct fact, m->k->nops + 1);
    }
    r->now = f;
}

static bool scalar(struct machine *m, const struct op *op, int64_t *v)
{
    const struct fact *f = &((struct ring *)m->user)->now->op[op->id];
    *v = (int64_t)f->v;
    return f->how != UNKNOWN;
}

// A long constant count without roles behaves as any other.
static void bounds(struct machine *m, const struct op *op, int64_t *lo, int64_t *hi, int64_t *step)
{
    struct ring *r = m->user;
    const struct fact *a = &r->now->op[op->args[0]->id], *b = &r->now->op[op->args[1]->id];
    *step = op->code == OP_FOR ? op->axis->size : 1;
    *lo = a->how != UNKNOWN ? (int64_t)a->v : 0;
    *hi = (int64_t)b->v;
    bool told = b->how == KNOWN ? a->how == KNOWN : b->how == ASSUMED && op->code == OP_EACH;
    if (!told || (b->how == KNOWN && m->n == 1 && (*hi - *lo) / *step > FIXED_MAX))
        *hi = *lo + *step * trips_of(r, 0);
    r->now->counter[op->id].how = told ? b->how : ASSUMED;
}

static void trip(struct machine *m, const struct op *op, int64_t i, int64_t hi)
{
    struct ring *r = m->user;
    (void)hi;
    r->now->counter[op->id].v = (double)i;
    if (op->code == OP_FOR)
        r->now->origin[op->axis->id] = r->now->counter[op->id];
}

static bool condition(struct machine *m, const struct op *op)
{
    struct ring *r = m->user;
    const struct fact *f = &r->now->op[op->args[0]->id];
    r->asked_side |= f->how == UNKNOWN;
    return f->how == UNKNOWN ? r->taken : f->v != 0;
}

static int64_t tiles(struct machine *m, const struct op *op)
{
    (void)op;
    return m->k->sched.persistent ? TILES : 1;
}

static bool tile(struct machine *m, const struct op *op, int64_t n)
{
    struct ring *r = m->user;
    r->now->tile = (int)n;
    for (int i = 0; i < op->nclauses; i++)
        if (op->clauses[i].axis)
            r->now->origin[op->clauses[i].axis->id] = (struct fact){ 0 };
    return true;
}

static void report(struct machine *m, const struct op *op, const char *text)
{
    const struct ring *r = m->user;
    if (m->k->sched.persistent)
        fault(r->v, op ? op->loc : m->k->loc, "%s (in a run of two tiles, with %d and %d trips)", text, r->trips[0],
              r->trips[1]);
    else
        fault(r->v, op ? op->loc : m->k->loc, "%s (in a run with %d trips)", text, r->trips[0]);
}

// ---- runs --------------------------------------------------------------------------------------------------------

static void trial(struct ring *r, bool consumers_first, bool taken)
{
    r->m.consumers_first = consumers_first;
    r->taken = taken;
    for (int i = 0; i < r->m.n; i++)
        if (r->m.programs[i].values)
            ((struct facts *)r->m.programs[i].values)->tile = 0;
    machine_block(&r->m, 0);
}

// Both orders where there are roles, both sides where conditions cannot be told.
static bool trials(struct ring *r, int first, int second)
{
    r->trips[0] = first;
    r->trips[1] = second;
    for (int order = 0; order < (r->m.n > 1 ? 2 : 1); order++) {
        r->asked_side = false;
        trial(r, order, true);
        if (r->asked_side && !r->m.failed)
            trial(r, order, false);
        if (r->m.failed)
            return false;
    }
    return r->asked_trips;
}

static bool uses_shared(void *user, struct op *op)
{
    int *stages = user;
    if (op->code == OP_SHARED && op->buf->stages > *stages)
        *stages = op->buf->stages;
    return true;
}

void check_ring(struct check *v)
{
    static const struct domain domain = { enter, scalar, bounds, trip, condition, tiles, tile, run, NULL, report };
    struct ring r = { .v = v, .m = { .c = v->c, .k = v->k, .d = &domain, .steps_max = STEPS_MAX, .blocks = 1 } };
    int stages = 0;
    r.m.user = &r;
    walk(v->k->body, uses_shared, &stages);
    if (!stages)
        return;
    r.most = 2 * stages + 2;
    r.rank = NEWN(v->c->arena, int, v->k->nops + 1);
    walk(v->k->body, note_count, &r);
    if (!machine_open(&r.m))
        return;
    const int next[] = { 0, 1, stages, stages + 1, r.most };
    for (int n = 0; n <= r.most; n++)
        for (size_t j = 0; j < (v->k->sched.persistent ? COUNTOF(next) : 1); j++)
            if (!trials(&r, n, v->k->sched.persistent ? next[j] : n))
                return;
}
