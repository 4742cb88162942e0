/* driver.c - the loop:
 *
 *     ask = begin; while ask is not TRAIN or DONE: event = carry out(ask); ask = next(event)
 *
 * A store that does not answer is asked again, with growing pauses, for run.store_timeout. */
#include "run/driver.h"

#include "base/json.h"
#include "base/log.h"
#include "run/collect.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_time SLICE          = 100 * DL_MILLISECOND; /* longest deafness to an interrupt */
static const dl_time PAUSE_FIRST    = 50 * DL_MILLISECOND;
static const dl_time PAUSE_LONGEST  = 5 * DL_SECOND;
static const dl_time SNAPSHOT_LIMIT = 3600 * DL_SECOND;

/* A thread that waits for work or for the end. `lock` guards stop and busy. */
typedef struct helper {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    bool            started, stop, busy;
    dl_store       *store;
} helper;

struct dl_driver {
    dl_driver_args a;
    dl_machine    *machine;
    dl_ask         open; /* the ask that is being carried out, or TRAIN, or DONE */
    bool           over, adopted;
    uint64_t       position, train_until;

    helper      beat, snap;
    atomic_ullong beat_step, beat_position, beat_entry;
    dl_collector collector; /* of the snapshot thread */

    dl_event_context context; /* of the record's next lines */
    dl_time          waited, exchange_began, exchange_total;
    uint64_t         sent_before, received_before;
    double           loss;
    bool             counted;
    dl_time          unreachable_since, pause;
};

/* ---- helpers ---------------------------------------------------------------------------- */

static void condition_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

static diloco_status helper_start(helper *h, const char *url, void *(*body)(void *), void *context)
{
    DL_TRY(dl_store_open(&h->store, url, false));
    pthread_mutex_init(&h->lock, NULL);
    condition_init(&h->wake);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the caller's business */
    const int error = pthread_create(&h->thread, NULL, body, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return dl_fail(DILOCO_ENOMEM, "no thread for the run: %s", strerror(error));
    h->started = true;
    return DILOCO_OK;
}

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
    }
    dl_store_close(h->store);
}

/* Under the lock: sleep until woken or `until`. */
static void helper_wait(helper *h, dl_time until)
{
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    pthread_cond_timedwait(&h->wake, &h->lock, &t);
}

static void beat_once(dl_driver *d, dl_buf *text, uint64_t n, double steps_per_s)
{
    dl_json j;
    dl_buf_clear(text);
    dl_json_init(&j, text);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "replica", d->a.self.replica);
    dl_json_u64(&j, "generation", d->a.self.generation);
    dl_json_u64(&j, "beat", n); /* changes even when nothing else does (P11) */
    dl_json_u64(&j, "step", d->beat_step);
    dl_json_u64(&j, "position", d->beat_position);
    dl_json_u64(&j, "entry", d->beat_entry);
    dl_json_f64(&j, "steps_per_s", steps_per_s);
    dl_json_f64(&j, "time", dl_clock_wall());
    dl_json_end(&j);
    if (dl_json_done(&j)) return;
    dl_key key;
    dl_key_heartbeat(key, &d->a.self);
    const dl_time until = dl_time_after(dl_clock_now(), 10 * DL_SECOND);
    if (dl_store_put(d->beat.store, key, text->data, text->len, until))
        dl_log(DILOCO_LOG_DEBUG, "no heartbeat: %s", diloco_error_text());
}

