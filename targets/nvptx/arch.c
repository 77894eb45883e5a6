// NVIDIA architectures as rows of data, and the target's entry.
//
// Limits: CUDA C Programming Guide 13.0, "Compute Capabilities". Matrix fragments: PTX ISA 9.0, section "Matrix Fragments
// for mma.m16n8k16 with floating point type" (with group = lane >> 2, pair = lane & 3):
//   a0..a7: row = group + 8 * (i in {2,3,6,7}), k = pair * 2 + (i & 1) + 8 * (i >= 4)
//   b0..b3: k = pair * 2 + (i & 1) + 8 * (i >= 2), n = group
//   d0..d3: row = group + 8 * (i >= 2), n = pair * 2 + (i & 1)
// ldmatrix (PTX ISA, "Warp-level matrix load instruction"): lanes 8j..8j+7 name the rows of matrix j, which arrives in
// register j, lane l holding row l / 4, columns 2 (l % 4) and the next.
#include "nvptx.h"

#ifndef MOE_NO_COMPILER // without it: the rows alone, for tools on machines without LLVM
#include "llvm-c/Target.h"
#endif

// clang-format off
// The four matrices of a: (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15).
#define M16N8K16_A                                                                                                       \
    { .row = "l2 l3 l4 r1", .col = "r0 l0 l1 r2", .fetch_rows = 16, .fetch_k = 16, .fetch_bytes = 16,                    \
      .addr_row = "l0 l1 l2 l3", .addr_k = "- - - l4" }
// Two instructions' b at once: (n 0-7, k 0-7), (n 0-7, k 8-15), (n 8-15, k 0-7), (n 8-15, k 8-15).
#define M16N8K16_B                                                                                                       \
    { .row = "l2 l3 l4", .col = "r0 l0 l1 r1", .fetch_rows = 16, .fetch_k = 16, .fetch_bytes = 16,                       \
      .addr_row = "l0 l1 l2 l4", .addr_k = "- - - l3" }
#define M16N8K16_D { .row = "l2 l3 l4 r1", .col = "r0 l0 l1" }

// cycles: 1024 multiply-adds a clock and multiprocessor on Ampere, over its four units; wgmma twice that, all units together.
#define MMA_SYNC(name_, in_, type, share_)                                                                               \
    { .name = name_, .kind = MMA_WARP, .warps = 1, .m = 16, .n = 8, .k = 16, .in = in_, .acc = EL_F32, .a = M16N8K16_A,  \
      .b = M16N8K16_B, .d = M16N8K16_D, .acc_pack = 1, .cycles = 8, .share = share_,                                     \
      .intrinsic = "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32" }

// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": d of m64nNk16, register 4 j + 2 h + i of lane l of the
// warpgroup's warp w: row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + i. a and b are read from shared memory: 64 (N) rows of k.
#define WGMMA(n_, cols, in_, type)                                                                                       \
    { .name = "m64n" #n_ "k16_" type, .kind = MMA_WARPGROUP, .warps = 4, .m = 64, .n = n_, .k = 16, .in = in_,           \
      .acc = EL_F32, .a = { .fetch_rows = 64, .fetch_k = 16, .addr_row = "", .addr_k = "" },                             \
      .b = { .fetch_rows = n_, .fetch_k = 16, .addr_row = "", .addr_k = "" },                                            \
      .d = { .row = "l2 l3 l4 r1 w0 w1", .col = "r0 l0 l1" cols }, .acc_pack = 1, .cycles = n_ / 2, .share = 0.8,            \
      .intrinsic = "wgmma.mma_async.sync.aligned.m64n" #n_ "k16.f32." type "." type }
#define WGMMAS(in, type)                                                                                                 \
    WGMMA(256, " r2 r3 r4 r5 r6", in, type), WGMMA(128, " r2 r3 r4 r5", in, type), WGMMA(64, " r2 r3 r4", in, type),     \
        WGMMA(32, " r2 r3", in, type), WGMMA(16, " r2", in, type), WGMMA(8, "", in, type)

static const struct mma ampere[] = {
    MMA_SYNC("m16n8k16_bf16", EL_BF16, "bf16", 1),
    MMA_SYNC("m16n8k16_f16", EL_F16, "f16", 1),
};
static const struct mma hopper[] = {
    MMA_SYNC("m16n8k16_bf16", EL_BF16, "bf16", 0.63),
    MMA_SYNC("m16n8k16_f16", EL_F16, "f16", 0.63),
    WGMMAS(EL_BF16, "bf16"),
    WGMMAS(EL_F16, "f16"),
};

#define NV_COMMON                                                                                                        \
    .target = &nvptx_target, .lanes = 32, .max_threads = 1024, .max_regs = 255, .regs = 65536,       \
    .copy_bytes = 16, .shared_kept = 1024, .triple = "nvptx64-nvidia-cuda",                                             \
    .passes = "early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),gvn,instcombine<no-verify-fixpoint>"

extern const struct target nvptx_target;
// tflops16 of sm_100a: an estimate of what mma.sync reaches; tcgen05 will be of kind MMA_TENSOR (NOTES.md), which is emitted
// nowhere yet.
#define MMAS(rows) .mmas = rows, .nmmas = COUNTOF(rows)
const struct arch nv_arches[] = {
    { .name = "sm_80", NV_COMMON, MMAS(ampere), .shared = 166912, .shared_sm = 167936, .processors = 108, .tflops16 = 312,
      .gbps = 2039, .cpu = "sm_80", .features = "+ptx78", .copy = COPY_ASYNC },
    { .name = "sm_90a", NV_COMMON, MMAS(hopper), .shared = 232448, .shared_sm = 233472, .processors = 132, .tflops16 = 989,
      .gbps = 4800, .cpu = "sm_90a", .features = "+ptx86", .copy = COPY_BULK, .dependent = true },
    { .name = "sm_100a", NV_COMMON, MMAS(ampere), .shared = 232448, .shared_sm = 233472, .processors = 148, .tflops16 = 620,
      .gbps = 8000, .cpu = "sm_100a", .features = "+ptx88", .copy = COPY_ASYNC, .dependent = true },
};

// clang-format on
#ifndef MOE_NO_COMPILER
static void nv_init(void)
{
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}
#endif

const struct target nvptx_target = {
    .name = "nvptx",
    .arches = nv_arches,
    .narches = NV_ARCHES,
    .text_code = CODE_PTX,
    .binary_code = CODE_CUBIN,
#ifndef MOE_NO_COMPILER
    .init = nv_init,
    .supports = arch_supports,
    .begin = nv_begin,
    .gload = nv_gload,
    .gstore = nv_gstore,
    .atomic_add = nv_atomic_add,
    .copy = nv_copy,
    .commit = nv_commit,
    .wait = nv_wait,
    .barrier = nv_barrier,
    .fragment = nv_fragment,
    .mma = nv_mma,
    .mma_open = nv_mma_open,
    .mma_commit = nv_mma_commit,
    .mma_wait = nv_mma_wait,
    .barrier_init = nv_barrier_init,
    .barrier_ready = nv_barrier_ready,
    .barrier_arrive = nv_barrier_arrive,
    .barrier_await = nv_barrier_await,
    .copy_box = nv_copy_box,
    .role_begin = nv_role_begin,
    .map_argument = "llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant",
    .depend = nv_depend,
    .grid_size = nv_grid_size,
    .convert = nv_convert,
    .math = nv_math,
    .shuffle_xor = nv_shuffle_xor,
    .shuffle = nv_shuffle,
    .finish = nv_finish,
#endif
};
