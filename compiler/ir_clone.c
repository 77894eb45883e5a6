// kernel_clone: a deep copy of a kernel, so that each variant may be changed on its own.
//
// Every op, axis, buffer, variable, dimension and block is new; names, places and numbers (ids) are kept, so an id
// means the same in both. Texts are shared: nobody changes them.
#include "ir.h"

#include <string.h>

struct cloner {
    struct ctx *c;
    const struct kernel *from;
    struct kernel *to;
    struct op **ops; // by id
};

// An axis that a pass dropped from the list (nothing uses it any more) stays the original.
static struct axis *axis_of(const struct cloner *z, struct axis *a)
{
    bool listed = a && a->id < z->from->axes.n && z->from->axes.v[a->id] == a;
    return listed ? z->to->axes.v[a->id] : a;
}

static struct buf *buf_of(const struct cloner *z, const struct buf *b)
{
    return b ? z->to->bufs.v[b->id] : NULL;
}

static struct dim *dim_of(const struct cloner *z, const struct dim *d)
{
    for (int i = 0; d && i < z->from->dims.n; i++)
        if (z->from->dims.v[i] == d)
            return z->to->dims.v[i];
    return NULL;
}

static struct op *op_of(const struct cloner *z, const struct op *op)
{
    return op ? z->ops[op->id] : NULL;
}

static struct type type_of(const struct cloner *z, struct type t)
{
    for (int i = 0; i < t.rank; i++)
        t.axes[i] = axis_of(z, t.axes[i]);
    return t;
}

static void clone_tables(struct cloner *z)
{
    const struct kernel *f = z->from;
    struct kernel *t = z->to;
    for (int i = 0; i < f->dims.n; i++) {
        struct dim *d = NEW(z->c->arena, struct dim);
        *d = *f->dims.v[i];
        VEC_PUSH(z->c->arena, &t->dims, d);
    }
    for (int i = 0; i < f->axes.n; i++) {
        struct axis *a = NEW(z->c->arena, struct axis);
        *a = *f->axes.v[i];
        VEC_PUSH(z->c->arena, &t->axes, a);
    }
    for (int i = 0; i < f->bufs.n; i++) {
        struct buf *b = NEW(z->c->arena, struct buf);
        *b = *f->bufs.v[i];
        for (int j = 0; j < b->rank; j++)
            b->shape[j].dim = dim_of(z, b->shape[j].dim);
        VEC_PUSH(z->c->arena, &t->bufs, b);
    }
    for (int i = 0; i < f->vars.n; i++) {
        struct var *v = NEW(z->c->arena, struct var);
        *v = *f->vars.v[i];
        v->type = type_of(z, v->type);
        VEC_PUSH(z->c->arena, &t->vars, v);
    }
    for (int i = 0; i < f->params.n; i++) {
        struct param p = f->params.v[i];
        p.buf = buf_of(z, p.buf);
        VEC_PUSH(z->c->arena, &t->params, p);
    }
    for (int i = 0; i < f->requires.n; i++) {
        struct require r = f->requires.v[i];
        r.dim = dim_of(z, r.dim);
        VEC_PUSH(z->c->arena, &t->requires, r);
    }
    for (int i = 0; i < f->dists.n; i++) {
        struct dist d = { .name = f->dists.v[i].name };
        for (int j = 0; j < f->dists.v[i].homes.n; j++) {
            struct home h = f->dists.v[i].homes.v[j];
            h.axis = axis_of(z, h.axis);
            VEC_PUSH(z->c->arena, &d.homes, h);
        }
        VEC_PUSH(z->c->arena, &t->dists, d);
    }
}

// First all ops of the tree (an axis may be declared by an op that is copied later), then what they point to.
static struct block *clone_blocks(struct cloner *z, const struct block *b, struct op *parent)
{
    if (!b)
        return NULL;
    struct block *n = block_new(z->c, parent);
    for (int i = 0; i < b->ops.n; i++) {
        const struct op *op = b->ops.v[i];
        struct op *o = NEW(z->c->arena, struct op);
        *o = *op;
        z->ops[op->id] = o;
        o->body = clone_blocks(z, op->body, o);
        o->other = clone_blocks(z, op->other, o);
        block_push(z->c, n, o);
    }
    return n;
}

static bool relink(void *user, struct op *op)
{
    struct cloner *z = user;
    op->type = type_of(z, op->type);
    for (int i = 0; i < op->nargs; i++)
        op->args[i] = op_of(z, op->args[i]);
    op->axis = axis_of(z, op->axis);
    op->axis2 = axis_of(z, op->axis2);
    op->region = op_of(z, op->region);
    op->buf = buf_of(z, op->buf);
    op->buf2 = buf_of(z, op->buf2);
    op->var = op->var ? z->to->vars.v[op->var->id] : NULL;
    op->dim = dim_of(z, op->dim);
    const struct clause *old = op->clauses;
    op->clauses = op->nclauses ? NEWN(z->c->arena, struct clause, op->nclauses) : NULL;
    for (int i = 0; i < op->nclauses; i++) {
        op->clauses[i] = old[i];
        op->clauses[i].axis = axis_of(z, old[i].axis);
        op->clauses[i].lo = op_of(z, old[i].lo);
        op->clauses[i].hi = op_of(z, old[i].hi);
        op->clauses[i].map = buf_of(z, old[i].map);
    }
    return true;
}

struct kernel *kernel_clone(struct ctx *c, const struct kernel *k)
{
    struct cloner z = { .c = c, .from = k, .to = NEW(c->arena, struct kernel) };
    struct kernel *t = z.to;
    *t = *k;
    t->next = NULL;
    memset(&t->params, 0, sizeof t->params);
    memset(&t->dims, 0, sizeof t->dims);
    memset(&t->bufs, 0, sizeof t->bufs);
    memset(&t->axes, 0, sizeof t->axes);
    memset(&t->vars, 0, sizeof t->vars);
    memset(&t->dists, 0, sizeof t->dists);
    memset(&t->requires, 0, sizeof t->requires);
    z.ops = NEWN(c->arena, struct op *, k->nops + 1);
    clone_tables(&z);
    t->body = clone_blocks(&z, k->body, NULL);
    walk(t->body, relink, &z);
    for (int i = 0; i < t->axes.n; i++) {
        struct axis *a = t->axes.v[i];
        a->def = op_of(&z, a->def);
        a->lo = op_of(&z, a->lo);
        a->hi = op_of(&z, a->hi);
    }
    return t;
}