static void *beat_body(void *context)
{
    dl_driver    *d      = context;
    const dl_time period = dl_time_from_seconds(d->a.run->config.heartbeat_s);
    dl_buf        text;
    uint64_t      last_step = d->beat_step;
    dl_time       last      = dl_clock_now();
    dl_buf_init(&text, 4096);
    pthread_mutex_lock(&d->beat.lock);
    for (uint64_t n = 0; !d->beat.stop; n++) {
        const dl_time now  = dl_clock_now();
        const double  rate = now > last ? (double)(d->beat_step - last_step) / dl_seconds(now - last) : 0;
        last               = now;
        last_step          = d->beat_step;
        pthread_mutex_unlock(&d->beat.lock);
        beat_once(d, &text, n, rate);
        pthread_mutex_lock(&d->beat.lock);
        if (!d->beat.stop) helper_wait(&d->beat, dl_time_after(now, period));
    }
    pthread_mutex_unlock(&d->beat.lock);
    dl_buf_deinit(&text);
    return NULL;
}

static void snapshot_now(dl_driver *d, dl_store *store)
{
    const dl_state *state = dl_exec_state(d->a.exec);
    if (dl_snapshot_and_collect(&d->collector, store, state, d->a.run, &d->a.self,
                                dl_time_after(dl_clock_now(), SNAPSHOT_LIMIT)))
        dl_log(DILOCO_LOG_WARN, "no snapshot at entry %llu: %s",
               (unsigned long long)state->control.entry, diloco_error_text());
}

/* Writes what `now` was when it was woken; the driver settles before `now` changes. */
static void *snap_body(void *context)
{
    dl_driver *d = context;
    pthread_mutex_lock(&d->snap.lock);
    while (!d->snap.stop || d->snap.busy) {
        if (!d->snap.busy) {
            pthread_cond_wait(&d->snap.wake, &d->snap.lock);
            continue;
        }
        pthread_mutex_unlock(&d->snap.lock);
        snapshot_now(d, d->snap.store);
        pthread_mutex_lock(&d->snap.lock);
        d->snap.busy = false;
        pthread_cond_broadcast(&d->snap.wake);
    }
    pthread_mutex_unlock(&d->snap.lock);
    return NULL;
}

void dl_driver_settle(dl_driver *d)
{
    if (!d->snap.started) return;
    pthread_mutex_lock(&d->snap.lock);
    while (d->snap.busy)
        pthread_cond_wait(&d->snap.wake, &d->snap.lock);
    pthread_mutex_unlock(&d->snap.lock);
}

/* ---- the record ------------------------------------------------------------------------- */

static void take_traffic(dl_driver *d)
{
    const dl_store_counters c = dl_store_counts(d->a.store);
    d->context.bytes_sent     = c.bytes_sent - d->sent_before;
    d->context.bytes_received = c.bytes_received - d->received_before;
    d->sent_before            = c.bytes_sent;
    d->received_before        = c.bytes_received;
}

static void note_commit(dl_driver *d, const dl_note *n)
{
    take_traffic(d);
    d->context.wait_s     = dl_seconds(d->waited);
    d->context.exchange_s = dl_seconds(dl_clock_now() - d->exchange_began);
    d->waited             = 0;
    d->loss               = n->entry->loss;
    dl_event_commit(d->a.record, &d->context, n->entry,
                    &dl_exec_state(d->a.exec)->control.roster, dl_exec_measured(d->a.exec),
                    n->counted);
    dl_log(DILOCO_LOG_INFO, "entry %llu: %zu members, loss %.4f, %.1f MB out, %.1f MB in, %.2f s",
           (unsigned long long)n->entry->entry, n->entry->n_members, n->entry->loss,
           1e-6 * (double)d->context.bytes_sent, 1e-6 * (double)d->context.bytes_received,
           d->context.exchange_s);
}

