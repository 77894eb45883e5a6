// Laid-out kernels -> what the image says of them (runtime/image.h): signature, launch rule, tile sizes.
#include "describe.h"

#include <string.h>

static int dim_index(const struct kernel *k, const struct dim *d)
{
    for (int i = 0; i < k->dims.n; i++)
        if (k->dims.v[i] == d)
            return i;
    return -1;
}

static enum image_elem elem_of(enum elem e)
{
    return e == EL_F32 ? IMAGE_F32 : e == EL_BF16 ? IMAGE_BF16 : e == EL_F16 ? IMAGE_F16 : IMAGE_I32;
}

static void describe_param(const struct ctx *c, const struct kernel *k, const struct param *p, struct image_param *o)
{
    static const enum image_param_kind kinds[] = {
        [BUF_IN] = IMAGE_IN, [BUF_OUT] = IMAGE_OUT, [BUF_INOUT] = IMAGE_INOUT, [BUF_MAP] = IMAGE_MAP
    };
    if (!p->buf) {
        *o = (struct image_param){ .name = p->scalar, .kind = IMAGE_SCALAR, .elem = elem_of(p->elem), .align = 4 };
        return;
    }
    *o = (struct image_param){ .name = p->buf->name,
                               .kind = kinds[p->buf->kind],
                               .elem = elem_of(p->elem),
                               .align = 16,
                               .early = p->buf->early && c->arch->dependent,
                               .rank = p->buf->kind == BUF_MAP ? 2 : p->buf->rank };
    if (p->buf->kind == BUF_MAP)
        o->elem = IMAGE_I32;
    for (int i = 0; i < o->rank; i++) {
        const struct shape_dim *d = &p->buf->shape[i];
        o->shape[i] = p->buf->kind == BUF_MAP && i == 1
                          ? (struct image_extent){ -1, 4 }
                          : (struct image_extent){ d->dim ? dim_index(k, d->dim) : -1, d->value };
    }
}

static bool term(struct image_expr *e, enum image_term_code code, int64_t v)
{
    if (e->n == IMAGE_TERMS_MAX)
        return false;
    e->t[e->n++] = (struct image_term){ code, v };
    return true;
}

// A bound of the grid as a postfix program.
static bool expression(const struct kernel *k, const struct op *op, struct image_expr *e)
{
    static const struct {
        enum opcode op;
        enum image_term_code term;
    } binary[] = { { OP_ADD, IMAGE_T_ADD }, { OP_SUB, IMAGE_T_SUB }, { OP_MUL, IMAGE_T_MUL }, { OP_DIV, IMAGE_T_DIV },
                   { OP_MIN, IMAGE_T_MIN }, { OP_MAX, IMAGE_T_MAX }, { OP_REM, IMAGE_T_REM } };
    if (op->code == OP_CONST)
        return term(e, IMAGE_T_CONST, op->ival);
    if (op->code == OP_DIM)
        return term(e, IMAGE_T_DIM, dim_index(k, op->dim));
    if (op->code == OP_SCALAR)
        return term(e, IMAGE_T_PARAM, op->param);
    for (size_t i = 0; i < COUNTOF(binary); i++)
        if (op->code == binary[i].op)
            return expression(k, op->args[0], e) && expression(k, op->args[1], e) && term(e, binary[i].term, 0);
    return false;
}

static int param_of(const struct kernel *k, const struct buf *b)
{
    for (int i = 0; i < k->params.n; i++)
        if (k->params.v[i].buf == b)
            return i;
    return -1;
}

static bool describe_clause(const struct kernel *k, const struct clause *c, struct image_clause *o)
{
    static const enum image_clause_kind kinds[] = {
        [CL_TILE] = IMAGE_TILE, [CL_EACH] = IMAGE_EACH, [CL_MAP] = IMAGE_IN_MAP
    };
    *o = (struct image_clause){ .kind = kinds[c->kind],
                                .name = c->axis ? c->axis->name : c->name,
                                .map = -1,
                                .size = c->axis ? c->axis->size : 0 };
    if (c->kind == CL_MAP) {
        o->map = param_of(k, c->map);
        return true;
    }
    return expression(k, c->lo, &o->lo) && expression(k, c->hi, &o->hi);
}

