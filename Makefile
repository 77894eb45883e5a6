# moec, libmoert, moerun. `make run` and `make test` are the two commands of README.md; HACKING.md explains the rest.
LLVM_PREFIX ?= /usr/lib/llvm-22
CC ?= gcc
B := build
SANITIZE ?=
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Werror
CFLAGS ?= -O2 -g
override CFLAGS += -std=c17 -D_GNU_SOURCE -fPIC -fvisibility=hidden $(WARN) $(SANITIZE)
LLVM_CFLAGS := -isystem $(LLVM_PREFIX)/include
LLVM_LIBS = -L$(LLVM_PREFIX)/lib -Wl,-rpath,$(LLVM_PREFIX)/lib -Wl,--start-group $(LLVM_PREFIX)/lib/libMLIRCAPI*.a \
    -Wl,--end-group -lMLIR -lLLVM -lstdc++
V = @
comma := ,

# The compiler's files that need no LLVM: with them the runtime's tools can read DSL and run eval on any machine.
NEEDS_LLVM := compiler/mlir.c compiler/lower.c $(wildcard compiler/emit*.c) compiler/moec.c
COMPILER := $(wildcard compiler/*.c targets/*.c targets/nvptx/*.c targets/amdgpu/*.c)
COMPILER := $(filter-out targets/amdgpu/lld.c,$(COMPILER))
FRONT := $(filter-out $(NEEDS_LLVM) compiler/describe.c,$(wildcard compiler/*.c)) $(wildcard targets/*.c) targets/nvptx/arch.c \
    targets/amdgpu/arch.c
IMAGE := runtime/image.c runtime/image_use.c
RUNTIME := $(filter-out $(IMAGE),$(wildcard runtime/*.c)) $(IMAGE)
PUBLIC := $(addprefix runtime/,moert.h moejit.h moelayer.h moedlpack.h image.h)
SIM := $(wildcard runtime/sim/*.c)
MOERUN := $(wildcard tools/moerun*.c) $(wildcard tests/ref_*.c) $(wildcard models/*.c)
TESTS := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))

obj = $(patsubst %.c,$(B)/o/%.o,$(1))

.PHONY: all
all: $(B)/moec $(B)/libmoec.so $(B)/libmoert.so $(B)/libmoesim.so $(if $(MOERUN),$(B)/moerun)

$(B)/o/%.o: %.c
	@mkdir -p $(@D)
	$(V)$(CC) $(CFLAGS) $(LLVM_CFLAGS) $(DEFS) -MMD -MP -c $< -o $@

$(B)/libmoec.so: $(call obj,$(COMPILER) $(IMAGE))
	$(V)$(CC) $(SANITIZE) -shared -o $@ $^ $(LLVM_LIBS) -Wl,-z,defs -Wl,--exclude-libs,ALL -lm -lpthread
$(B)/moec: $(call obj,tools/moec.c $(COMPILER) $(IMAGE))
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -lm -lpthread
$(B)/libmoert.so: $(call obj,$(RUNTIME))
	$(V)$(CC) $(SANITIZE) -shared -o $@ $^ -Wl,-z,defs -ldl -lpthread
$(B)/libmoesim.so: $(call obj,$(SIM) $(IMAGE))
	$(V)$(CC) $(SANITIZE) -shared -o $@ $^ -L$(LLVM_PREFIX)/lib -Wl,-rpath,$(LLVM_PREFIX)/lib -Wl,-z,defs -lLLVM -lm -lpthread
# libmoert's JIT sees the compiler in the program by its exported names.
$(B)/moerun: $(call obj,$(MOERUN) $(COMPILER) $(RUNTIME))
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -Wl,--export-dynamic-symbol='moec_*' -ldl -lm -lpthread

# ---- machines without LLVM: the runtime and moerun, with ready images
LITE := $(B)/lite
LITE_SRC := $(MOERUN) $(FRONT) $(RUNTIME)
.PHONY: moerun-lite
moerun-lite: $(LITE)/moerun
$(LITE)/o/%.o: %.c
	@mkdir -p $(@D)
	$(V)$(CC) $(CFLAGS) -DMOE_NO_COMPILER -MMD -MP -c $< -o $@
$(LITE)/moerun: $(patsubst %.c,$(LITE)/o/%.o,$(LITE_SRC))
	$(V)$(CC) -o $@ $^ -ldl -lm -lpthread

# ---- what a forward costs the host, measured on a device (docs/runtime.md)
.PHONY: host-cost load-cost
host-cost load-cost: %: $(B)/%
$(B)/%-cost: $(B)/o/tools/%_cost.o $(call obj,$(RUNTIME))
	$(V)$(CC) $(SANITIZE) -o $@ $^ -ldl -lpthread

# ---- tests
$(B)/tests/%: $(B)/o/tests/%.o $(call obj,$(COMPILER) $(RUNTIME) runtime/sim/matrix.c runtime/sim/matrix_sum.c tests/sim_ir.c $(wildcard tests/ref_*.c models/*.c))
	@mkdir -p $(@D)
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -lcmocka -ldl -lm -lpthread
$(addprefix $(B)/tests/,test_cuda test_hip): $(B)/o/tests/driver_tests.o $(B)/o/tests/batch_tests.o
$(B)/tests/test_svg: $(B)/o/tools/moerun_svg.o
$(B)/tests/test_hints: $(B)/o/tools/moerun_hints.o
# By its soname the fake libamdhip64 is one that a program has loaded already.
FAKES := $(B)/tests/libfakecuda.so $(B)/tests/libfakehip.so
$(B)/tests/libfake%.so: tests/fake_%.c tests/fake_gpu.c tests/fake_gpu.h runtime/%_abi.h
	@mkdir -p $(@D)
	$(V)$(CC) $(CFLAGS) $(SANITIZE) -shared -o $@ $(filter %.c,$^) $(if $(findstring hip,$@),-Wl$(comma)-soname$(comma)libamdhip64.so) -lpthread
$(B)/tests/libptxsim.so: tests/ptx_cuda.c tests/ptx_parse.c tests/ptx_sim.c tests/ptx_sim.h
	@mkdir -p $(@D)
	$(V)$(CC) $(CFLAGS) $(SANITIZE) -fvisibility=default -shared -o $@ $(filter %.c,$^) -lm -lpthread
$(B)/tests/mutate: $(B)/o/tests/mutate.o $(call obj,$(IMAGE))
	$(V)$(CC) $(SANITIZE) -o $@ $^ -L$(LLVM_PREFIX)/lib -Wl,-rpath,$(LLVM_PREFIX)/lib -lLLVM
.SECONDARY:
.PHONY: check
check: check-abi $(FAKES) $(B)/libmoesim.so $(B)/moec $(B)/libmoec.so $(addprefix $(B)/tests/,$(TESTS))
	@tools/run_tests.sh $(B) $(TESTS)

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# ---- one static binary: MLIR, LLVM (NVPTX and AMDGPU) and lld inside; needs libc only
S := $(B)/static
MLIR_A = $(filter-out %Test% %CAPI%,$(wildcard $(LLVM_PREFIX)/lib/libMLIR*.a))
LLVM_A = $(wildcard $(LLVM_PREFIX)/lib/libLLVM*.a)
STATIC_OBJ := $(call obj,tools/moec.c $(COMPILER) targets/amdgpu/lld.c $(IMAGE))
.PHONY: static
static:
	@tools/deps.sh static
	@$(MAKE) --no-print-directory $(S)/moec
	@$(S)/moec --version && ls -l $(S)/moec && xz -6 -k -c $(S)/moec | wc -c | sed 's/$$/ bytes as xz/'
$(S)/moec: $(STATIC_OBJ)
	@mkdir -p $(@D)
	$(V)$(CC) -B$(LLVM_PREFIX)/bin -fuse-ld=lld -o $@ $^ -static-libgcc -L$(LLVM_PREFIX)/lib -Wl,--gc-sections -Wl,--icf=all \
	    -Wl,-O2 -s -Wl,--start-group $(wildcard $(LLVM_PREFIX)/lib/libMLIRCAPI*.a) $(MLIR_A) $(LLVM_A) \
	    $(wildcard $(LLVM_PREFIX)/lib/liblldELF.a $(LLVM_PREFIX)/lib/liblldCommon.a) -Wl,--end-group \
	    -Wl,-Bstatic -lstdc++ -lz -lzstd -Wl,-Bdynamic -lrt -ldl -lm -lpthread

# ---- the two commands of README.md
.PHONY: run test deps
deps:
	@tools/deps.sh test
	@tools/get_ptxas.sh $(B)/tools >/dev/null || echo "no ptxas, and none to be had: cubins are not made and not tested"
run:
	@tools/deps.sh build
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@tools/run_layer.sh $(B)
test: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(MAKE) --no-print-directory -j$$(nproc) check check-cli check-ptx check-sim check-seeds check-faults check-deps check-symbols check-docs
	@$(MAKE) --no-print-directory -j$$(nproc) check-san

# ---- further groups, see HACKING.md
.PHONY: check-abi check-cases check-docs check-ptx check-sim check-seeds check-faults check-cli check-deps check-symbols check-static check-direct check-device check-asan check-ubsan check-san check-oom check-valgrind check-damage \
    fmt check-fmt check-tidy golden-update fuzz wc wide install clean
check-cli: $(B)/moec $(if $(MOERUN),$(B)/moerun)
	@tests/cli.sh $(B)
	@for a in sm_90a gfx942; do tests/device/run.sh $(B)/moerun eval --stage=layout --arch=$$a || exit 1; done
# The machine code's own text, carried out: every kernel of tests/device/ops.dsl and the layer as PTX, in an interpreter that
# stands in for libcuda (no GPU).
check-ptx: $(B)/moerun $(B)/tests/libptxsim.so
	@MOE_CUDA_LIBRARY=$(B)/tests/libptxsim.so tests/device/run.sh $(B)/moerun cuda:0 --ptx
	@MOE_CUDA_LIBRARY=$(B)/tests/libptxsim.so $(B)/moerun verify --device=cuda:0 --ptx --model=tiny --tokens=1,33 --rows=all --repeats=2
# The LLVM IR that becomes machine code, in the simulator, for every vendor: all operations against eval; the layer with every row tile
# in 50 orders; faults put into the kernels, each of which must be found.
SIMS := sm_80 sm_90a gfx942 gfx950
check-sim: $(B)/moec $(B)/moerun $(B)/libmoesim.so
	@for a in $(SIMS); do tests/device/run.sh $(B)/moerun sim:$$a || exit 1; done
MODELS := 16:4:128:64:sigmoid:bias:2.5:groups=4/2p:shared=1,16:4:128:64:groups=4/2:shared=2:gate:raw:16,8:2:128:64:clamped:biases,8:2:128:64:gelu
check-seeds: $(B)/moerun $(B)/libmoesim.so
	@for a in $(SIMS); do $(B)/moerun verify --device=sim:$$a --model=4:2:640:192 --tokens=7 --rows=all --repeats=50 || exit 1; done
	@for a in $(SIMS); do $(B)/moerun verify --device=sim:$$a --model=$(MODELS) --tokens=33 --rows=all --repeats=3 || exit 1; done
check-faults: $(B)/moec $(B)/moerun $(B)/libmoesim.so $(B)/tests/mutate
	@tests/faults.sh $(B)
# Calls of the layer that went wrong in other stacks, in eval: some minutes.
check-cases: $(B)/moerun
	@tests/moe_cases.sh $(B)/moerun s --device=eval
check-deps:
	@tools/check_deps.sh
check-abi:
	@CC=$(CC) tools/check_abi.sh
# The program in docs/runtime.md and the examples: public headers and libmoert.so alone, on the simulator.
.PHONY: examples
examples: $(B)/server
$(B)/server: examples/server.c $(wildcard examples/*.h) $(PUBLIC) $(B)/libmoert.so
	$(V)$(CC) -std=c17 -O2 -g $(WARN) $(SANITIZE) -Iruntime -o $@ $< -L$(B) -Wl,-rpath,'$$ORIGIN' -lmoert -lpthread
check-docs: all
	@CC="$(CC)" SANITIZE="$(SANITIZE)" tools/check_docs.sh $(B)
check-symbols: $(B)/libmoert.so $(B)/libmoec.so $(B)/libmoesim.so
	@tools/check_symbols.sh $(B)
check-static: $(S)/moec $(B)/moec
	@tools/check_static.sh $(B)
# libmoert in one line of a plain C compiler: nothing of LLVM. Public headers alone, in C and in C++.
check-direct:
	@for h in compiler/moec.h $(PUBLIC); do $(CC) -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c $$h \
	    && g++ -std=c++17 -fsyntax-only -x c++ $$h || exit 1; done
	@mkdir -p $(B) && $(CC) -std=c17 -D_GNU_SOURCE -shared -fPIC $(RUNTIME) -o $(B)/direct.so -ldl -lpthread && echo "direct build ok"
check-device: all
	@for d in cuda:0 hip:0; do if $(B)/moerun info --device=$$d; then \
	    $(B)/moerun verify --device=$$d --model=tiny --tokens=1,33,128 || exit 1; else echo "check-device: $$d SKIPPED: not here"; fi; done
# The sanitizers, each in its own folder. Leaks of LLVM's own registries are not ours to judge.
sanitized = ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(MAKE) --no-print-directory \
    B=$(B)/$(1) SANITIZE="-fsanitize=$(2) -fno-omit-frame-pointer" CFLAGS="-O1 -g $(4)" WARN=-w $(3)
check-san:
	+@$(call sanitized,san,address$(comma)undefined,check)
check-asan:
	+@$(call sanitized,asan,address,check)
check-ubsan:
	+@$(call sanitized,ubsan,undefined,check)
check-oom:
	+@$(call sanitized,oom,address,$(B)/oom/tests/test_oom,-DARENA_CHUNK=16) && ASAN_OPTIONS=detect_leaks=0 $(B)/oom/tests/test_oom
check-valgrind: $(FAKES) $(addprefix $(B)/tests/,$(TESTS))
	@for t in test_image test_layout test_cuda test_hip; do valgrind -q --error-exitcode=1 --leak-check=full \
	    --show-leak-kinds=definite --errors-for-leak-kinds=definite $(B)/tests/$$t >/dev/null && echo "$$t ok" || exit 1; done
golden-update: $(B)/tests/test_golden
	@GOLDEN_UPDATE=1 $<; git diff --stat -- tests/golden
fmt:
	@clang-format -i $$(git ls-files '*.c' '*.h')
check-fmt:
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
check-tidy:
	@clang-tidy --quiet --warnings-as-errors='*' $(filter-out targets/amdgpu/lld.c,$(wildcard compiler/*.c targets/*.c targets/*/*.c \
	    runtime/*.c tools/*.c)) -- -std=c17 -D_GNU_SOURCE $(LLVM_CFLAGS)

# A real module, cut at every 64th byte and with single bits flipped: loading must refuse it or give host code. Takes a quarter of an hour.
check-damage: $(B)/moec
	@$(B)/moec --arch=sm_80 --bitcode --ptx-only -o $(B)/damage.moe kernels/moe.dsl
	@$(CC) -std=c17 -D_GNU_SOURCE -O1 -g -fsanitize=address -fno-omit-frame-pointer $(LLVM_CFLAGS) -o $(B)/damage tests/fuzz/damage.c $(SIM) \
	    $(IMAGE) -L$(LLVM_PREFIX)/lib -Wl,-rpath,$(LLVM_PREFIX)/lib -lLLVM -lm -lpthread
	@ASAN_OPTIONS=detect_leaks=0:handle_abort=1 $(B)/damage $(B)/damage.moe sm_80

T ?= 60
FUZZ_FLAGS := -std=c17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_SRC = $(filter-out targets/tool.c,$(FRONT)) $(IMAGE) $(wildcard models/*.c)
FUZZ := parse image ptx config
fuzz:
	@tools/deps.sh fuzz
	@mkdir -p $(addprefix $(B)/fuzz/,$(FUZZ))
	@for f in parse image config; do clang-22 $(FUZZ_FLAGS) -DFUZZ_CHECK -DMOE_NO_COMPILER -o $(B)/fuzz/fuzz_$$f tests/fuzz/fuzz_$$f.c $(FUZZ_SRC) -lm || exit 1; done
	@clang-22 $(FUZZ_FLAGS) $(LLVM_CFLAGS) -o $(B)/fuzz/fuzz_ptx tests/fuzz/fuzz_ptx.c $(SIM) $(IMAGE) -L$(LLVM_PREFIX)/lib \
	    -Wl,-rpath,$(LLVM_PREFIX)/lib -lLLVM -lm -lpthread
	@grep -ho '[a-z_:.0-9]*\(async\|mbarrier\|bar\|mma\|ld\|st\|mov\)[^\"]*;' tests/test_sim*.c | awk '{ print "\3" $$0 > "$(B)/fuzz/ptx/" NR }'
	@for f in $$(git ls-files '*.dsl'); do cp $$f $(B)/fuzz/parse/$$(echo $$f | tr / _); done
	@for f in $(FUZZ); do echo "fuzzing $$f for $(T) s"; ASAN_OPTIONS=detect_leaks=0 $(B)/fuzz/fuzz_$$f -max_total_time=$(T) \
	    -rss_limit_mb=4096 -verbosity=0 -print_final_stats=1 $$(ls tests/fuzz/$$f.dict 2>/dev/null | sed s/^/-dict=/) $(B)/fuzz/$$f 2>&1 | \
	    grep -E "ERROR|SUMMARY|number_of_executed" || true; ls crash-* 2>/dev/null && exit 1 || true; done

wc:
	@wc -l $$(git ls-files '*.c' '*.h' '*.def' '*.dsl') | sort -n | tail -40
wide:
	@awk 'length > 120 { print FILENAME ":" FNR ": " length }' $$(git ls-files '*.c' '*.h' '*.def') || true
PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include/moe $(DESTDIR)$(PREFIX)/share/moec
	install $(B)/moec $(B)/moerun $(DESTDIR)$(PREFIX)/bin
	install $(B)/libmoec.so $(B)/libmoert.so $(B)/libmoesim.so $(DESTDIR)$(PREFIX)/lib
	install -m 644 compiler/moec.h $(PUBLIC) $(DESTDIR)$(PREFIX)/include/moe
	install -m 644 kernels/moe.dsl kernels/bandwidth.dsl $(DESTDIR)$(PREFIX)/share/moec
clean:
	rm -rf $(B)
