// The instructions of the asynchronous engines and the small ones that stand beside them in assembly; what exec.c and async.c
// call. tcgen05 and tensor memory would be a file nv_tcgen05.c of this kind; today they are refused by name when a module is loaded.
#include "nv_async.h"

#include <stdlib.h>
#include <string.h>

bool nv_words(const struct inst *i, int skip, const char *const *known, char *why)
{
    const char *t = i->text;
    for (int k = 0; *t; k++) {
        size_t n = strcspn(t, ".");
        bool ok = k < skip;
        for (int j = 0; !ok && known[j]; j++)
            ok = strlen(known[j]) == n && !strncmp(known[j], t, n);
        if (!ok) {
            snprintf(why, MOESIM_WHY, "'.%.*s' is not known to the simulator", n < 60 ? (int)n : 60, t);
            return false;
        }
        t += n + (t[n] == '.');
    }
    return true;
}

void async_lane_end(struct lane *l)
{
    if (l->warp->block->bulks)
        bulk_lane_end(l);
    if (l->warp->block->state)
        wgmma_lane_end(l);
}

void async_block_end(struct block *b)
{
    if (!b->launch->machine->nv)
        return;
    bulks_end(b);
    wgmma_end(b);
    mbars_end(b);
}

// ---- integers in assembly (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", setp, selp)

enum integer_op { ADD, SUB, MUL, MAD, AND, OR, XOR, NOT, SHL, SHR, SELP, SETP, CVT };
enum { EQ, NE, LT, LE, GT, GE };
struct integer {
    enum integer_op op;
    int compare, bits, from_bits; // from_bits: of cvt
    bool is_signed, from_signed;
};

static bool type_of(const char *t, int *bits, bool *is_signed)
{
    *is_signed = *t == 's';
    char *end = NULL;
    *bits = !strcmp(t, "pred") ? 1 : *t && strchr("bus", *t) ? (int)strtol(t + 1, &end, 10) : 0;
    if (end && *end)
        return false;
    return *bits == 1 || *bits == 8 || *bits == 16 || *bits == 32 || *bits == 64;
}

static bool compare_of(const char *t, int *compare)
{
    static const char *const names[] = { "eq", "ne", "lt", "le", "gt", "ge", "", "", "lo", "ls", "hi", "hs" };
    size_t n = strcspn(t, ".");
    for (int k = 0; k < 12; k++)
        if (strlen(names[k]) == n && n && !strncmp(t, names[k], n)) {
            *compare = k % 6;
            return true;
        }
    return false;
}

bool nv_prepare_integer(struct inst *i, char *why)
{
    static const struct {
        const char *name;
        int n;
    } ops[] = { { "add.", 3 },  { "sub.", 3 },  { "mul.lo.", 3 }, { "mad.lo.", 4 }, { "and.", 3 },
                { "or.", 3 },   { "xor.", 3 },  { "not.", 2 },    { "shl.", 3 },    { "shr.", 3 },
                { "selp.", 4 }, { "setp.", 3 }, { "cvt.", 2 } };
    struct integer *f = module_keep(i->site->fn->module, sizeof *f);
    const char *type = strrchr(i->text, '.') + 1;
    int op = 0;
    while (op < CVT && strncmp(i->text, ops[op].name, strlen(ops[op].name)))
        op++;
    bool ok = f && type_of(type, &f->bits, &f->is_signed) && i->nargs == ops[op].n && i->a[0].kind == ARG_REG;
    const char *rest = i->text + strlen(ops[op].name);
    for (int k = 1; ok && k < i->nargs; k++)
        ok = i->a[k].kind == ARG_REG || i->a[k].kind == ARG_IMM;
    if (ok && op == SETP)
        ok = compare_of(rest, &f->compare) && rest + strcspn(rest, ".") + 1 == type;
    else if (ok && op == CVT) {
        char first[8] = "";
        snprintf(first, sizeof first, "%.*s", (int)strcspn(rest, ".") < 7 ? (int)strcspn(rest, ".") : 7, rest);
        f->from_bits = f->bits;
        f->from_signed = f->is_signed;
        ok = type_of(first, &f->bits, &f->is_signed) && rest + strlen(first) + 1 == type;
    } else if (ok)
        ok = rest == type;
    if (!ok) {
        snprintf(why, MOESIM_WHY, "only the plain integer forms are known to the simulator");
        return false;
    }
    f->op = (enum integer_op)op;
    i->data = f;
    return true;
}

