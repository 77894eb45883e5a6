// The checker and the printer of the tile IR: every kernel prints as DSL that reads back as the same kernel, wrong
// programs give the right error at the right place, and the questions of ir.h have the right answers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "read_file.h"

#include "../compiler/ir.h"
#include "../targets/target.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mma test_mmas[] = {
    { .name = "m16n8k16_bf16", .m = 16, .n = 8, .k = 16, .in = EL_BF16, .acc = EL_F32 },
    { .name = "m16n8k16_f16", .m = 16, .n = 8, .k = 16, .in = EL_F16, .acc = EL_F32 }
};
static const struct arch test_arch = { .name = "test", .lanes = 32, .mmas = test_mmas, .nmmas = 2 };

struct run {
    struct ctx c;
    struct module *m;
};

static struct run run_check(const char *src, const struct binding *bind, int nbind)
{
    struct run r = { 0 };
    int n;
    r.c.arena = arena_new(NULL, NULL);
    r.c.file = "t.dsl";
    r.c.src = src;
    r.c.src_len = strlen(src);
    r.c.diag_tail = &r.c.diags;
    r.c.arch = &test_arch;
    r.c.bind = bind;
    r.c.nbind = nbind;
    jmp_buf jmp;
    r.c.jmp = &jmp;
    if (setjmp(jmp))
        return r;
    struct token *t = lex(&r.c, &n);
    struct node *f = parse(&r.c, t, n);
    if (!r.c.errors)
        r.m = check(&r.c, f);
    return r;
}

static void show(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    for (const struct diag *d = r->c.diags; d; d = d->next)
        diag_format(&r->c, d, &t);
    if (t.n)
        print_message("%s", t.s);
}

static char *print_all(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    text_put(&t, "", 0);
    for (const struct kernel *k = r->m->kernels; k; k = k->next)
        print_dsl(&t, raise_kernel(&r->c, k));
    return strdup(t.s ? t.s : "");
}

// Prints, reads back, prints: the two texts must be equal. Returns the text.
static char *fixed_point(const char *what, const char *src, const struct binding *bind, int nbind)
{
    struct run a = run_check(src, bind, nbind);
    if (!a.m) {
        print_message("%s:\n%s\n", what, src);
        show(&a);
        fail_msg("%s: errors in the source", what);
    }
    char *one = print_all(&a);
    struct run b = run_check(one, NULL, 0);
    if (!b.m) {
        print_message("%s, printed:\n%s\n", what, one);
        show(&b);
        fail_msg("%s: what was printed has errors", what);
    }
    char *two = print_all(&b);
    if (strcmp(one, two))
        print_message("%s, once:\n%s\ntwice:\n%s\n", what, one, two);
    assert_string_equal(one, two);
    free(two);
    arena_free(a.c.arena);
    arena_free(b.c.arena);
    return one;
}

static void prints_as(const char *src, const char *want)
{
    char *got = fixed_point("kernel", src, NULL, 0);
    if (!strstr(got, want))
        print_message("%s\nexpected in it: %s\n", got, want);
    assert_non_null(strstr(got, want));
    free(got);
}

static void test_kernel_files(void **state)
{
    static const char *const patterns[] = { "kernels/*.dsl", "kernels/examples/*.dsl" };
    int seen = 0;
    (void)state;
    for (size_t p = 0; p < COUNTOF(patterns); p++) {
        glob_t g;
        if (glob(patterns[p], 0, NULL, &g))
            continue;
        for (size_t i = 0; i < g.gl_pathc; i++, seen++) {
            char *src = read_file(g.gl_pathv[i]);
            free(fixed_point(g.gl_pathv[i], src, NULL, 0));
            free(src);
        }
        globfree(&g);
    }
    assert_true(seen >= 1);
}

static void test_bound(void **state)
{
    static const struct binding bind[] = {
        { "H", 4096, NULL }, { "I", 14336, NULL }, { "act", 0, "f16" }, { "E", 8, NULL }
    };
    (void)state;
    char *src = read_file("kernels/moe.dsl"), *out = fixed_point("bound moe.dsl", src, bind, 4);
    assert_non_null(strstr(out, "@bind(H, 4096)"));
    assert_non_null(strstr(out, "x: f16[T, H]"));
    assert_non_null(strstr(out, "in tile(4096)"));
    free(src);
    free(out);
}

