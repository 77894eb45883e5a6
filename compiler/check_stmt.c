// Statements of the checker: declarations, assignments, stores, loops, and the explicit data movement of `layout`.
#include "check.h"

#include <string.h>

// ---- types --------------------------------------------------------------------------------------------------

bool check_type(struct checker *s, const struct node *n, struct type *t)
{
    memset(t, 0, sizeof *t);
    t->elem = elem_named(s, n->name);
    bool ok = t->elem != EL_NONE;
    if (!ok)
        unknown_elem(s, n);
    if (n->nkids > RANK_MAX)
        return error(s->c, n->kids[RANK_MAX]->loc, "a tile has at most %d axes, found %d", RANK_MAX, n->nkids);
    for (int i = 0; i < n->nkids; i++) {
        struct axis *a = axis_arg(s, n->kids[i]);
        if (a && type_has_axis(t, a))
            ok = error(s->c, n->kids[i]->loc, "axis '%s' stands twice in the type", n->kids[i]->name);
        else if (a)
            t->axes[t->rank++] = a;
        ok = ok && a;
    }
    return ok;
}

static bool same_axes(const struct type *a, const struct type *b)
{
    for (int i = 0; i < a->rank; i++)
        if (!type_has_axis(b, a->axes[i]))
            return false;
    return a->rank == b->rank;
}

// ---- let, var -----------------------------------------------------------------------------------------------

// Two scalar expressions with surely the same value.
static bool same_value(const struct op *a, const struct op *b, int depth)
{
    if (a == b)
        return true;
    if (depth > 8 || a->code != b->code || !(op_infos[a->code].flags & F_PURE) || a->nargs != b->nargs ||
        !type_equal(&a->type, &b->type) || a->axis != b->axis || a->dim != b->dim || a->region != b->region ||
        a->clause != b->clause || a->param != b->param || a->ival != b->ival)
        return false;
    for (int i = 0; i < a->nargs; i++)
        if (!same_value(a->args[i], b->args[i], depth + 1))
            return false;
    return a->type.elem == EL_I32;
}

// An upper bound of hi - lo; INT32_MAX if none is known. depth: values are a DAG, all paths through it would be 2^n.
static int64_t extent_at(const struct op *lo, const struct op *hi, int depth)
{
    int64_t l0, l1, h0, h1, best = INT32_MAX;
    op_bounds(lo, &l0, &l1);
    op_bounds(hi, &h0, &h1);
    if (h1 - l0 < best)
        best = h1 - l0;
    for (int i = 0; i < 2 && hi->code == OP_ADD; i++) // lo .. lo + n
        if (same_value(hi->args[i], lo, 0)) {
            op_bounds(hi->args[1 - i], &h0, &h1);
            best = h1 < best ? h1 : best;
        }
    for (int i = 0; i < 2 && hi->code == OP_MIN && depth < 6; i++) {
        int64_t e = extent_at(lo, hi->args[i], depth + 1);
        best = e < best ? e : best;
    }
    return best < 0 ? 0 : best;
}

static int64_t extent(const struct op *lo, const struct op *hi)
{
    return extent_at(lo, hi, 0);
}

// lo and hi of tile(hi), tile(lo, hi), each(..), range(..): kids of the call.
static bool bounds_of(struct checker *s, const struct node *call, struct op **lo, struct op **hi)
{
    const char *form = arena_printf(s->c->arena, "%s(end) or %s(begin, end)", call->name, call->name);
    if (!check_nargs(s, call, 1, 2, form))
        return false;
    if (call->nkids == 2)
        *lo = scalar_i32(s, call->kids[0], "the begin");
    else
        *lo = op_const_i(s->c, s->k, s->b, EL_I32, 0);
    *hi = scalar_i32(s, call->kids[call->nkids - 1], "the end");
    return *lo && *hi;
}

