// Launches that may start before others have finished (image.h, `early`): pipelines that wait where they must run without a
// finding; what is touched too early is found, whatever the order, and only then.
#include "../runtime/driver.h"
#include "sim_ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// %t: the thread, of 64. Of a kernel k(early %e, %x, %o): o[t] becomes e[t] + x[t]; %ve and %vx what was read.
enum { N = SIM_N, SEEDS = 8 };
#define DECLARE \
    "@sh = external addrspace(3) global [0 x i32]\n" \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" \
    "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n" \
    "declare void @llvm.nvvm.griddepcontrol.wait()\n" \
    "declare void @llvm.nvvm.griddepcontrol.launch.dependents()\n"
#define AT(p) "  %" #p "t = getelementptr i32, ptr addrspace(1) %" #p ", i32 %t\n"
#define TID "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
#define WAIT "  call void asm sideeffect \"griddepcontrol.wait;\", \"~{memory}\"()\n"
#define GO "  call void asm sideeffect \"griddepcontrol.launch_dependents;\", \"~{memory}\"()\n"
#define WAIT_LLVM "  call void @llvm.nvvm.griddepcontrol.wait()\n"
#define GO_LLVM "  call void @llvm.nvvm.griddepcontrol.launch.dependents()\n"
#define BARRIER "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
#define LOAD(p) "  %v" #p " = load i32, ptr addrspace(1) %" #p "t, align 4\n"
#define STORE "  %sum = add i32 %ve, %vx\n  store i32 %sum, ptr addrspace(1) %ot, align 4\n"
#define SHARED "  %st = getelementptr i32, ptr addrspace(3) @sh, i32 %t\n"
#define TAIL "  ret void\n}\n"
#define HEAD \
    DECLARE PRODUCER CHAINED \
        "define ptx_kernel void @k(ptr addrspace(1) %e, ptr addrspace(1) %x, ptr addrspace(1) %o) {\n" TID \
        AT(e) AT(x) AT(o)
// p(%x): x[t] = 1000 + t. q(early %e, %o): waits, then o[t] = e[t].
#define PRODUCER \
    "define ptx_kernel void @p(ptr addrspace(1) %x) {\n" GO TID AT( \
        x) "  %v = add i32 %t, 1000\n  store i32 %v, ptr addrspace(1) %xt, align 4\n" TAIL
#define CHAINED \
    "define ptx_kernel void @q(ptr addrspace(1) %e, ptr addrspace(1) %o) {\n" GO TID AT(e) AT(o) LOAD(e) WAIT \
        "  store i32 %ve, ptr addrspace(1) %ot, align 4\n" TAIL

struct scene {
    struct sim s;
    int32_t *e, *x, *o, *z; // e: 100 + i; the others nothing
};
static struct scene scene(const char *ir, int seed, const char *device)
{
    struct scene c;
    char spec[64];
    int32_t in[N];
    snprintf(spec, sizeof spec, "%s,seed=%d,threads=%d", device, seed, 1 + seed % 2);
    c.s = sim_open(spec);
    if (!sim_load(&c.s, ir))
        fail_msg("%s\n%s", c.s.why, ir);
    for (int i = 0; i < N; i++)
        in[i] = 100 + i;
    int32_t **all[] = { &c.e, &c.x, &c.o, &c.z };
    for (int i = 0; i < 4; i++) {
        *all[i] = c.s.api->alloc(c.s.d, sizeof in);
        assert_true(c.s.api->write(c.s.d, *all[i], in, i ? 0 : sizeof in));
    }
    return c;
}
static void run(struct scene *c, const char *name, const char *kinds, bool dependent, void *const *ptr)
{
    c->s.dependent = dependent;
    assert_true(sim_run(&c->s, name, N, 1024, 1, kinds, ptr, (int64_t[]){ N, N, N, N }) >= 0);
}
static void produce(struct scene *c)
{
    run(c, "p", "o", false, (void *[]){ c->x });
}
static void chain(struct scene *c, bool dependent)
{
    run(c, "q", "eo", dependent, (void *[]){ c->e, c->z });
}
static void consume(struct scene *c, bool dependent)
{
    run(c, "k", "eio", dependent, (void *[]){ c->e, c->x, c->o });
}
// Reads what p has written through the early parameter.
static void consume_early(struct scene *c)
{
    run(c, "k", "eio", true, (void *[]){ c->x, c->e, c->o });
}

