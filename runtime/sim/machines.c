// The devices, from their makers' documents: NVIDIA "CUDA C++ Programming Guide", table of compute capabilities (shared memory a
// block may use, threads a block); AMD "CDNA3 ISA" and "CDNA4 ISA" (LDS of a compute unit, waves of 64).
#include "matrix.h"
#include "sim.h"

// Sums of the matrix units. Hopper: measured on an H200, equal bit for bit. Ampere: from M. Fasi et al., "Numerical behavior of NVIDIA
// tensor cores", 2021: blocks of 8, one place less. Blackwell: as Hopper, not measured. AMD: not known.
static const struct matrix_sum ampere = { 8, 24 }, hopper = { 16, 25 };

const struct machine machines[] = {
    { "sm_80", "NVIDIA A100, simulated", true, 32, 1024, 108, 163 * 1024, &ampere, false },
    { "sm_90a", "NVIDIA H100/H200, simulated", true, 32, 1024, 132, 227 * 1024, &hopper, true },
    { "sm_100a", "NVIDIA B200, simulated", true, 32, 1024, 148, 227 * 1024, &hopper, true },
    { "gfx942", "AMD MI300X, simulated", false, 64, 1024, 304, 64 * 1024, NULL, false },
    { "gfx950", "AMD MI350, simulated", false, 64, 1024, 256, 160 * 1024, NULL, false },
};
const int nmachines = sizeof machines / sizeof machines[0];
