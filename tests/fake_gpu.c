// What both faces of the fake GPU share, see fake_gpu.h. Build: cc -shared -fPIC fake_gpu.c fake_VENDOR.c -> libfakeVENDOR.so.
#include "fake_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct launch {
    struct fake_launch seen;
    void *pointers[2];
    int32_t count;
    float f;
    int built; // a node of its own, not captured: seen when the graph is launched
    int loose; // likewise, and nothing orders it after the one before it
};
struct object {
    enum fake_kind kind;
    intptr_t current; // when it was made
    size_t bytes;
    void *data;            // MEMORY
    struct object *module; // FUNCTION; of NODE, EXEC: the graph
    unsigned allowed;      // FUNCTION: shared bytes, 0: any
    char name[128];
    struct launch *launches; // STREAM in capture, GRAPH, EXEC
    int n, capturing;        // n of NODE: its place. capturing 2: broken
    int busy;                // EXEC: somebody is at it
    int recorded, waited;    // EVENT
    pthread_t capturer;
    struct object *next;
};
_Thread_local struct fake_thread fake_here;
static struct object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int fake_call(const char *name)
{
    pthread_mutex_lock(&lock);
    struct fake_gpu *k = &fake_gpu;
    if (k->calls < FAKE_CALLS_MAX)
        k->names[k->calls] = name;
    k->calls++;
    int code = k->calls == k->fail_at ? k->fail_code : 0;
    pthread_mutex_unlock(&lock);
    return code;
}

static void count_wrong(void)
{
    pthread_mutex_lock(&lock);
    fake_gpu.wrong++;
    pthread_mutex_unlock(&lock);
}

void *fake_make(enum fake_kind kind)
{
    struct object *o = calloc(1, sizeof *o);
    pthread_mutex_lock(&lock);
    o->kind = kind;
    o->current = fake_here.current;
    o->next = objects;
    objects = o;
    if (kind != FAKE_FUNCTION && kind != FAKE_NODE)
        fake_gpu.live++;
    pthread_mutex_unlock(&lock);
    return o;
}

void *fake_get(void *handle, enum fake_kind kind)
{
    struct object *o;
    pthread_mutex_lock(&lock);
    for (o = objects; o && (o != handle || o->kind != kind); o = o->next)
        continue;
    if (!o || o->current != fake_here.current)
        fake_gpu.wrong++;
    pthread_mutex_unlock(&lock);
    return o;
}

// A destroy that is told to fail still destroys: there is nothing else its caller could do.
int fake_drop(void *handle, enum fake_kind kind, const char *name)
{
    int r = fake_call(name);
    struct object *o = fake_get(handle, kind), **p;
    if (!o)
        return r ? r : FAKE_HANDLE;
    pthread_mutex_lock(&lock);
    for (p = &objects; *p != o; p = &(*p)->next)
        continue;
    *p = o->next;
    fake_gpu.live--;
    fake_gpu.bytes -= o->bytes;
    pthread_mutex_unlock(&lock);
    free(o->data);
    free(o->launches);
    free(o);
    return r;
}

// A copy up on its way, in the order of the legacy stream.
static struct {
    void *to, *bytes;
    size_t n;
} late;

static void land_locked(void)
{
    if (late.bytes)
        memcpy(late.to, late.bytes, late.n);
    free(late.bytes);
    late.bytes = NULL;
}

static void land(void)
{
    pthread_mutex_lock(&lock);
    land_locked();
    pthread_mutex_unlock(&lock);
}

static void reset(void)
{
    free(late.bytes);
    late.bytes = NULL;
    while (objects) {
        struct object *o = objects;
        objects = o->next;
        free(o->launches);
        free(o->data);
        free(o);
    }
    memset(&fake_here, 0, sizeof fake_here);
}

static struct fake_thread *this_thread(void)
{
    return &fake_here;
}

FAKE_EXPORT struct fake_gpu fake_gpu = { .devices = 1,
                                         .major = 9,
                                         .arch = "gfx942:sramecc+:xnack-",
                                         .shared_max = 232448,
                                         .driver = 13000,
                                         .thread = this_thread,
                                         .reset = reset };

static void count_captures(int everybody)
{
    int capturing = 0;
    pthread_mutex_lock(&lock);
    for (struct object *o = objects; o; o = o->next)
        capturing |=
            o->kind == FAKE_STREAM && o->capturing && (everybody || pthread_equal(o->capturer, pthread_self()));
    fake_gpu.wrong += capturing;
    pthread_mutex_unlock(&lock);
}

