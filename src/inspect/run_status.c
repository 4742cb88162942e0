/* run_status.c - diloco_run_status_read: the participants, their liveness, the progress of the log.
 *
 * Liveness is judged by watching: no clock of another machine is believed (P11). follower.c
 * keeps the same status up to date (run_status.h). dl_status_book_entry takes the log,
 * dl_status_book_look all the rest. */
#include "inspect/run_status.h"
#include "base/json.h"
#include "base/run_kind.h"
#include "base/sized.h"
#include "inspect/logged_names.h"
#include "inspect/reader.h"
#include "protocol/bans.h"
#include "protocol/judge.h"
#include "protocol/logical_clients.h"
#include "protocol/schedule.h"
#include "protocol/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replicas in a status; further ones are left out, those that the log does not name first. The
 * arrays have a fixed size, so a follower allocates nothing for a look. */
enum { MAX_REPLICAS = 256 };
#define ALIVE_S 11.0 /* at least: two of the default heartbeats, and one second */

/* The memory that a diloco_run_status points into. The caller of diloco_run_status_read owns it
 * then; `in_order` is what its `replicas` points to. */
typedef struct memory {
    diloco_run_wait wait; /* of the open entry */
    diloco_replica_status replicas[MAX_REPLICAS], *in_order[MAX_REPLICAS];
} memory;

/* The replicas that were seen, in the order of their names. Row i of each array is of the same
 * replica. */
typedef struct watcher {
    diloco_replica_status *replicas; /* [MAX_REPLICAS], in the book's memory */
    size_t n;                        /* rows in use */
    dl_hash content[MAX_REPLICAS];   /* of replicas[i]'s heartbeat */
    dl_time changed[MAX_REPLICAS]; /* when a look first found this content; 0: at the first look */
    double written[MAX_REPLICAS];  /* as the heartbeat itself says, seconds since 1970 */
    bool known[MAX_REPLICAS];      /* its generation has been read */
    dl_logged_names logged;        /* empty for logical clients, which have no rows */
    bool begun[MAX_REPLICAS];      /* its name is in gen/ */
    size_t n_begun;                /* names in gen/, as far as the listing is read */
    char newest[DL_REPLICA_MAX + 1]; /* the last of them */
    dl_status_generation_fn heard;   /* NULL: not called */
    void *user;                      /* of heard */
} watcher;

/* A status that grows with the log. One thread at a time. */
struct dl_status_book {
    diloco_run_status run; /* the public form */
    memory *memory;        /* that run points into */
    watcher watcher;
    dl_bans *bans, *scratch; /* NULL where the run has none */
    uint64_t counted;        /* entries that a snapshot's manifest has counted */
    bool members_have_rows;  /* members are replicas, not logical clients */
    dl_time began;
};

/* Move the rows from `from` to the end to row `to`, in each array. */
static void move_rows(watcher *w, size_t to, size_t from)
{
    const size_t n = w->n - from;
    memmove(w->replicas + to, w->replicas + from, n * sizeof *w->replicas);
    memmove(w->content + to, w->content + from, n * sizeof *w->content);
    memmove(w->changed + to, w->changed + from, n * sizeof *w->changed);
    memmove(w->written + to, w->written + from, n * sizeof *w->written);
    memmove(w->known + to, w->known + from, n * sizeof *w->known);
    memmove(w->begun + to, w->begun + from, n * sizeof *w->begun);
}

/* Remove the row whose name the log named least recently, if it named `name` later. Returns true
 * if there is a free row. */
static bool make_room(watcher *w, const char *name)
{
    size_t least = MAX_REPLICAS;
    uint64_t before = dl_logged_names_since(&w->logged, name);
    if (w->n < MAX_REPLICAS) return true;
    for (size_t i = 0; i < w->n && before > 0; i++) {
        const uint64_t since = dl_logged_names_since(&w->logged, w->replicas[i].replica);
        if (since >= before) continue;
        before = since;
        least = i;
    }
    if (least == MAX_REPLICAS) return false;
    move_rows(w, least, least + 1);
    w->n--;
    return true;
}

