// The layer of libmoert: what it refuses, its sizes, its launches (over a fake driver, call by call), its results (in the
// simulator, from many threads), hints. That the numbers are right is moerun's business (tests/moe_cases.tsv).
#include "../compiler/moec.h"
#include "../runtime/layer.h"
#include "fake_gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { E = 4, K = 2, H = 64, I = 32, T = 20 };
static void *image_bytes;
static size_t image_size;
static struct fake_gpu *fake;

// The image with boxes of every tensor that can have them, up to what a layer takes, and persistent.
static void *with_boxes(size_t *size)
{
    char err[IMAGE_ERR_MAX];
    struct image_desc *d = moe_image_read(image_bytes, image_size, err);
    assert_non_null(d);
    struct image_kernel *k = (struct image_kernel *)(uintptr_t)d->kernels;
    struct image_box *b = calloc((size_t)d->nkernels * LAYER_BOXES_MAX, sizeof *b);
    for (int i = 0; i < d->nkernels; i++, k++) {
        k->boxes = b + i * LAYER_BOXES_MAX;
        k->nboxes = 0;
        for (int p = 0; p < k->nparams && k->nboxes < LAYER_BOXES_MAX; p++)
            if (k->params[p].kind <= IMAGE_INOUT && k->params[p].rank > 1 &&
                (k->params[p].elem == IMAGE_BF16 || k->params[p].elem == IMAGE_F16))
                b[i * LAYER_BOXES_MAX + k->nboxes++] = (struct image_box){ p, 16, 32, 2 };
        k->persistent = true;
        k->resident = k->resident ? k->resident : 1;
    }
    *size = moe_image_size(d);
    void *bytes = malloc(*size);
    if (!moe_image_write(d, bytes, *size, err))
        fail_msg("%s", err);
    free(b);
    free(d);
    return bytes;
}

static int make_image(void **state)
{
    static char text[1 << 16];
    FILE *f = fopen("kernels/moe.dsl", "rb");
    (void)state;
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    struct moec_options o = {
        .size = sizeof o, .arch = "sm_90a", .emit = MOEC_IMAGE, .ptx_only = true, .bitcode = true
    };
    struct moec_result *r = moec_compile(text, n, "moe.dsl", &o);
    assert_int_equal(moec_status(r), MOEC_OK);
    const void *code = moec_code(r, &image_size);
    image_bytes = malloc(image_size);
    assert_non_null(image_bytes);
    memcpy(image_bytes, code, image_size);
    moec_free(r);
    return 0;
}
static int free_image(void **state)
{
    (void)state;
    free(image_bytes);
    return 0;
}

static struct moe_layer_desc small(void)
{
    return (struct moe_layer_desc){ .size = sizeof(struct moe_layer_desc),
                                    .experts = E,
                                    .topk = K,
                                    .hidden = H,
                                    .ffn = I,
                                    .dtype = IMAGE_BF16,
                                    .renorm = 1 };
}

// ---- a device with the image and a layer's tensors

struct place {
    struct moe_device *d;
    struct moe_image *image;
    struct moe_layer_weights w;
    struct moe_layer *l;
};
static void open_place(struct place *p, const char *device)
{
    char why[512] = "";
    *p = (struct place){ .w = { .size = sizeof p->w } };
    if (moe_open(device, &p->d, why, sizeof why))
        fail_msg("%s", why);
    if (moe_load(p->d, image_bytes, image_size, &p->image))
        fail_msg("%s", moe_error(p->d, why, sizeof why));
}
static void *tensor(struct place *p, size_t elems, unsigned seed)
{
    void *at;
    uint16_t *host = malloc(elems * 2);
    assert_non_null(host);
    for (size_t i = 0; i < elems; i++) { // bf16, 1/8 to 1/4 of either sign
        seed = seed * 1103515245u + 12345;
        host[i] = (uint16_t)(0x3e00 | seed >> 25 | (seed >> 8 & 0x8000));
    }
    assert_int_equal(moe_alloc(p->d, elems * 2, &at), MOE_OK);
    assert_int_equal(moe_upload(p->d, at, host, elems * 2), MOE_OK);
    free(host);
    return at;
}
static void give_weights(struct place *p)
{
    p->w.gate = tensor(p, E * I * H, 1);
    p->w.up = tensor(p, E * I * H, 2);
    p->w.down = tensor(p, E * I * H, 3);
}
static void make_layer(struct place *p)
{
    const struct moe_layer_desc desc = small();
    char why[512];
    give_weights(p);
    if (moe_layer_create(p->image, &desc, &p->w, &p->l))
        fail_msg("%s", moe_error(p->d, why, sizeof why));
}
static void close_place(struct place *p)
{
    moe_layer_free(p->l);
    moe_free(p->d, (void *)(uintptr_t)p->w.gate);
    moe_free(p->d, (void *)(uintptr_t)p->w.up);
    moe_free(p->d, (void *)(uintptr_t)p->w.down);
    moe_unload(p->image);
    moe_close(p->d);
}
static void says(struct place *p, int got, int want, const char *words)
{
    char text[1024];
    moe_error(p->d, text, sizeof text);
    if (got != want || !strstr(text, words))
        fail_msg("status %d, expected %d and '%s' in: %s", got, want, words, text);
}

