// What single operations compute in the simulator, against tables and formulas written out here from the vendors' manuals.
#include "sim_ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 64, CANNOT = 0x7fffffff };

// out[i] = what `body` makes %r of; %t is the thread, %v = in[t].
static const char *kernel(bool nv, const char *declare, const char *body)
{
    static char text[8192];
    const char *id = nv ? "llvm.nvvm.read.ptx.sreg.tid.x" : "llvm.amdgcn.workitem.id.x";
    snprintf(text, sizeof text,
             "%sdeclare i32 @%s()\n"
             "define %s void @k(ptr addrspace(1) %%a, ptr addrspace(1) %%o) {\n"
             "  %%t = call i32 @%s()\n"
             "  %%at = getelementptr i32, ptr addrspace(1) %%a, i32 %%t\n"
             "  %%ot = getelementptr i32, ptr addrspace(1) %%o, i32 %%t\n"
             "  %%v = load i32, ptr addrspace(1) %%at, align 4\n"
             "%s"
             "  store i32 %%r, ptr addrspace(1) %%ot, align 4\n"
             "  ret void\n}\n",
             declare, id, nv ? "ptx_kernel" : "amdgpu_kernel", id, body);
    return text;
}

static const char *run(const char *arch, const char *ir, const int32_t in[N], int32_t out[N])
{
    static char text[4096];
    struct sim s = sim_open(arch);
    int32_t *a = s.api->alloc(s.d, N * 4), *o = s.api->alloc(s.d, N * 4);
    assert_true(s.api->write(s.d, a, in, N * 4) && s.api->fill(s.d, o, 0xff, N * 4, true));
    if (!sim_load(&s, ir))
        fail_msg("%s\n%s", s.why, ir);
    sim_run(&s, "k", N, 0, 1, "ib", (void *[]){ a, o }, (int64_t[]){ N, N });
    snprintf(text, sizeof text, "%s", sim_findings(&s));
    assert_true(s.api->read(s.d, out, o, N * 4));
    sim_close(&s);
    return text;
}

static void gives(const char *arch, const char *declare, const char *body, int32_t (*want)(int i, const void *user),
                  const void *user)
{
    int32_t in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = 1000 + i;
    const char *found = run(arch, kernel(arch[0] == 's', declare, body), in, out);
    assert_string_equal(found, "");
    for (int i = 0; i < N; i++)
        if (out[i] != want(i, user))
            fail_msg("lane %d: %d, not %d, of\n%s", i, out[i], want(i, user), body);
}

// ---- shuffles of NVIDIA (PTX ISA, shfl.sync)
struct shuffle {
    const char *mode;
    int b, c, from[32]; // the lane that each lane reads
};
static int32_t shuffled(int i, const void *user)
{
    const struct shuffle *s = user;
    return 1000 + (i & ~31) + s->from[i & 31];
}
static void shuffles(void **state)
{
    static const struct shuffle table[] = {
        { "bfly", 1, 31, { 1,  0,  3,  2,  5,  4,  7,  6,  9,  8,  11, 10, 13, 12, 15, 14,
                           17, 16, 19, 18, 21, 20, 23, 22, 25, 24, 27, 26, 29, 28, 31, 30 } },
        { "up", 2, 0, { 0,  1,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                        14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29 } },
        { "down", 30, 31, { 30, 31, 2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                            16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 } },
        // Segments of 8: mask 0x18 << 8, clamp at the segment's end.
        { "idx", 3, 0x181f, { 3,  3,  3,  3,  3,  3,  3,  3,  11, 11, 11, 11, 11, 11, 11, 11,
                              19, 19, 19, 19, 19, 19, 19, 19, 27, 27, 27, 27, 27, 27, 27, 27 } },
        { "down", 1, 0x181f, { 1,  2,  3,  4,  5,  6,  7,  7,  9,  10, 11, 12, 13, 14, 15, 15,
                               17, 18, 19, 20, 21, 22, 23, 23, 25, 26, 27, 28, 29, 30, 31, 31 } },
        { "up", 3, 0x1800, { 0,  1,  2,  0,  1,  2,  3,  4,  8,  9,  10, 8,  9,  10, 11, 12,
                             16, 17, 18, 16, 17, 18, 19, 20, 24, 25, 26, 24, 25, 26, 27, 28 } },
    };
    (void)state;
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        char declare[128], body[256];
        const struct shuffle *s = &table[k];
        snprintf(declare, sizeof declare, "declare i32 @llvm.nvvm.shfl.sync.%s.i32(i32, i32, i32, i32)\n", s->mode);
        snprintf(body, sizeof body, "  %%r = call i32 @llvm.nvvm.shfl.sync.%s.i32(i32 -1, i32 %%v, i32 %d, i32 %d)\n",
                 s->mode, s->b, s->c);
        gives("sm_80", declare, body, shuffled, s);
    }
}

