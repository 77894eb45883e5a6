// DSL text -> tokens. Any bytes are accepted: what is no token is reported and skipped. Newlines are tokens, except
// inside () and [], after an operator, ',' or '{', and when nothing stands on the line.
#include "ast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct ctx *c;
    const char *p, *end, *line_start;
    int line, depth;          // depth: open () and []
    VEC(struct token) out;
    struct text doc;          // comment lines since the last token
    int doc_line;             // line of the last of them
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
        if (l->doc_line == l->line - 1)
            t.doc = arena_strndup(l->c->arena, l->doc.s, l->doc.n);
        l->doc.n = 0;
    }
    VEC_PUSH(l->c->arena, &l->out, t);
    return &l->out.v[l->out.n - 1];
}

// Does a newline after this token end a statement?
static bool continues(const struct lexer *l)
{
    static const char *const open[] = { "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
                                        "=", "+=", "-=", "*=", ",", "{", "(", "[", "!", "~", ":" };
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

static void comment(struct lexer *l)
{
    const char *s = l->p + 2, *e = memchr(s, '\n', (size_t)(l->end - s));
    bool alone = true;
    e = e ? e : l->end;
    for (const char *q = l->line_start; q < l->p; q++)
        alone &= *q == ' ' || *q == '\t';
    l->p = e;
    if (!alone)
        return;
    if (s < e && *s == ' ')
        s++;
    while (e > s && (e[-1] == ' ' || e[-1] == '\t' || e[-1] == '\r'))
        e--;
    if (l->doc.n && l->doc_line != l->line - 1)
        l->doc.n = 0;
    if (l->doc.n)
        text_put(&l->doc, "\n", 1);
    else
        l->doc.s = NULL, l->doc.cap = 0;
    text_put(&l->doc, s, (size_t)(e - s));
    if (!l->doc.n)
        text_put(&l->doc, " ", 1); // an empty line of a comment still holds it together
    l->doc_line = l->line;
}

static void number(struct lexer *l)
{
    const char *s = l->p, *q = s;
    bool real = false;
    while (q < l->end && digit(*q))
        q++;
    if (q + 1 < l->end && *q == '.' && digit(q[1])) {
        real = true;
        for (q++; q < l->end && digit(*q); q++)
            ;
    } else if (q < l->end && *q == '.') {
        real = true;
        q++;
    }
    if (q < l->end && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        if (x < l->end && (*x == '+' || *x == '-'))
            x++;
        if (x < l->end && digit(*x)) {
            real = true;
            for (q = x; q < l->end && digit(*q); q++)
                ;
        }
    }
    if (!real && q + 1 < l->end && *q == 'x' && digit(q[1])) { // 2x4: a number, 'x', a number
        l->p = q;
        struct token *t = push(l, TK_INT, s, (size_t)(q - s));
        errno = 0;
        t->ival = strtoll(t->s, NULL, 10);
        if (errno == ERANGE)
            error(l->c, t->loc, "integer %s does not fit in 63 bits", t->s);
        push(l, TK_PUNCT, l->p++, 1);
        return;
    }
    const char *tail = q;
    while (q < l->end && (name_start(*q) || digit(*q)))
        q++;
    struct token *t = push(l, real ? TK_FLOAT : TK_INT, s, (size_t)(q - s));
    l->p = q;
    if (tail != q) {
        error(l->c, t->loc, "'%s' is neither a number nor a name", t->s);
        return;
    }
    errno = 0;
    if (real)
        t->fval = strtod(t->s, NULL);
    else
        t->ival = strtoll(t->s, NULL, 10);
    if (errno == ERANGE && !real)
        error(l->c, t->loc, "integer %s does not fit in 63 bits", t->s);
    else if (real && t->fval > 1.7976931348623157e308)
        error(l->c, t->loc, "number %s is larger than any f64", t->s);
}

static void punctuation(struct lexer *l)
{
    static const char *const two[] = { "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=", "->" };
    const char *s = l->p;
    for (size_t i = 0; i < COUNTOF(two); i++)
        if (l->end - s >= 2 && !memcmp(s, two[i], 2)) {
            push(l, TK_PUNCT, s, 2);
            l->p += 2;
            return;
        }
    if (*s && strchr("()[]{},;:=+-*/%&|^<>!~@.", *s)) {
        if (*s == '(' || *s == '[')
            l->depth++;
        else if ((*s == ')' || *s == ']') && l->depth)
            l->depth--;
        else if (*s == '{' || *s == '}')
            l->depth = 0; // an unclosed bracket must not swallow the rest of the file
        push(l, TK_PUNCT, s, 1);
        l->p++;
        return;
    }
    size_t n = 1; // report a run of bytes of one UTF-8 character, or of rubbish, once
    while (s + n < l->end && ((unsigned char)s[n] & 0xC0) == 0x80)
        n++;
    if ((unsigned char)*s >= 0x80)
        error(l->c, here(l, s, n), "only comments may have characters outside ASCII");
    else if ((unsigned char)*s < 32 || *s == 127)
        error(l->c, here(l, s, n), "unexpected byte 0x%02x", (unsigned char)*s);
    else
        error(l->c, here(l, s, n), "unexpected character '%c'", *s);
    l->p += n;
}

struct token *lex(struct ctx *c, int *n)
{
    struct lexer l = { .c = c, .p = c->src, .end = c->src + c->src_len, .line_start = c->src, .line = 1 };
    l.doc.arena = c->arena;
    while (l.p < l.end) {
        char ch = *l.p;
        if (ch == '\n') {
            newline(&l);
        } else if (ch == ' ' || ch == '\t' || ch == '\r') {
            l.p++;
        } else if (ch == '/' && l.p + 1 < l.end && l.p[1] == '/') {
            comment(&l);
        } else if (name_start(ch)) {
            const char *s = l.p;
            while (l.p < l.end && (name_start(*l.p) || digit(*l.p)))
                l.p++;
            push(&l, TK_NAME, s, (size_t)(l.p - s));
        } else if (digit(ch)) {
            number(&l);
        } else {
            punctuation(&l);
        }
    }
    push(&l, TK_END, l.end, 0);
    *n = l.out.n;
    return l.out.v;
}

void dump_tokens(struct text *out, const struct token *t, int n)
{
    static const char *const kinds[] = { "end", "name", "int", "float", "punct", "newline" };
    for (int i = 0; i < n; i++)
        text_printf(out, "%d:%d %s %s\n", t[i].loc.line, t[i].loc.col, kinds[t[i].kind],
                    t[i].kind == TK_NEWLINE ? "" : t[i].s);
}
