// A libcuda without a GPU that carries out LLVM IR of the AMD targets (what moec makes for them, after LLVM's passes), for
// numeric tests of code that no GPU here can run. It stands behind ptx_cuda.c in place of the PTX interpreter: tests/amd_image.c
// writes an image whose "PTX" is that IR, and with MOE_CUDA_LIBRARY=build/tests/libamdsim.so every `moerun check|verify
// --device=cuda:0 --image=...` runs here. Waves of 64 lanes.
//
// Each thread is interpreted on its own up to where it must meet others: lane moves and MFMA its wave, s_barrier its block;
// waves go in random order ($PTX_SIM_SEED). A shadow of LDS finds races between barriers and reads of what was never written;
// global accesses must lie inside one allocation and be aligned to their size. Buffer accesses follow the hardware's range
// check. A fault is printed and makes the next synchronisation fail. With $AMD_SIM_STATS, bank conflicts of 16-byte LDS accesses
// are counted by gfx942's rules (targets/amdgpu/NOTES.md).
//
// Here: memory, lanes, matrix units, threads and blocks. amd_ir.c: from LLVM's module to `struct insn`; amd_step.c: what one
// thread does alone.
#include "amd_sim.h"

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
static int faults;
static unsigned random_state = 1;

struct shadow { // of a byte of LDS. When: the number of barriers before
    uint32_t written, read;
    uint16_t writer, reader; // a thread, or MANY
    bool known;              // written at all
};
enum { MANY = 65535 };

static unsigned chance(unsigned n)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 17, random_state ^= random_state << 5;
    return random_state % n;
}

void sim_fault(struct block *b, int thread, const char *what, uint64_t where)
{
    faults++;
    if (b->faults++ < SHOWN)
        fprintf(stderr, "amd_sim: %s, block %u, thread %d: %s (%llx): %s\n", b->p->head.name, b->id, thread, what,
                (unsigned long long)where, b->p->v[b->t[thread].pc].text);
}

bool sim_global(struct block *b, int thread, uint64_t at, int n)
{
    if (at % (unsigned)n) {
        sim_fault(b, thread, "global memory: not aligned", at);
        return false;
    }
    for (int i = 0; i < nmemory; i++)
        if (at >= memory[i].start && at + (unsigned)n <= memory[i].start + memory[i].bytes)
            return true;
    sim_fault(b, thread, "global memory: outside", at);
    return false;
}

// ---- LDS ---------------------------------------------------------------------------------------------------------

// Addresses of one 16-byte access of one wave, until all lanes have made it.
struct access {
    int insn, wave, turn, lanes;
    bool write;
    uint32_t at[LANES64];
    struct access *next;
};
static long lds_accesses, lds_cycles; // of whole waves; eight cycles each without conflicts

static int phase_of(int lane, bool write)
{
    static const int order[8] = {
        0, 1, 2, 3, 1, 0, 3, 2
    }; // of four lanes each: 0-3 go with 20-23, 4-7 with 16-19, ...
    return write ? lane / 8 : order[lane / 4 % 8] + lane / 32 * 4;
}

// Cycles: per phase, the most accesses that one bank of 4 bytes sees.
static int cycles_of(const struct access *a)
{
    int total = 0;
    for (int p = 0; p < 8; p++) {
        int banks[32] = { 0 }, most = 0;
        for (int l = 0; l < LANES64; l++)
            for (int w = 0; phase_of(l, a->write) == p && w < 4; w++) {
                int bank = (int)(a->at[l] / 4 + (unsigned)w) % 32;
                most = ++banks[bank] > most ? banks[bank] : most;
            }
        total += most;
    }
    return total;
}

