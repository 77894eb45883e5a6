// Products of warpgroups in the simulator, alone and in a whole pipeline: one warp loads tiles with TMA into a ring, a warpgroup
// multiplies. Right kernels give the exact product in every order and no findings; each fault is found and named.
#include "sim_ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    M = 64,
    N = 64,
    K = 256,
    TILE = 64,
    STAGES = 3,
    STAGE_BYTES = 2 * M * TILE * 2,
    SEEDS = 24,
    OUT = M * 256,
    TEXT = 1 << 19
};

static char text[TEXT];
static size_t used;
static void put(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text + used, sizeof text - used, fmt, ap);
    va_end(ap);
    assert_true(n >= 0 && (size_t)n < sizeof text - used);
    used += (size_t)n;
}
static void put_list(const char *item, int from, int n) // "$0,$1,..."; item has one %d
{
    for (int k = 0; k < n; k++) {
        char one[64];
        char *d;
        snprintf(one, sizeof one, "%s", item);
        d = strstr(one, "%d");
        put("%s%.*s%d%s", k ? "," : "", (int)(d - one), one, from + k, d + 2);
    }
}

static void put_head(void)
{
    used = 0;
    put("%s", "@sh = external addrspace(3) global [0 x i32]\n"
              "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
              "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
              "declare void @llvm.nvvm.wgmma.fence.sync.aligned()\n"
              "declare void @llvm.nvvm.wgmma.commit_group.sync.aligned()\n"
              "declare void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64)\n"
              "define ptx_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b, "
              "ptr byval([128 x i8]) align 64 %ma, ptr byval([128 x i8]) align 64 %mb) {\n"
              "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
              "  %w = lshr i32 %t, 5\n  %l = and i32 %t, 31\n");
}
static void put_asm(const char *s)
{
    put("  call void asm sideeffect \"%s\", \"~{memory}\"()\n", s);
}

// ---- pieces of text; values are called %NAME.0, %NAME.1, ...

// Its result is %d.*; c: "x" for %x.*, "" for zeros.
static void put_wgmma(const char *d, const char *c, const char *a_desc, const char *b_desc, int n, int scale_d)
{
    int words = n / 2;
    put("  %%%s = call { ", d);
    for (int k = 0; k < words; k++)
        put("%sfloat", k ? ", " : "");
    put(" } asm sideeffect \"{\n.reg .pred p;\nsetp.ne.b32 p, $%d, "
        "0;\nwgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {",
        words + 2, n);
    put_list("$%d", 0, words);
    put("}, $%d, $%d, p, 1, 1, 0, 0;\n}\", \"", words, words + 1);
    for (int k = 0; k < words; k++)
        put("=f,");
    put("l,l,r,");
    put_list("%d", 0, words);
    put("\"(i64 %s, i64 %s, i32 %d", a_desc, b_desc, scale_d);
    for (int k = 0; k < words; k++)
        if (*c)
            put(", float %%%s.%d", c, k);
        else
            put(", float 0.0");
    put(")\n");
    for (int k = 0; k < words; k++) {
        put("  %%%s.%d = extractvalue { ", d, k);
        for (int j = 0; j < words; j++)
            put("%sfloat", j ? ", " : "");
        put(" } %%%s, %d\n", d, k);
    }
}

// wgmma.wait_group with the accumulators tied through it.
static void put_wait(const char *d, const char *c, int words, int pending)
{
    put("  %%%s = call { ", d);
    for (int k = 0; k < words; k++)
        put("%sfloat", k ? ", " : "");
    put(" } asm sideeffect \"wgmma.wait_group.sync.aligned %d;\", \"", pending);
    for (int k = 0; k < words; k++)
        put("=f,");
    put_list("%d", 0, words);
    put(",~{memory}\"(");
    for (int k = 0; k < words; k++)
        put("%sfloat %%%s.%d", k ? ", " : "", c, k);
    put(")\n");
    for (int k = 0; k < words; k++) {
        put("  %%%s.%d = extractvalue { ", d, k);
        for (int j = 0; j < words; j++)
            put("%sfloat", j ? ", " : "");
        put(" } %%%s, %d\n", d, k);
    }
}

