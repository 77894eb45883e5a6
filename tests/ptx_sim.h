// The PTX interpreter of the tests: what its three files share. ptx_parse.c: text -> programs. ptx_sim.c: running them.
// ptx_cuda.c: both behind the names of libcuda. See ptx_sim.c for what is checked.
#ifndef PTX_SIM_H
#define PTX_SIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 32, VEC_MAX = 4, OPERANDS_MAX = 5, NAME = 128 };

enum type {
    T_NONE,
    T_B8,
    T_B16,
    T_B32,
    T_B64,
    T_U16,
    T_U32,
    T_U64,
    T_S16,
    T_S32,
    T_S64,
    T_F32,
    T_F16,
    T_BF16,
    T_PRED,
    T_F16X2,
    T_BF16X2,
    T_COUNT
};
extern const struct type_info {
    const char *name;
    int bytes;
} ptx_types[T_COUNT];

// Instructions by their first word; some of those behind the names below are told apart by a modifier.
// clang-format off
#define INSTRUCTIONS(X) \
    X(MOV, "mov") X(ADD, "add") X(SUB, "sub") X(MUL, "mul") X(MULW, "mul.wide") X(MULHI, "mul.hi") \
    X(MAD, "mad") X(FMA, "fma") X(DIV, "div") X(REM, "rem") X(AND, "and") X(OR, "or") X(XOR, "xor") \
    X(NOT, "not") X(SHL, "shl") X(SHR, "shr") X(BFE, "bfe") X(NEG, "neg") X(ABS, "abs") X(MIN, "min") \
    X(MAX, "max") X(SETP, "setp") X(SELP, "selp") X(CVT, "cvt") X(LD, "ld") X(ST, "st") X(ATOM, "atom") \
    X(COPY, "cp.async.copy") X(COMMIT, "cp.async.commit") X(WAIT, "cp.async.wait") X(BAR, "bar") \
    X(SHFL, "shfl") X(LDMATRIX, "ldmatrix") X(MMA, "mma") X(BRA, "bra") X(RET, "ret") X(EX2, "ex2") \
    X(LG2, "lg2") X(RCP, "rcp") X(SQRT, "sqrt") X(RSQRT, "rsqrt")
// clang-format on
enum code {
#define X(c, n) I_##c,
    INSTRUCTIONS(X)
#undef X
        I_COUNT
};

enum operand_kind { O_REG, O_IMM, O_ADDRESS, O_VEC };
struct operand {
    enum operand_kind kind;
    int reg;     // of an address: -1 for none
    int64_t imm; // also of an address
    int n, vec[VEC_MAX];
};
struct instruction {
    enum code code;
    enum type type, from; // the first and second type in its name
    int guard;            // predicate register, -1: none
    bool guard_not, ftz, floor, xor_lane, shared, param;
    int compare, target, n;
    struct operand o[OPERANDS_MAX];
    const char *text;
};
struct param {
    char name[NAME];
    int bytes, offset;
};
struct label {
    char name[64];
    int at;
};
struct program {
    char name[NAME];
    struct instruction *v;
    int n, cap, nregs, nparams, nlabels, threads;
    char (*regs)[24];
    struct param *params;
    struct label *labels;
    struct program *next;
};
enum { R_TID, R_CTAID, R_FIXED }; // registers that are set before the start

// ---- ptx_parse.c
bool ptx_refuse(const char *why, const char *what); // prints, false
void *ptx_grow(void *v, int n, size_t size);        // room for element n
bool ptx_parse(struct program **programs, const char *text);

// ---- ptx_sim.c
void ptx_seed(unsigned seed);
int ptx_faults(void); // so far
void ptx_memory_add(void *start, size_t bytes);
void ptx_memory_drop(void *start);
bool ptx_launch(struct program *p, unsigned grid, unsigned threads, unsigned shared, void **args);
#endif
