// Part of emit: reductions and prefix sums along an axis. Every thread of the block takes part. The order of the sums is
// fixed by the homes of the axis's bits: registers first, then lanes, then warps (through the scratch of the block).
#include "emit.h"

#include <math.h>
#include <string.h>

static val neutral(struct em *m, const struct op *op)
{
    bool f = op->type.elem == EL_F32;
    switch ((int)op->code) {
    case OP_REDUCE_MAX: return f ? mb_f32(m->mb, -INFINITY) : mb_i32(m->mb, INT32_MIN);
    case OP_REDUCE_MIN: return f ? mb_f32(m->mb, INFINITY) : mb_i32(m->mb, INT32_MAX);
    }
    return f ? mb_f32(m->mb, 0) : mb_i32(m->mb, 0);
}

static val combine(struct em *m, const struct op *op, val a, val b)
{
    bool f = op->type.elem == EL_F32;
    bool max = op->code == OP_REDUCE_MAX;
    if (op->code == OP_REDUCE_SUM || op->code == OP_SCAN_SUM)
        return mb_bin(m->mb, f ? "fadd" : "add", a, b);
    if (f)
        return m->t->math(&m->e, max ? OP_MAX : OP_MIN, a, b);
    return mb_select(m->mb, mb_icmp(m->mb, max ? IC_SGT : IC_SLT, a, b), a, b);
}

// The operand's elements, positions outside the axis's bound neutral, as f32 or i32.
static val *masked(struct em *m, const struct op *op, const struct type *t, int n)
{
    const struct op *x = op->args[0];
    val *v = NEWN(m->c->arena, val, n), none = neutral(m, op);
    for (int e = 0; e < n; e++) {
        int idx[RANK_MAX];
        em_split(m, op->dist, t, e, idx);
        v[e] = em_elem(m, x, op->dist, t, idx, op->type.elem);
        for (int i = 0; i < t->rank; i++)
            if (t->axes[i] == op->axis) {
                val ok = em_valid(m, op->dist, op->axis, idx[i]);
                v[e] = val_null(ok) ? v[e] : mb_select(m->mb, ok, v[e], none);
            }
    }
    return v;
}

// ---- scratch: one word a thread and element ----------------------------------------------------------------------

static bool room(const struct em *m, int n)
{
    return m->k->scratch >= 0 && m->k->scratch % 4 == 0 &&
           m->k->scratch + 4LL * n * em_threads(m) <= m->k->shared_bytes;
}

static bool has_scratch(struct em *m, const struct op *op, int n)
{
    const struct home *h = dist_home(m->k, op->dist, op->axis);
    bool across = false;
    for (int i = 0; h && i < h->nbits; i++)
        across |= h->bits[i].home == BIT_WARP;
    return !across || room(m, n) ||
           em_refuse(m, op->loc, "axis '%s' is spread over warps: '%s' needs %lld bytes of shared memory at @scratch",
                     op->axis->name, op_infos[op->code].name, 4LL * n * em_threads(m));
}

static val scratch_at(struct em *m, int e, val thread)
{
    val off = mb_bin(m->mb, "shl", thread, mb_i32(m->mb, 2));
    val p = mb_gep(m->mb, m->e.smem, off);
    return mb_gep(m->mb, p, mb_i32(m->mb, m->k->scratch + (int64_t)e * em_threads(m) * 4));
}

static void scratch_write(struct em *m, const val *v, int n)
{
    for (int e = 0; e < n; e++)
        mb_store(m->mb, v[e], scratch_at(m, e, m->e.thread), 4);
    m->t->barrier(&m->e);
}

// The thread whose warp (lane) number has the given bits of `mask` set to `bits`.
static val other_thread(struct em *m, int lane_mask, int lane_bits, int warp_mask, int warp_bits)
{
    int lanes = 0;
    while (1 << lanes < m->e.arch->lanes)
        lanes++;
    int mask = lane_mask | warp_mask << lanes, bits = lane_bits | warp_bits << lanes;
    return mb_bin(m->mb, "or", mb_bin(m->mb, "and", m->e.thread, mb_i32(m->mb, ~mask)), mb_i32(m->mb, bits));
}

