// The simulator itself: what it finds, on kernels written as LLVM IR. What single operations compute is in test_sim_ops.c.
#include "sim_ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEAD \
    "@sh = external addrspace(3) global [0 x i32]\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n" \
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n" \
    "define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) {\n" \
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n" \
    "  %at = getelementptr i32, ptr addrspace(1) %a, i32 %t\n" \
    "  %ot = getelementptr i32, ptr addrspace(1) %o, i32 %t\n" \
    "  %st = getelementptr i32, ptr addrspace(3) @sh, i32 %t\n"
#define BARRIER "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
#define TAIL "  ret void\n}\n"
enum { N = SIM_N };

static void clean(const char *ir, int32_t (*want)(int i))
{
    for (int seed = 0; seed < 24; seed++) {
        char spec[48];
        snprintf(spec, sizeof spec, "sm_80,seed=%d,threads=%d", seed, 1 + seed % 3);
        struct ran r = sim_ran(spec, ir, 1, 1024);
        assert_string_equal(r.text, "");
        assert_int_equal(r.status, 0);
        for (int i = 0; i < N; i++)
            assert_int_equal(r.out[i], want(i));
    }
}

// Found with every seed, and told with these words.
static void found_in(const char *arch, const char *ir, unsigned blocks, int shared, const char *kind, const char *words)
{
    for (int seed = 0; seed < 12; seed++) {
        char spec[48], want[48];
        snprintf(spec, sizeof spec, "%s,seed=%d,threads=2", arch, seed);
        snprintf(want, sizeof want, ": k: %s: ", kind);
        struct ran r = sim_ran(spec, ir, blocks, shared);
        assert_int_equal(r.status, 1);
        if (!strstr(r.text, want) || !strstr(r.text, words))
            fail_msg("seed %d: expected '%s' and '%s' in:\n%s", seed, want, words, r.text);
    }
}
static void found(const char *ir, const char *kind, const char *words)
{
    found_in("sm_80", ir, 1, 1024, kind, words);
}

// ---- shared memory and barriers

#define NEXT \
    "  %n = add i32 %t, 1\n  %m = and i32 %n, 63\n" \
    "  %sn = getelementptr i32, ptr addrspace(3) @sh, i32 %m\n" \
    "  %v = load i32, ptr addrspace(3) %sn, align 4\n" \
    "  store i32 %v, ptr addrspace(1) %ot, align 4\n"
static int32_t next(int i)
{
    return (i + 1) & 63;
}
static void barrier(void **state)
{
    (void)state;
    clean(HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" BARRIER NEXT TAIL, next);
    found(HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" NEXT TAIL, "race", "shared byte 0x");
    // Reads of one round against writes of the next.
    found(HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" BARRIER NEXT
               "  store i32 0, ptr addrspace(3) %st, align 4\n" TAIL,
          "race", "was read by thread");
}

static void unwritten_shared(void **state)
{
    (void)state;
    found(HEAD NEXT TAIL, "unwritten", "which nothing in this block has written");
    found(HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" BARRIER
               "  %x = getelementptr i8, ptr addrspace(3) @sh, i32 254\n"
               "  %v = load i32, ptr addrspace(3) %x, align 2\n"
               "  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          "unwritten", "0x100");
}

static int32_t seven(int i)
{
    (void)i;
    return 7;
}
// Every thread stores the same value to one place: no race. Different values: one.
static void repeated_store(void **state)
{
    (void)state;
    clean(HEAD "  store i32 7, ptr addrspace(3) @sh, align 4\n" BARRIER
               "  %v = load i32, ptr addrspace(3) @sh, align 4\n"
               "  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          seven);
    found(HEAD "  store i32 %t, ptr addrspace(3) @sh, align 4\n" TAIL, "race", "was written by thread");
}

static void divergence(void **state)
{
    (void)state;
    // Half of each warp goes past the barrier.
    found(HEAD "  %h = and i32 %t, 16\n  %c = icmp eq i32 %h, 0\n  br i1 %c, label %x, label %y\nx:\n" BARRIER
               "  br label %y\ny:\n" TAIL,
          "divergent", "16 of the warp's 32 lanes; lane 16 has ended");
    // One warp never comes.
    found(HEAD "  %c = icmp ult i32 %t, 32\n  br i1 %c, label %x, label %y\nx:\n" BARRIER "  br label %y\ny:\n" TAIL,
          "deadlock", "warp 1 ended");
    // Two warps, two barriers.
    found(HEAD "  %c = icmp ult i32 %t, 32\n  br i1 %c, label %x, label %y\nx:\n" BARRIER "  br label %z\ny:\n"
               "  call void asm sideeffect \"bar.sync 1;\", \"~{memory}\"()\n  br label %z\nz:\n" TAIL,
          "deadlock", "warp 0 at llvm.nvvm.barrier.cta.sync.aligned.all, line unknown; warp 1 at bar.sync");
}

// Warp 0 fills, arrives, and goes on; warp 1 waits at the named barrier and reads.
#define PRODUCER \
    "  %c = icmp ult i32 %t, 32\n  br i1 %c, label %x, label %y\nx:\n" \
    "  %p = getelementptr i32, ptr addrspace(3) @sh, i32 %t\n  store i32 %t, ptr addrspace(3) %p, align 4\n" \
    "  call void asm sideeffect \"bar.arrive 3, 64;\", \"~{memory}\"()\n" \
    "  store i32 -1, ptr addrspace(1) %ot, align 4\n  br label %z\ny:\n"
#define CONSUMER \
    "  %q = xor i32 %t, 32\n  %r = getelementptr i32, ptr addrspace(3) @sh, i32 %q\n" \
    "  %v = load i32, ptr addrspace(3) %r, align 4\n  store i32 %v, ptr addrspace(1) %ot, align 4\n  br label " \
    "%z\nz:\n"
static int32_t produced(int i)
{
    return i < 32 ? -1 : i - 32;
}
static void named_barrier(void **state)
{
    (void)state;
    clean(HEAD PRODUCER "  call void asm sideeffect \"bar.sync 3, 64;\", \"~{memory}\"()\n" CONSUMER TAIL, produced);
    clean("declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)\n" HEAD PRODUCER
          "  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 3, i32 64)\n" CONSUMER TAIL,
          produced);
    // Of one warp alone, while the other never comes.
    clean("declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)\n" HEAD
          "  store i32 7, ptr addrspace(1) %ot, align 4\n  %c = icmp ult i32 %t, 32\n"
          "  br i1 %c, label %x, label %y\nx:\n"
          "  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 32)\n"
          "  call void asm sideeffect \"barrier.cta.sync.aligned 2, 32;\", \"~{memory}\"()\n  br label %y\ny:\n" TAIL,
          seven);
    // Expectations that differ: whoever comes first decides what it looks like.
    for (int seed = 0; seed < 12; seed++) {
        char spec[32];
        snprintf(spec, sizeof spec, "sm_80,seed=%d", seed);
        struct ran r = sim_ran(
            spec, HEAD PRODUCER "  call void asm sideeffect \"bar.sync 3, 32;\", \"~{memory}\"()\n" CONSUMER TAIL, 1,
            1024);
        assert_true(strstr(r.text, "expects 32 threads") || strstr(r.text, "race") || strstr(r.text, "unwritten"));
        r = sim_ran(spec,
                    HEAD "  %c = icmp ult i32 %t, 32\n  br i1 %c, label %x, label %y\nx:\n" BARRIER
                         "  br label %z\ny:\n"
                         "  call void asm sideeffect \"bar.sync 0, 32;\", \"~{memory}\"()\n  br label %z\nz:\n" TAIL,
                    1, 1024);
        assert_true(strstr(r.text, "expects 32, ") || strstr(r.text, "expects 32 threads, ") ||
                    strstr(r.text, "deadlock"));
    }
}

// ---- asynchronous copies

#define COPY \
    "  call void asm sideeffect \"cp.async.ca.shared.global [$0], [$1], 4;\", \"r,l,~{memory}\"(ptr addrspace(3) " \
    "%st, ptr addrspace(1) %at)\n"
#define COMMIT "  call void asm sideeffect \"cp.async.commit_group;\", \"~{memory}\"()\n"
#define WAIT(n) "  call void asm sideeffect \"cp.async.wait_group " #n ";\", \"~{memory}\"()\n"
static int32_t next_in(int i)
{
    return 100 + ((i + 1) & 63);
}
static void async_copy(void **state)
{
    (void)state;
    clean(HEAD COPY COMMIT WAIT(0) BARRIER NEXT TAIL, next_in);
    found(HEAD COPY COMMIT BARRIER NEXT TAIL, "async", "may still be in flight");                 // no wait
    found(HEAD COPY COMMIT WAIT(1) BARRIER NEXT WAIT(0) TAIL, "async", "may still be in flight"); // too shallow a wait
    found(HEAD COPY WAIT(0) BARRIER NEXT COMMIT WAIT(0) TAIL, "async", "may still be in flight"); // committed too late
    found(HEAD COPY COMMIT WAIT(0) NEXT TAIL, "race", "cp.async"); // waited for, no barrier
    found(HEAD COPY COMMIT TAIL, "leak", "1 asynchronous copies are not waited for");
    found(HEAD COPY COMMIT "  store i32 0, ptr addrspace(3) %st, align 4\n" WAIT(0) TAIL, "async", "this store");
}

// ---- tensors

static int32_t two_blocks(int i)
{
    return 2 * (100 + i);
}
static void global_memory(void **state)
{
    (void)state;
    found_in("sm_80", HEAD "  store i32 %b, ptr addrspace(1) %ot, align 4\n" TAIL, 2, 1024, "race",
             "was written by block");
    found(HEAD "  %v = load i32, ptr addrspace(1) %ot, align 4\n  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          "unwritten", "of 'p1', which nobody has written");
    found(HEAD "  store i32 %t, ptr addrspace(1) %at, align 4\n" TAIL, "input written", "'p0'");
    found(HEAD "  %p = getelementptr i32, ptr addrspace(1) %at, i32 1\n  %v = load i32, ptr addrspace(1) %p, align 4\n"
               "  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          "bounds", "load of 4 bytes at byte 256 of 'p0', which has 256");
    found(HEAD
          "  %p = getelementptr i32, ptr addrspace(1) %ot, i32 -1\n  store i32 0, ptr addrspace(1) %p, align 4\n" TAIL,
          "bounds", "at byte -4 of 'p1'");
    found(HEAD "  %p = getelementptr i8, ptr addrspace(1) %a, i32 2\n  %v = load i32, ptr addrspace(1) %p, align 4\n"
               "  store i32 %v, ptr addrspace(1) %ot, align 4\n" TAIL,
          "misaligned", "not aligned to 4");
    found(HEAD "  %p = inttoptr i64 64 to ptr addrspace(1)\n  store i32 0, ptr addrspace(1) %p, align 4\n" TAIL,
          "bounds", "address 0x40, which is in no argument");
    found(HEAD
          "  %p = getelementptr i8, ptr addrspace(3) @sh, i32 1022\n  store i32 0, ptr addrspace(3) %p, align 2\n" TAIL,
          "bounds", "shared byte 0x3fe, the block has 0x400");
    found(HEAD
          "  %p = getelementptr i8, ptr addrspace(3) %st, i32 2\n  store i32 0, ptr addrspace(3) %p, align 4\n" TAIL,
          "misaligned", "shared byte");
    (void)two_blocks;
}

static int32_t ends(int i)
{
    return i ? -1 : 64 * 100 + 63 * 32;
}
static void atomics(void **state)
{
    (void)state;
#define ZERO \
    "  %z = icmp eq i32 %t, 0\n  br i1 %z, label %w, label %x\nw:\n  store i32 0, ptr addrspace(1) %o, align 4\n  br " \
    "label %x\nx:\n" BARRIER
#define LOADED "  %v = load i32, ptr addrspace(1) %at, align 4\n"
    clean(HEAD ZERO LOADED "  %r = atomicrmw add ptr addrspace(1) %o, i32 %v monotonic, align 4\n" TAIL, ends);
    clean(HEAD ZERO LOADED
          "  %r = call i32 asm sideeffect \"atom.relaxed.gpu.global.add.u32 $0, [$1], $2;\", \"=r,l,r,~{memory}\"(ptr "
          "addrspace(1) %o, i32 %v)\n" TAIL,
          ends);
    found(HEAD ZERO LOADED "  %w2 = load i32, ptr addrspace(1) %o, align 4\n  %s = add i32 %w2, %v\n"
                           "  store i32 %s, ptr addrspace(1) %o, align 4\n" TAIL,
          "race", "'p1'");
    found(HEAD LOADED "  %r = atomicrmw add ptr addrspace(1) %o, i32 %v monotonic, align 4\n  store i32 0, ptr "
                      "addrspace(1) %o, align 4\n" TAIL,
          "race", "'p1'");
}

// ---- limits, and what cannot be run

static void limits(void **state)
{
    (void)state;
    found_in("sm_80", HEAD TAIL, 1, 164 * 1024, "shared memory", "sm_80 has 166912");
    struct ran r = sim_ran("sm_80,budget=100000", HEAD "  br label %x\nx:\n  br label %x\n}\n", 1, 0);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.text, "runaway"));
    for (int limit = 1; limit <= 2; limit++) {
        char spec[32];
        int lines = 0;
        snprintf(spec, sizeof spec, "sm_80,threads=1,limit=%d", limit);
        r = sim_ran(spec,
                    HEAD
                    "  store i32 0, ptr addrspace(1) %at, align 4\n  store i32 1, ptr addrspace(1) %at, align 4\n" TAIL,
                    1, 0);
        for (const char *p = r.text; *p; p++)
            lines += *p == '\n';
        assert_int_equal(lines, limit);
    }
    r = sim_ran("sm_80,fast,seed=1", HEAD NEXT TAIL, 1, 1024); // no shadow
    assert_string_equal(r.text, "");
    r = sim_ran("sm_80,fast", HEAD "  store i32 0, ptr addrspace(3) %st, align 4\n" TAIL, 1, 64); // but bounds
    assert_non_null(strstr(r.text, "bounds"));
    r = sim_ran("sm_80,fast", HEAD COPY COMMIT BARRIER TAIL, 1, 1024); // and leaks
    assert_non_null(strstr(r.text, "leak"));
    r = sim_ran("sm_80,fast", HEAD COPY COMMIT BARRIER NEXT WAIT(0) TAIL, 1, 1024); // bytes in flight are not
    assert_string_equal(r.text, "");
}

static void refused(const char *spec, const char *ir, const char *words)
{
    struct sim s = sim_open(spec);
    assert_false(sim_load(&s, ir));
    if (!strstr(s.why, words))
        fail_msg("expected '%s' in: %s", words, s.why);
    sim_close(&s);
}
static void unknown(void **state)
{
    (void)state;
    refused("sm_80",
            "declare i32 @llvm.nvvm.read.ptx.sreg.clock()\n" HEAD
            "  %c = call i32 @llvm.nvvm.read.ptx.sreg.clock()\n" TAIL,
            "intrinsic 'llvm.nvvm.read.ptx.sreg.clock' is not known");
    refused("sm_80", HEAD "  call void asm sideeffect \"brkpt;\", \"\"()\n" TAIL,
            "instruction not known to the simulator at 'brkpt'");
    refused("sm_80", HEAD "  call void asm sideeffect \"mov.b32 q, 0;\", \"\"()\n" TAIL, "not declared at 'q'");
    refused("sm_80", HEAD "  %q = call i32 asm sideeffect \"mov.b32 $1, 0\", \"=r\"()\n" TAIL, "no such operand");
    refused("sm_80", HEAD "  call void asm sideeffect \"bra nowhere;\", \"\"()\n" TAIL, "no such label");
    refused("sm_80", "declare i32 @f()\n" HEAD "  %c = call i32 @f()\n" TAIL, "'f', which is not an intrinsic");
    refused("sm_80", "define void @g() {\n  ret void\n}\n", "function 'g' is not a kernel");
    refused("sm_80", "target triple = \"amdgcn-amd-amdhsa\"\ndefine amdgpu_kernel void @k() {\n  ret void\n}\n",
            "the device is sm_80");
    refused("gfx942",
            "define amdgpu_kernel void @k() {\n  call void asm sideeffect \"s_nop 0\", \"\"()\n  ret void\n}\n",
            "assembly");
    refused("sm_80", "@x = addrspace(1) global i32 0\n" HEAD TAIL, "variable 'x'");
}

// Assembly that ptxas would refuse, or that the simulator cannot carry out, is refused when it is loaded.
static void malformed_assembly(void **state)
{
    static const struct {
        const char *text, *words;
    } table[] = {
        { "mov.b32 $4294967295, 0;", "no such operand" },
        { "mov.b32;", "wrong number or kind" },
        { "mov.b32 5, 6;", "wrong number or kind" },
        { "mov.b32 [5], 6;", "wrong number or kind" },
        { "mov.b64 {$0, $0}, 7;", "wrong number or kind" },
        { "ld.global.b32;", "wrong number or kind" },
        { "ld.;", "wrong number or kind" },
        { "ld. $0, [0];", "a type is expected" },
        { "ld.global.b12 $0, [0];", "elements of 8 to 64 bits" },
        { "ld.global.v4.b32 {$0, $0}, [0];", "expected 4 registers" },
        { "ld.global.v8.b32 {$0, $0, $0, $0, $0, $0, $0, $0}, [0];", "not known" },
        { "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [0], $0, [8];", "wrong number or kind" },
        { "red.global.add.v2.f32 [0], $0;", "not known" },
        { "atom.global.add.u32;", "wrong number or kind" },
        { "add. $0, 1, 2;", "plain integer forms" },
        { "add.u16x2 $0, 1, 2;", "plain integer forms" },
        { "add.u32 $0, {$0, $0}, 2;", "plain integer forms" },
        { "llvm.nvvm.cp.async.bulk.global.to.shared.cta;", "not known" },
        { "bar.sync;", "wrong number or kind" },
        { "bar.arrive 1;", "wrong number or kind" },
        { "mbarrier.init.shared.b64 [8];", "wrong number or kind" },
        { "mbarrier.arrive.expect_tx.shared.b64 _, [8];", "a count is expected" },
        { "mbarrier.arrive.shared.b64 {$0, $0}, [8];", "wrong number or kind" },
        { "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [16, {$0}], [0], 16, [8];",
          "operands of the wrong kind" },
        { "ldmatrix.sync.aligned.m8n8.x1.shared.b16 [0], [0];", "wrong number or kind" },
        { "bra L; L: bra M; L: M:", "the label is there twice" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char ir[4096];
        snprintf(ir, sizeof ir, "%s  %%q = call i32 asm sideeffect \"%s\", \"=r\"()\n%s", HEAD, table[i].text, TAIL);
        refused("sm_90a", ir, table[i].words);
    }
    refused("sm_90a",
            HEAD
            "  %q = call i32 asm sideeffect \"mov.b32 $0, $2;\", \"=r,r,r\"(<64 x i32> zeroinitializer, i32 1)\n" TAIL,
            "operands of more than 64 bits");
    struct ran r =
        sim_ran("sm_90a,seed=3", HEAD "  call void asm sideeffect \"bra L; L:\", \"\"()\n" WAIT(-1) TAIL, 1, 64);
    assert_non_null(strstr(r.text, "-1 groups"));
}

// Modules that would break the host's code or say something else than they seem to.
static void unusual_modules(void **state)
{
    (void)state;
    refused("sm_80", HEAD "  %p = alloca [1000000 x i8]\n  store volatile i8 1, ptr %p\n" TAIL,
            "bytes of local variables");
    refused("sm_80", HEAD "  %p = alloca i8, i32 %t\n  store volatile i8 1, ptr %p\n" TAIL, "size is not constant");
    refused("sm_80", HEAD "  store <256 x i32> zeroinitializer, ptr addrspace(1) %o, align 4\n" TAIL,
            "more than 256 bytes");
    refused("sm_80", HEAD "  store i32 1, ptr addrspacecast (ptr addrspace(3) @sh to ptr)\n" TAIL, "generic pointer");
    refused("sm_80", "define ptx_kernel void @moesim_enter_k() {\n  ret void\n}\n", "a kernel named");
    struct sim s = sim_open("sm_80");
    struct image_kernel k = { .name = "k", .variant = "", .symbol = "k", .threads = 32 };
    assert_true(sim_load(&s, HEAD TAIL));
    assert_null(s.api->kernel(s.m, &k, s.why));
    assert_non_null(strstr(s.why, "takes 2 arguments, its signature says 0"));
    sim_close(&s);
    struct ran r = sim_ran("sm_80",
                           "@tbl = addrspace(1) constant [1 x ptr] [ptr @k2]\ndefine ptx_kernel void @k2() {\n  ret "
                           "void\n}\n" HEAD "  %p = load volatile i64, ptr addrspace(1) @tbl, align 8\n" TAIL,
                           1, 0);
    assert_int_equal(r.status, 0);
    r = sim_ran("sm_80,threads=1",
                HEAD "  %p = alloca [4 x i32]\n  %m = and i32 %t, 3\n  %q = getelementptr i32, ptr %p, i32 %m\n"
                     "  store volatile i32 %t, ptr %q\n  %x = load volatile i32, ptr %q\n"
                     "  %y = load atomic i32, ptr addrspace(1) %at monotonic, align 4\n  %z = add i32 %x, %y\n"
                     "  store i32 %z, ptr addrspace(1) %ot\n" TAIL,
                1, 0);
    assert_string_equal(r.text, "");
    assert_int_equal(r.out[5], 110);
}

static void bad_devices(void **state)
{
    static const char *const specs[] = {
        "",           "sm_81",        "sm_80,",        "sm_80,seed=", "sm_80,seed=-1", "sm_80,threads=0",
        "sm_80,slow", "sm_80,fast=1", "sm_80,seed=1x", "gfx942 ",     "sm_80,limit=0", "sm_80,threads=99999"
    };
    (void)state;
    struct sim s = sim_open("sm_80");
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct moesim_limits limits_;
        s.why[0] = 0;
        assert_null(s.api->open(specs[i], &limits_, s.why));
        assert_true(s.why[0] != 0);
    }
    assert_false(sim_load(&s, "") && s.api->load(s.d, "garbage", 7, s.why));
    assert_null(s.api->load(s.d, "garbage", 7, s.why));
    assert_non_null(strstr(s.why, "bitcode"));
    int x;
    assert_false(s.api->free(s.d, &x));
    assert_false(s.api->read(s.d, &x, &x, sizeof x));
    assert_false(s.api->fill(s.d, &x, 0, sizeof x, false));
    sim_close(&s);
}

static void repeatable(void **state)
{
    char first[16384];
    (void)state;
    struct ran r =
        sim_ran("sm_80,seed=5,threads=1", HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" NEXT TAIL, 3, 1024);
    strcpy(first, r.text);
    r = sim_ran("sm_80,seed=5,threads=1", HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" NEXT TAIL, 3, 1024);
    assert_string_equal(first, r.text);
    r = sim_ran("sm_80,seed=6,threads=1", HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n" NEXT TAIL, 3, 1024);
    assert_string_not_equal(first, r.text);
}

// What is told does not depend on which worker was first: the lowest block, each pair of places once.
static void lowest_block(void **state)
{
    static const char faults[] = HEAD "  store i32 %t, ptr addrspace(3) %st, align 4\n"
                                      "  %sn = getelementptr i32, ptr addrspace(3) %st, i32 1\n"
                                      "  %v = load i32, ptr addrspace(3) %sn, align 4\n"
                                      "  %far = getelementptr i32, ptr addrspace(1) %a, i32 70\n"
                                      "  %u = load i32, ptr addrspace(1) %far, align 4\n" TAIL;
    (void)state;
    for (int seed = 0; seed < 12; seed++) {
        char first[16384], spec[48];
        snprintf(spec, sizeof spec, "sm_80,seed=%d,threads=1", seed);
        strcpy(first, sim_ran(spec, faults, 40, 1024).text);
        assert_non_null(strstr(first, ": k: bounds: block 0, "));
        snprintf(spec, sizeof spec, "sm_80,seed=%d,threads=4", seed);
        for (int repeat = 0; repeat < 4; repeat++) {
            struct ran r = sim_ran(spec, faults, 40, 1024);
            const char *at = strstr(r.text, ": bounds: block 0, ");
            assert_non_null(at);
            assert_null(strstr(at + 1, ": bounds: "));
            assert_string_equal(r.text, first);
        }
    }
}

// Lines and columns come from the module's debug information.
static void lines(void **state)
{
    (void)state;
    struct ran r =
        sim_ran("sm_80",
                "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                "define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) !dbg !3 {\n"
                "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !6\n"
                "  %p = getelementptr i32, ptr addrspace(1) %o, i32 70, !dbg !6\n"
                "  store i32 0, ptr addrspace(1) %p, align 4, !dbg !7\n"
                "  ret void, !dbg !7\n}\n"
                "!llvm.dbg.cu = !{!0}\n!llvm.module.flags = !{!2}\n"
                "!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: DebugDirectivesOnly)\n"
                "!1 = !DIFile(filename: \"dir/x.dsl\", directory: \"\")\n"
                "!2 = !{i32 2, !\"Debug Info Version\", i32 3}\n"
                "!3 = distinct !DISubprogram(name: \"k\", scope: !1, file: !1, line: 14, type: !4, unit: !0, spFlags: "
                "DISPFlagDefinition)\n"
                "!4 = !DISubroutineType(types: !5)\n!5 = !{}\n"
                "!6 = !DILocation(line: 15, column: 3, scope: !3)\n!7 = !DILocation(line: 16, column: 9, scope: !3)\n",
                1, 0);
    assert_non_null(strstr(r.text, "dir/x.dsl:16:9: k: bounds: block 0, thread "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier),         cmocka_unit_test(unwritten_shared), cmocka_unit_test(repeated_store),
        cmocka_unit_test(divergence),      cmocka_unit_test(named_barrier),    cmocka_unit_test(async_copy),
        cmocka_unit_test(global_memory),   cmocka_unit_test(atomics),          cmocka_unit_test(limits),
        cmocka_unit_test(unknown),         cmocka_unit_test(bad_devices),      cmocka_unit_test(repeatable),
        cmocka_unit_test(lines),           cmocka_unit_test(lowest_block),     cmocka_unit_test(malformed_assembly),
        cmocka_unit_test(unusual_modules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
