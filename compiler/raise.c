// raise_kernel: tile IR of any stage -> AST, so that it prints as DSL and reads back as the same kernel.
//
// Every value becomes a `let` with its type, in the order of the ops; leaves (constants, dimensions, scalars, indices,
// origins) are written where they are used. What passes found becomes annotations. Names that a pass left equal or
// empty are made unique here: print, parse, check, raise, print is a fixed point.
#include "ir.h"
#include "../targets/target.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct raiser {
    struct ctx *c;
    const struct kernel *k;
    const char **ops;  // by op id: name of the let, the counter, the role
    const char **axes; // by position in k->axes
    const char **vars; // by var id
    const char **bufs; // by buf id
    int *uses;         // by op id
    VEC(const char *) used;
    int next; // of v1, v2, ...
};

// ---- nodes --------------------------------------------------------------------------------------------------

static struct node *node(struct raiser *r, enum node_kind kind, const char *name, struct loc loc)
{
    struct node *n = NEW(r->c->arena, struct node);
    n->kind = kind;
    n->name = name;
    n->loc = loc;
    n->value = n->value2 = kind == N_ITEM ? -1 : 0;
    return n;
}

static struct node *add(struct raiser *r, struct node *n, struct node *kid)
{
    if (!(n->nkids & (n->nkids - 1))) { // full at 0, 1, 2, 4, 8 ...
        struct node **kids = NEWN(r->c->arena, struct node *, n->nkids ? 2 * n->nkids : 1);
        if (n->nkids)
            memcpy(kids, n->kids, sizeof(struct node *) * (size_t)n->nkids);
        n->kids = kids;
    }
    n->kids[n->nkids++] = kid;
    return n;
}

static struct node *name_node(struct raiser *r, const char *name)
{
    return node(r, N_NAME, name, (struct loc){ 0 });
}

static struct node *int_node(struct raiser *r, int64_t v)
{
    struct node *n = node(r, N_INT, NULL, (struct loc){ 0 }), *minus;
    n->value = v < 0 ? -v : v;
    if (v >= 0)
        return n;
    minus = node(r, N_UNARY, "-", (struct loc){ 0 });
    return add(r, minus, n);
}

// Adds @name; the returned place takes the arguments.
static struct annot *annot(struct raiser *r, struct node *n, const char *name)
{
    struct annot *a = NEWN(r->c->arena, struct annot, n->nannots + 1);
    if (n->nannots)
        memcpy(a, n->annots, sizeof *a * (size_t)n->nannots);
    n->annots = a;
    a = &a[n->nannots++];
    a->name = name;
    return a;
}

static void annot_arg(struct raiser *r, struct annot *a, struct node *arg)
{
    struct node **args = NEWN(r->c->arena, struct node *, a->nargs + 1);
    if (a->nargs)
        memcpy(args, a->args, sizeof *args * (size_t)a->nargs);
    args[a->nargs++] = arg;
    a->args = args;
}

static void annot_int(struct raiser *r, struct node *n, const char *name, int64_t v)
{
    annot_arg(r, annot(r, n, name), int_node(r, v));
}

static void annot_name(struct raiser *r, struct node *n, const char *name, const char *v)
{
    annot_arg(r, annot(r, n, name), name_node(r, v));
}

static void annot_dist(struct raiser *r, struct node *n, int dist)
{
    if (dist > 0 && dist < r->k->dists.n)
        annot_name(r, n, "dist", r->k->dists.v[dist].name);
}

// ---- names --------------------------------------------------------------------------------------------------

static bool is_used(const struct raiser *r, const char *name)
{
    for (int i = 0; i < r->used.n; i++)
        if (!strcmp(r->used.v[i], name))
            return true;
    return false;
}

static const char *unique(struct raiser *r, const char *name)
{
    const char *n = name;
    for (int i = 1; is_used(r, n); i++)
        n = arena_printf(r->c->arena, "%s_%d", name, i);
    VEC_PUSH(r->c->arena, &r->used, n);
    return n;
}

static bool is_leaf(const struct op *op)
{
    return op_infos[op->code].rule == TR_OWN && op->code != OP_GET;
}

static bool is_value(const struct op *op)
{
    return op->type.elem != EL_NONE && !is_leaf(op);
}

