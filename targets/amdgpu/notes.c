// hsaco -> what each kernel takes, from the metadata note that LLVM writes into the object (AMDGPU usage guide, "Code
// Object V5 Metadata": a msgpack map with the array amdhsa.kernels). For reports and warnings: whatever does not read as
// expected counts as not known.
#include "amdgpu.h"

#include <elf.h>
#include <string.h>

enum { NOTE_METADATA = 32, DEPTH_MAX = 32 };

struct pack { // the bytes not yet read; bad once they made no sense
    const unsigned char *p, *end;
    bool bad;
};
// One item: a number, or a string, or the head of an array or map of n entries.
enum pack_kind { PACK_OTHER, PACK_INT, PACK_STR, PACK_ARRAY, PACK_MAP };
struct item {
    enum pack_kind kind;
    int64_t n; // value, length, entries
    const char *s;
};

static uint64_t big_endian(struct pack *k, int bytes)
{
    uint64_t v = 0;
    if (k->end - k->p < bytes)
        k->bad = true;
    for (int i = 0; i < bytes && !k->bad; i++)
        v = v << 8 | *k->p++;
    return v;
}

static struct item sized(struct pack *k, enum pack_kind kind, uint64_t n)
{
    struct item t = { .kind = kind, .n = (int64_t)n };
    if (n > (uint64_t)(k->end - k->p)) // every entry has a byte at least
        k->bad = true;
    if (kind != PACK_ARRAY && kind != PACK_MAP && !k->bad) {
        t.s = (const char *)k->p;
        k->p += n;
    }
    return t;
}

static struct item next(struct pack *k)
{
    unsigned b = (unsigned)big_endian(k, 1);
    if (k->bad)
        return (struct item){ .kind = PACK_OTHER };
    if (b < 0x80 || b >= 0xe0)
        return (struct item){ .kind = PACK_INT, .n = (int8_t)b };
    if (b < 0xc0)
        return b < 0x90   ? sized(k, PACK_MAP, b & 15)
               : b < 0xa0 ? sized(k, PACK_ARRAY, b & 15)
                          : sized(k, PACK_STR, b & 31);
    switch (b) {
    case 0xc4:
    case 0xc5:
    case 0xc6: return sized(k, PACK_OTHER, big_endian(k, 1 << (b - 0xc4))); // bytes
    case 0xca:
    case 0xcb: return sized(k, PACK_OTHER, b == 0xca ? 4 : 8); // floats
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: return (struct item){ .kind = PACK_INT, .n = (int64_t)big_endian(k, 1 << (b - 0xcc)) };
    case 0xd0: return (struct item){ .kind = PACK_INT, .n = (int8_t)big_endian(k, 1) };
    case 0xd1: return (struct item){ .kind = PACK_INT, .n = (int16_t)big_endian(k, 2) };
    case 0xd2: return (struct item){ .kind = PACK_INT, .n = (int32_t)big_endian(k, 4) };
    case 0xd3: return (struct item){ .kind = PACK_INT, .n = (int64_t)big_endian(k, 8) };
    case 0xd9:
    case 0xda:
    case 0xdb: return sized(k, PACK_STR, big_endian(k, 1 << (b - 0xd9)));
    case 0xdc:
    case 0xdd: return sized(k, PACK_ARRAY, big_endian(k, 2 << (b - 0xdc)));
    case 0xde:
    case 0xdf: return sized(k, PACK_MAP, big_endian(k, 2 << (b - 0xde)));
    case 0xc0:
    case 0xc2:
    case 0xc3: return (struct item){ .kind = PACK_OTHER }; // nil, false, true
    default: k->bad = true; return (struct item){ .kind = PACK_OTHER };
    }
}

static void skip(struct pack *k, int depth)
{
    struct item t = next(k);
    int64_t n = t.kind == PACK_MAP ? t.n * 2 : t.kind == PACK_ARRAY ? t.n : 0;
    if (depth == DEPTH_MAX)
        k->bad = true;
    while (n-- > 0 && !k->bad)
        skip(k, depth + 1);
}

static bool is(const struct item *t, const char *s)
{
    return t->kind == PACK_STR && (size_t)t->n == strlen(s) && !memcmp(t->s, s, (size_t)t->n);
}

// One map of amdhsa.kernels.
static struct code_use kernel_use(struct ctx *c, struct pack *k)
{
    struct code_use u = { .symbol = "", .regs = -1 };
    struct item map = next(k);
    k->bad |= map.kind != PACK_MAP;
    for (int64_t i = 0; i < map.n && !k->bad; i++) {
        struct item key = next(k);
        bool regs = is(&key, ".vgpr_count"), spills = is(&key, ".vgpr_spill_count"),
             stack = is(&key, ".private_segment_fixed_size");
        bool shared = is(&key, ".group_segment_fixed_size"), name = is(&key, ".name");
        if (!regs && !spills && !stack && !shared && !name) {
            skip(k, 0);
            continue;
        }
        struct item v = next(k);
        if (name && v.kind == PACK_STR && !k->bad)
            u.symbol = arena_strndup(c->arena, v.s, (size_t)v.n);
        else if (regs)
            u.regs = (int)v.n;
        else if (spills)
            u.spill_stores = (int)v.n * 4; // registers -> bytes of a lane
        else if (stack)
            u.stack = v.n;
        else if (shared)
            u.shared = v.n;
    }
    return u;
}

static void read_metadata(struct lowered *l, const unsigned char *p, size_t n)
{
    struct pack k = { p, p + n, false };
    struct item map = next(&k);
    for (int64_t i = 0; map.kind == PACK_MAP && i < map.n && !k.bad; i++) {
        struct item key = next(&k);
        if (!is(&key, "amdhsa.kernels")) {
            skip(&k, 0);
            continue;
        }
        struct item list = next(&k);
        if (list.kind != PACK_ARRAY || k.bad)
            return;
        l->uses = NEWN(l->c->arena, struct code_use, list.n + 1);
        for (int64_t e = 0; e < list.n && !k.bad; e++) {
            struct code_use u = kernel_use(l->c, &k);
            if (!k.bad)
                l->uses[l->nuses++] = u;
        }
    }
}

void amd_uses(struct lowered *l, const char *code, size_t len)
{
    Elf64_Ehdr h;
    Elf64_Shdr s;
    Elf64_Nhdr note;
    if (len < sizeof h)
        return;
    memcpy(&h, code, sizeof h);
    for (size_t i = 0; i < h.e_shnum; i++) {
        size_t at = h.e_shoff + i * sizeof s;
        if (h.e_shoff > len || h.e_shentsize != sizeof s || at + sizeof s > len)
            return;
        memcpy(&s, code + at, sizeof s);
        if (s.sh_type != SHT_NOTE || s.sh_offset > len || s.sh_size > len - s.sh_offset || s.sh_size < sizeof note)
            continue;
        memcpy(&note, code + s.sh_offset, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) / 4 * 4; // one note in the section: LLVM writes no other
        if (note.n_type == NOTE_METADATA && name <= s.sh_size - sizeof note &&
            note.n_descsz <= s.sh_size - sizeof note - name)
            read_metadata(l, (const unsigned char *)code + s.sh_offset + sizeof note + name, note.n_descsz);
    }
}
