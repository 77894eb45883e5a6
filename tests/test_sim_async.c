// NVIDIA's asynchronous engines in the simulator: mbarriers, bulk and tensor copies, proxy fences. Right programs give the right
// results in every order and no findings; each fault is found and named. Products of warpgroups, and a whole pipeline: test_sim_wgmma.c.
#include "sim_ir.h"
#include "../runtime/sim/matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 64, SEEDS = 24, WORDS = 4096 };

#define HEAD \
    "@sh = external addrspace(3) global [0 x i32]\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n" \
    "declare void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3), i32)\n" \
    "declare void @llvm.nvvm.mbarrier.inval.shared(ptr addrspace(3))\n" \
    "declare i64 @llvm.nvvm.mbarrier.arrive.shared(ptr addrspace(3))\n" \
    "declare i1 @llvm.nvvm.mbarrier.test.wait.shared(ptr addrspace(3), i64)\n" \
    "declare i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3), i32)\n" \
    "declare i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3), i32)\n" \
    "declare void @llvm.nvvm.fence.proxy.async.shared_cta()\n" \
    "declare void @llvm.nvvm.cp.async.bulk.global.to.shared.cta(ptr addrspace(3), ptr addrspace(3), ptr " \
    "addrspace(1), i32, i64, " \
    "i1)\n" \
    "declare void @llvm.nvvm.cp.async.bulk.shared.cta.to.global(ptr addrspace(1), ptr addrspace(3), i32, i64, i1)\n" \
    "declare void @llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile.2d(ptr addrspace(3), ptr addrspace(3), ptr, i32, i32, " \
    "i64, i1)\n" \
    "declare void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d(ptr addrspace(3), ptr, i32, i32, i64, i1)\n" \
    "declare void @llvm.nvvm.cp.async.bulk.commit.group()\n" \
    "declare void @llvm.nvvm.cp.async.bulk.wait.group(i32)\n" \
    "define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, ptr byval([128 x i8]) align 64 %map) {\n" \
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "  %at = getelementptr i32, ptr addrspace(1) %a, i32 %t\n" \
    "  %ot = getelementptr i32, ptr addrspace(1) %o, i32 %t\n" \
    "  %d0 = getelementptr i8, ptr addrspace(3) @sh, i32 1024\n" \
    "  %dt = getelementptr i32, ptr addrspace(3) %d0, i32 %t\n" \
    "  %first = icmp eq i32 %t, 0\n" \
    "  %low = icmp ult i32 %t, 32\n"
#define TAIL "  ret void\n}\n"
#define BARRIER "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
#define ASM(text) "  call void asm sideeffect \"" text "\", \"~{memory}\"()\n"
#define INIT(at, n) ASM("mbarrier.init.shared::cta.b64 [" #at "], " #n ";")
#define ARRIVE(at) ASM("mbarrier.arrive.shared::cta.b64 _, [" #at "];")
#define EXPECT(at, n) ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [" #at "], " #n ";")
#define WAIT(at, parity) \
    "  call void asm sideeffect \"{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [$0], " \
    "$1;\n" \
    "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}\", \"r,r,~{memory}\"(i32 " #at ", i32 " #parity ")\n"
#define SHOWN ASM("fence.mbarrier_init.release.cluster;")
#define FENCE ASM("fence.proxy.async.shared::cta;")
// One thread does `body`; then everybody goes on at label `name`z.
#define FIRST(name, body) \
    "  br i1 %first, label %" name "x, label %" name "z\n" name "x:\n" body "  br label %" name "z\n" name "z:\n"
#define START(n) FIRST("s", INIT(0, n) SHOWN) BARRIER

struct job {
    const char *ir;
    int threads, shared;
    const struct moesim_tensor *map; // base: offset into the tensor `a`, or into `o` if to_out
    bool to_out, map_in_a;           // map_in_a: the map lies at the beginning of `a`
};
struct run {
    int status;
    const char *text;
    int32_t out[WORDS];
};
// A loaded kernel. a: in[WORDS] = 100 + i; o: out[WORDS], poison before each run.
struct ready {
    struct sim s;
    struct moesim_kernel *f;
    int32_t *a, *o;
    _Alignas(64) uint8_t map[128];
    struct image_param p[3];
    struct image_kernel k;
};
static void open_job(struct ready *r, const struct job *j)
{
    static int32_t in[WORDS];
    *r = (struct ready){ .s = sim_open("sm_90a,threads=1") };
    r->a = r->s.api->alloc(r->s.d, sizeof in);
    r->o = r->s.api->alloc(r->s.d, sizeof in);
    for (int i = 0; i < WORDS; i++)
        in[i] = 100 + i;
    assert_true(r->s.api->write(r->s.d, r->a, in, sizeof in));
    if (j->map) {
        struct moesim_tensor t = *j->map;
        t.base = (const uint8_t *)(j->to_out ? r->o : r->a) + (uintptr_t)t.base;
        if (!r->s.api->tensor_map(r->map, &t, r->s.why))
            fail_msg("%s", r->s.why);
        assert_true(!j->map_in_a || r->s.api->write(r->s.d, r->a, r->map, sizeof r->map));
    }
    if (!sim_load(&r->s, j->ir))
        fail_msg("%s\n%s", r->s.why, j->ir);
    const struct image_extent words = { -1, WORDS };
    r->p[0] = (struct image_param){ "a", IMAGE_IN, IMAGE_I32, 1, 16, { words }, false };
    r->p[1] = (struct image_param){ "o", IMAGE_INOUT, IMAGE_I32, 1, 16, { words }, false };
    r->p[2] = (struct image_param){ .name = "map", .kind = IMAGE_SCALAR, .elem = IMAGE_I32, .align = 4 };
    r->k = (struct image_kernel){ .name = "k", .variant = "", .symbol = "k", .nparams = 3, .params = r->p };
    r->k.threads = j->threads;
    r->k.shared = j->shared;
    r->f = r->s.api->kernel(r->s.m, &r->k, r->s.why);
    assert_non_null(r->f);
}
static struct run run_seed(struct ready *r, unsigned seed)
{
    static char text[16384];
    static struct run ran;
    r->s.api->reseed(r->s.d, seed);
    r->s.api->clear(r->s.d);
    assert_true(r->s.api->fill(r->s.d, r->o, 0xff, sizeof ran.out, true));
    ran.status = r->s.api->launch(r->f, 1, (void *[]){ &r->a, &r->o, r->map }, NULL, false, r->s.why);
    if (ran.status < 0)
        fail_msg("%s", r->s.why);
    snprintf(text, sizeof text, "%s", sim_findings(&r->s));
    ran.text = text;
    assert_true(r->s.api->read(r->s.d, ran.out, r->o, sizeof ran.out));
    return ran;
}

