// Part of the machine: slots of shared memory, barriers between roles, groups of copies and of asynchronous products.
// machine.h says what the states are and how "before" is known.
#include "../targets/target.h"
#include "machine.h"

#include <string.h>

struct search {
    struct machine *m;
    int program;
};

static bool find_arrive(void *user, struct op *op)
{
    struct search *u = user;
    if (op->code == OP_ARRIVE)
        u->m->shared[op->buf->id].arrives[u->program] = true;
    return true;
}

void sync_open(struct machine *m)
{
    const struct kernel *k = m->k;
    const struct arch *a = m->c->arch;
    m->async = a && k->sched.mma >= 0 && k->sched.mma < a->nmmas && a->mmas[k->sched.mma].kind != MMA_WARP;
    m->shared = NEWN(m->c->arena, struct shared, k->bufs.n + 1);
    for (int i = 0; i < k->bufs.n; i++) {
        const struct buf *b = k->bufs.v[i];
        if (b->kind == BUF_SHARED && b->barrier)
            m->shared[i].phases = NEWN(m->c->arena, struct phases, b->stages);
        else if (b->kind == BUF_SHARED)
            m->shared[i].slots = NEWN(m->c->arena, struct slot, b->stages);
    }
    for (int i = 0; i < m->n; i++) {
        struct search u = { m, i };
        if (m->programs[i].role)
            walk(m->programs[i].role->body, find_arrive, &u);
    }
}

void sync_reset(struct machine *m)
{
    for (int i = 0; i < m->k->bufs.n; i++) {
        struct shared *s = &m->shared[i];
        size_t n = (size_t)m->k->bufs.v[i]->stages;
        if (s->slots)
            memset(s->slots, 0, n * sizeof *s->slots);
        if (s->phases)
            memset(s->phases, 0, n * sizeof *s->phases);
        s->fills = s->settled = 0;
        memset(s->next, 0, sizeof s->next);
        memset(s->reads, 0, sizeof s->reads);
    }
}

// -1: a fault
static int slot_number(struct machine *m, const struct op *op, const struct buf *b, const struct op *index)
{
    int64_t i;
    if (m->d->scalar(m, index, &i) && i >= 0 && i < b->stages)
        return (int)i;
    machine_fault(m, op, "which slot of '%s' this is cannot be told, or it is outside 0..%d", b->name, b->stages - 1);
    return -1;
}

static struct slot *slot_of(struct machine *m, const struct op *op, const struct buf *b, const struct op *index)
{
    int i = slot_number(m, op, b, index);
    if (i >= 0 && !m->shared[b->id].slots)
        machine_fault(m, op, "'%s' holds no data", b->name);
    return m->failed ? NULL : &m->shared[b->id].slots[i];
}

static void bad_slot(struct machine *m, const struct op *op, const struct buf *b, const struct slot *s,
                     const char *what)
{
    machine_fault(m, op, "slot %d of '%s' %s", (int)(s - m->shared[b->id].slots), b->name, what);
}

// ---- writing and reading -----------------------------------------------------------------------------------------

static void check_unread(struct machine *m, const struct op *op, const struct buf *b, const struct slot *s)
{
    for (int q = 0; q < m->n; q++)
        if (s->busy[q])
            bad_slot(m, op, b, s, "is written while products under way may still read it");
        else if (s->read[q] && m->now->knows[q] < s->read[q])
            bad_slot(m, op, b, s, "is written while other warps may still read it");
}

// Does this program know that the slot's copy has landed? It awaited that, or heard from one that did.
static bool landed_for(const struct machine *m, const struct slot *s)
{
    bool known = !s->stamped || s->seen[m->now->number];
    for (int q = 0; q < m->n; q++)
        known |= s->seen[q] && m->now->knows[q] >= s->seen[q];
    return known;
}

