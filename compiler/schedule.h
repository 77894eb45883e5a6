// Shared by schedule.c (variants, user items) and model.c (the analytic model).
#ifndef MOEC_SCHEDULE_H
#define MOEC_SCHEDULE_H
#include "../targets/target.h"

// What a kernel's matrix products look like, found by sched_shape().
struct dot_shape {
    int dots; // products that share the axes m and n and the k axis of one loop
    struct axis *m, *n, *k;
    enum elem in;
    bool
        roles; // and other warps could bring them: rows of whole pieces, the loop directly in the grid, nothing else needs all warps
    bool
        streamed; // all matrix products of the kernel are these, of tiles that copies can bring, and nothing else in the loop uses sums
};
// The tile of one matrix kernel: what the model chooses.
struct tile_choice {
    int bm, bn, bk, wm, wn, stages, mma, min_blocks;
    int producers;                           // warps that only copy; wanted: -1 if open
    int fixed_ns, step_ps, resident, flight; // see struct sched
    double cost; // ns a block and useful MFLOP: smaller is better; only comparable within one kernel and bm
};
bool sched_is_matrix(const struct op *dot); // a dot of two rank-2 tiles that the matrix units can run
bool sched_inside(const struct op *loop, const struct op *op); // is it one of the operations of the loop's own block?
// Is v, an operand of a product in this loop, a tile of memory whose place can be computed before the loop?
bool sched_copyable(const struct op *loop, const struct op *v);
bool sched_whole(const struct op *hi, const struct shape_dim *d); // is hi the end of the dimension?
void sched_shape(const struct kernel *k, struct dot_shape *s);

// model.c. Fixed fields of `want` (> 0) are kept, the others chosen; false if nothing fits, with the reason in *why.
bool model_matrix(struct ctx *c, const struct dot_shape *s, const struct tile_choice *want, struct tile_choice *out,
                  const char **why);
// Sets the sizes of all axes that are still 0 and returns the warps of a block, for a kernel without matrix products.
int model_plain(struct ctx *c, struct kernel *k, int want_warps);
int log2_exact(int64_t v); // -1 unless a power of two
int64_t pow2_ceil(int64_t v);
#endif
