// moerun bench: the expert layer (gate_up, down, combine; routing and plan made before) timed by replaying a graph, with L2
// flushed before each replay or not; then each kernel for itself, and all six together, against ceilings that were measured in
// the same run. The results are judged after the timing.
#include "moerun.h"
#include "moerun_svg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_CALLS = 100, POINTS_MAX = 4096, MODES = 2 };

struct bench {
    const struct options *o;
    struct device *d;
    struct timer timer;
    struct ceilings top;
    struct json json;
    struct layer l;
    struct plot_point *points; // of --svg
    int npoints;
    bool all_fine;
};
struct row { // what one line of the table tells
    struct times layer, steps[MOE_LAYER_STEPS], all;
    double host_us, floor_ms;
    bool warm, measured, too_fast, no_proof; // no_proof: too fast for a ceiling that proves nothing
};
struct work { // what the layer needs at least, and what its kernels do
    double flops, bytes, padded, traffic;
    int64_t active;
};

// What the calling thread spends on one layer call without a graph.
static bool time_host(struct bench *b, double *us)
{
    int calls = b->timer.simulated ? 1 : HOST_CALLS;
    bool ok = device_sync(b->d);
    double start = now_seconds(), spent = 0;
    for (int i = 0; ok && i < calls; i++) {
        start = now_seconds();
        for (int s = MOE_GATE_UP; ok && s < MOE_LAYER_STEPS; s++)
            ok = layer_step(&b->l, (enum moe_layer_step)s);
        spent += now_seconds() - start;
        if (i % 8 == 7) // a full queue would make the caller wait
            ok = ok && device_sync(b->d);
    }
    *us = spent * 1e6 / calls;
    return ok && device_sync(b->d);
}

// ---- what it should take ----------------------------------------------------------------------------------------------

static struct work work_of(const struct bench *b, const struct results *r)
{
    const struct model *m = b->l.m;
    char *seen = calloc((size_t)b->l.experts, 1);
    int64_t used = 0, tiles = 0;
    struct work w = { .active = 0 };
    for (int64_t s = 0; seen && s < b->l.slots; s++)
        if (r->ids[s] >= 0 && r->ids[s] < b->l.experts) {
            used++;
            w.active += !seen[r->ids[s]];
            seen[r->ids[s]] = 1;
        }
    free(seen);
    for (int64_t n = 0; n < b->l.size.entries; n++)
        tiles += r->tiles[4 * n + 2] > 0;
    double matrix = (double)m->hidden * m->ffn, ends = 2 * (double)b->l.tokens * m->hidden;
    w.flops = 6 * (double)used * matrix;
    w.padded = 6 * (double)tiles * b->l.block * matrix;
    w.bytes = 2 * (3 * (double)w.active * matrix + ends);
    // Beside them h and d, which are written and read again.
    w.traffic = w.bytes + 2 * 2 * (double)used * ((double)m->ffn + m->hidden);
    return w;
}

// What is still in L2 need not come from memory: of a warm run's bytes as many are free as L2 holds.
static void judge_time(const struct bench *b, const struct work *w, struct row *r)
{
    double bytes = r->warm ? w->bytes - (double)b->d->info.l2_bytes : w->bytes;
    double products = w->flops / (b->top.tflops.value * 1e9),
           memory = bytes > 0 ? bytes / (b->top.gbps.value * 1e6) : 0;
    const struct ceiling *c = products > memory ? &b->top.tflops : &b->top.gbps;
    r->floor_ms = products > memory ? products : memory;
    bool below = r->layer.median < 0.85 * r->floor_ms;
    r->too_fast = below && c->proof;
    r->no_proof = below && !c->proof && !b->timer.simulated;
}

// ---- output -----------------------------------------------------------------------------------------------------------

