// The text of one inline assembly statement -> instructions (PTX ISA, "Statements", "Operands"). Registers that it declares get slots
// after its operands, constants in register lists too.
#include "sim.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 64, NAME = 32, INSTS = 512, LIST = 160, OPERANDS = 16 };
struct parser {
    struct moesim_module *m;
    struct site *s;
    const char *p;
    char *why;
    int noperands, nslots;
    struct {
        char name[NAME];
        int slot;
    } regs[NAMES], labels[NAMES]; // labels: slot is the index of the instruction
    int nregs, nlabels;
    struct inst insts[INSTS];
    char targets[INSTS][NAME]; // of branches
    int ninsts;
    bool failed;
};

static bool bad(struct parser *p, const char *what, const char *at)
{
    if (!p->failed)
        snprintf(p->why, MOESIM_WHY, "%s: %s at '%.40s'", site_place(p->s, (char[64]){ 0 }), what, at);
    p->failed = true;
    return false;
}

static void space(struct parser *p)
{
    for (;;) {
        while (isspace((unsigned char)*p->p))
            p->p++;
        if (p->p[0] != '/' || p->p[1] != '/')
            return;
        while (*p->p && *p->p != '\n')
            p->p++;
    }
}

static bool take(struct parser *p, char c)
{
    space(p);
    if (*p->p != c)
        return false;
    p->p++;
    return true;
}

static bool word(struct parser *p, char *out, size_t size, const char *more)
{
    size_t n = 0;
    space(p);
    while ((isalnum((unsigned char)*p->p) || (*p->p && strchr(more, *p->p))) && n + 1 < size)
        out[n++] = *p->p++;
    out[n] = 0;
    return n > 0;
}

static int slot_of(struct parser *p, const char *name, bool declare)
{
    if (declare && p->nregs < NAMES && strlen(name) < NAME) {
        snprintf(p->regs[p->nregs].name, NAME, "%s", name);
        return p->regs[p->nregs++].slot = p->nslots++;
    }
    for (int i = p->nregs - 1; i >= 0; i--) // the innermost declaration
        if (!strcmp(p->regs[i].name, name))
            return p->regs[i].slot;
    return -1;
}

static bool number(struct parser *p, int64_t *v)
{
    char *end;
    space(p);
    if (p->p[0] == '0' && (p->p[1] == 'f' || p->p[1] == 'F')) // the bits of an f32
        *v = (int64_t)strtoull(p->p + 2, &end, 16);
    else
        *v = p->p[0] == '-' ? (int64_t)strtoll(p->p, &end, 0) : (int64_t)strtoull(p->p, &end, 0);
    if (end == p->p)
        return bad(p, "expected a number", p->p);
    p->p = end;
    if (*p->p == 'U')
        p->p++;
    return true;
}

// A register, or a constant put into a slot of its own.
static bool value(struct parser *p, int *slot, int64_t *imm, bool *is_imm)
{
    char name[NAME];
    space(p);
    *is_imm = false;
    if (*p->p == '$' && isdigit((unsigned char)p->p[1])) {
        p->p++;
        long n = strtol(p->p, (char **)(uintptr_t)&p->p, 10);
        *slot = n < p->noperands ? (int)n : 0;
        return n < p->noperands || bad(p, "no such operand", p->p);
    }
    if (isdigit((unsigned char)*p->p) || *p->p == '-') {
        *is_imm = true;
        return number(p, imm);
    }
    if (!word(p, name, sizeof name, "_%"))
        return bad(p, "expected an operand", p->p);
    if (!strcmp(name, "_")) {
        *slot = p->nslots++;
        return true;
    }
    *slot = slot_of(p, name, false);
    return *slot >= 0 || bad(p, "not declared", name);
}

static bool listed(struct parser *p, int *list, int *n)
{
    int64_t imm = 0;
    bool is_imm;
    int slot = 0;
    if (*n == LIST)
        return bad(p, "too many registers", p->p);
    if (!value(p, &slot, &imm, &is_imm))
        return false;
    if (is_imm) {
        struct constant_slot *c = realloc(p->s->consts, sizeof *c * (size_t)(p->s->nconsts + 1));
        if (!c)
            return bad(p, "out of memory", p->p);
        p->s->consts = c;
        slot = p->nslots++;
        c[p->s->nconsts++] = (struct constant_slot){ slot, (uint64_t)imm };
    }
    list[(*n)++] = slot;
    return true;
}

static bool list_of(struct parser *p, struct arg *a, const int *list, int n)
{
    a->list = module_keep(p->m, sizeof *a->list * (size_t)(n + 1));
    if (!a->list)
        return bad(p, "out of memory", p->p);
    memcpy(a->list, list, sizeof *list * (size_t)n);
    a->kind = ARG_LIST;
    a->n = n;
    return true;
}

