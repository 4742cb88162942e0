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

/* Rows are in the order of the listing that made them, so the row after the last one is likely. */
static dl_beating *row_of(dl_collect_part *c, const char *replica)
{
    for (size_t k = 0; k < c->n_beating; k++) {
        const size_t i = (c->beating_at + k) % c->n_beating;
        if (strcmp(c->beating[i].generation.replica, replica)) continue;
        c->beating_at = i;
        return &c->beating[i];
    }
    return NULL;
}

/* Only asynchronous replicas need the speeds of others than the named ones. */
static bool may_have_row(const dl_exec *x, bool named)
{
    const dl_collect_part *c = &x->collect;
    if (c->n_beating == c->cap_seen) return false;
    return named || c->n_beating < dl_exec_n_named(x) + UNNAMED_MAX;
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
    const bool named = dl_exec_is_named(x, &generation);
    if (!named && !x->mode->reads_speeds) return DILOCO_OK;
    dl_beating *row = row_of(c, generation.replica);
    if (!row && may_have_row(x, named)) {
        row = &c->beating[c->n_beating++];
        *row = (dl_beating){.generation = generation};
    }
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

/* Sets *holds to whether that key has signed the object for this generation. */
static diloco_status read_sign(bool *holds, reading *r, const dl_heartbeat_kind *sign,
                               void (*name)(dl_key out, const dl_generation *generation),
                               const dl_generation *generation)
{
    dl_key key;
    name(key, generation);
    r->text = (dl_buf){.data = r->bytes, .cap = sizeof r->bytes, .max = sizeof r->bytes};
    const diloco_status status = dl_store_get(r->x->a.store, &r->text, key, r->until);
    *holds =
        !status && dl_heartbeat_read(&r->json, &r->text, sign, r->key, r->x->a.run->id, generation);
    return status == DILOCO_ENOENT || status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* Takes the heartbeat that was read into the reply. */
static void take(reading *r, const dl_generation *generation)
{
    dl_collect_part *c = &r->x->collect;
    dl_seen s = {.generation = *generation};
    if (dl_json_read_u64(&s.beat, r->json, "beat", UINT64_MAX - 1)) return;
    s.beat++;
    s.content = dl_hash_bytes(r->text.data, r->text.len);
    if (r->x->mode->reads_speeds)
        (void)!dl_json_read_f64_or_nan(&s.steps_per_s, r->json, "steps_per_s");
    c->seen[c->n_seen++] = s;
}

/* Few names fill several places. */
static bool is_read(const dl_beating *row, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (row->later[k] == row->later[i]) return true;
    return false;
}

/* Reads the newest generation's heartbeat. */
static diloco_status read_heartbeat(reading *r, dl_beating *row)
{
    bool holds = false;
    for (size_t i = 0; i < DL_BEATING_LATER && row->n_later && !holds; i++) {
        if (is_read(row, i)) continue;
        dl_generation later = row->generation;
        later.number = row->later[i];
        DL_TRY(read_sign(&holds, r, &dl_heartbeat_alive, dl_key_heartbeat, &later));
        if (!holds) continue;
        row->generation = later;
        row->signed_once = true;
    }
    if (!holds && row->signed_once)
        DL_TRY(read_sign(&holds, r, &dl_heartbeat_alive, dl_key_heartbeat, &row->generation));
    if (holds) take(r, &row->generation);
    return DILOCO_OK;
}

static diloco_status read_heartbeats(reading *r)
{
    dl_collect_part *c = &r->x->collect;
    for (size_t i = 0; i < c->n_beating; i++) {
        dl_beating *row = &c->beating[i];
        const char *why;
        DL_TRY(dl_keyring_find(&r->key, &why, r->x->ring, row->generation.replica, r->until));
        if (r->key) DL_TRY(read_heartbeat(r, row));
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
        bool ended = false;
        if (!row->end_listed) continue;
        DL_TRY(dl_keyring_find(&r->key, &why, r->x->ring, row->generation.replica, r->until));
        if (!r->key) continue;
        DL_TRY(read_sign(&ended, r, &dl_heartbeat_ended, dl_key_end, &row->generation));
        if (ended) take_end(c, &row->generation);
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
