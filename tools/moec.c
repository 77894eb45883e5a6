// moec: the compiler as a program. All of the work is in libmoec (compiler/moec.h); here are the command line, files
// and messages.
#include "../compiler/moec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: moec [options] -o OUT FILE.dsl        ('-' reads standard input or writes standard output)\n"
    "\n"
    "  --arch=A            sm_80, sm_90a, sm_100a, gfx942, gfx950 (--list-archs)\n"
    "  --emit=KIND         image (default), ptx, cubin, hsaco, asm, llvm, mlir, tile\n"
    "  -D NAME=VALUE       fix a dimension (-D H=4096) or a type alias (-D act=f16)\n"
    "  --kernel=K[.VARIANT] only this kernel\n"
    "  --ptxas=P --lld=P   the assembler and linker to run (else $MOE_PTXAS, $MOE_LLD, PATH)\n"
    "  --ptx-only          image for NVIDIA with PTX instead of a cubin: the driver compiles it at load\n"
    "  --bitcode           image with LLVM bitcode, for simulation\n"
    "  --dump=STAGE        print a stage: tokens ast tile expand sched layout mlir mlirllvm llvm llvmopt asm\n"
    "  --dump-dir=D        write every stage to a numbered file in D\n"
    "  --stop-after=STAGE  run nothing after it; no output\n"
    "  --skip=fold         leave out an optional pass\n"
    "  --verify=0|1        check the IR after each stage (default 1)\n"
    "  --time              milliseconds by stage, on standard error\n"
    "  --emit-repro=F      on an internal error, write the input and the command line to F\n"
    "  --list-archs, --list-kernels, --version, --help\n"
    "\n"
    "exit status: 0 ok, 1 errors in the input, 2 usage, 3 a missing tool, 70 internal error\n";

enum { BINDINGS_MAX = 64 };

struct cli {
    struct moec_options o;
    struct moec_binding bind[BINDINGS_MAX];
    const char *in, *out, *dump, *dump_dir, *repro;
    bool time, list_kernels;
    int argc;
    char **argv;
    int status;
};

static int usage(const char *fmt, const char *what)
{
    fprintf(stderr, "moec: ");
    fprintf(stderr, fmt, what);
    fprintf(stderr, "\nrun 'moec --help' for the options\n");
    return MOEC_USAGE;
}

// ---- files -------------------------------------------------------------------------------------------------------

static char *read_all(FILE *f, size_t *n)
{
    size_t cap = 1 << 16;
    char *s = malloc(cap);
    *n = 0;
    while (s) {
        size_t got = fread(s + *n, 1, cap - *n, f);
        *n += got;
        if (got == 0)
            break;
        if (*n == cap) {
            char *t = cap > (size_t)1 << 30 ? NULL : realloc(s, cap *= 2);
            if (!t)
                free(s);
            s = t;
        }
    }
    if (s && ferror(f)) {
        free(s);
        s = NULL;
    }
    return s;
}

static char *read_input(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    errno = f && fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode) ? EISDIR : errno;
    char *s = f && errno != EISDIR ? read_all(f, n) : NULL;
    if (!s)
        fprintf(stderr, "moec: error: cannot read '%s': %s\n", path, strerror(errno ? errno : ENOMEM));
    if (f && f != stdin)
        fclose(f);
    return s;
}

static bool write_fd(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t w = write(fd, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        s += w;
        n -= (size_t)w;
    }
    return true;
}

// Aside, then renamed: a reader never sees half a file, and a full disk leaves the old one.
static bool write_output(const char *path, const void *data, size_t n)
{
    char aside[4096];
    struct stat st;
    if (!strcmp(path, "-"))
        return write_fd(STDOUT_FILENO, data, n) || (fprintf(stderr, "moec: error: cannot write: %s\n", strerror(errno)), false);
    bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode); // /dev/null, a pipe
    int len = snprintf(aside, sizeof aside, special ? "%s" : "%s.tmp%ld", path, (long)getpid());
    int fd = len < (int)sizeof aside ? open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : (errno = ENAMETOOLONG, -1);
    bool ok = fd >= 0 && write_fd(fd, data, n);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        why = errno;
    }
    if (ok && !special && rename(aside, path)) {
        ok = false;
        why = errno;
    }
    if (!ok) {
        if (fd >= 0 && !special)
            unlink(aside);
        fprintf(stderr, "moec: error: cannot write '%s': %s\n", path, strerror(why));
    }
    return ok;
}

