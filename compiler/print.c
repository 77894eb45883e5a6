// Syntax tree -> text. print_dsl writes the canonical DSL form: parsing it gives an equal tree. print_tree is the
// indented form with places, for people.
#include "ast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct printer {
    struct text *out;
    int indent;
};

static void stmt(struct printer *p, const struct node *n);

static void put(struct printer *p, const char *s)
{
    text_put(p->out, s, strlen(s));
}

static void line_start(struct printer *p)
{
    for (int i = 0; i < p->indent; i++)
        put(p, "    ");
}

// ---- expressions -------------------------------------------------------------------------------------------------

enum { P_CMP = 4, P_UNARY = 8, P_PRIMARY = 9 };

static int precedence(const struct node *n)
{
    static const struct {
        const char *op;
        int p;
    } table[] = { { "|", 1 },      { "^", 2 },     { "&", 3 },      { "==", P_CMP }, { "!=", P_CMP }, { "<", P_CMP },
                  { "<=", P_CMP }, { ">", P_CMP }, { ">=", P_CMP }, { "<<", 5 },     { ">>", 5 },     { "+", 6 },
                  { "-", 6 },      { "*", 7 },     { "/", 7 },      { "%", 7 } };
    if (n->kind == N_UNARY || (n->kind == N_INT && n->value < 0) || (n->kind == N_FLOAT && n->fvalue < 0))
        return P_UNARY;
    for (size_t i = 0; n->kind == N_BINARY && i < COUNTOF(table); i++)
        if (!strcmp(table[i].op, n->name))
            return table[i].p;
    return P_PRIMARY;
}

// The shortest form that reads back equal; without an exponent where that is easy to read.
static void number(struct printer *p, double v)
{
    char s[64], plain[64];
    int digits = 0, exponent;
    do
        snprintf(s, sizeof s, "%.*e", digits++, v);
    while (digits <= 17 && strtod(s, NULL) != v);
    exponent = atoi(strchr(s, 'e') ? strchr(s, 'e') + 1 : "0");
    snprintf(plain, sizeof plain, "%.*f", digits - 1 > exponent ? digits - 1 - exponent : 1, v);
    put(p, exponent >= -4 && exponent < 9 && strtod(plain, NULL) == v ? plain : s);
}

static void expr(struct printer *p, const struct node *n, int least)
{
    int own = precedence(n);
    if (own < least)
        put(p, "(");
    switch ((int)n->kind) {
    case N_INT: text_printf(p->out, "%lld", (long long)n->value); break;
    case N_FLOAT: number(p, n->fvalue); break;
    case N_NAME: put(p, n->name); break;
    case N_CALL:
    case N_SUBSCRIPT:
    case N_SLOT:
        text_printf(p->out, "%s%s", n->name, n->kind == N_CALL ? "(" : "[");
        for (int i = 0; i < n->nkids; i++) {
            put(p, i ? ", " : "");
            expr(p, n->kids[i], 0);
        }
        put(p, n->kind == N_CALL ? ")" : "]");
        break;
    case N_UNARY:
        put(p, n->name);
        expr(p, n->kids[0], P_UNARY);
        break;
    case N_BINARY:
        expr(p, n->kids[0], own == P_CMP ? own + 1 : own);
        text_printf(p->out, " %s ", n->name);
        expr(p, n->kids[1], own + 1);
        break;
    }
    if (own < least)
        put(p, ")");
}

static void list(struct printer *p, struct node *const *v, int n)
{
    for (int i = 0; i < n; i++) {
        put(p, i ? ", " : "");
        expr(p, v[i], 0);
    }
}

static void annots(struct printer *p, const struct node *n)
{
    for (int i = 0; i < n->nannots; i++) {
        text_printf(p->out, " @%s", n->annots[i].name);
        if (n->annots[i].nargs) {
            put(p, "(");
            list(p, n->annots[i].args, n->annots[i].nargs);
            put(p, ")");
        }
    }
}

static void type(struct printer *p, const struct node *n)
{
    put(p, n->kind == N_MAPTYPE ? "tile_map" : n->name);
    if (n->nkids) {
        put(p, "[");
        list(p, n->kids, n->nkids);
        put(p, "]");
    }
}

// ---- statements --------------------------------------------------------------------------------------------------

static void body(struct printer *p, const struct node *b)
{
    put(p, "{\n");
    p->indent++;
    for (int i = 0; i < b->nkids; i++)
        stmt(p, b->kids[i]);
    p->indent--;
    line_start(p);
    put(p, "}");
}

static void clause(struct printer *p, const struct node *n)
{
    if (n->name2)
        text_printf(p->out, "(%s, %s) in ", n->name, n->name2);
    else
        text_printf(p->out, "%s in ", n->name);
    if (n->nkids)
        expr(p, n->kids[0], 0);
    annots(p, n);
}

