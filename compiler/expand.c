// Pass `expand`: composite operations become primitive ones. In: checked tile IR. Out: no F_COMPOSITE operation left.
//
// Each composite is written in front of itself and then becomes the last of the new operations, so that its uses, its name
// and its place stay.
#include "ir.h"

#include <math.h>
#include <string.h>

struct ex {
    struct ctx *c;
    struct kernel *k;
    struct block *b; // being written
    struct op *at;   // the composite
    bool changed;
};

static struct op *bin(struct ex *x, enum opcode code, struct op *a, struct op *b)
{
    struct op *o = op_binary(x->c, x->k, x->b, code, a, b);
    o->loc = x->at->loc;
    return o;
}

static struct op *un(struct ex *x, enum opcode code, struct op *a)
{
    struct op *o = op_unary(x->c, x->k, x->b, code, a);
    o->loc = x->at->loc;
    return o;
}

static struct op *f32(struct ex *x, double v)
{
    return op_const_f(x->c, x->k, x->b, EL_F32, v);
}

static struct op *i32(struct ex *x, int64_t v)
{
    return op_const_i(x->c, x->k, x->b, EL_I32, v);
}

static struct op *select3(struct ex *x, struct op *cond, struct op *a, struct op *b)
{
    struct op *o = op_new(x->c, x->k, OP_SELECT, x->at->loc);
    o->args[0] = cond;
    o->args[1] = a;
    o->args[2] = b;
    o->nargs = 3;
    op_infer(x->c, o);
    block_push(x->c, x->b, o);
    return o;
}

static struct op *reduce(struct ex *x, enum opcode code, struct op *v, struct axis *a)
{
    struct op *o = op_new(x->c, x->k, code, x->at->loc);
    o->args[0] = v;
    o->nargs = 1;
    o->axis = a;
    op_infer(x->c, o);
    block_push(x->c, x->b, o);
    return o;
}

static struct op *index_of(struct ex *x, struct axis *a)
{
    struct op *o = op_new(x->c, x->k, OP_INDEX, x->at->loc);
    o->axis = a;
    o->type = (struct type){ .elem = EL_I32, .rank = 1, .axes = { a } };
    block_push(x->c, x->b, o);
    return o;
}

// The composite itself becomes `code` of these operands; its type stays.
static void become(struct ex *x, enum opcode code, int n, struct op *a, struct op *b, struct op *c)
{
    struct op *o = x->at, *args[3] = { a, b, c };
    o->code = code;
    o->nargs = n;
    o->axis = o->axis2 = NULL;
    memset(o->args, 0, sizeof o->args);
    memcpy(o->args, args, sizeof args[0] * (size_t)n);
    block_push(x->c, x->b, o);
}

// e^v in base 2
static struct op *exp_of(struct ex *x, struct op *v)
{
    return un(x, OP_EXP2, bin(x, OP_MUL, v, f32(x, 1.4426950408889634)));
}

// 1 + e^-v; infinite for v below about -88, so that its reciprocal is 0
static struct op *one_plus_exp(struct ex *x, struct op *v, double scale)
{
    struct op *e = un(x, OP_EXP2, bin(x, OP_MUL, v, f32(x, -1.4426950408889634 * scale)));
    return bin(x, OP_ADD, e, f32(x, 1));
}

static struct op *as_f32(struct ex *x, struct op *v)
{
    return v->type.elem == EL_F32 ? v : op_cast(x->c, x->k, x->b, EL_F32, v);
}

// 2 / (1 + e^-2v) - 1
static struct op *tanh_of(struct ex *x, struct op *v)
{
    struct op *s = bin(x, OP_MUL, un(x, OP_RCP, one_plus_exp(x, v, 2)), f32(x, 2));
    return bin(x, OP_SUB, s, f32(x, 1));
}

static void gelu(struct ex *x, struct op *v)
{
    struct op *v3 = bin(x, OP_MUL, bin(x, OP_MUL, v, v), v);
    struct op *inner =
        bin(x, OP_MUL, bin(x, OP_ADD, v, bin(x, OP_MUL, v3, f32(x, 0.044715))), f32(x, 0.7978845608028654));
    struct op *t = bin(x, OP_ADD, tanh_of(x, inner), f32(x, 1));
    become(x, OP_MUL, 2, bin(x, OP_MUL, v, f32(x, 0.5)), t, NULL);
}

// e^(v - max) / sum; if everything is -inf or nothing is valid, max is taken as 0 so that no inf - inf arises
static void softmax(struct ex *x, struct op *v, struct axis *a)
{
    struct op *m = reduce(x, OP_REDUCE_MAX, v, a);
    m = select3(x, bin(x, OP_GT, m, f32(x, -INFINITY)), m, f32(x, 0));
    struct op *e = exp_of(x, bin(x, OP_SUB, v, m));
    become(x, OP_DIV, 2, e, reduce(x, OP_REDUCE_SUM, e, a), NULL);
}

static struct op *inside(struct ex *x, struct axis *a)
{
    return bin(x, OP_LT, index_of(x, a), a->hi);
}

// Positions that count as keys, all others INT_MIN. AX_MAP axes have no scalar bound: reductions mask them anyway.
static struct op *keys(struct ex *x, struct op *v, struct axis *a)
{
    struct op *key = v->type.elem == EL_I32 ? bin(x, OP_MAX, v, i32(x, INT32_MIN + 1)) : un(x, OP_ORDER, as_f32(x, v));
    return a->hi ? select3(x, inside(x, a), key, i32(x, INT32_MIN)) : key;
}

