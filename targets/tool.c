#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static bool runnable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static const char *in_path(struct arena *a, const char *name)
{
    const char *p = getenv("PATH");
    while (p && *p) {
        size_t n = strcspn(p, ":");
        const char *full = arena_printf(a, "%.*s/%s", (int)n, n ? p : ".", name);
        if (runnable(full))
            return full;
        p += n + (p[n] == ':');
    }
    return NULL;
}

const char *tool_find(struct arena *a, const char *given, const char *env, const char *const *names, int n)
{
    const char *e = env ? getenv(env) : NULL;
    if (given || (e && *e)) { // what a user names is used or refused, never replaced
        const char *want = given ? given : e;
        return runnable(want) ? want : strchr(want, '/') ? NULL : in_path(a, want);
    }
    for (int i = 0; i < n; i++) {
        const char *full = strchr(names[i], '/') ? names[i] : in_path(a, names[i]);
        if (full && runnable(full))
            return full;
    }
    return NULL;
}

const char *tool_temp(struct arena *a, const char *prefix, const char *bytes, size_t n)
{
    const char *dir = getenv("TMPDIR");
    char *path = arena_printf(a, "%s/%s-XXXXXX", dir && *dir ? dir : "/tmp", prefix);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return NULL;
    for (size_t at = 0; at < n;) {
        ssize_t w = write(fd, bytes + at, n - at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            int was = w == 0 ? ENOSPC : errno;
            close(fd);
            unlink(path);
            errno = was;
            return NULL;
        }
        at += (size_t)w;
    }
    if (close(fd) == 0)
        return path;
    unlink(path);
    return NULL;
}

bool tool_read(struct arena *a, const char *path, const char **bytes, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && st.st_size > 0;
    char *p = ok ? arena_alloc(a, (size_t)st.st_size + 1) : NULL;
    for (off_t at = 0; ok && at < st.st_size;) {
        ssize_t r = read(fd, p + at, (size_t)(st.st_size - at));
        if (r < 0 && errno == EINTR)
            continue;
        ok = r > 0;
        at += r;
    }
    close(fd);
    *bytes = p;
    *n = ok ? (size_t)st.st_size : 0;
    return ok;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Reads until the child closes its end; false when the time is over.
static bool drain(int fd, double until, struct text *said)
{
    char buf[4096];
    for (;;) {
        double left = until - seconds_now();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int r = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true;
        if (said->n < 1 << 20)
            text_put(said, buf, (size_t)n);
    }
}

static enum tool_end ended(struct arena *a, int status, const char **text)
{
    if (WIFSIGNALED(status))
        *text = arena_printf(a, "was killed by signal %d", WTERMSIG(status));
    else
        *text = arena_printf(a, "ended with exit status %d", WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? TOOL_OK : TOOL_FAILED;
}

enum tool_end tool_run(struct arena *a, const char *const *argv, int seconds, struct text *said, const char **status)
{
    int fd[2], st = 0;
    pid_t pid;
    posix_spawn_file_actions_t act;
    if (pipe2(fd, O_CLOEXEC)) {
        *status = arena_printf(a, "could not be started: %s", strerror(errno));
        return TOOL_SYSTEM;
    }
    posix_spawn_file_actions_init(&act);
    posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&act, fd[1], 1);
    posix_spawn_file_actions_adddup2(&act, fd[1], 2);
    int e = posix_spawn(&pid, argv[0], &act, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&act);
    close(fd[1]);
    if (e) {
        close(fd[0]);
        *status = arena_printf(a, "could not be started: %s", strerror(e));
        return TOOL_SYSTEM;
    }
    bool in_time = drain(fd[0], seconds_now() + seconds, said);
    close(fd[0]);
    if (!in_time)
        kill(pid, SIGKILL);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    if (!in_time) {
        *status = arena_printf(a, "did not end within %d seconds", seconds);
        return TOOL_TIMEOUT;
    }
    return ended(a, st, status);
}
