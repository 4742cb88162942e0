/* participants.c - see participants.h. */
#include "inspect/participants.h"

#include "base/json.h"
#include "log/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GENERATION_MAX = 16384 }; /* bytes of an object in gen/ */

diloco_status dl_participants_create(dl_participants *out, diloco_replica_status *replicas,
                                     const dl_reader *reader)
{
    uint64_t seed;
    out->reader = reader;
    out->replicas = replicas;
    DL_TRY(dl_random_bytes(&seed, sizeof seed));
    dl_rng_init(&out->drawing, seed, DL_STREAM(DL_STREAM_JITTER, 3), 0);
    return reader->file.identity.policy == DL_TRUSTED
               ? DILOCO_OK
               : dl_keyring_create(&out->ring, reader->store, &reader->file, NULL);
}

void dl_participants_destroy(dl_participants *p)
{
    dl_keyring_destroy(p->ring);
    p->ring = NULL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Move the rows from `from` to the end to row `to`. */
static void move_rows(dl_participants *p, size_t to, size_t from)
{
    const size_t n = p->n - from;
    memmove(p->replicas + to, p->replicas + from, n * sizeof *p->replicas);
    memmove(p->rows + to, p->rows + from, n * sizeof *p->rows);
}

/* Remove the row whose name the log named least recently, if it named `name` later. Returns true
 * if there is a free row. */
static bool make_room(dl_participants *p, const char *name)
{
    size_t least = DL_PARTICIPANTS_MAX;
    uint64_t before = dl_logged_names_since(&p->logged, name);
    if (p->n < DL_PARTICIPANTS_MAX) return true;
    for (size_t i = 0; i < p->n && before > 0; i++) {
        const uint64_t since = dl_logged_names_since(&p->logged, p->replicas[i].replica);
        if (since >= before) continue;
        before = since;
        least = i;
    }
    if (least == DL_PARTICIPANTS_MAX) return false;
    move_rows(p, least, least + 1);
    p->n--;
    return true;
}

/* Return the first row whose name is not before `name`. */
static size_t place_of(const dl_participants *p, const char *name)
{
    size_t at = 0;
    while (at < p->n && dl_replica_compare(p->replicas[at].replica, name) < 0)
        at++;
    return at;
}

static bool is_at(const dl_participants *p, size_t at, const char *name)
{
    return at < p->n && !strcmp(p->replicas[at].replica, name);
}

size_t dl_participants_row(dl_participants *p, const char *name)
{
    size_t at = place_of(p, name);
    if (is_at(p, at, name)) return at;
    if (!make_room(p, name)) return SIZE_MAX;
    at = place_of(p, name);
    move_rows(p, at + 1, at);
    p->n++;
    p->rows[at] = (dl_participant){.began = dl_clock_now()};
    p->replicas[at] = (diloco_replica_status){.generation = 0};
    snprintf(p->replicas[at].replica, sizeof p->replicas[at].replica, "%s", name);
    memcpy(p->rows[at].of.generation.replica, p->replicas[at].replica,
           sizeof p->replicas[at].replica);
    return at;
}

/* Count the names of gen/. Its listing is in order, so the generations of a name come together. */
static void count_begun(dl_participants *p, const char *name)
{
    if (p->n_begun > 0 && !strcmp(p->newest, name)) return;
    snprintf(p->newest, sizeof p->newest, "%s", name);
    p->n_begun++;
}

size_t dl_participants_left_out(const dl_participants *p)
{
    size_t shown = 0;
    for (size_t i = 0; i < p->n; i++)
        shown += p->rows[i].begun;
    return p->n_begun > shown ? p->n_begun - shown : 0;
}

/* A newer generation begins with nothing known: its heartbeat, its end and its host are its own. */
static void begin_generation(dl_participants *p, size_t i, uint32_t number)
{
    diloco_replica_status *r = &p->replicas[i];
    r->generation = number;
    r->ended = r->seen = r->alive = p->rows[i].known = false;
    r->host[0] = '\0';
    p->rows[i].beat = 0;
    p->rows[i].changed = 0;
    p->rows[i].began = dl_clock_now();
}

/* ---- listings ------------------------------------------------------------------------------- */

static diloco_status found_gen(void *context, const char *key, size_t len)
{
    dl_participants *p = context;
    const dl_identity *identity = &p->reader->file.identity;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "gen/")) return DILOCO_OK;
    if (identity->policy == DL_CLOSED && !dl_identity_member(identity, generation.replica))
        return DILOCO_OK;
    count_begun(p, generation.replica);
    const size_t i = dl_participants_row(p, generation.replica);
    if (i == SIZE_MAX) return DILOCO_OK;
    p->rows[i].begun = true;
    if (p->heard) DL_TRY(p->heard(p->user, &generation));
    if (!p->ring && generation.number > p->replicas[i].generation)
        begin_generation(p, i, generation.number);
    return DILOCO_OK;
}

