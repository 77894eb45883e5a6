// The command line of moerun -> struct options. Every option is --name=value, but for -D, -v and flags.
#include "moerun.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void print_usage(FILE *f)
{
    fputs("usage: moerun COMMAND [OPTIONS]\n"
          "  run     one layer, once, with its checks shown         verify  every stage against double precision\n"
          "  bench   times by graph replay, checked after           check   any kernel against the compiler's eval\n"
          "  tune    every tile of rows measured, hints written     info    the devices, or what --image holds\n"
          "  cache   list, prune or clear: images compiled before\n"
          "where\n"
          "  --device=cuda:N|hip:N|sim:ARCH[,fast][,threads=N]|eval   sim: that GPU on the CPU, every fault named;\n"
          "                           eval: the tile IR on the host (default cuda:0 or hip:0;\n"
          "                           sim:sm_90a where there is no GPU)\n"
          "  --model=NAME,...|all     (tiny), or a model's config.json (.json, or a path with '/'), or "
          "E:K:H:I[:WORD]...:\n"
          "                           sigmoid, bias, raw (weights not renormalised), SCALE, groups=G/KEEP[p] (p: worth "
          "by\n"
          "                           pairs), shared=N, gate (of the shared), gelu, clamped with biases\n"
          "  --tokens=1,33,64..70   --dtype=bf16|fp16   --seed=N   --rows=N,...|all: tile of rows (by rows an expert)\n"
          "  --routing=uniform|zipf:A|one|file:F   or, in place of the router's ids: holes|beyond|twice\n"
          "  --fused                  gate and up in one tensor    --parallel=RANK/OF: that rank's experts\n"
          "  --special=ties|logits-100|logits-low|nan-row|inf-weight   unusual data\n"
          "  --source=F.dsl           compiled for the device (kernels/moe.dsl)    --ptx: as PTX, without ptxas\n"
          "  --image=F.moe            compiled before, with moec    --ptxas=FILE    --no-cache: compile anew\n"
          "  --kernel=K --variant=V   only this kernel (check), this variant of those with a tile of rows\n"
          "  -D NAME=N | -D alias=type   dims and element types; check: free dims, compiled in with --bind\n"
          "  --save=DIR, --against=DIR  keep the results in files; compare with files kept on another device\n"
          "  --stage=tile|layout --arch=A   what eval runs; layout: scheduled and laid out for A\n"
          "  --streams=N              verify: N threads at once replay a graph each, with changing inputs\n"
          "  --repeats=N              verify: runs that must be equal bit by bit (10); on sim each with the next seed "
          "(2); bench: timed replays (20)\n"
          "  --budget=SECONDS         for the end-to-end reference: at least 64 tokens, more while it lasts (10)\n"
          "  --columns=N              of each row of h and d that are checked (16)    --limit=X: relative L2 of a row\n"
          "  --x-scale=X              standard deviation of x (1)\n"
          "  --int=NAME:LO:HI         check: range of an integer parameter    --experts=N: of tile maps\n"
          "  --floor=TFLOPS,GBPS      bench: the device's ceilings, in place of measuring them\n"
          "  --l2=cold|warm|both      bench, tune: before each replay L2 is flushed, or holds what the last one left "
          "(cold)\n"
          "  --svg=FILE               bench: a picture of it        --progress: also where stderr is no terminal\n"
          "  --hints=FILE             tune: written, merged with what is there; bench, verify, run: tiles that were "
          "measured\n"
          "  --json=FILE   -v         --mutate=KIND: damages the results, to prove that the checks see it\n"
          "  --max-bytes=N[K|M|G] --max-age=N[s|m|h|d]   cache prune: what may stay\n"
          "exit status: 0 fine, 1 wrong results, 2 usage, 3 no such device or library, 70 internal\n",
          f);
}

static bool number(const char *s, double least, double most, double *out)
{
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end || !(v >= least && v <= most))
        return report(EXIT_USAGE, "'%s': expected a number from %g to %g", s, least, most);
    *out = v;
    return true;
}

static bool integer(const char *s, int64_t least, int64_t most, int64_t *out)
{
    char *end;
    long long v = strtoll(s, &end, 0);
    if (end == s || *end || v < least || v > most)
        return report(EXIT_USAGE, "'%s': expected an integer from %" PRId64 " to %" PRId64, s, least, most);
    *out = v;
    return true;
}

