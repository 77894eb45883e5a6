// A JSON array of flat objects, written as they come. Numbers that JSON has no word for become null.
#include "moerun.h"

#include <inttypes.h>
#include <math.h>

bool json_open(struct json *j, const char *path)
{
    *j = (struct json){ .f = NULL };
    if (!path)
        return true;
    j->f = fopen(path, "w");
    if (!j->f)
        return report(EXIT_USAGE, "cannot write %s", path);
    fputs("[", j->f);
    return true;
}

static void string(struct json *j, const char *s)
{
    fputc('"', j->f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', j->f);
        if ((unsigned char)*s < 0x20)
            fprintf(j->f, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, j->f);
    }
    fputc('"', j->f);
}

void json_begin(struct json *j)
{
    if (!j->f)
        return;
    fputs(j->any ? ",\n {" : "\n {", j->f);
    j->any = true;
    j->open = false;
}

static bool name(struct json *j, const char *s)
{
    if (!j->f)
        return false;
    if (j->open)
        fputs(", ", j->f);
    j->open = true;
    string(j, s);
    fputs(": ", j->f);
    return true;
}

void json_text(struct json *j, const char *key, const char *value)
{
    if (name(j, key))
        string(j, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    if (name(j, key))
        fprintf(j->f, "%" PRId64, value);
}

void json_number(struct json *j, const char *key, double value)
{
    if (!name(j, key))
        return;
    if (isfinite(value))
        fprintf(j->f, "%.6g", value);
    else
        fputs("null", j->f);
}

void json_ints(struct json *j, const char *key, const int64_t *v, int n)
{
    if (!name(j, key))
        return;
    for (int i = 0; i < n; i++)
        fprintf(j->f, "%s%" PRId64, i ? ", " : "[", v[i]);
    fputs(n ? "]" : "[]", j->f);
}

void json_end(struct json *j)
{
    if (j->f)
        fputc('}', j->f);
}

bool json_close(struct json *j)
{
    if (!j->f)
        return true;
    fputs("\n]\n", j->f);
    bool ok = !ferror(j->f);
    ok = fclose(j->f) == 0 && ok;
    j->f = NULL;
    return ok || report(EXIT_INTERNAL, "the JSON could not be written");
}
