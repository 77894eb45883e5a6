// The tests that every driver must pass, over a fake of its vendor's library: every launch check, every error path, no
// leaks, what was current restored. test_cuda.c and test_hip.c say which driver.
#include "driver_tests.h"

#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_gpu *fake;
static struct fake_gpu fresh;

int setup(void **state)
{
    (void)state;
    fake->reset();
    *fake = fresh;
    return 0;
}

struct image_desc sample(void)
{
    struct image_desc d = sample_image;
    d.arch = vendor.arch;
    d.kind = vendor.kind;
    d.nkernels = 3; // not that with boxes, which not every vendor has
    return d;
}

unsigned char *image_bytes(const struct image_desc *d, size_t *n)
{
    char err[IMAGE_ERR_MAX];
    *n = moe_image_size(d);
    unsigned char *p = malloc(*n ? *n : 1);
    if (!moe_image_write(d, p, *n, err))
        fail_msg("%s", err);
    return p;
}

struct moe_device *open_device(int ordinal)
{
    struct moe_device *d;
    char why[256], name[32];
    snprintf(name, sizeof name, "%s:%d", vendor.name, ordinal);
    if (moe_open(name, &d, why, sizeof why))
        fail_msg("%s", why);
    return d;
}

struct moe_image *load(struct moe_device *d, const struct image_desc *desc)
{
    struct moe_image *m;
    size_t n;
    char text[512];
    unsigned char *p = image_bytes(desc, &n);
    if (moe_load(d, p, n, &m))
        fail_msg("%s", moe_error(d, text, sizeof text));
    memset(p, 0xee, n); // the library keeps its own copy
    free(p);
    return m;
}

void clean(struct moe_device *d)
{
    moe_close(d);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->bytes, 0);
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->thread()->pushed, 0);
    assert_int_equal(fake->thread()->current, 0);
    assert_int_equal(fake->wrong, 0);
}

void expect_error(struct moe_device *d, int status, int want, const char *says)
{
    char text[1024];
    moe_error(d, text, sizeof text);
    if (status != want || !strstr(text, says))
        fail_msg("%s \"%s\"; expected %s with \"%s\"", moe_status_name(status), text, moe_status_name(want), says);
}

void expect_load(struct moe_device *d, const struct image_desc *desc, int want, const char *says)
{
    struct moe_image *m;
    size_t n;
    unsigned char *p = image_bytes(desc, &n);
    expect_error(d, moe_load(d, p, n, &m), want, says);
    assert_null(m);
    free(p);
}

// ---- opening

void test_no_library(void **state)
{
    (void)state;
    char was[512], why[256];
    struct moe_device *d;
    snprintf(was, sizeof was, "%s", getenv(vendor.library));
    setenv(vendor.library, "libgpu-is-not-here.so", 1);
    assert_int_equal(moe_open(vendor.name, &d, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "libgpu-is-not-here.so"));
    assert_null(strchr(why, '\n'));
    assert_null(d);
    setenv(vendor.library, "libc.so.6", 1);
    assert_int_equal(moe_open(vendor.name, &d, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "libc.so.6 lacks "));
    assert_non_null(strstr(why, vendor.entries[0].symbol));
    setenv(vendor.library, was, 1);
}

void library_without(const char *symbol, char *file)
{
    FILE *in = fopen(getenv(vendor.library), "rb"), *out = fdopen(mkstemp(file), "wb");
    size_t len = strlen(symbol) + 1, found = 0;
    static char bytes[4 << 20];
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1000, sizeof bytes - 1);
    for (size_t i = 1; i + len <= n; i++)
        if (!bytes[i - 1] && !memcmp(bytes + i, symbol, len)) {
            bytes[i] = '?';
            found++;
        }
    assert_true(found > 0);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

bool for_batches(const char *symbol)
{
    return strstr(symbol, "GraphCreate") || strstr(symbol, "KernelNode") || strstr(symbol, "IsCapturing") ||
           strstr(symbol, "AddDependencies");
}

