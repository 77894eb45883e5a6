#!/bin/sh
# The contracts of the programs: exit statuses, outputs, messages. cli.sh BUILD
b=$1; moec=$b/moec; t=$(mktemp -d); bad=0; n=0
trap 'rm -rf "$t"' EXIT
ok() { n=$((n + 1)); [ "$1" = 0 ] || { echo "cli: FAILED: $2"; bad=$((bad + 1)); }; }
expect() { # status, text expected in the output (or ''), what, command...
    want=$1; text=$2; what=$3; shift 3
    "$@" > "$t/log" 2>&1; s=$?
    [ $s -eq "$want" ]; ok $? "$what: status $s, not $want"
    [ -z "$text" ] || { grep -qF -- "$text" "$t/log"; ok $? "$what: no '$text' in: $(head -c 300 "$t/log")"; }
}
M=kernels/moe.dsl
[ -n "$MOE_PTXAS" ] || command -v ptxas >/dev/null 2>&1 || [ ! -x "$b/tools/ptxas" ] || export MOE_PTXAS="$b/tools/ptxas"
expect 2 "no input file" "no arguments" $moec
expect 2 "unknown option" "unknown option" $moec --nonsense $M
expect 2 "unknown arch 'sm_1'" "unknown arch" $moec --arch=sm_1 -o "$t/x" $M
expect 2 "-o is missing" "no output" $moec --arch=sm_80 $M
expect 2 "cannot give this kind" "PTX for AMD" $moec --arch=gfx942 --emit=ptx -o "$t/x" $M
expect 2 "there is no kernel 'nope'" "unknown kernel" $moec --arch=sm_80 --kernel=nope -o "$t/x" $M
expect 2 "no variant 'down.r7' in this source; there are down.r16" "unknown variant" $moec --arch=sm_80 --kernel=down.r7 -o "$t/x" $M
expect 2 "unknown stage" "unknown stage" $moec --arch=sm_80 --stop-after=nope $M
expect 2 "unknown stage" "unknown stage to dump" $moec --arch=sm_80 --dump=nope $M
expect 2 "makes no output" "--stop-after with -o" $moec --arch=sm_80 --stop-after=tile -o "$t/x" $M
expect 2 "takes its value after '='" "a value apart" $moec --arch sm_80 $M
expect 2 "cannot be skipped" "a pass that must run" $moec --arch=sm_80 --skip=layout -o "$t/x" $M
expect 2 "not available" "prove" $moec --arch=sm_80 --prove -o "$t/x" $M
cp $M "$t/same.dsl"
expect 2 "overwrite the source" "output over the input" $moec --arch=sm_80 --emit=ptx -o "$t/same.dsl" "$t/same.dsl"
cmp -s $M "$t/same.dsl"; ok $? "the source was damaged"
expect 1 "No such file" "missing input" $moec --arch=sm_80 -o "$t/x" "$t/none.dsl"
expect 1 "Is a directory" "a folder as input" $moec --arch=sm_80 -o "$t/x" "$t"
expect 1 "No such file" "missing output folder" $moec --arch=sm_80 --emit=ptx -o "$t/none/x" --kernel=combine $M
expect 1 "No space left" "full disk" $moec --arch=sm_80 --emit=ptx -o /dev/full --kernel=combine $M
expect 1 "no dimension" "unknown binding" $moec --arch=sm_80 -D NOPE=3 -o "$t/x" $M
expect 1 "H" "a binding against 'require'" $moec --arch=sm_80 -D H=12 -o "$t/x" $M
expect 3 "ptxas" "missing ptxas" env MOE_PTXAS=/nonexistent/ptxas $moec --arch=sm_80 --emit=cubin --kernel=combine -o "$t/x" $M
[ ! -e "$t/x" ]; ok $? "a failed compile left an output"
expect 3 "lld" "missing linker" env MOE_LLD=/nonexistent/lld $moec --arch=gfx942 --emit=hsaco --kernel=combine -o "$t/x" $M
expect 0 "gfx950" "list of archs" $moec --list-archs
expect 0 "gate_up" "list of kernels" $moec --list-kernels $M
expect 0 "moec" "version" $moec --version
expect 0 "exit status" "help" $moec --help
expect 1 "No space left" "full disk for a listing" sh -c "$moec --list-kernels $M > /dev/full"
expect 2 "there is no kernel" "an empty source" $moec --arch=sm_80 -o "$t/x" /dev/null
expect 0 "name kernel" "tokens" $moec --dump=tokens $M
expect 0 "gate_up_r128" "report" $moec --arch=gfx942 --emit=asm --report $M
expect 0 "assemble" "times by kernel" $moec --arch=sm_90a --emit=ptx --time=kernels --kernel=combine $M
for e in asm llvm mlir tile; do
    expect 0 "" "--emit=$e" $moec --arch=gfx942 --emit=$e --kernel=combine -o "$t/e" $M
    [ -s "$t/e" ]; ok $? "--emit=$e wrote nothing"
