// The analytic model: tile sizes, warps and ring depth from the arch row and the kernel's shape alone.
// In: what schedule.c found (struct dot_shape), or a kernel without matrix products. Out: sizes. No diagnostics.
//
// Matrix kernels: every admissible tile is costed as the time one block keeps its multiprocessor, per useful FLOP:
// the slowest of matrix units, shared memory, L2 and memory, plus a fixed share for filling and draining the ring.
#include "schedule.h"

#include <string.h>

enum {
    SHARED_BYTES_NS = 200, // shared memory of one multiprocessor, bytes a ns (128 B a clock, 1.6 GHz)
    L2_BYTES_NS =
        40, // L2 to one multiprocessor, bytes a ns when all of them ask; twice that where there is a copy engine
    FIXED_NS = 2200,          // start, ring fill, epilogue of a block
    SYNC_NS = 60,             // wait and barrier of one trip
    LATENCY_BYTES = 64 << 10, // bytes a multiprocessor must have in flight to reach memory bandwidth
    PIECE_BYTES = 128,        // of a row at a time, below which memory gives less
    K_TYPICAL = 2048,         // extent of k when unknown
    N_TYPICAL = 4096,         // extent of n when unknown
    FEW_TILES = 2,            // row tiles of a call with the fewest rows: what spreads the weights over the device
    PRODUCERS = 4,            // warps that copy, where some do nothing else: as many as change their registers together
    REGS_INSTRUCTION = 26,    // beside the sums of a warpgroup's instruction, by the assembler
    REGS_COPY = 56,           // registers a thread of theirs
    REGS_KEPT = 4,            // registers a thread that are not given to the model
    SMALL_TILE = 4096,        // elements below which a block may have fewer than 4 warps
    DESCRIBED_BYTES = 128,    // of a row in shared memory that a descriptor can name
    REGS_OTHER = 72,          // registers beside accumulators and fragments: addresses, masks, counters
};

int log2_exact(int64_t v)
{
    int n = 0;
    if (v <= 0 || (v & (v - 1)))
        return -1;
    while (v > 1)
        v >>= 1, n++;
    return n;
}

int64_t pow2_ceil(int64_t v)
{
    int64_t p = 1;
    while (p < v)
        p *= 2;
    return p;
}

struct use { // what a candidate tile takes
    int threads, regs, blocks;
    int64_t stage, shared;
};

// Accumulators, one k step of fragments, and (COPY_REG) the tile in flight, in registers of a thread.
static void resources(const struct arch *a, const struct dot_shape *s, const struct tile_choice *t, struct use *u)
{
    const struct mma *i = &a->mmas[t->mma];
    int wm = t->bm / t->wm, wn = t->bn / t->wn;
    u->threads = (t->wm * t->wn + t->producers) * a->lanes;
    u->stage = (int64_t)(t->bm + s->dots * t->bn) * t->bk * 2;
    u->shared = u->stage * t->stages;
    u->regs = REGS_OTHER + s->dots * t->bm * t->bn / (t->wm * t->wn * a->lanes);
    if (i->kind == MMA_WARP)
        u->regs += (wm + s->dots * wn) * i->a.fetch_k / a->lanes / 2;
    if (a->copy == COPY_REG)
        u->regs += (int)(u->stage / 4 / u->threads);
    u->blocks = (int)(a->shared_sm / (u->shared + a->shared_kept));
    int regs = u->regs * t->wm * t->wn * a->lanes + REGS_COPY * t->producers * a->lanes;
    if (regs * u->blocks > a->regs)
        u->blocks = a->regs / regs;
    // All threads start with the same registers, which must hold one instruction's sums whoever takes more later.
    int start = REGS_INSTRUCTION + i->m * i->n / (i->warps * a->lanes);
    if (t->producers && start * u->threads * u->blocks > a->regs)
        u->blocks = a->regs / (start * u->threads);
    if (u->blocks > 8)
        u->blocks = 8;
}

enum fit {
    FIT_NONE,
    FIT_TYPE,
    FIT_STREAM,
    FIT_ROLES,
    FIT_PARTS,
    FIT_LIMITS,
    FIT_YES
}; // what is in the way, the worst first

