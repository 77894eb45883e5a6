// Matrix products of warpgroups (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). wgmma.mma_async only takes note: its
// destination registers get handles, NaNs that name the product and the element. A product is computed, in order, when a
// wait covers its group (with a seed, now and then earlier), so shared memory is read as late as allowed; until then its bytes are
// marked as being read. The wait then puts values for the handles among its own operands: assembly must tie the accumulators
// through it ("+f"), as the registers themselves change there. What is not waited for stays NaN.
#include "nv_async.h"

#include <stdlib.h>
#include <string.h>

enum { WARPS = 4, THREADS = 128, KEPT = 64, SERIAL_BITS = 14, ELEMENT_BITS = 7 };
struct product {
    struct product *next;
    const struct inst *inst;
    struct wgmma how;
    uint64_t a_desc, b_desc;
    uint32_t *a, *d;   // a: fragments, NULL: from shared memory; d: C until computed, then D
    struct product *c; // the product in order before that whose D is this one's C
    uint32_t serial;
    int group[WARPS]; // -1: not committed by that warp
    bool held, computed, chained, retired;
    int reader; // the warp whose wait came first, and its clock then
    uint32_t read_clock;
    uint32_t *touched;
    int ntouched;
};
struct warpgroup {
    const struct inst *at; // where warps wait for the others
    unsigned here;
    uint64_t *io[THREADS];
    struct product *products; // the oldest first
    int nproducts;
    uint32_t serial;
    int groups[WARPS], done[WARPS], regs;
    bool unfenced[WARPS];
};
struct state {
    struct warpgroup groups[WARPS_MAX / WARPS];
};
struct form {
    struct wgmma how;
    int words;
    const struct arg *d, *a, *b, *scale_d, *imm; // imm: scale a, scale b, trans a (not for registers), trans b
};

static bool is_handle(uint64_t v)
{
    return (v & ~0x1fffffull) == 0xffa00000;
}

// ---- warpgroups

static void stop(struct warp *w)
{
    __atomic_store_n(&w->block->launch->stop, true, __ATOMIC_RELAXED);
}

static void no_memory(struct warp *w, const struct inst *i)
{
    finding(&w->lanes[0], i->site, F_RUNAWAY, 0, "%s: the host is out of memory", i->text);
    stop(w);
}

// "Warpgroup": four warps, the first one's rank a multiple of 4.
static struct warpgroup *group_of(struct warp *w, const struct inst *i)
{
    struct block *b = w->block;
    struct state *s = b->state;
    int first = w->index & ~(WARPS - 1);
    if (first + WARPS > b->nwarps || b->warps[first + WARPS - 1].nlanes != 32) {
        finding(&w->lanes[0], i->site, F_DIVERGENT, 0, "%s: warp %d is in no whole warpgroup: the block has %d threads",
                i->text, w->index, b->nthreads);
        stop(w);
        return NULL;
    }
    if (!s) {
        b->state = s = calloc(1, sizeof *s);
        for (int k = 0; s && k < WARPS_MAX; k++)
            s->groups[k / WARPS].unfenced[k % WARPS] = true;
    }
    if (!s)
        no_memory(w, i);
    return s ? &s->groups[first / WARPS] : NULL;
}

// All four warps must come to the same instruction ("mandatory .aligned qualifier"). true: they are here, and g->io are theirs.
static bool together(struct warpgroup *g, struct warp *w, const struct inst *i, uint64_t **r)
{
    char place[64];
    int me = w->index % WARPS;
    if (g->here && g->at != i) {
        finding(&w->lanes[0], i->site, F_DIVERGENT, g->at->site->id, "%s: another warp of the warpgroup is at %s, %s",
                i->text, g->at->text, site_place(g->at->site, place));
        stop(w);
        return false;
    }
    memcpy(g->io + me * 32, r, 32 * sizeof *r);
    g->at = i;
    g->here |= 1u << me;
    if (g->here != (1u << WARPS) - 1) {
        warp_wait(w, i);
        return false;
    }
    for (int k = 0; k < WARPS; k++)
        if (k != me)
            warp_wake(w - me + k);
    g->here = 0;
    return true;
}