static void note_access(struct block *b, int thread, uint32_t at, bool write)
{
    int insn = b->t[thread].pc, wave = thread / LANES64, turn = b->t[thread].turns[b->p->v[insn].access]++;
    struct access **p = &b->pending;
    while (*p && ((*p)->insn != insn || (*p)->wave != wave || (*p)->turn != turn))
        p = &(*p)->next;
    if (!*p) {
        *p = calloc(1, sizeof **p);
        **p = (struct access){ .insn = insn, .wave = wave, .turn = turn, .write = write };
    }
    struct access *a = *p;
    a->at[thread % LANES64] = at;
    if (++a->lanes < LANES64)
        return;
    lds_accesses++;
    lds_cycles += cycles_of(a);
    *p = a->next;
    free(a);
}

static void print_stats(void)
{
    fprintf(stderr, "amd_sim: %ld LDS accesses of 16 bytes a lane, %ld cycles, %ld of them conflicts\n", lds_accesses,
            lds_cycles, lds_cycles - 8 * lds_accesses);
}

static bool lds_fits(struct block *b, int thread, uint64_t at, int n)
{
    if (at % (unsigned)n)
        sim_fault(b, thread, "LDS: not aligned", at);
    else if (at + (uint64_t)n > (uint64_t)b->p->lds_bytes)
        sim_fault(b, thread, "LDS: outside", at);
    else
        return true;
    return false;
}

void sim_read_lds(struct block *b, int thread, uint64_t at, int n, void *out)
{
    const char *wrong = NULL;
    memset(out, 0, (size_t)n);
    if (!lds_fits(b, thread, at, n))
        return;
    for (int i = 0; i < n; i++) {
        struct shadow *s = &b->shadow[at + (unsigned)i];
        wrong = !s->known ? "LDS: read of what was never written"
                : s->written == b->now && s->writer != thread
                    ? "LDS: read of what another thread wrote, no barrier between"
                    : wrong;
        s->reader = s->read == b->now && s->reader != thread ? MANY : (uint16_t)thread;
        s->read = b->now;
    }
    if (wrong)
        sim_fault(b, thread, wrong, at);
    if (n == 16 && b->stats)
        note_access(b, thread, (uint32_t)at, false);
    memcpy(out, b->lds + at, (size_t)n);
}

void sim_write_lds(struct block *b, int thread, uint64_t at, int n, const void *in)
{
    const char *wrong = NULL;
    if (!lds_fits(b, thread, at, n))
        return;
    for (int i = 0; i < n; i++) {
        struct shadow *s = &b->shadow[at + (unsigned)i];
        bool same = s->known && b->lds[at + (unsigned)i] == ((const uint8_t *)in)[i]; // replicas may agree
        if (s->written == b->now && s->writer != thread && !same)
            wrong = "LDS: two threads write, no barrier between";
        if (s->read == b->now && s->reader != thread)
            wrong = "LDS: write over what another thread read, no barrier between";
        s->written = b->now;
        s->writer = (uint16_t)thread;
        s->known = true;
    }
    if (wrong)
        sim_fault(b, thread, wrong, at);
    if (n == 16 && b->stats)
        note_access(b, thread, (uint32_t)at, true);
    memcpy(b->lds + at, in, (size_t)n);
}

// ---- lanes -------------------------------------------------------------------------------------------------------

// The lane whose value lane l gets; -1: not understood. CDNA3 ISA, "DPP_CTRL", "DS_SWIZZLE_B32", bit mode.
static int source_lane(const struct insn *x, struct block *b, int first, int l)
{
    int control = (int)sim_value(b, first + l, x, 2)[0];
    switch (x->code) {
    case X_READFIRST: return 0;
    case X_READLANE: return (int)sim_value(b, first + l, x, 1)[0] & 63;
    case X_BPERMUTE: return (int)(sim_value(b, first + l, x, 0)[0] >> 2) & 63;
    case X_SWIZZLE:
        control = (int)sim_value(b, first + l, x, 1)[0];
        return control & 0x8000 ? -1 : (l & 32) | (((l & control & 31) | (control >> 5 & 31)) ^ (control >> 10 & 31));
    case X_DPP:
        return control < 0x100    ? (l & ~3) | (control >> 2 * (l & 3) & 3) // quad_perm
               : control == 0x128 ? (l & 48) | ((l - 8) & 15)               // row_ror:8
               : control == 0x140 ? l ^ 15                                  // row_mirror
               : control == 0x141 ? l ^ 7                                   // row_half_mirror
                                  : -1;
    default: return -1;
    }
}

