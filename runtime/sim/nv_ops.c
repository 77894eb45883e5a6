// NVIDIA: registers, barriers, shuffles, plain memory instructions, cp.async, fragments, approximate maths. Section names are
// those of the PTX ISA 8.x. Intrinsics: a[0..nargs) are the slots of the arguments, a[nargs..] those of the results.
#include "matrix.h"
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t in(const struct inst *i, int k, const uint64_t *r)
{
    return arg_value(&i->a[k], r);
}
static void out(const struct inst *i, uint64_t *r, uint64_t v)
{
    r[i->a[i->nargs].reg] = v;
}

// ---- special registers (PTX ISA, "Special Registers"; grids and blocks have one dimension here)
static void tid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, (uint64_t)l->thread);
}
static void ntid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, (uint64_t)l->warp->block->nthreads);
}
static void ctaid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, l->warp->block->id);
}
static void nctaid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, l->warp->block->launch->blocks);
}
static void laneid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, (uint64_t)l->index);
}
static void warpid(struct lane *l, const struct inst *i, uint64_t *r)
{
    out(i, r, (uint64_t)l->warp->index);
}
static void zero(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, 0);
}
static void one(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, 1);
}

// ---- maths (PTX ISA, "Floating Point Instructions"): ftz flushes subnormal inputs and results to zero of the same sign
static float ftz(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}
static void ex2_ftz(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(ftz(exp2f(ftz(as_f32(in(i, 0, r)))))));
}
static void ex2(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(exp2f(as_f32(in(i, 0, r)))));
}
static void lg2(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(log2f(as_f32(in(i, 0, r)))));
}
static void rcp_ftz(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(ftz(1.0f / ftz(as_f32(in(i, 0, r))))));
}
static void rcp(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(1.0f / as_f32(in(i, 0, r))));
}
static void rsqrt_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits((float)(1.0 / sqrt((double)as_f32(in(i, 0, r))))));
}
static void sqrt_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(sqrtf(as_f32(in(i, 0, r)))));
}
static void tanh_(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    out(i, r, f32_bits(tanhf(as_f32(in(i, 0, r)))));
}

// ---- barriers (PTX ISA, "bar", "bar.warp.sync")
static bool barrier_id(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r, int nth, uint64_t *v)
{
    *v = in(i, nth, r[__builtin_ctzll(mask)]);
    for (uint64_t m = mask; m; m &= m - 1)
        if (in(i, nth, r[__builtin_ctzll(m)]) != *v) {
            finding(&w->lanes[__builtin_ctzll(m)], i->site, F_DIVERGENT, 0,
                    "%s: the lanes of the warp name different barriers", i->text);
            return false;
        }
    return true;
}
static void bar(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r, bool waits)
{
    uint64_t id = 0, n = 0;
    if ((i->nargs > 0 && !barrier_id(w, i, mask, r, 0, &id)) || (i->nargs > 1 && !barrier_id(w, i, mask, r, 1, &n)))
        return;
    if (id >= BARRIERS_MAX || n % 32 || n > (uint64_t)w->block->nthreads)
        finding(&w->lanes[0], i->site, F_OPERAND, 0,
                "%s: barrier %llu of %llu threads; 16 barriers, multiples of 32 up to the block's %d", i->text,
                (unsigned long long)id, (unsigned long long)n, w->block->nthreads);
    else
        barrier_arrive(w, i, (int)id, (int)n, waits);
}
static void bar_sync(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    bar(w, i, mask, r, true);
}
static void bar_arrive(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    bar(w, i, mask, r, false);
}

// The lanes that an instruction names must be those that came.
static bool members(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r, int nth)
{
    for (uint64_t m = mask; m; m &= m - 1) {
        int k = __builtin_ctzll(m);
        uint64_t want = in(i, nth, r[k]) & ((1ull << w->nlanes) - 1);
        if (want == mask)
            continue;
        finding(&w->lanes[k], i->site, F_DIVERGENT, 0, "%s names the lanes 0x%08llx, but 0x%08llx are here", i->text,
                (unsigned long long)want, (unsigned long long)mask);
        return false;
    }
    return true;
}
static void warp_sync(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    if (members(w, i, mask, r, 0))
        clock_release(w);
}