void fake_need_no_capture(void)
{
    count_captures(0);
}

int fake_sync(void *stream)
{
    if (stream && !fake_get(stream, FAKE_STREAM))
        return FAKE_HANDLE;
    fake_need_no_capture();
    if (!stream)
        land();
    fake_gpu.synced_on = fake_here.current;
    return 0;
}

int fake_sync_all(void)
{
    count_captures(1);
    land();
    fake_gpu.synced_on = fake_here.current;
    return 0;
}

// ---- memory

int fake_alloc(void **pointer, size_t bytes)
{
    fake_need_no_capture();
    if (bytes > (size_t)1 << 32)
        return FAKE_OUT_OF_MEMORY;
    struct object *o = fake_make(FAKE_MEMORY);
    o->bytes = bytes;
    o->data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    fake_gpu.bytes += bytes;
    *pointer = o->data;
    return 0;
}

static struct object *memory_of(const void *pointer, size_t bytes)
{
    uintptr_t p = (uintptr_t)pointer;
    struct object *o;
    pthread_mutex_lock(&lock);
    for (o = objects; o; o = o->next)
        if (o->kind == FAKE_MEMORY && p >= (uintptr_t)o->data && p + bytes <= (uintptr_t)o->data + o->bytes)
            break;
    if (!o || o->current != fake_here.current)
        fake_gpu.wrong++;
    pthread_mutex_unlock(&lock);
    return o;
}

int fake_free(void *pointer, const char *name)
{
    land();
    return fake_drop(memory_of(pointer, 0), FAKE_MEMORY, name);
}

int fake_copy(void *to, const void *from, const void *device, size_t bytes)
{
    fake_need_no_capture();
    if (!memory_of(device, bytes))
        return FAKE_INVALID;
    if (device == to) {
        pthread_mutex_lock(&lock);
        land_locked(); // that of another thread, meanwhile
        late.to = to;
        late.n = bytes;
        late.bytes = memcpy(malloc(bytes + 1), from, bytes);
        pthread_mutex_unlock(&lock);
    } else {
        land();
        memcpy(to, from, bytes);
    }
    return 0;
}

int fake_fill(void *to, int value, size_t n, void *stream)
{
    if (!memory_of(to, n) || (stream && !fake_get(stream, FAKE_STREAM)))
        return FAKE_INVALID;
    if (!stream)
        land();
    memset(to, value, n);
    return 0;
}

// ---- code

// Functions go with their module, nodes with their graph.
static void drop_parts(const void *whole, enum fake_kind kind)
{
    pthread_mutex_lock(&lock);
    for (struct object **p = &objects; *p;) {
        struct object *o = *p;
        if (o->kind != kind || o->module != whole) {
            p = &o->next;
            continue;
        }
        *p = o->next;
        free(o);
    }
    pthread_mutex_unlock(&lock);
}

int fake_unload(void *module, const char *name)
{
    drop_parts(module, FAKE_FUNCTION);
    return fake_drop(module, FAKE_MODULE, name);
}

int fake_drop_graph(void *graph, const char *name)
{
    drop_parts(graph, FAKE_NODE);
    return fake_drop(graph, FAKE_GRAPH, name);
}

void fake_allow(void *function, unsigned shared)
{
    struct object *f = fake_get(function, FAKE_FUNCTION);
    if (f)
        f->allowed = shared;
}

int fake_function(void **function, void *module, const char *name)
{
    if (!fake_get(module, FAKE_MODULE))
        return FAKE_HANDLE;
    struct object *o = fake_make(FAKE_FUNCTION);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->module = module;
    *function = o;
    return 0;
}

// scale(a, f, b, C): b[i] = a[i] * f
static void carry_out(const struct launch *l)
{
    const float *a = l->pointers[0];
    float *b = l->pointers[1];
    for (int i = 0; !strcmp(l->seen.symbol, "scale") && i < l->count; i++)
        b[i] = a[i] * l->f;
}

static void record(const struct launch *l, void *stream)
{
    pthread_mutex_lock(&lock);
    struct fake_launch *seen = &fake_gpu.log[fake_gpu.launches++ % FAKE_LOG_MAX];
    *seen = l->seen;
    seen->stream = stream;
    fake_gpu.grid = seen->grid;
    fake_gpu.block = seen->block;
    fake_gpu.shared = seen->shared;
    fake_gpu.stream = stream;
    fake_gpu.launched_on = fake_here.current;
    memcpy(fake_gpu.symbol, seen->symbol, sizeof seen->symbol);
    memcpy(fake_gpu.args, seen->args, sizeof fake_gpu.args);
    pthread_mutex_unlock(&lock);
}

