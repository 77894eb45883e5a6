// moerun verify and run: the layer on a device, every stage judged, repeated, its surroundings checked.
#include "moerun.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct session {
    const struct options *o;
    struct device *d;
    struct json json;
    struct layer l;
    bool all_fine, run; // run: the command is `run`
};

// ---- output
// -----------------------------------------------------------------------------------------------------------

static void print_table(const struct judgement *j)
{
    printf("  %-10s %12s %12s %9s %9s %9s %10s  %s\n", "check", "values", "of", "err/bound", "rel L2", "max/rms",
           "mean/rms", "ULPs 0, 1, 2, -4, -8, more");
    for (int i = 0; i < CHECKS; i++) {
        const struct ref_verdict *v = &j->v[i];
        if (!v->of && !v->bad)
            continue;
        printf("  %-10s %12" PRId64 " %12" PRId64 " ", check_names[i], v->checked, v->of);
        if (i == C_H || i == C_D || i == C_COMBINE || i == C_ROUTE || i == C_TOKENS)
            printf("%9.3f ", v->worst);
        if (i == C_TOKENS)
            printf("%9.2e %9.2e %+10.1e  ", v->rel_l2, v->max_abs, v->mean_signed);
        else if (i == C_H || i == C_D || i == C_COMBINE)
            printf("%9s %9s %10s  ", "", "", "");
        for (int b = 0; b < REF_ULP_BINS && (i == C_H || i == C_D || i == C_COMBINE || i == C_TOKENS); b++)
            printf("%s%" PRId64, b ? " " : "", v->ulps[b]);
        if (v->near_ties)
            printf(" (%" PRId64 " near ties)", v->near_ties);
        printf("\n");
    }
}

// The first bad value is told as "h[3, 17] is ..."; where memory keeps it, a simulated device knows who wrote it.
static void print_origin(const struct session *s, const char *first)
{
    static const struct {
        const char *name;
        enum buffer b;
    } names[] = { { "ids", B_IDS },
                  { "weights", B_WEIGHTS },
                  { "counts", B_COUNTS },
                  { "slot_row", B_SLOT_ROW },
                  { "row_token", B_ROW_TOKEN },
                  { "tiles", B_TILES },
                  { "h", B_H },
                  { "d", B_D },
                  { "y", B_Y } };
    const struct model *m = s->l.m;
    long long i = 0, j = 0;
    char text[512];
    size_t n = strcspn(first, "[");
    if (!s->d->gpu || sscanf(first + n, "[%lld, %lld]", &i, &j) < 1)
        return;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        enum buffer b = names[k].b;
        if (strlen(names[k].name) != n || strncmp(names[k].name, first, n))
            continue;
        long long width = b == B_H                       ? m->ffn
                          : b == B_D || b == B_Y         ? m->hidden
                          : b == B_IDS || b == B_WEIGHTS ? s->l.size.choices
                                                         : 1;
        size_t at = (size_t)(i * width + j) * (b == B_H || b == B_D || b == B_Y ? 2 : 4);
        if (at < s->l.b[b].bytes && *moe_origin(s->d->gpu, (char *)s->l.b[b].ptr + at, text, sizeof text))
            printf("    written at %s\n", text);
    }
}

static void print_line(const struct session *s, const struct judgement *j)
{
    const struct layer *l = &s->l;
    const struct ref_verdict *t = &j->v[C_TOKENS];
    printf("%s %s T=%d rows=%d: %d of %d tokens end to end, rel L2 %.2e (worst row %.2e), max %.1e, mean %+.1e; h "
           "%d, d %d columns of "
           "each row, y all: %s\n",
           l->m->name, s->o->f16 ? "fp16" : "bf16", l->tokens, l->block, j->sampled, l->tokens, t->rel_mean, t->rel_l2,
           t->max_abs, t->mean_signed, s->o->columns < l->m->ffn ? s->o->columns : l->m->ffn,
           s->o->columns < l->m->hidden ? s->o->columns : l->m->hidden, j->ok ? "ok" : "WRONG");
    if (s->o->verbose || s->run)
        print_table(j);
    for (int i = 0; i < CHECKS; i++)
        if (j->v[i].bad) {
            printf("  %s: %" PRId64 " wrong; %s\n", check_names[i], j->v[i].bad, j->v[i].first);
            print_origin(s, j->v[i].first);
        }
    fflush(stdout);
}