static void check_range(struct checker *s, const struct node *n, const struct node *call)
{
    struct op *args[2];
    bool ok = bounds_of(s, call, &args[0], &args[1]);
    if (n->nkids == 2)
        error(s->c, n->kids[0]->loc, "an axis has no type: write let %s = range(...)", n->name);
    annots_only(s, n, "tile exact");
    struct sym *y = declare(s, n->name, ok ? SY_AXIS : SY_POISON, n->loc);
    if (!ok)
        return;
    struct axis *a = y->axis = axis_new(s->c, s->k, unique_name(s, n->name), AX_RANGE, n->loc);
    struct op *op = op_make(s, OP_RANGE, call->loc, 2, args);
    op->axis = a;
    a->def = op;
    a->lo = args[0];
    a->hi = args[1];
    a->max_extent = extent(args[0], args[1]);
    check_axis_facts(s, n, a);
    op_add(s, op);
    if (a->max_extent == INT32_MAX)
        error(s->c, call->kids[call->nkids - 1]->loc,
              "axis '%s' has no known upper bound: bind the dimension with -D, or state 'require %s <= ...'", n->name,
              args[1]->code == OP_DIM ? args[1]->dim->name : "NAME");
}

// A printed type gives the order of the axes too (a pass may have chosen another one than the rule).
static bool let_type(struct checker *s, const struct node *n, const struct type *t, struct op *op, bool fresh)
{
    if (op->type.elem != t->elem || !same_axes(&op->type, t)) {
        bool cast = same_axes(&op->type, t) && t->elem != EL_BOOL;
        error(s->c, n->kids[1]->loc, "'%s' is declared %s, the value is %s%s", n->name, type_text(s->c, t),
              type_text(s->c, &op->type),
              cast ? arena_printf(s->c->arena, "; write %s(...)", elem_names[t->elem]) : "");
        return false;
    }
    if (fresh)
        op->type = *t;
    return true;
}

static bool is_leaf(const struct op *op)
{
    return op_infos[op->code].rule == TR_OWN && op->code != OP_GET;
}

static void check_let(struct checker *s, const struct node *n)
{
    const struct node *e = n->kids[n->nkids - 1];
    struct type t;
    bool typed = n->nkids == 2, ok = true;
    int first = s->k->nops;
    if (e->kind == N_CALL && !strcmp(e->name, "range")) {
        check_range(s, n, e);
        return;
    }
    annots_only(s, n, "dist");
    if (typed)
        ok = check_type(s, n->kids[0], &t);
    s->let_type = typed && ok ? &t : NULL;
    struct value v = expr(s, e);
    s->let_type = NULL;
    if (typed && ok && v.kind != V_BAD)
        v = val_op(v.kind == V_OP ? v.op : val_use(s, v, t.elem, e));
    if (v.kind == V_OP) {
        bool fresh = v.op->id >= first && !v.op->name && !is_leaf(v.op);
        ok = ok && (!typed || let_type(s, n, &t, v.op, fresh));
        if (fresh)
            v.op->name = unique_name(s, n->name);
    }
    declare(s, n->name, ok && v.kind != V_BAD ? SY_VALUE : SY_POISON, n->loc)->val = v;
}

static void check_var(struct checker *s, const struct node *n)
{
    struct type t;
    const struct node *init = n->kids[n->nkids - 1];
    annots_only(s, n, "dist");
    bool ok = check_type(s, n->kids[n->nkids - 2], &t);
    struct value v = expr(s, init);
    struct op *x = ok ? val_convert(s, v, t.elem, init, "the first value") : NULL;
    for (int i = 0; x && i < x->type.rank; i++)
        if (!type_has_axis(&t, x->type.axes[i])) {
            error(s->c, init->loc, "the first value is %s, but the variable is %s", type_text(s->c, &x->type),
                  type_text(s->c, &t));
            break;
        }
    for (int i = 0; i < n->nkids - 2; i++) {
        const struct node *name = n->kids[i];
        struct sym *y = declare(s, name->name, ok ? SY_VAR : SY_POISON, name->loc);
        if (!ok)
            continue;
        y->var = var_new(s->c, s->k, unique_name(s, name->name), t, name->loc);
        y->var->dist = t.rank ? s->dist : 0;
        struct op *op = x ? op_make(s, OP_VAR, name->loc, 1, &x) : NULL;
        if (!op)
            continue;
        op->var = y->var;
        op->dist = y->var->dist;
        block_push(s->c, s->b, op); // its operand was checked above
    }
}