// PTX ISA, "Register fragments" of wgmma: d_i is at row 16 warp + lane / 4 + 8 (i & 2), column 8 (i / 4) + 2 (lane % 4) + (i & 1).
static void put_epilogue(const char *d, int n)
{
    put("  %%r4 = lshr i32 %%l, 2\n  %%w16 = shl i32 %%w, 4\n  %%row = add i32 %%r4, %%w16\n  %%rn = mul i32 %%row, "
        "%d\n"
        "  %%c3 = and i32 %%l, 3\n  %%c2 = shl i32 %%c3, 1\n  %%at = add i32 %%rn, %%c2\n"
        "  %%ot = getelementptr float, ptr addrspace(1) %%o, i32 %%at\n",
        n);
    for (int k = 0; k < n / 2; k++)
        put("  %%q%d = getelementptr float, ptr addrspace(1) %%ot, i32 %d\n  store float %%%s.%d, ptr addrspace(1) "
            "%%q%d, align 4\n",
            k, (k & 2 ? 8 * n : 0) + k / 4 * 8 + (k & 1), d, k, k);
}

static void put_mbarrier(const char *what, int at, int value)
{
    char s[96];
    snprintf(s, sizeof s, value < 0 ? "mbarrier.%s [%d];" : "mbarrier.%s [%d], %d;", what, at, value);
    put_asm(s);
}
static void put_mbarrier_wait(int at, int parity)
{
    put("  call void asm sideeffect \"{\n.reg .pred P1;\nLAB_WAIT_${:uid}:\nmbarrier.try_wait.parity.shared::cta.b64 "
        "P1, [$0], "
        "$1;\n"
        "@P1 bra DONE;\nbra.uni LAB_WAIT_${:uid};\nDONE:\n}\", \"r,r,~{memory}\"(i32 %d, i32 %d)\n",
        at, parity);
}

// ---- running

struct ready {
    struct sim s;
    struct moesim_kernel *f;
    float *o;
    uint16_t *a, *b;
    _Alignas(64) uint8_t ma[128], mb[128];
    struct image_param p[5];
    struct image_kernel k;
};
static int value_a(int m, int k)
{
    return (m * 7 + k * 3 + k / 64) % 9 - 4;
}
static int value_b(int n, int k)
{
    return (n * 5 + k * 11 + n / 8) % 7 - 3;
}
static uint16_t bf16(int v) // of small integers
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)(u >> 16);
}

static const char *device = "sm_90a,threads=1";
static void open_kernel(struct ready *r, int threads, int shared, int rows)
{
    static uint16_t a[M * K], b[N * K];
    *r = (struct ready){ .s = sim_open(device) };
    for (int i = 0; i < M * K; i++)
        a[i] = bf16(value_a(i / K, i % K));
    for (int i = 0; i < N * K; i++)
        b[i] = bf16(value_b(i / K, i % K));
    r->o = r->s.api->alloc(r->s.d, OUT * 4);
    r->a = r->s.api->alloc(r->s.d, sizeof a);
    r->b = r->s.api->alloc(r->s.d, sizeof b);
    assert_true(r->s.api->write(r->s.d, r->a, a, sizeof a) && r->s.api->write(r->s.d, r->b, b, sizeof b));
    struct moesim_tensor t = { .elem = MOESIM_BF16,
                               .rank = 2,
                               .base = r->a,
                               .dims = { K, (uint64_t)rows },
                               .strides = { K * 2 },
                               .box = { TILE, M },
                               .steps = { 1, 1 },
                               .swizzle = 128 };
    assert_true(r->s.api->tensor_map(r->ma, &t, r->s.why));
    t.base = r->b;
    t.dims[1] = N;
    assert_true(r->s.api->tensor_map(r->mb, &t, r->s.why));
    if (!sim_load(&r->s, text))
        fail_msg("%s\n", r->s.why);
    r->p[0] = (struct image_param){ "o", IMAGE_OUT, IMAGE_F32, 1, 16, { { -1, OUT } }, false };
    r->p[1] = (struct image_param){ "a", IMAGE_IN, IMAGE_BF16, 1, 16, { { -1, M * K } }, false };
    r->p[2] = (struct image_param){ "b", IMAGE_IN, IMAGE_BF16, 1, 16, { { -1, N * K } }, false };
    r->p[3] = r->p[4] = (struct image_param){ .name = "map", .kind = IMAGE_SCALAR, .elem = IMAGE_I32, .align = 4 };
    r->k = (struct image_kernel){ .name = "k", .variant = "", .symbol = "k", .nparams = 5, .params = r->p };
    r->k.threads = threads;
    r->k.shared = shared;
    r->f = r->s.api->kernel(r->s.m, &r->k, r->s.why);
    assert_non_null(r->f);
}
static const char *run_seed(struct ready *r, unsigned seed, float *out)
{
    r->s.api->reseed(r->s.d, seed);
    r->s.api->clear(r->s.d);
    assert_true(r->s.api->fill(r->s.d, r->o, 0xff, OUT * 4, true));
    if (r->s.api->launch(r->f, 1, (void *[]){ &r->o, &r->a, &r->b, r->ma, r->mb }, NULL, false, r->s.why) < 0)
        fail_msg("%s", r->s.why);
    assert_true(r->s.api->read(r->s.d, out, r->o, OUT * 4));
    return sim_findings(&r->s);
}
static bool told(const char *findings, const char *kinds)
{
    for (const char *k = kinds; *k; k += strcspn(k, "|") + (k[strcspn(k, "|")] == '|')) {
        char want[48];
        snprintf(want, sizeof want, ": k: %.*s: ", (int)strcspn(k, "|"), k);
        if (strstr(findings, want))
            return true;
    }
    return false;
}

