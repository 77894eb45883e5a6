// Routing and plan of ref_moe.h, and the judge of routers.
//
// Groups are those of DeepSeek's published gates (MoEGate of V2: group_limited_greedy, a group is worth its best
// expert; of V3: noaux_tc, the sum of its two best scores + biases): the best keep_groups are kept, experts outside
// cannot be chosen. Among equals the lower index is better, of experts and of groups.
#include "ref_inner.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- scores

static void scores(const struct ref_router *r, int token, double *p)
{
    const float *logits = r->logits + (int64_t)token * r->experts;
    double top = -HUGE_VAL, sum = 0;
    for (int e = 0; e < r->experts; e++)
        top = logits[e] > top ? (double)logits[e] : top;
    for (int e = 0; e < r->experts; e++) {
        p[e] = r->sigmoid ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e] - top);
        sum += p[e];
    }
    for (int e = 0; e < r->experts && !r->sigmoid; e++)
        p[e] /= sum;
}

// The key that selects: NaN counts below everything.
static double key_of(const struct ref_router *r, const double *p, int e)
{
    double k = p[e] + (double)r->bias[e];
    return isnan(k) ? -HUGE_VAL : k;
}

static void weigh(const struct ref_router *r, const double *p, const int32_t *ids, double *weights)
{
    double total = 1e-20;
    for (int j = 0; j < r->topk; j++)
        total += p[ids[j]];
    for (int j = 0; j < r->topk; j++)
        weights[j] = p[ids[j]] * r->scale / (r->renorm ? total : 1);
}

// ---- groups

struct groups {
    int n, size;               // n groups of `size` neighbours; one of all experts if the router has none
    double worth[EXPERTS_MAX]; // of each
    double most[EXPERTS_MAX];  // its best key
    double terms;              // largest sum of |keys| that makes up the worth of a kept group
    bool kept[EXPERTS_MAX];    // by the definition
};

static void keep_best(const struct ref_router *r, struct groups *g)
{
    for (int i = 0; i < (r->groups > 1 ? r->keep_groups : 1); i++) {
        int best = -1;
        for (int j = 0; j < g->n; j++)
            if (!g->kept[j] && (best < 0 || g->worth[j] > g->worth[best]))
                best = j;
        if (best >= 0)
            g->kept[best] = true;
    }
}

static void find_groups(const struct ref_router *r, const double *p, struct groups *g)
{
    double terms[EXPERTS_MAX];
    g->n = r->groups > 1 ? r->groups : 1;
    g->size = r->experts / g->n;
    memset(g->kept, 0, sizeof g->kept);
    for (int j = 0; j < g->n; j++) {
        double best = -HUGE_VAL, second = -HUGE_VAL;
        for (int e = j * g->size; e < (j + 1) * g->size; e++) {
            double k = key_of(r, p, e);
            second = fmax(second, fmin(k, best));
            best = fmax(best, k);
        }
        g->most[j] = best;
        g->worth[j] = r->group_pairs ? best + second : best;
        terms[j] = r->group_pairs ? fabs(best) + fabs(second) : fabs(best);
    }
    keep_best(r, g);
    g->terms = 0;
    for (int j = 0; j < g->n; j++)
        if (g->kept[j] && isfinite(terms[j]))
            g->terms = fmax(g->terms, terms[j]);
}

// Experts of groups that are not kept come after all others.
static double group_key(const struct ref_router *r, const struct groups *g, const bool *kept, const double *p, int e)
{
    return e / g->size < g->n && kept[e / g->size] ? key_of(r, p, e) : -HUGE_VAL;
}

static void choose(const struct ref_router *r, const struct groups *g, const bool *kept, const double *p, int32_t *ids,
                   double *keys)
{
    bool taken[EXPERTS_MAX] = { false };
    for (int j = 0; j < r->topk; j++) {
        int best = -1;
        for (int e = 0; e < r->experts; e++)
            if (!taken[e] && (best < 0 || group_key(r, g, kept, p, e) > group_key(r, g, kept, p, best)))
                best = e;
        taken[best] = true;
        ids[j] = best;
        if (keys)
            keys[j] = group_key(r, g, kept, p, best);
    }
}

