/* driver_exchange.c - the exchange's half of a driver:
 *
 *     request = REJOIN
 *     until request is DONE or FAIL:
 *         reply = carry out(request)
 *         request = next(reply)
 *
 * A store that does not answer is asked again, with growing pauses, for run.store_timeout. On the
 * trainer's thread an interrupt takes effect only where the saved local state is right for a
 * resume. That is between requests of an exchange that wait or may be long (may_stop). All of these
 * follow the capture and its save. */
#include "run/driver_parts.h"

#include "base/log.h"
#include "base/own.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* longest delay before an interrupt takes effect */
static const dl_time SLICE = 100 * DL_MILLISECOND;
static const dl_time RECORD_LIMIT = 10 * DL_SECOND; /* training need not wait for its record */

/* ---- requests --------------------------------------------------------------------------- */

/* On its own thread the exchange ends when the trainer says so. On the trainer's thread an
 * interrupt is the signal. */
static bool is_to_stop(const void *user)
{
    const dl_driver *d = user;
    return d->thread.beside ? atomic_load(&d->thread.quit) : atomic_load(d->a.interrupted);
}

/* Returns whether the wait has to end: to stop, or to upload a new capture. */
static bool called_away(dl_driver *d)
{
    return is_to_stop(d) || atomic_exchange(&d->thread.was_taken, false);
}

/* Writes the prefix under x/<entry>/ to watch. Only the planner watches combined slices. If all
 * members watched them, each would look N times an entry. Owners watch the other owners' measures,
 * too. */
static void watched_of_combined(dl_key out, const dl_driver *d, const dl_request *request)
{
    if (request->wait.for_plan && !dl_exec_measures_slices(d->a.exec))
        dl_key_plans(out, request->entry);
    else
        dl_key_combined_of(out, request->entry);
}

/* Waits in short slices, so that an interrupt takes effect. dl_store_wait returns OK when it is
 * worth looking. It watches the log, since any replica may close the entry meanwhile. It watches
 * contributions only while this replica may close the entry itself, and combined slices only with
 * `sharded`. `moved` means that something changed since the last look, so the store may look at
 * once. While `waiting` is set, the heartbeat thread checks for a later generation of this replica
 * (P6.9). */
static diloco_status wait_in_slices(dl_driver *d, const dl_request *request)
{
    dl_key prefix, combined;
    dl_exec_listed_under(prefix, d->a.exec, request->entry);
    watched_of_combined(combined, d, request);
    const char *prefixes[3] = {"log/"};
    size_t n = 1;
    if (dl_exec_topology_kind(d->a.exec) == DL_TOPOLOGY_SHARDED) prefixes[n++] = combined;
    if (!request->wait.log_only) prefixes[n++] = prefix;
    const dl_time began = dl_clock_now();
    diloco_status status = DILOCO_ETIMEDOUT;
    dl_background_set_waiting(d->background, true);
    while (status == DILOCO_ETIMEDOUT && dl_clock_now() < request->wait.until && !called_away(d)) {
        DL_TRY(dl_background_fenced(d->background));
        const dl_time slice = dl_time_after(dl_clock_now(), SLICE);
        status = dl_store_wait(d->a.store, prefixes, n, d->exchange.moved,
                               slice < request->wait.until ? slice : request->wait.until);
        d->exchange.moved = false;
        if (!d->thread.beside) dl_driver_report_wait(d, request->entry);
    }
    dl_background_set_waiting(d->background, false);
    d->exchange.waited += dl_clock_now() - began;
    return status == DILOCO_ETIMEDOUT ? DILOCO_OK : status;
}

/* A worker that waits for clients may train one meanwhile. If it trained a client, the wait ends at
 * once, since that client's contribution may close the entry. */
static diloco_status wait_for_change(dl_driver *d, const dl_request *request)
{
    bool worked = false;
    if (d->a.work) DL_TRY(d->a.work(d->a.user, &worked));
    d->exchange.moved |= worked;
    return worked ? DILOCO_OK : wait_in_slices(d, request);
}

/* The run's last snapshot is written on this thread, because nothing else follows it. Earlier ones
 * are written beside training. */
static diloco_status take_snapshot(dl_driver *d, const dl_request *request)
{
    if (request->snapshot.final)
        dl_background_snapshot_here(d->background, d->a.store);
    else
        dl_background_snapshot(d->background);
    return DILOCO_OK;
}

