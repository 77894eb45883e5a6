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

// cycles: Ampere's 1024 multiply-adds a clock and multiprocessor, over its four units. Hopper's and Blackwell's full rate needs
// wgmma and tcgen05, whose rows will be of kinds MMA_WARPGROUP and MMA_TENSOR (NOTES.md); nothing picks those kinds today.
#define MMA_SYNC(name_, in_, type)                                                                                       \
    { .name = name_, .kind = MMA_WARP, .m = 16, .n = 8, .k = 16, .in = in_, .acc = EL_F32, .a = M16N8K16_A, .b = M16N8K16_B, \
      .d = M16N8K16_D, .acc_pack = 1, .cycles = 8, .intrinsic = "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32" }
static const struct mma mmas[] = {
    MMA_SYNC("m16n8k16_bf16", EL_BF16, "bf16"),
    MMA_SYNC("m16n8k16_f16", EL_F16, "f16"),
};

#define NV_COMMON                                                                                                        \
    .target = &nvptx_target, .lanes = 32, .max_threads = 1024, .max_regs = 255, .regs = 65536, .copy = COPY_ASYNC,       \
    .copy_bytes = 16, .shared_kept = 1024, .mmas = mmas, .nmmas = COUNTOF(mmas), .triple = "nvptx64-nvidia-cuda",      \
    .passes = "early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),gvn,instcombine<no-verify-fixpoint>"

extern const struct target nvptx_target;
// tflops16: what mma.sync reaches on the part (sm_100a: an estimate), not what wgmma or tcgen05 could. copy: cp.async
// everywhere; the rows of sm_90a and sm_100a become COPY_BULK once layout and emit know TMA.
const struct arch nv_arches[] = {
    { .name = "sm_80", NV_COMMON, .shared = 166912, .shared_sm = 167936, .processors = 108, .tflops16 = 312, .gbps = 2039,
      .cpu = "sm_80", .features = "+ptx78" },
    { .name = "sm_90a", NV_COMMON, .shared = 232448, .shared_sm = 233472, .processors = 132, .tflops16 = 620, .gbps = 4800,
      .cpu = "sm_90a", .features = "+ptx86" },
    { .name = "sm_100a", NV_COMMON, .shared = 232448, .shared_sm = 233472, .processors = 148, .tflops16 = 620, .gbps = 8000,
      .cpu = "sm_100a", .features = "+ptx88" },
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
    .convert = nv_convert,
    .math = nv_math,
    .shuffle_xor = nv_shuffle_xor,
    .shuffle = nv_shuffle,
    .finish = nv_finish,
#endif
};
