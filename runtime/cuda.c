// The CUDA driver behind driver.h: libcuda.so.1 by dlopen, its entry points by name (cuda_abi.h), the primary
// context.
//
// Every call makes our context current and then restores the caller's. A failed call leaves a text that names the
// entry point, the driver's code and its words. Nothing here checks arguments that moert.c has checked.
//
// The environment variable MOE_CUDA_LIBRARY names another library file (not for programs with raised privileges).
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const char *symbol;
    size_t offset; // of the member in struct cuda
    bool required;
};
static const struct entry entries[] = {
#define ENTRY(required, member, symbol, params) { #symbol, offsetof(struct cuda, member), required },
    CUDA_SYMBOLS(ENTRY)
#undef ENTRY
};
enum { NENTRIES = sizeof entries / sizeof entries[0], JIT_LOG = 1024 };

static int map_error(CUresult r)
{
    switch (r) {
    case CUDA_ERROR_OUT_OF_MEMORY: return MOE_ERR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE: return MOE_ERR_NO_DEVICE;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_FOUND: return MOE_ERR_IMAGE;
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return MOE_ERR_LIMIT;
    default: return MOE_ERR_DEVICE;
    }
}

// The text "what: CUDA_ERROR_X (words)extra".
int cuda_fail(struct moe_device *d, CUresult r, const char *what, const char *extra)
{
    struct cuda *c = d->state;
    const char *name = NULL, *text = NULL;
    if (c->error_name)
        c->error_name(r, &name);
    if (c->error_text)
        c->error_text(r, &text);
    return device_fail(d, map_error(r), "%s: %s (%d%s%s)%s", what, name ? name : "CUDA error", r, text ? ", " : "",
                       text ? text : "", extra);
}

// Makes our context current. *pushed says whether cuda_leave() must undo it.
CUresult cuda_enter(const struct cuda *c, bool *pushed)
{
    CUcontext now = NULL;
    *pushed = false;
    CUresult r = c->ctx_current(&now);
    if (r || now == c->context)
        return r;
    r = c->ctx_push(c->context);
    *pushed = r == CUDA_SUCCESS;
    return r;
}

void cuda_leave(const struct cuda *c, bool pushed)
{
    CUcontext was;
    if (pushed)
        c->ctx_pop(&was);
}

// Runs `call` in our context and returns its status from the enclosing function.
#define IN_CONTEXT(d, what, call) \
    do { \
        bool pushed_; \
        CUresult r_ = cuda_enter(c, &pushed_); \
        if (r_) \
            return cuda_fail(d, r_, "making the context current", ""); \
        r_ = (call); \
        cuda_leave(c, pushed_); \
        return r_ ? cuda_fail(d, r_, what, "") : MOE_OK; \
    } while (0)

// ---- opening ----------------------------------------------------------------------------------------------------

static int open_library(struct moe_device *d, struct cuda *c)
{
    const char *file = secure_getenv("MOE_CUDA_LIBRARY");
    if (!file)
        file = "libcuda.so.1";
    c->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return device_fail(d, MOE_ERR_LIBRARY, "the NVIDIA driver library is not here: %s", dlerror());
    for (int i = 0; i < NENTRIES; i++) {
        void *p = dlsym(c->library, entries[i].symbol);
        if (!p && entries[i].required)
            return device_fail(d, MOE_ERR_LIBRARY, "%s lacks %s: the driver is too old", file, entries[i].symbol);
        memcpy((char *)c + entries[i].offset, &p, sizeof p);
    }
    return MOE_OK;
}

static int find_device(struct moe_device *d, struct cuda *c, int ordinal)
{
    int count = 0;
    CUresult r = c->init(0);
    if (r)
        return cuda_fail(d, r, "cuInit", "");
    r = c->device_count(&count);
    if (r)
        return cuda_fail(d, r, "cuDeviceGetCount", "");
    if (ordinal >= count)
        return device_fail(d, MOE_ERR_NO_DEVICE, "no device cuda:%d: the driver shows %d", ordinal, count);
    r = c->device_get(&c->device, ordinal);
    return r ? cuda_fail(d, r, "cuDeviceGet", "") : MOE_OK;
}

