/* emulated_fibre.h - threads of a block as fibres, each with a stack of its own.
 *
 * A switch is a few instructions on x86-64 and AArch64, and ucontext elsewhere. It keeps the
 * registers that a call keeps. It does not switch the signal mask, nor the control words of
 * floating point (MXCSR and x87's; FPCR): all fibres share them, so none may change them. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_FIBRE_H
#define DL_TESTS_CUDA_EMU_EMULATED_FIBRE_H

#include <cstddef>

#if (defined __x86_64__ || defined __aarch64__) && !defined EMULATED_UCONTEXT
struct emulated_fibre {
    void *stack; /* its registers are at the end of it */
};
#else
#include <ucontext.h>
struct emulated_fibre {
    ucontext_t context;
};
#endif

/* Makes a fibre that begins with run() on this stack. run must not return. */
void emulated_fibre_make(emulated_fibre *out, char *stack, size_t bytes, void (*run)());

/* Saves the running fibre to *from, and continues *to. Returns when *from is continued. */
void emulated_fibre_switch(emulated_fibre *from, emulated_fibre *to);

#endif
