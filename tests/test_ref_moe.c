// tests/ref_moe.c: numbers, routing, plan and layer by hand; and the judges: right results pass, every kind of damage
// fails. A judge that lets zeros pass would fail here.
#include "ref_moe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    T = 37,
    E = 8,
    K = 2,
    H = 64,
    I = 96,
    S = T * K,
    BLOCK = 16,
    CHUNK = 32,
    C = (S + CHUNK - 1) / CHUNK,
    N = E + S / BLOCK
};

static struct world { // one layer, and what an honest 16-bit implementation makes of it
    uint16_t x[T * H], w[3][E * I * H], h[S * I], d[S * H], y[T * H];
    float logits[T * E], bias[E], weights[S];
    int32_t chosen[S]; // by the router; ids: with one slot taken out
    int32_t ids[S], counts[C * E], slot_row[S], row_token[S], tiles[N * 4], row_expert[S];
    double want[T * H];
    int tokens[T];
} w0, w1; // w0: right; w1: a copy to damage
static struct ref_layer layer = {
    .tokens = T, .experts = E, .topk = K, .hidden = H, .ffn = I, .x = w0.x, .ids = w0.ids, .weights = w0.weights
};
static struct ref_router router = {
    .tokens = T, .experts = E, .topk = K, .renorm = true, .scale = 1, .logits = w0.logits, .bias = w0.bias
};
static struct ref_plan plan = { .slots = S,
                                .chunks = C,
                                .entries = N,
                                .experts = E,
                                .topk = K,
                                .chunk = CHUNK,
                                .block = BLOCK,
                                .counts = w0.counts,
                                .slot_row = w0.slot_row,
                                .row_token = w0.row_token,
                                .tiles = w0.tiles,
                                .row_expert = w0.row_expert };

static double uniform(uint64_t *s) // -1 .. 1
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*s >> 11 << 11) * 0x1p-63;
}

static double weight(enum ref_matrix which, int e, int row, int column)
{
    int rows = which == REF_DOWN ? H : I, width = which == REF_DOWN ? I : H;
    return ref_value(false, w0.w[which][(e * rows + row) * width + column]);
}

static void row_of(void *user, enum ref_matrix which, int e, int index, double *out)
{
    (void)user;
    for (int i = 0; i < (which == REF_DOWN ? I : H); i++)
        out[i] = weight(which, e, index, i);
}

static double bias_of(void *user, enum ref_matrix which, int e, int index) // -0.7 .. 0.7
{
    (void)user;
    return (((int)which * 31 + e * 17 + index * 7) % 15 - 7) / 10.;
}

static float bias(enum ref_matrix which, int e, int index)
{
    return layer.bias ? (float)bias_of(NULL, which, e, index) : 0;
}

static float honest_activation(float g, float u)
{
    float limit = (float)layer.limit, alpha = (float)layer.alpha;
    switch (layer.activation) {
    case REF_SILU: return g / (1 + expf(-g)) * u;
    case REF_GELU: return 0.5f * g * (1 + tanhf(0.79788456f * (g + 0.044715f * g * g * g))) * u;
    case REF_CLAMPED:
        g = fminf(g, limit);
        u = fmaxf(fminf(u, limit), -limit);
        return g / (1 + expf(-alpha * g)) * (u + 1);
    }
    return 0;
}

static void honest_row(int row, int t, int e)
{
    for (int c = 0; c < I; c++) {
        float g = 0, u = 0;
        for (int k = 0; k < H; k++) {
            float x = (float)ref_value(layer.f16, w0.x[t * H + k]);
            g += x * (float)weight(REF_GATE, e, c, k);
            u += x * (float)weight(REF_UP, e, c, k);
        }
        float h = honest_activation(g + bias(REF_GATE, e, c), u + bias(REF_UP, e, c));
        w0.h[row * I + c] = ref_bits(layer.f16, (double)h);
    }
    for (int c = 0; c < H; c++) {
        float sum = 0;
        for (int k = 0; k < I; k++)
            sum += (float)ref_value(layer.f16, w0.h[row * I + k]) * (float)weight(REF_DOWN, e, c, k);
        w0.d[row * H + c] = ref_bits(layer.f16, (double)(sum + bias(REF_DOWN, e, c)));
    }
}

