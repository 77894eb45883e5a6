// A thin builder over the MLIR C API: the only way the project makes MLIR. No mlir-c type appears here, so
// only mlir.c and lower.c include mlir-c. Every function asserts what MLIR's release build does not.
// Level: the llvm dialect for values and memory, scf for loops and ifs, nvvm and rocdl ops by name.
#ifndef MOEC_MLIR_H
#define MOEC_MLIR_H
#include "common.h"

typedef struct val {
    const void *p;
} val; // MlirValue
typedef struct mty {
    const void *p;
} mty; // MlirType
typedef struct mblk {
    const void *p;
} mblk; // MlirBlock
static inline bool val_null(val v)
{
    return !v.p;
}
#define NOVAL ((val){ 0 })

struct mb; // a context, a module, the place where ops go
struct mb *mb_new(struct ctx *c);
void mb_free(struct mb *m);
void mb_loc(struct mb *m, struct loc at); // source place of the ops made from now on
// Functions made from now on carry their source lines into LLVM IR. text: the code will be text (PTX), whose assembler makes
// the tables itself; else tables for the object file.
void mb_lines(struct mb *m, bool text);

// types
struct mb_types {
    mty i1, i8, i16, i32, i64, f16, bf16, f32, p0, p1, p3, p7, p8; // pN: llvm.ptr<N>; p8: AMD buffer resource
};
const struct mb_types *mb_types(struct mb *m);
mty mb_vec(struct mb *m, int n, mty elem);
mty mb_struct(struct mb *m, int n, const mty *elems);
mty mb_type_of(val v);
mty mb_parse_type(struct mb *m, const char *text); // cached

// Generic: an op by name with attributes in MLIR's text form, "predicate = 0 : i64, alignment = 16 : i64" or NULL.
val mb_op(struct mb *m, const char *name, mty result, int n, const val *args, const char *attrs);
void mb_op0(struct mb *m, const char *name, int n, const val *args, const char *attrs); // no result

// llvm dialect
val mb_i32(struct mb *m, int64_t v);
val mb_i64(struct mb *m, int64_t v);
val mb_i1(struct mb *m, bool v);
val mb_int(struct mb *m, mty t, int64_t v);
val mb_f32(struct mb *m, double v);
val mb_float(struct mb *m, mty t, double v);
val mb_zero(struct mb *m, mty t); // llvm.mlir.zero
val mb_poison(struct mb *m, mty t);
val mb_bin(struct mb *m, const char *name, val a, val b); // "add" -> llvm.add; folds constants and x+0, x*1, x&x ...
val mb_un(struct mb *m, const char *name, val a, mty t);  // casts: "zext", "sext", "trunc", "bitcast", "fpext", ...
enum icmp { IC_EQ, IC_NE, IC_SLT, IC_SLE, IC_SGT, IC_SGE, IC_ULT, IC_ULE, IC_UGT, IC_UGE };
enum fcmp {
    FC_FALSE,
    FC_OEQ,
    FC_OGT,
    FC_OGE,
    FC_OLT,
    FC_OLE,
    FC_ONE,
    FC_ORD,
    FC_UEQ,
    FC_UGT,
    FC_UGE,
    FC_ULT,
    FC_ULE,
    FC_UNE,
    FC_UNO
};
val mb_icmp(struct mb *m, enum icmp p, val a, val b);
val mb_fcmp(struct mb *m, enum fcmp p, val a, val b);
val mb_select(struct mb *m, val c, val a, val b);
val mb_gep(struct mb *m, val base, val byte_offset); // i8 gep; offset i32 or i64
val mb_load(struct mb *m, mty t, val p, int align);
void mb_store(struct mb *m, val v, val p, int align);
val mb_extract(struct mb *m, val agg, int i); // struct member
val mb_insert(struct mb *m, val agg, val v, int i);
val mb_vextract(struct mb *m, val vec, int i); // vector element
val mb_vinsert(struct mb *m, val vec, val v, int i);
val mb_join(struct mb *m, mty elem, int n, const val *in); // n values as a vector; 1: the value itself
void mb_split(struct mb *m, int n, val v, val *out);       // and back
bool mb_const_int(struct mb *m, val v, int64_t *out);

// Inline assembly, side effects, convergent (lower.c adds that). result NOTYPE: none.
#define NOTYPE ((mty){ 0 })
val mb_asm(struct mb *m, const char *code, const char *constraints, mty result, int n, const val *args);

// structured control flow; iter args by value
struct mb_for {
    const void *op;
    val iv;       // the counter
    val *args;    // loop-carried, inside
    val *results; // after mb_for_end
    int n;
    mblk outer;
};
// signed i32 bounds. step > 0.
void mb_for_begin(struct mb *m, struct mb_for *f, val lo, val hi, val step, int n, const val *init);
void mb_for_end(struct mb *m, struct mb_for *f, const val *yield);
struct mb_if {
    const void *op;
    val *results;
    int n;
    mblk outer;
};
void mb_if_begin(struct mb *m, struct mb_if *s, val cond, int n, const mty *types);
void mb_if_else(struct mb *m, struct mb_if *s, const val *yield); // ends then, begins else
void mb_if_end(struct mb *m, struct mb_if *s, const val *yield);  // ends else (every if has one; it may be empty)

// module level. attrs: text form of the function's discardable and inherent attributes.
void mb_func_begin(struct mb *m, const char *name, int n, const mty *params, const char *arg_attrs, const char *attrs,
                   val *args);  // fills args[n]
void mb_func_end(struct mb *m); // llvm.return
// A global in an address space; size 0: external (dynamic). Returns nothing; take its address by name.
void mb_global(struct mb *m, const char *name, int64_t bytes, int addr_space, int align, bool external);
bool mb_first_global(struct mb *m, const char *name); // true the first time for a name: declare it then
val mb_addressof(struct mb *m, const char *name, int addr_space);

bool mb_verify(struct mb *m); // errors into the context, at the DSL line
void mb_print(struct mb *m, struct text *out);
bool mb_flush(struct mb *m);          // MLIR diagnostics so far become ours; false if there were any
const void *mb_module(struct mb *m);  // MlirModule, for lower.c
const void *mb_context(struct mb *m); // MlirContext
#endif