done
$moec --arch=sm_90a --emit=ptx --kernel=combine -o - - < $M > "$t/o" 2>/dev/null && grep -q '\.entry combine' "$t/o"; ok $? "from standard input to standard output"
printf 'kernel k(x: f32[N], y: out f32[N]) {\n  parallel i in tile(N) {\n    y[i] = x[i] + nope\n  }\n}\n' > "$t/bad.dsl"
expect 1 "bad.dsl:3:19: error:" "an error in the source" $moec --arch=sm_80 -o "$t/x" "$t/bad.dsl"
echo keep > "$t/kept"
expect 1 "error:" "an error with an output there" $moec --arch=sm_80 -o "$t/kept" "$t/bad.dsl"
[ "$(cat "$t/kept")" = keep ] && [ "$(ls "$t" | grep -c kept)" = 1 ]; ok $? "a failed compile touched the output"
printf '#!/bin/sh\necho "ptxas error   : nonsense"\nexit 1\n' > "$t/ptxas"; chmod +x "$t/ptxas"
expect 70 "fault of moec" "an assembler that refuses" $moec --arch=sm_80 --emit=cubin --ptxas="$t/ptxas" --kernel=combine -o "$t/x" $M
expect 70 "nonsense" "a report of it" $moec --arch=sm_80 --emit=cubin --ptxas="$t/ptxas" --kernel=combine --emit-repro="$t/repro" -o "$t/x" $M
expect 0 "" "the report compiles" $moec --arch=sm_80 --emit=ptx --kernel=combine -o "$t/e" "$t/repro"
head -c 4096 /dev/urandom > "$t/noise.dsl"
expect 1 "" "noise as input" $moec --arch=sm_80 -o "$t/x" "$t/noise.dsl"

for a in sm_80 sm_90a sm_100a; do
    expect 0 "" "PTX for $a" $moec --arch=$a --emit=ptx -o "$t/$a.ptx" $M
    for k in gate_up down; do
        awk -v k="$k" '/\.entry/ { in_k = index($0, k "_") } in_k' "$t/$a.ptx" > "$t/k.ptx"
        for i in mma.sync.aligned.m16n8k16 ldmatrix.sync cp.async.cg; do
            grep -qF "$i" "$t/k.ptx"; ok $? "$a $k has no $i"
        done
    done
