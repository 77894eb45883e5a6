// Pass `schedule`: how large the tiles are, how many warps, how deep the ring; one clone of the kernel a variant.
//
// In: an expanded kernel, its schedule blocks. Out: clones with every axis->size and kernel->sched filled.
// Schedule blocks that name the arch give the variants, each item a fixed choice and the rest from the model
// (model.c); without one the model makes the variants: one, or for a kernel over a tile map one for few, some and
// many rows an expert (16, 64, 128), of which the runtime picks by the shape of its call.
#include "schedule.h"

#include <string.h>

bool sched_is_matrix(const struct op *dot)
{
    const struct type *a = &dot->args[1]->type, *b = &dot->args[2]->type;
    return dot->code == OP_DOT && a->rank == 2 && b->rank == 2 && dot->type.rank == 2 && a->elem == b->elem;
}

bool sched_inside(const struct op *loop, const struct op *op)
{
    for (int i = 0; i < loop->body->ops.n; i++)
        if (loop->body->ops.v[i] == op)
            return true;
    return false;
}

// Can the index be recomputed for a copy, outside the loop? Only loads of inputs and arithmetic on them.
static bool repeatable(const struct op *loop, const struct op *op)
{
    unsigned f = op_infos[op->code].flags;
    if (op->code == OP_INDEX || op->code == OP_ORIGIN)
        return op->axis != loop->axis;
    if (op->code == OP_LOAD ? op->buf->kind != BUF_IN && op->buf->kind != BUF_MAP : !(f & F_PURE) || (f & F_SYNC))
        return op->type.rank == 0 && !sched_inside(loop, op);
    for (int i = 0; i < op->nargs; i++)
        if (!repeatable(loop, op->args[i]))
            return false;
    return true;
}

bool sched_copyable(const struct op *loop, const struct op *v)
{
    if (v->code != OP_LOAD || v->type.rank != 2 || elem_bytes[v->type.elem] != 2 || v->type.axes[1] != loop->axis)
        return false;
    for (int i = 0; i < v->nargs - 1; i++)
        if (!repeatable(loop, v->args[i]))
            return false;
    const struct op *last = v->args[v->nargs - 1];
    return last->code == OP_INDEX && last->axis == loop->axis;
}

static struct axis *shared_axis(const struct op *dot)
{
    const struct type *a = &dot->args[1]->type, *b = &dot->args[2]->type;
    for (int i = 0; i < a->rank; i++)
        if (type_has_axis(b, a->axes[i]))
            return a->axes[i];
    return NULL;
}

// In a loop whose sums stay with the matrix units, a sum is read to be added to and written from a product, no more.
static bool uses_sums(void *user, struct op *op)
{
    const struct op *loop = user;
    for (int i = 0; i < op->nargs; i++) {
        const struct op *x = op->args[i];
        bool sum = x->code == OP_GET && x->type.rank == 2;
        if ((x->code == OP_DOT && op->code != OP_SET) || (sum && sched_inside(loop, x) && (op->code != OP_DOT || i)))
            return false;
    }
    return op->code != OP_SET || op->args[0]->code == OP_DOT;
}

static bool streams(const struct op *dot, const struct axis *k)
{
    struct op *loop = k->def;
    return loop && loop->code == OP_FOR && sched_inside(loop, dot) && sched_copyable(loop, dot->args[1]) &&
           sched_copyable(loop, dot->args[2]) && dot->args[0]->code == OP_GET && walk(loop->body, uses_sums, loop);
}

static bool find_dot(void *user, struct op *op)
{
    struct dot_shape *s = user;
    if (op->code != OP_DOT || !sched_is_matrix(op))
        return true;
    struct axis *k = shared_axis(op);
    if (!s->dots) {
        s->m = op->type.axes[0];
        s->n = op->type.axes[1];
        s->k = k;
        s->in = op->args[1]->type.elem;
        s->streamed = true;
    }
    s->streamed &= s->m == op->type.axes[0] && s->n == op->type.axes[1] && s->k == k && streams(op, k);
    if (s->m == op->type.axes[0] && s->n == op->type.axes[1] && s->k == k)
        s->dots++;
    return true;
}

// May the op's value be computed by every role for itself, before the loop?
static bool shareable(const struct op *op)
{
    if (op->type.rank == 0 && (op->code == OP_GET || (op_infos[op->code].flags & F_SYNC)))
        return false;
    for (int i = 0; i < op->nargs; i++)
        if (!shareable(op->args[i]))
            return false;
    return true;
}

static bool no_sync(void *user, struct op *op)
{
    (void)user;
    return !(op_infos[op->code].flags & F_SYNC) && op->code != OP_ATOMIC_ADD;
}

bool sched_whole(const struct op *hi, const struct shape_dim *d)
{
    if (hi->code == OP_DIM)
        return hi->dim == d->dim;
    return hi->code == OP_CONST && hi->ival == (d->dim ? d->dim->bound : d->value);
}

