// Laid-out tile IR -> one function of the MLIR module, in the dialects llvm and scf and what the target's hooks add.
//
// Variables become loop-carried values: a region that sets a variable carries it in and out. Values made inside a region
// are never used outside it, so one memo by op is enough; what is made late, where it is first used (masks, elements of
// packed tiles), is forgotten at the end of the region (em_leave).
#include "emit.h"

#include <stdio.h>
#include <string.h>

bool em_fail(struct em *m, struct loc at, const char *what)
{
    return em_refuse(m, at, "internal: emit: %s", what);
}

// Something that a layout written by hand may ask for and that cannot be. What follows from it is not reported.
bool em_refuse(struct em *m, struct loc at, const char *fmt, ...)
{
    va_list ap;
    char text[400];
    if (m->failed)
        return false;
    m->failed = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error(m->c, at, "%s", text);
}

int em_threads(const struct em *m)
{
    return m->warps * m->e.arch->lanes;
}

// ---- variables ---------------------------------------------------------------------------------------------------

static int held(const struct em *m, const struct tile *t) // values, not elements
{
    return t->packed ? t->n / m->e.arch->mmas[m->k->sched.mma].acc_pack : t->n;
}

// The value as the variable holds it: all elements of its type, packed or not.
static struct tile as_var(struct em *m, const struct var *v, const struct op *x)
{
    struct tile t = { .n = em_elems(m, v->dist, &v->type) };
    bool packed = m->acc_var[v->id] && m->e.arch->mmas[m->k->sched.mma].acc_pack > 1;
    if (packed && m->ops[x->id].packed)
        return m->ops[x->id];
    t.v = NEWN(m->c->arena, val, t.n);
    for (int e = 0; e < t.n; e++) {
        int idx[RANK_MAX];
        em_split(m, v->dist, &v->type, e, idx);
        t.v[e] = em_elem(m, x, v->dist, &v->type, idx, v->type.elem);
    }
    return packed ? em_pack(m, &v->type, t) : t;
}

struct carried {
    struct em *m;
    bool *set;      // by var id
    bool *declared; // inside the region
    int n, *vars;   // what the region sets and did not declare
};

static bool note_set(void *user, struct op *op)
{
    struct carried *c = user;
    if (op->code == OP_SET)
        c->set[op->var->id] = true;
    if (op->code == OP_VAR)
        c->declared[op->var->id] = true;
    return true;
}

static struct carried carried_by(struct em *m, struct block *a, struct block *b)
{
    int n = m->k->vars.n;
    struct carried c = { m, NEWN(m->c->arena, bool, n + 1), NEWN(m->c->arena, bool, n + 1), 0,
                         NEWN(m->c->arena, int, n + 1) };
    walk(a, note_set, &c);
    if (b)
        walk(b, note_set, &c);
    for (int i = 0; i < n; i++)
        if (c.set[i] && !c.declared[i])
            c.vars[c.n++] = i;
    return c;
}

static int carried_values(struct em *m, const struct carried *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        n += held(m, &m->vars[c->vars[i]]);
    return n;
}

static val *gather_vars(struct em *m, const struct carried *c)
{
    val *v = NEWN(m->c->arena, val, carried_values(m, c) + 1);
    int k = 0;
    for (int i = 0; i < c->n; i++)
        for (int e = 0; e < held(m, &m->vars[c->vars[i]]); e++)
            v[k++] = m->vars[c->vars[i]].v[e];
    return v;
}

static void scatter_vars(struct em *m, const struct carried *c, const val *v)
{
    for (int i = 0; i < c->n; i++) {
        struct tile *t = &m->vars[c->vars[i]];
        int n = held(m, t);
        val *own = NEWN(m->c->arena, val, n);
        memcpy(own, v, sizeof *v * (size_t)n);
        t->v = own;
        v += n;
    }
}

static bool note_acc(void *user, struct op *op)
{
    struct em *m = user;
    if (op->code == OP_SET && op->args[0]->code == OP_MMA)
        m->acc_var[op->var->id] = true;
    return true;
}

struct scope em_enter(const struct em *m)
{
    return (struct scope){ m->cache.n, m->unpacked.n };
}