// ---- the pipeline: full[s] is at 49152 + 8 s, empty[s] at 49184 + 8 s

enum { FULL = STAGES * STAGE_BYTES, EMPTY = FULL + 32, SHARED = EMPTY + 32 };
enum fault {
    NONE,
    PIPELINED, // none: the products of one tile stay in flight while the next are issued
    LOOSE,     // none: waits inside the loop do not tie the accumulators
    NO_FULL_WAIT,
    WRONG_PARITY,
    NO_EXPECT,
    NO_ARRIVE,
    FEW_BYTES,
    SHORT_RING,
    NO_EMPTY_WAIT,
    EARLY_RELEASE,
    NO_RELEASE,
    NO_WAIT,
    SHALLOW_WAIT,
    NO_COMMIT,
    NO_FENCE,
    PLAIN_TILE,
};

static int slot_of(int tile, enum fault f)
{
    return (f == SHORT_RING ? tile % (STAGES - 1) : tile % STAGES) * STAGE_BYTES;
}

static void put_producer(enum fault f)
{
    put("  br i1 %%one, label %%load, label %%end\nload:\n");
    for (int tile = 0; tile < K / TILE; tile++) {
        int s = tile % STAGES, phase = tile / STAGES & 1, to = slot_of(tile, f);
        if (f != NO_EMPTY_WAIT)
            put_mbarrier_wait(EMPTY + 8 * s, phase ^ 1);
        if (f == NO_EXPECT)
            put_mbarrier("arrive.shared::cta.b64 _,", FULL + 8 * s, -1);
        else if (f != NO_ARRIVE)
            put_mbarrier("arrive.expect_tx.shared::cta.b64 _,", FULL + 8 * s,
                         f == FEW_BYTES ? STAGE_BYTES / 2 : STAGE_BYTES);
        for (int k = 0; k < 2; k++)
            put("  call void asm sideeffect "
                "\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, "
                "{$2, $3}], [$4];\", \"r,l,r,r,r,~{memory}\"(i32 %d, ptr %%m%c, i32 %d, i32 0, i32 %d)\n",
                to + k * STAGE_BYTES / 2, "ab"[k], tile * TILE, FULL + 8 * s);
    }
    put("  br label %%end\n");
}

static void put_release(int tile)
{
    put("  br i1 %%zero, label %%rel%d, label %%go%d\nrel%d:\n", tile, tile, tile);
    put_mbarrier("arrive.shared::cta.b64 _,", EMPTY + 8 * (tile % STAGES), -1);
    put("  br label %%go%d\ngo%d:\n", tile, tile);
}

