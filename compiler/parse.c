// Tokens -> syntax tree, by recursive descent. Every error names what was expected; after one, parsing goes on at the
// next statement or top-level keyword. Never fails: what could not be read is simply not in the tree.
//
// Depths are limited (DEPTH_MAX, HEIGHT_MAX): everything that walks the tree later does so by recursion.
#include "ast.h"

#include <string.h>

enum { DEPTH_MAX = 200, HEIGHT_MAX = 400 };

struct parser {
    struct ctx *c;
    const struct token *t;
    int at, n;
    int depth;           // of blocks and expressions around this place
    int height;          // of the expression read last
    int told;            // token of the last error: no second one there
    struct diag **after; // end of the lexer's diagnostics
    bool panic;          // an error was reported; quiet until the parser is in step again
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

static bool is_one_of(const struct token *t, const char *const *words) // ends with NULL
{
    for (; *words; words++)
        if (is(t, *words))
            return true;
    return false;
}

// Words that name nothing else. The others (type, out, tile, each, at, role, shared, layout ...) are known by their place.
static bool keyword(const struct token *t)
{
    static const char *const words[] = { "kernel", "schedule", "let",     "var",  "for",   "parallel", "in",
                                         "if",     "else",     "require", "true", "false", NULL };
    return t->kind == TK_NAME && is_one_of(t, words);
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

static void skip_newlines(struct parser *p)
{
    while (peek(p)->kind == TK_NEWLINE || is(peek(p), ";"))
        next(p);
}

// ---- errors ------------------------------------------------------------------------------------------------------

// Starts the panic. False if an error here would only be a consequence of one that was reported.
static bool complain(struct parser *p)
{
    bool ok = !p->panic && p->told != p->at;
    for (const struct diag *d = p->c->diags; ok && d && d != *p->after; d = d->next)
        ok = d->loc.line != peek(p)->loc.line; // the lexer dropped something on this line
    p->panic = true;
    p->told = p->at;
    return ok;
}

static const char *shown(struct parser *p, const struct token *t)
{
    if (t->kind == TK_END)
        return "the end of the file";
    if (t->kind == TK_NEWLINE)
        return "the end of the line";
    return arena_printf(p->c->arena, keyword(t) ? "the keyword '%.40s'" : "'%.40s'", t->s);
}

static void expected(struct parser *p, const char *what)
{
    if (complain(p))
        error(p->c, peek(p)->loc, "expected %s, found %s", what, shown(p, peek(p)));
}

static bool expect(struct parser *p, const char *s, const char *what)
{
    if (accept(p, s))
        return true;
    expected(p, what);
    return false;
}

// Is a the word b with one letter wrong, missing or too much, or two swapped?
static bool slip(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    if (!*a || !*b)
        return *a ? !a[1] : *b && !b[1];
    return !strcmp(a + 1, b + 1) || !strcmp(a + 1, b) || !strcmp(a, b + 1) ||
           (a[0] == b[1] && a[1] == b[0] && !strcmp(a + 2, b + 2));
}

// "; did you mean 'let'?" if the token is nearly one of the words; else "".
static const char *guess(struct parser *p, const struct token *t, const char *const *words)
{
    for (; t->kind == TK_NAME && *words; words++)
        if (slip(t->s, *words))
            return arena_printf(p->c->arena, "; did you mean '%s'?", *words);
    return "";
}

// Does a declaration start here: a keyword that no statement has, first on its line?
static bool declaration_here(const struct parser *p)
{
    const struct token *t = peek(p);
    if (p->at && p->t[p->at - 1].loc.line == t->loc.line)
        return false;
    return is(t, "kernel") || is(t, "schedule") || (is(t, "type") && ahead(p, 1)->kind == TK_NAME);
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
    if (peek(p)->kind != TK_NAME || keyword(peek(p))) {
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

// Every call is followed by p->depth--.
static bool deeper(struct parser *p)
{
    if (++p->depth <= DEPTH_MAX)
        return true;
    if (complain(p))
        error(p->c, peek(p)->loc, "nested too deeply (more than %d levels)", DEPTH_MAX);
    return false;
}

static void higher(struct parser *p, const struct node *n, int height)
{
    p->height = height + 1;
    if (p->height > HEIGHT_MAX && complain(p))
        error(p->c, n->loc, "the expression is too large (more than %d levels): split it with 'let'", HEIGHT_MAX);
}

static void arguments(struct parser *p, struct node *n, const char *close, const char *what)
{
    int height = 0;
    if (!is(peek(p), close))
        do {
            if (is(peek(p), close)) {
                expected(p, "an expression after ','");
                break;
            }
            add(p, n, expr(p));
            height = p->height > height ? p->height : height;
        } while (!p->panic && accept(p, ","));
    expect(p, close, arena_printf(p->c->arena, "'%s' to close the %s of '%.40s'", close, what, n->name));
    higher(p, n, height);
}

static struct node *primary(struct parser *p)
{
    const struct token *t = peek(p);
    struct node *n;
    p->height = 1;
    if (t->kind == TK_INT || t->kind == TK_FLOAT) {
        next(p);
        n = make(p, t->kind == TK_INT ? N_INT : N_FLOAT, t->loc);
        n->value = t->ival;
        n->fvalue = t->fval;
        return n;
    }
    if (t->kind == TK_NAME && (!keyword(t) || is(t, "true") || is(t, "false"))) {
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
    struct node *n = NULL, *x;
    if (!deeper(p))
        return p->depth--, NULL;
    if (is(t, "-") || is(t, "!") || is(t, "~")) {
        next(p);
        n = make(p, N_UNARY, t->loc);
        n->name = t->s;
        if ((x = unary(p)) != NULL) {
            add(p, n, x);
            higher(p, n, p->height);
        } else {
            n = NULL;
        }
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

static struct node *binary(struct parser *p, int level)
{
    if (level == LEVELS)
        return unary(p);
    struct node *a = binary(p, level + 1);
    for (int count = 0; a && !p->panic && is_one_of(peek(p), levels[level]); count++) {
        if (level == COMPARISONS && count && complain(p)) {
            error(p->c, peek(p)->loc, "comparisons do not chain: write (a %s b) & (b %s c)", a->name, peek(p)->s);
            return NULL;
        }
        const struct token *t = next(p);
        int height = p->height;
        struct node *n = make(p, N_BINARY, t->loc), *b = binary(p, level + 1);
        if (!b)
            return NULL;
        n->name = t->s;
        add(p, n, a);
        add(p, n, b);
        higher(p, n, p->height > height ? p->height : height);
        a = n;
    }
    return a;
}

static struct node *expr(struct parser *p)
{
    return binary(p, 0);
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

static struct node *type(struct parser *p, bool map)
{
    struct node *n = make(p, N_TYPE, peek(p)->loc);
    if (!map && is(peek(p), "tile_map") && complain(p))
        error(p->c, peek(p)->loc, "only a parameter can be a tile_map");
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
    expect(p, "in", arena_printf(p->c->arena, "'in' after '%.40s'", n->name2 ? ")" : n->name));
    if (p->panic)
        return n;
    const struct token *t = peek(p);
    struct node *source = t->kind == TK_NAME && !keyword(t) ? primary(p) : NULL;
    if (!source || source->kind == N_SUBSCRIPT) {
        p->at = (int)(t - p->t);
        expected(p, "tile(...), each(...) or a tile map after 'in'");
    }
    add(p, n, source);
    annotations(p, n);
    return n;
}

static struct node *loop(struct parser *p, enum node_kind kind)
{
    struct node *n = make(p, kind, next(p)->loc);
    do
        add(p, n, clause(p));
    while (!p->panic && kind == N_PARALLEL && accept(p, ","));
    if (is(peek(p), ",") && complain(p))
        error(p->c, peek(p)->loc, "'for' has one axis: write another 'for' inside (only 'parallel' takes several)");
    add(p, n, block(p));
    return n;
}

static struct node *conditional(struct parser *p)
{
    struct node *n = make(p, N_IF, next(p)->loc);
    if (!deeper(p))
        return p->depth--, n;
    add(p, n, expr(p));
    if (is(peek(p), "=") && complain(p))
        error(p->c, peek(p)->loc, "'=' assigns; a comparison is written '=='");
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
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of an axis after 'at'");
    if (!p->panic)
        expect(p, "=", arena_printf(p->c->arena, "'at %.40s = tile(end), origin'", n->name));
    expect(p, "tile", "'tile(end), origin' after '='");
    expect(p, "(", "'(' after 'tile'");
    if (!p->panic)
        add(p, n, expr(p));
    expect(p, ")", "')' after the end of the axis");
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
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of the role");
    expect(p, "(", "'(first warp, warps)' after the name of the role");
    n->value = an_int(p, "the number of the first warp");
    expect(p, ",", "',' and how many warps the role has");
    n->value2 = an_int(p, "how many warps the role has");
    expect(p, ")", "')' after the number of warps");
    annotations(p, n);
    add(p, n, block(p));
    return n;
}

static struct node *shared(struct parser *p)
{
    struct node *n = make(p, N_SHARED, next(p)->loc);
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of the shared buffer");
    expect(p, ":", "':' and the element type");
    n->name2 = a_name(p, "an element type");
    expect(p, "[", "'[stages][rows, cols]' after the element type");
    n->value = an_int(p, "the number of stages");
    expect(p, "]", "']' after the number of stages");
    expect(p, "[", "'[rows, cols]' after the stages");
    add(p, n, int_node(p, "the number of rows"));
    expect(p, ",", "',' and the number of columns");
    add(p, n, int_node(p, "the number of columns"));
    expect(p, "]", "']' after the number of columns");
    annotations(p, n);
    return n;
}

static struct node *let(struct parser *p)
{
    struct node *n = make(p, N_LET, next(p)->loc);
    n->loc = peek(p)->loc;
    n->name = a_name(p, "a name after 'let'");
    if (!p->panic && accept(p, ":"))
        add(p, n, type(p, false));
    expect(p, "=", "'=' and the value");
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
        add(p, n, type(p, false));
    expect(p, "=", "'=' and the variable's first value");
    if (!p->panic)
        add(p, n, expr(p));
    annotations(p, n);
    return n;
}

static const char *const statement_words[] = { "let", "var", "for", "parallel", "role", "shared", NULL };
static const char *const assign_ops[] = { "=", "+=", "-=", "*=", NULL };

// No assignment operator stands after the target.
static void no_statement(struct parser *p, const struct token *first, const struct node *target)
{
    const char *meant = guess(p, first, statement_words);
    bool layout = is(first, "layout");
    if (target->kind == N_NAME && peek(p)->kind == TK_NAME && (*meant || layout)) {
        if (complain(p))
            error(p->c, first->loc,
                  layout ? "layouts stand at the start of the kernel's body, before its statements%s"
                         : "expected a statement%s",
                  layout ? "" : meant);
        return;
    }
    expected(p, arena_printf(p->c->arena, "'=', '+=', '-=' or '*=' after '%.40s%s'", target->name,
                             target->kind == N_SUBSCRIPT ? "[...]" : ""));
}

static struct node *assignment(struct parser *p)
{
    const struct token *t = peek(p);
    struct node *target, *n;
    if (t->kind != TK_NAME || keyword(t)) {
        bool operator= t->kind == TK_PUNCT && strchr("+-*/%&|^<>=!", t->s[0]);
        expected(p, operator? "a statement (a line is continued after an operator, not before it)" : "a statement");
        return NULL;
    }
    target = primary(p);
    if (!target || p->panic)
        return NULL;
    bool assigns = is_one_of(peek(p), assign_ops);
    if (target->kind == N_CALL) {
        n = make(p, N_EXPR, t->loc);
        add(p, n, target);
        if (assigns && complain(p))
            error(p->c, t->loc, "a call cannot be assigned to: expected a variable or a place in a buffer");
        annotations(p, n);
        return n;
    }
    if (!assigns) {
        no_statement(p, t, target);
        return NULL;
    }
    const struct token *o = next(p);
    n = make(p, N_ASSIGN, t->loc);
    n->value = o->s[1] ? o->s[0] : 0;
    add(p, n, target);
    add(p, n, expr(p));
    annotations(p, n);
    return n;
}

static struct node *statement(struct parser *p)
{
    const struct token *t = peek(p);
    bool named = ahead(p, 1)->kind == TK_NAME;
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
    if (is(t, "at") && named)
        return at_statement(p);
    if (is(t, "role") && (named || is(ahead(p, 1), "(")))
        return role(p);
    if (is(t, "shared") && named)
        return shared(p);
    return assignment(p);
}

// To the end of the statement that went wrong: its newline or ';', stepping over whole blocks; or before a '}' or a
// declaration.
static void recover(struct parser *p)
{
    int open = 0;
    for (; peek(p)->kind != TK_END && !declaration_here(p); next(p)) {
        const struct token *t = peek(p);
        if (!open && (t->kind == TK_NEWLINE || is(t, ";") || is(t, "}")))
            break;
        if (is(t, "{"))
            open++;
        else if (is(t, "}"))
            open--;
    }
    p->panic = false;
}

static bool block_ends(const struct parser *p)
{
    return peek(p)->kind == TK_END || is(peek(p), "}") || declaration_here(p);
}

static void statements(struct parser *p, struct node *n)
{
    for (skip_newlines(p); !block_ends(p); skip_newlines(p)) {
        int before = p->at;
        struct node *s = statement(p);
        if (!p->panic)
            add(p, n, s);
        const struct token *t = peek(p);
        if (!p->panic && t->kind != TK_NEWLINE && !is(t, ";") && !block_ends(p) && !is(&p->t[p->at - 1], "}"))
            expected(p, "the end of the statement");
        if (p->panic)
            recover(p);
        if (p->at == before && !block_ends(p))
            next(p);
    }
}

static void close_block(struct parser *p, struct loc open)
{
    if (p->panic || accept(p, "}"))
        return;
    if (complain(p)) {
        error(p->c, peek(p)->loc, "expected '}', found %s", shown(p, peek(p)));
        note(p->c, open, "to close this '{'");
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
    close_block(p, open);
    return n;
}

// ---- top level ---------------------------------------------------------------------------------------------------

static struct node *param(struct parser *p)
{
    static const struct {
        const char *name;
        unsigned flag;
    } ways[] = { { "out", NF_OUT }, { "inout", NF_INOUT }, { "early", NF_EARLY } };
    struct node *n = make(p, N_PARAM, peek(p)->loc);
    n->name = a_name(p, "the name of a parameter");
    expect(p, ":", "':' and the type of the parameter");
    for (size_t i = 0; i < COUNTOF(ways); i++)
        if (is(peek(p), ways[i].name)) {
            next(p);
            n->flags = ways[i].flag;
            break;
        }
    if (!p->panic)
        add(p, n, type(p, true));
    return n;
}

static struct node *distribution(struct parser *p)
{
    struct node *n = make(p, N_DIST, next(p)->loc);
    n->loc = peek(p)->loc;
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

static void requirements(struct parser *p, struct node *kernel)
{
    do {
        struct node *r = make(p, N_REQUIRE, peek(p)->loc);
        add(p, r, expr(p));
        add(p, kernel, r);
    } while (!p->panic && accept(p, ","));
}

static void layouts(struct parser *p, struct node *kernel)
{
    for (skip_newlines(p); is(peek(p), "layout") && (ahead(p, 1)->kind == TK_NAME || is(ahead(p, 1), "{"));
         skip_newlines(p)) {
        struct node *d = distribution(p);
        if (!p->panic)
            add(p, kernel, d);
        while (p->panic && !block_ends(p))
            next(p);
        if (p->panic)
            accept(p, "}");
        p->panic = false;
    }
}

// Newlines before `word` do not count.
static bool on_next_line(struct parser *p, const char *word)
{
    int i = 0;
    while (ahead(p, i)->kind == TK_NEWLINE)
        i++;
    if (is(ahead(p, i), word))
        p->at += i;
    return is(peek(p), word);
}

static struct node *kernel(struct parser *p)
{
    static const char *const words[] = { "require", NULL };
    struct node *n = make(p, N_KERNEL, peek(p)->loc);
    n->doc = next(p)->doc;
    n->loc = peek(p)->loc;
    n->name = a_name(p, "the name of the kernel");
    if (!p->panic && expect(p, "(", "'(' and the parameters of the kernel")) {
        if (!is(peek(p), ")"))
            do
                add(p, n, param(p));
            while (!p->panic && accept(p, ","));
        expect(p, ")", "')' to close the parameters");
    }
    if (!p->panic && on_next_line(p, "require")) {
        next(p);
        requirements(p, n);
    }
    if (on_next_line(p, "@"))
        annotations(p, n);
    on_next_line(p, "{");
    struct node *b = make(p, N_BLOCK, peek(p)->loc);
    struct loc open = peek(p)->loc;
    if (!p->panic && !is(peek(p), "{") && complain(p))
        error(p->c, open, "expected '{' and the body of the kernel, found %s%s", shown(p, peek(p)),
              guess(p, peek(p), words));
    if (p->panic)
        return n;
    next(p);
    layouts(p, n);
    statements(p, b);
    close_block(p, open);
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
        if (peek(p)->kind == TK_PUNCT && accept(p, "x"))
            n->value2 = an_int(p, "a number after 'x'");
        if (!p->panic && accept(p, "+")) {
            int64_t more = peek(p)->ival;
            n->flags = more < INT16_MAX ? (int)more : INT16_MAX;
            an_int(p, "a number of warps after '+'");
        }
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
            add(p, n, name_node(p, "the name of an arch"));
        while (!p->panic && accept(p, ","));
    expect(p, "{", "'{' and the schedule's items");
    for (skip_newlines(p); !p->panic && !block_ends(p); skip_newlines(p))
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

// The diagnostics of lexer and parser in the order of the source; notes stay behind their error.
static void merge(struct ctx *c, struct diag **after)
{
    struct diag *a = c->diags, *b = *after, **out = &c->diags;
    if (after == &c->diags || !b)
        return;
    *after = NULL;
    while (a || b) {
        bool first = a && (!b || a->loc.line < b->loc.line || (a->loc.line == b->loc.line && a->loc.col <= b->loc.col));
        struct diag **from = first ? &a : &b;
        do {
            *out = *from;
            out = &(*out)->next;
            *from = *out;
        } while (*from && (*from)->sev == SEV_NOTE);
    }
    *out = NULL;
    c->diag_tail = out;
}

static struct node *declaration(struct parser *p)
{
    static const char *const words[] = { "kernel", "schedule", "type", NULL };
    const struct token *t = peek(p);
    if (is(t, "kernel"))
        return kernel(p);
    if (is(t, "schedule"))
        return schedule_block(p);
    if (is(t, "type"))
        return typedef_line(p);
    if (complain(p))
        error(p->c, t->loc, "expected 'kernel', 'schedule' or 'type', found %s%s", shown(p, t), guess(p, t, words));
    return NULL;
}

struct node *parse(struct ctx *c, const struct token *t, int n)
{
    struct parser p = { .c = c, .t = t, .n = n, .told = -1 };
    struct node *file = make(&p, N_FILE, (struct loc){ 1, 1, 0 });
    p.after = c->diags ? c->diag_tail : &c->diags;
    for (skip_newlines(&p); peek(&p)->kind != TK_END; skip_newlines(&p)) {
        int before = p.at;
        struct node *d = declaration(&p);
        if (d && !p.panic)
            add(&p, file, d);
        if (p.panic && p.at == before)
            next(&p);
        while (p.panic && peek(&p)->kind != TK_END && !declaration_here(&p)) // to the next declaration
            next(&p);
        p.panic = false;
    }
    merge(c, p.after);
    return file;
}
