// moe_jit(): the key of what is asked, a table of images in memory, and what happens on a miss: the disk, a lock, the
// compiler. moejit.h is the manual.
//
// The table is the process's, as the cache directory is the user's: the only state of the library that is not in a handle.
// `lock` guards it; nothing slow happens under it. After fork() the child's table holds no unfinished entries.
#include "driver.h"
#include "jit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WHY = 8192, LOCK_MS = 5 * 60 * 1000, POLL_MAX_MS = 20, BINDINGS_LIMIT = 4096 };

struct entry { // of the table: an image, or one that some thread is making
    struct entry *next;
    unsigned char key[SHA256_BYTES];
    int users; // threads that hold a pointer to it, and the table
    bool done;
    int lock_fd; // of the thread that makes it
    int status;  // when done; not MOE_OK: it has left the table
    void *bytes;
    size_t n;
    char why[WHY];
};
static struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    pthread_once_t once;
    struct entry *first;
    void (*warn)(void *user, const char *text);
    void *warn_user;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .once = PTHREAD_ONCE_INIT };

struct request {
    struct moe_compile c; // complete
    struct moe_jit_options o;
    struct found_compiler found;
    unsigned char key[SHA256_BYTES];
};

// ---- fork --------------------------------------------------------------------------------------------------------

static void before_fork(void)
{
    pthread_mutex_lock(&table.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&table.lock);
}

// The threads that made the unfinished entries are not here: forget those (their memory stays), and let go of their locks.
static void in_child(void)
{
    struct entry **at = &table.first;
    table.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    table.done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    while (*at) {
        struct entry *e = *at;
        if (e->done) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        if (e->lock_fd >= 0)
            close(e->lock_fd); // the parent's own stays locked
    }
}

static void once(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

// ---- warnings ----------------------------------------------------------------------------------------------------

void moe_on_warning(void (*fn)(void *user, const char *text), void *user)
{
    pthread_mutex_lock(&table.lock);
    table.warn = fn;
    table.warn_user = user;
    pthread_mutex_unlock(&table.lock);
}

static void warn(const char *why)
{
    char text[CACHE_WHY + 64];
    pthread_mutex_lock(&table.lock);
    void (*fn)(void *, const char *) = table.warn;
    void *user = table.warn_user;
    table.warn = NULL;
    pthread_mutex_unlock(&table.lock);
    snprintf(text, sizeof text, "%s: compiled images stay in memory only", why);
    if (fn)
        fn(user, text);
}

// ---- the key -----------------------------------------------------------------------------------------------------

static void put_number(struct sha256 *s, uint64_t v)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(v >> (8 * i));
    sha256_put(s, b, sizeof b);
}

static void put_bytes(struct sha256 *s, const void *p, size_t n) // with its length: no two lists read the same
{
    put_number(s, n);
    sha256_put(s, p, n);
}

static void put_text(struct sha256 *s, const char *text) // NULL is another text than ""
{
    put_number(s, text != NULL);
    put_bytes(s, text, text ? strlen(text) : 0);
}

static int by_name(const void *a, const void *b)
{
    const struct moe_binding *x = *(const struct moe_binding *const *)a, *y = *(const struct moe_binding *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y); // of equal names the later one counts: their order stays
}

static bool put_bindings(struct sha256 *s, const struct moe_compile *c)
{
    const struct moe_binding **b = malloc((size_t)(c->nbindings + 1) * sizeof(const struct moe_binding *));
    if (!b)
        return false;
    for (int i = 0; i < c->nbindings; i++)
        b[i] = &c->bindings[i];
    qsort(b, (size_t)c->nbindings, sizeof *b, by_name);
    put_number(s, (uint64_t)c->nbindings);
    for (int i = 0; i < c->nbindings; i++) {
        put_text(s, b[i]->name);
        put_number(s, (uint64_t)b[i]->value);
        put_text(s, b[i]->type);
    }
    free(b);
    return true;
}

static bool make_key(const struct moe_device *d, struct request *r)
{
    const struct moe_compile *c = &r->c;
    struct sha256 s;
    sha256_init(&s);
    put_text(&s, "moe image key 1");
    put_number(&s, IMAGE_VERSION);
    put_bytes(&s, c->source, c->source_size);
    if (!put_bindings(&s, c))
        return false;
    put_text(&s, c->kernel);
    put_number(&s, (uint64_t)c->bitcode | (uint64_t)c->ptx << 1);
    put_text(&s, c->bitcode ? c->name : NULL);
    put_text(&s, c->arch);
    put_text(&s, r->o.identity);
    put_text(&s, d ? d->driver->name : NULL);
    put_number(&s, d && c->ptx ? (uint64_t)d->info.driver_version : 0);
    sha256_end(&s, r->key);
    return true;
}

// ---- requests ----------------------------------------------------------------------------------------------------