// Is each copy of a row of the tile a whole number of 16-byte pieces? What is narrower goes through registers, which an arrival
// behind asynchronous copies does not wait for; and the copy engine takes no other rows.
static bool whole_pieces(const struct op *loop, const struct op *load)
{
    enum { PIECE = 16 };
    const struct op *lo = loop->args[0], *hi = loop->args[1];
    const struct shape_dim *d = &load->buf->shape[load->buf->rank - 1];
    int64_t elems = PIECE / elem_bytes[load->buf->elem], bound = d->dim ? d->dim->bound : d->value;
    int64_t multiple = bound >= 0 ? bound : d->dim->multiple;
    return sched_whole(hi, d) && lo->code == OP_CONST && lo->ival % elems == 0 && multiple % elems == 0;
}

static bool can_split(const struct kernel *k, const struct dot_shape *s)
{
    const struct op *loop = s->streamed ? s->k->def : NULL;
    if (!loop || !walk(k->body, no_sync, NULL) || !shareable(loop->args[0]) || !shareable(loop->args[1]))
        return false;
    for (int i = 0; i < loop->body->ops.n; i++) {
        const struct op *dot = loop->body->ops.v[i];
        for (int j = 1; dot->code == OP_DOT && j <= 2; j++) {
            if (!whole_pieces(loop, dot->args[j]))
                return false;
            for (int n = 0; n < dot->args[j]->nargs; n++)
                if (!shareable(dot->args[j]->args[n]))
                    return false;
        }
    }
    for (int i = 0; i < k->body->ops.n; i++)
        for (int j = 0; k->body->ops.v[i]->code == OP_PARALLEL && j < k->body->ops.v[i]->body->ops.n; j++)
            if (k->body->ops.v[i]->body->ops.v[j] == loop)
                return true;
    return false;
}

void sched_shape(const struct kernel *k, struct dot_shape *s)
{
    memset(s, 0, sizeof *s);
    walk(k->body, find_dot, s);
    s->roles = can_split(k, s);
}

static struct axis *axis_named(const struct kernel *k, const char *name)
{
    for (int i = 0; i < k->axes.n; i++)
        if (!strcmp(k->axes.v[i]->name, name))
            return k->axes.v[i];
    return NULL;
}

struct least { // what the matrix instruction needs of an axis
    const struct mma *i;
    int *size; // by axis id
};

static void at_least(const struct least *l, const struct axis *a, int size)
{
    if (l->size[a->id] < size)
        l->size[a->id] = size;
}

static bool note_least(void *user, struct op *op)
{
    const struct least *l = user;
    if (op->code != OP_DOT || !sched_is_matrix(op))
        return true;
    at_least(l, op->type.axes[0], l->i->a.fetch_rows);
    at_least(l, op->type.axes[1], l->i->b.fetch_rows);
    at_least(l, shared_axis(op), l->i->a.fetch_k > l->i->b.fetch_k ? l->i->a.fetch_k : l->i->b.fetch_k);
    return true;
}

// Sizes that nothing chose: small enough to be cheap, large enough for the matrix units.
static void default_sizes(struct ctx *c, struct kernel *k, const struct dot_shape *s, const struct tile_choice *t)
{
    struct least l = { &c->arch->mmas[t->mma], NEWN(c->arena, int, k->axes.n + 1) };
    s->m->size = t->bm;
    s->n->size = t->bn;
    s->k->size = t->bk;
    walk(k->body, note_least, &l);
    for (int i = 0; i < k->axes.n; i++) {
        struct axis *a = k->axes.v[i];
        int64_t most = pow2_ceil(a->max_extent);
        if (a->size)
            continue;
        a->size = (int)(a->kind == AX_RANGE ? (most < 16 ? 16 : most) : most < 64 ? most : 64);
        if (a->size < l.size[a->id])
            a->size = l.size[a->id];
    }
}

// One item of a schedule block, into the kernel's axes, the wanted tile or sched.
static bool apply_item(struct ctx *c, struct kernel *k, const struct node *item, struct tile_choice *want)
{
    struct axis *a = axis_named(k, item->name);
    struct sched *s = &k->sched;
    const char *n = item->name;
    int v = (int)item->value;
    if (a) {
        if (log2_exact(item->value) < 0 || item->value > 4096)
            return error(c, item->loc, "tile of axis '%s' must be a power of two up to 4096, not %lld", n,
                         (long long)item->value);
        a->size = v;
    } else if (!strcmp(n, "stages")) {
        want->stages = v;
    } else if (!strcmp(n, "warps")) {
        want->wm = v;
        want->wn = item->value2 > 0 ? (int)item->value2 : 1;
        want->producers = (int)item->flags;
        if (log2_exact(want->wm) < 0 || log2_exact(want->wn) < 0)
            return error(c, item->loc, "warps must be powers of two, not %dx%d", want->wm, want->wn);
    } else if (!strcmp(n, "group")) {
        s->group = v;
    } else if (!strcmp(n, "blocks")) {
        s->min_blocks = v;
    } else if (!strcmp(n, "cluster")) {
        s->cluster = v;
    } else if (!strcmp(n, "persistent")) {
        s->persistent = true;
    } else if (!strcmp(n, "swap")) {
        s->swap = true;
    } else if (!strcmp(n, "mma")) {
        for (want->mma = c->arch->nmmas - 1; want->mma >= 0; want->mma--)
            if (item->name2 && !strcmp(c->arch->mmas[want->mma].name, item->name2))
                break;
        if (want->mma < 0)
            return error(c, item->loc, "%s has no matrix instruction '%s'", c->arch->name,
                         item->name2 ? item->name2 : "");
    } else {
        return error(c, item->loc, "unknown schedule key '%s'", n);
    }
    return true;
}