static void print_head(const struct bench *b)
{
    const struct options *o = b->o;
    const struct ceilings *c = &b->top;
    printf("%s, %s routing, seed %" PRIu64
           ", median of %d graph replays (p10, p90); cold: L2 flushed before each, warm: not\n",
           b->d->info.name,
           o->routing == 'u'   ? "uniform"
           : o->routing == 'z' ? "zipf"
           : o->routing == 'o' ? "one"
                               : "file",
           o->seed, o->repeats);
    printf(c->tflops.value < 100 ? "ceilings: %.4g TFLOP/s (%s), " : "ceilings: %.0f TFLOP/s (%s), ", c->tflops.value,
           c->tflops.from);
    printf(c->gbps.value < 100 ? "%.4g GB/s (%s)\n" : "%.0f GB/s (%s)\n", c->gbps.value, c->gbps.from);
    printf("GFLOP, MB: what the layer needs at least; TFLOP/s, GB/s: these by the time\n");
    printf("%-16s %4s %6s %4s %4s %9s %9s %9s %8s %8s %7s %6s %6s  %8s %8s %8s %9s %7s\n", "model", "type", "T", "rows",
           "L2", "layer ms", "p10", "p90", "GFLOP", "MB", "TFLOP/s", "GB/s", "/floor", "gate_up", "down", "combine",
           "+routing", "host us");
}

static const char *verdict(const struct row *r, const struct judgement *j)
{
    return !j->ok        ? "WRONG"
           : r->too_fast ? "FASTER THAN THE FLOOR ALLOWS"
           : r->no_proof ? "ok, faster than the ceiling"
                         : "ok";
}

static void print_row(const struct bench *b, const struct row *r, const struct work *w, const struct judgement *j)
{
    const struct layer *l = &b->l;
    double ms = r->layer.median;
    progress_clear();
    printf("%-16s %s %6d %4d %4s %9.4f %9.4f %9.4f %8.4g %8.4g %7.1f %6.0f %6.2f  %8.4f %8.4f %8.4f %9.4f %7.1f  %s\n",
           l->m->name, b->o->f16 ? "fp16" : "bf16", l->tokens, l->block, r->warm ? "warm" : "cold", ms, r->layer.p10,
           r->layer.p90, w->flops * 1e-9, w->bytes * 1e-6, w->flops / ms * 1e-9, w->bytes / ms * 1e-6,
           r->floor_ms > 0 ? ms / r->floor_ms : 0, r->steps[MOE_GATE_UP].median, r->steps[MOE_DOWN].median,
           r->steps[MOE_COMBINE].median, r->all.median, r->host_us, verdict(r, j));
    if (r->too_fast)
        printf("  %.4f ms is less than 0.85 of the floor, %.4f ms: that many products or bytes cannot be had in that "
               "time at the\n"
               "  ceilings (%s; %s), so the time, the bytes or a ceiling is wrong\n",
               ms, r->floor_ms, b->top.tflops.from, b->top.gbps.from);
    fflush(stdout);
}

static void print_faults(const struct judgement *j)
{
    for (int i = 0; i < CHECKS; i++)
        if (j->v[i].bad)
            printf("  %s: %" PRId64 " wrong; %s\n", check_names[i], j->v[i].bad, j->v[i].first);
}

static void json_times(struct json *j, const char *what, const struct times *t)
{
    char name[48];
    snprintf(name, sizeof name, "%s_ms", what);
    json_number(j, name, t->median);
    snprintf(name, sizeof name, "%s_ms_p10", what);
    json_number(j, name, t->p10);
    snprintf(name, sizeof name, "%s_ms_p90", what);
    json_number(j, name, t->p90);
}

static void json_work(struct bench *b, const struct row *r, const struct work *w)
{
    struct json *j = &b->json;
    double ms = r->layer.median;
    json_int(j, "active_experts", w->active);
    json_number(j, "flops", w->flops);
    json_number(j, "flops_with_padding", w->padded);
    json_number(j, "bytes", w->bytes);
    json_number(j, "bytes_with_h_and_d", w->traffic);
    json_number(j, "tflops", w->flops / ms * 1e-9);
    json_number(j, "tflops_with_padding", w->padded / ms * 1e-9);
    json_number(j, "gbps", w->bytes / ms * 1e-6);
    json_number(j, "gbps_with_h_and_d", w->traffic / ms * 1e-6);
    json_number(j, "ceiling_tflops", b->top.tflops.value);
    json_text(j, "ceiling_tflops_from", b->top.tflops.from);
    json_number(j, "ceiling_gbps", b->top.gbps.value);
    json_text(j, "ceiling_gbps_from", b->top.gbps.from);
    json_number(j, "floor_ms", r->floor_ms);
    json_number(j, "over_floor", ms / r->floor_ms);
}