static void write_json(struct session *s, const struct judgement *j)
{
    const struct layer *l = &s->l;
    const struct ref_verdict *t = &j->v[C_TOKENS];
    char name[32];
    json_begin(&s->json);
    json_text(&s->json, "command", s->o->command);
    json_text(&s->json, "device", s->d->info.name);
    json_text(&s->json, "model", l->m->name);
    json_text(&s->json, "dtype", s->o->f16 ? "fp16" : "bf16");
    json_int(&s->json, "tokens", l->tokens);
    json_int(&s->json, "rows", l->block);
    json_int(&s->json, "seed", (int64_t)s->o->seed);
    json_int(&s->json, "repeats", s->o->repeats);
    json_int(&s->json, "tokens_end_to_end", j->sampled);
    json_number(&s->json, "rel_l2", t->rel_mean);
    json_number(&s->json, "rel_l2_worst_row", t->rel_l2);
    json_number(&s->json, "max_over_rms", t->max_abs);
    json_number(&s->json, "mean_signed_over_rms", t->mean_signed);
    json_ints(&s->json, "ulp_histogram", t->ulps, REF_ULP_BINS);
    for (int i = 0; i < CHECKS; i++) {
        snprintf(name, sizeof name, "%s_checked", check_names[i]);
        json_int(&s->json, name, j->v[i].checked);
        snprintf(name, sizeof name, "%s_wrong", check_names[i]);
        json_int(&s->json, name, j->v[i].bad);
    }
    json_text(&s->json, "result", j->ok ? "ok" : "wrong");
    json_end(&s->json);
}

// ---- repeats
// ------------------------------------------------------------------------------------------------------------

struct compared {
    const char *name;
    const void *a, *b;
    size_t n;
};

static bool results_against(const struct layer *l, const struct results *r)
{
    const struct {
        const char *name;
        const void *p;
        enum buffer b;
        int bytes;
    } all[] = { { "ids", r->ids, B_IDS, 4 },
                { "weights", r->weights, B_WEIGHTS, 4 },
                { "counts", r->counts, B_COUNTS, 4 },
                { "slot_row", r->slot_row, B_SLOT_ROW, 4 },
                { "row_token", r->row_token, B_ROW_TOKEN, 4 },
                { "tiles", r->tiles, B_TILES, 4 },
                { "h", r->h, B_H, 2 },
                { "d", r->d, B_D, 2 },
                { "y", r->y, B_Y, 2 } };
    char name[128];
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof all / sizeof all[0]; i++) {
        snprintf(name, sizeof name, "%.40s.T%d.rows%d.%s", l->m->name, l->tokens, l->block, all[i].name);
        ok = against(l->o, name, all[i].p, l->b[all[i].b].bytes, all[i].bytes);
    }
    return ok;
}

static void compare_runs(const struct layer *l, const struct results *a, const struct results *b, int run,
                         struct ref_verdict *v)
{
    const struct compared all[] = {
        { "ids", a->ids, b->ids, l->b[B_IDS].bytes },
        { "weights", a->weights, b->weights, l->b[B_WEIGHTS].bytes },
        { "counts", a->counts, b->counts, l->b[B_COUNTS].bytes },
        { "slot_row", a->slot_row, b->slot_row, l->b[B_SLOT_ROW].bytes },
        { "row_token", a->row_token, b->row_token, l->b[B_ROW_TOKEN].bytes },
        { "tiles", a->tiles, b->tiles, l->b[B_TILES].bytes },
        { "h", a->h, b->h, l->b[B_H].bytes },
        { "d", a->d, b->d, l->b[B_D].bytes },
        { "y", a->y, b->y, l->b[B_Y].bytes },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        v->checked++;
        v->of++;
        if (memcmp(all[i].a, all[i].b, all[i].n) && !v->bad++)
            snprintf(v->first, sizeof v->first, "run %d gave another %s than run 1", run, all[i].name);
    }
}

static bool repeat(struct session *s, struct results *first, struct judgement *j)
{
    struct results again;
    bool ok = s->o->repeats < 2 || results_new(&s->l, &again);
    if (s->o->mutate && !strcmp(s->o->mutate, "repeat") && s->l.tokens)
        first->y[0] ^= 1;
    for (int i = 2; ok && i <= s->o->repeats; i++) {
        if (s->d->gpu)
            moe_reseed(s->d->gpu, s->o->seed + (uint64_t)i - 1);
        ok = layer_poison(&s->l) && layer_run(&s->l) && results_download(&s->l, &again);
        if (ok)
            compare_runs(&s->l, first, &again, i, &j->v[C_REPEAT]);
    }
    if (s->o->repeats >= 2)
        results_free(&again);
    return ok;
}