void ref_route(const struct ref_router *r, int token, int32_t *ids, double *weights, double *keys)
{
    double p[EXPERTS_MAX];
    struct groups g;
    scores(r, token, p);
    find_groups(r, p, &g);
    choose(r, &g, g.kept, p, ids, keys);
    weigh(r, p, ids, weights);
    for (int j = 0; j < r->shared; j++) {
        ids[r->topk + j] = r->experts + j;
        weights[r->topk + j] = r->shared_weight ? r->shared_weight[token] : 1;
    }
}

void ref_plan(const int32_t *ids, struct ref_plan *p)
{
    int32_t total[EXPERTS_MAX] = { 0 }, next[EXPERTS_MAX];
    memset(p->counts, 0, (size_t)p->chunks * (size_t)p->experts * sizeof *p->counts);
    memset(p->tiles, 0, (size_t)p->entries * 4 * sizeof *p->tiles);
    for (int64_t s = 0; s < p->slots; s++)
        if (ids[s] >= 0 && ids[s] < p->experts) {
            total[ids[s]]++;
            p->counts[s / p->chunk * p->experts + ids[s]]++;
        }
    int64_t n = 0;
    p->rows = 0;
    p->fits = true;
    for (int e = 0; e < p->experts; e++) {
        next[e] = (int32_t)p->rows;
        for (int32_t done = 0; done < total[e]; done += p->block, n++) {
            const int32_t entry[4] = { e, next[e] + done, total[e] - done < p->block ? total[e] - done : p->block, 0 };
            if (n < p->entries)
                memcpy(p->tiles + 4 * n, entry, sizeof entry);
        }
        p->rows += total[e];
    }
    p->fits = n <= p->entries;
    for (int64_t s = 0; s < p->slots; s++) {
        bool in = ids[s] >= 0 && ids[s] < p->experts;
        int32_t row = in ? next[ids[s]]++ : -1;
        p->slot_row[s] = row;
        if (!in)
            continue;
        p->row_token[row] = (int32_t)(s / p->topk);
        p->row_expert[row] = ids[s];
    }
}

// ---- the judge

// Groups that the chosen experts may come from: those by the definition, but in f32 a group whose worth is within
// rounding of the last kept one may take its place. Exactly equal ones stay in order: the lower index is kept first.
//
// Of all such choices, the one that speaks most for these ids: the groups that the ids are from, with the equal ones
// before them; and where places are left, those groups whose best expert is the smallest loss. false: no choice has
// them.
static bool groups_of(const struct ref_router *r, const struct groups *g, const int32_t *ids, bool *kept)
{
    double least = HUGE_VAL, beyond = -HUGE_VAL, near = 4e-6 * g->terms;
    int places = r->groups > 1 ? r->keep_groups : 1;
    for (int j = 0; j < g->n; j++) {
        least = g->kept[j] ? fmin(least, g->worth[j]) : least;
        beyond = g->kept[j] ? beyond : fmax(beyond, g->worth[j]);
    }
    for (int j = 0; j < g->n; j++) { // those that rounding cannot move
        kept[j] = g->kept[j] && g->worth[j] - beyond > near;
        places -= kept[j];
    }
    for (int i = 0; i < r->topk; i++) {
        int mine = ids[i] / g->size;
        for (int j = 0; j <= mine && mine < g->n; j++)
            if (!kept[j] && (j == mine || g->worth[j] == g->worth[mine])) {
                if (!g->kept[j] && !(least - g->worth[j] <= near))
                    return false;
                kept[j] = true;
                places--;
            }
    }
    for (; places > 0; places--) {
        int next = -1;
        for (int j = 0; j < g->n; j++) {
            bool first = !kept[j] && (g->kept[j] || least - g->worth[j] <= near);
            for (int q = 0; q < j && first; q++)
                first = kept[q] || g->worth[q] != g->worth[j];
            if (first && (next < 0 || g->most[j] < g->most[next]))
                next = j;
        }
        if (next < 0)
            break;
        kept[next] = true;
    }
    return places >= 0;
}

enum { CHOICES_MAX = 64 };
struct judging {
    const struct ref_router *r;
    const int32_t *ids;
    const float *weights;
    struct ref_verdict *v;
};

// Each an expert, none twice.
static bool judge_range(const struct ref_router *r, int64_t t, const int32_t *ids, struct ref_verdict *v)
{
    for (int i = 0; i < r->topk; i++) {
        if (ids[i] < 0 || ids[i] >= r->experts) {
            ref_say(v, "ids[%" PRId64 ", %d] is %" PRId32, t, i, ids[i]);
            return false;
        }
        for (int q = 0; q < i; q++)
            if (ids[q] == ids[i])
                ref_say(v, "ids[%" PRId64 "] has expert %" PRId32 " twice", t, ids[i]);
    }
    return true;
}