static const struct op *grid_of(const struct kernel *k)
{
    for (int i = 0; i < k->body->ops.n; i++)
        if (k->body->ops.v[i]->code == OP_PARALLEL)
            return k->body->ops.v[i];
    return NULL;
}

static void describe_dims(struct ctx *c, const struct kernel *k, struct image_kernel *o)
{
    struct image_dim *d = NEWN(c->arena, struct image_dim, k->dims.n + 1);
    for (int i = 0; i < k->dims.n; i++) {
        const struct dim *s = k->dims.v[i];
        d[i] = (struct image_dim){ .name = s->name,
                                   .bound = s->bound,
                                   .multiple = s->bound >= 0 ? 1 : s->multiple,
                                   .max = s->max > INT32_MAX ? INT32_MAX : s->max };
    }
    o->dims = d;
    o->ndims = k->dims.n;
}

// A persistent kernel's grid needs a number, also of a schedule that the model has not seen.
static int resident_of(const struct sched *s)
{
    return s->resident || !s->persistent ? s->resident : s->min_blocks > 0 ? s->min_blocks : 1;
}

static void describe_boxes(struct ctx *c, const struct kernel *k, struct image_kernel *o)
{
    struct box boxes[BOXES_MAX];
    int n = kernel_boxes(k, boxes);
    struct image_box *b = NEWN(c->arena, struct image_box, n + 1);
    for (int i = 0; i < n; i++)
        b[i] = (struct image_box){ param_of(k, boxes[i].buf), boxes[i].buf->rank > 1 ? boxes[i].rows : 1, boxes[i].cols,
                                   boxes[i].swizzle };
    o->boxes = b;
    o->nboxes = n;
}

bool describe_kernel(struct ctx *c, const struct kernel *k, const char *symbol, struct image_kernel *o)
{
    const struct op *grid = grid_of(k);
    struct image_param *p = NEWN(c->arena, struct image_param, k->params.n + 1);
    struct image_clause *cl = NEWN(c->arena, struct image_clause, grid ? grid->nclauses + 1 : 1);
    struct image_axis *ax = NEWN(c->arena, struct image_axis, k->axes.n + 1);
    const struct sched *s = &k->sched;
    *o = (struct image_kernel){ .name = k->name,
                                .variant = s->variant,
                                .symbol = symbol,
                                .doc = k->doc ? k->doc : "",
                                .threads = (s->warps_m * s->warps_n + s->producers) * c->arch->lanes,
                                .shared = k->shared_bytes,
                                .warps_m = s->warps_m,
                                .warps_n = s->warps_n,
                                .stages = s->stages,
                                .group = s->group,
                                .cluster = s->cluster,
                                .fixed_ns = s->fixed_ns,
                                .step_ps = s->step_ps,
                                .persistent = s->persistent,
                                .resident = resident_of(s),
                                .flight = s->flight,
                                .nparams = k->params.n,
                                .params = p,
                                .clauses = cl,
                                .axes = ax };
    for (int i = 0; i < k->params.n; i++)
        describe_param(c, k, &k->params.v[i], &p[i]);
    for (int i = 0; grid && i < grid->nclauses; i++)
        if (!describe_clause(k, &grid->clauses[i], &cl[o->nclauses++]))
            return error(c, grid->loc, "the bounds of 'parallel' are too long to be computed by the host");
    for (int i = 0; i < k->axes.n; i++)
        ax[o->naxes++] = (struct image_axis){ k->axes.v[i]->name, k->axes.v[i]->size };
    describe_dims(c, k, o);
    describe_boxes(c, k, o);
    return true;
}

bool describe_image(struct ctx *c, const struct image_desc *d, const char **bytes, size_t *n)
{
    char why[IMAGE_ERR_MAX];
    *n = moe_image_size(d);
    char *out = arena_alloc(c->arena, *n + 1);
    if (!moe_image_write(d, out, *n, why))
        return error(c, (struct loc){ 0 }, "the image cannot be written: %s", why);
    *bytes = out;
    return true;
}
