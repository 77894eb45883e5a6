// Emission: small kernels through the whole compiler, ordered patterns on the assembly of both vendors. Not the exact
// text, which is LLVM's: each pattern guards a decision of emit_*.c, what is one access, what is masked, where the block
// meets.
//
// A check is a line: `has X` behind what the `has` before it found, `any X` somewhere, `not X` nowhere, `N X` exactly N
// times. MOE_VERBOSE=1 prints the assembly of what fails.
#include "../compiler/moec.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct moec_result *compile(const char *src, const char *arch, enum moec_emit emit)
{
    struct moec_options o = { .size = sizeof o, .arch = arch, .emit = emit };
    return moec_compile(src, strlen(src), "t.dsl", &o);
}

static const char *first_error(struct moec_result *r)
{
    const struct moec_diagnostic *d = moec_diagnostic(r, 0);
    return d ? d->formatted : "no diagnostic";
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static int wrong; // checks that failed, of one test

// All that fails is reported; with MOE_VERBOSE set, the text too.
static void complain(const char *text, const char *name, const char *arch, const char *line)
{
    wrong++;
    fprintf(stderr, "%s, %s: not so: %s\n", name, arch, line);
    if (getenv("MOE_VERBOSE"))
        fputs(text, stderr);
}

static void check_text(const char *text, const char *name, const char *arch, const char *checks)
{
    const char *at = text;
    char line[200];
    while (*checks) {
        size_t n = strcspn(checks, "\n");
        assert_true(n < sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)n, checks);
        checks += n + (checks[n] == '\n');
        const char *what = strchr(line, ' ') + 1, *found = strstr(at, what);
        bool has = !strncmp(line, "has ", 4), hasnt = !strncmp(line, "not ", 4);
        bool any = !strncmp(line, "any ", 4);
        if (has ? !found : any ? !strstr(text, what) : occurrences(text, what) != (hasnt ? 0 : atoi(line)))
            complain(text, name, arch, line);
        if (has && found)
            at = found + strlen(what);
    }
}

struct emitted {
    const char *name, *source;
    const char *ptx; // for sm_80
    const char *gcn; // for gfx942; NULL: only that it compiles
};

static void emits(const struct emitted *e)
{
    const char *const archs[] = { "sm_80", "gfx942" }, *const checks[] = { e->ptx, e->gcn };
    for (int i = 0; i < 2; i++) {
        size_t n;
        struct moec_result *r = compile(e->source, archs[i], MOEC_ASM);
        if (moec_status(r) != MOEC_OK)
            complain("", e->name, archs[i], first_error(r));
        else if (checks[i])
            check_text(moec_code(r, &n), e->name, archs[i], checks[i]);
        moec_free(r);
    }
    struct moec_result *r = compile(e->source, "sm_90a", MOEC_CUBIN); // what ptxas says of it
    if (moec_status(r) != MOEC_MISSING && (moec_status(r) != MOEC_OK || moec_diagnostic(r, 0)))
        complain("", e->name, "ptxas", first_error(r));
    moec_free(r);
}

static void all_emit(const struct emitted *e, size_t n)
{
    wrong = 0;
    for (size_t i = 0; i < n; i++)
        emits(&e[i]);
    assert_int_equal(wrong, 0);
}

// ---- accesses ----------------------------------------------------------------------------------------------------

