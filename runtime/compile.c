// Compilers that moe_jit() finds by itself: libmoec.so by dlopen, or the moec program without a shell. Which one, with what
// identity, is decided without opening or running it, so that an image from the disk costs neither.
#include "jit.h"
#include "moec_abi.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAM_SECONDS = 900, FIXED_ARGS = 10 };
static const char library_name[] = "libmoec.so", program_name[] = "moec";

// ---- identities --------------------------------------------------------------------------------------------------

// The digits of the note GNU BUILD_ID in one segment of notes.
static bool build_id_in(const unsigned char *p, size_t n, char *text, size_t size)
{
    Elf64_Nhdr h;
    for (size_t at = 0; at + sizeof h <= n;) {
        memcpy(&h, p + at, sizeof h);
        size_t name = at + sizeof h, desc = name + ((size_t)h.n_namesz + 3) / 4 * 4;
        if (desc > n || h.n_descsz > n - desc)
            return false;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(p + name, "GNU", 4)) {
            for (size_t i = 0; i < h.n_descsz && 2 * i + 3 <= size; i++)
                snprintf(text + 2 * i, size - 2 * i, "%02x", p[desc + i]);
            return true;
        }
        at = desc + ((size_t)h.n_descsz + 3) / 4 * 4;
    }
    return false;
}

static void build_id(int fd, char *text, size_t size)
{
    Elf64_Ehdr e;
    unsigned char notes[4096];
    text[0] = 0;
    if (pread(fd, &e, sizeof e, 0) != (ssize_t)sizeof e || memcmp(e.e_ident, ELFMAG, SELFMAG) ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof(Elf64_Phdr))
        return;
    for (int i = 0; i < e.e_phnum; i++) {
        Elf64_Phdr p;
        off_t at = (off_t)(e.e_phoff + (uint64_t)i * sizeof p);
        if (pread(fd, &p, sizeof p, at) != (ssize_t)sizeof p)
            return;
        if (p.p_type != PT_NOTE)
            continue;
        size_t n = p.p_filesz < sizeof notes ? p.p_filesz : sizeof notes;
        ssize_t got = pread(fd, notes, n, (off_t)p.p_offset);
        if (got > 0 && build_id_in(notes, (size_t)got, text, size))
            return;
    }
}

bool moe_file_identity(const char *path, char text[MOE_IDENTITY_MAX])
{
    struct stat st;
    char id[128] = "";
    int fd = open(path ? path : "/proc/self/exe", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    text[0] = 0;
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (ok) {
        build_id(fd, id, sizeof id);
        snprintf(text, MOE_IDENTITY_MAX, "%lld bytes of %lld.%09ld, build %s", (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, id[0] ? id : "unknown");
    }
    close(fd);
    return ok;
}

// ---- finding -----------------------------------------------------------------------------------------------------

static bool is_file(const char *path, int mode)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, mode) == 0;
}

static bool name_path(char to[CACHE_PATH], const char *dir, int n, const char *name)
{
    return snprintf(to, CACHE_PATH, "%.*s/%s", n, dir, name) < CACHE_PATH;
}

static bool in_path(const char *name, char to[CACHE_PATH])
{
    const char *p = getenv("PATH");
    while (p && *p) {
        int n = (int)strcspn(p, ":");
        if (p[0] == '/' && name_path(to, p, n, name) && is_file(to, X_OK)) // the program starts in another directory
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

// name: with a slash a file, else in PATH.
static bool find_program(const char *name, char to[CACHE_PATH])
{
    char *full = strchr(name, '/') ? realpath(name, NULL) : NULL;
    bool ok = full && strlen(full) < CACHE_PATH && is_file(full, X_OK);
    if (ok)
        memcpy(to, full, strlen(full) + 1);
    free(full);
    return ok || (!strchr(name, '/') && in_path(name, to));
}

// File `name` in the folder of this library or of the program, or in `other` from there.
static bool beside(const char *name, const char *other, int mode, char to[CACHE_PATH])
{
    char self[2][CACHE_PATH] = { "", "" };
    Dl_info at;
    if (dladdr((void *)(uintptr_t)&compiler_find, &at) && at.dli_fname && strchr(at.dli_fname, '/'))
        snprintf(self[0], CACHE_PATH, "%s", at.dli_fname);
    ssize_t n = readlink("/proc/self/exe", self[1], CACHE_PATH - 1);
    self[1][n > 0 ? n : 0] = 0;
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(self[i], '/');
        if (!slash)
            continue;
        int len = (int)(slash - self[i]);
        char sub[64];
        snprintf(sub, sizeof sub, "../%s/%s", other, name);
        if ((name_path(to, self[i], len, name) && is_file(to, mode)) ||
            (name_path(to, self[i], len, sub) && is_file(to, mode)))
            return true;
    }
    return false;
}

static bool by_loader(char to[CACHE_PATH])
{
    Dl_info at;
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL); // stays open: LLVM does not like to be unloaded
    void *f = library ? dlsym(library, "moec_compile") : NULL;
    return f && dladdr(f, &at) && at.dli_fname && snprintf(to, CACHE_PATH, "%s", at.dli_fname) < CACHE_PATH;
}

