// The image format: writing, checking, reading. What it is: image.h. This file holds the bytes.
//
// In: a description, or untrusted bytes. Out: bytes, or a description. Nothing here prints, exits, keeps state, or
// knows a compiler or a driver. The search word for places that must agree is "record".
#include "image.h"
#include "hash.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum section {
    S_CODE,
    S_PTX,
    S_BITCODE,
    S_STRINGS,
    S_KERNELS,
    S_PARAMS,
    S_DIMS,
    S_CLAUSES,
    S_AXES,
    S_TERMS,
    S_BOXES,
    S_COUNT
};
static const char *const section_names[S_COUNT] = { "code", "ptx",     "bitcode", "strings", "kernels", "params",
                                                    "dims", "clauses", "axes",    "terms",   "boxes" };
// Bytes of a record of each table; 1 for blobs.
static const int record_bytes[S_COUNT] = { 1, 1, 1, 1, 112, 56, 32, 32, 8, 16, 16 };
// The tables that a kernel has rows of, in the order of its record, and how many at most.
enum { TABLES = 5 };
static const enum section tables[TABLES] = { S_PARAMS, S_DIMS, S_CLAUSES, S_AXES, S_BOXES };
static const uint32_t table_most[TABLES] = { IMAGE_PARAMS_MAX, IMAGE_DIMS_MAX, IMAGE_CLAUSES_MAX, IMAGE_AXES_MAX,
                                             IMAGE_BOXES_MAX };
// Where its record has the first row and the number of rows of each.
static const int table_at[TABLES] = { 56, 64, 72, 80, 104 };
enum { FLAG_PERSISTENT = 1 }; // of a kernel
enum { PARAM_EARLY = 0x80 };  // in the byte of a parameter's kind
static const char magic[8] = { 'M', 'O', 'E', 'I', 'M', 'G', '\r', '\n' };
enum { HEADER = 224, SECTIONS_AT = 48, CHECKSUM_AT = 24, ALIGN = 16, THREADS_MAX = 1024, SHARED_MAX = 1 << 20 };

