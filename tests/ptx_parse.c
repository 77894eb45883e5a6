// PTX text -> programs, for the interpreter of the tests: the instructions that this compiler emits, and no others. What is
// not understood is refused here, so that nothing is carried out wrongly in silence.
#include "ptx_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct type_info ptx_types[T_COUNT] = { { "", 4 },      { "b8", 1 },   { "b16", 2 },  { "b32", 4 },
                                              { "b64", 8 },   { "u16", 2 },  { "u32", 4 },  { "u64", 8 },
                                              { "s16", 2 },   { "s32", 4 },  { "s64", 8 },  { "f32", 4 },
                                              { "f16", 2 },   { "bf16", 2 }, { "pred", 1 }, { "f16x2", 4 },
                                              { "bf16x2", 4 } };
static const char *const names[I_COUNT] = {
#define X(c, n) n,
    INSTRUCTIONS(X)
#undef X
};

bool ptx_refuse(const char *why, const char *what)
{
    fprintf(stderr, "ptx_sim: %s: %s\n", why, what);
    return false;
}

void *ptx_grow(void *v, int n, size_t size)
{
    return n & (n - 1) ? v : realloc(v, size * (size_t)(n ? 2 * n : 1));
}

static int register_of(struct program *p, const char *name)
{
    for (int i = p->nregs - 1; i >= 0; i--)
        if (!strcmp(p->regs[i], name))
            return i;
    p->regs = ptx_grow(p->regs, p->nregs, sizeof *p->regs);
    snprintf(p->regs[p->nregs], sizeof *p->regs, "%s", name);
    return p->nregs++;
}

static char *trim(char *s)
{
    while (*s && strchr(" \t\n", *s))
        s++;
    for (char *e = s + strlen(s); e > s && strchr(" \t\n", e[-1]);)
        *--e = 0;
    return s;
}

static bool is_number(const char *s)
{
    return (*s >= '0' && *s <= '9') || (*s == '-' && s[1] >= '0' && s[1] <= '9');
}

static int64_t number(const char *s) // 0f3F800000 is a float's bits
{
    return !strncmp(s, "0f", 2) ? (int64_t)strtoull(s + 2, NULL, 16) : (int64_t)strtoll(s, NULL, 0);
}

// [register + n], [parameter], [moe_shared + n]: shared memory starts at 0
static struct operand address(struct program *p, char *s)
{
    struct operand o = { .kind = O_ADDRESS, .reg = -1 };
    char *plus = strchr(s, '+');
    s[strcspn(s, "]")] = 0;
    if (plus) {
        o.imm = number(trim(plus + 1));
        *plus = 0;
    }
    s = trim(s);
    if (*s == '%')
        o.reg = register_of(p, s);
    for (int i = 0; i < p->nparams; i++)
        if (!strcmp(p->params[i].name, s))
            o.imm += p->params[i].offset;
    return o;
}

static struct operand operand(struct program *p, char *s)
{
    struct operand o = { .kind = O_REG };
    s = trim(s);
    if (*s == '[')
        return address(p, s + 1);
    if (*s == '{') {
        o.kind = O_VEC;
        s[strcspn(s, "}")] = 0;
        for (char *t = strtok(s + 1, ","); t && o.n < VEC_MAX; t = strtok(NULL, ","))
            o.vec[o.n++] = register_of(p, trim(t));
    } else if (is_number(s) || !strcmp(s, "moe_shared") || !strcmp(s, "true")) {
        o.kind = O_IMM;
        o.imm = is_number(s) ? number(s) : s[0] == 't';
    } else {
        o.reg = register_of(p, s);
    }
    return o;
}

static bool operands(struct program *p, struct instruction *x, char *s)
{
    int depth = 0;
    char *start = s;
    for (; *start; s++) {
        depth += (*s == '{' || *s == '[') - (*s == '}' || *s == ']');
        bool last = !*s;
        if (!last && (*s != ',' || depth))
            continue;
        *s = 0;
        if (x->n == OPERANDS_MAX)
            return ptx_refuse("too many operands", x->text);
        x->o[x->n++] = operand(p, start);
        start = last ? s : s + 1;
    }
    return true;
}

struct words { // of an instruction's name
    char text[NAME], *v[16];
    int n;
};

static bool has(const struct words *w, const char *name)
{
    for (int i = 1; i < w->n; i++)
        if (!strcmp(w->v[i], name))
            return true;
    return false;
}

static bool code_of(struct instruction *x, const struct words *w)
{
    const char *name = w->v[0];
    if (!strcmp(name, "mul"))
        name = has(w, "wide") ? "mul.wide" : has(w, "hi") ? "mul.hi" : name;
    if (!strcmp(name, "cp"))
        name = has(w, "commit_group") ? "cp.async.commit" : has(w, "wait_group") ? "cp.async.wait" : "cp.async.copy";
    for (int i = 0; i < I_COUNT; i++)
        if (!strcmp(names[i], name)) {
            x->code = (enum code)i;
            return true;
        }
    return false;
}

static const char *const compares[] = { "eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan" };

