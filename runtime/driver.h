// What a vendor's driver gives to moert.c. Internal; one constant struct a driver (cuda.c, hip.c, sim.c). All functions return an
// enum moe_status and, on failure, leave a text with device_fail(). They are called from any thread.
#ifndef MOE_DRIVER_H
#define MOE_DRIVER_H
#include "moert.h"

#include <pthread.h>

enum { ERROR_TEXT_MAX = 1024 };
struct moe_device {
    const struct driver *driver;
    void *state; // the driver's own
    struct moe_info info;
    int ordinal;          // N of "cuda:N"; 0 if the driver has no numbers
    pthread_mutex_t lock; // of error_text
    char error_text[ERROR_TEXT_MAX];
    bool batching; // launch_prepare() is asked; set before open(), which may clear it
};
// One kernel, checked and ready to go.
union launch_value {
    void *p;
    int32_t i;
    float f;
};
// A tensor map, which the copy engine reads: an argument by value.
struct launch_map {
    _Alignas(IMAGE_MAP_ALIGN) unsigned char bytes[IMAGE_MAP_BYTES];
};
struct launch_item {
    void *function;
    const struct image_kernel *sig;
    uint32_t blocks; // 0: nothing to launch
    bool dependent;  // may start before the launch before it in the stream has finished (image.h, `early`)
    void **args;     // the addresses of the values, in the order that image.h says
};
// A tensor in device memory, row-major and contiguous, and the boxes of it that a map is of.
struct tensor_view {
    const char *symbol; // of the kernel, for errors
    enum image_elem elem;
    int rank;                      // 1..IMAGE_RANK_MAX
    void *base;                    // aligned to 16 bytes; never NULL
    int64_t dims[IMAGE_RANK_MAX];  // outermost first, at least 1
    int64_t steps[IMAGE_RANK_MAX]; // bytes from one position of each to the next: multiples of 16 but for the last
    int rows, cols, swizzle;       // of a box, as struct image_box has them
};
enum { FILL_POISON = -1 };
enum copy_direction { COPY_UP, COPY_DOWN };
struct driver {
    const char *name;         // "cuda": what stands before ':' in a device's name
    int64_t grid_threads_max; // blocks of a launch times their threads; 0: without limit
    // which: what stands after ':', or "". Sets d->state and d->info; on failure nothing is left.
    int (*open)(struct moe_device *d, const char *which);
    void (*close)(struct moe_device *d);
    int (*alloc)(struct moe_device *d, size_t bytes, void **ptr);
    int (*free)(struct moe_device *d, void *ptr);
    int (*copy)(struct moe_device *d, void *to, const void *from, size_t bytes, enum copy_direction way);
    // byte FILL_POISON: 0xff, and a driver that watches memory counts the bytes as unwritten.
    int (*fill)(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream);
    int (*load)(struct moe_device *d, const struct image_desc *image, void **module); // checks the architecture too
    int (*unload)(struct moe_device *d, void *module);
    int (*kernel)(struct moe_device *d, void *module, const struct image_kernel *k, void **function);
    // (NULL: kernel() refuses kernels with boxes) Writes the map of a view. Called in the launch path, for each box.
    int (*tensor_map)(struct moe_device *d, struct launch_map *map, const struct tensor_view *v);
    // `dependent` allows something: a driver that knows nothing of the kind launches in the ordinary way, where the kernel's
    // waits are satisfied at once.
    int (*launch)(struct moe_device *d, const struct launch_item *item, void *stream);
    // (optional; without: launch() one by one) n > 0 kernels of one module in the stream's order, each of at least one block.
    // If one cannot be launched, those before it may have been.
    int (*launch_all)(struct moe_device *d, void *module, const struct launch_item *items, int n, void *stream);
    // (optional) Makes ready what launch_all() needs in order to be fast with so many kernels of this module; items are
    // examples, never launched. Where that fails launch_all() is slower, nothing else.
    void (*launch_prepare)(struct moe_device *d, void *module, const struct launch_item *items, int n);
    int (*sync)(struct moe_device *d, void *stream);
    int (*create)(struct moe_device *d, enum moe_object_kind kind, void **object); // stream, event
    int (*destroy)(struct moe_device *d, enum moe_object_kind kind, void *object);
    int (*record)(struct moe_device *d, void *event, void *stream);
    int (*elapsed)(struct moe_device *d, void *from, void *to, float *ms);
    int (*capture)(struct moe_device *d, void *stream, void **graph); // graph NULL: begin; else: end
    int (*replay)(struct moe_device *d, void *graph, void *stream);
    const char *(*finding)(struct moe_device *d, int i); // NULL: a driver that finds nothing; i -1: forgets all
    void (*reseed)(struct moe_device *d, uint64_t seed); // likewise
    void (*stats)(struct moe_device *d, char *text, size_t size);
    void (*origin)(struct moe_device *d, const void *p, char *text, size_t size); // likewise
};
extern const struct driver cuda_driver, hip_driver, sim_driver;

// "3" -> 3, "" -> 0; anything else: -1.
int device_ordinal(const char *which);

bool environment_says(const char *variable); // set, and neither empty nor "0"

// ---- moert.c, for layers
struct moe_device *image_device(const struct moe_image *m);
// All that moe_launch() does before it reaches the device. values and item->args, the caller's, must have room for the kernel's
// parameters and dims (item->args: and boxes), maps for its boxes; they stay until the launch.
int launch_resolve(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims,
                   struct launch_item *item, union launch_value *values, struct launch_map *maps);
// Its parts. The grid and the device's limits: all of item but the arguments, and an ordinary launch. dims and scalars as moe_image_grid() takes them,
// checked.
int launch_grid(const struct moe_kernel *k, const int64_t *dims, const int64_t *scalars, struct launch_item *item);
// The arguments behind parameters and dims, which are there: values has the tensors' addresses. Nothing for no blocks.
int launch_maps(const struct moe_kernel *k, const int64_t *dims, const union launch_value *values,
                struct launch_item *item, struct launch_map *maps);
int launch_items(const struct moe_image *m, const struct launch_item *items, int n, void *stream); // n >= 0
void launch_prepare(const struct moe_image *m, const struct launch_item *items, int n);

// Keeps the text for moe_error() and returns status.
int device_fail(struct moe_device *d, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
