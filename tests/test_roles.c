// Roles in the front end: barriers, copies by the engine and groups of products print and read back; what is wrong with
// them is refused with its reason at its place; and every stage of the product reads back, on every arch, as the same
// kernel and code.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "read_file.h"

#include "../compiler/ir.h"
#include "../compiler/moec.h"
#include "../targets/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct ctx c;
    struct module *m;
};

static struct run read_text(const char *src)
{
    struct run r = { 0 };
    int n;
    jmp_buf jmp;
    r.c = (struct ctx){ .arena = arena_new(NULL, NULL), .file = "t.dsl", .src = src, .src_len = strlen(src) };
    r.c.diag_tail = &r.c.diags;
    r.c.jmp = &jmp;
    if (setjmp(jmp))
        return r;
    struct token *t = lex(&r.c, &n);
    struct node *f = parse(&r.c, t, n);
    r.m = r.c.errors ? NULL : check(&r.c, f);
    return r;
}

static void show(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    for (const struct diag *d = r->c.diags; d; d = d->next)
        diag_format(&r->c, d, &t);
    print_message("%s\n%s\n", r->c.src, t.s ? t.s : "(no errors)");
}

static const char *print_first(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    print_dsl(&t, raise_kernel(&r->c, r->m->kernels));
    return t.s;
}

// ---- round trips -----------------------------------------------------------------------------------------------

static bool find_op(void *user, struct op *op)
{
    const struct op **want = user;
    bool hit = op->code == want[0]->code && (op->code != OP_ROLE || !strcmp(op->name, want[0]->name)) &&
               (op->code != OP_COPY || op->bulk == want[0]->bulk) &&
               (op->code != OP_MMA_WAIT || op->ival == want[0]->ival);
    if (hit && !want[1])
        want[1] = op;
    return true;
}

static const struct op *first(const struct kernel *k, struct op like)
{
    const struct op *want[2] = { &like, NULL };
    walk(k->body, find_op, want);
    assert_non_null(want[1]);
    return want[1];
}

static const struct buf *buffer(const struct kernel *k, const char *name)
{
    for (int i = 0; i < k->bufs.n; i++)
        if (!strcmp(k->bufs.v[i]->name, name))
            return k->bufs.v[i];
    fail_msg("no buffer %s", name);
    return NULL;
}

// The kernel of the golden, as it is held.
static void right_fields(const struct kernel *k)
{
    const struct op *load = first(k, (struct op){ .code = OP_ROLE, .name = "load" });
    const struct op *math = first(k, (struct op){ .code = OP_ROLE, .name = "math" });
    assert_true(load->ival == 8 && load->ival2 == 4 && load->regs == 40);
    assert_true(math->ival == 0 && math->ival2 == 8 && math->regs == 208);
    assert_ptr_equal(load->body->parent, load);
    assert_true(k->sched.producers == 4 && k->sched.persistent);
    assert_true(buffer(k, "full")->barrier && !buffer(k, "ring_a")->barrier);
    assert_true(buffer(k, "full")->stages == 3 && buffer(k, "full")->offset == 49152);
    assert_string_equal(first(k, (struct op){ .code = OP_COPY, .bulk = true })->buf2->name, "ring_b");
    assert_string_equal(first(k, (struct op){ .code = OP_COPY, .bulk = false })->buf2->name, "ring_a");
    const struct op *arrive = first(k, (struct op){ .code = OP_ARRIVE });
    assert_true(arrive->buf == buffer(k, "full") && arrive->nargs == 1);
    const struct op *await = first(k, (struct op){ .code = OP_AWAIT });
    assert_true(await->buf == buffer(k, "empty") && await->nargs == 2 && await->args[1]->code == OP_SUB);
    first(k, (struct op){ .code = OP_MMA_COMMIT });
    first(k, (struct op){ .code = OP_MMA_WAIT, .ival = 1 });
    first(k, (struct op){ .code = OP_MMA_WAIT, .ival = 0 });
}

static void test_round_trip(void **state)
{
    (void)state;
    char *src = read_file("tests/golden/check/roles.dsl");
    struct run a = read_text(src);
    if (!a.m) {
        show(&a);
        fail();
    }
    right_fields(a.m->kernels);
    const char *one = print_first(&a);
    struct run b = read_text(one);
    if (!b.m) {
        show(&b);
        fail();
    }
    right_fields(b.m->kernels);
    assert_string_equal(print_first(&b), one);
    assert_string_equal(print_first(&b), one); // printing changes nothing
    arena_free(a.c.arena);
    arena_free(b.c.arena);
    free(src);
}