static void clean_job(struct job j, int32_t (*want)(int i))
{
    struct ready ready;
    open_job(&ready, &j);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct run r = run_seed(&ready, seed);
        assert_string_equal(r.text, "");
        assert_int_equal(r.status, 0);
        for (int i = 0; i < j.threads; i++)
            if (r.out[i] != want(i))
                fail_msg("seed %u: out[%d] is %d, not %d", seed, i, r.out[i], want(i));
    }
    sim_close(&ready.s);
}
static void clean(const char *ir, int32_t (*want)(int i))
{
    clean_job((struct job){ .ir = ir, .threads = N, .shared = 4096 }, want);
}

// Found with every seed: one of the kinds "a|b|c", and these words.
static void found_job(struct job j, const char *kinds, const char *words)
{
    struct ready ready;
    open_job(&ready, &j);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        char kind[32], want[48];
        bool ok = false;
        struct run r = run_seed(&ready, seed);
        for (const char *k = kinds; *k && !ok; k += strcspn(k, "|") + (k[strcspn(k, "|")] == '|')) {
            snprintf(kind, sizeof kind, "%.*s", (int)strcspn(k, "|"), k);
            snprintf(want, sizeof want, ": k: %s: ", kind);
            ok = strstr(r.text, want) != NULL;
        }
        if (!ok || !strstr(r.text, words) || r.status != 1)
            fail_msg("seed %u: expected '%s' and '%s' in:\n%s", seed, kinds, words, r.text);
    }
    sim_close(&ready.s);
}
static void found(const char *ir, const char *kinds, const char *words)
{
    found_job((struct job){ .ir = ir, .threads = N, .shared = 4096 }, kinds, words);
}

// ---- mbarriers: warp 0 writes and arrives, warp 1 waits and reads

#define WRITER "  br i1 %low, label %x, label %y\nx:\n  store i32 %t, ptr addrspace(3) %dt, align 4\n"
#define READER \
    "  store i32 -1, ptr addrspace(1) %ot, align 4\n  br label %z\ny:\n" \
    "  %q = xor i32 %t, 32\n  %dq = getelementptr i32, ptr addrspace(3) %d0, i32 %q\n"
#define READ \
    "  %v = load i32, ptr addrspace(3) %dq, align 4\n  store i32 %v, ptr addrspace(1) %ot, align 4\n  br label " \
    "%z\nz:\n" TAIL
static int32_t produced(int i)
{
    return i < 32 ? -1 : i - 32;
}
static void mbarrier(void **state)
{
    (void)state;
    clean(HEAD START(32) WRITER ARRIVE(0) READER WAIT(0, 0) READ, produced);
    found(HEAD START(32) WRITER ARRIVE(0) READER READ, "race|unwritten", "shared byte 0x4");
    found(HEAD START(32) WRITER ARRIVE(0) READER WAIT(0, 1) READ, "race|unwritten|deadlock", ""); // wrong parity
    found(HEAD START(33) WRITER ARRIVE(0) READER WAIT(0, 0) READ, "deadlock",
          "mbarrier.try_wait.parity.shared::cta.b64, line unknown; mbarrier 0x0: phase 0 lacks 1 of 33 arrivals");
    found(HEAD START(32) WRITER READER WAIT(0, 0) READ, "deadlock", "warp 0 ended; warp 1 at mbarrier.try_wait");
    found(HEAD FIRST("s", INIT(0, 32)) WRITER ARRIVE(0) READER WAIT(0, 0) READ, "race|operand",
          "mbarrier"); // no barrier
    found(HEAD START(32) WRITER ARRIVE(8) READER WAIT(0, 0) READ, "operand",
          "no mbarrier is initialised at shared byte 0x8");
    // Relaxed operations order nothing.
    found(HEAD START(32) WRITER ASM("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [0];") READER WAIT(0, 0) READ,
          "race", "was written by thread");
}