static void write_json(struct bench *b, const struct row *r, const struct work *w, const struct judgement *v)
{
    const struct layer *l = &b->l;
    struct json *j = &b->json;
    json_begin(j);
    json_text(j, "command", "bench");
    json_text(j, "device", b->d->info.name);
    json_text(j, "model", l->m->name);
    json_text(j, "dtype", b->o->f16 ? "fp16" : "bf16");
    json_int(j, "tokens", l->tokens);
    json_int(j, "rows", l->block);
    json_text(j, "l2", r->warm ? "warm" : "cold");
    json_int(j, "seed", (int64_t)b->o->seed);
    json_int(j, "replays", r->layer.n);
    json_times(j, "layer", &r->layer);
    json_work(b, r, w);
    for (int i = 0; i < MOE_LAYER_STEPS; i++)
        json_times(j, step_names[i], &r->steps[i]);
    json_times(j, "with_routing", &r->all);
    json_number(j, "host_us", r->host_us);
    json_number(j, "rel_l2", v->v[C_TOKENS].rel_mean);
    json_int(j, "tokens_end_to_end", v->sampled);
    json_text(j, "result", !v->ok ? "wrong" : r->too_fast ? "faster than the floor allows" : "ok");
    json_end(j);
}

static void add_point(struct bench *b, const struct row *r, const struct work *w)
{
    if (b->points && b->npoints < POINTS_MAX)
        b->points[b->npoints++] = (struct plot_point){ .model = b->l.m->name,
                                                       .tokens = b->l.tokens,
                                                       .warm = r->warm,
                                                       .ms = r->layer.median,
                                                       .p10 = r->layer.p10,
                                                       .p90 = r->layer.p90,
                                                       .flops = w->flops,
                                                       .bytes = w->bytes,
                                                       .floor_ms = r->floor_ms };
}

// The picture's file is opened before the work begins, so that hours of it are not lost to a wrong path.
static bool write_picture(struct bench *b, FILE *f)
{
    const struct options *o = b->o;
    char title[160], under[160];
    snprintf(title, sizeof title, "MoE layer on %s%s", b->d->info.name,
             b->timer.simulated ? " (times mean nothing)" : "");
    snprintf(under, sizeof under,
             "gate_up, down, combine; %s, %s routing, seed %" PRIu64 ", median of %d graph replays, L2 %s",
             o->f16 ? "fp16" : "bf16",
             o->routing == 'u'   ? "uniform"
             : o->routing == 'z' ? "zipf"
                                 : "special",
             o->seed, o->repeats,
             o->l2_cold && o->l2_warm ? "cold and warm"
             : o->l2_cold             ? "cold"
                                      : "warm");
    struct plot p = {
        title,     under,     b->top.tflops.value, b->top.gbps.value, b->top.tflops.from, b->top.gbps.from,
        b->points, b->npoints
    };
    bool ok = plot_write(&p, f);
    return (!fclose(f) && ok) || report(EXIT_USAGE, "cannot write %s: %s", o->svg, strerror(errno));
}

// ---- measuring --------------------------------------------------------------------------------------------------------

static bool measure(struct bench *b, struct row *r)
{
    struct layer *l = &b->l;
    const char *l2 = r->warm ? "warm" : "cold";
    progress("%s, T = %d, L2 %s: the layer", l->m->name, l->tokens, l2);
    bool ok = timer_steps(&b->timer, l, MOE_GATE_UP, MOE_LAYER_STEPS, r->warm, &r->layer);
    for (int s = 0; ok && s < MOE_LAYER_STEPS; s++) {
        progress("%s, T = %d, L2 %s: %s", l->m->name, l->tokens, l2, step_names[s]);
        ok = (s == MOE_ROUTE && l->given_ids) || timer_steps(&b->timer, l, s, s + 1, r->warm, &r->steps[s]);
    }
    r->measured = true;
    return ok && (l->given_ids || timer_steps(&b->timer, l, 0, MOE_LAYER_STEPS, r->warm, &r->all)) &&
           time_host(b, &r->host_us);
}

