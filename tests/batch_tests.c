// Several kernels at once (launch_items() of driver.h): the same launches as one by one, in order, none lost and none twice,
// whatever is missing, fails or happens at once. For every driver, over a fake of its vendor's library.
#include "driver_tests.h"

#include "../runtime/batch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = BATCH_MOST + 2, ARGS = 10 }; // 5 parameters, then the free dims T, E, I, N, R; H is bound
static const int arg_bytes[ARGS] = { 8, 8, 8, 4, 8, 4, 4, 4, 4, 4 };
struct list {
    int n;
    struct launch_item item[MOST];
    union launch_value value[MOST][ARGS];
    void *arg[MOST][ARGS];
};
struct scene {
    struct moe_device *d;
    struct moe_image *m;
    void *stream;
    const struct moe_kernel *k[2];
};

static void open_scene(struct scene *s)
{
    struct image_desc desc = sample();
    s->d = open_device(0);
    s->m = load(s->d, &desc);
    s->k[0] = moe_find(s->m, "gate_up", "r128");
    s->k[1] = moe_find(s->m, "gate_up", "r16");
    assert_int_equal(moe_stream(s->d, &s->stream), MOE_OK);
    fake->arg_count = ARGS;
    memcpy(fake->arg_bytes, arg_bytes, sizeof arg_bytes);
}

static void close_scene(struct scene *s)
{
    assert_int_equal(moe_destroy(s->d, MOE_STREAM, s->stream), MOE_OK);
    assert_int_equal(moe_unload(s->m), MOE_OK);
    assert_int_equal(fake->live, 0); // chains go with their image
    assert_int_equal(fake->thread()->last_error, 0);
    clean(s->d);
}

// n launches, each another one, of both kernels in turn.
static void make_list(const struct scene *s, struct list *l, int n, int seed)
{
    l->n = n;
    for (int i = 0; i < n; i++) {
        uintptr_t at = 0x1000 * (uintptr_t)(1 + seed * 16 + i);
        struct moe_arg a[5] = { moe_tensor((void *)at, 2, 10, 256, 0), moe_tensor((void *)at, 3, 8, 384, 256),
                                moe_tensor((void *)at, 2, 1 + (seed + i) % 50, 4, 0), moe_i32(320),
                                moe_tensor((void *)at, 2, 20 + i, 384, 0) };
        l->item[i].args = l->arg[i];
        assert_int_equal(launch_resolve(s->k[(seed + i) % 2], a, 5, NULL, &l->item[i], l->value[i], NULL), MOE_OK);
        assert_int_equal(l->item[i].blocks, 5 * (1 + (seed + i) % 50));
    }
}

static bool is_launch(const struct fake_launch *f, const struct launch_item *item, const void *stream)
{
    bool same = !strcmp(f->symbol, item->sig->symbol) && f->grid == item->blocks &&
                f->block == (unsigned)item->sig->threads && f->shared == (unsigned)item->sig->shared &&
                f->stream == stream && f->dependent == (vendor.early && item->dependent);
    for (int i = 0; i < ARGS; i++)
        same = same && !memcmp(f->args[i], item->args[i], (size_t)arg_bytes[i]);
    return same;
}

// The first n of the list, in order, and nothing else since launch number `from`.
static void expect_launches(const struct list *l, int n, int from, const void *stream)
{
    assert_int_equal(fake->launches, from + n);
    for (int i = 0; i < n; i++)
        assert_true(is_launch(&fake->log[(from + i) % FAKE_LOG_MAX], &l->item[i], stream));
}

static void launch_and_check(const struct scene *s, const struct list *l, void *stream, bool at_once)
{
    int from = fake->launches, sets = fake->sets, replays = fake->replays;
    assert_int_equal(launch_items(s->m, l->item, l->n, stream), MOE_OK);
    expect_launches(l, l->n, from, stream);
    assert_int_equal(fake->sets - sets, at_once ? l->n : 0);
    assert_int_equal(fake->replays - replays, at_once);
}

static void depend(struct list *l, unsigned pattern)
{
    for (int i = 0; i < l->n; i++)
        l->item[i].dependent = pattern >> i & 1;
}

static void prepare_as(const struct scene *s, int n, unsigned pattern)
{
    struct list l;
    make_list(s, &l, n, 1000);
    depend(&l, pattern);
    launch_prepare(s->m, l.item, n);
}

static void prepare(const struct scene *s, int n)
{
    prepare_as(s, n, 0);
}

