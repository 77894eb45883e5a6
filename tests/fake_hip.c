// The fake GPU (fake_gpu.c) with the entry points of libamdhip64, as ROCm 6 and 7 have them: both versions of
// hipGetDeviceProperties. A failed call is the thread's last error until somebody reads it.
#include "fake_gpu.h"

#include "../runtime/hip_abi.h"

#include <stdio.h>
#include <string.h>

#define PROTOTYPE(required, member, symbol, params) FAKE_EXPORT hipError_t hip_##member params __asm__(#symbol);
HIP_SYMBOLS(PROTOTYPE)
#undef PROTOTYPE
#define PROTOTYPE(required, member, symbol, params) FAKE_EXPORT const char *hip_##member params __asm__(#symbol);
HIP_TEXTS(PROTOTYPE)

static hipError_t keep(hipError_t r)
{
    if (r)
        fake_here.last_error = r;
    return r;
}
#define CALL(name) \
    do { \
        hipError_t r_ = fake_call(name); \
        if (r_) \
            return keep(r_); \
    } while (0)

// ---- device

hipError_t hip_init(unsigned flags)
{
    (void)flags;
    CALL("hipInit");
    return keep(fake_gpu.devices ? hipSuccess : hipErrorNoDevice);
}

hipError_t hip_driver_version(int *version)
{
    CALL("hipDriverGetVersion");
    *version = fake_gpu.driver;
    return hipSuccess;
}

hipError_t hip_device_count(int *count)
{
    CALL("hipGetDeviceCount");
    *count = fake_gpu.devices;
    return hipSuccess;
}

hipError_t hip_device_name(char *name, int size, hipDevice_t device)
{
    CALL("hipDeviceGetName");
    snprintf(name, (size_t)size, "Fake %d", device);
    return hipSuccess;
}

hipError_t hip_device_attribute(int *value, hipDeviceAttribute_t attribute, int device)
{
    CALL("hipDeviceGetAttribute");
    if (device < 0 || device >= fake_gpu.devices)
        return keep(hipErrorInvalidDevice);
    switch (attribute) {
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = fake_gpu.shared_max; break;
    case hipDeviceAttributeMaxThreadsPerBlock: *value = 1024; break;
    default: *value = 1000 + attribute;
    }
    return hipSuccess;
}

hipError_t hip_device_memory(size_t *bytes, hipDevice_t device)
{
    (void)device;
    CALL("hipDeviceTotalMem");
    *bytes = (size_t)1 << 32;
    return hipSuccess;
}

// Fills what the real one fills: the name in front, the architecture at its place, nothing behind the struct.
static hipError_t properties(hipDeviceProp_t *p, size_t size, size_t arch)
{
    char *bytes = (char *)p;
    memset(bytes, 0x55, size);
    memcpy(bytes, "gfx of a name", 14);
    snprintf(bytes + arch, HIP_ARCH_BYTES, "%s", fake_gpu.arch);
    return hipSuccess;
}

hipError_t hip_properties_r0600(hipDeviceProp_t *p, int device)
{
    (void)device;
    CALL("hipGetDevicePropertiesR0600");
    return properties(p, 1472, HIP_ARCH_R0600);
}

hipError_t hip_properties_r0000(hipDeviceProp_t *p, int device)
{
    (void)device;
    CALL("hipGetDeviceProperties");
    return properties(p, 792, HIP_ARCH_R0000);
}

hipError_t hip_device_current(int *device)
{
    CALL("hipGetDevice");
    *device = (int)fake_here.current;
    return hipSuccess;
}

hipError_t hip_device_set(int device)
{
    CALL("hipSetDevice");
    if (device < 0 || device >= fake_gpu.devices)
        return keep(hipErrorInvalidDevice);
    fake_here.current = device;
    return hipSuccess;
}

hipError_t hip_device_sync(void)
{
    CALL("hipDeviceSynchronize");
    return keep(fake_sync_all());
}

// ---- memory

hipError_t hip_mem_alloc(void **pointer, size_t bytes)
{
    CALL("hipMalloc");
    return keep(fake_alloc(pointer, bytes));
}

hipError_t hip_mem_free(void *pointer)
{
    return keep(fake_free(pointer, "hipFree"));
}

hipError_t hip_copy(void *to, const void *from, size_t bytes, hipMemcpyKind way)
{
    CALL("hipMemcpy");
    if (way != hipMemcpyHostToDevice && way != hipMemcpyDeviceToHost)
        return keep(FAKE_INVALID);
    return keep(fake_copy(to, from, way == hipMemcpyHostToDevice ? to : from, bytes));
}

hipError_t hip_fill8(hipDeviceptr_t to, unsigned char value, size_t n, hipStream_t stream)
{
    CALL("hipMemsetD8Async");
    return keep(fake_fill(to, value, n, stream));
}

// ---- code

hipError_t hip_module_load(hipModule_t *module, const void *image)
{
    CALL("hipModuleLoadData");
    if (!strncmp(image, "bad", 3))
        return keep(hipErrorInvalidImage);
    if (!strncmp(image, "alien", 5))
        return keep(hipErrorNoBinaryForGpu);
    *module = fake_make(FAKE_MODULE);
    return hipSuccess;
}

hipError_t hip_module_unload(hipModule_t module)
{
    return keep(fake_unload(module, "hipModuleUnload"));
}

