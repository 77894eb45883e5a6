// Annotations and layout blocks of the checker: what passes found (or a user states) about a kernel.
//
// In: annotations of the AST. Out: axis->size, axis->exact, kernel->sched, kernel->dists, dim->bound.
#include "check.h"
#include "../targets/target.h"

#include <string.h>

const struct annot *annot_find(const struct node *n, const char *name)
{
    for (int i = 0; i < n->nannots; i++)
        if (!strcmp(n->annots[i].name, name))
            return &n->annots[i];
    return NULL;
}

static bool in_list(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += len)
        if ((p == list || p[-1] == ' ') && (p[len] == 0 || p[len] == ' '))
            return true;
    return false;
}

void annots_only(struct checker *s, const struct node *n, const char *allowed)
{
    for (int i = 0; i < n->nannots; i++) {
        const struct annot *a = &n->annots[i];
        if (!in_list(allowed, a->name))
            error(s->c, a->loc, "'@%s' has no meaning here%s%s", a->name, *allowed ? "; known are: " : "", allowed);
        else if (annot_find(n, a->name) != a && strcmp(a->name, "bind"))
            error(s->c, a->loc, "'@%s' stands twice", a->name);
    }
}

int annot_int(struct checker *s, const struct annot *a, int i, int64_t min, int64_t max)
{
    if (i >= a->nargs || a->args[i]->kind != N_INT) {
        error(s->c, i < a->nargs ? a->args[i]->loc : a->loc, "'@%s' takes a number as argument %d", a->name, i + 1);
        return (int)min;
    }
    int64_t v = a->args[i]->value;
    if (v < min || v > max) {
        error(s->c, a->args[i]->loc, "'@%s' takes %lld to %lld, not %lld", a->name, (long long)min, (long long)max,
              (long long)v);
        return (int)min;
    }
    return (int)v;
}

static const char *annot_name(struct checker *s, const struct annot *a, int i)
{
    if (i < a->nargs && a->args[i]->kind == N_NAME)
        return a->args[i]->name;
    error(s->c, i < a->nargs ? a->args[i]->loc : a->loc, "'@%s' takes a name as argument %d", a->name, i + 1);
    return NULL;
}

static bool power_of_two(int64_t v)
{
    return v > 0 && !(v & (v - 1));
}

void check_axis_facts(struct checker *s, const struct node *n, struct axis *a)
{
    const struct annot *t = annot_find(n, "tile");
    if (t) {
        a->size = annot_int(s, t, 0, 1, 1 << 15);
        if (!power_of_two(a->size)) {
            error(s->c, t->args[0]->loc, "a tile is a power of two, not %d", a->size);
            a->size = 0;
        }
    }
    a->exact = annot_find(n, "exact") != NULL;
}

int check_dist(struct checker *s, const struct node *n)
{
    const struct annot *a = annot_find(n, "dist");
    const char *name = a ? annot_name(s, a, 0) : NULL;
    if (!name)
        return 0;
    for (int i = 0; i < s->k->dists.n; i++)
        if (!strcmp(s->k->dists.v[i].name, name))
            return i;
    error(s->c, a->args[0]->loc, "unknown layout '%s'", name);
    return 0;
}

// ---- layout blocks ------------------------------------------------------------------------------------------

void declare_dists(struct checker *s, const struct node *kernel)
{
    for (int i = 0; i < kernel->nkids; i++) {
        const struct node *n = kernel->kids[i];
        struct dist d = { .name = n->name };
        if (n->kind != N_DIST)
            continue;
        if (!s->k->dists.n && strcmp(n->name, "main"))
            error(s->c, n->loc, "the first layout must be 'main'");
        for (int j = 0; j < s->k->dists.n; j++)
            if (!strcmp(s->k->dists.v[j].name, n->name))
                error(s->c, n->loc, "layout '%s' is already declared", n->name);
        VEC_PUSH(s->c->arena, &s->k->dists, d);
    }
}

static struct axis *axis_named(const struct kernel *k, const char *name)
{
    for (int i = 0; i < k->axes.n; i++)
        if (!strcmp(k->axes.v[i]->name, name))
            return k->axes.v[i];
    return NULL;
}

// r0 l12 w3
static bool parse_bit(const char *t, struct bit *b)
{
    int v = 0;
    if ((t[0] != 'r' && t[0] != 'l' && t[0] != 'w') || !t[1])
        return false;
    for (const char *p = t + 1; *p; p++) {
        if (*p < '0' || *p > '9' || v > 9)
            return false;
        v = v * 10 + (*p - '0');
    }
    b->home = t[0];
    b->pos = (int8_t)v;
    return true;
}

static bool fill_home(struct checker *s, const struct node *n, struct home *h)
{
    h->axis = axis_named(s->k, n->name);
    if (!h->axis) {
        struct nearest near = { .want = n->name };
        for (int i = 0; i < s->k->axes.n; i++)
            nearest_try(&near, s->k->axes.v[i]->name);
        return error(s->c, n->loc, "unknown axis '%s'%s", n->name, did_you_mean(s->c, &near));
    }
    if (n->nkids > BITS_MAX)
        return error(s->c, n->loc, "axis '%s' has more than %d bits", n->name, BITS_MAX);
    for (int i = 0; i < n->nkids; i++)
        if (!parse_bit(n->kids[i]->name, &h->bits[h->nbits++]))
            return error(s->c, n->kids[i]->loc, "expected a bit such as r0, l3 or w1, found '%s'", n->kids[i]->name);
    if (h->axis->size && h->axis->size != 1 << h->nbits)
        return error(s->c, n->loc, "axis '%s' has %d positions, but its %d bit%s %d", n->name, h->axis->size, h->nbits,
                     h->nbits == 1 ? " gives" : "s give", 1 << h->nbits);
    return true;
}