// ---- assignments and stores ---------------------------------------------------------------------------------

static enum opcode assign_op(int op)
{
    return op == '+' ? OP_ADD : op == '-' ? OP_SUB : OP_MUL;
}

static bool is_dot(const struct node *n)
{
    return n->kind == N_CALL && !strcmp(n->name, "dot") && n->nkids == 2;
}

static void not_assignable(struct checker *s, const struct node *target, const struct sym *y)
{
    if (y->kind == SY_POISON)
        return;
    if (y->kind == SY_BUF)
        error(s->c, target->loc, "'%s' is a buffer: write %s[...] = value", target->name, target->name);
    else
        error(s->c, target->loc, "'%s' is %s and cannot be assigned%s", target->name, sym_kind_text(y->kind),
              y->kind == SY_VALUE ? "; declare it with 'var'" : "");
    note(s->c, y->loc, "'%s' is declared here", target->name);
}

// get v; v = dot(get, a, b) where the product fits the variable, else get + dot(0, a, b).
static struct value add_dot(struct checker *s, const struct node *n, struct value get)
{
    const struct node *call = n->kids[1];
    struct value d = check_dot(s, call, NULL);
    if (d.kind == V_BAD)
        return d;
    struct op *dot = d.op;
    if (!same_axes(&dot->type, &get.op->type) || get.op->type.elem != EL_F32)
        return binary(s, OP_ADD, get, d, n);
    dot->args[0] = get.op;
    if (dot->type.rank && !type_has_axis(&dot->args[1]->type, get.op->type.axes[0])) {
        struct op *a = dot->args[1];
        dot->args[1] = dot->args[2];
        dot->args[2] = a;
    }
    op_infer(s->c, dot);
    return d;
}

static void check_set(struct checker *s, const struct node *n)
{
    const struct node *target = n->kids[0], *e = n->kids[1];
    const struct sym *y = lookup(s, target->name);
    struct value v, get;
    if (!y) {
        unknown_name(s, target->name, target->loc);
        if (!n->value)
            note(s->c, target->loc, "to declare it here, write let %s = ..., or var for what changes", target->name);
        expr(s, e);
        return;
    }
    if (y->kind != SY_VAR) {
        not_assignable(s, target, y);
        expr(s, e);
        return;
    }
    if (n->flags == 0 && n->value == 0)
        v = expr(s, e);
    else {
        get = expr(s, target);
        v = n->value == '+' && is_dot(e) ? add_dot(s, n, get) : binary(s, assign_op((int)n->value), get, expr(s, e), n);
    }
    struct op *x =
        val_convert(s, v, y->var->type.elem, e, arena_printf(s->c->arena, "the value of '%s'", target->name));
    if (!x)
        return;
    for (int i = 0; i < x->type.rank; i++)
        if (!type_has_axis(&y->var->type, x->type.axes[i])) {
            error(s->c, e->loc, "the value is %s, but '%s' is %s", type_text(s->c, &x->type), target->name,
                  type_text(s->c, &y->var->type));
            return;
        }
    struct op *op = op_make(s, OP_SET, n->loc, 1, &x);
    op->var = y->var;
    op->dist = y->var->dist;
    block_push(s->c, s->b, op);
}

static bool writable(struct checker *s, const struct node *target, const struct buf *b, bool reads)
{
    const char *name = target->name;
    if (b->kind == BUF_OUT && !reads)
        return true;
    if (b->kind == BUF_INOUT)
        return true;
    if (b->kind == BUF_OUT)
        error(s->c, target->loc, "'+=' reads '%s', an output: declare it 'inout'", name);
    else
        error(s->c, target->loc, "'%s' is an input and cannot be written; declare it 'out' or 'inout'", name);
    note(s->c, b->loc, "'%s' is declared here", name);
    return false;
}

