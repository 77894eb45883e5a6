// DLPack tensors into pointers for kernels (moedlpack.h): every check, and the texts of what is refused. Nothing here
// touches the device or the tensors' memory.
#include "driver.h"
#include "layer.h"
#include "moedlpack.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 160, ALIGN = 16 };

// The layout that producers write, on every 64-bit system.
_Static_assert(sizeof(struct moe_dl_tensor) == 48 && offsetof(struct moe_dl_tensor, shape) == 24, "DLTensor");
_Static_assert(offsetof(struct moe_dl_versioned, flags) == 24 && offsetof(struct moe_dl_versioned, tensor) == 32,
               "DLManagedTensorVersioned");

static int no(struct moe_device *d, const struct moe_dl_want *w, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int no(struct moe_device *d, const struct moe_dl_want *w, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return device_fail(d, MOE_ERR_ARGUMENT, "%s: %s", w->name, text);
}

// ---- what a tensor says --------------------------------------------------------------------------------------------

static const struct moe_dl_tensor *tensor_of(struct moe_dl t)
{
    return t.versioned ? &((const struct moe_dl_versioned *)t.managed)->tensor
                       : &((const struct moe_dl_managed *)t.managed)->tensor;
}

static int elem_of(const struct moe_dl_tensor *t)
{
    if (t->lanes != 1)
        return MOE_DL_ANY;
    if (t->bits == 32)
        return t->code == MOE_DL_INT ? IMAGE_I32 : t->code == MOE_DL_FLOAT ? IMAGE_F32 : MOE_DL_ANY;
    if (t->bits == 16)
        return t->code == MOE_DL_BFLOAT ? IMAGE_BF16 : t->code == MOE_DL_FLOAT ? IMAGE_F16 : MOE_DL_ANY;
    return MOE_DL_ANY;
}

static void type_text(const struct moe_dl_tensor *t, char text[TEXT])
{
    static const char letters[] = "iuf?b";
    if (elem_of(t) > 0)
        snprintf(text, TEXT, "%s", moe_image_elem_name((enum image_elem)elem_of(t)));
    else if (t->lanes == 1 && t->code <= MOE_DL_FLOAT)
        snprintf(text, TEXT, "%c%d", letters[t->code], t->bits);
    else
        snprintf(text, TEXT, "type code %d, %d bits, %d lanes", t->code, t->bits, t->lanes);
}

// "[33, 256]"; "*" for any extent.
static void shape_text(int rank, const int64_t *shape, char text[TEXT])
{
    enum { SHOWN = 6 };
    int n = snprintf(text, TEXT, "[");
    for (int i = 0; i < rank && i < SHOWN; i++)
        n += shape[i] == MOE_DL_ANY ? snprintf(text + n, TEXT - (size_t)n, i ? ", *" : "*")
                                    : snprintf(text + n, TEXT - (size_t)n, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(text + n, TEXT - (size_t)n, rank > SHOWN ? ", ...]" : "]");
}

// Bytes; false: more than memory can be, or an extent below zero.
static bool bytes_of(const struct moe_dl_tensor *t, size_t *bytes)
{
    *bytes = ((size_t)t->bits * t->lanes + 7) / 8;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            *bytes = 0;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(*bytes, (size_t)t->shape[i], bytes))
            return false;
    return true;
}

static bool is_dense(const struct moe_dl_tensor *t)
{
    int64_t step = 1;
    for (int i = t->rank - 1; t->strides && i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != step)
            return false;
        step *= t->shape[i];
    }
    return true;
}

// ---- checks --------------------------------------------------------------------------------------------------------

static int check_version(struct moe_device *d, struct moe_dl t, const struct moe_dl_want *w)
{
    const struct moe_dl_versioned *v = t.managed;
    if (!t.managed)
        return no(d, w, "no tensor is given");
    if (!t.versioned)
        return MOE_OK;
    if (v->major != MOE_DL_MAJOR)
        return no(d, w, "DLPack %" PRIu32 ".%" PRIu32 ", %d.x is known", v->major, v->minor, MOE_DL_MAJOR);
    if (w->written && (v->flags & MOE_DL_READ_ONLY))
        return no(d, w, "an output, but the tensor is read-only");
    return MOE_OK;
}

static const char *device_text(int type)
{
    switch (type) {
    case MOE_DL_CPU: return "host memory (kDLCPU)";
    case MOE_DL_CUDA: return "kDLCUDA";
    case MOE_DL_CUDA + 1: return "host memory (kDLCUDAHost)";
    case MOE_DL_ROCM: return "kDLROCM";
    case MOE_DL_ROCM + 1: return "host memory (kDLROCMHost)";
    case MOE_DL_CUDA_MANAGED: return "kDLCUDAManaged";
    default: return "another kind of device";
    }
}

