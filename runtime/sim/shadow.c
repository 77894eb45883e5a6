// Who touched each byte, and what comes before what.
//
// Every warp has a clock. An access is kept as (warp, clock); it comes before an access of another warp when that warp has
// `seen` the clock: a barrier, or whatever else orders memory, hands clocks on (clock_join). Two accesses to a byte, one of them a
// write, with neither before the other, are a race. Lanes of one warp count as ordered only across a release (clock_release): the
// vendors promise no more. Of shared memory every byte keeps its last write and the last read by each warp; of tensors
// that a kernel writes, the last write and the last two readers; of other tensors only whether a byte was ever written.
#include "sim.h"

#include <string.h>

// An entry of shared shadow: clock 28 | thread 11 | site 23 | atomic | in flight.
enum { IN_FLIGHT = 1, ATOMIC = 2, SITE_SHIFT = 2, THREAD_SHIFT = 25, CLOCK_SHIFT = 36, AGENT_THREAD = 1024 };

static uint64_t entry(const struct lane *l, const struct site *s, unsigned flags)
{
    return (uint64_t)l->warp->clock << CLOCK_SHIFT | (uint64_t)l->thread << THREAD_SHIFT |
           (uint64_t)(s->id & 0x7fffff) << SITE_SHIFT | flags;
}

static uint32_t clock_of(uint64_t e)
{
    return (uint32_t)(e >> CLOCK_SHIFT);
}
static int thread_of(uint64_t e)
{
    return (int)(e >> THREAD_SHIFT & 0x7ff);
}

static bool before(const struct warp *w, uint32_t clock, int thread, int me)
{
    int lanes = w->block->launch->machine->lanes;
    if (thread == me)
        return true;
    int other = thread >= AGENT_THREAD ? AGENT : thread / lanes;
    return clock <= (other == w->index ? w->synced : w->seen[other]);
}

void clock_tick(struct warp *w)
{
    w->fenced = w->clock++;
}

void clock_release(struct warp *w)
{
    clock_tick(w);
    w->synced = w->fenced;
}

