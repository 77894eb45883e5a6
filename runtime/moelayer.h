// A whole Mixture-of-Experts layer over moert.h: described once, then run on any stream with any number of tokens.
// This header is the manual.
//
//   struct moe_layer_desc desc = { .size = sizeof desc, .experts = 128, .topk = 8, .hidden = 2048, .ffn = 768,
//                                  .dtype = IMAGE_BF16, .renorm = 1, .scale = 1 };
//   struct moe_layer_weights w = { .size = sizeof w, .gate = gate, .up = up, .down = down };
//   moe_layer_create(image, &desc, &w, &layer);
//   moe_alloc(device, moe_layer_workspace(layer, 8192), &space);               once; or any memory of yours
//   struct moe_layer_call call = { .size = sizeof call, .tokens = n, .x = x, .y = y, .logits = logits,
//                                  .workspace = space, .workspace_bytes = bytes };
//   moe_layer_forward(layer, &call, stream);                                    any number of times
//
// WHAT IS COMPUTED, for T tokens, E experts, K choices a token, hidden size H, expert width I:
//   ids, weights = route(logits)                      of each token; or given by the caller
//   h = act(x W_gate[id]^T, x W_up[id]^T)             [I] for each chosen expert, rounded to dtype
//   d = h W_down[id]^T                                [H], rounded to dtype
//   y = sum over j = 0 .. K-1, in that order, of weights[j] d[j]; f32, rounded once
// Sums are f32. The same call gives the same bits on the same device with the same image. A slot whose id is outside
// 0 .. E-1 (or whose expert_map entry is -1) adds nothing; a token without any slot gets zeros.
//
// SHARED EXPERTS, which every token visits, are the experts `experts` .. `experts + shared - 1` of the weight tensors.
// One shared FFN of width n * I is n of them: its gate and up matrices [n I, H] are [n, I, H] as they lie; its down
// matrix [H, n I] must be split by columns into [n, H, I].
//
// STATUS, STREAMS, THREADS as in moert.h. moe_layer_forward() changes nothing in the layer: many threads may run one
// layer at once, each with its own workspace. It allocates nothing, waits for nothing and reads nothing back; streams in
// capture may be passed, and a captured graph may be replayed with other data at the same addresses (but with the same
// number of tokens). Nothing is kept about a call: workspace and tensors are the caller's until its stream is past it.
// Everything about a call is checked before anything is launched: after MOE_ERR_ARGUMENT, _SIGNATURE or _LIMIT nothing was;
// after MOE_ERR_DEVICE some of its kernels may have been. They go to the driver together, which costs the host a few
// microseconds a call (docs/runtime.md says when not); MOE_NO_BATCH=1 in the environment of moe_open(): one by one.
#ifndef MOELAYER_H
#define MOELAYER_H
#include "moert.h"

