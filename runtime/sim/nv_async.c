#include "sim.h"
const struct op nv_async_ops[] = { { NULL, NULL, NULL, NULL, ANY_LANES } };
bool async_progress(struct block *b)
{
    (void)b;
    return false;
}
void async_block_end(struct block *b)
{
    (void)b;
}