static void honest_rows(void)
{
    memset(w0.h, 0xff, sizeof w0.h);
    memset(w0.d, 0xff, sizeof w0.d);
    for (int64_t r = 0; r < plan.rows; r++)
        honest_row((int)r, w0.row_token[r], w0.row_expert[r]);
    for (int i = 0; i < T * H; i++) {
        float sum = 0;
        for (int j = 0; j < K; j++) {
            int row = w0.slot_row[i / H * K + j];
            sum += row < 0 ? 0 : w0.weights[i / H * K + j] * (float)ref_value(layer.f16, w0.d[row * H + i % H]);
        }
        w0.y[i] = ref_bits(layer.f16, (double)sum);
    }
}

static int make_world(void **state)
{
    uint64_t seed = 7;
    double weights[K];
    (void)state;
    for (int i = 0; i < T * H; i++)
        w0.x[i] = ref_bits(false, 2 * uniform(&seed));
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < E * I * H; i++)
            w0.w[m][i] = ref_bits(false, 0.2 * uniform(&seed));
    for (int i = 0; i < T * E; i++)
        w0.logits[i] = (float)(3 * uniform(&seed));
    for (int t = 0; t < T; t++) {
        ref_route(&router, t, w0.chosen + t * K, weights, NULL);
        for (int j = 0; j < K; j++)
            w0.weights[t * K + j] = (float)weights[j];
        w0.tokens[t] = t;
    }
    memcpy(w0.ids, w0.chosen, sizeof w0.ids);
    w0.ids[5] = -1;
    memset(w0.row_token, 0xff, sizeof w0.row_token);
    layer.row = row_of;
    ref_plan(w0.ids, &plan);
    honest_rows();
    return ref_tokens(&layer, w0.tokens, T, w0.want) ? 0 : -1;
}

// ---- numbers

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double v;
        uint16_t bf16, f16;
    } rows[] = {
        { 0, 0, 0 },
        { -0.0, 0x8000, 0x8000 },
        { 1, 0x3f80, 0x3c00 },
        { -2, 0xc000, 0xc000 },
        { 65504, 0x4780, 0x7bff },
        { 65519.99, 0x4780, 0x7bff },
        { 65520, 0x4780, 0x7c00 },
        { 1 + 0x1p-8, 0x3f80, 0x3c04 }, // bf16: tie to even, down
        { 1 + 3 * 0x1p-8, 0x3f82, 0x3c0c },
        { 1 + 0x1p-11, 0x3f80, 0x3c00 },
        { 1 + 3 * 0x1p-11, 0x3f80, 0x3c02 },
        { 0x1p-24, 0x3380, 1 },
        { 0x1p-25, 0x3300, 0 },
        { 0x1.8p-25, 0x3340, 1 },
        { 0x1p-14, 0x3880, 0x0400 },
        { 0x1.ffep-15, 0x3880, 0x0400 },
        { 0x1p-133, 1, 0 },
        { 0x1p-134, 0, 0 },
        { HUGE_VAL, 0x7f80, 0x7c00 },
        { 3.4e38, 0x7f80, 0x7c00 },
        { 3.38e38, 0x7f7e, 0x7c00 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ref_bits(false, rows[i].v), rows[i].bf16);
        assert_int_equal(ref_bits(true, rows[i].v), rows[i].f16);
    }
    for (int f16 = 0; f16 < 2; f16++) // every number is its own nearest
        for (int b = 0; b < 65536; b++)
            if (!isnan(ref_value(f16, (uint16_t)b)))
                assert_int_equal(ref_bits(f16, ref_value(f16, (uint16_t)b)), b);
            else
                assert_true(isnan(ref_value(f16, ref_bits(f16, NAN))));
    assert_int_equal(ref_ulps(false, 0x8001, 0x0001), 2);
    assert_int_equal(ref_ulps(false, 0x3f80, 0x3f83), 3);
}

// ---- routing and plan

static void test_route(void **state)
{
    (void)state;
    static const float logits[2][4] = { { 0, 0, 0, 0 }, { 1, 3, 2, 3 } };
    static const float bias[4] = { 0, 0, 0.9f, 0 };
    static const float none[4] = { 0 };
    struct ref_router r = {
        .tokens = 2, .experts = 4, .topk = 2, .renorm = true, .scale = 1, .logits = logits[0], .bias = none
    };
    int32_t ids[2];
    double w[2];
    ref_route(&r, 0, ids, w, NULL);
    assert_true(ids[0] == 0 && ids[1] == 1 && w[0] == 0.5 && w[1] == 0.5); // ties: the lower index
    ref_route(&r, 1, ids, w, NULL);
    assert_true(ids[0] == 1 && ids[1] == 3);
    r.bias = bias; // selects, and leaves the weights alone
    r.renorm = false;
    r.scale = 2;
    ref_route(&r, 1, ids, w, NULL);
    double sum = exp(1) + 2 * exp(3) + exp(2);
    assert_true(ids[0] == 2 && ids[1] == 1);
    assert_true(fabs(w[0] - 2 * exp(2) / sum) < 1e-12 && fabs(w[1] - 2 * exp(3) / sum) < 1e-12);
    r.sigmoid = r.renorm = true;
    ref_route(&r, 1, ids, w, NULL);
    double a = 1 / (1 + exp(-2)), b = 1 / (1 + exp(-3));
    assert_true(ids[0] == 2 && ids[1] == 1 && fabs(w[0] - 2 * a / (a + b)) < 1e-12);
}

