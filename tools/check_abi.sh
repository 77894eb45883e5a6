#!/bin/sh
# Holds our own declarations of the drivers' libraries (runtime/*_abi.h) against the vendors' headers, where they are
# installed: types of functions, values of constants, places in structs, all while compiling tests/abi_VENDOR.c.
# Headers: of a CUDA toolkit; of ROCm, or the package libamdhip64-dev (80 MB with what it needs).
CC=${CC:-cc}; bad=0
check() { # vendor, header, folders
    vendor=$1; header=$2; shift 2
    for dir; do
        [ -e "$dir/$header" ] || continue
        if $CC -std=c17 -Wall -Wextra -Werror -fsyntax-only -isystem "$dir" tests/abi_$vendor.c; then
            echo "abi of $vendor ok ($dir/$header)"
        else
            bad=1
        fi
        return
    done
    echo "abi of $vendor: SKIPPED: no $header here"
}
check cuda cuda.h "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include
check hip hip/hip_runtime_api.h "${ROCM_PATH:-/opt/rocm}/include" /usr/include
exit $bad
