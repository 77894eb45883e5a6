// Shared by jit.c, cache.c, compile.c, sha256.c. Internal.
#ifndef MOE_JIT_H
#define MOE_JIT_H
#include "moejit.h"

// ---- sha256.c: FIPS 180-4
enum { SHA256_BYTES = 32, SHA256_HEX = 65, SHA256_BLOCK = 64 };
struct sha256 {
    uint32_t h[8];
    uint64_t n; // bytes so far
    unsigned char block[SHA256_BLOCK];
};
void sha256_init(struct sha256 *s);
void sha256_put(struct sha256 *s, const void *bytes, size_t n);
void sha256_end(struct sha256 *s, unsigned char out[SHA256_BYTES]);
void sha256_hex(const unsigned char digest[SHA256_BYTES], char out[SHA256_HEX]);

// ---- cache.c
enum { CACHE_PATH = 4096, CACHE_WHY = 512 };
struct cache {
    int dir; // of the directory; -1: the disk is not used
    uint64_t max;
};
struct cache_label { // for the list only
    const char *name, *kernel, *arch;
};
// named NULL: by the environment. Made if need be. On failure dir is -1 and why says why; "" if the disk is turned off.
void cache_open(struct cache *c, const char *named, char why[CACHE_WHY]);
void cache_close(struct cache *c);
// true: bytes from malloc, all checks passed, and it counts as used now.
bool cache_get(const struct cache *c, const unsigned char key[SHA256_BYTES], void **bytes, size_t *n);
// false: why. Older entries may go.
bool cache_put(const struct cache *c, const unsigned char key[SHA256_BYTES], const struct cache_label *label,
               const void *bytes, size_t n, char why[CACHE_WHY]);
// A descriptor; or LOCK_BUSY: another has it; LOCK_NONE: there are no locks here.
enum { LOCK_BUSY = -1, LOCK_NONE = -2 };
int cache_lock(const struct cache *c, const unsigned char key[SHA256_BYTES]);
void cache_unlock(const struct cache *c, const unsigned char key[SHA256_BYTES], int fd);

// ---- compile.c
struct found_compiler {
    bool is_library;
    char path[CACHE_PATH];  // "": the process has it already
    char ptxas[CACHE_PATH]; // "": there is none
    char identity[3 * MOE_IDENTITY_MAX + 64];
};
// false: why names both remedies. Nothing is opened or run.
bool compiler_find(const char *ptxas, struct found_compiler *f, char *why, size_t size);
moe_compiler compiler_run; // user: a struct found_compiler
#endif
