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

// gate_up(x: bf16[T, H], w: early bf16[E, I, H], tiles: early tile_map[N], limit: i32, h: out bf16[R, I]), H = 256 bound
static const struct image_dim sample_dims[] = {
    { "T", -1, 1, INT32_MAX }, { "H", 256, 8, 32768 },    { "E", -1, 1, 512 },
    { "I", -1, 8, 65536 },     { "N", -1, 1, INT32_MAX }, { "R", -1, 1, INT32_MAX },
};
static const struct image_param sample_params[] = {
    { "x", IMAGE_IN, IMAGE_BF16, 2, 16, { { 0, 0 }, { 1, 0 } }, false },
    { "w", IMAGE_IN, IMAGE_BF16, 3, 16, { { 2, 0 }, { 3, 0 }, { 1, 0 } }, true },
    { "tiles", IMAGE_MAP, IMAGE_I32, 2, 16, { { 4, 0 }, { -1, 4 } }, true },
    { "limit", IMAGE_SCALAR, IMAGE_I32, 0, 4, { { 0, 0 } }, false },
    { "h", IMAGE_OUT, IMAGE_BF16, 2, 16, { { 5, 0 }, { 3, 0 } }, false },
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
    { "a", IMAGE_IN, IMAGE_F32, 1, 16, { { 0, 0 } }, false },
    { "f", IMAGE_SCALAR, IMAGE_F32, 0, 4, { { 0, 0 } }, false },
    { "b", IMAGE_INOUT, IMAGE_F32, 1, 16, { { 0, 0 } }, false },
};
static const struct image_clause scale_clauses[] = {
    { IMAGE_EACH,
      "c",
      0,
      -1,
      { 1, { CONST_TERM(0) } },
      { 5, { DIM_TERM(0), CONST_TERM(3), { IMAGE_T_ADD, 0 }, CONST_TERM(4), { IMAGE_T_DIV, 0 } } } },
};
// take: as gate_up, persistent, with boxes of w and x
static const struct image_box sample_boxes[] = { { 1, 128, 64, 3 }, { 0, 64, 32, 0 } };
#define SAMPLE_ROWS \
    .nparams = 5, .ndims = 6, .nclauses = 2, .naxes = 3, .params = sample_params, .dims = sample_dims, \
    .clauses = sample_clauses, .axes = sample_axes
static const struct image_kernel sample_kernels[] = {
    { .name = "gate_up",
      .variant = "r128",
      .symbol = "gate_up_r128",
      .doc = "h = silu(x . w).\nSecond line.",
      .threads = 256,
      .shared = 196608,
      .regs = 168,
      .warps_m = 2,
      .warps_n = 4,
      .stages = 4,
      .group = 8,
      .fixed_ns = 2200,
      .step_ps = 1647620,
      .resident = 1,
      .flight = 98304,
      SAMPLE_ROWS },
    { .name = "gate_up",
      .variant = "r16",
      .symbol = "gate_up_r16",
      .doc = "",
      .threads = 128,
      .shared = 65536,
      .regs = 96,
      .warps_m = 1,
      .warps_n = 4,
      .stages = 4,
      .fixed_ns = 550,
      .step_ps = 90000,
      .resident = 4,
      .flight = 49152,
      SAMPLE_ROWS },
    { .name = "scale",
      .variant = "",
      .symbol = "scale",
      .doc = "",
      .threads = 128,
      .warps_m = 4,
      .warps_n = 1,
      .nparams = 3,
      .ndims = 1,
      .nclauses = 1,
      .params = scale_params,
      .dims = scale_dims,
      .clauses = scale_clauses },
    { .name = "take",
      .variant = "",
      .symbol = "take",
      .doc = "",
      .threads = 160,
      .shared = 49152,
      .warps_m = 4,
      .warps_n = 1,
      .stages = 3,
      .resident = 2,
      .persistent = true,
      SAMPLE_ROWS,
      .nboxes = 2,
      .boxes = sample_boxes },
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
    4,
    sample_kernels,
};
#endif
