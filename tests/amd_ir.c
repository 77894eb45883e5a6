// The interpreter of AMD LLVM IR of the tests: from LLVM's module to arrays of `struct insn`. What is not understood is refused
// when the module is loaded, by name.
#include "amd_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llvm-c/Core.h"
#include "llvm-c/IRReader.h"
#include "llvm-c/Target.h"

struct slot {
    LLVMValueRef v;
    int at; // register, or ~constant
};
struct reader {
    struct ir *p;
    LLVMTargetDataRef layout;
    struct slot *slots; // a hash table
    int nslots, cap;
    LLVMBasicBlockRef *blocks;
    int *starts, nblocks;
    bool ok;
};

static bool refuse(struct reader *r, const char *why, LLVMValueRef v)
{
    char *s = LLVMPrintValueToString(v);
    fprintf(stderr, "amd_sim: %s: %s: %.200s\n", r->p->head.name, why, s);
    LLVMDisposeMessage(s);
    return r->ok = false;
}

// ---- types -------------------------------------------------------------------------------------------------------

static struct shape shape_of(struct reader *r, LLVMTypeRef t)
{
    struct shape s = { W_INT, 1, 64 };
    switch (LLVMGetTypeKind(t)) {
    case LLVMVoidTypeKind: s.n = 0; return s;
    case LLVMIntegerTypeKind: s.bits = (int)LLVMGetIntTypeWidth(t); return s;
    case LLVMFloatTypeKind: return (struct shape){ W_F32, 1, 32 };
    case LLVMBFloatTypeKind: return (struct shape){ W_BF16, 1, 16 };
    case LLVMHalfTypeKind: return (struct shape){ W_F16, 1, 16 };
    case LLVMPointerTypeKind:
        s.word = W_PTR;
        s.n = LLVMGetPointerAddressSpace(t) == 8 ? 2 : 1;
        s.bits = LLVMGetPointerAddressSpace(t) == 3 ? 32 : 64;
        return s;
    case LLVMVectorTypeKind:
        s = shape_of(r, LLVMGetElementType(t));
        s.n = (int)LLVMGetVectorSize(t);
        return s;
    case LLVMStructTypeKind: // of equal members
        s = shape_of(r, LLVMStructGetTypeAtIndex(t, 0));
        s.n *= (int)LLVMCountStructElementTypes(t);
        return s;
    default: break;
    }
    r->ok = false;
    return s;
}

// ---- values ------------------------------------------------------------------------------------------------------

static struct slot *find(struct reader *r, LLVMValueRef v)
{
    size_t h = ((uintptr_t)v >> 4) * 2654435761u % (size_t)r->cap;
    while (r->slots[h].v && r->slots[h].v != v)
        h = (h + 1) % (size_t)r->cap;
    return &r->slots[h];
}

static void remember(struct reader *r, LLVMValueRef v, int at)
{
    if (++r->nslots * 2 > r->cap) {
        struct slot *old = r->slots;
        int n = r->cap;
        r->cap = n ? 2 * n : 1024;
        r->slots = calloc((size_t)r->cap, sizeof *r->slots);
        for (int i = 0; i < n; i++)
            if (old[i].v)
                *find(r, old[i].v) = old[i];
        free(old);
    }
    *find(r, v) = (struct slot){ v, at };
}

static int new_register(struct reader *r, LLVMValueRef v)
{
    int at = r->p->nregs;
    r->p->nregs += shape_of(r, LLVMTypeOf(v)).n;
    remember(r, v, at);
    return at;
}

static uint8_t zeros[256] __attribute__((aligned(256))); // what constants in global memory hold

