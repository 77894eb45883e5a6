// Launches for cuda.c, of one kernel and of several at once: batch.c with CUDA's calls. The nodes' parameters are of version 2,
// since CUDA 12; with an older driver kernels are launched one by one, as into a stream in capture, where a graph's launch would
// break the capture.
#include "cuda.h"

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

// Hopper and later let a kernel start before the one before it in the stream has finished ("programmatic dependent launch").
// Into a stream in capture the launch becomes a node with a programmatic edge.
static bool starts_early(const struct cuda *c, const struct launch_item *item)
{
    return item->dependent && c->major >= 9;
}

// "CUDA Graphs", programmatic dependent launch: an edge from the port of launch_dependents, in place of the ordinary one.
static int add_node(const void *state, void *graph, void *const *after, const struct launch_item *item, void **node)
{
    const CUgraphEdgeData data = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };
    const struct cuda *c = state;
    const CUDA_KERNEL_NODE_PARAMS p = params_of(item);
    bool early = after && c->graph_edges && starts_early(c, item);
    CUresult r =
        c->graph_kernel((CUgraphNode *)node, graph, early ? NULL : (const CUgraphNode *)after, after && !early, &p);
    return r || !early ? r
                       : c->graph_edges(graph, (const CUgraphNode *)after, (const CUgraphNode *)(void *)node, &data, 1);
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

static int launch_one(const void *state, const struct launch_item *item, void *stream, const char **name)
{
    const struct cuda *c = state;
    unsigned threads = (unsigned)item->sig->threads, shared = (unsigned)item->sig->shared;
    if (!c->launch_ex || !starts_early(c, item)) {
        *name = "cuLaunchKernel";
        return c->launch(item->function, item->blocks, 1, 1, threads, 1, 1, shared, stream, item->args, NULL);
    }
    CUlaunchAttribute early = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value.programmaticStreamSerializationAllowed = 1 };
    const CUlaunchConfig config = { .gridDimX = item->blocks,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = threads,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .sharedMemBytes = shared,
                                    .hStream = stream,
                                    .attrs = &early,
                                    .numAttrs = 1 };
    *name = "cuLaunchKernelEx";
    return c->launch_ex(&config, item->function, item->args, NULL);
}

static const struct batch_calls calls = { new_graph,    add_node, make_exec,  set_node, launch_exec,
                                          is_capturing, drop,     launch_one, NULL,     "cuGraphLaunch" };

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
    char what[BATCH_TEXT];
    bool pushed;
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = batch_launch(m ? &m->batch : NULL, &calls, c, items, n, stream, what);
    cuda_leave(c, pushed);
    return r ? cuda_fail(d, r, what, "") : MOE_OK;
}

int cuda_launch(struct moe_device *d, const struct launch_item *item, void *stream)
{
    return cuda_launch_all(d, NULL, item, 1, stream);
}
