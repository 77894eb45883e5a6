// NVIDIA: what each hook of target.h becomes. Everything NVIDIA-specific is inline PTX or an nvvm op; plain arithmetic
// and unpredicated accesses stay in the llvm dialect.
#include "nvptx.h"

#include <stdio.h>
#include <string.h>

static const struct mb_types *T(struct emit *e)
{
    return mb_types(e->mb);
}

// Does the kernel have products whose operands the asynchronous proxy reads from shared memory?
static bool warpgroups(const struct emit *e)
{
    return e->k->sched.mma >= 0 && e->arch->mmas[e->k->sched.mma].kind == MMA_WARPGROUP;
}

// n numbers from `first` on, each with `before` in front.
static void list(struct text *t, const char *before, int first, int n)
{
    for (int i = 0; i < n; i++)
        text_printf(t, "%s%s%d", i ? "," : "", before, first + i);
}

// ---- the function ------------------------------------------------------------------------------------------------

static val sreg(struct emit *e, const char *name)
{
    return mb_op(e->mb, name, T(e)->i32, 0, NULL, NULL);
}

// PTX ISA, "griddepcontrol", sm_90 and later.
void nv_depend(struct emit *e)
{
    mb_asm(e->mb, "griddepcontrol.wait;", "~{memory}", NOTYPE, 0, NULL);
}

void nv_begin(struct emit *e, int n, const mty *params)
{
    const struct sched *s = &e->k->sched;
    char attrs[160];
    int threads = (s->warps_m * s->warps_n + s->producers) * e->arch->lanes;
    snprintf(attrs, sizeof attrs, "nvvm.kernel, nvvm.maxntid = array<i32: %d, 1, 1>, nvvm.minctasm = %d : i32", threads,
             s->min_blocks > 0 ? s->min_blocks : 1);
    if (e->k->shared_bytes > 0 && mb_first_global(e->mb, "moe_shared"))
        mb_global(e->mb, "moe_shared", 0, 3, 1024, true);
    mb_func_begin(e->mb, e->symbol, n, params, e->arg_attrs, attrs, e->args);
    if (e->arch->dependent) // blocks of the next launch take the places that this one's leave, as soon as all are there
        mb_asm(e->mb, "griddepcontrol.launch_dependents;", "~{memory}", NOTYPE, 0, NULL);
    e->thread = sreg(e, "nvvm.read.ptx.sreg.tid.x");
    e->block = sreg(e, "nvvm.read.ptx.sreg.ctaid.x");
    e->lane = mb_bin(e->mb, "and", e->thread, mb_i32(e->mb, 31));
    e->warp = mb_bin(e->mb, "lshr", e->thread, mb_i32(e->mb, 5));
    if (warpgroups(e)) // descriptors come from uniform registers: ptxas must know that a warp has one number
        e->warp = nv_shuffle(e, e->warp, mb_i32(e->mb, 0));
    e->smem = e->k->shared_bytes > 0 ? mb_addressof(e->mb, "moe_shared", 3) : NOVAL;
}

// ---- global memory -----------------------------------------------------------------------------------------------

static val pointer(struct emit *e, const struct gaddr *g)
{
    return mb_gep(e->mb, mb_gep(e->mb, g->base, g->uniform), g->lane);
}

static mty whole_type(struct emit *e, mty elem, int n)
{
    return n == 1 ? elem : mb_vec(e->mb, n, elem);
}

// A predicated access as registers of 32 bits (one of 16 for a single narrow element), `per` elements in each.
struct regs {
    int n, per;
    mty type;
    const char *list, *width; // "{$0, $1}", ".v2.b32"
    const char *zero;         // sets them to 0
    const char *outs, *ins;   // constraints
};

static struct regs regs_of(struct emit *e, int bytes, int n)
{
    static const struct regs forms[] = {
        { 1, 1, { NULL }, "$0", ".b32", "mov.b32 $0, 0;", "=&r", "r" },
        { 2, 1, { NULL }, "{$0, $1}", ".v2.b32", "mov.b32 $0, 0; mov.b32 $1, 0;", "=&r,=&r", "r,r" },
        { 4,
          1,
          { NULL },
          "{$0, $1, $2, $3}",
          ".v4.b32",
          "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;",
          "=&r,=&r,=&r,=&r",
          "r,r,r,r" },
        { 1, 1, { NULL }, "$0", ".b16", "mov.b16 $0, 0;", "=&h", "h" },
    };
    struct regs r = forms[n * bytes == 16 ? 2 : n * bytes == 8 ? 1 : n * bytes == 4 ? 0 : 3];
    r.per = n / r.n;
    r.type = n * bytes == 2 ? T(e)->i16 : T(e)->i32;
    return r;
}

