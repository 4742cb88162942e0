/* private_copy.c - copies of the private state, which are written beside training.
 *
 * A copy has the parts of the file one after the other, each at a multiple of 64 bytes. If memory
 * is short, some of them are in memory that is borrowed for each copy. Two copies are enough for a
 * trainer that never waits: one is written, and the other is replaced by the newest state until its
 * turn comes. */
#include "state/private_state_parts.h"

#include "base/free_memory.h"
#include "log/fields.h"
#include "tensor/kernels.h"

#include <stdlib.h>
#include <string.h>

/* Parts [first, first + n) of the file. */
typedef struct copying {
    const dl_local_copied *copy;
    const dl_span *from; /* [n] data NULL: not copied here */
    size_t first, n, len;
} copying;

/* Bytes of the copy from one part's beginning to the next one's. */
static size_t copied_len(size_t len)
{
    enum { LINE = 64 };
    return (len + LINE - 1) / LINE * LINE;
}

static unsigned char *place_of(const dl_local_copied *copy, size_t part)
{
    const dl_copied_place *place = &copy->places[part];
    return (place->lent ? copy->lent : copy->memory.base) + place->at;
}

/* One thread's part of the copy: an equal share of the bytes that are copied here. */
static void copy_part(void *context, int part, int n_parts)
{
    enum { GRAIN = 4096 };
    const copying *c = context;
    size_t begin, end, at = 0; /* at: among the bytes that are copied here */
    dl_part_range(&begin, &end, c->len, GRAIN, part, n_parts);
    for (size_t i = 0; i < c->n && at < end; i++) {
        if (!c->from[i].data) continue;
        const size_t first = dl_size_max(begin, at);
        const size_t last = dl_size_min(end, at + c->from[i].len);
        if (first < last)
            dl_copy_around(place_of(c->copy, c->first + i) + (first - at),
                           (const unsigned char *)c->from[i].data + (first - at), last - first);
        at += c->from[i].len;
    }
}

/* Copies those of spans[n] that have data to their places. */
static void copy_spans(const dl_local_copied *copy, size_t first, const dl_span *spans, size_t n,
                       dl_pool *pool)
{
    copying c = {.copy = copy, .from = spans, .first = first, .n = n};
    for (size_t i = 0; i < n; i++)
        if (spans[i].data) c.len += spans[i].len;
    dl_pool_run(pool, copy_part, &c);
}

/* ---- memory */

/* The bytes of a copy's own memory: of all parts, and the first ones, which most saves need. */
typedef struct lengths {
    size_t all, usual;
} lengths;

static bool may_miss(const dl_local_file *file, size_t part)
{
    return file->privates[part] && file->privates[part]->in_use;
}

/* Places a part at the end of what is borrowed so far, if it fits. Parts that may be left out never
 * are there. */
static void borrow(dl_local_copied *copy, size_t part, size_t *borrowed, size_t lendable)
{
    dl_copied_place *place = &copy->places[part];
    const size_t len = copied_len(place->len);
    if (place->lent || !len || may_miss(&copy->file, part) || len > lendable - *borrowed) return;
    place->lent = true;
    place->at = *borrowed;
    *borrowed += len;
}

/* The borrowed memory is made for the largest part, so that one is placed first. */
static void lay_out_borrowed(dl_local_copied *copy, size_t lendable)
{
    const dl_local_file *file = &copy->file;
    size_t largest = 0, borrowed = 0;
    for (size_t i = 0; i < file->n_parts; i++) {
        DL_ASSERT(i == 0 || may_miss(file, i) || !may_miss(file, i - 1)); /* they are the last */
        copy->places[i] = (dl_copied_place){.len = file->spans[1 + i].len};
        if (!may_miss(file, i) && copy->places[i].len > copy->places[largest].len) largest = i;
    }
    if (file->n_parts) borrow(copy, largest, &borrowed, lendable);
    for (size_t i = 0; i < file->n_parts; i++)
        borrow(copy, i, &borrowed, lendable);
    copy->borrows = borrowed > 0;
}

/* Before the first copy, so the file has every part. */
static lengths lay_out(const dl_local *local, dl_local_copied *copy, size_t lendable)
{
    lengths own = {0, 0};
    lay_out_borrowed(copy, lendable);
    for (size_t i = 0; i < copy->file.n_parts; i++) {
        dl_copied_place *place = &copy->places[i];
        if (place->lent) continue;
        place->at = own.all;
        own.all += copied_len(place->len);
        if (local->in_flight || !may_miss(&copy->file, i)) own.usual = own.all;
    }
    return own;
}

/* A copy may take half of this replica's share of the free memory, since the trainer's own needs
 * may still grow. The growth that is known has to fit as well, with some memory to spare. */
static bool fits(const dl_local *local, size_t len, size_t later)
{
    const size_t share = dl_memory_free() / local->n_sharing;
    return len <= share / 2 && later <= share - len - len / 8;
}

typedef struct touching {
    unsigned char *bytes;
    size_t len;
} touching;

/* Touches each page, so that the first copy is as fast as the next ones, and a lack of memory shows
 * when it is taken. */
static void touch_part(void *context, int part, int n_parts)
{
    enum { PAGE = 4096 };
    const touching *t = context;
    size_t begin, end;
    dl_part_range(&begin, &end, t->len, PAGE, part, n_parts);
    if (begin < end) memset(t->bytes + begin, 0, end - begin);
}

/* Memory that most saves do not need is reserved and not touched, so it costs nothing. Memory of
 * its own is preferred, since borrowed memory delays its owner. */