void test_batch_same(void **state)
{
    struct scene s;
    struct list l;
    (void)state;
    open_scene(&s);
    make_list(&s, &l, 5, 3);
    launch_and_check(&s, &l, s.stream, false); // nothing is ready
    for (int n = 0; n <= MOST; n++)
        prepare(&s, n);
    assert_int_equal(fake->launches, 5); // examples are not launched
    int live = fake->live, calls = fake->calls;
    prepare(&s, 4); // once is enough
    assert_int_equal(fake->live, live);
    for (int n = 0; n <= MOST; n++)
        for (int seed = 0; seed < 3; seed++) {
            make_list(&s, &l, n, seed + 7 * n);
            launch_and_check(&s, &l, s.stream, n > 1 && n <= BATCH_MOST);
            for (uintptr_t stream = 0; stream <= 2; stream++) // the default ones
                launch_and_check(&s, &l, (void *)stream, false);
        }
    for (int i = calls; i < fake->calls && i < FAKE_CALLS_MAX; i++)
        assert_null(strstr(fake->names[i], "Alloc"));
    assert_int_equal(fake->live, live);
    close_scene(&s);
}

// Which launches may start early is the same by a chain, one by one and in a capture; a chain serves the pattern that it was
// made for, and no other.
void test_batch_dependent(void **state)
{
    static const unsigned patterns[] = { 0, 2, 6, 4, 62, 32, 42 };
    enum { N = 6, MADE = 3, PATTERNS = sizeof patterns / sizeof patterns[0] };
    struct scene s;
    struct list l;
    void *graph;
    (void)state;
    open_scene(&s);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MADE; i++) {
            int live = fake->live;
            prepare_as(&s, N, patterns[i]);
            assert_int_equal(fake->live - live, round ? 0 : 2 * BATCH_WAYS);
        }
    for (int i = 0; i < PATTERNS; i++) {
        make_list(&s, &l, N, i);
        depend(&l, patterns[i]);
        launch_and_check(&s, &l, s.stream, i < MADE);
        launch_and_check(&s, &l, NULL, false);
        assert_int_equal(moe_capture_begin(s.d, s.stream), MOE_OK);
        launch_and_check(&s, &l, s.stream, false);
        assert_int_equal(moe_capture_end(s.d, s.stream, &graph), MOE_OK);
        assert_int_equal(moe_destroy(s.d, MOE_GRAPH, graph), MOE_OK);
    }
    close_scene(&s);
}

// One by one, each call fails once: the kernels before it were launched, none after it, and the error names call and kernel.
void test_batch_one_fails(void **state)
{
    struct scene s;
    struct list l;
    char want[128];
    int calls = 0, named = 0;
    (void)state;
    open_scene(&s);
    for (int at = 0; at <= calls; at++) {
        int from = fake->launches, before = fake->calls;
        make_list(&s, &l, 4, at);
        depend(&l, 6);
        fake->fail_at = at ? before + at : 0;
        fake->fail_code = 719;
        int status = launch_items(s.m, l.item, 4, s.stream);
        fake->fail_at = 0;
        calls = at ? calls : fake->calls - before;
        const char *call = at ? fake->names[before + at - 1] : "";
        if (!strstr(call, "Launch")) {
            expect_launches(&l, status ? 0 : 4, from, s.stream);
            assert_true(!status || one_of(vendor.making, call));
            continue;
        }
        int n = fake->launches - from;
        expect_launches(&l, n, from, s.stream);
        snprintf(want, sizeof want, "%s of %s:", call, l.item[n].sig->symbol);
        expect_error(s.d, status, MOE_ERR_DEVICE, want);
        assert_int_equal(!!strstr(call, "Ex"), vendor.early && l.item[n].dependent);
        named++;
    }
    fake->thread()->last_error = 0;
    assert_int_equal(named, 4);
    close_scene(&s);
}

// A graph's launch would break the capture: kernel by kernel there.
void test_batch_capture(void **state)
{
    struct scene s;
    struct list l;
    void *graph;
    (void)state;
    open_scene(&s);
    prepare(&s, 6);
    make_list(&s, &l, 6, 1);
    assert_int_equal(moe_capture_begin(s.d, s.stream), MOE_OK);
    launch_and_check(&s, &l, s.stream, false);
    assert_int_equal(moe_capture_end(s.d, s.stream, &graph), MOE_OK);
    assert_int_equal(moe_graph_launch(s.d, graph, s.stream), MOE_OK);
    assert_int_equal(moe_destroy(s.d, MOE_GRAPH, graph), MOE_OK);
    launch_and_check(&s, &l, s.stream, true);
    close_scene(&s);
}