// Eight experts whose scores are all 0.5: the biases make the order. Keys, in groups of two:
//   1.4 0.5 | 1.0 1.0 | 0.6 1.2 | 0.5 0.5      best: groups 0, 2, 1      sums: groups 1 (2.0), 0 (1.9), 2 (1.8)
static const float even[8] = { 0 }, group_bias[8] = { 0.9f, 0, 0.5f, 0.5f, 0.1f, 0.7f, 0, 0 };
static struct ref_router grouped_router(void)
{
    return (struct ref_router){ .tokens = 1,
                                .experts = 8,
                                .topk = 3,
                                .sigmoid = true,
                                .renorm = true,
                                .scale = 2.5,
                                .groups = 4,
                                .keep_groups = 2,
                                .logits = even,
                                .bias = group_bias };
}

static void test_groups(void **state)
{
    static const struct {
        int groups, keep;
        bool pairs;
        int32_t ids[3];
    } rows[] = {
        { 0, 0, false, { 0, 5, 2 } }, { 1, 1, true, { 0, 5, 2 } },  { 4, 2, false, { 0, 5, 4 } },
        { 4, 2, true, { 0, 2, 3 } },  { 4, 3, false, { 0, 5, 2 } }, { 4, 4, true, { 0, 5, 2 } },
        { 2, 1, false, { 0, 2, 3 } }, { 2, 1, true, { 0, 2, 3 } },  { 8, 3, false, { 0, 5, 2 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ref_router r = grouped_router();
        int32_t ids[3];
        double w[3], keys[3];
        r.groups = rows[i].groups;
        r.keep_groups = rows[i].keep;
        r.group_pairs = rows[i].pairs;
        ref_route(&r, 0, ids, w, keys);
        if (memcmp(ids, rows[i].ids, sizeof ids))
            fail_msg("row %zu: %d %d %d", i, ids[0], ids[1], ids[2]);
        assert_true(fabs(keys[0] - 1.4) < 1e-7); // weights know no bias: 0.5 each
        for (int j = 0; j < 3; j++)
            assert_true(fabs(w[j] - 2.5 / 3) < 1e-12);
    }
    struct ref_router r = grouped_router();
    int32_t ids[3];
    double w[3];
    r.bias = even; // equal groups: the first two
    ref_route(&r, 0, ids, w, NULL);
    assert_true(ids[0] == 0 && ids[1] == 1 && ids[2] == 2);
    r.renorm = false;
    ref_route(&r, 0, ids, w, NULL);
    assert_true(w[0] == 1.25);
}

static void test_shared(void **state)
{
    static const float low[8] = { -100, -100, -100, -100, -100, -100, -100, -100 };
    static const double gate[1] = { 0.25 };
    struct ref_router r = grouped_router();
    int32_t ids[5];
    double w[5];
    (void)state;
    r.shared = 2;
    ref_route(&r, 0, ids, w, NULL); // neither scaled nor counted in the sum
    assert_true(ids[3] == 8 && ids[4] == 9 && w[3] == 1 && w[4] == 1 && fabs(w[0] - 2.5 / 3) < 1e-12);
    r.shared_weight = gate;
    ref_route(&r, 0, ids, w, NULL);
    assert_true(ids[3] == 8 && ids[4] == 9 && w[3] == 0.25 && w[4] == 0.25);
    r.logits = low; // scores that vanish beside the 1e-20
    ref_route(&r, 0, ids, w, NULL);
    assert_true(fabs(w[0] / (2.5 * exp(-100) / 1e-20) - 1) < 1e-6);
}

// Choices of a device that the judge lets pass, and others; topk and keep_groups as given, two experts a group.
static void test_judge_groups(void **state)
{
    static const float tie[8] = { 0.2f, 0, 0.2f, 0, 0.1f, 0, 0, 0 },        // groups 0 and 1 equal
        near_tie[8] = { 0.2f, 0, 0.2000002f, 0, 0.1f, 0, 0, 0 },            // 1 before 0 by 2e-7
        apart[8] = { 0.2f, 0, 0.2001f, 0, 0.1f, 0, 0, 0 },                  // by 1e-4
        sums[8] = { 0.5f, 0.3f, 0.6f, 0.2000004f, 0.7f, 0.1000002f, 0, 0 }; // 1, 2, 0 by 2e-7 each
    static const struct {
        const float *bias;
        int topk, keep;
        bool pairs;
        int32_t ids[2];
        bool fine;
    } rows[] = {
        { tie, 2, 1, false, { 0, 1 }, true },       { tie, 2, 1, false, { 2, 3 }, false },
        { tie, 2, 2, false, { 0, 2 }, true },       { tie, 2, 2, false, { 2, 0 }, false },
        { near_tie, 2, 1, false, { 2, 3 }, true },  { near_tie, 2, 1, false, { 0, 1 }, true },
        { near_tie, 2, 1, false, { 0, 2 }, false }, // two groups where one is kept
        { near_tie, 2, 2, false, { 0, 2 }, true },  { apart, 2, 1, false, { 2, 3 }, true },
        { apart, 2, 1, false, { 0, 1 }, false },    { apart, 2, 1, false, { 3, 2 }, false },
        { apart, 2, 3, false, { 2, 0 }, true },     { apart, 2, 3, false, { 2, 4 }, false },
        { sums, 1, 2, true, { 4 }, true },          { sums, 1, 2, true, { 2 }, true }, // groups 0 and 1 kept
        { sums, 1, 2, true, { 0 }, false },         { sums, 1, 1, true, { 0 }, true },
        { sums, 2, 1, true, { 4, 5 }, true },       { sums, 2, 1, true, { 4, 2 }, false },
        { sums, 1, 2, false, { 2 }, false }, // by the best expert: group 2 is kept
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ref_router r = grouped_router();
        struct ref_verdict v = { 0 };
        float w[2];
        r.bias = rows[i].bias;
        r.topk = rows[i].topk;
        r.keep_groups = rows[i].keep;
        r.group_pairs = rows[i].pairs;
        w[0] = w[1] = 2.5f / (float)r.topk;
        judge_route(&r, rows[i].ids, w, &v);
        if ((v.bad == 0) != rows[i].fine)
            fail_msg("row %zu: %s", i, v.first);
    }
}

static void test_judge_shared(void **state)
{
    static const double gate[1] = { 0.25 };
    static const struct {
        bool gated;
        int32_t id;
        float weight, first;
        bool fine;
    } rows[] = {
        { false, 8, 1, 1, true },        { false, 8, 0, 1, false },         { false, 7, 1, 1, false },
        { false, 9, 1, 1, false },       { false, 8, 0.999999f, 1, false }, { true, 8, 0.25f, 1, true },
        { true, 8, 0.250004f, 1, true }, { true, 8, 0.25001f, 1, false },   { true, 8, 1, 1, false },
        { true, 8, NAN, 1, false },      { true, 8, 0.25f, 1.001f, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ref_router r = grouped_router();
        struct ref_verdict v = { 0 };
        const int32_t ids[4] = { 0, 5, 4, rows[i].id };
        const float w[4] = { 2.5f / 3 * rows[i].first, 2.5f / 3, 2.5f / 3, rows[i].weight };
        r.shared = 1;
        r.shared_weight = rows[i].gated ? gate : NULL;
        judge_route(&r, ids, w, &v);
        if ((v.bad == 0) != rows[i].fine || v.of != 8)
            fail_msg("row %zu: %s", i, v.first);
    }
    static const double nan_gate[1] = { NAN }; // of a row with NaN
    struct ref_router r = grouped_router();
    struct ref_verdict v = { 0 };
    const int32_t ids[4] = { 0, 5, 4, 8 };
    const float w[4] = { 2.5f / 3, 2.5f / 3, 2.5f / 3, NAN };
    r.shared = 1;
    r.shared_weight = nan_gate;
    judge_route(&r, ids, w, &v);
    assert_int_equal(v.bad, 0);
}

static void test_plan(void **state)
{
    (void)state;
    // expert 2 gets slots 0, 3, 4; expert 0 slot 1; slots 2 and 5 are out
    static const int32_t ids[6] = { 2, 0, -1, 2, 2, 3 };
    int32_t counts[2 * 3], slot_row[6], row_token[6] = { 9, 9, 9, 9, 9, 9 }, tiles[5 * 4], row_expert[6];
    struct ref_plan p = { .slots = 6,
                          .chunks = 2,
                          .entries = 5,
                          .experts = 3,
                          .topk = 2,
                          .chunk = 4,
                          .block = 2,
                          .counts = counts,
                          .slot_row = slot_row,
                          .row_token = row_token,
                          .tiles = tiles,
                          .row_expert = row_expert };
    ref_plan(ids, &p);
    static const int32_t want_counts[6] = { 1, 0, 2, 0, 0, 1 }, want_slot[6] = { 1, 0, -1, 2, 3, -1 },
                         want_token[6] = { 0, 0, 1, 2, 9, 9 }, want_tiles[20] = { 0, 0, 1, 0, 2, 1, 2, 0, 2, 3, 1, 0 };
    assert_memory_equal(counts, want_counts, sizeof counts);
    assert_memory_equal(slot_row, want_slot, sizeof slot_row);
    assert_memory_equal(row_token, want_token, sizeof row_token);
    assert_memory_equal(tiles, want_tiles, sizeof tiles);
    assert_true(p.fits && p.rows == 4);
    p.entries = 2;
    ref_plan(ids, &p);
    assert_false(p.fits);
}

// The layer again, without any arrangement.
static void test_layer(void **state)
{
    (void)state;
    for (int i = 0; i < T * H; i += 29) {
        double y = 0;
        for (int j = 0; j < K; j++) {
            int e = w0.ids[i / H * K + j];
            double d = 0;
            for (int r = 0; e >= 0 && r < I; r++) {
                double g = 0, u = 0;
                for (int k = 0; k < H; k++) {
                    g += ref_value(false, w0.x[i / H * H + k]) * weight(REF_GATE, e, r, k);
                    u += ref_value(false, w0.x[i / H * H + k]) * weight(REF_UP, e, r, k);
                }
                d += g / (1 + exp(-g)) * u * weight(REF_DOWN, e, i % H, r);
            }
            y += (double)w0.weights[i / H * K + j] * d;
        }
        assert_true(fabs(y - w0.want[i]) <= 1e-12 * (1 + fabs(y)));
    }
    static const int some[3] = { 36, 0, 17 }; // any tokens, any order
    double want[3 * H];
    assert_true(ref_tokens(&layer, some, 3, want));
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < H; c++)
            assert_true(fabs(want[i * H + c] - w0.want[some[i] * H + c]) < 1e-12);
}

// One token, one expert, one column: x = 1, so that the weights are g and u.
static double one_weights[3], one_biases[3];
static void one_row(void *user, enum ref_matrix which, int e, int index, double *out)
{
    (void)user, (void)e, (void)index;
    *out = one_weights[which];
}
static double one_bias(void *user, enum ref_matrix which, int e, int index)
{
    (void)user, (void)e, (void)index;
    return one_biases[which];
}

static void test_activations(void **state)
{
    static const struct {
        enum ref_activation activation;
        double g, u, y;
    } rows[] = {
        { REF_SILU, 1, 2, 1.4621171572600098 },
        { REF_SILU, -1.5, 1, -0.27363828570953452 },
        { REF_GELU, 1, 2, 1.6823839812165533 },
        { REF_GELU, -2, 1, -0.04540230591222498 },
        { REF_CLAMPED, 1, 1, 1.6915915318656425 },
        { REF_CLAMPED, 10, 10, 55.999625026426536 },       // both at their limit of 7
        { REF_CLAMPED, -10, -10, 2.4347767769131858e-06 }, // u at -7; g has no lower limit
        { REF_CLAMPED, 10, -3, -13.999906256606634 },      // 7 sigmoid(1.702 * 7) (1 - 3)
        { REF_CLAMPED, -1, -1, 0 },
    };
    static const uint16_t x = 0x3f80;
    static const int32_t id = 0;
    static const float w = 1;
    static const int token = 0;
    struct ref_layer l = {
        1, 1, 1, 1, 1, .alpha = 1.702, .limit = 7, .x = &x, .ids = &id, .weights = &w, .row = one_row
    };
    double y;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        l.activation = rows[i].activation;
        for (int biased = 0; biased < 2; biased++) { // the same sums, half of them as biases
            double share = biased ? 0.5 : 1;
            one_weights[REF_GATE] = rows[i].g * share;
            one_weights[REF_UP] = rows[i].u * share;
            one_weights[REF_DOWN] = 1;
            one_biases[REF_GATE] = rows[i].g * 0.5;
            one_biases[REF_UP] = rows[i].u * 0.5;
            one_biases[REF_DOWN] = 3;
            l.bias = biased ? one_bias : NULL;
            assert_true(ref_tokens(&l, &token, 1, &y));
            y -= biased ? 3 : 0;
            if (!(fabs(y - rows[i].y) <= 1e-14 * (1 + fabs(rows[i].y))))
                fail_msg("row %zu: %.17g", i, y);
        }
    }
}

// ---- judges

enum judge { J_ROUTE, J_H, J_D, J_COMBINE, J_TOKENS, J_WRITTEN, JUDGES };

static int64_t judge(enum judge j, const struct world *w)
{
    struct ref_verdict v = { 0 };
    struct ref_plan p = plan;
    struct ref_layer l = layer;
    l.weights = w->weights;
    p.slot_row = (int32_t *)(uintptr_t)w->slot_row;
    switch (j) {
    case J_ROUTE: judge_route(&router, w->chosen, w->weights, &v); break;
    case J_H: judge_h(&l, &p, w->h, 8, 1, &v); break;
    case J_D: judge_d(&l, &p, w->h, w->d, 8, 1, &v); break;
    case J_COMBINE: judge_combine(&l, &p, w->d, w->y, &v); break;
    case J_TOKENS: judge_tokens(&layer, w0.tokens, T, w0.want, w->y, layer.f16 ? 5e-4 : 4e-3, &v); break;
    case J_WRITTEN:
        judge_written("h", w->h, plan.rows, S, I, &v);
        judge_written("d", w->d, plan.rows, S, H, &v);
        judge_written("y", w->y, T, T, H, &v);
        break;
    case JUDGES: break;
    }
    assert_true(v.bad == 0 || v.first[0]);
    return v.bad;
}

static void test_honest(void **state)
{
    (void)state;
    for (int j = 0; j < JUDGES; j++)
        if (judge((enum judge)j, &w0) != 0)
            fail_msg("judge %d does not accept honest results", j);
}

static void zero_y(void)
{
    memset(w1.y, 0, sizeof w1.y);
}
static void zero_h(void)
{
    memset(w1.h, 0, sizeof w1.h);
}
static void zero_d(void)
{
    memset(w1.d, 0, sizeof w1.d);
}
static void one_y(void)
{
    w1.y[T * H - 1] ^= 0x40;
}
static void nan_y(void)
{
    w1.y[3] = 0x7fc0;
}
static void other_token(void)
{
    memcpy(w1.y, w1.y + H, H * 2);
}
static void identity(void)
{
    memcpy(w1.y, w0.x, sizeof w1.y);
}
static void other_row_h(void)
{
    memcpy(w1.h, w1.h + 9 * I, I * 2);
}
static void other_row_d(void)
{
    memcpy(w1.d, w1.d + 9 * H, H * 2);
}
static void hole_h(void)
{
    w1.h[17] = 0xffff;
}
static void spill_d(void)
{
    w1.d[S * H - 1] = 0;
}
static void id_twice(void)
{
    w1.chosen[1] = w1.chosen[0];
}
static void id_order(void)
{
    w1.chosen[0] = w0.chosen[1];
    w1.chosen[1] = w0.chosen[0];
}
static void id_other(void)
{
    int32_t e = 0;
    while (e == w0.chosen[0] || e == w0.chosen[1])
        e++;
    w1.chosen[0] = e;
}
static void id_out(void)
{
    w1.chosen[2] = E;
}
static void weight_off(void)
{
    w1.weights[8] *= 1.0001f;
}
static void weight_unnormalised(void)
{
    for (int i = 0; i < S; i++)
        w1.weights[i] *= 0.7f;
}
static void weights_larger(void) // by a hundredth: two steps of bf16
{
    for (int i = 0; i < S; i++)
        w1.weights[i] *= 1.01f;
}
static void swapped_halves(void) // silu of the other projection
{
    for (int r = 0; r < plan.rows; r++)
        for (int c = 0; c < I; c++) {
            double g = 0, u = 0;
            for (int k = 0; k < H; k++) {
                g += ref_value(false, w0.x[w0.row_token[r] * H + k]) * weight(REF_GATE, w0.row_expert[r], c, k);
                u += ref_value(false, w0.x[w0.row_token[r] * H + k]) * weight(REF_UP, w0.row_expert[r], c, k);
            }
            w1.h[r * I + c] = ref_bits(false, u / (1 + exp(-u)) * g);
        }
}
static void short_sum(void) // the last k tile left out
{
    for (int r = 0; r < plan.rows; r++)
        for (int c = 0; c < H; c++) {
            double sum = 0;
            for (int k = 0; k < I - 8; k++)
                sum += ref_value(false, w0.h[r * I + k]) * weight(REF_DOWN, w0.row_expert[r], c, k);
            w1.d[r * H + c] = ref_bits(false, sum);
        }
}
static void coarse_sum(void) // accumulated in bf16
{
    for (int r = 0; r < plan.rows; r++)
        for (int c = 0; c < H; c++) {
            double sum = 0;
            for (int k = 0; k < I; k++)
                sum = ref_value(false, ref_bits(false, sum + ref_value(false, w0.h[r * I + k]) *
                                                                 weight(REF_DOWN, w0.row_expert[r], c, k)));
            w1.d[r * H + c] = ref_bits(false, sum);
        }
}

static void test_damage(void **state)
{
    static const struct {
        void (*damage)(void);
        enum judge judge;
    } rows[] = {
        { zero_y, J_COMBINE },
        { zero_y, J_TOKENS },
        { zero_h, J_H },
        { zero_h, J_D },
        { zero_d, J_D },
        { zero_d, J_COMBINE },
        { one_y, J_COMBINE },
        { one_y, J_TOKENS },
        { nan_y, J_COMBINE },
        { nan_y, J_TOKENS },
        { other_token, J_TOKENS },
        { identity, J_TOKENS },
        { other_row_h, J_H },
        { other_row_d, J_D },
        { hole_h, J_WRITTEN },
        { spill_d, J_WRITTEN },
        { id_twice, J_ROUTE },
        { id_order, J_ROUTE },
        { id_other, J_ROUTE },
        { id_out, J_ROUTE },
        { weight_off, J_ROUTE },
        { weight_unnormalised, J_ROUTE },
        { weight_unnormalised, J_COMBINE },
        { weights_larger, J_COMBINE },
        { swapped_halves, J_H },
        { short_sum, J_D },
        { coarse_sum, J_D },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        w1 = w0;
        rows[i].damage();
        if (judge(rows[i].judge, &w1) == 0)
            fail_msg("damage %zu is not seen", i);
    }
}

// h of other definitions, from exact sums. bias_times: how often each bias is added.
static void other_h(double (*f)(double g, double u), int bias_times)
{
    for (int r = 0; r < plan.rows; r++)
        for (int c = 0; c < I; c++) {
            int e = w0.row_expert[r];
            double g = bias_times * (double)bias(REF_GATE, e, c), u = bias_times * (double)bias(REF_UP, e, c);
            for (int k = 0; k < H; k++) {
                g += ref_value(layer.f16, w0.x[w0.row_token[r] * H + k]) * weight(REF_GATE, e, c, k);
                u += ref_value(layer.f16, w0.x[w0.row_token[r] * H + k]) * weight(REF_UP, e, c, k);
            }
            w1.h[r * I + c] = ref_bits(layer.f16, f(g, u));
        }
}
static double f_silu(double g, double u)
{
    return g / (1 + exp(-g)) * u;
}
static double f_gelu(double g, double u)
{
    return g / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g))) * u;
}
static double f_gelu_erf(double g, double u)
{
    return g / 2 * (1 + erf(g / sqrt(2))) * u;
}
static double f_swish(double g)
{
    return g / (1 + exp(-layer.alpha * g));
}
static double f_clamp(double v)
{
    return fmax(fmin(v, layer.limit), -layer.limit);
}
static double f_clamped(double g, double u)
{
    return f_swish(fmin(g, layer.limit)) * (f_clamp(u) + 1);
}
static double f_no_one(double g, double u)
{
    return f_swish(fmin(g, layer.limit)) * f_clamp(u);
}
static double f_wrong_side(double g, double u)
{
    return f_swish(fmax(g, -layer.limit)) * (f_clamp(u) + 1);
}
static double f_both_sides(double g, double u)
{
    return f_swish(f_clamp(g)) * (f_clamp(u) + 1);
}
static double f_up_once(double g, double u)
{
    return f_swish(fmin(g, layer.limit)) * (fmin(u, layer.limit) + 1);
}
static double f_no_alpha(double g, double u)
{
    g = fmin(g, layer.limit);
    return g / (1 + exp(-g)) * (f_clamp(u) + 1);
}

