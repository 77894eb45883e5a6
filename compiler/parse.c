// Tokens -> syntax tree, by recursive descent. Every error names what was expected; after one, parsing goes on at the
// next statement or top-level keyword. Never fails: what could not be read is simply not in the tree.
#include "ast.h"

#include <string.h>

enum { DEPTH_MAX = 200 };

struct parser {
    struct ctx *c;
    const struct token *t;
    int at, n, depth;
    bool panic; // an error was reported; quiet until the parser is in step again
};

static struct node *block(struct parser *p);
static struct node *expr(struct parser *p);

// ---- tokens ------------------------------------------------------------------------------------------------------

static const struct token *peek(const struct parser *p)
{
    return &p->t[p->at];
}

static const struct token *ahead(const struct parser *p, int n)
{
    return &p->t[p->at + n < p->n ? p->at + n : p->n - 1];
}

static bool is(const struct token *t, const char *s)
{
    return (t->kind == TK_PUNCT || t->kind == TK_NAME) && !strcmp(t->s, s);
}

static const struct token *next(struct parser *p)
{
    const struct token *t = peek(p);
    if (t->kind != TK_END)
        p->at++;
    return t;
}

static bool accept(struct parser *p, const char *s)
{
    if (!is(peek(p), s))
        return false;
    next(p);
    return true;
}

static const char *shown(struct parser *p, const struct token *t)
{
    if (t->kind == TK_END)
        return "the end of the file";
    if (t->kind == TK_NEWLINE)
        return "the end of the line";
    return arena_printf(p->c->arena, "'%.40s'", t->s);
}

static void expected(struct parser *p, const char *what)
{
    if (!p->panic)
        error(p->c, peek(p)->loc, "expected %s, found %s", what, shown(p, peek(p)));
    p->panic = true;
}

static bool expect(struct parser *p, const char *s, const char *what)
{
    if (accept(p, s))
        return true;
    expected(p, what);
    return false;
}

static void skip_newlines(struct parser *p)
{
    while (peek(p)->kind == TK_NEWLINE || is(peek(p), ";"))
        next(p);
}

// ---- nodes -------------------------------------------------------------------------------------------------------

static struct node *make(struct parser *p, enum node_kind kind, struct loc loc)
{
    struct node *n = NEW(p->c->arena, struct node);
    n->kind = kind;
    n->loc = loc;
    n->value = kind == N_ITEM ? -1 : 0;
    n->value2 = kind == N_ITEM ? -1 : 0;
    return n;
}

static void add(struct parser *p, struct node *n, struct node *kid)
{
    if (!kid)
        return;
    if ((n->nkids & (n->nkids - 1)) == 0) { // powers of two: grow
        struct node **v = NEWN(p->c->arena, struct node *, n->nkids ? n->nkids * 2 : 1);
        if (n->nkids)
            memcpy(v, n->kids, sizeof *v * (size_t)n->nkids);
        n->kids = v;
    }
    n->kids[n->nkids++] = kid;
}

static struct node *name_node(struct parser *p, const char *what)
{
    if (peek(p)->kind != TK_NAME) {
        expected(p, what);
        return NULL;
    }
    const struct token *t = next(p);
    struct node *n = make(p, N_NAME, t->loc);
    n->name = t->s;
    return n;
}

static const char *a_name(struct parser *p, const char *what)
{
    struct node *n = name_node(p, what);
    return n ? n->name : "?";
}

static struct node *int_node(struct parser *p, const char *what)
{
    if (peek(p)->kind != TK_INT) {
        expected(p, what);
        return NULL;
    }
    const struct token *t = next(p);
    struct node *n = make(p, N_INT, t->loc);
    n->value = t->ival;
    return n;
}

static struct node *name_or_int(struct parser *p, const char *what)
{
    return peek(p)->kind == TK_INT ? int_node(p, what) : name_node(p, what);
}

static int64_t an_int(struct parser *p, const char *what)
{
    struct node *n = int_node(p, what);
    return n ? n->value : 0;
}

// ---- expressions -------------------------------------------------------------------------------------------------

static bool deeper(struct parser *p)
{
    if (++p->depth <= DEPTH_MAX)
        return true;
    if (!p->panic)
        error(p->c, peek(p)->loc, "nested too deeply (more than %d levels)", DEPTH_MAX);
    p->panic = true;
    return false;
}

static void arguments(struct parser *p, struct node *n, const char *close, const char *what)
{
    if (!is(peek(p), close))
        do {
            if (is(peek(p), close)) {
                expected(p, "an expression after ','");
                break;
            }
            add(p, n, expr(p));
        } while (!p->panic && accept(p, ","));
    expect(p, close, arena_printf(p->c->arena, "'%s' to close the %s of '%s'", close, what, n->name));
}

