// SHA-256 (FIPS 180-4), bytes in, digest out. For keys and for finding damage in the cache; nothing secret passes here.
#include "jit.h"

#include <string.h>

static const uint32_t k[64] = {
    // FIPS 180-4, 4.2.2
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], x = h[7];
    for (int i = 0; i < 16; i++)
        w[i] = big_endian(p + (size_t)i * 4);
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = x + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
        uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        x = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += x;
}

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                                 0x5be0cd19 } };
}

void sha256_put(struct sha256 *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    size_t have = s->n % SHA256_BLOCK;
    if (!n)
        return;
    s->n += n;
    if (have) {
        size_t take = n < SHA256_BLOCK - have ? n : SHA256_BLOCK - have;
        memcpy(s->block + have, p, take);
        p += take;
        n -= take;
        if (have + take < SHA256_BLOCK)
            return;
        block(s->h, s->block);
    }
    for (; n >= SHA256_BLOCK; p += SHA256_BLOCK, n -= SHA256_BLOCK)
        block(s->h, p);
    memcpy(s->block, p, n);
}

void sha256_end(struct sha256 *s, unsigned char out[SHA256_BYTES])
{
    size_t have = s->n % SHA256_BLOCK;
    uint64_t bits = s->n * 8;
    s->block[have++] = 0x80;
    if (have > SHA256_BLOCK - 8) {
        memset(s->block + have, 0, SHA256_BLOCK - have);
        block(s->h, s->block);
        have = 0;
    }
    memset(s->block + have, 0, SHA256_BLOCK - have);
    for (int i = 0; i < 8; i++)
        s->block[SHA256_BLOCK - 1 - i] = (unsigned char)(bits >> (8 * i));
    block(s->h, s->block);
    for (int i = 0; i < SHA256_BYTES; i++)
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(const unsigned char digest[SHA256_BYTES], char out[SHA256_HEX])
{
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[SHA256_HEX - 1] = 0;
}