static bool name_stated(void *user, struct op *op)
{
    struct raiser *r = user;
    for (int i = 0; i < op->nargs; i++)
        if (op->args[i])
            r->uses[op->args[i]->id]++;
    for (int i = 0; i < op->nclauses; i++)
        if (op->clauses[i].name)
            op->clauses[i].name = unique(r, op->clauses[i].name);
    if (op->name && (is_value(op) || op->code == OP_EACH || op->code == OP_ROLE))
        r->ops[op->id] = unique(r, op->name);
    return true;
}

// A statement-like atomic_add stays without a name.
static bool is_statement(const struct raiser *r, const struct op *op)
{
    return op->code == OP_ATOMIC_ADD && !op->name && !r->uses[op->id];
}

static bool name_rest(void *user, struct op *op)
{
    struct raiser *r = user;
    if (r->ops[op->id] || is_statement(r, op))
        return true;
    if (op->code == OP_EACH || op->code == OP_ROLE)
        r->ops[op->id] = unique(r, op->code == OP_EACH ? "i" : "role");
    if (!is_value(op))
        return true;
    const char *n;
    do
        n = arena_printf(r->c->arena, "v%d", ++r->next);
    while (is_used(r, n));
    r->ops[op->id] = unique(r, n);
    return true;
}

static void name_all(struct raiser *r)
{
    const struct kernel *k = r->k;
    for (int i = 0; i < k->params.n; i++)
        VEC_PUSH(r->c->arena, &r->used, k->params.v[i].scalar ? k->params.v[i].scalar : k->params.v[i].buf->name);
    for (int i = 0; i < k->dims.n; i++)
        VEC_PUSH(r->c->arena, &r->used, k->dims.v[i]->name);
    for (int i = 0; i < k->bufs.n; i++)
        r->bufs[i] = k->bufs.v[i]->kind == BUF_SHARED ? unique(r, k->bufs.v[i]->name) : k->bufs.v[i]->name;
    for (int i = 0; i < k->axes.n; i++)
        r->axes[i] = unique(r, k->axes.v[i]->name);
    for (int i = 0; i < k->vars.n; i++)
        r->vars[i] = unique(r, k->vars.v[i]->name);
    walk(k->body, name_stated, r);
    walk(k->body, name_rest, r);
}

// By pointer, not by id: an axis that a pass dropped still has its old id.
static const char *axis_name(const struct raiser *r, const struct axis *a)
{
    for (int i = 0; i < r->k->axes.n; i++)
        if (r->k->axes.v[i] == a)
            return r->axes[i];
    return a->name;
}

// ---- expressions --------------------------------------------------------------------------------------------

// The shortest decimal that rounds to the constant.
static double shortest(enum elem e, double v)
{
    char s[40];
    for (int digits = 1; digits < 17; digits++) {
        snprintf(s, sizeof s, "%.*e", digits - 1, v);
        double d = strtod(s, NULL);
        if (elem_round(e, d) == v)
            return d;
    }
    return v;
}

static struct node *float_node(struct raiser *r, enum elem e, double v, struct loc loc)
{
    struct node *n;
    if (isnan(v))
        return name_node(r, "nan");
    if (isinf(v)) {
        n = name_node(r, "inf");
    } else {
        n = node(r, N_FLOAT, NULL, loc);
        n->fvalue = shortest(e, fabs(v));
    }
    return signbit(v) ? add(r, node(r, N_UNARY, "-", loc), n) : n;
}

static struct node *const_node(struct raiser *r, const struct op *op)
{
    enum elem e = op->type.elem;
    if (e == EL_BOOL)
        return name_node(r, op->ival ? "true" : "false");
    if (e == EL_I32)
        return int_node(r, op->ival);
    struct node *n = float_node(r, e, op->fval, op->loc);
    return e == EL_F32 ? n : add(r, node(r, N_CALL, elem_names[e], op->loc), n);
}

static struct node *origin_node(struct raiser *r, const struct op *op)
{
    struct node *n;
    if (op->axis) {
        n = node(r, N_CALL, "origin", op->loc);
        return add(r, n, name_node(r, axis_name(r, op->axis)));
    }
    return name_node(r, op->region->code == OP_EACH ? r->ops[op->region->id] : op->region->clauses[op->clause].name);
}