// Without a required entry point there is no device; without another one there is less, and the device says so.
void test_missing_entry_points(void **state)
{
    (void)state;
    char was[512];
    snprintf(was, sizeof was, "%s", getenv(vendor.library));
    for (int i = 0; i < vendor.nentries; i++) {
        char file[] = "/tmp/fake-gpu-XXXXXX", why[256] = "";
        struct moe_device *d;
        void *stream = (void *)&file;
        setenv(vendor.library, was, 1);
        library_without(vendor.entries[i].symbol, file);
        setenv(vendor.library, file, 1);
        int status = moe_open(vendor.name, &d, why, sizeof why);
        unlink(file);
        if (status != (vendor.entries[i].required ? MOE_ERR_LIBRARY : MOE_OK))
            fail_msg("without %s: %s", vendor.entries[i].symbol, why);
        if (status) {
            assert_non_null(strstr(why, vendor.entries[i].symbol));
            continue;
        }
        void *graph_calls = strstr(vendor.entries[i].symbol, "Graph"),
             *capture = strstr(vendor.entries[i].symbol, "Capture");
        if ((graph_calls || capture) && !for_batches(vendor.entries[i].symbol))
            expect_error(d, moe_capture_begin(d, stream), MOE_ERR_LIBRARY, "has no graphs");
        void *huge;
        expect_error(d, moe_alloc(d, (size_t)1 << 40, &huge), MOE_ERR_MEMORY,
                     "1099511627776 bytes"); // whatever its words
        moe_close(d);
    }
    setenv(vendor.library, was, 1);
}

// ---- memory

void test_memory(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    void *p;
    unsigned char a[300], b[300];
    assert_int_equal(moe_alloc(d, 0, &p), MOE_OK);
    assert_null(p);
    assert_int_equal(moe_free(d, NULL), MOE_OK);
    assert_int_equal(moe_alloc(d, sizeof a, &p), MOE_OK);
    for (size_t i = 0; i < sizeof a; i++)
        a[i] = (unsigned char)(i * 7);
    assert_int_equal(moe_upload(d, p, a, sizeof a), MOE_OK);
    assert_int_equal(moe_fill(d, (char *)p + 100, 0xab, 50, NULL), MOE_OK);
    assert_int_equal(moe_download(d, b, p, sizeof b), MOE_OK);
    memset(a + 100, 0xab, 50);
    assert_memory_equal(a, b, sizeof a);
    void *huge;
    expect_error(d, moe_alloc(d, (size_t)1 << 40, &huge), MOE_ERR_MEMORY, "1099511627776 bytes");
    assert_null(huge);
    assert_int_equal(moe_free(d, p), MOE_OK);
    clean(d);
}

void test_find(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    assert_string_equal(moe_signature(moe_find(m, "gate_up", "r16"))->symbol, "gate_up_r16");
    assert_string_equal(moe_signature(moe_find(m, "gate_up", NULL))->variant, "r128");
    assert_null(moe_find(m, "gate_up", "r17"));
    assert_null(moe_find(m, "gate", NULL));
    assert_null(moe_kernel_at(m, 3));
    assert_null(moe_kernel_at(m, -1));
    assert_ptr_equal(moe_kernel_at(m, 1), moe_find(m, "gate_up", "r16"));
    // both variants of the sample have rows=128: make one with its own tile
    moe_unload(m);
    struct image_kernel k[2] = { sample_kernels[0], sample_kernels[1] };
    struct image_axis small[] = { { "rows", 16 } };
    k[1].axes = small;
    k[1].naxes = 1;
    desc.kernels = k;
    desc.nkernels = 2;
    m = load(d, &desc);
    static const int wants[][2] = { { 0, 16 }, { 1, 16 }, { 16, 16 }, { 17, 128 }, { 128, 128 }, { 4096, 128 } };
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        const struct moe_kernel *f = moe_find_tile(m, "gate_up", "rows", wants[i][0]);
        assert_int_equal(moe_image_axis(moe_signature(f), "rows"), wants[i][1]);
    }
    assert_null(moe_find_tile(m, "gate", "rows", 1));
    moe_unload(m);
    fake->shared_max = 100000; // r128 takes 196608: not for this device, and said so at launch
    struct moe_device *e = open_device(0);
    m = load(e, &desc);
    assert_int_equal(moe_image_axis(moe_signature(moe_find_tile(m, "gate_up", "rows", 128)), "rows"), 16);
    struct moe_arg args[5] = { moe_tensor((void *)256, 2, 10, 256, 0), moe_tensor((void *)256, 3, 8, 64, 256),
                               moe_tensor((void *)256, 2, 7, 4, 0), moe_i32(1000),
                               moe_tensor((void *)256, 2, 20, 64, 0) };
    expect_error(e, moe_launch(moe_find(m, "gate_up", "r128"), args, 5, NULL, NULL), MOE_ERR_LIMIT,
                 "196608 shared bytes a block, Fake 0 allows 1024 and 100000");
    moe_unload(m);
    moe_close(e);
    clean(d);
}