// ---- what the text says

static bool wgmma_refused(char *why, const char *what)
{
    snprintf(why, MOESIM_WHY, "%s", what);
    return false;
}

bool nv_prepare_wgmma(struct inst *i, char *why)
{
    struct form *f = module_keep(i->site->fn->module, sizeof *f);
    const char *shape = i->text + strlen("wgmma.mma_async.");
    char *end;
    if (!f || strncmp(shape, "sync.aligned.m64n", 17))
        return wgmma_refused(why, "expected .sync.aligned.m64nNk16");
    f->how.n = (int)strtol(shape + 17, &end, 10);
    if (f->how.n < 8 || f->how.n > 256 || f->how.n % 8)
        return wgmma_refused(why, "n is a multiple of 8 from 8 to 256");
    if (strcmp(end, "k16.f32.bf16.bf16") && strcmp(end, "k16.f32.f16.f16"))
        return wgmma_refused(why, "only k16.f32.bf16.bf16 and k16.f32.f16.f16 are known to the simulator");
    f->how.in = end[8] == 'b' ? MATRIX_BF16 : MATRIX_F16;
    f->words = f->how.n / 2;
    f->how.a_shared = i->nargs > 1 && i->a[1].kind != ARG_LIST;
    const struct arg *a = i->a;
    if (i->nargs != (f->how.a_shared ? 8 : 7) || a[0].kind != ARG_LIST || a[0].n != f->words ||
        (!f->how.a_shared && a[1].n != 4))
        return wgmma_refused(why, "wrong number of registers or operands");
    f->d = a, f->a = a + 1, f->b = a + 2, f->scale_d = a + 3, f->imm = a + 4;
    i->site->access |= ACCESS_READ;
    i->site->what = i->text;
    i->data = f;
    return true;
}

// The immediates and scale-d, as the lane has them.
static struct wgmma how_of(const struct form *f, const uint64_t *r)
{
    struct wgmma w = f->how;
    w.scale_d = arg_value(f->scale_d, r) & 1;
    w.scale_a = (int32_t)arg_u32(&f->imm[0], r);
    w.scale_b = (int32_t)arg_u32(&f->imm[1], r);
    w.trans_a = w.a_shared && arg_u32(&f->imm[2], r) != 0;
    w.trans_b = arg_u32(&f->imm[w.a_shared ? 3 : 2], r) != 0;
    return w;
}

static bool same_operands(struct warp *w, const struct inst *i, const struct warpgroup *g, struct product *p)
{
    const struct form *f = i->data;
    p->how = how_of(f, g->io[0]);
    p->a_desc = f->how.a_shared ? arg_value(f->a, g->io[0]) : 0;
    p->b_desc = arg_value(f->b, g->io[0]);
    if ((p->how.scale_a != 1 && p->how.scale_a != -1) || (p->how.scale_b != 1 && p->how.scale_b != -1)) {
        finding(&w->lanes[0], i->site, F_OPERAND, 1, "%s: scale-a %d and scale-b %d, which are 1 or -1", i->text,
                p->how.scale_a, p->how.scale_b);
        return false;
    }
    for (int t = 1; t < THREADS; t++) {
        struct wgmma how = how_of(f, g->io[t]);
        if (how.scale_d == p->how.scale_d && arg_value(f->b, g->io[t]) == p->b_desc &&
            (!f->how.a_shared || arg_value(f->a, g->io[t]) == p->a_desc))
            continue;
        finding(&(w - w->index % WARPS)->lanes[0] + t, i->site, F_OPERAND, 0,
                "%s: descriptors and scale-d must be the same in all threads of the warpgroup; thread %d differs from "
                "thread %d",
                i->text, (w->index & ~(WARPS - 1)) * 32 + t, (w->index & ~(WARPS - 1)) * 32);
        return false;
    }
    return true;
}

// ---- accumulators

static struct product *named(const struct warpgroup *g, uint64_t handle)
{
    uint32_t serial = (uint32_t)handle >> ELEMENT_BITS & ((1u << SERIAL_BITS) - 1);
    struct product *p = is_handle(handle) ? g->products : NULL;
    while (p && p->serial != serial)
        p = p->next;
    return p;
}

