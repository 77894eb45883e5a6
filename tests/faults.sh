#!/bin/sh
# Puts each fault of faults.tsv into compiled kernels and lets the simulator look for it: it must be found, be of the right kind, and be
# placed on the right line. faults.sh BUILD [NAME...]
#   level ir: the LLVM IR that becomes machine code (of kernels/moe.dsl; ops: of tests/device/ops.dsl), which is what is simulated
#   level tile: the laid-out tile IR, compiled without its verifier
b=$1; shift
only=$*
out=$b/tests/faults
rm -rf "$out"; mkdir -p "$out"
tab=$(printf '\t')
rows() { grep -v '^#' tests/faults.tsv; }
image() { "$b/moec" --arch="$1" --bitcode --ptx-only --verify="$4" -o "$3" "$2" 2>"$out/log"; }
prepare() { # arch level -> the base that is changed
    case $2 in
    ir) [ -e "$out/$1.ir" ] || image "$1" kernels/moe.dsl "$out/$1.ir" 1 ;;
    ops) [ -e "$out/$1.ops" ] || image "$1" tests/device/ops.dsl "$out/$1.ops" 1 ;;
    tile) [ -e "$out/$1.tile" ] || "$b/moec" --arch="$1" --dump=layout --stop-after=layout kernels/moe.dsl > "$out/$1.tile" ;;
    esac
}
run() { # device image kind-of-run
    dev=sim:$1; img=$2
    case $3 in
    layer) "$b/moerun" verify --device="$dev" --image="$img" --model=4:2:1024:256 --tokens=7 --rows=16 ;;
    layer64 | layer128) "$b/moerun" verify --device="$dev" --image="$img" --model=4:2:1024:256 --tokens=7 --rows=${3#layer} ;;
    layer64e) "$b/moerun" verify --device="$dev" --image="$img" --model=64:4:256:64 --tokens=7 --rows=16 ;;
    layer128e) "$b/moerun" verify --device="$dev" --image="$img" --model=128:4:256:64 --tokens=7 --rows=16 ;;
    layer40) "$b/moerun" verify --device="$dev" --image="$img" --model=4:2:1000:256 --tokens=40 --rows=16 ;;
    layer700) "$b/moerun" verify --device="$dev" --image="$img" --model=4:2:256:64 --tokens=700 --rows=16 ;;
    scatter) "$b/moerun" check --device="$dev" --image="$img" --source=tests/device/ops.dsl --kernel=scatter -D N=77 -D M=33 --int=i:-5:40 ;;
    esac
}
judge() { # name file kind text log: the kind must be named, on a line that contains the text
    lines=$([ -z "$4" ] && echo any || grep -nF -- "$4" "$2" | cut -d: -f1)
    if [ "$3" = wrong ]; then
        found=$(grep -oE 'written at [^ ]+:[0-9]+:[0-9]+:' "$5" | sed 's/written at //')
        grep -q WRONG "$5" || found=
        [ -n "$found" ] || { grep -q WRONG "$5" && [ "$lines" = any ] && found=any; }
    else
        found=$(grep -E "^[^ ]+: [^ ]+: ($3): " "$5" | sed 's/ .*//')
    fi
    [ -n "$found" ] || { echo "MISSED   $1: no $3"; head -3 "$5"; return 1; }
    [ "$lines" = any ] && return 0
    for l in $lines; do echo "$found" | grep -qE "^[^:]*:$l:" && return 0; done
    echo "MISPLACED $1: $(echo "$found" | head -3 | tr '\n' ' '), expected line $(echo $lines)"
    return 1
}
n=0; bad=0
while IFS="$tab" read -r name arch level where re nth repl how kind text; do
    case $name in '#'*) continue ;; esac
    [ -z "$only" ] || case " $only " in *" $name "*) ;; *) continue ;; esac
    n=$((n + 1))
    prepare "$arch" "$level" || { echo "no base for $name"; cat "$out/log"; bad=$((bad + 1)); continue; }
    log=$out/$name.log; src=kernels/moe.dsl
    case $level in
    tile)
        src=$out/$name.dsl
        "$b/tests/mutate" text "$out/$arch.tile" "$src" "$where" "$re" "$nth" "$repl" && image "$arch" "$src" "$out/$name.moe" 0
        ;;
    *)
        [ "$level" = ops ] && src=tests/device/ops.dsl
        "$b/tests/mutate" ir "$out/$arch.$level" "$out/$name.moe" "$where" "$re" "$nth" "$repl"
        ;;
    esac || { echo "BROKEN   $name"; head -3 "$out/log"; bad=$((bad + 1)); continue; }
    run "$arch" "$out/$name.moe" "$how" > "$log" 2>&1
    judge "$name" "$src" "$kind" "$text" "$log" || bad=$((bad + 1))
    rm -f "$out/$name.moe"
done < tests/faults.tsv
echo "$((n - bad)) of $n faults found, with their kind and line"
[ $bad -eq 0 ]
