// The interpreter of AMD LLVM IR of the tests: what one thread does alone. Numbers are exact where the hardware's are; v_exp_f32,
// v_log_f32, v_rcp_f32 are correctly rounded here, within 1 ulp there.
#include "amd_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llvm-c/Core.h"

enum { STEPS_MAX = 1000000000 };

// ---- numbers -----------------------------------------------------------------------------------------------------

float sim_f32(uint64_t v)
{
    uint32_t u = (uint32_t)v;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint64_t sim_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

uint64_t sim_to_bf16(float f)
{
    uint64_t u = sim_bits(f);
    return isnan(f) ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16 & 0xffff;
}

float sim_from_bf16(uint64_t v)
{
    return sim_f32(v << 16);
}

__extension__ typedef _Float16 half; // the host's compiler knows it; to nearest even

uint64_t sim_to_f16(float f)
{
    half h = (half)f;
    uint16_t u;
    memcpy(&u, &h, 2);
    return u;
}

float sim_from_f16(uint64_t v)
{
    uint16_t u = (uint16_t)v;
    half h;
    memcpy(&h, &u, 2);
    return (float)h;
}

static float real(uint64_t v, enum word w)
{
    return w == W_BF16 ? sim_from_bf16(v) : w == W_F16 ? sim_from_f16(v) : sim_f32(v);
}

// To f32 first changes nothing for sums, products and quotients of halves: f32 has more than twice the fraction.
static uint64_t rounded(float f, enum word w)
{
    return w == W_BF16 ? sim_to_bf16(f) : w == W_F16 ? sim_to_f16(f) : sim_bits(f);
}

static uint64_t cut(uint64_t v, int bits)
{
    return bits >= 64 ? v : v & (((uint64_t)1 << bits) - 1);
}

static int64_t sign(uint64_t v, int bits)
{
    return bits >= 64 ? (int64_t)v : (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static uint64_t divide(enum ir_code code, uint64_t a, uint64_t c, int bits, bool *bad)
{
    int64_t p = sign(a, bits), q = sign(c, bits);
    *bad = !c || ((code == X_SDIV || code == X_SREM) && q == -1 && p == sign((uint64_t)1 << (bits - 1), bits));
    if (*bad)
        return 0;
    switch ((int)code) {
    case X_UDIV: return a / c;
    case X_UREM: return a % c;
    case X_SDIV: return (uint64_t)(p / q);
    }
    return (uint64_t)(p % q);
}

static uint64_t integer(enum ir_code code, uint64_t a, uint64_t c, uint64_t d, int bits, bool *bad)
{
    int64_t p = sign(a, bits), q = sign(c, bits);
    unsigned n = (unsigned)(code == X_FSHL || code == X_FSHR ? d % (unsigned)bits : c);
    if ((code == X_SHL || code == X_LSHR || code == X_ASHR) && c >= (uint64_t)bits) {
        *bad = true; // poison
        return 0;
    }
    switch ((int)code) {
    case X_ADD: return a + c;
    case X_SUB: return a - c;
    case X_MUL: return a * c;
    case X_UDIV:
    case X_SDIV:
    case X_UREM:
    case X_SREM: return divide(code, a, c, bits, bad);
    case X_SHL: return a << n;
    case X_LSHR: return a >> n;
    case X_ASHR: return (uint64_t)(p >> n);
    case X_AND: return a & c;
    case X_OR: return a | c;
    case X_XOR: return a ^ c;
    case X_SMIN: return p < q ? a : c;
    case X_SMAX: return p > q ? a : c;
    case X_UMIN: return a < c ? a : c;
    case X_UMAX: return a > c ? a : c;
    case X_ABS: return (uint64_t)(p < 0 ? -p : p);
    case X_FSHL: return n ? a << n | c >> ((unsigned)bits - n) : a;
    case X_FSHR: return n ? a << ((unsigned)bits - n) | c >> n : c;
    case X_USUBSAT: return a > c ? a - c : 0;
    }
    *bad = true;
    return 0;
}

static float floating(enum ir_code code, float a, float c, float d, bool *bad)
{
    switch ((int)code) {
    case X_FADD: return a + c;
    case X_FSUB: return a - c;
    case X_FMUL: return a * c;
    case X_FDIV: return a / c;
    case X_FNEG: return -a;
    case X_FABS: return fabsf(a);
    case X_FMIN: return isnan(a) ? c : isnan(c) ? a : a < c ? a : c;
    case X_FMAX: return isnan(a) ? c : isnan(c) ? a : a > c ? a : c;
    case X_FMA: return fmaf(a, c, d);
    case X_FLOOR: return floorf(a);
    case X_SQRT: return sqrtf(a);
    case X_LOG2: return (float)log2((double)a);
    case X_EXP2: return a < -126 ? 0 : (float)exp2((double)a); // v_exp_f32 flushes
    case X_RCP: return 1 / a;
    }
    *bad = true;
    return 0;
}

static bool compared_int(int how, uint64_t a, uint64_t c, int bits)
{
    int64_t p = sign(a, bits), q = sign(c, bits);
    switch (how) {
    case LLVMIntEQ: return a == c;
    case LLVMIntNE: return a != c;
    case LLVMIntUGT: return a > c;
    case LLVMIntUGE: return a >= c;
    case LLVMIntULT: return a < c;
    case LLVMIntULE: return a <= c;
    case LLVMIntSGT: return p > q;
    case LLVMIntSGE: return p >= q;
    case LLVMIntSLT: return p < q;
    }
    return p <= q;
}

// LLVM's numbers: bit 0 equal, bit 1 greater, bit 2 less, bit 3 unordered.
static bool compared_real(int how, float a, float c)
{
    return how >> (isnan(a) || isnan(c) ? 3 : a == c ? 0 : a > c ? 1 : 2) & 1;
}

static uint64_t converted(const struct insn *x, uint64_t v)
{
    float f = real(v, x->from.word);
    switch ((int)x->code) {
    case X_SEXT: return (uint64_t)sign(v, x->from.bits);
    case X_FPTOSISAT: // to i32
        return isnan(f) ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? (uint64_t)INT32_MIN : (uint64_t)(int64_t)f;
    case X_SITOFP: return rounded((float)sign(v, x->from.bits), x->to.word);
    case X_UITOFP: return rounded((float)v, x->to.word);
    case X_FPTRUNC:
    case X_FPEXT: return rounded(f, x->to.word);
    }
    return v; // TRUNC, ZEXT
}

// ---- memory ------------------------------------------------------------------------------------------------------

const uint64_t *sim_value(const struct block *b, int thread, const struct insn *x, int op)
{
    return x->op[op] < 0 ? b->p->constants + ~x->op[op] : b->t[thread].r + x->op[op];
}

static void to_bytes(const struct shape *s, const uint64_t *v, uint8_t *out)
{
    for (int i = 0; i < s->n; i++)
        memcpy(out + i * s->bits / 8, &v[i], (size_t)s->bits / 8);
}

static void from_bytes(const struct shape *s, const uint8_t *in, uint64_t *v)
{
    for (int i = 0; i < s->n; i++) {
        v[i] = 0;
        memcpy(&v[i], in + i * s->bits / 8, (size_t)s->bits / 8);
    }
}

static void load(struct block *b, int thread, const struct insn *x)
{
    uint64_t at = sim_value(b, thread, x, 0)[0];
    uint8_t bytes[64] = { 0 };
    if (x->lds)
        sim_read_lds(b, thread, at, x->bytes, bytes);
    else if (sim_global(b, thread, at, x->bytes))
        memcpy(bytes, (void *)(uintptr_t)at, (size_t)x->bytes);
    from_bytes(&x->to, bytes, b->t[thread].r + x->dst);
}

static void store(struct block *b, int thread, const struct insn *x)
{
    uint64_t at = sim_value(b, thread, x, 1)[0];
    uint8_t bytes[64];
    to_bytes(&x->from, sim_value(b, thread, x, 0), bytes);
    if (x->lds)
        sim_write_lds(b, thread, at, x->bytes, bytes);
    else if (sim_global(b, thread, at, x->bytes))
        memcpy((void *)(uintptr_t)at, bytes, (size_t)x->bytes);
}

static uint64_t add_to_memory(struct block *b, int thread, const struct insn *x, uint64_t at, uint64_t by)
{
    uint32_t old = 0, now;
    if (!sim_global(b, thread, at, 4))
        return 0;
    memcpy(&old, (void *)(uintptr_t)at, 4);
    now = x->real ? (uint32_t)sim_bits(sim_f32(old) + sim_f32(by)) : old + (uint32_t)by;
    memcpy((void *)(uintptr_t)at, &now, 4);
    return old;
}

// Raw buffers: each dword is out of range where its offset is at or past num_records; what is left must be one access.
static void buffer(struct block *b, int thread, const struct insn *x)
{
    int data = x->code != X_BUFLOAD; // operand 0
    const uint64_t *rsrc = sim_value(b, thread, x, data), *v = sim_value(b, thread, x, 0);
    uint32_t offset = (uint32_t)sim_value(b, thread, x, data + 1)[0];
    uint8_t bytes[16] = { 0 };
    bool inside = offset < (uint32_t)rsrc[1];
    if (sim_value(b, thread, x, data + 2)[0])
        sim_fault(b, thread, "buffer: scalar offsets are not understood", offset);
    if (inside && offset + (uint64_t)x->bytes > (uint32_t)rsrc[1])
        sim_fault(b, thread, "buffer: partly out of range", offset);
    if (x->code == X_BUFATOMIC) {
        b->t[thread].r[x->dst] = inside ? add_to_memory(b, thread, x, rsrc[0] + offset, v[0]) : 0;
        return;
    }
    inside = inside && sim_global(b, thread, rsrc[0] + offset, x->bytes);
    void *p = (void *)(uintptr_t)(rsrc[0] + offset);
    if (x->code == X_BUFSTORE) {
        to_bytes(&x->from, v, bytes);
        if (inside)
            memcpy(p, bytes, (size_t)x->bytes);
        return;
    }
    if (inside)
        memcpy(bytes, p, (size_t)x->bytes);
    from_bytes(&x->to, bytes, b->t[thread].r + x->dst);
}

// ---- one instruction ---------------------------------------------------------------------------------------------

static bool is_real(enum ir_code c)
{
    return c >= X_FADD && c <= X_RCP;
}

static void by_element(struct block *b, int thread, const struct insn *x)
{
    uint64_t *d = b->t[thread].r + x->dst;
    const uint64_t *a = sim_value(b, thread, x, 0), *c = x->nops > 1 ? sim_value(b, thread, x, 1) : a;
    const uint64_t *e = x->nops > 2 ? sim_value(b, thread, x, 2) : a;
    bool bad = false;
    for (int i = 0; i < x->to.n; i++) {
        enum word w = x->from.word;
        if (is_real(x->code))
            d[i] = rounded(floating(x->code, real(a[i], w), real(c[i], w), real(e[i], w), &bad), x->to.word);
        else if (x->code >= X_TRUNC && x->code <= X_FPEXT)
            d[i] = converted(x, a[i]);
        else if (x->code == X_ICMP)
            d[i] = compared_int(x->compare, a[i], c[i], x->from.bits);
        else if (x->code == X_FCMP)
            d[i] = compared_real(x->compare, real(a[i], w), real(c[i], w));
        else
            d[i] = integer(x->code, a[i], c[i], e[i], x->from.bits, &bad);
        d[i] = cut(d[i], x->to.bits);
    }
    if (bad && x->to.n == 1) // vectors made by LLVM may have parts that nobody uses
        sim_fault(b, thread, "poison: a division by 0 or a shift too far", c[0]);
}

static void reduce(struct block *b, int thread, const struct insn *x)
{
    const uint64_t *a = sim_value(b, thread, x, 0);
    uint64_t v = a[0];
    bool bad = false;
    for (int i = 1; i < x->from.n; i++)
        v = is_real(x->sub) ? sim_bits(floating(x->sub, sim_f32(v), sim_f32(a[i]), 0, &bad))
                            : cut(integer(x->sub, v, a[i], 0, x->from.bits, &bad), x->from.bits);
    b->t[thread].r[x->dst] = v;
}

static void recast(struct block *b, int thread, const struct insn *x)
{
    uint8_t bytes[128] = { 0 };
    to_bytes(&x->from, sim_value(b, thread, x, 0), bytes);
    from_bytes(&x->to, bytes, b->t[thread].r + x->dst);
}

static void arrange(struct block *b, int thread, const struct insn *x) // COPY, EXTRACT, INSERT, SHUFFLE, FIELD, SELECT
{
    uint64_t *d = b->t[thread].r + x->dst;
    const uint64_t *a = sim_value(b, thread, x, 0), *c = x->nops > 1 ? sim_value(b, thread, x, 1) : a;
    const uint64_t *e = x->nops > 2 ? sim_value(b, thread, x, 2) : a;
    for (int i = 0; i < x->to.n; i++)
        switch ((int)x->code) {
        case X_COPY: d[i] = a[i]; break;
        case X_EXTRACT: d[i] = a[c[0] % (uint64_t)x->from.n]; break;
        case X_INSERT: d[i] = (uint64_t)i == e[0] ? c[0] : a[i]; break;
        case X_SHUFFLE:
            d[i] = x->mask[i] < 0 ? 0x5a5a5a5a : x->mask[i] < x->from.n ? a[x->mask[i]] : c[x->mask[i] - x->from.n];
            break;
        case X_FIELD: d[i] = a[x->first + i]; break;
        default: d[i] = a[x->from.n > 1 ? i : 0] & 1 ? c[i] : e[i];
        }
}

static void address(struct block *b, int thread, const struct insn *x)
{
    uint64_t at = sim_value(b, thread, x, 0)[0] + (uint64_t)x->offset;
    for (int i = 1; i < x->nops; i++)
        at += sim_value(b, thread, x, i)[0] * (uint64_t)x->scale[i]; // indices were sign-extended when they were read
    b->t[thread].r[x->dst] = cut(at, x->to.bits);
}

static void step(struct block *b, int thread, const struct insn *x)
{
    uint64_t *d = b->t[thread].r + x->dst;
    switch ((int)x->code) {
    case X_NOP: return;
    case X_BITCAST: recast(b, thread, x); return;
    case X_COPY:
    case X_EXTRACT:
    case X_INSERT:
    case X_SHUFFLE:
    case X_FIELD:
    case X_SELECT: arrange(b, thread, x); return;
    case X_REDUCE: reduce(b, thread, x); return;
    case X_GEP: address(b, thread, x); return;
    case X_LOAD: load(b, thread, x); return;
    case X_STORE: store(b, thread, x); return;
    case X_ATOMIC:
        *d = add_to_memory(b, thread, x, sim_value(b, thread, x, 0)[0], sim_value(b, thread, x, 1)[0]);
        return;
    case X_RSRC:
        d[0] = sim_value(b, thread, x, 0)[0];
        d[1] = (uint32_t)sim_value(b, thread, x, 2)[0];
        if (sim_value(b, thread, x, 1)[0] || sim_value(b, thread, x, 3)[0] != 0x27000)
            sim_fault(b, thread, "buffer resource: stride or flags", sim_value(b, thread, x, 3)[0]);
        return;
    case X_BUFLOAD:
    case X_BUFSTORE:
    case X_BUFATOMIC: buffer(b, thread, x); return;
    case X_TID: *d = (uint64_t)thread; return;
    case X_BLOCK: *d = b->id; return;
    }
    by_element(b, thread, x);
}

static void follow(struct thread *t, const struct block *b, const struct edge *e)
{
    uint64_t old[1024];
    int n = 0;
    for (int i = 0; i < e->nmoves; n += e->moves[i++].n) {
        const uint64_t *from = e->moves[i].src < 0 ? b->p->constants + ~e->moves[i].src : t->r + e->moves[i].src;
        memcpy(old + n, from, sizeof *old * (size_t)e->moves[i].n);
    }
    n = 0;
    for (int i = 0; i < e->nmoves; n += e->moves[i++].n)
        memcpy(t->r + e->moves[i].dst, old + n, sizeof *old * (size_t)e->moves[i].n);
    t->pc = e->to;
}

static int chosen(const struct insn *x, uint64_t v)
{
    for (int i = 1; i < x->nedges; i++)
        if (x->cases[i] == v)
            return i;
    return 0;
}

void sim_run(struct block *b, int thread)
{
    struct thread *t = &b->t[thread];
    for (long steps = 0; steps < STEPS_MAX; steps++) {
        const struct insn *x = &b->p->v[t->pc];
        if (x->code >= X_READFIRST) {
            t->state = AT_WAVE;
            return;
        }
        switch ((int)x->code) {
        case X_RET: t->state = ENDED; return;
        case X_BARRIER: t->state = AT_BARRIER; return;
        case X_SWITCH: follow(t, b, &x->edge[chosen(x, sim_value(b, thread, x, 0)[0])]); continue;
        case X_BRANCH: follow(t, b, &x->edge[x->nops && !(sim_value(b, thread, x, 0)[0] & 1)]); continue;
        }
        step(b, thread, x);
        t->pc++;
    }
    t->state = ENDED;
    sim_fault(b, thread, "runs for ever", 0);
}