// ---- shuffles (PTX ISA, "shfl.sync", its pseudo code): mask, a, b, c -> d, and whether the source was in range
enum shuffle { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };
static void shfl(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r, enum shuffle mode)
{
    uint64_t values[32], result[32], in_range = 0;
    bool tells = i->text[strlen(i->text) - 1] == 'p'; // the predicate of the source's range is asked for
    if (!members(w, i, mask, r, 0))
        return;
    for (int k = 0; k < w->nlanes; k++)
        values[k] = r[k] ? in(i, 1, r[k]) : 0;
    for (uint64_t m = mask; m; m &= m - 1) {
        int lane = __builtin_ctzll(m), b = (int)in(i, 2, r[lane]) & 31, c = (int)in(i, 3, r[lane]);
        int cval = c & 31, seg = c >> 8 & 31, max = (lane & seg) | (cval & ~seg), min = lane & seg, j;
        bool valid;
        switch (mode) {
        case SHFL_UP: valid = (j = lane - b) >= max; break;
        case SHFL_DOWN: valid = (j = lane + b) <= max; break;
        case SHFL_BFLY: valid = (j = lane ^ b) <= max; break;
        default: valid = (j = min | (b & ~seg)) <= max;
        }
        j = valid ? j : lane;
        if (!(mask >> j & 1))
            finding(&w->lanes[lane], i->site, F_DIVERGENT, 0, "%s reads lane %d, which does not take part", i->text, j);
        result[lane] = j < w->nlanes ? values[j] : 0;
        in_range |= (uint64_t)valid << lane;
    }
    for (uint64_t m = mask; m; m &= m - 1)
        out(i, r[__builtin_ctzll(m)], result[__builtin_ctzll(m)]);
    for (uint64_t m = tells ? mask : 0; m; m &= m - 1)
        r[__builtin_ctzll(m)][i->a[i->nargs].reg + 1] = in_range >> __builtin_ctzll(m) & 1;
}
static void shfl_bfly(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    shfl(w, i, mask, r, SHFL_BFLY);
}
static void shfl_idx(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    shfl(w, i, mask, r, SHFL_IDX);
}
static void shfl_up(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    shfl(w, i, mask, r, SHFL_UP);
}
static void shfl_down(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    shfl(w, i, mask, r, SHFL_DOWN);
}
// vote.sync.ballot (PTX ISA, "vote.sync"): mask, predicate
static void ballot(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    uint64_t v = 0;
    if (!members(w, i, mask, r, 0))
        return;
    for (uint64_t m = mask; m; m &= m - 1)
        v |= (in(i, 1, r[__builtin_ctzll(m)]) & 1) << __builtin_ctzll(m);
    for (uint64_t m = mask; m; m &= m - 1)
        out(i, r[__builtin_ctzll(m)], v);
}

