// Shared by the files of this target.
#ifndef MOEC_NVPTX_H
#define MOEC_NVPTX_H
#include "../target.h"

extern const struct arch nv_arches[];
enum { NV_ARCHES = 3 };

// emit.c
void nv_begin(struct emit *e, int n, const mty *params);
void nv_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out);
void nv_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in);
val nv_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x);
void nv_copy(struct emit *e, val shared, const struct gaddr *g, int bytes);
void nv_commit(struct emit *e);
void nv_wait(struct emit *e, int pending);
void nv_barrier(struct emit *e);
void nv_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, const struct buf *from, val shared,
                 val *out);
void nv_mma(struct emit *e, const struct mma *i, val a, val b, val *acc);
void nv_mma_open(struct emit *e);
void nv_mma_commit(struct emit *e);
void nv_mma_wait(struct emit *e, int pending, int n, val *v);
void nv_barrier_init(struct emit *e, val barrier, int arrivals);
void nv_barrier_ready(struct emit *e);
void nv_barrier_arrive(struct emit *e, val barrier, val pred, bool landed);
void nv_barrier_await(struct emit *e, val barrier, val parity, bool copies);
void nv_copy_box(struct emit *e, val shared, val barrier, val map, int n, const val *coords, int64_t bytes, val pred);
void nv_role_begin(struct emit *e, int regs);
void nv_depend(struct emit *e);
val nv_grid_size(struct emit *e);
val nv_convert(struct emit *e, enum elem from, enum elem to, val x);
val nv_math(struct emit *e, enum opcode op, val x, val y);
val nv_shuffle_xor(struct emit *e, val x, int mask);
val nv_shuffle(struct emit *e, val x, val lane);

// finish.c
bool nv_finish(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing);
// Runs ptxas on l->asm_text and fills l->uses; false after adding a diagnostic. For nv_finish and its tests.
bool nv_assemble(struct lowered *l, const char *program, int seconds, const char **code, size_t *len);
#endif