// ---- what is right, what is wrong --------------------------------------------------------------------------------

#define KERNEL(attributes, outside, body) \
    "kernel k(x: bf16[T, 64], y: inout i32[T]) @warps(2, 2) @producers(2) @shared(8192) " attributes " {\n" \
    "shared full: i32[2][1, 2] @barrier @offset(0)\n" \
    "shared ring: bf16[2][16, 64] @offset(64)\n" \
    "var turn: i32 = 0\n" outside "\nparallel t in tile(T) @tile(16) {\nlet n = T + 1\n" body "\n}\n}\n"
#define BODY(body) KERNEL("", "", body)
#define ROLE(body) BODY("role a(0, 4) {\n" body "\n}")
#define OUTSIDE(outside) KERNEL("", outside, "")

static const char *const rights[] = {
    ROLE("arrive(full[turn % 2]); await(full[0], n - 1); await(full[1], -1)"),
    BODY("role a(0, 4) @registers(24) { }\nrole b(4, 2) @registers(256) { }"),
    BODY("role a(5, 1) { turn += n }\nrole b(1, 4) { var turn: i32 = 0\nturn += n }\nlet after = n"), // another `turn`
    BODY("role a(0, 1) { turn = 1 }\nrole b(1, 1) { turn = 2 }"),                               // and nobody reads
    BODY("let m = turn\nrole a(0, 1) { let v = turn + m }\nrole b(1, 1) { let v = turn + m }"), // and nobody sets
    BODY("let v = y[t]\nlet e = range(16)\nrole a(0, 1) { y[t] = v }\nrole b(1, 1) { let w = v + e }"),
    BODY("shared own: i32[4][1, 2] @barrier\nvar u: i32 = 0\nrole a(0, 1) { arrive(own[3]); u = 1; u += 1 }"),
    KERNEL("@persistent", "shared more: i32[64][1, 2] @barrier @offset(16)", "role a(0, 1) { arrive(more[63]) }"),
    OUTSIDE("let b = T * 2\nlet e = range(16)\nvar u: i32[e] = b"),
    ROLE("let e = range(64)\ncopy(ring[1], x[t, e]) @bulk\narrive(full[1])"),
    BODY("let e = range(64)\ncopy(ring[0], x[t, e])\nmma_commit()\nmma_wait(0)\nmma_wait(64)\nbarrier()"), // no roles
};

static void test_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(rights); i++) {
        struct run r = read_text(rights[i]);
        if (!r.m) {
            show(&r);
            fail_msg("row %d of rights", (int)i);
        }
        struct run again = read_text(print_first(&r));
        if (!again.m)
            show(&again);
        assert_non_null(again.m);
        assert_string_equal(print_first(&again), print_first(&r));
        arena_free(again.c.arena);
        arena_free(r.c.arena);
    }
}