static void library(const char *variable, const char *name, char path[640])
{
    char self[512] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    *strrchr(self, '/') = 0;
    snprintf(path, 640, "%s/%s", self, name);
    setenv(variable, path, 1);
}
static int with_sim(void **state)
{
    char path[640];
    (void)state;
    library("MOE_SIM_LIBRARY", "../libmoesim.so", path);
    return 0;
}
static int with_fake(void **state)
{
    char path[640];
    (void)state;
    library("MOE_CUDA_LIBRARY", "libfakecuda.so", path);
    void *h = dlopen(path, RTLD_NOW);
    assert_non_null(h);
    fake = dlsym(h, "fake_gpu");
    assert_non_null(fake);
    fake->reset();
    return 0;
}

// ---- refusals

static void descriptions(void **state)
{
    struct place p;
    (void)state;
    open_place(&p, "cuda:0");
    give_weights(&p);
    static const int one[512];
#define BAD(field, value, words) \
    { \
        offsetof(struct moe_layer_desc, field), value, words \
    }
    static const struct {
        size_t at;
        int value;
        const char *words;
    } bad[] = { BAD(experts, 0, "0 experts"),
                BAD(experts, 513, "513 experts"),
                BAD(topk, 0, "0 choices"),
                BAD(topk, 5, "5 choices of 4"),
                BAD(shared, -1, "-1 shared"),
                BAD(shared, 31, "31 shared"),
                BAD(hidden, 60, "hidden size 60"),
                BAD(hidden, 32776, "hidden size 32776"),
                BAD(ffn, 4, "expert width 4"),
                BAD(ffn, 65544, "expert width 65544"),
                BAD(dtype, IMAGE_F32, "neither IMAGE_BF16"),
                BAD(dtype, IMAGE_F16, "was compiled for bf16"),
                BAD(activation, 3, "activation 3"),
                BAD(activation, MOE_ACT_CLAMPED, "gate_bias"),
                BAD(score, 2, "score 2"),
                BAD(groups, 3, "in 3 groups"),
                BAD(groups, 2, "best 0 of 2 groups"),
                BAD(shared_gate, 1, "weights.shared_gate is NULL"),
                BAD(local, 3, "weights.expert_map must say") };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct moe_layer_desc desc = small();
        memcpy((char *)&desc + bad[i].at, &bad[i].value, sizeof(int));
        says(&p, moe_layer_create(p.image, &desc, &p.w, &p.l), MOE_ERR_ARGUMENT, bad[i].words);
        assert_null(p.l);
    }
    struct moe_layer_weights w = p.w;
    const struct moe_layer_desc desc = small();
    w.down = NULL;
    says(&p, moe_layer_create(p.image, &desc, &w, &p.l), MOE_ERR_ARGUMENT, "weights.down is NULL");
    w = p.w;
    w.gate_bias = one;
    says(&p, moe_layer_create(p.image, &desc, &w, &p.l), MOE_ERR_ARGUMENT, "go with MOE_ACT_CLAMPED");
    w = p.w;
    w.down = (const char *)w.down + 2;
    says(&p, moe_layer_create(p.image, &desc, &w, &p.l), MOE_ERR_SIGNATURE, "not aligned to 16");
    close_place(&p);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->wrong, 0);
}

static struct moe_layer_call call_of(struct place *p, int64_t tokens, void *space, size_t bytes)
{
    void *at = (void *)(uintptr_t)p->w.gate; // any device memory does where nothing runs
    return (struct moe_layer_call){ .size = sizeof(struct moe_layer_call),
                                    .tokens = tokens,
                                    .rows = 16, // kernels without boxes: see short_way_boxes
                                    .x = at,
                                    .y = at,
                                    .logits = at,
                                    .workspace = space,
                                    .workspace_bytes = bytes };
}

static void calls(void **state)
{
    struct place p;
    void *space;
    (void)state;
    open_place(&p, "cuda:0");
    make_layer(&p);
    size_t bytes = moe_layer_workspace(p.l, T);
    assert_int_equal(moe_alloc(p.d, bytes, &space), MOE_OK);
    struct moe_layer_call c = call_of(&p, T, space, bytes);
    fake->launches = 0;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_OK, "");
    assert_int_equal(fake->launches, 6);
    c.tokens = 0;
    c.workspace = NULL;
    assert_int_equal(moe_layer_forward(p.l, &c, NULL), MOE_OK);
    assert_int_equal(fake->launches, 6);
    c = call_of(&p, T, space, bytes / 2);
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "the workspace has");
    c = call_of(&p, T, NULL, bytes);
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "the workspace has 0 bytes");
    c = call_of(&p, T, space, bytes);
    c.size = 0;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "the call's size is not set");
    c = call_of(&p, (int64_t)1 << 31, space, bytes);
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "below 2^31");
    c.tokens = -1;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "-1 tokens");
    c = call_of(&p, T, space, bytes);
    c.rows = 48;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "no tile of 48 rows");
    c = call_of(&p, T, space, bytes);
    c.logits = NULL;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "neither logits nor");
    c.ids = (const int32_t *)p.w.gate;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_ARGUMENT, "neither logits nor");
    c.weights = (const float *)p.w.gate;
    assert_int_equal(moe_layer_forward(p.l, &c, NULL), MOE_OK);
    assert_int_equal(fake->launches, 6 + 5);
    c.x = (const char *)c.x + 8;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_SIGNATURE, "'x' is at");
    c = call_of(&p, T, space, bytes);
    c.y = NULL;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_SIGNATURE, "'y' is NULL");
    moe_free(p.d, space);
    close_place(&p);
    assert_int_equal(fake->live, 0);
}

