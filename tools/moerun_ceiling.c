// What the device can do at most, measured in the same run as what it is compared with: bytes read a second by an own kernel
// (kernels/bandwidth.dsl), dense 16-bit products a second by the vendor's library, or, where that is missing, by a kernel of ours.
#include "moerun.h"
#include "../runtime/moejit.h"

#include <stdlib.h>
#include <string.h>

enum { REPEATS = 10, COLUMNS = 4096, SIDE = 8192, SIDE_SIMULATED = 64, HASH = 40503 };
enum { ASSUMED_TFLOPS = 790, ASSUMED_GBPS = 4450 }; // one NVIDIA H200
static const int64_t most_rows = 1 << 18;           // 4 GiB

struct work { // of one ceiling
    const struct options *o;
    struct device *d;
    struct timer *t;
    const struct moe_kernel *kernel;
    struct moe_arg args[4];
    int nargs;
    struct blas blas;
    int side;
    struct guarded a, b, c, zeros;
};

static bool launch(void *user)
{
    struct work *w = user;
    return !device_fails(w->d, moe_launch(w->kernel, w->args, w->nargs, NULL, w->d->stream), "ceiling");
}

// NAME beside the source of the layer, compiled for this device; false without a word: there is none, or no compiler.
static bool compile_beside(struct work *w, const char *name, const struct moe_binding *b, int nb)
{
    const struct options *o = w->o;
    const char *slash = strrchr(o->source, '/');
    char path[4096], *source;
    size_t n;
    snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - o->source) + 1 : 0, o->source, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    fclose(f);
    if (!read_file(path, &source, &n))
        return false;
    struct moe_compile c = { .size = sizeof c,
                             .source = source,
                             .source_size = n,
                             .name = path,
                             .bindings = b,
                             .nbindings = nb,
                             .ptx = o->ptx };
    struct moe_jit_options j = { .size = sizeof j, .cache_dir = o->no_cache ? "" : NULL, .ptxas = o->ptxas };
    bool ok = moe_jit(w->d->gpu, &c, &j, &w->d->image) == MOE_OK;
    free(source);
    return ok;
}

// ---- memory -----------------------------------------------------------------------------------------------------------

// read_sum's results, against what read_fill wrote: c runs from 0 to 4095 in each row.
static bool sums_right(struct work *w, int64_t rows)
{
    uint32_t *y = malloc((size_t)rows * sizeof *y);
    bool ok =
        (y || report(EXIT_INTERNAL, "out of memory")) && device_download(w->d, y, w->b.ptr, (size_t)rows * sizeof *y);
    for (int64_t m = 0; ok && m < rows; m++) {
        uint32_t want = (uint32_t)HASH * ((uint32_t)m * COLUMNS * COLUMNS + (uint32_t)COLUMNS * (COLUMNS - 1) / 2);
        ok = y[m] == want || report(EXIT_BREACH, "read_sum: row %lld gives %u, not %u", (long long)m, y[m], want);
    }
    free(y);
    return ok;
}

static bool read_memory(struct work *w, struct ceiling *c)
{
    const struct moe_kernel *fill = moe_find(w->d->image, "read_fill", NULL),
                            *sum = moe_find(w->d->image, "read_sum", NULL);
    int64_t eighth = w->d->info.memory_bytes / 8 / (COLUMNS * 4), rows = eighth < most_rows ? eighth : most_rows;
    struct times t = { 0 };
    rows = w->t->simulated ? 8 : rows < 1024 ? 1024 : rows;
    bool ok = guarded_new(w->d, &w->a, (size_t)rows * COLUMNS * 4) && guarded_new(w->d, &w->b, (size_t)rows * 4);
    w->args[0] = moe_tensor(w->a.ptr, 2, rows, COLUMNS, 0);
    w->args[1] = moe_tensor(w->b.ptr, 1, rows, 0, 0);
    w->kernel = fill;
    w->nargs = 1;
    ok = ok && launch(w);
    w->kernel = sum;
    w->nargs = 2;
    ok = ok && timer_calls(w->t, false, w->t->simulated ? 2 : REPEATS, launch, w, &t) && device_sync(w->d) &&
         sums_right(w, rows);
    if (ok) {
        *c = (struct ceiling){ .value = (double)rows * COLUMNS * 4 / t.median * 1e-6, .proof = !w->t->simulated };
        snprintf(c->from, sizeof c->from, "read, measured");
    }
    guarded_free(w->d, &w->a);
    guarded_free(w->d, &w->b);
    return ok;
}

// From --image if it holds the kernels, else compiled.
static bool memory_ceiling(struct work *w, struct ceiling *c)
{
    bool here = false, ok = true;
    progress("measuring the ceiling of memory");
    if (w->o->image) {
        ok = device_load(w->d, w->o, NULL);
        here = ok && moe_find(w->d->image, "read_sum", NULL) && moe_find(w->d->image, "read_fill", NULL);
        if (!here)
            device_unload(w->d);
    }
    here = here || (ok && compile_beside(w, "bandwidth.dsl", NULL, 0));
    if (here)
        ok = read_memory(w, c);
    else if (ok)
        snprintf(c->why, sizeof c->why, "%s and there is no bandwidth.dsl beside --source, or no compiler",
                 w->o->image ? "the image has no read_sum," : "nothing that reads memory:");
    device_unload(w->d);
    return ok;
}

// ---- matrices ---------------------------------------------------------------------------------------------------------