static void move_lanes(struct block *b, int first, const struct insn *x)
{
    int arg = x->code == X_DPP || x->code == X_BPERMUTE; // which operand moves
    uint64_t in[LANES64], out[LANES64];
    for (int l = 0; l < LANES64; l++)
        in[l] = sim_value(b, first + l, x, arg)[0];
    for (int l = 0; l < LANES64; l++) {
        int from = source_lane(x, b, first, l);
        if (from < 0)
            sim_fault(b, first + l, "a lane move that is not understood", 0);
        out[l] = in[from < 0 ? 0 : from];
    }
    for (int l = 0; l < LANES64; l++)
        b->t[first + l].r[x->dst] = out[l];
}

// AMDGPU usage guide, llvm.amdgcn.permlane16.swap, permlane32.swap: odd rows of the first operand change places with even
// rows of the second; rows of 16, or halves of 32.
static void swap_lanes(struct block *b, int first, const struct insn *x)
{
    int width = x->code == X_SWAP16 ? 16 : 32;
    uint64_t a[LANES64], c[LANES64];
    for (int l = 0; l < LANES64; l++) {
        a[l] = sim_value(b, first + l, x, 0)[0];
        c[l] = sim_value(b, first + l, x, 1)[0];
    }
    for (int l = 0; l < LANES64; l++) {
        bool odd = l & width;
        b->t[first + l].r[x->dst] = odd ? c[l - width] : a[l];
        b->t[first + l].r[x->dst + 1] = odd ? c[l] : a[l + width];
    }
}

// ---- matrix units ------------------------------------------------------------------------------------------------

// CDNA3 and CDNA4 ISA, "Matrix Arithmetic Instructions": A[row = lane % M][k = per (lane / M) + i], B alike with columns,
// D[row = 8 (i / 4) + 4 (lane / 32) + i % 4][column = lane % 32], or for 16x16 [4 (lane / 16) + i][lane % 16].
static void multiply(struct block *b, int first, const struct insn *x)
{
    static float a[32][64], w[32][64];
    int m = x->mfma_m, per = x->mfma_k * m / LANES64;
    for (int l = 0; l < LANES64; l++)
        for (int i = 0; i < per; i++) {
            uint64_t va = sim_value(b, first + l, x, 0)[i], vw = sim_value(b, first + l, x, 1)[i];
            a[l % m][per * (l / m) + i] = x->mfma_half ? sim_from_f16(va) : sim_from_bf16(va);
            w[l % m][per * (l / m) + i] = x->mfma_half ? sim_from_f16(vw) : sim_from_bf16(vw);
        }
    for (int l = 0; l < LANES64; l++)
        for (int i = 0; i < m * m / LANES64; i++) {
            int row = m == 32 ? 8 * (i / 4) + 4 * (l / 32) + i % 4 : 4 * (l / 16) + i, col = l % m;
            double d = sim_f32(sim_value(b, first + l, x, 2)[i]);
            for (int k = 0; k < x->mfma_k; k++)
                d += (double)a[row][k] * w[col][k];
            b->t[first + l].r[x->dst + i] = sim_bits((float)d);
        }
}

// ---- threads, waves, blocks --------------------------------------------------------------------------------------

