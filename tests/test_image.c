// runtime/image.c: what is written is read back the same; damage of any kind is refused, with a reason.
#include "image_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char err[IMAGE_ERR_MAX];

static unsigned char *make(const struct image_desc *d, size_t *n)
{
    *n = moe_image_size(d);
    assert_true(*n > 0);
    unsigned char *p = malloc(*n);
    assert_non_null(p);
    if (!moe_image_write(d, p, *n, err))
        fail_msg("%s", err);
    return p;
}

// FNV-1a by words over all but bytes 24..31: written again here, so that the format is pinned by two sources.
static void seal(unsigned char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u, w = 0;
    for (size_t i = 0; i < n; i++) {
        if (i < 24 || i >= 32)
            w |= (uint64_t)p[i] << 8 * (i % 8);
        if ((i % 8 == 7 || i + 1 == n) && (i < 24 || i >= 32)) {
            h = (h ^ w) * 0x100000001b3u;
            h ^= h >> 32;
            w = 0;
        }
    }
    for (int i = 0; i < 8; i++)
        p[24 + i] = (unsigned char)(h >> 8 * i);
}

static void same_expr(const struct image_expr *a, const struct image_expr *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->t[i].code, b->t[i].code);
        assert_int_equal(a->t[i].value, b->t[i].value);
    }
}

static void same_kernel(const struct image_kernel *a, const struct image_kernel *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->variant, b->variant);
    assert_string_equal(a->symbol, b->symbol);
    assert_string_equal(a->doc, b->doc);
    const int64_t fa[] = { a->threads,  a->shared,  a->regs,     a->warps_m, a->warps_n,    a->stages,
                           a->group,    a->cluster, a->nparams,  a->ndims,   a->nclauses,   a->naxes,
                           a->fixed_ns, a->step_ps, a->resident, a->flight,  a->persistent, a->nboxes };
    const int64_t fb[] = { b->threads,  b->shared,  b->regs,     b->warps_m, b->warps_n,    b->stages,
                           b->group,    b->cluster, b->nparams,  b->ndims,   b->nclauses,   b->naxes,
                           b->fixed_ns, b->step_ps, b->resident, b->flight,  b->persistent, b->nboxes };
    assert_memory_equal(fa, fb, sizeof fa);
    for (int i = 0; i < a->nparams; i++) {
        const struct image_param *p = &a->params[i], *q = &b->params[i];
        assert_string_equal(p->name, q->name);
        assert_true(p->kind == q->kind && p->elem == q->elem && p->rank == q->rank && p->align == q->align);
        assert_int_equal(p->early, q->early);
        for (int j = 0; j < p->rank; j++)
            assert_true(p->shape[j].dim == q->shape[j].dim && p->shape[j].value == q->shape[j].value);
    }
    for (int i = 0; i < a->ndims; i++) {
        const struct image_dim *p = &a->dims[i], *q = &b->dims[i];
        assert_string_equal(p->name, q->name);
        assert_true(p->bound == q->bound && p->multiple == q->multiple && p->max == q->max);
    }
    for (int i = 0; i < a->nclauses; i++) {
        const struct image_clause *p = &a->clauses[i], *q = &b->clauses[i];
        assert_string_equal(p->name, q->name);
        assert_true(p->kind == q->kind && p->size == q->size && p->map == q->map);
        same_expr(&p->lo, &q->lo);
        same_expr(&p->hi, &q->hi);
    }
    for (int i = 0; i < a->naxes; i++) {
        assert_string_equal(a->axes[i].name, b->axes[i].name);
        assert_int_equal(a->axes[i].size, b->axes[i].size);
    }
    for (int i = 0; i < a->nboxes; i++) {
        const struct image_box *p = &a->boxes[i], *q = &b->boxes[i];
        assert_true(p->param == q->param && p->rows == q->rows && p->cols == q->cols && p->swizzle == q->swizzle);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    size_t n, n2;
    unsigned char *p = make(&sample_image, &n);
    struct image_desc *d = moe_image_read(p, n, err);
    assert_non_null(d);
    assert_string_equal(d->arch, "sm_90a");
    assert_string_equal(d->compiler, "moec 0.1 (test)");
    assert_int_equal(d->kind, IMAGE_CUBIN);
    assert_int_equal(d->code_size, 9);
    assert_memory_equal(d->code,
                        "\x7f"
                        "ELF code",
                        10); // with the zero byte after it
    assert_memory_equal(d->ptx, ".version 8.0\n", 14);
    assert_memory_equal(d->bitcode, "BC", 3);
    assert_int_equal(d->nkernels, 4);
    for (int i = 0; i < 4; i++)
        same_kernel(&sample_kernels[i], &d->kernels[i]);
    unsigned char *q = make(d, &n2); // what was read, written again, is the same bytes
    assert_int_equal(n, n2);
    assert_memory_equal(p, q, n);
    free(d);
    free(q);
    free(p);
}

