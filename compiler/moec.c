// The driver: text -> code, one stage a line, in order. Read `steps` first, then the functions above it.
//
// In: DSL text and options (moec.h). Out: code, diagnostics, times. No file is opened and nothing is printed here; what a
// stage does is in the stage's own file. The one setjmp of the compiler is in moec_compile: memory that ends and a
// hopeless number of errors come back to it from anywhere.
#include "moec.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "describe.h"
#include "stages.h"

enum { TIME_ASSEMBLE = ST_COUNT, TIMES }; // after the stages: ptxas or the linker

struct moec_result {
    struct ctx c;
    enum moec_status status;
    const char *code;
    size_t code_len;
    const struct moec_diagnostic *diags;
    int ndiags;
    double times[TIMES];
    VEC(const char *) names;
    struct moec_kernel_use *uses;
    int nuses;
};
struct run { // one compile
    struct moec_result *r;
    struct ctx *c;
    struct moec_options o;
    enum stage stop; // nothing after it
    struct token *tokens;
    int ntokens;
    struct node *file;
    struct module *m;
    VEC(struct kernel *) variants; // of all kernels
    VEC(const char *) symbols;
    VEC(const char *) others; // variants that were not asked for
    struct text facts;        // of the image, if it is to be dumped
    struct mb *mb;            // to be freed
    struct lower_result low;  // to be freed
    double since;             // when what is running now began
};
static const struct loc nowhere = { 0 };

// ---- time, dumps -------------------------------------------------------------------------------------------------

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void spent(struct run *r, int on)
{
    double t = now_ms();
    r->r->times[on] += t - r->since;
    r->since = t;
}

static void dump_kernels(struct run *r, enum stage s, struct text *t)
{
    int n = 0;
    for (struct kernel *k = s < ST_SCHED ? r->m->kernels : NULL; k; k = k->next) {
        text_printf(t, "%s", n++ ? "\n" : "");
        print_dsl(t, raise_kernel(r->c, k));
    }
    for (int i = 0; s >= ST_SCHED && i < r->variants.n; i++) {
        text_printf(t, "%s", n++ ? "\n" : "");
        print_dsl(t, raise_kernel(r->c, r->variants.v[i]));
    }
}

// lower.c gives the texts of its own stages.
static void on_lower(void *user, enum stage s, const char *text, size_t n)
{
    struct run *r = user;
    if (r->o.emit == MOEC_LLVM && s == ST_LLVMOPT) {
        r->r->code = arena_strndup(r->c->arena, text, n);
        r->r->code_len = n;
    }
    if (r->o.dump)
        r->o.dump(r->o.user, stage_names[s], text, n);
}

// The text of a stage, to the caller's callback; and it is the output where one asks for this stage's form.
static void dump(struct run *r, enum stage s)
{
    struct text t = { .arena = r->c->arena };
    bool output = (s == ST_LAYOUT && r->o.emit == MOEC_TILE) || (s == ST_MLIR && r->o.emit == MOEC_MLIR);
    if ((!r->o.dump && !output) || s == ST_ASM) // ST_ASM: lower.c did
        return;
    text_put(&t, "", 0);
    if (s == ST_TOKENS)
        dump_tokens(&t, r->tokens, r->ntokens);
    else if (s == ST_AST)
        print_tree(&t, r->file);
    else if (s == ST_MLIR)
        mb_print(r->mb, &t);
    else if (s == ST_IMAGE)
        text_put(&t, r->facts.s, r->facts.n);
    else
        dump_kernels(r, s, &t);
    if (output) {
        r->r->code = t.s;
        r->r->code_len = t.n;
    }
    if (r->o.dump)
        r->o.dump(r->o.user, stage_names[s], t.s, t.n);
}

// ---- front end ---------------------------------------------------------------------------------------------------

static bool do_lex(struct run *r)
{
    r->tokens = lex(r->c, &r->ntokens);
    return true; // its errors do not keep the parser from finding more
}

static bool do_parse(struct run *r)
{
    r->file = parse(r->c, r->tokens, r->ntokens);
    return true;
}

// options.kernel is NAME or NAME.VARIANT
static bool wanted(const struct run *r, const struct kernel *k)
{
    size_t n = r->o.kernel ? strcspn(r->o.kernel, ".") : 0;
    return !r->o.kernel || (strlen(k->name) == n && !strncmp(k->name, r->o.kernel, n));
}

