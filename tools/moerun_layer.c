// One MoE layer on a device: its buffers, its inputs, its launches. Arguments are bound by the kernels' parameter
// names.
#include "moerun.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const buffer_names[BUFFERS] = { "x",         "logits", "bias",    "w_gate", "w_up",
                                            "w_down",    "ids",    "weights", "counts", "slot_row",
                                            "row_token", "tiles",  "h",       "d",      "y" };
const char *const step_names[STEPS] = { "route", "count", "plan", "gate_up", "down", "combine" };
enum { UPLOAD_PIECE = 32 << 20, CHUNK_LEAST = 256, CHUNKS_MOST = 128, TENSOR_X = 10 };

// ---- weights
// ----------------------------------------------------------------------------------------------------------

static int64_t matrix_elems(const struct model *m)
{
    return (int64_t)m->experts * m->hidden * m->ffn;
}

static bool special(const struct layer *l, const char *what)
{
    return l->o->special && !strcmp(l->o->special, what);
}

// --special=inf-weight: the first weight of w_gate of this expert.
static int64_t infinite_at(const struct layer *l, int which)
{
    int expert = l->m->experts > 3 ? 3 : l->m->experts - 1;
    return which == REF_GATE && special(l, "inf-weight") ? (int64_t)expert * l->m->hidden * l->m->ffn : -1;
}

void layer_row(void *layer, enum ref_matrix which, int expert, int index, double *out)
{
    const struct layer *l = layer;
    int64_t width = which == REF_DOWN ? l->m->ffn : l->m->hidden, rows = which == REF_DOWN ? l->m->hidden : l->m->ffn;
    int64_t first = ((int64_t)expert * rows + index) * width;
    normal_values(&l->w[which], first, width, out);
    if (first == infinite_at(l, which))
        out[0] = HUGE_VAL;
}