/* Uploads a contribution. If its pipelined upload is still in flight, waits for the end of that;
 * reap handles the result. */
static void contribute(dl_driver *d, const dl_request *request, dl_reply *reply, dl_time until)
{
    d->exchange.puts = false;
    if (d->sending && dl_sending_now(d->sending) == 1 + request->entry) {
        while (dl_sending_wait(d->sending, SLICE) && !is_to_stop(d))
            ;
        return;
    }
    dl_exec_do(d->a.exec, request, reply, until);
    d->exchange.puts = !reply->status && !reply->contribute.taken && !reply->sending;
    if (reply->sending) dl_sending_begin(d->sending, request->entry);
}

/* Handles the result of a pipelined upload. *unsent: as in dl_reply. DILOCO_EEXIST means that the
 * name holds junk. The machine then contributes again, under a later generation (P6.2). Any other
 * error is final. */
static diloco_status reap(dl_driver *d, uint64_t *unsent)
{
    uint64_t entry;
    diloco_status status;
    if (!d->sending || !dl_sending_reap(d->sending, &entry, &status)) return DILOCO_OK;
    if (status == DILOCO_EEXIST) *unsent = 1 + entry;
    if (status == DILOCO_EEXIST) return DILOCO_OK;
    DL_TRY(status);
    dl_exec_sent(d->a.exec);
    dl_event_contribution(d->a.record, &d->lines.context, entry, &dl_exec_measured(d->a.exec)->own);
    return DILOCO_OK;
}

/* Requests that need time or threads are carried out here, the rest by exec. A fenced process
 * carries out nothing, so that it cannot act for its successor (P6). Each attempt has
 * run.store_timeout for itself. */
static void carry_out(dl_driver *d, const dl_request *request, dl_reply *reply)
{
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(d->a.store_timeout_s));
    *reply = (dl_reply){.kind = request->kind, .status = dl_background_fenced(d->background)};
    if (reply->status) return;
    switch (request->kind) {
    case DL_REQUEST_TRAIN:
        break;
    case DL_REQUEST_WAIT:
        reply->status = wait_for_change(d, request);
        break;
    case DL_REQUEST_SNAPSHOT:
        reply->status = take_snapshot(d, request);
        break;
    case DL_REQUEST_CONTRIBUTE:
        contribute(d, request, reply, until);
        break;
    default:
        dl_exec_do(d->a.exec, request, reply, until);
    }
    reply->now = dl_clock_now();
}

/* Warns, once, of objects in c/ that no replica reads. */
static void warn_passed_over(dl_driver *d, const dl_request *request)
{
    const size_t n = dl_exec_passed_over(d->a.exec);
    char text[256];
    if (request->kind != DL_REQUEST_LIST || !n || d->lines.warned_passed_over) return;
    d->lines.warned_passed_over = true;
    snprintf(text, sizeof text,
             "c/%010llu/: %zu objects are ignored, because their replica's key has not signed them "
             "or because other names have taken the room for unlisted replicas; later ones are not "
             "reported",
             (unsigned long long)request->entry, n);
    dl_event_warn(d->a.record, &d->lines.context, "passed_over", text);
}

/* A wait grows while its looks find nothing new. */
static bool is_progress(const dl_request *request, const dl_reply *reply)
{
    if (request->kind == DL_REQUEST_SERVE) return reply->serve.served;
    return request->kind != DL_REQUEST_WAIT && request->kind != DL_REQUEST_LIST &&
           request->kind != DL_REQUEST_READ;
}

/* Writes the record's lines of a request, and notes progress for the next wait. A contribution that
 * was already in the store is not reported as uploaded. */
static void after(dl_driver *d, const dl_request *request, const dl_reply *reply)
{
    if (request->kind == DL_REQUEST_FETCH && reply->fetch.peer)
        dl_event_peer(d->a.record, &d->lines.context, request->entry, &request->fetch.generation,
                      reply->fetch.peer);
    if (reply->status) return;
    warn_passed_over(d, request);
    d->exchange.moved |= is_progress(request, reply);
    if (request->kind == DL_REQUEST_CONTRIBUTE && d->exchange.puts)
        dl_event_contribution(d->a.record, &d->lines.context, request->entry,
                              &dl_exec_measured(d->a.exec)->own);
}

/* Returns true if the request is to be carried out again. The first failure of a series is reported
 * in the record. A stop ends the pause early. */