static bool braced(struct parser *p, int *list, int *n)
{
    do
        if (!listed(p, list, n))
            return false;
    while (take(p, ','));
    return take(p, '}') || bad(p, "expected '}'", p->p);
}

// [base], [base + 16], [base, {x, y}], [base, {x, y}], ...
static bool address(struct parser *p, struct arg *a)
{
    int list[LIST], n = 0;
    int64_t more = 0;
    bool is_imm;
    *a = (struct arg){ .kind = ARG_ADDR, .reg = -1 };
    if (!value(p, &a->reg, &a->imm, &is_imm))
        return false;
    if (is_imm)
        a->reg = -1;
    if (take(p, '+') && !number(p, &more))
        return false;
    a->imm = (int64_t)((uint64_t)a->imm + (uint64_t)more);
    if (take(p, ',')) {
        list[n++] = a->reg;
        if (!take(p, '{') || !braced(p, list, &n) || !list_of(p, a, list, n))
            return bad(p, "expected coordinates", p->p);
    }
    return take(p, ']') || bad(p, "expected ']'", p->p);
}

static bool operand(struct parser *p, struct arg *a)
{
    int list[LIST], n = 0;
    int64_t imm = 0;
    bool is_imm;
    *a = (struct arg){ .kind = ARG_NONE };
    if (take(p, '{'))
        return braced(p, list, &n) && list_of(p, a, list, n);
    if (take(p, '['))
        return address(p, a);
    if (!value(p, &a->reg, &imm, &is_imm))
        return false;
    a->kind = is_imm ? ARG_IMM : ARG_REG;
    a->imm = imm;
    if (is_imm || !take(p, '|'))
        return true;
    list[n++] = a->reg;
    return listed(p, list, &n) && list_of(p, a, list, n);
}

static bool declaration(struct parser *p)
{
    char type[NAME], name[NAME];
    if (!word(p, type, sizeof type, "."))
        return bad(p, "expected a type", p->p);
    do {
        int slot = word(p, name, sizeof name, "_%") ? slot_of(p, name, true) : -1;
        if (slot < 0)
            return bad(p, "expected a register's name", p->p);
        if (!strcmp(type, ".pred") && slot < 64)
            p->s->preds |= 1ull << slot;
    } while (take(p, ','));
    return true;
}

static const struct op *find_op(const char *name)
{
    const struct op *op = op_find(nv_ops, name);
    op = op ? op : op_find(nv_async_ops, name);
    return op || strcmp(name, "trap") ? op : op_find(common_ops, name);
}

// Are the operands of the kinds that the table says?
static bool well_formed(const char *want, const struct arg *a, int n)
{
    int k = 0;
    bool may_end = false;
    for (; *want && *want != '|'; want++) {
        if (*want == '?') {
            may_end = true;
            continue;
        }
        if (k == n)
            return may_end;
        bool reg = a[k].kind == ARG_REG, imm = a[k].kind == ARG_IMM, list = a[k].kind == ARG_LIST;
        bool ok = *want == 'a'   ? a[k].kind == ARG_ADDR
                  : *want == 'v' ? reg || imm
                  : *want == 'x' ? reg || list
                  : *want == 'y' ? reg || imm || list
                                 : reg;
        if (!ok)
            break;
        k++;
    }
    if ((!*want || *want == '|') && k == n)
        return true;
    want += strcspn(want, "|");
    return *want && well_formed(want + 1, a, n);
}

static bool instruction(struct parser *p, const char *name, int guard, bool guard_not)
{
    struct arg a[OPERANDS];
    int n = 0;
    if (p->ninsts == INSTS)
        return bad(p, "too many instructions", name);
    struct inst *i = &p->insts[p->ninsts];
    *i = (struct inst){ .site = p->s, .guard = guard, .guard_not = guard_not };
    char *text = module_keep(p->m, strlen(name) + 1);
    if (!text)
        return bad(p, "out of memory", name);
    i->text = strcpy(text, name);
    if (!strncmp(name, "bra", 3)) {
        if (!word(p, p->targets[p->ninsts], NAME, "_$%"))
            return bad(p, "expected a label", p->p);
        p->ninsts++;
        return true;
    }
    i->op = strncmp(name, "llvm.", 5) ? find_op(name) : NULL; // the tables hold intrinsics too
    if (!i->op)
        return bad(p, "instruction not known to the simulator", name);
    space(p);
    while (*p->p && *p->p != ';') {
        if (n == OPERANDS || !operand(p, &a[n]))
            return bad(p, "too many operands", name);
        n++;
        if (!take(p, ','))
            break;
    }
    if (i->op->operands && !well_formed(i->op->operands, a, n))
        return bad(p, "wrong number or kind of operands", name);
    if (p->nslots > SLOTS_MAX)
        return bad(p, "too many registers and constants", name);
    i->nargs = n;
    i->a = module_keep(p->m, sizeof *a * (size_t)(n + 1));
    if (!i->a)
        return bad(p, "out of memory", name);
    memcpy(i->a, a, sizeof *a * (size_t)n);
    p->ninsts++;
    return true;
}

