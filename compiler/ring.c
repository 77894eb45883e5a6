// Part of the pass `layout`: a loop over k whose dots read tiles from global memory becomes a ring of copies.
//
// Asynchronous copies (S stages; trip i reads slot i % S, the copy of trip i + S - 1 goes into the slot read at i - 1):
//     each p in 0 .. S-2:  copy every operand's tile p into slot p; commit
//     each i in 0 .. n-1:  wait(S - 2); barrier; copy tile i + S - 1 into slot (i + S - 1) % S; commit; body
//     wait(0); barrier
// Where products are asynchronous (wgmma), those of trip i - 1 may still read their slot at trip i: the copies keep one slot more
// away (S - 2 in place of S - 1), and the body ends with mma_commit; mma_wait(1), the loop with mma_wait(0).
// Copies through registers (S = 1 or 2; the loads of trip i + 1 are in flight during the mmas of trip i):
//     p = load tile 0
//     each i in 0 .. n-1:  [S = 1: barrier;] put p into slot i % S; barrier; p = load tile i + 1; body
//     barrier
// Tiles past the end read 0 (indices past `hi` are out of range). The body keeps its other operations, with the loop's
// axis bound by `at`. Indices of the copies are recomputed in the distribution of the copies, before the loop.
#include "ring.h"

#include <string.h>

static struct operand *find(struct ring *r, const struct op *load)
{
    for (int i = 0; i < r->n; i++)
        if (r->operand[i].load == load)
            return &r->operand[i];
    return NULL;
}

static void collect(struct ring *r)
{
    for (int i = 0; i < r->loop->body->ops.n; i++) {
        struct op *dot = r->loop->body->ops.v[i];
        if (dot->code != OP_DOT || !sched_is_matrix(dot) || lay_contracted(dot) != r->k)
            continue;
        for (int j = 1; j <= 2; j++)
            if (sched_copyable(r->loop, dot->args[j]) && !find(r, dot->args[j]) && r->n < OPERANDS_MAX) {
                r->operand[r->n].load = dot->args[j];
                r->operand[r->n++].row = dot->args[j]->type.axes[0];
            }
    }
}

// The same value in distribution `dist`, appended to b. Scalars of an enclosing block are shared.
static struct op *repeat(struct ring *r, struct block *b, struct op *op, int dist)
{
    struct lay *l = r->l;
    if (op->type.rank == 0 && !sched_inside(r->loop, op))
        return op;
    struct op *n = op_new(l->c, l->k, op->code, op->loc);
    int id = n->id;
    *n = *op;
    n->id = id;
    n->dist = op->type.rank ? dist : 0;
    n->name = NULL;
    for (int i = 0; i < n->nargs; i++)
        n->args[i] = repeat(r, b, op->args[i], dist);
    block_push(l->c, b, n);
    return n;
}

// i32[kr]: the loop axis's indices of the tile that starts at `origin`; past hi: -1 where hi is not the dimension's end.
static struct op *k_index(struct ring *r, struct block *b, struct op *origin, const struct operand *o)
{
    struct lay *l = r->l;
    struct op *pos = op_new(l->c, l->k, OP_INDEX, o->load->loc), *i;
    const struct shape_dim *d = &o->load->buf->shape[o->load->buf->rank - 1];
    pos->axis = r->kr;
    pos->type = (struct type){ .elem = EL_I32, .rank = 1, .axes = { r->kr } };
    pos->dist = o->dist;
    block_push(l->c, b, pos);
    i = op_binary(l->c, l->k, b, OP_ADD, origin, pos);
    i->dist = o->dist;
    if (sched_whole(r->hi, d))
        return i;
    struct op *in = op_binary(l->c, l->k, b, OP_LT, i, r->hi), *sel = op_new(l->c, l->k, OP_SELECT, o->load->loc);
    in->dist = o->dist;
    sel->args[0] = in;
    sel->args[1] = i;
    sel->args[2] = lay_int(l, b, -1);
    sel->nargs = 3;
    sel->type = i->type;
    sel->dist = o->dist;
    block_push(l->c, b, sel);
    return sel;
}

