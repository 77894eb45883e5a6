// mutate ir|text IN OUT WHERE REGEX NTH REPLACEMENT: a fault put into a kernel, for tests/faults.sh.
//   ir    IN is an image with bitcode; WHERE is the kernel's symbol ("-": the whole module); the change is made in the text of its LLVM IR
//   text  IN is DSL (a dump of a stage); WHERE is a string on the first line of the part to be changed, which ends with a line "}"
// In the lines of that part, the NTH one (from 1; "last"; "all") that REGEX (POSIX extended) matches is replaced by REPLACEMENT at the
// match, \0 to \9 standing for what was matched, \n for a new line; "DELETE" takes the whole line out. It is an error if nothing matches.
#include "../runtime/image.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llvm-c/BitReader.h"
#include "llvm-c/BitWriter.h"
#include "llvm-c/Core.h"
#include "llvm-c/IRReader.h"

struct text {
    char *s;
    size_t n, cap;
};

static void die(const char *what, const char *which)
{
    fprintf(stderr, "mutate: %s: %s\n", what, which);
    exit(2);
}

static void add(struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = 2 * (t->cap + n + 1);
        t->s = realloc(t->s, t->cap);
        if (!t->s)
            die("out of memory", "");
    }
    memcpy(t->s + t->n, s, n);
    t->s[t->n += n] = 0;
}

static char *read_all(const char *path, size_t *n)
{
    struct text t = { NULL, 0, 0 };
    char chunk[65536];
    FILE *f = fopen(path, "rb");
    if (!f)
        die("cannot read", path);
    while ((*n = fread(chunk, 1, sizeof chunk, f)) > 0)
        add(&t, chunk, *n);
    fclose(f);
    *n = t.n;
    return t.s ? t.s : strdup("");
}

static void write_all(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f))
        die("cannot write", path);
}

static void replace(struct text *out, const char *line, const regmatch_t *m, const char *by)
{
    add(out, line, (size_t)m[0].rm_so);
    for (; *by; by++)
        if (by[0] == '\\' && by[1] >= '0' && by[1] <= '9') {
            const regmatch_t *g = &m[*++by - '0'];
            if (g->rm_so >= 0)
                add(out, line + g->rm_so, (size_t)(g->rm_eo - g->rm_so));
        } else if (by[0] == '\\' && (by[1] == 'n' || by[1] == '\\')) {
            add(out, by[1] == 'n' ? "\n" : "\\", 1);
            by++;
        } else {
            add(out, by, 1);
        }
    add(out, line + m[0].rm_eo, strlen(line + m[0].rm_eo));
}

// One pass over the lines; nth 0: only counts. Returns the number of matches.
static int pass(const char *s, bool ir, const char *where, const regex_t *re, int nth, const char *by, struct text *out)
{
    int found = 0;
    bool all = !strcmp(where, "-"), inside = all;
    char needle[256];
    snprintf(needle, sizeof needle, ir ? "@%s(" : "%s", where);
    while (*s) {
        size_t n = strcspn(s, "\n");
        char *line = strndup(s, n);
        regmatch_t m[10];
        s += n + (s[n] == '\n');
        if (!inside && strstr(line, needle) && (!ir || !strncmp(line, "define", 6)))
            inside = true;
        else if (inside && !all && !strcmp(line, "}"))
            inside = false;
        bool hit = inside && !regexec(re, line, 10, m, 0) && (++found == nth || nth < 0);
        if (hit && !strcmp(by, "DELETE")) {
            free(line);
            continue;
        }
        if (hit)
            replace(out, line, m, by);
        else
            add(out, line, n);
        add(out, "\n", 1);
        free(line);
    }
    return found;
}

static char *changed(const char *s, bool ir, char **arg)
{
    struct text out = { NULL, 0, 0 }, none = { NULL, 0, 0 };
    regex_t re;
    if (regcomp(&re, arg[1], REG_EXTENDED))
        die("bad expression", arg[1]);
    int nth = !strcmp(arg[2], "all") ? -1 : atoi(arg[2]);
    int n = pass(s, ir, arg[0], &re, 0, "", &none);
    if (!strcmp(arg[2], "last"))
        nth = n;
    if (n < 1 || nth > n)
        die("no such line", arg[1]);
    pass(s, ir, arg[0], &re, nth, arg[3], &out);
    regfree(&re);
    free(none.s);
    return out.s;
}

static void change_image(const char *in, const char *out, char **arg)
{
    char err[IMAGE_ERR_MAX] = "", *why = NULL;
    size_t n;
    char *bytes = read_all(in, &n);
    struct image_desc *d = moe_image_read(bytes, n, err);
    if (!d || !d->bitcode_size)
        die(in, d ? "no bitcode" : err);
    LLVMContextRef lc = LLVMContextCreate();
    LLVMModuleRef m = NULL;
    if (LLVMParseBitcodeInContext2(lc, LLVMCreateMemoryBufferWithMemoryRange(d->bitcode, d->bitcode_size, "in", 0), &m))
        die(in, "bitcode cannot be read");
    char *text = LLVMPrintModuleToString(m), *now = changed(text, true, arg);
    LLVMModuleRef bad = NULL;
    if (LLVMParseIRInContext(lc, LLVMCreateMemoryBufferWithMemoryRangeCopy(now, strlen(now), "out"), &bad, &why))
        die("the changed IR is malformed", why);
    LLVMMemoryBufferRef bits = LLVMWriteBitcodeToMemoryBuffer(bad);
    d->bitcode = LLVMGetBufferStart(bits);
    d->bitcode_size = LLVMGetBufferSize(bits);
    size_t size = moe_image_size(d);
    void *image = malloc(size + 1);
    if (!image || !moe_image_write(d, image, size, err))
        die(out, err);
    write_all(out, image, size);
    free(image);
    free(now);
    LLVMDisposeMessage(text);
    LLVMDisposeModule(bad);
    LLVMDisposeModule(m);
    LLVMDisposeMemoryBuffer(bits);
    LLVMContextDispose(lc);
    free(d);
    free(bytes);
}

int main(int argc, char **argv)
{
    if (argc != 8)
        die("usage", "mutate ir|text IN OUT WHERE REGEX NTH REPLACEMENT");
    if (!strcmp(argv[1], "ir")) {
        change_image(argv[2], argv[3], argv + 4);
    } else {
        size_t n;
        char *text = read_all(argv[2], &n), *now = changed(text, false, argv + 4);
        write_all(argv[3], now, strlen(now));
        free(text);
        free(now);
    }
    return 0;
}