done
for a in gfx942 gfx950; do
    expect 0 "" "hsaco for $a" $moec --arch=$a --emit=hsaco -o "$t/$a.hsaco" $M
    llvm-readobj-22 --notes "$t/$a.hsaco" > "$t/notes" 2>&1
    for k in route_softmax route_sigmoid count plan gate_up_r16 gate_up_r64 gate_up_r128 down_r16 down_r128 combine; do
        grep -q "\.name: *$k\$" "$t/notes"; ok $? "$a: no kernel $k in the metadata"
    done
    # gate_up: five pointers, the tile list and two integers, then six dims: 6 * 8 + 8 * 4 = 80 bytes
    awk '/kernarg_segment_size/ { size = $2 } /\.name: *gate_up_r128$/ { exit size != 80 }' "$t/notes"; ok $? "$a: kernarg size of gate_up"
    grep -q 'wavefront_size: *64' "$t/notes"; ok $? "$a: wavefront size"
    grep 'vgpr_spill_count' "$t/notes" | grep -qv ': *0$' && ok 1 "$a: registers are spilled"
    llvm-objdump-22 -d "$t/$a.hsaco" > "$t/dis"
    for k in gate_up_r128 down_r128 gate_up_r16; do
        awk -v k="<$k>:" 'index($0, k) { on = 1; next } /^[0-9a-f]+ </ { on = 0 } on' "$t/dis" > "$t/k.s"
        for i in v_mfma_f32 buffer_load_dwordx4 ds_read_b128 ds_write_b128; do
            grep -q "$i" "$t/k.s"; ok $? "$a $k has no $i"
        done
    done
done
if [ -n "$MOE_PTXAS" ] || command -v ptxas >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/ptxas ]; then
    for a in sm_80 sm_90a sm_100a; do # a spill is a warning on standard error
        expect 0 "" "cubin for $a" $moec --arch=$a --emit=cubin -o "$t/$a.cubin" $M
        grep -qE "spill" "$t/log" && ok 1 "$a: $(grep spill "$t/log" | head -1)"
    done
else
    echo "cli: no ptxas here: cubins not tested"
fi
$moec --arch=gfx942 -o "$t/a" $M && $moec --arch=gfx942 -o "$t/b" $M && cmp -s "$t/a" "$t/b"; ok $? "two compiles differ"
for s in tile expand sched layout; do # every dump can be fed back, and is a fixed point
    $moec --arch=sm_90a --dump=$s --stop-after=$s $M > "$t/1.dsl" 2>"$t/log" && [ -s "$t/1.dsl" ]; ok $? "dump of $s: $(head -c 200 "$t/log")"
    for k in gate_up combine; do
        $moec --arch=sm_90a --dump=tile --stop-after=tile --kernel=$k - < "$t/1.dsl" > "$t/2.dsl" 2>"$t/log"; ok $? "the dump of $s does not read back: $(head -c 300 "$t/log")"
        $moec --arch=sm_90a --dump=tile --stop-after=tile --kernel=$k - < "$t/2.dsl" > "$t/3.dsl" 2>/dev/null && cmp -s "$t/2.dsl" "$t/3.dsl"; ok $? "the dump of $s is no fixed point"
    done
done
mkdir "$t/d" && $moec --arch=gfx942 --kernel=down.r16 --dump-dir="$t/d" -o "$t/x" $M && [ "$(ls "$t/d" | wc -l)" = 12 ] &&
    [ "$(find "$t/d" -empty | wc -l)" = 0 ]; ok $? "--dump-dir"
