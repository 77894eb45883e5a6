// Part of emit: global memory (load, store, atomic_add, copy) and shared memory (put, and offsets for everyone).
//
// The offset of an access splits into a part that is uniform over the block (64 bits: scalar indices, origins of axes)
// and a part of this thread (positions inside the tile, gathered indices), in 32 bits where it provably fits.
#include "emit.h"

#include <string.h>

struct index {               // one index of an access
    const struct axis *axis; // its axis part, or NULL
    val scalar;              // its uniform part, without the axis's origin
    int64_t scalar_multiple;
    const struct op *gather; // its other part, or NULL
    bool check;              // may lie outside the buffer
};
struct access {
    const struct op *op;
    const struct buf *buf;
    int dist, rank, first; // args[first]: the first index
    struct type space;     // the positions of the access: union of the indices' axes
    struct index index[RANK_MAX];
    val stride[RANK_MAX]; // i64, bytes
    val extent[RANK_MAX]; // i32
    int64_t stride_multiple[RANK_MAX];
    val uniform;
    bool wide; // the thread's part needs 64 bits
    int bytes; // of an element
    int run;   // elements of one access, contiguous
    val replica;
};

static val dim_value(struct em *m, const struct shape_dim *d)
{
    if (!d->dim)
        return mb_i32(m->mb, d->value);
    if (d->dim->bound >= 0)
        return mb_i32(m->mb, d->dim->bound);
    for (int i = 0; i < m->k->dims.n; i++)
        if (m->k->dims.v[i] == d->dim)
            return m->dim[i];
    return mb_i32(m->mb, 0);
}

static int64_t dim_max(const struct shape_dim *d)
{
    return !d->dim ? d->value : d->dim->bound >= 0 ? d->dim->bound : d->dim->max;
}

static int64_t low_bit(int64_t v)
{
    return v ? v & -v : 1 << 20;
}

static int64_t dim_multiple(const struct shape_dim *d)
{
    return low_bit(!d->dim ? d->value : d->dim->bound >= 0 ? d->dim->bound : d->dim->multiple);
}

static bool same_dim(const struct op *hi, const struct shape_dim *d)
{
    if (!hi)
        return false;
    if (hi->code == OP_DIM)
        return hi->dim == d->dim;
    return hi->code == OP_CONST && hi->ival <= (d->dim ? d->dim->bound : d->value) && hi->ival >= 0;
}

static bool not_negative(const struct op *lo)
{
    return lo && lo->code == OP_CONST && lo->ival >= 0;
}

// Is the whole index known to lie inside the dimension, given the masks of its axes?
static bool inside(const struct op *i, const struct shape_dim *d)
{
    if (i->code == OP_CONST)
        return i->ival >= 0 && i->ival < (d->dim ? d->dim->bound : d->value);
    if (i->code == OP_INDEX)
        return not_negative(i->axis->lo) && same_dim(i->axis->hi, d);
    if (i->code != OP_ORIGIN || !i->region)
        return false;
    if (i->region->code == OP_EACH)
        return not_negative(i->region->args[0]) && same_dim(i->region->args[1], d);
    const struct clause *c = &i->region->clauses[i->clause];
    return c->kind == CL_EACH && not_negative(c->lo) && same_dim(c->hi, d);
}

// index = scalar + axis + gather, as far as sums go
static void split_index(struct em *m, const struct op *i, struct index *x)
{
    if (!i->type.rank) {
        int64_t mult = multiple_of(m->k, i);
        x->scalar = val_null(x->scalar) ? em_scalar(m, i) : mb_bin(m->mb, "add", x->scalar, em_scalar(m, i));
        x->scalar_multiple = mult < x->scalar_multiple ? mult : x->scalar_multiple;
    } else if (i->code == OP_INDEX && !x->axis) {
        x->axis = i->axis;
    } else if (i->code == OP_ADD && (!i->args[0]->type.rank || !i->args[1]->type.rank)) {
        split_index(m, i->args[0], x);
        split_index(m, i->args[1], x);
    } else {
        x->gather = i;
    }
}

static int64_t axis_multiple(const struct em *m, const struct axis *a)
{
    int64_t lo = a->lo ? multiple_of(m->k, a->lo) : 1;
    if (a->kind == AX_TILE && a->def && a->def->code != OP_AT && lo > a->size)
        lo = a->size; // origins step by the size
    return lo;
}