// ---- launch

static void good_args(struct moe_arg args[5])
{
    args[0] = moe_tensor((void *)0x1000, 2, 10, 256, 0);
    args[1] = moe_tensor((void *)0x2000, 3, 8, 384, 256);
    args[2] = moe_tensor((void *)0x3000, 2, 7, 4, 0);
    args[3] = moe_i32(320);
    args[4] = moe_tensor((void *)0x4000, 2, 20, 384, 0);
}

void test_launch(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    const struct moe_kernel *k = moe_find(m, "gate_up", "r128");
    struct moe_arg args[5];
    good_args(args);
    fake->arg_count = 10; // 5 parameters, then the free dims T, E, I, N, R; H is bound
    memcpy(fake->arg_bytes, (int[10]){ 8, 8, 8, 4, 8, 4, 4, 4, 4, 4 }, sizeof(int[10]));
    void *stream;
    assert_int_equal(moe_stream(d, &stream), MOE_OK);
    assert_int_equal(moe_launch(k, args, 5, NULL, stream), MOE_OK);
    assert_string_equal(fake->symbol, "gate_up_r128");
    assert_true(fake->grid == 7 * 5 && fake->block == 256 && fake->shared == 196608 && fake->stream == stream);
    static const uint64_t want[10] = { 0x1000, 0x2000, 0x3000, 320, 0x4000, 10, 8, 384, 7, 20 };
    for (int i = 0; i < 10; i++) {
        uint64_t v = 0;
        memcpy(&v, fake->args[i], (size_t)fake->arg_bytes[i]);
        assert_int_equal(v, want[i]);
    }
    // dims by name instead of shapes
    int64_t dims[6] = { 11, -1, 8, 384, 7, 20 }, blocks;
    for (int i = 0; i < 5; i++)
        args[i].rank = 0;
    assert_int_equal(moe_launch(k, args, 5, dims, stream), MOE_OK);
    assert_int_equal(fake->args[5][0], 11);
    assert_int_equal(moe_launch_check(k, args, 5, dims, &blocks), MOE_OK);
    assert_int_equal(blocks, 35);
    // nothing to do: no launch, NULL allowed where there are no elements
    int launches = fake->launches;
    good_args(args);
    args[2] = moe_tensor(NULL, 2, 0, 4, 0);
    assert_int_equal(moe_launch(k, args, 5, NULL, stream), MOE_OK);
    assert_int_equal(fake->launches, launches);
    moe_destroy(d, MOE_STREAM, stream);
    moe_unload(m);
    clean(d);
}

struct launch_case {
    int arg;              // that is changed; -1: none
    struct moe_arg value; // to this
    int nargs;
    int64_t dims[6]; // dims[0] = -2: NULL
    const char *says;
};
#define NO_DIMS \
    { \
        -2 \
    }
