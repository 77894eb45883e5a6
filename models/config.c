// config.json -> struct model. One row a kind of model: its fields' names, and the defaults that its configuration
// class in transformers has (src/transformers/models/*/configuration_*.py). What the layer cannot say is refused by
// name.
#include "config.h"
#include "json.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum router {
    LOGITS, // softmax over the chosen logits: over all, renormalised
    PLAIN,  // softmax, norm_topk_prob
    GREEDY, // DeepSeek-V2: softmax, topk_method, routed_scaling_factor
    NOAUX,  // DeepSeek-V3: sigmoid, score correction bias, groups by pairs, norm_topk_prob, routed_scaling_factor
};
enum shared { NONE, COUNT, WIDTH }; // n_shared_experts; shared_expert_intermediate_size behind a gate
enum { REQUIRED = -1, NO = -2 };    // in place of a default
static const struct kind {
    const char *type, *architecture;
    const char *experts, *experts_too; // the field, and the other name that the class takes for it, if any
    const char *ffn;
    int n_experts, topk, hidden, width; // defaults, as the following
    enum router router;
    bool renorm;
    double scale;
    int groups, keep;
    enum shared shared;
    int n_shared;
    enum model_activation activation;
} kinds[] = {
    // clang-format off
    { "mixtral",     "MixtralForCausalLM",    "num_local_experts", "num_experts",       "intermediate_size",
      8, 2, 4096, 14336,        LOGITS, true,  1,   NO, NO, NONE,  0,    MODEL_SILU },
    { "qwen2_moe",   "Qwen2MoeForCausalLM",   "num_experts",       NULL,                "moe_intermediate_size",
      60, 4, 2048, 1408,        PLAIN,  false, 1,   NO, NO, WIDTH, 5632, MODEL_SILU },
    { "qwen3_moe",   "Qwen3MoeForCausalLM",   "num_experts",       "num_local_experts", "moe_intermediate_size",
      128, 8, 2048, 768,        PLAIN,  false, 1,   NO, NO, NONE,  0,    MODEL_SILU },
    { "olmoe",       "OlmoeForCausalLM",      "num_experts",       "num_local_experts", "intermediate_size",
      64, 8, 2048, 2048,        PLAIN,  false, 1,   NO, NO, NONE,  0,    MODEL_SILU },
    { "deepseek_v2", "DeepseekV2ForCausalLM", "n_routed_experts",  "num_experts",       "moe_intermediate_size",
      64, REQUIRED, 4096, 1407, GREEDY, false, 1,   NO, NO, COUNT, 2,    MODEL_SILU },
    { "deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts",  "num_local_experts", "moe_intermediate_size",
      256, 8, 7168, 2048,       NOAUX,  true,  2.5, 8, 4,   COUNT, 1,    MODEL_SILU },
    { "kimi_k2",     "KimiK2ForCausalLM",     "n_routed_experts",  "num_local_experts", "moe_intermediate_size",
      256, 8, 7168, 2048,       NOAUX,  true,  2.5, 8, 4,   COUNT, 1,    MODEL_SILU }, // the class of deepseek_v3
    { "glm4_moe",    "Glm4MoeForCausalLM",    "n_routed_experts",  "num_local_experts", "moe_intermediate_size",
      128, 8, 4096, 1408,       NOAUX,  true,  1,   1, 1,   COUNT, 1,    MODEL_SILU },
    { "gpt_oss",     "GptOssForCausalLM",     "num_local_experts", "num_experts",       "intermediate_size",
      128, 4, 2880, 2880,       LOGITS, true,  1,   NO, NO, NONE,  0,    MODEL_CLAMPED },
    // clang-format on
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct reading {
    struct json_span in; // the object that the fields are in
    char *why;
    size_t why_size;
};

static bool refuse(const struct reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const struct reading *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, r->why_size, fmt, ap);
    va_end(ap);
    return false;
}

// ---- fields

// *out is the default before. false: refused. Of an optional field null is NO, otherwise it is refused.
static bool int_field(const struct reading *r, const char *name, int least, int most, bool optional, int *out)
{
    struct json_span v;
    double real;
    int64_t n = 0;
    bool exact = false;
    if (!json_find(r->in, name, 0, &v))
        return *out != REQUIRED || refuse(r, "%s is missing", name);
    if (optional && json_kind(v) == 'n') {
        *out = NO;
        return true;
    }
    if (!json_as_number(v, &real, &n, &exact) || !exact)
        return refuse(r, "%s is not an integer", name);
    if (n < least || n > most)
        return refuse(r, "%s is %lld: expected %d to %d", name, (long long)n, least, most);
    *out = (int)n;
    return true;
}

