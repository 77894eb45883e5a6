// A bench as one SVG: on the left the roofline, on the right the time by the number of tokens; both axes logarithmic.
// Colours are those of Okabe and Ito, told apart by colour-blind readers too; each model has a marker of its own besides.
// Labels are placed greedily: the first of several places around their point that is free; where none is, the label is left
// out (the point's tooltip says it all).
#include "moerun_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1280, HEIGHT = 660, SERIES_MAX = 64, BOXES_MAX = 4096, FONT = 13, SMALL = 12, COLOURS = 7 };
static const char *const colours[COLOURS] = { "#0072b2", "#d55e00", "#009e73", "#a3478a",
                                              "#b07d00", "#3a8fc7", "#333333" };
static const char *const markers[COLOURS] = {
    "M5 0A5 5 0 1 1 -5 0A5 5 0 1 1 5 0Z",
    "M-4.4 -4.4H4.4V4.4H-4.4Z",
    "M0 -5.6L5.3 4H-5.3Z",
    "M0 -6L6 0L0 6L-6 0Z",
    "M0 5.6L5.3 -4H-5.3Z",
    "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
    "M-5.5 -3H5.5V3H-5.5Z",
};

struct box {
    double x0, y0, x1, y1;
};
struct axis { // lo .. hi -> from .. to, in pixels
    double lo, hi, from, to;
};
struct panel {
    struct axis x, y;
};
struct series {
    const char *model;
    bool warm;
    int look;     // index of colour and marker
    int first, n; // of point[]
};
struct drawing {
    FILE *f;
    const struct plot *p;
    struct plot_point *point; // drawable ones, sorted: series by series, T ascending
    int n;
    struct series series[SERIES_MAX];
    int nseries;
    struct box *taken;
    int ntaken;
    double top; // of the panels
};

// ---- text and boxes -------------------------------------------------------------------------------------------------

static double width_of(const char *s, int size)
{
    return 0.57 * size * (double)strlen(s);
}

static void escaped(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f)
            fputc(*s, f);
        else
            fputc('?', f);
    }
}

static void text(struct drawing *g, double x, double y, int size, const char *anchor, const char *fill, const char *s)
{
    fprintf(g->f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">", x, y, size, anchor,
            fill);
    escaped(g->f, s);
    fputs("</text>\n", g->f);
}

static void turned(struct drawing *g, double x, double y, double degrees, int size, const char *anchor,
                   const char *fill, const char *s)
{
    fprintf(g->f,
            "<text transform=\"translate(%.1f %.1f) rotate(%.1f)\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">", x,
            y, degrees, size, anchor, fill);
    escaped(g->f, s);
    fputs("</text>\n", g->f);
}

static void take(struct drawing *g, double x0, double y0, double x1, double y1)
{
    if (g->ntaken < BOXES_MAX)
        g->taken[g->ntaken++] = (struct box){ x0, y0, x1, y1 };
}

static bool is_free(const struct drawing *g, const struct box *b)
{
    for (int i = 0; i < g->ntaken; i++) {
        const struct box *t = &g->taken[i];
        if (b->x0 < t->x1 && t->x0 < b->x1 && b->y0 < t->y1 && t->y0 < b->y1)
            return false;
    }
    return true;
}

// A label beside (x, y), within the panel, where nothing else is.
static void label(struct drawing *g, const struct panel *a, double x, double y, const char *fill, const char *s)
{
    static const struct {
        double dx, dy, part; // part of the width that is left of x
    } places[] = { { 9, 4, 0 },  { 8, 15, 0 },   { 0, 20, .5 }, { -9, 4, 1 },  { -8, 15, 1 },  { 9, -2, 0 },
                   { 8, -7, 0 }, { 0, -10, .5 }, { -8, -7, 1 }, { 16, 10, 0 }, { -16, -10, 1 } };
    double w = width_of(s, SMALL);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        double left = x + places[i].dx - places[i].part * w, base = y + places[i].dy;
        struct box b = { left - 1, base - 10, left + w + 1, base + 2 };
        if (b.x0 < a->x.from + 2 || b.x1 > a->x.to - 2 || b.y1 > a->y.from - 2 || b.y0 < a->y.to + 2 || !is_free(g, &b))
            continue;
        take(g, b.x0, b.y0, b.x1, b.y1);
        text(g, left, base, SMALL, "start", fill, s);
        return;
    }
}

