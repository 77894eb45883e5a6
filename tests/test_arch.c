// The rows of every architecture agree with themselves and with the hardware. What the hardware does is written here a
// second time, as formulas from the vendors' ISA manuals; the rows give the same facts as bit lists.
#include "../targets/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LANES_MAX = 64, ELEMS_MAX = 32, SIDE_MAX = 64 };

// ---- helpers ----------------------------------------------------------------------------------------------------

static int log2_of(int v)
{
    int n = 0;
    while (1 << n < v)
        n++;
    return n;
}

static bool power_of_two(int64_t v)
{
    return v > 0 && (v & (v - 1)) == 0;
}

// The index that a bit list gives for a lane and an element number.
static int index_at(const char *map, int lane, int elem)
{
    struct bit b[BITS_MAX];
    int n = bits_parse(map, b, BITS_MAX), x = 0;
    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        if (b[i].home == BIT_LANE)
            x |= (lane >> b[i].pos & 1) << i;
        else if (b[i].home == BIT_REG)
            x |= (elem >> b[i].pos & 1) << i;
    return x;
}

// Calls fn for every matrix instruction of one warp of every arch.
static void each_mma(void (*fn)(const struct arch *a, const struct mma *i))
{
    int seen = 0;
    for (int t = 0; t < ntargets; t++)
        for (int j = 0; j < targets[t]->narches; j++) {
            const struct arch *a = &targets[t]->arches[j];
            for (int k = 0; k < a->nmmas; k++)
                if (a->mmas[k].kind == MMA_WARP) {
                    fn(a, &a->mmas[k]);
                    seen++;
                }
        }
    assert_true(seen >= 10); // a loop over nothing proves nothing
}

static bool nvidia(const struct arch *a)
{
    return !strcmp(a->target->name, "nvptx");
}

// ---- what the hardware does -------------------------------------------------------------------------------------

struct place {
    int row, col;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
static struct place nv_a(int lane, int i)
{
    int group = lane >> 2, pair = lane % 4;
    bool low = (i >= 0 && i < 2) || (i >= 4 && i < 6);
    return (struct place){ low ? group : group + 8, pair * 2 + (i & 1) + (i >= 4 ? 8 : 0) };
}
static struct place nv_b(int lane, int i) // (n, k)
{
    return (struct place){ lane >> 2, lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0) };
}
static struct place nv_d(int lane, int i)
{
    return (struct place){ (lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1) };
}

// CDNA3 and CDNA4 ISA, "Matrix Arithmetic Instructions", dense layouts of one block.
static struct place amd_ab(const struct mma *m, int side, int lane, int i)
{
    int each = side * m->k / 64;
    return (struct place){ lane % side, lane / side * each + i };
}
// amd_mma exchanges the operands (a is the hardware's B), so that its D, row 8 (i / 4) + 4 (lane / 32) + i % 4 and column
// lane % 32, arrives with the columns n where the manual has the rows.
static struct place amd_d(const struct mma *m, int lane, int i)
{
    int n = m->m == 32 ? i / 4 * 8 + lane / 32 * 4 + i % 4 : lane / 16 * 4 + i;
    return (struct place){ lane % m->m, n };
}

static struct place hw_a(const struct arch *a, const struct mma *m, int lane, int i)
{
    return nvidia(a) ? nv_a(lane, i) : amd_ab(m, m->m, lane, i);
}
static struct place hw_b(const struct arch *a, const struct mma *m, int lane, int i)
{
    return nvidia(a) ? nv_b(lane, i) : amd_ab(m, m->n, lane, i);
}
static struct place hw_d(const struct arch *a, const struct mma *m, int lane, int i)
{
    return nvidia(a) ? nv_d(lane, i) : amd_d(m, lane, i);
}

struct shared_tile { // rows x cols elements, row-major
    int rows, cols, v[SIDE_MAX * SIDE_MAX];
};
struct fetched { // in the order of the registers they arrive in
    int n, v[LANES_MAX][ELEMS_MAX];
};