static int32_t bits_of(int i, const void *user)
{
    float want = (float)pow(2, 0.25 * (i % 8));
    int32_t u;
    (void)user;
    memcpy(&u, &want, 4);
    return u;
}
static void nv_maths(void **state)
{
    (void)state;
    gives("sm_90a", "declare float @llvm.nvvm.ex2.approx.ftz.f32(float)\n",
          "  %q = and i32 %t, 7\n  %f = sitofp i32 %q to float\n  %x = fmul float %f, 2.500000e-01\n"
          "  %e = call float @llvm.nvvm.ex2.approx.ftz.f32(float %x)\n  %r = bitcast float %e to i32\n",
          bits_of, NULL);
}

// ---- DPP (CDNA3 ISA, DPP_CTRL): what each lane of the first row (and of the wave) reads; CANNOT: its own old value, or 0 with bound_ctrl.
struct dpp {
    int ctrl, rows, banks;
    bool bound;
    int (*from)(int lane);
};
static int quad(int l)
{
    static const int perm[4] = { 2, 0, 3, 1 };
    return (l & ~3) + perm[l & 3];
}
static int shl3(int l)
{
    return (l & 15) < 13 ? l + 3 : CANNOT;
}
static int shr1(int l)
{
    return l & 15 ? l - 1 : CANNOT;
}
static int ror4(int l)
{
    return (l & ~15) + ((l + 12) & 15);
}
static int mirror(int l)
{
    return (l & ~15) + 15 - (l & 15);
}
static int half_mirror(int l)
{
    return (l & ~7) + 7 - (l & 7);
}
static int bcast15(int l)
{
    return l < 16 ? CANNOT : (l & ~15) - 1;
}
static int bcast31(int l)
{
    return l < 32 ? CANNOT : 31;
}
static int wave_shr(int l)
{
    return l ? l - 1 : CANNOT;
}
static int wave_rol(int l)
{
    return (l + 1) % 64;
}
static int newbcast5(int l)
{
    return (l & ~15) + 5;
}
static int32_t dpp_want(int i, const void *user)
{
    const struct dpp *d = user;
    int from = d->from(i);
    if (!(d->rows >> (i >> 4) & 1) || !(d->banks >> (i >> 2 & 3) & 1))
        return -1 - i;
    return from != CANNOT ? 1000 + from : d->bound ? 0 : -1 - i;
}
static void dpp(void **state)
{
    static const struct dpp table[] = {
        { 2 | 0 << 2 | 3 << 4 | 1 << 6, 15, 15, true, quad },
        { 0x103, 15, 15, true, shl3 },
        { 0x103, 15, 15, false, shl3 },
        { 0x111, 15, 15, true, shr1 },
        { 0x124, 15, 15, true, ror4 },
        { 0x140, 15, 15, true, mirror },
        { 0x141, 15, 15, true, half_mirror },
        { 0x142, 15, 15, true, bcast15 },
        { 0x142, 10, 15, false, bcast15 },
        { 0x143, 12, 15, false, bcast31 },
        { 0x138, 15, 15, true, wave_shr },
        { 0x134, 15, 15, true, wave_rol },
        { 0x155, 15, 15, true, newbcast5 },
        { 0x111, 15, 5, true, shr1 },
    };
    (void)state;
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        char body[256];
        const struct dpp *d = &table[k];
        snprintf(body, sizeof body,
                 "  %%old = sub i32 -1, %%t\n  %%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 %%old, i32 %%v, i32 %d, "
                 "i32 %d, i32 %d, i1 %d)\n",
                 d->ctrl, d->rows, d->banks, d->bound);
        gives("gfx942", "declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n", body, dpp_want, d);
    }
}

