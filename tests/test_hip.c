// libmoert's HIP driver over a fake libamdhip64: what is HIP's own. The tests of every driver: driver_tests.c.
#include "driver_tests.h"

#include "../runtime/hip_abi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRY(required, member, symbol, params) { #symbol, required },
static const struct entry_point entries[] = { HIP_SYMBOLS(ENTRY) HIP_TEXTS(ENTRY) };
static const char *const told[] = { "hipDeviceGetAttribute", "hipGraphDestroy", "hipSetDevice", NULL };
static const char *const making[] = { "hipGetDevice", "hipSetDevice", NULL };
const struct vendor vendor = { "hip",
                               "MOE_HIP_LIBRARY",
                               "libfakehip.so",
                               "gfx942",
                               IMAGE_HSACO,
                               entries,
                               sizeof entries / sizeof entries[0],
                               1,
                               told,
                               making,
                               false };

static void test_open(void **state)
{
    (void)state;
    struct moe_device *d;
    char why[256];
    static const char *const bad[] = { "hip:x", "hip:", "hip:-1", "hip:12345", "hi", "hip0", "hipp:0" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(moe_open(bad[i], &d, why, sizeof why), MOE_ERR_ARGUMENT);
        assert_null(d);
        assert_non_null(strstr(why, "hip:N"));
    }
    assert_int_equal(moe_open("hip:1", &d, why, sizeof why), MOE_ERR_NO_DEVICE);
    assert_string_equal(why, "no device hip:1: the driver shows 1");
    fake->devices = 0;
    assert_int_equal(moe_open("hip", &d, why, sizeof why), MOE_ERR_NO_DEVICE);
    assert_string_equal(why, "hipInit: hipErrorFake (100, words of the driver)");
    fake->devices = 2;
    fake->driver = 60342134;
    fake->shared_max = 65536;
    d = open_device(1);
    struct moe_info info = { .size = sizeof info };
    assert_int_equal(moe_info(d, &info), MOE_OK);
    assert_string_equal(info.name, "Fake 1");
    assert_string_equal(info.arch, "gfx942");
    assert_int_equal(info.shared_max, 65536);
    assert_int_equal(info.driver_version, 60342134);
    assert_int_equal(info.threads_max, 1024);
    assert_int_equal(info.processors, 1063); // the fake gives 1000 + the attribute's number
    assert_int_equal(info.l2_bytes, 1019);
    assert_int_equal(info.clock_khz, 1005);
    assert_int_equal(info.memory_clock_khz, 1060);
    assert_int_equal(info.memory_bus_bits, 1059);
    assert_int_equal(info.memory_bytes, (int64_t)1 << 32);
    clean(d);
}

// A library that is in the process already is taken, by the name it says it has, before any other.
static void test_library_in_use(void **state)
{
    (void)state;
    char was[512];
    strcpy(was, getenv("MOE_HIP_LIBRARY"));
    unsetenv("MOE_HIP_LIBRARY");
    struct moe_device *d;
    assert_int_equal(moe_open("hip:0", &d, NULL, 0), MOE_OK);
    assert_true(fake->calls > 0);
    setenv("MOE_HIP_LIBRARY", was, 1);
    clean(d);
}

static int opens_with(const char *library, char *why, size_t size)
{
    struct moe_device *d;
    setenv("MOE_HIP_LIBRARY", library, 1);
    int status = moe_open("hip:0", &d, why, size);
    struct moe_info info = { .size = sizeof info };
    if (!status)
        moe_info(d, &info);
    assert_string_equal(info.arch, status ? "" : "gfx942");
    moe_close(d);
    return status;
}

// ROCm 5 has the older struct alone, ROCm 6 both: the newer one is asked. A library with neither is none.
static void test_properties(void **state)
{
    (void)state;
    char was[512], why[256] = "", older[] = "/tmp/fake-hip-XXXXXX", none[] = "/tmp/fake-hip-XXXXXX";
    strcpy(was, getenv("MOE_HIP_LIBRARY"));
    assert_int_equal(opens_with(was, why, sizeof why), MOE_OK);
    for (int i = 0; i < fake->calls; i++)
        assert_true(strcmp(fake->names[i], "hipGetDeviceProperties"));
    library_without("hipGetDevicePropertiesR0600", older);
    assert_int_equal(opens_with(older, why, sizeof why), MOE_OK);
    library_without("hipGetDeviceProperties", none);
    assert_int_equal(opens_with(none, why, sizeof why), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "lacks hipGetDeviceProperties"));
    unlink(older);
    unlink(none);
    setenv("MOE_HIP_LIBRARY", was, 1);
}

struct arch_case {
    const char *device, *image;
    enum image_code kind;
    const char *says; // NULL: it runs
};
static const struct arch_case arch_cases[] = {
    { "gfx942:sramecc+:xnack-", "gfx942", IMAGE_HSACO, NULL },
    { "gfx942", "gfx942", IMAGE_HSACO, NULL },
    { "gfx90a:sramecc+:xnack-", "gfx90a", IMAGE_HSACO, NULL },
    { "gfx950:sramecc+:xnack-", "gfx942", IMAGE_HSACO, "the image is for gfx942, the device Fake 0 is gfx950" },
    { "gfx942:sramecc+", "gfx950", IMAGE_HSACO, "the image is for gfx950, the device Fake 0 is gfx942" },
    { "gfx942:sramecc+", "gfx94", IMAGE_HSACO, "the image is for gfx94," },
    { "gfx942:sramecc+", "sm_90a", IMAGE_CUBIN, "the image is for sm_90a, the device Fake 0 is gfx942" },
    { "gfx942", "gfx942", IMAGE_CUBIN, "the image for gfx942 holds cubin code, the device Fake 0 takes hsaco" },
    { "gfx942", "gfx942", IMAGE_PTX, "the image for gfx942 holds ptx code, the device Fake 0 takes hsaco" },
    { "gfx942", "gfx942", IMAGE_NONE, "the device Fake 0 takes hsaco" },
};

