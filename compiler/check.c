// The checker: AST -> struct module. Files, type aliases, -D bindings, kernels and their parameters.
//
// In: the tree of parse.c, written by a user or printed by raise.c after any stage. Out: tile IR in which every op has
// its type, every name is unique in its kernel, bound dimensions are constants; or NULL and diagnostics, as many as
// were found. The rest of the checker: check_stmt.c, check_expr.c, check_role.c, check_fact.c,
// check_sched.c, names.c.
#include "check.h"

#include <string.h>

// ---- type aliases -------------------------------------------------------------------------------------------

static const struct binding *binding_of(struct checker *s, const char *name)
{
    for (int i = s->c->nbind - 1; i >= 0; i--)
        if (!strcmp(s->c->bind[i].name, name)) {
            s->bind_used[i] = true;
            return &s->c->bind[i];
        }
    return NULL;
}

static bool alias_known(const struct checker *s, const char *name)
{
    return elem_named(s, name) != EL_NONE;
}

static void check_typedef(struct checker *s, const struct node *n)
{
    const struct binding *b = binding_of(s, n->name);
    const struct node *type = n->kids[0];
    struct alias *a = NEW(s->c->arena, struct alias);
    if (alias_known(s, n->name)) {
        error(s->c, n->loc, "type '%s' is already defined", n->name);
        return;
    }
    a->name = n->name;
    a->elem = elem_named(s, type->name);
    if (a->elem == EL_NONE) {
        unknown_elem(s, type);
        a->elem = EL_F32;
    }
    if (b && !b->type)
        error(s->c, n->loc, "'%s' is a type: -D %s=%lld gives it a number", n->name, n->name, (long long)b->value);
    else if (b && elem_named(s, b->type) == EL_NONE)
        error(s->c, n->loc, "-D %s=%s: unknown type '%s'", n->name, b->type, b->type);
    else if (b)
        a->elem = elem_named(s, b->type);
    a->next = s->aliases;
    s->aliases = a;
}

// ---- parameters ---------------------------------------------------------------------------------------------

static void bind_dim(struct checker *s, struct dim *d, int64_t v, struct loc at)
{
    if (v < 0 || v > INT32_MAX) {
        error(s->c, at, "dimension '%s' is bound to %lld: it must be 0 to 2147483647", d->name, (long long)v);
        return;
    }
    d->bound = d->max = v;
    d->multiple = v ? v : 1;
}

static struct dim *dim_named(struct checker *s, const struct node *n)
{
    struct sym *y = lookup(s, n->name);
    if (y && y->kind == SY_DIM)
        return y->dim;
    if (y) {
        if (y->kind != SY_POISON) {
            error(s->c, n->loc, "'%s' is already %s and cannot be a dimension too", n->name, sym_kind_text(y->kind));
            note(s->c, y->loc, "'%s' is declared here", n->name);
        }
        return NULL;
    }
    struct dim *d = NEW(s->c->arena, struct dim);
    const struct binding *b = binding_of(s, n->name);
    d->name = unique_name(s, n->name);
    d->bound = -1;
    d->multiple = 1;
    d->max = INT32_MAX;
    d->loc = n->loc;
    declare(s, n->name, SY_DIM, n->loc)->dim = d;
    VEC_PUSH(s->c->arena, &s->k->dims, d);
    if (b && b->type)
        error(s->c, n->loc, "'%s' is a dimension: -D %s=%s gives it a type", n->name, n->name, b->type);
    else if (b)
        bind_dim(s, d, b->value, n->loc);
    return d;
}

static void shape_of(struct checker *s, const struct node *n, struct buf *b)
{
    if (n->nkids > RANK_MAX)
        error(s->c, n->kids[RANK_MAX]->loc, "'%s' has %d dimensions; at most %d are possible", b->name, n->nkids,
              RANK_MAX);
    for (int i = 0; i < n->nkids && i < RANK_MAX; i++) {
        const struct node *d = n->kids[i];
        struct shape_dim *to = &b->shape[b->rank++];
        if (d->kind == N_NAME)
            to->dim = dim_named(s, d);
        else if (d->kind == N_INT)
            to->value = d->value;
        else
            error(s->c, d->loc, "a dimension is a name or a number");
        if (d->kind == N_INT && (d->value < 1 || d->value > INT32_MAX))
            error(s->c, d->loc, "a dimension must be 1 to 2147483647, not %lld", (long long)d->value);
    }
}