// ---- the launch path

// A forward sets as many nodes, launches their graph and asks the driver for nothing else.
static void expect_batch(struct place *p, const struct moe_layer_call *c, void *stream, int n)
{
    static const char *const allowed[] = { "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch",
                                           "cuStreamIsCapturing" };
    int seen[3] = { 0 }, before = fake->calls, live = fake->live, launches = fake->launches;
    assert_int_equal(moe_layer_forward(p->l, c, stream), MOE_OK);
    for (int i = before, a; i < fake->calls; i++) {
        for (a = 0; a < 3 && strcmp(fake->names[i], allowed[a]); a++)
            continue;
        if (a == 3 && strncmp(fake->names[i], "cuCtx", 5))
            fail_msg("a forward calls %s", fake->names[i]);
        seen[a % 3] += a < 3;
    }
    assert_true(seen[0] == n && seen[1] == 1 && seen[2] <= 1 && fake->calls - before <= n + 2 + 3);
    assert_int_equal(fake->launches, launches + n);
    assert_int_equal(fake->live, live);
    assert_true(fake->stream == stream);
}

// Each call of the driver fails once: all kernels are launched all the same, or none and a text names the call.
static void each_call_fails(struct place *p, const struct moe_layer_call *c, void *stream)
{
    int before = fake->calls, told = 0;
    assert_int_equal(moe_layer_forward(p->l, c, stream), MOE_OK);
    int calls = fake->calls - before;
    for (int i = 1; i <= calls; i++) {
        char text[1024];
        int launches = fake->launches;
        fake->fail_at = fake->calls + i;
        fake->fail_code = FAKE_HANDLE;
        int status = moe_layer_forward(p->l, c, stream);
        const char *call = fake->names[fake->fail_at - 1];
        bool current = !strncmp(call, "cuCtx", 5);
        assert_int_equal(fake->launches - launches, status ? 0 : 6);
        assert_true(!status || status == MOE_ERR_DEVICE);
        moe_error(p->d, text, sizeof text);
        if (status && !strstr(text, current ? "context current" : "cuGraphLaunch of 6 kernels from route_softmax"))
            fail_msg("%s failed: %s", call, text);
        told += status != MOE_OK;
    }
    fake->fail_at = 0;
    assert_int_equal(told, 3); // the context in two calls, the graph
}

static void launch_path(void **state)
{
    struct place p;
    void *space, *stream, *graph;
    (void)state;
    open_place(&p, "cuda:0");
    make_layer(&p);
    size_t bytes = moe_layer_workspace(p.l, T);
    assert_int_equal(moe_alloc(p.d, bytes, &space), MOE_OK);
    assert_int_equal(moe_stream(p.d, &stream), MOE_OK);
    struct moe_layer_call c = call_of(&p, T, space, bytes);
    expect_batch(&p, &c, stream, 6);
    each_call_fails(&p, &c, stream);
    // Steps one by one; capture.
    fake->launches = 0;
    for (int s = 0; s < MOE_LAYER_STEPS; s++) {
        c.steps = 1u << s;
        assert_int_equal(moe_layer_forward(p.l, &c, stream), MOE_OK);
        assert_int_equal(fake->launches, s + 1);
    }
    c.steps = 1u << MOE_GATE_UP | 1u << MOE_DOWN | 1u << MOE_COMBINE;
    expect_batch(&p, &c, stream, 3);
    c.steps = 0;
    c.ids = (const int32_t *)p.w.gate;
    c.weights = (const float *)p.w.gate;
    c.logits = NULL;
    expect_batch(&p, &c, stream, 5);
    c = call_of(&p, T, space, bytes);
    fake->launches = 0;
    c.y = (char *)c.y + 2; // of the last kernel: none is launched
    says(&p, moe_layer_forward(p.l, &c, stream), MOE_ERR_SIGNATURE, "'y' is at");
    assert_int_equal(fake->launches, 0);
    c = call_of(&p, T, space, bytes);
    assert_int_equal(moe_capture_begin(p.d, stream), MOE_OK);
    assert_int_equal(moe_layer_forward(p.l, &c, stream), MOE_OK);
    assert_int_equal(moe_capture_end(p.d, stream, &graph), MOE_OK);
    assert_int_equal(moe_graph_launch(p.d, graph, stream), MOE_OK);
    assert_int_equal(moe_sync(p.d, stream), MOE_OK);
    moe_destroy(p.d, MOE_GRAPH, graph);
    moe_destroy(p.d, MOE_STREAM, stream);
    moe_free(p.d, space);
    close_place(&p);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->wrong, 0);
}

struct capturer {
    struct moe_device *d;
    pthread_barrier_t begun, made;
    bool fails;
};
static void *capture(void *user)
{
    struct capturer *c = user;
    void *stream = NULL, *graph = NULL;
    c->fails = moe_stream(c->d, &stream) || moe_capture_begin(c->d, stream);
    pthread_barrier_wait(&c->begun);
    pthread_barrier_wait(&c->made);
    c->fails = c->fails || moe_capture_end(c->d, stream, &graph);
    moe_destroy(c->d, MOE_GRAPH, graph);
    moe_destroy(c->d, MOE_STREAM, stream);
    return NULL;
}

