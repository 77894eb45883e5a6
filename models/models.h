// Shapes and routing semantics of public Mixture-of-Experts models: one row each, taken from the config.json that its
// authors published. Data only.
#ifndef MOE_MODELS_H
#define MOE_MODELS_H
#include <stdbool.h>

struct model {
    const char *name;
    int experts, topk, hidden, ffn; // ffn: of one expert
    bool sigmoid;                   // scores: sigmoid of the logits, else softmax over all experts
    bool bias;                      // selection by score + bias of the expert; weights stay unbiased
    bool renorm;                    // weights divided by their sum
    double scale;                   // and multiplied by this
    int groups, keep_groups;        // selection within the best groups; 0: no groups
    const char *omits;              // what this layer of the model has and these kernels do not; "" if nothing
};
extern const struct model models[];
extern const int nmodels;
const struct model *model_find(const char *name); // NULL if unknown
#endif