static void check_store(struct checker *s, const struct node *n)
{
    const struct node *target = n->kids[0], *e = n->kids[1];
    struct op *args[RANK_MAX + 1], *op;
    struct buf *buf;
    annots_only(s, n, "dist");
    bool ok = check_indices(s, target, args, &buf);
    struct value v = expr(s, e);
    if (!buf || !writable(s, target, buf, n->value != 0) || !ok || v.kind == V_BAD)
        return;
    if (n->value) {
        op = op_make(s, OP_LOAD, target->loc, buf->rank, args);
        op->buf = buf;
        v = binary(s, assign_op((int)n->value), val_op(op_add(s, op)), v, n);
    }
    // Any float may be stored to any float buffer: the store rounds. A literal is then f32.
    enum elem want = v.kind == V_OP && elem_is_float(v.op->type.elem) && elem_is_float(buf->elem) ? v.op->type.elem
                     : elem_is_float(buf->elem)                                                   ? EL_F32
                                                                                                  : buf->elem;
    args[buf->rank] = val_convert(s, v, want, e, arena_printf(s->c->arena, "the value for '%s'", target->name));
    if (!args[buf->rank])
        return;
    struct type place = { 0 };
    for (int i = 0; i < buf->rank; i++)
        type_union(&place, &args[i]->type);
    const struct type *x = &args[buf->rank]->type;
    for (int i = 0; i < x->rank; i++)
        if (!type_has_axis(&place, x->axes[i])) {
            error(s->c, e->loc, "the value is %s, but no index of '%s' has axis '%s'", type_text(s->c, x), target->name,
                  x->axes[i]->name);
            return;
        }
    op = op_make(s, OP_STORE, n->loc, buf->rank + 1, args);
    op->buf = buf;
    if (op_add(s, op))
        op->dist = s->dist;
}

static void check_assign(struct checker *s, const struct node *n)
{
    if (n->kids[0]->kind == N_NAME)
        check_set(s, n);
    else if (n->kids[0]->kind == N_SUBSCRIPT)
        check_store(s, n);
    else
        error(s->c, n->kids[0]->loc, "expected a variable or a place in a buffer before '='");
}

// ---- loops --------------------------------------------------------------------------------------------------

enum { HOST_TERMS = 32 }; // of one bound, operands and operators: IMAGE_TERMS_MAX of runtime/image.h

// Can the host compute this? *left < 0 afterwards: too long (values are a DAG: its terms may be many more than its ops).
static bool host_computable(const struct op *op, int *left)
{
    if (--*left < 0)
        return true;
    switch ((int)op->code) { // all others: on the device only
    case OP_CONST:
    case OP_DIM:
    case OP_SCALAR: return op->type.elem == EL_I32;
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_MIN: return host_computable(op->args[0], left) && host_computable(op->args[1], left);
    }
    return false;
}

static bool is_call(const struct node *n, const char *name)
{
    return n->kind == N_CALL && !strcmp(n->name, name);
}

static void host_bounds(struct checker *s, const struct node *call, const struct op *lo, const struct op *hi)
{
    const struct op *x[2] = { lo, hi };
    for (int i = 0; i < 2; i++) {
        int left = HOST_TERMS;
        if (!x[i])
            continue;
        struct loc at = call->kids[call->nkids == 2 ? i : 0]->loc;
        if (!host_computable(x[i], &left))
            error(s->c, at,
                  "bounds of 'parallel' are computed before the launch: only constants, dimensions, scalar i32 "
                  "parameters, + - * / and min may stand here");
        else if (left < 0)
            error(s->c, at,
                  "this bound of 'parallel' is too long: at most %d operands and operators, all values it uses "
                  "written out",
                  HOST_TERMS);
    }
}

static void map_clause(struct checker *s, const struct node *n, struct clause *cl)
{
    const struct node *src = n->kids[0];
    const struct sym *y = lookup(s, src->name);
    cl->kind = CL_MAP;
    if (!y)
        unknown_name(s, src->name, src->loc);
    else if (y->kind != SY_POISON && (y->kind != SY_BUF || y->buf->kind != BUF_MAP))
        error(s->c, src->loc, "'%s' is %s, not a tile_map%s", src->name, sym_kind_text(y->kind),
              y->kind == SY_BUF ? "" : arena_printf(s->c->arena, "; write tile(%s)", src->name));
    else if (y->kind == SY_BUF)
        cl->map = y->buf;
    if (cl->map && !n->name2)
        error(s->c, n->loc, "an entry of a tile map has an expert and rows: write (expert, %s) in %s", n->name,
              src->name);
}