static uint64_t word_of(struct reader *r, LLVMValueRef v)
{
    if (LLVMIsAConstantInt(v)) {
        struct shape s = shape_of(r, LLVMTypeOf(v));
        uint64_t u = LLVMConstIntGetZExtValue(v);
        return s.bits < 64 ? u & (((uint64_t)1 << s.bits) - 1) : u;
    }
    if (LLVMIsAConstantFP(v)) {
        LLVMBool lost;
        float f = (float)LLVMConstRealGetDouble(v, &lost);
        enum word w = shape_of(r, LLVMTypeOf(v)).word;
        return w == W_BF16 ? sim_to_bf16(f) : w == W_F16 ? sim_to_f16(f) : sim_bits(f);
    }
    if (LLVMIsNull(v))
        return 0;
    if (LLVMIsUndef(v) || LLVMIsPoison(v))
        return 0x5a5a5a5a5a5a5a5a;
    if (LLVMIsAGlobalVariable(v)) {
        struct shape s = shape_of(r, LLVMTypeOf(v));
        int64_t bytes = (int64_t)LLVMABISizeOfType(r->layout, LLVMGlobalGetValueType(v));
        if (s.bits == 32) { // the kernel's LDS, at 0
            r->p->lds_bytes = (int)bytes;
            return 0;
        }
        if (LLVMIsNull(LLVMGetInitializer(v)) && LLVMIsGlobalConstant(v) && bytes <= (int64_t)sizeof zeros)
            return (uintptr_t)zeros;
    }
    if (LLVMIsAConstantExpr(v) && LLVMGetConstOpcode(v) == LLVMGetElementPtr && LLVMGetNumOperands(v) == 2)
        return word_of(r, LLVMGetOperand(v, 0)) + (uint64_t)LLVMConstIntGetSExtValue(LLVMGetOperand(v, 1)) *
                                                      LLVMABISizeOfType(r->layout, LLVMGetGEPSourceElementType(v));
    if (LLVMIsAConstantExpr(v) && LLVMGetConstOpcode(v) == LLVMPtrToInt)
        return word_of(r, LLVMGetOperand(v, 0));
    refuse(r, "constant", v);
    return 0;
}

static int constant(struct reader *r, LLVMValueRef v)
{
    struct shape s = shape_of(r, LLVMTypeOf(v));
    struct ir *p = r->p;
    int at = p->nconstants;
    p->constants = realloc(p->constants, sizeof *p->constants * (size_t)(p->nconstants + s.n));
    p->nconstants += s.n;
    for (int i = 0; i < s.n; i++) {
        LLVMValueRef e =
            LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind ? LLVMGetAggregateElement(v, (unsigned)i) : v;
        p->constants[at + i] = e ? word_of(r, e) : 0x5a5a5a5a5a5a5a5a;
    }
    remember(r, v, ~at);
    return ~at;
}

static int operand(struct reader *r, LLVMValueRef v)
{
    struct slot *s = r->cap ? find(r, v) : NULL;
    if (s && s->v)
        return s->at;
    return LLVMIsConstant(v) ? constant(r, v) : (refuse(r, "value", v), 0);
}

// ---- instructions ------------------------------------------------------------------------------------------------

static void operands(struct reader *r, struct insn *x, LLVMValueRef v, int n)
{
    if (n > ARGS) {
        refuse(r, "too many operands", v);
        return;
    }
    x->nops = n;
    for (int i = 0; i < n; i++)
        x->op[i] = operand(r, LLVMGetOperand(v, (unsigned)i));
    if (n)
        x->from = shape_of(r, LLVMTypeOf(LLVMGetOperand(v, 0)));
}

