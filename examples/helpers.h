// What the examples need beside the library: a clock, random data, a file's bytes, whichever device there is.
#ifndef MOE_EXAMPLES_HELPERS_H
#define MOE_EXAMPLES_HELPERS_H
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // clock_gettime()
#endif
#include "moert.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Leaves the function with the status of a call that failed.
#define TRY(call) \
    do { \
        int status_ = (call); \
        if (status_) \
            return status_; \
    } while (0)

static inline double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline uint32_t draw(uint32_t *state) // 24 bits
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static inline void random_bf16(uint32_t *state, uint16_t *v, size_t n) // -1/8 to 1/8
{
    for (size_t i = 0; i < n; i++) {
        float f = ((float)draw(state) / (1 << 23) - 1) / 8;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        v[i] = (uint16_t)(bits >> 16);
    }
}

// [tokens, k]: k neighbours of `experts` a token, of equal weight; from token `used` on nothing (ids of -1).
static inline void random_choices(uint32_t *state, int32_t *ids, float *weights, int tokens, int used, int k,
                                  int experts)
{
    for (int i = 0; i < tokens * k; i++) {
        int id = (i % k && i < used * k ? ids[i - 1] + 1 : (int)draw(state)) % experts;
        ids[i] = i < used * k ? id : -1;
        weights[i] = 1.0f / (float)k;
    }
}

// Device memory with n random numbers.
static inline int random_tensor(struct moe_device *d, uint32_t seed, size_t n, const void **tensor)
{
    uint16_t *host = (uint16_t *)malloc(n * 2);
    void *p = NULL;
    TRY(host ? MOE_OK : MOE_ERR_MEMORY);
    random_bf16(&seed, host, n);
    int status = moe_alloc(d, n * 2, &p);
    status = status ? status : moe_upload(d, p, host, n * 2);
    free(host);
    *tensor = p;
    return status;
}

// The device of that name; NULL: cuda:0, else the simulator. Says what is wrong on stderr. Returns the name.
static inline const char *open_device(const char *name, struct moe_device **d)
{
    char why[512];
    if (!name && !moe_open("cuda:0", d, why, sizeof why))
        return "cuda:0";
    name = name ? name : "sim:sm_90a";
    if (moe_open(name, d, why, sizeof why))
        fprintf(stderr, "%s\n", why);
    return name;
}

// The bytes from malloc; NULL: it cannot be read.
static inline void *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    void *bytes = n > 0 && !fseek(f, 0, SEEK_SET) ? malloc((size_t)n) : NULL;
    if (bytes && fread(bytes, 1, (size_t)n, f) != (size_t)n) {
        free(bytes);
        bytes = NULL;
    }
    *size = bytes ? (size_t)n : 0;
    if (f)
        fclose(f);
    return bytes;
}
#endif
