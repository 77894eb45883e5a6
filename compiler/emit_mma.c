// Part of emit: matrix products. The operands stand in shared memory, the accumulators in registers, in the homes that
// layout.c took from the instruction's own map.
//
// Accumulators of a warp: MT x NT instructions of 2^rm x 2^rn elements. Register element of the tile = (m index) << NB |
// n index, each index = instruction << r | the element's bits along that axis. Packed: vectors of acc_pack elements, instruction by instruction.
#include "emit.h"

#include <string.h>

struct geometry {
    const struct mma *i;
    const struct axis *am, *an; // of the accumulator
    int rm, rn;                 // register bits inside an instruction
    int mbits, nbits;           // all register bits of the axis
    int mt, nt;                 // instructions of this warp
};

static int map_regs(const char *map)
{
    struct bit b[BITS_MAX];
    int n = bits_parse(map, b, BITS_MAX), r = 0;
    for (int i = 0; i < n; i++)
        r += b[i].home == BIT_REG;
    return r;
}

// The bits of q, an element's number inside an instruction, that stand in the map, as a number.
static int map_index(const char *map, int q)
{
    struct bit b[BITS_MAX];
    int n = bits_parse(map, b, BITS_MAX), at = 0, x = 0;
    for (int i = 0; i < n; i++)
        if (b[i].home == BIT_REG)
            x |= (q >> b[i].pos & 1) << at++;
    return x;
}

static struct geometry geometry_of(const struct em *m, const struct type *t)
{
    struct geometry g = { .i = &m->e.arch->mmas[m->k->sched.mma], .am = t->axes[0], .an = t->axes[1] };
    g.rm = map_regs(g.i->d.row);
    g.rn = map_regs(g.i->d.col);
    g.mbits = em_reg_bits(m, 0, g.am);
    g.nbits = em_reg_bits(m, 0, g.an);
    g.mt = 1 << (g.mbits - g.rm);
    g.nt = 1 << (g.nbits - g.rn);
    return g;
}

// Tile element of element q of instruction (mt, nt).
static int element(const struct geometry *g, int mt, int nt, int q)
{
    int i = mt << g->rm | map_index(g->i->d.row, q), j = nt << g->rn | map_index(g->i->d.col, q);
    return i << g->nbits | j;
}

struct tile em_pack(struct em *m, const struct type *t, struct tile x)
{
    struct geometry g = geometry_of(m, t);
    int pack = g.i->acc_pack, per = 1 << (g.rm + g.rn), n = x.n;
    struct tile out = { .n = n, .packed = true, .v = NEWN(m->c->arena, val, n / pack) };
    mty vec = mb_vec(m->mb, pack, m->ty->f32);
    bool same = true;
    for (int e = 1; e < n; e++)
        same &= x.v[e].p == x.v[0].p;
    for (int k = 0; k < n / pack; k++) {
        if (same && k) {
            out.v[k] = out.v[0];
            continue;
        }
        val v = mb_poison(m->mb, vec);
        int inst = k * pack / per;
        for (int q = 0; q < pack; q++)
            v = mb_vinsert(m->mb, v, x.v[element(&g, inst / g.nt, inst % g.nt, k * pack % per + q)], q);
        out.v[k] = v;
    }
    return out;
}

struct tile em_unpack(struct em *m, const struct type *t, struct tile x)
{
    struct geometry g = geometry_of(m, t);
    int pack = g.i->acc_pack, per = 1 << (g.rm + g.rn);
    struct tile out = { .n = x.n, .v = NEWN(m->c->arena, val, x.n) };
    for (int k = 0; k < x.n / pack; k++) {
        int inst = k * pack / per;
        for (int q = 0; q < pack; q++)
            out.v[element(&g, inst / g.nt, inst % g.nt, k * pack % per + q)] = mb_vextract(m->mb, x.v[k], q);
    }
    return out;
}

// ---- what a layout must be for the instruction -------------------------------------------------------------------

static int log2_of(int v)
{
    int n = 0;
    while (1 << n < v)
        n++;
    return n;
}

