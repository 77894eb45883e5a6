// op_infer: the type rules of ops.def, and what is known about index values (multiple_of, op_bounds).
//
// In: an op with its operands and attributes. Out: op->type, or an error at op->loc. Operands are strict here: nothing
// is widened or converted (op_unary, op_binary and check.c do that before), so a pass that forgets a cast is found.
// Attributes stand where ir.h says; CAST: op->type.elem is set by the maker. AT: args are the origin, then hi. MMA whose
// accumulator is a scalar: the maker sets op->type too.
#include "ir.h"

#include <string.h>

// As a user writes it.
static const char *name_of(const struct op *op)
{
    static const char *const signs[OP_COUNT] = {
        [OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/", [OP_REM] = "%",  [OP_NEG] = "-",
        [OP_AND] = "&", [OP_OR] = "|",  [OP_XOR] = "^", [OP_NOT] = "!", [OP_LT] = "<",   [OP_LE] = "<=",
        [OP_GT] = ">",  [OP_GE] = ">=", [OP_EQ] = "==", [OP_NE] = "!=", [OP_SHL] = "<<", [OP_SHR] = ">>"
    };
    return signs[op->code] ? signs[op->code] : op_infos[op->code].name;
}

static const char *arg_text(struct ctx *c, const struct op *op, int i)
{
    return type_text(c, &op->args[i]->type);
}

// op->type's axes = the union of those of args [from, to), in order of first appearance.
static bool unite(struct ctx *c, struct op *op, int from, int to)
{
    op->type.rank = 0;
    for (int i = from; i < to; i++)
        if (!type_union(&op->type, &op->args[i]->type))
            return error(c, op->loc, "result of '%s' has more than %d axes: %s and %s", name_of(op), RANK_MAX,
                         type_text(c, &op->type), arg_text(c, op, i));
    return true;
}

static bool is_value(struct ctx *c, const struct op *op, int i)
{
    if (op->args[i] && op->args[i]->type.elem != EL_NONE)
        return true;
    return error(c, op->loc, "operand %d of '%s' has no value", i + 1, name_of(op));
}

static bool want_elem(struct ctx *c, const struct op *op, int i, enum elem e)
{
    if (op->args[i]->type.elem == e)
        return true;
    return error(c, op->loc, "operand %d of '%s' must be %s, not %s", i + 1, name_of(op), elem_names[e],
                 arg_text(c, op, i));
}

static bool want_scalar(struct ctx *c, const struct op *op, int i, enum elem e)
{
    if (op->args[i]->type.elem == e && op->args[i]->type.rank == 0)
        return true;
    return error(c, op->loc, "operand %d of '%s' must be a scalar %s, not %s", i + 1, name_of(op), elem_names[e],
                 arg_text(c, op, i));
}

static bool same_elem(struct ctx *c, const struct op *op, int a, int b)
{
    if (op->args[a]->type.elem == op->args[b]->type.elem)
        return true;
    return error(c, op->loc, "operands of '%s' differ: %s and %s", name_of(op), arg_text(c, op, a), arg_text(c, op, b));
}

// Arithmetic works in i32 and f32 only.
static bool arith_operand(struct ctx *c, const struct op *op, int i)
{
    enum elem e = op->args[i]->type.elem;
    if (e == EL_I32 || e == EL_F32)
        return true;
    if (e == EL_BOOL)
        return error(c, op->loc, "operand %d of '%s' is %s; write i32(...) to count with it", i + 1, name_of(op),
                     arg_text(c, op, i));
    return error(c, op->loc, "operand %d of '%s' must be widened to f32 first: it is %s", i + 1, name_of(op),
                 arg_text(c, op, i));
}

static bool infer_elementwise(struct ctx *c, struct op *op, enum type_rule rule)
{
    for (int i = 0; i < op->nargs; i++) {
        enum elem e = op->args[i]->type.elem;
        bool ok = true;
        if (rule == TR_ARITH || rule == TR_COMPARE)
            ok = arith_operand(c, op, i);
        else if (rule == TR_FLOAT)
            ok = want_elem(c, op, i, EL_F32);
        else if (rule == TR_INT)
            ok = want_elem(c, op, i, EL_I32);
        else if (rule == TR_LOGIC && e != EL_BOOL && e != EL_I32)
            ok = error(c, op->loc, "operand %d of '%s' must be bool or i32, not %s", i + 1, name_of(op),
                       arg_text(c, op, i));
        if (!ok || (i && !same_elem(c, op, 0, i)))
            return false;
    }
    op->type.elem = rule == TR_COMPARE ? EL_BOOL : op->args[0]->type.elem;
    return unite(c, op, 0, op->nargs);
}

static bool infer_select(struct ctx *c, struct op *op)
{
    if (!want_elem(c, op, 0, EL_BOOL) || !same_elem(c, op, 1, 2))
        return false;
    op->type.elem = op->args[1]->type.elem;
    // Axes in the order of the values: a condition with fewer axes does not reorder the result.
    op->type.rank = 0;
    if (!type_union(&op->type, &op->args[1]->type) || !type_union(&op->type, &op->args[2]->type) ||
        !type_union(&op->type, &op->args[0]->type))
        return error(c, op->loc, "result of 'select' has more than %d axes", RANK_MAX);
    return true;
}

// args[0] less op->axis. The axis must be there.
static bool drop_axis(struct ctx *c, struct op *op)
{
    const struct type *t = &op->args[0]->type;
    if (!op->axis)
        return error(c, op->loc, "'%s' needs an axis", name_of(op));
    if (!type_has_axis(t, op->axis))
        return error(c, op->loc, "'%s' along '%s': the value is %s, without that axis", name_of(op), op->axis->name,
                     type_text(c, t));
    op->type.rank = 0;
    for (int i = 0; i < t->rank; i++)
        if (t->axes[i] != op->axis)
            op->type.axes[op->type.rank++] = t->axes[i];
    return true;
}

static bool infer_along(struct ctx *c, struct op *op, enum type_rule rule)
{
    if (!arith_operand(c, op, 0) || (op->code == OP_SOFTMAX && !want_elem(c, op, 0, EL_F32)) || !drop_axis(c, op))
        return false;
    op->type.elem = rule == TR_ARGRED || rule == TR_TOPK ? EL_I32 : op->args[0]->type.elem;
    if (rule == TR_SCAN) {
        op->type = op->args[0]->type;
    } else if (rule == TR_TOPK) {
        struct type one = { .rank = 1, .axes = { op->axis2 } };
        if (!op->axis2 || type_has_axis(&op->args[0]->type, op->axis2))
            return error(c, op->loc, "'topk' needs an axis for its results that the value %s does not have",
                         arg_text(c, op, 0));
        type_union(&op->type, &one); // one axis went, one comes
    } else if (rule == TR_TAKE) {
        if (!want_elem(c, op, 1, EL_I32))
            return false;
        if (type_has_axis(&op->args[1]->type, op->axis))
            return error(c, op->loc, "the index of 'take' along '%s' must not have that axis: it is %s", op->axis->name,
                         arg_text(c, op, 1));
        if (!type_union(&op->type, &op->args[1]->type))
            return error(c, op->loc, "result of 'take' has more than %d axes", RANK_MAX);
    }
    return true;
}

static bool infer_cast(struct ctx *c, struct op *op)
{
    op->type.rank = 0;
    type_union(&op->type, &op->args[0]->type);
    if (op->code == OP_ORDER) {
        op->type.elem = EL_I32;
        return want_elem(c, op, 0, EL_F32);
    }
    if (op->type.elem == EL_NONE)
        return error(c, op->loc, "cast to nothing");
    return true;
}

// The axes of an accumulator that is a tile must be those of the product; they give the order.
static bool dot_acc(struct ctx *c, struct op *op, const struct type *product)
{
    const struct type *acc = &op->args[0]->type;
    if (!want_elem(c, op, 0, EL_F32))
        return false;
    op->type = *product;
    if (acc->rank == 0)
        return true;
    bool same = acc->rank == product->rank;
    for (int i = 0; same && i < acc->rank; i++)
        same = type_has_axis(product, acc->axes[i]);
    if (!same)
        return error(c, op->loc, "accumulator of 'dot' is %s, the product is %s", type_text(c, acc),
                     type_text(c, product));
    op->type = *acc;
    return true;
}

static bool infer_dot(struct ctx *c, struct op *op)
{
    const struct type *a = &op->args[1]->type, *b = &op->args[2]->type;
    struct type t = { .elem = EL_F32 };
    int shared = 0;
    for (int i = 1; i <= 2; i++)
        if (op->args[i]->type.elem != EL_BF16 && op->args[i]->type.elem != EL_F16)
            return error(c, op->loc, "operands of 'dot' must be bf16 or f16, not %s", arg_text(c, op, i));
    if (!same_elem(c, op, 1, 2))
        return false;
    for (int i = 0; i < a->rank; i++)
        shared += type_has_axis(b, a->axes[i]);
    if (shared != 1)
        return error(c, op->loc, "operands of 'dot' must share exactly one axis, not %d: %s and %s", shared,
                     type_text(c, a), type_text(c, b));
    for (int s = 0; s < 2; s++) {
        const struct type *x = s ? b : a, *y = s ? a : b;
        for (int i = 0; i < x->rank; i++) {
            struct type one = { .rank = 1, .axes = { x->axes[i] } };
            if (!type_has_axis(y, x->axes[i]) && !type_union(&t, &one))
                return error(c, op->loc, "result of 'dot' has more than %d axes", RANK_MAX);
        }
    }
    return dot_acc(c, op, &t);
}

static bool infer_mma(struct ctx *c, struct op *op)
{
    if (!want_elem(c, op, 0, EL_F32) || !want_scalar(c, op, 1, EL_I32) || !want_scalar(c, op, 2, EL_I32))
        return false;
    if (op->args[0]->type.rank || op->type.elem == EL_NONE)
        op->type = op->args[0]->type;
    if (op->type.rank != 2)
        return error(c, op->loc, "result of 'mma' must have two axes, not be %s", type_text(c, &op->type));
    if (!op->buf || !op->buf2 || op->buf->kind != BUF_SHARED || op->buf2->kind != BUF_SHARED)
        return error(c, op->loc, "'mma' needs two shared buffers");
    if (op->buf->elem != op->buf2->elem || (op->buf->elem != EL_BF16 && op->buf->elem != EL_F16))
        return error(c, op->loc, "operands of 'mma' must both be bf16 or both f16, not %s and %s",
                     elem_names[op->buf->elem], elem_names[op->buf2->elem]);
    if (op->buf->cols != op->buf2->cols)
        return error(c, op->loc, "rows of '%s' and '%s' must be equally long, not %d and %d", op->buf->name,
                     op->buf2->name, op->buf->cols, op->buf2->cols);
    return true;
}

// ---- memory and statements ----------------------------------------------------------------------------------

// args [from, from + rank) index op->buf; leaves the union of their axes in op->type.
static bool indices(struct ctx *c, struct op *op, int from)
{
    const struct buf *b = op->buf;
    if (!b || b->kind == BUF_SHARED)
        return error(c, op->loc, "'%s' needs a buffer in global memory", name_of(op));
    for (int i = from; i < from + b->rank; i++)
        if (op->args[i]->type.elem != EL_I32)
            return error(c, op->loc, "index %d of '%s' must be i32, not %s", i - from + 1, b->name, arg_text(c, op, i));
    return unite(c, op, from, from + b->rank);
}

static bool want_count(struct ctx *c, const struct op *op, int n)
{
    if (op->nargs == n)
        return true;
    return error(c, op->loc, "'%s' of '%s' takes %d operands, not %d", name_of(op), op->buf ? op->buf->name : "?", n,
                 op->nargs);
}

// The value (the last operand) may have only the axes that the target has.
static bool value_axes(struct ctx *c, const struct op *op, const struct type *target, const char *what)
{
    const struct type *v = &op->args[op->nargs - 1]->type;
    for (int i = 0; i < v->rank; i++)
        if (!type_has_axis(target, v->axes[i]))
            return error(c, op->loc, "value is %s, but %s has no axis '%s'", type_text(c, v), what, v->axes[i]->name);
    return true;
}

static bool infer_memory(struct ctx *c, struct op *op)
{
    int rank = op->buf ? op->buf->rank : 0;
    if (!want_count(c, op, op->code == OP_LOAD ? rank : rank + 1) || !indices(c, op, 0))
        return false;
    if (op->code == OP_LOAD) {
        op->type.elem = op->buf->elem;
        return true;
    }
    enum elem e = op->buf->elem, v = op->args[rank]->type.elem;
    if (op->code == OP_ATOMIC_ADD && ((e != EL_I32 && e != EL_F32) || e != v))
        return error(c, op->loc, "atomic_add takes i32 or f32 values into a buffer of the same type, not %s into %s",
                     arg_text(c, op, rank), elem_names[e]);
    if (v != e && !(elem_is_float(v) && elem_is_float(e)))
        return error(c, op->loc, "cannot store %s into '%s' of %s", arg_text(c, op, rank), op->buf->name,
                     elem_names[e]);
    if (!value_axes(c, op, &op->type, "the indexed place"))
        return false;
    op->type.elem = e;
    if (op->code == OP_STORE)
        op->type = (struct type){ 0 };
    return true;
}

static bool check_copy(struct ctx *c, struct op *op)
{
    int rank = op->buf ? op->buf->rank : 0;
    if (!want_count(c, op, rank + 1) || !want_scalar(c, op, 0, EL_I32) || !indices(c, op, 1))
        return false;
    struct type t = op->type;
    t.elem = op->buf->elem;
    op->type = (struct type){ 0 };
    if (!op->buf2 || op->buf2->kind != BUF_SHARED)
        return error(c, op->loc, "'copy' goes to a shared buffer");
    if (op->buf2->elem != op->buf->elem)
        return error(c, op->loc, "'copy' from %s to %s", elem_names[op->buf->elem], elem_names[op->buf2->elem]);
    if (t.rank != 2)
        return error(c, op->loc, "'copy' moves a tile of two axes, not %s", type_text(c, &t));
    return true;
}

static bool check_put(struct ctx *c, struct op *op)
{
    if (!want_scalar(c, op, 0, EL_I32))
        return false;
    if (!op->buf2 || op->buf2->kind != BUF_SHARED)
        return error(c, op->loc, "'put' writes to a shared buffer");
    if (op->args[1]->type.rank != 2 || op->args[1]->type.elem != op->buf2->elem)
        return error(c, op->loc, "'put' into '%s' takes a %s tile of two axes, not %s", op->buf2->name,
                     elem_names[op->buf2->elem], arg_text(c, op, 1));
    return true;
}

static bool check_var(struct ctx *c, struct op *op)
{
    if (!op->var)
        return error(c, op->loc, "'%s' without a variable", name_of(op));
    if (op->args[0]->type.elem != op->var->type.elem)
        return error(c, op->loc, "variable '%s' is %s, the value is %s", op->var->name, type_text(c, &op->var->type),
                     arg_text(c, op, 0));
    return value_axes(c, op, &op->var->type, arena_printf(c->arena, "variable '%s'", op->var->name));
}

static bool check_bounds(struct ctx *c, const struct op *op)
{
    for (int i = 0; i < op->nargs; i++)
        if (!want_scalar(c, op, i, EL_I32))
            return false;
    return true;
}

// Ops without a result: their operands.
static bool check_statement(struct ctx *c, struct op *op)
{
    enum opcode code = op->code;
    op->type = (struct type){ 0 };
    if (code == OP_STORE)
        return infer_memory(c, op);
    if (code == OP_COPY)
        return check_copy(c, op);
    if (code == OP_PUT)
        return check_put(c, op);
    if (code == OP_VAR || code == OP_SET)
        return check_var(c, op);
    if (code == OP_IF)
        return want_scalar(c, op, 0, EL_BOOL);
    return check_bounds(c, op);
}

// Leaves state their own type; CONST and SCALAR have it from their maker.
static bool infer_leaf(struct ctx *c, struct op *op)
{
    if (op->code == OP_GET && op->var)
        op->type = op->var->type;
    else if (op->code == OP_INDEX && op->axis)
        op->type = (struct type){ .elem = EL_I32, .rank = 1, .axes = { op->axis } };
    else if (op->code == OP_DIM || op->code == OP_ORIGIN)
        op->type = (struct type){ .elem = EL_I32 };
    return op->type.elem != EL_NONE || error(c, op->loc, "'%s' has no type", name_of(op));
}

bool op_infer(struct ctx *c, struct op *op)
{
    const struct op_info *info = &op_infos[op->code];
    if (info->nargs >= 0 && op->nargs != info->nargs)
        return error(c, op->loc, "'%s' takes %d operands, not %d", info->name, info->nargs, op->nargs);
    for (int i = 0; i < op->nargs; i++)
        if (!is_value(c, op, i))
            return false;
    switch (info->rule) {
    case TR_NONE: return check_statement(c, op);
    case TR_SAME:
    case TR_ARITH:
    case TR_FLOAT:
    case TR_INT:
    case TR_LOGIC:
    case TR_COMPARE: return infer_elementwise(c, op, info->rule);
    case TR_SELECT: return infer_select(c, op);
    case TR_CAST: return infer_cast(c, op);
    case TR_REDUCE:
    case TR_SCAN:
    case TR_ARGRED:
    case TR_TOPK:
    case TR_TAKE: return infer_along(c, op, info->rule);
    case TR_DOT: return op->code == OP_MMA ? infer_mma(c, op) : infer_dot(c, op);
    case TR_LOAD: return infer_memory(c, op);
    case TR_OWN: return infer_leaf(c, op);
    }
    return false;
}

// ---- what is known about index values -----------------------------------------------------------------------

enum { MULTIPLE_CAP = 1 << 20 };

static int64_t low_bit(int64_t v)
{
    if (v == 0)
        return MULTIPLE_CAP;
    int64_t b = v & -v;
    return b > MULTIPLE_CAP ? MULTIPLE_CAP : b;
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// An expression is a DAG: without a limit, chains of x + x would be walked 2^n times.
enum { DEPTH_MAX = 14 };

static int64_t multiple(const struct op *op, int depth);

static int64_t axis_multiple(const struct axis *a, int depth)
{
    if (a->kind == AX_MAP)
        return 1;
    int64_t lo = a->lo ? multiple(a->lo, depth) : MULTIPLE_CAP;
    if (a->kind == AX_RANGE || (a->def && a->def->code == OP_AT))
        return lo; // one origin
    return a->size ? lesser(lo, low_bit(a->size)) : 1;
}

static int64_t quotient(const struct op *op, int64_t x)
{
    const struct op *y = op->args[1];
    if (y->code != OP_CONST)
        return 1;
    int64_t d = op->code == OP_SHR ? (int64_t)1 << (y->ival & 31) : y->ival;
    return d > 0 && low_bit(d) == d && x >= d ? x / d : 1;
}

static int64_t multiple(const struct op *op, int depth)
{
    int64_t x, y;
    if (op->type.elem != EL_I32 || depth > DEPTH_MAX)
        return 1;
    x = op->nargs > 0 ? multiple(op->args[op->code == OP_SELECT ? 2 : 0], depth + 1) : 1;
    y = op->nargs > 1 ? multiple(op->args[1], depth + 1) : 1;
    switch ((int)op->code) { // most ops: nothing known
    case OP_CONST: return low_bit(op->ival);
    case OP_DIM: return low_bit(op->dim->bound >= 0 ? op->dim->bound : op->dim->multiple > 0 ? op->dim->multiple : 1);
    case OP_INDEX: return axis_multiple(op->axis, depth + 1);
    case OP_ORIGIN: return op->axis ? axis_multiple(op->axis, depth + 1) : 1;
    case OP_ADD:
    case OP_SUB:
    case OP_MIN:
    case OP_MAX:
    case OP_SELECT:
    case OP_OR:
    case OP_XOR:
    case OP_REM: // a - b * (a / b)
        return lesser(x, y);
    case OP_AND: return x > y ? x : y;
    case OP_MUL: return lesser(x * y, MULTIPLE_CAP);
    case OP_NEG: return x;
    case OP_SHL: return op->args[1]->code == OP_CONST ? lesser(x << (op->args[1]->ival & 31), MULTIPLE_CAP) : x;
    case OP_SHR:
    case OP_DIV: return quotient(op, x);
    }
    return 1;
}

int64_t multiple_of(const struct kernel *k, const struct op *op)
{
    (void)k;
    return multiple(op, 0);
}

struct range {
    int64_t lo, hi;
};

static struct range any(void)
{
    return (struct range){ INT32_MIN, INT32_MAX };
}

// i32 wraps: a range that leaves i32 says nothing.
static struct range in_i32(int64_t lo, int64_t hi)
{
    return lo < INT32_MIN || hi > INT32_MAX ? any() : (struct range){ lo, hi };
}

static struct range bounds(const struct op *op, int depth);

// The values an index between lo (NULL: 0) and hi (exclusive, NULL: unknown) takes.
static struct range between(const struct op *lo, const struct op *hi, int depth)
{
    struct range l = { 0, 0 }, h = any();
    if (lo)
        l = bounds(lo, depth);
    if (hi)
        h = bounds(hi, depth);
    return (struct range){ l.lo, h.hi - 1 > l.lo ? h.hi - 1 : l.lo };
}

// AT may place its axis past hi (all masked); the other kinds start below it.
static struct range axis_bounds(const struct axis *a, int depth)
{
    if (a->kind == AX_MAP)
        return (struct range){ 0, INT32_MAX };
    if (a->lo && (a->kind == AX_RANGE || (a->def && a->def->code == OP_AT)))
        return bounds(a->lo, depth);
    return between(a->lo, a->hi, depth);
}

static struct range origin_bounds(const struct op *op, int depth)
{
    const struct op *r = op->region;
    if (op->axis)
        return axis_bounds(op->axis, depth);
    if (!r)
        return any();
    if (r->code == OP_EACH)
        return between(r->args[0], r->args[1], depth);
    const struct clause *cl = &r->clauses[op->clause];
    return cl->kind == CL_MAP ? (struct range){ 0, INT32_MAX } : between(cl->lo, cl->hi, depth);
}

// Positions of a tile may lie past its axis's hi (they are masked).
static struct range index_bounds(const struct axis *a, int depth)
{
    struct range r = axis_bounds(a, depth);
    int64_t past = r.hi + (a->size ? a->size - 1 : INT32_MAX);
    return (struct range){ r.lo, past > INT32_MAX ? INT32_MAX : past };
}

static struct range mul_bounds(struct range a, struct range b)
{
    int64_t p[4] = { a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi }, lo = p[0], hi = p[0];
    for (int i = 1; i < 4; i++) {
        lo = p[i] < lo ? p[i] : lo;
        hi = p[i] > hi ? p[i] : hi;
    }
    return in_i32(lo, hi);
}

static struct range bounds(const struct op *op, int depth)
{
    struct range a = any(), b = any();
    if (op->type.elem != EL_I32 || depth > DEPTH_MAX)
        return a;
    if (op->code == OP_CONST)
        return (struct range){ op->ival, op->ival };
    if (op->code == OP_DIM)
        return op->dim->bound >= 0 ? (struct range){ op->dim->bound, op->dim->bound }
                                   : (struct range){ 0, op->dim->max };
    if (op->code == OP_ORIGIN)
        return origin_bounds(op, depth + 1);
    if (op->code == OP_INDEX)
        return index_bounds(op->axis, depth + 1);
    if (op->nargs < 2)
        return any();
    a = bounds(op->args[op->code == OP_SELECT ? 2 : 0], depth + 1);
    b = bounds(op->args[1], depth + 1);
    switch ((int)op->code) { // most ops: nothing known
    case OP_ADD: return in_i32(a.lo + b.lo, a.hi + b.hi);
    case OP_SUB: return in_i32(a.lo - b.hi, a.hi - b.lo);
    case OP_MUL: return mul_bounds(a, b);
    case OP_MIN: return (struct range){ lesser(a.lo, b.lo), lesser(a.hi, b.hi) };
    case OP_MAX: return (struct range){ a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi };
    case OP_SELECT: return (struct range){ lesser(a.lo, b.lo), a.hi > b.hi ? a.hi : b.hi };
    case OP_DIV: return b.lo > 0 && a.lo >= 0 ? (struct range){ a.lo / b.hi, a.hi / b.lo } : any();
    case OP_REM: return b.lo > 0 && a.lo >= 0 ? (struct range){ 0, lesser(a.hi, b.hi - 1) } : any();
    }
    return any();
}

void op_bounds(const struct op *op, int64_t *lo, int64_t *hi)
{
    struct range r = bounds(op, 0);
    *lo = r.lo;
    *hi = r.hi;
}
