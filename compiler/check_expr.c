// Expressions of the checker: AST -> ops at the end of the checker's block.
//
// Every operand is made to fit here (literals adapt, bf16 and f16 widen), with errors at the guilty operand;
// op_infer then only has to agree.
#include "check.h"

#include <math.h>
#include <string.h>

static const struct value BAD = { .kind = V_BAD };

struct value val_op(struct op *op)
{
    return op ? (struct value){ .kind = V_OP, .op = op } : BAD;
}

static struct value bad(bool unused)
{
    (void)unused; // so that `return bad(error(...))` reads well
    return BAD;
}

// ---- values -------------------------------------------------------------------------------------------------

struct op *op_add(struct checker *s, struct op *op)
{
    if (!op_infer(s->c, op))
        return NULL;
    if (op->type.rank)
        op->dist = op->code == OP_GET && !s->dist ? op->var->dist : s->dist;
    block_push(s->c, s->b, op);
    return op;
}

struct op *op_make(struct checker *s, enum opcode code, struct loc loc, int nargs, struct op *const *args)
{
    struct op *op = op_new(s->c, s->k, code, loc);
    for (int i = 0; i < nargs; i++) {
        if (!args[i])
            return NULL;
        op->args[op->nargs++] = args[i];
    }
    return op;
}

static struct op *leaf(struct checker *s, enum opcode code, struct loc loc)
{
    return op_new(s->c, s->k, code, loc);
}

static const char *val_text(struct checker *s, struct value v)
{
    return v.kind == V_OP ? type_text(s->c, &v.op->type) : v.kind == V_INT ? "an integer" : "a floating-point number";
}

bool is_literal_type(struct checker *s, struct value v, enum elem e, const struct node *n)
{
    if (e == EL_BOOL)
        return error(s->c, n->loc, "expected bool, found a number; write a comparison, true or false");
    if (v.kind == V_FLOAT && e == EL_I32)
        return error(s->c, n->loc, "expected i32, found a floating-point number; write i32(...)");
    if (v.kind == V_INT && e == EL_I32 && (v.i < INT32_MIN || v.i > INT32_MAX))
        return error(s->c, n->loc, "%lld does not fit i32", (long long)v.i);
    return true;
}

struct op *val_use(struct checker *s, struct value v, enum elem want, const struct node *n)
{
    if (v.kind == V_BAD || v.kind == V_OP)
        return v.op;
    if (want == EL_NONE)
        want = v.kind == V_INT ? EL_I32 : EL_F32;
    if (!is_literal_type(s, v, want, n))
        return NULL;
    struct op *op = v.kind == V_INT ? op_const_i(s->c, s->k, s->b, want, v.i) : op_const_f(s->c, s->k, s->b, want, v.f);
    op->loc = n->loc;
    return op;
}

static struct op *widen(struct checker *s, struct op *op, struct loc at)
{
    if (!op)
        return NULL;
    struct op *w = op_widen(s->c, s->k, s->b, op);
    if (w != op) {
        w->loc = at;
        w->dist = w->type.rank ? s->dist : 0;
    }
    return w;
}

struct op *val_convert(struct checker *s, struct value v, enum elem elem, const struct node *n, const char *what)
{
    struct op *op = val_use(s, v, elem, n);
    if (!op || op->type.elem == elem)
        return op;
    if (elem == EL_F32)
        op = widen(s, op, n->loc);
    if (op->type.elem == elem)
        return op;
    const char *hint =
        elem == EL_BOOL ? "compare it with 0" : arena_printf(s->c->arena, "write %s(...)", elem_names[elem]);
    error(s->c, n->loc, "%s must be %s, not %s; %s", what, elem_names[elem], type_text(s->c, &op->type), hint);
    return NULL;
}

