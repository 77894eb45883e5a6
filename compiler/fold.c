// Pass `fold` (optional): constants, identities that are exact, equal values in one block, dead values and variables, ifs
// with a known condition, empty loops, and axis->exact once sizes are known. The meaning stays exactly the same: float
// arithmetic is folded in f32, as devices compute it, and never reassociated.
#include "ir.h"

#include <limits.h>
#include <math.h>
#include <string.h>

struct fold {
    struct ctx *c;
    struct kernel *k;
    struct op **same; // by op id: the op that means the same, or NULL
    bool changed;
};

static bool is_int(const struct op *o, int64_t v)
{
    return o->code == OP_CONST && o->type.elem == EL_I32 && o->ival == v;
}

// o becomes an i32 or bool constant
static bool to_int(struct fold *f, struct op *o, int64_t v)
{
    struct type t = { .elem = o->type.elem };
    if (o->type.rank) // a tile of one value stays what it is: consumers broadcast, but its type must not change
        return false;
    o->code = OP_CONST;
    o->nargs = 0;
    o->type = t;
    o->ival = t.elem == EL_BOOL ? v != 0 : (int32_t)v;
    return f->changed = true;
}

static bool to_float(struct fold *f, struct op *o, double v)
{
    if (o->type.rank || isnan(v)) // NaN payloads differ among devices
        return false;
    o->code = OP_CONST;
    o->nargs = 0;
    o->fval = elem_round(o->type.elem, v);
    return f->changed = true;
}

static bool int_binary(struct fold *f, struct op *o, int64_t a, int64_t b)
{
    int sh = (int)(b & 31);
    switch ((int)o->code) {
    case OP_ADD: return to_int(f, o, a + b);
    case OP_SUB: return to_int(f, o, a - b);
    case OP_MUL: return to_int(f, o, a * b);
    case OP_DIV: return to_int(f, o, b ? a / b : 0);
    case OP_REM: return to_int(f, o, b ? a % b : 0);
    case OP_MIN: return to_int(f, o, a < b ? a : b);
    case OP_MAX: return to_int(f, o, a > b ? a : b);
    case OP_AND: return to_int(f, o, a & b);
    case OP_OR: return to_int(f, o, a | b);
    case OP_XOR: return to_int(f, o, a ^ b);
    case OP_SHL: return to_int(f, o, (int64_t)((uint64_t)a << sh));
    case OP_SHR: return to_int(f, o, a >> sh);
    case OP_LT: return to_int(f, o, a < b);
    case OP_LE: return to_int(f, o, a <= b);
    case OP_GT: return to_int(f, o, a > b);
    case OP_GE: return to_int(f, o, a >= b);
    case OP_EQ: return to_int(f, o, a == b);
    case OP_NE: return to_int(f, o, a != b);
    }
    return false;
}

static bool float_binary(struct fold *f, struct op *o, float a, float b)
{
    switch ((int)o->code) {
    case OP_ADD: return to_float(f, o, (double)(a + b));
    case OP_SUB: return to_float(f, o, (double)(a - b));
    case OP_MUL: return to_float(f, o, (double)(a * b));
    case OP_DIV: return b != 0 && to_float(f, o, (double)(a / b));
    case OP_LT: return to_int(f, o, a < b);
    case OP_LE: return to_int(f, o, a <= b);
    case OP_GT: return to_int(f, o, a > b);
    case OP_GE: return to_int(f, o, a >= b);
    case OP_EQ: return to_int(f, o, a == b);
    case OP_NE: return to_int(f, o, a != b);
    }
    return false;
}

// Every use of o will be a use of v instead.
static bool replace(struct fold *f, const struct op *o, struct op *v)
{
    if (!type_equal(&o->type, &v->type) || o->dist != v->dist)
        return false;
    f->same[o->id] = v;
    return f->changed = true;
}

static bool identity(struct fold *f, struct op *o)
{
    struct op *a = o->args[0], *b = o->args[1];
    bool i32 = o->type.elem == EL_I32;
    switch ((int)o->code) {
    case OP_ADD:
    case OP_OR:
    case OP_XOR:
        if (i32 && is_int(b, 0))
            return replace(f, o, a);
        if (i32 && is_int(a, 0))
            return replace(f, o, b);
        break;
    case OP_SUB:
    case OP_SHL:
    case OP_SHR:
        if (i32 && is_int(b, 0))
            return replace(f, o, a);
        break;
    case OP_MUL:
        if ((i32 && is_int(b, 1)) || (b->code == OP_CONST && o->type.elem == EL_F32 && b->fval == 1))
            return replace(f, o, a);
        if ((i32 && is_int(a, 1)) || (a->code == OP_CONST && o->type.elem == EL_F32 && a->fval == 1))
            return replace(f, o, b);
        break;
    case OP_DIV:
        if (i32 && is_int(b, 1))
            return replace(f, o, a);
        break;
    }
    return false;
}

