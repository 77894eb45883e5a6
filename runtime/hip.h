// What hip.c and hip_batch.c share. Internal.
#ifndef MOE_HIP_H
#define MOE_HIP_H
#include "batch.h"
#include "hip_abi.h"

struct hip { // the state of a device
    void *library;
    int device;
#define MEMBER(required, member, symbol, params) hipError_t(*member) params;
    HIP_SYMBOLS(MEMBER)
#undef MEMBER
#define MEMBER(required, member, symbol, params) const char *(*member)params;
    HIP_TEXTS(MEMBER)
#undef MEMBER
};
struct hip_module {
    hipModule_t handle;
    struct batch batch;
};

// ---- hip.c
// The text "what: hipErrorX (code, words)extra"; returns the status.
int hip_fail(struct moe_device *d, hipError_t r, const char *what, const char *extra);
// Makes our device current. *was: what leave() must restore; -1: nothing.
hipError_t hip_enter(const struct hip *h, int *was);
void hip_leave(const struct hip *h, int was);

// ---- hip_batch.c
int hip_launch(struct moe_device *d, const struct launch_item *item, void *stream);
int hip_launch_all(struct moe_device *d, void *module, const struct launch_item *items, int n, void *stream);
void hip_launch_prepare(struct moe_device *d, void *module, const struct launch_item *items, int n);
void hip_batch_free(const struct hip *h, struct hip_module *m); // on our device, which is current
#endif
