/* watch_signed.c - the request WATCH in a run with keys (P11.4). Only signed heartbeats and ends
 * count. So no party without a replica's key can make it seem alive or gone.
 *
 * Anyone may create hb/<replica>.<n> with any n. So a replica's newest generation is the newest
 * that has signed a heartbeat, not the highest name. Each look reads the heartbeat of that
 * generation and up to four of the later names. The highest is right unless another writer has
 * created names. The others are the lowest, and two at random. */
#include "exchange/exec_parts.h"
#include "log/fields.h"
#include "log/signed_beat.h"

#include <string.h>

enum { HIGHEST, LOWEST, DRAWN }; /* places in `later`; the others are drawn */
enum { SIGN_MAX = 4096, UNNAMED_MAX = 64 };

/* ---- names ---------------------------------------------------------------------------------- */

/* Rows are in the order of the listing that made them. So the row is likely the one that was found
 * last, or the next one. Looks at `most` rows from there on. */
static dl_beating *row_near(dl_collect_part *c, const char *replica, size_t most)
{
    for (size_t k = 0; k < c->n_beating && k < most; k++) {
        const size_t i = (c->beating_at + k) % c->n_beating;
        if (strcmp(c->beating[i].generation.replica, replica)) continue;
        c->beating_at = i;
        return &c->beating[i];
    }
    return NULL;
}

static dl_beating *row_of(dl_collect_part *c, const char *replica)
{
    return row_near(c, replica, SIZE_MAX);
}

/* Only asynchronous replicas need the speeds of others than the named ones. */
static bool may_have_row(const dl_exec *x, bool named)
{
    const dl_collect_part *c = &x->collect;
    if (c->n_beating == c->cap_seen) return false;
    return named || c->n_beating < dl_exec_n_named(x) + UNNAMED_MAX;
}

/* Returns the replica's row, or a new one, or NULL if it may have none. */
static dl_beating *other_row(dl_exec *x, const dl_generation *generation)
{
    dl_collect_part *c = &x->collect;
    const bool named = dl_exec_is_named(x, generation);
    if (!named && !x->mode->reads_speeds) return NULL;
    dl_beating *row = row_of(c, generation->replica);
    if (!row && may_have_row(x, named)) {
        row = &c->beating[c->n_beating++];
        *row = (dl_beating){.generation = *generation};
    }
    return row;
}

/* Notes the number of a later generation that hb/ has. */
static void note_later(dl_collect_part *c, dl_beating *row, uint32_t number)
{
    const bool first = row->n_later++ == 0;
    for (size_t i = 0; i < DL_BEATING_LATER; i++)
        if (first || (i >= DRAWN && dl_rng_below(&c->drawing, row->n_later) == 0))
            row->later[i] = number;
    if (number > row->later[HIGHEST]) row->later[HIGHEST] = number;
    if (number < row->later[LOWEST]) row->later[LOWEST] = number;
}

static diloco_status found_heartbeat(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_collect_part *c = &x->collect;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "hb/")) return DILOCO_OK;
    dl_beating *row = row_near(c, generation.replica, 2);
    if (!row) row = other_row(x, &generation);
    if (row && (!row->signed_once || generation.number > row->generation.number))
        note_later(c, row, generation.number);
    return DILOCO_OK;
}

static diloco_status found_end(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "end/")) return DILOCO_OK;
    dl_beating *row = row_of(&x->collect, generation.replica);
    if (row && row->signed_once && generation.number == row->generation.number)
        row->end_listed = true;
    return DILOCO_OK;
}

/* Rows of replicas that are not named any more make place, and so do those of unnamed ones that
 * have signed nothing. */
