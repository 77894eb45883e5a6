// lld inside this process, for the static binary only. lld has no C interface: its ELF driver is called by its mangled
// name (ArrayRef<const char *> is passed in two registers), so a changed name is a link error, never a wrong call.
//
// lld keeps its state in globals: one link at a time, and the state of each is thrown away.
#include "amdgpu.h"

#include <pthread.h>
#include <stdlib.h>

struct array_ref { // llvm::ArrayRef<const char *>
    const char *const *p;
    size_t n;
};
extern bool elf_link(struct array_ref args, void *out, void *err, bool exit_early,
                     bool disable_output) __asm__("_ZN3lld3elf4linkEN4llvm8ArrayRefIPKcEERNS1_11raw_ostreamES7_bb");
extern void *llvm_nulls(void) __asm__("_ZN4llvm5nullsEv");
extern void lld_forget(void) __asm__("_ZN3lld19CommonLinkerContext7destroyEv");

bool amd_lld(const char *in, const char *out);
bool amd_lld(const char *in, const char *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *args[] = { "ld.lld", "-shared", "--threads=1", "--build-id=none", in, "-o", out };
    pthread_mutex_lock(&lock);
    bool ok = elf_link((struct array_ref){ args, COUNTOF(args) }, llvm_nulls(), llvm_nulls(), false, false);
    lld_forget();
    pthread_mutex_unlock(&lock);
    return ok;
}

// Debian's LLVM references Polly for link-time optimisation, which is packaged elsewhere and never reached from here.
void no_polly(void) __asm__("_Z18getPollyPluginInfov");
void no_polly(void)
{
    abort();
}

// lld initialises every target it was built with. The ones below are not linked in.
// clang-format off
#define ABSENT(T)                                                                                                        \
    void LLVMInitialize##T##TargetInfo(void);                                                                            \
    void LLVMInitialize##T##TargetInfo(void) {}                                                                          \
    void LLVMInitialize##T##Target(void);                                                                                \
    void LLVMInitialize##T##Target(void) {}                                                                              \
    void LLVMInitialize##T##TargetMC(void);                                                                              \
    void LLVMInitialize##T##TargetMC(void) {}                                                                            \
    void LLVMInitialize##T##AsmPrinter(void);                                                                            \
    void LLVMInitialize##T##AsmPrinter(void) {}                                                                          \
    void LLVMInitialize##T##AsmParser(void);                                                                             \
    void LLVMInitialize##T##AsmParser(void) {}
ABSENT(AArch64)
ABSENT(ARC)
ABSENT(ARM)
ABSENT(AVR)
ABSENT(BPF)
ABSENT(CSKY)
ABSENT(Hexagon)
ABSENT(Lanai)
ABSENT(LoongArch)
ABSENT(M68k)
ABSENT(MSP430)
ABSENT(Mips)
ABSENT(PowerPC)
ABSENT(RISCV)
ABSENT(SPIRV)
ABSENT(Sparc)
ABSENT(SystemZ)
ABSENT(VE)
ABSENT(WebAssembly)
ABSENT(X86)
ABSENT(XCore)
ABSENT(Xtensa)
