// What atomic accesses and fences order, and loops that wait for other lanes, warps and blocks: protocols that are right run to their end
// in every order without a finding; those that are not are found, and nothing hangs.
#include "sim_ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 4096, SEEDS = 12 };

// %m: 4096 words, zeros, that kernels may read and write; %o: out. %t, %b: thread, block; %f: a flag, %d: the thread's data.
#define NV_HEAD \
    "@sh = external addrspace(3) global [0 x i32]\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n" \
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n" \
    "declare void @llvm.nvvm.bar.warp.sync(i32)\n" \
    "declare void @llvm.nvvm.membar.gl()\n" \
    "declare void @llvm.nvvm.membar.cta()\n" \
    "declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)\n" \
    "define ptx_kernel void @k(ptr addrspace(1) %m, ptr addrspace(1) %o) {\n" \
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n" \
    "  %nb = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n" BODY_HEAD
#define AMD_HEAD \
    "@sh = external addrspace(3) global [0 x i32]\n" \
    "declare i32 @llvm.amdgcn.workitem.id.x()\n" \
    "declare i32 @llvm.amdgcn.workgroup.id.x()\n" \
    "declare void @llvm.amdgcn.wave.barrier()\n" \
    "define amdgpu_kernel void @k(ptr addrspace(1) %m, ptr addrspace(1) %o) {\n" \
    "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n" \
    "  %b = call i32 @llvm.amdgcn.workgroup.id.x()\n" BODY_HEAD
#define BODY_HEAD \
    "  %f = getelementptr i32, ptr addrspace(1) %m, i32 1024\n" \
    "  %d = getelementptr i32, ptr addrspace(1) %m, i32 %t\n" \
    "  %ot = getelementptr i32, ptr addrspace(1) %o, i32 %t\n" \
    "  %st = getelementptr i32, ptr addrspace(3) @sh, i32 %t\n" \
    "  %sf = getelementptr i32, ptr addrspace(3) @sh, i32 512\n" \
    "  %zero = icmp eq i32 %t, 0\n  %b0 = icmp eq i32 %b, 0\n  %b1 = icmp eq i32 %b, 1\n"
#define BARRIER "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
#define TAIL "  ret void\n}\n"
#define ASM_L(text, args) "  call void asm sideeffect \"" text "\", \"l,r,~{memory}\"(" args ")\n"
// Thread 0 does `body`; then everybody goes on at label `name`z.
#define FIRST(name, body) \
    "  br i1 %zero, label %" name "x, label %" name "z\n" name "x:\n" body "  br label %" name "z\n" name "z:\n"
// Until the load gives `want`.
#define SPIN(name, load, want) \
    "  br label %" name "l\n" name "l:\n  %w" name " = " load "\n  %c" name " = icmp eq i32 %w" name ", " want \
    "\n  br i1 %c" name ", label %" name "e, label %" name "l\n" name "e:\n"
#define LD(how) "call i32 asm sideeffect \"ld." how ".b32 $0, [$1];\", \"=r,l,~{memory}\"(ptr addrspace(1) %f)"
#define ST(how, v) ASM_L("st." how ".b32 [$0], $1;", "ptr addrspace(1) %f, i32 " v)

// The pieces, up to NULL, as one text.
static const char *all(const char *first, ...)
{
    static char text[16384];
    va_list ap;
    va_start(ap, first);
    text[0] = 0;
    for (const char *p = first; p; p = va_arg(ap, const char *)) {
        assert_true(strlen(text) + strlen(p) < sizeof text);
        strcat(text, p);
    }
    va_end(ap);
    return text;
}

static struct sim s;
static int32_t *m, *o;
static int shared = 4096;
static void start(const char *spec, const char *ir)
{
    s = sim_open(spec);
    m = s.api->alloc(s.d, WORDS * 4);
    o = s.api->alloc(s.d, WORDS * 4);
    if (!sim_load(&s, ir))
        fail_msg("%s\n%s", s.why, ir);
}
static const char *once(unsigned seed, int threads, unsigned blocks, int32_t out[WORDS])
{
    s.api->reseed(s.d, seed);
    s.api->clear(s.d);
    assert_true(s.api->fill(s.d, m, 0, WORDS * 4, false) && s.api->fill(s.d, o, 0xff, WORDS * 4, true));
    assert_true(sim_run(&s, "k", threads, shared, blocks, "bb", (void *[]){ m, o }, (int64_t[]){ WORDS, WORDS }) >= 0);
    assert_true(s.api->read(s.d, out, o, WORDS * 4));
    return sim_findings(&s);
}

// n results that are want(i), with any number of workers.
static void clean_on(const char *arch, const char *ir, int threads, unsigned blocks, int n, int32_t (*want)(int i))
{
    static int32_t out[WORDS];
    for (int workers = 1; workers <= 3; workers += 2) {
        char spec[64];
        snprintf(spec, sizeof spec, "%s,threads=%d", arch, workers);
        start(spec, ir);
        for (unsigned seed = 0; seed < SEEDS; seed++) {
            const char *found = once(seed, threads, blocks, out);
            if (*found)
                fail_msg("seed %u, %d workers: %s\n%s", seed, workers, found, ir);
            for (int i = 0; i < n; i++)
                if (out[i] != want(i))
                    fail_msg("seed %u, %d workers: [%d] is %d, not %d, of\n%s", seed, workers, i, out[i], want(i), ir);
        }
        sim_close(&s);
    }
}
static void clean(const char *ir, int threads, unsigned blocks, int n, int32_t (*want)(int i))
{
    clean_on("sm_90a", ir, threads, blocks, n, want);
}
static void found(const char *ir, int threads, unsigned blocks, const char *kind, const char *words)
{
    static int32_t out[WORDS];
    for (int workers = 1; workers <= 3; workers += 2) {
        char spec[64], want[48];
        snprintf(spec, sizeof spec, "sm_90a,threads=%d", workers);
        snprintf(want, sizeof want, ": k: %s: ", kind);
        start(spec, ir);
        for (unsigned seed = 0; seed < SEEDS; seed++) {
            const char *text = once(seed, threads, blocks, out);
            if (!strstr(text, want) || !strstr(text, words))
                fail_msg("seed %u, %d workers: expected '%s' and '%s' in:\n%s\n%s", seed, workers, want, words, text,
                         ir);
        }
        sim_close(&s);
    }
}

// ---- between warps: warp 0 writes its data, its first thread the flag; warp 1 waits and reads warp 0's

static int32_t produced(int i)
{
    return i < 32 ? -1 : 500 + i - 32;
}
static const char *warps_ir(const char *signal, const char *wait)
{
    return all(NV_HEAD FIRST("i", "  store i32 0, ptr addrspace(3) %sf, align 4\n") BARRIER
               "  %low = icmp ult i32 %t, 32\n  %v = add i32 %t, 500\n  br i1 %low, label %p, label %c\np:\n"
               "  store i32 %v, ptr addrspace(3) %st, align 4\n  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n"
               "  store i32 -1, ptr addrspace(1) %ot, align 4\n  br i1 %zero, label %sx, label %end\nsx:\n",
               signal, "  br label %end\nc:\n", wait,
               "  %q = xor i32 %t, 32\n  %sq = getelementptr i32, ptr addrspace(3) @sh, i32 %q\n"
               "  %r = load i32, ptr addrspace(3) %sq, align 4\n  store i32 %r, ptr addrspace(1) %ot, align 4\n"
               "  br label %end\nend:\n" TAIL,
               NULL);
}
#define GL "  call void @llvm.nvvm.membar.gl()\n"
#define FENCE(how) "  call void asm sideeffect \"fence." how ";\", \"~{memory}\"()\n"
static void warps(void **state)
{
    static const char *const good[][2] = {
        { ST("release.cta.global", "1"), SPIN("w", LD("acquire.cta.global"), "1") },
        { ST("release.gpu.global", "1"), SPIN("w", LD("acquire.sys.global"), "1") },
        { "  store atomic i32 1, ptr addrspace(1) %f release, align 4\n",
          SPIN("w", "load atomic i32, ptr addrspace(1) %f acquire, align 4", "1") },
        { "  store atomic i32 1, ptr addrspace(3) %sf syncscope(\"block\") release, align 4\n",
          SPIN("w", "load atomic i32, ptr addrspace(3) %sf syncscope(\"block\") acquire, align 4", "1") },
        { ASM_L("red.release.gpu.global.add.u32 [$0], $1;", "ptr addrspace(1) %f, i32 1"),
          SPIN("w", LD("acquire.gpu.global"), "1") },
        // An update goes on with the release before it.
        { ST("release.gpu.global", "1") ASM_L("red.relaxed.gpu.global.add.u32 [$0], $1;", "ptr addrspace(1) %f, i32 1"),
          SPIN("w", LD("acquire.gpu.global"), "2") },
        // Fences around relaxed and volatile ones.
        { GL ST("relaxed.gpu.global", "1"), SPIN("w", LD("relaxed.gpu.global"), "1") GL },
        { "  fence syncscope(\"block\") release\n  store volatile i32 1, ptr addrspace(1) %f, align 4\n",
          SPIN("w", "load volatile i32, ptr addrspace(1) %f, align 4", "1") "  fence syncscope(\"block\") acquire\n" },
        { FENCE("acq_rel.cta") ST("volatile.global", "1"), SPIN("w", LD("volatile.global"), "1") FENCE("acq_rel.cta") },
        // A loop within one statement of assembly.
        { ST("release.gpu.global", "1"),
          "  call void asm sideeffect \"{ .reg .pred p; .reg .b32 x;\nL: ld.acquire.gpu.global.b32 x, [$0]; "
          "setp.ne.u32 p, x, 1; @p bra L; }\", \"l,~{memory}\"(ptr addrspace(1) %f)\n" },
    };
    static const char *const bad[][2] = {
        { ST("relaxed.gpu.global", "1"), SPIN("w", LD("acquire.gpu.global"), "1") },
        { ST("release.gpu.global", "1"), SPIN("w", LD("relaxed.gpu.global"), "1") },
        { "  store volatile i32 1, ptr addrspace(1) %f, align 4\n",
          SPIN("w", "load volatile i32, ptr addrspace(1) %f, align 4", "1") },
        { GL ST("relaxed.gpu.global", "1"), SPIN("w", LD("relaxed.gpu.global"), "1") },
        { ST("relaxed.gpu.global", "1") GL, SPIN("w", LD("relaxed.gpu.global"), "1") GL },
        // The release's value is replaced by one that orders nothing.
        { ST("release.gpu.global", "1") ST("relaxed.gpu.global", "2"), SPIN("w", LD("acquire.gpu.global"), "2") },
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        clean(warps_ir(good[i][0], good[i][1]), 64, 1, 64, produced);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        found(warps_ir(bad[i][0], bad[i][1]), 64, 1, "race", "shared byte 0x");
    found(warps_ir("  store i32 1, ptr addrspace(1) %f, align 4\n", SPIN("w", LD("acquire.gpu.global"), "1")), 64, 1,
          "race", "of 'p0' was");
}

// ---- between blocks: one writes its data, then the flag; the other waits, and reads the data

static int32_t plus700(int i)
{
    return 700 + i;
}
// from: whether block 0 or 1 is the one that writes.
static const char *blocks_ir(const char *from, const char *signal, const char *wait)
{
    return all(NV_HEAD "  %v = add i32 %t, 700\n  br i1 ", from,
               ", label %p, label %c\np:\n  store i32 %v, ptr addrspace(1) %d, align 4\n" BARRIER
               "  br i1 %zero, label %sx, label %end\nsx:\n",
               signal, "  br label %end\nc:\n  br i1 %zero, label %wx, label %wz\nwx:\n", wait,
               "  br label %wz\nwz:\n" BARRIER "  %r = load i32, ptr addrspace(1) %d, align 4\n"
               "  store i32 %r, ptr addrspace(1) %ot, align 4\n  br label %end\nend:\n" TAIL,
               NULL);
}
static void blocks(void **state)
{
    static const char *const good[][2] = {
        { ST("release.gpu.global", "1"), SPIN("w", LD("acquire.gpu.global"), "1") },
        { ASM_L("red.release.sys.global.add.u32 [$0], $1;", "ptr addrspace(1) %f, i32 1"),
          SPIN("w", "load atomic i32, ptr addrspace(1) %f acquire, align 4", "1") },
        { GL "  %u = atomicrmw add ptr addrspace(1) %f, i32 1 monotonic, align 4\n",
          SPIN("w", LD("volatile.global"), "1") GL },
    };
    static const char *const bad[][2] = {
        { ST("release.cta.global", "1"), SPIN("w", LD("acquire.gpu.global"), "1") },
        { ST("release.gpu.global", "1"), SPIN("w", LD("acquire.cta.global"), "1") },
        { ST("release.gpu.global", "1"), SPIN("w", LD("relaxed.gpu.global"), "1") },
        { ST("relaxed.gpu.global", "1"), SPIN("w", LD("acquire.gpu.global"), "1") },
        { "  call void @llvm.nvvm.membar.cta()\n" ST("relaxed.gpu.global", "1"),
          SPIN("w", LD("acquire.gpu.global"), "1") },
    };
    (void)state;
    for (int from = 0; from < 2; from++) {
        const char *writer = from ? "%b1" : "%b0";
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
            clean(blocks_ir(writer, good[i][0], good[i][1]), 64, 2, 64, plus700);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            found(blocks_ir(writer, bad[i][0], bad[i][1]), 64, 2, "race", "of 'p0' was");
    }
}

// Block b waits for b + 1 (the last for nobody) and adds one to all that the blocks behind it have left: what a release orders goes on.
static int32_t chained(int i)
{
    return 20 + i;
}
static void chain(void **state)
{
    static const char ir[] =
        NV_HEAD "  %next = add i32 %b, 1\n  %last = icmp eq i32 %next, %nb\n"
                "  %fb = getelementptr i32, ptr addrspace(1) %f, i32 %b\n  %fn = getelementptr i32, ptr addrspace(1) "
                "%f, i32 %next\n"
                "  br i1 %last, label %go, label %see\nsee:\n" FIRST(
                    "s", SPIN("w", "load atomic i32, ptr addrspace(1) %fn acquire, align 4", "1")) BARRIER
        "  br label %go\ngo:\n  %start = phi i32 [ 0, %0 ], [ 1, %sz ]\n"
        "  br i1 %last, label %new, label %old\nnew:\n  store i32 %t, ptr addrspace(1) %d, align 4\n"
        "  br label %old\nold:\n  %x = load i32, ptr addrspace(1) %d, align 4\n  %y = add i32 %x, 1\n"
        "  store i32 %y, ptr addrspace(1) %d, align 4\n" BARRIER "  br i1 %b0, label %out, label %tell\ntell:\n" FIRST(
            "r", "  store atomic i32 1, ptr addrspace(1) %fb release, align 4\n") "  br label %end\nout:\n  store i32 "
                                                                                  "%y, ptr addrspace(1) %ot, align 4\n "
                                                                                  " br label %end\nend:\n" TAIL;
    (void)state;
    clean(ir, 64, 20, 64, chained);
}

// A barrier of the whole grid, three times: each block reads what its neighbour wrote the round before.
static int32_t rounds(int i)
{
    return (i + 3) % 40;
}
static void grid(void **state)
{
#define AT_LEAST(name, want) /* others may be a round ahead */ \
    "  br label %" name "l\n" name "l:\n  %w" name " = load atomic i32, ptr addrspace(1) %f acquire, align 4\n" \
    "  %c" name " = icmp uge i32 %w" name ", " want "\n  br i1 %c" name ", label %" name "e, label %" name "l\n" name \
    "e:\n"
#define ROUND(n, source, to) \
    BARRIER FIRST("g" n, "  %ar" n " = atomicrmw add ptr addrspace(1) %f, i32 1 acq_rel, align 4\n" \
                         "  %goal" n " = mul i32 %nb, " n "\n" AT_LEAST("g" n, "%goal" n)) BARRIER \
        "  %p" n " = getelementptr i32, ptr addrspace(1) " source ", i32 %nr\n  %v" n \
        " = load i32, ptr addrspace(1) %p" n ", align 4\n  %q" n " = getelementptr i32, ptr addrspace(1) " to \
        ", i32 %b\n  store i32 %v" n ", ptr addrspace(1) %q" n ", align 4\n"
    static const char ir[] = NV_HEAD
        "  %nx = add i32 %b, 1\n  %nr = urem i32 %nx, %nb\n  %mb = getelementptr i32, ptr addrspace(1) %m, i32 %b\n"
        "  %m2 = getelementptr i32, ptr addrspace(1) %m, i32 64\n  %m3 = getelementptr i32, ptr addrspace(1) %m, i32 "
        "128\n"
        "  store i32 %b, ptr addrspace(1) %mb, align 4\n" ROUND("1", "%m", "%m2") ROUND("2", "%m2", "%m3")
            ROUND("3", "%m3", "%o") TAIL;
    (void)state;
    clean(ir, 64, 40, 40, rounds);
}

// A lock: compare-and-swap until it is free, a plain update, a release.
static int32_t counted(int i)
{
    return i ? -1 : 2 * 9;
}
static void lock(void **state)
{
    static const char *const unlock[] = {
        "  store atomic i32 0, ptr addrspace(1) %f release, align 4\n",
        "  %u = atomicrmw xchg ptr addrspace(1) %f, i32 0 release, align 4\n",
        "  store atomic i32 0, ptr addrspace(1) %f monotonic, align 4\n",
    };
#define LOCKED \
    NV_HEAD \
    "  %lane = and i32 %t, 31\n  %leads = icmp eq i32 %lane, 0\n  br i1 %leads, label %try, label %end\ntry:\n" \
    "  %cx = cmpxchg ptr addrspace(1) %f, i32 0, i32 1 acquire monotonic, align 4\n" \
    "  %got = extractvalue {i32, i1} %cx, 1\n  br i1 %got, label %in, label %try\nin:\n" \
    "  %x = load i32, ptr addrspace(1) %m, align 4\n  %y = add i32 %x, 1\n" \
    "  store i32 %y, ptr addrspace(1) %m, align 4\n  %all = icmp eq i32 %y, 18\n" \
    "  br i1 %all, label %tell, label %free\ntell:\n  store i32 %y, ptr addrspace(1) %o, align 4\n" \
    "  br label %free\nfree:\n"
    (void)state;
    for (int i = 0; i < 2; i++)
        clean(all(LOCKED, unlock[i], "  br label %end\nend:\n" TAIL, NULL), 64, 9, 1, counted);
    found(all(LOCKED, unlock[2], "  br label %end\nend:\n" TAIL, NULL), 64, 9, "race", "of 'p0' was");
}

// ---- within a warp

static int32_t sevens(int i)
{
    (void)i;
    return 7;
}
static int32_t lowest(int i)
{
    return i < 16 ? 7 : 16;
}
static void lanes(void **state)
{
    (void)state;
    // Lane 0 waits for what lane 1 writes.
    clean(NV_HEAD FIRST(
              "s",
              SPIN("w", LD("acquire.cta.global"),
                   "1") "  %v = load i32, ptr addrspace(1) %m, align 4\n  store i32 %v, ptr addrspace(1) %o, align "
                        "4\n") "  %one = icmp eq i32 %t, 1\n  br i1 %one, label %x, label %end\nx:\n  store i32 7, "
                               "ptr addrspace(1) %m, align 4\n" ST("release.cta.global",
                                                                   "1") "  br label %end\nend:\n" TAIL,
          32, 1, 1, sevens);
    // Half of a warp waits for a flag; the others shuffle among themselves before one of them sets it.
    clean(NV_HEAD "  %low = icmp ult i32 %t, 16\n  br i1 %low, label %x, label %y\nx:\n" SPIN(
              "w", LD("acquire.cta.global"),
              "1") "  store i32 7, ptr addrspace(1) %ot, align 4\n  br label %end\n"
                   "y:\n  %r = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -65536, i32 %t, i32 16, i32 31)\n"
                   "  store i32 %r, ptr addrspace(1) %ot, align 4\n  %is = icmp eq i32 %t, 20\n  br i1 %is, label %z, "
                   "label %end\nz:\n" ST("release.cta.global", "1") "  br label %end\nend:\n" TAIL,
          32, 1, 32, lowest);
    // The same with an mbarrier, which the others complete.
#define MBAR(text) "  call void asm sideeffect \"" text "\", \"~{memory}\"()\n"
#define MBAR_WAIT MBAR("{ .reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [1024], 0; @!p bra L; }")
    clean(NV_HEAD FIRST("i", MBAR("mbarrier.init.shared::cta.b64 [1024], 16;")) BARRIER
          "  %low = icmp ult i32 %t, 16\n  br i1 %low, label %x, label %y\nx:\n" MBAR_WAIT
          "  store i32 7, ptr addrspace(1) %ot, align 4\n  br label %end\n"
          "y:\n  %r = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -65536, i32 %t, i32 16, i32 31)\n"
          "  store i32 %r, ptr addrspace(1) %ot, align 4\n" MBAR(
              "mbarrier.arrive.shared::cta.b64 _, [1024];") "  br label %end\nend:\n" TAIL,
          32, 1, 32, lowest);
    // Not waited for by all: an operation of the whole warp stays where it is.
    found(NV_HEAD FIRST("s", SPIN("w", LD("acquire.cta.global"), "1")) BARRIER FIRST("t", ST("release.cta.global", "1"))
              TAIL,
          32, 1, "deadlock", "warp 0 at ld.acquire.cta.global.b32");
    // Lanes of a warp are not ordered by a fence of one of them.
    found(NV_HEAD
          "  store i32 %t, ptr addrspace(3) %st, align 4\n" GL
          "  %q = xor i32 %t, 1\n  %sq = getelementptr i32, ptr addrspace(3) @sh, i32 %q\n"
          "  %r = load i32, ptr addrspace(3) %sq, align 4\n  store i32 %r, ptr addrspace(1) %ot, align 4\n" TAIL,
          32, 1, "race", "shared byte");
}

// ---- what never ends

static void never(void **state)
{
    (void)state;
    // Nobody sets the flag; two blocks, of which each waits for the other; a barrier of more blocks than a device holds.
    found(NV_HEAD FIRST("s", SPIN("w", LD("acquire.gpu.global"), "1")) BARRIER TAIL, 64, 1, "deadlock",
          "no warp can go on: warp 0 at ld.acquire.gpu.global.b32, line unknown; warp 1 at "
          "llvm.nvvm.barrier.cta.sync.aligned.all");
    found(NV_HEAD SPIN("w", "load volatile i32, ptr addrspace(1) %f, align 4", "1") TAIL, 32, 1, "deadlock",
          "warp 0 at load");
    found(NV_HEAD "  %fb = getelementptr i32, ptr addrspace(1) %f, i32 %b\n  %ob = xor i32 %b, 1\n"
                  "  %fo = getelementptr i32, ptr addrspace(1) %f, i32 %ob\n" FIRST(
                      "s", SPIN("w", "load atomic i32, ptr addrspace(1) %fo acquire, align 4",
                                "1") "  store atomic i32 1, ptr addrspace(1) %fb release, align 4\n") TAIL,
          64, 2, "deadlock", "no warp can go on");
}
static void too_many(void **state)
{
    static int32_t out[WORDS];
    (void)state;
    start("sm_90a,fast", NV_HEAD SPIN("w", LD("acquire.gpu.global"), "1") TAIL); // without shadow memory too
    assert_non_null(strstr(once(0, 64, 2, out), "deadlock: "));
    sim_close(&s);
    start("sm_90a,threads=2",
          NV_HEAD FIRST("g", "  %a = atomicrmw add ptr addrspace(1) %f, i32 1 acq_rel, align 4\n" SPIN(
                                 "w", "load atomic i32, ptr addrspace(1) %f acquire, align 4", "%nb")) BARRIER TAIL);
    shared = 200 * 1024; // so that each of 132 processors holds one
    const char *text = once(0, 32, 140, out);
    if (!strstr(text, "deadlock: ") || !strstr(text, "8 blocks have not begun: no more than 132 are resident"))
        fail_msg("%s", text);
    assert_string_equal(once(1, 32, 132, out), "");
    shared = 4096;
    sim_close(&s);
}

// ---- AMD: scopes and orderings of LLVM

static int32_t minus(int i)
{
    return i < 64 ? -1 : 500 + i - 64;
}
static void amd(void **state)
{
    static const char *const good[][2] = {
        { "  store atomic i32 1, ptr addrspace(1) %f syncscope(\"agent\") release, align 4\n",
          SPIN("w", "load atomic i32, ptr addrspace(1) %f syncscope(\"agent\") acquire, align 4", "1") },
        { "  fence syncscope(\"workgroup\") release\n"
          "  store atomic i32 1, ptr addrspace(1) %f syncscope(\"workgroup\") monotonic, align 4\n",
          SPIN("w", "load atomic i32, ptr addrspace(1) %f syncscope(\"workgroup\") monotonic, align 4",
               "1") "  fence syncscope(\"workgroup\") acquire\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        clean_on("gfx942",
                 all(AMD_HEAD
                     "  %low = icmp ult i32 %t, 64\n  %v = add i32 %t, 500\n  br i1 %low, label %p, label %c\np:\n"
                     "  store i32 %v, ptr addrspace(3) %st, align 4\n  store i32 -1, ptr addrspace(1) %ot, align 4\n"
                     "  call void @llvm.amdgcn.wave.barrier()\n"
                     "  br i1 %zero, label %sx, label %end\nsx:\n",
                     good[i][0], "  br label %end\nc:\n", good[i][1],
                     "  %q = xor i32 %t, 64\n  %sq = getelementptr i32, ptr addrspace(3) @sh, i32 %q\n"
                     "  %r = load i32, ptr addrspace(3) %sq, align 4\n  store i32 %r, ptr addrspace(1) %ot, align 4\n"
                     "  br label %end\nend:\n" TAIL,
                     NULL),
                 128, 1, 128, minus);
}

// ---- stores of one value by many

static void same_value(void **state)
{
    (void)state;
    clean(NV_HEAD "  store i32 7, ptr addrspace(1) %o, align 4\n" TAIL, 64, 1, 1, sevens);
    found(NV_HEAD "  store i32 %t, ptr addrspace(1) %o, align 4\n" TAIL, 64, 1, "race",
          "byte 0 of 'p1' was written by");
    found(NV_HEAD "  store i32 7, ptr addrspace(1) %o, align 4\n" TAIL, 64, 2, "race", "was written by block");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warps), cmocka_unit_test(blocks),     cmocka_unit_test(chain), cmocka_unit_test(grid),
        cmocka_unit_test(lock),  cmocka_unit_test(lanes),      cmocka_unit_test(never), cmocka_unit_test(too_many),
        cmocka_unit_test(amd),   cmocka_unit_test(same_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
