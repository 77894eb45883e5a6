// The rewriting: each spot becomes a call into the simulator. An access asks for the host address to use; an intrinsic or assembly
// puts its operands into io, calls, and takes its results from there.
#include "build.h"

#include <stdlib.h>

static LLVMValueRef address_of(const struct build *b, const void *p)
{
    return LLVMConstIntToPtr(LLVMConstInt(b->i64, (uint64_t)(uintptr_t)p, 0), b->ptr);
}

static LLVMValueRef call(struct build *b, void (*fn)(void), LLVMTypeRef result, LLVMTypeRef *types, LLVMValueRef *args,
                         unsigned n)
{
    LLVMTypeRef t = LLVMFunctionType(result, types, n, 0);
    return LLVMBuildCall2(b->b, t, address_of(b, (void *)(uintptr_t)fn), args, n, "");
}

static void rewrite_access(struct build *b, const struct spot *s)
{
    unsigned nth = LLVMGetInstructionOpcode(s->at) == LLVMStore ? 1 : 0;
    bool shared = s->kind == SPOT_SHARED;
    LLVMTypeRef types[2] = { b->ptr, shared ? b->i32 : b->i64 };
    LLVMPositionBuilderBefore(b->b, s->at);
    LLVMValueRef args[2] = { address_of(b, s->site),
                             LLVMBuildPtrToInt(b->b, LLVMGetOperand(s->at, nth), types[1], "") };
    void (*fn)(void) =
        shared ? (void (*)(void))(uintptr_t)moesim_access_shared : (void (*)(void))(uintptr_t)moesim_access;
    LLVMSetOperand(s->at, nth, call(b, fn, b->ptr, types, args, 2));
}

static LLVMValueRef slot(struct build *b, LLVMValueRef io, int k)
{
    LLVMValueRef at = LLVMConstInt(b->i64, (uint64_t)k, 0);
    return LLVMBuildGEP2(b->b, b->i64, io, &at, 1, "");
}

// Values up to 64 bits fill their slot, zero-extended; longer ones lie in memory order.
static void put(struct build *b, LLVMValueRef io, int k, LLVMValueRef v)
{
    LLVMTypeRef t = LLVMTypeOf(v);
    unsigned bits = (unsigned)(8 * LLVMStoreSizeOfType(b->layout, t));
    switch (LLVMGetTypeKind(t)) {
    case LLVMPointerTypeKind: v = LLVMBuildPtrToInt(b->b, v, b->i64, ""); break;
    case LLVMHalfTypeKind:
    case LLVMBFloatTypeKind:
    case LLVMFloatTypeKind:
        v = LLVMBuildBitCast(b->b, v, LLVMIntTypeInContext(b->lc, bits), "");
        v = LLVMBuildZExt(b->b, v, b->i64, "");
        break;
    case LLVMIntegerTypeKind:
        if (LLVMGetIntTypeWidth(t) < 64)
            v = LLVMBuildZExt(b->b, v, b->i64, "");
        break;
    default: break;
    }
    LLVMSetAlignment(LLVMBuildStore(b->b, v, slot(b, io, k)), 8);
}

static LLVMValueRef get(struct build *b, LLVMValueRef io, int k, LLVMTypeRef t)
{
    if (LLVMGetTypeKind(t) == LLVMStructTypeKind) {
        LLVMValueRef all = LLVMGetPoison(t);
        for (unsigned i = 0; i < LLVMCountStructElementTypes(t); i++) {
            LLVMTypeRef e = LLVMStructGetTypeAtIndex(t, i);
            all = LLVMBuildInsertValue(b->b, all, get(b, io, k, e), i, "");
            k += build_slots(b, e);
        }
        return all;
    }
    bool narrow = LLVMGetTypeKind(t) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(t) < 8;
    LLVMValueRef v = LLVMBuildLoad2(b->b, narrow ? b->i64 : t, slot(b, io, k), "");
    LLVMSetAlignment(v, 8);
    return narrow ? LLVMBuildTrunc(b->b, v, t, "") : v;
}

static void rewrite_call(struct build *b, const struct spot *s, LLVMValueRef io)
{
    LLVMTypeRef result = LLVMTypeOf(s->at), types[2] = { b->ptr, b->ptr };
    bool fence = LLVMIsAFenceInst(s->at), assembly = !fence && LLVMIsAInlineAsm(LLVMGetCalledValue(s->at));
    int k = assembly ? build_slots(b, result) : 0; // of assembly the outputs come first
    unsigned n = fence ? 0 : LLVMGetNumArgOperands(s->at);
    LLVMPositionBuilderBefore(b->b, s->at);
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef v = LLVMGetOperand(s->at, i);
        put(b, io, k, v);
        k += build_slots(b, LLVMTypeOf(v));
    }
    for (int i = 0; i < s->site->nties; i++) { // an output that starts as an input's value
        LLVMValueRef v = LLVMGetOperand(s->at, (unsigned)s->site->ties[i].in);
        put(b, io, s->site->ties[i].out, v);
    }
    LLVMValueRef args[2] = { address_of(b, s->site), io };
    call(b, (void (*)(void))(uintptr_t)moesim_op, b->none, types, args, 2);
    if (result != b->none && !fence)
        LLVMReplaceAllUsesWith(s->at, get(b, io, assembly ? 0 : k, result));
    LLVMInstructionEraseFromParent(s->at);
}

