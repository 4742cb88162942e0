/* emulated_fibre.cc - see emulated_fibre.h. */
#include "emulated_fibre.h"

#if (defined __x86_64__ || defined __aarch64__) && !defined EMULATED_UCONTEXT

#include <cstdint>
#include <cstring>

/* emulated_switch_stack(void **from, void *to) pushes the registers that a call keeps, saves the
 * stack pointer to *from, and pops those at `to`. */
extern "C" void emulated_switch_stack(void **from, void *to);

#ifdef __x86_64__
enum { KEPT = 6 }; /* registers */
__asm__(".pushsection .text\n.globl emulated_switch_stack\n.hidden emulated_switch_stack\n"
        ".type emulated_switch_stack, @function\nemulated_switch_stack:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size emulated_switch_stack, . - emulated_switch_stack\n.popsection\n");
#else
enum { KEPT = 20 };
__asm__(".pushsection .text\n.globl emulated_switch_stack\n.hidden emulated_switch_stack\n"
        ".type emulated_switch_stack, %function\nemulated_switch_stack:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp d8, d9, [sp, #80]\n"
        "stp d10, d11, [sp, #96]\n stp d12, d13, [sp, #112]\n stp d14, d15, [sp, #128]\n"
        "stp x29, x30, [sp, #144]\n"
        "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp d8, d9, [sp, #80]\n"
        "ldp d10, d11, [sp, #96]\n ldp d12, d13, [sp, #112]\n ldp d14, d15, [sp, #128]\n"
        "ldp x29, x30, [sp, #144]\n"
        "add sp, sp, #160\n ret\n"
        ".size emulated_switch_stack, . - emulated_switch_stack\n.popsection\n");
#endif

/* The new stack is as a switch leaves one: the kept registers, then the address to return to. On
 * AArch64 that is the last of the registers. On x86-64 the stack pointer is 8 below a multiple of
 * 16 when a function begins. */
void emulated_fibre_make(emulated_fibre *out, char *stack, size_t bytes, void (*run)())
{
    const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
#ifdef __x86_64__
    uint64_t *const at = reinterpret_cast<uint64_t *>(top) - KEPT - 2;
    uint64_t *const entry = at + KEPT;
#else
    uint64_t *const at = reinterpret_cast<uint64_t *>(top) - KEPT;
    uint64_t *const entry = at + KEPT - 1;
#endif
    memset(at, 0, top - reinterpret_cast<uintptr_t>(at));
    *entry = reinterpret_cast<uint64_t>(run);
    out->stack = at;
}

void emulated_fibre_switch(emulated_fibre *from, emulated_fibre *to)
{
    emulated_switch_stack(&from->stack, to->stack);
}

#else

void emulated_fibre_make(emulated_fibre *out, char *stack, size_t bytes, void (*run)())
{
    getcontext(&out->context);
    out->context.uc_stack.ss_sp = stack;
    out->context.uc_stack.ss_size = bytes;
    makecontext(&out->context, run, 0);
}

void emulated_fibre_switch(emulated_fibre *from, emulated_fibre *to)
{
    swapcontext(&from->context, &to->context);
}

#endif