static void nothing(struct scene *c)
{
    const char *text = sim_findings(&c->s);
    if (*text)
        fail_msg("%s", text);
}
static void found(struct scene *c, const char *words)
{
    const char *text = sim_findings(&c->s);
    if (!strstr(text, ": k: early: ") || !strstr(text, words))
        fail_msg("expected '%s' in: %s", words, text);
    c->s.api->clear(c->s.d);
}
static void sums(struct scene *c)
{
    int32_t out[N];
    assert_true(c->s.api->read(c->s.d, out, c->o, sizeof out));
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], 1100 + 2 * i);
}

static const char *const good[] = {
    HEAD GO LOAD(e) WAIT LOAD(x) STORE TAIL,
    HEAD GO_LLVM LOAD(e) WAIT_LLVM LOAD(x) STORE TAIL,
    HEAD WAIT LOAD(e) LOAD(x) WAIT STORE TAIL,
    HEAD GO LOAD(e) SHARED "  store i32 %ve, ptr addrspace(3) %st, align 4\n" WAIT LOAD(x) STORE TAIL,
};
static void pipelines(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++)
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            struct scene c = scene(good[i], seed, "sm_90a");
            for (int round = 0; round < 2; round++) {
                produce(&c);
                chain(&c, true);
                consume(&c, true);
                nothing(&c);
                sums(&c);
            }
            sim_close(&c.s);
        }
}

#define WRITTEN "written by p, block 0, thread "
#define NOT_EARLY "which is not early"
static const struct {
    const char *ir, *words, *alone; // after p; and where nobody has written x
} bad[] = {
    { HEAD LOAD(e) LOAD(x) WAIT STORE TAIL, "load of byte", NOT_EARLY },
    { HEAD LOAD(e) LOAD(x) WAIT STORE TAIL, "of 'p1', " WRITTEN, "load of byte" },
    { HEAD LOAD(e) LOAD(x) STORE TAIL, WRITTEN, "no thread executes griddepcontrol.wait" },
    { HEAD LOAD(e) "  store i32 %ve, ptr addrspace(1) %ot, align 4\n" WAIT LOAD(x) STORE TAIL, "store of byte",
      "'p2', which is not early" },
    { HEAD LOAD(e) SHARED "  store i32 %ve, ptr addrspace(3) %st, align 4\n" TAIL,
      "no thread executes griddepcontrol.wait", "launches after it do not wait" },
    // Each thread for itself.
    { HEAD LOAD(e) "  %first = icmp eq i32 %t, 0\n  br i1 %first, label %a, label %b\na:\n" WAIT
                   "  br label %b\nb:\n" BARRIER LOAD(x) STORE TAIL,
      WRITTEN, NOT_EARLY },
    { HEAD LOAD(e) "  %first = icmp eq i32 %t, 9\n  br i1 %first, label %b, label %a\na:\n" WAIT
                   "  br label %b\nb:\n" LOAD(x) STORE TAIL,
      "thread 9 (warp 0, lane 9): load of byte 36 of 'p1', " WRITTEN "9", "thread 9 (warp 0, lane 9): load" },
    { HEAD SHARED
      "  call void asm sideeffect \"cp.async.ca.shared.global [$0], [$1], 4;\", \"r,l\"(ptr addrspace(3) %st, ptr "
      "addrspace(1) %xt)\n  call void asm sideeffect \"cp.async.wait_all;\", \"~{memory}\"()\n" WAIT LOAD(
          e) "  %vx = load i32, ptr addrspace(3) %st, align 4\n" STORE TAIL,
      "cp.async.ca.shared.global of byte", NOT_EARLY },
};
static void faults(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            struct scene c = scene(bad[i].ir, seed, "sm_90a");
            produce(&c);
            consume(&c, true);
            found(&c, bad[i].words);
            int32_t in[N] = { 0 }; // nobody has written x since, but the runtime does not look after it
            assert_true(c.s.api->write(c.s.d, c.x, in, sizeof in));
            consume(&c, true);
            found(&c, bad[i].alone);
            produce(&c); // in the ordinary way all of them are right
            consume(&c, false);
            nothing(&c);
            sim_close(&c.s);
        }
}

