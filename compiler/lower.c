// The MLIR module -> LLVM IR -> assembly and object. In: the builder's module, complete. Out: text in the arena.
//
// LLVM may report an error through a callback and go on, or give up through its fatal-error handler; both become our
// diagnostics, after the call has returned or the handler has jumped out. What LLVM held when it gave up is leaked on
// purpose: it is not safe to destroy.
#include "ir.h"
#include "stages.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llvm-c/Analysis.h"
#include "llvm-c/BitWriter.h"
#include "llvm-c/Core.h"
#include "llvm-c/DebugInfo.h"
#include "llvm-c/ErrorHandling.h"
#include "llvm-c/Support.h"
#include "llvm-c/Target.h"
#include "llvm-c/TargetMachine.h"
#include "llvm-c/Transforms/PassBuilder.h"
#include "mlir-c/Conversion.h"
#include "mlir-c/IR.h"
#include "mlir-c/Pass.h"
#include "mlir-c/Target/LLVMIR.h"

struct messages {
    char *v[16];
    int n;
};
static _Thread_local jmp_buf *fatal_exit;
static _Thread_local char fatal_text[256];

static void on_fatal(const char *reason)
{
    snprintf(fatal_text, sizeof fatal_text, "%s", reason);
    if (fatal_exit)
        longjmp(*fatal_exit, 1);
}

static void on_diagnostic(LLVMDiagnosticInfoRef d, void *user)
{
    struct messages *m = user;
    if (LLVMGetDiagInfoSeverity(d) != LLVMDSError || m->n == COUNTOF(m->v))
        return;
    char *s = LLVMGetDiagInfoDescription(d);
    m->v[m->n++] = strdup(s);
    LLVMDisposeMessage(s);
}

static bool flush(struct ctx *c, struct messages *m)
{
    int n = m->n;
    m->n = 0;
    for (int i = 0; i < n; i++) {
        char *s = arena_printf(c->arena, "%s", m->v[i] ? m->v[i] : "");
        free(m->v[i]);
        error(c, (struct loc){ 0 }, "internal: LLVM: %s", s);
    }
    return n == 0;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void spent(const struct lower_opts *o, enum stage s, double *since)
{
    double t = now_ms();
    if (o->times)
        o->times[s] += t - *since;
    *since = now_ms();
}

// ---- MLIR --------------------------------------------------------------------------------------------------------

static void dump_mlir(struct ctx *c, struct mb *mb, const struct lower_opts *o, enum stage s)
{
    struct text t = { .arena = c->arena };
    if (!o->dump)
        return;
    mb_print(mb, &t);
    o->dump(o->user, s, t.s ? t.s : "", t.n);
}

static bool to_llvm_dialect(struct mb *mb)
{
    MlirModule m = { mb_module(mb) };
    MlirPassManager pm = mlirPassManagerCreate((MlirContext){ (void *)mb_context(mb) });
    mlirPassManagerAddOwnedPass(pm, mlirCreateConversionSCFToControlFlowPass());
    mlirPassManagerAddOwnedPass(pm, mlirCreateConversionConvertNVVMToLLVMPass());
    mlirPassManagerAddOwnedPass(pm, mlirCreateConversionArithToLLVMConversionPass());
    mlirPassManagerAddOwnedPass(pm, mlirCreateConversionConvertControlFlowToLLVMPass());
    mlirPassManagerAddOwnedPass(pm, mlirCreateConversionReconcileUnrealizedCastsPass());
    bool ok = mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(pm, mlirModuleGetOperation(m)));
    mlirPassManagerDestroy(pm);
    return mb_flush(mb) && ok;
}

// ---- LLVM --------------------------------------------------------------------------------------------------------