struct op *scalar_i32(struct checker *s, const struct node *n, const char *what)
{
    struct op *op = val_use(s, expr(s, n), EL_I32, n);
    if (!op)
        return NULL;
    if (op->type.elem == EL_I32 && op->type.rank == 0)
        return op;
    error(s->c, n->loc, "%s must be a scalar i32, not %s", what, type_text(s->c, &op->type));
    return NULL;
}

// ---- operators ----------------------------------------------------------------------------------------------

static const struct {
    const char *text;
    enum opcode code;
} operators[] = { { "+", OP_ADD },  { "-", OP_SUB },  { "*", OP_MUL }, { "/", OP_DIV },
                  { "%", OP_REM },  { "&", OP_AND },  { "|", OP_OR },  { "^", OP_XOR },
                  { "<<", OP_SHL }, { ">>", OP_SHR }, { "<", OP_LT },  { "<=", OP_LE },
                  { ">", OP_GT },   { ">=", OP_GE },  { "==", OP_EQ }, { "!=", OP_NE } };

// What the operator's operands may be: an error at the operand that may not.
static bool operand_fits(struct checker *s, enum opcode code, const char *name, struct value v, const struct node *n)
{
    enum type_rule rule = op_infos[code].rule;
    enum elem e = v.kind == V_OP ? v.op->type.elem : v.kind == V_INT ? EL_I32 : EL_F32;
    if (e == EL_BOOL && rule != TR_LOGIC)
        return error(s->c, n->loc, "operand of '%s' is %s; write i32(...) to calculate with it", name, val_text(s, v));
    if (elem_is_float(e) && (rule == TR_INT || rule == TR_LOGIC))
        return error(s->c, n->loc, "operand of '%s' must be %s, not %s", name, rule == TR_INT ? "i32" : "i32 or bool",
                     val_text(s, v));
    if (e == EL_I32 && v.kind == V_OP && rule == TR_FLOAT)
        return error(s->c, n->loc, "operand of '%s' must be f32, not %s; write f32(...)", name, val_text(s, v));
    return true;
}

static bool mixed(struct checker *s, const char *name, struct value a, struct value b, const struct node *n)
{
    enum elem ea = a.kind == V_OP ? a.op->type.elem : EL_NONE, eb = b.kind == V_OP ? b.op->type.elem : EL_NONE;
    const char *hint = "";
    if (ea == EL_BOOL || eb == EL_BOOL)
        hint = "; write i32(...) or a comparison";
    else if (ea == EL_I32 || eb == EL_I32)
        hint = "; write f32(...) around the i32";
    return error(s->c, n->loc, "operands of '%s' do not mix: %s and %s%s", name, val_text(s, a), val_text(s, b), hint);
}

// Both operands in one element type, as ops x[0], x[1].
static bool unify(struct checker *s, bool widens, const char *name, struct value a, struct value b,
                  const struct node *n, const struct node *na, const struct node *nb, struct op **x)
{
    if (a.kind == V_BAD || b.kind == V_BAD)
        return false;
    bool same16 = a.kind == V_OP && b.kind == V_OP && a.op->type.elem == b.op->type.elem;
    bool lit = a.kind != V_OP || b.kind != V_OP;
    if (a.kind == V_OP && (widens || (!same16 && !lit)))
        a.op = widen(s, a.op, na->loc);
    if (b.kind == V_OP && (widens || (!same16 && !lit)))
        b.op = widen(s, b.op, nb->loc);
    enum elem e;
    if (a.kind == V_OP)
        e = a.op->type.elem;
    else if (b.kind == V_OP)
        e = b.op->type.elem;
    else
        e = a.kind == V_FLOAT || b.kind == V_FLOAT ? EL_F32 : EL_I32;
    bool fits = (a.kind == V_OP ? a.op->type.elem == e : a.kind == V_INT || elem_is_float(e)) &&
                (b.kind == V_OP ? b.op->type.elem == e : b.kind == V_INT || elem_is_float(e));
    if (!fits || (lit && e == EL_BOOL))
        return mixed(s, name, a, b, n);
    x[0] = val_use(s, a, e, na);
    x[1] = val_use(s, b, e, nb);
    return x[0] && x[1];
}

