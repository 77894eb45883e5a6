// The meaning of every operation, a row each: an expression over small inputs and what it must give, before and after
// expand and fold. n runs over 5 positions in tiles of 16, so every tile has masked positions.
#include "dsl.h"

#include <math.h>

enum { N = 5 };
static const float A[N] = { 1.5f, -2, 0, 3, -0.25f }, B[N] = { 2, 0.5f, -1, 3, -0.25f };
static const int32_t P[N] = { 7, -3, 0, 5, 2 }, Q[N] = { 2, 0, -4, 5, -2147483647 - 1 };

// clang-format off
// Result per position of n; scalar results stand in all positions.
#define SAME(x) { x, x, x, x, x }
static const struct row {
    const char *expr; // of a, b: f32[n]; p, q: i32[n]; n: the axis
    bool real;        // the result is f32
    double want[N];
    double within; // relative
} rows[] = {
    { "a + b", true, { 3.5, -1.5, -1, 6, -0.5 }, 0 },
    { "a - b", true, { -0.5, -2.5, 1, 0, 0 }, 0 },
    { "a * b", true, { 3, -1, -0.0, 9, 0.0625 }, 0 },
    { "a / b", true, { 0.75, -4, -0.0, 1, 1 }, 1e-7 },
    { "-a", true, { -1.5, 2, -0.0, -3, 0.25 }, 0 },
    { "abs(a)", true, { 1.5, 2, 0, 3, 0.25 }, 0 },
    { "min(a, b)", true, { 1.5, -2, -1, 3, -0.25 }, 0 },
    { "max(a, b)", true, { 2, 0.5, 0, 3, -0.25 }, 0 },
    { "min(a, nan)", true, { 1.5, -2, 0, 3, -0.25 }, 0 },
    { "floor(a)", true, { 1, -2, 0, 3, -1 }, 0 },
    { "exp2(a)", true, { 2.8284271247461903, 0.25, 1, 8, 0.8408964152537145 }, 1e-6 },
    { "log2(abs(b))", true, { 1, -1, 0, 1.584962500721156, -2 }, 1e-6 },
    { "sqrt(abs(a))", true, { 1.224744871391589, 1.4142135623730951, 0, 1.7320508075688772, 0.5 }, 1e-6 },
    { "rsqrt(abs(b))", true, { 0.7071067811865476, 1.4142135623730951, 1, 0.5773502691896258, 2 }, 1e-6 },
    { "rcp(b)", true, { 0.5, 2, -1, 0.3333333333333333, -4 }, 1e-6 },
    { "exp(a)", true, { 4.4816890703380645, 0.1353352832366127, 1, 20.085536923187668, 0.7788007830714049 }, 1e-6 },
    { "log(abs(b))", true, { 0.6931471805599453, -0.6931471805599453, 0, 1.0986122886681098, -1.3862943611198906 }, 1e-6 },
    { "sigmoid(a)", true, { 0.8175744761936437, 0.11920292202211755, 0.5, 0.9525741268224334, 0.43782349911420193 }, 1e-6 },
    { "sigmoid(a * 1e30)", true, { 1, 0, 0.5, 1, 0 }, 0 },
    { "silu(a)", true, { 1.2263617142904657, -0.2384058440442351, 0, 2.8577223804673, -0.10945587477855048 }, 1e-6 },
    { "silu(a * 1e30)", true, { 1.5e30, -0.0, 0, 3e30, -0.0 }, 1e-6 },
    { "tanh(a)", true, { 0.9051482536448664, -0.9640275800758169, 0, 0.9950547536867305, -0.24491866240370913 }, 1e-6 },
    { "gelu(a)", true, { 1.3995715769802328, -0.04540230591222494, 0, 2.996362607918227, -0.100324649298315 }, 1e-6 },
    { "select(a > b, a, b)", true, { 2, 0.5, 0, 3, -0.25 }, 0 },
    { "f32(a < b)", true, { 1, 1, 0, 0, 0 }, 0 },
    { "f32(a <= b)", true, { 1, 1, 0, 1, 1 }, 0 },
    { "f32(a == b)", true, { 0, 0, 0, 1, 1 }, 0 },
    { "f32(a != nan)", true, SAME(1), 0 },
    { "f32(a == nan)", true, SAME(0), 0 },
    { "f32(bf16(a * 1.00390625))", true, { 1.5078125, -2, 0, 3.015625, -0.25 }, 0 }, // halves go to even
    { "f32(f16(a * 65519))", true, { INFINITY, -INFINITY, 0, INFINITY, -16376 }, 0 },
    { "f32(p)", true, { 7, -3, 0, 5, 2 }, 0 },
    { "i32(a * 1e10)", false, { 2147483647, -2147483648.0, 0, 2147483647, -2147483648.0 }, 0 },
    { "i32(a + nan)", false, SAME(0), 0 },
    { "i32(a)", false, { 1, -2, 0, 3, 0 }, 0 },
    { "p + q", false, { 9, -3, -4, 10, -2147483646 }, 0 },
    { "p - q", false, { 5, -3, 4, 0, -2147483646 }, 0 },
    { "p * q", false, { 14, 0, 0, 25, 0 }, 0 },
    { "p / q", false, { 3, 0, 0, 1, 0 }, 0 },
    { "p % q", false, { 1, 0, 0, 0, 2 }, 0 },
    { "q / p", false, { 0, 0, 0, 1, -1073741824 }, 0 },
    { "-q", false, { -2, 0, 4, -5, -2147483648.0 }, 0 },
    { "p & 6", false, { 6, 4, 0, 4, 2 }, 0 },
    { "p | 8", false, { 15, -3, 8, 13, 10 }, 0 },
    { "p ^ 1", false, { 6, -4, 1, 4, 3 }, 0 },
    { "~p", false, { -8, 2, -1, -6, -3 }, 0 },
    { "p << 33", false, { 14, -6, 0, 10, 4 }, 0 },
    { "p >> 1", false, { 3, -2, 0, 2, 1 }, 0 },
    { "min(p, q)", false, { 2, -3, -4, 5, -2147483648.0 }, 0 },
    { "i32(!(p > q))", false, { 0, 1, 0, 1, 0 }, 0 },
    { "n", false, { 0, 1, 2, 3, 4 }, 0 },
    { "reduce_sum(p, n)", false, SAME(11), 0 },
    { "reduce_max(p, n)", false, SAME(7), 0 },
    { "reduce_min(p, n)", false, SAME(-3), 0 },
    { "reduce_sum(a, n)", true, SAME(2.25), 0 },
    { "reduce_max(a - 10, n)", true, SAME(-7), 0 },
    { "reduce_min(a + 10, n)", true, SAME(8), 0 },
    { "reduce_max(select(n == 1, nan, a), n)", true, SAME(3), 0 },
    { "scan_sum(p, n)", false, { 7, 4, 4, 9, 11 }, 0 },
    { "scan_sum(a, n)", true, { 1.5, -0.5, -0.5, 2.5, 2.25 }, 0 },
    { "argmax(a, n)", false, SAME(3), 0 },
    { "argmax(a * 0, n)", false, SAME(0), 0 },
    { "argmax(select(n < 4, nan, a), n)", false, SAME(4), 0 },
    { "argmax(q, n)", false, SAME(3), 0 },
    { "softmax(a * 0, n)", true, SAME(0.2), 1e-7 },
    { "softmax(a + 1000, n)", true, { 0.1692393714572475, 0.005110586190046689, 0.03776240805667524, 0.75847824133083, 0.029409392965200606 }, 1e-6 },
    { "take(a, 3, n)", true, SAME(3), 0 },
    { "take(a, p0, n)", true, SAME(0), 0 }, // p0 = 7: outside
    { "take(select(n == 2, nan, a), 2, n)", true, SAME(NAN), 0 },
    { "i32(order(a) > order(b))", false, { 0, 0, 1, 0, 0 }, 0 },
    { "i32(order(a * 0) == order(-a * 0))", false, SAME(1), 0 },
};