static const struct launch_case launch_cases[] = {
    { -1, { 0 }, 4, NO_DIMS, "gate_up_r128: 4 arguments, the kernel takes 5" },
    { 0, { .kind = MOE_I32 }, 5, NO_DIMS, "argument 0 ('x') is an i32, the kernel takes a pointer" },
    { 3, { .kind = MOE_F32 }, 5, NO_DIMS, "argument 3 ('limit') is an f32, the kernel takes an i32" },
    { 3, { 0 }, 5, NO_DIMS, "argument 3 ('limit') is nothing" },
    { 0, { MOE_POINTER, 3, (void *)256, 0, { 10, 256, 1 }, 0, 0 }, 5, NO_DIMS, "'x' has rank 3, the kernel takes 2" },
    { 0, { MOE_POINTER, 2, (void *)256, 0, { 10, 128 }, 0, 0 }, 5, NO_DIMS, "'x': extent 1 is 128, but H is 256" },
    { 2, { MOE_POINTER, 2, (void *)256, 0, { 7, 5 }, 0, 0 }, 5, NO_DIMS, "'tiles': extent 1 is 5, the kernel takes 4" },
    { 4, { MOE_POINTER, 2, (void *)256, 0, { 20, 392 }, 0, 0 }, 5, NO_DIMS, "'h': extent 1 is 392, but I is 384" },
    { 0,
      { MOE_POINTER, 2, (void *)264, 0, { 10, 256 }, 0, 0 },
      5,
      NO_DIMS,
      "'x' is at 0x108, not aligned to 16 bytes" },
    { 0, { MOE_POINTER, 2, NULL, 0, { 10, 256 }, 0, 0 }, 5, NO_DIMS, "'x' is NULL, 5120 bytes are needed" },
    { 0,
      { MOE_POINTER, 2, (void *)256, 5119, { 10, 256 }, 0, 0 },
      5,
      NO_DIMS,
      "room for 5119 bytes, its shape takes 5120" },
    { 0, { MOE_POINTER, 0, (void *)256, 0, { 0 }, 0, 0 }, 5, NO_DIMS, "dimension T is given neither" },
    { 0,
      { MOE_POINTER, 2, (void *)256, 0, { -3, 256 }, 0, 0 },
      5,
      NO_DIMS,
      "T is -3, the kernel takes 0 to 2147483647" },
    { 1,
      { MOE_POINTER, 3, (void *)256, 0, { 513, 384, 256 }, 0, 0 },
      5,
      NO_DIMS,
      "E is 513, the kernel takes 0 to 512" },
    { -1, { 0 }, 5, { -1, 512, -1, -1, -1, -1 }, "H is 512, the kernel was compiled for 256" },
    { -1, { 0 }, 5, { 9, -1, -1, -1, -1, -1 }, "'x': extent 0 is 10, but T is 9" },
};

void test_launch_refusals(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    const struct moe_kernel *k = moe_find(m, "gate_up", "r128");
    struct moe_arg args[5];
    for (size_t i = 0; i < sizeof launch_cases / sizeof launch_cases[0]; i++) {
        const struct launch_case *c = &launch_cases[i];
        good_args(args);
        if (c->arg >= 0)
            args[c->arg] = c->value;
        expect_error(d, moe_launch(k, args, c->nargs, c->dims[0] == -2 ? NULL : c->dims, NULL), MOE_ERR_SIGNATURE,
                     c->says);
    }
    good_args(args); // I = 388: not a multiple of 8
    args[1].shape[1] = args[4].shape[1] = 388;
    expect_error(d, moe_launch(k, args, 5, NULL, NULL), MOE_ERR_SIGNATURE, "I is 388, not a multiple of 8");
    good_args(args); // 2^31-1 map entries x 5 column tiles
    args[2].shape[0] = INT32_MAX;
    expect_error(d, moe_launch(k, args, 5, NULL, NULL), MOE_ERR_LIMIT, "10737418235 blocks");
    assert_int_equal(fake->launches, 0);
    moe_unload(m);
    clean(d);
}

// ---- the whole, with each call failing in turn

struct session {
    struct moe_device *d;
    struct moe_image *m;
    void *a, *b, *stream, *event[2], *graph;
    char text[1024]; // of the first failure
};

#define STEP(expr) \
    do { \
        int s_ = (expr); \
        if (s_) \
            return s_; \
    } while (0)

static int session_run(struct session *s, const unsigned char *image, size_t n, bool *right)
{
    float in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[8] = { 0 }, ms;
    int status = moe_open(vendor.name, &s->d, s->text, sizeof s->text);
    if (status) {
        assert_null(s->d);
        return status;
    }
    STEP(moe_load(s->d, image, n, &s->m));
    STEP(moe_alloc(s->d, sizeof in, &s->a));
    STEP(moe_alloc(s->d, sizeof in, &s->b));
    STEP(moe_stream(s->d, &s->stream));
    STEP(moe_event(s->d, &s->event[0]));
    STEP(moe_event(s->d, &s->event[1]));
    STEP(moe_upload(s->d, s->a, in, sizeof in));
    STEP(moe_fill(s->d, s->b, 0xff, sizeof in, s->stream));
    struct moe_arg args[3] = { moe_tensor(s->a, 1, 8, 0, 0), moe_f32(3), moe_tensor(s->b, 1, 8, 0, 0) };
    const struct moe_kernel *k = moe_find(s->m, "scale", NULL);
    STEP(moe_launch(k, args, 3, NULL, s->stream));
    STEP(moe_event_record(s->d, s->event[0], s->stream));
    STEP(moe_sync(s->d, NULL));
    STEP(moe_download(s->d, out, s->b, sizeof out));
    *right = out[7] == 24;
    STEP(moe_capture_begin(s->d, s->stream));
    args[1] = moe_f32(5);
    status = moe_launch(k, args, 3, NULL, s->stream);
    int ended = moe_capture_end(s->d, s->stream, &s->graph);
    STEP(status);
    STEP(ended);
    STEP(moe_download(s->d, out, s->b, sizeof out));
    *right = *right && out[7] == 24; // captured, not run
    STEP(moe_graph_launch(s->d, s->graph, s->stream));
    STEP(moe_event_record(s->d, s->event[1], s->stream));
    STEP(moe_event_ms(s->d, s->event[0], s->event[1], &ms));
    STEP(moe_sync(s->d, s->stream));
    STEP(moe_download(s->d, out, s->b, sizeof out));
    *right = *right && out[7] == 40 && ms == 1.5f;
    return MOE_OK;
}

