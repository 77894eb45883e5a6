// Diagnostics of one compile: collected in order, formatted as clang prints them. Nobody prints here.
#include "common.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static void add(struct ctx *c, enum severity sev, struct loc at, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *s = arena_alloc(c->arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    struct diag *d = NEW(c->arena, struct diag);
    *d = (struct diag){ .sev = sev, .loc = at, .text = s };
    if (!c->diag_tail)
        c->diag_tail = &c->diags;
    *c->diag_tail = d;
    c->diag_tail = &d->next;
}

bool error(struct ctx *c, struct loc at, const char *fmt, ...)
{
    va_list ap;
    if (c->errors == DIAG_MAX) {
        c->errors++;
        error(c, (struct loc){ 0 }, "too many errors");
        if (c->jmp)
            longjmp(*(jmp_buf *)c->jmp, 1);
    }
    if (c->errors > DIAG_MAX + 1)
        return false;
    va_start(ap, fmt);
    add(c, SEV_ERROR, at, fmt, ap);
    va_end(ap);
    c->errors++;
    return false;
}

void warning(struct ctx *c, struct loc at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(c, SEV_WARNING, at, fmt, ap);
    va_end(ap);
}

void note(struct ctx *c, struct loc at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(c, SEV_NOTE, at, fmt, ap);
    va_end(ap);
}

// Start and length of a line of the source, 1-based; NULL if there is none.
static const char *source_line(const struct ctx *c, int line, size_t *len)
{
    const char *p = c->src, *end = p ? p + c->src_len : NULL;
    for (int i = 1; p && i < line; i++) {
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return NULL;
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    *len = (size_t)((nl ? nl : end) - p);
    if (*len && p[*len - 1] == '\r')
        --*len;
    return p;
}

static void put_clean(struct text *out, const char *s, size_t n) // control bytes would spoil the caret and the terminal
{
    for (size_t i = 0; i < n; i++) {
        char ch = s[i] == '\t' || (unsigned char)s[i] < 32 || s[i] == 127 ? ' ' : s[i];
        text_put(out, &ch, 1);
    }
}

void diag_format(const struct ctx *c, const struct diag *d, struct text *out)
{
    static const char *const names[] = { "error", "warning", "note" };
    size_t n = 0;
    if (d->loc.line > 0)
        text_printf(out, "%s:%d:%d: ", c->file, d->loc.line, d->loc.col);
    else
        text_printf(out, "%s: ", c->file);
    text_printf(out, "%s: %s\n", names[d->sev], d->text);
    const char *line = d->loc.line > 0 ? source_line(c, d->loc.line, &n) : NULL;
    if (!line)
        return;
    // A very long line is shown around the place only.
    size_t col = (size_t)(d->loc.col > 0 ? d->loc.col - 1 : 0), from = col > 160 ? col - 80 : 0;
    if (from > n)
        from = n;
    size_t shown = n - from > 240 ? 240 : n - from;
    put_clean(out, line + from, shown);
    text_put(out, "\n", 1);
    for (size_t i = from; i < col; i++)
        text_put(out, " ", 1);
    text_put(out, "^", 1);
    for (int i = 1; i < d->loc.len && col + (size_t)i < from + shown; i++)
        text_put(out, "~", 1);
    text_put(out, "\n", 1);
}
