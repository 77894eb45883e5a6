// moec: the compiler as a program. All of the work is in libmoec (compiler/moec.h); here are the command line, files
// and messages.
#include "../compiler/moec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: moec --arch=A [options] -o OUT FILE.dsl       '-' reads standard input, or writes standard output\n"
    "\n"
    "Compiles the kernels of a source for one GPU architecture.\n"
    "\n"
    "what to make\n"
    "  --arch=A             sm_80, sm_90a, sm_100a (NVIDIA), gfx942, gfx950 (AMD); --list-archs\n"
    "  --emit=KIND          image (default: for libmoert), ptx, cubin, hsaco, asm, llvm, mlir, tile\n"
    "  -D NAME=VALUE        fix a dimension (-D H=4096) or a type alias (-D act=f16)\n"
    "  --kernel=K[.VARIANT] only this kernel; --list-kernels\n"
    "  --ptx-only           image for NVIDIA with PTX instead of a cubin: the driver compiles it at load\n"
    "  --bitcode            image with LLVM bitcode, for simulation\n"
    "  --lineinfo           source lines in the code, for profilers\n"
    "  --ptxas=P, --lld=P   the assembler (NVIDIA), the linker (AMD); else $MOE_PTXAS, $MOE_LLD, PATH, the usual "
    "places\n"
    "\n"
    "looking inside\n"
    "  --dump=STAGE         print a stage on standard output; without -o, nothing after it is run\n"
    "  --dump-dir=D         write every stage to a numbered file in D, which is made if need be\n"
    "                       stages: tokens ast tile expand sched layout mlir mlirllvm llvm llvmopt asm image\n"
    "  --report             registers, spills, shared memory of each kernel, on standard output\n"
    "  --time               milliseconds by stage, on standard error\n"
    "  --time=kernels       as well: each kernel compiled on its own\n"
    "  --stop-after=STAGE   run nothing after it; no output\n"
    "  --skip=fold          leave out an optional pass\n"
    "  --verify=0|1         check the IR after each pass (default 1)\n"
    "  --emit-repro=F       on an internal error, write the input and the command line to F\n"
    "  --prove              (not available in this version)\n"
    "  --version, --help\n"
    "\n"
    "exit status: 0 ok, 1 errors in the input, 2 usage, 3 a tool is missing (named, with how to get it), 70 internal "
    "error\n";

enum { BINDINGS_MAX = 64, PATH_SIZE = 4096 };

static const struct {
    const char *stage, *file;
} stages[] = { { "tokens", "00-tokens.txt" }, { "ast", "01-ast.txt" },
               { "tile", "02-tile.dsl" },     { "expand", "03-expand.dsl" },
               { "sched", "04-sched.dsl" },   { "layout", "05-layout.dsl" },
               { "mlir", "06-mlir.mlir" },    { "mlirllvm", "07-mlirllvm.mlir" },
               { "llvm", "08-llvm.ll" },      { "llvmopt", "09-llvmopt.ll" },
               { "asm", "10-asm.s" },         { "image", "11-image.txt" } };
enum { STAGES = sizeof stages / sizeof *stages, STAGE_SCHED = 4 };

struct cli {
    struct moec_options o;
    struct moec_binding bind[BINDINGS_MAX];
    const char *in, *out, *dump, *dump_dir, *repro;
    bool time, time_kernels, report, list_kernels;
    int argc;
    char **argv;
    bool failed; // a dump could not be written
};

static int usage(const char *fmt, const char *what)
{
    fprintf(stderr, "moec: ");
    fprintf(stderr, fmt, what);
    fprintf(stderr, "\nrun 'moec --help' for the options\n");
    return MOEC_USAGE;
}

