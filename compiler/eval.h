// Shared by eval.c (control, memory) and eval_ops.c (values): the state of one evaluation.
#ifndef MOEC_EVAL_H
#define MOEC_EVAL_H
#include "ir.h"

#include <setjmp.h>

struct cells { // a tile in doubles, row-major in the order of the type's axes
    double *v;
    int64_t n, cap;
};
struct indices { // where operands have the elements of a result; reused by every operation
    int32_t *v;
    int64_t cap;
};
struct copy { // one element on its way to shared memory
    double *to;
    double v;
};
struct group {
    VEC(struct copy) copies;
};
struct ev {
    struct ctx *c;
    const struct kernel *k;
    const struct eval_arg *args;
    struct eval_opts o;
    struct cells *ops, *vars;    // by id
    int64_t *origin, *hi, *size; // by axis id
    int64_t *counter;            // by op id * CLAUSES_MAX + clause
    int64_t *dim;                // by index in k->dims
    double **shared;             // by buf id
    int **pending;               // by buf id: by slot
    VEC(struct group) groups;    // closed and not waited for, oldest first
    struct group open, spare;
    int open_touch;       // entries of `touched` that belong to the open group
    VEC(int *) touched;   // pending counters, one a copy not yet waited for, oldest first
    VEC(int) group_touch; // how many of `touched` belong to each group
    struct indices scratch[8];
    jmp_buf fault;
    const char *why;
};
_Noreturn void ev_fault(struct ev *e, const struct op *op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// eval_ops.c
int64_t ev_elems(const struct ev *e, const struct type *t);
double *ev_room(struct ev *e, struct cells *c, int64_t n); // at least n cells
double ev_scalar(const struct ev *e, const struct op *op);
// For each position of `space`, where the value of type t has its element: idx[i], i < elements of space.
const int32_t *ev_project(struct ev *e, int which, const struct type *space,
                          const struct type *t); // which: scratch 0..7
bool ev_valid(const struct ev *e, const struct axis *a, int64_t pos);
void ev_value(struct ev *e, const struct op *op); // elementwise, leaves, reductions, scans, dots, composites
#endif
