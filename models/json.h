// A reader of JSON text (RFC 8259) for configuration files: checked once as a whole, then looked into where it lies.
// Allocates nothing. Strict: no comments, no trailing commas, no NaN; strings are UTF-8; at most JSON_DEPTH lists and
// objects within each other; numbers of at most JSON_DIGITS characters.
#ifndef JSON_H
#define JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH = 64, JSON_DIGITS = 255, JSON_KEY = 64 }; // keys longer than JSON_KEY - 1 bytes are never found
struct json_span { // one value of a checked text, from its first character on; end: of the text
    const char *at, *end;
};
// false: `why` says what is wrong, and at which byte.
bool json_check(const char *text, size_t n, struct json_span *value, char *why, size_t why_size);

char json_kind(struct json_span v); // '{', '[', '"', '0' (number), 't', 'f', 'n'
// Of equal keys the last member counts; key NULL: item i of a list.
bool json_find(struct json_span in, const char *key, int item, struct json_span *value);
// A finite number. exact: it is written as an integer and fits; else `integer` says nothing.
bool json_as_number(struct json_span v, double *real, int64_t *integer, bool *exact);
bool json_as_string(struct json_span v, char *out, size_t size); // "" if it does not fit, or has a NUL
#endif
