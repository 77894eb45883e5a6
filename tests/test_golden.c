// Goldens: every tests/golden/STAGE/NAME.dsl runs through the compiler up to STAGE and is compared with
//
//   NAME.err        all its diagnostics, as moec prints them; errors are expected, and the file is named after the rule
//   NAME.out        what the stage prints (STAGE parse: the canonical DSL; check: the tile IR)
//   // CHECK: text      or with lines in NAME.dsl itself: parts of the output that must come in this order, and parts that
//   // CHECK-NOT: text  must not come before the next of them. For stages whose text LLVM writes
//
// NAME+ARCH.dsl is compiled for that arch (else for the first one). Its first line may hold options: // -D H=64 -D act=f16
// GOLDEN_UPDATE=1 writes the expected files from what was found: then read the difference.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../compiler/ast.h"
#include "../compiler/moec.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 512, BINDINGS_MAX = 16, TEXT_SIZE = 1 << 22 };

struct golden {
    const char *stage;
    char path[PATH_SIZE], name[PATH_SIZE]; // tests/golden/check/x.dsl, x.dsl
    char arch[64];
    char *src, *flags;
    size_t src_len;
    struct moec_binding bind[BINDINGS_MAX];
    int nbind;
    bool errors;       // found some
    char *diags, *out; // TEXT_SIZE
};

// ---- files -----------------------------------------------------------------------------------------------------

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *s = calloc(1, TEXT_SIZE);
    size_t n = fread(s, 1, TEXT_SIZE - 1, f);
    fclose(f);
    s[n] = 0;
    if (len)
        *len = n;
    return s;
}

static void write_file(const char *path, const char *s)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(s, 1, strlen(s), f);
    fclose(f);
}

static void sibling(char *to, const struct golden *g, const char *suffix)
{
    snprintf(to, PATH_SIZE, "%.*s%s", (int)strlen(g->path) - 4, g->path, suffix);
}

static void append(char *to, const char *s, size_t n)
{
    size_t have = strlen(to);
    n = n < TEXT_SIZE - 1 - have ? n : TEXT_SIZE - 1 - have;
    memcpy(to + have, s, n);
    to[have + n] = 0;
}

// "// -D H=64 -D act=f16": numbers are dimensions, words are types.
static void read_options(struct golden *g)
{
    if (strncmp(g->src, "// -D ", 6))
        return;
    g->flags = strndup(g->src + 3, strcspn(g->src, "\n") - 3);
    for (char *w = strtok(g->flags, " "); w; w = strtok(NULL, " ")) {
        char *eq = strchr(w, '='), *end;
        if (!strcmp(w, "-D"))
            continue;
        if (!eq || g->nbind == BINDINGS_MAX)
            fail_msg("%s: option '%s' is not understood", g->path, w);
        *eq = 0;
        struct moec_binding b = { w, strtoll(eq + 1, &end, 10), NULL };
        if (*end)
            b.type = eq + 1;
        g->bind[g->nbind++] = b;
    }
}

// ---- stages ----------------------------------------------------------------------------------------------------

static void print_into(char *to, struct ctx *c, const struct node *file)
{
    struct text t = { .arena = c->arena };
    text_put(&t, "", 0);
    print_dsl(&t, file);
    append(to, t.s, t.n);
}

static struct node *parse_text(struct ctx *c, const char *src, size_t len)
{
    int n;
    c->src = src;
    c->src_len = len;
    c->diags = NULL;
    c->diag_tail = &c->diags;
    struct token *t = lex(c, &n);
    return parse(c, t, n);
}

// lex, parse, print; what is printed must read back equal.
static void run_parse(struct golden *g)
{
    struct ctx c = { .arena = arena_new(NULL, NULL), .file = g->name };
    struct node *file = parse_text(&c, g->src, g->src_len);
    struct text t = { .arena = c.arena };
    for (const struct diag *d = c.diags; d; d = d->next)
        diag_format(&c, d, &t);
    append(g->diags, t.s ? t.s : "", t.n);
    g->errors = c.errors != 0;
    if (!g->errors) {
        print_into(g->out, &c, file);
        struct node *again = parse_text(&c, g->out, strlen(g->out));
        assert_true(c.errors == 0 && node_equal(file, again));
    }
    arena_free(c.arena);
}