void em_leave(struct em *m, struct scope s)
{
    m->cache.n = s.cache;
    m->unpacked.n = s.unpacked;
}

// ---- control flow ------------------------------------------------------------------------------------------------

static void loop(struct em *m, const struct op *op, val step)
{
    struct carried c = carried_by(m, op->body, NULL);
    struct mb_for f;
    struct scope outer = em_enter(m);
    mb_for_begin(m->mb, &f, em_scalar(m, op->args[0]), em_scalar(m, op->args[1]), step, carried_values(m, &c),
                 gather_vars(m, &c));
    scatter_vars(m, &c, f.args);
    if (op->code == OP_FOR) {
        m->origin[op->axis->id] = f.iv;
        m->hi[op->axis->id] = em_scalar(m, op->args[1]);
    } else {
        m->counter[op->id * CLAUSES] = f.iv;
    }
    em_block(m, op->body);
    mb_for_end(m->mb, &f, gather_vars(m, &c));
    scatter_vars(m, &c, f.results);
    em_leave(m, outer);
}

// An if over what its sides set and did not declare.
struct choice {
    struct carried c;
    struct mb_if s;
    struct scope outer;
    val *before;
};

static void choice_begin(struct em *m, struct choice *x, struct carried c, val cond)
{
    *x = (struct choice){ .c = c, .before = gather_vars(m, &c) };
    x->outer = em_enter(m);
    int n = carried_values(m, &c);
    mty *types = NEWN(m->c->arena, mty, n + 1);
    for (int i = 0; i < n; i++)
        types[i] = mb_type_of(x->before[i]);
    mb_if_begin(m->mb, &x->s, cond, n, types);
}

static void choice_else(struct em *m, struct choice *x)
{
    mb_if_else(m->mb, &x->s, gather_vars(m, &x->c));
    scatter_vars(m, &x->c, x->before);
    em_leave(m, x->outer);
}

static void choice_end(struct em *m, struct choice *x)
{
    mb_if_end(m->mb, &x->s, gather_vars(m, &x->c));
    scatter_vars(m, &x->c, x->s.results);
    em_leave(m, x->outer);
}

static void branch(struct em *m, const struct op *op)
{
    struct choice x;
    choice_begin(m, &x, carried_by(m, op->body, op->other), em_scalar(m, op->args[0]));
    em_block(m, op->body);
    choice_else(m, &x);
    if (op->other)
        em_block(m, op->other);
    choice_end(m, &x);
}

enum { CARRIED_MAX = 64 };
static void statement(struct em *m, const struct block *b, int at);

// ---- the grid ----------------------------------------------------------------------------------------------------

static val ceil_div(struct em *m, val a, int64_t d)
{
    if (d == 1)
        return a;
    return mb_bin(m->mb, "udiv", mb_bin(m->mb, "add", a, mb_i32(m->mb, d - 1)), mb_i32(m->mb, d));
}

static val map_entries(struct em *m, const struct buf *map)
{
    const struct shape_dim *d = &map->shape[0];
    for (int i = 0; d->dim && i < m->k->dims.n; i++)
        if (m->k->dims.v[i] == d->dim)
            return m->dim[i];
    return mb_i32(m->mb, d->value);
}

static val extent(struct em *m, const struct clause *c)
{
    if (c->kind == CL_MAP)
        return map_entries(m, c->map);
    val len = mb_bin(m->mb, "sub", em_scalar(m, c->hi), em_scalar(m, c->lo));
    return c->kind == CL_EACH ? len : ceil_div(m, len, c->axis->size);
}

