// Inside of libmoesim. One file a concern:
//   build.c build_call.c  a GPU module -> host IR: memory accesses, intrinsics and assembly become calls of the functions below
//   common_ops.c nv_*.c amd_*.c  what each intrinsic and instruction does
//   ptx.c                 assembly text -> instructions
//   fiber.c exec.c        lanes, warps, barriers, the adversary's schedule
//   workers.c             blocks and threads
//   memory.c shadow.c     device memory, bounds; who wrote and read each byte, and when
//   order.c               what atomic accesses and fences order
//   early.c               launches that may start before others have finished
//   async.c               copies in flight
//   report.c              findings
//   matrix.c              fragments and products
#ifndef SIM_H
#define SIM_H
#include "moesim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    WARPS_MAX = 32,   // of a block
    SLOTS_MAX = 4096, // of a statement: they lie on the lane's stack
    AGENT = 32,       // what stands for a warp when asynchronous engines write
    PROXIED = 33, // clocks PROXIED + warp: up to when its writes are visible to the async proxy too (fence.proxy.async)
    CLOCKS = 66,
    LANES_MAX = 64, // of a warp
    THREADS_MAX = 1024,
    POLLS = 4,         // kept by a lane
    OPEN_MAX = 64,     // launches that dependent ones may run beside
    BARRIERS_MAX = 16, // named barriers of a block
    ARGS_MAX = IMAGE_PARAMS_MAX + IMAGE_DIMS_MAX + IMAGE_BOXES_MAX,
    LANE_STACK = 256 * 1024, // bytes
    ACCESS_BYTES_MAX = 256,  // of one access: what the sink holds
    STACK_STRIDE =
        LANE_STACK + 4096, // with its guard page below; no power of two, so that stacks do not share cache sets
};

enum finding_kind {
    F_RACE,      // two accesses, one a write, with nothing that orders them
    F_UNWRITTEN, // read of bytes that nobody has written
    F_ASYNC,     // touched bytes, or a result, that an asynchronous operation still owns
    F_BOUNDS,
    F_ALIGN,
    F_INPUT, // write to an input
    F_DIVERGENT,
    F_DEADLOCK,
    F_LEAK, // asynchronous work left behind at the end
    F_SHARED,
    F_RUNAWAY,
    F_OPERAND, // an operand's value that the manual does not allow
    F_EARLY,   // touched before griddepcontrol.wait
};

enum { // how memory is accessed
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_ATOMIC = 4, // relaxed, unless
    ACCESS_ACQUIRE = 8,
    ACCESS_RELEASE = 16,
    ACCESS_CTA = 32, // only among threads of the block
};

// ---- what the code is made of
struct arg { // of an instruction
    enum { ARG_NONE, ARG_REG, ARG_IMM, ARG_ADDR, ARG_LIST, ARG_LABEL } kind;
    int reg;      // slot of io; ADDR: the base, -1: none
    int64_t imm;  // ADDR: the offset; LABEL: index of the instruction
    int n, *list; // LIST: slots
};
struct inst {
    const struct op *op;
    struct site *site;
    const char *text; // its words, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    int guard;        // slot of the predicate, -1: always
    bool guard_not;
    int nargs;
    struct arg *a;
    const void *data; // what prepare() made of it
    int64_t num;      // likewise
};
// A place in the kernel: one memory access, one intrinsic call or one assembly statement.
struct site {
    uint32_t id;   // its index in the module + 1, in the order of the code: smaller runs first when lanes diverge
    int line, col; // of the DSL, 0: not known
    struct module_fn *fn;
    const char *what; // "load", "store", "llvm.nvvm.barrier0", ...
    int access;       // ACCESS_...
    int bytes, align; // memory accesses
    int ninsts;
    struct inst *insts;
    int nslots;     // of io: operands, then the assembly's own registers
    int noperands;  // of the slots, those of the statement itself
    uint64_t preds; // slots that are predicates
    int nties;
    struct tie { // an output (slot) that begins with the value of an input (operand of the call)
        int out, in;
    } * ties;
    int nconsts;
    struct constant_slot { // set before each run
        int slot;
        uint64_t value;
    } * consts;
};
// What an instruction does. lane: at once, by each lane alone. warp: when all lanes that can have come; r[lane] is each one's io,
// NULL for those that are not in the mask.
struct warp;
struct lane;
struct op {
    const char *name; // the whole text of an intrinsic's name or of the mnemonic; a trailing '*' matches any ending
    void (*lane)(struct lane *l, const struct inst *i, uint64_t *r);
    void (*warp)(struct warp *w, const struct inst *i, uint64_t mask, uint64_t **r);
    bool (*prepare)(struct inst *i, char *why); // at load: false: not supported, why
    // Of a warp op, who must take part: whoever is there; whom its mask names; every lane that has not ended; every lane of the warp; likewise, and the
    // block must not end within it.
    enum { ANY_LANES, NAMED_LANES, LIVE_LANES, ALL_LANES, FULL_WARP } lanes;
    // Of assembly, a letter each: d register, v register or constant, x register or list, y any of these, a [address]. What follows
    // '?' may be missing, '|' parts alternatives. NULL: prepare() looks at them.
    const char *operands;
};
extern const struct op nv_ops[], nv_async_ops[], amd_ops[], common_ops[]; // each ends with a NULL name

