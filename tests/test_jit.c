// moe_jit(): one compile a key among threads and processes, what is in a key, compilers that die or err, and the compilers
// that are found: libmoec.so and moec of the build (the folder above this program's).
#include "../compiler/moec.h"
#include "../runtime/jit.h"
#include "../runtime/moec_abi.h"
#include "image_sample.h"

#include <libgen.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "jit_dir.h"

static const char source[] = "// y = 2 x\n"
                             "kernel twice(x: f32[N], y: out f32[N]) {\n"
                             "  parallel i in tile(N) {\n"
                             "    y[i] = x[i] * 2.0\n"
                             "  }\n"
                             "}\n";
enum how { WELL, FAILS, SILENT, NOTHING, GARBAGE, OTHER_ARCH, HANGS, REAL };
static struct shared { // among processes
    atomic_int compiles, hanging, go;
} * shared;
static char build[512]; // the folder of moec and libmoec.so

// ---- a compiler that counts

static int fake(void *user, const struct moe_compile *c, void **image, size_t *n, char *why, size_t why_size)
{
    enum how how = *(enum how *)user;
    char err[IMAGE_ERR_MAX];
    struct image_desc d = sample_image;
    atomic_fetch_add(&shared->compiles, 1);
    d.arch = how == OTHER_ARCH ? "sm_80" : c->arch;
    if (how == HANGS) {
        atomic_fetch_add(&shared->hanging, 1);
        while (!atomic_load(&shared->go))
            usleep(1000);
    }
    usleep(20000); // time for others to come
    *image = NULL;
    if (how == FAILS)
        snprintf(why, why_size, "moe.dsl:3:4: error: no\n");
    if (how == FAILS || how == SILENT)
        return how == FAILS ? MOE_ERR_SOURCE : MOE_ERR_COMPILER;
    if (how == NOTHING)
        return MOE_OK;
    *n = how == GARBAGE ? 5000 : moe_image_size(&d);
    *image = calloc(1, *n);
    if (how == GARBAGE)
        return MOE_OK;
    return moe_image_write(&d, *image, *n, err) ? MOE_OK : MOE_ERR_COMPILER;
}

// The real one, linked into this program.
static int real(void *user, const struct moe_compile *c, void **image, size_t *n, char *why, size_t why_size)
{
    struct moec_options o = {
        .size = sizeof o, .arch = c->arch, .emit = MOEC_IMAGE, .ptx_only = c->ptx, .bitcode = c->bitcode
    };
    (void)user;
    atomic_fetch_add(&shared->compiles, 1);
    struct moec_result *r = moec_compile(c->source, c->source_size, c->name, &o);
    const void *code = r ? moec_code(r, n) : NULL;
    *image = code ? malloc(*n) : NULL;
    if (*image)
        memcpy(*image, code, *n);
    else
        snprintf(why, why_size, "the compiler failed");
    moec_free(r);
    return *image ? MOE_OK : MOE_ERR_SOURCE;
}

static struct moe_compile request(const char *text)
{
    return (struct moe_compile){ .size = sizeof(struct moe_compile),
                                 .source = text,
                                 .source_size = strlen(text),
                                 .name = "a.dsl",
                                 .arch = "sm_90a" };
}

static char why[8192];
static enum moe_jit_origin from;

static struct moe_jit_options options(enum how *how)
{
    why[0] = 0;
    from = 0;
    return (struct moe_jit_options){ .size = sizeof(struct moe_jit_options),
                                     .compile = *how == REAL ? real : fake,
                                     .user = how,
                                     .identity = "fake 1",
                                     .from = &from,
                                     .why = why,
                                     .why_size = sizeof why };
}

static int once(const struct moe_compile *c, const struct moe_jit_options *o)
{
    void *bytes;
    size_t n;
    int status = moe_jit_bytes(NULL, c, o, &bytes, &n);
    if (!status) {
        char err[IMAGE_ERR_MAX];
        if (!moe_image_check(bytes, n, err))
            fail_msg("%s", err);
    } else {
        assert_null(bytes);
    }
    free(bytes);
    return status;
}

static int ask(const char *text, enum how how)
{
    struct moe_compile c = request(text);
    struct moe_jit_options o = options(&how);
    return once(&c, &o);
}

