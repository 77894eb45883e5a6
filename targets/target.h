// The one interface between the compiler and a vendor. First data (arches, copies, mma rows), then a few functions.
// Outside targets/ nobody asks which vendor it is; targets.c is the only file that names both.
#ifndef MOEC_TARGET_H
#define MOEC_TARGET_H
#include "../compiler/ir.h"
#include "../compiler/mlir.h"

enum copy_kind {
    COPY_REG,   // global -> registers -> shared (loads issued early, stored late)
    COPY_ASYNC, // global -> shared by the thread that asks, in groups (cp.async)
    COPY_BULK,  // whole boxes by one thread, completion on a shared barrier (TMA)
};
enum mma_kind {
    MMA_WARP,      // one warp, operands and accumulators in its registers (mma.sync, MFMA)
    MMA_WARPGROUP, // four warps, operands in shared memory named by descriptors, asynchronous (wgmma)
    MMA_TENSOR,    // one thread issues, accumulators in tensor memory (tcgen05)
};

// How one operand of a warp-level mma lies over the lanes, as data. A bit list says where each bit of an index lives:
// "l2 l3 l4 r1" for rows of 16: row bits 0..2 are lane bits 2..4, row bit 3 is bit 1 of the element number.
// Source of every row: the vendor's ISA manual, cited beside it; tests/test_arch.c checks that each is a bijection.
struct operand_map {
    const char *row; // operand a, d: m. operand b: n
    const char *col; // operand a, b: k. d: n
    // How fragments are fetched from shared memory: one fetch gives fetch_rows x fetch_k elements of the operand, that is
    // (fetch_rows / rows) * (fetch_k / k) instruction operands, k fastest. Each lane names one run of `fetch_bytes`
    // contiguous bytes along k; addr_row/addr_k: where the bits of that run's position (row; k in runs' units of elements,
    // low bits inside the run left out as "-") come from.
    int fetch_rows, fetch_k, fetch_bytes;
    const char *addr_row, *addr_k;
};
struct mma {
    const char *name; // "mma.m16n8k16", "mfma.32x32x8"
    enum mma_kind kind;
    int warps; // that work on one instruction together: the lowest warp bits of `d`
    int m, n, k;
    enum elem in;  // EL_BF16 or EL_F16
    enum elem acc; // EL_F32
    struct operand_map a, b, d;
    int acc_pack;          // f32 values held in one MLIR value: 1, or n for vector<n x f32>
    int cycles;            // issue cycles of one instruction on one unit (for the model)
    double share;          // of the arch's 16-bit rate that it can reach (model only)
    const char *intrinsic; // for the target's own use
};
struct arch {
    const char *name; // "sm_90a"
    const struct target *target;
    int lanes;             // of a warp or wave: 32, 64
    int max_threads;       // a block
    int max_regs;          // 32-bit registers a thread may have
    int regs;              // 32-bit registers of a multiprocessor, all threads together
    int64_t shared;        // bytes a block may use
    int64_t shared_sm;     // bytes a multiprocessor has
    int64_t shared_kept;   // of them, taken by each block beside its own
    int processors;        // multiprocessors / compute units of the common part (model only)
    enum copy_kind copy;   // the best kind emit knows here
    int copy_bytes;        // widest asynchronous copy of one thread
    double tflops16, gbps; // dense 16-bit TFLOP/s and memory GB/s of the common part (model only)
    const struct mma *mmas;
    int nmmas;
    const char *triple, *cpu, *features; // for LLVM
    const char *passes;                  // LLVM pass pipeline
    bool dependent;                      // launches may start before the one before has finished: `depend` waits for it
    unsigned flags;                      // target's own
};

// What emit.c hands to a target while a kernel is built.
struct emit {
    struct ctx *c;
    struct mb *mb;
    const struct kernel *k;
    const struct arch *arch;
    const char *symbol;            // function name
    const char *arg_attrs;         // attributes of the arguments, for mb_func_begin
    val *args;                     // kernel arguments: params in order, then free dims
    val thread, lane, warp, block; // i32; thread in the block, lane in the warp, linear block id
    val smem;                      // llvm.ptr<3> to the block's shared bytes (k->shared_bytes), NOVAL if none
    int nargs;
    val *maps;   // tensor maps, llvm.ptr: one a box (kernel_boxes()), behind the free dims
    void *state; // the target's own, arena
    void *priv;  // emit.c's own
};
// An access to global memory: base + uniform (the same for all threads, i64 bytes, may be large) + lane (i32 bytes, >= 0,
// < 2^31; or i64 when emit.c could not bound it). pred: i1 or NOVAL (always). Loads give 0 where pred is false.
struct gaddr {
    const struct buf *buf;
    val base;    // llvm.ptr<1>: the argument
    val uniform; // i64
    val lane;    // i32 or i64
    val pred;
    val bytes; // i64: the buffer's size in bytes (for hardware bounds checks)
};
struct code_use { // what one kernel takes, as the assembler or code generator reports it
    const char *symbol;
    int regs;                      // registers a thread; -1: not known
    int spill_stores, spill_loads; // bytes a thread
    int64_t shared, stack;         // bytes: static shared memory of a block, stack of a thread
};
struct lowered { // lower.c -> finish
    struct ctx *c;
    const struct arch *arch;
    void *llvm_module;     // LLVMModuleRef, optimised
    void *llvm_machine;    // LLVMTargetMachineRef
    struct text *asm_text; // PTX or AMDGPU assembly
    const char *obj;       // AMDGPU: relocatable object bytes; NULL elsewhere
    size_t obj_len;
    bool lineinfo;         // the code carries source lines
    struct code_use *uses; // out (finish): one a kernel, arena; may be empty
    int nuses;
};
enum code_kind { CODE_NONE, CODE_PTX, CODE_CUBIN, CODE_HSACO };
struct finish_opts {
    enum code_kind want;
    const char *assembler; // --ptxas; NULL: search
    bool warn_spills;
};