static int32_t next(int i)
{
    return (i + 1) & 63;
}
#define STORE "  store i32 %t, ptr addrspace(3) %dt, align 4\n"
#define NEXT(v) \
    "  %n" v " = add i32 %t, 1\n  %m" v " = and i32 %n" v ", 63\n" \
    "  %p" v " = getelementptr i32, ptr addrspace(3) %d0, i32 %m" v "\n" \
    "  %r" v " = load i32, ptr addrspace(3) %p" v ", align 4\n  store i32 %r" v ", ptr addrspace(1) %ot, align 4\n"
// All threads wait on the state that their own arrival returned, in LLVM's intrinsics; and in phases, by parity.
#define BY_STATE \
    "  %s = call i64 @llvm.nvvm.mbarrier.arrive.shared(ptr addrspace(3) @sh)\n  br label %l\nl:\n" \
    "  %c = call i1 @llvm.nvvm.mbarrier.test.wait.shared(ptr addrspace(3) @sh, i64 %s)\n" \
    "  br i1 %c, label %e, label %l\ne:\n"
#define BY_PARITY(l, p) \
    ARRIVE(0) \
    "  br label %l" l "\nl" l ":\n" \
    "  %c" l " = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) @sh, i32 " #p ")\n" \
    "  br i1 %c" l ", label %e" l ", label %l" l "\ne" l ":\n"
static void phases(void **state)
{
    (void)state;
    clean(HEAD START(64) STORE BY_STATE NEXT("a") TAIL, next);
    clean(HEAD START(64) STORE BY_PARITY("a", 0) NEXT("a") BY_PARITY("b", 1) STORE BY_PARITY("c", 0) NEXT("c") TAIL,
          next);
    // The second wait has the parity of the first: it returns at once.
    found(HEAD START(64) STORE BY_PARITY("a", 0) NEXT("a") BY_PARITY("b", 0) STORE BY_PARITY("c", 1) NEXT("c") TAIL,
          "race|deadlock", "");
    // Two arrivals a thread; .noComplete for the first.
    clean(HEAD START(128) STORE ASM("mbarrier.arrive.noComplete.shared::cta.b64 _, [0], 1;") BY_STATE NEXT("a") TAIL,
          next);
    clean(HEAD START(128) STORE ASM("{ .reg .b64 s; .reg .b32 n; mbarrier.arrive.shared::cta.b64 s, [0], 2; "
                                    "mbarrier.pending_count.b64 n, s; }") WAIT(0, 0) NEXT("a") TAIL,
          next);
    // The first phase has 64 arrivals, of which 32 leave.
    clean(HEAD START(64) WRITER ASM("mbarrier.arrive_drop.shared::cta.b64 _, [0];") READER ARRIVE(0) WAIT(0, 0)
              ARRIVE(0) WAIT(0, 1) READ,
          produced);
}

static void mbarrier_faults(void **state)
{
    (void)state;
    found(HEAD FIRST("s", INIT(0, 0)) TAIL, "operand", "a count of 0");
    found(HEAD FIRST("s", INIT(0, 1048576)) TAIL, "operand", "a count of 1048576");
    found(HEAD FIRST("s", INIT(4, 1)) TAIL, "misaligned", "not aligned to 8");
    found(HEAD FIRST("s", INIT(4096, 1)) TAIL, "bounds", "the block has 0x1000");
    found(HEAD FIRST("s", INIT(0, 1) INIT(0, 1)) TAIL, "operand", "holds an mbarrier already");
    clean(HEAD FIRST("s", INIT(0, 1) ASM("mbarrier.inval.shared::cta.b64 [0];") INIT(0, 64))
              BARRIER STORE BY_STATE NEXT("a") TAIL,
          next);
    found(HEAD FIRST("s", INIT(0, 1) ASM("mbarrier.inval.shared::cta.b64 [0];")) BARRIER WAIT(0, 1) TAIL, "operand",
          "no mbarrier is initialised");
    found(HEAD START(2) FIRST("a", ASM("mbarrier.arrive.shared::cta.b64 _, [0], 3;")) TAIL, "operand",
          "arrives 3 times at the mbarrier at shared byte 0x0, whose phase 0 waits for 2 more of 2");
    found(HEAD START(1) FIRST("a", ASM("mbarrier.arrive.noComplete.shared::cta.b64 _, [0], 1;")) TAIL, "operand",
          "completes the phase");
    found(HEAD START(1) FIRST("a", WAIT(0, 2)) TAIL, "operand|deadlock", "a parity of 2");
    found(HEAD START(1) FIRST("a", ASM("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [0], 17; }")) TAIL,
          "operand", "is not the state");
    found(HEAD START(1) FIRST("a", ASM("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [0], 1048576;")) TAIL, "operand",
          "tx-count");
    found(HEAD START(1) FIRST("a", "  store i32 0, ptr addrspace(3) @sh, align 4\n") TAIL, "async",
          "belongs to the mbarrier of mbarrier.init");
    found(HEAD START(1) FIRST("a", "  %x = load i64, ptr addrspace(3) @sh, align 8\n"
                                   "  store i64 %x, ptr addrspace(1) %o, align 8\n") TAIL,
          "async", "only mbarrier operations may");
}

// ---- bulk copies

#define BULK(to, from, n, bar) \
    "  call void asm sideeffect \"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, " \
    "[$3];\", " \
    "\"r,l,r,r,~{memory}\"(i32 " #to ", ptr addrspace(1) " from ", i32 " #n ", i32 " #bar ")\n"