// ---- other moves across the lanes of a wave
static int32_t by_table(int i, const void *user)
{
    int from = ((int (*)(int))(uintptr_t)user)(i);
    return from < 0 ? -from : 1000 + from;
}
static int reversed(int i)
{
    return 63 - i;
}
static int swap_pairs(int i)
{
    return i ^ 1;
}
static int in_half(int i)
{
    return (i & 32) + (((i & 0x1c) | 2) ^ 0x10); // and 0x1c, or 2, xor 0x10
}
static int first(int i)
{
    (void)i;
    return 0;
}
static int lane37(int i)
{
    (void)i;
    return 37;
}
static int swapped32(int i)
{
    return i < 32 ? i : 100000 - 1000 + (i - 32); // of the second operand: 100000 + lane
}
static int swapped16(int i)
{
    return i & 16 ? 100000 - 1000 + (i - 16) : i;
}
static int below(int i)
{
    return -(i + 5) + 0;
}
static void moves(void **state)
{
    (void)state;
#define D2(name) "declare i32 @llvm.amdgcn." name "(i32, i32)\n"
    gives("gfx942", D2("ds.bpermute"),
          "  %i = sub i32 63, %t\n  %j = shl i32 %i, 2\n  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %j, i32 %v)\n",
          by_table, (void *)(uintptr_t)reversed);
    gives("gfx942", D2("ds.swizzle"), "  %r = call i32 @llvm.amdgcn.ds.swizzle(i32 %v, i32 32945)\n",
          by_table, // 0x8000 | 1 0 3 2
          (void *)(uintptr_t)swap_pairs);
    gives("gfx942", D2("ds.swizzle"), "  %r = call i32 @llvm.amdgcn.ds.swizzle(i32 %v, i32 16476)\n",
          by_table, // 0x1c | 2 << 5 | 0x10 << 10
          (void *)(uintptr_t)in_half);
    gives("gfx942", "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n",
          "  %r = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v)\n", by_table, (void *)(uintptr_t)first);
    gives("gfx942", "declare i32 @llvm.amdgcn.readlane.i32(i32, i32)\n",
          "  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 37)\n", by_table, (void *)(uintptr_t)lane37);
#define SWAP(n) \
    "declare {i32, i32} @llvm.amdgcn.permlane" #n ".swap(i32, i32, i1, i1)\n", \
        "  %b = add i32 %t, 100000\n" \
        "  %p = call {i32, i32} @llvm.amdgcn.permlane" #n ".swap(i32 %v, i32 %b, i1 false, i1 false)\n" \
        "  %r = extractvalue {i32, i32} %p, 0\n"
    gives("gfx950", SWAP(32), by_table, (void *)(uintptr_t)swapped32);
    gives("gfx950", SWAP(16), by_table, (void *)(uintptr_t)swapped16);
    gives(
        "gfx942", D2("mbcnt.lo") D2("mbcnt.hi"),
        "  %l = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 5)\n  %r = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %l)\n",
        by_table, (void *)(uintptr_t)below);
}

