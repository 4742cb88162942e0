/* driver.c - the trainer's half of a driver, which carries out the stops of the pace:
 *
 *     CAPTURE   save, and capture the fragment's movement, for the exchange to upload
 *     ADOPT  wait until the log has the entry; copy theta into the local tensors
 *     JUMP   copy theta of fragments that moved without us, and continue from the last due point
 *            (P13) */
#include "run/driver_parts.h"

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "log/signed_beat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* longest delay before an interrupt takes effect */
static const dl_time SLICE = 100 * DL_MILLISECOND;
static const dl_time SMALL_LIMIT = 10 * DL_SECOND; /* for objects that training need not wait for */
static const dl_time SETTLE_LIMIT =
    10 * DL_SECOND; /* that a clean stop waits for uploads (P16.4) */

/* ---- waiting ---------------------------------------------------------------------------- */

/* Waits for one slice at most. Call it with the lock held. */
static void wait_a_little(dl_driver *d)
{
    const dl_time until = dl_time_after(dl_clock_now(), SLICE);
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    pthread_cond_timedwait(&d->thread.moved_on, &d->thread.lock, &t);
}

/* Call it without the lock, on the trainer's thread. Of waits that are equally long only the
 * first is reported. */
void dl_driver_report_wait(dl_driver *d, uint64_t entry)
{
    const dl_wait_hook *hook = &d->a.on_wait;
    if (!hook->fn || !d->trainer.wait_began || d->a.work) return;
    const double waited_s = dl_seconds(dl_clock_now() - d->trainer.wait_began);
    if (waited_s < hook->after_s || waited_s < 2 * d->trainer.reported_s) return;
    d->trainer.reported_s = waited_s;
    hook->fn(hook->user, entry, waited_s);
}

/* The exchange has its own thread, so the trainer only waits for it. An interrupt is noticed within
 * one slice, and needs no call to the exchange. If the exchange has failed, its error is returned
 * with the text that its thread has stored. */
static diloco_status wait_beside(dl_driver *d, const dl_stop *stop)
{
    diloco_status status = DILOCO_OK;
    pthread_mutex_lock(&d->thread.lock);
    while (!status && !dl_exchange_is_there(d, stop)) {
        wait_a_little(d);
        const uint64_t entry = d->pace.applied;
        pthread_mutex_unlock(&d->thread.lock);
        dl_driver_report_wait(d, entry);
        pthread_mutex_lock(&d->thread.lock);
        if (atomic_exchange(d->a.interrupted, false))
            status = dl_fail(DILOCO_EINTERRUPTED, "interrupted while waiting for the log");
    }
    if (!status && d->outcome.failed) status = dl_fail(d->outcome.failed, "%s", d->outcome.failure);
    pthread_mutex_unlock(&d->thread.lock);
    return status;
}

/* Waits until `stop` may be done or, if it is NULL, until the log has ended. */
static diloco_status wait_for(dl_driver *d, const dl_stop *stop)
{
    const dl_time began = d->trainer.wait_began = dl_clock_now();
    const diloco_status status =
        d->thread.beside ? wait_beside(d, stop) : dl_exchange_until(d, stop);
    d->trainer.wait_began = 0;
    d->trainer.waited_s += dl_seconds(dl_clock_now() - began);
    return status;
}

/* ---- stops ------------------------------------------------------------------------------ */

/* Writes the record's line for an adoption. A run without overlap has no such lines. */
static void note_adoption(dl_driver *d, const dl_adopted *a, double waited_s, uint64_t proposed)
{
    const dl_schedule *s = &d->pace.schedule;
    static const char *const takes[] = {
        [DL_ADOPT_NOTHING] = "nothing", [DL_ADOPT_MIX] = "mix", [DL_ADOPT_THETA] = "theta"};
    const dl_adopt_facts facts = {.entry = a->capture.entry,
                                  .taken_at = a->capture.position,
                                  .position = d->pace.position,
                                  .fragment = a->capture.fragment,
                                  .takes = takes[a->how],
                                  .overlap = s->delay - s->early,
                                  .proposed = proposed,
                                  .wait_s = waited_s};
    if (s->delay) dl_event_adopt(d->a.record, d->a.self.replica, &facts);
}