$moec --arch=gfx942 --kernel=down.r16 --dump-dir="$t/new" --stop-after=layout $M && [ "$(ls "$t/new" | wc -l)" = 6 ]; ok $? "--stop-after"
# moerun --model: names, words and files in one list; what is refused, by name.
r="$b/moerun verify --device=eval --repeats=1 --tokens=5"
mkdir "$t/ds" && echo '{"model_type": "deepseek_v3", "hidden_size": 64, "moe_intermediate_size": 64, "n_routed_experts": 32}' > "$t/ds/config.json"
echo '{"text_config": {"architectures": ["GptOssForCausalLM"], "hidden_size": 64, "intermediate_size": 72, "num_local_experts": 8}}' > "$t/oss.json"
expect 0 "ds bf16" "a config.json" $r --model="$t/ds/config.json"
expect 0 "oss bf16" "a list of files and words" $r --model="16:3:64:64:raw:groups=4/2:shared=2:gate:16,$t/oss.json,tiny"
expect 2 "none.json" "no such config" $r --model=none.json
expect 2 "kernels/moe.dsl: byte 0: expected a value" "no JSON" $r --model=$M
echo '{"model_type": "llama"}' > "$t/llama.json"
expect 2 "llama.json: model_type 'llama' is none of the known ones: mixtral" "another kind of model" $r --model=tiny,"$t/llama.json"
expect 2 "the models are: tiny mixtral-8x7b" "unknown model" $r --model=mixtral
for w in clamped biases gate groups=3/1 groups=4/2q groups=4/5 groups=8/4p groups= shared=0 shared=31 shared=2x relu inf nan ''; do
    expect 2 "--model" "the word '$w'" $r --model="8:2:64:64:$w"
done
expect 2 "groups=4/2" "more choices than the groups have" $r --model=8:5:64:64:groups=4/2
expect 2 "E:K:H:I" "too few numbers" $r --model=8:2:64
# ---- moerun, on the simulator: its times say nothing, but everything around them runs
r=$b/moerun; MOE_CACHE_DIR=$t/cache; export MOE_CACHE_DIR
sim="--device=sim:sm_90a --model=2:1:16:16"
expect 0 "exit status" "moerun: help" $r --help
expect 2 "unknown option" "moerun: unknown option" $r bench --nonsense
expect 2 "expected run, verify, bench, tune" "moerun: unknown command" $r nonsense
expect 2 "expected cold, warm or both" "moerun: --l2" $r bench --l2=hot
expect 2 "expected TFLOPS,GBPS" "moerun: --floor" $r bench --floor=790
expect 2 "expected TFLOPS,GBPS" "moerun: --floor, negative" $r bench --floor=790,-1
expect 2 "bench of 0 tokens" "moerun: bench of nothing" $r bench $sim --tokens=0
expect 2 "tune of 0 tokens" "moerun: tune of nothing" $r tune $sim --tokens=0
expect 2 "a hint is one tile" "moerun: tune for both" $r tune $sim --l2=both
expect 2 "needs a GPU" "moerun: bench on eval" $r bench --device=eval
expect 2 "needs a GPU" "moerun: streams on eval" $r verify --device=eval --model=2:1:16:16 --tokens=1 --streams=2
expect 0 "4 streams at once" "moerun: streams" $r verify $sim --tokens=5 --streams=4
expect 2 "cannot write /nonexistent/a.svg" "moerun: a picture that cannot be written" $r bench $sim --svg=/nonexistent/a.svg
expect 2 "cannot write /nonexistent/a.json" "moerun: JSON that cannot be written" $r bench $sim --json=/nonexistent/a.json
expect 2 "cannot write /nonexistent/hints" "moerun: hints that cannot be written" $r tune $sim --hints=/nonexistent/hints
expect 2 "cannot read /nonexistent/hints" "moerun: hints that are not there" $r verify $sim --tokens=1 --hints=/nonexistent/hints
expect 0 "sim:gfx942" "moerun: devices" $r info
expect 0 "simulated" "moerun: one device" $r info --device=sim:sm_80
expect 3 "" "moerun: no such device" $r info --device=cuda:99
expect 0 "say nothing" "moerun: bench" $r bench $sim --tokens=1,9 --l2=both --repeats=2 --svg="$t/a.svg" --json="$t/a.json" --progress
grep -q ' (our own kernel), .* (read, measured)' "$t/log"; ok $? "moerun: which ceilings were measured: $(grep ceilings "$t/log")"
grep -q "$(printf '\r')" "$t/log"; ok $? "moerun: --progress shows none"
[ "$(grep -c '"l2": "cold"' "$t/a.json")" = 2 ] && [ "$(grep -c '"l2": "warm"' "$t/a.json")" = 2 ]; ok $? "moerun: a row for each L2"
for k in replays layer_ms_p10 layer_ms_p90 flops bytes tflops gbps ceiling_tflops ceiling_gbps_from floor_ms over_floor gate_up_ms with_routing_ms host_us result; do
    grep -q "\"$k\": " "$t/a.json"; ok $? "moerun: no $k in the JSON"
