// Several kernels at once for hip.c: batch.c with HIP's calls. The counterpart of cuda_batch.c, function by function.
//
// Only with MOE_HIP_BATCH=1: ROCm 6 and 7 (clr, GraphKernelArgManager) take new device memory for the arguments each time a
// node of an executable graph is set, and give it back only when that graph is destroyed.
#include "hip.h"

#include <stdio.h>

static hipKernelNodeParams params_of(const struct launch_item *item)
{
    return (hipKernelNodeParams){ .func = item->function,
                                  .gridDim = { item->blocks, 1, 1 },
                                  .blockDim = { (unsigned)item->sig->threads, 1, 1 },
                                  .sharedMemBytes = (unsigned)item->sig->shared,
                                  .kernelParams = item->args };
}

static int new_graph(const void *state, void **graph)
{
    const struct hip *h = state;
    return h->graph_create((hipGraph_t *)graph, 0);
}

static int add_node(const void *state, void *graph, void *const *after, const struct launch_item *item, void **node)
{
    const struct hip *h = state;
    const hipKernelNodeParams p = params_of(item);
    return h->graph_kernel((hipGraphNode_t *)node, graph, (const hipGraphNode_t *)after, after ? 1 : 0, &p);
}

static int make_exec(const void *state, void *graph, void **exec)
{
    const struct hip *h = state;
    return h->graph_make((hipGraphExec_t *)exec, graph, NULL, NULL, 0);
}

static int set_node(const void *state, void *exec, void *node, const struct launch_item *item)
{
    const struct hip *h = state;
    const hipKernelNodeParams p = params_of(item);
    return h->exec_kernel(exec, node, &p);
}

static int launch_exec(const void *state, void *exec, void *stream)
{
    const struct hip *h = state;
    return h->graph_launch(exec, stream);
}

static int is_capturing(const void *state, void *stream, bool *yes)
{
    const struct hip *h = state;
    hipStreamCaptureStatus now = hipStreamCaptureStatusNone;
    hipError_t r = h->capturing(stream, &now);
    *yes = now != hipStreamCaptureStatusNone;
    return r;
}

// A failure that nobody is told of is not left as the thread's last error either.
static void forget(const struct hip *h, hipError_t r)
{
    if (r && h->last_error)
        h->last_error();
}

static void drop(const void *state, void *graph, void *exec)
{
    const struct hip *h = state;
    if (exec)
        forget(h, h->exec_destroy(exec));
    if (graph)
        forget(h, h->graph_destroy(graph));
}

static const struct batch_calls calls = { new_graph, add_node, make_exec, set_node, launch_exec, is_capturing, drop };

static bool has_calls(const struct hip *h)
{
    return h->graph_create && h->graph_kernel && h->exec_kernel && h->capturing && h->graph_make && h->graph_launch &&
           h->graph_destroy && h->exec_destroy;
}

void hip_launch_prepare(struct moe_device *d, void *module, const struct launch_item *items, int n)
{
    struct hip *h = d->state;
    struct hip_module *m = module;
    int was;
    if (!has_calls(h))
        return;
    hipError_t r = hip_enter(h, &was);
    forget(h, r);
    if (r)
        return;
    forget(h, batch_prepare(&m->batch, &calls, h, items, n));
    hip_leave(h, was);
}

void hip_batch_free(const struct hip *h, struct hip_module *m)
{
    batch_free(&m->batch, &calls, h);
}

int hip_launch_all(struct moe_device *d, void *module, const struct launch_item *items, int n, void *stream)
{
    struct hip *h = d->state;
    struct hip_module *m = module;
    char what[160];
    int was, at = 0;
    hipError_t r = hip_enter(h, &was);
    if (r)
        return hip_fail(d, r, "making the device current", "");
    enum batch_result result = batch_launch(&m->batch, &calls, h, items, n, stream, &r);
    if (result == BATCH_NOT) {
        forget(h, r);
        for (at = 0, r = hipSuccess; at < n && !r; at++)
            r = h->launch(items[at].function, items[at].blocks, 1, 1, (unsigned)items[at].sig->threads, 1, 1,
                          (unsigned)items[at].sig->shared, stream, items[at].args, NULL);
    }
    hip_leave(h, was);
    if (!r)
        return MOE_OK;
    if (result == BATCH_FAILED)
        snprintf(what, sizeof what, "hipGraphLaunch of %d kernels from %.100s on", n, items[0].sig->symbol);
    else
        snprintf(what, sizeof what, "hipModuleLaunchKernel of %.100s", items[at - 1].sig->symbol);
    return hip_fail(d, r, what, "");
}