static const struct {
    const char *name;
    enum ir_code code;
} intrinsics[] = {
    { "llvm.amdgcn.workitem.id.x", X_TID },
    { "llvm.amdgcn.workgroup.id.x", X_BLOCK },
    { "llvm.amdgcn.s.barrier", X_BARRIER },
    { "llvm.amdgcn.sched.barrier", X_NOP },
    { "llvm.amdgcn.iglp.opt", X_NOP },
    { "llvm.assume", X_NOP },
    { "llvm.amdgcn.make.buffer.rsrc.", X_RSRC },
    { "llvm.amdgcn.raw.ptr.buffer.load.", X_BUFLOAD },
    { "llvm.amdgcn.raw.ptr.buffer.store.", X_BUFSTORE },
    { "llvm.amdgcn.raw.ptr.buffer.atomic.add.", X_BUFATOMIC },
    { "llvm.amdgcn.raw.ptr.buffer.atomic.fadd.", X_BUFATOMIC },
    { "llvm.amdgcn.readfirstlane.", X_READFIRST },
    { "llvm.amdgcn.readlane.", X_READLANE },
    { "llvm.amdgcn.update.dpp.", X_DPP },
    { "llvm.amdgcn.ds.swizzle", X_SWIZZLE },
    { "llvm.amdgcn.ds.bpermute", X_BPERMUTE },
    { "llvm.amdgcn.permlane16.swap", X_SWAP16 },
    { "llvm.amdgcn.permlane32.swap", X_SWAP32 },
    { "llvm.amdgcn.mfma.f32.", X_MFMA },
    { "llvm.amdgcn.exp2.f32", X_EXP2 },
    { "llvm.amdgcn.rcp.f32", X_RCP },
    { "llvm.smin.", X_SMIN },
    { "llvm.smax.", X_SMAX },
    { "llvm.umin.", X_UMIN },
    { "llvm.umax.", X_UMAX },
    { "llvm.abs.", X_ABS },
    { "llvm.fshl.", X_FSHL },
    { "llvm.fshr.", X_FSHR },
    { "llvm.usub.sat.", X_USUBSAT },
    { "llvm.fabs.", X_FABS },
    { "llvm.minnum.", X_FMIN },
    { "llvm.maxnum.", X_FMAX },
    { "llvm.fma.", X_FMA },
    { "llvm.floor.", X_FLOOR },
    { "llvm.sqrt.", X_SQRT },
    { "llvm.log2.", X_LOG2 },
    { "llvm.fptosi.sat.i32.", X_FPTOSISAT },
    { "llvm.vector.reduce.add.", X_ADD },
    { "llvm.vector.reduce.and.", X_AND },
    { "llvm.vector.reduce.or.", X_OR },
    { "llvm.vector.reduce.xor.", X_XOR },
    { "llvm.vector.reduce.smax.", X_SMAX },
    { "llvm.vector.reduce.smin.", X_SMIN },
    { "llvm.vector.reduce.umax.", X_UMAX },
    { "llvm.vector.reduce.umin.", X_UMIN },
    { "llvm.vector.reduce.fmax.", X_FMAX },
    { "llvm.vector.reduce.fmin.", X_FMIN },
};

static int bytes_of(const struct shape *s)
{
    return s->n * s->bits / 8;
}

// "llvm.amdgcn.mfma.f32.32x32x8bf16.1k"
static void read_mfma(struct reader *r, struct insn *x, const char *name, LLVMValueRef v)
{
    int n = 0;
    char type[8] = "";
    if (sscanf(name, "llvm.amdgcn.mfma.f32.%dx%dx%d%*[.]%7[a-z]", &x->mfma_m, &n, &x->mfma_k, type) != 4 &&
        sscanf(name, "llvm.amdgcn.mfma.f32.%dx%dx%d%7[a-z]", &x->mfma_m, &n, &x->mfma_k, type) != 4)
        refuse(r, "matrix instruction", v);
    x->mfma_half = type[0] == 'f';
    if (n != x->mfma_m || (n != 32 && n != 16) || x->to.n != n * n / LANES64 || x->from.n != n * x->mfma_k / LANES64)
        refuse(r, "matrix instruction", v);
}

