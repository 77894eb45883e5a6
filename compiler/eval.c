// eval: runs tile IR of any stage on the host, in double precision: the meaning of every operation, and the oracle for
// passes and devices. In: a kernel and host memory for its arguments. Out: the output buffers, as a device would leave them
// but for rounding inside expressions. Blocks of the grid run one after another.
//
// Shared memory is kept in doubles. An asynchronous copy lands when its group is waited for (late_copies); until then
// its slot holds NaN, and reading it is a fault that names the operation.
#include "eval.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void run_block(struct ev *e, const struct block *b);

_Noreturn void ev_fault(struct ev *e, const struct op *op, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->why = arena_printf(e->c->arena, "line %d: %s: %s", op ? op->loc.line : 0, op ? op_infos[op->code].name : "eval",
                          text);
    longjmp(e->fault, 1);
}

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

static int64_t dim_of(const struct ev *e, const struct shape_dim *d)
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

static const struct eval_arg *arg_of(struct ev *e, const struct op *op, const struct buf *b)
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
        x->extent[i] = dim_of(e, &b->shape[i]);
    }
    (void)op;
}

static int64_t place(struct ev *e, const struct op *op, const struct access *x, const struct eval_arg *a, int bytes,
                     int64_t k)
{
    int64_t at = 0, rest = k;
    for (int j = x->space.rank - 1; j >= 0; j--) {
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

static void load(struct ev *e, const struct op *op)
{
    struct access x;
    const struct eval_arg *a = arg_of(e, op, op->buf);
    open_access(e, op, op->buf, op->args, &x);
    double *out = ev_room(e, &e->ops[op->id], ev_elems(e, &op->type));
    const int32_t *to = ev_project(e, 5, &x.space, &op->type);
    for (int64_t k = 0; k < x.n; k++) {
        int64_t at = place(e, op, &x, a, elem_bytes[op->buf->elem], k);
        out[to[k]] = at < 0 ? 0 : read_elem(op->buf->elem, a->data, at);
    }
}

static void store(struct ev *e, const struct op *op)
{
    struct access x;
    const struct eval_arg *a = arg_of(e, op, op->buf);
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

static void declare_shared(struct ev *e, const struct op *op)
{
    const struct buf *b = op->buf;
    int64_t n = (int64_t)b->stages * b->rows * b->cols;
    if (!e->shared[b->id]) {
        e->shared[b->id] = NEWN(e->c->arena, double, n);
        e->pending[b->id] = NEWN(e->c->arena, int, b->stages);
    }
    for (int64_t i = 0; i < n; i++)
        e->shared[b->id][i] = NAN; // what nobody wrote
}

static int slot_of(struct ev *e, const struct op *op, const struct buf *b, const struct op *slot)
{
    double s = ev_scalar(e, slot);
    if (!(s >= 0 && s < b->stages))
        ev_fault(e, op, "slot %g of '%s', which has %d", s, b->name, b->stages);
    if (!e->shared[b->id])
        ev_fault(e, op, "'%s' is used before it is declared", b->name);
    return (int)s;
}

static double *slot_mem(struct ev *e, const struct buf *b, int slot)
{
    return e->shared[b->id] + (int64_t)slot * b->rows * b->cols;
}

static void start_copy(struct ev *e, const struct op *op)
{
    struct access x;
    const struct buf *to = op->buf2;
    const struct eval_arg *a = arg_of(e, op, op->buf);
    int slot = slot_of(e, op, to, op->args[0]);
    open_access(e, op, op->buf, op->args + 1, &x);
    if (x.n != (int64_t)to->rows * to->cols)
        ev_fault(e, op, "a tile of %lld elements into slots of %d x %d", (long long)x.n, to->rows, to->cols);
    double *mem = slot_mem(e, to, slot);
    for (int64_t k = 0; k < x.n; k++) {
        int64_t at = place(e, op, &x, a, elem_bytes[op->buf->elem], k);
        struct copy c = { mem + k, at < 0 ? 0 : read_elem(op->buf->elem, a->data, at) };
        mem[k] = e->o.late_copies ? NAN : c.v;
        if (e->o.late_copies)
            VEC_PUSH(e->c->arena, &e->open.copies, c);
    }
    e->pending[to->id][slot]++;
    VEC_PUSH(e->c->arena, &e->touched, &e->pending[to->id][slot]);
    e->open_touch++;
}

static void commit(struct ev *e)
{
    VEC_PUSH(e->c->arena, &e->groups, e->open);
    VEC_PUSH(e->c->arena, &e->group_touch, e->open_touch);
    e->open_touch = 0;
    if (e->spare.copies.v) { // reuse what a finished group left
        e->open = e->spare;
        e->open.copies.n = 0;
        memset(&e->spare, 0, sizeof e->spare);
    } else {
        memset(&e->open, 0, sizeof e->open);
    }
}

static void finish_oldest(struct ev *e)
{
    struct group g = e->groups.v[0];
    int n = e->group_touch.v[0];
    for (int i = 0; i < g.copies.n; i++)
        *g.copies.v[i].to = g.copies.v[i].v;
    for (int i = 0; i < n; i++)
        --*e->touched.v[i];
    memmove(e->touched.v, e->touched.v + n, sizeof *e->touched.v * (size_t)(e->touched.n - n));
    e->touched.n -= n;
    memmove(e->groups.v, e->groups.v + 1, sizeof *e->groups.v * (size_t)--e->groups.n);
    memmove(e->group_touch.v, e->group_touch.v + 1, sizeof *e->group_touch.v * (size_t)--e->group_touch.n);
    e->spare = g;
}

static void put(struct ev *e, const struct op *op)
{
    const struct buf *b = op->buf2;
    double *mem = slot_mem(e, b, slot_of(e, op, b, op->args[0]));
    const struct cells *v = &e->ops[op->args[1]->id];
    int64_t n = ev_elems(e, &op->args[1]->type);
    if (n != (int64_t)b->rows * b->cols)
        ev_fault(e, op, "a tile of %lld elements into slots of %d x %d", (long long)n, b->rows, b->cols);
    for (int64_t i = 0; i < n; i++)
        mem[i] = elem_round(b->elem, v->v[i]);
}

static const double *operand(struct ev *e, const struct op *op, const struct buf *b, const struct op *slot)
{
    int s = slot_of(e, op, b, slot);
    if (e->pending[b->id][s])
        ev_fault(e, op, "slot %d of '%s' is read before its copy was waited for", s, b->name);
    return slot_mem(e, b, s);
}

static void mma(struct ev *e, const struct op *op)
{
    const struct buf *ba = op->buf, *bb = op->buf2;
    const double *a = operand(e, op, ba, op->args[1]), *b = operand(e, op, bb, op->args[2]);
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

// ---- variables, control ------------------------------------------------------------------------------------------

static void set_var(struct ev *e, const struct op *op)
{
    const struct var *v = op->var;
    int64_t n = ev_elems(e, &v->type);
    const struct op *x = op->args[0];
    double *out = ev_room(e, &e->vars[v->id], n);
    const int32_t *from = ev_project(e, 0, &v->type, &x->type);
    for (int64_t i = 0; i < n; i++)
        out[i] = v->type.elem == EL_F32 ? e->ops[x->id].v[from[i]] : elem_round(v->type.elem, e->ops[x->id].v[from[i]]);
}

static void get_var(struct ev *e, const struct op *op)
{
    const struct cells *v = &e->vars[op->var->id];
    memcpy(ev_room(e, &e->ops[op->id], v->n), v->v, sizeof(double) * (size_t)v->n);
}

static void set_axis(struct ev *e, const struct axis *a, int64_t origin, int64_t hi)
{
    e->origin[a->id] = origin;
    e->hi[a->id] = hi;
    e->size[a->id] = a->size ? a->size : e->o.default_tile;
    if (!a->size && a->kind == AX_RANGE)
        for (e->size[a->id] = 1; e->size[a->id] < hi - origin;)
            e->size[a->id] *= 2;
}

static void loop(struct ev *e, const struct op *op)
{
    int64_t lo = (int64_t)ev_scalar(e, op->args[0]), hi = (int64_t)ev_scalar(e, op->args[1]), step = 1;
    if (op->code == OP_FOR) {
        set_axis(e, op->axis, lo, hi);
        step = e->size[op->axis->id];
    }
    for (int64_t i = lo; i < hi; i += step) {
        if (op->code == OP_FOR)
            set_axis(e, op->axis, i, hi);
        else
            e->counter[op->id * CLAUSES_MAX] = i;
        run_block(e, op->body);
    }
}

static int64_t clause_extent(struct ev *e, const struct clause *c)
{
    if (c->kind == CL_MAP)
        return dim_of(e, &c->map->shape[0]);
    int64_t len = (int64_t)ev_scalar(e, c->hi) - (int64_t)ev_scalar(e, c->lo);
    if (c->kind == CL_EACH)
        return len;
    set_axis(e, c->axis, 0, 0);
    return (len + e->size[c->axis->id] - 1) / e->size[c->axis->id];
}

// false: the tile map entry is empty
static bool enter(struct ev *e, const struct op *op, int i, int64_t at)
{
    const struct clause *c = &op->clauses[i];
    if (c->kind == CL_EACH) {
        e->counter[op->id * CLAUSES_MAX + i] = (int64_t)ev_scalar(e, c->lo) + at;
    } else if (c->kind == CL_TILE) {
        set_axis(e, c->axis, 0, 0);
        set_axis(e, c->axis, (int64_t)ev_scalar(e, c->lo) + at * e->size[c->axis->id], (int64_t)ev_scalar(e, c->hi));
    } else {
        const struct eval_arg *a = arg_of(e, op, c->map);
        const int32_t *entry = (const int32_t *)a->data + at * 4;
        if ((at + 1) * 16 > a->nbytes)
            ev_fault(e, op, "entry %lld is past the end of the tile map", (long long)at);
        set_axis(e, c->axis, entry[1], entry[1] + entry[2]);
        if (entry[2] > e->size[c->axis->id] && c->axis->size)
            ev_fault(e, op, "entry %lld has %d rows, more than the tile's %d", (long long)at, entry[2], c->axis->size);
        if (entry[2] > e->size[c->axis->id]) // no size chosen yet: as large as the list says
            for (e->size[c->axis->id] = 1; e->size[c->axis->id] < entry[2];)
                e->size[c->axis->id] *= 2;
        e->counter[op->id * CLAUSES_MAX + i] = entry[0];
        return entry[2] > 0;
    }
    return true;
}

static void new_block(struct ev *e)
{
    while (e->groups.n)
        finish_oldest(e);
    if (e->open_touch)
        e->touched.n -= e->open_touch;
    e->open_touch = 0;
    e->open.copies.n = 0;
}

static void grid(struct ev *e, const struct op *op)
{
    int64_t n[CLAUSES_MAX], total = 1;
    for (int i = 0; i < op->nclauses; i++) {
        n[i] = clause_extent(e, &op->clauses[i]);
        total *= n[i] > 0 ? n[i] : 0;
    }
    if (e->o.max_blocks && total > e->o.max_blocks)
        total = e->o.max_blocks;
    for (int64_t b = 0; b < total; b++) {
        int64_t rest = b;
        bool live = true;
        for (int i = 0; i < op->nclauses; i++) {
            live = enter(e, op, i, rest % n[i]) && live;
            rest /= n[i];
        }
        if (live)
            run_block(e, op->body);
        new_block(e);
    }
}

static void run_op(struct ev *e, const struct op *op)
{
    switch ((int)op->code) {
    case OP_LOAD: load(e, op); return;
    case OP_STORE:
    case OP_ATOMIC_ADD: store(e, op); return;
    case OP_GET: get_var(e, op); return;
    case OP_VAR:
    case OP_SET: set_var(e, op); return;
    case OP_PARALLEL: grid(e, op); return;
    case OP_FOR:
    case OP_EACH: loop(e, op); return;
    case OP_IF:
        if (ev_scalar(e, op->args[0]) != 0)
            run_block(e, op->body);
        else if (op->other)
            run_block(e, op->other);
        return;
    case OP_RANGE:
        set_axis(e, op->axis, (int64_t)ev_scalar(e, op->args[0]), (int64_t)ev_scalar(e, op->args[1]));
        return;
    case OP_AT:
        set_axis(e, op->axis, (int64_t)ev_scalar(e, op->args[0]), (int64_t)ev_scalar(e, op->args[1]));
        run_block(e, op->body);
        return;
    case OP_SHARED: declare_shared(e, op); return;
    case OP_COPY: start_copy(e, op); return;
    case OP_COMMIT: commit(e); return;
    case OP_WAIT:
        while (e->groups.n > op->ival)
            finish_oldest(e);
        return;
    case OP_BARRIER: return;
    case OP_PUT: put(e, op); return;
    case OP_MMA: mma(e, op); return;
    case OP_ROLE:
    case OP_ARRIVE:
    case OP_AWAIT: ev_fault(e, op, "warp roles are not run by eval yet");
    }
    ev_value(e, op);
}

static void run_block(struct ev *e, const struct block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        run_op(e, b->ops.v[i]);
}

bool eval(struct ctx *c, const struct kernel *k, const struct eval_arg *args, const int64_t *dims,
          const struct eval_opts *o, const char **why)
{
    struct ev *e = NEW(c->arena, struct ev);
    e->c = c;
    e->k = k;
    e->args = args;
    e->o = *o;
    if (!e->o.default_tile)
        e->o.default_tile = 16;
    e->ops = NEWN(c->arena, struct cells, k->nops + 1);
    e->vars = NEWN(c->arena, struct cells, k->vars.n + 1);
    e->origin = NEWN(c->arena, int64_t, k->axes.n + 1);
    e->hi = NEWN(c->arena, int64_t, k->axes.n + 1);
    e->size = NEWN(c->arena, int64_t, k->axes.n + 1);
    e->counter = NEWN(c->arena, int64_t, (k->nops + 1) * CLAUSES_MAX);
    e->dim = NEWN(c->arena, int64_t, k->dims.n + 1);
    e->shared = NEWN(c->arena, double *, k->bufs.n + 1);
    e->pending = NEWN(c->arena, int *, k->bufs.n + 1);
    for (int i = 0; i < k->dims.n; i++)
        e->dim[i] = k->dims.v[i]->bound >= 0 ? k->dims.v[i]->bound : *dims++;
    if (setjmp(e->fault)) {
        *why = e->why;
        return false;
    }
    run_block(e, k->body);
    return true;
}
