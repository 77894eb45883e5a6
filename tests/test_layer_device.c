// The layer of moelayer.h through libmoert over a fake libcuda: what it may do to the device, and sizes of structs that are not
// set. That it computes the right thing: `moerun verify`.
#include "fake_gpu.h"

#include "../compiler/moec.h"
#include "../runtime/moelayer.h"

#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct fake_gpu *fake;
static char *source; // kernels/moe.dsl
static int lost;     // objects

static struct moe_device *d;
static struct moe_image *image;
static struct moe_layer_desc desc = {
    .size = sizeof desc, .experts = 8, .topk = 2, .hidden = 64, .ffn = 32, .dtype = IMAGE_BF16
};

static void says(int status, int want, const char *words)
{
    char text[1024];
    moe_error(d, text, sizeof text);
    if (status != want || !strstr(text, words))
        fail_msg("%s \"%s\"; expected %s with \"%s\"", moe_status_name(status), text, moe_status_name(want), words);
}

static int up(void **state)
{
    char why[256];
    size_t n = 0;
    (void)state;
    const struct moec_options o = { .size = sizeof o, .arch = "sm_90a", .emit = MOEC_IMAGE, .ptx_only = true };
    struct moec_result *r = moec_compile(source, strlen(source), "moe.dsl", &o);
    const void *code = moec_code(r, &n);
    int failed = !code || moe_open("cuda:0", &d, why, sizeof why) || moe_load(d, code, n, &image);
    moec_free(r);
    return failed;
}

static int down(void **state)
{
    (void)state;
    moe_unload(image);
    moe_close(d);
    return fake->live != lost || fake->contexts || fake->wrong;
}

static struct moe_layer_weights weights(void)
{
    static char somewhere[16] __attribute__((aligned(16)));
    return (struct moe_layer_weights){
        .size = sizeof(struct moe_layer_weights), .gate = somewhere, .up = somewhere, .down = somewhere
    };
}

struct capturer {
    pthread_barrier_t begun, done;
    bool bad;
};
static void *capture(void *user)
{
    struct capturer *c = user;
    void *stream, *graph;
    c->bad = moe_stream(d, &stream) || moe_capture_begin(d, stream);
    pthread_barrier_wait(&c->begun);
    pthread_barrier_wait(&c->done);
    c->bad = c->bad || moe_capture_end(d, stream, &graph) || moe_destroy(d, MOE_GRAPH, graph) ||
             moe_destroy(d, MOE_STREAM, stream);
    return NULL;
}

// A layer is made and freed while another thread captures, as when a server changes images.
static void made_during_a_capture(void **state)
{
    const struct moe_layer_weights w = weights();
    struct moe_layer *l;
    struct capturer c;
    pthread_t t;
    (void)state;
    assert_int_equal(pthread_barrier_init(&c.begun, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&c.done, NULL, 2), 0);
    assert_int_equal(pthread_create(&t, NULL, capture, &c), 0);
    pthread_barrier_wait(&c.begun);
    int status = moe_layer_create(image, &desc, &w, &l);
    moe_layer_free(l);
    pthread_barrier_wait(&c.done);
    assert_int_equal(pthread_join(t, NULL), 0);
    says(status, MOE_OK, "");
    assert_false(c.bad);
    assert_int_equal(fake->wrong, 0);
}

static void each_call_fails(void **state)
{
    (void)state;
    const struct moe_layer_weights w = weights();
    struct moe_layer *l = NULL;
    const int live = fake->live;
    int at = 0, failed = 0;
    do {
        fake->calls = 0;
        fake->fail_code = 999;
        fake->fail_at = ++at;
        int status = moe_layer_create(image, &desc, &w, &l);
        fake->fail_at = 0;
        assert_int_equal(status != MOE_OK, l == NULL);
        failed += status != MOE_OK;
        moe_layer_free(l);
        if (!strncmp(fake->names[at - 1], "cuCtx", 5)) // a free that could not even begin leaves what it should free
            lost += fake->live - live - lost;
        if (fake->live != live + lost)
            fail_msg("call %d, %s: %d objects left", at, fake->names[at - 1], fake->live - live - lost);
    } while (fake->calls >= at && at < 100);
    assert_true(failed >= 4); // at least memory, stream, fill, sync
    assert_int_equal(fake->wrong, 0);
}

static void sizes_not_set(void **state)
{
    (void)state;
    struct moe_layer_weights w = weights();
    struct moe_layer *l;
    struct moe_layer_call c = { .tokens = 5 };
    assert_int_equal(moe_layer_create(image, &desc, &w, &l), MOE_OK);
    says(moe_layer_forward(l, &c, NULL), MOE_ERR_ARGUMENT, "the call's size is not set");
    c.size = sizeof c;
    says(moe_layer_forward(l, &c, NULL), MOE_ERR_ARGUMENT, "neither logits nor both ids and weights");
    c.tokens = 0;
    assert_int_equal(moe_layer_forward(l, &c, NULL), MOE_OK);
    moe_layer_free(l);
    w.size = 0;
    says(moe_layer_create(image, &desc, &w, &l), MOE_ERR_ARGUMENT, "weights.gate is NULL");
    assert_null(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(made_during_a_capture), cmocka_unit_test(each_call_fails),
                                        cmocka_unit_test(sizes_not_set) };
    char path[4096], dir[4000];
    (void)argc;
    snprintf(dir, sizeof dir, "%s", argv[0]);
    snprintf(path, sizeof path, "%s/libfakecuda.so", dirname(dir));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake = handle ? dlsym(handle, "fake_gpu") : NULL;
    FILE *f = fopen("kernels/moe.dsl", "rb");
    source = calloc(1, 1 << 20);
    if (!fake || !f || !source || !fread(source, 1, (1 << 20) - 1, f) || setenv("MOE_CUDA_LIBRARY", path, 1)) {
        fprintf(stderr, "%s or kernels/moe.dsl is not here\n", path);
        return 1;
    }
    fclose(f);
    int failed = cmocka_run_group_tests(tests, up, down);
    free(source);
    return failed;
}