// K-major, 128-byte swizzle: 8 rows are 1024 bytes.
static void descriptor(char out[32], int at, enum fault f)
{
    uint64_t plain = f == PLAIN_TILE ? 0 : 1;
    snprintf(out, 32, "%lld", (long long)((uint64_t)at >> 4 | 1ull << 16 | 64ull << 32 | plain << 62));
}

static void put_tile(int tile, enum fault f, char acc[16])
{
    int s = tile % STAGES, phase = tile / STAGES & 1, at = slot_of(tile, f);
    char a[32], b[32], d[16];
    if (f != NO_FULL_WAIT)
        put_mbarrier_wait(FULL + 8 * s, f == WRONG_PARITY ? phase ^ 1 : phase);
    if (f != NO_FENCE)
        put_asm("wgmma.fence.sync.aligned;");
    for (int k = 0; k < TILE / 16; k++) {
        descriptor(a, at + 32 * k, f);
        descriptor(b, at + STAGE_BYTES / 2 + 32 * k, f);
        snprintf(d, sizeof d, "d%d_%d", tile, k);
        put_wgmma(d, acc, a, b, N, tile || k);
        strcpy(acc, d);
    }
    if (f != NO_COMMIT)
        put_asm("wgmma.commit_group.sync.aligned;");
    if (f == EARLY_RELEASE)
        put_release(tile);
    snprintf(d, sizeof d, "e%d", tile);
    if (f == PIPELINED) {
        put_wait(d, acc, N / 2, 1);
        strcpy(acc, d);
    } else if (f == LOOSE) {
        put_asm("wgmma.wait_group.sync.aligned 0;");
    } else if (f != NO_WAIT) {
        put_wait(d, acc, N / 2, f == SHALLOW_WAIT ? 1 : 0);
        strcpy(acc, d);
    }
    if (f == PIPELINED && tile)
        put_release(tile - 1);
    if (f != PIPELINED && f != EARLY_RELEASE && f != NO_RELEASE)
        put_release(tile);
}

static void put_pipeline(enum fault f)
{
    char acc[16] = "";
    put_head();
    put("  %%zero = icmp eq i32 %%l, 0\n  %%consumer = icmp ult i32 %%t, 128\n"
        "  %%first = icmp eq i32 %%t, 0\n  br i1 %%first, label %%sx, label %%sz\nsx:\n");
    for (int s = 0; s < STAGES; s++) {
        put_mbarrier("init.shared::cta.b64", FULL + 8 * s, 1);
        put_mbarrier("init.shared::cta.b64", EMPTY + 8 * s, 4);
    }
    put_asm("fence.mbarrier_init.release.cluster;");
    put("  br label %%sz\nsz:\n  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
        "  br i1 %%consumer, label %%c, label %%p\np:\n"
        "  %%e = call i32 asm sideeffect \"{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }\", "
        "\"=r\"()\n"
        "  %%one = icmp eq i32 %%e, 1\n");
    put_producer(f);
    put("c:\n");
    for (int tile = 0; tile < K / TILE; tile++)
        put_tile(tile, f, acc);
    if (f == PIPELINED || f == LOOSE) {
        put_wait("last", acc, N / 2, 0);
        strcpy(acc, "last");
    }
    put_epilogue(acc, N);
    put("  br label %%end\nend:\n  ret void\n}\n");
}

static int dot(int m, int n, int rows)
{
    int sum = 0;
    for (int k = 0; k < K && m < rows; k++)
        sum += value_a(m, k) * value_b(n, k);
    return sum;
}

static void right(enum fault f, int rows)
{
    static float out[OUT];
    struct ready r;
    put_pipeline(f);
    open_kernel(&r, 160, SHARED, rows);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        assert_string_equal(run_seed(&r, seed, out), "");
        for (int i = 0; i < M * N; i++)
            if (out[i] != (float)dot(i / N, i % N, rows))
                fail_msg("seed %u: [%d, %d] is %g, not %d", seed, i / N, i % N, out[i], dot(i / N, i % N, rows));
    }
    sim_close(&r.s);
}
static void pipeline(void **state)
{
    (void)state;
    right(NONE, M);
    right(PIPELINED, M);
    right(LOOSE, M);
    right(NONE, 50); // rows of A beyond the tensor are zeros
    device = "sm_90a,threads=1,fast";
    right(PIPELINED, M);
    device = "sm_90a,threads=1";
}

