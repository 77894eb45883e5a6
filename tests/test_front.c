// The front end: memory, texts, diagnostics, tokens, trees, printing. Whole inputs beside their expected output are in
// tests/golden/parse (test_golden.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../compiler/ast.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct ctx c;
    struct node *file;
    struct token *tokens;
    int ntokens;
    bool left; // by a long jump
};

static struct run read_bytes(const char *src, size_t n)
{
    struct run r = { 0 };
    jmp_buf jmp;
    r.c.arena = arena_new(NULL, NULL);
    r.c.file = "t.dsl";
    r.c.src = src;
    r.c.src_len = n;
    r.c.diag_tail = &r.c.diags;
    r.c.jmp = &jmp;
    if (setjmp(jmp)) {
        r.left = true;
        return r;
    }
    r.tokens = lex(&r.c, &r.ntokens);
    r.file = parse(&r.c, r.tokens, r.ntokens);
    r.c.jmp = NULL;
    if (!r.c.diags)
        r.c.diag_tail = NULL; // it points into this function's r
    return r;
}

static struct run read_text(const char *src)
{
    return read_bytes(src, strlen(src));
}

static void drop(struct run *r)
{
    arena_free(r->c.arena);
}

static const char *diags(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    text_put(&t, "", 0);
    for (const struct diag *d = r->c.diags; d; d = d->next)
        diag_format(&r->c, d, &t);
    return t.s;
}

static const char *print(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    text_put(&t, "", 0);
    print_dsl(&t, r->file);
    return t.s;
}

// A statement, or several, in a kernel.
static struct run in_kernel(const char *body)
{
    static char src[1 << 16];
    snprintf(src, sizeof src, "kernel k(x: f32[T]) {\n%s\n}\n", body);
    return read_text(src);
}

// What the body prints as, without the kernel around it; the result lies in r's arena.
static char *body_of(struct run *r)
{
    const char *s = print(r), *from = strchr(s, '\n');
    assert_non_null(from);
    return arena_strndup(r->c.arena, from + 1, strlen(from + 1) - 2);
}

static void same_text(const char *got, const char *want)
{
    if (strcmp(got, want))
        print_message("got:\n%s\nwant:\n%s\n", got, want);
    assert_string_equal(got, want);
}

// ---- memory, texts ---------------------------------------------------------------------------------------------

static void test_arena(void **state)
{
    (void)state;
    struct arena *a = arena_new(NULL, NULL);
    char *big = arena_alloc(a, 1 << 20), *one = arena_alloc(a, 1), *two = arena_alloc(a, 1);
    assert_true((uintptr_t)big % 16 == 0 && (uintptr_t)one % 16 == 0 && (uintptr_t)two % 16 == 0);
    assert_true(one != two);
    for (int i = 0; i < 1 << 20; i += 4096)
        assert_int_equal(big[i], 0);
    assert_string_equal(arena_strndup(a, "abcdef", 3), "abc");
    assert_string_equal(arena_printf(a, "%d-%s", 12, "x"), "12-x");
    VEC(int) v = { 0 };
    for (int i = 0; i < 1000; i++)
        VEC_PUSH(a, &v, i);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.v[i], i);
    struct text t = { .arena = a };
    for (int i = 0; i < 1000; i++)
        text_printf(&t, "%d,", i);
    text_put(&t, "end", 3);
    assert_int_equal(t.n, strlen(t.s));
    assert_string_equal(t.s + t.n - 7, "999,end");
    assert_memory_equal(t.s, "0,1,2,", 6);
    t.n = 0;
    text_printf(&t, "%0*d", 5000, 7);
    assert_int_equal(t.n, 5000);
    arena_free(a);
    arena_free(NULL);
}

struct budget {
    int left, live;
};