/* Return the first row whose name is not before `name`. */
static size_t place_of(const watcher *w, const char *name)
{
    size_t at = 0;
    while (at < w->n && dl_replica_compare(w->replicas[at].replica, name) < 0)
        at++;
    return at;
}

/* Return the row of that name; a new one is put in its place in order. SIZE_MAX: there is no
 * room. Rows may move, so indexes are valid only until the next call. */
static size_t replica_index(watcher *w, const char *name)
{
    size_t at = place_of(w, name);
    if (at < w->n && !strcmp(w->replicas[at].replica, name)) return at;
    if (!make_room(w, name)) return SIZE_MAX;
    at = place_of(w, name);
    move_rows(w, at + 1, at);
    w->n++;
    w->replicas[at] = (diloco_replica_status){.generation = 0};
    w->content[at] = (dl_hash){0};
    w->changed[at] = 0;
    w->written[at] = 0;
    w->known[at] = w->begun[at] = false;
    snprintf(w->replicas[at].replica, sizeof w->replicas[at].replica, "%s", name);
    return at;
}

/* Count the names of gen/. Its listing is in order, so the generations of a name come together. */
static void count_begun(watcher *w, const char *name)
{
    if (w->n_begun > 0 && !strcmp(w->newest, name)) return;
    snprintf(w->newest, sizeof w->newest, "%s", name);
    w->n_begun++;
}

/* Return the number of names in gen/ without a row. */
static size_t left_out(const watcher *w)
{
    size_t shown = 0;
    for (size_t i = 0; i < w->n; i++)
        shown += w->begun[i];
    return w->n_begun > shown ? w->n_begun - shown : 0;
}

/* A newer generation begins with nothing known: its heartbeat, its end and its host are its own. */
static diloco_status found_gen(void *context, const char *key, size_t len)
{
    watcher *w = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "gen/")) return DILOCO_OK;
    count_begun(w, generation.replica);
    const size_t i = replica_index(w, generation.replica);
    if (i == SIZE_MAX) return DILOCO_OK;
    w->begun[i] = true;
    if (w->heard) DL_TRY(w->heard(w->user, &generation));
    if (generation.number <= w->replicas[i].generation) return DILOCO_OK;
    diloco_replica_status *r = &w->replicas[i];
    r->generation = generation.number;
    r->ended = r->seen = r->alive = w->known[i] = false;
    return DILOCO_OK;
}

/* The end of an older generation says nothing about the newest. */
static diloco_status found_end(void *context, const char *key, size_t len)
{
    watcher *w = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "end/")) return DILOCO_OK;
    const size_t i = replica_index(w, generation.replica);
    if (i != SIZE_MAX && w->replicas[i].generation == generation.number)
        w->replicas[i].ended = true;
    return DILOCO_OK;
}

/* Read the host of a generation once. Its text is untrusted and optional, so a failure leaves
 * the host empty. */
static void read_generation(diloco_replica_status *r, dl_store *store, dl_buf *text)
{
    dl_generation generation = {.number = r->generation};
    dl_key key;
    dl_json_value json;
    memcpy(generation.replica, r->replica, sizeof generation.replica);
    dl_key_gen(key, &generation);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, dl_reader_limit()) == DILOCO_OK &&
        dl_json_parse(&json, text->data, text->len) == DILOCO_OK)
        (void)!dl_json_read_str(r->host, sizeof r->host, json, "host");
}

/* Read a heartbeat's numbers, and return true if its content is not that of the last look. All
 * of it is the replica's own claim, for people to read. A field that is missing or damaged keeps
 * its last value. */