// How many bits the thread's part of the offset needs, in bytes at most.
static double lane_bound(const struct em *m, const struct access *x)
{
    double bound = 0, stride = x->bytes;
    (void)m;
    for (int i = x->rank - 1; i >= 0; i--) {
        const struct index *n = &x->index[i];
        if (n->axis)
            bound += (double)n->axis->size * stride;
        if (n->gather)
            bound += (double)dim_max(&x->buf->shape[i]) * stride;
        stride *= (double)dim_max(&x->buf->shape[i]);
    }
    return bound;
}

// Elements of one access: along the last index, if its axis is contiguous in this thread's registers and everything
// that is added to it, and every bound, is a multiple of the run.
static int run_length(const struct em *m, const struct access *x)
{
    const struct index *last = &x->index[x->rank - 1];
    const struct home *h = last->axis ? dist_home(m->k, x->dist, last->axis) : NULL;
    int n = 1, bits = 0;
    if (!h || last->gather || x->space.axes[x->space.rank - 1] != last->axis)
        return 1;
    for (int i = 0; i < x->rank - 1; i++) // x[k, k]: the elements of a run would lie in different rows
        if (type_has_axis(&x->op->args[x->first + i]->type, last->axis))
            return 1;
    while (bits < h->nbits && h->bits[bits].home == BIT_REG && h->bits[bits].pos == bits)
        bits++;
    for (n = 1 << bits; n * x->bytes > 16; n /= 2)
        ;
    int64_t mult = axis_multiple(m, last->axis);
    mult = last->scalar_multiple < mult ? last->scalar_multiple : mult;
    if (!last->axis->exact && last->axis->hi) {
        int64_t hi = multiple_of(m->k, last->axis->hi);
        mult = hi < mult ? hi : mult;
    }
    int64_t d = dim_multiple(&x->buf->shape[x->rank - 1]);
    if (x->rank > 1 || last->check)
        mult = d < mult ? d : mult;
    while (n > mult)
        n /= 2;
    return n;
}

static val to64(struct em *m, val v)
{
    return mb_un(m->mb, "sext", v, m->ty->i64);
}

static void open_access(struct em *m, const struct op *op, int first, int dist, struct access *x)
{
    struct mb *b = m->mb;
    struct op *const *args = op->args + first;
    val stride = NOVAL;
    memset(x, 0, sizeof *x);
    x->op = op;
    x->first = first;
    x->buf = op->buf;
    x->dist = dist;
    x->rank = op->buf->rank;
    x->bytes = elem_bytes[op->buf->elem];
    for (int i = 0; i < x->rank; i++) {
        x->index[i].scalar_multiple = 1 << 20;
        split_index(m, args[i], &x->index[i]);
        if (x->index[i].gather) // its sum with the rest must not be split: a part alone may be negative
            x->index[i] = (struct index){ .gather = args[i], .scalar_multiple = 1 };
        x->index[i].check = !inside(args[i], &x->buf->shape[i]);
        x->extent[i] = dim_value(m, &x->buf->shape[i]);
        type_union(&x->space, &args[i]->type);
    }
    x->uniform = mb_i64(b, 0);
    stride = mb_i64(b, x->bytes);
    for (int i = x->rank - 1; i >= 0; i--) {
        struct index *n = &x->index[i];
        x->stride[i] = stride;
        if (!val_null(n->scalar))
            x->uniform = mb_bin(b, "add", x->uniform, mb_bin(b, "mul", to64(m, n->scalar), stride));
        if (n->axis)
            x->uniform = mb_bin(b, "add", x->uniform, mb_bin(b, "mul", to64(m, m->origin[n->axis->id]), stride));
        stride = mb_bin(b, "mul", stride, to64(m, x->extent[i]));
    }
    x->wide = lane_bound(m, x) >= 2147483648.0;
    x->run = run_length(m, x);
}

static int axis_idx(const struct type *space, const int *idx, const struct axis *a)
{
    for (int i = 0; i < space->rank; i++)
        if (space->axes[i] == a)
            return idx[i];
    return 0;
}

