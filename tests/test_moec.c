// libmoec as a library: memory that ends at any allocation, many threads at once, LLVM giving up, options that make no sense.
#include "../compiler/moec.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *moe;
static size_t moe_len;

struct ration {
    long left; // allocations until one fails; negative: never
    long live;
};

static void *rationed(void *user, void *old, size_t size)
{
    struct ration *r = user;
    if (!size) {
        r->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (r->left == 0)
        return NULL;
    r->left -= r->left > 0;
    r->live += old == NULL;
    return realloc(old, size);
}

static struct moec_result *compile(const char *text, const char *arch, enum moec_emit emit, const char *stop,
                                   struct ration *r)
{
    struct moec_options o = { .size = sizeof o, .arch = arch, .emit = emit, .stop_after = stop };
    o.kernel = r ? "combine" : NULL;
    if (r) {
        o.alloc = rationed;
        o.alloc_user = r;
    }
    return moec_compile(text, strlen(text), "moe.dsl", &o);
}

// The n-th allocation fails, for every n until the compile succeeds: a clean error each time, nothing lost.
static void memory_ends(void **state)
{
    static const char *const stops[] = { "layout", "asm" };
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        int failures = 0;
        for (long n = 0; n < 2000; n++) {
            struct ration r = { .left = n };
            struct moec_result *m = compile(moe, "gfx942", MOEC_IMAGE, stops[s], &r);
            if (!m) {
                assert_int_equal(r.live, 0);
                failures++;
                continue;
            }
            enum moec_status st = moec_status(m);
            if (st == MOEC_INTERNAL) {
                assert_non_null(moec_diagnostic(m, 0));
                assert_non_null(strstr(moec_diagnostic(m, 0)->text, "memory"));
                failures++;
            }
            moec_free(m);
            assert_int_equal(r.live, 0);
            if (st == MOEC_OK)
                break;
            assert_int_equal(st, MOEC_INTERNAL);
        }
        assert_true(failures > 3); // else nothing failed at all
    }
}

struct job {
    const char *arch;
    void *code;
    size_t n;
};

static void *work(void *p)
{
    struct job *j = p;
    struct moec_options o = { .size = sizeof o, .arch = j->arch, .emit = MOEC_ASM, .kernel = "combine" };
    struct moec_result *m = moec_compile(moe, moe_len, "moe.dsl", &o);
    const void *code = m ? moec_code(m, &j->n) : NULL;
    if (code && (j->code = malloc(j->n)))
        memcpy(j->code, code, j->n);
    moec_free(m);
    return NULL;
}

static void threads(void **state)
{
    enum { THREADS = 8 };
    struct job jobs[THREADS];
    pthread_t t[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){ .arch = i & 1 ? "sm_90a" : "gfx942" };
        assert_int_equal(pthread_create(&t[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(jobs[i].code);
        assert_int_equal(jobs[i].n, jobs[i & 1].n);
        assert_memory_equal(jobs[i].code, jobs[i & 1].code, jobs[i].n);
    }
    for (int i = 0; i < THREADS; i++)
        free(jobs[i].code);
}

static void options(void **state)
{
    static const struct {
        struct moec_options o;
        const char *says;
    } bad[] = {
        { { .size = 0, .arch = "sm_80" }, "size" },
        { { .size = sizeof(struct moec_options) }, "unknown arch" },
        { { .size = sizeof(struct moec_options), .arch = "sm_80", .emit = MOEC_HSACO }, "cannot give" },
        { { .size = sizeof(struct moec_options), .arch = "sm_80", .stop_after = "x" }, "unknown stage" },
        { { .size = sizeof(struct moec_options), .arch = "sm_80", .skip = "layout" }, "cannot be skipped" },
        { { .size = sizeof(struct moec_options), .arch = "sm_80", .kernel = "x" }, "no kernel 'x'" },
    };
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct moec_result *m = moec_compile(moe, moe_len, "moe.dsl", &bad[i].o);
        assert_int_equal(moec_status(m), MOEC_USAGE);
        assert_null(moec_code(m, &n));
        assert_int_equal(n, 0);
        if (!strstr(moec_diagnostic(m, 0)->text, bad[i].says))
            fail_msg("'%s' does not say '%s'", moec_diagnostic(m, 0)->text, bad[i].says);
        moec_free(m);
    }
    struct moec_result *m = moec_compile(NULL, 5, NULL, NULL);
    assert_int_equal(moec_status(m), MOEC_USAGE);
    moec_free(m);
}

// Warnings do not fail; several errors come in one run; the place is right.
static void several(void **state)
{
    static const char src[] = "kernel k(x: f32[N], y: out f32[N]) {\n  parallel n in tile(N) {\n    y[n] = x[n] + a\n"
                              "    y[n] = b\n  }\n}\n";
    struct moec_result *m = compile(src, "sm_90a", MOEC_PTX, NULL, NULL);
    (void)state;
    assert_int_equal(moec_status(m), MOEC_INPUT);
    assert_int_equal(moec_diagnostic(m, 0)->line, 3);
    assert_int_equal(moec_diagnostic(m, 0)->column, 19);
    assert_non_null(moec_diagnostic(m, 1));
    moec_free(m);
}

// With and without the optional pass the result differs in text, not in being accepted.
static void skip_fold(void **state)
{
    struct moec_options o = { .size = sizeof o, .arch = "sm_90a", .emit = MOEC_PTX, .skip = "fold" };
    size_t n = 0;
    struct moec_result *m = moec_compile(moe, moe_len, "moe.dsl", &o);
    (void)state;
    if (moec_status(m) != MOEC_OK)
        fail_msg("%s", moec_diagnostic(m, 0)->formatted);
    assert_non_null(moec_code(m, &n));
    moec_free(m);
}

static int read_moe(void **state)
{
    FILE *f = fopen("kernels/moe.dsl", "rb");
    (void)state;
    moe = calloc(1, 1 << 20);
    moe_len = f && moe ? fread(moe, 1, (1 << 20) - 1, f) : 0;
    if (f)
        fclose(f);
    return moe_len ? 0 : -1;
}

static int free_moe(void **state)
{
    (void)state;
    free(moe);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(memory_ends), cmocka_unit_test(threads),
                                        cmocka_unit_test(options), cmocka_unit_test(several),
                                        cmocka_unit_test(skip_fold) };
    return cmocka_run_group_tests(tests, read_moe, free_moe);
}