// kinds: one of them is told with every seed; "": nothing is. nan: accumulators are NaN; wrong: they differ.
enum result { ANY, NANS, DIFFERS };
static void faulty(enum fault f, const char *kinds, const char *words, enum result result)
{
    static float out[OUT];
    struct ready r;
    put_pipeline(f);
    open_kernel(&r, 160, SHARED, M);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        const char *findings = run_seed(&r, seed, out);
        int nans = 0, wrong = 0;
        for (int i = 0; i < M * N; i++) {
            nans += isnan(out[i]) != 0;
            wrong += out[i] != (float)dot(i / N, i % N, M);
        }
        if (*kinds ? !told(findings, kinds) || !strstr(findings, words) : *findings != 0)
            fail_msg("fault %d, seed %u: expected '%s' and '%s' in:\n%s", (int)f, seed, kinds, words, findings);
        if ((result == NANS && nans != M * N) || (result == DIFFERS && !wrong))
            fail_msg("fault %d, seed %u: %d NaNs, %d wrong", (int)f, seed, nans, wrong);
    }
    sim_close(&r.s);
}
static void pipeline_faults(void **state)
{
    (void)state;
    faulty(NO_FULL_WAIT, "async|race|unwritten", "wgmma", ANY);
    faulty(WRONG_PARITY, "async|race|unwritten|deadlock", "", ANY);
    faulty(NO_EXPECT, "async|race|operand", "", ANY);
    faulty(NO_ARRIVE, "deadlock", "mbarrier 0xc000: phase 0 lacks 1 of 1 arrivals and -16384 bytes", ANY);
    faulty(FEW_BYTES, "async|race|operand", "", ANY);
    faulty(SHORT_RING, "async|race", "tensor", ANY);
    faulty(NO_EMPTY_WAIT, "async|race", "tensor", ANY);
    faulty(EARLY_RELEASE, "async|race", "tensor", ANY);
    faulty(NO_RELEASE, "deadlock", "warps 0-4 at mbarrier.try_wait", ANY);
    faulty(NO_WAIT, "leak|async", "wgmma", NANS);
    faulty(SHALLOW_WAIT, "leak|async", "wgmma", NANS);
    faulty(NO_COMMIT, "leak", "is not committed (wgmma.commit_group) when the thread ends", NANS);
    faulty(NO_FENCE, "async", "wgmma.fence is missing", ANY);
    faulty(PLAIN_TILE, "", "", DIFFERS); // the descriptors' swizzle is not the copies'
}

// ---- one product: A and B are written by the threads themselves, all ones; one product is 16 everywhere

enum { A_AT = 0, B_AT = 2048, ONE_SHARED = 4096 };
// No swizzle, K-major: 8 rows are 128 bytes; the halves of K are 1024 (A) and 128 bytes (B, n = 8) apart.
static char a_desc[32], b_desc[32];

// Every thread writes its part, then does `before`, then the barrier.
static void put_one(const char *before)
{
    snprintf(a_desc, sizeof a_desc, "%lld", (long long)(A_AT >> 4 | 64ll << 16 | 8ll << 32));
    snprintf(b_desc, sizeof b_desc, "%lld", (long long)(B_AT >> 4 | 8ll << 16 | 8ll << 32));
    put_head();
    put("  %%my = shl i32 %%t, 4\n  %%p = getelementptr i8, ptr addrspace(3) @sh, i32 %%my\n"
        "  store <4 x i32> splat (i32 %d), ptr addrspace(3) %%p, align 16\n"
        "  %%p2 = getelementptr i8, ptr addrspace(3) %%p, i32 2048\n"
        "  store <4 x i32> splat (i32 %d), ptr addrspace(3) %%p2, align 16\n%s"
        "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n",
        0x3f803f80, 0x3f803f80, before);
}
#define PROXY "  call void asm sideeffect \"fence.proxy.async;\", \"~{memory}\"()\n"
static void put_end(const char *d)
{
    put_epilogue(d, 8);
    put("  ret void\n}\n");
}