static void loop(struct printer *p, const struct node *n)
{
    put(p, n->kind == N_FOR ? "for " : "parallel ");
    for (int i = 0; i < n->nkids && n->kids[i]->kind == N_CLAUSE; i++) {
        put(p, i ? ", " : "");
        clause(p, n->kids[i]);
    }
    annots(p, n);
    put(p, " ");
    if (n->nkids && n->kids[n->nkids - 1]->kind == N_BLOCK)
        body(p, n->kids[n->nkids - 1]);
}

static void conditional(struct printer *p, const struct node *n)
{
    put(p, "if ");
    expr(p, n->kids[0], 0);
    put(p, " ");
    body(p, n->kids[1]);
    if (n->nkids < 3)
        return;
    put(p, " else ");
    if (n->kids[2]->kind == N_IF)
        conditional(p, n->kids[2]);
    else
        body(p, n->kids[2]);
}

static void declaration(struct printer *p, const struct node *n)
{
    const struct node *value = n->kids[n->nkids - 1];
    if (n->kind == N_LET) {
        text_printf(p->out, "let %s", n->name);
        if (n->nkids > 1) {
            put(p, ": ");
            type(p, n->kids[0]);
        }
    } else {
        put(p, "var ");
        list(p, n->kids, n->nkids - 2);
        put(p, ": ");
        type(p, n->kids[n->nkids - 2]);
    }
    put(p, " = ");
    expr(p, value, 0);
    annots(p, n);
}

static void stmt(struct printer *p, const struct node *n)
{
    line_start(p);
    switch ((int)n->kind) {
    case N_LET:
    case N_VAR: declaration(p, n); break;
    case N_ASSIGN:
        expr(p, n->kids[0], 0);
        text_printf(p->out, n->value ? " %c= " : " = ", (char)n->value);
        expr(p, n->kids[1], 0);
        annots(p, n);
        break;
    case N_EXPR:
        expr(p, n->kids[0], 0);
        annots(p, n);
        break;
    case N_FOR:
    case N_PARALLEL: loop(p, n); break;
    case N_IF: conditional(p, n); break;
    case N_AT:
        text_printf(p->out, "at %s = tile(", n->name);
        expr(p, n->kids[0], 0);
        put(p, "), ");
        expr(p, n->kids[1], 0);
        annots(p, n);
        put(p, " ");
        body(p, n->kids[2]);
        break;
    case N_ROLE:
        text_printf(p->out, "role %s(%lld, %lld)", n->name, (long long)n->value, (long long)n->value2);
        annots(p, n);
        put(p, " ");
        body(p, n->kids[0]);
        break;
    case N_SHARED:
        text_printf(p->out, "shared %s: %s[%lld][", n->name, n->name2, (long long)n->value);
        list(p, n->kids, n->nkids);
        put(p, "]");
        annots(p, n);
        break;
    case N_BLOCK: body(p, n); break;
    }
    put(p, "\n");
}

// ---- declarations ------------------------------------------------------------------------------------------------

static void doc_lines(struct printer *p, const char *doc)
{
    for (const char *s = doc; s;) {
        const char *e = strchr(s, '\n');
        size_t n = e ? (size_t)(e - s) : strlen(s);
        bool empty = n == 0 || (n == 1 && *s == ' ');
        text_printf(p->out, empty ? "//\n" : "// %.*s\n", (int)n, s);
        s = e ? e + 1 : NULL;
    }
}

static void kernel(struct printer *p, const struct node *n)
{
    int count[2] = { 0 };
    doc_lines(p, n->doc);
    text_printf(p->out, "kernel %s(", n->name);
    for (int i = 0; i < n->nkids; i++) {
        const struct node *k = n->kids[i];
        if (k->kind != N_PARAM)
            continue;
        text_printf(p->out, "%s%s: %s", count[0]++ ? ", " : "", k->name,
                    k->flags & NF_OUT     ? "out "
                    : k->flags & NF_INOUT ? "inout "
                    : k->flags & NF_EARLY ? "early "
                                          : "");
        if (k->nkids)
            type(p, k->kids[0]);
    }
    put(p, ")");
    for (int i = 0; i < n->nkids; i++)
        if (n->kids[i]->kind == N_REQUIRE) {
            put(p, count[1]++ ? ", " : " require ");
            expr(p, n->kids[i]->kids[0], 0);
        }
    annots(p, n);
    put(p, " {\n");
    p->indent = 1;
    for (int i = 0; i < n->nkids; i++) {
        const struct node *k = n->kids[i];
        if (k->kind == N_DIST) {
            text_printf(p->out, "    layout %s {", k->name);
            for (int j = 0; j < k->nkids; j++) {
                text_printf(p->out, " %s:", k->kids[j]->name);
                for (int b = 0; b < k->kids[j]->nkids; b++)
                    text_printf(p->out, " %s", k->kids[j]->kids[b]->name);
                put(p, ";");
            }
            put(p, " }\n");
        } else if (k->kind == N_BLOCK) {
            for (int j = 0; j < k->nkids; j++)
                stmt(p, k->kids[j]);
        }
    }
    p->indent = 0;
    put(p, "}\n");
}