// The axis has the instruction's bits lowest, then registers up to the rows of a fetch, then registers and warps.
static bool axis_fits(struct em *m, const struct op *op, const struct axis *a, const char *map, int fetch_rows)
{
    struct bit b[BITS_MAX];
    const struct home *h = dist_home(m->k, 0, a);
    int n = bits_parse(map, b, BITS_MAX), reg = 0;
    bool fits = h && h->nbits >= n && h->nbits >= log2_of(fetch_rows);
    for (int i = 0; fits && i < h->nbits; i++) {
        if (i < n)
            fits = h->bits[i].home == b[i].home && h->bits[i].pos == (b[i].home == BIT_REG ? reg : b[i].pos);
        else if (1 << i < fetch_rows)
            fits = h->bits[i].home == BIT_REG && h->bits[i].pos == reg;
        else
            fits = h->bits[i].home != BIT_LANE;
        reg += h->bits[i].home == BIT_REG;
    }
    return fits ||
           em_refuse(m, op->loc,
                     "the matrix instruction '%s' needs axis '%s' in layout 'main' as { %s }, then registers up "
                     "to %d positions, then registers and warps",
                     m->e.arch->mmas[m->k->sched.mma].name, a->name, map, fetch_rows);
}

// Can a descriptor name the buffer's slots?
static bool described(const struct buf *b)
{
    int row = b->cols * elem_bytes[b->elem];
    return (row == 32 || row == 64 || row == 128) && row == 16 << b->swizzle && b->offset % 1024 == 0 &&
           b->rows * row % 1024 == 0;
}

static bool op_fits(struct em *m, const struct op *op)
{
    const struct op *acc = op->args[0];
    if (m->k->sched.mma < 0)
        return em_refuse(m, op->loc, "a matrix product needs a matrix instruction (@mma)");
    const struct mma *i = &m->e.arch->mmas[m->k->sched.mma];
    bool order = !acc->type.rank || (acc->dist == 0 && type_equal(&acc->type, &op->type));
    if (op->dist || op->type.rank != 2 || !order)
        return em_refuse(m, op->loc, "a matrix product and what it adds to have the same axes, in layout 'main'");
    if (op->buf->elem != i->in || op->buf2->elem != i->in)
        return em_refuse(m, op->loc, "the matrix instruction '%s' takes operands of %s", i->name, elem_names[i->in]);
    if (op->buf->cols % i->a.fetch_k || op->buf2->cols % i->b.fetch_k)
        return em_refuse(m, op->loc, "the matrix instruction '%s' takes multiples of %d columns, not %d", i->name,
                         i->a.fetch_k, op->buf->cols);
    if (m->k->sched.swap || i->kind == MMA_TENSOR)
        return em_fail(m, op->loc, "matrix instructions of this kind are not emitted");
    if (i->kind == MMA_WARPGROUP && !(described(op->buf) && described(op->buf2)))
        return em_refuse(m, op->loc,
                         "the matrix instruction '%s' takes operands with rows of 32, 64 or 128 bytes in the swizzle "
                         "of that width (1, 2, 3), at multiples of 1024 bytes",
                         i->name);
    return axis_fits(m, op, op->type.axes[0], i->d.row, i->a.fetch_rows) &&
           axis_fits(m, op, op->type.axes[1], i->d.col, i->b.fetch_rows);
}

// ---- fragments ---------------------------------------------------------------------------------------------------

struct operand { // one side of an mma: where this lane's runs start, and what one fetch covers
    const struct operand_map *map;
    const struct axis *axis;
    struct lin lin;
    val slot;
    int unit;     // rows of an instruction
    int rows, ks; // instructions of one fetch along the rows and along k
    int blocks;   // fetches along the rows of this warp
    val *frag;    // [block * rows * ks]: of the current k step
};

// The value whose bits come from the lane as the map says: "l2 l3 -" ...
static val lane_bits(struct em *m, const char *map, int64_t *possible)
{
    struct bit b[BITS_MAX];
    int n = bits_parse(map, b, BITS_MAX);
    val x = mb_i32(m->mb, 0);
    *possible = 0;
    for (int i = 0, run; i < n; i += run) {
        run = 1;
        if (b[i].home != BIT_LANE)
            continue;
        while (i + run < n && b[i + run].home == BIT_LANE && b[i + run].pos == b[i].pos + run)
            run++;
        val y = mb_bin(m->mb, "and", mb_bin(m->mb, "lshr", m->e.lane, mb_i32(m->mb, b[i].pos)),
                       mb_i32(m->mb, (1 << run) - 1));
        x = mb_bin(m->mb, "or", x, mb_bin(m->mb, "shl", y, mb_i32(m->mb, i)));
        *possible |= (int64_t)((1 << run) - 1) << i;
    }
    return x;
}

