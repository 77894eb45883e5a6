// The image: what the compiler writes and the runtime loads. This header is the manual of the format and the only
// contract between the two; it is installed, so that others may write or read images.
//
//   writing   fill struct image_desc; moe_image_size() says how many bytes; moe_image_write() writes them
//   reading   moe_image_read() checks everything, then gives the same struct image_desc, pointing into the bytes
//
// Reading is safe on any bytes: sizes, offsets, counts, strings, indices and programs are checked before use, and a
// refusal names what is wrong. The checksum finds damage, not malice: it says nothing about what the code does.
//
// Thread-safe; no global state; nothing prints or exits. Only moe_image_read() allocates: once, with malloc.
#ifndef MOE_IMAGE_H
#define MOE_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOE_IMAGE_API __attribute__((visibility("default")))
#else
#define MOE_IMAGE_API
#endif

enum {
    IMAGE_VERSION = 4,
    IMAGE_ERR_MAX = 256, // bytes of an error text, its NUL included
    // Limits of the format; a writer that exceeds one gets an error, a reader refuses.
    IMAGE_KERNELS_MAX = 1024,
    IMAGE_PARAMS_MAX = 64,
    IMAGE_DIMS_MAX = 64,
    IMAGE_CLAUSES_MAX = 8,
    IMAGE_AXES_MAX = 256,
    IMAGE_BOXES_MAX = 16,  // of a kernel
    IMAGE_BOX_MAX = 256,   // rows and columns of a box
    IMAGE_MAP_BYTES = 128, // of a tensor map,
    IMAGE_MAP_ALIGN = 64,  // and its alignment
    IMAGE_RANK_MAX = 4,
    IMAGE_TERMS_MAX = 32, // of one expression
    IMAGE_STACK_MAX = 16, // values that an expression keeps at once
    IMAGE_STRING_MAX = 8192,
};

// Numbers below are part of the format: never renumber, only add.
enum image_code { IMAGE_NONE = 0, IMAGE_PTX = 1, IMAGE_CUBIN = 2, IMAGE_HSACO = 3 };
enum image_elem { IMAGE_I32 = 1, IMAGE_F32 = 2, IMAGE_BF16 = 3, IMAGE_F16 = 4 };
enum image_param_kind { IMAGE_IN = 1, IMAGE_OUT = 2, IMAGE_INOUT = 3, IMAGE_MAP = 4, IMAGE_SCALAR = 5 };
enum image_clause_kind { IMAGE_TILE = 1, IMAGE_EACH = 2, IMAGE_IN_MAP = 3 };

// An integer expression over constants, dims and scalar i32 parameters, as a postfix program.
// Values are exact in 64 bits (overflow is an error); division truncates towards zero; x / 0 and x % 0 are 0.
enum image_term_code {
    IMAGE_T_CONST = 1, // pushes value
    IMAGE_T_DIM = 2,   // pushes the dimension with index value
    IMAGE_T_PARAM = 3, // pushes the scalar i32 parameter with index value
    IMAGE_T_ADD = 4,
    IMAGE_T_SUB = 5,
    IMAGE_T_MUL = 6,
    IMAGE_T_DIV = 7,
    IMAGE_T_MIN = 8,
    IMAGE_T_MAX = 9,
    IMAGE_T_REM = 10, // pop b, pop a, push a op b
};
struct image_term {
    enum image_term_code code;
    int64_t value;
};
struct image_expr {
    int n;
    struct image_term t[IMAGE_TERMS_MAX];
};

