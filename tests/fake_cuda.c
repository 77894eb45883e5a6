// The fake GPU (fake_gpu.c) with the entry points of libcuda.
#include "fake_gpu.h"

#include "../runtime/cuda_abi.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PROTOTYPE(required, member, symbol, params) FAKE_EXPORT CUresult cu_##member params __asm__(#symbol);
CUDA_SYMBOLS(PROTOTYPE)

// The structs that are declared here as the vendor has them, see tests/abi_cuda.c.
#define PLACE_OF(type, member, place) _Static_assert(offsetof(type, member) == (place), #member);
#define NODE_PLACE(member, place) PLACE_OF(CUDA_KERNEL_NODE_PARAMS, member, place)
#define CONFIG_PLACE(member, place) PLACE_OF(CUlaunchConfig, member, place)
#define EDGE_PLACE(member, place) PLACE_OF(CUgraphEdgeData, member, place)
CUDA_NODE_PLACES(NODE_PLACE)
CUDA_CONFIG_PLACES(CONFIG_PLACE)
CUDA_EDGE_PLACES(EDGE_PLACE)
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72 && sizeof(CUlaunchConfig) == 56 && sizeof(CUgraphEdgeData) == 8 &&
                   sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8,
               "sizes");

static char contexts[FAKE_DEVICES_MAX]; // their addresses are the contexts

// A call that needs a context to be current.
#define CALL(name) \
    do { \
        FAKE_CALL(name); \
        if (fake_here.current < (intptr_t)contexts || fake_here.current >= (intptr_t)(contexts + FAKE_DEVICES_MAX)) \
            fake_gpu.wrong++; \
    } while (0)

// ---- device and context

CUresult cu_init(unsigned flags)
{
    (void)flags;
    FAKE_CALL("cuInit");
    return fake_gpu.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cu_driver_version(int *version)
{
    FAKE_CALL("cuDriverGetVersion");
    *version = fake_gpu.driver;
    return CUDA_SUCCESS;
}

CUresult cu_device_count(int *count)
{
    FAKE_CALL("cuDeviceGetCount");
    *count = fake_gpu.devices;
    return CUDA_SUCCESS;
}

CUresult cu_device_get(CUdevice *device, int ordinal)
{
    FAKE_CALL("cuDeviceGet");
    *device = ordinal;
    return ordinal < fake_gpu.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cu_device_name(char *name, int size, CUdevice device)
{
    FAKE_CALL("cuDeviceGetName");
    snprintf(name, (size_t)size, "Fake %d", device);
    return CUDA_SUCCESS;
}

CUresult cu_device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    FAKE_CALL("cuDeviceGetAttribute");
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = fake_gpu.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = fake_gpu.minor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = fake_gpu.shared_max; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    default: *value = 7;
    }
    return CUDA_SUCCESS;
}

CUresult cu_device_memory(size_t *bytes, CUdevice device)
{
    (void)device;
    FAKE_CALL("cuDeviceTotalMem_v2");
    *bytes = (size_t)1 << 32;
    return CUDA_SUCCESS;
}

CUresult cu_ctx_retain(CUcontext *context, CUdevice device)
{
    FAKE_CALL("cuDevicePrimaryCtxRetain");
    fake_gpu.contexts++;
    *context = (CUcontext)(void *)&contexts[device];
    return CUDA_SUCCESS;
}

CUresult cu_ctx_release(CUdevice device)
{
    (void)device;
    fake_gpu.contexts--;
    FAKE_CALL("cuDevicePrimaryCtxRelease_v2");
    return CUDA_SUCCESS;
}

CUresult cu_ctx_current(CUcontext *context)
{
    FAKE_CALL("cuCtxGetCurrent");
    *context = (CUcontext)fake_here.current;
    return CUDA_SUCCESS;
}

CUresult cu_ctx_device(CUdevice *device)
{
    FAKE_CALL("cuCtxGetDevice");
    intptr_t n = fake_here.current - (intptr_t)contexts;
    *device = n >= 0 && n < FAKE_DEVICES_MAX ? (CUdevice)n : FAKE_DEVICES_MAX; // a context that the test made up
    return fake_here.current ? 0 : FAKE_INVALID;
}

CUresult cu_ctx_push(CUcontext context)
{
    FAKE_CALL("cuCtxPushCurrent_v2");
    fake_here.stack[fake_here.pushed++ % 8] = fake_here.current;
    fake_here.current = (intptr_t)context;
    return CUDA_SUCCESS;
}

CUresult cu_ctx_pop(CUcontext *context)
{
    *context = (CUcontext)fake_here.current;
    if (fake_here.pushed < 1)
        fake_gpu.wrong++;
    else
        fake_here.current = fake_here.stack[--fake_here.pushed % 8];
    FAKE_CALL("cuCtxPopCurrent_v2");
    return CUDA_SUCCESS;
}

CUresult cu_ctx_sync(void)
{
    CALL("cuCtxSynchronize");
    return fake_sync_all();
}

