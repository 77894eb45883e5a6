// One MoE layer on a device: its weights, buffers and launches, through libmoert's layer (runtime/moelayer.h), each part in a
// guarded buffer of its own. For eval the same launches are carried out by eval. Inputs: moerun_input.c.
#include "moerun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const buffer_names[BUFFERS] = {
    "x",     "logits", "bias",      "w_gate",        "w_up", "w_down",  "b_gate", "b_up",     "b_down",
    "gate",  "map",    "given ids", "given weights", "ids",  "weights", "counts", "slot_row", "row_token",
    "tiles", "h",      "d",         "chosen",        "y"
};
const char *const step_names[MOE_LAYER_STEPS] = { "route", "count", "plan", "gate_up", "down", "combine" };
enum { UPLOAD_PIECE = 32 << 20 };

// ---- weights ----------------------------------------------------------------------------------------------------

bool layer_special(const struct layer *l, const char *what)
{
    return l->o->special && !strcmp(l->o->special, what);
}

static const enum buffer weight_buffer[WEIGHTS] = { B_GATE,    B_UP,        B_DOWN,       B_GATE_BIAS,
                                                    B_UP_BIAS, B_DOWN_BIAS, B_SHARED_GATE };

// Elements of one expert; of the whole tensor.
static int64_t expert_elems(const struct layer *l, enum weight w)
{
    const struct model *m = l->m;
    return w <= W_DOWN ? (int64_t)m->hidden * m->ffn : w == W_DOWN_BIAS || w == W_SHARED_GATE ? m->hidden : m->ffn;
}
static int64_t weight_elems(const struct layer *l, enum weight w)
{
    return expert_elems(l, w) * (w == W_SHARED_GATE ? 1 : l->experts);
}
static bool has_weight(const struct layer *l, enum weight w)
{
    return w <= W_DOWN || (w == W_SHARED_GATE ? l->m->shared_gate : l->m->biases);
}
// --fused: gate and up in one tensor, expert by expert.
static bool is_fused(const struct layer *l, enum weight w)
{
    return l->o->fused && w != W_DOWN && w != W_DOWN_BIAS && w != W_SHARED_GATE;
}
static uint16_t *weight_at(const struct layer *l, enum weight w, int64_t i)
{
    if (!is_fused(l, w))
        return (uint16_t *)l->b[weight_buffer[w]].ptr + i;
    int64_t n = expert_elems(l, w), second = w == W_UP || w == W_UP_BIAS;
    enum weight both = w == W_UP ? W_GATE : w == W_UP_BIAS ? W_GATE_BIAS : w;
    return (uint16_t *)l->b[weight_buffer[both]].ptr + (2 * (i / n) + second) * n + i % n;
}

// --special=inf-weight: the first weight of w_gate of this expert.
static int64_t infinite_at(const struct layer *l, enum weight which)
{
    int expert = l->experts > 3 ? 3 : l->experts - 1;
    return which == W_GATE && layer_special(l, "inf-weight") ? expert * expert_elems(l, which) : -1;
}

void layer_row(void *layer, enum ref_matrix which, int expert, int index, double *out)
{
    const struct layer *l = layer;
    int64_t width = which == REF_DOWN ? l->m->ffn : l->m->hidden, rows = which == REF_DOWN ? l->m->hidden : l->m->ffn;
    int64_t first = ((int64_t)expert * rows + index) * width;
    normal_values(&l->w[which], first, width, out);
    if (first == infinite_at(l, (enum weight)which))
        out[0] = HUGE_VAL;
}

double layer_bias(void *layer, enum ref_matrix which, int expert, int index)
{
    const struct layer *l = layer;
    enum weight w = which == REF_GATE ? W_GATE_BIAS : which == REF_UP ? W_UP_BIAS : W_DOWN_BIAS;
    double v;
    normal_values(&l->w[w], (int64_t)expert * expert_elems(l, w) + index, 1, &v);
    return v;
}