static void read_call(struct reader *r, struct insn *x, LLVMValueRef v)
{
    size_t len;
    LLVMValueRef f = LLVMGetCalledValue(v);
    const char *name = LLVMIsAFunction(f) ? LLVMGetValueName2(f, &len) : "";
    int n = (int)LLVMGetNumArgOperands(v);
    for (size_t i = 0; i < sizeof intrinsics / sizeof *intrinsics; i++) {
        if (strncmp(name, intrinsics[i].name, strlen(intrinsics[i].name)) != 0)
            continue;
        bool reduces = !strncmp(name, "llvm.vector.reduce.", 19);
        x->code = reduces ? X_REDUCE : intrinsics[i].code;
        x->sub = intrinsics[i].code;
        if (x->code == X_NOP)
            return;
        operands(r, x, v, n > 3 && x->code == X_DPP ? 3 : n);
        x->real = strstr(name, ".fadd.") != NULL;
        x->bytes = bytes_of(x->code == X_BUFLOAD ? &x->to : &x->from);
        if (x->code == X_MFMA)
            read_mfma(r, x, name, v);
        return;
    }
    refuse(r, "call", v);
}

static void read_gep(struct reader *r, struct insn *x, LLVMValueRef v)
{
    LLVMTypeRef t = LLVMGetGEPSourceElementType(v);
    int n = LLVMGetNumOperands(v), kept = 1;
    x->code = X_GEP;
    operands(r, x, v, 1);
    for (int i = 1; i < n; i++) {
        LLVMValueRef index = LLVMGetOperand(v, (unsigned)i);
        if (i > 1) {
            if (LLVMGetTypeKind(t) != LLVMArrayTypeKind) {
                refuse(r, "getelementptr", v);
                return;
            }
            t = LLVMGetElementType(t);
        }
        int64_t size = (int64_t)LLVMABISizeOfType(r->layout, t);
        if (LLVMIsAConstantInt(index)) {
            x->offset += size * LLVMConstIntGetSExtValue(index);
            continue;
        }
        if (shape_of(r, LLVMTypeOf(index)).bits < x->to.bits) // would need its sign
            refuse(r, "narrow index", v);
        x->op[kept] = operand(r, index);
        x->scale[kept++] = size;
    }
    x->nops = kept;
}

static void read_memory(struct reader *r, struct insn *x, LLVMValueRef v, LLVMOpcode o)
{
    LLVMValueRef p = LLVMGetOperand(v, o == LLVMStore);
    x->code = o == LLVMLoad ? X_LOAD : o == LLVMStore ? X_STORE : X_ATOMIC;
    operands(r, x, v, LLVMGetNumOperands(v));
    x->lds = LLVMGetPointerAddressSpace(LLVMTypeOf(p)) == 3;
    x->bytes = bytes_of(o == LLVMLoad ? &x->to : &x->from);
    x->access = r->p->naccesses;
    r->p->naccesses += x->lds && x->bytes == 16;
    if (o != LLVMAtomicRMW)
        return;
    LLVMAtomicRMWBinOp op = LLVMGetAtomicRMWBinOp(v);
    x->real = op == LLVMAtomicRMWBinOpFAdd;
    if (op != LLVMAtomicRMWBinOpAdd && !x->real)
        refuse(r, "atomic", v);
}

static void read_arrangement(struct reader *r, struct insn *x, LLVMValueRef v, LLVMOpcode o)
{
    operands(r, x, v, LLVMGetNumOperands(v));
    x->code = o == LLVMExtractElement ? X_EXTRACT : o == LLVMInsertElement ? X_INSERT : X_SHUFFLE;
    if (o == LLVMExtractValue) {
        x->code = X_FIELD;
        x->first = (int)LLVMGetIndices(v)[0] * x->to.n;
    }
    if (o != LLVMShuffleVector)
        return;
    x->mask = calloc((size_t)x->to.n, sizeof *x->mask);
    for (int i = 0; i < x->to.n; i++)
        x->mask[i] = LLVMGetMaskValue(v, (unsigned)i);
}

