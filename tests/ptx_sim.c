// A libcuda without a GPU that carries out PTX, for numeric tests of what the compiler emits: with
// MOE_CUDA_LIBRARY=build/tests/libptxsim.so every `moerun check|verify --device=cuda:0 --ptx` runs here, as sm_80.
//
// Each thread of a block is interpreted on its own up to where it must meet others (shuffles, ldmatrix, mma: its warp;
// bar.sync: its block); warps go in random order ($PTX_SIM_SEED). Asynchronous copies land at the wait, as late as they
// may. A shadow of shared memory finds races between barriers, reads of what was never written or is in flight, copies
// over what others still read; global accesses must lie inside one allocation and be aligned. A fault is printed and
// makes the next synchronisation fail. Only the PTX that this compiler makes is understood: an unknown instruction is
// refused when the module is loaded.
#include "ptx_sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 10 }; // faults of a block that are printed

// ---- memory ------------------------------------------------------------------------------------------------------

struct allocation {
    uintptr_t start;
    size_t bytes;
};
static struct allocation *memory;
static int nmemory;

struct shadow { // of a byte of shared memory. When: the number of barriers before
    uint32_t written, read;
    uint16_t writer, reader; // a thread, or MANY
    bool known;              // written at all
    uint8_t flying;          // copies on their way to it
};
enum { MANY = 65535 };
struct copy { // asynchronous
    uint32_t to;
    uint64_t from;
    int bytes, group;
    bool zero;
};
enum state { RUNNING, AT_WARP, AT_BARRIER, ENDED };
struct thread {
    int pc, group; // group: of the next copies
    enum state state;
    uint64_t *r;
    struct copy *copies;
    int ncopies, cap;
};
struct block {
    struct program *p;
    struct thread *t;
    int n, shared_bytes, faults;
    uint8_t *shared, *params;
    struct shadow *shadow;
    uint32_t now;
    unsigned id;
};
static int faults;
static unsigned random_state = 1;

static unsigned chance(unsigned n)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 17, random_state ^= random_state << 5;
    return random_state % n;
}

static void fault(struct block *b, int thread, const char *what, uint64_t where)
{
    faults++;
    if (b->faults++ < SHOWN)
        fprintf(stderr, "ptx_sim: %s, block %u, thread %d: %s (%llx): %s\n", b->p->name, b->id, thread, what,
                (unsigned long long)where, b->p->v[b->t[thread].pc].text);
}

static bool shared_fits(struct block *b, int thread, uint32_t at, int n)
{
    if (at % (unsigned)n)
        fault(b, thread, "shared memory: not aligned", at);
    else if (at + (uint64_t)n > (uint64_t)b->shared_bytes)
        fault(b, thread, "shared memory: outside", at);
    else
        return true;
    return false;
}

static bool global_fits(struct block *b, int thread, uint64_t at, int n)
{
    if (at % (unsigned)n) {
        fault(b, thread, "global memory: not aligned", at);
        return false;
    }
    for (int i = 0; i < nmemory; i++)
        if (at >= memory[i].start && at + (unsigned)n <= memory[i].start + memory[i].bytes)
            return true;
    fault(b, thread, "global memory: outside", at);
    return false;
}

static void read_shared(struct block *b, int thread, uint32_t at, int n, void *out)
{
    const char *wrong = NULL;
    memset(out, 0, (size_t)n);
    if (!shared_fits(b, thread, at, n))
        return;
    for (int i = 0; i < n; i++) {
        struct shadow *s = &b->shadow[at + (unsigned)i];
        wrong = s->flying                                     ? "read while a copy is on its way"
                : !s->known                                   ? "read of what was never written"
                : s->written == b->now && s->writer != thread ? "read of what another thread wrote, no barrier between"
                                                              : wrong;
        s->reader = s->read == b->now && s->reader != thread ? MANY : (uint16_t)thread;
        s->read = b->now;
    }
    if (wrong)
        fault(b, thread, wrong, at);
    memcpy(out, b->shared + at, (size_t)n);
}

static void write_shared(struct block *b, int thread, uint32_t at, int n, const void *in)
{
    const char *wrong = NULL;
    if (!shared_fits(b, thread, at, n))
        return;
    for (int i = 0; i < n; i++) {
        struct shadow *s = &b->shadow[at + (unsigned)i];
        bool same = s->known && b->shared[at + (unsigned)i] == ((const uint8_t *)in)[i]; // replicas may agree
        if (s->written == b->now && s->writer != thread && !same)
            wrong = "two threads write, no barrier between";
        if (s->read == b->now && s->reader != thread)
            wrong = "write over what another thread read, no barrier between";
        s->written = b->now;
        s->writer = (uint16_t)thread;
        s->known = true;
    }
    if (wrong)
        fault(b, thread, wrong, at);
    memcpy(b->shared + at, in, (size_t)n);
}

