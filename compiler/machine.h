// One block of threads, run operation by operation: its control flow, its roles side by side, and the life of its shared
// memory. What values are is the domain's business: eval.c computes them, verify_ring.c knows scalars as far as they can be
// known. So both see the same order of events, and the same faults.
//
// Programs    Each role is a program of its own, the grid's loop over tiles and all that stands outside the roles included;
//             without roles there is one, of all warps. A program has a stack of frames (block, next operation, loop), its own
//             variables and values, and runs until an await that is not satisfied or an arrive; then the first program that
//             can go on does.
// Before      Each program counts its arrives and barriers: its time. knows[q] is the time up to which it knows q to have come:
//             an arrive hands on what the arriving program knows, an await that succeeds takes it, a barrier brings the
//             program's own warps together. An access of q at time t is over, for this program, if knows[q] > t.
// Slots       EMPTY: nobody wrote it. FLYING: an asynchronous copy is on its way, until a wait retires its group or, in a role,
//             an await succeeds for the phase that its arrive closes. LANDED: written. Who read a slot, and when, is kept until
//             it is written again; asynchronous products read until an mma_wait retires their group.
// Fills       The copies into a buffer are numbered, and must be read in that order, none left out: so each trip has its tile.
//             A `wait(0)` without roles ends a ring: what it brought and nobody read may be left out.
#ifndef MOEC_MACHINE_H
#define MOEC_MACHINE_H
#include "ir.h"

enum { PROGRAMS_MAX = ROLES_MAX };

struct frame {
    const struct block *b;
    int at;
    const struct op *loop; // PARALLEL, FOR, EACH; NULL: once
    int64_t i, hi, step;
};
struct program {
    const struct op *role; // NULL: all warps
    int number;
    bool copies; // it brings tiles
    VEC(struct frame) frames;
    bool done;
    const struct op *stands; // at this await, which wants `phase` of `slot`
    int slot;
    int64_t phase;
    int64_t time, knows[PROGRAMS_MAX];
    int64_t copies_closed, copies_retired; // groups
    int64_t sums_closed, sums_retired;     // groups of asynchronous products
    bool sums_open;                        // products since the last mma_commit
    int64_t *sum_op, *sum_var;             // by op and var id: 1 + the group that is still adding to it; 0: none
    void *values;                          // the domain's
};
enum slot_state { SLOT_EMPTY, SLOT_FLYING, SLOT_LANDED };
struct slot {
    enum slot_state state;
    const struct op *by; // that wrote it last
    int writer;          // program
    int64_t time, group; // LANDED: when; FLYING: of which group
    bool stamped;        // the copy belongs to this phase of a barrier's slot:
    const struct buf *barrier;
    int at;
    int64_t phase;
    int64_t seen[PROGRAMS_MAX]; // 1 + time when a program awaited that phase; 0: it has not
    int64_t read[PROGRAMS_MAX]; // 1 + time of the last read; 0: none
    int64_t busy[PROGRAMS_MAX]; // 1 + group of asynchronous products that read; 0: none
    int64_t fill;               // number of this copy; -1: not by a copy
};
struct phases { // one slot of a buffer of barriers
    int64_t complete;
    bool arrived[PROGRAMS_MAX];                       // in the phase under way
    int64_t open[PROGRAMS_MAX], closed[PROGRAMS_MAX]; // what arriving programs knew: in the phase under way; before
};
struct shared { // by buffer
    struct slot *slots;
    struct phases *phases;
    bool arrives[PROGRAMS_MAX];
    int64_t fills, settled;     // copies so far; at the last wait(0)
    int64_t next[PROGRAMS_MAX]; // the copy that a program reads next
    bool reads[PROGRAMS_MAX];
};

struct machine;
struct domain {
    void (*enter)(struct machine *m, struct program *p); // from now on, values are those of p
    bool (*scalar)(struct machine *m, const struct op *op, int64_t *v);
    void (*bounds)(struct machine *m, const struct op *loop, int64_t *lo, int64_t *hi, int64_t *step);
    void (*trip)(struct machine *m, const struct op *loop, int64_t i, int64_t hi);
    bool (*condition)(struct machine *m, const struct op *op);
    int64_t (*tiles)(struct machine *m, const struct op *parallel);
    bool (*tile)(struct machine *m, const struct op *parallel, int64_t n); // false: nothing to do
    void (*run)(struct machine *m, const struct op *op);                   // anything without a body, and `at`
    void (*land)(struct machine *m, const struct buf *b, int slot);        // optional: a copy is there now
    void (*fault)(struct machine *m, const struct op *op,
                  const char *text); // op NULL: the whole kernel; may not return
};
struct machine {
    struct ctx *c;
    const struct kernel *k;
    const struct domain *d;
    void *user;
    bool consumers_first; // of several programs that can go on; else those that copy
    int64_t steps_max;    // 0: no limit; past it the block is left as it is
    int64_t blocks;       // of a persistent grid
    // the rest is the machine's own
    int64_t block, tiles, steps;
    bool async; // products
    bool failed, cut;
    struct program programs[PROGRAMS_MAX], *now;
    int n;
    struct shared *shared; // by buf id
};

// machine.c
bool machine_open(struct machine *m);                  // false: too many roles (a fault)
void machine_block(struct machine *m, int64_t number); // runs one block of the grid; then m->tiles is known
void machine_fault(struct machine *m, const struct op *op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// machine_sync.c
void sync_open(struct machine *m);
void sync_reset(struct machine *m);
bool sync_await(struct machine *m, const struct op *op); // false: it must wait
void sync_run(struct machine *m,
              const struct op *op); // before d->run: what the operation does to slots, barriers, groups
void sync_tile_ends(struct machine *m, const struct op *parallel);
void sync_block_ends(struct machine *m);
#endif
