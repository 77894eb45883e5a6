// AMD: what each hook of target.h becomes: buffer accesses with the hardware's bounds check, LDS, MFMA.
//
// Predicates cost nothing on buffer accesses: a lane that must not access gets an offset past num_records, for which
// raw buffer loads return 0 and stores are dropped (CDNA3 ISA, "Buffer Addressing", range checking of raw buffers:
// out of range if offset >= num_records). num_records is at most 2^31 - 1, so an offset of 2^31 is always outside.
#include "amdgpu.h"

#include <stdio.h>
#include <string.h>

enum { SIMDS = 4 }; // of a compute unit
struct amd_state {
    bool loads; // from global memory since the last matrix operand
};

static const struct mb_types *T(struct emit *e)
{
    return mb_types(e->mb);
}

// ---- the function ------------------------------------------------------------------------------------------------

static val sreg(struct emit *e, const char *name)
{
    return mb_op(e->mb, name, T(e)->i32, 0, NULL, NULL);
}

// The register budget follows from the waves that must fit on one SIMD: 512 / waves.
void amd_begin(struct emit *e, int n, const mty *params)
{
    const struct sched *s = &e->k->sched;
    char attrs[256];
    int waves = s->warps_m * s->warps_n, threads = waves * e->arch->lanes,
        blocks = s->min_blocks > 0 ? s->min_blocks : 1;
    snprintf(attrs, sizeof attrs,
             "rocdl.kernel, rocdl.reqd_work_group_size = array<i32: %d, 1, 1>, rocdl.flat_work_group_size = \"%d,%d\", "
             "rocdl.waves_per_eu = %d : i32",
             threads, threads, threads, (waves * blocks + SIMDS - 1) / SIMDS);
    e->state = NEW(e->c->arena, struct amd_state);
    char *lds = arena_printf(e->c->arena, "lds_%s", e->symbol);
    if (e->k->shared_bytes > 0)
        mb_global(e->mb, lds, e->k->shared_bytes, 3, 1024, false);
    mb_func_begin(e->mb, e->symbol, n, params, e->arg_attrs, attrs, e->args);
    e->thread = sreg(e, "rocdl.workitem.id.x");
    e->block = sreg(e, "rocdl.workgroup.id.x");
    e->lane = mb_bin(e->mb, "and", e->thread, mb_i32(e->mb, 63));
    e->warp = waves == 1 ? mb_i32(e->mb, 0) : amd_uniform(e, mb_bin(e->mb, "lshr", e->thread, mb_i32(e->mb, 6)));
    e->smem = e->k->shared_bytes > 0 ? mb_addressof(e->mb, lds, 3) : NOVAL;
}

val amd_uniform(struct emit *e, val x)
{
    return mb_op(e->mb, "rocdl.readfirstlane", mb_type_of(x), 1, &x, NULL);
}

// ---- global memory -----------------------------------------------------------------------------------------------

static mty words_type(struct emit *e, int bytes)
{
    return bytes == 2 ? T(e)->i16 : bytes == 4 ? T(e)->i32 : mb_vec(e->mb, bytes / 4, T(e)->i32);
}

static bool wide(struct emit *e, const struct gaddr *g)
{
    return mb_type_of(g->lane).p == T(e)->i64.p;
}

static val pointer(struct emit *e, const struct gaddr *g)
{
    return mb_gep(e->mb, mb_gep(e->mb, g->base, g->uniform), g->lane);
}

// The buffer from base + uniform to its end, at most 2^31 - 1 bytes of it (and that where uniform is past the end already:
// then no lane has a true predicate). Word 3: 32-bit data format, no swizzle, no stride. In halves of 32 bits, because the
// scalar unit orders no others: this stands in main loops.
static val resource(struct emit *e, const struct gaddr *g)
{
    struct mb *b = e->mb;
    val left = mb_bin(b, "sub", g->bytes, g->uniform), zero = mb_i32(b, 0), most = mb_i32(b, INT32_MAX);
    val low = mb_un(b, "trunc", left, T(e)->i32),
        high = mb_un(b, "trunc", mb_bin(b, "ashr", left, mb_i64(b, 32)), T(e)->i32);
    low = mb_select(b, mb_icmp(b, IC_ULT, low, most), low, most);
    low = mb_select(b, mb_icmp(b, IC_SGT, high, zero), most, low);
    val args[4] = { mb_gep(b, g->base, g->uniform), mb_int(b, T(e)->i16, 0), mb_un(b, "zext", low, T(e)->i64),
                    mb_i32(b, 0x27000) };
    return mb_op(b, "rocdl.make.buffer.rsrc", T(e)->p8, 4, args, NULL);
}

