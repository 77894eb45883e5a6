// The builder of mlir.h over the MLIR C API. Everything it makes goes into one module of one context that lives as long
// as the compile. Text forms of types and attributes are parsed once and kept; integer constants are made once a
// function, in its entry block. MLIR's own diagnostics are collected here and become ours in mb_flush, after MLIR has
// returned: nothing may leave through C++ frames.
#include "mlir.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlir-c/BuiltinAttributes.h"
#include "mlir-c/BuiltinTypes.h"
#include "mlir-c/Diagnostics.h"
#include "mlir-c/Dialect/Arith.h"
#include "mlir-c/Dialect/ControlFlow.h"
#include "mlir-c/Dialect/LLVM.h"
#include "mlir-c/Dialect/NVVM.h"
#include "mlir-c/Dialect/ROCDL.h"
#include "mlir-c/Dialect/SCF.h"
#include "mlir-c/IR.h"

// The translation interfaces have no C entry but "register all"; these C++ functions take the registry by reference.
extern void reg_builtin(void *) __asm__("_ZN4mlir33registerBuiltinDialectTranslationERNS_15DialectRegistryE");
extern void reg_llvm(void *) __asm__("_ZN4mlir30registerLLVMDialectTranslationERNS_15DialectRegistryE");
extern void reg_nvvm(void *) __asm__("_ZN4mlir30registerNVVMDialectTranslationERNS_15DialectRegistryE");
extern void reg_rocdl(void *) __asm__("_ZN4mlir31registerROCDLDialectTranslationERNS_15DialectRegistryE");

enum { TABLE = 4096, MESSAGES = 32 };

struct memo { // text -> type or attribute
    char *text;
    const void *p;
};
struct constant {
    const void *type, *value; // the type, the MLIR value
    int64_t v;
};
struct mb {
    struct ctx *c;
    MlirContext ctx;
    MlirModule module;
    MlirLocation loc;
    int line;
    bool lines;
    MlirAttribute di_file, di_unit;
    MlirBlock cur, entry;
    struct mb_types t;
    struct memo types[TABLE], attrs[TABLE];
    struct constant by_key[TABLE], by_value[TABLE]; // of the current function
    int nconst;
    struct {
        char *text;
        int line, col;
    } message[MESSAGES];
    int nmessages;
    const char *globals[64];
    int nglobals;
};

static MlirStringRef str(const char *s)
{
    return mlirStringRefCreateFromCString(s);
}

static MlirValue V(val v)
{
    assert(v.p);
    return (MlirValue){ v.p };
}

static MlirType T(mty t)
{
    assert(t.p);
    return (MlirType){ t.p };
}

static val from(MlirValue v)
{
    return (val){ v.ptr };
}

// ---- context -----------------------------------------------------------------------------------------------------

struct sink {
    char s[1024];
    size_t n;
};

static void sink_put(MlirStringRef s, void *user)
{
    struct sink *k = user;
    for (size_t i = 0; i < s.length && k->n + 1 < sizeof k->s; i++)
        k->s[k->n++] = s.data[i] == '\n' ? ' ' : s.data[i];
    k->s[k->n] = 0;
}

static MlirLogicalResult on_diagnostic(MlirDiagnostic d, void *user)
{
    struct mb *m = user;
    struct sink k = { .n = 0 };
    MlirLocation l = mlirDiagnosticGetLocation(d);
    if (mlirDiagnosticGetSeverity(d) != MlirDiagnosticError || m->nmessages == MESSAGES)
        return mlirLogicalResultSuccess();
    mlirDiagnosticPrint(d, sink_put, &k);
    m->message[m->nmessages].text = strdup(k.s);
    if (mlirLocationIsAFileLineColRange(l)) {
        m->message[m->nmessages].line = mlirLocationFileLineColRangeGetStartLine(l);
        m->message[m->nmessages].col = mlirLocationFileLineColRangeGetStartColumn(l);
    }
    m->nmessages++;
    return mlirLogicalResultSuccess();
}

bool mb_flush(struct mb *m)
{
    int n = m->nmessages;
    m->nmessages = 0;
    for (int i = 0; i < n; i++) {
        char *s = arena_printf(m->c->arena, "%s", m->message[i].text ? m->message[i].text : "out of memory");
        free(m->message[i].text);
        error(m->c, (struct loc){ m->message[i].line, m->message[i].col, 1 }, "internal: MLIR: %s", s);
    }
    return n == 0;
}