static enum fit fits(const struct arch *a, const struct dot_shape *s, const struct tile_choice *t)
{
    const struct mma *i = &a->mmas[t->mma];
    struct use u;
    if (i->in != s->in || i->kind == MMA_TENSOR)
        return FIT_TYPE;
    if (i->kind == MMA_WARPGROUP && !s->streamed)
        return FIT_STREAM;
    if (t->wm % i->warps || t->bm % (t->wm / i->warps * i->a.fetch_rows) || t->bn % (t->wn * i->b.fetch_rows) ||
        t->bk % i->a.fetch_k)
        return FIT_PARTS;
    if (i->kind == MMA_WARPGROUP && (t->stages < (t->producers ? 2 : 3) || t->bk * 2 > DESCRIBED_BYTES))
        return FIT_PARTS;
    resources(a, s, t, &u);
    bool ok =
        u.threads <= a->max_threads && u.shared <= a->shared && u.regs <= a->max_regs - REGS_KEPT && u.blocks >= 1;
    return ok ? FIT_YES : FIT_LIMITS;
}

// Bytes of shared memory that the matrix units' operands take in one trip. A warp keeps its fragments for all its products; a
// warpgroup's instruction reads its operands each time.
static double operand_bytes(const struct dot_shape *s, const struct tile_choice *t, const struct mma *i)
{
    int readers = t->wm * t->wn / i->warps, wm = t->bm * i->warps / t->wm, wn = t->bn / t->wn;
    double rows = i->kind == MMA_WARP ? wm + s->dots * wn : (double)(wm / i->m) * (wn / i->n) * s->dots * (i->m + i->n);
    return readers * rows * t->bk * 2;
}

// Time of one trip of a block on its share of the multiprocessor: the slowest unit, and a fifth of the others, since
// they overlap only in part.
static double trip_ns(const struct arch *a, const struct dot_shape *s, const struct tile_choice *t, const struct use *u,
                      bool from_memory)
{
    const struct mma *i = &a->mmas[t->mma];
    int warps = t->wm * t->wn;
    double flops = 2.0 * t->bm * t->bn * s->dots * t->bk, most = 0, sum = 0;
    double busy = warps * u->blocks >= 8 ? 1.0 : warps * u->blocks / 8.0;
    double ns[4] = { flops / (a->tflops16 * i->share * 1e3 / a->processors * busy),
                     (operand_bytes(s, t, i) + (double)u->stage) / SHARED_BYTES_NS,
                     (double)u->stage / (a->copy == COPY_BULK ? 2 * L2_BYTES_NS : L2_BYTES_NS), 0 };
    if (from_memory) { // few rows an expert: the weights come from memory, once
        int ahead = t->stages > 1 ? t->stages - 1 : 1;
        double flight = (double)u->stage * ahead * u->blocks / LATENCY_BYTES;
        double pieces = t->bk * 2 < PIECE_BYTES ? 0.8 : 1;
        ns[3] = (double)s->dots * t->bn * t->bk * 2 / (a->gbps / a->processors * pieces * (flight < 1 ? flight : 1));
    }
    for (int j = 0; j < 4; j++) {
        sum += ns[j];
        most = ns[j] > most ? ns[j] : most;
    }
    double ns_trip = most + (sum - most) / (t->producers ? 20 : 5); // warps of their own keep all units at work
    return warps * u->blocks < 4 ? ns_trip * 4 / (warps * u->blocks) : ns_trip; // too few warps to issue the copies
}

// With copies by warps of their own a block's start and the filling of its ring lie under the products of the tile before.
static int fixed_ns(const struct tile_choice *t)
{
    return t->producers ? FIXED_NS / 3 : FIXED_NS;
}

static int sync_ns(const struct tile_choice *t)
{
    return t->producers ? SYNC_NS / 3 : SYNC_NS;
}

// A ring that is less deep than usual stalls at times; a deeper one only takes memory.
static double depth_factor(const struct arch *a, const struct tile_choice *t)
{
    int usual = a->copy == COPY_REG ? 2 : 4;
    return t->stages < usual ? 1 + 0.02 * (usual - t->stages) : 1 + 0.002 * (t->stages - usual);
}

// The extent if it is known exactly; a mere bound says nothing about what calls will look like.
static int64_t extent_of(const struct axis *a, int64_t typical)
{
    bool known = a->lo && a->hi && a->lo->code == OP_CONST && a->hi->code == OP_CONST && a->hi->ival > a->lo->ival;
    return known ? a->hi->ival - a->lo->ival : typical;
}

