// What an hsaco says of itself, read by this file's own ELF and msgpack readers: the metadata that a HIP runtime launches by
// (AMDGPU usage guide, "Code Object V5 Metadata"), the kernel descriptors, the symbols; and what the assembly's main loops
// must and must not contain.
#include "../compiler/moec.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "read_file.h"

static const char source[] =
    "type act = bf16\n"
    "kernel mixed(x: act[T, H], s: f32, tiles: tile_map[N], n: i32, y: out act[R, H]) require H <= 4096 {\n"
    "  parallel (e, rows) in tiles, cols in tile(H) {\n"
    "    y[rows, cols] = x[rows + n, cols] * s\n"
    "  }\n"
    "}\n"
    "kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0, K <= 8192, N <= 8192 {\n"
    "  parallel m in tile(M), n in tile(N) {\n"
    "    var s: f32[m, n] = 0\n"
    "    for k in tile(K) { s += dot(a[m, k], b[n, k]) }\n"
    "    c[m, n] = s\n"
    "  }\n"
    "}\n"
    "kernel sums(i: i32[N], v: f32[N], n: inout i32[M], s: inout f32[M]) require M <= 4096 {\n"
    "  parallel k in tile(N) {\n"
    "    atomic_add(n[i[k]], 1)\n"
    "    atomic_add(s[i[k]], v[k])\n"
    "  }\n"
    "}\n";
static const char *const archs[] = { "gfx942", "gfx950" };

static struct moec_result *compile(const char *text, const char *name, const char *arch, enum moec_emit emit)
{
    struct moec_options o = { .size = sizeof o, .arch = arch, .emit = emit };
    struct moec_result *r = moec_compile(text, strlen(text), name, &o);
    if (moec_status(r) != MOEC_OK)
        fail_msg("%s", moec_diagnostic(r, 0)->formatted);
    return r;
}

// ---- msgpack, as a tree ------------------------------------------------------------------------------------------

struct node {
    char kind; // i, s, a(rray), m(ap: keys and values in turn)
    int64_t n; // the number, or the length, or the entries
    const char *s;
    struct node *v;
};

static uint64_t number(const unsigned char **p, int bytes)
{
    uint64_t v = 0;
    while (bytes--)
        v = v << 8 | *(*p)++;
    return v;
}

static struct node unpack(const unsigned char **p)
{
    unsigned b = *(*p)++;
    struct node t = { .kind = 'i' };
    if (b < 0x80 || b >= 0xe0)
        t.n = (signed char)b;
    else if (b >= 0xcc && b <= 0xcf)
        t.n = (int64_t)number(p, 1 << (b - 0xcc));
    else if (b < 0x90)
        t.kind = 'm', t.n = b & 15;
    else if (b < 0xa0)
        t.kind = 'a', t.n = b & 15;
    else if (b < 0xc0)
        t.kind = 's', t.n = b & 31;
    else if (b >= 0xd9 && b <= 0xdb)
        t.kind = 's', t.n = (int64_t)number(p, 1 << (b - 0xd9));
    else if (b >= 0xdc && b <= 0xdf)
        t.kind = b < 0xde ? 'a' : 'm', t.n = (int64_t)number(p, 2 << (b & 1));
    else if (b == 0xc2 || b == 0xc3)
        t.n = b & 1;
    else
        fail_msg("msgpack: byte %02x", b);
    if (t.kind == 's') {
        t.s = (const char *)*p;
        *p += t.n;
    }
    if (t.kind == 'a' || t.kind == 'm') {
        int64_t n = t.kind == 'm' ? 2 * t.n : t.n;
        t.v = calloc((size_t)n + 1, sizeof *t.v);
        for (int64_t i = 0; i < n; i++)
            t.v[i] = unpack(p);
    }
    return t;
}

static void forget(struct node *t)
{
    int64_t n = t->kind == 'm' ? 2 * t->n : t->kind == 'a' ? t->n : 0;
    for (int64_t i = 0; i < n; i++)
        forget(&t->v[i]);
    free(t->v);
}

static bool is(const struct node *t, const char *s)
{
    return t->kind == 's' && (size_t)t->n == strlen(s) && !memcmp(t->s, s, (size_t)t->n);
}

