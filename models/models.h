// Shapes and routing semantics of public Mixture-of-Experts models: one row each, taken from the config.json that its
// authors published. Data only.
#ifndef MOE_MODELS_H
#define MOE_MODELS_H
#include <stdbool.h>

enum model_activation {
    MODEL_SILU,    // silu(g) u
    MODEL_GELU,    // gelu(g) u, tanh form
    MODEL_CLAMPED, // g' sigmoid(alpha g') (u' + 1), g' = min(g, limit), u' = clamp(u, -limit, limit)
};
struct model {
    const char *name;
    int experts, topk, hidden, ffn; // experts: routed ones; ffn: of one expert
    bool sigmoid;                   // scores: sigmoid of the logits, else softmax over all experts
    bool bias;                      // selection by score + bias of the expert; weights stay unbiased
    bool renorm;                    // weights divided by their sum
    double scale;                   // and multiplied by this
    int groups, keep_groups;        // selection within the best groups; 0: no groups
    bool group_pairs;               // a group is worth the sum of its two best experts, else its best
    int shared;                     // experts of width ffn that every token visits: one shared FFN of shared * ffn
    bool shared_gate;               // their weight is sigmoid(x . gate), else 1
    enum model_activation activation;
    double alpha, limit; // of MODEL_CLAMPED
    bool biases;         // of gate, up and down
    const char *omits;   // what this layer of the model has and these kernels do not; "" if nothing
};
extern const struct model models[];
extern const int nmodels;
const struct model *model_find(const char *name); // NULL if unknown
#endif
