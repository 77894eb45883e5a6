// Rings between roles, and rings whose products are asynchronous: kernels for sm_90a are laid out, then one thing in them is
// broken, as a faulty pass or a careless user would. The verifier must object, and eval, which runs the same machine with
// values, must fault or give another result where the fault changes the meaning. Unbroken, they mean what they meant before,
// whichever role runs ahead.
#include "dsl.h"

enum { R = 100, H = 344, E = 3, C = 72, N = 4 }; // 11 trips; two tiles of columns; lists of 64, 0, 30 and 6 rows

static const char source[] =
    "kernel product(x: bf16[R, H], w: bf16[E, C, H], from: i32[R], tiles: tile_map[N], y: out f32[R, C])\n"
    "    require H % 8 == 0, H <= 32768, C % 8 == 0 {\n"
    "  parallel (e, rows) in tiles, cols in tile(C) {\n"
    "    let t = from[rows]\n"
    "    var g: f32[rows, cols] = 0\n"
    "    for k in tile(H) { g += dot(x[t, k], w[e, cols, k]) }\n"
    "    y[rows, cols] = g\n"
    "  }\n"
    "}\n"
    "kernel boxes(x: bf16[R, H], w: bf16[C, H], y: out f32[R, C]) require H % 8 == 0, H <= 32768, C % 8 == 0 {\n"
    "  parallel rows in tile(R), cols in tile(C) {\n"
    "    var g: f32[rows, cols] = 0\n"
    "    for k in tile(H) { g += dot(x[rows, k], w[cols, k]) }\n"
    "    y[rows, cols] = g\n"
    "  }\n"
    "}\n"
    "schedule product.stays for sm_90a { rows 64  cols 64  k 32  stages 4  warps 4x1+4  persistent }\n"
    "schedule product.once for sm_90a { rows 64  cols 64  k 32  stages 4  warps 4x1+4 }\n"
    "schedule boxes.stays for sm_90a { rows 64  cols 64  k 32  stages 3  warps 4x1+1  persistent }\n"
    "schedule boxes.plain for sm_90a { rows 64  cols 64  k 32  stages 4  warps 4x1+0 }\n";

// ---- running -----------------------------------------------------------------------------------------------------

struct data {
    uint16_t x[R * H], w[E * C * H];
    int32_t from[R], tiles[N * 4];
    float y[R * C];
};
static struct data in;

static void fill(void)
{
    static const int32_t rows[N] = { 64, 0, 30, 6 }, expert[N] = { 1, 2, 0, 2 };
    uint32_t seed = 5;
    for (size_t i = 0; i < COUNTOF(in.x) + COUNTOF(in.w); i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = (float)(seed >> 8) / 8388608.0f - 1.0f;
        uint32_t u;
        memcpy(&u, &f, 4);
        *(i < COUNTOF(in.x) ? &in.x[i] : &in.w[i - COUNTOF(in.x)]) = (uint16_t)(u >> 16);
    }
    for (int i = 0; i < R; i++)
        in.from[i] = i * 7 % R;
    for (int i = 0, first = 0; i < N; first += rows[i++])
        memcpy(&in.tiles[i * 4], (int32_t[]){ expert[i], first, rows[i], 0 }, 16);
}

static bool run(struct dsl *d, const struct kernel *k, const struct eval_opts *o, float *y, const char **why)
{
    const struct eval_arg x = { in.x, sizeof in.x }, out = { y, sizeof in.y }, w = { in.w, sizeof in.w };
    struct eval_arg product[] = { x, w, { in.from, sizeof in.from }, { in.tiles, sizeof in.tiles }, out };
    struct eval_arg boxes[] = { x, { in.w, C * H * 2 }, out };
    int64_t dims[5];
    for (int i = 0; i < k->dims.n; i++)
        dims[i] = *k->dims.v[i]->name == 'R'   ? R
                  : *k->dims.v[i]->name == 'H' ? H
                  : *k->dims.v[i]->name == 'E' ? E
                  : *k->dims.v[i]->name == 'C' ? C
                                               : N;
    memset(y, 0xff, sizeof in.y);
    return eval(&d->c, k, *k->name == 'p' ? product : boxes, dims, o, why);
}