/* Adopts the applied entry of a contribution, if the pace still has that stop. `waited_s` is the
 * time that training waited for it. A new comparison of losses begins only if the local tensors
 * have changed (divergence.h). */
static void adopt(dl_driver *d, uint64_t entry, double waited_s)
{
    dl_adopted adopted;
    dl_driver_lock(d);
    const bool done = dl_stop_adopt(&d->stops, entry, &adopted);
    const uint64_t proposed = dl_upload_latency_overlap(&d->latency);
    if (done && adopted.how != DL_ADOPT_NOTHING)
        dl_divergence_adopt(&d->trainer.divergence, &d->newest);
    atomic_store(&d->thread.was_taken, true); /* the next capture may be uploaded */
    if (d->thread.beside) pthread_cond_broadcast(&d->thread.moved_on);
    dl_driver_unlock(d);
    if (done) note_adoption(d, &adopted, waited_s, proposed);
}

static void jump(dl_driver *d)
{
    dl_driver_lock(d);
    dl_stop_jump(&d->stops);
    dl_driver_unlock(d);
}

/* Waits for the log's last entry, ends the exchange, and writes end/. A missing end/ costs the
 * others only a wait of run.patience (P11), so that failure is a warning. */
static diloco_status finish(dl_driver *d)
{
    DL_TRY(wait_for(d, NULL));
    dl_exchange_stop(d);
    d->trainer.over = true;
    if (dl_driver_leave(d)) dl_log(DILOCO_LOG_WARN, "end/ is not written: %s", diloco_error_text());
    return DILOCO_OK;
}

/* Does what is due at the present position, stop by stop, until a step is due or the run is over.
 * Each turn asks the pace again, because a wait may have changed what is due. For example, an entry
 * that closed without this replica turns a CAPTURE into a JUMP (P13). The error of the exchange is
 * checked first: its state must not be adopted any more. */
static diloco_status live(dl_driver *d)
{
    double before;
    while (!d->trainer.over) {
        dl_driver_lock(d);
        const dl_stop stop = dl_pace_next(&d->pace);
        const bool done = dl_pace_done(&d->pace), ready = dl_pace_ready(&d->pace, stop);
        const diloco_status failed = d->outcome.failed;
        dl_driver_unlock(d);
        if (failed) return dl_fail(failed, "%s", d->outcome.failure);
        if (done) return finish(d);
        /* The lock is not held here. A stop that has become invalid meanwhile does nothing
         * (due_points.h). */
        switch (stop.kind) {
        case DL_STOP_NONE:
            return DILOCO_OK;
        case DL_STOP_CAPTURE:
            /* P4.3: the fragment's previous entry may still be open. */
            if (!ready) DL_TRY(wait_for(d, &stop));
            DL_TRY(dl_driver_save_and_capture(d, stop.entry));
            break;
        case DL_STOP_ADOPT:
            before = d->trainer.waited_s;
            DL_TRY(wait_for(d, &stop));
            adopt(d, stop.entry, d->trainer.waited_s - before);
            break;
        case DL_STOP_WAIT:
            DL_TRY(wait_for(d, &stop));
            break;
        case DL_STOP_JUMP:
            jump(d);
            break;
        }
    }
    return DILOCO_OK;
}

/* Several fragments may be due at one position, hence the loop. It ends at the first stop that
 * would wait. */
diloco_status dl_driver_capture(dl_driver *d)
{
    for (;;) {
        dl_driver_lock(d);
        const dl_stop stop = dl_pace_next(&d->pace);
        const bool ready = dl_pace_ready(&d->pace, stop);
        dl_driver_unlock(d);
        if (d->trainer.over || stop.kind != DL_STOP_CAPTURE || !ready) return DILOCO_OK;
        DL_TRY(dl_driver_save_and_capture(d, stop.entry));
    }
}

