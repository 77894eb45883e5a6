// Names of the checker: scopes, unique names for the IR, and the guess what an unknown name was meant to be.
#include "check.h"

#include <string.h>

static const char *const kind_texts[] = {
    "a name with an error", "a dimension", "a parameter", "a buffer", "an axis", "a counter", "a value", "a variable"
};

const char *sym_kind_text(enum sym_kind k)
{
    return kind_texts[k];
}

struct sym *lookup(const struct checker *s, const char *name)
{
    for (struct sym *y = s->syms; y; y = y->next)
        if (y->open && !strcmp(y->name, name))
            return y;
    return NULL;
}

struct sym *declare(struct checker *s, const char *name, enum sym_kind kind, struct loc loc)
{
    struct sym *old = lookup(s, name), *y = NEW(s->c->arena, struct sym);
    if (old && old->depth == s->depth && old->kind != SY_POISON && kind != SY_POISON) {
        error(s->c, loc, "'%s' is already declared in this scope", name);
        note(s->c, old->loc, "'%s' is declared here", name);
    }
    y->name = name;
    y->kind = kind;
    y->loc = loc;
    y->depth = s->depth;
    y->open = true;
    y->next = s->syms;
    s->syms = y;
    return y;
}

void scope_open(struct checker *s)
{
    s->depth++;
}

void scope_close(struct checker *s)
{
    for (struct sym *y = s->syms; y; y = y->next)
        if (y->depth == s->depth)
            y->open = false;
    s->depth--;
}

static struct used_name *find_used(const struct checker *s, const char *name)
{
    for (int i = 0; i < s->used.n; i++)
        if (!strcmp(s->used.v[i].name, name))
            return &s->used.v[i];
    return NULL;
}

const char *unique_name(struct checker *s, const char *name)
{
    const char *n = name;
    struct used_name *u = find_used(s, name);
    while (u && find_used(s, n))
        n = arena_printf(s->c->arena, "%s_%d", name, ++u->suffix);
    VEC_PUSH(s->c->arena, &s->used, ((struct used_name){ n, 0 }));
    return n;
}

// ---- guesses ------------------------------------------------------------------------------------------------

enum { NAME_MAX_GUESS = 40 };

// Edit distance; two neighbouring letters swapped count as one.
static int distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b), d[NAME_MAX_GUESS + 1][NAME_MAX_GUESS + 1];
    if (na > NAME_MAX_GUESS || nb > NAME_MAX_GUESS)
        return NAME_MAX_GUESS;
    for (int i = 0; i <= na; i++)
        for (int j = 0; j <= nb; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[na][nb];
}

void nearest_try(struct nearest *n, const char *candidate)
{
    int cost = distance(n->want, candidate), most = ((int)strlen(n->want) + 1) / 3;
    bool longer =
        n->best && cost == n->cost && !strncmp(candidate, n->want, strlen(n->want)); // sm_90: sm_90a, not sm_80
    if (cost <= most && (!n->best || cost < n->cost || longer)) {
        n->best = candidate;
        n->cost = cost;
    }
}

const char *did_you_mean(struct ctx *c, const struct nearest *n)
{
    return n->best ? arena_printf(c->arena, "; did you mean '%s'?", n->best) : "";
}

// Declares the name as poison after the error: one complaint a name and scope.
bool unknown_name(struct checker *s, const char *name, struct loc loc)
{
    struct nearest n = { .want = name };
    struct sym *closed = NULL;
    for (struct sym *y = s->syms; y; y = y->next) {
        if (y->open)
            nearest_try(&n, y->name);
        else if (!closed && y->kind != SY_POISON && !strcmp(y->name, name))
            closed = y;
    }
    if (closed) {
        bool loop = closed->kind == SY_AXIS || closed->kind == SY_COUNTER;
        error(s->c, loc, loop ? "%s '%s' is used outside its loop" : "%s '%s' is used outside its block",
              sym_kind_text(closed->kind) + (closed->kind == SY_AXIS ? 3 : 2), name);
        note(s->c, closed->loc, "'%s' is declared here", name);
    } else {
        error(s->c, loc, "unknown name '%s'%s", name, did_you_mean(s->c, &n));
    }
    declare(s, name, SY_POISON, loc);
    return false;
}