// A layer is made and freed while another thread captures, as when a server changes images: nobody may wait for the device.
static void made_during_a_capture(void **state)
{
    struct place p;
    struct capturer c;
    pthread_t id;
    (void)state;
    open_place(&p, "cuda:0");
    give_weights(&p);
    const struct moe_layer_desc desc = small();
    c.d = p.d;
    assert_int_equal(pthread_barrier_init(&c.begun, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&c.made, NULL, 2), 0);
    assert_int_equal(pthread_create(&id, NULL, capture, &c), 0);
    pthread_barrier_wait(&c.begun);
    int status = moe_layer_create(p.image, &desc, &p.w, &p.l);
    moe_layer_free(p.l);
    pthread_barrier_wait(&c.made);
    pthread_join(id, NULL);
    says(&p, status, MOE_OK, "");
    assert_false(c.fails);
    p.l = NULL;
    close_place(&p);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->wrong, 0);
}

// ---- the short way to a launch

static int compare(void *user, enum layer_launch n, const struct layer_kernel *k, const struct moe_arg *args)
{
    struct layer_ready *r = user;
    const struct launch_item *got = &r->item[r->n++];
    union launch_value value[LAYER_VALUES];
    void *slots[LAYER_VALUES + LAYER_BOXES_MAX];
    struct launch_map maps[LAYER_BOXES_MAX];
    struct launch_item want = { .args = slots };
    (void)n;
    assert_true(k->direct); // or it is not short
    assert_int_equal(launch_resolve(k->kernel, args, k->sig->nparams, NULL, &want, value, maps), MOE_OK);
    assert_false(want.dependent);
    assert_true(got->function == want.function && got->sig == want.sig && got->blocks == want.blocks);
    int at = 0;
    for (int i = 0; i < k->sig->nparams; i++, at++) {
        bool pointer = k->sig->params[i].kind != IMAGE_SCALAR;
        assert_memory_equal(got->args[at], slots[at], pointer ? sizeof(void *) : 4);
    }
    for (int i = 0; i < k->sig->ndims; i++)
        if (k->sig->dims[i].bound < 0) {
            assert_memory_equal(got->args[at], slots[at], 4);
            at++;
        }
    for (int i = 0; i < k->sig->nboxes; i++, at++)
        assert_memory_equal(got->args[at], slots[at], IMAGE_MAP_BYTES);
    return MOE_OK;
}

static void same_both_ways(struct place *p, const struct moe_layer_desc *desc, const struct moe_layer_weights *w,
                           bool logits)
{
    static const int64_t tokens[] = { 1, 2, 16, 17, 1000, 100000 };
    char why[512];
    struct layer_ready ready;
    struct layer_sizes s;
    if (moe_layer_create(p->image, desc, w, &p->l))
        fail_msg("%s", moe_error(p->d, why, sizeof why));
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (int tile = 0; tile < p->l->ntiles; tile++) {
            struct moe_layer_call c = call_of(p, tokens[t], (void *)0x10000, 0);
            c.ids = logits ? NULL : (const int32_t *)p->w.gate;
            c.weights = logits ? NULL : (const float *)p->w.gate;
            c.logits = logits ? c.logits : NULL;
            int rows = p->l->tile[tile];
            assert_true(layer_sizes(p->l, tokens[t], rows, &s));
            assert_int_equal(layer_collect(p->l, &c, &s, tile, &ready), MOE_OK);
            int n = ready.n;
            ready.n = 0;
            assert_int_equal(layer_launches(p->l, &c, rows, compare, &ready), MOE_OK);
            assert_int_equal(ready.n, n);
        }
    moe_layer_free(p->l);
    p->l = NULL;
}

static void short_way(void **state)
{
    struct place p;
    (void)state;
    open_place(&p, "cuda:0");
    give_weights(&p);
    for (int i = 0; i < 8; i++) {
        struct moe_layer_desc d = small();
        struct moe_layer_weights w = p.w;
        const void *any = p.w.gate;
        d.groups = i == 1 ? 2 : 0;
        d.keep_groups = i == 1;
        d.score = i == 2;
        d.shared = i == 3 || i == 4;
        d.shared_gate = i == 4;
        w.shared_gate = any;
        d.local = i == 5 ? 3 : 0;
        w.expert_map = i == 5 || i == 6 ? any : NULL;
        d.activation = i == 7 ? MOE_ACT_CLAMPED : i == 6 ? MOE_ACT_GEGLU : MOE_ACT_SWIGLU;
        w.gate_bias = w.up_bias = i == 7 ? any : NULL;
        w.down_bias = i == 7 ? any : NULL;
        w.up = i == 2 ? NULL : w.up;
        same_both_ways(&p, &d, &w, true);
        same_both_ways(&p, &d, &w, false);
    }
    close_place(&p);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->wrong, 0);
}

