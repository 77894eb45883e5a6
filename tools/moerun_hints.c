// A file of hints: read, merged with new measurements, written aside and renamed.
#include "moerun_hints.h"
#include "moerun.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hint_parse(const char *s, size_t n, struct hint *h)
{
    int used = 0;
    char *bar;
    if (n + 2 > sizeof h->line || strncmp(s, "moe-hint ", 9) != 0)
        return false;
    *h = (struct hint){ .rows = 0 };
    memcpy(h->line, s, n);
    if ((bar = strrchr(h->line, '|')))
        *bar = 0;
    char *last = bar ? strrchr(h->line, '|') : NULL;
    if (bar)
        *bar = '|';
    if (!last || sscanf(last, "|%lld|%d%n", &h->tokens, &h->rows, &used) != 2 || h->tokens < 1 || h->rows < 1)
        return false;
    h->identity = (size_t)(last - h->line);
    h->line[n] = '\n';
    return true;
}

static bool same_identity(const struct hint *a, const struct hint *b)
{
    return a->identity == b->identity && !memcmp(a->line, b->line, a->identity);
}

bool hints_put(struct hints *f, const struct hint *h)
{
    for (int i = 0; i < f->n; i++)
        if (same_identity(&f->h[i], h) && f->h[i].tokens == h->tokens) {
            f->h[i] = *h;
            return true;
        }
    if (f->n == HINTS_MAX)
        return report(EXIT_USAGE, "--hints: more than %d hints", HINTS_MAX);
    f->h[f->n++] = *h;
    return true;
}

bool hints_read(struct hints *f, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    *f = (struct hints){ .h = calloc(HINTS_MAX, sizeof *f->h) };
    if (!f->h)
        return report(EXIT_INTERNAL, "out of memory");
    if (!path || access(path, F_OK))
        return true;
    if (!read_file(path, &text, &n))
        return false;
    f->rest = malloc(n + 2);
    bool ok = f->rest || report(EXIT_INTERNAL, "out of memory");
    for (size_t at = 0; ok && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        struct hint h;
        if (hint_parse(text + at, length, &h)) {
            ok = hints_put(f, &h);
        } else {
            memcpy(f->rest + f->nrest, text + at, length);
            f->nrest += length;
            f->rest[f->nrest++] = '\n';
        }
        at += length + 1;
    }
    free(text);
    return ok;
}

// The library takes it that between two hints for one tile that tile is right. Where that was measured to be wrong, a line that
// names the layer's own choice stands between them.
static int pinned(const struct hints *f, const struct hint *h)
{
    const struct hint *below = NULL, *above = NULL;
    for (int i = 0; i < f->n; i++) {
        const struct hint *x = &f->h[i];
        if (!x->rows || !same_identity(x, h))
            continue;
        if (x->tokens < h->tokens && (!below || x->tokens > below->tokens))
            below = x;
        if (x->tokens > h->tokens && (!above || x->tokens < above->tokens))
            above = x;
    }
    return below && above && below->rows == above->rows && below->rows != h->own ? h->own : 0;
}

static int by_hint(const void *a, const void *b)
{
    const struct hint *x = a, *y = b;
    size_t n = x->identity < y->identity ? x->identity : y->identity;
    int c = memcmp(x->line, y->line, n);
    return c                            ? c
           : x->identity != y->identity ? (x->identity < y->identity ? -1 : 1)
                                        : (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static bool write_all(const struct hints *f, FILE *out)
{
    if (f->nrest)
        fwrite(f->rest, 1, f->nrest, out);
    for (int i = 0; i < f->n; i++) {
        const struct hint *h = &f->h[i];
        int rows = h->rows ? h->rows : pinned(f, h);
        if (rows)
            fprintf(out, "%.*s|%lld|%d\n", (int)h->identity, h->line, h->tokens, rows);
    }
    return !ferror(out);
}

bool hints_write(struct hints *f, const char *path)
{
    char aside[4096];
    snprintf(aside, sizeof aside, "%.4000s.%ld", path, (long)getpid());
    qsort(f->h, (size_t)f->n, sizeof *f->h, by_hint);
    FILE *out = fopen(aside, "w");
    bool ok = out && write_all(f, out);
    ok = out && !fflush(out) && !fsync(fileno(out)) && ok;
    ok = out && !fclose(out) && ok && !rename(aside, path);
    if (!ok) {
        int why = errno;
        if (out)
            remove(aside);
        return report(EXIT_USAGE, "cannot write %s: %s", path, strerror(why));
    }
    return true;
}

void hints_free(struct hints *f)
{
    free(f->rest);
    free(f->h);
    *f = (struct hints){ .n = 0 };
}