static MlirDialectRegistry registry(void)
{
    MlirDialectRegistry r = mlirDialectRegistryCreate();
    MlirDialectHandle h[] = { mlirGetDialectHandle__llvm__(),  mlirGetDialectHandle__nvvm__(),
                              mlirGetDialectHandle__rocdl__(), mlirGetDialectHandle__scf__(),
                              mlirGetDialectHandle__arith__(), mlirGetDialectHandle__cf__() };
    for (size_t i = 0; i < COUNTOF(h); i++)
        mlirDialectHandleInsertDialect(h[i], r);
    reg_builtin(r.ptr);
    reg_llvm(r.ptr);
    reg_nvvm(r.ptr);
    reg_rocdl(r.ptr);
    return r;
}

struct mb *mb_new(struct ctx *c)
{
    static const char *const dialects[] = { "llvm", "nvvm", "rocdl", "scf", "arith", "cf" };
    struct mb *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    MlirDialectRegistry r = registry();
    m->c = c;
    m->ctx = mlirContextCreateWithRegistry(r, false);
    mlirDialectRegistryDestroy(r);
    for (size_t i = 0; i < COUNTOF(dialects); i++)
        mlirContextGetOrLoadDialect(m->ctx, str(dialects[i]));
    mlirContextAttachDiagnosticHandler(m->ctx, on_diagnostic, m, NULL);
    m->loc = mlirLocationUnknownGet(m->ctx);
    m->module = mlirModuleCreateEmpty(m->loc);
    m->t = (struct mb_types){ .i1 = { mlirIntegerTypeGet(m->ctx, 1).ptr },
                              .i8 = { mlirIntegerTypeGet(m->ctx, 8).ptr },
                              .i16 = { mlirIntegerTypeGet(m->ctx, 16).ptr },
                              .i32 = { mlirIntegerTypeGet(m->ctx, 32).ptr },
                              .i64 = { mlirIntegerTypeGet(m->ctx, 64).ptr },
                              .f16 = { mlirF16TypeGet(m->ctx).ptr },
                              .bf16 = { mlirBF16TypeGet(m->ctx).ptr },
                              .f32 = { mlirF32TypeGet(m->ctx).ptr },
                              .p0 = { mlirLLVMPointerTypeGet(m->ctx, 0).ptr },
                              .p1 = { mlirLLVMPointerTypeGet(m->ctx, 1).ptr },
                              .p3 = { mlirLLVMPointerTypeGet(m->ctx, 3).ptr },
                              .p7 = { mlirLLVMPointerTypeGet(m->ctx, 7).ptr },
                              .p8 = { mlirLLVMPointerTypeGet(m->ctx, 8).ptr } };
    return m;
}

void mb_free(struct mb *m)
{
    if (!m)
        return;
    mlirModuleDestroy(m->module);
    mlirContextDestroy(m->ctx);
    for (int i = 0; i < TABLE; i++) {
        free(m->types[i].text);
        free(m->attrs[i].text);
    }
    for (int i = 0; i < m->nmessages; i++)
        free(m->message[i].text);
    free(m);
}

void mb_loc(struct mb *m, struct loc at)
{
    m->line = at.line;
    if (at.line > 0)
        m->loc = mlirLocationFileLineColGet(m->ctx, str(m->c->file), (unsigned)at.line, (unsigned)at.col);
}

const void *mb_module(struct mb *m)
{
    return m->module.ptr;
}

const void *mb_context(struct mb *m)
{
    return m->ctx.ptr;
}

// ---- types and attributes from text ------------------------------------------------------------------------------

