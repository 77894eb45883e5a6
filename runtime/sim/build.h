// Between build.c (the module, the JIT), build_sites.c (which places matter) and build_host.c (the rewriting).
#ifndef BUILD_H
#define BUILD_H
#include "sim.h"

#include "llvm-c/Core.h"
#include "llvm-c/Target.h"

struct spot { // an instruction that is to be replaced
    LLVMValueRef at;
    struct site *site;
    enum {
        SPOT_GLOBAL,
        SPOT_SHARED,
        SPOT_CALL,
        SPOT_DROP,
        SPOT_DIVIDE,
        SPOT_END
    } kind; // END: stays, with a call before it
};
struct build {
    struct moesim_module *m;
    LLVMContextRef lc;
    LLVMModuleRef mod;
    LLVMTargetDataRef layout; // of the host
    char *triple;
    LLVMBuilderRef b;
    LLVMTypeRef i1, i16, i32, i64, ptr, none;
    bool nv;
    char *why;
    // of the function at hand
    struct module_fn *fn;
    struct spot *spots;
    int nspots, spots_cap, slots; // slots: the most that one site needs
    LLVMBasicBlockRef *order;     // blocks, so that joins come after what they join and exits after their loops
    int norder;
    int line, col;  // of the instruction at hand
    uint64_t stack; // bytes of its local variables
};

bool build_refuse(struct build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // false
int build_slots(const struct build *b, LLVMTypeRef t); // of io that a value takes
bool build_order(struct build *b, LLVMValueRef f);     // fills order
bool build_collect(struct build *b);                   // fills spots
bool build_rewrite(struct build *b, LLVMValueRef f);
#endif