// Number of a tile -> one number a clause: the first fastest, in groups of sched.group if there are two.
static void decode(struct em *m, const struct op *op, val number, val *at)
{
    struct mb *b = m->mb;
    val rest = number, n[CLAUSES];
    int64_t g = m->k->sched.group;
    for (int i = 0; i < op->nclauses; i++)
        n[i] = extent(m, &op->clauses[i]);
    if (g > 0 && op->nclauses == 2) {
        val gv = mb_i32(b, g), per = mb_bin(b, "mul", n[1], gv), group = mb_bin(b, "udiv", rest, per);
        val first = mb_bin(b, "mul", group, gv), in = mb_bin(b, "sub", rest, mb_bin(b, "mul", group, per));
        val left = mb_bin(b, "sub", n[0], first), size = mb_select(b, mb_icmp(b, IC_ULT, left, gv), left, gv);
        val q = mb_bin(b, "udiv", in, size);
        at[0] = mb_bin(b, "add", first, mb_bin(b, "sub", in, mb_bin(b, "mul", q, size)));
        at[1] = q;
        return;
    }
    for (int i = 0; i < op->nclauses; i++) {
        if (i + 1 == op->nclauses) {
            at[i] = rest;
            break;
        }
        val q = mb_bin(b, "udiv", rest, n[i]);
        at[i] = mb_bin(b, "sub", rest, mb_bin(b, "mul", q, n[i]));
        rest = q;
    }
}

// Where a tile stands: a number a clause, and of a tile list's entry its expert, first row and rows behind it.
struct place {
    int n;
    val v[CLAUSES * 4];
};

static void load_entry(struct em *m, const struct buf *map, val at, val valid, val *out)
{
    struct mb *b = m->mb;
    val v[4], at64 = mb_un(b, "zext", at, m->ty->i64);
    struct gaddr g = { .buf = map,
                       .base = m->base[map->id],
                       .uniform = mb_bin(b, "mul", at64, mb_i64(b, 16)),
                       .lane = mb_i32(b, 0),
                       .pred = valid,
                       .bytes = m->bytes[map->id] };
    m->t->gload(&m->e, &g, m->ty->i32, 4, 4, v);
    for (int j = 0; j < 3; j++)
        out[j] = m->t->uniform ? m->t->uniform(&m->e, v[j]) : v[j];
}

// valid: is there a tile of that number? (NOVAL: surely.) If not, the place is that of the first, which nobody visits.
static struct place find_tile(struct em *m, const struct op *op, val number, val valid)
{
    struct place p = { 0 };
    val at[CLAUSES];
    number = val_null(valid) ? number : mb_select(m->mb, valid, number, mb_i32(m->mb, 0));
    decode(m, op, number, at);
    for (int i = 0; i < op->nclauses; i++) {
        p.v[p.n++] = at[i];
        if (op->clauses[i].kind == CL_MAP) {
            load_entry(m, op->clauses[i].map, at[i], valid, p.v + p.n);
            p.n += 3;
        }
    }
    return p;
}

// Sets the grid's axes and counters; gives the number of rows, of several lists the least: nothing to do if one entry is empty.
static val enter_tile(struct em *m, const struct op *op, const struct place *p)
{
    struct mb *b = m->mb;
    const val *v = p->v;
    val rows = NOVAL;
    for (int i = 0; i < op->nclauses; i++) {
        const struct clause *c = &op->clauses[i];
        val at = *v++;
        if (c->kind == CL_MAP) {
            m->counter[op->id * CLAUSES + i] = v[0];
            m->origin[c->axis->id] = v[1];
            m->hi[c->axis->id] = mb_bin(b, "add", v[1], v[2]);
            rows = val_null(rows) ? v[2] : mb_select(b, mb_icmp(b, IC_SLT, v[2], rows), v[2], rows);
            v += 3;
        } else if (c->kind == CL_EACH) {
            m->counter[op->id * CLAUSES + i] = mb_bin(b, "add", em_scalar(m, c->lo), at);
        } else {
            m->origin[c->axis->id] =
                mb_bin(b, "add", em_scalar(m, c->lo), mb_bin(b, "mul", at, mb_i32(b, c->axis->size)));
            m->hi[c->axis->id] = em_scalar(m, c->hi);
        }
    }
    return rows;
}

// ---- one tile ----------------------------------------------------------------------------------------------------

// The operations of one tile, of roles that of m->role.
static void tile_body(struct em *m, const struct block *b)
{
    for (int i = 0; i < b->ops.n && !m->failed; i++) {
        mb_loc(m->mb, b->ops.v[i]->loc);
        if (b->ops.v[i]->code != OP_ROLE)
            statement(m, b, i);
        else if (b->ops.v[i] == m->role)
            em_block(m, m->role->body);
    }
}

