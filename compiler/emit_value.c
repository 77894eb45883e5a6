// Part of emit: axes, masks, element-wise operations, conversions. One SSA value a register element.
#include "emit.h"

#include <math.h>
#include <string.h>

mty em_type(struct em *m, enum elem e)
{
    switch (e) {
    case EL_BOOL: return m->ty->i1;
    case EL_F32: return m->ty->f32;
    case EL_BF16: return m->ty->bf16;
    case EL_F16: return m->ty->f16;
    case EL_I32:
    case EL_NONE:
    case EL_COUNT: break;
    }
    return m->ty->i32;
}

// ---- register elements and positions -----------------------------------------------------------------------------

int em_reg_bits(const struct em *m, int dist, const struct axis *a)
{
    const struct home *h = dist_home(m->k, dist, a);
    int n = 0;
    for (int i = 0; h && i < h->nbits; i++)
        n += h->bits[i].home == BIT_REG;
    return n;
}

int em_elems(const struct em *m, int dist, const struct type *t)
{
    int bits = 0;
    for (int i = 0; i < t->rank; i++)
        bits += em_reg_bits(m, dist, t->axes[i]);
    return 1 << bits;
}

void em_split(const struct em *m, int dist, const struct type *t, int e, int *idx)
{
    for (int i = t->rank - 1; i >= 0; i--) {
        int bits = em_reg_bits(m, dist, t->axes[i]);
        idx[i] = e & ((1 << bits) - 1);
        e >>= bits;
    }
}

int em_join(const struct em *m, int dist, const struct type *t, const struct type *of, const int *idx)
{
    int e = 0;
    for (int i = 0; i < t->rank; i++) {
        int bits = em_reg_bits(m, dist, t->axes[i]), x = 0;
        for (int j = 0; j < of->rank; j++)
            if (of->axes[j] == t->axes[i])
                x = idx[j];
        e = e << bits | x;
    }
    return e;
}

int em_reg_pos(const struct em *m, int dist, const struct axis *a, int idx)
{
    const struct home *h = dist_home(m->k, dist, a);
    int pos = 0;
    for (int i = 0; h && i < h->nbits; i++)
        if (h->bits[i].home == BIT_REG)
            pos |= (idx >> h->bits[i].pos & 1) << i;
    return pos;
}

// Runs of bits that move together: (thread >> from & mask) << to.
static val move_bits(struct em *m, val x, int from, int n, int to)
{
    struct mb *b = m->mb;
    if (from)
        x = mb_bin(b, "lshr", x, mb_i32(b, from));
    x = mb_bin(b, "and", x, mb_i32(b, (1 << n) - 1));
    return to ? mb_bin(b, "shl", x, mb_i32(b, to)) : x;
}

val em_thread_pos(struct em *m, int dist, const struct axis *a)
{
    const struct home *h = dist_home(m->k, dist, a);
    val pos = mb_i32(m->mb, 0);
    for (int i = 0, n; h && i < h->nbits; i += n) {
        n = 1;
        if (h->bits[i].home == BIT_REG)
            continue;
        while (i + n < h->nbits && h->bits[i + n].home == h->bits[i].home && h->bits[i + n].pos == h->bits[i].pos + n)
            n++;
        val from = h->bits[i].home == BIT_LANE ? m->e.lane : m->e.warp;
        pos = mb_bin(m->mb, "or", pos, move_bits(m, from, h->bits[i].pos, n, i));
    }
    return pos;
}

static val cached(struct em *m, const void *a, int b, int c)
{
    for (int i = m->cache.n - 1; i >= 0; i--) {
        const struct cached *x = &m->cache.v[i];
        if (x->a == a && x->b == b && x->c == c)
            return x->v;
    }
    return NOVAL;
}

static val keep(struct em *m, const void *a, int b, int c, val v)
{
    struct cached x = { a, b, c, v };
    VEC_PUSH(m->c->arena, &m->cache, x);
    return v;
}

val em_pos(struct em *m, int dist, const struct axis *a, int idx)
{
    val t = cached(m, a, dist, -1);
    if (val_null(t))
        t = keep(m, a, dist, -1, em_thread_pos(m, dist, a));
    return mb_bin(m->mb, "add", t, mb_i32(m->mb, em_reg_pos(m, dist, a, idx)));
}

val em_index(struct em *m, int dist, const struct axis *a, int idx)
{
    return mb_bin(m->mb, "add", m->origin[a->id], em_pos(m, dist, a, idx));
}

