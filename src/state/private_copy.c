/* private_copy.c - copies of the private state, which are written beside training.
 *
 * A copy has the parts of the file one after the other, each at a multiple of 64 bytes. Two copies
 * are enough for a trainer that never waits: one is written, and the other is replaced by the
 * newest state until its turn comes. */
#include "state/private_state_parts.h"

#include "base/free_memory.h"
#include "log/fields.h"

#include <string.h>

typedef struct copying {
    unsigned char *to;
    const dl_span *from; /* data NULL: not copied here */
    size_t n, len;
} copying;

/* Bytes of the copy from one part's beginning to the next one's. */
static size_t copied_len(size_t len)
{
    enum { LINE = 64 };
    return (len + LINE - 1) / LINE * LINE;
}

static size_t copied_lens(const dl_span *parts, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += copied_len(parts[i].len);
    return len;
}

/* One thread's part of the copy: an equal share of the bytes that are copied here. */
static void copy_part(void *context, int part, int n_parts)
{
    enum { GRAIN = 4096 };
    const copying *c = context;
    size_t begin, end, at = 0; /* at: among the bytes that are copied here */
    unsigned char *to = c->to;
    dl_part_range(&begin, &end, c->len, GRAIN, part, n_parts);
    for (size_t i = 0; i < c->n && at < end; to += copied_len(c->from[i++].len)) {
        if (!c->from[i].data) continue;
        const size_t first = dl_size_max(begin, at);
        const size_t last = dl_size_min(end, at + c->from[i].len);
        if (first < last)
            memcpy(to + (first - at), (const unsigned char *)c->from[i].data + (first - at),
                   last - first);
        at += c->from[i].len;
    }
}

/* Copies those of spans[n] that have data to their places. */
static void copy_spans(unsigned char *to, const dl_span *spans, size_t n, dl_pool *pool)
{
    copying c = {.to = to, .from = spans, .n = n};
    for (size_t i = 0; i < n; i++)
        if (spans[i].data) c.len += spans[i].len;
    dl_pool_run(pool, copy_part, &c);
}

/* Touches each page, so that the first copy is as fast as the next ones, and a lack of memory shows
 * when it is taken. */
static void touch_part(void *context, int part, int n_parts)
{
    enum { PAGE = 4096 };
    const copying *c = context;
    size_t begin, end;
    dl_part_range(&begin, &end, c->len, PAGE, part, n_parts);
    if (begin < end) memset(c->to + begin, 0, end - begin);
}

/* A copy may take half of this replica's share of the free memory, since the trainer's own needs
 * may still grow. The growth that is known has to fit as well, with some memory to spare. */
static bool fits(const dl_local *local, size_t later)
{
    const size_t len = local->usual_len, share = dl_memory_free() / local->n_sharing;
    return len <= share / 2 && later <= share - len - len / 8;
}

/* Memory that most saves do not need is reserved and not touched, so it costs nothing. */
static diloco_status reserve(dl_local *local, int slot, size_t later, dl_pool *pool)
{
    dl_local_copied *copy = &local->copies[slot];
    if (copy->bytes) return DILOCO_OK;
    if (!fits(local, later) || dl_arena_init(&copy->memory, local->copy_len))
        return dl_fail(DILOCO_ENOMEM, "out of memory for a copy of %zu bytes of private state",
                       local->usual_len);
    copy->bytes = copy->memory.base;
    dl_pool_run(pool, touch_part, &(copying){.to = copy->bytes, .len = local->usual_len});
    return DILOCO_OK;
}

static size_t lens_of_always(const dl_local_file *file)
{
    size_t len = 0;
    for (size_t i = 0; i < file->n_parts; i++)
        if (!file->privates[i] || !file->privates[i]->in_use)
            len += copied_len(file->spans[1 + i].len);
    return len;
}

