// For tests: a whole file as text, from calloc. Header only; include cmocka.h before.
#ifndef TEST_READ_FILE_H
#define TEST_READ_FILE_H
#include <stdio.h>
#include <stdlib.h>

static inline char *read_file(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *s = calloc(1, MOST);
    assert_non_null(s);
    assert_true(fread(s, 1, MOST - 1, f) > 0);
    fclose(f);
    return s;
}
#endif
