// The picture of a bench: a roofline and the time by the number of tokens. Knows nothing else of moerun.
#ifndef MOERUN_SVG_H
#define MOERUN_SVG_H
#include <stdbool.h>
#include <stdio.h>

struct plot_point {
    const char *model;
    int tokens;
    bool warm;                                   // L2
    double ms, p10, p90, flops, bytes, floor_ms; // floor_ms: 0 where there is none
};
struct plot {
    const char *title, *subtitle;
    double tflops, gbps;                 // the ceilings
    const char *tflops_from, *gbps_from; // "cuBLAS, measured"
    const struct plot_point *points;
    int n;
};
// Points that cannot be drawn (not positive, not finite) are left out; of several of one model, T and L2 the fastest is drawn.
// false: no memory, or f does not take it.
bool plot_write(const struct plot *p, FILE *f);
#endif
