// A device to run on: a GPU through libmoert, or the compiler's eval on the host. Failures are reported here.
#include "moerun.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xa5 };

bool device_fails(struct device *d, int status, const char *what)
{
    char text[512] = "";
    if (!status)
        return false;
    moe_error(d->gpu, text, sizeof text);
    report(status == MOE_ERR_MEMORY || status == MOE_ERR_ARCH ? EXIT_USAGE : EXIT_INTERNAL, "%s: %s: %s", what,
           moe_status_name(status), text);
    return true;
}

static bool is_eval(const struct options *o)
{
    return !strcmp(o->device, "eval");
}

void device_choose(struct options *o)
{
    static const char *const gpus[] = { "cuda:0", "hip:0" };
    struct moe_device *d;
    bool there = false;
    if (o->device[0])
        return;
    for (int i = 0; i < 2 && !there; i++) {
        o->device = gpus[i];
        there = moe_open(o->device, &d, NULL, 0) == MOE_OK;
        if (there)
            moe_close(d);
    }
    o->device = there ? o->device : "cuda:0";
    if (there || o->command[0] == 'b' || o->command[0] == 't') // the simulator's times say nothing
        return;
    o->device = "sim:sm_90a";
    fprintf(stderr, "moerun: no GPU here: using the simulator, --device=%s\n", o->device);
}

bool device_open(struct device *d, const struct options *o)
{
    char why[512];
    *d = (struct device){ .info = { .size = sizeof d->info } };
    if (is_eval(o)) {
        snprintf(d->info.name, sizeof d->info.name, "eval, on the host");
        snprintf(d->info.arch, sizeof d->info.arch, "%s", o->arch ? o->arch : "none");
        return true;
    }
    char name[512];
    snprintf(name, sizeof name, simulated(o) ? "%s,seed=%llu" : "%s", o->device, (unsigned long long)o->seed);
    int status = moe_open(name, &d->gpu, why, sizeof why);
    if (status)
        return report(status == MOE_ERR_ARGUMENT ? EXIT_USAGE : EXIT_MISSING,
                      "%s (without a GPU: --device=sim:sm_90a, or eval)", why);
    if (device_fails(d, moe_info(d->gpu, &d->info), "device") ||
        device_fails(d, moe_stream(d->gpu, &d->stream), "stream")) {
        device_close(d);
        return false;
    }
    return true;
}

bool device_load(struct device *d, const struct options *o, const struct model *m)
{
    char *bytes;
    size_t n;
    if (!d->gpu) {
        d->eval = eval_open(o, m);
        return d->eval != NULL;
    }
    if (!o->image)
        return jit_load(d, o, m);
    if (!read_file(o->image, &bytes, &n))
        return false;
    bool ok = !device_fails(d, moe_load(d->gpu, bytes, n, &d->image), o->image);
    free(bytes);
    return ok;
}

void device_unload(struct device *d)
{
    moe_unload(d->image);
    eval_close(d->eval);
    d->image = NULL;
    d->eval = NULL;
}

void device_close(struct device *d)
{
    device_unload(d);
    if (d->gpu)
        moe_destroy(d->gpu, MOE_STREAM, d->stream);
    char text[256];
    if (d->gpu && *moe_stats(d->gpu, text, sizeof text))
        printf("simulated: %s\n", text);
    moe_close(d->gpu);
    d->gpu = NULL;
}

bool device_upload(struct device *d, void *to, const void *from, size_t n)
{
    if (d->gpu)
        return !device_fails(d, moe_upload(d->gpu, to, from, n), "upload");
    if (n)
        memcpy(to, from, n);
    return true;
}

bool device_download(struct device *d, void *to, const void *from, size_t n)
{
    if (d->gpu)
        return !device_fails(d, moe_download(d->gpu, to, from, n), "download");
    if (n)
        memcpy(to, from, n);
    return true;
}

bool device_fill(struct device *d, void *p, int byte, size_t n)
{
    if (d->gpu)
        return !device_fails(d, moe_fill(d->gpu, p, byte, n, d->stream), "fill");
    if (n)
        memset(p, byte, n);
    return true;
}

