// AMD: what llvm.amdgcn.* intrinsics do, by the CDNA3 and CDNA4 ISA manuals (chapter and instruction names cited) and LLVM's
// AMDGPU user guide for the intrinsics' operands. Waves have 64 lanes. a[0..nargs): slots of the arguments, a[nargs..]: results.
#include "matrix.h"
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t in(const struct inst *i, int k, const uint64_t *r)
{
    return arg_value(&i->a[k], r);
}
static uint32_t in32(const struct inst *i, int k, const uint64_t *r)
{
    return (uint32_t)arg_value(&i->a[k], r);
}
static void out(const struct inst *i, uint64_t *r, uint64_t v)
{
    r[i->a[i->nargs].reg] = v;
}
static void out_f32(const struct inst *i, uint64_t *r, float f)
{
    out(i, r, f32_bits(f));
}

// ---- ids
static void workitem(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, (uint64_t)l->thread);
}
static void workgroup(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, l->warp->block->id);
}
static void zero(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, 0);
}
// V_MBCNT_LO/HI_U32_B32: bits of the mask below this lane, plus the second operand.
static void mbcnt_lo(struct lane *l, const struct inst *i, uint64_t *r)
{
    uint32_t below = l->index >= 32 ? 0xffffffffu : (1u << l->index) - 1;
    out(i, r, in32(i, 1, r) + (uint32_t)__builtin_popcount(in32(i, 0, r) & below));
}
static void mbcnt_hi(struct lane *l, const struct inst *i, uint64_t *r)
{
    uint32_t below = l->index < 32 ? 0 : (1u << (l->index - 32)) - 1;
    out(i, r, in32(i, 1, r) + (uint32_t)__builtin_popcount(in32(i, 0, r) & below));
}

// ---- maths: one ulp on the hardware; here the host's
static void exp2_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out_f32(i, r, exp2f(as_f32(in(i, 0, r))));
}
static void log_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out_f32(i, r, log2f(as_f32(in(i, 0, r))));
}
static void rcp(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out_f32(i, r, 1.0f / as_f32(in(i, 0, r)));
}
static void rsq(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out_f32(i, r, (float)(1.0 / sqrt((double)as_f32(in(i, 0, r)))));
}
static void sqrt_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out_f32(i, r, sqrtf(as_f32(in(i, 0, r))));
}
static void fract(struct lane *l, const struct inst *i, uint64_t *r)
{
    float x = as_f32(in(i, 0, r));
    (void)l;
    out_f32(i, r, fminf(x - floorf(x), 0x1.fffffep-1f));
}

// ---- scheduling hints, and what only costs time
static void nothing(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    (void)i;
    (void)r;
}

// ---- order of memory. S_WAITCNT (CDNA3 ISA, "S_WAITCNT"): vmcnt [3:0] and [15:14], lgkmcnt [11:8]. Only what has been waited for
// counts as done at a barrier.
static void waitcnt(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    uint32_t v = in32(i, 0, r[__builtin_ctzll(mask)]);
    int vm = (int)((v & 15) | (v >> 14 & 3) << 4);
    if (!(v >> 8 & 15))
        clock_release(w);
    for (uint64_t m = mask; m; m &= m - 1)
        copy_wait(&w->lanes[__builtin_ctzll(m)], vm);
}
static void fence(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)mask;
    (void)r;
    order_fence(w, (int)i->num);
    clock_release(w); // LLVM puts the waits before and after it (AMDGPU user guide, "Memory Model gfx942")
}
static void s_barrier(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)mask;
    (void)r;
    barrier_arrive(w, i, 0, 0, true);
}
static void wave_barrier(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)i;
    (void)mask;
    (void)r;
    clock_release(w);
}