// ---- dumps, times ------------------------------------------------------------------------------------------------

static void on_dump(void *user, const char *stage, const char *text, size_t n)
{
    static const struct { const char *stage, *file; } files[] = {
        { "tokens", "00-tokens.txt" }, { "ast", "01-ast.txt" },           { "tile", "02-tile.dsl" },
        { "expand", "03-expand.dsl" }, { "sched", "04-sched.dsl" },       { "layout", "05-layout.dsl" },
        { "mlir", "06-mlir.mlir" },    { "mlirllvm", "07-mlirllvm.mlir" }, { "llvm", "08-llvm.ll" },
        { "llvmopt", "09-llvmopt.ll" }, { "asm", "10-asm.s" } };
    struct cli *c = user;
    char path[4096];
    if (c->dump && !strcmp(c->dump, stage) && !write_output("-", text, n))
        c->status = MOEC_INPUT;
    for (size_t i = 0; c->dump_dir && i < sizeof files / sizeof *files; i++)
        if (!strcmp(files[i].stage, stage)) {
            snprintf(path, sizeof path, "%s/%s", c->dump_dir, files[i].file);
            if (!write_output(path, text, n))
                c->status = MOEC_INPUT;
        }
}

static void print_times(const struct moec_result *r)
{
    const char *name;
    double sum = 0, t;
    for (int i = 0; t = moec_time(r, i, &name), name; i++) {
        if (t > 0)
            fprintf(stderr, "%-10s %9.2f ms\n", name, t);
        sum += t;
    }
    fprintf(stderr, "%-10s %9.2f ms\n", "total", sum);
}

static void write_repro(const struct cli *c, const char *text, size_t n)
{
    FILE *f = fopen(c->repro, "wb");
    if (!f) {
        fprintf(stderr, "moec: error: cannot write '%s': %s\n", c->repro, strerror(errno));
        return;
    }
    fprintf(f, "// moec %s:", MOEC_VERSION);
    for (int i = 1; i < c->argc; i++)
        fprintf(f, " %s", c->argv[i]);
    fputc('\n', f);
    fwrite(text, 1, n, f);
    if (fclose(f))
        fprintf(stderr, "moec: error: cannot write '%s': %s\n", c->repro, strerror(errno));
}

// ---- the command line --------------------------------------------------------------------------------------------

static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(arg, name, n) && arg[n] == '=' ? arg + n + 1 : NULL;
}

static int binding(struct cli *c, char *text)
{
    char *eq = strchr(text, '='), *end;
    if (!eq || eq == text || !eq[1])
        return usage("-D takes NAME=VALUE, not '%s'", text);
    if (c->o.nbindings == BINDINGS_MAX)
        return usage("too many -D%s", "");
    struct moec_binding *b = &c->bind[c->o.nbindings++];
    *eq = 0;
    b->name = text;
    errno = 0;
    b->value = strtoll(eq + 1, &end, 10);
    if (*end)
        b->type = eq + 1;
    else if (errno || b->value < 0)
        return usage("-D %s: the value is negative or too large", text);
    return 0;
}

static int emit_kind(struct cli *c, const char *v)
{
    static const char *const kinds[] = { "image", "ptx", "cubin", "hsaco", "asm", "llvm", "mlir", "tile" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(v, kinds[i])) {
            c->o.emit = (enum moec_emit)i;
            return 0;
        }
    return usage("unknown --emit=%s", v);
}

