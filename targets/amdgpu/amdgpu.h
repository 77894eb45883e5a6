// Shared by the files of this target.
#ifndef MOEC_AMDGPU_H
#define MOEC_AMDGPU_H
#include "../target.h"

extern const struct arch amd_arches[];
enum { AMD_ARCHES = 2 };
enum {                     // arch.flags
    AMD_PERMLANE_SWAP = 1, // has v_permlane16_swap and v_permlane32_swap
    AMD_OBJECT_V5 = 2,     // code object version 5, for runtimes that do not know 6
};
#define AMD_ZEROS "amd_zeros" // emit.c refers to it, amd_annotate defines it

// arch.c
void amd_annotate(void *llvm_module, const struct arch *a);

// emit.c
void amd_begin(struct emit *e, int n, const mty *params);
void amd_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out);
void amd_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in);
val amd_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x);
void amd_copy(struct emit *e, val shared, const struct gaddr *g, int bytes);
void amd_commit(struct emit *e);
void amd_wait(struct emit *e, int pending);
void amd_barrier(struct emit *e);
void amd_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, const struct buf *from, val shared,
                  val *out);
void amd_mma(struct emit *e, const struct mma *i, val a, val b, val *acc);
val amd_convert(struct emit *e, enum elem from, enum elem to, val x);
val amd_math(struct emit *e, enum opcode op, val x, val y);
val amd_shuffle_xor(struct emit *e, val x, int mask);
val amd_shuffle(struct emit *e, val x, val lane);
val amd_uniform(struct emit *e, val x);

// notes.c: fills l->uses from a linked object
void amd_uses(struct lowered *l, const char *code, size_t len);

// finish.c
bool amd_finish(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing);
#endif