// ---- ld, st, atom, red in assembly: the qualifiers that matter are the space, the vector and the type
struct access {
    bool shared;
    int n, bytes; // elements, bytes of one
    char type;    // 'b' 'u' 's' 'f'
};
static bool prepare_access(struct inst *i, char *why)
{
    struct access *a = module_keep(i->site->fn->module, sizeof *a);
    const char *t = strrchr(i->text, '.');
    if (!a || !t || !t[1] || !strchr("busf", t[1])) {
        snprintf(why, MOESIM_WHY, "a type is expected last");
        return false;
    }
    *a = (struct access){ .shared = strstr(i->text, ".shared") != NULL, .n = 1, .type = t[1] };
    a->n = strstr(i->text, ".v2.") ? 2 : strstr(i->text, ".v4.") ? 4 : 1;
    char *end;
    long bits = strtol(t + 2, &end, 10);
    a->bytes = (int)(bits / 8);
    if ((!a->shared && !strstr(i->text, ".global")) || *end || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) {
        snprintf(why, MOESIM_WHY, "only .global and .shared, elements of 8 to 64 bits");
        return false;
    }
    bool rmw = i->text[0] == 'a' || i->text[0] == 'r';
    const struct arg *v = &i->a[i->text[0] == 's'];
    if (strstr(i->text, ".v8") || strstr(i->text, ".async") || strstr(i->text, ".bulk") || (rmw && a->n > 1)) {
        snprintf(why, MOESIM_WHY, "this form is not known to the simulator");
        return false;
    }
    if (!rmw && (v->kind == ARG_LIST ? v->n : 1) != a->n) {
        snprintf(why, MOESIM_WHY, "expected %d registers", a->n);
        return false;
    }
    int access = i->text[0] == 'l'   ? ACCESS_READ
                 : i->text[0] == 's' ? ACCESS_WRITE
                                     : ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC;
    access |= order_words(i->text);
    i->site->access |= access;
    i->num = access;
    i->site->what = i->text;
    i->data = a;
    return true;
}
static uint8_t *place(struct lane *l, const struct inst *i, const struct access *a, uint64_t address)
{
    int bytes = a->n * a->bytes;
    return a->shared ? shared_at(l, i->site, (uint32_t)address, bytes, bytes, (int)i->num)
                     : global_at(l, i->site, address, bytes, bytes, (int)i->num);
}
// In one piece: another thread may look at it.
static void put_word(uint8_t *p, int bytes, uint64_t v)
{
    switch (bytes) {
    case 1: __atomic_store_n(p, (uint8_t)v, __ATOMIC_RELEASE); break;
    case 2: __atomic_store_n((uint16_t *)(void *)p, (uint16_t)v, __ATOMIC_RELEASE); break;
    case 4: __atomic_store_n((uint32_t *)(void *)p, (uint32_t)v, __ATOMIC_RELEASE); break;
    default: __atomic_store_n((uint64_t *)(void *)p, v, __ATOMIC_RELEASE);
    }
}
static uint64_t get_word(const uint8_t *p, int bytes)
{
    switch (bytes) {
    case 1: return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    case 2: return __atomic_load_n((const uint16_t *)(const void *)p, __ATOMIC_ACQUIRE);
    case 4: return __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_ACQUIRE);
    default: return __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_ACQUIRE);
    }
}
static void ld(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct access *a = i->data;
    const uint8_t *p = place(l, i, a, in(i, 1, r));
    for (int k = 0; k < a->n; k++) {
        uint64_t v = get_word(p + k * a->bytes, a->bytes);
        if (a->type == 's' && v >> (8 * a->bytes - 1)) // "ld": signed types are sign-extended
            v |= -(1ull << (8 * a->bytes - 1));
        r[i->a[0].kind == ARG_LIST ? i->a[0].list[k] : i->a[0].reg] = v;
    }
}
static void st(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct access *a = i->data;
    uint8_t *p = place(l, i, a, in(i, 0, r));
    for (int k = 0; k < a->n; k++) {
        uint64_t v = i->a[1].kind == ARG_LIST ? r[i->a[1].list[k]] : in(i, 1, r);
        put_word(p + k * a->bytes, a->bytes, v);
    }
}
static uint64_t added(const struct access *a, uint64_t x, uint64_t y)
{
    return a->type == 'f' ? f32_bits(as_f32(x) + as_f32(y)) : x + y;
}
static uint64_t add_at(const struct access *a, uint8_t *p, uint64_t v)
{
    if (a->bytes == 8)
        return __atomic_fetch_add((uint64_t *)(void *)p, v, __ATOMIC_RELAXED);
    uint32_t *w = (uint32_t *)(void *)p, old = __atomic_load_n(w, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(w, &old, (uint32_t)added(a, old, v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
static bool prepare_atomic(struct inst *i, char *why)
{
    if (!prepare_access(i, why))
        return false;
    const struct access *a = i->data;
    if (strstr(i->text, ".add.") && (a->bytes == 4 || (a->bytes == 8 && a->type != 'f')))
        return true;
    snprintf(why, MOESIM_WHY, "only add of 32-bit values and 64-bit integers");
    return false;
}
static void atom(struct lane *l, const struct inst *i, uint64_t *r)
{
    r[i->a[0].reg] = add_at(i->data, place(l, i, i->data, in(i, 1, r)), in(i, 2, r));
}
static void red(struct lane *l, const struct inst *i, uint64_t *r)
{
    add_at(i->data, place(l, i, i->data, in(i, 0, r)), in(i, 1, r));
}
static void mov(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    r[i->a[0].reg] = in(i, 1, r);
}
static void not_pred(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    r[i->a[0].reg] = !(in(i, 1, r) & 1);
}

// ---- cp.async (PTX ISA, "cp.async"): [dst], [src], cp-size{, src-size or ignore-src}
static bool prepare_copy(struct inst *i, char *why)
{
    bool ok = i->nargs >= 3 && i->a[2].kind == ARG_IMM &&
              (i->a[2].imm == 16 || (!strncmp(i->text, "cp.async.ca", 11) && (i->a[2].imm == 4 || i->a[2].imm == 8)));
    i->site->access |= ACCESS_WRITE;
    i->site->what = i->text;
    if (!ok)
        snprintf(why, MOESIM_WHY, "cp-size is 16, or 4 or 8 with .ca");
    return ok;
}
static void cp_async(struct lane *l, const struct inst *i, uint64_t *r)
{
    int bytes = (int)i->a[2].imm, from_bytes = bytes;
    bool pred = i->nargs > 3 && i->a[3].kind == ARG_REG && i->a[3].reg < 64 &&
                i->site->preds >> i->a[3].reg & 1; // a predicate: ignore-src
    if (i->nargs > 3)
        from_bytes = !pred ? (int)in(i, 3, r) : in(i, 3, r) & 1 ? 0 : bytes;
    if (from_bytes < 0 || from_bytes > bytes) {
        finding(l, i->site, F_OPERAND, 0, "%s: src-size %d is larger than cp-size %d", i->text, from_bytes, bytes);
        from_bytes = bytes;
    }
    uint32_t to = (uint32_t)in(i, 0, r);
    const uint8_t *from = from_bytes ? global_at(l, i->site, in(i, 1, r), from_bytes, bytes, ACCESS_READ) : NULL;
    struct block *b = l->warp->block;
    if (to % (uint32_t)bytes)
        finding(l, i->site, F_ALIGN, 0, "%s to shared byte 0x%x is not aligned to %d", i->text, to, bytes);
    else if (to > b->shared_bytes || (uint32_t)bytes > b->shared_bytes - to)
        finding(l, i->site, F_BOUNDS, 0, "%s to shared byte 0x%x, the block has 0x%x", i->text, to, b->shared_bytes);
    else
        copy_issue(l, i->site, to, from, bytes, from_bytes);
}
static void cp_commit(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)i;
    (void)r;
    copy_commit(l);
}
static void cp_wait(struct lane *l, const struct inst *i, uint64_t *r)
{
    int pending = (int)in(i, 0, r);
    if (pending < 0)
        finding(l, i->site, F_OPERAND, 0, "%s: %d groups", i->text, pending);
    copy_wait(l, pending < 0 ? 0 : pending);
}
static void cp_wait_all(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)i;
    (void)r;
    copy_commit(l);
    copy_wait(l, 0);
}

// ---- fragments (matrix.h)
static bool prepare_ldmatrix(struct inst *i, char *why)
{
    int n = strstr(i->text, ".x4") ? 4 : strstr(i->text, ".x2") ? 2 : strstr(i->text, ".x1") ? 1 : 0;
    int list = i->text[0] == 's' ? 1 : 0;
    i->num = n | (strstr(i->text, ".trans") ? 8 : 0);
    i->site->access |= i->text[0] == 's' ? ACCESS_WRITE : ACCESS_READ;
    i->site->what = i->text;
    if (n && i->nargs == 2 && (n == 1 || (i->a[list].kind == ARG_LIST && i->a[list].n == n)))
        return true;
    snprintf(why, MOESIM_WHY, "expected .x1, .x2 or .x4 with as many registers");
    return false;
}
static void rows_of(struct warp *w, const struct inst *i, uint64_t **r, int nth, int n, int access, uint8_t **rows)
{
    for (int k = 0; k < 8 * n; k++)
        rows[k] = shared_at(&w->lanes[k], i->site, (uint32_t)in(i, nth, r[k]), 16, 16, access);
}
static int reg_of(const struct arg *a, int k)
{
    return a->kind == ARG_LIST ? a->list[k] : a->reg;
}
static void ldmatrix(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    int n = (int)i->num & 7;
    uint8_t *rows[32];
    uint32_t regs[32 * 4];
    (void)mask;
    rows_of(w, i, r, 1, n, ACCESS_READ, rows);
    ldmatrix_run(n, i->num & 8, (const uint8_t *const *)rows, regs);
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < n; j++)
            r[k][reg_of(&i->a[0], j)] = regs[k * n + j];
}
static void stmatrix(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    int n = (int)i->num & 7;
    uint8_t *rows[32];
    uint32_t regs[32 * 4];
    (void)mask;
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < n; j++)
            regs[k * n + j] = (uint32_t)r[k][reg_of(&i->a[1], j)];
    rows_of(w, i, r, 0, n, ACCESS_WRITE, rows);
    stmatrix_run(n, i->num & 8, rows, regs);
}
static bool prepare_mma(struct inst *i, char *why)
{
    const struct matrix_op *m = matrix_find(i->text);
    bool ok = m && i->nargs == 4;
    if (ok) {
        const int words[4] = { m->d_words, m->a_words, m->b_words, m->d_words };
        for (int k = 0; k < 4; k++)
            ok = ok && (i->a[k].kind == ARG_LIST ? i->a[k].n : 1) == words[k];
    }
    if (!ok)
        snprintf(why, MOESIM_WHY, m ? "wrong number of registers" : "this shape is not known");
    i->data = m;
    return ok;
}
static void mma(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    const struct matrix_op *m = i->data;
    const int words[4] = { m->d_words, m->a_words, m->b_words, m->d_words };
    uint32_t v[4][32 * 8];
    (void)mask;
    for (int o = 1; o < 4; o++)
        for (int k = 0; k < 32; k++)
            for (int j = 0; j < words[o]; j++)
                v[o][k * words[o] + j] = (uint32_t)r[k][reg_of(&i->a[o], j)];
    matrix_run_as(m, w->block->launch->machine->sum, v[1], v[2], v[3], v[0]);
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < words[0]; j++)
            r[k][reg_of(&i->a[0], j)] = v[0][k * words[0] + j];
}