static const char ring[] =
    "kernel gate_up(x: bf16[T, H], w: bf16[E, I, H], row_token: i32[R], tiles: tile_map[N], h: out bf16[R, I]) "
    "require H % 8 == 0 @variant(r128) @warps(2, 4) @stages(4) @mma(m16n8k16_bf16) @group(8) @shared(131072) "
    "@scratch(0) {\n"
    "  layout main { rows: l2 l3 l4 r0 r1 r2 w0; cols: r0 l0 l1 r1 r2 w1 w2; }\n"
    "  layout copy0 { rows: l3 l4 w0 w1 w2 r0 r1; k1: r0 r1 r2 l0 l1 l2; cols: l3 l4 w0 w1 w2 r0 r1 }\n"
    "  parallel (e, rows) in tiles @tile(128), cols in tile(I) @tile(128) @exact {\n"
    "    let t: i32[rows] = row_token[rows] @dist(copy0)\n"
    "    shared a0: bf16[4][128, 64] @swizzle(3) @offset(0)\n"
    "    shared b0: bf16[4][128, 64] @swizzle(3) @offset(65536)\n"
    "    var g: f32[rows, cols] = 0.0\n"
    "    let n = (H - 0 + 63) / 64\n"
    "    let k1 = range(0, 64) @tile(64) @exact\n"
    "    for p in each(0, 3) {\n"
    "      let o = p * 64\n"
    "      copy(a0[p], x[t, o + k1]) @dist(copy0)\n"
    "      copy(b0[p], w[e, cols, o + k1]) @dist(copy0)\n"
    "      commit()\n"
    "    }\n"
    "    for i in each(0, n) {\n"
    "      wait(2)\n"
    "      barrier()\n"
    "      let s = i & 3\n"
    "      let s3 = (i + 3) & 3\n"
    "      copy(a0[s3], x[t, (i + 3) * 64 + k1]) @dist(copy0)\n"
    "      commit()\n"
    "      at k2 = tile(H), i * 64 @tile(64) {\n"
    "        let v: f32[rows, cols] = g\n"
    "        g = mma(v, a0[s], b0[s])\n"
    "      }\n"
    "    }\n"
    "    wait(0)\n"
    "    barrier()\n"
    "    let m: f32[rows, cols] = mma(0.0, a0[0], b0[0])\n"
    "    let v: bf16[rows, cols] = bf16(g + m)\n"
    "    put(a0[1], select(rows < 5, v, bf16(1.0)))\n"
    "    h[rows, cols] = v\n"
    "  }\n"
    "}\n";

static void test_layout_stage(void **state)
{
    (void)state;
    char *out = fixed_point("ring", ring, NULL, 0);
    assert_non_null(strstr(out, "copy(a0[p], x[t, v"));
    assert_non_null(strstr(out, "@dist(copy0)"));
    free(out);
    // A ring through registers: a variable and its values in a distribution of their own.
    free(fixed_point("registers",
                     "kernel k(x: f16[T, H], y: out f16[T, H]) @warps(4, 1) @stages(2) @shared(1024) {\n"
                     "  layout main { t: l0 l1 l2 l3; c: l4 w0 w1 r0 }\n"
                     "  layout copy { t: w0 w1 l3 l4; c: r0 l0 l1 l2; }\n"
                     "  parallel t in tile(T) @tile(16) {\n"
                     "    shared s: f16[2][16, 16] @swizzle(1)\n"
                     "    at c = tile(H), 0 @tile(16) {\n"
                     "      let first = x[t, c] @dist(copy)\n"
                     "      var ahead: f16[t, c] = first @dist(copy)\n"
                     "      put(s[0], ahead) @dist(copy)\n"
                     "      let next = x[t, c] @dist(copy)\n"
                     "      ahead = next\n"
                     "      y[t, c] = ahead @dist(copy)\n"
                     "    }\n"
                     "  }\n"
                     "}\n",
                     NULL, 0));
}