static bool fail(char err[IMAGE_ERR_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(char err[IMAGE_ERR_MAX], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, IMAGE_ERR_MAX, fmt, ap);
    va_end(ap);
    return false;
}

// ---- little-endian integers -----------------------------------------------------------------------------------

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static void put64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const unsigned char *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

static uint64_t checksum(const unsigned char *p, size_t n)
{
    uint64_t h = hash_words(HASH_START, p, CHECKSUM_AT);
    return hash_words(h, p + CHECKSUM_AT + 8, n - CHECKSUM_AT - 8);
}

// ---- writing ----------------------------------------------------------------------------------------------------

struct writer {
    unsigned char *base;  // NULL: only counting
    size_t at[S_COUNT];   // start of each section
    size_t used[S_COUNT]; // bytes of each section so far
    bool failed;
    char *err;
};

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

// Reserves n records in a table; NULL while counting.
static unsigned char *reserve(struct writer *w, enum section s, int n)
{
    unsigned char *p = w->base ? w->base + w->at[s] + w->used[s] : NULL;
    w->used[s] += (size_t)n * (size_t)record_bytes[s];
    return p;
}

static uint32_t put_string(struct writer *w, const char *s)
{
    size_t n = strlen(text_or_empty(s));
    uint32_t at = (uint32_t)w->used[S_STRINGS];
    if (n == 0)
        return 0;
    if (n > IMAGE_STRING_MAX && !w->failed)
        w->failed = !fail(w->err, "text '%.40s...' has %zu bytes; the format holds %d", s, n, IMAGE_STRING_MAX);
    if (w->base)
        memcpy(w->base + w->at[S_STRINGS] + at, s, n + 1);
    w->used[S_STRINGS] += n + 1;
    return at;
}

static void put_expr(struct writer *w, const struct image_expr *e, unsigned char *first_and_count)
{
    uint32_t first = (uint32_t)(w->used[S_TERMS] / (size_t)record_bytes[S_TERMS]);
    unsigned char *p = reserve(w, S_TERMS, e->n);
    if (!p)
        return;
    put32(first_and_count, first);
    put32(first_and_count + 4, (uint32_t)e->n);
    for (int i = 0; i < e->n; i++, p += 16) { // record: code, 0, value
        put32(p, (uint32_t)e->t[i].code);
        put32(p + 4, 0);
        put64(p + 8, (uint64_t)e->t[i].value);
    }
}

static void put_param(struct writer *w, const struct image_param *m)
{
    uint32_t name = put_string(w, m->name);
    unsigned char *p = reserve(w, S_PARAMS, 1);
    if (!p)
        return;
    put32(p, name); // record: name, kind and PARAM_EARLY, elem, rank, log2 of align, dims[4], values[4]
    p[4] = (unsigned char)(m->kind | (m->early ? PARAM_EARLY : 0));
    p[5] = (unsigned char)m->elem;
    p[6] = (unsigned char)m->rank;
    int align = m->kind == IMAGE_SCALAR ? 4 : m->align ? m->align : 16;
    while (p[7] < 30 && (1 << p[7]) < align)
        p[7]++;
    for (int i = 0; i < IMAGE_RANK_MAX; i++) {
        bool used = i < m->rank, constant = used && m->shape[i].dim < 0;
        put32(p + 8 + 4 * i, used ? (uint32_t)m->shape[i].dim : 0);
        put64(p + 24 + 8 * i, constant ? (uint64_t)m->shape[i].value : 0);
    }
}

static void put_dim(struct writer *w, const struct image_dim *d)
{
    uint32_t name = put_string(w, d->name);
    unsigned char *p = reserve(w, S_DIMS, 1);
    if (!p)
        return;
    put32(p, name); // record: name, 0, bound, multiple, max
    put64(p + 8, (uint64_t)d->bound);
    put64(p + 16, (uint64_t)d->multiple);
    put64(p + 24, (uint64_t)d->max);
}

static void put_clause(struct writer *w, const struct image_clause *c)
{
    static unsigned char nowhere[8];
    uint32_t name = put_string(w, c->name);
    unsigned char *p = reserve(w, S_CLAUSES, 1);
    if (p) { // record: name, kind, size, map, lo (first, count), hi (first, count)
        put32(p, name);
        put32(p + 4, (uint32_t)c->kind);
        put32(p + 8, (uint32_t)c->size);
        put32(p + 12, (uint32_t)c->map);
    }
    put_expr(w, &c->lo, p ? p + 16 : nowhere);
    put_expr(w, &c->hi, p ? p + 24 : nowhere);
}

static void put_box(struct writer *w, const struct image_box *b)
{
    unsigned char *p = reserve(w, S_BOXES, 1);
    if (!p)
        return;
    put32(p, (uint32_t)b->param); // record: param, rows, cols, swizzle
    put32(p + 4, (uint32_t)b->rows);
    put32(p + 8, (uint32_t)b->cols);
    put32(p + 12, (uint32_t)b->swizzle);
}

static void put_axis(struct writer *w, const struct image_axis *a)
{
    uint32_t name = put_string(w, a->name);
    unsigned char *p = reserve(w, S_AXES, 1);
    if (!p)
        return;
    put32(p, name); // record: name, size
    put32(p + 4, (uint32_t)a->size);
}

// What cannot be written at all; everything else is left to moe_image_check().
static bool counts_fit(const struct image_kernel *k, char *err)
{
    const char *name = text_or_empty(k->name);
    const int counts[TABLES] = { k->nparams, k->ndims, k->nclauses, k->naxes, k->nboxes };
    for (int i = 0; i < TABLES; i++)
        if (counts[i] < 0 || counts[i] > (int)table_most[i])
            return fail(err, "kernel '%.60s': %d %s; the format holds %" PRIu32, name, counts[i],
                        section_names[tables[i]], table_most[i]);
    for (int i = 0; i < k->nparams; i++)
        if (k->params[i].rank < 0 || k->params[i].rank > IMAGE_RANK_MAX)
            return fail(err, "kernel '%.60s', parameter %d: rank %d", name, i, k->params[i].rank);
    for (int i = 0; i < k->nclauses; i++) {
        int lo = k->clauses[i].lo.n, hi = k->clauses[i].hi.n;
        if (lo < 0 || lo > IMAGE_TERMS_MAX || hi < 0 || hi > IMAGE_TERMS_MAX)
            return fail(err, "kernel '%.60s', clause %d: a bound of %d terms; the format holds %d", name, i,
                        lo > hi ? lo : hi, IMAGE_TERMS_MAX);
    }
    return true;
}

static void put_kernel(struct writer *w, const struct image_kernel *k)
{
    uint32_t texts[4] = { put_string(w, k->name), put_string(w, k->variant), put_string(w, k->symbol),
                          put_string(w, k->doc) };
    const int counts[TABLES] = { k->nparams, k->ndims, k->nclauses, k->naxes, k->nboxes };
    unsigned char *p = reserve(w, S_KERNELS, 1);
    if (p) { // record: name, variant, symbol, doc, threads, regs, shared (8), warps_m, warps_n, stages, group,
        // cluster, flags, then first and count in params, dims, clauses, axes; fixed_ns, step_ps, resident, flight;
        // first and count in boxes
        const int facts[6] = { k->warps_m, k->warps_n, k->stages,
                               k->group,   k->cluster, k->persistent ? FLAG_PERSISTENT : 0 };
        for (int i = 0; i < 4; i++)
            put32(p + 4 * i, texts[i]);
        put32(p + 16, (uint32_t)k->threads);
        put32(p + 20, (uint32_t)k->regs);
        put64(p + 24, (uint64_t)k->shared);
        for (int i = 0; i < 6; i++)
            put32(p + 32 + 4 * i, (uint32_t)facts[i]);
        for (int i = 0; i < TABLES; i++) {
            put32(p + table_at[i], (uint32_t)(w->used[tables[i]] / (size_t)record_bytes[tables[i]]));
            put32(p + table_at[i] + 4, (uint32_t)counts[i]);
        }
        put32(p + 88, (uint32_t)k->fixed_ns);
        put32(p + 92, (uint32_t)k->step_ps);
        put32(p + 96, (uint32_t)k->resident);
        put32(p + 100, (uint32_t)k->flight);
    }
    for (int i = 0; i < k->nparams; i++)
        put_param(w, &k->params[i]);
    for (int i = 0; i < k->ndims; i++)
        put_dim(w, &k->dims[i]);
    for (int i = 0; i < k->nclauses; i++)
        put_clause(w, &k->clauses[i]);
    for (int i = 0; i < k->naxes; i++)
        put_axis(w, &k->axes[i]);
    for (int i = 0; i < k->nboxes; i++)
        put_box(w, &k->boxes[i]);
}

static void put_blob(struct writer *w, enum section s, const void *data, size_t n)
{
    if (w->base && n)
        memcpy(w->base + w->at[s], data, n);
    w->used[s] = n;
}

// All sections, to w->base, or only their sizes.
static void put_all(struct writer *w, const struct image_desc *d)
{
    w->used[S_STRINGS] = 1; // the empty string
    uint32_t arch = put_string(w, d->arch), compiler = put_string(w, d->compiler);
    if (w->base) {
        put32(w->base + 40, arch);
        put32(w->base + 44, compiler);
    }
    put_blob(w, S_CODE, d->code, d->code_size);
    put_blob(w, S_PTX, d->ptx, d->ptx_size);
    put_blob(w, S_BITCODE, d->bitcode, d->bitcode_size);
    for (int i = 0; i < d->nkernels; i++)
        put_kernel(w, &d->kernels[i]);
}

static size_t next_section(size_t end)
{
    return (end + 1 + (ALIGN - 1)) / ALIGN * ALIGN;
}

// Counts; false: cannot be written.
static bool measure(const struct image_desc *d, struct writer *w, size_t *total)
{
    size_t at = HEADER;
    if (d->nkernels < 0 || d->nkernels > IMAGE_KERNELS_MAX)
        return fail(w->err, "%d kernels; the format holds %d", d->nkernels, IMAGE_KERNELS_MAX);
    for (int i = 0; i < d->nkernels; i++)
        if (!counts_fit(&d->kernels[i], w->err))
            return false;
    put_all(w, d);
    for (int s = 0; s < S_COUNT; s++) {
        w->at[s] = at;
        at = next_section(at + w->used[s]);
    }
    *total = at;
    return !w->failed;
}

size_t moe_image_size(const struct image_desc *d)
{
    char err[IMAGE_ERR_MAX];
    struct writer w = { .err = err };
    size_t total = 0;
    return measure(d, &w, &total) ? total : 0;
}

bool moe_image_write(const struct image_desc *d, void *bytes, size_t size, char err[IMAGE_ERR_MAX])
{
    struct writer w = { .err = err };
    size_t total = 0;
    unsigned char *p = bytes;
    if (!measure(d, &w, &total))
        return false;
    if (size != total)
        return fail(err, "the image takes %zu bytes, not %zu", total, size);
    memset(p, 0, size);
    memcpy(p, magic, sizeof magic);
    put32(p + 8, IMAGE_VERSION);
    put32(p + 12, HEADER);
    put64(p + 16, total);
    put32(p + 32, (uint32_t)d->kind);
    put32(p + 36, (uint32_t)d->gbps);
    for (int s = 0; s < S_COUNT; s++) {
        put64(p + SECTIONS_AT + 16 * s, w.at[s]);
        put64(p + SECTIONS_AT + 16 * s + 8, w.used[s]);
        w.used[s] = 0;
    }
    w.base = p;
    put_all(&w, d);
    put64(p + CHECKSUM_AT, checksum(p, size));
    return moe_image_check(bytes, size, err);
}

// ---- checking ---------------------------------------------------------------------------------------------------

struct reader {
    const unsigned char *base;
    size_t at[S_COUNT];
    uint32_t n[S_COUNT];    // records of each table
    uint32_t next[S_COUNT]; // records seen so far: tables are used in order, without gaps
    char *err;
};

static const unsigned char *record(const struct reader *r, enum section s, uint32_t i)
{
    return r->base + r->at[s] + (size_t)i * (size_t)record_bytes[s];
}

// Sections in order, inside the image, without overlap, zeros between.
static bool check_sections(struct reader *r, size_t size)
{
    size_t at = HEADER;
    for (int s = 0; s < S_COUNT; s++) {
        const unsigned char *p = r->base + SECTIONS_AT + 16 * s;
        uint64_t offset = get64(p), bytes = get64(p + 8);
        if (offset != at)
            return fail(r->err, "section %s starts at %" PRIu64 ", not at %zu", section_names[s], offset, at);
        if (at >= size || bytes >= size - at)
            return fail(r->err, "section %s has %" PRIu64 " bytes at %zu of an image of %zu", section_names[s], bytes,
                        at, size);
        if (bytes % (uint64_t)record_bytes[s] || bytes / (uint64_t)record_bytes[s] > UINT32_MAX / 2)
            return fail(r->err, "section %s has %" PRIu64 " bytes, not whole records of %d", section_names[s], bytes,
                        record_bytes[s]);
        r->at[s] = at;
        r->n[s] = (uint32_t)(bytes / (uint64_t)record_bytes[s]);
        size_t end = at + (size_t)bytes;
        at = next_section(end);
        if (at > size)
            return fail(r->err, "section %s ends past the image", section_names[s]);
        for (; end < at; end++)
            if (r->base[end])
                return fail(r->err, "byte %zu after section %s is not zero", end, section_names[s]);
    }
    if (at != size)
        return fail(r->err, "the sections end at byte %zu of %zu", at, size);
    return true;
}

static bool check_header(struct reader *r, size_t size)
{
    const unsigned char *p = r->base;
    if (size < HEADER || memcmp(p, magic, sizeof magic))
        return fail(r->err, "not an image: %s", size < HEADER ? "too short" : "it starts with other bytes");
    if (get32(p + 8) != IMAGE_VERSION)
        return fail(r->err, "image format version %" PRIu32 ", this reader knows %d", get32(p + 8), IMAGE_VERSION);
    if (get32(p + 12) != HEADER)
        return fail(r->err, "a header of %" PRIu32 " bytes, not %d", get32(p + 12), HEADER);
    if (get64(p + 16) != size)
        return fail(r->err, "the image says it has %" PRIu64 " bytes, there are %zu", get64(p + 16), size);
    if (get64(p + CHECKSUM_AT) != checksum(p, size))
        return fail(r->err, "checksum %016" PRIx64 ", but the bytes give %016" PRIx64, get64(p + CHECKSUM_AT),
                    checksum(p, size));
    if (get32(p + 36) > 1000000)
        return fail(r->err, "model: %" PRIu32 " bytes a ns", get32(p + 36));
    return check_sections(r, size);
}

enum text_rule { TEXT_NAME, TEXT_NAME_OR_EMPTY, TEXT_LINE, TEXT_ANY };

static bool text_char_ok(unsigned char c, enum text_rule rule)
{
    bool name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
                c == '.' || c == '-';
    if (rule == TEXT_NAME || rule == TEXT_NAME_OR_EMPTY)
        return name;
    return (c >= ' ' && c != 0x7f) || (rule == TEXT_ANY && (c == '\n' || c == '\t'));
}

// The strings end in NUL (check_strings), so any offset inside gives a terminated string.
static bool check_text(const struct reader *r, uint32_t offset, enum text_rule rule, const char *what)
{
    if (offset >= r->n[S_STRINGS])
        return fail(r->err, "%s: offset %" PRIu32 " in strings of %" PRIu32 " bytes", what, offset, r->n[S_STRINGS]);
    const char *s = (const char *)record(r, S_STRINGS, offset);
    size_t n = strlen(s);
    if (n > IMAGE_STRING_MAX)
        return fail(r->err, "%s: a text of %zu bytes", what, n);
    if (!n && rule == TEXT_NAME)
        return fail(r->err, "%s is empty", what);
    for (size_t i = 0; i < n; i++)
        if (!text_char_ok((unsigned char)s[i], rule))
            return fail(r->err, "%s: character 0x%02x", what, (unsigned char)s[i]);
    return true;
}

static bool check_blobs(const struct reader *r)
{
    uint32_t kind = get32(r->base + 32);
    const unsigned char *strings = record(r, S_STRINGS, 0);
    if (!r->n[S_STRINGS] || strings[0] || strings[r->n[S_STRINGS] - 1])
        return fail(r->err, "section strings does not start and end with a zero byte");
    if (kind > IMAGE_HSACO)
        return fail(r->err, "code kind %" PRIu32 " is unknown", kind);
    if ((kind == IMAGE_NONE) != (r->n[S_CODE] == 0))
        return fail(r->err, "code kind %s with %" PRIu32 " bytes of code", moe_image_code_name((enum image_code)kind),
                    r->n[S_CODE]);
    if ((kind == IMAGE_PTX && memchr(record(r, S_CODE, 0), 0, r->n[S_CODE])) ||
        (r->n[S_PTX] && memchr(record(r, S_PTX, 0), 0, r->n[S_PTX])))
        return fail(r->err, "a zero byte inside PTX");
    return check_text(r, get32(r->base + 40), TEXT_NAME, "arch") &&
           check_text(r, get32(r->base + 44), TEXT_LINE, "compiler");
}

// A kernel being checked: where its rows start in each table, and how many they are.
struct place {
    const struct reader *r;
    uint32_t kernel;
    uint32_t first[S_COUNT], n[S_COUNT];
};

static int param_kind(const unsigned char *p)
{
    return p[4] & ~PARAM_EARLY;
}

static bool check_program(const struct place *k, uint32_t first, uint32_t n, const char *what)
{
    const struct reader *r = k->r;
    int depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *t = record(r, S_TERMS, first + i);
        uint32_t code = get32(t);
        uint64_t v = get64(t + 8);
        bool push = code >= IMAGE_T_CONST && code <= IMAGE_T_PARAM;
        if (code < IMAGE_T_CONST || code > IMAGE_T_REM || get32(t + 4))
            return fail(r->err, "kernel %" PRIu32 ", %s: term %" PRIu32 " has code %" PRIu32, k->kernel, what, i, code);
        if (!push && v)
            return fail(r->err, "kernel %" PRIu32 ", %s: operator %" PRIu32 " with a value", k->kernel, what, i);
        if (code == IMAGE_T_DIM && v >= k->n[S_DIMS])
            return fail(r->err, "kernel %" PRIu32 ", %s: dimension %" PRIu64 " of %" PRIu32, k->kernel, what, v,
                        k->n[S_DIMS]);
        if (code == IMAGE_T_PARAM) {
            const unsigned char *p = v < k->n[S_PARAMS] ? record(r, S_PARAMS, k->first[S_PARAMS] + (uint32_t)v) : NULL;
            if (!p || param_kind(p) != IMAGE_SCALAR || p[5] != IMAGE_I32)
                return fail(r->err, "kernel %" PRIu32 ", %s: parameter %" PRIu64 " is not an i32 scalar", k->kernel,
                            what, v);
        }
        depth += push ? 1 : -1;
        if (depth < 1 || depth > IMAGE_STACK_MAX)
            return fail(r->err, "kernel %" PRIu32 ", %s: %s at term %" PRIu32, k->kernel, what,
                        depth < 1 ? "operand missing" : "too deep", i);
    }
    if (depth != 1)
        return fail(r->err, "kernel %" PRIu32 ", %s: leaves %d values", k->kernel, what, depth);
    return true;
}