static uint32_t handle_of(const struct product *p, int element)
{
    return 0xffa00000 | p->serial << ELEMENT_BITS | (uint32_t)element;
}

// The accumulators are the untouched results of a product that has been waited for.
static bool untouched(const struct warpgroup *g, const struct product *p)
{
    for (const struct product *q = g->products; q; q = q->next)
        if (q->retired && q->how.n == p->how.n && !memcmp(q->d, p->d, sizeof *p->d * THREADS * (size_t)(p->how.n / 2)))
            return true;
    return false;
}

// Takes C from the registers: values, or the handles of one earlier product of the same shape, element by element.
static void take_c(struct warp *w, const struct inst *i, struct warpgroup *g, struct product *p)
{
    const struct form *f = i->data;
    struct product *c = named(g, g->io[0][f->d->list[0]]);
    bool whole = c != NULL, any = false;
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < f->words; k++) {
            uint64_t v = g->io[t][f->d->list[k]];
            p->d[t * f->words + k] = (uint32_t)v;
            if (c && v == handle_of(c, k)) {
                any = true;
                continue;
            }
            whole = false;
            any |= named(g, v) != NULL;
        }
    char place[64];
    if (!p->how.scale_d || !any)
        return;
    if (whole && c->how.n == p->how.n) {
        p->c = c;
        c->chained = true;
    } else {
        c = c ? c : g->products;
        finding(&w->lanes[0], i->site, F_ASYNC, c->inst->site->id,
                "%s: its accumulators are results of an earlier %s, %s, that has not been waited for, and not of the "
                "same shape "
                "and order",
                i->text, c->inst->text, site_place(c->inst->site, place));
    }
}

static void take_a(const struct inst *i, const struct warpgroup *g, struct product *p)
{
    const struct form *f = i->data;
    for (int t = 0; p->a && t < THREADS; t++)
        for (int k = 0; k < 4; k++)
            p->a[t * 4 + k] = (uint32_t)g->io[t][f->a->list[k]];
}

// "wgmma.fence": before the first product, and between an access of a register and a product that uses it; not between products of
// one shape on the same accumulators. Registers may have been accessed since the last wait that handed values out.
static void check_fence(struct warp *w, const struct inst *i, const struct warpgroup *g, const struct product *p)
{
    bool missing = false;
    for (int k = 0; k < WARPS; k++)
        missing |= g->unfenced[k];
    if (!missing || (!p->a && (p->c || (p->how.scale_d && untouched(g, p)))))
        return;
    finding(&w->lanes[0], i->site, F_ASYNC, 0,
            "%s: wgmma.fence is missing between the last accesses of its registers and this", i->text);
}

// ---- shared memory

struct toucher {
    struct warp *first;
    struct product *p;
    int cap;
    bool lost;
};

static void touch(void *user, uint32_t address, int bytes)
{
    struct toucher *t = user;
    struct product *p = t->p;
    if (p->ntouched == t->cap || bytes != 16) {
        t->lost = true;
        return;
    }
    p->touched[p->ntouched++] = address;
    for (int k = 0; k < WARPS; k++)
        if (!shadow_engine_may(&t->first[k].lanes[0], p->inst->site, address, 16))
            return;
}

static bool hold(struct warp *w, struct product *p)
{
    struct toucher t = { .first = w - w->index % WARPS, .p = p, .cap = 2 * (64 + p->how.n) };
    struct block *b = w->block;
    char why[128];
    p->touched = b->launch->shadow ? malloc(sizeof *p->touched * (size_t)t.cap) : NULL;
    bool ok = wgmma_reads(&p->how, b->shared_bytes, p->a_desc, p->b_desc, p->touched ? touch : NULL, &t, why);
    for (int k = 0; k < p->ntouched; k++)
        shadow_engine_reads(&w->lanes[0], p->inst->site, p->touched[k], 16);
    p->held = true;
    if (!ok)
        finding(&w->lanes[0], p->inst->site, F_OPERAND, 1, "%s", why);
    return ok;
}