// Uploads (or compares) one matrix, a piece at a time.
static bool each_piece(struct layer *l, int which, bool compare, bool *same)
{
    int64_t n = matrix_elems(l->m), step = compare && n > ((int64_t)1 << 30) ? 8 : 1; // of very large ones: an eighth
    uint16_t *host = malloc(2 * (size_t)UPLOAD_PIECE * sizeof *host), *back = host ? host + UPLOAD_PIECE : NULL;
    bool ok = host || report(EXIT_INTERNAL, "out of memory");
    for (int64_t at = 0; ok && at < n; at += UPLOAD_PIECE * step) {
        int64_t m = n - at < UPLOAD_PIECE ? n - at : UPLOAD_PIECE;
        uint16_t *device = (uint16_t *)l->b[B_GATE + which].ptr + at;
        int64_t infinite = infinite_at(l, which);
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

bool layer_weights(struct layer *l, const struct options *o, struct device *d, const struct model *m)
{
    static const char *const specials[] = { "ties", "logits-100", "logits-low", "nan-row", "inf-weight" };
    bool known = !o->special;
    *l = (struct layer){ .o = o, .d = d, .m = m };
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        known = known || special(l, specials[i]);
    if (!known)
        return report(EXIT_USAGE, "--special=%s is unknown; moerun --help tells", o->special);
    for (int i = 0; i < 3; i++) {
        double sigma = 1 / sqrt(i == REF_DOWN ? m->ffn : m->hidden);
        if (!normal_init(&l->w[i], o->seed, i, sigma, o->f16) ||
            !guarded_new(d, &l->b[B_GATE + i], (size_t)matrix_elems(m) * 2) || !each_piece(l, i, false, NULL))
            return false;
    }
    return normal_init(&l->x, o->seed, TENSOR_X, o->x_scale, o->f16);
}

void layer_free(struct layer *l)
{
    layer_tokens_free(l);
    for (int i = 0; i < 3; i++) {
        normal_free(&l->w[i]);
        guarded_free(l->d, &l->b[B_GATE + i]);
    }
    normal_free(&l->x);
}

// ---- inputs of one number of tokens
// -------------------------------------------------------------------------------------

// Logits whose order is a draw of experts without replacement: log-weights plus Gumbel noise.
static void make_logits(struct layer *l)
{
    const struct options *o = l->o;
    int experts = l->m->experts;
    double spread = l->m->sigmoid ? 0.5 : 1; // keep sigmoids away from 1, where scores would tie
    for (int64_t i = 0; i < (int64_t)l->tokens * experts; i++) {
        int e = (int)(i % experts);
        double gumbel = -log(-log(random_unit(o->seed, 2000 + (uint64_t)l->tokens, (uint64_t)i)));
        double weight = o->routing == 'z' ? -o->zipf * log(e + 1) : o->routing == 'o' && e == experts - 1 ? 30 : 0;
        l->host_logits[i] = (float)(spread * (weight + gumbel));
        if (special(l, "ties"))
            l->host_logits[i] = 0;
        else if (special(l, "logits-100"))
            l->host_logits[i] = gumbel > 0.3665 ? 100 : -100; // the median
        else if (special(l, "logits-low"))
            l->host_logits[i] = -200;
    }
    for (int e = 0; e < experts; e++)
        l->host_bias[e] = l->m->bias ? (float)(0.02 * (random_unit(o->seed, 3000, (uint64_t)e) - 0.5)) : 0;
}

// Whitespace-separated ids, token by token; fewer than needed are repeated.
static bool read_ids(struct layer *l)
{
    char *text, *p, *end;
    size_t length;
    int64_t n = 0;
    if (!read_file(l->o->routing_file, &text, &length))
        return false;
    end = text;
    for (p = text; n < l->slots; p = end) {
        long v = strtol(p, &end, 10);
        if (end == p)
            break;
        l->given_ids[n++] = (int32_t)v;
    }
    bool ok = n == l->slots || (n > 0 && end[strspn(end, " \t\r\n")] == 0);
    for (int64_t i = n; ok && i < l->slots; i++)
        l->given_ids[i] = l->given_ids[i % n];
    free(text);
    return ok || report(EXIT_USAGE, "%s: expected integers", l->o->routing_file);
}

// Ids that no router gives: every third is -1, one is past the last expert, both of a pair are equal.
static bool give_ids(struct layer *l)
{
    char how = l->o->routing;
    if (!strchr("fhbt", how))
        return true;
    l->given_ids = malloc((size_t)(l->slots + 1) * sizeof *l->given_ids);
    if (!l->given_ids)
        return report(EXIT_INTERNAL, "out of memory");
    if (how == 'f')
        return read_ids(l);
    for (int64_t i = 0; i < l->slots; i++) {
        int32_t id = (int32_t)(random_bits(l->o->seed, 8000, (uint64_t)i) % (uint64_t)l->m->experts);
        if (how == 'h' && i % 3 == 2)
            id = -1;
        else if (how == 'b' && i == l->slots / 2)
            id = l->m->experts;
        else if (how == 't' && i % l->m->topk)
            id = l->given_ids[i - 1];
        l->given_ids[i] = id;
    }
    return true;
}

static void buffer_bytes(const struct layer *l, size_t *bytes)
{
    const struct model *m = l->m;
    size_t t = (size_t)l->tokens, s = (size_t)l->slots, e = (size_t)m->experts;
    bytes[B_X] = bytes[B_Y] = t * (size_t)m->hidden * 2;
    bytes[B_LOGITS] = t * e * 4;
    bytes[B_BIAS] = e * 4;
    bytes[B_IDS] = bytes[B_WEIGHTS] = bytes[B_SLOT_ROW] = bytes[B_ROW_TOKEN] = s * 4;
    bytes[B_COUNTS] = (size_t)l->chunks * e * 4;
    bytes[B_TILES] = (size_t)l->entries * 16;
    bytes[B_H] = s * (size_t)m->ffn * 2;
    bytes[B_D] = s * (size_t)m->hidden * 2;
}

static bool choose_kernels(struct layer *l, int rows)
{
    const char *name;
    for (int i = 0; i < STEPS; i++) {
        name = i == STEP_ROUTE ? l->m->sigmoid ? "route_sigmoid" : "route_softmax" : step_names[i];
        l->k[i] = device_kernel(l->d, l->o, name, i == STEP_GATE_UP || i == STEP_DOWN ? rows : 0);
        if (!l->k[i])
            return report(EXIT_USAGE, "the image has no kernel %s%s%s", name, rows ? " for this tile of rows" : "",
                          l->o->variant ? " and --variant" : "");
    }
    return true;
}

// The smallest tile that holds the average rows of an active expert, among those that the image has.
static bool choose_block(struct layer *l, int rows)
{
    int tiles[LIST_MAX], n = layer_variants(l->d, tiles, LIST_MAX), i = 0;
    int64_t active = l->slots < l->m->experts ? l->slots : l->m->experts;
    if (!l->d->gpu && !n) // eval of the stage `tile`: any size
        l->block = rows ? rows : 16;
    else if (!n)
        return report(EXIT_USAGE, "the image has no kernels gate_up and down with the same tile of rows");
    else if (rows)
        l->block = rows;
    else {
        while (i + 1 < n && active && tiles[i] < (l->slots + active - 1) / active)
            i++;
        l->block = tiles[i];
    }
    return choose_kernels(l, l->block);
}

bool layer_tokens(struct layer *l, int tokens, int rows)
{
    size_t bytes[BUFFERS] = { 0 };
    const struct model *m = l->m;
    l->tokens = tokens;
    l->slots = (int64_t)tokens * m->topk;
    if (!choose_block(l, rows))
        return false;
    int64_t chunk = (l->slots + CHUNKS_MOST - 1) / CHUNKS_MOST;
    l->chunk = (int)((chunk > CHUNK_LEAST ? chunk : CHUNK_LEAST) + 63) / 64 * 64;
    l->chunks = (l->slots + l->chunk - 1) / l->chunk;
    l->entries = (l->slots < m->experts ? l->slots : m->experts) + l->slots / l->block;
    buffer_bytes(l, bytes);
    for (int i = 0; i < BUFFERS; i++)
        if (!(i >= B_GATE && i <= B_DOWN) && !guarded_new(l->d, &l->b[i], bytes[i]))
            return false;
    l->host_x = malloc(bytes[B_X] + 1);
    l->host_logits = malloc(bytes[B_LOGITS] + 1);
    l->host_bias = malloc(bytes[B_BIAS] + 1);
    if (!l->host_x || !l->host_logits || !l->host_bias)
        return report(EXIT_INTERNAL, "out of memory");
    normal_fill(&l->x, 0, (int64_t)tokens * m->hidden, l->host_x);
    for (int i = 0; special(l, "nan-row") && tokens > 5 && i < m->hidden; i++)
        l->host_x[5 * m->hidden + i] = ref_bits(l->o->f16, (double)NAN);
    make_logits(l);
    return give_ids(l) && device_upload(l->d, l->b[B_X].ptr, l->host_x, bytes[B_X]) &&
           device_upload(l->d, l->b[B_LOGITS].ptr, l->host_logits, bytes[B_LOGITS]) &&
           device_upload(l->d, l->b[B_BIAS].ptr, l->host_bias, bytes[B_BIAS]);
}

void layer_tokens_free(struct layer *l)
{
    for (int i = 0; i < BUFFERS; i++)
        if (!(i >= B_GATE && i <= B_DOWN))
            guarded_free(l->d, &l->b[i]);
    free(l->host_x);
    free(l->host_logits);
    free(l->host_bias);
    free(l->given_ids);
    l->host_x = NULL;
    l->host_logits = l->host_bias = NULL;
    l->given_ids = NULL;
}

bool layer_poison(struct layer *l)
{
    for (int i = B_IDS; i < BUFFERS; i++)
        if (!device_poison(l->d, l->b[i].ptr, l->b[i].bytes))
            return false;
    return true;
}

// ---- launching
// ----------------------------------------------------------------------------------------------------------

static struct moe_arg tensor(const struct layer *l, enum buffer b, int rank)
{
    const struct model *m = l->m;
    const int64_t t = l->tokens, h = m->hidden, i = m->ffn, e = m->experts, s = l->slots;
    const int64_t shapes[BUFFERS][3] = {
        [B_X] = { t, h },
        [B_LOGITS] = { t, e },
        [B_BIAS] = { e },
        [B_GATE] = { e, i, h },
        [B_UP] = { e, i, h },
        [B_DOWN] = { e, h, i },
        [B_IDS] = { t, m->topk },
        [B_WEIGHTS] = { t, m->topk },
        [B_COUNTS] = { l->chunks, e },
        [B_SLOT_ROW] = { t, m->topk },
        [B_ROW_TOKEN] = { s },
        [B_TILES] = { l->entries, 4 },
        [B_H] = { s, i },
        [B_D] = { s, h },
        [B_Y] = { t, h },
    };
    struct moe_arg a = { .kind = MOE_POINTER, .rank = rank, .ptr = l->b[b].ptr, .bytes = l->b[b].bytes };
    memcpy(a.shape, shapes[b], sizeof shapes[b]);
    if ((b == B_IDS || b == B_SLOT_ROW) && rank == 1) // seen as slots
        a.shape[0] = s;
    return a;
}

static bool bind(const struct layer *l, const struct image_param *p, struct moe_arg *a)
{
    const struct {
        const char *name;
        struct moe_arg value;
    } scalars[] = { { "renorm", moe_i32(l->m->renorm) },
                    { "scale", moe_f32((float)l->m->scale) },
                    { "chunk", moe_i32(l->chunk) },
                    { "topk", moe_i32(l->m->topk) },
                    { "block", moe_i32(l->block) } };
    for (int i = 0; i < BUFFERS; i++)
        if (p->kind != IMAGE_SCALAR && !strcmp(p->name, buffer_names[i])) {
            *a = tensor(l, (enum buffer)i, p->rank);
            return true;
        }
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        if (p->kind == IMAGE_SCALAR && !strcmp(p->name, scalars[i].name)) {
            *a = scalars[i].value;
            return true;
        }
    return false;
}

bool layer_step(struct layer *l, enum step s)
{
    const struct image_kernel *k = l->k[s];
    struct moe_arg args[IMAGE_PARAMS_MAX];
    for (int i = 0; i < k->nparams; i++) {
        const struct image_param *p = &k->params[i];
        enum image_elem want = l->o->f16 ? IMAGE_F16 : IMAGE_BF16;
        if (!bind(l, p, &args[i]))
            return report(EXIT_USAGE, "kernel %s has a parameter '%s' that this tool does not know", k->name, p->name);
        if ((p->elem == IMAGE_BF16 || p->elem == IMAGE_F16) && p->elem != want)
            return report(EXIT_USAGE, "kernel %s was compiled for %s: see --dtype", k->name,
                          moe_image_elem_name(p->elem));
    }
    return device_launch(l->d, k, args, k->nparams, NULL, l->block);
}

bool layer_run(struct layer *l)
{
    for (int s = 0; s < STEPS; s++) {
        if (!layer_step(l, (enum step)s))
            return false;
        // With given ids, what the router chose is replaced (its weights stay).
        if (s == STEP_ROUTE && l->given_ids &&
            (!device_sync(l->d) || !device_upload(l->d, l->b[B_IDS].ptr, l->given_ids, l->b[B_IDS].bytes)))
            return false;
    }
    return device_sync(l->d);
}

// ---- after the run
// ------------------------------------------------------------------------------------------------------

static bool same_bytes(struct layer *l, enum buffer b, const void *want, bool *intact)
{
    size_t n = l->b[b].bytes;
    void *got = malloc(n + 1);
    bool ok = got || report(EXIT_INTERNAL, "out of memory");
    ok = ok && device_download(l->d, got, l->b[b].ptr, n);
    if (ok && memcmp(got, want, n)) {
        fprintf(stderr, "moerun: the input %s was changed\n", buffer_names[b]);
        *intact = false;
    }
    free(got);
    return ok;
}

bool layer_inputs_intact(struct layer *l, bool *intact)
{
    bool same = true;
    if (!same_bytes(l, B_X, l->host_x, intact) || !same_bytes(l, B_LOGITS, l->host_logits, intact) ||
        !same_bytes(l, B_BIAS, l->host_bias, intact))
        return false;
    for (int i = 0; i < 3; i++)
        if (!each_piece(l, i, true, &same))
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