static uint32_t hash_text(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

// The place of the text in the table: found, or free (text NULL). NULL: the table is full; such texts are parsed each time.
static struct memo *memo_at(struct memo *table, const char *text)
{
    for (uint32_t i = hash_text(text), n = 0; n < TABLE; i++, n++) {
        struct memo *e = &table[i % TABLE];
        if (!e->text || !strcmp(e->text, text))
            return e;
    }
    return NULL;
}

static const void *parse_type(struct mb *m, const char *text)
{
    return mlirTypeParseGet(m->ctx, str(text)).ptr;
}

static const void *parse_attribute(struct mb *m, const char *text)
{
    return mlirAttributeParseGet(m->ctx, str(text)).ptr;
}

static const void *parsed(struct mb *m, struct memo *table, const char *text,
                          const void *(*parse)(struct mb *, const char *))
{
    struct memo *e = memo_at(table, text);
    if (e && e->text)
        return e->p;
    const void *p = parse(m, text);
    assert(p); // the compiler's own text: a fault of emit or of a target
    char *own = e ? strdup(text) : NULL;
    if (own)
        *e = (struct memo){ own, p };
    return p;
}

mty mb_parse_type(struct mb *m, const char *text)
{
    return (mty){ parsed(m, m->types, text, parse_type) };
}

static MlirAttribute attribute(struct mb *m, const char *text)
{
    return (MlirAttribute){ parsed(m, m->attrs, text, parse_attribute) };
}

const struct mb_types *mb_types(struct mb *m)
{
    return &m->t;
}

mty mb_vec(struct mb *m, int n, mty elem)
{
    int64_t shape = n;
    (void)m;
    return (mty){ mlirVectorTypeGet(1, &shape, T(elem)).ptr };
}

mty mb_struct(struct mb *m, int n, const mty *elems)
{
    MlirType t[512];
    assert(n <= 512);
    for (int i = 0; i < n; i++)
        t[i] = T(elems[i]);
    return (mty){ mlirLLVMStructTypeLiteralGet(m->ctx, n, t, false).ptr };
}

mty mb_type_of(val v)
{
    return (mty){ mlirValueGetType(V(v)).ptr };
}

// ---- operations --------------------------------------------------------------------------------------------------

static MlirNamedAttribute named(struct mb *m, const char *name, MlirAttribute a)
{
    return mlirNamedAttributeGet(mlirIdentifierGet(m->ctx, str(name)), a);
}

static void add_attrs(struct mb *m, MlirOperationState *st, const char *attrs)
{
    char text[8192];
    if (!attrs || !*attrs)
        return;
    int n = snprintf(text, sizeof text, "{%s}", attrs);
    assert(n > 0 && (size_t)n < sizeof text);
    MlirAttribute d = attribute(m, text);
    for (intptr_t i = 0; i < mlirDictionaryAttrGetNumElements(d); i++) {
        MlirNamedAttribute a = mlirDictionaryAttrGetElement(d, i);
        mlirOperationStateAddAttributes(st, 1, &a);
    }
}

static MlirOperation append(struct mb *m, MlirOperationState *st)
{
    MlirOperation op = mlirOperationCreate(st);
    assert(op.ptr);
    mlirBlockAppendOwnedOperation(m->cur, op);
    return op;
}

enum { FEW = 32 };

// The operands in MLIR's form: in `few`, or in the arena (a loop may carry thousands of values).
static MlirValue *operands(struct mb *m, int n, const val *args, MlirValue *few)
{
    MlirValue *v = n <= FEW ? few : arena_alloc(m->c->arena, sizeof *v * (size_t)n);
    for (int i = 0; i < n; i++)
        v[i] = V(args[i]);
    return v;
}

static MlirOperation make(struct mb *m, const char *name, mty result, int n, const val *args, const char *attrs)
{
    MlirOperationState st = mlirOperationStateGet(str(name), m->loc);
    MlirValue few[FEW], *v = operands(m, n, args, few);
    if (result.p) {
        MlirType t = T(result);
        mlirOperationStateAddResults(&st, 1, &t);
    }
    mlirOperationStateAddOperands(&st, n, v);
    add_attrs(m, &st, attrs);
    return append(m, &st);
}

val mb_op(struct mb *m, const char *name, mty result, int n, const val *args, const char *attrs)
{
    return from(mlirOperationGetResult(make(m, name, result, n, args, attrs), 0));
}

void mb_op0(struct mb *m, const char *name, int n, const val *args, const char *attrs)
{
    make(m, name, NOTYPE, n, args, attrs);
}

// ---- constants ---------------------------------------------------------------------------------------------------

static uint32_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a * 0x9e3779b97f4a7c15u) ^ (b + 0x7f4a7c15u + (a << 6) + (a >> 2));
    h *= 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 33);
}

static struct constant *const_by_key(struct mb *m, const void *type, int64_t v)
{
    for (uint32_t i = mix((uint64_t)(uintptr_t)type, (uint64_t)v);; i++) {
        struct constant *e = &m->by_key[i % TABLE];
        if (!e->value || (e->type == type && e->v == v))
            return e;
    }
}

static struct constant *const_by_value(struct mb *m, const void *value)
{
    for (uint32_t i = mix((uint64_t)(uintptr_t)value, 1);; i++) {
        struct constant *e = &m->by_value[i % TABLE];
        if (!e->value || e->value == value)
            return e;
    }
}

