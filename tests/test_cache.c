// The cache directory: what is written, what is believed, what is refused, what goes first, and locks.
#include "../runtime/jit.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "jit_dir.h"

static const struct cache_label label = { "kernels/moe.dsl", "gate_up", "sm_90a" };
enum { N = 1000 };
static unsigned char image[N], key[SHA256_BYTES];

static struct cache opened(void)
{
    struct cache c;
    char why[CACHE_WHY];
    cache_open(&c, NULL, why);
    if (c.dir < 0)
        fail_msg("%s", why);
    return c;
}

static bool put(const struct cache *c, int id, size_t n)
{
    char why[CACHE_WHY];
    key[0] = (unsigned char)id;
    return cache_put(c, key, &label, image, n, why);
}

static bool got(const struct cache *c, int id, size_t n)
{
    void *bytes;
    size_t m;
    key[0] = (unsigned char)id;
    bool ok = cache_get(c, key, &bytes, &m);
    if (ok && (m != n || memcmp(bytes, image, n)))
        fail_msg("entry %d: other bytes", id);
    free(bytes);
    return ok;
}

static char *entry_path(int id)
{
    static char path[256];
    char hex[SHA256_HEX];
    key[0] = (unsigned char)id;
    sha256_hex(key, hex);
    snprintf(path, sizeof path, "%s/%s", dir, hex);
    return path;
}

// ---- entries

static void round_trip(void **state)
{
    (void)state;
    struct stat st;
    struct cache c = opened();
    assert_false(got(&c, 1, N));
    assert_true(put(&c, 1, N));
    assert_true(put(&c, 2, 1));
    assert_true(put(&c, 3, 0));
    assert_true(got(&c, 1, N) && got(&c, 2, 1) && got(&c, 3, 0));
    assert_true(put(&c, 1, 10)); // replaces
    assert_true(got(&c, 1, 10));
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(entry_path(1), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 256 + 10);
    assert_int_equal(files_in(dir, ""), 3); // no temporary ones
    cache_close(&c);
}

static void rewrite(const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(entry_path(1), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

// Every byte flipped, every length cut, a byte more: refused; written again: believed.
static void damage(void **state)
{
    unsigned char file[256 + N + 1] = { 0 };
    struct cache c = opened();
    enum { M = 300, ALL = 256 + M };
    (void)state;
    assert_true(put(&c, 1, M));
    FILE *f = fopen(entry_path(1), "rb");
    assert_int_equal(fread(file, 1, sizeof file, f), ALL);
    fclose(f);
    for (int i = 0; i < ALL; i++)
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (unsigned char)(1 << bit);
            rewrite(file, ALL);
            if (got(&c, 1, M))
                fail_msg("byte %d, bit %d flipped: believed", i, bit);
            file[i] ^= (unsigned char)(1 << bit);
        }
    for (size_t n = 0; n <= ALL + 1; n++) {
        rewrite(file, n);
        if (got(&c, 1, M) != (n == ALL))
            fail_msg("%zu of %d bytes: wrong", n, ALL);
    }
    assert_true(put(&c, 1, M) && got(&c, 1, M));
    char from[256]; // an entry under another's name
    snprintf(from, sizeof from, "%s", entry_path(1));
    assert_int_equal(rename(from, entry_path(2)), 0);
    assert_false(got(&c, 2, M));
    cache_close(&c);
}

static void refused_entries(void **state)
{
    (void)state;
    char real[256];
    struct cache c = opened();
    assert_true(put(&c, 1, N));
    assert_int_equal(chmod(entry_path(1), 0620), 0);
    assert_false(got(&c, 1, N));
    chmod(entry_path(1), 0602);
    assert_false(got(&c, 1, N));
    chmod(entry_path(1), 0644); // readable by others is harmless
    assert_true(got(&c, 1, N));
    if (geteuid() == 0) {
        assert_int_equal(chown(entry_path(1), 65534, 65534), 0);
        assert_false(got(&c, 1, N));
        assert_int_equal(chown(entry_path(1), 0, 0), 0);
    }
    assert_true(got(&c, 1, N));
    snprintf(real, sizeof real, "%s/real", top);
    assert_int_equal(rename(entry_path(1), real), 0);
    assert_int_equal(symlink(real, entry_path(1)), 0);
    assert_false(got(&c, 1, N));
    assert_true(put(&c, 1, N)); // replaces the link, not what it points to
    assert_true(got(&c, 1, N));
    unlink(entry_path(1));
    assert_int_equal(mkfifo(entry_path(1), 0600), 0); // must not wait for a writer
    assert_false(got(&c, 1, N));
    unlink(entry_path(1));
    assert_int_equal(mkdir(entry_path(1), 0700), 0);
    assert_false(got(&c, 1, N));
    assert_false(put(&c, 1, N));
    assert_int_equal(files_in(dir, "tmp."), 0);
    cache_close(&c);
}

// ---- directories

static void is_refused(const char *words)
{
    struct cache c;
    char why[CACHE_WHY];
    cache_open(&c, NULL, why);
    assert_int_equal(c.dir, -1);
    if (words ? !strstr(why, words) : why[0] != 0)
        fail_msg("'%s', expected '%s'", why, words ? words : "");
}

static void refused_directories(void **state)
{
    (void)state;
    char other[256];
    snprintf(other, sizeof other, "%s/other", top);
    mkdir(other, 0700);
    assert_int_equal(symlink(other, dir), 0);
    is_refused("symbolic link");
    unlink(dir);
    close(open(dir, O_CREAT | O_WRONLY, 0600));
    is_refused("Not a directory");
    unlink(dir);
    mkdir(dir, 0700);
    chmod(dir, 0770);
    is_refused("others may write");
    chmod(dir, 0707);
    is_refused("others may write");
    chmod(dir, 0755);
    struct cache c = opened();
    cache_close(&c);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 65534, 65534), 0);
        is_refused("belongs to somebody else");
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    setenv("MOE_CACHE_DIR", "", 1);
    is_refused(NULL); // turned off: no complaint
}