static struct value binary_at(struct checker *s, enum opcode code, const char *name, struct value a, struct value b,
                              const struct node *n, const struct node *na, const struct node *nb)
{
    struct op *x[2];
    if (a.kind == V_BAD || b.kind == V_BAD)
        return BAD;
    // Both are looked at, so that two wrong operands give two errors.
    bool ok = operand_fits(s, code, name, a, na);
    ok = operand_fits(s, code, name, b, nb) && ok;
    if (!ok || !unify(s, op_widens(code), name, a, b, n, na, nb, x))
        return BAD;
    struct op *op = op_make(s, code, n->loc, 2, x);
    return val_op(op_add(s, op));
}

struct value binary(struct checker *s, enum opcode code, struct value a, struct value b, const struct node *n)
{
    return binary_at(s, code, code == OP_ADD ? "+" : code == OP_SUB ? "-" : "*", a, b, n, n->kids[0], n->kids[1]);
}

static struct value unary_op(struct checker *s, enum opcode code, const char *name, struct value v,
                             const struct node *n, const struct node *arg)
{
    if (v.kind == V_BAD || !operand_fits(s, code, name, v, arg))
        return BAD;
    struct op *x = val_use(s, v, op_infos[code].rule == TR_FLOAT ? EL_F32 : EL_NONE, arg);
    if (op_widens(code))
        x = widen(s, x, arg->loc);
    struct op *op = op_make(s, code, n->loc, 1, &x);
    return op ? val_op(op_add(s, op)) : BAD;
}

static struct value check_unary(struct checker *s, const struct node *n)
{
    struct value v = expr(s, n->kids[0]);
    enum elem e = v.kind == V_OP ? v.op->type.elem : v.kind == V_FLOAT ? EL_F32 : EL_I32;
    if (v.kind == V_BAD)
        return v;
    if (n->name[0] == '-') {
        if (v.kind == V_OP)
            return unary_op(s, OP_NEG, "-", v, n, n->kids[0]);
        v.i = v.kind == V_INT && v.i != INT64_MIN ? -v.i : v.i;
        v.f = -v.f;
        return v;
    }
    if (n->name[0] == '!' && e != EL_BOOL)
        return bad(error(s->c, n->kids[0]->loc, "operand of '!' must be bool, not %s", val_text(s, v)));
    if (n->name[0] == '~' && e != EL_I32)
        return bad(error(s->c, n->kids[0]->loc, "operand of '~' must be i32, not %s", val_text(s, v)));
    return unary_op(s, OP_NOT, n->name, v, n, n->kids[0]);
}

static struct value check_binary(struct checker *s, const struct node *n)
{
    struct value a = expr(s, n->kids[0]), b = expr(s, n->kids[1]);
    for (size_t i = 0; i < COUNTOF(operators); i++)
        if (!strcmp(operators[i].text, n->name))
            return binary_at(s, operators[i].code, n->name, a, b, n, n->kids[0], n->kids[1]);
    return bad(error(s->c, n->loc, "unknown operator '%s'", n->name));
}

// ---- names --------------------------------------------------------------------------------------------------

static struct value dim_value(struct checker *s, struct dim *d, struct loc at)
{
    struct op *op;
    if (d->bound >= 0) {
        op = op_const_i(s->c, s->k, s->b, EL_I32, d->bound);
        op->loc = at;
        return val_op(op);
    }
    op = leaf(s, OP_DIM, at);
    op->dim = d;
    return val_op(op_add(s, op));
}

