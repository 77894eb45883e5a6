// A directory of its own for each test of the cache, and children that run a part of one. Header only.
#ifndef JIT_DIR_H
#define JIT_DIR_H
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[64];  // of the running test: removed after it
static char dir[128]; // the cache directory: top/cache, not made yet

static inline int jit_dir_new(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/moe-test-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    chmod(top, 0755); // children with other rights look inside
    snprintf(dir, sizeof dir, "%s/cache", top);
    setenv("MOE_CACHE_DIR", dir, 1);
    unsetenv("MOE_CACHE_MAX");
    return 0;
}

static inline int jit_dir_remove(const char *path, const struct stat *st, int what, struct FTW *at)
{
    (void)at;
    (void)st;
    return what == FTW_DP ? rmdir(path) : unlink(path);
}

static inline int jit_dir_free(void **state)
{
    (void)state;
    chmod(dir, 0700);
    return nftw(top, jit_dir_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int files_in(const char *path, const char *part) // with the part in their names
{
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strstr(e->d_name, part);
    if (d)
        closedir(d);
    return n;
}

static inline bool ended_well(pid_t pid)
{
    int st = 0;
    return waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0;
}

// Runs f in a child, there as another user if we are root, whom no mode stops.
static inline bool as_user(bool (*f)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(9);
        _exit(f() ? 0 : 1);
    }
    return pid > 0 && ended_well(pid);
}
#endif
