// Findings: one line each, kept with the device, each pair of places once a kind.
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
    [F_RACE] = "race",        [F_UNWRITTEN] = "unwritten",  [F_ASYNC] = "async",         [F_BOUNDS] = "bounds",
    [F_ALIGN] = "misaligned", [F_INPUT] = "input written",  [F_DIVERGENT] = "divergent", [F_DEADLOCK] = "deadlock",
    [F_LEAK] = "leak",        [F_SHARED] = "shared memory", [F_RUNAWAY] = "runaway",     [F_OPERAND] = "operand",
    [F_EARLY] = "early",
};

const char *site_place(const struct site *s, char out[64])
{
    if (s && s->line)
        snprintf(out, 64, "line %d:%d", s->line, s->col);
    else
        snprintf(out, 64, "line unknown");
    return out;
}

// Takes the text over. The report of a seed does not depend on which worker was first: see struct found.
static void enter(struct moesim_device *d, struct launch *l, struct found new)
{
    for (int i = 0; i < d->nfindings; i++) {
        struct found *f = &d->findings[i];
        if (f->key != new.key)
            continue;
        bool replaces = new.block < f->block && f->launch == new.launch;
        free(replaces ? f->text : new.text);
        *f = replaces ? new : *f;
        return;
    }
    if (d->nfindings == d->findings_cap && d->nfindings < d->limit) {
        int cap = d->findings_cap ? 2 * d->findings_cap : 16;
        struct found *f = realloc(d->findings, (size_t)cap * sizeof *f);
        d->findings_cap = f ? cap : d->findings_cap;
        d->findings = f ? f : d->findings;
    }
    if (d->nfindings == d->findings_cap || d->nfindings >= d->limit) {
        free(new.text);
        return;
    }
    d->findings[d->nfindings++] = new;
    if (d->nfindings >= d->limit)
        __atomic_store_n(&l->stop, true, __ATOMIC_RELAXED);
}

static int by_block(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return x->block != y->block ? (x->block > y->block) - (x->block < y->block)
                                : (x->order > y->order) - (x->order < y->order);
}

void findings_sort(struct moesim_device *d, int from)
{
    if (d->nfindings > from)
        if (d->nfindings > from)
            qsort(d->findings + from, (size_t)(d->nfindings - from), sizeof *d->findings, by_block);
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x100000001b3u ^ h >> 29;
}

// Places of one line of the DSL count as one: a loop may have been unrolled.
static uint64_t place_key(const struct site *s)
{
    return !s ? 0 : s->line ? (uint64_t)s->line << 32 | (uint32_t)s->col : s->id;
}

static uint64_t other_key(const struct module_fn *fn, enum finding_kind kind, uint64_t other)
{
    bool site = kind == F_RACE || kind == F_ASYNC || kind == F_DIVERGENT;
    return site && other && other <= (uint64_t)fn->module->nsites ? place_key(fn->module->sites[other - 1]) : other;
}

struct where { // of a finding
    uint32_t block, order;
    char text[96];
};
static void report(struct launch *l, const struct site *s, enum finding_kind kind, uint64_t other,
                   const struct where *where, const char *fmt, va_list ap)
{
    struct moesim_device *d = l->device;
    char what[1024], text[1400], place[96];
    const struct module_fn *fn = l->kernel->fn;
    vsnprintf(what, sizeof what, fmt, ap);
    if (s && s->line)
        snprintf(place, sizeof place, "%.60s:%d:%d", fn->module->file, s->line, s->col);
    else if (fn->line)
        snprintf(place, sizeof place, "%.60s:%d:1", fn->module->file, fn->line);
    else
        snprintf(place, sizeof place, "%.60s", fn->module->file);
    snprintf(text, sizeof text, "%s: %s: %s: %s%s%s", place, fn->name, kinds[kind], where->text,
             *where->text ? ": " : "", what);
    uint64_t key = mix(mix(14695981039346656037u, kind + 1), place_key(s));
    key = mix(mix(key, other_key(fn, kind, other)), (uint64_t)(uintptr_t)fmt);
    struct found f = { mix(key, (uint64_t)(uintptr_t)fn), where->block, where->order, l->number, strdup(text) };
    pthread_mutex_lock(&d->lock);
    if (f.text)
        enter(d, l, f);
    pthread_mutex_unlock(&d->lock);
}

void finding(struct lane *t, struct site *s, enum finding_kind kind, uint64_t other, const char *fmt, ...)
{
    struct block *b = t->warp->block;
    struct where w = { b->id, b->nfindings++, "" };
    va_list ap;
    va_start(ap, fmt);
    snprintf(w.text, sizeof w.text, "block %u, thread %d (warp %d, lane %d)", b->id, t->thread, t->warp->index,
             t->index);
    report(b->launch, s, kind, other, &w, fmt, ap);
    va_end(ap);
}

void finding_launch(struct launch *l, enum finding_kind kind, const char *fmt, ...)
{
    struct where w = { 0, 0, "" };
    va_list ap;
    va_start(ap, fmt);
    report(l, NULL, kind, 0, &w, fmt, ap);
    va_end(ap);
}