struct target {
    const char *name; // "nvptx", "amdgpu"
    const struct arch *arches;
    int narches;
    enum code_kind text_code, binary_code; // what the target's code is called
    void (*init)(void);                    // LLVM target initialisation, once a process
    // NULL: fine. Else the reason (arena) and *at, for a diagnostic.
    const char *(*supports)(struct ctx *c, const struct arch *a, const struct kernel *k, struct loc *at);
    // Makes the function (attributes, parameters, shared memory) through mb_func_begin; fills args, thread, lane, warp,
    // block, smem.
    void (*begin)(struct emit *e, int n, const mty *params);
    void (*gload)(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out); // n elements of `bytes`
    void (*gstore)(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in);
    val (*atomic_add)(struct emit *e, const struct gaddr *g, mty elem, val x);  // the value before
    void (*copy)(struct emit *e, val shared, const struct gaddr *g, int bytes); // COPY_ASYNC; 4, 8 or 16; zero-fills
    void (*commit)(struct emit *e);
    void (*wait)(struct emit *e, int pending);
    void (*barrier)(struct emit *e);
    // One fetch of an operand from shared memory at this lane's run; out: instruction operands, k fastest.
    // MMA_WARPGROUP: the operand's descriptor, `shared` being where it starts in buffer `from`, the same in all lanes.
    void (*fragment)(struct emit *e, const struct mma *i, const struct operand_map *o, const struct buf *from,
                     val shared, val *out);
    // acc: the instruction's accumulators, (elements a lane) / acc_pack values, in element-number order; updated.
    void (*mma)(struct emit *e, const struct mma *i, val a, val b, val *acc);
    // (optional: kinds that are asynchronous) Before a run of mmas, whose accumulators others may have written; behind it; until at
    // most `pending` groups are on their way, after which the n accumulators in v (0: none) may be read.
    void (*mma_open)(struct emit *e);
    void (*mma_commit)(struct emit *e);
    void (*mma_wait)(struct emit *e, int pending, int n, val *v);
    // (optional: archs with COPY_BULK) Barriers in shared memory, 8 bytes each, and the copy engine that reports to them.
    void (*barrier_init)(struct emit *e, val barrier, int arrivals); // by one thread
    void (*barrier_ready)(struct emit *e);                           // by the block, behind its inits
    // One arrival of each thread where pred (NOVAL: all); landed: once the thread's copies so far have landed.
    void (*barrier_arrive)(struct emit *e, val barrier, val pred, bool landed);
    // Until the phase of that parity is complete. copies: others' threads wrote shared memory, which matrix units read next.
    void (*barrier_await)(struct emit *e, val barrier, val parity, bool copies);
    // By the thread where pred: the box of tensor map `map` at coords[n], innermost first, to `shared`; its bytes count at the barrier.
    void (*copy_box)(struct emit *e, val shared, val barrier, val map, int n, const val *coords, int64_t bytes,
                     val pred);
    void (*role_begin)(struct emit *e,
                       int regs); // the warps of a role take or leave registers: `regs` a thread from here on
    const char *map_argument;     // (optional: archs with COPY_BULK) attributes of the argument that is a tensor map
    // (optional) From here on this thread sees all that the launch before wrote. Without it: launches wait for each other.
    void (*depend)(struct emit *e);
    val (*grid_size)(struct emit *e);                                    // blocks of the launch, i32
    val (*convert)(struct emit *e, enum elem from, enum elem to, val x); // among f32, bf16, f16
    val (*math)(struct emit *e, enum opcode op, val x, val y); // EXP2 LOG2 SQRT RSQRT RCP FLOOR MIN MAX on f32
    val (*shuffle_xor)(struct emit *e, val x, int mask);       // x of lane ^ mask; i32 or f32
    val (*shuffle)(struct emit *e, val x, val lane);           // x of that lane; i32 or f32
    val (*uniform)(struct emit *e, val x); // (optional) x, known to be equal in all lanes; without it: x as it is
    void (*annotate)(void *llvm_module, const struct arch *a); // LLVM-level attributes and flags
    // Assembly or object -> code bytes (arena). false after adding a diagnostic; *missing: a tool was not found (exit 3).
    bool (*finish)(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing);
};

// targets.c
extern const struct target *const targets[];
extern const int ntargets;
const struct arch *arch_find(const char *name); // NULL if unknown
// What the rows alone decide, and what is emitted for no target yet: a target's `supports`, or the first thing it asks.
const char *arch_supports(struct ctx *c, const struct arch *a, const struct kernel *k, struct loc *at);
// "l2 l3 l4 r1" -> bits; returns their number, -1 if malformed. "-" gives home 0.
int bits_parse(const char *s, struct bit *out, int max);
#endif