static void schedule_block(struct printer *p, const struct node *n)
{
    text_printf(p->out, "schedule %s%s%s for ", n->name, n->name2 ? "." : "", n->name2 ? n->name2 : "");
    for (int i = 0; i < n->nkids && n->kids[i]->kind == N_NAME; i++)
        text_printf(p->out, "%s%s", i ? ", " : "", n->kids[i]->name);
    put(p, " {\n");
    for (int i = 0; i < n->nkids; i++) {
        const struct node *k = n->kids[i];
        if (k->kind != N_ITEM)
            continue;
        text_printf(p->out, "    %s", k->name);
        if (k->name2)
            text_printf(p->out, " %s", k->name2);
        if (k->value >= 0)
            text_printf(p->out, " %lld", (long long)k->value);
        if (k->value2 >= 0)
            text_printf(p->out, "x%lld", (long long)k->value2);
        if (k->flags)
            text_printf(p->out, "+%d", k->flags);
        put(p, "\n");
    }
    put(p, "}\n");
}

void print_dsl(struct text *out, const struct node *n)
{
    struct printer p = { .out = out };
    switch ((int)n->kind) {
    case N_FILE:
        for (int i = 0; i < n->nkids; i++) {
            put(&p, i ? "\n" : "");
            print_dsl(out, n->kids[i]);
        }
        break;
    case N_KERNEL: kernel(&p, n); break;
    case N_SCHEDULE: schedule_block(&p, n); break;
    case N_TYPEDEF: text_printf(out, "type %s = %s\n", n->name, n->kids[0]->name); break;
    default: stmt(&p, n);
    }
}

// ---- tree form, comparison ---------------------------------------------------------------------------------------

static const char *const kind_names[] = { "file",    "typedef", "kernel", "param",    "type",      "map",    "elem",
                                          "require", "layout",  "home",   "schedule", "item",      "block",  "let",
                                          "var",     "assign",  "expr",   "parallel", "for",       "clause", "at",
                                          "if",      "role",    "shared", "call",     "subscript", "slot",   "binary",
                                          "unary",   "name",    "int",    "float" };
_Static_assert(COUNTOF(kind_names) == N_FLOAT + 1, "one name a kind");

static void tree_values(struct text *out, const struct node *n)
{
    if (n->name)
        text_printf(out, " %s", n->name);
    if (n->name2)
        text_printf(out, " %s", n->name2);
    if (n->kind == N_PARAM && n->flags)
        text_printf(out, n->flags & NF_OUT ? " out" : n->flags & NF_INOUT ? " inout" : " early");
    if (n->kind == N_INT || n->kind == N_ITEM || n->kind == N_ROLE || n->kind == N_SHARED)
        text_printf(out, " %lld", (long long)n->value);
    if (n->kind == N_ITEM || n->kind == N_ROLE)
        text_printf(out, " %lld", (long long)n->value2);
    if (n->kind == N_ITEM)
        text_printf(out, " %d", n->flags);
    if (n->kind == N_ASSIGN)
        text_printf(out, n->value ? " %c=" : " =", (char)n->value);
    if (n->kind == N_FLOAT)
        text_printf(out, " %.17g", n->fvalue);
}

static void tree(struct text *out, const struct node *n, int depth)
{
    struct printer p = { .out = out };
    text_printf(out, "%*s%s", depth * 2, "", kind_names[n->kind]);
    tree_values(out, n);
    annots(&p, n);
    text_printf(out, " <%d:%d>\n", n->loc.line, n->loc.col);
    for (int i = 0; i < n->nkids; i++)
        tree(out, n->kids[i], depth + 1);
}

void print_tree(struct text *out, const struct node *n)
{
    tree(out, n, 0);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

bool node_equal(const struct node *a, const struct node *b)
{
    if (a->kind != b->kind || !same(a->name, b->name) || !same(a->name2, b->name2) || a->value != b->value ||
        a->value2 != b->value2 || memcmp(&a->fvalue, &b->fvalue, sizeof a->fvalue) || a->flags != b->flags ||
        a->nkids != b->nkids || a->nannots != b->nannots)
        return false;
    for (int i = 0; i < a->nannots; i++) {
        if (!same(a->annots[i].name, b->annots[i].name) || a->annots[i].nargs != b->annots[i].nargs)
            return false;
        for (int j = 0; j < a->annots[i].nargs; j++)
            if (!node_equal(a->annots[i].args[j], b->annots[i].args[j]))
                return false;
    }
    for (int i = 0; i < a->nkids; i++)
        if (!node_equal(a->kids[i], b->kids[i]))
            return false;
    return true;
}
