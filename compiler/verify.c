// verify: after every stage, is the tile IR what that stage promises? Lists all faults at the guilty lines.
//
//   any stage   values are defined before use and in scope; operands and types fit (op_infer again); axes are in scope
//               and lie between the bounds that their declaration computes
//   expand      no composite operation
//   sched       sizes are powers of two; threads within the arch's limits
//   layout      no dot; every register tile has homes that are a bijection onto (register, lane, warp); operands live
//               where the operation reads them; shared buffers lie apart and inside the block's bytes; copies, puts and
//               mmas fit them; roles and barriers stand where they may (verify_roles.c); rings are safe (verify_ring.c)
#include "verify.h"

#include <string.h>

const char *const stage_names[ST_COUNT] = { "tokens", "ast",      "tile", "expand",  "sched", "layout",
                                            "mlir",   "mlirllvm", "llvm", "llvmopt", "asm",   "image" };

bool fault(struct check *v, struct loc at, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    v->faults++;
    return error(v->c, at, "internal: after %s, kernel '%s': %s", stage_names[v->after], v->k->name, text);
}

static int log2_of(int64_t n)
{
    int b = 0;
    while ((int64_t)1 << b < n)
        b++;
    return b;
}

// ---- values and types --------------------------------------------------------------------------------------------

static bool same_axes(const struct type *a, const struct type *b)
{
    bool same = a->rank == b->rank && a->elem == b->elem;
    for (int i = 0; same && i < a->rank; i++)
        same = type_has_axis(b, a->axes[i]);
    return same;
}

static void check_type(struct check *v, const struct op *op)
{
    enum type_rule r = op_infos[op->code].rule;
    struct op again = *op;
    int had = v->c->errors;
    if (r == TR_OWN)
        return;
    if (!op_infer(v->c, &again))
        v->faults += v->c->errors - had;
    else if (r != TR_NONE && op->code != OP_MMA && !same_axes(&again.type, &op->type))
        fault(v, op->loc, "'%s' has type %s, its operands give %s", op_infos[op->code].name, type_text(v->c, &op->type),
              type_text(v->c, &again.type));
}

static void check_scope(struct check *v, const struct op *op)
{
    for (int i = 0; i < op->nargs; i++)
        if (!op->args[i])
            fault(v, op->loc, "operand %d of '%s' is missing", i + 1, op_infos[op->code].name);
        else if (!v->live[op->args[i]->id])
            fault(v, op->loc, "operand %d of '%s' is used out of its scope", i + 1, op_infos[op->code].name);
    for (int i = 0; i < op->type.rank; i++)
        if (!v->axis_live[op->type.axes[i]->id])
            fault(v, op->loc, "axis '%s' is used out of its scope", op->type.axes[i]->name);
    if (op_infos[op->code].nargs >= 0 && op->nargs != op_infos[op->code].nargs)
        fault(v, op->loc, "'%s' has %d operands, not %d", op_infos[op->code].name, op->nargs, op_infos[op->code].nargs);
}

// Bounds are found by two ways, the operands of the declaration and the axis: they must be the same values.
static void check_bounds(struct check *v, const struct op *op)
{
    const struct axis *a = op->axis;
    bool declares = op->code == OP_FOR || op->code == OP_AT || op->code == OP_RANGE;
    if (declares && !a)
        fault(v, op->loc, "'%s' declares no axis", op_infos[op->code].name);
    else if (declares && (a->lo != op->args[0] || a->hi != op->args[1]))
        fault(v, op->loc, "the bounds of axis '%s' are not the operands of its '%s'", a->name, op_infos[op->code].name);
    for (int i = 0; i < op->nclauses; i++) {
        const struct clause *c = &op->clauses[i];
        for (int j = 0; j < 2 && c->kind != CL_MAP; j++) {
            const struct op *x = j ? c->hi : c->lo;
            if (!x || !v->live[x->id])
                fault(v, op->loc, "a bound of clause %d of 'parallel' is used out of its scope", i + 1);
            else if (x->type.elem != EL_I32 || x->type.rank)
                fault(v, op->loc, "a bound of clause %d of 'parallel' must be a scalar i32, not %s", i + 1,
                      type_text(v->c, &x->type));
        }
        if (c->kind == CL_TILE && (!c->axis || c->axis->lo != c->lo || c->axis->hi != c->hi))
            fault(v, op->loc, "the bounds of axis '%s' are not those of its clause", c->axis ? c->axis->name : "?");
    }
}

