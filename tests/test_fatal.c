// LLVM giving up: it may report an error and go on, or call its fatal-error handler. Either way lower() returns with a
// diagnostic, and the process compiles on. The causes are made here by hand: no source leads to them, or it would be refused.
#include "../compiler/moec.h"
#include "../compiler/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum cause { CAUSE_NONE, CAUSE_INTRINSIC, CAUSE_CONSTRAINT, CAUSE_MALFORMED };

// One function, empty but for the cause. Returns the text of the first error, "" if there was none.
static void compile(const char *arch, enum cause cause, char *said, size_t size)
{
    struct ctx c = { .arena = arena_new(NULL, NULL), .file = "t" };
    c.diag_tail = &c.diags;
    c.arch = arch_find(arch);
    struct mb *mb = mb_new(&c);
    const struct mb_types *t = mb_types(mb);
    struct lower_result r = { 0 };
    struct lower_opts o = { .stop = ST_IMAGE, .assembly = true };
    val args[1];
    mb_func_begin(mb, "f", 1, &t->p1, NULL, "nvvm.kernel", args);
    if (cause == CAUSE_INTRINSIC) // of a later architecture: "Cannot select", which aborts
        mb_op0(mb, "nvvm.wgmma.fence.aligned", 0, NULL, NULL);
    if (cause == CAUSE_CONSTRAINT) // an error through the context's handler
        mb_asm(mb, "mov.u32 $0, $0;", "=Z", t->i32, 0, NULL);
    if (cause == CAUSE_MALFORMED) // of the wrong dialect for the verifier
        mb_op0(mb, "rocdl.nonsense", 0, NULL, NULL);
    mb_func_end(mb);
    bool ok = mb_verify(mb) && lower(&c, mb, c.arch, &o, &r);
    lower_free(&r);
    mb_free(mb);
    assert_int_equal(ok, c.errors == 0);
    assert_int_equal(ok, cause == CAUSE_NONE);
    snprintf(said, size, "%s", c.diags ? c.diags->text : "");
    arena_free(c.arena);
}

static void gives_up(void **state)
{
    char said[512];
    (void)state;
    for (int i = 0; i < 20; i++) {
        compile("sm_80", CAUSE_INTRINSIC, said, sizeof said);
        if (strncmp(said, "internal: LLVM gave up: Cannot select", 37))
            fail_msg("%s", said);
        compile("sm_80", CAUSE_NONE, said, sizeof said);
        assert_string_equal(said, "");
    }
}

static void reports(void **state)
{
    char said[512];
    (void)state;
    compile("sm_80", CAUSE_CONSTRAINT, said, sizeof said);
    if (strncmp(said, "internal: ", 10))
        fail_msg("%s", said);
    compile("sm_80", CAUSE_MALFORMED, said, sizeof said);
    if (strncmp(said, "internal: ", 10))
        fail_msg("%s", said);
}

// After all that a real compile gives what it gave before.
static void goes_on(void **state)
{
    static const char src[] =
        "kernel k(x: f32[N], y: out f32[N]) {\n  parallel i in tile(N) { y[i] = x[i] * 2.0 }\n}\n";
    struct moec_options o = { .size = sizeof o, .arch = "sm_80", .emit = MOEC_PTX };
    char said[512];
    size_t n, m;
    (void)state;
    struct moec_result *a = moec_compile(src, strlen(src), "t.dsl", &o);
    compile("sm_80", CAUSE_INTRINSIC, said, sizeof said);
    struct moec_result *b = moec_compile(src, strlen(src), "t.dsl", &o);
    const char *p = moec_code(a, &n), *q = moec_code(b, &m);
    assert_true(p && q && n == m && !memcmp(p, q, n));
    moec_free(a);
    moec_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gives_up), cmocka_unit_test(reports),
                                        cmocka_unit_test(goes_on) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