static bool choose_matrix(struct ctx *c, struct kernel *k, struct dot_shape *s, struct tile_choice *want)
{
    struct tile_choice t;
    const char *why = "";
    struct axis *whole[3] = { s->m, s->n, s->k };
    static const int least[3] = { 16, 16, 32 }; // what any matrix instruction and its fetch need
    for (int i = 0; i < 3; i++)                 // a range is one tile: all of it
        if (whole[i]->kind == AX_RANGE && !whole[i]->size)
            whole[i]->size = (int)pow2_ceil(whole[i]->max_extent < least[i] ? least[i] : whole[i]->max_extent);
    want->bm = s->m->size ? s->m->size : want->bm;
    want->bn = s->n->size;
    want->bk = s->k->size;
    if (!model_matrix(c, s, want, &t, &why))
        return error(c, k->sched.loc.line ? k->sched.loc : k->loc, "kernel '%s'%s%s: %s", k->name,
                     *k->sched.variant ? ", variant " : "", k->sched.variant, why);
    default_sizes(c, k, s, &t);
    k->sched.warps_m = t.wm;
    k->sched.warps_n = t.wn;
    k->sched.stages = t.stages;
    k->sched.producers = t.producers;
    k->sched.persistent |= want->producers < 0 && t.producers;
    k->sched.mma = t.mma;
    k->sched.fixed_ns = t.fixed_ns;
    k->sched.step_ps = t.step_ps;
    k->sched.resident = t.resident;
    k->sched.flight = t.flight;
    if (k->sched.persistent && !k->sched.min_blocks) // they stay: all must fit
        k->sched.min_blocks = t.resident;
    return true;
}

// A clone with its sizes; sched NULL: all from the model. bm > 0: the wanted rows of a model variant.
static struct kernel *variant(struct ctx *c, const struct kernel *k, const struct schedule *sch, int bm,
                              const char *name)
{
    struct kernel *v = kernel_clone(c, k);
    struct dot_shape s;
    struct tile_choice want = { .mma = -1, .bm = bm, .producers = -1 };
    v->sched = (struct sched){ .variant = name, .mma = -1, .warps_m = 1, .warps_n = 1, .stages = 1 };
    v->sched.loc = sch ? sch->loc : (struct loc){ 0 };
    for (int i = 0; sch && i < sch->items.n; i++)
        if (!apply_item(c, v, sch->items.v[i], &want))
            return NULL;
    sched_shape(v, &s);
    if (s.dots) {
        if (!choose_matrix(c, v, &s, &want))
            return NULL;
        if (!v->sched.group && bm >= 64)
            v->sched.group = 8;
    } else {
        v->sched.warps_m = model_plain(c, v, want.wm > 0 ? want.wm * want.wn : 0);
    }
    v->scheduled = true;
    return v;
}

static bool names_arch(const struct schedule *s, const char *arch)
{
    for (int i = 0; i < s->arches.n; i++)
        if (!strcmp(s->arches.v[i], arch))
            return true;
    return false;
}

struct kernel **schedule(struct ctx *c, const struct module *m, const struct kernel *k, int *n)
{
    static const struct {
        int rows;
        const char *name;
    } by_rows[] = { { 16, "r16" }, { 64, "r64" }, { 128, "r128" } };
    struct kernel **out = NEWN(c->arena, struct kernel *, 16);
    int had = c->errors;
    struct dot_shape s;
    *n = 0;
    if (k->scheduled) { // read from a dump: as it stands
        out[(*n)++] = kernel_clone(c, k);
        return out;
    }
    for (const struct schedule *sch = m->schedules; sch && *n < 16; sch = sch->next)
        if (!strcmp(sch->kernel, k->name) && names_arch(sch, c->arch->name)) {
            struct kernel *v = variant(c, k, sch, 0, sch->variant ? sch->variant : "");
            if (v)
                out[(*n)++] = v;
        }
    if (*n || c->errors != had)
        return out;
    sched_shape(k, &s);
    if (s.dots && s.m->kind == AX_MAP) {
        for (size_t i = 0; i < COUNTOF(by_rows); i++) {
            struct kernel *v = variant(c, k, NULL, by_rows[i].rows, by_rows[i].name);
            if (v)
                out[(*n)++] = v;
        }
    } else {
        struct kernel *v = variant(c, k, NULL, 0, "");
        if (v)
            out[(*n)++] = v;
    }
    return out;
}