static struct kernel *laid_out(struct dsl *d, const char *kernel, const char *variant, float *want)
{
    struct kernel *k = d->m->kernels, *found = NULL;
    struct text t;
    const char *why = "";
    struct eval_opts o = { .default_tile = 64 };
    int n;
    while (strcmp(k->name, kernel))
        k = k->next;
    expand(&d->c, k);
    fold(&d->c, k);
    if (!run(d, k, &o, want, &why))
        fail_msg("%s", why);
    struct kernel **v = schedule(&d->c, d->m, k, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i]->sched.variant, variant))
            found = v[i];
    assert_non_null(found);
    layout(&d->c, found);
    dsl_errors(d, &t);
    if (d->c.errors)
        fail_msg("%s", t.s);
    return found;
}

static bool near(const float *a, const float *b)
{
    bool same = true;
    for (int i = 0; i < R * C; i++)
        same &= memcmp(&a[i], &b[i], 4) == 0 || (a[i] - b[i] < 1e-4f && b[i] - a[i] < 1e-4f);
    return same;
}

static const char *const all[][2] = {
    { "product", "stays" }, { "product", "once" }, { "boxes", "stays" }, { "boxes", "plain" }
};

static void means_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(all); i++) {
        struct dsl d;
        float want[R * C], first[R * C], got[R * C];
        struct text t;
        const char *why = "";
        dsl_open(&d, "sm_90a", source);
        struct kernel *k = laid_out(&d, all[i][0], all[i][1], want), *copy = kernel_clone(&d.c, k);
        bool ok = verify(&d.c, k, ST_LAYOUT) && verify(&d.c, copy, ST_LAYOUT);
        dsl_errors(&d, &t);
        if (!ok)
            fail_msg("%s %s: %s", all[i][0], all[i][1], t.s);
        for (int j = 0; j < 16; j++) {
            struct eval_opts o = { .late_copies = j & 1, .consumers_first = j & 2, .persistent_blocks = j / 4 };
            if (!run(&d, j & 1 ? copy : k, &o, j ? got : first, &why))
                fail_msg("%s %s: %s", all[i][0], all[i][1], why);
            if (j)
                assert_memory_equal(first, got, sizeof got);
        }
        assert_true(near(want, first));
        dsl_close(&d);
    }
}

struct ops {
    struct ctx *c;
    VEC(struct op *) ops;
};

static bool list(void *user, struct op *op)
{
    struct ops *l = user;
    VEC_PUSH(l->c->arena, &l->ops, op);
    return true;
}

static void clones_keep_everything(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(all); i++) {
        struct dsl d;
        float want[R * C];
        dsl_open(&d, "sm_90a", source);
        struct kernel *k = laid_out(&d, all[i][0], all[i][1], want), *copy = kernel_clone(&d.c, k);
        struct ops a = { .c = &d.c }, b = { .c = &d.c };
        walk(k->body, list, &a);
        walk(copy->body, list, &b);
        assert_int_equal(a.ops.n, b.ops.n);
        for (int j = 0; j < a.ops.n; j++) {
            const struct op *x = a.ops.v[j], *y = b.ops.v[j];
            assert_ptr_not_equal(x, y);
            assert_true(x->code == y->code && x->ival == y->ival && x->ival2 == y->ival2 && x->regs == y->regs &&
                        x->bulk == y->bulk);
            assert_true(!x->buf == !y->buf && (!x->buf || (x->buf != y->buf && x->buf->barrier == y->buf->barrier)));
        }
        assert_memory_equal(&k->sched, &copy->sched, sizeof k->sched);
        dsl_close(&d);
    }
}

// ---- breaking ----------------------------------------------------------------------------------------------------

struct spot {
    struct block *b;
    int at;
};

static bool seek(struct block *b, enum opcode code, int *n, struct spot *s)
{
    for (int i = 0; b && i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (op->code == code && (*n)-- == 0) {
            *s = (struct spot){ b, i };
            return true;
        }
        if (seek(op->body, code, n, s) || seek(op->other, code, n, s))
            return true;
    }
    return false;
}

