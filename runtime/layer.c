// The layer of moelayer.h on a device: made, run, freed. What its launches are is in layer_bind.c, which tile of rows they take
// in layer_choose.c.
#include "driver.h"
#include "layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool no(char *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool no(char *why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, LAYER_WHY, fmt, ap);
    va_end(ap);
    return false;
}

// ---- the description --------------------------------------------------------------------------------------------

static bool check_sizes(const struct moe_layer_desc *d, char *why)
{
    if (d->experts < 1 || d->experts > 512)
        return no(why, "layer: %d experts, not 1 to 512", d->experts);
    if (d->topk < 1 || d->topk > d->experts || d->shared < 0 || d->topk + d->shared > 32)
        return no(why, "layer: %d choices of %d experts and %d shared ones: at most 32 in all", d->topk, d->experts,
                  d->shared);
    if (d->hidden < 8 || d->hidden % 8 || d->hidden > 32768)
        return no(why, "layer: hidden size %d, not a multiple of 8 up to 32768", d->hidden);
    if (d->ffn < 8 || d->ffn % 8 || d->ffn > 65536)
        return no(why, "layer: expert width %d, not a multiple of 8 up to 65536", d->ffn);
    if (d->local < 0 || d->local > 512 || d->experts + d->shared > 512)
        return no(why, "layer: %d experts with the shared ones, %lld of them here: at most 512", d->experts + d->shared,
                  (long long)d->local);
    return true;
}

static bool check_routing(const struct moe_layer_desc *d, char *why)
{
    if (d->score != MOE_SOFTMAX && d->score != MOE_SIGMOID)
        return no(why, "layer: score %d is unknown", d->score);
    if (d->groups > 1 && (d->groups > 32 || d->experts % d->groups))
        return no(why, "layer: %d experts in %d groups: at most 32, of equal size", d->experts, d->groups);
    if (d->groups > 1 &&
        (d->keep_groups < 1 || d->keep_groups > d->groups || d->keep_groups * (d->experts / d->groups) < d->topk))
        return no(why, "layer: the best %d of %d groups hold fewer than %d experts, or there are not so many",
                  d->keep_groups, d->groups, d->topk);
    if (d->groups > 1 && d->group_pairs && d->experts == d->groups)
        return no(why, "layer: groups of one expert have no pair (group_pairs)");
    return true;
}

static bool check_weights(const struct moe_layer_desc *d, const struct moe_layer_weights *w, char *why)
{
    bool clamped = d->activation == MOE_ACT_CLAMPED;
    if (d->dtype != IMAGE_BF16 && d->dtype != IMAGE_F16)
        return no(why, "layer: dtype %d is neither IMAGE_BF16 nor IMAGE_F16", d->dtype);
    if (d->activation < MOE_ACT_SWIGLU || d->activation > MOE_ACT_CLAMPED)
        return no(why, "layer: activation %d is unknown", d->activation);
    if (!w->gate || !w->down)
        return no(why, "layer: weights.%s is NULL", w->gate ? "down" : "gate");
    if (clamped != (w->gate_bias != NULL) || (w->up_bias && !w->gate_bias))
        return no(why, "layer: gate_bias and up_bias go with MOE_ACT_CLAMPED, and it with them");
    if (clamped && (w->up_bias != NULL) != (w->up != NULL))
        return no(why, "layer: gate and up are %s, their biases %s", w->up ? "apart" : "in one tensor",
                  w->up_bias ? "apart" : "in one tensor");
    if (d->shared_gate && !w->shared_gate)
        return no(why, "layer: shared_gate is asked for, weights.shared_gate is NULL");
    if (d->local && d->local != d->experts + d->shared && !w->expert_map)
        return no(why, "layer: %lld of %d experts are here: weights.expert_map must say which", (long long)d->local,
                  d->experts + d->shared);
    return true;
}

// ---- kernels ----------------------------------------------------------------------------------------------------

static bool check_types(const struct moe_layer *l, const struct image_kernel *sig, char *why)
{
    for (int i = 0; i < sig->nparams; i++) {
        enum image_elem e = sig->params[i].elem;
        if ((e == IMAGE_BF16 || e == IMAGE_F16) && (int)e != l->desc.dtype)
            return no(why, "kernel %s was compiled for %s, the layer is of %s (moec -D act=...)", sig->symbol,
                      moe_image_elem_name(e), moe_image_elem_name((enum image_elem)l->desc.dtype));
    }
    return true;
}

static bool take(struct moe_layer *l, struct layer_kernel *k, char *why)
{
    return layer_bind(k, why) && check_types(l, k->sig, why);
}