static void compute_one(struct warp *w, struct product *p)
{
    struct block *b = w->block;
    char why[128];
    size_t bytes = sizeof *p->d * THREADS * (size_t)(p->how.n / 2);
    if (p->c)
        memcpy(p->d, p->c->d, bytes);
    p->c = NULL;
    p->computed = true;
    if (!wgmma_run(&p->how, b->shared, b->shared_bytes, p->a, p->a_desc, p->b_desc, p->d, NULL, NULL, why))
        memset(p->d, 0xff, bytes); // told when it was issued
}

static void compute(struct warp *w, struct warpgroup *g, const struct product *last)
{
    for (struct product *p = g->products; p; p = p->next) {
        if (!p->computed)
            compute_one(w, p);
        if (p == last)
            return;
    }
}

// ---- the life of a product

static void free_product(struct product *p)
{
    free(p->a);
    free(p->d);
    free(p->touched);
    free(p);
}

// Those whose results nobody can ask for any more; of others the last KEPT stay.
static void sweep(struct warpgroup *g)
{
    for (struct product **at = &g->products; *at;) {
        struct product *p = *at;
        bool gone = p->retired, used = false;
        for (int k = 0; k < WARPS; k++)
            gone = gone && p->group[k] >= 0 && p->group[k] < g->done[k];
        for (const struct product *q = p->next; q && gone; q = q->next)
            used |= q->c == p;
        if (!gone || used || (!p->chained && g->nproducts <= KEPT)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        g->nproducts--;
        free_product(p);
    }
}

static struct product *new_product(const struct inst *i, struct warpgroup *g)
{
    const struct form *f = i->data;
    struct product *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->inst = i;
    p->serial = g->serial++ & ((1u << SERIAL_BITS) - 1);
    p->d = malloc(sizeof *p->d * THREADS * (size_t)f->words);
    p->a = f->how.a_shared ? NULL : malloc(sizeof *p->a * THREADS * 4);
    for (int k = 0; k < WARPS; k++)
        p->group[k] = -1;
    if (p->d && (p->a || f->how.a_shared))
        return p;
    free_product(p);
    return NULL;
}

void nv_wgmma(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    const struct form *f = i->data;
    struct warpgroup *g = group_of(w, i);
    (void)mask;
    if (!g || !together(g, w, i, r))
        return;
    for (int k = 1; k < WARPS; k++)
        if (g->groups[k] != g->groups[0]) {
            finding(&w->lanes[0], i->site, F_DIVERGENT, 0,
                    "%s: the warps of the warpgroup have committed %d and %d groups", i->text, g->groups[0],
                    g->groups[k]);
            stop(w);
            return;
        }
    struct product *p = new_product(i, g), **end = &g->products;
    if (!p) {
        no_memory(w, i);
        return;
    }
    if (!same_operands(w, i, g, p)) {
        free_product(p);
        return;
    }
    take_c(w, i, g, p);
    take_a(i, g, p);
    check_fence(w, i, g, p);
    hold(w, p);
    while (*end)
        end = &(*end)->next;
    *end = p;
    g->nproducts++;
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < f->words; k++)
            g->io[t][f->d->list[k]] = handle_of(p, k);
}

// ---- fence, commit, wait

void nv_wgmma_fence(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    struct warpgroup *g = group_of(w, i);
    (void)mask;
    (void)r;
    if (g)
        g->unfenced[w->index % WARPS] = false;
}

void nv_wgmma_commit(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    struct warpgroup *g = group_of(w, i);
    int me = w->index % WARPS;
    (void)mask;
    (void)r;
    if (!g)
        return;
    const struct product *last = NULL;
    for (struct product *p = g->products; p; p = p->next)
        if (p->group[me] < 0) {
            p->group[me] = g->groups[me];
            last = last && sim_random(w->block) % 2 ? last : p;
        }
    g->groups[me]++;
    if (last && w->block->launch->seed && sim_random(w->block) % 4 == 0)
        compute(w, g, last);
}

