// The judges of ref_moe.h but that of the router.
#include "ref_inner.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Verdicts are added up from threads.
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

void ref_say(struct ref_verdict *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!v->bad++)
        vsnprintf(v->first, sizeof v->first, fmt, ap);
    va_end(ap);
}

void ref_merge(struct ref_verdict *into, const struct ref_verdict *v)
{
    pthread_mutex_lock(&verdict_lock);
    if (!into->bad && v->bad)
        memcpy(into->first, v->first, sizeof into->first);
    double n = (double)(into->checked + v->checked);
    if (v->checked) {
        double share = (double)v->checked / n, square = into->rel_mean * into->rel_mean;
        into->rel_mean = sqrt(square + (v->rel_mean * v->rel_mean - square) * share);
        into->mean_signed += (v->mean_signed - into->mean_signed) * share;
    }
    into->checked += v->checked;
    into->bad += v->bad;
    into->near_ties += v->near_ties;
    into->worst = fmax(into->worst, v->worst);
    into->rel_l2 = fmax(into->rel_l2, v->rel_l2);
    into->max_abs = fmax(into->max_abs, v->max_abs);
    for (int i = 0; i < REF_ULP_BINS; i++)
        into->ulps[i] += v->ulps[i];
    pthread_mutex_unlock(&verdict_lock);
}

static void count_ulps(struct ref_verdict *v, int64_t n)
{
    v->ulps[n <= 2 ? n : n <= 4 ? 3 : n <= 8 ? 4 : 5]++;
}

// One value against its bound. A NaN is right only where the reference is NaN.
static void compare(struct ref_verdict *v, bool f16, uint16_t got_bits, double want, double bound, const char *what,
                    int64_t row, int64_t column)
{
    double got = ref_value(f16, got_bits), error = fabs(got - want);
    v->checked++;
    if (isnan(want) || isnan(got) || isinf(want) || isinf(got)) {
        uint16_t rounded = ref_bits(f16, want);
        bool same = isnan(want) ? isnan(got) : got == want || ref_ulps(f16, got_bits, rounded) <= 1;
        if (!same)
            ref_say(v, "%s[%" PRId64 ", %" PRId64 "] is %g, not %g", what, row, column, got, want);
        return;
    }
    v->worst = fmax(v->worst, error / bound);
    count_ulps(v, ref_ulps(f16, got_bits, ref_bits(f16, want)));
    if (!(error <= bound))
        ref_say(v, "%s[%" PRId64 ", %" PRId64 "] is %.9g, not %.9g: off by %.3g, allowed %.3g", what, row, column, got,
                want, got - want, bound);
}

// Half a step of the format at v and a little; what flushing denormals may cost.
static double rounding(bool f16, double v)
{
    int e = 0, least = f16 ? -13 : -125;
    if (isnan(v) || isinf(v))
        return v;
    frexp(v, &e); // |v| in [2^(e-1), 2^e)
    if (e < least)
        e = least;
    return ldexp(1.06, e - (f16 ? 12 : 9)) + (f16 ? 0x1p-24 : 0x1p-126);
}

enum { SUM_EPS_SHIFT = 18 }; // an f32 sum in any order, of |terms| adding up to s, is within s * 2^-18

struct judging {
    const struct ref_layer *l;
    const struct ref_plan *p;
    const uint16_t *h, *d, *y;
    const double *want;
    const int *tokens;
    int columns;
    uint64_t seed;
    double limit;
    struct ref_verdict *v;
};

void judge_ints(const char *what, const int32_t *got, const int32_t *want, int64_t n, struct ref_verdict *v)
{
    v->of += n;
    v->checked += n;
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            ref_say(v, "%s[%" PRId64 "] is %" PRId32 ", not %" PRId32, what, i, got[i], want[i]);
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Column i of n of a row: a random one of the i-th part of the width.
static int column_of(const struct judging *j, int64_t row, int i, int n, int width)
{
    int64_t from = (int64_t)width * i / n, to = (int64_t)width * (i + 1) / n;
    return (int)(from + (int64_t)(mix(j->seed ^ mix((uint64_t)row * 4096 + (uint64_t)i)) % (uint64_t)(to - from)));
}

static double sum_products(const double *a, const double *b, int n, double *magnitude)
{
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
        all += fabs(a[i] * b[i]);
    }
    *magnitude = all;
    return sum;
}

