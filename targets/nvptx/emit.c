// NVIDIA: what each hook of target.h becomes. Everything NVIDIA-specific is inline PTX or an nvvm op; plain arithmetic
// and unpredicated accesses stay in the llvm dialect.
#include "nvptx.h"

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
    if (op->code != OP_ROLE && op->code != OP_ARRIVE && op->code != OP_AWAIT)
        return true;
    *found = op;
    return false;
}

const char *nv_supports(struct ctx *c, const struct arch *a, const struct kernel *k, struct loc *at)
{
    int threads = k->sched.warps_m * k->sched.warps_n * a->lanes;
    struct op *role = NULL;
    *at = k->sched.loc.line ? k->sched.loc : k->loc;
    if (threads > a->max_threads)
        return arena_printf(c->arena, "%d threads a block; %s allows %d", threads, a->name, a->max_threads);
    if (k->shared_bytes > a->shared)
        return arena_printf(c->arena, "%lld bytes of shared memory a block; %s allows %lld", (long long)k->shared_bytes, a->name,
                            (long long)a->shared);
    if (k->sched.persistent || k->sched.cluster > 1)
        return "persistent grids and clusters are not supported yet";
    if (k->sched.swap)
        return "swapped operands are not supported yet";
    walk(k->body, unsupported_op, &role);
    if (!role)
        return NULL;
    *at = role->loc;
    return "warp roles and shared barriers are not supported yet";
}

static const char *arg_attrs(struct emit *e, int n, const mty *params)
{
    struct text t = { .arena = e->c->arena };
    text_printf(&t, "[");
    for (int i = 0; i < n; i++) {
        bool pointer = params[i].p == T(e)->p1.p;
        const struct buf *b = i < e->k->params.n ? e->k->params.v[i].buf : NULL;
        bool reads = b && (b->kind == BUF_IN || b->kind == BUF_MAP);
        text_printf(&t, "%s{%s%s}", i ? ", " : "", pointer ? "llvm.noalias, llvm.align = 16 : i64" : "",
                    reads ? ", llvm.readonly" : "");
    }
    text_printf(&t, "]");
    return t.s;
}

static val sreg(struct emit *e, const char *name)
{
    return mb_op(e->mb, name, T(e)->i32, 0, NULL, NULL);
}

void nv_begin(struct emit *e, int n, const mty *params)
{
    const struct sched *s = &e->k->sched;
    char attrs[160];
    int threads = s->warps_m * s->warps_n * e->arch->lanes;
    snprintf(attrs, sizeof attrs, "nvvm.kernel, nvvm.maxntid = array<i32: %d, 1, 1>, nvvm.minctasm = %d : i32", threads,
             s->min_blocks > 0 ? s->min_blocks : 1);
    if (e->k->shared_bytes > 0 && mb_first_global(e->mb, "moe_shared"))
        mb_global(e->mb, "moe_shared", 0, 3, 1024, true);
    mb_func_begin(e->mb, e->symbol, n, params, arg_attrs(e, n, params), attrs, e->args);
    e->thread = sreg(e, "nvvm.read.ptx.sreg.tid.x");
    e->block = sreg(e, "nvvm.read.ptx.sreg.ctaid.x");
    e->lane = mb_bin(e->mb, "and", e->thread, mb_i32(e->mb, 31));
    e->warp = mb_bin(e->mb, "lshr", e->thread, mb_i32(e->mb, 5));
    e->smem = e->k->shared_bytes > 0 ? mb_addressof(e->mb, "moe_shared", 3) : NOVAL;
}

// ---- global memory -----------------------------------------------------------------------------------------------

static val pointer(struct emit *e, const struct gaddr *g)
{
    return mb_gep(e->mb, mb_gep(e->mb, g->base, g->uniform), g->lane);
}

static val flag(struct emit *e, val pred)
{
    return mb_un(e->mb, "zext", pred, T(e)->i32);
}

// n elements as a vector (or one value), and back
static val join(struct emit *e, mty elem, int n, const val *in)
{
    if (n == 1)
        return in[0];
    val v = mb_poison(e->mb, mb_vec(e->mb, n, elem));
    for (int i = 0; i < n; i++)
        v = mb_vinsert(e->mb, v, in[i], i);
    return v;
}

static void split(struct emit *e, int n, val v, val *out)
{
    if (n == 1)
        out[0] = v;
    for (int i = 0; n > 1 && i < n; i++)
        out[i] = mb_vextract(e->mb, v, i);
}

static mty whole_type(struct emit *e, mty elem, int n)
{
    return n == 1 ? elem : mb_vec(e->mb, n, elem);
}