// Bounds are evaluated outside; names are declared by declare_clause, inside.
static void check_clause(struct checker *s, const struct node *n, struct clause *cl)
{
    const struct node *src = n->kids[0];
    bool each = is_call(src, "each");
    annots_only(s, n, "tile exact");
    cl->kind = each ? CL_EACH : CL_TILE;
    if (src->kind == N_NAME) {
        map_clause(s, n, cl);
    } else if (n->name2) {
        error(s->c, src->loc, "expected a tile_map after 'in'");
    } else if (!each && !is_call(src, "tile")) {
        error(s->c, src->loc, "expected tile(...), each(...) or a tile_map after 'in'");
    } else if (!bounds_of(s, src, &cl->lo, &cl->hi)) {
        cl->lo = cl->hi = NULL;
    }
}

static void declare_counter(struct checker *s, const char *name, struct loc loc, struct op *region, int clause,
                            const char **ir_name)
{
    struct sym *y = declare(s, name, SY_COUNTER, loc);
    y->region = region;
    y->clause = clause;
    *ir_name = unique_name(s, name);
}

static void declare_clause(struct checker *s, const struct node *n, struct clause *cl, struct op *region, int i)
{
    if (cl->kind == CL_EACH) {
        declare_counter(s, n->name, n->loc, region, i, &cl->name);
        return;
    }
    if (cl->kind == CL_MAP && n->name2)
        declare_counter(s, n->name, n->loc, region, i, &cl->name);
    const char *name = n->name2 ? n->name2 : n->name;
    struct sym *y = declare(s, name, SY_AXIS, n->loc);
    struct axis *a = axis_new(s->c, s->k, unique_name(s, name), cl->kind == CL_MAP ? AX_MAP : AX_TILE, n->loc);
    y->axis = cl->axis = a;
    a->def = region;
    a->lo = cl->lo;
    a->hi = cl->hi;
    if (cl->lo && cl->hi)
        a->max_extent = extent(cl->lo, cl->hi);
    check_axis_facts(s, n, a);
}

static void check_parallel(struct checker *s, const struct node *n)
{
    struct op *op = op_new(s->c, s->k, OP_PARALLEL, n->loc);
    int nc = n->nkids - 1;
    annots_only(s, n, "");
    if (s->grid) {
        error(s->c, n->loc, "a kernel has one 'parallel'; put all its axes into one, separated by ','");
        note(s->c, s->grid->loc, "the first one is here");
    } else if (s->b->parent) {
        error(s->c, n->loc, "'parallel' must be the outermost statement");
    }
    s->grid = op;
    if (nc > CLAUSES_MAX) {
        error(s->c, n->kids[CLAUSES_MAX]->loc, "'parallel' takes at most %d axes, found %d", CLAUSES_MAX, nc);
        return;
    }
    op->clauses = NEWN(s->c->arena, struct clause, nc);
    op->nclauses = nc;
    for (int i = 0; i < nc; i++) {
        check_clause(s, n->kids[i], &op->clauses[i]);
        if (op->clauses[i].kind != CL_MAP)
            host_bounds(s, n->kids[i]->kids[0], op->clauses[i].lo, op->clauses[i].hi);
    }
    block_push(s->c, s->b, op);
    op->body = block_new(s->c, op);
    scope_open(s);
    for (int i = 0; i < nc; i++)
        declare_clause(s, n->kids[i], &op->clauses[i], op, i);
    check_block(s, n->kids[nc], op->body);
    scope_close(s);
}

