// emit.c and lower.c: from laid-out tile IR to machine code. moec.c: the driver calls these in order.
#ifndef MOEC_STAGES_H
#define MOEC_STAGES_H
#include "../targets/target.h"

// emit.c: adds one laid-out kernel to the module of mb, under the given symbol.
bool emit_kernel(struct ctx *c, struct mb *mb, const struct kernel *k, const char *symbol);

// lower.c
struct lower_opts {
    void (*dump)(void *user, enum stage s, const char *text, size_t n); // optional
    void *user;
    enum stage stop; // nothing after it: ST_MLIRLLVM .. ST_ASM, or later
    bool bitcode;    // keep the optimised module as bitcode
    bool lines;      // the code keeps source lines; bitcode does in any case
    bool object;     // emit an object (else assembly text only)
    bool assembly;
    double *times; // [ST_COUNT] milliseconds, added to; optional
};
struct lower_result {
    struct lowered low;
    const char *bitcode;
    size_t bitcode_len;
    void *context; // LLVM's
};
// In: a module that verifies. MLIR passes -> LLVM IR -> convergent, annotate -> LLVM passes -> assembly and/or object. All text in the arena.
bool lower(struct ctx *c, struct mb *mb, const struct arch *a, const struct lower_opts *o, struct lower_result *r);
void lower_free(struct lower_result *r); // also after a jump out of lower(); by the same thread
#endif