struct image_dim {
    const char *name;
    int64_t bound;    // >= 0: fixed at compile time. -1: free, an i32 kernel argument
    int64_t multiple; // the value must be a multiple of it; at least 1
    int64_t max;      // the value may not exceed it; at most INT32_MAX
};
struct image_extent { // one entry of a shape
    int dim;          // index into dims; -1: the constant `value`
    int64_t value;
};
struct image_param {
    const char *name;
    enum image_param_kind kind;
    enum image_elem elem; // of a map: IMAGE_I32
    int rank;             // tensors 0..4; of a map 2: [N, 4]; of a scalar 0
    int align;            // required alignment of the pointer, a power of two (writing: 0 means 16); scalars 4
    struct image_extent shape[IMAGE_RANK_MAX]; // row-major, contiguous
    // (IN and MAP only) May be read before the kernel launched before this one has finished. A kernel with at least one early
    // parameter contains griddepcontrol.wait (PTX ISA) before it touches anything else (each thread that does so, and at least
    // one of every launch), and griddepcontrol.launch_dependents at its start; a kernel without early parameters has neither
    // and must be launched in the ordinary way, as all must where the architecture lacks these instructions (NVIDIA's before
    // 9.0, AMD's). A launch may start before the one before it in its stream has finished, only if no early parameter is
    // written by any launch since the last ordinary one, that one among them (moe_image_dependent()).
    bool early;
};
// The grid is one-dimensional; its size is the product of the extents of the clauses.
//   TILE    ceil((hi - lo) / size)     EACH    hi - lo     IN_MAP  rows of the map, shape[0] of the parameter `map`
// An extent below zero counts as zero; a grid of zero blocks is nothing to launch.
struct image_clause {
    enum image_clause_kind kind;
    const char *name;         // the axis (TILE, IN_MAP) or the counter (EACH)
    int size;                 // TILE and IN_MAP: the tile's extent
    int map;                  // IN_MAP: index of the parameter; else -1
    struct image_expr lo, hi; // TILE, EACH; IN_MAP: n = 0
};
struct image_axis { // tile sizes by axis name, for choosing among variants
    const char *name;
    int size;
};
// How the copy engine sees a tensor parameter: in boxes of `rows` x `cols` elements of its last two dimensions (rank 1: rows is
// 1), one position in the others. What lies outside the tensor is read as zeros and not written. A row of a box is a multiple of
// 16 bytes; with a swizzle no more than that is wide.
struct image_box {
    int param;      // index of an IN, OUT or INOUT parameter of rank 1 and up, aligned to 16 bytes or more
    int rows, cols; // 1..IMAGE_BOX_MAX
    int swizzle;    // of the box in shared memory. 0: none; 1, 2, 3: over 32, 64, 128 bytes
};
// Kernel arguments, in this order: one a parameter (tensors and maps: device pointers; scalars: 4 bytes), then the
// free dims (bound < 0) in the order of `dims`, 4 bytes each, then a tensor map a box in the order of `boxes`, IMAGE_MAP_BYTES
// each, by value (PTX: .param .align 64 .b8 [128], only read: __grid_constant__).
struct image_kernel {
    const char *name;                             // as in the source: "gate_up"
    const char *variant;                          // "" if there is but one: "r128"
    const char *symbol;                           // in the code: "gate_up_r128"
    const char *doc;                              // the comment above the kernel, or ""
    int threads;                                  // of a block, warps that only copy among them
    int64_t shared;                               // dynamic shared bytes of a block
    int regs;                                     // registers of a thread; 0: unknown
    int warps_m, warps_n, stages, group, cluster; // of the schedule, 0: not stated; cluster > 1: blocks of a cluster
    // By the compiler's model, for choosing among variants: the time that a block keeps its multiprocessor, in all and for one
    // position of its main loop (of the axis that is summed over), while `resident` blocks share it and data come from L2; and the bytes of the second operand
    // (weights) that these blocks keep in flight. 0: not known.
    int fixed_ns, step_ps, resident, flight;
    // Blocks take tile after tile of the grid: block b of n the tiles b, b + n, b + 2n, ... At most `resident` (at least 1) a
    // multiprocessor are launched, never more than there are tiles, so that all of them are there at once.
    bool persistent;
    int nparams, ndims, nclauses, naxes;
    const struct image_param *params;
    const struct image_dim *dims;
    const struct image_clause *clauses;
    const struct image_axis *axes;
    int nboxes;
    const struct image_box *boxes;
};
struct image_desc {
    const char *arch;     // "sm_90a"
    const char *compiler; // name and version of who wrote it
    enum image_code kind; // of `code`
    int gbps;             // bytes a ns from memory of the common part of this arch (model); 0: not known
    const void *code;
    size_t code_size;
    const void *ptx; // optional, beside a cubin: the text it was made from
    size_t ptx_size;
    const void *bitcode; // optional: the LLVM module, for the simulator
    size_t bitcode_size;
    int nkernels;
    const struct image_kernel *kernels;
};