static void test_every_bit(void **state)
{
    (void)state;
    size_t n;
    unsigned char *p = make(&sample_image, &n);
    for (size_t i = 0; i < n; i++) {
        unsigned char was = p[i];
        for (int b = 0; b < 8; b++) {
            p[i] = (unsigned char)(was ^ 1 << b);
            assert_false(moe_image_check(p, n, err));
        }
        p[i] = (unsigned char)~was;
        assert_null(moe_image_read(p, n, err));
        p[i] = was;
    }
    assert_true(moe_image_check(p, n, err));
    free(p);
}

static void test_every_length(void **state)
{
    (void)state;
    size_t n;
    unsigned char *p = make(&sample_image, &n);
    for (size_t i = 0; i < n; i++) {
        unsigned char *q = malloc(i ? i : 1); // its own block, so that asan sees a read past the end
        memcpy(q, p, i);
        assert_false(moe_image_check(q, i, err));
        free(q);
    }
    unsigned char *q = calloc(1, n + 16);
    memcpy(q, p, n);
    assert_false(moe_image_check(q, n + 16, err));
    free(q);
    free(p);
}

static void ignore(void *user, const char *s, size_t n)
{
    assert_true(n > 0 && s[n - 1] == '\n');
    *(size_t *)user += n;
}

// Sealed again, a flip is either refused or gives a description whose every part can be walked.
static void test_sealed_flips(void **state)
{
    (void)state;
    size_t n, accepted = 0, text = 0;
    unsigned char *p = make(&sample_image, &n);
    for (size_t i = 0; i < n; i++) {
        for (int b = 0; b < 9; b++) {
            unsigned char *q = malloc(n);
            memcpy(q, p, n);
            q[i] ^= (unsigned char)(b < 8 ? 1 << b : 0xff);
            seal(q, n);
            struct image_desc *d = moe_image_read(q, n, err);
            if (d) {
                accepted++;
                moe_image_describe(d, NULL, true, ignore, &text);
            }
            free(d);
            free(q);
        }
    }
    assert_true(accepted > 0 && accepted < n * 9 / 2);
    free(p);
}

struct damage {
    size_t offset; // in the header, or a kernel record when `kernel`
    uint64_t value;
    int bytes, kernel;
    const char *says;
};
static const struct damage damages[] = {
    { 0, 'X', 1, -1, "not an image" },
    { 8, 2, 4, -1, "image format version 2, this reader knows 4" },
    { 16, 5, 8, -1, "says it has 5 bytes" },
    { 32, 9, 4, -1, "code kind 9" },
    { 32, 0, 4, -1, "code kind none with 9 bytes" },
    { 36, 1000001, 4, -1, "1000001 bytes a ns" },
    { 40, 100000, 4, -1, "arch: offset 100000" },
    { 40, 0, 4, -1, "arch is empty" },
    { 48, 0, 8, -1, "section code starts at 0" },
    { 56, UINT64_MAX, 8, -1, "section code has 18446744073709551615 bytes" },
    { 56, 1 << 20, 8, -1, "section code has 1048576 bytes" },
    { 16, 0, 4, 0, "0 threads" },
    { 16, 1025, 4, 0, "1025 threads" },
    { 24, 1 << 30, 8, 0, "1073741824 shared bytes" },
    { 0, 0, 4, 0, "kernel name is empty" },
    { 88, 1u << 31, 4, 0, "model fact 0" },
    { 96, 65, 4, 0, "model fact 2 is 65" },
    { 100, 1u << 31, 4, 1, "model fact 3" },
    { 60, 65, 4, 1, "params 5 + 65" },
    { 60, 6, 4, 3, "params 13 + 6 of 18" },
    { 56, 1, 4, 0, "params 1 + 5" },
    { 52, 2, 4, 0, "schedule fact 5 is 2" },
    { 96, 0, 4, 3, "persistent, and no block is resident" },
    { 108, 17, 4, 3, "boxes 0 + 17 of 2" },
    { 108, 3, 4, 3, "boxes 0 + 3 of 2" },
    { 108, 1, 4, 3, "section boxes has 2 records, 1 are used" },
    { 104, 1, 4, 3, "boxes 1 + 2" },
};