// Uploads (or compares) one tensor, a piece at a time.
static bool each_piece(struct layer *l, enum weight which, bool compare, bool *same)
{
    int64_t n = weight_elems(l, which),
            step = compare && n > ((int64_t)1 << 30) ? 8 : 1; // of very large ones: an eighth
    int64_t most = is_fused(l, which) ? expert_elems(l, which) : UPLOAD_PIECE, infinite = infinite_at(l, which);
    most = most < UPLOAD_PIECE ? most : UPLOAD_PIECE;
    uint16_t *host = malloc(2 * (size_t)most * sizeof *host), *back = host ? host + most : NULL;
    bool ok = host || report(EXIT_INTERNAL, "out of memory");
    for (int64_t at = 0, m; ok && at < n; at += m * step) {
        m = n - at < most ? n - at : most;
        if (is_fused(l, which) && at % expert_elems(l, which) + m > expert_elems(l, which))
            m = expert_elems(l, which) - at % expert_elems(l, which);
        uint16_t *device = weight_at(l, which, at);
        normal_fill(&l->w[which], at, m, host);
        if (infinite >= at && infinite < at + m)
            host[infinite - at] = ref_bits(l->o->f16, HUGE_VAL);
        if (!compare) {
            ok = device_upload(l->d, device, host, (size_t)m * sizeof *host);
            continue;
        }
        ok = device_download(l->d, back, device, (size_t)m * sizeof *host);
        if (ok && memcmp(back, host, (size_t)m * sizeof *host))
            *same = false;
    }
    free(host);
    return ok;
}

static bool make_weight(struct layer *l, enum weight w)
{
    const struct model *m = l->m;
    const double sigma[WEIGHTS] = { 1 / sqrt(m->hidden), 1 / sqrt(m->hidden), 1 / sqrt(m->ffn), 0.5, 0.5, 0.1,
                                    1 / sqrt(m->hidden) };
    bool second = is_fused(l, w) && (w == W_UP || w == W_UP_BIAS);
    size_t bytes = (size_t)weight_elems(l, w) * (is_fused(l, w) ? 4 : 2);
    if (!has_weight(l, w))
        return true;
    return normal_init(&l->w[w], l->o->seed, (int)w, sigma[w], l->o->f16) &&
           (second || guarded_new(l->d, &l->b[weight_buffer[w]], bytes)) && each_piece(l, w, false, NULL);
}

// --parallel=RANK/OF: this rank's share of the routed experts, and all shared ones.
static bool make_map(struct layer *l)
{
    const struct model *m = l->m;
    int all = m->experts + m->shared, rank = l->o->rank, of = l->o->ranks;
    l->experts = all;
    if (!of)
        return true;
    int first = m->experts * rank / of, last = m->experts * (rank + 1) / of;
    l->experts = last - first + m->shared;
    l->host_map = malloc((size_t)all * sizeof *l->host_map);
    if (!l->host_map)
        return report(EXIT_INTERNAL, "out of memory");
    for (int e = 0; e < all; e++)
        l->host_map[e] = e >= m->experts ? last - first + e - m->experts : e >= first && e < last ? e - first : -1;
    if (!l->experts)
        return report(EXIT_USAGE, "--parallel=%d/%d: no expert is left for this rank", rank, of);
    return guarded_new(l->d, &l->b[B_MAP], (size_t)all * 4) &&
           device_upload(l->d, l->b[B_MAP].ptr, l->host_map, (size_t)all * 4);
}

// ---- the layer --------------------------------------------------------------------------------------------------

static struct moe_layer_desc describe(const struct layer *l)
{
    const struct model *m = l->m;
    return (struct moe_layer_desc){ .size = sizeof(struct moe_layer_desc),
                                    .experts = m->experts,
                                    .topk = m->topk,
                                    .shared = m->shared,
                                    .hidden = m->hidden,
                                    .ffn = m->ffn,
                                    .dtype = l->o->f16 ? IMAGE_F16 : IMAGE_BF16,
                                    .activation = (int)m->activation,
                                    .alpha = (float)m->alpha,
                                    .limit = (float)m->limit,
                                    .score = m->sigmoid ? MOE_SIGMOID : MOE_SOFTMAX,
                                    .renorm = m->renorm,
                                    .scale = (float)m->scale,
                                    .groups = m->groups,
                                    .keep_groups = m->keep_groups,
                                    .group_pairs = m->group_pairs,
                                    .shared_gate = m->shared_gate,
                                    .local = l->experts };
}

static struct moe_layer_weights weights_of(const struct layer *l)
{
    const struct guarded *b = l->b;
    return (struct moe_layer_weights){ .size = sizeof(struct moe_layer_weights),
                                       .gate = b[B_GATE].ptr,
                                       .up = b[B_UP].ptr,
                                       .down = b[B_DOWN].ptr,
                                       .gate_bias = b[B_GATE_BIAS].ptr,
                                       .up_bias = b[B_UP_BIAS].ptr,
                                       .down_bias = b[B_DOWN_BIAS].ptr,
                                       .select_bias = b[B_BIAS].ptr,
                                       .shared_gate = b[B_SHARED_GATE].ptr,
                                       .expert_map = b[B_MAP].ptr };
}