static double cost(const struct arch *a, const struct dot_shape *s, const struct tile_choice *t)
{
    struct use u;
    resources(a, s, t, &u);
    double flops = 2.0 * t->bm * t->bn * s->dots * t->bk;
    int64_t extent = extent_of(s->k, K_TYPICAL), n = extent_of(s->n, N_TYPICAL);
    double trips = (double)((extent + t->bk - 1) / t->bk);
    // Ragged n: the last tile's unused columns are not useful work.
    int64_t cols = (n + t->bn - 1) / t->bn;
    double useful = (double)n / (double)(cols * t->bn);
    if (t->bm <=
        16) { // few blocks: not every multiprocessor gets as many as it could hold, and the last wave is not full
        int64_t each = (FEW_TILES * cols + a->processors - 1) / a->processors;
        u.blocks = each < u.blocks ? (int)each : u.blocks;
        double waves = (double)(FEW_TILES * cols) / (a->processors * u.blocks);
        useful *= waves / (waves + 0.5); // half a wave is lost on average
    }
    double ns =
        trips * (trip_ns(a, s, t, &u, t->bm <= 64) + sync_ns(t) / (double)u.blocks) + fixed_ns(t) / (double)u.blocks;
    return ns / (flops * trips * useful) * 1e6 * depth_factor(a, t);
}

// ---- what is in the way when nothing fits ------------------------------------------------------------------------

struct miss { // the candidate that came nearest
    enum fit fit;
    double excess;
    struct tile_choice t;
};

static void note_miss(const struct arch *a, const struct dot_shape *s, const struct tile_choice *t, enum fit fit,
                      struct miss *near)
{
    const struct mma *i = &a->mmas[t->mma];
    struct use u;
    double excess = i->a.fetch_rows + i->b.fetch_rows + i->a.fetch_k;
    if (fit == FIT_LIMITS) {
        resources(a, s, t, &u);
        double of[] = { (double)u.shared / (double)a->shared, (double)u.threads / a->max_threads,
                        (double)u.regs / a->max_regs, (double)u.regs * u.threads / a->regs };
        excess = 0;
        for (size_t k = 0; k < COUNTOF(of); k++)
            excess += of[k] > 1 ? of[k] : 0;
    }
    if (fit > near->fit || (fit == near->fit && excess < near->excess))
        *near = (struct miss){ fit, excess, *t };
}

struct reasons { // a list: the first after `sep`, the others after semicolons
    struct text text;
    const struct arch *a;
    const struct mma *i;
    const char *sep;
};

static void limit(struct reasons *r, int64_t need, int64_t most, const char *what)
{
    if (need <= most)
        return;
    text_printf(&r->text, "%s%lld %s, %s allows %lld", r->sep, (long long)need, what, r->a->name, (long long)most);
    r->sep = "; ";
}

static void parts(struct reasons *r, const struct axis *a, int size, int warps, int takes)
{
    if (size % (warps * takes) == 0)
        return;
    text_printf(&r->text, "%saxis '%s' has %d positions for %d warp%s, '%s' takes %d a warp", r->sep, a->name, size,
                warps, warps > 1 ? "s" : "", r->i->name, takes);
    r->sep = "; ";
}

static void limits(struct reasons *r, const struct dot_shape *s, const struct tile_choice *t, bool open)
{
    const struct arch *a = r->a;
    struct use u;
    resources(a, s, t, &u);
    text_printf(&r->text, ": %s%s %d  %s %d  %s %d  stages %d  warps %dx%d", open ? "the nearest, " : "", s->m->name,
                t->bm, s->n->name, t->bn, s->k->name, t->bk, t->stages, t->wm, t->wn);
    r->sep = " needs ";
    limit(r, u.shared, a->shared, "shared bytes");
    limit(r, u.threads, a->max_threads, "threads");
    limit(r, u.regs, a->max_regs - REGS_KEPT, "registers a thread (estimated)");
    if (u.regs <= a->max_regs - REGS_KEPT)
        limit(r, (int64_t)u.regs * u.threads, a->regs, "registers a block (estimated)");
}

