// Part of the pass `layout`: the operands of dots get their place in shared memory.
//
// A loop whose dots read tiles straight from global memory becomes a ring of copies (ring.c). Every other dot is
// staged where it stands: its operands are values in registers, the block writes them to shared memory, and the
// matrix units read them from there. A dot that the matrix units cannot run becomes products and a sum.
#include "layout.h"

#include <string.h>

struct axis *lay_contracted(const struct op *dot)
{
    const struct type *a = &dot->args[1]->type, *b = &dot->args[2]->type;
    for (int i = 0; i < a->rank; i++)
        if (type_has_axis(b, a->axes[i]))
            return a->axes[i];
    return NULL;
}

struct op *lay_int(struct lay *l, struct block *b, int64_t v)
{
    return op_const_i(l->c, l->k, b, EL_I32, v);
}

struct op *lay_bin(struct lay *l, struct block *b, enum opcode code, struct op *x, struct op *y)
{
    if (y->code == OP_CONST) {
        int64_t v = y->ival;
        if (x->code == OP_CONST) {
            int64_t u = x->ival;
            switch ((int)code) {
            case OP_ADD: return lay_int(l, b, u + v);
            case OP_SUB: return lay_int(l, b, u - v);
            case OP_MUL: return lay_int(l, b, u * v);
            case OP_DIV: return lay_int(l, b, v ? u / v : 0);
            case OP_REM: return lay_int(l, b, v ? u % v : 0);
            }
        }
        if ((v == 0 && (code == OP_ADD || code == OP_SUB)) || (v == 1 && (code == OP_MUL || code == OP_DIV)))
            return x;
        if (code == OP_REM && log2_exact(v) >= 0) // operands here are never negative
            return v == 1 ? lay_int(l, b, 0) : op_binary(l->c, l->k, b, OP_AND, x, lay_int(l, b, v - 1));
    }
    return op_binary(l->c, l->k, b, code, x, y);
}

struct buf *lay_shared(struct lay *l, struct block *b, const char *name, enum elem e, int stages, int rows, int cols,
                       struct loc loc)
{
    char *unique = arena_printf(l->c->arena, "%s_%d", name, l->k->bufs.n);
    struct buf *s = buf_new(l->c, l->k, unique, BUF_SHARED, e, loc);
    int row_bytes = cols * elem_bytes[e], chunks = row_bytes / 16;
    s->stages = stages;
    s->rows = rows;
    s->cols = cols;
    s->swizzle = chunks >= 8 ? 3 : chunks >= 4 ? 2 : chunks >= 2 ? 1 : 0;
    s->offset = l->shared;
    l->shared += ((int64_t)stages * rows * row_bytes + 1023) / 1024 * 1024;
    struct op *decl = op_new(l->c, l->k, OP_SHARED, loc);
    decl->buf = s;
    block_push(l->c, b, decl);
    return s;
}

struct op *lay_mma(struct lay *l, struct op *dot, struct buf *a, struct op *slot_a, struct buf *b, struct op *slot_b)
{
    struct op *m = op_new(l->c, l->k, OP_MMA, dot->loc);
    (void)l;
    m->args[0] = dot->args[0];
    m->args[1] = slot_a;
    m->args[2] = slot_b;
    m->nargs = 3;
    m->buf = a;
    m->buf2 = b;
    m->type = dot->type;
    m->name = dot->name;
    return m;
}

static void push_plain(struct lay *l, struct block *b, enum opcode code)
{
    block_push(l->c, b, op_new(l->c, l->k, code, (struct loc){ 0 }));
}

static struct op *index_of(struct lay *l, struct block *b, struct axis *a)
{
    struct op *i = op_new(l->c, l->k, OP_INDEX, a->loc);
    i->axis = a;
    i->type = (struct type){ .elem = EL_I32, .rank = 1, .axes = { a } };
    block_push(l->c, b, i);
    return i;
}

// Can the value be computed again in another distribution, here? Loads and arithmetic on them.
static bool repeatable(const struct op *op)
{
    unsigned f = op_infos[op->code].flags;
    if (!op->type.rank)
        return true; // scalars are the same in every distribution
    if (op->code != OP_LOAD && (!(f & F_PURE) || (f & F_SYNC) || op->code == OP_DOT))
        return false;
    for (int i = 0; i < op->nargs; i++)
        if (!repeatable(op->args[i]))
            return false;
    return true;
}

struct op *lay_repeat(struct lay *l, struct block *b, struct op *op, int dist)
{
    if (!op->type.rank)
        return op;
    struct op *n = op_new(l->c, l->k, op->code, op->loc);
    int id = n->id;
    *n = *op;
    n->id = id;
    n->dist = dist;
    n->name = NULL;
    for (int i = 0; i < n->nargs; i++)
        n->args[i] = lay_repeat(l, b, op->args[i], dist);
    block_push(l->c, b, n);
    return n;
}

