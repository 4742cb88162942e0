/* background.c - see background.h.
 *
 *     snapshot thread     idle --dl_background_snapshot--> writing --> reading back --> idle
 *     collecting thread   idle --a snapshot was read back--> collecting --> idle
 *
 * `lock` guards stop and busy of its helper, and `writing` or `due`. The snapshot thread reads the
 * state only while writing. The replica's thread changes it only while not writing
 * (dl_background_settle). A collection may last longer than the interval of snapshots: other
 * writers may have created any number of names that it reads or deletes. It continues then, and the
 * next one begins from the newest snapshot that was read back meanwhile. */
#include "run/background.h"

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "log/keyring.h"
#include "log/signed_beat.h"
#include "run/entry_pace.h"
#include "state/collection.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATION_OBJECT_MAX = 16384 }; /* bytes of an object under gen/ */
static const dl_time SNAPSHOT_LIMIT = 3600 * DL_SECOND, BEAT_LIMIT = 10 * DL_SECOND;
static const dl_time LAST_COLLECTION_LIMIT = 600 * DL_SECOND;

/* A snapshot that was written, for its collection. */
typedef struct snapshot {
    dl_collection what;
    dl_roster counted; /* owned */
} snapshot;

/* A thread that waits for work or for the end. */
typedef struct helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stop, busy;
    dl_store *store;
    atomic_ullong sent, received; /* copies of the store's counters, for other threads */
} helper;

struct dl_background {
    dl_background_args a;
    helper beat, snap, sweep, meet;
    atomic_ullong step, position, entry;
    atomic_bool waiting;
    atomic_uint later;    /* a generation after ours; 0: none was seen */
    dl_store_speed speed; /* from here on: guarded by beat.lock */
    double deadline_s;
    uint64_t n_beats;
    double longest_s;
    bool writing;           /* guarded by snap.lock */
    snapshot written;       /* of the snapshot thread */
    snapshot due;           /* guarded by sweep.lock; used if sweep.busy */
    snapshot collected;     /* of the collecting thread, */
    dl_collector collector; /* likewise */
};

/* ---- helpers ---------------------------------------------------------------------------- */

/* Opens the helper's own store handle and starts its thread. If it fails, helper_stop closes what
 * exists. */
static diloco_status helper_start(helper *h, dl_background *b, void *(*body)(void *))
{
    DL_TRY(dl_store_open_at(&h->store, b->a.address, false));
    dl_store_count_into(h->store, b->a.tally);
    pthread_mutex_init(&h->lock, NULL);
    dl_cond_init(&h->wake);
    const int error = dl_thread_start(&h->thread, body, b);
    if (error) return dl_fail(DILOCO_ENOMEM, "no thread for the run: %s", strerror(error));
    h->started = true;
    return DILOCO_OK;
}

/* Ends the thread after its current work, and closes its handle. A helper that was never started is
 * fine. */
static void helper_stop(helper *h)
{
    if (h->started) {
        pthread_mutex_lock(&h->lock);
        h->stop = true;
        pthread_cond_broadcast(&h->wake);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
        pthread_cond_destroy(&h->wake);
        pthread_mutex_destroy(&h->lock);
        h->started = false;
    }
    dl_store_close(h->store);
    h->store = NULL;
}

static void helper_count(helper *h)
{
    const dl_store_counters c = dl_store_counts(h->store);
    atomic_store(&h->sent, c.bytes_sent);
    atomic_store(&h->received, c.bytes_received);
}

/* Sleeps until woken or `until`. Call it with the lock held. */
static void helper_wait(helper *h, dl_time until)
{
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    pthread_cond_timedwait(&h->wake, &h->lock, &t);
}

/* ---- heartbeats ------------------------------------------------------------------------- */

/* Measured by the thread of heartbeats: between two of them, and over a window. */
typedef struct beat_numbers {
    double steps_per_s;
    double entry_s; /* entry_pace.h */
} beat_numbers;

