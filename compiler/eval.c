// eval: runs tile IR of any stage on the host, in double precision: the meaning of every operation, and the oracle for
// passes and devices. In: a kernel and host memory for its arguments. Out: the output buffers, as a device would leave them
// but for rounding inside expressions. Blocks of the grid run one after another, the roles of a block side by side
// (machine.c), each with values and variables of its own.
#include "eval.h"

#include <stdio.h>
#include <string.h>

_Noreturn void ev_fault(struct ev *e, const struct op *op, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->why = arena_printf(e->c->arena, "line %d: %s: %s", op ? op->loc.line : 0, op ? op_infos[op->code].name : "eval",
                          text);
    longjmp(e->fault, 1);
}

// ---- variables, control ------------------------------------------------------------------------------------------

static void set_var(struct ev *e, const struct op *op)
{
    const struct var *v = op->var;
    int64_t n = ev_elems(e, &v->type);
    const struct op *x = op->args[0];
    double *out = ev_room(e, &e->vars[v->id], n);
    const int32_t *from = ev_project(e, 0, &v->type, &x->type);
    for (int64_t i = 0; i < n; i++)
        out[i] = v->type.elem == EL_F32 ? e->ops[x->id].v[from[i]] : elem_round(v->type.elem, e->ops[x->id].v[from[i]]);
}

static void get_var(struct ev *e, const struct op *op)
{
    const struct cells *v = &e->vars[op->var->id];
    memcpy(ev_room(e, &e->ops[op->id], v->n), v->v, sizeof(double) * (size_t)v->n);
}

static void set_axis(struct ev *e, const struct axis *a, int64_t origin, int64_t hi)
{
    e->origin[a->id] = origin;
    e->hi[a->id] = hi;
    e->size[a->id] = a->size ? a->size : e->o.default_tile;
    if (!a->size && a->kind == AX_RANGE)
        for (e->size[a->id] = 1; e->size[a->id] < hi - origin;)
            e->size[a->id] *= 2;
}

// ---- the machine's domain ----------------------------------------------------------------------------------------

static void enter(struct machine *m, struct program *p)
{
    struct ev *e = m->user;
    const struct kernel *k = e->k;
    struct values *v = p->values;
    if (!v) {
        p->values = v = NEW(e->c->arena, struct values);
        v->ops = NEWN(e->c->arena, struct cells, k->nops + 1);
        v->vars = NEWN(e->c->arena, struct cells, k->vars.n + 1);
        v->origin = NEWN(e->c->arena, int64_t, k->axes.n + 1);
        v->hi = NEWN(e->c->arena, int64_t, k->axes.n + 1);
        v->size = NEWN(e->c->arena, int64_t, k->axes.n + 1);
        v->counter = NEWN(e->c->arena, int64_t, (k->nops + 1) * CLAUSES_MAX);
    }
    e->ops = v->ops;
    e->vars = v->vars;
    e->origin = v->origin;
    e->hi = v->hi;
    e->size = v->size;
    e->counter = v->counter;
}

static bool scalar(struct machine *m, const struct op *op, int64_t *v)
{
    *v = (int64_t)ev_scalar(m->user, op);
    return true;
}

static void bounds(struct machine *m, const struct op *op, int64_t *lo, int64_t *hi, int64_t *step)
{
    struct ev *e = m->user;
    *lo = (int64_t)ev_scalar(e, op->args[0]);
    *hi = (int64_t)ev_scalar(e, op->args[1]);
    *step = 1;
    if (op->code == OP_FOR) {
        set_axis(e, op->axis, *lo, *hi);
        *step = e->size[op->axis->id];
    }
}

static void trip(struct machine *m, const struct op *op, int64_t i, int64_t hi)
{
    struct ev *e = m->user;
    if (op->code == OP_FOR)
        set_axis(e, op->axis, i, hi);
    else
        e->counter[op->id * CLAUSES_MAX] = i;
}

static bool condition(struct machine *m, const struct op *op)
{
    return ev_scalar(m->user, op->args[0]) != 0;
}

static int64_t clause_extent(struct ev *e, const struct clause *c)
{
    if (c->kind == CL_MAP)
        return ev_dim(e, &c->map->shape[0]);
    int64_t len = (int64_t)ev_scalar(e, c->hi) - (int64_t)ev_scalar(e, c->lo);
    if (c->kind == CL_EACH)
        return len;
    set_axis(e, c->axis, 0, 0);
    return (len + e->size[c->axis->id] - 1) / e->size[c->axis->id];
}

static int64_t tiles(struct machine *m, const struct op *op)
{
    struct ev *e = m->user;
    int64_t total = 1;
    for (int i = 0; i < op->nclauses; i++) {
        int64_t n = clause_extent(e, &op->clauses[i]);
        total *= n > 0 ? n : 0;
    }
    return e->o.max_blocks && total > e->o.max_blocks ? e->o.max_blocks : total;
}