static void *limited(void *user, void *old, size_t size)
{
    struct budget *b = user;
    if (!size) {
        b->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (b->left-- <= 0)
        return NULL;
    b->live++;
    return malloc(size);
}

static void leave(void *jmp)
{
    longjmp(*(jmp_buf *)jmp, 1);
}

// Front end with the n-th allocation failing: true if it came through.
static bool survives(const char *src, int fail)
{
    struct budget b = { .left = fail };
    struct arena *a = arena_new(limited, &b);
    struct ctx c = { .arena = a, .file = "t", .src = src, .src_len = strlen(src) };
    volatile bool all = false;
    jmp_buf jmp;
    if (!a)
        return false;
    arena_on_oom(a, leave, &jmp);
    if (!setjmp(jmp)) {
        int count;
        struct token *t = lex(&c, &count);
        struct text out = { .arena = a };
        print_dsl(&out, parse(&c, t, count));
        all = true;
    }
    arena_free(a);
    assert_int_equal(b.live, 0);
    return all;
}

// Any allocation may fail: the handler leaves, and all that was got is given back.
static void test_out_of_memory(void **state)
{
    static char src[200000];
    (void)state;
    size_t n = (size_t)snprintf(src, sizeof src, "kernel k() {\n");
    while (n < sizeof src - 100)
        n += (size_t)snprintf(src + n, sizeof src - n, "let a = b + c * dot(d[1, 2], e)\n");
    snprintf(src + n, sizeof src - n, "}\n");
    int fail = 0;
    while (!survives(src, fail))
        assert_true(++fail < 10000);
    assert_true(fail > 10);
}

// ---- diagnostics -----------------------------------------------------------------------------------------------

static void shows(const char *src, struct loc at, const char *want)
{
    struct run r = read_text("");
    r.c.src = src;
    r.c.src_len = strlen(src);
    error(&r.c, at, "%s", "wrong");
    same_text(diags(&r), want);
    drop(&r);
}

static void test_diagnostics(void **state)
{
    (void)state;
    shows("let a = bc\n", (struct loc){ 1, 9, 2 }, "t.dsl:1:9: error: wrong\nlet a = bc\n        ^~\n");
    shows("a\nb", (struct loc){ 2, 1, 1 }, "t.dsl:2:1: error: wrong\nb\n^\n");
    shows("a\n", (struct loc){ 2, 1, 0 }, "t.dsl:2:1: error: wrong\n\n^\n");        // the end of the file
    shows("a", (struct loc){ 0 }, "t.dsl: error: wrong\n");                         // no place
    shows("a", (struct loc){ 7, 3, 1 }, "t.dsl:7:3: error: wrong\n");               // no such line
    shows("\ta\r\n", (struct loc){ 1, 2, 1 }, "t.dsl:1:2: error: wrong\n a\n ^\n"); // tab, carriage return
    shows("ab", (struct loc){ 1, 1, 99 }, "t.dsl:1:1: error: wrong\nab\n^~\n");     // never past the line
    shows("\xC3\xA9\xC3\xA9 b", (struct loc){ 1, 6, 1 }, "t.dsl:1:6: error: wrong\n\xC3\xA9\xC3\xA9 b\n   ^\n");
    shows("\xC3\xA9 b", (struct loc){ 1, 1, 2 }, "t.dsl:1:1: error: wrong\n\xC3\xA9 b\n^\n"); // one character wide
    shows("\xFFz\x1b b", (struct loc){ 1, 5, 1 }, "t.dsl:1:5: error: wrong\n?z  b\n    ^\n");
}

static void test_long_line(void **state)
{
    char src[2001];
    (void)state;
    memset(src, 'a', 2000);
    src[2000] = 0;
    struct run r = read_text("");
    r.c.src = src;
    r.c.src_len = 2000;
    error(&r.c, (struct loc){ 1, 1000, 1 }, "wrong");
    const char *s = strchr(diags(&r), '\n') + 1, *e = strchr(s, '\n');
    assert_int_equal(e - s, 240);
    assert_int_equal(strspn(e + 1, " "), 80);
    drop(&r);
}

static void test_too_many(void **state)
{
    char src[4000] = "";
    int count = 0;
    (void)state;
    for (int i = 0; i < 400; i++)
        strcat(src, "$ ");
    struct run r = read_text(src);
    for (const struct diag *d = r.c.diags; d; d = d->next)
        count++;
    assert_true(r.left);
    assert_int_equal(count, DIAG_MAX + 1);
    assert_non_null(strstr(diags(&r), "t.dsl: error: too many errors\n"));
    drop(&r);
}

// ---- tokens ----------------------------------------------------------------------------------------------------

static void tokens_are(const char *src, const char *want)
{
    struct run r = read_text(src);
    struct text t = { .arena = r.c.arena };
    text_put(&t, "", 0);
    for (int i = 0; i < r.ntokens; i++)
        text_printf(&t, "%s%s", i ? " " : "",
                    r.tokens[i].kind == TK_NEWLINE ? "NL"
                    : r.tokens[i].kind == TK_END   ? "END"
                                                   : r.tokens[i].s);
    same_text(t.s, want);
    drop(&r);
}

static void test_tokens(void **state)
{
    (void)state;
    tokens_are("", "END");
    tokens_are("\n\n  \n", "END");
    tokens_are("a\nb\n", "a NL b NL END");
    tokens_are("a +\n b", "a + b END"); // after an operator
    tokens_are("f(a\n,\nb)\nc", "f ( a , b ) NL c END");
    tokens_are("x[\n1\n]", "x [ 1 ] END");
    tokens_are("{\na\n}\n", "{ a NL } NL END");
    tokens_are("f(a\nlet b", "f ( a NL let b END"); // what 'let' starts is no argument
    tokens_are("f(a }\nb", "f ( a } NL b END");     // a brace ends what brackets left open
    tokens_are("2x4+1 2 x4 a2x4", "2 x 4 + 1 2 x4 a2x4 END");
    tokens_are("1.5e-3 1e9 2. 3.x", "1.5e-3 1e9 2. 3.x END");
    tokens_are("a<=b<<c!=-d", "a <= b << c != - d END");
    tokens_are("a // b\nc", "a NL c END");
    tokens_are("a\r\nb\r\n", "a NL b NL END");
    tokens_are("\xEF\xBB\xBF"
               "a",
               "a END"); // a byte order mark
    tokens_are("a && b", "a & b END");
}

static void test_numbers(void **state)
{
    (void)state;
    struct run r = read_text("9223372036854775807 0 007 1.5 1e400 9223372036854775808 1e-400 5a");
    assert_true(r.tokens[0].ival == INT64_MAX && r.tokens[1].ival == 0 && r.tokens[2].ival == 7);
    assert_true(r.tokens[3].fval == 1.5 && r.tokens[6].fval == 0);
    const char *s = diags(&r);
    assert_non_null(strstr(s, "1:31: error: number 1e400 is larger than any f64"));
    assert_non_null(strstr(s, "1:37: error: integer 9223372036854775808 does not fit in 63 bits"));
    assert_non_null(strstr(s, "1:64: error: '5a' is neither a number nor a name"));
    drop(&r);
}

static void test_docs(void **state)
{
    static const char src[] =
        "// far\n\n// one\n//\n//  two \nkernel a() { }\n// three\ntype t = f32\nlet x = 1 // four\n"
        "kernel b() {\n// inside\n}\n";
    (void)state;
    struct run r = read_text(src);
    for (int i = 0; i < r.ntokens; i++)
        if (r.tokens[i].kind == TK_NAME && !strcmp(r.tokens[i].s, "kernel")) {
            const char *want = r.tokens[i].loc.line == 6 ? "one\n\n two" : NULL;
            if (want)
                assert_string_equal(r.tokens[i].doc, want);
            else
                assert_null(r.tokens[i].doc);
        }
    drop(&r);
}

// ---- trees and printing ----------------------------------------------------------------------------------------

// The tree, printed, reads back equal and prints the same.
static void round_trip(struct run *a, const char *what)
{
    const char *one = print(a);
    if (a->c.errors) {
        print_message("%s", diags(a));
        fail_msg("%s: errors", what);
    }
    struct run b = read_text(one);
    if (b.c.errors || !node_equal(a->file, b.file))
        print_message("%s printed:\n%s%s", what, one, diags(&b));
    assert_int_equal(b.c.errors, 0);
    assert_true(node_equal(a->file, b.file));
    for (int i = 0; i < a->file->nkids; i++) {
        const char *x = a->file->kids[i]->doc, *y = b.file->kids[i]->doc;
        assert_true(x == y || (x && y && !strcmp(x, y)));
    }
    same_text(print(&b), one);
    drop(&b);
}

static void prints(const char *body, const char *want)
{
    struct run r = in_kernel(body);
    round_trip(&r, body);
    const char *got = body_of(&r);
    if (want)
        same_text(got, want);
    drop(&r);
}

static void test_expressions(void **state)
{
    (void)state;
    // Parentheses stay only where precedence needs them.
    prints("let a = ((b)) + (c * d)", "    let a = b + c * d\n");
    prints("let a = (b + c) * d", "    let a = (b + c) * d\n");
    prints("let a = b - (c - d)", "    let a = b - (c - d)\n");
    prints("let a = (b - c) - d", "    let a = b - c - d\n");
    prints("let a = (b < c) & (d == e) | f ^ g", "    let a = b < c & d == e | f ^ g\n");
    prints("let a = b < (c & d)", "    let a = b < (c & d)\n");
    prints("let a = (b < c) == d", "    let a = (b < c) == d\n");
    prints("let a = b << (c + d) >> e", "    let a = b << c + d >> e\n");
    prints("let a = -(b + c) * !d", "    let a = -(b + c) * !d\n");
    prints("let a = - - b - -c", "    let a = --b - -c\n");
    prints("let a = ~(-1)", "    let a = ~-1\n");
    prints("let a = b % c / d * e", "    let a = b % c / d * e\n");
    prints("let a = b % (c / d)", "    let a = b % (c / d)\n");
    prints("let a = f()\nlet b = g(1, (2))", "    let a = f()\n    let b = g(1, 2)\n");
    prints("let a = b[(c + 1), d] + (true)", "    let a = b[c + 1, d] + true\n");
}

static void test_floats(void **state)
{
    (void)state;
    prints("let a = 1.0", "    let a = 1.0\n");
    prints("let a = 1.", "    let a = 1.0\n");
    prints("let a = 0.10000000000000000001", "    let a = 0.1\n");
    prints("let a = 0.1000000000000000055511151231257827", "    let a = 0.1\n");
    prints("let a = 0.30000000000000004", "    let a = 0.30000000000000004\n");
    prints("let a = 1e20", "    let a = 1e+20\n");
    prints("let a = 100000.0", "    let a = 100000.0\n");
    prints("let a = 1234567.5e-7", "    let a = 0.12345675\n");
    prints("let a = 0.00010", "    let a = 0.0001\n");
    prints("let a = 0.00001", "    let a = 1e-05\n");
    prints("let a = 1e9", "    let a = 1e+09\n");
    prints("let a = 1e-20", "    let a = 1e-20\n");
    prints("let a = 1.7976931348623157e308", "    let a = 1.7976931348623157e+308\n");
    prints("let a = 5e-324", "    let a = 5e-324\n");
}

static void test_statements(void **state)
{
    (void)state;
    prints("let a: f32[r, c] = 1 @dist(m)\nvar g, u: f32[r] = 0\nlet b: i32 = 2", NULL);
    prints(
        "g = 1; g += 2; g -= 3; g *= 4\ny[a, b + 1] = 3 @dist(x)\ny[a] += 4\ny[a] -= 4",
        "    g = 1\n    g += 2\n    g -= 3\n    g *= 4\n    y[a, b + 1] = 3 @dist(x)\n    y[a] += 4\n    y[a] -= 4\n");
    prints("parallel (e, r) in tiles @tile(128), c in tile(0, I) @tile(64) @exact, b in each(B) { commit() }",
           "    parallel (e, r) in tiles @tile(128), c in tile(0, I) @tile(64) @exact, b in each(B) {\n        "
           "commit()\n    }\n");
    prints("for k in tile(H)\n{\n}\nfor i in each(1, n) { f(i) @dist(a) }", NULL);
    prints("if a { b = 1 }\nelse if c { b = 2 }\nelse\n{ b = 3 }",
           "    if a {\n        b = 1\n    } else if c {\n        b = 2\n    } else {\n        b = 3\n    }\n");
    prints("at k = tile(H), i * 64 @tile(64) { copy(a[s], x[t, k]) }",
           "    at k = tile(H), i * 64 @tile(64) {\n        copy(a[s], x[t, k])\n    }\n");
    prints("role p(0, 4) { barrier() }\nshared a: bf16[4][128, 64] @swizzle(3) @offset(0)",
           "    role p(0, 4) {\n        barrier()\n    }\n    shared a: bf16[4][128, 64] @swizzle(3) @offset(0)\n");
    prints("role p(8,4) @registers(40) { arrive(full[q%3]);await(empty[s],q-1) }\nmma_commit( )\nmma_wait(1)\n"
           "shared full: i32[3][1, 2] @barrier\ncopy(a[s], x[t, k]) @dist(d) @bulk",
           "    role p(8, 4) @registers(40) {\n        arrive(full[q % 3])\n        await(empty[s], q - 1)\n    }\n"
           "    mma_commit()\n    mma_wait(1)\n    shared full: i32[3][1, 2] @barrier\n"
           "    copy(a[s], x[t, k]) @dist(d) @bulk\n");
    prints("layout main { r: l0 l1 r0; c: w0 }\nlayout copy { r: ;\n c: r0\n }\nlet a = 1",
           "    layout main { r: l0 l1 r0; c: w0; }\n    layout copy { r:; c: r0; }\n    let a = 1\n");
    // Words that only their place makes keywords.
    prints("let at = 1\nat = 2\nat += at\nlet role = at\nrole = 3\nshared = 4\nlayout[type] = tile + each + out + x",
           NULL);
}

static void test_declarations(void **state)
{
    static const char *const files[] = {
        "type act = bf16\ntype b = act\n",
        "// doc\nkernel k(a: act[T, 3], b: out f32[T], c: inout i32[N], m: tile_map[N], n: i32) require T % 8 == 0, T "
        "<= 4 "
        "@variant(a) @warps(2, 4) @swap {\n}\n",
        "kernel k()\n\n@a\n{ }\nkernel j() require\n A <= 3\n{ }",
        "kernel k()\nrequire A <= 3\n@a(1)\n{ }",
        "schedule k for a { }\nschedule k.small for a, b { rows 128  k 64 stages 4; warps 2x4+1\npersistent mma "
        "m16n8k16 swap }",
        "kernel k() { } kernel j() { }; type x = f32;",
        "// a\n//\n//  b\nkernel k() { }\n",
        "//\nkernel k() { }\n",
    };
    (void)state;
    for (size_t i = 0; i < COUNTOF(files); i++) {
        struct run r = read_text(files[i]);
        round_trip(&r, files[i]);
        drop(&r);
    }
}

static void test_kernel_files(void **state)
{
    static const char *const patterns[] = { "kernels/*.dsl", "kernels/examples/*.dsl" };
    static char src[1 << 20];
    int seen = 0;
    (void)state;
    for (size_t p = 0; p < COUNTOF(patterns); p++) {
        glob_t g;
        if (glob(patterns[p], 0, NULL, &g))
            continue;
        for (size_t i = 0; i < g.gl_pathc; i++, seen++) {
            FILE *f = fopen(g.gl_pathv[i], "rb");
            assert_non_null(f);
            size_t n = fread(src, 1, sizeof src - 1, f);
            fclose(f);
            struct run r = read_bytes(src, n);
            round_trip(&r, g.gl_pathv[i]);
            drop(&r);
        }
        globfree(&g);
    }
    assert_true(seen >= 3);
}

// Trees that differ anywhere are not equal.
static void test_unequal(void **state)
{
    static const char *const bodies[] = { "let a = 1",
                                          "let b = 1",
                                          "let a = 2",
                                          "let a = 1.0",
                                          "let a = 1.5",
                                          "let a: i32 = 1",
                                          "let a = 1 @d",
                                          "let a = 1 @d(1)",
                                          "let a = 1 @d(x)",
                                          "var a: i32 = 1",
                                          "a = 1",
                                          "a += 1",
                                          "a[1] = 1",
                                          "let a = -1",
                                          "let a = b + c",
                                          "let a = b - c",
                                          "let a = c + b",
                                          "let a = f(b)",
                                          "let a = b[c]",
                                          "for a in tile(1) { }",
                                          "for a in each(1) { }",
                                          "for a in tile(1) { b = 1 }",
                                          "parallel a in tile(1) { }",
                                          "parallel (a, b) in c { }",
                                          "role a(0, 1) { }",
                                          "role a(0, 2) { }",
                                          "role a(1, 1) { }",
                                          "role a(1, 1) @registers(40) { }",
                                          "if a { }",
                                          "if a { } else { }",
                                          "if a { b = 1 }",
                                          "shared a: f32[1][2, 4]",
                                          "shared a: f32[2][2, 4]",
                                          "shared a: f16[1][2, 4]",
                                          "at a = tile(1), 2 { }",
                                          "at a = tile(2), 1 { }",
                                          "layout a { b: r0 }",
                                          "layout a { b: r1 }",
                                          "layout a { c: r0 }" };
    (void)state;
    for (size_t i = 0; i < COUNTOF(bodies); i++) {
        struct run a = in_kernel(bodies[i]);
        assert_int_equal(a.c.errors, 0);
        for (size_t j = 0; j < COUNTOF(bodies); j++) {
            struct run b = in_kernel(bodies[j]);
            if (node_equal(a.file, b.file) != (i == j))
                fail_msg("'%s' and '%s'", bodies[i], bodies[j]);
            drop(&b);
        }
        drop(&a);
    }
}

static void test_tree_form(void **state)
{
    (void)state;
    struct run r = read_text("kernel k(y: out f32[T]) @swap {\n  y[0] += 1.5 @dist(a)\n}\n");
    struct text t = { .arena = r.c.arena };
    print_tree(&t, r.file);
    same_text(t.s, "file <1:1>\n"
                   "  kernel k @swap <1:8>\n"
                   "    param y out <1:10>\n"
                   "      type f32 <1:17>\n"
                   "        name T <1:21>\n"
                   "    block <1:31>\n"
                   "      assign += @dist(a) <2:3>\n"
                   "        subscript y <2:3>\n"
                   "          int 0 <2:5>\n"
                   "        float 1.5 <2:11>\n");
    drop(&r);
}

// ---- limits ----------------------------------------------------------------------------------------------------

static char *repeat(char *to, const char *s, int n)
{
    while (n-- > 0) {
        strcpy(to, s);
        to += strlen(s);
    }
    return to;
}

static void too_deep(const char *open, const char *middle, const char *close, int n, const char *want)
{
    static char src[1 << 20];
    char *p = src;
    p = repeat(p, "kernel k() {\n", 1);
    p = repeat(p, open, n);
    p = repeat(p, middle, 1);
    p = repeat(p, close, n);
    repeat(p, "\n}\n", 1);
    struct run r = read_text(src);
    if (want && !strstr(diags(&r), want))
        fail_msg("%s...: no '%s' in\n%.2000s", open, want, diags(&r));
    if (!want)
        round_trip(&r, open);
    drop(&r);
}

static void test_depth(void **state)
{
    (void)state;
    too_deep("if a { ", "b = 1", " }", 95, NULL);
    too_deep("if a { ", "b = 1", " }", 20000, "nested too deeply");
    too_deep("if a { } else ", "{ }", "", 20000, "nested too deeply");
    too_deep("for a in tile(1) {\n", "", "}\n", 20000, "nested too deeply");
    too_deep("", "a = 1", " + 1", 390, NULL);
    too_deep("", "a = 1", " + 1", 20000, "split it with 'let'");
    static const char *const opens[] = { "a = (", "a = -", "a = f(", "a = b[1, " };
    for (size_t i = 0; i < COUNTOF(opens); i++) {
        static char src[1 << 20];
        for (int n = 190; n < 100000; n += 50000) {
            char *p = src;
            p = repeat(p, "kernel k() {\na = ", 1);
            p = repeat(p, opens[i] + 4, n);
            p = repeat(p, "1", 1);
            p = repeat(p, strchr(opens[i], '(') ? ")" : strchr(opens[i], '[') ? "]" : "", n);
            repeat(p, "\n}\n", 1);
            struct run r = read_text(src);
            assert_true((r.c.errors != 0) == (n > 200));
            if (n > 200)
                assert_non_null(strstr(diags(&r), "nested too deeply"));
            else
                round_trip(&r, opens[i]);
            drop(&r);
        }
    }
}

// Every start of a good file, and every file with one byte taken out, gives a tree or diagnostics.
static void test_cut(void **state)
{
    static const char src[] =
        "type a = bf16\n// d\nkernel k(x: out a[T, 4], m: tile_map[N]) require T % 8 == 0 @swap {\n"
        "  layout main { r: l0 r1; }\n  parallel (e, r) in m @tile(4), c in tile(1, T) {\n"
        "    var g, u: f32[r] = -1.5e3\n    if (g[r] < 2) & !b { x[r, c] += f(g, -u)[1] } else if q { commit() }\n"
        "    shared s: a[2][4, 8] @swizzle(1)\n  }\n}\nschedule k.v for a, b { r 4  warps 2x4+1\n mma m }\n";
    (void)state;
    for (size_t i = 0; i < sizeof src; i++) {
        struct run r = read_bytes(src, i);
        print(&r);
        diags(&r);
        drop(&r);
        char cut[sizeof src];
        memcpy(cut, src, i);
        memcpy(cut + i, src + i + 1, sizeof src - i - 1);
        r = read_bytes(cut, sizeof src - 2);
        print(&r);
        assert_true(r.c.errors == 0 || strlen(diags(&r)) > 10);
        drop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_diagnostics),
        cmocka_unit_test(test_long_line),    cmocka_unit_test(test_too_many),      cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_docs),          cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_floats),       cmocka_unit_test(test_statements),    cmocka_unit_test(test_declarations),
        cmocka_unit_test(test_kernel_files), cmocka_unit_test(test_unequal),       cmocka_unit_test(test_tree_form),
        cmocka_unit_test(test_depth),        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