// The compiler that the process has already: linked into the program and exported, or a library of it. path "": that one.
static bool in_process(struct found_compiler *f, char id[MOE_IDENTITY_MAX])
{
    Dl_info at;
    struct link_map *map = NULL;
    void *p = dlsym(RTLD_DEFAULT, "moec_compile");
    if (!p || !dladdr1(p, &at, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    f->path[0] = 0;
    return moe_file_identity(map->l_name[0] ? map->l_name : NULL, id);
}

// id: set if the process has it already. false: why.
static bool find_compiler(struct found_compiler *f, char id[MOE_IDENTITY_MAX], char *why, size_t size)
{
    const char *library = secure_getenv("MOE_COMPILER_LIBRARY"), *program = secure_getenv("MOE_COMPILER");
    f->is_library = true;
    if (library && *library) {
        if (is_file(library, R_OK) && snprintf(f->path, CACHE_PATH, "%s", library) < CACHE_PATH)
            return true;
        snprintf(why, size, "MOE_COMPILER_LIBRARY names '%.500s', which is not a file that can be read", library);
        return false;
    }
    if (program && *program) {
        f->is_library = false;
        if (find_program(program, f->path))
            return true;
        snprintf(why, size, "MOE_COMPILER names '%.500s', which is not a program that can be run", program);
        return false;
    }
    if (in_process(f, id) || beside(library_name, "lib", R_OK, f->path) || by_loader(f->path))
        return true;
    f->is_library = false;
    if (beside(program_name, "bin", X_OK, f->path) || in_path(program_name, f->path))
        return true;
    snprintf(why, size,
             "no compiler: libmoec.so is neither beside this program, in ../lib nor where the loader looks "
             "(MOE_COMPILER_LIBRARY names one), and there is no moec program in PATH (MOE_COMPILER names one). "
             "Images made before by moec need none");
    return false;
}

// What moec will take (targets/*/finish.c): given, else env, else the first that is there. "": none.
static void find_tool(const char *given, const char *env, const char *const *names, char to[CACHE_PATH])
{
    const char *want = given ? given : secure_getenv(env);
    to[0] = 0;
    if (want && *want) {
        if (!find_program(want, to))
            snprintf(to, CACHE_PATH, "%s", want); // moec will refuse it by name
        return;
    }
    for (; *names; names++)
        if (find_program(*names, to))
            return;
    to[0] = 0;
}

bool compiler_find(const char *ptxas, struct found_compiler *f, char *why, size_t size)
{
    static const char *const assemblers[] = { "ptxas", "/usr/local/cuda/bin/ptxas", NULL };
    static const char *const linkers[] = { "ld.lld-22", "/usr/lib/llvm-22/bin/ld.lld", "/opt/rocm/llvm/bin/ld.lld",
                                           NULL };
    char lld[CACHE_PATH], id[3][MOE_IDENTITY_MAX];
    if (!find_compiler(f, id[0], why, size))
        return false;
    find_tool(ptxas, "MOE_PTXAS", assemblers, f->ptxas);
    find_tool(NULL, "MOE_LLD", linkers, lld);
    if (f->path[0])
        moe_file_identity(f->path, id[0]);
    moe_file_identity(f->ptxas, id[1]);
    moe_file_identity(lld, id[2]);
    snprintf(f->identity, sizeof f->identity, "moec %s; ptxas %s; lld %s", id[0], id[1], id[2]);
    return true;
}

// ---- the library -------------------------------------------------------------------------------------------------

struct library {
#define MEMBER(result, name, params) result(*name) params;
    MOEC_SYMBOLS(MEMBER)
#undef MEMBER
};

static int say(char *why, size_t size, int status, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int say(char *why, size_t size, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return status;
}

static int open_library(const char *path, struct library *l, char *why, size_t size)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define SYMBOL(result, name, params) { "moec_" #name, offsetof(struct library, name) },
        MOEC_SYMBOLS(SYMBOL)
#undef SYMBOL
    };
    void *handle = dlopen(path[0] ? path : NULL, RTLD_NOW | RTLD_LOCAL); // never closed
    if (!handle)
        return say(why, size, MOE_ERR_LIBRARY, "the compiler cannot be opened: %.700s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *p = dlsym(handle, symbols[i].name);
        if (!p)
            return say(why, size, MOE_ERR_LIBRARY, "%.500s lacks %s: it is no libmoec", path, symbols[i].name);
        memcpy((char *)l + symbols[i].offset, &p, sizeof p);
    }
    return MOE_OK;
}

static int status_of(int compiler_status)
{
    switch (compiler_status) {
    case ABI_OK: return MOE_OK;
    case ABI_INPUT: return MOE_ERR_SOURCE;
    case ABI_USAGE: return MOE_ERR_ARGUMENT;
    case ABI_MISSING: return MOE_ERR_LIBRARY;
    default: return MOE_ERR_COMPILER;
    }
}

static int run_library(const struct found_compiler *f, const struct moe_compile *c, void **image, size_t *n, char *why,
                       size_t why_size)
{
    struct library l;
    int status = open_library(f->path, &l, why, why_size);
    if (status)
        return status;
    struct abi_options o = { .size = sizeof o,
                             .arch = c->arch,
                             .emit = ABI_IMAGE,
                             .bindings = c->bindings,
                             .nbindings = c->nbindings,
                             .kernel = c->kernel,
                             .ptxas = f->ptxas[0] ? f->ptxas : NULL,
                             .bitcode = c->bitcode,
                             .ptx_only = c->ptx || !f->ptxas[0] };
    struct abi_result *r = l.compile(c->source, c->source_size, c->name, &o);
    if (!r)
        return say(why, why_size, MOE_ERR_MEMORY, "out of memory");
    status = status_of(l.status(r));
    size_t at = 0;
    const struct abi_diagnostic *d;
    for (int i = 0; status && (d = l.diagnostic(r, i)) && at < why_size; i++)
        at += (size_t)snprintf(why + at, why_size - at, "%s", d->formatted);
    const void *code = status ? NULL : l.code(r, n);
    if (code && (*image = malloc(*n + 1)))
        memcpy(*image, code, *n);
    if (!status && !*image)
        status = say(why, why_size, MOE_ERR_MEMORY, "out of memory");
    l.free(r);
    return status;
}

// ---- the program -------------------------------------------------------------------------------------------------

struct job { // one run, in a folder of its own
    char dir[CACHE_PATH], source[256], image[CACHE_PATH + 16];
    char **argv;
    int argc;
};
static const char image_name[] = ".image.moe"; // in the folder

static bool add_arg(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool add_arg(struct job *j, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool ok = vasprintf(&j->argv[j->argc], fmt, ap) >= 0;
    va_end(ap);
    j->argc += ok;
    j->argv[j->argc] = NULL;
    return ok;
}

static bool make_args(struct job *j, const struct found_compiler *f, const struct moe_compile *c)
{
    j->argv = calloc(FIXED_ARGS + (size_t)c->nbindings + 1, sizeof *j->argv);
    bool ok = j->argv && add_arg(j, "%s", f->path) && add_arg(j, "--arch=%s", c->arch) && add_arg(j, "-o") &&
              add_arg(j, "%s", image_name);
    if (ok && c->kernel)
        ok = add_arg(j, "--kernel=%s", c->kernel);
    if (ok && c->bitcode)
        ok = add_arg(j, "--bitcode");
    if (ok && (c->ptx || !f->ptxas[0]))
        ok = add_arg(j, "--ptx-only");
    if (ok && f->ptxas[0])
        ok = add_arg(j, "--ptxas=%s", f->ptxas);
    for (int i = 0; ok && i < c->nbindings; i++) {
        const struct moe_binding *b = &c->bindings[i];
        ok = b->type ? add_arg(j, "-D%s=%s", b->name, b->type) : add_arg(j, "-D%s=%" PRId64, b->name, b->value);
    }
    return ok && add_arg(j, "./%s", j->source);
}

static bool write_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wbxe");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    return f ? fclose(f) == 0 && ok : false;
}

static bool read_file(const char *path, void **bytes, size_t *n)
{
    FILE *f = fopen(path, "rbe");
    struct stat st;
    *bytes = NULL;
    bool ok = f && fstat(fileno(f), &st) == 0 && st.st_size > 0 && (*bytes = malloc((size_t)st.st_size + 1));
    *n = ok ? fread(*bytes, 1, (size_t)st.st_size, f) : 0;
    ok = ok && *n == (size_t)st.st_size;
    if (f)
        fclose(f);
    if (!ok) {
        free(*bytes);
        *bytes = NULL;
    }
    return ok;
}

// Reads what the child says, its beginning kept, until it closes its end; false when the time is over.
static bool listen(int fd, char *said, size_t size)
{
    struct timespec t;
    char buf[4096];
    size_t at = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (time_t until = t.tv_sec + PROGRAM_SECONDS;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        clock_gettime(CLOCK_MONOTONIC, &t);
        if (t.tv_sec >= until)
            return false;
        if (poll(&p, 1, (int)(until - t.tv_sec) * 1000) <= 0)
            continue;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true;
        size_t keep = (size_t)n < size - 1 - at ? (size_t)n : size - 1 - at;
        memcpy(said + at, buf, keep);
        at += keep;
        said[at] = 0;
    }
}

// The child: nothing from standard input, all it says to `out`, in folder dir, with no signal blocked or ignored for us.
static int spawn(const struct job *j, int out, pid_t *pid)
{
    extern char **environ;
    posix_spawn_file_actions_t act;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&act);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&act, out, 1);
    posix_spawn_file_actions_adddup2(&act, out, 2);
    posix_spawn_file_actions_addchdir_np(&act, j->dir);
    int e = posix_spawn(pid, j->argv[0], &act, &attr, j->argv, environ);
    posix_spawn_file_actions_destroy(&act);
    posix_spawnattr_destroy(&attr);
    return e;
}