done
[ "$(grep -o 'class="point"' "$t/a.svg" | wc -l)" = 8 ]; ok $? "moerun: points of the picture"
! command -v xmllint >/dev/null 2>&1 || xmllint --noout "$t/a.svg"; ok $? "moerun: the picture is no XML"
! command -v python3 >/dev/null 2>&1 || python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$t/a.json"; ok $? "moerun: no JSON"
$r bench $sim --tokens=1 --repeats=2 > "$t/log" 2>"$t/err"; tr -d '\n' < "$t/err" | grep -q "$(printf '\r')" && ok 1 "moerun: progress without a terminal"
expect 1 "less than 0.85 of the floor" "moerun: faster than possible" $r bench $sim --tokens=1 --repeats=1 --floor=1e-9,1e-9
expect 0 "(--floor), 2 GB/s" "moerun: ceilings given" $r bench $sim --tokens=1 --repeats=1 --floor=1,2
mkdir "$t/alone"; cp $M "$t/alone"
expect 0 "790 is assumed" "moerun: no ceiling can be measured" $r bench $sim --tokens=1 --repeats=1 --source="$t/alone/moe.dsl"
if ${CC:-cc} -shared -fPIC -o "$t/blas.so" tests/fake_blas.c; then
    expect 0 "(cuBLAS, measured)" "moerun: the vendor's BLAS" env MOE_BLAS_LIBRARY="$t/blas.so" $r bench $sim --tokens=1 --repeats=1
    expect 0 "(our own kernel)" "moerun: a BLAS that fails" env MOE_BLAS_LIBRARY="$t/blas.so" FAKE_BLAS=fail $r bench $sim --tokens=1 --repeats=1
fi
printf '# a comment\nmoe-hint 1|other|sm_90a|2:1:16:16|bf16|0|1|64\n' > "$t/hints"
expect 0 "say nothing" "moerun: tune" $r tune $sim --tokens=1,2 --repeats=2 --hints="$t/hints" --json="$t/tune.json"
grep -q '^# a comment$' "$t/hints" && grep -q '^moe-hint 1|other|' "$t/hints"; ok $? "moerun: tune lost lines of others"
[ "$(ls "$t" | grep -c hints)" = 1 ]; ok $? "moerun: tune left a file aside"
[ "$(grep -c '"fastest": 1' "$t/tune.json")" = 2 ] && [ "$(grep -c '"chosen": 1' "$t/tune.json")" = 2 ]; ok $? "moerun: tune's JSON"
expect 0 "rows=16:" "moerun: the own choice" $r verify $sim --tokens=1
d="moe-hint 1|$(sed -n 's/.*"device": "\([^"]*\)".*/\1/p' "$t/tune.json" | head -1)|sm_90a"
echo "$d|2:1:16:16|bf16|0|1|64" > "$t/mine"; echo "$d|2:1:16:24|bf16|0|1|64" > "$t/shape"; sed 's/sm_90a/sm_80/' "$t/mine" > "$t/arch"
expect 0 "rows=64:" "moerun: a hint" $r verify $sim --tokens=1 --hints="$t/mine"
expect 0 "rows=16:" "moerun: a hint for another shape" $r verify $sim --tokens=1 --hints="$t/shape"
expect 0 "rows=16:" "moerun: a hint for another arch" $r verify $sim --tokens=1 --hints="$t/arch"
echo "cli: $((n - bad)) of $n checks passed"
[ $bad -eq 0 ]