// value: of all results; kinds as in faulty().
static void one(int threads, float value, const char *kinds, const char *words)
{
    static float out[OUT];
    struct ready r;
    open_kernel(&r, threads, ONE_SHARED, M);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        const char *findings = run_seed(&r, seed, out);
        if (*kinds ? !told(findings, kinds) || !strstr(findings, words) : *findings != 0)
            fail_msg("seed %u: expected '%s' and '%s' in:\n%s", seed, kinds, words, findings);
        for (int i = 0; i < M * 8; i++)
            if (isnan(value) ? !isnan(out[i]) : value >= 0 && out[i] != value)
                fail_msg("seed %u: %d is %g, not %g", seed, i, out[i], value);
    }
    sim_close(&r.s);
}
#define COMMIT "wgmma.commit_group.sync.aligned;"
#define FENCE "wgmma.fence.sync.aligned;"

// One product into d, fenced and committed.
static void put_issued(void)
{
    put_asm(FENCE);
    put_wgmma("d", "", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
}

static void products(void **state)
{
    (void)state;
    put_one(PROXY);
    put_issued();
    put_wait("e", "d", 4, 0);
    put_end("e");
    one(128, 16, "", "");
    // Intrinsics for all but the product; a second product on values that nobody touched needs no fence.
    put_one(PROXY);
    put("  call void @llvm.nvvm.wgmma.fence.sync.aligned()\n");
    put_wgmma("d", "", a_desc, b_desc, 8, 0);
    put("  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()\n"
        "  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n");
    put_wait("e", "d", 4, 0);
    put_wgmma("f", "e", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
    put_wait("g", "f", 4, 0);
    put_end("g");
    one(128, 32, "", "");
    // A in registers.
    put_one(PROXY);
    put_asm(FENCE);
    put("  %%d = call { float, float, float, float } asm sideeffect \"{ .reg .pred p; setp.ne.b32 p, $9, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, $8, p, -1, 1, 0; }\", "
        "\"=f,=f,=f,=f,r,r,r,r,l,r,0,1,2,3\"(i32 %d, i32 %d, i32 %d, i32 %d, i64 %s, i32 1, float 1.0, float 1.0, "
        "float 1.0, float "
        "1.0)\n",
        0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, b_desc);
    for (int k = 0; k < 4; k++)
        put("  %%d.%d = extractvalue { float, float, float, float } %%d, %d\n", k, k);
    put_asm(COMMIT);
    put_wait("e", "d", 4, 0);
    for (int k = 0; k < 4; k++)
        put("  %%n.%d = fneg float %%e.%d\n", k, k);
    put_end("n");
    one(128, 15, "", "");
}

// A product in a loop: handles go round through phi.
static void loop(void **state)
{
    (void)state;
    put_one(PROXY);
    put("  br label %%again\nagain:\n  %%i = phi i32 [ 0, %%0 ], [ %%j, %%again ]\n");
    for (int k = 0; k < 4; k++)
        put("  %%c.%d = phi float [ 0.0, %%0 ], [ %%d.%d, %%again ]\n", k, k);
    put_asm(FENCE);
    put_wgmma("d", "c", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
    put_asm("wgmma.wait_group.sync.aligned 1;");
    put("  %%j = add i32 %%i, 1\n  %%more = icmp ult i32 %%j, 100\n  br i1 %%more, label %%again, label %%x\nx:\n");
    put_wait("e", "d", 4, 0);
    put_end("e");
    one(128, 1600, "", "");
}

// Every width. A is of ones, row i of B of i: column i of the result is 16 i.
static void widths(void **state)
{
    static const int ns[] = { 8, 16, 24, 40, 64, 96, 128, 192, 248, 256 };
    static float out[OUT];
    (void)state;
    for (size_t w = 0; w < sizeof ns / sizeof ns[0]; w++) {
        int n = ns[w];
        struct ready r;
        snprintf(a_desc, sizeof a_desc, "%lld", (long long)(A_AT >> 4 | 64ll << 16 | 8ll << 32));
        snprintf(b_desc, sizeof b_desc, "%lld", (long long)(B_AT >> 4 | 8ll << 16 | 16ll << 32)); // 8 rows: 256 bytes
        put_head();
        put("  %%my = shl i32 %%t, 4\n  %%p = getelementptr i8, ptr addrspace(3) @sh, i32 %%my\n"
            "  store <4 x i32> splat (i32 %d), ptr addrspace(3) %%p, align 16\n  %%r7 = and i32 %%t, 7\n",
            0x3f803f80);
        for (int k = 0; k < 4; k++) // 16 bytes of B: number q is of row 8 (q / 16) + q % 8
            put("  %%qq%d = add i32 %%t, %d\n  %%g%d = lshr i32 %%qq%d, 4\n  %%h%d = shl i32 %%g%d, 3\n"
                "  %%i%d = or i32 %%h%d, %%r7\n  %%f%d = uitofp i32 %%i%d to float\n  %%u%d = bitcast float %%f%d to "
                "i32\n"
                "  %%lo%d = lshr i32 %%u%d, 16\n  %%v%d = or i32 %%lo%d, %%u%d\n"
                "  %%w%d = insertelement <4 x i32> poison, i32 %%v%d, i32 0\n"
                "  %%x%d = shufflevector <4 x i32> %%w%d, <4 x i32> poison, <4 x i32> zeroinitializer\n"
                "  %%z%d = getelementptr i8, ptr addrspace(3) %%p, i32 %d\n"
                "  store <4 x i32> %%x%d, ptr addrspace(3) %%z%d, align 16\n",
                k, 128 * k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, B_AT + 2048 * k, k, k);
        put("%s  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n", PROXY);
        put_asm(FENCE);
        put_wgmma("d", "", a_desc, b_desc, n, 1);
        put_asm(COMMIT);
        put_wait("e", "d", n / 2, 0);
        put_epilogue("e", n);
        put("  ret void\n}\n");
        open_kernel(&r, 128, B_AT + 8192, M);
        for (unsigned seed = 0; seed < 3; seed++) {
            assert_string_equal(run_seed(&r, seed, out), "");
            for (int i = 0; i < M * n; i++)
                if (out[i] != (float)(16 * (i % n)))
                    fail_msg("n %d, seed %u: row %d, column %d is %g", n, seed, i / n, i % n, out[i]);
        }
        sim_close(&r.s);
    }
}

static void put_product(const char *between, int pending)
{
    put_issued();
    put("%s", between);
    put_wait("e", "d", 4, pending);
    put_end("e");
}
#define OVERWRITE(at) \
    "  %z = getelementptr i8, ptr addrspace(3) @sh, i32 " #at "\n  store i32 0, ptr addrspace(3) %z, align 4\n"
static void product_faults(void **state)
{
    (void)state;
    put_one("");
    put_product("", 0);
    one(128, -1, "race", "fence.proxy.async is missing");
    put_one(PROXY);
    put_product("", 1);
    one(128, NAN, "leak", "is not waited for (wgmma.wait_group)");
    put_one(PROXY);
    put_product(OVERWRITE(2048), 0);
    one(128, -1, "async", "is written by this store while the wgmma.mma_async");
    put_one(PROXY);
    put_product(OVERWRITE(2304), 0); // past B
    one(128, 16, "", "");
    put_one(PROXY);
    put_wgmma("d", "", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
    put_wait("e", "d", 4, 0);
    put_end("e");
    one(128, 16, "async", "wgmma.fence is missing");
    // Accumulators changed between two products, without a fence.
    put_one(PROXY);
    put_issued();
    put_wait("e", "d", 4, 0);
    for (int k = 0; k < 4; k++)
        put("  %%h.%d = fmul float %%e.%d, 0.5\n", k, k);
    put_wgmma("f", "h", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
    put_wait("g", "f", 4, 0);
    put_end("g");
    one(128, 24, "async", "wgmma.fence is missing");
    // A result used before it is there.
    put_one(PROXY);
    put_issued();
    for (int k = 0; k < 4; k++)
        put("  %%h.%d = fmul float %%d.%d, 0.5\n", k, k);
    put_asm("wgmma.wait_group.sync.aligned 0;");
    put_end("h");
    one(128, NAN, "", "");
}

static void groups(void **state)
{
    (void)state;
    // Elements of an unfinished product in another order.
    put_one(PROXY);
    put_asm(FENCE);
    put_wgmma("d", "", a_desc, b_desc, 8, 1);
    for (int k = 0; k < 4; k++)
        put("  %%s.%d = freeze float %%d.%d\n", k, 3 - k);
    put_wgmma("f", "s", a_desc, b_desc, 8, 1);
    put_asm(COMMIT);
    put_wait("g", "f", 4, 0);
    put_end("g");
    one(128, -1, "async", "not of the same shape and order");
    // Not a whole warpgroup; a warp that stays away; descriptors that differ.
    put_one(PROXY);
    put_product("", 0);
    one(96, -1, "divergent", "in no whole warpgroup: the block has 96 threads");
    put_one(PROXY);
    put("  %%away = icmp eq i32 %%w, 2\n  br i1 %%away, label %%out, label %%in\nout:\n  ret void\nin:\n");
    put_product("", 0);
    one(128, -1, "deadlock", "warps 0-1 at wgmma.mma_async");
    put_one(PROXY);
    put("  %%far = zext i32 %%w to i64\n  %%bd = add i64 %%far, %s\n", b_desc);
    strcpy(b_desc, "%bd");
    put_product("", 0);
    one(128, -1, "operand", "must be the same in all threads of the warpgroup");
    put_one(PROXY);
    snprintf(a_desc, sizeof a_desc, "%lld", (long long)(4064 >> 4 | 64ll << 16 | 8ll << 32));
    put_product("", 0);
    one(128, -1, "operand", "past the shared memory");
}

static void registers(void **state)
{
    (void)state;
    put_one(PROXY);
    put_asm("setmaxnreg.inc.sync.aligned.u32 240;");
    put_asm("setmaxnreg.dec.sync.aligned.u32 24;");
    put_product("", 0);
    one(128, 16, "", "");
    put_one(PROXY);
    put_asm("setmaxnreg.dec.sync.aligned.u32 100;");
    put_product("", 0);
    one(128, 16, "operand", "100 registers, not a multiple of 8");
    put_one(PROXY);
    put("  %%away = icmp eq i32 %%w, 3\n  br i1 %%away, label %%out, label %%in\nin:\n");
    put_asm("setmaxnreg.dec.sync.aligned.u32 24;");
    put("  br label %%out\nout:\n");
    put_product("", 0);
    one(128, -1, "divergent", "another warp of the warpgroup is at");
}

static void bad_immediates(void **state)
{
    static const char *const scales[] = { "2, 1", "1, 0", "-1, -2" };
    (void)state;
    put_one(PROXY);
    put_product("", -1);
    one(128, -1, "operand", "wgmma.wait_group.sync.aligned: -1 groups");
    for (int i = 0; i < 3; i++) {
        put_one(PROXY);
        put_asm(FENCE);
        put("  %%d = call { float, float, float, float } asm sideeffect "
            "\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $4, $5, 0, %s, 0, 0;\", "
            "\"=f,=f,=f,=f,l,l,0,1,2,3\"(i64 %s, i64 %s, float 0.0, float 0.0, float 0.0, float 0.0)\n",
            scales[i], a_desc, b_desc);
        for (int k = 0; k < 4; k++)
            put("  %%d.%d = extractvalue { float, float, float, float } %%d, %d\n", k, k);
        put_asm(COMMIT);
        put_wait("e", "d", 4, 0);
        put_end("e");
        one(128, -1, "operand", "which are 1 or -1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipeline),       cmocka_unit_test(pipeline_faults),
        cmocka_unit_test(products),       cmocka_unit_test(widths),
        cmocka_unit_test(loop),           cmocka_unit_test(product_faults),
        cmocka_unit_test(groups),         cmocka_unit_test(registers),
        cmocka_unit_test(bad_immediates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
