// A second opinion about the kernels of kernels/moe.dsl: the same layer in plain C and double precision, written from
// the definition and sharing nothing with the compiler; and judges, which compare what a device computed with it.
//
// Nothing prints or exits. Loops use all processors (pthreads). Out of memory: functions that allocate return false.
#ifndef REF_MOE_H
#define REF_MOE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// fn(user, 0) .. fn(user, n - 1), in any order, on all processors; returns when all are done.
void ref_parallel(int64_t n, void (*fn)(void *user, int64_t i), void *user);

// ---- numbers: bf16 and f16 (f16 true) as 16 bits
double ref_value(bool f16, uint16_t bits);
uint16_t ref_bits(bool f16, double v);              // nearest, ties to even; overflow to infinity
int64_t ref_ulps(bool f16, uint16_t a, uint16_t b); // steps of the format between two numbers

// ---- the layer
enum ref_matrix { REF_GATE, REF_UP, REF_DOWN };
enum ref_activation { REF_SILU, REF_GELU, REF_CLAMPED }; // as the kernels gate_up, gate_up_gelu, gate_up_clamp
struct ref_layer {
    int tokens, experts, topk, hidden,
        ffn; // experts: that have weights here, shared ones too; topk: slots a token, likewise
    bool f16;
    enum ref_activation activation;
    double alpha, limit;  // of REF_CLAMPED
    const uint16_t *x;    // [tokens, hidden]
    const int32_t *ids;   // [tokens, topk]; an id outside 0 .. experts - 1 takes no part
    const float *weights; // [tokens, topk]
    // Row `index` of one expert's matrix as doubles: gate and up have ffn rows of `hidden`, down has `hidden` rows of
    // ffn.
    void (*row)(void *user, enum ref_matrix which, int expert, int index, double *out);
    // The bias of that row; NULL: none have one.
    double (*bias)(void *user, enum ref_matrix which, int expert, int index);
    void *user;
};
// y[n, hidden] of the given tokens, nothing rounded on the way.
bool ref_tokens(const struct ref_layer *l, const int *tokens, int n, double *y);

struct ref_router {
    int tokens, experts, topk; // without the shared ones
    bool sigmoid, renorm;
    double scale;
    int groups, keep_groups; // more than 1: experts outside the keep_groups best of `groups` groups cannot be chosen
    bool group_pairs;        // a group is worth the sum of its two largest score + bias, else the largest
    int shared;              // experts E .. that every token has behind its own
    const double *shared_weight; // [tokens]: of the shared experts; NULL: 1
    const float *logits;         // [tokens, experts]
    const float *bias;           // [experts]
};
// The definition of route_softmax, route_sigmoid, route_grouped and shared_gate. ids and weights: topk + shared; in
// order of preference, then the shared ones. keys (optional): score + bias of the first topk.
void ref_route(const struct ref_router *r, int token, int32_t *ids, double *weights, double *keys);

// The definition of count and plan. slots = tokens * topk; chunks = ceil(slots / chunk).
struct ref_plan {
    int64_t slots, chunks, entries; // entries of the tile list
    int experts, topk, chunk, block;
    int32_t *counts;     // [chunks, experts]
    int32_t *slot_row;   // [slots]
    int32_t *row_token;  // [slots]; rows past the last are left alone
    int32_t *tiles;      // [entries, 4]
    int32_t *row_expert; // [slots]; not part of the kernels' results
    int64_t rows;        // in use
    bool fits;           // all tiles found room in `entries`
};
void ref_plan(const int32_t *ids, struct ref_plan *p); // all pointers given

// ---- judges
enum { REF_ULP_BINS = 6 }; // 0, 1, 2, 3..4, 5..8, more
struct ref_verdict {
    int64_t checked, of; // values looked at, and how many there are
    int64_t bad;         // values outside their bound: anything but 0 is a failure
    int64_t near_ties;   // (route) other choices within rounding of the scores
    double worst;        // largest error, in units of its bound: at most 1 unless bad
    double rel_l2;       // largest over the rows
    double rel_mean;     // its root mean square over the rows
    double max_abs;      // largest |got - want| / rms of the row
    double mean_signed;  // mean of (|got| - |want|) / rms of the row: rounding that leans one way shows here
    int64_t ulps[REF_ULP_BINS];
    char first[200]; // the first bad value, in words
};
// ids: distinct, within rounding of the best of groups within rounding of the best, exact ties to the lower index; then
// the shared ones. weights: within 2e-5 of those of these ids; those of shared experts without a gate are 1.
void judge_route(const struct ref_router *r, const int32_t *ids, const float *weights, struct ref_verdict *v);
void judge_ints(const char *what, const int32_t *got, const int32_t *want, int64_t n, struct ref_verdict *v);
// Every row in use of h (or d): `columns` columns of each, other ones in each row, spread over the width. Bound: half a
// step of the format, and what f32 sums in any order may cost, times the steepest slope of the activation.
void judge_h(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *h, int columns, uint64_t seed,
             struct ref_verdict *v);
void judge_d(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *h, const uint16_t *d, int columns,
             uint64_t seed, struct ref_verdict *v);
// Every value of y, from the d given.
void judge_combine(const struct ref_layer *l, const struct ref_plan *p, const uint16_t *d, const uint16_t *y,
                   struct ref_verdict *v);
// The rows y[tokens[i]] against ref_tokens(): relative L2 of each row at most limit * (1 + 2 / sqrt(hidden)), since
// short rows scatter more; of all rows together (rel_mean, for the caller to judge) at most limit; each value within
// 10 * limit of the row's rms.
void judge_tokens(const struct ref_layer *l, const int *tokens, int n, const double *want, const uint16_t *y,
                  double limit, struct ref_verdict *v);
// Rows [0, rows) hold no value of the poison 0xffff, rows [rows, total) hold nothing else.
void judge_written(const char *what, const uint16_t *t, int64_t rows, int64_t total, int64_t width,
                   struct ref_verdict *v);
#endif