static int option(struct cli *c, const char *a)
{
    const struct { const char *name; const char **to; } values[] = {
        { "--arch", &c->o.arch }, { "--kernel", &c->o.kernel }, { "--ptxas", &c->o.ptxas }, { "--lld", &c->o.lld },
        { "--dump", &c->dump }, { "--dump-dir", &c->dump_dir }, { "--stop-after", &c->o.stop_after }, { "--skip", &c->o.skip },
        { "--emit-repro", &c->repro } };
    const char *v;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if ((v = value_of(a, values[i].name))) {
            *values[i].to = v;
            return 0;
        }
    if ((v = value_of(a, "--emit")))
        return emit_kind(c, v);
    if ((v = value_of(a, "--verify")) && (!strcmp(v, "0") || !strcmp(v, "1")))
        return c->o.no_verify = *v == '0', 0;
    if (!strcmp(a, "--time"))
        return c->time = true, 0;
    if (!strcmp(a, "--bitcode"))
        return c->o.bitcode = true, 0;
    if (!strcmp(a, "--ptx-only"))
        return c->o.ptx_only = true, 0;
    if (!strcmp(a, "--list-kernels"))
        return c->list_kernels = true, 0;
    if (!strcmp(a, "--prove") || !strcmp(a, "--report"))
        return usage("%s is not available in this version", a);
    return usage("unknown option '%s'", a);
}

static int parse_args(struct cli *c, int argc, char **argv)
{
    for (int i = 1, bad = 0; i < argc; i++) {
        char *a = argv[i];
        if (!strcmp(a, "-o") || !strcmp(a, "-D")) {
            if (i + 1 == argc)
                return usage("%s needs a value", a);
            if (a[1] == 'o')
                c->out = argv[++i];
            else
                bad = binding(c, argv[++i]);
        } else if (!strncmp(a, "-D", 2)) {
            bad = binding(c, a + 2);
        } else if (a[0] == '-' && a[1]) {
            bad = option(c, a);
        } else if (c->in) {
            bad = usage("more than one input: '%s'", a);
        } else {
            c->in = a;
        }
        if (bad)
            return bad;
    }
    return 0;
}

static int compile(struct cli *c)
{
    size_t n, len;
    bool colour = isatty(STDERR_FILENO);
    char *text = read_input(c->in, &n);
    if (!text)
        return MOEC_INPUT;
    struct moec_result *r = moec_compile(text, n, c->in, &c->o);
    if (!r) {
        fprintf(stderr, "moec: error: out of memory\n");
        free(text);
        return MOEC_INTERNAL;
    }
    for (int i = 0; moec_diagnostic(r, i); i++) {
        const struct moec_diagnostic *d = moec_diagnostic(r, i);
        fprintf(stderr, colour && d->severity == 0 ? "\033[31m%s\033[0m" : "%s", d->formatted);
    }
    int status = (int)moec_status(r);
    const void *code = moec_code(r, &len);
    if (c->list_kernels && status == MOEC_OK)
        for (int i = 0; moec_kernel_name(r, i); i++)
            printf("%s\n", moec_kernel_name(r, i));
    else if (status == MOEC_OK && code && c->out && !write_output(c->out, code, len))
        status = MOEC_INPUT;
    if (status == MOEC_OK && c->status)
        status = c->status;
    if (status == MOEC_INTERNAL && c->repro)
        write_repro(c, text, n);
    if (c->time)
        print_times(r);
    moec_free(r);
    free(text);
    return fflush(stdout) ? MOEC_INPUT : status;
}

int main(int argc, char **argv)
{
    struct cli c = { .o = { .size = sizeof c.o }, .argc = argc, .argv = argv };
    c.o.bindings = c.bind;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help"))
            return fputs(help, stdout) < 0;
        if (!strcmp(argv[i], "--version"))
            return printf("moec %s\n", MOEC_VERSION) < 0;
        if (!strcmp(argv[i], "--list-archs")) {
            for (int a = 0; moec_arch_name(a); a++)
                printf("%s\n", moec_arch_name(a));
            return 0;
        }
    }
    int bad = parse_args(&c, argc, argv);
    if (bad)
        return bad;
    if (!c.in)
        return usage("no input file%s", "");
    if (c.dump || c.dump_dir) {
        c.o.dump = on_dump;
        c.o.user = &c;
    }
    if (c.list_kernels) {
        c.o.stop_after = "tile";
        c.o.arch = c.o.arch ? c.o.arch : moec_arch_name(0);
    }
    if (!c.o.arch)
        return usage("--arch is missing%s", "");
    if (!c.out && !c.dump && !c.dump_dir && !c.o.stop_after)
        return usage("-o is missing%s", "");
    return compile(&c);
}