static bool wanted_variant(const struct run *r, const struct kernel *k)
{
    const char *dot = r->o.kernel ? strchr(r->o.kernel, '.') : NULL;
    return !dot || !strcmp(dot + 1, k->sched.variant);
}

static bool nothing(struct run *r)
{
    struct text known = { .arena = r->c->arena };
    r->r->status = MOEC_USAGE;
    if (!r->r->names.n)
        return error(r->c, nowhere, "there is no kernel in this source");
    for (int i = 0; i < (r->others.n ? r->others.n : r->r->names.n); i++)
        text_printf(&known, "%s%s", i ? ", " : "", r->others.n ? r->others.v[i] : r->r->names.v[i]);
    return error(r->c, nowhere, "there is no %s '%s' in this source; there %s %s", r->others.n ? "variant" : "kernel",
                 r->o.kernel, strchr(known.s, ',') ? "are" : "is", known.s);
}

// Keeps what --kernel names. Verified here, not in a pass: this is what the user wrote.
static bool do_check(struct run *r)
{
    r->m = check(r->c, r->file);
    if (!r->m || r->c->errors)
        return false;
    for (struct kernel **at = &r->m->kernels; *at;) {
        VEC_PUSH(r->c->arena, &r->r->names, (*at)->name);
        if (wanted(r, *at))
            at = &(*at)->next;
        else
            *at = (*at)->next;
    }
    if (!r->m->kernels)
        return nothing(r);
    for (struct kernel *k = r->m->kernels; k && !r->o.no_verify; k = k->next)
        verify(r->c, k, ST_TILE);
    return r->c->errors == 0;
}

// ---- the middle: passes over one kernel --------------------------------------------------------------------------

// The one way a pass runs: left out on request, timed by its stage, and what it made is verified.
static void run_pass(struct run *r, const char *name, enum stage s, bool (*pass)(struct ctx *, struct kernel *),
                     struct kernel *k)
{
    int had = r->c->errors;
    if (r->o.skip && !strcmp(r->o.skip, name))
        return;
    pass(r->c, k);
    if (!r->o.no_verify && r->c->errors == had)
        verify(r->c, k, s);
}

// A kernel that is laid out already was read from a dump or written by hand: it stays as it stands.
static void run_fold(struct run *r, enum stage s, struct kernel *k)
{
    if (!k->laid_out)
        run_pass(r, "fold", s, fold, k);
}

static bool do_expand(struct run *r)
{
    for (struct kernel *k = r->m->kernels; k; k = k->next) {
        run_pass(r, "expand", ST_EXPAND, expand, k);
        run_fold(r, ST_EXPAND, k);
    }
    return r->c->errors == 0;
}

static void add_variant(struct run *r, struct kernel *k)
{
    const char *v = k->sched.variant, *s = *v ? arena_printf(r->c->arena, "%s_%s", k->name, v) : k->name;
    for (int i = 0; i < r->symbols.n; i++)
        if (!strcmp(r->symbols.v[i], s))
            error(r->c, k->loc, "variant '%s' of kernel '%s' would be called '%s' in the code, as another kernel is", v,
                  k->name, s);
    VEC_PUSH(r->c->arena, &r->variants, k);
    VEC_PUSH(r->c->arena, &r->symbols, s);
}

static bool do_schedule(struct run *r)
{
    int n;
    for (struct kernel *k = r->m->kernels; k; k = k->next) {
        struct kernel **v = schedule(r->c, r->m, k, &n);
        for (int i = 0; i < n; i++) {
            if (!wanted_variant(r, v[i])) {
                const char *name = v[i]->sched.variant;
                VEC_PUSH(r->c->arena, &r->others, *name ? arena_printf(r->c->arena, "%s.%s", k->name, name) : k->name);
                continue;
            }
            run_fold(r, ST_SCHED, v[i]); // sizes are known now: full tiles need no masks
            add_variant(r, v[i]);
        }
    }
    return r->c->errors ? false : r->variants.n || nothing(r);
}

static bool do_layout(struct run *r)
{
    for (int i = 0; i < r->variants.n; i++) {
        struct kernel *k = r->variants.v[i];
        struct loc at = { 0 };
        int had = r->c->errors;
        run_pass(r, "layout", ST_LAYOUT, layout, k);
        if (r->c->errors == had)
            run_pass(r, "leaves", ST_LAYOUT, leaves, k);
        const char *why = r->c->errors > had ? NULL : r->c->arch->target->supports(r->c, r->c->arch, k, &at);
        if (why)
            error(r->c, at, "kernel '%s' cannot be compiled for %s: %s", k->name, r->c->arch->name, why);
    }
    return r->c->errors == 0;
}

