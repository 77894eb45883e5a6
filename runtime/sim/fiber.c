// One stack a lane, and the switch between a worker's own context and a lane's. A lane never moves to another thread.
#include "sim.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// sim_switch(save, to): keeps the callee-saved registers (System V ABI, 3.2.1) on the stack, its pointer in *save, and goes on
// where `to` was left.
__asm__(".text\n.p2align 4\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n    ret\n"
        ".size sim_switch,.-sim_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
enum { SAVED = 7 }; // words: six registers and the return address
#elif defined(__aarch64__)
// The same by AAPCS64, 6.1: x19..x30 and the low halves of v8..v15.
__asm__(".text\n.p2align 4\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,%function\nsim_switch:\n"
        "    sub sp, sp, #160\n    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, "
        "#144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, "
        "#144]\n"
        "    add sp, sp, #160\n    ret\n.size sim_switch,.-sim_switch\n");
enum { SAVED = 20 };
#else
#error "libmoesim has a context switch for x86-64 and aarch64 only: add one here"
#endif
void sim_switch(void **save, void *to);

static void first(void)
{
    struct lane *l = sim_me->lane;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    lane_main(l);
}

void fiber_start(struct lane *l, char *stack, size_t size)
{
    // At function entry the stack is 16-byte aligned less the return address that a call pushes.
    uintptr_t top = ((uintptr_t)stack + size - 64) & ~(uintptr_t)63;
    void **sp = (void **)top - 1 - SAVED;
    for (int i = 0; i < SAVED + 1; i++)
        sp[i] = NULL;
#if defined(__x86_64__)
    sp[SAVED - 1] = (void *)(uintptr_t)first;
#else
    sp = (void **)top - SAVED;
    for (int i = 0; i < SAVED; i++)
        sp[i] = NULL;
    sp[11] = (void *)(uintptr_t)first;
#endif
    l->sp = sp;
    l->stack = stack;
}

void fiber_enter(struct worker *me, struct lane *l)
{
    me->lane = l;
#if defined(__SANITIZE_ADDRESS__)
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, l->stack, LANE_STACK);
    sim_switch(&me->home, l->sp);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#else
    sim_switch(&me->home, l->sp);
#endif
    me->lane = NULL;
}

void fiber_leave(struct lane *l)
{
    struct worker *me = sim_me;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(l->state == LANE_DONE ? NULL : &l->asan, me->home_stack, me->home_size);
    sim_switch(&l->sp, me->home);
    __sanitizer_finish_switch_fiber(l->asan, NULL, NULL);
#else
    sim_switch(&l->sp, me->home);
#endif
}
