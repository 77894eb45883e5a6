// The tile IR: what a kernel computes, tile by tile, and (after schedule and layout) how.
//
//   values    struct op with a type: pure expressions over tiles, in a DAG; an op stands in exactly one block
//   variables struct var: mutable, declared by OP_VAR, read by OP_GET, written by OP_SET
//   axes      struct axis: a named, masked range of indices; tiles have axes, not anonymous dimensions
//   buffers   struct buf: kernel parameters in global memory, or (after layout) shared memory
//   blocks    ordered lists of ops; an op may use any value of its own block before it, or of an enclosing block
//
// Broadcasting is by axis name: f32[r] * f32[c] is f32[r, c]; f32[r, c] + f32[c] is f32[r, c].
// An axis has an origin (lo) and a bound (hi): positions at or past hi are masked: they read 0, are not
// written, and do not take part in reductions.
#ifndef MOEC_IR_H
#define MOEC_IR_H
#include "ast.h"

enum { F_PURE = 1, F_READS = 2, F_EFFECT = 4, F_REGION = 8, F_COMPOSITE = 16, F_SYNC = 32, F_LAYOUT = 64 };
enum opcode {
#define OP(e, n, a, t, f, m) OP_##e,
#include "ops.def"
#undef OP
    OP_COUNT
};
enum type_rule {
    TR_NONE,
    TR_SAME,
    TR_ARITH,
    TR_FLOAT,
    TR_INT,
    TR_LOGIC,
    TR_COMPARE,
    TR_SELECT,
    TR_CAST,
    TR_REDUCE,
    TR_SCAN,
    TR_ARGRED,
    TR_TOPK,
    TR_TAKE,
    TR_DOT,
    TR_LOAD,
    TR_OWN
};
struct op_info {
    const char *name;
    int nargs;
    enum type_rule rule;
    unsigned flags;
    const char *meaning;
};
extern const struct op_info op_infos[OP_COUNT]; // ir.c

enum elem { EL_NONE, EL_BOOL, EL_I32, EL_F32, EL_BF16, EL_F16, EL_COUNT };
extern const char *const elem_names[EL_COUNT]; // "", "bool", "i32", "f32", "bf16", "f16"
extern const int elem_bytes[EL_COUNT];         // bool: 1 (in registers only: no buffer of bool)
static inline bool elem_is_float(enum elem e)
{
    return e >= EL_F32;
}

enum { RANK_MAX = 4 };

// A named dimension of the kernel's shapes. bound >= 0: fixed by -D. Otherwise an i32 kernel argument.
struct dim {
    const char *name;
    int64_t bound;    // -1: free
    int64_t multiple; // from `require D % n == 0`, and from bound; at least 1
    int64_t max;      // from `require D <= n`; INT32_MAX if unknown
    struct loc loc;
};

// One bit of an axis index lives in a register number, a lane number or a warp number.
enum bit_home { BIT_REG = 'r', BIT_LANE = 'l', BIT_WARP = 'w' };
struct bit {
    char home;  // enum bit_home
    int8_t pos; // which bit of that number. For BIT_REG: position among this axis's own register bits
};
enum { BITS_MAX = 16 };

enum axis_kind {
    AX_TILE,  // PARALLEL or FOR over tile(lo, hi); AT gives it one origin
    AX_RANGE, // RANGE: all of lo..hi in one tile
    AX_MAP,   // the rows of a tile map entry (PARALLEL only)
};
struct axis {
    const char *name;
    int id; // index into kernel->axes
    enum axis_kind kind;
    struct op *def;     // PARALLEL, FOR, AT, RANGE
    struct op *lo, *hi; // scalars; AX_MAP: NULL (from the tile map entry)
    int size;           // power of two, the tile's extent; 0 until schedule
    bool exact;         // (layout, fold) every tile is full: no masks needed
    int64_t max_extent; // upper bound of hi - lo when known, else INT32_MAX (sizes AX_RANGE)
    struct loc loc;
};
struct type {
    enum elem elem;
    int rank; // 0: scalar, uniform over the block
    struct axis *axes[RANK_MAX];
};