// MLIR cannot say that inline assembly is convergent; without it LLVM may duplicate a barrier.
static void mark_convergent(LLVMModuleRef m)
{
    LLVMAttributeRef a =
        LLVMCreateEnumAttribute(LLVMGetModuleContext(m), LLVMGetEnumAttributeKindForName("convergent", 10), 0);
    for (LLVMValueRef f = LLVMGetFirstFunction(m); f; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i))
                if (LLVMIsACallInst(i) && LLVMIsAInlineAsm(LLVMGetCalledValue(i)))
                    LLVMAddCallSiteAttribute(i, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

static void dump_llvm(LLVMModuleRef m, const struct lower_opts *o, enum stage s)
{
    if (!o->dump)
        return;
    char *text = LLVMPrintModuleToString(m);
    o->dump(o->user, s, text, strlen(text));
    LLVMDisposeMessage(text);
}

static LLVMTargetMachineRef machine(struct ctx *c, const struct arch *a)
{
    LLVMTargetRef t;
    char *why = NULL;
    if (LLVMGetTargetFromTriple(a->triple, &t, &why)) {
        error(c, (struct loc){ 0 }, "internal: this LLVM has no target %s: %s", a->triple, why ? why : "");
        LLVMDisposeMessage(why);
        return NULL;
    }
    return LLVMCreateTargetMachine(t, a->triple, a->cpu, a->features, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                   LLVMCodeModelDefault);
}

static bool run_passes(struct ctx *c, LLVMModuleRef m, LLVMTargetMachineRef tm, const char *passes)
{
    char *why = NULL;
    if (LLVMVerifyModule(m, LLVMReturnStatusAction, &why)) {
        error(c, (struct loc){ 0 }, "internal: LLVM IR is malformed: %.400s", why);
        LLVMDisposeMessage(why);
        return false;
    }
    LLVMDisposeMessage(why);
    LLVMPassBuilderOptionsRef po = LLVMCreatePassBuilderOptions();
    LLVMErrorRef e = LLVMRunPasses(m, passes, tm, po);
    LLVMDisposePassBuilderOptions(po);
    if (!e)
        return true;
    char *text = LLVMGetErrorMessage(e);
    error(c, (struct loc){ 0 }, "internal: LLVM passes '%s': %s", passes, text);
    LLVMDisposeErrorMessage(text);
    return false;
}

static bool emit_file(struct ctx *c, LLVMModuleRef m, LLVMTargetMachineRef tm, LLVMCodeGenFileType type,
                      const char **out, size_t *len)
{
    LLVMMemoryBufferRef buf = NULL;
    char *why = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, m, type, &why, &buf)) {
        error(c, (struct loc){ 0 }, "internal: LLVM code generation: %s", why ? why : "");
        LLVMDisposeMessage(why);
        return false;
    }
    *len = LLVMGetBufferSize(buf);
    *out = arena_strndup(c->arena, LLVMGetBufferStart(buf), *len);
    LLVMDisposeMemoryBuffer(buf);
    return true;
}

static bool keep_bitcode(struct ctx *c, LLVMModuleRef m, struct lower_result *r)
{
    LLVMMemoryBufferRef b = LLVMWriteBitcodeToMemoryBuffer(m);
    r->bitcode_len = LLVMGetBufferSize(b);
    r->bitcode = arena_strndup(c->arena, LLVMGetBufferStart(b), r->bitcode_len);
    LLVMDisposeMemoryBuffer(b);
    return true;
}

// Code generation consumes the module's shape, so each further file is made from a copy.
static bool generate(struct ctx *c, const struct lower_opts *o, struct lower_result *r, LLVMModuleRef m,
                     LLVMTargetMachineRef tm)
{
    const char *text = NULL;
    size_t n = 0;
    if (o->assembly) {
        LLVMModuleRef copy = o->object ? LLVMCloneModule(m) : m;
        bool ok = emit_file(c, copy, tm, LLVMAssemblyFile, &text, &n);
        if (copy != m)
            LLVMDisposeModule(copy);
        if (!ok)
            return false;
        r->low.asm_text = NEW(c->arena, struct text);
        *r->low.asm_text = (struct text){ .arena = c->arena, .s = (char *)(uintptr_t)text, .n = n, .cap = n + 1 };
        if (o->dump)
            o->dump(o->user, ST_ASM, text, n);
    }
    return !o->object || emit_file(c, m, tm, LLVMObjectFile, &r->low.obj, &r->low.obj_len);
}

