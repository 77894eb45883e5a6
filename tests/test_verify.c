// The verifier must object: each case is a laid-out kernel of kernels/moe.dsl with one thing broken, as a faulty pass or a
// careless user would break it, and the words that the fault must contain. The unbroken kernel must pass.
#include "dsl.h"

static char *moe;

struct change {
    const char *arch, *kernel, *variant, *from, *to, *fault;
    int which; // occurrence of `from`, 0 the first
};
static const struct change changes[] = {
    { "sm_80", "gate_up", "r128", "wait(1)", "wait(2)", "before its copy was waited for", 0 },
    { "sm_80", "gate_up", "r128", "            wait(1)\n", "", "before its copy was waited for", 0 },
    { "sm_80", "gate_up", "r128", "            barrier()\n", "", "before a barrier", 0 },
    { "sm_80", "gate_up", "r128", "i_2 + 2", "i_2 + 3", "slot", 0 }, // the copy goes into the slot being read
    { "sm_80", "gate_up", "r128", "each(2)", "each(1)", "slot", 0 }, // the ring is filled one short
    { "sm_80", "gate_up", "r128", "            commit()\n", "", "waited for", 1 },
    { "sm_80", "gate_up", "r128", "        wait(0)\n", "", "nobody waited for", 0 },
    { "sm_80", "gate_up", "r128", "% 3", "% 4", "outside", 0 },
    { "sm_80", "gate_up", "r128", "@offset(49152)", "@offset(32768)", "overlap", 0 },
    { "sm_80", "gate_up", "r128", "@offset(98304)", "@offset(131072)", "outside the block", 0 },
    { "sm_80", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l3 l4 r0 r1 r2 w1", "same warp bit", 0 },
    { "sm_80", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l3 l4 r0 r1 r3 w0", "numbered", 0 },
    { "sm_80", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l2 l4 r0 r1 r2 w0", "share a place", 0 },
    { "sm_80", "gate_up", "r128", "cols: r0 l0 l1 r1 r2 w1 w2", "cols: r0 l0 l1 r1 r2 w1 w4", "lacks", 0 },
    { "gfx950", "gate_up", "r16", "            barrier()\n", "", "before a barrier", 0 },
    { "gfx942", "down", "r128", "            barrier()\n", "", "may still read", 0 },
    { "gfx942", "down", "r128", "            barrier()\n", "", "before a barrier", 1 },
    // a gathered index in another distribution than the load
    { "gfx942", "gate_up", "r128", "row_token[rows] @dist(copy_128x32)", "row_token[rows]", "has it elsewhere", 0 },
};

static const char *laid_out(struct dsl *d, const struct change *g)
{
    struct kernel *k = d->m->kernels;
    struct text t = { .arena = d->c.arena };
    int n;
    while (k && strcmp(k->name, g->kernel))
        k = k->next;
    assert_non_null(k);
    expand(&d->c, k);
    fold(&d->c, k);
    struct kernel **v = schedule(&d->c, d->m, k, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i]->sched.variant, g->variant)) {
            layout(&d->c, v[i]);
            print_dsl(&t, raise_kernel(&d->c, v[i]));
        }
    assert_non_null(t.s);
    return t.s;
}

static char *changed(struct dsl *d, const char *text, const struct change *g)
{
    const char *at = strstr(text, g->from);
    for (int i = 0; at && i < g->which; i++)
        at = strstr(at + 1, g->from);
    if (!at)
        fail_msg("'%s' is not in:\n%s", g->from, text);
    struct text t = { .arena = d->c.arena };
    text_put(&t, text, (size_t)(at - text));
    text_printf(&t, "%s%s", g->to, at + strlen(g->from));
    return t.s;
}

static void objects(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(changes); i++) {
        const struct change *g = &changes[i];
        struct dsl d, sound, broken;
        struct text t;
        dsl_open(&d, g->arch, moe);
        const char *text = laid_out(&d, g);
        dsl_open(&sound, g->arch, text);
        if (!verify(&sound.c, sound.m->kernels, ST_LAYOUT)) {
            dsl_errors(&sound, &t);
            fail_msg("the unbroken kernel: %s", t.s);
        }
        dsl_open(&broken, g->arch, changed(&d, text, g));
        bool ok = verify(&broken.c, broken.m->kernels, ST_LAYOUT);
        dsl_errors(&broken, &t);
        if (ok || !strstr(t.s, g->fault))
            fail_msg("case %d, '%s' -> '%s': no '%s' in: %.600s", (int)i, g->from, g->to, g->fault,
                     ok ? "(nothing)" : t.s);
        dsl_close(&broken);
        dsl_close(&sound);
        dsl_close(&d);
    }
}