static void test_named_damage(void **state)
{
    (void)state;
    size_t n;
    unsigned char *p = make(&sample_image, &n), *q = malloc(n);
    size_t kernels = (size_t)p[48 + 16 * 4] | (size_t)p[49 + 16 * 4] << 8;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *x = &damages[i];
        memcpy(q, p, n);
        size_t at = x->offset + (x->kernel >= 0 ? kernels + 112 * (size_t)x->kernel : 0);
        for (int j = 0; j < x->bytes; j++)
            q[at + (size_t)j] = (unsigned char)(x->value >> 8 * j);
        seal(q, n);
        assert_false(moe_image_check(q, n, err));
        if (!strstr(err, x->says))
            fail_msg("damage %zu: \"%s\" does not say \"%s\"", i, err, x->says);
    }
    free(q);
    free(p);
}

// Descriptions that the writer must refuse; each a small change of the sample.
static void refuse(const struct image_desc *d, const char *says)
{
    size_t n = moe_image_size(d);
    unsigned char *p = malloc(n ? n : 1);
    assert_false(moe_image_write(d, p, n, err));
    if (!strstr(err, says))
        fail_msg("\"%s\" does not say \"%s\"", err, says);
    free(p);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct image_kernel k[2] = { sample_kernels[0], sample_kernels[1] };
    struct image_desc d = sample_image;
    d.kernels = k;
    d.nkernels = 2;
    k[1].variant = "r128";
    refuse(&d, "same name and variant");
    k[1] = sample_kernels[0];
    k[1].variant = "other";
    refuse(&d, "or symbol");
    d.nkernels = 1;
    k[0].nparams = IMAGE_PARAMS_MAX + 1;
    refuse(&d, "65 params; the format holds 64");
    k[0] = sample_kernels[0];
    struct image_clause c = sample_clauses[1];
    k[0].clauses = &c;
    k[0].nclauses = 1;
    c.hi.n = 2;
    refuse(&d, "leaves 2 values");
    c = sample_clauses[1];
    c.hi.t[0].code = IMAGE_T_ADD;
    c.hi.t[0].value = 0;
    refuse(&d, "operand missing");
    c = sample_clauses[1];
    c.hi.t[1].value = 0;
    refuse(&d, "parameter 0 is not an i32 scalar");
    c = sample_clauses[1];
    c.hi.t[0].value = 6;
    refuse(&d, "dimension 6 of 6");
    c = sample_clauses[1];
    c.size = 0;
    refuse(&d, "tile of 0");
    c = sample_clauses[0];
    c.map = 0;
    refuse(&d, "not a tile map");
    c = sample_clauses[1];
    c.hi.n = IMAGE_TERMS_MAX + 1;
    refuse(&d, "the format holds 32");
    k[0] = sample_kernels[0];
    k[0].symbol = "a b";
    refuse(&d, "character 0x20");
    k[0] = sample_kernels[0];
    d.kind = IMAGE_PTX;
    d.code = "a\0b";
    d.code_size = 3;
    refuse(&d, "zero byte inside PTX");
}

