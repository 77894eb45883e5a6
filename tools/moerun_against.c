// Results kept in files (--save=DIR), and compared bit by bit with those of another device (--against=DIR): one file a tensor, its
// bytes as in memory.
#include "moerun.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool save(const char *dir, const char *name, const void *p, size_t n)
{
    char path[4096];
    if (mkdir(dir, 0777) && errno != EEXIST)
        return report(EXIT_USAGE, "cannot make %s: %s", dir, strerror(errno));
    snprintf(path, sizeof path, "%.3500s/%.500s", dir, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(p, 1, n, f) == n;
    ok = f && !fclose(f) && ok;
    return ok || report(EXIT_USAGE, "cannot write %s: %s", path, strerror(errno));
}

// How many representable numbers lie between two floats of 16 bits, of either format, or of 32.
static int64_t steps(const char *a, const char *b, int bytes)
{
    uint32_t p = 0, q = 0, sign = bytes == 2 ? 0x8000 : 0x80000000u;
    memcpy(&p, a, (size_t)bytes);
    memcpy(&q, b, (size_t)bytes);
    int64_t x = p & sign ? -(int64_t)(p & ~sign) : p, y = q & sign ? -(int64_t)(q & ~sign) : q;
    return x > y ? x - y : y - x;
}

static bool compare(const char *dir, const char *name, const void *p, size_t n, int bytes)
{
    char path[4096], *other;
    size_t length;
    snprintf(path, sizeof path, "%.3500s/%.500s", dir, name);
    if (!read_file(path, &other, &length))
        return false;
    if (length != n) {
        free(other);
        return report(EXIT_USAGE, "%s has %zu bytes, here are %zu", path, length, n);
    }
    int64_t differ = 0, most = 0, of = (int64_t)(n / (size_t)bytes);
    for (int64_t i = 0; i < of; i++) {
        const char *a = (const char *)p + i * bytes, *b = other + i * bytes;
        if (!memcmp(a, b, (size_t)bytes))
            continue;
        differ++;
        most = steps(a, b, bytes) > most ? steps(a, b, bytes) : most;
    }
    if (!differ)
        printf("  %s: %" PRId64 " values, equal bit by bit\n", name, of);
    else
        printf("  %s: %" PRId64 " of %" PRId64 " values differ, by at most %" PRId64 " steps of the %d-bit format\n",
               name, differ, of, most, 8 * bytes);
    free(other);
    return true;
}

bool against(const struct options *o, const char *name, const void *p, size_t n, int bytes)
{
    return (!o->save || save(o->save, name, p, n)) && (!o->against || compare(o->against, name, p, n, bytes));
}