static struct node *primary(struct parser *p)
{
    const struct token *t = peek(p);
    struct node *n;
    if (t->kind == TK_INT || t->kind == TK_FLOAT) {
        next(p);
        n = make(p, t->kind == TK_INT ? N_INT : N_FLOAT, t->loc);
        n->value = t->ival;
        n->fvalue = t->fval;
        return n;
    }
    if (t->kind == TK_NAME) {
        next(p);
        n = make(p, N_NAME, t->loc);
        n->name = t->s;
        if (accept(p, "(")) {
            n->kind = N_CALL;
            arguments(p, n, ")", "arguments");
        } else if (accept(p, "[")) {
            n->kind = N_SUBSCRIPT;
            arguments(p, n, "]", "indices");
        }
        return n;
    }
    if (accept(p, "(")) {
        n = expr(p);
        expect(p, ")", "')' to close '('");
        return n;
    }
    expected(p, "an expression");
    return NULL;
}

static struct node *unary(struct parser *p)
{
    const struct token *t = peek(p);
    struct node *n = NULL;
    if (!deeper(p))
        return p->depth--, NULL;
    if (is(t, "-") || is(t, "!") || is(t, "~")) {
        next(p);
        n = make(p, N_UNARY, t->loc);
        n->name = t->s;
        struct node *x = unary(p);
        if (x)
            add(p, n, x);
        else
            n = NULL;
    } else {
        n = primary(p);
    }
    p->depth--;
    return n;
}

static const char *const levels[][7] = {
    { "|" }, { "^" }, { "&" }, { "==", "!=", "<=", ">=", "<", ">" }, { "<<", ">>" }, { "+", "-" }, { "*", "/", "%" },
};
enum { LEVELS = COUNTOF(levels), COMPARISONS = 3 };

static bool at_level(const struct token *t, int level)
{
    for (int i = 0; i < 7 && levels[level][i]; i++)
        if (t->kind == TK_PUNCT && is(t, levels[level][i]))
            return true;
    return false;
}

static struct node *binary(struct parser *p, int level)
{
    if (level == LEVELS)
        return unary(p);
    struct node *a = binary(p, level + 1);
    for (int count = 0; a && !p->panic && at_level(peek(p), level); count++) {
        const struct token *t = next(p);
        if (level == COMPARISONS && count && !p->panic) {
            error(p->c, t->loc, "comparisons do not chain: write (a %s b) & (b %s c)", t->s, t->s);
            p->panic = true;
        }
        struct node *n = make(p, N_BINARY, t->loc), *b = binary(p, level + 1);
        if (!b)
            return NULL;
        n->name = t->s;
        add(p, n, a);
        add(p, n, b);
        a = n;
    }
    return a;
}

static struct node *expr(struct parser *p)
{
    struct node *n = NULL;
    if (deeper(p))
        n = binary(p, 0);
    p->depth--;
    return n;
}

// ---- annotations, types ------------------------------------------------------------------------------------------

static void annotations(struct parser *p, struct node *n)
{
    VEC(struct annot) v = { 0 };
    while (!p->panic && is(peek(p), "@")) {
        struct annot a = { .loc = next(p)->loc };
        VEC(struct node *) args = { 0 };
        a.name = a_name(p, "a name after '@'");
        if (!p->panic && accept(p, "(")) {
            do {
                struct node *x = name_or_int(p, "a name or a number in the annotation");
                if (x)
                    VEC_PUSH(p->c->arena, &args, x);
            } while (!p->panic && accept(p, ","));
            expect(p, ")", "')' to close the annotation");
        }
        a.args = args.v;
        a.nargs = args.n;
        VEC_PUSH(p->c->arena, &v, a);
    }
    n->annots = v.v;
    n->nannots = v.n;
}

static struct node *type(struct parser *p)
{
    struct node *n = make(p, N_TYPE, peek(p)->loc);
    n->name = a_name(p, "a type");
    if (!p->panic && accept(p, "[")) {
        if (!strcmp(n->name, "tile_map"))
            n->kind = N_MAPTYPE;
        do
            add(p, n, name_or_int(p, "a dimension, axis or number"));
        while (!p->panic && accept(p, ","));
        expect(p, "]", "']' to close the shape");
        if (n->kind == N_MAPTYPE)
            n->name = NULL;
    }
    return n;
}

// ---- statements --------------------------------------------------------------------------------------------------

