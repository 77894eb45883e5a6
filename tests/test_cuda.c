// libmoert's CUDA driver over a fake libcuda: what is CUDA's own. The tests of every driver: driver_tests.c.
#include "driver_tests.h"

#include "../runtime/cuda_abi.h"
#include "../runtime/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRY(required, member, symbol, params) { #symbol, required },
static const struct entry_point entries[] = { CUDA_SYMBOLS(ENTRY) };
static const char *const told[] = { "cuDeviceGetAttribute", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2",
                                    "cuGraphDestroy", NULL };
static const char *const making[] = { "cuCtxGetCurrent", "cuCtxPushCurrent_v2", NULL };
const struct vendor vendor = { "cuda",
                               "MOE_CUDA_LIBRARY",
                               "libfakecuda.so",
                               "sm_90a",
                               IMAGE_CUBIN,
                               entries,
                               sizeof entries / sizeof entries[0],
                               0x1000,
                               told,
                               making,
                               true };

static void test_open(void **state)
{
    (void)state;
    struct moe_device *d;
    char why[256];
    static const char *const bad[] = { "cuda:x", "cuda:", "cuda:-1", "cuda:12345", "gpu:0", "", "cud", "cuda0" };
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
    d = open_device(0);
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

// A context of that device which is current is taken, not retained and not released; one of another device is left alone.
static void test_adopts(void **state)
{
    (void)state;
    fake->devices = 2;
    struct moe_device *primary = open_device(1), *adopted, *other;
    char why[256];
    assert_int_equal(fake->contexts, 1);
    assert_int_equal(moe_sync(primary, NULL), MOE_OK);
    intptr_t context = fake->synced_on;
    assert_true(context != 0);
    fake->thread()->current = context;
    assert_int_equal(moe_open("cuda:1", &adopted, why, sizeof why), MOE_OK);
    assert_int_equal(fake->contexts, 1);
    assert_int_equal(moe_open("cuda:0", &other, why, sizeof why), MOE_OK);
    assert_int_equal(fake->contexts, 2);
    fake->synced_on = 0;
    assert_int_equal(moe_sync(adopted, NULL), MOE_OK);
    assert_true(fake->synced_on == context && fake->thread()->current == context);
    assert_int_equal(moe_sync(other, NULL), MOE_OK);
    assert_true(fake->synced_on != context && fake->thread()->current == context);
    moe_close(adopted);
    assert_int_equal(fake->contexts, 2);
    moe_close(other);
    fake->thread()->current = 0;
    clean(primary);
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
        struct moe_device *d = open_device(0);
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
    struct moe_device *d = open_device(0);
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

static void test_shared(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct moe_image *m = load(d, &sample_image);
    assert_int_equal(fake->shared_set, 65536); // r16, the last above 48 KB
    moe_unload(m);
    clean(d);
}

// ---- tensor maps, persistent grids: the sample's kernel "take", with boxes of w and x

enum { TAKE_ARGS = 10 }; // as gate_up: 5 parameters, then the free dims T, E, I, N, R; H is bound

static const struct moe_kernel *open_take(struct moe_device **d, struct moe_image **m)
{
    *d = open_device(0);
    *m = load(*d, &sample_image);
    fake->arg_count = TAKE_ARGS;
    memcpy(fake->arg_bytes, (int[TAKE_ARGS]){ 8, 8, 8, 4, 8, 4, 4, 4, 4, 4 }, sizeof(int[TAKE_ARGS]));
    fake->map_count = 2;
    return moe_find(*m, "take", NULL);
}

static void take_args(struct moe_arg a[5], int seed, int tiles)
{
    uintptr_t at = 0x10000 * (uintptr_t)(1 + seed);
    a[0] = moe_tensor((void *)at, 2, 10 + seed, 256, 0);
    a[1] = moe_tensor((void *)(at + 0x1000), 3, 8, 384, 256);
    a[2] = moe_tensor((void *)(at + 0x2000), 2, tiles, 4, 0);
    a[3] = moe_i32(64); // one tile of columns
    a[4] = moe_tensor((void *)(at + 0x3000), 2, 20, 384, 0);
}

static void expect_maps(const struct fake_launch *l, int seed)
{
    uint64_t at = 0x10000 * (uint64_t)(1 + seed);
    const struct fake_map want[2] = { { .base = at + 0x1000,
                                        .dims = { 256, 384, 8 },
                                        .strides = { 512, 512 * 384 },
                                        .box = { 64, 128, 1 },
                                        .steps = { 1, 1, 1 },
                                        .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                        .rank = 3,
                                        .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                        .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                        .mark = 0x5a },
                                      { .base = at,
                                        .dims = { 256, 10 + (uint64_t)seed },
                                        .strides = { 512 },
                                        .box = { 32, 64 },
                                        .steps = { 1, 1 },
                                        .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                        .rank = 2,
                                        .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                        .mark = 0x5a } };
    assert_string_equal(l->symbol, "take");
    assert_memory_equal(l->maps, want, sizeof want);
}

static void test_maps(void **state)
{
    (void)state;
    struct moe_device *d;
    struct moe_image *m;
    const struct moe_kernel *k = open_take(&d, &m);
    struct moe_arg a[5];
    for (int seed = 0; seed < 3; seed++) {
        take_args(a, seed, 5);
        assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
        expect_maps(&fake->log[fake->launches - 1], seed);
        assert_int_equal(fake->grid, 5);
        assert_int_equal(fake->block, 160);
    }
    take_args(a, 0, 5); // nothing in x: one row of it at an address that is none
    a[0] = moe_tensor(NULL, 2, 0, 256, 0);
    assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
    const struct fake_map *x = &fake->log[fake->launches - 1].maps[1];
    assert_true(x->dims[0] == 256 && x->dims[1] == 1 && x->strides[0] == 512 && x->base);
    int calls = fake->calls;
    take_args(a, 0, 0); // no blocks: nothing is made
    assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
    assert_int_equal(fake->calls, calls);
    moe_unload(m);
    clean(d);
}

// A tensor's rows must be of 16 bytes, whatever the image requires of them. An empty row is none.
static void test_map_rows(void **state)
{
    (void)state;
    struct image_dim dims[6];
    struct image_kernel k = sample_kernels[3];
    const struct image_box box = { 4, 8, 8, 0 }; // of h [R, I]
    struct image_desc desc = sample_image;
    struct moe_arg a[5];
    memcpy(dims, sample_dims, sizeof dims);
    dims[3].multiple = 1;
    k.dims = dims;
    k.boxes = &box;
    k.nboxes = desc.nkernels = 1;
    desc.kernels = &k;
    struct moe_device *d = open_device(0);
    struct moe_image *m = load(d, &desc);
    take_args(a, 0, 5);
    for (int i = 376; i <= 392; i++) {
        a[1].shape[1] = a[4].shape[1] = i;
        int status = moe_launch(moe_kernel_at(m, 0), a, 5, NULL, NULL);
        if (i % 8)
            expect_error(d, status, MOE_ERR_SIGNATURE, " bytes, the copy engine takes multiples of 16");
        else
            assert_int_equal(status, MOE_OK);
    }
    expect_error(d, MOE_ERR_SIGNATURE, MOE_ERR_SIGNATURE, "take: 'h' has rows of 782 bytes");
    assert_int_equal(fake->launches, 3);
    moe_unload(m);
    clean(d);
}

static void test_persistent(void **state)
{
    (void)state;
    struct moe_device *d;
    struct moe_image *m;
    const struct moe_kernel *k = open_take(&d, &m);
    struct moe_arg a[5];
    int64_t blocks;
    static const int tiles[] = { 1, 13, 14, 15, 16, 1000, INT32_MAX }; // 7 multiprocessors, 2 blocks each
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        take_args(a, 0, tiles[i]);
        assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
        assert_int_equal(fake->grid, tiles[i] < 14 ? tiles[i] : 14);
        assert_int_equal(moe_launch_check(k, a, 5, NULL, &blocks), MOE_OK);
        assert_int_equal(blocks, fake->grid);
    }
    a[3] = moe_i32(65); // two tiles of columns: the number of a tile has 31 bits
    expect_error(d, moe_launch(k, a, 5, NULL, NULL), MOE_ERR_LIMIT, "take: 4294967294 blocks");
    fake->map_count = 0; // the same tiles, a block each
    take_args(a, 0, 1000);
    assert_int_equal(moe_launch(moe_find(m, "gate_up", "r16"), a, 5, NULL, NULL), MOE_OK);
    assert_int_equal(fake->grid, 1000);
    moe_unload(m);
    clean(d);
}

// Maps of a batch: each node has its own, also when it is set again.
static void test_batch_maps(void **state)
{
    (void)state;
    enum { N = 3 };
    struct moe_device *d;
    struct moe_image *m;
    void *stream, *slots[N][TAKE_ARGS + 2];
    const struct moe_kernel *k = open_take(&d, &m);
    assert_int_equal(moe_stream(d, &stream), MOE_OK);
    for (int round = 0; round < 3; round++) {
        struct launch_item item[N];
        union launch_value value[N][TAKE_ARGS];
        struct launch_map map[N][2];
        struct moe_arg a[5];
        for (int i = 0; i < N; i++) {
            take_args(a, 10 * round + i, 7 + i);
            item[i].args = slots[i];
            assert_int_equal(launch_resolve(k, a, 5, NULL, &item[i], value[i], map[i]), MOE_OK);
        }
        if (round == 0)
            launch_prepare(m, item, N);
        int from = fake->launches;
        assert_int_equal(launch_items(m, item, N, stream), MOE_OK);
        memset(map, 0, sizeof map); // they were read
        assert_int_equal(fake->launches, from + N);
        for (int i = 0; i < N; i++)
            expect_maps(&fake->log[from + i], 10 * round + i);
        assert_int_equal(fake->replays, round + 1);
    }
    assert_int_equal(moe_destroy(d, MOE_STREAM, stream), MOE_OK);
    moe_unload(m);
    clean(d);
}

// Launches of a pattern by a chain and one by one; which of them were early, a bit each.
static unsigned early_of(struct moe_device *d, const struct moe_image *m, unsigned pattern, bool chained)
{
    enum { N = 4 };
    struct launch_item item[N];
    union launch_value value[N][TAKE_ARGS];
    void *stream = NULL, *slots[N][TAKE_ARGS];
    unsigned early = 0;
    assert_int_equal(moe_stream(d, &stream), MOE_OK);
    for (int i = 0; i < N; i++) {
        struct moe_arg a[5];
        take_args(a, i, 7);
        item[i].args = slots[i];
        assert_int_equal(launch_resolve(moe_find(m, "gate_up", "r16"), a, 5, NULL, &item[i], value[i], NULL), MOE_OK);
        assert_false(item[i].dependent); // what moe_launch() launches
        item[i].dependent = pattern >> i & 1;
    }
    if (chained)
        launch_prepare(m, item, N);
    int from = fake->launches, replays = fake->replays;
    assert_int_equal(launch_items(m, item, N, stream), MOE_OK);
    assert_int_equal(fake->launches, from + N);
    assert_int_equal(fake->replays - replays, chained);
    for (int i = 0; i < N; i++)
        early |= (unsigned)fake->log[from + i].dependent << i;
    assert_int_equal(moe_destroy(d, MOE_STREAM, stream), MOE_OK);
    return early;
}

// Launches start early where driver and device know how; else they are ordinary ones.
static void test_early(void **state)
{
    static const struct {
        const char *without;
        int major;
        unsigned alone, chained;
    } cases[] = { { NULL, 9, 10, 10 },
                  { NULL, 8, 0, 0 },
                  { NULL, 10, 10, 10 },
                  { "cuLaunchKernelEx", 9, 0, 10 },
                  { "cuGraphAddDependencies_v2", 9, 10, 0 } };
    char was[512];
    struct fake_gpu *whole = fake;
    (void)state;
    snprintf(was, sizeof was, "%s", getenv(vendor.library));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[] = "/tmp/fake-gpu-XXXXXX";
        struct image_desc desc = sample();
        if (cases[i].without) {
            library_without(cases[i].without, file);
            setenv(vendor.library, file, 1);
            void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            assert_non_null(handle);
            fake = dlsym(handle, "fake_gpu");
        }
        fake->major = cases[i].major;
        desc.arch = cases[i].major == 9 ? "sm_90a" : cases[i].major == 8 ? "sm_80" : "sm_100a";
        struct moe_device *d = open_device(0);
        struct moe_image *m = load(d, &desc);
        assert_int_equal(early_of(d, m, 10, false), cases[i].alone);
        assert_int_equal(early_of(d, m, 10, true), cases[i].chained);
        assert_int_equal(early_of(d, m, 0, false), 0);
        moe_unload(m);
        clean(d);
        if (cases[i].without)
            unlink(file);
        setenv(vendor.library, was, 1);
        fake = whole;
    }
}

