// Fuzz target of runtime/image.c: any bytes are refused with a reason or give a description that can be walked.
// Input with an even first byte: the rest, its header mended. Odd: edits (offset, value), three bytes each, on the
// sample image, then sealed: so that the checks behind the checksum are reached without a corpus.
#include "../image_sample.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(unsigned char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u, w = 0;
    for (size_t i = 0; i < n; i++) {
        if (i < 24 || i >= 32)
            w |= (uint64_t)p[i] << 8 * (i % 8);
        if ((i % 8 == 7 || i + 1 == n) && (i < 24 || i >= 32)) {
            h = (h ^ w) * 0x100000001b3u;
            h ^= h >> 32;
            w = 0;
        }
    }
    memcpy(p + 24, &h, 8);
}

static void drop(void *user, const char *s, size_t n)
{
    *(size_t *)user += n ? (unsigned char)s[n - 1] : 0;
}

static void use(const unsigned char *p, size_t n)
{
    char err[IMAGE_ERR_MAX] = "";
    struct image_desc *d = moe_image_read(p, n, err);
    size_t sum = 0;
    if (!d) {
        if (!err[0] || !memchr(err, 0, sizeof err))
            abort();
        return;
    }
    int64_t dims[IMAGE_DIMS_MAX], scalars[IMAGE_PARAMS_MAX], blocks;
    for (int i = 0; i < IMAGE_DIMS_MAX; i++)
        dims[i] = scalars[i] = (int64_t)n * i;
    moe_image_describe(d, NULL, true, drop, &sum);
    for (int i = 0; i < d->nkernels; i++)
        moe_image_grid(&d->kernels[i], dims, scalars, &blocks, err);
    size_t again = moe_image_size(d); // what is accepted can be written, and is then the same
    unsigned char *q = malloc(again ? again : 1);
    if (!q || !again || !moe_image_write(d, q, again, err))
        abort();
    free(q);
    free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool edits = data[0] & 1;
    size_t n = edits ? moe_image_size(&sample_image) : size - 1;
    unsigned char *p = malloc(n ? n : 1);
    char err[IMAGE_ERR_MAX];
    if (edits && !moe_image_write(&sample_image, p, n, err))
        abort();
    if (!edits) {
        memcpy(p, data + 1, n);
        use(p, n);
    }
    for (size_t i = 1; edits && i + 3 <= size; i += 3)
        p[((size_t)data[i] | (size_t)data[i + 1] << 8) % n] = data[i + 2];
    if (n >= 224) {
        memcpy(p, "MOEIMG\r\n", 8);
        memcpy(p + 8, (uint32_t[]){ IMAGE_VERSION, 224 }, 8);
        uint64_t total = n;
        memcpy(p + 16, &total, 8);
        seal(p, n);
    }
    use(p, n);
    free(p);
    return 0;
}
