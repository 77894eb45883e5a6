// Part of eval: the values of operations over dense arrays of doubles. This file and eval.c are the definition of what
// every operation means.
#include "eval.h"

#include <limits.h>
#include <math.h>
#include <string.h>

int64_t ev_elems(const struct ev *e, const struct type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= e->size[t->axes[i]->id];
    return n;
}

double *ev_room(struct ev *e, struct cells *c, int64_t n)
{
    if (n > c->cap) {
        c->v = NEWN(e->c->arena, double, n);
        c->cap = n;
    }
    c->n = n;
    return c->v;
}

double ev_scalar(const struct ev *e, const struct op *op)
{
    return e->ops[op->id].v[0];
}

bool ev_valid(const struct ev *e, const struct axis *a, int64_t pos)
{
    return e->origin[a->id] + pos < e->hi[a->id];
}

const int32_t *ev_project(struct ev *e, int which, const struct type *space, const struct type *t)
{
    int64_t n = ev_elems(e, space), stride[RANK_MAX] = { 0 }, s = 1, pos[RANK_MAX] = { 0 }, at = 0;
    struct indices *x = &e->scratch[which];
    if (n > x->cap) {
        x->v = NEWN(e->c->arena, int32_t, n);
        x->cap = n;
    }
    int32_t *idx = x->v;
    for (int i = t->rank - 1; i >= 0; i--) {
        for (int j = 0; j < space->rank; j++)
            if (space->axes[j] == t->axes[i])
                stride[j] = s;
        s *= e->size[t->axes[i]->id];
    }
    for (int64_t k = 0; k < n; k++) {
        idx[k] = (int32_t)at;
        for (int j = space->rank - 1; j >= 0; j--) {
            at += stride[j];
            if (++pos[j] < e->size[space->axes[j]->id])
                break;
            at -= stride[j] * pos[j];
            pos[j] = 0;
        }
    }
    return idx;
}

static double wrap(int64_t v)
{
    return (double)(int32_t)(uint32_t)(uint64_t)v;
}

static double int_op(enum opcode op, int64_t a, int64_t b)
{
    switch ((int)op) {
    case OP_ADD: return wrap(a + b);
    case OP_SUB: return wrap(a - b);
    case OP_MUL: return wrap(a * b);
    case OP_DIV: return b ? wrap(a / b) : 0;
    case OP_REM: return b ? wrap(a % b) : 0;
    case OP_MIN: return (double)(a < b ? a : b);
    case OP_MAX: return (double)(a > b ? a : b);
    case OP_AND: return wrap(a & b);
    case OP_OR: return wrap(a | b);
    case OP_XOR: return wrap(a ^ b);
    case OP_SHL: return wrap((int64_t)((uint64_t)a << (b & 31)));
    case OP_SHR: return wrap(a >> (b & 31));
    }
    return 0;
}

static double real_op(enum opcode op, double a, double b)
{
    switch ((int)op) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_MIN: return isnan(a) ? b : isnan(b) || a < b ? a : b;
    case OP_MAX: return isnan(a) ? b : isnan(b) || a > b ? a : b;
    }
    return 0;
}

static double compare(enum opcode op, double a, double b)
{
    switch ((int)op) {
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_GT: return a > b;
    case OP_GE: return a >= b;
    case OP_EQ: return a == b;
    }
    return a != b;
}