// Code made for the arch with 'a' runs on exactly that capability; each of these has its 'a' form.
static void name_arch(const struct cuda *c, char *arch, size_t size)
{
    snprintf(arch, size, "sm_%d%d%s", c->major, c->minor, c->major >= 9 ? "a" : "");
}

static int read_info(struct moe_device *d, struct cuda *c)
{
    struct moe_info *info = &d->info;
    int shared = 0, l2 = 0;
    size_t memory = 0;
    const struct {
        int attribute, *value;
    } wanted[] = {
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &c->major },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &c->minor },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->processors },
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &info->threads_max },
        { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared },
        { CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2 },
        { CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &info->clock_khz },
        { CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info->memory_clock_khz },
        { CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &info->memory_bus_bits },
    };
    CUresult r = c->device_name(info->name, sizeof info->name, c->device);
    if (r)
        return cuda_fail(d, r, "cuDeviceGetName", "");
    info->name[sizeof info->name - 1] = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        r = c->device_attribute(wanted[i].value, wanted[i].attribute, c->device);
        if (r && i < 5) // the others are only told
            return cuda_fail(d, r, "cuDeviceGetAttribute", "");
    }
    r = c->device_memory(&memory, c->device);
    if (r)
        return cuda_fail(d, r, "cuDeviceTotalMem", "");
    r = c->driver_version(&info->driver_version);
    if (r)
        return cuda_fail(d, r, "cuDriverGetVersion", "");
    info->shared_max = shared;
    info->l2_bytes = l2;
    info->memory_bytes = (int64_t)memory;
    name_arch(c, info->arch, sizeof info->arch);
    return MOE_OK;
}

// The calling thread's current context if it is of this device, else the primary one.
static int take_context(struct moe_device *d, struct cuda *c)
{
    CUcontext now = NULL;
    CUdevice device = -1;
    CUresult r = c->ctx_current(&now);
    if (r)
        return cuda_fail(d, r, "cuCtxGetCurrent", "");
    r = now ? c->ctx_device(&device) : CUDA_SUCCESS;
    if (r)
        return cuda_fail(d, r, "cuCtxGetDevice", "");
    if (now && device == c->device) {
        c->context = now;
        c->adopted = true;
        return MOE_OK;
    }
    r = c->ctx_retain(&c->context, c->device);
    return r ? cuda_fail(d, r, "cuDevicePrimaryCtxRetain", "") : MOE_OK;
}

static int cuda_open(struct moe_device *d, const char *which)
{
    int ordinal = device_ordinal(which);
    if (ordinal < 0)
        return device_fail(d, MOE_ERR_ARGUMENT, "device 'cuda:%.40s': expected cuda:N", which);
    struct cuda *c = calloc(1, sizeof *c);
    if (!c)
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    d->state = c;
    d->ordinal = ordinal;
    int status = open_library(d, c);
    if (!status)
        status = find_device(d, c, ordinal);
    if (!status)
        status = read_info(d, c);
    if (!status)
        status = take_context(d, c);
    if (status) { // the library stays open: a driver does not like to be unloaded
        free(c);
        d->state = NULL;
    }
    return status;
}

static void cuda_close(struct moe_device *d)
{
    struct cuda *c = d->state;
    if (!c->adopted)
        c->ctx_release(c->device);
    free(c);
}

// ---- memory -----------------------------------------------------------------------------------------------------

static CUdeviceptr address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static int cuda_alloc(struct moe_device *d, size_t bytes, void **ptr)
{
    struct cuda *c = d->state;
    CUdeviceptr p = 0;
    bool pushed;
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = c->mem_alloc(&p, bytes);
    cuda_leave(c, pushed);
    if (r) {
        char extra[64];
        snprintf(extra, sizeof extra, ": %zu bytes were asked for", bytes);
        return cuda_fail(d, r, "cuMemAlloc", extra);
    }
    *ptr = (void *)(uintptr_t)p;
    return MOE_OK;
}

