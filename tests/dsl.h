// For tests: DSL text to checked or laid-out kernels in one call. Header only.
#ifndef TEST_DSL_H
#define TEST_DSL_H
#include "../targets/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct dsl {
    struct ctx c;
    struct module *m;
};

static inline void dsl_errors(struct dsl *d, struct text *t)
{
    *t = (struct text){ .arena = d->c.arena };
    text_printf(t, "%s", "");
    for (struct diag *g = d->c.diags; g; g = g->next)
        diag_format(&d->c, g, t);
}

static inline void dsl_open(struct dsl *d, const char *arch, const char *src)
{
    int n;
    struct text t;
    memset(d, 0, sizeof *d);
    d->c.arena = arena_new(NULL, NULL);
    d->c.file = "test.dsl";
    d->c.src = src;
    d->c.src_len = strlen(src);
    d->c.diag_tail = &d->c.diags;
    d->c.arch = arch_find(arch);
    struct token *tokens = lex(&d->c, &n);
    d->m = check(&d->c, parse(&d->c, tokens, n));
    dsl_errors(d, &t);
    if (!d->m || d->c.errors)
        fail_msg("%s", t.s);
}

static inline void dsl_close(struct dsl *d)
{
    arena_free(d->c.arena);
}
#endif