// In the words of a schedule.
static const char *explain(struct ctx *c, const struct dot_shape *s, const struct tile_choice *want,
                           const struct miss *near)
{
    const struct tile_choice *t = &near->t;
    struct reasons r = { { .arena = c->arena }, c->arch, &c->arch->mmas[t->mma], ": " };
    text_printf(&r.text, "no tile fits %s", c->arch->name);
    if (near->fit == FIT_TYPE)
        text_printf(&r.text, ": '%s' takes %s, not %s", r.i->name, elem_names[r.i->in], elem_names[s->in]);
    if (near->fit == FIT_STREAM)
        text_printf(&r.text, ": '%s' only adds up products of tiles that a loop reads straight from memory", r.i->name);
    if (near->fit == FIT_ROLES)
        text_printf(
            &r.text,
            ": warps that only copy need a loop directly in the grid over whole rows of a multiple of 16 bytes, beside "
            "which no operation needs all warps; a copy engine; and an instruction of warpgroups, not '%s'",
            r.i->name);
    if (near->fit == FIT_PARTS) {
        parts(&r, s->m, t->bm, t->wm, r.i->a.fetch_rows);
        parts(&r, s->n, t->bn, t->wn, r.i->b.fetch_rows);
        if (t->bk % r.i->a.fetch_k)
            text_printf(&r.text, "%saxis '%s' has %d positions, '%s' takes %d at a time", r.sep, s->k->name, t->bk,
                        r.i->name, r.i->a.fetch_k);
    }
    if (near->fit == FIT_LIMITS)
        limits(&r, s, t, want->bm <= 0 || want->bn <= 0 || want->bk <= 0 || want->wm <= 0 || want->stages <= 0);
    return r.text.s;
}

// The widest instruction that divides the warp's tile; a stated one must fit.
static void try_mmas(const struct arch *a, const struct dot_shape *s, const struct tile_choice *want,
                     struct tile_choice *t, struct tile_choice *best, struct miss *near)
{
    for (t->mma = 0; t->mma < a->nmmas; t->mma++) {
        if (want->mma >= 0 && want->mma != t->mma)
            continue;
        bool split = a->mmas[t->mma].kind == MMA_WARPGROUP && a->copy == COPY_BULK && s->roles;
        t->producers = !split ? 0 : want->producers >= 0 ? want->producers : PRODUCERS;
        enum fit fit = want->producers > 0 && !split ? FIT_ROLES : fits(a, s, t);
        if (fit != FIT_YES) {
            note_miss(a, s, t, fit, near);
            continue;
        }
        t->cost = cost(a, s, t) * (1 - 0.001 * log2_exact(a->mmas[t->mma].m * a->mmas[t->mma].n));
        if (best->cost < 0 || t->cost < best->cost)
            *best = *t;
    }
}

static void try_stages(const struct arch *a, const struct dot_shape *s, const struct tile_choice *want,
                       struct tile_choice t, struct tile_choice *best, struct miss *near)
{
    int most = a->copy == COPY_REG ? 2 : 6, least = a->copy == COPY_REG ? 1 : 2;
    for (t.stages = most; t.stages >= least; t.stages--) {
        if (want->stages > 0)
            t.stages = want->stages;
        try_mmas(a, s, want, &t, best, near);
        if (want->stages > 0)
            break;
    }
}

struct span { // sizes to try, by powers of two
    int lo, hi;
};

static struct span span(int want, int lo, int hi)
{
    return want > 0 ? (struct span){ want, want } : (struct span){ lo, hi };
}

bool model_matrix(struct ctx *c, const struct dot_shape *s, const struct tile_choice *want, struct tile_choice *out,
                  const char **why)
{
    struct tile_choice best = { .cost = -1 }, t = { 0 };
    struct miss near = { .fit = FIT_NONE };
    int64_t n_all = pow2_ceil(s->n->max_extent), k_all = pow2_ceil(s->k->max_extent);
    struct span bm = span(want->bm, 16, 256), bn = span(want->bn, 32, 256), bk = span(want->bk, 32, 128);
    struct span wm = span(want->wm, 1, 8), wn = span(want->wn, 1, 8);
    for (t.bm = bm.lo; t.bm <= bm.hi; t.bm *= 2)
        for (t.bn = bn.lo; t.bn <= bn.hi; t.bn *= 2)
            for (t.bk = bk.lo; t.bk <= bk.hi; t.bk *= 2)
                for (t.wm = wm.lo; t.wm <= wm.hi; t.wm *= 2)
                    for (t.wn = wn.lo; t.wn <= wn.hi; t.wn *= 2) {
                        int warps = t.wm * t.wn;
                        if (want->wm <= 0 && want->wn <= 0 && warps != 4 && warps != 8 &&
                            t.bm * t.bn * s->dots >= SMALL_TILE)
                            continue;
                        if (want->bn <= 0 && t.bn > n_all && t.bn > 32)
                            continue;
                        if (want->bk <= 0 && ((t.bm > 16 && t.bk > 64) || (t.bk > k_all && t.bk > 32)))
                            continue;
                        try_stages(c->arch, s, want, t, &best, &near);
                    }
    if (best.cost < 0) {
        *why = explain(c, s, want, &near);
        return false;
    }
    *out = best;
    struct use u;
    resources(c->arch, s, out, &u);
    out->resident = u.blocks;
    out->fixed_ns = fixed_ns(out) / u.blocks;
    out->step_ps = (int)(1000 * (trip_ns(c->arch, s, out, &u, false) + SYNC_NS / (double)u.blocks) / out->bk);
    out->flight = (out->stages > 1 ? out->stages - 1 : 1) * s->dots * out->bn * out->bk * 2 * u.blocks;
    return true;
}