static void check_for(struct checker *s, const struct node *n)
{
    const struct node *cn = n->kids[0];
    struct clause cl = { 0 };
    annots_only(s, n, "");
    check_clause(s, cn, &cl);
    if (cl.kind == CL_MAP)
        error(s->c, cn->kids[0]->loc, "a tile map can only be spread over the grid, by 'parallel'");
    struct op *op = op_new(s->c, s->k, cl.kind == CL_EACH ? OP_EACH : OP_FOR, n->loc);
    op->args[0] = cl.lo;
    op->args[1] = cl.hi;
    op->nargs = 2;
    op->body = block_new(s->c, op);
    if (cl.lo && cl.hi)
        block_push(s->c, s->b, op);
    scope_open(s);
    declare_clause(s, cn, &cl, op, 0);
    op->axis = cl.axis;
    op->name = cl.name;
    check_block(s, n->kids[1], op->body);
    scope_close(s);
}

static void check_at(struct checker *s, const struct node *n)
{
    struct op *args[2], *op;
    annots_only(s, n, "tile exact");
    args[1] = scalar_i32(s, n->kids[0], "the end");
    args[0] = scalar_i32(s, n->kids[1], "the origin");
    op = op_new(s->c, s->k, OP_AT, n->loc);
    memcpy(op->args, args, sizeof args);
    op->nargs = 2;
    op->body = block_new(s->c, op);
    if (args[0] && args[1])
        block_push(s->c, s->b, op);
    scope_open(s);
    struct sym *y = declare(s, n->name, SY_AXIS, n->loc);
    struct axis *a = y->axis = op->axis = axis_new(s->c, s->k, unique_name(s, n->name), AX_TILE, n->loc);
    a->def = op;
    a->lo = args[0];
    a->hi = args[1];
    if (args[1]) {
        int64_t lo, hi;
        op_bounds(args[1], &lo, &hi);
        a->max_extent = hi;
    }
    check_axis_facts(s, n, a);
    check_block(s, n->kids[2], op->body);
    scope_close(s);
}

static void check_if(struct checker *s, const struct node *n)
{
    struct op *cond = val_convert(s, expr(s, n->kids[0]), EL_BOOL, n->kids[0], "the condition");
    struct op *op = op_new(s->c, s->k, OP_IF, n->loc);
    annots_only(s, n, "");
    if (cond && cond->type.rank) {
        error(s->c, n->kids[0]->loc, "the condition of 'if' must be a scalar, not %s; use select(...) for tiles",
              type_text(s->c, &cond->type));
        cond = NULL;
    }
    op->args[op->nargs++] = cond;
    op->body = block_new(s->c, op);
    if (cond)
        block_push(s->c, s->b, op);
    check_block(s, n->kids[1], op->body);
    if (n->nkids > 2) {
        op->other = block_new(s->c, op);
        check_block(s, n->kids[2], op->other);
    }
}

// ---- explicit data movement ---------------------------------------------------------------------------------

static bool power_of_two(int64_t v)
{
    return v > 0 && !(v & (v - 1));
}

static void check_shared(struct checker *s, const struct node *n)
{
    enum elem e = elem_named(s, n->name2);
    const struct node *rows = n->kids[0], *cols = n->kids[1];
    const struct annot *a;
    annots_only(s, n, "barrier swizzle offset");
    if (e == EL_NONE || e == EL_BOOL)
        error(s->c, n->loc, "'%s' is no element type for shared memory", n->name2);
    if (n->value < 1 || n->value > 64)
        error(s->c, n->loc, "'%s' has %lld stages; 1 to 64 are possible", n->name, (long long)n->value);
    for (int i = 0; i < 2; i++)
        if (!power_of_two(n->kids[i]->value) || n->kids[i]->value > 65536)
            error(s->c, n->kids[i]->loc, "rows and columns of a shared buffer must be powers of two, not %lld",
                  (long long)n->kids[i]->value);
    struct sym *y = declare(s, n->name, SY_BUF, n->loc);
    struct buf *b = y->buf = buf_new(s->c, s->k, unique_name(s, n->name), BUF_SHARED, e, n->loc);
    b->stages = (int)n->value;
    b->rows = (int)rows->value;
    b->cols = (int)cols->value;
    if ((a = annot_find(n, "swizzle")))
        b->swizzle = annot_int(s, a, 0, 0, 3);
    if ((a = annot_find(n, "offset")))
        b->offset = annot_int(s, a, 0, 0, 1 << 24);
    check_barrier_facts(s, n, b);
    struct op *op = op_new(s->c, s->k, OP_SHARED, n->loc);
    op->buf = b;
    block_push(s->c, s->b, op);
}

