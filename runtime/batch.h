// Several kernels by one call of the driver: executable graphs that are chains of kernel nodes, whose nodes get new functions
// and parameters before each launch. Setting a node and launching a short graph cost the host far less than launching its
// kernels one by one, which is what happens where there is no chain. What is the same for every vendor; cuda_batch.c and
// hip_batch.c know the calls. Internal.
#ifndef MOE_BATCH_H
#define MOE_BATCH_H
#include "driver.h"

#include <stdatomic.h>

enum {
    BATCH_MOST = 8, // kernels of a chain
    BATCH_WAYS = 8, // chains of each length and pattern: as many streams run without waiting for each other
    BATCH_TEXT = 160,
};
// All return the vendor's code, 0: success. state: the device's.
struct batch_calls {
    int (*graph)(const void *state, void **graph);
    // after: a node, or NULL. An item that is dependent need not wait for its end.
    int (*node)(const void *state, void *graph, void *const *after, const struct launch_item *item, void **node);
    int (*make)(const void *state, void *graph, void **exec);
    int (*set)(const void *state, void *exec, void *node, const struct launch_item *item);
    int (*launch)(const void *state, void *exec, void *stream);
    int (*capturing)(const void *state, void *stream, bool *yes);
    void (*drop)(const void *state, void *graph, void *exec); // each may be NULL
    // One kernel alone. *name: of the entry point.
    int (*one)(const void *state, const struct launch_item *item, void *stream, const char **name);
    void (*forget)(const void *state); // (may be NULL) a call has failed, and nobody is told
    const char *launch_name;           // of the entry point of launch()
};
// Of one module, so that no node ever holds a function of another one, which may be gone.
struct batch {
    pthread_mutex_t making;
    struct chains *_Atomic of[BATCH_MOST + 1]; // by length, a list: one of each pattern of dependent items
    atomic_uint_least64_t clock;               // of launches
};
bool batch_init(struct batch *b); // false: out of memory
void batch_free(struct batch *b, const struct batch_calls *calls, const void *state);
// Makes the chains of n kernels of which the same are dependent, if there are none; as many as can be made.
void batch_prepare(struct batch *b, const struct batch_calls *calls, const void *state, const struct launch_item *items,
                   int n);
// Launches n > 0 items: by a chain of their length and pattern, else one by one. b NULL: there are none. Any thread, any number
// at once; allocates nothing and waits for nothing. The code of what failed, and `what`: which call of which kernel; 0: nothing.
int batch_launch(struct batch *b, const struct batch_calls *calls, const void *state, const struct launch_item *items,
                 int n, void *stream, char what[BATCH_TEXT]);
#endif