bool device_poison(struct device *d, void *p, size_t n)
{
    if (d->gpu)
        return !device_fails(d, moe_poison(d->gpu, p, n, d->stream), "poison");
    return device_fill(d, p, 0xff, n);
}

// Prints what the simulator has found, and forgets it. true: nothing.
static bool nothing_found(struct device *d)
{
    const char *text;
    int n = 0;
    for (; (text = moe_finding(d->gpu, n)); n++)
        fprintf(stderr, "%s\n", text);
    moe_findings_clear(d->gpu);
    return n == 0 || report(EXIT_BREACH, "the simulator has found %d fault%s", n, n > 1 ? "s" : "");
}

bool device_sync(struct device *d)
{
    if (d->gpu && moe_finding(d->gpu, 0))
        return nothing_found(d);
    return !d->gpu || !device_fails(d, moe_sync(d->gpu, NULL), "running the kernels");
}

// ---- kernels
// --------------------------------------------------------------------------------------------------------

static const struct image_kernel *kernel_at(const struct device *d, int i)
{
    if (!d->gpu)
        return eval_kernel(d->eval, i);
    const struct moe_kernel *k = moe_kernel_at(d->image, i);
    return k ? moe_signature(k) : NULL;
}

const struct image_kernel *device_kernel(struct device *d, const struct options *o, const char *name, int rows)
{
    const struct image_kernel *k;
    for (int i = 0; (k = kernel_at(d, i)); i++) {
        int tile = moe_image_axis(k, "rows");
        if (!strcmp(k->name, name) && (!rows || tile == rows || (!d->gpu && !tile)) &&
            (!o->variant || !rows || !strcmp(o->variant, k->variant)))
            return k;
    }
    return NULL;
}

bool device_launch(struct device *d, const struct image_kernel *k, const struct moe_arg *args, int nargs,
                   const int64_t *dims, int tile)
{
    if (!d->gpu)
        return eval_launch(d->eval, k, args, nargs, dims, tile);
    for (int i = 0; moe_kernel_at(d->image, i); i++)
        if (moe_signature(moe_kernel_at(d->image, i)) == k)
            return !device_fails(d, moe_launch(moe_kernel_at(d->image, i), args, nargs, dims, d->stream), "launch");
    return report(EXIT_INTERNAL, "kernel %s is of another image", k->symbol);
}

// ---- guarded buffers
// --------------------------------------------------------------------------------------------------

bool guarded_new(struct device *d, struct guarded *g, size_t bytes)
{
    size_t all = bytes + 2 * GUARD;
    *g = (struct guarded){ .bytes = bytes };
    if (d->gpu) {
        if (device_fails(d, moe_alloc(d->gpu, all, &g->base), "memory"))
            return false;
    } else {
        g->base = aligned_alloc(GUARD, (all + GUARD - 1) / GUARD * GUARD);
        if (!g->base)
            return report(EXIT_USAGE, "out of memory: %zu bytes", all);
    }
    g->ptr = (char *)g->base + GUARD;
    return device_fill(d, g->base, GUARD_BYTE, GUARD) && device_fill(d, (char *)g->ptr + bytes, GUARD_BYTE, GUARD);
}

void guarded_free(struct device *d, struct guarded *g)
{
    if (d->gpu)
        moe_free(d->gpu, g->base);
    else
        free(g->base);
    *g = (struct guarded){ .bytes = 0 };
}

bool guarded_intact(struct device *d, const struct guarded *g, const char *name, bool *intact)
{
    unsigned char band[2 * GUARD];
    if (!g->base)
        return true;
    if (!device_download(d, band, g->base, GUARD) ||
        !device_download(d, band + GUARD, (char *)g->ptr + g->bytes, GUARD))
        return false;
    for (int i = 0; i < 2 * GUARD; i++)
        if (band[i] != GUARD_BYTE) {
            fprintf(stderr, "moerun: %s: a byte %s the buffer was overwritten\n", name, i < GUARD ? "before" : "after");
            *intact = false;
            return true;
        }
    return true;
}
