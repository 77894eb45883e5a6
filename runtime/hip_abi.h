// The part of the HIP runtime API that hip.c and hip_batch.c use, declared here so that no vendor header is needed to build.
// Names and numbers: HIP API reference; all of them are the same in ROCm 5.2 to 7.
#ifndef MOE_HIP_ABI_H
#define MOE_HIP_ABI_H
#include <stddef.h>

#ifndef MOE_VENDOR_HEADER // tests/abi_hip.c holds the lists below against the vendor's own types and constants
typedef int hipError_t, hipDevice_t, hipDeviceAttribute_t, hipMemcpyKind, hipStreamCaptureMode, hipStreamCaptureStatus;
typedef void *hipDeviceptr_t;
typedef struct hipDeviceProp_t hipDeviceProp_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct {
    unsigned x, y, z;
} dim3;
typedef struct {
    dim3 blockDim;
    void **extra;
    void *func; // a hipFunction_t will do: what is not a function of the host is taken for one
    dim3 gridDim;
    void **kernelParams;
    unsigned sharedMemBytes;
} hipKernelNodeParams;
#endif
#define HIP_NODE_PLACES(X) \
    X(blockDim, 0) \
    X(extra, 16) \
    X(func, 24) \
    X(gridDim, 32) \
    X(kernelParams, 48) \
    X(sharedMemBytes, 56)

#define HIP_CONSTANTS(X) \
    X(hipSuccess, 0) /* hipError_t */ \
    X(hipErrorOutOfMemory, 2) \
    X(hipErrorNoDevice, 100) \
    X(hipErrorInvalidDevice, 101) \
    X(hipErrorInvalidImage, 200) \
    X(hipErrorNoBinaryForGpu, 209) \
    X(hipErrorInvalidKernelFile, 218) \
    X(hipErrorSharedObjectInitFailed, 303) \
    X(hipErrorNotFound, 500) \
    X(hipErrorLaunchOutOfResources, 701) \
    X(hipDeviceAttributeClockRate, 5) /* hipDeviceAttribute_t */ \
    X(hipDeviceAttributeL2CacheSize, 19) \
    X(hipDeviceAttributeMaxThreadsPerBlock, 56) \
    X(hipDeviceAttributeMemoryBusWidth, 59) \
    X(hipDeviceAttributeMemoryClockRate, 60) \
    X(hipDeviceAttributeMultiprocessorCount, 63) \
    X(hipDeviceAttributeMaxSharedMemoryPerBlock, 74) \
    X(hipMemcpyHostToDevice, 1) /* hipMemcpyKind */ \
    X(hipMemcpyDeviceToHost, 2) \
    X(hipEventDefault, 0) \
    X(hipStreamNonBlocking, 1) \
    X(hipStreamCaptureModeThreadLocal, 1) \
    X(hipStreamCaptureStatusNone, 0) /* hipStreamCaptureStatus */
#ifndef MOE_VENDOR_HEADER
#define CONSTANT(name, value) name = value,
enum { HIP_CONSTANTS(CONSTANT) };
#undef CONSTANT
#endif

// Of hipDeviceProp_t only the architecture's name is read, the one fact that no other call of every version gives. The
// struct is part of the entry point's version: since ROCm 6 the library has ...R0600 beside the older one, which keeps
// its layout.
enum {
    HIP_PROPERTIES_ROOM = 8192, // above the size of any layout: 792 bytes, and 1472 of R0600
    HIP_ARCH_BYTES = 256,
    HIP_ARCH_R0000 = 396, // offset of gcnArchName
    HIP_ARCH_R0600 = 1160,
};

// One line an entry point: X(required, member, symbol, parameters). `member` is the one of struct hip; required 0: may
// be missing. Those that do not return a hipError_t stand in HIP_TEXTS, X(required, member, symbol, parameters) too.
#define HIP_SYMBOLS(X) \
    X(1, init, hipInit, (unsigned flags)) \
    X(1, driver_version, hipDriverGetVersion, (int *version)) \
    X(1, device_count, hipGetDeviceCount, (int *count)) \
    X(1, device_name, hipDeviceGetName, (char *name, int size, hipDevice_t device)) \
    X(1, device_attribute, hipDeviceGetAttribute, (int *value, hipDeviceAttribute_t attribute, int device)) \
    X(1, device_memory, hipDeviceTotalMem, (size_t * bytes, hipDevice_t device)) \
    X(0, properties_r0600, hipGetDevicePropertiesR0600, (hipDeviceProp_t * properties, int device)) \
    X(0, properties_r0000, hipGetDeviceProperties, (hipDeviceProp_t * properties, int device)) \
    X(1, device_current, hipGetDevice, (int *device)) \
    X(1, device_set, hipSetDevice, (int device)) \
    X(1, device_sync, hipDeviceSynchronize, (void)) \
    X(1, mem_alloc, hipMalloc, (void **pointer, size_t bytes)) \
    X(1, mem_free, hipFree, (void *pointer)) \
    X(1, copy, hipMemcpy, (void *to, const void *from, size_t bytes, hipMemcpyKind way)) \
    X(1, fill8, hipMemsetD8Async, (hipDeviceptr_t to, unsigned char value, size_t n, hipStream_t stream)) \
    X(1, module_load, hipModuleLoadData, (hipModule_t * module, const void *image)) \
    X(1, module_unload, hipModuleUnload, (hipModule_t module)) \
    X(1, module_function, hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char *name)) \
    X(1, launch, hipModuleLaunchKernel, \
      (hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
       unsigned shared, hipStream_t stream, void **args, void **extra)) \
    X(1, stream_create, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags)) \
    X(1, stream_destroy, hipStreamDestroy, (hipStream_t stream)) \
    X(1, stream_sync, hipStreamSynchronize, (hipStream_t stream)) \
    X(1, event_create, hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags)) \
    X(1, event_destroy, hipEventDestroy, (hipEvent_t event)) \
    X(1, event_record, hipEventRecord, (hipEvent_t event, hipStream_t stream)) \
    X(1, event_sync, hipEventSynchronize, (hipEvent_t event)) \
    X(1, event_elapsed, hipEventElapsedTime, (float *ms, hipEvent_t from, hipEvent_t to)) \
    X(0, capture_begin, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode)) \
    X(0, capture_end, hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph)) \
    X(0, graph_make, hipGraphInstantiate, \
      (hipGraphExec_t * exec, hipGraph_t graph, hipGraphNode_t * node, char *log, size_t size)) \
    X(0, graph_destroy, hipGraphDestroy, (hipGraph_t graph)) \
    X(0, graph_launch, hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream)) \
    X(0, exec_destroy, hipGraphExecDestroy, (hipGraphExec_t exec)) \
    X(0, graph_create, hipGraphCreate, (hipGraph_t * graph, unsigned flags)) \
    X(0, graph_kernel, hipGraphAddKernelNode, \
      (hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t *after, size_t n, \
       const hipKernelNodeParams *params)) \
    X(0, exec_kernel, hipGraphExecKernelNodeSetParams, \
      (hipGraphExec_t exec, hipGraphNode_t node, const hipKernelNodeParams *params)) \
    X(0, capturing, hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus * status)) \
    X(0, last_error, hipGetLastError, (void))
#define HIP_TEXTS(X) \
    X(0, error_name, hipGetErrorName, (hipError_t error)) \
    X(0, error_text, hipGetErrorString, (hipError_t error))
#endif