static struct value sym_value(struct checker *s, const struct sym *y, struct loc at)
{
    struct op *op = NULL;
    switch (y->kind) {
    case SY_POISON: return BAD;
    case SY_VALUE: return y->val;
    case SY_DIM: return dim_value(s, y->dim, at);
    case SY_SCALAR:
        op = leaf(s, OP_SCALAR, at);
        op->param = y->param;
        op->type.elem = s->k->params.v[y->param].elem;
        break;
    case SY_AXIS:
        op = leaf(s, OP_INDEX, at);
        op->axis = y->axis;
        break;
    case SY_COUNTER:
        op = leaf(s, OP_ORIGIN, at);
        op->region = y->region;
        op->clause = y->clause;
        break;
    case SY_VAR:
        op = leaf(s, OP_GET, at);
        op->var = y->var;
        break;
    case SY_BUF: return bad(error(s->c, at, "'%s' is a buffer; write %s[...] to read it", y->name, y->name));
    }
    return val_op(op_add(s, op));
}

static struct value check_name(struct checker *s, const struct node *n)
{
    const struct sym *y = lookup(s, n->name);
    bool t = !strcmp(n->name, "true");
    if (y)
        return sym_value(s, y, n->loc);
    if (t || !strcmp(n->name, "false")) {
        struct op *op = op_const_i(s->c, s->k, s->b, EL_BOOL, t);
        op->loc = n->loc;
        return val_op(op);
    }
    if (!strcmp(n->name, "inf"))
        return (struct value){ .kind = V_FLOAT, .f = INFINITY };
    if (!strcmp(n->name, "nan"))
        return (struct value){ .kind = V_FLOAT, .f = NAN };
    return bad(unknown_name(s, n->name, n->loc));
}

struct axis *axis_arg(struct checker *s, const struct node *n)
{
    const struct sym *y = n->kind == N_NAME ? lookup(s, n->name) : NULL;
    if (y && y->kind == SY_AXIS)
        return y->axis;
    if (n->kind != N_NAME)
        error(s->c, n->loc, "expected the name of an axis");
    else if (!y)
        unknown_name(s, n->name, n->loc);
    else if (y->kind != SY_POISON)
        error(s->c, n->loc, "'%s' is %s, not an axis", n->name, sym_kind_text(y->kind));
    return NULL;
}

// ---- memory -------------------------------------------------------------------------------------------------

bool check_indices(struct checker *s, const struct node *sub, struct op **args, struct buf **buf)
{
    const struct sym *y = lookup(s, sub->name);
    bool ok = true;
    *buf = NULL;
    if (!y)
        return unknown_name(s, sub->name, sub->loc);
    if (y->kind == SY_POISON)
        return false;
    if (y->kind != SY_BUF)
        return error(s->c, sub->loc, "'%s' is %s, not a buffer: it cannot be indexed", sub->name,
                     sym_kind_text(y->kind));
    if (y->buf->kind == BUF_SHARED)
        return error(s->c, sub->loc, "%s '%s' may only stand in %s", y->buf->barrier ? "barrier" : "shared buffer",
                     sub->name, y->buf->barrier ? "arrive and await" : "copy, put and mma");
    if (sub->nkids != y->buf->rank) {
        error(s->c, sub->loc, "'%s' has %d dimension%s, found %d ind%s", sub->name, y->buf->rank,
              y->buf->rank == 1 ? "" : "s", sub->nkids, sub->nkids == 1 ? "ex" : "ices");
        note(s->c, y->loc, "'%s' is declared here", sub->name);
        return false;
    }
    *buf = y->buf;
    for (int i = 0; i < sub->nkids; i++) {
        struct op *x = val_use(s, expr(s, sub->kids[i]), EL_I32, sub->kids[i]);
        if (x && x->type.elem != EL_I32)
            x = error(s->c, sub->kids[i]->loc, "index must be i32, not %s", type_text(s->c, &x->type)) ? x : NULL;
        args[i] = x;
        ok = ok && x;
    }
    return ok;
}