/* Writes the text of a heartbeat and its key. The values that two threads share are copied under
 * the lock. `beat` and `entry` serve other replicas (P11, P25), and peers add their address. The
 * other members inform people. */
static diloco_status write_beat(dl_buf *text, dl_key key, dl_background *b, uint64_t n,
                                const beat_numbers *numbers)
{
    dl_heartbeat_writer w;
    dl_json *j = &w.json;
    pthread_mutex_lock(&b->beat.lock);
    const dl_store_speed speed = b->speed;
    const double deadline_s = b->deadline_s;
    const dl_generation self = b->a.self;
    pthread_mutex_unlock(&b->beat.lock);
    dl_key_heartbeat(key, &self);
    dl_heartbeat_begin(&w, text, &dl_heartbeat_alive, b->a.signer, b->a.run->id, &self);
    dl_json_u64(j, "beat", n); /* changes even when nothing else does (P11) */
    dl_json_u64(j, "step", b->step);
    dl_json_u64(j, "position", b->position);
    dl_json_u64(j, "entry", b->entry);
    dl_json_f64(j, "steps_per_s", numbers->steps_per_s);
    dl_json_f64(j, "entry_s", numbers->entry_s);
    dl_json_f64(j, "time", dl_clock_wall());
    dl_json_f64(j, "up_bps", speed.up_bps);
    dl_json_f64(j, "down_bps", speed.down_bps);
    dl_json_f64(j, "request_s", speed.request_s);
    dl_json_f64(j, "deadline_s", deadline_s);
    if (b->a.peers) dl_peers_report(b->a.peers, j);
    return dl_heartbeat_end(&w);
}

/* A failed heartbeat is not repeated: the next one follows soon and has newer contents. The
 * duration of every attempt is measured, also of those that failed. */
static void beat_once(dl_background *b, dl_buf *text, uint64_t n, const beat_numbers *numbers)
{
    dl_key key;
    const dl_time began = dl_clock_now();
    diloco_status status = write_beat(text, key, b, n, numbers);
    if (!status)
        status = dl_store_put(b->beat.store, key, text->data, text->len,
                              dl_time_after(dl_clock_now(), BEAT_LIMIT));
    if (status) dl_log(DILOCO_LOG_DEBUG, "no heartbeat: %s", diloco_error_text());
    const double took = dl_seconds(dl_clock_now() - began);
    pthread_mutex_lock(&b->beat.lock);
    b->n_beats += !status;
    if (took > b->longest_s) b->longest_s = took;
    pthread_mutex_unlock(&b->beat.lock);
    helper_count(&b->beat);
}

/* Another process under our name may upload exactly our bytes. Then c/ never shows it (P15), and
 * each waits for the other replicas. So a replica that waits looks in gen/. In a run with keys the
 * signature shows whose name it is; where generations are random, the contribution does (P26). */
static void look_for_later(dl_background *b)
{
    dl_key key;
    dl_buf text;
    dl_generation next = b->a.self;
    const dl_config *c = &b->a.run->config;
    if (b->a.run->identity.policy != DL_TRUSTED || c->single_committer[0]) return;
    if (!b->waiting || b->later || next.number == DL_GENERATION_MAX) return;
    next.number++;
    dl_key_gen(key, &next);
    dl_buf_init(&text, GENERATION_OBJECT_MAX);
    const diloco_status status =
        dl_store_get(b->beat.store, &text, key, dl_time_after(dl_clock_now(), BEAT_LIMIT));
    if (!status) b->later = next.number;
    dl_buf_deinit(&text);
}

diloco_status dl_background_fenced(const dl_background *b)
{
    const unsigned later = b->later;
    return later ? dl_fail(DILOCO_EFENCED,
                           "replica %s has a newer generation (%u after %u): this process stops",
                           b->a.self.replica, later, b->a.self.number)
                 : DILOCO_OK;
}

/* Steps per second are measured between two heartbeats. The lock is held only to look at `stop` and
 * to sleep, so a slow store never delays the setters. */
