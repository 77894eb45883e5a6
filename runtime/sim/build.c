// Bitcode of a GPU module -> host code: addresses of shared variables, every kernel through build_sites.c and build_host.c, the
// host's code generator through ORC.
#include "build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llvm-c/Analysis.h"
#include "llvm-c/BitReader.h"
#include "llvm-c/DebugInfo.h"
#include "llvm-c/LLJIT.h"
#include "llvm-c/Orc.h"
#include "llvm-c/TargetMachine.h"

enum { CC_PTX_KERNEL = 71, CC_AMDGPU_KERNEL = 91 }; // LLVM's numbers of calling conventions

bool build_refuse(struct build *b, const char *fmt, ...)
{
    char text[MOESIM_WHY - 100];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (b->fn && b->line)
        snprintf(b->why, MOESIM_WHY, "%.60s, line %d: %s", b->fn->name, b->line, text);
    else
        snprintf(b->why, MOESIM_WHY, "%.60s%s%s", b->fn ? b->fn->name : "", b->fn ? ": " : "", text);
    return false;
}

void *module_keep(struct moesim_module *m, size_t bytes)
{
    if (m->nblocks == m->blocks_cap) {
        int cap = m->blocks_cap ? 2 * m->blocks_cap : 256;
        void *p = realloc(m->blocks, (size_t)cap * sizeof *m->blocks);
        if (!p)
            return NULL;
        m->blocks = p;
        m->blocks_cap = cap;
    }
    void *p = calloc(1, bytes ? bytes : 1);
    if (p)
        m->blocks[m->nblocks++] = p;
    return p;
}

bool module_constant(const struct module_fn *fn, uint64_t address, int bytes)
{
    for (int i = 0; i < fn->module->nconstants; i++) {
        uint64_t at = address - (uint64_t)(uintptr_t)fn->constants[i];
        if (at < fn->module->constant_bytes[i] && (uint64_t)bytes <= fn->module->constant_bytes[i] - at)
            return true;
    }
    return false;
}

void module_free(struct moesim_module *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->nfns; i++)
        if (m->fns[i].jit)
            LLVMOrcDisposeLLJIT(m->fns[i].jit);
    if (m->host)
        LLVMDisposeModule(m->host);
    if (m->context)
        LLVMOrcDisposeThreadSafeContext(m->context);
    for (int i = 0; i < m->nsites; i++)
        free(m->sites[i]->consts);
    for (int i = 0; i < m->nblocks; i++)
        free(m->blocks[i]);
    free(m->blocks);
    free(m->sites);
    free(m);
}

// ---- attributes, metadata, calling conventions: everything that speaks to the GPU's code generator -----------------

static void strip_at(LLVMValueRef f, LLVMAttributeIndex at)
{
    unsigned n = LLVMGetAttributeCountAtIndex(f, at);
    LLVMAttributeRef *a = calloc(n + 1, sizeof *a);
    if (!a)
        return;
    LLVMGetAttributesAtIndex(f, at, a);
    for (unsigned i = 0; i < n; i++) {
        unsigned len;
        if (LLVMIsStringAttribute(a[i])) {
            const char *k = LLVMGetStringAttributeKind(a[i], &len);
            LLVMRemoveStringAttributeAtIndex(f, at, k, len);
        } else {
            LLVMRemoveEnumAttributeAtIndex(f, at, LLVMGetEnumAttributeKind(a[i]));
        }
    }
    free(a);
}

static void strip(LLVMValueRef f)
{
    strip_at(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex);
    strip_at(f, (LLVMAttributeIndex)LLVMAttributeReturnIndex);
    for (unsigned i = 1; i <= LLVMCountParams(f); i++)
        strip_at(f, i);
    LLVMSetFunctionCallConv(f, LLVMCCallConv);
    LLVMGlobalClearMetadata(f);
    for (LLVMBasicBlockRef bb = LLVMGetFirstBasicBlock(f); bb; bb = LLVMGetNextBasicBlock(bb))
        for (LLVMValueRef i = LLVMGetFirstInstruction(bb); i; i = LLVMGetNextInstruction(i)) {
            size_t n;
            LLVMValueMetadataEntry *e = LLVMInstructionGetAllMetadataOtherThanDebugLoc(i, &n);
            for (size_t k = 0; k < n; k++)
                LLVMSetMetadata(i, LLVMValueMetadataEntriesGetKind(e, (unsigned)k), NULL);
            LLVMDisposeValueMetadataEntries(e);
        }
}

