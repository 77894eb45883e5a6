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
    if (c->errors > DIAG_MAX)
        return; // of an error that was not added
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

static bool tail_byte(char ch) // of a character of several bytes
{
    return ((unsigned char)ch & 0xC0) == 0x80;
}

// Bytes of the well-formed UTF-8 character at s; 0 if it is none.
static size_t utf8_len(const char *s, size_t n)
{
    unsigned char ch = (unsigned char)*s;
    size_t len = ch < 0x80                 ? 1
                 : ch >= 0xC2 && ch < 0xE0 ? 2
                 : ch >= 0xE0 && ch < 0xF0 ? 3
                 : ch >= 0xF0 && ch < 0xF5 ? 4
                                           : 0;
    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if (!tail_byte(s[i]))
            return 0;
    return len;
}

// Bytes from..to of a line; control bytes and rubbish would spoil the caret and the terminal.
static void put_clean(struct text *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(s + i, n - i);
        if (len == 1 && ((unsigned char)s[i] < 32 || s[i] == 127))
            text_put(out, " ", 1);
        else
            text_put(out, len ? s + i : "?", len ? len : 1);
        i += len ? len : 1;
    }
}

// As many of `ch` as put_clean writes characters for these bytes.
static void put_run(struct text *out, const char *s, size_t n, char ch)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(s + i, n - i);
        text_put(out, &ch, 1);
        i += len ? len : 1;
    }
}

void diag_format(const struct ctx *c, const struct diag *d, struct text *out)
{
    static const char *const names[] = { "error", "warning", "note" };
    size_t n = 0, width = d->loc.len > 0 ? (size_t)d->loc.len : 1;
    if (d->loc.line > 0)
        text_printf(out, "%s:%d:%d: ", c->file, d->loc.line, d->loc.col);
    else
        text_printf(out, "%s: ", c->file);
    text_printf(out, "%s: %s\n", names[d->sev], d->text);
    const char *line = d->loc.line > 0 ? source_line(c, d->loc.line, &n) : NULL;
    if (!line)
        return;
    // A very long line is shown around the place only.
    size_t col = (size_t)(d->loc.col > 0 ? d->loc.col - 1 : 0), from;
    col = col > n ? n : col;
    from = col > 160 ? col - 80 : 0;
    size_t to = n - from > 240 ? from + 240 : n;
    while (from > 0 && from < n && tail_byte(line[from]))
        from--;
    while (to < n && tail_byte(line[to]))
        to++;
    put_clean(out, line + from, to - from);
    text_put(out, "\n", 1);
    put_run(out, line + from, col - from, ' ');
    text_put(out, "^", 1);
    struct text marks = { .arena = c->arena };
    put_run(&marks, line + col, width > to - col ? to - col : width, '~');
    if (marks.n > 1)
        text_put(out, marks.s + 1, marks.n - 1);
    text_put(out, "\n", 1);
}