// ---- lanes that go different ways: each side sees its own, and afterwards all see all
static int32_t parted(int i, const void *user)
{
    (void)user;
    return (i < 20 ? 1000 : 1020) + 64; // the first lane of the side, plus the number of lanes that came together again
}
// Lanes i go round i / 16 + 1 times; in round n there are 64 - 16 n of them; in the end all 64 meet.
static int32_t looped(int i, const void *user)
{
    static const int sum[4] = { 64, 64 + 48, 64 + 48 + 32, 64 + 48 + 32 + 16 };
    (void)user;
    return 64000 + sum[i / 16];
}
static void convergence(void **state)
{
    (void)state;
    gives("gfx942",
          "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)\ndeclare i64 @llvm.amdgcn.ballot.i64(i1)\ndeclare i64 "
          "@llvm.ctpop.i64(i64)\n",
          "  %c = icmp ult i32 %t, 20\n  br i1 %c, label %x, label %y\n"
          "x:\n  %f = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v)\n  br label %z\n"
          "y:\n  %g = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v)\n  br label %z\n"
          "z:\n  %h = phi i32 [ %f, %x ], [ %g, %y ]\n  %m = call i64 @llvm.amdgcn.ballot.i64(i1 true)\n"
          "  %n = call i64 @llvm.ctpop.i64(i64 %m)\n  %k = trunc i64 %n to i32\n  %r = add i32 %h, %k\n",
          parted, NULL);
    // A loop that lanes leave at different times.
    gives("gfx942", "declare i64 @llvm.amdgcn.ballot.i64(i1)\ndeclare i64 @llvm.ctpop.i64(i64)\n",
          "  br label %x\nx:\n  %i = phi i32 [ 0, %0 ], [ %j, %x ]\n  %s = phi i32 [ 0, %0 ], [ %u, %x ]\n"
          "  %m = call i64 @llvm.amdgcn.ballot.i64(i1 true)\n  %n = call i64 @llvm.ctpop.i64(i64 %m)\n  %k = trunc i64 "
          "%n to i32\n"
          "  %u = add i32 %s, %k\n  %j = add i32 %i, 1\n  %q = lshr i32 %t, 4\n  %c = icmp ult i32 %i, %q\n  br i1 %c, "
          "label %x, label %y\n"
          "y:\n  %w = call i64 @llvm.amdgcn.ballot.i64(i1 true)\n  %e = call i64 @llvm.ctpop.i64(i64 %w)\n  %d = trunc "
          "i64 %e to i32\n"
          "  %p = mul i32 %d, 1000\n  %r = add i32 %p, %u\n",
          looped, NULL);
}

// ---- buffers
static int32_t ranged(int i, const void *user)
{
    (void)user;
    return i < 50 ? 1000 + i : 0;
}
static int32_t pair(int i, const void *user)
{
    (void)user;
    return i < 49 ? 1001 + i : 0;
}
#define RSRC(n) \
    "  %s = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %a, i16 0, i64 " #n \
    ", i32 159744)\n" \
    "  %f = shl i32 %t, 2\n"
#define MAKE "declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)\n"
static void buffers(void **state)
{
    (void)state;
    gives("gfx942", MAKE "declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32)\n",
          RSRC(200) "  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %s, i32 %f, i32 0, i32 0)\n",
          ranged, NULL);
    // Of two words the one that is inside is read.
    gives("gfx942", MAKE "declare <2 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v2i32(ptr addrspace(8), i32, i32, i32)\n",
          RSRC(200) "  %p = call <2 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v2i32(ptr addrspace(8) %s, i32 %f, i32 0, "
                    "i32 0)\n"
                    "  %r = extractelement <2 x i32> %p, i64 1\n",
          pair, NULL);
    // The second offset counts against the range too; a masked lane's offset is out of it.
    gives("gfx942", MAKE "declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32)\n",
          RSRC(200) "  %h = sub i32 %f, 4\n  %c = icmp ugt i32 %t, 0\n  %g = select i1 %c, i32 %h, i32 -2147483648\n"
                    "  %q = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %s, i32 %g, i32 4, i32 0)\n"
                    "  %z = icmp eq i32 %t, 0\n  %r = select i1 %z, i32 1000, i32 %q\n",
          ranged, NULL);
}

