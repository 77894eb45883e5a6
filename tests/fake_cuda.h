// The fake libcuda's other side: what a test sets and sees. Built into tests/libfakecuda.so with the symbols of
// libcuda; a test gets the struct with dlsym(handle, "fake_cuda").
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
#include <stddef.h>

enum { FAKE_CALLS_MAX = 4096, FAKE_ARGS_MAX = 16 };
struct fake_thread { // contexts are a matter of each thread
    void *context, *stack[8];
    int pushed;
};
struct fake_cuda {
    // set by the test
    int fail_at;   // the call of this number (from 1) fails; 0: none
    int fail_code; // with this code
    int devices, major, minor, shared_max, driver;
    int arg_count;                // of the next launches: how many arguments to copy,
    int arg_bytes[FAKE_ARGS_MAX]; // and their sizes
    // seen by the test
    int calls;
    const char *names[FAKE_CALLS_MAX];   // of the calls, in order
    int live, contexts;                  // memory, modules, streams, events, graphs; retained contexts
    struct fake_thread *(*thread)(void); // the calling thread's
    void (*reset)(void);                 // forgets all objects
    size_t bytes;                        // of live memory
    int wrong;                           // calls that misuse the API: bad handle, no context, capture rules
    int launches;
    unsigned grid, block, shared;
    void *stream;
    char symbol[128];
    unsigned char args[FAKE_ARGS_MAX][8];
    int shared_set; // last cuFuncSetAttribute
};
#endif