// ---- variables ---------------------------------------------------------------------------------------------------

// The one function that uses v, through constant expressions too. *many: there are several.
static LLVMValueRef user_of(LLVMValueRef v, LLVMValueRef found, bool *many)
{
    for (LLVMUseRef u = LLVMGetFirstUse(v); u; u = LLVMGetNextUse(u)) {
        LLVMValueRef by = LLVMGetUser(u), f = NULL;
        if (LLVMIsAInstruction(by))
            f = LLVMGetBasicBlockParent(LLVMGetInstructionParent(by));
        else
            f = user_of(by, found, many);
        if (f && found && f != found)
            *many = true;
        found = f ? f : found;
    }
    return found;
}

static struct module_fn *fn_named(struct moesim_module *m, LLVMValueRef f)
{
    size_t n;
    for (int i = 0; f && i < m->nfns; i++)
        if (!strcmp(m->fns[i].name, LLVMGetValueName2(f, &n)))
            return &m->fns[i];
    return NULL;
}

// Does function f use v, through constant expressions too?
static bool uses(LLVMValueRef v, LLVMValueRef f)
{
    for (LLVMUseRef u = LLVMGetFirstUse(v); u; u = LLVMGetNextUse(u)) {
        LLVMValueRef by = LLVMGetUser(u);
        if (LLVMIsAInstruction(by) ? LLVMGetBasicBlockParent(LLVMGetInstructionParent(by)) == f : uses(by, f))
            return true;
    }
    return false;
}

// Shared variables get their offsets: each kernel's own from 0. Those of no size of their own are names of the dynamic part, which
// lies behind them ("CUDA C++ Programming Guide", "__shared__"): where, differs among kernels, see only().
static bool place_shared(struct build *b, LLVMValueRef g)
{
    bool many = false;
    LLVMTypeRef t = LLVMGlobalGetValueType(g);
    uint64_t bytes = LLVMABISizeOfType(b->layout, t), at = 0, align = LLVMGetAlignment(g);
    char name[32];
    size_t n;
    LLVMValueRef f = user_of(g, NULL, &many);
    struct module_fn *fn = fn_named(b->m, f);
    align = align ? align : 16;
    if (!bytes) {
        for (int i = 0; i < b->m->nfns; i++)
            if (uses(g, LLVMGetNamedFunction(b->mod, b->m->fns[i].name)) && b->m->fns[i].dynamic_align < align)
                b->m->fns[i].dynamic_align = align;
        snprintf(name, sizeof name, "moesim_dynamic_%d", b->m->ndynamics++);
        LLVMSetValueName2(g, name, strlen(name));
        return true;
    }
    if (many || bytes > INT32_MAX)
        return build_refuse(b, "shared variable '%s' %s", LLVMGetValueName2(g, &n),
                            many ? "is used by several kernels" : "is too large");
    if (fn) {
        at = ((uint64_t)fn->shared_static + align - 1) / align * align;
        fn->shared_static = (int64_t)(at + bytes);
    }
    LLVMReplaceAllUsesWith(g, LLVMConstIntToPtr(LLVMConstInt(b->i64, at, 0), LLVMTypeOf(g)));
    LLVMDeleteGlobal(g);
    return true;
}