static int say(char why[WHY], int status, const char *text)
{
    snprintf(why, WHY, "%s", text);
    return status;
}

// Copies what the caller's struct has; the rest is zero.
static bool take(void *to, size_t to_size, const void *from, size_t from_size)
{
    if (from_size < sizeof(size_t))
        return false;
    memcpy(to, from, from_size < to_size ? from_size : to_size);
    return true;
}

static int check_compile(const struct moe_compile *c, char why[WHY])
{
    if (!c->source && c->source_size)
        return say(why, MOE_ERR_ARGUMENT, "moe_jit: source is NULL");
    if (c->nbindings < 0 || c->nbindings > BINDINGS_LIMIT || (c->nbindings && !c->bindings))
        return say(why, MOE_ERR_ARGUMENT, "moe_jit: bindings are missing, or more than 4096");
    for (int i = 0; i < c->nbindings; i++)
        if (!c->bindings[i].name)
            return say(why, MOE_ERR_ARGUMENT, "moe_jit: a binding has no name");
    return MOE_OK;
}

static int make_request(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o,
                        struct request *r, char why[WHY])
{
    if (!c || !take(&r->c, sizeof r->c, c, c->size) || (o && !take(&r->o, sizeof r->o, o, o->size)))
        return say(why, MOE_ERR_ARGUMENT, "moe_jit: size is not set");
    int status = check_compile(&r->c, why);
    if (status)
        return status;
    r->c.size = sizeof r->c;
    r->c.name = r->c.name ? r->c.name : "source.dsl";
    r->c.source = r->c.source ? r->c.source : "";
    if (!r->c.arch && !d)
        return say(why, MOE_ERR_ARGUMENT, "moe_jit: neither a device nor an arch");
    r->c.arch = r->c.arch ? r->c.arch : d->info.arch;
    if (d && d->driver == &sim_driver) // it runs the bitcode; the code beside it is only a formality
        r->c.bitcode = r->c.ptx = true;
    if (r->o.compile && !(r->o.identity && *r->o.identity))
        return say(why, MOE_ERR_ARGUMENT, "moe_jit: a compiler without identity");
    if (!r->o.compile) {
        if (!compiler_find(r->o.ptxas, &r->found, why, WHY))
            return MOE_ERR_LIBRARY;
        r->o.compile = compiler_run;
        r->o.user = &r->found;
        r->o.identity = r->found.identity;
    }
    return make_key(d, r) ? MOE_OK : say(why, MOE_ERR_MEMORY, "out of memory");
}

// ---- a miss ------------------------------------------------------------------------------------------------------

// What a compiler gave, before anybody relies on it.
static int check_image(const struct moe_compile *c, const void *bytes, size_t n, char why[WHY])
{
    char err[IMAGE_ERR_MAX];
    struct image_desc *m = moe_image_read(bytes, n, err);
    if (!m) {
        snprintf(why, WHY, "what the compiler gave for %.200s is no image: %s", c->name, err);
        return MOE_ERR_IMAGE;
    }
    bool same = !strcmp(m->arch, c->arch);
    if (!same)
        snprintf(why, WHY, "the compiler gave an image for %.60s, asked for was %.60s", m->arch, c->arch);
    free(m);
    return same ? MOE_OK : MOE_ERR_ARCH;
}

