// AMD: what each hook of target.h becomes: buffer accesses with the hardware's bounds check, LDS, MFMA.
//
// Predicates cost nothing on buffer accesses: a lane that must not access gets an offset past num_records, for which
// raw buffer loads return 0 and stores are dropped (CDNA3 ISA, "Buffer Addressing", range checking of raw buffers:
// out of range if offset >= num_records). num_records is at most 2^31 - 1, so an offset of 2^31 is always outside.
#include "amdgpu.h"

#include <stdio.h>
#include <string.h>

static const struct mb_types *T(struct emit *e)
{
    return mb_types(e->mb);
}

// ---- the function ------------------------------------------------------------------------------------------------

static bool unsupported_op(void *user, struct op *op)
{
    struct op **found = user;
    if (op->code != OP_ROLE && op->code != OP_ARRIVE && op->code != OP_AWAIT && op->code != OP_COPY)
        return true;
    *found = op;
    return false;
}

const char *amd_supports(struct ctx *c, const struct arch *a, const struct kernel *k, struct loc *at)
{
    int threads = k->sched.warps_m * k->sched.warps_n * a->lanes;
    struct op *odd = NULL;
    *at = k->sched.loc.line ? k->sched.loc : k->loc;
    if (threads > a->max_threads)
        return arena_printf(c->arena, "%d threads a block; %s allows %d", threads, a->name, a->max_threads);
    if (k->shared_bytes > a->shared)
        return arena_printf(c->arena, "%lld bytes of LDS a block; %s allows %lld", (long long)k->shared_bytes, a->name,
                            (long long)a->shared);
    if (k->sched.persistent || k->sched.cluster > 1)
        return "persistent grids and clusters are not supported yet";
    if (k->sched.swap)
        return "swapped operands are not supported yet";
    walk(k->body, unsupported_op, &odd);
    if (!odd)
        return NULL;
    *at = odd->loc;
    return odd->code == OP_COPY ? "asynchronous copies to LDS are not supported yet: load, then put"
                                : "warp roles and shared barriers are not supported yet";
}

static val sreg(struct emit *e, const char *name)
{
    return mb_op(e->mb, name, T(e)->i32, 0, NULL, NULL);
}

void amd_begin(struct emit *e, int n, const mty *params)
{
    const struct sched *s = &e->k->sched;
    char attrs[256];
    int waves = s->warps_m * s->warps_n, threads = waves * e->arch->lanes;
    snprintf(attrs, sizeof attrs,
             "rocdl.kernel, rocdl.reqd_work_group_size = array<i32: %d, 1, 1>, rocdl.flat_work_group_size = \"%d,%d\", "
             "rocdl.waves_per_eu = %d : i32", threads, threads, threads, waves > 4 ? (waves + 3) / 4 : 1);
    char *lds = arena_printf(e->c->arena, "lds_%s", e->symbol);
    if (e->k->shared_bytes > 0)
        mb_global(e->mb, lds, e->k->shared_bytes, 3, 1024, false);
    mb_func_begin(e->mb, e->symbol, n, params, e->arg_attrs, attrs, e->args);
    e->thread = sreg(e, "rocdl.workitem.id.x");
    e->block = sreg(e, "rocdl.workgroup.id.x");
    e->lane = mb_bin(e->mb, "and", e->thread, mb_i32(e->mb, 63));
    e->warp = amd_uniform(e, mb_bin(e->mb, "lshr", e->thread, mb_i32(e->mb, 6)));
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

// The buffer from base + uniform to its end. Flags: 32-bit data format, no swizzle, no stride (gfx9 resource word 3).
static val resource(struct emit *e, const struct gaddr *g)
{
    struct mb *b = e->mb;
    val zero = mb_i64(b, 0), most = mb_i64(b, 0x7fffffff), left = mb_bin(b, "sub", g->bytes, g->uniform);
    left = mb_select(b, mb_icmp(b, IC_SLT, left, zero), zero, left);
    left = mb_select(b, mb_icmp(b, IC_SGT, left, most), most, left);
    val args[4] = { mb_gep(b, g->base, g->uniform), mb_int(b, T(e)->i16, 0), left, mb_i32(b, 0x27000) };
    return mb_op(b, "rocdl.make.buffer.rsrc", T(e)->p8, 4, args, NULL);
}

static val offset(struct emit *e, const struct gaddr *g)
{
    return val_null(g->pred) ? g->lane : mb_select(e->mb, g->pred, g->lane, mb_i32(e->mb, INT32_MIN));
}

static val load_words(struct emit *e, const struct gaddr *g, mty t, int bytes)
{
    struct mb *b = e->mb;
    struct mb_if s;
    if (!wide(e, g)) {
        val args[4] = { resource(e, g), offset(e, g), mb_i32(b, 0), mb_i32(b, 0) };
        return mb_op(b, "rocdl.raw.ptr.buffer.load", t, 4, args, NULL);
    }
    if (val_null(g->pred))
        return mb_load(b, t, pointer(e, g), bytes);
    mb_if_begin(b, &s, g->pred, 1, &t); // offsets past 32 bits have no bounds check in hardware
    val v = mb_load(b, t, pointer(e, g), bytes);
    mb_if_else(b, &s, &v);
    v = mb_zero(b, t);
    mb_if_end(b, &s, &v);
    return s.results[0];
}

void amd_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out)
{
    val v = load_words(e, g, words_type(e, n * bytes), n * bytes);
    mb_split(e->mb, n, mb_un(e->mb, "bitcast", v, n == 1 ? elem : mb_vec(e->mb, n, elem)), out);
}