// The lowest index of the largest key
static struct op *best(struct ex *x, struct op *key, struct axis *a, struct op **max)
{
    struct op *m = reduce(x, OP_REDUCE_MAX, key, a);
    struct op *at = select3(x, bin(x, OP_EQ, key, m), index_of(x, a), i32(x, INT32_MAX));
    *max = m;
    return reduce(x, OP_REDUCE_MIN, at, a);
}

static void argmax(struct ex *x, struct op *v, struct axis *a)
{
    struct op *m, *at = best(x, keys(x, v, a), a, &m);
    become(x, OP_SELECT, 3, bin(x, OP_GT, m, i32(x, INT32_MIN)), at, i32(x, -1));
}

static struct op *get(struct ex *x, struct var *v)
{
    struct op *o = op_new(x->c, x->k, OP_GET, x->at->loc);
    o->var = v;
    o->type = v->type;
    block_push(x->c, x->b, o);
    return o;
}

static void put(struct ex *x, enum opcode code, struct var *v, struct op *value)
{
    struct op *o = op_new(x->c, x->k, code, x->at->loc);
    o->var = v;
    o->args[0] = value;
    o->nargs = 1;
    block_push(x->c, x->b, o);
}

static struct var *variable(struct ex *x, const char *name, struct type t, struct op *first)
{
    struct var *v = var_new(x->c, x->k, arena_printf(x->c->arena, "%s_%d", name, x->k->vars.n), t, x->at->loc);
    put(x, OP_VAR, v, first);
    return v;
}

// for j in each(lo, hi of axis2): take the best key, note it at position j, strike it out
static void topk(struct ex *x, struct op *v, struct axis *result, struct axis *a)
{
    struct op *self = x->at;
    struct block *outer = x->b;
    struct type key_type = v->type;
    key_type.elem = EL_I32;
    struct var *key = variable(x, "key", key_type, keys(x, v, a));
    struct var *out = variable(x, "found", self->type, i32(x, -1));
    struct op *loop = op_new(x->c, x->k, OP_EACH, self->loc), *j = op_new(x->c, x->k, OP_ORIGIN, self->loc);
    loop->args[0] = result->lo;
    loop->args[1] = result->hi;
    loop->nargs = 2;
    loop->body = block_new(x->c, loop);
    block_push(x->c, outer, loop);
    x->b = loop->body;
    j->region = loop;
    j->type = (struct type){ .elem = EL_I32 };
    block_push(x->c, x->b, j);
    struct op *now = get(x, key), *m, *at = best(x, now, a, &m);
    struct op *found = select3(x, bin(x, OP_GT, m, i32(x, INT32_MIN)), at, i32(x, -1));
    put(x, OP_SET, out, select3(x, bin(x, OP_EQ, index_of(x, result), j), found, get(x, out)));
    put(x, OP_SET, key, select3(x, bin(x, OP_EQ, index_of(x, a), at), i32(x, INT32_MIN), now));
    x->b = outer;
    self->code = OP_GET;
    self->nargs = 0;
    self->axis = self->axis2 = NULL;
    self->var = out;
    self->type = out->type;
    block_push(x->c, outer, self);
}

// The element at the index: the only term of a sum. NaN and inf pass; -0 becomes +0.
static void take(struct ex *x, struct op *v, struct op *i, struct axis *a)
{
    struct op *self = x->at, *zero = v->type.elem == EL_I32 ? i32(x, 0) : op_const_f(x->c, x->k, x->b, v->type.elem, 0);
    struct op *one = select3(x, bin(x, OP_EQ, index_of(x, a), i), v, zero);
    if (one->type.elem != EL_I32)
        one = as_f32(x, one);
    if (self->type.elem == one->type.elem) {
        self->code = OP_REDUCE_SUM;
        self->args[0] = one;
        self->nargs = 1;
        op_infer(x->c, self);
        block_push(x->c, x->b, self);
    } else {
        become(x, OP_CAST, 1, reduce(x, OP_REDUCE_SUM, one, a), NULL, NULL);
    }
}

static void one(struct ex *x, struct op *op)
{
    struct op *v = op->args[0];
    x->at = op;
    x->changed = true;
    if (op_infos[op->code].rule == TR_FLOAT)
        v = as_f32(x, v);
    switch ((int)op->code) {
    case OP_EXP: become(x, OP_EXP2, 1, bin(x, OP_MUL, v, f32(x, 1.4426950408889634)), NULL, NULL); break;
    case OP_LOG: become(x, OP_MUL, 2, un(x, OP_LOG2, v), f32(x, 0.6931471805599453), NULL); break;
    case OP_SIGMOID: become(x, OP_RCP, 1, one_plus_exp(x, v, 1), NULL, NULL); break;
    case OP_SILU: become(x, OP_MUL, 2, v, un(x, OP_RCP, one_plus_exp(x, v, 1)), NULL); break;
    case OP_TANH:
        become(x, OP_SUB, 2, bin(x, OP_MUL, un(x, OP_RCP, one_plus_exp(x, v, 2)), f32(x, 2)), f32(x, 1), NULL);
        break;
    case OP_GELU: gelu(x, v); break;
    case OP_SOFTMAX: softmax(x, v, op->axis); break;
    case OP_ARGMAX: argmax(x, v, op->axis); break;
    case OP_TOPK: topk(x, v, op->axis2, op->axis); break;
    case OP_TAKE: take(x, v, op->args[1], op->axis); break;
    }
}

static void block(struct ex *x, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        struct op *op = old[i];
        if (op->body)
            block(x, op->body);
        if (op->other)
            block(x, op->other);
        x->b = b;
        if (op_infos[op->code].flags & F_COMPOSITE)
            one(x, op);
        else
            block_push(x->c, b, op);
    }
}

bool expand(struct ctx *c, struct kernel *k)
{
    struct ex x = { .c = c, .k = k };
    block(&x, k->body);
    return x.changed;
}
