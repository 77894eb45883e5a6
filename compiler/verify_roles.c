// Part of verify: roles, barriers and copies of the engine stand where they may.
//
//   role      directly in the grid's block; its warps are the block's, in whole groups of those that share a matrix
//             instruction, and no other role's; beside roles stand values and declarations only, since each role runs them
//   barriers  are for arrive and await, which stand in roles; before a persistent grid, as their phases go on from tile to tile
//   copies    of the engine (@bulk) report to the next arrive of their block
#include "verify.h"

static const struct mma *instruction(const struct check *v)
{
    const struct arch *a = v->c->arch;
    int i = v->k->sched.mma;
    return a && i >= 0 && i < a->nmmas ? &a->mmas[i] : NULL;
}

static void check_role(struct check *v, const struct block *b, int at)
{
    const struct sched *s = &v->k->sched;
    const struct op *op = b->ops.v[at];
    const char *name = op->name ? op->name : "?";
    int64_t end = op->ival + op->ival2, warps = s->warps_m * s->warps_n + s->producers;
    if (!b->parent || b->parent->code != OP_PARALLEL)
        fault(v, op->loc, "role '%s' does not stand directly in the grid's block", name);
    if (op->ival < 0 || op->ival2 < 1 || end > warps)
        fault(v, op->loc, "role '%s' has warps %lld to %lld of a block of %lld", name, (long long)op->ival,
              (long long)end - 1, (long long)warps);
    if (op->regs < 0 || (v->c->arch && op->regs > v->c->arch->max_regs))
        fault(v, op->loc, "role '%s' has %d registers a thread", name, op->regs);
    for (int i = 0; i < at; i++) {
        const struct op *o = b->ops.v[i];
        if (o->code == OP_ROLE && o->ival < end && op->ival < o->ival + o->ival2)
            fault(v, op->loc, "roles '%s' and '%s' share warps", o->name ? o->name : "?", name);
    }
}

static bool has_roles(const struct block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.v[i]->code == OP_ROLE)
            return true;
    return false;
}

// In a role, what needs all warps of the block cannot be; a product needs whole groups of warps, all that hold its sum.
static void check_inside(struct check *v, const struct op *op)
{
    const struct op *role = v->role;
    const struct mma *i = instruction(v);
    const struct home *h = op->nargs && op->args[0] && op->axis ? dist_home(v->k, op->args[0]->dist, op->axis) : NULL;
    bool exchange = op->code == OP_BARRIER || op->code == OP_ATOMIC_ADD;
    for (int j = 0; h && op_infos[op->code].flags & F_SYNC && j < h->nbits; j++)
        exchange |= h->bits[j].home == BIT_WARP;
    if (exchange)
        fault(v, op->loc, "'%s' needs all warps of the block, but stands in role '%s'", op_infos[op->code].name,
              role->name);
    if (op->code == OP_MMA && i && (role->ival % i->warps || role->ival2 != v->k->sched.warps_m * v->k->sched.warps_n))
        fault(v, op->loc, "an mma of %d warps, of %d together, stands in role '%s' of warps %lld to %lld",
              v->k->sched.warps_m * v->k->sched.warps_n, i->warps, role->name, (long long)role->ival,
              (long long)(role->ival + role->ival2) - 1);
}

static void check_bulk(struct check *v, const struct block *b, int at)
{
    const struct op *op = b->ops.v[at];
    int next = at + 1;
    while (next < b->ops.n && b->ops.v[next]->code != OP_ARRIVE)
        next++;
    if (!v->role || next == b->ops.n)
        fault(v, op->loc, "a bulk copy needs an 'arrive' behind it in its block, in a role");
    if (v->c->arch && v->c->arch->copy != COPY_BULK)
        fault(v, op->loc, "%s has no engine for bulk copies", v->c->arch->name);
}

static void check_barrier(struct check *v, const struct op *op)
{
    bool sync = op->code == OP_ARRIVE || op->code == OP_AWAIT;
    const struct buf *used[2] = { op->buf, op->buf2 }, *b = op->buf;
    if (sync && !v->role)
        fault(v, op->loc, "'%s' stands outside the roles", op_infos[op->code].name);
    if (sync && !(b && b->barrier))
        fault(v, op->loc, "'%s' of '%s', which is no barrier", op_infos[op->code].name, b ? b->name : "?");
    for (int i = 0; i < 2 && !sync && op->code != OP_SHARED; i++)
        if (used[i] && used[i]->barrier)
            fault(v, op->loc, "'%s' of the barrier '%s'", op_infos[op->code].name, used[i]->name);
    for (int i = 0; sync && i < op->nargs; i++)
        if (op->args[i] && (op->args[i]->type.rank || op->args[i]->type.elem != EL_I32))
            fault(v, op->loc, "operand %d of '%s' must be a scalar i32", i + 1, op_infos[op->code].name);
}

void verify_roles(struct check *v, const struct block *b, int at)
{
    const struct op *op = b->ops.v[at], *grid = b->parent && b->parent->code == OP_PARALLEL ? b->parent : NULL;
    unsigned flags = op_infos[op->code].flags;
    check_barrier(v, op);
    if (op->code == OP_ROLE)
        check_role(v, b, at);
    else if (v->role)
        check_inside(v, op);
    else if (grid && (flags & F_EFFECT || flags & F_SYNC) && op->code != OP_VAR && op->code != OP_SHARED &&
             has_roles(b))
        fault(v, op->loc, "'%s' stands beside roles, each of which would run it", op_infos[op->code].name);
    if (op->code == OP_COPY && op->bulk)
        check_bulk(v, b, at);
    if (op->code == OP_SHARED && op->buf->barrier &&
        (op->buf->elem != EL_I32 || op->buf->rows != 1 || op->buf->cols != 2))
        fault(v, op->loc, "barrier '%s' must be i32[%d][1, 2]", op->buf->name, op->buf->stages);
    if (op->code == OP_SHARED && op->buf->barrier && v->k->sched.persistent && b->parent)
        fault(v, op->loc, "barrier '%s' must stand before the persistent grid: its phases go on from tile to tile",
              op->buf->name);
    if ((op->code == OP_MMA_WAIT || op->code == OP_WAIT) && op->ival < 0)
        fault(v, op->loc, "'%s' of %lld groups", op_infos[op->code].name, (long long)op->ival);
}
