/* count_alloc.h - counts what the whole process takes from the heap.
 *
 * Included by the one .c file of a test program, it puts its own malloc and kin before
 * those of the C library, which it calls. The sanitizers do the same for themselves, so
 * under them nothing is counted, and a test says that it was left out:
 *
 *     if (!count_alloc_works()) { print_message("left out: …\n"); skip(); }
 *     size_t before = count_alloc();
 *     work();
 *     CHECK_INT(before, count_alloc()); */
#ifndef DL_TESTS_COUNT_ALLOC_H
#define DL_TESTS_COUNT_ALLOC_H

#include "sanitized.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_size_t count_alloc_calls;

/* Calls so far, of all threads. */
static inline size_t count_alloc(void)
{
    return atomic_load(&count_alloc_calls);
}

#if SANITIZED

static inline bool count_alloc_works(void)
{
    return false;
}

#else

/* glibc's own names for what is replaced here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    atomic_fetch_add(&count_alloc_calls, 1);
    return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&count_alloc_calls, 1);
    return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&count_alloc_calls, 1);
    return __libc_realloc(old, size);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t size)
{
    atomic_fetch_add(&count_alloc_calls, 1);
    return __libc_memalign(align, size);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t align, size_t size)
{
    atomic_fetch_add(&count_alloc_calls, 1);
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}

/* Are the calls of the C library itself and of this program seen? */
static inline bool count_alloc_works(void)
{
    size_t before = count_alloc();
    void *volatile p = malloc(1);
    free(p);
    return count_alloc() == before + 1;
}

#endif
#endif