struct machine { // a device, as its maker documents it
    const char *arch, *name;
    bool nv;
    int lanes, threads_max, processors;
    int64_t shared_max;
    const struct matrix_sum *sum; // how its matrix unit adds; NULL: not known
    bool early;                   // has launches that start early
};
extern const struct machine machines[];
extern const int nmachines;

struct module_fn { // a kernel of the module
    struct moesim_module *module;
    const char *name;
    void (*code)(void *const *args);   // NULL until the first launch
    void *jit;                         // LLVM's
    const uint8_t **constants;         // its copies of the module's
    int64_t shared_static, dynamic_at; // bytes of its shared variables; where the dynamic part begins
    uint64_t dynamic_align;            // 0: it has no name for the dynamic part
    int nparams;
    uint64_t *byval; // of each parameter: the bytes that its entry in args points to, if it is passed by value; else 0
    int line;        // of the DSL, 0: not known
};
struct moesim_module {
    struct moesim_device *device;
    void *host, *context; // LLVM's: the converted module, its context
    struct module_fn *fns;
    int nfns;
    struct site **sites;
    int nsites, sites_cap;
    void **blocks; // everything malloced for sites
    int nblocks, blocks_cap;
    char *file;
    size_t *constant_bytes; // of the module's constants in device memory
    int nconstants;
    int ndynamics; // names of the dynamic part of shared memory
};
struct moesim_kernel {
    struct moesim_module *module;
    struct module_fn *fn;
    const struct image_kernel *sig;
    struct moesim_kernel *next;
};

// ---- memory
struct gbyte { // shadow of one byte of a tensor that a kernel writes; 0: none. who: see shadow.c
    uint64_t w_when, w_who, r_when[2], r_who[2];
};
static inline uint32_t who_site(uint64_t who)
{
    return (uint32_t)(who >> 12 & 0xffffff);
}
struct region { // one allocation
    uint8_t *p;
    size_t bytes, mapped;
    uint8_t *written;                   // a bit a byte
    struct gbyte *shadow;               // mapped on first need
    const struct moesim_kernel *writer; // of the last launch that could write here
    uint32_t writer_serial;             // its first block's
};
struct tensor { // an argument of the launch that runs
    uint8_t *p;
    size_t bytes;
    const char *name;
    struct region *region;
    bool readable, writable, tracked, early;
};