static const struct emitted accesses[] = {
    { "rows of 64, one access of two elements a row",
      "kernel k(x: f32[N, 64], y: out f32[N, 64]) {\n parallel n in tile(N) {\n  let c = range(64)\n"
      "  y[n, c] = x[n, c] + 1.0\n }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 4  warps 1 }",
      "4 ld.global.nc.v2.b32\n4 st.global.v2.b32\n4 setp.lt.s32\nnot ld.global.nc.b32\nhas ld.global.nc.v2.b32\nhas "
      "add.rn.f32\nhas st.global.v2.b32",
      "4 buffer_load_dword\n4 buffer_store_dword\nnot global_load\nnot global_store\nnot saveexec" },
    { "rows of unknown length: element by element",
      "kernel k(x: f32[N, M], y: out f32[N, M]) {\n parallel n in tile(N), m in tile(M) {\n  y[n, m] = x[n, m]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 1  m 64  warps 1 }",
      "2 ld.global.nc.b32\n2 st.global.b32\nnot .v2", "1 global_load_dword v\n1 global_store_dword v" },
    { "16 bytes where rows are known to be multiples of it",
      "kernel k(x: bf16[N, M], y: out bf16[N, M]) require M % 8 == 0 {\n parallel n in tile(N), m in tile(M) {\n  y[n, "
      "m] = x[n, m]\n"
      " }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 1  m 512  warps 1 }",
      "2 ld.global.nc.v4.b32\n2 st.global.v4.b32\nhas ld.global.nc.v4\nhas st.global.v4",
      "1 global_load_dwordx4 v\n1 global_store_dwordx4 v" },
    { "a multiple of 4: no run of 8",
      "kernel k(x: bf16[N, M], y: out bf16[N, M]) require M % 4 == 0 {\n parallel n in tile(N), m in tile(M) {\n  y[n, "
      "m] = x[n, m]\n"
      " }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 1  m 256  warps 1 }",
      "2 ld.global.nc.v2.b32\nnot .v4", "1 global_load_dwordx2 v\n1 global_store_dwordx2 v" },
    { "the diagonal: an axis in two indices is no run",
      "kernel k(x: f32[N, N], y: out f32[N]) require N % 8 == 0 {\n parallel n in tile(N) {\n  y[n] = x[n, n]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 128  warps 1 }",
      "4 ld.global.nc.b32\n1 st.global.v4.b32\nnot ld.global.nc.v", "2 global_load_dword v\n1 buffer_store_dwordx2 v" },
    { "a gathered row that depends on the column is no run",
      "kernel k(x: f32[N, 64], i: i32[64], y: out f32[64]) {\n let c = range(64)\n y[c] = x[i[c], c]\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { warps 1 }",
      "1 ld.global.nc.v2.b32\n2 ld.global.nc.b32\n1 st.global.v2.b32\nhas setp.lt.u32\nhas ld.global.nc.b32", NULL },
    { "an origin that is no multiple of the run",
      "kernel k(x: f32[256], a: i32, y: out f32[128]) {\n let c = range(128)\n y[c] = x[c + a * 2]\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { warps 1 }",
      "2 ld.global.nc.v2.b32\n1 st.global.v4.b32", NULL },
    { "full tiles are not masked",
      "kernel k(x: f32[1024], y: out f32[1024]) {\n parallel n in tile(1024) {\n  y[n] = x[n]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 128  warps 1 }",
      "not setp\nnot @%p\nhas ld.global.nc.v4.b32\nhas st.global.v4.b32", "not cndmask" },
    { "what is written is not read through the read-only path",
      "kernel k(x: inout f32[N]) {\n parallel n in tile(N) {\n  x[n] = x[n] * 2.0\n }\n}", "has ld.global\nnot .nc",
      NULL },
    { "replicas write once",
      "kernel k(x: f32[N], y: out f32[16]) require N <= 16 {\n let c = range(N)\n y[c] = x[c]\n}",
      "1 st.global.b32\nhas and.b32\nhas setp.eq.b32\nhas @%p", NULL },
    { "atomics: the value before reaches every copy",
      "kernel k(s: inout i32[1], y: out i32[16]) {\n let c = range(16)\n let o = atomic_add(s[0], 1)\n y[c] = c + o\n}",
      "has setp.eq.b32\nhas atom.relaxed.gpu.global.add.u32\nhas shfl.sync.idx.b32\nhas add.s32\n1 atom.\n1 shfl.",
      "has buffer_atomic_add\nhas v_readlane" },
    { "atomics whose value nobody wants",
      "kernel k(s: inout f32[M], i: i32[N]) {\n parallel n in tile(N) {\n  atomic_add(s[i[n]], 0.5)\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 16  warps 1 }",
      "has setp.lt.u32\nhas atom.relaxed.gpu.global.add.f32\n1 atom.\nnot shfl",
      "has global_atomic_add_f32\nnot permute" },
};

static void memory(void **state)
{
    (void)state;
    all_emit(accesses, sizeof accesses / sizeof accesses[0]);
}

// ---- arithmetic --------------------------------------------------------------------------------------------------

