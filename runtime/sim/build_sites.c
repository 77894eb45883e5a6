// Which instructions of a kernel matter to the simulator, and what each will do: memory accesses, intrinsics, assembly. Anything
// that is neither known here nor plain arithmetic is refused by name.
#include "build.h"

#include <stdlib.h>
#include <string.h>

int build_slots(const struct build *b, LLVMTypeRef t)
{
    if (LLVMGetTypeKind(t) == LLVMVoidTypeKind)
        return 0;
    if (LLVMGetTypeKind(t) == LLVMStructTypeKind) {
        int n = 0;
        for (unsigned i = 0; i < LLVMCountStructElementTypes(t); i++)
            n += build_slots(b, LLVMStructGetTypeAtIndex(t, i));
        return n;
    }
    return (int)((LLVMABISizeOfType(b->layout, t) + 7) / 8);
}

// ---- order of the blocks -----------------------------------------------------------------------------------------

struct graph {
    struct build *b;
    LLVMBasicBlockRef *all;
    int n, nout;
    unsigned char *seen, *reach;
};

static int number_of(const struct graph *g, LLVMBasicBlockRef bb)
{
    for (int i = 0; i < g->n; i++)
        if (g->all[i] == bb)
            return i;
    return 0;
}

static void mark_reach(struct graph *g, int from)
{
    LLVMValueRef t = LLVMGetBasicBlockTerminator(g->all[from]);
    if (g->reach[from])
        return;
    g->reach[from] = 1;
    for (unsigned k = 0; k < LLVMGetNumSuccessors(t); k++)
        mark_reach(g, number_of(g, LLVMGetSuccessor(t, k)));
}

static bool leads_back(struct graph *g, int from, int to)
{
    memset(g->reach, 0, (size_t)g->n);
    mark_reach(g, from);
    return g->reach[to];
}

// Post-order; successors that leave a loop are visited first, so that in the reverse order they come last.
static void visit(struct graph *g, int at)
{
    LLVMValueRef t = LLVMGetBasicBlockTerminator(g->all[at]);
    unsigned n = LLVMGetNumSuccessors(t);
    g->seen[at] = 1;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned k = 0; k < n; k++) {
            int next = number_of(g, LLVMGetSuccessor(t, k));
            if (!g->seen[next] && (pass == 1 || n == 1 || !leads_back(g, next, at)))
                visit(g, next);
        }
    g->b->order[g->n - 1 - g->nout++] = g->all[at];
}

bool build_order(struct build *b, LLVMValueRef f)
{
    unsigned n = LLVMCountBasicBlocks(f);
    struct graph g = { .b = b, .n = (int)n };
    g.all = calloc(n, sizeof *g.all);
    g.seen = calloc(n, 2);
    b->order = calloc(n, sizeof *b->order);
    bool ok = n && g.all && g.seen && b->order;
    if (ok) {
        g.reach = g.seen + n;
        LLVMGetBasicBlocks(f, g.all);
        visit(&g, 0);
        b->norder = g.nout;
        memmove(b->order, b->order + (g.n - g.nout),
                sizeof *b->order * (size_t)g.nout); // unreachable blocks have no place
    }
    free(g.all);
    free(g.seen);
    return ok || build_refuse(b, "out of memory");
}

// ---- sites -------------------------------------------------------------------------------------------------------

static struct site *new_site(struct build *b, LLVMValueRef at, int kind, const char *what)
{
    struct moesim_module *m = b->m;
    if (m->nsites == m->sites_cap) {
        int cap = m->sites_cap ? 2 * m->sites_cap : 256;
        void *p = realloc(m->sites, (size_t)cap * sizeof *m->sites);
        if (!p)
            return NULL;
        m->sites = p;
        m->sites_cap = cap;
    }
    if (b->nspots == b->spots_cap) {
        int cap = b->spots_cap ? 2 * b->spots_cap : 256;
        void *p = realloc(b->spots, (size_t)cap * sizeof *b->spots);
        if (!p)
            return NULL;
        b->spots = p;
        b->spots_cap = cap;
    }
    struct site *s = module_keep(m, sizeof *s);
    if (!s)
        return NULL;
    m->sites[m->nsites++] = s;
    *s = (struct site){ .id = (uint32_t)m->nsites, .line = b->line, .col = b->col, .fn = b->fn, .what = what };
    b->spots[b->nspots++] = (struct spot){ at, s, kind };
    return s;
}