// ---- running
enum lane_state { LANE_READY, LANE_AT_OP, LANE_WAITS, LANE_DONE };
struct copy { // an asynchronous copy of one lane into shared memory
    uint32_t to;
    int bytes, from_bytes; // the rest is zero
    const uint8_t *from;
    struct site *site;
    int group;  // -1: not committed yet
    int arrive; // 0, or the number of the cp.async.mbarrier.arrive that stands for it
};
// A write to bytes that another thread of the block wrote at the same place, unordered: a race unless it writes the same.
struct again {
    const uint8_t *p;
    struct site *site;
    int bytes;
    uint8_t was[16];
    const struct tensor *tensor; // NULL: shared memory
    uint64_t at, when, who;      // of the report
};
struct acquire { // an atomic read, by which the lane may learn what comes before
    uint64_t at;
    int access; // 0: none
    bool global;
    uint32_t own; // the most that it orders in its own warp
};
struct poll { // what an atomic read found
    const struct site *site;
    const uint8_t *p;
    uint64_t value;
};
struct lane {
    struct warp *warp;
    int index, thread; // in the warp, in the block
    enum lane_state state;
    void *sp;              // saved context
    void *stack, *asan;    // of the fibre
    const struct inst *at; // AT_OP
    uint64_t *io;
    uint64_t executed;
    struct poll polls[POLLS];
    uint32_t looks;
    bool flag;          // WAITS: for memory to change
    bool waited;        // for the launches before this one, or there was no need to
    bool after;         // something is to be judged when its last access has happened: lane_after()
    struct again again; // bytes 0: none
    struct acquire acquire;
    struct copy *copies;
    int ncopies, copies_cap, groups; // groups committed so far
    int arrives, bulk_groups;        // cp.async.mbarrier.arrive, groups of bulk stores so far
};
struct warp {
    struct block *block;
    int index, nlanes, done;
    bool waits; // at a barrier or for async work
    const struct inst *wait_at;
    int wait_barrier;
    uint32_t clock, fenced; // own time; up to when its accesses count as complete at a barrier
    uint32_t synced;        // and come before those of its other lanes
    uint32_t seen[CLOCKS];  // of every other warp: up to when its accesses come before ours
    struct lane *lanes;
    uint64_t priority;
    uint32_t fence[2][CLOCKS],
        later[CLOCKS]; // order.c: what came before the last fence, 1: of device scope; what the next acquires
    int fences;        // 1: fence[0] is set, 3: both
    bool has_later;
};
struct barrier {
    int arrived, expected;
    uint64_t warps; // that wait
    uint32_t joined[CLOCKS];
    const struct inst *first;
};
struct block {
    struct worker *worker;
    struct launch *launch;
    uint32_t id, serial; // serial: unique over launches
    int nwarps, nthreads;
    uint8_t *shared;
    uint32_t shared_bytes;
    struct warp warps[WARPS_MAX];
    struct lane *lanes;
    struct barrier barriers[BARRIERS_MAX];
    uint64_t rng;
    uint64_t budget; // lane instructions left
    int ended, turn, policy;
    uint32_t nfindings;      // before duplicates are dropped
    bool progress;           // something other than a failed poll happened
    bool put_aside;          // until memory changes
    uint32_t clock0;         // entries of shared shadow below are of other blocks
    uint32_t agent_clock;    // of AGENT
    struct mbar *mbars;      // nv_mbarrier.c
    struct bulk *bulks;      // nv_bulk.c: in flight, the oldest first
    int engine_reads;        // shared bytes that engines may still read, counted with how often
    void *state;             // nv_async.c's own
    struct records *records; // order.c: of shared memory
    struct known *known;     // of other blocks
    int nknown, known_cap;
};
struct worker {
    struct worker *next; // further seats of the same thread
    bool busy;           // has a block
    struct launch *launch;
    pthread_t thread;
    struct block block;
    struct lane *lane;      // that runs
    void *home;             // its own context
    const void *home_stack; // where the worker's own stack is (address sanitizer)
    size_t home_size;
    uint8_t *shared;
    uint64_t
        *shadow; // shared memory: [0] writes, [1 + warp] reads, the last: reads of engines, each shared_cap entries
    uint32_t shared_cap;
    int shadow_warps;
    uint32_t clock;
    char *stacks;
    int nstacks;
    uint64_t executed;
    uint64_t sink[ACCESS_BYTES_MAX / 8]; // stands in for memory that must not be touched
};
struct launch {
    struct moesim_device *device;
    struct moesim_kernel *kernel;
    const struct machine *machine;
    uint32_t blocks, next; // next: atomic
    uint32_t serial0, number;
    void *const *args;
    struct tensor tensors[IMAGE_PARAMS_MAX];
    int ntensors;
    uint32_t shared_bytes;
    bool shadow, stop; // stop: atomic
    const void *stream;
    bool dependent, waited; // early.c: may have started early; a thread has waited (atomic)
    uint64_t seed;
    pthread_mutex_t lock;       // of records
    struct records *records;    // order.c: of global memory
    uint64_t moves;             // workers.c: counts whatever happened
    int idle, running;          // workers that found nothing to do since, and all
    bool dead;                  // nothing will happen any more
    int resident, resident_max; // blocks that have begun and not ended
};
struct found { // a finding; of those with one key, that of the lowest block
    uint64_t key;
    uint32_t block, order; // order: within the block
    uint64_t launch;
    char *text;
};
struct open_launch { // since the last ordinary one of its stream, that one among them
    const void *stream;
    const struct moesim_kernel *kernel;
    uint32_t serial0, blocks;
};
struct moesim_device {
    const struct machine *machine;
    uint64_t seed;
    int threads, limit, processors;
    uint64_t budget; // lane instructions of a block, after which it counts as running away
    bool shadow;
    struct region **regions;
    int nregions, regions_cap;
    uint32_t serial, launches;
    struct worker *workers;
    pthread_mutex_t lock; // findings
    struct found *findings;
    int nfindings, findings_cap;
    struct moesim_stats stats;
    struct moesim_kernel *kernels;
    struct open_launch open[OPEN_MAX]; // the oldest first; what has no room is forgotten
    int nopen;
};