static struct spot spot_of(struct kernel *k, enum opcode code, int n)
{
    struct spot s = { NULL, 0 };
    if (!seek(k->body, code, &n, &s))
        fail_msg("there is no such op %d", (int)code);
    return s;
}

static struct op *cut(struct spot s)
{
    struct op *op = s.b->ops.v[s.at];
    memmove(s.b->ops.v + s.at, s.b->ops.v + s.at + 1, sizeof *s.b->ops.v * (size_t)(s.b->ops.n - s.at - 1));
    s.b->ops.n--;
    return op;
}

static struct op *constant(struct dsl *d, struct kernel *k, struct spot *s, int64_t v)
{
    struct op *c = op_new(&d->c, k, OP_CONST, s->b->ops.v[s->at]->loc);
    c->type.elem = EL_I32;
    c->ival = v;
    block_insert(&d->c, s->b, s->at++, c);
    return c;
}

static struct op *binary(struct dsl *d, struct kernel *k, struct spot *s, enum opcode code, struct op *x, int64_t v)
{
    struct op *c = constant(d, k, s, v), *op = op_new(&d->c, k, code, c->loc);
    op->type.elem = EL_I32;
    op->args[0] = x;
    op->args[1] = c;
    op->nargs = 2;
    block_insert(&d->c, s->b, s->at++, op);
    return op;
}

enum how {
    DROP,      // the op
    PLUS,      // n is added to operand `arg`
    NEXT_SLOT, // operand `arg` is the next of n slots
    COUNT,     // its number is n
    UP,        // it stands n places earlier in its block
    TWICE,     // it is there twice
    STAGES,    // all rings and barriers have n slots
    TO,        // operand `arg` is n
    WARP,      // a role's first warp
    WARPS,     // a role's number of warps
    OUTSIDE,   // it stands at the front of the grid's block
    INSIDE,    // it stands at the front of the first role
    DECLARED,  // the shared buffer's declaration goes into the grid's block
    MISTAKEN,  // its buffer is the first ring
    NESTED,    // the second role stands in the first
    BARRIER,   // an op of that code stands before it
    LESS_READ, // of the two operands of a product the second is the first
    BULK,      // a copy by threads is one of the engine
    DIMENSION, // operand `arg` is the n-th dimension
};
struct fault_case {
    const char *kernel, *variant, *what;
    enum how how;
    enum opcode code;
    int which, arg, n;
    const char *says; // the verifier
    bool changes;     // eval must see it
};

static void rearrange(struct dsl *d, struct kernel *k, const struct fault_case *f, struct spot s)
{
    struct op *op = s.b->ops.v[s.at], *grid = k->body->ops.v[k->body->ops.n - 1];
    struct block *role = spot_of(k, OP_ROLE, 0).b->ops.v[spot_of(k, OP_ROLE, 0).at]->body;
    switch ((int)f->how) {
    case UP:
        cut(s);
        block_insert(&d->c, s.b, s.at - f->n, op);
        return;
    case OUTSIDE:
        cut(s);
        block_insert(&d->c, grid->body, grid->body->ops.n - 2, op);
        return;
    case INSIDE:
        cut(s);
        block_insert(&d->c, role, 0, op);
        return;
    case DECLARED:
        cut(s);
        block_insert(&d->c, grid->body, 0, op);
        return;
    case NESTED:
        cut(s);
        op->body->parent = op;
        block_insert(&d->c, role, 0, op);
        return;
    }
}