static bool heartbeat_changed(watcher *w, size_t i, dl_store *store, dl_buf *text)
{
    diloco_replica_status *r = &w->replicas[i];
    dl_generation generation = {.number = r->generation};
    dl_key key;
    dl_json_value json;
    memcpy(generation.replica, r->replica, sizeof generation.replica);
    dl_key_heartbeat(key, &generation);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, dl_reader_limit())) return false;
    r->seen = true;
    if (dl_json_parse(&json, text->data, text->len) == DILOCO_OK) {
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
        (void)!dl_json_read_f64(&w->written[i], json, "time");
    }
    const dl_hash now = dl_hash_bytes(text->data, text->len);
    const bool changed = !dl_hash_equal(now, w->content[i]);
    w->content[i] = now;
    return changed;
}

/* Estimate the bytes that moved for an entry. One that names no update was moved by allgather,
 * whatever the topology of the run. */
static void take_volume(diloco_run_status *out, const diloco_log_entry *entry)
{
    const double n = (double)entry->n_members, each = (double)entry->bytes / n;
    const dl_topology_kind topology =
        entry->combined_by[0] ? DL_TOPOLOGY_LEADER : DL_TOPOLOGY_ALLGATHER;
    const dl_volume v = dl_topology_volume(topology, n, each, (double)entry->combined_bytes, true);
    out->entry_written = (uint64_t)v.written;
    out->entry_read = (uint64_t)v.read;
}

/* ---- the log */

/* Count a rejection under its reason. Reasons are a short list, but come from the log, so the
 * table is bounded and others count only in the sum. */
static void count_rejection(diloco_rejections *r, const char *reason)
{
    const size_t room = sizeof r->reasons / sizeof r->reasons[0];
    size_t i = 0;
    while (i < r->n_reasons && strcmp(r->reasons[i].reason, reason) != 0)
        i++;
    r->n++;
    if (i == room) return;
    if (i == r->n_reasons)
        snprintf(r->reasons[r->n_reasons++].reason, sizeof r->reasons[i].reason, "%s", reason);
    r->reasons[i].n++;
}

/* Count the rejections of one entry and advance the strikes and bans by it. A commit whose bans
 * do not follow is void, as for every replica (bans.h). */
static void count_rejected(dl_status_book *b, const dl_entry *entry, uint64_t e)
{
    const bool counts = entry && entry->commit && !dl_bans_void_reason(b->bans, b->scratch, entry);
    for (size_t i = 0; counts && i < entry->n_rejected; i++) {
        const size_t who = replica_index(&b->watcher, entry->rejected[i].generation.replica);
        count_rejection(&b->run.rejected, entry->rejected[i].reason);
        if (who != SIZE_MAX)
            count_rejection(&b->memory->replicas[who].rejected, entry->rejected[i].reason);
    }
    if (b->bans) dl_bans_apply(b->bans, e, counts ? entry : NULL);
}

/* Entries below `counted` are in the manifest's numbers already; of them only the volume and the
 * names are taken. */
diloco_status dl_status_book_entry(void *book, const dl_entry *raw, const diloco_log_entry *entry)
{
    dl_status_book *b = book;
    if (entry->commit) take_volume(&b->run, entry);
    if (raw && entry->commit && b->members_have_rows)
        dl_logged_names_add_commit(&b->watcher.logged, raw);
    if (entry->entry < b->counted) return DILOCO_OK;
    if (entry->commit)
        b->run.commits++;
    else
        b->run.aborts++;
    count_rejected(b, raw, entry->entry);
    b->run.entries = entry->entry + 1;
    return DILOCO_OK;
}

/* Strikes and bans are those after the last entry that was counted. */
static void take_bans(dl_status_book *b)
{
    for (size_t i = 0; i < b->watcher.n; i++) {
        diloco_replica_status *one = &b->memory->replicas[i];
        one->strikes = dl_bans_strikes(b->bans, one->replica);
        one->banned_until = dl_bans_until(b->bans, one->replica);
    }
    b->run.n_banned = dl_bans_n(b->bans);
}

/* A snapshot after the log's end is not counted: no replica accepts it. */
static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    diloco_run_status *out = context;
    uint64_t entry;
    dl_generation generation;
    (void)len;
    if (dl_key_parse_snapshot(&entry, &generation, key) && entry > out->snapshot &&
        entry <= out->entries)
        out->snapshot = entry;
    return DILOCO_OK;
}

