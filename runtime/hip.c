// The HIP driver behind driver.h, for AMD's GPUs: libamdhip64.so by dlopen, its entry points by name (hip_abi.h).
// The counterpart of cuda.c, function by function.
//
// HIP has a current device in each thread: every call makes ours current and then restores the caller's. A failed call
// leaves a text that names the entry point, the driver's code and its words; it does not stay behind as the thread's
// last error, which other libraries would take for theirs. Nothing here checks arguments that moert.c has checked.
//
// The environment variable MOE_HIP_LIBRARY names another library file (not for programs with raised privileges).
//
// Dynamic LDS needs no permission: a launch is checked against the LDS of a compute unit (64 KB on gfx942, 160 KB on
// gfx950), and hipFuncSetAttribute changes nothing about that.
#include "hip.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const char *symbol;
    size_t offset; // of the member in struct hip
    bool required;
};
static const struct entry entries[] = {
#define ENTRY(required, member, symbol, params) { #symbol, offsetof(struct hip, member), required },
    HIP_SYMBOLS(ENTRY) HIP_TEXTS(ENTRY)
#undef ENTRY
};
enum { NENTRIES = sizeof entries / sizeof entries[0] };

static int map_error(hipError_t r)
{
    switch (r) {
    case hipErrorOutOfMemory: return MOE_ERR_MEMORY;
    case hipErrorNoDevice:
    case hipErrorInvalidDevice: return MOE_ERR_NO_DEVICE;
    case hipErrorInvalidImage:
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidKernelFile:
    case hipErrorSharedObjectInitFailed:
    case hipErrorNotFound: return MOE_ERR_IMAGE;
    case hipErrorLaunchOutOfResources: return MOE_ERR_LIMIT;
    default: return MOE_ERR_DEVICE;
    }
}

// The text "what: hipErrorX (code, words)extra".
int hip_fail(struct moe_device *d, hipError_t r, const char *what, const char *extra)
{
    struct hip *h = d->state;
    const char *name = h->error_name ? h->error_name(r) : NULL;
    const char *text = h->error_text ? h->error_text(r) : NULL;
    if (h->last_error)
        h->last_error(); // reads and clears
    return device_fail(d, map_error(r), "%s: %s (%d%s%s)%s", what, name ? name : "HIP error", r, text ? ", " : "",
                       text ? text : "", extra);
}

// Makes our device current. *was: what hip_leave() must restore; -1: nothing.
hipError_t hip_enter(const struct hip *h, int *was)
{
    int now = -1;
    *was = -1;
    hipError_t r = h->device_current(&now);
    if (r || now == h->device)
        return r;
    r = h->device_set(h->device);
    if (!r)
        *was = now;
    return r;
}

void hip_leave(const struct hip *h, int was)
{
    if (was >= 0)
        h->device_set(was);
}

// Runs `call` on our device and returns its status from the enclosing function.
#define ON_DEVICE(d, what, call) \
    do { \
        int was_; \
        hipError_t r_ = hip_enter(h, &was_); \
        if (r_) \
            return hip_fail(d, r_, "making the device current", ""); \
        r_ = (call); \
        hip_leave(h, was_); \
        return r_ ? hip_fail(d, r_, what, "") : MOE_OK; \
    } while (0)

// ---- opening ----------------------------------------------------------------------------------------------------

// Streams and pointers pass between libraries: a library that the program has loaded already comes first.
static void *find_library(const char **file)
{
    static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so" };
    const int modes[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL };
    void *library = NULL;
    *file = secure_getenv("MOE_HIP_LIBRARY");
    if (*file)
        return dlopen(*file, modes[1]);
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof files / sizeof files[0] && !library; i++)
            library = dlopen(*file = files[i], modes[m]);
    return library;
}

static int open_library(struct moe_device *d, struct hip *h)
{
    const char *file;
    h->library = find_library(&file);
    if (!h->library)
        return device_fail(d, MOE_ERR_LIBRARY, "the AMD driver library is not here: %s", dlerror());
    for (int i = 0; i < NENTRIES; i++) {
        void *p = dlsym(h->library, entries[i].symbol);
        if (!p && entries[i].required)
            return device_fail(d, MOE_ERR_LIBRARY, "%s lacks %s: the driver is too old", file, entries[i].symbol);
        memcpy((char *)h + entries[i].offset, &p, sizeof p);
    }
    if (!h->properties_r0600 && !h->properties_r0000)
        return device_fail(d, MOE_ERR_LIBRARY, "%s lacks hipGetDeviceProperties: the driver is too old", file);
    return MOE_OK;
}

