/* collection.c - deletes objects older than `floor`: the smaller of the second-newest verified
 * snapshot's entry and every live heartbeat's entry. run.json, gen/ and log/ are never deleted. If
 * a log name were deleted, a process that was suspended could decide it again. */
#include "state/collection.h"

#include "base/json.h"
#include "base/log.h"
#include "protocol/async/async.h"
#include "protocol/logical_clients.h"

#include <string.h>

/* A name in snap/. Of these a collection tries at most NAMED_MAX. */
enum { NAMED_MAX = 32 };
typedef struct named_snapshot {
    uint64_t entry;
    dl_generation generation;
} named_snapshot;

/* One collection. It is on the stack of the snapshot thread, and borrows everything but
 * `before`. */
typedef struct sweep {
    dl_collector *collector;
    dl_store *store;
    const dl_runfile *run;
    dl_time until;
    named_snapshot named[NAMED_MAX]; /* a ring of the newest names below `floor` */
    size_t n_named;                  /* names so far */
    bool has_verified;               /* the one that this process has verified is among them */
    bool warned;                     /* that a snapshot does not count */
    uint64_t floor;
    dl_entry before; /* async: the entry before `floor`; else without room for members */
    /* async: shows which contributions to bases before the floor have counted. */
    const dl_roster *counted;
    dl_key *keys; /* keys to delete together */
    size_t n_keys;
    char *after;    /* the last key of this prefix that was looked at; "": none yet */
    dl_rng drawing; /* of the names that a look reads */
} sweep;

/* The end of a request. A collection may last long, since other writers may have created any number
 * of names. So it is each request that has a limit. */
static const dl_time REQUEST_LIMIT = 3600 * DL_SECOND;
static dl_time limit(const sweep *s)
{
    const dl_time soon = dl_time_after(dl_clock_now(), REQUEST_LIMIT);
    return soon < s->until ? soon : s->until;
}

/* ---- the second-newest snapshot --------------------------------------------------------- */

static bool is_snapshot(const named_snapshot *of, uint64_t entry, const dl_generation *generation)
{
    return of->entry == entry && dl_generation_equal(&of->generation, generation);
}

/* Keeps the newest names, since keys ascend. A snapshot has two objects, one after the other. */
static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    sweep *s = context;
    const dl_collector *c = s->collector;
    named_snapshot found;
    (void)len;
    if (!dl_key_parse_snapshot(&found.entry, &found.generation, key) || found.entry >= s->floor)
        return DILOCO_OK;
    if (s->n_named &&
        is_snapshot(&s->named[(s->n_named - 1) % NAMED_MAX], found.entry, &found.generation))
        return DILOCO_OK;
    s->named[s->n_named++ % NAMED_MAX] = found;
    s->has_verified |= is_snapshot(&found, c->verified_entry, &c->verified_generation);
    return DILOCO_OK;
}

/* Sets *whole to whether the snapshot reads back whole. One that this process has verified before
 * is not read again. A store that does not answer is an error. */
static diloco_status is_whole(bool *whole, sweep *s, const named_snapshot *it)
{
    const dl_collector *c = s->collector;
    *whole = is_snapshot(it, c->verified_entry, &c->verified_generation);
    if (*whole) return DILOCO_OK;
    const diloco_status status =
        dl_snapshot_verify(s->store, it->entry, &it->generation, s->run, limit(s));
    *whole = !status;
    if (status != DILOCO_EPROTO && status != DILOCO_ENOENT && status != DILOCO_EREFUSED)
        return status;
    dl_log(s->warned ? DILOCO_LOG_DEBUG : DILOCO_LOG_WARN, "%s: this snapshot does not count",
           diloco_error_text());
    s->warned = true;
    return DILOCO_OK;
}

/* Lowers `floor` from the newest snapshot to the next one that reads back whole, or to 0 if no
 * other does. Anyone can create names of snapshots. So one listing is made, and its NAMED_MAX
 * newest names are tried. If none of these is whole, `floor` is the snapshot that this process has
 * verified before. */
static diloco_status find_second(sweep *s)
{
    const dl_collector *c = s->collector;
    DL_TRY(dl_store_list(s->store, "snap/", NULL, found_snapshot, s, limit(s)));
    for (size_t i = 0; i < s->n_named && i < NAMED_MAX; i++) {
        const named_snapshot *it = &s->named[(s->n_named - 1 - i) % NAMED_MAX];
        bool whole;
        DL_TRY(is_whole(&whole, s, it));
        if (whole) return s->floor = it->entry, DILOCO_OK;
    }
    s->floor = s->has_verified ? c->verified_entry : 0;
    return DILOCO_OK;
}

