// The passes schedule and layout: for every arch and kernel of kernels/moe.dsl the laid-out form prints, parses back
// and means the same as before (eval with asynchronous copies landing as late as the rules allow). Small ragged
// shapes: nothing is a multiple of a tile.
#include "../compiler/describe.h"
#include "../targets/target.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { T = 7, K = 2, S = T * K, E = 5, H = 72, I = 40, R = S, N = 8, C = 3, CHUNK = 6, BLOCK = 16 };

static char *source;

struct fixture {
    struct ctx c;
    jmp_buf jb;
};

static void begin(struct fixture *f, const char *arch, const char *src)
{
    memset(f, 0, sizeof *f);
    f->c.arena = arena_new(NULL, NULL);
    f->c.file = "moe.dsl";
    f->c.src = src;
    f->c.src_len = strlen(src);
    f->c.diag_tail = &f->c.diags;
    f->c.arch = arch_find(arch);
    assert_non_null(f->c.arch);
}

static void no_errors(struct fixture *f)
{
    struct text t = { .arena = f->c.arena };
    for (struct diag *d = f->c.diags; d; d = d->next)
        diag_format(&f->c, d, &t);
    if (f->c.errors)
        fail_msg("%s", t.s);
}

static struct module *front(struct fixture *f)
{
    int n;
    struct token *t = lex(&f->c, &n);
    struct module *m = check(&f->c, parse(&f->c, t, n));
    no_errors(f);
    assert_non_null(m);
    return m;
}

static char *printed(struct fixture *f, const struct kernel *k)
{
    struct text t = { .arena = f->c.arena };
    print_dsl(&t, raise_kernel(&f->c, k));
    return t.s;
}

// ---- inputs -----------------------------------------------------------------------------------------------------

