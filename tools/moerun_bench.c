// moerun bench: the expert layer (gate_up, down, combine; routing and plan made before) timed by replaying a graph
// after the L2 was flushed; then each kernel for itself, and all six together. The results are judged after the
// timing.
#include "moerun.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_BYTES = 256 << 20, WARM_UP = 5, HOST_CALLS = 100 };

struct times { // milliseconds
    double median, p10, p90;
};
struct bench {
    const struct options *o;
    struct device *d;
    struct json json;
    struct layer l;
    struct guarded flush;
    void *event[2];
    bool all_fine;
};
struct row { // what one line of the table tells
    struct times layer, steps[MOE_LAYER_STEPS], all;
    double host_us, flops, bytes, floor_ms;
    int64_t active;
    struct judgement j;
    bool too_fast;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Steps [from, to) as one graph.
static bool capture(struct bench *b, int from, int to, void **graph)
{
    bool ok = !device_fails(b->d, moe_capture_begin(b->d->gpu, b->d->stream), "capture");
    if (!ok)
        return false;
    for (int s = from; ok && s < to; s++)
        ok = layer_step(&b->l, (enum moe_layer_step)s);
    return !device_fails(b->d, moe_capture_end(b->d->gpu, b->d->stream, graph), "capture") && ok;
}

static bool replay(struct bench *b, void *graph, int i, double *ms)
{
    float t = 0;
    struct moe_device *d = b->d->gpu;
    bool ok = device_fill(b->d, b->flush.ptr, i & 0xff, b->flush.bytes) &&
              !device_fails(b->d, moe_event_record(d, b->event[0], b->d->stream), "event") &&
              !device_fails(b->d, moe_graph_launch(d, graph, b->d->stream), "graph") &&
              !device_fails(b->d, moe_event_record(d, b->event[1], b->d->stream), "event") &&
              !device_fails(b->d, moe_event_ms(d, b->event[0], b->event[1], &t), "running the kernels");
    *ms = (double)t;
    return ok;
}

static bool time_steps(struct bench *b, int from, int to, struct times *t)
{
    int n = b->o->repeats;
    void *graph = NULL;
    double unused, *ms = malloc((size_t)n * sizeof *ms);
    bool ok = ms && capture(b, from, to, &graph);
    for (int i = 0; ok && i < WARM_UP; i++)
        ok = replay(b, graph, i, &unused);
    for (int i = 0; ok && i < n; i++)
        ok = replay(b, graph, i, &ms[i]);
    if (ok) {
        qsort(ms, (size_t)n, sizeof *ms, by_value);
        *t = (struct times){ (ms[(n - 1) / 2] + ms[n / 2]) / 2, ms[n / 10], ms[n - 1 - n / 10] };
    }
    moe_destroy(b->d->gpu, MOE_GRAPH, graph);
    free(ms);
    return ok;
}

// What the calling thread spends on one layer call without a graph.
static bool time_host(struct bench *b, double *us)
{
    bool ok = device_sync(b->d);
    double start = now_seconds(), spent = 0;
    for (int i = 0; ok && i < HOST_CALLS; i++) {
        start = now_seconds();
        for (int s = MOE_GATE_UP; ok && s < MOE_LAYER_STEPS; s++)
            ok = layer_step(&b->l, (enum moe_layer_step)s);
        spent += now_seconds() - start;
        if (i % 8 == 7) // a full queue would make the caller wait
            ok = ok && device_sync(b->d);
    }
    *us = spent * 1e6 / HOST_CALLS;
    return ok && device_sync(b->d);
}

static void account(const struct bench *b, const struct results *r, struct row *row)
{
    const struct model *m = b->l.m;
    char *seen = calloc((size_t)b->l.experts, 1);
    int64_t used = 0;
    for (int64_t s = 0; seen && s < b->l.slots; s++)
        if (r->ids[s] >= 0 && r->ids[s] < b->l.experts) {
            used++;
            row->active += !seen[r->ids[s]];
            seen[r->ids[s]] = 1;
        }
    free(seen);
    double matrix = (double)m->hidden * m->ffn;
    row->flops = 6 * (double)used * matrix;
    row->bytes = 2 * (3 * (double)row->active * matrix + 2 * (double)b->l.tokens * m->hidden);
    double a = row->flops / (b->o->floor_tflops * 1e9), c = row->bytes / (b->o->floor_gbps * 1e6);
    row->floor_ms = a > c ? a : c;
    row->too_fast = row->layer.median < 0.85 * row->floor_ms;
}

static void print_row(const struct bench *b, const struct row *r)
{
    const struct layer *l = &b->l;
    double ms = r->layer.median;
    bool ok = r->j.ok && !r->too_fast;
    printf("%-16s %s %6d %4d %9.4f %9.4f %9.4f %7.1f %7.0f %6.2f  %8.4f %8.4f %8.4f %9.4f %7.1f  %s\n", l->m->name,
           b->o->f16 ? "fp16" : "bf16", l->tokens, l->block, ms, r->layer.p10, r->layer.p90, r->flops / ms * 1e-9,
           r->bytes / ms * 1e-6, ms / r->floor_ms, r->steps[MOE_GATE_UP].median, r->steps[MOE_DOWN].median,
           r->steps[MOE_COMBINE].median, r->all.median, r->host_us,
           ok        ? "ok"
           : r->j.ok ? "FASTER THAN THE FLOOR ALLOWS"
                     : "WRONG");
    for (int i = 0; i < CHECKS; i++)
        if (r->j.v[i].bad)
            printf("  %s: %" PRId64 " wrong; %s\n", check_names[i], r->j.v[i].bad, r->j.v[i].first);
    fflush(stdout);
}

static void write_json(struct bench *b, const struct row *r)
{
    const struct layer *l = &b->l;
    struct json *j = &b->json;
    char name[32];
    json_begin(j);
    json_text(j, "command", "bench");
    json_text(j, "device", b->d->info.name);
    json_text(j, "model", l->m->name);
    json_text(j, "dtype", b->o->f16 ? "fp16" : "bf16");
    json_int(j, "tokens", l->tokens);
    json_int(j, "rows", l->block);
    json_int(j, "seed", (int64_t)b->o->seed);
    json_int(j, "active_experts", r->active);
    json_number(j, "layer_ms", r->layer.median);
    json_number(j, "layer_ms_p10", r->layer.p10);
    json_number(j, "layer_ms_p90", r->layer.p90);
    json_number(j, "tflops", r->flops / r->layer.median * 1e-9);
    json_number(j, "gbps", r->bytes / r->layer.median * 1e-6);
    json_number(j, "floor_ms", r->floor_ms);
    json_number(j, "over_floor", r->layer.median / r->floor_ms);
    for (int i = 0; i < MOE_LAYER_STEPS; i++) {
        snprintf(name, sizeof name, "%s_ms", step_names[i]);
        json_number(j, name, r->steps[i].median);
    }
    json_number(j, "with_routing_ms", r->all.median);
    json_number(j, "host_us", r->host_us);
    json_number(j, "rel_l2", r->j.v[C_TOKENS].rel_mean);
    json_int(j, "tokens_end_to_end", r->j.sampled);
    json_text(j, "result", !r->j.ok ? "wrong" : r->too_fast ? "faster than the floor allows" : "ok");
    json_end(j);
}

static bool bench_measure(struct bench *b, struct results *res, struct row *r)
{
    bool ok = layer_poison(&b->l) && layer_run(&b->l) && time_steps(b, MOE_GATE_UP, MOE_LAYER_STEPS, &r->layer);
    for (int s = 0; ok && s < MOE_LAYER_STEPS; s++)
        ok = (s == MOE_ROUTE && b->l.given_ids) || time_steps(b, s, s + 1, &r->steps[s]);
    ok = ok && (b->l.given_ids || time_steps(b, 0, MOE_LAYER_STEPS, &r->all)) && time_host(b, &r->host_us);
    // What the timed launches left behind is what is judged: h, d and y were last written by them.
    return ok && device_sync(b->d) && results_download(&b->l, res) &&
           judge_layer(&b->l, res, b->o->budget < 2 ? b->o->budget : 2, &r->j);
}

static bool bench_tokens(struct bench *b, int tokens, int rows)
{
    struct row r = { .active = 0 };
    struct results res = { .ids = NULL };
    bool ok = layer_tokens(&b->l, tokens, rows) && results_new(&b->l, &res) && bench_measure(b, &res, &r);
    if (ok) {
        judgement_done(&r.j);
        account(b, &res, &r);
        print_row(b, &r);
        write_json(b, &r);
        b->all_fine = b->all_fine && r.j.ok && !r.too_fast;
    }
    results_free(&res);
    layer_tokens_free(&b->l);
    return ok;
}

static bool bench_model(struct bench *b, const struct model *m)
{
    int all[LIST_MAX], n = b->o->nrows ? b->o->nrows : 1;
    static const int chosen[1] = { 0 };
    const int *rows = b->o->nrows ? b->o->rows : chosen;
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
    return ok;
}

bool command_bench(const struct options *o)
{
    struct device d;
    struct bench b = { .o = o, .d = &d, .all_fine = true };
    if (!device_open(&d, o))
        return false;
    bool ok = d.gpu || report(EXIT_USAGE, "bench needs a GPU: eval says nothing about time");
    for (int i = 0; ok && i < o->ntokens; i++)
        ok = o->tokens[i] > 0 || report(EXIT_USAGE, "bench of 0 tokens");
    ok = ok && guarded_new(&d, &b.flush, FLUSH_BYTES) && !device_fails(&d, moe_event(d.gpu, &b.event[0]), "event") &&
         !device_fails(&d, moe_event(d.gpu, &b.event[1]), "event") && json_open(&b.json, o->json);
    if (ok)
        printf("%s, %s routing, seed %" PRIu64
               ", median of %d graph replays after a %d MB flush of L2; floor by %.0f TFLOP/s, "
               "%.0f GB/s\n%-16s %4s %6s %4s %9s %9s %9s %7s %7s %6s  %8s %8s %8s %9s %7s\n",
               d.info.name,
               o->routing == 'u'   ? "uniform"
               : o->routing == 'z' ? "zipf"
               : o->routing == 'o' ? "one"
                                   : "file",
               o->seed, o->repeats, FLUSH_BYTES >> 20, o->floor_tflops, o->floor_gbps, "model", "type", "T", "rows",
               "layer ms", "p10", "p90", "TFLOP/s", "GB/s", "/floor", "gate_up", "down", "combine", "+routing",
               "host us");
    for (int i = 0; ok && i < o->nmodels; i++)
        ok = bench_model(&b, o->models[i]);
    if (d.gpu) {
        guarded_free(&d, &b.flush);
        moe_destroy(d.gpu, MOE_EVENT, b.event[0]);
        moe_destroy(d.gpu, MOE_EVENT, b.event[1]);
    }
    device_close(&d);
    ok = json_close(&b.json) && ok;
    return ok && (b.all_fine || report(EXIT_BREACH, "wrong results"));
}
