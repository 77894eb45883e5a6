// Pass `layout`: where everything lives. In: a scheduled kernel. Out: the same computation with explicit copies, waits,
// barriers and shared buffers (layout_dot.c, ring.c), and a home for every axis of every register tile.
//
// One axis has one home in a distribution, whatever tile it stands in: element-wise operations then never move data, a
// reduction only drops an axis, and the only exchange among warps is through the buffers written out above. Axes that
// meet in one tile must use different thread bits; axes that never meet may share them.
#include "layout.h"

#include <stdio.h>
#include <string.h>

bool lay_fail(struct lay *l, struct loc at, const char *fmt, ...)
{
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->failed = true;
    return error(l->c, at, "%s", text);
}

int lay_set_home(struct lay *l, int dist, struct axis *a, int n, const struct bit *bits)
{
    struct home h = { .axis = a, .nbits = n };
    memcpy(h.bits, bits, sizeof(struct bit) * (size_t)n);
    VEC_PUSH(l->c->arena, &l->k->dists.v[dist].homes, h);
    return dist;
}

int lay_dist(struct lay *l, const char *name)
{
    for (int i = 0; i < l->k->dists.n; i++)
        if (!strcmp(l->k->dists.v[i].name, name))
            return i;
    struct dist d = { .name = name };
    VEC_PUSH(l->c->arena, &l->k->dists, d);
    return l->k->dists.n - 1;
}

// ---- distributions of copies -------------------------------------------------------------------------------------

// 16-byte runs along the columns, the rest of a row over the next lanes, rows over what is left of the block.
int lay_copy_dist(struct lay *l, struct axis *rows, struct axis *cols, int warp_bits)
{
    struct bit r[BITS_MAX], c[BITS_MAX];
    int nr = log2_exact(rows->size), nc = log2_exact(cols->size), lane = 0, warp = 0, reg = 0;
    int dist = lay_dist(l, arena_printf(l->c->arena, "copy_%dx%d", rows->size, cols->size));
    for (int i = 0; i < nc; i++)
        if (i < 3)
            c[i] = (struct bit){ BIT_REG, (int8_t)reg++ };
        else if (lane < l->lane_bits)
            c[i] = (struct bit){ BIT_LANE, (int8_t)lane++ };
        else
            c[i] = (struct bit){ BIT_REG, (int8_t)reg++ };
    reg = 0;
    for (int i = 0; i < nr; i++)
        if (lane < l->lane_bits)
            r[i] = (struct bit){ BIT_LANE, (int8_t)lane++ };
        else if (warp < warp_bits)
            r[i] = (struct bit){ BIT_WARP, (int8_t)warp++ };
        else
            r[i] = (struct bit){ BIT_REG, (int8_t)reg++ };
    if (!dist_home(l->k, dist, rows))
        lay_set_home(l, dist, rows, nr, r);
    if (!dist_home(l->k, dist, cols))
        lay_set_home(l, dist, cols, nc, c);
    return dist;
}

// ---- dead code ---------------------------------------------------------------------------------------------------

struct uses {
    struct lay *l;
    int *op;    // by op id: how many uses
    int *var;   // by var id: how many reads
    bool *axis; // by axis id: is it named by an op that stays
};

static bool count_uses(void *user, struct op *op)
{
    struct uses *u = user;
    for (int i = 0; i < op->nargs; i++)
        u->op[op->args[i]->id]++;
    if (op->code == OP_GET)
        u->var[op->var->id]++;
    if (op->axis && op->code != OP_AT && op->code != OP_FOR && op->code != OP_RANGE)
        u->axis[op->axis->id] = true;
    for (int i = 0; i < op->type.rank; i++)
        u->axis[op->type.axes[i]->id] = true;
    for (int i = 0; i < op->nclauses; i++) {
        if (op->clauses[i].lo)
            u->op[op->clauses[i].lo->id]++;
        if (op->clauses[i].hi)
            u->op[op->clauses[i].hi->id]++;
    }
    return true;
}

