// The list of targets, and what is common to their rows. The only file that names both vendors.
#include "target.h"

#include <string.h>

extern const struct target nvptx_target, amdgpu_target;
const struct target *const targets[] = { &nvptx_target, &amdgpu_target };
const int ntargets = COUNTOF(targets);

const struct arch *arch_find(const char *name)
{
    for (int i = 0; i < ntargets; i++)
        for (int j = 0; j < targets[i]->narches; j++)
            if (!strcmp(targets[i]->arches[j].name, name))
                return &targets[i]->arches[j];
    return NULL;
}

int bits_parse(const char *s, struct bit *out, int max)
{
    int n = 0;
    while (*s) {
        int pos = 0, digits = 0;
        if (*s == ' ') {
            s++;
            continue;
        }
        char home = *s++;
        if (home != '-') {
            if (home != BIT_REG && home != BIT_LANE && home != BIT_WARP)
                return -1;
            for (; *s >= '0' && *s <= '9'; s++, digits++)
                pos = pos * 10 + (*s - '0');
            if (!digits || digits > 2)
                return -1;
        }
        if (n == max || (*s && *s != ' '))
            return -1;
        out[n++] = (struct bit){ home == '-' ? 0 : home, (int8_t)pos };
    }
    return n;
}