static void write_slot(struct machine *m, const struct op *op)
{
    struct program *p = m->now;
    const struct buf *b = op->buf2;
    struct shared *x = &m->shared[b->id];
    struct slot *s = slot_of(m, op, b, op->args[0]);
    if (!s)
        return;
    if (s->state == SLOT_FLYING)
        bad_slot(m, op, b, s, "is written while a copy to it is on its way");
    else if (s->state == SLOT_LANDED && !landed_for(m, s))
        bad_slot(m, op, b, s, "is written while a copy to it may be on its way");
    check_unread(m, op, b, s);
    bool copy = op->code == OP_COPY;
    *s = (struct slot){ .state = copy ? SLOT_FLYING : SLOT_LANDED, .by = op, .writer = p->number };
    s->time = p->time;
    s->group = p->copies_closed;
    s->fill = copy ? x->fills++ : -1;
}

// The copies into a buffer are read one after another.
static void check_order(struct machine *m, const struct op *op, const struct buf *b, const struct slot *s)
{
    struct shared *x = &m->shared[b->id];
    int64_t *next = &x->next[m->now->number], last = x->settled > *next ? x->settled : *next;
    if (s->fill < *next - 1)
        bad_slot(m, op, b, s, "is read again, but it holds an earlier tile");
    else if (s->fill > last)
        bad_slot(m, op, b, s, "is read, but it holds a later tile than the next");
    *next = s->fill + 1 > *next ? s->fill + 1 : *next;
    x->reads[m->now->number] = true;
}

static void read_slot(struct machine *m, const struct op *op, const struct buf *b, const struct op *index)
{
    struct program *p = m->now;
    struct slot *s = slot_of(m, op, b, index);
    if (!s)
        return;
    if (s->state == SLOT_EMPTY)
        bad_slot(m, op, b, s, "is read but never written");
    else if (s->state == SLOT_FLYING || (s->stamped && !s->seen[p->number]))
        bad_slot(m, op, b, s, "is read before its copy was waited for");
    else if (!s->stamped && p->knows[s->writer] <= s->time)
        bad_slot(m, op, b, s, "is read before a barrier makes it visible");
    else if (s->fill >= 0)
        check_order(m, op, b, s);
    if (m->async)
        s->busy[p->number] = p->sums_closed + 1;
    else
        s->read[p->number] = p->time + 1;
}

// fn for each slot of data.
static void each_slot(struct machine *m, void (*fn)(struct machine *m, const struct buf *b, struct slot *s))
{
    for (int i = 0; i < m->k->bufs.n; i++)
        for (int j = 0; m->shared[i].slots && j < m->k->bufs.v[i]->stages; j++)
            fn(m, m->k->bufs.v[i], &m->shared[i].slots[j]);
}

static void land(struct machine *m, const struct buf *b, struct slot *s)
{
    s->state = SLOT_LANDED;
    s->time = m->now->time;
    if (m->d->land)
        m->d->land(m, b, (int)(s - m->shared[b->id].slots));
}

// ---- copies in groups --------------------------------------------------------------------------------------------

static void land_retired(struct machine *m, const struct buf *b, struct slot *s)
{
    const struct program *p = m->now;
    if (s->state == SLOT_FLYING && !s->stamped && s->writer == p->number && s->group < p->copies_retired)
        land(m, b, s);
}

static void wait_copies(struct machine *m, int64_t pending)
{
    struct program *p = m->now;
    int64_t done = p->copies_closed - pending;
    p->copies_retired = done > p->copies_retired ? done : p->copies_retired;
    each_slot(m, land_retired);
    for (int i = 0; i < m->k->bufs.n && !pending && !p->role; i++)
        m->shared[i].settled = m->shared[i].fills;
}

static void barrier(struct machine *m, const struct op *op)
{
    struct program *p = m->now;
    if (p->role)
        machine_fault(m, op, "a barrier of all warps stands in role '%s'", p->role->name);
    p->knows[p->number] = ++p->time;
}

// ---- asynchronous products ---------------------------------------------------------------------------------------

static bool adding(const struct program *p, int64_t group)
{
    return group > p->sums_retired;
}

