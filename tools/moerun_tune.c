// moerun tune: every tile of rows measured for many numbers of tokens; a hint file names those that were faster than the tile
// the model of the layer would choose (docs/runtime.md). And what other commands do with such a file: hints_load().
#include "moerun.h"
#include "moerun_hints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double least_gain = 0.02;

struct tune {
    const struct options *o;
    struct device *d;
    struct timer timer;
    struct layer l;
    struct json json;
    struct hints file;
    int better;
};

bool hints_load(struct layer *l, const struct options *o)
{
    char *text;
    size_t n;
    if (!o->hints || !strcmp(o->command, "tune")) // tune compares with the model's own choice
        return true;
    if (!l->d->gpu)
        return report(EXIT_USAGE, "--hints: eval has no hints");
    if (!read_file(o->hints, &text, &n))
        return false;
    bool ok = !device_fails(l->d, moe_layer_hints(l->moe, text, n), o->hints);
    free(text);
    return ok;
}

// ---- measuring --------------------------------------------------------------------------------------------------------

static bool measure(struct tune *t, int tokens, int rows, struct times *out)
{
    progress("%s, T = %d: tile of %d rows", t->l.m->name, tokens, rows);
    bool ok = layer_tokens(&t->l, tokens, rows) && layer_poison(&t->l) && layer_run(&t->l) &&
              timer_steps(&t->timer, &t->l, MOE_GATE_UP, MOE_LAYER_STEPS, t->o->l2_warm && !t->o->l2_cold, out) &&
              device_sync(t->d);
    layer_tokens_free(&t->l);
    return ok;
}

// Faster by more than both spreads and 2 %: no accident of one measurement.
static bool clearly(const struct times *a, const struct times *b)
{
    double gain = b->median - a->median, spread = (a->p90 - a->p10 + b->p90 - b->p10) / 2;
    return gain > spread && gain >= least_gain * b->median;
}

// The least of many is too often so by luck: both once more, in the other order.
static bool confirmed(struct tune *t, int tokens, int best, int own, bool *yes)
{
    struct times a, b;
    bool ok = measure(t, tokens, best, &a) && measure(t, tokens, own, &b);
    *yes = ok && clearly(&a, &b);
    return ok;
}

static void show(struct tune *t, int tokens, const int *rows, const struct times *ms, int n, int own, int best,
                 bool hint)
{
    double regret = ms[own].median / ms[best].median - 1;
    progress_clear();
    printf("%-16s %6d  %4d %9.4f  %4d %9.4f  %6.1f %%  %-5s", t->l.m->name, tokens, rows[own], ms[own].median,
           rows[best], ms[best].median, regret * 100, hint ? "hint" : "");
    for (int i = 0; i < n; i++)
        printf(" %d:%.4f", rows[i], ms[i].median);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        json_begin(&t->json);
        json_text(&t->json, "command", "tune");
        json_text(&t->json, "device", t->d->info.name);
        json_text(&t->json, "model", t->l.m->name);
        json_text(&t->json, "dtype", t->o->f16 ? "fp16" : "bf16");
        json_text(&t->json, "l2", t->o->l2_cold ? "cold" : "warm");
        json_int(&t->json, "tokens", tokens);
        json_int(&t->json, "rows", rows[i]);
        json_number(&t->json, "layer_ms", ms[i].median);
        json_number(&t->json, "layer_ms_p10", ms[i].p10);
        json_number(&t->json, "layer_ms_p90", ms[i].p90);
        json_int(&t->json, "replays", ms[i].n);
        json_int(&t->json, "chosen", i == own);
        json_int(&t->json, "fastest", i == best);
        json_int(&t->json, "hint", hint && i == best);
        json_number(&t->json, "regret", regret);
        json_end(&t->json);
    }
}

static bool keep(struct tune *t, int tokens, int own, int rows)
{
    struct hint h;
    char line[HINT];
    if (device_fails(t->d, moe_layer_hint(t->l.moe, tokens, rows ? rows : own, line, sizeof line), "hint"))
        return false;
    if (!hint_parse(line, strlen(line) - 1, &h))
        return report(EXIT_INTERNAL, "not a hint: %s", line);
    h.rows = rows;
    h.own = own;
    return hints_put(&t->file, &h);
}

static bool tune_tokens(struct tune *t, int tokens)
{
    int rows[LIST_MAX], n = layer_variants(&t->l, rows, LIST_MAX), own = 0, best = 0;
    struct times ms[LIST_MAX];
    bool ok = true, hint = false;
    for (int i = 0; ok && i < n; i++) {
        ok = measure(t, tokens, rows[i], &ms[i]);
        own = rows[i] == moe_layer_rows(t->l.moe, tokens) ? i : own;
    }
    for (int i = 1; ok && i < n; i++)
        best = ms[i].median < ms[best].median ? i : best;
    if (ok && best != own && clearly(&ms[best], &ms[own]))
        ok = confirmed(t, tokens, rows[best], rows[own], &hint);
    if (!ok)
        return false;
    t->better += hint;
    show(t, tokens, rows, ms, n, own, best, hint);
    return keep(t, tokens, rows[own], hint ? rows[best] : 0);
}

static bool tune_model(struct tune *t, const struct model *m)
{
    progress("%s: weights", m->name);
    bool ok = device_load(t->d, t->o, m) && layer_weights(&t->l, t->o, t->d, m);
    for (int i = 0; ok && i < t->o->ntokens; i++)
        ok = tune_tokens(t, t->o->tokens[i]);
    if (t->l.d)
        layer_free(&t->l);
    t->l.d = NULL;
    device_unload(t->d);
    return ok;
}

static bool may_write(const char *path)
{
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f)
        fclose(f);
    return !path || f || report(EXIT_USAGE, "cannot write %s: %s", path, strerror(errno));
}

bool command_tune(const struct options *o)
{
    struct device d;
    struct tune t = { .o = o, .d = &d };
    for (int i = 0; i < o->ntokens; i++)
        if (o->tokens[i] < 1)
            return report(EXIT_USAGE, "tune of 0 tokens");
    if (o->l2_cold && o->l2_warm)
        return report(EXIT_USAGE, "--l2=both: tune takes cold or warm: a hint is one tile");
    if (!may_write(o->hints) || !hints_read(&t.file, o->hints) || !device_open(&d, o))
        return hints_free(&t.file), false;
    bool ok = timer_open(&t.timer, o, &d) && json_open(&t.json, o->json);
    if (ok && t.timer.simulated)
        fprintf(stderr, "moerun: warning: times on a simulated device say nothing; nor do hints made from them\n");
    if (ok)
        printf(
            "%s, L2 %s, median of %d graph replays; a hint where a tile is faster than the chosen one by more than the "
            "spread, and %.0f %%\n%-16s %6s  %4s %9s  %4s %9s  %8s  %-5s %s\n",
            d.info.name, o->l2_cold ? "cold" : "warm", o->repeats, least_gain * 100, "model", "T", "own", "ms", "best",
            "ms", "regret", "", "all tiles, ms");
    for (int i = 0; ok && i < o->nmodels; i++)
        ok = tune_model(&t, o->models[i]);
    progress_clear();
    if (ok && o->hints && (ok = hints_write(&t.file, o->hints)))
        printf("%d hint%s of this run in %s\n", t.better, t.better == 1 ? "" : "s", o->hints);
    timer_close(&t.timer);
    device_close(&d);
    hints_free(&t.file);
    return json_close(&t.json) && ok;
}