static bool no_memory(struct build *b)
{
    return build_refuse(b, "out of memory");
}

// Of an atomic or volatile access, or of a fence. Volatile ones are relaxed, of system scope (PTX ISA, "ld.volatile").
static int ordering(const struct build *b, LLVMValueRef i)
{
    static const char *const block[] = {
        "block", "workgroup", "wavefront", "singlethread", "workgroup-one-as", "wavefront-one-as", "singlethread-one-as"
    };
    LLVMOpcode op = LLVMGetInstructionOpcode(i);
    bool access = op == LLVMLoad || op == LLVMStore || op == LLVMAtomicRMW || op == LLVMAtomicCmpXchg;
    if (op != LLVMFence && !(access && LLVMIsAtomic(i)))
        return access && LLVMGetVolatile(i) ? ACCESS_ATOMIC : 0;
    int how = ACCESS_ATOMIC;
    switch (op == LLVMAtomicCmpXchg ? LLVMGetCmpXchgSuccessOrdering(i) : LLVMGetOrdering(i)) {
    case LLVMAtomicOrderingAcquire: how |= ACCESS_ACQUIRE; break;
    case LLVMAtomicOrderingRelease: how |= ACCESS_RELEASE; break;
    case LLVMAtomicOrderingAcquireRelease:
    case LLVMAtomicOrderingSequentiallyConsistent: how |= ACCESS_ACQUIRE | ACCESS_RELEASE; break;
    case LLVMAtomicOrderingNotAtomic:
    case LLVMAtomicOrderingUnordered:
    case LLVMAtomicOrderingMonotonic: break;
    }
    for (size_t k = 0; k < sizeof block / sizeof block[0]; k++)
        if (LLVMGetAtomicSyncScopeID(i) == LLVMGetSyncScopeID(b->lc, block[k], strlen(block[k])))
            how |= ACCESS_CTA;
    return how;
}

static bool memory_site(struct build *b, LLVMValueRef i, LLVMValueRef pointer, LLVMTypeRef type, int access,
                        const char *what)
{
    unsigned space = LLVMGetPointerAddressSpace(LLVMTypeOf(pointer));
    if (space == 5 || LLVMIsAAllocaInst(pointer)) // the lane's own stack
        return true;
    if (LLVMStoreSizeOfType(b->layout, type) > ACCESS_BYTES_MAX)
        return build_refuse(b, "a %s of more than %d bytes", what, ACCESS_BYTES_MAX);
    if (space != 0 && space != 1 && space != 3 && space != 4)
        return build_refuse(b, "%s in address space %u is not known to the simulator", what, space);
    struct site *s = new_site(b, i, space == 3 ? SPOT_SHARED : SPOT_GLOBAL, what);
    if (!s)
        return no_memory(b);
    s->access = access | ordering(b, i);
    s->bytes = (int)LLVMStoreSizeOfType(b->layout, type);
    s->align = (int)LLVMGetAlignment(i);
    if (s->align <= 0)
        s->align = 1;
    if (!(s->access & ACCESS_ATOMIC))
        return true;
    s->insts = module_keep(b->m, sizeof *s->insts); // where a lane stands that looks at it
    if (!s->insts)
        return no_memory(b);
    *s->insts = (struct inst){ .site = s, .text = what, .guard = -1 };
    return true;
}