static void on_note(void *user, const dl_note *n)
{
    dl_driver     *d     = user;
    const uint64_t entry = dl_exec_state(d->a.exec)->control.entry;
    char           life[DL_LIFE_TEXT], text[512];
    switch (n->kind) {
    case DL_NOTE_COMMIT: note_commit(d, n); break;
    case DL_NOTE_ABORT: dl_event_abort(d->a.record, &d->context, n->entry); break;
    case DL_NOTE_DISPUTE:
        dl_event_dispute(d->a.record, &d->context, entry, n->claimed, n->computed,
                         &n->entry->committer);
        break;
    case DL_NOTE_REJECT:
        dl_event_reject(d->a.record, &d->context, entry, &n->life, n->text);
        dl_log(DILOCO_LOG_WARN, "entry %llu: a contribution of %s is refused: %s",
               (unsigned long long)entry, n->life.replica, diloco_error_text());
        break;
    case DL_NOTE_VOID:
        snprintf(text, sizeof text, "entry %llu is void: %s", (unsigned long long)entry, n->text);
        dl_event_warn(d->a.record, &d->context, "void", text);
        break;
    case DL_NOTE_SILENT:
        dl_life_text(life, &n->life);
        snprintf(text, sizeof text, "%s is silent: no new heartbeat in %g s", life,
                 d->a.run->config.patience_s);
        dl_event_warn(d->a.record, &d->context, "silent", text);
        break;
    case DL_NOTE_LATE:
        snprintf(text, sizeof text, "entry %llu did not count this replica: it goes on from the %s",
                 (unsigned long long)n->entry->entry,
                 strcmp(d->a.run->config.on_uncounted, "adopt") ? "own parameters" : "shared model");
        dl_event_warn(d->a.record, &d->context, "late", text);
        break;
    case DL_NOTE_DEADLINE:
        dl_log(DILOCO_LOG_DEBUG, "entry %llu: deadline in %.1f s", (unsigned long long)entry,
               n->seconds);
        break;
    }
}

/* ---- asks ------------------------------------------------------------------------------- */

static diloco_status wait_for_change(dl_driver *d, const dl_ask *ask)
{
    dl_key prefix;
    dl_key_contributions(prefix, ask->entry);
    const char *const prefixes[] = {prefix, "log/"};
    const dl_time     began      = dl_clock_now();
    const dl_time     slice      = dl_time_after(began, SLICE);
    diloco_status status = dl_store_wait(d->a.store, prefixes, 2, false, ask->until < slice ? ask->until : slice);
    d->waited += dl_clock_now() - began;
    return status == DILOCO_ETIMEDOUT ? DILOCO_OK : status;
}

static diloco_status end_run(dl_driver *d)
{
    dl_key  key;
    dl_buf  text;
    dl_json j;
    dl_key_end(key, &d->a.self);
    dl_buf_init(&text, 4096);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "replica", d->a.self.replica);
    dl_json_u64(&j, "generation", d->a.self.generation);
    dl_json_u64(&j, "entry", dl_exec_state(d->a.exec)->control.entry);
    dl_json_end(&j);
    diloco_status status = dl_json_done(&j);
    const dl_span span   = {text.data, text.len};
    const dl_time until  = dl_time_after(dl_clock_now(), 10 * DL_SECOND);
    if (!status) status = dl_store_create(d->a.store, key, &span, 1, NULL, until);
    dl_buf_deinit(&text);
    return status;
}

static diloco_status begin_snapshot(dl_driver *d, const dl_ask *ask)
{
    dl_driver_settle(d);
    if (ask->final) {
        snapshot_now(d, d->a.store);
        return DILOCO_OK;
    }
    pthread_mutex_lock(&d->snap.lock);
    d->snap.busy = true;
    pthread_cond_broadcast(&d->snap.wake);
    pthread_mutex_unlock(&d->snap.lock);
    return DILOCO_OK;
}

/* Those that need time or the trainer are done here, the rest by exec. */
static void carry_out(dl_driver *d, const dl_ask *ask, dl_event *event)
{
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(d->a.store_timeout_s));
    *event              = (dl_event){.status = DILOCO_OK};
    switch (ask->kind) {
    case DL_ASK_SAVE:
        if (d->a.save) event->status = d->a.save(d->a.save_user, ask->entry, ask->position);
        break;
    case DL_ASK_WAIT: event->status = wait_for_change(d, ask); break;
    case DL_ASK_SNAPSHOT: event->status = begin_snapshot(d, ask); break;
    case DL_ASK_CONTRIBUTE:
        dl_exec_tell(d->a.exec, d->a.work);
        /* fall through */
    default: dl_exec_do(d->a.exec, ask, event, until);
    }
    event->now = dl_clock_now();
}

