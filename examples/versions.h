// Images that change under load: whoever runs a version holds it, and who lets go last frees it. Nothing here is the
// library's; take it as it is.
#ifndef MOE_EXAMPLES_VERSIONS_H
#define MOE_EXAMPLES_VERSIONS_H
#include "moelayer.h"

#include <pthread.h>
#include <stdlib.h>

struct version { // an image and the layer over it; the weights are common to all versions
    struct moe_image *image;
    struct moe_layer *layer;
    int users; // being the current one counts as a use
};
struct versions {
    pthread_mutex_t lock;
    struct version *current;
    int freed;
};

static inline struct version *version_acquire(struct versions *all)
{
    pthread_mutex_lock(&all->lock);
    struct version *v = all->current;
    v->users++;
    pthread_mutex_unlock(&all->lock);
    return v;
}

// After the caller's stream is past every call with it, and its graphs are destroyed. NULL is allowed.
static inline void version_release(struct versions *all, struct version *v)
{
    pthread_mutex_lock(&all->lock);
    bool last = v && --v->users == 0;
    all->freed += last;
    pthread_mutex_unlock(&all->lock);
    if (last) {
        moe_layer_free(v->layer);
        moe_unload(v->image);
        free(v);
    }
}

// From now on version_acquire() gives this image, which is ours also if that fails; who holds another goes on with it.
static inline int version_publish(struct versions *all, struct moe_image *image, const struct moe_layer_desc *desc,
                                  const struct moe_layer_weights *weights)
{
    struct version *v = (struct version *)calloc(1, sizeof *v), *old;
    int status = v ? moe_layer_create(image, desc, weights, &v->layer) : (int)MOE_ERR_MEMORY;
    if (status) {
        moe_unload(image);
        free(v);
        return status;
    }
    v->image = image;
    v->users = 1;
    pthread_mutex_lock(&all->lock);
    old = all->current;
    all->current = v;
    pthread_mutex_unlock(&all->lock);
    version_release(all, old);
    return MOE_OK;
}
#endif