// An operand: a leaf in full, any other value by name.
static struct node *operand(struct raiser *r, const struct op *op)
{
    struct node *n;
    switch ((int)op->code) { // the leaves
    case OP_CONST: return const_node(r, op);
    case OP_DIM: n = name_node(r, op->dim->name); break;
    case OP_SCALAR: n = name_node(r, r->k->params.v[op->param].scalar); break;
    case OP_INDEX: n = name_node(r, axis_name(r, op->axis)); break;
    case OP_ORIGIN: n = origin_node(r, op); break;
    default: n = name_node(r, r->ops[op->id] ? r->ops[op->id] : "undefined"); break;
    }
    n->loc = op->loc;
    return n;
}

static const char *operator_of(enum opcode code)
{
    static const struct {
        enum opcode code;
        const char *text;
    } table[] = { { OP_ADD, "+" }, { OP_SUB, "-" }, { OP_MUL, "*" }, { OP_DIV, "/" },  { OP_REM, "%" },
                  { OP_AND, "&" }, { OP_OR, "|" },  { OP_XOR, "^" }, { OP_SHL, "<<" }, { OP_SHR, ">>" },
                  { OP_LT, "<" },  { OP_LE, "<=" }, { OP_GT, ">" },  { OP_GE, ">=" },  { OP_EQ, "==" },
                  { OP_NE, "!=" }, { OP_NEG, "-" } };
    for (size_t i = 0; i < COUNTOF(table); i++)
        if (table[i].code == code)
            return table[i].text;
    return NULL;
}

// buffer[args from .. from + n)
static struct node *subscript(struct raiser *r, const struct op *op, const struct buf *b, int from, int n)
{
    struct node *s = node(r, N_SUBSCRIPT, r->bufs[b->id], op->loc);
    for (int i = from; i < from + n; i++)
        add(r, s, operand(r, op->args[i]));
    return s;
}

static struct node *call(struct raiser *r, const struct op *op, const char *name)
{
    return node(r, N_CALL, name, op->loc);
}

static struct node *atomic_node(struct raiser *r, const struct op *op)
{
    struct node *n = add(r, call(r, op, "atomic_add"), subscript(r, op, op->buf, 0, op->nargs - 1));
    return add(r, n, operand(r, op->args[op->nargs - 1]));
}

static struct node *value_node(struct raiser *r, const struct op *op)
{
    const char *sign = op->code == OP_NOT ? (op->type.elem == EL_BOOL ? "!" : "~") : operator_of(op->code);
    struct node *n;
    if (sign)
        n = node(r, op->nargs == 1 ? N_UNARY : N_BINARY, sign, op->loc);
    else if (op->code == OP_GET)
        return name_node(r, r->vars[op->var->id]);
    else if (op->code == OP_LOAD)
        return subscript(r, op, op->buf, 0, op->nargs);
    else if (op->code == OP_ATOMIC_ADD)
        return atomic_node(r, op);
    else
        n = call(r, op, op->code == OP_CAST ? elem_names[op->type.elem] : op_infos[op->code].name);
    if (op->code == OP_MMA) {
        add(r, n, operand(r, op->args[0]));
        add(r, n, subscript(r, op, op->buf, 1, 1));
        return add(r, n, subscript(r, op, op->buf2, 2, 1));
    }
    for (int i = 0; i < op->nargs; i++)
        add(r, n, operand(r, op->args[i]));
    if (op->axis2)
        add(r, n, name_node(r, axis_name(r, op->axis2)));
    if (op->axis)
        add(r, n, name_node(r, axis_name(r, op->axis)));
    return n;
}

// ---- statements ---------------------------------------------------------------------------------------------

static struct node *block_node(struct raiser *r, const struct block *b);

static struct node *type_node(struct raiser *r, const struct type *t)
{
    struct node *n = node(r, N_TYPE, elem_names[t->elem], (struct loc){ 0 });
    for (int i = 0; i < t->rank; i++)
        add(r, n, name_node(r, axis_name(r, t->axes[i])));
    return n;
}

static void axis_facts(struct raiser *r, struct node *n, const struct axis *a)
{
    if (a->size)
        annot_int(r, n, "tile", a->size);
    if (a->exact)
        annot(r, n, "exact");
}