// Takes the next rows of the terms table.
static bool check_bound(struct reader *r, const struct place *k, const unsigned char *first_and_count, bool wanted,
                        const char *what)
{
    uint32_t first = get32(first_and_count), n = get32(first_and_count + 4);
    if (first != r->next[S_TERMS] || n > r->n[S_TERMS] - first || n > IMAGE_TERMS_MAX)
        return fail(r->err, "kernel %" PRIu32 ", %s: terms %" PRIu32 " + %" PRIu32 " of %" PRIu32, k->kernel, what,
                    first, n, r->n[S_TERMS]);
    r->next[S_TERMS] += n;
    if (!wanted)
        return n == 0 || fail(r->err, "kernel %" PRIu32 ", %s: bounds on a map", k->kernel, what);
    return check_program(k, first, n, what);
}

static bool check_clause(struct reader *r, const struct place *k, uint32_t i)
{
    const unsigned char *p = record(r, S_CLAUSES, k->first[S_CLAUSES] + i);
    uint32_t kind = get32(p + 4), size = get32(p + 8), map = get32(p + 12);
    if (!check_text(r, get32(p), TEXT_NAME, "clause name"))
        return false;
    if (kind < IMAGE_TILE || kind > IMAGE_IN_MAP)
        return fail(r->err, "kernel %" PRIu32 ", clause %" PRIu32 ": kind %" PRIu32, k->kernel, i, kind);
    if (kind == IMAGE_EACH ? size != 0 : size < 1 || size > INT32_MAX)
        return fail(r->err, "kernel %" PRIu32 ", clause %" PRIu32 ": tile of %" PRIu32, k->kernel, i, size);
    if (kind == IMAGE_IN_MAP) {
        if (map >= k->n[S_PARAMS] || param_kind(record(r, S_PARAMS, k->first[S_PARAMS] + map)) != IMAGE_MAP)
            return fail(r->err, "kernel %" PRIu32 ", clause %" PRIu32 ": parameter %" PRId32 " is not a tile map",
                        k->kernel, i, (int32_t)map);
    } else if (map != UINT32_MAX) {
        return fail(r->err, "kernel %" PRIu32 ", clause %" PRIu32 ": a map that is not used", k->kernel, i);
    }
    return check_bound(r, k, p + 16, kind != IMAGE_IN_MAP, "lower bound") &&
           check_bound(r, k, p + 24, kind != IMAGE_IN_MAP, "upper bound");
}