/* ---- heartbeats ------------------------------------------------------------------------- */

/* Returns whether the replica is on the roster or on the list of a closed run. Each has a row,
 * however many names others create in hb/. */
static bool is_member(const sweep *s, const char *replica)
{
    return dl_roster_has(s->counted, replica, NULL) ||
           dl_identity_member(&s->run->identity, replica) != NULL;
}

/* Members change with the roster. Rows of other replicas go if there are enough, or if they have
 * signed nothing in a run with keys. */
static void begin_look(const sweep *s)
{
    dl_collector *c = s->collector;
    size_t n = 0;
    c->n_others = 0;
    for (size_t i = 0; i < c->n_seen; i++) {
        dl_collector_row *row = &c->seen[i];
        row->is_member = is_member(s, row->of.generation.replica);
        const bool useless = c->ring && !row->of.signed_once;
        if (!row->is_member && (useless || c->n_others == DL_COLLECTOR_OTHERS)) continue;
        c->n_others += !row->is_member;
        dl_beating_look(&row->of);
        c->seen[n++] = *row;
    }
    c->n_seen = n;
}

static void warn_of_crowd(dl_collector *c)
{
    if (!c->crowded)
        dl_log(DILOCO_LOG_WARN,
               "more than %d replicas that are not members have heartbeats: further ones do not "
               "keep objects in the store",
               DL_COLLECTOR_OTHERS);
    c->crowded = true;
}

/* Returns the first row whose name is not before that one. Rows are in strcmp order, since others
 * may have created any number of names, each of which is searched. */
static size_t place_of(const dl_collector *c, const char *replica)
{
    size_t low = 0, high = c->n_seen;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(c->seen[middle].of.generation.replica, replica) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the row of that replica, or a new one, or NULL if it may have none. */
static dl_collector_row *row_of(const sweep *s, const dl_generation *generation)
{
    dl_collector *c = s->collector;
    const size_t at = place_of(c, generation->replica);
    dl_collector_row *row = &c->seen[at];
    if (at < c->n_seen && !strcmp(row->of.generation.replica, generation->replica)) return row;
    const bool member = is_member(s, generation->replica);
    if (!member && s->run->identity.policy == DL_CLOSED) return NULL;
    if (!member && c->n_others == DL_COLLECTOR_OTHERS) return warn_of_crowd(c), NULL;
    DL_ASSERT(c->n_seen < DL_COLLECTOR_LIVES);
    c->n_others += !member;
    memmove(row + 1, row, (c->n_seen++ - at) * sizeof *row);
    *row = (dl_collector_row){.of.generation = *generation, .is_member = member};
    return row;
}

static void begin_row(dl_collector_row *row, const dl_generation *generation)
{
    row->of.generation = *generation;
    row->changed = 0;
    row->beat = 0;
    row->there = false;
}

/* An earlier generation protects nothing, since it is fenced. A later one starts as not seen yet,
 * so it counts as alive for run.patience. */
static diloco_status found_generation(void *context, const char *key, size_t len)
{
    sweep *s = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "hb/")) return DILOCO_OK;
    dl_collector_row *row = row_of(s, &generation);
    if (row && s->collector->ring)
        dl_beating_note_heartbeat(&row->of, &s->drawing, generation.number);
    else if (row && generation.number > row->of.generation.number)
        begin_row(row, &generation);
    return DILOCO_OK;
}

static dl_time now_of(const sweep *s)
{
    return s->collector->now ? s->collector->now : dl_clock_now();
}

/* Reads the newest heartbeat that the replica's key has signed. One that another writer has hidden
 * since protects its entry as long as one that does not change. */
static diloco_status read_signed(const sweep *s, dl_collector_row *row, dl_beat_reader *r)
{
    const dl_generation before = row->of.generation;
    const char *why;
    bool there;
    DL_TRY(dl_keyring_find(&r->key, &why, s->collector->ring, before.replica, r->until));
    if (!r->key) return DILOCO_OK;
    DL_TRY(dl_beating_read(&there, &row->of, r));
    if (!there) return DILOCO_OK;
    if (before.number != row->of.generation.number) begin_row(row, &row->of.generation);
    if (r->beat <= row->beat) return DILOCO_OK;
    row->beat = r->beat;
    row->there = true;
    row->changed = now_of(s);
    row->entry = 0; /* not named: protect everything */
    (void)!dl_json_read_u64(&row->entry, r->json, "entry", UINT64_MAX);
    return DILOCO_OK;
}

/* Alive is judged by changes that this process saw itself; no clock of another machine is used
 * (P11.1). `changed` starts at the first look, so a collector that has just begun deletes nothing
 * of a live replica. */
