// describe.c: kernels as the image tells them. Strings of the result point into the compile's arena.
#ifndef MOEC_DESCRIBE_H
#define MOEC_DESCRIBE_H
#include "../runtime/image.h"
#include "ir.h"
#include "../targets/target.h"

bool describe_kernel(struct ctx *c, const struct kernel *k, const char *symbol, struct image_kernel *out);
bool describe_image(struct ctx *c, const struct image_desc *d, const char **bytes, size_t *n);
#endif