static int setup(void **state)
{
    moe_jit_forget();
    moe_on_warning(NULL, NULL);
    atomic_store(&shared->compiles, 0);
    atomic_store(&shared->hanging, 0);
    atomic_store(&shared->go, 0);
    unsetenv("MOE_COMPILER");
    unsetenv("MOE_COMPILER_LIBRARY");
    return jit_dir_new(state);
}

#define COMPILES(want) assert_int_equal(atomic_load(&shared->compiles), want)

// ---- once

static void memory_then_disk(void **state)
{
    (void)state;
    assert_int_equal(ask("a", WELL), MOE_OK);
    assert_int_equal(from, MOE_FROM_COMPILER);
    assert_int_equal(ask("a", WELL), MOE_OK);
    assert_int_equal(from, MOE_FROM_MEMORY);
    moe_jit_forget();
    assert_int_equal(ask("a", WELL), MOE_OK);
    assert_int_equal(from, MOE_FROM_DISK);
    COMPILES(1);
    assert_int_equal(files_in(dir, ""), 1); // no lock is left
    enum how how = WELL;
    struct moe_compile c = request("b");
    struct moe_jit_options o = options(&how);
    o.cache_dir = "";
    assert_int_equal(once(&c, &o), MOE_OK);
    assert_int_equal(files_in(dir, ""), 1);
}

// 64 at once, each a process of its own: one compiles.
static void processes(void **state)
{
    enum { P = 64 };
    pid_t pid[P];
    (void)state;
    for (int i = 0; i < P; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            while (!atomic_load(&shared->go))
                usleep(100);
            _exit(ask("p", WELL) ? 1 : 0);
        }
    }
    atomic_store(&shared->go, 1);
    for (int i = 0; i < P; i++)
        assert_true(ended_well(pid[i]));
    COMPILES(1);
    assert_int_equal(files_in(dir, ""), 1);
}

struct asked {
    enum how how;
    int status;
    char text[64];
};
static void *thread(void *p)
{
    struct asked *a = p;
    struct moe_compile c = request("t");
    struct moe_jit_options o = { .size = sizeof o, .compile = fake, .user = &a->how, .identity = "fake 1" };
    o.why = a->text;
    o.why_size = sizeof a->text;
    a->status = once(&c, &o);
    return NULL;
}

static void ask_by_threads(enum how how, int status)
{
    enum { T = 16 };
    pthread_t t[T];
    struct asked a[T];
    for (int i = 0; i < T; i++) {
        a[i] = (struct asked){ .how = how };
        assert_int_equal(pthread_create(&t[i], NULL, thread, &a[i]), 0);
    }
    for (int i = 0; i < T; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(a[i].status, status);
        assert_string_equal(a[i].text, status ? "moe.dsl:3:4: error: no\n" : "");
    }
}

static void threads(void **state)
{
    (void)state;
    setenv("MOE_CACHE_DIR", "", 1);
    ask_by_threads(WELL, MOE_OK);
    COMPILES(1);
    moe_jit_forget();
    atomic_store(&shared->compiles, 0);
    ask_by_threads(FAILS, MOE_ERR_SOURCE); // those who came while it compiled share the failure
    assert_true(atomic_load(&shared->compiles) < 16);
}

// ---- the key

static void in_the_key(void **state)
{
    struct moe_binding b[] = { { "H", 64, NULL }, { "act", 0, "f16" } }, swapped[] = { b[1], b[0] };
    struct moe_binding other[] = { { "H", 65, NULL }, { "act", 0, "f16" } };
    struct moe_binding type[] = { { "H", 64, NULL }, { "act", 0, "bf16" } };
    enum how how = WELL;
    struct moe_jit_options o = options(&how);
    struct moe_compile c = request("k"), v[9];
    int n = 0, made = 1;
    (void)state;
    c.bindings = b;
    c.nbindings = 2;
    assert_int_equal(once(&c, &o), MOE_OK);
    struct moe_compile same = c;
    same.bindings = swapped;
    same.name = "elsewhere.dsl";
    assert_int_equal(once(&same, &o), MOE_OK);
    COMPILES(1);
    for (int i = 0; i < 9; i++)
        v[i] = c;
    v[n++].source = "l";
    v[n++].source_size = 0;
    v[n++].bindings = other;
    v[n++].bindings = type;
    v[n++].nbindings = 1;
    v[n++].kernel = "down";
    v[n++].arch = "sm_100a";
    v[n++].ptx = true;
    v[n++].bitcode = true;
    for (int i = 0; i < n; i++) {
        assert_int_equal(once(&v[i], &o), MOE_OK);
        if (atomic_load(&shared->compiles) != ++made)
            fail_msg("variant %d is not in the key", i);
    }
    same = v[8]; // bitcode quotes the name
    same.name = "elsewhere.dsl";
    assert_int_equal(once(&same, &o), MOE_OK);
    COMPILES(++made);
    o.identity = "fake 2";
    assert_int_equal(once(&c, &o), MOE_OK);
    COMPILES(++made);
    assert_int_equal(files_in(dir, ""), made);
}

