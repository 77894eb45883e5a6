// tools/moerun_svg.c: well-formed, every point within its frame, no label over another.
#include "../tools/moerun_svg.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 16 * 14 * 2 };
static struct plot_point points[MANY];

static char *draw(const struct plot_point *p, int n, double tflops, double gbps)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    const struct plot plot = { "a < b & \"c\"", "under", tflops, gbps, "measured", "measured", p, n };
    assert_true(plot_write(&plot, f));
    fclose(f);
    return text;
}

// Every tag is closed by its own name; attributes have two quotes; '&' begins a number.
static void well_formed(const char *s)
{
    char open[16][32];
    int depth = 0, elements = 0;
    for (; *s; s++) {
        assert_false(*s == '&' && s[1] != '#');
        if (*s != '<')
            continue;
        const char *end = strchr(s, '>');
        char name[32];
        int quotes = 0;
        assert_non_null(end);
        for (const char *q = s; q < end; q++)
            quotes += *q == '"';
        assert_int_equal(quotes % 2, 0);
        assert_int_equal(sscanf(s + 1, "%31[/a-z]", name), 1);
        if (name[0] == '/') {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name + 1);
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            strcpy(open[depth++], name);
        }
        elements++;
        s = end;
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 10);
}

struct rectangle {
    double x, y, w, h;
};

static int frames(const char *s, struct rectangle *r)
{
    int n = 0;
    for (; (s = strstr(s, "<rect class=\"frame\"")); s++, n++) {
        assert_true(n < 2);
        assert_int_equal(sscanf(s, "<rect class=\"frame\" x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &r[n].x,
                                &r[n].y, &r[n].w, &r[n].h),
                         4);
    }
    return n;
}

// How many there are; each lies in one of the frames.
static int points_inside(const char *s)
{
    struct rectangle r[2];
    int n = 0;
    assert_int_equal(frames(s, r), 2);
    for (; (s = strstr(s, "<path class=\"point\"")); s++, n++) {
        double x, y;
        int in = 0;
        assert_int_equal(sscanf(s, "<path class=\"point\" transform=\"translate(%lf %lf)\"", &x, &y), 2);
        for (int i = 0; i < 2; i++)
            in += x > r[i].x && x < r[i].x + r[i].w && y > r[i].y && y < r[i].y + r[i].h;
        assert_int_equal(in, 1);
    }
    return n;
}

static void no_nonsense(const char *s)
{
    assert_null(strstr(s, "nan"));
    assert_null(strstr(s, "inf"));
}

// Labels of points: texts of size 12 that begin at their place and are digits only.
static void labels_apart(const char *s)
{
    enum { LABELS = 512 };
    static struct rectangle r[LABELS];
    int n = 0;
    for (; (s = strstr(s, "<text x=")); s++) {
        char number[8], after;
        struct rectangle q = { .h = 10 };
        if (sscanf(s,
                   "<text x=\"%lf\" y=\"%lf\" font-size=\"12\" text-anchor=\"start\" fill=\"#%*6[0-9a-f]\">%7[0-9]%c",
                   &q.x, &q.y, number, &after) != 4 ||
            after != '<')
            continue;
        q.w = 6.6 * (double)strlen(number);
        for (int i = 0; i < n; i++)
            assert_false(q.x < r[i].x + r[i].w && r[i].x < q.x + q.w && fabs(q.y - r[i].y) < q.h);
        assert_true(n < LABELS);
        r[n++] = q;
    }
    assert_true(n > 0);
}

static struct plot_point point(const char *model, int tokens, double flops, double bytes, double slower, bool warm)
{
    double a = flops / 794e9, b = bytes / 4300e6, least = a > b ? a : b, ms = least * slower;
    return (struct plot_point){ model, tokens, warm, ms, ms * 0.97, ms * 1.05, flops, bytes, least };
}

static void many(void **state)
{
    static const char *const names[] = { "one", "two",   "three", "four<&>", "five",
                                         "six", "seven", "eight", "nine",    "ten" };
    int n = 0;
    (void)state;
    for (int m = 0; m < 10; m++)
        for (int t = 0; t < 14; t++)
            for (int warm = 0; warm < 2; warm++)
                points[n++] = point(names[m], 1 << t, 1e8 * (1 << t) * (m + 1), 2e8 * (1 + m) + 8e3 * (1 << t),
                                    1.1 + 0.1 * m, warm);
    char *s = draw(points, n, 794, 4300);
    well_formed(s);
    no_nonsense(s);
    labels_apart(s);
    assert_int_equal(points_inside(s), 2 * n);
    free(s);
}

// Of two tiles for the same T the faster one; nothing that has no logarithm.
static void odd(void **state)
{
    struct plot_point p[] = { point("m", 8, 1e9, 1e8, 1.2, false),  point("m", 8, 1e9, 1e8, 1.5, false),
                              point("m", 16, 0, 1e8, 1, false),     point("m", 0, 1e9, 1e8, 1, false),
                              point("m", 32, NAN, 1e8, 1, false),   point("far", 1 << 24, 1e18, 1e3, 1, false),
                              point("slow", 1, 1e3, 1e9, 1e6, true) };
    (void)state;
    p[6].floor_ms = 0;
    char *s = draw(p, 7, 794, 4300);
    well_formed(s);
    no_nonsense(s);
    assert_int_equal(points_inside(s), 2 * 3);
    free(s);
    s = draw(p, 1, 794, 4300);
    assert_int_equal(points_inside(s), 2);
    free(s);
    s = draw(NULL, 0, 1e-5, 1e-2);
    well_formed(s);
    no_nonsense(s);
    free(s);
}

static void faster_than_the_roof(void **state)
{
    struct plot_point p = point("m", 8, 1e13, 1e8, 0.1, false);
    (void)state;
    char *s = draw(&p, 1, 794, 4300);
    assert_int_equal(points_inside(s), 2);
    free(s);
}

static void refused(void **state)
{
    const struct plot none = { .title = "", .subtitle = "" };
    FILE *f = fopen("/dev/full", "w");
    struct plot_point p = point("m", 8, 1e9, 1e8, 1.2, false);
    const struct plot one = { "t", "s", 794, 4300, "", "", &p, 1 };
    (void)state;
    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    assert_false(plot_write(&none, f));
    assert_false(plot_write(&one, f));
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many),
        cmocka_unit_test(odd),
        cmocka_unit_test(faster_than_the_roof),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