static const struct wrong {
    const char *src, *at, *text; // at: how the source goes on at the place of the error; text: part of its message
} wrongs[] = {
    // barriers
    { OUTSIDE("shared b: f32[2][1, 2] @barrier"), "b: f32",
      "barrier 'b' is f32[2][1, 2]: a barrier is i32[stages][1, 2]" },
    { OUTSIDE("shared b: i32[2][2, 2] @barrier"), "b: i32", "a barrier is i32[stages][1, 2]" },
    { OUTSIDE("shared b: i32[2][1, 4] @barrier"), "b: i32", "a barrier is i32[stages][1, 2]" },
    { OUTSIDE("shared b: i32[2][1, 2] @barrier @offset(12)"), "@offset(12)",
      "starts at byte 12: its @offset must be a multiple of 8" },
    { OUTSIDE("shared b: i32[2][1, 2] @swizzle(1) @barrier"), "@swizzle", "barrier 'b' cannot be swizzled" },
    { KERNEL("@persistent", "", "shared b: i32[2][1, 2] @barrier"), "b: i32",
      "across the tiles of a persistent block: declare it before 'parallel'" },
    { BODY("copy(full[0], x[t, t])"), "full[0]", "'full' is a barrier: it may only stand in arrive and await" },
    { BODY("put(full[0], t)"), "full[0]", "'full' is a barrier" },
    { BODY("let v: f32[t] = mma(0.0, full[0], ring[0])"), "full[0]", "'full' is a barrier" },
    { BODY("let v: f32[t] = mma(0.0, ring[0], full[0])"), "full[0]", "'full' is a barrier" },
    { BODY("let v = full[0]"), "full[0]", "barrier 'full' may only stand in arrive and await" },
    { BODY("full[0] = 1"), "full[0]", "barrier 'full' may only stand in arrive and await" },
    { ROLE("arrive(ring[0])"), "ring[0]", "'ring' is no barrier: declare it shared ring: i32[stages][1, 2] @barrier" },
    { ROLE("await(ring[0], 0)"), "ring[0]", "'ring' is no barrier" },
    { ROLE("arrive(y[0])"), "y[0]", "expected a slot of a shared buffer" },
    { ROLE("arrive(full[t])"), "t])", "the slot must be a scalar i32, not i32[t]" },
    { ROLE("await(full[0], t)"), "t)", "the phase must be a scalar i32, not i32[t]" },
    { ROLE("await(full[0], 1.5)"), "1.5)", "expected i32, found a floating-point number" },
    { ROLE("arrive(full[0], 1)"), "arrive", "'arrive' takes 1 argument, found 2: arrive(barrier[slot])" },
    { ROLE("await(full[0])"), "await", "'await' takes 2 arguments, found 1: await(barrier[slot], phase)" },
    { BODY("arrive(full[0])"), "arrive", "'arrive' may stand only in a role" },
    { BODY("await(full[0], 0)"), "await", "'await' may stand only in a role" },
    { ROLE("let v = arrive(full[0])"), "arrive", "'arrive' is a statement" },
    // roles
    { OUTSIDE("role a(0, 1) { }"), "a(0, 1)", "role 'a' must stand directly in the body of 'parallel'" },
    { BODY("if n > 0 { role a(0, 1) { } }"), "a(0, 1)", "role 'a' must stand directly in the body of 'parallel'" },
    { BODY("for i in each(2) { role a(0, 1) { } }"), "a(0, 1)",
      "role 'a' must stand directly in the body of 'parallel'" },
    { ROLE("role b(4, 1) { }"), "b(4, 1)", "role 'b' stands in role 'a': roles stand side by side" },
    { BODY("role a(0, 0) { }"), "a(0, 0)", "role 'a' has no warps" },
    { BODY("role a(6, 1) { }"), "a(6, 1)",
      "role 'a' takes 1 warps from warp 6, but the block has 6: @warps(2, 2) and @producers(2)" },
    { BODY("role a(4, 3) { }"), "a(4, 3)", "role 'a' takes 3 warps from warp 4, but the block has 6" },
    { BODY("role a(1, 9223372036854775807) { }"), "a(1, 9", "but the block has 6" },
    { BODY("role a(0, 4) { }\nrole b(3, 2) { }"), "b(3, 2)", "role 'b' takes warp 3, which role 'a' has" },
    { BODY("role a(3, 2) { }\nrole b(0, 4) { }"), "b(0, 4)", "role 'b' takes warp 3, which role 'a' has" },
    { "kernel k(y: out i32[T]) @warps(1, 1) {\nparallel t in tile(T) {\nrole a(0, 1) { }\n} }", "a(0, 1)",
      "whose warps and layout are stated" },
    { "kernel k(y: out i32[T]) @shared(0) {\nparallel t in tile(T) {\nrole a(0, 1) { }\n} }", "a(0, 1)",
      "whose warps and layout are stated" },
    { BODY("role a(0, 1) @registers(50) { }"), "50", "'@registers' takes a multiple of 8 from 24 to 256, not 50" },
    { BODY("role a(0, 1) @registers(16) { }"), "16", "'@registers' takes 24 to 256, not 16" },
    { BODY("role a(0, 1) @registers(264) { }"), "264", "'@registers' takes 24 to 256, not 264" },
    { BODY("role a(0, 1) @bulk { }"), "@bulk", "'@bulk' has no meaning here; known are: registers" },
    { BODY("role a(0, 1) { let v = n + 1 }\nrole b(1, 1) { let w = v }"), "v }",
      "value 'v' is used outside its block" },
    { BODY("role a(0, 1) { let v = n + 1 }\nlet w = v"), "v\n", "value 'v' is used outside its block" },
    { ROLE("barrier()"), "barrier()",
      "'barrier' waits for all warps of the block, role 'a' has only some: roles meet by arrive and await" },
    { BODY("role a(0, 1) { }\ny[t] = 1"), "y[t]",
      "'store' stands beside roles, each of which would run it: move it into one" },
    { BODY("turn += 1\nrole a(0, 1) { }"), "turn +=", "'set' stands beside roles" },
    { BODY("role a(0, 1) { }\nif n > 0 { y[t] = 1 }"), "if", "'if' stands beside roles" },
    { BODY("let v = reduce_sum(t, t)\nrole a(0, 1) { }"), "reduce_sum", "'reduce_sum' stands beside roles" },
    // variables
    { BODY("role a(0, 1) { turn = 1 }\nrole b(1, 1) { y[t] = turn }"), "turn }",
      "variable 'turn' is set in role 'a' and read in role 'b': each role has its own copy; pass values through shared "
      "memory" },
    { BODY("role b(1, 1) { for i in each(n) { y[t] = turn } }\nrole a(0, 1) { if n > 0 { turn = 1 } }"), "turn }",
      "set in role 'a' and read in role 'b'" },
    { BODY("role a(0, 1) { turn += 1 }\nrole b(1, 1) { turn = 2 }"),
      "turn +=", "set in role 'b' and read in role 'a'" },
    { BODY("role a(0, 1) { turn = 1 }\nrole b(1, 1) { turn = 2; let v = turn }"), "turn }",
      "set in role 'a' and read in role 'b'" },
    { BODY("role a(0, 1) { turn = 1 }\nlet v = turn"), "turn\n", "set in role 'a' and read beside the roles" },
    // copies, groups
    { BODY("let e = range(64)\nput(ring[0], x[t, e]) @bulk"), "@bulk", "'@bulk' has no meaning here" },
    { BODY("let e = range(64)\ncopy(ring[0], x[t, e]) @bulk"), "@bulk",
      "a copy by the engine may stand only in a role" },
    { BODY("barrier() @bulk"), "@bulk", "'@bulk' has no meaning here" },
    { BODY("y[t] = 1 @bulk"), "@bulk", "'@bulk' has no meaning here" },
    { BODY("mma_wait(-1)"), "-1", "'mma_wait' takes a number from 0 to 64" },
    { BODY("mma_wait(n)"), "n)", "'mma_wait' takes a number from 0 to 64" },
    { BODY("mma_wait()"), "mma_wait", "'mma_wait' takes 1 argument, found 0: mma_wait(groups still pending)" },
    { BODY("mma_commit(1)"), "mma_commit", "'mma_commit' takes no arguments, found 1" },
    { BODY("let v = mma_wait(1)"), "mma_wait", "'mma_wait' is a statement" },
    { BODY("let v = mma_commit()"), "mma_commit", "'mma_commit' is a statement" },
    // before and after the grid
    { OUTSIDE("barrier()"), "barrier()",
      "only scalar values for its bounds, shared buffers, variables and ranges may stand before it" },
    { OUTSIDE("y[0] = 1"), "y[0]", "'parallel' must be the outermost statement" },
    { OUTSIDE("turn = 1"), "turn = 1", "'parallel' must be the outermost statement" },
    { OUTSIDE("var u: i32 = y[0]"), "y[0]", "'parallel' must be the outermost statement" },
    { "kernel k(y: out i32[T]) {\nvar u: i32 = 0\nparallel t in tile(T) { y[t] = u } }", "u: i32",
      "only scalar values for its bounds may stand" },
    { "kernel k(y: out i32[T]) @shared(0) {\nparallel t in tile(T) { y[t] = 1 }\nvar u: i32 = 0\n}", "0\n",
      "nothing after it" },
    // attributes
    { "kernel k() @warps(8, 2) @producers(17) { }", "@producers", "a block has at most 32 warps, not 8 x 2 + 17" },
    { "kernel k() @warps(1, 1) @producers(32) { }", "32)", "'@producers' takes 0 to 31, not 32" },
    { "kernel k() { }\nschedule k for sm_90a { warps 2x1+3 }", "warps",
      "the warps after '+', which only copy, must be a power of two, not 3" },
    { "kernel k() { }\nschedule k for sm_90a { warps 4x4+32 }", "warps", "a block has at most 32 warps, not 48" },
    { "kernel k() { }\nschedule k for sm_90a { warps 16+32 }", "warps", "a block has at most 32 warps, not 48" },
};