static bool place_variables(struct build *b)
{
    int constants = 0, all = 0;
    for (LLVMValueRef g = LLVMGetFirstGlobal(b->mod); g; g = LLVMGetNextGlobal(g))
        all++;
    b->m->constant_bytes = module_keep(b->m, sizeof *b->m->constant_bytes * (size_t)(all + 1));
    if (!b->m->constant_bytes)
        return build_refuse(b, "out of memory");
    for (LLVMValueRef g = LLVMGetFirstGlobal(b->mod), next; g; g = next) {
        char name[32];
        size_t len;
        next = LLVMGetNextGlobal(g);
        if (!strncmp(LLVMGetValueName2(g, &len), "moesim_", 7))
            return build_refuse(b, "a variable named '%.60s'", LLVMGetValueName2(g, &len));
        unsigned space = LLVMGetPointerAddressSpace(LLVMTypeOf(g));
        if (space == 3) {
            if (!place_shared(b, g))
                return false;
        } else if ((space == 1 || space == 4) && LLVMIsGlobalConstant(g) && LLVMGetInitializer(g)) {
            snprintf(name, sizeof name, "moesim_constant_%d", constants++);
            LLVMSetValueName2(g, name, strlen(name));
            LLVMSetLinkage(g, LLVMExternalLinkage);
            b->m->constant_bytes[constants - 1] = (size_t)LLVMABISizeOfType(b->layout, LLVMGlobalGetValueType(g));
        } else {
            return build_refuse(b, "variable '%s' in address space %u is not known to the simulator",
                                LLVMGetValueName2(g, &len), space);
        }
    }
    b->m->nconstants = constants;
    for (int i = 0; i < b->m->nfns; i++) {
        struct module_fn *fn = &b->m->fns[i];
        fn->byval = module_keep(b->m, sizeof *fn->byval * (size_t)(fn->nparams + 1));
        int64_t align = fn->dynamic_align > 16 ? (int64_t)fn->dynamic_align : 16;
        fn->dynamic_at = (fn->shared_static + align - 1) / align * align;
        fn->constants = module_keep(b->m, sizeof *fn->constants * (size_t)(constants + 1));
        if (!fn->constants || !fn->byval)
            return build_refuse(b, "out of memory");
    }
    return true;
}

// ---- kernels -----------------------------------------------------------------------------------------------------

static bool list_kernels(struct build *b)
{
    int n = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(b->mod); f; f = LLVMGetNextFunction(f))
        n += !LLVMIsDeclaration(f);
    b->m->fns = module_keep(b->m, sizeof *b->m->fns * (size_t)(n + 1));
    if (!b->m->fns)
        return build_refuse(b, "out of memory");
    for (LLVMValueRef f = LLVMGetFirstFunction(b->mod); f; f = LLVMGetNextFunction(f)) {
        size_t len;
        if (LLVMIsDeclaration(f))
            continue;
        const char *name = LLVMGetValueName2(f, &len);
        unsigned cc = LLVMGetFunctionCallConv(f);
        if (cc != CC_PTX_KERNEL && cc != CC_AMDGPU_KERNEL)
            return build_refuse(b, "function '%s' is not a kernel", name);
        if (len > 250 || strlen(name) != len || !strncmp(name, "moesim_", 7))
            return build_refuse(b, "a kernel named '%.60s...'", name);
        char *copy = module_keep(b->m, len + 1);
        if (!copy)
            return build_refuse(b, "out of memory");
        LLVMMetadataRef sub = LLVMGetSubprogram(f);
        b->m->fns[b->m->nfns++] = (struct module_fn){ .module = b->m,
                                                      .name = memcpy(copy, name, len),
                                                      .nparams = (int)LLVMCountParams(f),
                                                      .line = sub ? (int)LLVMDISubprogramGetLine(sub) : 0 };
    }
    return true;
}

// void moesim_enter_K(ptr args): calls K with what the pointers in args point to.
static void add_entry(struct build *b, LLVMValueRef f)
{
    char name[300];
    LLVMTypeRef ft = LLVMGlobalGetValueType(f);
    unsigned n = LLVMCountParams(f);
    LLVMValueRef *v = calloc(n + 1, sizeof *v);
    snprintf(name, sizeof name, "moesim_enter_%s", b->fn->name);
    unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5);
    LLVMValueRef e = LLVMAddFunction(b->mod, name, LLVMFunctionType(b->none, &b->ptr, 1, 0));
    LLVMPositionBuilderAtEnd(b->b, LLVMAppendBasicBlockInContext(b->lc, e, ""));
    for (unsigned i = 0; v && i < n; i++) {
        LLVMValueRef at = LLVMConstInt(b->i64, i, 0);
        LLVMValueRef p = LLVMBuildLoad2(b->b, b->ptr, LLVMBuildGEP2(b->b, b->ptr, LLVMGetParam(e, 0), &at, 1, ""), "");
        LLVMTypeRef t = LLVMTypeOf(LLVMGetParam(f, i));
        LLVMAttributeRef by = LLVMGetEnumAttributeAtIndex(f, i + 1, byval);
        b->fn->byval[i] = by ? LLVMABISizeOfType(b->layout, LLVMGetTypeAttributeValue(by)) : 0;
        if (by) // the kernel gets where the bytes are
            v[i] = LLVMBuildIntToPtr(b->b, LLVMBuildPtrToInt(b->b, p, b->i64, ""), t, "");
        else
            v[i] = LLVMBuildLoad2(b->b, t, p, "");
    }
    LLVMBuildCall2(b->b, ft, f, v, n, "");
    LLVMBuildRetVoid(b->b);
    free(v);
}

