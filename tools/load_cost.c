// What it takes to have a layer's kernels ready: the driver's own load of the machine code, moe_load() of the image's file, and
// moe_jit() that finds the image in the disk cache; medians of many. First, once: from an open device to a first result.
//
//   moec kernels/moe.dsl --arch=sm_90a -o moe.moe
//   load-cost moe.moe [cache folder]                  on cuda:0
#include "../runtime/moejit.h"
#include "../runtime/moelayer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { E = 8, K = 2, H = 256, I = 384, T = 16, REPEATS = 41 };
static struct moe_device *d;
static const char *file;

static void need(int status, const char *what)
{
    char text[1024];
    if (status)
        fprintf(stderr, "load-cost: %s: %s\n", what, moe_error(d, text, sizeof text)), exit(1);
}
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static void *read_image(size_t *n)
{
    FILE *f = fopen(file, "rb");
    void *bytes = f && !fseek(f, 0, SEEK_END) ? malloc(*n = (size_t)ftell(f)) : NULL;
    if (!bytes || fseek(f, 0, SEEK_SET) || fread(bytes, 1, *n, f) != *n)
        fprintf(stderr, "load-cost: cannot read %s\n", file), exit(1);
    fclose(f);
    return bytes;
}
static int compile(void *user, const struct moe_compile *c, void **image, size_t *n, char *why, size_t why_size)
{
    (void)user, (void)c, (void)why, (void)why_size;
    *image = read_image(n);
    return MOE_OK;
}

static void load_file(struct moe_image **image)
{
    size_t n;
    void *bytes = read_image(&n);
    need(moe_load(d, bytes, n, image), file);
    free(bytes);
}
static void first_result(void)
{
    struct moe_image *image;
    struct moe_layer *layer;
    struct moe_layer_desc desc = { sizeof desc, .experts = E, .topk = K, .hidden = H, .ffn = I, .dtype = IMAGE_BF16 };
    struct moe_layer_weights w = { .size = sizeof w };
    struct moe_layer_call call = { .size = sizeof call, .tokens = T };
    size_t matrix = (size_t)E * H * I * 2;
    void *p, *x, *y, *logits;
    double start = now_ms();
    load_file(&image);
    need(moe_alloc(d, 3 * matrix, &p), "memory");
    w.gate = p, w.up = (char *)p + matrix, w.down = (char *)p + 2 * matrix;
    need(moe_layer_create(image, &desc, &w, &layer), "layer");
    call.workspace_bytes = moe_layer_workspace(layer, T);
    need(moe_alloc(d, T * H * 2, &x) || moe_alloc(d, T * H * 2, &y) || moe_alloc(d, T * E * 4, &logits) ||
             moe_alloc(d, call.workspace_bytes, &call.workspace),
         "memory");
    call.x = x, call.y = y, call.logits = logits;
    need(moe_layer_forward(layer, &call, NULL), "forward");
    need(moe_sync(d, NULL), "running the kernels");
    printf("from an open device to the first result: %.2f ms\n", now_ms() - start);
}

static void entry(void *library, const char *name, void *function)
{
    void *p = library ? dlsym(library, name) : NULL;
    memcpy(function, &p, sizeof p);
}

static double driver_load(const void *code)
{
    static int (*load)(void **, const void *), (*unload)(void *);
    if (!load) {
        void *h = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
        int (*retain)(void **, int) = NULL, (*set)(void *) = NULL;
        entry(h, "cuModuleLoadData", &load), entry(h, "cuModuleUnload", &unload);
        entry(h, "cuDevicePrimaryCtxRetain", &retain), entry(h, "cuCtxSetCurrent", &set);
        if (!load || !unload || !retain || !set || retain(&context, 0) || set(context))
            exit(1);
    }
    void *module = NULL;
    double start = now_ms();
    int status = load(&module, code);
    double ms = now_ms() - start;
    if (status)
        fprintf(stderr, "load-cost: cuModuleLoadData: %d\n", status), exit(1);
    unload(module);
    return ms;
}

int main(int argc, char **argv)
{
    char why[512], err[IMAGE_ERR_MAX];
    double driver[REPEATS], load[REPEATS], jit[REPEATS];
    size_t n = 0;
    if (argc < 2)
        return fprintf(stderr, "usage: load-cost IMAGE [CACHE FOLDER]\n"), 2;
    file = argv[1];
    if (moe_open("cuda:0", &d, why, sizeof why))
        return fprintf(stderr, "load-cost: %s\n", why), 3;
    first_result();
    const void *bytes = read_image(&n);
    struct image_desc *desc = moe_image_read(bytes, n, err);
    if (!desc)
        return fprintf(stderr, "load-cost: %s\n", err), 1;
    struct moe_compile what = { .size = sizeof what, .source = "any", .source_size = 3 };
    struct moe_jit_options o = {
        .size = sizeof o, .compile = compile, .identity = "load-cost", .cache_dir = argc > 2 ? argv[2] : NULL
    };
    for (int i = -1; i < REPEATS; i++) { // the first fills the cache
        struct moe_image *image;
        int at = i < 0 ? 0 : i;
        driver[at] = driver_load(desc->code);
        double start = now_ms();
        load_file(&image);
        load[at] = now_ms() - start;
        moe_unload(image);
        moe_jit_forget();
        start = now_ms();
        need(moe_jit(d, &what, &o, &image), "jit");
        jit[at] = now_ms() - start;
        moe_unload(image);
    }
    qsort(driver, REPEATS, sizeof *driver, by_value), qsort(load, REPEATS, sizeof *load, by_value),
        qsort(jit, REPEATS, sizeof *jit, by_value);
    printf(
        "%zu bytes of code: cuModuleLoadData %.3f ms, file and moe_load %.3f ms, moe_jit from the disk cache %.3f ms\n",
        desc->code_size, driver[REPEATS / 2], load[REPEATS / 2], jit[REPEATS / 2]);
    return 0;
}
