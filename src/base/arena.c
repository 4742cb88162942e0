/* arena.c - a bump pointer.
 *
 * Invariants: base and used are multiples of DL_ARENA_ALIGN; used <= size unless
 * measuring. A measuring arena saturates at SIZE_MAX when sizes overflow, which
 * dl_arena_init then refuses. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEAP_MAX = 1 << 20 };  /* beyond it mmap, whose zero pages cost nothing until used */
enum { HUGE_MIN = 32 << 20 }; /* from here on pages of 2 MiB are asked for: fewer TLB misses */

/* n rounded up to the alignment, or SIZE_MAX. */
static size_t round_up(size_t n)
{
    return n > SIZE_MAX - DL_ARENA_ALIGN ? SIZE_MAX : dl_size_round_up(n, DL_ARENA_ALIGN);
}

diloco_status dl_arena_init(dl_arena *arena, size_t size)
{
    *arena = (dl_arena){0};
    size_t bytes = dl_size_max(round_up(size), DL_ARENA_ALIGN); /* base is never NULL */
    void *base;
    if (bytes <= HEAP_MAX) {
        base = aligned_alloc(DL_ARENA_ALIGN, bytes);
        if (base) memset(base, 0, bytes);
    } else {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) base = NULL;
        if (base && bytes >= HUGE_MIN) (void)madvise(base, bytes, MADV_HUGEPAGE); /* advice */
    }
    if (!base) return dl_fail(DILOCO_ENOMEM, "no memory for %zu bytes", size);
    arena->base = base;
    arena->size = bytes;
    return DILOCO_OK;
}

void dl_arena_deinit(dl_arena *arena)
{
    if (arena->base && arena->size <= HEAP_MAX) free(arena->base);
    if (arena->base && arena->size > HEAP_MAX) munmap(arena->base, arena->size);
    *arena = (dl_arena){0};
}

void *dl_arena_take(dl_arena *arena, size_t n)
{
    size_t piece = round_up(n);
    if (!arena->base) {
        if (!dl_size_add(&arena->used, arena->used, piece)) arena->used = SIZE_MAX;
        return NULL;
    }
    DL_ASSERT(piece <= arena->size - arena->used);
    void *taken = arena->base + arena->used;
    arena->used += piece;
    return taken;
}

void *dl_arena_take_array(dl_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    return dl_arena_take(arena, dl_size_mul(&bytes, n, size) ? bytes : SIZE_MAX);
}
