// Tile IR: the table of operations, constructors, walking, small questions about types and layouts.
//
// In: requests of check.c and of the passes. Out: structs of ir.h in the arena.
// Constructors put an op at the end of a block and give it its type (ir_infer.c). bf16 and f16 operands of
// arithmetic are widened to f32 here by explicit casts: after that every operand has the type its op works in.
#include "ir.h"

#include <math.h>
#include <string.h>

#define NONE TR_NONE
#define SAME TR_SAME
#define ARITH TR_ARITH
#define FLOAT TR_FLOAT
#define INT TR_INT
#define LOGIC TR_LOGIC
#define COMPARE TR_COMPARE
#define SELECT TR_SELECT
#define CAST TR_CAST
#define REDUCE TR_REDUCE
#define SCAN TR_SCAN
#define ARGRED TR_ARGRED
#define TOPK TR_TOPK
#define TAKE TR_TAKE
#define DOT TR_DOT
#define LOAD TR_LOAD
#define OWN TR_OWN
const struct op_info op_infos[OP_COUNT] = {
#define OP(e, n, a, t, f, m) [OP_##e] = { n, a, t, f, m },
#include "ops.def"
#undef OP
};
#undef NONE
#undef SAME
#undef ARITH
#undef FLOAT
#undef INT
#undef LOGIC
#undef COMPARE
#undef SELECT
#undef CAST
#undef REDUCE
#undef SCAN
#undef ARGRED
#undef TOPK
#undef TAKE
#undef DOT
#undef LOAD
#undef OWN

const char *const elem_names[EL_COUNT] = { "", "bool", "i32", "f32", "bf16", "f16" };
const int elem_bytes[EL_COUNT] = { 0, 1, 4, 4, 2, 2 };

// ---- types --------------------------------------------------------------------------------------------------

bool type_has_axis(const struct type *t, const struct axis *a)
{
    for (int i = 0; i < t->rank; i++)
        if (t->axes[i] == a)
            return true;
    return false;
}

bool type_union(struct type *into, const struct type *t)
{
    for (int i = 0; i < t->rank; i++) {
        if (type_has_axis(into, t->axes[i]))
            continue;
        if (into->rank == RANK_MAX)
            return false;
        into->axes[into->rank++] = t->axes[i];
    }
    return true;
}

bool type_equal(const struct type *a, const struct type *b)
{
    if (a->elem != b->elem || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->axes[i] != b->axes[i])
            return false;
    return true;
}

int64_t type_elems(const struct type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->axes[i]->size;
    return n;
}

const char *type_text(struct ctx *c, const struct type *t)
{
    struct text s = { .arena = c->arena };
    text_printf(&s, "%s", t->elem == EL_NONE ? "nothing" : elem_names[t->elem]);
    for (int i = 0; i < t->rank; i++)
        text_printf(&s, "%s%s", i ? ", " : "[", t->axes[i]->name);
    if (t->rank)
        text_printf(&s, "]");
    return s.s;
}

// ---- making -------------------------------------------------------------------------------------------------

struct op *op_new(struct ctx *c, struct kernel *k, enum opcode code, struct loc loc)
{
    struct op *op = NEW(c->arena, struct op);
    op->code = code;
    op->loc = loc;
    op->id = k->nops++;
    return op;
}

struct block *block_new(struct ctx *c, struct op *parent)
{
    struct block *b = NEW(c->arena, struct block);
    b->parent = parent;
    return b;
}

void block_push(struct ctx *c, struct block *b, struct op *op)
{
    VEC_PUSH(c->arena, &b->ops, op);
}

void block_insert(struct ctx *c, struct block *b, int at, struct op *op)
{
    VEC_PUSH(c->arena, &b->ops, op);
    memmove(b->ops.v + at + 1, b->ops.v + at, (size_t)(b->ops.n - 1 - at) * sizeof b->ops.v[0]);
    b->ops.v[at] = op;
}