// Tensor maps and persistent grids both ways.
static void short_way_boxes(void **state)
{
    struct place p;
    void *was = image_bytes;
    size_t was_size = image_size, size;
    image_bytes = with_boxes(&size);
    image_size = size;
    short_way(state);
    open_place(&p, "cuda:0");
    make_layer(&p);
    struct moe_layer_call c = call_of(&p, 100000, (void *)0x10000, 0);
    struct layer_ready r;
    struct layer_sizes s;
    assert_true(layer_sizes(p.l, c.tokens, p.l->tile[0], &s));
    assert_int_equal(layer_collect(p.l, &c, &s, 0, &r), MOE_OK);
    int boxes = 0;
    for (int i = 0; i < r.n; i++) {
        const struct image_kernel *k = r.item[i].sig;
        assert_true(r.item[i].blocks <= (uint32_t)(7 * k->resident)); // the fake has 7 multiprocessors
        for (int j = 0; j < k->nboxes; j++, boxes++) {                // each its own, behind the dims
            int at = k->nparams + j;
            for (int n = 0; n < k->ndims; n++)
                at += k->dims[n].bound < 0;
            assert_ptr_equal(r.item[i].args[at], &r.map[i][j]);
            struct fake_map m;
            memcpy(&m, r.item[i].args[at], sizeof m);
            assert_true(m.mark == 0x5a && m.box[0] == 32 && m.box[1] == 16);
            assert_int_equal(m.base, (uintptr_t) * (void **)r.item[i].args[k->boxes[j].param]);
        }
    }
    assert_true(boxes >= 5);
    close_place(&p);
    free(image_bytes);
    image_bytes = was;
    image_size = was_size;
}

// ---- launches that start early

// The image with these parameters early: "kernel.parameter", NULL-terminated.
static void *with_early(const char *const *names, size_t *size)
{
    char err[IMAGE_ERR_MAX], name[128];
    struct image_desc *d = moe_image_read(image_bytes, image_size, err);
    assert_non_null(d);
    for (int i = 0; i < d->nkernels; i++)
        for (int j = 0; j < d->kernels[i].nparams; j++) {
            struct image_param *p = (struct image_param *)(uintptr_t)&d->kernels[i].params[j];
            snprintf(name, sizeof name, "%s.%s", d->kernels[i].name, p->name);
            p->early = false;
            for (const char *const *n = names; *n; n++)
                p->early |= !strcmp(*n, name);
        }
    *size = moe_image_size(d);
    void *bytes = malloc(*size);
    if (!moe_image_write(d, bytes, *size, err))
        fail_msg("%s", err);
    free(d);
    return bytes;
}

struct early_case {
    const char *names[8]; // that are early
    // Which launches then are dependent, a bit each. logits: route count plan gate_up down combine. given: without route, its ids
    // and weights the caller's. experts: gate_up down combine.
    unsigned logits, given, experts;
};
static const struct early_case early_cases[] = {
    { { NULL }, 0, 0, 0 },
    { { "gate_up.w_gate", "gate_up.w_up", "down.w_down" }, 0x18, 0xc, 0x2 },
    { { "gate_up.x", "gate_up.w_up" }, 0x8, 0x4, 0 },
    { { "gate_up.w_gate", "gate_up.tiles", "down.w_down" }, 0x10, 0x8, 0x2 }, // the plan has just written them
    { { "gate_up.w_gate", "down.w_down", "down.tiles" }, 0x8, 0x4, 0x2 }, // two launches before, gate_up being early
    { { "gate_up.row_token", "down.w_down", "down.tiles" }, 0x10, 0x8, 0x2 }, // before gate_up, an ordinary one
    { { "count.ids", "combine.weights" }, 0x20, 0x10, 0x4 },                  // the first launch is never dependent
    { { "down.w_down", "combine.d" }, 0x10, 0x8, 0x2 },
    { { "route_softmax.logits", "count.ids", "plan.ids" }, 0x4, 0x2, 0 }, // route writes ids, then count is ordinary
    { { "plan.counts", "combine.weights", "gate_up.w_gate", "down.w_down" }, 0x38, 0x1c, 0x6 },
};

// By a chain, which was made for this, and one by one.
static void expect_early(const struct place *p, const struct moe_layer_call *c, unsigned want)
{
    char why[512];
    void *stream[2] = { NULL };
    assert_int_equal(moe_stream(p->d, &stream[1]), MOE_OK);
    for (int chained = 0; chained < 2; chained++) {
        int from = fake->launches, replays = fake->replays;
        if (moe_layer_forward(p->l, c, stream[chained]))
            fail_msg("%s", moe_error(p->d, why, sizeof why));
        int n = fake->launches - from;
        assert_int_equal(fake->replays - replays, chained);
        for (int i = 0; i < n; i++)
            if ((unsigned)fake->log[from + i].dependent != (want >> i & 1))
                fail_msg("launch %d, %s: want 0x%x", i, fake->log[from + i].symbol, want);
        assert_int_equal(want >> n, 0);
    }
    moe_destroy(p->d, MOE_STREAM, stream[1]);
}

