// Shared by layout.c (homes, shared memory, clean-up), layout_dot.c (rings and staging of dots) and ring.c.
#ifndef MOEC_LAYOUT_H
#define MOEC_LAYOUT_H
#include "schedule.h"

struct lay {
    struct ctx *c;
    struct kernel *k;
    int lanes, lane_bits, warp_bits;
    int64_t shared; // bytes placed so far
    bool failed;
};
bool lay_fail(struct lay *l, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// layout_dot.c: replaces every dot of the block (and below) by staging and mma.
void lay_dots(struct lay *l, struct block *b);
// ring.c: rewrites `loop`, of which some dots read tiles straight from memory, as a ring; appends to b.
// Returns the block where what follows the loop goes; NULL: nothing to copy, nothing was changed.
struct block *lay_ring(struct lay *l, struct block *b, struct op *loop);
// The dot's operand as a tile in shared memory, written here by the threads; appends to b.
void lay_staged_dot(struct lay *l, struct block *b, struct op *dot);
struct op *lay_mma(struct lay *l, struct op *dot, struct buf *a, struct op *slot_a, struct buf *b, struct op *slot_b);

struct buf *lay_shared(struct lay *l, struct block *b, const char *name, enum elem e, int stages, int rows, int cols,
                       struct loc loc);
int lay_copy_dist(struct lay *l, struct axis *rows, struct axis *cols, int warp_bits); // over so many warps
struct op *lay_repeat(struct lay *l, struct block *b, struct op *op, int dist);        // its value once more, in dist
struct axis *lay_contracted(const struct op *dot);
int lay_dist(struct lay *l, const char *name); // the distribution of that name, made if there is none
// layout_store.c: values that are stored in too small pieces get another layout first, in the block and below.
void lay_stores(struct lay *l, struct block *b);
void lay_depend(struct lay *l); // layout_depend.c: the wait for the kernel launched before
void lay_dead(struct lay *l);   // removes values nobody uses and variables nobody reads
int lay_set_home(struct lay *l, int dist, struct axis *a, int n, const struct bit *bits);

// scalar i32 arithmetic, folding constants
struct op *lay_int(struct lay *l, struct block *b, int64_t v);
struct op *lay_bin(struct lay *l, struct block *b, enum opcode code, struct op *x, struct op *y);
#endif