// ---- across lanes. Values of more than 64 bits take several slots of io.
static int words_of(const struct inst *i, int k)
{
    return i->a[k + 1].reg - i->a[k].reg;
}
static void spread(const struct inst *i, uint64_t mask, uint64_t **r, const uint64_t *from)
{
    for (int j = 0; j < words_of(i, 0); j++) {
        uint64_t v = from ? from[i->a[0].reg + j] : ~0ull;
        for (uint64_t m = mask; m; m &= m - 1)
            r[__builtin_ctzll(m)][i->a[i->nargs].reg + j] = v;
    }
}
static void read_first(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)w;
    spread(i, mask, r, r[__builtin_ctzll(mask)]);
}
static void read_lane(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    int from = (int)in32(i, 1, r[__builtin_ctzll(mask)]) & 63;
    for (uint64_t m = mask; m; m &= m - 1)
        if (((int)in32(i, 1, r[__builtin_ctzll(m)]) & 63) != from)
            finding(&w->lanes[__builtin_ctzll(m)], i->site, F_OPERAND, 0,
                    "%s: the lane's number differs among the lanes", i->text);
    if (!r[from])
        finding(&w->lanes[__builtin_ctzll(mask)], i->site, F_DIVERGENT, 0, "%s reads lane %d, which is not active",
                i->text, from);
    spread(i, mask, r, r[from]);
}
static void ballot(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    uint64_t v = 0;
    (void)w;
    for (uint64_t m = mask; m; m &= m - 1)
        v |= (in(i, 0, r[__builtin_ctzll(m)]) & 1) << __builtin_ctzll(m);
    for (uint64_t m = mask; m; m &= m - 1)
        out(i, r[__builtin_ctzll(m)], v);
}
static void gather(const struct inst *i, int nth, uint64_t mask, uint64_t **r, uint32_t *v)
{
    for (int k = 0; k < 64; k++)
        v[k] = mask >> k & 1 ? in32(i, nth, r[k]) : 0;
}
// DS_BPERMUTE_B32 (CDNA3 ISA, LDS chapter): lane = address / 4 modulo 64; a lane that is not active gives 0.
static void bpermute(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    uint32_t v[64];
    (void)w;
    gather(i, 1, mask, r, v);
    for (uint64_t m = mask; m; m &= m - 1)
        out(i, r[__builtin_ctzll(m)], v[in32(i, 0, r[__builtin_ctzll(m)]) >> 2 & 63]);
}
// DS_SWIZZLE_B32: offset[15] = 1: a permutation in each quad; else, in each half of 32: ((lane & and) | or) ^ xor with 5 bits each.
static void swizzle(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    uint32_t v[64], o = in32(i, 1, r[__builtin_ctzll(mask)]);
    (void)w;
    gather(i, 0, mask, r, v);
    for (uint64_t m = mask; m; m &= m - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(m);
        uint32_t from = o & 0x8000 ? (k & ~3u) | (o >> 2 * (k & 3) & 3)
                                   : (k & 32) | ((((k & 31) & (o & 31)) | (o >> 5 & 31)) ^ (o >> 10 & 31));
        out(i, r[k], v[from]);
    }
}
// The lane that DPP reads (CDNA3 ISA, "DPP_CTRL enumeration"); -1: out of range; -2: not a control.
static int dpp_from(int ctrl, int k)
{
    int row = k & ~15, in_row = k & 15, n = ctrl & 15;
    if (ctrl <= 0xff)
        return (k & ~3) | (ctrl >> 2 * (k & 3) & 3);
    if (ctrl > 0x100 && ctrl <= 0x10f) // row_shl
        return in_row + n < 16 ? k + n : -1;
    if (ctrl > 0x110 && ctrl <= 0x11f) // row_shr
        return in_row - n >= 0 ? k - n : -1;
    if (ctrl > 0x120 && ctrl <= 0x12f) // row_ror
        return row | ((in_row - n) & 15);
    if (ctrl >= 0x150 && ctrl <= 0x15f) // row_newbcast
        return row | n;
    switch (ctrl) {
    case 0x130: return k + 1 < 64 ? k + 1 : -1;  // wave_shl
    case 0x134: return (k + 1) & 63;             // wave_rol
    case 0x138: return k - 1;                    // wave_shr
    case 0x13c: return (k - 1) & 63;             // wave_ror
    case 0x140: return row | (15 - in_row);      // row_mirror
    case 0x141: return (k & ~7) | (7 - (k & 7)); // row_half_mirror
    case 0x142: return row ? row - 1 : -1;       // row_bcast15
    case 0x143: return k >= 32 ? 31 : -1;        // row_bcast31
    default: return -2;
    }
}
// update.dpp: old, source, control, row mask, bank mask, bound_ctrl; of wide values each word by itself.
static void dpp(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    const uint64_t *first = r[__builtin_ctzll(mask)];
    int ctrl = (int)in32(i, 2, first);
    uint32_t rows = in32(i, 3, first), banks = in32(i, 4, first);
    bool bound = in(i, 5, first) & 1;
    if (dpp_from(ctrl, 0) == -2)
        finding(&w->lanes[0], i->site, F_OPERAND, 0, "%s: 0x%x is no DPP control", i->text, ctrl);
    for (uint64_t m = mask; m; m &= m - 1) {
        int k = __builtin_ctzll(m), from = dpp_from(ctrl, k);
        bool enabled = rows >> (k >> 4) & 1 && banks >> (k >> 2 & 3) & 1;
        bool valid = from >= 0 && mask >> from & 1;
        for (int j = 0; j < words_of(i, 0); j++)
            r[k][i->a[6].reg + j] = !enabled || (!valid && !bound) ? r[k][i->a[0].reg + j]
                                    : valid                        ? r[from][i->a[1].reg + j]
                                                                   : 0;
    }
}
// V_PERMLANE32_SWAP_B32, V_PERMLANE16_SWAP_B32 (CDNA4 ISA): odd halves (rows) of the first operand and even ones of the
// second change places. Results: both operands afterwards.
static void permlane_swap(const struct inst *i, uint64_t mask, uint64_t **r, int n)
{
    uint32_t a[64], b[64];
    gather(i, 0, mask, r, a);
    gather(i, 1, mask, r, b);
    for (int k = 0; k < 64; k++)
        if (!(k & n)) {
            uint32_t t = a[k | n];
            a[k | n] = b[k];
            b[k] = t;
        }
    for (uint64_t m = mask; m; m &= m - 1) {
        int k = __builtin_ctzll(m);
        r[k][i->a[2 + 2].reg] = a[k];
        r[k][i->a[2 + 2].reg + 1] = b[k];
    }
}
static void permlane32(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)w;
    permlane_swap(i, mask, r, 32);
}
static void permlane16(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    (void)w;
    permlane_swap(i, mask, r, 16);
}