static struct node *clause(struct parser *p)
{
    struct node *n = make(p, N_CLAUSE, peek(p)->loc);
    if (accept(p, "(")) {
        n->name = a_name(p, "the name of the expert in '(expert, rows)'");
        expect(p, ",", "',' in '(expert, rows)'");
        n->name2 = a_name(p, "the name of the rows in '(expert, rows)'");
        expect(p, ")", "')' after '(expert, rows'");
    } else {
        n->name = a_name(p, "a name before 'in'");
    }
    expect(p, "in", "'in'");
    if (!p->panic)
        add(p, n, primary(p));
    annotations(p, n);
    return n;
}

static struct node *loop(struct parser *p, enum node_kind kind)
{
    struct node *n = make(p, kind, next(p)->loc);
    do
        add(p, n, clause(p));
    while (!p->panic && kind == N_PARALLEL && accept(p, ","));
    if (!p->panic)
        annotations(p, n);
    add(p, n, block(p));
    return n;
}

static struct node *conditional(struct parser *p)
{
    struct node *n = make(p, N_IF, next(p)->loc);
    if (!deeper(p))
        return p->depth--, n;
    add(p, n, expr(p));
    add(p, n, block(p));
    int mark = p->at;
    while (peek(p)->kind == TK_NEWLINE)
        next(p);
    if (!p->panic && accept(p, "else"))
        add(p, n, is(peek(p), "if") ? conditional(p) : block(p));
    else
        p->at = mark;
    p->depth--;
    return n;
}

static struct node *at_statement(struct parser *p)
{
    struct node *n = make(p, N_AT, next(p)->loc);
    n->name = a_name(p, "the name of an axis after 'at'");
    expect(p, "=", "'='");
    expect(p, "tile", "'tile('");
    expect(p, "(", "'(' after 'tile'");
    add(p, n, expr(p));
    expect(p, ")", "')' after the bound of the axis");
    expect(p, ",", "',' and the origin of the axis");
    if (!p->panic)
        add(p, n, expr(p));
    annotations(p, n);
    add(p, n, block(p));
    return n;
}

static struct node *role(struct parser *p)
{
    struct node *n = make(p, N_ROLE, next(p)->loc);
    n->name = a_name(p, "the name of the role");
    expect(p, "(", "'(' with the first warp and the number of warps");
    n->value = an_int(p, "the first warp");
    expect(p, ",", "','");
    n->value2 = an_int(p, "the number of warps");
    expect(p, ")", "')'");
    add(p, n, block(p));
    return n;
}

static struct node *shared(struct parser *p)
{
    struct node *n = make(p, N_SHARED, next(p)->loc);
    n->name = a_name(p, "the name of the shared buffer");
    expect(p, ":", "':'");
    n->name2 = a_name(p, "an element type");
    expect(p, "[", "'[stages]'");
    n->value = an_int(p, "the number of stages");
    expect(p, "]", "']'");
    expect(p, "[", "'[rows, cols]'");
    add(p, n, int_node(p, "the number of rows"));
    expect(p, ",", "','");
    add(p, n, int_node(p, "the number of columns"));
    expect(p, "]", "']'");
    annotations(p, n);
    return n;
}

static struct node *let(struct parser *p)
{
    struct node *n = make(p, N_LET, next(p)->loc);
    n->loc = peek(p)->loc;
    n->name = a_name(p, "a name after 'let'");
    if (!p->panic && accept(p, ":"))
        add(p, n, type(p));
    expect(p, "=", "'='");
    if (!p->panic)
        add(p, n, expr(p));
    annotations(p, n);
    return n;
}

static struct node *var(struct parser *p)
{
    struct node *n = make(p, N_VAR, next(p)->loc);
    do
        add(p, n, name_node(p, "a name after 'var'"));
    while (!p->panic && accept(p, ","));
    expect(p, ":", "':' and the type of the variable");
    if (!p->panic)
        add(p, n, type(p));
    expect(p, "=", "'=' and the variable's first value");
    if (!p->panic)
        add(p, n, expr(p));
    annotations(p, n);
    return n;
}

