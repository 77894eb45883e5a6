// Pass `leaves`, the last of the stage layout: every constant, dimension, scalar, index and origin is made in the block
// that uses it, right before its first use there.
//
// The language writes them where they are used, so a kernel that was printed and read back has them there. Without this
// pass it would be the same kernel in other machine code.
#include "ir.h"

#include <string.h>

struct leaves {
    struct ctx *c;
    struct kernel *k;
};

static bool is_leaf(const struct op *op)
{
    return op_infos[op->code].rule == TR_OWN && op->code != OP_GET;
}

static bool equal(const struct op *a, const struct op *b)
{
    return a->code == b->code && type_equal(&a->type, &b->type) && a->dist == b->dist && a->axis == b->axis &&
           a->region == b->region && a->clause == b->clause && a->dim == b->dim && a->param == b->param &&
           a->ival == b->ival && !memcmp(&a->fval, &b->fval, sizeof a->fval);
}

// The leaf, as the block has it.
static struct op *here(struct leaves *l, struct block *b, struct op *leaf)
{
    if (!leaf || !is_leaf(leaf))
        return leaf;
    for (int i = 0; i < b->ops.n; i++)
        if (equal(b->ops.v[i], leaf))
            return b->ops.v[i];
    struct op *n = op_new(l->c, l->k, leaf->code, leaf->loc);
    int id = n->id;
    *n = *leaf;
    n->id = id;
    block_push(l->c, b, n);
    return n;
}

static void operands(struct leaves *l, struct block *b, struct op *op)
{
    for (int i = 0; i < op->nargs; i++)
        op->args[i] = here(l, b, op->args[i]);
    for (int i = 0; i < op->nclauses; i++) {
        struct clause *c = &op->clauses[i];
        c->lo = here(l, b, c->lo);
        c->hi = here(l, b, c->hi);
        if (c->kind == CL_TILE) {
            c->axis->lo = c->lo;
            c->axis->hi = c->hi;
        }
    }
    if (op->code == OP_FOR || op->code == OP_AT || op->code == OP_RANGE) {
        op->axis->lo = op->args[0];
        op->axis->hi = op->args[1];
    }
}

static void one_block(struct leaves *l, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        struct op *op = old[i];
        if (is_leaf(op))
            continue;
        operands(l, b, op);
        block_push(l->c, b, op);
        if (op->body)
            one_block(l, op->body);
        if (op->other)
            one_block(l, op->other);
    }
}

bool leaves(struct ctx *c, struct kernel *k)
{
    struct leaves l = { c, k };
    one_block(&l, k->body);
    return true;
}
