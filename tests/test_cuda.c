// libmoert over a fake libcuda: every launch check, every error path, no leaks, the caller's context restored.
// The fake is $FAKE_CUDA, else libfakecuda.so beside this program.
#include "fake_cuda.h"
#include "image_sample.h"

#include "../runtime/moert.h"

#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fake_cuda *fake, fresh;

static int setup(void **state)
{
    (void)state;
    fake->reset();
    *fake = fresh;
    return 0;
}

static unsigned char *image_bytes(const struct image_desc *d, size_t *n)
{
    char err[IMAGE_ERR_MAX];
    *n = moe_image_size(d);
    unsigned char *p = malloc(*n ? *n : 1);
    if (!moe_image_write(d, p, *n, err))
        fail_msg("%s", err);
    return p;
}

static struct moe_device *open_device(void)
{
    struct moe_device *d;
    char why[256];
    if (moe_open("cuda:0", &d, why, sizeof why))
        fail_msg("%s", why);
    return d;
}

static struct moe_image *load(struct moe_device *d, const struct image_desc *desc)
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

static void clean(struct moe_device *d)
{
    moe_close(d);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->bytes, 0);
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->thread()->pushed, 0);
    assert_null(fake->thread()->context);
    assert_int_equal(fake->wrong, 0);
}

static void expect_error(struct moe_device *d, int status, int want, const char *says)
{
    char text[1024];
    moe_error(d, text, sizeof text);
    if (status != want || !strstr(text, says))
        fail_msg("%s \"%s\"; expected %s with \"%s\"", moe_status_name(status), text, moe_status_name(want), says);
}

// ---- opening

static void test_open(void **state)
{
    (void)state;
    struct moe_device *d;
    char why[256];
    static const char *const bad[] = { "cuda:x", "cuda:", "cuda:-1", "cuda:12345", "hip:0", "", "cud", "cuda0" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(moe_open(bad[i], &d, why, sizeof why), MOE_ERR_ARGUMENT);
        assert_null(d);
        assert_non_null(strstr(why, "expected cuda:N"));
    }
    assert_int_equal(moe_open("cuda:3", &d, why, sizeof why), MOE_ERR_NO_DEVICE);
    assert_string_equal(why, "no device cuda:3: the driver shows 1");
    fake->devices = 0;
    assert_int_equal(moe_open("cuda:0", &d, NULL, 0), MOE_ERR_NO_DEVICE);
    fake->devices = 1;
    d = open_device();
    struct moe_info info = { .size = sizeof info };
    assert_int_equal(moe_info(d, &info), MOE_OK);
    assert_string_equal(info.name, "Fake 0");
    assert_string_equal(info.arch, "sm_90a");
    assert_int_equal(info.shared_max, 232448);
    assert_int_equal(info.driver_version, 13000);
    info.size = 0;
    assert_int_equal(moe_info(d, &info), MOE_ERR_ARGUMENT);
    moe_close(NULL);
    clean(d);
}

static void test_no_library(void **state)
{
    (void)state;
    char was[512], why[256];
    struct moe_device *d;
    snprintf(was, sizeof was, "%s", getenv("MOE_CUDA_LIBRARY"));
    setenv("MOE_CUDA_LIBRARY", "libcuda-is-not-here.so", 1);
    assert_int_equal(moe_open("cuda", &d, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "libcuda-is-not-here.so"));
    assert_null(strchr(why, '\n'));
    setenv("MOE_CUDA_LIBRARY", "libc.so.6", 1);
    assert_int_equal(moe_open("cuda", &d, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "lacks cuInit"));
    setenv("MOE_CUDA_LIBRARY", was, 1);
}

// ---- memory

