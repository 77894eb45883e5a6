// moerun verify --streams=N: N threads at once, each with a stream of its own on which the layer was captured once; the graph is
// replayed with other inputs at the same addresses, round after round, and every round is judged.
#include "moerun.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct streamer {
    struct options o; // with this round's seed
    struct device d;  // with its own stream
    struct layer l;   // shares the weights
    struct results r;
    void *graph;
    pthread_mutex_t *judging; // which takes all processors
    int number, rounds, wrong;
    double worst;
    bool ok;
};

// Other inputs where the last ones were.
static bool new_inputs(struct streamer *s, int round)
{
    s->o.seed += 7919u * (uint64_t)(round + 1) + (uint64_t)s->number;
    normal_free(&s->l.x);
    input_free(&s->l);
    return normal_init(&s->l.x, s->o.seed, TENSOR_X, s->o.x_scale, s->o.f16) && input_make(&s->l) &&
           input_upload(&s->l);
}

static bool capture_layer(struct streamer *s)
{
    struct moe_device *g = s->d.gpu;
    if (device_fails(&s->d, moe_capture_begin(g, s->d.stream), "capture"))
        return false;
    bool ok = layer_launch(&s->l);
    return !device_fails(&s->d, moe_capture_end(g, s->d.stream, &s->graph), "capture") && ok;
}

static bool judge_round(struct streamer *s, int round)
{
    struct judgement j = { .sampled = 0 };
    pthread_mutex_lock(s->judging);
    bool ok = judge_layer(&s->l, &s->r, s->o.budget < 1 ? s->o.budget : 1, &j);
    judgement_done(&j);
    for (int i = 0; ok && i < CHECKS; i++)
        if (j.v[i].bad)
            printf("  stream %d, round %d: %s: %lld wrong; %s\n", s->number, round, check_names[i],
                   (long long)j.v[i].bad, j.v[i].first);
    pthread_mutex_unlock(s->judging);
    s->wrong += !j.ok;
    s->worst = j.v[C_TOKENS].rel_l2 > s->worst ? j.v[C_TOKENS].rel_l2 : s->worst;
    return ok;
}

static void *serve(void *user)
{
    struct streamer *s = user;
    s->ok = capture_layer(s);
    for (int i = 0; s->ok && i < s->rounds; i++)
        s->ok = (i == 0 || new_inputs(s, i)) && layer_poison(&s->l) &&
                !device_fails(&s->d, moe_graph_launch(s->d.gpu, s->graph, s->d.stream), "graph") &&
                !device_fails(&s->d, moe_sync(s->d.gpu, s->d.stream), "running the kernels") &&
                results_download(&s->l, &s->r) && judge_round(s, i);
    return NULL;
}

static bool streamer_new(struct streamer *s, struct layer *l, int number, int tokens, int rows,
                         pthread_mutex_t *judging)
{
    *s = (struct streamer){ .o = *l->o, .d = *l->d, .number = number, .rounds = l->o->repeats, .judging = judging };
    s->d.stream = NULL;
    layer_share(&s->l, l, &s->o, &s->d);
    return !device_fails(&s->d, moe_stream(s->d.gpu, &s->d.stream), "stream") &&
           normal_init(&s->l.x, s->o.seed, TENSOR_X, s->o.x_scale, s->o.f16) && layer_tokens(&s->l, tokens, rows) &&
           results_new(&s->l, &s->r);
}

static void streamer_free(struct streamer *s)
{
    if (!s->l.d)
        return;
    moe_destroy(s->d.gpu, MOE_GRAPH, s->graph);
    moe_destroy(s->d.gpu, MOE_STREAM, s->d.stream);
    results_free(&s->r);
    layer_tokens_free(&s->l);
    normal_free(&s->l.x);
}

bool verify_streams(struct layer *l, int tokens, int rows, bool *fine)
{
    int n = l->o->streams, started = 0, wrong = 0;
    pthread_mutex_t judging = PTHREAD_MUTEX_INITIALIZER;
    struct streamer *s = calloc((size_t)n, sizeof *s);
    pthread_t *id = calloc((size_t)n, sizeof *id);
    bool ok = (s && id) || report(EXIT_INTERNAL, "out of memory"), intact = true;
    ok = ok && (l->d->gpu || report(EXIT_USAGE, "--streams needs a GPU or the simulator"));
    double worst = 0;
    for (int i = 0; ok && i < n; i++)
        ok = streamer_new(&s[i], l, i, tokens, rows, &judging);
    while (ok && started < n && !pthread_create(&id[started], NULL, serve, &s[started]))
        started++;
    ok = ok && (started == n || report(EXIT_INTERNAL, "no %d threads", n));
    for (int i = 0; i < started; i++) {
        pthread_join(id[i], NULL);
        ok = ok && s[i].ok && layer_guards_intact(&s[i].l, &intact);
        wrong += s[i].wrong;
        worst = s[i].worst > worst ? s[i].worst : worst;
    }
    ok = ok && device_sync(l->d); // what a simulator has found
    if (ok)
        printf("%s %s T=%d rows=%d: %d streams at once, a graph each, %d replays with changing inputs: worst row's rel "
               "L2 %.2e: %s\n",
               l->m->name, l->o->f16 ? "fp16" : "bf16", tokens, s[0].l.block, n, l->o->repeats, worst,
               wrong || !intact ? "WRONG" : "ok");
    *fine = ok && !wrong && intact;
    for (int i = 0; s && i < n; i++)
        streamer_free(&s[i]);
    free(s);
    free(id);
    return ok;
}
