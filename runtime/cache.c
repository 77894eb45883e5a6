// Compiled images on the disk: one file a key, named by its 64 digits. moejit.h, "THE DISK", says what holds.
//
// A file is written under a temporary name, synchronised, and renamed: readers see all of it or nothing. All names are opened
// relative to one directory descriptor and never through a symbolic link.
//
// The bytes of an entry (integers little-endian):
//    0 char[8] "MOEJIT\r\n"   8 u32 version   12 u32 bytes of this header   16 key   48 u64 bytes of the image   56 u64 0
//   64 arch   80 kernel   152 name of the source: text with NULs up to the next   224 SHA-256 of bytes 0..223 and the image
//  256 the image
#include "hash.h"
#include "jit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ENTRY_VERSION = 2,
    AT_VERSION = 8,
    AT_HEADER = 12,
    AT_KEY = 16,
    AT_SIZE = 48,
    AT_ARCH = 64,
    AT_KERNEL = 80,
    AT_NAME = 152,
    AT_DIGEST = 224,
    HEADER = 256,
    HEX = SHA256_HEX - 1,
    STALE_S = 3600, // a temporary file of that age has no writer any more
};
static const char magic[8] = "MOEJIT\r\n", temporary[] = "tmp.", lock_suffix[] = ".lock";
static const uint64_t default_max = (uint64_t)2 << 30;

static void put_le(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get_le(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

// ---- the directory -----------------------------------------------------------------------------------------------

// false: why. path "": the disk is turned off.
static bool find_dir(const char *named, char path[CACHE_PATH], char why[CACHE_WHY])
{
    const char *own = named ? named : secure_getenv("MOE_CACHE_DIR");
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n;
    if (own)
        n = snprintf(path, CACHE_PATH, "%s", own);
    else if (xdg && xdg[0] == '/') // the XDG specification: others are to be ignored
        n = snprintf(path, CACHE_PATH, "%s/moe", xdg);
    else if (home && home[0] == '/')
        n = snprintf(path, CACHE_PATH, "%s/.cache/moe", home);
    else {
        snprintf(why, CACHE_WHY, "no cache directory: neither MOE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set");
        return false;
    }
    if (n < CACHE_PATH)
        return true;
    snprintf(why, CACHE_WHY, "the name of the cache directory is too long");
    return false;
}

static void make_dirs(const char *path)
{
    char part[CACHE_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(part, 0700); // what fails comes out when the whole is opened
            *p = '/';
        }
    mkdir(part, 0700);
}

static bool private(const struct stat *st)
{
    return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

// A descriptor; -1: why, errno from the system or 0.
static int open_dir(const char *path, char why[CACHE_WHY])
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
        int was = fd < 0 && !link ? errno : ELOOP;
        snprintf(why, CACHE_WHY, "cache directory %.300s: %s", path, link ? "is a symbolic link" : strerror(was));
        errno = was;
        return -1;
    }
    if (fstat(fd, &st) == 0 && private(&st))
        return fd;
    snprintf(why, CACHE_WHY, "cache directory %.300s: belongs to somebody else, or others may write to it", path);
    close(fd);
    errno = 0;
    return -1;
}

void cache_open(struct cache *c, const char *named, char why[CACHE_WHY])
{
    char path[CACHE_PATH];
    const char *max = secure_getenv("MOE_CACHE_MAX");
    char *end = NULL;
    *c = (struct cache){ .dir = -1, .max = default_max };
    why[0] = 0;
    if (max && *max >= '0' && *max <= '9') {
        errno = 0;
        uint64_t v = strtoull(max, &end, 10);
        c->max = errno || *end ? default_max : v;
    }
    if (!find_dir(named, path, why) || !path[0])
        return;
    c->dir = open_dir(path, why);
    if (c->dir < 0 && errno == ENOENT) {
        make_dirs(path);
        c->dir = open_dir(path, why);
    }
    if (c->dir >= 0)
        why[0] = 0;
}

void cache_close(struct cache *c)
{
    if (c->dir >= 0)
        close(c->dir);
    c->dir = -1;
}

int moe_cache_dir(char *text, size_t size)
{
    char path[CACHE_PATH], why[CACHE_WHY];
    bool ok = find_dir(NULL, path, why);
    snprintf(text, size, "%s", ok ? path : "");
    return MOE_OK;
}

// ---- reading -----------------------------------------------------------------------------------------------------

static bool read_all(int fd, void *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = read(fd, (char *)to + at, n - at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        at += (size_t)r;
    }
    return true;
}

// A descriptor of a plain file that is ours alone; its bytes. -1: none.
static int open_entry(const struct cache *c, const char *name, struct stat *st)
{
    int fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, st) == 0 && S_ISREG(st->st_mode) && private(st) && st->st_size >= HEADER)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool header_fits(const unsigned char h[HEADER], const char *hex, uint64_t file_bytes)
{
    char key[SHA256_HEX];
    sha256_hex(h + AT_KEY, key);
    return !memcmp(h, magic, sizeof magic) && get_le(h + AT_VERSION, 4) == ENTRY_VERSION &&
           get_le(h + AT_HEADER, 4) == HEADER && !strcmp(key, hex) && get_le(h + AT_SIZE, 8) == file_bytes - HEADER;
}

