// The inputs of one number of tokens: x, logits, or ids and weights that no router gave.
#include "moerun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Logits whose order is a draw of experts without replacement: log-weights plus Gumbel noise.
static void make_logits(struct layer *l)
{
    const struct options *o = l->o;
    int experts = l->m->experts;
    double spread = l->m->sigmoid ? 0.5 : 1; // keep sigmoids away from 1, where scores would tie
    for (int64_t i = 0; i < (int64_t)l->tokens * experts; i++) {
        int e = (int)(i % experts);
        double gumbel = -log(-log(random_unit(o->seed, 2000 + (uint64_t)l->tokens, (uint64_t)i)));
        double weight = o->routing == 'z' ? -o->zipf * log(e + 1) : o->routing == 'o' && e == experts - 1 ? 30 : 0;
        l->host_logits[i] = (float)(spread * (weight + gumbel));
        if (layer_special(l, "ties"))
            l->host_logits[i] = 0;
        else if (layer_special(l, "logits-100"))
            l->host_logits[i] = gumbel > 0.3665 ? 100 : -100; // the median
        else if (layer_special(l, "logits-low"))
            l->host_logits[i] = -200;
    }
}

bool input_bias(struct layer *l)
{
    int experts = l->m->experts;
    l->host_bias = malloc((size_t)experts * sizeof *l->host_bias);
    if (!l->host_bias)
        return report(EXIT_INTERNAL, "out of memory");
    for (int e = 0; e < experts; e++)
        l->host_bias[e] = l->m->bias ? (float)(0.02 * (random_unit(l->o->seed, 3000, (uint64_t)e) - 0.5)) : 0;
    return guarded_new(l->d, &l->b[B_BIAS], (size_t)experts * 4) &&
           device_upload(l->d, l->b[B_BIAS].ptr, l->host_bias, (size_t)experts * 4);
}

// Whitespace-separated ids, token by token; fewer than needed are repeated.
static bool read_ids(struct layer *l)
{
    char *text, *p, *end;
    size_t length;
    int64_t n = 0;
    if (!read_file(l->o->routing_file, &text, &length))
        return false;
    end = text;
    for (p = text; n < l->slots; p = end) {
        long v = strtol(p, &end, 10);
        if (end == p)
            break;
        l->given_ids[n++] = (int32_t)v;
    }
    bool ok = n == l->slots || (n > 0 && end[strspn(end, " \t\r\n")] == 0);
    for (int64_t i = n; ok && i < l->slots; i++)
        l->given_ids[i] = l->given_ids[i % n];
    free(text);
    return ok || report(EXIT_USAGE, "%s: expected integers", l->o->routing_file);
}

// Ids that no router gives: every third is -1, one is past the last expert, both of a pair are equal.
static void odd_ids(struct layer *l)
{
    char how = l->o->routing;
    int experts = l->m->experts, all = experts + l->m->shared;
    for (int64_t i = 0; i < l->slots; i++) {
        int32_t id = (int32_t)(random_bits(l->o->seed, 8000, (uint64_t)i) % (uint64_t)experts);
        int j = (int)(i % l->size.choices) - l->m->topk;
        if (j >= 0)
            id = experts + j;
        else if (how == 'h' && i % 3 == 2)
            id = -1;
        else if (how == 'b' && i == l->slots / 2)
            id = all;
        else if (how == 't' && i % l->size.choices)
            id = l->given_ids[i - 1];
        l->given_ids[i] = id;
    }
}

static bool give_ids(struct layer *l)
{
    if (!strchr("fhbt", l->o->routing))
        return true;
    l->given_ids = malloc((size_t)(l->slots + 1) * sizeof *l->given_ids);
    l->given_weights = malloc((size_t)(l->slots + 1) * sizeof *l->given_weights);
    if (!l->given_ids || !l->given_weights)
        return report(EXIT_INTERNAL, "out of memory");
    for (int64_t i = 0; i < l->slots; i++)
        l->given_weights[i] = (float)(random_unit(l->o->seed, 9000, (uint64_t)i) / (double)l->size.choices * 2);
    if (l->o->routing == 'f')
        return read_ids(l);
    odd_ids(l);
    return true;
}

