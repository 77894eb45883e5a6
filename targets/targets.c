// The list of targets, and what is common to their rows. The only file that names both vendors.
#include "target.h"

#include <string.h>

extern const struct target nvptx_target, amdgpu_target;
const struct target *const targets[] = { &nvptx_target, &amdgpu_target };
const int ntargets = COUNTOF(targets);

const struct arch *arch_find(const char *name)
{
    for (int i = 0; i < ntargets; i++)
        for (int j = 0; j < targets[i]->narches; j++)
            if (!strcmp(targets[i]->arches[j].name, name))
                return &targets[i]->arches[j];
    return NULL;
}

int bits_parse(const char *s, struct bit *out, int max)
{
    int n = 0;
    while (*s) {
        int pos = 0, digits = 0;
        if (*s == ' ') {
            s++;
            continue;
        }
        char home = *s++;
        if (home != '-') {
            if (home != BIT_REG && home != BIT_LANE && home != BIT_WARP)
                return -1;
            for (; *s >= '0' && *s <= '9'; s++, digits++)
                pos = pos * 10 + (*s - '0');
            if (!digits || digits > 2)
                return -1;
        }
        if (n == max || (*s && *s != ' '))
            return -1;
        out[n++] = (struct bit){ home == '-' ? 0 : home, (int8_t)pos };
    }
    return n;
}

// ---- what no target can do yet -----------------------------------------------------------------------------------

struct refusal {
    const struct arch *arch;
    const struct kernel *k;
    const struct op *at;
    const char *why;
};

// false: this operation cannot be emitted.
static bool op_supported(void *user, struct op *op)
{
    struct refusal *r = user;
    const struct mma *i = r->k->sched.mma >= 0 ? &r->arch->mmas[r->k->sched.mma] : NULL;
    switch ((int)op->code) {
    case OP_ROLE:
    case OP_ARRIVE:
    case OP_AWAIT:
        if (r->arch->copy != COPY_BULK)
            r->why = "warp roles and shared barriers are not supported yet";
        break;
    case OP_COPY:
        if (r->arch->copy == COPY_REG)
            r->why = "asynchronous copies are not supported here yet: load, then put";
        else if (op->bulk && r->arch->copy != COPY_BULK)
            r->why = "there is no copy engine for @bulk";
        break;
    case OP_DEPEND:
        if (!r->arch->dependent)
            r->why = "launches wait for each other here: nothing is early, 'depend' has no meaning";
        break;
    case OP_MMA:
        if (!i)
            r->why = "a matrix product needs a matrix instruction (@mma)";
        else if (i->kind == MMA_TENSOR)
            r->why = "matrix instructions with accumulators in tensor memory are not supported yet";
        else if (op->buf->elem != i->in || op->buf2->elem != i->in)
            r->why = "the matrix instruction takes operands of another element type";
        break;
    }
    r->at = op;
    return !r->why;
}

const char *arch_supports(struct ctx *c, const struct arch *a, const struct kernel *k, struct loc *at)
{
    struct refusal r = { .arch = a, .k = k };
    int threads = (k->sched.warps_m * k->sched.warps_n + k->sched.producers) * a->lanes;
    *at = k->sched.loc.line ? k->sched.loc : k->loc;
    if (threads < 1 || threads > a->max_threads)
        return arena_printf(c->arena, "%d threads a block; %s allows %d", threads, a->name, a->max_threads);
    if (k->shared_bytes > a->shared)
        return arena_printf(c->arena, "%lld bytes of shared memory a block; %s allows %lld", (long long)k->shared_bytes,
                            a->name, (long long)a->shared);
    if (k->sched.mma >= a->nmmas)
        return arena_printf(c->arena, "%s has no matrix instruction of that number", a->name);
    if (k->sched.persistent && a->copy != COPY_BULK)
        return "persistent grids are not supported yet";
    if (k->sched.cluster > 1)
        return "clusters are not supported yet";
    if (k->sched.swap)
        return "swapped operands are not supported yet";
    if (!walk(k->body, op_supported, &r))
        *at = r.at->loc;
    return r.why;
}