// Where each axis lives, for tiles held in registers. Distribution 0 of a kernel is `main`: every tile value
// is in it unless op->dist says otherwise. Bits of a thread number that no axis of a tile uses replicate it.
// The register elements of a tile are numbered with the last axis's register bits lowest, in order of bits.
struct home {
    struct axis *axis;
    int nbits;                 // log2(axis->size)
    struct bit bits[BITS_MAX]; // bits[i]: where bit i of the position (index - origin) lives
};
struct dist {
    const char *name;
    VEC(struct home) homes;
};

enum buf_kind { BUF_IN, BUF_OUT, BUF_INOUT, BUF_MAP, BUF_SHARED };
struct shape_dim {
    struct dim *dim; // NULL: constant
    int64_t value;
};
struct buf {
    const char *name;
    int id; // index into kernel->bufs
    enum buf_kind kind;
    enum elem elem;
    int rank;                         // global: row-major, contiguous, base 16-byte aligned. BUF_MAP: [N, 4] of i32:
    struct shape_dim shape[RANK_MAX]; //   expert, first row, rows (0: nothing to do), 0
    // BUF_SHARED, set by layout: `stages` slots of rows x cols elements, row-major, rows * cols * bytes apart.
    // swizzle n in 0..3: 16-byte chunk index bits [0, n) are XORed with row bits [s, s + n), where
    // s = max(0, 3 - log2(row bytes / 16)): for rows up to 128 bytes the patterns of TMA and wgmma.
    int stages, rows, cols, swizzle;
    int64_t offset; // byte offset in the block's shared memory; -1 until layout places it
    bool early;     // a parameter that may be read before the kernel launched before this one has finished
    bool barrier;   // BUF_SHARED of i32[S][1, 2]: S barriers of 8 bytes (ARRIVE, AWAIT), not data
    struct loc loc;
};
struct param {          // in the order of the source; free dims follow as i32, in order of first appearance
    struct buf *buf;    // tensors and tile maps
    const char *scalar; // scalars
    enum elem elem;
};

struct var {
    const char *name;
    int id;
    struct type type;
    int dist; // index into kernel->dists
    struct loc loc;
};
struct block {
    VEC(struct op *) ops;
    struct op *parent; // NULL: the kernel's body
};
enum { ARGS_MAX = 8 };
struct op {
    enum opcode code;
    struct loc loc;
    int id; // unique in the kernel, for memo tables: < kernel->nops
    struct type type;
    struct op *args[ARGS_MAX];
    int nargs;
    int dist;         // register tiles: distribution (0: main)
    const char *name; // let name; NULL: unnamed
    // attributes, by op
    struct axis *axis;  // INDEX, ORIGIN (tile axes), REDUCE_*, SCAN, ARGMAX, TOPK, TAKE, FOR, RANGE, AT, SOFTMAX
    struct axis *axis2; // TOPK: the axis of the results
    struct op *region;  // ORIGIN of an EACH, or of PARALLEL's each/map-expert clause: that op
    int clause;         //   ... and which of PARALLEL's clauses
    struct buf *buf;    // LOAD STORE ATOMIC_ADD COPY (source) SHARED ARRIVE AWAIT; MMA: a
    struct buf *buf2;   // COPY PUT: destination; MMA: b
    struct var *var;    // VAR GET SET
    struct dim *dim;    // DIM
    int param;          // SCALAR: index into kernel->params
    int64_t ival;       // CONST of bool and i32; WAIT, MMA_WAIT n; ROLE first warp
    int64_t ival2;      // ROLE warps
    int regs;           // ROLE: registers a thread it may use; 0: not stated
    bool bulk;          // COPY: one box by one thread, by the copy engine
    double fval;        // CONST of floats
    struct block *body, *other; // regions; IF: then, else
    struct clause *clauses;     // PARALLEL
    int nclauses;
};
// LOAD: args = indices (buf->rank of them). STORE, ATOMIC_ADD: indices, then the value.
// COPY: args = slot, then indices of buf (global); buf2 = shared. Tile axes of the copy: union of the indices' axes,
//       in order: they must be the rows then the cols of buf2.
// AT: args = origin, hi (also axis->lo, hi). Loops: lo, hi. EACH: op->name is the counter's name.
// PUT: args = slot, value; buf2 = shared; the value's axes are rows, cols. MMA: args = acc, slot a, slot b.
enum { CLAUSES_MAX = 8 }; // of one PARALLEL
enum clause_kind { CL_TILE, CL_EACH, CL_MAP };
struct clause {
    enum clause_kind kind;
    struct axis *axis;  // CL_TILE, CL_MAP: the rows
    const char *name;   // CL_EACH: the counter; CL_MAP: the expert
    struct op *lo, *hi; // CL_TILE (also axis->lo, hi), CL_EACH
    struct buf *map;    // CL_MAP
};
enum require_kind { REQ_MULTIPLE, REQ_MAX }; // D % n == 0, D <= n
struct require {
    enum require_kind kind;
    struct dim *dim;
    int64_t value;
    struct loc loc;
};