static int check_device(struct moe_device *d, const struct moe_dl_tensor *t, const struct moe_dl_want *w)
{
    bool cuda = d->driver == &cuda_driver, hip = d->driver == &hip_driver;
    int type = cuda ? MOE_DL_CUDA : hip ? MOE_DL_ROCM : MOE_DL_CPU;
    if (cuda && t->device_type == MOE_DL_CUDA_MANAGED) // its number is always 0
        return MOE_OK;
    if (t->device_type != type)
        return no(d, w, "device type %d, %s; the layer is on %s:%d, which takes %s", t->device_type,
                  device_text(t->device_type), d->driver->name, d->ordinal, device_text(type));
    if (type != MOE_DL_CPU && t->device_id != d->ordinal)
        return no(d, w, "on device %d, the layer is on %s:%d", t->device_id, d->driver->name, d->ordinal);
    return MOE_OK;
}

static bool fits(const struct moe_dl_tensor *t, const struct moe_dl_want *w)
{
    if (w->rank == MOE_DL_ANY)
        return true;
    if (t->rank != w->rank)
        return false;
    for (int i = 0; i < w->rank; i++)
        if (w->shape[i] != MOE_DL_ANY && t->shape[i] != w->shape[i])
            return false;
    return true;
}

static int check_type(struct moe_device *d, const struct moe_dl_tensor *t, const struct moe_dl_want *w)
{
    char want[TEXT], have[TEXT], type[TEXT];
    bool typed = w->elem == MOE_DL_ANY || w->elem == elem_of(t);
    if (t->rank < 0 || (t->rank && !t->shape))
        return no(d, w, "%d dimensions%s", t->rank, t->shape ? "" : ", and shape is NULL");
    if (!typed && w->elem == IMAGE_I32 && t->code == MOE_DL_INT && t->bits == 64 && t->lanes == 1)
        return no(d, w, "of i64, i32 expected: convert it (PyTorch: .to(torch.int32))");
    if (typed && fits(t, w))
        return MOE_OK;
    shape_text(t->rank, t->shape, have);
    type_text(t, type);
    if (w->rank == MOE_DL_ANY)
        snprintf(want, sizeof want, "any shape");
    else
        shape_text(w->rank, w->shape, want);
    return no(d, w, "%s of %s expected, %s of %s is given", want,
              w->elem == MOE_DL_ANY ? "any type" : moe_image_elem_name((enum image_elem)w->elem), have, type);
}

static int check_place(struct moe_device *d, const struct moe_dl_tensor *t, const struct moe_dl_want *w, void **ptr)
{
    size_t bytes;
    uintptr_t at;
    char have[TEXT], strides[TEXT];
    shape_text(t->rank, t->shape, have);
    if (!bytes_of(t, &bytes))
        return no(d, w, "%s is larger than memory can be, or below zero", have);
    if (!bytes)
        return MOE_OK;
    if (!is_dense(t)) {
        shape_text(t->rank, t->strides, strides);
        return no(d, w, "%s with strides %s is not dense in row-major order (PyTorch: .contiguous())", have, strides);
    }
    if (!t->data)
        return no(d, w, "its data are NULL, %zu bytes expected", bytes);
    if (__builtin_add_overflow((uintptr_t)t->data, (uintptr_t)t->byte_offset, &at) || at + bytes < at)
        return no(d, w, "byte_offset %" PRIu64 " leads out of memory", t->byte_offset);
    if (at % ALIGN)
        return no(d, w, "at %p + %" PRIu64 ", not aligned to %d bytes", t->data, t->byte_offset, ALIGN);
    *ptr = (char *)t->data + t->byte_offset;
    return MOE_OK;
}

int moe_dl_get(struct moe_device *d, struct moe_dl t, const struct moe_dl_want *w, void **ptr)
{
    *ptr = NULL;
    int status = check_version(d, t, w);
    status = status ? status : check_device(d, tensor_of(t), w);
    status = status ? status : check_type(d, tensor_of(t), w);
    return status ? status : check_place(d, tensor_of(t), w, ptr);
}

size_t moe_dl_bytes(struct moe_dl t)
{
    size_t bytes;
    return t.managed && bytes_of(tensor_of(t), &bytes) ? bytes : 0;
}

// ---- a layer's -----------------------------------------------------------------------------------------------------

// As moe_dl_get() of something that may be missing.
static int get_given(struct moe_device *d, struct moe_dl t, const struct moe_dl_want *w, const void **ptr)
{
    void *p = NULL;
    int status = t.managed ? moe_dl_get(d, t, w, &p) : MOE_OK;
    *ptr = p;
    return status;
}