static void wrong_calls(void **state)
{
    enum how how = WELL;
    struct moe_jit_options o = options(&how);
    struct moe_compile c = request("w");
    (void)state;
    c.size = 0;
    assert_int_equal(once(&c, &o), MOE_ERR_ARGUMENT);
    c = request("w");
    c.arch = NULL;
    assert_int_equal(once(&c, &o), MOE_ERR_ARGUMENT);
    assert_non_null(strstr(why, "neither a device nor an arch"));
    c = request("w");
    c.nbindings = 1;
    assert_int_equal(once(&c, &o), MOE_ERR_ARGUMENT);
    c.nbindings = 0;
    o.identity = "";
    assert_int_equal(once(&c, &o), MOE_ERR_ARGUMENT);
    COMPILES(0);
}

// ---- compilers that err

static void bad_compilers(void **state)
{
    static const struct {
        enum how how;
        int status;
        const char *words;
    } cases[] = {
        { FAILS, MOE_ERR_SOURCE, "moe.dsl:3:4: error: no" },
        { SILENT, MOE_ERR_COMPILER, "did not say why" },
        { NOTHING, MOE_ERR_IMAGE, "gave nothing" },
        { GARBAGE, MOE_ERR_IMAGE, "is no image: " },
        { OTHER_ARCH, MOE_ERR_ARCH, "gave an image for sm_80, asked for was sm_90a" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int again = 0; again < 2; again++) { // a failure is not kept
            assert_int_equal(ask("e", cases[i].how), cases[i].status);
            if (!strstr(why, cases[i].words))
                fail_msg("'%s', expected '%s'", why, cases[i].words);
        }
        COMPILES(2 * (int)i + 2);
    }
    assert_int_equal(files_in(dir, ""), 0);
    assert_int_equal(ask("e", WELL), MOE_OK);
}

// ---- those who die, and those who hang

static pid_t hanging_child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(ask("h", HANGS) ? 1 : 0);
    while (!atomic_load(&shared->hanging))
        usleep(1000);
    return pid;
}

static void killed(void **state)
{
    enum { P = 8 };
    pid_t pid[P], victim = hanging_child();
    (void)state;
    for (int i = 0; i < P; i++)
        if ((pid[i] = fork()) == 0)
            _exit(ask("h", WELL) ? 1 : 0);
    usleep(100000);
    COMPILES(1); // they wait
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    for (int i = 0; i < P; i++)
        assert_true(ended_well(pid[i]));
    COMPILES(2);
    assert_int_equal(files_in(dir, ""), 1);
}

static void time_over(void **state)
{
    pid_t pid = hanging_child();
    enum how how = WELL;
    struct moe_compile c = request("h");
    struct moe_jit_options o = options(&how);
    (void)state;
    o.lock_ms = 50;
    assert_int_equal(once(&c, &o), MOE_OK);
    COMPILES(2);
    assert_int_equal(from, MOE_FROM_COMPILER);
    atomic_store(&shared->go, 1);
    assert_true(ended_well(pid));
}

