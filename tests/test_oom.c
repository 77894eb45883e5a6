// Memory that ends at the n-th call, for every n: the compile ends with a clean error, and all it took is given back.
// Built by `make check-oom` with chunks so small that nearly every allocation of the compiler is a call, under asan.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../compiler/moec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    long calls, fail_at; // fail_at 0: never
    bool for_good;       // all calls after it fail too
    long live;
};

static void *limited(void *user, void *old, size_t size)
{
    struct memory *m = user;
    if (!size) {
        m->live -= old != NULL;
        free(old);
        return NULL;
    }
    m->calls++;
    if (m->calls == m->fail_at || (m->for_good && m->fail_at && m->calls > m->fail_at))
        return NULL;
    m->live += old == NULL;
    return realloc(old, size);
}

static const char gemm[] =
    "type act = bf16\n"
    "kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0 {\n"
    "  parallel m in tile(M), n in tile(N) {\n"
    "    var s: f32[m, n] = 0\n"
    "    for k in tile(K) { s += dot(a[m, k], b[n, k]) }\n"
    "    c[m, n] = silu(s) + reduce_max(s, n)\n"
    "  }\n"
    "}\n"
    "schedule gemm for sm_80 { m 64  n 64  k 32  stages 3  warps 2x2 }\n";
static const char wrong[] = "kernel k(x: f32[N], y: out f32[N]) {\n"
                            "  parallel i in tile(N) { y[i] = nope + x[j] }\n"
                            "  let 3 = (\n"
                            "}\n";

// One compile with memory that ends at call n. Returns the calls it made; *ended: it met the end.
static long attempt(const char *text, const char *stop, long n, bool for_good, enum moec_status good, bool *ended)
{
    struct memory m = { .fail_at = n, .for_good = for_good };
    struct moec_options o = {
        .size = sizeof o, .arch = "sm_80", .emit = MOEC_PTX, .stop_after = stop, .alloc = limited, .alloc_user = &m
    };
    struct moec_result *r = moec_compile(text, strlen(text), "t.dsl", &o);
    *ended = n && m.calls >= n;
    if (r && *ended) {
        assert_int_equal(moec_status(r), MOEC_INTERNAL);
        assert_non_null(moec_diagnostic(r, 0));
        assert_string_equal(moec_diagnostic(r, 0)->text, "out of memory");
        assert_null(moec_diagnostic(r, 1));
    } else if (r) {
        assert_int_equal(moec_status(r), good);
    } else {
        assert_true(*ended);
    }
    moec_free(r);
    assert_int_equal(m.live, 0);
    return m.calls;
}

static void sweep(const char *what, const char *text, const char *stop, enum moec_status good)
{
    bool ended;
    long calls = attempt(text, stop, 0, false, good, &ended), n = 0;
    do {
        n++;
        attempt(text, stop, n, n & 1, good, &ended);
    } while (ended);
    printf("%s: memory ended at each of %ld allocations\n", what, n - 1);
    assert_int_equal(n - 1, calls);
}

static void front_end(void **state)
{
    (void)state;
    sweep("to the laid-out form", gemm, "layout", MOEC_OK);
}

static void with_errors(void **state)
{
    (void)state;
    sweep("a source with errors", wrong, NULL, MOEC_INPUT);
}

static void all_of_it(void **state)
{
    (void)state;
    sweep("to PTX", gemm, NULL, MOEC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(front_end), cmocka_unit_test(with_errors),
                                        cmocka_unit_test(all_of_it) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
