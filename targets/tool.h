// Running the vendors' command-line tools (ptxas, ld.lld): no shell, no inherited descriptors, a time limit.
#ifndef MOEC_TOOL_H
#define MOEC_TOOL_H
#include "../compiler/common.h"

enum tool_end { TOOL_OK, TOOL_FAILED, TOOL_MISSING, TOOL_TIMEOUT, TOOL_SYSTEM };

// The program to run: `given` if not NULL, else $env, else the first of `names` (a path, or a name looked up in PATH)
// that can be executed. NULL if there is none.
const char *tool_find(struct arena *a, const char *given, const char *env, const char *const *names, int n);
// A fresh file in $TMPDIR (or /tmp), holding the bytes; its path in the arena, NULL with errno on failure.
const char *tool_temp(struct arena *a, const char *prefix, const char *bytes, size_t n);
bool tool_read(struct arena *a, const char *path, const char **bytes, size_t *n);
// Runs argv; stdout and stderr go to `said`. status: the exit status or signal in words.
enum tool_end tool_run(struct arena *a, const char *const *argv, int seconds, struct text *said, const char **status);
#endif
