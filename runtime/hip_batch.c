// Launches for hip.c, of one kernel and of several at once: batch.c with HIP's calls. The counterpart of cuda_batch.c, function by
// function; no launch starts early here.
//
// Several at once only with MOE_HIP_BATCH=1: ROCm 6 and 7 (clr, GraphKernelArgManager) take new device memory for the arguments each time a
// node of an executable graph is set, and give it back only when that graph is destroyed.
#include "hip.h"

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
static void forget(const void *state)
{
    const struct hip *h = state;
    if (h->last_error)
        h->last_error();
}

static void drop(const void *state, void *graph, void *exec)
{
    const struct hip *h = state;
    if (exec && h->exec_destroy(exec))
        forget(h);
    if (graph && h->graph_destroy(graph))
        forget(h);
}

static int launch_one(const void *state, const struct launch_item *item, void *stream, const char **name)
{
    const struct hip *h = state;
    *name = "hipModuleLaunchKernel";
    return h->launch(item->function, item->blocks, 1, 1, (unsigned)item->sig->threads, 1, 1,
                     (unsigned)item->sig->shared, stream, item->args, NULL);
}

static const struct batch_calls calls = { new_graph,    add_node, make_exec,  set_node, launch_exec,
                                          is_capturing, drop,     launch_one, forget,   "hipGraphLaunch" };

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
    if (hip_enter(h, &was)) {
        forget(h);
        return;
    }
    batch_prepare(&m->batch, &calls, h, items, n);
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
    char what[BATCH_TEXT];
    int was;
    hipError_t r = hip_enter(h, &was);
    if (r)
        return hip_fail(d, r, "making the device current", "");
    r = batch_launch(m ? &m->batch : NULL, &calls, h, items, n, stream, what);
    hip_leave(h, was);
    return r ? hip_fail(d, r, what, "") : MOE_OK;
}

int hip_launch(struct moe_device *d, const struct launch_item *item, void *stream)
{
    return hip_launch_all(d, NULL, item, 1, stream);
}
