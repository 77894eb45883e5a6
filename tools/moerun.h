// Shared by the files of moerun: options, data, devices, the layer, output. The tool prints and exits only in
// moerun.c; the other files return false after report().
#ifndef MOERUN_H
#define MOERUN_H
#include "../models/models.h"
#include "../runtime/layer.h"
#include "../tests/ref_moe.h"

#include <stdio.h>

enum exit_status { EXIT_FINE = 0, EXIT_BREACH = 1, EXIT_USAGE = 2, EXIT_MISSING = 3, EXIT_INTERNAL = 70 };
enum { LIST_MAX = 64, BINDINGS_MAX = 64 };

struct binding_option { // -D NAME=VALUE, -D alias=type
    char name[32];
    int64_t value;
    char type[8]; // "" for numbers
};
struct options {
    const char *command, *device, *image, *source, *json, *kernel, *variant, *arch, *stage, *mutate, *ptxas, *special,
        *save, *against, *hints, *svg, *action; // action: of cache
    const struct model *models[LIST_MAX];
    int nmodels;
    struct custom_model { // --model=E:K:H:I[:...] or config.json
        struct model model;
        char word[512], name[64]; // as it was given; the model's name, which files may have: without '/'
    } custom[LIST_MAX];
    int ncustom;
    int tokens[LIST_MAX], ntokens;
    int rows[LIST_MAX], nrows; // tile of rows; empty: chosen; -1 alone: every variant
    bool f16, verbose, bind_all, ptx, fused, no_cache, progress;
    bool l2_cold, l2_warm; // --l2; neither: cold
    int rank, ranks;       // --parallel; ranks 0: not
    char routing;          // 'u'niform, 'z'ipf, 'o'ne, 'f'ile; ids not from the router: 'h'oles, 'b'eyond, 't'wice
    double zipf;
    const char *routing_file;
    uint64_t seed;
    int repeats, columns, experts, streams;
    double budget, limit, x_scale, floor_tflops, floor_gbps; // floor_*: 0: not given
    struct binding_option bindings[BINDINGS_MAX];
    int nbindings;
    struct ranged { // --int=NAME:LO:HI
        char name[32];
        int32_t lo, hi;
    } ranges[LIST_MAX];
    int nranges;
    int64_t max_bytes, max_age; // cache prune; seconds. -1: not given
};

