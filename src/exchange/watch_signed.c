/* watch_signed.c - the request WATCH in a run with keys (P11.4). beating.h says which heartbeats
 * count. Here are the replicas that have a row: every replica that an entry waits for, whatever
 * names other writers create, and a few others. */
#include "exchange/exec_parts.h"
#include "log/fields.h"

#include <string.h>

enum { OTHER_MAX = DL_EXEC_SEEN_OTHER };

/* ---- names ---------------------------------------------------------------------------------- */

/* Returns the first row whose name is not before that one. Rows are in strcmp order, as the names
 * of a listing are. So it is likely the one that was found last, or the next one. */
static size_t place_of(const dl_collect_part *c, const char *replica)
{
    size_t low = 0, high = c->n_beating, middle = c->beating_at;
    for (int i = 0; low < high; i++) {
        const int order = strcmp(c->beating[middle].of.generation.replica, replica);
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
        middle = i == 0 && order < 0 && low < high ? low : low + (high - low) / 2;
    }
    return low;
}

/* Returns the replica's row, or NULL. */
static dl_beating_row *row_of(dl_collect_part *c, const char *replica)
{
    const size_t at = place_of(c, replica);
    if (at == c->n_beating || strcmp(c->beating[at].of.generation.replica, replica)) return NULL;
    c->beating_at = at;
    return &c->beating[at];
}

/* Returns whether a replica that no entry waits for may have a row. A closed run's list may be
 * longer than the table. Only asynchronous replicas need the speeds of others. */
static bool may_be_other(const dl_exec *x, const dl_generation *generation)
{
    return x->mode->reads_speeds || dl_exec_is_named(x, generation);
}

/* Returns a new row, or NULL if the replica may have none. The table has room for all rosters and
 * OTHER_MAX others. */
static dl_beating_row *new_row(dl_exec *x, const dl_generation *generation)
{
    dl_collect_part *c = &x->collect;
    const bool awaited = dl_exec_is_awaited(x, generation);
    if (!awaited && (c->n_other == OTHER_MAX || !may_be_other(x, generation))) return NULL;
    DL_ASSERT(c->n_beating < c->cap_seen);
    const size_t at = place_of(c, generation->replica);
    dl_beating_row *row = &c->beating[at];
    memmove(row + 1, row, (c->n_beating++ - at) * sizeof *row);
    *row = (dl_beating_row){.of.generation = *generation};
    c->n_other += !awaited;
    c->beating_at = at;
    return row;
}

static diloco_status found_heartbeat(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "hb/")) return DILOCO_OK;
    dl_beating_row *row = row_of(&x->collect, generation.replica);
    if (!row) row = new_row(x, &generation);
    if (row) dl_beating_note_heartbeat(&row->of, &x->collect.drawing, generation.number);
    return DILOCO_OK;
}

static diloco_status found_end(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "end/")) return DILOCO_OK;
    dl_beating_row *row = row_of(&x->collect, generation.replica);
    if (row) dl_beating_note_end(&row->of, generation.number);
    return DILOCO_OK;
}

/* Other rows than those of awaited replicas make place if they are too many, or have signed
 * nothing. */
static diloco_status begin_look(dl_exec *x)
{
    dl_collect_part *c = &x->collect;
    uint64_t seed;
    size_t n = 0;
    DL_TRY(dl_random_bytes(&seed, sizeof seed));
    dl_rng_init(&c->drawing, seed, DL_STREAM(DL_STREAM_JITTER, 1), 0);
    c->n_other = 0;
    for (size_t i = 0; i < c->n_beating; i++) {
        dl_beating_row *row = &c->beating[i];
        if (!dl_exec_is_awaited(x, &row->of.generation)) {
            if (!row->of.signed_once || c->n_other == OTHER_MAX) continue;
            if (!may_be_other(x, &row->of.generation)) continue;
            c->n_other++;
        }
        dl_beating_look(&row->of);
        c->beating[n++] = *row;
    }
    c->n_beating = n;
    c->beating_at = 0;
    return DILOCO_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Finds the key of the row's replica. Returns false if it has none. */
static diloco_status find_key(bool *has, dl_beat_reader *r, dl_exec *x, const dl_beating_row *row)
{
    const char *why;
    DL_TRY(dl_keyring_find(&r->key, &why, x->ring, row->of.generation.replica, r->until));
    *has = r->key != NULL;
    return DILOCO_OK;
}

static dl_seen seen_in(const dl_exec *x, const dl_beat_reader *r, const dl_beating *of)
{
    dl_seen s = {.generation = of->generation, .beat = of->beat, .content = of->content};
    if (x->mode->reads_speeds)
        (void)!dl_json_read_f64_or_nan(&s.steps_per_s, r->json, "steps_per_s");
    return s;
}

static diloco_status read_heartbeats(dl_exec *x, dl_beat_reader *r)
{
    dl_collect_part *c = &x->collect;
    for (size_t i = 0; i < c->n_beating; i++) {
        dl_beating_row *row = &c->beating[i];
        bool there = dl_exec_is_watched(x, &row->of.generation);
        if (there) DL_TRY(find_key(&there, r, x, row));
        if (there) DL_TRY(dl_beating_read(&there, &row->of, r));
        if (there && r->changed) row->seen = seen_in(x, r, &row->of);
        if (there) c->seen[c->n_seen++] = row->seen;
    }
    return DILOCO_OK;
}

/* Marks the heartbeat at *at or later, one for each row in their order. A row without a heartbeat
 * at present gets one for its end. */
static void take_end(dl_collect_part *c, size_t *at, size_t n_beats, const dl_generation *of)
{
    while (*at < n_beats && strcmp(c->seen[*at].generation.replica, of->replica) < 0)
        ++*at;
    const bool there = *at < n_beats && dl_generation_equal(&c->seen[*at].generation, of);
    if (there)
        c->seen[*at].ended = true;
    else
        c->seen[c->n_seen++] = (dl_seen){.generation = *of, .ended = true};
}

static diloco_status read_ends(dl_exec *x, dl_beat_reader *r)
{
    dl_collect_part *c = &x->collect;
    size_t at = 0;
    const size_t n_beats = c->n_seen;
    for (size_t i = 0; i < c->n_beating; i++) {
        const dl_beating_row *row = &c->beating[i];
        bool ended = row->of.end_listed && dl_exec_is_watched(x, &row->of.generation);
        if (ended) DL_TRY(find_key(&ended, r, x, row));
        if (ended) DL_TRY(dl_beating_read_end(&ended, &row->of, r));
        if (ended) take_end(c, &at, n_beats, &row->of.generation);
    }
    return DILOCO_OK;
}

diloco_status dl_exec_watch_signed(dl_exec *x, dl_reply *reply, dl_time until)
{
    dl_beat_reader r = {.store = x->a.store, .run = x->a.run->id, .until = until};
    x->collect.n_seen = 0;
    DL_TRY(begin_look(x));
    DL_TRY(dl_store_list(x->a.store, "hb/", NULL, found_heartbeat, x, until));
    DL_TRY(read_heartbeats(x, &r));
    DL_TRY(dl_store_list(x->a.store, "end/", NULL, found_end, x, until));
    DL_TRY(read_ends(x, &r));
    reply->watch.seen = x->collect.seen;
    reply->watch.n_seen = x->collect.n_seen;
    return DILOCO_OK;
}
