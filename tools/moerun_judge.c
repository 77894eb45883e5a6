// Fetching what the kernels wrote and judging it (tests/ref_moe.h); and damaging it, to prove that the judges see
// damage.
#include "moerun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const check_names[CHECKS] = { "route", "counts",  "slot_row", "row_token", "tiles",  "written", "h",
                                          "d",     "combine", "tokens",   "repeats",   "guards", "inputs" };
enum { SAMPLE_LEAST = 64, BATCH_BYTES_SHIFT = 31 };

bool results_new(const struct layer *l, struct results *r)
{
    *r = (struct results){ .ids = malloc(l->b[B_IDS].bytes + 1),
                           .counts = malloc(l->b[B_COUNTS].bytes + 1),
                           .slot_row = malloc(l->b[B_SLOT_ROW].bytes + 1),
                           .row_token = malloc(l->b[B_ROW_TOKEN].bytes + 1),
                           .tiles = malloc(l->b[B_TILES].bytes + 1),
                           .weights = malloc(l->b[B_WEIGHTS].bytes + 1),
                           .h = malloc(l->b[B_H].bytes + 1),
                           .d = malloc(l->b[B_D].bytes + 1),
                           .chosen = malloc(l->b[B_CHOSEN].bytes + 1),
                           .y = malloc(l->b[B_Y].bytes + 1) };
    if (r->ids && r->counts && r->slot_row && r->row_token && r->tiles && r->weights && r->h && r->d && r->y &&
        r->chosen)
        return true;
    results_free(r);
    return report(EXIT_INTERNAL, "out of memory");
}

void results_free(struct results *r)
{
    free(r->ids);
    free(r->counts);
    free(r->slot_row);
    free(r->row_token);
    free(r->tiles);
    free(r->weights);
    free(r->h);
    free(r->d);
    free(r->y);
    free(r->chosen);
    *r = (struct results){ .ids = NULL };
}

bool results_download(struct layer *l, struct results *r)
{
    void *to[BUFFERS] = { [B_IDS] = r->ids,
                          [B_WEIGHTS] = r->weights,
                          [B_COUNTS] = r->counts,
                          [B_SLOT_ROW] = r->slot_row,
                          [B_ROW_TOKEN] = r->row_token,
                          [B_TILES] = r->tiles,
                          [B_H] = r->h,
                          [B_D] = r->d,
                          [B_CHOSEN] = r->chosen,
                          [B_Y] = r->y };
    for (int i = B_PARTS; i < BUFFERS; i++)
        if (!device_download(l->d, to[i], l->b[i].ptr, l->b[i].bytes))
            return false;
    if (l->given_ids) { // these are read where they lie
        memcpy(r->weights, l->given_weights, l->b[B_WEIGHTS].bytes);
        memcpy(l->host_map ? r->chosen : r->ids, l->given_ids, l->b[B_IDS].bytes);
    }
    return true;
}

// ---- the plan
// ---------------------------------------------------------------------------------------------------------

static bool plan_new(const struct layer *l, struct ref_plan *p)
{
    size_t s = (size_t)l->slots + 1;
    *p = (struct ref_plan){ .slots = l->slots,
                            .chunks = l->size.chunks,
                            .entries = l->size.entries,
                            .experts = l->experts,
                            .topk = (int)l->size.choices,
                            .chunk = l->size.chunk,
                            .block = l->block };
    p->counts = malloc(((size_t)p->chunks * (size_t)p->experts + 1) * sizeof *p->counts);
    p->slot_row = malloc(s * sizeof *p->slot_row);
    p->row_token = malloc(s * sizeof *p->row_token);
    p->row_expert = malloc(s * sizeof *p->row_expert);
    p->tiles = malloc(((size_t)p->entries + 1) * 4 * sizeof *p->tiles);
    if (!p->counts || !p->slot_row || !p->row_token || !p->row_expert || !p->tiles)
        return report(EXIT_INTERNAL, "out of memory");
    memset(p->row_token, 0xff, s * sizeof *p->row_token); // as the poison, where nothing is written
    return true;
}

static void plan_free(struct ref_plan *p)
{
    free(p->counts);
    free(p->slot_row);
    free(p->row_token);
    free(p->row_expert);
    free(p->tiles);
}

// ---- which tokens are followed from end to end
// -----------------------------------------------------------------------------

struct sample {
    int *tokens, n, of;
    bool *in;
};

static void take(struct sample *s, int token)
{
    if (s->in[token])
        return;
    s->in[token] = true;
    s->tokens[s->n++] = token;
}