static val offset(struct emit *e, const struct gaddr *g)
{
    return val_null(g->pred) ? g->lane : mb_select(e->mb, g->pred, g->lane, mb_i32(e->mb, INT32_MIN));
}

// 16 zero bytes in global memory, for lanes that must not load and have no bounds check. arch.c gives them their value.
static val zeros(struct emit *e)
{
    if (mb_first_global(e->mb, AMD_ZEROS))
        mb_global(e->mb, AMD_ZEROS, 16, 1, 16, true);
    return mb_addressof(e->mb, AMD_ZEROS, 1);
}

static bool read_only(const struct buf *b)
{
    return b->kind == BUF_IN || b->kind == BUF_MAP;
}

static val load_words(struct emit *e, const struct gaddr *g, mty t, int bytes)
{
    struct mb *b = e->mb;
    int64_t at;
    if (wide(e, g)) { // no branch: the main loop stays one block, its loads in flight
        val p = pointer(e, g);
        return mb_load(b, t, val_null(g->pred) ? p : mb_select(b, g->pred, p, zeros(e)), bytes);
    }
    if (val_null(g->pred) && read_only(g->buf) &&
        mb_const_int(b, g->lane, &at)) // the same for all lanes: a scalar load
        return mb_load(b, t, pointer(e, g), bytes);
    val args[4] = { resource(e, g), offset(e, g), mb_i32(b, 0), mb_i32(b, 0) };
    return mb_op(b, "rocdl.raw.ptr.buffer.load", t, 4, args, NULL);
}

void amd_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out)
{
    struct amd_state *st = e->state;
    st->loads = true;
    val v = load_words(e, g, words_type(e, n * bytes), n * bytes);
    mb_split(e->mb, n, mb_un(e->mb, "bitcast", v, n == 1 ? elem : mb_vec(e->mb, n, elem)), out);
}

void amd_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in)
{
    struct mb *b = e->mb;
    struct mb_if s;
    val v = mb_un(b, "bitcast", mb_join(b, elem, n, in), words_type(e, n * bytes));
    if (!wide(e, g)) {
        val args[5] = { v, resource(e, g), offset(e, g), mb_i32(b, 0), mb_i32(b, 0) };
        mb_op0(b, "rocdl.raw.ptr.buffer.store", 5, args, NULL);
        return;
    }
    if (val_null(g->pred)) {
        mb_store(b, v, pointer(e, g), n * bytes);
        return;
    }
    mb_if_begin(b, &s, g->pred, 0, NULL);
    mb_store(b, v, pointer(e, g), n * bytes);
    mb_if_else(b, &s, NULL);
    mb_if_end(b, &s, NULL);
}

static val intrinsic(struct emit *e, const char *name, mty result, int n, const val *args)
{
    char attrs[160];
    snprintf(attrs, sizeof attrs,
             "intrin = \"%s\", operandSegmentSizes = array<i32: %d, 0>, op_bundle_sizes = array<i32>", name, n);
    return mb_op(e->mb, "llvm.call_intrinsic", result, n, args, attrs);
}

// Tensors are device memory, so a floating-point add in L2 works; without saying so LLVM makes a loop of compare-and-swap.
static val atomic_wide(struct emit *e, const struct gaddr *g, mty elem, val x, val none)
{
    struct mb *b = e->mb;
    struct mb_if s;
    bool f = elem.p == T(e)->f32.p;
    val args[2] = { pointer(e, g), x };
    const char *attrs =
        f ? "bin_op = 11 : i64, ordering = 2 : i64, syncscope = \"agent\", rocdl.no_fine_grained_memory, "
            "rocdl.no_remote_memory" // fadd, monotonic
          : "bin_op = 1 : i64, ordering = 2 : i64, syncscope = \"agent\"";
    if (val_null(g->pred))
        return mb_op(b, "llvm.atomicrmw", elem, 2, args, attrs);
    mb_if_begin(b, &s, g->pred, 1, &elem);
    val old = mb_op(b, "llvm.atomicrmw", elem, 2, args, attrs);
    mb_if_else(b, &s, &old);
    mb_if_end(b, &s, &none);
    return s.results[0];
}

// Cache bits 0: device scope (CDNA3 ISA, "Memory scopes": sc1 = 0), the value before only where it is used.
val amd_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x)
{
    struct mb *b = e->mb;
    bool f = elem.p == T(e)->f32.p;
    val zero = mb_i32(b, 0), none = f ? mb_f32(b, 0) : zero;
    if (wide(e, g))
        return atomic_wide(e, g, elem, x, none);
    val args[5] = { x, resource(e, g), offset(e, g), zero, zero };
    val old = intrinsic(e, f ? "llvm.amdgcn.raw.ptr.buffer.atomic.fadd" : "llvm.amdgcn.raw.ptr.buffer.atomic.add", elem,
                        5, args);
    return val_null(g->pred) ? old : mb_select(b, g->pred, old, none);
}

