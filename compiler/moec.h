// libmoec: the compiler as a library. This header is the manual.
//
//   struct moec_options o = { .size = sizeof o, .arch = "sm_90a", .emit = MOEC_IMAGE };
//   struct moec_result *r = moec_compile(text, length, "moe.dsl", &o);
//   if (moec_status(r) == MOEC_OK) use(moec_code(r, &n), n);
//   else for (int i = 0; moec_diagnostic(r, i); i++) puts(moec_diagnostic(r, i)->formatted);
//   moec_free(r);
//
// THREADS. Calls share nothing; any number of threads may compile at once. The first call for a vendor initialises that
// vendor's part of LLVM. Same source, options and build: same bytes.
// OWNERSHIP. All that a result gives lies in the result, until moec_free. Inputs are not kept.
// ERRORS. Everything wrong with the input is a diagnostic; nothing prints, exits or aborts on any input. When LLVM itself
// gives up (status MOEC_INTERNAL), the memory it held is lost.
// TOOLS. Cubins need the ptxas program; hsaco files need ld.lld unless lld is linked in. Both are run without a shell.
// Not promised: the text of dumps below "layout" (LLVM's), the wording of diagnostics.
#ifndef MOEC_H
#define MOEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define MOEC_VERSION "0.1.0"
#define MOEC_API __attribute__((visibility("default")))

// The numbers are also the exit statuses of the moec program.
enum moec_status {
    MOEC_OK = 0,
    MOEC_INPUT = 1,     // errors in the source or the bindings
    MOEC_USAGE = 2,     // the options make no sense: unknown arch, kernel, stage, an output the arch cannot give
    MOEC_MISSING = 3,   // a tool was not found; the diagnostic names it and the remedy
    MOEC_INTERNAL = 70, // a fault of moec or LLVM, or no memory
};
enum moec_emit {
    MOEC_IMAGE, // all kernels of the source for one arch, with what the runtime must know (runtime/image.h)
    MOEC_PTX,
    MOEC_CUBIN,
    MOEC_HSACO,
    MOEC_ASM,  // assembly text of either vendor
    MOEC_LLVM, // LLVM IR after its passes
    MOEC_MLIR, // before conversion to the LLVM dialect
    MOEC_TILE, // laid-out tile IR, as DSL
};
struct moec_binding { // -D NAME=VALUE
    const char *name;
    int64_t value;
    const char *type; // an element type for `type` aliases, or NULL
};
struct moec_options {
    size_t size; // of this struct, set by the caller; members past it count as zero
    const char *arch;
    enum moec_emit emit;
    const struct moec_binding *bindings;
    int nbindings;
    const char *kernel;      // only this one, NAME or NAME.VARIANT; NULL: all
    const char *ptxas, *lld; // NULL: $MOE_PTXAS, $MOE_LLD, PATH, the usual places
    const char *stop_after;  // stage name: nothing after it is run, and no code is made
    const char *skip;        // an optional pass: "fold"
    bool no_verify;          // leave out the verifier after each pass
    bool bitcode;            // image: with LLVM bitcode, for simulation
    bool ptx_only;           // image for NVIDIA: PTX instead of a cubin (the driver compiles it at load)
    // Called with the text of each stage ("tokens" .. "image"), for all kernels of the source together. Optional.
    void (*dump)(void *user, const char *stage, const char *text, size_t n);
    void *user;
    void *(*alloc)(void *user, void *old, size_t size); // size 0 frees; NULL: malloc. For tests
    void *alloc_user;
    bool lineinfo; // source lines in the code, for profilers and debuggers
};
struct moec_diagnostic {
    int severity;     // 0 error, 1 warning, 2 note
    int line, column; // from 1; 0: no place
    const char *text;
    const char *formatted; // with file, line and caret; several lines, the last ending in a newline
};
struct moec_kernel_use {                 // what one kernel of the code takes
    const char *name, *variant, *symbol; // "down", "r128" ("" if there is but one), "down_r128"
    int threads;                         // of a block
    int regs;                            // of a thread; -1: not known (no assembler was run, or it did not say)
    int spill_bytes;                     // stores and loads of a thread; -1: not known
    int64_t stack;                       // bytes of a thread; -1: not known
    int64_t shared;                      // bytes of a block
};
struct moec_result;

// Never NULL but when not even the result can be allocated. options NULL: usage error.
MOEC_API struct moec_result *moec_compile(const char *text, size_t length, const char *name,
                                          const struct moec_options *options);
MOEC_API void moec_free(struct moec_result *r); // NULL is allowed
MOEC_API enum moec_status moec_status(const struct moec_result *r);
MOEC_API const void *moec_code(const struct moec_result *r,
                               size_t *n); // NULL unless MOEC_OK; a NUL follows the n bytes
MOEC_API const struct moec_diagnostic *moec_diagnostic(const struct moec_result *r, int i); // NULL past the last
// Milliseconds of a stage, all kernels together, its passes' verification included; stage i's name through *name, NULL
// past the last.
MOEC_API double moec_time(const struct moec_result *r, int i, const char **name);
MOEC_API const char *moec_kernel_name(const struct moec_result *r,
                                      int i); // of the source, in order; NULL past the last
MOEC_API const struct moec_kernel_use *moec_use(const struct moec_result *r,
                                                int i); // of the code, in order; NULL past the last
MOEC_API const char *moec_arch_name(int i);             // NULL past the last
MOEC_API const char *moec_version(void);                // MOEC_VERSION of the library itself
#ifdef __cplusplus
}
#endif
#endif
