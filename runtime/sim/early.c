// Launches that may start early (image.h, `early`; PTX ISA, "griddepcontrol"). A dependent launch need not wait for those since
// the last ordinary one of its stream: until a thread has executed griddepcontrol.wait, what these launches write is not ordered
// before what it does. Launches run one after another here, so that a value read too early is the right one: the shadow tells.
//
// Of parameters that are not early nobody looks whether such a launch writes or reads them: before the wait they are not to be
// touched at all.
#include "sim.h"

#include <string.h>

void early_begin(struct launch *l, const void *stream, bool dependent)
{
    struct moesim_device *d = l->device;
    int n = 0;
    l->stream = stream;
    l->dependent = dependent = dependent && l->machine->early;
    for (int i = 0; i < d->nopen && !dependent; i++)
        if (d->open[i].stream != stream)
            d->open[n++] = d->open[i];
    d->nopen = dependent ? d->nopen : n;
}

// Without a wait the end of this launch says nothing of the end of those before, which later launches rely on.
void early_end(struct launch *l)
{
    struct moesim_device *d = l->device;
    if (l->dependent && l->blocks && !l->waited && !l->stop)
        finding_launch(
            l, F_EARLY,
            "launched so that it may start early, and no thread executes griddepcontrol.wait: launches after "
            "it do not wait for those before");
    if (d->nopen == OPEN_MAX)
        memmove(d->open, d->open + 1, sizeof d->open[0] * (size_t)--d->nopen);
    d->open[d->nopen++] = (struct open_launch){ l->stream, l->kernel, l->serial0, l->blocks };
}

void early_forget(struct moesim_device *d, const struct moesim_module *m)
{
    int n = 0;
    for (int i = 0; i < d->nopen && m; i++)
        if (d->open[i].kernel->module != m)
            d->open[n++] = d->open[i];
    d->nopen = n;
}

void early_wait(struct lane *l)
{
    l->waited = true;
    __atomic_store_n(&l->warp->block->launch->waited, true, __ATOMIC_RELAXED);
}

// The launch that wrote a byte last, if this one need not wait for it.
static const struct open_launch *writer(const struct launch *la, uint64_t when)
{
    const struct moesim_device *d = la->device;
    for (int i = 0; i < d->nopen && when; i++)
        if (d->open[i].stream == la->stream && (uint32_t)(when >> 32) - d->open[i].serial0 < d->open[i].blocks)
            return &d->open[i];
    return NULL;
}

static bool is_early(const struct launch *la, const uint8_t *p, size_t bytes)
{
    for (int i = 0; i < la->ntensors; i++) {
        const struct tensor *t = &la->tensors[i];
        size_t at = (size_t)((uintptr_t)p - (uintptr_t)t->p);
        if (t->early && at < t->bytes && bytes <= t->bytes - at)
            return true;
    }
    return false;
}

void early_access(struct lane *l, struct site *s, const struct tensor *t, size_t at, int bytes)
{
    const struct launch *la = l->warp->block->launch;
    const struct gbyte *g = t->region->shadow ? t->region->shadow + (t->p - t->region->p) + at : NULL;
    char place[64];
    for (int i = 0; g && i < bytes; i++) {
        const struct open_launch *o = writer(la, g[i].w_when);
        if (!o)
            continue;
        const struct moesim_module *m = o->kernel->module;
        uint32_t id = who_site(g[i].w_who);
        finding(
            l, s, F_EARLY, 0,
            "%s of byte %zu of '%s', written by %s, block %u, thread %d, %s: this launch may start before that one has "
            "finished, and the thread has not executed griddepcontrol.wait",
            s->what, at + (size_t)i, t->name, o->kernel->fn->name, (uint32_t)(g[i].w_when >> 32) - o->serial0,
            (int)(g[i].w_who & 0x7ff), site_place(id && id <= (uint32_t)m->nsites ? m->sites[id - 1] : NULL, place));
        return;
    }
    if (!is_early(la, t->p + at, (size_t)bytes))
        finding(
            l, s, F_EARLY, 1,
            "%s of byte %zu of '%s', which is not early, in a launch that may start early and by a thread that has not "
            "executed griddepcontrol.wait",
            s->what, at, t->name);
}
