// Device memory, and every access's bounds. A device address is the host address of the byte. Kernels may touch only the
// tensors of their launch, each only as its signature says.
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GAP = 4096, ALIGN = 256 };

struct region *region_find(const struct moesim_device *d, const void *p, size_t n)
{
    for (int i = 0; i < d->nregions; i++) {
        struct region *r = d->regions[i];
        uintptr_t at = (uintptr_t)p - (uintptr_t)r->p;
        if (at < r->bytes && n <= r->bytes - at)
            return r;
    }
    return NULL;
}

// Blocks on several threads may share a byte of the bitmap, so single bits are set atomically.
static void mark_bits(struct region *r, size_t at, size_t n, bool written)
{
    uint8_t bits = (uint8_t)(((1u << n) - 1) << (at & 7));
    if (written)
        __atomic_or_fetch(&r->written[at >> 3], bits, __ATOMIC_RELAXED);
    else
        __atomic_and_fetch(&r->written[at >> 3], (uint8_t)~bits, __ATOMIC_RELAXED);
}

void region_mark(struct region *r, size_t at, size_t n, bool written)
{
    size_t head = (8 - (at & 7)) & 7;
    head = head < n ? head : n;
    if (head)
        mark_bits(r, at, head, written);
    at += head;
    n -= head;
    memset(r->written + (at >> 3), written ? 0xff : 0, n >> 3);
    at += n & ~(size_t)7;
    if (n & 7)
        mark_bits(r, at, n & 7, written);
}

bool region_written(const struct region *r, size_t at, size_t n)
{
    for (; n && at & 7; at++, n--)
        if (!(r->written[at >> 3] >> (at & 7) & 1))
            return false;
    for (; n >= 8; at += 8, n -= 8)
        if (r->written[at >> 3] != 0xff)
            return false;
    return !n || (~r->written[at >> 3] & ((1 << n) - 1)) == 0;
}

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool region_shadow(struct region *r)
{
    if (!r->shadow)
        r->shadow = map(r->bytes * sizeof *r->shadow);
    return r->shadow != NULL;
}

static void region_free(struct region *r)
{
    if (r->p)
        munmap(r->p - GAP, r->mapped);
    if (r->shadow)
        munmap(r->shadow, r->bytes * sizeof *r->shadow);
    if (r->written)
        munmap(r->written, r->bytes / 8 + 1);
    free(r);
}

void *mem_alloc(struct moesim_device *d, size_t bytes)
{
    if (bytes > SIZE_MAX / 64)
        return NULL;
    if (d->nregions == d->regions_cap) {
        int cap = d->regions_cap ? 2 * d->regions_cap : 16;
        void *p = realloc(d->regions, (size_t)cap * sizeof *d->regions);
        if (!p)
            return NULL;
        d->regions = p;
        d->regions_cap = cap;
    }
    struct region *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->bytes = bytes;
    r->mapped = (bytes + ALIGN - 1) / ALIGN * ALIGN + 2 * GAP;
    uint8_t *base = map(r->mapped);
    r->p = base ? base + GAP : NULL;
    r->written = map(bytes / 8 + 1);
    if (!r->p || !r->written) {
        region_free(r);
        return NULL;
    }
    memset(r->p, 0xff, bytes < 4096 ? bytes : 4096); // fresh memory is not zero; all of it only costs time
    d->regions[d->nregions++] = r;
    return r->p;
}

bool mem_free(struct moesim_device *d, void *p)
{
    for (int i = 0; i < d->nregions; i++)
        if (d->regions[i]->p == p) {
            region_free(d->regions[i]);
            d->regions[i] = d->regions[--d->nregions];
            return true;
        }
    return false;
}

bool mem_write(struct moesim_device *d, void *to, const void *from, size_t n)
{
    struct region *r = region_find(d, to, n);
    if (!r)
        return false;
    memcpy(to, from, n);
    early_forget(d, NULL);
    region_mark(r, (size_t)((uint8_t *)to - r->p), n, true);
    return true;
}

bool mem_read(struct moesim_device *d, void *to, const void *from, size_t n)
{
    if (!region_find(d, from, n))
        return false;
    memcpy(to, from, n);
    return true;
}

bool mem_fill(struct moesim_device *d, void *p, int byte, size_t n, bool poison)
{
    struct region *r = region_find(d, p, n);
    if (!r)
        return false;
    memset(p, byte, n);
    early_forget(d, NULL);
    region_mark(r, (size_t)((uint8_t *)p - r->p), n, !poison);
    return true;
}

void memory_close(struct moesim_device *d)
{
    while (d->nregions)
        region_free(d->regions[--d->nregions]);
    free(d->regions);
    d->regions = NULL;
    d->regions_cap = 0;
}

// ---- accesses ----------------------------------------------------------------------------------------------------

static struct tensor *tensor_of(struct launch *l, uint64_t address, int bytes)
{
    for (int i = 0; i < l->ntensors; i++) {
        struct tensor *t = &l->tensors[i];
        uint64_t at = address - (uint64_t)(uintptr_t)t->p;
        if (at < t->bytes && (uint64_t)bytes <= t->bytes - at)
            return t;
    }
    return NULL;
}