static void early(void **state)
{
    void *was = image_bytes;
    size_t was_size = image_size, size;
    (void)state;
    for (size_t i = 0; i < sizeof early_cases / sizeof early_cases[0]; i++) {
        const struct early_case *e = &early_cases[i];
        struct place p;
        image_bytes = with_early(e->names, &size);
        image_size = size;
        open_place(&p, "cuda:0");
        make_layer(&p);
        struct moe_layer_call c = call_of(&p, T, (void *)0x10000, 1 << 30);
        expect_early(&p, &c, e->logits);
        c.rows = p.l->tile[p.l->ntiles - 1];
        expect_early(&p, &c, e->logits);
        c.ids = (const int32_t *)p.w.gate;
        c.weights = (const float *)p.w.gate;
        c.logits = NULL;
        expect_early(&p, &c, e->given);
        c.steps = 1u << MOE_GATE_UP | 1u << MOE_DOWN | 1u << MOE_COMBINE;
        expect_early(&p, &c, e->experts);
        close_place(&p);
        free(image_bytes);
        image_bytes = was;
        image_size = was_size;
    }
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->wrong, 0);
}

// What a kernel requires of the tokens is asked at each call; a grid without blocks is left out.
static void requirements(void **state)
{
    struct place p;
    void *space;
    (void)state;
    open_place(&p, "cuda:0");
    make_layer(&p);
    size_t bytes = moe_layer_workspace(p.l, 100);
    assert_int_equal(moe_alloc(p.d, bytes, &space), MOE_OK);
    const struct image_kernel *sig = p.l->k[L_COMBINE].sig;
    struct image_dim *d = (struct image_dim *)(uintptr_t)sig->dims; // the image's copy, not constant
    while (strcmp(d->name, "T"))
        d++;
    int64_t was = d->max;
    fake->launches = 0;
    d->max = 10;
    struct moe_layer_call c = call_of(&p, 11, space, bytes);
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_SIGNATURE, "T is 11, the kernel takes 0 to 10");
    d->max = was;
    d->multiple = 4;
    says(&p, moe_layer_forward(p.l, &c, NULL), MOE_ERR_SIGNATURE, "T is 11, not a multiple of 4");
    d->multiple = 1;
    assert_int_equal(fake->launches, 0);
    assert_int_equal(moe_layer_forward(p.l, &c, NULL), MOE_OK);
    assert_int_equal(fake->launches, 6);
    struct image_clause *none = (struct image_clause *)(uintptr_t)p.l->k[L_PLAN].sig->clauses;
    none->hi = none->lo;
    assert_int_equal(moe_layer_forward(p.l, &c, NULL), MOE_OK);
    assert_int_equal(fake->launches, 6 + 5);
    for (int i = 6; i < 11; i++)
        assert_true(fake->log[i].grid > 0 && strcmp(fake->log[i].symbol, "plan"));
    int chunk = 0; // a grid may depend on scalars
    sig = p.l->k[L_COUNT].sig;
    while (strcmp(sig->params[chunk].name, "chunk"))
        chunk++;
    ((struct image_kernel *)(uintptr_t)sig)->nclauses = 1;
    struct image_clause *each = (struct image_clause *)(uintptr_t)sig->clauses;
    *each = (struct image_clause){ .name = "c", .kind = IMAGE_EACH, .map = -1 };
    each->lo = (struct image_expr){ 1, { { IMAGE_T_CONST, 0 } } };
    each->hi = (struct image_expr){ 1, { { IMAGE_T_PARAM, chunk } } };
    c.steps = 1u << MOE_COUNT;
    assert_int_equal(moe_layer_forward(p.l, &c, NULL), MOE_OK);
    assert_int_equal(fake->grid, 256); // slots a block, for few tokens
    moe_free(p.d, space);
    close_place(&p);
    assert_int_equal(fake->live, 0);
}

// Shapes of kernels that a layer cannot take the short way, or not at all.
static void odd_kernels(void **state)
{
    static struct image_dim dims[40] = { { "T", -1, 1, 100 }, { "H", -1, 1, 100 } };
    static struct image_param params[30];
    struct image_kernel sig = { .name = "odd", .nparams = 1, .ndims = 2, .params = params, .dims = dims };
    struct layer_kernel k = { .sig = &sig };
    char why[LAYER_WHY] = "";
    (void)state;
    for (int i = 0; i < 30; i++)
        params[i] = (struct image_param){ "x", IMAGE_IN, IMAGE_BF16, 2, 16, { { 0, 0 }, { 1, 0 } }, false };
    assert_true(layer_bind(&k, why) && k.direct);
    params[0].shape[1].dim = 0; // [T, T]: tokens that are the hidden size as well
    sig.ndims = 1;
    assert_true(layer_bind(&k, why) && !k.direct);
    params[0].shape[1].dim = 1;
    sig.ndims = 2;
    params[0].shape[0] = (struct image_extent){ -1, 8 }; // compiled for 8 tokens
    assert_true(layer_bind(&k, why) && !k.direct);
    params[0].shape[0] = (struct image_extent){ 0, 0 };
    dims[0].bound = 8;
    assert_true(layer_bind(&k, why) && !k.direct);
    dims[0].bound = -1;
    sig.ndims = 3; // one that no shape gives
    assert_true(layer_bind(&k, why) && !k.direct);
    sig.ndims = LAYER_DIMS_MAX + 1;
    assert_false(layer_bind(&k, why));
    assert_string_equal(why, "kernel odd: 1 parameters, 17 dimensions, 0 boxes, a layer gives at most 24, 16, 8");
    sig.ndims = 2;
    sig.nparams = LAYER_PARAMS_MAX + 1;
    assert_false(layer_bind(&k, why));
    sig.nparams--;
    assert_true(layer_bind(&k, why));
}