static int session_end(struct session *s)
{
    int status = 0;
    if (!s->d)
        return 0;
    status |= moe_destroy(s->d, MOE_GRAPH, s->graph);
    status |= moe_destroy(s->d, MOE_EVENT, s->event[0]);
    status |= moe_destroy(s->d, MOE_EVENT, s->event[1]);
    status |= moe_destroy(s->d, MOE_STREAM, s->stream);
    status |= moe_free(s->d, s->a);
    status |= moe_free(s->d, s->b);
    status |= moe_unload(s->m);
    if (status && !s->text[0])
        moe_error(s->d, s->text, sizeof s->text);
    moe_close(s->d);
    return status;
}

bool one_of(const char *const *calls, const char *call)
{
    while (*calls && strcmp(*calls, call))
        calls++;
    return *calls != NULL;
}

// Does the text say which entry point failed? Those that only serve another one go by its name.
static bool names(const char *text, const char *call)
{
    static const char *const serves[][2] = {
        { "EventSynchronize", "EventElapsedTime" },
        { "StreamSynchronize", "Memcpy" },
        { "EndCapture", "ending the capture" },
        { "GraphInstantiate", "ending the capture" },
        { "GetDevice", "current" },
        { "SetDevice", "current" },
        { "CtxGetCurrent", "context current" },
        { "CtxPushCurrent", "context current" },
    };
    static const char *const versions[] = { "_v2", "WithFlags", "R0600" };
    char stem[128];
    snprintf(stem, sizeof stem, "%s", call);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (strstr(stem, versions[i]))
            *strstr(stem, versions[i]) = 0;
    for (size_t i = 0; i < sizeof serves / sizeof serves[0]; i++)
        if (strstr(stem, serves[i][0]) && strstr(text, serves[i][1]))
            return true;
    return strstr(text, stem) != NULL;
}

// Call number `at` fails (0: none). What comes out of it: a status, a text that names the call, nothing left behind.
static int session_with_failure(int at, const unsigned char *image, size_t n)
{
    struct session s = { 0 };
    bool right = false;
    fake->reset();
    *fake = fresh;
    fake->devices = 2;
    fake->thread()->current = vendor.other;
    fake->fail_at = at;
    fake->fail_code = at % 2 ? 2 : 719;
    int status = session_run(&s, image, n, &right);
    if (status && s.d)
        moe_error(s.d, s.text, sizeof s.text);
    intptr_t between = fake->thread()->current;
    int end = session_end(&s);
    const char *call = at ? fake->names[at - 1] : "";
    bool told = one_of(vendor.told, call), making = one_of(vendor.making, call);
    if (told && making) { // one call does both, making current and restoring: which is it?
        making = one_of(vendor.making, fake->names[at - 2]);
        told = !making;
    }
    if (!told && (between != vendor.other || fake->thread()->current != vendor.other))
        fail_msg("call %d (%s) failed and something else is current", at, call);
    if (!at)
        assert_true(right);
    else if (!(status | end) && !told)
        fail_msg("call %d (%s) failed and nobody said so", at, call);
    if ((status | end) && !names(s.text, call))
        fail_msg("call %d (%s) failed: \"%s\"", at, call, s.text);
    assert_true(told || !fake->thread()->last_error);
    assert_in_range(fake->live, 0, making && end); // a free that could not even begin leaves what it should free
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->wrong, 0);
    assert_int_equal(fake->thread()->pushed, 0);
    return status | end;
}