/* The measurement of steps is paused meanwhile, so waiting does not count as training time. */
diloco_status dl_driver_stop(dl_driver *d)
{
    dl_upload_latency_pause(&d->latency, dl_clock_now());
    const diloco_status status = live(d);
    dl_upload_latency_train(&d->latency, dl_clock_now());
    return status;
}

/* ---- begin and save --------------------------------------------------------------------- */

/* The weight of a resume is the one that was saved with it: eager's own share must continue with it
 * (P21.2). The own thread starts only once the log was read to its end, so that reading needs no
 * lock. */
diloco_status dl_driver_begin(dl_driver *d, const dl_pace_saved *saved, const dl_hash *bases)
{
    const dl_config *config = &d->a.run->config;
    dl_pace_begin(&d->pace, config,
                  dl_schedule_entries(&d->pace.schedule, (uint64_t)config->rounds), 0);
    if (saved) {
        dl_pace_resume(&d->pace, saved);
        d->stops.weight = saved->weight;
    }
    DL_TRY(dl_exchange_begin(d, saved ? bases : NULL));
    DL_TRY(dl_exchange_start(d));
    return dl_driver_stop(d);
}

/* Only the wait is here. The exchange's own thread uploads meanwhile, and without such a thread
 * nothing is in flight. It ends at the limit, or earlier if `interrupted` is set; NULL: at the
 * limit. */
static void settle(dl_driver *d, const atomic_bool *interrupted)
{
    const dl_time until = dl_time_after(dl_clock_now(), SETTLE_LIMIT);
    if (!d->thread.started) return;
    pthread_mutex_lock(&d->thread.lock);
    while (!d->outcome.ended && !dl_machine_has_put_all(d->machine) && dl_clock_now() < until &&
           !(interrupted && atomic_load(interrupted)))
        wait_a_little(d);
    pthread_mutex_unlock(&d->thread.lock);
}

void dl_driver_settle(dl_driver *d)
{
    settle(d, d->a.interrupted);
}

/* Captures are uploaded first, while the exchange still runs. A snapshot in progress is finished,
 * since it reads the exchange's state. */
void dl_driver_halt(dl_driver *d)
{
    settle(d, NULL);
    dl_exchange_stop(d);
    dl_background_settle(d->background);
}

void dl_driver_hold(dl_driver *d)
{
    dl_driver_lock(d);
}

void dl_driver_release(dl_driver *d)
{
    dl_driver_unlock(d);
}

/* The generations that were found ended are saved only while another generation is the single
 * committer. That is the one case in which a resume may take over from them (P26.4). */
bool dl_driver_saved_now(const dl_driver *d, dl_pace_saved *out, dl_hash *bases,
                         uint32_t *generation, dl_former_generations *formers)
{
    const dl_generation *only = &dl_driver_control(d)->committer;
    const dl_state *state = dl_exec_state(d->a.exec);
    for (int f = 0; f < state->manifest->n_fragments; f++)
        bases[f] = state->now[f].digest;
    out->weight = d->stops.weight;
    *generation = d->a.self.number;
    *formers = (dl_former_generations){.n = 0};
    if (only->replica[0] && !dl_generation_equal(only, &d->a.self)) *formers = d->a.formers;
    return dl_pace_save(&d->pace, out);
}

/* The exchange may renew the generation at any time, so name and signature take one copy of it. */
static diloco_status write_end(dl_buf *text, dl_key key, dl_driver *d)
{
    dl_heartbeat_writer w;
    dl_driver_lock(d);
    const uint64_t entry = dl_driver_control(d)->entry;
    const dl_generation self = d->a.self;
    dl_driver_unlock(d);
    dl_key_end(key, &self);
    dl_heartbeat_begin(&w, text, &dl_heartbeat_ended, d->a.signer, d->a.run->id, &self);
    dl_json_u64(&w.json, "entry", entry);
    return dl_heartbeat_end(&w);
}

