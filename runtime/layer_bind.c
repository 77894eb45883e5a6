// What a layer's call needs and where it lies; the arguments of its launches. Parameters are bound by name: the table below is
// the contract between kernels/moe.dsl and the layer. Nothing here touches a device.
#include "layer.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 256, CHUNK_LEAST = 256, CHUNKS_MOST = 128, ANY_RANK = 0 };

const enum moe_layer_step launch_step[LAYER_LAUNCHES] = { MOE_ROUTE, MOE_ROUTE,   MOE_ROUTE, MOE_COUNT,
                                                          MOE_PLAN,  MOE_GATE_UP, MOE_DOWN,  MOE_COMBINE };

// ---- sizes ------------------------------------------------------------------------------------------------------

static int64_t choices_of(const struct moe_layer *l)
{
    return l->desc.topk + l->desc.shared;
}

static int local_of(const struct moe_layer *l)
{
    return l->desc.local ? (int)l->desc.local : l->desc.experts + l->desc.shared;
}

static int64_t at_most(int64_t v, int64_t most)
{
    return v < most ? v : most;
}

// Slots are counted in chunks, a block of count and plan each.
static void chunk_sizes(struct layer_sizes *s)
{
    int64_t chunk = (s->slots + CHUNKS_MOST - 1) / CHUNKS_MOST;
    chunk = chunk > CHUNK_LEAST ? chunk : CHUNK_LEAST;
    s->chunk = (int)((chunk + 63) / 64 * 64);
    s->chunks = (s->slots + s->chunk - 1) / s->chunk;
}

static void part_bytes(const struct moe_layer *l, struct layer_sizes *s)
{
    size_t slots = (size_t)s->slots, *b = s->bytes;
    b[MOE_PART_IDS] = b[MOE_PART_WEIGHTS] = b[MOE_PART_SLOT_ROW] = b[MOE_PART_ROW_TOKEN] = slots * 4;
    b[MOE_PART_CHOSEN] = l->weights.expert_map ? slots * 4 : 0;
    b[MOE_PART_COUNTS] = (size_t)s->chunks * (size_t)s->local * 4;
    b[MOE_PART_TILES] = (size_t)s->entries * 16;
    b[MOE_PART_H] = slots * (size_t)l->desc.ffn * 2;
    b[MOE_PART_D] = slots * (size_t)l->desc.hidden * 2;
    s->total = 0;
    for (int i = 0; i < MOE_LAYER_PARTS; i++) {
        s->offset[i] = s->total;
        s->total += (b[i] + ALIGN - 1) / ALIGN * ALIGN;
    }
}

bool layer_sizes(const struct moe_layer *l, int64_t tokens, int rows, struct layer_sizes *s)
{
    *s = (struct layer_sizes){ .tokens = tokens, .choices = choices_of(l), .block = rows, .local = local_of(l) };
    if (tokens < 0 || __builtin_mul_overflow(tokens, s->choices, &s->slots) || s->slots > INT32_MAX)
        return false;
    chunk_sizes(s);
    s->entries = at_most(s->slots, s->local) + s->slots / rows;
    part_bytes(l, s);
    return true;
}

// No part shrinks when tokens grow: chunks are bounded, tiles taken as small as they come.
size_t moe_layer_workspace(const struct moe_layer *l, int64_t tokens)
{
    struct layer_sizes s;
    if (tokens <= 0 || !layer_sizes(l, tokens, l->ntiles ? l->tile[0] : 16, &s))
        return 0;
    s.chunks = at_most((s.slots + CHUNK_LEAST - 1) / CHUNK_LEAST, CHUNKS_MOST);
    part_bytes(l, &s);
    return s.total;
}

// ---- which kernels ----------------------------------------------------------------------------------------------

bool layer_needs(const struct moe_layer *l, enum layer_launch n)
{
    return n == L_SHARED_GATE ? l->desc.shared_gate : n == L_MAP ? l->weights.expert_map != NULL : true;
}