// The address and predicate of the element with register indices idx.
static struct gaddr address(struct em *m, const struct access *x, const int *idx)
{
    struct mb *b = m->mb;
    mty t = x->wide ? m->ty->i64 : m->ty->i32;
    struct gaddr g = {
        .buf = x->buf, .base = m->base[x->buf->id], .uniform = x->uniform, .bytes = m->bytes[x->buf->id]
    };
    g.lane = mb_int(b, t, 0);
    g.pred = x->replica;
    for (int i = 0; i < x->rank; i++) {
        const struct index *n = &x->index[i];
        val stride = x->wide ? x->stride[i] : mb_un(b, "trunc", x->stride[i], m->ty->i32), part = NOVAL, whole = NOVAL;
        if (!x->wide && i == x->rank - 1)
            stride = mb_i32(b, x->bytes);
        if (n->axis)
            part = em_pos(m, x->dist, n->axis, axis_idx(&x->space, idx, n->axis));
        if (n->gather) {
            val at = em_elem(m, n->gather, x->dist, &x->space, idx, EL_I32);
            part = val_null(part) ? at : mb_bin(b, "add", part, at);
        }
        if (!val_null(part))
            g.lane = mb_bin(b, "add", g.lane, mb_bin(b, "mul", x->wide ? to64(m, part) : part, stride));
        if (!n->check)
            continue;
        whole = val_null(part) ? mb_i32(b, 0) : part;
        if (!val_null(n->scalar))
            whole = mb_bin(b, "add", whole, n->scalar);
        if (n->axis)
            whole = mb_bin(b, "add", whole, m->origin[n->axis->id]);
        g.pred = em_and(m, g.pred, mb_icmp(b, IC_ULT, whole, x->extent[i]));
    }
    for (int i = 0; i < x->space.rank; i++)
        g.pred = em_and(m, g.pred, em_valid(m, x->dist, x->space.axes[i], idx[i]));
    int64_t always;
    if (!val_null(g.pred) && mb_const_int(b, g.pred, &always) && always)
        g.pred = NOVAL;
    return g;
}

void em_load(struct em *m, const struct op *op)
{
    struct access x;
    struct tile *t = &m->ops[op->id];
    open_access(m, op, 0, op->dist, &x);
    t->packed = false;
    t->n = em_elems(m, op->dist, &op->type);
    t->v = NEWN(m->c->arena, val, t->n);
    for (int e = 0; e < t->n; e += x.run) {
        int idx[RANK_MAX];
        em_split(m, op->dist, &op->type, e, idx);
        struct gaddr g = address(m, &x, idx);
        m->t->gload(&m->e, &g, em_type(m, x.buf->elem), x.bytes, x.run, t->v + e);
    }
    if (!op->type.rank && x.bytes == 4 && m->t->uniform) // addresses and conditions made from it stay scalar
        t->v[0] = m->t->uniform(&m->e, t->v[0]);
}

static val stored(struct em *m, const struct access *x, const struct op *value, const int *idx)
{
    return em_elem(m, value, x->dist, &x->space, idx, x->buf->elem);
}

void em_store(struct em *m, const struct op *op)
{
    struct access x;
    const struct op *value = op->args[op->nargs - 1];
    val v[16];
    open_access(m, op, 0, op->dist, &x);
    x.replica = em_replica0(m, x.dist, &x.space);
    int n = em_elems(m, x.dist, &x.space);
    for (int e = 0; e < n; e += x.run) {
        int idx[RANK_MAX];
        for (int i = 0; i < x.run; i++) {
            em_split(m, x.dist, &x.space, e + i, idx);
            v[i] = stored(m, &x, value, idx);
        }
        em_split(m, x.dist, &x.space, e, idx);
        struct gaddr g = address(m, &x, idx);
        m->t->gstore(&m->e, &g, em_type(m, x.buf->elem), x.bytes, x.run, v);
    }
}

static bool is_other_use(void *user, struct op *op)
{
    const struct op *x = user;
    for (int i = 0; i < op->nargs; i++)
        if (op->args[i] == x)
            return false;
    return true;
}

// One copy of a replicated tile made the access: the other lanes get its result from it.
static void share_result(struct em *m, const struct op *op, const struct access *x, struct tile *t)
{
    unsigned lane, warp;
    em_replicas(m, x->dist, &x->space, &lane, &warp);
    if (!walk(m->k->body, is_other_use, (void *)(uintptr_t)op)) // stopped: somebody uses it
        em_from_first(m, op, lane, warp, t);
}