static const struct emitted values[] = {
    { "division by zero and by -1",
      "kernel k(a: i32[N], b: i32[N], y: out i32[N], z: out i32[N]) {\n parallel n in tile(N) {\n  let p = a[n]\n  let "
      "q = b[n]\n"
      "  y[n] = p / q\n  z[n] = p % q\n }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has setp.eq.b32\nhas selp.b32\nhas div.s32\nhas selp.b32\n1 div.s32", NULL },
    { "division by a constant",
      "kernel k(a: i32[N], y: out i32[N]) {\n parallel n in tile(N) {\n  y[n] = a[n] / 8 + a[n] % 7\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "not div.s32\nnot selp\nhas shr.s32", NULL },
    { "the count of a shift is masked",
      "kernel k(a: i32[N], y: out i32[N]) {\n parallel n in tile(N) {\n  y[n] = 1 << a[n]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has ld.global\nhas and.b32\nhas shl.b32", NULL },
    { "float to i32 saturates",
      "kernel k(a: f32[N], y: out i32[N]) {\n parallel n in tile(N) {\n  y[n] = i32(a[n])\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has cvt.rzi.s32.f32", "has v_cvt_i32_f32" },
    { "bf16 is rounded to nearest even, two at a time",
      "kernel k(a: f32[N], y: out bf16[N]) require N % 8 == 0 {\n parallel n in tile(N) {\n  y[n] = a[n]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 256  warps 1 }",
      "4 cvt.rn.bf16x2.f32\n1 st.global.v4.b32", NULL },
    { "from bf16 to f16 by way of f32: the product keeps the range of f32",
      "kernel k(a: bf16[N], y: out f16[N]) {\n parallel n in tile(N) {\n  y[n] = f16(f32(a[n]) * 0.5)\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has mul.rn.f32\nhas cvt.rn.f16.f32\nnot mul.rn.f16\nnot mul.f16", "not v_mul_f16\nnot v_pk_mul_f16" },
    { "products and sums are not fused",
      "kernel k(a: f32[N], y: out f32[N]) {\n parallel n in tile(N) {\n  y[n] = a[n] * a[n] + a[n]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has mul.rn.f32\nhas add.rn.f32\nnot fma", "not v_fma" },
    { "the larger of two: a NaN loses",
      "kernel k(a: f32[N], b: f32[N], y: out f32[N]) {\n parallel n in tile(N) {\n  y[n] = max(a[n], b[n])\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has max.f32\nnot max.NaN", "has v_max_f32" },
};

static void arithmetic(void **state)
{
    (void)state;
    all_emit(values, sizeof values / sizeof values[0]);
}

// ---- along axes, control flow, the grid --------------------------------------------------------------------------

static const struct emitted structures[] = {
    { "a reduction: registers, lanes, warps",
      "kernel k(x: f32[N, 2048], y: out f32[N]) {\n parallel n in tile(N) {\n  let c = range(2048)\n"
      "  y[n] = reduce_sum(x[n, c], c)\n }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 1  warps 4 }",
      "5 shfl.sync.bfly.b32\n2 bar.sync\n1 st.shared.b32\n4 ld.shared.b32\nhas ld.global.nc.v4\nhas add.rn.f32\nhas "
      "shfl.sync.bfly.b32\n"
      "has st.shared.b32\nhas bar.sync\nhas ld.shared.b32\nhas add.rn.f32\nhas bar.sync\nhas st.global.b32",
      "has ds_bpermute\nhas ds_write_b32\nhas s_barrier\nhas ds_read\nhas s_barrier\n2 s_barrier" },
    { "a maximum takes what is past the end as -inf",
      "kernel k(x: f32[N], y: out f32[1]) require N <= 32 {\n let c = range(N)\n y[0] = reduce_max(x[c], c)\n}",
      "has selp.f32\nhas shfl.sync.bfly\nhas max.f32\n5 shfl.sync.bfly", NULL },
    { "a scan: as many steps as bits",
      "kernel k(x: i32[N, 64], y: out i32[N, 64]) {\n parallel n in tile(N) {\n  let c = range(64)\n"
      "  y[n, c] = scan_sum(x[n, c], c)\n }\n}\nschedule k for sm_80, sm_90a, gfx942 { n 1  warps 1 }",
      "5 shfl.sync.idx.b32\nnot bar.sync\nhas ld.global.nc.v2\nhas shfl.sync.idx\nhas st.global.v2", "not s_barrier" },
    { "a loop carries what it sets",
      "kernel k(x: f32[N], t: i32, y: out f32[N]) {\n parallel n in tile(N) {\n  var s, u: f32[n] = 0\n  for i in "
      "each(t) {\n"
      "   s += x[n]\n   if i % 2 == 0 {\n    u = max(u, s)\n   }\n  }\n  y[n] = s + u\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 32  warps 1 }",
      "has bra\nhas add.rn.f32\nhas bra\nhas st.global", NULL },
    { "the grid in groups of four row tiles",
      "kernel k(a: i32[N, M], y: out i32[N, M]) {\n parallel n in tile(N), m in tile(M) {\n  y[n, m] = a[n, m]\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { n 16  m 64  warps 4  group 4 }",
      "has %ctaid.x\nhas div.u32\nhas min.u32\nhas , 4;\nhas div.u32\n2 div.u32", NULL },
    { "a tile list: one entry, one load, an empty one ends the block",
      "kernel k(tiles: tile_map[N], y: out i32[R]) {\n parallel (e, r) in tiles {\n  y[r] = e\n }\n}\n"
      "schedule k for sm_80, sm_90a, gfx942 { r 32  warps 1 }",
      "has ld.global.nc.v4.b32\nhas setp.lt.s32\nhas bra\nhas setp.lt.u32\nhas st.global.b32\n1 ld.global",
      "has s_load_dwordx4\nhas s_cbranch\nhas store_dword" },
    { "values that several regions use",
      "kernel k(x: bf16[M, K], w: bf16[N, K], c: i32, y: out f32[M, N], z: out f32[M, N]) require K % 8 == 0 {\n"
      " parallel m in tile(M), n in tile(N) {\n  var s: f32[m, n] = 0\n  for k in tile(K) {\n   s += dot(x[m, k], w[n, "
      "k])\n  }\n"
      "  let v = s\n  var q: f32[m, n] = 0\n  for i in each(c) {\n   q = q + v\n  }\n  if c > 3 {\n   y[m, n] = v\n   "
      "s = s * 2\n"
      "  } else {\n   s = q + v\n  }\n  z[m, n] = v + q + s\n }\n}\nschedule k for sm_80, sm_90a, gfx942 { m 64  n 64  "
      "warps 2x2 }",
      "has mma.sync\nhas st.global", "has v_mfma\nhas store" },
};

static void structure(void **state)
{
    (void)state;
    all_emit(structures, sizeof structures / sizeof structures[0]);
}

// ---- matrix products ---------------------------------------------------------------------------------------------

static const struct emitted products[] = {
    { "a ring of asynchronous copies, or of registers",
      "kernel k(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) require K % 8 == 0, K <= 4096 {\n parallel m in "
      "tile(M), n in tile(N) {\n"
      "  var s: f32[m, n] = 0\n  for j in tile(K) {\n   s += dot(x[m, j], w[n, j])\n  }\n  y[m, n] = s\n }\n}\n"
      "schedule k for sm_80, sm_90a { m 64  n 64  j 64  stages 4  warps 2x2 }\n"
      "schedule k for gfx942 { m 64  n 64  j 64  stages 1  warps 2x2  mma mfma_32x32x8_bf16 }",
      // 4 + 4 copies of 16 bytes a thread and trip, in the fill and in the loop; 2 x 4 instructions a k step, 4 steps
      "16 cp.async.cg\n2 cp.async.commit_group\n1 cp.async.wait_group 2\n1 cp.async.wait_group 0\n2 bar.sync\n16 "
      "ldmatrix.sync\n32 mma.sync\n"
      "has cp.async.cg\nhas cp.async.commit_group\nhas cp.async.wait_group 2\nhas bar.sync\nhas cp.async.cg\nhas "
      "cp.async.commit_group\n"
      "has ldmatrix.sync\nhas mma.sync\nhas cp.async.wait_group 0\nhas bar.sync\nhas st.global\nnot .local",
      "8 v_mfma_f32_32x32x8_bf16\nany load_dwordx4\nany ds_write_b128\nany s_barrier\nhas ds_read_b128\nhas "
      "v_mfma\nnot scratch_" },
    { "gate and up read the same rows once",
      "kernel k(x: bf16[M, K], w: bf16[N, K], v: bf16[N, K], y: out f32[M, N]) require K % 8 == 0 {\n parallel m in "
      "tile(M), n in tile(N) {\n"
      "  var s, t: f32[m, n] = 0\n  for j in tile(K) {\n   let a = x[m, j]\n   s += dot(a, w[n, j])\n   t += dot(a, "
      "v[n, j])\n  }\n"
      "  y[m, n] = s * t\n }\n}\nschedule k for sm_80, sm_90a { m 64  n 64  j 64  stages 3  warps 2x2 }",
      "24 ldmatrix.sync\n64 mma.sync", NULL },
    { "computed operands go through shared memory",
      "kernel k(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) require K % 8 == 0, K <= 64 {\n parallel m in tile(M), "
      "n in tile(N) {\n"
      "  let k = range(K)\n  y[m, n] = dot(bf16(x[m, k] * 0.5), w[n, k])\n }\n}\nschedule k for sm_80, sm_90a { m 32  "
      "n 32  warps 1 }",
      "has mul.rn.f32\nhas cvt.rn.bf16\nhas st.shared\nhas bar.sync\nhas ldmatrix.sync\nhas mma.sync",
      "has ds_write\nhas s_barrier\nhas v_mfma" },
    { "f16",
      "kernel k(x: f16[M, K], w: f16[N, K], y: out f16[M, N]) require K % 8 == 0, N % 8 == 0 {\n parallel m in "
      "tile(M), n in tile(N) {\n"
      "  var s: f32[m, n] = 0\n  for j in tile(K) {\n   s += dot(x[m, j], w[n, j])\n  }\n  y[m, n] = s\n }\n}",
      "has mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\nhas cvt.rn.f16x2.f32", "has v_mfma_f32_\nhas _f16" },
    { "rows of odd length: no asynchronous copies of two bytes",
      "kernel k(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) {\n parallel m in tile(M), n in tile(N) {\n"
      "  var s: f32[m, n] = 0\n  for j in tile(K) {\n   s += dot(x[m, j], w[n, j])\n  }\n  y[m, n] = s\n }\n}\n"
      "schedule k for sm_80, sm_90a { m 16  n 16  j 16  stages 2  warps 1 }",
      "not cp.async.cg\nnot cp.async.ca\nhas ld.global.nc.b16\nhas st.shared.b16\nhas bar.sync\nhas ldmatrix", NULL },
};

static void matrices(void **state)
{
    (void)state;
    all_emit(products, sizeof products / sizeof products[0]);
}

// ---- what no pattern of instructions shows -----------------------------------------------------------------------

// Every call of inline assembly is convergent: LLVM must not duplicate a barrier, nor move one into a branch.
static void convergent(void **state)
{
    size_t n, calls = 0;
    (void)state;
    struct moec_result *r = compile(products[0].source, "sm_80", MOEC_LLVM);
    assert_int_equal(moec_status(r), MOEC_OK);
    const char *ir = moec_code(r, &n);
    for (const char *p = ir; (p = strstr(p, " asm sideeffect ")); p++, calls++) {
        const char *end = strchr(p, '\n'), *group = p;
        char def[32];
        for (const char *q = p; q < end; q++)
            group = q[0] == '#' && isdigit((unsigned char)q[1]) ? q : group;
        assert_true(group > p);
        snprintf(def, sizeof def, "\nattributes #%d = {", atoi(group + 1));
        const char *attributes = strstr(ir, def);
        assert_non_null(attributes);
        const char *word = strstr(attributes + 1, "convergent"), *close = strchr(attributes + 1, '\n');
        assert_true(word && word < close);
    }
    assert_true(calls > 50);
    moec_free(r);
}

// A loop may carry thousands of values (here 1024): slow, but a program like any other.
static void many_values(void **state)
{
    static const char src[] =
        "kernel k(x: f32[N], t: i32, y: out f32[N]) {\n parallel n in tile(N) {\n  var s, u: f32[n] = 0\n"
        "  for i in each(t) {\n   s += u\n   u += s\n  }\n  y[n] = s\n }\n}\n"
        "schedule k for sm_80 { n 4096  warps 1 }";
    static const char wide[] =
        "kernel k(x: f32[N], t: i32, y: out f32[N]) {\n"
        " parallel n in tile(N) {\n  var a, b, c, d, e, f, g, h: f32[n] = 0\n  for i in each(t) {\n"
        "   a += 1\n   b += a\n   c += b\n   d += c\n   e += d\n   f += e\n   g += f\n   h += g\n  }\n"
        "  y[n] = h\n }\n}\nschedule k for sm_80 { n 4096  warps 1 }";
    const char *const both[] = { src, wide };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct moec_result *r = compile(both[i], "sm_80", MOEC_MLIR);
        if (moec_status(r) != MOEC_OK)
            fail_msg("%s", first_error(r));
        moec_free(r);
    }
}