static const char *place(const char *src, struct loc at)
{
    for (int line = 1; line < at.line; line++)
        src = strchr(src, '\n') + 1;
    return src + at.col - 1;
}

static void test_wrong(void **state)
{
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < COUNTOF(wrongs); i++) {
        const struct wrong *w = &wrongs[i];
        struct run r = read_text(w->src);
        const struct diag *d = r.c.diags;
        bool ok = d && !r.m && r.c.errors == 1 && strstr(d->text, w->text) &&
                  !strncmp(place(w->src, d->loc), w->at, strlen(w->at));
        if (!ok) {
            print_message("row %d: expected one error at '%s': %s; found:\n", (int)i, w->at, w->text);
            show(&r);
            failed++;
        }
        arena_free(r.c.arena);
    }
    assert_int_equal(failed, 0);
}

// Every role is listed once by what runs them: as many as there may be.
static void test_many(void **state)
{
    (void)state;
    for (int n = 16; n <= 17; n++) {
        char src[4096];
        int len =
            snprintf(src, sizeof src, "kernel k() @warps(16, 2) @shared(0) {\nparallel t in tile(4) @tile(4) {\n");
        for (int i = 0; i < n; i++)
            len += snprintf(src + len, sizeof src - (size_t)len, "role a(%d, 1) { }\n", i);
        snprintf(src + len, sizeof src - (size_t)len, "}\n}\n");
        struct run r = read_text(src);
        assert_true(!r.m == (n > 16));
        if (n > 16)
            assert_string_equal(r.c.diags->text, "a kernel has at most 16 roles");
        arena_free(r.c.arena);
    }
}