// The key of order(): the bits of the f32, negative numbers with their magnitude flipped.
static double order_key(double x)
{
    float f = (float)x;
    int32_t bits;
    if (isnan(x))
        return INT32_MIN + 1;
    if (f == 0)
        return 0;
    memcpy(&bits, &f, 4);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

static double unary(const struct op *op, double a)
{
    bool i32 = op->args[0]->type.elem == EL_I32;
    switch ((int)op->code) {
    case OP_NEG: return i32 ? wrap(-(int64_t)a) : -a;
    case OP_ABS: return i32 ? wrap(a < 0 ? -(int64_t)a : (int64_t)a) : fabs(a);
    case OP_NOT: return op->type.elem == EL_BOOL ? !a : wrap(~(int64_t)a);
    case OP_CAST: return op->type.elem == EL_F32 ? a : elem_round(op->type.elem, a);
    case OP_ORDER: return order_key(a);
    case OP_EXP2: return exp2(a);
    case OP_LOG2: return log2(a);
    case OP_SQRT: return sqrt(a);
    case OP_RSQRT: return 1 / sqrt(a);
    case OP_RCP: return 1 / a;
    case OP_FLOOR: return floor(a);
    case OP_RELAYOUT: return a;
    case OP_EXP: return exp(a);
    case OP_LOG: return log(a);
    case OP_SIGMOID: return 1 / (1 + exp(-a));
    case OP_SILU: return a / (1 + exp(-a));
    case OP_TANH: return tanh(a);
    case OP_GELU: return a / 2 * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
    }
    return 0;
}

double ev_element(const struct op *op, double a, double b, double c)
{
    if (op->code == OP_SELECT)
        return a != 0 ? b : c;
    if (op->nargs == 1)
        return unary(op, a);
    if (op_infos[op->code].rule == TR_COMPARE)
        return compare(op->code, a, b);
    if (op->type.elem == EL_F32 || op->type.elem == EL_BF16 || op->type.elem == EL_F16)
        return real_op(op->code, a, b);
    if (op->type.elem == EL_BOOL) // and, or, xor
        return op->code == OP_AND ? a && b : op->code == OP_OR ? a || b : (a != 0) != (b != 0);
    return int_op(op->code, (int64_t)a, (int64_t)b);
}

static void elementwise(struct ev *e, const struct op *op)
{
    int64_t n = ev_elems(e, &op->type);
    double *out = ev_room(e, &e->ops[op->id], n);
    const double *in[3] = { NULL };
    const int32_t *idx[3] = { NULL };
    for (int i = 0; i < op->nargs; i++) {
        in[i] = e->ops[op->args[i]->id].v;
        idx[i] = ev_project(e, i, &op->type, &op->args[i]->type);
    }
    for (int64_t k = 0; k < n; k++)
        out[k] = ev_element(op, in[0][idx[0][k]], op->nargs > 1 ? in[1][idx[1][k]] : 0,
                            op->nargs > 2 ? in[2][idx[2][k]] : 0);
}

static double leaf(struct ev *e, const struct op *op)
{
    switch ((int)op->code) {
    case OP_CONST: return elem_is_float(op->type.elem) ? op->fval : (double)op->ival;
    case OP_DIM:
        if (op->dim->bound >= 0)
            return (double)op->dim->bound;
        for (int i = 0; i < e->k->dims.n; i++)
            if (e->k->dims.v[i] == op->dim)
                return (double)e->dim[i];
        break;
    case OP_SCALAR:
        return e->k->params.v[op->param].elem == EL_F32 ? (double)*(const float *)e->args[op->param].data
                                                        : (double)*(const int32_t *)e->args[op->param].data;
    case OP_ORIGIN:
        return (double)(op->region ? e->counter[op->region->id * CLAUSES_MAX + op->clause] : e->origin[op->axis->id]);
    }
    return 0;
}

static void index_tile(struct ev *e, const struct op *op)
{
    int64_t n = ev_elems(e, &op->type);
    double *out = ev_room(e, &e->ops[op->id], n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)(e->origin[op->axis->id] + i);
}

// ---- along an axis -----------------------------------------------------------------------------------------------

// A line of the tile along the axis: element k of line l is at start + k * step.
struct lines {
    int64_t outer, inner, len, valid; // outer * inner lines; the first `valid` positions count
};

static struct lines lines_of(const struct ev *e, const struct type *t, const struct axis *a)
{
    struct lines l = { 1, 1, e->size[a->id], 0 };
    bool before = true;
    for (int i = 0; i < t->rank; i++) {
        if (t->axes[i] == a)
            before = false;
        else if (before)
            l.outer *= e->size[t->axes[i]->id];
        else
            l.inner *= e->size[t->axes[i]->id];
    }
    while (l.valid < l.len && ev_valid(e, a, l.valid))
        l.valid++;
    return l;
}

static double reduce_line(const struct op *op, const double *v, int64_t step, int64_t n)
{
    bool f = elem_is_float(op->type.elem);
    double r = op->code == OP_REDUCE_SUM   ? 0
               : op->code == OP_REDUCE_MAX ? (f ? -INFINITY : INT32_MIN)
                                           : (f ? INFINITY : INT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        double x = v[i * step];
        if (op->code == OP_REDUCE_SUM)
            r = f ? r + x : wrap((int64_t)r + (int64_t)x);
        else
            r = real_op(op->code == OP_REDUCE_MAX ? OP_MAX : OP_MIN, r, x);
    }
    return r;
}

// The position of the largest key among those not taken; -1 if none is left.
static int64_t best_of(const struct op *op, const double *v, int64_t step, int64_t n, const bool *taken)
{
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        double a = v[i * step], b = at < 0 ? 0 : v[at * step];
        if (taken && taken[i])
            continue;
        if (at < 0 || (op->args[0]->type.elem == EL_I32 ? a > b : order_key(a) > order_key(b)))
            at = i;
    }
    return at;
}