static void check_copy(struct checker *s, const struct node *stmt)
{
    const struct node *n = stmt->kids[0];
    struct op *args[RANK_MAX + 1], *op;
    struct buf *to, *from = NULL;
    const struct annot *bulk = annot_find(stmt, "bulk");
    if (!check_nargs(s, n, 2, 2, "copy(shared[slot], buffer[indices])"))
        return;
    if (bulk && !s->role)
        error(s->c, bulk->loc, "a copy by the engine may stand only in a role: it lands for the role's next arrive");
    args[0] = check_slot(s, n->kids[0], &to, false);
    if (n->kids[1]->kind != N_SUBSCRIPT) {
        error(s->c, n->kids[1]->loc, "expected a place in a buffer: copy(shared[slot], buffer[indices])");
        return;
    }
    bool ok = check_indices(s, n->kids[1], args + 1, &from);
    if (!ok || !args[0])
        return;
    if (from->kind == BUF_OUT) {
        error(s->c, n->kids[1]->loc, "'%s' is an output: to read it, declare it 'inout'", n->kids[1]->name);
        return;
    }
    op = op_make(s, OP_COPY, n->loc, from->rank + 1, args);
    op->buf = from;
    op->buf2 = to;
    op->bulk = bulk != NULL;
    if (op_add(s, op))
        op->dist = s->dist;
}

static void check_put(struct checker *s, const struct node *n)
{
    struct op *args[2], *op;
    struct buf *to;
    if (!check_nargs(s, n, 2, 2, "put(shared[slot], value)"))
        return;
    args[0] = check_slot(s, n->kids[0], &to, false);
    args[1] = val_use(s, expr(s, n->kids[1]), to ? to->elem : EL_NONE, n->kids[1]);
    if (!(op = op_make(s, OP_PUT, n->loc, 2, args)))
        return;
    op->buf2 = to;
    if (op_add(s, op))
        op->dist = s->dist;
}

static void check_call(struct checker *s, const struct node *stmt)
{
    const struct node *n = stmt->kids[0];
    if (n->kind != N_CALL) {
        error(s->c, n->loc, "expected a statement: a value alone has no effect");
        return;
    }
    const char *f = n->name;
    annots_only(s, stmt, strcmp(f, "copy") ? "dist" : "dist bulk");
    if (check_action(s, n))
        return;
    if (!strcmp(f, "copy")) {
        check_copy(s, stmt);
    } else if (!strcmp(f, "put")) {
        check_put(s, n);
    } else if (!strcmp(f, "atomic_add")) {
        check_atomic(s, n);
    } else {
        struct value v = expr(s, n);
        if (v.kind != V_BAD)
            error(s->c, n->loc, "the value of '%s' is not used: write let name = %s(...)", f, f);
    }
}

static void check_stmt(struct checker *s, const struct node *n)
{
    s->dist = check_dist(s, n);
    switch ((int)n->kind) { // the kinds of statements
    case N_LET: check_let(s, n); break;
    case N_VAR: check_var(s, n); break;
    case N_ASSIGN: check_assign(s, n); break;
    case N_EXPR: check_call(s, n); break;
    case N_PARALLEL: check_parallel(s, n); break;
    case N_FOR: check_for(s, n); break;
    case N_AT: check_at(s, n); break;
    case N_IF: check_if(s, n); break;
    case N_ROLE: check_role(s, n); break;
    case N_SHARED: check_shared(s, n); break;
    case N_BLOCK: check_block(s, n, s->b); break;
    }
    s->dist = 0;
}

// A block, or the `if` of an `else if`.
void check_block(struct checker *s, const struct node *n, struct block *into)
{
    struct block *outer = s->b;
    s->b = into;
    scope_open(s);
    if (n->kind == N_BLOCK)
        for (int i = 0; i < n->nkids; i++)
            check_stmt(s, n->kids[i]);
    else
        check_stmt(s, n);
    scope_close(s);
    s->b = outer;
}