static struct value check_load(struct checker *s, const struct node *n)
{
    struct op *args[RANK_MAX], *op;
    struct buf *buf;
    if (!check_indices(s, n, args, &buf))
        return BAD;
    if (buf->kind == BUF_OUT) {
        error(s->c, n->loc, "'%s' is an output: to read it, declare it 'inout'", n->name);
        note(s->c, buf->loc, "'%s' is declared here", n->name);
        return BAD;
    }
    op = op_make(s, OP_LOAD, n->loc, buf->rank, args);
    op->buf = buf;
    return val_op(op_add(s, op));
}

// shared[slot]
struct op *check_slot(struct checker *s, const struct node *n, struct buf **buf, bool barrier)
{
    const struct sym *y = n->kind == N_SUBSCRIPT || n->kind == N_SLOT ? lookup(s, n->name) : NULL;
    *buf = NULL;
    if (!y || (y->kind != SY_POISON && (y->kind != SY_BUF || y->buf->kind != BUF_SHARED)) || n->nkids != 1) {
        error(s->c, n->loc, "expected a slot of a shared buffer: name[slot]");
        return NULL;
    }
    if (y->kind == SY_POISON)
        return NULL;
    if (y->buf->barrier && !barrier)
        error(s->c, n->loc, "'%s' is a barrier: it may only stand in arrive and await", n->name);
    else if (barrier && !y->buf->barrier)
        error(s->c, n->loc, "'%s' is no barrier: declare it shared %s: i32[stages][1, 2] @barrier", n->name, n->name);
    if (y->buf->barrier != barrier)
        return NULL;
    *buf = y->buf;
    return scalar_i32(s, n->kids[0], "the slot");
}

struct value check_atomic(struct checker *s, const struct node *n)
{
    struct op *args[RANK_MAX + 1], *op;
    struct buf *buf;
    if (!check_nargs(s, n, 2, 2, "atomic_add(buffer[indices], value)"))
        return BAD;
    if (n->kids[0]->kind != N_SUBSCRIPT)
        return bad(error(s->c, n->kids[0]->loc, "expected a place in a buffer: atomic_add(buffer[indices], value)"));
    bool ok = check_indices(s, n->kids[0], args, &buf);
    struct value v = expr(s, n->kids[1]);
    if (buf && buf->kind != BUF_INOUT) {
        error(s->c, n->kids[0]->loc, "atomic_add reads and writes '%s': declare it 'inout'", n->kids[0]->name);
        note(s->c, buf->loc, "'%s' is declared here", n->kids[0]->name);
        return BAD;
    }
    if (buf && buf->elem != EL_I32 && buf->elem != EL_F32)
        return bad(error(s->c, n->kids[0]->loc, "atomic_add works on i32 and f32, '%s' holds %s", n->kids[0]->name,
                         elem_names[buf->elem]));
    if (!ok || !(args[buf->rank] = val_convert(s, v, buf->elem, n->kids[1], "the value to add")))
        return BAD;
    op = op_make(s, OP_ATOMIC_ADD, n->loc, buf->rank + 1, args);
    op->buf = buf;
    return val_op(op_add(s, op));
}

// ---- calls --------------------------------------------------------------------------------------------------

bool check_nargs(struct checker *s, const struct node *n, int min, int max, const char *form)
{
    if (n->nkids >= min && n->nkids <= max)
        return true;
    const char *from = min == max ? "" : arena_printf(s->c->arena, "%d or ", min);
    if (!max)
        return error(s->c, n->loc, "'%s' takes no arguments, found %d", n->name, n->nkids);
    return error(s->c, n->loc, "'%s' takes %s%d argument%s, found %d: %s", n->name, from, max, max == 1 ? "" : "s",
                 n->nkids, form);
}

static struct op *dot_operand(struct checker *s, const struct node *n)
{
    struct value v = expr(s, n);
    if (v.kind == V_BAD)
        return NULL;
    if (v.kind == V_OP && (v.op->type.elem == EL_BF16 || v.op->type.elem == EL_F16))
        return v.op;
    error(s->c, n->loc, "operand of 'dot' must be bf16 or f16, not %s%s", val_text(s, v),
          v.kind == V_OP && v.op->type.elem == EL_F32 ? "; write bf16(...)" : "");
    return NULL;
}