// ---- matrix
static bool prepare_mfma(struct inst *i, char *why)
{
    const struct matrix_op *m = matrix_find(i->text);
    i->data = m;
    if (!m || i->nargs != 6)
        snprintf(why, MOESIM_WHY, "this shape is not known");
    return m && i->nargs == 6;
}
static void mfma(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    const struct matrix_op *m = i->data;
    uint32_t a[64 * 4], b[64 * 4], c[64 * 16];
    size_t an = (size_t)m->a_words, bn = (size_t)m->b_words, dn = (size_t)m->d_words;
    for (int k = 3; k < 6; k++) // cbsz, abid, blgp: broadcasts and permutations of the operands
        if (in32(i, k, r[__builtin_ctzll(mask)]))
            finding(&w->lanes[0], i->site, F_OPERAND, 0, "%s: cbsz, abid and blgp other than 0 are not supported",
                    i->text);
    for (size_t k = 0; k < 64; k++) {
        memcpy(a + k * an, &r[k][i->a[0].reg], an * 4);
        memcpy(b + k * bn, &r[k][i->a[1].reg], bn * 4);
        memcpy(c + k * dn, &r[k][i->a[2].reg], dn * 4);
    }
    matrix_run(m, a, b, c, c);
    for (size_t k = 0; k < 64; k++)
        memcpy(&r[k][i->a[6].reg], c + k * dn, dn * 4);
}