// First and last token, tokens at the edges of tiles, then the others in random order.
static bool sample_new(const struct layer *l, const struct ref_plan *p, struct sample *s)
{
    int n = l->tokens, edges = 0;
    *s = (struct sample){ .tokens = malloc(((size_t)n + 1) * sizeof(int)), .in = calloc((size_t)n + 1, 1), .of = n };
    int *order = malloc(((size_t)n + 1) * sizeof *order);
    if (!s->tokens || !s->in || !order) {
        free(order);
        return report(EXIT_INTERNAL, "out of memory");
    }
    if (n) {
        take(s, 0);
        take(s, n - 1);
    }
    for (int64_t i = 0; i < p->entries && edges < SAMPLE_LEAST / 2; i++) {
        const int32_t *t = p->tiles + 4 * (i * 7919 % p->entries);
        if (!t[2])
            continue;
        take(s, p->row_token[t[1]]);
        take(s, p->row_token[t[1] + t[2] - 1]);
        edges += 2;
    }
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_bits(l->o->seed, 4000, (uint64_t)i) % (uint64_t)(i + 1)), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
    for (int i = 0; i < n; i++)
        take(s, order[i]);
    free(order);
    return true;
}

static void sample_free(struct sample *s)
{
    free(s->tokens);
    free(s->in);
}

// In batches: at least 64 tokens, and as many as the budget allows by the pace so far.
static bool judge_sample(struct layer *l, const struct ref_layer *ref, const struct sample *s, const uint16_t *y,
                         double budget, struct judgement *j)
{
    double start = now_seconds();
    int64_t row_bytes = (int64_t)8 * l->size.choices * (l->m->ffn + l->m->hidden);
    int most = (int)(((int64_t)1 << BATCH_BYTES_SHIFT) / row_bytes) + 1, done = 0, batch = SAMPLE_LEAST;
    j->v[C_TOKENS].of = (int64_t)l->tokens * l->m->hidden;
    while (done < s->of) {
        int n = s->of - done < batch ? s->of - done : batch;
        double *want = malloc((size_t)n * (size_t)l->m->hidden * sizeof *want);
        bool ok = want && ref_tokens(ref, s->tokens + done, n, want);
        if (ok)
            judge_tokens(ref, s->tokens + done, n, want, y, l->o->limit, &j->v[C_TOKENS]);
        free(want);
        if (!ok)
            return report(EXIT_INTERNAL, "out of memory");
        done += n;
        double spent = now_seconds() - start, left = budget - spent;
        double affordable = left / (spent / done) / 2; // later batches cost less a token: the pace is a safe guess
        if (affordable < 1)
            break;
        batch = affordable < most ? (int)affordable + 1 : most;
    }
    j->sampled = done;
    return true;
}

// ---- all
// ------------------------------------------------------------------------------------------------------------------

static void judge_integers(const struct layer *l, const struct ref_plan *p, const struct results *r,
                           struct judgement *j)
{
    judge_ints("counts", r->counts, p->counts, p->chunks * p->experts, &j->v[C_COUNTS]);
    judge_ints("slot_row", r->slot_row, p->slot_row, p->slots, &j->v[C_SLOT_ROW]);
    judge_ints("row_token", r->row_token, p->row_token, p->slots, &j->v[C_ROW_TOKEN]);
    judge_ints("tiles", r->tiles, p->tiles, p->entries * 4, &j->v[C_TILES]);
    judge_written("h", r->h, p->rows, p->slots, l->m->ffn, &j->v[C_WRITTEN]);
    judge_written("d", r->d, p->rows, p->slots, l->m->hidden, &j->v[C_WRITTEN]);
    judge_written("y", r->y, l->tokens, l->tokens, l->m->hidden, &j->v[C_WRITTEN]);
}

// ids = map[chosen], -1 where there is no such expert.
static void judge_map(const struct layer *l, const struct results *r, struct ref_verdict *v)
{
    for (int64_t i = 0; i < l->slots; i++) {
        int32_t e = r->chosen[i], want = e >= 0 && e < l->m->experts + l->m->shared ? l->host_map[e] : -1;
        v->checked++;
        v->of++;
        if (r->ids[i] != want && !v->bad++)
            snprintf(v->first, sizeof v->first, "ids[%lld]: expert %d is %d here, not %d", (long long)i, e, want,
                     r->ids[i]);
    }
}

