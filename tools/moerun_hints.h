// Files of hints, which moerun tune writes and moe_layer_hints() reads: lines "moe-hint 1|IDENTITY|TOKENS|ROWS".
#ifndef MOERUN_HINTS_H
#define MOERUN_HINTS_H
#include <stdbool.h>
#include <stddef.h>

enum { HINT = 320, HINTS_MAX = 4096 };
struct hint {
    char line[HINT]; // "moe-hint 1|IDENTITY|TOKENS|ROWS\n"
    size_t identity; // how much of it says what it is about: device, image, shape
    long long tokens;
    int rows; // 0: measured now, and the own choice is as good
    int own;  // the layer's own choice, if measured now
};
struct hints { // comments and lines that are no hints stay as they are, before the hints
    char *rest;
    size_t nrest;
    struct hint *h;
    int n;
};
// n characters at s, without the end of the line. false: not a hint.
bool hint_parse(const char *s, size_t n, struct hint *h);
// Adds a hint, or puts it in the place of the one for the same identity and tokens. false after report(), as those below.
bool hints_put(struct hints *f, const struct hint *h);
bool hints_read(struct hints *f, const char *path); // NULL, or no such file: empty
// Written aside and renamed: a reader sees the old file or the new one.
bool hints_write(struct hints *f, const char *path);
void hints_free(struct hints *f);
#endif
