// libmoert: the public functions of moert.h over one driver (driver.h). Argument checks and handles live here; what
// is particular to a vendor is in cuda.c and hip.c. Nothing prints or exits; the launch path allocates nothing and waits for
// nothing.
#include "driver.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct driver *const drivers[] = { &cuda_driver, &hip_driver, &sim_driver };
enum { NDRIVERS = sizeof drivers / sizeof drivers[0] };

struct moe_kernel {
    struct moe_image *image;
    const struct image_kernel *sig;
    void *function; // the driver's; NULL: beyond this device's limits
};
struct moe_image {
    struct moe_device *device;
    void *bytes; // our copy: desc points into it
    struct image_desc *desc;
    void *module;
    struct moe_kernel *kernels;
};

const char *moe_status_name(int status)
{
    static const char *const names[] = { "MOE_OK",         "MOE_ERR_ARGUMENT", "MOE_ERR_LIBRARY", "MOE_ERR_NO_DEVICE",
                                         "MOE_ERR_MEMORY", "MOE_ERR_IMAGE",    "MOE_ERR_ARCH",    "MOE_ERR_SIGNATURE",
                                         "MOE_ERR_LIMIT",  "MOE_ERR_DEVICE",   "MOE_ERR_SOURCE",  "MOE_ERR_COMPILER" };
    return status >= 0 && status < (int)(sizeof names / sizeof names[0]) ? names[status] : "?";
}

int device_fail(struct moe_device *d, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&d->lock);
    vsnprintf(d->error_text, sizeof d->error_text, fmt, ap);
    pthread_mutex_unlock(&d->lock);
    va_end(ap);
    return status;
}

const char *moe_error(struct moe_device *d, char *text, size_t size)
{
    if (!size)
        return text;
    pthread_mutex_lock(&d->lock);
    snprintf(text, size, "%s", d->error_text);
    pthread_mutex_unlock(&d->lock);
    return text;
}

// ---- device -----------------------------------------------------------------------------------------------------