static int run_job(const struct job *j, char *why, size_t size)
{
    int fd[2], st = 0;
    pid_t pid, got;
    if (pipe2(fd, O_CLOEXEC))
        return say(why, size, MOE_ERR_COMPILER, "%.500s could not be started: %s", j->argv[0], strerror(errno));
    int e = spawn(j, fd[1], &pid);
    close(fd[1]);
    if (e) {
        close(fd[0]);
        return say(why, size, MOE_ERR_LIBRARY, "%.500s could not be started: %s", j->argv[0], strerror(e));
    }
    bool in_time = listen(fd[0], why, size);
    close(fd[0]);
    if (!in_time)
        kill(pid, SIGKILL);
    while ((got = waitpid(pid, &st, 0)) < 0 && errno == EINTR)
        ;
    if (!in_time)
        return say(why, size, MOE_ERR_COMPILER, "%.500s did not end within %d s", j->argv[0], PROGRAM_SECONDS);
    if (got < 0) // the host ignores SIGCHLD: the image will tell
        return MOE_OK;
    if (!WIFEXITED(st))
        return say(why, size, MOE_ERR_COMPILER, "%.500s was killed by signal %d", j->argv[0], WTERMSIG(st));
    if (WEXITSTATUS(st) && !why[0])
        say(why, size, 0, "%.500s ended with exit status %d", j->argv[0], WEXITSTATUS(st));
    return status_of(WEXITSTATUS(st));
}

