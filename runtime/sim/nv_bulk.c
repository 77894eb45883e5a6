// Bulk copies and copies of boxes of tensors (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy", "... Tensor copy"), and
// cp.async.mbarrier.arrive. A load lands when nothing else can go on, with a seed now and then earlier; then its mbarrier
// hears of the bytes. A store reads shared memory and writes the tensor in the wait that says so, or when nothing else can go on; the
// issuing thread knows only after the wait.
#include "nv_async.h"

#include <stdlib.h>
#include <string.h>

struct run {         // bytes in a row, in the box and in the tensor
    uint8_t *global; // NULL: out of the tensor's bounds
    uint32_t at, bytes;
};
struct bulk {
    struct bulk *next;
    struct lane *lane;
    const struct inst *inst;
    enum { LOAD, STORE, ARRIVE } kind;
    uint32_t shared, bytes, mbar;
    int swizzle, nruns;
    struct run *runs;
    int group;           // of a store, -1: not committed
    uint8_t *taken;      // a store's bytes, once read
    bool written, known; // a store: to the tensor; the thread has waited for the read
    int number;          // ARRIVE: copy_track()
};
struct form { // operands
    enum { FORM_LOAD, FORM_STORE, FORM_PREFETCH } kind;
    int rank; // 0: no tensor map
    struct arg shared, global, mbar, size, coords[5];
    struct arg multicast; // a flag of LLVM's forms
};

// ---- tensor maps: the simulator's own encoding of what cuTensorMapEncodeTiled is told

enum { MAP_BYTES = 128 };
struct tensor_map {
    char mark[8];
    uint64_t base, strides[4];
    uint32_t last[5]; // dims less one: a dim may be 2^32
    uint16_t box[5];
    uint8_t steps[5], rank, size, swizzle;
};
_Static_assert(sizeof(struct tensor_map) <= MAP_BYTES, "a tensor map has 128 bytes");
static const char map_mark[8] = "moe map";

static bool map_refused(char *why, const char *what, int k)
{
    snprintf(why, MOESIM_WHY, "tensor map: dimension %d: %s", k, what);
    return false;
}

static bool check_dims(const struct moesim_tensor *t, uint32_t size, char *why)
{
    for (int k = 0; k < t->rank; k++) {
        if (t->dims[k] < 1 || t->dims[k] > 1ull << 32)
            return map_refused(why, "the extent is not of 1 to 2^32", k);
        if (t->box[k] < 1 || t->box[k] > 256)
            return map_refused(why, "the box is not of 1 to 256", k);
        if (t->steps[k] < 1 || t->steps[k] > 8)
            return map_refused(why, "the element stride is not of 1 to 8", k);
        if (k && (t->strides[k - 1] % 16 || !t->strides[k - 1] || t->strides[k - 1] >> 40))
            return map_refused(why, "the stride is no multiple of 16 bytes below 2^40", k);
    }
    if (t->box[0] * size % 16)
        return map_refused(why, "the box is no multiple of 16 bytes", 0);
    if (t->swizzle && t->box[0] * size > (uint32_t)t->swizzle)
        return map_refused(why, "the box is wider than the swizzle", 0);
    if (t->swizzle && t->box[0] * size != (uint32_t)t->swizzle)
        return map_refused(why, "the simulator knows only boxes as wide as the swizzle", 0);
    return true;
}