static bool real_field(const struct reading *r, const char *name, double *out)
{
    struct json_span v;
    int64_t n;
    bool exact;
    if (!json_find(r->in, name, 0, &v))
        return true;
    if (!json_as_number(v, out, &n, &exact))
        return refuse(r, "%s is not a number", name);
    return *out > 0 || refuse(r, "%s is %g: expected a positive number", name, *out);
}

static bool bool_field(const struct reading *r, const char *name, bool *out)
{
    struct json_span v;
    if (!json_find(r->in, name, 0, &v))
        return true;
    *out = json_kind(v) == 't';
    return *out || json_kind(v) == 'f' || refuse(r, "%s is neither true nor false", name);
}

// The field is one of the words of a NULL-ended list (*which), or missing (*which stays).
static bool word_field(const struct reading *r, const char *name, const char *const *words, int *which)
{
    struct json_span v;
    char text[64];
    if (!json_find(r->in, name, 0, &v))
        return true;
    if (!json_as_string(v, text, sizeof text))
        return refuse(r, "%s is not a string", name);
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) {
            *which = i;
            return true;
        }
    return refuse(r, "%s is '%s', which this layer cannot say", name, text);
}

// ---- parts of the layer

static bool sizes(const struct reading *r, const struct kind *k, struct model *m)
{
    int too = NO;
    m->experts = k->n_experts;
    m->topk = k->topk;
    m->hidden = k->hidden;
    m->ffn = k->width;
    if (k->experts_too && !int_field(r, k->experts_too, 1, 512, false, &too))
        return false;
    m->experts = too == NO ? m->experts : too;
    if (!int_field(r, k->experts, 1, 512, false, &m->experts) ||
        !int_field(r, "num_experts_per_tok", 1, 32, false, &m->topk) ||
        !int_field(r, "hidden_size", 1, 32768, false, &m->hidden) || !int_field(r, k->ffn, 1, 65536, false, &m->ffn))
        return false;
    if (too != NO && too != m->experts)
        return refuse(r, "%s is %d, but %s is %d", k->experts, m->experts, k->experts_too, too);
    if (m->topk > m->experts)
        return refuse(r, "num_experts_per_tok is %d of %d experts", m->topk, m->experts);
    if (m->hidden % 8 || m->ffn % 8)
        return refuse(r, "%s is %d, which is not a multiple of 8", m->hidden % 8 ? "hidden_size" : k->ffn,
                      m->hidden % 8 ? m->hidden : m->ffn);
    return true;
}

static bool groups(const struct reading *r, const struct kind *k, struct model *m)
{
    m->groups = k->groups;
    m->keep_groups = k->keep;
    if (!int_field(r, "n_group", 1, 32, true, &m->groups) || !int_field(r, "topk_group", 1, 32, true, &m->keep_groups))
        return false;
    if (m->groups == NO || m->keep_groups == NO)
        return refuse(r, "%s is missing", m->groups == NO ? "n_group" : "topk_group");
    if (m->keep_groups > m->groups)
        return refuse(r, "topk_group is %d of %d groups", m->keep_groups, m->groups);
    if (m->experts % m->groups)
        return refuse(r, "n_group is %d, which does not divide %d experts", m->groups, m->experts);
    int size = m->experts / m->groups;
    if (m->topk > size * m->keep_groups)
        return refuse(r, "num_experts_per_tok is %d, but %d groups have %d experts", m->topk, m->keep_groups,
                      size * m->keep_groups);
    m->group_pairs = k->router == NOAUX;
    if (m->group_pairs && size < 2)
        return refuse(r, "n_group is %d: a group needs two experts", m->groups);
    if (m->keep_groups == m->groups) // as good as none
        m->groups = m->keep_groups = m->group_pairs = 0;
    return true;
}