// Words of a predicated access: 32-bit registers, or one of 16 bits.
static const struct pred_asm {
    int bytes;
    const char *load, *load_regs, *store, *store_regs;
} pred_asms[] = {
    { 16,
      "{\n.reg .pred p;\nsetp.ne.b32 p, $5, 0;\nmov.b32 $0, 0;\nmov.b32 $1, 0;\nmov.b32 $2, 0;\nmov.b32 $3, 0;\n"
      "@p ld.global.v4.b32 {$0, $1, $2, $3}, [$4];\n}",
      "=r,=r,=r,=r,l,r,~{memory}",
      "{\n.reg .pred p;\nsetp.ne.b32 p, $5, 0;\n@p st.global.v4.b32 [$4], {$0, $1, $2, $3};\n}", "r,r,r,r,l,r,~{memory}" },
    { 8,
      "{\n.reg .pred p;\nsetp.ne.b32 p, $3, 0;\nmov.b32 $0, 0;\nmov.b32 $1, 0;\n@p ld.global.v2.b32 {$0, $1}, [$2];\n}",
      "=r,=r,l,r,~{memory}",
      "{\n.reg .pred p;\nsetp.ne.b32 p, $3, 0;\n@p st.global.v2.b32 [$2], {$0, $1};\n}", "r,r,l,r,~{memory}" },
    { 4, "{\n.reg .pred p;\nsetp.ne.b32 p, $2, 0;\nmov.b32 $0, 0;\n@p ld.global.b32 $0, [$1];\n}", "=r,l,r,~{memory}",
      "{\n.reg .pred p;\nsetp.ne.b32 p, $2, 0;\n@p st.global.b32 [$1], $0;\n}", "r,l,r,~{memory}" },
    { 2, "{\n.reg .pred p;\nsetp.ne.b32 p, $2, 0;\nmov.b16 $0, 0;\n@p ld.global.b16 $0, [$1];\n}", "=h,l,r,~{memory}",
      "{\n.reg .pred p;\nsetp.ne.b32 p, $2, 0;\n@p st.global.b16 [$1], $0;\n}", "h,l,r,~{memory}" },
};

static const struct pred_asm *pred_asm(int bytes)
{
    for (size_t i = 0; i < COUNTOF(pred_asms); i++)
        if (pred_asms[i].bytes == bytes)
            return &pred_asms[i];
    return &pred_asms[0];
}

void nv_gload(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, val *out)
{
    struct mb *b = e->mb;
    mty whole = whole_type(e, elem, n);
    if (val_null(g->pred)) {
        split(e, n, mb_load(b, whole, pointer(e, g), n * bytes), out);
        return;
    }
    const struct pred_asm *a = pred_asm(n * bytes);
    int words = n * bytes / 4;
    mty word = words ? T(e)->i32 : T(e)->i16, ws[4] = { word, word, word, word };
    val args[2] = { pointer(e, g), flag(e, g->pred) }, w[4];
    val r = mb_asm(b, a->load, a->load_regs, words > 1 ? mb_struct(b, words, ws) : word, 2, args);
    w[0] = r;
    for (int i = 0; words > 1 && i < words; i++)
        w[i] = mb_extract(b, r, i);
    val v = join(e, word, words > 1 ? words : 1, w);
    split(e, n, mb_un(b, "bitcast", v, whole), out);
}

void nv_gstore(struct emit *e, const struct gaddr *g, mty elem, int bytes, int n, const val *in)
{
    struct mb *b = e->mb;
    val v = join(e, elem, n, in), args[6];
    if (val_null(g->pred)) {
        mb_store(b, v, pointer(e, g), n * bytes);
        return;
    }
    const struct pred_asm *a = pred_asm(n * bytes);
    int words = n * bytes / 4, k = words ? words : 1;
    mty word = words ? T(e)->i32 : T(e)->i16;
    split(e, k, mb_un(b, "bitcast", v, whole_type(e, word, k)), args);
    args[k] = pointer(e, g);
    args[k + 1] = flag(e, g->pred);
    mb_asm(b, a->store, a->store_regs, NOTYPE, k + 2, args);
}

val nv_atomic_add(struct emit *e, const struct gaddr *g, mty elem, val x)
{
    bool f = elem.p == T(e)->f32.p;
    val pred = val_null(g->pred) ? mb_i1(e->mb, true) : g->pred;
    val args[3] = { pointer(e, g), x, flag(e, pred) };
    if (f)
        return mb_asm(e->mb, "{\n.reg .pred p;\nsetp.ne.b32 p, $3, 0;\nmov.b32 $0, 0f00000000;\n@p atom.global.add.f32 $0, [$1], $2;\n}",
                      "=f,l,f,r,~{memory}", elem, 3, args);
    return mb_asm(e->mb, "{\n.reg .pred p;\nsetp.ne.b32 p, $3, 0;\nmov.b32 $0, 0;\n@p atom.global.add.u32 $0, [$1], $2;\n}",
                  "=&r,l,r,r,~{memory}", elem, 3, args);
}