// true: the wave met and went on
static bool meet(struct block *b, int first)
{
    struct thread *t = &b->t[first];
    const struct insn *x = &b->p->v[t->pc];
    for (int l = 0; l < LANES64; l++)
        if (t[l].state != AT_WAVE || t[l].pc != t->pc)
            return false;
    if (x->code == X_MFMA)
        multiply(b, first, x);
    else if (x->code == X_SWAP16 || x->code == X_SWAP32)
        swap_lanes(b, first, x);
    else
        move_lanes(b, first, x);
    for (int l = 0; l < LANES64; l++) {
        t[l].pc++;
        t[l].state = RUNNING;
    }
    return true;
}

// The wave runs until it waits for others, or a while; false: it could not move.
static bool run_wave(struct block *b, int first)
{
    bool moved = false;
    do {
        int turn = (int)chance(LANES64);
        for (int l = 0; l < LANES64; l++) {
            int thread = first + (turn + l) % LANES64;
            moved |= b->t[thread].state == RUNNING;
            if (b->t[thread].state == RUNNING)
                sim_run(b, thread);
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
            sim_fault(b, i, "another barrier than the block's", 0);
        b->t[i].pc++;
        b->t[i].state = RUNNING;
    }
    b->now++;
    return true;
}

static void run_block(struct block *b)
{
    for (bool moved = true; moved;) {
        int waves = b->n / LANES64, turn = (int)chance((unsigned)waves);
        moved = false;
        for (int w = 0; w < waves; w++)
            moved |= run_wave(b, (turn + w) % waves * LANES64);
        moved |= pass_barrier(b);
    }
    for (int i = 0; i < b->n; i++)
        if (b->t[i].state != ENDED)
            sim_fault(b, i, "waits for ever", 0);
}

static void launch_block(struct ir *p, unsigned id, unsigned threads, void **args)
{
    static bool asked;
    size_t words = (size_t)p->nregs * threads;
    struct block b = { .p = p, .id = id, .n = (int)threads, .now = 1, .stats = getenv("AMD_SIM_STATS") != NULL };
    if (b.stats && !asked)
        asked = !atexit(print_stats);
    b.t = calloc(threads, sizeof *b.t);
    b.lds = malloc((size_t)p->lds_bytes + 1);
    b.shadow = calloc((size_t)p->lds_bytes + 1, sizeof *b.shadow);
    uint64_t *r = malloc(words * sizeof *r + 8);
    int *turns = calloc((size_t)p->naccesses * threads + 1, sizeof *turns);
    memset(r, 0x5a, words * sizeof *r); // what a register holds before it is set
    for (unsigned t = 0; t < threads; t++) {
        b.t[t].r = r + t * (size_t)p->nregs;
        b.t[t].turns = turns + t * (size_t)p->naccesses;
        for (int i = 0; i < p->nargs; i++) {
            b.t[t].r[p->args[i].slot] = 0;
            memcpy(&b.t[t].r[p->args[i].slot], args[i], (size_t)p->args[i].bytes);
        }
    }
    run_block(&b);
    free(r), free(turns), free(b.shadow), free(b.lds), free(b.t);
}

// ---- for ptx_cuda.c ----------------------------------------------------------------------------------------------

bool ptx_launch(struct program *p, unsigned grid, unsigned threads, unsigned shared, void **args)
{
    struct ir *ir = (struct ir *)(void *)p; // its first member
    unsigned turn = chance(grid);
    (void)shared; // static here
    if ((int)threads != p->threads || threads % LANES64) {
        fprintf(stderr, "amd_sim: %s: %u threads, not %d\n", p->name, threads, p->threads);
        return false;
    }
    for (unsigned i = 0; i < grid; i++)
        launch_block(ir, (turn + i) % grid, threads, args);
    return true;
}

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
    memory = realloc(memory, (size_t)(nmemory + 1) * sizeof *memory);
    memory[nmemory++] = (struct allocation){ (uintptr_t)start, bytes };
}

void ptx_memory_drop(void *start)
{
    for (int i = 0; i < nmemory; i++)
        if (memory[i].start == (uintptr_t)start)
            memory[i] = memory[--nmemory];
}