static struct buf *map_param(struct checker *s, const struct node *n, const struct node *type)
{
    struct buf *b = buf_new(s->c, s->k, n->name, BUF_MAP, EL_I32, n->loc);
    shape_of(s, type, b);
    if (b->rank != 1)
        error(s->c, type->loc, "a tile_map has one dimension: its number of entries");
    b->rank = 2;
    b->shape[1] = (struct shape_dim){ NULL, 4 };
    b->early = n->flags & NF_EARLY;
    if (n->flags & ~(unsigned)NF_EARLY)
        error(s->c, n->loc, "a tile_map is an input; to write one, declare it out i32[N, 4]");
    return b;
}

void unknown_elem(struct checker *s, const struct node *type)
{
    static const char *const elsewhere[][2] = { { "float", "f32" },   { "float32", "f32" }, { "half", "f16" },
                                                { "float16", "f16" }, { "fp16", "f16" },    { "bfloat16", "bf16" },
                                                { "int", "i32" },     { "int32", "i32" },   { "boolean", "bool" } };
    struct nearest near = { .want = type->name };
    if (!strcmp(type->name, "tile_map")) {
        error(s->c, type->loc, "a tile_map needs its number of entries: tile_map[N]");
        return;
    }
    for (size_t i = 0; i < COUNTOF(elsewhere); i++)
        if (!strcmp(type->name, elsewhere[i][0])) {
            error(s->c, type->loc, "unknown type '%s'; did you mean '%s'?", type->name, elsewhere[i][1]);
            return;
        }
    for (int e = EL_BOOL; e < EL_COUNT; e++)
        nearest_try(&near, elem_names[e]);
    for (const struct alias *a = s->aliases; a; a = a->next)
        nearest_try(&near, a->name);
    error(s->c, type->loc, "unknown type '%s'%s", type->name, did_you_mean(s->c, &near));
}

// Scalars are known before dimensions (a name cannot be both); shapes follow in the order of the source.
static void check_param(struct checker *s, const struct node *n)
{
    const struct node *type = n->kids[0];
    struct param p = { 0 };
    bool scalar = type->kind == N_TYPE && !type->nkids;
    struct sym *y = declare(s, n->name, scalar ? SY_SCALAR : SY_BUF, n->loc);
    unique_name(s, n->name);
    if (type->kind == N_MAPTYPE) {
        p.buf = map_param(s, n, type);
        p.elem = EL_I32;
    } else {
        p.elem = elem_named(s, type->name);
        if (p.elem == EL_NONE) {
            unknown_elem(s, type);
            y->kind = SY_POISON;
        }
    }
    if (scalar) {
        if (p.elem != EL_NONE && p.elem != EL_I32 && p.elem != EL_F32)
            error(s->c, type->loc, "a scalar parameter is i32 or f32, not %s", elem_names[p.elem]);
        if (n->flags)
            error(s->c, n->loc,
                  n->flags & NF_EARLY ? "a scalar parameter is there from the start: only tensors can be early"
                                      : "a scalar parameter cannot be an output");
        p.scalar = n->name;
        y->param = s->k->params.n;
    } else if (!p.buf) {
        enum buf_kind kind = n->flags & NF_INOUT ? BUF_INOUT : n->flags & NF_OUT ? BUF_OUT : BUF_IN;
        p.buf = buf_new(s->c, s->k, n->name, kind, p.elem, n->loc);
        p.buf->early = n->flags & NF_EARLY;
        if (p.elem == EL_BOOL)
            error(s->c, type->loc, "there are no buffers of bool; use i32");
        shape_of(s, type, p.buf);
    }
    y->buf = p.buf;
    VEC_PUSH(s->c->arena, &s->k->params, p);
}

// ---- require ------------------------------------------------------------------------------------------------

static bool is_binary(const struct node *n, const char *op)
{
    return n->kind == N_BINARY && !strcmp(n->name, op);
}