// The read-only path is for what no thread of this launch writes.
static bool read_only(const struct buf *b)
{
    return b->kind == BUF_IN || b->kind == BUF_MAP;
}

static void load_where(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out)
{
    struct mb *b = e->mb;
    struct regs r = regs_of(e, bytes, n);
    mty types[4] = { r.type, r.type, r.type, r.type };
    val args[2] = { pointer(e, g), g->pred };
    char code[224], constraints[64];
    snprintf(code, sizeof code, "%s\n@$%d ld.global%s%s %s, [$%d];", r.zero, r.n + 1, read_only(g->buf) ? ".nc" : "",
             r.width, r.list, r.n);
    snprintf(constraints, sizeof constraints, "%s,l,b,~{memory}", r.outs);
    val v = mb_asm(b, code, constraints, r.n > 1 ? mb_struct(b, r.n, types) : r.type, 2, args);
    for (int i = 0; i < r.n; i++) {
        val w = r.n > 1 ? mb_extract(b, v, i) : v;
        mty t = whole_type(e, elem, r.per);
        mb_split(e->mb, r.per, t.p == r.type.p ? w : mb_un(b, "bitcast", w, t), out + i * r.per);
    }
}

static void store_where(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in)
{
    struct mb *b = e->mb;
    struct regs r = regs_of(e, bytes, n);
    val args[6];
    char code[96], constraints[32];
    for (int i = 0; i < r.n; i++) {
        val w = mb_join(e->mb, elem, r.per, in + i * r.per);
        args[i] = mb_type_of(w).p == r.type.p ? w : mb_un(b, "bitcast", w, r.type);
    }
    args[r.n] = pointer(e, g);
    args[r.n + 1] = g->pred;
    snprintf(code, sizeof code, "@$%d st.global%s [$%d], %s;", r.n + 1, r.width, r.n, r.list);
    snprintf(constraints, sizeof constraints, "%s,l,b,~{memory}", r.ins);
    mb_asm(b, code, constraints, NOTYPE, r.n + 2, args);
}

// Addresses are multiples of n * bytes, a power of two up to 16.
void nv_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out)
{
    if (!val_null(g->pred))
        load_where(e, g, elem, bytes, n, out);
    else
        mb_split(e->mb, n, mb_load(e->mb, whole_type(e, elem, n), pointer(e, g), n * bytes), out);
}

void nv_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in)
{
    if (!val_null(g->pred))
        store_where(e, g, elem, bytes, n, in);
    else
        mb_store(e->mb, mb_join(e->mb, elem, n, in), pointer(e, g), n * bytes);
}

// PTX ISA, atom: .gpu scope, relaxed. f32 adds on global memory round to nearest even and flush subnormals.
val nv_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x)
{
    bool f = elem.p == T(e)->f32.p;
    val args[3] = { pointer(e, g), x, val_null(g->pred) ? mb_i1(e->mb, true) : g->pred };
    char code[96];
    snprintf(code, sizeof code, "mov.b32 $0, 0;\n@$3 atom.relaxed.gpu.global.add.%s $0, [$1], $2;", f ? "f32" : "u32");
    return mb_asm(e->mb, code, f ? "=&f,l,f,b,~{memory}" : "=&r,l,r,b,~{memory}", elem, 3, args);
}

// ---- asynchronous copies, barriers -------------------------------------------------------------------------------

static val shared_address(struct emit *e, val p)
{
    return mb_un(e->mb, "ptrtoint", p, T(e)->i32);
}

// PTX ISA, cp.async: where ignore-src is true nothing is read and zeros are written. (A predicate, not a source size:
// LLVM turns sizes into chains of selects.) 16 bytes go past L1 and ask L2 for the whole 128-byte line: the lanes beside
// this one want the rest.
void nv_copy(struct emit *e, val shared, const struct gaddr *g, int bytes)
{
    const char *cache = bytes == 16 ? "cg" : "ca", *line = bytes == 16 ? ".L2::128B" : "";
    val args[3] = { shared_address(e, shared), pointer(e, g), g->pred };
    char code[160];
    if (val_null(g->pred)) {
        snprintf(code, sizeof code, "cp.async.%s.shared.global%s [$0], [$1], %d;", cache, line, bytes);
        mb_asm(e->mb, code, "r,l,~{memory}", NOTYPE, 2, args);
        return;
    }
    snprintf(code, sizeof code,
             "{\n.reg .pred skip;\nnot.pred skip, $2;\ncp.async.%s.shared.global%s [$0], [$1], %d, skip;\n}", cache,
             line, bytes);
    mb_asm(e->mb, code, "r,l,b,~{memory}", NOTYPE, 3, args);
}