static val constant(struct mb *m, mty t, MlirAttribute a, bool in_entry)
{
    MlirOperationState st = mlirOperationStateGet(str("llvm.mlir.constant"), m->loc);
    MlirNamedAttribute n = named(m, "value", a);
    MlirType ty = T(t);
    mlirOperationStateAddResults(&st, 1, &ty);
    mlirOperationStateAddAttributes(&st, 1, &n);
    MlirOperation op = mlirOperationCreate(&st);
    assert(op.ptr);
    if (in_entry)
        mlirBlockInsertOwnedOperation(m->entry, 0, op);
    else
        mlirBlockAppendOwnedOperation(m->cur, op);
    return from(mlirOperationGetResult(op, 0));
}

val mb_int(struct mb *m, mty t, int64_t v)
{
    struct constant *e = const_by_key(m, t.p, v);
    if (e->value)
        return (val){ e->value };
    if (m->nconst > TABLE / 2) // never seen; the tables must keep free places
        return constant(m, t, mlirIntegerAttrGet(T(t), v), false);
    val c = constant(m, t, mlirIntegerAttrGet(T(t), v), true);
    *e = (struct constant){ t.p, c.p, v };
    *const_by_value(m, c.p) = *e;
    m->nconst++;
    return c;
}

bool mb_const_int(struct mb *m, val v, int64_t *out)
{
    const struct constant *e = const_by_value(m, v.p);
    if (!e->value)
        return false;
    *out = e->v;
    return true;
}

val mb_i32(struct mb *m, int64_t v)
{
    return mb_int(m, m->t.i32, (int32_t)v);
}

val mb_i64(struct mb *m, int64_t v)
{
    return mb_int(m, m->t.i64, v);
}

val mb_i1(struct mb *m, bool v)
{
    return mb_int(m, m->t.i1, v);
}

val mb_float(struct mb *m, mty t, double v)
{
    return constant(m, t, mlirFloatAttrDoubleGet(m->ctx, T(t), v), true);
}

val mb_f32(struct mb *m, double v)
{
    return mb_float(m, m->t.f32, v);
}

val mb_zero(struct mb *m, mty t)
{
    return mb_op(m, "llvm.mlir.zero", t, 0, NULL, NULL);
}

val mb_poison(struct mb *m, mty t)
{
    return mb_op(m, "llvm.mlir.poison", t, 0, NULL, NULL);
}

// ---- llvm dialect ------------------------------------------------------------------------------------------------

static bool fold(const char *n, int64_t a, int64_t b, int64_t *r)
{
    if (!strcmp(n, "add"))
        *r = (int64_t)((uint64_t)a + (uint64_t)b);
    else if (!strcmp(n, "sub"))
        *r = (int64_t)((uint64_t)a - (uint64_t)b);
    else if (!strcmp(n, "mul"))
        *r = (int64_t)((uint64_t)a * (uint64_t)b);
    else if (!strcmp(n, "and"))
        *r = a & b;
    else if (!strcmp(n, "or"))
        *r = a | b;
    else if (!strcmp(n, "xor"))
        *r = a ^ b;
    else if (!strcmp(n, "shl") && b >= 0 && b < 31)
        *r = (int64_t)((uint64_t)a << b);
    else if (!strcmp(n, "lshr") && a >= 0 && b >= 0 && b < 31)
        *r = a >> b;
    else
        return false;
    return true;
}

static bool is_zero_neutral(const char *n)
{
    return !strcmp(n, "add") || !strcmp(n, "sub") || !strcmp(n, "or") || !strcmp(n, "xor") || !strcmp(n, "shl") ||
           !strcmp(n, "lshr") || !strcmp(n, "ashr");
}

val mb_bin(struct mb *m, const char *name, val a, val b)
{
    char full[32] = "llvm.";
    int64_t x, y, r;
    mty t = mb_type_of(a);
    bool ca = mb_const_int(m, a, &x), cb = mb_const_int(m, b, &y);
    assert(mlirTypeEqual(T(t), T(mb_type_of(b))));
    if (ca && cb && fold(name, x, y, &r))
        return t.p == m->t.i32.p ? mb_i32(m, r) : t.p == m->t.i1.p ? mb_i1(m, r & 1) : mb_int(m, t, r);
    if (cb && y == 0 && is_zero_neutral(name))
        return a;
    if (ca && x == 0 && (!strcmp(name, "add") || !strcmp(name, "or") || !strcmp(name, "xor")))
        return b;
    if (!strcmp(name, "mul") && ((ca && x == 1) || (cb && y == 1)))
        return ca && x == 1 ? b : a;
    if (t.p == m->t.i1.p && !strcmp(name, "and") && ((ca && x) || (cb && y)))
        return ca && x ? b : a;
    strncat(full, name, sizeof full - 6);
    val args[2] = { a, b };
    return mb_op(m, full, t, 2, args, NULL);
}

