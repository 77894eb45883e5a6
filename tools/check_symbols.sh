#!/bin/sh
# The libraries export their documented functions and nothing else; libmoert.so needs libc (and its parts) only and is small.
b=$1; bad=0
odd=$(nm -D --defined-only "$b/libmoert.so" | awk '{print $3}' | grep -v '^moe_'); [ -z "$odd" ] || { echo "libmoert.so exports: $odd"; bad=1; }
odd=$(nm -D --defined-only "$b/libmoec.so" | awk '{print $3}' | grep -vE '^(moec_|moe_image_)'); [ -z "$odd" ] || { echo "libmoec.so exports: $odd"; bad=1; }
odd=$(readelf -d "$b/libmoert.so" | awk '/NEEDED/ {print $5}' | grep -vE 'libc\.so|libdl\.so|libpthread\.so'); [ -z "$odd" ] || { echo "libmoert.so needs: $odd"; bad=1; }
size=$(mktemp); cp "$b/libmoert.so" "$size"; strip "$size"; n=$(wc -c < "$size"); rm -f "$size"
[ "$n" -le 307200 ] || { echo "libmoert.so has $n bytes stripped, more than 300 KB"; bad=1; }
[ $bad -eq 0 ] && echo "symbols ok (libmoert.so: $n bytes stripped)"
exit $bad