// All tiles of rows that gate_up and down both have, ascending.
static bool take_tiles(struct moe_layer *l, layer_find *find, void *user, char *why)
{
    const char *up = layer_kernel_name(l, L_GATE_UP), *down = layer_kernel_name(l, L_DOWN);
    struct layer_kernel a, b;
    for (int i = 0; l->ntiles < LAYER_TILES_MAX && find(user, up, 0, i, &a); i++) {
        int rows = moe_image_axis(a.sig, "rows"), at = 0;
        if (!rows || !find(user, down, rows, 0, &b))
            continue;
        while (at < l->ntiles && l->tile[at] < rows)
            at++;
        if (at < l->ntiles && l->tile[at] == rows)
            continue;
        memmove(&l->tile[at + 1], &l->tile[at], (size_t)(l->ntiles - at) * sizeof l->tile[0]);
        memmove(&l->tiled[at + 1], &l->tiled[at], (size_t)(l->ntiles - at) * sizeof l->tiled[0]);
        l->tile[at] = rows;
        l->tiled[at][0] = a;
        l->tiled[at][1] = b;
        l->ntiles++;
        if (!take(l, &l->tiled[at][0], why) || !take(l, &l->tiled[at][1], why))
            return false;
    }
    return l->ntiles || no(why, "the image has no kernels %s and %s with the same tile of rows", up, down);
}

bool layer_init(struct moe_layer *l, const struct moe_layer_desc *desc, const struct moe_layer_weights *w,
                layer_find *find, void *user, char why[LAYER_WHY])
{
    *l = (struct moe_layer){ .device = NULL };
    memcpy(&l->desc, desc, desc->size < sizeof l->desc ? desc->size : sizeof l->desc);
    memcpy(&l->weights, w, w->size < sizeof l->weights ? w->size : sizeof l->weights);
    if (!check_sizes(&l->desc, why) || !check_routing(&l->desc, why) || !check_weights(&l->desc, &l->weights, why))
        return false;
    for (int n = 0; n < LAYER_LAUNCHES; n++) {
        const char *name = layer_kernel_name(l, (enum layer_launch)n);
        if (n == L_GATE_UP || n == L_DOWN || !layer_needs(l, (enum layer_launch)n))
            continue;
        if (!find(user, name, 0, 0, &l->k[n]))
            return no(why, "the image has no kernel %s", name);
        if (!take(l, &l->k[n], why))
            return false;
    }
    return take_tiles(l, find, user, why);
}

static bool find_in_image(void *image, const char *name, int rows, int i, struct layer_kernel *out)
{
    const struct moe_kernel *k;
    for (int n = 0; (k = moe_kernel_at(image, n)); n++) {
        const struct image_kernel *sig = moe_signature(k);
        if (!strcmp(sig->name, name) && (!rows || moe_image_axis(sig, "rows") == rows) && !i--) {
            *out = (struct layer_kernel){ .kernel = k, .sig = sig };
            return true;
        }
    }
    return false;
}

// ---- making -----------------------------------------------------------------------------------------------------

// What moe_launch() would refuse for any call: constants of the image, limits of the device.
static int probe(void *user, enum layer_launch n, const struct layer_kernel *k, const struct moe_arg *args)
{
    (void)user;
    (void)n;
    return moe_launch_check(k->kernel, args, k->sig->nparams, NULL, NULL);
}

static void *place(int i)
{
    return (void *)((uintptr_t)4096 * (uintptr_t)(1 + i));
}

// A call whose pointers are as good as any where nothing runs: each another one, since launches depend on which are the same.
// parts: [MOE_LAYER_PARTS], filled.
static struct moe_layer_call sample_call(void **parts)
{
    for (int i = 0; i < MOE_LAYER_PARTS; i++)
        parts[i] = place(5 + i);
    return (struct moe_layer_call){ .size = sizeof(struct moe_layer_call),
                                    .tokens = 1,
                                    .x = place(0),
                                    .y = place(1),
                                    .logits = place(2),
                                    .ids = place(3),
                                    .weights = place(4),
                                    .parts = parts };
}

static int probe_all(const struct moe_layer *l)
{
    void *parts[MOE_LAYER_PARTS];
    const struct moe_layer_call c = sample_call(parts);
    int status = MOE_OK;
    for (int i = 0; i < l->ntiles && !status; i++)
        status = layer_launches(l, &c, l->tile[i], probe, NULL);
    return status;
}

// As many kernels at once as calls have: with logits, with given ids, and the experts alone.
static void prepare(const struct moe_layer *l)
{
    static const unsigned experts = 1u << MOE_GATE_UP | 1u << MOE_DOWN | 1u << MOE_COMBINE;
    void *parts[MOE_LAYER_PARTS];
    struct moe_layer_call c = sample_call(parts);
    struct layer_ready r;
    struct layer_sizes s;
    for (int i = 0; i < 3; i++) {
        c.logits = i == 0 ? c.logits : NULL;
        c.steps = i == 2 ? experts : 0;
        if (layer_sizes(l, 1, l->tile[0], &s) && !layer_collect(l, &c, &s, 0, &r))
            launch_prepare(l->image, r.item, r.n);
    }
}