static void start_copy(struct block *b, int thread, const struct instruction *x)
{
    struct thread *t = &b->t[thread];
    struct copy c = { .to = (uint32_t)(t->r[x->o[0].reg] + (uint64_t)x->o[0].imm),
                      .from = t->r[x->o[1].reg] + (uint64_t)x->o[1].imm,
                      .bytes = (int)x->o[2].imm,
                      .group = t->group,
                      .zero = x->n > 3 && t->r[x->o[3].reg] & 1 };
    if (!shared_fits(b, thread, c.to, c.bytes) || (!c.zero && !global_fits(b, thread, c.from, c.bytes)))
        return;
    for (int i = 0; i < c.bytes; i++) {
        struct shadow *s = &b->shadow[c.to + (unsigned)i];
        if (s->flying++)
            fault(b, thread, "two copies to one place", c.to);
        if (s->read == b->now && s->reader != thread)
            fault(b, thread, "copy over what another thread read, no barrier between", c.to);
    }
    if (t->ncopies == t->cap)
        t->copies = realloc(t->copies, sizeof c * (size_t)(t->cap = t->cap ? 2 * t->cap : 64));
    t->copies[t->ncopies++] = c;
}

// All but the last `pending` groups land now.
static void finish_copies(struct block *b, int thread, int pending)
{
    struct thread *t = &b->t[thread];
    int kept = 0;
    for (int i = 0; i < t->ncopies; i++) {
        struct copy c = t->copies[i];
        uint8_t bytes[16] = { 0 };
        if (c.group >= t->group - pending) {
            t->copies[kept++] = c;
            continue;
        }
        if (!c.zero)
            memcpy(bytes, (void *)(uintptr_t)c.from, (size_t)c.bytes);
        for (int k = 0; k < c.bytes; k++)
            b->shadow[c.to + (unsigned)k].flying--;
        write_shared(b, thread, c.to, c.bytes, bytes);
    }
    t->ncopies = kept;
}

static uint64_t place(const struct thread *t, const struct operand *o)
{
    return (o->reg < 0 ? 0 : t->r[o->reg]) + (uint64_t)o->imm;
}

static void load(struct block *b, int thread, const struct instruction *x)
{
    struct thread *t = &b->t[thread];
    const struct operand *d = &x->o[0];
    int n = d->kind == O_VEC ? d->n : 1, size = ptx_types[x->type].bytes;
    uint64_t at = place(t, &x->o[1]);
    uint8_t bytes[16] = { 0 };
    if (x->shared)
        read_shared(b, thread, (uint32_t)at, n * size, bytes);
    else if (x->param)
        memcpy(bytes, b->params + at, (size_t)(n * size));
    else if (global_fits(b, thread, at, n * size))
        memcpy(bytes, (void *)(uintptr_t)at, (size_t)(n * size));
    for (int i = 0; i < n; i++) {
        uint64_t v = 0;
        memcpy(&v, bytes + i * size, (size_t)size);
        t->r[d->kind == O_VEC ? d->vec[i] : d->reg] = v;
    }
}

static void store(struct block *b, int thread, const struct instruction *x)
{
    struct thread *t = &b->t[thread];
    const struct operand *s = &x->o[1];
    int n = s->kind == O_VEC ? s->n : 1, size = ptx_types[x->type].bytes;
    uint64_t at = place(t, &x->o[0]);
    uint8_t bytes[16];
    for (int i = 0; i < n; i++) {
        uint64_t v = s->kind == O_IMM ? (uint64_t)s->imm : t->r[s->kind == O_VEC ? s->vec[i] : s->reg];
        memcpy(bytes + i * size, &v, (size_t)size);
    }
    if (x->shared)
        write_shared(b, thread, (uint32_t)at, n * size, bytes);
    else if (global_fits(b, thread, at, n * size))
        memcpy((void *)(uintptr_t)at, bytes, (size_t)(n * size));
}

// ---- values ------------------------------------------------------------------------------------------------------

