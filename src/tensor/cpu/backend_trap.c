/* backend_trap.c - the CPU backend with its memory locked away from the host.
 *
 * Every piece is mapped PROT_NONE and opened only while `depth` > 0, that is between enter
 * and leave and inside copies. Code that reads a result without asking for it, which would
 * work by luck on a CPU and fail on a GPU, dies here at the instruction that did it.
 *
 * Invariant: all pieces are accessible if and only if depth > 0. */
#include "tensor/backend_rows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct piece {
    struct piece *next;
    void *memory;
    size_t size;
} piece;

typedef struct trap {
    dl_backend head; /* first, so that a dl_backend * is a trap * */
    piece *pieces;   /* owned, in ordinary memory */
    int depth;       /* enters without their leave; 0: the memory is closed */
} trap;

/* One system call a piece and operation: slow, which is why only tests use this backend. */
static void protect_all(trap *t, int protection)
{
    for (piece *p = t->pieces; p; p = p->next)
        DL_ASSERT(mprotect(p->memory, p->size, protection) == 0);
}

static void enter(dl_backend *self)
{
    trap *t = (trap *)self;
    if (t->depth++ == 0) protect_all(t, PROT_READ | PROT_WRITE);
}

static void leave(dl_backend *self)
{
    trap *t = (trap *)self;
    DL_ASSERT(t->depth > 0);
    if (--t->depth == 0) protect_all(t, PROT_NONE);
}

/* A piece has pages of its own, because mprotect works on pages. */
static void *alloc(dl_backend *self, size_t n)
{
    trap *t = (trap *)self;
    int open = t->depth > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    piece *p = malloc(sizeof *p);
    void *memory = mmap(NULL, n, open, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!p || memory == MAP_FAILED) {
        if (memory != MAP_FAILED) munmap(memory, n);
        free(p);
        return NULL;
    }
    *p = (piece){t->pieces, memory, n};
    t->pieces = p;
    return memory;
}

static void release(dl_backend *self, void *memory)
{
    trap *t = (trap *)self;
    piece **at = &t->pieces;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    DL_ASSERT(*at);
    piece *gone = *at;
    *at = gone->next;
    munmap(gone->memory, gone->size);
    free(gone);
}

static void copy(dl_backend *self, void *to, const void *from, size_t n)
{
    enter(self);
    memmove(to, from, n);
    leave(self);
}

static void zero(dl_backend *self, void *to, size_t n)
{
    enter(self);
    memset(to, 0, n);
    leave(self);
}

/* All bits are set: NaN in each floating-point type, and -1. */
static void forget(dl_backend *self, void *memory, size_t n)
{
    enter(self);
    memset(memory, 0xff, n);
    leave(self);
}

static diloco_status sync(dl_backend *self)
{
    (void)self;
    return DILOCO_OK;
}

static void destroy(dl_backend *self)
{
    trap *t = (trap *)self;
    DL_ASSERT(!t->pieces && t->depth == 0);
    free(t);
}

static const dl_backend_ops ops = {
    .name = "trap",
    .device = DL_DEVICE_CPU,
    .alloc = alloc,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy_within = copy,
    .zero = zero,
    .forget = forget,
    .enter = enter,
    .leave = leave,
    .sync = sync,
    .destroy = destroy,
};

diloco_status dl_backend_trap(dl_backend **out)
{
    trap *t = calloc(1, sizeof *t);
    *out = (dl_backend *)t;
    if (!t) return dl_fail(DILOCO_ENOMEM, "out of memory for a backend");
    t->head.ops = &ops;
    return DILOCO_OK;
}