static bool statement(struct parser *p)
{
    char name[128];
    int guard = -1;
    bool guard_not = false;
    int64_t unused;
    bool is_imm;
    if (take(p, ';') || take(p, '{') || take(p, '}'))
        return true;
    if (take(p, '@')) {
        guard_not = take(p, '!');
        if (!value(p, &guard, &unused, &is_imm) || is_imm)
            return bad(p, "expected a predicate", p->p);
    }
    if (!word(p, name, sizeof name, "._:$%"))
        return bad(p, "expected an instruction", p->p);
    size_t n = strlen(name);
    if (guard < 0 && name[n - 1] == ':') {
        name[n - 1] = 0;
        for (int k = 0; k < p->nlabels; k++)
            if (!strcmp(p->labels[k].name, name))
                return bad(p, "the label is there twice", name);
        if (p->nlabels == NAMES || n > NAME)
            return bad(p, "too many labels", name);
        snprintf(p->labels[p->nlabels].name, NAME, "%.31s", name);
        p->labels[p->nlabels++].slot = p->ninsts;
        return true;
    }
    bool ok = !strcmp(name, ".reg") ? declaration(p) : instruction(p, name, guard, guard_not);
    return ok && (take(p, ';') || (space(p), *p->p == 0) || *p->p == '}' || bad(p, "expected ';'", p->p));
}

static bool link_branches(struct parser *p)
{
    for (int i = 0; i < p->ninsts; i++) {
        struct inst *in = &p->insts[i];
        int at = -1;
        if (in->op)
            continue;
        for (int k = 0; k < p->nlabels; k++)
            if (!strcmp(p->labels[k].name, p->targets[i]))
                at = p->labels[k].slot;
        if (at < 0)
            return bad(p, "no such label", p->targets[i]);
        in->num = at;
    }
    return true;
}

// LLVM numbers the copies of a statement, for labels: "${:uid}". Here each has its own labels anyway.
static const char *without_uid(struct moesim_module *m, const char *text)
{
    char *copy = module_keep(m, strlen(text) + 1), *to = copy;
    for (const char *p = text; copy && *p;)
        if (!strncmp(p, "${:uid}", 7))
            p += 7;
        else
            *to++ = *p++;
    return copy;
}

bool ptx_parse(struct moesim_module *m, struct site *s, const char *text, int noperands, char *why)
{
    struct parser *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(why, MOESIM_WHY, "out of memory");
        return false;
    }
    p->m = m;
    p->s = s;
    p->p = without_uid(m, text);
    p->why = why;
    p->noperands = p->nslots = s->noperands = noperands;
    bool ok = p->p || bad(p, "out of memory", "");
    while (ok && (space(p), *p->p))
        ok = statement(p);
    ok = ok && link_branches(p);
    s->insts = ok ? module_keep(m, sizeof *s->insts * (size_t)(p->ninsts + 1)) : NULL;
    ok = s->insts != NULL;
    if (ok)
        memcpy(s->insts, p->insts, sizeof *s->insts * (size_t)p->ninsts);
    s->ninsts = p->ninsts;
    s->nslots = p->nslots;
    for (int i = 0; ok && i < s->ninsts; i++) {
        struct inst *in = &s->insts[i];
        char reason[MOESIM_WHY] = "";
        s->what = i == 0 ? in->text : s->what;
        if (in->op && in->op->prepare && !in->op->prepare(in, reason)) {
            snprintf(why, MOESIM_WHY, "%s: %.80s: %.300s", site_place(s, (char[64]){ 0 }), in->text, reason);
            ok = false;
        }
    }
    free(p);
    return ok;
}

const struct op *op_find(const struct op *table, const char *name)
{
    for (const struct op *o = table; o->name; o++) {
        size_t n = strlen(o->name);
        if (o->name[n - 1] == '*' ? !strncmp(o->name, name, n - 1) : !strcmp(o->name, name))
            return o;
    }
    return NULL;
}

void ptx_run(struct lane *l, struct site *s, uint64_t *io)
{
    for (int i = 0; i < s->nconsts; i++)
        io[s->consts[i].slot] = s->consts[i].value;
    for (int pc = 0; pc < s->ninsts;) {
        const struct inst *i = &s->insts[pc++];
        if (i->guard >= 0 && (io[i->guard] & 1) == i->guard_not)
            continue;
        catch_up(l);
        if (!i->op) {
            if (i->num < pc) // so that loops end
                moesim_count(1);
            pc = (int)i->num;
        } else if (i->op->lane) {
            i->op->lane(l, i, io);
        } else {
            l->io = io;
            l->at = i;
            lane_yield(l);
        }
    }
}
