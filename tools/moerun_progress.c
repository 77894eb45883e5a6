// One line on stderr that says what long work is at, rewritten in place and wiped before anything else is printed.
#include "moerun.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool on, shown;
    double last;
} line;

void progress_init(bool wanted)
{
    line.on = wanted || isatty(STDERR_FILENO);
}

void progress(const char *fmt, ...)
{
    enum { LEAST_MS = 100 };
    char text[160];
    va_list ap;
    double now = now_seconds();
    if (!line.on || (line.shown && now - line.last < LEAST_MS * 1e-3))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(stdout);
    fprintf(stderr, "\r\033[K%.78s", text);
    fflush(stderr);
    line.shown = true;
    line.last = now;
}

void progress_clear(void)
{
    if (line.shown)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    line.shown = false;
}
