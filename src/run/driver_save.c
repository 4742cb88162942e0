/* driver_save.c - a due point's capture, and the save of the private state that belongs to it
 * (PROTOCOL P16).
 *
 *     the trainer uploads:        capture, save, upload
 *     another thread uploads:     save, capture          | upload
 *     and another thread saves:   fill, copy, capture, begin   | write, encode; then upload
 *
 * With a saver the trainer waits for the disk in two cases. There may be too little memory for a
 * copy. Or the former save is still being written, and there is too little for a second copy. */
#include "run/driver_parts.h"

#include "base/log.h"

#include <stdio.h>

/* Saves once in run.save_every rotations (P16). If that is each rotation and a residual would not
 * be consistent later, it saves at every entry. */
static bool save_is_due(const dl_driver *d, uint64_t entry)
{
    const uint64_t every = d->a.save_every;
    if (every == 1 && d->a.run->config.error_feedback > 0) return true;
    return entry % (d->pace.schedule.n_fragments * every) == 0;
}

/* Captures, and wakes the exchange to upload the capture. The time of the capture begins the
 * measured trip of the contribution (upload_latency.h). Call it with the lock held. */
static diloco_status take_locked(dl_driver *d, uint64_t entry)
{
    const diloco_status status = dl_stop_capture(&d->stops, entry);
    dl_upload_latency_captured(&d->latency, entry, dl_clock_now());
    atomic_store(&d->thread.was_taken, true);
    if (d->thread.beside) pthread_cond_broadcast(&d->thread.moved_on);
    return status;
}

static diloco_status take_now(dl_driver *d, uint64_t entry)
{
    dl_driver_lock(d);
    const diloco_status status = take_locked(d, entry);
    dl_driver_unlock(d);
    return status;
}

static void warn_full(void *driver, const char *why)
{
    dl_driver *d = driver;
    const dl_event_context context = {.replica = d->a.self.replica};
    dl_event_warn(d->a.record, &context, "unreachable", why);
}

static void warn_replaced(void *driver, const char *why)
{
    dl_driver *d = driver;
    char text[1200];
    const dl_event_context context = {.replica = d->a.self.replica};
    snprintf(text, sizeof text,
             "a save of the private state failed, and a newer state is saved in its place: %s",
             why);
    dl_event_warn(d->a.record, &context, "unreachable", text);
}

static diloco_status save_here(void *driver, int slot)
{
    const dl_driver *d = driver;
    (void)slot;
    return d->a.saves.save(d->a.user);
}

/* Saves the local state. If the disk is full, it retries for run.store_timeout, as with a store; an
 * interrupt ends that. Nothing is uploaded meanwhile. */
static diloco_status save(dl_driver *d)
{
    const dl_saver_args args = {
        .write = save_here, .full = warn_full, .user = d, .patience_s = d->a.store_timeout_s};
    return dl_saver_save(&args, 0, d->a.interrupted);
}

static void warn_slow(dl_driver *d, bool has_room)
{
    const dl_event_context context = {.replica = d->a.self.replica};
    if (d->trainer.warned_slow) return;
    d->trainer.warned_slow = true;
    dl_event_warn(d->a.record, &context, "slow_disk",
                  has_room ? "the private state is still being saved at the next due point that "
                             "saves it; use a faster disk for run.state_dir, or a larger "
                             "run.save_every"
                           : "the private state is still being saved at the next due point that "
                             "saves it. Training waits, because there is no memory for a second "
                             "copy. Use a faster disk for run.state_dir, or a larger "
                             "run.save_every");
}

/* Returns at once if no save is in progress, or if there is memory for a second copy. Otherwise it
 * waits for the disk, and an interrupt ends that. A failure of the last save is returned. */
static diloco_status find_room(dl_driver *d)
{
    if (dl_saver_writes(d->saver)) {
        const bool has_room = d->a.saves.has_room(d->a.user, 1);
        warn_slow(d, has_room);
        if (has_room) return DILOCO_OK;
    }
    return dl_saver_wait(d->saver, UINT64_MAX, d->a.interrupted);
}

/* Returns the fragment whose tensors the capture also copies. A round of overlap (overlap =
 * "round", "eager") begins at the capture and changes the tensors. Then `copy` copies them before
 * it. */
static int captured_with_copy(const dl_driver *d, uint64_t entry)
{
    const dl_schedule *s = &d->pace.schedule;
    if (s->overlap != DL_OVERLAP_STEPS) return DL_NO_FRAGMENT;
    return (int)dl_schedule_fragment(s, entry, dl_state_commits(dl_exec_state(d->a.exec)));
}

