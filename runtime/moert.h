// libmoert: loads images made by moec and launches their kernels. This header is the manual.
//
//   struct moe_device *d;  char why[256];
//   if (moe_open("cuda:0", &d, why, sizeof why)) ...            a device; no other state anywhere
//   moe_load(d, bytes, size, &image);                           checked, refused by name if it cannot run here
//   const struct moe_kernel *k = moe_find(image, "down", "r128");
//   struct moe_arg args[] = { moe_tensor(h, 2, R, I), moe_tensor(w, 3, E, H, I), ... };
//   moe_launch(k, args, 4, NULL, stream);
//
// STATUS. Every int result is an enum moe_status: 0 is success. The text of a device's last failure is moe_error();
// of a failed moe_open() it is in `why`. Nothing prints, exits, or installs handlers. After MOE_ERR_DEVICE from
// moe_sync(), a download or an event, the device's context may be lost (a kernel faulted): close and open again in a
// new process.
//
// THREADS. Any function may be called from any thread at any time, also for the same device, except: nothing may use
// an object while or after another thread frees it. The caller's current CUDA context or HIP device is as it was
// when a call returns.
//
// LAUNCH PATH. moe_launch(), moe_fill(), moe_event_record() and moe_graph_launch() neither allocate device memory,
// nor synchronise, nor read from the device: streams in capture may be passed. Only moe_launch() is meant to be fast.
//
// STREAMS. `void *stream` is the driver's own handle (CUstream, hipStream_t): the caller's, or from moe_stream(); NULL:
// the legacy default stream. Device pointers are the driver's own too: memory need not come from moe_alloc().
//
// The library needs libc and libdl. The driver library (libcuda.so.1, libamdhip64.so) is opened by moe_open() and stays
// open.
#ifndef MOERT_H
#define MOERT_H
#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOE_API MOE_IMAGE_API
enum { MOERT_VERSION = 1 };

enum moe_status { // pinned numbers
    MOE_OK = 0,
    MOE_ERR_ARGUMENT = 1,  // the call itself is wrong: a device name, a size, a handle
    MOE_ERR_LIBRARY = 2,   // the driver library (moe_jit: the compiler) is missing, or lacks a function
    MOE_ERR_NO_DEVICE = 3, // the driver is there, but not this device
    MOE_ERR_MEMORY = 4,    // host or device memory is exhausted
    MOE_ERR_IMAGE = 5,     // the image is damaged, or the driver refuses its code
    MOE_ERR_ARCH = 6,      // the image is for another architecture
    MOE_ERR_SIGNATURE = 7, // launch: the arguments do not fit the kernel: number, kind, shape, alignment, a requirement
    MOE_ERR_LIMIT = 8,     // launch: the grid, or shared memory, is beyond the device
    MOE_ERR_DEVICE = 9,    // the driver reported any other failure
    MOE_ERR_SOURCE = 10,   // moe_jit: the source does not compile
    MOE_ERR_COMPILER = 11, // moe_jit: the compiler failed for reasons of its own
};
MOE_API const char *moe_status_name(int status); // "MOE_ERR_ARCH"; "?" if unknown

struct moe_device;
struct moe_image;
struct moe_kernel;

// ---- device
// device: "cuda:N" (NVIDIA) or "hip:N" (AMD); "cuda" is "cuda:0". If the calling thread has a current CUDA context of that
// device, that is taken, and must outlive the moe_device; else the primary one is (that of the CUDA runtime and of PyTorch).
// "sim:ARCH[,seed=N][,threads=N][,fast][,limit=N][,processors=N]": that device on the CPU, by libmoesim.so (sim/moesim.h), which finds
// faults; the images it loads must carry LLVM bitcode. why (may be NULL): the reason of a failure, one line.
MOE_API int moe_open(const char *device, struct moe_device **out, char *why, size_t why_size);
// Everything made on the device must be freed before; NULL is allowed.
MOE_API void moe_close(struct moe_device *d);
struct moe_info {
    size_t size;        // set by the caller: sizeof(struct moe_info). No more than this is written
    char name[96];      // "NVIDIA H200"
    char arch[16];      // "sm_90a", "gfx942"
    int processors;     // multiprocessors
    int threads_max;    // of a block
    int64_t shared_max; // bytes of a block, dynamic
    int64_t l2_bytes, memory_bytes;
    int clock_khz, memory_clock_khz, memory_bus_bits; // 0: unknown
    int driver_version;                               // 13000 for CUDA 13.0, 60342134 for HIP 6.3.42134
};
MOE_API int moe_info(struct moe_device *d, struct moe_info *info);
// Copies the text of the last failure on this device, by any thread; "" if none. Returns text.
MOE_API const char *moe_error(struct moe_device *d, char *text, size_t size);

// ---- memory
// bytes 0 gives NULL, which moe_free() accepts. Alignment at least 256.
MOE_API int moe_alloc(struct moe_device *d, size_t bytes, void **ptr);
MOE_API int moe_free(struct moe_device *d, void *ptr);
// Complete when they return; ordered after work in the legacy default stream only: moe_sync() other streams first.
MOE_API int moe_upload(struct moe_device *d, void *to, const void *from, size_t bytes);
MOE_API int moe_download(struct moe_device *d, void *to, const void *from, size_t bytes);
// Sets bytes, in the stream's order.
MOE_API int moe_fill(struct moe_device *d, void *ptr, int byte, size_t bytes, void *stream);

// As moe_fill() with 0xff, which is a NaN in every float format; a simulated device also counts the bytes as unwritten, so
// that a kernel's read of them is a finding.
MOE_API int moe_poison(struct moe_device *d, void *ptr, size_t bytes, void *stream);