// A child of a process whose other thread is compiling: neither waits for a thread that is not there, nor keeps its lock.
static void fork_meanwhile(void **state)
{
    struct asked a = { .how = HANGS };
    pthread_t t;
    (void)state;
    assert_int_equal(ask("before", WELL), MOE_OK);
    assert_int_equal(pthread_create(&t, NULL, thread, &a), 0);
    while (!atomic_load(&shared->hanging))
        usleep(1000);
    pid_t pid = fork();
    if (pid == 0) {
        enum how how = WELL;
        struct moe_compile c = request("t");
        struct moe_jit_options o = options(&how);
        o.lock_ms = 50;
        alarm(20);
        int bad = once(&c, &o) || from != MOE_FROM_COMPILER || ask("before", WELL) || from != MOE_FROM_MEMORY;
        _exit(bad);
    }
    assert_true(ended_well(pid));
    atomic_store(&shared->go, 1);
    pthread_join(t, NULL);
    assert_int_equal(a.status, MOE_OK);
}

// ---- disks that cannot be used

struct heard {
    atomic_int n;
    char text[1024];
};
static void hear(void *user, const char *text)
{
    struct heard *h = user;
    if (atomic_fetch_add(&h->n, 1) == 0)
        snprintf(h->text, sizeof h->text, "%s", text);
}

// Works all the same, out of memory, and says so once.
static bool degrades(const char *words)
{
    struct heard h = { .n = 0 };
    moe_on_warning(hear, &h);
    int before = atomic_load(&shared->compiles);
    bool ok = ask("d", WELL) == MOE_OK && ask("e", WELL) == MOE_OK && ask("d", WELL) == MOE_OK &&
              from == MOE_FROM_MEMORY && atomic_load(&shared->compiles) == before + 2 && atomic_load(&h.n) == 1 &&
              strstr(h.text, words) && !strchr(h.text, '\n');
    if (!ok)
        fprintf(stderr, "%d warnings, '%s', expected '%s'\n", atomic_load(&h.n), h.text, words);
    moe_on_warning(NULL, NULL);
    moe_jit_forget();
    return ok;
}

static bool degrades_read_only(void)
{
    return degrades("Permission denied");
}

static bool degrades_unmade(void)
{
    setenv("MOE_CACHE_DIR", "/proc/none/moe", 1);
    return degrades("/proc/none/moe");
}