// What schedule.c decided; printed as annotations of the kernel: @warps(2, 4) @stages(4) @mma(name) ...
struct sched {
    const char *variant;  // "" : the only one; else appended to the kernel's name with '_'
    int warps_m, warps_n; // product = warps of a block; without dots warps_m = warps, warps_n = 1
    int stages;           // ring depth of pipelined loops
    int group;            // raster: row tiles handled together before the next column tile; 0: none
    int mma;              // index into arch->mmas; -1: no dot
    bool swap;            // the mma's M side is the operand b (axis n of the DSL's dot)
    int min_blocks;       // resident blocks a multiprocessor to allow for; 0: not stated
    bool persistent;      // blocks stay and take tile after tile, `resident` of them a multiprocessor
    int producers;        // warps beside warps_m * warps_n that only copy; 0: every warp copies
    int cluster;          // reserved: said, kept, refused by targets that cannot
    // By the model: what a block costs its multiprocessor, in all and a position of its loop, with `resident` blocks there at once, and
    // the bytes of operand b that they have in flight; 0: not known.
    int fixed_ns, step_ps, resident, flight;
    struct loc loc;
};
struct kernel {
    const char *name, *doc;
    struct loc loc;
    VEC(struct param) params;
    VEC(struct dim *) dims;
    VEC(struct buf *) bufs;
    VEC(struct axis *) axes;
    VEC(struct var *) vars;
    VEC(struct dist) dists; // 0: main; empty before layout
    VEC(struct require) requires;
    struct block *body;
    int nops;
    struct sched sched;
    bool scheduled, laid_out;
    int64_t shared_bytes; // all of the block's shared memory, the scratch included
    int64_t scratch; // its offset: (threads x 4 bytes x register elements of the largest result) for reductions and
        // scans along axes with warp bits, and values of atomic_add that several warps need; -1: none needed
    struct kernel *next;
};
struct schedule { // a schedule block of the source, unresolved
    const char *kernel, *variant;
    VEC(const char *) arches;
    VEC(struct node *) items;
    struct loc loc;
    struct schedule *next;
};
struct module {
    struct kernel *kernels;
    struct schedule *schedules;
};

