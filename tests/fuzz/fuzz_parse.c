// Fuzzing of the front end: any bytes are lexed, parsed, printed in every form and diagnosed without a crash; what has
// no errors reads back from its print as an equal tree, and that prints the same again. Where the checker is linked in,
// a program without errors is checked too, and its tile IR must print as DSL that checks and prints the same.
//
//   libFuzzer:   clang -fsanitize=fuzzer,address,undefined ...       fuzz_parse CORPUS
//   without it:  cc -DMOE_FUZZ_MAIN -fsanitize=address,undefined ... fuzz_parse [-t SECONDS] [-s SEED] FILE...
// The second form runs each file once and then mutates them; what fails is left in ./crash-parse.dsl.
#include "../../compiler/ir.h"
#include "../../targets/target.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Linked in or not.
struct module *check(struct ctx *c, const struct node *file) __attribute__((weak));
struct node *raise_kernel(struct ctx *c, const struct kernel *k) __attribute__((weak));

// Rows for the checker; a linked targets.c has its own.
static const struct mma rows_mmas[] = {
    { .name = "m16n8k16_bf16", .m = 16, .n = 8, .k = 16, .in = EL_BF16, .acc = EL_F32 }
};
static const struct arch rows[] = { { .name = "sm_90a", .lanes = 32, .mmas = rows_mmas, .nmmas = 1 },
                                    { .name = "gfx942", .lanes = 64 } };
