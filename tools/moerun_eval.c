// The compiler's front end and eval.c as a device: a kernel's text is parsed, checked and evaluated in double
// precision. Needs no LLVM. With --stage=layout the kernels are scheduled and laid out for --arch first, and eval
// runs that, with asynchronous copies landing as late as they may.
//
// Each launch compiles anew in an arena of its own, so that memory does not pile up; the first compile only
// describes.
#include "../targets/target.h"
#include "moerun.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { VARIANTS_MAX = 256 };
struct unit { // one compile
    struct ctx c;
    struct kernel *v[VARIANTS_MAX];
    int n;
    jmp_buf jb;
    bool no_memory;
};
struct eval_source {
    const struct options *o;
    const struct arch *arch; // NULL: stage tile
    char *text;
    size_t length;
    struct binding bind[BINDINGS_MAX + 12];
    int nbind;
    struct unit *unit; // of the descriptions
    struct image_kernel *k;
};

const char *simulator_arch(int n)
{
    for (int i = 0; i < ntargets; n -= targets[i++]->narches)
        if (n < targets[i]->narches)
            return targets[i]->arches[n].name;
    return NULL;
}

// ---- compiling
// ------------------------------------------------------------------------------------------------------

static void out_of_memory(void *user)
{
    struct unit *u = user;
    u->no_memory = true;
    longjmp(u->jb, 1);
}

static bool add_variants(struct unit *u, const struct module *m, struct kernel *k)
{
    int n = 0;
    expand(&u->c, k);
    fold(&u->c, k);
    struct kernel **v = schedule(&u->c, m, k, &n);
    for (int i = 0; i < n && u->n < VARIANTS_MAX && !u->c.errors; i++) {
        fold(&u->c, v[i]);
        layout(&u->c, v[i]);
        u->v[u->n++] = v[i];
    }
    return !u->c.errors;
}

static bool compile(struct unit *u, const char *only)
{
    int n;
    struct token *t = lex(&u->c, &n);
    struct node *file = parse(&u->c, t, n);
    struct module *m = u->c.errors ? NULL : check(&u->c, file);
    for (struct kernel *k = m ? m->kernels : NULL; k && !u->c.errors; k = k->next) {
        if (only && strcmp(only, k->name))
            continue;
        if (u->c.arch)
            add_variants(u, m, k);
        else if (u->n < VARIANTS_MAX)
            u->v[u->n++] = k;
    }
    return m && !u->c.errors;
}

static void print_diagnostics(struct unit *u)
{
    for (const struct diag *d = u->c.diags; d; d = d->next) {
        struct text t = { .arena = u->c.arena };
        diag_format(&u->c, d, &t);
        fputs(t.s ? t.s : "", stderr);
    }
}

static void unit_free(struct unit *u)
{
    if (u)
        arena_free(u->c.arena);
    free(u);
}

// Runs fn(u, user) where memory may end. false after report().
static bool guarded_call(struct unit *u, bool (*fn)(struct unit *u, void *user), void *user)
{
    volatile bool ok = false;
    u->c.jmp = &u->jb;
    arena_on_oom(u->c.arena, out_of_memory, u);
    if (setjmp(u->jb) == 0)
        ok = fn(u, user);
    u->c.jmp = NULL;
    if (u->no_memory)
        return report(EXIT_INTERNAL, "out of memory");
    return ok;
}

static bool compile_call(struct unit *u, void *user)
{
    bool ok = compile(u, user);
    if (!ok)
        print_diagnostics(u);
    return ok;
}

static struct unit *unit_new(const struct eval_source *s, const char *only)
{
    struct unit *u = calloc(1, sizeof *u);
    if (!u || !(u->c.arena = arena_new(NULL, NULL))) {
        free(u);
        report(EXIT_INTERNAL, "out of memory");
        return NULL;
    }
    struct arena *a = u->c.arena;
    u->c = (struct ctx){ .arena = a,
                         .file = s->o->source,
                         .src = s->text,
                         .src_len = s->length,
                         .arch = s->arch,
                         .bind = s->bind,
                         .nbind = s->nbind };
    u->c.diag_tail = &u->c.diags;
    if (!guarded_call(u, compile_call, (void *)(uintptr_t)only)) {
        unit_free(u);
        report(EXIT_BREACH, "%s does not compile", s->o->source);
        return NULL;
    }
    return u;
}

// ---- describing
// -----------------------------------------------------------------------------------------------------

