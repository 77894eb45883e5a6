// Using a description of image.h: programs, grids, names, text. No bytes of the format here.
#include "image.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool apply(enum image_term_code code, int64_t a, int64_t b, int64_t *out)
{
    *out = 0;
    switch (code) {
    case IMAGE_T_ADD: return !__builtin_add_overflow(a, b, out);
    case IMAGE_T_SUB: return !__builtin_sub_overflow(a, b, out);
    case IMAGE_T_MUL: return !__builtin_mul_overflow(a, b, out);
    case IMAGE_T_DIV:
        if (a == INT64_MIN && b == -1)
            return false;
        *out = b ? a / b : 0;
        return true;
    case IMAGE_T_REM: *out = b && b != -1 ? a % b : 0; return true;
    case IMAGE_T_MIN: *out = a < b ? a : b; return true;
    case IMAGE_T_MAX: *out = a > b ? a : b; return true;
    case IMAGE_T_CONST:
    case IMAGE_T_DIM:
    case IMAGE_T_PARAM: break;
    }
    return false;
}

bool moe_image_eval(const struct image_expr *e, const int64_t *dims, const int64_t *scalars, int64_t *out)
{
    int64_t stack[IMAGE_STACK_MAX];
    int n = 0;
    for (int i = 0; i < e->n; i++) {
        const struct image_term *t = &e->t[i];
        bool push = t->code == IMAGE_T_CONST || t->code == IMAGE_T_DIM || t->code == IMAGE_T_PARAM;
        if (push ? n == IMAGE_STACK_MAX : n < 2)
            return false;
        if (push) {
            stack[n++] = t->code == IMAGE_T_CONST ? t->value
                         : t->code == IMAGE_T_DIM ? dims[t->value]
                                                  : scalars[t->value];
            continue;
        }
        n--;
        if (!apply(t->code, stack[n - 1], stack[n], &stack[n - 1]))
            return false;
    }
    if (n != 1)
        return false;
    *out = stack[0];
    return true;
}

static bool clause_extent(const struct image_kernel *k, const struct image_clause *c, const int64_t *dims,
                          const int64_t *scalars, int64_t *extent)
{
    int64_t lo, hi, n;
    if (c->kind == IMAGE_IN_MAP) {
        *extent = moe_image_extent(&k->params[c->map].shape[0], dims);
        return true;
    }
    if (!moe_image_eval(&c->lo, dims, scalars, &lo) || !moe_image_eval(&c->hi, dims, scalars, &hi) ||
        __builtin_sub_overflow(hi, lo, &n))
        return false;
    if (n < 0)
        n = 0;
    *extent = c->kind == IMAGE_EACH || n == 0 ? n : (n - 1) / c->size + 1;
    return true;
}

bool moe_image_grid(const struct image_kernel *k, const int64_t *dims, const int64_t *scalars, int64_t *blocks,
                    char err[IMAGE_ERR_MAX])
{
    *blocks = 1;
    for (int i = 0; i < k->nclauses; i++) {
        int64_t n;
        if (!clause_extent(k, &k->clauses[i], dims, scalars, &n) || __builtin_mul_overflow(*blocks, n, blocks)) {
            snprintf(err, IMAGE_ERR_MAX, "kernel %.60s: the extent of '%.60s' overflows", k->name, k->clauses[i].name);
            return false;
        }
    }
    return true;
}

bool moe_image_dependent(const struct image_kernel *k)
{
    for (int i = 0; i < k->nparams; i++)
        if (k->params[i].early)
            return true;
    return false;
}

int moe_image_elem_bytes(enum image_elem e)
{
    switch (e) {
    case IMAGE_I32:
    case IMAGE_F32: return 4;
    case IMAGE_BF16:
    case IMAGE_F16: return 2;
    }
    return 0;
}

const char *moe_image_elem_name(enum image_elem e)
{
    switch (e) {
    case IMAGE_I32: return "i32";
    case IMAGE_F32: return "f32";
    case IMAGE_BF16: return "bf16";
    case IMAGE_F16: return "f16";
    }
    return "?";
}

const char *moe_image_code_name(enum image_code k)
{
    switch (k) {
    case IMAGE_NONE: return "none";
    case IMAGE_PTX: return "ptx";
    case IMAGE_CUBIN: return "cubin";
    case IMAGE_HSACO: return "hsaco";
    }
    return "?";
}

int moe_image_axis(const struct image_kernel *k, const char *name)
{
    for (int i = 0; i < k->naxes; i++)
        if (!strcmp(k->axes[i].name, name))
            return k->axes[i].size;
    return 0;
}

// ---- text -------------------------------------------------------------------------------------------------------

struct printer {
    void (*put)(void *user, const char *s, size_t n);
    void *user;
    char line[1024];
    size_t n; // of the line so far; longer lines are cut
};

