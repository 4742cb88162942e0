/* backend_cpu.c - the host's own memory: copies are memcpy, everything is done at once.
 *
 * Pieces come from mmap with a page in front that holds the size, so that large ones start
 * on a page border and are zero without being touched. */
#include "base/arena.h"
#include "tensor/backend_rows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEAD = 4096 }; /* keeps the data on a page border */

static void *alloc(dl_backend *self, size_t n)
{
    (void)self;
    size_t bytes;
    if (!dl_size_add(&bytes, n, HEAD)) return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    /* Huge pages give fewer TLB misses in matrix products. The advice may fail without harm. */
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memcpy(p, &bytes, sizeof bytes);
    return (char *)p + HEAD;
}

static void release(dl_backend *self, void *memory)
{
    (void)self;
    char *p = (char *)memory - HEAD;
    size_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    munmap(p, bytes);
}

static void copy(dl_backend *self, void *to, const void *from, size_t n)
{
    (void)self;
    memmove(to, from, n);
}

static void zero(dl_backend *self, void *to, size_t n)
{
    (void)self;
    memset(to, 0, n);
}

static void nothing(dl_backend *self)
{
    (void)self;
}

static diloco_status sync(dl_backend *self)
{
    (void)self;
    return DILOCO_OK;
}

static void destroy(dl_backend *self)
{
    free(self);
}

static const dl_backend_ops ops = {
    .name = "cpu",
    .device = DL_DEVICE_CPU,
    .in_host_memory = true,
    .alloc = alloc,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy_within = copy,
    .zero = zero,
    .enter = nothing,
    .leave = nothing,
    .sync = sync,
    .destroy = destroy,
};

diloco_status dl_backend_cpu(dl_backend **out)
{
    *out = malloc(sizeof **out);
    if (!*out) return dl_fail(DILOCO_ENOMEM, "out of memory for a backend");
    (*out)->ops = &ops;
    return DILOCO_OK;
}
