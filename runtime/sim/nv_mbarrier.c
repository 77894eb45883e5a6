// mbarrier objects (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier") and the fences between
// the generic and the async proxy. An object is a record of its own, found by its address; its 8 bytes of shared memory are
// marked as nobody's, so that a plain access of them is told.
//
// A phase is complete when its pending count and its tx-count are both zero ("Phase of the mbarrier object"). Arrivals release, a
// successful wait acquires: clocks go from arrivals (joined) to those who wait for the phase (handed).
#include "nv_async.h"

#include <stdlib.h>
#include <string.h>

enum { RELAXED = 1, DROP = 2, NO_COMPLETE = 4, EXPECT = 8, PARITY = 16 };
struct form { // operands of one mbarrier instruction
    struct arg address, value;
    int out; // slot, -1: none
    bool has_value;
    unsigned flags;
};
// What arrive returns: opaque to programs ("mbarrier.arrive"). Mark 16 | phase 28 | pending count 20.
enum { STATE_MARK = 0x6d62, PHASE_MASK = 0xfffffff };

bool nv_prepare_mbarrier(struct inst *i, char *why)
{
    struct form *f = module_keep(i->site->fn->module, sizeof *f);
    bool llvm = !strncmp(i->text, "llvm.", 5), pending = strstr(i->text, "pending") != NULL;
    int n = i->nargs, at = !llvm && n && i->a[0].kind != ARG_ADDR ? 1 : 0; // assembly: the result comes first
    if (!f || (!pending && !strstr(i->text, ".shared") && !strstr(i->text, ".space."))) {
        snprintf(why, MOESIM_WHY, "only addresses in .shared");
        return false;
    }
    if (n <= at || (!llvm && !pending && i->a[at].kind != ARG_ADDR)) {
        snprintf(why, MOESIM_WHY, "an address is expected");
        return false;
    }
    const char *t = i->text;
    *f = (struct form){ .address = i->a[at],
                        .has_value = n > at + 1,
                        .out = llvm ? i->a[n].reg
                               : at ? i->a[0].reg
                                    : -1 };
    if (f->has_value)
        f->value = i->a[at + 1];
    if (!llvm && !f->has_value && (strstr(t, "expect_tx") || strstr(t, "noComplete"))) {
        snprintf(why, MOESIM_WHY, "a count is expected");
        return false;
    }
    f->flags = (strstr(t, ".relaxed") ? RELAXED : 0) | (strstr(t, "drop") ? DROP : 0) |
               (strstr(t, "noComplete") ? NO_COMPLETE : 0) | (strstr(t, "arrive") && strstr(t, "expect") ? EXPECT : 0) |
               (strstr(t, ".parity") ? PARITY : 0);
    if (strstr(t, "mbarrier.init"))
        i->site->what = t; // shadow.c tells an mbarrier's bytes by it
    i->data = f;
    return true;
}

static uint64_t in_value(const struct form *f, const uint64_t *r)
{
    return arg_value(&f->value, r);
}
static void set_out(const struct form *f, uint64_t *r, uint64_t v)
{
    if (f->out >= 0)
        r[f->out] = v;
}

static struct mbar *find(struct block *b, uint32_t at)
{
    struct mbar *m = b->mbars;
    while (m && m->at != at)
        m = m->next;
    return m;
}

struct mbar *mbar_at(struct lane *l, const struct inst *i, uint32_t at, bool engine)
{
    struct block *b = l->warp->block;
    struct mbar *m = find(b, at);
    char place[64];
    if (!m) {
        finding(l, i->site, F_OPERAND, at, "%s: no mbarrier is initialised at shared byte 0x%x", i->text, at);
        return NULL;
    }
    if (!b->launch->shadow)
        return m;
    int warp = m->init_thread / b->launch->machine->lanes;
    if (!shadow_ordered(l, m->init_clock, m->init_thread))
        finding(l, i->site, F_RACE, m->init->id,
                "%s: the mbarrier at shared byte 0x%x was initialised by thread %d, %s, and nothing orders that before",
                i->text, at, m->init_thread, site_place(m->init, place));
    else if (engine && !m->fenced && m->init_clock > l->warp->seen[PROXIED + warp])
        finding(l, i->site, F_RACE, m->init->id,
                "%s: the async proxy uses the mbarrier at shared byte 0x%x, initialised by thread %d, %s: "
                "fence.mbarrier_init or fence.proxy.async is missing in between",
                i->text, at, m->init_thread, site_place(m->init, place));
    return m;
}

