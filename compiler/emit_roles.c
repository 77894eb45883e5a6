// Part of emit: warps of different roles, the barriers in shared memory between them, and the copies of the copy engine.
//
// Each role becomes a program of its own, the grid's loop included: one branch of a chain of ifs over the warp's number, so that
// the assembler can give each its own registers. What stands before the roles is written once in each.
#include "emit.h"

#include <string.h>

// ---- who arrives -------------------------------------------------------------------------------------------------

struct arrivals {
    const struct buf *barrier;
    bool arrives, threads, engine; // of one role: at this barrier; copies by its threads; copies by the engine
};

static bool note_role(void *user, struct op *op)
{
    struct arrivals *a = user;
    a->arrives |= op->code == OP_ARRIVE && op->buf == a->barrier;
    a->threads |= op->code == OP_COPY && !op->bulk;
    a->engine |= op->code == OP_COPY && op->bulk;
    return true;
}

static struct arrivals arrivals_of(const struct op *role, const struct buf *barrier)
{
    struct arrivals a = { .barrier = barrier };
    walk(role->body, note_role, &a);
    return a;
}

struct count {
    const struct em *m;
    const struct buf *barrier;
    int n;        // arrivals of one phase
    bool threads; // copies by threads are among what a phase waits for
};

// Copies by threads: each thread arrives when its own have landed. By the engine: the thread that asks. Else: each warp once.
static bool count_role(void *user, struct op *op)
{
    struct count *c = user;
    if (op->code != OP_ROLE)
        return true;
    struct arrivals a = arrivals_of(op, c->barrier);
    if (!a.arrives)
        return true;
    int n = (a.threads ? (int)op->ival2 * c->m->e.arch->lanes : 0) + (a.engine ? 1 : 0);
    c->n += n ? n : (int)op->ival2;
    c->threads |= a.threads;
    return true;
}

static struct count count_of(const struct em *m, const struct buf *barrier)
{
    struct count c = { .m = m, .barrier = barrier };
    walk(m->k->body, count_role, &c);
    return c;
}

// ---- barriers ----------------------------------------------------------------------------------------------------

static val barrier_at(struct em *m, const struct buf *b, val slot)
{
    val p = mb_gep(m->mb, m->e.smem, mb_bin(m->mb, "shl", slot, mb_i32(m->mb, 3)));
    return mb_gep(m->mb, p, mb_i32(m->mb, b->offset));
}

void em_barriers(struct em *m)
{
    struct mb_if s;
    bool any = false;
    for (int i = 0; i < m->k->bufs.n; i++)
        any |= m->k->bufs.v[i]->barrier;
    if (!any)
        return;
    mb_if_begin(m->mb, &s, mb_icmp(m->mb, IC_EQ, m->e.thread, mb_i32(m->mb, 0)), 0, NULL);
    for (int i = 0; i < m->k->bufs.n; i++) {
        const struct buf *b = m->k->bufs.v[i];
        int arrivals = b->barrier ? count_of(m, b).n : 0;
        for (int j = 0; b->barrier && j < b->stages; j++)
            m->t->barrier_init(&m->e, barrier_at(m, b, mb_i32(m->mb, j)), arrivals);
    }
    mb_if_else(m->mb, &s, NULL);
    mb_if_end(m->mb, &s, NULL);
    m->t->barrier_ready(&m->e);
}

static val leader(struct em *m)
{
    return mb_icmp(m->mb, IC_EQ, m->e.thread, mb_i32(m->mb, 0));
}

void em_arrive(struct em *m, const struct op *op)
{
    val at = barrier_at(m, op->buf, em_scalar(m, op->args[0]));
    if (!m->role) {
        em_refuse(m, op->loc, "'arrive' stands in a role");
        return;
    }
    struct arrivals a = arrivals_of(m->role, op->buf);
    if (a.threads)
        m->t->barrier_arrive(&m->e, at, NOVAL, true);
    if (a.engine)
        m->t->barrier_arrive(&m->e, at, leader(m), false);
    if (!a.threads && !a.engine)
        m->t->barrier_arrive(&m->e, at, mb_icmp(m->mb, IC_EQ, m->e.lane, mb_i32(m->mb, 0)), false);
}

