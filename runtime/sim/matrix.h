// Matrix instructions and fragment moves as the vendors document them, on plain arrays: no scheduling, no memory checks.
// Written from the PTX ISA and the CDNA3 / CDNA4 ISA manuals, table by table (each row cites its table), and independent of
// targets/: a layout that is wrong there must show here.
//
// A warp's registers are arrays of 32-bit words, lane-major: word w of lane l is at [l * words + w]. 16-bit elements lie two
// a word, low half first; elements are numbered along the words.
#ifndef MOESIM_MATRIX_H
#define MOESIM_MATRIX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum matrix_type { MATRIX_F16, MATRIX_BF16, MATRIX_F32 };
enum matrix_operand { MATRIX_A, MATRIX_B, MATRIX_D }; // D stands for C too: they share one layout
struct matrix_op {
    const char *name; // the PTX mnemonic with all its qualifiers, or LLVM's name of the intrinsic
    int lanes;        // 32, 64; 128 for wgmma
    int m, n, k;
    enum matrix_type in;           // accumulators are f32
    int a_words, b_words, d_words; // registers a lane
    // The place of element e of a lane's operand: A: (row m, k), B: (k, column n), D: (row m, column n).
    void (*at)(const struct matrix_op *op, enum matrix_operand which, int lane, int e, int *row, int *col);
};
// NULL: not known (the caller reports it by name; nothing is guessed).
const struct matrix_op *matrix_find(const char *name);
// All rows, for tests: NULL past the last.
const struct matrix_op *matrix_row(int i);
// D = A x B + C. Products are exact; they and C are summed in double precision with k ascending and rounded to f32 once. (No vendor
// defines the order or the intermediate width.) d may be c.
void matrix_run(const struct matrix_op *op, const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d);

// How a matrix unit adds (matrix_sum.c): the k of one block together, `bits` places below the largest exponent.
struct matrix_sum {
    int block, bits;
};
// As matrix_run(); how NULL: the same. Where a factor or C is not finite: the same for that element.
void matrix_run_as(const struct matrix_op *op, const struct matrix_sum *how, const uint32_t *a, const uint32_t *b,
                   const uint32_t *c, uint32_t *d);
// Dense matrices, all finite: d[m, n] (f32 bits, C before) += a[m, k] x b[k, n].
void matrix_sum_run(const struct matrix_sum *how, enum matrix_type type, int m, int n, int k, const uint16_t *a,
                    const uint16_t *b, uint32_t *d);

// wgmma.mma_async m64nNk16 (n in 8..256 by 8): A from registers (a_words 4) or from shared memory, B from shared memory.
// D: n / 2 words a lane.
struct wgmma {
    int n;
    enum matrix_type in;
    bool a_shared, scale_d; // scale_d false: D = A x B
    int scale_a, scale_b;   // 1 or -1
    bool trans_a, trans_b;  // the operand in shared memory is MN-major
};
// Addresses of the bytes of a core matrix by the descriptor's fields; exact description in the PTX ISA, "matrix descriptor" and
// "shared memory matrix layout". shared: the block's shared memory, `bytes` long. touch (may be NULL) is called for
// every run of 16 bytes that the instruction reads. false: the descriptor is malformed or reaches out of memory; why says how.
typedef void wgmma_touch(void *user, uint32_t address, int bytes);
bool wgmma_run(const struct wgmma *w, const uint8_t *shared, size_t bytes, const uint32_t *a_regs, uint64_t a_desc,
               uint64_t b_desc, uint32_t *d, wgmma_touch *touch, void *user, char why[128]);
// The touches alone.
bool wgmma_reads(const struct wgmma *w, size_t bytes, uint64_t a_desc, uint64_t b_desc, wgmma_touch *touch, void *user,
                 char why[128]);

// ldmatrix / stmatrix .m8n8 .b16: count 1, 2 or 4 matrices; rows[8 * count]: host addresses of the 16-byte rows, matrix-major
// (those that lane i names are rows[i]). regs: [32 * count].
void ldmatrix_run(int count, bool trans, const uint8_t *const *rows, uint32_t *regs);
void stmatrix_run(int count, bool trans, uint8_t *const *rows, const uint32_t *regs);

// The swizzle of TMA and of matrix descriptors: the byte that `address` names lies at the result. width: 0 (none), 32, 64 or
// 128 bytes; address: from the start of shared memory.
uint32_t smem_swizzle(int width, uint32_t address);
#endif