// ---- ir.c: making and walking
struct op *op_new(struct ctx *c, struct kernel *k, enum opcode code, struct loc loc);
void block_push(struct ctx *c, struct block *b, struct op *op);
void block_insert(struct ctx *c, struct block *b, int at, struct op *op);
struct block *block_new(struct ctx *c, struct op *parent);
struct op *op_unary(struct ctx *c, struct kernel *k, struct block *b, enum opcode code, struct op *x);
struct op *op_binary(struct ctx *c, struct kernel *k, struct block *b, enum opcode code, struct op *x, struct op *y);
struct op *op_const_i(struct ctx *c, struct kernel *k, struct block *b, enum elem e, int64_t v);
struct op *op_const_f(struct ctx *c, struct kernel *k, struct block *b, enum elem e, double v);
struct op *op_cast(struct ctx *c, struct kernel *k, struct block *b, enum elem e, struct op *x);
// Sets op->type from the rule of ops.def; false (and an error at op->loc) if the operands do not fit.
bool op_infer(struct ctx *c, struct op *op);
bool type_has_axis(const struct type *t, const struct axis *a);
bool type_union(struct type *into, const struct type *t); // adds missing axes; false past RANK_MAX
bool type_equal(const struct type *a, const struct type *b);
int64_t type_elems(const struct type *t);                   // product of axis sizes
const char *type_text(struct ctx *c, const struct type *t); // "f32[rows, cols]", for diagnostics
double elem_round(enum elem e, double v); // as CAST does: bf16, f16 to nearest even, i32 truncates and saturates
bool op_widens(enum opcode code);         // its bf16 and f16 operands must be cast to f32 (op_unary, op_binary do that)
struct op *op_widen(struct ctx *c, struct kernel *k, struct block *b, struct op *x); // f32(x) if x is bf16 or f16
// Bounds of a scalar i32 (or of all elements of an index tile), from constants, dims and counters: lo <= x <= hi.
void op_bounds(const struct op *op, int64_t *lo, int64_t *hi);
struct axis *axis_new(struct ctx *c, struct kernel *k, const char *name, enum axis_kind kind, struct loc loc);
struct buf *buf_new(struct ctx *c, struct kernel *k, const char *name, enum buf_kind kind, enum elem e, struct loc loc);
struct var *var_new(struct ctx *c, struct kernel *k, const char *name, struct type t, struct loc loc);
const struct home *dist_home(const struct kernel *k, int dist, const struct axis *a); // NULL: none
// Calls fn on each op, outer before inner, in order; stops when it returns false.
bool walk(struct block *b, bool (*fn)(void *user, struct op *op), void *user);
// Largest power of two (at most 2^20) that surely divides a scalar value / an index tile's origin.
int64_t multiple_of(const struct kernel *k, const struct op *op);
struct kernel *kernel_clone(struct ctx *c, const struct kernel *k); // deep: ops, axes, bufs, vars, dims
// What the copy engine must know of a tensor: the boxes of the kernel's bulk copies, each once, in order of appearance.
// The kernel takes one tensor map a box behind its other arguments.
enum { BOXES_MAX = 16, ROLES_MAX = 16 }; // of a kernel
struct box {
    const struct buf *buf;   // global
    int rows, cols, swizzle; // as those of the shared buffer
};
int kernel_boxes(const struct kernel *k, struct box out[BOXES_MAX]); // their number
int kernel_box(const struct kernel *k, const struct op *copy);       // which of them this copy uses; -1: none

// ---- check.c: AST -> module; NULL if there were errors. Accepts what raise.c prints at every stage.
struct module *check(struct ctx *c, const struct node *file);
// ---- raise.c: tile IR -> AST, for printing
struct node *raise_kernel(struct ctx *c, const struct kernel *k);
// ---- passes: one a file; true if it changed anything; errors are in c
bool expand(struct ctx *c, struct kernel *k);
bool fold(struct ctx *c, struct kernel *k); // constants, identities, common subexpressions, dead values, axis->exact
// All variants of a kernel for c->arch, in arena, as clones with sizes and sched filled; count in *n.
// From the schedule blocks that name the arch, else from the analytic model.
struct kernel **schedule(struct ctx *c, const struct module *m, const struct kernel *k, int *n);
bool layout(struct ctx *c, struct kernel *k);
bool leaves(struct ctx *c, struct kernel *k); // of a laid-out kernel: constants, indices ... right before their uses
// ---- verify.c: after every stage; lists all faults at the guilty lines
enum stage {
    ST_TOKENS,
    ST_AST,
    ST_TILE,
    ST_EXPAND,
    ST_SCHED,
    ST_LAYOUT,
    ST_MLIR,
    ST_MLIRLLVM,
    ST_LLVM,
    ST_LLVMOPT,
    ST_ASM,
    ST_IMAGE,
    ST_COUNT
};
extern const char *const stage_names[ST_COUNT];
bool verify(struct ctx *c, const struct kernel *k, enum stage after);

// ---- eval.c: runs tile IR of any stage in double precision on the host. Also the oracle of the tests.
struct eval_arg {
    void *data;     // tensors: host memory in the element type; scalars: pointer to an int32_t or float
    int64_t nbytes; // of data; accesses past it are errors of eval, not of the DSL
};
struct eval_opts {
    int default_tile;          // extent of tile axes that have no size yet (0: 16)
    int64_t max_blocks;        // 0: all
    bool late_copies;          // asynchronous copies land at their wait, their slots read as NaN until then
    bool consumers_first;      // which role goes on when several can: those that do not copy; else those that do
    int64_t persistent_blocks; // blocks that share the tiles of a persistent grid (0: 2)
};
// args: one a param in order, then dims: values of the free dims in order. false and *why (arena) on a fault:
// uniform conditions that are not, an unwaited slot read, an access past nbytes.
bool eval(struct ctx *c, const struct kernel *k, const struct eval_arg *args, const int64_t *dims,
          const struct eval_opts *o, const char **why);
#endif
