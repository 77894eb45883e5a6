// The vendor's own matrix product, as the ceiling of what the matrix units do: cuBLAS or hipBLAS, opened where they are. Their
// interfaces are declared here; types, operations and compute modes are the numbers of cublas_api.h and library_types.h (CUDA 12,
// 13) and of hipblas.h 2 and 3 (ROCm 6, 7). hipBLAS 2 has the same arguments as 3 under the name of hipblasGemmEx_v2.
#include "moerun.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_F16 = 2, TYPE_BF16 = 14 };
typedef int gemm_ex(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                    int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                    int compute, int algo);
struct library {
    char device; // 'c'uda or 'h'ip
    const char *file, *name, *create, *destroy, *set_stream, *gemm;
    int none, transposed, compute, algo;
};
#define CUBLAS(file) \
    { \
        'c', file, "cuBLAS", "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasGemmEx", 0, 1, 68, -1 \
    }
#define HIPBLAS(file, gemm) \
    { \
        'h', file, "hipBLAS", "hipblasCreate", "hipblasDestroy", "hipblasSetStream", gemm, 111, 112, 2, 160 \
    }
static const struct library libraries[] = {
    CUBLAS("libcublas.so.13"),
    CUBLAS("libcublas.so.12"),
    CUBLAS("/usr/local/cuda/lib64/libcublas.so.13"),
    CUBLAS("/usr/local/cuda/lib64/libcublas.so.12"),
    HIPBLAS("libhipblas.so.3", "hipblasGemmEx"),
    HIPBLAS("libhipblas.so.2", "hipblasGemmEx_v2"),
    HIPBLAS("/opt/rocm/lib/libhipblas.so.3", "hipblasGemmEx"),
    HIPBLAS("/opt/rocm/lib/libhipblas.so.2", "hipblasGemmEx_v2"),
};

// ---- the device must be the thread's current one while a handle is made and used ------------------------------------------------

static bool symbol(void *library, const char *name, void *to)
{
    void *p = library ? dlsym(library, name) : NULL;
    memcpy(to, &p, sizeof p); // ISO C has no cast from void * to a function
    return p != NULL;
}

static bool enter_cuda(struct blas *b, int ordinal)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *context = NULL;
    int (*get)(int *, int), (*retain)(void **, int), (*current)(void **), (*set)(void *), device = 0;
    bool ok = symbol(cuda, "cuDeviceGet", &get) && symbol(cuda, "cuDevicePrimaryCtxRetain", &retain) &&
              symbol(cuda, "cuCtxGetCurrent", &current) && symbol(cuda, "cuCtxSetCurrent", &set) &&
              symbol(cuda, "cuDevicePrimaryCtxRelease_v2", &b->release) && !current(&b->before) &&
              !get(&device, ordinal) && !retain(&context, device);
    b->set = ok ? set : NULL;
    b->device = device;
    return ok && !set(context);
}

static bool enter_hip(int ordinal)
{
    static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so" };
    void *hip = NULL;
    int (*set)(int);
    for (size_t i = 0; !hip && i < sizeof files / sizeof files[0]; i++)
        hip = dlopen(files[i], RTLD_LAZY | RTLD_NOLOAD);
    return symbol(hip, "hipSetDevice", &set) && !set(ordinal);
}

// ---- the library ------------------------------------------------------------------------------------------------------

static bool bind_library(struct blas *b, const struct library *l, const char *file)
{
    int (*create)(void **), (*set_stream)(void *, void *);
    b->library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!b->library)
        return false;
    bool ok = symbol(b->library, l->create, &create) && symbol(b->library, l->destroy, &b->destroy) &&
              symbol(b->library, l->set_stream, &set_stream) && symbol(b->library, l->gemm, &b->gemm);
    ok = ok && !create(&b->handle);
    ok = ok && !set_stream(b->handle, b->stream);
    snprintf(b->name, sizeof b->name, "%s", l->name);
    b->row = l;
    return ok;
}

bool blas_open(struct blas *b, const struct options *o, struct device *d)
{
    const char *other = secure_getenv("MOE_BLAS_LIBRARY"), *colon = strchr(o->device, ':');
    // Behind another driver library there is another device than a real BLAS would find.
    bool real = !simulated(o) && !secure_getenv("MOE_CUDA_LIBRARY") && !secure_getenv("MOE_HIP_LIBRARY");
    char kind = o->device[0] == 'h' ? 'h' : 'c';
    int ordinal = colon ? atoi(colon + 1) : 0;
    *b = (struct blas){ .stream = d->stream };
    if (real ? !(kind == 'h' ? enter_hip(ordinal) : enter_cuda(b, ordinal)) : !other)
        return false;
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && !b->library; i++)
        if (libraries[i].device == kind && bind_library(b, &libraries[i], other ? other : libraries[i].file))
            return true;
    return false; // one that is there and does not work: another version would not either
}

// c[n][m] = sum over k of a[m][k] b[n][k], all of side n; column-major for BLAS, so a is transposed.
bool blas_gemm(struct blas *b, bool f16, int n, const void *w, const void *x, void *y)
{
    const struct library *l = b->row;
    const float one = 1, zero = 0;
    int type = f16 ? TYPE_F16 : TYPE_BF16;
    gemm_ex *gemm = (gemm_ex *)b->gemm;
    return !gemm(b->handle, l->transposed, l->none, n, n, n, &one, w, type, n, x, type, n, &zero, y, type, n,
                 l->compute, l->algo);
}

void blas_close(struct blas *b)
{
    if (b->handle)
        b->destroy(b->handle);
    if (b->set) {
        b->set(b->before);
        b->release(b->device);
    }
    *b = (struct blas){ .library = NULL }; // the library stays: unloading it would run its destructors twice at exit
}
