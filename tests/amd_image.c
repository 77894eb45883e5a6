// Writes an image that libmoert loads as if it were for sm_80 and whose "PTX" is LLVM IR for an AMD target, for the interpreter
// of amd_sim.c. amd_image MOEC ARCH IMAGE [OPTION...] FILE.dsl
#include "../runtime/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool run(const char *moec, const char *arch, const char *emit, const char *out, int n, char **options)
{
    char *argv[64] = { (char *)(uintptr_t)moec };
    char a[64], e[64];
    int status = 1, k = 1;
    snprintf(a, sizeof a, "--arch=%s", arch);
    snprintf(e, sizeof e, "--emit=%s", emit);
    argv[k++] = a;
    argv[k++] = e;
    argv[k++] = "-o";
    argv[k++] = (char *)(uintptr_t)out;
    for (int i = 0; i < n && k < 63; i++)
        argv[k++] = options[i];
    pid_t child = fork();
    if (!child) {
        execv(moec, argv);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    *n = 0;
    for (size_t got = 1; f && got; *n += got) {
        s = realloc(s, *n + 65537);
        got = fread(s + *n, 1, 65536, f);
        s[*n + got] = 0;
    }
    if (f)
        fclose(f);
    return s;
}

int main(int argc, char **argv)
{
    char ir[4096], err[IMAGE_ERR_MAX] = "";
    size_t n, m;
    if (argc < 5)
        return 2;
    snprintf(ir, sizeof ir, "%s.ll", argv[3]);
    if (!run(argv[1], argv[2], "image", argv[3], argc - 4, argv + 4) ||
        !run(argv[1], argv[2], "llvm", ir, argc - 4, argv + 4))
        return 1;
    char *image = slurp(argv[3], &n), *text = slurp(ir, &m);
    struct image_desc *d = image ? moe_image_read(image, n, err) : NULL;
    unlink(ir);
    if (!d || !text) {
        fprintf(stderr, "amd_image: %s\n", err);
        return 1;
    }
    d->arch = "sm_80";
    d->kind = IMAGE_PTX;
    d->code = text;
    d->code_size = m;
    d->ptx = d->bitcode = NULL;
    d->ptx_size = d->bitcode_size = 0;
    size_t size = moe_image_size(d);
    char *out = malloc(size + 1);
    FILE *f = fopen(argv[3], "wb");
    bool ok = f && moe_image_write(d, out, size, err) && fwrite(out, 1, size, f) == size;
    if (f)
        ok &= !fclose(f);
    if (!ok)
        fprintf(stderr, "amd_image: %s\n", err);
    free(out), free(text), free(image), free(d);
    return !ok;
}