static void test_printing(void **state)
{
    (void)state;
    // Literals adapt; names are made unique; constants keep their exact value.
    prints_as("kernel k(x: f32[T], y: out f32[T]) { parallel t in tile(T) { y[t] = x[t] * 2 } }", "* 2.0");
    prints_as("kernel k(x: f32[T], y: out f32[T]) { parallel t in tile(T) { y[t] = x[t] + 1e-20 } }", "1e-20");
    prints_as("kernel k(x: f32[T], y: out f32[T]) { parallel t in tile(T) { y[t] = max(x[t], -inf) } }", "-inf");
    prints_as("kernel k(x: f32[T], y: out f32[T]) { parallel t in tile(T) { y[t] = select(x[t] < 0, nan, x[t]) } }",
              "nan");
    prints_as("kernel k(y: out i32[T]) { parallel t in tile(T) { y[t] = -2147483648 } }", "-2147483648");
    prints_as("kernel k(x: bf16[T], y: out bf16[T]) { parallel t in tile(T) { y[t] = select(t < 3, x[t], 0.1) } }",
              "bf16(0.1)");
    prints_as("kernel k(x: bf16[T], y: out f32[T]) { parallel t in tile(T) { y[t] = x[t] * x[t] } }", "f32(");
    prints_as("kernel k(y: out i32[T]) { parallel t in tile(T) { for s in tile(4) { let a = s + 1 }\n"
              " for s in tile(4) { let a = s + 2 }\n y[t] = 1 } }",
              "let a_1: i32[s_1]");
    prints_as("kernel k(y: inout i32[T]) { parallel t in tile(T) { y[t] += 1\n y[t] -= 2; atomic_add(y[t], 3) } }",
              "atomic_add(y[t], 3)");
    prints_as("kernel k(y: inout i32[T], z: out i32[T]) { parallel t in tile(T) { z[t] = atomic_add(y[t], 3) + 1 } }",
              "i32[t] = atomic_add(y[t], 3)");
    prints_as("kernel k(y: out i32[T]) { parallel t in tile(T) { var g: i32[t] = 0\n g += t; g *= 2; let h = g\n"
              " if T == 3 { y[t] = ~h } else if T == 4 { y[t] = 5 } else { y[t] = i32(!(h == 2)) } } }",
              "let h: i32[t] = g");
    prints_as("kernel k(a: bf16[M, K], b: bf16[N, K], y: out f32[M, N]) { parallel m in tile(M), n in tile(N) {\n"
              " var g: f32[m, n] = 0\n for k in tile(K) { g += dot(b[n, k], a[m, k]) }\n y[m, n] = g } }",
              "dot(");
    prints_as("kernel k(p: f32, n: i32, y: out f32[T, 4]) require T % 4 == 0, T <= 64 {\n"
              " let last = n * 2 - 1\n"
              " parallel c in each(1, min(n, last)), t in tile(T) { let j = range(4); let e = range(9)\n"
              " let i = topk(f32(e + t), j, e)\n y[t, j] = p + f32(c + i) + take(f32(e), i, e) } }",
              "each(1, ");
}

// ---- errors -------------------------------------------------------------------------------------------------

struct wrong {
    const char *src;
    int line, col;
    const char *text; // part of the first error
    int count;        // of errors; 0: any
};

#define K(body) \
    "kernel k(x: f32[T, 4], q: bf16[T], n: i32, y: out f32[T, 4], z: inout i32[T])\n{ parallel t in tile(T) {\n" body \
    "\n} }"