static void reduce(struct ev *e, const struct op *op)
{
    const struct type *t = &op->args[0]->type;
    struct lines l = lines_of(e, t, op->axis);
    const double *in = e->ops[op->args[0]->id].v;
    double *out = ev_room(e, &e->ops[op->id], l.outer * l.inner);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            const double *line = in + o * l.len * l.inner + i;
            int64_t at;
            if (op->code != OP_ARGMAX)
                out[o * l.inner + i] = reduce_line(op, line, l.inner, l.valid);
            else
                out[o * l.inner + i] =
                    (at = best_of(op, line, l.inner, l.valid, NULL)) < 0 ? -1 : (double)(e->origin[op->axis->id] + at);
        }
}

static void scan(struct ev *e, const struct op *op)
{
    struct lines l = lines_of(e, &op->type, op->axis);
    const double *in = e->ops[op->args[0]->id].v;
    double *out = ev_room(e, &e->ops[op->id], l.outer * l.inner * l.len);
    bool f = elem_is_float(op->type.elem);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            double sum = 0;
            for (int64_t k = 0; k < l.len; k++) {
                int64_t at = (o * l.len + k) * l.inner + i;
                if (k < l.valid)
                    sum = f ? sum + in[at] : wrap((int64_t)sum + (int64_t)in[at]);
                out[at] = sum;
            }
        }
}

static void softmax(struct ev *e, const struct op *op)
{
    struct lines l = lines_of(e, &op->type, op->axis);
    const double *in = e->ops[op->args[0]->id].v;
    double *out = ev_room(e, &e->ops[op->id], l.outer * l.inner * l.len);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            const double *line = in + o * l.len * l.inner + i;
            double *to = out + o * l.len * l.inner + i, m = -INFINITY, sum = 0;
            for (int64_t k = 0; k < l.valid; k++)
                m = line[k * l.inner] > m ? line[k * l.inner] : m;
            m = m > -INFINITY ? m : 0;
            for (int64_t k = 0; k < l.valid; k++)
                sum += exp(line[k * l.inner] - m);
            for (int64_t k = 0; k < l.len; k++)
                to[k * l.inner] = exp(line[k * l.inner] - m) / sum;
        }
}