#define COPIED "  %v = load i32, ptr addrspace(3) %dt, align 4\n  store i32 %v, ptr addrspace(1) %ot, align 4\n"
static int32_t copied(int i)
{
    return 100 + i;
}
static void bulk_load(void **state)
{
    (void)state;
    clean(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) WAIT(0, 0) COPIED TAIL, copied);
    // As two copies, the bytes announced last; and in LLVM's intrinsics.
    clean(HEAD START(1) FIRST("a", "  %h = getelementptr i8, ptr addrspace(1) %a, i32 128\n" BULK(1024, "%a", 128, 0)
                                       BULK(1152, "%h", 128, 0) EXPECT(0, 256)) WAIT(0, 0) COPIED TAIL,
          copied);
    clean(
        HEAD START(1) FIRST(
            "a",
            "  %s = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) @sh, i32 256)\n"
            "  call void @llvm.nvvm.cp.async.bulk.global.to.shared.cta(ptr addrspace(3) %d0, ptr addrspace(3) @sh, "
            "ptr addrspace(1) %a, i32 256, i64 0, i1 false)\n") WAIT(0, 0) COPIED TAIL,
        copied);
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) BARRIER COPIED TAIL, "async|race|unwritten",
          "cp.async.bulk"); // no wait
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) BARRIER WAIT(0, 1) COPIED TAIL,
          "async|race|deadlock", ""); // wrong parity
    found(HEAD START(1) FIRST("a", BULK(1024, "%a", 256, 0)) WAIT(0, 0) COPIED TAIL, "deadlock",
          "phase 0 lacks 1 of 1 arrivals and -256 bytes"); // nothing announced
    found(HEAD START(1) FIRST("a", BULK(1024, "%a", 256, 0) ARRIVE(0)) WAIT(0, 0) COPIED TAIL, "async|deadlock",
          ""); // no bytes
    found(HEAD START(1) FIRST("a", EXPECT(0, 128) BULK(1024, "%a", 256, 0)) WAIT(0, 0) COPIED TAIL, "operand",
          "128 bytes more than the phase"); // too few
    found(HEAD START(1) FIRST("a", EXPECT(0, 512) BULK(1024, "%a", 256, 0)) WAIT(0, 0) COPIED TAIL, "deadlock",
          "lacks 0 of 1 arrivals and 256 bytes"); // too many
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) TAIL, "leak",
          "cp.async.bulk"); // never waited for
}

static void bulk_faults(void **state)
{
    (void)state;
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1032, "%a", 256, 0)) TAIL, "misaligned",
          "0x408 is not aligned to 16");
    found(HEAD START(1) FIRST("a", "  %h = getelementptr i8, ptr addrspace(1) %a, i32 8\n" EXPECT(0, 256)
                                       BULK(1024, "%h", 256, 0)) TAIL,
          "misaligned", "of 'a' is not aligned to 16");
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 200, 0)) TAIL, "operand",
          "200 bytes, no multiple of 16");
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(4000, "%a", 256, 0)) TAIL, "bounds", "the block has 0x1000");
    found(HEAD START(1) FIRST("a", "  %h = getelementptr i8, ptr addrspace(1) %a, i32 16256\n" EXPECT(0, 256)
                                       BULK(1024, "%h", 256, 0)) TAIL,
          "bounds", "of 'a', which has 16384");
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 8)) TAIL, "operand",
          "no mbarrier is initialised at");
    found(HEAD FIRST("s", INIT(0, 1) EXPECT(0, 256) BULK(1024, "%a", 256, 0)) BARRIER WAIT(0, 0) COPIED TAIL, "race",
          "fence.mbarrier_init or fence.proxy.async is missing");
    // Two copies to one place; a store into a copy's destination; a copy onto bytes that others may still read.
    found(HEAD START(1) FIRST("a", EXPECT(0, 512) BULK(1024, "%a", 256, 0) BULK(1024, "%a", 256, 0)) WAIT(0, 0)
              COPIED TAIL,
          "async|race", "cp.async.bulk");
    found(HEAD START(1) FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) BARRIER STORE WAIT(0, 0) TAIL, "async|race",
          "this store");
    found(HEAD START(1) STORE BARRIER NEXT("n") FIRST("a", EXPECT(0, 256) BULK(1024, "%a", 256, 0)) WAIT(0, 0)
              COPIED TAIL,
          "race|async", "cp.async.bulk");
}

#define OUT(to, n) \
    "  call void asm sideeffect \"cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;\", " \
    "\"l,r,r,~{memory}\"(ptr addrspace(1) " to ", i32 1024, i32 " #n ")\n"