// Which launches are meant: those since the last ordinary one of the same stream.
static void which(void **state)
{
    int a, b;
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        struct scene c = scene(good[0], seed, "sm_90a");
        produce(&c);
        consume_early(&c);
        found(&c, "load of byte");
        produce(&c);
        chain(&c, true); // which p need not have ended before
        consume_early(&c);
        found(&c, WRITTEN);
        produce(&c);
        chain(&c, false);
        consume_early(&c);
        nothing(&c);
        produce(&c);
        assert_true(c.s.api->fill(c.s.d, c.z, 0, 4, false)); // comes after all that is before it
        consume_early(&c);
        nothing(&c);
        c.s.stream = &a;
        produce(&c);
        c.s.stream = &b;
        consume_early(&c); // orders of other streams are somebody else's
        nothing(&c);
        chain(&c, false);
        c.s.stream = &a;
        consume_early(&c); // that was no launch of this one
        found(&c, WRITTEN);
        for (int i = 0; i < 100; i++) { // more than are kept
            c.s.stream = (char *)&c + i;
            chain(&c, false);
        }
        c.s.stream = &b;
        produce(&c);
        consume_early(&c);
        found(&c, WRITTEN);
        sim_close(&c.s);
    }
}

// Another module's launches; those of a module that is gone.
static void modules(void **state)
{
    (void)state;
    struct scene c = scene(good[0], 1, "sm_90a");
    struct moesim_module *first = c.s.m;
    c.s.m = NULL;
    assert_true(sim_load(&c.s, good[0]));
    struct moesim_module *second = c.s.m;
    c.s.m = first;
    produce(&c);
    c.s.m = second;
    consume_early(&c);
    found(&c, WRITTEN);
    c.s.m = first;
    produce(&c);
    c.s.m = second;
    c.s.api->unload(first);
    consume_early(&c);
    nothing(&c);
    sim_close(&c.s);
}

static void rest(void **state)
{
    (void)state;
    struct scene c = scene(bad[0].ir, 3, "sm_90a");
    produce(&c); // one tensor under two names, one of them early
    chain(&c, false);
    run(&c, "k", "eio", true, (void *[]){ c.x, c.x, c.o });
    run(&c, "k", "ieo", true, (void *[]){ c.x, c.x, c.o });
    nothing(&c);
    sim_close(&c.s);
    c = scene(bad[0].ir, 3, "sm_90a,fast");
    produce(&c);
    consume(&c, true);
    nothing(&c);
    sim_close(&c.s);
    c = scene(bad[0].ir, 3, "sm_80"); // an older device
    produce(&c);
    consume(&c, true);
    consume_early(&c);
    nothing(&c);
    sim_close(&c.s);
    c = scene(good[0], 0, "sm_90a");
    assert_false(sim_load(&c.s, HEAD "  call void asm sideeffect \"griddepcontrol.later;\", \"\"()\n" TAIL));
    assert_non_null(strstr(c.s.why, "griddepcontrol.later"));
    sim_close(&c.s);
}

// ---- by libmoert: also from a graph