// clang-format on

static bool close_to(double got, double want, double within)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= within * fabs(want) + (within ? 1e-30 : 0);
}

static char *source_of(const struct row *r, char *s, size_t n)
{
    snprintf(
        s, n,
        "kernel k(xa: f32[N], xb: f32[N], xp: i32[N], xq: i32[N], y: out %s[N]) require N <= 16 {\n"
        "  let n = range(N)\n  let a = xa[n]\n  let b = xb[n]\n  let p = xp[n]\n  let q = xq[n]\n  let p0 = xp[0]\n"
        "  var v: %s[n] = %s\n  y[n] = v\n}\n",
        r->real ? "f32" : "i32", r->real ? "f32" : "i32", r->expr);
    return s;
}

static void run_row(const struct row *r, bool expanded)
{
    struct dsl d;
    char s[2048];
    union {
        float f[N + 1];
        int32_t i[N + 1];
    } y;
    dsl_open(&d, "sm_90a", source_of(r, s, sizeof s));
    struct kernel *k = d.m->kernels;
    struct eval_arg args[] = { { (void *)(uintptr_t)A, sizeof A },
                               { (void *)(uintptr_t)B, sizeof B },
                               { (void *)(uintptr_t)P, sizeof P },
                               { (void *)(uintptr_t)Q, sizeof Q },
                               { &y, N * 4 } };
    int64_t dims[] = { N };
    struct eval_opts o = { 0 };
    const char *why = "";
    if (expanded) {
        expand(&d.c, k);
        assert_true(verify(&d.c, k, ST_EXPAND));
        fold(&d.c, k);
        assert_true(verify(&d.c, k, ST_EXPAND));
    }
    memset(&y, 0xee, sizeof y);
    if (!eval(&d.c, k, args, dims, &o, &why))
        fail_msg("%s: %s", r->expr, why);
    for (int i = 0; i < N; i++) {
        double got = r->real ? (double)y.f[i] : (double)y.i[i];
        if (!close_to(got, r->want[i], r->within))
            fail_msg("%s%s: position %d is %.9g, not %.9g", r->expr, expanded ? " (expanded)" : "", i, got, r->want[i]);
    }
    assert_int_equal(y.i[N], (int)0xeeeeeeee); // nothing past the end
    dsl_close(&d);
}

