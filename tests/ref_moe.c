// The double-precision Mixture-of-Experts layer of ref_moe.h and the judges that use it.
//
// Written from the definitions in kernels/moe.dsl, to be read and believed; only the dot products of ref_tokens() are
// arranged for speed. Shares no code with the compiler or the runtime.
#include "ref_moe.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The inner loop in the widest vectors that the machine has.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define FAST
#endif

// ---- threads ------------------------------------------------------------------------------------------------------

enum { THREADS_MAX = 256 };
struct loop {
    _Atomic int64_t next;
    int64_t n;
    void (*fn)(void *user, int64_t i);
    void *user;
};

static void *loop_run(void *p)
{
    struct loop *l = p;
    for (;;) {
        int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n)
            return NULL;
        l->fn(l->user, i);
    }
}

void ref_parallel(int64_t n, void (*fn)(void *user, int64_t i), void *user)
{
    struct loop l = { .n = n, .fn = fn, .user = user };
    pthread_t t[THREADS_MAX];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int made = 0;
    while (made < THREADS_MAX && made + 1 < processors && made + 1 < n && !pthread_create(&t[made], NULL, loop_run, &l))
        made++;
    loop_run(&l);
    while (made > 0)
        pthread_join(t[--made], NULL);
}

// ---- numbers ------------------------------------------------------------------------------------------------------

double ref_value(bool f16, uint16_t bits)
{
    double sign = bits & 0x8000 ? -1 : 1;
    int mantissa_bits = f16 ? 10 : 7, bias = f16 ? 15 : 127, exponent_max = f16 ? 31 : 255;
    int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    if (!f16) { // the upper half of an f32
        uint32_t wide = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &wide, sizeof f);
        return f;
    }
    if (exponent == exponent_max)
        return mantissa ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

uint16_t ref_bits(bool f16, double v)
{
    int mantissa_bits = f16 ? 10 : 7, bias = f16 ? 15 : 127, exponent_max = f16 ? 31 : 255, e;
    uint16_t sign = signbit(v) ? 0x8000 : 0, infinity = (uint16_t)(exponent_max << mantissa_bits);
    double a = fabs(v);
    if (isnan(v))
        return (uint16_t)(sign | infinity | 1 << (mantissa_bits - 1));
    if (isinf(v) || a == 0)
        return (uint16_t)(sign | (a == 0 ? 0 : infinity));
    frexp(a, &e); // a = f * 2^e, f in [0.5, 1)
    int exponent = e - 1 + bias;
    if (exponent < 1)
        exponent = 1;
    double steps = nearbyint(ldexp(a, bias + mantissa_bits - exponent)); // ties to even
    // Steps of the format count on over the exponents: a carry out of the mantissa is right as it is.
    int64_t bits = (int64_t)steps + ((int64_t)(exponent - 1) << mantissa_bits);
    return (uint16_t)(sign | (bits > infinity ? infinity : (uint16_t)bits));
}

int64_t ref_ulps(bool f16, uint16_t a, uint16_t b)
{
    int64_t x = a & 0x7fff, y = b & 0x7fff;
    (void)f16;
    x = a & 0x8000 ? -x : x;
    y = b & 0x8000 ? -y : y;
    return x > y ? x - y : y - x;
}

// ---- the layer ----------------------------------------------------------------------------------------------------

enum { LANES = 16, ROWS = 4 };

// Dot products of x with ROWS rows at once; n of any size.
FAST static void dots(const double *restrict x, const double *restrict w, int64_t stride, int n, double out[ROWS])
{
    double acc[ROWS][LANES] = { { 0 } };
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int r = 0; r < ROWS; r++)
            for (int l = 0; l < LANES; l++)
                acc[r][l] += x[i + l] * w[r * stride + i + l];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int l = 0; l < LANES; l++)
            sum += acc[r][l];
        for (int j = i; j < n; j++)
            sum += x[j] * w[r * stride + j];
        out[r] = sum;
    }
}

static double silu(double a)
{
    return a / (1 + exp(-a));
}

static bool valid_id(const struct ref_layer *l, int32_t id)
{
    return id >= 0 && id < l->experts;
}

