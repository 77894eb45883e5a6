// Part of the pass `layout`: where a kernel with `early` parameters waits for the kernel launched before it.
//
// As late as what follows allows: before the first statement of the grid's block, or of each role, that touches anything which is not
// early; before the grid itself if a list of tiles is not early.
#include "layout.h"

static bool is_late(const struct buf *b)
{
    return b && b->kind != BUF_SHARED && !b->early;
}

static bool touches_early_only(void *user, struct op *op)
{
    (void)user;
    bool access = op->code == OP_LOAD || op->code == OP_STORE || op->code == OP_ATOMIC_ADD || op->code == OP_COPY;
    return !(access && is_late(op->buf));
}

static bool touches_late(struct op *op)
{
    return !touches_early_only(NULL, op) || (op->body && !walk(op->body, touches_early_only, NULL)) ||
           (op->other && !walk(op->other, touches_early_only, NULL));
}

static void wait_in(struct lay *l, struct block *b)
{
    for (int i = 0; i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (!touches_late(op))
            continue;
        if (op->code == OP_ROLE) {
            wait_in(l, op->body);
            continue;
        }
        block_insert(l->c, b, i, op_new(l->c, l->k, OP_DEPEND, op->loc));
        return;
    }
}

static bool lists_early(const struct op *parallel)
{
    bool early = true;
    for (int i = 0; i < parallel->nclauses; i++)
        early &= !is_late(parallel->clauses[i].map);
    return early;
}

void lay_depend(struct lay *l)
{
    struct block *b = l->k->body;
    bool any = false;
    if (!l->c->arch->dependent)
        return;
    for (int i = 0; i < l->k->bufs.n; i++)
        any |= l->k->bufs.v[i]->early;
    for (int i = 0; any && i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (op->code != OP_PARALLEL)
            continue;
        if (lists_early(op))
            wait_in(l, op->body);
        else
            block_insert(l->c, b, i, op_new(l->c, l->k, OP_DEPEND, op->loc));
        return;
    }
}