// acc' + dot(0, a, b) is dot(acc', a, b): f32 sums are accumulated in that order anyway.
static bool accumulate(struct fold *f, struct op *o)
{
    for (int i = 0; i < 2 && o->code == OP_ADD; i++) {
        struct op *d = o->args[i], *acc = o->args[1 - i];
        if (d->code != OP_DOT || d->args[0]->code != OP_CONST || d->args[0]->fval != 0 ||
            !type_equal(&d->type, &o->type) || !type_equal(&acc->type, &o->type))
            continue;
        o->code = OP_DOT;
        o->args[0] = acc;
        o->args[1] = d->args[1];
        o->args[2] = d->args[2];
        o->nargs = 3;
        return f->changed = true;
    }
    return false;
}

static bool constant_cast(struct fold *f, struct op *o)
{
    const struct op *a = o->args[0];
    double v = elem_is_float(a->type.elem) ? a->fval : (double)a->ival;
    if (elem_is_float(o->type.elem))
        return to_float(f, o, v);
    return to_int(f, o, (int64_t)elem_round(o->type.elem, v));
}

static bool simplify(struct fold *f, struct op *o)
{
    struct op *a = o->nargs > 0 ? o->args[0] : NULL, *b = o->nargs > 1 ? o->args[1] : NULL;
    if (o->code == OP_DIM && o->dim->bound >= 0)
        return to_int(f, o, o->dim->bound);
    if (!a || !(op_infos[o->code].flags & F_PURE))
        return false;
    if (o->code == OP_SELECT && a->code == OP_CONST)
        return replace(f, o, a->ival ? o->args[1] : o->args[2]);
    if (o->code == OP_CAST && a->type.elem == o->type.elem)
        return replace(f, o, a);
    if (o->code == OP_CAST && a->code == OP_CONST)
        return constant_cast(f, o);
    if (o->code == OP_NEG && a->code == OP_CONST)
        return elem_is_float(a->type.elem) ? to_float(f, o, -a->fval) : to_int(f, o, -a->ival);
    if (!b || o->nargs != 2 || op_infos[o->code].flags & F_SYNC)
        return false;
    if (a->code == OP_CONST && b->code == OP_CONST) {
        if (a->type.elem == EL_I32 && b->type.elem == EL_I32)
            return int_binary(f, o, a->ival, b->ival);
        if (a->type.elem == EL_F32 && b->type.elem == EL_F32)
            return float_binary(f, o, (float)a->fval, (float)b->fval);
    }
    return identity(f, o) || accumulate(f, o);
}

// ---- equal values of one block -----------------------------------------------------------------------------------

static bool mean_same(const struct op *a, const struct op *b)
{
    bool same = a->code == b->code && type_equal(&a->type, &b->type) && a->nargs == b->nargs && a->dist == b->dist &&
                a->axis == b->axis && a->region == b->region && a->clause == b->clause && a->dim == b->dim &&
                a->param == b->param && a->ival == b->ival && !memcmp(&a->fval, &b->fval, sizeof a->fval);
    for (int i = 0; same && i < a->nargs; i++)
        same = a->args[i] == b->args[i];
    return same;
}

static bool mergeable(const struct op *o)
{
    unsigned flags = op_infos[o->code].flags;
    return (flags & F_PURE) && !(flags & (F_REGION | F_COMPOSITE)) && o->code != OP_RANGE && o->code != OP_DOT;
}

static void merge(struct fold *f, const struct block *b, int at)
{
    enum { LOOK_BACK = 64 };
    struct op *o = b->ops.v[at];
    for (int i = at - 1; mergeable(o) && i >= 0 && i >= at - LOOK_BACK; i--)
        if (mean_same(b->ops.v[i], o)) {
            f->same[o->id] = b->ops.v[i];
            f->changed = true;
            return;
        }
}

static struct op * final(const struct fold *f, struct op *o)
{
    while (o && f->same[o->id])
        o = f->same[o->id];
    return o;
}

static void redirect(struct fold *f, struct op *o)
{
    for (int i = 0; i < o->nargs; i++)
        o->args[i] = final(f, o->args[i]);
    for (int i = 0; i < o->nclauses; i++) {
        o->clauses[i].lo = final(f, o->clauses[i].lo);
        o->clauses[i].hi = final(f, o->clauses[i].hi);
    }
}

static void one_block(struct fold *f, struct block *b)
{
    for (int i = 0; i < b->ops.n; i++) {
        struct op *o = b->ops.v[i];
        redirect(f, o);
        if (!simplify(f, o))
            merge(f, b, i);
        if (o->body)
            one_block(f, o->body);
        if (o->other)
            one_block(f, o->other);
    }
}