static const struct wrong wrongs[] = {
    { K("y[t, 0] = rowz"), 3, 11, "unknown name 'rowz'", 1 },
    { K("let rows = 1.5\ny[t, 0] = row + row"), 4, 11, "did you mean 'rows'?", 1 },
    { K("y[t, 0] = x[t]"), 3, 11, "'x' has 2 dimensions, found 1 index", 1 },
    { K("x[t, 0] = 1"), 3, 1, "'x' is an input", 1 },
    { K("y[t, 0] = y[t, 1]"), 3, 11, "'y' is an output", 1 },
    { K("y[t, 0] += 1"), 3, 1, "declare it 'inout'", 1 },
    { K("y[t, 0] = n"), 3, 11, "write f32(...)", 1 },
    { K("y[t, 0] = x[t, 0] + n"), 3, 0, "do not mix: f32[t] and i32", 1 },
    { K("z[t] = (t < 3) + 1"), 3, 0, "write i32(...)", 1 },
    { K("z[t] = 1.5"), 3, 8, "found a floating-point number", 1 },
    { K("z[t] = 3000000000"), 3, 8, "does not fit i32", 1 },
    { K("for k in tile(4) { let a = k }\nz[t] = k"), 4, 8, "axis 'k' is used outside its loop", 1 },
    { K("let a = 1\nlet a = 2"), 4, 0, "already declared", 1 },
    { K("let a = t + 1\na = 2"), 4, 1, "declare it with 'var'", 1 },
    { K("if t < 3 { }"), 3, 0, "must be a scalar", 1 },
    { K("for k in tile(t) { }"), 3, 0, "must be a scalar i32", 1 },
    { K("let e = range(T)\nlet f = e + 1"), 3, 0, "no known upper bound", 1 },
    { K("var g: f32[t] = 0\nfor k in tile(4) { g = f32(k) }"), 4, 0, "but 'g' is f32[t]", 1 },
    { K("let s = reduce_sum(x[t, 0], n)"), 3, 0, "not an axis", 1 },
    { K("let e = range(4)\nlet s = reduce_sum(x[t, 0], e)"), 4, 0, "without axis 'e'", 1 },
    { K("let a = dot(x[t, 0], x[t, 1])"), 3, 0, "must be bf16 or f16", 2 },
    { K("let k = range(4)\nlet a = dot(q[t], q[k])"), 4, 0, "share exactly one axis, not 0", 1 },
    { K("parallel u in tile(T) { }"), 3, 0, "one 'parallel'", 0 },
    { K("let j = range(4)\nlet i = topk(x[t, j], j, j)"), 4, 23, "does not have", 1 },
    { K("atomic_add(x[t, 0], 1.0)"), 3, 0, "declare it 'inout'", 1 },
    { K("atomic_add(z[t], 1.0)"), 3, 0, "i32", 1 },
    { K("let a = slu(x[t, 0])"), 3, 9, "did you mean 'silu'?", 1 },
    { K("let a = silu(n)"), 3, 0, "write f32(...)", 1 },
    { K("let a = max(1)"), 3, 0, "takes 2 arguments", 1 },
    { K("let a = select(n, 1, 2)"), 3, 0, "condition must be bool", 1 },
    { K("let a: f32[t] = t"), 3, 0, "the value is i32[t]", 1 },
    { K("let a: flot[t] = t"), 3, 0, "unknown type 'flot'", 1 },
    { K("let a = x"), 3, 0, "is a buffer", 1 },
    { K("let a = n[3]"), 3, 0, "not a buffer", 1 },
    { K("z[t] = 1 @foo(3)"), 3, 0, "'@foo'", 1 },
    { K("z[t] = 1 @dist(a)"), 3, 0, "unknown layout 'a'", 1 },
    { K("z[t] = q[t]"), 3, 0, "write i32(...)", 1 },
    { K("z[x[t, 0]] = 1"), 3, 0, "index must be i32", 1 },
    { K("let a = ~(t < 1)"), 3, 0, "must be i32", 1 },
    { K("let a = !t"), 3, 0, "must be bool", 1 },
    { K("let a = x[t, 0] % 2"), 3, 0, "must be i32", 1 },
    { K("silu(x[t, 0])"), 3, 0, "is not used", 1 },
    { K("let a = copy(3)"), 3, 0, "is a statement", 1 },
    { K("copy(x[0], x[t, 0])"), 3, 0, "slot of a shared buffer", 1 },
    // no cascade after an unknown name, several errors a run
    { K("let a = bad1 + 1\nlet b = a * 2\ny[t, 0] = b\nlet c = bad2"), 3, 9, "bad1", 2 },
    { "kernel k(y: out i32[T]) { for t in tile(T) { y[t] = 1 }\n parallel u in tile(T) { } }", 1, 0, "outermost", 1 },
    { "kernel k(n: i32[T], y: out i32[T]) {\n parallel t in each(n[0]) { y[t] = 1 } }", 2, 0, "before the launch", 1 },
    { "kernel k(y: out i32[A, B, C, D, E]) { }", 1, 0, "at most 4", 1 },
    { "kernel k(y: bool[T]) { }", 1, 0, "no buffers of bool", 1 },
    { "kernel k(y: bf16) { }", 1, 0, "scalar parameter is i32 or f32", 1 },
    { "kernel k(y: i32[n], n: i32) { }", 1, 0, "already", 1 },
    { "kernel k(y: i32[T]) require S % 8 == 0 { }", 1, 0, "unknown dimension 'S'", 1 },
    { "kernel k(y: i32[T]) require T < 8 { }", 1, 0, "expected 'NAME % number == 0'", 1 },
    { "kernel k(y: i32[T]) { }\nkernel k(y: i32[T]) { }", 2, 0, "already defined", 1 },
    { "kernel k(m: tile_map[N]) { for (e, r) in m { } }", 1, 0, "only be spread over the grid", 1 },
    { "kernel k(m: tile_map[N]) { parallel (e, r) in k { } }", 1, 0, "unknown name 'k'", 1 },
    { "kernel k(y: i32[T]) { }\nschedule kk for sm_90a { }", 2, 0, "did you mean 'k'?", 1 },
    { "kernel k(y: i32[T]) { }\nschedule k for sm_90 { }", 2, 0, "unknown target", 1 },
    { "kernel k(y: i32[T]) { }\nschedule k for sm_90a { stags 3 }", 2, 0, "did you mean 'stages'?", 1 },
    { "kernel k(y: i32[T]) { }\nschedule k for sm_90a { warps 3 }", 2, 0, "power of two", 1 },
    { "kernel k(y: i32[T]) { parallel t in tile(T) { } }\nschedule k for sm_90a { t 100 }", 2, 0, "power of two", 1 },
    { "type a = i99\n", 1, 0, "unknown type 'i99'", 1 },
};