static void check_stage(struct check *v, const struct op *op)
{
    unsigned flags = op_infos[op->code].flags;
    if (v->after >= ST_EXPAND && flags & F_COMPOSITE)
        fault(v, op->loc, "composite operation '%s' is left", op_infos[op->code].name);
    if (v->after >= ST_LAYOUT && v->k->laid_out && op->code == OP_DOT)
        fault(v, op->loc, "a dot is left");
}

static void check_block(struct check *v, const struct block *b);

static void check_op(struct check *v, const struct op *op)
{
    check_stage(v, op);
    check_scope(v, op);
    check_bounds(v, op);
    if (!v->faults)
        check_type(v, op);
    if (v->after >= ST_LAYOUT && v->k->laid_out)
        check_places(v, op);
    v->live[op->id] = true;
    struct axis *own = op->code == OP_FOR || op->code == OP_AT || op->code == OP_RANGE ? op->axis : NULL;
    if (own)
        v->axis_live[own->id] = true;
    for (int i = 0; i < op->nclauses; i++)
        if (op->clauses[i].axis)
            v->axis_live[op->clauses[i].axis->id] = true;
    if (op->body)
        check_block(v, op->body);
    if (op->other)
        check_block(v, op->other);
    if (own && op->code != OP_RANGE)
        v->axis_live[own->id] = false;
}

static void check_block(struct check *v, const struct block *b)
{
    for (int i = 0; i < b->ops.n; i++) {
        const struct op *op = b->ops.v[i];
        if (v->after >= ST_LAYOUT && v->k->laid_out)
            verify_roles(v, b, i);
        v->role = op->code == OP_ROLE ? op : v->role;
        check_op(v, op);
        v->role = op->code == OP_ROLE ? NULL : v->role;
    }
    for (int i = 0; i < b->ops.n; i++) {
        v->live[b->ops.v[i]->id] = false;
        if (b->ops.v[i]->code == OP_RANGE)
            v->axis_live[b->ops.v[i]->axis->id] = false;
    }
}

// ---- sizes -------------------------------------------------------------------------------------------------------

static void check_sizes(struct check *v)
{
    const struct kernel *k = v->k;
    const struct arch *a = v->c->arch;
    for (int i = 0; i < k->axes.n; i++)
        if (k->axes.v[i]->size < 1 || k->axes.v[i]->size & (k->axes.v[i]->size - 1))
            fault(v, k->axes.v[i]->loc, "axis '%s' has size %d", k->axes.v[i]->name, k->axes.v[i]->size);
    int warps = k->sched.warps_m * k->sched.warps_n + k->sched.producers, threads = warps * (a ? a->lanes : 1);
    if (a && threads > a->max_threads) {
        v->faults++;
        error(v->c, k->sched.loc.line ? k->sched.loc : k->loc,
              "%d warps of %d lanes are %d threads; a block of %s has at most %d", warps, a->lanes, threads, a->name,
              a->max_threads);
    }
}

// ---- homes -------------------------------------------------------------------------------------------------------

