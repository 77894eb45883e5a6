// finish.c of nvptx: how ptxas is found, run, believed and reported. Most of it runs fakes: shell scripts in a folder of
// this test, which is also $TMPDIR, so that every left-over file is seen. The last test runs the real program if there is
// one.
#include "../targets/nvptx/nvptx.h"

#include <dirent.h>
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/moec-test-XXXXXX";
static char tmp[64], fake[64], elf[64];

struct fixture {
    struct ctx c;
    struct text ptx;
    struct lowered l;
    const char *code;
    size_t len;
    bool missing;
};

static const char ptx_text[] = ".version 7.8\n.target sm_80\n.address_size 64\nbad line\n";

static void begin(struct fixture *f, const char *arch, const char *ptx)
{
    memset(f, 0, sizeof *f);
    f->c.arena = arena_new(NULL, NULL);
    f->c.file = "t.dsl";
    f->c.src = "";
    f->c.diag_tail = &f->c.diags;
    f->c.arch = arch_find(arch);
    assert_non_null(f->c.arch);
    f->ptx.arena = f->c.arena;
    text_put(&f->ptx, ptx, strlen(ptx));
    f->l = (struct lowered){ .c = &f->c, .arch = f->c.arch, .asm_text = &f->ptx };
}

static int files_in(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void end(struct fixture *f)
{
    assert_int_equal(files_in(tmp), 0);
    arena_free(f->c.arena);
}

static int severities(const struct fixture *f, enum severity s)
{
    int n = 0;
    for (const struct diag *d = f->c.diags; d; d = d->next)
        n += d->sev == s;
    return n;
}

static void says(const struct fixture *f, enum severity s, const char *text)
{
    for (const struct diag *d = f->c.diags; d; d = d->next)
        if (d->sev == s && strstr(d->text, text))
            return;
    fail_msg("no diagnostic says '%s'; the first is '%s'", text, f->c.diags ? f->c.diags->text : "");
}

static void write_file(const char *path, const void *bytes, size_t n, mode_t mode)
{
    FILE *o = fopen(path, "wb");
    assert_non_null(o);
    assert_int_equal(fwrite(bytes, 1, n, o), n);
    assert_int_equal(fclose(o), 0);
    assert_int_equal(chmod(path, mode), 0);
}

// A ptxas whose body is the given shell text; $OUT is the file it should write.
static void be(const char *body)
{
    char s[2048];
    int n =
        snprintf(s, sizeof s, "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && OUT=$2; shift; done\nELF=%s\n%s\n",
                 elf, body);
    assert_true(n > 0 && (size_t)n < sizeof s);
    write_file(fake, s, (size_t)n, 0700);
}

static bool finish(struct fixture *f, const char *assembler)
{
    struct finish_opts o = { .want = CODE_CUBIN, .assembler = assembler, .warn_spills = true };
    return nv_finish(&f->l, &o, &f->code, &f->len, &f->missing);
}

static int make_folder(void **state)
{
    Elf64_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 } };
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(tmp, sizeof tmp, "%s/tmp", dir);
    snprintf(fake, sizeof fake, "%s/ptxas", dir);
    snprintf(elf, sizeof elf, "%s/good.elf", dir);
    write_file(elf, &h, sizeof h, 0600);
    return mkdir(tmp, 0700) || setenv("TMPDIR", tmp, 1) || unsetenv("MOE_PTXAS");
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(fake);
    unlink(elf);
    return rmdir(tmp) || rmdir(dir);
}

// ---- finding it -------------------------------------------------------------------------------------------------

static void text_needs_no_program(void **state)
{
    struct fixture f;
    struct finish_opts o = { .want = CODE_PTX, .assembler = "/nowhere" };
    (void)state;
    begin(&f, "sm_80", ptx_text);
    assert_true(nv_finish(&f.l, &o, &f.code, &f.len, &f.missing));
    assert_int_equal(f.len, strlen(ptx_text));
    assert_string_equal(f.code, ptx_text);
    o.want = CODE_HSACO;
    assert_false(nv_finish(&f.l, &o, &f.code, &f.len, &f.missing));
    assert_false(f.missing);
    end(&f);
}

static void a_wrong_name_is_not_replaced(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, "/nowhere/ptxas"));
    assert_true(f.missing);
    says(&f, SEV_ERROR, "'/nowhere/ptxas', given by --ptxas");
    end(&f);
    begin(&f, "sm_80", ptx_text);
    setenv("MOE_PTXAS", tmp, 1); // a folder
    assert_false(finish(&f, NULL));
    assert_true(f.missing);
    says(&f, SEV_ERROR, "given by $MOE_PTXAS");
    unsetenv("MOE_PTXAS");
    end(&f);
}