struct axis *axis_new(struct ctx *c, struct kernel *k, const char *name, enum axis_kind kind, struct loc loc)
{
    struct axis *a = NEW(c->arena, struct axis);
    a->name = name;
    a->id = k->axes.n;
    a->kind = kind;
    a->max_extent = INT32_MAX;
    a->loc = loc;
    VEC_PUSH(c->arena, &k->axes, a);
    return a;
}

struct buf *buf_new(struct ctx *c, struct kernel *k, const char *name, enum buf_kind kind, enum elem e, struct loc loc)
{
    struct buf *b = NEW(c->arena, struct buf);
    b->name = name;
    b->id = k->bufs.n;
    b->kind = kind;
    b->elem = e;
    b->offset = -1;
    b->loc = loc;
    VEC_PUSH(c->arena, &k->bufs, b);
    return b;
}

struct var *var_new(struct ctx *c, struct kernel *k, const char *name, struct type t, struct loc loc)
{
    struct var *v = NEW(c->arena, struct var);
    v->name = name;
    v->id = k->vars.n;
    v->type = t;
    v->loc = loc;
    VEC_PUSH(c->arena, &k->vars, v);
    return v;
}

// Rounds a double to the nearest value of a 16-bit float with `mant` fraction bits and exponents from `emin`.
static double round_small(double v, int mant, int emin, double biggest)
{
    if (v == 0 || isnan(v) || isinf(v))
        return v;
    int e;
    frexp(v, &e); // |v| in [2^(e-1), 2^e)
    int lsb = (e - 1 < emin ? emin : e - 1) - mant;
    double r = ldexp(nearbyint(ldexp(v, -lsb)), lsb);
    return fabs(r) > biggest ? copysign(INFINITY, v) : r;
}

double elem_round(enum elem e, double v)
{
    switch (e) {
    case EL_F32: return (double)(float)v;
    case EL_BF16: // from f32, as everything in the language is f32 before it is rounded
        return round_small((double)(float)v, 7, -126, 0x1.fep127);
    case EL_F16: return round_small((double)(float)v, 10, -14, 65504);
    case EL_I32: return isnan(v) ? 0 : v >= INT32_MAX ? INT32_MAX : v <= INT32_MIN ? INT32_MIN : trunc(v);
    case EL_BOOL: return v != 0;
    case EL_NONE:
    case EL_COUNT: break;
    }
    return v;
}

static struct op *push_const(struct ctx *c, struct kernel *k, struct block *b, enum elem e, struct loc loc)
{
    struct op *op = op_new(c, k, OP_CONST, loc);
    op->type.elem = e;
    if (b)
        block_push(c, b, op);
    return op;
}

struct op *op_const_i(struct ctx *c, struct kernel *k, struct block *b, enum elem e, int64_t v)
{
    struct op *op = push_const(c, k, b, e, (struct loc){ 0 });
    if (elem_is_float(e))
        op->fval = elem_round(e, (double)v);
    else
        op->ival = e == EL_BOOL ? v != 0 : (int32_t)(uint32_t)(uint64_t)v;
    return op;
}

struct op *op_const_f(struct ctx *c, struct kernel *k, struct block *b, enum elem e, double v)
{
    struct op *op = push_const(c, k, b, e, (struct loc){ 0 });
    if (elem_is_float(e))
        op->fval = elem_round(e, v);
    else
        op->ival = (int64_t)elem_round(e, v);
    return op;
}

// A constant is converted at once, so that a printed bf16(1.0) is read as the same constant.
struct op *op_cast(struct ctx *c, struct kernel *k, struct block *b, enum elem e, struct op *x)
{
    if (x->type.elem == e)
        return x;
    if (x->code == OP_CONST) {
        struct op *k1 = elem_is_float(x->type.elem) ? op_const_f(c, k, b, e, x->fval) : op_const_i(c, k, b, e, x->ival);
        k1->loc = x->loc;
        return k1;
    }
    struct op *op = op_new(c, k, OP_CAST, x->loc);
    op->args[op->nargs++] = x;
    op->type.elem = e;
    op->dist = x->dist;
    op_infer(c, op);
    if (b)
        block_push(c, b, op);
    return op;
}

