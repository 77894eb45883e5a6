// hip_abi.h against AMD's hip_runtime_api.h: nothing but assertions (tools/check_abi.sh). Its lists are expanded here with
// the vendor's own types and constants.
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#define MOE_VENDOR_HEADER
#include "../runtime/hip_abi.h"

#define SAME_VALUE(name, value) _Static_assert((int)name == (value), #name);
HIP_CONSTANTS(SAME_VALUE)

// The versions of hipGetDeviceProperties differ in the struct behind the pointer. Before ROCm 6 there is one.
#if HIP_VERSION_MAJOR < 6
#define hipGetDevicePropertiesR0600 hipGetDeviceProperties
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == HIP_ARCH_R0000, "gcnArchName");
#else
_Static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == HIP_ARCH_R0600, "gcnArchName");
#endif
_Static_assert(sizeof((hipDeviceProp_t *)0)->gcnArchName == HIP_ARCH_BYTES, "gcnArchName");
_Static_assert(sizeof(hipDeviceProp_t) <= HIP_PROPERTIES_ROOM, "hipDeviceProp_t");

#define SAME_TYPE(required, member, symbol, params) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), hipError_t(*) params), #symbol);
HIP_SYMBOLS(SAME_TYPE)
#undef SAME_TYPE
#define SAME_TYPE(required, member, symbol, params) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), const char *(*)params), #symbol);
HIP_TEXTS(SAME_TYPE)

// What our typedefs are: int, pointers.
#define SAME_SIZE(type, ours) _Static_assert(sizeof(type) == sizeof(ours), #type);
SAME_SIZE(hipError_t, int)
SAME_SIZE(hipDevice_t, int)
SAME_SIZE(hipDeviceAttribute_t, int)
SAME_SIZE(hipMemcpyKind, int)
SAME_SIZE(hipStreamCaptureMode, int)
SAME_SIZE(hipStreamCaptureStatus, int)
_Static_assert(__builtin_types_compatible_p(hipDeviceptr_t, void *), "hipDeviceptr_t");

#define SAME_PLACE(member, place) _Static_assert(__builtin_offsetof(hipKernelNodeParams, member) == (place), #member);
HIP_NODE_PLACES(SAME_PLACE)
_Static_assert(sizeof(hipKernelNodeParams) == 64 && sizeof(dim3) == 12, "hipKernelNodeParams");
