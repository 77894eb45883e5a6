// What an hsaco's metadata tells of its kernels (targets/amdgpu/notes.c): the right numbers, and no harm from damaged bytes.
#include "../compiler/moec.h"
#include "../targets/amdgpu/amdgpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char source[] = "kernel scale(x: f32[N], y: out f32[N]) {\n"
                             "  parallel i in tile(N) { y[i] = x[i] * 2.0 }\n"
                             "}\n"
                             "kernel total(x: f32[N], y: out f32[N]) require N <= 4096 {\n"
                             "  let n = range(N)\n"
                             "  y[n] = x[n] + reduce_sum(x[n], n)\n"
                             "}\n";

static struct moec_result *hsaco(const char **code, size_t *n)
{
    struct moec_options o = { .size = sizeof o, .arch = "gfx942", .emit = MOEC_HSACO };
    struct moec_result *r = moec_compile(source, strlen(source), "t.dsl", &o);
    if (moec_status(r) != MOEC_OK)
        fail_msg("%s", moec_diagnostic(r, 0)->formatted);
    *code = moec_code(r, n);
    return r;
}

static void read_uses(struct lowered *l, struct ctx *c, const char *code, size_t n)
{
    *c = (struct ctx){ .arena = arena_new(NULL, NULL) };
    *l = (struct lowered){ .c = c };
    amd_uses(l, code, n);
}

static void numbers(void **state)
{
    (void)state;
    struct lowered l;
    struct ctx c;
    const char *code;
    size_t n;
    struct moec_result *r = hsaco(&code, &n);
    read_uses(&l, &c, code, n);
    assert_int_equal(l.nuses, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(l.uses[i].symbol, i ? "total" : "scale");
        assert_in_range(l.uses[i].regs, 2, 256);
        assert_int_equal(l.uses[i].spill_stores, 0);
        assert_int_equal(l.uses[i].stack, 0);
        assert_int_equal(moec_use(r, i)->regs, l.uses[i].regs);
        assert_int_equal(moec_use(r, i)->shared, l.uses[i].shared);
    }
    assert_true(l.uses[1].shared > 0);
    arena_free(c.arena);
    moec_free(r);
}

// Cut at every length, and every bit of the note flipped once: asan is the judge.
static void damaged(void **state)
{
    (void)state;
    struct lowered l;
    struct ctx c;
    const char *code;
    size_t n;
    int missed = 0;
    struct moec_result *r = hsaco(&code, &n);
    for (size_t len = 0; len < n; len++) {
        char *cut = malloc(len + 1);
        memcpy(cut, code, len);
        read_uses(&l, &c, cut, len);
        arena_free(c.arena);
        free(cut);
    }
    const char *note = memmem(code, n, "AMDGPU", 7);
    assert_non_null(note);
    char *copy = malloc(n);
    memcpy(copy, code, n);
    for (size_t bit = 0; bit < 8 * 1024; bit++) {
        char *at = copy + (note - code) + bit / 8;
        *at ^= (char)(1 << bit % 8);
        read_uses(&l, &c, copy, n);
        missed += l.nuses != 2;
        arena_free(c.arena);
        *at ^= (char)(1 << bit % 8);
    }
    assert_true(missed > 0); // some of it was noticed
    free(copy);
    moec_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(numbers), cmocka_unit_test(damaged) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