static void test_map_fails(void **state)
{
    (void)state;
    struct moe_device *d;
    struct moe_image *m;
    const struct moe_kernel *k = open_take(&d, &m);
    struct moe_arg a[5];
    take_args(a, 0, 5);
    int from = fake->calls, encodes = 0;
    assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
    int calls = fake->calls - from, live = fake->live;
    for (int i = 0; i < calls; i++) {
        if (strcmp(fake->names[from + i], "cuTensorMapEncodeTiled"))
            continue;
        fake->fail_at = fake->calls + i + 1;
        fake->fail_code = 1;
        expect_error(d, moe_launch(k, a, 5, NULL, NULL), MOE_ERR_DEVICE,
                     encodes
                         ? "cuTensorMapEncodeTiled: CUDA_ERROR_FAKE (1, words of the driver): take: boxes of 64 x 32, "
                           "swizzle 0, of bf16 at 0x10000, rank 2, 10 x 256 in the last"
                         : "take: boxes of 128 x 64, swizzle 3, of bf16 at 0x11000, rank 3, 384 x 256 in the last");
        assert_int_equal(fake->launches, 1);
        assert_int_equal(fake->live, live);
        assert_int_equal(fake->thread()->current, 0);
        encodes++;
    }
    assert_int_equal(encodes, 2);
    fake->fail_at = 0;
    assert_int_equal(moe_launch(k, a, 5, NULL, NULL), MOE_OK);
    moe_unload(m);
    clean(d);
}

