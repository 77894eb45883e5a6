// Several kernels by one call of the driver: executable graphs that are chains of kernel nodes, whose nodes get new functions
// and parameters before each launch. Setting a node and launching a short graph cost the host far less than launching its
// kernels one by one. What is the same for every vendor; cuda_batch.c and hip_batch.c know the calls. Internal.
#ifndef MOE_BATCH_H
#define MOE_BATCH_H
#include "driver.h"

#include <stdatomic.h>

enum {
    BATCH_MOST = 8, // kernels of a chain
    BATCH_WAYS = 8, // chains of each length: as many streams run without waiting for each other
};
// All return the vendor's code, 0: success. state: the device's.
struct batch_calls {
    int (*graph)(const void *state, void **graph);
    int (*node)(const void *state, void *graph, void *const *after, const struct launch_item *item, void **node);
    int (*make)(const void *state, void *graph, void **exec);
    int (*set)(const void *state, void *exec, void *node, const struct launch_item *item);
    int (*launch)(const void *state, void *exec, void *stream);
    int (*capturing)(const void *state, void *stream, bool *yes);
    void (*drop)(const void *state, void *graph, void *exec); // each may be NULL
};
// Of one module, so that no node ever holds a function of another one, which may be gone.
struct batch {
    pthread_mutex_t making;
    struct chains *_Atomic of[BATCH_MOST + 1]; // by length; NULL: none
    atomic_uint_least64_t clock;               // of launches
};
bool batch_init(struct batch *b); // false: out of memory
void batch_free(struct batch *b, const struct batch_calls *calls, const void *state);
// Makes the chains of n kernels, if there are none; as many as can be made. The code of what failed, 0: nothing.
int batch_prepare(struct batch *b, const struct batch_calls *calls, const void *state, const struct launch_item *items,
                  int n);
enum batch_result {
    BATCH_NOT,   // nothing has reached the device: launch them one by one
    BATCH_DONE,  // launched
    BATCH_FAILED // the graph's launch failed with *code
};
// Any thread, any number at once. Allocates nothing and waits for nothing. *code of BATCH_NOT: of a call that failed, or 0.
enum batch_result batch_launch(struct batch *b, const struct batch_calls *calls, const void *state,
                               const struct launch_item *items, int n, void *stream, int *code);
#endif
