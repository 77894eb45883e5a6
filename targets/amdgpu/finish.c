// Relocatable object -> hsaco (a shared object): lld in this process where it is linked in, else the ld.lld program.
#include "../tool.h"
#include "amdgpu.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { LLD_SECONDS = 120 };

// lld.c, only in the static binary. Both names are paths; the messages of a failure go to lld's own stderr.
__attribute__((weak)) bool amd_lld(const char *in, const char *out);

static bool by_program(struct lowered *l, const struct finish_opts *o, const char *in, const char *out, bool *missing)
{
    static const char *const names[] = { "ld.lld-22", "/usr/lib/llvm-22/bin/ld.lld", "/opt/rocm/llvm/bin/ld.lld" };
    struct ctx *c = l->c;
    struct text said = { .arena = c->arena };
    const char *status = "", *lld = tool_find(c->arena, o->assembler, "MOE_LLD", names, COUNTOF(names));
    if (!lld) {
        *missing = true;
        return error(c, (struct loc){ 0 },
                     "ld.lld not found: install it (Debian: apt-get install lld-22) or name it by MOE_LLD");
    }
    const char *argv[] = { lld, "-shared", "--threads=1", "--build-id=none", in, "-o", out, NULL };
    if (tool_run(c->arena, argv, LLD_SECONDS, &said, &status) == TOOL_OK)
        return true;
    return error(c, (struct loc){ 0 }, "%s %s%s%.400s", lld, status, said.n ? ": " : "", said.n ? said.s : "");
}

static bool link_object(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing)
{
    struct ctx *c = l->c;
    const char *in = tool_temp(c->arena, "moec-obj", l->obj, l->obj_len);
    const char *out = in ? tool_temp(c->arena, "moec-hsaco", "", 0) : NULL;
    bool ok = false;
    if (!out)
        error(c, (struct loc){ 0 }, "cannot write a temporary file for the linker: %s; set TMPDIR", strerror(errno));
    else if (amd_lld)
        ok = amd_lld(in, out) || error(c, (struct loc){ 0 }, "internal: lld refused the object");
    else
        ok = by_program(l, o, in, out, missing);
    if (ok)
        ok = tool_read(c->arena, out, code, len) ||
             error(c, (struct loc){ 0 }, "the linker wrote no output: is the disk full?");
    if (in)
        unlink(in);
    if (out)
        unlink(out);
    return ok;
}

bool amd_finish(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing)
{
    if (!link_object(l, o, code, len, missing))
        return false;
    amd_uses(l, *code, *len);
    for (int i = 0; i < l->nuses && o->warn_spills; i++)
        if (l->uses[i].spill_stores)
            warning(l->c, (struct loc){ 0 }, "kernel '%s' does not fit in %d registers a thread: %d are spilled", l->uses[i].symbol,
                    l->uses[i].regs, l->uses[i].spill_stores / 4);
    return true;
}
