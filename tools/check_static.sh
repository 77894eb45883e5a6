#!/bin/sh
# The one-binary compiler: needs only libc, is no larger than promised, and gives the bytes that the dynamic one gives,
# with lld inside. check_static.sh BUILD
b=$1; s=$b/static/moec; bad=0; t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
odd=$(readelf -d "$s" | awk '/NEEDED/ {print $5}' | grep -vE 'libc\.so|libm\.so|ld-linux'); [ -z "$odd" ] || { echo "it needs: $odd"; bad=1; }
n=$(wc -c < "$s"); x=$(xz -6 -c "$s" | wc -c)
[ "$n" -le 90000000 ] || { echo "$n bytes, more than 90 MB"; bad=1; }
[ "$x" -le 20000000 ] || { echo "$x bytes as xz, more than 20 MB"; bad=1; }
for a in sm_80 sm_90a sm_100a gfx942 gfx950; do
    "$b/moec" --arch=$a --ptx-only -o "$t/dynamic" kernels/moe.dsl || bad=1
    PATH=/nonexistent MOE_LLD=/nonexistent "$s" --arch=$a --ptx-only -o "$t/static" kernels/moe.dsl || bad=1
    cmp "$t/dynamic" "$t/static" || bad=1
done
[ $bad -eq 0 ] && echo "static ok ($n bytes, $x as xz)"
exit $bad