static bool check_dim(const struct place *k, uint32_t i)
{
    const unsigned char *p = record(k->r, S_DIMS, k->first[S_DIMS] + i);
    int64_t bound = (int64_t)get64(p + 8), multiple = (int64_t)get64(p + 16), max = (int64_t)get64(p + 24);
    if (!check_text(k->r, get32(p), TEXT_NAME, "dimension name"))
        return false;
    if (get32(p + 4) || max < 0 || max > INT32_MAX || bound < -1 || bound > max || multiple < 1 ||
        multiple > (int64_t)1 << 31 || (bound > 0 && bound % multiple))
        return fail(k->r->err,
                    "kernel %" PRIu32 ", dimension '%.40s': bound %" PRId64 ", multiple %" PRId64 ", max %" PRId64,
                    k->kernel, (const char *)record(k->r, S_STRINGS, get32(p)), bound, multiple, max);
    return true;
}

static bool check_param(const struct place *k, uint32_t i)
{
    const unsigned char *p = record(k->r, S_PARAMS, k->first[S_PARAMS] + i);
    int kind = param_kind(p), elem = p[5], rank = p[6], align = p[7];
    bool scalar = kind == IMAGE_SCALAR, map = kind == IMAGE_MAP;
    if (!check_text(k->r, get32(p), TEXT_NAME, "parameter name"))
        return false;
    const char *name = (const char *)record(k->r, S_STRINGS, get32(p));
    if (kind < IMAGE_IN || kind > IMAGE_SCALAR || elem < IMAGE_I32 || elem > IMAGE_F16 || rank > IMAGE_RANK_MAX ||
        align > 12 || (scalar && (rank || elem > IMAGE_F32 || align != 2)) || (map && (rank != 2 || elem != IMAGE_I32)))
        return fail(k->r->err, "kernel %" PRIu32 ", parameter '%.40s': kind %d, element %d, rank %d, alignment 2^%d",
                    k->kernel, name, kind, elem, rank, align);
    if (p[4] & PARAM_EARLY && kind != IMAGE_IN && !map)
        return fail(k->r->err, "kernel %" PRIu32 ", parameter '%.40s': only an input or a map may be early", k->kernel,
                    name);
    for (int j = 0; j < IMAGE_RANK_MAX; j++) {
        int32_t dim = (int32_t)get32(p + 8 + 4 * j);
        int64_t value = (int64_t)get64(p + 24 + 8 * j);
        bool constant = j < rank && dim == -1;
        if (j < rank ? dim < -1 || dim >= (int32_t)k->n[S_DIMS] : dim != 0)
            return fail(k->r->err, "kernel %" PRIu32 ", parameter '%.40s': shape entry %d is dimension %" PRId32,
                        k->kernel, name, j, dim);
        if (constant ? value < 0 || value > INT32_MAX || (map && j == 1 && value != 4) : value != 0)
            return fail(k->r->err, "kernel %" PRIu32 ", parameter '%.40s': shape entry %d is %" PRId64, k->kernel, name,
                        j, value);
        if (map && j == 1 && !constant)
            return fail(k->r->err, "kernel %" PRIu32 ", parameter '%.40s': a tile map is [N, 4]", k->kernel, name);
    }
    return true;
}

