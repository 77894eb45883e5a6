// DLPack tensors: the ABI's layout, every refusal with its words, and a layer run from tensors equal to one run from pointers.
// Devices: the simulator, and the fakes of libcuda and libamdhip64.
#include "fake_gpu.h"

#include "../compiler/moec.h"
#include "../runtime/layer.h"
#include "../runtime/moedlpack.h"

#include <dlfcn.h>
#include <libgen.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// dlpack.h of DLPack 1.0 on 64-bit systems.
#define AT(s, member, offset) _Static_assert(offsetof(struct s, member) == (offset), #s "." #member)
AT(moe_dl_tensor, data, 0);
AT(moe_dl_tensor, device_type, 8);
AT(moe_dl_tensor, device_id, 12);
AT(moe_dl_tensor, rank, 16);
AT(moe_dl_tensor, code, 20);
AT(moe_dl_tensor, bits, 21);
AT(moe_dl_tensor, lanes, 22);
AT(moe_dl_tensor, shape, 24);
AT(moe_dl_tensor, strides, 32);
AT(moe_dl_tensor, byte_offset, 40);
AT(moe_dl_managed, tensor, 0);
AT(moe_dl_managed, context, 48);
AT(moe_dl_managed, deleter, 56);
AT(moe_dl_versioned, major, 0);
AT(moe_dl_versioned, minor, 4);
AT(moe_dl_versioned, context, 8);
AT(moe_dl_versioned, deleter, 16);
AT(moe_dl_versioned, flags, 24);
AT(moe_dl_versioned, tensor, 32);
_Static_assert(sizeof(struct moe_dl_managed) == 64 && sizeof(struct moe_dl_versioned) == 80, "sizes");

static struct moe_device *sim, *cuda1, *hip0;
static char memory[4096] __attribute__((aligned(256)));
static int deleted;

static void count_versioned(struct moe_dl_versioned *self)
{
    (void)self;
    deleted++;
}

static void count(struct moe_dl_managed *self)
{
    (void)self;
    deleted++;
}

// [33, 256] of bf16 on the simulator, as everything below wants it.
static const int64_t extents[4] = { 33, 256, 1, 1 };
static struct moe_dl_versioned good(void)
{
    return (struct moe_dl_versioned){ .major = 1,
                                      .minor = 1,
                                      .deleter = count_versioned,
                                      .tensor = { .data = memory,
                                                  .device_type = MOE_DL_CPU,
                                                  .rank = 2,
                                                  .code = MOE_DL_BFLOAT,
                                                  .bits = 16,
                                                  .lanes = 1,
                                                  .shape = extents } };
}
static const struct moe_dl_want want = { "y", IMAGE_BF16, 2, { 33, 256 }, true };

static void takes(struct moe_device *d, const struct moe_dl_versioned *t, const struct moe_dl_want *w, void *at)
{
    char text[1024];
    void *p = NULL;
    if (moe_dl_get(d, moe_dl_v(t), w, &p))
        fail_msg("refused: %s", moe_error(d, text, sizeof text));
    assert_ptr_equal(p, at);
    assert_int_equal(deleted, 0);
}

static void refuses(struct moe_device *d, const struct moe_dl_versioned *t, const struct moe_dl_want *w,
                    const char *words)
{
    char text[1024];
    void *p = memory;
    int status = moe_dl_get(d, moe_dl_v(t), w, &p);
    if (status != MOE_ERR_ARGUMENT || strcmp(moe_error(d, text, sizeof text), words))
        fail_msg("%s \"%s\"; expected \"%s\"", moe_status_name(status), text, words);
    assert_null(p);
    assert_int_equal(deleted, 0);
}

static void both_kinds(void **state)
{
    struct moe_dl_versioned v = good();
    struct moe_dl_managed m = { .tensor = v.tensor, .deleter = count };
    void *p = NULL;
    (void)state;
    takes(sim, &v, &want, memory);
    assert_int_equal(moe_dl_get(sim, moe_dl(&m), &want, &p), MOE_OK);
    assert_ptr_equal(p, memory);
    assert_int_equal(moe_dl_bytes(moe_dl(&m)), 33 * 256 * 2);
    assert_int_equal(moe_dl_bytes(moe_dl_v(&v)), 33 * 256 * 2);
    v.major = 2;
    v.minor = 3;
    v.tensor.shape = (const int64_t *)8; // nothing past the version is read
    refuses(sim, &v, &want, "y: DLPack 2.3, 1.x is known");
    v = good();
    v.minor = 9;
    takes(sim, &v, &want, memory);
    refuses(sim, NULL, &want, "y: no tensor is given");
    assert_int_equal(deleted, 0);
}