// PTX ISA, ldmatrix.sync.aligned.m8n8.x4.b16: lane l names row l % 8 of matrix l / 8, eight elements; lane l receives in
// register j elements 2 (l % 4) and the next of row l / 4 of matrix j.
static void ldmatrix_x4(const struct shared_tile *s, const struct place *addr, struct fetched *f)
{
    f->n = 8;
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                struct place p = addr[j * 8 + lane / 4];
                f->v[lane][j * 2 + h] = s->v[p.row * s->cols + p.col + lane % 4 * 2 + h];
            }
}

// ds_read: each lane its own contiguous run.
static void ds_read(const struct shared_tile *s, const struct place *addr, int lanes, int n, struct fetched *f)
{
    f->n = n;
    for (int lane = 0; lane < lanes; lane++)
        for (int i = 0; i < n; i++)
            f->v[lane][i] = s->v[addr[lane].row * s->cols + addr[lane].col + i];
}

// One fetch as the row's address map asks for it.
static void do_fetch(const struct arch *a, const struct operand_map *o, const struct shared_tile *s, struct fetched *f)
{
    struct place addr[LANES_MAX];
    for (int lane = 0; lane < a->lanes; lane++) {
        addr[lane] = (struct place){ index_at(o->addr_row, lane, 0), index_at(o->addr_k, lane, 0) };
        assert_in_range(addr[lane].row, 0, s->rows - 1);
        assert_in_range(addr[lane].col, 0, s->cols - o->fetch_bytes / 2);
    }
    if (nvidia(a))
        ldmatrix_x4(s, addr, f);
    else
        ds_read(s, addr, a->lanes, o->fetch_bytes / 2, f);
}

// ---- rows -------------------------------------------------------------------------------------------------------