extern _Thread_local struct worker *sim_me __attribute__((tls_model("initial-exec")));

// ---- called by the host code
void *moesim_access(struct site *s, uint64_t address);        // global: the host address to use
void *moesim_access_shared(struct site *s, uint32_t address); // shared
void moesim_op(struct site *s, uint64_t *io);
void moesim_count(uint32_t n);
void moesim_divisor(struct site *s, uint32_t zero); // of a division: is it zero?

// ---- build.c
struct moesim_module *module_build(struct moesim_device *d, const void *bitcode, size_t n, char *why);
bool module_ready(struct module_fn *fn, char *why); // makes its host code, once
void module_free(struct moesim_module *m);
void *module_keep(struct moesim_module *m, size_t bytes); // zeroed, freed with the module; NULL: out of memory

// ---- ptx.c: one assembly statement. Slots 0..noperands-1 of io are its operands. false: why.
bool ptx_parse(struct moesim_module *m, struct site *s, const char *text, int noperands, char *why);
const struct op *op_find(const struct op *table, const char *name);
void ptx_run(struct lane *l, struct site *s, uint64_t *io);

// ---- workers.c
int launch_run(struct launch *l, char *why);
void workers_free(struct moesim_device *d);

// ---- exec.c
bool block_run(struct block *b); // until it has ended, or only looks at memory: false: nothing else happened
void block_deadlock(struct block *b);
void lane_yield(struct lane *l); // the lane stands at l->at; returns when that has been carried out
void lane_poll(struct lane *l);  // what it looked for is not there yet; returns when it may look again
_Noreturn void lane_end(struct lane *l);
void lane_look(struct lane *l, const struct site *s, const uint8_t *p, int bytes); // before an atomic read
void warp_wait(struct warp *w, const struct inst *i); // inside a warp op: the warp stays until warp_wake()
void warp_wake(struct warp *w);
void barrier_arrive(struct warp *w, const struct inst *i, int id, int threads,
                    bool waits); // threads 0: the whole block
void barriers_warp_ended(struct warp *w);
uint64_t sim_random(struct block *b);
void fiber_start(struct lane *l, char *stack, size_t size);
void fiber_enter(struct worker *me, struct lane *l);
void fiber_leave(struct lane *l);
_Noreturn void lane_main(struct lane *l);

// ---- shadow.c
void shadow_shared(struct lane *l, struct site *s, uint32_t at, int bytes, int access);
void shadow_global(struct lane *l, struct site *s, struct tensor *t, size_t at, int bytes, int access);
// A copy from `from` owns these bytes from now on.
void shadow_inflight(struct lane *l, struct site *s, uint32_t at, int bytes, const uint8_t *from);
void shadow_again(struct lane *l); // judges l->again
void shadow_landed(struct lane *l, struct site *s, uint32_t at, int bytes,
                   bool agent); // and has written them, by this lane or AGENT
// An engine reads these bytes on the lane's behalf: may it? false: something was found.
bool shadow_engine_may(struct lane *l, struct site *s, uint32_t at, int bytes);
void shadow_engine_reads(struct lane *l, struct site *s, uint32_t at, int bytes); // from now on; may overlap
void shadow_engine_done(struct lane *l, struct site *s, uint32_t at, int bytes);  // and the lane knows that it has
void shadow_engine_dropped(struct lane *l, uint32_t at, int bytes);               // or nobody will
bool shadow_ordered(const struct lane *l, uint32_t clock, int thread); // what that thread did then comes before
void shadow_proxy_fence(struct lane *l);                               // fence.proxy.async
void clock_release(struct warp *w);                                    // everything before is complete
void clock_tick(struct warp *w);                                       // likewise, but not among its own lanes
void clock_join(uint32_t *to, const uint32_t *from);