// One home: the bits of the position, each in a place of its own; register bits numbered from 0.
static void check_home(struct check *v, const struct home *h)
{
    unsigned regs = 0, lanes = 0, warps = 0;
    int lane_bits = log2_of(v->c->arch ? v->c->arch->lanes : 64), nregs = 0;
    int warp_bits = log2_of((int64_t)v->k->sched.warps_m * v->k->sched.warps_n);
    if (h->nbits != log2_of(h->axis->size))
        fault(v, h->axis->loc, "axis '%s' of size %d has %d bits", h->axis->name, h->axis->size, h->nbits);
    for (int i = 0; i < h->nbits; i++) {
        unsigned bit = 1u << h->bits[i].pos, *set = h->bits[i].home == BIT_REG    ? &regs
                                                    : h->bits[i].home == BIT_LANE ? &lanes
                                                                                  : &warps;
        if (*set & bit)
            fault(v, h->axis->loc, "two bits of axis '%s' share a place", h->axis->name);
        *set |= bit;
        nregs += h->bits[i].home == BIT_REG;
    }
    if (regs != (1u << nregs) - 1)
        fault(v, h->axis->loc, "the register bits of axis '%s' are not numbered from 0", h->axis->name);
    if (lanes >> lane_bits || warps >> warp_bits)
        fault(v, h->axis->loc, "axis '%s' uses a lane or warp bit that the block lacks", h->axis->name);
}

static void check_tile(struct check *v, struct loc at, const struct type *t, int dist)
{
    unsigned lanes = 0, warps = 0;
    if (t->rank && dist >= v->k->dists.n) {
        fault(v, at, "there is no distribution %d", dist);
        return;
    }
    for (int i = 0; i < t->rank; i++) {
        const struct home *h = dist_home(v->k, dist, t->axes[i]);
        if (!h) {
            fault(v, at, "axis '%s' has no home in layout '%s'", t->axes[i]->name, v->k->dists.v[dist].name);
            continue;
        }
        for (int j = 0; j < h->nbits; j++) {
            unsigned bit = 1u << h->bits[j].pos, *set = h->bits[j].home == BIT_LANE ? &lanes : &warps;
            if (h->bits[j].home == BIT_REG)
                continue;
            if (*set & bit)
                fault(v, at, "two axes of one tile use the same %s bit %d in layout '%s'",
                      h->bits[j].home == BIT_LANE ? "lane" : "warp", h->bits[j].pos, v->k->dists.v[dist].name);
            *set |= bit;
        }
    }
    if (v->role && v->role->ival2 > 0 && warps >> log2_of(v->role->ival2))
        fault(v, at, "a tile of layout '%s' is spread over more warps than role '%s' has", v->k->dists.v[dist].name,
              v->role->name);
}

// A value is read in the registers of the thread that computes with it: nothing moves between distributions.
static bool check_read(struct check *v, const struct op *op, const struct op *x, int dist)
{
    for (int i = 0; i < x->type.rank && x->dist != dist; i++) {
        const struct home *a = dist_home(v->k, x->dist, x->type.axes[i]), *b = dist_home(v->k, dist, x->type.axes[i]);
        bool same = a && b && a->nbits == b->nbits;
        for (int j = 0; same && j < a->nbits; j++)
            same = a->bits[j].home == b->bits[j].home && a->bits[j].pos == b->bits[j].pos;
        if (!same)
            return fault(v, op->loc, "axis '%s' of a value in layout '%s' is used where layout '%s' has it elsewhere",
                         x->type.axes[i]->name, v->k->dists.v[x->dist].name, v->k->dists.v[dist].name);
    }
    return true;
}

// Indices that every thread computes for the position it needs: an axis, and scalars added to it.
static bool positional(const struct op *x)
{
    return x->code == OP_INDEX || (x->code == OP_ADD && ((!x->args[0]->type.rank && positional(x->args[1])) ||
                                                         (!x->args[1]->type.rank && positional(x->args[0]))));
}

static void check_operands(struct check *v, const struct op *op)
{
    int dist = op->code == OP_VAR || op->code == OP_SET ? op->var->dist : op->dist, from = 0, to = 0;
    if (op->code == OP_PUT || op->code == OP_RELAYOUT) // goes by the value's own distribution
        return;
    if (op->code == OP_LOAD || op->code == OP_STORE || op->code == OP_ATOMIC_ADD)
        to = op->buf->rank;
    else if (op->code == OP_COPY)
        from = 1, to = op->nargs;
    for (int i = 0; i < op->nargs; i++)
        if ((i < from || i >= to || !positional(op->args[i])) && !check_read(v, op, op->args[i], dist))
            return;
    if (op->code == OP_GET && op->dist != op->var->dist) {
        struct op held = { .type = op->var->type, .dist = op->var->dist };
        check_read(v, op, &held, op->dist);
    }
}

