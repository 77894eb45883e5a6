// Inside of the checker: AST -> tile IR. check.c: files, kernels, parameters; check_stmt.c: statements;
// check_expr.c: expressions; check_role.c: warp roles; check_fact.c: annotations, layout blocks; check_sched.c: schedule blocks; names.c: scopes.
//
// Errors do not stop the check: what cannot be checked becomes a poisoned value (V_BAD) or name (SY_POISON), about
// which nobody complains again.
#ifndef MOEC_CHECK_H
#define MOEC_CHECK_H
#include "ir.h"

// What an expression gives. Literals have no type yet: they take that of the other operand.
enum val_kind { V_BAD, V_OP, V_INT, V_FLOAT };
struct value {
    enum val_kind kind;
    struct op *op; // V_OP
    int64_t i;     // V_INT
    double f;      // V_FLOAT
};

enum sym_kind { SY_POISON, SY_DIM, SY_SCALAR, SY_BUF, SY_AXIS, SY_COUNTER, SY_VALUE, SY_VAR };
struct sym {
    const char *name; // as written; the IR's name may have a suffix
    enum sym_kind kind;
    int depth;
    struct loc loc;
    struct dim *dim;
    int param; // SY_SCALAR
    struct buf *buf;
    struct axis *axis;
    struct op *region; // SY_COUNTER: EACH or PARALLEL
    int clause;
    struct value val; // SY_VALUE
    struct var *var;
    bool open;        // still in scope
    struct sym *next; // the symbol declared before it, in scope or not
};

struct alias {
    const char *name;
    enum elem elem;
    struct alias *next;
};

struct used_name {
    const char *name;
    int suffix; // the last one given to a copy of this name
};

struct checker {
    struct ctx *c;
    struct module *m;
    struct alias *aliases;
    bool *bind_used; // [c->nbind]
    // of the kernel being checked
    struct kernel *k;
    struct block *b;  // where new ops go
    struct sym *syms; // newest first, closed ones too (for "used outside its loop")
    int depth;
    VEC(struct used_name) used;  // names that the kernel's IR has
    int dist;                    // @dist of the statement
    const struct type *let_type; // of the `let` whose expression is being checked, or NULL
    struct op *grid;             // PARALLEL
    struct op *role;             // ROLE that the statement stands in, or NULL
};

// ---- names.c
struct sym *declare(struct checker *s, const char *name, enum sym_kind kind, struct loc loc);
struct sym *lookup(const struct checker *s, const char *name); // NULL
void scope_open(struct checker *s);
void scope_close(struct checker *s);
const char *unique_name(struct checker *s, const char *name);
bool unknown_name(struct checker *s, const char *name, struct loc loc); // adds the error, with the likeliest meant name
const char *sym_kind_text(enum sym_kind k);                             // "a dimension"
// The nearest of the candidates to what was written: feed them one by one. best: NULL unless near enough.
struct nearest {
    const char *want, *best;
    int cost;
};
void nearest_try(struct nearest *n, const char *candidate);
const char *did_you_mean(struct ctx *c, const struct nearest *n); // "; did you mean 'x'?" or ""

// ---- check_expr.c
struct value expr(struct checker *s, const struct node *n);
struct value val_op(struct op *op); // V_BAD if NULL
// The value as an op; literals become constants of `want` (EL_NONE: i32 or f32). NULL if it is bad or does not fit.
struct op *val_use(struct checker *s, struct value v, enum elem want, const struct node *n);
// The value as `elem`: literals adapt, bf16 and f16 widen to f32; anything else is an error with the cast to write.
struct op *val_convert(struct checker *s, struct value v, enum elem elem, const struct node *n, const char *what);
struct op *scalar_i32(struct checker *s, const struct node *n, const char *what); // NULL after an error
struct axis *axis_arg(struct checker *s, const struct node *n);
struct value binary(struct checker *s, enum opcode code, struct value a, struct value b, const struct node *n);
struct op *op_add(struct checker *s, struct op *op); // infers, sets dist, pushes; NULL after an error
struct op *op_make(struct checker *s, enum opcode code, struct loc loc, int nargs, struct op *const *args);
bool check_nargs(struct checker *s, const struct node *call, int min, int max, const char *form);
struct value check_dot(struct checker *s, const struct node *call, struct op *acc);
struct value check_atomic(struct checker *s, const struct node *call);
// shared[slot], of a barrier or of data
struct op *check_slot(struct checker *s, const struct node *n, struct buf **buf, bool barrier);
bool check_indices(struct checker *s, const struct node *sub, struct op **args, struct buf **buf);
enum elem elem_named(const struct checker *s, const char *name); // EL_NONE if unknown
bool is_literal_type(struct checker *s, struct value v, enum elem e, const struct node *n);

// ---- check_stmt.c
void check_block(struct checker *s, const struct node *block, struct block *into); // opens a scope
bool check_type(struct checker *s, const struct node *n, struct type *t);
// ---- check.c
void unknown_elem(struct checker *s, const struct node *type); // the error, with what was probably meant

// ---- check_role.c
void check_role(struct checker *s, const struct node *n);
bool check_action(struct checker *s, const struct node *call); // a statement without data: false if it is none
void check_barrier_facts(struct checker *s, const struct node *n, struct buf *b); // @barrier of a shared buffer
void check_roles(struct checker *s);                                              // of the kernel, when all is read

// ---- check_fact.c
const struct annot *annot_find(const struct node *n, const char *name);
// Adds an error for every annotation that is not in `allowed` (names separated by spaces).
void annots_only(struct checker *s, const struct node *n, const char *allowed);
int annot_int(struct checker *s, const struct annot *a, int i, int64_t min, int64_t max); // min after an error
int check_dist(struct checker *s, const struct node *n);                                  // @dist(name), 0 without
void check_axis_facts(struct checker *s, const struct node *n, struct axis *a);           // @tile(64) @exact
void check_kernel_facts(struct checker *s, const struct node *kernel);
void declare_dists(struct checker *s, const struct node *kernel); // names only
void fill_dists(struct checker *s, const struct node *kernel);    // when all axes are known

// ---- check_sched.c
void check_schedule(struct checker *s, const struct node *n);
#endif