// The forms of an instruction that are carried out; anything else must not pass unnoticed.
static bool form(struct instruction *x, const struct words *w)
{
    enum type t[2] = { T_NONE, T_NONE };
    int nt = 0;
    for (int i = 1; i < w->n; i++)
        for (int k = 1; k < T_COUNT; k++)
            if (!strcmp(ptx_types[k].name, w->v[i]) && nt < 2)
                t[nt++] = (enum type)k;
    x->type = t[0], x->from = t[1];
    x->ftz = has(w, "ftz"), x->floor = has(w, "rmi"), x->xor_lane = has(w, "bfly");
    x->shared = has(w, "shared"), x->param = has(w, "param");
    x->compare = -1;
    for (int i = 0; i < (int)(sizeof compares / sizeof *compares); i++)
        if (!strcmp(w->v[1 < w->n ? 1 : 0], compares[i]))
            x->compare = i;
    if (has(w, "sat") || has(w, "rni") || has(w, "rpi") || has(w, "trans") || has(w, "NaN"))
        return false;
    switch ((int)x->code) {
    case I_SETP: return x->compare >= 0 && w->n == 3;
    case I_CVT: return nt == 2;
    case I_MAD: return !has(w, "wide") && !has(w, "hi");
    case I_SHFL: return x->xor_lane || has(w, "idx");
    case I_ATOM: return has(w, "add");
    case I_LDMATRIX: return has(w, "x4") && has(w, "m8n8");
    case I_MMA: x->type = has(w, "bf16") ? T_BF16 : T_F16; return has(w, "m16n8k16") && has(w, "row") && has(w, "col");
    case I_ADD:
    case I_SUB:
    case I_MUL: return x->type != T_BF16 && x->type != T_F16X2 && x->type != T_BF16X2;
    }
    return true;
}

static bool statement(struct program *p, char *s)
{
    struct instruction x = { .guard = -1, .target = -1 };
    struct words w = { .n = 0 };
    s = trim(s);
    if (!*s)
        return true;
    x.text = strdup(s);
    if (*s == '@') {
        char *end = s + strcspn(s, " \t");
        x.guard_not = s[1] == '!';
        s[end - s] = 0;
        x.guard = register_of(p, s + 1 + x.guard_not);
        s = trim(end + 1);
    }
    size_t len = strcspn(s, " \t\n");
    snprintf(w.text, sizeof w.text, "%.*s", (int)len, s);
    for (char *t = strtok(w.text, "."); t && w.n < 16; t = strtok(NULL, "."))
        w.v[w.n++] = t;
    if (!w.n || !code_of(&x, &w) || !form(&x, &w))
        return ptx_refuse("not understood", x.text);
    s = trim(s + len);
    if (x.code == I_BRA) { // a label: resolved at the end of the program
        x.text = strdup(s);
    } else if (x.code != I_RET && !operands(p, &x, s)) {
        return false;
    }
    p->v = ptx_grow(p->v, p->n, sizeof *p->v);
    p->v[p->n++] = x;
    return true;
}

static bool resolve(struct program *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int j = 0; p->v[i].code == I_BRA && j < p->nlabels; j++)
            if (!strcmp(p->labels[j].name, p->v[i].text))
                p->v[i].target = p->labels[j].at;
        if (p->v[i].code == I_BRA && p->v[i].target < 0)
            return ptx_refuse("no such label", p->v[i].text);
    }
    return true;
}

static void parameters(struct program *p, const char *s, const char *end)
{
    int offset = 0;
    while ((s = strstr(s, ".param .")) && s < end) {
        struct param q = { .bytes = !strncmp(s + 8, "u64", 3) ? 8 : 4 };
        const char *stop = s + strcspn(s, ",)\n"), *name = stop;
        while (name[-1] != ' ')
            name--;
        snprintf(q.name, sizeof q.name, "%.*s", (int)(stop - name), name);
        q.offset = (offset + q.bytes - 1) / q.bytes * q.bytes;
        offset = q.offset + q.bytes;
        p->params = ptx_grow(p->params, p->nparams, sizeof *p->params);
        p->params[p->nparams++] = q;
        s = stop;
    }
}

// The text between the braces of an entry: statements, labels, directives, and the braces of inline assembly.
static bool body(struct program *p, const char **text)
{
    char s[2048];
    size_t n = 0;
    int depth = 1;
    const char *t = *text;
    for (; depth > 0 && *t; t++) {
        if (t[0] == '/' && t[1] == '/') {
            t += strcspn(t, "\n") - 1;
        } else if (!n && strchr(" \t\n", *t)) {
            continue;
        } else if (!n && (*t == '{' || *t == '}')) {
            depth += *t == '{' ? 1 : -1;
        } else if (!n && *t == '.') {
            t += strcspn(t, ";\n");
        } else if (*t == ';' || (*t == ':' && *s == '$')) {
            s[n] = 0;
            n = 0;
            if (*t == ';') {
                if (!statement(p, s))
                    return false;
                continue;
            }
            struct label l = { .at = p->n };
            snprintf(l.name, sizeof l.name, "%s", trim(s));
            p->labels = ptx_grow(p->labels, p->nlabels, sizeof *p->labels);
            p->labels[p->nlabels++] = l;
        } else if (n < sizeof s - 1) {
            s[n++] = *t;
        }
    }
    *text = t;
    return resolve(p);
}

bool ptx_parse(struct program **programs, const char *text)
{
    while ((text = strstr(text, ".entry "))) {
        struct program *p = calloc(1, sizeof *p);
        p->next = *programs;
        *programs = p;
        text += strlen(".entry ");
        snprintf(p->name, sizeof p->name, "%.*s", (int)strcspn(text, "( \n"), text);
        register_of(p, "%tid.x");
        register_of(p, "%ctaid.x");
        const char *close = strchr(text, ')'), *threads = strstr(text, ".maxntid");
        parameters(p, text, close);
        p->threads = threads ? atoi(threads + strlen(".maxntid")) : 0;
        text = strchr(close, '{') + 1;
        if (!body(p, &text))
            return false;
    }
    return true;
}