static struct carried tile_carries(struct em *m, const struct op *op)
{
    return carried_by(m, m->role ? m->role->body : op->body, NULL);
}

static void one_tile(struct em *m, const struct op *op, const struct place *p)
{
    val rows = enter_tile(m, op, p);
    struct choice x;
    if (val_null(rows)) {
        tile_body(m, op->body);
        return;
    }
    struct carried c = tile_carries(m, op);
    int n = carried_values(m, &c);
    if (n > CARRIED_MAX) {
        em_refuse(m, op->loc, "a persistent grid carries %d values from tile to tile, at most %d are allowed", n,
                  CARRIED_MAX);
        return;
    }
    choice_begin(m, &x, c, mb_icmp(m->mb, IC_SGT, rows, mb_i32(m->mb, 0)));
    tile_body(m, op->body);
    choice_else(m, &x);
    choice_end(m, &x);
}

// A persistent block takes tiles block, block + grid, ..., and looks up each one's place during the one before.
static void persistent_tiles(struct em *m, const struct op *op)
{
    struct mb *b = m->mb;
    val total = mb_i32(b, 1), step = m->t->grid_size(&m->e), next;
    for (int i = 0; i < op->nclauses; i++)
        total = mb_bin(b, "mul", total, extent(m, &op->clauses[i]));
    struct place p = find_tile(m, op, m->e.block, mb_icmp(b, IC_SLT, m->e.block, total));
    struct carried c = tile_carries(m, op);
    struct scope outer = em_enter(m);
    struct mb_for f;
    int n = carried_values(m, &c);
    val *v = NEWN(m->c->arena, val, n + p.n), *vars = gather_vars(m, &c);
    memcpy(v, vars, sizeof *v * (size_t)n);
    memcpy(v + n, p.v, sizeof *v * (size_t)p.n);
    mb_for_begin(b, &f, m->e.block, total, step, n + p.n, v);
    scatter_vars(m, &c, f.args);
    memcpy(p.v, f.args + n, sizeof *v * (size_t)p.n);
    next = mb_bin(b, "add", f.iv, step);
    struct place after = find_tile(m, op, next, mb_icmp(b, IC_SLT, next, total));
    one_tile(m, op, &p);
    vars = gather_vars(m, &c);
    memcpy(v, vars, sizeof *v * (size_t)n);
    memcpy(v + n, after.v, sizeof *v * (size_t)p.n);
    mb_for_end(b, &f, v);
    scatter_vars(m, &c, f.results);
    em_leave(m, outer);
}

static void tiles(struct em *m, const struct op *op)
{
    if (m->k->sched.persistent) {
        persistent_tiles(m, op);
        return;
    }
    struct place p = find_tile(m, op, m->e.block, NOVAL);
    one_tile(m, op, &p);
}

static void grid(struct em *m, const struct op *op)
{
    bool roles = false;
    for (int i = 0; i < op->body->ops.n; i++)
        roles |= op->body->ops.v[i]->code == OP_ROLE;
    if (roles)
        em_each_role(m, op->body, tiles, op);
    else
        tiles(m, op);
}

// ---- operations --------------------------------------------------------------------------------------------------

static void declare_range(struct em *m, const struct op *op)
{
    m->origin[op->axis->id] = em_scalar(m, op->args[0]);
    m->hi[op->axis->id] = em_scalar(m, op->args[1]);
}

// Runs of up to 16 bytes start at multiples of their length only if each slot does; a barrier has 8 bytes.
static void declare_shared(struct em *m, const struct op *op)
{
    const struct buf *b = op->buf;
    int64_t slot = (int64_t)b->rows * b->cols * elem_bytes[b->elem];
    int align = b->barrier ? 8 : 16;
    if (b->offset % align || (b->stages > 1 && slot % align))
        em_refuse(m, op->loc, "'%s' has a slot that does not start at a multiple of %d bytes", b->name, align);
}