// ---- axes -------------------------------------------------------------------------------------------------------------

static double at(const struct axis *a, double v)
{
    return a->from + (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo)) * (a->to - a->from);
}

static void include(struct axis *a, double v)
{
    a->lo = v < a->lo ? v : a->lo;
    a->hi = v > a->hi ? v : a->hi;
}

// Room around what is shown; at least `least` from end to end.
static void widen(struct axis *a, double below, double above, double least)
{
    a->lo /= below;
    a->hi *= above;
    if (a->hi / a->lo < least) {
        double middle = sqrt(a->lo * a->hi);
        a->lo = middle / sqrt(least);
        a->hi = middle * sqrt(least);
    }
}

static void tick(struct drawing *g, const struct panel *p, bool vertical, double v, bool major, bool named)
{
    const struct axis *a = vertical ? &p->y : &p->x, *other = vertical ? &p->x : &p->y;
    double q = at(a, v);
    char s[32];
    const char *colour = major ? "#d5d8dc" : "#eef0f2";
    if (vertical)
        fprintf(g->f, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"%s\"/>\n", other->from, q, other->to, colour);
    else
        fprintf(g->f, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", q, other->from, other->to, colour);
    if (!named)
        return;
    snprintf(s, sizeof s, v >= 1e6 || v < 1e-4 ? "%.0e" : "%.10g", v);
    if (vertical)
        text(g, other->from - 8, q + 4, FONT, "end", "#333", s);
    else
        text(g, q, other->from + 19, FONT, "middle", "#333", s);
}

// Powers of ten, with 2 and 5 between where there is room, and faint lines at the other digits.
static void decades(struct drawing *g, const struct panel *p, bool vertical)
{
    const struct axis *a = vertical ? &p->y : &p->x;
    double span = log10(a->hi / a->lo);
    for (int e = (int)floor(log10(a->lo)); e <= (int)ceil(log10(a->hi)); e++)
        for (int d = 1; d < 10; d++) {
            double v = d * pow(10, e);
            bool round = d == 1 || (span < 2.6 && (d == 2 || d == 5));
            if (v >= a->lo * 0.9999 && v <= a->hi * 1.0001 && (round || span < 5))
                tick(g, p, vertical, v, d == 1, round);
        }
}

static void powers_of_two(struct drawing *g, const struct panel *p)
{
    int every = 1;
    double octave = (p->x.to - p->x.from) / log2(p->x.hi / p->x.lo);
    while (octave * every < 36)
        every++;
    int first = (int)ceil(log2(p->x.lo) - 1e-6);
    for (int e = first; e <= (int)floor(log2(p->x.hi) + 1e-6); e++)
        tick(g, p, false, pow(2, e), true, e % every == 0);
}

static void frame(struct drawing *g, const struct panel *p, const char *title, const char *x, const char *y)
{
    double middle = (p->x.from + p->x.to) / 2;
    fprintf(
        g->f,
        "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#888\"/>\n",
        p->x.from, p->y.to, p->x.to - p->x.from, p->y.from - p->y.to);
    text(g, p->x.from, p->y.to - 10, 15, "start", "#111", title);
    text(g, middle, p->y.from + 44, FONT, "middle", "#333", x);
    turned(g, p->x.from - 54, (p->y.from + p->y.to) / 2, -90, FONT, "middle", "#333", y);
}

// ---- points -----------------------------------------------------------------------------------------------------------

static bool drawable(const struct plot_point *q)
{
    double all[] = { q->ms, q->p10, q->p90, q->flops, q->bytes };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!(all[i] > 0) || !isfinite(all[i]))
            return false;
    return q->tokens > 0 && q->model;
}

static void marker(struct drawing *g, const struct series *s, const struct plot_point *q, double x, double y)
{
    const char *colour = colours[s->look % COLOURS];
    fprintf(g->f,
            "<path class=\"point\" transform=\"translate(%.1f %.1f)\" d=\"%s\" fill=\"%s\" stroke=\"%s\" "
            "stroke-width=\"%s\"><title>",
            x, y, markers[(s->look + s->look / COLOURS) % COLOURS], s->warm ? "#ffffff" : colour,
            s->warm ? colour : "#ffffff", s->warm ? "1.6" : "0.9");
    escaped(g->f, q->model);
    fprintf(g->f, ", T = %d, L2 %s: %.4g ms (%.4g to %.4g), %.4g TFLOP/s, %.4g GB/s, %.3g FLOP/byte", q->tokens,
            q->warm ? "warm" : "cold", q->ms, q->p10, q->p90, q->flops / q->ms * 1e-9, q->bytes / q->ms * 1e-6,
            q->flops / q->bytes);
    if (q->floor_ms > 0)
        fprintf(g->f, ", %.2f floors", q->ms / q->floor_ms);
    fputs("</title></path>\n", g->f);
}