// ---- writing
// Bytes that moe_image_write() will write. 0 if a limit above is exceeded (then moe_image_write() says which).
MOE_IMAGE_API size_t moe_image_size(const struct image_desc *d);
// Writes exactly moe_image_size() bytes; no allocation; the same description gives the same bytes. What it writes has
// passed moe_image_check(). NULL strings are written as "". false: err says what is wrong with the description.
MOE_IMAGE_API bool moe_image_write(const struct image_desc *d, void *bytes, size_t size, char err[IMAGE_ERR_MAX]);

// ---- reading
// Checks everything, allocates nothing. false: err names what is wrong and where.
MOE_IMAGE_API bool moe_image_check(const void *bytes, size_t size, char err[IMAGE_ERR_MAX]);
// As moe_image_check(), then builds the description in one block from malloc: free(the result). Strings and blobs
// point into `bytes`, which must stay. Code, PTX and bitcode are each followed by at least one zero byte. NULL: err.
MOE_IMAGE_API struct image_desc *moe_image_read(const void *bytes, size_t size, char err[IMAGE_ERR_MAX]);

// ---- using a description
// dims: one value a dim; scalars: one value a parameter (only scalar i32 parameters are looked at).
// false: overflow, or a malformed program (never one from moe_image_read).
MOE_IMAGE_API bool moe_image_eval(const struct image_expr *e, const int64_t *dims, const int64_t *scalars,
                                  int64_t *out);
// The size of the grid: blocks of a launch; of a persistent kernel the tiles that they take. false: err, naming the clause.
MOE_IMAGE_API bool moe_image_grid(const struct image_kernel *k, const int64_t *dims, const int64_t *scalars,
                                  int64_t *blocks, char err[IMAGE_ERR_MAX]);
// May launches of it start before the one before has finished? Any early parameter.
MOE_IMAGE_API bool moe_image_dependent(const struct image_kernel *k);
// The value of entry i of a shape, all dims given.
static inline int64_t moe_image_extent(const struct image_extent *e, const int64_t *dims)
{
    return e->dim < 0 ? e->value : dims[e->dim];
}
MOE_IMAGE_API int moe_image_elem_bytes(enum image_elem e);        // 0 if unknown
MOE_IMAGE_API const char *moe_image_elem_name(enum image_elem e); // "bf16"; "?" if unknown
MOE_IMAGE_API const char *moe_image_code_name(enum image_code k); // "ptx" "cubin" "hsaco" "none"; "?" if unknown
MOE_IMAGE_API int moe_image_axis(const struct image_kernel *k, const char *name); // its tile size; 0: no such axis
// The launch facts as text, a line at a time through put (n bytes, a newline last), for dumps and `moerun info`.
// kernel NULL: all. Sizes of code appear only with `sizes`, so that the text can be compared across compiler builds.
MOE_IMAGE_API void moe_image_describe(const struct image_desc *d, const char *kernel, bool sizes,
                                      void (*put)(void *user, const char *s, size_t n), void *user);

// ---- the bytes (all integers little-endian)
//   0  char[8] "MOEIMG\r\n"        8 u32 version           12 u32 bytes of this header (224)
//  16  u64 total bytes            24 u64 checksum of all bytes but these eight: FNV-1a 64 over
//      little-endian words of 8 bytes (the last filled up with zeros), h ^= h >> 32 after each product
//  32  u32 code kind              36 u32 model: bytes a ns
//  40  u32 arch, 44 u32 compiler: offsets in the strings
//  48  11 sections, each u64 offset, u64 bytes: code, ptx, bitcode, strings, kernels, params, dims, clauses, axes,
//      terms, boxes
// Sections lie in that order from byte 224 on; each starts at the next multiple of 16 after at least one zero byte
// that follows the section before; the gaps are zeros. The strings begin with a NUL, and each ends with one. Records:
// kernel 112, param 56, dim 32, clause 32, axis 8, term 16, box 16 bytes; see image.c, "record".
#ifdef __cplusplus
}
#endif
#endif