static int cuda_free(struct moe_device *d, void *ptr)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, "cuMemFree", c->mem_free(address(ptr)));
}

// A copy up from pageable memory may return before it has landed: hence the wait.
static CUresult copy(const struct cuda *c, void *to, const void *from, size_t bytes, enum copy_direction way)
{
    if (way == COPY_DOWN)
        return c->copy_down(to, address(from), bytes);
    CUresult r = c->copy_up(address(to), from, bytes);
    return r ? r : c->stream_sync(NULL);
}

static int cuda_copy(struct moe_device *d, void *to, const void *from, size_t bytes, enum copy_direction way)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, way == COPY_UP ? "cuMemcpyHtoD" : "cuMemcpyDtoH", copy(c, to, from, bytes, way));
}

static int cuda_fill(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, "cuMemsetD8Async", c->fill8(address(ptr), (unsigned char)byte, bytes, stream));
}

// ---- code -------------------------------------------------------------------------------------------------------

// "sm_90a" -> 9, 0, 'a'; suffix 0 if none. The last digit is the minor number.
static bool parse_arch(const char *arch, int *major, int *minor, char *suffix)
{
    if (strncmp(arch, "sm_", 3))
        return false;
    size_t n = strspn(arch + 3, "0123456789");
    if (n < 2 || n > 4)
        return false;
    long v = strtol(arch + 3, NULL, 10);
    *major = (int)(v / 10);
    *minor = (int)(v % 10);
    *suffix = arch[3 + n];
    return !*suffix || ((*suffix == 'a' || *suffix == 'f') && !arch[4 + n]);
}

// Binary code runs on its major number from its minor number on; PTX also on later ones; with suffix only on its own.
static int check_arch(struct moe_device *d, const struct cuda *c, const struct image_desc *m)
{
    int major = 0, minor = 0;
    char suffix = 0;
    bool known = parse_arch(m->arch, &major, &minor, &suffix);
    bool same = known && major == c->major && minor == c->minor;
    bool newer = known && (c->major > major || (c->major == major && c->minor >= minor));
    bool binary = m->kind == IMAGE_CUBIN && !m->ptx_size;
    bool fits = suffix == 'a' ? same : suffix == 'f' || binary ? newer && c->major == major : newer;
    if (!known || !fits)
        return device_fail(d, MOE_ERR_ARCH, "the image is for %s%s, the device %s is %s", m->arch,
                           known && !suffix && !binary ? " or later" : "", d->info.name, d->info.arch);
    if (m->kind != IMAGE_PTX && m->kind != IMAGE_CUBIN)
        return device_fail(d, MOE_ERR_ARCH, "the image for %s holds %s code, the device %s takes cubin or ptx", m->arch,
                           moe_image_code_name(m->kind), d->info.name);
    return MOE_OK;
}

static CUresult load_code(struct cuda *c, const void *code, CUmodule *module, char *log)
{
    int options[2] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    void *values[2] = { log, (void *)(uintptr_t)(JIT_LOG - 1) };
    log[0] = log[JIT_LOG - 1] = 0;
    return c->module_load(module, code, 2, options, values);
}

static int load_module(struct moe_device *d, const struct image_desc *m, CUmodule *made)
{
    struct cuda *c = d->state;
    char log[JIT_LOG + 2] = ": ";
    bool pushed;
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = load_code(c, m->code, made, log + 2);
    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU && m->kind == IMAGE_CUBIN && m->ptx_size)
        r = load_code(c, m->ptx, made, log + 2);
    cuda_leave(c, pushed);
    if (r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        snprintf(log + 2, JIT_LOG, "the driver is for CUDA %d.%d, the PTX needs a later one",
                 d->info.driver_version / 1000, d->info.driver_version % 1000 / 10);
    if (r)
        return cuda_fail(d, r, "cuModuleLoadDataEx", log[2] ? log : "");
    return MOE_OK;
}

