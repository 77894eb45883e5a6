// The double-precision Mixture-of-Experts layer of ref_moe.h; ref_route.c routes and plans, ref_judge.c judges.
//
// Written from the definitions that the models' authors published, to be read and believed; only the dot products of
// ref_tokens() are arranged for speed. Shares no code with the compiler or the runtime.
#include "ref_inner.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
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

// a sigmoid(slope a)
static double swish(double a, double slope)
{
    return a / (1 + exp(-slope * a));
}

double ref_activate(const struct ref_layer *l, double g, double u)
{
    switch (l->activation) {
    case REF_SILU: return swish(g, 1) * u;
    // a / 2 (1 + tanh z), z = sqrt(2 / pi) (a + 0.044715 a^3), is a sigmoid(2 z)
    case REF_GELU: return g / (1 + exp(-2 * sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g))) * u;
    case REF_CLAMPED:
        g = g > l->limit ? l->limit : g;
        u = u > l->limit ? l->limit : u < -l->limit ? -l->limit : u;
        return swish(g, l->alpha) * (u + 1);
    }
    return (double)NAN;
}

double ref_bias(const struct ref_layer *l, enum ref_matrix which, int expert, int index)
{
    return l->bias ? l->bias(l->user, which, expert, index) : 0;
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
    double *up_rows = rows + (int64_t)l->hidden * ROWS, gate_bias[ROWS], up_bias[ROWS];
    for (int c = from; c < to; c += ROWS) {
        int m = to - c < ROWS ? to - c : ROWS;
        for (int r = 0; r < m; r++) {
            l->row(l->user, REF_GATE, e, c + r, rows + (int64_t)r * l->hidden);
            l->row(l->user, REF_UP, e, c + r, up_rows + (int64_t)r * l->hidden);
            gate_bias[r] = ref_bias(l, REF_GATE, e, c + r);
            up_bias[r] = ref_bias(l, REF_UP, e, c + r);
        }
        for (int64_t p = w->first[e]; p < w->first[e + 1]; p++) {
            const double *x = w->x + (int64_t)w->picks[p].token * l->hidden;
            double g[ROWS], u[ROWS];
            dots(x, rows, l->hidden, l->hidden, g);
            dots(x, up_rows, l->hidden, l->hidden, u);
            for (int r = 0; r < m; r++)
                w->h[w->picks[p].row * l->ffn + c + r] = ref_activate(l, g[r] + gate_bias[r], u[r] + up_bias[r]);
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
        double bias[ROWS];
        for (int r = 0; r < m; r++) {
            l->row(l->user, REF_DOWN, e, c + r, rows + (int64_t)r * l->ffn);
            bias[r] = ref_bias(l, REF_DOWN, e, c + r);
        }
        for (int64_t p = w->first[e]; p < w->first[e + 1]; p++) {
            double out[ROWS];
            dots(w->h + w->picks[p].row * l->ffn, rows, l->ffn, l->ffn, out);
            for (int r = 0; r < m; r++)
                w->d[w->picks[p].row * l->hidden + c + r] = out[r] + bias[r];
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