static void break_it(struct dsl *d, struct kernel *k, const struct fault_case *f)
{
    struct spot s = spot_of(k, f->code, f->which);
    struct op *op = s.b->ops.v[s.at], *twin;
    switch (f->how) {
    case DROP: cut(s); return;
    case PLUS: op->args[f->arg] = binary(d, k, &s, OP_ADD, op->args[f->arg], f->n); return;
    case NEXT_SLOT:
        twin = binary(d, k, &s, OP_ADD, op->args[f->arg], 1);
        op->args[f->arg] = binary(d, k, &s, OP_REM, twin, f->n);
        return;
    case COUNT: op->ival = f->n; return;
    case TWICE:
        twin = op_new(&d->c, k, op->code, op->loc);
        twin->buf = op->buf;
        twin->args[0] = op->args[0];
        twin->nargs = 1;
        block_insert(&d->c, s.b, s.at, twin);
        return;
    case STAGES:
        for (int i = 0; i < k->bufs.n; i++)
            k->bufs.v[i]->stages = f->n;
        return;
    case TO: op->args[f->arg] = constant(d, k, &s, f->n); return;
    case WARP: op->ival = f->n; return;
    case WARPS: op->ival2 = f->n; return;
    case MISTAKEN: op->buf = spot_of(k, OP_SHARED, 0).b->ops.v[spot_of(k, OP_SHARED, 0).at]->buf; return;
    case BARRIER:
        twin = op_new(&d->c, k, (enum opcode)f->n, op->loc);
        block_insert(&d->c, s.b, s.at, twin);
        return;
    case LESS_READ: op->buf2 = op->buf; return;
    case BULK: op->bulk = true; return;
    case DIMENSION:
        twin = constant(d, k, &s, 0);
        twin->code = OP_DIM;
        twin->dim = k->dims.v[f->n];
        op->args[f->arg] = twin;
        return;
    case UP:
    case OUTSIDE:
    case INSIDE:
    case DECLARED:
    case NESTED: rearrange(d, k, f, s); return;
    }
}