// Each call of the driver fails once while a layer is made: nothing is left behind (but a stream whose freeing could not even
// begin, since its context could not be made current), or there is a layer that works.
static void create_fails(void **state)
{
    const struct moe_layer_desc desc = small();
    int calls = 0, failed = 0;
    (void)state;
    for (int i = 0; i <= calls; i += i < 20 ? 1 : 7) { // the later ones make one chain like the other
        struct place p;
        void *stream, *space = NULL;
        fake->calls = 0; // names are kept of the first ones only
        open_place(&p, "cuda:0");
        give_weights(&p);
        int live = fake->live, before = fake->calls;
        fake->fail_at = i ? before + i : 0;
        fake->fail_code = FAKE_OUT_OF_MEMORY;
        int status = moe_layer_create(p.image, &desc, &p.w, &p.l);
        calls = i ? calls : fake->calls - before;
        failed += status != MOE_OK;
        fake->fail_at = 0;
        assert_true((status == MOE_OK) == (p.l != NULL));
        int lost = i && !strncmp(fake->names[before + i - 1], "cuCtx", 5) && fake->live > live && status ? 1 : 0;
        if (status && fake->live != live + lost)
            fail_msg("call %d %s: %d left, status %d", i, fake->names[before + i - 1], fake->live - live, status);
        if (!status) {
            struct moe_layer_call c = call_of(&p, T, NULL, moe_layer_workspace(p.l, T));
            int launches = fake->launches;
            moe_alloc(p.d, c.workspace_bytes, &space);
            moe_stream(p.d, &stream);
            c.workspace = space;
            assert_int_equal(moe_layer_forward(p.l, &c, stream), MOE_OK);
            assert_int_equal(fake->launches, launches + 6);
            moe_destroy(p.d, MOE_STREAM, stream);
            moe_free(p.d, space);
        }
        close_place(&p);
        lost += i && !status && fake->live == 1 && !strncmp(fake->names[before + i - 1], "cuCtx", 5);
        assert_int_equal(fake->live, lost);
        assert_int_equal(fake->wrong, 0);
        fake->reset();
        fake->live = 0;
    }
    assert_in_range(failed, 5, 15); // allocation, stream, fill, wait, the stream again; the context for each
    assert_true(calls > 3 * 8 * 5);
}

// ---- sizes

static void sizes(void **state)
{
    struct place p;
    size_t last = 0, offset, bytes;
    (void)state;
    open_place(&p, "cuda:0");
    make_layer(&p);
    assert_int_equal(moe_layer_workspace(p.l, 0), 0);
    for (int64_t t = 1; t < 200000; t += t < 3000 ? 1 : t / 7) {
        size_t now = moe_layer_workspace(p.l, t);
        assert_true(now >= last);
        last = now;
        for (int i = 0, rows; (rows = moe_layer_variant(p.l, i)); i++) {
            size_t end = 0;
            for (int part = 0; part < MOE_LAYER_PARTS; part++) {
                assert_int_equal(moe_layer_part(p.l, t, rows, (enum moe_layer_part)part, &offset, &bytes), MOE_OK);
                assert_true(offset >= end && offset % 256 == 0);
                end = offset + bytes;
            }
            assert_true(end <= now);
            moe_layer_part(p.l, t, rows, MOE_PART_TILES, &offset, &bytes);
            assert_true(bytes / 16 >= (size_t)(t * K / rows)); // every full tile has its entry
        }
    }
    says(&p, moe_layer_part(p.l, 5, 48, MOE_PART_H, &offset, &bytes), MOE_ERR_ARGUMENT, "no part");
    close_place(&p);
}

// ---- hints

static void hints(void **state)
{
    struct place p;
    char line[320], text[2048] = "# measured\n";
    (void)state;
    open_place(&p, "cuda:0");
    make_layer(&p);
    int small_rows = moe_layer_variant(p.l, 0), middle = moe_layer_variant(p.l, 1), was = moe_layer_rows(p.l, 3);
    int other = was == small_rows ? middle : small_rows;
    assert_int_equal(moe_layer_hint(p.l, 3, other, line, sizeof line), MOE_OK);
    strcat(text, line);
    moe_layer_hint(p.l, 9, other, line, sizeof line);
    strcat(text, line);
    moe_layer_hint(p.l, 20, middle == other ? small_rows : middle, line, sizeof line);
    strcat(text, line);
    int at2 = moe_layer_rows(p.l, 2), at15 = moe_layer_rows(p.l, 15), at21 = moe_layer_rows(p.l, 21);
    assert_int_equal(moe_layer_hints(p.l, text, strlen(text)), MOE_OK);
    for (int t = 3; t <= 9; t++) // measured at both ends alike
        assert_int_equal(moe_layer_rows(p.l, t), other);
    assert_int_equal(moe_layer_rows(p.l, 20), middle == other ? small_rows : middle);
    assert_int_equal(moe_layer_rows(p.l, 2), at2);
    assert_int_equal(moe_layer_rows(p.l, 15), at15);
    assert_int_equal(moe_layer_rows(p.l, 21), at21);
    // Of another shape, with unknown rows, cut off: passed over.
    for (char *c = text; (c = strstr(c, "4:2:64:32")); c++)
        *c = '5';
    moe_layer_hints(p.l, text, strlen(text));
    static const char *const junk[] = { "moe-hint 1|", "moe-hint 1|x|1|16\n", "\n\n\n", "moe-hint 2|a", "" };
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++)
        assert_int_equal(moe_layer_hints(p.l, junk[i], strlen(junk[i])), MOE_OK);
    moe_layer_hint(p.l, 5, 48, line, sizeof line);
    moe_layer_hints(p.l, line, strlen(line));
    assert_int_equal(moe_layer_rows(p.l, 5), other);
    says(&p, moe_layer_hint(p.l, 5, 16, line, 10), MOE_ERR_ARGUMENT, "a hint takes");
    close_place(&p);
}