static const struct {
    enum ref_activation activation;
    double (*f)(double g, double u);
    int bias_times;
    bool fine;
} other_rows[] = {
    { REF_SILU, f_silu, 1, true },           { REF_SILU, f_gelu, 1, false },
    { REF_SILU, f_silu, 0, false },          { REF_SILU, f_silu, 2, false },
    { REF_GELU, f_gelu, 1, true },           { REF_GELU, f_silu, 1, false },
    { REF_GELU, f_gelu_erf, 1, false },      { REF_GELU, f_gelu, 2, false },
    { REF_CLAMPED, f_clamped, 1, true },     { REF_CLAMPED, f_no_one, 1, false },
    { REF_CLAMPED, f_wrong_side, 1, false }, { REF_CLAMPED, f_both_sides, 1, false },
    { REF_CLAMPED, f_up_once, 1, false },    { REF_CLAMPED, f_no_alpha, 1, false },
    { REF_CLAMPED, f_clamped, 0, false },    { REF_CLAMPED, f_clamped, 2, false },
};

// Every activation with biases, in both formats: honest f32 results pass, exact ones pass, other definitions fail.
static void test_other_activations(void **state)
{
    static struct world kept;
    kept = w0;
    layer.bias = bias_of;
    layer.alpha = 1.702;
    layer.limit = 1.5; // within reach of the sums here
    for (int f16 = 0; f16 < 2; f16++)
        for (size_t i = 0; i < sizeof other_rows / sizeof other_rows[0]; i++) {
            layer.f16 = f16;
            layer.activation = other_rows[i].activation;
            if (other_rows[i].f == f_gelu_erf && !f16)
                continue; // closer than bf16 can tell
            honest_rows();
            assert_true(ref_tokens(&layer, w0.tokens, T, w0.want));
            for (enum judge j = J_H; j < JUDGES; j++)
                if (judge(j, &w0) != 0)
                    fail_msg("activation %d: judge %d does not accept honest results", (int)layer.activation, (int)j);
            w1 = w0;
            other_h(other_rows[i].f, other_rows[i].bias_times);
            if ((judge(J_H, &w1) == 0) != other_rows[i].fine)
                fail_msg("row %zu, f16 %d", i, f16);
            w1 = w0; // the bias of down twice
            for (int r = 0; r < plan.rows; r++)
                for (int c = 0; c < H; c++)
                    w1.d[r * H + c] =
                        ref_bits(f16, ref_value(f16, w0.d[r * H + c]) + (double)bias(REF_DOWN, w0.row_expert[r], c));
            if (judge(J_D, &w1) == 0)
                fail_msg("row %zu, f16 %d: the bias of down twice is not seen", i, f16);
        }
    w0 = kept;
    layer.f16 = false;
    layer.bias = NULL;
    layer.activation = REF_SILU;
    (void)state;
}