static struct uses uses_of(struct lay *l)
{
    struct kernel *k = l->k;
    struct uses u = { l, NEWN(l->c->arena, int, k->nops + 1), NEWN(l->c->arena, int, k->vars.n + 1),
                      NEWN(l->c->arena, bool, k->axes.n + 1) };
    walk(k->body, count_uses, &u);
    return u;
}

static void keep_bounds(struct kernel *k, struct uses *u)
{
    for (int i = 0; i < k->axes.n; i++) {
        if (k->axes.v[i]->lo)
            u->op[k->axes.v[i]->lo->id]++;
        if (k->axes.v[i]->hi)
            u->op[k->axes.v[i]->hi->id]++;
    }
}

static bool dead(const struct uses *u, const struct op *op)
{
    unsigned f = op_infos[op->code].flags;
    if (op->code == OP_VAR || op->code == OP_SET)
        return !u->var[op->var->id];
    if (op->code == OP_RANGE)
        return !u->axis[op->axis->id];
    return !(f & F_EFFECT) && !u->op[op->id];
}

static int sweep(struct uses *u, struct block *b)
{
    int kept = 0, removed = 0;
    for (int i = 0; i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (op->body)
            removed += sweep(u, op->body);
        if (op->other)
            removed += sweep(u, op->other);
        if (dead(u, op))
            removed++;
        else
            b->ops.v[kept++] = op;
    }
    b->ops.n = kept;
    return removed;
}

void lay_dead(struct lay *l)
{
    struct kernel *k = l->k;
    for (;;) {
        struct uses u = uses_of(l);
        keep_bounds(k, &u);
        if (!sweep(&u, k->body))
            return;
    }
}

// An `at` whose axis nothing names any more is only its block.
static void flatten(struct lay *l, const struct uses *u, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        struct op *op = old[i];
        if (op->body)
            flatten(l, u, op->body);
        if (op->other)
            flatten(l, u, op->other);
        if (op->code == OP_AT && !u->axis[op->axis->id])
            for (int j = 0; j < op->body->ops.n; j++) {
                if (op->body->ops.v[j]->body)
                    op->body->ops.v[j]->body->parent = op->body->ops.v[j];
                block_push(l->c, b, op->body->ops.v[j]);
            }
        else
            block_push(l->c, b, op);
    }
}

static void flatten_all(struct lay *l)
{
    struct kernel *k = l->k;
    struct uses u = uses_of(l);
    flatten(l, &u, k->body);
    // Axes that are gone, `at` and all, leave the kernel's list, so that nobody places them.
    walk(k->body, count_uses, &u);
    int kept = 0;
    for (int i = 0; i < k->axes.n; i++) {
        struct axis *a = k->axes.v[i];
        if (a->def && a->def->code == OP_AT && !u.axis[a->id])
            continue;
        k->axes.v[kept++] = a;
    }
    k->axes.n = kept;
    for (int i = 0; i < kept; i++)
        k->axes.v[i]->id = i;
}

// ---- homes of the main distribution ------------------------------------------------------------------------------

struct meet { // which axes stand together in some register tile of the main distribution
    struct lay *l;
    bool *with; // [id * n + id]
    bool *used, *reduced;
    int *vector; // by axis: bits of the longest run of contiguous elements that an access may take
    int n;
};

static bool reduces(const struct op *op)
{
    return op->code == OP_REDUCE_SUM || op->code == OP_REDUCE_MAX || op->code == OP_REDUCE_MIN ||
           op->code == OP_SCAN_SUM;
}

static void note_vector(struct meet *m, const struct op *op)
{
    int last = op->code == OP_LOAD ? op->nargs - 1 : op->code == OP_STORE ? op->nargs - 2 : -1;
    if (last < 0 || op->dist || op->args[last]->code != OP_INDEX)
        return;
    int *v = &m->vector[op->args[last]->axis->id], bits = log2_exact(16 / elem_bytes[op->buf->elem]);
    *v = bits > *v ? bits : *v;
}

