// The reader of json.h: one scanner that checks, skips and finds.
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *p, *end, *wrong; // wrong: what is, at p
};
struct find { // of one list or object: the item, or the last member with that key
    const char *key;
    int item;
    struct json_span *found;
    bool any;
};

static bool fail(struct scan *s, const char *what)
{
    s->wrong = what;
    return false;
}

// The next character; 0 at the end (and for a NUL, which no valid text has outside strings).
static char peek(const struct scan *s)
{
    return s->p < s->end ? *s->p : 0;
}

static bool eat(struct scan *s, const char *any_of)
{
    bool is = peek(s) && strchr(any_of, *s->p);
    s->p += is;
    return is;
}

static void space(struct scan *s)
{
    while (eat(s, " \t\r\n"))
        ;
}

// ---- strings

static bool hex4(struct scan *s, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    *out = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        const char *d = peek(s) ? strchr(digits, *s->p) : NULL;
        if (!d)
            return fail(s, "expected four hexadecimal digits");
        *out = *out << 4 | ((uint32_t)(d - digits) & 15);
    }
    return true;
}

// Behind a backslash.
static bool escape(struct scan *s, uint32_t *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *simple = peek(s) ? strchr(from, *s->p) : NULL;
    uint32_t low = 0;
    if (!simple && peek(s) != 'u')
        return fail(s, "unknown escape");
    s->p++;
    if (simple)
        *out = (uint32_t)to[simple - from];
    else if (!hex4(s, out))
        return false;
    if (*out >= 0xd800 && *out < 0xe000) { // two halves make one character
        if (*out >= 0xdc00 || !eat(s, "\\") || !eat(s, "u") || !hex4(s, &low) || low < 0xdc00 || low >= 0xe000)
            return fail(s, "half of a surrogate pair");
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    }
    return true;
}

static bool utf8(struct scan *s, uint32_t *out)
{
    static const uint32_t least[4] = { 0, 0x80, 0x800, 0x10000 };
    unsigned char c = (unsigned char)*s->p;
    int more = c < 0x80 ? 0 : (c & 0xe0) == 0xc0 ? 1 : (c & 0xf0) == 0xe0 ? 2 : (c & 0xf8) == 0xf0 ? 3 : -1;
    bool ok = more >= 0 && s->end - s->p > more;
    *out = more > 0 ? c & (0x3fu >> more) : c;
    for (int i = 1; ok && i <= more; i++) {
        ok = ((unsigned char)s->p[i] & 0xc0) == 0x80;
        *out = *out << 6 | ((unsigned char)s->p[i] & 0x3f);
    }
    if (!ok || *out < least[more] || *out > 0x10ffff || (*out >= 0xd800 && *out < 0xe000))
        return fail(s, "not UTF-8");
    s->p += more + 1;
    return true;
}

// At a quote; then behind the closing one. out gets the text if it and a NUL fit and it has none itself, else "".
static bool string(struct scan *s, char *out, size_t size)
{
    static const unsigned char lead[4] = { 0, 0xc0, 0xe0, 0xf0 };
    size_t n = 0;
    bool fits = true;
    for (s->p++; !eat(s, "\"");) {
        uint32_t c;
        if (s->p == s->end || (unsigned char)*s->p < 0x20)
            return fail(s, "a string without end, or with a control character");
        if (!(eat(s, "\\") ? escape(s, &c) : utf8(s, &c)))
            return false;
        int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        fits = fits && c && n + (size_t)more + 1 < size;
        for (int i = more; fits && i >= 0; i--)
            out[n++] = (char)(i == more ? lead[more] | c >> 6 * i : 0x80 | (c >> 6 * i & 0x3f));
    }
    out[fits ? n : 0] = 0;
    return true;
}

// ---- values

static bool digits(struct scan *s)
{
    const char *from = s->p;
    while (eat(s, "0123456789"))
        ;
    return s->p > from || fail(s, "expected a digit");
}

static bool number(struct scan *s)
{
    const char *from = s->p;
    eat(s, "-");
    if (!eat(s, "0") && !digits(s))
        return fail(s, "expected a value");
    if (eat(s, ".") && !digits(s))
        return false;
    if (eat(s, "eE") && (eat(s, "+-"), !digits(s)))
        return false;
    return s->p - from <= JSON_DIGITS || fail(s, "a number of too many digits");
}

// f, if not NULL, is answered of this list or object.
static bool value(struct scan *s, int depth, struct find *f)
{
    static const char *const words[] = { "true", "false", "null" };
    char key[JSON_KEY], c = peek(s), close[2] = { c == '{' ? '}' : ']', 0 };
    for (size_t i = 0, n; i < 3; i++)
        if (n = strlen(words[i]), (size_t)(s->end - s->p) >= n && !memcmp(s->p, words[i], n)) {
            s->p += n;
            return true;
        }
    if (c != '{' && c != '[')
        return c == '"' ? string(s, key, sizeof key) : number(s);
    if (depth == JSON_DEPTH)
        return fail(s, "too many lists and objects within each other");
    s->p++;
    space(s);
    for (int i = 0; i > 0 || !eat(s, close); i++) {
        space(s);
        if (c == '{' && (peek(s) != '"' ? !fail(s, "expected a key") : !string(s, key, sizeof key)))
            return false;
        space(s);
        if (c == '{' && !eat(s, ":"))
            return fail(s, "expected ':'");
        space(s);
        if (f && (c == '{' ? f->key && !strcmp(f->key, key) : f->item == i)) {
            *f->found = (struct json_span){ s->p, s->end };
            f->any = true;
        }
        if (!value(s, depth + 1, NULL))
            return false;
        space(s);
        if (eat(s, close))
            break;
        if (!eat(s, ","))
            return fail(s, "expected ',' or the end of a list or object");
    }
    return true;
}

bool json_check(const char *text, size_t n, struct json_span *v, char *why, size_t why_size)
{
    struct scan s = { text, text + n, NULL };
    space(&s);
    *v = (struct json_span){ s.p, s.end };
    bool ok = value(&s, 0, NULL);
    space(&s);
    if (ok && s.p != s.end)
        ok = fail(&s, "something behind the end");
    if (!ok)
        snprintf(why, why_size, "byte %zu: %s", (size_t)(s.p - text), s.wrong);
    return ok;
}

char json_kind(struct json_span v)
{
    return strchr("{[\"tfn", *v.at) ? *v.at : '0';
}

bool json_find(struct json_span in, const char *key, int item, struct json_span *v)
{
    struct find f = { key, item, v, false };
    return json_kind(in) == (key ? '{' : '[') && value(&(struct scan){ in.at, in.end, NULL }, 0, &f) && f.any;
}

bool json_as_number(struct json_span v, double *real, int64_t *integer, bool *exact)
{
    char text[JSON_DIGITS + 1];
    struct scan s = { v.at, v.end, NULL };
    if (json_kind(v) != '0' || !number(&s))
        return false;
    memcpy(text, v.at, (size_t)(s.p - v.at));
    text[s.p - v.at] = 0;
    *real = strtod(text, NULL);
    errno = 0;
    *integer = strtoll(text, NULL, 10);
    *exact = errno == 0 && !strpbrk(text, ".eE");
    return isfinite(*real);
}

bool json_as_string(struct json_span v, char *out, size_t size)
{
    return json_kind(v) == '"' && string(&(struct scan){ v.at, v.end, NULL }, out, size);
}
