// moerun check: any kernel, on random inputs, against eval.c running its source at the stage `tile`.
// Integers must be equal; floats lie within the limit: relative L2 of each row (a little more for short ones), and each
// value within 10 times that of the row's rms. Every variant of the kernel is run; buffers have guard bands, outputs are
// poisoned, inputs must not change.
#include "moerun.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct slot { // one parameter
    const struct image_param *p;
    struct moe_arg arg;
    int64_t elems, width; // width: of a row, the last extent
    size_t bytes;
    void *input, *want, *got; // host: what goes in, what eval and the device made of it
    struct guarded on_device;
};
struct checking {
    const struct options *o;
    struct device *d;
    struct eval_source *reference;
    const struct image_kernel *k, *ref;
    int64_t dims[IMAGE_DIMS_MAX], ref_dims[IMAGE_DIMS_MAX];
    struct slot s[IMAGE_PARAMS_MAX];
    int block; // rows of a tile map's tile
    bool fine;
};

// ---- dims
// -----------------------------------------------------------------------------------------------------------------

static bool option_value(const struct options *o, const char *name, int64_t *v)
{
    for (int i = o->nbindings - 1; i >= 0; i--)
        if (!strcmp(o->bindings[i].name, name) && !o->bindings[i].type[0]) {
            *v = o->bindings[i].value;
            return true;
        }
    return false;
}

static int64_t dim_named(const struct checking *c, const char *name, int64_t otherwise)
{
    for (int i = 0; i < c->k->ndims; i++)
        if (!strcmp(c->k->dims[i].name, name))
            return c->dims[i];
    return otherwise;
}

static bool find_dims(struct checking *c)
{
    for (int i = 0; i < c->k->ndims; i++) {
        const struct image_dim *d = &c->k->dims[i];
        c->dims[i] = d->bound;
        if (d->bound < 0 && !option_value(c->o, d->name, &c->dims[i]))
            return report(EXIT_USAGE, "kernel %s: say -D %s=N", c->k->name, d->name);
    }
    for (int i = 0; i < c->ref->ndims; i++) {
        const struct image_dim *d = &c->ref->dims[i];
        c->ref_dims[i] = dim_named(c, d->name, -1);
        if (d->bound >= 0 && d->bound != c->ref_dims[i])
            return report(EXIT_USAGE, "kernel %s: %s is %" PRId64 " in the source, %" PRId64 " on the device",
                          c->k->name, d->name, d->bound, c->ref_dims[i]);
    }
    return true;
}

// ---- inputs
// -----------------------------------------------------------------------------------------------------------------

static double normal_of(const struct checking *c, int tensor, int64_t i)
{
    double u = random_unit(c->o->seed, 5000 + (uint64_t)tensor, (uint64_t)i * 2);
    double v = random_unit(c->o->seed, 5000 + (uint64_t)tensor, (uint64_t)i * 2 + 1);
    return sqrt(-2 * log(u)) * cos(2 * acos(-1) * v) * c->o->x_scale;
}

static int32_t integer_of(const struct checking *c, const char *name, int tensor, int64_t i)
{
    int32_t lo = 0, hi = 7;
    for (int j = 0; j < c->o->nranges; j++)
        if (!strcmp(c->o->ranges[j].name, name)) {
            lo = c->o->ranges[j].lo;
            hi = c->o->ranges[j].hi;
        }
    return (int32_t)(lo + (int64_t)(random_bits(c->o->seed, 6000 + (uint64_t)tensor, (uint64_t)i) %
                                    ((uint64_t)((int64_t)hi - lo) + 1)));
}

// Entry n holds rows of its own, [n * block, ...), as far as dimension R goes; every other one is ragged.
static void fill_map(const struct checking *c, struct slot *s, int tensor)
{
    int32_t *t = s->input;
    int64_t rows = dim_named(c, "R", INT32_MAX), experts = dim_named(c, "E", c->o->experts ? c->o->experts : 1);
    for (int64_t n = 0; n < s->elems / 4; n++) {
        int64_t first = n * c->block, most = rows - first < c->block ? rows - first : c->block;
        int64_t some =
            most > 0 ? 1 + (int64_t)(random_bits(c->o->seed, 7000 + (uint64_t)tensor, (uint64_t)n) % (uint64_t)most)
                     : 0;
        t[4 * n] = (int32_t)(n % experts);
        t[4 * n + 1] = most > 0 ? (int32_t)first : 0;
        t[4 * n + 2] = (int32_t)(n & 1 ? some : most > 0 ? most : 0);
        t[4 * n + 3] = 0;
    }
}

static void fill_input(const struct checking *c, struct slot *s, int tensor)
{
    for (int64_t i = 0; i < s->elems; i++)
        switch (s->p->elem) {
        case IMAGE_I32: ((int32_t *)s->input)[i] = integer_of(c, s->p->name, tensor, i); break;
        case IMAGE_F32: ((float *)s->input)[i] = (float)normal_of(c, tensor, i); break;
        case IMAGE_BF16:
        case IMAGE_F16: ((uint16_t *)s->input)[i] = ref_bits(s->p->elem == IMAGE_F16, normal_of(c, tensor, i)); break;
        }
    if (s->p->kind == IMAGE_MAP)
        fill_map(c, s, tensor);
    if (s->p->kind == IMAGE_OUT)
        memset(s->input, 0xff, s->bytes);
}

