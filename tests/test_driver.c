// The driver, through the public header only: the options struct of older callers, stages in order, every kind of output,
// kernels by name, too many errors, what is left behind. See also test_moec.c, test_oom.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../compiler/moec.h"
#include "../runtime/image.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char gemm[] =
    "type act = bf16\n"
    "kernel scale(x: f32[N], y: out f32[N]) {\n"
    "  parallel i in tile(N) { y[i] = x[i] * 2.0 }\n"
    "}\n"
    "kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0 {\n"
    "  parallel m in tile(M), n in tile(N) {\n"
    "    var s: f32[m, n] = 0\n"
    "    for k in tile(K) { s += dot(a[m, k], b[n, k]) }\n"
    "    c[m, n] = s\n"
    "  }\n"
    "}\n";

static struct moec_options options(const char *arch, enum moec_emit emit)
{
    return (struct moec_options){ .size = sizeof(struct moec_options), .arch = arch, .emit = emit };
}

static struct moec_result *compile(const char *text, const struct moec_options *o)
{
    struct moec_result *r = moec_compile(text, strlen(text), "t.dsl", o);
    assert_non_null(r);
    return r;
}

static struct moec_result *compile_ok(const char *text, const struct moec_options *o)
{
    struct moec_result *r = compile(text, o);
    if (moec_status(r) != MOEC_OK)
        fail_msg("%s", moec_diagnostic(r, 0)->formatted);
    return r;
}

static void expect(struct moec_result *r, enum moec_status s, const char *text)
{
    size_t n = 1;
    assert_int_equal(moec_status(r), s);
    assert_null(moec_code(r, &n));
    assert_int_equal(n, 0);
    assert_non_null(moec_diagnostic(r, 0));
    if (!strstr(moec_diagnostic(r, 0)->formatted, text))
        fail_msg("no '%s' in: %s", text, moec_diagnostic(r, 0)->formatted);
    moec_free(r);
}

// ---- options -----------------------------------------------------------------------------------------------------

// A caller built against an earlier header has a smaller struct; what lies behind it must not be read.
static void older_caller(void **state)
{
    (void)state;
    struct moec_options o = options("sm_80", MOEC_PTX);
    size_t n = 0, m = 0;
    struct moec_result *r = compile_ok(gemm, &o), *old;
    memset(&o.kernel, 0x5a, sizeof o - offsetof(struct moec_options, kernel));
    o.size = offsetof(struct moec_options, kernel);
    old = compile_ok(gemm, &o);
    const char *a = moec_code(r, &n), *b = moec_code(old, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    assert_int_equal(a[n], 0);
    moec_free(r);
    moec_free(old);
}

static void no_text(void **state)
{
    (void)state;
    struct moec_options o = options("sm_80", MOEC_PTX);
    struct moec_result *r = moec_compile(NULL, 0, NULL, &o);
    assert_int_equal(moec_status(r), MOEC_USAGE);
    moec_free(r);
    r = moec_compile(gemm, 40, "cut", &o);
    assert_int_equal(moec_status(r), MOEC_INPUT);
    moec_free(r);
}

// ---- stages ------------------------------------------------------------------------------------------------------

static const char *const order[] = { "tokens", "ast",      "tile", "expand",  "sched", "layout",
                                     "mlir",   "mlirllvm", "llvm", "llvmopt", "asm",   "image" };
enum { STAGES = sizeof order / sizeof *order };
struct seen {
    int n;
    char *text[STAGES];
};

static void on_dump(void *user, const char *stage, const char *text, size_t n)
{
    struct seen *s = user;
    assert_in_range(s->n, 0, STAGES - 1);
    assert_string_equal(stage, order[s->n]);
    assert_int_equal(strlen(text), n);
    assert_true(n > 0);
    s->text[s->n++] = strdup(text);
}

static void forget(struct seen *s)
{
    while (s->n)
        free(s->text[--s->n]);
}

static void stages_in_order(void **state)
{
    (void)state;
    static const char *const archs[] = { "sm_90a", "gfx942" };
    for (size_t a = 0; a < 2; a++) {
        struct seen all = { 0 };
        struct moec_options o = options(archs[a], MOEC_IMAGE);
        o.ptx_only = true;
        o.dump = on_dump;
        o.user = &all;
        moec_free(compile_ok(gemm, &o));
        assert_int_equal(all.n, STAGES);
        for (int i = 0; i < STAGES; i++) { // stopped after i: the same up to there, and nothing after
            struct seen some = { 0 };
            size_t n;
            o.user = &some;
            o.stop_after = order[i];
            struct moec_result *r = compile_ok(gemm, &o);
            assert_int_equal(some.n, i + 1);
            for (int k = 0; k <= i; k++)
                assert_string_equal(some.text[k], all.text[k]);
            assert_true(i == STAGES - 1 || !moec_code(r, &n));
            moec_free(r);
            forget(&some);
        }
        forget(&all);
    }
}

static void every_output(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        enum moec_emit emit;
        const char *has;
    } outputs[] = { { "sm_80", MOEC_PTX, ".entry gemm" },  { "sm_80", MOEC_ASM, ".entry gemm" },
                    { "sm_80", MOEC_LLVM, "define" },      { "sm_80", MOEC_MLIR, "llvm.func" },
                    { "sm_80", MOEC_TILE, "kernel gemm" }, { "gfx942", MOEC_ASM, "v_mfma" },
                    { "gfx942", MOEC_HSACO, "\177ELF" },   { "gfx942", MOEC_IMAGE, "MOEIMG" } };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        size_t n;
        struct moec_options o = options(outputs[i].arch, outputs[i].emit);
        struct moec_result *r = compile_ok(gemm, &o);
        const char *code = moec_code(r, &n);
        if (!code || !memmem(code, n, outputs[i].has, strlen(outputs[i].has)))
            fail_msg("output %d for %s has no '%s'", outputs[i].emit, outputs[i].arch, outputs[i].has);
        assert_int_equal(code[n], 0);
        moec_free(r);
    }
}

