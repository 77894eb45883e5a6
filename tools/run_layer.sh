#!/bin/sh
# Compiles kernels/moe.dsl for every arch into build/out, then runs the whole layer on the best device there is and checks
# it against double precision. run_layer.sh BUILD
set -u
b=$1
out=$b/out
mkdir -p "$out"
failed=0

have_ptxas=yes
MOE_PTXAS=$(tools/get_ptxas.sh "$b/tools") && export MOE_PTXAS || { unset MOE_PTXAS; have_ptxas=no; }
compile() { # arch kind suffix [option]
    "$b/moec" --arch="$1" --emit="$2" ${4:-} -o "$out/moe.$1.$3" kernels/moe.dsl
    s=$?
    [ $s -eq 0 ] || failed=1
    return $s
}
for a in sm_80 sm_90a sm_100a; do
    compile $a ptx ptx
    if [ $have_ptxas = yes ] && compile $a cubin cubin; then
        compile $a image moe --bitcode
    else
        "$b/moec" --arch=$a --ptx-only --bitcode -o "$out/moe.$a.moe" kernels/moe.dsl || failed=1
    fi
done
for a in gfx942 gfx950; do
    compile $a hsaco hsaco
    compile $a image moe --bitcode
done
[ $have_ptxas = yes ] || echo "no ptxas on this machine: PTX only. Install the CUDA toolkit, or set MOE_PTXAS, for cubins."
ls -l "$out" | awk 'NR > 1 { printf "%10d  %s\n", $5, $9 }'
[ $failed -eq 0 ] || exit 1

for d in cuda:0 hip:0; do
    "$b/moerun" info --device=$d >/dev/null 2>&1 || continue
    echo "running the layer on $d"
    exec "$b/moerun" verify --device=$d --model=mixtral-8x7b --tokens=1,33,128
done
echo "no GPU here: running the same images in the simulator, with a reduced model"
for a in sm_80 sm_90a gfx942 gfx950; do
    "$b/moerun" verify --device=sim:$a --image="$out/moe.$a.moe" --model=tiny --tokens=1,33 || exit 1
done