// Faults that no text can say: made in the structures.
static void scopes(void **state)
{
    struct dsl d;
    (void)state;
    dsl_open(&d, "sm_90a",
             "kernel k(x: f32[N], y: out f32[N]) {\n  parallel n in tile(N) { y[n] = exp(x[n]) * 2 }\n}\n");
    struct kernel *k = d.m->kernels;
    assert_true(verify(&d.c, k, ST_TILE));
    assert_false(verify(&d.c, k, ST_EXPAND)); // exp is composite
    d.c.errors = 0;
    struct block *b = k->body->ops.v[k->body->ops.n - 1]->body; // of the parallel
    assert_non_null(b);
    struct op *first = b->ops.v[0];
    memmove(b->ops.v, b->ops.v + 1, sizeof *b->ops.v * (size_t)(b->ops.n - 1));
    b->ops.v[b->ops.n - 1] = first; // used before it is defined
    assert_false(verify(&d.c, k, ST_TILE));
    dsl_close(&d);
}

// ---- one small kernel with all that declares bounds, and two distributions ----------------------------------------

static const char small[] =
    "kernel k(x: f32[M, N], i: i32[M], c: inout i32[M], y: out f32[M, N]) @warps(1, 1) {\n"
    "layout main { m: l2 l3 l4 r0; n: r0 l0 l1 r1 r2; j: l2 l3 l4 r0; p: l2 l3 l4 r0; q: l2 l3 l4 r0; }\n"
    "layout other { m: l0 l1 l2 l3; n: r0 l4 r1 r2 r3; }\n"
    "parallel m in tile(M) @tile(16), n in tile(N) @tile(32) {\n"
    "  let half: i32 = N / 2\n"
    "  let real: f32 = f32(N)\n"
    "  let j = range(0, 16) @tile(16)\n"
    "  let row: i32[m] = i[m]\n"
    "  let a: f32[m, n] = x[m, n]\n"
    "  let b: f32[m, n] = x[row, n]\n"
    "  var s: f32[m, n] = a\n"
    "  for p in tile(half, N) @tile(16) {\n"
    "    let inner: i32 = M / 3\n"
    "    let z: i32[p] = p + inner\n"
    "    c[p] = z\n"
    "  }\n"
    "  for t in each(half) {\n"
    "    s = b\n"
    "  }\n"
    "  at q = tile(N), half @tile(16) {\n"
    "    atomic_add(c[q], half)\n"
    "  }\n"
    "  if half < 3 {\n"
    "    c[j] = j\n"
    "  }\n"
    "  let u: f32[m, n] = select(a < b, a, 0.0)\n"
    "  let v: f32[m, n] = s\n"
    "  let w: f32[m] = reduce_sum(v, n)\n"
    "  y[m, n] = u + w\n"
    "}\n}\n";

static const char elsewhere[] = "is used where layout";
static const struct change distributions[] = {
    { NULL, NULL, NULL, "a: f32[m, n] = x[m, n]", "a: f32[m, n] = x[m, n] @dist(other)", elsewhere, 0 }, // arithmetic
    { NULL, NULL, NULL, "b: f32[m, n] = x[row, n]", "b: f32[m, n] = x[row, n] @dist(other)", elsewhere, 0 }, // an index
    { NULL, NULL, NULL, "row: i32[m] = i[m]", "row: i32[m] = i[m] @dist(other)", elsewhere, 0 },
    { NULL, NULL, NULL, "s: f32[m, n] = a", "s: f32[m, n] = a @dist(other)", elsewhere, 0 }, // the first value
    { NULL, NULL, NULL, "v: f32[m, n] = s", "v: f32[m, n] = s @dist(other)", elsewhere, 0 }, // of a variable
    { NULL, NULL, NULL, "w: f32[m] = reduce_sum(v, n)", "w: f32[m] = reduce_sum(v, n) @dist(other)", elsewhere, 0 },
    { NULL, NULL, NULL, "u: f32[m, n] = select(a < b, a, 0.0)", "u: f32[m, n] = select(a < b, a, 0.0) @dist(other)",
      elsewhere, 0 },
    { NULL, NULL, NULL, "y[m, n] = u + w", "y[m, n] = u + w @dist(other)", elsewhere, 0 },
};

static void small_is(const char *text, const char *fault)
{
    struct dsl d;
    struct text t;
    dsl_open(&d, "sm_80", text);
    bool ok = verify(&d.c, d.m->kernels, ST_LAYOUT);
    dsl_errors(&d, &t);
    if (ok != !fault || (fault && !strstr(t.s, fault)))
        fail_msg("no '%s' in: %.600s\n%s", fault ? fault : "(nothing)", ok ? "(nothing)" : t.s, text);
    dsl_close(&d);
}

static void one_distribution(void **state)
{
    (void)state;
    small_is(small, NULL);
    for (size_t i = 0; i < COUNTOF(distributions); i++) {
        struct dsl d;
        dsl_open(&d, "sm_80", small);
        small_is(changed(&d, small, &distributions[i]), distributions[i].fault);
        dsl_close(&d);
    }
}