static int find_device(struct moe_device *d, struct hip *h, int ordinal)
{
    int count = 0;
    hipError_t r = h->init(0);
    if (r)
        return hip_fail(d, r, "hipInit", "");
    r = h->device_count(&count);
    if (r)
        return hip_fail(d, r, "hipGetDeviceCount", "");
    if (ordinal >= count)
        return device_fail(d, MOE_ERR_NO_DEVICE, "no device hip:%d: the driver shows %d", ordinal, count);
    h->device = ordinal;
    return MOE_OK;
}

// "gfx942:sramecc+:xnack-" -> "gfx942". Code without a word on a feature runs with it on and off.
static int read_arch(struct moe_device *d, const struct hip *h)
{
    union {
        char bytes[HIP_PROPERTIES_ROOM];
        max_align_t align;
    } properties = { { 0 } };
    hipDeviceProp_t *p = (hipDeviceProp_t *)(void *)&properties;
    const char *name = properties.bytes + (h->properties_r0600 ? HIP_ARCH_R0600 : HIP_ARCH_R0000);
    hipError_t r = h->properties_r0600 ? h->properties_r0600(p, h->device) : h->properties_r0000(p, h->device);
    if (r)
        return hip_fail(d, r, "hipGetDeviceProperties", "");
    size_t n = strnlen(name, HIP_ARCH_BYTES);
    for (size_t i = n; i-- > 0;)
        n = name[i] == ':' ? i : n;
    if (strncmp(name, "gfx", 3) || n >= sizeof d->info.arch)
        return device_fail(d, MOE_ERR_DEVICE, "hipGetDeviceProperties: the device %s has the architecture '%.40s'",
                           d->info.name, name);
    memcpy(d->info.arch, name, n);
    d->info.arch[n] = 0;
    return MOE_OK;
}

static int read_info(struct moe_device *d, const struct hip *h)
{
    struct moe_info *info = &d->info;
    int shared = 0, l2 = 0;
    size_t memory = 0;
    const struct {
        int attribute, *value;
    } wanted[] = {
        { hipDeviceAttributeMultiprocessorCount, &info->processors },
        { hipDeviceAttributeMaxThreadsPerBlock, &info->threads_max },
        { hipDeviceAttributeMaxSharedMemoryPerBlock, &shared },
        { hipDeviceAttributeL2CacheSize, &l2 },
        { hipDeviceAttributeClockRate, &info->clock_khz },
        { hipDeviceAttributeMemoryClockRate, &info->memory_clock_khz },
        { hipDeviceAttributeMemoryBusWidth, &info->memory_bus_bits },
    };
    hipError_t r = h->device_name(info->name, sizeof info->name, h->device);
    if (r)
        return hip_fail(d, r, "hipDeviceGetName", "");
    info->name[sizeof info->name - 1] = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        r = h->device_attribute(wanted[i].value, wanted[i].attribute, h->device);
        if (r && i < 3) // the others are only told
            return hip_fail(d, r, "hipDeviceGetAttribute", "");
    }
    r = h->device_memory(&memory, h->device);
    if (r)
        return hip_fail(d, r, "hipDeviceTotalMem", "");
    r = h->driver_version(&info->driver_version);
    if (r)
        return hip_fail(d, r, "hipDriverGetVersion", "");
    info->shared_max = shared;
    info->l2_bytes = l2;
    info->memory_bytes = (int64_t)memory;
    return read_arch(d, h);
}

