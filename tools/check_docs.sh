#!/bin/sh
# The C programs in docs/*.md (blocks marked c) and the examples, compiled with the public headers against libmoert.so alone, and
# run on the simulator. The JIT's cache is in the build folder. check_docs.sh BUILD
set -u
b=$1 out=$1/docs bad=0
mkdir -p "$out"
export MOE_CACHE_DIR="$PWD/$out/cache"
rm -f "$out"/*.c

build() { # source name
    ${CC:-gcc} -std=c17 -O1 -g -Wall -Wextra -Wpedantic -Werror ${SANITIZE:-} -Iruntime -o "$out/$2" "$1" -L"$b" -Wl,-rpath,"$PWD/$b" -lmoert -lpthread
}
judge() { # name command...
    name=$1; shift
    start=$(date +%s%N)
    if "$@" > "$out/log" 2>&1; then verdict=ok; else verdict=FAILED; bad=1; fi
    printf '%-24s %-7s %6d ms\n' "$name" $verdict $((($(date +%s%N) - start) / 1000000))
    [ $verdict = ok ] || cat "$out/log"
}

awk -v out="$out" '/^```c$/ { n++; f = out "/" n ".c"; print "#line " FNR + 1 " \"" FILENAME "\"" > f; next }
    /^```/ { f = "" } f { print > f }' docs/*.md
for c in "$out"/*.c; do
    [ -f "$c" ] || { echo "docs/*.md hold no program"; exit 1; }
    judge "docs: program $(basename "$c" .c)" build "$c" "$(basename "$c" .c)"
    [ $bad -ne 0 ] || judge "docs: it runs" "$out/$(basename "$c" .c)" sim:sm_90a
done
judge "examples/server.c" build examples/server.c server
[ $bad -ne 0 ] || judge "examples/server.c runs" "$out/server" sim:sm_90a
if python3 -c 'import numpy' 2>/dev/null; then
    judge "an image of f16" "$b/moec" --arch=sm_90a --ptx-only --bitcode -D act=f16 -D H=64 -D I=32 -o "$out/f16.moe" kernels/moe.dsl
    [ $bad -ne 0 ] || judge "examples/torch_layer.py" python3 tests/torch_layer_sim.py "$b/libmoert.so" "$out/f16.moe"
else
    echo "examples/torch_layer.py  SKIPPED: python3 has no numpy here"
fi
exit $bad
