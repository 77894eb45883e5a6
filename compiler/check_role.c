// Roles of the checker: warps of their own, the barriers between them, asynchronous matrix products.
//
// Each role runs its block and what stands beside the roles as a program of its own, with its own copy of every
// variable.
#include "check.h"

#include <string.h>

// ---- role name(first, warps) ------------------------------------------------------------------------------------

static bool is_grid_body(const struct checker *s, const struct block *b)
{
    return s->grid && s->grid->body == b;
}

static bool role_place(struct checker *s, const struct node *n)
{
    if (s->role)
        return error(s->c, n->loc,
                     "role '%s' stands in role '%s': roles stand side by side, directly in the body of 'parallel'",
                     n->name, s->role->name);
    if (!is_grid_body(s, s->b))
        return error(s->c, n->loc, "role '%s' must stand directly in the body of 'parallel'", n->name);
    if (!s->k->scheduled || !s->k->laid_out)
        return error(
            s->c, n->loc,
            "role '%s' needs a kernel whose warps and layout are stated: @warps(m, n) @producers(n) @shared(bytes)",
            n->name);
    return true;
}

static bool role_warps(struct checker *s, const struct node *n)
{
    const struct sched *d = &s->k->sched;
    int products = d->warps_m * d->warps_n, all = products + d->producers, roles = 0;
    int64_t first = n->value, warps = n->value2;
    if (warps < 1)
        return error(s->c, n->loc, "role '%s' has no warps", n->name);
    if (warps > all - first)
        return error(
            s->c, n->loc,
            "role '%s' takes %lld warps from warp %lld, but the block has %d: @warps(%d, %d) and @producers(%d)",
            n->name, (long long)warps, (long long)first, all, d->warps_m, d->warps_n, d->producers);
    for (int i = 0; i < s->b->ops.n; i++) {
        const struct op *o = s->b->ops.v[i];
        if (o->code != OP_ROLE)
            continue;
        roles++;
        if (first < o->ival + o->ival2 && o->ival < first + warps) {
            error(s->c, n->loc, "role '%s' takes warp %lld, which role '%s' has", n->name,
                  (long long)(first > o->ival ? first : o->ival), o->name);
            note(s->c, o->loc, "role '%s' is here", o->name);
            return false;
        }
    }
    return roles < ROLES_MAX || error(s->c, n->loc, "a kernel has at most %d roles", ROLES_MAX);
}

static int role_registers(struct checker *s, const struct node *n)
{
    const struct annot *a = annot_find(n, "registers");
    int regs = a ? annot_int(s, a, 0, 24, 256) : 0;
    if (regs % 8)
        error(s->c, a->args[0]->loc, "'@registers' takes a multiple of 8 from 24 to 256, not %d", regs);
    return regs;
}

void check_role(struct checker *s, const struct node *n)
{
    struct op *op = op_new(s->c, s->k, OP_ROLE, n->loc), *outer = s->role;
    annots_only(s, n, "registers");
    op->name = unique_name(s, n->name);
    op->regs = role_registers(s, n);
    op->body = block_new(s->c, op);
    if (role_place(s, n) && role_warps(s, n)) {
        op->ival = n->value;
        op->ival2 = n->value2;
        block_push(s->c, s->b, op);
    }
    s->role = op;
    check_block(s, n->kids[0], op->body);
    s->role = outer;
}

// ---- statements of roles -----------------------------------------------------------------------------------------

void check_barrier_facts(struct checker *s, const struct node *n, struct buf *b)
{
    const struct annot *offset = annot_find(n, "offset");
    if (!annot_find(n, "barrier"))
        return;
    b->barrier = true;
    if (b->elem != EL_I32 || b->rows != 1 || b->cols != 2)
        error(s->c, n->loc, "barrier '%s' is %s[%d][%d, %d]: a barrier is i32[stages][1, 2], 8 bytes each", n->name,
              n->name2, b->stages, b->rows, b->cols);
    if (b->swizzle)
        error(s->c, annot_find(n, "swizzle")->loc, "barrier '%s' cannot be swizzled", n->name);
    if (offset && b->offset % 8)
        error(s->c, offset->loc, "barrier '%s' starts at byte %lld: its @offset must be a multiple of 8", n->name,
              (long long)b->offset);
    if (s->k->sched.persistent && s->b->parent)
        error(s->c, n->loc,
              "barrier '%s' counts its phases across the tiles of a persistent block: declare it before 'parallel'",
              n->name);
}

// arrive(barrier[slot]), await(barrier[slot], phase)
static void check_mbarrier(struct checker *s, const struct node *n, enum opcode code)
{
    int nargs = op_infos[code].nargs;
    struct op *args[2] = { 0 }, *op;
    struct buf *b;
    if (!check_nargs(s, n, nargs, nargs, code == OP_ARRIVE ? "arrive(barrier[slot])" : "await(barrier[slot], phase)"))
        return;
    if (!s->role)
        error(s->c, n->loc, "'%s' may stand only in a role: the roles of a block meet there", n->name);
    args[0] = check_slot(s, n->kids[0], &b, true);
    if (nargs == 2)
        args[1] = scalar_i32(s, n->kids[1], "the phase");
    if (!(op = op_make(s, code, n->loc, nargs, args)))
        return;
    op->buf = b;
    op_add(s, op);
}

