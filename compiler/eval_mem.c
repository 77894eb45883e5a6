// Part of eval: global and shared memory. Shared memory is kept in doubles. With late_copies an asynchronous copy lands when the
// machine says so, as late as the rules allow; until then its slot holds NaN.
#include "eval.h"

#include <math.h>
#include <string.h>

// ---- global memory -----------------------------------------------------------------------------------------------

static double read_elem(enum elem el, const void *p, int64_t i)
{
    uint32_t u;
    float f;
    switch (el) {
    case EL_F32: return (double)((const float *)p)[i];
    case EL_BF16:
        u = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &u, 4);
        return (double)f;
    case EL_F16: {
        uint16_t h = ((const uint16_t *)p)[i];
        int ex = h >> 10 & 31, m = h & 1023;
        double v = ex == 31 ? (m ? NAN : INFINITY) : ex ? ldexp(1024 + m, ex - 25) : ldexp(m, -24);
        return h >> 15 ? -v : v;
    }
    case EL_I32:
    case EL_NONE:
    case EL_BOOL:
    case EL_COUNT: break;
    }
    return (double)((const int32_t *)p)[i];
}

static uint16_t half_bits(double v) // v already rounded to an f16 value
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    int ex;
    if (isnan(v))
        return 0x7e00;
    if (isinf(v))
        return sign | 0x7c00;
    double a = fabs(v), m = frexp(a, &ex); // a = m 2^ex, m in [0.5, 1)
    if (a == 0)
        return sign;
    if (ex < -13)
        return (uint16_t)(sign | (uint16_t)ldexp(a, 24));
    return (uint16_t)(sign | (ex + 14) << 10 | ((int)ldexp(m, 11) & 1023));
}

static void write_elem(enum elem el, void *p, int64_t i, double v)
{
    float f;
    uint32_t u;
    v = elem_round(el, v);
    switch (el) {
    case EL_F32: ((float *)p)[i] = (float)v; return;
    case EL_BF16:
        f = (float)v;
        memcpy(&u, &f, 4);
        ((uint16_t *)p)[i] = isnan(v) ? 0x7fc0 : (uint16_t)(u >> 16);
        return;
    case EL_F16: ((uint16_t *)p)[i] = half_bits(v); return;
    case EL_I32:
    case EL_NONE:
    case EL_BOOL:
    case EL_COUNT: break;
    }
    ((int32_t *)p)[i] = (int32_t)v;
}

int64_t ev_dim(const struct ev *e, const struct shape_dim *d)
{
    if (!d->dim)
        return d->value;
    if (d->dim->bound >= 0)
        return d->dim->bound;
    for (int i = 0; i < e->k->dims.n; i++)
        if (e->k->dims.v[i] == d->dim)
            return e->dim[i];
    return 0;
}

const struct eval_arg *ev_arg(struct ev *e, const struct op *op, const struct buf *b)
{
    for (int i = 0; i < e->k->params.n; i++)
        if (e->k->params.v[i].buf == b)
            return &e->args[i];
    ev_fault(e, op, "'%s' is not a parameter", b->name);
}

// The positions of an access: type `space`, and for each the linear element or -1 (masked or outside).
struct access {
    struct type space;
    int64_t n;
    const int32_t *idx[RANK_MAX];
    const double *index[RANK_MAX];
    int64_t extent[RANK_MAX];
    int rank;
};

static void open_access(struct ev *e, const struct op *op, const struct buf *b, struct op *const *args,
                        struct access *x)
{
    memset(x, 0, sizeof *x);
    x->rank = b->rank;
    for (int i = 0; i < x->rank; i++)
        type_union(&x->space, &args[i]->type);
    x->n = ev_elems(e, &x->space);
    for (int i = 0; i < x->rank; i++) {
        x->idx[i] = ev_project(e, i, &x->space, &args[i]->type);
        x->index[i] = e->ops[args[i]->id].v;
        x->extent[i] = ev_dim(e, &b->shape[i]);
    }
    (void)op;
}

// A bulk copy knows the tensor's bounds only, not the axes'.
static int64_t place(struct ev *e, const struct op *op, const struct access *x, const struct eval_arg *a, int bytes,
                     int64_t k)
{
    int64_t at = 0, rest = k;
    for (int j = x->space.rank - 1; j >= 0 && !op->bulk; j--) {
        int64_t size = e->size[x->space.axes[j]->id];
        if (!ev_valid(e, x->space.axes[j], rest % size))
            return -1;
        rest /= size;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t v = (int64_t)x->index[i][x->idx[i][k]];
        if (v < 0 || v >= x->extent[i])
            return -1;
        at = at * x->extent[i] + v;
    }
    if ((at + 1) * bytes > a->nbytes)
        ev_fault(e, op, "element %lld is past the end of the memory given", (long long)at);
    return at;
}

void ev_load(struct ev *e, const struct op *op)
{
    struct access x;
    const struct eval_arg *a = ev_arg(e, op, op->buf);
    open_access(e, op, op->buf, op->args, &x);
    double *out = ev_room(e, &e->ops[op->id], ev_elems(e, &op->type));
    const int32_t *to = ev_project(e, 5, &x.space, &op->type);
    for (int64_t k = 0; k < x.n; k++) {
        int64_t at = place(e, op, &x, a, elem_bytes[op->buf->elem], k);
        out[to[k]] = at < 0 ? 0 : read_elem(op->buf->elem, a->data, at);
    }
}

