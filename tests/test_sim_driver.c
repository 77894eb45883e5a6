// libmoert over the simulator: loading, launching, graphs, and how findings come out.
#include "../compiler/moec.h"
#include "../runtime/moert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char source[] = "// y = 2 x\n"
                             "kernel twice(x: f32[N], y: out f32[N]) {\n"
                             "  parallel i in tile(N) {\n"
                             "    y[i] = x[i] * 2.0\n"
                             "  }\n"
                             "}\n";
enum { N = 100 };

static void *image_for(const char *arch, bool bitcode, size_t *n)
{
    struct moec_options o = {
        .size = sizeof o, .arch = arch, .emit = MOEC_IMAGE, .ptx_only = true, .bitcode = bitcode
    };
    struct moec_result *r = moec_compile(source, strlen(source), "twice.dsl", &o);
    assert_non_null(r);
    assert_int_equal(moec_status(r), MOEC_OK);
    const void *code = moec_code(r, n);
    void *copy = malloc(*n);
    assert_non_null(copy);
    memcpy(copy, code, *n);
    moec_free(r);
    return copy;
}

static struct moe_device *device(const char *name)
{
    struct moe_device *d = NULL;
    char why[256] = "";
    if (moe_open(name, &d, why, sizeof why))
        fail_msg("%s", why);
    return d;
}

static void is_error(struct moe_device *d, int got, int want, const char *words)
{
    char text[1024];
    assert_int_equal(got, want);
    if (!strstr(moe_error(d, text, sizeof text), words))
        fail_msg("expected '%s' in: %s", words, text);
}

struct loaded {
    struct moe_device *d;
    struct moe_image *image;
    const struct moe_kernel *k;
    float *x, *y;
};
static struct loaded load(const char *name, const char *arch)
{
    struct loaded l = { .d = device(name) };
    float x[N];
    size_t n;
    void *bytes = image_for(arch, true, &n);
    assert_int_equal(moe_load(l.d, bytes, n, &l.image), MOE_OK);
    free(bytes);
    l.k = moe_find(l.image, "twice", NULL);
    assert_non_null(l.k);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    assert_int_equal(moe_alloc(l.d, sizeof x, (void **)&l.x), MOE_OK);
    assert_int_equal(moe_alloc(l.d, sizeof x, (void **)&l.y), MOE_OK);
    assert_int_equal(moe_upload(l.d, l.x, x, sizeof x), MOE_OK);
    return l;
}
static void unload(struct loaded *l)
{
    assert_int_equal(moe_free(l->d, l->x), MOE_OK);
    assert_int_equal(moe_free(l->d, l->y), MOE_OK);
    assert_int_equal(moe_unload(l->image), MOE_OK);
    moe_close(l->d);
}
static int launch(struct loaded *l, float *x, float *y, void *stream)
{
    struct moe_arg args[] = { moe_tensor(x, 1, N, 0, 0), moe_tensor(y, 1, N, 0, 0) };
    return moe_launch(l->k, args, 2, NULL, stream);
}
static void is_twice(struct loaded *l)
{
    float y[N];
    assert_int_equal(moe_download(l->d, y, l->y, sizeof y), MOE_OK);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 2 * (float)i);
}

static void runs(void **state)
{
    static const char *const archs[] = { "sm_80", "sm_90a", "sm_100a", "gfx942", "gfx950" };
    (void)state;
    for (int i = 0; i < 5; i++) {
        char name[32], text[256];
        snprintf(name, sizeof name, "sim:%s,seed=3", archs[i]);
        struct loaded l = load(name, archs[i]);
        struct moe_info info = { .size = sizeof info };
        assert_int_equal(moe_info(l.d, &info), MOE_OK);
        assert_string_equal(info.arch, archs[i]);
        assert_int_equal(moe_poison(l.d, l.y, N * 4, NULL), MOE_OK);
        assert_int_equal(launch(&l, l.x, l.y, NULL), MOE_OK);
        assert_int_equal(moe_sync(l.d, NULL), MOE_OK);
        assert_null(moe_finding(l.d, 0));
        is_twice(&l);
        assert_non_null(strstr(moe_origin(l.d, l.y + 7, text, sizeof text), "twice.dsl:4:5: twice: block 0, thread "));
        assert_string_equal(moe_origin(l.d, l.x, text, sizeof text), "");
        assert_non_null(strstr(moe_stats(l.d, text, sizeof text), "1 launches"));
        unload(&l);
    }
}