// The accumulator's first axis comes from operand a: x . y = y . x, and one order is enough for all that follows.
static void order_operands(struct op **args)
{
    const struct type *acc = &args[0]->type;
    if (acc->rank && !type_has_axis(&args[1]->type, acc->axes[0]) && type_has_axis(&args[2]->type, acc->axes[0])) {
        struct op *a = args[1];
        args[1] = args[2];
        args[2] = a;
    }
}

// acc: what is added to (of `acc += dot(a, b)`), or NULL.
struct value check_dot(struct checker *s, const struct node *n, struct op *acc)
{
    struct op *args[3] = { acc, NULL, NULL };
    int first = n->nkids - 2;
    if (!check_nargs(s, n, 2, 3, "dot(a, b) or dot(accumulator, a, b)"))
        return BAD;
    if (n->nkids == 3 && acc)
        return bad(error(s->c, n->loc, "'+=' of a dot with an accumulator of its own"));
    if (n->nkids == 3)
        acc = args[0] = val_convert(s, expr(s, n->kids[0]), EL_F32, n->kids[0], "the accumulator");
    args[1] = dot_operand(s, n->kids[first]);
    args[2] = dot_operand(s, n->kids[first + 1]);
    if (!args[1] || !args[2] || (n->nkids == 3 && !acc))
        return BAD;
    if (!acc)
        args[0] = op_const_f(s->c, s->k, s->b, EL_F32, 0);
    order_operands(args);
    return val_op(op_add(s, op_make(s, OP_DOT, n->loc, 3, args)));
}

static struct value check_mma(struct checker *s, const struct node *n)
{
    struct op *args[3], *op;
    struct buf *a, *b;
    if (!check_nargs(s, n, 3, 3, "mma(accumulator, a[slot], b[slot])"))
        return BAD;
    args[0] = val_convert(s, expr(s, n->kids[0]), EL_F32, n->kids[0], "the accumulator");
    args[1] = check_slot(s, n->kids[1], &a, false);
    args[2] = check_slot(s, n->kids[2], &b, false);
    op = op_make(s, OP_MMA, n->loc, 3, args);
    if (!op)
        return BAD;
    op->buf = a;
    op->buf2 = b;
    if (args[0]->type.rank == 0 && s->let_type)
        op->type = *s->let_type;
    return val_op(op_add(s, op));
}

static struct value check_select(struct checker *s, const struct node *n)
{
    struct op *args[3];
    if (!check_nargs(s, n, 3, 3, "select(condition, then, else)"))
        return BAD;
    args[0] = val_convert(s, expr(s, n->kids[0]), EL_BOOL, n->kids[0], "the condition");
    struct value a = expr(s, n->kids[1]), b = expr(s, n->kids[2]);
    if (!unify(s, false, "select", a, b, n, n->kids[1], n->kids[2], args + 1) || !args[0])
        return BAD;
    return val_op(op_add(s, op_make(s, OP_SELECT, n->loc, 3, args)));
}