// ---- copies (refused by supports), barriers ----------------------------------------------------------------------

void amd_copy(struct emit *e, val shared, const struct gaddr *g, int bytes)
{
    (void)e, (void)shared, (void)g, (void)bytes;
}

void amd_commit(struct emit *e)
{
    (void)e;
}

void amd_wait(struct emit *e, int pending)
{
    (void)e, (void)pending;
}

// Orders shared memory only: the tag keeps LLVM from waiting for loads from global memory (vmcnt), which stay in flight.
void amd_barrier(struct emit *e)
{
    static const char local[] =
        "syncscope = \"workgroup\", llvm.mmra = #llvm.mmra_tag<\"amdgpu-synchronize-as\":\"local\">";
    char attrs[160];
    snprintf(attrs, sizeof attrs, "ordering = 5 : i64, %s", local); // release
    mb_op0(e->mb, "llvm.fence", 0, NULL, attrs);
    mb_op0(e->mb, "rocdl.s.barrier", 0, NULL, NULL);
    snprintf(attrs, sizeof attrs, "ordering = 4 : i64, %s", local); // acquire
    mb_op0(e->mb, "llvm.fence", 0, NULL, attrs);
}

// ---- matrix units ------------------------------------------------------------------------------------------------

void amd_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, const struct buf *from, val shared,
                  val *out)
{
    (void)from;
    struct mb *b = e->mb;
    struct amd_state *st = e->state;
    if (st->loads) // the next tile's loads are in flight from here on: the scheduler would sink them between the products
        mb_op0(b, "rocdl.sched.barrier", 0, NULL, "mask = 6 : i32"); // plain vector and scalar arithmetic may pass
    if (st->loads)
        mb_op0(b, "rocdl.iglp.opt", 0, NULL, "variant = 0 : i32");
    st->loads = false;
    mty elem = i->in == EL_BF16 ? T(e)->bf16 : T(e)->f16;
    bool halves = o->fetch_k / i->k == 2; // 8 elements fetched, 4 an instruction
    val v = mb_load(b, mb_vec(b, 4, T(e)->i32), shared, 16);
    if (!halves) {
        out[0] = mb_un(b, "bitcast", v, mb_vec(b, 8, elem));
        return;
    }
    val two = mb_un(b, "bitcast", v, mb_vec(b, 2, T(e)->i64));
    mty four = mb_vec(b, 4, i->in == EL_BF16 ? T(e)->i16 : elem); // the _1k bf16 forms take integers
    for (int j = 0; j < 2; j++)
        out[j] = mb_un(b, "bitcast", mb_vextract(b, two, j), four);
}

// The row's a is the hardware's B and the other way round (arch.c).
void amd_mma(struct emit *e, const struct mma *i, val a, val x, val *acc)
{
    val zero = mb_i32(e->mb, 0), args[6] = { x, a, acc[0], zero, zero, zero };
    acc[0] = mb_op(e->mb, i->intrinsic, mb_type_of(acc[0]), 6, args, NULL);
}

// ---- arithmetic --------------------------------------------------------------------------------------------------

val amd_convert(struct emit *e, enum elem from, enum elem to, val x)
{
    const struct mb_types *t = T(e);
    mty types[EL_COUNT] = { [EL_F32] = t->f32, [EL_BF16] = t->bf16, [EL_F16] = t->f16 };
    (void)from;
    return mb_un(e->mb, to == EL_F32 ? "fpext" : "fptrunc", x, types[to]);
}

// v_exp_f32, v_log_f32, v_rcp_f32, v_sqrt_f32: 1 ulp.
val amd_math(struct emit *e, enum opcode op, val x, val y)
{
    struct mb *b = e->mb;
    mty f = T(e)->f32;
    val two[2] = { x, y };
    switch ((int)op) {
    case OP_EXP2: return mb_op(b, "rocdl.exp2", f, 1, &x, NULL);
    case OP_LOG2: return mb_op(b, "llvm.intr.log2", f, 1, &x, NULL); // scales denormals, which v_log_f32 flushes
    case OP_SQRT: return mb_op(b, "llvm.intr.sqrt", f, 1, &x, NULL);
    case OP_RSQRT: x = mb_op(b, "llvm.intr.sqrt", f, 1, &x, NULL); return mb_op(b, "rocdl.rcp", f, 1, &x, NULL);
    case OP_RCP: return mb_op(b, "rocdl.rcp", f, 1, &x, NULL);
    case OP_FLOOR: return mb_op(b, "llvm.intr.floor", f, 1, &x, NULL);
    case OP_MIN: return mb_op(b, "llvm.intr.minnum", f, 2, two, NULL);
    }
    return mb_op(b, "llvm.intr.maxnum", f, 2, two, NULL);
}

