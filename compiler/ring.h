// Shared by ring.c (rings that all warps fill and read) and ring_roles.c (rings between warps of different roles).
#ifndef MOEC_RING_H
#define MOEC_RING_H
#include "layout.h"

enum { OPERANDS_MAX = 12 };
struct operand {
    struct op *load;  // the tile, as the body reads it
    struct axis *row; // its other axis
    struct buf *ring;
    struct var *ahead;          // COPY_REG: the tile in flight
    struct op *index[RANK_MAX]; // hoisted indices, NULL where the index is the loop's axis
    int dist;
    bool bulk; // by the copy engine
};
struct ring {
    struct lay *l;
    struct op *loop;
    struct axis *k, *kr; // the loop's axis; positions inside a tile of it
    struct operand operand[OPERANDS_MAX];
    int n, stages;
    bool async;
    int late; // trips whose products may still be under way
    struct op *hi, *lo;
};
void ring_declare(struct ring *r, struct block *outer, struct block *ranges, struct block *b, int warp_bits);
struct op *ring_fetch(struct ring *r, struct block *b, struct operand *o, struct op *origin, struct op *slot);
void ring_body(struct ring *r, struct block *b, struct op *origin, struct op *slot);
struct op *ring_slot(struct ring *r, struct block *b, struct op *trip); // of that trip, counted over all of the ring's
struct op *ring_trips(struct ring *r, struct block *b);
struct op *ring_origin(struct ring *r, struct block *b, struct op *trip);
struct op *ring_plain(struct ring *r, struct block *b, enum opcode code, int64_t v);
struct op *ring_region(struct ring *r, struct block *b, enum opcode code, struct op *x, struct op *y);
struct op *ring_counter(struct ring *r, struct op *each);
struct block *ring_roles(struct ring *r, struct block *b); // ring_roles.c: as lay_ring
#endif