bool tensor_map_encode(void *map, const struct moesim_tensor *t, char why[MOESIM_WHY])
{
    static const uint8_t sizes[] = {
        [MOESIM_U8] = 1, [MOESIM_I32] = 4, [MOESIM_F16] = 2, [MOESIM_BF16] = 2, [MOESIM_F32] = 4
    };
    struct tensor_map m = { .base = (uint64_t)(uintptr_t)t->base,
                            .rank = (uint8_t)t->rank,
                            .swizzle = (uint8_t)t->swizzle };
    const char *what = (uintptr_t)map % 64                             ? "the map itself is not aligned to 64 bytes"
                       : (unsigned)t->elem > MOESIM_F32                ? "unknown type of elements"
                       : t->rank < 1 || t->rank > 5                    ? "the rank is not of 1 to 5"
                       : m.base % 16                                   ? "the tensor is not aligned to 16 bytes"
                       : t->swizzle & ~(32 | 64 | 128)                 ? "the swizzle is not 0, 32, 64 or 128 bytes"
                       : t->swizzle && (t->swizzle & (t->swizzle - 1)) ? "the swizzle is not 0, 32, 64 or 128 bytes"
                                                                       : NULL;
    if (what) {
        snprintf(why, MOESIM_WHY, "tensor map: %s", what);
        return false;
    }
    m.size = sizes[t->elem];
    if (!check_dims(t, m.size, why))
        return false;
    memcpy(m.mark, map_mark, sizeof m.mark);
    for (int k = 0; k < t->rank; k++) {
        m.last[k] = (uint32_t)(t->dims[k] - 1);
        m.box[k] = (uint16_t)t->box[k];
        m.steps[k] = k ? (uint8_t)t->steps[k] : 1; // without interleave that of the innermost dimension is not used
        m.strides[k ? k - 1 : 0] = k ? t->strides[k - 1] : 0;
    }
    memset(map, 0, MAP_BYTES);
    memcpy(map, &m, sizeof m);
    return true;
}

// A kernel's parameter, or 128 bytes of a tensor.
static bool read_map(struct lane *l, const struct inst *i, uint64_t address, int rank, struct tensor_map *m)
{
    const struct launch *la = l->warp->block->launch;
    const void *p = NULL;
    const struct module_fn *fn = la->kernel->fn;
    for (int k = 0; k < fn->nparams && !p; k++)
        p = fn->byval[k] && (uint64_t)(uintptr_t)la->args[k] == address ? la->args[k] : NULL;
    if (!p) {
        p = global_at(l, i->site, address, MAP_BYTES, 64, ACCESS_READ);
        if ((uint64_t)(uintptr_t)p != address)
            return false;
    }
    memcpy(m, p, sizeof *m);
    if (memcmp(m->mark, map_mark, sizeof m->mark) || m->rank != rank) {
        finding(l, i->site, F_OPERAND, 0,
                memcmp(m->mark, map_mark, sizeof m->mark) ? "%s: what is at 0x%llx is no tensor map"
                                                          : "%s: the tensor map at 0x%llx is of another rank",
                i->text, (unsigned long long)address);
        return false;
    }
    return true;
}

// ---- boxes

static uint32_t along(const struct tensor_map *m, int k) // places that a box has in shared memory
{
    return k < m->rank ? (m->box[k] + m->steps[k] - 1u) / m->steps[k] : 1;
}

static void add_run(struct bulk *c, uint8_t *global, uint32_t *at, int64_t elements, uint32_t size)
{
    if (elements <= 0)
        return;
    c->runs[c->nruns++] = (struct run){ global, *at, (uint32_t)elements * size };
    *at += (uint32_t)elements * size;
}

// One row of the box: what lies before the tensor, in it, behind it.
static void add_row(struct bulk *c, const struct tensor_map *m, const int32_t *coords, const uint32_t *place,
                    uint32_t *at)
{
    uint64_t p = m->base;
    int64_t n = m->box[0], before = coords[0] < 0 ? -(int64_t)coords[0] : 0, inside;
    bool out = false;
    for (int k = 1; k < m->rank; k++) {
        int64_t x = (int64_t)coords[k] + (int64_t)place[k] * m->steps[k];
        out |= x < 0 || x > (int64_t)m->last[k];
        p += (uint64_t)x * m->strides[k - 1];
    }
    before = out || before > n ? n : before;
    inside = (int64_t)m->last[0] + 1 - ((int64_t)coords[0] + before);
    inside = inside < 0 ? 0 : inside > n - before ? n - before : inside;
    add_run(c, NULL, at, before, m->size);
    add_run(c, (uint8_t *)(uintptr_t)(p + (uint64_t)((int64_t)coords[0] + before) * m->size), at, inside, m->size);
    add_run(c, NULL, at, n - before - inside, m->size);
}

static bool add_box(struct bulk *c, const struct tensor_map *m, const int32_t *coords)
{
    uint32_t place[5] = { 0 }, at = 0, rows = 1;
    for (int k = 1; k < m->rank; k++)
        rows *= along(m, k);
    c->runs = malloc(sizeof *c->runs * 3 * rows);
    c->swizzle = m->swizzle;
    for (uint32_t row = 0; c->runs && row < rows; row++) {
        add_row(c, m, coords, place, &at);
        for (int k = 1; k < m->rank && ++place[k] == along(m, k); k++)
            place[k] = 0;
    }
    return c->runs != NULL;
}