static void check_row(const struct target *t, const struct arch *a)
{
    assert_ptr_equal(a->target, t);
    assert_ptr_equal(arch_find(a->name), a);
    assert_true(a->lanes == 32 || a->lanes == 64);
    assert_true(a->max_threads >= 256 && a->max_threads % a->lanes == 0);
    assert_true(a->max_regs > 0 && power_of_two(a->regs));
    assert_true(a->regs >= 128 * 256); // 256 threads of 128 registers fit
    assert_true(a->shared >= 65536 && a->shared <= a->shared_sm && a->shared % 1024 == 0);
    assert_true(a->processors > 0 && a->tflops16 > 0 && a->gbps > 0);
    assert_true(a->copy == COPY_REG ? a->copy_bytes == 0 : a->copy_bytes == 16);
    assert_true(*a->triple && *a->cpu && a->features && *a->passes);
    assert_true(a->nmmas > 0);
    for (int i = 0; i < a->nmmas; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(a->mmas[i].name, a->mmas[j].name);
}

static void rows_are_consistent(void **state)
{
    int n = 0;
    (void)state;
    for (int t = 0; t < ntargets; t++)
        for (int j = 0; j < targets[t]->narches; j++, n++)
            check_row(targets[t], &targets[t]->arches[j]);
    assert_int_equal(n, 5);
    assert_null(arch_find("sm_79"));
    assert_null(arch_find(""));
}

static void limits_are_the_vendors(void **state)
{
    static const struct {
        const char *name;
        int lanes;
        int64_t shared;
    } want[] = {
        { "sm_80", 32, 163 * 1024 }, { "sm_90a", 32, 227 * 1024 }, { "sm_100a", 32, 227 * 1024 },
        { "gfx942", 64, 64 * 1024 }, { "gfx950", 64, 160 * 1024 },
    };
    (void)state;
    for (size_t i = 0; i < COUNTOF(want); i++) {
        const struct arch *a = arch_find(want[i].name);
        assert_non_null(a);
        assert_int_equal(a->lanes, want[i].lanes);
        assert_int_equal(a->shared, want[i].shared);
        assert_string_equal(a->cpu, a->name);
    }
}

static void hooks_are_there(void **state)
{
    (void)state;
    for (int t = 0; t < ntargets; t++) {
        const struct target *x = targets[t];
        assert_true(x->init && x->supports && x->begin && x->gload && x->gstore && x->atomic_add && x->barrier);
        assert_true(x->fragment && x->mma && x->convert && x->math && x->shuffle_xor && x->shuffle && x->finish);
        for (int j = 0; j < x->narches; j++)
            if (x->arches[j].copy != COPY_REG)
                assert_true(x->copy && x->commit && x->wait);
    }
}

static void bit_lists_parse(void **state)
{
    struct bit b[4];
    (void)state;
    assert_int_equal(bits_parse("l2  r10 - w0", b, 4), 4);
    assert_true(b[0].home == BIT_LANE && b[0].pos == 2 && b[1].home == BIT_REG && b[1].pos == 10);
    assert_true(b[2].home == 0 && b[3].home == BIT_WARP && b[3].pos == 0);
    assert_int_equal(bits_parse("", b, 4), 0);
    static const char *const bad[] = { "l", "x0", "l0l1", "r0,", "r0 l1 l2 l3 l4", "-1", "l100", "0" };
    for (size_t i = 0; i < COUNTOF(bad); i++)
        assert_int_equal(bits_parse(bad[i], b, 4), -1);
}

// ---- matrix instructions ----------------------------------------------------------------------------------------

// (lane, element) -> (row, col) is one to one and onto; every register bit from 0 up is used once.
static void check_bijection(const struct arch *a, const char *row, const char *col, int rows, int cols)
{
    struct bit b[2][BITS_MAX];
    int n[2] = { bits_parse(row, b[0], BITS_MAX), bits_parse(col, b[1], BITS_MAX) };
    int hits[SIDE_MAX * SIDE_MAX] = { 0 }, elems = rows * cols / a->lanes;
    unsigned regs = 0;
    assert_int_equal(n[0], log2_of(rows));
    assert_int_equal(n[1], log2_of(cols));
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < n[s]; i++) {
            assert_true(b[s][i].home == BIT_LANE || b[s][i].home == BIT_REG);
            assert_true(b[s][i].pos < log2_of(b[s][i].home == BIT_LANE ? a->lanes : elems));
            if (b[s][i].home == BIT_REG)
                regs |= 1u << b[s][i].pos;
        }
    assert_int_equal(regs + 1, elems);
    for (int lane = 0; lane < a->lanes; lane++)
        for (int e = 0; e < elems; e++)
            hits[index_at(row, lane, e) * cols + index_at(col, lane, e)]++;
    for (int i = 0; i < rows * cols; i++)
        assert_int_equal(hits[i], 1);
}

static void mma_bijections(const struct arch *a, const struct mma *i)
{
    assert_true(power_of_two(i->m) && power_of_two(i->n) && power_of_two(i->k));
    assert_true((i->in == EL_BF16 || i->in == EL_F16) && i->acc == EL_F32);
    check_bijection(a, i->a.row, i->a.col, i->m, i->k);
    check_bijection(a, i->b.row, i->b.col, i->n, i->k);
    check_bijection(a, i->d.row, i->d.col, i->m, i->n);
}

static void maps_are_bijections(void **state)
{
    (void)state;
    each_mma(mma_bijections);
}

static void same_place(const struct operand_map *o, int lane, int e, struct place p)
{
    assert_int_equal(index_at(o->row, lane, e), p.row);
    assert_int_equal(index_at(o->col, lane, e), p.col);
}

static void mma_as_isa(const struct arch *a, const struct mma *i)
{
    for (int lane = 0; lane < a->lanes; lane++) {
        for (int e = 0; e < i->m * i->k / a->lanes; e++)
            same_place(&i->a, lane, e, hw_a(a, i, lane, e));
        for (int e = 0; e < i->n * i->k / a->lanes; e++)
            same_place(&i->b, lane, e, hw_b(a, i, lane, e));
        for (int e = 0; e < i->m * i->n / a->lanes; e++)
            same_place(&i->d, lane, e, hw_d(a, i, lane, e));
    }
}