// Functions along an axis: the axis is the last argument.
static struct value check_along(struct checker *s, const struct node *n, enum opcode code)
{
    const char *form = code == OP_TOPK   ? "topk(value, axis of the results, axis)"
                       : code == OP_TAKE ? "take(value, index, axis)"
                                         : arena_printf(s->c->arena, "%s(value, axis)", n->name);
    int count = code == OP_TOPK || code == OP_TAKE ? 3 : 2, nargs = 1;
    struct op *args[2] = { 0 }, *op;
    struct axis *axis2 = NULL;
    if (!check_nargs(s, n, count, count, form))
        return BAD;
    struct value v = expr(s, n->kids[0]);
    if (v.kind != V_BAD && operand_fits(s, code, n->name, v, n->kids[0]))
        args[0] = widen(s, val_use(s, v, EL_NONE, n->kids[0]), n->kids[0]->loc);
    if (code == OP_SOFTMAX && args[0] && args[0]->type.elem != EL_F32) {
        error(s->c, n->kids[0]->loc, "operand of 'softmax' must be f32, not %s", type_text(s->c, &args[0]->type));
        args[0] = NULL;
    }
    if (code == OP_TAKE)
        args[nargs++] = val_convert(s, expr(s, n->kids[1]), EL_I32, n->kids[1], "the index");
    else if (code == OP_TOPK)
        axis2 = axis_arg(s, n->kids[1]);
    struct axis *axis = axis_arg(s, n->kids[count - 1]);
    if (!axis || (code == OP_TOPK && !axis2) || !(op = op_make(s, code, n->loc, nargs, args)))
        return BAD;
    op->axis = axis;
    op->axis2 = axis2;
    if (!type_has_axis(&args[0]->type, axis))
        return bad(error(s->c, n->kids[count - 1]->loc, "the value is %s, without axis '%s'",
                         type_text(s->c, &args[0]->type), axis->name));
    if (axis2 && type_has_axis(&args[0]->type, axis2))
        return bad(error(s->c, n->kids[1]->loc, "the results of 'topk' need an axis that the value %s does not have",
                         type_text(s->c, &args[0]->type)));
    if (axis2 && axis2->kind != AX_RANGE)
        return bad(error(s->c, n->kids[1]->loc, "'%s' must be declared by range(...) to hold the results of 'topk'",
                         axis2->name));
    return val_op(op_add(s, op));
}

static struct value check_origin(struct checker *s, const struct node *n)
{
    if (!check_nargs(s, n, 1, 1, "origin(axis)"))
        return BAD;
    struct axis *a = axis_arg(s, n->kids[0]);
    if (!a)
        return BAD;
    struct op *op = leaf(s, OP_ORIGIN, n->loc);
    op->axis = a;
    return val_op(op_add(s, op));
}

static struct value check_cast(struct checker *s, const struct node *n, enum elem e)
{
    if (!check_nargs(s, n, 1, 1, arena_printf(s->c->arena, "%s(value)", n->name)))
        return BAD;
    struct value v = expr(s, n->kids[0]);
    struct op *op;
    if (v.kind == V_BAD)
        return v;
    if (v.kind == V_OP) {
        op = op_cast(s->c, s->k, s->b, e, v.op);
        if (op != v.op && op->type.rank)
            op->dist = s->dist;
    } else {
        op = v.kind == V_INT ? op_const_i(s->c, s->k, s->b, e, v.i) : op_const_f(s->c, s->k, s->b, e, v.f);
    }
    if (op != v.op)
        op->loc = n->loc;
    return val_op(op);
}

static struct value check_order(struct checker *s, const struct node *n)
{
    if (!check_nargs(s, n, 1, 1, "order(value)"))
        return BAD;
    struct op *x = val_convert(s, expr(s, n->kids[0]), EL_F32, n->kids[0], "the operand of 'order'");
    struct op *op = op_make(s, OP_ORDER, n->loc, 1, &x);
    return op ? val_op(op_add(s, op)) : BAD;
}

enum elem elem_named(const struct checker *s, const char *name)
{
    for (int e = EL_BOOL; e < EL_COUNT; e++)
        if (!strcmp(elem_names[e], name))
            return (enum elem)e;
    for (const struct alias *a = s->aliases; a; a = a->next)
        if (!strcmp(a->name, name))
            return a->elem;
    return EL_NONE;
}