// The first warp whose wait covers a product knows that all of it is done; the others learn what that warp's clock was.
static void retire(struct warp *w, struct product *p)
{
    struct lane *l = &w->lanes[0];
    if (!p->retired) {
        for (int k = 0; k < p->ntouched; k++)
            shadow_engine_done(l, p->inst->site, p->touched[k], 16);
        p->held = false;
        p->retired = true;
        p->reader = w->index;
        p->read_clock = w->clock;
    } else if (p->reader != w->index && w->seen[p->reader] < p->read_clock) {
        w->seen[p->reader] = p->read_clock;
    }
}

static void hand_out(const struct warpgroup *g, struct warp *w, const struct inst *i, uint64_t **r, bool *any)
{
    int me = w->index % WARPS;
    for (int t = 0; t < 32; t++) {
        const struct product *p = NULL;
        for (int k = 0; k < i->site->noperands; k++) {
            uint64_t v = r[t][k], element = v & ((1u << ELEMENT_BITS) - 1);
            if (!is_handle(v))
                continue;
            p = p && v == handle_of(p, (int)element) ? p : named(g, v);
            if (!p || p->group[me] < 0 || p->group[me] >= g->done[me])
                continue;
            r[t][k] = p->d[(me * 32 + t) * (p->how.n / 2) + (int)element];
            *any = true;
        }
    }
}

void nv_wgmma_wait(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    struct warpgroup *g = group_of(w, i);
    int me = w->index % WARPS;
    bool any = false, retired = false;
    (void)mask;
    if (!g)
        return;
    int pending = i->nargs ? (int)arg_u32(&i->a[0], r[0]) : 0;
    if (pending < 0)
        finding(&w->lanes[0], i->site, F_OPERAND, 0, "%s: %d groups", i->text, pending);
    int done = g->groups[me] - (pending < 0 ? 0 : pending);
    g->done[me] = done > g->done[me] ? done : g->done[me];
    for (struct product *p = g->products; p; p = p->next)
        if (p->group[me] >= 0 && p->group[me] < g->done[me]) {
            compute(w, g, p);
            retire(w, p);
            retired = true;
        }
    if (retired)
        clock_release(w);
    hand_out(g, w, i, r, &any);
    g->unfenced[me] |= any;
    sweep(g);
}

// PTX ISA, "setmaxnreg": a multiple of 8 of 24 to 256, by all warps of the warpgroup; .dec lowers, .inc raises.
void nv_setmaxnreg(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    struct warpgroup *g = group_of(w, i);
    int n = (int)arg_u32(&i->a[0], r[0]);
    bool dec = strstr(i->text, ".dec") != NULL;
    (void)mask;
    if (!g)
        return;
    if (n < 24 || n > 256 || n % 8)
        finding(&w->lanes[0], i->site, F_OPERAND, 0, "%s: %d registers, not a multiple of 8 of 24 to 256", i->text, n);
    if (!together(g, w, i, r))
        return;
    if (g->regs && (dec ? n > g->regs : n < g->regs))
        finding(&w->lanes[0], i->site, F_OPERAND, 1, "%s: from %d registers to %d", i->text, g->regs, n);
    g->regs = n;
}

// ---- ends

void wgmma_lane_end(struct lane *l)
{
    struct warp *w = l->warp;
    struct state *s = w->block->state;
    int me = w->index % WARPS;
    const struct warpgroup *g = &s->groups[w->index / WARPS];
    for (const struct product *p = l->index ? NULL : g->products; p; p = p->next)
        if (p->group[me] < 0 || p->group[me] >= g->done[me])
            finding(l, p->inst->site, F_LEAK, 0, "this %s is not %s when the thread ends", p->inst->text,
                    p->group[me] < 0 ? "committed (wgmma.commit_group)" : "waited for (wgmma.wait_group)");
}

void wgmma_end(struct block *b)
{
    struct state *s = b->state;
    for (int k = 0; s && k < WARPS_MAX / WARPS; k++)
        while (s->groups[k].products) {
            struct product *p = s->groups[k].products;
            for (int j = 0; p->held && j < p->ntouched; j++)
                shadow_engine_dropped(&b->warps[k * WARPS].lanes[0], p->touched[j], 16);
            s->groups[k].products = p->next;
            free_product(p);
        }
    free(s);
    b->state = NULL;
}
