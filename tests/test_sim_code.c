// Where the simulator's host code could part from what a GPU does: places of shared variables, ends of the code, divisions, wide
// values, parameters by value, intrinsics that nobody knows.
#include "sim_ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = SIM_N };

// A kernel in the words of either vendor; %t: the thread, %at, %ot: its elements of the input and of the output, %v: in[t].
static const char *kernel(const char *arch, const char *head, const char *body)
{
    static char text[16384];
    bool nv = arch[0] == 's';
    const char *id = nv ? "llvm.nvvm.read.ptx.sreg.tid.x" : "llvm.amdgcn.workitem.id.x";
    snprintf(text, sizeof text,
             "%sdeclare i32 @%s()\n%s"
             "define %s void @k(ptr addrspace(1) %%a, ptr addrspace(1) %%o) {\n"
             "  %%t = call i32 @%s()\n"
             "  %%at = getelementptr i32, ptr addrspace(1) %%a, i32 %%t\n"
             "  %%ot = getelementptr i32, ptr addrspace(1) %%o, i32 %%t\n"
             "  %%v = load i32, ptr addrspace(1) %%at, align 4\n%s",
             head, id,
             nv ? "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
                : "declare void @llvm.amdgcn.s.barrier()\n",
             nv ? "ptx_kernel" : "amdgpu_kernel", id, body);
    return text;
}
#define STORE(r) "  store i32 " r ", ptr addrspace(1) %ot, align 4\n"
#define TAIL "  ret void\n}\n"
static const char *const archs[] = { "sm_90a", "gfx942" };

static void gives(const char *arch, const char *head, const char *body, int shared, int32_t (*want)(int i))
{
    struct ran r = sim_ran(arch, kernel(arch, head, body), 1, shared);
    assert_string_equal(r.text, "");
    assert_int_equal(r.status, 0);
    for (int i = 0; i < N; i++)
        if (r.out[i] != want(i))
            fail_msg("%s: lane %d: %d, not %d, of\n%s", arch, i, r.out[i], want(i), body);
}
static void finds(const char *arch, const char *head, const char *body, const char *kind, const char *words)
{
    char want[48];
    struct ran r = sim_ran(arch, kernel(arch, head, body), 1, 256);
    snprintf(want, sizeof want, ": k: %s: ", kind);
    if (!strstr(r.text, want) || !strstr(r.text, words))
        fail_msg("expected '%s' and '%s' in:\n%s", want, words, r.text);
    assert_int_equal(r.status, 1);
}
static void refused(const char *arch, const char *ir, const char *words)
{
    struct sim s = sim_open(arch);
    assert_false(sim_load(&s, ir));
    if (!strstr(s.why, words))
        fail_msg("expected '%s' in: %s", words, s.why);
    sim_close(&s);
}

// ---- shared memory: the dynamic part begins behind the variables