// ---- moerun.c
// One line on stderr, "moerun: ...". Returns false. The exit status of the first report stands.
bool report(enum exit_status status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum exit_status reported(void);
bool read_file(const char *path, char **bytes, size_t *n); // malloc; a NUL follows
double now_seconds(void);

// ---- moerun_data.c: random numbers by counter: any value can be had again from its index alone
struct normal { // one tensor's values: normal with standard deviation sigma, in a 16-bit format
    uint64_t key;
    bool f16;
    uint16_t *bits; // [65536]: quantiles, rounded
    double *values; // [65536]: the same as doubles
};
bool normal_init(struct normal *g, uint64_t seed, int tensor, double sigma, bool f16);
void normal_free(struct normal *g);
void normal_bits(const struct normal *g, int64_t first, int64_t n, uint16_t *out);
void normal_values(const struct normal *g, int64_t first, int64_t n, double *out);
void normal_fill(const struct normal *g, int64_t first, int64_t n, uint16_t *out); // on all processors
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
double random_unit(uint64_t seed, uint64_t stream, uint64_t index); // in (0, 1)
uint64_t hash_bytes(const void *p, size_t n);

// ---- moerun_eval.c: the compiler's front end and eval.c as a device; memory is host memory
struct eval_source;
// --stage: "tile", or "layout" for --arch. m: its dims are bound; may be NULL. NULL after report().
struct eval_source *eval_open(const struct options *o, const struct model *m);
void eval_close(struct eval_source *s);
// Kernel i as its image would describe it (without grid); NULL past the last.
const struct image_kernel *eval_kernel(const struct eval_source *s, int i);
// Pointers of args are host memory. tile: of axes that have none.
bool eval_launch(const struct eval_source *s, const struct image_kernel *k, const struct moe_arg *args, int nargs,
                 const int64_t *dims, int tile);

const char *simulator_arch(int n); // of the compiler's; the simulator need not have it. NULL past the last

// ---- moerun_device.c
struct device {
    struct moe_device *gpu; // NULL: eval
    struct moe_image *image;
    struct eval_source *eval;
    struct moe_info info;
    void *stream;
};
void device_choose(struct options *o); // --device left out: cuda:0, hip:0, or the simulator if there is none
bool device_open(struct device *d, const struct options *o);                        // without an image
bool device_load(struct device *d, const struct options *o, const struct model *m); // --image, else --source compiled
void device_unload(struct device *d);
void device_close(struct device *d);
bool device_upload(struct device *d, void *to, const void *from, size_t n);
bool device_download(struct device *d, void *to, const void *from, size_t n);
bool device_fill(struct device *d, void *p, int byte, size_t n);
bool device_poison(struct device *d, void *p, size_t n); // 0xff; the simulator: unwritten
bool device_sync(struct device *d);
// The kernel with exactly this tile of `rows` (0: any); NULL: none.
const struct image_kernel *device_kernel(struct device *d, const struct options *o, const char *name, int rows);
bool device_launch(struct device *d, const struct image_kernel *k, const struct moe_arg *args, int nargs,
                   const int64_t *dims, int tile);
bool device_fails(struct device *d, int status, const char *what); // report()s unless status is 0; true: it failed

// A buffer between guard bands.
struct guarded {
    void *base, *ptr;
    size_t bytes;
};
bool guarded_new(struct device *d, struct guarded *g, size_t bytes);
void guarded_free(struct device *d, struct guarded *g);
bool guarded_intact(struct device *d, const struct guarded *g, const char *name, bool *intact);

// ---- moerun_against.c: --save, --against. bytes: of one value
bool against(const struct options *o, const char *name, const void *p, size_t n, int bytes);

// ---- moerun_jit.c
// --source compiled for the device, or found in the cache, and loaded. false after report().
bool jit_load(struct device *d, const struct options *o, const struct model *m);

// ---- moerun_model.c
bool model_list(const char *s, struct options *o); // --model

// ---- moerun_options.c
struct bound { // what the compiler is told: the model's dims and element type (m may be NULL), then -D, the later one
               // wins
    const char *name, *type; // type NULL: a number
    int64_t value;
};
int option_bindings(const struct options *o, const struct model *m, struct bound b[BINDINGS_MAX + 12]);
bool simulated(const struct options *o); // the device is sim:...
bool parse_options(int argc, char **argv, struct options *o);
void print_usage(FILE *f);

// ---- moerun_layer.c
enum buffer {
    B_X,
    B_LOGITS,
    B_BIAS,
    B_GATE,
    B_UP,
    B_DOWN,
    B_GATE_BIAS,
    B_UP_BIAS,
    B_DOWN_BIAS,
    B_SHARED_GATE,
    B_MAP,
    B_GIVEN_IDS,
    B_GIVEN_WEIGHTS, // inputs
    B_PARTS,         // as enum moe_layer_part
    B_IDS = B_PARTS,
    B_WEIGHTS,
    B_COUNTS,
    B_SLOT_ROW,
    B_ROW_TOKEN,
    B_TILES,
    B_H,
    B_D,
    B_CHOSEN,
    B_Y,
    BUFFERS
};
extern const char *const buffer_names[BUFFERS], *const step_names[MOE_LAYER_STEPS];
enum weight { W_GATE, W_UP, W_DOWN, W_GATE_BIAS, W_UP_BIAS, W_DOWN_BIAS, W_SHARED_GATE, WEIGHTS };
struct layer {
    const struct options *o;
    struct device *d;
    const struct model *m;
    struct moe_layer *moe;
    int tokens, block, experts; // experts: that have weights here
    int64_t slots;
    struct layer_sizes size;
    struct normal x, w[WEIGHTS];
    struct guarded b[BUFFERS];
    int32_t *host_map;
    uint16_t *host_x;
    float *host_logits, *host_bias;
    double *shared_weight; // [tokens], where the model has a gate
    int32_t *given_ids;    // --routing=file and the like: no router
    float *given_weights;
    // Where tiles have no size yet (eval, stage tile): what layer_init() was told, and the kernels behind it.
    int eval_rows;
    struct image_axis eval_axis;
    struct image_kernel eval_sig[2];
    const struct image_kernel *eval_of[2];
};
bool layer_weights(struct layer *l, const struct options *o, struct device *d, const struct model *m); // once a model
bool layer_tokens(struct layer *l, int tokens, int rows);    // rows: tile, 0: chosen. Allocates and uploads
bool layer_special(const struct layer *l, const char *what); // --special=what
bool layer_is_of_call(enum buffer b);                        // of a number of tokens, not of the layer
bool layer_poison(struct layer *l);                          // everything that the kernels write
bool layer_step(struct layer *l, enum moe_layer_step s);     // launches one step
bool layer_launch(struct layer *l);                          // all of them
bool layer_run(struct layer *l);                             // all of them, then waits
bool layer_inputs_intact(struct layer *l, bool *intact);
bool layer_guards_intact(struct layer *l, bool *intact);
void layer_tokens_free(struct layer *l);
void layer_free(struct layer *l);
void layer_row(void *layer, enum ref_matrix which, int expert, int index, double *out); // ref_layer.row
double layer_bias(void *layer, enum ref_matrix which, int expert, int index);           // ref_layer.bias
int layer_variants(const struct layer *l, int *rows, int max);                          // tiles of rows

// For another thread: the weights are l's, everything of a call its own; x is still to be made.
void layer_share(struct layer *out, const struct layer *l, const struct options *o, struct device *d);
enum { TENSOR_X = 10 }; // of normal_init()

// ---- moerun_input.c
bool input_bias(struct layer *l); // once a model
bool input_make(struct layer *l); // on the host
bool input_upload(struct layer *l);
bool input_intact(struct layer *l, bool *intact);
void input_free(struct layer *l);

// ---- moerun_judge.c
struct results { // what the kernels wrote, on the host
    int32_t *ids, *counts, *slot_row, *row_token, *tiles, *chosen;
    float *weights;
    uint16_t *h, *d, *y;
};
enum check {
    C_ROUTE,
    C_COUNTS,
    C_SLOT_ROW,
    C_ROW_TOKEN,
    C_TILES,
    C_WRITTEN,
    C_H,
    C_D,
    C_COMBINE,
    C_TOKENS,
    C_REPEAT,
    C_GUARDS,
    C_INPUTS,
    CHECKS
};
extern const char *const check_names[CHECKS];
struct judgement {
    struct ref_verdict v[CHECKS];
    int sampled; // tokens of C_TOKENS
    bool ok;
};
bool results_new(const struct layer *l, struct results *r);
bool results_download(struct layer *l, struct results *r);
void results_free(struct results *r);
// All checks but the last three. budget: seconds for C_TOKENS, at least 64 tokens all the same. false: report()ed.
bool judge_layer(struct layer *l, struct results *r, double budget, struct judgement *j);
void judgement_done(struct judgement *j);                               // sets ok
bool mutate(const struct layer *l, struct results *r, const char *how); // --mutate: damages results; false: unknown

// ---- moerun_progress.c
void progress_init(bool wanted);                                           // wanted: even if stderr is no terminal
void progress(const char *fmt, ...) __attribute__((format(printf, 1, 2))); // at most 10 times a second
void progress_clear(void);                                                 // before anything else is printed

// ---- moerun_time.c
struct times { // milliseconds; n: of how many
    double median, p10, p90;
    int n;
};
struct timer {
    struct device *d;
    struct guarded flush; // as large as no L2
    void *event[2];
    int repeats;
    bool simulated; // times mean nothing there: fewer of everything
};
typedef bool timed_call(void *user);      // hands work to the device's stream
struct times times_of(double *ms, int n); // sorts ms
bool timer_open(struct timer *t, const struct options *o, struct device *d);
void timer_close(struct timer *t);
bool timer_calls(struct timer *t, bool warm, int repeats, timed_call *call, void *user, struct times *out);
bool timer_steps(struct timer *t, struct layer *l, int from, int to, bool warm,
                 struct times *out); // [from, to), as one graph

// ---- moerun_blas.c
struct library;
struct blas {
    void *library, *handle, *stream;
    const struct library *row;
    char name[16];
    int (*destroy)(void *handle);
    void (*gemm)(void); // of the row's type
    // CUDA: the context that was current, and how to leave ours
    void *before;
    int device, (*set)(void *context), (*release)(int device);
};
// The library of the device's vendor; MOE_BLAS_LIBRARY names another file. false, without a word: none works here.
bool blas_open(struct blas *b, const struct options *o, struct device *d);
bool blas_gemm(struct blas *b, bool f16, int n, const void *w, const void *x, void *y);
void blas_close(struct blas *b); // also after blas_open() gave false

// ---- moerun_ceiling.c
struct ceiling {
    double value; // TFLOP/s or GB/s
    bool proof;   // what is faster than this allows is an error of measurement: measured by the best there is, or given
    char from[64]; // "cuBLAS, measured"
    char why[160]; // not measured
};
struct ceilings {
    struct ceiling tflops, gbps;
};
bool ceilings_find(struct ceilings *c, const struct options *o, struct device *d, struct timer *t);

// ---- moerun_tune.c
bool hints_load(struct layer *l, const struct options *o); // --hints; nothing if there is none

// ---- moerun_streams.c
bool verify_streams(struct layer *l, int tokens, int rows, bool *fine); // --streams

// ---- commands
bool command_verify(const struct options *o); // and run
bool command_bench(const struct options *o);
bool command_tune(const struct options *o);
bool command_check(const struct options *o);
bool command_info(const struct options *o);
bool command_cache(const struct options *o);

// ---- moerun_json.c: a JSON array of flat objects, written as they come
struct json {
    FILE *f;
    bool any, open;
};
bool json_open(struct json *j, const char *path); // NULL: everything below does nothing
void json_begin(struct json *j);
void json_text(struct json *j, const char *name, const char *value);
void json_int(struct json *j, const char *name, int64_t value);
void json_number(struct json *j, const char *name, double value);
void json_ints(struct json *j, const char *name, const int64_t *v, int n);
void json_end(struct json *j);
bool json_close(struct json *j);
#endif