void nv_commit(struct emit *e)
{
    mb_asm(e->mb, "cp.async.commit_group;", "~{memory}", NOTYPE, 0, NULL);
}

void nv_wait(struct emit *e, int pending)
{
    char code[48];
    snprintf(code, sizeof code, "cp.async.wait_group %d;", pending);
    mb_asm(e->mb, code, "~{memory}", NOTYPE, 0, NULL);
}

// What threads wrote to shared memory (stores, cp.async) reaches the asynchronous proxy by a fence of theirs before the barrier.
void nv_barrier(struct emit *e)
{
    if (warpgroups(e))
        mb_asm(e->mb, "fence.proxy.async.shared::cta;", "~{memory}", NOTYPE, 0, NULL);
    mb_op0(e->mb, "nvvm.barrier0", 0, NULL, NULL);
}

// ---- barriers in shared memory, the copy engine (PTX ISA, "mbarrier", "cp.async.bulk.tensor", "setmaxnreg") --------

void nv_barrier_init(struct emit *e, val barrier, int arrivals)
{
    val args[2] = { shared_address(e, barrier), mb_i32(e->mb, arrivals) };
    mb_asm(e->mb, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", NOTYPE, 2, args);
}

void nv_barrier_ready(struct emit *e)
{
    mb_asm(e->mb, "fence.mbarrier_init.release.cluster;", "~{memory}", NOTYPE, 0, NULL);
    mb_op0(e->mb, "nvvm.barrier0", 0, NULL, NULL);
}

void nv_barrier_arrive(struct emit *e, val barrier, val pred, bool landed)
{
    val args[2] = { shared_address(e, barrier), val_null(pred) ? mb_i1(e->mb, true) : pred };
    mb_asm(e->mb,
           landed ? "@$1 cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];"
                  : "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];",
           "r,b,~{memory}", NOTYPE, 2, args);
}

// What threads copied (cp.async: the generic proxy) is ordered before the reads of the matrix units (the asynchronous proxy) by a
// fence behind the wait.
void nv_barrier_await(struct emit *e, val barrier, val parity, bool copies)
{
    val args[2] = { shared_address(e, barrier), parity };
    mb_asm(
        e->mb,
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@done bra gone;\nbra "
        "again;\ngone:\n}",
        "r,r,~{memory}", NOTYPE, 2, args);
    if (copies)
        mb_asm(e->mb, "fence.proxy.async.shared::cta;", "~{memory}", NOTYPE, 0, NULL);
}

void nv_copy_box(struct emit *e, val shared, val barrier, val map, int n, const val *coords, int64_t bytes, val pred)
{
    val args[4 + RANK_MAX] = { shared_address(e, shared), shared_address(e, barrier), map, pred };
    struct text t = { .arena = e->c->arena };
    const char *constraints[] = { "", "r", "r,r", "r,r,r", "r,r,r,r" };
    char all[48];
    for (int i = 0; i < n; i++)
        args[4 + i] = coords[i];
    text_printf(&t, "@$3 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$1], %lld;\n", (long long)bytes);
    text_printf(&t, "@$3 cp.async.bulk.tensor.%dd.shared::cta.global.tile.mbarrier::complete_tx::bytes [$0], [$2, {",
                n);
    list(&t, "$", 4, n);
    text_printf(&t, "}], [$1];");
    snprintf(all, sizeof all, "r,r,l,b,%s,~{memory}", constraints[n]);
    mb_asm(e->mb, t.s, all, NOTYPE, 4 + n, args);
}

// All threads start with an equal share of the multiprocessor's registers, in steps of 8.
void nv_role_begin(struct emit *e, int regs)
{
    const struct sched *s = &e->k->sched;
    int threads = (s->warps_m * s->warps_n + s->producers) * e->arch->lanes,
        blocks = s->min_blocks > 1 ? s->min_blocks : 1;
    char code[64];
    snprintf(code, sizeof code, "setmaxnreg.%s.sync.aligned.u32 %d;",
             regs > e->arch->regs / blocks / threads ? "inc" : "dec", regs);
    mb_asm(e->mb, code, "~{memory}", NOTYPE, 0, NULL);
}

val nv_grid_size(struct emit *e)
{
    return sreg(e, "nvvm.read.ptx.sreg.nctaid.x");
}

// ---- matrix units ------------------------------------------------------------------------------------------------

// PTX ISA, "Matrix Descriptor Format" of wgmma, for rows of k of 128, 64 or 32 bytes in the swizzle of that width: bits 0-13 the
// address / 16, 32-45 the distance of groups of 8 rows / 16, 62-63 the swizzle. Offsets along k are added to the address as if
// there were no swizzle: the pattern hangs on the address's own bits.
static val descriptor(struct emit *e, const struct buf *s, val shared)
{
    int64_t row = (int64_t)s->cols * elem_bytes[s->elem], mode = row == 128 ? 1 : row == 64 ? 2 : 3;
    val at = mb_bin(e->mb, "lshr", mb_bin(e->mb, "and", shared_address(e, shared), mb_i32(e->mb, 0x3ffff)),
                    mb_i32(e->mb, 4));
    int64_t fixed = 1 << 16 | (8 * row / 16) << 32 | (int64_t)((uint64_t)mode << 62);
    return mb_bin(e->mb, "or", mb_un(e->mb, "zext", at, T(e)->i64), mb_i64(e->mb, fixed));
}

void nv_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, const struct buf *from, val shared,
                 val *out)
{
    struct mb *b = e->mb;
    mty w = T(e)->i32, four[4] = { w, w, w, w };
    if (i->kind == MMA_WARPGROUP) {
        out[0] = descriptor(e, from, shared);
        return;
    }
    val p = shared_address(e, shared);
    val r = mb_asm(b, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r,~{memory}",
                   mb_struct(b, 4, four), 1, &p);
    if (o == &i->a) {
        out[0] = r;
        return;
    }
    for (int j = 0; j < 2; j++) {
        val pair = mb_poison(b, mb_struct(b, 2, four));
        pair = mb_insert(b, pair, mb_extract(b, r, 2 * j), 0);
        out[j] = mb_insert(b, pair, mb_extract(b, r, 2 * j + 1), 1);
    }
}