// false: the tile map entry is empty
static bool enter_clause(struct ev *e, const struct op *op, int i, int64_t at)
{
    const struct clause *c = &op->clauses[i];
    if (c->kind == CL_EACH) {
        e->counter[op->id * CLAUSES_MAX + i] = (int64_t)ev_scalar(e, c->lo) + at;
    } else if (c->kind == CL_TILE) {
        set_axis(e, c->axis, 0, 0);
        set_axis(e, c->axis, (int64_t)ev_scalar(e, c->lo) + at * e->size[c->axis->id], (int64_t)ev_scalar(e, c->hi));
    } else {
        const struct eval_arg *a = ev_arg(e, op, c->map);
        const int32_t *entry = (const int32_t *)a->data + at * 4;
        if ((at + 1) * 16 > a->nbytes)
            ev_fault(e, op, "entry %lld is past the end of the tile map", (long long)at);
        set_axis(e, c->axis, entry[1], entry[1] + entry[2]);
        if (entry[2] > e->size[c->axis->id] && c->axis->size)
            ev_fault(e, op, "entry %lld has %d rows, more than the tile's %d", (long long)at, entry[2], c->axis->size);
        if (entry[2] > e->size[c->axis->id]) // no size chosen yet: as large as the list says
            for (e->size[c->axis->id] = 1; e->size[c->axis->id] < entry[2];)
                e->size[c->axis->id] *= 2;
        e->counter[op->id * CLAUSES_MAX + i] = entry[0];
        return entry[2] > 0;
    }
    return true;
}

static bool tile(struct machine *m, const struct op *op, int64_t number)
{
    struct ev *e = m->user;
    bool live = true;
    for (int i = 0; i < op->nclauses; i++) {
        int64_t n = clause_extent(e, &op->clauses[i]);
        live = enter_clause(e, op, i, number % n) && live;
        number /= n;
    }
    return live;
}

static void run(struct machine *m, const struct op *op)
{
    struct ev *e = m->user;
    switch ((int)op->code) {
    case OP_LOAD: ev_load(e, op); return;
    case OP_STORE:
    case OP_ATOMIC_ADD: ev_store(e, op); return;
    case OP_GET: get_var(e, op); return;
    case OP_VAR:
    case OP_SET: set_var(e, op); return;
    case OP_RANGE:
    case OP_AT: set_axis(e, op->axis, (int64_t)ev_scalar(e, op->args[0]), (int64_t)ev_scalar(e, op->args[1])); return;
    case OP_SHARED: ev_declare(e, op); return;
    case OP_COPY: ev_copy(e, op); return;
    case OP_PUT: ev_put(e, op); return;
    case OP_MMA: ev_mma(e, op); return;
    case OP_DEPEND:
    case OP_COMMIT: // what orders the others' doings is the machine's
    case OP_WAIT:
    case OP_BARRIER:
    case OP_MMA_COMMIT:
    case OP_MMA_WAIT:
    case OP_ARRIVE: return;
    }
    ev_value(e, op);
}

static void land(struct machine *m, const struct buf *b, int slot)
{
    ev_land(m->user, b, slot);
}

static void fault(struct machine *m, const struct op *op, const char *text)
{
    ev_fault(m->user, op, "%s", text);
}

static void run_blocks(struct ev *e)
{
    static const struct domain domain = { enter, scalar, bounds, trip, condition, tiles, tile, run, land, fault };
    struct machine *m = &e->m;
    m->c = e->c;
    m->k = e->k;
    m->d = &domain;
    m->user = e;
    m->consumers_first = e->o.consumers_first;
    m->blocks = e->o.persistent_blocks ? e->o.persistent_blocks : 2;
    machine_open(m);
    machine_block(m, 0);
    for (int64_t b = 1, n = m->tiles; b < n && (!e->k->sched.persistent || b < m->blocks); b++)
        machine_block(m, b);
}

bool eval(struct ctx *c, const struct kernel *k, const struct eval_arg *args, const int64_t *dims,
          const struct eval_opts *o, const char **why)
{
    struct ev *e = NEW(c->arena, struct ev);
    e->c = c;
    e->k = k;
    e->args = args;
    e->o = *o;
    if (!e->o.default_tile)
        e->o.default_tile = 16;
    e->dim = NEWN(c->arena, int64_t, k->dims.n + 1);
    e->shared = NEWN(c->arena, struct shared_data, k->bufs.n + 1);
    for (int i = 0; i < k->dims.n; i++)
        e->dim[i] = k->dims.v[i]->bound >= 0 ? k->dims.v[i]->bound : *dims++;
    if (setjmp(e->fault)) {
        *why = e->why;
        return false;
    }
    run_blocks(e);
    return true;
}
