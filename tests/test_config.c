// models/config.c on the fields that the authors of each model of the table published (each must give the table's row),
// on defaults, and on what it must refuse; models/json.c on texts that are and are not JSON.
#include "../models/config.h"
#include "../models/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// ---- the published files, as far as they speak of the layer

#define ARCHITECTURE(a) "{\"architectures\": [\"" a "\"], "
static const struct {
    const char *name, *json;
} published[] = {
    { "mixtral-8x7b",
      ARCHITECTURE("MixtralForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": "
                                         "14336, \"model_type\": \"mixtral\", \"num_experts_per_tok\": 2, "
                                         "\"num_local_experts\": 8, \"router_aux_loss_coef\": 0.02}" },
    { "mixtral-8x22b",
      ARCHITECTURE("MixtralForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 6144, \"intermediate_size\": "
                                         "16384, \"model_type\": \"mixtral\", \"num_experts_per_tok\": 2, "
                                         "\"num_local_experts\": 8}" },
    { "qwen1.5-moe-a2.7b",
      ARCHITECTURE("Qwen2MoeForCausalLM") "\"decoder_sparse_step\": 1, \"hidden_act\": \"silu\", \"hidden_size\": "
                                          "2048, \"intermediate_size\": 5632, \"model_type\": \"qwen2_moe\", "
                                          "\"moe_intermediate_size\": 1408, \"norm_topk_prob\": false, "
                                          "\"num_experts\": 60, \"num_experts_per_tok\": 4, "
                                          "\"shared_expert_intermediate_size\": 5632}" },
    { "qwen2-57b-a14b",
      ARCHITECTURE("Qwen2MoeForCausalLM") "\"decoder_sparse_step\": 1, \"hidden_act\": \"silu\", \"hidden_size\": "
                                          "3584, \"intermediate_size\": 18944, \"model_type\": \"qwen2_moe\", "
                                          "\"moe_intermediate_size\": 2560, \"norm_topk_prob\": false, "
                                          "\"num_experts\": 64, \"num_experts_per_tok\": 8, "
                                          "\"shared_expert_intermediate_size\": 20480}" },
    { "qwen3-30b-a3b",
      ARCHITECTURE("Qwen3MoeForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": "
                                          "6144, \"mlp_only_layers\": [], \"model_type\": \"qwen3_moe\", "
                                          "\"moe_intermediate_size\": 768, \"norm_topk_prob\": true, "
                                          "\"num_experts\": 128, \"num_experts_per_tok\": 8}" },
    { "qwen3-235b-a22b",
      ARCHITECTURE("Qwen3MoeForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": "
                                          "12288, \"model_type\": \"qwen3_moe\", \"moe_intermediate_size\": 1536, "
                                          "\"norm_topk_prob\": true, \"num_experts\": 128, "
                                          "\"num_experts_per_tok\": 8}" },
    { "deepseek-v2",
      ARCHITECTURE("DeepseekV2ForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 5120, \"intermediate_size\": "
                                            "12288, \"model_type\": \"deepseek_v2\", \"moe_intermediate_size\": 1536, "
                                            "\"n_group\": 8, \"n_routed_experts\": 160, "
                                            "\"n_shared_experts\": 2, \"norm_topk_prob\": false, "
                                            "\"num_experts_per_tok\": 6, \"routed_scaling_factor\": 16.0, "
                                            "\"scoring_func\": \"softmax\", \"topk_group\": 3, \"topk_method\": "
                                            "\"group_limited_greedy\"}" },
    { "deepseek-v2-lite",
      ARCHITECTURE(
          "DeepseekV2ForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": "
                                   "10944, \"model_type\": \"deepseek_v2\", \"moe_intermediate_size\": 1408, "
                                   "\"n_group\": 1, \"n_routed_experts\": 64, "
                                   "\"n_shared_experts\": 2, \"norm_topk_prob\": false, \"num_experts_per_tok\": 6, "
                                   "\"routed_scaling_factor\": 1.0, "
                                   "\"scoring_func\": \"softmax\", \"topk_group\": 1, \"topk_method\": \"greedy\"}" },
    { "deepseek-v3",
      ARCHITECTURE(
          "DeepseekV3ForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 7168, \"intermediate_size\": "
                                   "18432, \"model_type\": \"deepseek_v3\", \"moe_intermediate_size\": 2048, "
                                   "\"n_group\": 8, \"n_routed_experts\": 256, "
                                   "\"n_shared_experts\": 1, \"norm_topk_prob\": true, \"num_experts_per_tok\": 8, "
                                   "\"routed_scaling_factor\": 2.5, "
                                   "\"scoring_func\": \"sigmoid\", \"topk_group\": 4, \"topk_method\": \"noaux_tc\"}" },
    { "kimi-k2",
      ARCHITECTURE(
          "DeepseekV3ForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 7168, \"intermediate_size\": 18432, "
                                   "\"model_type\": \"kimi_k2\", \"moe_intermediate_size\": 2048, \"n_group\": 1, "
                                   "\"n_routed_experts\": 384, \"n_shared_experts\": 1, "
                                   "\"norm_topk_prob\": true, \"num_experts_per_tok\": 8, \"routed_scaling_factor\": "
                                   "2.827, \"scoring_func\": \"sigmoid\", "
                                   "\"topk_group\": 1, \"topk_method\": \"noaux_tc\"}" },
    { "glm-4.5",
      ARCHITECTURE(
          "Glm4MoeForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 5120, \"intermediate_size\": 12288, "
                                "\"model_type\": \"glm4_moe\", \"moe_intermediate_size\": 1536, \"norm_topk_prob\": "
                                "true, \"n_group\": 1, \"topk_group\": 1, "
                                "\"n_routed_experts\": 160, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5, "
                                "\"num_experts_per_tok\": 8}" },
    { "glm-4.5-air",
      ARCHITECTURE(
          "Glm4MoeForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": 10944, "
                                "\"model_type\": \"glm4_moe\", \"moe_intermediate_size\": 1408, \"norm_topk_prob\": "
                                "true, \"n_group\": 1, \"topk_group\": 1, "
                                "\"n_routed_experts\": 128, \"n_shared_experts\": 1, \"routed_scaling_factor\": 1.0, "
                                "\"num_experts_per_tok\": 8}" },
    { "gpt-oss-20b",
      ARCHITECTURE("GptOssForCausalLM") "\"experts_per_token\": 4, \"hidden_act\": \"silu\", \"hidden_size\": 2880, "
                                        "\"intermediate_size\": 2880, \"model_type\": \"gpt_oss\", "
                                        "\"num_experts_per_tok\": 4, \"num_local_experts\": 32, "
                                        "\"swiglu_limit\": 7.0}" },
    { "gpt-oss-120b",
      ARCHITECTURE("GptOssForCausalLM") "\"experts_per_token\": 4, \"hidden_act\": \"silu\", \"hidden_size\": 2880, "
                                        "\"intermediate_size\": 2880, \"model_type\": \"gpt_oss\", "
                                        "\"num_experts_per_tok\": 4, \"num_local_experts\": 128, "
                                        "\"swiglu_limit\": 7.0}" },
    { "olmoe-7b",
      ARCHITECTURE("OlmoeForCausalLM") "\"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 1024, "
                                       "\"model_type\": \"olmoe\", \"norm_topk_prob\": false, \"num_experts\": 64, "
                                       "\"num_experts_per_tok\": 8}" },
};

// The first column in which two rows differ; NULL: none does.
static const char *difference(const struct model *a, const struct model *b)
{
    return a->experts != b->experts           ? "experts"
           : a->topk != b->topk               ? "topk"
           : a->hidden != b->hidden           ? "hidden"
           : a->ffn != b->ffn                 ? "ffn"
           : a->sigmoid != b->sigmoid         ? "sigmoid"
           : a->bias != b->bias               ? "bias"
           : a->renorm != b->renorm           ? "renorm"
           : a->scale != b->scale             ? "scale"
           : a->groups != b->groups           ? "groups"
           : a->keep_groups != b->keep_groups ? "keep_groups"
           : a->group_pairs != b->group_pairs ? "group_pairs"
           : a->shared != b->shared           ? "shared"
           : a->shared_gate != b->shared_gate ? "shared_gate"
           : a->activation != b->activation   ? "activation"
           : a->alpha != b->alpha             ? "alpha"
           : a->limit != b->limit             ? "limit"
           : a->biases != b->biases           ? "biases"
           : strcmp(a->omits, b->omits) != 0  ? "omits"
                                              : NULL;
}

static bool read_config(const char *json, struct model *m, char why[400])
{
    why[0] = 0;
    return model_from_config(json, strlen(json), m, why, 400);
}

static void test_published(void **state)
{
    char why[400];
    struct model m;
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const struct model *row = model_find(published[i].name);
        assert_non_null(row);
        if (!read_config(published[i].json, &m, why))
            fail_msg("%s: %s", row->name, why);
        if (difference(&m, row))
            fail_msg("%s: %s", row->name, difference(&m, row));
    }
    for (int i = 1; i < nmodels; i++) { // all but tiny are there
        bool there = false;
        for (size_t j = 0; j < sizeof published / sizeof published[0]; j++)
            there = there || !strcmp(models[i].name, published[j].name);
        if (!there)
            fail_msg("no published file of %s", models[i].name);
    }
}

// Files that leave fields out: what the classes of transformers take then.
#define CLAMPED \
    { \
        .experts = 128, .topk = 4, .hidden = 2880, .ffn = 2880, .renorm = true, .scale = 1, \
        .activation = MODEL_CLAMPED, .alpha = 1.702, .limit = 7, .biases = true \
    }
static const struct {
    const char *json;
    struct model m;
} defaults[] = {
    { "{\"model_type\":\"mixtral\"}",
      { .experts = 8, .topk = 2, .hidden = 4096, .ffn = 14336, .renorm = true, .scale = 1 } },
    { "{\"model_type\":\"qwen2_moe\"}",
      { .experts = 60, .topk = 4, .hidden = 2048, .ffn = 1408, .scale = 1, .shared = 4, .shared_gate = true } },
    { "{\"model_type\":\"qwen2_moe\",\"shared_expert_intermediate_size\":0}",
      { .experts = 60, .topk = 4, .hidden = 2048, .ffn = 1408, .scale = 1 } },
    { "{\"model_type\":\"qwen3_moe\"}", { .experts = 128, .topk = 8, .hidden = 2048, .ffn = 768, .scale = 1 } },
    { "{\"model_type\":\"qwen3_moe\",\"num_local_experts\":64}",
      { .experts = 64, .topk = 8, .hidden = 2048, .ffn = 768, .scale = 1 } },
    { "{\"model_type\":\"olmoe\"}", { .experts = 64, .topk = 8, .hidden = 2048, .ffn = 2048, .scale = 1 } },
    { "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408}",
      { .experts = 64, .topk = 6, .hidden = 4096, .ffn = 1408, .scale = 1, .shared = 2 } },
    { "{\"model_type\":\"deepseek_v3\"}",
      { .experts = 256,
        .topk = 8,
        .hidden = 7168,
        .ffn = 2048,
        .sigmoid = true,
        .bias = true,
        .renorm = true,
        .scale = 2.5,
        .groups = 8,
        .keep_groups = 4,
        .group_pairs = true,
        .shared = 1 } },
    { "{\"model_type\":\"kimi_k2\",\"n_group\":8,\"topk_group\":8,\"n_shared_experts\":null}",
      { .experts = 256,
        .topk = 8,
        .hidden = 7168,
        .ffn = 2048,
        .sigmoid = true,
        .bias = true,
        .renorm = true,
        .scale = 2.5 } }, // all groups kept: as good as none
    { "{\"model_type\":\"glm4_moe\"}",
      { .experts = 128,
        .topk = 8,
        .hidden = 4096,
        .ffn = 1408,
        .sigmoid = true,
        .bias = true,
        .renorm = true,
        .scale = 1,
        .shared = 1 } },
    { "{\"model_type\":\"mixtral\",\"hidden_act\":\"gelu_pytorch_tanh\"}",
      { .experts = 8, .topk = 2, .hidden = 4096, .ffn = 14336, .renorm = true, .scale = 1, .activation = MODEL_GELU } },
    { "{\"model_type\":\"gpt_oss\"}", CLAMPED },
    // the kind by the architecture; nested; the last of equal keys; escapes in names
    { "{\"architectures\":[\"GptOssForCausalLM\"]}", CLAMPED },
    { "{\"model_type\":\"mine\",\"architectures\":[\"GptOssForCausalLM\",\"x\"]}", CLAMPED },
    { "{\"model_type\":\"outer\",\"hidden_size\":8,\"text_config\":{\"model_type\":\"gpt_oss\"}}", CLAMPED },
    { "{\"text_config\":{\"text_config\":{\"architectures\":[\"GptOssForCausalLM\"]}}}", CLAMPED },
    { "{\"model_type\":\"gpt_oss\",\"hidden_size\":8,\"hidden_size\":2880}", CLAMPED },
    { "{\"\\u006dodel_type\":\"\\u0067pt_oss\",\"hidden_size\":2880 , \"\\ud83d\\ude00\":\"\\u00e9\\n\"}", CLAMPED },
};

static void test_defaults(void **state)
{
    char why[400];
    struct model m;
    (void)state;
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        struct model want = defaults[i].m;
        want.omits = "";
        if (!read_config(defaults[i].json, &m, why))
            fail_msg("row %zu: %s", i, why);
        if (difference(&m, &want))
            fail_msg("row %zu: %s", i, difference(&m, &want));
    }
}

#define MIX(fields) "{\"model_type\":\"mixtral\"," fields "}"
#define V3(fields) "{\"model_type\":\"deepseek_v3\"," fields "}"
#define V2(fields) \
    "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408," fields "}"
static const struct {
    const char *json, *why;
} refused[] = {
    { "", "byte 0: expected a value" },
    { "[]", "not an object" },
    { "{}", "model_type is missing; the known ones are: mixtral qwen2_moe qwen3_moe olmoe deepseek_v2 deepseek_v3 "
            "kimi_k2 glm4_moe gpt_oss" },
    { "{\"model_type\":\"llama\"}", "model_type 'llama' is none of the known ones: mixtral qwen2_moe" },
    { "{\"model_type\":\"a\",\"text_config\":{\"model_type\":\"b\"}}", "model_type 'b' is none" },
    { "{\"model_type\":\"a\",\"text_config\":[]}", "model_type 'a' is none" },
    { "{\"model_type\":7}", "model_type is not a string" },
    { MIX("\"hidden_size\":-8"), "hidden_size is -8: expected 1 to 32768" },
    { MIX("\"hidden_size\":0"), "hidden_size is 0" },
    { MIX("\"hidden_size\":4096.0"), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":4e3"), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":\"4096\""), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":null"), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":true"), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":18446744073709551616"), "hidden_size is not an integer" },
    { MIX("\"hidden_size\":4294971392"), "hidden_size is 4294971392: expected" },
    { MIX("\"hidden_size\":4092"), "hidden_size is 4092, which is not a multiple of 8" },
    { MIX("\"intermediate_size\":14332"), "intermediate_size is 14332, which is not a multiple of 8" },
    { MIX("\"intermediate_size\":65544"), "intermediate_size is 65544" },
    { MIX("\"num_local_experts\":513"), "num_local_experts is 513" },
    { MIX("\"num_local_experts\":8,\"num_experts\":16"), "num_local_experts is 8, but num_experts is 16" },
    { MIX("\"num_experts_per_tok\":9"), "num_experts_per_tok is 9 of 8 experts" },
    { MIX("\"num_experts_per_tok\":0"), "num_experts_per_tok is 0" },
    { MIX("\"hidden_act\":\"relu\""), "hidden_act is 'relu', which this layer cannot say" },
    { MIX("\"hidden_act\":\"gelu\""), "hidden_act is 'gelu'" }, // erf
    { MIX("\"hidden_act\":1"), "hidden_act is not a string" },
    { MIX("\"mlp_bias\":true"), "mlp_bias is true" },
    { "{\"model_type\":\"gpt_oss\",\"hidden_act\":\"gelu_new\"}", "hidden_act is 'gelu_new', which gpt_oss" },
    { "{\"model_type\":\"gpt_oss\",\"swiglu_limit\":-7.0}", "swiglu_limit is -7" },
    { "{\"model_type\":\"qwen3_moe\",\"norm_topk_prob\":1}", "norm_topk_prob is neither true nor false" },
    { "{\"model_type\":\"qwen2_moe\",\"shared_expert_intermediate_size\":5000}",
      "shared_expert_intermediate_size is 5000, which is not a multiple of moe_intermediate_size, 1408" },
    { "{\"model_type\":\"qwen2_moe\",\"shared_expert_intermediate_size\":42240}", "4 experts and 30 shared" },
    { "{\"model_type\":\"deepseek_v2\",\"moe_intermediate_size\":1408}", "num_experts_per_tok is missing" },
    { "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6}", "moe_intermediate_size is 1407, which is not" },
    { V2("\"norm_topk_prob\":true"), "norm_topk_prob is true, which published codes of deepseek_v2" },
    { V2("\"topk_method\":\"noaux_tc\""), "topk_method is 'noaux_tc'" },
    { V2("\"topk_method\":\"group_limited_greedy\""), "n_group is missing" },
    { V2("\"topk_method\":\"group_limited_greedy\",\"n_group\":8,\"topk_group\":null"), "topk_group is missing" },
    { V2("\"scoring_func\":\"sigmoid\""), "scoring_func is 'sigmoid'" },
    { V2("\"n_shared_experts\":-1"), "n_shared_experts is -1" },
    { V2("\"n_shared_experts\":27"), "6 experts and 27 shared ones" },
    { V3("\"scoring_func\":\"softmax\""), "scoring_func is 'softmax'" },
    { V3("\"topk_method\":\"greedy\""), "topk_method is 'greedy'" },
    { V3("\"n_group\":3"), "topk_group is 4 of 3 groups" },
    { V3("\"n_group\":7"), "n_group is 7, which does not divide 256 experts" },
    { V3("\"n_group\":64"), "n_group is 64: expected 1 to 32" },
    { V3("\"n_group\":0"), "n_group is 0" },
    { V3("\"n_routed_experts\":8,\"num_experts_per_tok\":4"), "n_group is 8: a group needs two experts" },
    { V3("\"n_routed_experts\":16,\"topk_group\":3"), "num_experts_per_tok is 8, but 3 groups have 6 experts" },
    { V3("\"routed_scaling_factor\":0"), "routed_scaling_factor is 0: expected a positive number" },
    { V3("\"routed_scaling_factor\":1e999"), "routed_scaling_factor is not a number" },
    { V3("\"routed_scaling_factor\":null"), "routed_scaling_factor is not a number" },
};

static void test_refused(void **state)
{
    char why[400];
    struct model m = { .name = "kept" };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (read_config(refused[i].json, &m, why))
            fail_msg("%s is let through", refused[i].json);
        if (!strstr(why, refused[i].why))
            fail_msg("%s: '%s', not '%s'", refused[i].json, why, refused[i].why);
        assert_string_equal(m.name, "kept");
    }
    assert_false(model_from_config("{", 1, &m, why, 4)); // cut, not beyond
    assert_string_equal(why, "byt");
}

// ---- JSON

static bool check(const char *text, char why[200])
{
    struct json_span v;
    why[0] = 0;
    return json_check(text, strlen(text), &v, why, 200);
}

static const char *const good[] = {
    "null",
    " true ",
    "false",
    "0",
    "-0",
    "-1.5e-3",
    "1E+2",
    "10.25",
    "\"\"",
    "[]",
    "{}",
    "[ ]",
    "{ }",
    "[1,2]",
    "{\"a\":[{\"b\":null}],\"a\":1}",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud834\\uDD1E\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
    "\"\xf4\x8f\xbf\xbf\"",
    "\t[\n]\r\n",
};
static const struct {
    const char *text, *why;
} bad[] = {
    { "", "byte 0: expected a value" },
    { "nul", "expected a value" },
    { "True", "expected a value" },
    { "NaN", "expected a value" },
    { "-Infinity", "byte 1: expected a value" },
    { "01", "byte 1: something behind the end" },
    { "-", "byte 1" },
    { "1.", "byte 2: expected a digit" },
    { ".5", "byte 0" },
    { "1e", "expected a digit" },
    { "1e+", "expected a digit" },
    { "+1", "byte 0" },
    { "'a'", "byte 0" },
    { "1 2", "byte 2: something behind the end" },
    { "[1,]", "byte 3: expected a value" },
    { "[1 2]", "byte 3: expected ','" },
    { "[", "expected a value" },
    { "[1", "expected ','" },
    { "[1}", "byte 2: expected ','" },
    { "{", "expected a key" },
    { "{a:1}", "byte 1: expected a key" },
    { "{\"a\"}", "expected ':'" },
    { "{\"a\":1,}", "byte 7: expected a key" },
    { "{\"a\":}", "byte 5: expected a value" },
    { "{\"a\":1]", "expected ','" },
    { "\"a", "a string without end" },
    { "\"\n\"", "control character" },
    { "\"\\x\"", "unknown escape" },
    { "\"\\", "unknown escape" },
    { "\"\\u12g4\"", "hexadecimal" },
    { "\"\\u12", "hexadecimal" },
    { "\"\\ud834\"", "surrogate" },
    { "\"\\ud834x\"", "surrogate" },
    { "\"\\udd1e\"", "surrogate" },
    { "\"\\ud834\\u0041\"", "surrogate" },
    { "\"\x80\"", "not UTF-8" },
    { "\"\xc3\"", "not UTF-8" },
    { "\"\xc0\x80\"", "not UTF-8" },
    { "\"\xed\xa0\x80\"", "not UTF-8" },
    { "\"\xf4\x90\x80\x80\"", "not UTF-8" },
    { "\"\xe2\x82", "not UTF-8" },
    { "\xef\xbb\xbf{}", "byte 0" },
    { "// a\n1", "byte 0" },
};

static void test_json_texts(void **state)
{
    char why[200];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!check(good[i], why))
            fail_msg("%s: %s", good[i], why);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (check(bad[i].text, why) || !strstr(why, bad[i].why))
            fail_msg("%s: '%s', not '%s'", bad[i].text, why, bad[i].why);
    struct json_span v;
    assert_false(json_check("1\0", 2, &v, why, sizeof why)); // a NUL is no end
    assert_false(json_check("\"\0\"", 3, &v, why, sizeof why));
}

static void test_json_limits(void **state)
{
    char text[2 * JSON_DIGITS + 8], why[200];
    (void)state;
    for (int depth = JSON_DEPTH; depth <= JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        assert_int_equal(check(text, why), depth == JSON_DEPTH);
    }
    memset(text, '[', sizeof text - 1); // only openings
    text[sizeof text - 1] = 0;
    assert_false(check(text, why));
    for (int n = JSON_DIGITS; n <= JSON_DIGITS + 1; n++) {
        memset(text, '1', (size_t)n);
        text[n] = 0;
        assert_int_equal(check(text, why), n == JSON_DIGITS);
    }
}

static struct json_span parsed(const char *text)
{
    struct json_span v;
    char why[200];
    if (!json_check(text, strlen(text), &v, why, sizeof why))
        fail_msg("%s: %s", text, why);
    return v;
}

static void test_json_values(void **state)
{
    struct json_span v,
        in = parsed(" {\"a\": [10, [1,2], \"x\"], \"b\": {\"a\": 3}, \"\\u0061\\/\": 4, \"a\": [0.5, -7]} ");
    double real;
    int64_t n;
    bool exact;
    char text[8];
    (void)state;
    assert_true(json_find(in, "a", 0, &v) && json_kind(v) == '[' && json_find(v, NULL, 1, &v)); // the last one
    assert_true(json_as_number(v, &real, &n, &exact) && exact && n == -7 && real == -7);
    assert_false(json_find(in, "c", 0, &v) || json_find(in, NULL, 0, &v) || json_find(parsed("[1]"), "a", 0, &v));
    assert_false(json_find(parsed("[1]"), NULL, 1, &v) || json_find(parsed("[]"), NULL, 0, &v));
    assert_true(json_find(in, "a/", 0, &v) && json_as_number(v, &real, &n, &exact) && n == 4);
    assert_true(json_find(in, "b", 0, &v) && json_find(v, "a", 0, &v) && json_as_number(v, &real, &n, &exact) &&
                n == 3);
    assert_true(json_as_number(parsed("9223372036854775807"), &real, &n, &exact) && exact && n == INT64_MAX);
    assert_true(json_as_number(parsed("-9223372036854775808"), &real, &n, &exact) && exact && n == INT64_MIN);
    assert_true(json_as_number(parsed("9223372036854775808"), &real, &n, &exact) && !exact && real == 0x1p63);
    assert_true(json_as_number(parsed("0.1"), &real, &n, &exact) && !exact && real == 0.1);
    assert_true(json_as_number(parsed("5e-324"), &real, &n, &exact) && !exact && real == 5e-324);
    assert_false(json_as_number(parsed("1e400"), &real, &n, &exact) ||
                 json_as_number(parsed("\"1\""), &real, &n, &exact));
    assert_true(json_as_string(parsed("\"\\u20ac\\ud83d\\ude00\""), text, sizeof text));
    assert_string_equal(text, "\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_true(json_as_string(parsed("\"12345678\""), text, sizeof text) && !text[0]); // does not fit
    assert_true(json_as_string(parsed("\"a\\u0000b\""), text, sizeof text) && !text[0]);
    assert_false(json_as_string(parsed("1"), text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),  cmocka_unit_test(test_defaults),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_json_texts), cmocka_unit_test(test_json_limits), cmocka_unit_test(test_json_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