static bool parse_require(const struct node *e, struct require *r, const struct node **name)
{
    if (is_binary(e, "==") && is_binary(e->kids[0], "%") && e->kids[1]->kind == N_INT && e->kids[1]->value == 0) {
        r->kind = REQ_MULTIPLE;
        *name = e->kids[0]->kids[0];
        if (e->kids[0]->kids[1]->kind != N_INT)
            return false;
        r->value = e->kids[0]->kids[1]->value;
    } else if (is_binary(e, "<=") && e->kids[1]->kind == N_INT) {
        r->kind = REQ_MAX;
        *name = e->kids[0];
        r->value = e->kids[1]->value;
    } else {
        return false;
    }
    return (*name)->kind == N_NAME;
}

static int64_t lcm_i32(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t t = x % y;
        x = y;
        y = t;
    }
    int64_t l = a / x * b;
    return l > INT32_MAX ? b : l;
}

static void apply_require(struct checker *s, const struct require *r)
{
    struct dim *d = r->dim;
    if (d->bound >= 0) {
        if (r->kind == REQ_MULTIPLE && d->bound % r->value)
            error(s->c, r->loc, "%s = %lld is not a multiple of %lld", d->name, (long long)d->bound,
                  (long long)r->value);
        if (r->kind == REQ_MAX && d->bound > r->value)
            error(s->c, r->loc, "%s = %lld is more than %lld", d->name, (long long)d->bound, (long long)r->value);
    } else if (r->kind == REQ_MULTIPLE) {
        d->multiple = lcm_i32(d->multiple, r->value);
    } else if (r->value < d->max) {
        d->max = r->value;
    }
}

static void check_require(struct checker *s, const struct node *n)
{
    struct require r = { .loc = n->loc };
    const struct node *name = NULL;
    if (!parse_require(n->kids[0], &r, &name)) {
        error(s->c, r.loc, "expected 'NAME %% number == 0' or 'NAME <= number'");
        return;
    }
    struct sym *y = lookup(s, name->name);
    if (!y) {
        struct nearest near = { .want = name->name };
        for (int i = 0; i < s->k->dims.n; i++)
            nearest_try(&near, s->k->dims.v[i]->name);
        error(s->c, name->loc, "unknown dimension '%s'%s", name->name, did_you_mean(s->c, &near));
    } else if (y->kind != SY_DIM) {
        if (y->kind != SY_POISON)
            error(s->c, name->loc, "'%s' is %s, not a dimension", name->name, sym_kind_text(y->kind));
    } else if (r.value < 1 || r.value > INT32_MAX) {
        error(s->c, r.loc, "the number must be 1 to 2147483647, not %lld", (long long)r.value);
    } else {
        r.dim = y->dim;
        VEC_PUSH(s->c->arena, &s->k->requires, r);
        apply_require(s, &r);
    }
}

// ---- kernels ------------------------------------------------------------------------------------------------

// @bind(H, 4096): as -D H=4096, in a printed kernel.
static void check_binds(struct checker *s, const struct node *n)
{
    for (int i = 0; i < n->nannots; i++) {
        const struct annot *a = &n->annots[i];
        if (strcmp(a->name, "bind"))
            continue;
        if (a->nargs != 2 || a->args[0]->kind != N_NAME || a->args[1]->kind != N_INT) {
            error(s->c, a->loc, "expected @bind(dimension, number)");
            continue;
        }
        struct sym *y = lookup(s, a->args[0]->name);
        int64_t v = a->args[1]->value;
        if (!y || y->kind != SY_DIM)
            error(s->c, a->args[0]->loc, "'%s' is not a dimension of this kernel", a->args[0]->name);
        else if (y->dim->bound >= 0 && y->dim->bound != v)
            error(s->c, a->loc, "'%s' is bound to %lld and to %lld", a->args[0]->name, (long long)y->dim->bound,
                  (long long)v);
        else
            bind_dim(s, y->dim, v, a->loc);
    }
}

static bool is_pure(const struct op *op)
{
    unsigned f = op_infos[op->code].flags;
    return (f & F_PURE) && !(f & F_SYNC) && op->code != OP_RANGE && op->type.rank == 0;
}