// What a box may be, and by how little it may not.
static void test_boxes(void **state)
{
    (void)state;
    static const struct {
        struct image_box box;
        const char *says; // NULL: fine
    } cases[] = {
        { { 0, 1, 8, 0 }, NULL },
        { { 0, 256, 256, 0 }, NULL },
        { { 4, 16, 16, 1 }, NULL }, // OUT
        { { 0, 16, 32, 2 }, NULL },
        { { 0, 16, 64, 3 }, NULL },
        { { 0, 16, 8, 3 }, NULL }, // narrower than the swizzle
        { { -1, 16, 8, 0 }, "box 0: parameter 4294967295 is no tensor" },
        { { 5, 16, 8, 0 }, "parameter 5 is no tensor" },
        { { 3, 1, 8, 0 }, "parameter 3 is no tensor" }, // a scalar
        { { 2, 1, 4, 0 }, "parameter 2 is no tensor" }, // a tile map
        { { 0, 0, 8, 0 }, "0 x 8 of rank 2" },
        { { 0, 257, 8, 0 }, "257 x 8 of rank 2" },
        { { 0, 1, 0, 0 }, "1 x 0 of rank 2" },
        { { 0, 1, 264, 0 }, "1 x 264 of rank 2" },
        { { 0, -1, 8, 0 }, "4294967295 x 8" },
        { { 0, 1, 12, 0 }, "rows of 24 bytes with swizzle 0" },
        { { 0, 1, 24, 1 }, "rows of 48 bytes with swizzle 1" },
        { { 0, 1, 40, 2 }, "rows of 80 bytes with swizzle 2" },
        { { 0, 1, 72, 3 }, "rows of 144 bytes with swizzle 3" },
        { { 0, 1, 8, 4 }, "rows of 16 bytes with swizzle 4" },
    };
    struct image_kernel k = sample_kernels[0];
    struct image_desc d = sample_image;
    size_t n;
    d.kernels = &k;
    d.nkernels = k.nboxes = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        k.boxes = &cases[i].box;
        if (cases[i].says)
            refuse(&d, cases[i].says);
        else
            free(make(&d, &n));
    }
    struct image_box many[IMAGE_BOXES_MAX + 1];
    for (int i = 0; i <= IMAGE_BOXES_MAX; i++)
        many[i] = cases[0].box;
    k.boxes = many;
    k.nboxes = IMAGE_BOXES_MAX;
    free(make(&d, &n));
    k.nboxes++;
    refuse(&d, "17 boxes; the format holds 16");
    k.nboxes = 1;
    struct image_param p[5];
    memcpy(p, sample_params, sizeof p);
    p[0].align = 8;
    k.params = p;
    refuse(&d, "box 0: parameter 0 is no tensor, aligned to 16 bytes");
    // Of two kernels each has its own.
    struct image_kernel two[2] = { sample_kernels[0], sample_kernels[3] };
    two[0].boxes = &cases[2].box;
    two[0].nboxes = 1;
    d.kernels = two;
    d.nkernels = 2;
    unsigned char *bytes = make(&d, &n);
    struct image_desc *read = moe_image_read(bytes, n, err);
    assert_non_null(read);
    same_kernel(&two[0], &read->kernels[0]);
    same_kernel(&two[1], &read->kernels[1]);
    free(read);
    free(bytes);
    d.kernels = &k;
    d.nkernels = 1;
    k = sample_kernels[2]; // of rank 1
    k.nboxes = 1;
    k.boxes = &(struct image_box){ 0, 1, 8, 1 };
    free(make(&d, &n));
    k.boxes = &(struct image_box){ 0, 2, 8, 1 };
    refuse(&d, "2 x 8 of rank 1");
}

// Only inputs and maps may be early, and of the byte that says so nothing else is taken.
static void test_early(void **state)
{
    (void)state;
    struct image_kernel k = sample_kernels[0];
    struct image_desc d = sample_image;
    struct image_param p[5];
    size_t n;
    d.kernels = &k;
    d.nkernels = 1;
    k.params = p;
    for (int i = 0; i < 5; i++) {
        char says[IMAGE_ERR_MAX];
        memcpy(p, sample_params, sizeof p);
        p[1].early = p[2].early = false;
        assert_false(moe_image_dependent(&k));
        p[i].early = true;
        assert_true(moe_image_dependent(&k));
        if (i < 3) {
            free(make(&d, &n));
            continue;
        }
        snprintf(says, sizeof says, "parameter '%s': only an input or a map may be early", p[i].name);
        refuse(&d, says);
    }
    memcpy(p, sample_params, sizeof p);
    p[4].early = true;
    p[4].kind = IMAGE_INOUT;
    refuse(&d, "parameter 'h': only an input");
    k.params = sample_params;
    unsigned char *bytes = make(&d, &n);
    unsigned char *kind = bytes + ((size_t)bytes[48 + 16 * 5] | (size_t)bytes[49 + 16 * 5] << 8) + 56 + 4; // of 'w'
    assert_int_equal(*kind, IMAGE_IN | 0x80);
    for (int bit = 3; bit < 7; bit++) {
        char says[32];
        *kind = (unsigned char)(IMAGE_IN | 0x80 | 1 << bit);
        seal(bytes, n);
        assert_false(moe_image_check(bytes, n, err));
        snprintf(says, sizeof says, "'w': kind %d,", IMAGE_IN | 1 << bit);
        assert_non_null(strstr(err, says));
    }
    free(bytes);
}