static void the_option_beats_the_environment_beats_path(void **state)
{
    char *path = strdup(getenv("PATH")), longer[4096];
    struct fixture f;
    (void)state;
    be("cp $ELF $OUT; echo 'ptxas warning : this is the fake' >&2");
    begin(&f, "sm_80", ptx_text);
    setenv("MOE_PTXAS", "/nowhere/ptxas", 1);
    assert_true(finish(&f, fake));
    says(&f, SEV_WARNING, "this is the fake");
    end(&f);
    begin(&f, "sm_80", ptx_text);
    setenv("MOE_PTXAS", fake, 1);
    assert_true(finish(&f, NULL));
    says(&f, SEV_WARNING, "this is the fake");
    unsetenv("MOE_PTXAS");
    end(&f);
    begin(&f, "sm_80", ptx_text);
    snprintf(longer, sizeof longer, "%s:%s", dir, path);
    setenv("PATH", longer, 1);
    assert_true(finish(&f, NULL));
    says(&f, SEV_WARNING, "this is the fake");
    setenv("PATH", path, 1);
    free(path);
    end(&f);
}

// ---- what it says -----------------------------------------------------------------------------------------------

static void its_errors_are_quoted(void **state)
{
    struct fixture f;
    (void)state;
    be("echo \"ptxas $1, line 4; error   : Parsing error near 'line': syntax error\" >&2\n"
       "echo 'ptxas fatal   : Ptx assembly aborted due to errors' >&2; exit 255");
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, fake));
    assert_false(f.missing);
    assert_int_equal(severities(&f, SEV_ERROR), 2);
    says(&f, SEV_ERROR, "internal: ptxas <ptx>, line 4; error   : Parsing error near 'line': syntax error");
    says(&f, SEV_NOTE, "bad line");
    end(&f);
    be("exit 3");
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, fake));
    says(&f, SEV_ERROR, "exit status 3");
    end(&f);
}

static void serialised_wgmma_is_a_failure(void **state)
{
    struct fixture f;
    (void)state;
    be("cp $ELF $OUT; echo 'ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
       "serialized'");
    begin(&f, "sm_90a", ptx_text);
    assert_false(finish(&f, fake));
    says(&f, SEV_ERROR, "(C7510)");
    end(&f);
}

static void use_is_read(void **state)
{
    struct fixture f;
    (void)state;
    be("cp $ELF $OUT; cat >&2 <<'X'\n"
       "ptxas info    : 0 bytes gmem\n"
       "ptxas info    : Compiling entry function 'two' for 'sm_90a'\n"
       "ptxas info    : Function properties for two\n"
       "    64 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
       "ptxas info    : Function properties for helper\n"
       "    8 bytes stack frame, 9 bytes spill stores, 9 bytes spill loads\n"
       "ptxas info    : Used 168 registers, used 1 barriers, 64 bytes cumulative stack size, 1024 bytes smem, 400 "
       "bytes cmem[0]\n"
       "ptxas info    : Compiling entry function 'one' for 'sm_90a'\n"
       "ptxas info    : Function properties for one\n"
       "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
       "ptxas info    : Used 24 registers, used 0 barriers, 400 bytes cmem[0]\n"
       "X");
    begin(&f, "sm_90a", ptx_text);
    assert_true(finish(&f, fake));
    assert_int_equal(f.l.nuses, 2);
    const struct code_use *u = f.l.uses;
    assert_string_equal(u[0].symbol, "two");
    assert_true(u[0].regs == 168 && u[0].stack == 64 && u[0].spill_stores == 12 && u[0].spill_loads == 20 &&
                u[0].shared == 1024);
    assert_string_equal(u[1].symbol, "one");
    assert_true(u[1].regs == 24 && !u[1].stack && !u[1].spill_stores && !u[1].spill_loads && !u[1].shared);
    assert_int_equal(severities(&f, SEV_WARNING), 1);
    says(&f, SEV_WARNING, "'two' does not fit in 168 registers a thread: 12 bytes of spill stores, 20 of loads");
    end(&f);
}

static void long_output_is_cut(void **state)
{
    struct fixture f;
    (void)state;
    be("i=0; while [ $i -lt 3000 ]; do echo \"ptxas info    : $i "
       "................................................................"
       "..............................................................................................................."
       "."
       "..............................................................................................................."
       "."
       "..............................................................................................................."
       ".\"; "
       "i=$((i+1)); done; cp $ELF $OUT");
    begin(&f, "sm_80", ptx_text);
    assert_true(finish(&f, fake));
    assert_int_equal(f.len, sizeof(Elf64_Ehdr));
    end(&f);
}

// ---- what may go wrong ------------------------------------------------------------------------------------------