// Drivers without one of the entry points launch kernel by kernel.
void test_batch_missing(void **state)
{
    char was[512];
    struct fake_gpu *whole = fake;
    int missing = 0;
    (void)state;
    snprintf(was, sizeof was, "%s", getenv(vendor.library));
    for (int i = 0; i < vendor.nentries; i++) {
        char file[] = "/tmp/fake-gpu-XXXXXX";
        struct scene s;
        struct list l;
        if (vendor.entries[i].required || !strstr(vendor.entries[i].symbol, "Graph"))
            if (!for_batches(vendor.entries[i].symbol))
                continue;
        library_without(vendor.entries[i].symbol, file);
        setenv(vendor.library, file, 1);
        void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(handle);
        fake = dlsym(handle, "fake_gpu");
        open_scene(&s);
        prepare(&s, 3);
        make_list(&s, &l, 3, i);
        bool edges =
            strstr(vendor.entries[i].symbol, "Dependencies"); // those that are not needed where nothing starts early
        launch_and_check(&s, &l, s.stream, edges);
        close_scene(&s);
        unlink(file);
        setenv(vendor.library, was, 1);
        fake = whole;
        missing += !edges;
    }
    assert_int_equal(missing, 8);
}

// Each call fails once while chains are made: fewer chains or none, the launches are the same, nothing is left behind.
void test_batch_prepare_fails(void **state)
{
    struct scene s;
    struct list l;
    int calls = 0, slower = 0;
    (void)state;
    for (int at = 0; at <= calls; at++) {
        assert_int_equal(setup(NULL), 0);
        open_scene(&s);
        int before = fake->calls;
        fake->fail_at = at ? before + at : 0;
        fake->fail_code = 719;
        prepare_as(&s, 3, 6);
        fake->fail_at = 0;
        calls = at ? calls : fake->calls - before;
        make_list(&s, &l, 3, at);
        depend(&l, 6);
        int from = fake->launches, replays = fake->replays;
        for (int i = 0; i < 2; i++, from += 3) {
            assert_int_equal(launch_items(s.m, l.item, 3, s.stream), MOE_OK);
            expect_launches(&l, 3, from, s.stream);
        }
        slower += fake->replays == replays;
        close_scene(&s);
    }
    assert_true(calls >= BATCH_WAYS * (vendor.early ? 7 : 5));
    assert_in_range(slower, vendor.early ? 7 : 5,
                    vendor.early ? 10 : 8); // what of the first chain fails, or comes before
}

// Each call of a launch fails once: all kernels are launched, once and in order, or there is an error that names the call and
// only kernels before it were. The next launch is as if nothing had been.
void test_batch_launch_fails(void **state)
{
    struct scene s;
    struct list l, next;
    char text[1024];
    int calls = 0, refused = 0;
    (void)state;
    open_scene(&s);
    prepare_as(&s, 6, 0x2c);
    for (int i = 0, at = 0; i <= 2 * calls; i++) { // twice: more often than there are chains
        int from = fake->launches, before = fake->calls;
        at = i <= calls ? i : i - calls;
        make_list(&s, &l, 6, at);
        make_list(&s, &next, 6, 3 * at);
        depend(&l, 0x2c);
        depend(&next, 0x2c);
        fake->fail_at = at ? before + at : 0;
        fake->fail_code = 719;
        int status = launch_items(s.m, l.item, 6, s.stream);
        calls = at ? calls : fake->calls - before;
        const char *call = at ? fake->names[before + at - 1] : "";
        expect_launches(&l, status ? 0 : 6, from, s.stream);
        if (status && !one_of(vendor.making, call)) {
            assert_non_null(strstr(call, "GraphLaunch"));
            assert_non_null(strstr(moe_error(s.d, text, sizeof text), "GraphLaunch of 6 kernels from gate_up_r"));
            refused++;
        }
        assert_true(status || !strstr(call, "GraphLaunch"));
        fake->fail_at = 0;
        assert_int_equal(fake->thread()->last_error, 0);
        launch_and_check(&s, &next, s.stream, true);
    }
    assert_int_equal(refused, 2);
    assert_true(calls >= 6 + 3);
    close_scene(&s);
}

// While two streams do not use the same chain they do not wait for each other.
void test_batch_streams(void **state)
{
    enum { STREAMS = BATCH_WAYS + 3 };
    struct scene s;
    struct list l;
    void *stream[STREAMS], *chain[STREAMS];
    (void)state;
    open_scene(&s);
    prepare(&s, 3);
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(moe_stream(s.d, &stream[i]), MOE_OK);
    for (int used = 2; used <= BATCH_WAYS; used += 6)
        for (int round = 0; round < 30; round++) {
            int i = round < used ? round : round * 5 % used;
            make_list(&s, &l, 3, round);
            launch_and_check(&s, &l, stream[i], true);
            if (round < used)
                chain[i] = fake->replayed;
            assert_ptr_equal(chain[i], fake->replayed);
            for (int j = 0; j < used && round >= used; j++)
                assert_true(j == i || chain[j] != chain[i]);
        }
    for (int round = 0; round < 40; round++) { // more streams than chains
        make_list(&s, &l, 3, round);
        launch_and_check(&s, &l, stream[round % STREAMS], true);
    }
    for (int i = 0; i < STREAMS; i++)
        moe_destroy(s.d, MOE_STREAM, stream[i]);
    close_scene(&s);
}

