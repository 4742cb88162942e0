/* driver.c - the loop:
 *
 *     ask = REJOIN; while ask is not TRAIN or DONE: event = carry out(ask); ask = next(event)
 *
 * A store that does not answer is asked again, with growing pauses, for run.store_timeout.
 * An interrupt is heard only where the saved local state is right for a resume: between
 * the asks of an exchange that wait or may be long (may_stop), which all come behind SAVE. */
#include "run/driver.h"

#include "base/json.h"
#include "base/log.h"
#include "run/background.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_time SLICE = 100 * DL_MILLISECOND; /* longest deafness to an interrupt */
static const dl_time PAUSE_FIRST = 50 * DL_MILLISECOND;
static const dl_time PAUSE_LONGEST = 5 * DL_SECOND;
static const dl_time SMALL_LIMIT = 10 * DL_SECOND; /* for objects that training need not wait for */

struct dl_driver {
    dl_driver_args a;
    dl_machine *machine;
    dl_background *background;
    dl_machine_start start; /* for the first REJOIN */
    dl_ask open;            /* the ask that is being carried out, or TRAIN, DONE, FAIL */
    char failure[1024];     /* FAIL: its text */
    bool over, adopted, loaded;
    bool moved; /* something happened since the last WAIT: look soon */
    uint64_t position, train_until;

    dl_event_context context; /* of the record's next lines */
    dl_time waited, entry_began;
    uint64_t sent_before, received_before;
    double loss;
    dl_time unreachable_since, pause;
};

static dl_time small_limit(void)
{
    return dl_time_after(dl_clock_now(), SMALL_LIMIT);
}

static dl_control *control_of(const dl_driver *d)
{
    return &dl_exec_state(d->a.exec)->control;
}

/* ---- the record ------------------------------------------------------------------------- */

static void take_traffic(dl_driver *d)
{
    const dl_store_counters c = dl_store_counts(d->a.store);
    d->context.bytes_sent = c.bytes_sent - d->sent_before;
    d->context.bytes_received = c.bytes_received - d->received_before;
    d->sent_before = c.bytes_sent;
    d->received_before = c.bytes_received;
}

static void note_commit(dl_driver *d, const dl_note *n)
{
    const dl_time now = dl_clock_now();
    take_traffic(d);
    d->context.wait_s = dl_seconds(d->waited);
    d->context.exchange_s = dl_seconds(now - d->entry_began - d->waited);
    d->waited = 0;
    d->entry_began = now;
    d->loss = n->entry->loss;
    dl_event_commit(d->a.record, &d->context, n->entry, &control_of(d)->roster,
                    dl_exec_measured(d->a.exec), n->counted);
    dl_log(DILOCO_LOG_INFO, "entry %llu: %zu members, loss %.4f, %.1f MB out, %.1f MB in, %.2f s",
           (unsigned long long)n->entry->entry, n->entry->n_members, n->entry->loss,
           1e-6 * (double)d->context.bytes_sent, 1e-6 * (double)d->context.bytes_received,
           d->context.wait_s + d->context.exchange_s);
}

static void on_note(void *user, const dl_note *n)
{
    dl_driver *d = user;
    const uint64_t entry = control_of(d)->entry;
    char life[DL_LIFE_TEXT], text[512];
    switch (n->kind) {
    case DL_NOTE_COMMIT:
        note_commit(d, n);
        break;
    case DL_NOTE_ABORT:
        dl_event_abort(d->a.record, &d->context, n->entry);
        break;
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
        snprintf(text, sizeof text, "entry %llu did not count this replica: it goes on from %s",
                 (unsigned long long)n->entry->entry,
                 strcmp(d->a.run->config.on_uncounted, "adopt") ? "its own parameters"
                                                                : "the shared model");
        dl_event_warn(d->a.record, &d->context, "late", text);
        break;
    case DL_NOTE_DEADLINE:
        dl_log(DILOCO_LOG_DEBUG, "entry %llu: deadline in %.1f s", (unsigned long long)entry,
               n->seconds);
        break;
    }
}

/* ---- asks ------------------------------------------------------------------------------- */

/* In slices, so that an interrupt is heard. dl_store_wait returns OK when it is worth looking. */
static diloco_status wait_for_change(dl_driver *d, const dl_ask *ask)
{
    dl_key prefix;
    dl_key_contributions(prefix, ask->entry);
    const char *const prefixes[] = {prefix, "log/"};
    const dl_time began = dl_clock_now();
    diloco_status status = DILOCO_ETIMEDOUT;
    while (status == DILOCO_ETIMEDOUT && dl_clock_now() < ask->until &&
           !atomic_load(d->a.interrupted)) {
        const dl_time slice = dl_time_after(dl_clock_now(), SLICE);
        status = dl_store_wait(d->a.store, prefixes, 2, d->moved,
                               slice < ask->until ? slice : ask->until);
        d->moved = false;
    }
    d->waited += dl_clock_now() - began;
    return status == DILOCO_ETIMEDOUT ? DILOCO_OK : status;
}

