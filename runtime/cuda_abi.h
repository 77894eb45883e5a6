// The part of the CUDA driver API that cuda.c and cuda_batch.c use, declared here so that no vendor header is needed to build.
// Names and numbers: CUDA Driver API reference manual; the ABI of these entry points has not changed since CUDA 11.4, of
// those that a driver may lack since the first that has them.
#ifndef MOE_CUDA_ABI_H
#define MOE_CUDA_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifndef MOE_VENDOR_HEADER // tests/abi_cuda.c holds the lists below against the vendor's own types and constants
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill, CUlaunchAttributeID;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUkern_st *CUkernel;
typedef struct CUtensorMap_st CUtensorMap; // 128 bytes, at a multiple of 64
typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS; // version 2, CUDA 12 and later
typedef struct {           // of an edge between graph nodes, CUDA 12.3 and later
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;
typedef struct {
    CUlaunchAttributeID id;
    char pad[4];
    union {
        char pad[64];
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;
typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
#endif
#define CUDA_NODE_PLACES(X) \
    X(func, 0) \
    X(gridDimX, 8) \
    X(gridDimY, 12) \
    X(gridDimZ, 16) \
    X(blockDimX, 20) \
    X(blockDimY, 24) \
    X(blockDimZ, 28) \
    X(sharedMemBytes, 32) \
    X(kernelParams, 40) \
    X(extra, 48) \
    X(kern, 56) \
    X(ctx, 64)
#define CUDA_CONFIG_PLACES(X) \
    X(gridDimX, 0) \
    X(gridDimY, 4) \
    X(gridDimZ, 8) \
    X(blockDimX, 12) \
    X(blockDimY, 16) \
    X(blockDimZ, 20) \
    X(sharedMemBytes, 24) \
    X(hStream, 32) \
    X(attrs, 40) \
    X(numAttrs, 48)
#define CUDA_EDGE_PLACES(X) \
    X(from_port, 0) \
    X(to_port, 1) \
    X(type, 2) \
    X(reserved, 3)

#define CUDA_CONSTANTS(X) \
    X(CUDA_SUCCESS, 0) /* CUresult */ \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2) \
    X(CUDA_ERROR_NO_DEVICE, 100) \
    X(CUDA_ERROR_INVALID_DEVICE, 101) \
    X(CUDA_ERROR_INVALID_IMAGE, 200) \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) \
    X(CUDA_ERROR_INVALID_PTX, 218) \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
    X(CUDA_ERROR_NOT_FOUND, 500) \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) /* CUdevice_attribute */ \
    X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13) \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36) \
    X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37) \
    X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38) \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) /* CUfunction_attribute */ \
    X(CU_JIT_ERROR_LOG_BUFFER, 5)                         /* CUjit_option */ \
    X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6) \
    X(CU_STREAM_NON_BLOCKING, 1) \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                         /* CUstreamCaptureStatus */ \
    X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6) /* CUlaunchAttributeID */ \
    X(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 1)                /* its blocks have said launch_dependents or ended */ \
    X(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, 1) \
    X(CU_TENSOR_MAP_DATA_TYPE_INT32, 3) /* CUtensorMapDataType */ \
    X(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 6) \
    X(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 7) \
    X(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 9) \
    X(CU_TENSOR_MAP_INTERLEAVE_NONE, 0) /* CUtensorMapInterleave */ \
    X(CU_TENSOR_MAP_SWIZZLE_NONE, 0)    /* CUtensorMapSwizzle */ \
    X(CU_TENSOR_MAP_SWIZZLE_32B, 1) \
    X(CU_TENSOR_MAP_SWIZZLE_64B, 2) \
    X(CU_TENSOR_MAP_SWIZZLE_128B, 3) \
    X(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 3) /* CUtensorMapL2promotion */ \
    X(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)  /* CUtensorMapFloatOOBfill: zeros */
