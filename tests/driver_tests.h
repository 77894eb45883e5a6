// What test_cuda.c and test_hip.c have in common: libmoert over a fake of the vendor's library, see fake_gpu.h.
#ifndef DRIVER_TESTS_H
#define DRIVER_TESTS_H
#include "fake_gpu.h"
#include "image_sample.h"

#include "../runtime/moert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct entry_point {
    const char *symbol;
    bool required;
};
struct vendor {
    const char *name;    // "cuda"
    const char *library; // the environment's variable that names it
    const char *fake;    // "libfakecuda.so", beside the test program
    const char *arch;    // of the device, as it is when the test begins
    enum image_code kind;
    const struct entry_point *entries;
    int nentries;
    intptr_t other;            // what else may be current in a thread
    const char *const *told;   // calls whose failure may pass in silence, NULL-terminated
    const char *const *making; // calls that make the device current, likewise
    bool early;                // launches may start before the one before has finished
};
extern const struct vendor vendor; // of the test program
extern struct fake_gpu *fake;

int find_fake(const char *program); // not 0: it is not there
int setup(void **state);            // of each test: the fake as it was
struct image_desc sample(void);     // sample_image as this vendor would have it
unsigned char *image_bytes(const struct image_desc *d, size_t *n);
struct moe_device *open_device(int ordinal);
struct moe_image *load(struct moe_device *d, const struct image_desc *desc);
// A copy of the library in use in which nobody finds `symbol`. file: its name, a template of mkstemp().
void library_without(const char *symbol, char *file);
void clean(struct moe_device *d); // closes; nothing may be left
void expect_error(struct moe_device *d, int status, int want, const char *says);
bool for_batches(const char *symbol); // an entry point that only launching several kernels at once needs
bool one_of(const char *const *calls, const char *call);
void expect_load(struct moe_device *d, const struct image_desc *desc, int want, const char *says);

// the tests
void test_memory(void **state);
void test_missing_entry_points(void **state);
void test_no_library(void **state);
void test_find(void **state);
void test_launch(void **state);
void test_launch_refusals(void **state);
void test_each_call_fails(void **state);
void test_launch_path(void **state);
void test_two_devices(void **state);
void test_threads(void **state);
// batch_tests.c
void test_batch_same(void **state);
void test_batch_dependent(void **state);
void test_batch_one_fails(void **state);
void test_batch_capture(void **state);
void test_batch_missing(void **state);
void test_batch_prepare_fails(void **state);
void test_batch_launch_fails(void **state);
void test_batch_streams(void **state);
void test_batch_threads(void **state);
void test_batch_busy(void **state);
void test_batch_off(void **state);
#define COMMON_TESTS \
    cmocka_unit_test_setup(test_batch_same, setup), cmocka_unit_test_setup(test_batch_capture, setup), \
        cmocka_unit_test_setup(test_batch_missing, setup), cmocka_unit_test_setup(test_batch_prepare_fails, setup), \
        cmocka_unit_test_setup(test_batch_launch_fails, setup), cmocka_unit_test_setup(test_batch_dependent, setup), \
        cmocka_unit_test_setup(test_batch_one_fails, setup), cmocka_unit_test_setup(test_batch_streams, setup), \
        cmocka_unit_test_setup(test_batch_threads, setup), cmocka_unit_test_setup(test_batch_busy, setup), \
        cmocka_unit_test_setup(test_batch_off, setup), cmocka_unit_test_setup(test_no_library, setup), \
        cmocka_unit_test_setup(test_missing_entry_points, setup), cmocka_unit_test_setup(test_memory, setup), \
        cmocka_unit_test_setup(test_find, setup), cmocka_unit_test_setup(test_launch, setup), \
        cmocka_unit_test_setup(test_launch_refusals, setup), cmocka_unit_test_setup(test_each_call_fails, setup), \
        cmocka_unit_test_setup(test_launch_path, setup), cmocka_unit_test_setup(test_two_devices, setup), \
        cmocka_unit_test_setup(test_threads, setup)
#endif