// ---- buffers (CDNA3 ISA, "Buffer Resource Descriptor", "Range checking"): raw buffers, stride 0
struct rsrc {
    uint64_t base;
    uint32_t records, flags;
};
struct rsrcs {
    int n, cap;
    struct rsrc *v;
};
static void make_rsrc(struct lane *l, const struct inst *i, uint64_t *r)
{
    struct block *b = l->warp->block;
    struct rsrcs *t = b->state ? b->state : (b->state = calloc(1, sizeof *t));
    uint64_t records = in(i, 2, r);
    struct rsrc d = { in(i, 0, r), (uint32_t)records, in32(i, 3, r) };
    if (in(i, 1, r) & 0xffff || records > 0xffffffffu)
        finding(l, i->site, F_OPERAND, 0, "%s: stride %d, %llu records: only raw buffers of less than 4 GiB", i->text,
                (int)in(i, 1, r) & 0xffff, (unsigned long long)records);
    int k = 0;
    while (t && k < t->n && memcmp(&t->v[k], &d, sizeof d))
        k++;
    if (t && k == t->n && t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 16;
        void *p = realloc(t->v, (size_t)cap * sizeof d);
        t->v = p ? p : t->v;
        t->cap = p ? cap : t->cap;
    }
    if (!t || (k == t->n && t->n == t->cap)) {
        finding(l, i->site, F_OPERAND, 0, "out of memory for buffer resources");
        k = -1;
    } else if (k == t->n) {
        t->v[t->n++] = d;
    }
    out(i, r, (uint64_t)(k + 1));
}
void amd_block_end(struct block *b)
{
    struct rsrcs *t = b->state;
    if (t)
        free(t->v);
    free(t);
    b->state = NULL;
}
static bool prepare_buffer(struct inst *i, char *why)
{
    const char *t = strrchr(i->text, '.') + 1; // "i16", "v4i32", "f32", "v2bf16"
    const char *known = strstr(i->text, ".load.") ? strstr(i->text, ".load.") + 6 : strstr(i->text, ".store.") + 7;
    if (!strchr("vifb", *t) || !*t || !t[1] || t != known) {
        snprintf(why, MOESIM_WHY, "type or form not known");
        return false;
    }
    int n = *t == 'v' ? (int)strtol(t + 1, NULL, 10) : 1;
    const char *bits = t + strcspn(t + (*t == 'v' ? 2 : 0), "if") + (*t == 'v' ? 2 : 0);
    bits += strspn(bits, "if");
    i->num = n * (int)strtol(bits, NULL, 10) / 8;
    i->site->access |= strstr(i->text, ".store.") ? ACCESS_WRITE : ACCESS_READ;
    if (i->num < 1 || i->num > 16)
        snprintf(why, MOESIM_WHY, "type not known");
    return i->num >= 1 && i->num <= 16;
}
// Where the access goes, and how many bytes of it are inside. Each component of at most 4 bytes is checked by itself: outside,
// loads give 0 and stores do nothing. at: the operand that is the resource. NULL: nothing is inside.
static uint8_t *buffer(struct lane *l, const struct inst *i, uint64_t *r, int at, int access, int *inside)
{
    const struct rsrcs *t = l->warp->block->state;
    uint64_t k = in(i, at, r);
    uint32_t offset = in32(i, at + 1, r), soffset = in32(i, at + 2, r);
    int bytes = (int)i->num, unit = bytes < 4 ? bytes : 4;
    *inside = 0;
    if (!t || k < 1 || k > (uint64_t)t->n) {
        finding(l, i->site, F_OPERAND, 0, "%s: the resource was not made by make.buffer.rsrc", i->text);
        return NULL;
    }
    const struct rsrc *d = &t->v[k - 1];
    while (*inside < bytes && (uint64_t)offset + soffset + (uint64_t)(*inside + unit) <= d->records)
        *inside += unit;
    return *inside ? global_at(l, i->site, d->base + soffset + offset, *inside, unit, access) : NULL;
}
static void buffer_load(struct lane *l, const struct inst *i, uint64_t *r)
{
    uint64_t v[2] = { 0, 0 };
    int n;
    const uint8_t *p = buffer(l, i, r, 0, ACCESS_READ, &n);
    if (p)
        memcpy(v, p, (size_t)n);
    memcpy(&r[i->a[i->nargs].reg], v, i->num > 8 ? 16 : 8);
}
static void buffer_store(struct lane *l, const struct inst *i, uint64_t *r)
{
    int n;
    uint8_t *p = buffer(l, i, r, 1, ACCESS_WRITE, &n);
    if (p)
        memcpy(p, &r[i->a[0].reg], (size_t)n);
}
// Operands: the value, the resource, offsets. The result is the value before; 0 outside.
static void buffer_atomic(struct lane *l, const struct inst *i, uint64_t *r)
{
    int n;
    bool real = strstr(i->text, ".fadd.") != NULL;
    uint32_t x = in32(i, 0, r), old = 0;
    uint32_t *p = (uint32_t *)(void *)buffer(l, i, r, 1, ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC, &n);
    if (p) {
        old = __atomic_load_n(p, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(p, &old, real ? (uint32_t)f32_bits(as_f32(old) + as_f32(x)) : old + x,
                                            false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
    out(i, r, old);
}
static bool prepare_atomic(struct inst *i, char *why)
{
    bool ok = !strcmp(i->text, "llvm.amdgcn.raw.ptr.buffer.atomic.add.i32") ||
              !strcmp(i->text, "llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32");
    i->num = 4;
    i->site->access |= ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC;
    if (!ok)
        snprintf(why, MOESIM_WHY, "only add.i32 and fadd.f32");
    return ok;
}

#define LANE(name, fn) \
    { \
        "llvm.amdgcn." name, fn, NULL, NULL, ANY_LANES, NULL \
    }
#define WARP(name, fn, who) \
    { \
        "llvm.amdgcn." name, NULL, fn, NULL, who, NULL \
    }
const struct op amd_ops[] = {
    LANE("workitem.id.x", workitem),
    LANE("workitem.id.*", zero),
    LANE("workgroup.id.x", workgroup),
    LANE("workgroup.id.*", zero),
    LANE("mbcnt.lo", mbcnt_lo),
    LANE("mbcnt.hi", mbcnt_hi),
    LANE("exp2.f32", exp2_),
    LANE("log.f32", log_),
    LANE("rcp.f32", rcp),
    LANE("rsq.f32", rsq),
    LANE("sqrt.f32", sqrt_),
    LANE("fract.f32", fract),
    LANE("sched.barrier", nothing),
    LANE("sched.group.barrier", nothing),
    LANE("iglp.opt", nothing),
    LANE("s.setprio", nothing),
    LANE("s.sleep", nothing),
    LANE("s.nop", nothing),
    WARP("s.waitcnt", waitcnt, LIVE_LANES),
    WARP("s.barrier", s_barrier, LIVE_LANES),
    WARP("wave.barrier", wave_barrier, ANY_LANES),
    WARP("readfirstlane.*", read_first, ANY_LANES),
    WARP("readlane.*", read_lane, ANY_LANES),
    WARP("ballot.i64", ballot, ANY_LANES),
    WARP("ds.bpermute", bpermute, ANY_LANES),
    WARP("ds.swizzle", swizzle, ANY_LANES),
    WARP("update.dpp.*", dpp, ANY_LANES),
    WARP("permlane32.swap", permlane32, ANY_LANES),
    WARP("permlane16.swap", permlane16, ANY_LANES),
    { "llvm.amdgcn.mfma.*", NULL, mfma, prepare_mfma, FULL_WARP, NULL },
    LANE("make.buffer.rsrc.*", make_rsrc),
    { "llvm.amdgcn.raw.ptr.buffer.load.*", buffer_load, NULL, prepare_buffer, ANY_LANES, NULL },
    { "llvm.amdgcn.raw.ptr.buffer.store.*", buffer_store, NULL, prepare_buffer, ANY_LANES, NULL },
    { "llvm.amdgcn.raw.ptr.buffer.atomic.*", buffer_atomic, NULL, prepare_atomic, ANY_LANES, NULL },
    { "fence", NULL, fence, NULL, ANY_LANES, NULL },
    { NULL, NULL, NULL, NULL, ANY_LANES, NULL },
};