hipError_t hip_module_function(hipFunction_t *function, hipModule_t module, const char *name)
{
    CALL("hipModuleGetFunction");
    if (!strcmp(name, "nowhere"))
        return keep(hipErrorNotFound);
    return keep(fake_function((void **)function, module, name));
}

hipError_t hip_launch(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, hipStream_t stream, void **args, void **extra)
{
    CALL("hipModuleLaunchKernel");
    if (shared > (unsigned)fake_gpu.shared_max || (uint64_t)gx * bx > UINT32_MAX)
        return keep(FAKE_INVALID);
    const struct fake_config c = { { gx, gy, gz }, { bx, by, bz }, shared, args, extra, 0 };
    return keep(fake_run(function, &c, stream));
}

// ---- streams, events, graphs

hipError_t hip_stream_create(hipStream_t *stream, unsigned flags)
{
    CALL("hipStreamCreateWithFlags");
    fake_gpu.wrong += flags != hipStreamNonBlocking;
    *stream = fake_make(FAKE_STREAM);
    return hipSuccess;
}

hipError_t hip_stream_destroy(hipStream_t stream)
{
    return keep(fake_drop(stream, FAKE_STREAM, "hipStreamDestroy"));
}

hipError_t hip_stream_sync(hipStream_t stream)
{
    CALL("hipStreamSynchronize");
    return keep(fake_sync(stream));
}

hipError_t hip_event_create(hipEvent_t *event, unsigned flags)
{
    CALL("hipEventCreateWithFlags");
    fake_gpu.wrong += flags != hipEventDefault;
    *event = fake_make(FAKE_EVENT);
    return hipSuccess;
}

hipError_t hip_event_destroy(hipEvent_t event)
{
    return keep(fake_drop(event, FAKE_EVENT, "hipEventDestroy"));
}

hipError_t hip_event_record(hipEvent_t event, hipStream_t stream)
{
    CALL("hipEventRecord");
    return keep(fake_record(event, stream));
}

hipError_t hip_event_sync(hipEvent_t event)
{
    CALL("hipEventSynchronize");
    return keep(fake_event_sync(event));
}

hipError_t hip_event_elapsed(float *ms, hipEvent_t from, hipEvent_t to)
{
    CALL("hipEventElapsedTime");
    return keep(fake_elapsed(ms, from, to));
}

hipError_t hip_capture_begin(hipStream_t stream, hipStreamCaptureMode mode)
{
    CALL("hipStreamBeginCapture");
    return keep(fake_begin(stream, mode, hipStreamCaptureModeThreadLocal));
}

hipError_t hip_capture_end(hipStream_t stream, hipGraph_t *graph)
{
    return keep(fake_end(stream, (void **)graph, "hipStreamEndCapture"));
}

hipError_t hip_graph_make(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *node, char *log, size_t size)
{
    *exec = (hipGraphExec_t)(void *)&fake_here; // what a failure leaves there
    CALL("hipGraphInstantiate");
    return keep(node || log || size ? FAKE_INVALID : fake_instantiate((void **)exec, graph));
}

hipError_t hip_graph_destroy(hipGraph_t graph)
{
    return keep(fake_drop_graph(graph, "hipGraphDestroy"));
}

hipError_t hip_graph_launch(hipGraphExec_t exec, hipStream_t stream)
{
    CALL("hipGraphLaunch");
    return keep(fake_replay(exec, stream));
}

hipError_t hip_exec_destroy(hipGraphExec_t exec)
{
    return keep(fake_drop(exec, FAKE_EXEC, "hipGraphExecDestroy"));
}

hipError_t hip_capturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
    CALL("hipStreamIsCapturing");
    return keep(fake_capturing(stream, status));
}

hipError_t hip_graph_create(hipGraph_t *graph, unsigned flags)
{
    *graph = (hipGraph_t)(void *)&fake_here;
    CALL("hipGraphCreate");
    return keep(flags ? FAKE_INVALID : fake_graph((void **)graph));
}

static struct fake_config config_of(const hipKernelNodeParams *p)
{
    return (struct fake_config){ { p->gridDim.x, p->gridDim.y, p->gridDim.z },
                                 { p->blockDim.x, p->blockDim.y, p->blockDim.z },
                                 p->sharedMemBytes,
                                 p->kernelParams,
                                 p->extra,
                                 0 };
}

hipError_t hip_graph_kernel(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *after, size_t n,
                            const hipKernelNodeParams *params)
{
    CALL("hipGraphAddKernelNode");
    const struct fake_config c = config_of(params);
    return keep(fake_node((void **)node, graph, (void *const *)after, n, params->func, &c));
}

hipError_t hip_exec_kernel(hipGraphExec_t exec, hipGraphNode_t node, const hipKernelNodeParams *params)
{
    CALL("hipGraphExecKernelNodeSetParams");
    const struct fake_config c = config_of(params);
    return keep(fake_set_node(exec, node, params->func, &c));
}

hipError_t hip_last_error(void)
{
    hipError_t r = fake_here.last_error;
    fake_here.last_error = hipSuccess;
    return r;
}

const char *hip_error_name(hipError_t error)
{
    return error == hipErrorOutOfMemory ? "hipErrorOutOfMemory" : "hipErrorFake";
}

const char *hip_error_text(hipError_t error)
{
    (void)error;
    return "words of the driver";
}