val mb_un(struct mb *m, const char *name, val a, mty t)
{
    char full[32] = "llvm.";
    int64_t x;
    if (mb_const_int(m, a, &x) && (!strcmp(name, "sext") || (!strcmp(name, "zext") && x >= 0)))
        return mb_int(m, t, x);
    strncat(full, name, sizeof full - 6);
    return mb_op(m, full, t, 1, &a, NULL);
}

static val compare(struct mb *m, const char *name, int p, val a, val b)
{
    MlirOperationState st = mlirOperationStateGet(str(name), m->loc);
    MlirValue v[2] = { V(a), V(b) };
    MlirType t = T(m->t.i1);
    MlirNamedAttribute at = named(m, "predicate", mlirIntegerAttrGet(T(m->t.i64), p));
    assert(mlirTypeEqual(mlirValueGetType(v[0]), mlirValueGetType(v[1])));
    mlirOperationStateAddResults(&st, 1, &t);
    mlirOperationStateAddOperands(&st, 2, v);
    mlirOperationStateAddAttributes(&st, 1, &at);
    return from(mlirOperationGetResult(append(m, &st), 0));
}

val mb_icmp(struct mb *m, enum icmp p, val a, val b)
{
    int64_t x, y;
    if (mb_const_int(m, a, &x) && mb_const_int(m, b, &y)) {
        uint64_t ux = (uint64_t)x, uy = (uint64_t)y; // sign-extended, which keeps the unsigned order too
        const bool r[] = { x == y, x != y, x<y, x <= y, x> y, x >= y, ux<uy, ux <= uy, ux> uy, ux >= uy };
        return mb_i1(m, r[p]);
    }
    return compare(m, "llvm.icmp", (int)p, a, b);
}

val mb_fcmp(struct mb *m, enum fcmp p, val a, val b)
{
    return compare(m, "llvm.fcmp", (int)p, a, b);
}

val mb_select(struct mb *m, val c, val a, val b)
{
    int64_t x;
    val v[3] = { c, a, b };
    if (mb_const_int(m, c, &x))
        return x ? a : b;
    if (a.p == b.p)
        return a;
    return mb_op(m, "llvm.select", mb_type_of(a), 3, v, NULL);
}

val mb_gep(struct mb *m, val base, val byte_offset)
{
    int64_t x;
    val v[2] = { base, byte_offset };
    if (mb_const_int(m, byte_offset, &x) && x == 0)
        return base;
    return mb_op(m, "llvm.getelementptr", mb_type_of(base), 2, v,
                 "elem_type = i8, rawConstantIndices = array<i32: -2147483648>");
}

static const char *alignment(int align)
{
    switch (align) {
    case 1: return "alignment = 1 : i64";
    case 2: return "alignment = 2 : i64";
    case 4: return "alignment = 4 : i64";
    case 8: return "alignment = 8 : i64";
    default: return "alignment = 16 : i64";
    }
}

val mb_load(struct mb *m, mty t, val p, int align)
{
    return mb_op(m, "llvm.load", t, 1, &p, alignment(align));
}

void mb_store(struct mb *m, val v, val p, int align)
{
    val a[2] = { v, p };
    mb_op0(m, "llvm.store", 2, a, alignment(align));
}

static const char *position(char *s, int i)
{
    sprintf(s, "position = array<i64: %d>", i);
    return s;
}

val mb_extract(struct mb *m, val agg, int i)
{
    char s[48];
    MlirType t = mlirLLVMStructTypeGetElementType(mlirValueGetType(V(agg)), i);
    return mb_op(m, "llvm.extractvalue", (mty){ t.ptr }, 1, &agg, position(s, i));
}

val mb_insert(struct mb *m, val agg, val v, int i)
{
    char s[48];
    val a[2] = { agg, v };
    return mb_op(m, "llvm.insertvalue", mb_type_of(agg), 2, a, position(s, i));
}

val mb_vextract(struct mb *m, val vec, int i)
{
    MlirType t = mlirShapedTypeGetElementType(mlirValueGetType(V(vec)));
    val a[2] = { vec, mb_i32(m, i) };
    return mb_op(m, "llvm.extractelement", (mty){ t.ptr }, 2, a, NULL);
}