// ---- the product -------------------------------------------------------------------------------------------------

struct kept {
    const char *stage;
    char *text;
};

static void keep(void *user, const char *stage, const char *text, size_t n)
{
    struct kept *k = user;
    if (!strcmp(stage, k->stage)) {
        free(k->text);
        k->text = strndup(text, n);
    }
}

// The text of a stage, or the assembly text; the caller frees it. What is compared here is text: nothing is verified.
static char *compile(const char *src, const char *arch, const char *stage, const struct moec_binding *bind, int nbind)
{
    struct kept k = { stage, NULL };
    bool code = !strcmp(stage, "asm");
    struct moec_options o = { .size = sizeof o,
                              .arch = arch,
                              .emit = code ? MOEC_ASM : MOEC_TILE,
                              .bindings = bind,
                              .nbindings = nbind,
                              .no_verify = true,
                              .stop_after = code ? NULL : stage,
                              .dump = keep,
                              .user = &k };
    struct moec_result *r = moec_compile(src, strlen(src), "moe.dsl", &o);
    assert_non_null(r);
    for (int i = 0; moec_diagnostic(r, i); i++)
        print_message("%s", moec_diagnostic(r, i)->formatted);
    assert_int_equal(moec_status(r), MOEC_OK);
    if (code) {
        size_t n;
        free(k.text);
        k.text = strdup(moec_code(r, &n));
    }
    moec_free(r);
    assert_non_null(k.text);
    return k.text;
}

static void same(const char *what, const char *arch, char *a, char *b)
{
    if (strcmp(a, b)) {
        size_t i = 0, line = 0;
        for (; a[i] == b[i]; i++)
            line = a[i] == '\n' ? i + 1 : line;
        fail_msg("%s, %s:\n%.*s\nreads back as\n%.*s", arch, what, (int)strcspn(a + line, "\n"), a + line,
                 (int)strcspn(b + line, "\n"), b + line);
    }
    free(b);
}

static void test_dumps(void **state)
{
    static const char *const stages[] = { "tile", "expand", "sched", "layout" };
    static const struct moec_binding bind[] = { { "H", 4096, NULL }, { "I", 1536, NULL }, { "act", 0, "f16" } };
    (void)state;
    char *src = read_file("kernels/moe.dsl");
    for (int i = 0; moec_arch_name(i); i++)
        for (size_t j = 0; j < COUNTOF(stages); j++)
            for (int bound = 0; bound < 2; bound++) {
                const char *arch = moec_arch_name(i);
                char *one = compile(src, arch, stages[j], bind, bound ? COUNTOF(bind) : 0);
                same(stages[j], arch, one, compile(one, arch, stages[j], NULL, 0)); // through the passes again
                same(stages[j], arch, one, compile(one, arch, "tile", NULL, 0));    // as it is read
                free(one);
            }
    free(src);
}