#define COMMIT ASM("cp.async.bulk.commit_group;")
#define DONE(n) ASM("cp.async.bulk.wait_group " #n ";")
#define TAKEN(n) ASM("cp.async.bulk.wait_group.read " #n ";")
static int32_t itself(int i)
{
    return i;
}
static void bulk_store(void **state)
{
    (void)state;
    clean(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) COMMIT DONE(0)) TAIL, itself);
    clean(HEAD STORE BARRIER FIRST("a", FENCE OUT("%o", 256) COMMIT DONE(0)) TAIL,
          itself); // the fence may follow the barrier
    clean(
        HEAD STORE "  call void @llvm.nvvm.fence.proxy.async.shared_cta()\n" BARRIER FIRST(
            "a",
            "  call void @llvm.nvvm.cp.async.bulk.shared.cta.to.global(ptr addrspace(1) %o, ptr addrspace(3) %d0, i32 "
            "256, i64 0, i1 false)\n  call void @llvm.nvvm.cp.async.bulk.commit.group()\n"
            "  call void @llvm.nvvm.cp.async.bulk.wait.group(i32 0)\n") TAIL,
        itself);
    // Read is enough for the bytes to be used again.
    clean(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) COMMIT TAKEN(0)) BARRIER
          "  store i32 -5, ptr addrspace(3) %dt, align 4\n" TAIL,
          itself);
    found(HEAD STORE BARRIER FIRST("a", OUT("%o", 256) COMMIT DONE(0)) TAIL, "race", "fence.proxy.async is missing");
    found(HEAD STORE FENCE FIRST("a", OUT("%o", 256) COMMIT DONE(0)) TAIL, "race|unwritten",
          "cp.async.bulk.global"); // no barrier
    found(HEAD STORE ASM("fence.proxy.async.global;") BARRIER FIRST("a", OUT("%o", 256) COMMIT DONE(0)) TAIL, "race",
          "fence.proxy.async is missing");
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) COMMIT) BARRIER
          "  store i32 -5, ptr addrspace(3) %dt, align 4\n" TAIL,
          "async", "may still read it"); // no wait
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) COMMIT TAKEN(1)) BARRIER
          "  store i32 -5, ptr addrspace(3) %dt, align 4\n" TAIL,
          "async", "may still read it"); // too shallow a wait
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) DONE(0) COMMIT) TAIL, "leak",
          "is not waited for when the thread ends");
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) DONE(0)) TAIL, "leak",
          "is not committed when the thread ends");
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%o", 256) COMMIT DONE(-1)) TAIL, "operand", "-1 groups");
    found(HEAD STORE FENCE BARRIER FIRST("a", OUT("%a", 256) COMMIT DONE(0)) TAIL, "input written", "'a'");
}

// cp.async with an mbarrier: every thread's copies count as its arrival.
#define COPY \
    "  call void asm sideeffect \"cp.async.ca.shared.global [$0], [$1], 4;\", \"r,l,~{memory}\"(ptr addrspace(3) " \
    "%dt, ptr addrspace(1) %at)\n"
static int32_t next_copied(int i)
{
    return 100 + ((i + 1) & 63);
}
static void cp_async_arrive(void **state)
{
    (void)state;
    clean(HEAD START(64) COPY ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [0];") WAIT(0, 0) NEXT("a") TAIL,
          next_copied);
    clean("declare void @llvm.nvvm.cp.async.mbarrier.arrive.noinc.shared(ptr addrspace(3))\n" HEAD START(64) COPY
          "  call void @llvm.nvvm.cp.async.mbarrier.arrive.noinc.shared(ptr addrspace(3) @sh)\n" WAIT(0, 0) NEXT("a")
              TAIL,
          next_copied);
    clean(HEAD START(64) COPY ASM("cp.async.mbarrier.arrive.shared::cta.b64 [0];") ARRIVE(0) WAIT(0, 0) NEXT("a") TAIL,
          next_copied);
    found(HEAD START(64) COPY ASM("cp.async.mbarrier.arrive.shared::cta.b64 [0];") WAIT(0, 0) NEXT("a") TAIL,
          "deadlock", "lacks 64 of 64 arrivals");
    found(HEAD START(64) ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [0];") COPY WAIT(0, 0) NEXT("a") TAIL,
          "async",
          "may still be in flight"); // the copy comes too late
}

// ---- tensors

static char tensor_ir[8192];
enum form {
    CLUSTER,
    CTA,
    INTRINSIC,
    FORMS
}; // of the copy: assembly to shared::cluster or shared::cta, LLVM's intrinsic

static int put_load(char *to, size_t size, enum form form, int rank, const char *coords)
{
    static const char *const lists[] = { "$3", "$3, $4", "$3, $4, $5", "$3, $4, $5, $6", "$3, $4, $5, $6, $7" };
    static const char *const types[] = { ",r", ",r,r", ",r,r,r", ",r,r,r,r", ",r,r,r,r,r" };
    if (form == INTRINSIC)
        return snprintf(
            to, size,
            "  call void @llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile.%dd(ptr addrspace(3) %%d0, ptr addrspace(3) "
            "@sh, ptr %%map%s, i64 0, i1 false)\n",
            rank, coords);
    return snprintf(
        to, size,
        "  call void asm sideeffect \"cp.async.bulk.tensor.%dd.shared::%s.global.%smbarrier::complete_tx::bytes "
        "[$0], [$1, {%s}], [$2];\", \"r,l,r%s,~{memory}\"(i32 1024, ptr %%map, i32 0%s)\n",
        rank, form == CTA ? "cta" : "cluster", form == CTA ? "tile." : "", lists[rank - 1], types[rank - 1], coords);
}

#define DECLARE(rank, coords) \
    "declare void @llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile." rank \
    "d(ptr addrspace(3), ptr addrspace(3), ptr" coords ", i64, i1)\n"