// As a 64-bit value, by its type.
static uint64_t widened(uint64_t v, int bits, bool is_signed)
{
    if (bits == 64)
        return v;
    v &= (1ull << bits) - 1;
    return is_signed && v >> (bits - 1) ? v | ~((1ull << bits) - 1) : v;
}

static bool compared(const struct integer *f, uint64_t x, uint64_t y)
{
    bool less = f->is_signed ? (int64_t)x < (int64_t)y : x < y;
    switch (f->compare) {
    case EQ: return x == y;
    case NE: return x != y;
    case LT: return less;
    case LE: return less || x == y;
    case GT: return !less && x != y;
    default: return !less;
    }
}

static void integer(struct lane *l, const struct inst *i, uint64_t *r)
{
    const struct integer *f = i->data;
    uint64_t x[3] = { 0 }, v = 0;
    (void)l;
    for (int k = 1; k < i->nargs; k++)
        x[k - 1] = widened(arg_value(&i->a[k], r), f->op == CVT ? f->from_bits : f->bits,
                           f->op == CVT ? f->from_signed : f->is_signed);
    uint64_t shift = i->nargs > 2 ? (uint32_t)arg_value(&i->a[2], r) : 0; // more than the width counts as the width
    switch (f->op) {
    case ADD: v = x[0] + x[1]; break;
    case SUB: v = x[0] - x[1]; break;
    case MUL: v = x[0] * x[1]; break;
    case MAD: v = x[0] * x[1] + x[2]; break;
    case AND: v = x[0] & x[1]; break;
    case OR: v = x[0] | x[1]; break;
    case XOR: v = x[0] ^ x[1]; break;
    case NOT: v = ~x[0]; break;
    case SHL: v = shift < (uint64_t)f->bits ? x[0] << shift : 0; break;
    case SHR:
        shift = shift < 63 ? shift : 63;
        v = f->is_signed ? (uint64_t)((int64_t)x[0] >> shift) : shift < (uint64_t)f->bits ? x[0] >> shift : 0;
        break;
    case SELP: v = arg_value(&i->a[3], r) & 1 ? x[0] : x[1]; break;
    case SETP: v = compared(f, x[0], x[1]); break;
    case CVT: v = x[0]; break;
    }
    r[i->a[0].reg] = f->op == SETP ? v : widened(v, f->bits, false);
}

// ---- elect.sync (PTX ISA, "elect.sync"): any member may be the leader, always the same for the same mask; which one follows the seed
static void elect(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r)
{
    bool llvm = i->text[0] == 'l';
    uint64_t seed = w->block->launch->seed, left = mask;
    for (uint64_t m = mask; m; m &= m - 1) {
        int k = __builtin_ctzll(m);
        uint64_t want = arg_value(&i->a[llvm ? 0 : 1], r[k]) & 0xffffffff;
        if (want == mask)
            continue;
        finding(&w->lanes[k], i->site, F_DIVERGENT, 0, "%s names the lanes 0x%08llx, but 0x%08llx are here", i->text,
                (unsigned long long)want, (unsigned long long)mask);
        return;
    }
    for (uint64_t skip = seed % (uint64_t)__builtin_popcountll(mask); skip; skip--)
        left &= left - 1;
    int leader = __builtin_ctzll(left), d = llvm ? i->a[1].reg : i->a[0].list[0], p = llvm ? d + 1 : i->a[0].list[1];
    for (uint64_t m = mask; m; m &= m - 1) {
        r[__builtin_ctzll(m)][d] = (uint64_t)leader;
        r[__builtin_ctzll(m)][p] = __builtin_ctzll(m) == leader;
    }
}
static bool prepare_elect(struct inst *i, char *why)
{
    if (i->text[0] == 'l' || (i->nargs == 2 && i->a[0].kind == ARG_LIST && i->a[0].n == 2))
        return true;
    snprintf(why, MOESIM_WHY, "expected d|p, mask");
    return false;
}