// ---- memory

static void *pointer_of(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

CUresult cu_mem_alloc(CUdeviceptr *pointer, size_t bytes)
{
    void *p = NULL;
    CALL("cuMemAlloc_v2");
    CUresult r = fake_alloc(&p, bytes);
    *pointer = (CUdeviceptr)(uintptr_t)p;
    return r;
}

CUresult cu_mem_free(CUdeviceptr pointer)
{
    return fake_free(pointer_of(pointer), "cuMemFree_v2");
}

CUresult cu_copy_up(CUdeviceptr to, const void *from, size_t bytes)
{
    CALL("cuMemcpyHtoD_v2");
    return fake_copy(pointer_of(to), from, pointer_of(to), bytes);
}

CUresult cu_copy_down(void *to, CUdeviceptr from, size_t bytes)
{
    CALL("cuMemcpyDtoH_v2");
    return fake_copy(to, pointer_of(from), pointer_of(from), bytes);
}

CUresult cu_fill8(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
    CALL("cuMemsetD8Async");
    return fake_fill(pointer_of(to), value, n, stream);
}

// ---- code

CUresult cu_module_load(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values)
{
    CALL("cuModuleLoadDataEx");
    if (n == 2 && options[0] == CU_JIT_ERROR_LOG_BUFFER && !strncmp(image, "bad", 3)) {
        snprintf(values[0], (size_t)(uintptr_t)values[1], "line 1: bad");
        return CUDA_ERROR_INVALID_PTX;
    }
    if (!strncmp(image, "future", 6))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (!strncmp(image, "alien", 5))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = fake_make(FAKE_MODULE);
    return CUDA_SUCCESS;
}

CUresult cu_module_unload(CUmodule module)
{
    return fake_unload(module, "cuModuleUnload");
}

CUresult cu_module_function(CUfunction *function, CUmodule module, const char *name)
{
    CALL("cuModuleGetFunction");
    CUresult r = fake_function((void **)function, module, name);
    if (!r)
        fake_allow(*function, 48 << 10);
    return r;
}

CUresult cu_function_set(CUfunction function, CUfunction_attribute attribute, int value)
{
    CALL("cuFuncSetAttribute");
    if (!fake_get(function, FAKE_FUNCTION) || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return FAKE_INVALID;
    fake_gpu.shared_set = value;
    fake_allow(function, (unsigned)value);
    return CUDA_SUCCESS;
}

CUresult cu_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void **args, void **extra)
{
    CALL("cuLaunchKernel");
    const struct fake_config c = { { gx, gy, gz }, { bx, by, bz }, shared, args, extra, 0 };
    return fake_run(function, &c, stream);
}

CUresult cu_launch_ex(const CUlaunchConfig *config, CUfunction function, void **args, void **extra)
{
    CALL("cuLaunchKernelEx");
    const CUlaunchAttribute *a = config->attrs;
    if (config->numAttrs != 1 || a->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
        a->value.programmaticStreamSerializationAllowed != 1 || fake_gpu.major < 9) {
        fake_gpu.wrong++;
        return FAKE_INVALID;
    }
    const struct fake_config c = { { config->gridDimX, config->gridDimY, config->gridDimZ },
                                   { config->blockDimX, config->blockDimY, config->blockDimZ },
                                   config->sharedMemBytes,
                                   args,
                                   extra,
                                   1 };
    return fake_run(function, &c, config->hStream);
}

// The rules of cuTensorMapEncodeTiled, for maps without interleave.
static bool map_ok(const struct fake_map *m, const CUtensorMap *at)
{
    static const int sizes[] = { 1, 2, 4, 4, 8, 8, 2, 4, 8, 2 };
    bool ok = m->rank >= 1 && m->rank <= 5 && m->type < sizeof sizes / sizeof sizes[0] && m->base % 16 == 0 &&
              m->interleave == 0 && m->swizzle <= 3 && (uintptr_t)at % 64 == 0;
    for (int i = 0; ok && i < m->rank; i++) {
        ok = m->dims[i] >= 1 && m->dims[i] <= (uint64_t)1 << 32 && m->box[i] >= 1 && m->box[i] <= 256 &&
             m->steps[i] >= 1 && m->steps[i] <= 8 &&
             (!i || (m->strides[i - 1] % 16 == 0 && m->strides[i - 1] < (uint64_t)1 << 40));
    }
    unsigned row = ok ? m->box[0] * (unsigned)sizes[m->type] : 0;
    return ok && row % 16 == 0 && (!m->swizzle || row <= 16u << m->swizzle);
}

CUresult cu_map_encode(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank, void *base, const uint64_t *dims,
                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill)
{
    CALL("cuTensorMapEncodeTiled");
    struct fake_map m = { .base = (uint64_t)(uintptr_t)base,
                          .type = (uint8_t)type,
                          .rank = (uint8_t)rank,
                          .interleave = (uint8_t)interleave,
                          .swizzle = (uint8_t)swizzle,
                          .promotion = (uint8_t)promotion,
                          .fill = (uint8_t)fill,
                          .mark = 0x5a };
    for (uint32_t i = 0; i < rank && i < 5; i++) {
        m.dims[i] = dims[i];
        m.box[i] = box[i];
        m.steps[i] = (uint8_t)steps[i];
        if (i)
            m.strides[i - 1] = strides[i - 1];
    }
    if (!map_ok(&m, map))
        return FAKE_INVALID;
    memset((void *)map, 0, 128);
    memcpy((void *)map, &m, sizeof m);
    return CUDA_SUCCESS;
}

// ---- streams, events, graphs

CUresult cu_stream_create(CUstream *stream, unsigned flags)
{
    CALL("cuStreamCreate");
    fake_gpu.wrong += flags != CU_STREAM_NON_BLOCKING;
    *stream = fake_make(FAKE_STREAM);
    return CUDA_SUCCESS;
}

CUresult cu_stream_destroy(CUstream stream)
{
    return fake_drop(stream, FAKE_STREAM, "cuStreamDestroy_v2");
}

CUresult cu_stream_sync(CUstream stream)
{
    CALL("cuStreamSynchronize");
    return fake_sync(stream);
}

CUresult cu_event_create(CUevent *event, unsigned flags)
{
    CALL("cuEventCreate");
    fake_gpu.wrong += flags != 0;
    *event = fake_make(FAKE_EVENT);
    return CUDA_SUCCESS;
}

CUresult cu_event_destroy(CUevent event)
{
    return fake_drop(event, FAKE_EVENT, "cuEventDestroy_v2");
}

CUresult cu_event_record(CUevent event, CUstream stream)
{
    CALL("cuEventRecord");
    return fake_record(event, stream);
}

CUresult cu_event_sync(CUevent event)
{
    CALL("cuEventSynchronize");
    return fake_event_sync(event);
}

CUresult cu_event_elapsed(float *ms, CUevent from, CUevent to)
{
    CALL("cuEventElapsedTime");
    return fake_elapsed(ms, from, to);
}

CUresult cu_capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
    CALL("cuStreamBeginCapture_v2");
    return fake_begin(stream, mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

CUresult cu_capture_end(CUstream stream, CUgraph *graph)
{
    return fake_end(stream, (void **)graph, "cuStreamEndCapture");
}

CUresult cu_graph_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    *exec = (CUgraphExec)(void *)&contexts; // what a failure leaves there
    CALL("cuGraphInstantiateWithFlags");
    return flags ? FAKE_INVALID : fake_instantiate((void **)exec, graph);
}

CUresult cu_graph_destroy(CUgraph graph)
{
    return fake_drop_graph(graph, "cuGraphDestroy");
}

CUresult cu_graph_launch(CUgraphExec exec, CUstream stream)
{
    CALL("cuGraphLaunch");
    return fake_replay(exec, stream);
}

CUresult cu_exec_destroy(CUgraphExec exec)
{
    return fake_drop(exec, FAKE_EXEC, "cuGraphExecDestroy");
}

CUresult cu_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CALL("cuStreamIsCapturing");
    return fake_capturing(stream, status);
}

