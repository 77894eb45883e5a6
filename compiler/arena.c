// The arena of one compile, growing arrays and text buffers in it. All memory comes from one function (arena_new), so
// that tests can make any call fail; when memory ends, the handler given to arena_on_oom leaves the compile.
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
    struct chunk *next;
    size_t used, size;
};
struct arena {
    moec_alloc_fn *fn;
    void *user;
    struct chunk *chunks;
    void (*oom)(void *);
    void *oom_user;
};
#ifndef ARENA_CHUNK // the out-of-memory test makes it small, so that nearly every allocation can fail
#define ARENA_CHUNK (1 << 16)
#endif
enum { CHUNK_SIZE = ARENA_CHUNK, ALIGNMENT = 16, HEADER = (sizeof(struct chunk) + 15) / 16 * 16 };

static void *default_alloc(void *user, void *old, size_t size)
{
    (void)user;
    if (!size) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

struct arena *arena_new(moec_alloc_fn *fn, void *user)
{
    if (!fn)
        fn = default_alloc;
    struct arena *a = fn(user, NULL, sizeof *a);
    if (a)
        *a = (struct arena){ .fn = fn, .user = user };
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        a->fn(a->user, c, 0);
    }
    a->fn(a->user, a, 0);
}

void arena_on_oom(struct arena *a, void (*fn)(void *), void *user)
{
    a->oom = fn;
    a->oom_user = user;
}

static struct chunk *chunk_new(struct arena *a, size_t size)
{
    size_t want = size > CHUNK_SIZE ? size : CHUNK_SIZE;
    struct chunk *c = size > SIZE_MAX / 2 ? NULL : a->fn(a->user, NULL, HEADER + want);
    if (!c) {
        if (a->oom)
            a->oom(a->oom_user);
        abort(); // arena_on_oom's handler must not return
    }
    *c = (struct chunk){ .next = a->chunks, .size = want };
    a->chunks = c;
    return c;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct chunk *c = a->chunks;
    if (!c || c->size - c->used < size)
        c = chunk_new(a, size);
    void *p = (char *)c + HEADER + c->used;
    c->used += size;
    return memset(p, 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}

void *arena_grow(struct arena *a, void *old, size_t elem, int *cap)
{
    int was = *cap, now = was ? was * 2 : 8;
    void *p = arena_alloc(a, elem * (size_t)now);
    if (was)
        memcpy(p, old, elem * (size_t)was);
    *cap = now;
    return p;
}

void text_put(struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        size_t cap = (t->n + n + 1) * 2;
        char *p = arena_alloc(t->arena, cap);
        if (t->n)
            memcpy(p, t->s, t->n);
        t->s = p;
        t->cap = cap;
    }
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void text_printf(struct text *t, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if ((size_t)n < sizeof small) {
        text_put(t, small, (size_t)n);
    } else {
        char *big = arena_alloc(t->arena, (size_t)n + 1);
        vsnprintf(big, (size_t)n + 1, fmt, again);
        text_put(t, big, (size_t)n);
    }
    va_end(again);
    va_end(ap);
}
