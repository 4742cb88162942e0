/* arena.h - one allocation per purpose, handed out in pieces.
 *
 * The same function lays a purpose out twice: first on a measuring arena, which hands
 * out no memory and only counts, then on one of that size:
 *
 *     dl_arena measure = {0};
 *     layout(&thing, &measure);
 *     dl_arena_init(&arena, measure.used);
 *     layout(&thing, &arena);
 *
 * One thread at a time. */
#ifndef DL_BASE_ARENA_H
#define DL_BASE_ARENA_H

#include "base/size.h"
#include "base/status.h"

enum { DL_ARENA_ALIGN = 64 }; /* a cache line, and the widest vector */

typedef struct dl_arena {
    unsigned char *base; /* NULL: measuring */
    size_t size;         /* bytes owned */
    size_t used;         /* bytes handed out, each piece rounded up to DL_ARENA_ALIGN */
    bool mapped;         /* else from the heap */
} dl_arena;

/* Own `size` zeroed bytes, aligned to DL_ARENA_ALIGN, taken from the system at once
 * (mmap above 1 MiB, so untouched pages cost nothing). DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_arena_init(dl_arena *arena, size_t size);
/* The same in a nameless file in that folder, whose space is taken: pages need not be in memory.
 * `what` for errors. As dl_file_nameless; DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_arena_init_file(dl_arena *arena, size_t size, const char *folder,
                                               const char *what);
void dl_arena_deinit(dl_arena *arena); /* zeroed is fine */

/* The contents of data[n] of an arena are lost: its whole pages return to the system, and are zero
 * when they are used again. The rest keeps its contents. */
void dl_arena_let_go(void *data, size_t n);

/* In such a file's arena, the pages wholly inside data[n] leave memory. They are written, and are
 * read again when a thread touches them, also a thread that uses them now. */
void dl_arena_put_out(void *data, size_t n);

/* The next n bytes (n == 0: a valid pointer to nothing). NULL on a measuring arena.
 * Running over the end of a real one is a bug. */
void *dl_arena_take(dl_arena *arena, size_t n);

/* The next n elements of a type, or NULL when measuring. */
#define DL_ARENA_ARRAY(arena, type, n) ((type *)dl_arena_take_array((arena), (n), sizeof(type)))
void *dl_arena_take_array(dl_arena *arena, size_t n, size_t size);

#endif