void nv_mbarrier_init(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct block *b = l->warp->block;
    uint32_t at = arg_u32(&f->address, r), count = (uint32_t)in_value(f, r);
    if (at % 8) {
        finding(l, i->site, F_ALIGN, 0, "%s at shared byte 0x%x is not aligned to 8", i->text, at);
        return;
    }
    if (at > b->shared_bytes || 8 > b->shared_bytes - at) {
        finding(l, i->site, F_BOUNDS, 0, "%s at shared byte 0x%x, the block has 0x%x", i->text, at, b->shared_bytes);
        return;
    }
    if (count < 1 || count > COUNT_MAX) {
        finding(l, i->site, F_OPERAND, 0, "%s: a count of %u, not of 1 to %d", i->text, count, COUNT_MAX);
        return;
    }
    struct mbar *m = find(b, at);
    if (m) { // "performing mbarrier.init on a valid mbarrier object is undefined"
        finding(l, i->site, F_OPERAND, 1, "%s: shared byte 0x%x holds an mbarrier already; mbarrier.inval comes first",
                i->text, at);
        return;
    }
    m = calloc(1, sizeof *m);
    if (!m)
        return; // later operations tell that there is none
    *m = (struct mbar){ .next = b->mbars, .at = at, .expected = (int32_t)count, .pending = (int32_t)count };
    m->init = i->site;
    m->init_clock = l->warp->clock;
    m->init_thread = l->thread;
    b->mbars = m;
    if (b->launch->shadow)
        shadow_inflight(l, i->site, at, 8, (const uint8_t *)m); // the address tells copies apart
}

void nv_mbarrier_inval(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct block *b = l->warp->block;
    struct mbar *m = mbar_at(l, i, arg_u32(&f->address, r), false);
    if (!m)
        return;
    if (b->launch->shadow)
        shadow_landed(l, i->site, m->at, 8, false);
    for (struct mbar **p = &b->mbars; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            free(m);
            return;
        }
}

// ---- counts ------------------------------------------------------------------------------------------------------

static void complete(struct block *b, struct mbar *m)
{
    b->progress = true;
    if (m->pending || m->tx)
        return;
    m->phase++;
    m->pending = m->expected;
    clock_join(m->handed, m->joined);
}

static void add_bytes(struct lane *l, const struct inst *i, struct mbar *m, int64_t bytes)
{
    int64_t tx = m->tx + bytes;
    if (tx < -COUNT_MAX || tx > COUNT_MAX)
        finding(l, i->site, F_OPERAND, 2,
                "%s: the tx-count of the mbarrier at shared byte 0x%x becomes %lld, beyond %d", i->text, m->at,
                (long long)tx, COUNT_MAX);
    else
        m->tx = (int32_t)tx;
    // The phase may have been seen as complete when the count passed through zero.
    if (m->tx < 0 && !m->pending)
        finding(l, i->site, F_OPERAND, 3,
                "%s: %d bytes more than the phase of the mbarrier at shared byte 0x%x was told to expect, and nobody "
                "is left to "
                "arrive",
                i->text, -m->tx, m->at);
}

void mbar_expect(struct lane *l, const struct inst *i, struct mbar *m, int64_t bytes)
{
    add_bytes(l, i, m, bytes);
    complete(l->warp->block, m);
}

// "complete-tx operation": of an engine, whose writes come before.
static void engine_clock(struct block *b, struct mbar *m)
{
    m->joined[AGENT] = b->agent_clock > m->joined[AGENT] ? b->agent_clock : m->joined[AGENT];
    b->agent_clock++;
}

void mbar_landed(struct lane *l, const struct inst *i, struct mbar *m, uint32_t bytes)
{
    engine_clock(l->warp->block, m);
    m->unseen_lane = l;
    m->unseen_site = i->site;
    m->unseen_phase = m->phase;
    mbar_expect(l, i, m, -(int64_t)bytes);
}

// "arrive-on operation". false: the phase does not have so many arrivals left.
static bool count_down(struct lane *l, const struct inst *i, struct mbar *m, uint32_t count)
{
    if (count < 1 || count > COUNT_MAX)
        finding(l, i->site, F_OPERAND, 4, "%s: a count of %u, not of 1 to %d", i->text, count, COUNT_MAX);
    else if ((int32_t)count > m->pending)
        finding(l, i->site, F_OPERAND, 5,
                "%s: arrives %u times at the mbarrier at shared byte 0x%x, whose phase %u waits for %d more of %d%s",
                i->text, count, m->at, m->phase, m->pending, m->expected, m->tx ? " and for bytes" : "");
    else
        return true;
    return false;
}

void mbar_arrive_engine(struct lane *l, const struct inst *i, struct mbar *m)
{
    engine_clock(l->warp->block, m);
    if (count_down(l, i, m, 1))
        m->pending--;
    complete(l->warp->block, m);
}

static void release(struct warp *w, struct mbar *m)
{
    clock_release(w);
    clock_join(m->joined, w->seen);
    m->joined[w->index] = w->fenced > m->joined[w->index] ? w->fenced : m->joined[w->index];
}