// v with its axes as rows x k, and with zeros past the end of k unless it is a load, which has them.
static struct op *rows_by_k(struct lay *l, struct block *b, struct op *v, struct axis *row, struct axis *k)
{
    bool mask = !k->exact && v->code != OP_LOAD;
    struct op *in, *sel;
    if (v->type.axes[1] == k && !mask)
        return v;
    if (mask) {
        struct op *index = index_of(l, b, k);
        index->dist = v->dist;
        in = op_binary(l->c, l->k, b, OP_LT, index, k->hi);
        in->dist = v->dist;
    } else {
        in = op_const_i(l->c, l->k, b, EL_BOOL, 1);
    }
    sel = op_new(l->c, l->k, OP_SELECT, v->loc); // whose written type may have its axes in any order
    sel->args[0] = in;
    sel->args[1] = v;
    sel->args[2] = op_const_f(l->c, l->k, b, v->type.elem, 0);
    sel->nargs = 3;
    sel->dist = v->dist;
    sel->type = (struct type){ .elem = v->type.elem, .rank = 2, .axes = { row, k } };
    block_push(l->c, b, sel);
    return sel;
}

// The operand, written to a buffer of its own. What comes from memory is loaded in a distribution made for it.
static struct buf *stage_operand(struct lay *l, struct block *b, struct op *v, struct axis *k)
{
    struct axis *row = v->type.axes[0] == k ? v->type.axes[1] : v->type.axes[0];
    struct buf *s = lay_shared(l, b, "stage", v->type.elem, 1, row->size, k->size, v->loc);
    if (v->code == OP_LOAD && repeatable(v))
        v = lay_repeat(l, b, v, lay_copy_dist(l, v->type.axes[0], v->type.axes[1], l->warp_bits));
    v = rows_by_k(l, b, v, row, k);
    struct op *put = op_new(l->c, l->k, OP_PUT, v->loc);
    put->buf2 = s;
    put->args[0] = lay_int(l, b, 0);
    put->args[1] = v;
    put->nargs = 2;
    put->dist = v->dist;
    block_push(l->c, b, put);
    return s;
}

void lay_staged_dot(struct lay *l, struct block *b, struct op *dot)
{
    struct axis *k = lay_contracted(dot);
    push_plain(l, b, OP_BARRIER); // earlier reads of the buffers are done
    struct buf *sa = stage_operand(l, b, dot->args[1], k);
    struct buf *sb = dot->args[2] == dot->args[1] ? sa : stage_operand(l, b, dot->args[2], k);
    push_plain(l, b, OP_BARRIER);
    struct op *zero = lay_int(l, b, 0), *m = lay_mma(l, dot, sa, zero, sb, zero);
    *dot = *m; // every use of the dot now means the mma
    block_push(l->c, b, dot);
}

// acc + sum over the shared axis of f32(a) * f32(b), for shapes that no matrix instruction takes.
static void plain_dot(struct lay *l, struct block *b, struct op *dot)
{
    struct kernel *k = l->k;
    struct op *a = op_cast(l->c, k, b, EL_F32, dot->args[1]), *w = op_cast(l->c, k, b, EL_F32, dot->args[2]);
    struct op *sum = op_new(l->c, k, OP_REDUCE_SUM, dot->loc), *acc = dot->args[0];
    sum->args[0] = op_binary(l->c, k, b, OP_MUL, a, w);
    sum->nargs = 1;
    sum->axis = lay_contracted(dot);
    op_infer(l->c, sum);
    block_push(l->c, b, sum);
    struct type t = dot->type;
    int id = dot->id;
    const char *name = dot->name;
    struct op *add = op_new(l->c, k, OP_ADD, dot->loc);
    *dot = *add;
    dot->id = id;
    dot->name = name;
    dot->type = t;
    dot->args[0] = acc;
    dot->args[1] = sum;
    dot->nargs = 2;
    block_push(l->c, b, dot);
}

void lay_dots(struct lay *l, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    struct block *to = b;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        struct op *op = old[i];
        struct block *rest = op->code == OP_FOR ? lay_ring(l, to, op) : NULL;
        if (rest) {
            to = rest;
            continue;
        }
        if (op->body)
            lay_dots(l, op->body);
        if (op->other)
            lay_dots(l, op->other);
        if (op->code != OP_DOT)
            block_push(l->c, to, op);
        else if (sched_is_matrix(op) && l->k->sched.mma >= 0)
            lay_staged_dot(l, to, op);
        else
            plain_dot(l, to, op);
    }
}