static diloco_status found_heartbeat(void *context, const char *key, size_t len)
{
    dl_participants *p = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "hb/")) return DILOCO_OK;
    const size_t i = place_of(p, generation.replica);
    if (is_at(p, i, generation.replica))
        dl_beating_note_heartbeat(&p->rows[i].of, &p->drawing, generation.number);
    return DILOCO_OK;
}

/* The end of an older generation says nothing about the newest. */
static diloco_status found_end(void *context, const char *key, size_t len)
{
    dl_participants *p = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "end/")) return DILOCO_OK;
    const size_t i =
        p->ring ? place_of(p, generation.replica) : dl_participants_row(p, generation.replica);
    if (i == SIZE_MAX || !is_at(p, i, generation.replica)) return DILOCO_OK;
    if (p->ring)
        dl_beating_note_end(&p->rows[i].of, generation.number);
    else if (p->replicas[i].generation == generation.number)
        p->replicas[i].ended = true;
    return DILOCO_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

static dl_generation generation_of(const diloco_replica_status *r)
{
    dl_generation generation = {.number = r->generation};
    memcpy(generation.replica, r->replica, sizeof generation.replica);
    return generation;
}

static dl_beat_reader reader_of(const dl_participants *p)
{
    return (dl_beat_reader){
        .store = p->reader->store, .run = p->reader->file.id, .until = dl_reader_limit()};
}

/* Returns whether that key has signed the object of the generation in gen/. */
static bool is_signed_life(const dl_beat_reader *r, const dl_buf *text,
                           const dl_generation *generation)
{
    dl_public by;
    const dl_statement what = {.kind = "life", .run = r->run, .generation = generation};
    return !dl_sealed_signer(&by, text->data, text->len, &what) && dl_public_equal(&by, r->key);
}

/* Read the host of a generation once. Its text is optional, so a failure leaves the host empty.
 * `by` has the replica's key in a run with keys, else NULL. */
static void read_host(diloco_replica_status *r, const dl_participants *p, const dl_beat_reader *by)
{
    const dl_generation generation = generation_of(r);
    dl_key key;
    dl_json_value json;
    dl_buf text;
    dl_key_gen(key, &generation);
    dl_buf_init(&text, GENERATION_MAX);
    if (!dl_store_get(p->reader->store, &text, key, dl_reader_limit()) &&
        !dl_json_parse(&json, text.data, text.len) &&
        (!by || is_signed_life(by, &text, &generation)))
        (void)!dl_json_read_str(r->host, sizeof r->host, json, "host");
    dl_buf_deinit(&text);
}

/* All of it is the replica's own claim, for people to read. A field that is missing or damaged
 * keeps its last value. */
static void take_numbers(diloco_replica_status *r, dl_json_value json)
{
    (void)!dl_json_read_u64(&r->step, json, "step", UINT64_MAX);
    (void)!dl_json_read_u64(&r->entry, json, "entry", UINT64_MAX);
    (void)!dl_json_read_u64(&r->position, json, "position", UINT64_MAX);
    (void)!dl_json_read_f64(&r->steps_per_s, json, "steps_per_s");
    (void)!dl_json_read_f64(&r->entry_s, json, "entry_s");
    (void)!dl_json_read_f64(&r->deadline_s, json, "deadline_s");
    (void)!dl_json_read_f64(&r->up_bps, json, "up_bps");
    (void)!dl_json_read_f64(&r->down_bps, json, "down_bps");
    (void)!dl_json_read_f64(&r->request_s, json, "request_s");
    (void)!dl_json_read_str(r->address, sizeof r->address, json, "address");
    (void)!dl_json_read_u64(&r->from_peers, json, "from_peers", UINT64_MAX);
    (void)!dl_json_read_u64(&r->from_store, json, "from_store", UINT64_MAX);
    (void)!dl_json_read_f64(&r->beat_time, json, "time");
}

/* Read a heartbeat of a run without keys. Returns whether its content is not that of the last look.
 */
static bool plain_changed(dl_participants *p, size_t i, dl_beat_reader *r)
{
    const dl_generation generation = generation_of(&p->replicas[i]);
    dl_key key;
    dl_key_heartbeat(key, &generation);
    r->text = (dl_buf){.data = r->bytes, .cap = sizeof r->bytes, .max = sizeof r->bytes};
    if (dl_store_get(p->reader->store, &r->text, key, r->until)) return false;
    p->replicas[i].seen = true;
    if (!dl_json_parse(&r->json, r->text.data, r->text.len)) take_numbers(&p->replicas[i], r->json);
    const dl_hash now = dl_hash_bytes(r->text.data, r->text.len);
    const bool changed = !dl_hash_equal(now, p->rows[i].content);
    p->rows[i].content = now;
    return changed;
}