static bool look(void *user, struct op *op)
{
    struct meet *m = user;
    const struct type *t = op->code == OP_VAR ? &op->var->type : &op->type;
    int dist = op->code == OP_VAR ? op->var->dist : op->dist;
    note_vector(m, op);
    if (reduces(op))
        m->reduced[op->axis->id] = true;
    for (int i = 0; i < t->rank && !dist; i++) {
        m->used[t->axes[i]->id] = true;
        for (int j = 0; j < t->rank; j++)
            m->with[t->axes[i]->id * m->n + t->axes[j]->id] = true;
    }
    return true;
}

// The two axes of the accumulators: the instruction's bits, then the warp's further tiles, then the warps. A warp has
// at least the positions of one fetch of the operand, which may be those of several instructions.
static bool acc_home(struct lay *l, struct axis *a, const char *map, int unit, int warps, int first_warp)
{
    struct bit bits[BITS_MAX];
    int n = bits_parse(map, bits, BITS_MAX), all = log2_exact(a->size), reg = 0;
    if (dist_home(l->k, 0, a)) {
        const struct home *h = dist_home(l->k, 0, a);
        if (h->nbits == all && h->bits[0].home == bits[0].home)
            return true;
        return lay_fail(l, a->loc, "axis '%s' is the row of one dot and the column of another", a->name);
    }
    int w = log2_exact(warps), most = log2_exact(a->size / unit);
    for (int i = 0; i < n; i++) {
        if (bits[i].home == BIT_REG)
            bits[i].pos = (int8_t)reg++;
        first_warp += bits[i].home == BIT_WARP; // the warps of one instruction are the lowest
        w -= bits[i].home == BIT_WARP;
    }
    if (a->size < unit)
        return lay_fail(l, l->k->sched.loc.line ? l->k->sched.loc : a->loc,
                        "axis '%s' has %d positions, the matrix instruction '%s' takes %d at a time", a->name, a->size,
                        l->c->arch->mmas[l->k->sched.mma].name, unit);
    if (w < 0)
        return lay_fail(l, a->loc, "%d warps along axis '%s': the matrix instruction '%s' takes %d", warps, a->name,
                        l->c->arch->mmas[l->k->sched.mma].name, l->c->arch->mmas[l->k->sched.mma].warps);
    w = w < most ? w : most; // further warps repeat the work
    for (; n < all - w; n++)
        bits[n] = (struct bit){ BIT_REG, (int8_t)reg++ };
    for (int i = 0; i < w; i++)
        bits[n++] = (struct bit){ BIT_WARP, (int8_t)(first_warp + i) };
    lay_set_home(l, 0, a, all, bits);
    return true;
}

static bool place_mma(void *user, struct op *op)
{
    struct lay *l = user;
    const struct sched *s = &l->k->sched;
    if (op->code != OP_MMA)
        return true;
    const struct mma *i = &l->c->arch->mmas[s->mma];
    return acc_home(l, op->type.axes[0], i->d.row, i->a.fetch_rows, s->warps_m, 0) &&
           acc_home(l, op->type.axes[1], i->d.col, i->b.fetch_rows, s->warps_n, log2_exact(s->warps_m));
}

struct taken {
    unsigned lane, warp;
    int regs; // register bits of the axes that meet this one
};

static struct taken taken_by(const struct meet *m, const struct axis *a)
{
    struct taken t = { 0 };
    for (int j = 0; j < m->l->k->axes.n; j++) {
        const struct home *h = dist_home(m->l->k, 0, m->l->k->axes.v[j]);
        if (!h || h->axis == a || !m->with[a->id * m->n + h->axis->id])
            continue;
        for (int i = 0; i < h->nbits; i++) {
            if (h->bits[i].home == BIT_LANE)
                t.lane |= 1u << h->bits[i].pos;
            else if (h->bits[i].home == BIT_WARP)
                t.warp |= 1u << h->bits[i].pos;
            else
                t.regs++;
        }
    }
    return t;
}