// Before the grid: the scalars that its bounds need; after layout what lives across the tiles of a persistent block too, and the wait
// for the kernel launched before, where a list of tiles is not early.
static bool outside_grid(const struct checker *s, const struct op *op)
{
    bool laid = op->code == OP_SHARED || op->code == OP_VAR || op->code == OP_RANGE || op->code == OP_DEPEND;
    return is_pure(op) || (laid && s->k->laid_out);
}

static void check_outermost(struct checker *s)
{
    bool before = true;
    for (int i = 0; s->grid && i < s->k->body->ops.n; i++) {
        const struct op *op = s->k->body->ops.v[i];
        if (op == s->grid)
            before = false;
        else if (!outside_grid(s, op) || !before) {
            error(s->c, op->loc,
                  "'parallel' must be the outermost statement: only scalar values for its bounds%s may "
                  "stand before it, and nothing after it",
                  s->k->laid_out ? ", shared buffers, variables and ranges" : "");
            note(s->c, s->grid->loc, "'parallel' is here");
            return;
        }
    }
}

static void check_parts(struct checker *s, const struct node *n, enum node_kind kind,
                        void (*fn)(struct checker *s, const struct node *n))
{
    for (int i = 0; i < n->nkids; i++)
        if (n->kids[i]->kind == kind)
            fn(s, n->kids[i]);
}

// Scalar parameters' names first: a shape that uses one is told so at the shape.
static void kernel_head(struct checker *s, const struct node *n)
{
    check_parts(s, n, N_PARAM, check_param);
    check_binds(s, n);
    check_parts(s, n, N_REQUIRE, check_require);
    declare_dists(s, n);
    check_kernel_facts(s, n);
}

// Names are unique, but for the variants of one kernel in a dump.
static void unique_kernel(struct checker *s, const struct kernel *k)
{
    for (const struct kernel *o = s->m->kernels; o && o != k; o = o->next)
        if (!strcmp(o->name, k->name) &&
            (!o->scheduled || !k->scheduled || !strcmp(o->sched.variant, k->sched.variant))) {
            error(s->c, k->loc, "kernel '%s' is already defined", k->name);
            note(s->c, o->loc, "'%s' is defined here", o->name);
            return;
        }
}

static void check_kernel(struct checker *s, const struct node *n)
{
    struct kernel *k = NEW(s->c->arena, struct kernel), **tail = &s->m->kernels;
    const struct node *body = n->kids[n->nkids - 1];
    int had = s->c->errors;
    while (*tail)
        tail = &(*tail)->next;
    *tail = k;
    k->name = n->name;
    k->doc = n->doc;
    k->loc = n->loc;
    k->body = block_new(s->c, NULL);
    s->k = k;
    s->b = NULL;
    s->syms = NULL;
    s->grid = s->role = NULL;
    s->depth = s->dist = 0;
    memset(&s->used, 0, sizeof s->used);
    kernel_head(s, n);
    unique_kernel(s, k);
    check_block(s, body, k->body);
    fill_dists(s, n);
    if (s->c->errors == had)
        check_outermost(s);
    if (s->c->errors == had)
        check_roles(s);
}

// ---- files --------------------------------------------------------------------------------------------------

static void unused_bindings(struct checker *s)
{
    for (int i = 0; i < s->c->nbind; i++) {
        bool first = !s->bind_used[i];
        for (int j = 0; j < i && first; j++)
            first = strcmp(s->c->bind[i].name, s->c->bind[j].name) != 0;
        for (int j = i + 1; j < s->c->nbind && first; j++)
            first = !s->bind_used[j] || strcmp(s->c->bind[i].name, s->c->bind[j].name) != 0;
        if (first)
            error(s->c, (struct loc){ 0 }, "-D %s: there is no dimension or type named '%s'", s->c->bind[i].name,
                  s->c->bind[i].name);
    }
}

struct module *check(struct ctx *c, const struct node *file)
{
    struct checker s = { .c = c, .m = NEW(c->arena, struct module), .bind_used = NEWN(c->arena, bool, c->nbind + 1) };
    if (c->errors) // of the parser: its tree may have holes
        return NULL;
    check_parts(&s, file, N_TYPEDEF, check_typedef);
    check_parts(&s, file, N_KERNEL, check_kernel);
    check_parts(&s, file, N_SCHEDULE, check_schedule);
    unused_bindings(&s);
    return c->errors ? NULL : s.m;
}
