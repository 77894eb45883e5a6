// The simulator behind driver.h: libmoesim.so by dlopen (beside this library or program, else by the loader's rules; or
// $MOE_SIM_LIBRARY, not for programs with raised privileges).
//
// Work runs at once, in the caller's thread, whatever the stream; a stream in capture records instead. What a launch finds comes out at
// the next sync, as a fault of a GPU would.
#include "driver.h"
#include "sim/moesim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct node { // of a graph
    struct node *next;
    enum { NODE_LAUNCH, NODE_FILL, NODE_RECORD } kind;
    struct moesim_kernel *kernel;
    uint32_t blocks;
    bool dependent;
    int nargs;
    uint64_t args[IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX]; // values,
    int nmaps;
    struct launch_map maps[IMAGE_BOXES_MAX]; // and those behind them
    void *ptr;                               // of a fill; the event of a record
    int byte;
    size_t bytes;
};
struct graph {
    struct node *first, **last;
};
struct stream {
    struct graph *capture; // NULL: not in capture
};
struct event {
    double at;
};
struct sim {
    void *library;
    const struct moesim_api *api;
    struct moesim_device *device;
    pthread_mutex_t lock;
    struct stream legacy;
    int reported; // findings that a sync has told
};

// ---- opening -----------------------------------------------------------------------------------------------------