// ---- reductions --------------------------------------------------------------------------------------------------

static val tree(struct em *m, const struct op *op, val *v, int n)
{
    for (; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++)
            v[i] = combine(m, op, v[2 * i], v[2 * i + 1]);
    return v[0];
}

static void across_warps(struct em *m, const struct op *op, const struct home *h, struct tile *t)
{
    int mask = 0;
    for (int i = 0; i < h->nbits; i++)
        if (h->bits[i].home == BIT_WARP)
            mask |= 1 << h->bits[i].pos;
    if (!mask)
        return;
    scratch_write(m, t->v, t->n);
    for (int e = 0; e < t->n; e++) {
        val sum = NOVAL;
        for (int w = 0; w <= mask; w++) {
            if (w & ~mask)
                continue;
            val x = mb_load(m->mb, em_type(m, op->type.elem), scratch_at(m, e, other_thread(m, 0, 0, mask, w)), 4);
            sum = val_null(sum) ? x : combine(m, op, sum, x);
        }
        t->v[e] = sum;
    }
    m->t->barrier(&m->e);
}

void em_reduce(struct em *m, const struct op *op)
{
    const struct type *from = &op->args[0]->type;
    const struct home *h = dist_home(m->k, op->dist, op->axis);
    struct tile *t = &m->ops[op->id];
    int n = em_elems(m, op->dist, from), along = 1 << em_reg_bits(m, op->dist, op->axis);
    if (!has_scratch(m, op, em_elems(m, op->dist, &op->type)))
        return;
    val *v = masked(m, op, from, n), *row = NEWN(m->c->arena, val, along);
    t->packed = false;
    t->n = em_elems(m, op->dist, &op->type);
    t->v = NEWN(m->c->arena, val, t->n);
    for (int e = 0; e < t->n; e++) {
        int idx[RANK_MAX], full[RANK_MAX] = { 0 };
        em_split(m, op->dist, &op->type, e, idx);
        for (int k = 0; k < along; k++) {
            for (int i = 0, j = 0; i < from->rank; i++)
                full[i] = from->axes[i] == op->axis ? k : idx[j++];
            row[k] = v[em_join(m, op->dist, from, from, full)];
        }
        t->v[e] = tree(m, op, row, along);
        for (int i = 0; h && i < h->nbits; i++)
            if (h->bits[i].home == BIT_LANE)
                t->v[e] = combine(m, op, t->v[e], m->t->shuffle_xor(&m->e, t->v[e], 1 << h->bits[i].pos));
    }
    if (h)
        across_warps(m, op, h, t);
}

void em_from_first(struct em *m, const struct op *op, unsigned lane, unsigned warp, struct tile *t)
{
    val from = mb_bin(m->mb, "and", m->e.lane, mb_i32(m->mb, ~(int64_t)lane));
    if (warp && !room(m, t->n)) {
        em_refuse(m, op->loc, "the value of this '%s' is needed in several warps: that takes %lld bytes at @scratch",
                  op_infos[op->code].name, 4LL * t->n * em_threads(m));
        return;
    }
    if (warp)
        scratch_write(m, t->v, t->n);
    for (int e = 0; e < t->n && (lane || warp); e++)
        t->v[e] = warp ? mb_load(m->mb, em_type(m, op->type.elem),
                                 scratch_at(m, e, other_thread(m, (int)lane, 0, (int)warp, 0)), 4)
                       : m->t->shuffle(&m->e, t->v[e], from);
    if (warp)
        m->t->barrier(&m->e);
}

// ---- prefix sums -------------------------------------------------------------------------------------------------

struct step {                 // adding the lower half's total to the upper half, for one bit of the position
    int reg_set, reg_clear;   // register-index bits of the source: set; cleared
    int lane_set, lane_clear; // lane bits
    int warp_set, warp_clear;
};