static void test_code(void **state)
{
    (void)state;
    char *src = read_file("kernels/moe.dsl"), *layout = compile(src, "sm_90a", "layout", NULL, 0);
    static const char *const parts[] = { "@producers(",  "@persistent",  "@barrier",   "role load(",
                                         "role math(",   "@registers(",  "@bulk",      "await(full_",
                                         "arrive(full_", "mma_commit()", "mma_wait(0)" };
    for (size_t i = 0; i < COUNTOF(parts); i++)
        if (!strstr(layout, parts[i]))
            fail_msg("nothing in the layout of sm_90a has %s", parts[i]);
    char *code = compile(src, "sm_90a", "asm", NULL, 0);
    same("code", "sm_90a", code, compile(layout, "sm_90a", "asm", NULL, 0));
    free(code);
    free(layout);
    free(src);
}

static void has(const char *text, const char *part, bool want)
{
    if (!strstr(text, part) == want)
        fail_msg("%s in\n%s", part, text);
}

// warps MxN+P and persistent of a schedule.
static void test_schedule(void **state)
{
    static const char gemm[] =
        "kernel gemm(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N]) require K %% 8 == 0 {\nparallel m in tile(M), n "
        "in tile(N) {\n"
        "var s: f32[m, n] = 0\nfor k in tile(K) { s += dot(a[m, k], b[n, k]) }\nc[m, n] = s\n} }\n"
        "schedule gemm for sm_90a { m 64  n 64  k 64  stages 3  %s }\n";
    static const struct {
        const char *items;
        bool producers, persistent;
    } rows[] = { { "warps 4x1+4 persistent", true, true },
                 { "warps 4x1+4", true, false },
                 { "warps 4x1", false, false } };
    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        char src[1024];
        snprintf(src, sizeof src, gemm, rows[i].items);
        char *out = compile(src, "sm_90a", "layout", NULL, 0);
        has(out, "@warps(4, 1) @producers(4) @stages(3)", rows[i].producers);
        has(out, "role load(4, 4)", rows[i].producers);
        has(out, "@persistent", rows[i].persistent);
        same(rows[i].items, "sm_90a", out, compile(out, "sm_90a", "layout", NULL, 0));
        free(out);
    }
}

// A kernel that waits for the one launched before it, in all the places where that may stand, also reads back to the same code.
static void test_early(void **state)
{
    (void)state;
    char *src = read_file("tests/golden/layout/early+sm_90a.dsl"), *dump = compile(src, "sm_90a", "layout", NULL, 0);
    char *code = compile(src, "sm_90a", "asm", NULL, 0);
    assert_non_null(strstr(dump, "    depend()\n    parallel"));
    same("early", "sm_90a", code, compile(dump, "sm_90a", "asm", NULL, 0));
    free(code);
    free(dump);
    free(src);
}

// What is too narrow for an asynchronous copy is not waited for by an arrival: not emitted in a role.
static void test_narrow(void **state)
{
    static const char gathered[] =
        "kernel k(a: bf16[T, K], row: i32[M], b: bf16[N, K], c: out bf16[M, N]) require K % 8 == 0, N % 8 == 0 {\n"
        "  parallel m in tile(M), n in tile(N) {\n    let t = row[m]\n    var s: f32[m, n] = 0\n"
        "    for k in tile(K) { s += dot(a[t, k], b[n, k]) }\n    c[m, n] = s\n  }\n}\n";
    static const char rule[] = "K % 8 == 0, ";
    (void)state;
    struct moec_options o = { .size = sizeof o, .arch = "sm_90a", .emit = MOEC_ASM };
    char *src = compile(gathered, "sm_90a", "layout", NULL, 0), *at = strstr(src, rule);
    assert_non_null(at);
    assert_non_null(strstr(src, "role load("));
    for (int narrow = 0; narrow < 2; narrow++) {
        struct moec_result *r = moec_compile(src, strlen(src), "k.dsl", &o);
        if (narrow) {
            assert_int_equal(moec_status(r), MOEC_INPUT);
            assert_non_null(strstr(moec_diagnostic(r, 0)->text, "pieces of 2 bytes go through registers"));
        } else if (moec_status(r)) {
            fail_msg("%s", moec_diagnostic(r, 0)->formatted);
        }
        moec_free(r);
        memset(at, ' ', strlen(rule));
    }
    free(src);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip), cmocka_unit_test(test_right),
                                        cmocka_unit_test(test_wrong),      cmocka_unit_test(test_many),
                                        cmocka_unit_test(test_dumps),      cmocka_unit_test(test_code),
                                        cmocka_unit_test(test_schedule),   cmocka_unit_test(test_early),
                                        cmocka_unit_test(test_narrow) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