// Sums that products still add to may be handed on, no more.
static void check_sums(struct machine *m, const struct op *op)
{
    struct program *p = m->now;
    int64_t first = op->nargs > 0 ? p->sum_op[op->args[0]->id] : 0;
    bool hands_on = op->code == OP_MMA || op->code == OP_SET || op->code == OP_VAR;
    for (int i = hands_on; i < op->nargs; i++)
        if (adding(p, p->sum_op[op->args[i]->id]))
            machine_fault(m, op, "a sum is used while products under way may still add to it");
    if (op->code == OP_SET || op->code == OP_VAR)
        p->sum_var[op->var->id] = first;
    p->sum_op[op->id] = op->code == OP_GET ? p->sum_var[op->var->id] : op->code == OP_MMA ? p->sums_closed + 1 : 0;
    p->sums_open |= op->code == OP_MMA;
}

static void release(struct machine *m, const struct buf *b, struct slot *s)
{
    struct program *p = m->now;
    (void)b;
    if (s->busy[p->number] && !adding(p, s->busy[p->number])) {
        s->busy[p->number] = 0;
        s->read[p->number] = p->time + 1;
    }
}

static void wait_sums(struct machine *m, int64_t pending)
{
    struct program *p = m->now;
    int64_t done = p->sums_closed - pending;
    p->sums_retired = done > p->sums_retired ? done : p->sums_retired;
    each_slot(m, release);
}

void sync_tile_ends(struct machine *m, const struct op *parallel)
{
    const struct program *p = m->now;
    if (p->sums_open || p->sums_retired < p->sums_closed)
        machine_fault(m, p->role ? p->role : parallel, "the tile ends with products that nobody waited for");
}

// ---- barriers between roles --------------------------------------------------------------------------------------

static void stamp(struct machine *m, const struct op *op, int at, int64_t phase)
{
    for (int i = 0; i < m->k->bufs.n; i++)
        for (int j = 0; m->shared[i].slots && j < m->k->bufs.v[i]->stages; j++) {
            struct slot *s = &m->shared[i].slots[j];
            if (s->state != SLOT_FLYING || s->stamped || s->writer != m->now->number)
                continue;
            s->stamped = true;
            s->barrier = op->buf;
            s->at = at;
            s->phase = phase;
        }
}

static struct phases *phases_of(struct machine *m, const struct op *op, int *at)
{
    *at = slot_number(m, op, op->buf, op->args[0]);
    if (*at >= 0 && !m->shared[op->buf->id].phases)
        machine_fault(m, op, "'%s' is no barrier", op->buf->name);
    else if (*at >= 0 && !m->now->role)
        machine_fault(m, op, "stands outside the roles");
    return m->failed ? NULL : &m->shared[op->buf->id].phases[*at];
}

static void join(int64_t *into, const int64_t *from)
{
    for (int i = 0; i < PROGRAMS_MAX; i++)
        into[i] = from[i] > into[i] ? from[i] : into[i];
}

static void arrive(struct machine *m, const struct op *op)
{
    struct program *p = m->now;
    int at;
    struct phases *x = phases_of(m, op, &at);
    if (!x)
        return;
    if (x->arrived[p->number])
        machine_fault(m, op, "role '%s' arrives twice in phase %lld of slot %d of '%s'", p->role->name,
                      (long long)x->complete, at, op->buf->name);
    stamp(m, op, at, x->complete);
    int64_t knows[PROGRAMS_MAX];
    memcpy(knows, p->knows, sizeof knows);
    knows[p->number] = ++p->time;
    join(x->open, knows);
    x->arrived[p->number] = true;
    for (int i = 0; i < m->n; i++)
        if (m->shared[op->buf->id].arrives[i] && !x->arrived[i])
            return;
    join(x->closed, x->open);
    memset(x->open, 0, sizeof x->open);
    memset(x->arrived, 0, sizeof x->arrived);
    x->complete++;
}

// The hardware keeps but the parity of phases: only the one under way and the last complete one can be asked for.
static bool passes(struct machine *m, const struct op *op, const struct phases *x, int at, int64_t phase)
{
    if (phase < 0 || phase == x->complete - 1)
        return true;
    if (phase != x->complete)
        machine_fault(
            m, op,
            "role '%s' waits for phase %lld of slot %d of '%s', when %lld are complete: parity cannot tell them apart",
            m->now->role->name, (long long)phase, at, op->buf->name, (long long)x->complete);
    return false;
}