static bool try_again(dl_driver *d, dl_reply *reply)
{
    dl_patience *p = &d->exchange.patience;
    const bool failed = dl_patience_store_failed(p, d->a.store, reply->status);
    const bool again = dl_patience_again(p, failed, &reply->status, d->a.store_timeout_s);
    if (p->first) dl_event_warn(d->a.record, &d->lines.context, "unreachable", diloco_error_text());
    if (again) dl_patience_pause(p, is_to_stop, d);
    return again;
}

/* REJOIN makes a new machine, from the state that it loaded. The first REJOIN begins with the bases
 * of the saved local state, and a later one without: local values fit no more then. The record's
 * `run` line is written once. */
static dl_request begin_machine(dl_driver *d)
{
    const dl_state *state = dl_exec_state(d->a.exec);
    const dl_machine_start start = {
        .fragments = state->now, .bases = d->exchange.bases, .now = dl_clock_now()};
    d->exchange.bases = NULL; /* for a second REJOIN */
    if (!d->exchange.loaded)
        dl_event_run(d->a.record, d->a.run, &d->a.self, state->control.entry,
                     dl_exec_topology_kind(d->a.exec));
    if (d->exchange.loaded) dl_pace_restart(&d->pace);
    d->exchange.loaded = true;
    return dl_machine_begin(d->machine, &start);
}

/* The machine exists only after the first REJOIN. If that fails, the driver itself fails; later
 * failures are the machine's to judge. */
static dl_request answer(dl_driver *d, const dl_reply *reply)
{
    const bool loads = d->exchange.open.kind == DL_REQUEST_REJOIN;
    if (loads && !reply->status) return begin_machine(d);
    if (loads && !d->exchange.loaded)
        return (dl_request){.kind = DL_REQUEST_FAIL, .fail.status = reply->status};
    return dl_machine_next(d->machine, reply);
}

/* ---- the loop --------------------------------------------------------------------------- */

/* Returns the first entry whose contributions this replica still needs (P25). */
static uint64_t needed_from(const dl_driver *d)
{
    return dl_pace_needed_from(&d->pace, dl_driver_control(d)->entry);
}

static void update_heartbeats(dl_driver *d)
{
    const dl_store_speed speed = dl_exchange_speed(d);
    dl_background_set_link(d->background, &speed, d->lines.deadline_s);
    if (d->exchange.loaded) dl_background_set_entry(d->background, needed_from(d));
}

/* Continues as a later generation if the name of a contribution holds junk (P6). Call it with the
 * lock held. */
static void take_generation(dl_driver *d, dl_reply *reply)
{
    char text[256];
    const dl_generation now = dl_exec_self(d->a.exec);
    if (now.number == d->a.self.number) return;
    snprintf(text, sizeof text,
             "%s continues as generation %u: a name in c/ of generation %u holds an object that "
             "its key has not signed",
             now.replica, (unsigned)now.number, (unsigned)d->a.self.number);
    dl_event_warn(d->a.record, &d->lines.context, "renewed", text);
    d->a.self.number = now.number;
    reply->generation = now.number;
    reply->renewed = true;
    dl_background_set_generation(d->background, now.number);
}

/* Gives the machine its reply and opens the next request. `sent` is the result of the pipelined
 * upload. Call it with the lock held. After it the trainer may see a new state, so it is woken.
 * Errors are stored as text here, because the trainer's thread cannot read this thread's error
 * text. */
static void apply_reply(dl_driver *d, dl_reply *reply, diloco_status sent)
{
    reply->sending = d->sending ? dl_sending_now(d->sending) : 0;
    reply->unsent = d->exchange.unsent;
    d->exchange.unsent = 0;
    take_generation(d, reply);
    d->traffic = dl_exchange_traffic(d);
    after(d, &d->exchange.open, reply);
    d->exchange.open =
        sent ? (dl_request){.kind = DL_REQUEST_FAIL, .fail.status = sent} : answer(d, reply);
    if (d->exchange.open.kind == DL_REQUEST_FAIL) {
        d->outcome.failed = d->exchange.open.fail.status;
        snprintf(d->outcome.failure, sizeof d->outcome.failure, "%s", diloco_error_text());
    }
    d->outcome.ended =
        d->exchange.open.kind == DL_REQUEST_FAIL || d->exchange.open.kind == DL_REQUEST_DONE;
    dl_exec_release_applied(d->a.exec, d->outcome.ended);
    update_heartbeats(d);
    if (d->thread.beside) pthread_cond_broadcast(&d->thread.moved_on);
}

