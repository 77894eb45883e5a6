// cuda_abi.h against NVIDIA's cuda.h: nothing but assertions (tools/check_abi.sh). Its lists are expanded here with the
// vendor's own types and constants.
#include <cuda.h>

#define MOE_VENDOR_HEADER
#include "../runtime/cuda_abi.h"

#define SAME_VALUE(name, value) _Static_assert((int)name == (value), #name);
CUDA_CONSTANTS(SAME_VALUE)

#define SAME_TYPE(required, member, symbol, params) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) params), #symbol);
CUDA_SYMBOLS(SAME_TYPE)

// What our typedefs are: int, unsigned long long, pointers.
#define SAME_SIZE(type, ours) _Static_assert(sizeof(type) == sizeof(ours), #type);
SAME_SIZE(CUresult, int)
SAME_SIZE(CUdevice, int)
SAME_SIZE(CUdevice_attribute, int)
SAME_SIZE(CUfunction_attribute, int)
SAME_SIZE(CUjit_option, int)
SAME_SIZE(CUstreamCaptureMode, int)
SAME_SIZE(CUstreamCaptureStatus, int)
SAME_SIZE(CUtensorMapDataType, int)
SAME_SIZE(CUtensorMapInterleave, int)
SAME_SIZE(CUtensorMapSwizzle, int)
SAME_SIZE(CUtensorMapL2promotion, int)
SAME_SIZE(CUtensorMapFloatOOBfill, int)
SAME_SIZE(CUlaunchAttributeID, int)
_Static_assert(sizeof(CUtensorMap) == 128, "CUtensorMap");
_Static_assert(__builtin_types_compatible_p(CUdeviceptr, unsigned long long), "CUdeviceptr");

#define SAME_PLACE(member, place) \
    _Static_assert(__builtin_offsetof(CUDA_KERNEL_NODE_PARAMS, member) == (place), #member);
CUDA_NODE_PLACES(SAME_PLACE)
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72, "CUDA_KERNEL_NODE_PARAMS");
#undef SAME_PLACE
#define SAME_PLACE(member, place) _Static_assert(__builtin_offsetof(CUlaunchConfig, member) == (place), #member);
CUDA_CONFIG_PLACES(SAME_PLACE)
_Static_assert(sizeof(CUlaunchConfig) == 56, "CUlaunchConfig");
#undef SAME_PLACE
#define SAME_PLACE(member, place) _Static_assert(__builtin_offsetof(CUgraphEdgeData, member) == (place), #member);
CUDA_EDGE_PLACES(SAME_PLACE)
_Static_assert(sizeof(CUgraphEdgeData) == 8, "CUgraphEdgeData");
_Static_assert(__builtin_offsetof(CUlaunchAttribute, id) == 0 &&
                   __builtin_offsetof(CUlaunchAttribute, value.programmaticStreamSerializationAllowed) == 8 &&
                   sizeof(CUlaunchAttribute) == 72,
               "CUlaunchAttribute");