// Intrinsics that mean the same on every machine: the host's code generator does them.
static bool is_plain(const char *name)
{
    static const char *const plain[] = { "fma.",
                                         "fmuladd.",
                                         "fabs.",
                                         "maxnum.",
                                         "minnum.",
                                         "maximum.",
                                         "minimum.",
                                         "smax.",
                                         "smin.",
                                         "umax.",
                                         "umin.",
                                         "abs.",
                                         "floor.",
                                         "ceil.",
                                         "trunc.",
                                         "rint.",
                                         "nearbyint.",
                                         "round.",
                                         "roundeven.",
                                         "sqrt.",
                                         "exp2.",
                                         "log2.",
                                         "exp.",
                                         "log.",
                                         "fptosi.sat.",
                                         "fptoui.sat.",
                                         "ctpop.",
                                         "ctlz.",
                                         "cttz.",
                                         "bswap.",
                                         "fshl.",
                                         "fshr.",
                                         "copysign.",
                                         "canonicalize.",
                                         "bitreverse.",
                                         "maximumnum.",
                                         "minimumnum.",
                                         "vector.reduce.",
                                         "usub.sat.",
                                         "uadd.sat.",
                                         "ssub.sat.",
                                         "sadd.sat.",
                                         "umul.with.overflow.",
                                         "smul.with.overflow.",
                                         "is.fpclass." };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (!strncmp(name + 5, plain[i], strlen(plain[i])))
            return true;
    return false;
}

static bool is_hint(const char *name)
{
    return !strncmp(name, "llvm.assume", 11) || !strncmp(name, "llvm.lifetime.", 14) ||
           !strncmp(name, "llvm.dbg.", 9) || !strncmp(name, "llvm.experimental.noalias.scope.decl", 36);
}

static bool single(struct build *b, struct site *s, const struct op *op, const char *name, LLVMTypeRef result,
                   LLVMTypeRef *args, int nargs)
{
    int slot = 0, n = 0,
        nresults = LLVMGetTypeKind(result) == LLVMStructTypeKind ? (int)LLVMCountStructElementTypes(result) : 1;
    struct inst *i = s->insts = module_keep(b->m, sizeof *i);
    struct arg *a = module_keep(b->m, sizeof *a * (size_t)(nargs + nresults + 1));
    char *text = module_keep(b->m, strlen(name) + 1);
    if (!i || !a || !text)
        return no_memory(b);
    for (; n < nargs; n++) {
        a[n] = (struct arg){ .kind = ARG_REG, .reg = slot };
        slot += build_slots(b, args[n]);
    }
    a[n] = (struct arg){ .kind = ARG_REG, .reg = slot };
    slot += build_slots(b, result);
    *i = (struct inst){ .op = op, .site = s, .text = strcpy(text, name), .guard = -1, .nargs = nargs, .a = a };
    s->ninsts = 1;
    s->nslots = slot;
    s->what = text;
    b->slots = slot > b->slots ? slot : b->slots;
    char why[MOESIM_WHY] = "";
    return !op->prepare || op->prepare(i, why) || build_refuse(b, "%s: %s", name, why);
}

static bool intrinsic_site(struct build *b, LLVMValueRef call, LLVMValueRef callee)
{
    size_t len;
    const char *name = LLVMGetValueName2(callee, &len);
    LLVMTypeRef args[32];
    if (strncmp(name, "llvm.", 5))
        return build_refuse(b, "a call of '%s', which is not an intrinsic", name);
    if (!LLVMGetIntrinsicID(callee)) // then LLVM has not looked at its operands either
        return build_refuse(b, "intrinsic '%s' is not known to LLVM", name);
    if (is_hint(name)) {
        struct site *s = new_site(b, call, SPOT_DROP, "hint");
        return s || no_memory(b);
    }
    const struct op *op = op_find(b->nv ? nv_ops : amd_ops, name);
    if (!op && b->nv)
        op = op_find(nv_async_ops, name);
    op = op ? op : op_find(common_ops, name);
    if (!op && is_plain(name))
        return true;
    if (!op)
        return build_refuse(b, "intrinsic '%s' is not known to the simulator", name);
    unsigned n = LLVMGetNumArgOperands(call);
    if (n > 32)
        return build_refuse(b, "'%s' has too many operands", name);
    for (unsigned i = 0; i < n; i++)
        args[i] = LLVMTypeOf(LLVMGetOperand(call, i));
    struct site *s = new_site(b, call, SPOT_CALL, name);
    return s ? single(b, s, op, name, LLVMTypeOf(call), args, (int)n) : no_memory(b);
}

