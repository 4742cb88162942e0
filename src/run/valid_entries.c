/* valid_entries.c - see valid_entries.h. */
#include "run/valid_entries.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

diloco_status dl_past_entry_read(dl_entry *out, bool *readable, dl_hash *digest,
                                 const dl_valid_entries_source *from, uint64_t number)
{
    dl_buf text;
    const dl_time patience = dl_time_from_seconds(from->run->config.store_timeout_s);
    *readable = false;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status =
        dl_entry_get(&text, from->store, number, dl_time_after(dl_clock_now(), patience));
    if (!status) {
        const dl_entry_place at = dl_runfile_place(from->run, number);
        status = dl_entry_read_at(out, text.data, text.len, &at);
        *readable = !status;
        if (status == DILOCO_EPROTO) status = DILOCO_OK;
    }
    *digest = *readable ? dl_hash_bytes(text.data, text.len) : dl_entry_unreadable_digest();
    dl_buf_deinit(&text);
    return status;
}

static diloco_status damaged(uint64_t number)
{
    return dl_fail(DILOCO_EPROTO,
                   "log/%010llu.json was damaged in the store after replicas had read it: put a "
                   "sound copy of that file back",
                   (unsigned long long)number);
}

/* The pending entry is valid, so the entry before it was what its `prev` says. */
static diloco_status confirm(dl_walk_place *at)
{
    if (at->broken) return damaged(at->broken - 1);
    at->pending = 0;
    return DILOCO_OK;
}

/* An earlier entry has led to the state after the pending one, which therefore is void. */
static void revoke(dl_walk_place *at, dl_valid_entries *v)
{
    v->valid[at->pending - 1] = false;
    at->state = at->after;
    at->pending = at->broken = 0;
}

/* run->theta0 is of all fragments' digests. */
static diloco_status begin_of_log(dl_walk_place *at, const dl_runfile *run)
{
    if (dl_hash_equal(dl_hash_bytes(at->state.bytes, sizeof at->state.bytes), run->theta0))
        return confirm(at);
    return at->broken ? damaged(at->broken - 1)
                      : dl_fail(DILOCO_EPROTO, "the log does not lead back to the run's first "
                                               "state: one of its entries was damaged in the store "
                                               "after replicas had read it");
}

/* Judges the entry before a place, and moves the place before it. An entry that leaves the state as
 * it is may be a void one with another `prev`. */
static diloco_status step_back(dl_walk_place *place, dl_valid_entries *v, dl_entry *scratch,
                               const dl_valid_entries_source *from, uint64_t number)
{
    bool readable;
    dl_hash digest;
    dl_walk_place at = *place;
    DL_TRY(dl_past_entry_read(scratch, &readable, &digest, from, number));
    if (at.has_prev && !dl_hash_equal(digest, at.prev)) {
        if (!at.pending) return damaged(number);
        at.broken = number + 1;
    }
    at.has_prev = false;
    if (readable && at.pending && !dl_hash_equal(scratch->result, at.state) &&
        dl_hash_equal(scratch->result, at.after))
        revoke(&at, v);
    v->valid[number] = readable && dl_hash_equal(scratch->result, at.state);
    if (v->valid[number]) DL_TRY(confirm(&at));
    if (v->valid[number] && !dl_hash_equal(scratch->base, scratch->result))
        at = (dl_walk_place){.state = scratch->base,
                             .prev = scratch->prev,
                             .has_prev = true,
                             .pending = number + 1,
                             .after = scratch->result};
    if (number == 0) DL_TRY(begin_of_log(&at, from->run));
    *place = at;
    return DILOCO_OK;
}

static diloco_status reserve(dl_valid_entries *v, uint64_t n)
{
    if (n <= v->cap) return DILOCO_OK;
    const size_t cap = (size_t)n + 1024;
    bool *valid = realloc(v->valid, cap * sizeof *valid);
    if (!valid) return dl_fail(DILOCO_ENOMEM, "out of memory for the log's entries");
    v->valid = valid;
    v->cap = cap;
    return DILOCO_OK;
}

static void begin_at(dl_valid_entries *v, uint64_t entry, const dl_walk_place *at)
{
    v->first = v->end = entry;
    v->before_first = *at;
    v->at_end = at->state;
}

/* Walks from the newest state to the known entries, and the state after those confirms or revokes a
 * verdict. They are dropped if the walk reaches another state there, which means that this process
 * has rejoined since. */
static diloco_status extend(dl_valid_entries *v, dl_entry *scratch,
                            const dl_valid_entries_source *from)
{
    dl_walk_place at = {.state = from->state, .prev = from->prev, .has_prev = true};
    if (v->end == 0 || v->end > from->open) begin_at(v, from->open, &at);
    for (uint64_t e = from->open; e > v->end; e--)
        DL_TRY(step_back(&at, v, scratch, from, e - 1));
    if (at.pending && !dl_hash_equal(at.state, v->at_end) && dl_hash_equal(at.after, v->at_end))
        revoke(&at, v);
    if (!dl_hash_equal(at.state, v->at_end))
        begin_at(v, v->end, &at);
    else
        DL_TRY(confirm(&at));
    v->end = from->open;
    v->at_end = from->state;
    return DILOCO_OK;
}

/* The walk ends below the entry, once no verdict at or after it is pending. */
diloco_status dl_valid_entries_find(bool *valid, dl_valid_entries *v, dl_entry *scratch,
                                    const dl_valid_entries_source *from, uint64_t number)
{
    DL_ASSERT(number < from->open);
    DL_TRY(reserve(v, from->open));
    DL_TRY(extend(v, scratch, from));
    for (; v->first > number || (v->first > 0 && v->before_first.pending > number); v->first--)
        DL_TRY(step_back(&v->before_first, v, scratch, from, v->first - 1));
    *valid = v->valid[number];
    return DILOCO_OK;
}

void dl_valid_entries_deinit(dl_valid_entries *v)
{
    free(v->valid);
}