void nv_mbarrier_arrive(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct mbar *m = mbar_at(l, i, arg_u32(&f->address, r), false);
    uint32_t count = f->has_value && !(f->flags & EXPECT) ? (uint32_t)in_value(f, r) : 1;
    set_out(f, r, 0);
    if (!m)
        return;
    set_out(f, r,
            (uint64_t)STATE_MARK << 48 | (uint64_t)(m->phase & PHASE_MASK) << 20 | ((uint64_t)m->pending & COUNT_MAX));
    if (f->flags & EXPECT) // first expect-tx, then arrive-on
        add_bytes(l, i, m, (int64_t)(uint32_t)in_value(f, r));
    if (!count_down(l, i, m, count))
        return;
    if (f->flags & NO_COMPLETE && (int32_t)count == m->pending) {
        finding(l, i->site, F_OPERAND, 6, "%s: this arrival completes the phase, which .noComplete rules out", i->text);
        return;
    }
    if (!(f->flags & RELAXED))
        release(l->warp, m);
    m->pending -= (int32_t)count;
    if (f->flags & DROP)
        m->expected -= (int32_t)count;
    complete(l->warp->block, m);
}

void nv_mbarrier_expect(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct mbar *m = mbar_at(l, i, arg_u32(&f->address, r), false);
    if (m)
        mbar_expect(l, i, m, (int64_t)(uint32_t)in_value(f, r));
}

void nv_mbarrier_complete(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct mbar *m = mbar_at(l, i, arg_u32(&f->address, r), false);
    if (m)
        mbar_expect(l, i, m, -(int64_t)(uint32_t)in_value(f, r));
}

void nv_mbarrier_pending(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    uint64_t state = arg_value(&f->address, r);
    if (state >> 48 != STATE_MARK)
        finding(l, i->site, F_OPERAND, 0, "%s: 0x%llx is not what an arrive returns", i->text,
                (unsigned long long)state);
    set_out(f, r, state & COUNT_MAX);
}

// ---- waiting -----------------------------------------------------------------------------------------------------

// Is the phase that the operand names complete? With parity, that of the current or of the phase before; with a state, likewise
// ("mbarrier.test_wait / mbarrier.try_wait").
static bool is_complete(struct lane *l, const struct inst *i, const struct mbar *m, uint64_t v)
{
    const struct form *f = i->data;
    if (f->flags & PARITY) {
        if ((uint32_t)v > 1)
            finding(l, i->site, F_OPERAND, 7, "%s: a parity of %u, which is 0 or 1", i->text, (uint32_t)v);
        return (m->phase & 1) != (v & 1);
    }
    uint32_t phase = (uint32_t)(v >> 20) & PHASE_MASK, late = (m->phase - phase) & PHASE_MASK;
    if (v >> 48 != STATE_MARK || late > 1)
        finding(l, i->site, F_OPERAND, 8, "%s: 0x%llx is not the state of the current phase or of the one before",
                i->text, (unsigned long long)v);
    return late != 0;
}

static bool look(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct mbar *m = mbar_at(l, i, arg_u32(&f->address, r), false);
    if (m && !is_complete(l, i, m, in_value(f, r)))
        return false;
    l->warp->block->progress = true;
    if (m && !(f->flags & RELAXED))
        clock_join(l->warp->seen, m->handed);
    if (m && m->phase != m->unseen_phase)
        m->unseen_lane = NULL;
    return true; // without an mbarrier too: that has been told
}

// One that fails stands for the time that the instruction may wait; programs must loop either way.
void nv_mbarrier_wait(struct lane *l, const struct inst *i, uint64_t *r)
{
    bool done = look(l, i, r);
    if (!done) {
        l->at = i;
        lane_poll(l);
        done = look(l, i, r);
    }
    set_out(i->data, r, done);
}

// ---- cp.async.mbarrier.arrive and fences: see nv_bulk.c for the landing

void nv_fence_proxy(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)r;
    if (!strstr(i->text, "async.global")) // which orders accesses of .global alone
        shadow_proxy_fence(l);
}

// "fence.mbarrier_init": of the thread's own inits.
void nv_fence_init(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)i;
    (void)r;
    for (struct mbar *m = l->warp->block->mbars; m; m = m->next)
        m->fenced |= m->init_thread == l->thread;
}

int async_state(const struct block *b, char *out, int max)
{
    int n = 0;
    out[0] = 0;
    for (int rest = 0; rest < 2; rest++) // those within a phase first
        for (const struct mbar *m = b->mbars; m && n < max; m = m->next)
            if ((m->pending == m->expected && !m->tx) == (rest == 1))
                n += snprintf(out + n, (size_t)(max - n),
                              "; mbarrier 0x%x: phase %u lacks %d of %d arrivals and %d bytes", m->at, m->phase,
                              m->pending, m->expected, m->tx);
    return n;
}

void mbars_end(struct block *b)
{
    bool stop = __atomic_load_n(&b->launch->stop, __ATOMIC_RELAXED);
    while (b->mbars) {
        struct mbar *m = b->mbars;
        if (m->unseen_lane && !stop)
            finding(m->unseen_lane, m->unseen_site, F_LEAK, 0,
                    "nobody waits for this %s, of which the mbarrier at shared byte 0x%x tells, before the block ends",
                    m->unseen_site->what, m->at);
        b->mbars = m->next;
        free(m);
    }
}