static enum ir_code plain(LLVMOpcode o)
{
    static const struct {
        LLVMOpcode from;
        enum ir_code to;
    } t[] = {
        { LLVMAdd, X_ADD },       { LLVMSub, X_SUB },         { LLVMMul, X_MUL },       { LLVMUDiv, X_UDIV },
        { LLVMSDiv, X_SDIV },     { LLVMURem, X_UREM },       { LLVMSRem, X_SREM },     { LLVMShl, X_SHL },
        { LLVMLShr, X_LSHR },     { LLVMAShr, X_ASHR },       { LLVMAnd, X_AND },       { LLVMOr, X_OR },
        { LLVMXor, X_XOR },       { LLVMFAdd, X_FADD },       { LLVMFSub, X_FSUB },     { LLVMFMul, X_FMUL },
        { LLVMFDiv, X_FDIV },     { LLVMFNeg, X_FNEG },       { LLVMTrunc, X_TRUNC },   { LLVMZExt, X_ZEXT },
        { LLVMSExt, X_SEXT },     { LLVMSIToFP, X_SITOFP },   { LLVMUIToFP, X_UITOFP }, { LLVMFPTrunc, X_FPTRUNC },
        { LLVMFPExt, X_FPEXT },   { LLVMICmp, X_ICMP },       { LLVMFCmp, X_FCMP },     { LLVMSelect, X_SELECT },
        { LLVMPtrToInt, X_COPY }, { LLVMIntToPtr, X_COPY },   { LLVMFreeze, X_COPY },   { LLVMBitCast, X_BITCAST },
        { LLVMFence, X_NOP },     { LLVMUnreachable, X_RET }, { LLVMRet, X_RET },       { LLVMAddrSpaceCast, X_COPY },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (t[i].from == o)
            return t[i].to;
    return X_BRANCH; // none
}

static void read_instruction(struct reader *r, struct insn *x, LLVMValueRef v)
{
    LLVMOpcode o = LLVMGetInstructionOpcode(v);
    x->text = LLVMPrintValueToString(v);
    x->to = shape_of(r, LLVMTypeOf(v));
    x->dst = x->to.n ? find(r, v)->at : 0;
    switch (o) {
    case LLVMBr: // where to is set later
        x->code = X_BRANCH;
        x->nops = LLVMIsConditional(v);
        if (x->nops)
            x->op[0] = operand(r, LLVMGetCondition(v));
        return;
    case LLVMSwitch:
        x->code = X_SWITCH;
        x->nops = 1;
        x->op[0] = operand(r, LLVMGetOperand(v, 0));
        return;
    case LLVMCall: read_call(r, x, v); return;
    case LLVMGetElementPtr: read_gep(r, x, v); return;
    case LLVMLoad:
    case LLVMStore:
    case LLVMAtomicRMW: read_memory(r, x, v, o); return;
    case LLVMExtractElement:
    case LLVMInsertElement:
    case LLVMShuffleVector:
    case LLVMExtractValue: read_arrangement(r, x, v, o); return;
    default: break;
    }
    x->code = plain(o);
    if (x->code == X_BRANCH) {
        refuse(r, "instruction", v);
        return;
    }
    if (x->code == X_NOP || x->code == X_RET)
        return;
    operands(r, x, v, LLVMGetNumOperands(v));
    x->compare = o == LLVMICmp ? (int)LLVMGetICmpPredicate(v) : o == LLVMFCmp ? (int)LLVMGetFCmpPredicate(v) : 0;
}

// ---- control flow ------------------------------------------------------------------------------------------------

static int start_of(const struct reader *r, LLVMBasicBlockRef b)
{
    for (int i = 0; i < r->nblocks; i++)
        if (r->blocks[i] == b)
            return r->starts[i];
    return 0;
}

static void set_edge(struct reader *r, struct edge *e, LLVMBasicBlockRef from, LLVMBasicBlockRef to)
{
    e->to = start_of(r, to);
    for (LLVMValueRef v = LLVMGetFirstInstruction(to); v && LLVMIsAPHINode(v); v = LLVMGetNextInstruction(v))
        for (unsigned i = 0; i < LLVMCountIncoming(v); i++) {
            if (LLVMGetIncomingBlock(v, i) != from)
                continue;
            e->moves = realloc(e->moves, sizeof *e->moves * (size_t)(e->nmoves + 1));
            e->moves[e->nmoves++] =
                (struct move){ find(r, v)->at, operand(r, LLVMGetIncomingValue(v, i)), shape_of(r, LLVMTypeOf(v)).n };
            break;
        }
}

static void read_block(struct reader *r, LLVMBasicBlockRef b)
{
    for (LLVMValueRef v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v)) {
        if (LLVMIsAPHINode(v))
            continue;
        struct insn *x = &r->p->v[r->p->n++];
        read_instruction(r, x, v);
        if (x->code != X_BRANCH && x->code != X_SWITCH)
            continue;
        x->nedges = (int)LLVMGetNumSuccessors(v);
        x->edge = calloc((size_t)x->nedges, sizeof *x->edge);
        x->cases = calloc((size_t)x->nedges, sizeof *x->cases);
        for (int i = 0; i < x->nedges; i++) {
            set_edge(r, &x->edge[i], b, LLVMGetSuccessor(v, (unsigned)i));
            if (x->code == X_SWITCH && i)
                x->cases[i] = word_of(r, LLVMGetSwitchCaseValue(v, (unsigned)i));
        }
    }
}

