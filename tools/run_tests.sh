#!/bin/sh
# run_tests.sh BUILD NAME...: runs the test programs one by one and prints one line each; the log of a failure follows it.
b=$1; shift
bad=0; n=0
for t; do
    n=$((n + 1))
    start=$(date +%s%N)
    if "$b/tests/$t" > "$b/tests/$t.log" 2>&1; then verdict=ok; else verdict=FAILED; bad=$((bad + 1)); fi
    ms=$((($(date +%s%N) - start) / 1000000))
    printf '%-24s %-7s %6d ms\n' "$t" "$verdict" "$ms"
    [ $verdict = ok ] || cat "$b/tests/$t.log"
done
echo "$((n - bad)) of $n test programs passed"
[ $bad -eq 0 ]
