// Shared by verify.c and verify_ring.c.
#ifndef MOEC_VERIFY_H
#define MOEC_VERIFY_H
#include <stdio.h>

#include "../targets/target.h"

struct check {
    struct ctx *c;
    const struct kernel *k;
    enum stage after;
    bool *live;            // by op id: defined and in scope
    bool *axis_live;       // by axis id
    const struct op *role; // around the operation; NULL: none
    int faults;
};
bool fault(struct check *v, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void check_places(struct check *v, const struct op *op);
// verify_roles.c: what may stand in the grid's block beside roles, and in them.
void verify_roles(struct check *v, const struct block *b, int at);
// verify_ring.c: copies, waits, barriers and reads of shared memory in every order that small trip counts give.
void check_ring(struct check *v);
#endif