static diloco_status read_plain(const sweep *s, dl_collector_row *row, dl_beat_reader *r)
{
    dl_key key;
    dl_json_value json;
    r->text = (dl_buf){.data = r->bytes, .cap = sizeof r->bytes, .max = sizeof r->bytes};
    dl_key_heartbeat(key, &row->of.generation);
    const diloco_status status = dl_store_get(s->store, &r->text, key, r->until);
    row->there = !status;
    if (status == DILOCO_ENOENT || status == DILOCO_EPROTO) return DILOCO_OK;
    DL_TRY(status);
    const dl_hash content = dl_hash_bytes(r->text.data, r->text.len);
    if (row->changed && dl_hash_equal(content, row->content)) return DILOCO_OK;
    row->content = content;
    row->changed = now_of(s);
    row->entry = 0; /* unreadable: protect everything */
    if (dl_json_parse(&json, r->text.data, r->text.len) == DILOCO_OK)
        (void)!dl_json_read_u64(&row->entry, json, "entry", UINT64_MAX);
    return DILOCO_OK;
}

/* P25.7. A joining replica writes its heartbeat before it downloads, so the objects that it is
 * about to read stay. */
static diloco_status lower_floor_to_heartbeats(sweep *s)
{
    dl_beat_reader r = {.store = s->store, .run = s->run->id};
    const dl_time patience = dl_time_from_seconds(s->run->config.patience_s);
    begin_look(s);
    DL_TRY(dl_store_list(s->store, "hb/", NULL, found_generation, s, limit(s)));
    for (size_t i = 0; i < s->collector->n_seen; i++) {
        dl_collector_row *row = &s->collector->seen[i];
        r.until = limit(s);
        DL_TRY(s->collector->ring ? read_signed(s, row, &r) : read_plain(s, row, &r));
        const bool live = row->there && now_of(s) - row->changed < patience;
        if (live && row->entry < s->floor) s->floor = row->entry;
    }
    return DILOCO_OK;
}

/* ---- removing --------------------------------------------------------------------------- */

/* MANY batches of one prefix are deleted before the next prefix has its turn. So a writer that
 * creates names faster than they are deleted keeps no other prefix as it is. */
enum { BATCH = 64, MANY = 1024 };

static bool may_count_after(const sweep *s, const dl_roster *roster, const char *replica,
                            uint64_t base)
{
    return dl_async_may_count(roster, s->floor, &s->run->config, replica, base);
}

/* Two rosters are asked: the one of the entry before the floor and the newest. A contribution stays
 * if it may count after either. */
static bool may_still_count(const sweep *s, const char *key)
{
    uint64_t base;
    dl_generation generation;
    return s->before.members && dl_key_parse_contribution(&base, &generation, key) &&
           (may_count_after(s, &s->before.roster, generation.replica, base) ||
            may_count_after(s, s->counted, generation.replica, base));
}

/* Collects the objects of an old entry. The walk ends at the floor, since keys ascend. Returns
 * DILOCO_ECLOSED to end the walk at the floor, or when a batch is full. */
static diloco_status found_old(void *context, const char *key, size_t len)
{
    sweep *s = context;
    uint64_t entry;
    (void)len;
    const bool old = dl_key_entry_of(&entry, key);
    if (old && (entry >= s->floor || s->n_keys == BATCH)) return DILOCO_ECLOSED;
    memcpy(s->after, key, strlen(key) + 1);
    if (!old || may_still_count(s, key)) return DILOCO_OK;
    memcpy(s->keys[s->n_keys++], key, strlen(key) + 1);
    return DILOCO_OK;
}

/* A batch is deleted after its listing has ended. The walk then continues. Keys are kept on the
 * stack, so a collection allocates no list. Sets *all to whether nothing is left. */
static diloco_status remove_some(bool *all, sweep *s, const char *prefix, char *after)
{
    dl_key keys[BATCH];
    s->keys = keys;
    s->after = after;
    *all = false;
    for (int i = 0; i < MANY && !*all; i++) {
        s->n_keys = 0;
        const diloco_status status =
            dl_store_list(s->store, prefix, *after ? after : NULL, found_old, s, limit(s));
        if (status && status != DILOCO_ECLOSED) return status;
        for (size_t k = 0; k < s->n_keys; k++) {
            const diloco_status deleted = dl_store_delete(s->store, keys[k], limit(s));
            if (deleted) *after = 0; /* the keys of this batch may remain */
            DL_TRY(deleted);
        }
        *all = s->n_keys < BATCH;
    }
    return DILOCO_OK;
}

