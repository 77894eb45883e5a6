// AMD architectures as rows of data, and the target's entry.
//
// Limits: "AMD Instinct MI300 Instruction Set Architecture" (CDNA3) and "CDNA4 Instruction Set Architecture", chapters on
// the memory hierarchy and wave state. Matrix fragments: the same manuals, "Matrix Arithmetic Instructions", dense layouts of
// one block, and AMD's matrix instruction calculator. For 32x32x8 (16-bit, 4 elements i a lane) the hardware has
//   A: row = lane % 32, k = 4 * (lane / 32) + i;  B: column alike;  D: column = lane % 32, row = 8 * (i / 4) + 4 * (lane / 32) + i % 4
// and for 16x16x16
//   A: row = lane % 16, k = 4 * (lane / 16) + i;  B: column alike;  D: column = lane % 16, row = 4 * (lane / 16) + i
// CDNA4's 32x32x16 and 16x16x32 hold 8 elements a lane: k = 8 * (lane / 32 or 16) + i; D as before.
//
// The rows below exchange A and B: the operand a of a row goes in as the hardware's B, b as its A (amd_mma), so that D comes
// out transposed: a lane holds four consecutive columns n of one row m. Those are stored in one piece, and masked once.
//
// One ds_read_b128 brings 8 consecutive k of a row. Where an instruction takes 4 (fetch_k = 2 k), the first four feed one
// instruction and the other four the next: with q the lane's k bits, instruction s multiplies columns 8 q + 4 s + i where its
// own numbering says 4 q + i. Both operands are permuted in the same way, and a dot does not see the order of its terms.
#include "amdgpu.h"

#include <string.h>

#ifndef MOE_NO_COMPILER // without it: the rows alone, for tools on machines without LLVM
#include "llvm-c/Core.h"
#include "llvm-c/Target.h"
#endif

// clang-format off
#define MFMA32_D { .row = "l0 l1 l2 l3 l4", .col = "r0 r1 l5 r2 r3" }
#define MFMA16_D { .row = "l0 l1 l2 l3", .col = "r0 r1 l4 l5" }
// 4 elements a lane, fetched 8 at a time: 16 (32x32x8) or 32 (16x16x16) columns of k a fetch.
#define MFMA32_4                                                                                                         \
    { .row = "l0 l1 l2 l3 l4", .col = "r0 r1 l5", .fetch_rows = 32, .fetch_k = 16, .fetch_bytes = 16,                    \
      .addr_row = "l0 l1 l2 l3 l4", .addr_k = "- - - l5" }
#define MFMA16_4                                                                                                         \
    { .row = "l0 l1 l2 l3", .col = "r0 r1 l4 l5", .fetch_rows = 16, .fetch_k = 32, .fetch_bytes = 16,                    \
      .addr_row = "l0 l1 l2 l3", .addr_k = "- - - l4 l5" }
// 8 elements a lane: one fetch is one operand.
#define MFMA32_8                                                                                                         \
    { .row = "l0 l1 l2 l3 l4", .col = "r0 r1 r2 l5", .fetch_rows = 32, .fetch_k = 16, .fetch_bytes = 16,                 \
      .addr_row = "l0 l1 l2 l3 l4", .addr_k = "- - - l5" }
#define MFMA16_8                                                                                                         \
    { .row = "l0 l1 l2 l3", .col = "r0 r1 r2 l4 l5", .fetch_rows = 16, .fetch_k = 32, .fetch_bytes = 16,                 \
      .addr_row = "l0 l1 l2 l3", .addr_k = "- - - l4 l5" }

#define MFMA(name_, m_, k_, in_, map, dmap, pack, cycles_, op)                                                           \
    { .name = name_, .kind = MMA_WARP, .warps = 1, .share = 1, .m = m_, .n = m_, .k = k_, .in = in_, .acc = EL_F32, .a = map, .b = map, .d = dmap, \
      .acc_pack = pack, .cycles = cycles_, .intrinsic = op }
// cycles: 4 a pass; a 32x32 takes 8 passes and a 16x16 takes 4. On CDNA4 the short k is no faster, so half the rate.
#define MFMA_K4                                                                                                          \
    MFMA("mfma_32x32x8_bf16", 32, 8, EL_BF16, MFMA32_4, MFMA32_D, 16, 32, "rocdl.mfma.f32.32x32x8bf16.1k"),              \
    MFMA("mfma_16x16x16_bf16", 16, 16, EL_BF16, MFMA16_4, MFMA16_D, 4, 16, "rocdl.mfma.f32.16x16x16bf16.1k"),            \
    MFMA("mfma_32x32x8_f16", 32, 8, EL_F16, MFMA32_4, MFMA32_D, 16, 32, "rocdl.mfma.f32.32x32x8f16"),                    \
    MFMA("mfma_16x16x16_f16", 16, 16, EL_F16, MFMA16_4, MFMA16_D, 4, 16, "rocdl.mfma.f32.16x16x16f16")