static bool check_axis(const struct place *k, uint32_t i)
{
    const unsigned char *p = record(k->r, S_AXES, k->first[S_AXES] + i);
    uint32_t size = get32(p + 4);
    if (size < 1 || size > INT32_MAX)
        return fail(k->r->err, "kernel %" PRIu32 ", axis %" PRIu32 ": tile of %" PRIu32, k->kernel, i, size);
    return check_text(k->r, get32(p), TEXT_NAME, "axis name");
}

static bool check_box(const struct place *k, uint32_t i)
{
    const unsigned char *b = record(k->r, S_BOXES, k->first[S_BOXES] + i);
    uint32_t param = get32(b), rows = get32(b + 4), cols = get32(b + 8), swizzle = get32(b + 12);
    const unsigned char *p =
        param < k->n[S_PARAMS] ? record(k->r, S_PARAMS, k->first[S_PARAMS] + param) : NULL; // checked before
    if (!p || param_kind(p) > IMAGE_INOUT || p[6] < 1 || p[7] < 4)
        return fail(k->r->err,
                    "kernel %" PRIu32 ", box %" PRIu32 ": parameter %" PRIu32 " is no tensor, aligned to 16 bytes",
                    k->kernel, i, param);
    if (rows < 1 || rows > IMAGE_BOX_MAX || cols < 1 || cols > IMAGE_BOX_MAX || (p[6] == 1 && rows != 1))
        return fail(k->r->err, "kernel %" PRIu32 ", box %" PRIu32 ": %" PRIu32 " x %" PRIu32 " of rank %d", k->kernel,
                    i, rows, cols, p[6]);
    uint32_t bytes = cols * (uint32_t)moe_image_elem_bytes((enum image_elem)p[5]);
    if (bytes % 16 || swizzle > 3 || (swizzle && bytes > 16u << swizzle))
        return fail(k->r->err, "kernel %" PRIu32 ", box %" PRIu32 ": rows of %" PRIu32 " bytes with swizzle %" PRIu32,
                    k->kernel, i, bytes, swizzle);
    return true;
}