static void test_memory(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
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

// ---- images

static void expect_load(struct moe_device *d, const struct image_desc *desc, int want, const char *says)
{
    struct moe_image *m;
    size_t n;
    unsigned char *p = image_bytes(desc, &n);
    expect_error(d, moe_load(d, p, n, &m), want, says);
    assert_null(m);
    free(p);
}

struct arch_case {
    const char *image;
    int major, minor;
    enum image_code kind;
    bool ok;
};
static const struct arch_case arch_cases[] = {
    { "sm_90a", 9, 0, IMAGE_CUBIN, true },  { "sm_90a", 8, 0, IMAGE_CUBIN, false },
    { "sm_90a", 10, 0, IMAGE_PTX, false },  { "sm_90", 9, 0, IMAGE_CUBIN, true },
    { "sm_80", 9, 0, IMAGE_CUBIN, false },  { "sm_80", 9, 0, IMAGE_PTX, true },
    { "sm_80", 8, 6, IMAGE_CUBIN, true },   { "sm_86", 8, 0, IMAGE_CUBIN, false },
    { "sm_86", 8, 0, IMAGE_PTX, false },    { "sm_100a", 10, 0, IMAGE_CUBIN, true },
    { "sm_100a", 10, 3, IMAGE_PTX, false }, { "sm_100f", 10, 3, IMAGE_CUBIN, true },
    { "sm_100f", 12, 0, IMAGE_PTX, false }, { "gfx942", 9, 0, IMAGE_HSACO, false },
    { "sm_90b", 9, 0, IMAGE_PTX, false },   { "sm_9", 9, 0, IMAGE_PTX, false },
    { "sm_90", 9, 0, IMAGE_HSACO, false },  { "sm_90", 9, 0, IMAGE_NONE, false },
};

static void test_arches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof arch_cases / sizeof arch_cases[0]; i++) {
        const struct arch_case *a = &arch_cases[i];
        struct image_desc desc = sample_image;
        desc.arch = a->image;
        desc.kind = a->kind;
        desc.ptx_size = 0;
        desc.code = "code";
        desc.code_size = a->kind == IMAGE_NONE ? 0 : 4;
        fake->major = a->major;
        fake->minor = a->minor;
        struct moe_device *d = open_device();
        if (a->ok)
            moe_unload(load(d, &desc));
        else
            expect_load(d, &desc, MOE_ERR_ARCH, a->image);
        clean(d);
    }
}

static void test_load_refusals(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
    struct image_desc desc = sample_image;
    desc.ptx_size = 0;
    desc.kind = IMAGE_PTX;
    desc.code = "bad";
    desc.code_size = 3;
    expect_load(d, &desc, MOE_ERR_IMAGE, "line 1: bad");
    desc.code = "future";
    desc.code_size = 6;
    expect_load(d, &desc, MOE_ERR_IMAGE, "the driver is for CUDA 13.0, the PTX needs a later one");
    desc.code = "alien";
    desc.code_size = 5;
    desc.kind = IMAGE_CUBIN;
    expect_load(d, &desc, MOE_ERR_IMAGE, "CUDA_ERROR_FAKE (209, words of the driver)");
    desc.ptx = "good ptx"; // beside the cubin: used when the cubin is not for this device
    desc.ptx_size = 8;
    moe_unload(load(d, &desc));
    size_t n;
    struct moe_image *m;
    unsigned char *p = image_bytes(&sample_image, &n);
    expect_error(d, moe_load(d, p, n - 1, &m), MOE_ERR_IMAGE, "image: the image says it has");
    p[300] ^= 1;
    expect_error(d, moe_load(d, p, n, &m), MOE_ERR_IMAGE, "image: checksum");
    free(p);
    moe_unload(load(d, &sample_image)); // still usable
    assert_int_equal(moe_unload(NULL), MOE_OK);
    clean(d);
}

