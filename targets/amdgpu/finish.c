// Relocatable object -> hsaco (a shared object): lld in this process where it is linked in, else the ld.lld program.
//
// In: the object of one module (all its kernels). Out: the code in the arena, and what each kernel takes (l->uses). The
// bytes depend on the object alone: no build id, no path. Errors are told only after the temporary files are gone, because
// an error may end the compile.
#include "../tool.h"
#include "amdgpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LLD_SECONDS = 120 };
static const struct loc nowhere = { 0 };

// lld.c, only in the static binary. Both names are paths.
__attribute__((weak)) bool amd_lld(const char *in, const char *out);

struct outcome {
    bool linked, read;
    enum tool_end end;
    struct text said;
    const char *status;
};

// By --lld (given), $MOE_LLD, PATH, the usual places; what a user names is used or refused, never replaced.
static const char *find_lld(struct ctx *c, const char *given)
{
    static const char *const names[] = { "ld.lld-22", "/usr/lib/llvm-22/bin/ld.lld", "/opt/rocm/llvm/bin/ld.lld" };
    const char *env = getenv("MOE_LLD"), *found = tool_find(c->arena, given, "MOE_LLD", names, COUNTOF(names));
    if (found)
        return found;
    if (given || (env && *env))
        error(c, nowhere, "lld: '%s', given by %s, is not a program that can be run", given ? given : env,
              given ? "--lld" : "$MOE_LLD");
    else
        error(c, nowhere,
              "ld.lld is needed to link an hsaco and was found neither in PATH nor in /usr/lib/llvm-22/bin: install it "
              "(Debian: apt-get install lld-22), or name the program by --lld or $MOE_LLD");
    return NULL;
}

static void run(struct ctx *c, const char *program, const char *in, const char *out, struct outcome *r)
{
    const char *argv[] = { program, "-shared", "--threads=1", "--build-id=none", in, "-o", out, NULL };
    if (!program) {
        r->linked = amd_lld(in, out);
        return;
    }
    r->end = tool_run(c->arena, argv, LLD_SECONDS, &r->said, &r->status);
    r->linked = r->end == TOOL_OK;
}

// program NULL: in this process.
static bool link_object(struct lowered *l, const char *program, const char **code, size_t *len)
{
    struct ctx *c = l->c;
    struct outcome r = { .said = { .arena = c->arena }, .status = "" };
    const char *in = tool_temp(c->arena, "moec-obj", l->obj, l->obj_len);
    const char *out = in ? tool_temp(c->arena, "moec-hsaco", "", 0) : NULL;
    int why = errno;
    if (out)
        run(c, program, in, out, &r);
    if (r.linked)
        r.read = tool_read(c->arena, out, code, len);
    if (in)
        unlink(in);
    if (out)
        unlink(out);
    if (!out)
        return error(c, nowhere, "cannot write a temporary file for the linker: %s (see $TMPDIR)", strerror(why));
    if (!r.linked && !program)
        return error(c, nowhere, "internal: lld refused the object, or $TMPDIR is full");
    if (!r.linked)
        return error(c, nowhere, "%s %s%s%.400s", program, r.status, r.said.n ? ": " : "", r.said.n ? r.said.s : "");
    if (r.read)
        amd_uses(l, *code, *len);
    return l->nuses > 0 || error(c, nowhere, "the linker left no complete code object (is $TMPDIR full?)");
}

bool amd_finish(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing)
{
    const char *env = getenv("MOE_LLD"), *program = NULL;
    *missing = false;
    if (!l->obj_len || o->want != CODE_HSACO)
        return error(l->c, nowhere, "internal: amdgpu makes an hsaco from an object only");
    if (!amd_lld || o->assembler || (env && *env)) {
        program = find_lld(l->c, o->assembler);
        *missing = !program;
        if (!program)
            return false;
    }
    if (!link_object(l, program, code, len))
        return false;
    for (int i = 0; i < l->nuses && o->warn_spills; i++)
        if (l->uses[i].spill_stores)
            warning(l->c, nowhere, "kernel '%s' does not fit in %d registers a thread: %d are spilled",
                    l->uses[i].symbol, l->uses[i].regs, l->uses[i].spill_stores / 4);
    return true;
}