/* Snapshots come first, so that a remaining one has the contributions after it. A writer may create
 * names as fast as they are deleted. So each prefix continues where the last collection ended, up
 * to the floor, and then from its beginning. A later floor has its turn after one round. */
static diloco_status remove_below(sweep *s)
{
    static const char *const prefixes[DL_COLLECTOR_PREFIXES] = {"snap/", "x/", "b/", "c/"};
    dl_collector *c = s->collector;
    bool all[DL_COLLECTOR_PREFIXES] = {false}, from_start[DL_COLLECTOR_PREFIXES], whole = false;
    for (int i = 0; i < DL_COLLECTOR_PREFIXES; i++)
        from_start[i] = !c->after[i][0];
    while (!whole) {
        whole = true;
        for (int i = 0; i < DL_COLLECTOR_PREFIXES; i++) {
            bool end = false;
            if (!all[i]) DL_TRY(remove_some(&end, s, prefixes[i], c->after[i]));
            if (end) {
                all[i] = from_start[i];
                from_start[i] = true;
                c->after[i][0] = 0;
            }
            whole &= all[i];
        }
        if (atomic_load(&c->newer)) return DILOCO_OK;
    }
    return DILOCO_OK;
}

/* async: a later entry may name contributions to a base before the floor. The roster of the entry
 * before the floor shows which (async.h). If a malicious member wrote that entry, it is void, and
 * `counted` keeps the contributions that have not counted. */
static diloco_status read_roster(sweep *s)
{
    dl_buf text;
    DL_TRY(dl_entry_init(&s->before, dl_clients_max_members(&s->run->config)));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status = dl_entry_get(&text, s->store, s->floor - 1, limit(s));
    const dl_entry_place place = dl_runfile_place(s->run, s->floor - 1);
    if (!status) status = dl_entry_read_at(&s->before, text.data, text.len, &place);
    dl_buf_deinit(&text);
    return status;
}

/* Deletes what the floor allows. Several replicas may collect at once: the floor of each is safe by
 * itself, and deleting twice is harmless. */
static diloco_status collect(sweep *s)
{
    DL_TRY(find_second(s));
    if (s->floor == 0) return DILOCO_OK;
    DL_TRY(lower_floor_to_heartbeats(s));
    if (s->floor == 0) return DILOCO_OK;
    if (s->run->config.schedule == DL_SCHEDULE_ASYNC) DL_TRY(read_roster(s));
    return remove_below(s);
}

diloco_status dl_collection_read_back(dl_store *store, const dl_runfile *run,
                                      const dl_collection *what, dl_time until)
{
    if (what->confirmed) return DILOCO_OK;
    return dl_snapshot_verify(store, what->entry, &what->generation, run, until);
}

/* The new snapshot counts as verified only at the end, for the next collection: `floor` begins
 * there. */
void dl_collect(dl_collector *collector, dl_store *store, const dl_runfile *run,
                const dl_collection *what, dl_time until)
{
    if (run->config.retain == DL_RETAIN_ALL) return;
    sweep s = {.collector = collector,
               .store = store,
               .run = run,
               .until = until,
               .floor = what->entry,
               .counted = what->counted};
    uint64_t seed;
    diloco_status status = dl_random_bytes(&seed, sizeof seed);
    if (!status) dl_rng_init(&s.drawing, seed, DL_STREAM(DL_STREAM_JITTER, 2), 0);
    if (!status && run->identity.policy != DL_TRUSTED && !collector->ring)
        status = dl_keyring_create(&collector->ring, store, run, NULL);
    if (!status) status = collect(&s);
    if (status && status != DILOCO_ECLOSED)
        dl_log(DILOCO_LOG_WARN, "old objects stay in the store for now: %s", diloco_error_text());
    dl_entry_deinit(&s.before);
    collector->verified_entry = what->entry;
    collector->verified_generation = what->generation;
}

void dl_collector_deinit(dl_collector *collector)
{
    dl_keyring_destroy(collector->ring);
    collector->ring = NULL;
}

diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                      const dl_state *state, const dl_runfile *run,
                                      const dl_generation *generation, const dl_signer *signer,
                                      dl_time until)
{
    dl_collection what = {.entry = state->control.entry,
                          .generation = *generation,
                          .counted = &state->control.roster};
    const diloco_status written =
        dl_snapshot_write(&what.confirmed, store, state, run, generation, signer, until);
    dl_state_put_out_all(state);
    DL_TRY(written);
    DL_TRY(dl_collection_read_back(store, run, &what, until));
    dl_collect(collector, store, run, &what, until);
    return DILOCO_OK;
}
