// The blocks of a launch: workers (threads) take them. A worker runs one block to its end; when a block only looks at memory that others may
// write, the worker puts it aside with all that belongs to it (a seat) and goes on with another. Blocks that a device could hold at the
// same time so run together, whatever the number of workers; when nothing moves any more, that is a deadlock.
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static bool stopped(const struct launch *l)
{
    return __atomic_load_n(&l->stop, __ATOMIC_RELAXED);
}

// ---- blocks ------------------------------------------------------------------------------------------------------

// guarded: a page below each stack; every one is a mapping of its own, of which a process may not have many.
static bool stacks_ready(struct worker *me, int n, bool guarded)
{
    if (me->nstacks >= n)
        return true;
    char *p = mmap(NULL, (size_t)n * STACK_STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (int i = 0; guarded && i < n; i++)
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
        *t = (struct lane){ .warp = &b->warps[i / per],
                            .waited = !l->dependent,
                            .index = i % per,
                            .thread = i,
                            .copies = t->copies,
                            .copies_cap = t->copies_cap };
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

static bool worker_ready(struct worker *me, bool guarded)
{
    const struct launch *l = me->launch;
    int per = l->machine->lanes;
    if (!me->block.lanes)
        me->block.lanes = calloc(THREADS_MAX, sizeof *me->block.lanes);
    return me->block.lanes && stacks_ready(me, l->kernel->sig->threads, guarded) &&
           shared_ready(me, l, (l->kernel->sig->threads + per - 1) / per);
}

static void worker_free(struct worker *w)
{
    for (int k = 0; w->block.lanes && k < THREADS_MAX; k++)
        free(w->block.lanes[k].copies);
    free(w->block.lanes);
    free(w->shared);
    free(w->shadow);
    if (w->stacks)
        munmap(w->stacks, (size_t)w->nstacks * STACK_STRIDE);
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

// The n-th block to run: with a seed in another order, by a step that has no divisor in common with their number.
static uint32_t nth_block(const struct launch *l, uint32_t n)
{
    uint32_t stride = 1;
    if (l->seed)
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
    return (uint32_t)((uint64_t)n * stride % l->blocks);
}

// A seat of this worker that is free, made if need be; NULL: out of memory.
static struct worker *free_seat(struct worker *me)
{
    struct worker *s = me;
    while (s->busy && s->next)
        s = s->next;
    if (!s->busy)
        return s;
    struct worker *new = calloc(1, sizeof *new);
    if (!new)
        return NULL;
    new->launch = me->launch;
    new->home_stack = me->home_stack;
    new->home_size = me->home_size;
    if (worker_ready(new, false))
        return s->next = new; // its memory goes with the launch
    worker_free(new);
    free(new);
    return NULL;
}

static bool start_block(struct worker *me)
{
    struct launch *l = me->launch;
    if (__atomic_load_n(&l->next, __ATOMIC_RELAXED) >= l->blocks)
        return false;
    bool room = __atomic_add_fetch(&l->resident, 1, __ATOMIC_RELAXED) <= l->resident_max;
    struct worker *s = room ? free_seat(me) : NULL;
    uint32_t n = s ? __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED) : l->blocks;
    if (n >= l->blocks) {
        __atomic_fetch_sub(&l->resident, 1, __ATOMIC_RELAXED);
        return false;
    }
    sim_me = s;
    block_start(s, nth_block(l, n));
    s->busy = true;
    return true;
}

static void leave_seat(struct worker *s)
{
    block_end(s);
    s->busy = false;
    __atomic_fetch_sub(&s->launch->resident, 1, __ATOMIC_RELAXED);
}

// Each block as far as it goes. Did anything happen?
static bool run_seats(struct worker *me)
{
    bool moved = false;
    for (struct worker *s = me; s && !stopped(me->launch); s = s->next) {
        if (!s->busy)
            continue;
        sim_me = s;
        moved |= block_run(&s->block);
        if (s->block.ended == s->block.nwarps)
            leave_seat(s);
    }
    return moved;
}

static void note_move(struct launch *l)
{
    pthread_mutex_lock(&l->lock);
    __atomic_add_fetch(&l->moves, 1, __ATOMIC_RELAXED);
    l->idle = 0;
    pthread_mutex_unlock(&l->lock);
}

// Nothing happened on this worker for `rounds` rounds since the launch's moves were `moves`. Enough of them on all workers: true.
static bool all_wait(struct launch *l, uint64_t moves, int rounds)
{
    enum { ENOUGH = 1000 };
    pthread_mutex_lock(&l->lock);
    if (l->moves == moves && rounds == ENOUGH)
        l->idle++;
    if (l->moves == moves && rounds >= ENOUGH && l->idle >= l->running)
        __atomic_store_n(&l->dead, true, __ATOMIC_RELAXED);
    bool alone = l->running == 1;
    pthread_mutex_unlock(&l->lock);
    if (!alone)
        usleep(20);
    return __atomic_load_n(&l->dead, __ATOMIC_RELAXED);
}

static bool any_busy(const struct worker *me)
{
    for (; me; me = me->next)
        if (me->busy)
            return true;
    return false;
}

static void *work(void *user)
{
    struct worker *me = user, *was = sim_me;
    struct launch *l = me->launch;
    uint64_t moves = 0;
    int rounds = 0;
    own_stack(me);
    while (!stopped(l)) {
        uint64_t now = __atomic_load_n(&l->moves, __ATOMIC_RELAXED);
        rounds = now == moves ? rounds : 0;
        moves = now;
        if (run_seats(me) || start_block(me))
            note_move(l);
        else if (!any_busy(me) && __atomic_load_n(&l->next, __ATOMIC_RELAXED) >= l->blocks)
            break;
        else if (all_wait(l, moves, ++rounds))
            break;
    }
    for (struct worker *s = me; s; s = s->next)
        if (s->busy) {
            sim_me = s;
            if (__atomic_load_n(&l->dead, __ATOMIC_RELAXED))
                block_deadlock(&s->block);
            leave_seat(s);
        }
    pthread_mutex_lock(&l->lock);
    l->running--;
    pthread_mutex_unlock(&l->lock);
    sim_me = was;
    return NULL;
}

static void run_workers(struct launch *l)
{
    struct moesim_device *d = l->device;
    int n = d->threads < (int)l->blocks ? d->threads : (int)l->blocks, started = 1;
    l->running = n;
    for (; started < n; started++)
        if (pthread_create(&d->workers[started].thread, NULL, work, &d->workers[started]))
            break;
    pthread_mutex_lock(&l->lock);
    l->running -= n - started;
    pthread_mutex_unlock(&l->lock);
    work(&d->workers[0]);
    for (int i = 1; i < started; i++)
        pthread_join(d->workers[i].thread, NULL);
    d->stats.launches++;
    d->stats.blocks += l->blocks;
    for (int i = 0; i < started; i++) {
        for (struct worker *s = &d->workers[i]; s; s = s->next) {
            d->stats.lane_instructions += s->executed;
            s->executed = 0;
        }
        while (d->workers[i].next) {
            struct worker *s = d->workers[i].next;
            d->workers[i].next = s->next;
            worker_free(s);
            free(s);
        }
    }
}

// Blocks that the device holds at the same time, registers aside. Both vendors: 2048 threads and 32 blocks a processor.
static int resident(const struct launch *l)
{
    int each = 2048 / l->kernel->sig->threads;
    if (l->shared_bytes && l->machine->shared_max / l->shared_bytes < each)
        each = (int)(l->machine->shared_max / l->shared_bytes);
    return l->device->processors * (each > 32 ? 32 : each < 1 ? 1 : each);
}

int launch_run(struct launch *l, char *why)
{
    struct moesim_device *d = l->device;
    struct timespec t0, t1;
    int had = d->nfindings;
    l->resident_max = resident(l);
    for (int i = 0; i < d->threads; i++) {
        d->workers[i].launch = l;
        if (!worker_ready(&d->workers[i], true)) {
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
    for (int i = 0; d->workers && i < d->threads; i++)
        worker_free(&d->workers[i]);
    free(d->workers);
    d->workers = NULL;
}
