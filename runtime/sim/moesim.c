// The functions of moesim.h.
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct machine *machine_named(const char *name, size_t n)
{
    for (int i = 0; i < nmachines; i++)
        if (strlen(machines[i].arch) == n && !strncmp(machines[i].arch, name, n))
            return &machines[i];
    return NULL;
}

static bool number(const char *s, size_t n, const char *key, uint64_t max, uint64_t *v)
{
    size_t k = strlen(key);
    char *end;
    if (n <= k || strncmp(s, key, k) || s[k] < '0' || s[k] > '9')
        return false;
    *v = strtoull(s + k, &end, 10);
    return end == s + n && *v <= max;
}

static bool option(struct moesim_device *d, const char *s, size_t n)
{
    uint64_t v;
    if (number(s, n, "seed=", UINT64_MAX, &v))
        d->seed = v;
    else if (number(s, n, "threads=", 1024, &v) && v)
        d->threads = (int)v;
    else if (number(s, n, "limit=", 100000, &v) && v)
        d->limit = (int)v;
    else if (number(s, n, "processors=", 1024, &v) && v)
        d->processors = (int)v;
    else if (number(s, n, "budget=", UINT64_MAX, &v) && v)
        d->budget = v;
    else if (n == 4 && !strncmp(s, "fast", 4))
        d->shadow = false;
    else
        return false;
    return true;
}

static bool configure(struct moesim_device *d, const char *spec, char *why)
{
    size_t n = strcspn(spec, ",");
    int at = 0;
    d->machine = machine_named(spec, n);
    if (!d->machine) {
        at = snprintf(why, MOESIM_WHY, "no such device to simulate: '%.*s'; known:", n < 60 ? (int)n : 60, spec);
        for (int i = 0; i < nmachines; i++)
            at += snprintf(why + at, MOESIM_WHY - (size_t)at, " %s", machines[i].arch);
        return false;
    }
    d->processors = d->machine->processors;
    while (spec[n]) {
        const char *s = spec + n + 1;
        size_t len = strcspn(s, ",");
        if (!option(d, s, len)) {
            snprintf(
                why, MOESIM_WHY,
                "'%.*s' is no option of a simulated device: seed=N, threads=N, limit=N, budget=N, processors=N, fast",
                len < 60 ? (int)len : 60, s);
            return false;
        }
        n += 1 + len;
    }
    return true;
}