static int series_of(struct drawing *g, const struct plot_point *q)
{
    int look = -1, looks = 0;
    for (int i = 0; i < g->nseries; i++) {
        const struct series *s = &g->series[i];
        looks = s->look >= looks ? s->look + 1 : looks;
        if (!strcmp(s->model, q->model)) {
            look = s->look;
            if (s->warm == q->warm)
                return i;
        }
    }
    if (g->nseries == SERIES_MAX)
        return -1;
    g->series[g->nseries] = (struct series){ q->model, q->warm, look >= 0 ? look : looks, 0, 0 };
    return g->nseries++;
}

static int by_tokens(const void *a, const void *b)
{
    const struct plot_point *x = a, *y = b;
    return x->tokens != y->tokens ? (x->tokens < y->tokens ? -1 : 1) : x->ms < y->ms ? -1 : x->ms > y->ms;
}

// The drawable points, series by series; of equal T the fastest.
static void gather(struct drawing *g)
{
    const struct plot *p = g->p;
    for (int i = 0; i < p->n; i++)
        if (drawable(&p->points[i]))
            series_of(g, &p->points[i]);
    for (int s = 0; s < g->nseries; s++) {
        struct series *t = &g->series[s];
        struct plot_point *mine = g->point + g->n;
        int n = 0, kept = 0;
        for (int i = 0; i < p->n; i++)
            if (drawable(&p->points[i]) && series_of(g, &p->points[i]) == s)
                mine[n++] = p->points[i];
        qsort(mine, (size_t)n, sizeof *mine, by_tokens);
        for (int i = 0; i < n; i++)
            if (!kept || mine[kept - 1].tokens != mine[i].tokens)
                mine[kept++] = mine[i];
        t->first = g->n;
        t->n = kept;
        g->n += kept;
    }
}

// ---- the roofline -----------------------------------------------------------------------------------------------------

static void ceilings(struct drawing *g, const struct panel *a)
{
    const struct plot *p = g->p;
    double ridge = p->tflops * 1e3 / p->gbps, x = at(&a->x, ridge), y = at(&a->y, p->tflops);
    double left = a->x.lo * p->gbps * 1e-3 < a->y.lo ? a->y.lo * 1e3 / p->gbps : a->x.lo;
    double x0 = at(&a->x, left), y0 = at(&a->y, left * p->gbps * 1e-3), length = hypot(x - x0, y - y0);
    double degrees = atan2(y - y0, x - x0) * 180 / acos(-1), c = (x - x0) / length, s = (y - y0) / length;
    char line[160];
    fprintf(g->f, "<path d=\"M%.1f %.1fL%.1f %.1fH%.1f\" fill=\"none\" stroke=\"#222\" stroke-width=\"2\"/>\n", x0, y0,
            x, y, a->x.to);
    snprintf(line, sizeof line, p->tflops < 100 ? "%.4g TFLOP/s (%s)" : "%.0f TFLOP/s (%s)", p->tflops, p->tflops_from);
    double w = width_of(line, SMALL);
    text(g, a->x.to - 8, y - 8, SMALL, "end", "#222", line);
    take(g, a->x.to - 8 - w, y - 22, a->x.to, y - 4);
    snprintf(line, sizeof line, p->gbps < 100 ? "%.4g GB/s (%s)" : "%.0f GB/s (%s)", p->gbps, p->gbps_from);
    w = width_of(line, SMALL);
    double start = length * 0.5 - w / 2;
    start = start < 6 ? 6 : start;
    turned(g, x0 + start * c + 8 * s, y0 + start * s - 8 * c, degrees, SMALL, "start", "#222", line);
    for (double t = 0; t < length; t += 4) // no label may cross the roof
        take(g, x0 + t * c - 2, y0 + t * s - 3, x0 + t * c + 2, y0 + t * s + 3);
    take(g, x, y - 3, a->x.to, y + 3);
    for (double t = start; t < start + w; t += 6)
        take(g, x0 + t * c + 14 * s - 4, y0 + t * s - 14 * c - 5, x0 + t * c + 10, y0 + t * s - 1);
}