// Loads a box at these coordinates (as text ", i32 3, i32 -1") to byte 1024 and copies what lies there to o as it is.
static const char *load_ir(enum form form, int rank, const char *coords, int bytes, int threads)
{
    int n = snprintf(tensor_ir, sizeof tensor_ir, "%s",
                     DECLARE("1", ", i32") DECLARE("3", ", i32, i32, i32") DECLARE("4", ", i32, i32, i32, i32")
                         DECLARE("5", ", i32, i32, i32, i32, i32") HEAD
                     "  br i1 %first, label %sx, label %sz\nsx:\n" INIT(0, 1) SHOWN);
    n += snprintf(
        tensor_ir + n, sizeof tensor_ir - (size_t)n,
        "  call void asm sideeffect \"mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], %d;\", \"~{memory}\"()\n",
        bytes);
    n += put_load(tensor_ir + n, sizeof tensor_ir - (size_t)n, form, rank, coords);
    n += snprintf(
        tensor_ir + n, sizeof tensor_ir - (size_t)n, "%s",
        "  br label %sz\nsz:\n" BARRIER WAIT(
            0,
            0) "  br label %l\nl:\n  %i = phi i32 [ %t, %sz ], [ %j, %l ]\n"
               "  %p = getelementptr i32, ptr addrspace(3) %d0, i32 %i\n  %v = load i32, ptr addrspace(3) %p, align 4\n"
               "  %g = getelementptr i32, ptr addrspace(1) %o, i32 %i\n  store i32 %v, ptr addrspace(1) %g, align 4\n");
    snprintf(tensor_ir + n, sizeof tensor_ir - (size_t)n,
             "  %%j = add i32 %%i, %d\n  %%c = icmp ult i32 %%j, %d\n  br i1 %%c, label %%l, label %%e\ne:\n" TAIL,
             threads, bytes / 4);
    return tensor_ir;
}

// What a box holds by the manual, as bytes of shared memory from 1024 on; the tensor is of i32 with value 100 + index in `a`.
static void box_of(const struct moesim_tensor *m, const int32_t *c, uint8_t *shared)
{
    uint32_t at = 1024, n[5] = { 1, 1, 1, 1, 1 };
    for (int k = 0; k < m->rank; k++)
        n[k] = k ? (m->box[k] + m->steps[k] - 1) / m->steps[k] : m->box[0];
    for (uint32_t e = 0; e < n[0] * n[1] * n[2] * n[3] * n[4]; e++, at += 4) {
        uint64_t rest = e, offset = 0;
        bool in = true;
        for (int k = 0; k < m->rank; rest /= n[k++]) {
            int64_t x = c[k] + (int64_t)(rest % n[k]) * (k ? m->steps[k] : 1);
            in = in && x >= 0 && x < (int64_t)m->dims[k];
            offset += (uint64_t)x * (k ? m->strides[k - 1] : 4);
        }
        int32_t v = in ? 100 + (int32_t)(offset / 4) : 0;
        memcpy(shared + smem_swizzle(m->swizzle, at), &v, 4);
    }
}

static void loads(const struct moesim_tensor *m, const int32_t *c)
{
    static uint8_t want[1024 + 16384];
    char coords[128] = "";
    int bytes = 4, threads = N;
    for (int k = 0; k < m->rank; k++) {
        snprintf(coords + strlen(coords), 20, ", i32 %d", c[k]);
        bytes *= (int)(k ? (m->box[k] + m->steps[k] - 1) / m->steps[k] : m->box[0]);
    }
    threads = bytes / 4 < threads ? bytes / 4 : threads;
    box_of(m, c, want);
    for (int form = 0; form < FORMS; form++) {
        struct job j = { load_ir((enum form)form, m->rank, coords, bytes, threads), threads, 20480, m, false, false };
        struct ready ready;
        open_job(&ready, &j);
        for (unsigned seed = 0; seed < SEEDS / FORMS; seed++) {
            struct run r = run_seed(&ready, seed);
            assert_string_equal(r.text, "");
            assert_memory_equal(r.out, want + 1024, (size_t)bytes);
        }
        sim_close(&ready.s);
    }
}
static void tensor_loads(void **state)
{
    (void)state;
    struct moesim_tensor m = {
        .elem = MOESIM_I32, .rank = 2, .dims = { 60, 30 }, .strides = { 256 }, .steps = { 1, 1, 1, 1, 1 }
    };
    static const int32_t corners[][5] = { { 0, 0 },   { 16, 8 }, { 50, 24 }, { -3, -2 },
                                          { 59, 29 }, { 60, 0 }, { 0, -16 }, { -40, 3 } };
    for (int swizzle = 0; swizzle <= 128; swizzle = swizzle ? 2 * swizzle : 32)
        for (int k = 0; k < 8; k++) {
            m.swizzle = swizzle;
            m.box[0] = swizzle ? (uint32_t)swizzle / 4 : 20;
            m.box[1] = 16;
            loads(&m, corners[k]);
        }
    loads(&(struct moesim_tensor){ .elem = MOESIM_I32, .rank = 1, .dims = { 1000 }, .box = { 64 }, .steps = { 1 } },
          (int32_t[]){ 960 });
    loads(&(struct moesim_tensor){ .elem = MOESIM_I32,
                                   .rank = 3,
                                   .dims = { 8, 7, 6 },
                                   .strides = { 32, 256 },
                                   .box = { 8, 5, 4 },
                                   .steps = { 1, 2, 1 },
                                   .swizzle = 32 },
          (int32_t[]){ 0, 3, -1 });
    loads(&(struct moesim_tensor){ .elem = MOESIM_I32,
                                   .rank = 4,
                                   .dims = { 4, 3, 4, 5 },
                                   .strides = { 16, 64, 256 },
                                   .box = { 4, 2, 3, 2 },
                                   .steps = { 1, 1, 1, 1 } },
          (int32_t[]){ 1, 2, 2, 4 });
    loads(&(struct moesim_tensor){ .elem = MOESIM_I32,
                                   .rank = 5,
                                   .dims = { 4, 3, 4, 2, 3 },
                                   .strides = { 16, 64, 256, 512 },
                                   .box = { 4, 3, 2, 2, 2 },
                                   .steps = { 1, 1, 2, 1, 1 } },
          (int32_t[]){ 0, -1, 1, 0, 2 });
}

