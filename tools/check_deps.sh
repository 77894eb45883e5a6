#!/bin/sh
# Dependencies point one way: compiler/ knows targets/ only through target.h and runtime/ only through image.h; vendors'
# names stand only where they may; MLIR and LLVM headers are included only by the files that own them.
bad=0
complain() { [ -z "$1" ] || { echo "$2"; echo "$1" | sed 's/^/    /'; bad=1; }; }
complain "$(grep -nE '#include "(\.\./)?(targets/[^t]|targets/tool|tools/|tests/|models/)' compiler/*.[ch])" "compiler/ may include only targets/target.h"
complain "$(grep -nE '#include "\.\./runtime/' compiler/*.[ch] | grep -v 'runtime/image.h')" "compiler/ may include only runtime/image.h"
complain "$(grep -nE '#include "(\.\./)+(compiler|targets|tools|tests|models)/' runtime/*.[ch] runtime/sim/*.[ch])" "runtime/ stands alone"
complain "$(grep -nE '#include "(\.\./)+(runtime|tools|tests|models)/' targets/*.[ch] targets/*/*.[ch])" "targets/ may include only compiler/ headers"
complain "$(grep -nE '#include "' examples/*.[ch] | grep -vE '"(moert|moejit|moelayer|moedlpack|image|helpers|versions)\.h"')" "examples/ may include only public headers"
complain "$(grep -nwE 'sm_[0-9]+a?|gfx[0-9]+' $(git ls-files 'compiler/*.[ch]' 'compiler/*.def' 'runtime/*.[ch]') | grep -vE '^runtime/(cuda|image|moert|sim/machines.c|sim/moesim.h)|^compiler/moec.h|//')" "arch names outside targets/, kernels/, tests/, docs"
complain "$(grep -nE 'nvvm|rocdl|nvptx|amdgpu' compiler/*.[ch] targets/*.[ch] | grep -vE '^compiler/(mlir|lower)\.[ch]|^targets/targets\.c|//')" "a vendor's name outside its folder"
complain "$(grep -ln 'mlir-c/' $(git ls-files '*.[ch]') | grep -vE '^compiler/(mlir|lower)\.c$')" "mlir-c outside compiler/mlir.c and lower.c"
complain "$(grep -ln 'llvm-c/' $(git ls-files '*.[ch]') | grep -vE '^compiler/lower\.c$|^targets/(nvptx|amdgpu)/(arch|finish)\.c$|^runtime/sim/|^tests/')" "llvm-c outside lower.c and the targets"
complain "$(for f in $(git ls-files '*.c' '*.h'); do n=$(wc -l < "$f"); [ "$n" -le 1000 ] || echo "$f: $n lines"; done)" "files over 1,000 lines"
[ $bad -eq 0 ] && echo "dependencies ok"
exit $bad
