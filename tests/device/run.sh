#!/bin/sh
# Every kernel of ops.dsl on a device, against eval. run.sh MOERUN DEVICE [OPTION...]
# e.g. run.sh build/moerun cuda:0 --image=ops.moe;  run.sh build/moerun eval --stage=layout --arch=gfx942
moerun=$1; dev=$2; src=$(dirname "$0")/ops.dsl; bad=0
shift 2; opts=$*
check() {
    k=$1; shift
    out=$("$moerun" check --device="$dev" --source="$src" $opts --kernel="$k" "$@" 2>&1) || { bad=1; echo "FAILED: $k $*"; }
    echo "$out" | grep -vE ': ok$'
    n_ok=$((n_ok + 1))
}
n_ok=0
for n in 1 77 1030; do
    check reals -D N=$n
    check integers -D N=$n --int=p:-100000:100000 --int=q:-40:40
    check control -D N=$n --int=rounds:7:7
    check scatter -D N=$n -D M=33 --int=i:-5:40
done
check tickets -D M=11 -D N=256
check tickets -D M=16 -D N=3
check integers -D N=500 --int=p:-3:3 --int=q:-2:2
check axes -D M=37 -D N=61
check axes -D M=64 -D N=64
check axes -D M=1 -D N=1
check real_axes -D M=9 -D N=700
check real_axes -D M=33 -D N=5
check best -D M=11 -D N=300 -D K=9
check best -D M=3 -D N=4 -D K=6
check narrow -D M=70 -D N=75 -D D=32 -D C=16 --limit=1e-3
check narrow -D M=5 -D N=130 -D D=7 -D C=3 --limit=1e-3
for k in plain half part; do
    check $k -D M=70 -D N=135 -D K=200
    check $k -D M=129 -D N=64 -D K=67
done
for depth in 8 200 264; do
    check aligned -D M=70 -D N=136 -D K=$depth --int=row:-2:75
    check aligned_half -D M=33 -D N=70 -D K=$depth
done
check computed -D M=70 -D N=135 -D K=100
check columns -D M=70 -D N=136 -D K=100
check columns -D M=33 -D N=35 -D K=77
check gram -D M=29 -D K=72
check vector -D N=150 -D K=333
# bf16 probabilities relative to the largest so far: the result depends on the tile by about a bf16 rounding
check attention -D M=77 -D N=150 -D D=64 --limit=4e-3
check attention -D M=13 -D N=70 -D D=33 --limit=4e-3
[ $bad -eq 0 ] && echo "$n_ok runs of every kernel agree with eval ($dev $opts)"
exit $bad
