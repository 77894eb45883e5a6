#!/bin/sh
# Runs tests/moe_cases.tsv: moe_cases.sh MOERUN s|all [OPTIONS of every call, such as --device=cuda:0 --image=F.moe]
# Without OPTIONS: --device=eval. Also proves the checks: each kind of damage to the results must be seen.
moerun=$1; which=$2; shift 2
[ $# -gt 0 ] || set -- --device=eval --repeats=2
cd "$(dirname "$0")/.." || exit 1
bad=0; n=0; log=$(mktemp)
trap 'rm -f "$log"' EXIT
while IFS='	' read -r id size options; do
    case $id in '#'*|'') continue ;; esac
    [ "$which" = all ] || [ "$which" = "$size" ] || continue
    n=$((n + 1))
    # shellcheck disable=SC2086
    "$moerun" verify "$@" $options > "$log" 2>&1 || { bad=$((bad + 1)); echo "$id: FAILED ($options)"; cat "$log"; }
done < tests/moe_cases.tsv
for how in y-zero y-token y-scale y-column y-truncate h-zero h-swap h-scale h-hole d-zero d-swap d-scale ids weights counts \
    slot_row row_token tiles repeat guard input; do
    n=$((n + 1))
    "$moerun" verify "$@" --tokens=33 --repeats=2 --mutate=$how > "$log" 2>&1
    s=$?
    [ $s -eq 1 ] || { bad=$((bad + 1)); echo "damage '$how' was not seen (status $s)"; cat "$log"; }
done
echo "$((n - bad)) of $n layer cases passed"
[ $bad -eq 0 ]
