// Shared by the emit_*.c files: the state of one kernel being written as MLIR.
//
// A tile value is an array of SSA values, one a register element (numbering in ir.h), of this thread. Scalars have one.
// Accumulators of matrix instructions may be held packed, several f32 in one vector value.
#ifndef MOEC_EMIT_H
#define MOEC_EMIT_H
#include "stages.h"

struct tile { // n register elements; packed: n / pack vectors, in the order of the instructions (emit_mma.c)
    int n;
    val *v;
    bool packed;
};
struct cached { // a value made earlier in an enclosing scope
    const void *a;
    int b, c;
    val v;
};
struct unpacked { // the elements of a packed tile, by its array
    const val *packed;
    struct tile t;
};
struct em {
    struct emit e;
    struct ctx *c;
    struct mb *mb;
    const struct kernel *k;
    const struct target *t;
    const struct mb_types *ty;
    struct tile *ops;  // by op id
    struct tile *vars; // by var id
    bool *acc_var;     // by var id: holds the results of matrix products
    val *origin, *hi;  // by axis id, i32
    val *counter;      // by op id: of EACH and of PARALLEL's clauses: [op id * CLAUSES + clause]
    val *dim;          // by index in k->dims
    val *bytes;        // by buf id, i64
    val *base;         // by buf id, llvm.ptr<1>
    VEC(struct cached) cache;
    VEC(struct unpacked) unpacked;
    const struct op *role; // whose program this is; NULL: that of all warps
    int warps;             // that run it
    bool failed;
};
struct scope { // what was made when a region was entered; what is made inside is forgotten behind it
    int cache, unpacked;
};
enum { CLAUSES = CLAUSES_MAX };

// ---- emit.c
struct scope em_enter(const struct em *m);
void em_leave(struct em *m, struct scope s);
void em_block(struct em *m, const struct block *b);
bool em_fail(struct em *m, struct loc at, const char *what);
bool em_refuse(struct em *m, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int em_threads(const struct em *m);

// ---- emit_value.c
mty em_type(struct em *m, enum elem e);
int em_reg_bits(const struct em *m, int dist, const struct axis *a);
int em_elems(const struct em *m, int dist, const struct type *t);                   // register elements
void em_split(const struct em *m, int dist, const struct type *t, int e, int *idx); // element -> per axis
int em_join(const struct em *m, int dist, const struct type *t, const struct type *of,
            const int *idx);                                                 // of's axes -> t's element
int em_reg_pos(const struct em *m, int dist, const struct axis *a, int idx); // position bits of a register index
val em_thread_pos(struct em *m, int dist, const struct axis *a);             // position bits of this thread
val em_pos(struct em *m, int dist, const struct axis *a, int idx);           // both
val em_index(struct em *m, int dist, const struct axis *a, int idx);         // origin + pos
val em_valid(struct em *m, int dist, const struct axis *a, int idx);         // inside hi; NOVAL: always
struct tile em_tile(struct em *m, const struct op *op);                      // its value, unpacked
val em_scalar(struct em *m, const struct op *op);
val em_elem(struct em *m, const struct op *arg, int dist, const struct type *t, const int *idx, enum elem as);
val em_convert(struct em *m, enum elem from, enum elem to, val x);
val em_and(struct em *m, val a, val b); // either may be NOVAL
void em_replicas(const struct em *m, int dist, const struct type *t, unsigned *lane,
                 unsigned *warp);                              // bits that t does not use
val em_replica0(struct em *m, int dist, const struct type *t); // this thread holds the first copy; NOVAL: no copies
void em_value(struct em *m, const struct op *op);

// ---- emit_mem.c
void em_load(struct em *m, const struct op *op);
void em_store(struct em *m, const struct op *op);
void em_atomic(struct em *m, const struct op *op);
void em_copy(struct em *m, const struct op *op);
void em_copy_box(struct em *m, const struct op *op, val barrier); // @bulk; its bytes count at the barrier
void em_put(struct em *m, const struct op *op);
// Shared-memory offsets are linear over GF(2) in the bits of (row, col).
struct lin {
    val thread;       // i32: this thread's part
    int64_t possible; // bits that `thread` may have set
    const struct buf *buf;
};
int64_t em_lin_const(const struct buf *b, int row, int col);
struct lin em_lin(struct em *m, const struct buf *b, val row, int64_t row_bits, val col, int64_t col_bits);
val em_lin_ptr(struct em *m, const struct lin *l, val slot, int row, int col); // llvm.ptr<3>

// ---- emit_roles.c
void em_barriers(struct em *m); // at the kernel's start: initialises those in shared memory
void em_arrive(struct em *m, const struct op *op);
void em_await(struct em *m, const struct op *op);
void em_box(struct em *m, const struct block *b, int at); // the @bulk copy there
// Calls fn for each role of the block (NULL: there is none), as the program of that role's warps.
void em_each_role(struct em *m, const struct block *b, void (*fn)(struct em *m, const struct op *parallel),
                  const struct op *parallel);

// ---- emit_relayout.c
void em_relayout(struct em *m, const struct op *op);

// ---- emit_axis.c
void em_reduce(struct em *m, const struct op *op);
void em_scan(struct em *m, const struct op *op);
// In all threads, t as it is in the one whose lane and warp numbers have these bits clear.
void em_from_first(struct em *m, const struct op *op, unsigned lane, unsigned warp, struct tile *t);

// ---- emit_mma.c
void em_mma_run(struct em *m, const struct block *b, int first); // the mma there and those that can go with it
void em_mma_wait(struct em *m, int pending);
struct tile em_pack(struct em *m, const struct type *t, struct tile x);
struct tile em_unpack(struct em *m, const struct type *t, struct tile x);
#endif