static bool convert_kernel(struct build *b, LLVMValueRef f)
{
    b->fn = fn_named(b->m, f);
    b->nspots = b->slots = 0;
    bool ok = build_order(b, f) && build_collect(b) && build_rewrite(b, f);
    free(b->order);
    b->order = NULL;
    b->line = 0;
    if (ok) {
        add_entry(b, f);
        strip(f);
    }
    b->fn = NULL;
    return ok;
}

static bool well_formed(struct build *b, const char *what)
{
    char *why = NULL;
    bool bad = LLVMVerifyModule(b->mod, LLVMReturnStatusAction, &why);
    if (bad)
        build_refuse(b, "%s is malformed: %.300s", what, why);
    LLVMDisposeMessage(why);
    return !bad;
}

static bool convert(struct build *b)
{
    size_t n;
    const char *triple = LLVMGetTarget(b->mod), *asm_text = LLVMGetModuleInlineAsm(b->mod, &n);
    if (n)
        return build_refuse(b, "assembly outside functions: '%.40s'", asm_text);
    if (strncmp(triple, b->nv ? "nvptx" : "amdgcn", 5))
        return build_refuse(b, "the image holds code for '%.40s', the device is %s", triple,
                            b->m->device->machine->arch);
    if (!well_formed(b, "the image's module"))
        return false;
    LLVMSetModuleDataLayout(b->mod, b->layout);
    LLVMSetTarget(b->mod, b->triple);
    if (!list_kernels(b) || !place_variables(b))
        return false;
    for (LLVMValueRef f = LLVMGetFirstFunction(b->mod), next; f; f = next) {
        next = LLVMGetNextFunction(f);
        if (!LLVMIsDeclaration(f) && fn_named(b->m, f) && !convert_kernel(b, f))
            return false;
    }
    LLVMStripModuleDebugInfo(b->mod);
    return well_formed(b, "internal: the host's module");
}

// ---- JIT ---------------------------------------------------------------------------------------------------------

static bool jit_error(char *why, LLVMErrorRef e)
{
    if (!e)
        return false;
    char *text = LLVMGetErrorMessage(e);
    snprintf(why, MOESIM_WHY, "the host's code generator: %.400s", text);
    LLVMDisposeErrorMessage(text);
    return true;
}

// What generated code may call. The value of __truncsfbf2 comes back in a vector register, as a _Float16 would.
__extension__ typedef _Float16 float16;
static float16 to_bf16(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { f };
    union {
        uint16_t u;
        float16 h;
    } r;
    r.u = f != f ? (uint16_t)(v.u >> 16 | 0x40) : (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
    return r.h;
}

static LLVMErrorRef add_symbols(LLVMOrcLLJITRef jit)
{
    const struct {
        const char *name;
        void *p;
    } table[] = {
        { "exp2f", (void *)(uintptr_t)exp2f },      { "log2f", (void *)(uintptr_t)log2f },
        { "expf", (void *)(uintptr_t)expf },        { "logf", (void *)(uintptr_t)logf },
        { "fmaf", (void *)(uintptr_t)fmaf },        { "fma", (void *)(uintptr_t)fma },
        { "floorf", (void *)(uintptr_t)floorf },    { "ceilf", (void *)(uintptr_t)ceilf },
        { "truncf", (void *)(uintptr_t)truncf },    { "rintf", (void *)(uintptr_t)rintf },
        { "roundf", (void *)(uintptr_t)roundf },    { "fmaxf", (void *)(uintptr_t)fmaxf },
        { "roundevenf", (void *)(uintptr_t)rintf }, { "fminf", (void *)(uintptr_t)fminf },
        { "sqrtf", (void *)(uintptr_t)sqrtf },      { "nearbyintf", (void *)(uintptr_t)nearbyintf },
        { "memcpy", (void *)(uintptr_t)memcpy },    { "memset", (void *)(uintptr_t)memset },
        { "fmodf", (void *)(uintptr_t)fmodf },      { "__truncsfbf2", (void *)(uintptr_t)to_bf16 },
    };
    enum { N = sizeof table / sizeof table[0] };
    LLVMOrcCSymbolMapPair v[N];
    for (int i = 0; i < N; i++)
        v[i] =
            (LLVMOrcCSymbolMapPair){ LLVMOrcLLJITMangleAndIntern(jit, table[i].name),
                                     { (LLVMOrcExecutorAddress)(uintptr_t)table[i].p,
                                       { LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0 } } };
    return LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit), LLVMOrcAbsoluteSymbols(v, N));
}