static void read_only(void **state)
{
    struct moe_dl_versioned v = good();
    struct moe_dl_want in = want;
    (void)state;
    v.flags = 2 | MOE_DL_READ_ONLY;
    refuses(sim, &v, &want, "y: an output, but the tensor is read-only");
    in.written = false;
    takes(sim, &v, &in, memory);
    v.flags = 2;
    takes(sim, &v, &want, memory);
}

static void devices(void **state)
{
    struct moe_dl_versioned v = good();
    (void)state;
    takes(sim, &v, &want, memory);
    refuses(cuda1, &v, &want, "y: device type 1, host memory (kDLCPU); the layer is on cuda:1, which takes kDLCUDA");
    v.tensor.device_type = MOE_DL_CUDA;
    refuses(sim, &v, &want, "y: device type 2, kDLCUDA; the layer is on sim:0, which takes host memory (kDLCPU)");
    refuses(hip0, &v, &want, "y: device type 2, kDLCUDA; the layer is on hip:0, which takes kDLROCM");
    refuses(cuda1, &v, &want, "y: on device 0, the layer is on cuda:1");
    v.tensor.device_id = 1;
    takes(cuda1, &v, &want, memory);
    v.tensor.device_type = MOE_DL_CUDA_MANAGED;
    v.tensor.device_id = 0;
    takes(cuda1, &v, &want, memory);
    refuses(hip0, &v, &want, "y: device type 13, kDLCUDAManaged; the layer is on hip:0, which takes kDLROCM");
    v.tensor.device_type = MOE_DL_ROCM;
    takes(hip0, &v, &want, memory);
    refuses(cuda1, &v, &want, "y: device type 10, kDLROCM; the layer is on cuda:1, which takes kDLCUDA");
    v.tensor.device_id = 1;
    refuses(hip0, &v, &want, "y: on device 1, the layer is on hip:0");
    v.tensor.device_type = 3;
    refuses(cuda1, &v, &want,
            "y: device type 3, host memory (kDLCUDAHost); the layer is on cuda:1, which takes kDLCUDA");
    v.tensor.device_type = 11;
    refuses(hip0, &v, &want,
            "y: device type 11, host memory (kDLROCMHost); the layer is on hip:0, which takes kDLROCM");
    v.tensor.device_type = 15;
    refuses(cuda1, &v, &want, "y: device type 15, another kind of device; the layer is on cuda:1, which takes kDLCUDA");
}