#ifdef __cplusplus
extern "C" {
#endif

enum moe_score { MOE_SOFTMAX = 0, MOE_SIGMOID = 1 };
enum moe_activation {    // g = x W_gate^T, u = x W_up^T, after their biases
    MOE_ACT_SWIGLU = 0,  // g sigmoid(g) u
    MOE_ACT_GEGLU = 1,   // gelu(g) u, gelu in its tanh form
    MOE_ACT_CLAMPED = 2, // g' sigmoid(alpha g') (u' + 1), g' = min(g, limit), u' = clamp(u, -limit, limit); with biases
};
struct moe_layer_desc { // zero means no, none, or as said
    size_t size;        // set by the caller: sizeof(struct moe_layer_desc)
    int experts;        // E: routed experts that the logits speak of, 1 .. 512
    int topk;           // chosen a token, 1 .. 32 with the shared ones
    int shared;         // further experts that every token visits
    int hidden, ffn;    // H <= 32768, I <= 65536, multiples of 8
    int dtype;          // of x, weights and y: IMAGE_BF16 or IMAGE_F16
    int activation;     // enum moe_activation
    float alpha, limit; // of MOE_ACT_CLAMPED (gpt-oss: 1.702, 7)
    // Routing: p = score(logits); the topk experts with the largest p + select_bias, the lower index on ties.
    int score;               // enum moe_score
    int renorm;              // 1: weights are divided by their sum (+ 1e-20)
    float scale;             // then multiplied by this; 0 means 1
    int groups, keep_groups; // experts are chosen within the best keep_groups of `groups` (<= 32) equal groups; 0: all
    int group_pairs;         // 1: a group is worth the sum of its two best experts, 0: its best
    int shared_gate;         // 1: the shared experts' weight is sigmoid(x . weights.shared_gate), 0: it is 1
    int64_t local; // experts that the weight tensors hold; 0: experts + shared. Others need weights.expert_map
};
struct moe_layer_weights { // device memory, the caller's, read by every forward; row-major, contiguous, 16-byte aligned
    size_t size;           // set by the caller
    const void *gate, *up; // dtype [local, I, H]. up NULL: gate holds [local, 2, I, H], gate before up
    const void *down;      // dtype [local, H, I]
    const void *gate_bias, *up_bias; // dtype [local, I]; up_bias NULL: gate_bias holds [local, 2, I]
    const void *down_bias;           // dtype [local, H]; NULL: none
    const float *select_bias;        // [experts]; NULL: none
    const void *shared_gate;         // dtype [H]
    const int32_t *expert_map;       // [experts + shared]: index in the tensors above, or -1: not here. NULL: identity
};
struct moe_layer;
// The image must hold the kernels of kernels/moe.dsl that the description needs (compiled for other constants, it is
// refused by name). It must outlive the layer; layers may share it. Allocates a little device memory,
// and the driver some for what makes launches fast, once an image: freed with it.
MOE_API int moe_layer_create(struct moe_image *image, const struct moe_layer_desc *desc,
                             const struct moe_layer_weights *weights, struct moe_layer **out);
MOE_API void moe_layer_free(struct moe_layer *layer); // no forward may be running; NULL is allowed
MOE_API const struct moe_layer_desc *moe_layer_describe(const struct moe_layer *layer);

// Bytes that a call with up to `tokens` tokens needs; never fewer for more tokens. 0 for 0 tokens.
MOE_API size_t moe_layer_workspace(const struct moe_layer *layer, int64_t tokens);

enum moe_layer_step { MOE_ROUTE, MOE_COUNT, MOE_PLAN, MOE_GATE_UP, MOE_DOWN, MOE_COMBINE, MOE_LAYER_STEPS };
// What the steps leave in the workspace, in this order.
enum moe_layer_part {
    MOE_PART_IDS,       // i32 [T, K]: with expert_map, indices in the weight tensors
    MOE_PART_WEIGHTS,   // f32 [T, K]
    MOE_PART_COUNTS,    // i32 [C, local]
    MOE_PART_SLOT_ROW,  // i32 [T, K]: row of each slot, -1: none
    MOE_PART_ROW_TOKEN, // i32 [T * K]: token of each row
    MOE_PART_TILES,     // i32 [N, 4]: expert, first row, rows, 0
    MOE_PART_H,         // dtype [T * K, I]
    MOE_PART_D,         // dtype [T * K, H]
    MOE_PART_CHOSEN,    // i32 [T, K]: with expert_map, the router's ids
    MOE_LAYER_PARTS
};
struct moe_layer_call {
    size_t size;          // set by the caller
    int64_t tokens;       // T; 0 is a success at once. T * K < 2^31
    const void *x;        // dtype [T, H], 16-byte aligned, as all pointers here
    void *y;              // dtype [T, H]; may not overlap x
    const float *logits;  // [T, experts]; or NULL and both of
    const int32_t *ids;   // [T, K], K = topk + shared: the caller adds shared experts itself, ids `experts` ..
    const float *weights; // [T, K]
    void *workspace;
    size_t workspace_bytes;
    unsigned steps;     // bits 1 << enum moe_layer_step: only these, for callers that time or split them; 0: all
    int rows;           // tile of rows, one of the image's; 0: chosen
    void *const *parts; // NULL, or where each enum moe_layer_part lies instead of in the workspace: apart from all else
};
MOE_API int moe_layer_forward(const struct moe_layer *layer, const struct moe_layer_call *call, void *stream);
// Where a part of a call with so many tokens lies in its workspace (rows: as in the call), and its bytes, which may be 0.
MOE_API int moe_layer_part(const struct moe_layer *layer, int64_t tokens, int rows, enum moe_layer_part part,
                           size_t *offset, size_t *bytes);

// ---- choice of the variant
// The tile of rows that a call with so many tokens takes: by an analytic model of the device (time of tiles and of bytes for
// uniform routing), or by a hint where one was measured to be faster.
MOE_API int moe_layer_rows(const struct moe_layer *layer, int64_t tokens);
// Tile i, ascending; 0 past the last.
MOE_API int moe_layer_variant(const struct moe_layer *layer, int i);
// The line that says that these rows were measured to be the fastest for so many tokens. size: 320 is enough.
MOE_API int moe_layer_hint(const struct moe_layer *layer, int64_t tokens, int rows, char *line, size_t size);
// Hints are text, made by `moerun tune`; those for another device, image or shape are passed over. Not while a forward runs.
MOE_API int moe_layer_hints(struct moe_layer *layer, const char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
