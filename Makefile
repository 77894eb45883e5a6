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

# The compiler's files that need no LLVM: with them the runtime's tools can read DSL and run eval on any machine.
NEEDS_LLVM := compiler/mlir.c compiler/lower.c $(wildcard compiler/emit*.c) compiler/moec.c
COMPILER := $(wildcard compiler/*.c targets/*.c targets/nvptx/*.c targets/amdgpu/*.c)
COMPILER := $(filter-out targets/amdgpu/lld.c,$(COMPILER))
FRONT := $(filter-out $(NEEDS_LLVM) compiler/describe.c,$(wildcard compiler/*.c)) $(wildcard targets/*.c) targets/nvptx/arch.c \
    targets/amdgpu/arch.c
IMAGE := runtime/image.c runtime/image_use.c
RUNTIME := $(filter-out $(IMAGE),$(wildcard runtime/*.c)) $(IMAGE)
MOERUN := $(wildcard tools/moerun*.c) $(wildcard tests/ref_moe.c) $(wildcard models/*.c)
TESTS := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))

obj = $(patsubst %.c,$(B)/o/%.o,$(1))

.PHONY: all
all: $(B)/moec $(B)/libmoec.so $(B)/libmoert.so $(if $(MOERUN),$(B)/moerun)

$(B)/o/%.o: %.c
	@mkdir -p $(@D)
	$(V)$(CC) $(CFLAGS) $(LLVM_CFLAGS) $(DEFS) -MMD -MP -c $< -o $@

$(B)/libmoec.so: $(call obj,$(COMPILER) $(IMAGE))
	$(V)$(CC) $(SANITIZE) -shared -o $@ $^ $(LLVM_LIBS) -Wl,-z,defs -Wl,--exclude-libs,ALL -lm -lpthread
$(B)/moec: $(call obj,tools/moec.c $(COMPILER) $(IMAGE))
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -lm -lpthread
$(B)/libmoert.so: $(call obj,$(RUNTIME))
	$(V)$(CC) $(SANITIZE) -shared -o $@ $^ -Wl,-z,defs -ldl -lpthread
$(B)/moerun: $(call obj,$(MOERUN) $(COMPILER) $(RUNTIME))
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -ldl -lm -lpthread

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

# ---- tests
$(B)/tests/%: $(B)/o/tests/%.o $(call obj,$(COMPILER) $(RUNTIME) $(wildcard tests/ref_moe.c))
	@mkdir -p $(@D)
	$(V)$(CC) $(SANITIZE) -o $@ $^ $(LLVM_LIBS) -lcmocka -ldl -lm -lpthread
.PHONY: check
check: $(addprefix $(B)/tests/,$(TESTS))
	@tools/run_tests.sh $(B) $(TESTS)

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# ---- one static binary: MLIR, LLVM (NVPTX and AMDGPU) and lld inside; needs libc only
S := $(B)/static
MLIR_A = $(filter-out %Test% %CAPI%,$(wildcard $(LLVM_PREFIX)/lib/libMLIR*.a))
LLVM_A = $(wildcard $(LLVM_PREFIX)/lib/libLLVM*.a)
STATIC_OBJ := $(call obj,tools/moec.c $(COMPILER) targets/amdgpu/lld.c $(IMAGE))
.PHONY: static
static: $(S)/moec
	@$(S)/moec --version && ls -l $(S)/moec && xz -6 -k -c $(S)/moec | wc -c | sed 's/$$/ bytes as xz/'
$(S)/moec: $(STATIC_OBJ)
	@mkdir -p $(@D)
	$(V)$(CC) -B$(LLVM_PREFIX)/bin -fuse-ld=lld -o $@ $^ -static-libgcc -L$(LLVM_PREFIX)/lib -Wl,--gc-sections -Wl,--icf=all \
	    -Wl,-O2 -s -Wl,--start-group $(wildcard $(LLVM_PREFIX)/lib/libMLIRCAPI*.a) $(MLIR_A) $(LLVM_A) \
	    $(wildcard $(LLVM_PREFIX)/lib/liblldELF.a $(LLVM_PREFIX)/lib/liblldCommon.a) -Wl,--end-group \
	    -Wl,-Bstatic -lstdc++ -lz -lzstd -Wl,-Bdynamic -lrt -ldl -lm -lpthread