val mb_vinsert(struct mb *m, val vec, val v, int i)
{
    val a[3] = { vec, v, mb_i32(m, i) };
    return mb_op(m, "llvm.insertelement", mb_type_of(vec), 3, a, NULL);
}

val mb_join(struct mb *m, mty elem, int n, const val *in)
{
    if (n == 1)
        return in[0];
    val v = mb_poison(m, mb_vec(m, n, elem));
    for (int i = 0; i < n; i++)
        v = mb_vinsert(m, v, in[i], i);
    return v;
}

void mb_split(struct mb *m, int n, val v, val *out)
{
    if (n == 1)
        out[0] = v;
    for (int i = 0; n > 1 && i < n; i++)
        out[i] = mb_vextract(m, v, i);
}

val mb_asm(struct mb *m, const char *code, const char *constraints, mty result, int n, const val *args)
{
    MlirOperationState st = mlirOperationStateGet(str("llvm.inline_asm"), m->loc);
    MlirValue few[FEW], *v = operands(m, n, args, few);
    MlirNamedAttribute a[] = { named(m, "asm_string", mlirStringAttrGet(m->ctx, str(code))),
                               named(m, "constraints", mlirStringAttrGet(m->ctx, str(constraints))),
                               named(m, "has_side_effects", mlirUnitAttrGet(m->ctx)),
                               named(m, "asm_dialect", mlirIntegerAttrGet(T(m->t.i64), 0)) };
    if (result.p) {
        MlirType t = T(result);
        mlirOperationStateAddResults(&st, 1, &t);
    }
    mlirOperationStateAddOperands(&st, n, v);
    mlirOperationStateAddAttributes(&st, COUNTOF(a), a);
    MlirOperation op = append(m, &st);
    return result.p ? from(mlirOperationGetResult(op, 0)) : NOVAL;
}

// ---- control flow ------------------------------------------------------------------------------------------------

static val *vals(struct mb *m, int n)
{
    return NEWN(m->c->arena, val, n + 1);
}

static void yield(struct mb *m, int n, const val *v)
{
    mb_op0(m, "scf.yield", n, v, NULL);
}

void mb_for_begin(struct mb *m, struct mb_for *f, val lo, val hi, val step, int n, const val *init)
{
    MlirOperationState st = mlirOperationStateGet(str("scf.for"), m->loc);
    MlirRegion r = mlirRegionCreate();
    MlirType *t = arena_alloc(m->c->arena, sizeof *t * (size_t)(n + 1));
    MlirLocation *l = arena_alloc(m->c->arena, sizeof *l * (size_t)(n + 1));
    MlirValue *v = arena_alloc(m->c->arena, sizeof *v * (size_t)(n + 3));
    t[0] = T(m->t.i32);
    l[0] = m->loc;
    v[0] = V(lo), v[1] = V(hi), v[2] = V(step);
    for (int i = 0; i < n; i++) {
        v[3 + i] = V(init[i]);
        t[1 + i] = mlirValueGetType(v[3 + i]);
        l[1 + i] = m->loc;
    }
    MlirBlock b = mlirBlockCreate(n + 1, t, l);
    mlirRegionAppendOwnedBlock(r, b);
    mlirOperationStateAddOperands(&st, n + 3, v);
    mlirOperationStateAddResults(&st, n, t + 1);
    mlirOperationStateAddOwnedRegions(&st, 1, &r);
    f->n = n;
    f->outer = (mblk){ m->cur.ptr };
    f->op = append(m, &st).ptr;
    m->cur = b;
    f->iv = from(mlirBlockGetArgument(b, 0));
    f->args = vals(m, n);
    for (int i = 0; i < n; i++)
        f->args[i] = from(mlirBlockGetArgument(b, 1 + i));
}

static val *results(struct mb *m, const void *op, int n)
{
    val *v = vals(m, n);
    for (int i = 0; i < n; i++)
        v[i] = from(mlirOperationGetResult((MlirOperation){ (void *)op }, i));
    return v;
}

void mb_for_end(struct mb *m, struct mb_for *f, const val *y)
{
    yield(m, f->n, y);
    m->cur = (MlirBlock){ (void *)f->outer.p };
    f->results = results(m, f->op, f->n);
}