/* A second call finds the name taken, and the entry of the first call remains in the object. Errors
 * of the store are returned; the others then wait for run.patience. */
diloco_status dl_driver_leave(dl_driver *d)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_key key;
    dl_store *store;
    DL_TRY(write_end(&text, key, d));
    DL_TRY(dl_store_open_at(&store, dl_store_address_of(d->a.store), false));
    dl_store_count_into(store, dl_store_tally(d->a.store));
    const dl_span span = {text.data, text.len};
    const diloco_status status =
        dl_store_create(store, key, &span, 1, NULL, dl_time_after(dl_clock_now(), SMALL_LIMIT));
    dl_store_close(store);
    return status == DILOCO_EEXIST ? DILOCO_OK : status; /* created before, at another entry */
}

/* ---- reports ---------------------------------------------------------------------------- */

/* Passes the step's loss to the comparison, and writes its warning. The text has room for the
 * advice and for the norms of the members. */
static void look_for_divergence(dl_driver *d, double loss)
{
    char text[DL_DIVERGENCE_NORMS + 512];
    const dl_event_context context = {.replica = d->a.self.replica};
    if (dl_divergence_step(&d->trainer.divergence, loss, text, sizeof text))
        dl_event_warn(d->a.record, &context, "divergence", text);
}

/* The step in the heartbeat is set without the lock: it is atomic, and heartbeats must not wait for
 * the exchange. */
void dl_driver_count_step(dl_driver *d, uint64_t step, double loss)
{
    look_for_divergence(d, loss);
    dl_driver_lock(d);
    d->pace.position++;
    dl_upload_latency_step(&d->latency);
    dl_driver_unlock(d);
    dl_background_set_step(d->background, step, d->pace.position);
}

void dl_driver_pass_to(dl_driver *d, uint64_t position)
{
    dl_driver_lock(d);
    d->pace.position = position;
    dl_driver_unlock(d);
}

uint64_t dl_driver_position(const dl_driver *d)
{
    return d->pace.position; /* only the trainer moves it */
}

/* The ledger changes with each applied entry, so the sample is read under the lock. It belongs to
 * the entry of this training, which is the next one to capture. */
bool dl_driver_sample(dl_driver *d, uint64_t *sample)
{
    dl_driver_lock(d);
    const dl_ledger *ledger = dl_driver_control(d)->ledger;
    const bool assigned = ledger && dl_ledger_sample(ledger, d->pace.n_captured, d->a.self.replica,
                                                     d->pace.position, sample);
    dl_driver_unlock(d);
    return assigned;
}

/* A failed exchange makes the present position due. The next call then returns its error, and no
 * further steps are trained in vain. */
uint64_t dl_driver_train_until(dl_driver *d)
{
    dl_driver_lock(d);
    const uint64_t until = d->trainer.over     ? UINT64_MAX
                           : d->outcome.failed ? d->pace.position
                                               : dl_pace_train_until(&d->pace);
    dl_driver_unlock(d);
    return until;
}

bool dl_driver_done(const dl_driver *d)
{
    return d->trainer.over;
}

void dl_driver_read_state(dl_driver *d, void (*copy)(void *user, const dl_state *state), void *user)
{
    dl_driver_lock(d);
    copy(user, dl_exec_state(d->a.exec));
    dl_driver_unlock(d);
}

/* The traffic is copied under the lock where the exchange has a thread. Without one it is read from
 * the handles directly. */
dl_driver_facts dl_driver_facts_now(dl_driver *d)
{
    dl_driver_lock(d);
    if (!d->thread.started) d->traffic = dl_exchange_traffic(d);
    dl_driver_facts facts = {.entry = dl_driver_control(d)->entry,
                             .generation = d->a.self.number,
                             .position = d->pace.position,
                             .loss = d->loss,
                             .bytes_sent = d->traffic.bytes_sent,
                             .bytes_received = d->traffic.bytes_received,
                             .waited_s = d->trainer.waited_s};
    dl_driver_unlock(d);
    facts.next_stop = dl_driver_train_until(d);
    dl_background_traffic(d->background, &facts.background_sent, &facts.background_received);
    dl_background_beats(d->background, &facts.heartbeats, &facts.heartbeat_s_max);
    return facts;
}

