// See sim_ir.h.
#include "sim_ir.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "llvm-c/BitWriter.h"
#include "llvm-c/Core.h"
#include "llvm-c/IRReader.h"

enum { PATH_SIZE = 4096 };

static void library_path(char path[PATH_SIZE])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_SIZE - 64);
    assert_true(n > 0);
    path[n] = 0;
    for (int i = 0; i < 2; i++)
        *strrchr(path, '/') = 0;
    strcat(path, "/libmoesim.so");
}

int sim_library(void **state)
{
    char path[PATH_SIZE];
    (void)state;
    library_path(path);
    return setenv("MOE_SIM_LIBRARY", path, 1);
}

struct sim sim_open(const char *spec)
{
    char path[PATH_SIZE];
    struct sim s = { .api = NULL };
    library_path(path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    const struct moesim_api *(*get)(int) = (const struct moesim_api *(*)(int))(uintptr_t)dlsym(library, "moesim_api");
    assert_non_null(get);
    s.api = get(MOESIM_VERSION);
    assert_non_null(s.api);
    s.d = s.api->open(spec, &s.limits, s.why);
    if (!s.d)
        fail_msg("%s", s.why);
    return s;
}

void sim_close(struct sim *s)
{
    s->api->unload(s->m);
    s->api->close(s->d);
}

void *sim_bitcode(const char *ir, bool nv, size_t *n)
{
    LLVMContextRef lc = LLVMContextCreate();
    LLVMModuleRef m = NULL;
    char *err = NULL;
    LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "test.ll");
    if (LLVMParseIRInContext(lc, text, &m, &err))
        fail_msg("%s", err);
    if (!*LLVMGetTarget(m))
        LLVMSetTarget(m, nv ? "nvptx64-nvidia-cuda" : "amdgcn-amd-amdhsa");
    LLVMMemoryBufferRef bits = LLVMWriteBitcodeToMemoryBuffer(m);
    *n = LLVMGetBufferSize(bits);
    void *bytes = malloc(*n);
    assert_non_null(bytes);
    memcpy(bytes, LLVMGetBufferStart(bits), *n);
    LLVMDisposeMemoryBuffer(bits);
    LLVMDisposeModule(m);
    LLVMContextDispose(lc);
    return bytes;
}

bool sim_load(struct sim *s, const char *ir)
{
    size_t n;
    void *bits = sim_bitcode(ir, s->limits.lanes == 32, &n);
    s->api->unload(s->m);
    s->m = s->api->load(s->d, bits, n, s->why);
    free(bits);
    return s->m != NULL;
}

int sim_run(struct sim *s, const char *name, int threads, int shared, unsigned blocks, const char *kinds,
            void *const *ptr, const int64_t *n)
{
    struct image_param p[16];
    struct image_kernel k = {
        .name = name, .variant = "", .symbol = name, .threads = threads, .shared = shared, .params = p
    };
    void *args[16];
    int32_t scalar[16];
    static const char *const names[] = { "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7" };
    for (; kinds[k.nparams]; k.nparams++) {
        int i = k.nparams;
        char c = kinds[i];
        p[i] = (struct image_param){ .name = names[i],
                                     .kind = c == 'i' || c == 'e' ? IMAGE_IN
                                             : c == 'o'           ? IMAGE_OUT
                                             : c == 'b'           ? IMAGE_INOUT
                                                                  : IMAGE_SCALAR,
                                     .elem = IMAGE_I32,
                                     .rank = c != 's',
                                     .early = c == 'e',
                                     .align = 4,
                                     .shape = { { -1, n[i] } } };
        scalar[i] = (int32_t)n[i];
        args[i] = c == 's' ? (void *)&scalar[i] : (void *)(uintptr_t)&ptr[i];
    }
    struct moesim_kernel *f = s->api->kernel(s->m, &k, s->why);
    if (!f)
        fail_msg("%s", s->why);
    int status = s->api->launch(f, blocks, args, s->stream, s->dependent, s->why);
    if (status < 0)
        print_error("%s\n", s->why);
    return status;
}

const char *sim_findings(struct sim *s)
{
    static char text[16384];
    const char *line;
    text[0] = 0;
    for (int i = 0; (line = s->api->finding(s->d, i)); i++) {
        strncat(text, line, sizeof text - strlen(text) - 2);
        strcat(text, "\n");
    }
    return text;
}

struct ran sim_ran(const char *spec, const char *ir, unsigned blocks, int shared)
{
    struct sim s = sim_open(spec);
    static char text[16384];
    struct ran r;
    int32_t in[SIM_N], *a = s.api->alloc(s.d, sizeof in), *o = s.api->alloc(s.d, sizeof in);
    for (int i = 0; i < SIM_N; i++)
        in[i] = 100 + i;
    assert_true(s.api->write(s.d, a, in, sizeof in) && s.api->fill(s.d, o, 0xff, sizeof in, true));
    if (!sim_load(&s, ir))
        fail_msg("%s", s.why);
    r.status = sim_run(&s, "k", SIM_N, shared, blocks, "ib", (void *[]){ a, o }, (int64_t[]){ SIM_N, SIM_N });
    snprintf(text, sizeof text, "%s", sim_findings(&s));
    r.text = text;
    assert_true(s.api->read(s.d, r.out, o, sizeof r.out));
    sim_close(&s);
    return r;
}

void *sim_image(const char *ir, int nkernels, const struct image_kernel *kernels, size_t *n)
{
    char err[IMAGE_ERR_MAX];
    struct image_desc d = { .arch = "sm_90a",
                            .compiler = "test",
                            .kind = IMAGE_PTX,
                            .code = "-",
                            .code_size = 1,
                            .nkernels = nkernels,
                            .kernels = kernels };
    void *bits = sim_bitcode(ir, true, &d.bitcode_size);
    d.bitcode = bits;
    *n = moe_image_size(&d);
    void *bytes = malloc(*n);
    if (!moe_image_write(&d, bytes, *n, err))
        fail_msg("%s", err);
    free(bits);
    return bytes;
}
