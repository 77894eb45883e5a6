// A libcuda without a GPU: memory is host memory, launches are recorded (the kernel "scale" is also carried out),
// streams run at once, a capture collects launches. Any call can be made to fail. Build: cc -shared -fPIC ->
// libfakecuda.so.
//
// It checks its caller too: unknown handles, calls without a current context and allocation or synchronisation during
// a capture count as `wrong`.
#include "fake_cuda.h"

#include "../runtime/cuda_abi.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PROTOTYPE(required, member, symbol, params) CUresult fake_##member params __asm__(symbol);
CUDA_SYMBOLS(PROTOTYPE)
extern struct fake_cuda fake_cuda;

static _Thread_local struct fake_thread here;
static struct fake_thread *this_thread(void)
{
    return &here;
}
static void reset(void);
EXPORT struct fake_cuda fake_cuda = {
    .devices = 1, .major = 9, .shared_max = 232448, .driver = 13000, .thread = this_thread, .reset = reset
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum kind { MEMORY = 1, MODULE, FUNCTION, STREAM, EVENT, GRAPH, EXEC };
struct object {
    enum kind kind;
    size_t bytes;
    void *data; // MEMORY
    char name[128];
    struct launch *launches; // of a captured graph
    int n, capturing;
    struct object *next;
};
struct launch {
    char symbol[128];
    void *pointers[2];
    int32_t count;
    float f;
};
static struct object *objects;
static int context_object; // its address is the context

// Counts the call; nonzero: it must fail.
static CUresult call(const char *name, int needs_context)
{
    pthread_mutex_lock(&lock);
    struct fake_cuda *k = &fake_cuda;
    if (k->calls < FAKE_CALLS_MAX)
        k->names[k->calls] = name;
    k->calls++;
    int fails = k->calls == k->fail_at;
    if (needs_context && here.context != &context_object)
        k->wrong++;
    pthread_mutex_unlock(&lock);
    return fails ? k->fail_code : CUDA_SUCCESS;
}
#define CALL(name, context) \
    do { \
        CUresult r_ = call(name, context); \
        if (r_) \
            return r_; \
    } while (0)

static struct object *make(enum kind kind)
{
    struct object *o = calloc(1, sizeof *o);
    pthread_mutex_lock(&lock);
    o->kind = kind;
    o->next = objects;
    objects = o;
    if (kind != FUNCTION)
        fake_cuda.live++;
    pthread_mutex_unlock(&lock);
    return o;
}

static struct object *get(void *handle, enum kind kind)
{
    struct object *o;
    pthread_mutex_lock(&lock);
    for (o = objects; o && (o != handle || o->kind != kind); o = o->next)
        continue;
    if (!o)
        fake_cuda.wrong++;
    pthread_mutex_unlock(&lock);
    return o;
}

// A destroy that is told to fail still destroys: there is nothing else its caller could do.
static CUresult drop(void *handle, enum kind kind, const char *name)
{
    CUresult r = call(name, 1);
    struct object *o = get(handle, kind), **p;
    if (!o)
        return r ? r : 400;
    pthread_mutex_lock(&lock);
    for (p = &objects; *p != o; p = &(*p)->next)
        continue;
    *p = o->next;
    fake_cuda.live -= kind != FUNCTION;
    fake_cuda.bytes -= o->bytes;
    pthread_mutex_unlock(&lock);
    free(o->data);
    free(o->launches);
    free(o);
    return r;
}

static void reset(void)
{
    while (objects) {
        struct object *o = objects;
        objects = o->next;
        if (o->kind != FUNCTION)
            free(o->launches);
        free(o->data);
        free(o);
    }
    memset(&here, 0, sizeof here);
}

// ---- device and context

EXPORT CUresult fake_init(unsigned flags)
{
    (void)flags;
    CALL("cuInit", 0);
    return fake_cuda.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult fake_driver_version(int *version)
{
    CALL("cuDriverGetVersion", 0);
    *version = fake_cuda.driver;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_device_count(int *count)
{
    CALL("cuDeviceGetCount", 0);
    *count = fake_cuda.devices;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_device_get(CUdevice *device, int ordinal)
{
    CALL("cuDeviceGet", 0);
    *device = ordinal;
    return ordinal < fake_cuda.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult fake_device_name(char *name, int size, CUdevice device)
{
    CALL("cuDeviceGetName", 0);
    snprintf(name, (size_t)size, "Fake %d", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_device_attribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    CALL("cuDeviceGetAttribute", 0);
    *value = attribute == CU_ATTR_COMPUTE_CAPABILITY_MAJOR            ? fake_cuda.major
             : attribute == CU_ATTR_COMPUTE_CAPABILITY_MINOR          ? fake_cuda.minor
             : attribute == CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? fake_cuda.shared_max
             : attribute == CU_ATTR_MAX_THREADS_PER_BLOCK             ? 1024
                                                                      : 7;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_device_memory(size_t *bytes, CUdevice device)
{
    (void)device;
    CALL("cuDeviceTotalMem_v2", 0);
    *bytes = (size_t)1 << 32;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_ctx_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    CALL("cuDevicePrimaryCtxRetain", 0);
    fake_cuda.contexts++;
    *context = (CUcontext)(void *)&context_object;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_ctx_release(CUdevice device)
{
    (void)device;
    fake_cuda.contexts--;
    CALL("cuDevicePrimaryCtxRelease_v2", 0);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_ctx_current(CUcontext *context)
{
    CALL("cuCtxGetCurrent", 0);
    *context = here.context;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_ctx_push(CUcontext context)
{
    CALL("cuCtxPushCurrent_v2", 0);
    here.stack[here.pushed++ % 8] = here.context;
    here.context = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_ctx_pop(CUcontext *context)
{
    *context = here.context;
    if (here.pushed < 1)
        fake_cuda.wrong++;
    else
        here.context = here.stack[--here.pushed % 8];
    CALL("cuCtxPopCurrent_v2", 0);
    return CUDA_SUCCESS;
}

static int capturing(void)
{
    for (struct object *o = objects; o; o = o->next)
        if (o->kind == STREAM && o->capturing)
            return 1;
    return 0;
}

EXPORT CUresult fake_ctx_sync(void)
{
    CALL("cuCtxSynchronize", 1);
    fake_cuda.wrong += capturing();
    return CUDA_SUCCESS;
}

// ---- memory

EXPORT CUresult fake_mem_alloc(CUdeviceptr *pointer, size_t bytes)
{
    CALL("cuMemAlloc_v2", 1);
    fake_cuda.wrong += capturing();
    if (bytes > (size_t)1 << 32)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct object *o = make(MEMORY);
    o->bytes = bytes;
    o->data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    fake_cuda.bytes += bytes;
    *pointer = (CUdeviceptr)(uintptr_t)o->data;
    return CUDA_SUCCESS;
}

static struct object *memory_of(CUdeviceptr p, size_t bytes)
{
    for (struct object *o = objects; o; o = o->next)
        if (o->kind == MEMORY && p >= (uintptr_t)o->data && p + bytes <= (uintptr_t)o->data + o->bytes)
            return o;
    fake_cuda.wrong++;
    return NULL;
}

EXPORT CUresult fake_mem_free(CUdeviceptr pointer)
{
    return drop(memory_of(pointer, 0), MEMORY, "cuMemFree_v2");
}

EXPORT CUresult fake_copy_up(CUdeviceptr to, const void *from, size_t bytes)
{
    CALL("cuMemcpyHtoD_v2", 1);
    if (!memory_of(to, bytes))
        return 1;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_copy_down(void *to, CUdeviceptr from, size_t bytes)
{
    CALL("cuMemcpyDtoH_v2", 1);
    if (!memory_of(from, bytes))
        return 1;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_fill8(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
    CALL("cuMemsetD8Async", 1);
    if (!memory_of(to, n) || (stream && !get(stream, STREAM)))
        return 1;
    memset((void *)(uintptr_t)to, value, n);
    return CUDA_SUCCESS;
}

// ---- code

EXPORT CUresult fake_module_load(CUmodule *module, const void *image, unsigned n, int *options, void **values)
{
    CALL("cuModuleLoadDataEx", 1);
    if (n == 2 && options[0] == CU_JIT_ERROR_LOG_BUFFER && !strncmp(image, "bad", 3)) {
        snprintf(values[0], (size_t)(uintptr_t)values[1], "line 1: bad");
        return CUDA_ERROR_INVALID_PTX;
    }
    if (!strncmp(image, "future", 6))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (!strncmp(image, "alien", 5))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = (CUmodule)(void *)make(MODULE);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_module_unload(CUmodule module)
{
    struct object *next;
    for (struct object *o = objects; o; o = next) {
        next = o->next;
        if (o->kind == FUNCTION && o->data == NULL && o->launches == (void *)module) {
            o->launches = NULL;
            int calls = fake_cuda.calls; // not a call of the API
            drop(o, FUNCTION, "");
            fake_cuda.calls = calls;
        }
    }
    return drop(module, MODULE, "cuModuleUnload");
}

EXPORT CUresult fake_module_function(CUfunction *function, CUmodule module, const char *name)
{
    CALL("cuModuleGetFunction", 1);
    if (!get(module, MODULE))
        return 400;
    struct object *o = make(FUNCTION);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->launches = (void *)module;
    *function = (CUfunction)(void *)o;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_function_set(CUfunction function, int attribute, int value)
{
    CALL("cuFuncSetAttribute", 1);
    if (!get(function, FUNCTION) || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return 1;
    fake_cuda.shared_set = value;
    return CUDA_SUCCESS;
}

// scale(a, f, b, C): b[i] = a[i] * f
static void carry_out(const struct launch *l)
{
    const float *a = l->pointers[0];
    float *b = l->pointers[1];
    for (int i = 0; !strcmp(l->symbol, "scale") && i < l->count; i++)
        b[i] = a[i] * l->f;
}

EXPORT CUresult fake_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void **args, void **extra)
{
    CALL("cuLaunchKernel", 1);
    struct object *f = get(function, FUNCTION), *s = stream ? get(stream, STREAM) : NULL;
    if (!f || extra || !gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 || (stream && !s))
        return 1;
    pthread_mutex_lock(&lock);
    fake_cuda.launches++;
    fake_cuda.grid = gx;
    fake_cuda.block = bx;
    fake_cuda.shared = shared;
    fake_cuda.stream = stream;
    memcpy(fake_cuda.symbol, f->name, sizeof fake_cuda.symbol);
    for (int i = 0; i < fake_cuda.arg_count; i++)
        memcpy(fake_cuda.args[i], args[i], (size_t)fake_cuda.arg_bytes[i]);
    pthread_mutex_unlock(&lock);
    struct launch l = { .count = 0 };
    memcpy(l.symbol, f->name, sizeof l.symbol);
    if (!strcmp(f->name, "scale")) {
        memcpy(&l.pointers[0], args[0], sizeof(void *));
        memcpy(&l.f, args[1], 4);
        memcpy(&l.pointers[1], args[2], sizeof(void *));
        memcpy(&l.count, args[3], 4);
    }
    if (s && s->capturing) {
        s->launches = realloc(s->launches, (size_t)(s->n + 1) * sizeof l);
        s->launches[s->n++] = l;
    } else {
        carry_out(&l);
    }
    return CUDA_SUCCESS;
}

// ---- streams, events, graphs

EXPORT CUresult fake_stream_create(CUstream *stream, unsigned flags)
{
    CALL("cuStreamCreate", 1);
    fake_cuda.wrong += flags != CU_STREAM_NON_BLOCKING;
    *stream = (CUstream)(void *)make(STREAM);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_stream_destroy(CUstream stream)
{
    return drop(stream, STREAM, "cuStreamDestroy_v2");
}

EXPORT CUresult fake_stream_sync(CUstream stream)
{
    CALL("cuStreamSynchronize", 1);
    fake_cuda.wrong += capturing();
    return !stream || get(stream, STREAM) ? CUDA_SUCCESS : 400;
}

EXPORT CUresult fake_event_create(CUevent *event, unsigned flags)
{
    CALL("cuEventCreate", 1);
    fake_cuda.wrong += flags != 0;
    *event = (CUevent)(void *)make(EVENT);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_event_destroy(CUevent event)
{
    return drop(event, EVENT, "cuEventDestroy_v2");
}

EXPORT CUresult fake_event_record(CUevent event, CUstream stream)
{
    CALL("cuEventRecord", 1);
    return get(event, EVENT) && (!stream || get(stream, STREAM)) ? CUDA_SUCCESS : 400;
}

EXPORT CUresult fake_event_sync(CUevent event)
{
    CALL("cuEventSynchronize", 1);
    return get(event, EVENT) ? CUDA_SUCCESS : 400;
}

EXPORT CUresult fake_event_elapsed(float *ms, CUevent from, CUevent to)
{
    CALL("cuEventElapsedTime", 1);
    *ms = 1.5f;
    return get(from, EVENT) && get(to, EVENT) ? CUDA_SUCCESS : 400;
}

EXPORT CUresult fake_capture_begin(CUstream stream, int mode)
{
    CALL("cuStreamBeginCapture_v2", 1);
    struct object *s = get(stream, STREAM);
    if (!s || s->capturing || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        return 1;
    s->capturing = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_capture_end(CUstream stream, CUgraph *graph)
{
    struct object *s = get(stream, STREAM);
    int was = s && s->capturing;
    if (s)
        s->capturing = 0;
    CALL("cuStreamEndCapture", 1);
    if (!was)
        return 1;
    struct object *g = make(GRAPH);
    g->launches = s->launches;
    g->n = s->n;
    s->launches = NULL;
    s->n = 0;
    *graph = (CUgraph)(void *)g;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_graph_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CALL("cuGraphInstantiateWithFlags", 1);
    struct object *g = get(graph, GRAPH);
    if (!g || flags)
        return 1;
    struct object *e = make(EXEC);
    e->n = g->n;
    e->launches = malloc((size_t)(g->n + 1) * sizeof *e->launches);
    if (g->n)
        memcpy(e->launches, g->launches, (size_t)g->n * sizeof *e->launches);
    *exec = (CUgraphExec)(void *)e;
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_graph_destroy(CUgraph graph)
{
    return drop(graph, GRAPH, "cuGraphDestroy");
}

EXPORT CUresult fake_graph_launch(CUgraphExec exec, CUstream stream)
{
    CALL("cuGraphLaunch", 1);
    struct object *e = get(exec, EXEC);
    if (!e || (stream && !get(stream, STREAM)))
        return 1;
    for (int i = 0; i < e->n; i++)
        carry_out(&e->launches[i]);
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_exec_destroy(CUgraphExec exec)
{
    return drop(exec, EXEC, "cuGraphExecDestroy");
}

EXPORT CUresult fake_error_name(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

EXPORT CUresult fake_error_text(CUresult error, const char **text)
{
    (void)error;
    *text = "words of the driver";
    return CUDA_SUCCESS;
}