static void digest(const unsigned char h[HEADER], const void *bytes, size_t n, unsigned char out[SHA256_BYTES])
{
    unsigned char sum[8];
    struct sha256 s;
    put_le(sum, hash_words(HASH_START, bytes, n), 8); // ten times as fast, and it need not withstand malice
    sha256_init(&s);
    sha256_put(&s, h, AT_DIGEST);
    sha256_put(&s, sum, sizeof sum);
    sha256_end(&s, out);
}

bool cache_get(const struct cache *c, const unsigned char key[SHA256_BYTES], void **bytes, size_t *n)
{
    unsigned char h[HEADER], sum[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct stat st;
    sha256_hex(key, hex);
    *bytes = NULL;
    int fd = c->dir < 0 ? -1 : open_entry(c, hex, &st);
    if (fd < 0)
        return false;
    *n = (size_t)st.st_size - HEADER;
    bool ok = read_all(fd, h, HEADER) && header_fits(h, hex, (uint64_t)st.st_size) && (*bytes = malloc(*n + 1));
    if (ok && (ok = read_all(fd, *bytes, *n))) {
        digest(h, *bytes, *n, sum);
        ok = !memcmp(sum, h + AT_DIGEST, SHA256_BYTES);
    }
    if (ok)
        futimens(fd, NULL); // used now; a read-only disk does not keep it
    close(fd);
    if (!ok) {
        free(*bytes);
        *bytes = NULL;
    }
    return ok;
}

// ---- the directory's contents --------------------------------------------------------------------------------------

struct found { // a file of the directory that looks like an entry
    char name[SHA256_HEX];
    uint64_t bytes;
    struct timespec used;
};
struct listing {
    struct found *f;
    size_t n, cap;
    uint64_t bytes;
};

static bool is_hex(const char *s, size_t n)
{
    return strspn(s, "0123456789abcdef") >= n;
}

static bool listing_add(struct listing *l, const char *name, const struct stat *st)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct found *more = realloc(l->f, cap * sizeof *more);
        if (!more)
            return false;
        l->f = more;
        l->cap = cap;
    }
    struct found *f = &l->f[l->n++];
    memcpy(f->name, name, SHA256_HEX);
    f->bytes = (uint64_t)st->st_size;
    f->used = st->st_mtim;
    l->bytes += f->bytes;
    return true;
}