bool op_widens(enum opcode code)
{
    switch (op_infos[code].rule) {
    case TR_ARITH:
    case TR_FLOAT:
    case TR_COMPARE:
    case TR_REDUCE:
    case TR_SCAN:
    case TR_ARGRED:
    case TR_TOPK:
    case TR_TAKE: return true;
    case TR_CAST: return code == OP_ORDER;
    case TR_NONE:
    case TR_SAME:
    case TR_INT:
    case TR_LOGIC:
    case TR_SELECT:
    case TR_DOT:
    case TR_LOAD:
    case TR_OWN: break;
    }
    return false;
}

struct op *op_widen(struct ctx *c, struct kernel *k, struct block *b, struct op *x)
{
    return x->type.elem == EL_BF16 || x->type.elem == EL_F16 ? op_cast(c, k, b, EL_F32, x) : x;
}

static struct op *finish(struct ctx *c, struct block *b, struct op *op)
{
    for (int i = op->nargs - 1; i >= 0; i--)
        if (op->args[i]->type.rank)
            op->dist = op->args[i]->dist;
    op_infer(c, op);
    if (b)
        block_push(c, b, op);
    return op;
}

struct op *op_unary(struct ctx *c, struct kernel *k, struct block *b, enum opcode code, struct op *x)
{
    struct op *wide = op_widens(code) ? op_widen(c, k, b, x) : x;
    struct op *op = op_new(c, k, code, x->loc);
    op->args[op->nargs++] = wide;
    return finish(c, b, op);
}

struct op *op_binary(struct ctx *c, struct kernel *k, struct block *b, enum opcode code, struct op *x, struct op *y)
{
    struct op *wx = op_widens(code) ? op_widen(c, k, b, x) : x;
    struct op *wy = op_widens(code) ? op_widen(c, k, b, y) : y;
    struct op *op = op_new(c, k, code, x->loc.line ? x->loc : y->loc);
    op->args[op->nargs++] = wx;
    op->args[op->nargs++] = wy;
    return finish(c, b, op);
}

// ---- asking -------------------------------------------------------------------------------------------------

const struct home *dist_home(const struct kernel *k, int dist, const struct axis *a)
{
    if (dist < 0 || dist >= k->dists.n)
        return NULL;
    const struct dist *d = &k->dists.v[dist];
    for (int i = 0; i < d->homes.n; i++)
        if (d->homes.v[i].axis == a)
            return &d->homes.v[i];
    return NULL;
}

bool walk(struct block *b, bool (*fn)(void *user, struct op *op), void *user)
{
    for (int i = 0; b && i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (!fn(user, op) || !walk(op->body, fn, user) || !walk(op->other, fn, user))
            return false;
    }
    return true;
}

struct box_list {
    struct box *v;
    int n;
};

static int find_box(const struct box_list *l, const struct op *copy)
{
    const struct buf *to = copy->buf2;
    for (int i = 0; i < l->n; i++)
        if (l->v[i].buf == copy->buf && l->v[i].rows == to->rows && l->v[i].cols == to->cols &&
            l->v[i].swizzle == to->swizzle)
            return i;
    return -1;
}

static bool note_box(void *user, struct op *op)
{
    struct box_list *l = user;
    if (op->code == OP_COPY && op->bulk && l->n < BOXES_MAX && find_box(l, op) < 0)
        l->v[l->n++] = (struct box){ op->buf, op->buf2->rows, op->buf2->cols, op->buf2->swizzle };
    return true;
}

int kernel_boxes(const struct kernel *k, struct box out[BOXES_MAX])
{
    struct box_list l = { .v = out };
    walk(k->body, note_box, &l);
    return l.n;
}

int kernel_box(const struct kernel *k, const struct op *copy)
{
    struct box boxes[BOXES_MAX];
    struct box_list l = { boxes, kernel_boxes(k, boxes) };
    return find_box(&l, copy);
}