static struct node *assignment(struct parser *p)
{
    const struct token *t = peek(p);
    struct node *target = primary(p), *n;
    if (!target || p->panic)
        return NULL;
    const struct token *o = peek(p);
    if (target->kind == N_CALL) {
        n = make(p, N_EXPR, t->loc);
        add(p, n, target);
        annotations(p, n);
        return n;
    }
    bool compound = is(o, "+=") || is(o, "-=") || is(o, "*=");
    if (!compound && !is(o, "=")) {
        expected(p, "'=', '+=', '-=' or '*=' after the target of an assignment");
        return NULL;
    }
    if (target->kind != N_NAME && target->kind != N_SUBSCRIPT)
        error(p->c, t->loc, "cannot assign to this: expected a variable or a tensor element");
    next(p);
    n = make(p, N_ASSIGN, t->loc);
    n->value = compound ? o->s[0] : 0;
    add(p, n, target);
    add(p, n, expr(p));
    annotations(p, n);
    return n;
}

static struct node *statement(struct parser *p)
{
    const struct token *t = peek(p);
    if (is(t, "let"))
        return let(p);
    if (is(t, "var"))
        return var(p);
    if (is(t, "for"))
        return loop(p, N_FOR);
    if (is(t, "parallel"))
        return loop(p, N_PARALLEL);
    if (is(t, "if"))
        return conditional(p);
    if (is(t, "at") && ahead(p, 1)->kind == TK_NAME)
        return at_statement(p);
    if (is(t, "role") && ahead(p, 1)->kind == TK_NAME)
        return role(p);
    if (is(t, "shared") && ahead(p, 1)->kind == TK_NAME)
        return shared(p);
    return assignment(p);
}

// To the end of the statement that went wrong: its newline or ';', stepping over whole blocks; or before a '}'.
static void recover(struct parser *p)
{
    int open = 0;
    for (; peek(p)->kind != TK_END; next(p)) {
        const struct token *t = peek(p);
        if (!open && (t->kind == TK_NEWLINE || is(t, ";") || is(t, "}")))
            break;
        if (is(t, "{"))
            open++;
        else if (is(t, "}"))
            open--;
        else if (!open && p->at && p->t[p->at - 1].kind == TK_NEWLINE &&
                 (is(t, "kernel") || is(t, "schedule")))
            break;
    }
    p->panic = false;
}

static void statements(struct parser *p, struct node *n)
{
    for (;;) {
        skip_newlines(p);
        if (peek(p)->kind == TK_END || is(peek(p), "}"))
            return;
        int before = p->at;
        struct node *s = statement(p);
        if (!p->panic)
            add(p, n, s);
        const struct token *t = peek(p);
        if (!p->panic && t->kind != TK_NEWLINE && t->kind != TK_END && !is(t, ";") && !is(t, "}") &&
            !(p->at && is(&p->t[p->at - 1], "}")))
            expected(p, "the end of the statement");
        if (p->panic)
            recover(p);
        if (p->at == before && peek(p)->kind != TK_END && !is(peek(p), "}"))
            next(p);
    }
}

static struct node *block(struct parser *p)
{
    if (p->panic)
        return NULL;
    while (peek(p)->kind == TK_NEWLINE && is(ahead(p, 1), "{"))
        next(p);
    struct node *n = make(p, N_BLOCK, peek(p)->loc);
    struct loc open = peek(p)->loc;
    if (!expect(p, "{", "'{'"))
        return NULL;
    if (deeper(p))
        statements(p, n);
    p->depth--;
    if (!p->panic && !accept(p, "}")) {
        expected(p, "'}'");
        note(p->c, open, "to close this '{'");
    }
    return n;
}

// ---- top level ---------------------------------------------------------------------------------------------------

static struct node *param(struct parser *p)
{
    struct node *n = make(p, N_PARAM, peek(p)->loc);
    n->name = a_name(p, "the name of a parameter");
    expect(p, ":", "':' and the type of the parameter");
    if (is(peek(p), "out") || is(peek(p), "inout"))
        n->flags = is(next(p), "out") ? NF_OUT : NF_INOUT;
    if (!p->panic)
        add(p, n, type(p));
    return n;
}

static struct node *distribution(struct parser *p)
{
    struct node *n = make(p, N_DIST, next(p)->loc);
    n->name = a_name(p, "the name of the layout");
    expect(p, "{", "'{'");
    skip_newlines(p);
    while (!p->panic && !is(peek(p), "}")) {
        struct node *h = make(p, N_HOME, peek(p)->loc);
        h->name = a_name(p, "the name of an axis");
        expect(p, ":", "':' and the axis's bits");
        while (!p->panic && peek(p)->kind == TK_NAME)
            add(p, h, name_node(p, "a bit"));
        add(p, n, h);
        if (!p->panic && !is(peek(p), ";") && peek(p)->kind != TK_NEWLINE && !is(peek(p), "}"))
            expected(p, "a bit such as r0, l3 or w1, or ';'");
        skip_newlines(p);
    }
    expect(p, "}", "'}' to close the layout");
    return n;
}