// Of the kernels between roles: arrives 0 full, 1 empty (in the loop), 2 empty (last); awaits 0 empty, 1 full.
// clang-format off
static const struct fault_case faults[] = {
    { "product", "stays", "copies do not await the empty slot", DROP, OP_AWAIT, 0, 0, 0, "is written while", true },
    { "product", "stays", "products do not await the full slot", DROP, OP_AWAIT, 1, 0, 0, "is read", true },
    { "product", "stays", "full never arrives", DROP, OP_ARRIVE, 0, 0, 0, "needs an 'arrive' behind it", true },
    { "product", "stays", "empty never arrives", DROP, OP_ARRIVE, 1, 0, 0, "no role can go on", true },
    { "product", "stays", "the last slot is not given back", DROP, OP_ARRIVE, 2, 0, 0, "does not give it back", true },
    { "product", "stays", "full arrives twice", TWICE, OP_ARRIVE, 0, 0, 0, "phase", true },
    { "product", "stays", "empty arrives twice", TWICE, OP_ARRIVE, 1, 0, 0, "", true },
    { "product", "stays", "empty: a phase late", PLUS, OP_AWAIT, 0, 1, 1, "no role can go on", true },
    { "product", "stays", "empty: a phase early", PLUS, OP_AWAIT, 0, 1, -1, "is written while", true },
    { "product", "stays", "empty: two phases early", PLUS, OP_AWAIT, 0, 1, -2, "is written while", true },
    { "product", "stays", "full: a phase late", PLUS, OP_AWAIT, 1, 1, 1, "", true },
    { "product", "stays", "full: a phase early", PLUS, OP_AWAIT, 1, 1, -1, "is read", true },
    { "product", "stays", "full: the same phase always", TO, OP_AWAIT, 1, 1, 0, "", true },
    { "product", "stays", "full: two phases late, same parity", PLUS, OP_AWAIT, 1, 1, 2, "parity cannot tell", true },
    { "product", "stays", "full arrives at the next slot", NEXT_SLOT, OP_ARRIVE, 0, 0, 4, "", true },
    { "product", "stays", "empty arrives at the next slot", NEXT_SLOT, OP_ARRIVE, 1, 0, 4, "", true },
    { "product", "stays", "the last empty arrives at the next slot", NEXT_SLOT, OP_ARRIVE, 2, 0, 4, "", true },
    { "product", "stays", "empty awaited of the next slot", NEXT_SLOT, OP_AWAIT, 0, 0, 4, "", true },
    { "product", "stays", "full awaited of the next slot", NEXT_SLOT, OP_AWAIT, 1, 0, 4, "", true },
    { "product", "stays", "a copy to the next slot", NEXT_SLOT, OP_COPY, 0, 0, 4, "slot", true },
    { "product", "stays", "the other copy to the next slot", NEXT_SLOT, OP_COPY, 1, 0, 4, "slot", true },
    { "product", "stays", "a product of the next slot", NEXT_SLOT, OP_MMA, 0, 1, 4, "is read", true },
    { "product", "stays", "the product's other operand of the next slot", NEXT_SLOT, OP_MMA, 0, 2, 4, "is read", true },
    { "product", "stays", "a stage fewer", STAGES, OP_AWAIT, 0, 0, 3, "outside 0..2", true },
    { "product", "stays", "phases of three slots, copies", TO, OP_DIV, 1, 1, 3, "", true },
    { "product", "stays", "phases of five slots, copies", TO, OP_DIV, 1, 1, 5, "", true },
    { "product", "stays", "phases of three slots, products", TO, OP_DIV, 2, 1, 3, "", true },
    { "product", "stays", "products waited for one group less", COUNT, OP_MMA_WAIT, 0, 0, 2, "products under way", true },
    { "product", "stays", "products in the loop not waited for", DROP, OP_MMA_WAIT, 0, 0, 0, "products under way", true },
    { "product", "stays", "the last products not waited for", DROP, OP_MMA_WAIT, 1, 0, 0, "may still add to it", true },
    { "product", "stays", "a group left under way", COUNT, OP_MMA_WAIT, 1, 0, 1, "may still add to it", true },
    { "product", "stays", "no group", DROP, OP_MMA_COMMIT, 0, 0, 0, "products under way", true },
    { "product", "stays", "empty arrives before the wait", UP, OP_MMA_WAIT, 0, 0, -3, "products under way", true },
    { "product", "stays", "full arrives before its copies", UP, OP_ARRIVE, 0, 0, 6, "needs an 'arrive' behind it", true },
    { "product", "stays", "full arrives before a copy", UP, OP_COPY, 0, 0, -4, "is read before its copy", true },
    { "product", "stays", "a copy left out", DROP, OP_COPY, 0, 0, 0, "never written", true },
    { "product", "stays", "copies forget the turn", DROP, OP_SET, 0, 0, 0, "", true },
    { "product", "stays", "products forget the turn", DROP, OP_SET, 2, 0, 0, "", true },
    { "product", "stays", "a trip less of copies", PLUS, OP_EACH, 0, 1, -1, "no role can go on", true },
    { "product", "stays", "a trip more of copies", PLUS, OP_EACH, 0, 1, 1, "", true },
    { "product", "stays", "a trip less of products", PLUS, OP_EACH, 1, 1, -1, "", true },
    { "product", "stays", "as many products as a dimension that copies do not know", DIMENSION, OP_EACH, 1, 1, 3, "", true },
    { "product", "stays", "the last slot of no trips", TO, OP_GE, 1, 0, 5, "", false },
    { "product", "stays", "an operand for the other", LESS_READ, OP_MMA, 0, 0, 0, "nobody reads", true },
    { "product", "once", "copies do not await the empty slot", DROP, OP_AWAIT, 0, 0, 0, "is written while", true },
    { "product", "once", "empty never arrives", DROP, OP_ARRIVE, 1, 0, 0, "no role can go on", true },
    { "product", "once", "the last slot is not given back", DROP, OP_ARRIVE, 2, 0, 0, "does not give it back", true },
    { "product", "once", "no group", DROP, OP_MMA_COMMIT, 0, 0, 0, "products under way", true },
    { "product", "once", "empty: a phase early", PLUS, OP_AWAIT, 0, 1, -1, "is written while", true },
    { "boxes", "stays", "copies do not await the empty slot", DROP, OP_AWAIT, 0, 0, 0, "is written while", true },
    { "boxes", "stays", "full: a phase early", PLUS, OP_AWAIT, 1, 1, -1, "is read", true },
    { "boxes", "stays", "the last slot is not given back", DROP, OP_ARRIVE, 2, 0, 0, "does not give it back", true },
    { "boxes", "stays", "products waited for one group less", COUNT, OP_MMA_WAIT, 0, 0, 2, "products under way", true },
    { "boxes", "plain", "copies waited for one group less", COUNT, OP_WAIT, 0, 0, 2, "before its copy was waited for", true },
    { "boxes", "plain", "copies not waited for", DROP, OP_WAIT, 0, 0, 0, "before its copy was waited for", true },
    { "boxes", "plain", "the last copies not waited for", DROP, OP_WAIT, 1, 0, 0, "nobody waited for", true },
    { "boxes", "plain", "no barrier", DROP, OP_BARRIER, 0, 0, 0, "before a barrier", true },
    { "boxes", "plain", "no group of copies", DROP, OP_COMMIT, 1, 0, 0, "waited for", true },
    { "boxes", "plain", "a copy a slot further", NEXT_SLOT, OP_COPY, 2, 0, 4, "slot", true },
    { "boxes", "plain", "a product of the next slot", NEXT_SLOT, OP_MMA, 0, 1, 4, "is read", true },
    { "boxes", "plain", "products waited for one group less", COUNT, OP_MMA_WAIT, 0, 0, 2, "products under way", true },
    { "boxes", "plain", "no group", DROP, OP_MMA_COMMIT, 0, 0, 0, "products under way", true },
    { "boxes", "plain", "the last products not waited for", DROP, OP_MMA_WAIT, 1, 0, 0, "may still add to it", true },
    // what may stand where
    { "product", "stays", "the second role's warps are the first's", WARP, OP_ROLE, 1, 0, 4, "share warps", false },
    { "product", "stays", "a role past the block", WARPS, OP_ROLE, 0, 0, 8, "of a block of 8", false },
    { "product", "stays", "products by half the warps", WARPS, OP_ROLE, 1, 0, 2, "spread over more warps", false },
    { "product", "stays", "a role in a role", NESTED, OP_ROLE, 1, 0, 0, "directly in the grid's block", false },
    { "product", "stays", "a store beside the roles", OUTSIDE, OP_STORE, 0, 0, 0, "scope", false },
    { "product", "stays", "a wait beside the roles", OUTSIDE, OP_MMA_WAIT, 1, 0, 0, "stands beside roles", false },
    { "product", "stays", "an arrive of a ring", MISTAKEN, OP_ARRIVE, 0, 0, 0, "is no barrier", true },
    { "product", "stays", "a barrier of all warps in a role", BARRIER, OP_AWAIT, 1, 0, OP_BARRIER, "needs all warps", true },
    { "product", "stays", "barriers of each tile", DECLARED, OP_SHARED, 2, 0, 0, "before the persistent grid", false },
    { "boxes", "stays", "a bulk copy without an arrive", DROP, OP_ARRIVE, 0, 0, 0, "needs an 'arrive' behind it", true },
    { "boxes", "plain", "a bulk copy outside the roles", BULK, OP_COPY, 0, 0, 0, "needs an 'arrive' behind it", false },
};
// clang-format on

