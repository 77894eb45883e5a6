// NVIDIA's asynchronous engines: nv_mbarrier.c (mbarrier objects, fences of proxies), nv_bulk.c (bulk and tensor copies), nv_wgmma.c
// (matrix products of warpgroups), nv_async.c (the table, small instructions, what exec.c calls). Section names are those of the
// PTX ISA 8.x and 9.0.
#ifndef NV_ASYNC_H
#define NV_ASYNC_H
#include "matrix.h"
#include "sim.h"

// ---- nv_mbarrier.c
enum { COUNT_MAX = (1 << 20) - 1 }; // of arrivals and of bytes ("Contents of the mbarrier object")
struct mbar {
    struct mbar *next;
    uint32_t at;
    bool fenced; // its init is visible to the async proxy
    uint32_t phase;
    int32_t expected, pending, tx;
    struct site *init;
    uint32_t init_clock;
    int init_thread;
    uint32_t joined[CLOCKS], handed[CLOCKS]; // what arrivals release; what completed phases hand on
    struct lane *unseen_lane;                // whose copy landed last; NULL: somebody has waited for that phase since
    struct site *unseen_site;
    uint32_t unseen_phase;
};
// The object there, for an operation now. NULL: there is none, and that has been found. engine: the async proxy will use it.
struct mbar *mbar_at(struct lane *l, const struct inst *i, uint32_t at, bool engine);
void mbar_expect(struct lane *l, const struct inst *i, struct mbar *m, int64_t bytes);
void mbar_landed(struct lane *l, const struct inst *i, struct mbar *m, uint32_t bytes); // an engine's bytes
void mbar_arrive_engine(struct lane *l, const struct inst *i, struct mbar *m);          // cp.async.mbarrier.arrive
void mbars_end(struct block *b);

// ---- nv_bulk.c
void bulk_lane_end(struct lane *l);
void bulks_end(struct block *b);

// ---- nv_wgmma.c
void wgmma_lane_end(struct lane *l);
void wgmma_end(struct block *b);

// The words of a mnemonic behind its first `skip` must be among `known` (NULL ends it). false: why.
bool nv_words(const struct inst *i, int skip, const char *const *known, char *why);

// ---- instructions
typedef void lane_op(struct lane *l, const struct inst *i, uint64_t *r);
typedef void warp_op(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r);
typedef bool prepare_op(struct inst *i, char *why);
prepare_op nv_prepare_mbarrier, nv_prepare_bulk, nv_prepare_wgmma, nv_prepare_integer;
lane_op nv_mbarrier_init, nv_mbarrier_inval, nv_mbarrier_arrive, nv_mbarrier_expect, nv_mbarrier_complete,
    nv_mbarrier_wait, nv_mbarrier_pending, nv_cp_async_arrive, nv_fence_proxy, nv_fence_init;
lane_op nv_bulk, nv_bulk_commit, nv_bulk_wait;
warp_op nv_wgmma, nv_wgmma_fence, nv_wgmma_commit, nv_wgmma_wait, nv_setmaxnreg;

// The operand as 32 bits: shared addresses, counts.
static inline uint32_t arg_u32(const struct arg *a, const uint64_t *r)
{
    return (uint32_t)arg_value(a, r);
}
#endif