// ---- the back end: all variants in one module --------------------------------------------------------------------

static bool do_emit(struct run *r)
{
    r->mb = mb_new(r->c);
    if (!r->mb)
        return error(r->c, nowhere, "internal: MLIR could not be started");
    if (r->o.bitcode || r->o.lineinfo)
        mb_lines(r->mb, r->c->arch->target->text_code != CODE_NONE);
    for (int i = 0; i < r->variants.n; i++)
        if (!emit_kernel(r->c, r->mb, r->variants.v[i], r->symbols.v[i]))
            return false;
    return mb_verify(r->mb) || r->c->errors || error(r->c, nowhere, "internal: MLIR did not verify");
}

// Times its stages itself.
static bool do_lower(struct run *r)
{
    const struct target *t = r->c->arch->target;
    bool binary = r->o.emit == MOEC_IMAGE || r->o.emit == MOEC_HSACO;
    struct lower_opts o = { .dump = r->o.dump || r->o.emit == MOEC_LLVM ? on_lower : NULL,
                            .user = r,
                            .stop = r->stop,
                            .bitcode = r->o.bitcode,
                            .lines = r->o.lineinfo,
                            .object = binary && t->text_code == CODE_NONE,
                            .times = r->r->times };
    o.assembly = t->text_code != CODE_NONE || r->o.emit == MOEC_ASM || r->o.dump != NULL;
    bool ok = lower(r->c, r->mb, r->c->arch, &o, &r->low);
    r->since = now_ms();
    return ok;
}

static void note_use(struct run *r, struct moec_kernel_use *u)
{
    for (int i = 0; i < r->low.low.nuses; i++) {
        const struct code_use *c = &r->low.low.uses[i];
        if (strcmp(c->symbol, u->symbol))
            continue;
        u->regs = c->regs;
        u->spill_bytes = c->spill_stores + c->spill_loads;
        u->stack = c->stack;
    }
}

static void list_uses(struct run *r)
{
    struct moec_kernel_use *u = NEWN(r->c->arena, struct moec_kernel_use, r->variants.n + 1);
    for (int i = 0; i < r->variants.n; i++) {
        const struct kernel *k = r->variants.v[i];
        u[i] = (struct moec_kernel_use){ .name = k->name,
                                         .variant = k->sched.variant,
                                         .symbol = r->symbols.v[i],
                                         .threads = (k->sched.warps_m * k->sched.warps_n + k->sched.producers) *
                                                    r->c->arch->lanes,
                                         .regs = -1,
                                         .spill_bytes = -1,
                                         .stack = -1,
                                         .shared = k->shared_bytes };
        note_use(r, &u[i]);
    }
    r->r->uses = u;
    r->r->nuses = r->variants.n;
}

static bool assemble(struct run *r, enum code_kind want, const char **code, size_t *n)
{
    struct finish_opts fo = { .want = want,
                              .warn_spills = true,
                              .assembler = want == CODE_HSACO ? r->o.lld : r->o.ptxas };
    bool missing = false;
    spent(r, ST_IMAGE);
    bool ok = r->c->arch->target->finish(&r->low.low, &fo, code, n, &missing);
    if (missing)
        r->r->status = MOEC_MISSING;
    spent(r, TIME_ASSEMBLE);
    return ok;
}

static void put(void *text, const char *s, size_t n)
{
    text_put(text, s, n);
}

