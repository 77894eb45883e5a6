// Chains of kernel nodes, see batch.h. A launch takes a chain that nobody else is setting: the one that its stream used last,
// else the one unused for longest, since a graph does not run twice at once and streams would wait for each other. It may be
// set again as soon as its launch was called: parameters are read then, whatever is still queued.
#include "batch.h"

#include <stdio.h>
#include <stdlib.h>

struct chain {
    atomic_bool busy; // somebody sets or launches it: the only one who may
    _Atomic(void *) stream;
    atomic_uint_least64_t used; // the clock, then
    void *graph, *exec, *node[BATCH_MOST];
};
struct chains { // never changes once it is in a list, but for what its chains are doing
    struct chains *next;
    uint32_t pattern;
    int n;
    struct chain at[BATCH_WAYS];
};

bool batch_init(struct batch *b)
{
    for (int n = 0; n <= BATCH_MOST; n++)
        atomic_init(&b->of[n], NULL);
    atomic_init(&b->clock, 0);
    return !pthread_mutex_init(&b->making, NULL);
}

void batch_free(struct batch *b, const struct batch_calls *calls, const void *state)
{
    for (int n = 0; n <= BATCH_MOST; n++) {
        struct chains *list = atomic_load(&b->of[n]);
        while (list) {
            struct chains *next = list->next;
            for (int i = 0; i < list->n; i++)
                calls->drop(state, list->at[i].graph, list->at[i].exec);
            free(list);
            list = next;
        }
    }
    pthread_mutex_destroy(&b->making);
}

// Which items are dependent, a bit each: an edge of a graph stays what it was made.
static uint32_t pattern_of(const struct launch_item *items, int n)
{
    uint32_t p = 0;
    for (int i = 0; i < n; i++)
        p |= (uint32_t)items[i].dependent << i;
    return p;
}

static struct chains *find(struct batch *b, const struct launch_item *items, int n)
{
    if (!b || n < 2 || n > BATCH_MOST)
        return NULL;
    struct chains *list = atomic_load_explicit(&b->of[n], memory_order_acquire);
    uint32_t pattern = pattern_of(items, n);
    while (list && list->pattern != pattern)
        list = list->next;
    return list;
}

static void forget(const struct batch_calls *calls, const void *state, int code)
{
    if (code && calls->forget)
        calls->forget(state);
}

// ---- making -----------------------------------------------------------------------------------------------------

static int make_chain(struct chain *c, const struct batch_calls *calls, const void *state,
                      const struct launch_item *items, int n)
{
    int code = calls->graph(state, &c->graph);
    if (code)
        return code;
    for (int i = 0; i < n && !code; i++)
        code = calls->node(state, c->graph, i ? &c->node[i - 1] : NULL, &items[i], &c->node[i]);
    if (!code)
        code = calls->make(state, c->graph, &c->exec);
    if (code)
        calls->drop(state, c->graph, NULL);
    return code;
}

void batch_prepare(struct batch *b, const struct batch_calls *calls, const void *state, const struct launch_item *items,
                   int n)
{
    int code = 0;
    if (n < 2 || n > BATCH_MOST)
        return;
    pthread_mutex_lock(&b->making);
    struct chains *list = find(b, items, n) ? NULL : calloc(1, sizeof *list);
    while (list && list->n < BATCH_WAYS && !code) {
        code = make_chain(&list->at[list->n], calls, state, items, n);
        list->n += !code;
    }
    if (list && list->n) {
        list->pattern = pattern_of(items, n);
        list->next = atomic_load(&b->of[n]);
        atomic_store(&b->of[n], list);
    } else {
        free(list);
    }
    pthread_mutex_unlock(&b->making);
    forget(calls, state, code);
}

// ---- launching --------------------------------------------------------------------------------------------------

static struct chain *choose(struct chains *list, const void *stream)
{
    struct chain *best = NULL;
    uint64_t oldest = UINT64_MAX;
    for (int i = 0; i < list->n; i++) {
        struct chain *c = &list->at[i];
        if (atomic_load_explicit(&c->busy, memory_order_relaxed))
            continue;
        if (atomic_load_explicit(&c->stream, memory_order_relaxed) == stream)
            return c;
        uint64_t used = atomic_load_explicit(&c->used, memory_order_relaxed);
        best = used < oldest ? c : best;
        oldest = used < oldest ? used : oldest;
    }
    return best;
}

// NULL: all are in use by others.
static struct chain *take(struct batch *b, struct chains *list, void *stream)
{
    struct chain *c;
    while ((c = choose(list, stream)))
        if (!atomic_exchange_explicit(&c->busy, true, memory_order_acquire))
            break;
    if (c) {
        uint64_t now = atomic_fetch_add_explicit(&b->clock, 1, memory_order_relaxed);
        atomic_store_explicit(&c->used, now + 1, memory_order_relaxed);
        atomic_store_explicit(&c->stream, stream, memory_order_relaxed);
    }
    return c;
}

// The handles 1 and 2 stand for default streams, the second for another one in each thread.
static bool own_stream(const void *stream)
{
    return (uintptr_t)stream > 2;
}

enum result {
    NOT_LAUNCHED, // nothing has reached the device; *code: of a call that failed, or 0
    LAUNCHED,
    FAILED // the graph's launch, with *code
};

static enum result launch_chain(struct batch *b, struct chains *list, const struct batch_calls *calls,
                                const void *state, const struct launch_item *items, int n, void *stream, int *code)
{
    bool capturing = false;
    *code = calls->capturing(state, stream, &capturing);
    struct chain *c = *code || capturing ? NULL : take(b, list, stream);
    if (!c)
        return NOT_LAUNCHED;
    enum result result = NOT_LAUNCHED;
    for (int i = 0; i < n && !*code; i++)
        *code = calls->set(state, c->exec, c->node[i], &items[i]);
    if (!*code) {
        *code = calls->launch(state, c->exec, stream);
        result = *code ? FAILED : LAUNCHED;
    }
    atomic_store_explicit(&c->busy, false, memory_order_release);
    return result;
}

int batch_launch(struct batch *b, const struct batch_calls *calls, const void *state, const struct launch_item *items,
                 int n, void *stream, char what[BATCH_TEXT])
{
    struct chains *list = own_stream(stream) ? find(b, items, n) : NULL;
    int code = 0;
    enum result result = list ? launch_chain(b, list, calls, state, items, n, stream, &code) : NOT_LAUNCHED;
    if (result == FAILED)
        snprintf(what, BATCH_TEXT, "%s of %d kernels from %.100s on", calls->launch_name, n, items[0].sig->symbol);
    if (result != NOT_LAUNCHED)
        return code;
    forget(calls, state, code);
    for (int i = 0; i < n; i++) {
        const char *name = "";
        code = calls->one(state, &items[i], stream, &name);
        if (!code)
            continue;
        snprintf(what, BATCH_TEXT, "%s of %.100s", name, items[i].sig->symbol);
        return code;
    }
    return 0;
}
