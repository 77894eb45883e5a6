// The syntax tree: uniform nodes, so that printing, comparing and walking are one function each.
//
// DSL text -> lex.c -> parse.c -> struct node (N_FILE). print.c writes a tree as DSL text again;
// parse(print(t)) is t, for every tree. The tile IR is printed by turning it into this tree (raise.c) first:
// so there is one grammar and one printer.
#ifndef MOEC_AST_H
#define MOEC_AST_H
#include "common.h"

enum node_kind {
    N_FILE,    // kids: N_KERNEL, N_SCHEDULE, N_TYPEDEF
    N_TYPEDEF, // type name = elem;                      kids: N_ELEM
    N_KERNEL,  // kernel name(params) require ... { }    kids: N_PARAM..., N_REQUIRE..., N_DIST..., N_BLOCK
    N_PARAM,   // name: type                             kids: N_TYPE | N_MAPTYPE; flags NF_OUT, NF_INOUT, NF_EARLY
    N_TYPE,    // elem[axes or dims]                     name: element type; kids: N_NAME | N_INT
    N_MAPTYPE, // tile_map[N]                            kids: N_NAME | N_INT
    N_ELEM,    // an element type name
    N_REQUIRE, // require expr                           kids: expr
    N_DIST,    // layout name { axis: bits; ... }        kids: N_HOME
    N_HOME,    // axis: r0 l1 w2 ...                     name: axis; kids: N_NAME (bit names)
    N_SCHEDULE, // schedule kernel[.variant] for arch { } name: kernel; name2: variant or NULL; kids: N_NAME (arches)..., N_ITEM
    N_ITEM,  // name value ; name WxH ; name           name; value, value2 (-1 if absent), name2 (word value)
    N_BLOCK, // { statements }                         kids: statements
    N_LET,   // let name = expr                        kids: expr; optional N_TYPE first (let x: f32[a] = ...)
    N_VAR,   // var name, name: type = expr            kids: N_NAME..., N_TYPE, expr
    N_ASSIGN, // target op= expr                        value: 0 '=', '+' '-' '*'; kids: target (N_NAME | N_SUBSCRIPT), expr
    N_EXPR,      // expression statement                   kids: N_CALL
    N_PARALLEL,  // parallel clause, clause { }            kids: N_CLAUSE..., N_BLOCK
    N_FOR,       // for clause { }                         kids: N_CLAUSE, N_BLOCK
    N_CLAUSE,    // name in tile(..)|each(..)|MAP ; (e, rows) in MAP   name, name2; kids: source (N_CALL | N_NAME)
    N_AT,        // at name = tile(hi), origin { }         name; kids: hi, origin, N_BLOCK
    N_IF,        // if expr { } else { }                   kids: expr, N_BLOCK [, N_BLOCK | N_IF]
    N_ROLE,      // role name(first, warps) @... { }       name; value, value2; kids: N_BLOCK
    N_SHARED,    // shared name: elem[stages][rows, cols]  name; name2: elem; value: stages; kids: N_INT, N_INT
    N_CALL,      // name(args)                             kids: args
    N_SUBSCRIPT, // name[args]                             kids: args
    N_SLOT,      // name[expr] where name is a shared buffer: parsed as N_SUBSCRIPT, kept for check.c
    N_BINARY,    // op: the token text                     name: operator; kids: a, b
    N_UNARY,     // '-' '!' '~'                            name: operator; kids: a
    N_NAME,      // name
    N_INT,       // value
    N_FLOAT,     // fvalue; printed with %.17g and always with '.' or 'e'
};
enum { NF_OUT = 1, NF_INOUT = 2, NF_EARLY = 4 };

// @name or @name(arg, ...) after a statement, a clause or a kernel's ')'. Facts that a pass found or a user states.
struct annot {
    const char *name;
    struct node **args; // N_NAME, N_INT
    int nargs;
    struct loc loc;
};
struct node {
    enum node_kind kind;
    struct loc loc;
    const char *name, *name2;
    const char *doc; // kernels: the // lines just above, joined by \n, without slashes; NULL if none
    int64_t value, value2;
    double fvalue;
    int flags;
    struct node **kids;
    int nkids;
    struct annot *annots;
    int nannots;
};

// ---- lex.c
enum token_kind { TK_END, TK_NAME, TK_INT, TK_FLOAT, TK_PUNCT, TK_NEWLINE };
struct token {
    enum token_kind kind;
    struct loc loc;
    const char *s; // text, arena, NUL-terminated
    int64_t ival;
    double fval;
    const char *doc; // comment lines directly before this token, or NULL
};
struct token *lex(struct ctx *c, int *n); // ends with TK_END; errors are added and lexing goes on
void dump_tokens(struct text *out, const struct token *t, int n);

// ---- parse.c: never NULL unless out of memory; errors in c
struct node *parse(struct ctx *c, const struct token *t, int n);

// ---- print.c
void print_dsl(struct text *out, const struct node *n);      // as DSL, canonical form
void print_tree(struct text *out, const struct node *n);     // indented tree with places (--dump=ast)
bool node_equal(const struct node *a, const struct node *b); // places and docs do not count
#endif