static bool write_image(struct run *r)
{
    const struct target *t = r->c->arch->target;
    struct image_kernel *k = NEWN(r->c->arena, struct image_kernel, r->variants.n + 1);
    enum code_kind kind = r->o.ptx_only && t->text_code != CODE_NONE ? t->text_code : t->binary_code;
    struct image_desc d = { .arch = r->c->arch->name,
                            .compiler = "moec " MOEC_VERSION,
                            .gbps = (int)r->c->arch->gbps,
                            .kernels = k,
                            .nkernels = r->variants.n };
    const char *code = NULL;
    for (int i = 0; i < r->variants.n; i++)
        if (!describe_kernel(r->c, r->variants.v[i], r->symbols.v[i], &k[i]))
            return false;
    if (!assemble(r, kind, &code, &d.code_size))
        return false;
    list_uses(r);
    for (int i = 0; i < r->variants.n; i++)
        k[i].regs = r->r->uses[i].regs > 0 ? r->r->uses[i].regs : 0;
    d.kind = kind == CODE_PTX ? IMAGE_PTX : kind == CODE_CUBIN ? IMAGE_CUBIN : IMAGE_HSACO;
    d.code = code;
    d.bitcode = r->low.bitcode;
    d.bitcode_size = r->low.bitcode_len;
    r->facts.arena = r->c->arena;
    if (r->o.dump)
        moe_image_describe(&d, NULL, false, put, &r->facts);
    return describe_image(r->c, &d, &r->r->code, &r->r->code_len);
}

static bool do_output(struct run *r)
{
    bool ok = true;
    switch (r->o.emit) {
    case MOEC_IMAGE: ok = write_image(r); break;
    case MOEC_PTX: ok = assemble(r, CODE_PTX, &r->r->code, &r->r->code_len); break;
    case MOEC_CUBIN: ok = assemble(r, CODE_CUBIN, &r->r->code, &r->r->code_len); break;
    case MOEC_HSACO: ok = assemble(r, CODE_HSACO, &r->r->code, &r->r->code_len); break;
    case MOEC_ASM:
        r->r->code = r->low.low.asm_text->s;
        r->r->code_len = r->low.low.asm_text->n;
        break;
    case MOEC_LLVM:
    case MOEC_MLIR:
    case MOEC_TILE: break; // taken from the stage's dump
    }
    list_uses(r);
    return ok;
}

// ---- all of it ---------------------------------------------------------------------------------------------------

static const struct step {
    enum stage stage;
    bool (*run)(struct run *r); // false: errors that leave nothing to go on with
} steps[] = {
    { ST_TOKENS, do_lex },     // lex.c        text -> tokens
    { ST_AST, do_parse },      // parse.c      tokens -> syntax tree
    { ST_TILE, do_check },     // check*.c     syntax tree -> tile IR
    { ST_EXPAND, do_expand },  // expand.c, fold.c       each kernel: in primitive operations
    { ST_SCHED, do_schedule }, // schedule.c, fold.c     each kernel -> its variants: tile sizes, warps, stages
    { ST_LAYOUT, do_layout },  // layout*.c, ring.c      each variant: where data lies, copies, waits, barriers
    { ST_MLIR, do_emit },      // emit*.c, targets       all variants -> one MLIR module
    { ST_ASM, do_lower },      // lower.c      MLIR -> LLVM IR -> assembly or object
    { ST_IMAGE, do_output },   // targets' finish.c, describe.c   assembler or linker, image
};

static bool compile_module(struct run *r)
{
    for (size_t i = 0; i < COUNTOF(steps); i++) {
        const struct step *s = &steps[i];
        bool ok = s->run(r);
        if (s->stage != ST_ASM)
            spent(r, s->stage);
        if (!ok)
            return false;
        dump(r, s->stage);
        r->since = now_ms();
        if (r->stop <= s->stage)
            return r->c->errors == 0;
    }
    return r->c->errors == 0;
}

// ---- options -----------------------------------------------------------------------------------------------------

// As the caller's headers know them; what they do not know is zero. size 0: unusable.
static struct moec_options read_options(const struct moec_options *o)
{
    struct moec_options mine = { 0 };
    if (o && o->size >= offsetof(struct moec_options, bindings))
        memcpy(&mine, o, o->size < sizeof mine ? o->size : sizeof mine);
    return mine;
}

static bool cannot_emit(const struct target *t, enum moec_emit e)
{
    return (e == MOEC_PTX && t->text_code != CODE_PTX) || (e == MOEC_CUBIN && t->binary_code != CODE_CUBIN) ||
           (e == MOEC_HSACO && t->binary_code != CODE_HSACO) || e > MOEC_TILE;
}

static bool stage_named(const char *name, enum stage *s)
{
    for (int i = 0; i < ST_COUNT; i++)
        if (!strcmp(stage_names[i], name)) {
            *s = (enum stage)i;
            return true;
        }
    return false;
}

// What is asked for needs nothing after this stage.
static enum stage last_stage(enum moec_emit e)
{
    return e == MOEC_TILE ? ST_LAYOUT : e == MOEC_MLIR ? ST_MLIR : e == MOEC_LLVM ? ST_LLVMOPT : ST_IMAGE;
}