static int compile(const struct request *r, struct entry *e)
{
    e->why[0] = 0;
    int status = r->o.compile(r->o.user, &r->c, &e->bytes, &e->n, e->why, WHY);
    if (!status && !e->bytes)
        status = say(e->why, MOE_ERR_IMAGE, "the compiler gave nothing");
    if (!status)
        status = check_image(&r->c, e->bytes, e->n, e->why);
    if (!status)
        return MOE_OK;
    if (!e->why[0])
        snprintf(e->why, WHY, "the compiler failed and did not say why (%s)", moe_status_name(status));
    free(e->bytes);
    e->bytes = NULL;
    return status;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void set_lock_fd(struct entry *e, int fd)
{
    pthread_mutex_lock(&table.lock);
    e->lock_fd = fd;
    pthread_mutex_unlock(&table.lock);
}

// Waits until the entry is on the disk (true), or it is this process's turn to compile: with the lock, or without when the
// time is over or there are no locks here.
static bool wait_turn(const struct request *r, const struct cache *disk, struct entry *e)
{
    int64_t until = now_ms() + (r->o.lock_ms ? r->o.lock_ms : LOCK_MS);
    for (long ms = 1;; ms = ms < POLL_MAX_MS ? ms * 2 : POLL_MAX_MS) {
        if (cache_get(disk, r->key, &e->bytes, &e->n))
            return true;
        int fd = cache_lock(disk, r->key);
        if (fd >= 0) {
            set_lock_fd(e, fd);
            return cache_get(disk, r->key, &e->bytes, &e->n); // the one before may just have written it
        }
        if (fd == LOCK_NONE || now_ms() >= until)
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
    }
}

static enum moe_jit_origin produce(const struct request *r, struct entry *e)
{
    enum moe_jit_origin from = MOE_FROM_DISK;
    char why[CACHE_WHY];
    struct cache disk;
    cache_open(&disk, r->o.cache_dir, why);
    if (disk.dir < 0 && why[0])
        warn(why);
    if (disk.dir < 0 || !wait_turn(r, &disk, e)) {
        struct cache_label label = { r->c.name, r->c.kernel, r->c.arch };
        from = MOE_FROM_COMPILER;
        e->status = compile(r, e);
        if (!e->status && disk.dir >= 0 && !cache_put(&disk, r->key, &label, e->bytes, e->n, why))
            warn(why);
    }
    int fd = e->lock_fd;
    set_lock_fd(e, -1);
    cache_unlock(&disk, r->key, fd);
    cache_close(&disk);
    return from;
}

// ---- the table -----------------------------------------------------------------------------------------------------

static void release(struct entry *e) // under the lock
{
    if (--e->users)
        return;
    free(e->bytes);
    free(e);
}

static void leave_table(struct entry *e) // under the lock
{
    for (struct entry **at = &table.first; *at; at = &(*at)->next)
        if (*at == e) {
            *at = e->next;
            release(e);
            return;
        }
}

// The entry for the key, done, held for the caller: let_go() it. NULL: no memory.
static struct entry *obtain(const struct request *r, enum moe_jit_origin *from)
{
    *from = MOE_FROM_MEMORY;
    pthread_once(&table.once, once);
    pthread_mutex_lock(&table.lock);
    struct entry *e = table.first;
    while (e && memcmp(e->key, r->key, SHA256_BYTES))
        e = e->next;
    if (e) {
        e->users++;
        while (!e->done)
            pthread_cond_wait(&table.done, &table.lock);
        pthread_mutex_unlock(&table.lock);
        return e;
    }
    e = calloc(1, sizeof *e);
    if (e) {
        memcpy(e->key, r->key, SHA256_BYTES);
        e->lock_fd = -1;
        e->users = 2; // the table and the caller
        e->next = table.first;
        table.first = e;
    }
    pthread_mutex_unlock(&table.lock);
    if (!e)
        return NULL;
    *from = produce(r, e);
    pthread_mutex_lock(&table.lock);
    e->done = true;
    if (e->status)
        leave_table(e);
    pthread_cond_broadcast(&table.done);
    pthread_mutex_unlock(&table.lock);
    return e;
}

static void let_go(struct entry *e)
{
    pthread_mutex_lock(&table.lock);
    release(e);
    pthread_mutex_unlock(&table.lock);
}

void moe_jit_forget(void)
{
    pthread_mutex_lock(&table.lock);
    for (struct entry **at = &table.first; *at;) {
        struct entry *e = *at;
        if (!e->done) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        release(e);
    }
    pthread_mutex_unlock(&table.lock);
}

// ---- the calls -----------------------------------------------------------------------------------------------------

static int failed(struct moe_device *d, const struct moe_jit_options *o, int status, const char *why)
{
    if (o && o->size >= offsetof(struct moe_jit_options, why_size) + sizeof o->why_size && o->why && o->why_size)
        snprintf(o->why, o->why_size, "%s", why);
    return d ? device_fail(d, status, "%s", why) : status;
}

// *e is held when the result is MOE_OK.
static int jit(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o, struct entry **e)
{
    char why[WHY] = "";
    enum moe_jit_origin from;
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return failed(d, o, MOE_ERR_MEMORY, "out of memory");
    int status = make_request(d, c, o, r, why);
    *e = status ? NULL : obtain(r, &from);
    if (!status && !*e)
        status = say(why, MOE_ERR_MEMORY, "out of memory");
    if (*e && (*e)->status) {
        status = say(why, (*e)->status, (*e)->why);
        let_go(*e);
    }
    if (!status && r->o.from)
        *r->o.from = from;
    free(r);
    return status ? failed(d, o, status, why) : MOE_OK;
}

int moe_jit(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o, struct moe_image **out)
{
    struct entry *e;
    *out = NULL;
    if (!d)
        return MOE_ERR_ARGUMENT;
    int status = jit(d, c, o, &e);
    if (status)
        return status;
    status = moe_load(d, e->bytes, e->n, out);
    let_go(e);
    return status;
}

int moe_jit_bytes(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o, void **bytes,
                  size_t *n)
{
    struct entry *e;
    *bytes = NULL;
    *n = 0;
    int status = jit(d, c, o, &e);
    if (status)
        return status;
    *bytes = malloc(e->n + 1);
    if (*bytes) {
        memcpy(*bytes, e->bytes, e->n);
        *n = e->n;
    }
    let_go(e);
    return *bytes ? MOE_OK : failed(d, o, MOE_ERR_MEMORY, "out of memory");
}
