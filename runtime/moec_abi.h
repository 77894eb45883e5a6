// The part of the compiler's interface (compiler/moec.h) that compile.c calls through dlopen, written again: runtime/ includes
// nothing of compiler/. tests/test_jit.c holds the two against each other.
#ifndef MOE_MOEC_ABI_H
#define MOE_MOEC_ABI_H
#include "moejit.h"

enum { ABI_OK = 0, ABI_INPUT = 1, ABI_USAGE = 2, ABI_MISSING = 3, ABI_INTERNAL = 70, ABI_IMAGE = 0 };
struct abi_options { // struct moec_options up to ptx_only; size says that the rest is not there
    size_t size;
    const char *arch;
    int emit;
    const struct moe_binding *bindings;
    int nbindings;
    const char *kernel, *ptxas, *lld, *stop_after, *skip;
    bool no_verify, bitcode, ptx_only;
};
struct abi_diagnostic {
    int severity, line, column;
    const char *text, *formatted;
};
struct abi_result;
#define MOEC_SYMBOLS(X) \
    X(struct abi_result *, compile, (const char *text, size_t length, const char *name, const struct abi_options *o)) \
    X(void, free, (struct abi_result * r)) \
    X(int, status, (const struct abi_result *r)) \
    X(const void *, code, (const struct abi_result *r, size_t *n)) \
    X(const struct abi_diagnostic *, diagnostic, (const struct abi_result *r, int i))
#endif