static bool check_facts(const struct reader *r, const unsigned char *p, uint32_t i)
{
    uint32_t threads = get32(p + 16), regs = get32(p + 20);
    uint64_t shared = get64(p + 24);
    if (!check_text(r, get32(p), TEXT_NAME, "kernel name") ||
        !check_text(r, get32(p + 4), TEXT_NAME_OR_EMPTY, "kernel variant") ||
        !check_text(r, get32(p + 8), TEXT_NAME, "kernel symbol") ||
        !check_text(r, get32(p + 12), TEXT_ANY, "kernel doc"))
        return false;
    if (threads < 1 || threads > THREADS_MAX || regs > 1024 || shared > SHARED_MAX)
        return fail(r->err, "kernel %" PRIu32 ": %" PRIu32 " threads, %" PRIu32 " registers, %" PRIu64 " shared bytes",
                    i, threads, regs, shared);
    for (int j = 0; j < 6; j++)
        if (get32(p + 32 + 4 * j) > (j == 5 ? FLAG_PERSISTENT : 65536u))
            return fail(r->err, "kernel %" PRIu32 ": schedule fact %d is %" PRIu32, i, j, get32(p + 32 + 4 * j));
    for (int j = 0; j < 4; j++)
        if (get32(p + 88 + 4 * j) > (j == 2 ? 64u : 1u << 30))
            return fail(r->err, "kernel %" PRIu32 ": model fact %d is %" PRIu32, i, j, get32(p + 88 + 4 * j));
    if (get32(p + 52) & FLAG_PERSISTENT && !get32(p + 96))
        return fail(r->err, "kernel %" PRIu32 ": persistent, and no block is resident", i);
    for (uint32_t j = 0; j < i; j++) {
        const unsigned char *q = record(r, S_KERNELS, j);
        const char *t = (const char *)record(r, S_STRINGS, 0);
        if ((!strcmp(t + get32(p), t + get32(q)) && !strcmp(t + get32(p + 4), t + get32(q + 4))) ||
            !strcmp(t + get32(p + 8), t + get32(q + 8)))
            return fail(r->err, "kernels %" PRIu32 " and %" PRIu32 " have the same name and variant, or symbol", j, i);
    }
    return true;
}