// "=r,=&f,r,0,b,~{memory}": which operands are predicates, which inputs are tied to an output.
static bool constraints_of(struct build *b, struct site *s, const char *c, int outs, int ins)
{
    int n = 0;
    s->ties = module_keep(b->m, sizeof *s->ties * (size_t)(ins + 1));
    if (!s->ties)
        return no_memory(b);
    for (; *c && *c != '~'; n++) {
        size_t len = strcspn(c, ",");
        if (len == 1 && *c == 'b' && n < 64)
            s->preds |= 1ull << n;
        if (*c >= '0' && *c <= '9' && n >= outs)
            s->ties[s->nties++] = (struct tie){ (int)strtol(c, NULL, 10), n - outs };
        c += len + (c[len] == ',');
    }
    return n == outs + ins || build_refuse(b, "assembly with %d constraints for %d operands", n, outs + ins);
}

// Operands of an assembly statement: outputs first, then inputs; an input tied to an output has its own slot and is copied by the rewriter.
static bool assembly_site(struct build *b, LLVMValueRef call, LLVMValueRef callee)
{
    size_t tlen, clen;
    const char *text = LLVMGetInlineAsmAsmString(callee, &tlen);
    const char *constraints = LLVMGetInlineAsmConstraintString(callee, &clen);
    struct site *s = new_site(b, call, SPOT_CALL, "asm");
    if (!s)
        return no_memory(b);
    if (!b->nv)
        return build_refuse(b, "assembly '%.60s' is not known to the simulator", text);
    unsigned in = LLVMGetNumArgOperands(call);
    int outs = build_slots(b, LLVMTypeOf(call));
    for (unsigned i = 0; i < in; i++)
        if (build_slots(b, LLVMTypeOf(LLVMGetOperand(call, i))) != 1)
            return build_refuse(b, "assembly '%.60s' with operands of more than 64 bits", text);
    if (!constraints_of(b, s, constraints, outs, (int)in))
        return false;
    if (!ptx_parse(b->m, s, text, outs + (int)in, b->why))
        return false;
    b->slots = s->nslots > b->slots ? s->nslots : b->slots;
    return true;
}

static bool call_site(struct build *b, LLVMValueRef i)
{
    LLVMValueRef callee = LLVMGetCalledValue(i);
    if (LLVMIsAInlineAsm(callee))
        return assembly_site(b, i, callee);
    if (!LLVMIsAFunction(callee))
        return build_refuse(b, "an indirect call");
    return intrinsic_site(b, i, callee);
}

static bool fence_site(struct build *b, LLVMValueRef i)
{
    const struct op *op = op_find(b->nv ? nv_ops : amd_ops, "fence");
    struct site *s = new_site(b, i, SPOT_CALL, "fence");
    if (!s || !single(b, s, op, "fence", b->none, NULL, 0))
        return s ? false : no_memory(b);
    s->insts->num = ordering(b, i);
    return true;
}

static bool end_site(struct build *b, LLVMValueRef i)
{
    struct site *s = new_site(b, i, SPOT_END, "unreachable");
    return s ? single(b, s, op_find(common_ops, "unreachable"), "unreachable", b->none, NULL, 0) : no_memory(b);
}

static bool division_site(struct build *b, LLVMValueRef i)
{
    LLVMValueRef d = LLVMGetOperand(i, 1);
    if (LLVMIsAConstantInt(d) && !LLVMIsNull(d) && d != LLVMConstAllOnes(LLVMTypeOf(d)))
        return true;
    return new_site(b, i, SPOT_DIVIDE, "division") || no_memory(b);
}

