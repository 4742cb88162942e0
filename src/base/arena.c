/* arena.c - a bump pointer.
 *
 * Invariants: base and used are multiples of DL_ARENA_ALIGN; used <= size unless
 * measuring. A measuring arena saturates at SIZE_MAX when sizes overflow, which
 * dl_arena_init then refuses. */
#include "base/arena.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAP_MAX = 1 << 18 };  /* beyond it mmap, whose zero pages cost nothing until used */
enum { HUGE_MIN = 32 << 20 }; /* from here on pages of 2 MiB are asked for: fewer TLB misses */

/* n rounded up to the alignment, or SIZE_MAX. */
static size_t round_up(size_t n)
{
    return n > SIZE_MAX - DL_ARENA_ALIGN ? SIZE_MAX : dl_size_round_up(n, DL_ARENA_ALIGN);
}

/* Memory from mmap is zero and takes no page before its first use. Memory from the heap is zeroed
 * here, so both are alike. */
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
    if (!base) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes", size);
    *arena = (dl_arena){.base = base, .size = bytes, .mapped = bytes > HEAP_MAX};
    return DILOCO_OK;
}

/* The file has no name, so its space is free again after a crash. Space is taken at once: a full
 * disk shows here, and not as a signal at a write. */
diloco_status dl_arena_init_file(dl_arena *arena, size_t size, const char *folder, const char *what)
{
    int fd;
    const size_t bytes = dl_size_max(round_up(size), DL_ARENA_ALIGN);
    *arena = (dl_arena){0};
    if (bytes > PTRDIFF_MAX) return dl_fail(DILOCO_ENOMEM, "no file of %zu bytes", size);
    DL_TRY(dl_file_nameless(&fd, folder, what, bytes));
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd); /* the mapping keeps the file */
    if (base == MAP_FAILED) return dl_fail(DILOCO_ENOMEM, "no room to map %zu bytes", size);
    *arena = (dl_arena){.base = base, .size = bytes, .mapped = true};
    return DILOCO_OK;
}

/* Advises about the whole pages inside data[n]; a page that it shares with other data is not among
 * them. Returns false if the system does not know the advice. */
static bool advise(void *data, size_t n, int advice)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
    const uintptr_t begin = (at + page - 1) / page * page, end = (at + n) / page * page;
    return begin >= end || madvise((void *)begin, end - begin, advice) == 0;
}

void dl_arena_let_go(void *data, size_t n)
{
    (void)advise(data, n, MADV_DONTNEED);
}

/* Before Linux 5.4 they leave this process, and memory when the system needs it. */
void dl_arena_put_out(void *data, size_t n)
{
    if (!advise(data, n, MADV_PAGEOUT)) (void)advise(data, n, MADV_DONTNEED);
}

void dl_arena_deinit(dl_arena *arena)
{
    if (arena->mapped)
        munmap(arena->base, arena->size);
    else
        free(arena->base);
    *arena = (dl_arena){0};
}

/* A measuring arena saturates at SIZE_MAX, so an overflow makes dl_arena_init fail. */
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