static void finds(const char *arch, const char *declare, const char *body, const char *words)
{
    int32_t in[N] = { 0 }, out[N];
    const char *found = run(arch, kernel(arch[0] == 's', declare, body), in, out);
    if (!strstr(found, words))
        fail_msg("expected '%s' in:\n%s", words, found);
}
static void operands(void **state)
{
    (void)state;
    finds("gfx942", "declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n",
          "  %r = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v, i32 336, i32 15, i32 15, i1 true)\n"
          "  %q = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v, i32 326, i32 15, i32 15, i1 true)\n",
          "0x146 is no DPP control");
    finds("gfx942", "declare i32 @llvm.amdgcn.readlane.i32(i32, i32)\n",
          "  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 %t)\n", "the lane's number differs");
    finds("gfx942", MAKE "declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32)\n",
          RSRC(300) "  %g = add i32 %f, 44\n  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %s, "
                    "i32 %g, i32 0, i32 0)\n",
          "bounds");
    finds("sm_80", "declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)\n",
          "  %r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %v, i32 1, i32 31)\n",
          "names the lanes 0x0000ffff");
    finds("sm_80", "declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)\n",
          "  %c = icmp ult i32 %t, 7\n  br i1 %c, label %x, label %y\nx:\n"
          "  %s = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v, i32 1, i32 31)\n  br label %y\n"
          "y:\n  %r = phi i32 [ 0, %0 ], [ %s, %x ]\n",
          "but 0x0000007f are here");
    finds("gfx942",
          "declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)\n",
          "  %c = icmp ult i32 %t, 7\n  br i1 %c, label %x, label %y\nx:\n"
          "  %s = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> zeroinitializer, <4 x half> "
          "zeroinitializer, <4 x float> "
          "zeroinitializer, i32 0, i32 0, i32 0)\n  br label %y\ny:\n  %r = add i32 %v, 0\n",
          "is reached by 7 of the warp's 64 lanes");
}

// A block that ends within a warp: what needs the whole warp says so.
static void partial_warps(void **state)
{
    static const struct {
        const char *arch, *declare, *body, *words;
    } table[] = {
        { "sm_90a", "",
          "  %r = call i32 asm sideeffect \"ldmatrix.sync.aligned.m8n8.x1.shared.b16 $0, [$1];\", \"=r,r\"(i32 0)\n",
          "needs a whole warp; this one has 16 lanes" },
        { "gfx942", "declare i32 @llvm.amdgcn.readlane.i32(i32, i32)\n",
          "  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 40)\n", "lane 40, which is not active" },
    };
    (void)state;
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        struct sim s = sim_open(table[k].arch);
        int32_t in[N] = { 0 }, *a = s.api->alloc(s.d, N * 4), *o = s.api->alloc(s.d, N * 4);
        assert_true(s.api->write(s.d, a, in, N * 4));
        if (!sim_load(&s, kernel(table[k].arch[0] == 's', table[k].declare, table[k].body)))
            fail_msg("%s", s.why);
        assert_int_equal(sim_run(&s, "k", 16, 64, 1, "ib", (void *[]){ a, o }, (int64_t[]){ N, N }), 1);
        assert_non_null(strstr(sim_findings(&s), table[k].words));
        sim_close(&s);
    }
}

static int32_t had_source(int i, const void *user)
{
    (void)user;
    return i % 32 ? 1 : 0;
}
static void shuffle_predicate(void **state)
{
    (void)state;
    gives("sm_80", "declare {i32, i1} @llvm.nvvm.shfl.sync.up.i32p(i32, i32, i32, i32)\n",
          "  %p = call {i32, i1} @llvm.nvvm.shfl.sync.up.i32p(i32 -1, i32 %v, i32 1, i32 0)\n"
          "  %c = extractvalue {i32, i1} %p, 1\n  %r = zext i1 %c to i32\n",
          had_source, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffles), cmocka_unit_test(nv_maths),      cmocka_unit_test(dpp),
        cmocka_unit_test(moves),    cmocka_unit_test(buffers),       cmocka_unit_test(convergence),
        cmocka_unit_test(operands), cmocka_unit_test(partial_warps), cmocka_unit_test(shuffle_predicate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
