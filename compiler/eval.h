// Shared by eval.c (control, variables), eval_mem.c (memory) and eval_ops.c (values): the state of one evaluation.
#ifndef MOEC_EVAL_H
#define MOEC_EVAL_H
#include "machine.h"

#include <setjmp.h>

struct cells { // a tile in doubles, row-major in the order of the type's axes
    double *v;
    int64_t n, cap;
};
struct indices { // where operands have the elements of a result; reused by every operation
    int32_t *v;
    int64_t cap;
};
struct values {                  // of one program
    struct cells *ops, *vars;    // by id
    int64_t *origin, *hi, *size; // by axis id
    int64_t *counter;            // by op id * CLAUSES_MAX + clause
};
struct shared_data { // a buffer in shared memory
    double *now;     // as a read finds it
    double *coming;  // what copies bring
    int64_t block;   // 1 + the block that declared it last
};
struct ev {
    struct ctx *c;
    const struct kernel *k;
    const struct eval_arg *args;
    struct eval_opts o;
    struct cells *ops, *vars; // these six: of the program that runs
    int64_t *origin, *hi, *size;
    int64_t *counter;
    int64_t *dim;               // by index in k->dims
    struct shared_data *shared; // by buf id
    struct machine m;
    struct indices scratch[8];
    jmp_buf fault;
    const char *why;
};
_Noreturn void ev_fault(struct ev *e, const struct op *op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// eval_mem.c
int64_t ev_dim(const struct ev *e, const struct shape_dim *d);
const struct eval_arg *ev_arg(struct ev *e, const struct op *op, const struct buf *b);
void ev_load(struct ev *e, const struct op *op);
void ev_store(struct ev *e, const struct op *op); // and atomic_add
void ev_declare(struct ev *e, const struct op *op);
void ev_copy(struct ev *e, const struct op *op);
void ev_land(struct ev *e, const struct buf *b, int slot);
void ev_put(struct ev *e, const struct op *op);
void ev_mma(struct ev *e, const struct op *op);

// eval_ops.c
int64_t ev_elems(const struct ev *e, const struct type *t);
double *ev_room(struct ev *e, struct cells *c, int64_t n); // at least n cells
double ev_scalar(const struct ev *e, const struct op *op);
// For each position of `space`, where the value of type t has its element: idx[i], i < elements of space.
const int32_t *ev_project(struct ev *e, int which, const struct type *space,
                          const struct type *t); // which: scratch 0..7
bool ev_valid(const struct ev *e, const struct axis *a, int64_t pos);
double ev_element(const struct op *op, double a, double b, double c); // of an elementwise operation
void ev_value(struct ev *e, const struct op *op); // elementwise, leaves, reductions, scans, dots, composites
#endif