val em_valid(struct em *m, int dist, const struct axis *a, int idx)
{
    if (a->exact)
        return NOVAL;
    val v = cached(m, a, dist, idx);
    if (val_null(v)) {
        // A range's bound is its extent's end; other axes end at hi.
        v = mb_icmp(m->mb, IC_SLT, em_index(m, dist, a, idx), m->hi[a->id]);
        keep(m, a, dist, idx, v);
    }
    return v;
}

val em_and(struct em *m, val a, val b)
{
    if (val_null(a) || val_null(b))
        return val_null(a) ? b : a;
    return mb_bin(m->mb, "and", a, b);
}

void em_replicas(const struct em *m, int dist, const struct type *t, unsigned *lane, unsigned *warp)
{
    *lane = (unsigned)m->e.arch->lanes - 1;
    *warp = (unsigned)(em_threads(m) / m->e.arch->lanes) - 1;
    for (int i = 0; i < t->rank; i++) {
        const struct home *h = dist_home(m->k, dist, t->axes[i]);
        for (int j = 0; h && j < h->nbits; j++)
            if (h->bits[j].home == BIT_LANE)
                *lane &= ~(1u << h->bits[j].pos);
            else if (h->bits[j].home == BIT_WARP)
                *warp &= ~(1u << h->bits[j].pos);
    }
}

val em_replica0(struct em *m, int dist, const struct type *t)
{
    struct mb *b = m->mb;
    unsigned lane, warp;
    em_replicas(m, dist, t, &lane, &warp);
    val p = NOVAL, zero = mb_i32(b, 0);
    if (lane)
        p = mb_icmp(b, IC_EQ, mb_bin(b, "and", m->e.lane, mb_i32(b, lane)), zero);
    if (warp)
        p = em_and(m, p, mb_icmp(b, IC_EQ, mb_bin(b, "and", m->e.warp, mb_i32(b, warp)), zero));
    return p;
}

// ---- conversions -------------------------------------------------------------------------------------------------

// bf16 to f32 is a shift, and is written as one: from `f16(f32(b) * 0.5)` with an fpext, LLVM's instcombine makes a product
// in f16 because f16 has more fraction bits than bf16, and forgets that it has a smaller range.
static val widen_bf16(struct em *m, val x)
{
    struct mb *b = m->mb;
    val bits = mb_un(b, "zext", mb_un(b, "bitcast", x, m->ty->i16), m->ty->i32);
    return mb_un(b, "bitcast", mb_bin(b, "shl", bits, mb_i32(b, 16)), m->ty->f32);
}

val em_convert(struct em *m, enum elem from, enum elem to, val x)
{
    struct mb *b = m->mb;
    if (from == to)
        return x;
    if (to == EL_BOOL) {
        if (from == EL_I32)
            return mb_icmp(b, IC_NE, x, mb_i32(b, 0));
        return mb_fcmp(b, FC_UNE, em_convert(m, from, EL_F32, x), mb_f32(b, 0));
    }
    if (from == EL_BOOL && to == EL_I32)
        return mb_un(b, "zext", x, m->ty->i32);
    if (from == EL_BOOL)
        return mb_select(b, x, mb_float(b, em_type(m, to), 1), mb_float(b, em_type(m, to), 0));
    if (from == EL_I32)
        return em_convert(m, EL_F32, to, mb_un(b, "sitofp", x, m->ty->f32));
    if (to == EL_I32) { // truncates, saturates, NaN gives 0
        x = em_convert(m, from, EL_F32, x);
        return mb_op(b, "llvm.call_intrinsic", m->ty->i32, 1, &x,
                     "intrin = \"llvm.fptosi.sat.i32.f32\", operandSegmentSizes = array<i32: 1, 0>, op_bundle_sizes = "
                     "array<i32>");
    }
    if (from != EL_F32 && to != EL_F32)
        return em_convert(m, EL_F32, to, em_convert(m, from, EL_F32, x));
    if (from == EL_BF16)
        return widen_bf16(m, x);
    return m->t->convert(&m->e, from, to, x);
}

struct tile em_tile(struct em *m, const struct op *op)
{
    struct tile t = m->ops[op->id];
    if (!t.packed)
        return t;
    for (int i = m->unpacked.n - 1; i >= 0; i--)
        if (m->unpacked.v[i].packed == t.v)
            return m->unpacked.v[i].t;
    struct unpacked u = { t.v, em_unpack(m, &op->type, t) };
    VEC_PUSH(m->c->arena, &m->unpacked, u);
    return u.t;
}