static int32_t both(int i)
{
    return i + 1000 * i;
}
static int32_t offset68(int i)
{
    (void)i;
    return 80; // 68 bytes of variables, to a multiple of 16
}
static int32_t offset128(int i)
{
    (void)i;
    return 128;
}
static void dynamic_shared(void **state)
{
    static const char head[] = "@own = internal addrspace(3) global [17 x i32] undef\n"
                               "@dyn = external addrspace(3) global [0 x i32]\n";
    static const char aligned[] = "@own = internal addrspace(3) global [17 x i32] undef\n"
                                  "@dyn = external addrspace(3) global [0 x i32], align 128\n";
#define PLACES \
    "  %x = and i32 %t, 15\n  %p = getelementptr i32, ptr addrspace(3) @own, i32 %x\n" \
    "  %q = getelementptr i32, ptr addrspace(3) @dyn, i32 %x\n  %y = mul i32 %t, 1001\n" \
    "  %first = icmp ult i32 %t, 16\n  br i1 %first, label %l, label %m\nl:\n" \
    "  store i32 %t, ptr addrspace(3) %p, align 4\n  %u = mul i32 %t, 1000\n" \
    "  store i32 %u, ptr addrspace(3) %q, align 4\n  %c = load i32, ptr addrspace(3) %p, align 4\n" \
    "  %d = load i32, ptr addrspace(3) %q, align 4\n  %e = add i32 %c, %d\n  br label %m\n" \
    "m:\n  %s = phi i32 [ %e, %l ], [ %y, %0 ]\n"
#define OFFSET \
    "  %b = ptrtoint ptr addrspace(3) @own to i32\n  %e0 = ptrtoint ptr addrspace(3) @dyn to i32\n" \
    "  %r = add i32 %b, %e0\n" STORE("%r") TAIL
    (void)state;
    for (int i = 0; i < 2; i++) {
        gives(archs[i], head, PLACES STORE("%s") TAIL, 64, both);
        gives(archs[i], head, OFFSET, 64, offset68);
        gives(archs[i], aligned, OFFSET, 64, offset128);
        finds(archs[i], head,
              "  store i32 0, ptr addrspace(3) @own\n"
              "  %q = getelementptr i8, ptr addrspace(3) @dyn, i32 256\n  store i32 0, ptr addrspace(3) %q, align "
              "4\n" TAIL,
              "bounds", "shared byte 0x150, the block has 0x150");
    }
    // The sum must fit; kernels of one module place it differently.
    struct ran r = sim_ran("gfx942", kernel("gfx942", head, OFFSET), 1, 64 * 1024 - 16);
    assert_non_null(strstr(r.text, "the block takes 65600 bytes of shared memory"));
    gives("sm_90a",
          "@own = internal addrspace(3) global [17 x i32] undef\n@dyn = external addrspace(3) global [0 x i32]\n"
          "define ptx_kernel void @k2() {\n  store i32 1, ptr addrspace(3) @dyn, align 4\n  ret void\n}\n",
          "  store i32 1, ptr addrspace(3) @own, align 4\n" OFFSET, 64, offset68);
}

// ---- ends

static void ends(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        finds(archs[i], "", "  %c = icmp eq i32 %t, 5\n  br i1 %c, label %x, label %y\nx:\n  unreachable\ny:\n" TAIL,
              "runaway", "block 0, thread 5 (warp 0, lane 5): the code goes on to a place that it calls unreachable");
        finds(archs[i], "declare void @llvm.trap()\n",
              "  %c = icmp eq i32 %t, 7\n  br i1 %c, label %x, label %y\nx:\n  call void @llvm.trap()\n  unreachable\n"
              "y:\n" TAIL,
              "runaway", "thread 7 (warp 0, lane 7): llvm.trap");
        finds(archs[i], "",
              "  switch i32 %t, label %x [ i32 0, label %y\n i32 1, label %y ]\nx:\n  unreachable\ny:\n" TAIL,
              "runaway", "unreachable");
    }
    finds("sm_90a", "", "  call void asm sideeffect \"trap;\", \"\"()\n" TAIL, "runaway", "trap");
}

// ---- divisions