// On a stream of its own: while any stream is in capture, nobody may wait for the whole device.
static int make_zeros(struct moe_layer *l)
{
    size_t bytes = (size_t)l->desc.experts * 4;
    void *stream = NULL;
    if (l->weights.select_bias)
        return MOE_OK;
    int status = moe_alloc(l->device, bytes, &l->zeros);
    status = status ? status : moe_stream(l->device, &stream);
    status = status ? status : moe_fill(l->device, l->zeros, 0, bytes, stream);
    status = status ? status : moe_sync(l->device, stream);
    int gone = moe_destroy(l->device, MOE_STREAM, stream);
    return status ? status : gone;
}

static void identify(struct moe_layer *l, const struct image_desc *d)
{
    const struct moe_layer_desc *m = &l->desc;
    snprintf(l->identity, sizeof l->identity, "%s|%s|%d:%d:%d:%d|%s|%d", l->device->info.name, d->arch, m->experts,
             m->topk + m->shared, m->hidden, m->ffn, moe_image_elem_name((enum image_elem)m->dtype), m->activation);
    l->processors = l->device->info.processors;
    l->gbps = d->gbps;
}

int moe_layer_create(struct moe_image *image, const struct moe_layer_desc *desc,
                     const struct moe_layer_weights *weights, struct moe_layer **out)
{
    struct moe_device *d = image_device(image);
    char why[LAYER_WHY] = "";
    *out = NULL;
    struct moe_layer *l = malloc(sizeof *l);
    if (!l)
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    if (!layer_init(l, desc, weights, find_in_image, image, why)) {
        free(l);
        return device_fail(d, MOE_ERR_ARGUMENT, "%s", why);
    }
    l->device = d;
    l->image = image;
    int status = make_zeros(l);
    status = status ? status : probe_all(l);
    if (status) {
        moe_layer_free(l);
        return status;
    }
    prepare(l);
    identify(l, moe_describe(image));
    layer_choose(l);
    *out = l;
    return MOE_OK;
}

void moe_layer_free(struct moe_layer *l)
{
    if (!l)
        return;
    moe_free(l->device, l->zeros);
    free(l);
}

const struct moe_layer_desc *moe_layer_describe(const struct moe_layer *l)
{
    return &l->desc;
}

// ---- running ----------------------------------------------------------------------------------------------------

static int check_call(const struct moe_layer *l, const struct moe_layer_call *c, int rows, struct layer_sizes *s)
{
    struct moe_device *d = l->device;
    if (layer_tile_index(l, rows) < 0)
        return device_fail(d, MOE_ERR_ARGUMENT, "layer: the image has no tile of %d rows", rows);
    if (!layer_sizes(l, c->tokens, rows, s))
        return device_fail(d, MOE_ERR_ARGUMENT, "layer: %lld tokens: tokens times choices must stay below 2^31",
                           (long long)c->tokens);
    if (!c->logits && !(c->ids && c->weights))
        return device_fail(d, MOE_ERR_ARGUMENT, "layer: neither logits nor both ids and weights are given");
    if (!c->parts && (!c->workspace || c->workspace_bytes < s->total))
        return device_fail(d, MOE_ERR_ARGUMENT, "layer: the workspace has %zu bytes, %lld tokens take %zu",
                           c->workspace ? c->workspace_bytes : 0, (long long)c->tokens, s->total);
    return MOE_OK;
}

int moe_layer_forward(const struct moe_layer *l, const struct moe_layer_call *call, void *stream)
{
    struct moe_layer_call c = { .size = sizeof c };
    if (call->size < sizeof call->size)
        return device_fail(l->device, MOE_ERR_ARGUMENT, "layer: the call's size is not set");
    memcpy(&c, call, call->size < sizeof c ? call->size : sizeof c);
    if (c.tokens == 0)
        return MOE_OK;
    int rows = c.rows ? c.rows : moe_layer_rows(l, c.tokens);
    struct layer_sizes s;
    struct layer_ready r;
    int status = check_call(l, &c, rows, &s);
    status = status ? status : layer_collect(l, &c, &s, layer_tile_index(l, rows), &r);
    return status ? status : launch_items(l->image, r.item, r.n, stream);
}

int moe_layer_part(const struct moe_layer *l, int64_t tokens, int rows, enum moe_layer_part part, size_t *offset,
                   size_t *bytes)
{
    struct layer_sizes s;
    rows = rows ? rows : moe_layer_rows(l, tokens);
    if (part < 0 || part >= MOE_LAYER_PARTS || layer_tile_index(l, rows) < 0 || !layer_sizes(l, tokens, rows, &s))
        return device_fail(l->device, MOE_ERR_ARGUMENT, "layer: no part %d of a call of %lld tokens with %d rows",
                           (int)part, (long long)tokens, rows);
    *offset = s.offset[part];
    *bytes = s.bytes[part];
    return MOE_OK;
}