static void after(dl_driver *d, const dl_ask *ask, const dl_event *event)
{
    if (event->status) return;
    if (ask->kind == DL_ASK_ADOPT && ask->to_local) d->adopted = true;
    if (ask->kind == DL_ASK_CONTRIBUTE && !event->taken)
        dl_event_contribution(d->a.record, &d->context, ask->entry, dl_exec_measured(d->a.exec));
}

/* True: carry the ask out again after a pause. */
static bool try_again(dl_driver *d, const dl_event *event)
{
    if (event->status != DILOCO_EUNREACHABLE) {
        d->unreachable_since = 0;
        return false;
    }
    const dl_time now = dl_clock_now();
    if (!d->unreachable_since) {
        d->unreachable_since = now;
        d->pause             = PAUSE_FIRST;
        dl_event_warn(d->a.record, &d->context, "unreachable", diloco_error_text());
    }
    if (dl_seconds(now - d->unreachable_since) > d->a.store_timeout_s) return false;
    for (dl_time left = d->pause; left > 0 && !atomic_load(d->a.interrupted); left -= SLICE)
        dl_clock_sleep(left < SLICE ? left : SLICE);
    d->pause = d->pause * 2 < PAUSE_LONGEST ? d->pause * 2 : PAUSE_LONGEST;
    return true;
}

/* The answer to REJOIN is to begin again from the state that it loaded. */
static dl_ask begin_machine(dl_driver *d, const dl_machine_start *start)
{
    const dl_state *state = dl_exec_state(d->a.exec);
    dl_machine_start full = *start;
    full.digest = state->now[0].digest;
    full.n_commits = state->now[0].n_commits;
    full.now = dl_clock_now();
    return dl_machine_begin(d->machine, &full);
}

static dl_ask answer(dl_driver *d, const dl_event *event)
{
    if (d->open.kind == DL_ASK_REJOIN && !event->status)
        return begin_machine(d, &(dl_machine_start){.resumed = false});
    return dl_machine_next(d->machine, event);
}

static diloco_status finish(dl_driver *d)
{
    d->over        = true;
    d->train_until = UINT64_MAX;
    d->position    = d->open.position;
    dl_driver_settle(d);
    if (end_run(d)) dl_log(DILOCO_LOG_WARN, "end/ is not written: %s", diloco_error_text());
    dl_record_flush(d->a.record, d->a.store, &d->a.self, false,
                    dl_time_after(dl_clock_now(), 10 * DL_SECOND));
    return DILOCO_OK;
}

static diloco_status to_training(dl_driver *d)
{
    d->train_until = d->open.position;
    dl_record_flush(d->a.record, d->a.store, &d->a.self, false,
                    dl_time_after(dl_clock_now(), 10 * DL_SECOND));
    return DILOCO_OK;
}

/* Until the machine wants training, or nothing more. */
static diloco_status drive(dl_driver *d)
{
    while (d->open.kind != DL_ASK_TRAIN) {
        if (d->open.kind == DL_ASK_DONE) return finish(d);
        if (d->open.kind == DL_ASK_FAIL) return d->open.status;
        if (atomic_load(d->a.interrupted))
            return dl_fail(DILOCO_EINTERRUPTED, "interrupted while waiting for entry %llu",
                           (unsigned long long)d->open.entry);
        dl_event event;
        carry_out(d, &d->open, &event);
        if (try_again(d, &event)) continue;
        after(d, &d->open, &event);
        d->open = answer(d, &event);
        d->beat_entry = dl_exec_state(d->a.exec)->control.entry;
    }
    return to_training(d);
}

/* The position training goes on from is what the machine says when it asks for training: the
 * due point before the entry, unless the local state was saved between. */
