// Tensors of other libraries (PyTorch, JAX, CuPy, TVM, ...) for moert.h and moelayer.h, by DLPack's C ABI. This header is
// the manual.
//
//   struct moe_dl_weights w = { .size = sizeof w, .gate = moe_dl(a), .up = moe_dl(b), .down = moe_dl(c) };
//   struct moe_layer_weights weights = { .size = sizeof weights };
//   if (moe_dl_get_weights(device, &desc, &w, &weights)) puts(moe_error(device, why, sizeof why));
//                                           "down: [8, 256, 128] of bf16 expected, [8, 128, 256] of bf16 is given"
//
// WHAT IS CHECKED, and refused by the tensor's name: the version, the kind of device and its number, the element type,
// the shape, that it lies densely in row-major order (of extents of 1 the stride does not matter), 16-byte alignment, and
// for outputs that it is not read-only. Nothing is copied or converted.
//
// OWNERSHIP stays with the caller. Nothing is kept and no deleter is called, whether a tensor is taken or refused: the
// functions read the structs and give pointers. The memory must live as long as those are used: that of weights as long as
// the layer, that of a call until its stream is past it (a graph of it: as long as the graph is replayed). The structs
// themselves (Python: the capsules) may go before, if something else keeps the memory. Of a version that is refused nothing
// past the version is read.
//
// STREAMS. DLPack says nothing about when the data are there. Ask the producer for the stream that the call will run on
// (Python: tensor.__dlpack__(stream=...)), or launch on the stream that made them.
//
// DEVICES. "cuda:N" takes kDLCUDA of number N and kDLCUDAManaged of any; "hip:N" kDLROCM of number N. "sim:ARCH" takes
// kDLCPU: memory from moe_alloc(), which others wrap; other host memory the simulator refuses when a kernel gets it.
#ifndef MOEDLPACK_H
#define MOEDLPACK_H
#include "moelayer.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- the ABI, major version 1, and the one without versions before it
enum moe_dl_device_type { MOE_DL_CPU = 1, MOE_DL_CUDA = 2, MOE_DL_ROCM = 10, MOE_DL_CUDA_MANAGED = 13 };
enum moe_dl_code { MOE_DL_INT = 0, MOE_DL_UINT = 1, MOE_DL_FLOAT = 2, MOE_DL_BFLOAT = 4 };
enum { MOE_DL_MAJOR = 1, MOE_DL_READ_ONLY = 1 }; // version; bit of flags
struct moe_dl_tensor {                           // DLTensor
    void *data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape;
    const int64_t *strides; // in elements; NULL: dense
    uint64_t byte_offset;   // from data to the first element
};
struct moe_dl_managed { // DLManagedTensor, the capsule "dltensor"
    struct moe_dl_tensor tensor;
    void *context;
    void (*deleter)(struct moe_dl_managed *self);
};
struct moe_dl_versioned { // DLManagedTensorVersioned, the capsule "dltensor_versioned"
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct moe_dl_versioned *self);
    uint64_t flags;
    struct moe_dl_tensor tensor;
};

// ---- one tensor
struct moe_dl {          // a struct of either kind
    const void *managed; // NULL: none
    int versioned;       // 1: struct moe_dl_versioned, 0: struct moe_dl_managed
};
static inline struct moe_dl moe_dl(const struct moe_dl_managed *t)
{
    struct moe_dl r = { t, 0 };
    return r;
}
static inline struct moe_dl moe_dl_v(const struct moe_dl_versioned *t)
{
    struct moe_dl r = { t, 1 };
    return r;
}
enum { MOE_DL_ANY = -1, MOE_DL_RANK_MAX = 4 };
struct moe_dl_want {
    const char *name;               // in the error's text
    int elem;                       // enum image_elem; MOE_DL_ANY
    int rank;                       // MOE_DL_ANY: shape does not matter
    int64_t shape[MOE_DL_RANK_MAX]; // MOE_DL_ANY: so is this extent
    bool written;                   // an output
};
// MOE_ERR_ARGUMENT: it does not fit, the text is in moe_error(). ptr: of the first element; NULL if there are none.
MOE_API int moe_dl_get(struct moe_device *d, struct moe_dl t, const struct moe_dl_want *want, void **ptr);
// Bytes of its elements. Of one that moe_dl_get() took.
MOE_API size_t moe_dl_bytes(struct moe_dl t);

// ---- a layer's: names, types and shapes as in moelayer.h. What is not there stays {0}.
struct moe_dl_weights {
    size_t size; // set by the caller
    struct moe_dl gate, up, down, gate_bias, up_bias, down_bias, select_bias, shared_gate, expert_map;
};
// out->size is set by the caller; its pointers are set by this function, to NULL for what is not there.
MOE_API int moe_dl_get_weights(struct moe_device *d, const struct moe_layer_desc *desc,
                               const struct moe_dl_weights *from, struct moe_layer_weights *out);
struct moe_dl_call {
    size_t size;                        // set by the caller
    struct moe_dl x, y;                 // x says how many tokens there are
    struct moe_dl logits, ids, weights; // logits, or ids and weights
    struct moe_dl workspace;            // of any type and shape; {0}: out->workspace stays as it is
};
// Sets tokens, x, y, logits, ids, weights and the workspace; the other members of out, which the caller has set, stay.
MOE_API int moe_dl_get_call(const struct moe_layer *layer, const struct moe_dl_call *from, struct moe_layer_call *out);

#ifdef __cplusplus
}
#endif
#endif