static uint64_t box_bytes(const struct tensor_map *m)
{
    uint64_t n = (uint64_t)m->box[0] * m->size;
    for (int k = 1; k < m->rank; k++)
        n *= along(m, k);
    return n;
}

// ---- landing

// 16 bytes at a time, as they lie in shared memory.
static void move(const struct bulk *c, const struct run *g, uint8_t *shared, uint8_t *taken)
{
    uint32_t done = 0;
    while (done < g->bytes) {
        uint32_t p = c->shared + g->at + done, n = 16 - p % 16;
        n = n < g->bytes - done ? n : g->bytes - done;
        uint8_t *s = shared + smem_swizzle(c->swizzle, p);
        if (taken)
            memcpy(taken + g->at + done, s, n);
        else if (g->global)
            memcpy(s, g->global + done, n);
        else
            memset(s, 0, n);
        done += n;
    }
}

static void drop(struct block *b, struct bulk *c)
{
    for (struct bulk **p = &b->bulks; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    free(c->runs);
    free(c->taken);
    free(c);
}

static void land(struct block *b, struct bulk *c)
{
    struct lane *l = c->lane;
    const struct inst *i = c->inst;
    for (int k = 0; k < c->nruns; k++)
        move(c, &c->runs[k], b->shared, NULL);
    if (c->kind == ARRIVE)
        copy_arrived(l, c->number);
    else if (b->launch->shadow)
        shadow_landed(l, i->site, c->shared, (int)c->bytes, true);
    struct mbar *m = mbar_at(l, i, c->mbar, false); // it may have been invalidated
    if (m && c->kind == ARRIVE)
        mbar_arrive_engine(l, i, m);
    else if (m)
        mbar_landed(l, i, m, c->bytes);
    drop(b, c);
}

static void take(struct block *b, struct bulk *c)
{
    if (c->taken || c->written)
        return;
    c->taken = malloc(c->bytes);
    for (int k = 0; c->taken && k < c->nruns; k++)
        move(c, &c->runs[k], b->shared, c->taken);
}

static void write_out(struct block *b, struct bulk *c)
{
    take(b, c);
    if (!c->taken && !c->written)
        finding(c->lane, c->inst->site, F_RUNAWAY, 0, "%s: the host is out of memory", c->inst->text);
    for (int k = 0; c->taken && !c->written && k < c->nruns; k++)
        if (c->runs[k].global)
            memcpy(c->runs[k].global, c->taken + c->runs[k].at, c->runs[k].bytes);
    c->written = true;
}

bool async_progress(struct block *b)
{
    int n = 0, pick = 0;
    for (const struct bulk *c = b->bulks; c; c = c->next)
        n += c->kind != STORE || !c->written;
    if (!n)
        return false;
    pick = b->launch->seed ? (int)(sim_random(b) % (unsigned)n) : 0;
    for (struct bulk *c = b->bulks; c; c = c->next) {
        if (c->kind == STORE && c->written)
            continue;
        if (pick--)
            continue;
        if (c->kind == STORE)
            write_out(b, c);
        else
            land(b, c);
        return true;
    }
    return false;
}

// ---- issuing

static bool bulk_refused(char *why, const char *what)
{
    snprintf(why, MOESIM_WHY, "%s", what);
    return false;
}

static bool prepare_llvm(struct inst *i, struct form *f, char *why)
{
    const char *t = i->text + strlen("llvm.nvvm.cp.async.bulk."), *d = strrchr(t, '.') + 1;
    bool tensor = !strncmp(t, "tensor.", 7), cta = strstr(t, ".cta.tile") || strstr(t, "to.shared.cta");
    const struct arg *a = i->a;
    f->kind = strstr(t, "prefetch")                             ? FORM_PREFETCH
              : strstr(t, ".g2s.") || !strncmp(t, "global.", 7) ? FORM_LOAD
                                                                : FORM_STORE;
    if (tensor &&
        (!strstr(t, ".tile.") || d[0] < '1' || d[0] > '5' || d[1] != 'd' || strstr(t, "reduce") || strstr(t, "ter4")))
        return bulk_refused(why, "only tile mode is known to the simulator");
    if (!tensor && (strstr(t, "bytemask") || strstr(t, "cta.to.cluster")))
        return bulk_refused(why, "this form is not known to the simulator");
    f->rank = tensor ? d[0] - '0' : 0;
    int n = 0;
    if (f->kind == FORM_LOAD) { // dst, mbar, src or map, ...
        f->shared = a[0], f->mbar = a[1], f->global = a[2], n = 3;
        // ..., cta mask, cache hint, flag of the mask
        int flag = 3 + (tensor ? f->rank : 1) + 2;
        if (!cta && flag < i->nargs)
            f->multicast = a[flag];
    } else if (f->kind == FORM_STORE) {
        f->shared = a[tensor ? 0 : 1], f->global = a[tensor ? 1 : 0], n = 2;
    } else {
        f->global = a[0], n = 1;
    }
    for (int k = 0; k < f->rank; k++)
        f->coords[k] = a[n + k];
    if (!tensor)
        f->size = a[n];
    return true;
}

// [map, {c0, c1}]
static bool map_operand(const struct arg *a, struct form *f, char *why)
{
    if (a->kind != ARG_LIST || a->n != f->rank + 1 || a->list[0] < 0)
        return bulk_refused(why, "expected [map, {as many coordinates as dimensions}]");
    f->global = (struct arg){ .kind = ARG_ADDR, .reg = a->list[0], .imm = a->imm };
    for (int k = 0; k < f->rank; k++)
        f->coords[k] = (struct arg){ .kind = ARG_REG, .reg = a->list[k + 1] };
    return true;
}

static bool prepare_text(struct inst *i, struct form *f, char *why)
{
    static const char *const known[] = { "tensor",
                                         "1d",
                                         "2d",
                                         "3d",
                                         "4d",
                                         "5d",
                                         "tile",
                                         "global",
                                         "shared::cta",
                                         "shared::cluster",
                                         "L2",
                                         "prefetch",
                                         "bulk_group",
                                         "mbarrier::complete_tx::bytes",
                                         "L2::cache_hint",
                                         NULL };
    const char *t = i->text, *d;
    const struct arg *a = i->a;
    if (!nv_words(i, 3, known, why))
        return false;
    bool tensor = strstr(t, ".tensor.") != NULL, load = strstr(t, ".mbarrier::complete_tx::bytes") != NULL;
    d = tensor ? strstr(t, "d.") : NULL;
    f->rank = d ? d[-1] - '0' : 0;
    f->kind = strstr(t, ".prefetch.") ? FORM_PREFETCH : load ? FORM_LOAD : FORM_STORE;
    int map = f->kind == FORM_LOAD ? 1 : 0;
    int needs = f->kind == FORM_PREFETCH ? (tensor ? 1 : 2) : f->kind == FORM_LOAD ? (tensor ? 3 : 4) : tensor ? 2 : 3;
    bool in = strstr(t, ".shared::cluster.global.") || strstr(t, ".shared::cta.global.");
    bool out = strstr(t, ".global.shared::cta.") && strstr(t, ".bulk_group");
    if (f->kind == FORM_LOAD ? !in : f->kind == FORM_STORE && !out)
        return bulk_refused(why, "only between global and shared memory");
    if (i->nargs < needs)
        return bulk_refused(why, "operands are missing");
    if (tensor && (f->rank < 1 || f->rank > 5 || !map_operand(&a[map], f, why)))
        return *why ? false : bulk_refused(why, "expected 1d to 5d");
    if (!tensor)
        f->global = a[map];
    if (f->kind == FORM_LOAD) {
        f->shared = a[0];
        f->mbar = a[tensor ? 2 : 3];
    } else if (f->kind == FORM_STORE) {
        f->shared = a[1];
    }
    if (!tensor)
        f->size = a[f->kind == FORM_PREFETCH ? 1 : 2];
    bool sized = tensor || f->size.kind == ARG_REG || f->size.kind == ARG_IMM;
    if (!sized || f->global.kind != ARG_ADDR || (f->kind != FORM_PREFETCH && f->shared.kind != ARG_ADDR) ||
        (f->kind == FORM_LOAD && f->mbar.kind != ARG_ADDR))
        return bulk_refused(why, "operands of the wrong kind");
    return true;
}

bool nv_prepare_bulk(struct inst *i, char *why)
{
    struct form *f = module_keep(i->site->fn->module, sizeof *f);
    *why = 0;
    if (!f || !(i->text[0] == 'l' ? prepare_llvm(i, f, why) : prepare_text(i, f, why)))
        return f ? false : bulk_refused(why, "out of memory");
    i->site->access |= f->kind == FORM_LOAD ? ACCESS_WRITE : ACCESS_READ;
    i->site->what = i->text;
    i->data = f;
    return true;
}

// PTX ISA, "cp.async.bulk": addresses and size are multiples of 16. "cp.async.bulk.tensor": the shared address is one of 128; CUDA
// programming guide, "Tensor memory swizzle modes": and of what the pattern repeats after.
static bool well_placed(struct lane *l, const struct inst *i, const struct bulk *c, bool tensor)
{
    const struct block *b = l->warp->block;
    uint32_t align = !tensor ? 16 : c->swizzle > 16 ? 8 * (uint32_t)c->swizzle : 128;
    if (c->shared % align)
        finding(l, i->site, F_ALIGN, 0, "%s at shared byte 0x%x is not aligned to %u%s", i->text, c->shared, align,
                align > 128 ? ", after which the swizzle repeats" : "");
    else if (c->shared > b->shared_bytes || c->bytes > b->shared_bytes - c->shared)
        finding(l, i->site, F_BOUNDS, 0, "%s of %u bytes at shared byte 0x%x, the block has 0x%x", i->text, c->bytes,
                c->shared, b->shared_bytes);
    else
        return true;
    return false;
}

// Checks the tensor's side; what is at fault is left out.
static void touch_global(struct lane *l, const struct inst *i, struct bulk *c, int align, int access)
{
    for (int k = 0; k < c->nruns; k++) {
        struct run *g = &c->runs[k];
        if (g->global &&
            global_at(l, i->site, (uint64_t)(uintptr_t)g->global, (int)g->bytes, align, access) != g->global)
            g->global = NULL;
    }
}

static void append(struct block *b, struct bulk *c)
{
    struct bulk **p = &b->bulks;
    while (*p)
        p = &(*p)->next;
    *p = c;
    b->progress = true;
}

// The copy that the operands describe, not yet in flight. NULL: a finding.
static struct bulk *described(struct lane *l, const struct inst *i, const uint64_t *r)
{
    const struct form *f = i->data;
    struct tensor_map m;
    int32_t coords[5] = { 0 };
    uint64_t global = arg_value(&f->global, r), bytes = f->rank ? 0 : arg_u32(&f->size, r);
    for (int k = 0; k < f->rank; k++)
        coords[k] = (int32_t)arg_u32(&f->coords[k], r);
    if (f->rank && !read_map(l, i, global, f->rank, &m))
        return NULL;
    bytes = f->rank ? box_bytes(&m) : bytes;
    if (!f->rank && (bytes % 16 || !bytes)) {
        finding(l, i->site, F_OPERAND, 0, "%s: a size of %llu bytes, no multiple of 16", i->text,
                (unsigned long long)bytes);
        return NULL;
    }
    if (bytes > l->warp->block->shared_bytes) {
        finding(l, i->site, F_BOUNDS, 0, "%s of %llu bytes, the block has 0x%x", i->text, (unsigned long long)bytes,
                l->warp->block->shared_bytes);
        return NULL;
    }
    struct bulk *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct bulk){ .lane = l, .inst = i, .shared = arg_u32(&f->shared, r), .bytes = (uint32_t)bytes, .group = -1 };
    c->kind = f->kind == FORM_LOAD ? LOAD : STORE;
    if (!f->rank && (c->runs = malloc(sizeof *c->runs))) {
        c->runs[c->nruns++] = (struct run){ (uint8_t *)(uintptr_t)global, 0, (uint32_t)bytes };
        return c;
    }
    if (f->rank && add_box(c, &m, coords))
        return c;
    free(c);
    return NULL;
}