// Arguments are read here.
static int read_launch(struct launch *l, void *function, const struct fake_config *c)
{
    struct object *f = fake_get(function, FAKE_FUNCTION);
    if (!f || c->extra || !c->grid[0] || c->grid[1] != 1 || c->grid[2] != 1 || !c->block[0] || c->block[1] != 1 ||
        c->block[2] != 1 || (f->allowed && c->shared > f->allowed))
        return FAKE_INVALID;
    *l = (struct launch){
        .seen = { .grid = c->grid[0], .block = c->block[0], .shared = c->shared, .dependent = c->dependent }
    };
    memcpy(l->seen.symbol, f->name, sizeof l->seen.symbol - 1);
    for (int i = 0; i < fake_gpu.arg_count; i++)
        memcpy(l->seen.args[i], c->args[i], (size_t)fake_gpu.arg_bytes[i]);
    for (int i = 0; i < fake_gpu.map_count; i++) {
        const void *map = c->args[fake_gpu.arg_count + i];
        if ((uintptr_t)map % 64)
            return FAKE_INVALID;
        memcpy(&l->seen.maps[i], map, sizeof l->seen.maps[i]);
    }
    if (!strcmp(f->name, "scale")) {
        memcpy(&l->pointers[0], c->args[0], sizeof(void *));
        memcpy(&l->f, c->args[1], 4);
        memcpy(&l->pointers[1], c->args[2], sizeof(void *));
        memcpy(&l->count, c->args[3], 4);
    }
    return 0;
}

static void append(struct object *o, const struct launch *l)
{
    o->launches = realloc(o->launches, (size_t)(o->n + 1) * sizeof *l);
    o->launches[o->n++] = *l;
}

// NULL and the handles 1 and 2 are default streams, which have no object.
static bool is_default(const void *stream)
{
    return (uintptr_t)stream <= 2;
}

int fake_run(void *function, const struct fake_config *c, void *stream)
{
    struct object *s = is_default(stream) ? NULL : fake_get(stream, FAKE_STREAM);
    struct launch l;
    int r = !is_default(stream) && !s ? FAKE_INVALID : read_launch(&l, function, c);
    if (r)
        return r;
    if (s && s->capturing == 2)
        return FAKE_BROKEN_CAPTURE;
    record(&l, stream);
    if (s && s->capturing) {
        append(s, &l);
    } else {
        if (!s)
            land();
        carry_out(&l);
    }
    return 0;
}

// ---- events, graphs

int fake_record(void *event, void *stream)
{
    struct object *e = fake_get(event, FAKE_EVENT);
    if (!e || (stream && !fake_get(stream, FAKE_STREAM)))
        return FAKE_HANDLE;
    e->recorded = 1;
    e->waited = 0;
    return 0;
}

int fake_event_sync(void *event)
{
    struct object *e = fake_get(event, FAKE_EVENT);
    fake_need_no_capture();
    if (e)
        e->waited = 1;
    return e ? 0 : FAKE_HANDLE;
}

int fake_elapsed(float *ms, void *from, void *to)
{
    struct object *a = fake_get(from, FAKE_EVENT), *b = fake_get(to, FAKE_EVENT);
    if (!a || !b || !a->recorded || !b->recorded)
        return FAKE_HANDLE;
    if (!b->waited)
        return FAKE_NOT_READY;
    *ms = 1.5f;
    return 0;
}

int fake_begin(void *stream, int mode, int right_mode)
{
    struct object *s = fake_get(stream, FAKE_STREAM);
    if (!s || s->capturing || mode != right_mode) {
        count_wrong();
        return FAKE_INVALID;
    }
    s->capturing = 1;
    s->capturer = pthread_self();
    return 0;
}

int fake_end(void *stream, void **graph, const char *name)
{
    struct object *s = fake_get(stream, FAKE_STREAM);
    int was = s ? s->capturing : 0;
    if (s)
        s->capturing = 0;
    FAKE_CALL(name);
    if (was != 1)
        return was ? FAKE_BROKEN_CAPTURE : FAKE_INVALID;
    struct object *g = fake_make(FAKE_GRAPH);
    g->launches = s->launches;
    g->n = s->n;
    s->launches = NULL;
    s->n = 0;
    *graph = g;
    return 0;
}