static void statement(struct em *m, const struct block *b, int at)
{
    const struct op *op = b->ops.v[at];
    switch (op->code) {
    case OP_GET: m->ops[op->id] = m->vars[op->var->id]; break;
    case OP_VAR:
    case OP_SET: m->vars[op->var->id] = as_var(m, op->var, op->args[0]); break;
    case OP_LOAD: em_load(m, op); break;
    case OP_STORE: em_store(m, op); break;
    case OP_ATOMIC_ADD: em_atomic(m, op); break;
    case OP_COPY:
        if (op->bulk)
            em_box(m, b, at);
        else
            em_copy(m, op);
        break;
    case OP_PUT: em_put(m, op); break;
    case OP_COMMIT: m->t->commit(&m->e); break;
    case OP_WAIT: m->t->wait(&m->e, (int)op->ival); break;
    case OP_BARRIER: m->t->barrier(&m->e); break;
    case OP_MMA:
        if (!m->ops[op->id].v)
            em_mma_run(m, b, at);
        break;
    case OP_REDUCE_SUM:
    case OP_REDUCE_MAX:
    case OP_REDUCE_MIN: em_reduce(m, op); break;
    case OP_SCAN_SUM: em_scan(m, op); break;
    case OP_RELAYOUT: em_relayout(m, op); break;
    case OP_DEPEND: m->t->depend(&m->e); break;
    case OP_FOR: loop(m, op, mb_i32(m->mb, op->axis->size)); break;
    case OP_EACH: loop(m, op, mb_i32(m->mb, 1)); break;
    case OP_AT:
    case OP_RANGE:
        declare_range(m, op);
        if (op->body)
            em_block(m, op->body);
        break;
    case OP_IF: branch(m, op); break;
    case OP_PARALLEL: grid(m, op); break;
    case OP_SHARED: declare_shared(m, op); break;
    case OP_MMA_COMMIT:
        if (m->t->mma_commit && m->k->sched.mma >= 0 && m->e.arch->mmas[m->k->sched.mma].kind != MMA_WARP)
            m->t->mma_commit(&m->e);
        break;
    case OP_MMA_WAIT: em_mma_wait(m, (int)op->ival); break;
    case OP_ROLE: em_refuse(m, op->loc, "a role stands directly in the grid's block"); break;
    case OP_ARRIVE: em_arrive(m, op); break;
    case OP_AWAIT: em_await(m, op); break;
    case OP_EXP:
    case OP_LOG:
    case OP_SIGMOID:
    case OP_SILU:
    case OP_TANH:
    case OP_GELU:
    case OP_SOFTMAX:
    case OP_ARGMAX:
    case OP_TOPK:
    case OP_TAKE:
    case OP_DOT:
    case OP_COUNT: em_fail(m, op->loc, "this operation should be gone by now"); break;
    case OP_CONST:
    case OP_DIM:
    case OP_SCALAR:
    case OP_INDEX:
    case OP_ORIGIN:
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_REM:
    case OP_MIN:
    case OP_MAX:
    case OP_NEG:
    case OP_ABS:
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_NOT:
    case OP_SHL:
    case OP_SHR:
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
    case OP_EQ:
    case OP_NE:
    case OP_SELECT:
    case OP_CAST:
    case OP_ORDER:
    case OP_EXP2:
    case OP_LOG2:
    case OP_SQRT:
    case OP_RSQRT:
    case OP_RCP:
    case OP_FLOOR: em_value(m, op); break;
    }
}

void em_block(struct em *m, const struct block *b)
{
    for (int i = 0; i < b->ops.n && !m->failed; i++) {
        mb_loc(m->mb, b->ops.v[i]->loc);
        statement(m, b, i);
    }
}

// ---- the kernel --------------------------------------------------------------------------------------------------

static int parameters(const struct em *m, mty *t)
{
    int n = 0;
    for (int i = 0; i < m->k->params.n; i++) {
        const struct param *p = &m->k->params.v[i];
        t[n++] = p->buf ? m->ty->p1 : p->elem == EL_F32 ? m->ty->f32 : m->ty->i32;
    }
    for (int i = 0; i < m->k->dims.n; i++)
        if (m->k->dims.v[i]->bound < 0)
            t[n++] = m->ty->i32;
    struct box boxes[BOXES_MAX];
    for (int i = kernel_boxes(m->k, boxes); i > 0; i--)
        t[n++] = m->ty->p0;
    return n;
}