static void *image_of(const char *ir, size_t *n)
{
    static const struct image_dim dim = { "R", -1, 1, INT32_MAX };
    static const struct image_param x = { "x", IMAGE_OUT, IMAGE_I32, 1, 4, { { 0, 0 } }, false };
    static const struct image_param params[] = {
        { "e", IMAGE_IN, IMAGE_I32, 1, 4, { { 0, 0 } }, true },
        { "x", IMAGE_IN, IMAGE_I32, 1, 4, { { 0, 0 } }, false },
        { "o", IMAGE_OUT, IMAGE_I32, 1, 4, { { 0, 0 } }, false },
    };
    static const struct image_clause clause = {
        IMAGE_TILE, "r", N, -1, { 1, { { IMAGE_T_CONST, 0 } } }, { 1, { { IMAGE_T_DIM, 0 } } }
    };
    struct image_kernel k[2] = { { .name = "p", .symbol = "p", .nparams = 1, .params = &x },
                                 { .name = "k", .symbol = "k", .nparams = 3, .params = params } };
    for (int i = 0; i < 2; i++) {
        k[i].threads = N;
        k[i].ndims = k[i].nclauses = 1;
        k[i].dims = &dim;
        k[i].clauses = &clause;
    }
    return sim_image(ir, 2, k, n);
}

static int launch_both(struct moe_image *m, void *const *t, bool dependent, void *stream)
{
    struct launch_item item[2];
    union launch_value value[2][4];
    void *slots[2][4];
    for (int i = 0; i < 2; i++) {
        struct moe_arg a[3] = { moe_tensor(t[i ? 0 : 1], 1, N, 0, 0), moe_tensor(t[1], 1, N, 0, 0),
                                moe_tensor(t[2], 1, N, 0, 0) };
        item[i].args = slots[i];
        assert_int_equal(launch_resolve(moe_kernel_at(m, i), a, i ? 3 : 1, NULL, &item[i], value[i], NULL), MOE_OK);
    }
    item[1].dependent = dependent;
    return launch_items(m, item, 2, stream);
}

static void driver(void **state)
{
    struct moe_device *d;
    struct moe_image *m;
    char text[1024] = "";
    void *t[3], *stream, *graph;
    int32_t in[N] = { 0 };
    size_t n;
    (void)state;
    for (int right = 0; right < 2; right++) {
        if (moe_open("sim:sm_90a,threads=2", &d, text, sizeof text))
            fail_msg("%s", text);
        void *bytes = image_of(right ? good[0] : bad[0].ir, &n);
        if (moe_load(d, bytes, n, &m))
            fail_msg("%s", moe_error(d, text, sizeof text));
        free(bytes);
        for (int i = 0; i < 3; i++)
            assert_int_equal(moe_alloc(d, sizeof in, &t[i]) | moe_upload(d, t[i], in, sizeof in), MOE_OK);
        assert_int_equal(moe_stream(d, &stream), MOE_OK);
        assert_int_equal(launch_both(m, t, false, stream) | moe_sync(d, stream), MOE_OK);
        for (int captured = 0; captured < 2; captured++) {
            assert_true(!captured || !moe_capture_begin(d, stream));
            assert_int_equal(launch_both(m, t, true, stream), MOE_OK);
            assert_true(!captured || (!moe_capture_end(d, stream, &graph) && !moe_graph_launch(d, graph, stream)));
            assert_int_equal(moe_sync(d, stream), right ? MOE_OK : MOE_ERR_DEVICE);
            if (!right && !strstr(moe_error(d, text, sizeof text), ": k: early: block 0, thread "))
                fail_msg("%s", text);
            moe_findings_clear(d);
        }
        assert_int_equal(moe_destroy(d, MOE_GRAPH, graph) | moe_destroy(d, MOE_STREAM, stream), MOE_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(moe_free(d, t[i]), MOE_OK);
        moe_unload(m);
        moe_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines), cmocka_unit_test(faults), cmocka_unit_test(which),
        cmocka_unit_test(modules),   cmocka_unit_test(rest),   cmocka_unit_test_setup(driver, sim_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