static struct node *let_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_LET, r->ops[op->id], op->loc);
    add(r, n, type_node(r, &op->type));
    add(r, n, value_node(r, op));
    annot_dist(r, n, op->dist);
    return n;
}

// name(lo, hi), or name(hi) from 0.
static struct node *span(struct raiser *r, const char *name, const struct op *lo, const struct op *hi)
{
    struct node *n = node(r, N_CALL, name, hi->loc);
    if (lo->code != OP_CONST || lo->ival)
        add(r, n, operand(r, lo));
    return add(r, n, operand(r, hi));
}

static struct node *range_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_LET, axis_name(r, op->axis), op->loc);
    add(r, n, span(r, "range", op->args[0], op->args[1]));
    axis_facts(r, n, op->axis);
    return n;
}

static struct node *var_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_VAR, NULL, op->loc);
    add(r, n, name_node(r, r->vars[op->var->id]));
    add(r, n, type_node(r, &op->var->type));
    add(r, n, operand(r, op->args[0]));
    annot_dist(r, n, op->var->dist);
    return n;
}

static struct node *assign_node(struct raiser *r, const struct op *op, struct node *target)
{
    struct node *n = add(r, node(r, N_ASSIGN, NULL, op->loc), target);
    add(r, n, operand(r, op->args[op->nargs - 1]));
    if (op->code == OP_STORE)
        annot_dist(r, n, op->dist);
    return n;
}

static struct node *clause_node(struct raiser *r, const struct clause *c)
{
    struct node *n = node(r, N_CLAUSE, c->kind == CL_EACH ? c->name : NULL, (struct loc){ 0 });
    if (c->kind == CL_EACH)
        return add(r, n, span(r, "each", c->lo, c->hi));
    n->loc = c->axis->loc;
    if (c->kind == CL_TILE) {
        n->name = axis_name(r, c->axis);
        add(r, n, span(r, "tile", c->lo, c->hi));
    } else {
        n->name = c->name;
        n->name2 = axis_name(r, c->axis);
        add(r, n, name_node(r, r->bufs[c->map->id]));
    }
    axis_facts(r, n, c->axis);
    return n;
}

static struct node *parallel_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_PARALLEL, NULL, op->loc);
    for (int i = 0; i < op->nclauses; i++)
        add(r, n, clause_node(r, &op->clauses[i]));
    return add(r, n, block_node(r, op->body));
}

static struct node *loop_node(struct raiser *r, const struct op *op)
{
    struct clause c = { .kind = op->code == OP_EACH ? CL_EACH : CL_TILE };
    c.axis = op->axis;
    c.name = r->ops[op->id];
    c.lo = op->args[0];
    c.hi = op->args[1];
    struct node *n = node(r, N_FOR, NULL, op->loc);
    add(r, n, clause_node(r, &c));
    return add(r, n, block_node(r, op->body));
}

static struct node *at_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_AT, axis_name(r, op->axis), op->loc);
    add(r, n, operand(r, op->args[1]));
    add(r, n, operand(r, op->args[0]));
    axis_facts(r, n, op->axis);
    return add(r, n, block_node(r, op->body));
}

static struct node *if_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_IF, NULL, op->loc);
    add(r, n, operand(r, op->args[0]));
    add(r, n, block_node(r, op->body));
    return op->other ? add(r, n, block_node(r, op->other)) : n;
}

static struct node *role_node(struct raiser *r, const struct op *op)
{
    struct node *n = node(r, N_ROLE, r->ops[op->id], op->loc);
    n->value = op->ival;
    n->value2 = op->ival2;
    if (op->regs)
        annot_int(r, n, "registers", op->regs);
    return add(r, n, block_node(r, op->body));
}

static struct node *shared_node(struct raiser *r, const struct op *op)
{
    const struct buf *b = op->buf;
    struct node *n = node(r, N_SHARED, r->bufs[b->id], op->loc);
    n->name2 = elem_names[b->elem];
    n->value = b->stages;
    add(r, n, int_node(r, b->rows));
    add(r, n, int_node(r, b->cols));
    if (b->barrier)
        annot(r, n, "barrier");
    if (b->swizzle)
        annot_int(r, n, "swizzle", b->swizzle);
    if (b->offset >= 0)
        annot_int(r, n, "offset", b->offset);
    return n;
}