static const struct node *get(const struct node *map, const char *key)
{
    assert_int_equal(map->kind, 'm');
    for (int64_t i = 0; i < map->n; i++)
        if (is(&map->v[2 * i], key))
            return &map->v[2 * i + 1];
    fail_msg("metadata: no %s", key);
    return NULL;
}

static int64_t num(const struct node *map, const char *key)
{
    const struct node *t = get(map, key);
    assert_int_equal(t->kind, 'i');
    return t->n;
}

// ---- ELF ---------------------------------------------------------------------------------------------------------

static const Elf64_Shdr *section(const char *elf, unsigned type, unsigned flags)
{
    const Elf64_Ehdr *h = (const void *)elf;
    const Elf64_Shdr *s = (const void *)(elf + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++)
        if (s[i].sh_type == type && (s[i].sh_flags & flags) == flags)
            return &s[i];
    fail_msg("no section of type %u", type);
    return NULL;
}

// Where in the file an address lies.
static const char *at_address(const char *elf, uint64_t a)
{
    const Elf64_Ehdr *h = (const void *)elf;
    const Elf64_Phdr *p = (const void *)(elf + h->e_phoff);
    for (int i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && a >= p[i].p_vaddr && a < p[i].p_vaddr + p[i].p_filesz)
            return elf + p[i].p_offset + (a - p[i].p_vaddr);
    fail_msg("no segment holds %llx", (unsigned long long)a);
    return NULL;
}

static const Elf64_Sym *symbol(const char *elf, const char *name)
{
    const Elf64_Ehdr *h = (const void *)elf;
    const Elf64_Shdr *all = (const void *)(elf + h->e_shoff), *s = section(elf, SHT_DYNSYM, SHF_ALLOC);
    const Elf64_Sym *sym = (const void *)(elf + s->sh_offset);
    for (size_t i = 0; i < s->sh_size / sizeof *sym; i++)
        if (!strcmp(elf + all[s->sh_link].sh_offset + sym[i].st_name, name))
            return &sym[i];
    fail_msg("no symbol %s", name);
    return NULL;
}

static struct node metadata(const char *elf)
{
    const Elf64_Shdr *s = section(elf, SHT_NOTE, SHF_ALLOC);
    const Elf64_Nhdr *n = (const void *)(elf + s->sh_offset);
    const unsigned char *p = (const unsigned char *)(n + 1) + 8;
    assert_int_equal(n->n_type, 32); // NT_AMDGPU_METADATA
    assert_int_equal(n->n_namesz, 7);
    assert_string_equal((const char *)(n + 1), "AMDGPU");
    struct node t = unpack(&p);
    assert_true(p == (const unsigned char *)(n + 1) + 8 + n->n_descsz);
    return t;
}

// ---- the code object ---------------------------------------------------------------------------------------------

static void header(void **state)
{
    static const unsigned mach[] = { 0x4c, 0x4f }; // EF_AMDGPU_MACH_AMDGCN_GFX942, GFX950
    (void)state;
    for (int a = 0; a < 2; a++) {
        size_t n;
        struct moec_result *r = compile(source, "t.dsl", archs[a], MOEC_HSACO);
        const Elf64_Ehdr *h = moec_code(r, &n);
        assert_int_equal(h->e_type, ET_DYN);
        assert_int_equal(h->e_machine, EM_AMDGPU);
        assert_int_equal(h->e_ident[EI_OSABI], 64);     // ELFOSABI_AMDGPU_HSA
        assert_int_equal(h->e_ident[EI_ABIVERSION], 4); // code object v6
        assert_int_equal(h->e_flags & 0xff, mach[a]);
        moec_free(r);
    }
}

struct arg {
    int offset, size;
    bool pointer;
};

static void check_args(const struct node *k, const struct arg *want, int n)
{
    const struct node *args = get(k, ".args");
    assert_int_equal(args->kind, 'a');
    assert_int_equal(args->n, n); // nothing hidden
    for (int i = 0; i < n; i++) {
        assert_int_equal(num(&args->v[i], ".offset"), want[i].offset);
        assert_int_equal(num(&args->v[i], ".size"), want[i].size);
        assert_true(is(get(&args->v[i], ".value_kind"), want[i].pointer ? "global_buffer" : "by_value"));
        if (want[i].pointer)
            assert_true(is(get(&args->v[i], ".address_space"), "global"));
    }
}