static void sim_close(struct moesim_device *d)
{
    if (!d)
        return;
    workers_free(d);
    memory_close(d);
    for (int i = 0; i < d->nfindings; i++)
        free(d->findings[i].text);
    free(d->findings);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static struct moesim_device *sim_open(const char *spec, struct moesim_limits *limits, char why[MOESIM_WHY])
{
    struct moesim_device *d = calloc(1, sizeof *d);
    if (!d || pthread_mutex_init(&d->lock, NULL)) {
        free(d);
        snprintf(why, MOESIM_WHY, "out of memory");
        return NULL;
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    d->threads = cpus > 1 ? (int)cpus : 1;
    d->limit = 20;
    d->budget = 20000000000u;
    d->shadow = true;
    d->serial = 1;
    if (configure(d, spec, why)) {
        d->workers = calloc((size_t)d->threads, sizeof *d->workers);
        if (d->workers) {
            const struct machine *m = d->machine;
            *limits = (struct moesim_limits){ .lanes = m->lanes,
                                              .threads_max = m->threads_max,
                                              .processors = d->processors,
                                              .shared_max = m->shared_max };
            snprintf(limits->name, sizeof limits->name, "%s", m->name);
            snprintf(limits->arch, sizeof limits->arch, "%s", m->arch);
            return d;
        }
        snprintf(why, MOESIM_WHY, "out of memory");
    }
    sim_close(d);
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct moesim_module *sim_load(struct moesim_device *d, const void *bitcode, size_t n, char why[MOESIM_WHY])
{
    double t = now();
    struct moesim_module *m = module_build(d, bitcode, n, why);
    d->stats.compile_seconds += now() - t;
    return m;
}

static void sim_unload(struct moesim_module *m)
{
    struct moesim_device *d = m ? m->device : NULL;
    if (d)
        early_forget(d, m);
    for (int i = 0; d && i < d->nregions; i++)
        if (d->regions[i]->writer && d->regions[i]->writer->module == m)
            d->regions[i]->writer = NULL;
    for (struct moesim_kernel **k = d ? &d->kernels : NULL; k && *k;)
        if ((*k)->module == m) {
            struct moesim_kernel *dead = *k;
            *k = dead->next;
            free(dead);
        } else {
            k = &(*k)->next;
        }
    module_free(m);
}

static struct moesim_kernel *sim_kernel(struct moesim_module *m, const struct image_kernel *sig, char why[MOESIM_WHY])
{
    for (int i = 0; i < m->nfns; i++) {
        if (strcmp(m->fns[i].name, sig->symbol))
            continue;
        int nargs = sig->nparams + sig->nboxes;
        for (int d = 0; d < sig->ndims; d++)
            nargs += sig->dims[d].bound < 0;
        if (m->fns[i].nparams > nargs) {
            snprintf(why, MOESIM_WHY, "kernel '%.100s' takes %d arguments, its signature says %d", sig->symbol,
                     m->fns[i].nparams, nargs);
            return NULL;
        }
        struct moesim_kernel *k = calloc(1, sizeof *k);
        if (!k)
            break;
        *k = (struct moesim_kernel){ m, &m->fns[i], sig, m->device->kernels };
        return m->device->kernels = k;
    }
    snprintf(why, MOESIM_WHY, "the module has no kernel '%.100s'", sig->symbol);
    return NULL;
}

// ---- launch ------------------------------------------------------------------------------------------------------

static bool tensors(struct launch *l, void *const *args, char *why)
{
    const struct image_kernel *s = l->kernel->sig;
    int64_t dims[IMAGE_DIMS_MAX];
    int at = s->nparams;
    for (int i = 0; i < s->ndims; i++)
        dims[i] = s->dims[i].bound >= 0 ? s->dims[i].bound : *(const int32_t *)args[at++];
    for (int i = 0; i < s->nparams; i++) {
        const struct image_param *p = &s->params[i];
        if (p->kind == IMAGE_SCALAR)
            continue;
        uint8_t *base = *(uint8_t *const *)args[i];
        size_t bytes = (size_t)moe_image_elem_bytes(p->elem);
        for (int k = 0; k < p->rank; k++)
            bytes *= (size_t)moe_image_extent(&p->shape[k], dims);
        struct region *r = bytes ? region_find(l->device, base, bytes) : NULL;
        if (bytes && !r) {
            snprintf(why, MOESIM_WHY, "argument '%.60s' (%zu bytes at %p) is not in memory of this device", p->name,
                     bytes, (void *)base);
            return false;
        }
        bool writable = p->kind == IMAGE_OUT || p->kind == IMAGE_INOUT;
        if (r && writable && l->shadow && !region_shadow(r)) {
            snprintf(why, MOESIM_WHY, "out of memory for the shadow of '%.60s'", p->name);
            return false;
        }
        l->tensors[l->ntensors++] =
            (struct tensor){ base, bytes, p->name, r, true, writable, writable && l->shadow, p->early };
    }
    return true;
}

static bool ready(struct moesim_kernel *k, char *why)
{
    double t = now();
    bool ok = module_ready(k->fn, why);
    k->module->device->stats.compile_seconds += now() - t;
    return ok;
}

static void note_writer(struct launch *l)
{
    for (int i = 0; i < l->ntensors; i++)
        if (l->tensors[i].tracked && l->tensors[i].region) {
            l->tensors[i].region->writer = l->kernel;
            l->tensors[i].region->writer_serial = l->serial0;
        }
}

// Of a block: the kernel's variables and behind them the signature's dynamic part. AMD's images hold their LDS as variables, and the
// signature tells the same bytes: they are dynamic only for a kernel that has a name for them.
static int64_t shared_bytes(const struct moesim_kernel *k, const struct machine *m)
{
    const struct module_fn *fn = k->fn;
    int64_t bytes = k->sig->shared;
    if (bytes < 0 || bytes > m->shared_max)
        return bytes;
    if (m->nv || fn->dynamic_align)
        return bytes ? fn->dynamic_at + bytes : fn->shared_static;
    return fn->shared_static > bytes ? fn->shared_static : bytes;
}

static int sim_launch(struct moesim_kernel *k, uint32_t blocks, void *const *args, const void *stream, bool dependent,
                      char why[MOESIM_WHY])
{
    struct moesim_device *d = k->module->device;
    const struct machine *m = d->machine;
    struct launch *l = calloc(1, sizeof *l);
    if (!l) {
        snprintf(why, MOESIM_WHY, "out of memory");
        return -1;
    }
    int64_t shared = shared_bytes(k, m);
    *l = (struct launch){
        .device = d, .kernel = k, .machine = m, .blocks = blocks, .args = args, .shadow = d->shadow, .seed = d->seed
    };
    if (pthread_mutex_init(&l->lock, NULL)) {
        free(l);
        snprintf(why, MOESIM_WHY, "out of memory");
        return -1;
    }
    l->number = d->launches++;
    l->shared_bytes = (uint32_t)shared;
    if (d->serial > UINT32_MAX - blocks) {
        d->serial = 1;
        early_forget(d, NULL);
    }
    l->serial0 = d->serial;
    d->serial += blocks;
    early_begin(l, stream, dependent);
    int status = -1;
    if (shared < 0 || shared > m->shared_max || k->sig->threads > m->threads_max || k->sig->threads < 1) {
        finding_launch(l, F_SHARED, "the block takes %lld bytes of shared memory and %d threads; %s has %lld and %d",
                       (long long)shared, k->sig->threads, m->arch, (long long)m->shared_max, m->threads_max);
        status = 1;
    } else if (ready(k, why) && tensors(l, args, why)) {
        note_writer(l);
        status = blocks ? launch_run(l, why) : 0;
        early_end(l);
    }
    order_launch_end(l);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return status;
}

static void sim_reseed(struct moesim_device *d, uint64_t seed)
{
    d->seed = seed;
}

static const char *sim_finding(const struct moesim_device *d, int i)
{
    return i >= 0 && i < d->nfindings ? d->findings[i].text : NULL;
}

static void sim_clear(struct moesim_device *d)
{
    while (d->nfindings)
        free(d->findings[--d->nfindings].text);
}

static void sim_origin(const struct moesim_device *d, const void *p, char text[MOESIM_WHY])
{
    struct region *r = region_find(d, p, 1);
    const struct gbyte *g = r && r->shadow ? r->shadow + ((const uint8_t *)p - r->p) : NULL;
    text[0] = 0;
    if (!g || !r->writer || (uint32_t)(g->w_when >> 32) < r->writer_serial)
        return;
    const struct moesim_module *m = r->writer->module;
    uint64_t site = who_site(g->w_who);
    const struct site *s = site && site <= (uint64_t)m->nsites ? m->sites[site - 1] : NULL;
    int n = s && s->line ? snprintf(text, MOESIM_WHY, "%.200s:%d:%d: ", m->file, s->line, s->col) : 0;
    snprintf(text + n, MOESIM_WHY - (size_t)n, "%.100s: block %u, thread %u", r->writer->fn->name,
             (uint32_t)(g->w_when >> 32) - r->writer_serial, (unsigned)(g->w_who & 0x7ff));
}

static void sim_stats(const struct moesim_device *d, struct moesim_stats *out)
{
    *out = d->stats;
}

const struct moesim_api *moesim_api(int version)
{
    static const struct moesim_api api = {
        .version = MOESIM_VERSION,
        .open = sim_open,
        .close = sim_close,
        .alloc = mem_alloc,
        .free = mem_free,
        .write = mem_write,
        .read = mem_read,
        .fill = mem_fill,
        .load = sim_load,
        .unload = sim_unload,
        .kernel = sim_kernel,
        .launch = sim_launch,
        .finding = sim_finding,
        .clear = sim_clear,
        .reseed = sim_reseed,
        .origin = sim_origin,
        .stats = sim_stats,
        .tensor_map = tensor_map_encode,
    };
    return version == MOESIM_VERSION ? &api : NULL;
}