// Normal data, the same 32 MB over and over.
static bool fill_normal(struct work *w, struct guarded *g, int tensor)
{
    enum { PIECE = 16 << 20 };
    struct normal n;
    uint16_t *host = malloc(PIECE * sizeof *host);
    bool made = host && normal_init(&n, w->o->seed, tensor, 1, w->o->f16), ok = made;
    if (!host)
        report(EXIT_INTERNAL, "out of memory");
    size_t piece = g->bytes < PIECE * sizeof *host ? g->bytes : PIECE * sizeof *host;
    if (ok)
        normal_fill(&n, 0, (int64_t)(piece / sizeof *host), host);
    for (size_t at = 0; ok && at < g->bytes; at += piece)
        ok = device_upload(w->d, (char *)g->ptr + at, host, g->bytes - at < piece ? g->bytes - at : piece);
    if (made)
        normal_free(&n);
    free(host);
    return ok;
}

static bool multiply_by_library(void *user)
{
    struct work *w = user;
    return blas_gemm(&w->blas, w->o->f16, w->side, w->a.ptr, w->b.ptr, w->c.ptr) ||
           report(EXIT_INTERNAL, "%s: the product failed", w->blas.name);
}

static bool time_product(struct work *w, timed_call *call, struct ceiling *c)
{
    struct times t = { 0 };
    double n = w->side;
    bool ok = timer_calls(w->t, false, w->t->simulated ? 2 : REPEATS, call, w, &t) && device_sync(w->d);
    if (ok)
        c->value = 2 * n * n * n / t.median * 1e-9;
    return ok;
}

static bool product_of_ours(struct work *w, struct ceiling *c)
{
    const struct moe_binding b[] = { { "M", w->side, NULL }, { "N", w->side, NULL }, { "K", w->side, NULL } };
    bool ok = true;
    if (!w->o->f16 && compile_beside(w, "examples/batched_gemm.dsl", b, 3)) {
        w->kernel = moe_find(w->d->image, "batched_gemm", NULL);
        w->args[0] =
            (struct moe_arg){ .kind = MOE_POINTER, .rank = 3, .ptr = w->a.ptr, .shape = { 1, w->side, w->side } };
        w->args[1] = w->args[2] = w->args[3] = w->args[0];
        w->args[1].ptr = w->b.ptr;
        w->args[2] = moe_tensor(w->zeros.ptr, 2, 1, w->side, 0);
        w->args[3].ptr = w->c.ptr;
        w->nargs = 4;
        ok = w->kernel && device_fill(w->d, w->zeros.ptr, 0, w->zeros.bytes) && time_product(w, launch, c);
        snprintf(c->from, sizeof c->from, "our own kernel");
    } else {
        snprintf(c->why, sizeof c->why,
                 "neither the vendor's BLAS nor a compiler with examples/batched_gemm.dsl is here");
    }
    device_unload(w->d);
    return ok;
}

static bool matrix_ceiling(struct work *w, struct ceiling *c)
{
    progress("measuring the ceiling of matrix products");
    w->side = w->t->simulated ? SIDE_SIMULATED : SIDE;
    size_t bytes = (size_t)w->side * (size_t)w->side * 2;
    bool ok = guarded_new(w->d, &w->a, bytes) && guarded_new(w->d, &w->b, bytes) && guarded_new(w->d, &w->c, bytes) &&
              guarded_new(w->d, &w->zeros, (size_t)w->side * 2) && fill_normal(w, &w->a, 20) &&
              fill_normal(w, &w->b, 21);
    bool library =
        ok && blas_open(&w->blas, w->o, w->d) && blas_gemm(&w->blas, w->o->f16, w->side, w->a.ptr, w->b.ptr, w->c.ptr);
    if (library) {
        ok = time_product(w, multiply_by_library, c);
        c->proof = !w->t->simulated;
        snprintf(c->from, sizeof c->from, "%s, measured", w->blas.name);
    } else if (ok) {
        ok = product_of_ours(w, c);
    }
    blas_close(&w->blas);
    struct guarded *all[] = { &w->a, &w->b, &w->c, &w->zeros };
    for (int i = 0; i < 4; i++)
        guarded_free(w->d, all[i]);
    return ok;
}

// ---- both -------------------------------------------------------------------------------------------------------------

static void assume(struct ceiling *c, double value)
{
    if (c->value > 0)
        return;
    c->value = value;
    c->proof = false;
    snprintf(c->from, sizeof c->from, "assumed");
    fprintf(stderr, "moerun: %s: %g is assumed; --floor=TFLOPS,GBPS gives the device's own\n", c->why, value);
}

bool ceilings_find(struct ceilings *c, const struct options *o, struct device *d, struct timer *t)
{
    *c = (struct ceilings){ .tflops.value = 0 };
    if (o->floor_tflops > 0) {
        c->tflops = (struct ceiling){ .value = o->floor_tflops, .proof = true, .from = "--floor" };
        c->gbps = (struct ceiling){ .value = o->floor_gbps, .proof = true, .from = "--floor" };
        return true;
    }
    struct work memory = { .o = o, .d = d, .t = t }, matrices = { .o = o, .d = d, .t = t };
    bool ok = memory_ceiling(&memory, &c->gbps) && matrix_ceiling(&matrices, &c->tflops);
    progress_clear();
    if (ok) {
        assume(&c->gbps, ASSUMED_GBPS);
        assume(&c->tflops, ASSUMED_TFLOPS);
    }
    return ok;
}
