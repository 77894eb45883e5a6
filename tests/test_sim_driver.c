// libmoert over the simulator: loading, launching, graphs, and how findings come out.
#include "../compiler/moec.h"
#include "../runtime/moert.h"
#include "sim_ir.h"

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

// ---- tensor maps by value and a persistent grid: y = x + 1 in boxes of 8 rows by the copy engine, one warp a block

enum { COLS = 32, BOX_ROWS = 8, ROWS = 75 }; // 10 tiles, the last with 3 rows
static const char tiles_ir[] =
    "@sh = external addrspace(3) global [0 x i32]\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n"
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
    "define ptx_kernel void @plus(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %rows, ptr byval([128 x i8]) align 64 "
    "%mx, "
    "ptr byval([128 x i8]) align 64 %my) {\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "  %n = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n"
    "  %first = icmp eq i32 %t, 0\n"
    "  %d0 = getelementptr i8, ptr addrspace(3) @sh, i32 1024\n"
    "  %dt = getelementptr i32, ptr addrspace(3) %d0, i32 %t\n"
    "  br i1 %first, label %i, label %s\ni:\n"
    "  call void asm sideeffect \"mbarrier.init.shared::cta.b64 [0], 1;\", \"~{memory}\"()\n"
    "  call void asm sideeffect \"fence.mbarrier_init.release.cluster;\", \"~{memory}\"()\n  br label %s\ns:\n"
    "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n  br label %l\nl:\n"
    "  %tile = phi i32 [ %b, %s ], [ %next, %e ]\n  %phase = phi i32 [ 0, %s ], [ %flip, %e ]\n"
    "  %row = shl i32 %tile, 3\n  %more = icmp slt i32 %row, %rows\n  br i1 %more, label %g, label %z\ng:\n"
    "  br i1 %first, label %c, label %w\nc:\n"
    "  call void asm sideeffect \"mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], 1024;\", \"~{memory}\"()\n"
    "  call void asm sideeffect \"cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [$0], "
    "[$1, "
    "{$2, $3}], [$4];\", \"r,l,r,r,r,~{memory}\"(i32 1024, ptr %mx, i32 0, i32 %row, i32 0)\n  br label %w\nw:\n"
    "  call void asm sideeffect \"{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [$0], "
    "$1;\n"
    "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}\", \"r,r,~{memory}\"(i32 0, i32 %phase)\n  br label %a\na:\n"
    "  %k = phi i32 [ 0, %w ], [ %k1, %a ]\n  %kk = shl i32 %k, 5\n"
    "  %p = getelementptr i32, ptr addrspace(3) %dt, i32 %kk\n  %v = load i32, ptr addrspace(3) %p, align 4\n"
    "  %v1 = add i32 %v, 1\n  store i32 %v1, ptr addrspace(3) %p, align 4\n"
    "  %k1 = add i32 %k, 1\n  %kc = icmp ult i32 %k1, 8\n  br i1 %kc, label %a, label %f\nf:\n"
    "  call void asm sideeffect \"fence.proxy.async.shared::cta;\", \"~{memory}\"()\n"
    "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n  br i1 %first, label %o, label %e\no:\n"
    "  call void asm sideeffect \"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [$0, {$1, $2}], [$3];\", "
    "\"l,r,r,r,~{memory}\"(ptr %my, i32 0, i32 %row, i32 1024)\n"
    "  call void asm sideeffect \"cp.async.bulk.commit_group;\", \"~{memory}\"()\n"
    "  call void asm sideeffect \"cp.async.bulk.wait_group 0;\", \"~{memory}\"()\n  br label %e\ne:\n"
    "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
    "  %next = add i32 %tile, %n\n  %flip = xor i32 %phase, 1\n  br label %l\nz:\n  ret void\n}\n";

static void *tiles_image(size_t *n)
{
    static const struct image_dim dim = { "R", -1, 1, INT32_MAX };
    static const struct image_param params[] = {
        { "x", IMAGE_IN, IMAGE_I32, 2, 16, { { 0, 0 }, { -1, COLS } }, false },
        { "y", IMAGE_OUT, IMAGE_I32, 2, 16, { { 0, 0 }, { -1, COLS } }, false },
    };
    static const struct image_clause clause = {
        IMAGE_TILE, "r", BOX_ROWS, -1, { 1, { { IMAGE_T_CONST, 0 } } }, { 1, { { IMAGE_T_DIM, 0 } } }
    };
    static const struct image_box boxes[] = { { 0, BOX_ROWS, COLS, 3 }, { 1, BOX_ROWS, COLS, 3 } };
    const struct image_kernel k = { .name = "plus",
                                    .symbol = "plus",
                                    .threads = 32,
                                    .shared = 2048,
                                    .resident = 2,
                                    .persistent = true,
                                    .nparams = 2,
                                    .ndims = 1,
                                    .nclauses = 1,
                                    .params = params,
                                    .dims = &dim,
                                    .clauses = &clause,
                                    .nboxes = 2,
                                    .boxes = boxes };
    return sim_image(tiles_ir, 1, &k, n);
}