// ---- findings
// What a simulated device has found wrong with the kernels it ran, one line each, in order: races, reads of unwritten
// memory, accesses out of bounds, deadlocks. NULL past the last; NULL always on hardware. Valid until cleared or closed. moe_sync()
// fails once with MOE_ERR_DEVICE after each launch that found something new.
MOE_API const char *moe_finding(struct moe_device *d, int i);
MOE_API void moe_findings_clear(struct moe_device *d);
// A simulated device does things in another order from now on. Nothing on hardware.
MOE_API void moe_reseed(struct moe_device *d, uint64_t seed);
// What a simulated device has done so far and how fast, one line; "" on hardware. Returns text.
MOE_API const char *moe_stats(struct moe_device *d, char *text, size_t size);
// Who wrote the byte at p last: "moe.dsl:112:5: gate_up_r16: block 3, thread 7". "" if that is not known (on hardware: never).
// Returns text.
MOE_API const char *moe_origin(struct moe_device *d, const void *p, char *text, size_t size);

// ---- images
// Checks, copies and loads. Code for another architecture is refused with both sides named; PTX is compiled by the
// driver, and its complaints are in moe_error(). All kernels are made ready (shared memory limits are set) here.
MOE_API int moe_load(struct moe_device *d, const void *bytes, size_t size, struct moe_image **out);
MOE_API int moe_unload(struct moe_image *image); // its kernels end with it; NULL is allowed
MOE_API const struct image_desc *moe_describe(const struct moe_image *image);
// Kernel i of the description; NULL past the last.
MOE_API const struct moe_kernel *moe_kernel_at(const struct moe_image *image, int i);
// variant NULL: the first of that name. NULL: none.
MOE_API const struct moe_kernel *moe_find(const struct moe_image *image, const char *name, const char *variant);
// The variant with the smallest tile of `axis` that is at least `want`, else the one with the largest. NULL: no
// kernel of that name. Variants without the axis count as tile 0.
MOE_API const struct moe_kernel *moe_find_tile(const struct moe_image *image, const char *name, const char *axis,
                                               int64_t want);
MOE_API const struct image_kernel *moe_signature(const struct moe_kernel *k);

// ---- launch
enum moe_arg_kind { MOE_POINTER = 1, MOE_I32 = 2, MOE_F32 = 3 };
struct moe_arg {
    enum moe_arg_kind kind;
    int rank;         // POINTER: entries of shape that are given; 0: none, the dims come from elsewhere
    void *ptr;        // NULL only if the tensor has no elements
    size_t bytes;     // capacity behind ptr, checked against the shape; 0: unknown
    int64_t shape[4]; // must agree with the signature; names of free dims get their values from here
    int32_t i;
    float f;
};
static inline struct moe_arg moe_pointer(void *ptr)
{
    return (struct moe_arg){ .kind = MOE_POINTER, .ptr = ptr };
}
static inline struct moe_arg moe_tensor(void *ptr, int rank, int64_t a, int64_t b, int64_t c)
{
    return (struct moe_arg){ .kind = MOE_POINTER, .rank = rank, .ptr = ptr, .shape = { a, b, c } };
}
static inline struct moe_arg moe_i32(int32_t v)
{
    return (struct moe_arg){ .kind = MOE_I32, .i = v };
}
static inline struct moe_arg moe_f32(float v)
{
    return (struct moe_arg){ .kind = MOE_F32, .f = v };
}
// args: one a parameter of the signature, in order. dims: NULL, or one value a dim of the signature, in order; -1:
// from the shapes. Checked before anything reaches the device: number and kinds of arguments, shapes against each
// other and against constants, requirements (multiples, maxima), alignment, capacity, grid. Tensor maps that a kernel takes are
// made here, from the shapes; of a persistent kernel as many blocks go as the device holds (image.h). A grid of no blocks is a
// success at once. Dims that appear in no shape must be in `dims`.
MOE_API int moe_launch(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims,
                       void *stream);
// As moe_launch() without the launch: what it would refuse, but for tensor maps. blocks (may be NULL): that it would launch.
MOE_API int moe_launch_check(const struct moe_kernel *k, const struct moe_arg *args, int nargs, const int64_t *dims,
                             int64_t *blocks);
// Waits for the stream; NULL: for everything on the device. Faults of kernels come out here.
MOE_API int moe_sync(struct moe_device *d, void *stream);

// ---- streams, events, graphs: for callers that have no other source of them
enum moe_object_kind { MOE_STREAM = 1, MOE_EVENT = 2, MOE_GRAPH = 3 };
MOE_API int moe_stream(struct moe_device *d, void **stream); // does not wait for the legacy default stream
MOE_API int moe_event(struct moe_device *d, void **event);
MOE_API int moe_event_record(struct moe_device *d, void *event, void *stream);
// Waits for `to`, then gives the milliseconds between them.
MOE_API int moe_event_ms(struct moe_device *d, void *from, void *to, float *ms);
// Launches, fills and records between the two become a graph instead of running; other threads are not affected.
MOE_API int moe_capture_begin(struct moe_device *d, void *stream);
MOE_API int moe_capture_end(struct moe_device *d, void *stream, void **graph);
MOE_API int moe_graph_launch(struct moe_device *d, void *graph, void *stream);
MOE_API int moe_destroy(struct moe_device *d, enum moe_object_kind kind, void *object); // NULL is allowed
#ifdef __cplusplus
}
#endif
#endif