static bool small_integer(const char *s, int least, int most, int *out)
{
    int64_t v = 0;
    bool ok = integer(s, least, most, &v);
    if (ok)
        *out = (int)v;
    return ok;
}

// "1,33,64..70"
static bool list(const char *s, int least, int *out, int *n)
{
    char word[64];
    for (*n = 0; *s; s += *s == ',') {
        size_t len = strcspn(s, ",");
        char *dots;
        int from = 0, to = 0;
        snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), s);
        s += len;
        dots = strstr(word, "..");
        if (dots)
            *dots = 0;
        if (!small_integer(word, least, 1 << 24, &from) || (dots && !small_integer(dots + 2, from, 1 << 24, &to)))
            return false;
        for (int v = from; v <= (dots ? to : from); v++) {
            if (*n == LIST_MAX)
                return report(EXIT_USAGE, "a list of more than %d numbers", LIST_MAX);
            out[(*n)++] = v;
        }
    }
    return *n > 0 || report(EXIT_USAGE, "an empty list");
}

static bool routing(const char *s, struct options *o)
{
    o->routing = s[0];
    static const char *const words[] = { "uniform", "one", "holes", "beyond", "twice" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(s, words[i]))
            return true;
    if (!strncmp(s, "zipf:", 5))
        return number(s + 5, 0, 10, &o->zipf);
    if (!strncmp(s, "file:", 5) && s[5]) {
        o->routing_file = s + 5;
        return true;
    }
    return report(EXIT_USAGE, "--routing=%s: expected uniform, zipf:A, one, file:F, holes, beyond or twice", s);
}

// NAME=64 or alias=bf16
static bool binding(const char *s, struct options *o)
{
    const char *eq = s ? strchr(s, '=') : NULL;
    struct binding_option *b = &o->bindings[o->nbindings];
    if (!eq || eq == s || eq - s >= (int)sizeof b->name || !eq[1] || o->nbindings == BINDINGS_MAX)
        return report(EXIT_USAGE, "-D %s: expected NAME=VALUE", s ? s : "");
    *b = (struct binding_option){ .value = 0 };
    memcpy(b->name, s, (size_t)(eq - s));
    if (strlen(eq + 1) < sizeof b->type && !strchr("-0123456789", eq[1]))
        memcpy(b->type, eq + 1, strlen(eq + 1) + 1);
    else if (!integer(eq + 1, INT32_MIN, INT32_MAX, &b->value))
        return false;
    o->nbindings++;
    return true;
}

// NAME:LO:HI
static bool range(const char *s, struct options *o)
{
    struct ranged *r = &o->ranges[o->nranges];
    int used = 0;
    if (o->nranges == LIST_MAX || sscanf(s, "%31[^:]:%" SCNd32 ":%" SCNd32 "%n", r->name, &r->lo, &r->hi, &used) != 3 ||
        s[used] || r->hi < r->lo)
        return report(EXIT_USAGE, "--int=%s: expected NAME:LO:HI", s);
    o->nranges++;
    return true;
}

static bool floors(const char *s, struct options *o)
{
    return (sscanf(s, "%lf,%lf", &o->floor_tflops, &o->floor_gbps) == 2 && o->floor_tflops > 0 && o->floor_gbps > 0) ||
           report(EXIT_USAGE, "--floor=%s: expected TFLOPS,GBPS", s);
}

static bool l2(const char *s, struct options *o)
{
    o->l2_cold = !strcmp(s, "cold") || !strcmp(s, "both");
    o->l2_warm = !strcmp(s, "warm") || !strcmp(s, "both");
    return o->l2_cold || o->l2_warm || report(EXIT_USAGE, "--l2=%s: expected cold, warm or both", s);
}

static bool rows(const char *s, struct options *o)
{
    if (strcmp(s, "all"))
        return list(s, 1, o->rows, &o->nrows);
    o->rows[0] = -1;
    o->nrows = 1;
    return true;
}

// The value if arg is --name=value, else NULL.
static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(arg, "--", 2) && !strncmp(arg + 2, name, n) && arg[2 + n] == '=' ? arg + 3 + n : NULL;
}