void nv_bulk(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct form *f = i->data;
    struct block *b = l->warp->block;
    struct tensor_map m;
    if (f->kind == FORM_PREFETCH) {
        if (f->rank)
            read_map(l, i, arg_value(&f->global, r), f->rank, &m);
        return;
    }
    if (f->multicast.kind == ARG_REG && r[f->multicast.reg] & 1) {
        finding(l, i->site, F_OPERAND, 1, "%s: multicast is not known to the simulator", i->text);
        return;
    }
    struct bulk *c = described(l, i, r);
    if (!c)
        return;
    struct mbar *bar = NULL;
    if (c->kind == LOAD && (bar = mbar_at(l, i, arg_u32(&f->mbar, r), true)))
        c->mbar = bar->at;
    if ((c->kind == LOAD && !bar) || !well_placed(l, i, c, f->rank > 0)) {
        free(c->runs);
        free(c);
        return;
    }
    touch_global(l, i, c, f->rank ? 1 : 16, c->kind == LOAD ? ACCESS_READ : ACCESS_WRITE);
    if (b->launch->shadow && c->kind == LOAD)
        shadow_inflight(l, i->site, c->shared, (int)c->bytes, (const uint8_t *)c);
    if (b->launch->shadow && c->kind == STORE) {
        shadow_engine_may(l, i->site, c->shared, (int)c->bytes);
        shadow_engine_reads(l, i->site, c->shared, (int)c->bytes);
    }
    append(b, c);
}

