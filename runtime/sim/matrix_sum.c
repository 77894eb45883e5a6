// Sums as the vendor's matrix unit forms them, where that is known. NVIDIA's manuals leave order and width open; what is here reproduces
// an H200 bit for bit (tests/test_matrix.c holds results of that card): the products of a block of k and the accumulator are
// aligned to the largest exponent among them, each cut off (towards zero) `bits` places below it, added exactly, and the sum is cut off
// to f32. Exponents of products are sums of the factors' exponents, not normalised; zeros do not count.
#include "matrix.h"

#include <math.h>
#include <string.h>

enum { NONE = -8000, MAX_N = 256, MAX_K = 32, MAX_M = 64 };

// These loops run over columns and are worth wide registers (GCC's -O2 does not try).
#if defined(__GNUC__) && !defined(__clang__)
#define COLUMNS __attribute__((optimize("O3")))
#else
#define COLUMNS
#endif
#define INLINE __attribute__((always_inline)) COLUMNS static inline

static double as_double(uint64_t u)
{
    union {
        uint64_t u;
        double d;
    } v = { u };
    return v.d;
}
static float as_float(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = { u };
    return v.f;
}
static uint32_t float_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { f };
    return v.u;
}

// Value, and exponent as its format counts it: that of subnormal numbers is the least normal one; NONE for zero.
static double half_value(enum matrix_type type, uint32_t h, int16_t *exponent)
{
    int places = type == MATRIX_BF16 ? 7 : 10, bias = type == MATRIX_BF16 ? 127 : 15;
    int e = (int)(h >> places) & (2 * bias + 1), m = (int)h & ((1 << places) - 1);
    int unit = (e ? e : 1) - bias;
    double v = (e ? m | 1 << places : m) * as_double((uint64_t)(1023 + unit - places) << 52);
    *exponent = (int16_t)(v != 0 ? unit : NONE);
    return h >> 15 & 1 ? -v : v;
}

static int16_t float_exponent(uint32_t u)
{
    int e = (int)(u >> 23) & 255;
    return (int16_t)(u << 1 ? (e ? e : 1) - 127 : NONE);
}

struct row { // of one block of k; n columns
    int k;
    const double *a, *b; // [k], [k, n]
    const int16_t *ea, *eb;
    uint32_t *d;
};

INLINE void largest(const struct row *r, int n, int16_t *restrict most)
{
    for (int j = 0; j < n; j++)
        most[j] = float_exponent(r->d[j]);
    for (int k = 0; k < r->k; k++) {
        const int16_t *restrict eb = r->eb + k * n;
        int16_t e = r->ea[k];
        for (int j = 0; j < n; j++) {
            int16_t s = (int16_t)(e + eb[j]);
            most[j] = s > most[j] ? s : most[j];
        }
    }
}

// Each term, in units of 2^(most - bits), is below 2^(bits + 2) and cut off by the conversion to an integer.
INLINE void add_terms(const struct row *r, int n, const double *restrict scale, double *restrict sum)
{
    for (int j = 0; j < n; j++)
        sum[j] = (double)(int32_t)((double)as_float(r->d[j]) * scale[j]);
    for (int k = 0; k < r->k; k++) {
        const double *restrict b = r->b + k * n;
        double a = r->a[k];
        for (int j = 0; j < n; j++)
            sum[j] += (double)(int32_t)(a * b[j] * scale[j]);
    }
}

// A number with 24 places at most -> f32; where it is subnormal the places below 2^-149 are cut off too.
static uint32_t to_float(double v)
{
    if (fabs(v) < 0x1p-126)
        v = trunc(v * 0x1p149) * 0x1p-149;
    return v == 0 ? 0 : float_bits((float)v);
}

INLINE void run_row(const struct row *r, int n, int bits)
{
    int16_t most[MAX_N];
    double scale[MAX_N], sum[MAX_N];
    largest(r, n, most);
    for (int j = 0; j < n; j++)
        scale[j] = most[j] < NONE / 2 ? 1 : as_double((uint64_t)(1023 + bits - most[j]) << 52);
    add_terms(r, n, scale, sum);
    for (int j = 0; j < n; j++) {
        union {
            double d;
            uint64_t u;
        } v = { sum[j] };
        v.u &= ~(uint64_t)0x1fffffff; // 24 significant places
        r->d[j] = most[j] < NONE / 2 ? 0 : to_float(v.d / scale[j]);
    }
}

COLUMNS static void run_row_8(const struct row *r, int bits)
{
    run_row(r, 8, bits);
}
COLUMNS static void run_row_n(const struct row *r, int n, int bits)
{
    run_row(r, n, bits);
}

static bool zeros(const int16_t *e, int n)
{
    for (int i = 0; i < n; i++)
        if (e[i] != NONE)
            return false;
    return true;
}

void matrix_sum_run(const struct matrix_sum *how, enum matrix_type type, int m, int n, int k, const uint16_t *a,
                    const uint16_t *b, uint32_t *d)
{
    double x[MAX_M * MAX_K], y[MAX_K * MAX_N];
    int16_t ex[MAX_M * MAX_K], ey[MAX_K * MAX_N];
    int block = how->block < k ? how->block : k;
    for (int i = 0; i < m * k; i++)
        x[i] = half_value(type, a[i], &ex[i]);
    for (int i = 0; i < k * n; i++)
        y[i] = half_value(type, b[i], &ey[i]);
    for (int i = 0; i < m; i++)
        for (int l = 0; l < k; l += block) {
            struct row r = { block, x + i * k + l, y + l * n, ex + i * k + l, ey + l * n, d + i * n };
            if (zeros(r.ea, block)) { // rows beyond a ragged end; -0 + 0 is 0
                for (int j = 0; j < n; j++)
                    r.d[j] = r.d[j] == 0x80000000u ? 0 : r.d[j];
                continue;
            }
            if (n == 8)
                run_row_8(&r, how->bits);
            else
                run_row_n(&r, n, how->bits);
        }
}