// ---- shared memory -----------------------------------------------------------------------------------------------

static int64_t slot_bytes(const struct buf *b)
{
    return (int64_t)b->rows * b->cols * elem_bytes[b->elem];
}

static void check_shared(struct check *v, const struct op *op)
{
    const struct buf *b = op->buf;
    int64_t end = b->offset + b->stages * slot_bytes(b), chunks = (int64_t)b->cols * elem_bytes[b->elem] / 16;
    if (b->offset < 0 || end > v->k->shared_bytes)
        fault(v, op->loc, "'%s' lies outside the block's %lld shared bytes", b->name, (long long)v->k->shared_bytes);
    if (b->swizzle < 0 || b->swizzle > 3 || (int64_t)1 << b->swizzle > (chunks ? chunks : 1))
        fault(v, op->loc, "swizzle %d does not fit rows of %d elements", b->swizzle, b->cols);
    for (int i = 0; i < v->k->bufs.n; i++) {
        const struct buf *o = v->k->bufs.v[i];
        if (o != b && o->kind == BUF_SHARED && o->offset < end && b->offset < o->offset + o->stages * slot_bytes(o))
            fault(v, op->loc, "'%s' and '%s' overlap", b->name, o->name);
    }
}

static void fits(struct check *v, const struct op *op, const struct type *t, const struct buf *b)
{
    if (t->rank != 2 || t->axes[0]->size != b->rows || t->axes[1]->size != b->cols)
        fault(v, op->loc, "'%s' of %s into slots of %d x %d", op_infos[op->code].name, type_text(v->c, t), b->rows,
              b->cols);
}

static void check_mma(struct check *v, const struct op *op)
{
    const struct buf *a = op->buf, *b = op->buf2;
    if (op->type.rank != 2 || a->cols != b->cols || a->elem != b->elem || op->type.axes[0]->size != a->rows ||
        op->type.axes[1]->size != b->rows)
        fault(v, op->loc, "an mma of %d x %d and %d x %d gives %s", a->rows, a->cols, b->rows, b->cols,
              type_text(v->c, &op->type));
}

void check_places(struct check *v, const struct op *op)
{
    struct type t = { 0 };
    if (op->code == OP_VAR)
        check_tile(v, op->loc, &op->var->type, op->var->dist);
    else
        check_tile(v, op->loc, &op->type, op->dist);
    if (!v->faults)
        check_operands(v, op);
    switch ((int)op->code) {
    case OP_SHARED: check_shared(v, op); break;
    case OP_COPY:
        for (int i = 1; i < op->nargs; i++)
            type_union(&t, &op->args[i]->type);
        check_tile(v, op->loc, &t, op->dist);
        fits(v, op, &t, op->buf2);
        break;
    case OP_PUT: fits(v, op, &op->args[1]->type, op->buf2); break;
    case OP_MMA: check_mma(v, op); break;
    }
}

bool verify(struct ctx *c, const struct kernel *k, enum stage after)
{
    struct check v = { .c = c, .k = k, .after = after };
    v.live = NEWN(c->arena, bool, k->nops + 1);
    v.axis_live = NEWN(c->arena, bool, k->axes.n + 1);
    check_block(&v, k->body);
    if (after >= ST_SCHED && k->scheduled)
        check_sizes(&v);
    if (after < ST_LAYOUT || !k->laid_out)
        return v.faults == 0;
    for (int i = 0; i < k->dists.n; i++)
        for (int j = 0; j < k->dists.v[i].homes.n; j++)
            check_home(&v, &k->dists.v[i].homes.v[j]);
    if (!v.faults)
        check_ring(&v);
    return v.faults == 0;
}