// Both orders, late copies: a fault, or another result.
static bool eval_sees(struct dsl *d, const struct kernel *k, const float *want, const char **why)
{
    for (int order = 0; order < 2; order++) {
        float got[R * C];
        struct eval_opts o = { .late_copies = true, .consumers_first = order };
        *why = "another result";
        if (!run(d, k, &o, got, why) || !near(want, got))
            return true;
    }
    return false;
}

static bool one_fault(const struct fault_case *f, bool tell)
{
    struct dsl d;
    float want[R * C];
    const char *why;
    struct text t;
    dsl_open(&d, "sm_90a", source);
    struct kernel *k = laid_out(&d, f->kernel, f->variant, want);
    break_it(&d, k, f);
    bool ok = verify(&d.c, k, ST_LAYOUT);
    const char *first = d.c.diags ? d.c.diags->text : "";
    dsl_errors(&d, &t);
    bool says = !ok && strstr(t.s, f->says), seen = f->changes && eval_sees(&d, k, want, &why);
    if (!says)
        print_error("%s %s, %s: no '%s' in: %.700s\n", f->kernel, f->variant, f->what, f->says, ok ? "(nothing)" : t.s);
    if (f->changes && !seen)
        print_error("%s %s, %s: eval does not see it\n", f->kernel, f->variant, f->what);
    if (tell)
        printf("%s %s, %s\n    %s\n    eval: %s\n", f->kernel, f->variant, f->what, first, seen ? why : "-");
    dsl_close(&d);
    return says && (seen || !f->changes);
}

