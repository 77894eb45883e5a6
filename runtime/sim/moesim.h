// libmoesim: GPU kernels on the CPU, with every fault named. This header is the manual.
//
// It takes the final LLVM IR of a GPU module (the bitcode that an image carries), for NVPTX or AMDGPU, compiles it for the
// host and runs it: each GPU lane is a fibre, each block has its shared memory, and every intrinsic and inline assembly form does
// what the vendor's manual says. An unknown one is refused by name when the module is loaded.
//
// While kernels run, shadow memory looks for races, reads of bytes that nobody wrote, accesses out of bounds and misaligned,
// divergent barriers, deadlock, asynchronous copies read too early or left behind. Each is a finding: a line of text that names the
// kernel, the DSL line, the block, the thread, the address and the other party. The order in which warps and lanes run, and
// when asynchronous work lands, follow the seed.
//
// The library exports moesim_api() alone. libmoert opens it for devices called "sim:ARCH"; tests use it directly.
//
// THREADS. A device may be used from one thread at a time (libmoert locks). Blocks of a launch run on several threads.
#ifndef MOESIM_H
#define MOESIM_H
#include "../image.h"

enum { MOESIM_VERSION = 3, MOESIM_WHY = 512 };

struct moesim_device;
struct moesim_module;
struct moesim_kernel;

struct moesim_limits {
    char name[96], arch[16];
    int lanes, threads_max, processors;
    int64_t shared_max; // bytes of a block
};
struct moesim_stats { // of all launches since the device was opened
    uint64_t launches, blocks;
    uint64_t lane_instructions; // LLVM instructions carried out, summed over lanes
    double seconds;             // wall clock, in launches
    double compile_seconds;     // making host code
};

// A tensor in device memory and how boxes of it are copied: the arguments of cuTensorMapEncodeTiled, innermost dimension first.
enum moesim_elem { MOESIM_U8, MOESIM_I32, MOESIM_F16, MOESIM_BF16, MOESIM_F32 };
struct moesim_tensor {
    enum moesim_elem elem;
    int rank; // 1..5
    const void *base;
    uint64_t dims[5], strides[4]; // strides: bytes, of dimension 1 and up
    uint32_t box[5], steps[5];    // steps: element strides
    int swizzle;                  // 0, 32, 64, 128 bytes
};

struct moesim_api {
    int version;
    // spec: "ARCH[,seed=N][,threads=N][,fast][,limit=N][,budget=N][,processors=N]". seed: the order of everything (default 0: in order, copies land at
    // the last moment). threads: workers (default: all processors). fast: no shadow memory: no races. limit: findings
    // after which a launch gives up (default 20). budget: lane instructions of a block, after which it counts as running away (default
    // 2e10). processors: multiprocessors of the device (default: those of the real one): blocks that are there at once. NULL: why.
    struct moesim_device *(*open)(const char *spec, struct moesim_limits *limits, char why[MOESIM_WHY]);
    void (*close)(struct moesim_device *d);
    // Device memory; alignment 256. NULL: out of memory. Fresh memory counts as unwritten.
    void *(*alloc)(struct moesim_device *d, size_t bytes);
    bool (*free)(struct moesim_device *d, void *p);                               // false: not from alloc
    bool (*write)(struct moesim_device *d, void *to, const void *from, size_t n); // false: not device memory
    bool (*read)(struct moesim_device *d, void *to, const void *from, size_t n);
    // poison: the bytes count as unwritten afterwards, so that a kernel's read of them is a finding.
    bool (*fill)(struct moesim_device *d, void *p, int byte, size_t n, bool poison);

    // bitcode is copied. NULL: why names what is not supported, with its place.
    struct moesim_module *(*load)(struct moesim_device *d, const void *bitcode, size_t n, char why[MOESIM_WHY]);
    void (*unload)(struct moesim_module *m);
    // NULL: no such function.
    struct moesim_kernel *(*kernel)(struct moesim_module *m, const struct image_kernel *k, char why[MOESIM_WHY]);
    // Runs to the end. args: as for cuLaunchKernel, one pointer to each argument's value. Extents of the arguments come from
    // the signature. stream: any pointer. dependent: it may (on a device that has such launches) start before the launches of
    // that stream since the last ordinary one have finished: until a thread has executed griddepcontrol.wait, what it touches of
    // theirs, or through a parameter that is not early, is a finding. Writes and fills of device memory come after all before
    // them. 0: nothing found; 1: findings were added; -1: could not run, why.
    int (*launch)(struct moesim_kernel *k, uint32_t blocks, void *const *args, const void *stream, bool dependent,
                  char why[MOESIM_WHY]);

    // Findings since open or the last clear, in the order found, each once. NULL past the last. Text is valid until clear or close.
    const char *(*finding)(const struct moesim_device *d, int i);
    void (*clear)(struct moesim_device *d);
    void (*reseed)(struct moesim_device *d, uint64_t seed); // of the launches from now on
    // Which place of which kernel wrote this byte last, as text; "" if no kernel of the last launch on that memory did.
    void (*origin)(const struct moesim_device *d, const void *p, char text[MOESIM_WHY]);
    void (*stats)(const struct moesim_device *d, struct moesim_stats *out);
    // Writes the 128 bytes that stand for a CUtensorMap: for a kernel's parameter `ptr byval([128 x i8])` (its entry in args points
    // to them) or for device memory. They mean nothing to a GPU. false: why, by the rules of cuTensorMapEncodeTiled.
    bool (*tensor_map)(void *map, const struct moesim_tensor *t, char why[MOESIM_WHY]);
};
// NULL if this library is not of that version.
MOE_IMAGE_API const struct moesim_api *moesim_api(int version);
#endif