static uint32_t seed = 1;
static float unit(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

static uint16_t bf16_of(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct args {
    struct eval_arg v[16];
    int64_t dims[8];
    int n, nd;
    void *own[16];
};

static const struct {
    const char *name;
    int64_t v;
} dim_values[] = { { "T", T }, { "K", K }, { "S", S }, { "E", E }, { "H", H }, { "I", I },
                   { "R", R }, { "N", N }, { "C", C }, { "L", E }, { "F", E }, { "G", E } };

static int64_t dim_value(const char *name)
{
    for (size_t i = 0; i < COUNTOF(dim_values); i++)
        if (!strcmp(dim_values[i].name, name))
            return dim_values[i].v;
    fail_msg("no value for dimension %s", name);
    return 0;
}

// Contents that the kernels can digest: expert ids, rows, tile lists; random reals elsewhere.
static void fill(const char *name, void *p, enum elem e, int64_t n)
{
    static const int rows_of[E] = { 3, 0, 4, 5, 2 };
    for (int64_t i = 0, first = 0; i < n; i++) {
        if (e == EL_BF16)
            ((uint16_t *)p)[i] = bf16_of(unit());
        else if (e == EL_F32)
            ((float *)p)[i] = unit();
        else if (!strcmp(name, "ids"))
            ((int32_t *)p)[i] = (int32_t)(i * 3 % (E + 1)) - (i == 4); // one past the end and one -1 among them
        else if (!strcmp(name, "row_token") || !strcmp(name, "slot_row"))
            ((int32_t *)p)[i] = (int32_t)(i * 5 % (name[0] == 'r' ? T : R)) - (i == 3);
        else if (!strcmp(name, "counts"))
            ((int32_t *)p)[i] = (int32_t)(i % 3);
        else if (!strcmp(name, "tiles") && i % 4 == 0 && i / 4 < E) {
            int32_t *t = (int32_t *)p + i;
            t[0] = (int32_t)(i / 4), t[1] = (int32_t)first, t[2] = rows_of[i / 4], t[3] = 0;
            first += rows_of[i / 4];
        }
    }
}

static void make_args(const struct kernel *k, struct args *a)
{
    static struct {
        const char *name;
        int32_t v;
    } ints[] = { { "chunk", CHUNK }, { "topk", K - 1 }, { "choices", K },  { "block", BLOCK },
                 { "groups", E },    { "keep", K },     { "any other", 1 } };
    static float scale = 2.5f;
    memset(a, 0, sizeof *a);
    seed = 7;
    for (int i = 0; i < k->params.n; i++) {
        const struct param *p = &k->params.v[i];
        int64_t n = 1;
        if (!p->buf) {
            size_t which = 0;
            while (which + 1 < COUNTOF(ints) && strcmp(p->scalar, ints[which].name))
                which++;
            a->v[a->n++] = (struct eval_arg){ p->elem == EL_F32 ? (void *)&scale : (void *)&ints[which].v, 4 };
            continue;
        }
        for (int j = 0; j < p->buf->rank; j++)
            n *= p->buf->shape[j].dim ? dim_value(p->buf->shape[j].dim->name) : p->buf->shape[j].value;
        if (p->buf->kind == BUF_MAP)
            n = N * 4;
        size_t bytes = (size_t)n * (size_t)elem_bytes[p->buf->elem];
        void *mem = calloc(1, bytes);
        assert_non_null(mem);
        if (p->buf->kind == BUF_OUT)
            memset(mem, 0xff, bytes);
        else
            fill(p->buf->name, mem, p->buf->elem, n);
        a->own[a->n] = mem;
        a->v[a->n++] = (struct eval_arg){ mem, (int64_t)bytes };
    }
    for (int i = 0; i < k->dims.n; i++)
        if (k->dims.v[i]->bound < 0)
            a->dims[a->nd++] = dim_value(k->dims.v[i]->name);
}

static void free_args(struct args *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->own[i]);
}

static void run(struct fixture *f, const struct kernel *k, struct args *a, bool consumers_first)
{
    const char *why = "";
    struct eval_opts o = { .late_copies = true,
                           .consumers_first = consumers_first,
                           .persistent_blocks = consumers_first ? 1 : 3 };
    make_args(k, a);
    if (!eval(&f->c, k, a->v, a->dims, &o, &why))
        fail_msg("%s: %s\n%s", k->name, why, printed(f, k));
}

// Integers must be equal; reals may differ by the order of a sum.
static void same_outputs(const struct kernel *k, const struct args *a, const struct args *b)
{
    int64_t written = 0;
    for (int i = 0; i < k->params.n; i++) {
        const struct buf *x = k->params.v[i].buf;
        if (!x || (x->kind != BUF_OUT && x->kind != BUF_INOUT))
            continue;
        if (x->elem == EL_I32 || x->elem == EL_BF16) { // bf16: sums in double round alike
            assert_memory_equal(a->v[i].data, b->v[i].data, (size_t)a->v[i].nbytes);
        } else {
            const float *p = a->v[i].data, *q = b->v[i].data;
            for (int64_t j = 0; j < a->v[i].nbytes / 4; j++)
                if (!(p[j] == q[j] || fabsf(p[j] - q[j]) <= 1e-6f * fabsf(p[j]) || (isnan(p[j]) && isnan(q[j]))))
                    fail_msg("%s: element %lld of %s is %g, not %g", k->name, (long long)j, x->name, (double)q[j],
                             (double)p[j]);
        }
        for (int64_t j = 0; j < a->v[i].nbytes; j++)
            written += ((unsigned char *)a->v[i].data)[j] != 0xff;
    }
    assert_true(written > 0); // an output nobody wrote proves nothing
}

// ---- the tests --------------------------------------------------------------------------------------------------

static void one_kernel(struct fixture *f, const struct module *m, struct kernel *k)
{
    struct args want, got;
    int n;
    expand(&f->c, k);
    fold(&f->c, k);
    run(f, k, &want, false);
    struct kernel **v = schedule(&f->c, m, k, &n);
    no_errors(f);
    assert_true(n >= 1);
    for (int i = 0; i < n; i++) {
        assert_true(verify(&f->c, v[i], ST_SCHED));
        layout(&f->c, v[i]);
        no_errors(f);
        bool good = verify(&f->c, v[i], ST_LAYOUT);
        no_errors(f);
        assert_true(good);
        for (int order = 0; order < (v[i]->sched.producers ? 2 : 1); order++) { // whichever role runs ahead
            run(f, v[i], &got, order);
            same_outputs(k, &want, &got);
            free_args(&got);
        }
    }
    free_args(&want);
}

static void means_the_same(void **state)
{
    static const char *const arches[] = { "sm_80", "sm_90a", "sm_100a", "gfx942", "gfx950" };
    (void)state;
    for (size_t i = 0; i < COUNTOF(arches); i++) {
        struct fixture f;
        begin(&f, arches[i], source);
        struct module *m = front(&f);
        for (struct kernel *k = m->kernels; k; k = k->next)
            one_kernel(&f, m, k);
        arena_free(f.c.arena);
    }
}

static void prints_and_parses(void **state)
{
    static const char *const arches[] = { "sm_90a", "gfx942" };
    (void)state;
    for (size_t i = 0; i < COUNTOF(arches); i++) {
        struct fixture f, g;
        begin(&f, arches[i], source);
        struct module *m = front(&f);
        for (struct kernel *k = m->kernels; k; k = k->next) {
            int n;
            expand(&f.c, k);
            fold(&f.c, k);
            struct kernel **v = schedule(&f.c, m, k, &n);
            for (int j = 0; j < n; j++) {
                layout(&f.c, v[j]);
                const char *text = printed(&f, v[j]);
                begin(&g, arches[i], text);
                struct module *again = front(&g);
                assert_string_equal(text, printed(&g, again->kernels));
                arena_free(g.c.arena);
            }
        }
        arena_free(f.c.arena);
    }
}

// Products whose operands are not plain tiles of memory: computed, shared, along one tile, too thin for the matrix units.
static const char other[] = "kernel computed(x: bf16[T, H], w: bf16[I, H], y: out f32[T, I]) {\n"
                            "  parallel t in tile(T), i in tile(I) {\n"
                            "    var s: f32[t, i] = 0\n"
                            "    for k in tile(H) { s += dot(bf16(x[t, k] * 0.5 + 1.0), w[i, k]) }\n"
                            "    y[t, i] = s\n"
                            "  }\n"
                            "}\n"
                            "kernel gram(x: bf16[T, H], y: out f32[T, T]) require H <= 128, T <= 16 {\n"
                            "  let t = range(T)\n"
                            "  let u = range(T)\n"
                            "  let k = range(H)\n"
                            "  y[t, u] = dot(x[t, k], x[u, k])\n"
                            "}\n"
                            "kernel vector(x: bf16[H], w: bf16[I, H], y: out f32[I]) {\n"
                            "  parallel i in tile(I) {\n"
                            "    var s: f32[i] = 0\n"
                            "    for k in tile(H) { s += dot(w[i, k], x[k]) }\n"
                            "    y[i] = s\n"
                            "  }\n"
                            "}\n"
                            "kernel columns(x: bf16[T, H], w: bf16[H, I], y: out f32[T, I]) {\n"
                            "  parallel t in tile(T), i in tile(I) {\n"
                            "    var s: f32[t, i] = 0\n"
                            "    for k in tile(H) { s += dot(x[t, k], w[k, i]) }\n"
                            "    y[t, i] = s\n"
                            "  }\n"
                            "}\n"
                            "kernel part(x: bf16[T, H], w: bf16[I, H], y: out f32[T, I]) {\n"
                            "  parallel t in tile(T), i in tile(I) {\n"
                            "    var s: f32[t, i] = 0\n"
                            "    for k in tile(8, H - 9) { s += dot(x[t, k], w[i, k]) }\n"
                            "    y[t, i] = s\n"
                            "  }\n"
                            "}\n";

static void other_dots(void **state)
{
    static const char *const arches[] = { "sm_90a", "gfx942" };
    (void)state;
    for (size_t i = 0; i < COUNTOF(arches); i++) {
        struct fixture f;
        begin(&f, arches[i], other);
        struct module *m = front(&f);
        for (struct kernel *k = m->kernels; k; k = k->next)
            one_kernel(&f, m, k);
        arena_free(f.c.arena);
    }
}

// ---- few columns and many warps ---------------------------------------------------------------------------------

// Register and lane bits: the positions that one warp has.
static int warp_positions(const struct kernel *k, const struct axis *a)
{
    const struct home *h = dist_home(k, 0, a);
    int n = 1;
    for (int i = 0; h && i < h->nbits; i++)
        n *= h->bits[i].home == BIT_WARP ? 1 : 2;
    return n;
}

struct look {
    struct fixture *f;
    const struct kernel *k;
    int mmas;
};

static bool whole_fetches(void *user, struct op *op)
{
    struct look *l = user;
    const struct kernel *k = l->k;
    const struct mma *i = &l->f->c.arch->mmas[k->sched.mma];
    if (op->code != OP_MMA)
        return true;
    if (warp_positions(k, op->type.axes[0]) < i->a.fetch_rows || warp_positions(k, op->type.axes[1]) < i->b.fetch_rows)
        fail_msg("%s %s: less than a fetch a warp:\n%s", l->f->c.arch->name, i->name, printed(l->f, k));
    l->mmas++;
    return true;
}

// The second product has few columns and comes by its size after the instruction was chosen. `last`: the columns' item.
static void narrow_dot(const char *arch, const struct mma *i, const char *last)
{
    struct fixture f;
    char src[1024];
    int n;
    const char *e = elem_names[i->in];
    snprintf(src, sizeof src,
             "kernel k(q: %s[M, D], k: %s[N, D], v: %s[N, C], y: out f32[M, C]) require D <= 32, C <= 16 {\n"
             "  parallel m in tile(M) {\n    let d = range(D)\n    let c = range(C)\n    var out: f32[m, c] = 0\n"
             "    for n in tile(N) { out += dot(%s(dot(q[m, d], k[n, d])), v[n, c]) }\n    y[m, c] = out\n  }\n}\n"
             "schedule k for %s { m 64  n 128  d 32  warps 2x4  mma %s %s }\n",
             e, e, e, e, arch, i->name, last);
    begin(&f, arch, src);
    struct module *m = front(&f);
    fold(&f.c, m->kernels);
    struct kernel **v = schedule(&f.c, m, m->kernels, &n);
    no_errors(&f);
    layout(&f.c, v[0]);
    no_errors(&f);
    assert_true(verify(&f.c, v[0], ST_LAYOUT));
    struct look l = { &f, v[0], 0 };
    walk(v[0]->body, whole_fetches, &l);
    assert_int_equal(l.mmas, 2);
    arena_free(f.c.arena);
}

static void few_columns(void **state)
{
    (void)state;
    for (int i = 0; i < ntargets; i++)
        for (int j = 0; j < targets[i]->narches; j++)
            for (int q = 0; q < targets[i]->arches[j].nmmas; q++) {
                const struct arch *a = &targets[i]->arches[j];
                if (a->mmas[q].kind != MMA_WARP) // not for operands that are computed: refuses_computed
                    continue;
                narrow_dot(a->name, &a->mmas[q], "");
                narrow_dot(a->name, &a->mmas[q], a->mmas[q].b.fetch_rows == 16 ? "c 16" : "c 32");
            }
}

// The value before an atomic sum goes to other warps through the scratch, one word a thread and element; nothing is set
// aside where nobody needs the value, or every warp adds for itself.
static void scratch_of_atomics(void **state)
{
    static const struct {
        const char *source;
        int words; // a thread; 0: no scratch
    } cases[] = {
        { "kernel k(c: inout i32[1], y: out i32[256]) {\n  let j = range(256)\n  y[j] = j + atomic_add(c[0], 1)\n}\n",
          1 },
        { "kernel k(c: inout i32[256], y: out i32[256, 64]) {\n  let i = range(256)\n  let j = range(64)\n"
          "  y[j, i] = j + atomic_add(c[i], 1)\n}\n",
          4 },
        { "kernel k(c: inout i32[1], y: out i32[256]) {\n  let j = range(256)\n  atomic_add(c[0], 1)\n  y[j] = j\n}\n",
          0 },
        { "kernel k(c: inout i32[256], y: out i32[256]) {\n  let j = range(256)\n  y[j] = atomic_add(c[j], 1)\n}\n",
          0 },
    };
    (void)state;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct fixture f;
        int n;
        begin(&f, "sm_80", cases[i].source);
        struct module *m = front(&f);
        struct kernel *k = schedule(&f.c, m, m->kernels, &n)[0];
        layout(&f.c, k);
        no_errors(&f);
        int64_t bytes = 4LL * cases[i].words * k->sched.warps_m * k->sched.warps_n * f.c.arch->lanes;
        if ((k->scratch >= 0) != (bytes > 0) || k->shared_bytes != bytes)
            fail_msg("case %d: scratch %lld, %lld bytes:\n%s", (int)i, (long long)k->scratch,
                     (long long)k->shared_bytes, printed(&f, k));
        arena_free(f.c.arena);
    }
}