static int hip_open(struct moe_device *d, const char *which)
{
    int ordinal = device_ordinal(which);
    if (ordinal < 0)
        return device_fail(d, MOE_ERR_ARGUMENT, "device 'hip:%.40s': expected hip:N", which);
    struct hip *h = calloc(1, sizeof *h);
    if (!h)
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    d->state = h;
    d->ordinal = ordinal;
    int status = open_library(d, h);
    if (!status)
        status = find_device(d, h, ordinal);
    if (!status)
        status = read_info(d, h);
    d->batching = d->batching && environment_says("MOE_HIP_BATCH"); // hip_batch.c says why
    if (status) { // the library stays open: a driver does not like to be unloaded
        free(h);
        d->state = NULL;
    }
    return status;
}

static void hip_close(struct moe_device *d)
{
    free(d->state);
}

// ---- memory -----------------------------------------------------------------------------------------------------

static int hip_alloc(struct moe_device *d, size_t bytes, void **ptr)
{
    struct hip *h = d->state;
    void *p = NULL;
    int was;
    hipError_t r = hip_enter(h, &was);
    if (r)
        return hip_fail(d, r, "making the device current", "");
    r = h->mem_alloc(&p, bytes);
    hip_leave(h, was);
    if (r) {
        char extra[64];
        snprintf(extra, sizeof extra, ": %zu bytes were asked for", bytes);
        return hip_fail(d, r, "hipMalloc", extra);
    }
    *ptr = p;
    return MOE_OK;
}

static int hip_free(struct moe_device *d, void *ptr)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipFree", h->mem_free(ptr));
}

// A copy up from pageable memory may return before it has landed: hence the wait.
static hipError_t copy(const struct hip *h, void *to, const void *from, size_t bytes, enum copy_direction way)
{
    if (way == COPY_DOWN)
        return h->copy(to, from, bytes, hipMemcpyDeviceToHost);
    hipError_t r = h->copy(to, from, bytes, hipMemcpyHostToDevice);
    return r ? r : h->stream_sync(NULL);
}

static int hip_copy(struct moe_device *d, void *to, const void *from, size_t bytes, enum copy_direction way)
{
    struct hip *h = d->state;
    ON_DEVICE(d, way == COPY_UP ? "hipMemcpy to the device" : "hipMemcpy to the host", copy(h, to, from, bytes, way));
}

static int hip_fill(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipMemsetD8Async", h->fill8(ptr, (unsigned char)byte, bytes, stream));
}

// ---- code -------------------------------------------------------------------------------------------------------

// An hsaco runs on its own architecture alone.
static int check_arch(struct moe_device *d, const struct image_desc *m)
{
    if (strcmp(m->arch, d->info.arch))
        return device_fail(d, MOE_ERR_ARCH, "the image is for %s, the device %s is %s", m->arch, d->info.name,
                           d->info.arch);
    if (m->kind != IMAGE_HSACO)
        return device_fail(d, MOE_ERR_ARCH, "the image for %s holds %s code, the device %s takes hsaco", m->arch,
                           moe_image_code_name(m->kind), d->info.name);
    return MOE_OK;
}

static int load_module(struct moe_device *d, const struct image_desc *m, hipModule_t *made)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipModuleLoadData", h->module_load(made, m->code));
}

static int hip_load(struct moe_device *d, const struct image_desc *image, void **module)
{
    int status = check_arch(d, image);
    if (status)
        return status;
    struct hip_module *m = calloc(1, sizeof *m);
    if (!m || !batch_init(&m->batch)) {
        free(m);
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    }
    status = load_module(d, image, &m->handle);
    if (status) {
        hip_batch_free(d->state, m);
        free(m);
        return status;
    }
    *module = m;
    return MOE_OK;
}

static int hip_unload(struct moe_device *d, void *module)
{
    struct hip *h = d->state;
    struct hip_module *m = module;
    hipModule_t handle = m->handle;
    int was;
    hipError_t r = hip_enter(h, &was);
    hip_batch_free(h, m);
    free(m);
    if (r)
        return hip_fail(d, r, "making the device current", "");
    r = h->module_unload(handle);
    hip_leave(h, was);
    return r ? hip_fail(d, r, "hipModuleUnload", "") : MOE_OK;
}

