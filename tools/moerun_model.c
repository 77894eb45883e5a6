// --model: a list of names of the table, of E:K:H:I[:word...] and of config.json files.
#include "moerun.h"
#include "../models/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// "shared=2" and the like: the number behind the name, *end behind both. 0: not that word, or not from 1 to `most`.
static int counted(const char *word, const char *name, int most, const char **end)
{
    size_t n = strlen(name);
    char *after;
    if (strncmp(word, name, n) != 0)
        return 0;
    long v = strtol(word + n, &after, 10);
    *end = after;
    return v >= 1 && v <= most ? (int)v : 0;
}

// groups=G/KEEP or groups=G/KEEPp
static bool group_word(const char *word, struct model *m)
{
    const char *end = "";
    int groups = counted(word, "groups=", 32, &end), keep = groups && *end == '/' ? counted(end, "/", groups, &end) : 0;
    m->group_pairs = *end == 'p';
    if (!keep || end[m->group_pairs] || m->experts % groups || m->topk > m->experts / groups * keep)
        return report(EXIT_USAGE,
                      "--model: '%s': expected groups=G/KEEP or groups=G/KEEPp, G equal groups of %d experts", word,
                      m->experts);
    if (m->group_pairs && m->experts / groups < 2)
        return report(EXIT_USAGE, "--model: '%s': a group needs two experts", word);
    m->groups = groups;
    m->keep_groups = keep;
    return true;
}

static bool custom_word(const char *word, struct model *m)
{
    const char *end = "";
    char *rest;
    double v = strtod(word, &rest);
    int n = counted(word, "shared=", 31, &end);
    if (n && !*end)
        m->shared = n;
    else if (!strncmp(word, "groups", 6))
        return group_word(word, m);
    else if (!strcmp(word, "sigmoid"))
        m->sigmoid = true;
    else if (!strcmp(word, "bias"))
        m->bias = true;
    else if (!strcmp(word, "raw"))
        m->renorm = false;
    else if (!strcmp(word, "gate"))
        m->shared_gate = true;
    else if (!strcmp(word, "gelu"))
        m->activation = MODEL_GELU;
    else if (!strcmp(word, "clamped")) {
        m->activation = MODEL_CLAMPED;
        m->alpha = 1.702;
        m->limit = 7;
    } else if (!strcmp(word, "biases"))
        m->biases = true;
    else if (rest != word && !*rest && isfinite(v))
        m->scale = v;
    else
        return report(
            EXIT_USAGE,
            "--model: '%s' is none of sigmoid, bias, raw, groups=G/KEEP[p], shared=N, gate, gelu, clamped, biases "
            "or a number",
            word);
    return true;
}

// E:K:H:I and then words
static bool custom_model(char *s, struct model *m)
{
    int used = 0;
    *m = (struct model){ .name = m->name, .renorm = true, .scale = 1, .omits = "" };
    if (sscanf(s, "%d:%d:%d:%d%n", &m->experts, &m->topk, &m->hidden, &m->ffn, &used) != 4 || m->experts < 1 ||
        m->experts > 512 || m->topk < 1 || m->topk > 32 || m->topk > m->experts || m->hidden < 1 || m->ffn < 1 ||
        (s[used] && s[used] != ':'))
        return report(EXIT_USAGE, "--model=%s: expected E:K:H:I, at most 512 experts and 32 choices", s);
    for (char *word = s + used; *word;) {
        char *next = strchr(word + 1, ':'), *text = word + 1;
        if (next)
            *next = 0;
        bool ok = custom_word(text, m);
        if (next)
            *next = ':';
        if (!ok)
            return false;
        word = next ? next : text + strlen(text);
    }
    if (m->topk + m->shared > 32)
        return report(EXIT_USAGE, "--model=%s: more than 32 choices with the shared ones", s);
    if (m->shared_gate && !m->shared)
        return report(EXIT_USAGE, "--model=%s: a gate of shared experts, but none of those", s);
    return m->biases == (m->activation == MODEL_CLAMPED) ||
           report(EXIT_USAGE, "--model=%s: 'clamped' and 'biases' go together", s);
}

static bool config_model(const char *path, struct model *m)
{
    char *bytes, why[400];
    const char *name = m->name;
    size_t n;
    if (!read_file(path, &bytes, &n))
        return false;
    bool ok = model_from_config(bytes, n, m, why, sizeof why) || report(EXIT_USAGE, "%s: %s", path, why);
    m->name = name;
    free(bytes);
    return ok;
}

// The word itself; of a path its last part, without .json, or of .../X/config.json X.
static void name_of(struct custom_model *c, bool path)
{
    char copy[sizeof c->word], *last = copy;
    memcpy(copy, c->word, sizeof copy);
    size_t n = strlen(copy);
    if (path && n > 5 && !strcmp(copy + n - 5, ".json"))
        copy[n - 5] = 0;
    char *slash = strrchr(copy, '/');
    if (path && slash && slash > copy && !strcmp(slash, "/config"))
        *slash = 0;
    if (path && (slash = strrchr(copy, '/')))
        last = slash + 1;
    snprintf(c->name, sizeof c->name, "%.63s", *last ? last : "config");
    for (char *p = c->name; *p; p++)
        *p = *p == '/' ? '-' : *p;
    c->model.name = c->name;
}

static bool known_model(const char *word, struct options *o)
{
    const struct model *m = model_find(word);
    if (m) {
        o->models[o->nmodels++] = m;
        return true;
    }
    fprintf(stderr, "moerun: the models are:");
    for (int i = 0; i < nmodels; i++)
        fprintf(stderr, " %s", models[i].name);
    fputc('\n', stderr);
    return report(EXIT_USAGE, "unknown model '%s'", word);
}

bool model_list(const char *s, struct options *o)
{
    o->nmodels = o->ncustom = 0;
    for (; *s; s += *s == ',') {
        struct custom_model *c = &o->custom[o->ncustom];
        size_t n = strcspn(s, ",");
        if (o->nmodels == LIST_MAX || n >= sizeof c->word)
            return report(EXIT_USAGE, "--model: more than %d models, or a word of more than %zu characters", LIST_MAX,
                          sizeof c->word - 1);
        memcpy(c->word, s, n);
        c->word[n] = 0;
        s += n;
        bool json = n >= 5 && !strcmp(c->word + n - 5, ".json"), custom = !json && strchr(c->word, ':');
        name_of(c, !custom);
        if (!strcmp(c->word, "all")) {
            for (int i = 0; i < nmodels && o->nmodels < LIST_MAX; i++)
                o->models[o->nmodels++] = &models[i];
        } else if (custom || json || strchr(c->word, '/')) {
            if (!(custom ? custom_model(c->word, &c->model) : config_model(c->word, &c->model)))
                return false;
            o->models[o->nmodels++] = &c->model;
            o->ncustom++;
        } else if (!known_model(c->word, o)) {
            return false;
        }
    }
    return o->nmodels > 0 || report(EXIT_USAGE, "no model");
}