// copy, put, commit, wait, depend, barrier, mma_commit, mma_wait, arrive, await, atomic_add
static struct node *call_statement(struct raiser *r, const struct op *op)
{
    struct node *f = call(r, op, op_infos[op->code].name), *n = node(r, N_EXPR, NULL, op->loc);
    if (op->code == OP_ATOMIC_ADD)
        f = atomic_node(r, op);
    else if (op->code == OP_COPY)
        add(r, add(r, f, subscript(r, op, op->buf2, 0, 1)), subscript(r, op, op->buf, 1, op->nargs - 1));
    else if (op->code == OP_PUT)
        add(r, add(r, f, subscript(r, op, op->buf2, 0, 1)), operand(r, op->args[1]));
    else if (op->code == OP_WAIT || op->code == OP_MMA_WAIT)
        add(r, f, int_node(r, op->ival));
    else if (op->code == OP_ARRIVE || op->code == OP_AWAIT)
        add(r, f, subscript(r, op, op->buf, 0, 1));
    if (op->code == OP_AWAIT)
        add(r, f, operand(r, op->args[1]));
    annot_dist(r, n, op->dist);
    if (op->bulk)
        annot(r, n, "bulk");
    return add(r, n, f);
}

static struct node *statement(struct raiser *r, const struct op *op)
{
    switch ((int)op->code) { // the rest are values
    case OP_RANGE: return range_node(r, op);
    case OP_VAR: return var_node(r, op);
    case OP_SET: return assign_node(r, op, name_node(r, r->vars[op->var->id]));
    case OP_STORE: return assign_node(r, op, subscript(r, op, op->buf, 0, op->nargs - 1));
    case OP_PARALLEL: return parallel_node(r, op);
    case OP_FOR:
    case OP_EACH: return loop_node(r, op);
    case OP_AT: return at_node(r, op);
    case OP_IF: return if_node(r, op);
    case OP_ROLE: return role_node(r, op);
    case OP_SHARED: return shared_node(r, op);
    case OP_COPY:
    case OP_COMMIT:
    case OP_WAIT:
    case OP_BARRIER:
    case OP_PUT:
    case OP_DEPEND:
    case OP_MMA_COMMIT:
    case OP_MMA_WAIT:
    case OP_ARRIVE:
    case OP_AWAIT: return call_statement(r, op);
    }
    return is_statement(r, op) ? call_statement(r, op) : let_node(r, op);
}

static struct node *block_node(struct raiser *r, const struct block *b)
{
    struct node *n = node(r, N_BLOCK, NULL, (struct loc){ 0 });
    for (int i = 0; i < b->ops.n; i++)
        if (!is_leaf(b->ops.v[i]))
            add(r, n, statement(r, b->ops.v[i]));
    return n;
}

// ---- kernels ------------------------------------------------------------------------------------------------

static struct node *param_node(struct raiser *r, const struct param *p)
{
    const struct buf *b = p->buf;
    struct node *n = node(r, N_PARAM, b ? b->name : p->scalar, b ? b->loc : (struct loc){ 0 });
    struct node *t = node(r, b && b->kind == BUF_MAP ? N_MAPTYPE : N_TYPE, NULL, (struct loc){ 0 });
    if (t->kind == N_TYPE)
        t->name = elem_names[p->elem];
    if (b && b->kind == BUF_OUT)
        n->flags = NF_OUT;
    if (b && b->kind == BUF_INOUT)
        n->flags = NF_INOUT;
    if (b && b->early)
        n->flags = NF_EARLY;
    for (int i = 0; b && i < (b->kind == BUF_MAP ? 1 : b->rank); i++)
        add(r, t, b->shape[i].dim ? name_node(r, b->shape[i].dim->name) : int_node(r, b->shape[i].value));
    return add(r, n, t);
}

static struct node *binary_node(struct raiser *r, const char *op, struct node *a, struct node *b)
{
    struct node *n = node(r, N_BINARY, op, (struct loc){ 0 });
    return add(r, add(r, n, a), b);
}