// Pointers are 16-byte aligned and never overlap; inputs are only read.
static const char *arg_attrs(struct em *m, int n, const mty *params)
{
    struct text t = { .arena = m->c->arena };
    text_printf(&t, "[");
    for (int i = 0; i < n; i++) {
        const struct buf *b = i < m->k->params.n ? m->k->params.v[i].buf : NULL;
        bool reads = b && (b->kind == BUF_IN || b->kind == BUF_MAP);
        const char *kind = params[i].p == m->ty->p1.p   ? "llvm.noalias, llvm.align = 16 : i64"
                           : params[i].p == m->ty->p0.p ? m->t->map_argument
                                                        : "";
        text_printf(&t, "%s{%s%s}", i ? ", " : "", kind, reads ? ", llvm.readonly" : "");
    }
    text_printf(&t, "]");
    return t.s;
}

static void sizes(struct em *m)
{
    struct mb *b = m->mb;
    int arg = m->k->params.n;
    for (int i = 0; i < m->k->dims.n; i++)
        m->dim[i] = m->k->dims.v[i]->bound < 0 ? m->e.args[arg++] : mb_i32(b, m->k->dims.v[i]->bound);
    for (int i = 0; i < m->k->params.n; i++) {
        const struct buf *x = m->k->params.v[i].buf;
        if (!x)
            continue;
        m->base[x->id] = m->e.args[i];
        val n = mb_i64(b, x->kind == BUF_MAP ? 16 : elem_bytes[x->elem]);
        for (int j = 0; j < (x->kind == BUF_MAP ? 1 : x->rank); j++) {
            val d = mb_i32(b, x->shape[j].value);
            for (int q = 0; x->shape[j].dim && q < m->k->dims.n; q++)
                if (m->k->dims.v[q] == x->shape[j].dim)
                    d = m->dim[q];
            n = mb_bin(b, "mul", n, mb_un(b, "sext", d, m->ty->i64));
        }
        m->bytes[x->id] = n;
    }
}

static bool no_wait(void *user, struct op *op)
{
    (void)user;
    return op->code != OP_DEPEND;
}

static bool waits_early(const struct kernel *k)
{
    return !walk(k->body, no_wait, NULL);
}

bool emit_kernel(struct ctx *c, struct mb *mb, const struct kernel *k, const char *symbol)
{
    struct em m = { .c = c, .mb = mb, .k = k, .t = c->arch->target, .ty = mb_types(mb) };
    mty params[128];
    if (k->params.n + k->dims.n > 100)
        return error(c, k->loc, "kernel '%s' has more than 100 parameters and dimensions", k->name);
    m.e = (struct emit){ .c = c, .mb = mb, .k = k, .arch = c->arch, .symbol = symbol, .priv = &m };
    m.ops = NEWN(c->arena, struct tile, k->nops + 1);
    m.vars = NEWN(c->arena, struct tile, k->vars.n + 1);
    m.acc_var = NEWN(c->arena, bool, k->vars.n + 1);
    m.origin = NEWN(c->arena, val, k->axes.n + 1);
    m.hi = NEWN(c->arena, val, k->axes.n + 1);
    m.counter = NEWN(c->arena, val, (k->nops + 1) * CLAUSES);
    m.dim = NEWN(c->arena, val, k->dims.n + 1);
    m.bytes = NEWN(c->arena, val, k->bufs.n + 1);
    m.base = NEWN(c->arena, val, k->bufs.n + 1);
    mb_loc(mb, k->loc);
    int n = parameters(&m, params);
    m.e.nargs = n;
    m.e.args = NEWN(c->arena, val, n + 1);
    m.e.arg_attrs = arg_attrs(&m, n, params);
    m.warps = k->sched.warps_m * k->sched.warps_n;
    m.t->begin(&m.e, n, params);
    struct box boxes[BOXES_MAX];
    m.e.maps = m.e.args + n - kernel_boxes(k, boxes);
    sizes(&m);
    em_barriers(&m);
    if (k->sched.mma >= 0)
        walk(k->body, note_acc, &m);
    em_block(&m, k->body);
    if (waits_early(k)) // a block without work: what is launched next relies on all before this one
        m.t->depend(&m.e);
    mb_func_end(mb);
    return !m.failed;
}