static void bad_disks(void **state)
{
    char home[256] = "";
    (void)state;
    if (getenv("HOME"))
        snprintf(home, sizeof home, "%s", getenv("HOME"));
    close(open(dir, O_CREAT | O_WRONLY, 0600));
    assert_true(degrades("Not a directory"));
    unlink(dir);
    assert_int_equal(symlink(top, dir), 0);
    assert_true(degrades("symbolic link"));
    unlink(dir);
    mkdir(dir, 0777);
    chmod(dir, 0777);
    assert_true(degrades("others may write"));
    rmdir(dir);
    assert_true(degrades_unmade());
    unsetenv("MOE_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_true(degrades("nor HOME is set"));
    if (home[0])
        setenv("HOME", home, 1);
    setenv("MOE_CACHE_DIR", dir, 1);
    mkdir(dir, 0700);
    if (geteuid() == 0)
        assert_int_equal(chown(dir, 65534, 65534), 0);
    chmod(dir, 0500);
    assert_true(as_user(degrades_read_only));
    if (geteuid() == 0)
        assert_true(degrades("belongs to somebody else"));
    setenv("MOE_CACHE_DIR", "", 1);
    struct heard h = { .n = 0 };
    moe_on_warning(hear, &h);
    assert_int_equal(ask("off", WELL), MOE_OK);
    assert_int_equal(h.n, 0);
}

static void damaged_entry(void **state)
{
    (void)state;
    char path[512];
    assert_int_equal(ask("a", WELL), MOE_OK);
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (strlen(e->d_name) == 64)
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
    for (int i = 0; i < 2; i++) {
        moe_jit_forget();
        assert_int_equal(truncate(path, 300), 0);
        assert_int_equal(ask("a", WELL), MOE_OK);
        assert_int_equal(from, MOE_FROM_COMPILER);
        moe_jit_forget();
        assert_int_equal(ask("a", WELL), MOE_OK);
        assert_int_equal(from, MOE_FROM_DISK);
    }
}

// ---- devices

static void simulated(void **state)
{
    struct moe_device *d;
    struct moe_image *image;
    char text[512];
    enum how how = REAL;
    struct moe_compile c = request(source);
    struct moe_jit_options o = options(&how);
    (void)state;
    if (moe_open("sim:sm_80", &d, text, sizeof text))
        fail_msg("%s", text);
    c.arch = NULL;
    for (int i = 0; i < 3; i++) {
        if (moe_jit(d, &c, &o, &image))
            fail_msg("%s", moe_error(d, text, sizeof text));
        assert_string_equal(moe_describe(image)->arch, "sm_80");
        assert_non_null(moe_find(image, "twice", NULL));
        assert_int_equal(from, i == 0 ? MOE_FROM_COMPILER : i == 1 ? MOE_FROM_MEMORY : MOE_FROM_DISK);
        if (i == 1)
            moe_jit_forget(); // loaded images stay
        assert_int_equal(moe_unload(image), MOE_OK);
    }
    COMPILES(1);
    c.arch = "sm_90a";
    assert_int_equal(moe_jit(d, &c, &o, &image), MOE_ERR_ARCH);
    assert_null(image);
    c = request("kernel");
    c.arch = NULL;
    assert_int_equal(moe_jit(d, &c, &o, &image), MOE_ERR_SOURCE);
    assert_string_equal(moe_error(d, text, sizeof text), "the compiler failed");
    moe_close(d);
}

// ---- compilers that are found

static int found(const char *text, const char *name)
{
    struct moe_compile c = request(text);
    struct moe_jit_options o = { .size = sizeof o, .from = &from, .why = why, .why_size = sizeof why };
    why[0] = 0;
    c.name = name;
    c.ptx = c.bitcode = true;
    moe_jit_forget();
    return once(&c, &o);
}

static void check_found(void)
{
    assert_int_equal(found(source, "dir/twice.dsl"), MOE_OK);
    assert_int_equal(from, MOE_FROM_COMPILER);
    assert_int_equal(found(source, "dir/twice.dsl"), MOE_OK);
    assert_int_equal(from, MOE_FROM_DISK);
    assert_int_equal(found("kernel k(", "dir/bad.dsl"), MOE_ERR_SOURCE);
    if (!strstr(why, "bad.dsl:1:10: error:"))
        fail_msg("%s", why);
    assert_int_equal(found(source, "--help"), MOE_OK); // a name, whatever it looks like
}

static void by_name(void **state)
{
    char path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/libmoec.so", build);
    setenv("MOE_COMPILER_LIBRARY", path, 1);
    check_found();
    unsetenv("MOE_COMPILER_LIBRARY");
    snprintf(path, sizeof path, "%s/moec", build);
    setenv("MOE_COMPILER", path, 1);
    setenv("TMPDIR", top, 1);
    check_found(); // the first is compiled again: another compiler
    unsetenv("TMPDIR");
    assert_int_equal(files_in(top, "moe-"), 0); // no folder is left
    setenv("MOE_COMPILER", "/nowhere/moec", 1);
    assert_int_equal(found(source, "a.dsl"), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "MOE_COMPILER names '/nowhere/moec'"));
    setenv("MOE_COMPILER_LIBRARY", "/nowhere/libmoec.so", 1);
    assert_int_equal(found(source, "a.dsl"), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "MOE_COMPILER_LIBRARY names '/nowhere/libmoec.so'"));
    setenv("MOE_COMPILER_LIBRARY", "/proc/self/exe", 1); // a file, but no library
    assert_int_equal(found(source, "b.dsl"), MOE_ERR_LIBRARY);
    assert_true(why[0]);
}

// A program in moec's place: what it is started with, and what becomes of its ends.
static void by_program(void **state)
{
    static const struct {
        const char *script;
        int status;
        const char *words;
    } cases[] = {
        { "echo \"$@\"; exit 1", MOE_ERR_SOURCE,
          "--arch=sm_90a -o .image.moe --kernel=k --bitcode --ptx-only --ptxas=/a -Dw=7 -Dact=f16 ./a b.dsl\n" },
        { "cat 'a b.dsl'; exit 2", MOE_ERR_ARGUMENT, "the source" },
        { "exit 3", MOE_ERR_LIBRARY, "ended with exit status 3" },
        { "kill -9 $$", MOE_ERR_COMPILER, "killed by signal 9" },
        { "exit 0", MOE_ERR_COMPILER, "left no image" },
        { "echo odd > .image.moe", MOE_ERR_IMAGE, "is no image" },
    };
    static const struct moe_binding b[] = { { "w", 7, NULL }, { "act", 0, "f16" } };
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/moec", top);
    setenv("MOE_COMPILER", path, 1);
    setenv("TMPDIR", top, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen(path, "we");
        fprintf(f, "#!/bin/sh\n%s\n", cases[i].script);
        fclose(f);
        chmod(path, 0700);
        struct moe_compile c = request("the source");
        struct moe_jit_options o = { .size = sizeof o, .ptxas = "/a", .why = why, .why_size = sizeof why };
        c.name = "x/a b.dsl";
        c.kernel = "k";
        c.bindings = b;
        c.nbindings = 2;
        c.bitcode = c.ptx = true;
        why[0] = 0;
        assert_int_equal(once(&c, &o), cases[i].status);
        if (!strstr(why, cases[i].words))
            fail_msg("'%s', expected '%s'", why, cases[i].words);
    }
    unsetenv("TMPDIR");
    assert_int_equal(files_in(top, "moe-"), 0); // no folder is left
}

