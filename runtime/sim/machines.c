// The devices, from their makers' documents: NVIDIA "CUDA C++ Programming Guide", table of compute capabilities (shared memory a
// block may use, threads a block); AMD "CDNA3 ISA" and "CDNA4 ISA" (LDS of a compute unit, waves of 64).
#include "sim.h"

const struct machine machines[] = {
    { "sm_80", "NVIDIA A100, simulated", true, 32, 1024, 108, 163 * 1024 },
    { "sm_90a", "NVIDIA H100/H200, simulated", true, 32, 1024, 132, 227 * 1024 },
    { "sm_100a", "NVIDIA B200, simulated", true, 32, 1024, 148, 227 * 1024 },
    { "gfx942", "AMD MI300X, simulated", false, 64, 1024, 304, 64 * 1024 },
    { "gfx950", "AMD MI350, simulated", false, 64, 1024, 256, 160 * 1024 },
};
const int nmachines = sizeof machines / sizeof machines[0];