// The weight of the shared experts, in double precision.
static void shared_weights(struct layer *l)
{
    const struct model *m = l->m;
    double *gate = malloc((size_t)m->hidden * sizeof *gate);
    if (gate)
        normal_values(&l->w[W_SHARED_GATE], 0, m->hidden, gate);
    for (int t = 0; gate && t < l->tokens; t++) {
        double sum = 0;
        for (int i = 0; i < m->hidden; i++)
            sum += ref_value(l->o->f16, l->host_x[(int64_t)t * m->hidden + i]) * gate[i];
        l->shared_weight[t] = 1 / (1 + exp(-sum));
    }
    free(gate);
}

bool input_make(struct layer *l)
{
    const struct model *m = l->m;
    size_t t = (size_t)l->tokens;
    l->host_x = malloc(t * (size_t)m->hidden * 2 + 1);
    l->host_logits = malloc(t * (size_t)m->experts * 4 + 1);
    l->shared_weight = m->shared_gate ? malloc(t * sizeof *l->shared_weight + 1) : NULL;
    if (!l->host_x || !l->host_logits || (m->shared_gate && !l->shared_weight))
        return report(EXIT_INTERNAL, "out of memory");
    normal_fill(&l->x, 0, (int64_t)l->tokens * m->hidden, l->host_x);
    for (int i = 0; layer_special(l, "nan-row") && l->tokens > 5 && i < m->hidden; i++)
        l->host_x[5 * m->hidden + i] = ref_bits(l->o->f16, (double)NAN);
    make_logits(l);
    if (m->shared_gate)
        shared_weights(l);
    return give_ids(l);
}

struct kept { // what the host has of an input
    enum buffer b;
    const void *p;
};
enum { KEPT = 6 };

static void kept_inputs(const struct layer *l, struct kept k[KEPT])
{
    const struct kept all[KEPT] = {
        { B_X, l->host_x },     { B_LOGITS, l->host_logits },  { B_BIAS, l->host_bias },
        { B_MAP, l->host_map }, { B_GIVEN_IDS, l->given_ids }, { B_GIVEN_WEIGHTS, l->given_weights }
    };
    memcpy(k, all, sizeof all);
}

bool input_upload(struct layer *l)
{
    struct kept k[KEPT];
    kept_inputs(l, k);
    for (int i = 0; i < KEPT; i++)
        if (k[i].p && layer_is_of_call(k[i].b) && !device_upload(l->d, l->b[k[i].b].ptr, k[i].p, l->b[k[i].b].bytes))
            return false;
    return true;
}

bool input_intact(struct layer *l, bool *intact)
{
    struct kept k[KEPT];
    kept_inputs(l, k);
    for (int i = 0; i < KEPT; i++) {
        size_t n = l->b[k[i].b].bytes;
        void *got = k[i].p ? malloc(n + 1) : NULL;
        if (!k[i].p)
            continue;
        bool ok = got ? device_download(l->d, got, l->b[k[i].b].ptr, n) : report(EXIT_INTERNAL, "out of memory");
        if (ok && memcmp(got, k[i].p, n)) {
            fprintf(stderr, "moerun: the input %s was changed\n", buffer_names[k[i].b]);
            *intact = false;
        }
        free(got);
        if (!ok)
            return false;
    }
    return true;
}

void input_free(struct layer *l)
{
    free(l->host_x);
    free(l->host_logits);
    free(l->shared_weight);
    free(l->given_ids);
    free(l->given_weights);
    l->host_x = NULL;
    l->host_logits = l->given_weights = NULL;
    l->given_ids = NULL;
    l->shared_weight = NULL;
}