static int cuda_load(struct moe_device *d, const struct image_desc *image, void **module)
{
    int status = check_arch(d, d->state, image);
    if (status)
        return status;
    struct cuda_module *m = calloc(1, sizeof *m);
    if (!m || !batch_init(&m->batch)) {
        free(m);
        return device_fail(d, MOE_ERR_MEMORY, "out of memory");
    }
    status = load_module(d, image, &m->handle);
    if (status) {
        cuda_batch_free(d->state, m);
        free(m);
        return status;
    }
    *module = m;
    return MOE_OK;
}

static int cuda_unload(struct moe_device *d, void *module)
{
    struct cuda *c = d->state;
    struct cuda_module *m = module;
    CUmodule handle = m->handle;
    bool pushed;
    CUresult r = cuda_enter(c, &pushed);
    cuda_batch_free(c, m);
    free(m);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = c->module_unload(handle);
    cuda_leave(c, pushed);
    return r ? cuda_fail(d, r, "cuModuleUnload", "") : MOE_OK;
}

static int cuda_kernel(struct moe_device *d, void *module, const struct image_kernel *k, void **function)
{
    enum { WITHOUT_ASKING = 48 << 10 }; // shared bytes that every kernel may use
    struct cuda *c = d->state;
    CUfunction f = NULL;
    char extra[192];
    bool pushed;
    if (k->nboxes && !c->map_encode)
        return device_fail(
            d, MOE_ERR_LIBRARY,
            "kernel %.100s copies by tensor maps, this driver lacks cuTensorMapEncodeTiled: it is too old", k->symbol);
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = c->module_function(&f, ((const struct cuda_module *)module)->handle, k->symbol);
    const char *what = "cuModuleGetFunction";
    if (!r && k->shared > WITHOUT_ASKING) {
        what = "cuFuncSetAttribute";
        r = c->function_set(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared);
    }
    cuda_leave(c, pushed);
    snprintf(extra, sizeof extra, ": kernel %.100s, %lld shared bytes", k->symbol, (long long)k->shared);
    if (r)
        return cuda_fail(d, r, what, extra);
    *function = f;
    return MOE_OK;
}