void mb_if_begin(struct mb *m, struct mb_if *s, val cond, int n, const mty *types)
{
    MlirOperationState st = mlirOperationStateGet(str("scf.if"), m->loc);
    MlirRegion r[2] = { mlirRegionCreate(), mlirRegionCreate() };
    MlirType *t = arena_alloc(m->c->arena, sizeof *t * (size_t)(n + 1));
    MlirValue c = V(cond);
    MlirBlock b[2];
    for (int i = 0; i < n; i++)
        t[i] = T(types[i]);
    for (int i = 0; i < 2; i++) {
        b[i] = mlirBlockCreate(0, NULL, NULL);
        mlirRegionAppendOwnedBlock(r[i], b[i]);
    }
    mlirOperationStateAddOperands(&st, 1, &c);
    mlirOperationStateAddResults(&st, n, t);
    mlirOperationStateAddOwnedRegions(&st, 2, r);
    s->n = n;
    s->outer = (mblk){ m->cur.ptr };
    s->op = append(m, &st).ptr;
    m->cur = b[0];
}

void mb_if_else(struct mb *m, struct mb_if *s, const val *y)
{
    yield(m, s->n, y);
    m->cur = mlirRegionGetFirstBlock(mlirOperationGetRegion((MlirOperation){ (void *)s->op }, 1));
}

void mb_if_end(struct mb *m, struct mb_if *s, const val *y)
{
    yield(m, s->n, y);
    m->cur = (MlirBlock){ (void *)s->outer.p };
    s->results = results(m, s->op, s->n);
}

// ---- source lines ------------------------------------------------------------------------------------------------

void mb_lines(struct mb *m, bool text)
{
    MlirAttribute none = mlirStringAttrGet(m->ctx, str(""));
    m->di_file = mlirLLVMDIFileAttrGet(m->ctx, mlirStringAttrGet(m->ctx, str(m->c->file)), none);
    // 0x1d: DW_LANG_C11, the nearest that DWARF has
    m->di_unit = mlirLLVMDICompileUnitAttrGet(m->ctx, mlirDisctinctAttrCreate(mlirUnitAttrGet(m->ctx)), 0x1d,
                                              m->di_file, mlirStringAttrGet(m->ctx, str("moec")), true,
                                              text ? MlirLLVMDIEmissionKindDebugDirectivesOnly
                                                   : MlirLLVMDIEmissionKindLineTablesOnly,
                                              MlirLLVMDINameTableKindNone, none);
    m->lines = true;
}

// The place of a function: MLIR hands on the lines of the ops in it only under a subprogram.
static MlirLocation function_place(struct mb *m, const char *name)
{
    enum { DEFINITION = 8, OPTIMIZED = 16 }; // llvm::DISubprogram::SPFlagDefinition, SPFlagOptimized
    if (!m->lines)
        return m->loc;
    MlirAttribute n = mlirStringAttrGet(m->ctx, str(name)), null = mlirAttributeGetNull();
    MlirAttribute type = mlirLLVMDISubroutineTypeAttrGet(m->ctx, 0, 0, NULL);
    unsigned line = m->line > 0 ? (unsigned)m->line : 1;
    MlirAttribute sub = mlirLLVMDISubprogramAttrGet(
        m->ctx, null, false, mlirDisctinctAttrCreate(mlirUnitAttrGet(m->ctx)), m->di_unit, m->di_file, n, n, m->di_file,
        line, line, DEFINITION | OPTIMIZED, type, 0, NULL, 0, NULL);
    return mlirLocationFusedGet(m->ctx, 1, &m->loc, sub);
}

// ---- module level ------------------------------------------------------------------------------------------------

void mb_func_begin(struct mb *m, const char *name, int n, const mty *params, const char *arg_attrs, const char *attrs,
                   val *args)
{
    MlirOperationState st = mlirOperationStateGet(str("llvm.func"), function_place(m, name));
    MlirRegion r = mlirRegionCreate();
    MlirType *t = arena_alloc(m->c->arena, sizeof *t * (size_t)(n + 1));
    MlirLocation *l = arena_alloc(m->c->arena, sizeof *l * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        t[i] = T(params[i]);
        l[i] = m->loc;
    }
    MlirType ft = mlirLLVMFunctionTypeGet(mlirLLVMVoidTypeGet(m->ctx), n, t, false);
    MlirNamedAttribute a[] = { named(m, "sym_name", mlirStringAttrGet(m->ctx, str(name))),
                               named(m, "function_type", mlirTypeAttrGet(ft)),
                               named(m, "linkage", attribute(m, "#llvm.linkage<external>")),
                               named(m, "CConv", attribute(m, "#llvm.cconv<ccc>")) };
    m->entry = mlirBlockCreate(n, t, l);
    mlirRegionAppendOwnedBlock(r, m->entry);
    mlirOperationStateAddAttributes(&st, COUNTOF(a), a);
    add_attrs(m, &st, attrs);
    if (arg_attrs) {
        MlirNamedAttribute x = named(m, "arg_attrs", attribute(m, arg_attrs));
        mlirOperationStateAddAttributes(&st, 1, &x);
    }
    mlirOperationStateAddOwnedRegions(&st, 1, &r);
    m->cur = mlirModuleGetBody(m->module);
    append(m, &st);
    m->cur = m->entry;
    memset(m->by_key, 0, sizeof m->by_key);
    memset(m->by_value, 0, sizeof m->by_value);
    m->nconst = 0;
    for (int i = 0; i < n; i++)
        args[i] = from(mlirBlockGetArgument(m->entry, i));
}