static void keep_stage(void *user, const char *stage, const char *text, size_t n)
{
    struct golden *g = user;
    if (!strcmp(stage, !strcmp(g->stage, "check") ? "tile" : g->stage)) {
        g->out[0] = 0;
        append(g->out, text, n);
    }
}

static void run_compile(struct golden *g)
{
    struct moec_options o = { .size = sizeof o,
                              .arch = *g->arch ? g->arch : moec_arch_name(0),
                              .bindings = g->bind,
                              .nbindings = g->nbind,
                              .emit = MOEC_TILE,
                              .dump = keep_stage,
                              .user = g };
    o.stop_after = !strcmp(g->stage, "check") ? "tile" : g->stage;
    if (!strcmp(g->stage, "mlir") || !strcmp(g->stage, "llvm") || !strcmp(g->stage, "llvmopt") ||
        !strcmp(g->stage, "asm"))
        o.emit = MOEC_ASM;
    struct moec_result *r = moec_compile(g->src, g->src_len, g->name, &o);
    assert_non_null(r);
    for (int i = 0; moec_diagnostic(r, i); i++)
        append(g->diags, moec_diagnostic(r, i)->formatted, strlen(moec_diagnostic(r, i)->formatted));
    g->errors = moec_status(r) != MOEC_OK;
    moec_free(r);
}

// ---- comparing -------------------------------------------------------------------------------------------------

// The first line that differs, for the log.
static bool same(const struct golden *g, const char *path, const char *got, const char *want)
{
    int line = 1;
    if (!strcmp(got, want))
        return true;
    while (*got && *got == *want)
        line += *got++ == '\n', want++;
    while (got[-1] != '\n' && line > 1)
        got--, want--;
    print_message("%s: line %d of %s differs\n  found:    %.*s\n  expected: %.*s\n", g->path, line,
                  strrchr(path, '/') + 1, (int)strcspn(got, "\n"), got, (int)strcspn(want, "\n"), want);
    return false;
}

// "// CHECK: text" lines of the source against the output.
static bool patterns(const struct golden *g)
{
    const char *at = g->out;
    const char *never[64];
    int nnever = 0;
    for (const char *s = g->src; (s = strstr(s, "// CHECK")); s++) {
        bool not = !strncmp(s, "// CHECK-NOT: ", 14);
        const char *text = s + (not ? 14 : 10);
        char *want = strndup(text, strcspn(text, "\n"));
        if (not &&nnever < 64) {
            never[nnever++] = want;
            continue;
        }
        const char *hit = strstr(at, want);
        bool ok = hit != NULL;
        if (!ok)
            print_message("%s: not found in its order: %s\n", g->path, want);
        for (int i = 0; ok && i < nnever; i++) {
            const char *bad = strstr(at, never[i]);
            if (bad && bad < hit)
                ok = (print_message("%s: found: %s\n", g->path, never[i]), false);
        }
        at = ok ? hit + strlen(want) : at;
        while (nnever > 0)
            free((char *)never[--nnever]);
        free(want);
        if (!ok)
            return false;
    }
    bool ok = true;
    while (nnever > 0) {
        if (strstr(at, never[--nnever]))
            ok = (print_message("%s: found: %s\n", g->path, never[nnever]), false);
        free((char *)never[nnever]);
    }
    return ok;
}

static bool judge(struct golden *g)
{
    char err[PATH_SIZE], out[PATH_SIZE];
    sibling(err, g, ".err");
    sibling(out, g, ".out");
    if (strstr(g->src, "// CHECK")) {
        if (g->errors)
            print_message("%s:\n%s", g->path, g->diags);
        return !g->errors && patterns(g);
    }
    if (getenv("GOLDEN_UPDATE")) {
        write_file(g->errors ? err : out, g->errors ? g->diags : g->out);
        remove(g->errors ? out : err);
        return true;
    }
    char *want_err = read_file(err, NULL), *want_out = read_file(out, NULL);
    bool ok = false;
    if (!want_err == !want_out)
        print_message("%s: exactly one of .err and .out must stand beside it\n", g->path);
    else if (want_err)
        ok = same(g, err, g->diags, want_err);
    else if (g->errors)
        print_message("%s: unexpected errors:\n%s", g->path, g->diags);
    else
        ok = same(g, out, g->out, want_out);
    free(want_err);
    free(want_out);
    return ok;
}