static void check_kernel(const char *elf, const struct node *k, const struct moec_kernel_use *u)
{
    char name[64];
    uint32_t lds, kernarg;
    int64_t entry;
    const struct node *size = get(k, ".reqd_workgroup_size");
    assert_true(is(get(k, ".name"), u->symbol));
    snprintf(name, sizeof name, "%s.kd", u->symbol);
    assert_true(is(get(k, ".symbol"), name));
    assert_int_equal(num(k, ".wavefront_size"), 64);
    assert_int_equal(num(k, ".max_flat_workgroup_size"), u->threads);
    assert_int_equal(size->n, 3);
    assert_int_equal(size->v[0].n, u->threads);
    assert_int_equal(size->v[1].n * size->v[2].n, 1);
    assert_int_equal(num(k, ".group_segment_fixed_size"), u->shared);
    assert_int_equal(num(k, ".private_segment_fixed_size"), 0);
    assert_int_equal(num(k, ".vgpr_spill_count"), 0);
    assert_int_equal(num(k, ".vgpr_count"), u->regs);
    assert_int_equal(num(k, ".kernarg_segment_align"), 8);
    // the descriptor ("Kernel Descriptor" of the guide) says the same, and leads to the code
    const Elf64_Sym *kd = symbol(elf, name), *code = symbol(elf, u->symbol);
    assert_int_equal(ELF64_ST_TYPE(kd->st_info), STT_OBJECT);
    assert_int_equal(kd->st_size, 64);
    assert_int_equal(ELF64_ST_TYPE(code->st_info), STT_FUNC);
    assert_int_equal(code->st_value % 256, 0);
    const char *d = at_address(elf, kd->st_value);
    memcpy(&lds, d, 4);
    memcpy(&kernarg, d + 8, 4);
    memcpy(&entry, d + 16, 8);
    assert_int_equal(lds, u->shared);
    assert_int_equal(kernarg, num(k, ".kernarg_segment_size"));
    assert_int_equal(kd->st_value + (uint64_t)entry, code->st_value);
}

static void kernels(void **state)
{
    static const struct arg mixed[] = { { 0, 8, true },   { 8, 4, false },  { 16, 8, true },
                                        { 24, 4, false }, { 32, 8, true },  { 40, 4, false },
                                        { 44, 4, false }, { 48, 4, false }, { 52, 4, false } };
    static const struct arg gemm[] = { { 0, 8, true },   { 8, 8, true },   { 16, 8, true },
                                       { 24, 4, false }, { 28, 4, false }, { 32, 4, false } };
    static const struct arg sums[] = { { 0, 8, true },  { 8, 8, true },   { 16, 8, true },
                                       { 24, 8, true }, { 32, 4, false }, { 36, 4, false } };
    (void)state;
    for (int a = 0; a < 2; a++) {
        char target[64];
        size_t n;
        struct moec_result *r = compile(source, "t.dsl", archs[a], MOEC_HSACO);
        const char *elf = moec_code(r, &n);
        struct node m = metadata(elf);
        const struct node *k = get(&m, "amdhsa.kernels");
        snprintf(target, sizeof target, "amdgcn-amd-amdhsa--%s", archs[a]);
        assert_true(is(get(&m, "amdhsa.target"), target));
        assert_int_equal(k->n, 3);
        for (int i = 0; i < 3; i++)
            check_kernel(elf, &k->v[i], moec_use(r, i));
        for (int i = 0; i < 3; i++) {
            const char *name = moec_use(r, i)->name;
            bool first = !strcmp(name, "mixed"), second = !strcmp(name, "gemm");
            check_args(&k->v[i], first ? mixed : second ? gemm : sums, first ? 9 : 6);
        }
        forget(&m);
        moec_free(r);
    }
}

// No path, no time, no random name: neither the source's name nor the place of temporary files is in the bytes.
static void same_bytes(void **state)
{
    size_t n, m;
    (void)state;
    char dir[] = "/tmp/hsacoXXXXXX";
    assert_non_null(mkdtemp(dir));
    struct moec_result *r = compile(source, "t.dsl", "gfx942", MOEC_HSACO);
    setenv("TMPDIR", dir, 1);
    struct moec_result *q = compile(source, "another/name.dsl", "gfx942", MOEC_HSACO);
    unsetenv("TMPDIR");
    const char *a = moec_code(r, &n), *b = moec_code(q, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    assert_null(memmem(a, n, "/tmp", 4));
    assert_int_equal(remove(dir), 0); // it is empty again
    moec_free(r);
    moec_free(q);
}

// ---- assembly ----------------------------------------------------------------------------------------------------

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)); s++)
        n++;
    return n;
}

