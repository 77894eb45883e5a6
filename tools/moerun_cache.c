// moerun cache: what libmoert's cache directory holds, and less of it.
#include "moerun.h"
#include "../runtime/moejit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct sum {
    struct json *json;
    int n, damaged;
    uint64_t bytes;
};

static const char *age_text(int64_t s, char text[32])
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "m" } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (s >= units[i].seconds) {
            snprintf(text, 32, "%" PRId64 " %s", s / units[i].seconds, units[i].unit);
            return text;
        }
    snprintf(text, 32, "%" PRId64 " s", s);
    return text;
}

static bool show(void *user, const struct moe_cache_entry *e)
{
    struct sum *s = user;
    char age[32];
    s->n++;
    s->damaged += !e->valid;
    s->bytes += e->bytes;
    printf("%.16s  %-8s %10" PRIu64 "  %6s  %s%s%s%s\n", e->key, e->arch, e->bytes, age_text(e->age_s, age), e->name,
           e->kernel[0] ? ": " : "", e->kernel, e->valid ? "" : "(damaged)");
    json_begin(s->json);
    json_text(s->json, "key", e->key);
    json_text(s->json, "name", e->name);
    json_text(s->json, "kernel", e->kernel);
    json_text(s->json, "arch", e->arch);
    json_int(s->json, "bytes", (int64_t)e->bytes);
    json_int(s->json, "age_s", e->age_s);
    json_int(s->json, "valid", e->valid);
    json_end(s->json);
    return true;
}

static bool list(const char *dir, struct json *j)
{
    struct sum s = { .json = j };
    char why[512];
    if (moe_cache_list(dir, show, &s, why, sizeof why))
        return report(EXIT_MISSING, "%s", why);
    printf("%d images, %" PRIu64 " bytes in %s\n", s.n, s.bytes, dir);
    return s.damaged == 0 || report(EXIT_BREACH, "%d entries are damaged: they will be compiled again", s.damaged);
}

static bool prune(const char *dir, uint64_t bytes, int64_t age, struct json *j)
{
    char why[512];
    int removed = 0;
    uint64_t freed = 0;
    if (moe_cache_prune(dir, bytes, age, &removed, &freed, why, sizeof why))
        return report(EXIT_MISSING, "%s", why);
    printf("%d images, %" PRIu64 " bytes removed from %s\n", removed, freed, dir);
    json_begin(j);
    json_int(j, "removed", removed);
    json_int(j, "freed", (int64_t)freed);
    json_end(j);
    return true;
}

bool command_cache(const struct options *o)
{
    const char *what = o->action ? o->action : "list";
    bool is_list = !strcmp(what, "list"), is_clear = !strcmp(what, "clear"), is_prune = !strcmp(what, "prune");
    char dir[4096];
    struct json j;
    if (!is_list && !is_clear && !is_prune)
        return report(EXIT_USAGE, "cache %s: expected list, prune or clear", what);
    if (is_prune && o->max_bytes < 0 && o->max_age < 0)
        return report(EXIT_USAGE, "cache prune: expected --max-bytes=N, --max-age=N or both");
    moe_cache_dir(dir, sizeof dir);
    if (!dir[0])
        return report(EXIT_MISSING, "there is no cache directory: set HOME, XDG_CACHE_HOME or MOE_CACHE_DIR");
    if (!json_open(&j, o->json))
        return false;
    uint64_t bytes = is_clear ? 0 : o->max_bytes < 0 ? UINT64_MAX : (uint64_t)o->max_bytes;
    bool ok = is_list ? list(dir, &j) : prune(dir, bytes, is_clear ? 0 : o->max_age, &j);
    return json_close(&j) && ok;
}
