// DSL text -> tokens. Any bytes are accepted: what is no token is reported and skipped. Newlines are tokens, except
// inside () and [], after an operator, ',' or '{', and when nothing stands on the line.
//
// What people bring along from other languages (&&, /* */, 0x10, strings) is recognised, told and read past, so that
// one slip gives one error.
#include "ast.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 16 << 20 }; // lines, columns and token numbers are int

struct lexer {
    struct ctx *c;
    const char *p, *end, *line_start;
    int line, depth; // depth: open () and []
    VEC(struct token) out;
    struct text doc; // comment lines since the last token
    int doc_line;    // line of the last of them
};

static struct loc here(const struct lexer *l, const char *from, size_t len)
{
    return (struct loc){ l->line, (int)(from - l->line_start) + 1, (int)len };
}

static bool name_start(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static bool digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static struct token *push(struct lexer *l, enum token_kind kind, const char *s, size_t n)
{
    struct token t = { .kind = kind, .loc = here(l, s, n), .s = arena_strndup(l->c->arena, s, n) };
    if (l->doc.n && kind != TK_NEWLINE) {
        t.doc = arena_strndup(l->c->arena, l->doc.s, l->doc.n);
        l->doc.n = 0;
    }
    VEC_PUSH(l->c->arena, &l->out, t);
    return &l->out.v[l->out.n - 1];
}

// Does a newline after this token end a statement?
static bool continues(const struct lexer *l)
{
    static const char *const open[] = { "+", "-",  "*", "/",  "%",  "&",  "|", "^", "<<", ">>", "==", "!=", "<", "<=",
                                        ">", ">=", "=", "+=", "-=", "*=", ",", "{", "(",  "[",  "!",  "~",  ":" };
    if (!l->out.n)
        return true;
    const struct token *t = &l->out.v[l->out.n - 1];
    if (t->kind == TK_NEWLINE)
        return true;
    if (t->kind != TK_PUNCT)
        return t->kind == TK_NAME && (!strcmp(t->s, "require") || !strcmp(t->s, "else"));
    for (size_t i = 0; i < COUNTOF(open); i++)
        if (!strcmp(t->s, open[i]))
            return true;
    return false;
}

static void newline(struct lexer *l)
{
    if (!l->depth && !continues(l))
        push(l, TK_NEWLINE, l->p, 1);
    if (l->doc.n && l->doc_line != l->line)
        l->doc.n = 0; // a blank line ends a comment's hold
    l->p++;
    l->line++;
    l->line_start = l->p;
}

static const char *line_end(const struct lexer *l)
{
    const char *e = memchr(l->p, '\n', (size_t)(l->end - l->p));
    return e ? e : l->end;
}

static void comment(struct lexer *l)
{
    const char *s = l->p + 2, *e = line_end(l);
    bool alone = true;
    for (const char *q = l->line_start; q < l->p; q++)
        alone &= *q == ' ' || *q == '\t';
    l->p = e;
    if (!alone)
        return;
    const char *nul = memchr(s, 0, (size_t)(e - s));
    e = nul ? nul : e; // docs are C strings
    if (s < e && *s == ' ')
        s++;
    while (e > s && (e[-1] == ' ' || e[-1] == '\t' || e[-1] == '\r'))
        e--;
    if (l->doc.n)
        text_put(&l->doc, "\n", 1);
    else
        l->doc.s = NULL, l->doc.cap = 0;
    text_put(&l->doc, s, (size_t)(e - s));
    if (!l->doc.n)
        text_put(&l->doc, " ", 1); // an empty line of a comment still holds it together
    l->doc_line = l->line;
}

static const char *digits(const struct lexer *l, const char *q)
{
    while (q < l->end && digit(*q))
        q++;
    return q;
}

// The end of the number at q; *real: it has a point or an exponent.
static const char *number_end(const struct lexer *l, const char *q, bool *real)
{
    q = digits(l, q);
    *real = q < l->end && *q == '.';
    if (*real)
        q = digits(l, q + 1);
    if (q < l->end && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        if (x < l->end && (*x == '+' || *x == '-'))
            x++;
        if (x < l->end && digit(*x)) {
            *real = true;
            q = digits(l, x);
        }
    }
    return q;
}

static void int_value(struct lexer *l, struct token *t)
{
    errno = 0;
    t->ival = strtoll(t->s, NULL, 10);
    if (errno == ERANGE)
        error(l->c, t->loc, "integer %.40s%s does not fit in 63 bits", t->s, strlen(t->s) > 40 ? "..." : "");
}

// The place just behind the last token.
static struct loc behind(const struct lexer *l)
{
    if (!l->out.n)
        return (struct loc){ 1, 1, 0 };
    const struct token *t = &l->out.v[l->out.n - 1];
    return (struct loc){ t->loc.line, t->loc.col + (t->kind == TK_NEWLINE ? 0 : t->loc.len), 0 };
}

// Is the statement before this line still open: a bracket, or an operator at the end of its line?
static bool hanging(const struct lexer *l)
{
    const struct token *t = l->out.n ? &l->out.v[l->out.n - 1] : NULL;
    return t && t->loc.line < l->line && (l->depth || (t->kind == TK_PUNCT && *t->s != '{'));
}

// Ends such a statement: the parser then sees the end of the line that went wrong.
static void end_statement(struct lexer *l)
{
    struct token end = { .kind = TK_NEWLINE, .loc = behind(l), .s = "\n" };
    VEC_PUSH(l->c->arena, &l->out, end);
    l->depth = 0;
}

// A name. One that starts a statement, first on its line, is no part of the statement before it.
static void name(struct lexer *l)
{
    static const char *const words[] = { "let", "var", "for", "parallel", "if", "else", "kernel", "schedule" };
    const char *s = l->p;
    while (l->p < l->end && (name_start(*l->p) || digit(*l->p)))
        l->p++;
    size_t n = (size_t)(l->p - s);
    for (size_t i = 0; hanging(l) && i < COUNTOF(words); i++)
        if (n == strlen(words[i]) && !memcmp(s, words[i], n))
            end_statement(l);
    push(l, TK_NAME, s, n);
}

static void number(struct lexer *l)
{
    const char *s = l->p, *tail;
    bool real, zero_x;
    l->p = tail = number_end(l, s, &real);
    zero_x = tail == s + 1 && *s == '0' && tail < l->end && (*tail == 'x' || *tail == 'X');
    if (!real && !zero_x && tail + 1 < l->end && *tail == 'x' && digit(tail[1])) { // 2x4: a number, 'x', a number
        int_value(l, push(l, TK_INT, s, (size_t)(tail - s)));
        push(l, TK_PUNCT, l->p++, 1);
        return;
    }
    while (l->p < l->end && (name_start(*l->p) || digit(*l->p)))
        l->p++;
    struct token *t = push(l, real ? TK_FLOAT : TK_INT, s, (size_t)(l->p - s));
    if (zero_x) {
        error(l->c, t->loc, "'%.40s': numbers are written in decimal", t->s);
    } else if (tail != l->p) {
        error(l->c, t->loc, "'%.40s' is neither a number nor a name", t->s);
    } else if (!real) {
        int_value(l, t);
    } else if ((t->fval = strtod(t->s, NULL)) > DBL_MAX) {
        error(l->c, t->loc, "number %.40s is larger than any f64", t->s);
        t->fval = 0;
    }
}

// What other languages have: reported and read past. False if it is none of these.
static bool foreign(struct lexer *l)
{
    const char *s = l->p, *e;
    char two[3] = { *s, s + 1 < l->end ? s[1] : 0, 0 };
    if (!strcmp(two, "&&") || !strcmp(two, "||")) {
        error(l->c, here(l, s, 2), "'%s' is not an operator: write '%c'", two, *s);
        push(l, TK_PUNCT, s, 1);
        l->p += 2;
        return true;
    }
    if (!strcmp(two, "/*") || *s == '#') {
        error(l->c, here(l, s, *s == '#' ? 1 : 2), "comments start with '//' and end with the line");
        e = *s == '#' ? NULL : memmem(s, (size_t)(l->end - s), "*/", 2);
        for (l->p = e ? e + 2 : line_end(l), e = s; e < l->p; e++)
            if (*e == '\n') {
                l->line++;
                l->line_start = e + 1;
            }
        return true;
    }
    if (*s == '"' || *s == '\'') {
        e = memchr(s + 1, *s, (size_t)(line_end(l) - s - 1));
        l->p = e ? e + 1 : line_end(l);
        error(l->c, here(l, s, (size_t)(l->p - s)), "there are no strings in this language");
        push(l, TK_INT, s, (size_t)(l->p - s)); // in its place
        return true;
    }
    return false;
}

// A run of bytes that are no ASCII, or one other byte that starts no token.
static void rubbish(struct lexer *l)
{
    const char *s = l->p;
    unsigned char ch = (unsigned char)*s;
    while (l->p < l->end && (unsigned char)*l->p >= 0x80)
        l->p++;
    if (ch >= 0x80) {
        error(l->c, here(l, s, (size_t)(l->p - s)), "only comments may have characters outside ASCII");
        return;
    }
    if (ch < 32 || ch == 127)
        error(l->c, here(l, s, 1), "unexpected byte 0x%02x", ch);
    else
        error(l->c, here(l, s, 1), "unexpected character '%c'", ch);
    l->p++;
}

static void punctuation(struct lexer *l)
{
    static const char *const two[] = { "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=" };
    const char *s = l->p;
    if (foreign(l))
        return;
    for (size_t i = 0; i < COUNTOF(two); i++)
        if (l->end - s >= 2 && !memcmp(s, two[i], 2)) {
            push(l, TK_PUNCT, s, 2);
            l->p += 2;
            return;
        }
    if (!*s || !strchr("()[]{},;:=+-*/%&|^<>!~@.", *s)) {
        rubbish(l);
        return;
    }
    if (*s == '}' && hanging(l))
        end_statement(l);
    if (*s == '(' || *s == '[')
        l->depth++;
    else if ((*s == ')' || *s == ']') && l->depth)
        l->depth--;
    else if (*s == '{' || *s == '}')
        l->depth = 0; // an unclosed bracket must not swallow the rest of the file
    push(l, TK_PUNCT, s, 1);
    l->p++;
}

struct token *lex(struct ctx *c, int *n)
{
    struct lexer l = { .c = c, .p = c->src, .end = c->src + c->src_len, .line_start = c->src, .line = 1 };
    l.doc.arena = c->arena;
    if (c->src_len > SOURCE_MAX) {
        error(c, (struct loc){ 0 }, "the file is larger than %d MiB", SOURCE_MAX >> 20);
        l.end = l.p;
    }
    if (l.end - l.p >= 3 && !memcmp(l.p, "\xEF\xBB\xBF", 3)) // a byte order mark
        l.p += 3;
    while (l.p < l.end && c->errors <= DIAG_MAX) {
        char ch = *l.p;
        if (ch == '\n') {
            newline(&l);
        } else if (ch == ' ' || ch == '\t' || ch == '\r') {
            l.p++;
        } else if (ch == '/' && l.p + 1 < l.end && l.p[1] == '/') {
            comment(&l);
        } else if (name_start(ch)) {
            name(&l);
        } else if (digit(ch)) {
            number(&l);
        } else {
            punctuation(&l);
        }
    }
    struct token end = { .kind = TK_END, .loc = behind(&l), .s = "" };
    VEC_PUSH(c->arena, &l.out, end);
    *n = l.out.n;
    return l.out.v;
}

void dump_tokens(struct text *out, const struct token *t, int n)
{
    static const char *const kinds[] = { "end", "name", "int", "float", "punct", "newline" };
    for (int i = 0; i < n; i++)
        text_printf(out, "%d:%d %s%s%s\n", t[i].loc.line, t[i].loc.col, kinds[t[i].kind],
                    t[i].kind == TK_NEWLINE || t[i].kind == TK_END ? "" : " ", t[i].kind == TK_NEWLINE ? "" : t[i].s);
}