// Operand `arg` of the first op of a code becomes another value; `how`: the axis's own bound with it, or alone.
enum { ARG0, ARG1, CLAUSE_LO, CLAUSE_HI };
enum { BOTH = 1, AXIS_ALONE = 2 }; // which of the two ways to a bound
static const struct bound {
    enum opcode code;
    int arg, how;
    const char *value, *fault; // value: the name of a let
} bounds[] = {
    { OP_RANGE, ARG1, BOTH, "real", "operand 2 of 'range' must be a scalar i32" },
    { OP_RANGE, ARG0, BOTH, "real", "operand 1 of 'range' must be a scalar i32" },
    { OP_RANGE, ARG1, BOTH, "row", "operand 2 of 'range' is used out of its scope" }, // defined behind it
    { OP_RANGE, ARG1, 0, "half", "the bounds of axis 'j' are not the operands of its 'range'" },
    { OP_RANGE, ARG1, AXIS_ALONE, "half", "the bounds of axis 'j' are not the operands of its 'range'" },
    { OP_AT, ARG0, BOTH, "row", "operand 1 of 'at' must be a scalar i32, not i32[m]" },
    { OP_AT, ARG1, BOTH, "row", "operand 2 of 'at' must be a scalar i32, not i32[m]" },
    { OP_AT, ARG0, BOTH, "real", "operand 1 of 'at' must be a scalar i32, not f32" },
    { OP_AT, ARG1, BOTH, "inner", "operand 2 of 'at' is used out of its scope" },
    { OP_AT, ARG0, AXIS_ALONE, "real", "the bounds of axis 'q' are not the operands of its 'at'" },
    { OP_FOR, ARG0, BOTH, "row", "operand 1 of 'for' must be a scalar i32" },
    { OP_FOR, ARG1, BOTH, "real", "operand 2 of 'for' must be a scalar i32" },
    { OP_FOR, ARG1, AXIS_ALONE, "half", "the bounds of axis 'p' are not the operands of its 'for'" },
    { OP_EACH, ARG1, 0, "row", "operand 2 of 'each' must be a scalar i32" },
    { OP_IF, ARG0, 0, "half", "operand 1 of 'if' must be a scalar bool" },
    { OP_STORE, ARG0, 0, "real", "index 1 of 'c' must be i32" },
    { OP_VAR, ARG0, 0, "half", "variable 's' is f32[m, n], the value is i32" },
    { OP_PARALLEL, CLAUSE_HI, BOTH, "half", "a bound of clause 1 of 'parallel' is used out of its scope" },
    { OP_PARALLEL, CLAUSE_LO, AXIS_ALONE, "half", "the bounds of axis 'm' are not those of its clause" },
};

struct search {
    enum opcode code;
    const char *name;
    struct op *found;
};

static bool look(void *user, struct op *op)
{
    struct search *s = user;
    if (s->name ? op->name && !strcmp(op->name, s->name) : op->code == s->code)
        s->found = op;
    return !s->found;
}

static struct op *find(struct kernel *k, enum opcode code, const char *name)
{
    struct search s = { code, name, NULL };
    walk(k->body, look, &s);
    if (!s.found)
        fail_msg("no op %d '%s'", (int)code, name ? name : "");
    return s.found;
}

static void breaks(const struct bound *b, struct kernel *k)
{
    struct op *op = find(k, b->code, NULL), *v = find(k, OP_COUNT, b->value);
    struct clause *c = b->arg >= CLAUSE_LO ? &op->clauses[0] : NULL;
    struct axis *a = c ? c->axis : op->axis;
    bool high = b->arg == ARG1 || b->arg == CLAUSE_HI;
    if (b->how != AXIS_ALONE && c)
        *(high ? &c->hi : &c->lo) = v;
    else if (b->how != AXIS_ALONE)
        op->args[high] = v;
    if (b->how)
        *(high ? &a->hi : &a->lo) = v;
}

static void bounds_of_axes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(bounds); i++) {
        struct dsl d;
        struct text t;
        dsl_open(&d, "sm_80", small);
        breaks(&bounds[i], d.m->kernels);
        bool ok = verify(&d.c, d.m->kernels, ST_LAYOUT);
        dsl_errors(&d, &t);
        if (ok || !strstr(t.s, bounds[i].fault))
            fail_msg("case %d: no '%s' in: %.600s", (int)i, bounds[i].fault, ok ? "(nothing)" : t.s);
        dsl_close(&d);
    }
}

static int read_moe(void **state)
{
    FILE *f = fopen("kernels/moe.dsl", "rb");
    (void)state;
    moe = calloc(1, 1 << 20);
    size_t n = f && moe ? fread(moe, 1, (1 << 20) - 1, f) : 0;
    if (f)
        fclose(f);
    return n ? 0 : -1;
}

static int free_moe(void **state)
{
    (void)state;
    free(moe);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(objects), cmocka_unit_test(scopes),
                                        cmocka_unit_test(one_distribution), cmocka_unit_test(bounds_of_axes) };
    return cmocka_run_group_tests(tests, read_moe, free_moe);
}
