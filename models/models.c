// The table of models.h.
//
// "renorm" of mixtral and gpt-oss: their softmax runs over the selected logits only, which is the same as a softmax
// over all, renormalised.
#include "models.h"

#include <stddef.h>
#include <string.h>

#define SOFTMAX false
#define SIGMOID true

// clang-format off
const struct model models[] = {
    //  name             experts top-k hidden   ffn  scores  bias   renorm scale groups omits
    { "tiny",                 8,    2,   256,   384, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
    { "mixtral-8x7b",         8,    2,  4096, 14336, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
    { "mixtral-8x22b",        8,    2,  6144, 16384, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
    { "qwen2-57b-a14b",      64,    8,  3584,  2560, SOFTMAX, false, false, 1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "shared expert behind a gate" },
    { "qwen3-30b-a3b",      128,    8,  2048,   768, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
    { "qwen3-235b-a22b",    128,    8,  4096,  1536, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
    { "deepseek-v3",        256,    8,  7168,  2048, SIGMOID, true,  true,  2.5, 8, 4, false, 0, false, MODEL_SILU, 0, 0, false, "expert groups, shared expert" },
    { "gpt-oss-120b",       128,    4,  2880,  2880, SOFTMAX, false, true,  1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "biases, clamped activation" },
    { "olmoe-7b",            64,    8,  2048,  1024, SOFTMAX, false, false, 1.0, 0, 0, false, 0, false, MODEL_SILU, 0, 0, false, "" },
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