static void where(void **state)
{
    (void)state;
    char text[256], want[256], home[256] = "";
    if (getenv("HOME"))
        snprintf(home, sizeof home, "%s", getenv("HOME"));
    unsetenv("MOE_CACHE_DIR");
    setenv("XDG_CACHE_HOME", top, 1);
    setenv("HOME", "/nowhere", 1);
    moe_cache_dir(text, sizeof text);
    snprintf(want, sizeof want, "%s/moe", top);
    assert_string_equal(text, want);
    setenv("XDG_CACHE_HOME", "relative", 1); // to be ignored, says its specification
    moe_cache_dir(text, sizeof text);
    assert_string_equal(text, "/nowhere/.cache/moe");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", top, 1);
    struct cache c = opened(); // made with what leads to it
    assert_true(put(&c, 1, N) && got(&c, 1, N));
    cache_close(&c);
    unsetenv("HOME");
    is_refused("nor HOME is set");
    moe_cache_dir(text, sizeof text);
    assert_string_equal(text, "");
    if (home[0])
        setenv("HOME", home, 1);
}

static bool cannot_write(void)
{
    struct cache c = { .max = 1 << 20 };
    char why[CACHE_WHY] = "";
    c.dir = open(dir, O_RDONLY | O_DIRECTORY);
    key[0] = 1;
    bool said = !cache_put(&c, key, &label, image, N, why) && strstr(why, "cannot be kept");
    return c.dir >= 0 && said && cache_lock(&c, key) == LOCK_NONE;
}

static void read_only(void **state)
{
    (void)state;
    mkdir(dir, 0555);
    assert_true(as_user(cannot_write));
}

// ---- a full disk

static bool limited(void)
{
    struct rlimit r = { 200, 200 };
    struct cache c = opened();
    char why[CACHE_WHY] = "";
    key[0] = 1;
    bool ok = setrlimit(RLIMIT_FSIZE, &r) == 0 && !cache_put(&c, key, &label, image, N, why);
    return ok && strstr(why, "File too large") && files_in(dir, "") == 0;
}

static bool full(void)
{
    enum { BIG = 200000 };
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", dir, "tmpfs", 0, "size=64k,mode=0700")) {
        fprintf(stderr, "full disk: SKIPPED: no mounting here\n");
        return true;
    }
    struct cache c = opened();
    char why[CACHE_WHY] = "", *big = calloc(1, BIG);
    key[0] = 1;
    bool ok = !cache_put(&c, key, &label, big, BIG, why) && strstr(why, "No space left");
    free(big);
    return ok && files_in(dir, "") == 0 && put(&c, 1, N) && got(&c, 1, N); // and it works again
}

static void no_space(void **state)
{
    (void)state;
    bool (*const cases[])(void) = { limited, full };
    mkdir(dir, 0700);
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(cases[i]() ? 0 : 1);
        if (!ended_well(pid))
            fail_msg("case %d", i);
    }
}

// ---- limits

static void set_age(int id, int seconds)
{
    struct timespec t[2] = { { .tv_sec = time(NULL) - seconds }, { .tv_sec = time(NULL) - seconds } };
    assert_int_equal(utimensat(AT_FDCWD, entry_path(id), t, 0), 0);
}

static void oldest_go(void **state)
{
    (void)state;
    setenv("MOE_CACHE_MAX", "4000", 1); // three entries of 1256
    struct cache c = opened();
    for (int i = 1; i <= 3; i++) {
        assert_true(put(&c, i, N));
        set_age(i, 1000 - 100 * i);
    }
    assert_true(got(&c, 1, N)); // used now: 2 is the oldest
    assert_true(put(&c, 4, N));
    assert_int_equal(files_in(dir, ""), 3);
    assert_false(got(&c, 2, N));
    assert_true(got(&c, 1, N) && got(&c, 3, N) && got(&c, 4, N));
    cache_close(&c);
    setenv("MOE_CACHE_MAX", "1000", 1); // none fits: nothing is written, nothing removed
    c = opened();
    assert_true(put(&c, 5, N));
    assert_int_equal(files_in(dir, ""), 3);
    cache_close(&c);
    setenv("MOE_CACHE_MAX", "rubbish", 1);
    c = opened();
    assert_int_equal(c.max, (int64_t)2 << 30);
    cache_close(&c);
}