// Kernels of eval. At the stage `tile` tiles have no size yet: any will do.
static bool find_in_eval(void *layer, const char *name, int rows, int i, struct layer_kernel *out)
{
    struct layer *l = layer;
    static const struct options any;
    bool tiled = !strncmp(name, "gate_up", 7) || !strncmp(name, "down", 4);
    const struct image_kernel *k = tiled && rows ? device_kernel(l->d, &any, name, rows) : NULL;
    for (int n = 0; !k && (k = eval_kernel(l->d->eval, n)); n++)
        k = !strcmp(k->name, name) && (!rows || !moe_image_axis(k, "rows")) && !i-- ? k : NULL;
    if (!k)
        return false;
    *out = (struct layer_kernel){ .sig = k };
    if (tiled && !moe_image_axis(k, "rows")) {
        struct image_kernel *copy = &l->eval_sig[name[0] == 'd'];
        l->eval_of[name[0] == 'd'] = k;
        *copy = *k;
        l->eval_axis = (struct image_axis){ "rows", l->eval_rows };
        copy->axes = &l->eval_axis;
        copy->naxes = 1;
        out->sig = copy;
    }
    return true;
}

static bool layer_make(struct layer *l)
{
    const struct moe_layer_desc desc = describe(l);
    const struct moe_layer_weights w = weights_of(l);
    char why[LAYER_WHY];
    if (l->d->gpu)
        return !device_fails(l->d, moe_layer_create(l->d->image, &desc, &w, &l->moe), "layer");
    l->moe = l->moe ? l->moe : malloc(sizeof *l->moe);
    if (!l->moe)
        return report(EXIT_INTERNAL, "out of memory");
    if (!layer_init(l->moe, &desc, &w, find_in_eval, l, why))
        return report(EXIT_USAGE, "%s", why);
    layer_choose(l->moe);
    return true;
}

int layer_variants(const struct layer *l, int *rows, int max)
{
    int n = 0;
    while (n < max && (rows[n] = moe_layer_variant(l->moe, n)))
        n++;
    return n;
}

bool layer_weights(struct layer *l, const struct options *o, struct device *d, const struct model *m)
{
    static const char *const specials[] = { "ties", "logits-100", "logits-low", "nan-row", "inf-weight" };
    bool known = !o->special;
    *l = (struct layer){ .o = o, .d = d, .m = m, .eval_rows = 16 };
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        known = known || layer_special(l, specials[i]);
    if (!known)
        return report(EXIT_USAGE, "--special=%s is unknown; moerun --help tells", o->special);
    if (!make_map(l))
        return false;
    for (int w = 0; w < WEIGHTS; w++)
        if (!make_weight(l, (enum weight)w))
            return false;
    return input_bias(l) && normal_init(&l->x, o->seed, TENSOR_X, o->x_scale, o->f16) && layer_make(l) &&
           hints_load(l, o);
}

void layer_free(struct layer *l)
{
    layer_tokens_free(l);
    if (l->d->gpu)
        moe_layer_free(l->moe);
    else
        free(l->moe);
    for (int i = 0; i < WEIGHTS; i++)
        normal_free(&l->w[i]);
    for (int i = 0; i < BUFFERS; i++)
        guarded_free(l->d, &l->b[i]);
    normal_free(&l->x);
    free(l->host_map);
    free(l->host_bias);
}

void layer_share(struct layer *out, const struct layer *l, const struct options *o, struct device *d)
{
    *out = *l;
    out->o = o;
    out->d = d;
    out->x = (struct normal){ .bits = NULL };
    for (int i = 0; i < BUFFERS; i++)
        if (layer_is_of_call((enum buffer)i))
            out->b[i] = (struct guarded){ .base = NULL };
}

// ---- one number of tokens ---------------------------------------------------------------------------------------

