// --source -> an image on the device, through libmoert's JIT and its cache. The compiler is in this program (exported, so that
// libmoert sees it), or, built without it, whatever libmoert finds.
#include "moerun.h"
#include "../runtime/moejit.h"

#include <stdlib.h>
#include <string.h>

static enum exit_status exit_for(int status)
{
    switch (status) {
    case MOE_ERR_SOURCE: return EXIT_BREACH;
    case MOE_ERR_ARGUMENT:
    case MOE_ERR_ARCH:
    case MOE_ERR_MEMORY: return EXIT_USAGE;
    case MOE_ERR_LIBRARY: return EXIT_MISSING;
    default: return EXIT_INTERNAL;
    }
}

bool jit_load(struct device *d, const struct options *o, const struct model *m)
{
    static const char *const origins[] = { "", "found in memory", "found in the cache", "compiled" };
    struct bound from[BINDINGS_MAX + 12];
    struct moe_binding b[BINDINGS_MAX + 12];
    enum moe_jit_origin origin = 0;
    char *text, why[8192] = "";
    size_t length;
    if (!read_file(o->source, &text, &length))
        return false;
    struct moe_compile c = { .size = sizeof c,
                             .source = text,
                             .source_size = length,
                             .name = o->source,
                             .arch = o->arch,
                             .bindings = b,
                             .nbindings = option_bindings(o, m, from),
                             .kernel = o->kernel,
                             .ptx = o->ptx };
    struct moe_jit_options j = { .size = sizeof j,
                                 .cache_dir = o->no_cache ? "" : NULL,
                                 .ptxas = o->ptxas,
                                 .from = &origin,
                                 .why = why,
                                 .why_size = sizeof why };
    for (int i = 0; i < c.nbindings; i++)
        b[i] = (struct moe_binding){ from[i].name, from[i].value, from[i].type };
    double start = now_seconds();
    int status = moe_jit(d->gpu, &c, &j, &d->image);
    free(text);
    if (status || o->verbose)
        progress_clear();
    if (o->verbose && !status)
        printf("image %s, loaded after %.3f s\n", origins[origin], now_seconds() - start);
    if (!status || !why[0]) // without words of the compiler: of the device
        return !device_fails(d, status, o->source);
    bool lines = strchr(why, '\n');
    if (lines)
        fputs(why, stderr);
    return report(exit_for(status), "%s does not compile for %s%s%s", o->source, o->arch ? o->arch : d->info.arch,
                  lines ? "" : ": ", lines ? "" : why);
}