static void types(void **state)
{
    static const struct {
        int code, bits, lanes, elem;
        const char *words;
    } rows[] = {
        { MOE_DL_BFLOAT, 16, 1, IMAGE_BF16, NULL },
        { MOE_DL_FLOAT, 16, 1, IMAGE_F16, NULL },
        { MOE_DL_FLOAT, 32, 1, IMAGE_F32, NULL },
        { MOE_DL_INT, 32, 1, IMAGE_I32, NULL },
        { MOE_DL_INT, 8, 1, MOE_DL_ANY, NULL },
        { MOE_DL_FLOAT, 16, 1, IMAGE_BF16, "y: [33, 256] of bf16 expected, [33, 256] of f16 is given" },
        { MOE_DL_FLOAT, 64, 1, IMAGE_F32, "y: [33, 256] of f32 expected, [33, 256] of f64 is given" },
        { MOE_DL_INT, 64, 1, IMAGE_I32, "y: of i64, i32 expected: convert it (PyTorch: .to(torch.int32))" },
        { MOE_DL_UINT, 32, 1, IMAGE_I32, "y: [33, 256] of i32 expected, [33, 256] of u32 is given" },
        { MOE_DL_INT, 64, 1, IMAGE_F32, "y: [33, 256] of f32 expected, [33, 256] of i64 is given" },
        { MOE_DL_BFLOAT, 16, 2, IMAGE_BF16,
          "y: [33, 256] of bf16 expected, [33, 256] of type code 4, 16 bits, 2 lanes is given" },
        { 6, 8, 1, IMAGE_I32, "y: [33, 256] of i32 expected, [33, 256] of type code 6, 8 bits, 1 lanes is given" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct moe_dl_versioned v = good();
        struct moe_dl_want w = want;
        v.tensor.code = (uint8_t)rows[i].code;
        v.tensor.bits = (uint8_t)rows[i].bits;
        v.tensor.lanes = (uint16_t)rows[i].lanes;
        w.elem = rows[i].elem;
        if (rows[i].words)
            refuses(sim, &v, &w, rows[i].words);
        else
            takes(sim, &v, &w, memory);
    }
}

static void shapes(void **state)
{
    static const int64_t other[2] = { 33, 128 }, none[2] = { 0, 256 }, minus[2] = { -2, 256 },
                         vast[2] = { INT64_MAX / 2, 256 }, many[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct moe_dl_want any = { "x", IMAGE_BF16, 2, { MOE_DL_ANY, 256 }, false };
    struct moe_dl_want space = { "workspace", MOE_DL_ANY, MOE_DL_ANY, { 0 }, true };
    struct moe_dl_versioned v = good();
    (void)state;
    takes(sim, &v, &any, memory);
    v.tensor.shape = other;
    refuses(sim, &v, &want, "y: [33, 256] of bf16 expected, [33, 128] of bf16 is given");
    refuses(sim, &v, &any, "x: [*, 256] of bf16 expected, [33, 128] of bf16 is given");
    takes(sim, &v, &space, memory);
    v.tensor.rank = 1;
    refuses(sim, &v, &want, "y: [33, 256] of bf16 expected, [33] of bf16 is given");
    v.tensor.rank = 8;
    v.tensor.shape = many;
    refuses(sim, &v, &want, "y: [33, 256] of bf16 expected, [1, 2, 3, 4, 5, 6, ...] of bf16 is given");
    v.tensor.rank = -1;
    refuses(sim, &v, &want, "y: -1 dimensions");
    v.tensor.rank = 2;
    v.tensor.shape = NULL;
    refuses(sim, &v, &want, "y: 2 dimensions, and shape is NULL");
    v.tensor.shape = minus;
    refuses(sim, &v, &any, "x: [-2, 256] is larger than memory can be, or below zero");
    v.tensor.shape = vast;
    refuses(sim, &v, &any, "x: [4611686018427387903, 256] is larger than memory can be, or below zero");
    v.tensor.shape = none;
    v.tensor.data = NULL;
    takes(sim, &v, &any, NULL);
    v.tensor.rank = 0; // a scalar
    v.tensor.data = memory;
    takes(sim, &v, &space, memory);
}

static void strides(void **state)
{
    static const int64_t dense[2] = { 256, 1 }, wide[2] = { 512, 1 }, turned[2] = { 1, 33 }, zero[2] = { 0, 1 },
                         one[2] = { 1, 256 }, odd[2] = { 77, 1 };
    struct moe_dl_want single = { "x", IMAGE_BF16, 2, { 1, 256 }, false };
    struct moe_dl_versioned v = good();
    (void)state;
    v.tensor.strides = dense;
    takes(sim, &v, &want, memory);
    v.tensor.strides = wide;
    refuses(sim, &v, &want,
            "y: [33, 256] with strides [512, 1] is not dense in row-major order (PyTorch: .contiguous())");
    v.tensor.strides = turned;
    refuses(sim, &v, &want,
            "y: [33, 256] with strides [1, 33] is not dense in row-major order (PyTorch: .contiguous())");
    v.tensor.strides = zero;
    refuses(sim, &v, &want,
            "y: [33, 256] with strides [0, 1] is not dense in row-major order (PyTorch: .contiguous())");
    v.tensor.shape = one; // one row: where the next would lie does not matter
    v.tensor.strides = odd;
    takes(sim, &v, &single, memory);
}

static void places(void **state)
{
    struct moe_dl_versioned v = good();
    (void)state;
    v.tensor.byte_offset = 48;
    takes(sim, &v, &want, memory + 48);
    v.tensor.data = memory + 8;
    v.tensor.byte_offset = 8;
    takes(sim, &v, &want, memory + 16);
    v.tensor.byte_offset = UINT64_MAX;
    char text[1024];
    void *p;
    refuses(sim, &v, &want, "y: byte_offset 18446744073709551615 leads out of memory");
    v.tensor.byte_offset = 2;
    assert_int_equal(moe_dl_get(sim, moe_dl_v(&v), &want, &p), MOE_ERR_ARGUMENT);
    assert_non_null(strstr(moe_error(sim, text, sizeof text), " + 2, not aligned to 16 bytes"));
    v.tensor.data = NULL;
    refuses(sim, &v, &want, "y: its data are NULL, 16896 bytes expected");
}

// ---- a layer

enum { T = 5, E = 4, K = 2, H = 64, I = 32 };
struct tensors {
    struct moe_dl_managed t[16];
    int64_t shape[16][4];
    int n;
};

static struct moe_dl_managed *tensor(struct tensors *all, void *data, int code, int bits, int rank, int64_t a,
                                     int64_t b, int64_t c, int64_t e)
{
    struct moe_dl_managed *t = &all->t[all->n];
    int64_t *shape = all->shape[all->n++];
    memcpy(shape, (const int64_t[]){ a, b, c, e }, 4 * sizeof *shape);
    *t = (struct moe_dl_managed){
        .tensor = { data, MOE_DL_CPU, 0, rank, (uint8_t)code, (uint8_t)bits, 1, shape, NULL, 0 }, .deleter = count
    };
    return t;
}

static struct moe_layer_desc desc(void)
{
    return (struct moe_layer_desc){
        .size = sizeof(struct moe_layer_desc), .experts = E, .topk = K, .hidden = H, .ffn = I, .dtype = IMAGE_BF16
    };
}

static void refuses_weights(const struct moe_layer_desc *d, const struct moe_dl_weights *f, const char *words)
{
    char text[1024];
    struct moe_layer_weights w = { .size = sizeof w, .gate = memory };
    int status = moe_dl_get_weights(sim, d, f, &w);
    if (status != MOE_ERR_ARGUMENT || strcmp(moe_error(sim, text, sizeof text), words))
        fail_msg("%s \"%s\"; expected \"%s\"", moe_status_name(status), text, words);
    assert_ptr_equal(w.gate, memory); // as it was
}

static void layer_weights(void **state)
{
    struct tensors a = { .n = 0 };
    struct moe_layer_desc d = desc();
    const int b = MOE_DL_BFLOAT, f = MOE_DL_FLOAT;
    struct moe_layer_weights w = { .size = sizeof w };
    (void)state;
    struct moe_dl_weights g = { .size = sizeof g };
    g.gate = moe_dl(tensor(&a, memory, b, 16, 3, E, I, H, 0));
    g.up = moe_dl(tensor(&a, memory + 16, b, 16, 3, E, I, H, 0));
    g.down = moe_dl(tensor(&a, memory + 32, b, 16, 3, E, H, I, 0));
    g.gate_bias = moe_dl(tensor(&a, memory + 48, b, 16, 2, E, I, 0, 0));
    g.up_bias = moe_dl(tensor(&a, memory + 64, b, 16, 2, E, I, 0, 0));
    g.down_bias = moe_dl(tensor(&a, memory + 80, b, 16, 2, E, H, 0, 0));
    g.select_bias = moe_dl(tensor(&a, memory + 96, f, 32, 1, E, 0, 0, 0));
    g.shared_gate = moe_dl(tensor(&a, memory + 112, b, 16, 1, H, 0, 0, 0));
    g.expert_map = moe_dl(tensor(&a, memory + 128, MOE_DL_INT, 32, 1, E, 0, 0, 0));
    assert_int_equal(moe_dl_get_weights(sim, &d, &g, &w), MOE_OK);
    const void *p[] = { w.gate,      w.up,          w.down,        w.gate_bias, w.up_bias,
                        w.down_bias, w.select_bias, w.shared_gate, w.expert_map };
    for (int i = 0; i < 9; i++)
        assert_ptr_equal(p[i], memory + 16 * i);
    d.local = 3;
    refuses_weights(&d, &g, "gate: [3, 32, 64] of bf16 expected, [4, 32, 64] of bf16 is given");
    d = desc();
    static const char *const words[] = {
        "gate: [4, 32, 64] of bf16 expected, [4, 32, 65] of bf16 is given",
        "up: [4, 32, 64] of bf16 expected, [4, 32, 65] of bf16 is given",
        "down: [4, 64, 32] of bf16 expected, [4, 64, 33] of bf16 is given",
        "gate_bias: [4, 32] of bf16 expected, [4, 33] of bf16 is given",
        "up_bias: [4, 32] of bf16 expected, [4, 33] of bf16 is given",
        "down_bias: [4, 64] of bf16 expected, [4, 65] of bf16 is given",
        "select_bias: [4] of f32 expected, [5] of f32 is given",
        "shared_gate: [64] of bf16 expected, [65] of bf16 is given",
        "expert_map: [4] of i32 expected, [5] of i32 is given",
    };
    for (int i = 0; i < 9; i++) {
        a.shape[i][a.t[i].tensor.rank - 1]++;
        refuses_weights(&d, &g, words[i]);
        a.shape[i][a.t[i].tensor.rank - 1]--;
    }
    g.up = moe_dl(NULL); // both matrices in one tensor
    refuses_weights(&d, &g, "gate: [4, 2, 32, 64] of bf16 expected, [4, 32, 64] of bf16 is given");
    g.gate = moe_dl(tensor(&a, memory, b, 16, 4, E, 2, I, H));
    g.gate_bias = moe_dl(NULL);
    g.size = offsetof(struct moe_dl_weights, shared_gate); // an older caller
    assert_int_equal(moe_dl_get_weights(sim, &d, &g, &w), MOE_OK);
    assert_true(w.gate && !w.up && !w.gate_bias && w.select_bias && !w.shared_gate && !w.expert_map);
    w.size = 0;
    assert_int_equal(moe_dl_get_weights(sim, &d, &g, &w), MOE_ERR_ARGUMENT);
    assert_int_equal(deleted, 0);
}

static void refuses_call(const struct moe_layer *l, const struct moe_dl_call *f, const char *words)
{
    char text[1024];
    struct moe_layer_call c = { .size = sizeof c, .tokens = 77 };
    int status = moe_dl_get_call(l, f, &c);
    if (status != MOE_ERR_ARGUMENT || strcmp(moe_error(sim, text, sizeof text), words))
        fail_msg("%s \"%s\"; expected \"%s\"", moe_status_name(status), text, words);
    assert_int_equal(c.tokens, 77);
}

static void layer_call(void **state)
{
    struct tensors a = { .n = 0 };
    struct moe_layer l = { .desc = desc(), .device = sim };
    const int b = MOE_DL_BFLOAT, f = MOE_DL_FLOAT;
    struct moe_layer_call c = { .size = sizeof c, .rows = 16, .workspace = memory, .workspace_bytes = 9 };
    struct moe_dl_call g = { .size = sizeof g };
    (void)state;
    g.x = moe_dl(tensor(&a, memory, b, 16, 2, T, H, 0, 0));
    g.y = moe_dl(tensor(&a, memory + 1024, b, 16, 2, T, H, 0, 0));
    g.logits = moe_dl(tensor(&a, memory + 2048, f, 32, 2, T, E, 0, 0));
    struct moe_dl ids = moe_dl(tensor(&a, memory + 2304, MOE_DL_INT, 32, 2, T, K, 0, 0));
    struct moe_dl weights = moe_dl(tensor(&a, memory + 2560, f, 32, 2, T, K, 0, 0));
    struct moe_dl space = moe_dl(tensor(&a, memory + 3072, MOE_DL_UINT, 8, 1, 1000, 0, 0, 0));
    assert_int_equal(moe_dl_get_call(&l, &g, &c), MOE_OK);
    assert_true(c.tokens == T && c.x == memory && c.y == memory + 1024 && (const void *)c.logits == memory + 2048);
    assert_true(!c.ids && !c.weights && c.rows == 16 && c.workspace == memory && c.workspace_bytes == 9);
    g.ids = ids;
    refuses_call(&l, &g, "logits: these or both ids and weights are expected, and not all");
    g.logits = moe_dl(NULL);
    refuses_call(&l, &g, "logits: these or both ids and weights are expected, and not all");
    g.weights = weights;
    g.workspace = space;
    assert_int_equal(moe_dl_get_call(&l, &g, &c), MOE_OK);
    assert_true(!c.logits && (const void *)c.ids == memory + 2304 && (const void *)c.weights == memory + 2560);
    assert_true(c.workspace == memory + 3072 && c.workspace_bytes == 1000);
    a.shape[1][0] = T + 1;
    refuses_call(&l, &g, "y: [5, 64] of bf16 expected, [6, 64] of bf16 is given");
    a.shape[1][0] = T;
    a.shape[3][1] = 3;
    refuses_call(&l, &g, "ids: [5, 2] of i32 expected, [5, 3] of i32 is given");
    a.shape[3][1] = K;
    a.t[3].tensor.bits = 64;
    refuses_call(&l, &g, "ids: of i64, i32 expected: convert it (PyTorch: .to(torch.int32))");
    a.t[3].tensor.bits = 32;
    a.t[4].tensor.bits = 16;
    refuses_call(&l, &g, "weights: [5, 2] of f32 expected, [5, 2] of f16 is given");
    a.t[4].tensor.bits = 32;
    a.t[1].tensor.data = memory + 624;
    refuses_call(&l, &g, "y: it overlaps x");
    a.t[1].tensor.data = memory + 640; // just behind it
    assert_int_equal(moe_dl_get_call(&l, &g, &c), MOE_OK);
    a.shape[5][0] = -1;
    refuses_call(&l, &g, "workspace: [*] is larger than memory can be, or below zero");
    assert_int_equal(deleted, 0);
}

static void *device_memory(size_t bytes, int seed)
{
    void *p;
    unsigned char *host = malloc(bytes);
    assert_non_null(host);
    for (size_t i = 0; i < bytes / 2; i++) { // bf16 of some size around 1
        uint16_t v = (uint16_t)(0x3f00 + (i * 37 + (size_t)seed * 11) % 256);
        v = (uint16_t)(v ^ (i % 3 == 0 ? 0x8000 : 0));
        memcpy(host + 2 * i, &v, 2);
    }
    assert_int_equal(moe_alloc(sim, bytes, &p) | moe_upload(sim, p, host, bytes), MOE_OK);
    free(host);
    return p;
}

// As a caller would: the layer and its call from tensors; then the same from pointers.
static void runs(struct moe_image *image)
{
    struct tensors a = { .n = 0 };
    const struct moe_layer_desc d = desc();
    const int b = MOE_DL_BFLOAT, f = MOE_DL_FLOAT;
    struct moe_layer *l;
    struct moe_layer_weights w = { .size = sizeof w };
    struct moe_layer_call c = { .size = sizeof c };
    void *p[] = { device_memory(E * I * H * 2, 1),
                  device_memory(E * I * H * 2, 2),
                  device_memory(E * I * H * 2, 3),
                  device_memory(T * H * 2, 4),
                  device_memory(T * H * 2, 5),
                  device_memory(T * E * 4, 6),
                  NULL };
    uint16_t y[2][T * H];
    struct moe_dl_weights g = { .size = sizeof g,
                                .gate = moe_dl(tensor(&a, p[0], b, 16, 3, E, I, H, 0)),
                                .up = moe_dl(tensor(&a, p[1], b, 16, 3, E, I, H, 0)),
                                .down = moe_dl(tensor(&a, p[2], b, 16, 3, E, H, I, 0)) };
    assert_int_equal(moe_dl_get_weights(sim, &d, &g, &w) | moe_layer_create(image, &d, &w, &l), MOE_OK);
    const size_t space = moe_layer_workspace(l, T);
    p[6] = device_memory(space, 7);
    struct moe_dl_call k = { .size = sizeof k,
                             .x = moe_dl(tensor(&a, p[3], b, 16, 2, T, H, 0, 0)),
                             .y = moe_dl(tensor(&a, p[4], b, 16, 2, T, H, 0, 0)),
                             .logits = moe_dl(tensor(&a, p[5], f, 32, 2, T, E, 0, 0)),
                             .workspace = moe_dl(tensor(&a, p[6], MOE_DL_UINT, 8, 1, (int64_t)space, 0, 0, 0)) };
    assert_int_equal(moe_dl_get_call(l, &k, &c) | moe_layer_forward(l, &c, NULL) | moe_sync(sim, NULL), MOE_OK);
    assert_int_equal(moe_download(sim, y[0], p[4], sizeof y[0]) | moe_poison(sim, p[4], sizeof y[0], NULL), MOE_OK);
    const struct moe_layer_call plain = { .size = sizeof plain,
                                          .tokens = T,
                                          .x = p[3],
                                          .y = p[4],
                                          .logits = p[5],
                                          .workspace = p[6],
                                          .workspace_bytes = space };
    assert_int_equal(moe_layer_forward(l, &plain, NULL) | moe_sync(sim, NULL), MOE_OK);
    assert_int_equal(moe_download(sim, y[1], p[4], sizeof y[1]), MOE_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_true(y[0][0] != 0 && y[0][T * H - 1] != 0xffff);
    moe_layer_free(l);
    for (int i = 0; i < 7; i++)
        assert_int_equal(moe_free(sim, p[i]), MOE_OK);
    assert_int_equal(deleted, 0);
}

static void layer_runs(void **state)
{
    static char source[1 << 20];
    const struct moec_binding bound[] = { { .name = "H", .value = H }, { .name = "I", .value = I } };
    const struct moec_options o = { .size = sizeof o,
                                    .arch = "sm_90a",
                                    .emit = MOEC_IMAGE,
                                    .bindings = bound,
                                    .nbindings = 2,
                                    .ptx_only = true,
                                    .bitcode = true };
    FILE *f = fopen("kernels/moe.dsl", "rb");
    struct moe_image *image;
    size_t n = 0;
    char text[1024];
    (void)state;
    assert_non_null(f);
    struct moec_result *r = moec_compile(source, fread(source, 1, sizeof source, f), "moe.dsl", &o);
    fclose(f);
    const void *code = moec_code(r, &n);
    assert_non_null(code);
    if (moe_load(sim, code, n, &image))
        fail_msg("%s", moe_error(sim, text, sizeof text));
    moec_free(r);
    runs(image);
    moe_unload(image);
}

// The library in the program's folder or one above it (../), by the variable that names it.
static void *use_library(const char *program, const char *library, const char *variable)
{
    char path[4200], dir[4000];
    snprintf(dir, sizeof dir, "%s", program);
    snprintf(path, sizeof path, "%s/%s", dirname(dir), library);
    return setenv(variable, path, 1) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool use_fake(const char *program, const char *library, const char *variable)
{
    void *handle = use_library(program, library, variable);
    struct fake_gpu *fake = handle ? dlsym(handle, "fake_gpu") : NULL;
    if (fake)
        fake->devices = 2;
    return fake != NULL;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds), cmocka_unit_test(read_only),     cmocka_unit_test(devices),
        cmocka_unit_test(types),      cmocka_unit_test(shapes),        cmocka_unit_test(strides),
        cmocka_unit_test(places),     cmocka_unit_test(layer_weights), cmocka_unit_test(layer_call),
        cmocka_unit_test(layer_runs),
    };
    char why[512] = "the fakes, or libmoesim.so, are not where they are built";
    (void)argc;
    if (!use_fake(argv[0], "libfakecuda.so", "MOE_CUDA_LIBRARY") ||
        !use_fake(argv[0], "libfakehip.so", "MOE_HIP_LIBRARY") ||
        !use_library(argv[0], "../libmoesim.so", "MOE_SIM_LIBRARY") || moe_open("sim:sm_90a", &sim, why, sizeof why) ||
        moe_open("cuda:1", &cuda1, why, sizeof why) || moe_open("hip:0", &hip0, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    moe_close(sim);
    moe_close(cuda1);
    moe_close(hip0);
    return failed;
}