static void test_arches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof arch_cases / sizeof arch_cases[0]; i++) {
        const struct arch_case *a = &arch_cases[i];
        struct image_desc desc = sample();
        desc.arch = a->image;
        desc.kind = a->kind;
        desc.ptx_size = 0;
        desc.code = "code";
        desc.code_size = a->kind == IMAGE_NONE ? 0 : 4;
        fake->arch = a->device;
        struct moe_device *d = open_device(0);
        if (!a->says)
            moe_unload(load(d, &desc));
        else
            expect_load(d, &desc, MOE_ERR_ARCH, a->says);
        clean(d);
    }
}

// What a driver with another layout of the struct would show.
static void test_no_arch(void **state)
{
    (void)state;
    static const char *const names[] = { "", "Radeon", "gfx9420123456789:xnack-" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct moe_device *d;
        char why[256];
        fake->arch = names[i];
        assert_int_equal(moe_open("hip:0", &d, why, sizeof why), MOE_ERR_DEVICE);
        assert_non_null(strstr(why, "the device Fake 0 has the architecture '"));
        assert_non_null(strstr(why, names[i]));
    }
}

static void test_load_refusals(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct image_kernel k = sample_kernels[1];
    desc.code = "bad";
    desc.code_size = 3;
    expect_load(d, &desc, MOE_ERR_IMAGE, "hipModuleLoadData: hipErrorFake (200, words of the driver)");
    desc.code = "alien";
    desc.code_size = 5;
    expect_load(d, &desc, MOE_ERR_IMAGE, "hipModuleLoadData: hipErrorFake (209, words of the driver)");
    desc = sample();
    k.symbol = "nowhere";
    desc.kernels = &k;
    desc.nkernels = 1;
    expect_load(d, &desc, MOE_ERR_IMAGE, "hipModuleGetFunction of nowhere: hipErrorFake (500,");
    k = sample_kernels[3];
    expect_load(d, &desc, MOE_ERR_IMAGE, "kernel take copies by tensor maps, which AMD's devices do not have");
    desc = sample();
    moe_unload(load(d, &desc)); // still usable
    clean(d);
}

// 160 KB of LDS on gfx950: launched as they are, nothing is set before.
static void test_shared(void **state)
{
    (void)state;
    struct image_desc desc = sample();
    struct image_kernel k = sample_kernels[2];
    float *p;
    fake->shared_max = 163840;
    fake->arch = "gfx950:sramecc+:xnack-";
    desc.arch = "gfx950";
    desc.kernels = &k;
    desc.nkernels = 1;
    for (int over = 0; over < 2; over++) {
        k.shared = 163840 + over;
        struct moe_device *d = open_device(0);
        struct moe_image *m = load(d, &desc);
        assert_int_equal(moe_alloc(d, 16, (void **)&p), MOE_OK);
        struct moe_arg args[3] = { moe_tensor(p, 1, 4, 0, 0), moe_f32(3), moe_tensor(p, 1, 4, 0, 0) };
        int status = moe_launch(moe_kernel_at(m, 0), args, 3, NULL, NULL);
        if (over)
            expect_error(d, status, MOE_ERR_LIMIT, "163841 shared bytes a block, Fake 0 allows 1024 and 163840");
        else
            assert_int_equal(status, MOE_OK);
        assert_int_equal(fake->shared, 163840);
        moe_free(d, p);
        moe_unload(m);
        clean(d);
    }
}

// A grid has fewer than 2^32 threads: refused before the driver would.
static void test_grid(void **state)
{
    (void)state;
    struct moe_device *d = open_device(0);
    struct image_desc desc = sample();
    struct moe_image *m = load(d, &desc);
    struct moe_arg args[5];
    const struct moe_kernel *k = moe_find(m, "gate_up", "r128"); // 256 threads, 5 blocks a map entry
    int64_t blocks, dims[6] = { 10, -1, 8, 384, 0, 20 };
    for (int i = 0; i < 5; i++)
        args[i] = i == 3 ? moe_i32(320) : moe_pointer((void *)0x1000);
    dims[4] = UINT32_MAX / 256 / 5;
    assert_int_equal(moe_launch(k, args, 5, dims, NULL), MOE_OK);
    dims[4]++;
    expect_error(d, moe_launch(k, args, 5, dims, NULL), MOE_ERR_LIMIT,
                 "blocks of 256 threads, a grid has at most 4294967295");
    expect_error(d, moe_launch_check(k, args, 5, dims, &blocks), MOE_ERR_LIMIT, "blocks of 256 threads");
    assert_int_equal(fake->launches, 1);
    moe_unload(m);
    clean(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open, setup),
        cmocka_unit_test_setup(test_library_in_use, setup),
        cmocka_unit_test_setup(test_properties, setup),
        cmocka_unit_test_setup(test_arches, setup),
        cmocka_unit_test_setup(test_no_arch, setup),
        cmocka_unit_test_setup(test_load_refusals, setup),
        cmocka_unit_test_setup(test_shared, setup),
        cmocka_unit_test_setup(test_grid, setup),
        COMMON_TESTS,
    };
    if (argc < 1 || find_fake(argv[0]))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