// How far h may be off when g is off by dg and u by du, both after their biases: by the steepest slope of the
// activation times the other factor times dg, and by the activation times du. The slopes, steepest near a = 2.4 (gelu:
// 1.4):
//   silu'(a) <= 1.0999      gelu'(a) <= 1.1290
//   clamped: min and clamp move nothing further than their argument moved, and (a sigmoid(alpha a))' = silu'(alpha a),
//   whatever alpha is; the factor beside it is u' + 1. Beyond a limit the bound is too wide, not wrong.
// The activation's own arithmetic: 1e-6 of h; of gelu also what 1 + tanh loses for negative arguments, 2^-21 |g u|.
static double h_error(const struct ref_layer *l, double g, double u, double dg, double du)
{
    double of_g = fabs(ref_activate(l, g, l->activation == REF_CLAMPED ? 0 : 1)); // the factor beside u
    double own = 1e-6 * fabs(ref_activate(l, g, u));
    switch (l->activation) {
    case REF_SILU: return 1.1 * fabs(u) * dg + of_g * du + own;
    case REF_GELU: return 1.13 * fabs(u) * dg + of_g * du + own + ldexp(fabs(g * u), -21);
    case REF_CLAMPED: return 1.1 * fabs(fmax(fmin(u, l->limit), -l->limit) + 1) * dg + of_g * du + own;
    }
    return 0;
}

static void row_h(void *user, int64_t row)
{
    struct judging *j = user;
    const struct ref_layer *l = j->l;
    struct ref_verdict v = { 0 };
    int columns = j->columns < l->ffn ? j->columns : l->ffn, e = j->p->row_expert[row];
    double *x = malloc((size_t)l->hidden * 2 * sizeof(double)), *w = x ? x + l->hidden : NULL;
    for (int k = 0; x && k < l->hidden; k++)
        x[k] = ref_value(l->f16, l->x[(int64_t)j->p->row_token[row] * l->hidden + k]);
    for (int i = 0; x && i < columns; i++) {
        int c = column_of(j, row, i, columns, l->ffn);
        double sg, su;
        l->row(l->user, REF_GATE, e, c, w);
        double g = sum_products(x, w, l->hidden, &sg), gate_bias = ref_bias(l, REF_GATE, e, c);
        l->row(l->user, REF_UP, e, c, w);
        double u = sum_products(x, w, l->hidden, &su), up_bias = ref_bias(l, REF_UP, e, c);
        g += gate_bias;
        u += up_bias;
        double want = ref_activate(l, g, u), dg = ldexp(sg + fabs(gate_bias), -SUM_EPS_SHIFT),
               du = ldexp(su + fabs(up_bias), -SUM_EPS_SHIFT);
        double bound = rounding(l->f16, want) + h_error(l, g, u, dg, du);
        compare(&v, l->f16, j->h[row * l->ffn + c], want, bound, "h", row, c);
    }
    if (!x)
        ref_say(&v, "out of memory");
    free(x);
    ref_merge(j->v, &v);
}

void judge_h(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *h, int columns, uint64_t seed,
             struct ref_verdict *v)
{
    struct judging j = { .l = l, .p = p, .h = h, .columns = columns, .seed = seed, .v = v };
    v->of += p->rows * l->ffn;
    ref_parallel(p->rows, row_h, &j);
}

static void row_d(void *user, int64_t row)
{
    struct judging *j = user;
    const struct ref_layer *l = j->l;
    struct ref_verdict v = { 0 };
    int columns = j->columns < l->hidden ? j->columns : l->hidden, e = j->p->row_expert[row];
    double *h = malloc((size_t)l->ffn * 2 * sizeof(double)), *w = h ? h + l->ffn : NULL;
    for (int k = 0; h && k < l->ffn; k++)
        h[k] = ref_value(l->f16, j->h[row * l->ffn + k]);
    for (int i = 0; h && i < columns; i++) {
        int c = column_of(j, row, i, columns, l->hidden);
        double magnitude;
        l->row(l->user, REF_DOWN, e, c, w);
        double bias = ref_bias(l, REF_DOWN, e, c), want = sum_products(h, w, l->ffn, &magnitude) + bias;
        double bound = rounding(l->f16, want) + ldexp(magnitude + fabs(bias), -SUM_EPS_SHIFT);
        compare(&v, l->f16, j->d[row * l->hidden + c], want, bound, "d", row, c);
    }
    if (!h)
        ref_say(&v, "out of memory");
    free(h);
    ref_merge(j->v, &v);
}