static void fill_scalar(const struct checking *c, struct slot *s, int tensor)
{
    int64_t v = 0;
    bool given = option_value(c->o, s->p->name, &v);
    if (s->p->elem == IMAGE_I32)
        s->arg = moe_i32(given ? (int32_t)v : integer_of(c, s->p->name, tensor, 0));
    else
        s->arg = moe_f32(given ? (float)v : (float)normal_of(c, tensor, 0));
}

static bool prepare(struct checking *c, int i)
{
    struct slot *s = &c->s[i];
    *s = (struct slot){ .p = &c->k->params[i], .elems = 1, .width = 1 };
    if (s->p->kind == IMAGE_SCALAR) {
        fill_scalar(c, s, i);
        return true;
    }
    s->arg = (struct moe_arg){ .kind = MOE_POINTER, .rank = s->p->rank };
    for (int j = 0; j < s->p->rank; j++) {
        s->width = s->arg.shape[j] = moe_image_extent(&s->p->shape[j], c->dims);
        if (__builtin_mul_overflow(s->elems, s->width, &s->elems) || s->elems > INT64_MAX / 8)
            return report(EXIT_USAGE, "'%s' is too large", s->p->name);
    }
    s->bytes = (size_t)s->elems * (size_t)moe_image_elem_bytes(s->p->elem);
    s->input = malloc(s->bytes + 1);
    s->want = malloc(s->bytes + 1);
    s->got = malloc(s->bytes + 1);
    if (!s->input || !s->want || !s->got)
        return report(EXIT_INTERNAL, "out of memory");
    fill_input(c, s, i);
    memcpy(s->want, s->input, s->bytes);
    s->arg.bytes = s->bytes;
    return guarded_new(c->d, &s->on_device, s->bytes) && device_upload(c->d, s->on_device.ptr, s->input, s->bytes);
}

static void release(struct checking *c)
{
    for (int i = 0; i < c->k->nparams; i++) {
        free(c->s[i].input);
        free(c->s[i].want);
        free(c->s[i].got);
        guarded_free(c->d, &c->s[i].on_device);
    }
    memset(c->s, 0, sizeof c->s);
}

// ---- comparing
// ----------------------------------------------------------------------------------------------------------------

static double value(const struct slot *s, const void *t, int64_t i)
{
    switch (s->p->elem) {
    case IMAGE_I32: return ((const int32_t *)t)[i];
    case IMAGE_F32: return (double)((const float *)t)[i];
    case IMAGE_BF16:
    case IMAGE_F16: break;
    }
    return ref_value(s->p->elem == IMAGE_F16, ((const uint16_t *)t)[i]);
}

static double limit_of(const struct checking *c, const struct slot *s)
{
    if (s->p->elem == IMAGE_I32)
        return 0;
    if (c->o->limit > 0)
        return c->o->limit;
    return s->p->elem == IMAGE_F32 ? 1e-4 : s->p->elem == IMAGE_F16 ? 1e-3 : 4e-3;
}

struct difference {
    double rel_l2, worst;
    int64_t wrong, first, nans;
};

static void compare_row(const struct checking *c, const struct slot *s, int64_t at, struct difference *d)
{
    double norm = 0, error = 0, limit = limit_of(c, s);
    for (int64_t i = at; i < at + s->width; i++) {
        double w = value(s, s->want, i), e = value(s, s->got, i) - w;
        norm += isfinite(w) ? w * w : 0;
        error += isfinite(e) ? e * e : 0;
    }
    double rms = sqrt(norm / (double)s->width), rel = norm > 0 ? sqrt(error / norm) : error > 0 ? 1 : 0;
    bool row_wrong = rel > limit * (1 + 2 / sqrt((double)s->width)) && rms > 1e-30; // short rows scatter more
    for (int64_t i = at; i < at + s->width; i++) {
        double w = value(s, s->want, i), g = value(s, s->got, i), e = fabs(g - w);
        bool same = isnan(w) ? isnan(g) : w == g || (isfinite(w) && e <= 10 * limit * rms + 1e-30);
        d->nans += isnan(w);
        if (limit > 0 && isfinite(e) && rms > 0)
            d->worst = fmax(d->worst, e / rms);
        if ((!same || (row_wrong && i == at)) && !d->wrong++)
            d->first = i;
    }
    d->rel_l2 = fmax(d->rel_l2, rel);
}