static void print(struct printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void print(struct printer *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(p->line + p->n, sizeof p->line - p->n, fmt, ap);
    va_end(ap);
    if (n > 0)
        p->n += (size_t)n;
    if (p->n >= sizeof p->line)
        p->n = sizeof p->line - 1;
}

static void end_line(struct printer *p)
{
    if (p->n == sizeof p->line - 1)
        p->n--;
    p->line[p->n++] = '\n';
    p->put(p->user, p->line, p->n);
    p->n = 0;
}

static void print_expr(struct printer *p, const struct image_kernel *k, const struct image_expr *e)
{
    static const char *const words[] = { "", "", "", "", "+", "-", "*", "/", "min", "max", "%" };
    for (int i = 0; i < e->n; i++) {
        const struct image_term *t = &e->t[i];
        const char *space = i ? " " : "";
        if (t->code == IMAGE_T_CONST)
            print(p, "%s%" PRId64, space, t->value);
        else if (t->code == IMAGE_T_DIM)
            print(p, "%s%s", space, k->dims[t->value].name);
        else if (t->code == IMAGE_T_PARAM)
            print(p, "%s%s", space, k->params[t->value].name);
        else
            print(p, "%s%s", space, words[t->code]);
    }
}

static void print_param(struct printer *p, const struct image_kernel *k, const struct image_param *m)
{
    static const char *const kinds[] = { "", "in", "out", "inout", "map", "scalar" };
    print(p, "  param %s: %s%s %s", m->name, m->early ? "early " : "", kinds[m->kind], moe_image_elem_name(m->elem));
    for (int i = 0; i < m->rank; i++) {
        print(p, i ? ", " : "[");
        if (m->shape[i].dim < 0)
            print(p, "%" PRId64, m->shape[i].value);
        else
            print(p, "%s", k->dims[m->shape[i].dim].name);
    }
    print(p, m->rank ? "] align %d" : " align %d", m->align);
    end_line(p);
}

static void print_dim(struct printer *p, const struct image_dim *d)
{
    print(p, "  dim %s", d->name);
    if (d->bound >= 0)
        print(p, " = %" PRId64, d->bound);
    if (d->multiple != 1)
        print(p, " multiple %" PRId64, d->multiple);
    if (d->max != INT32_MAX)
        print(p, " max %" PRId64, d->max);
    end_line(p);
}

static void print_clause(struct printer *p, const struct image_kernel *k, const struct image_clause *c)
{
    print(p, "  grid %s in ", c->name);
    if (c->kind == IMAGE_IN_MAP) {
        print(p, "%s, tile %d", k->params[c->map].name, c->size);
    } else {
        print(p, c->kind == IMAGE_TILE ? "tile " : "each");
        if (c->kind == IMAGE_TILE)
            print(p, "%d", c->size);
        print(p, " (");
        print_expr(p, k, &c->lo);
        print(p, ") to (");
        print_expr(p, k, &c->hi);
        print(p, ")");
    }
    end_line(p);
}

static void print_box(struct printer *p, const struct image_kernel *k, const struct image_box *b)
{
    print(p, "  box %s: %d x %d", k->params[b->param].name, b->rows, b->cols);
    if (b->swizzle)
        print(p, " swizzle %d", 16 << b->swizzle);
    end_line(p);
}

static void print_kernel(struct printer *p, const struct image_kernel *k)
{
    print(p, "kernel %s%s%s symbol %s", k->name, k->variant[0] ? "." : "", k->variant, k->symbol);
    end_line(p);
    print(p, "  threads %d shared %" PRId64, k->threads, k->shared);
    if (k->regs)
        print(p, " regs %d", k->regs);
    print(p, " warps %dx%d stages %d group %d", k->warps_m, k->warps_n, k->stages, k->group);
    if (k->cluster > 1)
        print(p, " cluster %d", k->cluster);
    if (k->persistent)
        print(p, " persistent, %d resident", k->resident);
    end_line(p);
    for (int i = 0; i < k->nparams; i++)
        print_param(p, k, &k->params[i]);
    for (int i = 0; i < k->ndims; i++)
        print_dim(p, &k->dims[i]);
    for (int i = 0; i < k->nclauses; i++)
        print_clause(p, k, &k->clauses[i]);
    for (int i = 0; i < k->nboxes; i++)
        print_box(p, k, &k->boxes[i]);
    if (k->naxes) {
        print(p, "  axes");
        for (int i = 0; i < k->naxes; i++)
            print(p, " %s=%d", k->axes[i].name, k->axes[i].size);
        end_line(p);
    }
}

void moe_image_describe(const struct image_desc *d, const char *kernel, bool sizes,
                        void (*put)(void *user, const char *s, size_t n), void *user)
{
    struct printer p = { .put = put, .user = user };
    print(&p, "image %d arch %s code %s", IMAGE_VERSION, d->arch, moe_image_code_name(d->kind));
    if (sizes)
        print(&p, " %zu bytes, ptx %zu, bitcode %zu, by %s", d->code_size, d->ptx_size, d->bitcode_size, d->compiler);
    end_line(&p);
    for (int i = 0; i < d->nkernels; i++)
        if (!kernel || !strcmp(kernel, d->kernels[i].name))
            print_kernel(&p, &d->kernels[i]);
}