static void test_find(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
    struct moe_image *m = load(d, &sample_image);
    assert_int_equal(fake->shared_set, 65536); // r16, the last above 48 KB
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
    struct image_desc desc = sample_image;
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
    struct moe_device *e = open_device();
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

static void test_launch(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
    struct moe_image *m = load(d, &sample_image);
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

static void test_launch_refusals(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
    struct moe_image *m = load(d, &sample_image);
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
    char why[256] = "";
    int status = moe_open("cuda:0", &s->d, why, sizeof why);
    if (status) {
        assert_true(why[0]);
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
    moe_close(s->d);
    return status;
}

static bool may_be_absorbed(const char *call)
{
    return !strcmp(call, "cuDeviceGetAttribute") || !strcmp(call, "cuCtxPopCurrent_v2") ||
           !strcmp(call, "cuDevicePrimaryCtxRelease_v2") || !strcmp(call, "cuGraphDestroy");
}

// A free that cannot even make the context current says so, and what it should free stays: one object.
static bool may_leave_one(const char *call, int end)
{
    return end && (!strcmp(call, "cuCtxGetCurrent") || !strcmp(call, "cuCtxPushCurrent_v2"));
}

// The program's main thread has another context current: it must be so again after each call.
static void test_each_call_fails(void **state)
{
    (void)state;
    size_t n;
    unsigned char *p = image_bytes(&sample_image, &n);
    int other, total = 0, absorbed = 0;
    for (int at = 0; at == 0 || at <= total; at++) {
        struct session s = { 0 };
        bool right = false;
        char text[1024] = "";
        fake->reset();
        *fake = fresh;
        fake->thread()->context = &other;
        fake->fail_at = at;
        fake->fail_code = at % 2 ? 2 : 719;
        int status = session_run(&s, p, n, &right);
        if (s.d)
            moe_error(s.d, text, sizeof text);
        assert_true(fake->thread()->context == &other || (at && !strcmp(fake->names[at - 1], "cuCtxPushCurrent_v2")));
        int end = session_end(&s);
        if (at == 0) {
            assert_int_equal(status | end, 0);
            assert_true(right);
            total = fake->calls;
        } else if (!(status | end)) {
            absorbed++; // what is only told, or undone
            if (!may_be_absorbed(fake->names[at - 1]))
                fail_msg("call %d (%s) failed and nobody said so", at, fake->names[at - 1]);
        } else if (status && s.d && !text[0]) {
            fail_msg("call %d (%s) failed without a text", at, fake->names[at - 1]);
        }
        assert_in_range(fake->live, 0, at && may_leave_one(fake->names[at - 1], end));
        assert_int_equal(fake->contexts, 0);
        assert_int_equal(fake->wrong, 0);
        assert_int_equal(fake->thread()->pushed, 0);
    }
    assert_true(total > 80 && absorbed < total / 2);
    fake->reset();
    free(p);
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

static void test_threads(void **state)
{
    (void)state;
    struct moe_device *d = open_device();
    struct moe_image *m = load(d, &sample_image);
    struct moe_image *n = load(d, &sample_image); // the same image twice; one goes while the other works
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

static int find_fake(const char *program)
{
    char path[4096], dir[4000];
    const char *named = getenv("FAKE_CUDA");
    snprintf(dir, sizeof dir, "%s", program);
    if (named)
        snprintf(path, sizeof path, "%s", named);
    else
        snprintf(path, sizeof path, "%s/libfakecuda.so", dirname(dir));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake = handle ? dlsym(handle, "fake_cuda") : NULL;
    if (!fake) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    fresh = *fake;
    return setenv("MOE_CUDA_LIBRARY", path, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open, setup),
        cmocka_unit_test_setup(test_no_library, setup),
        cmocka_unit_test_setup(test_memory, setup),
        cmocka_unit_test_setup(test_arches, setup),
        cmocka_unit_test_setup(test_load_refusals, setup),
        cmocka_unit_test_setup(test_find, setup),
        cmocka_unit_test_setup(test_launch, setup),
        cmocka_unit_test_setup(test_launch_refusals, setup),
        cmocka_unit_test_setup(test_each_call_fails, setup),
        cmocka_unit_test_setup(test_threads, setup),
    };
    if (argc < 1 || find_fake(argv[0]))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
