// Inside of moelayer.h: sizes, arguments by name, launches in order. Also used by moerun, which runs the same launches where
// there is no moe_device. Internal.
#ifndef MOE_LAYER_H
#define MOE_LAYER_H
#include "driver.h"
#include "moelayer.h"

enum {
    LAYER_TILES_MAX = 16,
    LAYER_WHY = 256,
    CHOICES = 272,
    LAYER_PARAMS_MAX = 24, // of a kernel: a call's arguments lie on the stack
    LAYER_DIMS_MAX = 16,
    LAYER_BOXES_MAX = 8,
};

// Launches of a forward, in order; each belongs to a step.
enum layer_launch { L_ROUTE, L_SHARED_GATE, L_MAP, L_COUNT, L_PLAN, L_GATE_UP, L_DOWN, L_COMBINE, LAYER_LAUNCHES };
extern const enum moe_layer_step launch_step[LAYER_LAUNCHES];

struct layer_kernel {
    const struct moe_kernel *kernel; // NULL where there is no device
    const struct image_kernel *sig;  // NULL: the description does not need it
    bool direct;                     // layer_collect() may do without launch_resolve():
    uint8_t extent[LAYER_DIMS_MAX];  // what gives each dim its value
    uint8_t row[LAYER_PARAMS_MAX];   // of layer_bind.c's table, one a parameter
    uint32_t early, writes;          // parameters, a bit each: that are early; that it writes
};
struct moe_layer {
    struct moe_layer_desc desc;
    struct moe_layer_weights weights;
    struct moe_device *device; // of zeros
    struct moe_image *image;   // of the kernels; both NULL where there is no device
    void *zeros;               // f32 [experts]: no select_bias
    struct layer_kernel k[LAYER_LAUNCHES],
        tiled[LAYER_TILES_MAX][2];     // tiled: gate_up and down with these tiles of rows:
    int tile[LAYER_TILES_MAX], ntiles; // ascending; k has nothing for them
    uint8_t choice[CHOICES];           // index of the tile, by choice_index()
    int processors, gbps;              // of the device; 0: not known
    char identity[160];                // of device, image and shape, for hints
};

// Finds kernels for layer_init(): by name and tile of `rows` (0: any; then the i-th of them). false: no such kernel.
typedef bool layer_find(void *user, const char *name, int rows, int i, struct layer_kernel *out);
// Checks the description and binds its kernels; nothing of a device. false: why.
bool layer_init(struct moe_layer *l, const struct moe_layer_desc *desc, const struct moe_layer_weights *w,
                layer_find *find, void *user, char why[LAYER_WHY]);

// ---- layer_bind.c
struct layer_sizes { // of one call
    int64_t tokens, choices, slots, chunks, entries;
    int chunk, block, local;
    size_t bytes[MOE_LAYER_PARTS], offset[MOE_LAYER_PARTS], total;
};
// rows > 0. false: too many slots.
bool layer_sizes(const struct moe_layer *l, int64_t tokens, int rows, struct layer_sizes *s);
bool layer_bind(struct layer_kernel *k, char why[LAYER_WHY]); // fills k->row. false: a parameter is not of the table
bool layer_needs(const struct moe_layer *l, enum layer_launch n);
const char *layer_kernel_name(const struct moe_layer *l, enum layer_launch n);

typedef int layer_visit(void *user, enum layer_launch n, const struct layer_kernel *k, const struct moe_arg *args);
// Calls visit for each launch of the call's steps with its arguments, until one gives a status other than 0. rows: the tile.
int layer_launches(const struct moe_layer *l, const struct moe_layer_call *call, int rows, layer_visit *visit,
                   void *user);
// The same launches, checked as moe_launch() does and ready for launch_items(); those without blocks are left out. tile: its
// index. A launch is dependent where image.h lets it be. A status; on failure nothing is ready.
enum { LAYER_VALUES = LAYER_PARAMS_MAX + LAYER_DIMS_MAX };
struct layer_ready {
    int n;
    struct launch_item item[LAYER_LAUNCHES];
    union launch_value value[LAYER_LAUNCHES][LAYER_VALUES];
    void *arg[LAYER_LAUNCHES][LAYER_VALUES + LAYER_BOXES_MAX];
    struct launch_map map[LAYER_LAUNCHES][LAYER_BOXES_MAX];
};
int layer_collect(const struct moe_layer *l, const struct moe_layer_call *call, const struct layer_sizes *s, int tile,
                  struct layer_ready *ready);

// ---- layer_choose.c
int choice_index(int64_t tokens); // 0 .. CHOICES - 1, ascending with tokens; each up to 64 has its own
void layer_choose(struct moe_layer *l);
int layer_tile_index(const struct moe_layer *l, int rows); // -1: none
#endif
