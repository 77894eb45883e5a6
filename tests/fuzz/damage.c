// Loads the bitcode of a real image with each damage in a process of its own: cut at every 64th byte; one bit of it flipped. Loading must
// refuse it or give a module whose kernels become host code. What crashes is counted by where: in LLVM's reader of bitcode
// (images are trusted code, and their checksum catches damage), or behind it, which is a fault of the simulator: exit status 1.
// damage IMAGE ARCH [FLIPS [STEP]]; under the address sanitizer, see `make check-damage`.
#include "../../runtime/sim/moesim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60 };
enum end { REFUSED, LOADED, IN_READER, CRASHED, ENDS };
static const char *const ends[ENDS] = { "refused", "loaded", "crashed in LLVM's reader", "crashed behind it" };

static uint64_t state = 1;
static uint64_t chance(uint64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 20) % n;
}

static void *file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    void *p = NULL;
    if (f && !fseek(f, 0, SEEK_END) && (*n = (size_t)ftell(f)) > 0 && !fseek(f, 0, SEEK_SET) && (p = malloc(*n)) &&
        fread(p, 1, *n, f) != *n)
        exit(2);
    if (f)
        fclose(f);
    return p;
}

// In the child. Of the module one kernel, another each time, becomes host code: a launch of no blocks.
static int load(const char *arch, const struct image_desc *image, const void *bits, size_t n, int nth)
{
    const struct moesim_api *api = moesim_api(MOESIM_VERSION);
    struct moesim_limits limits;
    char why[MOESIM_WHY] = "";
    void *args[IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX];
    static uint64_t zeros[16];
    for (int i = 0; i < IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX; i++)
        args[i] = zeros;
    struct moesim_device *d = api->open(arch, &limits, why);
    struct moesim_module *m = d ? api->load(d, bits, n, why) : NULL;
    if (!m)
        return why[0] ? REFUSED : CRASHED;
    struct moesim_kernel *k = api->kernel(m, &image->kernels[nth % image->nkernels], why);
    if (k)
        api->launch(k, 0, args, NULL, false, why);
    api->unload(m);
    api->close(d);
    return LOADED;
}

static enum end try(const char *arch, const struct image_desc *image, const unsigned char *bits, size_t n, int nth)
{
    static char text[1 << 16];
    FILE *err = tmpfile();
    int status = 0;
    pid_t pid = err ? fork() : -1;
    if (pid < 0)
        exit(2);
    if (!pid) {
        dup2(fileno(err), 2);
        alarm(SECONDS);
        unsigned char *copy = malloc(n ? n : 1); // of its exact size: the sanitizer sees what reads past it
        memcpy(copy, bits, n);
        _exit(load(arch, image, copy, n, nth));
    }
    waitpid(pid, &status, 0);
    rewind(err);
    text[fread(text, 1, sizeof text - 1, err)] = 0;
    fclose(err);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= LOADED)
        return WEXITSTATUS(status);
    bool reader = strstr(text, " in read_bitcode") != NULL;
    if (!reader)
        fprintf(stderr, "damage %d (%zu bytes), status 0x%x:\n%.6000s\n", nth, n, status, text);
    return reader ? IN_READER : CRASHED;
}

static void tell(const char *what, const int count[ENDS])
{
    printf("%s:", what);
    for (int i = 0; i < ENDS; i++)
        printf("%s %d %s", i ? "," : "", count[i], ends[i]);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t n = 0;
    char why[IMAGE_ERR_MAX];
    void *bytes = argc > 2 ? file(argv[1], &n) : NULL;
    struct image_desc *image = bytes ? moe_image_read(bytes, n, why) : NULL;
    if (!image || !image->bitcode_size)
        return 2;
    int cut[ENDS] = { 0 }, flipped[ENDS] = { 0 }, flips = argc > 3 ? atoi(argv[3]) : 2000, nth = 0;
    size_t size = image->bitcode_size, step = argc > 4 ? (size_t)atoi(argv[4]) : 64;
    unsigned char *bits = malloc(size);
    if (!bits)
        return 2;
    memcpy(bits, image->bitcode, size);
    for (size_t at = 0; at < size; at += step)
        cut[try(argv[2], image, bits, at, nth++)]++;
    tell("cut", cut);
    for (int i = 0; i < flips; i++) {
        uint64_t bit = chance(8 * size);
        bits[bit / 8] ^= (unsigned char)(1 << bit % 8);
        flipped[try(argv[2], image, bits, size, nth++)]++;
        bits[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    tell("one bit", flipped);
    free(bits);
    free(image);
    free(bytes);
    return cut[CRASHED] + flipped[CRASHED] > 0;
}