// Operand o's tile at `origin`: a COPY into slot, or (slot NULL) a LOAD in the distribution of the copies.
struct op *ring_fetch(struct ring *r, struct block *b, struct operand *o, struct op *origin, struct op *slot)
{
    struct lay *l = r->l;
    struct op *index = k_index(r, b, origin, o), *op = op_new(l->c, l->k, slot ? OP_COPY : OP_LOAD, o->load->loc);
    int n = 0;
    if (slot)
        op->args[n++] = slot;
    for (int i = 0; i < o->load->nargs; i++)
        op->args[n++] = o->index[i] ? o->index[i] : index;
    op->nargs = n;
    op->buf = o->load->buf;
    op->buf2 = slot ? o->ring : NULL;
    op->dist = o->dist;
    op->bulk = slot && o->bulk;
    if (!slot)
        op->type = (struct type){ .elem = o->load->type.elem, .rank = 2, .axes = { o->row, r->kr } };
    block_push(l->c, b, op);
    return op;
}

struct op *ring_plain(struct ring *r, struct block *b, enum opcode code, int64_t v)
{
    struct op *op = op_new(r->l->c, r->l->k, code, r->loop->loc);
    op->ival = v;
    block_push(r->l->c, b, op);
    return op;
}

struct op *ring_region(struct ring *r, struct block *b, enum opcode code, struct op *x, struct op *y)
{
    struct op *op = op_new(r->l->c, r->l->k, code, r->loop->loc);
    op->args[0] = x;
    op->args[1] = y;
    op->nargs = 2;
    op->body = block_new(r->l->c, op);
    block_push(r->l->c, b, op);
    return op;
}

struct op *ring_counter(struct ring *r, struct op *each)
{
    struct op *i = op_new(r->l->c, r->l->k, OP_ORIGIN, r->loop->loc);
    i->region = each;
    i->type = (struct type){ .elem = EL_I32 };
    block_push(r->l->c, each->body, i);
    return i;
}

struct op *ring_origin(struct ring *r, struct block *b, struct op *trip)
{
    struct lay *l = r->l;
    return lay_bin(l, b, OP_ADD, lay_bin(l, b, OP_MUL, trip, lay_int(l, b, r->k->size)), r->lo);
}

struct op *ring_slot(struct ring *r, struct block *b, struct op *trip)
{
    return lay_bin(r->l, b, OP_REM, trip, lay_int(r->l, b, r->stages));
}

// Slots and the axis of the positions in a tile into `outer`, the indices of the copies into b, spread over 2^warp_bits warps.
void ring_declare(struct ring *r, struct block *outer, struct block *ranges, struct block *b, int warp_bits)
{
    struct lay *l = r->l;
    r->kr = axis_new(l->c, l->k, arena_printf(l->c->arena, "%s_in_%d", r->k->name, l->k->axes.n), AX_RANGE, r->k->loc);
    struct op *range = op_new(l->c, l->k, OP_RANGE, r->loop->loc);
    range->args[0] = lay_int(l, ranges, 0);
    range->args[1] = lay_int(l, ranges, r->k->size);
    range->nargs = 2;
    range->axis = r->kr;
    r->kr->def = range;
    r->kr->lo = range->args[0];
    r->kr->hi = range->args[1];
    r->kr->size = r->k->size;
    r->kr->max_extent = r->k->size;
    r->kr->exact = true;
    block_push(l->c, ranges, range);
    for (int i = 0; i < r->n; i++) {
        struct operand *o = &r->operand[i];
        o->dist = lay_copy_dist(l, o->row, r->kr, warp_bits);
        o->ring = lay_shared(l, outer, "ring", o->load->type.elem, r->stages, o->row->size, r->k->size, o->load->loc);
        for (int j = 0; j < o->load->nargs - 1; j++)
            o->index[j] = repeat(r, b, o->load->args[j], o->dist);
    }
}

