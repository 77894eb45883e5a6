// The simulator itself: what it computes and what it finds, on kernels written as LLVM IR.
#include "sim_ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TID "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
#define BAR "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
#define SHARED "@sh = external addrspace(3) global [0 x i32]\n"

// out[tid] = sh[tid + 1], after sh[tid] = tid; with or without a barrier between.
static const char *const shift = SHARED TID BAR "define ptx_kernel void @k(ptr addrspace(1) %out) {\n"
                                                "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                                                "  %p = getelementptr i32, ptr addrspace(3) @sh, i32 %t\n"
                                                "  store i32 %t, ptr addrspace(3) %p, align 4\n"
                                                "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
                                                "  %n = add i32 %t, 1\n"
                                                "  %m = and i32 %n, 63\n"
                                                "  %q = getelementptr i32, ptr addrspace(3) @sh, i32 %m\n"
                                                "  %v = load i32, ptr addrspace(3) %q, align 4\n"
                                                "  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t\n"
                                                "  store i32 %v, ptr addrspace(1) %o, align 4\n"
                                                "  ret void\n"
                                                "}\n";

static char *without(const char *ir, const char *line)
{
    static char text[16384];
    const char *at = strstr(ir, line), *end = at ? strchr(at, '\n') : NULL;
    assert_non_null(at);
    memcpy(text, ir, (size_t)(at - ir));
    strcpy(text + (at - ir), end);
    return text;
}

static void runs_a_barrier(void **state)
{
    (void)state;
    for (int seed = 0; seed < 20; seed++) {
        char spec[32];
        snprintf(spec, sizeof spec, "sm_80,seed=%d", seed);
        struct sim s = sim_open(spec);
        int32_t *out = s.api->alloc(s.d, 64 * 4), got[64];
        assert_true(sim_load(&s, shift));
        assert_int_equal(sim_run(&s, "k", 64, 256, 1, "o", (void *[]){ out }, (int64_t[]){ 64 }), 0);
        assert_string_equal(sim_findings(&s), "");
        assert_true(s.api->read(s.d, got, out, sizeof got));
        for (int i = 0; i < 64; i++)
            assert_int_equal(got[i], (i + 1) & 63);
        sim_close(&s);
    }
}

static void finds_a_missing_barrier(void **state)
{
    (void)state;
    struct sim s = sim_open("sm_80,seed=1");
    int32_t *out = s.api->alloc(s.d, 64 * 4);
    assert_true(sim_load(&s, without(shift, "  call void @llvm.nvvm.barrier.cta")));
    assert_int_equal(sim_run(&s, "k", 64, 256, 1, "o", (void *[]){ out }, (int64_t[]){ 64 }), 1);
    print_message("%s", sim_findings(&s));
    assert_non_null(strstr(sim_findings(&s), "race"));
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_a_barrier),
        cmocka_unit_test(finds_a_missing_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