struct pick {        // one (token, choice) that an expert works on
    int token, slot; // token: index into the sample
    int64_t row;     // in h and d of the sample
};
struct work {
    const struct ref_layer *l;
    const int *tokens;
    int n;
    double *x, *h, *d, *y;
    struct pick *picks; // by expert
    int64_t *first;     // [experts + 1]
    int blocks;         // pieces of the output columns
    _Atomic bool failed;
};

static void decode_x(void *user, int64_t i)
{
    struct work *w = user;
    const uint16_t *x = w->l->x + (int64_t)w->tokens[i] * w->l->hidden;
    for (int k = 0; k < w->l->hidden; k++)
        w->x[i * w->l->hidden + k] = ref_value(w->l->f16, x[k]);
}

// One expert, one piece of the columns of h.
static void expert_h(void *user, int64_t item)
{
    struct work *w = user;
    const struct ref_layer *l = w->l;
    int e = (int)(item / w->blocks), b = (int)(item % w->blocks);
    int from = (int)((int64_t)l->ffn * b / w->blocks), to = (int)((int64_t)l->ffn * (b + 1) / w->blocks);
    double *rows = w->first[e] < w->first[e + 1] ? calloc((size_t)l->hidden * ROWS * 2, sizeof(double)) : NULL;
    if (!rows) {
        if (w->first[e] < w->first[e + 1])
            w->failed = true;
        return;
    }
    double *up_rows = rows + (int64_t)l->hidden * ROWS;
    for (int c = from; c < to; c += ROWS) {
        int m = to - c < ROWS ? to - c : ROWS;
        for (int r = 0; r < m; r++) {
            l->row(l->user, REF_GATE, e, c + r, rows + (int64_t)r * l->hidden);
            l->row(l->user, REF_UP, e, c + r, up_rows + (int64_t)r * l->hidden);
        }
        for (int64_t p = w->first[e]; p < w->first[e + 1]; p++) {
            const double *x = w->x + (int64_t)w->picks[p].token * l->hidden;
            double g[ROWS], u[ROWS];
            dots(x, rows, l->hidden, l->hidden, g);
            dots(x, up_rows, l->hidden, l->hidden, u);
            for (int r = 0; r < m; r++)
                w->h[w->picks[p].row * l->ffn + c + r] = silu(g[r]) * u[r];
        }
    }
    free(rows);
}

static void expert_d(void *user, int64_t item)
{
    struct work *w = user;
    const struct ref_layer *l = w->l;
    int e = (int)(item / w->blocks), b = (int)(item % w->blocks);
    int from = (int)((int64_t)l->hidden * b / w->blocks), to = (int)((int64_t)l->hidden * (b + 1) / w->blocks);
    double *rows = w->first[e] < w->first[e + 1] ? calloc((size_t)l->ffn * ROWS, sizeof(double)) : NULL;
    if (!rows) {
        if (w->first[e] < w->first[e + 1])
            w->failed = true;
        return;
    }
    for (int c = from; c < to; c += ROWS) {
        int m = to - c < ROWS ? to - c : ROWS;
        for (int r = 0; r < m; r++)
            l->row(l->user, REF_DOWN, e, c + r, rows + (int64_t)r * l->ffn);
        for (int64_t p = w->first[e]; p < w->first[e + 1]; p++) {
            double out[ROWS];
            dots(w->h + w->picks[p].row * l->ffn, rows, l->ffn, l->ffn, out);
            for (int r = 0; r < m; r++)
                w->d[w->picks[p].row * l->hidden + c + r] = out[r];
        }
    }
    free(rows);
}

static void combine_token(void *user, int64_t i)
{
    struct work *w = user;
    const struct ref_layer *l = w->l;
    double *y = w->y + i * l->hidden;
    memset(y, 0, (size_t)l->hidden * sizeof *y);
    for (int j = 0; j < l->topk; j++) {
        int64_t slot = (int64_t)w->tokens[i] * l->topk + j;
        if (!valid_id(l, l->ids[slot]))
            continue;
        const double *d = w->d + (i * l->topk + j) * l->hidden;
        for (int c = 0; c < l->hidden; c++)
            y[c] += (double)l->weights[slot] * d[c];
    }
}

