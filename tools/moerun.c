// moerun: runs, verifies and times the kernels of an image or of a DSL source. This file: the command line's outcome.
#include "moerun.h"
#include "../runtime/moejit.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static enum exit_status first_report;

bool report(enum exit_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    progress_clear();
    fflush(stdout);
    fputs("moerun: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    if (first_report == EXIT_FINE)
        first_report = status;
    return false;
}

enum exit_status reported(void)
{
    return first_report;
}

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool read_file(const char *path, char **bytes, size_t *n)
{
    size_t cap = 1 << 16, got;
    FILE *f = fopen(path, "rb");
    *bytes = malloc(cap);
    *n = 0;
    if (!f || !*bytes) {
        if (f)
            fclose(f);
        free(*bytes);
        *bytes = NULL;
        return report(EXIT_USAGE, "cannot read %s", path);
    }
    while ((got = fread(*bytes + *n, 1, cap - *n - 1, f)) > 0) {
        *n += got;
        if (*n + 1 < cap)
            continue;
        char *more = realloc(*bytes, cap *= 2);
        if (!more)
            break;
        *bytes = more;
    }
    bool ok = feof(f) && !ferror(f);
    fclose(f);
    (*bytes)[*n] = 0;
    if (!ok) {
        free(*bytes);
        *bytes = NULL;
    }
    return ok || report(EXIT_USAGE, "cannot read %s", path);
}

static void print(void *user, const char *s, size_t n)
{
    (void)user;
    fwrite(s, 1, n, stdout);
}

static bool print_image(const struct options *o)
{
    char err[IMAGE_ERR_MAX], *bytes;
    size_t n;
    if (!read_file(o->image, &bytes, &n))
        return false;
    struct image_desc *d = moe_image_read(bytes, n, err);
    if (d)
        moe_image_describe(d, o->kernel, true, print, NULL);
    bool ok = d || report(EXIT_USAGE, "%s: %s", o->image, err);
    free(d);
    free(bytes);
    return ok;
}

static void one_line(struct moe_device *d, const char *name)
{
    struct moe_info i = { .size = sizeof i };
    if (moe_info(d, &i) == MOE_OK)
        printf("%-16s %s, %s, %d multiprocessors, %.1f GB\n", name, i.name, i.arch, i.processors,
               (double)i.memory_bytes * 1e-9);
}

// Every device that opens, and why each kind does not.
static bool list_devices(void)
{
    static const char *const kinds[] = { "cuda", "hip" };
    char name[64], why[512], first[512] = "";
    struct moe_device *d;
    int found = 0, simulators = 0;
    for (int k = 0; k < 2; k++)
        for (int n = 0; n < 256; n++, found++) {
            snprintf(name, sizeof name, "%s:%d", kinds[k], n);
            if (moe_open(name, &d, why, sizeof why)) {
                if (!n)
                    printf("%-16s none: %s\n", kinds[k], why);
                break;
            }
            one_line(d, name);
            moe_close(d);
        }
    for (int n = 0; simulator_arch(n); n++) {
        snprintf(name, sizeof name, "sim:%s", simulator_arch(n));
        if (moe_open(name, &d, why, sizeof why)) {
            snprintf(first, sizeof first, "%s", first[0] ? first : why);
            continue;
        }
        one_line(d, name);
        moe_close(d);
        simulators++;
    }
    if (!simulators)
        printf("%-16s none: %s\n", "sim", first);
    printf("%-16s the kernels' tile IR on the host\n", "eval");
    return found + simulators > 0 || report(EXIT_MISSING, "no device here but eval");
}

bool command_info(const struct options *o)
{
    struct device d;
    if (o->image)
        return print_image(o);
    if (!o->device[0])
        return list_devices();
    if (!device_open(&d, o))
        return false;
    const struct moe_info *i = &d.info;
    printf("%s: %s, %s\n", o->device, i->name, i->arch);
    if (d.gpu)
        printf("%d multiprocessors, %lld shared bytes a block, L2 %lld MB, memory %.1f GB (%d bits at %d MHz), clock "
               "%d MHz, driver version %d\n",
               i->processors, (long long)i->shared_max, (long long)(i->l2_bytes >> 20), (double)i->memory_bytes * 1e-9,
               i->memory_bus_bits, i->memory_clock_khz / 1000, i->clock_khz / 1000, i->driver_version);
    device_close(&d);
    return true;
}

static void warning(void *user, const char *text)
{
    (void)user;
    progress_clear();
    fprintf(stderr, "moerun: warning: %s\n", text);
}

int main(int argc, char **argv)
{
    struct options o;
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))) {
        print_usage(stdout);
        return EXIT_FINE;
    }
    if (!parse_options(argc, argv, &o))
        return EXIT_USAGE;
    moe_on_warning(warning, NULL);
    if (!strcmp(o.command, "cache"))
        return command_cache(&o) ? EXIT_FINE : reported() ? reported() : EXIT_INTERNAL;
    progress_init(o.progress);
    if (o.command[0] != 'i') // without --device it lists them
        device_choose(&o);
    bool ok = o.command[0] == 'b'   ? command_bench(&o)
              : o.command[0] == 't' ? command_tune(&o)
              : o.command[0] == 'c' ? command_check(&o)
              : o.command[0] == 'i' ? command_info(&o)
                                    : command_verify(&o);
    return ok ? EXIT_FINE : reported() ? reported() : EXIT_INTERNAL;
}