static int dim_index(const struct kernel *k, const struct dim *d)
{
    for (int i = 0; i < k->dims.n; i++)
        if (k->dims.v[i] == d)
            return i;
    return -1;
}

static void describe_param(const struct kernel *k, const struct param *p, struct image_param *o)
{
    static const enum image_elem elems[EL_COUNT] = {
        [EL_I32] = IMAGE_I32, [EL_F32] = IMAGE_F32, [EL_BF16] = IMAGE_BF16, [EL_F16] = IMAGE_F16
    };
    static const enum image_param_kind kinds[] = {
        [BUF_IN] = IMAGE_IN, [BUF_OUT] = IMAGE_OUT, [BUF_INOUT] = IMAGE_INOUT, [BUF_MAP] = IMAGE_MAP
    };
    bool map = p->buf && p->buf->kind == BUF_MAP;
    *o = (struct image_param){ .name = p->buf ? p->buf->name : p->scalar,
                               .kind = p->buf ? kinds[p->buf->kind] : IMAGE_SCALAR,
                               .elem = map ? IMAGE_I32
                                           : elems[p->elem  ? p->elem
                                                   : p->buf ? p->buf->elem
                                                            : EL_I32],
                               .align = p->buf ? 16 : 4,
                               .rank = map      ? 2
                                       : p->buf ? p->buf->rank
                                                : 0 };
    for (int i = 0; i < o->rank; i++) {
        const struct shape_dim *d = &p->buf->shape[i];
        o->shape[i] = map && i == 1 ? (struct image_extent){ -1, 4 }
                                    : (struct image_extent){ d->dim ? dim_index(k, d->dim) : -1, d->value };
    }
}

static void describe(struct unit *u, const struct kernel *k, struct image_kernel *o)
{
    struct image_param *p = NEWN(u->c.arena, struct image_param, k->params.n + 1);
    struct image_dim *d = NEWN(u->c.arena, struct image_dim, k->dims.n + 1);
    struct image_axis *a = NEWN(u->c.arena, struct image_axis, k->axes.n + 1);
    *o = (struct image_kernel){ .name = k->name,
                                .variant = k->sched.variant ? k->sched.variant : "",
                                .symbol = k->name,
                                .doc = k->doc ? k->doc : "",
                                .nparams = k->params.n,
                                .ndims = k->dims.n,
                                .params = p,
                                .dims = d,
                                .axes = a };
    for (int i = 0; i < k->params.n; i++)
        describe_param(k, &k->params.v[i], &p[i]);
    for (int i = 0; i < k->dims.n; i++)
        d[i] = (struct image_dim){ k->dims.v[i]->name, k->dims.v[i]->bound, k->dims.v[i]->multiple, k->dims.v[i]->max };
    struct image_clause *map = NULL; // only what a caller needs to make a tile map
    for (int i = 0; i < k->axes.n && !map; i++)
        if (k->axes.v[i]->size > 0 && k->axes.v[i]->kind == AX_MAP) {
            map = NEW(u->c.arena, struct image_clause);
            *map =
                (struct image_clause){ .kind = IMAGE_IN_MAP, .name = k->axes.v[i]->name, .size = k->axes.v[i]->size };
        }
    o->clauses = map;
    o->nclauses = map != NULL;
    for (int i = 0; i < k->axes.n; i++)
        if (k->axes.v[i]->size > 0 && k->axes.v[i]->kind != AX_RANGE)
            a[o->naxes++] = (struct image_axis){ k->axes.v[i]->name, k->axes.v[i]->size };
}

static bool describe_call(struct unit *u, void *user)
{
    struct eval_source *s = user;
    s->k = NEWN(u->c.arena, struct image_kernel, u->n + 1);
    for (int i = 0; i < u->n; i++)
        describe(u, u->v[i], &s->k[i]);
    return true;
}