// Position bits of the axis, from bit `first` on, that the warp number gives.
static val warp_bits(struct em *m, const struct axis *a, int first, int64_t *possible)
{
    const struct home *h = dist_home(m->k, 0, a);
    val x = mb_i32(m->mb, 0);
    for (int i = first; i < h->nbits; i++) {
        if (h->bits[i].home != BIT_WARP)
            continue;
        val y = mb_bin(m->mb, "and", mb_bin(m->mb, "lshr", m->e.warp, mb_i32(m->mb, h->bits[i].pos)), mb_i32(m->mb, 1));
        x = mb_bin(m->mb, "or", x, mb_bin(m->mb, "shl", y, mb_i32(m->mb, i)));
        *possible |= (int64_t)1 << i;
    }
    return x;
}

static void open_operand(struct em *m, struct operand *o, const struct operand_map *map, const struct axis *a, int unit,
                         int tiles, int k, const struct buf *b, val slot)
{
    int64_t row_possible, k_possible;
    val row = lane_bits(m, map->addr_row, &row_possible), col = lane_bits(m, map->addr_k, &k_possible);
    row = mb_bin(m->mb, "or", row, warp_bits(m, a, log2_of(map->fetch_rows), &row_possible));
    *o = (struct operand){ .map = map, .axis = a, .slot = slot, .unit = unit };
    o->lin = em_lin(m, b, row, row_possible, col, k_possible);
    o->rows = map->fetch_rows / unit;
    o->ks = map->fetch_k / k;
    o->blocks = tiles / o->rows;
    o->frag = NEWN(m->c->arena, val, o->blocks * o->rows * o->ks);
}

// All fragments of the k columns [col, col + fetch_k).
static void fetch(struct em *m, struct operand *o, const struct mma *i, int col)
{
    const struct home *h = dist_home(m->k, 0, o->axis);
    int inner = log2_of(o->map->fetch_rows), skip = 0;
    for (int j = 0; j < inner; j++)
        skip += h->bits[j].home == BIT_REG; // register bits below the fetch
    for (int b = 0; b < o->blocks; b++) {
        int row = em_reg_pos(m, 0, o->axis, b << skip);
        val p = em_lin_ptr(m, &o->lin, o->slot, row, col);
        m->t->fragment(&m->e, i, o->map, o->lin.buf, p, o->frag + b * o->rows * o->ks);
    }
}

// Operand of instruction row t and k step s inside the fetch.
static val frag(const struct operand *o, int t, int s)
{
    return o->frag[(t / o->rows * o->rows + t % o->rows) * o->ks + s];
}

// ---- one or more products together -------------------------------------------------------------------------------

enum { TOGETHER = 8 };

struct product {
    const struct op *op;
    struct geometry g;
    struct operand a, b;
    struct tile acc;
};

static void multiply(struct em *m, struct product *p, int s)
{
    const struct mma *i = p->g.i;
    int per = 1 << (p->g.rm + p->g.rn), pack = i->acc_pack;
    for (int nt = 0; nt < p->g.nt; nt++)
        for (int mt = 0; mt < p->g.mt; mt++) {
            val acc[128];
            for (int q = 0; q < per / pack; q++)
                acc[q] =
                    pack > 1 ? p->acc.v[(mt * p->g.nt + nt) * (per / pack) + q] : p->acc.v[element(&p->g, mt, nt, q)];
            m->t->mma(&m->e, i, frag(&p->a, mt, s), frag(&p->b, nt, s), acc);
            for (int q = 0; q < per / pack; q++)
                *(pack > 1 ? &p->acc.v[(mt * p->g.nt + nt) * (per / pack) + q] : &p->acc.v[element(&p->g, mt, nt, q)]) =
                    acc[q];
        }
}