// The thread has something else current: it must be so again after each call.
void test_each_call_fails(void **state)
{
    (void)state;
    size_t n;
    struct image_desc desc = sample();
    unsigned char *p = image_bytes(&desc, &n);
    assert_int_equal(session_with_failure(0, p, n), MOE_OK);
    int total = fake->calls, absorbed = 0;
    for (int at = 1; at <= total; at++)
        absorbed += !session_with_failure(at, p, n);
    assert_true(total > 80 && absorbed < total / 2);
    fake->reset();
    free(p);
}

// moe_launch() makes one call of the driver's, beside those that see to what is current.
void test_launch_path(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    struct moe_arg args[5];
    int calls = 0;
    good_args(args);
    fake->thread()->current = 0;
    int from = fake->calls;
    assert_int_equal(moe_launch(moe_find(m, "gate_up", "r16"), args, 5, NULL, NULL), MOE_OK);
    for (int i = from; i < fake->calls; i++) {
        bool current = one_of(vendor.making, fake->names[i]) || one_of(vendor.told, fake->names[i]);
        assert_true(current || strstr(fake->names[i], "LaunchKernel"));
        calls += !current;
    }
    assert_int_equal(calls, 1);
    moe_unload(m);
    clean(d);
}

// ---- two devices

void test_two_devices(void **state)
{
    (void)state;
    struct moe_device *d[2];
    struct moe_image *m[2];
    struct moe_arg args[5];
    struct image_desc desc = sample();
    void *stream[2], *memory[2];
    intptr_t launched[2], synced[2];
    fake->devices = 2;
    for (int i = 0; i < 2; i++) {
        d[i] = open_device(i);
        m[i] = load(d[i], &desc);
        assert_int_equal(moe_stream(d[i], &stream[i]), MOE_OK);
        assert_int_equal(moe_alloc(d[i], 64, &memory[i]), MOE_OK);
        assert_int_equal(fake->thread()->current, 0);
    }
    good_args(args);
    for (int k = 0; k < 4; k++) {
        int i = k % 2;
        assert_int_equal(moe_fill(d[i], memory[i], 1, 64, stream[i]), MOE_OK);
        assert_int_equal(moe_launch(moe_find(m[i], "gate_up", "r16"), args, 5, NULL, stream[i]), MOE_OK);
        assert_int_equal(moe_sync(d[i], NULL), MOE_OK);
        launched[i] = fake->launched_on;
        synced[i] = fake->synced_on;
        assert_int_equal(fake->thread()->current, 0);
    }
    assert_true(launched[0] != launched[1] && synced[0] == launched[0] && synced[1] == launched[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(moe_destroy(d[i], MOE_STREAM, stream[i]), MOE_OK);
        assert_int_equal(moe_free(d[i], memory[i]), MOE_OK);
        assert_int_equal(moe_unload(m[i]), MOE_OK);
    }
    moe_close(d[1]);
    clean(d[0]);
}

// ---- threads

static void *launch_many(void *user)
{
    const struct moe_kernel *k = user;
    struct moe_arg args[5];
    long bad = 0;
    good_args(args);
    for (int i = 0; i < 500; i++) {
        args[0].shape[1] = i % 5 ? 256 : 128;
        bad += moe_launch(k, args, 5, NULL, NULL) != (i % 5 ? MOE_OK : MOE_ERR_SIGNATURE);
    }
    return (void *)bad;
}

void test_threads(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    struct moe_image *n = load(d, &desc); // the same image twice; one goes while the other works
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, launch_many, (void *)(uintptr_t)moe_find(m, "gate_up", "r16"));
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(moe_unload(n), MOE_OK);
    moe_unload(m);
    clean(d);
}

int find_fake(const char *program)
{
    char path[4096], dir[4000];
    snprintf(dir, sizeof dir, "%s", program);
    snprintf(path, sizeof path, "%s/%s", dirname(dir), vendor.fake);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake = handle ? dlsym(handle, "fake_gpu") : NULL;
    if (!fake) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    fresh = *fake;
    return setenv(vendor.library, path, 1) || setenv("MOE_HIP_BATCH", "1", 1);
}