static void *open_beside(void)
{
    Dl_info at;
    char path[4096];
    if (!dladdr((void *)(uintptr_t)&sim_driver, &at) || !at.dli_fname)
        return NULL;
    const char *slash = strrchr(at.dli_fname, '/');
    int n = slash ? (int)(slash - at.dli_fname) + 1 : 0;
    snprintf(path, sizeof path, "%.*slibmoesim.so", n, at.dli_fname);
    void *library = n ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library && n) { // a program in bin/, the library in lib/
        snprintf(path, sizeof path, "%.*s../lib/libmoesim.so", n, at.dli_fname);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static int open_library(struct moe_device *d, struct sim *s)
{
    const char *named = secure_getenv("MOE_SIM_LIBRARY");
    s->library = named && *named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : open_beside();
    if (!s->library && !(named && *named))
        s->library = dlopen("libmoesim.so", RTLD_NOW | RTLD_LOCAL);
    if (!s->library)
        return device_fail(d, MOE_ERR_LIBRARY, "the simulator, libmoesim.so, cannot be opened: %.300s", dlerror());
    const struct moesim_api *(*get)(int) =
        (const struct moesim_api *(*)(int))(uintptr_t)dlsym(s->library, "moesim_api");
    s->api = get ? get(MOESIM_VERSION) : NULL;
    return s->api ? MOE_OK : device_fail(d, MOE_ERR_LIBRARY, "libmoesim.so is not of version %d", MOESIM_VERSION);
}

static int sim_open(struct moe_device *d, const char *which)
{
    struct sim *s = calloc(1, sizeof *s);
    struct moesim_limits limits;
    char why[MOESIM_WHY] = "";
    if (!s || pthread_mutex_init(&s->lock, NULL)) {
        free(s);
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    }
    int status = open_library(d, s);
    if (!status) {
        s->device = s->api->open(which, &limits, why);
        status = s->device ? MOE_OK : device_fail(d, MOE_ERR_ARGUMENT, "%s", why);
    }
    if (status) { // the library stays open: LLVM does not like to be unloaded
        pthread_mutex_destroy(&s->lock);
        free(s);
        return status;
    }
    d->state = s;
    struct moe_info *i = &d->info;
    snprintf(i->name, sizeof i->name, "%s", limits.name);
    snprintf(i->arch, sizeof i->arch, "%s", limits.arch);
    i->processors = limits.processors;
    i->threads_max = limits.threads_max;
    i->shared_max = limits.shared_max;
    return MOE_OK;
}

static void sim_close(struct moe_device *d)
{
    struct sim *s = d->state;
    s->api->close(s->device);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

// ---- memory ------------------------------------------------------------------------------------------------------

static int sim_alloc(struct moe_device *d, size_t bytes, void **ptr)
{
    struct sim *s = d->state;
    pthread_mutex_lock(&s->lock);
    *ptr = s->api->alloc(s->device, bytes);
    pthread_mutex_unlock(&s->lock);
    return *ptr ? MOE_OK : device_fail(d, MOE_ERR_MEMORY, "simulator: no memory for %zu bytes", bytes);
}

static int done(struct moe_device *d, bool ok, const char *what, const void *p, size_t bytes)
{
    return ok ? MOE_OK
              : device_fail(d, MOE_ERR_ARGUMENT, "simulator: %s: %zu bytes at %p are not memory of the device", what,
                            bytes, p);
}

static int sim_free(struct moe_device *d, void *ptr)
{
    struct sim *s = d->state;
    pthread_mutex_lock(&s->lock);
    bool ok = s->api->free(s->device, ptr);
    pthread_mutex_unlock(&s->lock);
    return done(d, ok, "free", ptr, 0);
}

static int sim_copy(struct moe_device *d, void *to, const void *from, size_t bytes, enum copy_direction way)
{
    struct sim *s = d->state;
    pthread_mutex_lock(&s->lock);
    bool ok = way == COPY_UP ? s->api->write(s->device, to, from, bytes) : s->api->read(s->device, to, from, bytes);
    pthread_mutex_unlock(&s->lock);
    return done(d, ok, "copy", way == COPY_UP ? to : from, bytes);
}

// ---- streams -----------------------------------------------------------------------------------------------------

static struct stream *stream_of(struct sim *s, void *stream)
{
    return stream ? stream : &s->legacy;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int run_node(struct moe_device *d, void *stream, const struct node *n)
{
    struct sim *s = d->state;
    void *args[IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX + IMAGE_BOXES_MAX];
    char why[MOESIM_WHY] = "";
    switch (n->kind) {
    case NODE_LAUNCH:
        for (int i = 0; i < n->nargs; i++)
            args[i] = (void *)(uintptr_t)&n->args[i];
        for (int i = 0; i < n->nmaps; i++)
            args[n->nargs + i] = (void *)(uintptr_t)&n->maps[i];
        if (s->api->launch(n->kernel, n->blocks, args, stream, n->dependent, why) < 0)
            return device_fail(d, MOE_ERR_DEVICE, "simulator: %s", why);
        return MOE_OK;
    case NODE_FILL:
        return done(d, s->api->fill(s->device, n->ptr, n->byte & 0xff, n->bytes, n->byte == FILL_POISON), "fill",
                    n->ptr, n->bytes);
    case NODE_RECORD: ((struct event *)n->ptr)->at = now(); return MOE_OK;
    }
    return MOE_OK;
}

// Runs it, or adds it to the graph that the stream records.
static int submit(struct moe_device *d, void *stream, const struct node *n)
{
    struct sim *s = d->state;
    int status = MOE_OK;
    pthread_mutex_lock(&s->lock);
    struct graph *g = stream_of(s, stream)->capture;
    struct node *copy = g ? aligned_alloc(_Alignof(struct node), sizeof *copy) : NULL;
    if (!g) {
        status = run_node(d, stream, n);
    } else if (!copy) {
        status = device_fail(d, MOE_ERR_MEMORY, "out of memory");
    } else {
        *copy = *n;
        copy->next = NULL;
        *g->last = copy;
        g->last = &copy->next;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int sim_fill(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream)
{
    return submit(d, stream, &(struct node){ .kind = NODE_FILL, .ptr = ptr, .byte = byte, .bytes = bytes });
}

static int sim_record(struct moe_device *d, void *event, void *stream)
{
    return submit(d, stream, &(struct node){ .kind = NODE_RECORD, .ptr = event });
}

static int sim_tensor_map(struct moe_device *d, struct launch_map *map, const struct tensor_view *v)
{
    static const enum moesim_elem elems[] = {
        [IMAGE_I32] = MOESIM_I32, [IMAGE_F32] = MOESIM_F32, [IMAGE_BF16] = MOESIM_BF16, [IMAGE_F16] = MOESIM_F16
    };
    const struct sim *s = d->state;
    char why[MOESIM_WHY] = "";
    struct moesim_tensor t = { .elem = elems[v->elem],
                               .rank = v->rank,
                               .base = v->base,
                               .box = { (uint32_t)v->cols, (uint32_t)v->rows, 1, 1 },
                               .steps = { 1, 1, 1, 1 },
                               .swizzle = v->swizzle ? 16 << v->swizzle : 0 };
    for (int i = 0; i < v->rank; i++)
        t.dims[i] = (uint64_t)v->dims[v->rank - 1 - i];
    for (int i = 0; i + 1 < v->rank; i++)
        t.strides[i] = (uint64_t)v->steps[v->rank - 2 - i];
    return s->api->tensor_map(map, &t, why) ? MOE_OK
                                            : device_fail(d, MOE_ERR_ARGUMENT, "simulator: %.100s: %s", v->symbol, why);
}

static int sim_launch(struct moe_device *d, const struct launch_item *item, void *stream)
{
    const struct image_kernel *k = item->sig;
    void **args = item->args;
    struct node n = { .kind = NODE_LAUNCH,
                      .kernel = item->function,
                      .blocks = item->blocks,
                      .dependent = item->dependent,
                      .nargs = k->nparams,
                      .nmaps = k->nboxes };
    for (int i = 0; i < k->ndims; i++)
        n.nargs += k->dims[i].bound < 0;
    for (int i = 0; i < n.nargs; i++)
        memcpy(&n.args[i], args[i], i < k->nparams && k->params[i].kind != IMAGE_SCALAR ? sizeof(void *) : 4);
    for (int i = 0; i < n.nmaps; i++)
        n.maps[i] = *(const struct launch_map *)args[n.nargs + i];
    return submit(d, stream, &n);
}

static int sim_sync(struct moe_device *d, void *stream)
{
    struct sim *s = d->state;
    int n = 0;
    (void)stream;
    pthread_mutex_lock(&s->lock);
    const char *first = s->api->finding(s->device, s->reported);
    char text[ERROR_TEXT_MAX - 64];
    snprintf(text, sizeof text, "%s", first ? first : "");
    while (s->api->finding(s->device, s->reported)) {
        s->reported++;
        n++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!n)
        return MOE_OK;
    return device_fail(d, MOE_ERR_DEVICE, n > 1 ? "%s (and %d more)" : "%s", text, n - 1);
}

static const char *sim_finding(struct moe_device *d, int i)
{
    struct sim *s = d->state;
    const char *text = NULL;
    pthread_mutex_lock(&s->lock);
    if (i >= 0) {
        text = s->api->finding(s->device, i);
    } else {
        s->api->clear(s->device);
        s->reported = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return text;
}

static void sim_stats(struct moe_device *d, char *text, size_t size)
{
    struct sim *s = d->state;
    struct moesim_stats t;
    pthread_mutex_lock(&s->lock);
    s->api->stats(s->device, &t);
    pthread_mutex_unlock(&s->lock);
    snprintf(text, size,
             "%llu launches, %llu blocks, %.3g lane instructions in %.2f s: %.3g a second; host code made in %.2f s",
             (unsigned long long)t.launches, (unsigned long long)t.blocks, (double)t.lane_instructions, t.seconds,
             t.seconds > 0 ? (double)t.lane_instructions / t.seconds : 0, t.compile_seconds);
}

static void sim_reseed(struct moe_device *d, uint64_t seed)
{
    struct sim *s = d->state;
    pthread_mutex_lock(&s->lock);
    s->api->reseed(s->device, seed);
    pthread_mutex_unlock(&s->lock);
}

static void sim_origin(struct moe_device *d, const void *p, char *text, size_t size)
{
    struct sim *s = d->state;
    char all[MOESIM_WHY];
    pthread_mutex_lock(&s->lock);
    s->api->origin(s->device, p, all);
    pthread_mutex_unlock(&s->lock);
    snprintf(text, size, "%s", all);
}

// ---- code --------------------------------------------------------------------------------------------------------

static int sim_load(struct moe_device *d, const struct image_desc *image, void **module)
{
    struct sim *s = d->state;
    char why[MOESIM_WHY] = "";
    if (strcmp(image->arch, d->info.arch))
        return device_fail(d, MOE_ERR_ARCH, "the image is for %s, the device is %s", image->arch, d->info.arch);
    if (!image->bitcode_size)
        return device_fail(d, MOE_ERR_IMAGE,
                           "the image has no LLVM bitcode, which the simulator runs: compile it with --bitcode");
    pthread_mutex_lock(&s->lock);
    *module = s->api->load(s->device, image->bitcode, image->bitcode_size, why);
    pthread_mutex_unlock(&s->lock);
    return *module ? MOE_OK : device_fail(d, MOE_ERR_IMAGE, "simulator: %s", why);
}

static int sim_unload(struct moe_device *d, void *module)
{
    struct sim *s = d->state;
    pthread_mutex_lock(&s->lock);
    s->api->unload(module);
    pthread_mutex_unlock(&s->lock);
    return MOE_OK;
}

static int sim_kernel(struct moe_device *d, void *module, const struct image_kernel *k, void **function)
{
    struct sim *s = d->state;
    char why[MOESIM_WHY] = "";
    pthread_mutex_lock(&s->lock);
    *function = s->api->kernel(module, k, why);
    pthread_mutex_unlock(&s->lock);
    return *function ? MOE_OK : device_fail(d, MOE_ERR_IMAGE, "simulator: %s", why);
}

// ---- streams, events, graphs -------------------------------------------------------------------------------------

static void graph_free(struct graph *g)
{
    while (g && g->first) {
        struct node *n = g->first;
        g->first = n->next;
        free(n);
    }
    free(g);
}

static int sim_create(struct moe_device *d, enum moe_object_kind kind, void **object)
{
    *object = calloc(1, kind == MOE_STREAM ? sizeof(struct stream) : sizeof(struct event));
    return *object ? MOE_OK : device_fail(d, MOE_ERR_MEMORY, "out of memory");
}

static int sim_destroy(struct moe_device *d, enum moe_object_kind kind, void *object)
{
    (void)d;
    if (kind == MOE_GRAPH) {
        graph_free(object);
    } else {
        if (kind == MOE_STREAM)
            graph_free(((struct stream *)object)->capture);
        free(object);
    }
    return MOE_OK;
}

static int sim_elapsed(struct moe_device *d, void *from, void *to, float *ms)
{
    (void)d;
    *ms = (float)((((struct event *)to)->at - ((struct event *)from)->at) * 1e3);
    return MOE_OK;
}

static int sim_capture(struct moe_device *d, void *stream, void **graph)
{
    struct sim *s = d->state;
    struct stream *t = stream_of(s, stream);
    if (!graph == !!t->capture)
        return device_fail(d, MOE_ERR_ARGUMENT,
                           graph ? "the stream is not in capture" : "the stream is in capture already");
    if (graph) {
        *graph = t->capture;
        t->capture = NULL;
        return MOE_OK;
    }
    struct graph *g = calloc(1, sizeof *g);
    if (!g)
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    g->last = &g->first;
    t->capture = g;
    return MOE_OK;
}

static int sim_replay(struct moe_device *d, void *graph, void *stream)
{
    int status = MOE_OK;
    for (const struct node *n = ((struct graph *)graph)->first; n && !status; n = n->next)
        status = submit(d, stream, n);
    return status;
}

const struct driver sim_driver = {
    .name = "sim",
    .open = sim_open,
    .close = sim_close,
    .alloc = sim_alloc,
    .free = sim_free,
    .copy = sim_copy,
    .fill = sim_fill,
    .load = sim_load,
    .unload = sim_unload,
    .kernel = sim_kernel,
    .tensor_map = sim_tensor_map,
    .launch = sim_launch,
    .sync = sim_sync,
    .create = sim_create,
    .destroy = sim_destroy,
    .record = sim_record,
    .elapsed = sim_elapsed,
    .capture = sim_capture,
    .replay = sim_replay,
    .finding = sim_finding,
    .reseed = sim_reseed,
    .stats = sim_stats,
    .origin = sim_origin,
};