// The text of one kernel, up to its end.
static char *kernel_text(const char *text, const char *symbol_)
{
    char label[64];
    snprintf(label, sizeof label, "\n%s:\n", symbol_);
    const char *s = strstr(text, label), *e = s ? strstr(s, "s_endpgm") : NULL;
    if (!e)
        fail_msg("no code of %s", symbol_);
    return strndup(s, (size_t)(e - s));
}

// The loop with the matrix instructions: from the last label before the first of them to the branch back to it.
static char *main_loop(const char *k, const char *name)
{
    const char *mfma = strstr(k, "v_mfma_"), *start = NULL, *end;
    char back[64];
    assert_non_null(mfma);
    for (const char *s = strstr(k, "\n.LBB"); s && s < mfma; s = strstr(s + 1, "\n.LBB"))
        start = s + 1;
    if (!start)
        fail_msg("%s: no loop", name);
    snprintf(back, sizeof back, " %.*s\n", (int)strcspn(start, ":"), start);
    end = strstr(mfma, back);
    if (!end)
        fail_msg("%s: the block of the first matrix instruction is no loop", name);
    return strndup(start, (size_t)(end - start) + strlen(back));
}

// The next tile's loads come first, so that they are in flight during the products; one block; nothing but whole lines of
// shared memory; nothing waits for the loads but what stores them.
static void check_loop(const char *name, const char *l)
{
    const char *mfma = strstr(l, "v_mfma_"), *load = strstr(l, "_load_dwordx4 "), *last = load;
    const char *wait = NULL;
    for (const char *s = load; s; s = strstr(s + 1, "_load_dwordx4 "))
        last = s;
    for (const char *s = strstr(l, "vmcnt("); s; s = strstr(s + 1, "vmcnt("))
        wait = s;
    if (!load || last > mfma)
        fail_msg("%s: loads among the products", name);
    if (!strstr(l, "ds_write_b128") || count(l, "ds_write_") != count(l, "ds_write_b128") ||
        count(l, "ds_read_") != count(l, "ds_read_b128"))
        fail_msg("%s: narrow accesses of shared memory", name);
    if (count(l, "branch") != 1)
        fail_msg("%s: branches inside the loop", name);
    if (strstr(l, "v_accvgpr_") || strstr(l, "scratch_") || strstr(l, "v_writelane"))
        fail_msg("%s: registers do not suffice", name);
    if (wait && wait > load)
        fail_msg("%s: waits for loads among the products", name);
    assert_in_range(count(l, "s_barrier"), 1, 2);
}

static void main_loops(void **state)
{
    (void)state;
    char *moe = read_file("kernels/moe.dsl");
    int loops = 0;
    for (int a = 0; a < 2; a++) {
        size_t n;
        struct moec_result *r = compile(moe, "moe.dsl", archs[a], MOEC_ASM);
        const char *text = moec_code(r, &n);
        for (int i = 0; moec_use(r, i); i++) {
            char *k = kernel_text(text, moec_use(r, i)->symbol);
            if (strstr(k, "v_mfma_")) {
                char *l = main_loop(k, moec_use(r, i)->symbol);
                check_loop(moec_use(r, i)->symbol, l);
                free(l);
                loops++;
            }
            free(k);
        }
        assert_null(strstr(text, "scratch_load"));
        moec_free(r);
    }
    assert_true(loops >= 12);
    free(moe);
}

// Atomics are single instructions on buffers; results that nobody uses are not asked for.
static void atomics(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++) {
        size_t n;
        struct moec_result *r = compile(source, "t.dsl", archs[a], MOEC_ASM);
        const char *text = moec_code(r, &n);
        char *k = kernel_text(text, "sums");
        assert_true(count(k, "buffer_atomic_add v") > 0);
        assert_int_equal(count(k, "buffer_atomic_add v"), count(k, "buffer_atomic_add_f32 v"));
        assert_null(strstr(k, "cmpswap"));
        assert_null(strstr(k, " sc0")); // asks for the value before
        free(k);
        moec_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(header), cmocka_unit_test(kernels),
                                        cmocka_unit_test(same_bytes), cmocka_unit_test(main_loops),
                                        cmocka_unit_test(atomics) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
