// libmoert, the JIT: source text -> loaded image, with a cache in memory and one on the disk. This header is the manual.
//
//   struct moe_compile c = { .size = sizeof c, .source = text, .source_size = n, .name = "moe.dsl",
//                            .bindings = b, .nbindings = 4 };
//   if (moe_jit(d, &c, NULL, &image)) puts(moe_error(d, why, sizeof why));     the diagnostics, or what is missing
//   ...
//   moe_unload(image);
//
// THE COMPILER is no part of this library. Unless moe_jit_options.compile is given, the first of these is taken:
//   $MOE_COMPILER_LIBRARY, a file that must then be there;   $MOE_COMPILER, a program that must then be there;
//   a compiler that the process has already: the program is linked with libmoec, or exports moec_compile();
//   libmoec.so beside this library or the program, in ../lib from there, or where the loader finds it;
//   moec beside the program, or in $PATH (run without a shell).
// Images that moec made before need no compiler: moe_load().
//
// THE KEY of an image is the SHA-256 of the source, the bindings (in any order), the kernel, the flags, the arch, the
// image format, the compiler's identity (and that of ptxas and ld.lld), for PTX the driver's version, and with bitcode the
// name of the source, which findings quote. Nothing else may change what a compiler gives.
//
// ONCE. In a process, threads that ask for one key wait for the one that compiles, and share its outcome, failures too; a
// failure is not kept: the next call tries again. Among processes, the same by a lock in the cache directory; the lock of a
// process that dies is free, and who has waited for it for lock_ms compiles without.
//
// THE DISK. Directory: $MOE_CACHE_DIR, else $XDG_CACHE_HOME/moe, else $HOME/.cache/moe; MOE_CACHE_DIR="" turns the disk
// off. It is made with mode 0700, files have 0600. A directory or an entry that is a symbolic link, belongs to somebody else
// or may be written by others is not used. Every entry carries a digest of itself; what is damaged is compiled again.
// $MOE_CACHE_MAX (bytes; 2 GiB) bounds the sum of the entries: the longest unused go first, when a new one comes. Where the
// disk cannot be used (read-only, full, no HOME), the images stay in memory, and moe_on_warning()'s function hears of it once.
//
// MEMORY. The bytes of every image that moe_jit() gave stay until moe_jit_forget().
//
// THREADS. Any function from any thread at any time. After fork() the child may go on: what other threads of the parent were
// compiling it forgets. Programs with raised privileges: no environment variable above is read (secure_getenv).
// ERRORS. As moert.h: an enum moe_status, the text in moe_error(). Nothing prints, exits, or installs handlers.
#ifndef MOEJIT_H
#define MOEJIT_H
#include "moert.h"

#ifdef __cplusplus
extern "C" {
#endif

struct moe_binding { // as moec -D NAME=VALUE
    const char *name;
    int64_t value;
    const char *type; // an element type, for a type alias; NULL: a number
};
struct moe_compile { // what to compile; all of it is the caller's, and not kept
    size_t size;     // set by the caller: sizeof(struct moe_compile). Members past it count as zero
    const char *source;
    size_t source_size;
    const char *name; // of the source in diagnostics; NULL: "source.dsl"
    const char *arch; // NULL: the device's
    const struct moe_binding *bindings;
    int nbindings;
    const char *kernel; // only this one, NAME or NAME.VARIANT; NULL: all
    bool bitcode;       // with LLVM bitcode. Simulated devices: always
    bool ptx;           // PTX, which the driver compiles at load. Without it: machine code, if an assembler is there
};
// Compiles c, whose arch is set. 0: *image from malloc, *n its bytes. Else an enum moe_status (MOE_ERR_SOURCE: the source is
// wrong; MOE_ERR_LIBRARY: something is missing) and why, the diagnostics. Called from any thread, for several keys at once.
typedef int moe_compiler(void *user, const struct moe_compile *c, void **image, size_t *n, char *why, size_t why_size);

enum moe_jit_origin { MOE_FROM_MEMORY = 1, MOE_FROM_DISK = 2, MOE_FROM_COMPILER = 3 };
struct moe_jit_options {
    size_t size;           // sizeof(struct moe_jit_options)
    moe_compiler *compile; // NULL: the compiler that is found, see above
    void *user;            // of compile
    const char
        *identity; // with compile, and needed then: changes when the compiler's output might; moe_file_identity()
    const char *cache_dir; // NULL: by the environment. "": no disk
    const char *ptxas;     // for a compiler that is found: the assembler. NULL: $MOE_PTXAS, PATH, the usual places
    int lock_ms;           // longest wait for another process that compiles the same. 0: five minutes; negative: none
    enum moe_jit_origin *from; // where the image came from; NULL: do not tell
    char *why; // may be NULL: all the text of a failure to compile, of which moe_error() has the beginning
    size_t why_size;
};
// Compiles, or finds, and loads. The caller unloads. o: NULL, or options.
MOE_API int moe_jit(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o,
                    struct moe_image **out);
// As moe_jit() without loading: the image's bytes, from malloc; a device's arch is needed only if c names none.
MOE_API int moe_jit_bytes(struct moe_device *d, const struct moe_compile *c, const struct moe_jit_options *o,
                          void **bytes, size_t *n);
// Frees the bytes kept in memory. Loaded images stay.
MOE_API void moe_jit_forget(void);

// Text that changes when the file does: its size, its time, its build id if it is an ELF file. path NULL: the running
// program. false: there is no such file.
enum { MOE_IDENTITY_MAX = 256 };
MOE_API bool moe_file_identity(const char *path, char text[MOE_IDENTITY_MAX]);

// The function hears, at most once after each moe_on_warning(), why the disk is not used; one line, called from the thread
// that noticed. fn NULL: nobody hears.
MOE_API void moe_on_warning(void (*fn)(void *user, const char *text), void *user);

// ---- the cache directory. dir NULL: by the environment
struct moe_cache_entry {
    const char *key;                  // 64 hexadecimal digits
    const char *name, *kernel, *arch; // of the source (its end, if long); kernel "": all
    uint64_t bytes;
    int64_t age_s; // since it was used
    bool valid;    // its header; the bytes are checked when they are used
};
// Where: text of the directory; "" if the disk is off. Nothing is made.
MOE_API int moe_cache_dir(char *text, size_t size);
// Calls fn for every entry, in no order, until it returns false. A directory that is not there is empty. why: of a failure.
MOE_API int moe_cache_list(const char *dir, bool (*fn)(void *user, const struct moe_cache_entry *e), void *user,
                           char *why, size_t why_size);
// Removes entries not used for max_age_s seconds (negative: any age stays), then the longest unused until at most `bytes`
// remain. (0, 0): all. What dead writers left goes too. removed, freed: entries and bytes; may be NULL.
MOE_API int moe_cache_prune(const char *dir, uint64_t bytes, int64_t max_age_s, int *removed, uint64_t *freed,
                            char *why, size_t why_size);
#ifdef __cplusplus
}
#endif
#endif
