/* run_status.c - diloco_run_status_read: the participants (participants.h), and the progress of the
 * log. follower.c keeps the same status up to date (run_status.h). dl_status_book_entry takes the
 * log, dl_status_book_look all the rest. */
#include "inspect/run_status.h"
#include "base/json.h"
#include "base/run_kind.h"
#include "base/sized.h"
#include "inspect/participants.h"
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

#define ALIVE_S 11.0 /* at least: two of the default heartbeats, and one second */

/* The memory that a diloco_run_status points into. The caller of diloco_run_status_read owns it
 * then; `in_order` is what its `replicas` points to. */
typedef struct memory {
    diloco_run_wait wait; /* of the open entry */
    diloco_replica_status replicas[DL_PARTICIPANTS_MAX], *in_order[DL_PARTICIPANTS_MAX];
} memory;

/* A status that grows with the log. One thread at a time. */
struct dl_status_book {
    diloco_run_status run; /* the public form */
    memory *memory;        /* that run points into */
    dl_participants participants;
    dl_bans *bans, *scratch; /* NULL where the run has none */
    uint64_t counted;        /* entries that a snapshot's manifest has counted */
    bool members_have_rows;  /* members are replicas, not logical clients */
};

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
        const size_t who =
            dl_participants_row(&b->participants, entry->rejected[i].generation.replica);
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
        dl_logged_names_add_commit(&b->participants.logged, raw);
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
    for (size_t i = 0; i < b->participants.n; i++) {
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

/* Find which members the open entry waits for. Entries before L have no roster and wait for
 * run.replicas (P9.2), or for as many clients as an entry samples. Asynchronous entries wait for
 * one contribution (P20). */
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
    out->wait->n_awaited = dl_clients_per_round(&r->file.config);
    dl_key prefix;
    waiting w = {.out = out->wait,
                 .logged = b->members_have_rows ? &b->participants.logged : NULL,
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
    b->members_have_rows = dl_run_kind_of(&f->config)->processes;
    snprintf(out->run, sizeof out->run, "%s", f->id);
    snprintf(out->preset, sizeof out->preset, "%s", f->config.preset);
    snprintf(out->program, sizeof out->program, "%s", f->program);
    snprintf(out->model, sizeof out->model, "%s", f->config.model);
    dl_hash_to_hex(out->config_digest, f->config_digest);
    out->alive_s = fmax(ALIVE_S, 2 * f->config.heartbeat_s + 1);
    out->parameters = f->manifest.n_parameters;
    DL_TRY(dl_participants_create(&b->participants, b->memory->replicas, r));
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
    dl_participants_destroy(&b->participants);
    dl_bans_destroy(b->bans);
    dl_bans_destroy(b->scratch);
    free(b->memory);
    free(b);
}

void dl_status_book_listen(dl_status_book *b, dl_participants_heard_fn heard, void *user)
{
    b->participants.heard = heard;
    b->participants.user = user;
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

diloco_status dl_status_book_look(dl_status_book *b, dl_reader *r, double watch_s)
{
    diloco_run_status *out = &b->run;
    dl_participants *p = &b->participants;
    out->done = out->entries >= out->entries_total;
    DL_TRY(dl_store_list(r->store, "snap/", NULL, found_snapshot, out, dl_reader_limit()));
    out->wait = out->done ? NULL : &b->memory->wait;
    if (!out->done) DL_TRY(see_open_entry(r, b));
    DL_TRY(dl_participants_look(p));
    out->n_left_out = dl_participants_left_out(p);
    take_bans(b);
    if (watch_s >= 0)
        dl_participants_watch(p, watch_s);
    else
        dl_participants_judge_by_age(p, out->alive_s);
    for (size_t i = 0; i < p->n; i++)
        b->memory->in_order[i] = &b->memory->replicas[i];
    out->replicas = b->memory->in_order;
    out->n_replicas = p->n;
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