static void one_kernel(void **state)
{
    (void)state;
    size_t n;
    char err[IMAGE_ERR_MAX];
    struct moec_options o = options("sm_80", MOEC_IMAGE);
    o.ptx_only = true;
    o.kernel = "scale";
    struct moec_result *r = compile_ok(gemm, &o);
    const void *code = moec_code(r, &n);
    struct image_desc *d = moe_image_read(code, n, err);
    assert_non_null(d);
    assert_int_equal(d->nkernels, 1);
    assert_string_equal(d->kernels[0].name, "scale");
    assert_string_equal(moec_kernel_name(r, 0), "scale");
    assert_string_equal(moec_kernel_name(r, 1), "gemm"); // of the source
    assert_null(moec_kernel_name(r, 2));
    assert_string_equal(moec_use(r, 0)->symbol, "scale");
    assert_int_equal(moec_use(r, 0)->threads, d->kernels[0].threads);
    assert_int_equal(moec_use(r, 0)->regs, -1); // no assembler was asked
    assert_null(moec_use(r, 1));
    free(d);
    moec_free(r);
    o.kernel = "scal";
    expect(compile(gemm, &o), MOEC_USAGE, "there is no kernel 'scal'");
}

// ---- diagnostics -------------------------------------------------------------------------------------------------

static void too_many_errors(void **state)
{
    (void)state;
    static char text[1 << 16] = "kernel k(y: out f32[N]) {\n";
    struct moec_options o = options("sm_80", MOEC_PTX);
    size_t n = strlen(text);
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  let a%d = nope%d\n", i, i);
    snprintf(text + n, sizeof text - n, "}\n");
    struct moec_result *r = compile(text, &o);
    int errors = 0, i = 0;
    for (; moec_diagnostic(r, i); i++)
        errors += moec_diagnostic(r, i)->severity == 0;
    assert_int_equal(moec_status(r), MOEC_INPUT);
    assert_in_range(errors, 20, 60);
    assert_string_equal(moec_diagnostic(r, i - 1)->text, "too many errors");
    moec_free(r);
    o = options("sm_80", MOEC_PTX); // the next compile knows nothing of it
    moec_free(compile_ok(gemm, &o));
}

// ---- leftovers ---------------------------------------------------------------------------------------------------

static int entries(const char *folder, const char *prefix)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return n;
}

// No descriptor and no temporary file stays, whether it works or not.
static void leftovers(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-moec-XXXXXX";
    assert_non_null(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
    int fds = entries("/proc/self/fd", "");
    struct moec_options o = options("gfx942", MOEC_HSACO);
    moec_free(compile_ok(gemm, &o));
    o.lld = "/bin/false";
    struct moec_result *r = compile(gemm, &o);
    assert_true(moec_status(r) != MOEC_OK);
    moec_free(r);
    o = options("sm_80", MOEC_CUBIN);
    o.ptxas = "/bin/false";
    r = compile(gemm, &o);
    assert_true(moec_status(r) != MOEC_OK);
    moec_free(r);
    o.ptxas = "/nonexistent/ptxas";
    expect(compile(gemm, &o), MOEC_MISSING, "/nonexistent/ptxas");
    assert_int_equal(entries("/proc/self/fd", ""), fds);
    assert_int_equal(entries(folder, "moec"), 0);
    unsetenv("TMPDIR");
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(older_caller),    cmocka_unit_test(no_text),
                                        cmocka_unit_test(stages_in_order), cmocka_unit_test(every_output),
                                        cmocka_unit_test(one_kernel),      cmocka_unit_test(too_many_errors),
                                        cmocka_unit_test(leftovers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