// ---- control flow, dead code -------------------------------------------------------------------------------------

static bool never_runs(const struct op *o)
{
    return (o->code == OP_FOR || o->code == OP_EACH) && o->args[0]->code == OP_CONST && o->args[1]->code == OP_CONST &&
           o->args[0]->ival >= o->args[1]->ival;
}

static bool declares(void *user, struct op *o)
{
    (void)user;
    return o->code != OP_RANGE && o->code != OP_VAR && o->code != OP_SHARED;
}

static void flatten(struct fold *f, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        struct op *o = old[i];
        if (o->body)
            flatten(f, o->body);
        if (o->other)
            flatten(f, o->other);
        struct block *taken =
            o->code == OP_IF && o->args[0]->code == OP_CONST ? (o->args[0]->ival ? o->body : o->other) : NULL;
        if (o->code == OP_IF && o->args[0]->code == OP_CONST) {
            f->changed = true;
            for (int j = 0; taken && j < taken->ops.n; j++) {
                struct op *in = taken->ops.v[j];
                block_push(f->c, b, in);
            }
        } else if (never_runs(o) && walk(o->body, declares, NULL)) {
            f->changed = true;
        } else {
            block_push(f->c, b, o);
        }
    }
}

struct uses {
    int *op, *var;
    bool *axis;
};

static bool count(void *user, struct op *o)
{
    struct uses *u = user;
    for (int i = 0; i < o->nargs; i++)
        u->op[o->args[i]->id]++;
    for (int i = 0; i < o->nclauses; i++) {
        if (o->clauses[i].lo)
            u->op[o->clauses[i].lo->id]++;
        if (o->clauses[i].hi)
            u->op[o->clauses[i].hi->id]++;
    }
    if (o->code == OP_GET)
        u->var[o->var->id]++;
    return true;
}

static bool dead(const struct uses *u, const struct op *o)
{
    if (o->code == OP_VAR || o->code == OP_SET)
        return !u->var[o->var->id];
    return !(op_infos[o->code].flags & F_EFFECT) && o->code != OP_RANGE && !u->op[o->id];
}

static int sweep(const struct uses *u, struct block *b)
{
    int kept = 0, gone = 0;
    for (int i = 0; i < b->ops.n; i++) {
        struct op *o = b->ops.v[i];
        if (o->body)
            gone += sweep(u, o->body);
        if (o->other)
            gone += sweep(u, o->other);
        if (dead(u, o))
            gone++;
        else
            b->ops.v[kept++] = o;
    }
    b->ops.n = kept;
    return gone;
}

static void remove_dead(struct fold *f)
{
    struct kernel *k = f->k;
    for (;;) {
        struct uses u = { NEWN(f->c->arena, int, k->nops + 1), NEWN(f->c->arena, int, k->vars.n + 1), NULL };
        walk(k->body, count, &u);
        for (int i = 0; i < k->axes.n; i++) {
            if (k->axes.v[i]->lo)
                u.op[k->axes.v[i]->lo->id]++;
            if (k->axes.v[i]->hi)
                u.op[k->axes.v[i]->hi->id]++;
        }
        if (!sweep(&u, k->body))
            return;
        f->changed = true;
    }
}

// Every tile of the axis is full: its extent is a known multiple of its size.
static void mark_exact(struct fold *f)
{
    for (int i = 0; i < f->k->axes.n; i++) {
        struct axis *a = f->k->axes.v[i];
        bool known = a->lo && a->hi && a->lo->code == OP_CONST && a->hi->code == OP_CONST && a->size > 0;
        bool at = a->def && a->def->code == OP_AT; // its origin may lie past the end
        if (known && !at && !a->exact && a->kind != AX_MAP && a->hi->ival > a->lo->ival &&
            (a->hi->ival - a->lo->ival) % a->size == 0 && (a->kind != AX_RANGE || a->hi->ival - a->lo->ival == a->size))
            a->exact = f->changed = true;
    }
}

bool fold(struct ctx *c, struct kernel *k)
{
    struct fold f = { .c = c, .k = k };
    bool any = false;
    do {
        f.changed = false;
        f.same = NEWN(c->arena, struct op *, k->nops + 1);
        one_block(&f, k->body);
        for (int i = 0; i < k->axes.n; i++) {
            k->axes.v[i]->lo = final(&f, k->axes.v[i]->lo);
            k->axes.v[i]->hi = final(&f, k->axes.v[i]->hi);
        }
        flatten(&f, k->body);
        remove_dead(&f);
        mark_exact(&f);
        any |= f.changed;
    } while (f.changed);
    return any;
}