static const struct moesim_tensor tile = { .elem = MOESIM_I32,
                                           .rank = 2,
                                           .dims = { 32, 8 },
                                           .strides = { 128 },
                                           .box = { 32, 8 },
                                           .steps = { 1, 1 },
                                           .swizzle = 128 };
static int32_t swizzled(int i)
{
    return (int32_t)(smem_swizzle(128, 1024 + 4 * (uint32_t)i) - 1024) / 4;
}
#define PUT \
    "  call void asm sideeffect \"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [$0, {$1, $2}], " \
    "[$3];\", " \
    "\"l,r,r,r,~{memory}\"(ptr %map, i32 0, i32 0, i32 1024)\n"
static void tensor_stores(void **state)
{
    struct job j = { .threads = 256, .shared = 4096, .map = &tile, .to_out = true };
    (void)state;
    j.ir = HEAD STORE FENCE BARRIER FIRST("a", PUT COMMIT DONE(0)) TAIL;
    clean_job(j, swizzled);
    j.ir = HEAD STORE FENCE BARRIER FIRST("a", "  call void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d(ptr "
                                               "addrspace(3) %d0, ptr %map, i32 0, i32 0, i64 0, i1 "
                                               "false)\n" COMMIT TAKEN(0)) TAIL;
    clean_job(j, swizzled);
    j.ir = HEAD STORE BARRIER FIRST("a", PUT COMMIT DONE(0)) TAIL;
    found_job(j, "race", "fence.proxy.async is missing");
    j.ir = HEAD STORE FENCE BARRIER FIRST("a", PUT COMMIT) TAIL;
    found_job(j, "leak", "waited for");
}

#define GET(at) \
    EXPECT(0, 1024) \
    "  %to = getelementptr i8, ptr addrspace(3) @sh, i32 " #at "\n" \
    "  call void @llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile.2d(ptr addrspace(3) %to, ptr addrspace(3) @sh, ptr " \
    "%map, i32 0, i32 0, " \
    "i64 0, i1 false)\n"
static int32_t swizzled_in(int i)
{
    return 100 + swizzled(i);
}
static void tensor_faults(void **state)
{
    struct job j = { .threads = 256, .shared = 4096, .map = &tile };
    struct moesim_tensor m = tile;
    (void)state;
    j.ir = HEAD START(1) FIRST("a", ASM("griddepcontrol.wait;") GET(1024)) WAIT(0, 0) COPIED TAIL;
    clean_job(j, swizzled_in);
    j.ir = HEAD START(1) FIRST("a", GET(1024)) BARRIER COPIED TAIL;
    found_job(j, "async|race", "tensor");
    j.ir = HEAD START(1) FIRST("a", GET(1152)) WAIT(0, 0) TAIL;
    found_job(j, "misaligned", "not aligned to 1024, after which the swizzle repeats");
    j.ir = HEAD START(1) FIRST("a", GET(3072)) WAIT(0, 0) TAIL;
    j.shared = 3584;
    found_job(j, "bounds", "the block has 0xe00");
    j.shared = 4096;
    m.swizzle = 0;
    j.map = &m;
    j.ir = HEAD START(1) FIRST("a", GET(1040)) WAIT(0, 0) TAIL;
    found_job(j, "misaligned", "not aligned to 128");
    m.dims[1] = 200; // past the end of the argument
    m.base = (const void *)(uintptr_t)(sizeof(int32_t) * WORDS - 512);
    j.ir = HEAD START(1) FIRST("a", GET(1024)) WAIT(0, 0) TAIL;
    found_job(j, "bounds", "of 'a', which has 16384");
    j.map = NULL; // zeros
    found_job(j, "operand", "is no tensor map");
    j.map = &(struct moesim_tensor){ .elem = MOESIM_I32, .rank = 1, .dims = { 64 }, .box = { 64 }, .steps = { 1 } };
    found_job(j, "operand", "of another rank");
}

static int32_t swizzled_later(int i)
{
    return 100 + 1024 + swizzled(i);
}
static void global_map(void **state)
{
    struct moesim_tensor m = tile;
    struct job j = { .threads = 256, .shared = 4096, .map = &m, .map_in_a = true };
    (void)state;
    m.base = (const void *)4096;
#define FROM_A(map) \
    EXPECT(0, 1024) \
    "  call void asm sideeffect \"cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [$0], " \
    "[$1, {0, 0}], " \
    "[0];\", \"r,l,~{memory}\"(i32 1024, ptr addrspace(1) " map ")\n"
    j.ir = HEAD START(1) FIRST("a", FROM_A("%a")) WAIT(0, 0) COPIED TAIL;
    clean_job(j, swizzled_later);
    j.ir =
        HEAD START(1) FIRST("a", "  %h = getelementptr i8, ptr addrspace(1) %a, i32 32\n" FROM_A("%h")) WAIT(0, 0) TAIL;
    found_job(j, "misaligned", "not aligned to 64");
}

