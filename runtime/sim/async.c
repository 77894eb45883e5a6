// Copies that a lane starts and waits for in groups (cp.async; loads into LDS). They land as late as allowed: in the wait that
// says so; with a seed, now and then earlier. The bytes are read from global memory when they land. Until then the destination
// belongs to the copy: any access to it is a finding.
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static void land(struct lane *l, const struct copy *c, bool agent)
{
    struct block *b = l->warp->block;
    if (c->from_bytes)
        memcpy(b->shared + c->to, c->from, (size_t)c->from_bytes);
    memset(b->shared + c->to + c->from_bytes, 0, (size_t)(c->bytes - c->from_bytes));
    if (b->launch->shadow)
        shadow_landed(l, c->site, c->to, c->bytes, agent);
}

void copy_issue(struct lane *l, struct site *s, uint32_t to, const uint8_t *from, int bytes, int from_bytes)
{
    struct block *b = l->warp->block;
    if (l->ncopies == l->copies_cap) {
        int cap = l->copies_cap ? 2 * l->copies_cap : 32;
        void *p = realloc(l->copies, (size_t)cap * sizeof *l->copies);
        if (!p) { // then it lands at once, which is allowed
            struct copy c = { to, bytes, from_bytes, from, s, 0, 0 };
            land(l, &c, false);
            return;
        }
        l->copies = p;
        l->copies_cap = cap;
    }
    if (b->launch->shadow)
        shadow_inflight(l, s, to, bytes, from);
    l->copies[l->ncopies++] = (struct copy){ to, bytes, from_bytes, from, s, -1, 0 };
}

void copy_commit(struct lane *l)
{
    for (int i = l->ncopies - 1; i >= 0 && l->copies[i].group < 0; i--)
        l->copies[i].group = l->groups;
    l->groups++;
}

void copy_wait(struct lane *l, int pending)
{
    int done = l->groups - pending, kept = 0;
    struct block *b = l->warp->block;
    // With a seed, younger groups may be complete as well.
    if (b->launch->seed && pending && sim_random(b) % 4 == 0)
        done += (int)(sim_random(b) % (unsigned)(pending + 1));
    for (int i = 0; i < l->ncopies; i++)
        if (l->copies[i].group >= 0 && l->copies[i].group < done)
            land(l, &l->copies[i], false);
        else
            l->copies[kept++] = l->copies[i];
    l->ncopies = kept;
}

int copy_track(struct lane *l)
{
    l->arrives++;
    for (int i = 0; i < l->ncopies; i++)
        l->copies[i].arrive = l->copies[i].arrive ? l->copies[i].arrive : l->arrives;
    return l->arrives;
}

void copy_arrived(struct lane *l, int number)
{
    int kept = 0;
    for (int i = 0; i < l->ncopies; i++)
        if (l->copies[i].arrive && l->copies[i].arrive <= number)
            land(l, &l->copies[i], true);
        else
            l->copies[kept++] = l->copies[i];
    l->ncopies = kept;
}

// Those that an mbarrier stands for are its waiters' concern.
void copy_end(struct lane *l)
{
    int kept = 0;
    const struct copy *lost = NULL;
    for (int i = 0; i < l->ncopies; i++)
        if (l->copies[i].arrive)
            l->copies[kept++] = l->copies[i];
        else
            lost = lost ? lost : &l->copies[i];
    if (lost)
        finding(l, lost->site, F_LEAK, 0, "%d asynchronous copies are not waited for when the thread ends",
                l->ncopies - kept);
    l->ncopies = kept;
    if (l->warp->block->launch->machine->nv)
        async_lane_end(l);
}