// "fence", "membar": all but those of proxies order what .acq_rel does, or more.
static bool prepare_fence(struct inst *i, char *why)
{
    (void)why;
    int both = ACCESS_ACQUIRE | ACCESS_RELEASE, order = order_words(i->text) & (both | ACCESS_CTA);
    i->num = strstr(i->text, ".proxy") ? 0 : order & both ? order : order | both;
    return true;
}
static void fence(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)r;
    order_fence(l->warp, (int)i->num);
}

static void grid_wait(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)i;
    (void)r;
    early_wait(l);
}

// Hints: nanosleep, prefetch; griddepcontrol.launch_dependents, since dependent launches may start at any time here.
static void nothing(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)l;
    (void)i;
    (void)r;
}

#define LANE(name, fn, prepare) \
    { \
        name, fn, NULL, prepare, ANY_LANES, NULL \
    }
#define TEXT(name, fn, prepare, operands) \
    { \
        name, fn, NULL, prepare, ANY_LANES, operands \
    }
#define WARP(name, fn, prepare, who, operands) \
    { \
        name, NULL, fn, prepare, who, operands \
    }
#define MBARRIER(name, fn, operands) TEXT(name, fn, nv_prepare_mbarrier, operands)
// Both spellings: PTX with '_', LLVM with '.'.
const struct op nv_async_ops[] = {
    MBARRIER("mbarrier.init.*", nv_mbarrier_init, "av"),
    MBARRIER("mbarrier.inval.*", nv_mbarrier_inval, "a"),
    MBARRIER("mbarrier.arrive.*", nv_mbarrier_arrive, "da?v|a?v"),
    MBARRIER("mbarrier.arrive_drop.*", nv_mbarrier_arrive, "da?v|a?v"),
    MBARRIER("mbarrier.expect_tx.*", nv_mbarrier_expect, "av"),
    MBARRIER("mbarrier.complete_tx.*", nv_mbarrier_complete, "av"),
    MBARRIER("mbarrier.test_wait.*", nv_mbarrier_wait, "dav"),
    MBARRIER("mbarrier.try_wait.*", nv_mbarrier_wait, "dav?v"),
    MBARRIER("mbarrier.pending_count.*", nv_mbarrier_pending, "dv"),
    MBARRIER("llvm.nvvm.mbarrier.init.*", nv_mbarrier_init, NULL),
    MBARRIER("llvm.nvvm.mbarrier.inval.*", nv_mbarrier_inval, NULL),
    MBARRIER("llvm.nvvm.mbarrier.arrive.*", nv_mbarrier_arrive, NULL),
    MBARRIER("llvm.nvvm.mbarrier.expect.tx.*", nv_mbarrier_expect, NULL),
    MBARRIER("llvm.nvvm.mbarrier.complete.tx.*", nv_mbarrier_complete, NULL),
    MBARRIER("llvm.nvvm.mbarrier.test.wait.*", nv_mbarrier_wait, NULL),
    MBARRIER("llvm.nvvm.mbarrier.try.wait.*", nv_mbarrier_wait, NULL),
    MBARRIER("llvm.nvvm.mbarrier.pending.count", nv_mbarrier_pending, NULL),
    MBARRIER("cp.async.mbarrier.arrive.*", nv_cp_async_arrive, "a"),
    MBARRIER("llvm.nvvm.cp.async.mbarrier.arrive.*", nv_cp_async_arrive, NULL),
    TEXT("cp.async.bulk.commit_group", nv_bulk_commit, NULL, ""),
    LANE("llvm.nvvm.cp.async.bulk.commit.group", nv_bulk_commit, NULL),
    TEXT("cp.async.bulk.wait_group*", nv_bulk_wait, NULL, "v"),
    LANE("llvm.nvvm.cp.async.bulk.wait.group*", nv_bulk_wait, NULL),
    LANE("cp.async.bulk.*", nv_bulk, nv_prepare_bulk),
    LANE("llvm.nvvm.cp.async.bulk.*", nv_bulk, nv_prepare_bulk),
    LANE("fence.proxy.async*", nv_fence_proxy, NULL),
    LANE("llvm.nvvm.fence.proxy.async*", nv_fence_proxy, NULL),
    LANE("fence.mbarrier_init.*", nv_fence_init, NULL),
    LANE("llvm.nvvm.fence.mbarrier_init.*", nv_fence_init, NULL),
    LANE("fence.*", fence, prepare_fence),
    LANE("llvm.nvvm.fence.*", fence, prepare_fence),
    LANE("membar.*", fence, prepare_fence),
    LANE("llvm.nvvm.membar.*", fence, prepare_fence),
    WARP("wgmma.mma_async.*", nv_wgmma, nv_prepare_wgmma, ALL_LANES, "xyvv?vvvv"),
    WARP("wgmma.fence.sync.aligned", nv_wgmma_fence, NULL, ALL_LANES, ""),
    WARP("wgmma.commit_group.sync.aligned", nv_wgmma_commit, NULL, ALL_LANES, ""),
    WARP("wgmma.wait_group.sync.aligned", nv_wgmma_wait, NULL, ALL_LANES, "v"),
    WARP("llvm.nvvm.wgmma.fence.sync.aligned", nv_wgmma_fence, NULL, ALL_LANES, NULL),
    WARP("llvm.nvvm.wgmma.commit_group.sync.aligned", nv_wgmma_commit, NULL, ALL_LANES, NULL),
    WARP("llvm.nvvm.wgmma.wait_group.sync.aligned", nv_wgmma_wait, NULL, ALL_LANES, NULL),
    WARP("setmaxnreg.*", nv_setmaxnreg, NULL, ALL_LANES, "v"),
    WARP("llvm.nvvm.setmaxnreg.*", nv_setmaxnreg, NULL, ALL_LANES, NULL),
    WARP("elect.sync", elect, prepare_elect, NAMED_LANES, "xv"),
    WARP("llvm.nvvm.elect.sync", elect, prepare_elect, NAMED_LANES, NULL),
    LANE("add.*", integer, nv_prepare_integer),
    LANE("sub.*", integer, nv_prepare_integer),
    LANE("mul.lo.*", integer, nv_prepare_integer),
    LANE("mad.lo.*", integer, nv_prepare_integer),
    LANE("and.*", integer, nv_prepare_integer),
    LANE("or.*", integer, nv_prepare_integer),
    LANE("xor.*", integer, nv_prepare_integer),
    LANE("not.*", integer, nv_prepare_integer),
    LANE("shl.*", integer, nv_prepare_integer),
    LANE("shr.*", integer, nv_prepare_integer),
    LANE("selp.*", integer, nv_prepare_integer),
    LANE("setp.*", integer, nv_prepare_integer),
    LANE("cvt.*", integer, nv_prepare_integer),
    TEXT("griddepcontrol.wait", grid_wait, NULL, ""),
    LANE("llvm.nvvm.griddepcontrol.wait", grid_wait, NULL),
    TEXT("griddepcontrol.launch_dependents", nothing, NULL, ""),
    LANE("llvm.nvvm.griddepcontrol.launch.dependents", nothing, NULL),
    LANE("nanosleep.*", nothing, NULL),
    LANE("llvm.nvvm.nanosleep", nothing, NULL),
    LANE("prefetch.*", nothing, NULL),
    LANE("prefetchu.*", nothing, NULL),
    LANE("llvm.nvvm.prefetch*", nothing, NULL),
    { NULL, NULL, NULL, NULL, ANY_LANES, NULL },
};