/* ---- the wait of the open entry */

/* The open entry's contributors and its roster, compared. */
typedef struct waiting {
    diloco_run_wait *out;    /* the wait that is filled in */
    dl_logged_names *logged; /* takes the names of the roster; NULL for logical clients */
    uint64_t as_of;          /* the entry that names its roster (P9) */
    char *there;             /* names of the replicas present, each with a zero byte after it */
    size_t len, room;
} waiting;

/* Keep each name once, whatever the number of its generations. Names beyond the room are left
 * out, so a store full of junk costs a bounded memory. */
static diloco_status found_contribution(void *context, const char *key, size_t len)
{
    waiting *w = context;
    uint64_t entry;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_contribution(&entry, &generation, key) || entry != w->out->entry)
        return DILOCO_OK;
    const size_t n = strlen(generation.replica) + 1;
    for (size_t at = 0; at < w->len; at += strlen(w->there + at) + 1)
        if (!strcmp(w->there + at, generation.replica)) return DILOCO_OK; /* another generation's */
    if (w->len + n > w->room) return DILOCO_OK;
    memcpy(w->there + w->len, generation.replica, n);
    w->len += n;
    w->out->n_there++;
    return DILOCO_OK;
}

static bool is_there(const waiting *w, const char *name)
{
    for (size_t at = 0; at < w->len; at += strlen(w->there + at) + 1)
        if (!strcmp(w->there + at, name)) return true;
    return false;
}

/* The entry L before the open one names its roster (P9.1). Every name that has not contributed
 * is missing. */
static diloco_status take_roster(void *context, const dl_entry *raw, const diloco_log_entry *entry)
{
    waiting *w = context;
    (void)raw;
    diloco_run_wait *out = w->out;
    if (entry->entry != w->as_of) return DILOCO_OK;
    out->n_awaited = entry->n_roster;
    for (size_t i = 0; i < entry->n_roster; i++) {
        if (w->logged) dl_logged_names_add(w->logged, entry->roster[i], entry->entry);
        if (is_there(w, entry->roster[i])) continue;
        if (out->n_missing < sizeof out->missing / sizeof out->missing[0])
            snprintf(out->missing[out->n_missing], sizeof out->missing[0], "%s", entry->roster[i]);
        out->n_missing++;
    }
    return DILOCO_OK;
}

/* Find which replicas the open entry waits for. Entries before L have no roster and wait for
 * run.replicas (P9.2). Asynchronous entries wait for one contribution (P20). */
static diloco_status see_open_entry(dl_reader *r, dl_status_book *b)
{
    static const size_t room = (size_t)1 << 20;
    diloco_run_status *out = &b->run;
    dl_schedule s;
    DL_TRY(dl_schedule_of(&s, &r->file.config, r->file.manifest.n_fragments));
    const uint64_t ahead = dl_schedule_ahead(&s);
    *out->wait = (diloco_run_wait){.entry = out->entries, .n_awaited = 1};
    if (dl_run_kind_of(&r->file.config)->one_by_one) return DILOCO_OK;
    out->wait->position = dl_schedule_capture(&s, out->entries);
    out->wait->n_awaited = (size_t)r->file.config.replicas;
    dl_key prefix;
    waiting w = {.out = out->wait,
                 .logged = b->members_have_rows ? &b->watcher.logged : NULL,
                 .there = malloc(room),
                 .room = room};
    if (!w.there) return dl_fail(DILOCO_ENOMEM, "out of memory for the list of contributors");
    dl_key_contributions(prefix, out->entries);
    diloco_status status =
        dl_store_list(r->store, prefix, NULL, found_contribution, &w, dl_reader_limit());
    w.as_of = out->entries - ahead;
    if (!status && out->entries >= ahead) status = dl_reader_walk(r, w.as_of, take_roster, &w);
    free(w.there);
    return status;
}

