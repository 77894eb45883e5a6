// The layouts below restate the vendors' tables, one function a family:
//   PTX ISA 9.0, "Warp-level matrix instructions" and "Asynchronous warpgroup level matrix instructions";
//   AMD Instinct MI300 (CDNA3) ISA, chapter 7 "Matrix Arithmetic Instructions", and the CDNA4 ISA's chapter of that
//   name.
#include "matrix.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// -O2 of GCC 12 leaves loops of unknown length scalar; the loops over whole matrices gain threefold from -O3.
#if defined(__GNUC__) && !defined(__clang__)
#define WHOLE_MATRIX __attribute__((optimize("O3")))
#else
#define WHOLE_MATRIX
#endif

enum {
    MAX_INPUT = 512,  // elements of the largest A or B: 32 x 16, 16 x 32
    MAX_OUTPUT = 1024 // of the largest D: 32 x 32
};

// PTX ISA, "Matrix Fragments for mma.m16n8k8" and "Matrix Fragments for mma.m16n8k16 with floating point type". With
// groupID = lane >> 2 and t = lane % 4:
//   A: row = groupID, + 8 for a2 a3 a6 a7;      column = 2 t + (i & 1), + 8 for a4..a7 (k8 has a0..a3 alone)
//   B: row = 2 t + (i & 1), + 8 for b2 b3;      column = groupID                       (k8 has b0 b1 alone)
//   C and D: row = groupID, + 8 for c2 c3;      column = 2 t + (i & 1)
static void mma_at(const struct matrix_op *op, enum matrix_operand which, int lane, int e, int *row, int *col)
{
    int group = lane >> 2, pair = 2 * (lane % 4) + (e & 1);

    (void)op;
    switch (which) {
    case MATRIX_A:
        *row = group + (e & 2 ? 8 : 0);
        *col = pair + (e & 4 ? 8 : 0);
        break;
    case MATRIX_B:
        *row = pair + (e & 2 ? 8 : 0);
        *col = group;
        break;
    case MATRIX_D:
        *row = group + (e & 2 ? 8 : 0);
        *col = pair;
        break;
    }
}

// CDNA3 ISA chapter 7, dense matrices of one block. Input: K_L = K / (64 / M) elements a lane; A[i][k] is item k % K_L
// of lane i + M (k / K_L), and B[k][j] that of lane j + N (k / K_L). Output: D[i][j] is item i % 4 + 4 (i / (4 M_I))
// of lane j + N ((i / 4) % M_I), where M_I = 64 / N lanes share a column. The CDNA4 ISA keeps the formulas and doubles
// K_L to 8.
static void mfma_at(const struct matrix_op *op, enum matrix_operand which, int lane, int e, int *row, int *col)
{
    int edge = op->m, along = lane % edge, part = lane / edge, parts = op->lanes / edge; // M is N in every row here

    switch (which) {
    case MATRIX_A:
        *row = along;
        *col = part * (op->k / parts) + e;
        break;
    case MATRIX_B:
        *row = part * (op->k / parts) + e;
        *col = along;
        break;
    case MATRIX_D:
        *row = e / 4 * (4 * parts) + part * 4 + e % 4;
        *col = along;
        break;
    }
}