static void test_no_maps(void **state)
{
    (void)state;
    char was[512], file[] = "/tmp/fake-gpu-XXXXXX", text[512];
    snprintf(was, sizeof was, "%s", getenv(vendor.library));
    library_without("cuTensorMapEncodeTiled", file);
    setenv(vendor.library, file, 1);
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample_image;
    struct moe_image *m;
    size_t n;
    unsigned char *p = image_bytes(&desc, &n);
    expect_error(d, moe_load(d, p, n, &m), MOE_ERR_LIBRARY, "kernel take copies by tensor maps, this driver lacks");
    assert_null(m);
    free(p);
    desc.nkernels = 3; // the others need none
    p = image_bytes(&desc, &n);
    if (moe_load(d, p, n, &m))
        fail_msg("%s", moe_error(d, text, sizeof text));
    free(p);
    moe_unload(m);
    moe_close(d);
    unlink(file);
    setenv(vendor.library, was, 1);
}

static void *take_many(void *user)
{
    struct moe_arg a[5];
    long bad = 0;
    take_args(a, 1, 5);
    for (int i = 0; i < 300; i++)
        bad += moe_launch(user, a, 5, NULL, NULL) != MOE_OK;
    return (void *)bad;
}

static void test_map_threads(void **state)
{
    (void)state;
    struct moe_device *d;
    struct moe_image *m;
    pthread_t t[4];
    const struct moe_kernel *k = open_take(&d, &m);
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, take_many, (void *)(uintptr_t)k);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    for (int i = 0; i < fake->launches && i < FAKE_LOG_MAX; i++)
        expect_maps(&fake->log[i], 1);
    moe_unload(m);
    clean(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open, setup),        cmocka_unit_test_setup(test_adopts, setup),
        cmocka_unit_test_setup(test_arches, setup),      cmocka_unit_test_setup(test_load_refusals, setup),
        cmocka_unit_test_setup(test_shared, setup),      cmocka_unit_test_setup(test_maps, setup),
        cmocka_unit_test_setup(test_map_rows, setup),    cmocka_unit_test_setup(test_persistent, setup),
        cmocka_unit_test_setup(test_batch_maps, setup),  cmocka_unit_test_setup(test_early, setup),
        cmocka_unit_test_setup(test_map_fails, setup),   cmocka_unit_test_setup(test_no_maps, setup),
        cmocka_unit_test_setup(test_map_threads, setup), COMMON_TESTS,
    };
    if (argc < 1 || find_fake(argv[0]))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