// Layouts written by hand: what does not fit is refused at its line, never emitted as something else.
#define HEAD "kernel k(x: bf16[M, 64], w: bf16[N, 64], y: out f32[M, N]) @warps(1, 4) @stages(1) "
#define COPY "layout cp { m: l3 l4 w0 w1; k: r0 r1 r2 l0 l1 l2; n: l3 l4 w0 w1 r0; }\n"
#define BODY(off) \
    "parallel m in tile(M) @tile(16), n in tile(N) @tile(32) {\nlet k = range(64) @tile(64) @exact\n" \
    "shared a: bf16[1][16, 64] @swizzle(3) @offset(0)\nshared b: bf16[1][32, 64] @swizzle(3) @offset(" off ")\n" \
    "copy(a[0], x[m, k]) @dist(cp)\ncopy(b[0], w[n, k]) @dist(cp)\ncommit()\nwait(0)\nbarrier()\n" \
    "let v: f32[m, n] = mma(0.0, a[0], b[0])\ny[m, n] = v\n}\n}\n"
static const struct {
    const char *source, *error; // NULL: none
} by_hand[] = {
    { HEAD
      "@mma(m16n8k16_bf16) @shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 w0; }\n" COPY BODY("2048"),
      NULL },
    { HEAD
      "@mma(m16n8k16_bf16) @shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 w0 w1; }\n" COPY BODY("2048"),
      "needs axis 'n' in layout 'main' as { r0 l0 l1 }, then registers up to 16" },
    { HEAD
      "@mma(m16n8k16_bf16) @shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: l0 l1 r0 r1 w0; }\n" COPY BODY("2048"),
      "needs axis 'n' in layout 'main'" },
    { HEAD
      "@mma(m16n8k16_f16) @shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 w0; }\n" COPY BODY("2048"),
      "element type" },
    { HEAD "@shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 w0; }\n" COPY BODY("2048"),
      "needs a matrix instruction" },
    { HEAD
      "@mma(m16n8k16_bf16) @shared(16384) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 w0; }\n" COPY BODY("2056"),
      "multiple of 16 bytes" },
    { "kernel k(x: f32[M, N], y: out f32[M, N]) @warps(1, 1) {\nlayout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 r2; }\n"
      "layout other { m: l0 l1 l2 l3; n: r0 l4 r1 r2 r3; }\nparallel m in tile(M) @tile(16), n in tile(N) @tile(32) {\n"
      "let a: f32[m, n] = x[m, n]\nlet b: f32[m, n] = x[m, n] @dist(other)\nlet c: f32[m, n] = a + b\ny[m, n] = "
      "c\n}\n}\n",
      "axis 'm' of a value in layout 'other' is used where layout 'main' has it elsewhere" },
    { "kernel k(x: f32[M, 64], y: out f32[M]) @warps(1, 2) {\nlayout main { m: r0; n: l0 l1 l2 l3 l4 w0; }\n"
      "parallel m in tile(M) @tile(2) {\nlet n = range(64) @tile(64) @exact\nlet a: f32[m, n] = x[m, n]\nlet s: f32[m] "
      "= reduce_sum(a, n)\n"
      "y[m] = s\n}\n}\n",
      "axis 'n' is spread over warps: 'reduce_sum' needs 512 bytes" },
    { "kernel k(s: inout i32[1], y: out i32[N]) @warps(1, 2) {\nlayout main { n: l0 l1 l2 l3 l4 w0; }\nparallel n in "
      "tile(N) @tile(64) {\n"
      "let o: i32 = atomic_add(s[0], 1)\nlet v: i32[n] = n + o\ny[n] = v\n}\n}\n",
      "needed in several warps" },
    { "kernel k(s: inout i32[1], y: out i32[N]) @warps(1, 2) @shared(256) @scratch(0) {\nlayout main { n: l0 l1 l2 l3 "
      "l4 w0; }\n"
      "parallel n in tile(N) @tile(64) {\nlet o: i32 = atomic_add(s[0], 1)\nlet v: i32[n] = n + o\ny[n] = v\n}\n}\n",
      NULL },
};

static void layouts_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof by_hand / sizeof by_hand[0]; i++) {
        struct moec_result *r = compile(by_hand[i].source, "sm_80", MOEC_PTX);
        if (!by_hand[i].error != (moec_status(r) == MOEC_OK) ||
            (by_hand[i].error && !strstr(first_error(r), by_hand[i].error)))
            fail_msg("layout %d: %s", (int)i, first_error(r));
        assert_false(by_hand[i].error && moec_diagnostic(r, 1)); // one complaint
        moec_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),          cmocka_unit_test(arithmetic), cmocka_unit_test(structure),
        cmocka_unit_test(matrices),        cmocka_unit_test(convergent), cmocka_unit_test(many_values),
        cmocka_unit_test(layouts_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