// wait(n), mma_wait(n)
static void check_wait(struct checker *s, const struct node *n, enum opcode code)
{
    if (!check_nargs(s, n, 1, 1, arena_printf(s->c->arena, "%s(groups still pending)", n->name)))
        return;
    if (n->kids[0]->kind != N_INT || n->kids[0]->value < 0 || n->kids[0]->value > 64) {
        error(s->c, n->kids[0]->loc, "'%s' takes a number from 0 to 64", n->name);
        return;
    }
    struct op *op = op_new(s->c, s->k, code, n->loc);
    op->ival = n->kids[0]->value;
    op_add(s, op);
}

// commit(), mma_commit(), depend(), barrier()
static void check_plain(struct checker *s, const struct node *n, enum opcode code)
{
    if (!check_nargs(s, n, 0, 0, arena_printf(s->c->arena, "%s()", n->name)))
        return;
    if (code == OP_BARRIER && s->role)
        error(s->c, n->loc,
              "'barrier' waits for all warps of the block, role '%s' has only some: roles meet by arrive and await",
              s->role->name);
    op_add(s, op_new(s->c, s->k, code, n->loc));
}

// Statements without data: false if it is none of them.
bool check_action(struct checker *s, const struct node *n)
{
    static const struct {
        const char *name;
        enum opcode code;
        void (*fn)(struct checker *s, const struct node *n, enum opcode code);
    } actions[] = { { "commit", OP_COMMIT, check_plain },         { "wait", OP_WAIT, check_wait },
                    { "barrier", OP_BARRIER, check_plain },       { "depend", OP_DEPEND, check_plain },
                    { "mma_commit", OP_MMA_COMMIT, check_plain }, { "mma_wait", OP_MMA_WAIT, check_wait },
                    { "arrive", OP_ARRIVE, check_mbarrier },      { "await", OP_AWAIT, check_mbarrier } };
    for (size_t i = 0; i < COUNTOF(actions); i++)
        if (!strcmp(actions[i].name, n->name)) {
            actions[i].fn(s, n, actions[i].code);
            return true;
        }
    return false;
}

// ---- all roles of a kernel ---------------------------------------------------------------------------------------

// Every role runs what stands beside it.
static void beside_roles(struct checker *s, const struct op *op)
{
    unsigned f = op_infos[op->code].flags;
    if (op->code == OP_ROLE || op->code == OP_VAR || op->code == OP_SHARED || (!(f & F_EFFECT) && !(f & F_SYNC)))
        return;
    error(s->c, op->loc, "'%s' stands beside roles, each of which would run it: move it into one",
          op_infos[op->code].name);
}

struct sets { // by var id
    struct checker *s;
    const struct op *role;                     // being walked; NULL: beside them
    const struct op **set[2], **by[2], **read; // the first SET in a role, the first in another role, and these roles
};

static bool note_set(void *user, struct op *op)
{
    struct sets *x = user;
    if (op->code != OP_SET)
        return true;
    int id = op->var->id, i = x->by[0][id] && x->by[0][id] != x->role;
    if (!x->by[i][id]) {
        x->by[i][id] = x->role;
        x->set[i][id] = op;
    }
    return true;
}

static bool note_get(void *user, struct op *op)
{
    struct sets *x = user;
    struct ctx *c = x->s->c;
    for (int i = 0; op->code == OP_GET && i < 2; i++) {
        const struct op *by = x->by[i][op->var->id];
        if (!by || by == x->role || x->read[op->var->id])
            continue;
        x->read[op->var->id] = op;
        error(c, op->loc,
              "variable '%s' is set in role '%s' and read %s: each role has its own copy; pass values through shared "
              "memory",
              op->var->name, by->name,
              x->role ? arena_printf(c->arena, "in role '%s'", x->role->name) : "beside the roles");
        note(c, x->set[i][op->var->id]->loc, "it is set here");
    }
    return true;
}

void check_roles(struct checker *s)
{
    const struct block *b = s->grid ? s->grid->body : NULL;
    struct sets x = { .s = s };
    bool any = false;
    for (int i = 0; b && i < b->ops.n; i++)
        any |= b->ops.v[i]->code == OP_ROLE;
    if (!any)
        return;
    for (int i = 0; i < 2; i++) {
        x.set[i] = NEWN(s->c->arena, const struct op *, s->k->vars.n + 1);
        x.by[i] = NEWN(s->c->arena, const struct op *, s->k->vars.n + 1);
    }
    x.read = NEWN(s->c->arena, const struct op *, s->k->vars.n + 1);
    for (int i = 0; i < b->ops.n; i++) {
        beside_roles(s, b->ops.v[i]);
        x.role = b->ops.v[i];
        if (x.role->code == OP_ROLE)
            walk(x.role->body, note_set, &x);
    }
    for (int i = 0; i < b->ops.n; i++) {
        x.role = b->ops.v[i]->code == OP_ROLE ? b->ops.v[i] : NULL;
        if (x.role)
            walk(x.role->body, note_get, &x);
        else
            note_get(&x, b->ops.v[i]);
    }
}