static void a_killed_program_is_an_error(void **state)
{
    struct fixture f;
    (void)state;
    be("cp $ELF $OUT; kill -9 $$");
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, fake));
    says(&f, SEV_ERROR, "signal 9");
    end(&f);
}

static void a_hanging_program_is_stopped(void **state)
{
    struct fixture f;
    time_t before = time(NULL);
    (void)state;
    be("exec sleep 60");
    begin(&f, "sm_80", ptx_text);
    assert_false(nv_assemble(&f.l, fake, 1, &f.code, &f.len));
    assert_true(time(NULL) - before < 20);
    says(&f, SEV_ERROR, "within 1 second");
    end(&f);
}

static void half_a_cubin_is_refused(void **state)
{
    static const char *const bodies[] = { "true", "printf garbage > $OUT", "head -c 40 $ELF > $OUT", "rm -f $OUT" };
    (void)state;
    for (size_t i = 0; i < COUNTOF(bodies); i++) {
        struct fixture f;
        be(bodies[i]);
        begin(&f, "sm_80", ptx_text);
        assert_false(finish(&f, fake));
        says(&f, SEV_ERROR, "no complete cubin");
        end(&f);
    }
    // A header that promises sections past the end.
    Elf64_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_shoff = 64, .e_shnum = 2, .e_shentsize = 64 };
    struct fixture f;
    write_file(elf, &h, sizeof h, 0600);
    be("cp $ELF $OUT");
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, fake));
    end(&f);
    h.e_shnum = 0;
    write_file(elf, &h, sizeof h, 0600);
}

static void not_a_program(void **state)
{
    struct fixture f;
    (void)state;
    write_file(fake,
               "\x7f"
               "ELF nonsense",
               13, 0700);
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, fake));
    says(&f, SEV_ERROR, fake);
    end(&f);
}

static void no_room_for_files(void **state)
{
    struct fixture f;
    (void)state;
    be("cp $ELF $OUT");
    begin(&f, "sm_80", ptx_text);
    setenv("TMPDIR", "/nowhere/at/all", 1);
    assert_false(finish(&f, fake));
    setenv("TMPDIR", tmp, 1);
    says(&f, SEV_ERROR, "temporary file");
    assert_false(f.missing);
    end(&f);
}

// ---- the real one -----------------------------------------------------------------------------------------------

static void the_real_program(void **state)
{
    static const char *const arches[][2] = { { "sm_80", "7.8" }, { "sm_90a", "8.6" }, { "sm_100a", "8.8" } };
    static const char *const names[] = { "ptxas", "/usr/local/cuda/bin/ptxas" };
    struct fixture f;
    (void)state;
    begin(&f, "sm_80", ptx_text);
    for (size_t i = 0, found = 0; i < COUNTOF(names) && !found; i++)
        if (finish(&f, names[i]) || !f.missing)
            found = 1;
    bool have = !f.missing;
    end(&f);
    if (!have)
        skip();
    begin(&f, "sm_80", ptx_text);
    assert_false(finish(&f, NULL));
    says(&f, SEV_ERROR, "<ptx>, line 4;");
    says(&f, SEV_NOTE, "bad line");
    end(&f);
    for (size_t i = 0; i < COUNTOF(arches); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 ".version %s\n.target %s\n.address_size 64\n.visible .entry k()\n.maxntid 64, 1, 1\n{\n"
                 ".shared .b8 s[512];\n.reg .b32 %%r<3>;\nmov.u32 %%r1, s;\nst.shared.b32 [%%r1], %%r1;\n"
                 "bar.sync 0;\nret;\n}\n",
                 arches[i][1], arches[i][0]);
        begin(&f, arches[i][0], text);
        assert_true(finish(&f, NULL));
        assert_int_equal(f.l.nuses, 1);
        assert_string_equal(f.l.uses[0].symbol, "k");
        assert_in_range(f.l.uses[0].regs, 1, 64);
        assert_int_equal(f.l.uses[0].spill_stores, 0);
        assert_true(f.len > 500 && !memcmp(f.code, ELFMAG, SELFMAG));
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_needs_no_program),
        cmocka_unit_test(a_wrong_name_is_not_replaced),
        cmocka_unit_test(the_option_beats_the_environment_beats_path),
        cmocka_unit_test(its_errors_are_quoted),
        cmocka_unit_test(serialised_wgmma_is_a_failure),
        cmocka_unit_test(use_is_read),
        cmocka_unit_test(long_output_is_cut),
        cmocka_unit_test(a_killed_program_is_an_error),
        cmocka_unit_test(a_hanging_program_is_stopped),
        cmocka_unit_test(half_a_cubin_is_refused),
        cmocka_unit_test(not_a_program),
        cmocka_unit_test(no_room_for_files),
        cmocka_unit_test(the_real_program),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