static int say(char *why, size_t size, int status, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int say(char *why, size_t size, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (why && size)
        vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return status;
}

int device_ordinal(const char *which)
{
    size_t len = strspn(which, "0123456789");
    if (len > 4 || which[len])
        return -1;
    return (int)strtol(which, NULL, 10);
}

// "cuda:1" -> driver, "1". What follows the name may be left out.
static const struct driver *parse_device(const char *name, const char **which)
{
    size_t n = strcspn(name, ":");
    *which = name[n] ? name + n + 1 : "";
    for (int i = 0; i < NDRIVERS; i++)
        if (strlen(drivers[i]->name) == n && !strncmp(drivers[i]->name, name, n) && (!name[n] || **which))
            return drivers[i];
    return NULL;
}

bool environment_says(const char *variable)
{
    const char *v = getenv(variable);
    return v && *v && strcmp(v, "0");
}

int moe_open(const char *device, struct moe_device **out, char *why, size_t why_size)
{
    const char *which;
    if (!out)
        return say(why, why_size, MOE_ERR_ARGUMENT, "moe_open: no place for the device");
    *out = NULL;
    const struct driver *driver = device ? parse_device(device, &which) : NULL;
    if (!driver)
        return say(why, why_size, MOE_ERR_ARGUMENT, "device '%.60s': expected cuda:N, hip:N or sim:ARCH",
                   device ? device : "(null)");
    struct moe_device *d = calloc(1, sizeof *d);
    if (!d || pthread_mutex_init(&d->lock, NULL)) {
        free(d);
        return say(why, why_size, MOE_ERR_MEMORY, "out of memory");
    }
    d->driver = driver;
    d->batching = !environment_says("MOE_NO_BATCH");
    int status = driver->open(d, which);
    if (status) {
        say(why, why_size, status, "%s", d->error_text);
        pthread_mutex_destroy(&d->lock);
        free(d);
        return status;
    }
    *out = d;
    return MOE_OK;
}

void moe_close(struct moe_device *d)
{
    if (!d)
        return;
    d->driver->close(d);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

int moe_info(struct moe_device *d, struct moe_info *info)
{
    size_t size = info->size;
    if (size < sizeof info->size)
        return device_fail(d, MOE_ERR_ARGUMENT, "moe_info: size is not set");
    size = size < sizeof *info ? size : sizeof *info;
    memcpy(info, &d->info, size);
    info->size = size;
    return MOE_OK;
}

// ---- memory -----------------------------------------------------------------------------------------------------

int moe_alloc(struct moe_device *d, size_t bytes, void **ptr)
{
    *ptr = NULL;
    return bytes ? d->driver->alloc(d, bytes, ptr) : MOE_OK;
}

int moe_free(struct moe_device *d, void *ptr)
{
    return ptr ? d->driver->free(d, ptr) : MOE_OK;
}

int moe_upload(struct moe_device *d, void *to, const void *from, size_t bytes)
{
    return bytes ? d->driver->copy(d, to, from, bytes, COPY_UP) : MOE_OK;
}

int moe_download(struct moe_device *d, void *to, const void *from, size_t bytes)
{
    return bytes ? d->driver->copy(d, to, from, bytes, COPY_DOWN) : MOE_OK;
}

int moe_fill(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream)
{
    return bytes ? d->driver->fill(d, ptr, byte, bytes, stream) : MOE_OK;
}

int moe_poison(struct moe_device *d, void *ptr, size_t bytes, void *stream)
{
    return bytes ? d->driver->fill(d, ptr, FILL_POISON, bytes, stream) : MOE_OK;
}

const char *moe_finding(struct moe_device *d, int i)
{
    return d->driver->finding && i >= 0 ? d->driver->finding(d, i) : NULL;
}

void moe_reseed(struct moe_device *d, uint64_t seed)
{
    if (d->driver->reseed)
        d->driver->reseed(d, seed);
}

const char *moe_stats(struct moe_device *d, char *text, size_t size)
{
    if (size)
        text[0] = 0;
    if (size && d->driver->stats)
        d->driver->stats(d, text, size);
    return text;
}

const char *moe_origin(struct moe_device *d, const void *p, char *text, size_t size)
{
    if (size)
        text[0] = 0;
    if (size && d->driver->origin)
        d->driver->origin(d, p, text, size);
    return text;
}

void moe_findings_clear(struct moe_device *d)
{
    if (d->driver->finding)
        d->driver->finding(d, -1);
}

// ---- images -----------------------------------------------------------------------------------------------------

static bool within_limits(const struct moe_device *d, const struct image_kernel *k)
{
    return k->threads <= d->info.threads_max && k->shared <= d->info.shared_max;
}

static int make_kernels(struct moe_image *m)
{
    struct moe_device *d = m->device;
    for (int i = 0; i < m->desc->nkernels; i++) {
        struct moe_kernel *k = &m->kernels[i];
        k->image = m;
        k->sig = &m->desc->kernels[i];
        int status = within_limits(d, k->sig) ? d->driver->kernel(d, m->module, k->sig, &k->function) : MOE_OK;
        if (status)
            return status;
    }
    return MOE_OK;
}

static void image_free(struct moe_image *m)
{
    free(m->kernels);
    free(m->desc);
    free(m->bytes);
    free(m);
}

int moe_load(struct moe_device *d, const void *bytes, size_t size, struct moe_image **out)
{
    char err[IMAGE_ERR_MAX];
    *out = NULL;
    if (!moe_image_check(bytes, size, err))
        return device_fail(d, MOE_ERR_IMAGE, "image: %s", err);
    struct moe_image *m = calloc(1, sizeof *m);
    if (!m)
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    m->device = d;
    m->bytes = malloc(size);
    if (m->bytes)
        m->desc = moe_image_read(memcpy(m->bytes, bytes, size), size, err);
    if (m->desc)
        m->kernels = calloc((size_t)m->desc->nkernels + 1, sizeof *m->kernels);
    if (!m->kernels) {
        image_free(m);
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    }
    int status = d->driver->load(d, m->desc, &m->module);
    if (!status) {
        status = make_kernels(m);
        if (status)
            d->driver->unload(d, m->module);
    }
    if (status) {
        image_free(m);
        return status;
    }
    *out = m;
    return MOE_OK;
}

int moe_unload(struct moe_image *m)
{
    if (!m)
        return MOE_OK;
    int status = m->device->driver->unload(m->device, m->module);
    image_free(m);
    return status;
}

struct moe_device *image_device(const struct moe_image *m)
{
    return m->device;
}

const struct image_desc *moe_describe(const struct moe_image *m)
{
    return m->desc;
}

const struct moe_kernel *moe_kernel_at(const struct moe_image *m, int i)
{
    return i >= 0 && i < m->desc->nkernels ? &m->kernels[i] : NULL;
}

const struct moe_kernel *moe_find(const struct moe_image *m, const char *name, const char *variant)
{
    for (int i = 0; i < m->desc->nkernels; i++) {
        const struct image_kernel *k = &m->desc->kernels[i];
        if (!strcmp(k->name, name) && (!variant || !strcmp(k->variant, variant)))
            return &m->kernels[i];
    }
    return NULL;
}

const struct moe_kernel *moe_find_tile(const struct moe_image *m, const char *name, const char *axis, int64_t want)
{
    const struct moe_kernel *best = NULL;
    int best_tile = 0;
    for (int i = 0; i < m->desc->nkernels; i++) {
        const struct image_kernel *k = &m->desc->kernels[i];
        if (strcmp(k->name, name) || !m->kernels[i].function)
            continue;
        int tile = moe_image_axis(k, axis);
        bool better = best_tile >= want ? tile >= want && tile < best_tile : tile > best_tile;
        if (!best || better) {
            best = &m->kernels[i];
            best_tile = tile;
        }
    }
    return best ? best : moe_find(m, name, NULL);
}

const struct image_kernel *moe_signature(const struct moe_kernel *k)
{
    return k->sig;
}

// ---- launch -----------------------------------------------------------------------------------------------------

static int refuse(const struct moe_kernel *k, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
static int refuse(const struct moe_kernel *k, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return device_fail(k->image->device, MOE_ERR_SIGNATURE, "%s: %s", k->sig->symbol, text);
}

static enum moe_arg_kind kind_of(const struct image_param *p)
{
    return p->kind != IMAGE_SCALAR ? MOE_POINTER : p->elem == IMAGE_I32 ? MOE_I32 : MOE_F32;
}

static int refuse_kind(const struct moe_kernel *k, int i, const struct moe_arg *a) __attribute__((cold));
static int refuse_kind(const struct moe_kernel *k, int i, const struct moe_arg *a)
{
    static const char *const words[] = { "nothing", "a pointer", "an i32", "an f32" };
    const struct image_param *p = &k->sig->params[i];
    return refuse(k, "argument %d ('%s') is %s, the kernel takes %s", i, p->name,
                  words[a->kind >= MOE_POINTER && a->kind <= MOE_F32 ? a->kind : 0], words[kind_of(p)]);
}

// The shape of one argument against the signature; free dims take their values from it.
static int unify(const struct moe_kernel *k, const struct image_param *p, const struct moe_arg *a, int64_t *dims)
{
    if (a->rank != p->rank)
        return refuse(k, "'%s' has rank %d, the kernel takes %d", p->name, a->rank, p->rank);
    for (int j = 0; j < p->rank; j++) {
        const struct image_extent *e = &p->shape[j];
        int64_t v = a->shape[j];
        if (e->dim < 0 && v != e->value)
            return refuse(k, "'%s': extent %d is %" PRId64 ", the kernel takes %" PRId64, p->name, j, v, e->value);
        if (e->dim < 0)
            continue;
        if (dims[e->dim] == -1)
            dims[e->dim] = v;
        if (dims[e->dim] != v)
            return refuse(k, "'%s': extent %d is %" PRId64 ", but %s is %" PRId64, p->name, j, v,
                          k->sig->dims[e->dim].name, dims[e->dim]);
    }
    return MOE_OK;
}

static int check_dim(const struct moe_kernel *k, const struct image_dim *d, int64_t v)
{
    if (v == -1)
        return refuse(k, "dimension %s is given neither by a shape nor by name", d->name);
    if (v < 0 || v > d->max)
        return refuse(k, "%s is %" PRId64 ", the kernel takes 0 to %" PRId64, d->name, v, d->max);
    // Dims and multiples are of 31 bits: the short division is the fast one.
    if (d->multiple > 1 && (v | d->multiple) <= UINT32_MAX ? (uint32_t)v % (uint32_t)d->multiple : v % d->multiple)
        return refuse(k, "%s is %" PRId64 ", not a multiple of %" PRId64, d->name, v, d->multiple);
    return MOE_OK;
}

static int resolve_dims(const struct moe_kernel *k, const struct moe_arg *args, const int64_t *given, int64_t *dims)
{
    const struct image_kernel *s = k->sig;
    int status = MOE_OK;
    for (int i = 0; i < s->ndims; i++) {
        dims[i] = s->dims[i].bound >= 0 ? s->dims[i].bound : given ? given[i] : -1;
        if (given && given[i] != -1 && given[i] != dims[i])
            return refuse(k, "%s is %" PRId64 ", the kernel was compiled for %" PRId64, s->dims[i].name, given[i],
                          dims[i]);
    }
    for (int i = 0; i < s->nparams && !status; i++) {
        const struct image_param *p = &s->params[i];
        if (args[i].kind != kind_of(p))
            return refuse_kind(k, i, &args[i]);
        if (args[i].kind == MOE_POINTER && args[i].rank)
            status = unify(k, p, &args[i], dims);
    }
    for (int i = 0; i < s->ndims && !status; i++)
        status = check_dim(k, &s->dims[i], dims[i]);
    return status;
}

static int check_pointer(const struct moe_kernel *k, const struct image_param *p, const struct moe_arg *a,
                         const int64_t *dims)
{
    size_t bytes = (size_t)moe_image_elem_bytes(p->elem);
    for (int j = 0; j < p->rank; j++)
        if (__builtin_mul_overflow(bytes, (size_t)moe_image_extent(&p->shape[j], dims), &bytes))
            return refuse(k, "'%s' is larger than memory can be", p->name);
    if (bytes && !a->ptr)
        return refuse(k, "'%s' is NULL, %zu bytes are needed", p->name, bytes);
    if ((uintptr_t)a->ptr & ((uintptr_t)p->align - 1)) // a power of two
        return refuse(k, "'%s' is at %p, not aligned to %d bytes", p->name, a->ptr, p->align);
    if (a->bytes && a->bytes < bytes)
        return refuse(k, "'%s' has room for %zu bytes, its shape takes %zu", p->name, a->bytes, bytes);
    return MOE_OK;
}

// Of a persistent kernel as many as the device holds at once.
static int64_t blocks_of(const struct moe_kernel *k, int64_t tiles)
{
    int processors = k->image->device->info.processors;
    int64_t most = (int64_t)(processors > 0 ? processors : 1) * k->sig->resident;
    return k->sig->persistent && tiles > most ? most : tiles;
}

static int check_grid(const struct moe_kernel *k, int64_t tiles, int64_t blocks)
{
    const struct image_kernel *s = k->sig;
    struct moe_device *d = k->image->device;
    const int64_t grid_threads = d->driver->grid_threads_max;
    if (tiles > INT32_MAX)
        return device_fail(d, MOE_ERR_LIMIT, "%s: %" PRId64 " blocks, a grid has at most %d", s->symbol, tiles,
                           INT32_MAX);
    if (grid_threads && blocks > grid_threads / s->threads)
        return device_fail(d, MOE_ERR_LIMIT,
                           "%s: %" PRId64 " blocks of %d threads, a grid has at most %" PRId64 " threads", s->symbol,
                           blocks, s->threads, grid_threads);
    if (!k->function)
        return device_fail(d, MOE_ERR_LIMIT,
                           "%s: %d threads and %" PRId64 " shared bytes a block, %s allows %d and %" PRId64, s->symbol,
                           s->threads, s->shared, d->info.name, d->info.threads_max, d->info.shared_max);
    return MOE_OK;
}

int launch_grid(const struct moe_kernel *k, const int64_t *dims, const int64_t *scalars, struct launch_item *item)
{
    int64_t tiles = 0;
    char err[IMAGE_ERR_MAX];
    if (!moe_image_grid(k->sig, dims, scalars, &tiles, err))
        return refuse(k, "%s", err);
    int64_t blocks = blocks_of(k, tiles);
    item->function = k->function;
    item->sig = k->sig;
    item->blocks = (uint32_t)blocks;
    item->dependent = false;
    return check_grid(k, tiles, blocks);
}

// The view of box `b`. An empty tensor is given as one position at an address that is none: nobody may read it.
static int view_of(const struct moe_kernel *k, const struct image_box *b, const int64_t *dims,
                   const union launch_value *values, struct tensor_view *v)
{
    const struct image_param *p = &k->sig->params[b->param];
    int64_t bytes = moe_image_elem_bytes(p->elem);
    void *base = values[b->param].p;
    *v = (struct tensor_view){ .symbol = k->sig->symbol,
                               .elem = p->elem,
                               .rank = p->rank,
                               .base = base ? base : (void *)(uintptr_t)4096,
                               .rows = b->rows,
                               .cols = b->cols,
                               .swizzle = b->swizzle };
    for (int i = p->rank; i-- > 0;) {
        int64_t n = moe_image_extent(&p->shape[i], dims);
        v->dims[i] = n > 0 ? n : 1;
        v->steps[i] = bytes;
        if (i < p->rank - 1 && bytes % 16)
            return refuse(k, "'%s' has rows of %" PRId64 " bytes, the copy engine takes multiples of 16", p->name,
                          bytes);
        if (__builtin_mul_overflow(bytes, v->dims[i], &bytes)) // check_pointer() has seen no more than an extent of 0
            return refuse(k, "'%s' is larger than memory can be", p->name);
        bytes = n > 0 ? bytes : (bytes + 15) / 16 * 16;
    }
    return MOE_OK;
}

int launch_maps(const struct moe_kernel *k, const int64_t *dims, const union launch_value *values,
                struct launch_item *item, struct launch_map *maps)
{
    const struct image_kernel *s = k->sig;
    struct moe_device *d = k->image->device;
    struct tensor_view v;
    int n = s->nparams, status = MOE_OK;
    if (!s->nboxes || !item->blocks)
        return MOE_OK;
    for (int i = 0; i < s->ndims; i++)
        n += s->dims[i].bound < 0;
    for (int i = 0; i < s->nboxes && !status; i++) {
        status = view_of(k, &s->boxes[i], dims, values, &v);
        status = status ? status : d->driver->tensor_map(d, &maps[i], &v);
        item->args[n + i] = &maps[i];
    }
    return status;
}

// Everything that can be refused without the device. dims: [IMAGE_DIMS_MAX], filled.
static int check_launch(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *given,
                        int64_t *dims, struct launch_item *item)
{
    const struct image_kernel *s = k->sig;
    int64_t scalars[IMAGE_PARAMS_MAX];
    if (nargs != s->nparams)
        return refuse(k, "%d arguments, the kernel takes %d", nargs, s->nparams);
    int status = resolve_dims(k, args, given, dims);
    for (int i = 0; i < nargs && !status; i++) {
        scalars[i] = args[i].kind == MOE_I32 ? args[i].i : 0;
        if (args[i].kind == MOE_POINTER)
            status = check_pointer(k, &s->params[i], &args[i], dims);
    }
    return status ? status : launch_grid(k, dims, scalars, item);
}

int moe_launch_check(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims,
                     int64_t *blocks)
{
    int64_t all[IMAGE_DIMS_MAX];
    struct launch_item item = { .blocks = 0 };
    int status = check_launch(k, args, nargs, dims, all, &item);
    if (blocks)
        *blocks = item.blocks;
    return status;
}

int launch_resolve(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims,
                   struct launch_item *item, union launch_value *values, struct launch_map *maps)
{
    int64_t all[IMAGE_DIMS_MAX];
    const struct image_kernel *s = k->sig;
    int n = 0, status = check_launch(k, args, nargs, dims, all, item);
    if (status)
        return status;
    for (int i = 0; i < nargs; i++, n++) {
        if (args[i].kind == MOE_POINTER)
            values[n].p = args[i].ptr;
        else if (args[i].kind == MOE_I32)
            values[n].i = args[i].i;
        else
            values[n].f = args[i].f;
        item->args[n] = &values[n];
    }
    for (int i = 0; i < s->ndims; i++)
        if (s->dims[i].bound < 0) {
            values[n].i = (int32_t)all[i];
            item->args[n] = &values[n];
            n++;
        }
    return launch_maps(k, all, values, item, maps);
}

int launch_items(const struct moe_image *m, const struct launch_item *items, int n, void *stream)
{
    struct moe_device *d = m->device;
    int status = MOE_OK;
    if (n > 1 && d->driver->launch_all)
        return d->driver->launch_all(d, m->module, items, n, stream);
    for (int i = 0; i < n && !status; i++)
        status = d->driver->launch(d, &items[i], stream);
    return status;
}

void launch_prepare(const struct moe_image *m, const struct launch_item *items, int n)
{
    struct moe_device *d = m->device;
    if (n > 1 && d->batching && d->driver->launch_prepare)
        d->driver->launch_prepare(d, m->module, items, n);
}

int moe_launch(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims, void *stream)
{
    union launch_value values[IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX];
    void *slots[IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX + IMAGE_BOXES_MAX];
    struct launch_map maps[IMAGE_BOXES_MAX];
    struct launch_item item = { .args = slots };
    int status = launch_resolve(k, args, nargs, dims, &item, values, maps);
    return status || !item.blocks ? status : launch_items(k->image, &item, 1, stream);
}

int moe_sync(struct moe_device *d, void *stream)
{
    return d->driver->sync(d, stream);
}

// ---- streams, events, graphs --------------------------------------------------------------------------------------

int moe_stream(struct moe_device *d, void **stream)
{
    *stream = NULL;
    return d->driver->create(d, MOE_STREAM, stream);
}

int moe_event(struct moe_device *d, void **event)
{
    *event = NULL;
    return d->driver->create(d, MOE_EVENT, event);
}

int moe_event_record(struct moe_device *d, void *event, void *stream)
{
    return d->driver->record(d, event, stream);
}

int moe_event_ms(struct moe_device *d, void *from, void *to, float *ms)
{
    *ms = 0;
    return d->driver->elapsed(d, from, to, ms);
}

int moe_capture_begin(struct moe_device *d, void *stream)
{
    return d->driver->capture(d, stream, NULL);
}

int moe_capture_end(struct moe_device *d, void *stream, void **graph)
{
    *graph = NULL;
    return d->driver->capture(d, stream, graph);
}

int moe_graph_launch(struct moe_device *d, void *graph, void *stream)
{
    return d->driver->replay(d, graph, stream);
}

int moe_destroy(struct moe_device *d, enum moe_object_kind kind, void *object)
{
    return object ? d->driver->destroy(d, kind, object) : MOE_OK;
}