static void map_rules(void **state)
{
    (void)state;
    struct sim s = sim_open("sm_90a");
    _Alignas(64) uint8_t map[192];
    static const struct {
        int what;
        uint64_t value;
        const char *words;
    } bad[] = {
        { 0, 0, "rank" },
        { 0, 6, "rank" },
        { 1, 8, "aligned to 16" },
        { 2, 0, "extent" },
        { 2, 1ull << 33, "extent" },
        { 3, 24, "stride" },
        { 3, 1ull << 40, "stride" },
        { 4, 0, "box" },
        { 4, 257, "box" },
        { 5, 9, "element stride" },
        { 6, 48, "swizzle" },
        { 6, 64, "wider than the swizzle" },
        { 7, 3, "multiple of 16 bytes" },
        { 8, 9, "type" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct moesim_tensor m = tile;
        switch (bad[i].what) {
        case 0: m.rank = (int)bad[i].value; break;
        case 1: m.base = (const void *)(uintptr_t)bad[i].value; break;
        case 2: m.dims[1] = bad[i].value; break;
        case 3: m.strides[0] = bad[i].value; break;
        case 4: m.box[1] = (uint32_t)bad[i].value; break;
        case 5: m.steps[1] = (uint32_t)bad[i].value; break;
        case 6: m.swizzle = (int)bad[i].value; break;
        case 7: m.box[0] = (uint32_t)bad[i].value, m.swizzle = 0; break;
        default: m.elem = (enum moesim_elem)bad[i].value;
        }
        s.why[0] = 0;
        assert_false(s.api->tensor_map(map, &m, s.why));
        if (!strstr(s.why, bad[i].words))
            fail_msg("%zu: '%s'", i, s.why);
    }
    assert_false(s.api->tensor_map(map + 8, &tile, s.why));
    assert_true(s.api->tensor_map(map, &tile, s.why));
    sim_close(&s);
}

// ---- small instructions in assembly

static int32_t computed(int i)
{
    return ((i < 40 ? i * 3 - 7 : 5) ^ 0x55) * 4;
}
static int32_t elected(int i)
{
    return i >> 5;
}
static void small(void **state)
{
    (void)state;
    clean(HEAD
          "  %v = call i32 asm sideeffect \"{ .reg .pred p; .reg .b32 x, y; mul.lo.s32 x, $1, 3; add.s32 x, x, -7; "
          "setp.lt.u32 p, $1, 40; selp.b32 y, x, 5, p; xor.b32 y, y, 0x55; shl.b32 $0, y, 2; }\", \"=r,r\"(i32 %t)\n"
          "  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          computed);
    // Each warp's leader writes the warp's number for all.
    clean(HEAD
          "  %e = call i32 asm sideeffect \"{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; "
          "nanosleep.u32 20; "
          "}\", \"=r\"()\n"
          "  %w = lshr i32 %t, 5\n  %b = and i32 %t, 32\n  %c = icmp eq i32 %e, 1\n  br i1 %c, label %x, label %y\nx:\n"
          "  %p = getelementptr i32, ptr addrspace(3) %d0, i32 %w\n  store i32 %w, ptr addrspace(3) %p, align 4\n"
          "  br label %y\ny:\n" BARRIER "  %q = getelementptr i32, ptr addrspace(3) %d0, i32 %w\n"
          "  %v = load i32, ptr addrspace(3) %q, align 4\n  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          elected);
}

static void refused(void **state)
{
    static const char *const texts[][2] = {
        { "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [0], [$0, "
          "{0, 0}], [0], 1;",
          "'.multicast::cluster' is not known" },
        { "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [0], [$0, {0, 0, 0}], "
          "[0], {1};",
          "'.im2col' is not known" },
        { "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [0], [$0, {0}], [0];",
          "as many coordinates" },
        { "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [0], [0], 16, [0];",
          "only between global and" },
        { "mbarrier.init.b64 [$0], 1;", "only addresses in .shared" },
        { "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [0], 64;",
          "instruction not known to the simulator at 'tcgen05" },
        { "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {$0, $0, $0, $0}, 0, 0, 1, 1, 1;", "only k16.f32" },
        { "setp.lt.f32 1, 2, 3;", "only the plain integer forms" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sim s = sim_open("sm_90a");
        char ir[8192];
        snprintf(ir, sizeof ir, "%s  call void asm sideeffect \"%s\", \"l\"(ptr %%map)\n" TAIL, HEAD, texts[i][0]);
        assert_false(sim_load(&s, ir));
        if (!strstr(s.why, texts[i][1]))
            fail_msg("expected '%s' in: %s", texts[i][1], s.why);
        sim_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mbarrier),        cmocka_unit_test(phases),       cmocka_unit_test(mbarrier_faults),
        cmocka_unit_test(bulk_load),       cmocka_unit_test(bulk_faults),  cmocka_unit_test(bulk_store),
        cmocka_unit_test(cp_async_arrive), cmocka_unit_test(tensor_loads), cmocka_unit_test(tensor_stores),
        cmocka_unit_test(tensor_faults),   cmocka_unit_test(global_map),   cmocka_unit_test(map_rules),
        cmocka_unit_test(small),           cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
