// What atomic accesses and fences order (PTX ISA, "Memory Consistency Model"; LLVM's AMDGPU user guide, "Memory Model"): a release
// leaves the clocks of what comes before it at the address that it writes; an acquire that reads there takes them over. A relaxed
// write after a fence releases what the fence had before it, a relaxed read before a fence acquires by the fence; alone they order
// nothing. Updates go on with the release that they read ("release sequence"). A record holds for its exact address.
//
// Clocks of other blocks come by records of global memory alone. A block keeps what its warps have learnt of other blocks
// (struct known), each with the warp and its clock then: other warps know it when they have seen that.
//
// Simpler than the manuals: an acquire counts for the whole warp, and so does a release; system and device scope are one.
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct part { // of a record: up to when the accesses of that block's warps come before
    uint32_t serial;
    bool wide; // for other blocks too
    uint32_t clocks[CLOCKS];
};
struct record {
    struct record *next;
    uint64_t at;
    int n, cap;
    struct part *parts;
};
enum { BUCKETS = 256 };
struct records {
    struct record *bucket[BUCKETS];
};
struct known {
    struct part of;
    int warp;
    uint32_t clock;
    bool later; // at the warp's next fence
};

static struct record **bucket(struct records *t, uint64_t at)
{
    return &t->bucket[(at >> 2 ^ at >> 10) % BUCKETS];
}

static struct record *find(struct records *t, uint64_t at)
{
    struct record *r = t ? *bucket(t, at) : NULL;
    while (r && r->at != at)
        r = r->next;
    return r;
}

static struct record *make(struct records **t, uint64_t at)
{
    struct record *r = find(*t, at);
    if (r || (!*t && !(*t = calloc(1, sizeof **t))))
        return r;
    r = calloc(1, sizeof *r);
    if (r) {
        struct record **b = bucket(*t, at);
        r->at = at;
        r->next = *b;
        *b = r;
    }
    return r;
}

static void free_records(struct records *t)
{
    for (int i = 0; t && i < BUCKETS; i++)
        while (t->bucket[i]) {
            struct record *r = t->bucket[i];
            t->bucket[i] = r->next;
            free(r->parts);
            free(r);
        }
    free(t);
}

void order_block_end(struct block *b)
{
    free_records(b->records);
    free(b->known);
    b->records = NULL;
    b->known = NULL;
    b->nknown = b->known_cap = 0;
}

void order_launch_end(struct launch *l)
{
    free_records(l->records);
    l->records = NULL;
}

// ---- what a block knows of others

static bool knows(const struct warp *w, const struct known *k, const uint32_t *clocks)
{
    return !k->later && (k->warp == w->index ? k->clock <= clocks[w->index] : k->clock <= clocks[k->warp]);
}

static bool covers(const uint32_t *a, const uint32_t *b)
{
    for (int i = 0; i <= AGENT; i++)
        if (a[i] < b[i])
            return false;
    return true;
}

// The clocks of w now: all that comes before what it does next.
static void clocks_of(const struct warp *w, uint32_t own, uint32_t *out)
{
    memcpy(out, w->seen, sizeof w->seen);
    out[w->index] = own;
}

static void learn(struct warp *w, const struct part *p, bool later)
{
    struct block *b = w->block;
    uint32_t now[CLOCKS];
    clocks_of(w, w->clock, now);
    for (int i = b->nknown - 1; i >= 0; i--) {
        const struct known *k = &b->known[i];
        bool has = knows(w, k, now) || (k->later && later && k->warp == w->index);
        if (k->of.serial == p->serial && has && covers(k->of.clocks, p->clocks))
            return;
    }
    if (b->nknown == b->known_cap) {
        int cap = b->known_cap ? 2 * b->known_cap : 16;
        void *m = realloc(b->known, (size_t)cap * sizeof *b->known);
        if (!m)
            return;
        b->known = m;
        b->known_cap = cap;
    }
    b->known[b->nknown++] = (struct known){ *p, w->index, w->clock, later };
}

bool order_known(const struct lane *l, uint32_t serial, uint32_t clock, int warp)
{
    const struct block *b = l->warp->block;
    uint32_t now[CLOCKS];
    if (!b->nknown)
        return false;
    clocks_of(l->warp, l->warp->clock, now);
    for (int i = b->nknown - 1; i >= 0; i--)
        if (b->known[i].of.serial == serial && clock <= b->known[i].of.clocks[warp] &&
            knows(l->warp, &b->known[i], now))
            return true;
    return false;
}

// ---- releases

static void add_part(struct record *r, uint32_t serial, bool wide, const uint32_t *clocks)
{
    for (int i = 0; i < r->n; i++)
        if (r->parts[i].serial == serial && r->parts[i].wide == wide) {
            clock_join(r->parts[i].clocks, clocks);
            return;
        }
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 2;
        void *p = realloc(r->parts, (size_t)cap * sizeof *r->parts);
        if (!p)
            return;
        r->parts = p;
        r->cap = cap;
    }
    struct part *p = &r->parts[r->n++];
    p->serial = serial;
    p->wide = wide;
    memcpy(p->clocks, clocks, sizeof p->clocks);
}

// near: for the block itself; far: for others, NULL: nothing.
static void publish(struct record *r, const struct warp *w, const uint32_t *near, const uint32_t *far)
{
    const struct block *b = w->block;
    add_part(r, b->serial, false, near);
    if (!far)
        return;
    add_part(r, b->serial, true, far);
    for (int i = 0; i < b->nknown; i++)
        if (knows(w, &b->known[i], far))
            add_part(r, b->known[i].of.serial, true, b->known[i].of.clocks);
}