static bool compare_output(struct checking *c, const struct slot *s)
{
    struct difference d = { 0 };
    if (s->width)
        for (int64_t at = 0; at < s->elems; at += s->width)
            compare_row(c, s, at, &d);
    printf("%s%s%s %s: %" PRId64
           " values of %s, rel L2 of a row %.2e (limit %.1e), largest error %.2e of its rms: %s\n",
           c->k->name, c->k->variant[0] ? "." : "", c->k->variant, s->p->name, s->elems,
           moe_image_elem_name(s->p->elem), d.rel_l2, limit_of(c, s), d.worst, d.wrong ? "WRONG" : "ok");
    if (d.nans)
        printf("  %" PRId64 " values are NaN, or not written, on both sides\n", d.nans);
    if (d.wrong) {
        printf("  %" PRId64 " wrong; the first, at", d.wrong);
        for (int j = 0; j < s->p->rank; j++) {
            int64_t below = 1;
            for (int q = j + 1; q < s->p->rank; q++)
                below *= s->arg.shape[q];
            printf("%s%" PRId64, j ? ", " : " [", d.first / below % s->arg.shape[j]);
        }
        printf("]: %.9g, not %.9g\n", value(s, s->got, d.first), value(s, s->want, d.first));
    }
    return !d.wrong;
}

static bool compare_all(struct checking *c)
{
    for (int i = 0; i < c->k->nparams; i++) {
        struct slot *s = &c->s[i];
        bool intact = true;
        if (s->p->kind == IMAGE_SCALAR)
            continue;
        if (!device_download(c->d, s->got, s->on_device.ptr, s->bytes) ||
            !guarded_intact(c->d, &s->on_device, s->p->name, &intact))
            return false;
        if (c->o->mutate && !strcmp(c->o->mutate, "zero") && (s->p->kind == IMAGE_OUT || s->p->kind == IMAGE_INOUT))
            memset(s->got, 0, s->bytes);
        if (s->p->kind == IMAGE_IN || s->p->kind == IMAGE_MAP) {
            if (memcmp(s->got, s->input, s->bytes))
                intact = report(EXIT_BREACH, "the input %s was changed", s->p->name);
        } else {
            char name[128];
            snprintf(name, sizeof name, "%.50s.%.50s", c->k->symbol, s->p->name);
            intact = compare_output(c, s) && intact;
            if (!against(c->o, name, s->got, s->bytes, moe_image_elem_bytes(s->p->elem)))
                return false;
        }
        c->fine = c->fine && intact;
    }
    return true;
}

// ---- running
// --------------------------------------------------------------------------------------------------------------------

static bool run_both(struct checking *c)
{
    struct moe_arg device[IMAGE_PARAMS_MAX], host[IMAGE_PARAMS_MAX];
    for (int i = 0; i < c->k->nparams; i++) {
        if (!prepare(c, i))
            return false;
        device[i] = host[i] = c->s[i].arg;
        device[i].ptr = c->s[i].on_device.ptr;
        host[i].ptr = c->s[i].want;
    }
    return device_launch(c->d, c->k, device, c->k->nparams, c->dims, c->block) && device_sync(c->d) &&
           eval_launch(c->reference, c->ref, host, c->k->nparams, c->ref_dims, c->block) && compare_all(c);
}

static bool check_kernel(struct checking *c)
{
    c->ref = NULL;
    for (int i = 0; eval_kernel(c->reference, i) && !c->ref; i++)
        if (!strcmp(eval_kernel(c->reference, i)->name, c->k->name))
            c->ref = eval_kernel(c->reference, i);
    if (!c->ref || c->ref->nparams != c->k->nparams)
        return report(EXIT_USAGE, "%s has no kernel %s with these parameters", c->o->source, c->k->name);
    c->block = 16;
    for (int i = 0; i < c->k->nclauses; i++)
        if (c->k->clauses[i].kind == IMAGE_IN_MAP)
            c->block = c->k->clauses[i].size;
    bool ok = find_dims(c) && run_both(c);
    release(c);
    return ok;
}

static const struct image_kernel *kernel_at(const struct device *d, int i)
{
    const struct moe_kernel *k = d->gpu ? moe_kernel_at(d->image, i) : NULL;
    return d->gpu ? k ? moe_signature(k) : NULL : eval_kernel(d->eval, i);
}

bool command_check(const struct options *o)
{
    struct device d;
    struct options tile = *o;
    struct checking *c = calloc(1, sizeof *c);
    bool ok = c || report(EXIT_INTERNAL, "out of memory");
    int done = 0;
    tile.stage = "tile";
    tile.arch = NULL;
    if (!ok || !device_open(&d, o)) {
        free(c);
        return false;
    }
    *c = (struct checking){ .o = o, .d = &d, .fine = true };
    ok = device_load(&d, o, NULL) && (c->reference = eval_open(&tile, NULL)) != NULL;
    for (int i = 0; ok && (c->k = kernel_at(&d, i)); i++)
        if ((!o->kernel || !strcmp(o->kernel, c->k->name)) && (!o->variant || !strcmp(o->variant, c->k->variant))) {
            ok = check_kernel(c);
            done++;
        }
    if (ok && !done)
        ok = report(EXIT_USAGE, "there is no kernel %s%s%s", o->kernel ? o->kernel : "",
                    o->variant ? " of variant " : "", o->variant ? o->variant : "");
    eval_close(c->reference);
    device_close(&d);
    ok = ok && (c->fine || report(EXIT_BREACH, "wrong results"));
    free(c);
    return ok;
}