bool judge_layer(struct layer *l, struct results *r, double budget, struct judgement *j)
{
    const struct model *m = l->m;
    struct ref_router router = { .tokens = l->tokens,
                                 .experts = m->experts,
                                 .topk = m->topk,
                                 .sigmoid = m->sigmoid,
                                 .renorm = m->renorm,
                                 .scale = (double)(float)m->scale,
                                 .groups = m->groups,
                                 .keep_groups = m->keep_groups,
                                 .group_pairs = m->group_pairs,
                                 .shared = m->shared,
                                 .shared_weight = l->shared_weight,
                                 .logits = l->host_logits,
                                 .bias = l->host_bias };
    struct ref_layer ref = { .tokens = l->tokens,
                             .experts = l->experts,
                             .topk = (int)l->size.choices,
                             .hidden = m->hidden,
                             .ffn = m->ffn,
                             .f16 = l->o->f16,
                             .activation = (enum ref_activation)m->activation,
                             .alpha = (double)(float)m->alpha,
                             .limit = (double)(float)m->limit,
                             .x = l->host_x,
                             .ids = r->ids,
                             .weights = r->weights,
                             .row = layer_row,
                             .bias = m->biases ? layer_bias : NULL,
                             .user = l };
    struct ref_plan p;
    struct sample s;
    if (!plan_new(l, &p)) {
        plan_free(&p);
        return false;
    }
    if (!l->given_ids)
        judge_route(&router, l->host_map ? r->chosen : r->ids, r->weights, &j->v[C_ROUTE]);
    if (l->host_map)
        judge_map(l, r, &j->v[C_ROUTE]);
    ref_plan(r->ids, &p);
    judge_integers(l, &p, r, j);
    judge_h(&ref, &p, r->h, l->o->columns, l->o->seed, &j->v[C_H]);
    judge_d(&ref, &p, r->h, r->d, l->o->columns, l->o->seed, &j->v[C_D]);
    judge_combine(&ref, &p, r->d, r->y, &j->v[C_COMBINE]);
    bool ok = sample_new(l, &p, &s) && judge_sample(l, &ref, &s, r->y, budget, j);
    // Rounding that leans one way: far less than a rounding error, but the same sign everywhere.
    struct ref_verdict *v = &j->v[C_TOKENS];
    double lean = (l->o->f16 ? 1 / 8.0 : 1) * (2.5e-4 + 0.02 / sqrt((double)v->checked + 1));
    if (ok && !v->bad && v->rel_mean > l->o->limit) {
        v->bad++;
        snprintf(v->first, sizeof v->first, "relative L2 error of all rows %.3e, allowed %.1e", v->rel_mean,
                 l->o->limit);
    }
    if (ok && !v->bad && fabs(v->mean_signed) > lean) {
        v->bad++;
        snprintf(v->first, sizeof v->first, "errors lean one way: mean %.2e of the rms, allowed %.2e", v->mean_signed,
                 lean);
    }
    sample_free(&s);
    plan_free(&p);
    return ok;
}

void judgement_done(struct judgement *j)
{
    j->ok = true;
    for (int i = 0; i < CHECKS; i++)
        j->ok = j->ok && !j->v[i].bad;
}

// ---- damage
// -----------------------------------------------------------------------------------------------------------------

static void swap_rows(uint16_t *t, int64_t a, int64_t b, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        uint16_t was = t[a * width + i];
        t[a * width + i] = t[b * width + i];
        t[b * width + i] = was;
    }
}

static void scale(uint16_t *t, int64_t n, int64_t step, double by, bool f16)
{
    for (int64_t i = 0; i < n; i += step)
        if (t[i] != 0xffff)
            t[i] = ref_bits(f16, ref_value(f16, t[i]) * by);
}

// Each kind is what a likely mistake of a kernel would leave behind.
bool mutate(const struct layer *l, struct results *r, const char *how)
{
    const int64_t hidden = l->m->hidden, ffn = l->m->ffn, y = l->tokens * hidden, h = l->slots * ffn,
                  d = l->slots * hidden;
    bool f16 = l->o->f16;
    if (!strcmp(how, "y-zero")) // nothing computed
        memset(r->y, 0, (size_t)y * 2);
    else if (!strcmp(how, "y-token")) // the last token left out
        memset(r->y + y - hidden, 0, (size_t)hidden * 2);
    else if (!strcmp(how, "y-scale")) // weights a little off
        scale(r->y, y, 1, 1.01, f16);
    else if (!strcmp(how, "y-column")) // one column of a tile
        scale(r->y + 5, y - 5, hidden, 1.05, f16);
    else if (!strcmp(how, "y-truncate")) // towards zero instead of to nearest: shifts by half a step
        for (int64_t i = 0; i < y; i++)
            r->y[i] = (uint16_t)(r->y[i] - (i & 1));
    else if (!strcmp(how, "h-zero"))
        memset(r->h, 0, (size_t)h * 2);
    else if (!strcmp(how, "h-swap")) // rows of another token
        swap_rows(r->h, 0, l->slots - 1, ffn);
    else if (!strcmp(how, "h-scale"))
        scale(r->h, h, 1, 1.01, f16);
    else if (!strcmp(how, "h-hole")) // one value not written
        r->h[h / 2] = 0xffff;
    else if (!strcmp(how, "d-zero"))
        memset(r->d, 0, (size_t)d * 2);
    else if (!strcmp(how, "d-swap"))
        swap_rows(r->d, 0, l->slots - 1, hidden);
    else if (!strcmp(how, "d-scale"))
        scale(r->d, d, 1, 0.99, f16);
    else if (!strcmp(how, "ids")) // second best first
        r->ids[0] = r->ids[1];
    else if (!strcmp(how, "weights"))
        r->weights[l->slots - 1] *= 1.001f;
    else if (!strcmp(how, "counts"))
        r->counts[0]++;
    else if (!strcmp(how, "slot_row"))
        r->slot_row[l->slots - 1]--;
    else if (!strcmp(how, "row_token"))
        r->row_token[0]++;
    else if (!strcmp(how, "tiles"))
        r->tiles[2]--;
    else
        return false;
    return true;
}