static bool through_llvm(struct ctx *c, struct mb *mb, const struct arch *a, const struct lower_opts *o,
                         struct lower_result *r, LLVMContextRef lc, double t)
{
    LLVMModuleRef m = mlirTranslateModuleToLLVMIR(mlirModuleGetOperation((MlirModule){ mb_module(mb) }), lc);
    if (!mb_flush(mb) || !m)
        return m || c->errors ? false
                              : error(c, (struct loc){ 0 }, "internal: MLIR could not be translated to LLVM IR");
    r->low.llvm_module = m;
    LLVMTargetMachineRef tm = machine(c, a);
    if (!tm)
        return false;
    r->low.llvm_machine = tm;
    LLVMSetTarget(m, a->triple);
    LLVMTargetDataRef dl = LLVMCreateTargetDataLayout(tm);
    LLVMSetModuleDataLayout(m, dl);
    LLVMDisposeTargetData(dl);
    mark_convergent(m);
    if (a->target->annotate)
        a->target->annotate(m, a);
    spent(o, ST_LLVM, &t);
    dump_llvm(m, o, ST_LLVM);
    if (o->stop <= ST_LLVM)
        return true;
    t = now_ms();
    if (!run_passes(c, m, tm, a->passes))
        return false;
    spent(o, ST_LLVMOPT, &t);
    dump_llvm(m, o, ST_LLVMOPT);
    if (o->stop <= ST_LLVMOPT)
        return true;
    if (o->bitcode)
        keep_bitcode(c, m, r);
    if (o->bitcode && !o->lines)
        LLVMStripModuleDebugInfo(m);
    t = now_ms();
    bool ok = generate(c, o, r, m, tm);
    spent(o, ST_ASM, &t);
    return ok;
}

static bool guarded(struct ctx *c, struct mb *mb, const struct arch *a, const struct lower_opts *o,
                    struct lower_result *r, double t)
{
    LLVMContextRef lc = LLVMContextCreate();
    struct messages said = { .n = 0 };
    jmp_buf here;
    volatile bool died = false;
    bool ok = false;
    r->context = lc;
    LLVMContextSetDiagnosticHandler(lc, on_diagnostic, &said);
    fatal_exit = &here;
    if (setjmp(here) == 0)
        ok = through_llvm(c, mb, a, o, r, lc, t);
    else
        died = true;
    fatal_exit = NULL;
    if (died) {
        r->low.llvm_module = r->low.llvm_machine = r->context = NULL; // leaked, see above
        flush(c, &said);
        return error(c, (struct loc){ 0 }, "internal: LLVM gave up: %s", fatal_text);
    }
    return flush(c, &said) && ok;
}

static void start_once(void)
{
    const char *args[] = { "moec", "-nvptx-short-ptr" };
    LLVMInstallFatalErrorHandler(on_fatal);
    LLVMParseCommandLineOptions(2, args, "");
}

static void start_llvm(const struct target *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // LLVM's registry of targets
    pthread_once(&once, start_once);
    pthread_mutex_lock(&lock);
    t->init();
    pthread_mutex_unlock(&lock);
}

bool lower(struct ctx *c, struct mb *mb, const struct arch *a, const struct lower_opts *o, struct lower_result *r)
{
    memset(r, 0, sizeof *r);
    r->low.c = c;
    r->low.arch = a;
    r->low.lineinfo = o->lines;
    start_llvm(a->target);
    double t = now_ms();
    if (!to_llvm_dialect(mb))
        return c->errors ? false
                         : error(c, (struct loc){ 0 }, "internal: MLIR could not be converted to its LLVM dialect");
    spent(o, ST_MLIRLLVM, &t);
    dump_mlir(c, mb, o, ST_MLIRLLVM);
    return o->stop <= ST_MLIRLLVM || guarded(c, mb, a, o, r, now_ms());
}

void lower_free(struct lower_result *r)
{
    LLVMContextRef lc = r->context;
    fatal_exit = NULL; // after a jump out of lower() this and the context's handler point into a dead frame
    if (lc)
        LLVMContextSetDiagnosticHandler(lc, NULL, NULL);
    if (r->low.llvm_machine)
        LLVMDisposeTargetMachine(r->low.llvm_machine);
    if (r->low.llvm_module)
        LLVMDisposeModule(r->low.llvm_module);
    if (lc)
        LLVMContextDispose(lc);
    r->low.llvm_module = r->low.llvm_machine = r->context = NULL;
}