// Numbers everything first: blocks by the instruction they start with, values by their register.
static void number(struct reader *r, LLVMValueRef f)
{
    struct ir *p = r->p;
    int n = 0;
    p->nargs = (int)LLVMCountParams(f);
    p->args = calloc((size_t)p->nargs + 1, sizeof *p->args);
    for (int i = 0; i < p->nargs; i++) {
        LLVMValueRef v = LLVMGetParam(f, (unsigned)i);
        p->args[i] = (struct ir_arg){ new_register(r, v), shape_of(r, LLVMTypeOf(v)).bits / 8 };
    }
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b)) {
        r->blocks = realloc(r->blocks, sizeof(LLVMBasicBlockRef) * (size_t)(r->nblocks + 1));
        r->starts = realloc(r->starts, sizeof *r->starts * (size_t)(r->nblocks + 1));
        r->blocks[r->nblocks] = b;
        r->starts[r->nblocks++] = n;
        for (LLVMValueRef v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v)) {
            n += !LLVMIsAPHINode(v);
            new_register(r, v);
        }
    }
    p->v = calloc((size_t)n + 1, sizeof *p->v);
}

static struct ir *read_kernel(LLVMValueRef f, LLVMTargetDataRef layout)
{
    struct ir *p = calloc(1, sizeof *p);
    struct reader r = { .p = p, .layout = layout, .ok = true };
    size_t n;
    snprintf(p->head.name, sizeof p->head.name, "%s", LLVMGetValueName2(f, &n));
    LLVMAttributeRef a = LLVMGetStringAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                                       "amdgpu-flat-work-group-size", 27);
    unsigned len;
    p->head.threads = a ? atoi(LLVMGetStringAttributeValue(a, &len)) : 0;
    number(&r, f);
    for (int i = 0; i < r.nblocks; i++)
        read_block(&r, r.blocks[i]);
    free(r.slots), free(r.blocks), free(r.starts);
    return r.ok ? p : NULL;
}

// ---- for ptx_cuda.c ----------------------------------------------------------------------------------------------

bool ptx_parse(struct program **programs, const char *text)
{
    char *why = NULL;
    LLVMModuleRef m = NULL;
    LLVMContextRef c = LLVMContextCreate(); // kept, with the module: a test ends soon
    LLVMMemoryBufferRef b = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "kernels");
    bool ok = true;
    if (LLVMParseIRInContext(c, b, &m, &why)) {
        fprintf(stderr, "amd_sim: not LLVM IR: %s\n", why);
        return false;
    }
    ptx_memory_add(zeros, sizeof zeros);
    for (LLVMValueRef f = LLVMGetFirstFunction(m); f; f = LLVMGetNextFunction(f)) {
        if (LLVMIsDeclaration(f))
            continue;
        struct ir *p = read_kernel(f, LLVMGetModuleDataLayout(m));
        ok &= p != NULL;
        if (!p)
            continue;
        p->head.next = *programs;
        *programs = &p->head;
    }
    return ok;
}
