// Sums as an H200's matrix unit forms them. golden/mma_h200.bin: what the card gave (2026-12) for 12 products of each kind with
// normal random factors, spread over 1, 7, 13 and 21 powers of two, and accumulators of 0, 1 and 64 times that size. A record is
// a[32][4], b[32][2], c[32][4], d[32][4] words; the k of 8 use the first half of a and b.
#include "../runtime/sim/matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
};
struct record {
    uint32_t a[32][4], b[32][2], c[32][4], d[32][4];
};
enum { EACH = 12 };

static int differing(const struct matrix_op *op, const struct matrix_sum *how, const struct record *r)
{
    uint32_t a[32 * 4], b[32 * 2], d[32 * 4];
    int bad = 0;
    for (int l = 0; l < 32; l++) {
        memcpy(a + l * op->a_words, r->a[l], sizeof *a * (size_t)op->a_words);
        memcpy(b + l * op->b_words, r->b[l], sizeof *b * (size_t)op->b_words);
    }
    matrix_run_as(op, how, a, b, &r->c[0][0], d);
    for (int i = 0; i < 128; i++)
        bad += d[i] != (&r->d[0][0])[i];
    return bad;
}

static int all_differing(const struct matrix_sum *how)
{
    struct record r;
    FILE *f = fopen("tests/golden/mma_h200.bin", "rb");
    int bad = 0;
    assert_non_null(f);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < EACH; i++) {
            assert_int_equal(fread(&r, sizeof r, 1, f), 1);
            bad += differing(matrix_find(names[t]), how, &r);
        }
    fclose(f);
    return bad;
}

static void equals_the_card(void **state)
{
    (void)state;
    assert_int_equal(all_differing(&(struct matrix_sum){ 16, 25 }), 0);
}

// The vectors tell the models apart.
static void others_do_not(void **state)
{
    static const struct matrix_sum other[] = { { 8, 25 }, { 4, 25 }, { 16, 24 }, { 16, 26 }, { 8, 24 } };
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_true(all_differing(&other[i]) > 50);
    assert_true(all_differing(NULL) > 500); // one rounding of the exact sum is not what the card does
}

static float one(double a0, double b0, double a1, double b1, float c)
{
    const struct matrix_op *op = matrix_find(names[0]);
    uint32_t a[128] = { 0 }, b[64] = { 0 }, d[128] = { 0 };
    float v[4] = { (float)a0, (float)b0, (float)a1, (float)b1 };
    uint32_t u[4];
    memcpy(u, v, sizeof u);
    a[0] = u[0] >> 16 | (u[2] >> 16 << 16); // row 0, k 0 and 1
    b[0] = u[1] >> 16 | (u[3] >> 16 << 16); // column 0
    memcpy(&d[0], &c, 4);
    matrix_run_as(op, &(struct matrix_sum){ 16, 25 }, a, b, d, d);
    memcpy(&c, &d[0], 4);
    return c;
}

static void edges(void **state)
{
    (void)state;
    assert_true(one(0, 0, 0, 0, 3.5f) == 3.5f);
    assert_true(one(3, 5, -1, 7, 0) == 8);
    assert_true(one(1, 1, 0, 0, -0x1p-24f) == 1 - 0x1p-24f); // within the 25 places
    assert_true(one(1, 1, 0, 0, 0x1p-26f) == 1);             // beyond
    assert_true(one(1, 1, 0, 0, -0x1p-26f) == 1);            // cut towards zero before the sum
    assert_true(isinf(one(0x1p127, 4, 0, 0, 0)));
    assert_true(isnan(one((double)NAN, 1, 0, 0, 0)));
    assert_true(isnan(one((double)INFINITY, 1, (double)-INFINITY, 1, 0)));
    assert_true(one(0x1p-70, 0x1p-70, 0, 0, 0) == 0x1p-140f); // subnormal
    assert_true(one(0x1p-126, 0x1p-100, 0, 0, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_card),
        cmocka_unit_test(others_do_not),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