static void every_operation(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        run_row(&rows[i], false);
        run_row(&rows[i], true);
    }
}

// topk: order, ties to the lower index, NaN last, -1 past the valid positions
static void topk(void **state)
{
    static const char src[] = "kernel k(x: f32[N], y: out i32[K]) require N <= 8, K <= 8 {\n"
                              "  let n = range(N)\n  let k = range(K)\n  y[k] = topk(x[n], k, n)\n}\n";
    static const struct {
        float x[5];
        int32_t want[7];
    } cases[] = {
        { { 3, 1, 4, 1, 5 }, { 4, 2, 0, 1, 3, -1, -1 } },
        { { 2, 2, 2, 2, 2 }, { 0, 1, 2, 3, 4, -1, -1 } },
        { { NAN, -INFINITY, 7, NAN, -1 }, { 2, 4, 1, 0, 3, -1, -1 } },
        { { 0, -0.0f, 0, 1, -1 }, { 3, 0, 1, 2, 4, -1, -1 } },
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNTOF(cases); i++) {
        struct dsl d;
        int32_t y[7];
        float x[5];
        dsl_open(&d, "sm_90a", src);
        struct kernel *k = d.m->kernels;
        memcpy(x, cases[i / 2].x, sizeof x);
        if (i & 1) {
            expand(&d.c, k);
            fold(&d.c, k);
        }
        struct eval_arg args[] = { { x, sizeof x }, { y, sizeof y } };
        int64_t dims[] = { 5, 7 };
        struct eval_opts o = { 0 };
        const char *why = "";
        if (!eval(&d.c, k, args, dims, &o, &why))
            fail_msg("%s", why);
        assert_memory_equal(y, cases[i / 2].want, sizeof y);
        dsl_close(&d);
    }
}

// Out-of-range and masked indices: loads 0, stores and atomics nothing.
static void memory(void **state)
{
    static const char src[] =
        "kernel k(i: i32[N], x: f32[M], y: inout f32[M], c: inout i32[M]) {\n"
        "  for n in tile(N) {\n    let at = i[n]\n    y[at] = x[at] + 1\n    atomic_add(c[at], 1)\n  }\n}\n";
    int32_t at[6] = { 2, -1, 0, 9, 3, 2 }, c[4] = { 10, 10, 10, 10 };
    float x[4] = { 1, 2, 3, 4 }, y[4] = { -1, -1, -1, -1 };
    static const float want[4] = { 2, -1, 4, 5 };
    static const int32_t counts[4] = { 11, 10, 12, 11 };
    struct dsl d;
    struct eval_arg args[] = { { at, sizeof at }, { x, sizeof x }, { y, sizeof y }, { c, sizeof c } };
    int64_t dims[] = { 6, 4 };
    struct eval_opts o = { .default_tile = 4 };
    const char *why = "";
    (void)state;
    dsl_open(&d, "sm_90a", src);
    if (!eval(&d.c, d.m->kernels, args, dims, &o, &why))
        fail_msg("%s", why);
    assert_memory_equal(y, want, sizeof y);
    assert_memory_equal(c, counts, sizeof c);
    args[1].nbytes = 8; // less memory than the dims say: a fault, not a crash
    assert_false(eval(&d.c, d.m->kernels, args, dims, &o, &why));
    assert_non_null(strstr(why, "past the end"));
    dsl_close(&d);
}

// dot leaves out masked positions of the contracted axis, whatever the operands hold there
static void dots(void **state)
{
    static const char src[] =
        "kernel k(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) {\n"
        "  parallel m in tile(M), n in tile(N) {\n    var s: f32[m, n] = 1\n"
        "    for k in tile(K) { s += dot(bf16(x[m, k] + 1.0), w[n, k]) }\n    y[m, n] = s\n  }\n}\n";
    uint16_t x[2 * 3] = { 0x3f80, 0x4000, 0x4040, 0xbf80, 0, 0x3f80 },
                   w[3] = { 0x3f80, 0x3f80, 0x4000 }; // 1 2 3; -1 0 1; 1 1 2
    float y[2];
    struct dsl d;
    struct eval_arg args[] = { { x, sizeof x }, { w, sizeof w }, { y, sizeof y } };
    int64_t dims[] = { 2, 3, 1 };
    struct eval_opts o = { .default_tile = 16 };
    const char *why = "";
    (void)state;
    dsl_open(&d, "sm_90a", src);
    if (!eval(&d.c, d.m->kernels, args, dims, &o, &why))
        fail_msg("%s", why);
    assert_true(y[0] == 1 + 2 + 3 + 8 && y[1] == 1 + 0 + 1 + 4);
    dsl_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_operation), cmocka_unit_test(topk),
                                        cmocka_unit_test(memory), cmocka_unit_test(dots) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
