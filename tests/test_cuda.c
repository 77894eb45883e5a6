// libmoert's CUDA driver over a fake libcuda: what is CUDA's own. The tests of every driver: driver_tests.c.
#include "driver_tests.h"

#include "../runtime/cuda_abi.h"

#include <stdlib.h>
#include <string.h>

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
                               making };

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open, setup),   cmocka_unit_test_setup(test_adopts, setup),
        cmocka_unit_test_setup(test_arches, setup), cmocka_unit_test_setup(test_load_refusals, setup),
        cmocka_unit_test_setup(test_shared, setup), COMMON_TESTS,
    };
    if (argc < 1 || find_fake(argv[0]))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