static void *beat_body(void *context)
{
    dl_background *b = context;
    const dl_time period = dl_time_from_seconds(b->a.run->config.heartbeat_s);
    uint64_t last_step = b->step;
    dl_entry_pace pace = {.n = 0};
    dl_time last = dl_clock_now();
    unsigned char bytes[4096]; /* the most that readers take */
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    pthread_mutex_lock(&b->beat.lock);
    bool last_word = false; /* the last heartbeat says where this generation ended */
    for (uint64_t n = 0; !last_word; n++) {
        last_word = b->beat.stop;
        pthread_mutex_unlock(&b->beat.lock);
        const dl_time now = dl_clock_now();
        const uint64_t step = b->step;
        const double gone = dl_seconds(now - last);
        dl_entry_pace_note(&pace, b->entry, now);
        const beat_numbers numbers = {
            .steps_per_s = gone > 0 ? (double)(step - last_step) / gone : 0,
            .entry_s = dl_entry_pace_seconds(&pace, now),
        };
        beat_once(b, &text, n, &numbers);
        if (!last_word) look_for_later(b);
        last = now;
        last_step = step;
        pthread_mutex_lock(&b->beat.lock);
        if (!b->beat.stop) helper_wait(&b->beat, dl_time_after(now, period));
    }
    pthread_mutex_unlock(&b->beat.lock);
    return NULL;
}

void dl_background_set_step(dl_background *b, uint64_t step, uint64_t position)
{
    b->step = step;
    b->position = position;
}

void dl_background_set_waiting(dl_background *b, bool waiting)
{
    b->waiting = waiting;
}

void dl_background_set_entry(dl_background *b, uint64_t entry)
{
    b->entry = entry;
}

void dl_background_set_generation(dl_background *b, uint32_t generation)
{
    pthread_mutex_lock(&b->beat.lock);
    b->a.self.number = generation;
    pthread_mutex_unlock(&b->beat.lock);
}

void dl_background_set_link(dl_background *b, const dl_store_speed *speed, double deadline_s)
{
    pthread_mutex_lock(&b->beat.lock);
    b->speed = *speed;
    b->deadline_s = deadline_s;
    pthread_mutex_unlock(&b->beat.lock);
}

void dl_background_beats(dl_background *b, uint64_t *n, double *longest_s)
{
    pthread_mutex_lock(&b->beat.lock);
    *n = b->n_beats;
    *longest_s = b->longest_s;
    pthread_mutex_unlock(&b->beat.lock);
}

/* ---- new replicas ------------------------------------------------------------------------- */

/* Looks for invited replicas once per heartbeat. Without a keyring it ends, and new replicas are
 * admitted when the exchange next lists contributions. */
static void *meet_body(void *context)
{
    dl_background *b = context;
    const dl_time period = dl_time_from_seconds(b->a.run->config.heartbeat_s);
    dl_keyring *ring;
    const diloco_status status = dl_keyring_create(&ring, b->meet.store, b->a.run, b->a.signer);
    if (status)
        dl_log(DILOCO_LOG_WARN, "replicas that join are admitted late: %s", diloco_error_text());
    pthread_mutex_lock(&b->meet.lock);
    while (!b->meet.stop && ring) {
        pthread_mutex_unlock(&b->meet.lock);
        if (dl_keyring_meet(ring, dl_time_after(dl_clock_now(), BEAT_LIMIT)))
            dl_log(DILOCO_LOG_DEBUG, "looking for replicas that join: %s", diloco_error_text());
        helper_count(&b->meet);
        pthread_mutex_lock(&b->meet.lock);
        if (!b->meet.stop) helper_wait(&b->meet, dl_time_after(dl_clock_now(), period));
    }
    pthread_mutex_unlock(&b->meet.lock);
    dl_keyring_destroy(ring);
    return NULL;
}

/* ---- snapshots -------------------------------------------------------------------------- */