// The loop's own operations, with the copied operands' dots as mmas on slot `slot`.
void ring_body(struct ring *r, struct block *b, struct op *origin, struct op *slot)
{
    struct lay *l = r->l;
    struct op *at = ring_region(r, b, OP_AT, origin, r->hi);
    at->axis = r->k;
    r->k->def = at;
    r->k->lo = origin;
    int n = r->loop->body->ops.n;
    struct op **ops = r->loop->body->ops.v;
    for (int i = 0; i < n; i++) {
        struct op *op = ops[i];
        struct operand *x = NULL, *y = NULL;
        if (op->code == OP_DOT && sched_is_matrix(op) && lay_contracted(op) == r->k) {
            x = find(r, op->args[1]);
            y = find(r, op->args[2]);
        }
        if (x && y) {
            struct op *m = lay_mma(l, op, x->ring, slot, y->ring, slot);
            *op = *m;
        }
        block_push(l->c, at->body, op);
    }
    lay_dots(l, at->body); // dots with a computed operand, and what is nested
}

struct op *ring_trips(struct ring *r, struct block *b)
{
    struct lay *l = r->l;
    struct op *len = lay_bin(l, b, OP_SUB, r->hi, r->lo);
    return lay_bin(l, b, OP_DIV, lay_bin(l, b, OP_ADD, len, lay_int(l, b, r->k->size - 1)), lay_int(l, b, r->k->size));
}

static bool gathers(const struct op *load)
{
    bool any = false;
    for (int i = 0; i < load->nargs; i++)
        any |= load->args[i]->type.rank && load->args[i]->code != OP_INDEX;
    return any;
}

// Operands whose first copies can go ahead of the others': before the kernel waits for the one launched before it, or else before the
// indices of the others have come from memory.
static bool goes_ahead(const struct ring *r, const struct operand *o)
{
    bool early = false;
    for (int i = 0; i < r->n; i++)
        early |= r->operand[i].load->buf->early && r->l->c->arch->dependent;
    return early ? o->load->buf->early : !gathers(o->load);
}

// The first tiles, in one pass if all operands are alike.
static void fill_ring(struct ring *r, struct block *b, int ahead)
{
    struct lay *l = r->l;
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += goes_ahead(r, &r->operand[i]);
    for (int first = n && n < r->n; first >= 0; first--) {
        struct op *fill = ring_region(r, b, OP_EACH, lay_int(l, b, 0), lay_int(l, b, ahead)),
                  *p = ring_counter(r, fill);
        struct op *o = ring_origin(r, fill->body, p);
        for (int i = 0; i < r->n; i++)
            if (n == 0 || n == r->n || goes_ahead(r, &r->operand[i]) == first)
                ring_fetch(r, fill->body, &r->operand[i], o, p);
        if (!first)
            ring_plain(r, fill->body, OP_COMMIT, 0);
    }
}

static void async_ring(struct ring *r, struct block *b)
{
    struct lay *l = r->l;
    int ahead = r->stages - 1 - r->late;
    struct op *n = ring_trips(r, b), *o;
    fill_ring(r, b, ahead);
    struct op *main = ring_region(r, b, OP_EACH, lay_int(l, b, 0), n), *i = ring_counter(r, main);
    struct block *mb = main->body;
    ring_plain(r, mb, OP_WAIT, ahead - 1);
    ring_plain(r, mb, OP_BARRIER, 0);
    struct op *next = lay_bin(l, mb, OP_ADD, i, lay_int(l, mb, ahead)), *slot = ring_slot(r, mb, next);
    o = ring_origin(r, mb, next);
    for (int j = 0; j < r->n; j++)
        ring_fetch(r, mb, &r->operand[j], o, slot);
    ring_plain(r, mb, OP_COMMIT, 0);
    ring_body(r, mb, ring_origin(r, mb, i), ring_slot(r, mb, i));
    if (r->late) {
        ring_plain(r, mb, OP_MMA_COMMIT, 0);
        ring_plain(r, mb, OP_MMA_WAIT, r->late);
        ring_plain(r, b, OP_MMA_WAIT, 0);
    }
    ring_plain(r, b, OP_WAIT, 0);
    ring_plain(r, b, OP_BARRIER, 0);
}