static diloco_status reserve(dl_local *local, int slot, size_t later, size_t lendable,
                             dl_pool *pool)
{
    dl_local_copied *copy = &local->copies[slot];
    if (copy->memory.base) return DILOCO_OK;
    lengths own = lay_out(local, copy, 0);
    const size_t whole = own.usual;
    if (!fits(local, own.usual, later) && slot == 0) own = lay_out(local, copy, lendable);
    if (!fits(local, own.usual, later) || dl_arena_init(&copy->memory, own.all))
        return dl_fail(DILOCO_ENOMEM, "out of memory for a copy of %zu bytes of private state",
                       whole);
    dl_pool_run(pool, touch_part, &(touching){copy->memory.base, own.usual});
    return DILOCO_OK;
}

/* The descriptions of both copies are made here, because a due point should not allocate. */
diloco_status dl_local_prepare_copies(dl_local *local, const dl_local_copied_parts *p)
{
    DL_ASSERT(!local->copies[0].places && p->n_sharing > 0);
    local->n_sharing = p->n_sharing;
    local->in_flight = p->in_flight;
    DL_TRY(dl_local_describe(&local->here, p->tensors, p->n_tensors, p->privates, p->n_privates,
                             true));
    for (int slot = 0; slot < DL_LOCAL_COPIES; slot++) {
        dl_local_copied *copy = &local->copies[slot];
        DL_TRY(dl_local_describe(&copy->file, p->tensors, p->n_tensors, p->privates, p->n_privates,
                                 true));
        copy->places = calloc(copy->file.n_parts + 1, sizeof *copy->places);
        if (!copy->places) return dl_fail(DILOCO_ENOMEM, "out of memory for local state");
    }
    return DILOCO_OK;
}

bool dl_local_has_room(dl_local *local, int slot, size_t later, size_t lendable, dl_pool *pool)
{
    return !reserve(local, slot, later, lendable, pool);
}

bool dl_local_is_reserved(const dl_local *local, int slot)
{
    return local->copies[slot].memory.base != NULL;
}

bool dl_local_borrows(const dl_local *local, int slot)
{
    return local->copies[slot].borrows;
}

void dl_local_lend(dl_local *local, int slot, void *memory)
{
    local->copies[slot].lent = memory;
}

/* ---- copying */

/* A part that may be left out would move the later ones, so those have no fill. */
diloco_status dl_local_fill(dl_local *local, int slot, const dl_local_copying *a)
{
    dl_local_copied *copy = &local->copies[slot];
    diloco_status status =
        dl_local_describe(&copy->file, a->tensors, a->n_tensors, a->privates, a->n_privates, true);
    bool moves = false;
    for (size_t i = 0; !status && i < copy->file.n_parts && !a->restored; i++) {
        const dl_private *p = copy->file.privates[i];
        moves |= p && p->in_use;
        DL_ASSERT(!p || !p->fill || !moves);
        if (p && p->fill) status = p->fill(p->user, place_of(copy, i));
    }
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

/* Sets the places of the tensors that the caller copies. The rest is copied by then. */
static void finish(dl_local_copied *copy, const dl_local_copying *a)
{
    dl_span *parts = copy->file.spans + 1;
    for (size_t i = 0; i < copy->file.n_parts; i++) {
        unsigned char *at = place_of(copy, i);
        if (i < a->n_tensors && a->places) a->places[i] = parts[i].data ? NULL : at;
        parts[i].data = at;
    }
}

/* Afterwards the spans refer to the copy, so the trainer may change its tensors while another
 * thread writes. */
diloco_status dl_local_copy(dl_local *local, int slot, const dl_local_copying *a)
{
    dl_local_copied *copy = &local->copies[slot];
    DL_ASSERT(dl_run_id_ok(a->facts->run) && copy->memory.base);
    diloco_status status =
        dl_local_describe(&copy->file, a->tensors, a->n_tensors, a->privates, a->n_privates, false);
    if (!status) status = dl_local_make_header(local, &copy->file, a->facts);
    if (status) return dl_fail_context(status, "local state");
    dl_span *parts = copy->file.spans + 1;
    for (size_t i = 0; i < copy->file.n_parts; i++) {
        DL_ASSERT(parts[i].len == copy->places[i].len);
        const dl_private *p = copy->file.privates[i];
        const bool later = i < a->n_tensors && a->places && a->places[i];
        if (later || (p && p->fill && !a->restored)) parts[i].data = NULL;
    }
    copy_spans(copy, 0, parts, copy->file.n_parts, a->pool);
    finish(copy, a);
    return DILOCO_OK;
}

void dl_local_copy_rest(dl_local *local, int slot, const dl_local_copying *a)
{
    const dl_local_copied *copy = &local->copies[slot];
    for (size_t i = 0; i < a->n_tensors; i++) {
        if (!a->places[i]) continue;
        const dl_span from = {a->tensors[i].data, copy->file.spans[1 + i].len};
        copy_spans(copy, i, &from, 1, a->pool);
        a->places[i] = NULL;
    }
}

diloco_status dl_local_write(dl_local *local, int slot)
{
    return dl_local_write_file(local, &local->copies[slot].file);
}

/* The caller waits, so all that is not filled is written from its own place. */
diloco_status dl_local_save_filled(dl_local *local, int slot, const dl_local_copying *a)
{
    dl_local_file *file = &local->here;
    const dl_local_copied *copy = &local->copies[slot];
    DL_ASSERT(dl_run_id_ok(a->facts->run) && copy->memory.base && !a->restored);
    diloco_status status =
        dl_local_describe(file, a->tensors, a->n_tensors, a->privates, a->n_privates, false);
    if (!status) status = dl_local_make_header(local, file, a->facts);
    if (status) return dl_fail_context(status, "local state");
    for (size_t i = 0; i < file->n_parts; i++)
        if (file->privates[i] && file->privates[i]->fill)
            file->spans[1 + i].data = place_of(copy, i);
    return dl_local_write_file(local, file);
}