static float f32(uint64_t v)
{
    uint32_t u = (uint32_t)v;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint64_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float flushed(float f, bool ftz)
{
    return ftz && fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

static uint64_t to_bf16(float f)
{
    uint64_t u = bits(f);
    return isnan(f) ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16 & 0xffff;
}

static float from_bf16(uint64_t v)
{
    return f32(v << 16);
}

// To nearest even, by the exponent: 10 fraction bits, none below 2^-24.
static uint64_t to_f16(float f)
{
    uint64_t sign = bits(f) >> 16 & 0x8000;
    double a = fabs((double)f);
    int e;
    if (isnan(f))
        return 0x7fff;
    if (a == 0)
        return sign;
    frexp(a, &e);
    int unit = e - 11 < -24 ? -24 : e - 11;
    double r = nearbyint(ldexp(a, -unit));
    if (ldexp(r, unit) >= 65520)
        return sign | 0x7c00;
    if (r == 2048)
        r = 1024, unit++;
    return sign | (unit == -24 && r < 1024 ? (uint64_t)r : (uint64_t)(unit + 25) << 10 | ((uint64_t)r & 1023));
}

static float from_f16(uint64_t v)
{
    int e = (int)(v >> 10 & 31), m = (int)(v & 1023);
    double a = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(v & 0x8000 ? -a : a);
}

static bool is_signed(enum type t)
{
    return t == T_S16 || t == T_S32 || t == T_S64;
}

static uint64_t cut(uint64_t v, enum type t) // to the type's width
{
    int n = ptx_types[t].bytes;
    return t == T_PRED ? v & 1 : n == 8 ? v : v & (((uint64_t)1 << 8 * n) - 1);
}

static int64_t as_signed(uint64_t v, enum type t)
{
    switch (ptx_types[t].bytes) {
    case 2: return (int16_t)v;
    case 4: return (int32_t)v;
    }
    return (int64_t)v;
}

static uint64_t integer(const struct instruction *x, uint64_t a, uint64_t c, bool *bad)
{
    enum type t = x->type;
    int64_t p = as_signed(a, t), q = as_signed(c, t);
    uint64_t u = cut(a, t), v = cut(c, t);
    unsigned width = (unsigned)ptx_types[t].bytes * 8, n = (uint32_t)c;
    switch ((int)x->code) {
    case I_ADD: return a + c;
    case I_SUB: return a - c;
    case I_MUL: return a * c;
    case I_MULW: return is_signed(t) ? (uint64_t)(p * q) : u * v;
    case I_MULHI: return is_signed(t) ? (uint64_t)(p * q >> width) : u * v >> width;
    case I_DIV:
    case I_REM:
        if (!v || (is_signed(t) && q == -1)) { // by -1: the hardware traps for INT_MIN on some hosts
            *bad = !v;
            return x->code == I_DIV ? -a : 0;
        }
        if (is_signed(t))
            return (uint64_t)(x->code == I_DIV ? p / q : p % q);
        return x->code == I_DIV ? u / v : u % v;
    case I_AND: return a & c;
    case I_OR: return a | c;
    case I_XOR: return a ^ c;
    case I_SHL: return n >= width ? 0 : a << n;
    case I_SHR: return is_signed(t) ? (uint64_t)(p >> (n >= width ? width - 1 : n)) : n >= width ? 0 : u >> n;
    case I_MIN: return is_signed(t) ? (uint64_t)(p < q ? p : q) : u < v ? u : v;
    case I_MAX: return is_signed(t) ? (uint64_t)(p > q ? p : q) : u > v ? u : v;
    }
    *bad = true;
    return 0;
}

static float real(enum code code, float a, float c, bool *bad)
{
    switch ((int)code) {
    case I_ADD: return a + c;
    case I_SUB: return a - c;
    case I_MUL: return a * c;
    case I_DIV: return a / c;
    case I_MIN: return fminf(a, c);
    case I_MAX: return fmaxf(a, c);
    case I_EX2: return (float)exp2((double)a);
    case I_LG2: return (float)log2((double)a);
    case I_RCP: return 1 / a;
    case I_SQRT: return sqrtf(a);
    case I_RSQRT: return (float)(1 / sqrt((double)a));
    }
    *bad = true;
    return 0;
}

static bool compared(const struct instruction *x, uint64_t a, uint64_t c)
{
    int less, equal, unordered = 0, how = x->compare % 6;
    if (x->type == T_F32) {
        float p = f32(a), q = f32(c);
        unordered = isnan(p) || isnan(q);
        less = p < q, equal = p == q;
        if (x->compare >= 12)
            return (x->compare == 13) == unordered;
    } else if (is_signed(x->type)) {
        less = as_signed(a, x->type) < as_signed(c, x->type), equal = cut(a, x->type) == cut(c, x->type);
    } else {
        less = cut(a, x->type) < cut(c, x->type), equal = cut(a, x->type) == cut(c, x->type);
    }
    if (unordered)
        return x->compare >= 6;
    const bool r[] = { equal, !equal, less, less || equal, !less && !equal, !less };
    return r[how];
}

static uint64_t converted(const struct instruction *x, uint64_t a, uint64_t second, bool *bad)
{
    enum type to = x->type, from = x->from;
    float f = f32(a);
    if (to == T_BF16X2 || to == T_F16X2) // the first operand is the upper half
        return to == T_BF16X2 ? to_bf16(f) << 16 | to_bf16(f32(second)) : to_f16(f) << 16 | to_f16(f32(second));
    if (from == T_F32)
        switch ((int)to) {
        case T_F32: return bits(x->floor ? floorf(f) : f);
        case T_BF16: return to_bf16(f);
        case T_F16: return to_f16(f);
        case T_S32:
            return isnan(f) ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? (uint64_t)INT32_MIN : (uint64_t)(int64_t)f;
        default: *bad = true; return 0;
        }
    if (to == T_F32)
        return bits(from == T_BF16    ? from_bf16(a)
                    : from == T_F16   ? from_f16(a)
                    : is_signed(from) ? (float)as_signed(a, from)
                                      : (float)cut(a, from));
    return is_signed(from) ? (uint64_t)as_signed(a, from) : cut(a, from);
}

static uint64_t field(uint64_t a, unsigned at, unsigned n, bool sign) // bfe of 32 bits
{
    uint64_t mask = n >= 32 ? UINT32_MAX : ((uint64_t)1 << n) - 1, v = at >= 32 ? 0 : cut(a, T_U32) >> at & mask;
    return sign && n && n < 32 && v >> (n - 1) & 1 ? v | ~mask : v;
}

static void move(struct thread *t, const struct instruction *x, uint64_t a)
{
    const struct operand *d = &x->o[0], *s = &x->o[1];
    int n = d->kind == O_VEC ? d->n : s->kind == O_VEC ? s->n : 1, width = ptx_types[x->type].bytes * 8 / n;
    uint64_t v = 0;
    for (int i = 0; s->kind == O_VEC && i < n; i++)
        v |= (t->r[s->vec[i]] & (((uint64_t)1 << width) - 1)) << i * width;
    for (int i = 0; d->kind == O_VEC && i < n; i++)
        t->r[d->vec[i]] = a >> i * width & (((uint64_t)1 << width) - 1);
    if (d->kind != O_VEC)
        t->r[d->reg] = cut(s->kind == O_VEC ? v : a, x->type);
}

// ---- threads -----------------------------------------------------------------------------------------------------

static uint64_t value(const struct thread *t, const struct instruction *x, int i)
{
    const struct operand *o = &x->o[i];
    return i >= x->n || o->kind == O_VEC ? 0 : o->kind == O_IMM ? (uint64_t)o->imm : t->r[o->reg < 0 ? 0 : o->reg];
}

static void atomic_add(struct block *b, int thread, const struct instruction *x, uint64_t by)
{
    uint64_t at = place(&b->t[thread], &x->o[1]);
    uint32_t old;
    if (!global_fits(b, thread, at, 4))
        return;
    memcpy(&old, (void *)(uintptr_t)at, 4);
    uint32_t now = x->type == T_F32 ? (uint32_t)bits(f32(old) + f32(by)) : old + (uint32_t)by;
    memcpy((void *)(uintptr_t)at, &now, 4);
    b->t[thread].r[x->o[0].reg] = old;
}

// What one thread does alone.
static void step(struct block *b, int thread, const struct instruction *x)
{
    struct thread *t = &b->t[thread];
    uint64_t a = value(t, x, 1), c = value(t, x, 2), d = value(t, x, 3), r;
    bool bad = false, real_type = x->type == T_F32;
    switch ((int)x->code) {
    case I_MOV: move(t, x, a); return;
    case I_LD: load(b, thread, x); return;
    case I_ST: store(b, thread, x); return;
    case I_ATOM: atomic_add(b, thread, x, c); return;
    case I_COPY: start_copy(b, thread, x); return;
    case I_COMMIT: t->group++; return;
    case I_WAIT: finish_copies(b, thread, (int)x->o[0].imm); return;
    case I_SETP: r = compared(x, a, c); break;
    case I_SELP: r = d & 1 ? a : c; break;
    case I_CVT: r = converted(x, a, c, &bad); break;
    case I_MAD: r = a * c + d; break;
    case I_FMA: r = bits(fmaf(f32(a), f32(c), f32(d))); break;
    case I_BFE: r = field(a, (uint8_t)c, (uint8_t)d, x->type == T_S32); break;
    case I_NOT: r = ~a; break;
    case I_NEG: r = real_type ? a ^ 0x80000000 : -a; break;
    case I_ABS: r = real_type ? a & 0x7fffffff : (uint64_t)llabs(as_signed(a, x->type)); break;
    case I_MULW:
        r = integer(x, a, c, &bad);
        t->r[x->o[0].reg] = r;
        return; // twice as wide as its type
    default:
        if (x->type == T_F16) // rounding to f32 first changes nothing: it has more than twice the fraction
            r = to_f16(real(x->code, from_f16(a), from_f16(c), &bad));
        else if (real_type)
            r = bits(flushed(real(x->code, flushed(f32(a), x->ftz), f32(c), &bad), x->ftz));
        else
            r = integer(x, a, c, &bad);
    }
    if (bad)
        fault(b, thread, "not carried out, or a division by 0", c);
    t->r[x->o[0].reg] = x->code == I_SETP ? r : cut(r, x->type);
}

// Up to where the thread must meet others.
static void run_thread(struct block *b, int thread)
{
    struct thread *t = &b->t[thread];
    for (long steps = 0;; steps++) {
        const struct instruction *x = &b->p->v[t->pc];
        if (t->pc >= b->p->n || steps > 1000000000) {
            t->state = ENDED;
            return;
        }
        if (x->guard >= 0 && (t->r[x->guard] & 1) == x->guard_not) {
            t->pc++;
            continue;
        }
        switch ((int)x->code) {
        case I_BRA: t->pc = x->target; continue;
        case I_RET: t->state = ENDED; return;
        case I_BAR: t->state = AT_BARRIER; return;
        case I_SHFL:
        case I_LDMATRIX:
        case I_MMA: t->state = AT_WARP; return;
        }
        step(b, thread, x);
        t->pc++;
    }
}

// ---- warps -------------------------------------------------------------------------------------------------------

static void shuffle(struct thread *t, const struct instruction *x)
{
    uint64_t in[LANES];
    for (int l = 0; l < LANES; l++)
        in[l] = value(&t[l], x, 1);
    for (int l = 0; l < LANES; l++) {
        int from = (int)value(&t[l], x, 2);
        t[l].r[x->o[0].reg] = in[(x->xor_lane ? l ^ from : from) & (LANES - 1)];
    }
}

// PTX ISA, ldmatrix: lanes 8j .. 8j + 7 name the rows of matrix j; lane l gets row l / 4, columns 2 (l % 4) and the next.
static void load_matrices(struct block *b, int first, const struct instruction *x)
{
    uint8_t row[LANES][16];
    struct thread *t = &b->t[first];
    for (int l = 0; l < LANES; l++)
        read_shared(b, first + l, (uint32_t)place(&t[l], &x->o[1]), 16, row[l]);
    for (int l = 0; l < LANES; l++)
        for (int j = 0; j < 4; j++) {
            uint32_t v;
            memcpy(&v, row[8 * j + l / 4] + 4 * (l % 4), 4);
            t[l].r[x->o[0].vec[j]] = v;
        }
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"
static void multiply(struct thread *t, const struct instruction *x)
{
    double a[16][16], w[16][8], d[16][8];
    for (int l = 0; l < LANES; l++) {
        int group = l / 4, pair = l % 4 * 2;
        for (int i = 0; i < 8; i++) {
            uint64_t va = t[l].r[x->o[1].vec[i / 2]] >> 16 * (i & 1) & 0xffff;
            a[group + 8 * (i >> 1 & 1)][pair + (i & 1) + 8 * (i >> 2)] =
                x->type == T_BF16 ? from_bf16(va) : from_f16(va);
            if (i >= 4)
                continue;
            uint64_t vw = t[l].r[x->o[2].vec[i / 2]] >> 16 * (i & 1) & 0xffff;
            w[pair + (i & 1) + 8 * (i >> 1)][group] = x->type == T_BF16 ? from_bf16(vw) : from_f16(vw);
            d[group + 8 * (i >> 1)][pair + (i & 1)] = f32(t[l].r[x->o[3].vec[i]]);
        }
    }
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < 16; k++)
                d[m][n] += a[m][k] * w[k][n];
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++)
            t[l].r[x->o[0].vec[i]] = bits((float)d[l / 4 + 8 * (i >> 1)][l % 4 * 2 + (i & 1)]);
}

// true: the warp met and went on
static bool meet(struct block *b, int first)
{
    struct thread *t = &b->t[first];
    const struct instruction *x = &b->p->v[t->pc];
    for (int l = 0; l < LANES; l++)
        if (t[l].state != AT_WARP || t[l].pc != t->pc)
            return false;
    if (x->code == I_SHFL)
        shuffle(t, x);
    else if (x->code == I_LDMATRIX)
        load_matrices(b, first, x);
    else
        multiply(t, x);
    for (int l = 0; l < LANES; l++) {
        t[l].pc++;
        t[l].state = RUNNING;
    }
    return true;
}

// ---- blocks ------------------------------------------------------------------------------------------------------

// The warp runs until it waits for others, or a while; false: it could not move.
static bool run_warp(struct block *b, int first)
{
    bool moved = false;
    do {
        int turn = (int)chance(LANES);
        for (int l = 0; l < LANES; l++) {
            int thread = first + (turn + l) % LANES;
            moved |= b->t[thread].state == RUNNING;
            if (b->t[thread].state == RUNNING)
                run_thread(b, thread);
        }
    } while (meet(b, first) && (moved = true) && chance(8));
    return moved;
}

static bool pass_barrier(struct block *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->t[i].state != AT_BARRIER)
            return false;
    for (int i = b->n - 1; i >= 0; i--) { // thread 0 last: the others are compared with it
        if (b->t[i].pc != b->t[0].pc)
            fault(b, i, "another barrier than the block's", 0);
        b->t[i].pc++;
        b->t[i].state = RUNNING;
    }
    b->now++;
    return true;
}