static int stage_number(const char *name) // STAGES: none
{
    int i = 0;
    while (i < STAGES && strcmp(stages[i].stage, name))
        i++;
    return i;
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

static bool same_file(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino && S_ISREG(s.st_mode);
}

// Aside, then renamed: a reader never sees half a file, and a full disk leaves the old one.
static bool write_output(const char *path, const void *data, size_t n)
{
    char aside[PATH_SIZE];
    struct stat st;
    if (!strcmp(path, "-"))
        return write_fd(STDOUT_FILENO, data, n) ||
               (fprintf(stderr, "moec: error: cannot write: %s\n", strerror(errno)), false);
    bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode); // /dev/null, a pipe
    int len = snprintf(aside, sizeof aside, special ? "%s" : "%s.tmp%ld", path, (long)getpid());
    int fd = len < (int)sizeof aside ? open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                                     : (errno = ENAMETOOLONG, -1);
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

// ---- what is told besides the output -----------------------------------------------------------------------------

static void on_dump(void *user, const char *stage, const char *text, size_t n)
{
    struct cli *c = user;
    char path[PATH_SIZE];
    int s = stage_number(stage);
    if (c->dump && !strcmp(c->dump, stage) && !write_output("-", text, n))
        c->failed = true;
    if (!c->dump_dir || s == STAGES)
        return;
    if (snprintf(path, sizeof path, "%s/%s", c->dump_dir, stages[s].file) >= (int)sizeof path ||
        !write_output(path, text, n))
        c->failed = true;
}

// As clang colours them: the place bold, the severity red, magenta or grey, the caret green.
static void print_diagnostic(const struct moec_diagnostic *d, bool colour)
{
    static const char *const colours[] = { "31", "35", "90" };
    static const char *const names[] = { "error: ", "warning: ", "note: " };
    const char *f = d->formatted, *text = strstr(f, d->text), *line, *caret;
    size_t n = strlen(names[d->severity]);
    if (!colour || !text || (size_t)(text - f) < n || strncmp(text - n, names[d->severity], n)) {
        fputs(f, stderr);
        return;
    }
    fprintf(stderr, "\033[1m%.*s\033[%sm%s\033[0m\033[1m", (int)(text - n - f), f, colours[d->severity],
            names[d->severity]);
    line = strchr(text, '\n');
    caret = line && line[1] ? strchr(line + 1, '\n') : NULL;
    fprintf(stderr, "%.*s\033[0m", line ? (int)(line - text) : (int)strlen(text), text);
    if (caret)
        fprintf(stderr, "%.*s\033[32m%s\033[0m", (int)(caret - line), line, caret);
    else
        fputs("\n", stderr);
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

static void print_amount(FILE *f, int64_t v)
{
    if (v < 0)
        fprintf(f, " %8s", "-");
    else
        fprintf(f, " %8" PRId64, v);
}

// - where nobody said: registers are known when ptxas was run.
static void print_report(const struct moec_result *r, FILE *f)
{
    const struct moec_kernel_use *u;
    fprintf(f, "%-24s %8s %8s %8s %8s %8s\n", "kernel", "threads", "regs", "spills", "stack", "shared");
    for (int i = 0; (u = moec_use(r, i)); i++) {
        fprintf(f, "%-24s", u->symbol);
        print_amount(f, u->threads);
        print_amount(f, u->regs);
        print_amount(f, u->spill_bytes);
        print_amount(f, u->stack);
        print_amount(f, u->shared);
        fputc('\n', f);
    }
}

// One row a kernel: it alone through all stages.
static void time_kernel(const struct cli *c, const char *text, size_t n, const struct moec_kernel_use *u)
{
    char kernel[256];
    double front = 0, mlir = 0, llvm = 0, code = 0, assemble = 0, t;
    const char *name;
    struct moec_options o = c->o;
    snprintf(kernel, sizeof kernel, "%s%s%s", u->name, *u->variant ? "." : "", u->variant);
    o.kernel = kernel;
    o.dump = NULL;
    struct moec_result *r = moec_compile(text, n, c->in, &o);
    for (int i = 0; r && (t = moec_time(r, i, &name), name); i++) {
        double *sum = !strncmp(name, "mlir", 4)   ? &mlir
                      : !strncmp(name, "llvm", 4) ? &llvm
                      : !strcmp(name, "asm")      ? &code
                      : !strcmp(name, "assemble") ? &assemble
                                                  : &front;
        *sum += t;
    }
    fprintf(stderr, "%-24s %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", u->symbol, front, mlir, llvm, code, assemble,
            front + mlir + llvm + code + assemble);
    moec_free(r);
}

static void time_kernels(const struct cli *c, const char *text, size_t n, const struct moec_result *all)
{
    fprintf(stderr, "%-24s %8s %8s %8s %8s %8s %8s  (ms)\n", "kernel", "front", "mlir", "llvm", "codegen", "assemble",
            "total");
    for (int i = 0; moec_use(all, i); i++)
        time_kernel(c, text, n, moec_use(all, i));
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
    const struct {
        const char *name, **to;
    } values[] = { { "--arch", &c->o.arch },
                   { "--kernel", &c->o.kernel },
                   { "--ptxas", &c->o.ptxas },
                   { "--lld", &c->o.lld },
                   { "--dump", &c->dump },
                   { "--dump-dir", &c->dump_dir },
                   { "--stop-after", &c->o.stop_after },
                   { "--skip", &c->o.skip },
                   { "--emit-repro", &c->repro } };
    const struct {
        const char *name;
        bool *to;
    } flags[] = { { "--time", &c->time },
                  { "--time=kernels", &c->time_kernels },
                  { "--report", &c->report },
                  { "--bitcode", &c->o.bitcode },
                  { "--lineinfo", &c->o.lineinfo },
                  { "--ptx-only", &c->o.ptx_only },
                  { "--list-kernels", &c->list_kernels },
                  { "--verify=0", &c->o.no_verify } };
    const char *v;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if ((v = value_of(a, values[i].name)))
            return *values[i].to = v, 0;
        if (!strcmp(a, values[i].name))
            return usage("%s takes its value after '='", a);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(a, flags[i].name))
            return *flags[i].to = true, 0;
    if ((v = value_of(a, "--emit")))
        return emit_kind(c, v);
    if (!strcmp(a, "--verify=1"))
        return c->o.no_verify = false, 0;
    return usage(!strcmp(a, "--prove") ? "%s is not available in this version" : "unknown option '%s'", a);
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

// What a result tells besides its code. false: an output could not be written.
static bool tell(const struct cli *c, const char *text, size_t n, const struct moec_result *r)
{
    size_t len;
    const void *code = moec_code(r, &len);
    bool ok = !c->failed;
    if (c->list_kernels && moec_status(r) == MOEC_OK)
        for (int i = 0; moec_kernel_name(r, i); i++)
            printf("%s\n", moec_kernel_name(r, i));
    if (code && c->out && !write_output(c->out, code, len))
        ok = false;
    if (c->report && moec_status(r) == MOEC_OK)
        print_report(r, c->out && !strcmp(c->out, "-") ? stderr : stdout);
    if (c->time || c->time_kernels)
        print_times(r);
    if (c->time_kernels && moec_status(r) == MOEC_OK)
        time_kernels(c, text, n, r);
    if (fflush(stdout)) {
        fprintf(stderr, "moec: error: cannot write: %s\n", strerror(errno));
        ok = false;
    }
    return ok;
}

static int compile(struct cli *c)
{
    size_t n;
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
    for (int i = 0; moec_diagnostic(r, i); i++)
        print_diagnostic(moec_diagnostic(r, i), colour);
    int status = (int)moec_status(r);
    if (!tell(c, text, n, r) && status == MOEC_OK)
        status = MOEC_INPUT;
    if (status == MOEC_INTERNAL && c->repro)
        write_repro(c, text, n);
    else if (status == MOEC_INTERNAL)
        fprintf(stderr,
                "moec: this is a fault of moec, not of the source; --emit-repro=F keeps what a report of it needs\n");
    moec_free(r);
    free(text);
    return status;
}

// Fills in what the options imply. 0, or the exit status of a refusal.
static int complete(struct cli *c)
{
    struct moec_options *o = &c->o;
    if (c->dump && stage_number(c->dump) == STAGES)
        return usage("unknown stage '%s'", c->dump);
    if (o->stop_after && c->out)
        return usage("--stop-after=%s makes no output: leave out -o", o->stop_after);
    if (c->dump && !c->out && !c->dump_dir && !o->stop_after && !c->report && !c->time_kernels)
        o->stop_after = c->dump;
    if (c->list_kernels)
        o->stop_after = "tile";
    if (c->dump || c->dump_dir) {
        o->dump = on_dump;
        o->user = c;
    }
    if (!o->arch && o->stop_after && stage_number(o->stop_after) < STAGE_SCHED)
        o->arch = moec_arch_name(0); // the same for all
    if (!o->arch)
        return usage("--arch is missing%s", "");
    if (!c->out && !c->dump_dir && !o->stop_after && !c->report && !c->time && !c->time_kernels)
        return usage("-o is missing%s", "");
    if (c->out && strcmp(c->out, "-") && same_file(c->out, c->in))
        return usage("-o %s would overwrite the source", c->out);
    if (c->dump_dir && mkdir(c->dump_dir, 0777) && errno != EEXIST) {
        fprintf(stderr, "moec: error: cannot make the folder '%s': %s\n", c->dump_dir, strerror(errno));
        return MOEC_INPUT;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct cli c = { .o = { .size = sizeof c.o }, .argc = argc, .argv = argv };
    c.o.bindings = c.bind;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return fputs(help, stdout) < 0 || fflush(stdout);
        if (!strcmp(argv[i], "--version"))
            return printf("moec %s\n", moec_version()) < 0 || fflush(stdout);
        if (!strcmp(argv[i], "--list-archs")) {
            for (int a = 0; moec_arch_name(a); a++)
                printf("%s\n", moec_arch_name(a));
            return fflush(stdout) ? MOEC_INPUT : MOEC_OK;
        }
    }
    int bad = parse_args(&c, argc, argv);
    if (!bad && !c.in)
        bad = usage("no input file%s", "");
    if (!bad)
        bad = complete(&c);
    return bad ? bad : compile(&c);
}