static struct step step_of(const struct home *h, int bit)
{
    struct step s = { 0 };
    for (int i = 0; i <= bit; i++) {
        int b = 1 << h->bits[i].pos;
        int *set = h->bits[i].home == BIT_REG ? &s.reg_set : h->bits[i].home == BIT_LANE ? &s.lane_set : &s.warp_set;
        int *clear = h->bits[i].home == BIT_REG    ? &s.reg_clear
                     : h->bits[i].home == BIT_LANE ? &s.lane_clear
                                                   : &s.warp_clear;
        *(i < bit ? set : clear) |= b;
    }
    return s;
}

// The element that register element e reads in this step.
static int source_elem(struct em *m, const struct op *op, const struct step *s, int e)
{
    int idx[RANK_MAX];
    em_split(m, op->dist, &op->type, e, idx);
    for (int i = 0; i < op->type.rank; i++)
        if (op->type.axes[i] == op->axis)
            idx[i] = (idx[i] | s->reg_set) & ~s->reg_clear;
    return em_join(m, op->dist, &op->type, &op->type, idx);
}

static bool upper_in_regs(struct em *m, const struct op *op, const struct step *s, int e)
{
    int idx[RANK_MAX];
    em_split(m, op->dist, &op->type, e, idx);
    for (int i = 0; i < op->type.rank; i++)
        if (op->type.axes[i] == op->axis)
            return (idx[i] & s->reg_clear) == s->reg_clear;
    return false;
}

static val source(struct em *m, const struct op *op, const struct step *s, const struct tile *t, int e)
{
    struct mb *b = m->mb;
    if (s->warp_set || s->warp_clear)
        return mb_load(b, em_type(m, op->type.elem),
                       scratch_at(m, e,
                                  other_thread(m, s->lane_set | s->lane_clear, s->lane_set, s->warp_set | s->warp_clear,
                                               s->warp_set)),
                       4);
    if (!s->lane_set && !s->lane_clear)
        return t->v[e];
    val lane = mb_bin(b, "and", m->e.lane, mb_i32(b, ~(s->lane_set | s->lane_clear)));
    return m->t->shuffle(&m->e, t->v[e], mb_bin(b, "or", lane, mb_i32(b, s->lane_set)));
}

static void scan_step(struct em *m, const struct op *op, const struct step *s, struct tile *t)
{
    struct mb *b = m->mb;
    val *next = NEWN(m->c->arena, val, t->n), *src = NEWN(m->c->arena, val, t->n), upper = NOVAL, zero = mb_i32(b, 0);
    bool scratch = s->warp_set || s->warp_clear;
    if (scratch)
        scratch_write(m, t->v, t->n);
    if (s->lane_clear)
        upper = mb_icmp(b, IC_NE, mb_bin(b, "and", m->e.lane, mb_i32(b, s->lane_clear)), zero);
    if (s->warp_clear)
        upper = mb_icmp(b, IC_NE, mb_bin(b, "and", m->e.warp, mb_i32(b, s->warp_clear)), zero);
    for (int e = 0; e < t->n; e++) {
        next[e] = t->v[e];
        if (!upper_in_regs(m, op, s, e))
            continue;
        int from = source_elem(m, op, s, e);
        if (val_null(src[from]))
            src[from] = source(m, op, s, t, from);
        val sum = combine(m, op, t->v[e], src[from]);
        next[e] = val_null(upper) ? sum : mb_select(b, upper, sum, t->v[e]);
    }
    if (scratch)
        m->t->barrier(&m->e);
    t->v = next;
}

void em_scan(struct em *m, const struct op *op)
{
    const struct home *h = dist_home(m->k, op->dist, op->axis);
    struct tile *t = &m->ops[op->id];
    if (!has_scratch(m, op, em_elems(m, op->dist, &op->type)))
        return;
    t->packed = false;
    t->n = em_elems(m, op->dist, &op->type);
    t->v = masked(m, op, &op->type, t->n);
    for (int i = 0; h && i < h->nbits; i++) {
        struct step s = step_of(h, i);
        scan_step(m, op, &s, t);
    }
}