struct eval_source *eval_open(const struct options *o, const struct model *m)
{
    struct bound from[BINDINGS_MAX + 12];
    const char *stage = o->stage;
    struct eval_source *s = calloc(1, sizeof *s);
    if (!s) {
        report(EXIT_INTERNAL, "out of memory");
        return NULL;
    }
    s->o = o;
    s->nbind = option_bindings(o, m, from);
    for (int i = 0; i < s->nbind; i++)
        s->bind[i] = (struct binding){ from[i].name, from[i].value, from[i].type };
    bool laid_out = stage && !strcmp(stage, "layout"), ok = true;
    if (laid_out) {
        s->arch = arch_find(o->arch ? o->arch : "sm_80");
        ok = s->arch || report(EXIT_USAGE, "unknown arch '%s'", o->arch ? o->arch : "sm_80");
    } else if (stage && strcmp(stage, "tile")) {
        ok = report(EXIT_USAGE, "--stage=%s: eval runs 'tile' or 'layout'", stage);
    }
    ok = ok && read_file(o->source, &s->text, &s->length);
    s->unit = ok ? unit_new(s, o->kernel) : NULL;
    if (!s->unit || !guarded_call(s->unit, describe_call, s)) {
        eval_close(s);
        return NULL;
    }
    return s;
}

void eval_close(struct eval_source *s)
{
    if (!s)
        return;
    unit_free(s->unit);
    free(s->text);
    free(s);
}

const struct image_kernel *eval_kernel(const struct eval_source *s, int i)
{
    return i >= 0 && i < s->unit->n ? &s->k[i] : NULL;
}

// ---- running
// ----------------------------------------------------------------------------------------------------------

struct launch {
    const struct image_kernel *k;
    int at, tile;
    struct eval_arg args[IMAGE_PARAMS_MAX];
    int64_t free_dims[IMAGE_DIMS_MAX];
    bool late;
};

static bool launch_call(struct unit *u, void *user)
{
    const struct launch *l = user;
    struct eval_opts o = { .default_tile = l->tile, .late_copies = l->late };
    const char *why = "";
    if (eval(&u->c, u->v[l->at], l->args, l->free_dims, &o, &why))
        return true;
    return report(EXIT_BREACH, "eval of %s: %s", l->k->symbol, why);
}

// Values of the dims: as libmoert finds them, from shapes or as given.
static bool find_dims(const struct image_kernel *k, const struct moe_arg *args, const int64_t *given, int64_t *dims)
{
    for (int i = 0; i < k->ndims; i++)
        dims[i] = k->dims[i].bound >= 0 ? k->dims[i].bound : given ? given[i] : -1;
    for (int i = 0; i < k->nparams; i++)
        for (int j = 0; args[i].kind == MOE_POINTER && j < args[i].rank; j++) {
            const struct image_extent *e = &k->params[i].shape[j];
            if (e->dim >= 0 && dims[e->dim] == -1)
                dims[e->dim] = args[i].shape[j];
            if (args[i].shape[j] != (e->dim >= 0 ? dims[e->dim] : e->value))
                return report(EXIT_BREACH, "%s: extent %d of '%s' does not fit", k->name, j, k->params[i].name);
        }
    for (int i = 0; i < k->ndims; i++)
        if (dims[i] < 0 || dims[i] > k->dims[i].max || dims[i] % k->dims[i].multiple)
            return report(EXIT_BREACH, "%s: %s = %" PRId64 " is not given, or not allowed", k->name, k->dims[i].name,
                          dims[i]);
    return true;
}

bool eval_launch(const struct eval_source *s, const struct image_kernel *k, const struct moe_arg *args, int nargs,
                 const int64_t *given, int tile)
{
    struct launch l = { .k = k, .at = (int)(k - s->k), .tile = tile, .late = s->arch != NULL };
    int64_t dims[IMAGE_DIMS_MAX];
    int n = 0;
    if (nargs != k->nparams || nargs > IMAGE_PARAMS_MAX || k->ndims > IMAGE_DIMS_MAX ||
        !find_dims(k, args, given, dims))
        return report(EXIT_INTERNAL, "%s: arguments", k->name);
    for (int i = 0; i < nargs; i++) {
        int64_t bytes = moe_image_elem_bytes(k->params[i].elem);
        for (int j = 0; j < k->params[i].rank; j++)
            bytes *= moe_image_extent(&k->params[i].shape[j], dims);
        l.args[i].nbytes = bytes;
        l.args[i].data = args[i].kind == MOE_POINTER ? args[i].ptr
                         : args[i].kind == MOE_I32   ? (void *)(uintptr_t)&args[i].i
                                                     : (void *)(uintptr_t)&args[i].f;
    }
    for (int i = 0; i < k->ndims; i++)
        if (k->dims[i].bound < 0)
            l.free_dims[n++] = dims[i];
    struct unit *u = unit_new(s, s->o->kernel);
    bool ok = u && guarded_call(u, launch_call, &l);
    unit_free(u);
    return ok;
}