/* Find the key of the row's replica in r->key. Returns false if it has none. */
static bool find_key(dl_beat_reader *r, const dl_participants *p, size_t i)
{
    const char *why;
    r->key = NULL;
    return !dl_keyring_find(&r->key, &why, p->ring, p->replicas[i].replica, r->until) && r->key;
}

/* Read the newest heartbeat that the replica's key has signed, or with `again` that of the same
 * generation as before. Returns whether it is newer than the last one: anyone may write an old
 * heartbeat again. */
static bool signed_changed(dl_participants *p, size_t i, dl_beat_reader *r, bool again)
{
    dl_participant *row = &p->rows[i];
    bool there;
    if (!find_key(r, p, i)) return false;
    if (again ? dl_beating_read_again(&there, &row->of, r) : dl_beating_read(&there, &row->of, r))
        return false;
    if (row->of.generation.number != p->replicas[i].generation)
        begin_generation(p, i, row->of.generation.number);
    if (!there || r->beat <= row->beat) return false;
    p->replicas[i].seen = true;
    take_numbers(&p->replicas[i], r->json);
    row->beat = r->beat;
    return true;
}

/* A first look is not a change: the content may be old. */
static void see_heartbeats(dl_participants *p)
{
    dl_beat_reader r = reader_of(p);
    for (size_t i = 0; i < p->n; i++) {
        const bool changed = p->ring ? signed_changed(p, i, &r, false) : plain_changed(p, i, &r);
        const bool first = !p->rows[i].known;
        if (first && (!p->ring || r.key)) read_host(&p->replicas[i], p, p->ring ? &r : NULL);
        p->rows[i].known = true;
        if (changed) p->rows[i].changed = first ? 0 : dl_clock_now();
    }
}

static void see_ends(dl_participants *p)
{
    dl_beat_reader r = reader_of(p);
    for (size_t i = 0; i < p->n; i++) {
        bool ended = p->rows[i].of.end_listed && find_key(&r, p, i);
        if (ended && dl_beating_read_end(&ended, &p->rows[i].of, &r)) ended = false;
        p->replicas[i].ended |= ended;
    }
}

/* An end counts for the generation whose heartbeat is read before. */
static diloco_status look_signed(dl_participants *p)
{
    dl_store *store = p->reader->store;
    for (size_t i = 0; i < p->n; i++)
        dl_beating_look(&p->rows[i].of);
    DL_TRY(dl_store_list(store, "hb/", NULL, found_heartbeat, p, dl_reader_limit()));
    see_heartbeats(p);
    DL_TRY(dl_store_list(store, "end/", NULL, found_end, p, dl_reader_limit()));
    see_ends(p);
    return DILOCO_OK;
}

diloco_status dl_participants_look(dl_participants *p)
{
    dl_store *store = p->reader->store;
    p->n_begun = 0;
    DL_TRY(dl_store_list(store, "gen/", NULL, found_gen, p, dl_reader_limit()));
    if (p->ring) return look_signed(p);
    DL_TRY(dl_store_list(store, "end/", NULL, found_end, p, dl_reader_limit()));
    see_heartbeats(p);
    return DILOCO_OK;
}

/* ---- liveness ------------------------------------------------------------------------------- */

void dl_participants_watch(dl_participants *p, double watch_s)
{
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(watch_s));
    dl_beat_reader r = reader_of(p);
    size_t quiet = p->n;
    while (quiet > 0 && dl_clock_now() < until) {
        dl_clock_sleep(50 * DL_MILLISECOND);
        quiet = 0;
        for (size_t i = 0; i < p->n; i++) {
            diloco_replica_status *one = &p->replicas[i];
            if (one->alive || one->ended || !one->seen) continue;
            one->alive = p->ring ? signed_changed(p, i, &r, true) : plain_changed(p, i, &r);
            quiet += !one->alive;
        }
    }
}

void dl_participants_judge_by_age(dl_participants *p, double alive_s)
{
    const dl_time now = dl_clock_now();
    for (size_t i = 0; i < p->n; i++) {
        diloco_replica_status *r = &p->replicas[i];
        const dl_time changed = p->rows[i].changed;
        const bool young = dl_seconds(now - p->rows[i].began) < alive_s;
        r->alive = !r->ended && r->seen &&
                   (changed ? dl_seconds(now - changed) < alive_s
                            : young && fabs(dl_clock_wall() - r->beat_time) < alive_s);
    }
}