/* Writes a snapshot, and describes it for its collection, which does not need the state. */
static diloco_status write_snapshot(snapshot *out, dl_background *b, dl_store *store)
{
    const dl_state *state = b->a.state;
    pthread_mutex_lock(&b->beat.lock);
    const dl_generation self = b->a.self;
    pthread_mutex_unlock(&b->beat.lock);
    out->what = (dl_collection){.entry = state->control.entry, .generation = self};
    const diloco_status status =
        dl_snapshot_write(&out->what.confirmed, store, state, b->a.run, &self, b->a.signer,
                          dl_time_after(dl_clock_now(), SNAPSHOT_LIMIT));
    dl_state_put_out_all(state);
    dl_roster_copy(&out->counted, &state->control.roster);
    return status;
}

/* Returns whether the snapshot was written and reads back. A failure is only a warning, since
 * another snapshot follows. */
static bool is_read_back(const snapshot *s, const dl_background *b, dl_store *store,
                         diloco_status written)
{
    diloco_status status = written;
    if (!status)
        status = dl_collection_read_back(store, b->a.run, &s->what,
                                         dl_time_after(dl_clock_now(), SNAPSHOT_LIMIT));
    if (status)
        dl_log(DILOCO_LOG_WARN, "no snapshot at entry %llu: %s", (unsigned long long)s->what.entry,
               diloco_error_text());
    return !status;
}

static void copy_snapshot(snapshot *to, const snapshot *from)
{
    to->what = from->what;
    dl_roster_copy(&to->counted, &from->counted);
    to->what.counted = &to->counted;
}

/* A collection in progress continues. So an older snapshot that waits for its collection is
 * replaced. */
static void hand_over(dl_background *b)
{
    pthread_mutex_lock(&b->sweep.lock);
    copy_snapshot(&b->due, &b->written);
    b->sweep.busy = true;
    atomic_store(&b->collector.newer, true);
    pthread_cond_broadcast(&b->sweep.wake);
    pthread_mutex_unlock(&b->sweep.lock);
}

static void *sweep_body(void *context)
{
    dl_background *b = context;
    pthread_mutex_lock(&b->sweep.lock);
    while (!b->sweep.stop) {
        if (!b->sweep.busy) {
            pthread_cond_wait(&b->sweep.wake, &b->sweep.lock);
            continue;
        }
        copy_snapshot(&b->collected, &b->due);
        b->sweep.busy = false;
        atomic_store(&b->collector.newer, false);
        pthread_mutex_unlock(&b->sweep.lock);
        dl_collect(&b->collector, b->sweep.store, b->a.run, &b->collected.what, DL_NEVER);
        helper_count(&b->sweep);
        pthread_mutex_lock(&b->sweep.lock);
    }
    pthread_mutex_unlock(&b->sweep.lock);
    return NULL;
}

/* Waits until a snapshot in progress is written and read back. */
static void wait_until_idle(dl_background *b)
{
    pthread_mutex_lock(&b->snap.lock);
    while (b->snap.busy)
        pthread_cond_wait(&b->snap.wake, &b->snap.lock);
    pthread_mutex_unlock(&b->snap.lock);
}

/* Ends a collection in progress. No other one follows it on that thread. */
static void stop_collecting(dl_background *b)
{
    if (b->sweep.store) dl_store_abort(b->sweep.store);
    helper_stop(&b->sweep);
    dl_collector_deinit(&b->collector);
}

/* The snapshot and the collector are used by one thread at a time, so both others end first. */
void dl_background_snapshot_here(dl_background *b, dl_store *store)
{
    wait_until_idle(b);
    stop_collecting(b);
    const diloco_status written = write_snapshot(&b->written, b, store);
    if (!is_read_back(&b->written, b, store, written)) return;
    copy_snapshot(&b->collected, &b->written);
    atomic_store(&b->collector.newer, false);
    dl_collect(&b->collector, store, b->a.run, &b->collected.what,
               dl_time_after(dl_clock_now(), LAST_COLLECTION_LIMIT));
    dl_collector_deinit(&b->collector);
}