static struct tile accumulator(struct em *m, const struct op *op)
{
    const struct op *a = op->args[0];
    bool packed = m->e.arch->mmas[m->k->sched.mma].acc_pack > 1;
    struct tile t = m->ops[a->id], out;
    if (!a->type.rank) { // a scalar first value: the same everywhere
        int n = em_elems(m, 0, &op->type);
        struct tile all = { .n = n, .v = NEWN(m->c->arena, val, n) };
        for (int e = 0; e < n; e++)
            all.v[e] = t.v[0];
        t = all;
    }
    if (packed && !t.packed)
        t = em_pack(m, &op->type, t);
    int n = packed ? t.n / m->e.arch->mmas[m->k->sched.mma].acc_pack : t.n;
    out = (struct tile){ .n = t.n, .packed = t.packed, .v = NEWN(m->c->arena, val, n) };
    memcpy(out.v, t.v, sizeof(val) * (size_t)n);
    return out;
}

static void open_product(struct em *m, struct product *p, const struct op *op)
{
    p->op = op;
    p->g = geometry_of(m, &op->type);
    p->acc = accumulator(m, op);
    open_operand(m, &p->a, &p->g.i->a, p->g.am, p->g.i->m, p->g.mt, p->g.i->k, op->buf, em_scalar(m, op->args[1]));
    open_operand(m, &p->b, &p->g.i->b, p->g.an, p->g.i->n, p->g.nt, p->g.i->k, op->buf2, em_scalar(m, op->args[2]));
}

// Products that read the same a (gate and up) run together, k step by k step, and fetch it once.
static void multiply_all(struct em *m, struct product *p, int n)
{
    const struct mma *i = p[0].g.i;
    int step = i->a.fetch_k;
    if (m->t->mma_open && i->kind != MMA_WARP)
        m->t->mma_open(&m->e);
    for (int col = 0; col < p[0].op->buf->cols; col += step) {
        fetch(m, &p[0].a, i, col);
        for (int j = 0; j < n; j++) {
            if (j)
                p[j].a.frag = p[0].a.frag;
            fetch(m, &p[j].b, i, col);
        }
        for (int s = 0; s < p[0].a.ks; s++)
            for (int j = 0; j < n; j++)
                multiply(m, &p[j], s);
    }
    for (int j = 0; j < n; j++)
        m->ops[p[j].op->id] = p[j].acc;
}

static bool set_between(const struct block *b, int first, int at, const struct var *v)
{
    for (int i = first; i < at; i++)
        if (b->ops.v[i]->code == OP_SET && b->ops.v[i]->var == v)
            return true;
    return false;
}

void em_mma_run(struct em *m, const struct block *b, int first)
{
    struct product p[TOGETHER];
    const struct op *f = b->ops.v[first];
    int n = 1;
    if (!op_fits(m, f))
        return;
    open_product(m, &p[0], f);
    for (int i = first + 1; i < b->ops.n && n < TOGETHER; i++) {
        const struct op *op = b->ops.v[i];
        if (op->code == OP_SET || op->code == OP_CONST)
            continue;
        if (op->code == OP_GET && !set_between(b, first, i, op->var)) {
            if (!m->ops[op->id].v)
                m->ops[op->id] = m->vars[op->var->id];
            continue;
        }
        if (op->code != OP_MMA || op->buf != f->buf || op->args[1] != f->args[1] ||
            op->type.axes[0] != f->type.axes[0] || !m->ops[op->args[0]->id].v || !m->ops[op->args[2]->id].v ||
            !op_fits(m, op))
            break;
        open_product(m, &p[n++], op);
    }
    multiply_all(m, p, n);
}

// Until at most `pending` groups of products are under way; 0: the accumulators' values are those behind the wait.
void em_mma_wait(struct em *m, int pending)
{
    int n = 0;
    if (m->k->sched.mma < 0 || m->e.arch->mmas[m->k->sched.mma].kind == MMA_WARP)
        return;
    for (int i = 0; i < m->k->vars.n && !pending; i++)
        n += m->acc_var[i] ? m->vars[i].n : 0;
    val *all = NEWN(m->c->arena, val, n + 1), *v = all;
    for (int i = 0; i < m->k->vars.n && n; i++)
        if (m->acc_var[i]) {
            memcpy(v, m->vars[i].v, sizeof(val) * (size_t)m->vars[i].n);
            v += m->vars[i].n;
        }
    m->t->mma_wait(&m->e, pending, n, all);
    v = all;
    for (int i = 0; i < m->k->vars.n && n; i++)
        if (m->acc_var[i]) {
            m->vars[i].v = v;
            v += m->vars[i].n;
        }
}