static void series_on_roof(struct drawing *g, const struct panel *a, const struct series *s)
{
    const char *colour = colours[s->look % COLOURS];
    fputs("<path d=\"", g->f);
    for (int i = s->first; i < s->first + s->n; i++)
        fprintf(g->f, "%c%.1f %.1f", i == s->first ? 'M' : 'L', at(&a->x, g->point[i].flops / g->point[i].bytes),
                at(&a->y, g->point[i].flops / g->point[i].ms * 1e-9));
    fprintf(g->f, "\" fill=\"none\" stroke=\"%s\" stroke-opacity=\"0.35\"/>\n", colour);
    for (int i = s->first; i < s->first + s->n; i++) {
        const struct plot_point *q = &g->point[i];
        char number[32];
        double x = at(&a->x, q->flops / q->bytes), y = at(&a->y, q->flops / q->ms * 1e-9);
        marker(g, s, q, x, y);
        snprintf(number, sizeof number, "%d", q->tokens);
        label(g, a, x, y, colour, number);
    }
}

static void roofline(struct drawing *g)
{
    const struct plot *p = g->p;
    double ridge = p->tflops * 1e3 / p->gbps;
    struct panel a = { { ridge, ridge, 84, 610 }, { p->tflops, p->tflops, HEIGHT - 70, g->top } };
    for (int i = 0; i < g->n; i++) {
        include(&a.x, g->point[i].flops / g->point[i].bytes);
        include(&a.y, g->point[i].flops / g->point[i].ms * 1e-9);
    }
    include(&a.x, ridge / 20); // the slope has room for its label
    include(&a.y, p->tflops / 20);
    widen(&a.x, 1.6, 4, 30);
    widen(&a.y, 1.8, 1.9, 30);
    fprintf(g->f, "<g stroke-width=\"1\">\n");
    decades(g, &a, false);
    decades(g, &a, true);
    fputs("</g>\n", g->f);
    ceilings(g, &a);
    for (int i = 0; i < g->n; i++) {
        double x = at(&a.x, g->point[i].flops / g->point[i].bytes),
               y = at(&a.y, g->point[i].flops / g->point[i].ms * 1e-9);
        take(g, x - 6, y - 6, x + 6, y + 6);
    }
    for (int s = 0; s < g->nseries; s++)
        series_on_roof(g, &a, &g->series[s]);
    frame(g, &a, "Roofline (numbers: tokens T)", "FLOP per byte of the layer", "TFLOP/s");
}

// ---- time by tokens ---------------------------------------------------------------------------------------------------

static void line_of(struct drawing *g, const struct panel *a, const struct series *s, bool floor_line)
{
    const char *colour = colours[s->look % COLOURS];
    const char *dash = floor_line ? " stroke-dasharray=\"6 5\"" : s->warm ? " stroke-dasharray=\"2 3\"" : "";
    bool any = false;
    fputs("<path d=\"", g->f);
    for (int i = s->first; i < s->first + s->n; i++) {
        const struct plot_point *q = &g->point[i];
        double v = floor_line ? q->floor_ms : q->ms;
        if (v > 0 && isfinite(v))
            fprintf(g->f, "%c%.1f %.1f", any ? 'L' : 'M', at(&a->x, q->tokens), at(&a->y, v));
        any = any || (v > 0 && isfinite(v));
    }
    fprintf(g->f, "%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", any ? "" : "M0 0", colour,
            floor_line ? "1.3" : "2", dash);
}

static void band(struct drawing *g, const struct panel *a, const struct series *s)
{
    fputs("<path d=\"", g->f);
    for (int i = s->first; i < s->first + s->n; i++)
        fprintf(g->f, "%c%.1f %.1f", i == s->first ? 'M' : 'L', at(&a->x, g->point[i].tokens),
                at(&a->y, g->point[i].p90));
    for (int i = s->first + s->n - 1; i >= s->first; i--)
        fprintf(g->f, "L%.1f %.1f", at(&a->x, g->point[i].tokens), at(&a->y, g->point[i].p10));
    fprintf(g->f, "Z\" fill=\"%s\" fill-opacity=\"0.22\"/>\n", colours[s->look % COLOURS]);
}