static void maps_are_the_isas(void **state)
{
    (void)state;
    each_mma(mma_as_isa);
}

// What layout.c and emit_mma.c rely on: the accumulator's element number is (row's register bits) above (col's), each in
// ascending order, and it packs evenly.
static void mma_numbering(const struct arch *a, const struct mma *i)
{
    struct bit b[2 * BITS_MAX];
    int n = bits_parse(i->d.col, b, BITS_MAX), next = 0, elems = i->m * i->n / a->lanes;
    n += bits_parse(i->d.row, b + n, BITS_MAX);
    for (int j = 0; j < n; j++)
        if (b[j].home == BIT_REG)
            assert_int_equal(b[j].pos, next++);
    assert_true(i->acc_pack > 0 && elems % i->acc_pack == 0);
    assert_true(i->cycles > 0 && *i->intrinsic);
}

static void accumulators_are_numbered(void **state)
{
    (void)state;
    each_mma(mma_numbering);
}

// ---- fetches ----------------------------------------------------------------------------------------------------

// A fetch's registers are instruction operands one after the other, k fastest. Each lane must hold, for operand (r, s)
// and element e, row r * unit + map.row; its column must be the same for all rows, and belong to this operand alone.
// kmap[s * k + instruction's k]: the column of the fetch.
static void check_fetch(const struct arch *a, const struct operand_map *o, int unit, int k, int *kmap)
{
    struct shared_tile s = { .rows = o->fetch_rows, .cols = o->fetch_k };
    struct fetched f;
    int per = unit * k / a->lanes, ks = o->fetch_k / k, rows = o->fetch_rows / unit;
    bool used[SIDE_MAX] = { false };
    assert_true(o->fetch_rows % unit == 0 && o->fetch_k % k == 0 && rows >= 1 && ks >= 1);
    assert_true(o->fetch_bytes == 8 || o->fetch_bytes == 16);
    for (int i = 0; i < s.rows * s.cols; i++)
        s.v[i] = i;
    for (int i = 0; i < s.cols; i++)
        kmap[i] = -1;
    do_fetch(a, o, &s, &f);
    assert_int_equal(f.n, per * ks * rows);
    for (int lane = 0; lane < a->lanes; lane++)
        for (int q = 0; q < f.n; q++) {
            int operand = q / per, e = q % per, r = operand / ks, j = operand % ks * k + index_at(o->col, lane, e);
            int row = f.v[lane][q] / s.cols, col = f.v[lane][q] % s.cols;
            assert_int_equal(row, r * unit + index_at(o->row, lane, e));
            assert_true(kmap[j] == -1 || kmap[j] == col);
            kmap[j] = col;
        }
    for (int i = 0; i < s.cols; i++) {
        assert_in_range(kmap[i], 0, s.cols - 1);
        assert_false(used[kmap[i]]);
        used[kmap[i]] = true;
    }
}

static void mma_fetches(const struct arch *a, const struct mma *i)
{
    int ka[SIDE_MAX], kb[SIDE_MAX];
    assert_int_equal(i->a.fetch_k, i->b.fetch_k); // emit_mma.c steps both together
    check_fetch(a, &i->a, i->m, i->k, ka);
    check_fetch(a, &i->b, i->n, i->k, kb);
    for (int j = 0; j < i->a.fetch_k; j++) {
        assert_int_equal(ka[j], kb[j]); // a dot does not see the order of its terms, if both sides have the same
        if (nvidia(a))
            assert_int_equal(ka[j], j); // ldmatrix needs no reordering
    }
}

static void fetches_deliver_the_operands(void **state)
{
    (void)state;
    each_mma(mma_fetches);
}

