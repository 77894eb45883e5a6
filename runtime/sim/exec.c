// Running a block (workers.c has the blocks): its warps advance one step at a time, in an order that the seed decides; in a
// step every lane of the warp that can run does, until it ends or stands at an operation of the whole warp; then one such operation
// is carried out for the lanes that stand at it. Where lanes stand at different ones, the earliest in the code goes first: that
// is where they come together again.
#include "sim.h"

#include <string.h>

_Thread_local struct worker *sim_me;

uint64_t sim_random(struct block *b)
{
    uint64_t z = b->rng += 0x9e3779b97f4a7c15u; // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool stopped(const struct launch *l)
{
    return __atomic_load_n(&l->stop, __ATOMIC_RELAXED);
}

// ---- lanes -------------------------------------------------------------------------------------------------------

_Noreturn void lane_main(struct lane *l)
{
    const struct launch *la = l->warp->block->launch;
    la->kernel->fn->code(la->args);
    lane_end(l);
}

void lane_after(struct lane *l)
{
    l->after = false;
    if (l->again.bytes)
        shadow_again(l);
    if (l->acquire.access)
        order_acquire(l);
}

_Noreturn void lane_end(struct lane *l)
{
    catch_up(l);
    copy_end(l);
    l->state = LANE_DONE;
    l->warp->done++;
    for (;;)
        fiber_leave(l);
}

// Leaves a launch that gives up; never comes back.
static void abandon(struct lane *l)
{
    for (;;) {
        l->state = LANE_WAITS;
        fiber_leave(l);
    }
}

void moesim_count(uint32_t n)
{
    struct lane *l = sim_me->lane;
    struct block *b = l->warp->block;
    l->executed += n;
    catch_up(l);
    if (b->budget > n) {
        b->budget -= n;
    } else {
        finding(l, NULL, F_RUNAWAY, 0, "the block has carried out %llu lane instructions and does not end",
                (unsigned long long)b->launch->device->budget);
        __atomic_store_n(&b->launch->stop, true, __ATOMIC_RELAXED);
    }
    if (stopped(b->launch))
        abandon(l);
}

void lane_yield(struct lane *l)
{
    l->state = LANE_AT_OP;
    fiber_leave(l);
}

void lane_poll(struct lane *l)
{
    l->flag = false;
    l->state = LANE_WAITS;
    fiber_leave(l);
}

// An atomic read. One that finds at the same place what it found there before may be a loop that waits for somebody: others go on
// first. Loops that look at many things give way now and then.
void lane_look(struct lane *l, const struct site *s, const uint8_t *p, int bytes)
{
    enum { OFTEN = 256 };
    struct poll *k = &l->polls[(s->id ^ (uintptr_t)p >> 2) % POLLS];
    uint64_t v = 0;
    size_t n = bytes < 8 ? (size_t)bytes : 8;
    memcpy(&v, p, n);
    bool again = k->site == s && k->p == p && k->value == v, often = ++l->looks % OFTEN == 0;
    if (again || often) {
        l->at = s->insts;
        l->flag = true;
        l->state = LANE_WAITS;
        l->warp->block->progress |= !again;
        fiber_leave(l);
        if (stopped(l->warp->block->launch))
            abandon(l);
        memcpy(&v, p, n);
    }
    *k = (struct poll){ s, p, v };
}

void moesim_op(struct site *s, uint64_t *io)
{
    struct lane *l = sim_me->lane;
    const struct inst *i = s->insts;
    l->io = io;
    catch_up(l);
    if (s->ninsts != 1 || !i->op || i->guard >= 0 || s->nconsts) {
        ptx_run(l, s, io);
    } else if (i->op->lane) {
        i->op->lane(l, i, io);
    } else {
        l->at = i;
        lane_yield(l);
    }
    if (stopped(l->warp->block->launch))
        abandon(l);
}

// ---- warps -------------------------------------------------------------------------------------------------------

static uint64_t all_lanes(int n)
{
    return n == 64 ? ~0ull : (1ull << n) - 1;
}

static uint64_t lanes_in(const struct warp *w, enum lane_state state)
{
    uint64_t mask = 0;
    for (int i = 0; i < w->nlanes; i++)
        mask |= (uint64_t)(w->lanes[i].state == state) << i;
    return mask;
}

static void run_lanes(struct warp *w)
{
    struct block *b = w->block;
    struct worker *me = b->worker;
    int n = w->nlanes, start = 0, step = 1;
    if (b->launch->seed) {
        uint64_t r = sim_random(b);
        start = (int)(r >> 8) & (n - 1);
        step = r & 1 ? 1 : n - 1; // n - 1: downwards, in case n is a power of two
        if (n & (n - 1))
            start = 0, step = 1;
    }
    for (int k = 0, i = start; k < n; k++, i = (i + step) % n) {
        struct lane *l = &w->lanes[i];
        if (l->state == LANE_READY) {
            fiber_enter(me, l);
            b->progress |= l->state != LANE_WAITS;
        }
        if (stopped(b->launch))
            return;
    }
}

static void diverged(struct warp *w, const struct inst *i, uint64_t mask, uint64_t others)
{
    int at = __builtin_ctzll(mask), other = __builtin_ctzll(others);
    const struct lane *o = &w->lanes[other];
    char place[64];
    if (o->state == LANE_DONE)
        finding(&w->lanes[at], i->site, F_DIVERGENT, 0, "%s is reached by %d of the warp's %d lanes; lane %d has ended",
                i->text, __builtin_popcountll(mask), w->nlanes, other);
    else
        finding(&w->lanes[at], i->site, F_DIVERGENT, 0,
                "%s is reached by %d of the warp's %d lanes; lane %d is at %s, %s", i->text, __builtin_popcountll(mask),
                w->nlanes, other, o->at ? o->at->text : "?", o->at ? site_place(o->at->site, place) : "?");
    __atomic_store_n(&w->block->launch->stop, true, __ATOMIC_RELAXED);
}

// The earliest operation that lanes stand at, and who stands there.
static const struct inst *earliest(const struct warp *w, uint64_t standing, uint64_t *mask)
{
    const struct inst *best = NULL;
    for (uint64_t m = standing; m; m &= m - 1) {
        const struct inst *i = w->lanes[__builtin_ctzll(m)].at;
        if (!best || i->site->id < best->site->id || (i->site->id == best->site->id && i < best))
            best = i;
    }
    *mask = 0;
    for (uint64_t m = standing; m; m &= m - 1)
        if (w->lanes[__builtin_ctzll(m)].at == best)
            *mask |= m & -m;
    return best;
}

void warp_wait(struct warp *w, const struct inst *i)
{
    w->waits = true;
    w->wait_at = i;
}

void warp_wake(struct warp *w)
{
    w->waits = false;
    for (int i = 0; i < w->nlanes; i++)
        if (w->lanes[i].state == LANE_AT_OP && w->lanes[i].at == w->wait_at)
            w->lanes[i].state = LANE_READY;
    w->block->progress = true;
}

// Have all lanes come that the operation names, and no others?
static bool complete(const struct warp *w, const struct inst *i, uint64_t mask)
{
    const struct arg *names = &i->a[i->a[0].kind == ARG_LIST]; // elect.sync d|p, mask
    return i->op->lanes == NAMED_LANES &&
           (arg_value(names, w->lanes[__builtin_ctzll(mask)].io) & all_lanes(w->nlanes)) == mask;
}

// The operation that is next, NULL: none yet. Who looks for something will come to where the others are, and who stands further on may
// yet come back; those whose operation names just them need not wait for either.
static const struct inst *next_op(const struct warp *w, uint64_t *mask)
{
    uint64_t standing = lanes_in(w, LANE_AT_OP), looking = lanes_in(w, LANE_WAITS), m;
    if (!standing)
        return NULL;
    const struct inst *first = earliest(w, standing, mask);
    if (!looking && (*mask == standing || first->op->lanes != NAMED_LANES))
        return first;
    for (uint64_t rest = standing; rest; rest &= ~m) {
        const struct inst *i = earliest(w, rest, &m);
        if (complete(w, i, m)) {
            *mask = m;
            return i;
        }
    }
    return looking ? NULL : first;
}

// One warp operation for the lanes that stand at it.
static void run_op(struct warp *w)
{
    uint64_t *r[LANES_MAX] = { NULL }, mask;
    const struct inst *i = next_op(w, &mask);
    if (!i)
        return;
    uint64_t all = all_lanes(w->nlanes);
    uint64_t needed = i->op->lanes >= ALL_LANES    ? all
                      : i->op->lanes == LIVE_LANES ? all & ~lanes_in(w, LANE_DONE)
                                                   : mask;
    if (mask != needed) {
        diverged(w, i, mask, needed & ~mask);
        return;
    }
    if (i->op->lanes == FULL_WARP && w->nlanes != w->block->launch->machine->lanes) {
        finding(&w->lanes[0], i->site, F_DIVERGENT, 0, "%s needs a whole warp; this one has %d lanes", i->text,
                w->nlanes);
        __atomic_store_n(&w->block->launch->stop, true, __ATOMIC_RELAXED);
        return;
    }
    for (int k = 0; k < w->nlanes; k++)
        r[k] = mask >> k & 1 ? w->lanes[k].io : NULL;
    i->op->warp(w, i, mask, r);
    w->block->progress = true;
    if (!w->waits)
        for (uint64_t m = mask; m; m &= m - 1)
            w->lanes[__builtin_ctzll(m)].state = LANE_READY;
}

static void step(struct warp *w)
{
    for (int i = 0; i < w->nlanes; i++)
        if (w->lanes[i].state == LANE_WAITS)
            w->lanes[i].state = LANE_READY;
    run_lanes(w);
    if (stopped(w->block->launch))
        return;
    if (w->done == w->nlanes)
        barriers_warp_ended(w);
    else
        run_op(w);
}

// ---- barriers ----------------------------------------------------------------------------------------------------

static int barrier_expects(const struct block *b, int threads)
{
    int live = 0;
    if (threads || b->launch->machine->nv)
        return threads ? threads : b->nthreads;
    for (int i = 0; i < b->nwarps; i++) // AMD: waves that have ended are not waited for (CDNA3 ISA, S_BARRIER)
        live += b->warps[i].done == b->warps[i].nlanes ? 0 : b->warps[i].nlanes;
    return live;
}

static void barrier_complete(struct block *b, struct barrier *r)
{
    uint64_t waiting = r->warps;
    r->arrived = 0;
    r->warps = 0;
    for (; waiting; waiting &= waiting - 1) {
        struct warp *w = &b->warps[__builtin_ctzll(waiting)];
        clock_join(w->seen, r->joined);
        warp_wake(w);
    }
    memset(r->joined, 0, sizeof r->joined);
}

void barrier_arrive(struct warp *w, const struct inst *i, int id, int threads, bool waits)
{
    struct block *b = w->block;
    struct barrier *r = &b->barriers[id];
    int expects = barrier_expects(b, threads);
    if (r->arrived && r->expected != expects && b->launch->machine->nv) {
        char place[64];
        finding(&w->lanes[0], i->site, F_DIVERGENT, 0, "%s on barrier %d expects %d threads, %s expects %d", i->text,
                id, expects, site_place(r->first->site, place), r->expected);
    }
    if (!r->arrived)
        r->first = i;
    r->expected = expects;
    r->arrived += w->nlanes;
    if (b->launch->machine->nv) // bar.sync orders the memory accesses of those who take part (PTX ISA, bar)
        clock_release(w);
    clock_join(r->joined, w->seen);
    r->joined[w->index] = w->fenced > r->joined[w->index] ? w->fenced : r->joined[w->index];
    if (waits) {
        r->warps |= 1ull << w->index;
        w->wait_barrier = id;
        warp_wait(w, i);
    }
    if (r->arrived > expects)
        finding(&w->lanes[0], i->site, F_DIVERGENT, 0, "%s: %d threads have arrived at barrier %d, which expects %d",
                i->text, r->arrived, id, expects);
    if (r->arrived >= expects)
        barrier_complete(b, r);
}

void barriers_warp_ended(struct warp *w)
{
    struct block *b = w->block;
    b->ended++;
    for (int i = 0; i < BARRIERS_MAX && !b->launch->machine->nv; i++) {
        struct barrier *r = &b->barriers[i];
        if (r->warps && r->arrived >= barrier_expects(b, 0))
            barrier_complete(b, r);
    }
}

// ---- blocks ------------------------------------------------------------------------------------------------------

static bool can_run(const struct warp *w)
{
    return !w->waits && w->done < w->nlanes;
}

static struct warp *pick(struct block *b)
{
    struct warp *best = NULL;
    if (b->launch->seed && sim_random(b) % 16 == 0) // now and then another order
        for (int i = 0; i < b->nwarps; i++)
            b->warps[i].priority = sim_random(b);
    for (int k = 1; k <= b->nwarps; k++) {
        struct warp *w = &b->warps[(b->turn + k) % b->nwarps];
        if (can_run(w) && (!best || w->priority > best->priority))
            best = w;
    }
    if (best) {
        b->turn = best->index;
        if (b->launch->seed &&
            (b->policy == 0 || lanes_in(best, LANE_WAITS))) // policy 1: one warp runs as far as it can
            best->priority = sim_random(b);
    }
    return best;
}

static int put(char *out, int n, int max, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int put(char *out, int n, int max, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = n < max ? vsnprintf(out + n, (size_t)(max - n), fmt, ap) : 0;
    va_end(ap);
    return n + k;
}

static void place_of(const struct warp *w, char out[160])
{
    const struct inst *i = w->waits ? w->wait_at : NULL;
    char place[64];
    for (int k = 0; k < w->nlanes && !i; k++) // those that look for something hold the others up
        i = w->lanes[k].state == LANE_WAITS ? w->lanes[k].at : NULL;
    for (int k = 0; k < w->nlanes && !i; k++)
        i = w->lanes[k].state == LANE_DONE ? NULL : w->lanes[k].at;
    if (w->done == w->nlanes)
        snprintf(out, 160, "ended");
    else
        snprintf(out, 160, "at %s, %s", i ? i->text : "?", i ? site_place(i->site, place) : "?");
}

void block_deadlock(struct block *b)
{
    char text[700], here[160], last[160] = "";
    struct warp *first = NULL;
    int n = 0, from = 0;
    for (int i = 0; i <= b->nwarps; i++) {
        here[0] = 0;
        if (i < b->nwarps)
            place_of(&b->warps[i], here);
        if (i < b->nwarps && !first && strcmp(here, "ended"))
            first = &b->warps[i];
        if (i && strcmp(here, last)) {
            n = put(text, n, sizeof text, "%swarp%s %d", from ? "; " : "", i - 1 > from ? "s" : "", from);
            n = i - 1 > from ? put(text, n, sizeof text, "-%d", i - 1) : n;
            n = put(text, n, sizeof text, " %s", last);
            from = i;
        }
        snprintf(last, sizeof last, "%s", here);
    }
    if (b->launch->machine->nv)
        async_state(b, text + (n < (int)sizeof text ? n : (int)sizeof text - 1),
                    n < (int)sizeof text ? (int)sizeof text - n : 1);
    struct site *s = NULL;
    for (int i = 0; first && i < first->nlanes && !s; i++)
        s = first->lanes[i].at ? first->lanes[i].at->site : NULL;
    bool exited = false;
    uint32_t next = __atomic_load_n(&b->launch->next, __ATOMIC_RELAXED);
    for (int i = 0; i < b->nwarps; i++)
        exited |= b->warps[i].done == b->warps[i].nlanes;
    if (next < b->launch->blocks && __atomic_load_n(&b->launch->dead, __ATOMIC_RELAXED))
        put(text, (int)strlen(text), sizeof text, "; %u blocks have not begun: no more than %d are resident",
            b->launch->blocks - next, b->launch->resident_max);
    finding(first ? &first->lanes[0] : &b->lanes[0], s, F_DEADLOCK, 0, "no warp can go on%s: %s",
            exited ? ", and those that ended can no longer arrive" : "", text);
    __atomic_store_n(&b->launch->stop, true, __ATOMIC_RELAXED);
}

// A warp that can run and has not looked in vain since something happened last.
static struct warp *overlooked(struct block *b, uint64_t looked)
{
    for (int i = 0; i < b->nwarps; i++)
        if (can_run(&b->warps[i]) && !(looked >> i & 1))
            return &b->warps[i];
    return NULL;
}

// Does a lane look at memory that somebody else may write?
static bool looks(const struct block *b)
{
    for (int i = 0; i < b->nthreads; i++)
        if (b->lanes[i].state == LANE_WAITS && b->lanes[i].flag)
            return true;
    return false;
}

bool block_run(struct block *b)
{
    int idle = b->put_aside ? 4 * b->nwarps + 1 : 0; // then each warp looks once more
    bool moved = false;
    uint64_t looked = 0;
    b->put_aside = false;
    while (b->ended < b->nwarps && !stopped(b->launch)) {
        struct warp *w = idle > 4 * b->nwarps ? overlooked(b, looked) : pick(b);
        b->progress = false;
        if (w)
            step(w);
        moved |= b->progress;
        idle = b->progress ? 0 : idle + 1;
        looked = b->progress ? 0 : w ? looked | 1ull << w->index : looked;
        if (b->launch->seed && b->bulks && sim_random(b) % 8 == 0 && async_progress(b)) {
            idle = 0;
            looked = 0;
        } else if (!w && !stopped(b->launch) && b->ended < b->nwarps) {
            bool landed = async_progress(b);
            moved |= landed;
            if (!landed && looks(b)) {
                b->put_aside = true;
                return moved;
            }
            if (!landed)
                block_deadlock(b);
            idle = 0;
            looked = 0;
        }
    }
    return true;
}