static bool check_kernel(struct reader *r, uint32_t i)
{
    const unsigned char *p = record(r, S_KERNELS, i);
    struct place k = { .r = r, .kernel = i };
    bool ok = check_facts(r, p, i);
    for (int j = 0; j < TABLES && ok; j++) {
        enum section s = tables[j];
        uint32_t first = get32(p + table_at[j]), n = get32(p + table_at[j] + 4);
        if (first != r->next[s] || n > r->n[s] - first || n > table_most[j])
            return fail(r->err, "kernel %" PRIu32 ": %s %" PRIu32 " + %" PRIu32 " of %" PRIu32, i, section_names[s],
                        first, n, r->n[s]);
        k.first[s] = first;
        k.n[s] = n;
        r->next[s] += n;
    }
    for (uint32_t j = 0; ok && j < k.n[S_DIMS]; j++)
        ok = check_dim(&k, j);
    for (uint32_t j = 0; ok && j < k.n[S_PARAMS]; j++)
        ok = check_param(&k, j);
    for (uint32_t j = 0; ok && j < k.n[S_CLAUSES]; j++)
        ok = check_clause(r, &k, j);
    for (uint32_t j = 0; ok && j < k.n[S_AXES]; j++)
        ok = check_axis(&k, j);
    for (uint32_t j = 0; ok && j < k.n[S_BOXES]; j++)
        ok = check_box(&k, j);
    return ok;
}

static bool check_all(struct reader *r, size_t size)
{
    if (!check_header(r, size) || !check_blobs(r))
        return false;
    if (r->n[S_KERNELS] > IMAGE_KERNELS_MAX)
        return fail(r->err, "%" PRIu32 " kernels; the format holds %d", r->n[S_KERNELS], IMAGE_KERNELS_MAX);
    for (uint32_t i = 0; i < r->n[S_KERNELS]; i++)
        if (!check_kernel(r, i))
            return false;
    for (int s = S_PARAMS; s <= S_BOXES; s++)
        if (r->next[s] != r->n[s])
            return fail(r->err, "section %s has %" PRIu32 " records, %" PRIu32 " are used", section_names[s], r->n[s],
                        r->next[s]);
    return true;
}

bool moe_image_check(const void *bytes, size_t size, char err[IMAGE_ERR_MAX])
{
    struct reader r = { .base = bytes, .err = err };
    return check_all(&r, size);
}

// ---- reading: all of this runs on checked bytes
// --------------------------------------------------------------------

static const char *text_at(const struct reader *r, const unsigned char *p)
{
    return (const char *)record(r, S_STRINGS, get32(p));
}

static void read_expr(const struct reader *r, const unsigned char *first_and_count, struct image_expr *e)
{
    uint32_t first = get32(first_and_count);
    e->n = (int)get32(first_and_count + 4);
    for (int i = 0; i < e->n; i++) {
        const unsigned char *t = record(r, S_TERMS, first + (uint32_t)i);
        e->t[i].code = (enum image_term_code)get32(t);
        e->t[i].value = (int64_t)get64(t + 8);
    }
}

static void read_params(const struct reader *r, struct image_param *out)
{
    for (uint32_t i = 0; i < r->n[S_PARAMS]; i++) {
        const unsigned char *p = record(r, S_PARAMS, i);
        struct image_param *m = &out[i];
        m->name = text_at(r, p);
        m->kind = (enum image_param_kind)param_kind(p);
        m->early = p[4] & PARAM_EARLY;
        m->elem = (enum image_elem)p[5];
        m->rank = p[6];
        m->align = 1 << p[7];
        for (int j = 0; j < m->rank; j++) {
            m->shape[j].dim = (int32_t)get32(p + 8 + 4 * j);
            m->shape[j].value = (int64_t)get64(p + 24 + 8 * j);
        }
    }
}

static void read_boxes(const struct reader *r, struct image_box *out)
{
    for (uint32_t i = 0; i < r->n[S_BOXES]; i++) {
        const unsigned char *p = record(r, S_BOXES, i);
        out[i] = (struct image_box){ (int)get32(p), (int)get32(p + 4), (int)get32(p + 8), (int)get32(p + 12) };
    }
}

