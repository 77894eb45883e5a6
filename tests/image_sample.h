// A description of an image that uses every feature of the format, for tests and fuzzing of runtime/image.c and for
// the fake driver's tests. Header only, constant data.
#ifndef IMAGE_SAMPLE_H
#define IMAGE_SAMPLE_H
#include "../runtime/image.h"

#define CONST_TERM(v) \
    { \
        IMAGE_T_CONST, v \
    }
#define DIM_TERM(i) \
    { \
        IMAGE_T_DIM, i \
    }

// gate_up(x: bf16[T, H], w: bf16[E, I, H], tiles: tile_map[N], limit: i32, h: out bf16[R, I]), H = 256 bound
static const struct image_dim sample_dims[] = {
    { "T", -1, 1, INT32_MAX }, { "H", 256, 8, 32768 },    { "E", -1, 1, 512 },
    { "I", -1, 8, 65536 },     { "N", -1, 1, INT32_MAX }, { "R", -1, 1, INT32_MAX },
};
static const struct image_param sample_params[] = {
    { "x", IMAGE_IN, IMAGE_BF16, 2, 16, { { 0, 0 }, { 1, 0 } } },
    { "w", IMAGE_IN, IMAGE_BF16, 3, 16, { { 2, 0 }, { 3, 0 }, { 1, 0 } } },
    { "tiles", IMAGE_MAP, IMAGE_I32, 2, 16, { { 4, 0 }, { -1, 4 } } },
    { "limit", IMAGE_SCALAR, IMAGE_I32, 0, 4, { { 0, 0 } } },
    { "h", IMAGE_OUT, IMAGE_BF16, 2, 16, { { 5, 0 }, { 3, 0 } } },
};
static const struct image_clause sample_clauses[] = {
    { IMAGE_IN_MAP, "rows", 128, 2, { 0 }, { 0 } },
    { IMAGE_TILE,
      "cols",
      64,
      -1,
      { 1, { CONST_TERM(0) } },
      { 3, { DIM_TERM(3), { IMAGE_T_PARAM, 3 }, { IMAGE_T_MIN, 0 } } } },
};
static const struct image_axis sample_axes[] = { { "rows", 128 }, { "cols", 64 }, { "k", 64 } };

// scale(a: f32[C], f: f32, b: inout f32[C]): grid of (C + 3) / 4 blocks
static const struct image_dim scale_dims[] = { { "C", -1, 4, 1 << 20 } };
static const struct image_param scale_params[] = {
    { "a", IMAGE_IN, IMAGE_F32, 1, 16, { { 0, 0 } } },
    { "f", IMAGE_SCALAR, IMAGE_F32, 0, 4, { { 0, 0 } } },
    { "b", IMAGE_INOUT, IMAGE_F32, 1, 16, { { 0, 0 } } },
};
static const struct image_clause scale_clauses[] = {
    { IMAGE_EACH,
      "c",
      0,
      -1,
      { 1, { CONST_TERM(0) } },
      { 5, { DIM_TERM(0), CONST_TERM(3), { IMAGE_T_ADD, 0 }, CONST_TERM(4), { IMAGE_T_DIV, 0 } } } },
};
static const struct image_kernel sample_kernels[] = {
    { "gate_up",
      "r128",
      "gate_up_r128",
      "h = silu(x . w).\nSecond line.",
      256,
      196608,
      168,
      2,
      4,
      4,
      8,
      0,
      2200,
      1647620,
      1,
      98304,
      5,
      6,
      2,
      3,
      sample_params,
      sample_dims,
      sample_clauses,
      sample_axes },
    { "gate_up",
      "r16",
      "gate_up_r16",
      "",
      128,
      65536,
      96,
      1,
      4,
      4,
      0,
      0,
      550,
      90000,
      4,
      49152,
      5,
      6,
      2,
      3,
      sample_params,
      sample_dims,
      sample_clauses,
      sample_axes },
    { "scale", "", "scale",      "",         128,           0,   0, 4, 1, 0, 0, 0, 0, 0, 0, 3, 1,
      1,       0,  scale_params, scale_dims, scale_clauses, NULL },
};
static const struct image_desc sample_image = {
    "sm_90a",
    "moec 0.1 (test)",
    IMAGE_CUBIN,
    4800,
    "\x7f"
    "ELF code",
    9,
    ".version 8.0\n",
    13,
    "BC",
    2,
    3,
    sample_kernels,
};
#endif