static bool usage(struct run *r)
{
    const struct moec_options *o = &r->o;
    struct ctx *c = r->c;
    r->r->status = MOEC_USAGE;
    if (!o->size || o->nbindings < 0 || (o->nbindings && !o->bindings))
        return error(c, nowhere, "options are missing or their size is not set");
    c->arch = o->arch ? arch_find(o->arch) : NULL;
    if (!c->arch)
        return error(c, nowhere, "unknown arch '%s'", o->arch ? o->arch : "");
    if (cannot_emit(c->arch->target, o->emit))
        return error(c, nowhere, "%s cannot give this kind of output", c->arch->name);
    r->stop = last_stage(o->emit);
    if (o->stop_after && !stage_named(o->stop_after, &r->stop))
        return error(c, nowhere, "unknown stage '%s'", o->stop_after);
    if (o->skip && strcmp(o->skip, "fold"))
        return error(c, nowhere, "pass '%s' cannot be skipped; 'fold' can", o->skip);
    struct binding *b = NEWN(c->arena, struct binding, o->nbindings + 1);
    for (int i = 0; i < o->nbindings; i++)
        b[i] = (struct binding){ o->bindings[i].name, o->bindings[i].value, o->bindings[i].type };
    c->bind = b;
    c->nbind = o->nbindings;
    r->r->status = MOEC_INPUT;
    return true;
}

// ---- entry -------------------------------------------------------------------------------------------------------

enum { JUMP_ERRORS = 1, JUMP_MEMORY = 2 }; // JUMP_ERRORS: diag.c

static void out_of_memory(void *user)
{
    longjmp(*(jmp_buf *)user, JUMP_MEMORY);
}

// The diagnostics as the caller sees them.
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

// Everything that may jump back happens here. NULL: not even the result fits.
static struct moec_result *guarded(struct arena *a, const struct moec_options *o, const struct ctx *source)
{
    struct moec_result *volatile x = NULL; // volatile: read again after a jump
    struct run *volatile r = NULL;
    volatile bool ok = false;
    jmp_buf jb;
    arena_on_oom(a, out_of_memory, &jb);
    int jumped = setjmp(jb);
    if (!jumped) {
        x = NEW(a, struct moec_result);
        r = NEW(a, struct run);
        x->c = *source;
        x->c.diag_tail = &x->c.diags;
        x->c.jmp = &jb;
        *r = (struct run){ .r = x, .c = &x->c, .o = *o, .since = now_ms() };
        ok = usage(r) && compile_module(r);
    }
    if (!r)
        return NULL;
    lower_free(&r->low); // what is not in the arena
    mb_free(r->mb);
    if (jumped == JUMP_MEMORY || setjmp(jb)) { // nothing can be formatted any more
        x->status = MOEC_INTERNAL;
        x->diags = &no_memory;
        x->ndiags = 1;
        return x;
    }
    if (ok)
        x->status = MOEC_OK;
    finish_diagnostics(x);
    return x;
}

struct moec_result *moec_compile(const char *text, size_t length, const char *name, const struct moec_options *options)
{
    struct moec_options o = read_options(options);
    struct arena *a = arena_new(o.alloc, o.alloc_user);
    struct ctx source = {
        .arena = a, .file = name ? name : "-", .src = text ? text : "", .src_len = text ? length : 0
    };
    struct moec_result *x = a ? guarded(a, &o, &source) : NULL;
    if (a && !x)
        arena_free(a);
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
    *name = i < 0 || i >= TIMES ? NULL : i == TIME_ASSEMBLE ? "assemble" : stage_names[i];
    return *name ? r->times[i] : 0;
}

const char *moec_kernel_name(const struct moec_result *r, int i)
{
    return i >= 0 && i < r->names.n ? r->names.v[i] : NULL;
}

const struct moec_kernel_use *moec_use(const struct moec_result *r, int i)
{
    return i >= 0 && i < r->nuses ? &r->uses[i] : NULL;
}

const char *moec_arch_name(int i)
{
    for (int t = 0; t < ntargets && i >= 0; i -= targets[t++]->narches)
        if (i < targets[t]->narches)
            return targets[t]->arches[i].name;
    return NULL;
}

const char *moec_version(void)
{
    return MOEC_VERSION;
}