static bool router(const struct reading *r, const struct kind *k, struct model *m)
{
    static const char *const softmax[] = { "softmax", NULL }, *const sigmoid[] = { "sigmoid", NULL },
                             *const greedy[] = { "greedy", "group_limited_greedy", NULL },
                             *const noaux[] = { "noaux_tc", NULL };
    int which = 0;
    m->sigmoid = m->bias = k->router == NOAUX;
    m->renorm = k->renorm;
    m->scale = k->scale;
    if (k->router != LOGITS && !bool_field(r, "norm_topk_prob", &m->renorm))
        return false;
    if (k->router == LOGITS || k->router == PLAIN)
        return true;
    if (!real_field(r, "routed_scaling_factor", &m->scale) ||
        !word_field(r, "scoring_func", m->sigmoid ? sigmoid : softmax, &which) ||
        !word_field(r, "topk_method", m->sigmoid ? noaux : greedy, &which))
        return false;
    if (k->router == GREEDY && m->renorm) // transformers passes over it; the authors' code then does not scale
        return refuse(r, "norm_topk_prob is true, which published codes of %s do not agree on", k->type);
    return which == 0 && k->router == GREEDY ? true : groups(r, k, m);
}

static bool shared(const struct reading *r, const struct kind *k, struct model *m)
{
    static const char width[] = "shared_expert_intermediate_size";
    int n = k->n_shared;
    if (k->shared == COUNT && !int_field(r, "n_shared_experts", 0, 31, true, &n))
        return false;
    if (k->shared == WIDTH) {
        if (!int_field(r, width, 0, 31 * 65536, false, &n))
            return false;
        if (n % m->ffn)
            return refuse(r, "%s is %d, which is not a multiple of %s, %d", width, n, k->ffn, m->ffn);
        n /= m->ffn;
        m->shared_gate = n > 0;
    }
    m->shared = n == NO ? 0 : n;
    return m->topk + m->shared <= 32 ||
           refuse(r, "%d experts and %d shared ones a token are more than 32", m->topk, m->shared);
}

static bool activation(const struct reading *r, const struct kind *k, struct model *m)
{
    static const char *const words[] = { "silu", "swish", "gelu_pytorch_tanh", "gelu_new", NULL };
    bool biases = false;
    int which = 0;
    if (!word_field(r, "hidden_act", words, &which) || !bool_field(r, "mlp_bias", &biases))
        return false;
    if (biases)
        return refuse(r, "mlp_bias is true, which this layer cannot say");
    m->activation = which > 1 ? MODEL_GELU : k->activation;
    if (k->activation != MODEL_CLAMPED)
        return true;
    m->biases = true;
    m->alpha = 1.702;
    m->limit = 7;
    return (which <= 1 || refuse(r, "hidden_act is '%s', which %s does not have", words[which], k->type)) &&
           real_field(r, "swiglu_alpha", &m->alpha) && real_field(r, "swiglu_limit", &m->limit);
}

// ---- the kind

static const struct kind *find_kind(const char *type, const char *architecture)
{
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(type, kinds[i].type))
            return &kinds[i];
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(architecture, kinds[i].architecture))
            return &kinds[i];
    return NULL;
}

static bool unknown(const struct reading *r, const char *type)
{
    char list[256] = "";
    for (int i = 0; i < KINDS; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), " %s", kinds[i].type);
    return type[0] ? refuse(r, "model_type '%s' is none of the known ones:%s", type, list)
                   : refuse(r, "model_type is missing; the known ones are:%s", list);
}

bool model_from_config(const char *json, size_t n, struct model *out, char *why, size_t why_size)
{
    struct reading r = { .why = why, .why_size = why_size };
    const struct kind *k = NULL;
    char type[64] = "", architecture[64] = "";
    struct json_span v;
    if (!json_check(json, n, &r.in, why, why_size))
        return false;
    if (json_kind(r.in) != '{')
        return refuse(&r, "not an object");
    for (;;) {
        if (json_find(r.in, "model_type", 0, &v) && !json_as_string(v, type, sizeof type))
            return refuse(&r, "model_type is not a string");
        if (json_find(r.in, "architectures", 0, &v) && json_find(v, NULL, 0, &v))
            json_as_string(v, architecture, sizeof architecture);
        k = find_kind(type, architecture);
        if (k)
            break;
        if (!json_find(r.in, "text_config", 0, &v) || json_kind(v) != '{')
            return unknown(&r, type);
        r.in = v;
    }
    struct model m = { .name = k->type, .omits = "" };
    if (!sizes(&r, k, &m) || !router(&r, k, &m) || !shared(&r, k, &m) || !activation(&r, k, &m))
        return false;
    *out = m;
    return true;
}