// n f32 values through an assembly instruction that changes all of them, and takes `more` other operands behind them.
static void through(struct emit *e, const char *code, int n, val *v, int more, const val *others,
                    const char *constraints)
{
    struct mb *b = e->mb;
    struct text c = { .arena = e->c->arena };
    mty *types = NEWN(e->c->arena, mty, n);
    val *args = NEWN(e->c->arena, val, n + more);
    for (int i = 0; i < n; i++) {
        types[i] = T(e)->f32;
        args[more + i] = v[i];
        text_printf(&c, "=f,");
    }
    for (int i = 0; i < more; i++)
        args[i] = others[i];
    text_printf(&c, "%s", constraints);
    list(&c, "", 0, n);
    text_printf(&c, ",~{memory}");
    val r = mb_asm(b, code, c.s, n > 1 ? mb_struct(b, n, types) : T(e)->f32, n + more, args);
    for (int i = 0; i < n; i++)
        v[i] = n > 1 ? mb_extract(b, r, i) : r;
}

// acc += a . b^T for 64 x n accumulators over the warpgroup, n / 2 a thread. The asm ties results to operands, so that they stay
// in their registers while the product is under way.
static void warpgroup_mma(struct emit *e, const struct mma *i, val a, val x, val *acc)
{
    struct text t = { .arena = e->c->arena };
    int n = i->n / 2;
    val d[2] = { a, x };
    text_printf(&t, "{\n.reg .pred p;\nsetp.eq.b32 p, 1, 1;\n%s {", i->intrinsic);
    list(&t, "$", 0, n);
    text_printf(&t, "}, $%d, $%d, p, 1, 1, 0, 0;\n}", n, n + 1);
    through(e, t.s, n, acc, 2, d, "l,l,");
}

void nv_mma(struct emit *e, const struct mma *i, val a, val x, val *acc)
{
    struct mb *b = e->mb;
    char code[160];
    mty f = T(e)->f32, four[4] = { f, f, f, f };
    val args[10];
    if (i->kind == MMA_WARPGROUP) {
        warpgroup_mma(e, i, a, x, acc);
        return;
    }
    for (int k = 0; k < 4; k++) {
        args[k] = mb_extract(b, a, k);
        args[6 + k] = acc[k];
    }
    args[4] = mb_extract(b, x, 0);
    args[5] = mb_extract(b, x, 1);
    snprintf(code, sizeof code, "%s {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$0, $1, $2, $3};", i->intrinsic);
    val r = mb_asm(b, code, "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3", mb_struct(b, 4, four), 10, args);
    for (int k = 0; k < 4; k++)
        acc[k] = mb_extract(b, r, k);
}

