// The driver: one function a step, one stage a line, in order. Read compile_module first.
#include "moec.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "describe.h"
#include "stages.h"

enum { KERNELS_MAX = 256 };

struct moec_result {
    struct ctx c;
    enum moec_status status;
    const char *code;
    size_t code_len;
    struct moec_diagnostic *diags;
    int ndiags;
    double times[ST_COUNT + 1]; // the last: assembler and linker
    const char **names;
    int nnames;
};
struct run {
    struct moec_result *r;
    struct ctx *c;
    const struct moec_options *o;
    enum stage stop; // nothing after it
    struct module *m;
    struct kernel *v[KERNELS_MAX]; // all variants of all kernels
    const char *symbol[KERNELS_MAX];
    int n;
    struct mb *mb;
    struct lower_result low;
    double since;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void spent(struct run *r, int stage)
{
    double t = now_ms();
    r->r->times[stage] += t - r->since;
    r->since = t;
}

// ---- dumps -------------------------------------------------------------------------------------------------------

static void dump_text(struct run *r, enum stage s, const struct text *t)
{
    if (r->o->dump)
        r->o->dump(r->o->user, stage_names[s], t->s ? t->s : "", t->n);
    r->since = now_ms();
}

static void dump_kernels(struct run *r, enum stage s, struct kernel *list, struct kernel *const *v, int n)
{
    struct text t = { .arena = r->c->arena };
    if (!r->o->dump && s != ST_LAYOUT)
        return;
    for (struct kernel *k = list; k; k = k->next)
        print_dsl(&t, raise_kernel(r->c, k));
    for (int i = 0; i < n; i++) {
        text_printf(&t, i ? "\n" : "");
        print_dsl(&t, raise_kernel(r->c, v[i]));
    }
    if (s == ST_LAYOUT && r->o->emit == MOEC_TILE) {
        r->r->code = t.s;
        r->r->code_len = t.n;
    }
    dump_text(r, s, &t);
}

static void dump_lowered(void *user, enum stage s, const char *text, size_t n)
{
    struct run *r = user;
    bool wanted = (r->o->emit == MOEC_MLIR && s == ST_MLIR) || (r->o->emit == MOEC_LLVM && s == ST_LLVMOPT);
    if (wanted) {
        r->r->code = arena_strndup(r->c->arena, text, n);
        r->r->code_len = n;
    }
    if (r->o->dump)
        r->o->dump(r->o->user, stage_names[s], text, n);
}

// ---- stages ------------------------------------------------------------------------------------------------------

static bool checked(struct run *r, const struct kernel *k, enum stage s)
{
    return r->o->no_verify || verify(r->c, k, s);
}

static bool front_end(struct run *r)
{
    int n;
    struct text t = { .arena = r->c->arena };
    struct token *tokens = lex(r->c, &n);
    spent(r, ST_TOKENS);
    if (r->o->dump) {
        dump_tokens(&t, tokens, n);
        dump_text(r, ST_TOKENS, &t);
    }
    if (r->stop == ST_TOKENS)
        return r->c->errors == 0;
    struct node *file = parse(r->c, tokens, n);
    spent(r, ST_AST);
    if (r->o->dump) {
        t = (struct text){ .arena = r->c->arena };
        print_tree(&t, file);
        dump_text(r, ST_AST, &t);
    }
    if (r->stop == ST_AST)
        return r->c->errors == 0;
    r->m = check(r->c, file);
    spent(r, ST_TILE);
    return r->m && r->c->errors == 0;
}

// options.kernel is NAME or NAME.VARIANT
static size_t kernel_part(const struct run *r)
{
    return strcspn(r->o->kernel, ".");
}

static bool wanted_variant(const struct run *r, const struct kernel *k)
{
    const char *v = r->o->kernel ? r->o->kernel + kernel_part(r) : "";
    return !*v || !strcmp(v + 1, k->sched.variant);
}

static bool keep_names(struct run *r)
{
    struct moec_result *x = r->r;
    int n = 0;
    bool found = !r->o->kernel;
    for (struct kernel *k = r->m->kernels; k; k = k->next)
        n++;
    x->names = NEWN(r->c->arena, const char *, n + 1);
    for (struct kernel **k = &r->m->kernels; *k;) {
        x->names[x->nnames++] = (*k)->name;
        size_t len = r->o->kernel ? kernel_part(r) : 0;
        if (len && (strlen((*k)->name) != len || strncmp(r->o->kernel, (*k)->name, len))) {
            *k = (*k)->next; // not asked for
        } else {
            found = true;
            k = &(*k)->next;
        }
    }
    if (found)
        return true;
    x->status = MOEC_USAGE;
    return error(r->c, (struct loc){ 0 }, "there is no kernel '%s' in this source", r->o->kernel);
}

static bool simplify(struct run *r, struct kernel *k)
{
    expand(r->c, k);
    if (!r->o->skip || strcmp(r->o->skip, "fold"))
        fold(r->c, k);
    return checked(r, k, ST_EXPAND);
}

static bool place(struct run *r, struct kernel *k)
{
    struct loc at = { 0 };
    layout(r->c, k);
    if (r->c->errors || !checked(r, k, ST_LAYOUT))
        return false;
    const char *why = r->c->arch->target->supports(r->c, r->c->arch, k, &at);
    return !why || error(r->c, at, "kernel '%s' cannot be compiled for %s: %s", k->name, r->c->arch->name, why);
}

static const char *symbol_of(struct run *r, const struct kernel *k)
{
    return *k->sched.variant ? arena_printf(r->c->arena, "%s_%s", k->name, k->sched.variant) : k->name;
}

static bool choose(struct run *r)
{
    for (struct kernel *k = r->m->kernels; k; k = k->next) {
        int n;
        struct kernel **v = schedule(r->c, r->m, k, &n);
        for (int i = 0; i < n && r->n < KERNELS_MAX; i++) {
            if (!wanted_variant(r, v[i]))
                continue;
            if (!r->o->skip || strcmp(r->o->skip, "fold"))
                fold(r->c, v[i]); // sizes are known now: full tiles need no masks
            r->symbol[r->n] = symbol_of(r, v[i]);
            r->v[r->n++] = v[i];
            if (!checked(r, v[i], ST_SCHED))
                return false;
        }
    }
    if (r->n || r->c->errors)
        return r->c->errors == 0;
    r->r->status = MOEC_USAGE;
    return error(r->c, (struct loc){ 0 }, "nothing to compile: %s%s", r->o->kernel ? "no variant " : "no kernel",
                 r->o->kernel ? r->o->kernel : "");
}

static bool middle(struct run *r)
{
    for (struct kernel *k = r->m->kernels; k; k = k->next)
        if (!checked(r, k, ST_TILE))
            return false;
    spent(r, ST_TILE);
    dump_kernels(r, ST_TILE, r->m->kernels, NULL, 0);
    if (r->stop == ST_TILE)
        return true;
    for (struct kernel *k = r->m->kernels; k; k = k->next)
        if (!simplify(r, k))
            return false;
    spent(r, ST_EXPAND);
    dump_kernels(r, ST_EXPAND, r->m->kernels, NULL, 0);
    if (r->stop == ST_EXPAND)
        return true;
    if (!choose(r))
        return false;
    spent(r, ST_SCHED);
    dump_kernels(r, ST_SCHED, NULL, r->v, r->n);
    if (r->stop == ST_SCHED)
        return true;
    for (int i = 0; i < r->n; i++)
        if (!place(r, r->v[i]))
            return false;
    spent(r, ST_LAYOUT);
    dump_kernels(r, ST_LAYOUT, NULL, r->v, r->n);
    return true;
}

static bool emit_all(struct run *r)
{
    r->mb = mb_new(r->c);
    if (!r->mb)
        return error(r->c, (struct loc){ 0 }, "out of memory");
    for (int i = 0; i < r->n; i++)
        if (!emit_kernel(r->c, r->mb, r->v[i], r->symbol[i]))
            return false;
    spent(r, ST_MLIR);
    return true;
}

static bool back_end(struct run *r)
{
    const struct target *t = r->c->arch->target;
    bool binary = r->o->emit == MOEC_IMAGE || r->o->emit == MOEC_HSACO;
    bool capture = r->o->dump || r->o->emit == MOEC_MLIR || r->o->emit == MOEC_LLVM;
    struct lower_opts lo = { .dump = capture ? dump_lowered : NULL, .user = r, .bitcode = r->o->bitcode,
                             .object = binary && t->text_code == CODE_NONE, .times = r->r->times };
    lo.assembly = t->text_code != CODE_NONE || r->o->emit == MOEC_ASM || r->o->dump != NULL;
    bool ok = lower(r->c, r->mb, r->c->arch, &lo, &r->low);
    r->since = now_ms();
    return ok;
}

static bool finish(struct run *r, enum code_kind want, const char **code, size_t *n)
{
    struct finish_opts fo = { .want = want, .warn_spills = true,
                              .assembler = want == CODE_HSACO ? r->o->lld : r->o->ptxas };
    bool missing = false;
    bool ok = r->c->arch->target->finish(&r->low.low, &fo, code, n, &missing);
    if (missing)
        r->r->status = MOEC_MISSING;
    r->r->times[ST_COUNT] += now_ms() - r->since;
    r->since = now_ms();
    return ok;
}

static bool write_image(struct run *r)
{
    const struct target *t = r->c->arch->target;
    struct image_kernel *k = NEWN(r->c->arena, struct image_kernel, r->n + 1);
    enum code_kind kind = r->o->ptx_only && t->text_code != CODE_NONE ? t->text_code : t->binary_code;
    struct image_desc d = { .arch = r->c->arch->name, .compiler = "moec " MOEC_VERSION, .kernels = k, .nkernels = r->n };
    const char *code = NULL;
    for (int i = 0; i < r->n; i++)
        if (!describe_kernel(r->c, r->v[i], r->symbol[i], &k[i]))
            return false;
    if (!finish(r, kind, &code, &d.code_size))
        return false;
    d.kind = kind == CODE_PTX ? IMAGE_PTX : kind == CODE_CUBIN ? IMAGE_CUBIN : IMAGE_HSACO;
    d.code = code;
    d.bitcode = r->low.bitcode;
    d.bitcode_size = r->low.bitcode_len;
    bool ok = describe_image(r->c, &d, &r->r->code, &r->r->code_len);
    spent(r, ST_IMAGE);
    return ok;
}

static bool output(struct run *r)
{
    switch (r->o->emit) {
    case MOEC_IMAGE: return write_image(r);
    case MOEC_PTX: return finish(r, CODE_PTX, &r->r->code, &r->r->code_len);
    case MOEC_CUBIN: return finish(r, CODE_CUBIN, &r->r->code, &r->r->code_len);
    case MOEC_HSACO: return finish(r, CODE_HSACO, &r->r->code, &r->r->code_len);
    case MOEC_ASM:
        r->r->code = r->low.low.asm_text->s;
        r->r->code_len = r->low.low.asm_text->n;
        return true;
    case MOEC_LLVM:
    case MOEC_MLIR:
    case MOEC_TILE: break; // taken from the stage's dump
    }
    return true;
}

static bool compile_module(struct run *r)
{
    if (!front_end(r))
        return false;
    if (r->stop < ST_TILE)
        return true;
    if (!keep_names(r) || !middle(r))
        return false;
    if (r->stop <= ST_LAYOUT || r->o->emit == MOEC_TILE)
        return true;
    return emit_all(r) && back_end(r) && (r->stop < ST_IMAGE || output(r));
}

// ---- entry -------------------------------------------------------------------------------------------------------

static bool usage(struct run *r)
{
    const struct moec_options *o = r->o;
    struct ctx *c = r->c;
    const struct target *t;
    r->r->status = MOEC_USAGE;
    r->stop = ST_IMAGE;
    if (!o || o->size < offsetof(struct moec_options, alloc))
        return error(c, (struct loc){ 0 }, "options are missing or their size is not set");
    c->arch = o->arch ? arch_find(o->arch) : NULL;
    if (!c->arch)
        return error(c, (struct loc){ 0 }, "unknown arch '%s'", o->arch ? o->arch : "");
    t = c->arch->target;
    if ((o->emit == MOEC_PTX && t->text_code != CODE_PTX) || (o->emit == MOEC_CUBIN && t->binary_code != CODE_CUBIN) ||
        (o->emit == MOEC_HSACO && t->binary_code != CODE_HSACO))
        return error(c, (struct loc){ 0 }, "%s cannot give this kind of output", c->arch->name);
    if (o->stop_after) {
        int s = 0;
        while (s < ST_COUNT && strcmp(stage_names[s], o->stop_after))
            s++;
        if (s == ST_COUNT)
            return error(c, (struct loc){ 0 }, "unknown stage '%s'", o->stop_after);
        r->stop = (enum stage)s;
    }
    if (o->skip && strcmp(o->skip, "fold"))
        return error(c, (struct loc){ 0 }, "pass '%s' cannot be skipped; 'fold' can", o->skip);
    r->r->status = MOEC_INPUT;
    return true;
}

static void take_bindings(struct ctx *c, const struct moec_options *o)
{
    struct binding *b = NEWN(c->arena, struct binding, o->nbindings + 1);
    for (int i = 0; i < o->nbindings; i++)
        b[i] = (struct binding){ o->bindings[i].name, o->bindings[i].value, o->bindings[i].type };
    c->bind = b;
    c->nbind = o->nbindings;
}

static void out_of_memory(void *user)
{
    longjmp(*(jmp_buf *)user, 2);
}

// The diagnostics as the caller sees them. Runs outside the setjmp: memory may end here too, then the list ends early.
static void finish_diagnostics(struct moec_result *x)
{
    struct ctx *c = &x->c;
    int n = 0;
    for (struct diag *d = c->diags; d; d = d->next)
        n++;
    struct moec_diagnostic *v = NEWN(c->arena, struct moec_diagnostic, n + 1);
    x->diags = v;
    for (struct diag *d = c->diags; d; d = d->next) {
        struct text t = { .arena = c->arena };
        diag_format(c, d, &t);
        v[x->ndiags++] = (struct moec_diagnostic){ (int)d->sev, d->loc.line, d->loc.col, d->text, t.s };
        if (d->sev == SEV_ERROR && !strncmp(d->text, "internal:", 9) && x->status == MOEC_INPUT)
            x->status = MOEC_INTERNAL;
    }
}

static const struct moec_diagnostic no_memory = { 0, 0, 0, "out of memory", "moec: error: out of memory\n" };

struct moec_result *moec_compile(const char *text, size_t length, const char *name, const struct moec_options *options)
{
    bool own = options && options->size >= sizeof *options;
    struct arena *a = arena_new(own ? options->alloc : NULL, own ? options->alloc_user : NULL);
    struct moec_result *x = NULL;
    struct run *r = NULL;
    jmp_buf jb;
    volatile bool ok = false;
    struct moec_result *volatile kept = NULL;
    struct run *volatile running = NULL;
    if (!a)
        return NULL;
    arena_on_oom(a, out_of_memory, &jb);
    int how = setjmp(jb);
    if (how == 0) {
        kept = x = NEW(a, struct moec_result);
        x->status = MOEC_INPUT;
        running = r = NEW(a, struct run);
        x->c = (struct ctx){ .arena = a, .file = name ? name : "-", .src = text ? text : "", .src_len = text ? length : 0 };
        x->c.diag_tail = &x->c.diags;
        x->c.jmp = &jb;
        *r = (struct run){ .r = x, .c = &x->c, .o = options, .since = now_ms() };
        if (usage(r)) {
            take_bindings(&x->c, options);
            ok = compile_module(r);
        }
    }
    x = kept;
    if (running) {
        lower_free(&running->low);
        mb_free(running->mb);
    }
    if (!x) {
        arena_free(a);
        return NULL;
    }
    if (how == 2 || setjmp(jb)) { // nothing can be formatted any more
        x->status = MOEC_INTERNAL;
        x->diags = (struct moec_diagnostic *)(uintptr_t)&no_memory;
        x->ndiags = 1;
        return x;
    }
    if (ok && !x->c.errors)
        x->status = MOEC_OK;
    finish_diagnostics(x);
    return x;
}

void moec_free(struct moec_result *r)
{
    if (r)
        arena_free(r->c.arena);
}

enum moec_status moec_status(const struct moec_result *r)
{
    return r->status;
}

const void *moec_code(const struct moec_result *r, size_t *n)
{
    *n = r->status == MOEC_OK ? r->code_len : 0;
    return r->status == MOEC_OK ? r->code : NULL;
}

const struct moec_diagnostic *moec_diagnostic(const struct moec_result *r, int i)
{
    return i >= 0 && i < r->ndiags ? &r->diags[i] : NULL;
}

double moec_time(const struct moec_result *r, int i, const char **name)
{
    *name = i < 0 || i > ST_COUNT ? NULL : i == ST_COUNT ? "assemble" : stage_names[i];
    return *name ? r->times[i] : 0;
}

const char *moec_arch_name(int i)
{
    for (int t = 0; t < ntargets && i >= 0; i -= targets[t++]->narches)
        if (i < targets[t]->narches)
            return targets[t]->arches[i].name;
    return NULL;
}

const char *moec_kernel_name(const struct moec_result *r, int i)
{
    return i >= 0 && i < r->nnames ? r->names[i] : NULL;
}