enum { REG_BITS = 4 }; // a tile along a reduced axis stays in one warp up to 2^4 elements a thread

static void place(struct meet *m, struct axis *a)
{
    struct lay *l = m->l;
    struct taken t = taken_by(m, a);
    struct bit bits[BITS_MAX];
    int all = log2_exact(a->size), n = 0, reg = 0, lanes = 0, warps = 0;
    for (int i = 0; i < l->lane_bits; i++)
        lanes += !(t.lane >> i & 1);
    for (int i = 0; i < l->warp_bits; i++)
        warps += !(t.warp >> i & 1);
    int vec = all - lanes < m->vector[a->id] ? all - lanes : m->vector[a->id];
    for (; n < vec; n++)
        bits[n] = (struct bit){ BIT_REG, (int8_t)reg++ };
    for (int i = 0; i < l->lane_bits && n < all; i++)
        if (!(t.lane >> i & 1))
            bits[n++] = (struct bit){ BIT_LANE, (int8_t)i };
    int keep = m->reduced[a->id] ? REG_BITS - t.regs - reg : 0; // register bits before the warps
    if (all - n > keep + warps)
        keep = all - n - warps;
    for (; keep > 0 && n < all; keep--)
        bits[n++] = (struct bit){ BIT_REG, (int8_t)reg++ };
    for (int i = 0; i < l->warp_bits && n < all; i++)
        if (!(t.warp >> i & 1))
            bits[n++] = (struct bit){ BIT_WARP, (int8_t)i };
    for (; n < all; n++)
        bits[n] = (struct bit){ BIT_REG, (int8_t)reg++ };
    lay_set_home(l, 0, a, all, bits);
}

static bool main_homes(struct lay *l)
{
    struct kernel *k = l->k;
    struct meet m = { .l = l, .n = k->axes.n };
    m.with = NEWN(l->c->arena, bool, m.n *m.n + 1);
    m.used = NEWN(l->c->arena, bool, m.n + 1);
    m.reduced = NEWN(l->c->arena, bool, m.n + 1);
    m.vector = NEWN(l->c->arena, int, m.n + 1);
    walk(k->body, look, &m);
    for (int i = 0; i < k->axes.n; i++)
        if (m.used[i] && log2_exact(k->axes.v[i]->size) > BITS_MAX)
            lay_fail(l, k->axes.v[i]->loc,
                     "axis '%s' has %d positions in one tile, at most %d fit; loop over tiles of it",
                     k->axes.v[i]->name, k->axes.v[i]->size, 1 << BITS_MAX);
    if (l->failed || !walk(k->body, place_mma, l) || l->failed)
        return false;
    for (int pass = 0; pass < 2; pass++) // contiguous axes choose their lanes first
        for (int i = 0; i < k->axes.n; i++)
            if (m.used[i] && !dist_home(k, 0, k->axes.v[i]) && (pass || m.vector[i]))
                place(&m, k->axes.v[i]);
    return true;
}

// ---- what is left ------------------------------------------------------------------------------------------------

// Warps that no axis uses would only repeat the work of the others.
static void trim_warps(struct lay *l)
{
    int most = 0;
    if (l->k->sched.mma >= 0 || l->k->dists.n > 1)
        return;
    for (int i = 0; i < l->k->dists.v[0].homes.n; i++) {
        const struct home *h = &l->k->dists.v[0].homes.v[i];
        for (int j = 0; j < h->nbits; j++)
            if (h->bits[j].home == BIT_WARP && h->bits[j].pos + 1 > most)
                most = h->bits[j].pos + 1;
    }
    l->k->sched.warps_m = 1 << most;
    l->k->sched.warps_n = 1;
}