// ---- asynchronous copies, barriers -------------------------------------------------------------------------------

static val shared_address(struct emit *e, val p)
{
    return mb_un(e->mb, "ptrtoint", p, T(e)->i32);
}

// PTX ISA, cp.async: with a source size below the copy size the rest is filled with zeros, and nothing is read for 0.
void nv_copy(struct emit *e, val shared, const struct gaddr *g, int bytes)
{
    char code[96];
    val args[3] = { shared_address(e, shared), pointer(e, g), NOVAL };
    const char *cache = bytes == 16 ? "cg" : "ca";
    if (val_null(g->pred)) {
        snprintf(code, sizeof code, "cp.async.%s.shared.global [$0], [$1], %d;", cache, bytes);
        mb_asm(e->mb, code, "r,l,~{memory}", NOTYPE, 2, args);
        return;
    }
    args[2] = mb_select(e->mb, g->pred, mb_i32(e->mb, bytes), mb_i32(e->mb, 0));
    snprintf(code, sizeof code, "cp.async.%s.shared.global [$0], [$1], %d, $2;", cache, bytes);
    mb_asm(e->mb, code, "r,l,r,~{memory}", NOTYPE, 3, args);
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

void nv_barrier(struct emit *e)
{
    mb_asm(e->mb, "bar.sync 0;", "~{memory}", NOTYPE, 0, NULL);
}

// ---- matrix units ------------------------------------------------------------------------------------------------

void nv_fragment(struct emit *e, const struct mma *i, const struct operand_map *o, val shared, val *out)
{
    struct mb *b = e->mb;
    mty w = T(e)->i32, four[4] = { w, w, w, w };
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

void nv_mma(struct emit *e, const struct mma *i, val a, val x, val *acc)
{
    struct mb *b = e->mb;
    char code[160];
    mty f = T(e)->f32, four[4] = { f, f, f, f };
    val args[10];
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

// ---- arithmetic --------------------------------------------------------------------------------------------------

val nv_convert(struct emit *e, enum elem from, enum elem to, val x)
{
    const struct mb_types *t = T(e);
    mty types[EL_COUNT] = { [EL_F32] = t->f32, [EL_BF16] = t->bf16, [EL_F16] = t->f16 };
    return mb_un(e->mb, to == EL_F32 ? "fpext" : "fptrunc", x, types[to]);
    (void)from;
}

val nv_math(struct emit *e, enum opcode op, val x, val y)
{
    struct mb *b = e->mb;
    mty f = T(e)->f32;
    val two[2] = { x, y };
    switch ((int)op) {
    case OP_EXP2: return mb_asm(b, "ex2.approx.ftz.f32 $0, $1;", "=f,f", f, 1, &x);
    case OP_LOG2: return mb_asm(b, "lg2.approx.f32 $0, $1;", "=f,f", f, 1, &x);
    case OP_SQRT: return mb_asm(b, "sqrt.rn.f32 $0, $1;", "=f,f", f, 1, &x);
    case OP_RSQRT: return mb_asm(b, "rsqrt.approx.f32 $0, $1;", "=f,f", f, 1, &x);
    case OP_RCP: return mb_asm(b, "rcp.approx.f32 $0, $1;", "=f,f", f, 1, &x);
    case OP_FLOOR: return mb_op(b, "llvm.intr.floor", f, 1, &x, NULL);
    case OP_MIN: return mb_op(b, "llvm.intr.minnum", f, 2, two, NULL);
    }
    return mb_op(b, "llvm.intr.maxnum", f, 2, two, NULL);
}

static val shfl(struct emit *e, const char *code, val x, val n)
{
    bool f = mb_type_of(x).p == T(e)->f32.p;
    val args[2] = { f ? mb_un(e->mb, "bitcast", x, T(e)->i32) : x, n };
    val r = mb_asm(e->mb, code, "=r,r,r", T(e)->i32, 2, args);
    return f ? mb_un(e->mb, "bitcast", r, T(e)->f32) : r;
}

val nv_shuffle_xor(struct emit *e, val x, int mask)
{
    return shfl(e, "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;", x, mb_i32(e->mb, mask));
}

val nv_shuffle(struct emit *e, val x, val lane)
{
    return shfl(e, "shfl.sync.idx.b32 $0, $1, $2, 31, -1;", x, lane);
}