static void read_rows(const struct reader *r, struct image_dim *dims, struct image_clause *clauses,
                      struct image_axis *axes)
{
    for (uint32_t i = 0; i < r->n[S_DIMS]; i++) {
        const unsigned char *p = record(r, S_DIMS, i);
        dims[i].name = text_at(r, p);
        dims[i].bound = (int64_t)get64(p + 8);
        dims[i].multiple = (int64_t)get64(p + 16);
        dims[i].max = (int64_t)get64(p + 24);
    }
    for (uint32_t i = 0; i < r->n[S_CLAUSES]; i++) {
        const unsigned char *p = record(r, S_CLAUSES, i);
        clauses[i].name = text_at(r, p);
        clauses[i].kind = (enum image_clause_kind)get32(p + 4);
        clauses[i].size = (int)get32(p + 8);
        clauses[i].map = (int32_t)get32(p + 12);
        read_expr(r, p + 16, &clauses[i].lo);
        read_expr(r, p + 24, &clauses[i].hi);
    }
    for (uint32_t i = 0; i < r->n[S_AXES]; i++) {
        const unsigned char *p = record(r, S_AXES, i);
        axes[i].name = text_at(r, p);
        axes[i].size = (int)get32(p + 4);
    }
}

// Everything of the description in one block.
struct whole {
    struct image_desc desc;
    struct image_kernel *kernels;
    struct image_param *params;
    struct image_dim *dims;
    struct image_clause *clauses;
    struct image_axis *axes;
    struct image_box *boxes;
};

static void read_kernel(const struct reader *r, const unsigned char *p, const struct whole *w, struct image_kernel *k)
{
    k->name = text_at(r, p);
    k->variant = text_at(r, p + 4);
    k->symbol = text_at(r, p + 8);
    k->doc = text_at(r, p + 12);
    k->threads = (int)get32(p + 16);
    k->regs = (int)get32(p + 20);
    k->shared = (int64_t)get64(p + 24);
    k->warps_m = (int)get32(p + 32);
    k->warps_n = (int)get32(p + 36);
    k->stages = (int)get32(p + 40);
    k->group = (int)get32(p + 44);
    k->cluster = (int)get32(p + 48);
    k->params = w->params + get32(p + 56);
    k->nparams = (int)get32(p + 60);
    k->dims = w->dims + get32(p + 64);
    k->ndims = (int)get32(p + 68);
    k->clauses = w->clauses + get32(p + 72);
    k->nclauses = (int)get32(p + 76);
    k->axes = w->axes + get32(p + 80);
    k->naxes = (int)get32(p + 84);
    k->fixed_ns = (int)get32(p + 88);
    k->step_ps = (int)get32(p + 92);
    k->resident = (int)get32(p + 96);
    k->flight = (int)get32(p + 100);
    k->persistent = get32(p + 52) & FLAG_PERSISTENT;
    k->boxes = w->boxes + get32(p + 104);
    k->nboxes = (int)get32(p + 108);
}

static struct whole *whole_new(const struct reader *r)
{
    size_t sizes[6] = { r->n[S_KERNELS] * sizeof(struct image_kernel), r->n[S_PARAMS] * sizeof(struct image_param),
                        r->n[S_DIMS] * sizeof(struct image_dim),       r->n[S_CLAUSES] * sizeof(struct image_clause),
                        r->n[S_AXES] * sizeof(struct image_axis),      r->n[S_BOXES] * sizeof(struct image_box) };
    size_t total = sizeof(struct whole), at[6];
    for (int i = 0; i < 6; i++) {
        at[i] = total;
        total += (sizes[i] + 15) / 16 * 16;
    }
    struct whole *w = calloc(1, total + 16);
    char *p = (char *)w;
    if (!w)
        return NULL;
    w->kernels = (void *)(p + at[0]);
    w->params = (void *)(p + at[1]);
    w->dims = (void *)(p + at[2]);
    w->clauses = (void *)(p + at[3]);
    w->axes = (void *)(p + at[4]);
    w->boxes = (void *)(p + at[5]);
    return w;
}

struct image_desc *moe_image_read(const void *bytes, size_t size, char err[IMAGE_ERR_MAX])
{
    struct reader r = { .base = bytes, .err = err };
    if (!check_all(&r, size))
        return NULL;
    struct whole *w = whole_new(&r);
    if (!w) {
        fail(err, "out of memory");
        return NULL;
    }
    struct image_desc *d = &w->desc;
    read_params(&r, w->params);
    read_boxes(&r, w->boxes);
    read_rows(&r, w->dims, w->clauses, w->axes);
    for (uint32_t i = 0; i < r.n[S_KERNELS]; i++)
        read_kernel(&r, record(&r, S_KERNELS, i), w, &w->kernels[i]);
    d->arch = text_at(&r, r.base + 40);
    d->compiler = text_at(&r, r.base + 44);
    d->kind = (enum image_code)get32(r.base + 32);
    d->gbps = (int)get32(r.base + 36);
    d->code = record(&r, S_CODE, 0);
    d->code_size = r.n[S_CODE];
    d->ptx = r.n[S_PTX] ? record(&r, S_PTX, 0) : NULL;
    d->ptx_size = r.n[S_PTX];
    d->bitcode = r.n[S_BITCODE] ? record(&r, S_BITCODE, 0) : NULL;
    d->bitcode_size = r.n[S_BITCODE];
    d->nkernels = (int)r.n[S_KERNELS];
    d->kernels = w->kernels;
    return d;
}