/* ---- create and destroy ----------------------------------------------------------------- */

static void init_lock(dl_driver *d)
{
    pthread_mutex_init(&d->thread.lock, NULL);
    dl_cond_init(&d->thread.moved_on);
}

/* Lays out the arrays in the arena, or measures them if the arena has no memory (arena.h). */
static void lay_out(dl_driver *d, dl_arena *arena, const dl_schedule *schedule)
{
    dl_pace_layout(&d->pace, arena, schedule);
    dl_upload_latency_layout(&d->latency, arena, dl_schedule_ahead(schedule));
}

/* Derives the schedule from the run's options, allocates the pace's arrays, and connects the stops
 * to the trainer's tensors. The early adoption is this replica's own and not part of the agreed
 * schedule. */
static diloco_status make_pace(dl_driver *d)
{
    dl_schedule schedule;
    dl_arena measure = {0};
    DL_TRY(dl_schedule_of(&schedule, &d->a.run->config, d->a.run->manifest.n_fragments));
    schedule.early = d->a.early;
    lay_out(d, &measure, &schedule);
    DL_TRY(dl_arena_init(&d->arena, measure.used));
    lay_out(d, &d->arena, &schedule);
    d->stops = (dl_stops){.exec = d->a.exec,
                          .pace = &d->pace,
                          .config = &d->a.run->config,
                          .replica = d->a.self.replica,
                          .work = d->a.trained,
                          .fresh = d->a.fresh,
                          .user = d->a.user};
    return DILOCO_OK;
}

static diloco_status make_sending(dl_driver *d)
{
    const dl_sending_args args = {.address = dl_store_address_of(d->a.store),
                                  .tally = dl_store_tally(d->a.store),
                                  .exec = d->a.exec,
                                  .store_timeout_s = d->a.store_timeout_s,
                                  .ended = &d->thread.was_taken};
    return dl_sending_create(&d->sending, &args);
}

/* The background threads start last, because snapshots and heartbeats read the exchange's state. */
static diloco_status make(dl_driver *d)
{
    const dl_background_args background = {.address = dl_store_address_of(d->a.store),
                                           .tally = dl_store_tally(d->a.store),
                                           .run = d->a.run,
                                           .state = dl_exec_state(d->a.exec),
                                           .self = d->a.self,
                                           .signer = d->a.signer,
                                           .peers = d->a.peers};
    init_lock(d);
    DL_TRY(make_pace(d));
    DL_TRY(dl_exchange_create(d));
    if (dl_exec_puts_ahead(d->a.exec)) DL_TRY(make_sending(d));
    if (d->a.saves.copy) DL_TRY(dl_driver_make_saver(d));
    return dl_background_create(&d->background, &background);
}

/* The destroy function accepts a driver that is only partly made, so every failure takes the same
 * path. */
diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args)
{
    *out = NULL;
    dl_driver *d = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "out of memory for the run");
    d->a = *args;
    d->began = args->self;
    d->loss = NAN;
    d->lines.context.replica = d->a.self.replica;
    d->lines.context.codec = d->a.run->config.codec;
    d->lines.context.peers = d->a.peers != NULL;
    const diloco_status status = make(d);
    if (status) {
        dl_driver_destroy(d);
        return status;
    }
    *out = d;
    return DILOCO_OK;
}

/* The exchange's thread ends first: it uses all the others. */
void dl_driver_destroy(dl_driver *d)
{
    if (!d) return;
    dl_exchange_stop(d);
    dl_sending_destroy(d->sending);
    dl_saver_destroy(d->saver);
    dl_background_destroy(d->background);
    dl_machine_destroy(d->machine);
    dl_arena_deinit(&d->arena);
    pthread_cond_destroy(&d->thread.moved_on);
    pthread_mutex_destroy(&d->thread.lock);
    free(d);
}