static void arrives_here(struct machine *m, const struct op *op, int at, int64_t phase)
{
    struct program *p = m->now;
    for (int i = 0; i < m->k->bufs.n; i++)
        for (int j = 0; m->shared[i].slots && j < m->k->bufs.v[i]->stages; j++) {
            struct slot *s = &m->shared[i].slots[j];
            if (!s->stamped || s->barrier != op->buf || s->at != at || s->phase > phase)
                continue;
            if (s->state == SLOT_FLYING)
                land(m, m->k->bufs.v[i], s);
            s->seen[p->number] = p->time + 1;
        }
}

bool sync_await(struct machine *m, const struct op *op)
{
    struct program *p = m->now;
    int at;
    int64_t phase;
    struct phases *x = phases_of(m, op, &at);
    if (x && !m->d->scalar(m, op->args[1], &phase))
        machine_fault(m, op, "which phase this is cannot be told");
    if (m->failed)
        return true;
    p->stands = op;
    p->slot = at;
    p->phase = phase;
    if (!passes(m, op, x, at, phase))
        return m->failed;
    p->stands = NULL;
    if (phase >= 0) {
        join(p->knows, x->closed);
        arrives_here(m, op, at, phase);
    }
    return true;
}

// ---- all of it ---------------------------------------------------------------------------------------------------

void sync_run(struct machine *m, const struct op *op)
{
    if (m->async)
        check_sums(m, op);
    switch ((int)op->code) {
    case OP_COPY:
    case OP_PUT: write_slot(m, op); return;
    case OP_MMA:
        read_slot(m, op, op->buf, op->args[1]);
        read_slot(m, op, op->buf2, op->args[2]);
        return;
    case OP_COMMIT: m->now->copies_closed++; return;
    case OP_WAIT: wait_copies(m, op->ival); return;
    case OP_BARRIER: barrier(m, op); return;
    case OP_MMA_COMMIT:
        m->now->sums_closed++;
        m->now->sums_open = false;
        return;
    case OP_MMA_WAIT: wait_sums(m, op->ival); return;
    case OP_ARRIVE: arrive(m, op); return;
    }
}

// Between roles, every tile that was brought is for somebody, who gives its slot back.
static void check_end(struct machine *m, const struct buf *b, struct slot *s)
{
    const struct shared *x = &m->shared[b->id];
    bool read = false;
    if (s->state == SLOT_FLYING)
        machine_fault(m, s->by, "the kernel ends with copies that nobody waited for: to slot %d of '%s'",
                      (int)(s - x->slots), b->name);
    if (s->state != SLOT_LANDED || !s->stamped)
        return;
    for (int q = 0; q < m->n; q++) {
        read |= x->reads[q] && x->next[q] > s->fill;
        if (s->read[q] > m->programs[q].time)
            machine_fault(m, m->programs[q].role, "role '%s' reads slot %d of '%s', but does not give it back",
                          m->programs[q].role->name, (int)(s - x->slots), b->name);
    }
    if (!read)
        bad_slot(m, s->by, b, s, "is filled with a tile that nobody reads");
}

static void check_arrivals(struct machine *m, const struct buf *b)
{
    const struct shared *x = &m->shared[b->id];
    for (int j = 0; x->phases && j < b->stages; j++)
        for (int i = 0; i < m->n; i++)
            if (x->phases[j].arrived[i])
                machine_fault(m, m->programs[i].role,
                              "role '%s' has arrived at slot %d of '%s' once more than another role",
                              m->programs[i].role->name, j, b->name);
}

void sync_block_ends(struct machine *m)
{
    each_slot(m, check_end);
    for (int i = 0; i < m->k->bufs.n; i++)
        check_arrivals(m, m->k->bufs.v[i]);
    for (int i = 0; i < m->n; i++)
        if (m->programs[i].sums_open || m->programs[i].sums_retired < m->programs[i].sums_closed)
            machine_fault(m, m->programs[i].role, "the kernel ends with products that nobody waited for");
}