// A GPU's division by zero, or of the smallest number by -1, has some result; a host's is a signal. Vectors by element.
static void rewrite_division(struct build *b, const struct spot *s)
{
    LLVMOpcode op = LLVMGetInstructionOpcode(s->at);
    LLVMValueRef n = LLVMGetOperand(s->at, 0), d = LLVMGetOperand(s->at, 1);
    LLVMTypeRef t = LLVMTypeOf(d), types[2] = { b->ptr, b->i32 };
    LLVMValueRef none = LLVMConstNull(t), ones = LLVMConstAllOnes(t);
    LLVMPositionBuilderBefore(b->b, s->at);
    LLVMValueRef zero = LLVMBuildICmp(b->b, LLVMIntEQ, d, none, ""), bad = zero, minus = NULL, any = zero;
    if (op == LLVMSDiv || op == LLVMSRem) {
        minus = LLVMBuildICmp(b->b, LLVMIntEQ, d, ones, "");
        bad = LLVMBuildOr(b->b, zero, minus, "");
    }
    LLVMValueRef v = LLVMBuildBinOp(b->b, op, n, LLVMBuildSelect(b->b, bad, LLVMConstSub(none, ones), d, ""), "");
    if (op == LLVMSDiv)
        v = LLVMBuildSelect(b->b, minus, LLVMBuildSub(b->b, none, n, ""), v, "");
    if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) {
        LLVMTypeRef mask = LLVMIntTypeInContext(b->lc, LLVMGetVectorSize(t));
        any = LLVMBuildICmp(b->b, LLVMIntNE, LLVMBuildBitCast(b->b, zero, mask, ""), LLVMConstNull(mask), "");
    }
    LLVMValueRef args[2] = { address_of(b, s->site), LLVMBuildZExt(b->b, any, b->i32, "") };
    call(b, (void (*)(void))(uintptr_t)moesim_divisor, b->none, types, args, 2);
    LLVMReplaceAllUsesWith(s->at, v);
    LLVMInstructionEraseFromParent(s->at);
}

static void rewrite_end(struct build *b, const struct spot *s)
{
    LLVMTypeRef types[2] = { b->ptr, b->ptr };
    LLVMValueRef args[2] = { address_of(b, s->site), LLVMConstNull(b->ptr) };
    LLVMPositionBuilderBefore(b->b, s->at);
    call(b, (void (*)(void))(uintptr_t)moesim_op, b->none, types, args, 2);
}

// Each block says how many instructions it is: for the figures and against endless loops.
static void count_blocks(struct build *b)
{
    for (int k = 0; k < b->norder; k++) {
        uint64_t n = 0;
        LLVMValueRef first = NULL;
        for (LLVMValueRef i = LLVMGetFirstInstruction(b->order[k]); i; i = LLVMGetNextInstruction(i)) {
            n++;
            if (!first && !LLVMIsAPHINode(i))
                first = i;
        }
        LLVMValueRef arg = LLVMConstInt(b->i32, n, 0);
        LLVMPositionBuilderBefore(b->b, first);
        call(b, (void (*)(void))(uintptr_t)moesim_count, b->none, &b->i32, &arg, 1);
    }
}

bool build_rewrite(struct build *b, LLVMValueRef f)
{
    count_blocks(b);
    LLVMPositionBuilderBefore(b->b, LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(f)));
    LLVMValueRef io = LLVMBuildAlloca(b->b, LLVMArrayType2(b->i64, (uint64_t)b->slots + 1), "io");
    LLVMSetAlignment(io, 16);
    for (int i = 0; i < b->nspots; i++)
        switch (b->spots[i].kind) {
        case SPOT_GLOBAL:
        case SPOT_SHARED: rewrite_access(b, &b->spots[i]); break;
        case SPOT_CALL: rewrite_call(b, &b->spots[i], io); break;
        case SPOT_DIVIDE: rewrite_division(b, &b->spots[i]); break;
        case SPOT_END: rewrite_end(b, &b->spots[i]); break;
        case SPOT_DROP: LLVMInstructionEraseFromParent(b->spots[i].at); break;
        }
    return true;
}