static void fence(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)r;
    order_fence(l->warp, (int)i->num);
}

#define SREG(name, fn) \
    { \
        "llvm.nvvm.read.ptx.sreg." name, fn, NULL, NULL, ANY_LANES, NULL \
    }
#define LANE(name, fn) \
    { \
        name, fn, NULL, NULL, ANY_LANES, NULL \
    }
const struct op nv_ops[] = {
    SREG("tid.x", tid),
    SREG("tid.*", zero),
    SREG("ntid.x", ntid),
    SREG("ntid.*", one),
    SREG("ctaid.x", ctaid),
    SREG("ctaid.*", zero),
    SREG("nctaid.x", nctaid),
    SREG("nctaid.*", one),
    SREG("laneid", laneid),
    SREG("warpid", warpid),
    LANE("llvm.nvvm.ex2.approx.ftz.f32", ex2_ftz),
    LANE("llvm.nvvm.ex2.approx.ftz.f", ex2_ftz),
    LANE("llvm.nvvm.ex2.approx.f32", ex2),
    LANE("llvm.nvvm.ex2.approx.f", ex2),
    LANE("llvm.nvvm.lg2.approx.f", lg2),
    LANE("llvm.nvvm.rcp.approx.ftz.f", rcp_ftz),
    LANE("llvm.nvvm.rcp.rn.f", rcp),
    LANE("llvm.nvvm.rsqrt.approx.f", rsqrt_),
    LANE("llvm.nvvm.sqrt.rn.f", sqrt_),
    LANE("llvm.nvvm.sqrt.approx.f", sqrt_),
    LANE("llvm.nvvm.tanh.approx.f", tanh_),
    { "llvm.nvvm.barrier.cta.sync.aligned.all", NULL, bar_sync, NULL, ALL_LANES, NULL },
    { "llvm.nvvm.barrier.cta.sync.aligned.count", NULL, bar_sync, NULL, ALL_LANES, NULL },
    { "llvm.nvvm.barrier.cta.arrive.aligned.count", NULL, bar_arrive, NULL, ALL_LANES, NULL },
    { "llvm.nvvm.barrier0", NULL, bar_sync, NULL, ALL_LANES, NULL },
    { "bar.sync", NULL, bar_sync, NULL, ALL_LANES, "v?v" },
    { "barrier.sync.aligned", NULL, bar_sync, NULL, ALL_LANES, "v?v" },
    { "barrier.cta.sync.aligned", NULL, bar_sync, NULL, ALL_LANES, "v?v" },
    { "bar.arrive", NULL, bar_arrive, NULL, ALL_LANES, "vv" },
    { "barrier.arrive.aligned", NULL, bar_arrive, NULL, ALL_LANES, "vv" },
    { "barrier.cta.arrive.aligned", NULL, bar_arrive, NULL, ALL_LANES, "vv" },
    { "llvm.nvvm.bar.warp.sync", NULL, warp_sync, NULL, NAMED_LANES, NULL },
    { "bar.warp.sync", NULL, warp_sync, NULL, NAMED_LANES, "v" },
    { "llvm.nvvm.shfl.sync.bfly.*", NULL, shfl_bfly, NULL, NAMED_LANES, NULL },
    { "llvm.nvvm.shfl.sync.idx.*", NULL, shfl_idx, NULL, NAMED_LANES, NULL },
    { "llvm.nvvm.shfl.sync.up.*", NULL, shfl_up, NULL, NAMED_LANES, NULL },
    { "llvm.nvvm.shfl.sync.down.*", NULL, shfl_down, NULL, NAMED_LANES, NULL },
    { "llvm.nvvm.vote.ballot.sync", NULL, ballot, NULL, NAMED_LANES, NULL },
    { "ld.*", ld, NULL, prepare_access, ANY_LANES, "xa?v" },
    { "st.*", st, NULL, prepare_access, ANY_LANES, "ay?v" },
    { "atom.*", atom, NULL, prepare_atomic, ANY_LANES, "dav?v" },
    { "red.*", red, NULL, prepare_atomic, ANY_LANES, "av?v" },
    { "mov.*", mov, NULL, NULL, ANY_LANES, "dv" },
    { "not.pred", not_pred, NULL, NULL, ANY_LANES, "dv" },
    { "cp.async.ca.shared.global*", cp_async, NULL, prepare_copy, ANY_LANES, "aav?vv" },
    { "cp.async.cg.shared.global*", cp_async, NULL, prepare_copy, ANY_LANES, "aav?vv" },
    { "cp.async.commit_group", cp_commit, NULL, NULL, ANY_LANES, "" },
    { "cp.async.wait_group", cp_wait, NULL, NULL, ANY_LANES, "v" },
    { "cp.async.wait_all", cp_wait_all, NULL, NULL, ANY_LANES, "" },
    { "ldmatrix.sync.aligned.m8n8.*", NULL, ldmatrix, prepare_ldmatrix, FULL_WARP, "xa" },
    { "stmatrix.sync.aligned.m8n8.*", NULL, stmatrix, prepare_ldmatrix, FULL_WARP, "ax" },
    { "mma.sync.aligned.*", NULL, mma, prepare_mma, FULL_WARP, "xxxx" },
    LANE("fence", fence),
    { NULL, NULL, NULL, NULL, ANY_LANES, NULL },
};