void clock_join(uint32_t *to, const uint32_t *from)
{
    for (int i = 0; i < CLOCKS; i++)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

bool shadow_ordered(const struct lane *l, uint32_t clock, int thread)
{
    return before(l->warp, clock, thread, l->thread);
}

static const struct site *site_of(const struct lane *l, uint64_t id)
{
    const struct moesim_module *m = l->warp->block->launch->kernel->module;
    return id && id <= (uint64_t)m->nsites ? m->sites[id - 1] : NULL;
}

static const char *past(const struct site *s)
{
    int update = ACCESS_READ | ACCESS_WRITE;
    return !s ? "touched" : (s->access & update) == update ? "updated" : s->access & ACCESS_WRITE ? "written" : "read";
}

// ---- shared memory -----------------------------------------------------------------------------------------------

static void shared_race(struct lane *l, struct site *s, uint32_t at, uint64_t e, const char *did)
{
    const struct site *o = site_of(l, e >> SITE_SHIFT & 0x7fffff);
    int lanes = l->warp->block->launch->machine->lanes, t = thread_of(e);
    char place[64];
    if (!o)
        return;
    if (e & IN_FLIGHT && strstr(o->what, "mbarrier.init"))
        finding(l, s, F_ASYNC, o->id,
                "shared byte 0x%x is touched by this %s, but belongs to the mbarrier of %s, %s: only mbarrier "
                "operations may",
                at, s->what, o->what, site_place(o, place));
    else if (e & IN_FLIGHT)
        finding(l, s, F_ASYNC, o->id,
                "shared byte 0x%x is touched by this %s while the %s of thread %d (warp %d, lane %d), %s, "
                "may still be in flight",
                at, s->what, o->what, t, t / lanes, t % lanes, site_place(o, place));
    else if (t >= AGENT_THREAD)
        finding(l, s, F_RACE, o->id,
                "shared byte 0x%x was %s by the asynchronous %s, %s, and nothing orders that before this %s", at, did,
                o->what, site_place(o, place), s->what);
    else
        finding(l, s, F_RACE, o->id,
                "shared byte 0x%x was %s by thread %d (warp %d, lane %d), %s, and nothing orders that before "
                "this %s",
                at, did, t, t / lanes, t % lanes, site_place(o, place), s->what);
}

static uint64_t *writes(const struct lane *l)
{
    return l->warp->block->worker->shadow;
}
static uint64_t *reads(const struct lane *l, int warp)
{
    const struct worker *w = l->warp->block->worker;
    return w->shadow + (size_t)w->shared_cap * (size_t)(1 + warp);
}

// Threads that hold the same part of a tile may all copy it, to the same place: the copy of e is this one again.
static bool same_copy(const struct lane *l, uint64_t e, uint32_t at, const uint8_t *from)
{
    int t = thread_of(e);
    const struct lane *o = &l->warp->block->lanes[t < AGENT_THREAD ? t : 0];
    for (int i = 0; from && t < AGENT_THREAD && i < o->ncopies; i++)
        if (o->copies[i].to == at && o->copies[i].from == from)
            return true;
    return false;
}

// Or they all store it: whether this store changes anything is seen when it has happened.
static bool may_repeat(struct lane *l, struct site *s, const uint8_t *p, int bytes, uint64_t e)
{
    if ((e >> SITE_SHIFT & 0x7fffff) != s->id || e & IN_FLIGHT || bytes > (int)sizeof l->again.was)
        return false;
    l->again =
        (struct again){ .p = p, .site = s, .bytes = bytes, .at = (uint64_t)(p - l->warp->block->shared), .who = e };
    l->after = true;
    memcpy(l->again.was, p, (size_t)bytes);
    return true;
}

// The last writes of these bytes against an access now. false: something was found. from: of a copy, else NULL.
static bool check_writes(struct lane *l, struct site *s, uint32_t at, int bytes, int access, const uint8_t *from)
{
    const struct block *b = l->warp->block;
    const uint64_t *w = writes(l);
    uint64_t last = 0;
    for (uint32_t i = at; i < at + (uint32_t)bytes; i++) {
        uint64_t e = w[i];
        if (i > at && e == last)
            continue;
        last = e;
        bool fresh = clock_of(e) < b->clock0;
        if (fresh && access & ACCESS_READ) {
            finding(l, s, F_UNWRITTEN, 0, "%s of shared byte 0x%x, which nothing in this block has written", s->what,
                    i);
            return false;
        }
        if (fresh || (e & ATOMIC && access & ACCESS_ATOMIC))
            continue;
        if (e & IN_FLIGHT ? same_copy(l, e, at, from) : before(l->warp, clock_of(e), thread_of(e), l->thread))
            continue;
        if (access == ACCESS_WRITE && !from && may_repeat(l, s, b->shared + at, bytes, e))
            return true;
        shared_race(l, s, i, e, "written");
        return false;
    }
    return true;
}

// Reads of engines have a row of their own: how many are in flight << CLOCK_SHIFT | site of the last.
static uint64_t *engine_reads(const struct lane *l)
{
    return reads(l, l->warp->block->worker->shadow_warps);
}

static bool check_engines(struct lane *l, struct site *s, uint32_t at, int bytes)
{
    const uint64_t *r = engine_reads(l) + at;
    char place[64];
    for (int i = 0; i < bytes; i++) {
        const struct site *o = r[i] ? site_of(l, r[i] >> SITE_SHIFT & 0x7fffff) : NULL;
        if (!o)
            continue;
        finding(l, s, F_ASYNC, o->id, "shared byte 0x%x is written by this %s while the %s, %s, may still read it",
                at + (uint32_t)i, s->what, o->what, site_place(o, place));
        return false;
    }
    return true;
}

static bool check_reads(struct lane *l, struct site *s, uint32_t at, int bytes, int access)
{
    const struct block *b = l->warp->block;
    if (b->engine_reads && !check_engines(l, s, at, bytes))
        return false;
    for (int w = 0; w < b->nwarps; w++) {
        const uint64_t *r = reads(l, w) + at;
        uint64_t most = 0;
        for (int i = 0; i < bytes; i++)
            most = r[i] > most ? r[i] : most;
        if (clock_of(most) < b->clock0 || (w != l->warp->index && clock_of(most) <= l->warp->seen[w]))
            continue;
        for (int i = 0; i < bytes; i++) {
            uint64_t e = r[i];
            if (clock_of(e) < b->clock0 || before(l->warp, clock_of(e), thread_of(e), l->thread) ||
                (e & ATOMIC && access & ACCESS_ATOMIC))
                continue;
            shared_race(l, s, at + (uint32_t)i, e, "read");
            return false;
        }
    }
    return true;
}

void shadow_shared(struct lane *l, struct site *s, uint32_t at, int bytes, int access)
{
    bool ok = check_writes(l, s, at, bytes, access, NULL);
    uint64_t e = entry(l, s, access & ACCESS_ATOMIC ? ATOMIC : 0);
    if (access & ACCESS_READ) {
        uint64_t *r = reads(l, l->warp->index) + at;
        for (int i = 0; i < bytes; i++)
            r[i] = e;
    }
    if (access & ACCESS_WRITE) {
        uint64_t *w = writes(l) + at;
        if (ok)
            check_reads(l, s, at, bytes, access);
        for (int i = 0; i < bytes; i++)
            w[i] = e;
    }
    if (access & ACCESS_ATOMIC)
        order_atomic(l, at, false, access);
}

void shadow_inflight(struct lane *l, struct site *s, uint32_t at, int bytes, const uint8_t *from)
{
    uint64_t *w = writes(l) + at, e = entry(l, s, IN_FLIGHT);
    if (check_writes(l, s, at, bytes, ACCESS_WRITE, from))
        check_reads(l, s, at, bytes, ACCESS_WRITE);
    for (int i = 0; i < bytes; i++)
        w[i] = e;
}

void shadow_landed(struct lane *l, struct site *s, uint32_t at, int bytes, bool agent)
{
    uint64_t *w = writes(l) + at, e = entry(l, s, 0);
    if (agent)
        e = (uint64_t)l->warp->block->agent_clock << CLOCK_SHIFT | (uint64_t)AGENT_THREAD << THREAD_SHIFT |
            (e & ((1ull << THREAD_SHIFT) - 1));
    for (int i = 0; i < bytes; i++)
        w[i] = e;
}

// ---- engines (PTX ISA, "Async proxy") ------------------------------------------------------------------------------

void shadow_proxy_fence(struct lane *l)
{
    struct warp *w = l->warp;
    for (int i = 0; i <= AGENT; i++)
        w->seen[PROXIED + i] = w->seen[PROXIED + i] > w->seen[i] ? w->seen[PROXIED + i] : w->seen[i];
    w->seen[PROXIED + w->index] = w->clock;
    clock_release(w);
}

bool shadow_engine_may(struct lane *l, struct site *s, uint32_t at, int bytes)
{
    const struct warp *me = l->warp;
    const uint64_t *w = writes(l);
    int lanes = me->block->launch->machine->lanes;
    uint64_t last = 0;
    char place[64];
    if (!check_writes(l, s, at, bytes, ACCESS_READ, NULL))
        return false;
    for (uint32_t i = at; i < at + (uint32_t)bytes; i++) {
        uint64_t e = w[i];
        int t = thread_of(e);
        if (e == last || t >= AGENT_THREAD || clock_of(e) <= me->seen[PROXIED + t / lanes]) {
            last = e;
            continue;
        }
        const struct site *o = site_of(l, e >> SITE_SHIFT & 0x7fffff);
        finding(l, s, F_RACE, o ? o->id : 0,
                "shared byte 0x%x was written by thread %d (warp %d, lane %d), %s, and is read by this %s through the "
                "async "
                "proxy: fence.proxy.async is missing in between",
                i, t, t / lanes, t % lanes, site_place(o, place), s->what);
        return false;
    }
    return true;
}

void shadow_engine_reads(struct lane *l, struct site *s, uint32_t at, int bytes)
{
    uint64_t *r = engine_reads(l) + at;
    for (int i = 0; i < bytes; i++)
        r[i] = ((r[i] >> CLOCK_SHIFT) + 1) << CLOCK_SHIFT | (uint64_t)(s->id & 0x7fffff) << SITE_SHIFT;
    l->warp->block->engine_reads += bytes;
}

void shadow_engine_dropped(struct lane *l, uint32_t at, int bytes)
{
    uint64_t *r = engine_reads(l) + at;
    for (int i = 0; i < bytes; i++) {
        r[i] -= 1ull << CLOCK_SHIFT;
        r[i] = r[i] >> CLOCK_SHIFT ? r[i] : 0;
    }
    l->warp->block->engine_reads -= bytes;
}

void shadow_engine_done(struct lane *l, struct site *s, uint32_t at, int bytes)
{
    uint64_t *r = reads(l, l->warp->index) + at, e = entry(l, s, 0);
    shadow_engine_dropped(l, at, bytes);
    for (int i = 0; i < bytes; i++)
        r[i] = e;
}

// ---- tensors -----------------------------------------------------------------------------------------------------

// when: serial of the block << 32 | clock. who: of when 28 bits | site 24 | atomic | thread 11. Two workers may enter the same byte at the
// same time, which is no race of atomic ones nor of reads: an entry whose halves are of two accesses says nothing.
enum { WHO_BITS = 36 };
static uint64_t mark(uint64_t when)
{
    return when * 0x9e3779b97f4a7c15u >> WHO_BITS << WHO_BITS;
}
static bool whole(uint64_t when, uint64_t who)
{
    return (mark(when) ^ who) >> WHO_BITS == 0;
}

static bool global_before(const struct lane *l, uint64_t when, uint64_t who, int access)
{
    const struct block *b = l->warp->block;
    uint32_t serial = (uint32_t)(when >> 32);
    int thread = (int)(who & 0x7ff), lanes = b->launch->machine->lanes;
    if (!when || serial < b->launch->serial0 || !whole(when, who))
        return true;
    if (who >> 11 & 1 && access & ACCESS_ATOMIC) {
        const struct site *o = serial == b->serial ? NULL : site_of(l, who_site(who));
        if (!((access | (o ? o->access : 0)) & ACCESS_CTA) || serial == b->serial)
            return true;
    }
    return serial == b->serial
               ? before(l->warp, (uint32_t)when, thread, l->thread)
               : order_known(l, serial, (uint32_t)when, thread >= AGENT_THREAD ? AGENT : thread / lanes);
}

static void global_race(struct lane *l, struct site *s, const struct tensor *t, size_t at, uint64_t when, uint64_t who)
{
    const struct block *b = l->warp->block;
    const struct site *o = site_of(l, who_site(who));
    int lanes = b->launch->machine->lanes, thread = (int)(who & 0x7ff);
    char place[64];
    finding(l, s, F_RACE, who_site(who),
            "byte %zu of '%s' was %s by block %u, thread %d (warp %d, lane %d), %s, and nothing orders that "
            "before this %s",
            at, t->name, past(o), (uint32_t)(when >> 32) - b->launch->serial0, thread, thread / lanes, thread % lanes,
            o ? site_place(o, place) : "?", s->what);
}

// As may_repeat(), within the block: stores of other blocks may be happening at this moment.
static bool may_repeat_global(struct lane *l, struct site *s, const struct tensor *t, size_t at, int bytes,
                              const struct gbyte *g)
{
    if (who_site(g->w_who) != s->id || (uint32_t)(g->w_when >> 32) != l->warp->block->serial ||
        bytes > (int)sizeof l->again.was)
        return false;
    l->again = (struct again){
        .p = t->p + at, .site = s, .bytes = bytes, .tensor = t, .at = at, .when = g->w_when, .who = g->w_who
    };
    memcpy(l->again.was, t->p + at, (size_t)bytes);
    l->after = true;
    return true;
}

void shadow_again(struct lane *l)
{
    struct again a = l->again;
    l->again.bytes = 0;
    if (memcmp(a.p, a.was, (size_t)a.bytes) && a.tensor)
        global_race(l, a.site, a.tensor, a.at, a.when, a.who);
    else if (memcmp(a.p, a.was, (size_t)a.bytes))
        shared_race(l, a.site, (uint32_t)a.at, a.who, "written");
}

static bool global_check(struct lane *l, struct site *s, const struct tensor *t, size_t at, int bytes, int access)
{
    const struct gbyte *g = t->region->shadow + (t->p - t->region->p) + at;
    bool repeats = false;
    for (int i = 0; i < bytes; i++, g++) {
        if (!repeats && !global_before(l, g->w_when, g->w_who, access)) {
            repeats = access == ACCESS_WRITE && may_repeat_global(l, s, t, at, bytes, g);
            if (!repeats) {
                global_race(l, s, t, at + (size_t)i, g->w_when, g->w_who);
                return false;
            }
        }
        if (!(access & ACCESS_WRITE))
            continue;
        for (int k = 0; k < 2; k++)
            if (!global_before(l, g->r_when[k], g->r_who[k], access)) {
                global_race(l, s, t, at + (size_t)i, g->r_when[k], g->r_who[k]);
                return false;
            }
    }
    return true;
}

static void global_enter(const struct lane *l, const struct site *s, struct gbyte *g, int bytes, int access)
{
    uint64_t when = (uint64_t)l->warp->block->serial << 32 | l->warp->clock;
    uint64_t who =
        mark(when) | (uint64_t)(s->id & 0xffffff) << 12 | (access & ACCESS_ATOMIC ? 1u << 11 : 0) | (unsigned)l->thread;
    for (int i = 0; i < bytes; i++, g++)
        if (access & ACCESS_WRITE) {
            *g = (struct gbyte){ .w_when = when, .w_who = who };
        } else {
            if ((g->r_who[0] ^ who) << (64 - WHO_BITS)) {
                g->r_when[1] = g->r_when[0];
                g->r_who[1] = g->r_who[0];
            }
            g->r_when[0] = when;
            g->r_who[0] = who;
        }
}

void shadow_global(struct lane *l, struct site *s, struct tensor *t, size_t at, int bytes, int access)
{
    size_t in = (size_t)(t->p - t->region->p) + at;
    if (!l->waited)
        early_access(l, s, t, at, bytes);
    if (access & ACCESS_READ && !region_written(t->region, in, (size_t)bytes))
        finding(l, s, F_UNWRITTEN, 0, "%s of byte %zu of '%s', which nobody has written", s->what, at, t->name);
    if (t->tracked) {
        global_check(l, s, t, at, bytes, access);
        global_enter(l, s, t->region->shadow + in, bytes, access);
    }
    if (access & ACCESS_WRITE)
        region_mark(t->region, in, (size_t)bytes, true);
    if (access & ACCESS_ATOMIC)
        order_atomic(l, (uint64_t)(uintptr_t)t->p + at, true, access);
}