static void test_deep_program(void **state)
{
    (void)state;
    struct image_kernel k = sample_kernels[2];
    struct image_clause c = scale_clauses[0];
    struct image_desc d = sample_image;
    k.clauses = &c;
    d.kernels = &k;
    d.nkernels = 1;
    c.hi.n = 0;
    for (int i = 0; i < IMAGE_STACK_MAX; i++)
        c.hi.t[c.hi.n++] = (struct image_term){ IMAGE_T_CONST, 1 };
    for (int i = 1; i < IMAGE_STACK_MAX; i++)
        c.hi.t[c.hi.n++] = (struct image_term){ IMAGE_T_ADD, 0 };
    size_t n;
    free(make(&d, &n)); // exactly full: fine
    int64_t v;
    assert_true(moe_image_eval(&c.hi, NULL, NULL, &v));
    assert_int_equal(v, IMAGE_STACK_MAX);
    c.hi.n = 0;
    for (int i = 0; i <= IMAGE_STACK_MAX; i++)
        c.hi.t[c.hi.n++] = (struct image_term){ IMAGE_T_CONST, 1 };
    refuse(&d, "too deep");
    assert_false(moe_image_eval(&c.hi, NULL, NULL, &v));
}

static void test_grid(void **state)
{
    (void)state;
    int64_t blocks, dims[6] = { 10, 256, 8, 384, 7, 20 }, scalars[5] = { 0, 0, 0, 1000, 0 };
    assert_true(moe_image_grid(&sample_kernels[0], dims, scalars, &blocks, err));
    assert_int_equal(blocks, 7 * 6); // 7 map entries, 384 / 64 column tiles
    scalars[3] = 65;
    assert_true(moe_image_grid(&sample_kernels[0], dims, scalars, &blocks, err));
    assert_int_equal(blocks, 7 * 2);
    scalars[3] = -5;
    assert_true(moe_image_grid(&sample_kernels[0], dims, scalars, &blocks, err));
    assert_int_equal(blocks, 0);
    dims[0] = 8;
    assert_true(moe_image_grid(&sample_kernels[2], dims, scalars, &blocks, err));
    assert_int_equal(blocks, 2);
}

static int64_t run2(enum image_term_code code, int64_t a, int64_t b, bool *ok)
{
    struct image_expr e = { 3, { CONST_TERM(a), CONST_TERM(b), { code, 0 } } };
    int64_t v = -99;
    *ok = moe_image_eval(&e, NULL, NULL, &v);
    return v;
}

static void test_eval(void **state)
{
    (void)state;
    bool ok;
    assert_int_equal(run2(IMAGE_T_DIV, -7, 2, &ok), -3);
    assert_int_equal(run2(IMAGE_T_REM, -7, 2, &ok), -1);
    assert_int_equal(run2(IMAGE_T_DIV, 7, 0, &ok), 0);
    assert_true(ok);
    assert_int_equal(run2(IMAGE_T_REM, INT64_MIN, -1, &ok), 0);
    assert_true(ok);
    run2(IMAGE_T_DIV, INT64_MIN, -1, &ok);
    assert_false(ok);
    run2(IMAGE_T_MUL, INT64_MAX, 2, &ok);
    assert_false(ok);
    assert_int_equal(run2(IMAGE_T_MIN, -3, 4, &ok), -3);
    assert_int_equal(run2(IMAGE_T_MAX, -3, 4, &ok), 4);
}

static void collect(void *user, const char *s, size_t n)
{
    strncat(user, s, n);
}

static void test_describe(void **state)
{
    (void)state;
    char text[8192] = "";
    moe_image_describe(&sample_image, "scale", false, collect, text);
    assert_string_equal(text, "image 4 arch sm_90a code cubin\n"
                              "kernel scale symbol scale\n"
                              "  threads 128 shared 0 warps 4x1 stages 0 group 0\n"
                              "  param a: in f32[C] align 16\n"
                              "  param f: scalar f32 align 4\n"
                              "  param b: inout f32[C] align 16\n"
                              "  dim C multiple 4 max 1048576\n"
                              "  grid c in each (0) to (C 3 + 4 /)\n");
    text[0] = 0;
    moe_image_describe(&sample_image, "take", false, collect, text);
    assert_non_null(strstr(text, "  threads 160 shared 49152 warps 4x1 stages 3 group 0 persistent, 2 resident\n"));
    assert_non_null(strstr(text, "  box w: 128 x 64 swizzle 128\n  box x: 64 x 32\n"));
    assert_non_null(strstr(text, "  param x: in bf16[T, H] align 16\n  param w: early in bf16[E, I, H] align 16\n"
                                 "  param tiles: early map i32[N, 4] align 16\n"));
    assert_int_equal(moe_image_axis(&sample_kernels[0], "k"), 64);
    assert_int_equal(moe_image_axis(&sample_kernels[0], "z"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_every_bit),    cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_sealed_flips), cmocka_unit_test(test_named_damage), cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_deep_program), cmocka_unit_test(test_grid),         cmocka_unit_test(test_eval),
        cmocka_unit_test(test_describe),     cmocka_unit_test(test_boxes),        cmocka_unit_test(test_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