/* The descriptions of both copies are made here, because a due point should not allocate. */
diloco_status dl_local_prepare_copies(dl_local *local, const dl_local_copied_parts *p)
{
    DL_ASSERT(!local->copies[0].bytes && p->n_sharing > 0);
    dl_local_file *const files[] = {&local->here, &local->copies[0].file, &local->copies[1].file};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        DL_TRY(dl_local_describe(files[i], p->tensors, p->n_tensors, p->privates, p->n_privates,
                                 true));
    local->copy_len = copied_lens(local->here.spans + 1, local->here.n_parts);
    local->usual_len = p->in_flight ? local->copy_len : lens_of_always(&local->here);
    local->n_sharing = p->n_sharing;
    return DILOCO_OK;
}

bool dl_local_has_room(dl_local *local, int slot, size_t later, dl_pool *pool)
{
    return !reserve(local, slot, later, pool);
}

bool dl_local_is_reserved(const dl_local *local, int slot)
{
    return local->copies[slot].bytes != NULL;
}

/* A part that may be left out would move the later ones, so those have no fill. */
diloco_status dl_local_fill(dl_local *local, int slot, const dl_local_copying *a)
{
    dl_local_copied *copy = &local->copies[slot];
    unsigned char *at = copy->bytes;
    diloco_status status =
        dl_local_describe(&copy->file, a->tensors, a->n_tensors, a->privates, a->n_privates, true);
    bool moves = false;
    for (size_t i = 0; !status && i < copy->file.n_parts && !a->restored; i++) {
        const dl_private *p = copy->file.privates[i];
        moves |= p && p->in_use;
        DL_ASSERT(!p || !p->fill || !moves);
        if (p && p->fill) status = p->fill(p->user, at);
        at += copied_len(copy->file.spans[1 + i].len);
    }
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

/* Sets the places of the tensors that the caller copies. The rest is copied by then. */
static void finish(dl_local_copied *copy, const dl_local_copying *a)
{
    unsigned char *at = copy->bytes;
    dl_span *parts = copy->file.spans + 1;
    for (size_t i = 0; i < copy->file.n_parts; at += copied_len(parts[i++].len)) {
        if (i < a->n_tensors && a->places) a->places[i] = parts[i].data ? NULL : at;
        parts[i].data = at;
    }
}

/* Afterwards the spans refer to the copy, so the trainer may change its tensors while another
 * thread writes. */
diloco_status dl_local_copy(dl_local *local, int slot, const dl_local_copying *a)
{
    dl_local_copied *copy = &local->copies[slot];
    DL_ASSERT(dl_run_id_ok(a->facts->run) && copy->bytes);
    diloco_status status =
        dl_local_describe(&copy->file, a->tensors, a->n_tensors, a->privates, a->n_privates, false);
    if (!status) status = dl_local_make_header(local, &copy->file, a->facts);
    if (status) return dl_fail_context(status, "local state");
    dl_span *parts = copy->file.spans + 1;
    for (size_t i = 0; i < copy->file.n_parts; i++) {
        const dl_private *p = copy->file.privates[i];
        const bool later = i < a->n_tensors && a->places && a->places[i];
        if (later || (p && p->fill && !a->restored)) parts[i].data = NULL;
    }
    DL_ASSERT(copied_lens(parts, copy->file.n_parts) <= local->copy_len);
    copy_spans(copy->bytes, parts, copy->file.n_parts, a->pool);
    finish(copy, a);
    return DILOCO_OK;
}

void dl_local_copy_rest(dl_local *local, int slot, const dl_local_copying *a)
{
    for (size_t i = 0; i < a->n_tensors; i++) {
        if (!a->places[i]) continue;
        const dl_span from = {a->tensors[i].data, local->copies[slot].file.spans[1 + i].len};
        copy_spans(a->places[i], &from, 1, a->pool);
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
    const unsigned char *at = local->copies[slot].bytes;
    DL_ASSERT(dl_run_id_ok(a->facts->run) && at && !a->restored);
    diloco_status status =
        dl_local_describe(file, a->tensors, a->n_tensors, a->privates, a->n_privates, false);
    if (!status) status = dl_local_make_header(local, file, a->facts);
    if (status) return dl_fail_context(status, "local state");
    for (size_t i = 0; i < file->n_parts; at += copied_len(file->spans[1 + i++].len))
        if (file->privates[i] && file->privates[i]->fill) file->spans[1 + i].data = at;
    return dl_local_write_file(local, file);
}