// ---- threads

enum { THREADS = 16, ROUNDS = 24, KERNELS = 5 };
struct worker {
    const struct scene *s;
    int number, fails;
    void *stream;
    pthread_t id;
};

static void *work(void *user)
{
    struct worker *w = user;
    struct list l;
    for (int i = 0; i < ROUNDS; i++) {
        make_list(w->s, &l, KERNELS, w->number * ROUNDS + i);
        if (i == ROUNDS / 2)
            launch_prepare(w->s->m, l.item, KERNELS - 1); // another length, while others launch
        w->fails += launch_items(w->s->m, l.item, KERNELS, w->stream) != MOE_OK;
        memset(&l, 0xee, sizeof l); // nothing of it is needed any more
    }
    return NULL;
}

void test_batch_threads(void **state)
{
    struct scene s;
    struct list l;
    struct worker w[THREADS];
    (void)state;
    open_scene(&s);
    prepare(&s, KERNELS);
    fake->slow = 2;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){ .s = &s, .number = i };
        assert_int_equal(moe_stream(s.d, &w[i].stream), MOE_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&w[i].id, NULL, work, &w[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].id, NULL);
        assert_int_equal(w[i].fails, 0);
    }
    assert_int_equal(fake->launches, THREADS * ROUNDS * KERNELS);
    assert_true(fake->replays > 0);
    for (int i = 0; i < THREADS; i++) { // each stream has its own launches, in order
        int at = 0;
        for (int n = 0; n < fake->launches; n++) {
            if (fake->log[n].stream != w[i].stream)
                continue;
            make_list(&s, &l, KERNELS, i * ROUNDS + at / KERNELS);
            assert_true(is_launch(&fake->log[n], &l.item[at % KERNELS], w[i].stream));
            at++;
        }
        assert_int_equal(at, ROUNDS * KERNELS);
        moe_destroy(s.d, MOE_STREAM, w[i].stream);
    }
    close_scene(&s);
}

static void *work_once(void *user)
{
    struct worker *w = user;
    struct list l;
    make_list(w->s, &l, KERNELS, w->number);
    w->fails = launch_items(w->s->m, l.item, KERNELS, w->stream) != MOE_OK;
    return NULL;
}

// Who finds all chains in use waits for nobody.
void test_batch_busy(void **state)
{
    struct scene s;
    struct list l;
    struct worker w[BATCH_WAYS];
    (void)state;
    open_scene(&s);
    prepare(&s, KERNELS);
    __atomic_store_n(&fake->hold, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < BATCH_WAYS; i++) {
        w[i] = (struct worker){ .s = &s, .number = i };
        assert_int_equal(moe_stream(s.d, &w[i].stream), MOE_OK);
        assert_int_equal(pthread_create(&w[i].id, NULL, work_once, &w[i]), 0);
    }
    while (__atomic_load_n(&fake->held, __ATOMIC_RELAXED) < BATCH_WAYS)
        usleep(100);
    alarm(60); // instead of for ever
    make_list(&s, &l, KERNELS, 99);
    launch_and_check(&s, &l, s.stream, false);
    alarm(0);
    __atomic_store_n(&fake->hold, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < BATCH_WAYS; i++) {
        pthread_join(w[i].id, NULL);
        assert_int_equal(w[i].fails, 0);
        moe_destroy(s.d, MOE_STREAM, w[i].stream);
    }
    assert_int_equal(fake->replays, BATCH_WAYS);
    assert_int_equal(fake->launches, (BATCH_WAYS + 1) * KERNELS);
    close_scene(&s);
}

// Switched off, or (HIP) not switched on, nothing is made.
void test_batch_off(void **state)
{
    static const char *const hip[][3] = { { "MOE_NO_BATCH", "1", "0" }, { "MOE_HIP_BATCH", "", "1" } };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scene s;
        struct list l;
        bool off = i == 0 || !strcmp(vendor.name, "hip");
        setenv(hip[i][0], hip[i][1], 1);
        open_scene(&s);
        setenv(hip[i][0], hip[i][2], 1);
        int live = fake->live;
        prepare(&s, 4);
        assert_true((fake->live == live) == off);
        make_list(&s, &l, 4, i);
        launch_and_check(&s, &l, s.stream, !off);
        close_scene(&s);
    }
}