// ---- kernels without matrix products ----------------------------------------------------------------------------

enum {
    PER_THREAD = 8,
    PER_THREAD_MAX = 16,
    PER_THREAD_SUM = 64, // of a tile that is summed up at once
    SUM_ROWS = 8,        // and along the axis of the sum
    WARPS_PLAIN = 4
};

struct plain {
    struct kernel *k;
    struct axis *axis;  // the axis in question
    int64_t largest;    // of the tiles that have it, in elements, sizes of 0 counted as 1
    bool fast, reduced; // it is the last index of some access; something is reduced along it
};

static bool look(void *user, struct op *op)
{
    struct plain *p = user;
    if (op->type.rank && type_has_axis(&op->type, p->axis)) {
        int64_t n = 1;
        for (int i = 0; i < op->type.rank; i++)
            n *= op->type.axes[i]->size ? op->type.axes[i]->size : 1;
        p->largest = n > p->largest ? n : p->largest;
    }
    int last = op->code == OP_LOAD                                 ? op->nargs - 1
               : op->code == OP_STORE || op->code == OP_ATOMIC_ADD ? op->nargs - 2
                                                                   : -1;
    if (last >= 0 && op->args[last]->code == OP_INDEX && op->args[last]->axis == p->axis)
        p->fast = true;
    if ((op->code == OP_REDUCE_SUM || op->code == OP_REDUCE_MAX || op->code == OP_REDUCE_MIN ||
         op->code == OP_SCAN_SUM) &&
        op->axis == p->axis)
        p->reduced = true;
    return true;
}

static struct plain look_at(struct kernel *k, struct axis *a)
{
    struct plain p = { .k = k, .axis = a };
    walk(k->body, look, &p);
    return p;
}

// Doubles the axis while its largest tile stays within `most` elements and the axis within its extent.
static void grow(struct kernel *k, struct axis *a, int64_t most, int largest)
{
    for (;;) {
        struct plain p = look_at(k, a);
        if (p.largest * 2 > most || a->size * 2 > pow2_ceil(a->max_extent) || a->size >= largest)
            return;
        a->size *= 2;
    }
}

int model_plain(struct ctx *c, struct kernel *k, int want_warps)
{
    int warps = want_warps > 0 ? want_warps : WARPS_PLAIN;
    int64_t threads = (int64_t)warps * c->arch->lanes;
    bool open[256] = { false };
    for (int i = 0; i < k->axes.n && i < 256; i++)
        if (!k->axes.v[i]->size) {
            k->axes.v[i]->size = 1;
            open[i] = k->axes.v[i]->kind != AX_RANGE;
            if (k->axes.v[i]->kind == AX_RANGE)
                k->axes.v[i]->size = (int)pow2_ceil(k->axes.v[i]->max_extent);
        }
    // The contiguous axes first, then the axes of serial loops (fewer trips), then those of the grid (only to fill
    // the threads: more blocks are better than larger ones).
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < k->axes.n && i < 256; i++) {
            struct axis *a = k->axes.v[i];
            bool fast = look_at(k, a).fast, grid = a->def && a->def->code == OP_PARALLEL;
            if (!open[i] || (pass == 0 ? !fast : fast || grid != (pass == 2)))
                continue;
            grow(k, a, threads * (grid ? PER_THREAD : PER_THREAD_MAX), 1024);
            if (pass == 1 && look_at(k, a).reduced) // a sum over rows: loads of several at once
                grow(k, a, threads * PER_THREAD_SUM, SUM_ROWS);
        }
    return warps;
}