static bool text_option(const char *arg, struct options *o)
{
    const struct {
        const char *name, **to;
    } texts[] = { { "device", &o->device },   { "image", &o->image },     { "source", &o->source },
                  { "json", &o->json },       { "kernel", &o->kernel },   { "variant", &o->variant },
                  { "arch", &o->arch },       { "stage", &o->stage },     { "mutate", &o->mutate },
                  { "ptxas", &o->ptxas },     { "special", &o->special }, { "save", &o->save },
                  { "against", &o->against }, { "hints", &o->hints },     { "svg", &o->svg } };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *v = value_of(arg, texts[i].name);
        if (v) {
            *texts[i].to = v;
            return true;
        }
    }
    return false;
}

// N, or N and one of the letters, which multiplies it.
static bool scaled(const char *s, const char *letters, const int64_t *factors, int64_t *out)
{
    char *end;
    long long v = strtoll(s, &end, 10);
    const char *letter = *end ? strchr(letters, *end) : NULL;
    int64_t factor = letter ? factors[letter - letters] : 1;
    if (end == s || v < 0 || (*end && (!letter || end[1])) || __builtin_mul_overflow(v, factor, out))
        return report(EXIT_USAGE, "'%s': expected a number, then one of the letters %s or nothing", s, letters);
    return true;
}

static bool cache_option(const char *arg, struct options *o, bool *ok)
{
    static const int64_t bytes[] = { 1 << 10, 1 << 20, 1 << 30 }, seconds[] = { 1, 60, 3600, 86400 };
    const char *v;
    if ((v = value_of(arg, "max-bytes")))
        *ok = scaled(v, "KMG", bytes, &o->max_bytes);
    else if ((v = value_of(arg, "max-age")))
        *ok = scaled(v, "smhd", seconds, &o->max_age);
    else
        return false;
    return true;
}

static bool number_option(const char *arg, struct options *o, bool *ok)
{
    const char *v;
    int64_t seed;
    if ((v = value_of(arg, "seed"))) {
        *ok = integer(v, 0, INT64_MAX, &seed);
        o->seed = *ok ? (uint64_t)seed : 0;
    } else if ((v = value_of(arg, "streams")))
        *ok = small_integer(v, 1, 64, &o->streams);
    else if ((v = value_of(arg, "repeats")))
        *ok = small_integer(v, 1, 100000, &o->repeats);
    else if ((v = value_of(arg, "columns")))
        *ok = small_integer(v, 1, 1 << 20, &o->columns);
    else if ((v = value_of(arg, "experts")))
        *ok = small_integer(v, 1, 1 << 20, &o->experts);
    else if ((v = value_of(arg, "budget")))
        *ok = number(v, 0, 1e6, &o->budget);
    else if ((v = value_of(arg, "limit")))
        *ok = number(v, 0, 1, &o->limit);
    else if ((v = value_of(arg, "x-scale")))
        *ok = number(v, 0, 1e30, &o->x_scale);
    else
        return false;
    return true;
}

static bool other_option(const char *arg, struct options *o)
{
    const char *v;
    if ((v = value_of(arg, "model")))
        return model_list(v, o);
    if ((v = value_of(arg, "tokens")))
        return list(v, 0, o->tokens, &o->ntokens);
    if ((v = value_of(arg, "rows")))
        return rows(v, o);
    if ((v = value_of(arg, "routing")))
        return routing(v, o);
    if ((v = value_of(arg, "parallel")))
        return (sscanf(v, "%d/%d", &o->rank, &o->ranks) == 2 && o->ranks > 0 && o->rank >= 0 && o->rank < o->ranks) ||
               report(EXIT_USAGE, "--parallel=%s: expected RANK/OF", v);
    if (!strcmp(arg, "--fused")) {
        o->fused = true;
        return true;
    }
    if ((v = value_of(arg, "int")))
        return range(v, o);
    if ((v = value_of(arg, "floor")))
        return floors(v, o);
    if ((v = value_of(arg, "dtype"))) {
        o->f16 = !strcmp(v, "fp16");
        return o->f16 || !strcmp(v, "bf16") || report(EXIT_USAGE, "--dtype=%s: expected bf16 or fp16", v);
    }
    if (!strcmp(arg, "-v"))
        return o->verbose = true;
    if (!strcmp(arg, "--bind"))
        return o->bind_all = true;
    if (!strcmp(arg, "--ptx"))
        return o->ptx = true;
    if (!strcmp(arg, "--no-cache"))
        return o->no_cache = true;
    if (!strcmp(arg, "--progress"))
        return o->progress = true;
    if ((v = value_of(arg, "l2")))
        return l2(v, o);
    if (!strcmp(o->command, "cache") && arg[0] != '-' && !o->action) {
        o->action = arg;
        return true;
    }
    return report(EXIT_USAGE, "unknown option '%s'; moerun --help tells", arg);
}