void em_await(struct em *m, const struct op *op)
{
    val at = barrier_at(m, op->buf, em_scalar(m, op->args[0]));
    val parity = mb_bin(m->mb, "and", em_scalar(m, op->args[1]), mb_i32(m->mb, 1));
    m->t->barrier_await(&m->e, at, parity, count_of(m, op->buf).threads);
}

// The engine reports to the barrier of the next arrive behind the copy.
void em_box(struct em *m, const struct block *b, int at)
{
    const struct op *op = b->ops.v[at];
    for (int i = at + 1; i < b->ops.n; i++) {
        const struct op *next = b->ops.v[i];
        if (next->code == OP_ARRIVE && m->ops[next->args[0]->id].v) {
            em_copy_box(m, op, barrier_at(m, next->buf, em_scalar(m, next->args[0])));
            return;
        }
    }
    em_refuse(m, op->loc, "a copy by the engine needs an 'arrive' behind it in its block, at a slot known before it");
}

// ---- roles -------------------------------------------------------------------------------------------------------

static void one_role(struct em *m, const struct op *role, void (*fn)(struct em *m, const struct op *parallel),
                     const struct op *parallel)
{
    struct emit outer = m->e;
    int warps = m->warps;
    struct tile *vars = NEWN(m->c->arena, struct tile, m->k->vars.n + 1); // each role has its own
    struct scope s = em_enter(m);
    memcpy(vars, m->vars, sizeof *vars * (size_t)m->k->vars.n);
    m->role = role;
    m->warps = (int)role->ival2;
    m->e.warp = mb_bin(m->mb, "sub", m->e.warp, mb_i32(m->mb, role->ival));
    m->e.thread = mb_bin(m->mb, "sub", m->e.thread, mb_i32(m->mb, role->ival * m->e.arch->lanes));
    if (role->regs)
        m->t->role_begin(&m->e, role->regs);
    struct arrivals a = arrivals_of(role, NULL);
    struct mb_if first;
    bool alone = a.engine && !a.threads;
    // Only the warp that asks the engine is held to the ring's pace: another could fall two phases behind, whose parity is the same.
    if (alone)
        mb_if_begin(m->mb, &first, mb_icmp(m->mb, IC_EQ, m->e.warp, mb_i32(m->mb, 0)), 0, NULL);
    fn(m, parallel);
    if (alone) {
        mb_if_else(m->mb, &first, NULL);
        mb_if_end(m->mb, &first, NULL);
    }
    m->e = outer;
    m->warps = warps;
    m->role = NULL;
    memcpy(m->vars, vars, sizeof *vars * (size_t)m->k->vars.n);
    em_leave(m, s);
}

void em_each_role(struct em *m, const struct block *b, void (*fn)(struct em *m, const struct op *parallel),
                  const struct op *parallel)
{
    struct mb_if chain[ROLES_MAX];
    int n = 0;
    for (int i = 0; i < b->ops.n && n < ROLES_MAX; i++) {
        const struct op *role = b->ops.v[i];
        if (role->code != OP_ROLE)
            continue;
        val at = mb_bin(m->mb, "sub", m->e.warp, mb_i32(m->mb, role->ival));
        mb_if_begin(m->mb, &chain[n], mb_icmp(m->mb, IC_ULT, at, mb_i32(m->mb, role->ival2)), 0, NULL);
        one_role(m, role, fn, parallel);
        mb_if_else(m->mb, &chain[n++], NULL);
    }
    while (n > 0)
        mb_if_end(m->mb, &chain[--n], NULL);
}
