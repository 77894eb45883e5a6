// Running a launch: workers take blocks; a block's warps advance one step at a time, in an order that the seed decides; in a
// step every lane of the warp that can run does, until it ends or stands at an operation of the whole warp; then one such operation
// is carried out for the lanes that stand at it. Where lanes stand at different ones, the earliest in the code goes first: that
// is where they come together again.
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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
    l->state = LANE_WAITS;
    fiber_leave(l);
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

// One warp operation for the lanes that stand at it.
static void run_op(struct warp *w)
{
    uint64_t *r[LANES_MAX] = { NULL }, mask, standing = lanes_in(w, LANE_AT_OP), polling = lanes_in(w, LANE_WAITS);
    if (!standing || polling) // who polls will come to where the others are
        return;
    const struct inst *i = earliest(w, standing, &mask);
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

static void deadlock(struct block *b)
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
    for (int i = 0; i < b->nwarps; i++)
        exited |= b->warps[i].done == b->warps[i].nlanes;
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

static void run_warps(struct block *b)
{
    int idle = 0;
    uint64_t looked = 0;
    while (b->ended < b->nwarps && !stopped(b->launch)) {
        struct warp *w = idle > 4 * b->nwarps ? overlooked(b, looked) : pick(b);
        b->progress = false;
        if (w)
            step(w);
        idle = b->progress ? 0 : idle + 1;
        looked = b->progress ? 0 : w ? looked | 1ull << w->index : looked;
        if (b->launch->seed && b->bulks && sim_random(b) % 8 == 0 && async_progress(b)) {
            idle = 0;
            looked = 0;
        } else if (!w && !stopped(b->launch) && b->ended < b->nwarps) {
            if (!async_progress(b))
                deadlock(b);
            idle = 0;
            looked = 0;
        }
    }
}

static bool stacks_ready(struct worker *me, int n)
{
    if (me->nstacks >= n)
        return true;
    char *p = mmap(NULL, (size_t)n * STACK_STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (int i = 0; i < n; i++)
        mprotect(p + (size_t)i * STACK_STRIDE, STACK_STRIDE - LANE_STACK, PROT_NONE);
    if (me->stacks)
        munmap(me->stacks, (size_t)me->nstacks * STACK_STRIDE);
    me->stacks = p;
    me->nstacks = n;
    return true;
}

static bool shared_ready(struct worker *me, const struct launch *l, int nwarps)
{
    uint32_t want = (l->shared_bytes + 4095) & ~4095u;
    if (me->shared_cap >= want && me->shadow_warps >= nwarps && me->shared)
        return true;
    want = want > me->shared_cap ? want : me->shared_cap;
    want = want ? want : 4096;
    nwarps = nwarps > me->shadow_warps ? nwarps : me->shadow_warps;
    free(me->shared);
    free(me->shadow);
    me->shared = aligned_alloc(4096, want);
    me->shadow = calloc((size_t)want * (size_t)(nwarps + 2), sizeof *me->shadow);
    me->shared_cap = want;
    me->shadow_warps = nwarps;
    return me->shared && me->shadow;
}

static void clocks_start(struct worker *me, struct block *b)
{
    if (me->clock > 1u << 26) { // entries have 28 bits
        memset(me->shadow, 0, (size_t)me->shared_cap * (size_t)(me->shadow_warps + 2) * sizeof *me->shadow);
        me->clock = 0;
    }
    b->clock0 = b->agent_clock = me->clock + 1;
}

static void block_start(struct worker *me, uint32_t id)
{
    struct launch *l = me->launch;
    struct block *b = &me->block;
    struct lane *lanes = b->lanes;
    int per = l->machine->lanes;
    memset(b, 0, sizeof *b);
    b->worker = me;
    b->launch = l;
    b->id = id;
    b->serial = l->serial0 + id;
    b->lanes = lanes;
    b->nthreads = l->kernel->sig->threads;
    b->nwarps = (b->nthreads + per - 1) / per;
    b->shared = me->shared;
    b->shared_bytes = l->shared_bytes;
    b->budget = l->device->budget;
    b->rng = l->seed * 0x9e3779b97f4a7c15u ^ ((uint64_t)l->number << 32 | id);
    b->policy = (int)(sim_random(b) & 1);
    clocks_start(me, b);
    memset(me->shared, 0xff, b->shared_bytes);
    for (int i = 0; i < b->nwarps; i++) {
        struct warp *w = &b->warps[i];
        *w = (struct warp){ .block = b,
                            .index = i,
                            .lanes = lanes + i * per,
                            .clock = b->clock0,
                            .fenced = b->clock0 - 1,
                            .synced = b->clock0 - 1 };
        w->nlanes = b->nthreads - i * per < per ? b->nthreads - i * per : per;
        for (int k = 0; k < CLOCKS; k++)
            w->seen[k] = b->clock0 - 1;
        w->priority = l->seed ? sim_random(b) : 0;
    }
    for (int i = 0; i < b->nthreads; i++) {
        struct lane *t = &lanes[i];
        *t = (struct lane){
            .warp = &b->warps[i / per], .index = i % per, .thread = i, .copies = t->copies, .copies_cap = t->copies_cap
        };
        fiber_start(t, me->stacks + (size_t)i * STACK_STRIDE + (STACK_STRIDE - LANE_STACK),
                    LANE_STACK - (size_t)(i % 61) * 64);
    }
}

static void block_end(struct worker *me)
{
    struct block *b = &me->block;
    for (int i = 0; i < b->nthreads; i++)
        me->executed += b->lanes[i].executed;
    for (int i = 0; i < b->nwarps; i++)
        me->clock = b->warps[i].clock > me->clock ? b->warps[i].clock : me->clock;
    me->clock = b->agent_clock > me->clock ? b->agent_clock : me->clock;
    order_block_end(b);
    async_block_end(b);
    if (!b->launch->machine->nv)
        amd_block_end(b);
}

// ---- workers -----------------------------------------------------------------------------------------------------

static bool worker_ready(struct worker *me)
{
    const struct launch *l = me->launch;
    int per = l->machine->lanes;
    if (!me->block.lanes)
        me->block.lanes = calloc(THREADS_MAX, sizeof *me->block.lanes);
    return me->block.lanes && stacks_ready(me, l->kernel->sig->threads) &&
           shared_ready(me, l, (l->kernel->sig->threads + per - 1) / per);
}

// Where this thread's stack is, for the address sanitizer.
static void own_stack(struct worker *me)
{
    pthread_attr_t a;
    void *p = NULL;
    if (pthread_getattr_np(pthread_self(), &a))
        return;
    pthread_attr_getstack(&a, &p, &me->home_size);
    me->home_stack = p;
    pthread_attr_destroy(&a);
}

static void *work(void *user)
{
    struct worker *me = user, *was = sim_me;
    struct launch *l = me->launch;
    uint32_t n, stride = 1;
    if (l->seed) // blocks in another order: a step that has no divisor in common with their number
        for (stride = (uint32_t)(l->seed * 7919 + l->number) % l->blocks | 1; l->blocks > 1; stride += 2) {
            uint32_t a = l->blocks, b = stride % l->blocks;
            while (b) {
                uint32_t t = a % b;
                a = b;
                b = t;
            }
            if (a == 1)
                break;
        }
    sim_me = me;
    own_stack(me);
    while (!stopped(l) && (n = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED)) < l->blocks) {
        block_start(me, (uint32_t)((uint64_t)n * stride % l->blocks));
        run_warps(&me->block);
        block_end(me);
    }
    sim_me = was;
    return NULL;
}

static void run_workers(struct launch *l)
{
    struct moesim_device *d = l->device;
    int n = d->threads < (int)l->blocks ? d->threads : (int)l->blocks, started = 1;
    for (; started < n; started++)
        if (pthread_create(&d->workers[started].thread, NULL, work, &d->workers[started]))
            break;
    work(&d->workers[0]);
    for (int i = 1; i < started; i++)
        pthread_join(d->workers[i].thread, NULL);
    d->stats.launches++;
    d->stats.blocks += l->blocks;
    for (int i = 0; i < started; i++) {
        d->stats.lane_instructions += d->workers[i].executed;
        d->workers[i].executed = 0;
    }
}

int launch_run(struct launch *l, char *why)
{
    struct moesim_device *d = l->device;
    struct timespec t0, t1;
    int had = d->nfindings;
    for (int i = 0; i < d->threads; i++) {
        d->workers[i].launch = l;
        if (!worker_ready(&d->workers[i])) {
            snprintf(why, MOESIM_WHY, "out of memory for %d lanes", l->kernel->sig->threads);
            return -1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &t0);
    run_workers(l);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    d->stats.seconds += (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    findings_sort(d, had);
    return d->nfindings > had;
}

void workers_free(struct moesim_device *d)
{
    for (int i = 0; d->workers && i < d->threads; i++) {
        struct worker *w = &d->workers[i];
        for (int k = 0; w->block.lanes && k < THREADS_MAX; k++)
            free(w->block.lanes[k].copies);
        free(w->block.lanes);
        free(w->shared);
        free(w->shadow);
        if (w->stacks)
            munmap(w->stacks, (size_t)w->nstacks * STACK_STRIDE);
    }
    free(d->workers);
    d->workers = NULL;
}