void amd_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in)
{
    struct mb *b = e->mb;
    struct mb_if s;
    val v = mb_un(b, "bitcast", mb_join(e->mb, elem, n, in), words_type(e, n * bytes));
    if (!wide(e, g)) {
        val args[5] = { v, resource(e, g), offset(e, g), mb_i32(b, 0), mb_i32(b, 0) };
        mb_op0(b, "rocdl.raw.ptr.buffer.store", 5, args, NULL);
        return;
    }
    val always = mb_i1(b, true);
    mb_if_begin(b, &s, val_null(g->pred) ? always : g->pred, 0, NULL);
    mb_store(b, v, pointer(e, g), n * bytes);
    mb_if_else(b, &s, NULL);
    mb_if_end(b, &s, NULL);
}

val amd_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x)
{
    struct mb *b = e->mb;
    struct mb_if s;
    bool f = elem.p == T(e)->f32.p;
    val pred = val_null(g->pred) ? mb_i1(b, true) : g->pred;
    mb_if_begin(b, &s, pred, 1, &elem);
    val args[2] = { pointer(e, g), x };
    val old = mb_op(b, "llvm.atomicrmw", elem, 2, args,
                    f ? "bin_op = 11 : i64, ordering = 2 : i64, syncscope = \"agent\"" // fadd, monotonic
                      : "bin_op = 1 : i64, ordering = 2 : i64, syncscope = \"agent\"");
    mb_if_else(b, &s, &old);
    old = f ? mb_f32(b, 0) : mb_i32(b, 0);
    mb_if_end(b, &s, &old);
    return s.results[0];
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

// LDS traffic of this wave is done, then the barrier. Loads from memory stay in flight: no vmcnt wait.
void amd_barrier(struct emit *e)
{
    mb_asm(e->mb, "s_waitcnt lgkmcnt(0)\ns_barrier", "~{memory}", NOTYPE, 0, NULL);
}

// ---- matrix units ------------------------------------------------------------------------------------------------

void amd_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, val shared, val *out)
{
    struct mb *b = e->mb;
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

void amd_mma(struct emit *e, const struct mma *i, val a, val x, val *acc)
{
    val zero = mb_i32(e->mb, 0), args[6] = { a, x, acc[0], zero, zero, zero };
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
    case OP_RSQRT:
        x = mb_op(b, "llvm.intr.sqrt", f, 1, &x, NULL);
        return mb_op(b, "rocdl.rcp", f, 1, &x, NULL);
    case OP_RCP: return mb_op(b, "rocdl.rcp", f, 1, &x, NULL);
    case OP_FLOOR: return mb_op(b, "llvm.intr.floor", f, 1, &x, NULL);
    case OP_MIN: return mb_op(b, "llvm.intr.minnum", f, 2, two, NULL);
    }
    return mb_op(b, "llvm.intr.maxnum", f, 2, two, NULL);
}

val amd_shuffle(struct emit *e, val x, val lane)
{
    struct mb *b = e->mb;
    bool f = mb_type_of(x).p == T(e)->f32.p;
    val args[2] = { mb_bin(b, "shl", lane, mb_i32(b, 2)), f ? mb_un(b, "bitcast", x, T(e)->i32) : x };
    val r = mb_op(b, "rocdl.ds_bpermute", T(e)->i32, 2, args, NULL);
    return f ? mb_un(b, "bitcast", r, T(e)->f32) : r;
}

val amd_shuffle_xor(struct emit *e, val x, int mask)
{
    return amd_shuffle(e, x, mb_bin(e->mb, "xor", e->lane, mb_i32(e->mb, mask)));
}