static void graphs(void **state)
{
    (void)state;
    struct loaded l = load("sim:gfx942", "gfx942");
    void *stream, *graph, *e[2];
    float ms = -1;
    assert_int_equal(moe_stream(l.d, &stream), MOE_OK);
    assert_int_equal(moe_event(l.d, &e[0]) | moe_event(l.d, &e[1]), MOE_OK);
    is_error(l.d, moe_capture_end(l.d, stream, &graph), MOE_ERR_ARGUMENT, "not in capture");
    assert_int_equal(moe_capture_begin(l.d, stream), MOE_OK);
    is_error(l.d, moe_capture_begin(l.d, stream), MOE_ERR_ARGUMENT, "in capture already");
    assert_int_equal(moe_event_record(l.d, e[0], stream), MOE_OK);
    assert_int_equal(moe_poison(l.d, l.y, N * 4, stream), MOE_OK);
    assert_int_equal(launch(&l, l.x, l.y, stream), MOE_OK);
    assert_int_equal(moe_event_record(l.d, e[1], stream), MOE_OK);
    assert_int_equal(moe_fill(l.d, l.x, 0, 4, NULL), MOE_OK); // another stream: at once
    assert_int_equal(moe_capture_end(l.d, stream, &graph), MOE_OK);
    char text[128];
    assert_non_null(strstr(moe_stats(l.d, text, sizeof text), "0 launches"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(moe_fill(l.d, l.y, 0, N * 4, stream), MOE_OK);
        assert_int_equal(moe_graph_launch(l.d, graph, stream), MOE_OK);
        assert_int_equal(moe_sync(l.d, stream), MOE_OK);
        is_twice(&l);
    }
    assert_int_equal(moe_event_ms(l.d, e[0], e[1], &ms), MOE_OK);
    assert_true(ms >= 0);
    assert_int_equal(moe_capture_begin(l.d, stream), MOE_OK); // an unfinished capture is dropped with its stream
    assert_int_equal(launch(&l, l.x, l.y, stream), MOE_OK);
    assert_int_equal(moe_destroy(l.d, MOE_STREAM, stream), MOE_OK);
    assert_int_equal(moe_destroy(l.d, MOE_GRAPH, graph), MOE_OK);
    assert_int_equal(moe_destroy(l.d, MOE_EVENT, e[0]) | moe_destroy(l.d, MOE_EVENT, e[1]), MOE_OK);
    unload(&l);
}

// A launch succeeds as on a GPU; the sync after it tells what was found, once; a cleared device is as new.
static void findings(void **state)
{
    (void)state;
    struct loaded l = load("sim:sm_80,threads=1", "sm_80");
    assert_int_equal(moe_poison(l.d, l.x, N * 4, NULL), MOE_OK);
    assert_int_equal(launch(&l, l.x, l.y, NULL), MOE_OK);
    is_error(l.d, moe_sync(l.d, NULL), MOE_ERR_DEVICE, "twice.dsl:4:12: twice: unwritten: ");
    assert_non_null(strstr(moe_finding(l.d, 0), "of 'x', which nobody has written"));
    assert_int_equal(moe_sync(l.d, NULL), MOE_OK);
    assert_non_null(moe_finding(l.d, 0));
    moe_findings_clear(l.d);
    assert_null(moe_finding(l.d, 0));
    assert_int_equal(launch(&l, l.x, l.y, NULL), MOE_OK);
    is_error(l.d, moe_sync(l.d, NULL), MOE_ERR_DEVICE, "unwritten");
    float x[N] = { 1 };
    moe_findings_clear(l.d);
    assert_int_equal(moe_upload(l.d, l.x, x, sizeof x), MOE_OK);
    assert_int_equal(launch(&l, l.x, l.y, NULL), MOE_OK);
    assert_int_equal(moe_sync(l.d, NULL), MOE_OK);
    unload(&l);
}

static void refusals(void **state)
{
    (void)state;
    struct moe_device *d;
    char why[256];
    static const char *const names[] = { "sim", "sim:", "sim:sm_81", "sim:sm_80,fast=2", "simulator:sm_80" };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(moe_open(names[i], &d, why, sizeof why), MOE_ERR_ARGUMENT);
        assert_null(d);
        assert_true(strlen(why) > 10);
    }
    d = device("sim:sm_80");
    struct moe_image *m;
    size_t n;
    void *bytes = image_for("sm_80", false, &n);
    is_error(d, moe_load(d, bytes, n, &m), MOE_ERR_IMAGE, "compile it with --bitcode");
    free(bytes);
    bytes = image_for("gfx942", true, &n);
    is_error(d, moe_load(d, bytes, n, &m), MOE_ERR_ARCH, "the image is for gfx942, the device is sm_80");
    free(bytes);
    float host[4];
    is_error(d, moe_upload(d, host, host, 16), MOE_ERR_ARGUMENT, "not memory of the device");
    is_error(d, moe_download(d, host, host, 16), MOE_ERR_ARGUMENT, "not memory of the device");
    is_error(d, moe_fill(d, host, 0, 16, NULL), MOE_ERR_ARGUMENT, "not memory of the device");
    is_error(d, moe_free(d, host), MOE_ERR_ARGUMENT, "free");
    moe_close(d);
    struct loaded l = load("sim:sm_80", "sm_80");
    static float big[N] __attribute__((aligned(16)));
    is_error(l.d, launch(&l, big, l.y, NULL), MOE_ERR_DEVICE, "argument 'x' (400 bytes at ");
    unload(&l);
    setenv("MOE_SIM_LIBRARY", "/nowhere/libmoesim.so", 1);
    assert_int_equal(moe_open("sim:sm_80", &d, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "/nowhere/libmoesim.so"));
}

static int set_library(void **state)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    (void)state;
    if (n <= 0)
        return 1;
    path[n] = 0;
    for (int i = 0; i < 2; i++)
        *strrchr(path, '/') = 0;
    strcat(path, "/libmoesim.so");
    return setenv("MOE_SIM_LIBRARY", path, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(runs, set_library),
        cmocka_unit_test_setup(graphs, set_library),
        cmocka_unit_test_setup(findings, set_library),
        cmocka_unit_test_setup(refusals, set_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