// The low bits of k inside a run are the run's own; all others, and the row's, come from lanes, each lane bit at most once.
static void check_address(const struct arch *a, const struct operand_map *o)
{
    struct bit b[2 * BITS_MAX];
    int nk = bits_parse(o->addr_k, b, BITS_MAX), n = nk + bits_parse(o->addr_row, b + nk, BITS_MAX);
    unsigned lanes = 0;
    assert_int_equal(nk, log2_of(o->fetch_k));
    assert_int_equal(n - nk, log2_of(o->fetch_rows));
    for (int i = 0; i < n; i++) {
        bool inside = i < nk && 2 << i < o->fetch_bytes;
        assert_int_equal(b[i].home, inside ? 0 : BIT_LANE);
        if (inside)
            continue;
        assert_true(b[i].pos < log2_of(a->lanes) && !(lanes >> b[i].pos & 1));
        lanes |= 1u << b[i].pos;
    }
    assert_int_equal(lanes, a->lanes - 1);
}

static void mma_addresses(const struct arch *a, const struct mma *i)
{
    check_address(a, &i->a);
    check_address(a, &i->b);
}

static void addresses_cover_the_fetch(void **state)
{
    (void)state;
    each_mma(mma_addresses);
}

// ---- everything together ----------------------------------------------------------------------------------------

static uint32_t seed;
static int small(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 28) - 8;
}

static void fill(struct shared_tile *s, int rows, int cols)
{
    s->rows = rows;
    s->cols = cols;
    for (int i = 0; i < rows * cols; i++)
        s->v[i] = small();
}

// The instruction, on registers, with the hardware's own idea of where everything lies.
static void hw_mma(const struct arch *a, const struct mma *i, const struct fetched *fa, int oa,
                   const struct fetched *fb, int ob, int acc[LANES_MAX][ELEMS_MAX])
{
    static int ma[SIDE_MAX][SIDE_MAX], mb[SIDE_MAX][SIDE_MAX];
    int pa = i->m * i->k / a->lanes, pb = i->n * i->k / a->lanes;
    for (int lane = 0; lane < a->lanes; lane++) {
        for (int e = 0; e < pa; e++) {
            struct place p = hw_a(a, i, lane, e);
            ma[p.row][p.col] = fa->v[lane][oa * pa + e];
        }
        for (int e = 0; e < pb; e++) {
            struct place p = hw_b(a, i, lane, e);
            mb[p.row][p.col] = fb->v[lane][ob * pb + e];
        }
    }
    for (int lane = 0; lane < a->lanes; lane++)
        for (int e = 0; e < i->m * i->n / a->lanes; e++) {
            struct place p = hw_d(a, i, lane, e);
            for (int k = 0; k < i->k; k++)
                acc[lane][e] += ma[p.row][k] * mb[p.col][k];
        }
}

// One fetch of each side, multiplied as emit_mma.c does, read back through the row's map of d.
static void mma_product(const struct arch *a, const struct mma *i)
{
    struct shared_tile sa, sb;
    struct fetched fa, fb;
    int ks = i->a.fetch_k / i->k;
    fill(&sa, i->a.fetch_rows, i->a.fetch_k);
    fill(&sb, i->b.fetch_rows, i->b.fetch_k);
    do_fetch(a, &i->a, &sa, &fa);
    do_fetch(a, &i->b, &sb, &fb);
    for (int mt = 0; mt < i->a.fetch_rows / i->m; mt++)
        for (int nt = 0; nt < i->b.fetch_rows / i->n; nt++) {
            int acc[LANES_MAX][ELEMS_MAX] = { 0 };
            for (int s = 0; s < ks; s++)
                hw_mma(a, i, &fa, mt * ks + s, &fb, nt * ks + s, acc);
            for (int lane = 0; lane < a->lanes; lane++)
                for (int e = 0; e < i->m * i->n / a->lanes; e++) {
                    int row = mt * i->m + index_at(i->d.row, lane, e), col = nt * i->n + index_at(i->d.col, lane, e),
                        want = 0;
                    for (int k = 0; k < sa.cols; k++)
                        want += sa.v[row * sa.cols + k] * sb.v[col * sb.cols + k];
                    assert_int_equal(acc[lane][e], want);
                }
        }
}