static void release(struct lane *l, struct records **t, uint64_t at, int access, bool global)
{
    struct warp *w = l->warp;
    const uint32_t *near = NULL, *far = NULL;
    uint32_t now[CLOCKS];
    if (access & ACCESS_RELEASE) {
        clock_tick(w);
        clocks_of(w, w->fenced, now);
        near = far = now;
    } else if (w->fences) {
        near = w->fence[0];
        far = w->fences > 1 ? w->fence[1] : NULL;
    }
    struct record *r = near ? make(t, at) : find(*t, at);
    if (r && !(access & ACCESS_READ))
        r->n = 0;
    if (r && near)
        publish(r, w, near, global && !(access & ACCESS_CTA) ? far : NULL);
}

// ---- acquires

static void join(struct warp *w, const uint32_t *clocks, uint32_t own)
{
    uint32_t mine = clocks[w->index] < own ? clocks[w->index] : own;
    w->synced = mine > w->synced ? mine : w->synced;
    clock_join(w->seen, clocks);
}

static void take(struct lane *l, const struct record *r, int access, uint32_t own)
{
    struct warp *w = l->warp;
    for (int i = 0; i < r->n; i++) {
        const struct part *p = &r->parts[i];
        if (p->serial == w->block->serial && access & ACCESS_ACQUIRE) {
            join(w, p->clocks, own);
        } else if (p->serial == w->block->serial) {
            uint32_t mine = w->later[w->index];
            clock_join(w->later, p->clocks);
            if (own < p->clocks[w->index])
                w->later[w->index] = mine > own ? mine : own;
            w->has_later = true;
        } else if (p->wide && !(access & ACCESS_CTA)) {
            learn(w, p, !(access & ACCESS_ACQUIRE));
            w->has_later |= !(access & ACCESS_ACQUIRE);
        }
    }
}

void order_acquire(struct lane *l)
{
    struct launch *la = l->warp->block->launch;
    struct acquire a = l->acquire;
    l->acquire.access = 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE); // behind the read of what another worker wrote after its record
    if (a.global && !__atomic_load_n(&la->records, __ATOMIC_ACQUIRE))
        return;
    if (a.global)
        pthread_mutex_lock(&la->lock);
    const struct record *r = find(a.global ? la->records : l->warp->block->records, a.at);
    if (r)
        take(l, r, a.access, a.own);
    if (a.global)
        pthread_mutex_unlock(&la->lock);
}

// The clock of l's own warp in a record: what an update of it reads before its own release goes there.
static uint32_t own_in(const struct lane *l, struct records *t, uint64_t at)
{
    const struct record *r = find(t, at);
    uint32_t clock = 0;
    for (int i = 0; r && i < r->n; i++)
        if (r->parts[i].serial == l->warp->block->serial && r->parts[i].clocks[l->warp->index] > clock)
            clock = r->parts[i].clocks[l->warp->index];
    return clock;
}

// The access itself comes afterwards. What it acquires is looked up behind it (order_acquire), what it releases lies ready before.
void order_atomic(struct lane *l, uint64_t at, bool global, int access)
{
    struct launch *la = l->warp->block->launch;
    struct records **t = global ? &la->records : &l->warp->block->records;
    uint32_t own = UINT32_MAX;
    if (access & ACCESS_WRITE && (access & ACCESS_RELEASE || l->warp->fences || __atomic_load_n(t, __ATOMIC_ACQUIRE))) {
        if (global)
            pthread_mutex_lock(&la->lock);
        own = access & ACCESS_READ ? own_in(l, *t, at) : own;
        release(l, t, at, access, global);
        if (global)
            pthread_mutex_unlock(&la->lock);
    }
    if (access & ACCESS_READ) {
        l->acquire = (struct acquire){ at, access, global, own };
        l->after = true;
    }
}

// ---- fences

void order_fence(struct warp *w, int access)
{
    struct block *b = w->block;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (access & ACCESS_ACQUIRE && w->has_later) {
        join(w, w->later, UINT32_MAX);
        memset(w->later, 0, sizeof w->later);
        w->has_later = false;
        for (int i = 0; i < b->nknown; i++)
            if (b->known[i].warp == w->index && b->known[i].later) {
                b->known[i].later = false;
                b->known[i].clock = w->clock;
            }
    }
    if (!(access & ACCESS_RELEASE))
        return;
    clock_tick(w);
    clocks_of(w, w->fenced, w->fence[0]);
    if (!(access & ACCESS_CTA))
        memcpy(w->fence[1], w->fence[0], sizeof w->fence[0]);
    w->fences |= access & ACCESS_CTA ? 1 : 3;
}

int order_words(const char *text)
{
    bool volatil = strstr(text, ".volatile") || strstr(text, ".mmio"), both = strstr(text, ".acq_rel") != NULL;
    int access = strstr(text, ".acquire") || both ? ACCESS_ATOMIC | ACCESS_ACQUIRE : 0;
    access |= strstr(text, ".release") || both ? ACCESS_ATOMIC | ACCESS_RELEASE : 0;
    access |= strstr(text, ".relaxed") || volatil ? ACCESS_ATOMIC : 0;
    return access | (strstr(text, ".cta") && !volatil ? ACCESS_CTA : 0);
}