// The tensor that lies nearest, for the report.
static void out_of_bounds(struct lane *l, struct site *s, uint64_t address, int bytes)
{
    struct launch *la = l->warp->block->launch;
    const struct tensor *best = NULL;
    uint64_t gap = UINT64_MAX;
    for (int i = 0; i < la->ntensors; i++) {
        const struct tensor *t = &la->tensors[i];
        uint64_t p = (uint64_t)(uintptr_t)t->p;
        uint64_t far = address < p ? p - address : address >= p + t->bytes ? address - (p + t->bytes) : 0;
        if (far < gap && t->bytes) {
            gap = far;
            best = t;
        }
    }
    if (best && gap < 1 << 30)
        finding(l, s, F_BOUNDS, 0, "%s of %d bytes at byte %lld of '%s', which has %zu", s->what, bytes,
                (long long)(address - (uint64_t)(uintptr_t)best->p), best->name, best->bytes);
    else
        finding(l, s, F_BOUNDS, 0, "%s of %d bytes at address 0x%llx, which is in no argument of the kernel", s->what,
                bytes, (unsigned long long)address);
}

static uint8_t *sink(struct lane *l)
{
    memset(l->warp->block->worker->sink, 0xff, sizeof l->warp->block->worker->sink);
    return (uint8_t *)l->warp->block->worker->sink;
}

// Of a parameter passed by value?
static bool in_parameter(const struct launch *l, uint64_t address, int bytes)
{
    const struct module_fn *fn = l->kernel->fn;
    for (int i = 0; i < fn->nparams; i++) {
        uint64_t at = address - (uint64_t)(uintptr_t)l->args[i];
        if (at < fn->byval[i] && (uint64_t)bytes <= fn->byval[i] - at)
            return true;
    }
    return false;
}

// The place of a global access: checked, in the shadow too. A faulty one goes to a scratch place that reads as ones.
uint8_t *global_at(struct lane *l, struct site *s, uint64_t address, int bytes, int align, int access)
{
    struct launch *la = l->warp->block->launch;
    struct tensor *t = tensor_of(la, address, bytes);
    if (!t) {
        if (!(access & ACCESS_WRITE) && (module_constant(s->fn, address, bytes) || in_parameter(la, address, bytes)))
            return (uint8_t *)(uintptr_t)address;
        uint64_t in_stack =
            address - (uint64_t)(uintptr_t)l->stack; // a local variable, by a pointer of no address space
        if (in_stack < LANE_STACK && (uint64_t)bytes <= LANE_STACK - in_stack)
            return (uint8_t *)(uintptr_t)address;
        out_of_bounds(l, s, address, bytes);
        return sink(l);
    }
    size_t at = (size_t)(address - (uint64_t)(uintptr_t)t->p);
    if (address & (uint64_t)(align - 1)) {
        finding(l, s, F_ALIGN, 0, "%s of %d bytes at byte %zu of '%s' is not aligned to %d", s->what, bytes, at,
                t->name, align);
        return sink(l);
    }
    if (access & ACCESS_WRITE && !t->writable) {
        finding(l, s, F_INPUT, 0, "%s to byte %zu of the input '%s'", s->what, at, t->name);
        return sink(l);
    }
    if ((access & (ACCESS_ATOMIC | ACCESS_READ)) == (ACCESS_ATOMIC | ACCESS_READ))
        lane_look(l, s, (const uint8_t *)(uintptr_t)address, bytes);
    if (la->shadow)
        shadow_global(l, s, t, at, bytes, access);
    else if (access & ACCESS_WRITE)
        region_mark(t->region, (size_t)(t->p - t->region->p) + at, (size_t)bytes, true);
    return (uint8_t *)(uintptr_t)address;
}

uint8_t *shared_at(struct lane *l, struct site *s, uint32_t address, int bytes, int align, int access)
{
    struct block *b = l->warp->block;
    if (address > b->shared_bytes || (uint32_t)bytes > b->shared_bytes - address) {
        finding(l, s, F_BOUNDS, 0, "%s of %d bytes at shared byte 0x%x, the block has 0x%x", s->what, bytes, address,
                b->shared_bytes);
        return sink(l);
    }
    if (address & (uint32_t)(align - 1)) {
        finding(l, s, F_ALIGN, 0, "%s of %d bytes at shared byte 0x%x is not aligned to %d", s->what, bytes, address,
                align);
        return sink(l);
    }
    if ((access & (ACCESS_ATOMIC | ACCESS_READ)) == (ACCESS_ATOMIC | ACCESS_READ))
        lane_look(l, s, b->shared + address, bytes);
    if (b->launch->shadow)
        shadow_shared(l, s, address, bytes, access);
    return b->shared + address;
}

void *moesim_access(struct site *s, uint64_t address)
{
    struct lane *l = sim_me->lane;
    catch_up(l);
    return global_at(l, s, address, s->bytes, s->align, s->access);
}

void *moesim_access_shared(struct site *s, uint32_t address)
{
    struct lane *l = sim_me->lane;
    catch_up(l);
    return shared_at(l, s, address, s->bytes, s->align, s->access);
}
