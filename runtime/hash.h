// The checksum of images and of the cache's entries: FNV-1a 64, eight bytes at a time. It finds damage, not malice: each step is
// a bijection of the state and of the word, so that no change of one word goes unseen. Internal.
#ifndef MOE_HASH_H
#define MOE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START 0xcbf29ce484222325u

static inline uint64_t hash_step(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x100000001b3u;
    return h ^ h >> 32;
}

// Continues h over n bytes, as little-endian words, the last one filled up with zeros.
static inline uint64_t hash_words(uint64_t h, const unsigned char *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = __builtin_bswap64(w);
#endif
        h = hash_step(h, w);
    }
    uint64_t last = 0;
    for (size_t j = 0; j < n; j++)
        last |= (uint64_t)p[j] << 8 * j;
    return n ? hash_step(h, last) : h;
}
#endif