static struct node *require_node(struct raiser *r, const struct require *q)
{
    struct node *n = node(r, N_REQUIRE, NULL, q->loc), *d = name_node(r, q->dim->name), *v = int_node(r, q->value);
    if (q->kind == REQ_MAX)
        return add(r, n, binary_node(r, "<=", d, v));
    return add(r, n, binary_node(r, "==", binary_node(r, "%", d, v), int_node(r, 0)));
}

static struct node *dist_node(struct raiser *r, const struct dist *d)
{
    struct node *n = node(r, N_DIST, d->name, (struct loc){ 0 });
    for (int i = 0; i < d->homes.n; i++) {
        const struct home *h = &d->homes.v[i];
        struct node *x = node(r, N_HOME, axis_name(r, h->axis), (struct loc){ 0 });
        for (int j = 0; j < h->nbits; j++)
            add(r, x, name_node(r, arena_printf(r->c->arena, "%c%d", h->bits[j].home, h->bits[j].pos)));
        add(r, n, x);
    }
    return n;
}

static void sched_facts(struct raiser *r, struct node *n)
{
    const struct sched *s = &r->k->sched;
    if (s->variant && *s->variant)
        annot_name(r, n, "variant", s->variant);
    struct annot *w = annot(r, n, "warps");
    annot_arg(r, w, int_node(r, s->warps_m));
    annot_arg(r, w, int_node(r, s->warps_n));
    if (s->producers)
        annot_int(r, n, "producers", s->producers);
    annot_int(r, n, "stages", s->stages);
    if (s->mma >= 0 && r->c->arch && s->mma < r->c->arch->nmmas)
        annot_name(r, n, "mma", r->c->arch->mmas[s->mma].name);
    if (s->group)
        annot_int(r, n, "group", s->group);
    if (s->min_blocks)
        annot_int(r, n, "blocks", s->min_blocks);
    if (s->swap)
        annot(r, n, "swap");
    if (s->persistent)
        annot(r, n, "persistent");
    if (s->cluster)
        annot_int(r, n, "cluster", s->cluster);
    if (s->resident) {
        struct annot *m = annot(r, n, "model");
        annot_arg(r, m, int_node(r, s->fixed_ns));
        annot_arg(r, m, int_node(r, s->step_ps));
        annot_arg(r, m, int_node(r, s->resident));
        annot_arg(r, m, int_node(r, s->flight));
    }
}

static void kernel_facts(struct raiser *r, struct node *n)
{
    const struct kernel *k = r->k;
    for (int i = 0; i < k->dims.n; i++)
        if (k->dims.v[i]->bound >= 0) {
            struct annot *a = annot(r, n, "bind");
            annot_arg(r, a, name_node(r, k->dims.v[i]->name));
            annot_arg(r, a, int_node(r, k->dims.v[i]->bound));
        }
    if (k->scheduled)
        sched_facts(r, n);
    if (k->laid_out)
        annot_int(r, n, "shared", k->shared_bytes);
    if (k->laid_out && k->scratch >= 0)
        annot_int(r, n, "scratch", k->scratch);
}

struct node *raise_kernel(struct ctx *c, const struct kernel *kernel)
{
    // A clone: names of clauses are made unique in place.
    const struct kernel *k = kernel_clone(c, kernel);
    struct raiser r = { .c = c, .k = k };
    r.ops = NEWN(c->arena, const char *, k->nops + 1);
    r.uses = NEWN(c->arena, int, k->nops + 1);
    r.axes = NEWN(c->arena, const char *, k->axes.n + 1);
    r.vars = NEWN(c->arena, const char *, k->vars.n + 1);
    r.bufs = NEWN(c->arena, const char *, k->bufs.n + 1);
    name_all(&r);
    struct node *n = node(&r, N_KERNEL, k->name, k->loc);
    n->doc = k->doc;
    for (int i = 0; i < k->params.n; i++)
        add(&r, n, param_node(&r, &k->params.v[i]));
    for (int i = 0; i < k->requires.n; i++)
        add(&r, n, require_node(&r, &k->requires.v[i]));
    for (int i = 0; i < k->dists.n; i++)
        add(&r, n, dist_node(&r, &k->dists.v[i]));
    kernel_facts(&r, n);
    return add(&r, n, block_node(&r, k->body));
}
