// Part of the pass `layout`: a ring between two roles. Some warps only copy, the others only multiply, and each slot goes round
// between them through two barriers, so that copies run as far ahead as the ring is deep, across tiles of a persistent grid too.
//
//     load:  each trip:  q = turn + i;  await(empty[q % S], q / S - 1);  copies into slot q % S;  arrive(full[q % S])
//     math:  each trip:  q = turn + i;  await(full[q % S], q / S);  products of slot q % S;  mma_commit;  mma_wait(late)
//                        if i >= late: arrive(empty[(q - late) % S])
//            mma_wait(0);  the last `late` slots are given back;  what follows the loop
//
// turn counts the trips of all tiles before this one. Each role has its own count: they run apart by up to S trips.
#include "ring.h"

struct role {
    struct op *op;
    struct var *turn;
};

// Stays before the roles, for both of them: scalars that need nothing of one role, and axes.
static bool common(const struct op *op)
{
    if (op->code == OP_RANGE)
        return true;
    return !op->type.rank && op->code != OP_GET && (op_infos[op->code].flags & (F_PURE | F_READS)) &&
           !(op_infos[op->code].flags & F_SYNC);
}

// Everything that the tile's block did before the loop belongs to the products' role, but what is common.
static void divide(struct ring *r, struct block *b, struct block *math)
{
    int kept = 0;
    for (int i = 0; i < b->ops.n; i++) {
        struct op *op = b->ops.v[i];
        if (common(op)) {
            b->ops.v[kept++] = op;
            continue;
        }
        block_push(r->l->c, math, op);
        if (op->body)
            op->body->parent = op;
    }
    b->ops.n = kept;
}

static struct role role_new(struct ring *r, struct block *outer, const char *name, int first, int warps, int regs)
{
    struct lay *l = r->l;
    struct role role = { .op = op_new(l->c, l->k, OP_ROLE, r->loop->loc) };
    struct type t = { .elem = EL_I32 };
    struct op *var = op_new(l->c, l->k, OP_VAR, r->loop->loc);
    role.op->name = name;
    role.op->ival = first;
    role.op->ival2 = warps;
    role.op->regs = regs;
    role.op->body = block_new(l->c, role.op);
    role.turn = var_new(l->c, l->k, arena_printf(l->c->arena, "turn_%s_%d", name, l->k->vars.n), t, r->loop->loc);
    var->var = role.turn;
    var->args[0] = lay_int(l, outer, 0);
    var->nargs = 1;
    block_push(l->c, outer, var);
    return role;
}

static struct op *turn_of(struct ring *r, struct block *b, const struct role *role)
{
    struct op *get = op_new(r->l->c, r->l->k, OP_GET, r->loop->loc);
    get->var = role->turn;
    get->type = role->turn->type;
    block_push(r->l->c, b, get);
    return get;
}

static void advance(struct ring *r, struct block *b, const struct role *role, struct op *n)
{
    struct op *set = op_new(r->l->c, r->l->k, OP_SET, r->loop->loc);
    set->var = role->turn;
    set->args[0] = lay_bin(r->l, b, OP_ADD, turn_of(r, b, role), n);
    set->nargs = 1;
    block_push(r->l->c, b, set);
}

static struct buf *barriers(struct ring *r, struct block *outer, const char *name)
{
    struct buf *s = lay_shared(r->l, outer, name, EL_I32, r->stages, 1, 2, r->loop->loc);
    s->barrier = true;
    s->swizzle = 0;
    return s;
}

static void arrive(struct ring *r, struct block *b, struct buf *barrier, struct op *slot)
{
    struct op *op = ring_plain(r, b, OP_ARRIVE, 0);
    op->buf = barrier;
    op->args[0] = slot;
    op->nargs = 1;
}

// The phase of the slot's use at `turn`, or `before` uses earlier.
static void await(struct ring *r, struct block *b, struct buf *barrier, struct op *slot, struct op *turn, int before)
{
    struct lay *l = r->l;
    struct op *use = lay_bin(l, b, OP_DIV, turn, lay_int(l, b, r->stages));
    struct op *phase = lay_bin(l, b, OP_SUB, use, lay_int(l, b, before)), *op = ring_plain(r, b, OP_AWAIT, 0);
    op->buf = barrier;
    op->args[0] = slot;
    op->args[1] = phase;
    op->nargs = 2;
}

// A box of the tensor: its last two indices are the rows of a tile and the whole of k, the others the same for all the tile.
static bool boxed(const struct ring *r, const struct operand *o)
{
    const struct op *load = o->load, *row = load->nargs >= 2 ? load->args[load->nargs - 2] : NULL;
    bool box = r->l->c->arch->copy == COPY_BULK && row && row->code == OP_INDEX && row->axis == o->row &&
               o->row->size <= 256 && sched_whole(r->hi, &load->buf->shape[load->buf->rank - 1]);
    for (int i = 0; box && i < load->nargs - 2; i++)
        box = !load->args[i]->type.rank;
    return box;
}