static LLVMTargetMachineRef host_machine(char *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // LLVM's registry of targets
    LLVMTargetRef t;
    char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures(),
         *err = NULL;
    char all[4096];
    LLVMTargetMachineRef tm = NULL;
    pthread_mutex_lock(&lock);
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    pthread_mutex_unlock(&lock);
    // Conversions to bf16 in hardware flush subnormal numbers; those of the GPUs do not.
    snprintf(all, sizeof all, "%s%s", features, strstr(triple, "x86_64") ? ",-avx512bf16,-avxneconvert" : "");
    if (!LLVMGetTargetFromTriple(triple, &t, &err))
        tm = LLVMCreateTargetMachine(t, triple, cpu, all, LLVMCodeGenLevelLess, LLVMRelocPIC, LLVMCodeModelJITDefault);
    if (!tm)
        snprintf(why, MOESIM_WHY, "LLVM has no code generator for this host: %.200s", err ? err : triple);
    LLVMDisposeMessage(err);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
    return tm;
}

static bool look_up(struct module_fn *fn, char *why)
{
    LLVMOrcExecutorAddress a;
    char name[300];
    struct moesim_module *m = fn->module;
    for (int i = 0; i < m->nconstants; i++) {
        snprintf(name, sizeof name, "moesim_constant_%d", i);
        if (jit_error(why, LLVMOrcLLJITLookup(fn->jit, &a, name)))
            return false;
        fn->constants[i] = (const uint8_t *)(uintptr_t)a;
    }
    snprintf(name, sizeof name, "moesim_enter_%s", fn->name);
    if (jit_error(why, LLVMOrcLLJITLookup(fn->jit, &a, name)))
        return false;
    fn->code = (void (*)(void *const *))(uintptr_t)a;
    return true;
}

// The converted module with this kernel alone, and its dynamic shared memory placed.
static LLVMModuleRef only(const struct module_fn *fn)
{
    char enter[300];
    size_t n;
    LLVMModuleRef m = LLVMCloneModule(fn->module->host);
    for (int i = 0; i < fn->module->ndynamics; i++) {
        snprintf(enter, sizeof enter, "moesim_dynamic_%d", i);
        LLVMValueRef g = LLVMGetNamedGlobal(m, enter);
        LLVMValueRef at = LLVMConstInt(LLVMInt64TypeInContext(LLVMGetModuleContext(m)), (uint64_t)fn->dynamic_at, 0);
        LLVMReplaceAllUsesWith(g, LLVMConstIntToPtr(at, LLVMTypeOf(g)));
        LLVMDeleteGlobal(g);
    }
    snprintf(enter, sizeof enter, "moesim_enter_%s", fn->name);
    for (int pass = 0; pass < 2; pass++) // first the entries, which call the kernels
        for (LLVMValueRef f = LLVMGetFirstFunction(m), next; f; f = next) {
            next = LLVMGetNextFunction(f);
            const char *name = LLVMGetValueName2(f, &n);
            bool entry = !strncmp(name, "moesim_enter_", 13);
            if (LLVMIsDeclaration(f) || entry != !pass || !strcmp(name, enter) || !strcmp(name, fn->name))
                continue;
            LLVMReplaceAllUsesWith(f, LLVMGetUndef(LLVMTypeOf(f))); // tables may hold its address
            LLVMDeleteFunction(f);
        }
    return m;
}