// Only these ops are functions of the language; the rest have operators or statements of their own.
static bool is_function(enum opcode code)
{
    enum type_rule r = op_infos[code].rule;
    return code == OP_MIN || code == OP_MAX || code == OP_ABS || code == OP_SELECT || code == OP_ORDER ||
           code == OP_RELAYOUT || code == OP_MMA || code == OP_DOT || code == OP_ATOMIC_ADD || r == TR_FLOAT ||
           r == TR_REDUCE || r == TR_SCAN || r == TR_ARGRED || r == TR_TOPK || r == TR_TAKE;
}

static struct value unknown_function(struct checker *s, const struct node *n)
{
    static const char *const statements[] = { "copy",   "commit", "wait",       "barrier",  "put",
                                              "arrive", "await",  "mma_commit", "mma_wait", "depend" };
    struct nearest near = { .want = n->name };
    for (size_t i = 0; i < COUNTOF(statements); i++)
        if (!strcmp(statements[i], n->name))
            return bad(error(s->c, n->loc, "'%s' is a statement: it gives no value", n->name));
    if (!strcmp(n->name, "range") || !strcmp(n->name, "tile") || !strcmp(n->name, "each"))
        return bad(error(s->c, n->loc, "'%s' may stand only where it declares: %s", n->name,
                         n->name[0] == 'r' ? "let axis = range(...)" : "in a clause of 'for' or 'parallel'"));
    for (int i = 0; i < OP_COUNT; i++)
        if (is_function((enum opcode)i))
            nearest_try(&near, op_infos[i].name);
    for (int e = EL_BOOL; e < EL_COUNT; e++)
        nearest_try(&near, elem_names[e]);
    return bad(error(s->c, n->loc, "unknown function '%s'%s", n->name, did_you_mean(s->c, &near)));
}

static struct value call_op(struct checker *s, const struct node *n, enum opcode code)
{
    const char *form = arena_printf(s->c->arena, op_infos[code].nargs == 2 ? "%s(a, b)" : "%s(a)", n->name);
    switch ((int)code) { // the ops of is_function
    case OP_SELECT: return check_select(s, n);
    case OP_ORDER: return check_order(s, n);
    case OP_MMA: return check_mma(s, n);
    case OP_DOT: return check_dot(s, n, NULL);
    case OP_ATOMIC_ADD: return check_atomic(s, n);
    }
    enum type_rule r = op_infos[code].rule;
    if (r == TR_REDUCE || r == TR_SCAN || r == TR_ARGRED || r == TR_TOPK || r == TR_TAKE)
        return check_along(s, n, code);
    if (!check_nargs(s, n, op_infos[code].nargs, op_infos[code].nargs, form))
        return BAD;
    struct value a = expr(s, n->kids[0]);
    if (op_infos[code].nargs == 1)
        return unary_op(s, code, n->name, a, n, n->kids[0]);
    return binary_at(s, code, n->name, a, expr(s, n->kids[1]), n, n->kids[0], n->kids[1]);
}

static struct value check_call(struct checker *s, const struct node *n)
{
    enum elem e = elem_named(s, n->name);
    if (e != EL_NONE)
        return check_cast(s, n, e);
    if (!strcmp(n->name, "origin"))
        return check_origin(s, n);
    for (int i = 0; i < OP_COUNT; i++)
        if (is_function((enum opcode)i) && !strcmp(op_infos[i].name, n->name))
            return call_op(s, n, (enum opcode)i);
    return unknown_function(s, n);
}

struct value expr(struct checker *s, const struct node *n)
{
    switch ((int)n->kind) { // the kinds of expressions
    case N_INT: return (struct value){ .kind = V_INT, .i = n->value };
    case N_FLOAT: return (struct value){ .kind = V_FLOAT, .f = n->fvalue };
    case N_NAME: return check_name(s, n);
    case N_UNARY: return check_unary(s, n);
    case N_BINARY: return check_binary(s, n);
    case N_SUBSCRIPT:
    case N_SLOT: return check_load(s, n);
    case N_CALL: return check_call(s, n);
    }
    return bad(error(s->c, n->loc, "expected an expression"));
}
