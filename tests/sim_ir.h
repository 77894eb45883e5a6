// Kernels as LLVM IR text on the simulator, for tests. libmoesim.so is opened beside the test's folder.
#ifndef SIM_IR_H
#define SIM_IR_H
#include "../runtime/image.h"
#include "../runtime/sim/moesim.h"

struct sim {
    const struct moesim_api *api;
    struct moesim_device *d;
    struct moesim_limits limits;
    struct moesim_module *m;
    char why[MOESIM_WHY];
    const void *stream; // of the next launches, and whether they are dependent
    bool dependent;
};
// spec: "sm_90a,seed=3". Fails the test if it cannot be opened.
struct sim sim_open(const char *spec);
void sim_close(struct sim *s);
// The text (a whole module, datalayout and triple may be left out) as a module of s. false: s->why.
bool sim_load(struct sim *s, const char *ir);
// The text as bitcode, from malloc; nv: for NVPTX if it does not say.
void *sim_bitcode(const char *ir, bool nv, size_t *n);
// An image for sm_90a of these kernels, whose code is the text; from malloc.
void *sim_image(const char *ir, int nkernels, const struct image_kernel *kernels, size_t *n);
int sim_library(void **state); // a test's setup: libmoert finds the simulator's library by MOE_SIM_LIBRARY
// Runs kernel `name`: its parameters are tensors of i32 (or of what elem[i] says) with n[i] elements; kinds: one letter each: i(n), e(arly),
// o(ut), b(oth), s(calar i32: n[i] is its value). ptr[i]: device memory. Returns what launch returns.
int sim_run(struct sim *s, const char *name, int threads, int shared, unsigned blocks, const char *kinds,
            void *const *ptr, const int64_t *n);
// Runs kernel "k" of the module on a new device, with a: in[SIM_N] = 100 + i, o: out[SIM_N], poisoned before, SIM_N threads a block.
enum { SIM_N = 64 };
struct ran {
    int status;
    const char *text; // what was found
    int32_t out[SIM_N];
};
struct ran sim_ran(const char *spec, const char *ir, unsigned blocks, int shared);
// The findings as one text; "" if none. Valid until the next call.
const char *sim_findings(struct sim *s);
#endif
