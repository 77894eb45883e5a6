// What LLVM has for every machine and that is no arithmetic: places that must not be reached, divisions.
#include "sim.h"

static void unreachable(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)r;
    finding(l, i->site, F_RUNAWAY, 0, "the code goes on to a place that it calls unreachable");
    lane_end(l);
}
static void trap(struct lane *l, const struct inst *i, uint64_t *r)
{
    (void)r;
    finding(l, i->site, F_RUNAWAY, 0, "%s", i->text);
    lane_end(l);
}

void moesim_divisor(struct site *s, uint32_t zero)
{
    if (zero)
        finding(sim_me->lane, s, F_OPERAND, 0, "a division by zero, of which the result is undefined");
}

const struct op common_ops[] = {
    { "unreachable", unreachable, NULL, NULL, ANY_LANES, NULL },
    { "llvm.trap", trap, NULL, NULL, ANY_LANES, NULL },
    { "llvm.ubsantrap", trap, NULL, NULL, ANY_LANES, NULL },
    { "trap", trap, NULL, NULL, ANY_LANES, "" },
    { NULL, NULL, NULL, NULL, ANY_LANES, NULL },
};