// Every number of tokens has an index, ascending, the first ones their own.
static void indices(void **state)
{
    int last = -1;
    (void)state;
    for (int64_t t = 1; t < (int64_t)1 << 31; t += t < 5000 ? 1 : t / 50) {
        int i = choice_index(t);
        assert_true(i >= last && i < CHOICES);
        assert_true(t > 64 || i == t - 1);
        last = i;
    }
    assert_int_equal(choice_index(0), 0);
}

// ---- results: each thread its own stream and workspace, changing numbers of tokens, one layer

struct user {
    struct place *p;
    int number, fails;
    uint16_t *want; // [T][T * H]: y of a call with t + 1 tokens
    void *x, *logits;
};

static bool run_call(struct place *p, const struct user *u, int tokens, void *space, size_t bytes, void *y,
                     void *stream, uint16_t *out)
{
    struct moe_layer_call c = call_of(p, tokens, space, bytes);
    c.x = u->x;
    c.y = y;
    c.logits = u->logits;
    return !moe_poison(p->d, space, bytes, stream) && !moe_layer_forward(p->l, &c, stream) && !moe_sync(p->d, stream) &&
           !moe_download(p->d, out, y, (size_t)tokens * H * 2);
}

static void *serve(void *user)
{
    struct user *u = user;
    struct place *p = u->p;
    void *space = NULL, *stream = NULL, *y = NULL;
    uint16_t out[T * H];
    size_t bytes = moe_layer_workspace(p->l, T);
    bool ok = !moe_alloc(p->d, bytes, &space) && !moe_alloc(p->d, sizeof out, &y) && !moe_stream(p->d, &stream);
    for (int i = 0; ok && i < 6; i++) {
        int tokens = 1 + (u->number * 7 + i * 5) % T;
        ok = run_call(p, u, tokens, space, bytes, y, stream, out);
        u->fails += ok && memcmp(out, u->want + (tokens - 1) * T * H, (size_t)tokens * H * 2);
    }
    u->fails += !ok;
    moe_destroy(p->d, MOE_STREAM, stream);
    moe_free(p->d, space);
    moe_free(p->d, y);
    return NULL;
}

static void threads(void **state)
{
    enum { THREADS = 4 };
    static uint16_t want[T * T * H];
    struct place p;
    struct user u[THREADS];
    pthread_t id[THREADS];
    float logits[T * E];
    void *space, *y;
    (void)state;
    open_place(&p, "sim:sm_90a");
    make_layer(&p);
    struct user first = { .p = &p, .want = want, .x = tensor(&p, T * H, 4) };
    for (int i = 0; i < T * E; i++)
        logits[i] = (float)(i * 37 % 19) / 8;
    assert_int_equal(moe_alloc(p.d, sizeof logits, &first.logits), MOE_OK);
    assert_int_equal(moe_upload(p.d, first.logits, logits, sizeof logits), MOE_OK);
    size_t bytes = moe_layer_workspace(p.l, T);
    assert_int_equal(moe_alloc(p.d, bytes, &space), MOE_OK);
    assert_int_equal(moe_alloc(p.d, T * H * 2, &y), MOE_OK);
    for (int t = 1; t <= T; t++)
        assert_true(run_call(&p, &first, t, space, bytes, y, NULL, want + (t - 1) * T * H));
    for (int i = 0; i < H; i++) // the token itself is all that counts, and it is not nothing
        assert_int_equal(want[i], want[(T - 1) * T * H + i]);
    assert_true(want[0] != 0 && want[0] != 0xffff);
    for (int i = 0; i < THREADS; i++) {
        u[i] = first;
        u[i].number = i;
        assert_int_equal(pthread_create(&id[i], NULL, serve, &u[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(u[i].fails, 0);
    }
    assert_null(moe_finding(p.d, 0));
    moe_free(p.d, first.x);
    moe_free(p.d, first.logits);
    moe_free(p.d, space);
    moe_free(p.d, y);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(descriptions, with_fake),
        cmocka_unit_test_setup(calls, with_fake),
        cmocka_unit_test_setup(launch_path, with_fake),
        cmocka_unit_test_setup(create_fails, with_fake),
        cmocka_unit_test_setup(made_during_a_capture, with_fake),
        cmocka_unit_test_setup(sizes, with_fake),
        cmocka_unit_test_setup(hints, with_fake),
        cmocka_unit_test(indices),
        cmocka_unit_test_setup(short_way, with_fake),
        cmocka_unit_test_setup(short_way_boxes, with_fake),
        cmocka_unit_test_setup(early, with_fake),
        cmocka_unit_test_setup(requirements, with_fake),
        cmocka_unit_test(odd_kernels),
        cmocka_unit_test_setup(threads, with_sim),
    };
    return cmocka_run_group_tests(tests, make_image, free_image);
}