static int hip_kernel(struct moe_device *d, void *module, const struct image_kernel *k, void **function)
{
    struct hip *h = d->state;
    const struct hip_module *m = module;
    char what[160];
    if (k->nboxes)
        return device_fail(d, MOE_ERR_IMAGE, "kernel %.100s copies by tensor maps, which AMD's devices do not have",
                           k->symbol);
    snprintf(what, sizeof what, "hipModuleGetFunction of %.100s", k->symbol);
    ON_DEVICE(d, what, h->module_function((hipFunction_t *)function, m->handle, k->symbol));
}

static int hip_sync(struct moe_device *d, void *stream)
{
    struct hip *h = d->state;
    ON_DEVICE(d, stream ? "hipStreamSynchronize" : "hipDeviceSynchronize",
              stream ? h->stream_sync(stream) : h->device_sync());
}

// ---- streams, events, graphs --------------------------------------------------------------------------------------

static int hip_create(struct moe_device *d, enum moe_object_kind kind, void **object)
{
    struct hip *h = d->state;
    if (kind == MOE_STREAM)
        ON_DEVICE(d, "hipStreamCreate", h->stream_create((hipStream_t *)object, hipStreamNonBlocking));
    ON_DEVICE(d, "hipEventCreate", h->event_create((hipEvent_t *)object, hipEventDefault));
}

static int hip_destroy(struct moe_device *d, enum moe_object_kind kind, void *object)
{
    struct hip *h = d->state;
    switch (kind) {
    case MOE_STREAM: ON_DEVICE(d, "hipStreamDestroy", h->stream_destroy(object));
    case MOE_EVENT: ON_DEVICE(d, "hipEventDestroy", h->event_destroy(object));
    case MOE_GRAPH: ON_DEVICE(d, "hipGraphExecDestroy", h->exec_destroy(object));
    }
    return device_fail(d, MOE_ERR_ARGUMENT, "moe_destroy: kind %d is unknown", (int)kind);
}

static int hip_record(struct moe_device *d, void *event, void *stream)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipEventRecord", h->event_record(event, stream));
}

static hipError_t elapsed(const struct hip *h, hipEvent_t from, hipEvent_t to, float *ms)
{
    hipError_t r = h->event_sync(to);
    return r ? r : h->event_elapsed(ms, from, to);
}

static int hip_elapsed(struct moe_device *d, void *from, void *to, float *ms)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipEventElapsedTime", elapsed(h, from, to, ms));
}

static hipError_t end_capture(const struct hip *h, hipStream_t stream, void **exec)
{
    hipGraph_t graph = NULL;
    hipError_t r = h->capture_end(stream, &graph);
    if (!r)
        r = h->graph_make((hipGraphExec_t *)exec, graph, NULL, NULL, 0);
    if (graph)
        h->graph_destroy(graph);
    if (r)
        *exec = NULL;
    return r;
}

static int hip_capture(struct moe_device *d, void *stream, void **graph)
{
    struct hip *h = d->state;
    if (!h->capture_begin || !h->capture_end || !h->graph_make || !h->graph_destroy || !h->graph_launch ||
        !h->exec_destroy)
        return device_fail(d, MOE_ERR_LIBRARY, "this driver has no graphs: it is too old");
    if (!graph)
        ON_DEVICE(d, "hipStreamBeginCapture", h->capture_begin(stream, hipStreamCaptureModeThreadLocal));
    ON_DEVICE(d, "ending the capture", end_capture(h, stream, graph));
}

static int hip_replay(struct moe_device *d, void *graph, void *stream)
{
    struct hip *h = d->state;
    ON_DEVICE(d, "hipGraphLaunch", h->graph_launch(graph, stream));
}

const struct driver hip_driver = {
    .name = "hip",
    .grid_threads_max = UINT32_MAX, // HIP API reference, hipModuleLaunchKernel
    .open = hip_open,
    .close = hip_close,
    .alloc = hip_alloc,
    .free = hip_free,
    .copy = hip_copy,
    .fill = hip_fill,
    .load = hip_load,
    .unload = hip_unload,
    .kernel = hip_kernel,
    .launch = hip_launch,
    .launch_all = hip_launch_all,
    .launch_prepare = hip_launch_prepare,
    .sync = hip_sync,
    .create = hip_create,
    .destroy = hip_destroy,
    .record = hip_record,
    .elapsed = hip_elapsed,
    .capture = hip_capture,
    .replay = hip_replay,
};