static bool surroundings(struct session *s, struct judgement *j)
{
    bool guards = true, inputs = true;
    unsigned char byte = 0;
    const struct guarded *y = &s->l.b[B_Y], *x = &s->l.b[B_X];
    if (s->o->mutate && !strcmp(s->o->mutate, "guard") && !device_upload(s->d, (char *)y->ptr + y->bytes + 9, &byte, 1))
        return false;
    if (s->o->mutate && !strcmp(s->o->mutate, "input") && x->bytes &&
        !device_upload(s->d, (char *)x->ptr + 1, &byte, 1))
        return false;
    if (!layer_guards_intact(&s->l, &guards) || !layer_inputs_intact(&s->l, &inputs))
        return false;
    j->v[C_GUARDS] = (struct ref_verdict){ .checked = BUFFERS, .of = BUFFERS, .bad = !guards, .first = "see above" };
    j->v[C_INPUTS] = (struct ref_verdict){ .checked = B_PARTS, .of = B_PARTS, .bad = !inputs, .first = "see above" };
    return true;
}

// ---- one number of tokens
// -----------------------------------------------------------------------------------------------

static bool judge_run(struct session *s, struct results *r, struct judgement *j)
{
    bool late = s->o->mutate &&
                (!strcmp(s->o->mutate, "repeat") || !strcmp(s->o->mutate, "guard") || !strcmp(s->o->mutate, "input"));
    if (!layer_poison(&s->l) || !layer_run(&s->l) || !results_download(&s->l, r))
        return false;
    if (s->o->mutate && !late && !mutate(&s->l, r, s->o->mutate))
        return report(EXIT_USAGE, "--mutate=%s: there is no such damage", s->o->mutate);
    if (!results_against(&s->l, r) || !judge_layer(&s->l, r, s->o->budget, j))
        return false;
    if (s->o->mutate && !late)
        return true; // the repeats would differ from the damaged run
    return repeat(s, r, j);
}

static bool verify_tokens(struct session *s, int tokens, int rows)
{
    struct judgement j = { .sampled = 0 };
    struct results r = { .ids = NULL };
    bool fine = true;
    if (s->o->streams) {
        bool done = verify_streams(&s->l, tokens, rows, &fine);
        s->all_fine = s->all_fine && fine;
        return done;
    }
    progress("%s, T = %d", s->l.m->name, tokens);
    bool ok =
        layer_tokens(&s->l, tokens, rows) && results_new(&s->l, &r) && judge_run(s, &r, &j) && surroundings(s, &j);
    progress_clear();
    if (ok) {
        judgement_done(&j);
        print_line(s, &j);
        write_json(s, &j);
        s->all_fine = s->all_fine && j.ok;
    }
    results_free(&r);
    layer_tokens_free(&s->l);
    return ok;
}

static bool verify_model(struct session *s, const struct model *m)
{
    static const int chosen[1] = { 0 };
    int all[LIST_MAX];
    const int *rows = s->o->nrows ? s->o->rows : chosen;
    progress("%s: weights", m->name);
    bool ok = device_load(s->d, s->o, m) && layer_weights(&s->l, s->o, s->d, m);
    int n = s->o->nrows ? s->o->nrows : 1;
    if (ok && s->o->nrows && s->o->rows[0] == -1) {
        n = layer_variants(&s->l, all, LIST_MAX);
        rows = all;
    }
    for (int i = 0; ok && i < s->o->ntokens; i++)
        for (int v = 0; ok && v < n; v++)
            ok = verify_tokens(s, s->o->tokens[i], rows[v]);
    if (s->l.d)
        layer_free(&s->l);
    s->l.d = NULL;
    device_unload(s->d);
    progress_clear();
    return ok;
}

bool command_verify(const struct options *o)
{
    struct device d;
    struct session s = { .o = o, .d = &d, .all_fine = true, .run = !strcmp(o->command, "run") };
    if (!device_open(&d, o))
        return false;
    printf("device %s (%s), seed %" PRIu64 ", %d run%s\n", d.info.name, d.info.arch, o->seed, o->repeats,
           o->repeats == 1 ? "" : "s, bitwise equal");
    bool ok = json_open(&s.json, o->json);
    for (int i = 0; ok && i < o->nmodels; i++) {
        if (o->models[i]->omits[0])
            printf("%s: without its %s\n", o->models[i]->name, o->models[i]->omits);
        ok = verify_model(&s, o->models[i]);
    }
    device_close(&d);
    ok = json_close(&s.json) && ok;
    return ok && (s.all_fine || report(EXIT_BREACH, "wrong results"));
}