static diloco_status save_and_capture(dl_driver *d, uint64_t entry)
{
    DL_TRY(save(d));
    return take_now(d, entry);
}

/* Copies the local state, captures, and lets the saver write the copy. Pieces that the trainer puts
 * together are filled without the lock. Moments of a device take long, and the exchange needs the
 * lock meanwhile. The facts are those before the capture. The saver begins after the capture, which
 * is then not slowed by it, and under the same lock: the exchange uploads no contribution before
 * its save is done (contribute). If the capture fails, as with values that are not finite, the file
 * keeps the last good state. */
static diloco_status capture_and_save(dl_driver *d, uint64_t entry)
{
    DL_TRY(find_room(d));
    DL_TRY(d->a.saves.pull(d->a.user));
    const int slot = dl_saver_take(d->saver);
    if (!d->a.saves.begin(d->a.user, slot)) {
        dl_saver_cancel(d->saver);
        dl_log(DILOCO_LOG_WARN, "training waits while the private state is saved: the exchange "
                                "uses the memory of its copy");
        return save_and_capture(d, entry);
    }
    diloco_status status = d->a.saves.fill(d->a.user, slot);
    dl_driver_lock(d);
    if (!status) status = d->a.saves.copy(d->a.user, slot, captured_with_copy(d, entry));
    if (!status) {
        status = take_locked(d, entry);
        d->a.saves.rest(d->a.user, slot);
    }
    if (status)
        dl_saver_cancel(d->saver);
    else
        dl_saver_begin(d->saver, slot, entry);
    dl_driver_unlock(d);
    return status;
}

/* Returns whether there is memory for a copy. It is taken at the first due point that saves. By
 * then the trainer has its moments and its activations, so the free memory is known. Where there is
 * too little, a later due point tries again. */
static bool can_copy(dl_driver *d)
{
    if (d->a.saves.has_room(d->a.user, 0)) return true;
    if (!d->trainer.warned_full)
        dl_log(DILOCO_LOG_WARN, "%s: training waits while it is saved (run.save_beside)",
               diloco_error_text());
    d->trainer.warned_full = true;
    return false;
}

/* Saves before anything of the capture is uploaded. If no other thread uploads, it saves after the
 * capture. Then the residual of a later generation moves on by that capture, too (P16, P17). An
 * exchange with its own thread may upload the capture at once, so the save precedes it there, or is
 * awaited by the exchange. */
diloco_status dl_driver_save_and_capture(dl_driver *d, uint64_t entry)
{
    const bool saves = save_is_due(d, entry);
    if (saves && d->saver && d->thread.beside && can_copy(d)) return capture_and_save(d, entry);
    if (saves && d->thread.beside) return save_and_capture(d, entry);
    DL_TRY(take_now(d, entry));
    return saves ? save(d) : DILOCO_OK;
}

static diloco_status write_state(void *driver, int slot)
{
    const dl_driver *d = driver;
    return d->a.saves.write(d->a.user, slot);
}

static void end_slot(void *driver, int slot)
{
    const dl_driver *d = driver;
    d->a.saves.end(d->a.user, slot);
}

diloco_status dl_driver_make_saver(dl_driver *d)
{
    const dl_saver_args args = {.write = write_state,
                                .full = warn_full,
                                .replaced = warn_replaced,
                                .released = end_slot,
                                .user = d,
                                .patience_s = d->a.store_timeout_s};
    return dl_saver_create(&d->saver, &args);
}

diloco_status dl_driver_await_saved(dl_driver *d, uint64_t entry)
{
    return dl_saver_wait(d->saver, entry, NULL);
}

diloco_status dl_driver_begin_save(dl_driver *d)
{
    dl_saver_hold(d->saver);
    const diloco_status status = dl_saver_wait(d->saver, UINT64_MAX, d->a.interrupted);
    if (status != DILOCO_EINTERRUPTED) return DILOCO_OK;
    dl_saver_release(d->saver);
    return status;
}

int dl_driver_spare_slot(dl_driver *d)
{
    return d->saver ? dl_saver_spare(d->saver) : DL_NO_SLOT;
}

void dl_driver_end_save(dl_driver *d, bool saved)
{
    if (saved)
        dl_saver_saved(d->saver);
    else
        dl_saver_release(d->saver);
}
