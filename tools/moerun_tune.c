// moerun tune: every tile of rows measured for many numbers of tokens; a hint file names those that were faster than the tile
// the model of the layer would choose (docs/runtime.md). And what reads such a file: hints_load().
#include "moerun.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HINT = 320, HINTS_MAX = 4096 };
static const double least_gain = 0.02;

struct hint {
    char line[HINT]; // "moe-hint 1|IDENTITY|TOKENS|ROWS\n"
    size_t identity; // how much of it says what it is about: device, image, shape
    long long tokens;
    int rows; // 0: measured now, and the own choice is as good
    int own;  // the layer's own choice, if measured now
};
struct file { // comments and lines that are no hints stay as they are, before the hints
    char *rest;
    size_t nrest;
    struct hint *h;
    int n;
};
struct tune {
    const struct options *o;
    struct device *d;
    struct timer timer;
    struct layer l;
    struct json json;
    struct file file;
    int better;
};

// ---- hint files -------------------------------------------------------------------------------------------------------

static bool parse_hint(const char *s, size_t n, struct hint *h)
{
    int used = 0;
    char *bar;
    if (n + 2 > sizeof h->line || strncmp(s, "moe-hint ", 9) != 0)
        return false;
    *h = (struct hint){ .rows = 0 };
    memcpy(h->line, s, n);
    if ((bar = strrchr(h->line, '|')))
        *bar = 0;
    char *last = bar ? strrchr(h->line, '|') : NULL;
    if (bar)
        *bar = '|';
    if (!last || sscanf(last, "|%lld|%d%n", &h->tokens, &h->rows, &used) != 2 || h->tokens < 1 || h->rows < 1)
        return false;
    h->identity = (size_t)(last - h->line);
    h->line[n] = '\n';
    return true;
}

static bool same_identity(const struct hint *a, const struct hint *b)
{
    return a->identity == b->identity && !memcmp(a->line, b->line, a->identity);
}

// Adds a hint, or puts it in the place of the one for the same identity and tokens.
static bool put(struct file *f, const struct hint *h)
{
    for (int i = 0; i < f->n; i++)
        if (same_identity(&f->h[i], h) && f->h[i].tokens == h->tokens) {
            f->h[i] = *h;
            return true;
        }
    if (f->n == HINTS_MAX)
        return report(EXIT_USAGE, "--hints: more than %d hints", HINTS_MAX);
    f->h[f->n++] = *h;
    return true;
}

static bool file_read(struct file *f, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    *f = (struct file){ .h = calloc(HINTS_MAX, sizeof *f->h) };
    if (!f->h)
        return report(EXIT_INTERNAL, "out of memory");
    if (!path || access(path, F_OK))
        return true;
    if (!read_file(path, &text, &n))
        return false;
    f->rest = malloc(n + 2);
    bool ok = f->rest || report(EXIT_INTERNAL, "out of memory");
    for (size_t at = 0; ok && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        struct hint h;
        if (parse_hint(text + at, length, &h)) {
            ok = put(f, &h);
        } else {
            memcpy(f->rest + f->nrest, text + at, length);
            f->nrest += length;
            f->rest[f->nrest++] = '\n';
        }
        at += length + 1;
    }
    free(text);
    return ok;
}

// The library takes it that between two hints for one tile that tile is right. Where that was measured to be wrong, a line that
// names the layer's own choice stands between them.
static int pinned(const struct file *f, const struct hint *h)
{
    const struct hint *below = NULL, *above = NULL;
    for (int i = 0; i < f->n; i++) {
        const struct hint *x = &f->h[i];
        if (!x->rows || !same_identity(x, h))
            continue;
        if (x->tokens < h->tokens && (!below || x->tokens > below->tokens))
            below = x;
        if (x->tokens > h->tokens && (!above || x->tokens < above->tokens))
            above = x;
    }
    return below && above && below->rows == above->rows && below->rows != h->own ? h->own : 0;
}

static int by_hint(const void *a, const void *b)
{
    const struct hint *x = a, *y = b;
    size_t n = x->identity < y->identity ? x->identity : y->identity;
    int c = memcmp(x->line, y->line, n);
    return c                            ? c
           : x->identity != y->identity ? (x->identity < y->identity ? -1 : 1)
                                        : (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static bool write_all(const struct file *f, FILE *out)
{
    fwrite(f->rest, 1, f->nrest, out);
    for (int i = 0; i < f->n; i++) {
        const struct hint *h = &f->h[i];
        int rows = h->rows ? h->rows : pinned(f, h);
        if (rows)
            fprintf(out, "%.*s|%lld|%d\n", (int)h->identity, h->line, h->tokens, rows);
    }
    return !ferror(out);
}

// Written aside and renamed: a reader sees the old file or the new one.
static bool file_write(struct file *f, const char *path)
{
    char aside[4096];
    snprintf(aside, sizeof aside, "%.4000s.%ld", path, (long)getpid());
    qsort(f->h, (size_t)f->n, sizeof *f->h, by_hint);
    FILE *out = fopen(aside, "w");
    bool ok = out && write_all(f, out);
    ok = out && !fflush(out) && !fsync(fileno(out)) && ok;
    ok = out && !fclose(out) && ok && !rename(aside, path);
    if (!ok) {
        int why = errno;
        if (out)
            remove(aside);
        return report(EXIT_USAGE, "cannot write %s: %s", path, strerror(why));
    }
    return true;
}

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
    if (!parse_hint(line, strlen(line) - 1, &h))
        return report(EXIT_INTERNAL, "not a hint: %s", line);
    h.rows = rows;
    h.own = own;
    return put(&t->file, &h);
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
    if (!may_write(o->hints) || !file_read(&t.file, o->hints) || !device_open(&d, o))
        return free(t.file.rest), free(t.file.h), false;
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
    if (ok && o->hints && (ok = file_write(&t.file, o->hints)))
        printf("%d hint%s of this run in %s\n", t.better, t.better == 1 ? "" : "s", o->hints);
    timer_close(&t.timer);
    device_close(&d);
    free(t.file.rest);
    free(t.file.h);
    return json_close(&t.json) && ok;
}