static void none(void **state)
{
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(found(source, "a.dsl"), MOE_ERR_LIBRARY);
    assert_non_null(strstr(why, "MOE_COMPILER_LIBRARY names one"));
    assert_non_null(strstr(why, "MOE_COMPILER names one"));
    setenv("PATH", build, 1);
    int status = found(source, "a.dsl");
    setenv("PATH", path, 1);
    assert_int_equal(status, build[0] == '/' ? MOE_OK : MOE_ERR_LIBRARY);
}

// ---- the compiler's interface, written twice

#define SAME(a, b, member) \
    _Static_assert(offsetof(struct a, member) == offsetof(struct b, member) && \
                       sizeof(((struct a *)0)->member) == sizeof(((struct b *)0)->member), \
                   #member)
SAME(abi_options, moec_options, size);
SAME(abi_options, moec_options, arch);
SAME(abi_options, moec_options, emit);
SAME(abi_options, moec_options, bindings);
SAME(abi_options, moec_options, nbindings);
SAME(abi_options, moec_options, kernel);
SAME(abi_options, moec_options, ptxas);
SAME(abi_options, moec_options, lld);
SAME(abi_options, moec_options, stop_after);
SAME(abi_options, moec_options, skip);
SAME(abi_options, moec_options, no_verify);
SAME(abi_options, moec_options, bitcode);
SAME(abi_options, moec_options, ptx_only);
_Static_assert(sizeof(struct abi_options) <= offsetof(struct moec_options, dump), "nothing past ptx_only");
SAME(moe_binding, moec_binding, name);
SAME(moe_binding, moec_binding, value);
SAME(moe_binding, moec_binding, type);
_Static_assert(sizeof(struct moe_binding) == sizeof(struct moec_binding), "moe_binding");
SAME(abi_diagnostic, moec_diagnostic, severity);
SAME(abi_diagnostic, moec_diagnostic, line);
SAME(abi_diagnostic, moec_diagnostic, column);
SAME(abi_diagnostic, moec_diagnostic, text);
SAME(abi_diagnostic, moec_diagnostic, formatted);
_Static_assert(ABI_OK == (int)MOEC_OK && ABI_INPUT == (int)MOEC_INPUT && ABI_USAGE == (int)MOEC_USAGE &&
                   ABI_MISSING == (int)MOEC_MISSING && ABI_INTERNAL == (int)MOEC_INTERNAL &&
                   ABI_IMAGE == (int)MOEC_IMAGE,
               "numbers");

int main(int argc, char **argv)
{
    char *self = realpath(argv[0], NULL);
    snprintf(build, sizeof build, "%s", argc && self ? dirname(dirname(self)) : ".");
    free(self);
    char path[600];
    snprintf(path, sizeof path, "%s/libmoesim.so", build);
    setenv("MOE_SIM_LIBRARY", path, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, jit_dir_free)
    const struct CMUnitTest tests[] = {
        TEST(memory_then_disk), TEST(processes), TEST(threads),   TEST(in_the_key),     TEST(wrong_calls),
        TEST(bad_compilers),    TEST(killed),    TEST(time_over), TEST(fork_meanwhile), TEST(bad_disks),
        TEST(damaged_entry),    TEST(simulated), TEST(by_name),   TEST(by_program),     TEST(none),
    };
    return shared == MAP_FAILED || cmocka_run_group_tests(tests, NULL, NULL);
}