static int count_errors(const struct run *r)
{
    int n = 0;
    for (const struct diag *d = r->c.diags; d; d = d->next)
        n += d->sev == SEV_ERROR;
    return n;
}

static void test_errors(void **state)
{
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < COUNTOF(wrongs); i++) {
        const struct wrong *w = &wrongs[i];
        struct run r = run_check(w->src, NULL, 0);
        const struct diag *d = r.c.diags;
        bool ok = d && strstr(d->text, w->text) && d->loc.line == w->line && (!w->col || d->loc.col == w->col) &&
                  (!w->count || count_errors(&r) == w->count) && !r.m;
        if (!ok) {
            print_message("%s\nexpected %d:%d: %s (%d errors); found:\n", w->src, w->line, w->col, w->text, w->count);
            show(&r);
            failed++;
        }
        arena_free(r.c.arena);
    }
    assert_int_equal(failed, 0);
}

static void test_bind_errors(void **state)
{
    static const char src[] =
        "type act = bf16\nkernel k(x: act[T, H], y: out act[T, H]) require H % 8 == 0, H <= 64 { }";
    static const struct {
        struct binding b;
        const char *text;
    } rows[] = { { { "H", 12, NULL }, "H = 12 is not a multiple of 8" },
                 { { "H", 128, NULL }, "H = 128 is more than 64" },
                 { { "Q", 1, NULL }, "no dimension or type named 'Q'" },
                 { { "act", 5, NULL }, "is a type" },
                 { { "act", 0, "f99" }, "unknown type 'f99'" },
                 { { "H", -1, NULL }, "must be 0 to" },
                 { { "H", 0, "f16" }, "gives it a type" } };
    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        struct run r = run_check(src, &rows[i].b, 1);
        assert_non_null(r.c.diags);
        if (!strstr(r.c.diags->text, rows[i].text))
            fail_msg("expected %s, found %s", rows[i].text, r.c.diags->text);
        assert_int_equal(count_errors(&r), 1);
        arena_free(r.c.arena);
    }
}

// ---- questions ----------------------------------------------------------------------------------------------

static const struct op *value_named(const struct block *b, const char *name)
{
    for (int i = 0; b && i < b->ops.n; i++) {
        const struct op *op = b->ops.v[i], *in;
        if (op->name && !strcmp(op->name, name))
            return op;
        if ((in = value_named(op->body, name)) || (in = value_named(op->other, name)))
            return in;
    }
    return NULL;
}

