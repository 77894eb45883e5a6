// The interpreter of AMD LLVM IR of the tests: what its files share. See amd_sim.c.
#ifndef AMD_SIM_H
#define AMD_SIM_H
#include "ptx_sim.h"

enum { LANES64 = 64, ARGS = 6 };

// clang-format off
// What an instruction does: LLVM's opcodes, and calls told apart by the intrinsic's name.
#define AMD_CODES(X) \
    X(NOP) \
    X(RET) X(BRANCH) X(SWITCH) X(COPY) X(BITCAST) X(ADD) X(SUB) X(MUL) X(UDIV) X(SDIV) X(UREM) X(SREM) X(SHL) X(LSHR) \
        X(ASHR) X(AND) X(OR) X(XOR) X(SMIN) X(SMAX) X(UMIN) X(UMAX) X(ABS) X(FSHL) X(FSHR) X(USUBSAT) X(FADD) X(FSUB) \
            X(FMUL) X(FDIV) X(FNEG) X(FABS) X(FMIN) X(FMAX) X(FMA) X(FLOOR) X(SQRT) X(LOG2) X(EXP2) X(RCP) X(TRUNC) \
                X(ZEXT) X(SEXT) X(FPTOSISAT) X(SITOFP) X(UITOFP) X(FPTRUNC) X(FPEXT) X(ICMP) X(FCMP) X(SELECT) \
                    X(EXTRACT) X(INSERT) X(SHUFFLE) X(FIELD) X(REDUCE) X(GEP) X(LOAD) X(STORE) X(ATOMIC) X(RSRC) \
                        X(BUFLOAD) X(BUFSTORE) X(BUFATOMIC) X(TID) X(BLOCK) X(BARRIER) X(READFIRST) X(READLANE) X(DPP) \
                            X(SWIZZLE) X(BPERMUTE) X(SWAP16) X(SWAP32) X(MFMA)
enum ir_code {
#define X(c) X_##c,
    AMD_CODES(X)
#undef X
};
// clang-format on
enum word { W_INT, W_F32, W_BF16, W_F16, W_PTR };
struct shape { // of a value: n words, each of `bits` bits. A buffer resource is two words: base, num_records
    enum word word;
    int n, bits;
};
struct move {
    int dst, src, n;
};
struct edge { // of a branch: where to, and what the phis there take
    int to, nmoves;
    struct move *moves;
};
struct insn {
    enum ir_code code, sub;      // sub: of REDUCE
    struct shape to, from;       // of the result; of operand 0
    int dst, nops;               // dst: register
    int op[ARGS];                // registers; constants are ~index
    int compare;                 // ICMP, FCMP: LLVM's predicate
    int *mask;                   // SHUFFLE: elements, -1: any
    int first;                   // FIELD: word
    int64_t scale[ARGS], offset; // GEP: bytes of a step of index i, and of all constant ones
    int bytes;                   // LOAD, STORE, BUF*: of the access
    bool lds, real;              // LOAD, STORE: address space 3; ATOMIC, BUFATOMIC: f32
    int access;                  // numbers LDS accesses of 16 bytes
    int mfma_m, mfma_k;
    bool mfma_half;
    struct edge *edge; // BRANCH: taken if op 0 is true or there is none, and if false. SWITCH: default, then the cases
    uint64_t *cases;   // SWITCH: values, from 1
    int nedges;
    char *text;
};
struct ir_arg {
    int slot, bytes;
};
struct ir {              // one kernel
    struct program head; // first: ptx_cuda.c sees this
    struct insn *v;
    int n, nregs, nargs, lds_bytes, naccesses;
    uint64_t *constants;
    int nconstants;
    struct ir_arg *args;
};
enum state { RUNNING, AT_WAVE, AT_BARRIER, ENDED };
struct thread {
    int pc;
    enum state state;
    uint64_t *r;
    int *turns; // by insn.access: how often
};
struct access;
struct shadow;
struct block {
    struct ir *p;
    struct thread *t;
    int n, faults;
    unsigned id;
    uint8_t *lds;
    struct shadow *shadow;
    uint32_t now;
    struct access *pending; // for the statistics
    bool stats;
};

// ---- amd_sim.c
void sim_fault(struct block *b, int thread, const char *what, uint64_t where);
bool sim_global(struct block *b, int thread, uint64_t at, int n);
void sim_read_lds(struct block *b, int thread, uint64_t at, int n, void *out);
void sim_write_lds(struct block *b, int thread, uint64_t at, int n, const void *in);

// ---- amd_step.c
void sim_run(struct block *b, int thread); // up to where the thread must meet others
const uint64_t *sim_value(const struct block *b, int thread, const struct insn *x, int op);
float sim_f32(uint64_t v);
uint64_t sim_bits(float f);
uint64_t sim_to_f16(float f);
float sim_from_f16(uint64_t v);
uint64_t sim_to_bf16(float f);
float sim_from_bf16(uint64_t v);
#endif
