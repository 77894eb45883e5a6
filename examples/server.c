// A server of one MoE layer: worker threads serve batches of any number of tokens from a queue, by captured graphs where a
// batch fits into a bucket, while the main thread changes the image under them.
//
//   server [DEVICE [FILE]]    DEVICE: cuda:0, else sim:sm_90a. FILE: moec's image, or source for the JIT (kernels/moe.dsl)
//
// What an engine would take over: versions.h; struct lane (what a worker owns); capture(), and the way without graphs.
#include "helpers.h"
#include "moejit.h"
#include "versions.h"

enum { WORKERS = 3, SWAPS = 2, BUCKETS = 3, TOKENS_MAX = 20, HIDDEN_MAX = 1024 };
static const int bucket[BUCKETS] = { 1, 4, 16 }; // a batch is padded to the next; larger ones run without graph

struct batch {
    int tokens, replayed; // replayed: 1 if from a graph
    uint32_t seed;        // of its inputs
    uint16_t *y;          // [tokens, hidden]
    double ms;            // from the queue until the result is on the host
};
struct server {
    struct moe_device *device;
    struct moe_layer_desc desc;
    struct moe_layer_weights weights;
    void *file; // image or source
    size_t file_size;
    bool source;
    size_t ids, scales, y, space, bytes; // places in a lane's memory: inputs (x at 0), from y on the rest
    struct versions versions;
    struct batch *batch;  // the queue
    pthread_mutex_t lock; // of all below
    pthread_cond_t progress;
    int batches, head, done, status; // head: of the queue; done: served; status: the first failure
};
struct lane { // a worker's. Graphs hold addresses: its memory stays where it is
    struct version *version;
    void *stream, *graph[BUCKETS];
    char *device, *host; // host: of the inputs
};

static int load(struct server *s)
{
    struct moe_compile c = { .size = sizeof c, .source = s->file, .source_size = s->file_size, .name = "moe.dsl" };
    struct moe_image *image;
    TRY(s->source ? moe_jit(s->device, &c, NULL, &image) : moe_load(s->device, s->file, s->file_size, &image));
    return version_publish(&s->versions, image, &s->desc, &s->weights);
}

static int lane_open(struct server *s, struct lane *l)
{
    *l = (struct lane){ .version = version_acquire(&s->versions), .host = malloc(s->y) };
    TRY(l->host ? MOE_OK : MOE_ERR_MEMORY);
    TRY(moe_stream(s->device, &l->stream));
    return moe_alloc(s->device, s->bytes, (void **)&l->device);
}

static void drop_graph(struct server *s, struct lane *l, int i)
{
    moe_destroy(s->device, MOE_GRAPH, l->graph[i]);
    l->graph[i] = NULL;
}

// To this version, which is given to the lane.
static void lane_change(struct server *s, struct lane *l, struct version *v)
{
    for (int i = 0; i < BUCKETS && v != l->version; i++)
        drop_graph(s, l, i); // graphs hold the image's kernels: they go before it
    version_release(&s->versions, l->version);
    l->version = v;
}

static void lane_close(struct server *s, struct lane *l)
{
    lane_change(s, l, NULL);
    moe_free(s->device, l->device);
    moe_destroy(s->device, MOE_STREAM, l->stream);
    free(l->host);
}

// Tokens that pad the batch have ids of -1: they take no part, their y is zero. The stream is idle: serve() has waited.
static int upload(struct server *s, struct lane *l, const struct batch *b)
{
    uint32_t state = b->seed;
    random_bf16(&state, (uint16_t *)l->host, (size_t)TOKENS_MAX * (size_t)s->desc.hidden);
    random_choices(&state, (int32_t *)(l->host + s->ids), (float *)(l->host + s->scales), TOKENS_MAX, b->tokens,
                   s->desc.topk, s->desc.experts);
    return moe_upload(s->device, l->device, l->host, s->y);
}

static int forward(struct server *s, struct lane *l, int tokens)
{
    struct moe_layer_call c = { .size = sizeof c, .tokens = tokens, .x = l->device, .y = l->device + s->y };
    c.ids = (int32_t *)(l->device + s->ids);
    c.weights = (float *)(l->device + s->scales);
    c.workspace = l->device + s->space;
    c.workspace_bytes = s->bytes - s->space;
    return moe_layer_forward(l->version->layer, &c, l->stream);
}

// Afterwards there is a graph; or, where there can be none, calls go without.
static void capture(struct server *s, struct lane *l, int i)
{
    if (moe_capture_begin(s->device, l->stream))
        return;
    int status = forward(s, l, bucket[i]);
    status |= moe_capture_end(s->device, l->stream, &l->graph[i]);
    if (status)
        drop_graph(s, l, i);
}

static int serve(struct server *s, struct lane *l, struct batch *b, bool graphs, uint16_t *y)
{
    int i = 0;
    while (i < BUCKETS && bucket[i] < b->tokens)
        i++;
    TRY(upload(s, l, b));
    graphs = graphs && i < BUCKETS;
    if (graphs && !l->graph[i])
        capture(s, l, i);
    b->replayed |= graphs && l->graph[i];
    TRY(graphs && l->graph[i] ? moe_graph_launch(s->device, l->graph[i], l->stream)
                              : forward(s, l, i < BUCKETS ? bucket[i] : b->tokens));
    TRY(moe_sync(s->device, l->stream));
    return moe_download(s->device, y, l->device + s->y, (size_t)b->tokens * (size_t)s->desc.hidden * 2);
}