static void sort_picks(struct work *w)
{
    const struct ref_layer *l = w->l;
    for (int pass = 0; pass < 2; pass++) { // count, then place
        if (pass)
            for (int e = 0; e < l->experts; e++)
                w->first[e + 1] += w->first[e];
        for (int i = w->n - 1; i >= 0; i--)
            for (int j = l->topk - 1; j >= 0; j--) {
                int32_t e = l->ids[(int64_t)w->tokens[i] * l->topk + j];
                if (!valid_id(l, e))
                    continue;
                if (!pass)
                    w->first[e + 1]++;
                else
                    w->picks[--w->first[e + 1]] = (struct pick){ i, j, (int64_t)i * l->topk + j };
            }
    }
    // first[e + 1] now holds the start of expert e: shift down.
    int64_t total = 0;
    for (int i = 0; i < w->n; i++)
        for (int j = 0; j < l->topk; j++)
            total += valid_id(l, l->ids[(int64_t)w->tokens[i] * l->topk + j]);
    for (int e = 0; e < l->experts; e++)
        w->first[e] = w->first[e + 1];
    w->first[l->experts] = total;
}

bool ref_tokens(const struct ref_layer *l, const int *tokens, int n, double *y)
{
    size_t rows = (size_t)n * (size_t)l->topk;
    struct work w = { .l = l, .tokens = tokens, .n = n, .y = y, .blocks = 16 };
    if (n == 0)
        return true;
    w.x = malloc((size_t)n * (size_t)l->hidden * sizeof(double));
    w.h = malloc(rows * (size_t)l->ffn * sizeof(double));
    w.d = malloc(rows * (size_t)l->hidden * sizeof(double));
    w.picks = malloc(rows * sizeof *w.picks);
    w.first = calloc((size_t)l->experts + 1, sizeof *w.first);
    bool ok = w.x && w.h && w.d && w.picks && w.first;
    if (ok) {
        sort_picks(&w);
        ref_parallel(n, decode_x, &w);
        ref_parallel((int64_t)l->experts * w.blocks, expert_h, &w);
        ref_parallel((int64_t)l->experts * w.blocks, expert_d, &w);
        ref_parallel(n, combine_token, &w);
    }
    free(w.x);
    free(w.h);
    free(w.d);
    free(w.picks);
    free(w.first);
    return ok && !w.failed;
}

// ---- routing and plan
// ----------------------------------------------------------------------------------------------

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

enum { EXPERTS_MAX = 4096 };

void ref_route(const struct ref_router *r, int token, int32_t *ids, double *weights, double *keys)
{
    double p[EXPERTS_MAX];
    bool taken[EXPERTS_MAX] = { false };
    scores(r, token, p);
    for (int j = 0; j < r->topk; j++) {
        int best = -1;
        for (int e = 0; e < r->experts; e++)
            if (!taken[e] && (best < 0 || key_of(r, p, e) > key_of(r, p, best)))
                best = e;
        taken[best] = true;
        ids[j] = best;
        if (keys)
            keys[j] = key_of(r, p, best);
    }
    weigh(r, p, ids, weights);
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

// ---- judging ------------------------------------------------------------------------------------------------------

// Verdicts are added up from threads.
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

static void say(struct ref_verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct ref_verdict *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!v->bad++)
        vsnprintf(v->first, sizeof v->first, fmt, ap);
    va_end(ap);
}

static void merge(struct ref_verdict *into, const struct ref_verdict *v)
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
            say(v, "%s[%" PRId64 ", %" PRId64 "] is %g, not %g", what, row, column, got, want);
        return;
    }
    v->worst = fmax(v->worst, error / bound);
    count_ulps(v, ref_ulps(f16, got_bits, ref_bits(f16, want)));
    if (!(error <= bound))
        say(v, "%s[%" PRId64 ", %" PRId64 "] is %.9g, not %.9g: off by %.3g, allowed %.3g", what, row, column, got,
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
    const struct ref_router *router;
    const struct ref_layer *l;
    const struct ref_plan *p;
    const int32_t *ids;
    const float *weights;
    const uint16_t *h, *d, *y;
    const double *want;
    const int *tokens;
    int columns;
    uint64_t seed;
    double limit;
    struct ref_verdict *v;
};