static void test_questions(void **state)
{
    static const char src[] =
        "kernel k(n: i32, y: out i32[T, H]) require H % 24 == 0, H <= 4096, T <= 100 {\n"
        "  parallel t in tile(T) @tile(32), c in tile(64, H) @tile(16) {\n"
        "    let a = H * 2\n let b = n * 64\n let d = origin(t) + 64\n let e = origin(c) + 0\n let f = (n << 5) - 16\n"
        "    let g = select(n < 3, H, 4) + 0\n let h = b / 16\n let i = c + 128\n let j = min(n, 7) + 0\n"
        "    let r = range(n, n + 48)\n let s = range(min(T, 50))\n"
        "    for q in tile(n * 4, min(n * 4 + 40, T)) { }\n"
        "    for w in each(3, 9) { let l = w * 2\n } } }";
    static const struct {
        const char *name;
        int64_t multiple, lo, hi;
    } rows[] = { { "a", 16, 0, 8192 },
                 { "b", 64, INT32_MIN, INT32_MAX },
                 { "d", 32, 64, 163 },
                 { "e", 16, 64, 4095 },
                 { "f", 16, INT32_MIN, INT32_MAX },
                 { "g", 4, 0, 4096 },
                 { "h", 4, INT32_MIN, INT32_MAX },
                 { "i", 16, 192, 4095 + 15 + 128 },
                 { "j", 1, INT32_MIN, 7 },
                 { "l", 2, 6, 16 } };
    static const struct {
        const char *axis;
        int64_t extent;
    } axes[] = { { "t", 100 }, { "c", 4032 }, { "r", 48 }, { "s", 50 }, { "q", 40 } };
    (void)state;
    struct run r = run_check(src, NULL, 0);
    show(&r);
    assert_non_null(r.m);
    const struct kernel *k = r.m->kernels;
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        const struct op *op = value_named(k->body, rows[i].name);
        int64_t lo, hi;
        if (!op)
            fail_msg("no value %s", rows[i].name);
        op_bounds(op, &lo, &hi);
        if (multiple_of(k, op) != rows[i].multiple || lo != rows[i].lo || hi != rows[i].hi)
            fail_msg("%s: multiple %d, %d..%d", rows[i].name, (int)multiple_of(k, op), (int)lo, (int)hi);
    }
    for (size_t i = 0; i < COUNTOF(axes); i++)
        for (int j = 0; j < k->axes.n; j++)
            if (!strcmp(k->axes.v[j]->name, axes[i].axis) && k->axes.v[j]->max_extent != axes[i].extent)
                fail_msg("axis %s: extent %d", axes[i].axis, (int)k->axes.v[j]->max_extent);
    arena_free(r.c.arena);
}

static void test_round(void **state)
{
    (void)state;
    assert_true(elem_round(EL_BF16, 1.00390625) == 1.0);      // a tie goes to even
    assert_true(elem_round(EL_BF16, 1.01171875) == 1.015625); // as does this one
    assert_true(elem_round(EL_F16, 65519) == 65504 && isinf(elem_round(EL_F16, 65520)));
    assert_true(elem_round(EL_F16, 0x1p-25) == 0 && elem_round(EL_F16, 0x1.8p-25) == 0x1p-24);
    assert_true(isinf(elem_round(EL_BF16, 0x1.ffp127)) && elem_round(EL_BF16, 0x1p-133) == 0x1p-133);
    assert_true(elem_round(EL_I32, -1.9) == -1 && elem_round(EL_I32, 1e10) == INT32_MAX &&
                elem_round(EL_I32, NAN) == 0);
}

// A clone prints the same and shares nothing that a pass may change.
static void test_clone(void **state)
{
    (void)state;
    struct run r = run_check(ring, NULL, 0);
    assert_non_null(r.m);
    struct kernel *k = r.m->kernels, *n = kernel_clone(&r.c, k);
    struct text a = { .arena = r.c.arena }, b = a, d = a;
    print_dsl(&a, raise_kernel(&r.c, k));
    n->axes.v[0]->size = 256;
    n->body->ops.n = 0;
    n->bufs.v[0]->name = "other";
    print_dsl(&b, raise_kernel(&r.c, k));
    assert_string_equal(a.s, b.s);
    print_dsl(&d, raise_kernel(&r.c, kernel_clone(&r.c, k)));
    assert_string_equal(a.s, d.s);
    arena_free(r.c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_files), cmocka_unit_test(test_bound),  cmocka_unit_test(test_layout_stage),
        cmocka_unit_test(test_printing),     cmocka_unit_test(test_errors), cmocka_unit_test(test_bind_errors),
        cmocka_unit_test(test_questions),    cmocka_unit_test(test_round),  cmocka_unit_test(test_clone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
