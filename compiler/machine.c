// The control flow of a block: frames, programs, whose turn it is. machine_sync.c keeps shared memory and barriers.
#include "machine.h"

#include <stdio.h>
#include <string.h>

void machine_fault(struct machine *m, const struct op *op, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (m->failed)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    m->failed = true;
    m->d->fault(m, op, text);
}

// ---- programs ----------------------------------------------------------------------------------------------------

static bool find_copy(void *user, struct op *op)
{
    *(bool *)user |= op->code == OP_COPY;
    return true;
}

static bool add_program(struct machine *m, const struct op *role)
{
    if (m->n == PROGRAMS_MAX) {
        machine_fault(m, role, "more than %d roles", PROGRAMS_MAX);
        return false;
    }
    struct program *p = &m->programs[m->n];
    p->role = role;
    p->number = m->n++;
    if (role)
        walk(role->body, find_copy, &p->copies);
    p->sum_op = NEWN(m->c->arena, int64_t, m->k->nops + 1);
    p->sum_var = NEWN(m->c->arena, int64_t, m->k->vars.n + 1);
    return true;
}

bool machine_open(struct machine *m)
{
    const struct block *b = m->k->body;
    for (int i = 0; i < b->ops.n; i++)
        for (int j = 0; b->ops.v[i]->code == OP_PARALLEL && j < b->ops.v[i]->body->ops.n; j++)
            if (b->ops.v[i]->body->ops.v[j]->code == OP_ROLE && !add_program(m, b->ops.v[i]->body->ops.v[j]))
                return false;
    if (!m->n)
        add_program(m, NULL);
    sync_open(m);
    return true;
}

static void push(struct machine *m, const struct block *b, const struct op *loop, int64_t i, int64_t hi, int64_t step)
{
    struct frame f = { .b = b, .loop = loop, .i = i, .hi = hi, .step = step };
    VEC_PUSH(m->c->arena, &m->now->frames, f);
}

static void reset(struct machine *m)
{
    for (int i = 0; i < m->n; i++) {
        struct program *p = &m->programs[i];
        m->now = p;
        p->frames.n = 0;
        p->done = false;
        p->stands = NULL;
        p->time = p->copies_closed = p->copies_retired = p->sums_closed = p->sums_retired = 0;
        p->sums_open = false;
        memset(p->knows, 0, sizeof p->knows);
        memset(p->sum_op, 0, sizeof *p->sum_op * (size_t)m->k->nops);
        memset(p->sum_var, 0, sizeof *p->sum_var * (size_t)m->k->vars.n);
        push(m, m->k->body, NULL, 0, 0, 0);
    }
    m->tiles = 1;
    m->steps = 0;
    m->cut = false;
    sync_reset(m);
}

// ---- one step ----------------------------------------------------------------------------------------------------

static void begin_trip(struct machine *m)
{
    struct program *p = m->now;
    struct frame *f = &p->frames.v[p->frames.n - 1];
    f->at = 0;
    if (f->loop->code != OP_PARALLEL)
        m->d->trip(m, f->loop, f->i, f->hi);
    else if (!m->d->tile(m, f->loop, f->i))
        f->at = f->b->ops.n;
}

static void end_block(struct machine *m)
{
    struct program *p = m->now;
    struct frame *f = &p->frames.v[p->frames.n - 1];
    if (f->loop && f->loop->code == OP_PARALLEL)
        sync_tile_ends(m, f->loop);
    if (f->loop && f->hi - f->i > f->step) {
        f->i += f->step;
        begin_trip(m);
    } else {
        p->frames.n--;
        p->done = !p->frames.n;
    }
}

static void enter_grid(struct machine *m, const struct op *op)
{
    m->tiles = m->d->tiles(m, op);
    int64_t step = m->k->sched.persistent && m->blocks > 0 ? m->blocks : m->tiles;
    if (m->block >= m->tiles)
        return;
    push(m, op->body, op, m->block, m->tiles, step);
    begin_trip(m);
}

static void enter_loop(struct machine *m, const struct op *op)
{
    int64_t lo, hi, step;
    m->d->bounds(m, op, &lo, &hi, &step);
    if (lo >= hi)
        return;
    push(m, op->body, op, lo, hi, step);
    begin_trip(m);
}

static void run_op(struct machine *m, const struct op *op)
{
    const struct block *b;
    sync_run(m, op);
    if (m->failed)
        return;
    switch ((int)op->code) {
    case OP_PARALLEL: enter_grid(m, op); return;
    case OP_FOR:
    case OP_EACH: enter_loop(m, op); return;
    case OP_IF:
        b = m->d->condition(m, op) ? op->body : op->other;
        if (b)
            push(m, b, NULL, 0, 0, 0);
        return;
    case OP_AT:
        m->d->run(m, op);
        push(m, op->body, NULL, 0, 0, 0);
        return;
    case OP_ROLE:
        if (!m->now->role)
            machine_fault(m, op, "a role stands directly in the grid's block");
        else if (m->now->role == op)
            push(m, op->body, NULL, 0, 0, 0);
        return;
    }
    m->d->run(m, op);
}

// Until the program waits, ends, or has arrived somewhere; false if it could not go on at all.
static bool run_program(struct machine *m, struct program *p)
{
    bool moved = false;
    m->now = p;
    m->d->enter(m, p);
    while (!m->failed && !m->cut && !p->done) {
        struct frame *f = &p->frames.v[p->frames.n - 1];
        const struct op *op = f->at < f->b->ops.n ? f->b->ops.v[f->at] : NULL;
        if (op && op->code == OP_AWAIT && !sync_await(m, op))
            return moved;
        moved = true;
        m->cut = m->steps_max && ++m->steps > m->steps_max;
        f->at += op != NULL;
        if (!op)
            end_block(m);
        else if (op->code != OP_AWAIT)
            run_op(m, op);
        if (op && op->code == OP_ARRIVE)
            return true;
    }
    return moved;
}

static void deadlock(struct machine *m)
{
    char text[400] = "";
    const struct op *first = NULL;
    for (int i = 0; i < m->n; i++) {
        const struct program *p = &m->programs[i];
        size_t n = strlen(text);
        if (p->done)
            continue;
        snprintf(text + n, sizeof text - n, "%s'%s' waits at line %d for phase %lld of slot %d of '%s'", n ? ", " : "",
                 p->role ? p->role->name : "all warps", p->stands->loc.line, (long long)p->phase, p->slot,
                 p->stands->buf->name);
        first = first ? first : p->stands;
    }
    machine_fault(m, first, "no role can go on: %s", text);
}

// The first in order that can go on; false: none.
static bool turn(struct machine *m, bool *all_done)
{
    *all_done = true;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < m->n; i++) {
            struct program *p = &m->programs[i];
            if ((p->copies != m->consumers_first) != (pass == 0))
                continue;
            *all_done &= p->done;
            if (!p->done && run_program(m, p))
                return true;
        }
    return false;
}

void machine_block(struct machine *m, int64_t number)
{
    bool all_done;
    m->block = number;
    reset(m);
    while (turn(m, &all_done) && !m->failed && !m->cut)
        ;
    if (m->failed || m->cut)
        return;
    if (all_done)
        sync_block_ends(m);
    else
        deadlock(m);
}