static void products_come_out_right(void **state)
{
    (void)state;
    for (seed = 1; seed < 4; seed++)
        each_mma(mma_product);
}

// ---- supports ---------------------------------------------------------------------------------------------------

struct refused {
    struct ctx c;
    struct kernel k;
    struct block body;
    struct op op;
};

static void plain_kernel(struct refused *r, const struct arch *a)
{
    memset(r, 0, sizeof *r);
    r->c.arena = arena_new(NULL, NULL);
    r->c.arch = a;
    r->k = (struct kernel){ .name = "k", .loc = { 1, 1, 1 }, .body = &r->body };
    r->k.sched = (struct sched){ .variant = "", .warps_m = 2, .warps_n = 2, .stages = 1, .mma = -1 };
}

static bool refuses(struct refused *r)
{
    struct loc at = { 0 };
    const char *why = r->c.arch->target->supports(&r->c, r->c.arch, &r->k, &at);
    bool no = why != NULL;
    assert_true(!why || (*why && at.line > 0));
    arena_free(r->c.arena);
    return no;
}

static void add_op(struct refused *r, enum opcode code)
{
    r->op = (struct op){ .code = code, .loc = { 7, 3, 1 } };
    VEC_PUSH(r->c.arena, &r->body.ops, &r->op);
}

static void targets_refuse_with_a_reason(void **state)
{
    (void)state;
    for (int t = 0; t < ntargets; t++)
        for (int j = 0; j < targets[t]->narches; j++) {
            const struct arch *a = &targets[t]->arches[j];
            struct refused r;
            plain_kernel(&r, a);
            assert_false(refuses(&r));
            plain_kernel(&r, a);
            r.k.shared_bytes = a->shared;
            assert_false(refuses(&r));
            plain_kernel(&r, a);
            r.k.shared_bytes = a->shared + 1;
            assert_true(refuses(&r));
            plain_kernel(&r, a);
            r.k.sched.warps_m = a->max_threads / a->lanes;
            assert_true(refuses(&r));
            plain_kernel(&r, a);
            r.k.sched.cluster = 2;
            assert_true(refuses(&r));
            plain_kernel(&r, a);
            add_op(&r, OP_ROLE);
            assert_int_equal(refuses(&r), a->copy != COPY_BULK);
        }
}

// A product whose operands are of another element type than the instruction's, or without an instruction.
static void products_must_match(void **state)
{
    (void)state;
    for (int j = 0; j < arch_find("sm_80")->target->narches; j++) {
        const struct arch *a = &arch_find("sm_80")->target->arches[j];
        struct buf x = { .elem = EL_BF16 }, y = { .elem = EL_F16 };
        for (int mma = -1; mma <= a->nmmas; mma++) {
            struct refused r;
            plain_kernel(&r, a);
            r.k.sched.mma = mma;
            add_op(&r, OP_MMA);
            r.op.buf = r.op.buf2 = &x;
            bool fits = mma >= 0 && mma < a->nmmas && a->mmas[mma].in == EL_BF16;
            assert_int_equal(refuses(&r), !fits);
            plain_kernel(&r, a);
            r.k.sched.mma = mma;
            add_op(&r, OP_MMA);
            r.op.buf = &x;
            r.op.buf2 = &y;
            assert_true(refuses(&r));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_consistent),
        cmocka_unit_test(limits_are_the_vendors),
        cmocka_unit_test(hooks_are_there),
        cmocka_unit_test(bit_lists_parse),
        cmocka_unit_test(maps_are_bijections),
        cmocka_unit_test(maps_are_the_isas),
        cmocka_unit_test(accumulators_are_numbered),
        cmocka_unit_test(fetches_deliver_the_operands),
        cmocka_unit_test(addresses_cover_the_fetch),
        cmocka_unit_test(products_come_out_right),
        cmocka_unit_test(targets_refuse_with_a_reason),
        cmocka_unit_test(products_must_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
