// Several kernels at once for cuda.c: batch.c with CUDA's calls. The nodes' parameters are of version 2, since CUDA 12; with an
// older driver kernels are launched one by one, as into a stream in capture, where a graph's launch would break the capture.
#include "cuda.h"

#include <stdio.h>

static CUDA_KERNEL_NODE_PARAMS params_of(const struct launch_item *item)
{
    return (CUDA_KERNEL_NODE_PARAMS){ .func = item->function,
                                      .gridDimX = item->blocks,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = (unsigned)item->sig->threads,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = (unsigned)item->sig->shared,
                                      .kernelParams = item->args };
}

static int new_graph(const void *state, void **graph)
{
    const struct cuda *c = state;
    return c->graph_create((CUgraph *)graph, 0);
}

static int add_node(const void *state, void *graph, void *const *after, const struct launch_item *item, void **node)
{
    const struct cuda *c = state;
    const CUDA_KERNEL_NODE_PARAMS p = params_of(item);
    return c->graph_kernel((CUgraphNode *)node, graph, (const CUgraphNode *)after, after ? 1 : 0, &p);
}

static int make_exec(const void *state, void *graph, void **exec)
{
    const struct cuda *c = state;
    return c->graph_make((CUgraphExec *)exec, graph, 0);
}

static int set_node(const void *state, void *exec, void *node, const struct launch_item *item)
{
    const struct cuda *c = state;
    const CUDA_KERNEL_NODE_PARAMS p = params_of(item);
    return c->exec_kernel(exec, node, &p);
}

static int launch_exec(const void *state, void *exec, void *stream)
{
    const struct cuda *c = state;
    return c->graph_launch(exec, stream);
}

static int is_capturing(const void *state, void *stream, bool *yes)
{
    const struct cuda *c = state;
    CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = c->capturing(stream, &now);
    *yes = now != CU_STREAM_CAPTURE_STATUS_NONE;
    return r;
}

static void drop(const void *state, void *graph, void *exec)
{
    const struct cuda *c = state;
    if (exec)
        c->exec_destroy(exec);
    if (graph)
        c->graph_destroy(graph);
}

static const struct batch_calls calls = { new_graph, add_node, make_exec, set_node, launch_exec, is_capturing, drop };

static bool has_calls(const struct cuda *c)
{
    return c->graph_create && c->graph_kernel && c->exec_kernel && c->capturing && c->graph_make && c->graph_launch &&
           c->graph_destroy && c->exec_destroy;
}

void cuda_launch_prepare(struct moe_device *d, void *module, const struct launch_item *items, int n)
{
    struct cuda *c = d->state;
    struct cuda_module *m = module;
    bool pushed;
    if (!has_calls(c) || cuda_enter(c, &pushed))
        return;
    batch_prepare(&m->batch, &calls, c, items, n);
    cuda_leave(c, pushed);
}

void cuda_batch_free(const struct cuda *c, struct cuda_module *m)
{
    batch_free(&m->batch, &calls, c);
}

int cuda_launch_all(struct moe_device *d, void *module, const struct launch_item *items, int n, void *stream)
{
    struct cuda *c = d->state;
    struct cuda_module *m = module;
    char what[160];
    bool pushed;
    int at = 0;
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    enum batch_result result = batch_launch(&m->batch, &calls, c, items, n, stream, &r);
    if (result == BATCH_NOT)
        for (at = 0, r = CUDA_SUCCESS; at < n && !r; at++)
            r = c->launch(items[at].function, items[at].blocks, 1, 1, (unsigned)items[at].sig->threads, 1, 1,
                          (unsigned)items[at].sig->shared, stream, items[at].args, NULL);
    cuda_leave(c, pushed);
    if (!r)
        return MOE_OK;
    if (result == BATCH_FAILED)
        snprintf(what, sizeof what, "cuGraphLaunch of %d kernels from %.100s on", n, items[0].sig->symbol);
    else
        snprintf(what, sizeof what, "cuLaunchKernel of %.100s", items[at - 1].sig->symbol);
    return cuda_fail(d, r, what, "");
}
