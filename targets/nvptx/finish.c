// PTX text -> what the image holds: the text itself, or a cubin made by the ptxas program.
//
// In: the PTX of one module (all its kernels). Out: the code in the arena, diagnostics, and what each kernel takes
// (l->uses). No nvJitLink: it ignores setmaxnreg. What ptxas says is used for messages and reports only; that its output
// is a complete cubin is checked here.
#include "../tool.h"
#include "nvptx.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PTXAS_SECONDS = 120, // a compile takes 0.02 to 2
    LINES_MAX = 20,      // error lines that become diagnostics
};
static const struct loc nowhere = { 0 };

// By --ptxas (given), $MOE_PTXAS, PATH, /usr/local/cuda; what a user names is used or refused, never replaced.
static const char *find_ptxas(struct ctx *c, const char *given)
{
    static const char *const names[] = { "ptxas", "/usr/local/cuda/bin/ptxas" };
    const char *env = getenv("MOE_PTXAS"), *found = tool_find(c->arena, given, "MOE_PTXAS", names, COUNTOF(names));
    if (found)
        return found;
    if (given || (env && *env))
        error(c, nowhere, "ptxas: '%s', given by %s, is not a program that can be run", given ? given : env,
              given ? "--ptxas" : "$MOE_PTXAS");
    else
        error(c, nowhere,
              "ptxas is needed to make a cubin and was found neither in PATH nor in /usr/local/cuda/bin: install the "
              "CUDA toolkit, or name the program by --ptxas or $MOE_PTXAS, or emit PTX, which the driver compiles at "
              "load");
    return NULL;
}

// A full disk can leave half a file behind exit status 0.
static bool complete_elf(const char *s, size_t n)
{
    Elf64_Ehdr h;
    if (n < sizeof h)
        return false;
    memcpy(&h, s, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64)
        return false;
    return h.e_shoff <= n && (uint64_t)h.e_shnum * h.e_shentsize <= n - h.e_shoff && h.e_phoff <= n &&
           (uint64_t)h.e_phnum * h.e_phentsize <= n - h.e_phoff;
}

// ---- what it said ------------------------------------------------------------------------------------------------

static bool has(const char *line, const char *what)
{
    return strstr(line, what) != NULL;
}

static struct code_use *use_of(struct lowered *l, const char *name, size_t n)
{
    for (int i = 0; i < l->nuses; i++)
        if (strlen(l->uses[i].symbol) == n && !memcmp(l->uses[i].symbol, name, n))
            return &l->uses[i];
    return NULL;
}

// "ptxas info    : Compiling entry function 'k' for 'sm_90a'"
static struct code_use *begin_use(struct lowered *l, const char *line)
{
    const char *s = strchr(line, '\''), *e = s ? strchr(s + 1, '\'') : NULL;
    if (!e)
        return NULL;
    struct code_use *u = use_of(l, s + 1, (size_t)(e - s - 1));
    if (u)
        return u;
    struct code_use *grown = NEWN(l->c->arena, struct code_use, l->nuses + 1);
    if (l->nuses)
        memcpy(grown, l->uses, sizeof *grown * (size_t)l->nuses);
    l->uses = grown;
    u = &grown[l->nuses++];
    *u = (struct code_use){ .symbol = arena_strndup(l->c->arena, s + 1, (size_t)(e - s - 1)), .regs = -1 };
    return u;
}

// Lines after it: "Function properties for k", "    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads",
// "ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem". Functions that a kernel calls have properties too.
static void parse_line(struct lowered *l, const char *line, struct code_use **now, struct code_use **props)
{
    static const char of[] = "Function properties for ";
    const char *s;
    int stack, stores, loads, regs;
    if (has(line, "Compiling entry function")) {
        *now = begin_use(l, line);
        *props = NULL;
    } else if ((s = strstr(line, of))) {
        *props = use_of(l, s + strlen(of), strlen(s + strlen(of)));
    } else if (*props && sscanf(line, " %d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack,
                                &stores, &loads) == 3) {
        (*props)->stack = stack;
        (*props)->spill_stores = stores;
        (*props)->spill_loads = loads;
        *props = NULL;
    } else if (*now && (s = strstr(line, "Used ")) && sscanf(s, "Used %d registers", &regs) == 1) {
        (*now)->regs = regs;
        if ((s = strstr(line, " bytes smem"))) {
            while (s > line && s[-1] >= '0' && s[-1] <= '9')
                s--;
            (*now)->shared = strtoll(s, NULL, 10);
        }
        *now = NULL;
    }
}

// "... line 12; error : ...": the text of that line of the PTX.
static void quote_ptx(struct ctx *c, const char *ptx, const char *message)
{
    const char *s = strstr(message, ", line ");
    long n = s ? strtol(s + 7, NULL, 10) : 0;
    for (; n > 1 && ptx; n--) {
        ptx = strchr(ptx, '\n');
        ptx = ptx ? ptx + 1 : NULL;
    }
    if (n == 1 && ptx && *ptx)
        note(c, nowhere, "that line is: %.*s", (int)strcspn(ptx, "\n"), ptx);
}