static void defaults(struct options *o)
{
    bool tune = !strcmp(o->command, "tune"), bench = tune || !strcmp(o->command, "bench"),
         run = !strcmp(o->command, "run");
    const bool given = o->ntokens > 0;
    o->l2_cold = o->l2_cold || !o->l2_warm;
    if (!o->nmodels)
        o->models[o->nmodels++] = model_find("tiny");
    for (int t = 1; tune && !given && t <= 8192; t *= 2)
        o->tokens[o->ntokens++] = t;
    if (!o->ntokens)
        o->tokens[o->ntokens++] = run ? 33 : 64;
    if (!o->repeats)
        o->repeats = bench && !simulated(o) ? 20 : run ? 1 : simulated(o) ? 2 : 10;
    if (!o->stage && !strcmp(o->command, "check")) // against the stage tile
        o->stage = "layout";
    if (o->limit == 0 && strcmp(o->command, "check"))
        o->limit = o->f16 ? 5e-4 : 4e-3;
}

bool parse_options(int argc, char **argv, struct options *o)
{
    static const char *const commands[] = { "run", "verify", "bench", "tune", "check", "info", "cache" };
    bool known = false;
    *o = (struct options){ .command = argc > 1 ? argv[1] : "",
                           .device = "",
                           .source = "kernels/moe.dsl",
                           .routing = 'u',
                           .seed = 1,
                           .columns = 16,
                           .budget = 10,
                           .x_scale = 1,
                           .max_bytes = -1,
                           .max_age = -1 };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        known = known || !strcmp(o->command, commands[i]);
    if (!known)
        return report(EXIT_USAGE, "expected run, verify, bench, tune, check, info or cache; moerun --help tells");
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i];
        bool ok = true;
        if (!strncmp(arg, "-D", 2)) {
            if (!binding(arg[2] ? arg + 2 : i + 1 < argc ? argv[++i] : NULL, o))
                return false;
        } else if (!text_option(arg, o) && !number_option(arg, o, &ok) && !cache_option(arg, o, &ok) &&
                   !other_option(arg, o)) {
            return false;
        }
        if (!ok)
            return false;
    }
    defaults(o);
    return true;
}

bool simulated(const struct options *o)
{
    return !strncmp(o->device, "sim:", 4);
}

int option_bindings(const struct options *o, const struct model *m, struct bound b[BINDINGS_MAX + 12])
{
    int n = 0;
    if (m) {
        int all = m->experts + m->shared, routed = m->experts * (o->rank + 1) / (o->ranks ? o->ranks : 1) -
                                                   m->experts * o->rank / (o->ranks ? o->ranks : 1);
        int64_t local = o->ranks ? routed + m->shared : all;
        b[n++] = (struct bound){ "E", NULL, m->experts };
        b[n++] = (struct bound){ "L", NULL, local };
        b[n++] = (struct bound){ "F", NULL, o->fused ? 2 * local : local };
        b[n++] = (struct bound){ "K", NULL, m->topk + m->shared };
        b[n++] = (struct bound){ "H", NULL, m->hidden };
        b[n++] = (struct bound){ "I", NULL, m->ffn };
        b[n++] = (struct bound){ "act", o->f16 ? "f16" : "bf16", 0 };
    }
    for (int i = 0; i < o->nbindings; i++) {
        const struct binding_option *x = &o->bindings[i];
        int at = 0;
        if (!m && !o->bind_all && !x->type[0])
            continue; // stays free: a value of the launch
        while (at < n && strcmp(b[at].name, x->name))
            at++;
        b[at] = (struct bound){ x->name, x->type[0] ? x->type : NULL, x->value };
        n += at == n;
    }
    return n;
}
