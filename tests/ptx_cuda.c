// The PTX interpreter behind the names of libcuda: memory is the host's, streams run at once, graphs are not supported.
#include "../runtime/cuda_abi.h"
#include "ptx_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PROTOTYPE(required, member, symbol, params) CUresult sim_##member params __asm__(#symbol);
CUDA_SYMBOLS(PROTOTYPE)

enum { SIM_FAULT = 719, NOT_HERE = 801 }; // CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_NOT_SUPPORTED
static int something;                     // what handles without meaning point to
static CUcontext current;

EXPORT CUresult sim_init(unsigned flags)
{
    const char *s = getenv("PTX_SIM_SEED");
    (void)flags;
    ptx_seed(s ? (unsigned)atoi(s) : 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_driver_version(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_device_count(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult sim_device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "PTX interpreter");
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_device_attribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 166912; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    default: *value = 1;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_device_memory(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = (size_t)1 << 32;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)(void *)&something;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_push(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_pop(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult so_far(void)
{
    return ptx_faults() ? SIM_FAULT : CUDA_SUCCESS;
}

EXPORT CUresult sim_ctx_sync(void)
{
    return so_far();
}

EXPORT CUresult sim_mem_alloc(CUdeviceptr *pointer, size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(p, 0xcd, bytes);
    ptx_memory_add(p, bytes);
    *pointer = (uintptr_t)p;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_mem_free(CUdeviceptr pointer)
{
    ptx_memory_drop((void *)(uintptr_t)pointer);
    free((void *)(uintptr_t)pointer);
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_copy_up(CUdeviceptr to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_copy_down(void *to, CUdeviceptr from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return so_far();
}

EXPORT CUresult sim_fill8(CUdeviceptr to, unsigned char v, size_t n, CUstream stream)
{
    (void)stream;
    memset((void *)(uintptr_t)to, v, n);
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_module_load(CUmodule *module, const void *image, unsigned n, int *options, void **values)
{
    struct program **programs = calloc(1, sizeof(struct program *));
    (void)n, (void)options, (void)values;
    *module = (CUmodule)(void *)programs;
    return ptx_parse(programs, image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

EXPORT CUresult sim_module_unload(CUmodule module) // what it holds is kept: a test ends soon
{
    (void)module;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_module_function(CUfunction *function, CUmodule module, const char *name)
{
    for (struct program *p = *(struct program **)(void *)module; p; p = p->next)
        if (!strcmp(p->name, name)) {
            *function = (CUfunction)(void *)p;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult sim_function_set(CUfunction function, int attribute, int v)
{
    (void)function, (void)attribute, (void)v;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                           unsigned bz, unsigned shared, CUstream stream, void **args, void **extra)
{
    (void)stream;
    if (!gx || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra)
        return 1;
    return ptx_launch((struct program *)(void *)function, gx, bx, shared, args) ? CUDA_SUCCESS : 1;
}

EXPORT CUresult sim_stream_create(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = (CUstream)(void *)&something;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_stream_destroy(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_stream_sync(CUstream stream)
{
    (void)stream;
    return so_far();
}

EXPORT CUresult sim_event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)(void *)&something;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_event_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_event_sync(CUevent event)
{
    (void)event;
    return so_far();
}

EXPORT CUresult sim_event_elapsed(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *ms = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_capture_begin(CUstream stream, int mode)
{
    (void)stream, (void)mode;
    return NOT_HERE;
}

EXPORT CUresult sim_capture_end(CUstream stream, CUgraph *graph)
{
    (void)stream, (void)graph;
    return NOT_HERE;
}

EXPORT CUresult sim_graph_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)exec, (void)graph, (void)flags;
    return NOT_HERE;
}

EXPORT CUresult sim_graph_destroy(CUgraph graph)
{
    (void)graph;
    return NOT_HERE;
}

EXPORT CUresult sim_graph_launch(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    return NOT_HERE;
}

EXPORT CUresult sim_exec_destroy(CUgraphExec exec)
{
    (void)exec;
    return NOT_HERE;
}

EXPORT CUresult sim_error_name(CUresult e, const char **text)
{
    *text = e == SIM_FAULT ? "SIM_FAULT" : "SIM_ERROR";
    return CUDA_SUCCESS;
}

EXPORT CUresult sim_error_text(CUresult e, const char **text)
{
    *text = e == SIM_FAULT ? "the kernel did something wrong, see above" : "not possible in the PTX interpreter";
    return CUDA_SUCCESS;
}