static void objects(void **state)
{
    int missed = 0;
    (void)state;
    for (size_t i = 0; i < COUNTOF(faults); i++)
        missed += !one_fault(&faults[i], getenv("TELL") != NULL);
    assert_int_equal(missed, 0);
}

// ---- two roles that read one ring ---------------------------------------------------------------------------------

struct twin {
    struct kernel *k, *copy;
    struct op **kept; // of k, by id
};

static bool keep(void *user, struct op *op)
{
    struct twin *t = user;
    t->kept[op->id] = op;
    return true;
}

static bool renumber(void *user, struct op *op)
{
    ((struct twin *)user)->kept[op->id] = NULL; // inside the role: the copy's own
    op->id = ((struct twin *)user)->k->nops++;
    return true;
}

static bool join(void *user, struct op *op)
{
    const struct twin *t = user;
    struct op **kept = t->kept;
    for (int i = 0; i < op->nargs; i++)
        op->args[i] = op->args[i]->id < t->copy->nops && kept[op->args[i]->id] ? kept[op->args[i]->id] : op->args[i];
    for (int i = 0; i < op->type.rank; i++)
        op->type.axes[i] = t->k->axes.v[op->type.axes[i]->id];
    op->axis = op->axis ? t->k->axes.v[op->axis->id] : NULL;
    op->buf = op->buf ? t->k->bufs.v[op->buf->id] : NULL;
    op->buf2 = op->buf2 ? t->k->bufs.v[op->buf2->id] : NULL;
    op->var = op->var ? t->k->vars.v[op->var->id] : NULL;
    return true;
}

// The products' role once more, on four warps of its own: each slot has two readers.
static void second_reader(struct dsl *d, struct kernel *k)
{
    struct twin t = { k, kernel_clone(&d->c, k), NEWN(d->c.arena, struct op *, k->nops) };
    struct spot s = spot_of(k, OP_ROLE, 1), from = spot_of(t.copy, OP_ROLE, 1);
    struct op *role = from.b->ops.v[from.at];
    walk(k->body, keep, &t);
    role->id = k->nops++;
    walk(role->body, renumber, &t);
    walk(role->body, join, &t);
    role->name = "more";
    role->ival = 8;
    k->sched.producers += 4;
    block_insert(&d->c, s.b, s.at + 1, role);
}

static void two_readers(void **state)
{
    static const struct fault_case broken[] = {
        { "product", "stays", "the second reader does not give slots back", DROP, OP_ARRIVE, 3, 0, 0,
          "once more than another role", true },
        { "product", "stays", "the second reader does not wait", DROP, OP_AWAIT, 2, 0, 0, "before its copy", true },
        { "product", "stays", "the second reader keeps the last slot", DROP, OP_ARRIVE, 4, 0, 0, "", true },
        { "product", "stays", "the first reader does not give slots back", DROP, OP_ARRIVE, 1, 0, 0, "", true },
    };
    (void)state;
    for (int i = -1; i < (int)COUNTOF(broken); i++) {
        struct dsl d;
        float want[R * C];
        struct text t;
        const char *why;
        dsl_open(&d, "sm_90a", source);
        struct kernel *k = laid_out(&d, "product", "stays", want);
        second_reader(&d, k);
        if (i >= 0)
            break_it(&d, k, &broken[i]);
        bool ok = verify(&d.c, k, ST_LAYOUT);
        dsl_errors(&d, &t);
        bool seen = eval_sees(&d, k, want, &why);
        if (i < 0 && (!ok || seen))
            fail_msg("%s%s", t.s, seen ? why : "");
        if (i >= 0 && (ok || !seen || !strstr(t.s, broken[i].says)))
            fail_msg("%s: %s %s", broken[i].what, t.s, seen ? why : "not seen by eval");
        dsl_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(clones_keep_everything), cmocka_unit_test(means_the_same),
                                        cmocka_unit_test(objects), cmocka_unit_test(two_readers) };
    fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
