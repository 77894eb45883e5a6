// Compiles --source for a device's arch through libmoec. Without a compiler in the build: says so.
#include "moerun.h"

#include <stdlib.h>
#include <string.h>

#ifdef MOE_NO_COMPILER

bool jit_compile(const struct options *o, const char *arch, const struct model *m, char **bytes, size_t *n)
{
    (void)m;
    *bytes = NULL;
    *n = 0;
    return report(EXIT_MISSING,
                  "this moerun was built without the compiler: make an image with moec --arch=%s -o F.moe %s "
                  "and give --image=F.moe",
                  arch, o->source);
}

#else
#include "../compiler/moec.h"

static void print_diagnostics(const struct moec_result *r)
{
    const struct moec_diagnostic *d;
    for (int i = 0; (d = moec_diagnostic(r, i)); i++)
        if (d->severity == 0 || moec_status(r) != MOEC_OK)
            fputs(d->formatted, stderr);
}

bool jit_compile(const struct options *o, const char *arch, const struct model *m, char **bytes, size_t *n)
{
    struct bound from[BINDINGS_MAX + 8];
    struct moec_binding b[BINDINGS_MAX + 8];
    char *text;
    size_t length;
    *bytes = NULL;
    if (!read_file(o->source, &text, &length))
        return false;
    struct moec_options c = { .size = sizeof c,
                              .arch = arch,
                              .emit = MOEC_IMAGE,
                              .bindings = b,
                              .kernel = o->kernel,
                              .ptxas = o->ptxas,
                              .ptx_only = o->ptx || simulated(o),
                              .bitcode = simulated(o) };
    c.nbindings = option_bindings(o, m, from);
    for (int i = 0; i < c.nbindings; i++)
        b[i] = (struct moec_binding){ from[i].name, from[i].value, from[i].type };
    struct moec_result *r = moec_compile(text, length, o->source, &c);
    if (r && moec_status(r) == MOEC_MISSING && !o->ptx) { // no ptxas here: the driver compiles PTX at load
        moec_free(r);
        c.ptx_only = true;
        r = moec_compile(text, length, o->source, &c);
    }
    enum moec_status status = r ? moec_status(r) : MOEC_INTERNAL;
    if (r)
        print_diagnostics(r);
    if (status == MOEC_OK) {
        const void *code = moec_code(r, n);
        *bytes = malloc(*n + 1);
        if (*bytes)
            memcpy(*bytes, code, *n);
    }
    moec_free(r);
    free(text);
    static const enum exit_status map[] = { EXIT_INTERNAL, EXIT_BREACH, EXIT_USAGE, EXIT_MISSING };
    return *bytes ||
           report(status <= MOEC_MISSING ? map[status] : EXIT_INTERNAL, "%s does not compile for %s", o->source, arch);
}
#endif