// The line without the name of the temporary file, so that messages do not differ from run to run.
static const char *tidy(struct ctx *c, const char *line, const char *file)
{
    const char *s = strstr(line, file);
    return s ? arena_printf(c->arena, "%.*s<ptx>%s", (int)(s - line), line, s + strlen(file)) : line;
}

// (C75xx): wgmma is serialised, waits are injected or setmaxnreg is ignored: correct but slow code, and never wanted.
// ptxas calls it information and exits with 0.
enum told { TOLD_NOTHING, TOLD_WARNING, TOLD_ERROR, TOLD_SLOW };
static enum told kind_of(const char *line)
{
    if (has(line, "(C75"))
        return TOLD_SLOW;
    if (has(line, "error ") || has(line, "error:") || has(line, "fatal "))
        return TOLD_ERROR;
    return has(line, "warning ") ? TOLD_WARNING : TOLD_NOTHING;
}

// false: some line is an error.
static bool read_log(struct lowered *l, const struct text *said, const char *file)
{
    struct ctx *c = l->c;
    struct code_use *now = NULL, *props = NULL;
    int errors = 0;
    for (const char *at = said->n ? said->s : "", *end; *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        const char *line = arena_strndup(c->arena, at, (size_t)(end - at));
        parse_line(l, line, &now, &props);
        enum told k = kind_of(line);
        if (k == TOLD_NOTHING || (k == TOLD_WARNING && has(line, "Registers are spilled")))
            continue;
        const char *text = tidy(c, line, file);
        if (k == TOLD_WARNING) {
            warning(c, nowhere, "%s", text);
        } else if (errors++ < LINES_MAX) {
            error(c, nowhere, "internal: %s%s", text,
                  k == TOLD_SLOW ? " (the generated code must not provoke this)" : "");
            quote_ptx(c, l->asm_text->s, line);
        }
    }
    return errors == 0;
}

static void warn_spills(struct lowered *l)
{
    for (int i = 0; i < l->nuses; i++)
        if (l->uses[i].spill_stores || l->uses[i].spill_loads)
            warning(l->c, nowhere,
                    "kernel '%s' does not fit in %d registers a thread: %d bytes of spill stores, %d of loads",
                    l->uses[i].symbol, l->uses[i].regs, l->uses[i].spill_stores, l->uses[i].spill_loads);
}

// ---- together ----------------------------------------------------------------------------------------------------

struct outcome {
    enum tool_end end;
    struct text said;
    const char *status;
    bool whole; // a complete cubin was read
};

static void run(struct lowered *l, const char *program, int seconds, const char *ptx, const char *cubin,
                struct outcome *o, const char **code, size_t *len)
{
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=%s", l->arch->cpu);
    const char *argv[] = { program, arch, "-O3", "-v", "-o", cubin, ptx, l->lineinfo ? "-lineinfo" : NULL, NULL };
    o->end = tool_run(l->c->arena, argv, seconds, &o->said, &o->status);
    o->whole = tool_read(l->c->arena, cubin, code, len) && complete_elf(*code, *len);
}

static bool judge(struct lowered *l, const char *program, const char *ptx, const struct outcome *o)
{
    struct ctx *c = l->c;
    int had = c->errors;
    bool clean = read_log(l, &o->said, ptx);
    if (o->end != TOOL_OK && (o->end != TOOL_FAILED || c->errors == had))
        return error(c, nowhere, "%s %s%s%.400s", program, o->status, o->said.n ? ": " : "",
                     o->said.n ? o->said.s : "");
    if (clean && !o->whole)
        return error(c, nowhere, "%s left no complete cubin (is $TMPDIR full?)", program);
    return clean;
}

bool nv_assemble(struct lowered *l, const char *program, int seconds, const char **code, size_t *len)
{
    struct outcome o = { .said = { .arena = l->c->arena }, .status = "" };
    const char *ptx = tool_temp(l->c->arena, "moec-ptx", l->asm_text->s, l->asm_text->n);
    const char *cubin = ptx ? tool_temp(l->c->arena, "moec-cubin", "", 0) : NULL;
    int why = errno;
    if (cubin)
        run(l, program, seconds, ptx, cubin, &o, code, len);
    if (ptx)
        unlink(ptx);
    if (cubin)
        unlink(cubin);
    if (!cubin)
        return error(l->c, nowhere, "cannot write a temporary file for ptxas: %s (see $TMPDIR)", strerror(why));
    return judge(l, program, ptx, &o); // only now: an error may end the compile
}

bool nv_finish(struct lowered *l, const struct finish_opts *o, const char **code, size_t *len, bool *missing)
{
    *missing = false;
    if (!l->asm_text || !l->asm_text->n)
        return error(l->c, nowhere, "internal: there is no PTX to finish");
    if (o->want == CODE_PTX) { // the text ends with a NUL, as the driver's loader wants; it is not counted
        *code = l->asm_text->s;
        *len = l->asm_text->n;
        return true;
    }
    if (o->want != CODE_CUBIN)
        return error(l->c, nowhere, "internal: nvptx makes PTX and cubins only");
    const char *program = find_ptxas(l->c, o->assembler);
    if (!program) {
        *missing = true;
        return false;
    }
    if (!nv_assemble(l, program, PTXAS_SECONDS, code, len))
        return false;
    if (o->warn_spills)
        warn_spills(l);
    return true;
}