static const struct target row_target = { .name = "fuzz", .arches = rows, .narches = COUNTOF(rows) };
__attribute__((weak)) const struct target *const targets[] = { &row_target };
__attribute__((weak)) const int ntargets = COUNTOF(targets);
__attribute__((weak)) const struct arch *arch_find(const char *name)
{
    for (size_t i = 0; i < COUNTOF(rows); i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct ctx c;
    struct node *file;
    struct module *m;
};

static _Noreturn void broken(const char *what, const char *a, const char *b)
{
    fprintf(stderr, "fuzz_parse: %s\n---- one\n%s\n---- two\n%s\n", what, a ? a : "", b ? b : "");
    abort();
}

static void start(struct run *r, struct arena *a, const char *src, size_t n)
{
    memset(r, 0, sizeof *r);
    r->c.arena = a;
    r->c.file = "fuzz.dsl";
    r->c.src = src;
    r->c.src_len = n;
    r->c.diag_tail = &r->c.diags;
    r->c.arch = &rows[0];
}

// The long jump of too many errors ends the run early; what was read up to then is not looked at.
static void read_text(struct run *r, bool checks)
{
    jmp_buf jmp;
    int n;
    r->c.jmp = &jmp;
    if (setjmp(jmp))
        return;
    const struct token *t = lex(&r->c, &n);
    struct text out = { .arena = r->c.arena };
    dump_tokens(&out, t, n);
    r->file = parse(&r->c, t, n);
    if (checks && check && !r->c.errors)
        r->m = check(&r->c, r->file);
    r->c.jmp = NULL;
}

static const char *print_file(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    print_tree(&t, r->file);
    t.n = 0;
    text_put(&t, "", 0);
    print_dsl(&t, r->file);
    return t.s;
}

static const char *print_module(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    text_put(&t, "", 0);
    for (const struct kernel *k = r->m->kernels; k; k = k->next)
        print_dsl(&t, raise_kernel(&r->c, k));
    return t.s;
}

static const char *all_diags(struct run *r)
{
    struct text t = { .arena = r->c.arena };
    for (const struct diag *d = r->c.diags; d; d = d->next)
        diag_format(&r->c, d, &t);
    return t.s;
}

static bool docs_equal(const struct node *a, const struct node *b)
{
    for (int i = 0; i < a->nkids; i++) {
        const char *x = a->kids[i]->doc, *y = b->kids[i]->doc;
        if (x != y && (!x || !y || strcmp(x, y)))
            return false;
    }
    return true;
}

// The tree prints as text that reads back equal.
static void tree_round_trip(struct run *a)
{
    const char *one = print_file(a), *two;
    struct run b;
    if (a->c.errors)
        return;
    start(&b, a->c.arena, one, strlen(one));
    read_text(&b, false);
    if (b.c.errors || !b.file)
        broken("what was printed has errors", one, all_diags(&b));
    two = print_file(&b);
    if (!node_equal(a->file, b.file) || !docs_equal(a->file, b.file))
        broken("what was printed reads back as another tree", one, two);
    if (strcmp(one, two))
        broken("printing is no fixed point", one, two);
}

// The checked program prints as text that checks and prints the same.
static void module_round_trip(struct run *a)
{
    const char *one = print_module(a), *two;
    struct run b;
    start(&b, a->c.arena, one, strlen(one));
    read_text(&b, true);
    if (!b.m)
        broken("the printed tile IR has errors", one, all_diags(&b));
    two = print_module(&b);
    if (strcmp(one, two))
        broken("printing the tile IR is no fixed point", one, two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run r;
    struct arena *a = arena_new(NULL, NULL);
    start(&r, a, (const char *)data, size);
    read_text(&r, true);
    if (r.c.errors && !all_diags(&r))
        broken("errors without a diagnostic", NULL, NULL);
    if (r.file)
        tree_round_trip(&r);
    if (r.m && raise_kernel)
        module_round_trip(&r);
    arena_free(a);
    return 0;
}

#ifdef MOE_FUZZ_MAIN
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_MAX = 1 << 16, FILES_MAX = 256 };
struct input {
    uint8_t *s;
    size_t n;
};
static struct input now; // being run: for the signal handler

static void keep_input(int sig)
{
    int fd = open("crash-parse.dsl", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    ssize_t done = fd < 0 ? 0 : write(fd, now.s, now.n);
    (void)done;
    signal(sig, SIG_DFL);
    raise(sig);
}

static uint64_t rnd(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

static size_t below(uint64_t *s, size_t n)
{
    return n ? (size_t)(rnd(s) % n) : 0;
}

// Replaces `cut` bytes at `at` by the given ones.
static void exchange(struct input *in, size_t at, size_t cut, const void *s, size_t n)
{
    if (in->n - cut + n > INPUT_MAX)
        return;
    memmove(in->s + at + n, in->s + at + cut, in->n - at - cut);
    memcpy(in->s + at, s, n);
    in->n += n - cut;
}

static const char *const pieces[] = { "kernel ",
                                      "schedule ",
                                      "type ",
                                      "let ",
                                      "var ",
                                      "for ",
                                      "parallel ",
                                      "if ",
                                      "else ",
                                      "at ",
                                      "role ",
                                      "shared ",
                                      "layout ",
                                      "require ",
                                      "out ",
                                      "inout ",
                                      " in ",
                                      "tile(",
                                      "each(",
                                      "range(",
                                      "origin(",
                                      "tile_map[",
                                      "f32",
                                      "bf16",
                                      "i32",
                                      "f16",
                                      "bool",
                                      "{",
                                      "}",
                                      "(",
                                      ")",
                                      "[",
                                      "]",
                                      ",",
                                      ";",
                                      ":",
                                      "\n",
                                      "@",
                                      "@tile(64)",
                                      "@dist(main)",
                                      "+",
                                      "-",
                                      "*",
                                      "/",
                                      "%",
                                      "==",
                                      "<=",
                                      "<<",
                                      ">>",
                                      "&",
                                      "|",
                                      "^",
                                      "!",
                                      "~",
                                      "=",
                                      "+=",
                                      "0",
                                      "1",
                                      "16",
                                      "2147483648",
                                      "9223372036854775807",
                                      "1.5",
                                      "1e-20",
                                      "inf",
                                      "nan",
                                      "true",
                                      "dot(",
                                      "select(",
                                      "topk(",
                                      "take(",
                                      "reduce_sum(",
                                      "softmax(",
                                      "atomic_add(",
                                      "copy(",
                                      "mma(",
                                      "// a\n",
                                      "2x4+1",
                                      "arrive(",
                                      "await(",
                                      "mma_wait(",
                                      "mma_commit()",
                                      "@barrier",
                                      "@bulk",
                                      "@registers(40)",
                                      "@producers(4)",
                                      "@persistent",
                                      "main",
                                      "r0 l1 w2",
                                      "/*",
                                      "&&",
                                      "0x1",
                                      "\"",
                                      "\xC3\xA9",
                                      "-1",
                                      "x",
                                      "t",
                                      "k" };

static void mutate(struct input *in, const struct input *files, int nfiles, uint64_t *s)
{
    size_t at = below(s, in->n + 1), most = in->n - at, cut = below(s, (most < 40 ? most : 40) + 1);
    const char *piece = pieces[below(s, COUNTOF(pieces))];
    const struct input *other = &files[below(s, (size_t)nfiles)];
    size_t from = below(s, other->n), len = below(s, other->n - from < 200 ? other->n - from : 200);
    uint8_t byte = (uint8_t)rnd(s);
    switch (below(s, 6)) {
    case 0: exchange(in, at, 0, piece, strlen(piece)); break;
    case 1: exchange(in, at, cut, "", 0); break;
    case 2: exchange(in, at, cut, piece, strlen(piece)); break;
    case 3: exchange(in, at, most ? 1 : 0, &byte, 1); break;
    case 4: exchange(in, at, 0, other->s + from, len); break;
    case 5: exchange(in, at, cut, other->s + from, len); break;
    }
}

static bool load(const char *path, struct input *in)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    in->s = malloc(INPUT_MAX);
    in->n = fread(in->s, 1, INPUT_MAX, f);
    fclose(f);
    return true;
}

static void run_now(const struct input *in)
{
    memcpy(now.s, in->s, in->n);
    now.n = in->n;
    // An exact copy: reading past its end is found.
    uint8_t *exact = malloc(in->n ? in->n : 1);
    memcpy(exact, in->s, in->n);
    LLVMFuzzerTestOneInput(exact, in->n);
    free(exact);
}

int main(int argc, char **argv)
{
    static struct input files[FILES_MAX];
    struct input work = { malloc(INPUT_MAX), 0 };
    int nfiles = 0, seconds = 0;
    uint64_t seed = 1;
    long runs = 0;
    now.s = malloc(INPUT_MAX);
    signal(SIGABRT, keep_input);
    signal(SIGSEGV, keep_input);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-t") && i + 1 < argc)
            seconds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-s") && i + 1 < argc)
            seed = (uint64_t)atoi(argv[++i]) * 2654435761u + 1;
        else if (nfiles < FILES_MAX && load(argv[i], &files[nfiles]))
            run_now(&files[nfiles++]);
    }
    time_t end = time(NULL) + seconds;
    while (nfiles && seconds && time(NULL) < end) {
        const struct input *from = &files[below(&seed, (size_t)nfiles)];
        memcpy(work.s, from->s, from->n);
        work.n = from->n;
        for (size_t n = 1 + below(&seed, 6); n; n--)
            mutate(&work, files, nfiles, &seed);
        run_now(&work);
        runs++;
    }
    printf("fuzz_parse: %d files, %ld mutations\n", nfiles, runs);
    free(work.s);
    free(now.s);
    for (int i = 0; i < nfiles; i++)
        free(files[i].s);
    return 0;
}
#endif
