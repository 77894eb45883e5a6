// The table of models.h.
//
// Each row is what its authors' config.json says (models/config.h reads such a file; tests/test_config.c holds the
// fields of each and compares):
//   experts       num_local_experts (mixtral, gpt-oss), num_experts (qwen, olmoe), n_routed_experts (others)
//   top-k         num_experts_per_tok            hidden   hidden_size
//   ffn           moe_intermediate_size; intermediate_size (mixtral, gpt-oss, olmoe)
//   renorm        norm_topk_prob; mixtral and gpt-oss: their softmax runs over the selected logits only, which is the
//                 same as a softmax over all, renormalised
//   bias          e_score_correction_bias of the checkpoint (topk_method noaux_tc)     scale   routed_scaling_factor
//   groups, keep  n_group, topk_group; pairs: noaux_tc adds the two best of a group, group_limited_greedy takes the
//                 best; one group, or topk_method greedy: none
//   shared, gate  n_shared_experts; shared_expert_intermediate_size / moe_intermediate_size, behind a gate (qwen2_moe)
//   alpha, limit  1.702 of the published code, swiglu_limit
//
// Left out, since the layer cannot say them: llama-4 multiplies the expert's input, not its output, by the weight;
// phi-3.5-moe (sparsemixer) takes each weight from a softmax over those logits alone that are near that choice's.
#include "models.h"

#include <stddef.h>
#include <string.h>

#define SOFTMAX false
#define SIGMOID true
#define SILU MODEL_SILU, 0, 0, false
#define CLAMP MODEL_CLAMPED, 1.702, 7, true // with biases

// clang-format off
const struct model models[] = {
    //                                                                           groups           shared
    //  name             experts top-k hidden   ffn  scores   bias  renorm scale    keep pairs      gate  act.  omits
    { "tiny",                 8,    2,   256,   384, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, SILU, "" },
    { "mixtral-8x7b",         8,    2,  4096, 14336, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, SILU, "" },
    { "mixtral-8x22b",        8,    2,  6144, 16384, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, SILU, "" },
    { "qwen1.5-moe-a2.7b",   60,    4,  2048,  1408, SOFTMAX, false, false, 1.0,   0, 0, false,  4, true,  SILU, "" },
    { "qwen2-57b-a14b",      64,    8,  3584,  2560, SOFTMAX, false, false, 1.0,   0, 0, false,  8, true,  SILU, "" },
    { "qwen3-30b-a3b",      128,    8,  2048,   768, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, SILU, "" },
    { "qwen3-235b-a22b",    128,    8,  4096,  1536, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, SILU, "" },
    { "deepseek-v2",        160,    6,  5120,  1536, SOFTMAX, false, false, 16.0,  8, 3, false,  2, false, SILU, "" },
    { "deepseek-v2-lite",    64,    6,  2048,  1408, SOFTMAX, false, false, 1.0,   0, 0, false,  2, false, SILU, "" },
    { "deepseek-v3",        256,    8,  7168,  2048, SIGMOID, true,  true,  2.5,   8, 4, true,   1, false, SILU, "" },
    { "kimi-k2",            384,    8,  7168,  2048, SIGMOID, true,  true,  2.827, 0, 0, false,  1, false, SILU, "" },
    { "glm-4.5",            160,    8,  5120,  1536, SIGMOID, true,  true,  2.5,   0, 0, false,  1, false, SILU, "" },
    { "glm-4.5-air",        128,    8,  4096,  1408, SIGMOID, true,  true,  1.0,   0, 0, false,  1, false, SILU, "" },
    { "gpt-oss-20b",         32,    4,  2880,  2880, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, CLAMP, "" },
    { "gpt-oss-120b",       128,    4,  2880,  2880, SOFTMAX, false, true,  1.0,   0, 0, false,  0, false, CLAMP, "" },
    { "olmoe-7b",            64,    8,  2048,  1024, SOFTMAX, false, false, 1.0,   0, 0, false,  0, false, SILU, "" },
};
// clang-format on
const int nmodels = sizeof models / sizeof models[0];

const struct model *model_find(const char *name)
{
    for (int i = 0; i < nmodels; i++)
        if (!strcmp(models[i].name, name))
            return &models[i];
    return NULL;
}