static struct node *kernel(struct parser *p)
{
    struct node *n = make(p, N_KERNEL, peek(p)->loc);
    n->doc = next(p)->doc;
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of the kernel");
    if (expect(p, "(", "'(' and the parameters of the kernel")) {
        if (!is(peek(p), ")"))
            do
                add(p, n, param(p));
            while (!p->panic && accept(p, ","));
        expect(p, ")", "')' to close the parameters");
    }
    while (peek(p)->kind == TK_NEWLINE && (is(ahead(p, 1), "require") || is(ahead(p, 1), "@") || is(ahead(p, 1), "{")))
        next(p);
    if (!p->panic && accept(p, "require"))
        do {
            struct node *r = make(p, N_REQUIRE, peek(p)->loc);
            add(p, r, expr(p));
            add(p, n, r);
        } while (!p->panic && accept(p, ","));
    while (peek(p)->kind == TK_NEWLINE && (is(ahead(p, 1), "@") || is(ahead(p, 1), "{")))
        next(p);
    annotations(p, n);
    struct node *b = make(p, N_BLOCK, peek(p)->loc);
    struct loc open = peek(p)->loc;
    if (p->panic || !expect(p, "{", "'{' and the body of the kernel"))
        return n;
    skip_newlines(p);
    while (is(peek(p), "layout") && ahead(p, 1)->kind == TK_NAME) {
        add(p, n, distribution(p));
        if (p->panic)
            recover(p);
        skip_newlines(p);
    }
    statements(p, b);
    if (!accept(p, "}")) {
        expected(p, "'}'");
        note(p->c, open, "to close this '{'");
    }
    add(p, n, b);
    return n;
}

// name | name 4 | name 2x4 | name 2x4+1 | mma name
static struct node *item(struct parser *p)
{
    struct node *n = make(p, N_ITEM, peek(p)->loc);
    n->name = a_name(p, "a schedule key or an axis");
    if (p->panic)
        return n;
    if (peek(p)->kind == TK_NAME && !strcmp(n->name, "mma"))
        n->name2 = next(p)->s;
    if (peek(p)->kind == TK_INT) {
        n->value = next(p)->ival;
        if (accept(p, "x"))
            n->value2 = an_int(p, "a number after 'x'");
        if (!p->panic && accept(p, "+"))
            n->flags = (int)an_int(p, "a number of warps after '+'");
    }
    return n;
}

static struct node *schedule_block(struct parser *p)
{
    struct node *n = make(p, N_SCHEDULE, next(p)->loc);
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of a kernel after 'schedule'");
    if (accept(p, "."))
        n->name2 = a_name(p, "the name of a variant after '.'");
    expect(p, "for", "'for' and an arch");
    if (!p->panic)
        do
            add(p, n, name_node(p, "an arch"));
        while (!p->panic && accept(p, ","));
    expect(p, "{", "'{' and the schedule's items");
    for (skip_newlines(p); !p->panic && !is(peek(p), "}") && peek(p)->kind != TK_END; skip_newlines(p))
        add(p, n, item(p));
    expect(p, "}", "'}' to close the schedule");
    return n;
}

static struct node *typedef_line(struct parser *p)
{
    struct node *n = make(p, N_TYPEDEF, next(p)->loc), *e;
    n->loc = peek(p)->loc;
    n->name = a_name(p, "a name after 'type'");
    expect(p, "=", "'='");
    e = make(p, N_ELEM, peek(p)->loc);
    e->name = a_name(p, "an element type");
    add(p, n, e);
    return n;
}

struct node *parse(struct ctx *c, const struct token *t, int n)
{
    struct parser p = { .c = c, .t = t, .n = n };
    struct node *file = make(&p, N_FILE, (struct loc){ 1, 1, 0 });
    for (skip_newlines(&p); peek(&p)->kind != TK_END; skip_newlines(&p)) {
        int before = p.at;
        struct node *d = NULL;
        if (is(peek(&p), "kernel"))
            d = kernel(&p);
        else if (is(peek(&p), "schedule"))
            d = schedule_block(&p);
        else if (is(peek(&p), "type"))
            d = typedef_line(&p);
        else
            expected(&p, "'kernel', 'schedule' or 'type'");
        if (d && !p.panic)
            add(&p, file, d);
        if (p.panic) { // to the next declaration
            while (peek(&p)->kind != TK_END && (p.at == before || !(is(peek(&p), "kernel") || is(peek(&p), "schedule"))))
                next(&p);
            p.panic = false;
        }
    }
    return file;
}