static diloco_status take_snapshot(dl_driver *d, const dl_ask *ask)
{
    if (ask->final)
        dl_background_snapshot_here(d->background, d->a.store);
    else
        dl_background_snapshot(d->background);
    return DILOCO_OK;
}

/* Those that need time or the trainer are done here, the rest by exec. */
static void carry_out(dl_driver *d, const dl_ask *ask, dl_event *event)
{
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(d->a.store_timeout_s));
    *event = (dl_event){.status = DILOCO_OK};
    switch (ask->kind) {
    case DL_ASK_SAVE:
        event->status = d->a.save(d->a.save_user, ask->entry, ask->position);
        break;
    case DL_ASK_WAIT:
        event->status = wait_for_change(d, ask);
        break;
    case DL_ASK_SNAPSHOT:
        event->status = take_snapshot(d, ask);
        break;
    case DL_ASK_CONTRIBUTE:
        dl_exec_tell(d->a.exec, d->a.work);
        dl_exec_do(d->a.exec, ask, event, until);
        break;
    default:
        dl_exec_do(d->a.exec, ask, event, until);
    }
    event->now = dl_clock_now();
}

static void after(dl_driver *d, const dl_ask *ask, const dl_event *event)
{
    if (event->status) return;
    d->moved |= ask->kind != DL_ASK_WAIT && ask->kind != DL_ASK_LIST && ask->kind != DL_ASK_READ;
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
        d->pause = PAUSE_FIRST;
        dl_event_warn(d->a.record, &d->context, "unreachable", diloco_error_text());
    }
    if (dl_seconds(now - d->unreachable_since) > d->a.store_timeout_s) return false;
    for (dl_time left = d->pause; left > 0 && !atomic_load(d->a.interrupted); left -= SLICE)
        dl_clock_sleep(left < SLICE ? left : SLICE);
    d->pause = d->pause * 2 < PAUSE_LONGEST ? d->pause * 2 : PAUSE_LONGEST;
    return true;
}

/* The answer to REJOIN is to begin again from the state that it loaded. */
static dl_ask begin_machine(dl_driver *d)
{
    const dl_state *state = dl_exec_state(d->a.exec);
    dl_machine_start start = d->start;
    start.digest = state->now[0].digest;
    start.n_commits = state->now[0].n_commits;
    start.now = dl_clock_now();
    d->start = (dl_machine_start){.resumed = false}; /* of a second REJOIN */
    if (!d->loaded) dl_event_run(d->a.record, d->a.run, &d->a.self, state->control.entry);
    d->loaded = true;
    return dl_machine_begin(d->machine, &start);
}

static dl_ask answer(dl_driver *d, const dl_event *event)
{
    const bool loads = d->open.kind == DL_ASK_REJOIN;
    if (loads && !event->status) return begin_machine(d);
    if (loads && !d->loaded) return (dl_ask){.kind = DL_ASK_FAIL, .status = event->status};
    return dl_machine_next(d->machine, event);
}

/* ---- the loop --------------------------------------------------------------------------- */

static diloco_status finish(dl_driver *d)
{
    d->over = true;
    d->train_until = UINT64_MAX;
    d->position = d->open.position;
    if (dl_driver_leave(d)) dl_log(DILOCO_LOG_WARN, "end/ is not written: %s", diloco_error_text());
    return DILOCO_OK;
}

/* The position that training goes on from is what the machine says when it asks for training:
 * the due point before the entry, unless the local state was saved between. */
static diloco_status to_training(dl_driver *d)
{
    d->train_until = d->open.position;
    d->position = dl_machine_position(d->machine);
    dl_record_flush(d->a.record, d->a.store, &d->a.self, false, small_limit());
    return DILOCO_OK;
}

static bool may_stop(const dl_driver *d)
{
    return d->open.kind == DL_ASK_WAIT || d->open.kind == DL_ASK_FETCH || d->unreachable_since;
}

