// The verifier must object: each case is a laid-out kernel of kernels/moe.dsl with one thing broken, as a faulty pass or a
// careless user would break it, and the words that the fault must contain. The unbroken kernel must pass.
#include "dsl.h"

static char *moe;

struct change {
    const char *arch, *kernel, *variant, *from, *to, *fault;
    int which; // occurrence of `from`, 0 the first
};
static const struct change changes[] = {
    { "sm_90a", "gate_up", "r128", "wait(2)", "wait(3)", "before its copy was waited for", 0 },
    { "sm_90a", "gate_up", "r128", "            wait(2)\n", "", "before its copy was waited for", 0 },
    { "sm_90a", "gate_up", "r128", "            barrier()\n", "", "before a barrier", 0 },
    { "sm_90a", "gate_up", "r128", "+ 3", "+ 4", "slot", 0 },         // the copy goes into the slot being read
    { "sm_90a", "gate_up", "r128", "each(3)", "each(2)", "slot", 0 }, // the ring is filled one short
    { "sm_90a", "gate_up", "r128", "            commit()\n", "", "waited for", 1 },
    { "sm_90a", "gate_up", "r128", "        wait(0)\n", "", "nobody waited for", 0 },
    { "sm_90a", "gate_up", "r128", "& 3", "& 7", "outside", 0 },
    { "sm_90a", "gate_up", "r128", "@offset(65536)", "@offset(32768)", "overlap", 0 },
    { "sm_90a", "gate_up", "r128", "@offset(131072)", "@offset(180224)", "outside the block", 0 },
    { "sm_90a", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l3 l4 r0 r1 r2 w1", "same warp bit", 0 },
    { "sm_90a", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l3 l4 r0 r1 r3 w0", "numbered", 0 },
    { "sm_90a", "gate_up", "r128", "rows: l2 l3 l4 r0 r1 r2 w0", "rows: l2 l2 l4 r0 r1 r2 w0", "share a place", 0 },
    { "sm_90a", "gate_up", "r128", "cols: r0 l0 l1 r1 r2 w1 w2", "cols: r0 l0 l1 r1 r2 w1 w4", "lacks", 0 },
    { "gfx950", "gate_up", "r16", "            barrier()\n", "", "before a barrier", 0 },
    { "gfx942", "down", "r128", "            barrier()\n", "", "may still read", 0 },
    { "gfx942", "down", "r128", "            barrier()\n", "", "before a barrier", 1 },
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(objects), cmocka_unit_test(scopes) };
    return cmocka_run_group_tests(tests, read_moe, free_moe);
}