// On a device of so many multiprocessors; also from a graph, whose launch may not use the caller's maps.
static void run_tiles(int processors, int seed, int blocks)
{
    char name[64], text[512], want[32];
    int32_t x[ROWS * COLS], y[ROWS * COLS];
    struct moe_image *image;
    struct moe_info info = { .size = sizeof info };
    void *px, *py, *stream, *graph;
    size_t n;
    snprintf(name, sizeof name, "sim:sm_90a,threads=2,seed=%d,processors=%d", seed, processors);
    struct moe_device *d = device(name);
    void *bytes = tiles_image(&n);
    if (moe_load(d, bytes, n, &image))
        fail_msg("%s", moe_error(d, text, sizeof text));
    free(bytes);
    assert_int_equal(moe_info(d, &info), MOE_OK);
    assert_int_equal(info.processors, processors);
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = i;
    assert_int_equal(moe_alloc(d, sizeof x, &px) | moe_alloc(d, sizeof x, &py), MOE_OK);
    assert_int_equal(moe_upload(d, px, x, sizeof x), MOE_OK);
    assert_int_equal(moe_stream(d, &stream), MOE_OK);
    struct moe_arg args[] = { moe_tensor(px, 2, ROWS, COLS, 0), moe_tensor(py, 2, ROWS, COLS, 0) };
    for (int captured = 0; captured < 2; captured++) {
        assert_int_equal(moe_poison(d, py, sizeof x, NULL), MOE_OK);
        assert_true(!captured || !moe_capture_begin(d, stream));
        if (moe_launch(moe_find(image, "plus", NULL), args, 2, NULL, stream))
            fail_msg("%s", moe_error(d, text, sizeof text));
        assert_true(!captured || (!moe_capture_end(d, stream, &graph) && !moe_graph_launch(d, graph, stream)));
        if (moe_sync(d, NULL))
            fail_msg("%s", moe_error(d, text, sizeof text));
        assert_int_equal(moe_download(d, y, py, sizeof y), MOE_OK);
        for (int i = 0; i < ROWS * COLS; i++)
            assert_int_equal(y[i], i + 1);
        snprintf(want, sizeof want, " launches, %d blocks,", blocks * (captured + 1));
        assert_non_null(strstr(moe_stats(d, text, sizeof text), want));
    }
    assert_int_equal(moe_destroy(d, MOE_GRAPH, graph) | moe_destroy(d, MOE_STREAM, stream), MOE_OK);
    assert_int_equal(moe_free(d, px) | moe_free(d, py), MOE_OK);
    moe_unload(image);
    moe_close(d);
}

static void persistent_tiles(void **state)
{
    (void)state;
    for (int seed = 0; seed < 4; seed++) {
        run_tiles(132, seed, 10); // a block a tile
        run_tiles(5, seed, 10);
        run_tiles(4, seed, 8);
        run_tiles(1, seed, 2);
    }
}

// What a map cannot hold is refused before there is one; nothing to do needs none.
static void bad_map(void **state)
{
    (void)state;
    struct moe_device *d = device("sim:sm_90a,processors=2");
    struct moe_image *image;
    size_t n;
    void *bytes = tiles_image(&n), *p;
    char why[256];
    assert_int_equal(moe_load(d, bytes, n, &image), MOE_OK);
    free(bytes);
    assert_int_equal(moe_alloc(d, 4096, &p), MOE_OK);
    struct moe_arg args[] = { moe_tensor(p, 2, 8, COLS, 0), moe_tensor((char *)p + 8, 2, 8, COLS, 0) };
    is_error(d, moe_launch(moe_kernel_at(image, 0), args, 2, NULL, NULL), MOE_ERR_SIGNATURE, "not aligned to 16");
    args[0] = moe_tensor(NULL, 2, 0, COLS, 0);
    args[1] = moe_tensor(NULL, 2, 0, COLS, 0);
    assert_int_equal(moe_launch(moe_kernel_at(image, 0), args, 2, NULL, NULL), MOE_OK);
    moe_free(d, p);
    moe_unload(image);
    moe_close(d);
    assert_int_equal(moe_open("sim:sm_90a,processors=0", &d, why, sizeof why), MOE_ERR_ARGUMENT);
    assert_non_null(strstr(why, "processors=N"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(runs, sim_library),     cmocka_unit_test_setup(graphs, sim_library),
        cmocka_unit_test_setup(findings, sim_library), cmocka_unit_test_setup(persistent_tiles, sim_library),
        cmocka_unit_test_setup(bad_map, sim_library),  cmocka_unit_test_setup(refusals, sim_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