static void times(struct drawing *g)
{
    struct panel a = { { 1e30, 0, 724, 1250 }, { 1e30, 0, HEIGHT - 70, g->top } };
    for (int i = 0; i < g->n; i++) {
        const struct plot_point *q = &g->point[i];
        include(&a.x, q->tokens);
        include(&a.y, q->p10 < q->ms ? q->p10 : q->ms);
        include(&a.y, q->p90 > q->ms ? q->p90 : q->ms);
        if (q->floor_ms > 0 && isfinite(q->floor_ms))
            include(&a.y, q->floor_ms);
    }
    if (!g->n)
        a.x.lo = a.y.lo = a.x.hi = a.y.hi = 1;
    widen(&a.x, 1.3, 1.3, 4);
    widen(&a.y, 1.5, 1.5, 10);
    fputs("<g stroke-width=\"1\">\n", g->f);
    powers_of_two(g, &a);
    decades(g, &a, true);
    fputs("</g>\n", g->f);
    for (int s = 0; s < g->nseries; s++) {
        band(g, &a, &g->series[s]);
        line_of(g, &a, &g->series[s], true);
    }
    for (int s = 0; s < g->nseries; s++) {
        line_of(g, &a, &g->series[s], false);
        for (int i = g->series[s].first; i < g->series[s].first + g->series[s].n; i++)
            marker(g, &g->series[s], &g->point[i], at(&a.x, g->point[i].tokens), at(&a.y, g->point[i].ms));
    }
    frame(g, &a, "Time of the layer", "tokens T", "milliseconds");
}

// ---- around them ------------------------------------------------------------------------------------------------------

// Entries side by side, in as many lines as it takes; sets where the panels begin.
static void legend(struct drawing *g)
{
    static const char *const signs[2] = { "band: p10 to p90", "dashed: floor by the ceilings" };
    double x = 84, y = 84;
    for (int i = 0; i < g->nseries + 2; i++) {
        const struct series *s = i < g->nseries ? &g->series[i] : NULL;
        char name[96];
        snprintf(name, sizeof name, "%s%s", s ? s->model : signs[i - g->nseries], s && s->warm ? ", L2 warm" : "");
        double w = width_of(name, FONT) + 56;
        if (x + w > WIDTH - 20) {
            x = 84;
            y += 22;
        }
        const char *colour = s ? colours[s->look % COLOURS] : "#666";
        if (s || i > g->nseries)
            fprintf(g->f, "<path d=\"M%.1f %.1fh28\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", x, y - 4, colour,
                    s ? "2" : "1.3",
                    !s        ? " stroke-dasharray=\"6 5\""
                    : s->warm ? " stroke-dasharray=\"2 3\""
                              : "");
        else
            fprintf(g->f,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"28\" height=\"12\" fill=\"#666\" fill-opacity=\"0.25\"/>\n", x,
                    y - 10);
        if (s)
            fprintf(g->f, "<path transform=\"translate(%.1f %.1f)\" d=\"%s\" fill=\"%s\" stroke=\"%s\"/>\n", x + 14,
                    y - 4, markers[(s->look + s->look / COLOURS) % COLOURS], s->warm ? "#ffffff" : colour,
                    s->warm ? colour : "#ffffff");
        text(g, x + 35, y, FONT, "start", "#222", name);
        x += w;
    }
    g->top = y + 46;
}

bool plot_write(const struct plot *p, FILE *f)
{
    struct drawing g = { .f = f, .p = p };
    g.point = malloc(((size_t)p->n + 1) * sizeof *g.point);
    g.taken = malloc(BOXES_MAX * sizeof *g.taken);
    bool ok = g.point && g.taken && p->tflops > 0 && p->gbps > 0;
    if (ok) {
        gather(&g);
        fprintf(f,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
                "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
        text(&g, 84, 34, 19, "start", "#111", p->title);
        text(&g, 84, 56, FONT, "start", "#555", p->subtitle);
        legend(&g);
        roofline(&g);
        times(&g);
        fputs("</svg>\n", f);
        ok = !ferror(f);
    }
    free(g.point);
    free(g.taken);
    return ok;
}
