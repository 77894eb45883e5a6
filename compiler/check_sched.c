// Schedule blocks of the checker: names and values are checked here, schedule.c gives them their meaning.
#include "check.h"
#include "../targets/target.h"

#include <string.h>

// form: 'n' a number, 'w' n or n x n [+ n], 'f' nothing, 's' a word. A number lies between min and max.
static const struct key {
    const char *name;
    char form;
    int min, max;
    bool pow2;
} keys[] = { { "stages", 'n', 1, 16, false }, { "warps", 'w', 1, 32, true },      { "group", 'n', 0, 65536, false },
             { "swap", 'f', 0, 0, false },    { "persistent", 'f', 0, 0, false }, { "cluster", 'n', 1, 16, true },
             { "mma", 's', 0, 0, false },     { "blocks", 'n', 0, 32, false } };

static const struct key axis_key = { "", 'n', 1, 4096, true };

static bool power_of_two(int64_t v)
{
    return v > 0 && !(v & (v - 1));
}

static bool value_ok(struct checker *s, const struct node *n, const struct key *k, int64_t v)
{
    if (v < k->min || v > k->max || (k->pow2 && !power_of_two(v)))
        return error(s->c, n->loc, "'%s' must be %s%d to %d, not %lld", n->name, k->pow2 ? "a power of two from " : "",
                     k->min, k->max, (long long)v);
    return true;
}

// MxN+P: P warps that only copy.
static void check_warps(struct checker *s, const struct node *n, const struct key *k)
{
    bool pair = n->value2 >= 0;
    if (k->form != 'w' || !value_ok(s, n, k, n->value) || (pair && !value_ok(s, n, k, n->value2)))
        return;
    int64_t all = n->value * (pair ? n->value2 : 1) + n->flags;
    if (all > k->max)
        error(s->c, n->loc, "a block has at most %d warps, not %lld", k->max, (long long)all);
    else if (n->flags && !power_of_two(n->flags))
        error(s->c, n->loc, "the warps after '+', which only copy, must be a power of two, not %d", n->flags);
}

static void check_item(struct checker *s, const struct node *n, const struct key *k)
{
    bool word = n->name2 != NULL, number = n->value >= 0, pair = n->value2 >= 0;
    if (k->form != 'w' && n->flags) // the + of 2x4+1
        error(s->c, n->loc, "'%s' takes one number", n->name);
    else if (k->form == 'f' && (word || number))
        error(s->c, n->loc, "'%s' takes no value", n->name);
    else if (k->form == 's' && !word)
        error(s->c, n->loc, "expected a name after '%s'", n->name);
    else if ((k->form == 'n' || k->form == 'w') && (word || !number))
        error(s->c, n->loc, "expected a number after '%s'", n->name);
    else if (k->form == 'n' && pair)
        error(s->c, n->loc, "'%s' takes one number, not a pair", n->name);
    else if (k->form == 'n')
        value_ok(s, n, k, n->value);
    else
        check_warps(s, n, k);
}

static const struct kernel *kernel_named(const struct checker *s, const char *name)
{
    for (const struct kernel *k = s->m->kernels; k; k = k->next)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}

static void check_key(struct checker *s, const struct node *n, const struct kernel *k)
{
    struct nearest near = { .want = n->name };
    for (int i = 0; k && i < k->axes.n; i++) {
        nearest_try(&near, k->axes.v[i]->name);
        if (!strcmp(k->axes.v[i]->name, n->name)) {
            check_item(s, n, &axis_key);
            return;
        }
    }
    for (size_t i = 0; i < COUNTOF(keys); i++) {
        nearest_try(&near, keys[i].name);
        if (!strcmp(keys[i].name, n->name)) {
            check_item(s, n, &keys[i]);
            return;
        }
    }
    if (k)
        error(s->c, n->loc, "'%s' is neither an axis of '%s' nor a key of a schedule%s", n->name, k->name,
              did_you_mean(s->c, &near));
}

static void check_arch(struct checker *s, const struct node *n)
{
    struct nearest near = { .want = n->name };
    struct text known = { .arena = s->c->arena };
    if (arch_find(n->name))
        return;
    for (int i = 0; i < ntargets; i++)
        for (int j = 0; j < targets[i]->narches; j++) {
            nearest_try(&near, targets[i]->arches[j].name);
            text_printf(&known, "%s%s", known.n ? ", " : "", targets[i]->arches[j].name);
        }
    error(s->c, n->loc, "unknown target '%s'%s%s", n->name, near.best ? "" : "; known are: ",
          near.best ? did_you_mean(s->c, &near)
          : known.n ? known.s
                    : "none");
}

static bool same_place(const struct schedule *a, const struct schedule *b, const char **arch)
{
    const char *va = a->variant ? a->variant : "", *vb = b->variant ? b->variant : "";
    if (strcmp(a->kernel, b->kernel) || strcmp(va, vb))
        return false;
    for (int i = 0; i < a->arches.n; i++)
        for (int j = 0; j < b->arches.n; j++)
            if (!strcmp(*arch = a->arches.v[i], b->arches.v[j]))
                return true;
    return false;
}

void check_schedule(struct checker *s, const struct node *n)
{
    struct schedule *d = NEW(s->c->arena, struct schedule), **tail = &s->m->schedules;
    const struct kernel *k = kernel_named(s, n->name);
    const char *arch;
    d->kernel = n->name;
    d->variant = n->name2;
    d->loc = n->loc;
    if (!k) {
        struct nearest near = { .want = n->name };
        for (const struct kernel *o = s->m->kernels; o; o = o->next)
            nearest_try(&near, o->name);
        error(s->c, n->loc, "schedule for an unknown kernel '%s'%s", n->name, did_you_mean(s->c, &near));
    }
    for (int i = 0; i < n->nkids; i++) {
        struct node *kid = n->kids[i];
        if (kid->kind == N_NAME) {
            check_arch(s, kid);
            VEC_PUSH(s->c->arena, &d->arches, kid->name);
            continue;
        }
        for (int j = 0; j < d->items.n; j++)
            if (!strcmp(d->items.v[j]->name, kid->name))
                error(s->c, kid->loc, "'%s' stands twice in this schedule", kid->name);
        check_key(s, kid, k);
        VEC_PUSH(s->c->arena, &d->items, kid);
    }
    for (; *tail; tail = &(*tail)->next)
        if (same_place(*tail, d, &arch)) {
            error(s->c, n->loc, "'%s%s%s' already has a schedule for %s", n->name, n->name2 ? "." : "",
                  n->name2 ? n->name2 : "", arch);
            note(s->c, (*tail)->loc, "it is here");
        }
    *tail = d;
}