// What dead processes left: temporary files, and lock files that nobody holds.
static void remove_left(const struct cache *c, const char *name, const struct stat *st)
{
    size_t n = strlen(name);
    if (time(NULL) - st->st_mtim.tv_sec < STALE_S || !S_ISREG(st->st_mode))
        return;
    if (!strncmp(name, temporary, sizeof temporary - 1))
        unlinkat(c->dir, name, 0);
    if (n != HEX + sizeof lock_suffix - 1 || !is_hex(name, HEX) || strcmp(name + HEX, lock_suffix))
        return;
    int fd = openat(c->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(c->dir, name, 0); // who waits for it sees that it is gone (cache_lock)
    if (fd >= 0)
        close(fd);
}

static bool list(const struct cache *c, struct listing *l)
{
    struct stat st;
    int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    *l = (struct listing){ 0 };
    if (!d) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d));) {
        if (fstatat(c->dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (strlen(e->d_name) == HEX && is_hex(e->d_name, HEX) && S_ISREG(st.st_mode))
            ok = listing_add(l, e->d_name, &st);
        else
            remove_left(c, e->d_name, &st);
    }
    closedir(d);
    return ok;
}

static int oldest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used, *y = &((const struct found *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

struct pruned {
    int removed;
    uint64_t freed;
};
// keep: a name that stays, or "".
static bool prune(const struct cache *c, uint64_t bytes, int64_t max_age_s, const char *keep, struct pruned *p)
{
    struct listing l;
    bool ok = list(c, &l);
    int64_t now = time(NULL);
    *p = (struct pruned){ 0 };
    if (l.n)
        qsort(l.f, l.n, sizeof *l.f, oldest_first);
    for (size_t i = 0; ok && i < l.n; i++) {
        bool old = max_age_s >= 0 && now - l.f[i].used.tv_sec >= max_age_s;
        if ((!old && l.bytes <= bytes) || !strcmp(l.f[i].name, keep) || unlinkat(c->dir, l.f[i].name, 0))
            continue;
        l.bytes -= l.f[i].bytes;
        p->freed += l.f[i].bytes;
        p->removed++;
    }
    free(l.f);
    return ok;
}

// ---- writing -----------------------------------------------------------------------------------------------------

static bool write_all(int fd, const void *from, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t w = write(fd, (const char *)from + at, n - at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            errno = w ? errno : ENOSPC;
            return false;
        }
        at += (size_t)w;
    }
    return true;
}

// The end of the text, if it is too long for `size` bytes with a NUL.
static void put_text(unsigned char *to, size_t size, const char *s)
{
    size_t n = s ? strlen(s) : 0, skip = n < size ? 0 : n - (size - 1);
    if (n)
        memcpy(to, s + skip, n - skip);
}

static void make_header(unsigned char h[HEADER], const unsigned char key[SHA256_BYTES], const struct cache_label *label,
                        const void *bytes, size_t n)
{
    memset(h, 0, HEADER);
    memcpy(h, magic, sizeof magic);
    put_le(h + AT_VERSION, ENTRY_VERSION, 4);
    put_le(h + AT_HEADER, HEADER, 4);
    memcpy(h + AT_KEY, key, SHA256_BYTES);
    put_le(h + AT_SIZE, n, 8);
    put_text(h + AT_ARCH, AT_KERNEL - AT_ARCH, label->arch);
    put_text(h + AT_KERNEL, AT_NAME - AT_KERNEL, label->kernel);
    put_text(h + AT_NAME, AT_DIGEST - AT_NAME, label->name);
    digest(h, bytes, n, h + AT_DIGEST);
}

// A new file of a name that nobody else has.
static int open_temporary(const struct cache *c, char name[64])
{
    int fd = -1;
    for (int i = 0; i < 8 && fd < 0; i++) {
        uint64_t r = (uint64_t)i;
        if (getrandom(&r, sizeof r, GRND_NONBLOCK) < 0)
            r = (uint64_t)i; // then O_EXCL alone must do
        snprintf(name, 64, "%s%ld.%016" PRIx64, temporary, (long)getpid(), r);
        fd = openat(c->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

// A limit on file sizes is a signal, which would end the process: better not to try.
static bool within_limit(uint64_t bytes)
{
    struct rlimit r;
    return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur;
}

bool cache_put(const struct cache *c, const unsigned char key[SHA256_BYTES], const struct cache_label *label,
               const void *bytes, size_t n, char why[CACHE_WHY])
{
    unsigned char h[HEADER];
    char hex[SHA256_HEX], name[64];
    struct pruned p;
    if (n + HEADER > c->max) // it would be the first to go
        return true;
    if (!within_limit(n + HEADER)) {
        snprintf(why, CACHE_WHY, "an image cannot be kept on the disk: %s", strerror(EFBIG));
        return false;
    }
    make_header(h, key, label, bytes, n);
    sha256_hex(key, hex);
    int fd = open_temporary(c, name), was = 0;
    if (fd >= 0) {
        bool ok = write_all(fd, h, HEADER) && write_all(fd, bytes, n) && fsync(fd) == 0;
        was = ok ? 0 : errno;
        if (close(fd) && !was)
            was = errno;
        if (!was && renameat(c->dir, name, c->dir, hex))
            was = errno;
        if (was)
            unlinkat(c->dir, name, 0);
    }
    if (fd < 0 || was) {
        snprintf(why, CACHE_WHY, "an image cannot be kept on the disk: %s", strerror(fd < 0 ? errno : was));
        return false;
    }
    prune(c, c->max, -1, hex, &p);
    return true;
}

// ---- locks -------------------------------------------------------------------------------------------------------

static void lock_name(const unsigned char key[SHA256_BYTES], char name[SHA256_HEX + sizeof lock_suffix])
{
    sha256_hex(key, name);
    memcpy(name + HEX, lock_suffix, sizeof lock_suffix);
}

int cache_lock(const struct cache *c, const unsigned char key[SHA256_BYTES])
{
    char name[SHA256_HEX + sizeof lock_suffix];
    struct stat here, there;
    lock_name(key, name);
    int fd = c->dir < 0 ? -1 : openat(c->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return LOCK_NONE;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        int was = errno;
        close(fd);
        return was == EWOULDBLOCK || was == EINTR ? LOCK_BUSY : LOCK_NONE;
    }
    // The one who had it may have removed the file meanwhile: then this is a lock on nothing.
    if (fstat(fd, &here) || fstatat(c->dir, name, &there, AT_SYMLINK_NOFOLLOW) || here.st_ino != there.st_ino ||
        here.st_dev != there.st_dev) {
        close(fd);
        return LOCK_BUSY;
    }
    return fd;
}

void cache_unlock(const struct cache *c, const unsigned char key[SHA256_BYTES], int fd)
{
    char name[SHA256_HEX + sizeof lock_suffix];
    if (fd < 0)
        return;
    lock_name(key, name);
    unlinkat(c->dir, name, 0);
    flock(fd, LOCK_UN); // also if a child has inherited the descriptor
    close(fd);
}

// ---- for users ---------------------------------------------------------------------------------------------------

// false: *status, and why in the caller's text; or there is nothing (MOE_OK).
static bool open_for_user(struct cache *c, const char *dir, int *status, char *why, size_t why_size)
{
    char path[CACHE_PATH], text[CACHE_WHY] = "";
    *c = (struct cache){ .dir = -1 };
    *status = MOE_OK;
    if (why_size)
        why[0] = 0;
    if (find_dir(dir, path, text)) {
        if (path[0])
            c->dir = open_dir(path, text);
        if (c->dir >= 0)
            return true;
        if (!path[0] || errno == ENOENT)
            return false;
    }
    snprintf(why, why_size, "%s", text);
    *status = MOE_ERR_ARGUMENT;
    return false;
}

static void text_of(const unsigned char *from, size_t size, char *to)
{
    memcpy(to, from, size);
    to[size - 1] = 0;
    for (char *p = to; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
}

static bool tell(const struct cache *c, const struct found *f, bool (*fn)(void *, const struct moe_cache_entry *),
                 void *user)
{
    unsigned char h[HEADER] = { 0 };
    char arch[AT_KERNEL - AT_ARCH], kernel[AT_NAME - AT_KERNEL], name[AT_DIGEST - AT_NAME];
    struct stat st;
    int fd = open_entry(c, f->name, &st);
    bool valid = fd >= 0 && read_all(fd, h, HEADER) && header_fits(h, f->name, (uint64_t)st.st_size);
    if (fd >= 0)
        close(fd);
    if (!valid)
        memset(h, 0, HEADER);
    text_of(h + AT_ARCH, sizeof arch, arch);
    text_of(h + AT_KERNEL, sizeof kernel, kernel);
    text_of(h + AT_NAME, sizeof name, name);
    int64_t age = time(NULL) - f->used.tv_sec;
    return fn(user, &(struct moe_cache_entry){ .key = f->name,
                                               .name = name,
                                               .kernel = kernel,
                                               .arch = arch,
                                               .bytes = f->bytes,
                                               .age_s = age > 0 ? age : 0,
                                               .valid = valid });
}

int moe_cache_list(const char *dir, bool (*fn)(void *user, const struct moe_cache_entry *e), void *user, char *why,
                   size_t why_size)
{
    struct cache c;
    struct listing l;
    int status;
    if (!open_for_user(&c, dir, &status, why, why_size))
        return status;
    if (!list(&c, &l)) {
        snprintf(why, why_size, "the cache directory cannot be read");
        status = MOE_ERR_ARGUMENT;
    }
    for (size_t i = 0; !status && i < l.n; i++)
        if (!tell(&c, &l.f[i], fn, user))
            break;
    free(l.f);
    cache_close(&c);
    return status;
}

int moe_cache_prune(const char *dir, uint64_t bytes, int64_t max_age_s, int *removed, uint64_t *freed, char *why,
                    size_t why_size)
{
    struct cache c;
    struct pruned p = { 0 };
    int status;
    if (open_for_user(&c, dir, &status, why, why_size)) {
        if (!prune(&c, bytes, max_age_s, "", &p)) {
            snprintf(why, why_size, "the cache directory cannot be read");
            status = MOE_ERR_ARGUMENT;
        }
        cache_close(&c);
    }
    if (removed)
        *removed = p.removed;
    if (freed)
        *freed = p.freed;
    return status;
}