int moe_dl_get_weights(struct moe_device *d, const struct moe_layer_desc *desc, const struct moe_dl_weights *from,
                       struct moe_layer_weights *out)
{
    struct moe_layer_desc m = { .size = sizeof m };
    struct moe_dl_weights f = { .size = sizeof f };
    memcpy(&m, desc, desc->size < sizeof m ? desc->size : sizeof m);
    memcpy(&f, from, from->size < sizeof f ? from->size : sizeof f);
    const int64_t all = m.experts + m.shared, l = m.local ? m.local : all, h = m.hidden, i = m.ffn;
    const int t = m.dtype, both = f.up.managed ? 1 : 2;
    const void *p[9] = { NULL };
    // clang-format off
    const struct {
        struct moe_dl t;
        struct moe_dl_want w;
    } rows[9] = {
        { f.gate, both == 1 ? (struct moe_dl_want){ "gate", t, 3, { l, i, h }, false }
                            : (struct moe_dl_want){ "gate", t, 4, { l, 2, i, h }, false } },
        { f.up, { "up", t, 3, { l, i, h }, false } },
        { f.down, { "down", t, 3, { l, h, i }, false } },
        { f.gate_bias, both == 1 ? (struct moe_dl_want){ "gate_bias", t, 2, { l, i }, false }
                                 : (struct moe_dl_want){ "gate_bias", t, 3, { l, 2, i }, false } },
        { f.up_bias, { "up_bias", t, 2, { l, i }, false } },
        { f.down_bias, { "down_bias", t, 2, { l, h }, false } },
        { f.select_bias, { "select_bias", IMAGE_F32, 1, { m.experts }, false } },
        { f.shared_gate, { "shared_gate", t, 1, { h }, false } },
        { f.expert_map, { "expert_map", IMAGE_I32, 1, { all }, false } },
    };
    // clang-format on
    for (int n = 0; n < 9; n++) {
        int status = get_given(d, rows[n].t, &rows[n].w, &p[n]);
        if (status)
            return status;
    }
    if (out->size < sizeof out->size)
        return device_fail(d, MOE_ERR_ARGUMENT, "the weights' size is not set");
    struct moe_layer_weights w = { out->size, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8] };
    memcpy(out, &w, out->size < sizeof w ? out->size : sizeof w);
    return MOE_OK;
}

static bool overlap(const void *a, size_t na, const void *b, size_t nb)
{
    return a && b && (uintptr_t)a < (uintptr_t)b + nb && (uintptr_t)b < (uintptr_t)a + na;
}

// x first: it says how many tokens there are.
static int get_tokens(struct moe_device *d, const struct moe_layer_desc *m, const struct moe_dl_call *f,
                      struct moe_layer_call *c)
{
    struct moe_dl_want x = { "x", m->dtype, 2, { MOE_DL_ANY, m->hidden }, false };
    struct moe_dl_want y = { "y", m->dtype, 2, { 0, m->hidden }, true };
    void *p;
    int status = moe_dl_get(d, f->x, &x, &p);
    if (status)
        return status;
    c->x = p;
    c->tokens = y.shape[0] = tensor_of(f->x)->shape[0];
    status = moe_dl_get(d, f->y, &y, &c->y);
    if (!status && overlap(c->x, moe_dl_bytes(f->x), c->y, moe_dl_bytes(f->y)))
        return no(d, &y, "it overlaps x");
    return status;
}

static int get_routing(struct moe_device *d, const struct moe_layer_desc *m, const struct moe_dl_call *f,
                       struct moe_layer_call *c)
{
    const int64_t k = m->topk + m->shared;
    const struct moe_dl_want logits = { "logits", IMAGE_F32, 2, { c->tokens, m->experts }, false };
    const struct moe_dl_want ids = { "ids", IMAGE_I32, 2, { c->tokens, k }, false };
    const struct moe_dl_want weights = { "weights", IMAGE_F32, 2, { c->tokens, k }, false };
    const void *p[3];
    if (f->logits.managed ? f->ids.managed || f->weights.managed : !f->ids.managed || !f->weights.managed)
        return no(d, &logits, "these or both ids and weights are expected, and not all");
    int status = get_given(d, f->logits, &logits, &p[0]);
    status = status ? status : get_given(d, f->ids, &ids, &p[1]);
    status = status ? status : get_given(d, f->weights, &weights, &p[2]);
    if (status)
        return status;
    c->logits = p[0];
    c->ids = p[1];
    c->weights = p[2];
    return MOE_OK;
}

int moe_dl_get_call(const struct moe_layer *l, const struct moe_dl_call *from, struct moe_layer_call *out)
{
    const struct moe_dl_want space = { "workspace", MOE_DL_ANY, MOE_DL_ANY, { 0 }, true };
    struct moe_dl_call f = { .size = sizeof f };
    struct moe_layer_call c = { .size = sizeof c };
    if (out->size < sizeof out->size)
        return device_fail(l->device, MOE_ERR_ARGUMENT, "the call's size is not set");
    memcpy(&f, from, from->size < sizeof f ? from->size : sizeof f);
    memcpy(&c, out, out->size < sizeof c ? out->size : sizeof c);
    int status = get_tokens(l->device, &l->desc, &f, &c);
    status = status ? status : get_routing(l->device, &l->desc, &f, &c);
    if (!status && f.workspace.managed) {
        status = moe_dl_get(l->device, f.workspace, &space, &c.workspace);
        c.workspace_bytes = moe_dl_bytes(f.workspace);
    }
    if (status)
        return status;
    memcpy(out, &c, out->size < sizeof c ? out->size : sizeof c);
    return MOE_OK;
}
