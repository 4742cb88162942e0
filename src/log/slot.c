/* slot.c - see contribution.h: memory, or an unlinked file, for a contribution that waits. */
#include "log/contribution.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, SMALL = 2048 }; /* bytes */

struct dl_slot {
    unsigned char *base; /* aligned for floats and vectors */
    size_t size;
    bool in_file, mapped;
};

/* A mapping takes a page at least, which is much for thousands of small contributions. The memory
 * is touched at once, so that a lack of it shows here. */
static diloco_status take_heap(dl_slot *slot)
{
    const size_t bytes = dl_size_round_up(slot->size, ALIGNMENT);
    slot->base = aligned_alloc(ALIGNMENT, bytes);
    if (!slot->base)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a contribution of %zu bytes", slot->size);
    memset(slot->base, 0, bytes);
    return DILOCO_OK;
}

/* The spool file has no name, so it disappears with the process. */
static diloco_status map_slot(dl_slot *slot, const char *spool_dir)
{
    int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (spool_dir) {
        DL_TRY(dl_file_nameless(&fd, spool_dir, "spool", slot->size));
        flags = MAP_SHARED;
    }
    void *base = mmap(NULL, slot->size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0) close(fd); /* the mapping keeps the file */
    if (base == MAP_FAILED)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a contribution of %zu bytes", slot->size);
    slot->base = base;
    slot->mapped = true;
    slot->in_file = spool_dir != NULL;
    return DILOCO_OK;
}

/* A slot with a folder is always a file, whatever its size. */
diloco_status dl_slot_create(dl_slot **out, size_t max_bytes, const char *spool_dir)
{
    *out = NULL;
    dl_slot *slot = calloc(1, sizeof *slot);
    if (!slot) return dl_fail(DILOCO_ENOMEM, "out of memory for a slot");
    slot->size = dl_size_max(max_bytes, 1);
    diloco_status status =
        spool_dir || slot->size > SMALL ? map_slot(slot, spool_dir) : take_heap(slot);
    if (status)
        free(slot);
    else
        *out = slot;
    return status;
}

void dl_slot_destroy(dl_slot *slot)
{
    if (!slot) return;
    if (slot->mapped)
        munmap(slot->base, slot->size);
    else
        free(slot->base);
    free(slot);
}

unsigned char *dl_slot_bytes(dl_slot *slot)
{
    return slot->base;
}

size_t dl_slot_size(const dl_slot *slot)
{
    return slot->size;
}

void dl_slot_let_go(const dl_slot *slot, dl_contribution_data *data)
{
    if (!slot->in_file) return;
    dl_map_let_go(slot->base, slot->size);
    data->mapped = slot->base;
    data->mapped_len = slot->size;
}
