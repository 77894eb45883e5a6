// Part of emit: a tile's elements moved to another layout, by exchanges among the lanes of a warp.
//
// The layouts differ by exchanges of a lane bit with a register bit of one axis. For each, a thread keeps of two registers the one
// whose number agrees with its lane bit, and gives the other to the thread across that bit for the one that this one gives.
#include "emit.h"

struct exchange {
    int lane, element; // bits of the lane's and of the element's number
};
enum { EXCHANGES_MAX = 8 };

static bool same_bit(struct bit a, struct bit b)
{
    return a.home == b.home && a.pos == b.pos;
}

// How many; -1: the layouts differ by something else.
static int axis_exchanges(const struct home *from, const struct home *to, int shift, struct exchange *out, int n)
{
    if (!from || !to || from->nbits != to->nbits)
        return -1;
    for (int i = 0; i < from->nbits; i++) {
        int j = 0;
        if (same_bit(from->bits[i], to->bits[i]))
            continue;
        while (j < from->nbits && !(same_bit(from->bits[j], to->bits[i]) && same_bit(to->bits[j], from->bits[i])))
            j++;
        if (j == from->nbits || n == EXCHANGES_MAX)
            return -1;
        if (from->bits[i].home == BIT_LANE && from->bits[j].home == BIT_REG)
            out[n++] = (struct exchange){ from->bits[i].pos, shift + from->bits[j].pos };
        else if (from->bits[i].home != BIT_REG || from->bits[j].home != BIT_LANE)
            return -1;
    }
    return n;
}

static int exchanges(const struct em *m, const struct op *op, struct exchange *out)
{
    const struct type *t = &op->type;
    int n = 0, shift = 0;
    for (int i = t->rank - 1; i >= 0 && n >= 0; i--) {
        n = axis_exchanges(dist_home(m->k, op->args[0]->dist, t->axes[i]), dist_home(m->k, op->dist, t->axes[i]), shift,
                           out, n);
        shift += em_reg_bits(m, op->dist, t->axes[i]);
    }
    return n;
}

// ---- elements as words of 32 bits --------------------------------------------------------------------------------

static val word_of(struct em *m, enum elem e, int per, const val *v)
{
    if (per > 1)
        return mb_un(m->mb, "bitcast", mb_join(m->mb, em_type(m, e), per, v), m->ty->i32);
    if (elem_bytes[e] == 2)
        return mb_un(m->mb, "zext", mb_un(m->mb, "bitcast", v[0], m->ty->i16), m->ty->i32);
    return e == EL_I32 ? v[0] : mb_un(m->mb, "bitcast", v[0], m->ty->i32);
}

static void of_word(struct em *m, enum elem e, int per, val w, val *out)
{
    mty t = em_type(m, e);
    if (per > 1)
        mb_split(m->mb, per, mb_un(m->mb, "bitcast", w, mb_vec(m->mb, per, t)), out);
    else if (elem_bytes[e] == 2)
        out[0] = mb_un(m->mb, "bitcast", mb_un(m->mb, "trunc", w, m->ty->i16), t);
    else
        out[0] = e == EL_I32 ? w : mb_un(m->mb, "bitcast", w, t);
}

static void exchange(struct em *m, int lane, int bit, val *w, int n)
{
    struct mb *b = m->mb;
    val mine = mb_bin(b, "and", mb_bin(b, "lshr", m->e.lane, mb_i32(b, lane)), mb_i32(b, 1));
    val high = mb_icmp(b, IC_NE, mine, mb_i32(b, 0));
    for (int i = 0; i < n; i++) {
        int j = i | 1 << bit;
        if (i == j)
            continue;
        val got = m->t->shuffle_xor(&m->e, mb_select(b, high, w[i], w[j]), 1 << lane);
        w[i] = mb_select(b, high, got, w[i]);
        w[j] = mb_select(b, high, w[j], got);
    }
}

void em_relayout(struct em *m, const struct op *op)
{
    struct exchange x[EXCHANGES_MAX];
    struct tile in = em_tile(m, op->args[0]), *t = &m->ops[op->id];
    enum elem e = op->type.elem;
    int n = exchanges(m, op, x), per = elem_bytes[e] == 2 && in.n > 1 ? 2 : 1;
    if (n < 0 || e == EL_BOOL) {
        em_refuse(m, op->loc,
                  "'relayout' exchanges lane bits for register bits of one axis; layouts '%s' and '%s' differ by "
                  "something else",
                  m->k->dists.v[op->args[0]->dist].name, m->k->dists.v[op->dist].name);
        return;
    }
    for (int i = 0; i < n; i++)
        per = x[i].element ? per : 1;
    val *w = NEWN(m->c->arena, val, in.n);
    for (int i = 0; i < in.n / per; i++)
        w[i] = word_of(m, e, per, in.v + i * per);
    for (int i = 0; i < n; i++)
        exchange(m, x[i].lane, per > 1 ? x[i].element - 1 : x[i].element, w, in.n / per);
    *t = (struct tile){ .n = in.n, .v = NEWN(m->c->arena, val, in.n) };
    for (int i = 0; i < in.n / per; i++)
        of_word(m, e, per, w[i], t->v + i * per);
}