val em_scalar(struct em *m, const struct op *op)
{
    return em_tile(m, op).v[0];
}

// Values never move between distributions by themselves: a use in another one reads the same registers.
static bool same_homes(struct em *m, const struct op *arg, int dist)
{
    for (int i = 0; i < arg->type.rank && arg->dist != dist; i++) {
        const struct home *a = dist_home(m->k, arg->dist, arg->type.axes[i]),
                          *b = dist_home(m->k, dist, arg->type.axes[i]);
        bool same = a && b && a->nbits == b->nbits;
        for (int j = 0; same && j < a->nbits; j++)
            same = a->bits[j].home == b->bits[j].home && a->bits[j].pos == b->bits[j].pos;
        if (!same)
            return em_refuse(m, arg->loc,
                             "axis '%s' of a value in layout '%s' is used where layout '%s' has it elsewhere",
                             arg->type.axes[i]->name, m->k->dists.v[arg->dist].name, m->k->dists.v[dist].name);
    }
    return true;
}

// Element (idx of t's axes) of the operand, broadcast along the axes it lacks, as element type `as`.
val em_elem(struct em *m, const struct op *arg, int dist, const struct type *t, const int *idx, enum elem as)
{
    struct tile x = em_tile(m, arg);
    if (!same_homes(m, arg, dist))
        return mb_poison(m->mb, em_type(m, as));
    int e = arg->type.rank ? em_join(m, dist, &arg->type, t, idx) : 0;
    return em_convert(m, arg->type.elem, as, x.v[e]);
}

// ---- element-wise operations -------------------------------------------------------------------------------------

static val divide(struct em *m, enum opcode op, val a, val d)
{
    struct mb *b = m->mb;
    int64_t k;
    const char *name = op == OP_DIV ? "sdiv" : "srem";
    if (mb_const_int(b, d, &k) && k != 0 && k != -1) {
        int64_t x;
        if (mb_const_int(b, a, &x))
            return mb_i32(b, op == OP_DIV ? x / k : x % k);
        return mb_bin(b, name, a, d);
    }
    val zero = mb_i32(b, 0), one = mb_i32(b, 1);
    val by0 = mb_icmp(b, IC_EQ, d, zero), minus = mb_icmp(b, IC_EQ, d, mb_i32(b, -1));
    val safe = mb_select(b, mb_bin(b, "or", by0, minus), one, d), q = mb_bin(b, name, a, safe);
    if (op == OP_REM)
        return q; // by 1: 0
    q = mb_select(b, minus, mb_bin(b, "sub", zero, a), q);
    return mb_select(b, by0, zero, q);
}

static val shift(struct em *m, const char *name, val a, val n)
{
    return mb_bin(m->mb, name, a, mb_bin(m->mb, "and", n, mb_i32(m->mb, 31)));
}

static val compare(struct em *m, enum opcode op, enum elem e, val a, val c)
{
    static const enum icmp ic[] = { IC_SLT, IC_SLE, IC_SGT, IC_SGE, IC_EQ, IC_NE };
    static const enum fcmp fc[] = { FC_OLT, FC_OLE, FC_OGT, FC_OGE, FC_OEQ, FC_UNE };
    return e == EL_F32 ? mb_fcmp(m->mb, fc[op - OP_LT], a, c) : mb_icmp(m->mb, ic[op - OP_LT], a, c);
}

// An i32 key with the order of x: negative numbers have their magnitude bits flipped.
static val order_key(struct em *m, val x)
{
    struct mb *b = m->mb;
    val bits = mb_un(b, "bitcast", x, m->ty->i32), zero = mb_i32(b, 0);
    val flip = mb_bin(b, "and", mb_bin(b, "ashr", bits, mb_i32(b, 31)), mb_i32(b, 0x7fffffff));
    val key = mb_bin(b, "xor", bits, flip);
    key = mb_select(b, mb_fcmp(b, FC_OEQ, x, mb_f32(b, 0)), zero, key);
    return mb_select(b, mb_fcmp(b, FC_UNO, x, x), mb_i32(b, INT32_MIN + 1), key);
}

