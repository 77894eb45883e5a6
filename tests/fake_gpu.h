// A GPU of host memory behind the names of a vendor's driver library: fake_cuda.c and fake_hip.c are its faces. Launches
// are recorded (the kernel "scale" is also carried out), streams run at once, a capture collects launches. Any call can
// be made to fail. A test gets the struct with dlsym(handle, "fake_gpu").
//
// A copy to the device lands late: when the legacy stream does something else or is waited for. Events are not ready before
// somebody has waited for them.
//
// It checks its caller too: unknown or freed handles, the wrong current device, allocation or synchronisation in a thread
// that captures, synchronisation of the whole device while any thread does, kernel nodes that nothing orders, and an
// executable graph that two threads set or launch at once count as `wrong`.
#ifndef FAKE_GPU_H
#define FAKE_GPU_H
#include <stddef.h>
#include <stdint.h>

enum { FAKE_CALLS_MAX = 4096, FAKE_ARGS_MAX = 16, FAKE_DEVICES_MAX = 8, FAKE_LOG_MAX = 4096, FAKE_MAPS_MAX = 2 };
enum {
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_INVALID = 1,
    FAKE_HANDLE = 400,
    FAKE_NOT_READY = 600,
    FAKE_IN_CAPTURE = 900,
    FAKE_BROKEN_CAPTURE = 901
};                     // the same numbers in both vendors' libraries
struct fake_thread {   // what is current is a matter of each thread
    intptr_t current;  // CUDA: the context; HIP: the device's number
    intptr_t stack[8]; // CUDA only
    int pushed;
    int last_error; // HIP only
};
struct fake_map { // what a tensor map holds here: what it was made from
    uint64_t base, dims[5], strides[4];
    uint32_t box[5];
    uint8_t steps[5], type, rank, interleave, swizzle, promotion, fill, mark;
};
struct fake_launch {
    char symbol[32];
    unsigned grid, block, shared;
    int dependent; // may start before the one before it has finished
    void *stream;
    unsigned char args[FAKE_ARGS_MAX][8];
    struct fake_map maps[FAKE_MAPS_MAX];
};
struct fake_gpu {
    // set by the test
    int slow;      // executable graphs: other threads come in between
    int hold;      // while set, whoever sets a node of one waits there
    int fail_at;   // the call of this number (from 1) fails; 0: none
    int fail_code; // with this code
    int devices, major, minor, shared_max, driver;
    const char *arch;
    int arg_count;                // of the next launches: how many arguments to copy,
    int arg_bytes[FAKE_ARGS_MAX]; // and their sizes;
    int map_count;                // how many tensor maps follow
    // seen by the test
    int calls;
    const char *names[FAKE_CALLS_MAX];   // of the calls, in order
    int live, contexts;                  // memory, modules, streams, events, graphs; retained contexts
    struct fake_thread *(*thread)(void); // the calling thread's
    void (*reset)(void);                 // forgets all objects
    size_t bytes;                        // of live memory
    int wrong;                           // calls that misuse the API
    int launches;
    unsigned grid, block, shared;
    void *stream;
    intptr_t launched_on, synced_on; // what was current
    char symbol[128];
    unsigned char args[FAKE_ARGS_MAX][8];
    int shared_set;                       // last cuFuncSetAttribute
    struct fake_launch log[FAKE_LOG_MAX]; // launch number i (from 0) is in log[i % FAKE_LOG_MAX]
    int sets, replays;                    // of nodes of executable graphs; launches of these graphs
    void *replayed;                       // the last one
    int held;                             // who waits, see hold
};
extern struct fake_gpu fake_gpu;

// ---- fake_gpu.c, for the faces. Those that return int return an error code, 0 is success.

extern _Thread_local struct fake_thread fake_here;
#define FAKE_EXPORT __attribute__((visibility("default")))
#define FAKE_CALL(name) \
    do { \
        int r_ = fake_call(name); \
        if (r_) \
            return r_; \
    } while (0)
enum fake_kind {
    FAKE_MEMORY = 1,
    FAKE_MODULE,
    FAKE_FUNCTION,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_EXEC,
    FAKE_NODE
};
struct fake_config { // of a launch
    unsigned grid[3], block[3], shared;
    void **args, **extra;
    int dependent;
};

int fake_call(const char *name); // counts the call; nonzero: it must fail
void *fake_make(enum fake_kind kind);
// A handle of this kind, made under what is current; else NULL, which counts as wrong.
void *fake_get(void *handle, enum fake_kind kind);
void fake_need_no_capture(void); // of this thread
int fake_drop(void *handle, enum fake_kind kind, const char *name);
int fake_alloc(void **pointer, size_t bytes);
int fake_free(void *pointer, const char *name);
int fake_copy(void *to, const void *from, const void *device, size_t bytes); // device: which of both is the GPU's
int fake_fill(void *to, int value, size_t n, void *stream);
int fake_unload(void *module, const char *name);
int fake_drop_graph(void *graph, const char *name);
int fake_function(void **function, void *module, const char *name);
void fake_allow(void *function, unsigned shared); // more is refused; without this call anything goes
int fake_run(void *function, const struct fake_config *c, void *stream);
int fake_sync(void *stream); // NULL: the legacy stream
int fake_sync_all(void);     // the device: no stream of any thread may be in capture
int fake_record(void *event, void *stream);
int fake_event_sync(void *event);
int fake_elapsed(float *ms, void *from, void *to);
int fake_begin(void *stream, int mode, int right_mode);
int fake_end(void *stream, void **graph, const char *name);
int fake_instantiate(void **exec, void *graph);
int fake_replay(void *exec, void *stream);
int fake_capturing(void *stream, int *status); // 0: no, 1: yes, 2: broken
int fake_graph(void **graph);
int fake_node(void **node, void *graph, void *const *after, size_t n, void *function, const struct fake_config *c);
int fake_edge(void *graph, void *from, void *to); // a node that was made after none, now dependent on the one before it
int fake_set_node(void *exec, void *node, void *function, const struct fake_config *c); // reads the arguments now
#endif