static int32_t quotients(int i)
{
    int n = -32 + i, d = i % 5 - 2 ? i % 5 - 2 : 3;
    return n / d * 100 + n % d + (int)((unsigned)n / (unsigned)d % 1000);
}
static int32_t smallest(int i)
{
    (void)i;
    return (int32_t)0x80000000u;
}
static int32_t small(int i)
{
    (void)i;
    return -128 & 0xff;
}
static void divisions(void **state)
{
    static const char *const by_zero[] = {
        "  %r = sdiv i32 %v, %z\n",
        "  %r = udiv i32 %v, %z\n",
        "  %r = srem i32 %v, %z\n",
        "  %r = urem i32 %v, %z\n",
        "  %w = zext i32 %z to i64\n  %q = sdiv i64 9, %w\n  %r = trunc i64 %q to i32\n",
        "  %w = zext i32 %z to i128\n  %q = urem i128 9, %w\n  %r = trunc i128 %q to i32\n",
        "  %w = trunc i32 %z to i7\n  %q = udiv i7 9, %w\n  %r = zext i7 %q to i32\n",
        "  %w = insertelement <4 x i32> <i32 1, i32 2, i32 3, i32 4>, i32 %z, i32 2\n"
        "  %q = srem <4 x i32> <i32 7, i32 7, i32 7, i32 7>, %w\n"
        "  %r = extractelement <4 x i32> %q, i32 1\n",
        "  %r = udiv i32 %v, 0\n"
    };
    (void)state;
    for (size_t k = 0; k < sizeof by_zero / sizeof by_zero[0]; k++) {
        char body[1024];
        snprintf(body, sizeof body, "  %%z = sub i32 %%v, 105\n%s%s", by_zero[k], STORE("%r") TAIL);
        finds(archs[k % 2], "", body, "operand",
              k + 1 < sizeof by_zero / sizeof by_zero[0] ? "thread 5 (warp 0, lane 5): a division by zero"
                                                         : "a division by zero");
    }
    for (int i = 0; i < 2; i++) {
        gives(archs[i], "",
              "  %n = add i32 %t, -32\n  %m = urem i32 %t, 5\n  %d0 = add i32 %m, -2\n  %c = icmp eq i32 %d0, 0\n"
              "  %d = select i1 %c, i32 3, i32 %d0\n  %q = sdiv i32 %n, %d\n  %p = srem i32 %n, %d\n"
              "  %u = udiv i32 %n, %d\n  %u1 = urem i32 %u, 1000\n  %x = mul i32 %q, 100\n  %y = add i32 %x, %p\n"
              "  %r = add i32 %y, %u1\n" STORE("%r") TAIL,
              0, quotients);
        gives(archs[i], "",
              "  %z = sub i32 %v, %t\n  %m = sub i32 99, %z\n  %q = sdiv i32 -2147483648, %m\n" // 99 - 100
              "  %p = srem i32 -2147483648, %m\n  %r = add i32 %q, %p\n" STORE("%r") TAIL,
              0, smallest);
        gives(archs[i], "",
              "  %z = sub i32 %v, %t\n  %m = sub i32 99, %z\n  %b = trunc i32 %m to i8\n"
              "  %w = insertelement <2 x i8> <i8 3, i8 3>, i8 %b, i32 1\n"
              "  %q = sdiv <2 x i8> <i8 -128, i8 -128>, %w\n  %e = extractelement <2 x i8> %q, i32 1\n"
              "  %r = zext i8 %e to i32\n" STORE("%r") TAIL,
              0, small);
    }
}

// ---- values of more than 64 bits across lanes

static int32_t word3_of_0(int i)
{
    (void)i;
    return 3;
}
static int32_t word3_of_9(int i)
{
    (void)i;
    return 4 * 9 + 3;
}
static int32_t mirrored(int i)
{
    return 4 * ((i & ~15) | (15 - (i & 15))) + 3;
}
static int32_t mirrored_high(int i)
{
    return (i & ~15) | (15 - (i & 15));
}
#define WORDS \
    "  %t4 = shl i32 %t, 2\n  %t1 = or i32 %t4, 1\n  %t2 = or i32 %t4, 2\n  %t3 = or i32 %t4, 3\n" \
    "  %w0 = insertelement <4 x i32> poison, i32 %t4, i32 0\n  %w1 = insertelement <4 x i32> %w0, i32 %t1, i32 1\n" \
    "  %w2 = insertelement <4 x i32> %w1, i32 %t2, i32 2\n  %w = insertelement <4 x i32> %w2, i32 %t3, i32 3\n"
#define LAST "  %r = extractelement <4 x i32> %q, i32 3\n" STORE("%r") TAIL
static void wide_values(void **state)
{
    (void)state;
    gives("gfx942", "declare <4 x i32> @llvm.amdgcn.readfirstlane.v4i32(<4 x i32>)\n",
          WORDS "  %q = call <4 x i32> @llvm.amdgcn.readfirstlane.v4i32(<4 x i32> %w)\n" LAST, 0, word3_of_0);
    gives("gfx942", "declare <4 x i32> @llvm.amdgcn.readlane.v4i32(<4 x i32>, i32)\n",
          WORDS "  %q = call <4 x i32> @llvm.amdgcn.readlane.v4i32(<4 x i32> %w, i32 9)\n" LAST, 0, word3_of_9);
    gives("gfx942", "declare <4 x i32> @llvm.amdgcn.update.dpp.v4i32(<4 x i32>, <4 x i32>, i32, i32, i32, i1)\n",
          WORDS "  %q = call <4 x i32> @llvm.amdgcn.update.dpp.v4i32(<4 x i32> poison, <4 x i32> %w, i32 320, i32 15, "
                "i32 15, i1 true)\n" LAST,
          0, mirrored);
    gives("gfx942", "declare i64 @llvm.amdgcn.update.dpp.i64(i64, i64, i32, i32, i32, i1)\n",
          "  %x = zext i32 %t to i64\n  %y = shl i64 %x, 32\n"
          "  %q = call i64 @llvm.amdgcn.update.dpp.i64(i64 poison, i64 %y, i32 320, i32 15, i32 15, i1 true)\n"
          "  %z = lshr i64 %q, 32\n  %r = trunc i64 %z to i32\n" STORE("%r") TAIL,
          0, mirrored_high);
}