void judge_d(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *h, const uint16_t *d, int columns,
             uint64_t seed, struct ref_verdict *v)
{
    struct judging j = { .l = l, .p = p, .h = h, .d = d, .columns = columns, .seed = seed + 1, .v = v };
    v->of += p->rows * l->hidden;
    ref_parallel(p->rows, row_d, &j);
}

static void token_y(void *user, int64_t t)
{
    struct judging *j = user;
    const struct ref_layer *l = j->l;
    struct ref_verdict v = { 0 };
    for (int c = 0; c < l->hidden; c++) {
        double want = 0, magnitude = 0;
        for (int k = 0; k < l->topk; k++) {
            int32_t row = j->p->slot_row[t * l->topk + k];
            double term = 0;
            if (row >= 0)
                term = (double)l->weights[t * l->topk + k] * ref_value(l->f16, j->d[(int64_t)row * l->hidden + c]);
            want += term;
            magnitude += fabs(term);
        }
        // Each of topk rounded products passes through at most topk - 1 rounded sums: topk * 2^-24 of all, and a
        // little.
        double bound = rounding(l->f16, want) + ldexp((l->topk + 1) * magnitude, -24);
        compare(&v, l->f16, j->y[t * l->hidden + c], want, bound, "y", t, c);
    }
    ref_merge(j->v, &v);
}

void judge_combine(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *d, const uint16_t *y,
                   struct ref_verdict *v)
{
    struct judging j = { .l = l, .p = p, .d = d, .y = y, .v = v };
    v->of += (int64_t)l->tokens * l->hidden;
    ref_parallel(l->tokens, token_y, &j);
}

static void token_end_to_end(void *user, int64_t i)
{
    struct judging *j = user;
    const struct ref_layer *l = j->l;
    struct ref_verdict v = { 0 };
    const double *want = j->want + i * l->hidden;
    const uint16_t *y = j->y + (int64_t)j->tokens[i] * l->hidden;
    double norm = 0, error = 0, sum = 0, most = 0;
    for (int c = 0; c < l->hidden; c++) {
        double e = ref_value(l->f16, y[c]) - want[c];
        norm += want[c] * want[c];
        error += e * e;
        sum += want[c] < 0 ? -e : e;
        most = fmax(most, fabs(e));
    }
    double rms = sqrt(norm / l->hidden) + 1e-30, tiny = rounding(l->f16, 0);
    for (int c = 0; c < l->hidden; c++)
        compare(&v, l->f16, y[c], want[c], 10 * j->limit * rms + 4 * tiny, "y", j->tokens[i], c);
    v.rel_l2 = norm > 0 ? sqrt(error / norm) : error > 0 ? 1 : 0;
    v.rel_mean = v.rel_l2;
    v.max_abs = most / rms;
    v.mean_signed = sum / l->hidden / rms;
    if (isnan(norm) || isinf(norm)) // each value was compared for itself
        v.rel_l2 = v.rel_mean = v.max_abs = v.mean_signed = 0;
    else if (rms < 100 * tiny) // denormals: relative errors say nothing
        v.rel_l2 = v.rel_mean = v.max_abs = v.mean_signed = 0;
    else if (!(v.rel_l2 <= j->limit * (1 + 2 / sqrt(l->hidden))))
        ref_say(&v, "y[%d]: relative L2 error %.3e, allowed %.1e", j->tokens[i], v.rel_l2,
                j->limit * (1 + 2 / sqrt(l->hidden)));
    ref_merge(j->v, &v);
}

void judge_tokens(const struct ref_layer *l, const int *tokens, int n, const double *want, const uint16_t *y,
                  double limit, struct ref_verdict *v)
{
    struct judging j = { .l = l, .tokens = tokens, .want = want, .y = y, .limit = limit, .v = v };
    ref_parallel(n, token_end_to_end, &j);
}

void judge_written(const char *what, const uint16_t *t, int64_t rows, int64_t total, int64_t width,
                   struct ref_verdict *v)
{
    v->of += total * width;
    v->checked += total * width;
    for (int64_t i = 0; i < total * width; i++)
        if ((t[i] == 0xffff) != (i / width >= rows))
            ref_say(v, "%s[%" PRId64 ", %" PRId64 "] was %s", what, i / width, i % width,
                    i / width < rows ? "not written" : "written, and is no row in use");
}
