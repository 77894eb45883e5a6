#!/bin/sh
# Installs what building and testing need and this machine lacks (Debian 12 or later, Ubuntu with LLVM 22 packages).
# deps.sh [build|test|fuzz|static]
want=${1:-build}
pkgs="gcc:gcc make:make libc6-dev:/usr/include/stdio.h llvm-22-dev:/usr/lib/llvm-22/include/llvm-c/Core.h
libmlir-22-dev:/usr/lib/llvm-22/lib/libMLIRCAPIIR.a lld-22:ld.lld-22 g++:g++"
[ "$want" = build ] || pkgs="$pkgs libcmocka-dev:/usr/include/cmocka.h llvm-22:llvm-objdump-22 binutils:nm"
[ "$want" = fuzz ] && pkgs="$pkgs clang-22:clang-22 libclang-rt-22-dev:/usr/lib/llvm-22/lib/clang/22/lib/linux"
[ "$want" = static ] && pkgs="$pkgs zlib1g-dev:/usr/include/zlib.h libzstd-dev:/usr/include/zstd.h
liblld-22:/usr/lib/llvm-22/lib/liblldELF.a xz-utils:xz"
missing=
for p in $pkgs; do
    what=${p#*:}
    case $what in
    /*) [ -e "$what" ] && continue ;;
    *) command -v "$what" >/dev/null 2>&1 && continue ;;
    esac
    missing="$missing ${p%%:*}"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing:$missing. This system has no apt-get: install them by its own means." >&2
    exit 3
fi
as=
[ "$(id -u)" = 0 ] || as=sudo
if [ -n "$as" ] && ! command -v sudo >/dev/null 2>&1; then
    echo "missing:$missing. Run as root: apt-get install$missing" >&2
    exit 3
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if $as apt-get update >"$log" 2>&1 && $as apt-get install -y --no-install-recommends $missing >>"$log" 2>&1; then
    rm -f "$log"
    exit 0
fi
tail -5 "$log" >&2
echo "could not install:$missing (is there a network? Debian 12 has LLVM 22 in its security archive). Log: $log" >&2
exit 3