void mb_func_end(struct mb *m)
{
    mb_op0(m, "llvm.return", 0, NULL, NULL);
}

void mb_global(struct mb *m, const char *name, int64_t bytes, int addr_space, int align, bool external)
{
    MlirOperationState st = mlirOperationStateGet(str("llvm.mlir.global"), m->loc);
    MlirBlock was = m->cur;
    MlirRegion r = mlirRegionCreate();
    MlirType t = mlirLLVMArrayTypeGet(T(m->t.i8), (unsigned)bytes);
    MlirNamedAttribute a[] = { named(m, "sym_name", mlirStringAttrGet(m->ctx, str(name))),
                               named(m, "global_type", mlirTypeAttrGet(t)),
                               named(m, "linkage",
                                     attribute(m, external ? "#llvm.linkage<external>" : "#llvm.linkage<internal>")),
                               named(m, "addr_space", mlirIntegerAttrGet(T(m->t.i32), addr_space)),
                               named(m, "alignment", mlirIntegerAttrGet(T(m->t.i64), align)),
                               named(m, "unnamed_addr", mlirIntegerAttrGet(T(m->t.i64), 0)) };
    mlirOperationStateAddAttributes(&st, COUNTOF(a), a);
    mlirOperationStateAddOwnedRegions(&st, 1, &r);
    m->cur = mlirModuleGetBody(m->module);
    MlirOperation op = append(m, &st);
    if (!external) {
        MlirBlock b = mlirBlockCreate(0, NULL, NULL);
        mlirRegionAppendOwnedBlock(mlirOperationGetRegion(op, 0), b);
        m->cur = b;
        val u = mb_poison(m, (mty){ t.ptr });
        mb_op0(m, "llvm.return", 1, &u, NULL);
    }
    m->cur = was;
}

bool mb_first_global(struct mb *m, const char *name)
{
    for (int i = 0; i < m->nglobals; i++)
        if (!strcmp(m->globals[i], name))
            return false;
    if (m->nglobals < (int)COUNTOF(m->globals))
        m->globals[m->nglobals++] = arena_strndup(m->c->arena, name, strlen(name));
    return true;
}

val mb_addressof(struct mb *m, const char *name, int addr_space)
{
    MlirOperationState st = mlirOperationStateGet(str("llvm.mlir.addressof"), m->loc);
    MlirNamedAttribute a = named(m, "global_name", mlirFlatSymbolRefAttrGet(m->ctx, str(name)));
    MlirType t = mlirLLVMPointerTypeGet(m->ctx, (unsigned)addr_space);
    mlirOperationStateAddResults(&st, 1, &t);
    mlirOperationStateAddAttributes(&st, 1, &a);
    return from(mlirOperationGetResult(append(m, &st), 0));
}

bool mb_verify(struct mb *m)
{
    bool ok = mlirOperationVerify(mlirModuleGetOperation(m->module));
    return mb_flush(m) && ok;
}

struct grown { // with malloc: no arena inside an MLIR callback
    char *s;
    size_t n, cap;
};

static void put_text(MlirStringRef s, void *user)
{
    struct grown *b = user;
    if (b->n + s.length + 1 > b->cap) {
        b->cap = (b->n + s.length + 1) * 2;
        char *p = realloc(b->s, b->cap);
        if (!p)
            return;
        b->s = p;
    }
    memcpy(b->s + b->n, s.data, s.length);
    b->n += s.length;
}

void mb_print(struct mb *m, struct text *out)
{
    struct grown b = { 0 };
    mlirOperationPrint(mlirModuleGetOperation(m->module), put_text, &b);
    if (b.s)
        text_put(out, b.s, b.n);
    free(b.s);
}
