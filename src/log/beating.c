/* beating.c - see beating.h. */
#include "log/beating.h"

#include "log/layout.h"

enum { HIGHEST, LOWEST, DRAWN }; /* places in `later`; the others are drawn */

void dl_beating_look(dl_beating *row)
{
    row->n_later = 0;
    row->end_listed = false;
}

void dl_beating_note_heartbeat(dl_beating *row, dl_rng *drawing, uint32_t number)
{
    if (row->signed_once && number <= row->generation.number) return;
    const bool first = row->n_later++ == 0;
    for (size_t i = 0; i < DL_BEATING_LATER; i++)
        if (first || (i >= DRAWN && dl_rng_below(drawing, row->n_later) == 0))
            row->later[i] = number;
    if (number > row->later[HIGHEST]) row->later[HIGHEST] = number;
    if (number < row->later[LOWEST]) row->later[LOWEST] = number;
}

void dl_beating_note_end(dl_beating *row, uint32_t number)
{
    if (row->signed_once && number == row->generation.number) row->end_listed = true;
}

/* Reads the object, or leaves the text empty: it is absent, or too long to be one. */
static diloco_status read_text(dl_beat_reader *r, const char *key)
{
    r->text = (dl_buf){.data = r->bytes, .cap = sizeof r->bytes, .max = sizeof r->bytes};
    const diloco_status status = dl_store_get(r->store, &r->text, key, r->until);
    if (!status) return DILOCO_OK;
    dl_buf_clear(&r->text);
    return status == DILOCO_ENOENT || status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* Returns whether that key has signed the text for this generation. */
static bool is_signed(dl_beat_reader *r, const dl_heartbeat_kind *kind,
                      const dl_generation *generation)
{
    return r->text.len && dl_heartbeat_read(&r->json, &r->text, kind, r->key, r->run, generation);
}

/* Most heartbeats have not changed since the last look, and a signature takes much longer than a
 * hash. A heartbeat without its number does not count. */
static diloco_status read_beat(bool *holds, dl_beating *row, dl_beat_reader *r, uint32_t number)
{
    dl_key key;
    uint64_t beat = 0;
    dl_generation generation = row->generation;
    generation.number = number;
    dl_key_heartbeat(key, &generation);
    DL_TRY(read_text(r, key));
    const dl_hash content = dl_hash_bytes(r->text.data, r->text.len);
    r->beat = row->beat;
    r->changed =
        !row->beat || number != row->generation.number || !dl_hash_equal(content, row->content);
    *holds = !r->changed || (is_signed(r, &dl_heartbeat_alive, &generation) &&
                             !dl_json_read_u64(&beat, r->json, "beat", UINT64_MAX - 1));
    if (!*holds || !r->changed) return DILOCO_OK;
    row->generation = generation;
    row->signed_once = true;
    row->content = content;
    r->beat = row->beat = beat + 1;
    return DILOCO_OK;
}

/* Few names fill several places. */
static bool is_read(const dl_beating *row, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (row->later[k] == row->later[i]) return true;
    return false;
}

diloco_status dl_beating_read(bool *there, dl_beating *row, dl_beat_reader *r)
{
    *there = false;
    for (size_t i = 0; i < DL_BEATING_LATER && row->n_later && !*there; i++) {
        if (is_read(row, i)) continue;
        DL_TRY(read_beat(there, row, r, row->later[i]));
    }
    return *there ? DILOCO_OK : dl_beating_read_again(there, row, r);
}

diloco_status dl_beating_read_again(bool *there, dl_beating *row, dl_beat_reader *r)
{
    *there = false;
    return row->signed_once ? read_beat(there, row, r, row->generation.number) : DILOCO_OK;
}

diloco_status dl_beating_read_end(bool *ended, const dl_beating *row, dl_beat_reader *r)
{
    dl_key key;
    *ended = false;
    if (!row->end_listed) return DILOCO_OK;
    dl_key_end(key, &row->generation);
    DL_TRY(read_text(r, key));
    *ended = is_signed(r, &dl_heartbeat_ended, &row->generation);
    return DILOCO_OK;
}