static bool count(void *user, const struct moe_cache_entry *e)
{
    int *n = user;
    if (e->valid) {
        assert_string_equal(e->name, "kernels/moe.dsl");
        assert_string_equal(e->kernel, "gate_up");
        assert_string_equal(e->arch, "sm_90a");
        assert_int_equal(e->bytes, 256 + N);
        assert_int_equal(strlen(e->key), 64);
        n[1]++;
    }
    n[0]++;
    return n[0] < 10;
}

static int entries(int valid)
{
    int n[2] = { 0, 0 };
    char why[256];
    assert_int_equal(moe_cache_list(NULL, count, n, why, sizeof why), MOE_OK);
    assert_int_equal(n[1], valid);
    return n[0];
}

static void list_and_prune(void **state)
{
    (void)state;
    char why[256];
    int removed;
    uint64_t freed;
    assert_int_equal(entries(0), 0); // no directory yet
    assert_int_equal(moe_cache_prune(NULL, 0, 0, &removed, &freed, why, sizeof why), MOE_OK);
    struct cache c = opened();
    for (int i = 1; i <= 5; i++) {
        assert_true(put(&c, i, N));
        set_age(i, 100 * i);
    }
    assert_int_equal(truncate(entry_path(5), 700), 0);
    set_age(5, 500);
    assert_int_equal(entries(4), 5);
    assert_int_equal(moe_cache_prune(NULL, UINT64_MAX, 350, &removed, &freed, why, sizeof why), MOE_OK);
    assert_int_equal(removed, 2);
    assert_int_equal(freed, 256 + N + 700);
    assert_int_equal(moe_cache_prune(NULL, 2 * (256 + N), -1, &removed, &freed, why, sizeof why), MOE_OK);
    assert_int_equal(removed, 1);
    assert_true(got(&c, 1, N) && got(&c, 2, N) && !got(&c, 3, N));
    assert_int_equal(moe_cache_prune(NULL, 0, 0, &removed, &freed, why, sizeof why), MOE_OK);
    assert_int_equal(entries(0), 0);
    chmod(dir, 0777);
    assert_int_equal(moe_cache_list(NULL, count, NULL, why, sizeof why), MOE_ERR_ARGUMENT);
    assert_non_null(strstr(why, "others may write"));
    cache_close(&c);
}

// Temporary files and lock files of the dead go; those of the living stay.
static void what_is_left(void **state)
{
    (void)state;
    char old[256], new[256];
    struct timespec t[2] = { { .tv_sec = time(NULL) - 7200 }, { .tv_sec = time(NULL) - 7200 } };
    struct cache c = opened();
    snprintf(old, sizeof old, "%s/tmp.1.0123456789abcdef", dir);
    snprintf(new, sizeof new, "%s/tmp.2.0123456789abcdef", dir);
    close(open(old, O_CREAT | O_WRONLY, 0600));
    close(open(new, O_CREAT | O_WRONLY, 0600));
    utimensat(AT_FDCWD, old, t, 0);
    key[0] = 7;
    int held = cache_lock(&c, key);
    assert_true(held >= 0);
    futimens(held, t);
    key[0] = 8;
    int dead = cache_lock(&c, key);
    futimens(dead, t);
    close(dead); // as the kernel does for who dies
    assert_int_equal(files_in(dir, ".lock"), 2);
    assert_int_equal(entries(0), 0);
    assert_int_equal(files_in(dir, ".lock"), 1);
    assert_int_equal(files_in(dir, "tmp."), 1);
    key[0] = 7;
    assert_int_equal(cache_lock(&c, key), LOCK_BUSY);
    cache_unlock(&c, key, held);
    assert_int_equal(files_in(dir, ".lock"), 0);
    cache_close(&c);
}

// ---- locks

static void lock_of_the_dead(void **state)
{
    (void)state;
    struct cache c = opened();
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    key[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        byte = cache_lock(&c, key) >= 0;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(cache_lock(&c, key), LOCK_BUSY);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    int fd = cache_lock(&c, key);
    assert_true(fd >= 0);
    cache_unlock(&c, key, fd);
    close(ready[0]);
    close(ready[1]);
    cache_close(&c);
}

static void lock_through_link(void **state)
{
    (void)state;
    char path[256 + 8];
    struct cache c = opened();
    key[0] = 1;
    snprintf(path, sizeof path, "%s.lock", entry_path(1));
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(cache_lock(&c, key), LOCK_NONE);
    cache_close(&c);
}

int main(void)
{
    for (int i = 0; i < N; i++)
        image[i] = (unsigned char)(i * 31 + i / 256);
#define TEST(f) cmocka_unit_test_setup_teardown(f, jit_dir_new, jit_dir_free)
    const struct CMUnitTest tests[] = {
        TEST(round_trip),     TEST(damage),       TEST(refused_entries),  TEST(refused_directories),
        TEST(where),          TEST(read_only),    TEST(no_space),         TEST(oldest_go),
        TEST(list_and_prune), TEST(what_is_left), TEST(lock_of_the_dead), TEST(lock_through_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
