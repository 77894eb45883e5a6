// Random numbers by counter: element i of a tensor is a function of (seed, tensor, i), so that weights of many GB
// need no copy on the host. Normal values come from a table of 65536 quantiles, picked by 16 bits of a hash.
#include "moerun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    return mix(mix(seed * 0x9e3779b97f4a7c15u + stream + 1) + index * 0x9e3779b97f4a7c15u);
}

double random_unit(uint64_t seed, uint64_t stream, uint64_t index)
{
    return ((double)(random_bits(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
}

// The standard normal quantile of p, by Newton's method on erfc from the quantile before.
static double quantile(double p, double start)
{
    double x = start;
    for (int i = 0; i < 60; i++) {
        double f = 0.5 * erfc(-x / sqrt(2)) - p, slope = exp(-x * x / 2) / sqrt(2 * acos(-1));
        double step = f / slope;
        if (fabs(step) > 0.5)
            step = step > 0 ? 0.5 : -0.5;
        x -= step;
        if (fabs(step) < 1e-12)
            break;
    }
    return x;
}

enum { QUANTILES = 65536 };

bool normal_init(struct normal *g, uint64_t seed, int tensor, double sigma, bool f16)
{
    double x = 0;
    *g = (struct normal){ .key = random_bits(seed, 1000, (uint64_t)tensor), .f16 = f16 };
    g->bits = malloc(QUANTILES * sizeof *g->bits);
    g->values = malloc(QUANTILES * sizeof *g->values);
    if (!g->bits || !g->values) {
        normal_free(g);
        return report(EXIT_INTERNAL, "out of memory");
    }
    for (int i = 0; i < QUANTILES / 2; i++) { // the upper half; the lower is its mirror
        x = quantile((QUANTILES / 2 + i + 0.5) / QUANTILES, x);
        for (int side = 0; side < 2; side++) {
            int at = side ? QUANTILES / 2 - 1 - i : QUANTILES / 2 + i;
            g->bits[at] = ref_bits(f16, side ? -x * sigma : x * sigma);
            g->values[at] = ref_value(f16, g->bits[at]);
        }
    }
    return true;
}

void normal_free(struct normal *g)
{
    free(g->bits);
    free(g->values);
    g->bits = NULL;
    g->values = NULL;
}

// Four elements take their 16 bits from one hash.
static uint64_t four(const struct normal *g, int64_t i)
{
    return mix(g->key + (uint64_t)(i >> 2) * 0x9e3779b97f4a7c15u);
}

static unsigned pick(const struct normal *g, int64_t i)
{
    return (unsigned)(four(g, i) >> 16 * (i & 3)) & 0xffff;
}

void normal_bits(const struct normal *g, int64_t first, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i < n && ((first + i) & 3); i++)
        out[i] = g->bits[pick(g, first + i)];
    for (; i + 4 <= n; i += 4) {
        uint64_t h = four(g, first + i);
        out[i] = g->bits[h & 0xffff];
        out[i + 1] = g->bits[h >> 16 & 0xffff];
        out[i + 2] = g->bits[h >> 32 & 0xffff];
        out[i + 3] = g->bits[h >> 48];
    }
    for (; i < n; i++)
        out[i] = g->bits[pick(g, first + i)];
}

void normal_values(const struct normal *g, int64_t first, int64_t n, double *out)
{
    int64_t i = 0;
    for (; i < n && ((first + i) & 3); i++)
        out[i] = g->values[pick(g, first + i)];
    for (; i + 4 <= n; i += 4) {
        uint64_t h = four(g, first + i);
        out[i] = g->values[h & 0xffff];
        out[i + 1] = g->values[h >> 16 & 0xffff];
        out[i + 2] = g->values[h >> 32 & 0xffff];
        out[i + 3] = g->values[h >> 48];
    }
    for (; i < n; i++)
        out[i] = g->values[pick(g, first + i)];
}

enum { PIECE = 1 << 18 };
struct filling {
    const struct normal *g;
    int64_t first, n;
    uint16_t *out;
};

static void fill_piece(void *user, int64_t i)
{
    struct filling *f = user;
    int64_t at = i * PIECE, n = f->n - at < PIECE ? f->n - at : PIECE;
    normal_bits(f->g, f->first + at, n, f->out + at);
}

void normal_fill(const struct normal *g, int64_t first, int64_t n, uint16_t *out)
{
    struct filling f = { g, first, n, out };
    ref_parallel((n + PIECE - 1) / PIECE, fill_piece, &f);
}

// Any change of any byte changes it: each step is a bijection of the state.
uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0x243f6a8885a308d3u, word;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&word, s, 8);
        h = mix((h ^ word) + 0x9e3779b97f4a7c15u);
    }
    for (; n; n--)
        h = mix((h ^ *s++) + 0x9e3779b97f4a7c15u);
    return h;
}