CUresult cu_graph_create(CUgraph *graph, unsigned flags)
{
    *graph = (CUgraph)(void *)&contexts;
    CALL("cuGraphCreate");
    return flags ? FAKE_INVALID : fake_graph((void **)graph);
}

static struct fake_config config_of(const CUDA_KERNEL_NODE_PARAMS *p)
{
    if (p->kern || p->ctx)
        fake_gpu.wrong++;
    return (struct fake_config){ { p->gridDimX, p->gridDimY, p->gridDimZ },
                                 { p->blockDimX, p->blockDimY, p->blockDimZ },
                                 p->sharedMemBytes,
                                 p->kernelParams,
                                 p->extra,
                                 0 };
}

CUresult cu_graph_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                         const CUDA_KERNEL_NODE_PARAMS *params)
{
    CALL("cuGraphAddKernelNode_v2");
    const struct fake_config c = config_of(params);
    return fake_node((void **)node, graph, (void *const *)after, n, params->func, &c);
}

CUresult cu_graph_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                        size_t n)
{
    static const CUgraphEdgeData programmatic = { .from_port = 1, .type = 1 };
    CALL("cuGraphAddDependencies_v2");
    if (n != 1 || memcmp(data, &programmatic, sizeof programmatic) != 0 || fake_gpu.major < 9) {
        fake_gpu.wrong++;
        return FAKE_INVALID;
    }
    return fake_edge(graph, *from, *to);
}

CUresult cu_exec_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CALL("cuGraphExecKernelNodeSetParams_v2");
    const struct fake_config c = config_of(params);
    return fake_set_node(exec, node, params->func, &c);
}

CUresult cu_error_name(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

CUresult cu_error_text(CUresult error, const char **text)
{
    (void)error;
    *text = "words of the driver";
    return CUDA_SUCCESS;
}