static const struct mma cdna3[] = { MFMA_K4 };
static const struct mma cdna4[] = { // the better ones first: of equals the model takes the first
    MFMA("mfma_32x32x16_bf16", 32, 16, EL_BF16, MFMA32_8, MFMA32_D, 16, 32, "rocdl.mfma.f32.32x32x16.bf16"),
    MFMA("mfma_16x16x32_bf16", 16, 32, EL_BF16, MFMA16_8, MFMA16_D, 4, 16, "rocdl.mfma.f32.16x16x32.bf16"),
    MFMA("mfma_32x32x16_f16", 32, 16, EL_F16, MFMA32_8, MFMA32_D, 16, 32, "rocdl.mfma.f32.32x32x16.f16"),
    MFMA("mfma_16x16x32_f16", 16, 32, EL_F16, MFMA16_8, MFMA16_D, 4, 16, "rocdl.mfma.f32.16x16x32.f16"),
    MFMA_K4,
};

extern const struct target amdgpu_target;
// regs: four SIMDs of 512 registers by 64 lanes, in registers of a lane times lanes.
#define AMD_COMMON                                                                                                       \
    .target = &amdgpu_target, .lanes = 64, .max_threads = 1024, .max_regs = 512, .regs = 131072, .copy = COPY_REG,       \
    .copy_bytes = 0, .triple = "amdgcn-amd-amdhsa", .features = "", .passes = "default<O2>"

const struct arch amd_arches[] = {
    { .name = "gfx942", AMD_COMMON, .shared = 65536, .shared_sm = 65536, .processors = 304, .tflops16 = 1307, .gbps = 5300,
      .cpu = "gfx942", .mmas = cdna3, .nmmas = COUNTOF(cdna3) },
    { .name = "gfx950", AMD_COMMON, .shared = 163840, .shared_sm = 163840, .processors = 256, .tflops16 = 2300, .gbps = 8000,
      .cpu = "gfx950", .flags = AMD_PERMLANE_SWAP, .mmas = cdna4, .nmmas = COUNTOF(cdna4) },
};

// clang-format on
#ifndef MOE_NO_COMPILER
static void amd_init(void)
{
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
    LLVMInitializeAMDGPUAsmParser(); // inline assembly in objects
}

static void set_attribute(LLVMValueRef f, const char *name, const char *value)
{
    LLVMContextRef c = LLVMGetModuleContext(LLVMGetGlobalParent(f));
    LLVMAttributeRef a = LLVMCreateStringAttribute(c, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

// What MLIR cannot say: the contents of a constant, and that signalling NaNs are like others, so that v_min_f32 and
// v_max_f32 ("if one is NaN, the other", both modes) need no instruction before them that quiets their operands.
void amd_annotate(void *llvm_module, const struct arch *a)
{
    static const char version[] = "amdhsa_code_object_version";
    LLVMValueRef zeros = LLVMGetNamedGlobal(llvm_module, AMD_ZEROS);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(LLVMGetModuleContext(llvm_module));
    if (a->flags & AMD_OBJECT_V5)
        LLVMAddModuleFlag(llvm_module, LLVMModuleFlagBehaviorError, version, strlen(version),
                          LLVMValueAsMetadata(LLVMConstInt(i32, 500, false)));
    for (LLVMValueRef f = LLVMGetFirstFunction(llvm_module); f; f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f))
            set_attribute(f, "amdgpu-ieee", "false");
    if (!zeros)
        return;
    LLVMSetInitializer(zeros, LLVMConstNull(LLVMGlobalGetValueType(zeros)));
    LLVMSetGlobalConstant(zeros, true);
    LLVMSetLinkage(zeros, LLVMInternalLinkage);
}
#endif

const struct target amdgpu_target = {
    .name = "amdgpu",
    .arches = amd_arches,
    .narches = AMD_ARCHES,
    .text_code = CODE_NONE,
    .binary_code = CODE_HSACO,
#ifndef MOE_NO_COMPILER
    .init = amd_init,
    .supports = arch_supports,
    .begin = amd_begin,
    .gload = amd_gload,
    .gstore = amd_gstore,
    .atomic_add = amd_atomic_add,
    .copy = amd_copy,
    .commit = amd_commit,
    .wait = amd_wait,
    .barrier = amd_barrier,
    .fragment = amd_fragment,
    .mma = amd_mma,
    .convert = amd_convert,
    .math = amd_math,
    .shuffle_xor = amd_shuffle_xor,
    .shuffle = amd_shuffle,
    .uniform = amd_uniform,
    .annotate = amd_annotate,
    .finish = amd_finish,
#endif
};