static diloco_status drive_and_place(dl_driver *d)
{
    d->exchange_began          = dl_clock_now();
    const diloco_status status = drive(d);
    d->exchange_total += dl_clock_now() - d->exchange_began;
    if (!status && !d->over) d->position = dl_machine_position(d->machine);
    return status;
}

diloco_status dl_driver_begin(dl_driver *d, const dl_machine_start *start)
{
    d->open = begin_machine(d, start);
    return drive_and_place(d);
}

diloco_status dl_driver_exchange(dl_driver *d)
{
    if (d->over) return DILOCO_OK;
    dl_driver_settle(d); /* from here on `now` and control may change */
    d->adopted      = false;
    d->context.step = d->a.work->step;
    if (d->open.kind == DL_ASK_TRAIN) {
        const dl_event event = {.now = dl_clock_now()};
        d->open              = dl_machine_next(d->machine, &event);
    }
    return drive_and_place(d);
}

/* ---- making and unmaking ---------------------------------------------------------------- */

static diloco_status make_machine(dl_driver *d)
{
    const dl_runfile *run   = d->a.run;
    const dl_state   *state = dl_exec_state(d->a.exec);

    const dl_machine_args args = {
        .config         = &run->config,
        .run            = run->id,
        .self           = d->a.self,
        .control        = &dl_exec_state(d->a.exec)->control,
        .outer          = state->outer,
        .weighting      = dl_weighting_find(run->config.weighting),
        .combiner       = dl_combiner_find(run->config.combiner),
        .max_members    = state->control.roster.cap,
        .snapshot_bytes = dl_state_bytes(&run->manifest, state->outer, 1),
        .entries        = (uint64_t)run->config.rounds,
        .interval       = (uint64_t)run->config.local_steps,
        .lr             = d->a.lr,
        .lr_user        = d->a.lr_user,
        .note           = on_note,
        .note_user      = d,
    };
    if (!args.weighting)
        return dl_fail(DILOCO_EINVAL, "there is no weighting \"%s\"", run->config.weighting);
    if (!args.combiner)
        return dl_fail(DILOCO_EINVAL, "there is no combiner \"%s\"", run->config.combiner);
    return dl_machine_create(&d->machine, &args);
}

diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args)
{
    *out         = NULL;
    dl_driver *d = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "no memory for the run");
    d->a               = *args;
    d->loss            = NAN;
    d->context.replica = d->a.self.replica;
    d->context.codec   = d->a.run->config.codec;

    diloco_status status = make_machine(d);
    if (!status) status = helper_start(&d->snap, d->a.url, snap_body, d);
    if (!status) status = helper_start(&d->beat, d->a.url, beat_body, d);
    if (status) {
        dl_driver_destroy(d);
        return status;
    }
    *out = d;
    return DILOCO_OK;
}

void dl_driver_destroy(dl_driver *d)
{
    if (!d) return;
    helper_stop(&d->beat);
    helper_stop(&d->snap);
    dl_machine_destroy(d->machine);
    free(d);
}

uint64_t dl_driver_train_until(const dl_driver *d) { return d->train_until; }
uint64_t dl_driver_position(const dl_driver *d) { return d->position; }
bool     dl_driver_done(const dl_driver *d) { return d->over; }
bool     dl_driver_adopted(const dl_driver *d) { return d->adopted; }

void dl_driver_tell_step(dl_driver *d, uint64_t step, uint64_t position)
{
    d->beat_step     = step;
    d->beat_position = position;
}

dl_driver_facts dl_driver_facts_now(const dl_driver *d)
{
    const dl_store_counters c = dl_store_counts(d->a.store);
    return (dl_driver_facts){.loss           = d->loss,
                             .bytes_sent     = c.bytes_sent,
                             .bytes_received = c.bytes_received,
                             .exchange_s     = dl_seconds(d->exchange_total)};
}