// ---- a parameter by value

static void by_value(void **state)
{
    static const char ir[] = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                             "define ptx_kernel void @k(ptr addrspace(1) %o, ptr byval([8 x i32]) align 4 %p) {\n"
                             "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                             "  %ot = getelementptr i32, ptr addrspace(1) %o, i32 %t\n"
                             "  %q = getelementptr i32, ptr %p, i32 %t\n  %v = load i32, ptr %q, align 4\n"
                             "  store i32 %v, ptr addrspace(1) %ot, align 4\n  ret void\n}\n";
    int32_t value[9] = { 5, 6, 7, 8, 9, 10, 11, 12, 13 }, out[9];
    struct image_param p[2] = { { "o", IMAGE_OUT, IMAGE_I32, 1, 4, { { -1, 9 } }, false },
                                { .name = "p", .kind = IMAGE_SCALAR, .elem = IMAGE_I32, .align = 4 } };
    struct image_kernel k = { .name = "k", .variant = "", .symbol = "k", .threads = 8, .params = p, .nparams = 2 };
    (void)state;
    struct sim s = sim_open("sm_90a");
    int32_t *o = s.api->alloc(s.d, sizeof out);
    if (!sim_load(&s, ir))
        fail_msg("%s", s.why);
    assert_int_equal(s.api->launch(s.api->kernel(s.m, &k, s.why), 1, (void *[]){ &o, value }, NULL, false, s.why), 0);
    assert_string_equal(sim_findings(&s), "");
    assert_true(s.api->read(s.d, out, o, sizeof out));
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i], value[i]);
    k.threads = 9; // one past its end
    assert_int_equal(s.api->launch(s.api->kernel(s.m, &k, s.why), 1, (void *[]){ &o, value }, NULL, false, s.why), 1);
    assert_non_null(strstr(sim_findings(&s), "bounds: block 0, thread 8"));
    sim_close(&s);
}

// ---- names that only look like intrinsics

static void unknown_names(void **state)
{
    (void)state;
    refused("gfx942",
            kernel("gfx942", "declare i32 @llvm.amdgcn.readlane.what()\n",
                   "  %r = call i32 @llvm.amdgcn.readlane.what()\n" STORE("%r") TAIL),
            "readlane");
    refused("gfx942",
            kernel("gfx942", "declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(i32)\n",
                   "  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(i32 0)\n" STORE("%r") TAIL),
            "buffer.load");
    refused("sm_90a",
            kernel("sm_90a", "declare i32 @llvm.nvvm.read.ptx.sreg.tid.q(i32)\n",
                   "  %r = call i32 @llvm.nvvm.read.ptx.sreg.tid.q(i32 0)\n" STORE("%r") TAIL),
            "intrinsic 'llvm.nvvm.read.ptx.sreg.tid.q' is not known");
    refused("sm_90a",
            kernel("sm_90a", "declare void @llvm.nvvm.mbarrier.init.elsewhere()\n",
                   "  call void @llvm.nvvm.mbarrier.init.elsewhere()\n" TAIL),
            "is not known");
    refused(
        "sm_90a",
        kernel("sm_90a", "declare i32 @llvm.dbg.nothing()\n", "  %r = call i32 @llvm.dbg.nothing()\n" STORE("%r") TAIL),
        "is not known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dynamic_shared), cmocka_unit_test(ends),     cmocka_unit_test(divisions),
        cmocka_unit_test(wide_values),    cmocka_unit_test(by_value), cmocka_unit_test(unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