// ---- lanes -------------------------------------------------------------------------------------------------------

static val as_i32(struct emit *e, val x)
{
    return mb_type_of(x).p == T(e)->i32.p ? x : mb_un(e->mb, "bitcast", x, T(e)->i32);
}

static val as_type(struct emit *e, val x, mty t)
{
    return mb_type_of(x).p == t.p ? x : mb_un(e->mb, "bitcast", x, t);
}

val amd_shuffle(struct emit *e, val x, val lane)
{
    struct mb *b = e->mb;
    int64_t at;
    if (mb_const_int(b, lane, &at)) {
        val args[2] = { x, mb_i32(b, at & 63) };
        return mb_op(b, "rocdl.readlane", mb_type_of(x), 2, args, NULL);
    }
    val args[2] = { mb_bin(b, "shl", lane, mb_i32(b, 2)), as_i32(e, x) };
    return as_type(e, mb_op(b, "rocdl.ds_bpermute", T(e)->i32, 2, args, NULL), mb_type_of(x));
}

// A move inside rows of 16 lanes; LLVM folds it into the instruction that uses it.
static val dpp(struct emit *e, val x, int control)
{
    char attrs[96];
    val args[2] = { mb_poison(e->mb, mb_type_of(x)), x };
    snprintf(attrs, sizeof attrs, "dppCtrl = %d : i32, rowMask = 15 : i32, bankMask = 15 : i32, boundCtrl = true",
             control);
    return mb_op(e->mb, "rocdl.update.dpp", mb_type_of(x), 2, args, attrs);
}

// lane ^ mask, mask in 1..3: quad_perm, two bits for each lane of four
static val quad(struct emit *e, val x, int mask)
{
    int control = 0;
    for (int i = 0; i < 4; i++)
        control |= (i ^ mask) << 2 * i;
    return mask ? dpp(e, x, control) : x;
}

// lane ^ mask, mask in 1..15, by DPP (CDNA3 ISA, "DPP_CTRL"): mirrors of rows and half rows are ^15 and ^7, a rotation by 8
// of a row is ^8.
static val within_row(struct emit *e, val x, int mask)
{
    enum { ROW_ROR_8 = 0x128, ROW_MIRROR = 0x140, ROW_HALF_MIRROR = 0x141 };
    if (mask < 4)
        return quad(e, x, mask);
    if (mask < 8)
        return quad(e, dpp(e, x, ROW_HALF_MIRROR), 7 ^ mask);
    return mask < 12 ? quad(e, dpp(e, x, ROW_ROR_8), mask & 3) : quad(e, dpp(e, x, ROW_MIRROR), 15 ^ mask);
}

// lane ^ 16, lane ^ 32 where there is v_permlane16_swap, v_permlane32_swap (CDNA4 ISA): the odd halves of the first operand
// change places with the even halves of the second. Both are x: the first then has the even halves twice, the second the odd.
static val by_swap(struct emit *e, val x, int mask)
{
    struct mb *b = e->mb;
    mty i = T(e)->i32, two[2] = { i, i };
    val w = as_i32(e, x), args[2] = { w, w };
    val r = mb_op(b, mask == 16 ? "rocdl.permlane16.swap" : "rocdl.permlane32.swap", mb_struct(b, 2, two), 2, args,
                  "fi = false, boundControl = false");
    val odd = mb_icmp(b, IC_NE, mb_bin(b, "and", e->lane, mb_i32(b, mask)), mb_i32(b, 0));
    return as_type(e, mb_select(b, odd, mb_extract(b, r, 0), mb_extract(b, r, 1)), mb_type_of(x));
}

val amd_shuffle_xor(struct emit *e, val x, int mask)
{
    enum { AND_ALL = 0x1f, XOR_AT = 10 }; // ds_swizzle in bit mode, in halves of 32 lanes
    struct mb *b = e->mb;
    bool swaps = e->arch->flags & AMD_PERMLANE_SWAP;
    for (int m = 16; swaps && m <= 32; m *= 2)
        if (mask & m)
            x = by_swap(e, x, m);
    if (swaps)
        mask &= 15;
    if (mask < 16)
        return mask ? within_row(e, x, mask) : x;
    if (mask >= 32)
        return amd_shuffle(e, x, mb_bin(b, "xor", e->lane, mb_i32(b, mask)));
    val args[2] = { as_i32(e, x), mb_i32(b, mask << XOR_AT | AND_ALL) };
    return as_type(e, mb_op(b, "rocdl.ds_swizzle", T(e)->i32, 2, args, NULL), mb_type_of(x));
}