static val arithmetic(struct em *m, enum opcode op, enum elem e, val a, val c)
{
    struct mb *b = m->mb;
    bool f = e == EL_F32;
    switch ((int)op) {
    case OP_ADD: return mb_bin(b, f ? "fadd" : "add", a, c);
    case OP_SUB: return mb_bin(b, f ? "fsub" : "sub", a, c);
    case OP_MUL: return mb_bin(b, f ? "fmul" : "mul", a, c);
    case OP_DIV: return f ? mb_bin(b, "fdiv", a, c) : divide(m, op, a, c);
    case OP_REM: return divide(m, op, a, c);
    case OP_MIN:
    case OP_MAX:
        if (f)
            return m->t->math(&m->e, op, a, c);
        return mb_select(b, mb_icmp(b, op == OP_MIN ? IC_SLT : IC_SGT, a, c), a, c);
    case OP_AND: return mb_bin(b, "and", a, c);
    case OP_OR: return mb_bin(b, "or", a, c);
    case OP_XOR: return mb_bin(b, "xor", a, c);
    case OP_SHL: return shift(m, "shl", a, c);
    case OP_SHR: return shift(m, "ashr", a, c);
    }
    return compare(m, op, e, a, c);
}

static val unary(struct em *m, const struct op *op, enum elem e, val a)
{
    struct mb *b = m->mb;
    switch ((int)op->code) {
    case OP_NEG: return e == EL_F32 ? mb_un(b, "fneg", a, m->ty->f32) : mb_bin(b, "sub", mb_i32(b, 0), a);
    case OP_ABS:
        if (e == EL_F32)
            return mb_op(b, "llvm.intr.fabs", m->ty->f32, 1, &a, NULL);
        return mb_select(b, mb_icmp(b, IC_SLT, a, mb_i32(b, 0)), mb_bin(b, "sub", mb_i32(b, 0), a), a);
    case OP_NOT: return mb_bin(b, "xor", a, e == EL_BOOL ? mb_i1(b, true) : mb_i32(b, -1));
    case OP_ORDER: return order_key(m, a);
    }
    return m->t->math(&m->e, op->code, a, NOVAL);
}

// The element type an operation computes in.
static enum elem computes_in(const struct op *op)
{
    enum elem e = op->args[0]->type.elem, f = op->nargs > 1 ? op->args[1]->type.elem : e;
    switch (op_infos[op->code].rule) {
    case TR_ARITH:
    case TR_FLOAT:
    case TR_COMPARE: return elem_is_float(e) || elem_is_float(f) ? EL_F32 : e;
    default: return op->code == OP_ORDER ? EL_F32 : e;
    }
}

static val element(struct em *m, const struct op *op, const int *idx)
{
    enum elem e = op->nargs ? computes_in(op) : op->type.elem;
    const struct type *t = &op->type;
    if (op->code == OP_SELECT)
        return mb_select(m->mb, em_elem(m, op->args[0], op->dist, t, idx, EL_BOOL),
                         em_elem(m, op->args[1], op->dist, t, idx, op->type.elem),
                         em_elem(m, op->args[2], op->dist, t, idx, op->type.elem));
    if (op->code == OP_CAST)
        return em_elem(m, op->args[0], op->dist, t, idx, op->type.elem);
    val a = em_elem(m, op->args[0], op->dist, t, idx, e);
    if (op->nargs == 1)
        return unary(m, op, e, a);
    return arithmetic(m, op->code, e, a, em_elem(m, op->args[1], op->dist, t, idx, e));
}

static val leaf(struct em *m, const struct op *op)
{
    switch ((int)op->code) {
    case OP_CONST:
        if (op->type.elem == EL_BOOL)
            return mb_i1(m->mb, op->ival != 0);
        return op->type.elem == EL_I32 ? mb_i32(m->mb, op->ival) : mb_float(m->mb, em_type(m, op->type.elem), op->fval);
    case OP_DIM:
        for (int i = 0; i < m->k->dims.n; i++)
            if (m->k->dims.v[i] == op->dim)
                return m->dim[i];
        break;
    case OP_SCALAR: return m->e.args[op->param];
    case OP_ORIGIN:
        if (op->region)
            return m->counter[op->region->id * CLAUSES + op->clause];
        return m->origin[op->axis->id];
    }
    return mb_i32(m->mb, 0);
}

void em_value(struct em *m, const struct op *op)
{
    struct tile *t = &m->ops[op->id];
    t->packed = false;
    t->n = em_elems(m, op->dist, &op->type);
    t->v = NEWN(m->c->arena, val, t->n);
    for (int e = 0; e < t->n; e++) {
        int idx[RANK_MAX];
        em_split(m, op->dist, &op->type, e, idx);
        if (op->code == OP_INDEX)
            t->v[e] = em_index(m, op->dist, op->axis, idx[0]);
        else if (!op->nargs)
            t->v[e] = leaf(m, op);
        else
            t->v[e] = element(m, op, idx);
    }
}