static bool moves_the_state(const dl_request *request)
{
    return request->kind == DL_REQUEST_SWAP || request->kind == DL_REQUEST_REJOIN;
}

/* Carries out a request that moves the state, and applies its reply, under one lock. A save in
 * between would pair the state of one entry with the pace of another (P16). Returns false if the
 * request failed. Then nothing has moved, except that a REJOIN may have left the state incomplete,
 * and the trainer waits for the next one (dl_machine_rejoin). */
static bool move(dl_driver *d, dl_reply *reply)
{
    dl_driver_lock(d);
    carry_out(d, &d->exchange.open, reply);
    const bool moved = !reply->status;
    if (moved) apply_reply(d, reply, DILOCO_OK);
    dl_driver_unlock(d);
    return moved;
}

/* Carries out one request and opens the next. Long requests run without the lock, so that training
 * continues. A snapshot reads `now`, hence the wait for it before anything may change. The result
 * of a pipelined upload is collected after each request, and its failure fails the exchange. */
static void ask_once(dl_driver *d)
{
    dl_reply reply;
    dl_background_settle(d->background); /* `now` and control may change from here */
    dl_patience_call(&d->exchange.patience, d->a.store);
    if (!moves_the_state(&d->exchange.open))
        carry_out(d, &d->exchange.open, &reply);
    else if (move(d, &reply))
        return;
    /* Before try_again: a repeated request must not delay the result of an upload. */
    const diloco_status sent = reap(d, &d->exchange.unsent);
    if (!sent && try_again(d, &reply)) return; /* nothing has moved */
    dl_driver_lock(d);
    apply_reply(d, &reply, sent);
    dl_driver_unlock(d);
}

/* TRAIN is open, and the trainer has not reached the due point that the log waits for. */
static bool is_idle(const dl_driver *d)
{
    return d->exchange.open.kind == DL_REQUEST_TRAIN &&
           !dl_pace_participates(&d->pace, d->pace.applied);
}

/* Returns whether an interrupt may end the exchange at this request. Requests that write are
 * carried out whole. */
static bool may_stop(const dl_driver *d)
{
    return d->exchange.open.kind == DL_REQUEST_WAIT || d->exchange.open.kind == DL_REQUEST_FETCH ||
           d->exchange.patience.since;
}

static diloco_status may_go_on(dl_driver *d)
{
    if (d->outcome.failed) return dl_fail(d->outcome.failed, "%s", d->outcome.failure);
    if (may_stop(d) && atomic_exchange(d->a.interrupted, false))
        return dl_fail(DILOCO_EINTERRUPTED, "interrupted while waiting for entry %llu",
                       (unsigned long long)d->exchange.open.entry);
    return DILOCO_OK;
}

static void begin_entry(dl_driver *d)
{
    d->exchange.moved = true;
    d->exchange.waited = 0;
    d->exchange.entry_began = dl_clock_now();
}

static void flush_record(dl_driver *d)
{
    dl_record_flush(d->a.record, d->a.store, &d->began, false,
                    dl_time_after(dl_clock_now(), RECORD_LIMIT));
}

bool dl_exchange_is_there(const dl_driver *d, const dl_stop *stop)
{
    return d->outcome.ended || (stop && dl_pace_ready(&d->pace, *stop));
}

/* On the trainer's own thread the exchange also completes the entry, for example its snapshot,
 * before it returns. Nothing else would do it until the next due point. */
static bool may_return(const dl_driver *d, const dl_stop *stop)
{
    /* even if its thread has not begun */
    const bool overlaps = d->pace.schedule.delay > 0;
    return dl_exchange_is_there(d, stop) &&
           (overlaps || d->outcome.ended || d->exchange.open.kind == DL_REQUEST_TRAIN);
}

/* Runs the exchange on the calling thread. It ends once the caller may return, or once the log
 * waits for the trainer's next capture. */
static diloco_status drive(dl_driver *d, const dl_stop *stop)
{
    while (!may_return(d, stop) && !is_idle(d)) {
        DL_TRY(may_go_on(d));
        ask_once(d);
    }
    return d->outcome.failed ? dl_fail(d->outcome.failed, "%s", d->outcome.failure) : DILOCO_OK;
}

diloco_status dl_exchange_until(dl_driver *d, const dl_stop *stop)
{
    if (d->exchange.open.kind == DL_REQUEST_TRAIN) begin_entry(d);
    DL_TRY(drive(d, stop));
    flush_record(d);
    return DILOCO_OK;
}