static void run_block(struct block *b)
{
    for (bool moved = true; moved;) {
        moved = false;
        int warps = b->n / LANES, turn = (int)chance((unsigned)warps);
        for (int w = 0; w < warps; w++)
            moved |= run_warp(b, (turn + w) % warps * LANES);
        moved |= pass_barrier(b);
    }
    for (int i = 0; i < b->n; i++) {
        if (b->t[i].state != ENDED)
            fault(b, i, "waits for ever", 0);
        else if (b->t[i].ncopies)
            fault(b, i, "ends before its copies", 0);
        free(b->t[i].copies);
    }
}

bool ptx_launch(struct program *p, unsigned grid, unsigned threads, unsigned shared, void **args)
{
    uint8_t params[1024];
    unsigned turn = chance(grid);
    if ((int)threads != p->threads || threads % LANES)
        return ptx_refuse("a launch with another number of threads than the kernel's", p->name);
    for (int i = 0; i < p->nparams; i++)
        memcpy(params + p->params[i].offset, args[i], (size_t)p->params[i].bytes);
    for (unsigned i = 0; i < grid; i++) {
        size_t words = (size_t)p->nregs * threads;
        struct block b = { .p = p, .n = (int)threads, .shared_bytes = (int)shared, .params = params, .now = 1 };
        b.id = (turn + i) % grid;
        b.t = calloc(threads, sizeof *b.t);
        b.shared = malloc(shared + 1);
        b.shadow = calloc(shared + 1, sizeof *b.shadow);
        uint64_t *r = malloc(words * sizeof *r);
        memset(r, 0x5a, words * sizeof *r); // what a register holds before it is set
        for (unsigned t = 0; t < threads; t++) {
            b.t[t].r = r + t * (size_t)p->nregs;
            b.t[t].r[R_TID] = t;
            b.t[t].r[R_CTAID] = b.id;
        }
        run_block(&b);
        free(r), free(b.shadow), free(b.shared), free(b.t);
    }
    return true;
}

// ---- for ptx_cuda.c ----------------------------------------------------------------------------------------------

void ptx_seed(unsigned seed)
{
    random_state = seed * 2654435761u | 1;
}

int ptx_faults(void)
{
    return faults;
}

void ptx_memory_add(void *start, size_t bytes)
{
    memory = ptx_grow(memory, nmemory, sizeof *memory);
    memory[nmemory++] = (struct allocation){ (uintptr_t)start, bytes };
}

void ptx_memory_drop(void *start)
{
    for (int i = 0; i < nmemory; i++)
        if (memory[i].start == (uintptr_t)start)
            memory[i] = (struct allocation){ 0 };
}