// CUDA driver API, "Tensor Map Object Management": innermost dimension first, strides in bytes from the second one on. A map is
// of the host's making alone, but the call wants a context.
static CUresult encode(const struct cuda *c, struct launch_map *map, const struct tensor_view *v)
{
    static const CUtensorMapDataType types[] = { [IMAGE_I32] = CU_TENSOR_MAP_DATA_TYPE_INT32,
                                                 [IMAGE_F32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                                 [IMAGE_BF16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                 [IMAGE_F16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16 };
    static const CUtensorMapSwizzle swizzles[] = { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                                   CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
    static const uint32_t ones[IMAGE_RANK_MAX] = { 1, 1, 1, 1 };
    const uint32_t box[IMAGE_RANK_MAX] = { (uint32_t)v->cols, (uint32_t)v->rows, 1, 1 };
    uint64_t dims[IMAGE_RANK_MAX], strides[IMAGE_RANK_MAX];
    for (int i = 0; i < v->rank; i++) {
        dims[i] = (uint64_t)v->dims[v->rank - 1 - i];
        strides[i] = i < v->rank - 1 ? (uint64_t)v->steps[v->rank - 2 - i] : 0;
    }
    return c->map_encode((CUtensorMap *)(void *)map, types[v->elem], (uint32_t)v->rank, v->base, dims, strides, box,
                         ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzles[v->swizzle], CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static int cuda_tensor_map(struct moe_device *d, struct launch_map *map, const struct tensor_view *v)
{
    struct cuda *c = d->state;
    char extra[256];
    bool pushed;
    CUresult r = cuda_enter(c, &pushed);
    if (r)
        return cuda_fail(d, r, "making the context current", "");
    r = encode(c, map, v);
    cuda_leave(c, pushed);
    if (!r)
        return MOE_OK;
    snprintf(extra, sizeof extra,
             ": %.100s: boxes of %d x %d, swizzle %d, of %s at %p, rank %d, %lld x %lld in the last", v->symbol,
             v->rows, v->cols, v->swizzle, moe_image_elem_name(v->elem), v->base, v->rank,
             (long long)(v->rank > 1 ? v->dims[v->rank - 2] : 1), (long long)v->dims[v->rank - 1]);
    return cuda_fail(d, r, "cuTensorMapEncodeTiled", extra);
}

static int cuda_sync(struct moe_device *d, void *stream)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, stream ? "cuStreamSynchronize" : "cuCtxSynchronize", stream ? c->stream_sync(stream) : c->ctx_sync());
}

// ---- streams, events, graphs --------------------------------------------------------------------------------------

static int cuda_create(struct moe_device *d, enum moe_object_kind kind, void **object)
{
    struct cuda *c = d->state;
    if (kind == MOE_STREAM)
        IN_CONTEXT(d, "cuStreamCreate", c->stream_create((CUstream *)object, CU_STREAM_NON_BLOCKING));
    IN_CONTEXT(d, "cuEventCreate", c->event_create((CUevent *)object, 0));
}

static int cuda_destroy(struct moe_device *d, enum moe_object_kind kind, void *object)
{
    struct cuda *c = d->state;
    switch (kind) {
    case MOE_STREAM: IN_CONTEXT(d, "cuStreamDestroy", c->stream_destroy(object));
    case MOE_EVENT: IN_CONTEXT(d, "cuEventDestroy", c->event_destroy(object));
    case MOE_GRAPH: IN_CONTEXT(d, "cuGraphExecDestroy", c->exec_destroy(object));
    }
    return device_fail(d, MOE_ERR_ARGUMENT, "moe_destroy: kind %d is unknown", (int)kind);
}

static int cuda_record(struct moe_device *d, void *event, void *stream)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, "cuEventRecord", c->event_record(event, stream));
}

static CUresult elapsed(const struct cuda *c, CUevent from, CUevent to, float *ms)
{
    CUresult r = c->event_sync(to);
    return r ? r : c->event_elapsed(ms, from, to);
}

static int cuda_elapsed(struct moe_device *d, void *from, void *to, float *ms)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, "cuEventElapsedTime", elapsed(c, from, to, ms));
}

static CUresult end_capture(const struct cuda *c, CUstream stream, void **exec)
{
    CUgraph graph = NULL;
    CUresult r = c->capture_end(stream, &graph);
    if (!r)
        r = c->graph_make((CUgraphExec *)exec, graph, 0);
    if (graph)
        c->graph_destroy(graph);
    if (r)
        *exec = NULL;
    return r;
}

static int cuda_capture(struct moe_device *d, void *stream, void **graph)
{
    struct cuda *c = d->state;
    if (!c->capture_begin || !c->capture_end || !c->graph_make || !c->graph_destroy || !c->graph_launch ||
        !c->exec_destroy)
        return device_fail(d, MOE_ERR_LIBRARY, "this driver has no graphs: it is too old");
    if (!graph)
        IN_CONTEXT(d, "cuStreamBeginCapture", c->capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    IN_CONTEXT(d, "ending the capture", end_capture(c, stream, graph));
}

static int cuda_replay(struct moe_device *d, void *graph, void *stream)
{
    struct cuda *c = d->state;
    IN_CONTEXT(d, "cuGraphLaunch", c->graph_launch(graph, stream));
}

const struct driver cuda_driver = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .load = cuda_load,
    .unload = cuda_unload,
    .kernel = cuda_kernel,
    .tensor_map = cuda_tensor_map,
    .launch = cuda_launch,
    .launch_all = cuda_launch_all,
    .launch_prepare = cuda_launch_prepare,
    .sync = cuda_sync,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .record = cuda_record,
    .elapsed = cuda_elapsed,
    .capture = cuda_capture,
    .replay = cuda_replay,
};