static void name_files(struct job *j, const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    bool usable =
        *base && strlen(base) < sizeof j->source && strcmp(base, ".") && strcmp(base, "..") && strcmp(base, image_name);
    const char *tmp = secure_getenv("TMPDIR");
    snprintf(j->source, sizeof j->source, "%s", usable ? base : "source.dsl");
    snprintf(j->dir, sizeof j->dir, "%s/moe-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
}

static int run_program(const struct found_compiler *f, const struct moe_compile *c, void **image, size_t *n, char *why,
                       size_t why_size)
{
    struct job j = { .argc = 0 };
    char source[CACHE_PATH + 260];
    name_files(&j, c->name);
    if (!mkdtemp(j.dir))
        return say(why, why_size, MOE_ERR_COMPILER, "no folder %.500s: %s", j.dir, strerror(errno));
    snprintf(source, sizeof source, "%s/%s", j.dir, j.source);
    snprintf(j.image, sizeof j.image, "%s/%s", j.dir, image_name);
    int status = MOE_OK;
    if (!make_args(&j, f, c))
        status = say(why, why_size, MOE_ERR_MEMORY, "out of memory");
    else if (!write_file(source, c->source, c->source_size))
        status = say(why, why_size, MOE_ERR_COMPILER, "cannot write %.500s: %s", source, strerror(errno));
    else
        status = run_job(&j, why, why_size);
    if (!status && !read_file(j.image, image, n)) {
        size_t at = strlen(why);
        status = say(why + at, why_size - at, MOE_ERR_COMPILER, "%s%.500s left no image", at ? " " : "", f->path);
    }
    unlink(source);
    unlink(j.image);
    rmdir(j.dir);
    for (int i = 0; i < j.argc; i++)
        free(j.argv[i]);
    free(j.argv);
    return status;
}

int compiler_run(void *user, const struct moe_compile *c, void **image, size_t *n, char *why, size_t why_size)
{
    const struct found_compiler *f = user;
    *image = NULL;
    return f->is_library ? run_library(f, c, image, n, why, why_size) : run_program(f, c, image, n, why, why_size);
}
