// Findings: one line each, kept with the device, each pair of places once a kind.
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
    [F_RACE] = "race",        [F_UNWRITTEN] = "unwritten",  [F_ASYNC] = "async",         [F_BOUNDS] = "bounds",
    [F_ALIGN] = "misaligned", [F_INPUT] = "input written",  [F_DIVERGENT] = "divergent", [F_DEADLOCK] = "deadlock",
    [F_LEAK] = "leak",        [F_SHARED] = "shared memory", [F_RUNAWAY] = "runaway",     [F_OPERAND] = "operand",
};

const char *site_place(const struct site *s, char out[64])
{
    if (s && s->line)
        snprintf(out, 64, "line %d:%d", s->line, s->col);
    else
        snprintf(out, 64, "line unknown");
    return out;
}

// false: this one is known already, or there are too many.
static bool enter(struct moesim_device *d, struct launch *l, uint64_t key, char *text)
{
    for (int i = 0; i < d->nfindings; i++)
        if (d->keys[i] == key)
            return false;
    if (d->nfindings >= d->limit)
        return false;
    if (d->nfindings == d->findings_cap) {
        int cap = d->findings_cap ? 2 * d->findings_cap : 16;
        char **f = realloc(d->findings, (size_t)cap * sizeof *f);
        if (f)
            d->findings = f;
        uint64_t *k = f ? realloc(d->keys, (size_t)cap * sizeof *k) : NULL;
        if (!k)
            return false;
        d->keys = k;
        d->findings_cap = cap;
    }
    d->keys[d->nfindings] = key;
    d->findings[d->nfindings++] = text;
    if (d->nfindings >= d->limit)
        __atomic_store_n(&l->stop, true, __ATOMIC_RELAXED);
    return true;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x100000001b3u ^ h >> 29;
}

static void report(struct launch *l, const struct site *s, enum finding_kind kind, uint64_t other, const char *where,
                   const char *fmt, va_list ap)
{
    struct moesim_device *d = l->device;
    char what[1024], text[1400], place[96];
    const struct moesim_kernel *k = l->kernel;
    vsnprintf(what, sizeof what, fmt, ap);
    if (s && s->line)
        snprintf(place, sizeof place, "%.60s:%d:%d", k->module->file, s->line, s->col);
    else if (k->fn->line)
        snprintf(place, sizeof place, "%.60s:%d:1", k->module->file, k->fn->line);
    else
        snprintf(place, sizeof place, "%.60s", k->module->file);
    snprintf(text, sizeof text, "%s: %s: %s: %s%s%s", place, k->fn->name, kinds[kind], where, *where ? ": " : "", what);
    uint64_t key =
        mix(mix(mix(mix(14695981039346656037u, kind + 1), s ? s->id : 0), other), (uint64_t)(uintptr_t)k->fn);
    char *copy = strdup(text);
    pthread_mutex_lock(&d->lock);
    if (copy && !enter(d, l, key, copy))
        free(copy);
    pthread_mutex_unlock(&d->lock);
}

void finding(struct lane *t, struct site *s, enum finding_kind kind, uint64_t other, const char *fmt, ...)
{
    struct block *b = t->warp->block;
    char where[96];
    va_list ap;
    va_start(ap, fmt);
    snprintf(where, sizeof where, "block %u, thread %d (warp %d, lane %d)", b->id, t->thread, t->warp->index, t->index);
    report(b->launch, s, kind, other, where, fmt, ap);
    va_end(ap);
}

void finding_launch(struct launch *l, enum finding_kind kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(l, NULL, kind, 0, "", fmt, ap);
    va_end(ap);
}
