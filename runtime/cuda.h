// What cuda.c and cuda_batch.c share. Internal.
#ifndef MOE_CUDA_H
#define MOE_CUDA_H
#include "batch.h"
#include "cuda_abi.h"

struct cuda { // the state of a device
    void *library;
    CUdevice device;
    CUcontext context;
    bool adopted;     // the context is the caller's: not ours to release
    int major, minor; // compute capability
#define MEMBER(required, member, symbol, params) CUresult(*member) params;
    CUDA_SYMBOLS(MEMBER)
#undef MEMBER
};
struct cuda_module {
    CUmodule handle;
    struct batch batch;
};

// ---- cuda.c
// The text "what: CUDA_ERROR_X (words)extra"; returns the status.
int cuda_fail(struct moe_device *d, CUresult r, const char *what, const char *extra);
// Makes our context current. *pushed says whether leave() must undo it.
CUresult cuda_enter(const struct cuda *c, bool *pushed);
void cuda_leave(const struct cuda *c, bool pushed);

// ---- cuda_batch.c
int cuda_launch(struct moe_device *d, const struct launch_item *item, void *stream);
int cuda_launch_all(struct moe_device *d, void *module, const struct launch_item *items, int n, void *stream);
void cuda_launch_prepare(struct moe_device *d, void *module, const struct launch_item *items, int n);
void cuda_batch_free(const struct cuda *c, struct cuda_module *m); // in our context, which is current
#endif