void em_atomic(struct em *m, const struct op *op)
{
    struct access x;
    struct tile *t = &m->ops[op->id];
    open_access(m, op, 0, op->dist, &x);
    x.replica = em_replica0(m, x.dist, &x.space);
    t->packed = false;
    t->n = em_elems(m, x.dist, &x.space);
    t->v = NEWN(m->c->arena, val, t->n);
    for (int e = 0; e < t->n; e++) {
        int idx[RANK_MAX];
        em_split(m, x.dist, &x.space, e, idx);
        struct gaddr g = address(m, &x, idx);
        t->v[e] = m->t->atomic_add(&m->e, &g, em_type(m, x.buf->elem), stored(m, &x, op->args[op->nargs - 1], idx));
    }
    share_result(m, op, &x, t);
}

// ---- shared memory -----------------------------------------------------------------------------------------------

static int swizzle_shift(const struct buf *b)
{
    int chunks = b->cols * elem_bytes[b->elem] / 16, s = 3;
    while (chunks > 1 && s > 0)
        chunks /= 2, s--;
    return s;
}

int64_t em_lin_const(const struct buf *b, int row, int col)
{
    int eb = elem_bytes[b->elem];
    return ((int64_t)row * b->cols * eb) | ((col * eb) ^ ((row >> swizzle_shift(b) & ((1 << b->swizzle) - 1)) << 4));
}

// row_bits, col_bits: the position bits that the thread's parts may have set.
struct lin em_lin(struct em *m, const struct buf *b, val row, int64_t row_bits, val col, int64_t col_bits)
{
    struct mb *mb = m->mb;
    int eb = elem_bytes[b->elem], s = swizzle_shift(b);
    int64_t mask = (1 << b->swizzle) - 1;
    struct lin l = { .buf = b };
    val swz = mb_i32(mb, 0);
    if (mask & (row_bits >> s))
        swz = mb_bin(mb, "shl", mb_bin(mb, "and", mb_bin(mb, "lshr", row, mb_i32(mb, s)), mb_i32(mb, mask)),
                     mb_i32(mb, 4));
    val c = mb_bin(mb, "xor", mb_bin(mb, "mul", col, mb_i32(mb, eb)), swz);
    l.thread = mb_bin(mb, "or", mb_bin(mb, "mul", row, mb_i32(mb, (int64_t)b->cols * eb)), c);
    l.possible = row_bits * b->cols * eb | col_bits * eb | ((row_bits >> s & mask) << 4);
    return l;
}

val em_lin_ptr(struct em *m, const struct lin *l, val slot, int row, int col)
{
    struct mb *b = m->mb;
    const struct buf *s = l->buf;
    int64_t k = em_lin_const(s, row, col), cross = k & l->possible;
    val off = mb_bin(b, "xor", l->thread, mb_i32(b, cross));
    val base = mb_bin(b, "mul", slot, mb_i32(b, (int64_t)s->rows * s->cols * elem_bytes[s->elem]));
    val p = mb_gep(b, m->e.smem, mb_bin(b, "add", base, off));
    return mb_gep(b, p, mb_i32(b, s->offset + (k & ~cross)));
}

static int64_t thread_bits(const struct em *m, int dist, const struct axis *a)
{
    const struct home *h = dist_home(m->k, dist, a);
    int64_t bits = 0;
    for (int i = 0; h && i < h->nbits; i++)
        if (h->bits[i].home != BIT_REG)
            bits |= (int64_t)1 << i;
    return bits;
}

static struct lin tile_lin(struct em *m, const struct buf *b, int dist, const struct type *t)
{
    const struct axis *r = t->axes[0], *c = t->axes[1];
    return em_lin(m, b, em_pos(m, dist, r, 0), thread_bits(m, dist, r), em_pos(m, dist, c, 0), thread_bits(m, dist, c));
}