static void fetch_ahead(struct ring *r, struct block *b, struct op *trip, bool declare_var)
{
    struct op *o = ring_origin(r, b, trip);
    for (int i = 0; i < r->n; i++) {
        struct operand *x = &r->operand[i];
        struct op *v = ring_fetch(r, b, x, o, NULL);
        if (declare_var) {
            char *name = arena_printf(r->l->c->arena, "ahead_%d", r->l->k->vars.n);
            x->ahead = var_new(r->l->c, r->l->k, name, v->type, x->load->loc);
            x->ahead->dist = x->dist;
        }
        struct op *set = op_new(r->l->c, r->l->k, declare_var ? OP_VAR : OP_SET, x->load->loc);
        set->var = x->ahead;
        set->args[0] = v;
        set->nargs = 1;
        set->dist = x->dist;
        block_push(r->l->c, b, set);
    }
}

static void register_ring(struct ring *r, struct block *b)
{
    struct lay *l = r->l;
    struct op *n = ring_trips(r, b);
    fetch_ahead(r, b, lay_int(l, b, 0), true);
    struct op *main = ring_region(r, b, OP_EACH, lay_int(l, b, 0), n), *i = ring_counter(r, main);
    struct block *mb = main->body;
    struct op *slot = ring_slot(r, mb, i);
    if (r->stages == 1)
        ring_plain(r, mb, OP_BARRIER, 0);
    for (int j = 0; j < r->n; j++) {
        struct operand *x = &r->operand[j];
        struct op *get = op_new(l->c, l->k, OP_GET, x->load->loc), *put = op_new(l->c, l->k, OP_PUT, x->load->loc);
        get->var = x->ahead;
        get->type = x->ahead->type;
        get->dist = put->dist = x->dist;
        block_push(l->c, mb, get);
        put->args[0] = slot;
        put->args[1] = get;
        put->nargs = 2;
        put->buf2 = x->ring;
        block_push(l->c, mb, put);
    }
    ring_plain(r, mb, OP_BARRIER, 0);
    fetch_ahead(r, mb, lay_bin(l, mb, OP_ADD, i, lay_int(l, mb, 1)), false);
    ring_body(r, mb, ring_origin(r, mb, i), slot);
    ring_plain(r, b, OP_BARRIER, 0);
}

struct block *lay_ring(struct lay *l, struct block *b, struct op *loop)
{
    struct ring r = { .l = l, .loop = loop, .k = loop->axis, .lo = loop->args[0], .hi = loop->args[1] };
    if (l->k->sched.mma < 0)
        return NULL;
    r.stages = l->k->sched.stages;
    r.async = l->c->arch->copy != COPY_REG;
    r.late = l->c->arch->mmas[l->k->sched.mma].kind == MMA_WARPGROUP;
    collect(&r);
    // Every dot over k must have both operands copied or both staged by the generic path.
    for (int i = 0; i < loop->body->ops.n; i++) {
        struct op *dot = loop->body->ops.v[i];
        if (dot->code == OP_DOT && sched_is_matrix(dot) && lay_contracted(dot) == r.k &&
            !(find(&r, dot->args[1]) && find(&r, dot->args[2])))
            return NULL;
    }
    if (r.n && r.async && l->k->sched.producers)
        return ring_roles(&r, b);
    if (!r.n || (r.async && r.stages < 2 + r.late))
        return NULL;
    ring_declare(&r, b, b, b, l->warp_bits);
    if (r.async)
        async_ring(&r, b);
    else
        register_ring(&r, b);
    return b;
}
