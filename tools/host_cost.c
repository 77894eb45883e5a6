// What a forward of a layer costs its caller's thread: the best and the mean of many calls of moe_layer_forward(), each timed
// alone, and of moe_launch() of one kernel. Kernels are small and the stream is emptied often, so that no call waits for a
// full queue. With MOE_NO_BATCH=1 in the environment each kernel is launched by itself.
//
//   moec kernels/moe.dsl --arch=sm_90a -o moe.moe
//   host-cost cuda:0 moe.moe [rounds]
#include "../runtime/moelayer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { E = 128, K = 8, H = 256, I = 128, T = 16, BURST = 16, WARM = 8 };
struct bench {
    struct moe_device *d;
    struct moe_image *image;
    const struct moe_kernel *combine;
    struct moe_layer *layer;
    struct moe_layer_call call;
    void *stream;
};

static void need(const struct bench *b, int status, const char *what)
{
    char text[1024] = "";
    if (!status)
        return;
    fprintf(stderr, "host-cost: %s: %s\n", what, b->d ? moe_error(b->d, text, sizeof text) : "");
    exit(1);
}

static void *zeros(const struct bench *b, size_t bytes)
{
    void *p = NULL;
    need(b, moe_alloc(b->d, bytes, &p), "memory");
    need(b, moe_fill(b->d, p, 0, bytes, NULL), "memory");
    return p;
}

static void make(struct bench *b, const char *file)
{
    FILE *f = fopen(file, "rb");
    static char bytes[64 << 20];
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    need(b, moe_load(b->d, bytes, n, &b->image), file);
    b->combine = moe_find(b->image, "combine", NULL);
    struct moe_layer_desc desc = { .size = sizeof desc, .experts = E, .topk = K, .hidden = H, .ffn = I, .renorm = 1 };
    struct moe_layer_weights w = { .size = sizeof w };
    desc.dtype = IMAGE_BF16;
    w.gate = zeros(b, (size_t)E * H * I * 2);
    w.up = zeros(b, (size_t)E * H * I * 2);
    w.down = zeros(b, (size_t)E * H * I * 2);
    need(b, moe_layer_create(b->image, &desc, &w, &b->layer), "layer");
    need(b, moe_stream(b->d, &b->stream), "stream");
    b->call = (struct moe_layer_call){ .size = sizeof b->call, .tokens = T };
    b->call.workspace_bytes = moe_layer_workspace(b->layer, T);
    b->call.workspace = zeros(b, b->call.workspace_bytes);
    b->call.x = zeros(b, T * H * 2);
    b->call.y = zeros(b, T * H * 2);
    b->call.logits = zeros(b, T * E * 4);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

// One kernel without a layer. Any place of the workspace will do: the ids at its start are indices of rows as well.
static int one_kernel(const struct bench *b)
{
    void *space = b->call.workspace;
    struct moe_arg args[4] = { moe_tensor(space, 2, (int64_t)T * K, H, 0), moe_tensor(space, 2, T, K, 0),
                               moe_tensor(space, 2, T, K, 0), moe_tensor(b->call.y, 2, T, H, 0) };
    return moe_launch(b->combine, args, 4, NULL, b->stream);
}

static void measure(const struct bench *b, const char *what, const struct moe_layer_call *c, int rounds)
{
    double best = 1e9, sum = 0;
    int n = 0;
    for (int r = -WARM; r < rounds; r++) {
        for (int i = 0; i < BURST; i++) {
            double from = now_us();
            int status = c ? moe_layer_forward(b->layer, c, b->stream) : one_kernel(b);
            double us = now_us() - from;
            need(b, status, what);
            if (r < 0)
                continue;
            best = us < best ? us : best;
            sum += us;
            n++;
        }
        need(b, moe_sync(b->d, b->stream), what);
    }
    printf("%-24s best %7.3f us   mean %7.3f us   of %d calls\n", what, best, sum / n, n);
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    char why[512] = "";
    int rounds = argc > 3 ? atoi(argv[3]) : 1000;
    if (argc < 3 || rounds < 1)
        return fprintf(stderr, "usage: host-cost DEVICE IMAGE [rounds]\n"), 2;
    if (moe_open(argv[1], &b.d, why, sizeof why))
        return fprintf(stderr, "host-cost: %s\n", why), 3;
    make(&b, argv[2]);
    struct moe_layer_call given = b.call, experts = b.call;
    given.ids = zeros(&b, T * K * 4);
    given.weights = zeros(&b, T * K * 4);
    given.logits = NULL;
    experts.steps = 1u << MOE_GATE_UP | 1u << MOE_DOWN | 1u << MOE_COMBINE;
    measure(&b, "forward, all steps", &b.call, rounds);
    measure(&b, "forward, ids given", &given, rounds);
    measure(&b, "forward, experts only", &experts, rounds);
    measure(&b, "moe_launch of one kernel", NULL, rounds);
    return 0; // the process's end frees the rest
}