void ev_store(struct ev *e, const struct op *op)
{
    struct access x;
    const struct eval_arg *a = ev_arg(e, op, op->buf);
    const struct op *value = op->args[op->nargs - 1];
    open_access(e, op, op->buf, op->args, &x);
    const int32_t *from = ev_project(e, 5, &x.space, &value->type);
    double *old = op->code == OP_ATOMIC_ADD ? ev_room(e, &e->ops[op->id], x.n) : NULL;
    for (int64_t k = 0; k < x.n; k++) {
        int64_t at = place(e, op, &x, a, elem_bytes[op->buf->elem], k);
        double v = e->ops[value->id].v[from[k]], was = 0;
        if (at >= 0 && old) {
            was = read_elem(op->buf->elem, a->data, at);
            v = op->buf->elem == EL_I32 ? (double)(int32_t)((uint32_t)(int64_t)was + (uint32_t)(int64_t)v) : was + v;
        }
        if (at >= 0)
            write_elem(op->buf->elem, a->data, at, v);
        if (old)
            old[k] = was;
    }
}

// ---- shared memory -----------------------------------------------------------------------------------------------

// The roles of a block share what the first of them declares.
void ev_declare(struct ev *e, const struct op *op)
{
    const struct buf *b = op->buf;
    int64_t n = (int64_t)b->stages * b->rows * b->cols;
    struct shared_data *s = &e->shared[b->id];
    if (s->block == e->m.block + 1 && e->m.n > 1)
        return;
    s->block = e->m.block + 1;
    if (!s->now) {
        s->now = NEWN(e->c->arena, double, n);
        s->coming = NEWN(e->c->arena, double, n);
    }
    for (int64_t i = 0; i < n; i++)
        s->now[i] = NAN; // what nobody wrote
}

static int64_t slot_start(struct ev *e, const struct op *op, const struct buf *b, const struct op *slot)
{
    if (e->shared[b->id].block != e->m.block + 1)
        ev_fault(e, op, "'%s' is used before it is declared", b->name);
    return (int64_t)ev_scalar(e, slot) * b->rows * b->cols;
}

void ev_copy(struct ev *e, const struct op *op)
{
    struct access x;
    const struct buf *to = op->buf2;
    const struct eval_arg *a = ev_arg(e, op, op->buf);
    int64_t start = slot_start(e, op, to, op->args[0]);
    open_access(e, op, op->buf, op->args + 1, &x);
    if (x.n != (int64_t)to->rows * to->cols)
        ev_fault(e, op, "a tile of %lld elements into slots of %d x %d", (long long)x.n, to->rows, to->cols);
    for (int64_t k = 0; k < x.n; k++) {
        int64_t at = place(e, op, &x, a, elem_bytes[op->buf->elem], k);
        double v = at < 0 ? 0 : read_elem(op->buf->elem, a->data, at);
        e->shared[to->id].now[start + k] = e->o.late_copies ? NAN : v;
        e->shared[to->id].coming[start + k] = v;
    }
}

void ev_land(struct ev *e, const struct buf *b, int slot)
{
    int64_t n = (int64_t)b->rows * b->cols;
    memcpy(e->shared[b->id].now + slot * n, e->shared[b->id].coming + slot * n, sizeof(double) * (size_t)n);
}

void ev_put(struct ev *e, const struct op *op)
{
    const struct buf *b = op->buf2;
    double *mem = e->shared[b->id].now + slot_start(e, op, b, op->args[0]);
    const struct cells *v = &e->ops[op->args[1]->id];
    int64_t n = ev_elems(e, &op->args[1]->type);
    if (n != (int64_t)b->rows * b->cols)
        ev_fault(e, op, "a tile of %lld elements into slots of %d x %d", (long long)n, b->rows, b->cols);
    for (int64_t i = 0; i < n; i++)
        mem[i] = elem_round(b->elem, v->v[i]);
}

void ev_mma(struct ev *e, const struct op *op)
{
    const struct buf *ba = op->buf, *bb = op->buf2;
    const double *a = e->shared[ba->id].now + slot_start(e, op, ba, op->args[1]);
    const double *b = e->shared[bb->id].now + slot_start(e, op, bb, op->args[2]);
    const double *acc = e->ops[op->args[0]->id].v;
    int64_t n = ev_elems(e, &op->type);
    if (ba->cols != bb->cols || n != (int64_t)ba->rows * bb->rows)
        ev_fault(e, op, "shapes do not fit");
    double *out = ev_room(e, &e->ops[op->id], n);
    const int32_t *ic = ev_project(e, 0, &op->type, &op->args[0]->type);
    for (int64_t i = 0; i < ba->rows; i++)
        for (int64_t j = 0; j < bb->rows; j++) {
            double sum = acc[ic[i * bb->rows + j]];
            for (int64_t k = 0; k < ba->cols; k++)
                sum += a[i * ba->cols + k] * b[j * ba->cols + k];
            out[i * bb->rows + j] = sum;
        }
}