// A truncating store is within one step of the format, and still is seen: errors lean one way.
static void test_lean(void **state)
{
    (void)state;
    struct ref_verdict v = { 0 }, u = { 0 };
    w1 = w0;
    for (int i = 0; i < T * H; i++) {
        uint16_t b = ref_bits(false, w0.want[i]);
        w1.y[i] = fabs(ref_value(false, b)) > fabs(w0.want[i]) ? (uint16_t)(b - 1) : b;
    }
    judge_tokens(&layer, w0.tokens, T, w0.want, w0.y, 4e-3, &v);
    judge_tokens(&layer, w0.tokens, T, w0.want, w1.y, 4e-3, &u);
    assert_true(fabs(v.mean_signed) < 3e-4);
    assert_true(u.mean_signed < -8e-4);
    assert_true(v.rel_mean > 1e-3 && v.rel_mean < 4e-3 && v.rel_mean <= v.rel_l2);
}

static void count_one(void *user, int64_t i)
{
    __atomic_fetch_add((int64_t *)user, i + 1, __ATOMIC_RELAXED);
}

static void test_parallel(void **state)
{
    (void)state;
    int64_t sum = 0;
    ref_parallel(1000, count_one, &sum);
    ref_parallel(0, count_one, &sum);
    assert_int_equal(sum, 500500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_route),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_shared),
        cmocka_unit_test(test_judge_groups), cmocka_unit_test(test_judge_shared),
        cmocka_unit_test(test_activations),  cmocka_unit_test(test_other_activations),
        cmocka_unit_test(test_plan),         cmocka_unit_test(test_layer),
        cmocka_unit_test(test_honest),       cmocka_unit_test(test_damage),
        cmocka_unit_test(test_lean),         cmocka_unit_test(test_parallel),
    };
    return cmocka_run_group_tests(tests, make_world, NULL);
}