void fill_dists(struct checker *s, const struct node *kernel)
{
    int d = 0;
    for (int i = 0; i < kernel->nkids; i++) {
        const struct node *n = kernel->kids[i];
        if (n->kind != N_DIST)
            continue;
        for (int j = 0; j < n->nkids; j++) {
            struct home h = { 0 };
            if (!fill_home(s, n->kids[j], &h))
                continue;
            if (dist_home(s->k, d, h.axis))
                error(s->c, n->kids[j]->loc, "axis '%s' stands twice in layout '%s'", n->kids[j]->name, n->name);
            else
                VEC_PUSH(s->c->arena, &s->k->dists.v[d].homes, h);
        }
        d++;
    }
}

// ---- kernels ------------------------------------------------------------------------------------------------

static int mma_named(struct checker *s, const struct annot *a)
{
    const char *name = annot_name(s, a, 0);
    const struct arch *arch = s->c->arch;
    struct nearest near = { .want = name ? name : "" };
    if (!name)
        return -1;
    if (!arch) {
        error(s->c, a->loc, "'@mma' names an instruction of a target, but no target is chosen (--arch)");
        return -1;
    }
    for (int i = 0; i < arch->nmmas; i++) {
        if (!strcmp(arch->mmas[i].name, name))
            return i;
        nearest_try(&near, arch->mmas[i].name);
    }
    error(s->c, a->args[0]->loc, "%s has no matrix instruction '%s'%s", arch->name, name, did_you_mean(s->c, &near));
    return -1;
}

static void fact_warps(struct checker *s, const struct annot *a, struct sched *d)
{
    d->warps_m = annot_int(s, a, 0, 1, 32);
    d->warps_n = a->nargs > 1 ? annot_int(s, a, 1, 1, 32) : 1;
    if (!power_of_two(d->warps_m) || !power_of_two(d->warps_n) || d->warps_m * d->warps_n > 32)
        error(s->c, a->loc, "warps must be powers of two, at most 32 together, not %d x %d", d->warps_m, d->warps_n);
}

static void one_fact(struct checker *s, const struct annot *a)
{
    struct kernel *k = s->k;
    struct sched *d = &k->sched;
    const char *f = a->name, *v;
    if (!strcmp(f, "variant")) {
        d->variant = (v = annot_name(s, a, 0)) ? v : "";
    } else if (!strcmp(f, "warps")) {
        fact_warps(s, a, d);
    } else if (!strcmp(f, "producers")) {
        d->producers = annot_int(s, a, 0, 0, 31);
    } else if (!strcmp(f, "stages")) {
        d->stages = annot_int(s, a, 0, 1, 16);
    } else if (!strcmp(f, "mma")) {
        d->mma = mma_named(s, a);
    } else if (!strcmp(f, "group")) {
        d->group = annot_int(s, a, 0, 0, 1 << 16);
    } else if (!strcmp(f, "blocks")) {
        d->min_blocks = annot_int(s, a, 0, 0, 32);
    } else if (!strcmp(f, "cluster")) {
        d->cluster = annot_int(s, a, 0, 0, 16);
    } else if (!strcmp(f, "model")) {
        d->fixed_ns = annot_int(s, a, 0, 0, 1 << 30);
        d->step_ps = annot_int(s, a, 1, 0, 1 << 30);
        d->resident = annot_int(s, a, 2, 0, 64);
        d->flight = annot_int(s, a, 3, 0, 1 << 30);
    } else if (!strcmp(f, "swap")) {
        d->swap = true;
    } else if (!strcmp(f, "persistent")) {
        d->persistent = true;
    } else if (!strcmp(f, "shared")) {
        k->shared_bytes = annot_int(s, a, 0, 0, 1 << 24);
        k->laid_out = true;
    } else if (!strcmp(f, "scratch")) {
        k->scratch = annot_int(s, a, 0, 0, 1 << 24);
    }
}

// @bind is read earlier, with the dimensions (check.c).
void check_kernel_facts(struct checker *s, const struct node *n)
{
    struct kernel *k = s->k;
    annots_only(s, n,
                "bind variant warps producers stages mma group blocks cluster swap persistent model shared scratch");
    k->sched = (struct sched){ .variant = "", .warps_m = 1, .warps_n = 1, .stages = 1, .mma = -1 };
    k->scratch = -1;
    k->scheduled = annot_find(n, "warps") != NULL;
    if (k->scheduled)
        k->sched.loc = annot_find(n, "warps")->loc;
    for (int i = 0; i < n->nannots; i++)
        one_fact(s, &n->annots[i]);
    if (k->sched.producers && k->sched.warps_m * k->sched.warps_n + k->sched.producers > 32)
        error(s->c, annot_find(n, "producers")->loc, "a block has at most 32 warps, not %d x %d + %d", k->sched.warps_m,
              k->sched.warps_n, k->sched.producers);
    if (k->dists.n)
        k->laid_out = true;
}