static diloco_status begin_look(dl_exec *x)
{
    dl_collect_part *c = &x->collect;
    uint64_t seed;
    size_t n = 0;
    DL_TRY(dl_random_bytes(&seed, sizeof seed));
    dl_rng_init(&c->drawing, seed, DL_STREAM(DL_STREAM_JITTER, 1), 0);
    for (size_t i = 0; i < c->n_beating; i++) {
        dl_beating *row = &c->beating[i];
        const bool stays = x->mode->reads_speeds && row->signed_once;
        if (!stays && !dl_exec_is_named(x, &row->generation)) continue;
        row->n_later = 0;
        row->end_listed = false;
        c->beating[n++] = *row;
    }
    c->n_beating = n;
    return DILOCO_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The object that is read, and its key. */
typedef struct reading {
    dl_exec *x;
    dl_time until;
    const dl_public *key;
    unsigned char bytes[SIGN_MAX];
    dl_buf text;
    dl_json_value json; /* of a signed one */
} reading;

/* Reads the object, or leaves the text empty: it is absent, or too long to be one. */
static diloco_status read_text(reading *r, const char *key)
{
    r->text = (dl_buf){.data = r->bytes, .cap = sizeof r->bytes, .max = sizeof r->bytes};
    const diloco_status status = dl_store_get(r->x->a.store, &r->text, key, r->until);
    if (!status) return DILOCO_OK;
    dl_buf_clear(&r->text);
    return status == DILOCO_ENOENT || status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* Whether that key has signed what was read for this generation. */
static bool is_signed(reading *r, const dl_heartbeat_kind *kind, const dl_generation *generation)
{
    return r->text.len &&
           dl_heartbeat_read(&r->json, &r->text, kind, r->key, r->x->a.run->id, generation);
}

/* Reads a heartbeat. Sets *holds to whether it is signed, and then row->seen if it counts. */
static diloco_status read_heartbeat(bool *holds, reading *r, dl_beating *row,
                                    const dl_generation *generation)
{
    dl_key key;
    dl_seen s = {.generation = *generation};
    dl_key_heartbeat(key, generation);
    DL_TRY(read_text(r, key));
    s.content = dl_hash_bytes(r->text.data, r->text.len);
    /* Most have not changed since the last look. A signature takes much longer than a hash. */
    *holds = row->seen.beat && dl_generation_equal(&row->seen.generation, generation) &&
             dl_hash_equal(row->seen.content, s.content);
    if (*holds || !(*holds = is_signed(r, &dl_heartbeat_alive, generation))) return DILOCO_OK;
    row->seen.beat = 0;
    if (dl_json_read_u64(&s.beat, r->json, "beat", UINT64_MAX - 1)) return DILOCO_OK;
    s.beat++;
    if (r->x->mode->reads_speeds)
        (void)!dl_json_read_f64_or_nan(&s.steps_per_s, r->json, "steps_per_s");
    row->seen = s;
    return DILOCO_OK;
}

/* Few names fill several places. */
static bool is_read(const dl_beating *row, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (row->later[k] == row->later[i]) return true;
    return false;
}

/* Reads the newest generation's heartbeat, and takes it into the reply. */
static diloco_status look_at(reading *r, dl_beating *row)
{
    dl_collect_part *c = &r->x->collect;
    bool holds = false;
    for (size_t i = 0; i < DL_BEATING_LATER && row->n_later && !holds; i++) {
        if (is_read(row, i)) continue;
        dl_generation later = row->generation;
        later.number = row->later[i];
        DL_TRY(read_heartbeat(&holds, r, row, &later));
        if (!holds) continue;
        row->generation = later;
        row->signed_once = true;
    }
    if (!holds && row->signed_once) DL_TRY(read_heartbeat(&holds, r, row, &row->generation));
    if (holds && row->seen.beat) c->seen[c->n_seen++] = row->seen;
    return DILOCO_OK;
}

static diloco_status read_heartbeats(reading *r)
{
    dl_collect_part *c = &r->x->collect;
    for (size_t i = 0; i < c->n_beating; i++) {
        dl_beating *row = &c->beating[i];
        const char *why;
        DL_TRY(dl_keyring_find(&r->key, &why, r->x->ring, row->generation.replica, r->until));
        if (r->key) DL_TRY(look_at(r, row));
    }
    return DILOCO_OK;
}

/* A row without a heartbeat at present gets one for its end. */
static void take_end(dl_collect_part *c, const dl_generation *generation)
{
    size_t i = 0;
    while (i < c->n_seen && !dl_generation_equal(&c->seen[i].generation, generation))
        i++;
    if (i == c->n_seen) c->seen[c->n_seen++] = (dl_seen){.generation = *generation};
    c->seen[i].ended = true;
}

static diloco_status read_ends(reading *r)
{
    dl_collect_part *c = &r->x->collect;
    for (size_t i = 0; i < c->n_beating; i++) {
        const dl_beating *row = &c->beating[i];
        const char *why;
        dl_key key;
        if (!row->end_listed) continue;
        DL_TRY(dl_keyring_find(&r->key, &why, r->x->ring, row->generation.replica, r->until));
        if (!r->key) continue;
        dl_key_end(key, &row->generation);
        DL_TRY(read_text(r, key));
        if (is_signed(r, &dl_heartbeat_ended, &row->generation)) take_end(c, &row->generation);
    }
    return DILOCO_OK;
}

diloco_status dl_exec_watch_signed(dl_exec *x, dl_reply *reply, dl_time until)
{
    reading r = {.x = x, .until = until};
    x->collect.n_seen = 0;
    DL_TRY(begin_look(x));
    DL_TRY(dl_store_list(x->a.store, "hb/", NULL, found_heartbeat, x, until));
    DL_TRY(read_heartbeats(&r));
    DL_TRY(dl_store_list(x->a.store, "end/", NULL, found_end, x, until));
    DL_TRY(read_ends(&r));
    reply->watch.seen = x->collect.seen;
    reply->watch.n_seen = x->collect.n_seen;
    return DILOCO_OK;
}