static bool buffers_new(struct layer *l)
{
    const struct model *m = l->m;
    const size_t t = (size_t)l->tokens, slots = (size_t)l->slots * 4;
    size_t bytes[BUFFERS] = { [B_X] = t * (size_t)m->hidden * 2,
                              [B_LOGITS] = t * (size_t)m->experts * 4,
                              [B_GIVEN_IDS] = l->given_ids ? slots : 0,
                              [B_GIVEN_WEIGHTS] = l->given_ids ? slots : 0,
                              [B_Y] = t * (size_t)m->hidden * 2 };
    memcpy(&bytes[B_PARTS], l->size.bytes, sizeof l->size.bytes);
    for (int i = 0; i < BUFFERS; i++)
        if (layer_is_of_call((enum buffer)i) && !guarded_new(l->d, &l->b[i], bytes[i]))
            return false;
    return true;
}

bool layer_is_of_call(enum buffer b)
{
    return b == B_X || b == B_LOGITS || b >= B_GIVEN_IDS;
}

bool layer_tokens(struct layer *l, int tokens, int rows)
{
    if (!l->d->gpu && rows && rows != l->eval_rows) {
        l->eval_rows = rows;
        if (!layer_make(l))
            return false;
    }
    l->tokens = tokens;
    l->block = rows ? rows : moe_layer_rows(l->moe, tokens);
    if (layer_tile_index(l->moe, l->block) < 0)
        return report(EXIT_USAGE, "the image has no kernels for a tile of %d rows", l->block);
    if (!layer_sizes(l->moe, tokens, l->block, &l->size))
        return report(EXIT_USAGE, "%d tokens: too many slots", tokens);
    l->slots = l->size.slots;
    return input_make(l) && buffers_new(l) && input_upload(l);
}

void layer_tokens_free(struct layer *l)
{
    for (int i = 0; i < BUFFERS; i++)
        if (layer_is_of_call((enum buffer)i))
            guarded_free(l->d, &l->b[i]);
    input_free(l);
}

bool layer_poison(struct layer *l)
{
    for (int i = B_PARTS; i < BUFFERS; i++)
        if (!device_poison(l->d, l->b[i].ptr, l->b[i].bytes))
            return false;
    return true;
}

// ---- launching --------------------------------------------------------------------------------------------------

static int run_in_eval(void *layer, enum layer_launch n, const struct layer_kernel *k, const struct moe_arg *args)
{
    struct layer *l = layer;
    const struct image_kernel *sig = k->sig;
    (void)n;
    for (int i = 0; i < 2; i++)
        sig = sig == &l->eval_sig[i] ? l->eval_of[i] : sig;
    return eval_launch(l->d->eval, sig, args, sig->nparams, NULL, l->block) ? 0 : -1;
}

static bool run_steps(struct layer *l, unsigned steps)
{
    void *parts[MOE_LAYER_PARTS];
    for (int i = 0; i < MOE_LAYER_PARTS; i++)
        parts[i] = l->b[B_PARTS + i].ptr;
    struct moe_layer_call c = { .size = sizeof c,
                                .tokens = l->tokens,
                                .x = l->b[B_X].ptr,
                                .y = l->b[B_Y].ptr,
                                .logits = l->given_ids ? NULL : l->b[B_LOGITS].ptr,
                                .ids = l->b[B_GIVEN_IDS].ptr,
                                .weights = l->b[B_GIVEN_WEIGHTS].ptr,
                                .steps = steps,
                                .rows = l->block,
                                .parts = parts };
    if (!l->tokens)
        return true;
    if (l->d->gpu)
        return !device_fails(l->d, moe_layer_forward(l->moe, &c, l->d->stream), "launch");
    return layer_launches(l->moe, &c, l->block, run_in_eval, l) == 0;
}

bool layer_step(struct layer *l, enum moe_layer_step s)
{
    return run_steps(l, 1u << s);
}

bool layer_launch(struct layer *l)
{
    return run_steps(l, 0);
}

bool layer_run(struct layer *l)
{
    return run_steps(l, 0) && device_sync(l->d);
}

// ---- after the run ----------------------------------------------------------------------------------------------

bool layer_inputs_intact(struct layer *l, bool *intact)
{
    bool same = true;
    if (!input_intact(l, intact))
        return false;
    for (int w = 0; w < WEIGHTS; w++)
        if (has_weight(l, (enum weight)w) && !each_piece(l, (enum weight)w, true, &same))
            return false;
    if (!same)
        fprintf(stderr, "moerun: the weights were changed\n");
    *intact = *intact && same;
    return true;
}

bool layer_guards_intact(struct layer *l, bool *intact)
{
    for (int i = 0; i < BUFFERS; i++)
        if (!guarded_intact(l->d, &l->b[i], buffer_names[i], intact))
            return false;
    return true;
}