static void set_written(dl_background *b)
{
    pthread_mutex_lock(&b->snap.lock);
    b->writing = false;
    pthread_cond_broadcast(&b->snap.wake);
    pthread_mutex_unlock(&b->snap.lock);
}

/* A snapshot that was begun is finished even after `stop`. */
static void *snap_body(void *context)
{
    dl_background *b = context;
    pthread_mutex_lock(&b->snap.lock);
    while (!b->snap.stop || b->snap.busy) {
        if (!b->snap.busy) {
            pthread_cond_wait(&b->snap.wake, &b->snap.lock);
            continue;
        }
        pthread_mutex_unlock(&b->snap.lock);
        const diloco_status written = write_snapshot(&b->written, b, b->snap.store);
        set_written(b);
        if (is_read_back(&b->written, b, b->snap.store, written) && b->sweep.started) hand_over(b);
        helper_count(&b->snap);
        pthread_mutex_lock(&b->snap.lock);
        b->snap.busy = false;
        pthread_cond_broadcast(&b->snap.wake);
    }
    pthread_mutex_unlock(&b->snap.lock);
    return NULL;
}

void dl_background_snapshot(dl_background *b)
{
    wait_until_idle(b);
    pthread_mutex_lock(&b->snap.lock);
    b->snap.busy = b->writing = true;
    pthread_cond_broadcast(&b->snap.wake);
    pthread_mutex_unlock(&b->snap.lock);
}

void dl_background_settle(dl_background *b)
{
    pthread_mutex_lock(&b->snap.lock);
    while (b->writing)
        pthread_cond_wait(&b->snap.wake, &b->snap.lock);
    pthread_mutex_unlock(&b->snap.lock);
}

void dl_background_traffic(const dl_background *b, uint64_t *sent, uint64_t *received)
{
    *sent = b->beat.sent + b->snap.sent + b->sweep.sent + b->meet.sent;
    *received = b->beat.received + b->snap.received + b->sweep.received + b->meet.received;
}

/* ---- create and destroy ----------------------------------------------------------------- */

static diloco_status make_roster(dl_roster *r, size_t cap)
{
    *r = (dl_roster){.names = calloc(cap + 1, sizeof *r->names),
                     .misses = calloc(cap + 1, sizeof *r->misses),
                     .cap = cap};
    return r->names && r->misses ? DILOCO_OK
                                 : dl_fail(DILOCO_ENOMEM, "out of memory for snapshots");
}

static void free_roster(dl_roster *r)
{
    free(r->names);
    free(r->misses);
}

diloco_status dl_background_create(dl_background **out, const dl_background_args *args)
{
    *out = NULL;
    dl_background *b = calloc(1, sizeof *b);
    if (!b) return dl_fail(DILOCO_ENOMEM, "out of memory for heartbeats and snapshots");
    b->a = *args;
    const size_t cap = args->state->control.roster.cap;
    diloco_status status = make_roster(&b->written.counted, cap);
    if (!status) status = make_roster(&b->due.counted, cap);
    if (!status) status = make_roster(&b->collected.counted, cap);
    if (!status) status = helper_start(&b->sweep, b, sweep_body);
    if (!status) status = helper_start(&b->snap, b, snap_body);
    if (!status) status = helper_start(&b->beat, b, beat_body);
    if (!status && dl_members_admits(args->run, args->signer))
        status = helper_start(&b->meet, b, meet_body);
    if (status) {
        dl_background_destroy(b);
        return status;
    }
    *out = b;
    return DILOCO_OK;
}

void dl_background_destroy(dl_background *b)
{
    if (!b) return;
    helper_stop(&b->meet);
    helper_stop(&b->snap); /* first, so that heartbeats continue while a long snapshot is written */
    stop_collecting(b);
    helper_stop(&b->beat);
    free_roster(&b->written.counted);
    free_roster(&b->due.counted);
    free_roster(&b->collected.counted);
    free(b);
}