/* Judge liveness without waiting. A heartbeat that was seen to change is judged by when it
 * changed. One that was never seen to change may have been written just now: its own time counts
 * until we have watched for as long as a live replica needs. */
static void judge_by_age(dl_status_book *b)
{
    watcher *w = &b->watcher;
    const dl_time now = dl_clock_now();
    for (size_t i = 0; i < w->n; i++) {
        diloco_replica_status *r = &w->replicas[i];
        const bool young = dl_seconds(now - b->began) < b->run.alive_s;
        r->alive =
            !r->ended && r->seen &&
            (w->changed[i] ? dl_seconds(now - w->changed[i]) < b->run.alive_s
                           : young && fabs(dl_clock_wall() - w->written[i]) < b->run.alive_s);
    }
}

/* A first look is not a change: the content may be old. */
static void see_heartbeats(watcher *w, dl_store *store, dl_buf *text)
{
    for (size_t i = 0; i < w->n; i++) {
        const bool first = !w->known[i];
        if (first) read_generation(&w->replicas[i], store, text);
        w->known[i] = true;
        if (heartbeat_changed(w, i, store, text)) w->changed[i] = first ? 0 : dl_clock_now();
    }
}

/* Look again and again until every replica that was seen has changed its heartbeat, or the time
 * is over. */
static void watch_heartbeats(watcher *w, dl_store *store, dl_buf *text, double watch_s)
{
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(watch_s));
    size_t quiet = w->n;
    while (quiet > 0 && dl_clock_now() < until) {
        dl_clock_sleep(50 * DL_MILLISECOND);
        quiet = 0;
        for (size_t i = 0; i < w->n; i++) {
            diloco_replica_status *one = &w->replicas[i];
            if (one->alive || one->ended || !one->seen) continue;
            one->alive = heartbeat_changed(w, i, store, text);
            quiet += !one->alive;
        }
    }
}

/* Write the exchange topology of the run. With a codec of the caller's own, only the caller
 * knows the choice of "auto". */
static diloco_status name_topology(diloco_run_status *out, const dl_runfile *f)
{
    dl_topology_kind topology;
    const diloco_status status = dl_topology_choose(&topology, &f->config, &f->manifest);
    const char *name = status ? "auto" : dl_topology_names[topology];
    snprintf(out->exchange, sizeof out->exchange, "%s", name);
    return status == DILOCO_EREFUSED ? DILOCO_OK : status;
}

/* ---- the book */

/* Fill in what run.json says. After an error dl_status_book_destroy releases what was made. */
static diloco_status begin_book(dl_status_book *b, const dl_reader *r)
{
    const dl_runfile *f = &r->file;
    diloco_run_status *out = &b->run;
    const size_t room = dl_clients_max_members(&f->config);
    b->memory = calloc(1, sizeof *b->memory);
    if (!b->memory) return dl_fail(DILOCO_ENOMEM, "out of memory for the status of a run");
    out->memory = b->memory;
    b->watcher.replicas = b->memory->replicas;
    b->members_have_rows = dl_run_kind_of(&f->config)->processes;
    b->began = dl_clock_now();
    snprintf(out->run, sizeof out->run, "%s", f->id);
    snprintf(out->preset, sizeof out->preset, "%s", f->config.preset);
    snprintf(out->program, sizeof out->program, "%s", f->program);
    snprintf(out->model, sizeof out->model, "%s", f->config.model);
    dl_hash_to_hex(out->config_digest, f->config_digest);
    out->alive_s = fmax(ALIVE_S, 2 * f->config.heartbeat_s + 1);
    out->parameters = f->manifest.n_parameters;
    DL_TRY(dl_reader_total(&out->entries_total, r));
    DL_TRY(name_topology(out, f));
    DL_TRY(dl_bans_create(&b->bans, &f->config, room));
    return dl_bans_create(&b->scratch, &f->config, room);
}

diloco_status dl_status_book_create(dl_status_book **out, const dl_reader *r)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return dl_fail(DILOCO_ENOMEM, "out of memory for the status of a run");
    const diloco_status status = begin_book(*out, r);
    if (status) dl_status_book_destroy(*out);
    if (status) *out = NULL;
    return status;
}

