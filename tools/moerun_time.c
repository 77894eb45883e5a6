// Times of graphs and of single calls on a device: median, 10th and 90th percentile of many.
#include "moerun.h"

#include <stdlib.h>

enum { FLUSH_BYTES = 256 << 20, FLUSH_SIMULATED = 1 << 20, WARM_UP = 5, BEFORE_WARM = 3 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct times times_of(double *ms, int n)
{
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    return (struct times){ (ms[(n - 1) / 2] + ms[n / 2]) / 2, ms[n / 10], ms[n - 1 - n / 10], n };
}

bool timer_open(struct timer *t, const struct options *o, struct device *d)
{
    *t = (struct timer){ .d = d, .repeats = o->repeats, .simulated = simulated(o) };
    return (d->gpu || report(EXIT_USAGE, "%s needs a GPU: eval says nothing about time", o->command)) &&
           guarded_new(d, &t->flush, t->simulated ? FLUSH_SIMULATED : FLUSH_BYTES) &&
           !device_fails(d, moe_event(d->gpu, &t->event[0]), "event") &&
           !device_fails(d, moe_event(d->gpu, &t->event[1]), "event");
}

void timer_close(struct timer *t)
{
    if (!t->d || !t->d->gpu)
        return;
    guarded_free(t->d, &t->flush);
    moe_destroy(t->d->gpu, MOE_EVENT, t->event[0]);
    moe_destroy(t->d->gpu, MOE_EVENT, t->event[1]);
}

// What stands before the first event keeps the device busy while the host hands over the rest, so that no launch is waited for:
// cold: the fill that replaces what L2 holds; warm: replays of the same work.
static bool once(struct timer *t, bool warm, timed_call *call, void *user, int i, double *ms)
{
    struct moe_device *d = t->d->gpu;
    float spent = 0;
    bool ok = warm || device_fill(t->d, t->flush.ptr, i & 0xff, t->flush.bytes);
    for (int n = 0; ok && warm && n < (t->simulated ? 1 : BEFORE_WARM); n++)
        ok = call(user);
    ok = ok && !device_fails(t->d, moe_event_record(d, t->event[0], t->d->stream), "event") && call(user) &&
         !device_fails(t->d, moe_event_record(d, t->event[1], t->d->stream), "event") &&
         !device_fails(t->d, moe_event_ms(d, t->event[0], t->event[1], &spent), "running the kernels");
    *ms = (double)spent;
    return ok;
}

bool timer_calls(struct timer *t, bool warm, int repeats, timed_call *call, void *user, struct times *out)
{
    double unused, *ms = malloc((size_t)repeats * sizeof *ms);
    bool ok = ms || report(EXIT_INTERNAL, "out of memory");
    for (int i = 0; ok && i < (t->simulated ? 1 : WARM_UP); i++)
        ok = once(t, warm, call, user, i, &unused);
    for (int i = 0; ok && i < repeats; i++)
        ok = once(t, warm, call, user, i, &ms[i]);
    if (ok)
        *out = times_of(ms, repeats);
    free(ms);
    return ok;
}

// ---- steps of a layer -------------------------------------------------------------------------------------------------

struct replay {
    struct device *d;
    void *graph;
};

static bool replay(void *user)
{
    struct replay *r = user;
    return !device_fails(r->d, moe_graph_launch(r->d->gpu, r->graph, r->d->stream), "graph");
}

bool timer_steps(struct timer *t, struct layer *l, int from, int to, bool warm, struct times *out)
{
    struct replay r = { t->d, NULL };
    bool begun = !device_fails(t->d, moe_capture_begin(t->d->gpu, t->d->stream), "capture"), ok = begun;
    for (int s = from; ok && s < to; s++)
        ok = layer_step(l, (enum moe_layer_step)s);
    if (begun)
        ok = !device_fails(t->d, moe_capture_end(t->d->gpu, t->d->stream, &r.graph), "capture") && ok;
    ok = ok && timer_calls(t, warm, t->repeats, replay, &r, out);
    moe_destroy(t->d->gpu, MOE_GRAPH, r.graph);
    return ok;
}
