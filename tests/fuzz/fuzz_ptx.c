// Fuzzing of the simulator's reader of assembly: any text is refused with a reason, or gives instructions whose operands all lie
// within the slots of their statement. The first byte says how many operands the statement has.
#include "../../runtime/sim/sim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(bool ok)
{
    if (!ok)
        abort();
}

static void look_at(const struct site *s)
{
    within(s->nslots >= s->noperands);
    for (int k = 0; k < s->ninsts; k++) {
        const struct inst *i = &s->insts[k];
        within(i->op ? (i->op->lane != NULL) != (i->op->warp != NULL) : i->num >= 0 && i->num <= s->ninsts);
        within(i->guard >= -1 && i->guard < s->nslots);
        for (int j = 0; j < i->nargs; j++) {
            const struct arg *a = &i->a[j];
            within(a->kind != ARG_REG || (a->reg >= 0 && a->reg < s->nslots));
            within(a->kind != ARG_ADDR || (a->reg >= -1 && a->reg < s->nslots));
            for (int n = 0; a->kind == ARG_LIST && n < a->n; n++)
                within(a->list[n] >= -1 && a->list[n] < s->nslots);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct moesim_module m = { .nblocks = 0 };
    struct module_fn fn = { .module = &m, .name = "k" };
    struct site s = { .id = 1, .fn = &fn, .what = "asm" };
    char why[MOESIM_WHY] = "", *text = malloc(size + 1);
    if (!text || !size) {
        free(text);
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (ptx_parse(&m, &s, text, data[0] % 16, why))
        look_at(&s);
    else
        within(*why != 0);
    free(text);
    free(s.consts);
    for (int i = 0; i < m.nblocks; i++)
        free(m.blocks[i]);
    free(m.blocks);
    return 0;
}