static void load_role(struct ring *r, const struct role *role, struct op *n, struct buf *full, struct buf *empty)
{
    struct lay *l = r->l;
    struct op *each = ring_region(r, role->op->body, OP_EACH, lay_int(l, role->op->body, 0), n),
              *i = ring_counter(r, each);
    struct block *b = each->body;
    struct op *q = lay_bin(l, b, OP_ADD, turn_of(r, b, role), i), *s = ring_slot(r, b, q),
              *origin = ring_origin(r, b, i);
    await(r, b, empty, s, q, 1);
    for (int j = 0; j < r->n; j++)
        ring_fetch(r, b, &r->operand[j], origin, s);
    arrive(r, b, full, s);
    advance(r, role->op->body, role, n);
}

static struct block *only_if(struct ring *r, struct block *b, enum opcode compare, struct op *x, int y)
{
    struct lay *l = r->l;
    struct op *c = op_binary(l->c, l->k, b, compare, x, lay_int(l, b, y)),
              *op = op_new(l->c, l->k, OP_IF, r->loop->loc);
    op->args[0] = c;
    op->nargs = 1;
    op->body = block_new(l->c, op);
    block_push(l->c, b, op);
    return op->body;
}

static void math_role(struct ring *r, const struct role *role, struct op *n, struct buf *full, struct buf *empty)
{
    struct lay *l = r->l;
    struct op *each = ring_region(r, role->op->body, OP_EACH, lay_int(l, role->op->body, 0), n),
              *i = ring_counter(r, each);
    struct block *b = each->body;
    struct op *q = lay_bin(l, b, OP_ADD, turn_of(r, b, role), i), *s = ring_slot(r, b, q);
    await(r, b, full, s, q, 0);
    ring_body(r, b, ring_origin(r, b, i), s);
    ring_plain(r, b, OP_MMA_COMMIT, 0);
    ring_plain(r, b, OP_MMA_WAIT, r->late);
    struct block *given = r->late ? only_if(r, b, OP_GE, i, r->late) : b;
    struct op *done = lay_bin(l, given, OP_ADD, q, lay_int(l, given, r->stages - r->late));
    arrive(r, given, empty, ring_slot(r, given, done));
    b = role->op->body;
    ring_plain(r, b, OP_MMA_WAIT, 0);
    for (int j = r->late; j > 0; j--) {
        given = only_if(r, b, OP_GE, n, j);
        struct op *last = lay_bin(l, given, OP_ADD, turn_of(r, given, role), n);
        arrive(r, given, empty, ring_slot(r, given, lay_bin(l, given, OP_SUB, last, lay_int(l, given, j))));
    }
    advance(r, b, role, n);
}

// Registers of a thread, in the steps and bounds of setmaxnreg-like instructions: all threads start with the same share of the
// multiprocessor's, then the copying warps give up what they do not need (they keep more where they compute addresses of rows).
struct share {
    int copy, math;
};
enum { REGS_STEP = 8, REGS_BOXES = 40, REGS_ROWS = 56, REGS_MOST = 240 };

static struct share registers(const struct ring *r)
{
    const struct sched *s = &r->l->k->sched;
    int copiers = s->producers * r->l->lanes, others = s->warps_m * s->warps_n * r->l->lanes;
    int start =
        r->l->c->arch->regs / (s->min_blocks > 1 ? s->min_blocks : 1) / (copiers + others) / REGS_STEP * REGS_STEP;
    struct share x = { .copy = REGS_BOXES };
    for (int i = 0; i < r->n; i++)
        x.copy = r->operand[i].bulk ? x.copy : REGS_ROWS;
    x.math = (start * (copiers + others) - x.copy * copiers) / others / REGS_STEP * REGS_STEP;
    x.math = x.math < REGS_MOST ? x.math : REGS_MOST;
    return start > x.copy && x.math > start ? x : (struct share){ 0 };
}

struct block *ring_roles(struct ring *r, struct block *b)
{
    struct lay *l = r->l;
    const struct sched *s = &l->k->sched;
    struct block *outer = s->persistent ? l->k->body : b;
    int copy_bits = log2_exact(s->producers), math = s->warps_m * s->warps_n;
    if (!b->parent || b->parent->code != OP_PARALLEL || copy_bits < 0)
        return NULL;
    for (int i = 0; i < r->n; i++)
        r->operand[i].bulk = boxed(r, &r->operand[i]);
    struct share regs = registers(r);
    struct op *n = ring_trips(r, b);
    struct block *before = block_new(l->c, NULL);
    divide(r, b, before);
    struct role load = role_new(r, outer, "load", math, s->producers, regs.copy);
    struct role products = role_new(r, outer, "math", 0, math, regs.math);
    ring_declare(r, outer, outer, load.op->body, copy_bits);
    struct buf *full = barriers(r, outer, "full"), *empty = barriers(r, outer, "empty");
    load_role(r, &load, n, full, empty);
    for (int i = 0; i < before->ops.n; i++) {
        block_push(l->c, products.op->body, before->ops.v[i]);
        if (before->ops.v[i]->body)
            before->ops.v[i]->body->parent = before->ops.v[i];
    }
    math_role(r, &products, n, full, empty);
    block_push(l->c, b, load.op);
    block_push(l->c, b, products.op);
    return products.op->body;
}