int fake_instantiate(void **exec, void *graph)
{
    struct object *g = fake_get(graph, FAKE_GRAPH);
    if (!g)
        return FAKE_INVALID;
    struct object *e = fake_make(FAKE_EXEC);
    e->module = g;
    e->n = g->n;
    for (int i = 0; i < g->n; i++)
        if (g->launches[i].loose)
            count_wrong();
    e->launches = malloc((size_t)(g->n + 1) * sizeof *e->launches);
    if (g->n)
        memcpy(e->launches, g->launches, (size_t)g->n * sizeof *e->launches);
    *exec = e;
    return 0;
}

// One thread at a time: "graph objects are not threadsafe" (CUDA driver API, graph object thread safety).
static void begin_with(struct object *e)
{
    if (__atomic_exchange_n(&e->busy, 1, __ATOMIC_RELAXED))
        count_wrong();
    for (int i = 0; i < fake_gpu.slow; i++)
        sched_yield();
    __atomic_add_fetch(&fake_gpu.held, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&fake_gpu.hold, __ATOMIC_ACQUIRE))
        sched_yield();
    __atomic_sub_fetch(&fake_gpu.held, 1, __ATOMIC_RELAXED);
}

static int end_with(struct object *e, int r)
{
    __atomic_store_n(&e->busy, 0, __ATOMIC_RELAXED);
    return r;
}

int fake_replay(void *exec, void *stream)
{
    struct object *e = fake_get(exec, FAKE_EXEC), *s = is_default(stream) ? NULL : fake_get(stream, FAKE_STREAM);
    if (!e || (!is_default(stream) && !s))
        return FAKE_INVALID;
    if (s && s->capturing) {
        s->capturing = 2;
        return FAKE_IN_CAPTURE;
    }
    begin_with(e);
    for (int i = 0; i < e->n; i++) {
        if (e->launches[i].built)
            record(&e->launches[i], stream);
        carry_out(&e->launches[i]);
    }
    pthread_mutex_lock(&lock);
    fake_gpu.replays++;
    fake_gpu.replayed = e;
    pthread_mutex_unlock(&lock);
    return end_with(e, 0);
}

int fake_capturing(void *stream, int *status)
{
    struct object *s = is_default(stream) ? NULL : fake_get(stream, FAKE_STREAM);
    if (!s && !is_default(stream))
        return FAKE_HANDLE;
    *status = s ? s->capturing : 0;
    return 0;
}

int fake_graph(void **graph)
{
    *graph = fake_make(FAKE_GRAPH);
    return 0;
}

int fake_node(void **node, void *graph, void *const *after, size_t n, void *function, const struct fake_config *c)
{
    struct object *g = fake_get(graph, FAKE_GRAPH), *before = n ? fake_get(*after, FAKE_NODE) : NULL;
    struct launch l;
    int r = g ? read_launch(&l, function, c) : FAKE_INVALID;
    if (r)
        return r;
    if (n > 1 || (before && (before->module != g || before->n != g->n - 1)))
        count_wrong();
    struct object *o = fake_make(FAKE_NODE);
    o->module = g;
    o->n = g->n;
    l.built = 1;
    l.loose = g->n > 0 && !n;
    append(g, &l);
    *node = o;
    return 0;
}

int fake_edge(void *graph, void *from, void *to)
{
    struct object *g = fake_get(graph, FAKE_GRAPH), *a = fake_get(from, FAKE_NODE), *b = fake_get(to, FAKE_NODE);
    if (!g || !a || !b || a->module != g || b->module != g || b->n != a->n + 1 || !g->launches[b->n].loose) {
        count_wrong();
        return FAKE_INVALID;
    }
    g->launches[b->n].loose = 0;
    g->launches[b->n].seen.dependent = 1;
    return 0;
}

int fake_set_node(void *exec, void *node, void *function, const struct fake_config *c)
{
    struct object *e = fake_get(exec, FAKE_EXEC), *o = fake_get(node, FAKE_NODE);
    struct launch l;
    if (!e || !o || o->module != e->module || o->n >= e->n) {
        count_wrong();
        return FAKE_INVALID;
    }
    begin_with(e);
    int r = read_launch(&l, function, c);
    if (!r) {
        l.built = 1;
        l.seen.dependent = e->launches[o->n].seen.dependent; // edges stay
        e->launches[o->n] = l;
    }
    pthread_mutex_lock(&lock);
    fake_gpu.sets++;
    pthread_mutex_unlock(&lock);
    return end_with(e, r);
}