// A lane's stack holds what code generation puts there too.
static bool alloca_fits(struct build *b, LLVMValueRef i)
{
    LLVMValueRef n = LLVMGetOperand(i, 0);
    uint64_t one = LLVMABISizeOfType(b->layout, LLVMGetAllocatedType(i));
    if (!LLVMIsAConstantInt(n))
        return build_refuse(b, "an array on the stack whose size is not constant");
    uint64_t count = LLVMConstIntGetZExtValue(n);
    if (one > LANE_STACK / 2 || count > LANE_STACK / 2 || (b->stack += one * count) > LANE_STACK / 2)
        return build_refuse(b, "more than %d bytes of local variables", LANE_STACK / 2);
    return true;
}

// What the simulator has for shared memory is no host address: it has no generic one either.
static bool casts_shared(LLVMValueRef v, int depth)
{
    if (!LLVMIsAConstantExpr(v) || depth > 16)
        return false;
    if (LLVMGetConstOpcode(v) == LLVMAddrSpaceCast && LLVMGetPointerAddressSpace(LLVMTypeOf(LLVMGetOperand(v, 0))) == 3)
        return true;
    for (int k = 0; k < LLVMGetNumOperands(v); k++)
        if (casts_shared(LLVMGetOperand(v, (unsigned)k), depth + 1))
            return true;
    return false;
}

static bool visit_instruction(struct build *b, LLVMValueRef i)
{
    for (int k = 0; k < LLVMGetNumOperands(i); k++)
        if (casts_shared(LLVMGetOperand(i, (unsigned)k), 0))
            return build_refuse(b, "a generic pointer to shared memory");
    switch (LLVMGetInstructionOpcode(i)) {
    case LLVMLoad: return memory_site(b, i, LLVMGetOperand(i, 0), LLVMTypeOf(i), ACCESS_READ, "load");
    case LLVMStore:
        return memory_site(b, i, LLVMGetOperand(i, 1), LLVMTypeOf(LLVMGetOperand(i, 0)), ACCESS_WRITE, "store");
    case LLVMAtomicRMW:
        return memory_site(b, i, LLVMGetOperand(i, 0), LLVMTypeOf(i), ACCESS_READ | ACCESS_WRITE, "atomic");
    case LLVMAtomicCmpXchg:
        return memory_site(b, i, LLVMGetOperand(i, 0), LLVMTypeOf(LLVMGetOperand(i, 1)), ACCESS_READ | ACCESS_WRITE,
                           "atomic");
    case LLVMCall: return call_site(b, i);
    case LLVMFence: return fence_site(b, i);
    case LLVMAlloca: return alloca_fits(b, i);
    case LLVMUnreachable: return end_site(b, i);
    case LLVMUDiv:
    case LLVMSDiv:
    case LLVMURem:
    case LLVMSRem: return division_site(b, i);
    case LLVMInvoke:
    case LLVMCallBr:
    case LLVMVAArg:
    case LLVMAddrSpaceCast:
    case LLVMIndirectBr:
        return build_refuse(b, "an instruction that the simulator does not know (LLVM opcode %d)",
                            (int)LLVMGetInstructionOpcode(i));
    default: return true;
    }
}

bool build_collect(struct build *b)
{
    b->line = b->col = 0;
    b->stack = 0;
    for (int k = 0; k < b->norder; k++)
        for (LLVMValueRef i = LLVMGetFirstInstruction(b->order[k]); i; i = LLVMGetNextInstruction(i)) {
            unsigned line = LLVMGetDebugLocLine(i);
            if (line) { // instructions that LLVM merged have none: they keep the one before
                b->line = (int)line;
                b->col = (int)LLVMGetDebugLocColumn(i);
            }
            if (!visit_instruction(b, i))
                return false;
        }
    return true;
}
