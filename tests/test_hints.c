// tools/moerun_hints.c: what a file of hints holds after new measurements.
#include "../tools/moerun_hints.h"
#include "../tools/moerun.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int reports;

bool report(enum exit_status status, const char *fmt, ...)
{
    (void)status;
    (void)fmt;
    reports++;
    return false;
}

bool read_file(const char *path, char **bytes, size_t *n)
{
    FILE *f = fopen(path, "rb");
    *bytes = calloc(1, 1 << 16);
    *n = f ? fread(*bytes, 1, (1 << 16) - 1, f) : 0;
    if (f)
        fclose(f);
    return f != NULL;
}

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_hints.%ld", (long)getpid());
    reports = 0;
    return 0;
}

static int drop_path(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void write_text(const char *s)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(s, f);
    fclose(f);
}

static void expect_text(const char *want)
{
    char *text;
    size_t n;
    assert_true(read_file(path, &text, &n));
    assert_string_equal(text, want);
    free(text);
}

// rows 0: the own choice is as good.
static void measured(struct hints *f, const char *identity, int tokens, int rows, int own)
{
    struct hint h;
    char line[HINT];
    int n = snprintf(line, sizeof line, "moe-hint 1|%s|%d|%d", identity, tokens, rows ? rows : own);
    assert_true(hint_parse(line, (size_t)n, &h));
    h.rows = rows;
    h.own = own;
    assert_true(hints_put(f, &h));
}

static void merge(void **state)
{
    struct hints f;
    (void)state;
    write_text("# kept\nmoe-hint 1|b|x|8|64\nmoe-hint 1|a|x|8|64\nmoe-hint 1|a|x|16|64\nmoe-hint 1|a|y|8|32\nmoe-hint "
               "1|a|x|2|\n");
    assert_true(hints_read(&f, path));
    measured(&f, "a|x", 8, 32, 16);
    measured(&f, "a|x", 16, 0, 64); // is no longer faster
    measured(&f, "a|x", 4, 128, 16);
    assert_true(hints_write(&f, path));
    hints_free(&f);
    expect_text("# kept\nmoe-hint 1|a|x|2|\nmoe-hint 1|a|x|4|128\nmoe-hint 1|a|x|8|32\nmoe-hint 1|a|y|8|32\nmoe-hint "
                "1|b|x|8|64\n");
}

// Between two hints for one tile the library takes that tile: not where it was measured to be slower.
static void pins(void **state)
{
    struct hints f;
    (void)state;
    assert_true(hints_read(&f, path)); // no such file
    measured(&f, "a", 4, 0, 16);
    measured(&f, "a", 8, 64, 16);
    measured(&f, "a", 16, 0, 32);
    measured(&f, "a", 32, 0, 64); // its own choice is that tile
    measured(&f, "a", 64, 64, 32);
    measured(&f, "a", 128, 0, 128);
    measured(&f, "a", 256, 32, 128);
    assert_true(hints_write(&f, path));
    hints_free(&f);
    expect_text("moe-hint 1|a|8|64\nmoe-hint 1|a|16|32\nmoe-hint 1|a|64|64\nmoe-hint 1|a|256|32\n");
}

static void damaged(void **state)
{
    static const char *const lines[] = { "",
                                         "moe-hint 1|",
                                         "moe-hint 1|8|64",
                                         "moe-hint 1|a|0|64",
                                         "moe-hint 1|a|8|-1",
                                         "moe-hint 1|a|eight|64",
                                         "# moe-hint 1|a|8|64" };
    struct hint h;
    char text[2 * HINT];
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (i != 2) // of no identity, but a hint
            assert_false(hint_parse(lines[i], strlen(lines[i]), &h));
    memset(text, 'a', sizeof text);
    memcpy(text, "moe-hint 1|", 11);
    assert_false(hint_parse(text, sizeof text, &h));
}

static void cannot_write(void **state)
{
    struct hints f;
    (void)state;
    assert_true(hints_read(&f, NULL));
    measured(&f, "a", 8, 64, 16);
    assert_false(hints_write(&f, "/nonexistent/hints"));
    assert_int_equal(reports, 1);
    hints_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(merge, make_path, drop_path),
        cmocka_unit_test_setup_teardown(pins, make_path, drop_path),
        cmocka_unit_test_setup_teardown(damaged, make_path, drop_path),
        cmocka_unit_test_setup_teardown(cannot_write, make_path, drop_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
