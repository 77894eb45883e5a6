// What every stage of the compiler uses: places in the source, the arena, growing arrays, text buffers,
// diagnostics. No I/O, no exit, no global state.
#ifndef MOEC_COMMON_H
#define MOEC_COMMON_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTOF(a) (sizeof(a) / sizeof((a)[0]))

// A place in the source text. line and col count from 1; line 0: no place. len: width of the marked text.
struct loc {
    int line, col, len;
};

// ---- arena.c: one arena a compile, freed at once -----------------------------------------------------------
struct arena;
// Allocation goes through this one function so that tests can make the n-th call fail. Size 0 frees.
typedef void *moec_alloc_fn(void *user, void *old, size_t size);
struct arena *arena_new(moec_alloc_fn *fn, void *user); // fn NULL: realloc/free; NULL when out of memory
void arena_free(struct arena *a);
void arena_on_oom(struct arena *a, void (*fn)(void *), void *user); // called (it must not return) when memory ends
void *arena_alloc(struct arena *a, size_t size);                    // zeroed, 16-byte aligned
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

// A growing array in the arena: VEC(struct op *) ops; VEC_PUSH(arena, &ops, x); ops.v[i], ops.n
#define VEC(T) \
    struct { \
        T *v; \
        int n, cap; \
    }
#define VEC_PUSH(a, vec, x) \
    do { \
        if ((vec)->n == (vec)->cap) \
            (vec)->v = arena_grow((a), (vec)->v, sizeof((vec)->v[0]), &(vec)->cap); \
        (vec)->v[(vec)->n++] = (x); \
    } while (0)
void *arena_grow(struct arena *a, void *old, size_t elem, int *cap); // doubles *cap, at least 8

// A text being built, in the arena; always NUL-terminated once something was put.
struct text {
    struct arena *arena;
    char *s;
    size_t n, cap;
};
void text_put(struct text *t, const char *s, size_t n);
void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- diag.c -------------------------------------------------------------------------------------------------
enum severity { SEV_ERROR, SEV_WARNING, SEV_NOTE };
struct diag {
    enum severity sev;
    struct loc loc;
    const char *text; // one line, lower case, no full stop: "expected ')' after the operands of 'dot'"
    struct diag *next;
};
enum { DIAG_MAX = 50 }; // after so many errors, "too many errors" and the compile ends

// ---- context: one a compile, first argument everywhere -------------------------------------------------------
struct arch;   // targets/target.h
struct target; // targets/target.h
struct binding {
    const char *name;
    int64_t value;
    const char *type; // for type aliases: -D act=f16; NULL for numbers
};
struct ctx {
    struct arena *arena;
    const char *file;
    const char *src;
    size_t src_len;
    struct diag *diags, **diag_tail;
    int errors;
    const struct arch *arch;
    const struct binding *bind;
    int nbind;
    void *jmp; // jmp_buf of moec_compile: out of memory, too many errors
};
// Adds a diagnostic; false, so that `return error(...)` reads well. Never call inside an MLIR/LLVM callback.
bool error(struct ctx *c, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void warning(struct ctx *c, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void note(struct ctx *c, struct loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// "file:line:col: error: text", the source line, the caret line; as clang prints it.
void diag_format(const struct ctx *c, const struct diag *d, struct text *out);
#endif