static unsigned warp_bits_of(const struct lay *l, int dist, const struct axis *a)
{
    const struct home *h = dist_home(l->k, dist, a);
    unsigned bits = 0;
    for (int i = 0; h && i < h->nbits; i++)
        if (h->bits[i].home == BIT_WARP)
            bits |= 1u << h->bits[i].pos;
    return bits;
}

// Do several warps hold the same elements? Then one of them makes an access for all.
static bool repeated(const struct lay *l, const struct op *op)
{
    unsigned used = 0, all = (unsigned)(l->k->sched.warps_m * l->k->sched.warps_n) - 1;
    for (int i = 0; i < op->type.rank; i++)
        used |= warp_bits_of(l, op->dist, op->type.axes[i]);
    return (used & all) != all;
}

struct scratch {
    struct lay *l;
    struct uses u;
    int64_t size;
};

static bool scratch_of(void *user, struct op *op)
{
    struct scratch *s = user;
    struct lay *l = s->l;
    if (!(reduces(op) && warp_bits_of(l, op->dist, op->axis)) &&
        !(op->code == OP_ATOMIC_ADD && s->u.op[op->id] && repeated(l, op)))
        return true;
    int64_t n = 4LL * l->k->sched.warps_m * l->k->sched.warps_n * l->lanes;
    for (int i = 0; i < op->type.rank; i++) {
        const struct home *o = dist_home(l->k, op->dist, op->type.axes[i]);
        for (int j = 0; o && j < o->nbits; j++)
            if (o->bits[j].home == BIT_REG)
                n *= 2;
    }
    s->size = n > s->size ? n : s->size;
    return true;
}

static void place_scratch(struct lay *l)
{
    struct scratch s = { .l = l, .u = uses_of(l) };
    walk(l->k->body, scratch_of, &s);
    l->k->scratch = s.size ? l->shared : -1;
    l->k->shared_bytes = l->shared + s.size;
}

enum { ELEMENTS_MAX = 1024 }; // of one tile in one thread: far more than it has registers

static bool too_large(void *user, struct op *op)
{
    struct lay *l = user;
    const struct type *t = op->code == OP_VAR ? &op->var->type : &op->type;
    int dist = op->code == OP_VAR ? op->var->dist : op->dist, bits = 0;
    for (int i = 0; i < t->rank; i++) {
        const struct home *h = dist_home(l->k, dist, t->axes[i]);
        for (int j = 0; h && j < h->nbits; j++)
            bits += h->bits[j].home == BIT_REG;
    }
    if (1LL << bits <= ELEMENTS_MAX)
        return true;
    return lay_fail(l, op->loc, "a tile %s of %lld elements is %lld a thread, at most %d fit; loop over smaller tiles",
                    type_text(l->c, t), (long long)type_elems(t), 1LL << bits, ELEMENTS_MAX);
}

bool layout(struct ctx *c, struct kernel *k)
{
    struct lay l = { .c = c, .k = k, .lanes = c->arch->lanes };
    l.lane_bits = log2_exact(l.lanes);
    l.warp_bits = log2_exact((int64_t)k->sched.warps_m * k->sched.warps_n);
    if (k->laid_out)
        return false;
    lay_dist(&l, "main");
    lay_dots(&l, k->body);
    lay_dead(&l);
    flatten_all(&l);
    lay_dead(&l);
    if (!main_homes(&l) || !walk(k->body, too_large, &l))
        return false;
    lay_stores(&l, k->body);
    lay_depend(&l);
    trim_warps(&l);
    place_scratch(&l);
    if (k->shared_bytes > c->arch->shared)
        lay_fail(&l, k->sched.loc.line ? k->sched.loc : k->loc,
                 "kernel '%s' needs %lld bytes of shared memory; a block of %s has %lld", k->name,
                 (long long)k->shared_bytes, c->arch->name, (long long)c->arch->shared);
    k->laid_out = true;
    return true;
}