static void copy_runs(struct em *m, const struct op *op, struct access *x)
{
    struct lin l = tile_lin(m, op->buf2, op->dist, &x->space);
    val slot = em_scalar(m, op->args[0]), v[8];
    int n = em_elems(m, x->dist, &x->space);
    for (int e = 0; e < n; e += x->run) {
        int idx[RANK_MAX];
        em_split(m, x->dist, &x->space, e, idx);
        int row = em_reg_pos(m, x->dist, x->space.axes[0], idx[0]),
            col = em_reg_pos(m, x->dist, x->space.axes[1], idx[1]);
        val p = em_lin_ptr(m, &l, slot, row, col);
        struct gaddr g = address(m, x, idx);
        if (x->run * x->bytes >= 4) {
            m->t->copy(&m->e, p, &g, x->run * x->bytes);
        } else if (m->role) {
            em_refuse(m, op->loc,
                      "pieces of %d bytes go through registers, which an arrival of role '%s' does not wait for: '%s' "
                      "needs rows of a multiple of 4 bytes, copied from such an offset on",
                      x->run * x->bytes, m->role->name, op->buf->name);
            return;
        } else { // too narrow for an asynchronous copy: through a register, visible at the same barrier
            m->t->gload(&m->e, &g, em_type(m, x->buf->elem), x->bytes, x->run, v);
            mb_store(m->mb, mb_join(m->mb, em_type(m, x->buf->elem), x->run, v), p, x->run * x->bytes);
        }
    }
}

void em_copy(struct em *m, const struct op *op)
{
    struct access x;
    struct mb_if s;
    open_access(m, op, 1, op->dist, &x);
    val mine = em_replica0(m, x.dist, &x.space); // a tile smaller than the block: the other threads copy nothing
    if (val_null(mine)) {
        copy_runs(m, op, &x);
        return;
    }
    struct scope outer = em_enter(m);
    mb_if_begin(m->mb, &s, mine, 0, NULL);
    copy_runs(m, op, &x);
    mb_if_else(m->mb, &s, NULL);
    mb_if_end(m->mb, &s, NULL);
    em_leave(m, outer);
}

void em_copy_box(struct em *m, const struct op *op, val barrier)
{
    struct access x;
    const struct buf *to = op->buf2;
    val coords[RANK_MAX], zero = mb_i32(m->mb, 0);
    int box = kernel_box(m->k, op);
    open_access(m, op, 1, op->dist, &x);
    for (int i = 0; i < x.rank; i++) { // where the tile starts: its axes' origins and what is added to them
        const struct index *n = &x.index[i];
        val at = val_null(n->scalar) ? zero : n->scalar;
        coords[x.rank - 1 - i] = n->axis ? mb_bin(m->mb, "add", at, m->origin[n->axis->id]) : at;
        if (n->gather) {
            em_refuse(m, op->loc,
                      "the copy engine takes boxes: '%s' is indexed by something else than axes and scalars",
                      op->buf->name);
            return;
        }
    }
    struct lin first = { .thread = zero, .buf = to };
    val shared = em_lin_ptr(m, &first, em_scalar(m, op->args[0]), 0, 0);
    m->t->copy_box(&m->e, shared, barrier, m->e.maps[box], x.rank, coords,
                   (int64_t)to->rows * to->cols * elem_bytes[to->elem], mb_icmp(m->mb, IC_EQ, m->e.thread, zero));
}

// The longest run of columns in consecutive register elements, at most 16 bytes.
static int put_run(const struct em *m, const struct op *value)
{
    const struct home *h = dist_home(m->k, value->dist, value->type.axes[1]);
    int bits = 0, n;
    while (h && bits < h->nbits && h->bits[bits].home == BIT_REG && h->bits[bits].pos == bits)
        bits++;
    for (n = 1 << bits; n * elem_bytes[value->type.elem] > 16; n /= 2)
        ;
    return n;
}

void em_put(struct em *m, const struct op *op)
{
    const struct op *value = op->args[1];
    struct tile t = em_tile(m, value);
    struct lin l = tile_lin(m, op->buf2, value->dist, &value->type);
    val slot = em_scalar(m, op->args[0]);
    int run = put_run(m, value), bytes = elem_bytes[value->type.elem];
    for (int e = 0; e < t.n; e += run) {
        int idx[RANK_MAX];
        em_split(m, value->dist, &value->type, e, idx);
        int row = em_reg_pos(m, value->dist, value->type.axes[0], idx[0]);
        int col = em_reg_pos(m, value->dist, value->type.axes[1], idx[1]);
        val p = em_lin_ptr(m, &l, slot, row, col);
        mb_store(m->mb, mb_join(m->mb, em_type(m, value->type.elem), run, t.v + e), p, run * bytes);
    }
}
