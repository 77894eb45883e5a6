// What the files of ref_moe.h share among themselves.
#ifndef REF_INNER_H
#define REF_INNER_H
#include "ref_moe.h"

enum { EXPERTS_MAX = 4096 };

// What an expert makes of one pair of products, biases added before.
double ref_activate(const struct ref_layer *l, double g, double u);
double ref_bias(const struct ref_layer *l, enum ref_matrix which, int expert, int index); // 0 if there are none

// The first bad value is kept in words.
void ref_say(struct ref_verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Adds a thread's verdict to the whole, under a lock.
void ref_merge(struct ref_verdict *into, const struct ref_verdict *v);
#endif