static void route_token(void *user, int64_t t)
{
    struct judging *j = user;
    const struct ref_router *r = j->router;
    struct ref_verdict v = { 0 };
    double p[EXPERTS_MAX], keys[64], weights[64], most = 0;
    int32_t best[64];
    const int32_t *ids = j->ids + t * r->topk;
    ref_route(r, (int)t, best, weights, keys);
    scores(r, (int)t, p);
    for (int i = 0; i < r->topk; i++)
        most = fmax(most, fabs(keys[i]));
    for (int i = 0; i < r->topk; i++) {
        v.checked += 2;
        if (ids[i] < 0 || ids[i] >= r->experts) {
            say(&v, "ids[%" PRId64 ", %d] is %" PRId32, t, i, ids[i]);
            merge(j->v, &v);
            return;
        }
        double key = key_of(r, p, ids[i]);
        for (int q = 0; q < i; q++)
            if (ids[q] == ids[i])
                say(&v, "ids[%" PRId64 "] has expert %" PRId32 " twice", t, ids[i]);
        v.near_ties += ids[i] != best[i];
        if (ids[i] != best[i] && (key == keys[i] || !(fabs(key - keys[i]) <= 4e-6 * most)))
            say(&v, "ids[%" PRId64 ", %d] is %" PRId32 " (score %.9g), not %" PRId32 " (%.9g)", t, i, ids[i], key,
                best[i], keys[i]);
    }
    weigh(r, p, ids, weights);
    for (int i = 0; i < r->topk; i++) {
        double got = (double)j->weights[t * r->topk + i], bound = 2e-5 * fabs(weights[i]) + 1e-8;
        v.worst = fmax(v.worst, fabs(got - weights[i]) / bound);
        if (!(fabs(got - weights[i]) <= bound))
            say(&v, "weights[%" PRId64 ", %d] is %.9g, not %.9g", t, i, got, weights[i]);
    }
    merge(j->v, &v);
}

void judge_route(const struct ref_router *r, const int32_t *ids, const float *weights, struct ref_verdict *v)
{
    struct judging j = { .router = r, .ids = ids, .weights = weights, .v = v };
    v->of += 2 * (int64_t)r->tokens * r->topk;
    ref_parallel(r->tokens, route_token, &j);
}

void judge_ints(const char *what, const int32_t *got, const int32_t *want, int64_t n, struct ref_verdict *v)
{
    v->of += n;
    v->checked += n;
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            say(v, "%s[%" PRId64 "] is %" PRId32 ", not %" PRId32, what, i, got[i], want[i]);
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
        double g = sum_products(x, w, l->hidden, &sg);
        l->row(l->user, REF_UP, e, c, w);
        double u = sum_products(x, w, l->hidden, &su), want = silu(g) * u;
        double bound =
            rounding(l->f16, want) + ldexp(1.1 * fabs(u) * sg + fabs(silu(g)) * su, -SUM_EPS_SHIFT) + 1e-6 * fabs(want);
        compare(&v, l->f16, j->h[row * l->ffn + c], want, bound, "h", row, c);
    }
    if (!x)
        say(&v, "out of memory");
    free(x);
    merge(j->v, &v);
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
        double want = sum_products(h, w, l->ffn, &magnitude);
        double bound = rounding(l->f16, want) + ldexp(magnitude, -SUM_EPS_SHIFT);
        compare(&v, l->f16, j->d[row * l->hidden + c], want, bound, "d", row, c);
    }
    if (!h)
        say(&v, "out of memory");
    free(h);
    merge(j->v, &v);
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
        double bound = rounding(l->f16, want) + ldexp(magnitude, -20);
        compare(&v, l->f16, j->y[t * l->hidden + c], want, bound, "y", t, c);
    }
    merge(j->v, &v);
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
        say(&v, "y[%d]: relative L2 error %.3e, allowed %.1e", j->tokens[i], v.rel_l2,
            j->limit * (1 + 2 / sqrt(l->hidden)));
    merge(j->v, &v);
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
            say(v, "%s[%" PRId64 ", %" PRId64 "] was %s", what, i / width, i % width,
                i / width < rows ? "not written" : "written, and is no row in use");
}