void dl_status_book_destroy(dl_status_book *b)
{
    if (!b) return;
    dl_bans_destroy(b->bans);
    dl_bans_destroy(b->scratch);
    free(b->memory);
    free(b);
}

void dl_status_book_listen(dl_status_book *b, dl_status_generation_fn heard, void *user)
{
    b->watcher.heard = heard;
    b->watcher.user = user;
}

const diloco_run_status *dl_status_book_run(const dl_status_book *b)
{
    return &b->run;
}

/* Bring an empty book to the log's end. Entries before the newest snapshot are counted by its
 * manifest. Of these the newest commit is read, for the volume of an entry, if it is at most FEW
 * entries back. */
diloco_status dl_status_book_catch_up(dl_status_book *b, dl_reader *r)
{
    enum { FEW = 64 };
    dl_snapshot_log log = {.entry = 0};
    if (!dl_judge_may_reject(&r->file.config))
        DL_TRY(dl_snapshot_read_log(&log, r->store, &r->file, dl_reader_limit()));
    b->counted = b->run.entries = log.entry;
    b->run.commits = log.commits;
    b->run.aborts = log.entry - log.commits;
    /* The newest commit has at most log.aborts entries after it, hence the limit. */
    const bool near = log.commits > 0 && log.aborts < FEW && log.aborts < log.entry;
    const uint64_t back = near ? log.aborts + 1 : 0;
    return dl_reader_walk(r, log.entry - back, dl_status_book_entry, b);
}

/* The four listings come before the heartbeats, since gen/ says whose heartbeats to read. */
diloco_status dl_status_book_look(dl_status_book *b, dl_reader *r, double watch_s)
{
    diloco_run_status *out = &b->run;
    watcher *w = &b->watcher;
    dl_buf text;
    out->done = out->entries >= out->entries_total;
    DL_TRY(dl_store_list(r->store, "snap/", NULL, found_snapshot, out, dl_reader_limit()));
    out->wait = out->done ? NULL : &b->memory->wait;
    if (!out->done) DL_TRY(see_open_entry(r, b));
    w->n_begun = 0;
    DL_TRY(dl_store_list(r->store, "gen/", NULL, found_gen, w, dl_reader_limit()));
    out->n_left_out = left_out(w);
    DL_TRY(dl_store_list(r->store, "end/", NULL, found_end, w, dl_reader_limit()));
    take_bans(b);
    dl_buf_init(&text, 65536);
    see_heartbeats(w, r->store, &text);
    if (watch_s >= 0)
        watch_heartbeats(w, r->store, &text, watch_s);
    else
        judge_by_age(b);
    dl_buf_deinit(&text);
    for (size_t i = 0; i < w->n; i++)
        b->memory->in_order[i] = &b->memory->replicas[i];
    out->replicas = b->memory->in_order;
    out->n_replicas = w->n;
    return DILOCO_OK;
}

/* The status is handed over with its memory; `out` is zeroed after an error. */
diloco_status diloco_run_status_read_sized(diloco_run_status *out, size_t size, const char *url,
                                           double watch_s)
{
    dl_reader r;
    dl_status_book *b;
    diloco_run_status full = {.done = false};
    dl_sized_out(out, size, &full, sizeof full);
    DL_TRY(dl_reader_open(&r, url));
    diloco_status status = dl_status_book_create(&b, &r);
    if (!status) status = dl_status_book_catch_up(b, &r);
    if (!status) status = dl_status_book_look(b, &r, watch_s < 0 ? 0 : watch_s);
    dl_reader_close(&r);
    if (!status) {
        full = b->run;
        b->memory = NULL; /* the caller's now */
        dl_sized_out(out, size, &full, sizeof full);
    }
    dl_status_book_destroy(b);
    return status;
}

void diloco_run_status_free(diloco_run_status *status)
{
    free(status->memory);
    status->memory = NULL;
}
