// Part of the pass `layout`: stores whose neighbouring elements lie in neighbouring lanes.
//
// The results of matrix instructions lie so that a warp's store touches runs of a few bytes in many rows: less than the 32 bytes
// that memory moves at a time. Such a value is rounded, given another layout in which a thread holds 16 bytes of a row, and stored
// from there. The other layout is `main` with some lane bits of the last axis exchanged for register bits of it.
#include "layout.h"

#include <string.h>

enum { SECTOR_BYTES = 32, ACCESS_BYTES = 16 };

// Is the index an axis's own, or the same for all?
static bool plain_index(const struct op *i, const struct axis *last)
{
    return !i->type.rank || (i->code == OP_INDEX && i->axis != last);
}

// The axis along which the store's elements are neighbours in memory; NULL: the layout of its value cannot be changed.
static const struct axis *last_axis(const struct op *store)
{
    const struct op *value = store->args[store->nargs - 1],
                    *last = store->nargs > 1 ? store->args[store->nargs - 2] : NULL;
    int axes = 0;
    if (store->dist || value->dist || !last || last->code != OP_INDEX || value->type.elem == EL_BOOL)
        return NULL;
    for (int i = 0; i < store->nargs - 2; i++) {
        if (!plain_index(store->args[i], last->axis))
            return NULL;
        axes += store->args[i]->type.rank;
    }
    return value->type.rank == axes + 1 && type_has_axis(&value->type, last->axis) ? last->axis : NULL;
}

// Bytes of a row that one access of a warp covers in one piece.
static int piece(const struct home *h, int bytes)
{
    for (int i = 0; i < h->nbits; i++) {
        if (h->bits[i].home == BIT_WARP || (h->bits[i].home == BIT_REG && h->bits[i].pos != i))
            break;
        bytes *= 2;
    }
    return bytes;
}

// The home with register bits lowest, up to a thread's widest access; false: it would not be another.
static bool widened(const struct home *h, int bytes, struct home *out)
{
    int want = log2_exact(ACCESS_BYTES / bytes), changed = 0;
    *out = *h;
    for (int i = 0; i < want && i < h->nbits; i++) {
        int j = want;
        if (out->bits[i].home != BIT_LANE)
            continue;
        while (j < h->nbits && out->bits[j].home != BIT_REG)
            j++;
        if (j >= h->nbits)
            break;
        struct bit lane = out->bits[i];
        out->bits[i] = out->bits[j];
        out->bits[j] = lane;
        changed++;
    }
    return changed > 0;
}

static int dist_of(struct lay *l, const struct type *t, const struct axis *last, const struct home *wide)
{
    char *name = arena_printf(l->c->arena, "store_%s", last->name);
    int d = lay_dist(l, name);
    for (int i = 0; i < t->rank; i++) {
        const struct home *h = t->axes[i] == last ? wide : dist_home(l->k, 0, t->axes[i]);
        if (!dist_home(l->k, d, t->axes[i]))
            lay_set_home(l, d, t->axes[i], h->nbits, h->bits);
    }
    return d;
}

static void widen(struct lay *l, struct block *b, struct op *store)
{
    const struct axis *last = last_axis(store);
    const struct home *h = last ? dist_home(l->k, 0, last) : NULL;
    int bytes = elem_bytes[store->buf->elem];
    struct home wide;
    if (!h || bytes > 4 || piece(h, bytes) >= SECTOR_BYTES || !widened(h, bytes, &wide))
        return;
    struct op *value = op_cast(l->c, l->k, b, store->buf->elem, store->args[store->nargs - 1]);
    struct op *moved = op_new(l->c, l->k, OP_RELAYOUT, store->loc);
    moved->args[0] = value;
    moved->nargs = 1;
    moved->type = value->type;
    moved->dist = store->dist = dist_of(l, &value->type, last, &wide);
    block_push(l->c, b, moved);
    store->args[store->nargs - 1] = moved;
    for (int i = 0; i < store->nargs - 1; i++)
        store->args[i] = lay_repeat(l, b, store->args[i], store->dist);
}

void lay_stores(struct lay *l, struct block *b)
{
    int n = b->ops.n;
    struct op **old = b->ops.v;
    memset(&b->ops, 0, sizeof b->ops);
    for (int i = 0; i < n; i++) {
        if (old[i]->body)
            lay_stores(l, old[i]->body);
        if (old[i]->other)
            lay_stores(l, old[i]->other);
        if (old[i]->code == OP_STORE)
            widen(l, b, old[i]);
        block_push(l->c, b, old[i]);
    }
}