void nv_cp_async_arrive(struct lane *l, const struct inst *i, uint64_t *r)
{
    struct mbar *m = mbar_at(l, i, arg_u32(&i->a[0], r), false);
    struct bulk *c = m ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return;
    if (!strstr(i->text, "noinc")) { // the arrival brings its own count: no net change of the phase's
        m->pending++;
        if (m->pending > COUNT_MAX)
            finding(l, i->site, F_OPERAND, 0, "%s: the pending count becomes %d", i->text, m->pending);
    }
    *c = (struct bulk){ .lane = l, .inst = i, .kind = ARRIVE, .mbar = m->at, .group = -1, .number = copy_track(l) };
    append(l->warp->block, c);
}

// ---- groups of stores (PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group")

void nv_bulk_commit(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)i;
    (void)r;
    for (struct bulk *c = l->warp->block->bulks; c; c = c->next)
        if (c->kind == STORE && c->lane == l && c->group < 0)
            c->group = l->bulk_groups;
    l->bulk_groups++;
}

static void know(struct lane *l, struct bulk *c)
{
    if (!c->known && l->warp->block->launch->shadow)
        shadow_engine_done(l, c->inst->site, c->shared, (int)c->bytes);
    c->known = true;
}

void nv_bulk_wait(struct lane *l, const struct inst *i, uint64_t *r)
{
    struct block *b = l->warp->block;
    bool read = strstr(i->text, "read") != NULL;
    int pending = i->nargs ? (int)arg_u32(&i->a[0], r) : 0, done = l->bulk_groups - (pending < 0 ? 0 : pending);
    if (pending < 0)
        finding(l, i->site, F_OPERAND, 0, "%s: %d groups", i->text, pending);
    for (struct bulk *c = b->bulks, *next; c; c = next) {
        next = c->next;
        if (c->kind != STORE || c->lane != l || c->group < 0 || c->group >= done)
            continue;
        take(b, c);
        if (!read)
            write_out(b, c);
        know(l, c);
        if (c->written)
            drop(b, c);
    }
    b->progress = true;
}

void bulk_lane_end(struct lane *l)
{
    for (struct bulk *c = l->warp->block->bulks; c; c = c->next)
        if (c->kind == STORE && c->lane == l && !c->known) {
            finding(l, c->inst->site, F_LEAK, 0, "this %s is not %s when the thread ends", c->inst->text,
                    c->group < 0 ? "committed" : "waited for");
            know(l, c);
        }
}

void bulks_end(struct block *b)
{
    bool stop = __atomic_load_n(&b->launch->stop, __ATOMIC_RELAXED);
    while (b->bulks) {
        struct bulk *c = b->bulks;
        struct lane *l = c->lane;
        if (c->kind == STORE) { // writes may come as late as the end of the kernel
            if (!c->known && b->launch->shadow)
                shadow_engine_dropped(l, c->shared, (int)c->bytes);
            write_out(b, c);
        } else if (!stop) {
            finding(l, c->inst->site, F_LEAK, 0,
                    "this %s is still in flight when the block ends: nobody has waited for it", c->inst->text);
        }
        drop(b, c);
    }
}
