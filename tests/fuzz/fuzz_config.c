// libFuzzer target of models/config.c and json.c: any bytes give a model that the layer can be made for, or a reason.
// Members and items that are found lie in the text, are values themselves, and end where it ends.
#include "../../models/config.h"
#include "../../models/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void look_into(struct json_span v, int depth)
{
    static const char *const keys[] = { "a", "model_type", "text_config", "n_group" };
    struct json_span in;
    double real;
    int64_t integer;
    bool exact;
    char text[16];
    must(v.at < v.end);
    if (json_as_string(v, text, sizeof text))
        must(json_kind(v) == '"' && memchr(text, 0, sizeof text));
    if (json_as_number(v, &real, &integer, &exact) && exact && integer > -(1ll << 53) && integer < 1ll << 53)
        must(json_kind(v) == '0' && real == (double)integer);
    for (int i = 0; depth < 4 && i < 3; i++)
        if (json_find(v, NULL, i, &in)) {
            must(in.at > v.at && in.end == v.end);
            look_into(in, depth + 1);
        }
    for (size_t i = 0; depth < 4 && i < sizeof keys / sizeof keys[0]; i++)
        if (json_find(v, keys[i], 0, &in)) {
            must(in.at > v.at && in.end == v.end);
            look_into(in, depth + 1);
        }
}

// An odd first byte: the rest stands behind the kind that it picks, in an object. NULL: out of memory.
static char *text_of(const uint8_t *data, size_t *n)
{
    static const char *const kinds[] = { "mixtral",     "qwen2_moe", "qwen3_moe", "olmoe",  "deepseek_v2",
                                         "deepseek_v3", "kimi_k2",   "glm4_moe",  "gpt_oss" };
    char start[64] = "";
    if (*n && data[0] & 1) {
        snprintf(start, sizeof start, "{\"model_type\":\"%s\"", kinds[data[0] / 2 % (sizeof kinds / sizeof kinds[0])]);
        data++;
        --*n;
    }
    size_t before = strlen(start), all = before + *n + (before > 0);
    char *text = malloc(all ? all : 1); // of its exact size: a byte read beyond is seen
    if (!text)
        return NULL;
    memcpy(text, start, before);
    memcpy(text + before, data, *n);
    if (before)
        text[all - 1] = '}';
    *n = all;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *json = text_of(data, &n), why[400] = "", cut[3] = "";
    struct json_span v;
    struct model m;
    must(json);
    if (json_check(json, n, &v, why, sizeof why))
        look_into(v, 0);
    else
        must(why[0] && memchr(why, 0, sizeof why));
    if (model_from_config(json, n, &m, why, sizeof why)) {
        int groups = m.groups ? m.groups : 1, keep = m.groups ? m.keep_groups : 1;
        must(m.topk >= 1 && m.shared >= 0 && m.topk + m.shared <= 32 && m.experts <= 512 && m.experts % groups == 0);
        must(groups <= 32 && keep >= 1 && keep <= groups && m.topk <= m.experts / groups * keep);
        must(m.hidden >= 8 && m.hidden <= 32768 && m.hidden % 8 == 0 && m.ffn >= 8 && m.ffn <= 65536 && m.ffn % 8 == 0);
        must(m.scale > 0 && m.name[0] && !m.omits[0] && (m.shared || !m.shared_gate));
    } else {
        must(why[0] && memchr(why, 0, sizeof why));
        must(!model_from_config(json, n, &m, cut, sizeof cut) && !cut[2]);
    }
    free(json);
    return 0;
}