// clang-format off
static const struct matrix_op rows[] = {
    // PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"
    { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 32, 16, 8, 16, MATRIX_BF16, 4, 2, 4, mma_at },
    { "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 32, 16, 8, 16, MATRIX_F16, 4, 2, 4, mma_at },
    // PTX ISA, "Matrix Fragments for mma.m16n8k8"
    { "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 32, 16, 8, 8, MATRIX_BF16, 2, 1, 4, mma_at },
    { "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 32, 16, 8, 8, MATRIX_F16, 2, 1, 4, mma_at },
    // CDNA3 ISA, chapter 7: V_MFMA_F32_32X32X8_BF16, _F16, V_MFMA_F32_16X16X16_BF16, _F16
    { "llvm.amdgcn.mfma.f32.32x32x8bf16.1k", 64, 32, 32, 8, MATRIX_BF16, 2, 2, 16, mfma_at },
    { "llvm.amdgcn.mfma.f32.32x32x8f16", 64, 32, 32, 8, MATRIX_F16, 2, 2, 16, mfma_at },
    { "llvm.amdgcn.mfma.f32.16x16x16bf16.1k", 64, 16, 16, 16, MATRIX_BF16, 2, 2, 4, mfma_at },
    { "llvm.amdgcn.mfma.f32.16x16x16f16", 64, 16, 16, 16, MATRIX_F16, 2, 2, 4, mfma_at },
    // CDNA4 ISA, matrix chapter: V_MFMA_F32_32X32X16_BF16, _F16, V_MFMA_F32_16X16X32_BF16, _F16
    { "llvm.amdgcn.mfma.f32.32x32x16.bf16", 64, 32, 32, 16, MATRIX_BF16, 4, 4, 16, mfma_at },
    { "llvm.amdgcn.mfma.f32.32x32x16.f16", 64, 32, 32, 16, MATRIX_F16, 4, 4, 16, mfma_at },
    { "llvm.amdgcn.mfma.f32.16x16x32.bf16", 64, 16, 16, 32, MATRIX_BF16, 4, 4, 4, mfma_at },
    { "llvm.amdgcn.mfma.f32.16x16x32.f16", 64, 16, 16, 32, MATRIX_F16, 4, 4, 4, mfma_at },
};
// clang-format on
enum { ROWS = sizeof rows / sizeof *rows };

// For every element of the registers, in their order, its place in the row-major matrix. The rows have fragments
// without duplicates, so that a table is a permutation.
static struct places {
    uint16_t a[MAX_INPUT], b[MAX_INPUT], d[MAX_OUTPUT];
} places[ROWS];
static pthread_once_t places_once = PTHREAD_ONCE_INIT;

static void place(const struct matrix_op *op, enum matrix_operand which, int elements, int columns, uint16_t *table)
{
    for (int lane = 0; lane < op->lanes; lane++) {
        for (int e = 0; e < elements; e++) {
            int row, col;

            op->at(op, which, lane, e, &row, &col);
            table[lane * elements + e] = (uint16_t)(row * columns + col);
        }
    }
}

static void place_all(void)
{
    for (int i = 0; i < ROWS; i++) {
        place(&rows[i], MATRIX_A, 2 * rows[i].a_words, rows[i].k, places[i].a);
        place(&rows[i], MATRIX_B, 2 * rows[i].b_words, rows[i].n, places[i].b);
        place(&rows[i], MATRIX_D, rows[i].d_words, rows[i].n, places[i].d);
    }
}

const struct matrix_op *matrix_row(int i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

const struct matrix_op *matrix_find(const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

static float as_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t as_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Without branches, for the vectoriser. Subnormals keep their value: neither manual has these instructions flush them.
static inline float bf16_value(uint32_t half)
{
    return as_float(half << 16);
}

static inline float f16_value(uint32_t half)
{
    uint32_t magnitude = half & 0x7fff, rebias = 112u << 23; // 127 - 15
    uint32_t subnormal = as_bits((float)(int)magnitude * 0x1p-24f), is_subnormal = -(uint32_t)(magnitude < 0x400);
    uint32_t normal =
        (magnitude << 13) + rebias + (rebias & -(uint32_t)(magnitude >= 0x7c00)); // Inf, NaN: exponent 255

    return as_float((subnormal & is_subnormal) | (normal & ~is_subnormal) | (half & 0x8000) << 16);
}

WHOLE_MATRIX static void decode(enum matrix_type type, const uint32_t *restrict words, int count, float *restrict out)
{
    if (type == MATRIX_BF16) {
        for (int i = 0; i < count; i++) {
            out[2 * i] = bf16_value(words[i] & 0xffff);
            out[2 * i + 1] = bf16_value(words[i] >> 16);
        }
    } else {
        for (int i = 0; i < count; i++) {
            out[2 * i] = f16_value(words[i] & 0xffff);
            out[2 * i + 1] = f16_value(words[i] >> 16);
        }
    }
}

// sum += a x b. Two 16-bit factors multiply exactly in double. Four k at a time (every k here is a multiple of 4) spare
// loads and stores of the sums; their order stays.
WHOLE_MATRIX static void multiply(int m, int n, int k, const double *restrict a, const double *restrict b,
                                  double *restrict sum)
{
    for (int i = 0; i < m; i++) {
        for (int l = 0; l < k; l += 4) {
            const double *x = a + i * k + l, *y = b + l * n;

            for (int j = 0; j < n; j++)
                sum[i * n + j] =
                    sum[i * n + j] + x[0] * y[j] + x[1] * y[n + j] + x[2] * y[2 * n + j] + x[3] * y[3 * n + j];
        }
    }
}

// Which NaN comes out is the vendors' choice and differs between host instructions too: always PTX's canonical one.
static inline uint32_t encode(double value)
{
    uint32_t bits = as_bits((float)value);

    return value != value ? 0x7fffffffu : bits;
}

WHOLE_MATRIX static void encode_all(const double *restrict values, int count, uint32_t *restrict out)
{
    for (int i = 0; i < count; i++)
        out[i] = encode(values[i]);
}

void matrix_run(const struct matrix_op *op, const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d)
{
    const struct places *to = &places[op - rows]; // matrix_find and matrix_row give nothing but rows
    int a_words = op->lanes * op->a_words, b_words = op->lanes * op->b_words, d_words = op->lanes * op->d_words;
    float values[MAX_INPUT];
    double da[MAX_INPUT], db[MAX_INPUT], sum[MAX_OUTPUT];
    uint32_t rounded[MAX_OUTPUT];

    pthread_once(&places_once, place_all);
    decode(op->in, a, a_words, values);
    for (int i = 0; i < 2 * a_words; i++)
        da[to->a[i]] = values[i];
    decode(op->in, b, b_words, values);
    for (int i = 0; i < 2 * b_words; i++)
        db[to->b[i]] = values[i];
    for (int i = 0; i < d_words; i++)
        sum[to->d[i]] = as_float(c[i]);
    multiply(op->m, op->n, op->k, da, db, sum);
    encode_all(sum, d_words, rounded);
    for (int i = 0; i < d_words; i++)
        d[i] = rounded[to->d[i]];
}

static bool all_finite(enum matrix_type type, const uint16_t *v, int n)
{
    uint16_t most = type == MATRIX_BF16 ? 0x7f80 : 0x7c00;
    for (int i = 0; i < n; i++)
        if ((v[i] & most) == most)
            return false;
    return true;
}

void matrix_run_as(const struct matrix_op *op, const struct matrix_sum *how, const uint32_t *a, const uint32_t *b,
                   const uint32_t *c, uint32_t *d)
{
    uint16_t da[MAX_INPUT], db[MAX_INPUT];
    uint32_t sum[MAX_OUTPUT];
    int a_words = op->lanes * op->a_words, b_words = op->lanes * op->b_words, d_words = op->lanes * op->d_words;
    bool finite = how != NULL;

    pthread_once(&places_once, place_all);
    const struct places *to = &places[op - rows];
    for (int i = 0; finite && i < 2 * a_words; i++)
        da[to->a[i]] = (uint16_t)(a[i / 2] >> 16 * (i & 1));
    for (int i = 0; finite && i < 2 * b_words; i++)
        db[to->b[i]] = (uint16_t)(b[i / 2] >> 16 * (i & 1));
    finite = finite && all_finite(op->in, da, 2 * a_words) && all_finite(op->in, db, 2 * b_words);
    for (int i = 0; finite && i < d_words; i++) {
        sum[to->d[i]] = c[i];
        finite = (c[i] & 0x7f800000) != 0x7f800000;
    }
    if (!finite) {
        matrix_run(op, a, b, c, d);
        return;
    }
    matrix_sum_run(how, op->in, op->m, op->n, op->k, da, db, sum);
    for (int i = 0; i < d_words; i++)
        d[i] = sum[to->d[i]];
}

// PTX ISA, "Matrix-descriptor format" of wgmma: bits 13-0 start address, 29-16 leading dimension byte offset, 45-32
// stride dimension byte offset, each without its four low bits; 51-49 base offset; 63-62 swizzle: 0 none, 1 128, 2 64,
// 3 32 bytes.
struct descriptor {
    uint32_t start, leading, stride, base;
    int width; // of the swizzle, bytes
};

static bool read_descriptor(char operand, uint64_t bits, struct descriptor *out, char why[128])
{
    static const int widths[4] = { 0, 128, 64, 32 };
    uint64_t used =
        UINT64_C(0x3fff) | UINT64_C(0x3fff) << 16 | UINT64_C(0x3fff) << 32 | UINT64_C(7) << 49 | UINT64_C(3) << 62;

    *out = (struct descriptor){ .start = (uint32_t)(bits & 0x3fff) << 4,
                                .leading = (uint32_t)(bits >> 16 & 0x3fff) << 4,
                                .stride = (uint32_t)(bits >> 32 & 0x3fff) << 4,
                                .base = (uint32_t)(bits >> 49 & 7),
                                .width = widths[bits >> 62] };
    if (bits & ~used) {
        snprintf(why, 128, "descriptor of %c 0x%016llx: bits outside of its fields are set: 0x%016llx", operand,
                 (unsigned long long)bits, (unsigned long long)(bits & ~used));
        return false;
    }
    if (out->base && !out->width) {
        snprintf(why, 128, "descriptor of %c 0x%016llx: a base offset (%u) without swizzle", operand,
                 (unsigned long long)bits, (unsigned)out->base);
        return false;
    }
    return true;
}

// PTX ISA, "Strides" of the shared memory matrix layout: where the 16 bytes lie that hold 8 elements of a K-major
// operand's row (mn: the row, k: which 8 of the 16 along K) or of an MN-major operand's (mn: which 8 along M or N, k:
// 0..15).
//   K-major: 8 rows follow each other, then comes the stride; without swizzle the leading offset parts the halves of
//   K, with it they are neighbours in the row.
//   MN-major: with swizzle a row of the pattern holds 16, 32 or 64 elements along MN, the leading offset leads to the
//   next such rows and the stride from 8 K to the next 8; without swizzle the two offsets change their parts.
static uint32_t chunk_offset(const struct descriptor *s, bool mn_major, uint32_t mn, uint32_t k)
{
    uint32_t line = s->width ? (uint32_t)s->width : 16, chunks = line / 16;

    if (!mn_major)
        return mn % 8 * line + mn / 8 * s->stride + k * (s->width ? 16 : s->leading);
    if (!s->width)
        return mn * s->stride + k % 8 * 16 + k / 8 * s->leading;
    return mn % chunks * 16 + mn / chunks * s->leading + k % 8 * line + k / 8 * s->stride;
}

// CUDA programming guide, "Tensor memory swizzle modes": 16-byte chunks change places inside lines of 128 bytes; their
// number is combined with that of the line, so that the pattern repeats after 256, 512 or 1024 bytes. `base` is the
// line at which a pattern starts that does not start at such a multiple (PTX ISA, "base offset"). The manual leaves
// open that it is subtracted; an H200 does so, and agrees with chunk_offset for random descriptors of every kind.
static uint32_t swizzle_from(int width, uint32_t base, uint32_t address)
{
    return width < 32 ? address : address ^ ((((address >> 7) - base) & (uint32_t)(width / 16 - 1)) << 4);
}

uint32_t smem_swizzle(int width, uint32_t address)
{
    return swizzle_from(width, 0, address);
}

struct shared {
    const uint8_t *memory;
    size_t bytes;
    wgmma_touch *touch;
    void *user;
};

// The operand as a matrix of `mn` rows of 16, or its transpose: element (row i, k) goes to i * row_step + k * k_step.
static bool read_operand(const struct shared *from, char operand, uint64_t bits, enum matrix_type type, bool mn_major,
                         int mn, int row_step, int k_step, double *out, char why[128])
{
    struct descriptor s;

    if (!read_descriptor(operand, bits, &s, why))
        return false;
    for (int i = 0; i < mn * 2; i++) { // 16 mn elements in chunks of 8
        int row = mn_major ? i % (mn / 8) : i / 2, k = mn_major ? i / (mn / 8) : i % 2;
        uint32_t address = s.start + chunk_offset(&s, mn_major, (uint32_t)row, (uint32_t)k);
        uint32_t at = swizzle_from(s.width, s.base, address);
        double *to = !out ? NULL : out + (mn_major ? row * 8 * row_step + k * k_step : row * row_step + k * 8 * k_step);
        int step = mn_major ? row_step : k_step;

        if ((size_t)at + 16 > from->bytes) {
            snprintf(why, 128, "descriptor of %c 0x%016llx: bytes %u..%u are past the shared memory of %zu", operand,
                     (unsigned long long)bits, (unsigned)at, (unsigned)at + 15, from->bytes);
            return false;
        }
        if (from->touch)
            from->touch(from->user, at, 16);
        if (!out)
            continue;
        for (int e = 0; e < 8; e++) {
            uint32_t half = from->memory[at + 2 * (uint32_t)e] | (uint32_t)from->memory[at + 2 * (uint32_t)e + 1] << 8;

            to[e * step] = type == MATRIX_BF16 ? bf16_value(half) : f16_value(half);
        }
    }
    return true;
}

// PTX ISA, "Register fragments" of wgmma: warp w of the four has rows 16 w to 16 w + 15. A: as mma.m16n8k16. D:
// element d_i lies at row groupID + 8 for i & 2, column 8 (i / 4) + 2 t + (i & 1).
static void read_fragment(const uint32_t *regs, enum matrix_type type, double *a)
{
    float values[128 * 8];

    decode(type, regs, 128 * 4, values);
    for (int i = 0; i < 128 * 8; i++) {
        int thread = i / 8, row, col;

        mma_at(NULL, MATRIX_A, thread % 32, i % 8, &row, &col);
        a[(thread / 32 * 16 + row) * 16 + col] = values[i];
    }
}

// One warp's sixteen rows at a time: the stack stays small for every n.
static void run_warp(const struct wgmma *w, const double *a, const double *b, uint32_t *d)
{
    double sum[16 * 256];
    int to[32][4], n = w->n;

    for (int i = 0; i < 32 * 4; i++) {
        int row, col;

        mma_at(NULL, MATRIX_D, i / 4, i % 4, &row, &col);
        to[i / 4][i % 4] = row * n + col;
    }
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < n / 2; i++)
            sum[to[lane][i % 4] + i / 4 * 8] = w->scale_d ? as_float(d[lane * (n / 2) + i]) : 0;
    }
    multiply(16, n, 16, a, b, sum);
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < n / 2; i++)
            d[lane * (n / 2) + i] = encode(sum[to[lane][i % 4] + i / 4 * 8]);
    }
}

static bool check_wgmma(const struct wgmma *w, char why[128])
{
    if (w->n < 8 || w->n > 256 || w->n % 8)
        snprintf(why, 128, "wgmma: n is %d, not a multiple of 8 from 8 to 256", w->n);
    else if (w->in != MATRIX_F16 && w->in != MATRIX_BF16)
        snprintf(why, 128, "wgmma: the operands are neither f16 nor bf16");
    else if ((w->scale_a != 1 && w->scale_a != -1) || (w->scale_b != 1 && w->scale_b != -1))
        snprintf(why, 128, "wgmma: scales of %d and %d, not 1 or -1", w->scale_a, w->scale_b);
    else if (w->trans_a && !w->a_shared)
        snprintf(why, 128, "wgmma: A from registers cannot be transposed");
    else
        return true;
    return false;
}

bool wgmma_reads(const struct wgmma *w, size_t bytes, uint64_t a_desc, uint64_t b_desc, wgmma_touch *touch, void *user,
                 char why[128])
{
    struct shared from = { NULL, bytes, touch, user };

    return check_wgmma(w, why) &&
           (!w->a_shared || read_operand(&from, 'A', a_desc, w->in, w->trans_a, 64, 16, 1, NULL, why)) &&
           read_operand(&from, 'B', b_desc, w->in, w->trans_b, w->n, 1, w->n, NULL, why);
}

bool wgmma_run(const struct wgmma *w, const uint8_t *shared, size_t bytes, const uint32_t *a_regs, uint64_t a_desc,
               uint64_t b_desc, uint32_t *d, wgmma_touch *touch, void *user, char why[128])
{
    struct shared from = { shared, bytes, touch, user };
    double a[64 * 16], b[16 * 256];

    if (!check_wgmma(w, why))
        return false;
    if (!w->a_shared)
        read_fragment(a_regs, w->in, a);
    else if (!read_operand(&from, 'A', a_desc, w->in, w->trans_a, 64, 16, 1, a, why))
        return false;
    if (!read_operand(&from, 'B', b_desc, w->in, w->trans_b, w->n, 1, w->n, b, why))
        return false;
    for (int i = 0; i < 64 * 16; i++)
        a[i] *= w->scale_a * w->scale_b; // both negate the products
    for (int warp = 0; warp < 4; warp++)
        run_warp(w, a + warp * 16 * 16, b, d + (size_t)warp * 32 * (size_t)(w->n / 2));
    return true;
}

// PTX ISA, "ldmatrix": thread l gets from each 8 x 8 matrix elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; with
// .trans, of column l / 4. "stmatrix" has the same table.
static void pair_places(bool trans, int lane, int row[2], int col[2])
{
    for (int half = 0; half < 2; half++) {
        int across = lane / 4, along = 2 * (lane % 4) + half;

        row[half] = trans ? along : across;
        col[half] = trans ? across : along;
    }
}

void ldmatrix_run(int count, bool trans, const uint8_t *const *addresses, uint32_t *regs)
{
    for (int lane = 0; lane < 32; lane++) {
        int row[2], col[2];

        pair_places(trans, lane, row, col);
        for (int i = 0; i < count; i++) {
            const uint8_t *low = addresses[8 * i + row[0]] + 2 * col[0], *high = addresses[8 * i + row[1]] + 2 * col[1];

            regs[lane * count + i] = low[0] | (uint32_t)low[1] << 8 | (uint32_t)high[0] << 16 | (uint32_t)high[1] << 24;
        }
    }
}

void stmatrix_run(int count, bool trans, uint8_t *const *addresses, const uint32_t *regs)
{
    for (int lane = 0; lane < 32; lane++) {
        int row[2], col[2];

        pair_places(trans, lane, row, col);
        for (int i = 0; i < count; i++) {
            for (int half = 0; half < 2; half++) {
                uint8_t *to = addresses[8 * i + row[half]] + 2 * col[half];
                uint32_t value = regs[lane * count + i] >> 16 * half;

                to[0] = (uint8_t)value;
                to[1] = (uint8_t)(value >> 8);
            }
        }
    }
}