/* A resume needs the outcome of each entry that it had in flight. So it reads the log from the
 * entry that it knew, even if there is a newer snapshot. */
diloco_status dl_exchange_begin(dl_driver *d, const dl_hash *bases)
{
    const dl_stop read = {DL_STOP_WAIT, 0};
    d->exchange.bases = bases;
    d->exchange.open =
        (dl_request){.kind = DL_REQUEST_REJOIN, .entry = bases ? d->pace.applied : UINT64_MAX};
    begin_entry(d);
    return drive(d, &read);
}

/* ---- a thread of its own ---------------------------------------------------------------- */

/* The record is uploaded in this pause, where it delays no exchange. */
static void wait_for_the_trainer(dl_driver *d)
{
    pthread_mutex_lock(&d->thread.lock);
    const bool idle = is_idle(d);
    pthread_mutex_unlock(&d->thread.lock);
    if (idle) flush_record(d);
    pthread_mutex_lock(&d->thread.lock);
    while (is_idle(d) && !atomic_load(&d->thread.quit))
        pthread_cond_wait(&d->thread.moved_on, &d->thread.lock);
    pthread_mutex_unlock(&d->thread.lock);
    begin_entry(d);
}

/* The loop of the exchange's own thread. Only this thread sets `ended`, so it reads that without
 * the lock. */
static void *body(void *context)
{
    dl_driver *d = context;
    while (!d->outcome.ended && !atomic_load(&d->thread.quit)) {
        if (d->exchange.open.kind == DL_REQUEST_TRAIN) wait_for_the_trainer(d);
        if (!atomic_load(&d->thread.quit)) ask_once(d);
    }
    return NULL;
}

diloco_status dl_exchange_start(dl_driver *d)
{
    if (!d->a.beside || d->outcome.ended) return DILOCO_OK;
    d->thread.beside = true;
    const int error = dl_thread_start(&d->thread.id, body, d);
    if (error) return dl_fail(DILOCO_ENOMEM, "no thread for the exchange: %s", strerror(error));
    d->thread.started = true;
    return DILOCO_OK;
}

/* A save that waits for disk space is given up, because the thread may be waiting for it. */
void dl_exchange_stop(dl_driver *d)
{
    if (!d->thread.started) return;
    atomic_store(&d->thread.quit, true);
    dl_saver_give_up(d->saver);
    pthread_mutex_lock(&d->thread.lock);
    pthread_cond_broadcast(&d->thread.moved_on);
    pthread_mutex_unlock(&d->thread.lock);
    pthread_join(d->thread.id, NULL);
    d->thread.started = false;
}

/* Creates the machine, with pointers to what the driver and the exchange own. Returns DILOCO_EINVAL
 * if an option names no known weighting or combiner. The notes of the machine become lines of the
 * record (driver_record.c). */
diloco_status dl_exchange_create(dl_driver *d)
{
    const dl_runfile *run = d->a.run;
    const dl_state *state = dl_exec_state(d->a.exec);
    dl_machine_args args = {
        .config = &run->config,
        .run = run->id,
        .identity = &run->identity,
        .self = d->a.self,
        .formers = d->a.formers,
        .control = dl_driver_control(d),
        .pace = &d->pace,
        .outer = state->outer,
        .weighting = dl_weighting_find(run->config.weighting),
        .combiner = dl_combiner_of(&run->config),
        .topology = dl_exec_topology_kind(d->a.exec),
        .slices = dl_exec_slices(d->a.exec),
        .max_members = state->control.roster.cap,
        .snapshot_bytes = dl_state_bytes(&run->manifest, state->outer, 1),
        .lr = d->a.lr,
        .lr_user = d->a.lr_user,
        .sends_beside = dl_exec_puts_ahead(d->a.exec),
        .follows = d->a.follows,
        .listener = {.note = dl_driver_on_note,
                     .note_user = d,
                     .trace = d->a.trace_protocol ? dl_driver_on_move : NULL,
                     .trace_user = d},
    };
    if (!args.weighting)
        return dl_fail(DILOCO_EINVAL, "there is no weighting \"%s\"", run->config.weighting);
    if (!args.combiner) return dl_no_row("combiner", run->config.combiner);
    DL_TRY(dl_simulation_init(&args.simulation, &run->config, &run->manifest));
    return dl_machine_create(&d->machine, &args);
}