/* Until the machine wants training, or nothing more. */
static diloco_status drive(dl_driver *d)
{
    while (d->open.kind != DL_ASK_TRAIN) {
        if (d->open.kind == DL_ASK_DONE) return finish(d);
        if (d->open.kind == DL_ASK_FAIL) return dl_fail(d->open.status, "%s", d->failure);
        if (may_stop(d) && atomic_exchange(d->a.interrupted, false))
            return dl_fail(DILOCO_EINTERRUPTED, "interrupted while waiting for entry %llu",
                           (unsigned long long)d->open.entry);
        dl_event event;
        dl_background_settle(d->background); /* `now` and control may change from here */
        carry_out(d, &d->open, &event);
        if (try_again(d, &event)) continue;
        after(d, &d->open, &event);
        d->open = answer(d, &event);
        if (d->open.kind == DL_ASK_FAIL)
            snprintf(d->failure, sizeof d->failure, "%s", diloco_error_text());
        if (d->loaded) dl_background_tell_entry(d->background, control_of(d)->entry);
    }
    return to_training(d);
}

diloco_status dl_driver_begin(dl_driver *d, const dl_machine_start *start)
{
    d->start = *start;
    d->open = (dl_ask){.kind = DL_ASK_REJOIN, .entry = UINT64_MAX};
    d->entry_began = dl_clock_now();
    return drive(d);
}

diloco_status dl_driver_exchange(dl_driver *d)
{
    if (d->over) return DILOCO_OK;
    if (d->open.kind == DL_ASK_TRAIN) {
        const dl_event event = {.now = dl_clock_now()};
        dl_background_settle(d->background);
        d->adopted = false;
        d->moved = true;
        d->waited = 0;
        d->entry_began = event.now;
        d->context.step = d->a.work->step;
        d->open = dl_machine_next(d->machine, &event);
    }
    return drive(d);
}

diloco_status dl_driver_leave(dl_driver *d)
{
    unsigned char bytes[512];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_key key;
    dl_json j;
    dl_key_end(key, &d->a.self);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "replica", d->a.self.replica);
    dl_json_u64(&j, "generation", d->a.self.generation);
    dl_json_u64(&j, "entry", control_of(d)->entry);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    const dl_span span = {text.data, text.len};
    const diloco_status status = dl_store_create(d->a.store, key, &span, 1, NULL, small_limit());
    return status == DILOCO_EEXIST ? DILOCO_OK : status; /* said before, at another entry */
}

/* ---- making and unmaking ---------------------------------------------------------------- */

static diloco_status make_machine(dl_driver *d)
{
    const dl_runfile *run = d->a.run;
    const dl_state *state = dl_exec_state(d->a.exec);

    const dl_machine_args args = {
        .config = &run->config,
        .run = run->id,
        .self = d->a.self,
        .control = control_of(d),
        .outer = state->outer,
        .weighting = dl_weighting_find(run->config.weighting),
        .combiner = dl_combiner_find(run->config.combiner),
        .max_members = state->control.roster.cap,
        .snapshot_bytes = dl_state_bytes(&run->manifest, state->outer, 1),
        .entries = (uint64_t)run->config.rounds,
        .interval = (uint64_t)run->config.local_steps,
        .lr = d->a.lr,
        .lr_user = d->a.lr_user,
        .note = on_note,
        .note_user = d,
    };
    if (!args.weighting)
        return dl_fail(DILOCO_EINVAL, "there is no weighting \"%s\"", run->config.weighting);
    if (!args.combiner)
        return dl_fail(DILOCO_EINVAL, "there is no combiner \"%s\"", run->config.combiner);
    return dl_machine_create(&d->machine, &args);
}

diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args)
{
    *out = NULL;
    dl_driver *d = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "no memory for the run");
    d->a = *args;
    d->loss = NAN;
    d->context.replica = d->a.self.replica;
    d->context.codec = d->a.run->config.codec;

    const dl_background_args background = {
        .url = args->url, .run = args->run, .state = dl_exec_state(args->exec), .self = args->self};
    diloco_status status = make_machine(d);
    if (!status) status = dl_background_create(&d->background, &background);
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
    dl_background_destroy(d->background);
    dl_machine_destroy(d->machine);
    free(d);
}

uint64_t dl_driver_train_until(const dl_driver *d)
{
    return d->train_until;
}
uint64_t dl_driver_position(const dl_driver *d)
{
    return d->position;
}
bool dl_driver_done(const dl_driver *d)
{
    return d->over;
}
bool dl_driver_adopted(const dl_driver *d)
{
    return d->adopted;
}

void dl_driver_tell_step(dl_driver *d, uint64_t step, uint64_t position)
{
    dl_background_tell_step(d->background, step, position);
}

dl_driver_facts dl_driver_facts_now(const dl_driver *d)
{
    const dl_store_counters c = dl_store_counts(d->a.store);
    dl_driver_facts facts = {
        .loss = d->loss, .bytes_sent = c.bytes_sent, .bytes_received = c.bytes_received};
    dl_background_traffic(d->background, &facts.background_sent, &facts.background_received);
    return facts;
}
