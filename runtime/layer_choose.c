// Which tile of rows a call takes. From T, top-k and E alone: the rows of an expert are binomial if routing is uniform, which
// gives the number of tiles; the compiler's model (image.h: fixed_ns, step_ps, resident) gives the time of one; memory gives a
// floor. Chosen once when the layer is made, for every T up to 64 and eight steps an octave beyond; hints replace choices.
#include "driver.h"
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EACH_UP_TO = 64,
    STEPS = 8,
    PROCESSORS = 100,
    GBPS = 3000,       // these two: where they are not known
    LATENCY_NS = 1500, // of memory under load
    OVERLAP = 5,
    INGEST = 60,     // bytes a ns that one multiprocessor can take in
    START_NS = 2200, // of blocks that stay, whose fixed_ns is that of a tile behind another
};
static const double TAIL = 0.4; // of a block's own reading
static const double AGAIN = 0.3;

int choice_index(int64_t tokens)
{
    if (tokens <= EACH_UP_TO)
        return tokens > 0 ? (int)tokens - 1 : 0;
    int octave = 63 - __builtin_clzll((uint64_t)tokens); // 6 and up
    int step = (int)((tokens >> (octave - 3)) & (STEPS - 1));
    int i = EACH_UP_TO + (octave - 6) * STEPS + step;
    return i < CHOICES ? i : CHOICES - 1;
}

// A number of tokens of that index.
static int64_t tokens_of(int index)
{
    if (index < EACH_UP_TO)
        return index + 1;
    int octave = 6 + (index - EACH_UP_TO) / STEPS, step = (index - EACH_UP_TO) % STEPS;
    return ((int64_t)(STEPS + step) << octave >> 3) + ((int64_t)1 << octave >> 4);
}

// ---- the model --------------------------------------------------------------------------------------------------

static double exp_minus(double x) // e^-x, for x up to some hundreds
{
    double t = x / 4096, e = 1 - t + t * t / 2 - t * t * t / 6;
    for (int i = 0; i < 12; i++)
        e *= e;
    return e;
}

struct load { // what uniform routing gives
    double tiles, active;
};

// Of `experts` experts with `mean` rows each, Poisson for few, as good as any for many.
static struct load routed(double experts, double mean, int tile)
{
    enum { MANY = 400 };
    if (mean > MANY)
        return (struct load){ experts * (mean / tile + 0.5), experts };
    double p = exp_minus(mean), none = p, tiles = 0;
    for (int r = 1; r < 3 * MANY; r++) {
        p *= mean / r;
        tiles += p * (double)((r + tile - 1) / tile);
    }
    return (struct load){ experts * tiles, experts * (1 - none) };
}

static struct load load_of(const struct moe_layer *l, int64_t tokens, int tile)
{
    const struct moe_layer_desc *d = &l->desc;
    struct load a = routed(d->experts, (double)tokens * d->topk / d->experts, tile);
    a.tiles += d->shared * (double)((tokens + tile - 1) / tile);
    a.active += d->shared;
    double here = d->local ? (double)d->local / (d->experts + d->shared) : 1;
    return (struct load){ a.tiles * here, a.active * here };
}

// Work and memory overlap, but not in full.
static double together(double a, double b)
{
    return a > b ? a + b / OVERLAP : b + a / OVERLAP;
}

// n columns, depth k, `matrices` of them.
static double kernel_ns(const struct moe_layer *l, const struct image_kernel *s, const struct load *a, int64_t n,
                        int64_t k, int matrices)
{
    int cols = moe_image_axis(s, "cols"), processors = l->processors ? l->processors : PROCESSORS;
    double gbps = l->gbps ? l->gbps : GBPS;
    double blocks = a->tiles * (double)((n + cols - 1) / (cols ? cols : n));
    double each = blocks / processors, waves = each / s->resident, full = (double)(int64_t)waves;
    double last = (waves - full) * s->resident; // blocks a processor of the last wave
    last = last <= 0 ? 0 : last < 1 ? 1 : last;
    double work = (full * s->resident + last) * (s->fixed_ns + (double)k * s->step_ps / 1000.0);
    // Too few bytes in flight, or too few blocks to have them, do not fill the memory's pipe; at the end some blocks read alone. Tiles
    // of the same expert read its weights again, in part from memory.
    double busy = blocks < (double)processors * s->resident ? blocks / (processors * s->resident) : 1;
    double flight = (double)s->flight * busy * processors, pipe = gbps * LATENCY_NS;
    double again = 1 + AGAIN * (a->tiles / a->active - 1);
    double bytes = (double)cols * (double)k * 2 * matrices * again * a->active / a->tiles; // of a block
    double all = INGEST * (blocks < processors ? blocks : processors);
    double memory = blocks * bytes / (gbps < all ? gbps : all) + TAIL * bytes / INGEST;
    memory *= flight < pipe ? pipe / flight : 1;
    return together(work, memory) + s->fixed_ns * (double)s->resident + (s->persistent ? START_NS : 0);
}