void nv_mma_open(struct emit *e)
{
    mb_asm(e->mb, "wgmma.fence.sync.aligned;", "~{memory}", NOTYPE, 0, NULL);
}

void nv_mma_commit(struct emit *e)
{
    mb_asm(e->mb, "wgmma.commit_group.sync.aligned;", "~{memory}", NOTYPE, 0, NULL);
}

// What is read afterwards goes through the waiting instruction: nothing can then read it earlier.
void nv_mma_wait(struct emit *e, int pending, int n, val *v)
{
    char code[64];
    snprintf(code, sizeof code, "wgmma.wait_group.sync.aligned %d;", pending);
    if (n)
        through(e, code, n, v, 0, NULL, "");
    else
        mb_asm(e->mb, code, "~{memory}", NOTYPE, 0, NULL);
}

// ---- arithmetic --------------------------------------------------------------------------------------------------

val nv_convert(struct emit *e, enum elem from, enum elem to, val x)
{
    const struct mb_types *t = T(e);
    (void)from; // the value knows
    if (to == EL_F32)
        return mb_un(e->mb, "fpext", x, t->f32);
    return mb_un(e->mb, "fptrunc", x, to == EL_BF16 ? t->bf16 : t->f16); // cvt.rn: to nearest even
}

static val intrinsic(struct emit *e, const char *name, mty result, int n, const val *args)
{
    char attrs[160];
    snprintf(attrs, sizeof attrs,
             "intrin = \"%s\", operandSegmentSizes = array<i32: %d, 0>, op_bundle_sizes = array<i32>", name, n);
    return mb_op(e->mb, "llvm.call_intrinsic", result, n, args, attrs);
}

// Errors are those of ops.def (PTX ISA, "Floating Point Instructions"; CUDA C Programming Guide, "Mathematical Functions"):
//   ex2.approx.ftz  2 ulp; subnormal results become 0, subnormal arguments give 1
//   lg2.approx      2 ulp, absolute 2^-22 in [0.5, 2]; subnormal arguments are scaled, not flushed
//   sqrt.rn         correctly rounded;  rsqrt.approx 2 ulp, subnormal arguments scaled
//   rcp.approx.ftz  1 ulp; subnormal arguments count as 0, subnormal results become 0
// min.f32 and max.f32 give the other operand for a NaN.
val nv_math(struct emit *e, enum opcode op, val x, val y)
{
    mty f = T(e)->f32;
    val two[2] = { x, y };
    switch ((int)op) {
    case OP_EXP2: return intrinsic(e, "llvm.nvvm.ex2.approx.ftz.f32", f, 1, &x);
    case OP_LOG2: return intrinsic(e, "llvm.nvvm.lg2.approx.f", f, 1, &x);
    case OP_SQRT: return intrinsic(e, "llvm.nvvm.sqrt.rn.f", f, 1, &x);
    case OP_RSQRT: return intrinsic(e, "llvm.nvvm.rsqrt.approx.f", f, 1, &x);
    case OP_RCP: return intrinsic(e, "llvm.nvvm.rcp.approx.ftz.f", f, 1, &x);
    case OP_FLOOR: return mb_op(e->mb, "llvm.intr.floor", f, 1, &x, NULL);
    case OP_MIN: return mb_op(e->mb, "llvm.intr.minnum", f, 2, two, NULL);
    }
    return mb_op(e->mb, "llvm.intr.maxnum", f, 2, two, NULL);
}

// All lanes take part: reductions and scans stand in control flow that is uniform over the block.
static val shfl(struct emit *e, const char *mode, val x, val n)
{
    char name[48];
    val args[4] = { mb_i32(e->mb, -1), x, n, mb_i32(e->mb, 31) };
    snprintf(name, sizeof name, "llvm.nvvm.shfl.sync.%s.%s", mode, mb_type_of(x).p == T(e)->f32.p ? "f32" : "i32");
    return intrinsic(e, name, mb_type_of(x), 4, args);
}

val nv_shuffle_xor(struct emit *e, val x, int mask)
{
    return shfl(e, "bfly", x, mb_i32(e->mb, mask));
}

val nv_shuffle(struct emit *e, val x, val lane)
{
    return shfl(e, "idx", x, lane);
}