static bool run_one(const char *stage, const char *path)
{
    struct golden g = { .stage = stage, .diags = calloc(1, TEXT_SIZE), .out = calloc(1, TEXT_SIZE) };
    snprintf(g.path, sizeof g.path, "%s", path);
    snprintf(g.name, sizeof g.name, "%s", strrchr(path, '/') + 1);
    const char *plus = strchr(g.name, '+');
    if (plus)
        snprintf(g.arch, sizeof g.arch, "%.*s", (int)strcspn(plus + 1, "."), plus + 1);
    g.src = read_file(path, &g.src_len);
    read_options(&g);
    if (!strcmp(stage, "parse"))
        run_parse(&g);
    else
        run_compile(&g);
    bool ok = judge(&g);
    free(g.src);
    free(g.flags);
    free(g.diags);
    free(g.out);
    return ok;
}

static void test_stage(void **state)
{
    const char *stage = *state;
    char pattern[PATH_SIZE];
    int bad = 0;
    glob_t files;
    snprintf(pattern, sizeof pattern, "tests/golden/%s/*.dsl", stage);
    if (glob(pattern, 0, NULL, &files))
        skip();
    for (size_t i = 0; i < files.gl_pathc; i++)
        bad += !run_one(stage, files.gl_pathv[i]);
    print_message("%s: %d of %d goldens agree\n", stage, (int)files.gl_pathc - bad, (int)files.gl_pathc);
    globfree(&files);
    assert_int_equal(bad, 0);
}

// Every ```dsl block of the reference is a program without errors.
static void test_reference(void **state)
{
    char *doc = read_file("docs/language.md", NULL);
    int seen = 0, bad = 0;
    (void)state;
    assert_non_null(doc);
    for (char *s = doc, *end; (s = strstr(s, "\n```dsl\n")); s = end, seen++) {
        s += 8;
        end = strstr(s, "\n```");
        assert_non_null(end);
        struct moec_options o = { .size = sizeof o, .arch = moec_arch_name(0), .emit = MOEC_TILE };
        struct moec_result *r = moec_compile(s, (size_t)(end - s), "language.md", &o);
        for (int i = 0; moec_diagnostic(r, i); i++)
            print_message("%s", moec_diagnostic(r, i)->formatted);
        bad += moec_status(r) != MOEC_OK;
        moec_free(r);
    }
    free(doc);
    assert_true(seen >= 10);
    assert_int_equal(bad, 0);
}

// A .err or .out whose .dsl is gone tests nothing.
static void test_no_orphans(void **state)
{
    static const char *const patterns_[] = { "tests/golden/*/*.err", "tests/golden/*/*.out" };
    int bad = 0;
    (void)state;
    for (size_t p = 0; p < COUNTOF(patterns_); p++) {
        glob_t files;
        if (glob(patterns_[p], 0, NULL, &files))
            continue;
        for (size_t i = 0; i < files.gl_pathc; i++) {
            char path[PATH_SIZE];
            struct stat st;
            snprintf(path, sizeof path, "%.*s.dsl", (int)strlen(files.gl_pathv[i]) - 4, files.gl_pathv[i]);
            if (stat(path, &st)) {
                print_message("%s has no source beside it\n", files.gl_pathv[i]);
                bad++;
            }
        }
        globfree(&files);
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
#define STAGE(s) \
    { \
        .name = s, .test_func = test_stage, .initial_state = (void *)(uintptr_t)s \
    }
    const struct CMUnitTest tests[] = { STAGE("parse"),
                                        STAGE("check"),
                                        STAGE("expand"),
                                        STAGE("sched"),
                                        STAGE("layout"),
                                        STAGE("mlir"),
                                        STAGE("llvm"),
                                        STAGE("llvmopt"),
                                        STAGE("asm"),
                                        cmocka_unit_test(test_no_orphans),
                                        cmocka_unit_test(test_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