static double call_ns(const struct moe_layer *l, int tile, int64_t tokens)
{
    struct load a = load_of(l, tokens, l->tile[tile]);
    int64_t h = l->desc.hidden, i = l->desc.ffn;
    return kernel_ns(l, l->tiled[tile][0].sig, &a, i, h, 2) + kernel_ns(l, l->tiled[tile][1].sig, &a, h, i, 1);
}

// Without a model in the image: the smallest tile that holds the rows of an average expert.
static bool modelled(const struct moe_layer *l)
{
    for (int i = 0; i < l->ntiles; i++)
        for (int j = 0; j < 2; j++)
            if (!l->tiled[i][j].sig->resident || !l->tiled[i][j].sig->fixed_ns)
                return false;
    return true;
}

void layer_choose(struct moe_layer *l)
{
    bool model = modelled(l);
    for (int c = 0; c < CHOICES; c++) {
        int64_t tokens = tokens_of(c);
        double rows = (double)tokens * l->desc.topk / l->desc.experts, least = 0;
        int best = 0;
        for (int i = 0; i < l->ntiles; i++) {
            double ns = model ? call_ns(l, i, tokens) : l->tile[i] >= rows ? l->tile[i] : 1e9 / l->tile[i];
            best = i == 0 || ns < least ? i : best;
            least = i == 0 || ns < least ? ns : least;
        }
        l->choice[c] = (uint8_t)best;
    }
}

int layer_tile_index(const struct moe_layer *l, int rows)
{
    for (int i = 0; i < l->ntiles; i++)
        if (l->tile[i] == rows)
            return i;
    return -1;
}

int moe_layer_rows(const struct moe_layer *l, int64_t tokens)
{
    return l->tile[l->choice[choice_index(tokens)]];
}

int moe_layer_variant(const struct moe_layer *l, int i)
{
    return i >= 0 && i < l->ntiles ? l->tile[i] : 0;
}

// ---- hints ------------------------------------------------------------------------------------------------------

// Lines "moe-hint 1|IDENTITY|TOKENS|ROWS"; others are comments. Between two measured numbers of tokens that agree, all
// in between are taken to agree as well.
enum { LINE = 320 };
struct measured {
    int index, tile;
};

static bool read_line(const struct moe_layer *l, const char *line, struct measured *m)
{
    static const char mark[] = "moe-hint 1|";
    size_t n = strlen(l->identity);
    long long tokens = 0;
    int rows = 0, used = 0;
    if (strncmp(line, mark, sizeof mark - 1) || strncmp(line + sizeof mark - 1, l->identity, n))
        return false;
    if (sscanf(line + sizeof mark - 1 + n, "|%lld|%d%n", &tokens, &rows, &used) != 2 || tokens < 1)
        return false;
    m->index = choice_index(tokens);
    m->tile = layer_tile_index(l, rows);
    return m->tile >= 0;
}

int moe_layer_hints(struct moe_layer *l, const char *text, size_t bytes)
{
    char line[LINE];
    int8_t said[CHOICES];
    memset(said, -1, sizeof said);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at : bytes - at;
        struct measured m;
        snprintf(line, sizeof line, "%.*s", (int)(n < LINE - 1 ? n : LINE - 1), text + at);
        if (read_line(l, line, &m))
            said[m.index] = (int8_t)m.tile;
        at += n + 1;
    }
    int last = -1;
    for (int c = 0; c < CHOICES; c++) {
        if (said[c] < 0)
            continue;
        int from = last >= 0 && said[last] == said[c] ? last : c;
        memset(l->choice + from, said[c], (size_t)(c - from) + 1);
        last = c;
    }
    return MOE_OK;
}

int moe_layer_hint(const struct moe_layer *l, int64_t tokens, int rows, char *line, size_t size)
{
    int n = snprintf(line, size, "moe-hint 1|%s|%lld|%d\n", l->identity, (long long)tokens, rows);
    return n > 0 && (size_t)n < size ? MOE_OK
                                     : device_fail(l->device, MOE_ERR_ARGUMENT, "layer: a hint takes %d bytes", n + 1);
}