static bool make_jit(struct module_fn *fn, char *why)
{
    LLVMTargetMachineRef tm = host_machine(why);
    LLVMOrcLLJITRef jit = NULL;
    if (!tm)
        return false;
    LLVMOrcLLJITBuilderRef jb = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        jb, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(tm)); // takes both
    if (jit_error(why, LLVMOrcCreateLLJIT(&jit, jb)))
        return false;
    fn->jit = jit;
    LLVMModuleRef one = only(fn);
    LLVMSetTarget(one, LLVMOrcLLJITGetTripleString(jit));
    LLVMSetDataLayout(one, LLVMOrcLLJITGetDataLayoutStr(jit));
    LLVMOrcThreadSafeModuleRef tsm = LLVMOrcCreateNewThreadSafeModule(one, fn->module->context);
    return !jit_error(why, add_symbols(jit)) &&
           !jit_error(why, LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), tsm)) && look_up(fn, why);
}

bool module_ready(struct module_fn *fn, char *why)
{
    if (fn->code || make_jit(fn, why))
        return true;
    if (fn->jit)
        LLVMOrcDisposeLLJIT(fn->jit);
    fn->jit = NULL;
    return false;
}

static void on_diagnostic(LLVMDiagnosticInfoRef d, void *user)
{
    char *why = user;
    if (LLVMGetDiagInfoSeverity(d) != LLVMDSError || *why)
        return;
    char *s = LLVMGetDiagInfoDescription(d);
    snprintf(why, MOESIM_WHY, "the bitcode cannot be read: %.300s", s);
    LLVMDisposeMessage(s);
}

static bool read_bitcode(struct build *b, const void *bitcode, size_t n)
{
    LLVMMemoryBufferRef buf = LLVMCreateMemoryBufferWithMemoryRangeCopy(bitcode, n, "image");
    *b->why = 0;
    LLVMContextSetDiagnosticHandler(b->lc, on_diagnostic, b->why);
    bool bad = LLVMParseBitcodeInContext2(b->lc, buf, &b->mod);
    LLVMContextSetDiagnosticHandler(b->lc, NULL, NULL);
    LLVMDisposeMemoryBuffer(buf);
    if (bad && !*b->why)
        snprintf(b->why, MOESIM_WHY, "the bitcode cannot be read");
    return !bad;
}

static char *file_of(struct build *b)
{
    size_t n;
    const char *name = NULL;
    unsigned len = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(b->mod); f && !len; f = LLVMGetNextFunction(f))
        name = LLVMGetSubprogram(f) ? LLVMGetDebugLocFilename(f, &len) : NULL;
    if (!name || !len)
        name = LLVMGetSourceFileName(b->mod, &n), len = (unsigned)n;
    char *s = module_keep(b->m, len + 1);
    return s ? memcpy(s, name, len) : NULL;
}

struct moesim_module *module_build(struct moesim_device *d, const void *bitcode, size_t n, char *why)
{
    struct build b = { .nv = d->machine->nv, .why = why };
    LLVMTargetMachineRef tm = host_machine(why);
    if (!tm)
        return NULL;
    b.m = calloc(1, sizeof *b.m);
    b.lc = LLVMContextCreate();
    b.triple = LLVMGetTargetMachineTriple(tm);
    b.layout = LLVMCreateTargetDataLayout(tm);
    b.b = LLVMCreateBuilderInContext(b.lc);
    b.i1 = LLVMInt1TypeInContext(b.lc);
    b.i16 = LLVMInt16TypeInContext(b.lc);
    b.i32 = LLVMInt32TypeInContext(b.lc);
    b.i64 = LLVMInt64TypeInContext(b.lc);
    b.ptr = LLVMPointerTypeInContext(b.lc, 0);
    b.none = LLVMVoidTypeInContext(b.lc);
    bool ok = b.m != NULL;
    if (ok) {
        b.m->device = d;
        ok = read_bitcode(&b, bitcode, n) && (b.m->file = file_of(&b)) && convert(&b);
    }
    LLVMDisposeBuilder(b.b);
    LLVMDisposeTargetMachine(tm);
    LLVMDisposeMessage(b.triple);
    LLVMDisposeTargetData(b.layout);
    free(b.spots);
    if (ok) {
        b.m->host = b.mod;
        b.m->context = LLVMOrcCreateNewThreadSafeContextFromLLVMContext(b.lc); // takes it
        return b.m;
    }
    if (b.mod)
        LLVMDisposeModule(b.mod);
    LLVMContextDispose(b.lc);
    module_free(b.m);
    return NULL;
}