// What the timed launches left behind is what is judged: h, d and y were last written by them.
static bool judge(struct bench *b, struct results *res, struct judgement *j)
{
    progress("%s, T = %d: results against double precision", b->l.m->name, b->l.tokens);
    bool ok = device_sync(b->d) && results_download(&b->l, res) &&
              judge_layer(&b->l, res, b->o->budget < 2 ? b->o->budget : 2, j);
    if (ok)
        judgement_done(j);
    return ok;
}

static bool bench_tokens(struct bench *b, int tokens, int rows)
{
    struct row r[MODES] = { { .warm = false }, { .warm = true } };
    const bool wanted[MODES] = { b->o->l2_cold, b->o->l2_warm };
    struct results res = { .ids = NULL };
    struct judgement j = { .ok = false };
    bool ok = layer_tokens(&b->l, tokens, rows) && results_new(&b->l, &res) && layer_poison(&b->l) && layer_run(&b->l);
    for (int i = 0; ok && i < MODES; i++)
        ok = !wanted[i] || measure(b, &r[i]);
    ok = ok && judge(b, &res, &j);
    struct work w = ok ? work_of(b, &res) : (struct work){ .active = 0 };
    for (int i = 0; ok && i < MODES; i++) {
        if (!r[i].measured)
            continue;
        judge_time(b, &w, &r[i]);
        print_row(b, &r[i], &w, &j);
        write_json(b, &r[i], &w, &j);
        add_point(b, &r[i], &w);
        b->all_fine = b->all_fine && j.ok && !r[i].too_fast;
    }
    if (ok)
        print_faults(&j);
    results_free(&res);
    layer_tokens_free(&b->l);
    return ok;
}

static bool bench_model(struct bench *b, const struct model *m)
{
    int all[LIST_MAX], n = b->o->nrows ? b->o->nrows : 1;
    static const int chosen[1] = { 0 };
    const int *rows = b->o->nrows ? b->o->rows : chosen;
    progress("%s: weights", m->name);
    bool ok = device_load(b->d, b->o, m) && layer_weights(&b->l, b->o, b->d, m);
    if (ok && b->o->nrows && b->o->rows[0] == -1) {
        n = layer_variants(&b->l, all, LIST_MAX);
        rows = all;
    }
    for (int i = 0; ok && i < b->o->ntokens; i++)
        for (int v = 0; ok && v < n; v++)
            ok = bench_tokens(b, b->o->tokens[i], rows[v]);
    if (b->l.d)
        layer_free(&b->l);
    b->l.d = NULL;
    device_unload(b->d);
    progress_clear();
    return ok;
}

bool command_bench(const struct options *o)
{
    struct device d;
    struct bench b = { .o = o, .d = &d, .all_fine = true };
    FILE *picture = NULL;
    for (int i = 0; i < o->ntokens; i++)
        if (o->tokens[i] < 1)
            return report(EXIT_USAGE, "bench of 0 tokens");
    if (!device_open(&d, o))
        return false;
    bool ok = timer_open(&b.timer, o, &d) && json_open(&b.json, o->json);
    if (ok && o->svg) {
        picture = fopen(o->svg, "w");
        b.points = malloc(POINTS_MAX * sizeof *b.points);
        ok = (picture && b.points) || report(EXIT_USAGE, "cannot write %s: %s", o->svg, strerror(errno));
    }
    if (ok && b.timer.simulated)
        fprintf(stderr, "moerun: warning: times on a simulated device say nothing\n");
    ok = ok && ceilings_find(&b.top, o, &d, &b.timer);
    if (ok)
        print_head(&b);
    for (int i = 0; ok && i < o->nmodels; i++)
        ok = bench_model(&b, o->models[i]);
    if (picture && b.top.tflops.value > 0)
        ok = write_picture(&b, picture) && ok;
    else if (picture)
        fclose(picture);
    free(b.points);
    timer_close(&b.timer);
    device_close(&d);
    ok = json_close(&b.json) && ok;
    return ok && (b.all_fine || report(EXIT_BREACH, "wrong results"));
}