#ifndef MOE_VENDOR_HEADER
#define CONSTANT(name, value) name = value,
enum { CUDA_CONSTANTS(CONSTANT) };
#undef CONSTANT
#endif

// One line an entry point: X(required, member, symbol, parameters). `member` is the one of struct cuda;
// required 0: may be missing. Versioned names are those that cuda.h maps to.
#define CUDA_SYMBOLS(X) \
    X(1, init, cuInit, (unsigned flags)) \
    X(1, driver_version, cuDriverGetVersion, (int *version)) \
    X(1, device_count, cuDeviceGetCount, (int *count)) \
    X(1, device_get, cuDeviceGet, (CUdevice * device, int ordinal)) \
    X(1, device_name, cuDeviceGetName, (char *name, int size, CUdevice device)) \
    X(1, device_attribute, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(1, device_memory, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) \
    X(1, ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) \
    X(1, ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(1, ctx_current, cuCtxGetCurrent, (CUcontext * context)) \
    X(1, ctx_device, cuCtxGetDevice, (CUdevice * device)) \
    X(1, ctx_push, cuCtxPushCurrent_v2, (CUcontext context)) \
    X(1, ctx_pop, cuCtxPopCurrent_v2, (CUcontext * context)) \
    X(1, ctx_sync, cuCtxSynchronize, (void)) \
    X(1, mem_alloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes)) \
    X(1, mem_free, cuMemFree_v2, (CUdeviceptr pointer)) \
    X(1, copy_up, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(1, copy_down, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
    X(1, fill8, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream stream)) \
    X(1, module_load, cuModuleLoadDataEx, \
      (CUmodule * module, const void *image, unsigned n, CUjit_option *options, void **values)) \
    X(1, module_unload, cuModuleUnload, (CUmodule module)) \
    X(1, module_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
    X(1, function_set, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value)) \
    X(1, launch, cuLaunchKernel, \
      (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
       unsigned shared, CUstream stream, void **args, void **extra)) \
    X(1, stream_create, cuStreamCreate, (CUstream * stream, unsigned flags)) \
    X(1, stream_destroy, cuStreamDestroy_v2, (CUstream stream)) \
    X(1, stream_sync, cuStreamSynchronize, (CUstream stream)) \
    X(1, event_create, cuEventCreate, (CUevent * event, unsigned flags)) \
    X(1, event_destroy, cuEventDestroy_v2, (CUevent event)) \
    X(1, event_record, cuEventRecord, (CUevent event, CUstream stream)) \
    X(1, event_sync, cuEventSynchronize, (CUevent event)) \
    X(1, event_elapsed, cuEventElapsedTime, (float *ms, CUevent from, CUevent to)) \
    X(0, capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
    X(0, capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * graph)) \
    X(0, graph_make, cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
    X(0, graph_destroy, cuGraphDestroy, (CUgraph graph)) \
    X(0, launch_ex, cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **args, void **extra)) \
    X(0, graph_edges, cuGraphAddDependencies_v2, \
      (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n)) \
    X(0, graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
    X(0, exec_destroy, cuGraphExecDestroy, (CUgraphExec exec)) \
    X(0, graph_create, cuGraphCreate, (CUgraph * graph, unsigned flags)) \
    X(0, graph_kernel, cuGraphAddKernelNode_v2, \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t n, const CUDA_KERNEL_NODE_PARAMS *params)) \
    X(0, exec_kernel, cuGraphExecKernelNodeSetParams_v2, \
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)) \
    X(0, capturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status)) \
    X(0, map_encode, cuTensorMapEncodeTiled, \
      (CUtensorMap * map, CUtensorMapDataType type, uint32_t rank, void *base, const uint64_t *dims, \
       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, CUtensorMapInterleave interleave, \
       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)) \
    X(0, error_name, cuGetErrorName, (CUresult error, const char **text)) \
    X(0, error_text, cuGetErrorString, (CUresult error, const char **text))
#endif