// Result axes: those of the operand less `axis`, then axis2.
static void topk(struct ev *e, const struct op *op)
{
    struct lines l = lines_of(e, &op->args[0]->type, op->axis);
    const double *in = e->ops[op->args[0]->id].v;
    int64_t want = e->size[op->axis2->id];
    double *out = ev_room(e, &e->ops[op->id], l.outer * l.inner * want);
    bool *taken = NEWN(e->c->arena, bool, l.len + 1);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            const double *line = in + o * l.len * l.inner + i;
            memset(taken, 0, (size_t)l.len);
            for (int64_t k = 0; k < want; k++) {
                int64_t at = ev_valid(e, op->axis2, k) ? best_of(op, line, l.inner, l.valid, taken) : -1;
                if (at >= 0)
                    taken[at] = true;
                out[(o * l.inner + i) * want + k] = at < 0 ? -1 : (double)(e->origin[op->axis->id] + at);
            }
        }
}

static void take(struct ev *e, const struct op *op)
{
    const struct type *vt = &op->args[0]->type;
    int64_t n = ev_elems(e, &op->type);
    double *out = ev_room(e, &e->ops[op->id], n);
    const double *v = e->ops[op->args[0]->id].v, *which = e->ops[op->args[1]->id].v;
    struct lines l = lines_of(e, vt, op->axis);
    const int32_t *base = ev_project(e, 0, &op->type, vt), *idx = ev_project(e, 1, &op->type, &op->args[1]->type);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = (int64_t)which[idx[k]] - e->origin[op->axis->id];
        out[k] = at >= 0 && at < l.valid ? v[base[k] + at * l.inner] : 0;
    }
}

// ---- dot ---------------------------------------------------------------------------------------------------------

static struct axis *contracted(const struct op *op)
{
    for (int i = 0; i < op->args[1]->type.rank; i++)
        if (type_has_axis(&op->args[2]->type, op->args[1]->type.axes[i]))
            return op->args[1]->type.axes[i];
    return NULL;
}

static void dot(struct ev *e, const struct op *op)
{
    struct axis *k = contracted(op);
    int64_t n = ev_elems(e, &op->type);
    struct lines la = lines_of(e, &op->args[1]->type, k), lb = lines_of(e, &op->args[2]->type, k);
    double *out = ev_room(e, &e->ops[op->id], n);
    const double *acc = e->ops[op->args[0]->id].v, *a = e->ops[op->args[1]->id].v, *b = e->ops[op->args[2]->id].v;
    const int32_t *ic = ev_project(e, 0, &op->type, &op->args[0]->type),
                  *ia = ev_project(e, 1, &op->type, &op->args[1]->type),
                  *ib = ev_project(e, 2, &op->type, &op->args[2]->type);
    for (int64_t i = 0; i < n; i++) {
        double sum = acc[ic[i]];
        for (int64_t j = 0; j < la.valid; j++)
            sum += a[ia[i] + j * la.inner] * b[ib[i] + j * lb.inner];
        out[i] = sum;
    }
}

void ev_value(struct ev *e, const struct op *op)
{
    switch (op_infos[op->code].rule) {
    case TR_REDUCE:
    case TR_ARGRED: reduce(e, op); return;
    case TR_SCAN:
        if (op->code == OP_SOFTMAX)
            softmax(e, op);
        else
            scan(e, op);
        return;
    case TR_TOPK: topk(e, op); return;
    case TR_TAKE: take(e, op); return;
    case TR_DOT: dot(e, op); return;
    case TR_NONE:
    case TR_SAME:
    case TR_ARITH:
    case TR_FLOAT:
    case TR_INT:
    case TR_LOGIC:
    case TR_COMPARE:
    case TR_SELECT:
    case TR_CAST:
    case TR_LOAD:
    case TR_OWN: break;
    }
    if (op->code == OP_INDEX)
        index_tile(e, op);
    else if (!op->nargs)
        ev_room(e, &e->ops[op->id], 1)[0] = leaf(e, op);
    else
        elementwise(e, op);
}