static int read_source(void **state)
{
    FILE *f = fopen("kernels/moe.dsl", "rb");
    (void)state;
    if (!f)
        return -1;
    source = calloc(1, 1 << 20);
    size_t n = source ? fread(source, 1, (1 << 20) - 1, f) : 0;
    fclose(f);
    return n ? 0 : -1;
}

static int free_source(void **state)
{
    (void)state;
    free(source);
    return 0;
}

// ---- what the image says of copies by the copy engine, of warps that only copy, and of persistent blocks

static bool make_bulk(void *user, struct op *op)
{
    int *n = user;
    if (op->code == OP_COPY) {
        op->bulk = true;
        ++*n;
    }
    return true;
}

static void described(void **state)
{
    static const char text[] =
        "type act = bf16\n"
        "kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0 {\n"
        "  parallel m in tile(M), n in tile(N) {\n"
        "    var s: f32[m, n] = 0\n"
        "    for k in tile(K) { s += dot(a[m, k], b[n, k]) }\n"
        "    c[m, n] = s\n"
        "  }\n"
        "}\n"
        "schedule gemm for sm_90a { m 64  n 32  k 64  warps 2x2  stages 3 }\n";
    struct fixture f;
    struct image_kernel d;
    int n, copies = 0;
    (void)state;
    begin(&f, "sm_90a", text);
    struct module *m = front(&f);
    struct kernel *k = schedule(&f.c, m, m->kernels, &n)[0];
    layout(&f.c, k);
    no_errors(&f);
    assert_true(describe_kernel(&f.c, k, "gemm", &d));
    assert_true(d.nboxes == 0 && !d.persistent && d.threads == 128);
    walk(k->body, make_bulk, &copies);
    k->sched.producers = 1;
    k->sched.persistent = true;
    k->sched.resident = 3;
    assert_true(describe_kernel(&f.c, k, "gemm", &d));
    assert_true(copies > 0 && d.persistent && d.resident == 3 && d.threads == 160);
    assert_int_equal(d.nboxes, 2); // however often they are copied
    for (int i = 0; i < 2; i++) {
        assert_string_equal(d.params[d.boxes[i].param].name, i ? "b" : "a");
        assert_int_equal(d.boxes[i].rows, i ? 32 : 64);
        assert_int_equal(d.boxes[i].cols, 64);
        assert_int_equal(d.boxes[i].swizzle, 3);
    }
    k->sched.resident = 0; // by hand, without a model
    assert_true(describe_kernel(&f.c, k, "gemm", &d) && d.resident == 1);
    k->sched.min_blocks = 2;
    assert_true(describe_kernel(&f.c, k, "gemm", &d) && d.resident == 2);
    arena_free(f.c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_the_same), cmocka_unit_test(prints_and_parses),  cmocka_unit_test(other_dots),
        cmocka_unit_test(few_columns),    cmocka_unit_test(scratch_of_atomics), cmocka_unit_test(described),
    };
    return cmocka_run_group_tests(tests, read_source, free_source);
}