const char *layer_kernel_name(const struct moe_layer *l, enum layer_launch n)
{
    static const char *const gate_ups[] = { "gate_up", "gate_up_gelu", "gate_up_clamp" };
    static const char *const names[] = { "", "shared_gate", "map_ids", "count", "plan", "", "down", "combine" };
    switch (n) {
    case L_ROUTE: return l->desc.groups > 1 ? "route_grouped" : l->desc.score ? "route_sigmoid" : "route_softmax";
    case L_GATE_UP: return gate_ups[l->desc.activation];
    case L_DOWN: return l->weights.down_bias ? "down_bias" : "down";
    default: return names[n];
    }
}

// ---- arguments by name ------------------------------------------------------------------------------------------

enum extent { // up to D_N they change from call to call
    D_T,
    D_S,
    D_C,
    D_N,
    D_E,
    D_K,
    D_H,
    D_I,
    D_F,
    D_L,
    D_G,
    D_4,
    EXTENTS
};
enum pointer {
    P_X,
    P_Y,
    P_LOGITS,
    P_SELECT_BIAS,
    P_GATE,
    P_UP,
    P_DOWN,
    P_GATE_BIAS,
    P_UP_BIAS,
    P_DOWN_BIAS,
    P_SHARED_GATE,
    P_MAP,
    P_SEEN,  // the ids that a launch is about: up to the map the router's, then indices in the weight tensors
    P_PARTS, // then the parts
    POINTERS = P_PARTS + MOE_LAYER_PARTS
};
enum scalar {
    I_TOPK,
    I_RENORM,
    I_SIGMOID,
    I_GROUPS,
    I_KEEP,
    I_PAIR,
    I_CHUNK,
    I_CHOICES,
    I_BLOCK,
    I_STEP,
    I_UP,
    I_SCALE, // from here floats
    I_ALPHA,
    I_LIMIT,
    SCALARS
};
struct values { // of one call
    void *p[POINTERS];
    int64_t extent[EXTENTS];
    int32_t i[SCALARS];
    float f[SCALARS];
};
struct row {
    const char *name;
    bool scalar;
    int rank; // ANY_RANK for scalars
    int what; // enum pointer or enum scalar
    uint8_t shape[3];
};
#define PART(p) (P_PARTS + MOE_PART_##p)
static const struct row rows[] = {
    { "x", false, 2, P_X, { D_T, D_H } },
    { "y", false, 2, P_Y, { D_T, D_H } },
    { "logits", false, 2, P_LOGITS, { D_T, D_E } },
    { "bias", false, 1, P_SELECT_BIAS, { D_E } },
    { "w_gate", false, 3, P_GATE, { D_F, D_I, D_H } },
    { "w_up", false, 3, P_UP, { D_F, D_I, D_H } },
    { "w_down", false, 3, P_DOWN, { D_L, D_H, D_I } },
    { "b_gate", false, 2, P_GATE_BIAS, { D_F, D_I } },
    { "b_up", false, 2, P_UP_BIAS, { D_F, D_I } },
    { "b_down", false, 2, P_DOWN_BIAS, { D_L, D_H } },
    { "gate", false, 1, P_SHARED_GATE, { D_H } },
    { "map", false, 1, P_MAP, { D_G } },
    { "ids", false, 2, P_SEEN, { D_T, D_K } },
    { "ids", false, 1, P_SEEN, { D_S } },
    { "local", false, 1, PART(IDS), { D_S } },
    { "weights", false, 2, PART(WEIGHTS), { D_T, D_K } },
    { "counts", false, 2, PART(COUNTS), { D_C, D_L } },
    { "slot_row", false, 1, PART(SLOT_ROW), { D_S } },
    { "slot_row", false, 2, PART(SLOT_ROW), { D_T, D_K } },
    { "row_token", false, 1, PART(ROW_TOKEN), { D_S } },
    { "tiles", false, 2, PART(TILES), { D_N, D_4 } },
    { "h", false, 2, PART(H), { D_S, D_I } },
    { "d", false, 2, PART(D), { D_S, D_H } },
    { "topk", true, ANY_RANK, I_TOPK, { 0 } },
    { "renorm", true, ANY_RANK, I_RENORM, { 0 } },
    { "use_sigmoid", true, ANY_RANK, I_SIGMOID, { 0 } },
    { "groups", true, ANY_RANK, I_GROUPS, { 0 } },
    { "keep", true, ANY_RANK, I_KEEP, { 0 } },
    { "pair", true, ANY_RANK, I_PAIR, { 0 } },
    { "chunk", true, ANY_RANK, I_CHUNK, { 0 } },
    { "choices", true, ANY_RANK, I_CHOICES, { 0 } },
    { "block", true, ANY_RANK, I_BLOCK, { 0 } },
    { "step", true, ANY_RANK, I_STEP, { 0 } },
    { "up", true, ANY_RANK, I_UP, { 0 } },
    { "scale", true, ANY_RANK, I_SCALE, { 0 } },
    { "alpha", true, ANY_RANK, I_ALPHA, { 0 } },
    { "limit", true, ANY_RANK, I_LIMIT, { 0 } },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

// Which extent gives each dim. True if no call can bring two values for one dim, nor another one for what was compiled in: what
// a layer's calls have in common has been checked when the layer was made.
static bool bind_dims(struct layer_kernel *k)
{
    memset(k->extent, EXTENTS, sizeof k->extent);
    for (int i = 0; i < k->sig->nparams; i++) {
        const struct row *r = &rows[k->row[i]];
        for (int j = 0; j < r->rank; j++) {
            int dim = k->sig->params[i].shape[j].dim;
            bool fixed = r->shape[j] > D_N;
            if (!fixed && (dim < 0 || k->sig->dims[dim].bound >= 0))
                return false;
            if (dim < 0)
                continue;
            if (k->extent[dim] == EXTENTS)
                k->extent[dim] = r->shape[j];
            if (k->extent[dim] != r->shape[j] && (!fixed || k->extent[dim] <= D_N))
                return false;
        }
    }
    for (int i = 0; i < k->sig->ndims; i++)
        if (k->extent[i] == EXTENTS)
            return false;
    return true;
}

bool layer_bind(struct layer_kernel *k, char why[LAYER_WHY])
{
    if (k->sig->nparams > LAYER_PARAMS_MAX || k->sig->ndims > LAYER_DIMS_MAX || k->sig->nboxes > LAYER_BOXES_MAX) {
        snprintf(why, LAYER_WHY,
                 "kernel %.60s: %d parameters, %d dimensions, %d boxes, a layer gives at most %d, %d, %d", k->sig->name,
                 k->sig->nparams, k->sig->ndims, k->sig->nboxes, LAYER_PARAMS_MAX, LAYER_DIMS_MAX, LAYER_BOXES_MAX);
        return false;
    }
    k->early = k->writes = 0;
    for (int i = 0; i < k->sig->nparams; i++) {
        const struct image_param *p = &k->sig->params[i];
        bool scalar = p->kind == IMAGE_SCALAR;
        int r = 0;
        while (r < ROWS &&
               (strcmp(rows[r].name, p->name) || rows[r].scalar != scalar || (!scalar && rows[r].rank != p->rank) ||
                (scalar && (p->elem == IMAGE_F32) != (rows[r].what >= I_SCALE))))
            r++;
        if (r == ROWS) {
            snprintf(why, LAYER_WHY, "kernel %.60s: its parameter '%.60s' is not one that a layer gives", k->sig->name,
                     p->name);
            return false;
        }
        k->row[i] = (uint8_t)r;
        k->early |= (uint32_t)p->early << i;
        k->writes |= (uint32_t)(p->kind == IMAGE_OUT || p->kind == IMAGE_INOUT) << i;
    }
    k->direct = bind_dims(k);
    return true;
}

static void fill_arguments(const struct layer_kernel *k, const struct values *v, struct moe_arg *args)
{
    for (int i = 0; i < k->sig->nparams; i++) {
        const struct row *r = &rows[k->row[i]];
        struct moe_arg *a = &args[i];
        if (r->scalar) {
            *a = r->what >= I_SCALE ? moe_f32(v->f[r->what]) : moe_i32(v->i[r->what]);
            continue;
        }
        *a = moe_pointer(v->p[r->what]);
        a->rank = r->rank;
        for (int j = 0; j < r->rank; j++)
            a->shape[j] = v->extent[r->shape[j]];
    }
}

// ---- a call -----------------------------------------------------------------------------------------------------

static void *constant(const void *p) // kernels take const tensors through plain pointers
{
    return (void *)(uintptr_t)p;
}

static void set_extents(const struct moe_layer *l, const struct layer_sizes *s, int64_t *d)
{
    const struct moe_layer_desc *m = &l->desc;
    d[D_T] = s->tokens;
    d[D_E] = m->experts;
    d[D_K] = s->choices;
    d[D_H] = m->hidden;
    d[D_I] = m->ffn;
    d[D_S] = s->slots;
    d[D_C] = s->chunks;
    d[D_N] = s->entries;
    d[D_L] = s->local;
    d[D_F] = l->weights.up ? s->local : 2 * s->local;
    d[D_G] = m->experts + m->shared;
    d[D_4] = 4;
}

static void set_scalars(const struct moe_layer *l, const struct layer_sizes *s, struct values *v)
{
    const struct moe_layer_desc *m = &l->desc;
    v->i[I_TOPK] = m->topk;
    v->i[I_RENORM] = m->renorm;
    v->i[I_SIGMOID] = m->score;
    v->i[I_GROUPS] = m->groups;
    v->i[I_KEEP] = m->keep_groups;
    v->i[I_PAIR] = m->group_pairs;
    v->i[I_CHUNK] = s->chunk;
    v->i[I_CHOICES] = (int32_t)s->choices;
    v->i[I_BLOCK] = s->block;
    v->i[I_STEP] = l->weights.up ? 1 : 2;
    v->i[I_UP] = l->weights.up ? 0 : 1;
    v->f[I_SCALE] = m->scale != 0 ? m->scale : 1;
    v->f[I_ALPHA] = m->alpha;
    v->f[I_LIMIT] = m->limit;
}

static void set_pointers(const struct moe_layer *l, const struct moe_layer_call *c, const struct layer_sizes *s,
                         void **p)
{
    const struct moe_layer_weights *w = &l->weights;
    p[P_X] = constant(c->x);
    p[P_Y] = c->y;
    p[P_LOGITS] = constant(c->logits);
    p[P_SELECT_BIAS] = w->select_bias ? constant(w->select_bias) : l->zeros;
    p[P_GATE] = constant(w->gate);
    p[P_UP] = constant(w->up ? w->up : w->gate);
    p[P_DOWN] = constant(w->down);
    p[P_GATE_BIAS] = constant(w->gate_bias);
    p[P_UP_BIAS] = constant(w->up_bias ? w->up_bias : w->gate_bias);
    p[P_DOWN_BIAS] = constant(w->down_bias);
    p[P_SHARED_GATE] = constant(w->shared_gate);
    p[P_MAP] = constant(w->expert_map);
    for (int i = 0; i < MOE_LAYER_PARTS; i++)
        p[P_PARTS + i] = c->parts ? c->parts[i] : (char *)c->workspace + s->offset[i];
    if (!c->logits) { // given ids and weights are read where they lie
        p[PART(WEIGHTS)] = constant(c->weights);
        p[w->expert_map ? PART(CHOSEN) : PART(IDS)] = constant(c->ids);
    }
}

static bool runs(const struct moe_layer *l, const struct moe_layer_call *c, enum layer_launch n)
{
    bool wanted = !c->steps || c->steps >> launch_step[n] & 1;
    return wanted && layer_needs(l, n) && (c->logits || (n != L_ROUTE && n != L_SHARED_GATE));
}

static void set_values(const struct moe_layer *l, const struct moe_layer_call *c, const struct layer_sizes *s,
                       struct values *v)
{
    set_extents(l, s, v->extent);
    set_scalars(l, s, v);
    set_pointers(l, c, s, v->p);
}

// Launch n of a call, or NULL: it has none. Sets which ids it is about.
static const struct layer_kernel *next(const struct moe_layer *l, const struct moe_layer_call *c, int n, int tile,
                                       struct values *v)
{
    if (!runs(l, c, (enum layer_launch)n))
        return NULL;
    v->p[P_SEEN] = v->p[n <= L_MAP && l->weights.expert_map ? PART(CHOSEN) : PART(IDS)];
    return n == L_GATE_UP || n == L_DOWN ? &l->tiled[tile][n - L_GATE_UP] : &l->k[n];
}

int layer_launches(const struct moe_layer *l, const struct moe_layer_call *c, int block, layer_visit *visit, void *user)
{
    struct layer_sizes s;
    struct values v;
    struct moe_arg args[LAYER_PARAMS_MAX];
    int tile = layer_tile_index(l, block), status = 0;
    if (!layer_sizes(l, c->tokens, block, &s))
        return MOE_ERR_ARGUMENT;
    set_values(l, c, &s, &v);
    for (int n = 0; n < LAYER_LAUNCHES && !status; n++) {
        const struct layer_kernel *k = next(l, c, n, tile, &v);
        if (!k)
            continue;
        fill_arguments(k, &v, args);
        status = visit(user, (enum layer_launch)n, k, args);
    }
    return status;
}

// ---- the short way to a launch ----------------------------------------------------------------------------------

// What launch_resolve() does, where only tokens and pointers differ from what was checked when the layer was made. False: it
// would refuse, or it is for it to say.
static bool resolve_directly(const struct layer_kernel *k, const struct values *v, int64_t *dims, int64_t *scalars,
                             struct launch_item *item, union launch_value *value)
{
    const struct image_kernel *s = k->sig;
    uintptr_t bad = !k->direct;
    int n = s->nparams;
    for (int i = 0; i < s->nparams; i++) {
        const struct row *r = &rows[k->row[i]];
        item->args[i] = &value[i];
        if (!r->scalar) {
            value[i].p = v->p[r->what];
            bad |= (value[i].p == NULL) | ((uintptr_t)value[i].p & ((uintptr_t)s->params[i].align - 1));
        } else if (r->what >= I_SCALE) {
            value[i].f = v->f[r->what];
        } else {
            value[i].i = v->i[r->what];
            scalars[i] = value[i].i;
        }
    }
    for (int i = 0; i < s->ndims && !bad; i++) {
        const struct image_dim *d = &s->dims[i];
        dims[i] = d->bound >= 0 ? d->bound : v->extent[k->extent[i]];
        if (d->bound >= 0)
            continue;
        bad |= k->extent[i] <= D_N && (dims[i] > d->max || (d->multiple > 1 && dims[i] % d->multiple));
        value[n].i = (int32_t)dims[i];
        item->args[n] = &value[n];
        n++;
    }
    return !bad;
}

// What launches of a call write, since the last ordinary one.
struct written {
    int n;
    const void *p[LAYER_LAUNCHES * LAYER_PARAMS_MAX];
};

// May a launch of k start before those that wrote `w` have finished? A tensor is told by its address: those of a call are
// either the same or apart.
static bool may_be_early(const struct layer_kernel *k, const union launch_value *value, const struct written *w)
{
    for (uint32_t early = k->early; early; early &= early - 1)
        for (int i = 0; i < w->n; i++)
            if (w->p[i] == value[__builtin_ctz(early)].p)
                return false;
    return k->early;
}

static void add_written(const struct layer_kernel *k, const union launch_value *value, struct written *w)
{
    for (uint32_t out = k->writes; out; out &= out - 1)
        w->p[w->n++] = value[__builtin_ctz(out)].p;
}

int layer_collect(const struct moe_layer *l, const struct moe_layer_call *c, const struct layer_sizes *s, int tile,
                  struct layer_ready *ready)
{
    struct values v;
    struct written written; // not filled: it is for the launches that there are
    int64_t dims[LAYER_DIMS_MAX], scalars[LAYER_PARAMS_MAX];
    int status = MOE_OK;
    ready->n = written.n = 0;
    set_values(l, c, s, &v);
    for (int n = 0; n < LAYER_LAUNCHES && !status; n++) {
        const struct layer_kernel *k = next(l, c, n, tile, &v);
        if (!k)
            continue;
        struct launch_item *item = &ready->item[ready->n];
        union launch_value *value = ready->value[ready->n];
        item->args = ready->arg[ready->n];
        struct launch_map *map = ready->map[ready->n];
        if (resolve_directly(k, &v, dims, scalars, item, value)) {
            status = launch_grid(k->kernel, dims, scalars, item);
            status = status ? status : launch_maps(k->kernel, dims, value, item, map);
        } else {
            struct moe_arg args[LAYER_PARAMS_MAX];
            fill_arguments(k, &v, args);
            status = launch_resolve(k->kernel, args, k->sig->nparams, NULL, item, value, map);
        }
        if (status || !item->blocks)
            continue;
        item->dependent = ready->n && may_be_early(k, value, &written);
        if (!item->dependent)
            written.n = 0;
        add_written(k, value, &written);
        ready->n++;
    }
    return status;
}