// ---- order.c: what atomic accesses and fences order
void order_atomic(struct lane *l, uint64_t at, bool global, int access);
void order_acquire(struct lane *l); // carries l->acquire out
void order_fence(struct warp *w, int access);
bool order_known(const struct lane *l, uint32_t serial, uint32_t clock,
                 int warp);        // of another block: does it come before?
int order_words(const char *text); // of a mnemonic, as ACCESS_...
void order_block_end(struct block *b);
void order_launch_end(struct launch *l);

// ---- early.c
void early_begin(struct launch *l, const void *stream, bool dependent);
void early_end(struct launch *l);
void early_forget(struct moesim_device *d, const struct moesim_module *m); // its launches; NULL: all have finished
void early_wait(struct lane *l);                                           // griddepcontrol.wait
void early_access(struct lane *l, struct site *s, const struct tensor *t, size_t at, int bytes); // of a lane before it

bool module_constant(const struct module_fn *fn, uint64_t address, int bytes);

// ---- memory.c
void *mem_alloc(struct moesim_device *d, size_t bytes);
bool mem_free(struct moesim_device *d, void *p);
bool mem_write(struct moesim_device *d, void *to, const void *from, size_t n);
bool mem_read(struct moesim_device *d, void *to, const void *from, size_t n);
bool mem_fill(struct moesim_device *d, void *p, int byte, size_t n, bool poison);
void memory_close(struct moesim_device *d);
struct region *region_find(const struct moesim_device *d, const void *p, size_t n);
uint8_t *global_at(struct lane *l, struct site *s, uint64_t address, int bytes, int align, int access);
uint8_t *shared_at(struct lane *l, struct site *s, uint32_t address, int bytes, int align, int access);
void region_mark(struct region *r, size_t at, size_t n, bool written);
bool region_written(const struct region *r, size_t at, size_t n);
bool region_shadow(struct region *r);

// ---- async.c
void copy_issue(struct lane *l, struct site *s, uint32_t to, const uint8_t *from, int bytes, int from_bytes);
void copy_commit(struct lane *l);
void copy_wait(struct lane *l, int pending);   // groups that may stay in flight
void copy_end(struct lane *l);                 // the lane ends
int copy_track(struct lane *l);                // of the copies so far an mbarrier will tell: a number for
void copy_arrived(struct lane *l, int number); // their landing
// nv_async.c
bool async_progress(struct block *b); // lands something of the engines; false: nothing is in flight
void async_lane_end(struct lane *l);
void async_block_end(struct block *b);
int async_state(const struct block *b, char *out, int max); // what is waited for, for the report of a deadlock
bool tensor_map_encode(void *map, const struct moesim_tensor *t, char why[MOESIM_WHY]); // nv_bulk.c
void amd_block_end(struct block *b);                                                    // amd_ops.c: block->state

// ---- report.c
void findings_sort(struct moesim_device *d, int from); // by block
void finding(struct lane *l, struct site *s, enum finding_kind kind, uint64_t other, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void finding_launch(struct launch *l, enum finding_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *site_place(const struct site *s, char out[64]); // "line 41", "line ?"

// ---- helpers for ops
// Called before whatever a lane does next: its last access has happened now.
void lane_after(struct lane *l); // exec.c
static inline void catch_up(struct lane *l)
{
    if (l->after)
        lane_after(l);
}
static inline float as_f32(uint64_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = { (uint32_t)bits };
    return v.f;
}
static inline uint64_t f32_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { f };
    return v.u;
}
// Value of an operand: register or immediate.
static inline uint64_t arg_value(const struct arg *a, const uint64_t *r)
{
    return a->kind == ARG_IMM    ? (uint64_t)a->imm
           : a->kind == ARG_ADDR ? (a->reg < 0 ? 0 : r[a->reg]) + (uint64_t)a->imm
                                 : r[a->reg];
}
#endif