// An equal expert of lower index that is not before position i; -1: none.
static int passed_over(const struct ref_router *r, const struct groups *g, const bool *kept, const double *p,
                       const int32_t *ids, int i)
{
    double key = group_key(r, g, kept, p, ids[i]);
    for (int e = 0; e < ids[i]; e++) {
        bool before = group_key(r, g, kept, p, e) != key;
        for (int q = 0; q < i && !before; q++)
            before = ids[q] == e;
        if (!before)
            return e;
    }
    return -1;
}

static void judge_order(const struct ref_router *r, int64_t t, const double *p, const int32_t *ids,
                        struct ref_verdict *v)
{
    struct groups g;
    bool kept[EXPERTS_MAX];
    double keys[CHOICES_MAX], most = 0;
    int32_t best[CHOICES_MAX];
    find_groups(r, p, &g);
    choose(r, &g, g.kept, p, best, keys);
    for (int i = 0; i < r->topk; i++)
        v->near_ties += ids[i] != best[i];
    if (!groups_of(r, &g, ids, kept)) {
        ref_say(v, "ids[%" PRId64 "] has experts of a group that is not kept, or of more than %d groups", t,
                r->keep_groups);
        return;
    }
    choose(r, &g, kept, p, best, keys);
    for (int i = 0; i < r->topk; i++)
        most = fmax(most, isfinite(keys[i]) ? fabs(keys[i]) : 0);
    for (int i = 0; i < r->topk; i++) {
        double key = group_key(r, &g, kept, p, ids[i]);
        int before = passed_over(r, &g, kept, p, ids, i);
        if (key != keys[i] && !(fabs(key - keys[i]) <= 4e-6 * most))
            ref_say(v, "ids[%" PRId64 ", %d] is %" PRId32 " (score %.9g), not %" PRId32 " (%.9g)", t, i, ids[i], key,
                    best[i], keys[i]);
        else if (before >= 0)
            ref_say(v, "ids[%" PRId64 ", %d] is %" PRId32 ", and %d with the same score is not before it", t, i, ids[i],
                    before);
    }
}

// NaN is right where the reference has it (a shared weight of a row with NaN).
static void judge_weight(int64_t t, int j, double got, double want, double bound, struct ref_verdict *v)
{
    bool same = isnan(want) ? isnan(got) : fabs(got - want) <= bound;
    if (bound > 0 && !isnan(want))
        v->worst = fmax(v->worst, fabs(got - want) / bound);
    if (!same)
        ref_say(v, "weights[%" PRId64 ", %d] is %.9g, not %.9g", t, j, got, want);
}

static void route_token(void *user, int64_t t)
{
    struct judging *j = user;
    const struct ref_router *r = j->r;
    int choices = r->topk + r->shared;
    struct ref_verdict v = { .checked = 2 * choices };
    double p[EXPERTS_MAX], weights[CHOICES_MAX];
    const int32_t *ids = j->ids + t * choices;
    const float *got = j->weights + t * choices;
    scores(r, (int)t, p);
    if (judge_range(r, t, ids, &v)) {
        judge_order(r, t, p, ids, &v);
        weigh(r, p, ids, weights);
        for (int i = 0; i < r->topk; i++)
            judge_weight(t, i, (double)got[i], weights[i], 2e-5 * fabs(weights[i]) + 1e-8, &v);
    }
    for (int i = r->topk; i < choices; i++) {
        double want = r->shared_weight ? r->shared_weight[t] : 1;
        if (ids[i] != r->experts + i - r->topk)
            ref_say(&v, "ids[%" PRId64 ", %d] is %" PRId32 ", not the shared expert %d", t, i, ids[i],
                    r->experts + i - r->topk);
        judge_weight(t, i, (double)got[i], want, r->shared_weight ? 2e-5 * fabs(want) + 1e-8 : 0, &v);
    }
    ref_merge(j->v, &v);
}

void judge_route(const struct ref_router *r, const int32_t *ids, const float *weights, struct ref_verdict *v)
{
    struct judging j = { .r = r, .ids = ids, .weights = weights, .v = v };
    v->of += 2 * (int64_t)r->tokens * (r->topk + r->shared);
    ref_parallel(r->tokens, route_token, &j);
}
