// Behind the names of cuBLAS: a product that does nothing for a millisecond, or fails (FAKE_BLAS=fail).
#include <stdlib.h>
#include <time.h>

static int something;

int cublasCreate_v2(void **handle)
{
    *handle = &something;
    return 0;
}

int cublasDestroy_v2(void *handle)
{
    return handle != &something;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    (void)stream;
    return handle != &something;
}

int cublasGemmEx(void)
{
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    return getenv("FAKE_BLAS") != NULL;
}