// Notes how this worker's last batch went, if there was one, and takes the next. NULL: it is over.
static struct batch *next(struct server *s, const struct batch *last, int status)
{
    pthread_mutex_lock(&s->lock);
    s->status = s->status ? s->status : status;
    s->done += last && !status;
    struct batch *b = s->status || s->head == s->batches ? NULL : &s->batch[s->head++];
    pthread_cond_broadcast(&s->progress);
    pthread_mutex_unlock(&s->lock);
    return b;
}

static void *work(void *server)
{
    struct server *s = server;
    struct lane l;
    struct batch *b = NULL;
    int status = lane_open(s, &l);
    while ((b = next(s, b, status))) {
        const double start = now_ms();
        lane_change(s, &l, version_acquire(&s->versions)); // most often the same
        status = serve(s, &l, b, true, b->y);
        b->ms = now_ms() - start;
    }
    lane_close(s, &l);
    return NULL;
}

// Workers serve all batches; meanwhile images change.
static int run(struct server *s)
{
    pthread_t worker[WORKERS];
    int n = 0, status = MOE_OK;
    while (n < WORKERS && !pthread_create(&worker[n], NULL, work, s))
        n++;
    for (int i = 1; i <= SWAPS && n && !status; i++) {
        pthread_mutex_lock(&s->lock);
        while (!s->status && s->done < i * s->batches / (SWAPS + 1))
            pthread_cond_wait(&s->progress, &s->lock);
        status = s->status;
        pthread_mutex_unlock(&s->lock);
        status = status ? status : load(s);
    }
    for (int i = 0; i < n; i++)
        pthread_join(worker[i], NULL);
    return !n ? MOE_ERR_MEMORY : status ? status : s->status;
}

static int prepare(struct server *s, bool small)
{
    struct moe_layer_desc *m = &s->desc;
    *m = (struct moe_layer_desc){ .size = sizeof *m, .experts = small ? 4 : 32, .topk = 2, .dtype = IMAGE_BF16 };
    m->hidden = small ? 64 : HIDDEN_MAX;
    m->ffn = small ? 32 : 512;
    s->batches = small ? 18 : 3000;
    const size_t n = (size_t)m->experts * (size_t)m->hidden * (size_t)m->ffn, row = (size_t)m->hidden * 2;
    s->weights.size = sizeof s->weights;
    TRY(random_tensor(s->device, 1, 3 * n, &s->weights.gate)); // all three in one allocation
    s->weights.up = (const uint16_t *)s->weights.gate + n;
    s->weights.down = (const uint16_t *)s->weights.up + n;
    TRY(load(s));
    s->ids = TOKENS_MAX * row; // all of these are multiples of 16 bytes
    s->scales = s->ids + TOKENS_MAX * (size_t)m->topk * 4;
    s->y = s->scales + TOKENS_MAX * (size_t)m->topk * 4;
    s->space = s->y + TOKENS_MAX * row;
    s->bytes = s->space + moe_layer_workspace(s->versions.current->layer, TOKENS_MAX);
    s->batch = calloc((size_t)s->batches, sizeof *s->batch + TOKENS_MAX * row);
    TRY(s->batch ? MOE_OK : MOE_ERR_MEMORY);
    for (uint32_t i = 0, state = 4; i < (uint32_t)s->batches; i++) {
        s->batch[i].tokens = 1 + (int)draw(&state) % TOKENS_MAX;
        s->batch[i].seed = i;
        s->batch[i].y = (uint16_t *)(s->batch + s->batches) + i * TOKENS_MAX * (size_t)m->hidden;
    }
    return MOE_OK;
}

// All batches once more, alone and without graphs: the same bits, since our images were all compiled alike.
static int compare(struct server *s, int *different)
{
    struct lane l;
    uint16_t y[TOKENS_MAX * HIDDEN_MAX];
    int status = lane_open(s, &l);
    for (struct batch *b = s->batch; b < s->batch + s->batches && !status; b++) {
        status = serve(s, &l, b, false, y);
        *different += !status && memcmp(y, b->y, (size_t)b->tokens * (size_t)s->desc.hidden * 2) != 0;
    }
    lane_close(s, &l);
    return status;
}

int main(int argc, char **argv)
{
    static struct server s = { .lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER };
    const char *device = open_device(argc > 1 ? argv[1] : NULL, &s.device);
    const char *file = argc > 2 ? argv[2] : "kernels/moe.dsl";
    char why[1024];
    s.versions.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    int different = 0, tokens = 0, replayed = 0;
    s.file = read_file(file, &s.file_size);
    s.source = strlen(file) > 4 && !strcmp(file + strlen(file) - 4, ".dsl");
    if (!s.device || !s.file)
        return fprintf(stderr, "server: %s\n", s.device ? "the file cannot be read" : "no device"), 2;
    int status = prepare(&s, !strncmp(device, "sim:", 4));
    double ms = -now_ms(), longest = 0;
    status = status ? status : run(&s);
    ms += now_ms();
    status = status ? status : compare(&s, &different);
    for (int i = 0; i < s.batches && !status; i++) {
        tokens += s.batch[i].tokens;
        replayed += s.batch[i].replayed;
        longest = s.batch[i].ms > longest ? s.batch[i].ms : longest;
    }
    if (status)
        fprintf(stderr, "server: %s: %s\n", moe_status_name(status), moe_error(s.device, why, sizeof why));
    else
        printf(
            "%s: %d batches, %.0f tokens/s, longest %.2f ms, %d by graphs, %d images freed while serving, %d differ\n",
            device, s.batches, tokens / ms * 1e3, longest, replayed, s.versions.freed, different);
    version_release(&s.versions, s.versions.current);
    moe_free(s.device, (void *)(uintptr_t)s.weights.gate);
    moe_close(s.device);
    free(s.batch);
    free(s.file);
    return status || different;
}
