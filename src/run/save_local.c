/* save_local.c - saves the private state of a replica (PROTOCOL P16), and gives the driver what it
 * needs for saves at due points. */
#include "run/handle.h"

#include "base/run_kind.h"
#include "run/resume_warnings.h"

#include <stdio.h>
#include <string.h>

/* Returns empty facts whose arrays are the run's own. They are allocated once (take_memory),
 * because a save at a due point must not allocate. They are overwritten by the next load or
 * save. */
dl_local_facts dl_run_facts_room(diloco_run *run)
{
    return (dl_local_facts){.pace = {.captures = run->room.captures, .fragments = run->room.paces},
                            .fragments = run->room.saved,
                            .n_fragments = run->trained.n_fragments};
}

/* A gradient is not saved. Its step is repeated, since the state that it is a function of is
 * unchanged. The counters have to be those before that step (P16.6). A resume then repeats the same
 * step with the same samples. */
static void take_back_last_step(const diloco_run *run, dl_local_facts *f)
{
    f->pace.position--;
    f->step--;
    f->next_sample -= run->trained.last.samples;
    for (size_t i = 0; i < f->n_fragments; i++) {
        dl_local_fragment *p = &f->fragments[i];
        p->stats.steps--;
        p->stats.samples -= run->trained.last.samples;
        p->stats.tokens -= run->trained.last.tokens;
        p->loss_sum -= run->trained.last.loss;
    }
}

/* Facts to save with the tensors. The driver is held. So the pace, the digests of the bases and the
 * captures belong to one state of the log. The device, the instruction set and the number of
 * threads are saved for a warning only: they decide whether training repeats its bits. */
static dl_local_facts facts_now(diloco_run *run)
{
    dl_local_facts f = dl_run_facts_room(run);
    f.step = run->trained.at.step;
    f.shard = run->trained.at.shard;
    f.next_sample = run->trained.at.next_sample;
    f.manifest = run->file.manifest.digest;
    f.threads = (uint32_t)dl_pool_size(run->pools.exchange);
    const bool again =
        dl_driver_saved_now(run->driver, &f.pace, run->room.bases, &f.generation, &f.formers);
    for (size_t i = 0; i < run->trained.n_fragments; i++) {
        f.fragments[i] = (dl_local_fragment){.stats = run->trained.work[i],
                                             .loss_sum = run->trained.loss_sum[i],
                                             .base = run->room.bases[i]};
    }
    if (again && run->model.has_gradients) take_back_last_step(run, &f);
    memcpy(f.run, run->file.id, sizeof f.run);
    memcpy(f.replica, run->replica, sizeof f.replica);
    snprintf(f.isa, sizeof f.isa, "%s", dl_isa_name(dl_isa_chosen()));
    snprintf(f.device, sizeof f.device, "%s", dl_run_device_name(run));
    snprintf(f.program, sizeof f.program, "%s", DILOCO_VERSION);
    return f;
}

/* Returns whether private pieces with a fill are saved from their places. A replica that was
 * stopped at a due point saves again while it joins. Its caller has not taken the restored moments
 * yet, so a fill would replace them by those of an optimizer that has trained nothing. */
static bool holds_restored(const diloco_run *run)
{
    return run->join.resumed && !run->join.joined;
}

/* Facts and captures in flight, which the exchange may send or drop. The driver is held. */
static diloco_status facts_and_captures(dl_local_facts *out, diloco_run *run)
{
    *out = facts_now(run);
    return dl_exec_pack_in_flight(run->exec, out->pace.next_adopt);
}

static diloco_status pull_all(void *user)
{
    diloco_run *run = user;
    dl_run_skip(run);
    return dl_mirrors_pull(run->model.mirrors, DL_ALL_FRAGMENTS, run->pools.trainer);
}

static dl_local_copying copying_of(diloco_run *run, const dl_local_facts *facts)
{
    const dl_run_model *m = &run->model;
    return (dl_local_copying){.facts = facts,
                              .tensors = m->tensors,
                              .n_tensors = m->n_tensors,
                              .privates = m->privates,
                              .n_privates = m->n_privates,
                              .restored = holds_restored(run),
                              .places = run->room.places,
                              .pool = run->pools.trainer};
}

/* Gets the exchange's part of a slot's memory. The exchange may use it while it commits an entry,
 * which takes seconds with a large model. If it takes longer, as while the store does not answer,
 * the save is made without a copy. Then the pieces with a fill take memory of their own. An
 * interrupt ends the wait, and the next call does not wait again. */
static bool begin_slot(void *user, int slot)
{
    static const dl_time LIMIT = 10 * DL_SECOND, SLICE = 100 * DL_MILLISECOND;
    diloco_run *run = user;
    if (!dl_local_borrows(run->local, slot)) return true;
    const dl_time limit = dl_time_after(dl_clock_now(), run->room.missed ? 0 : LIMIT);
    void *memory;
    dl_time until;
    do {
        until = dl_time_after(dl_clock_now(), SLICE);
        memory = dl_exec_lend(run->exec, until < limit ? until : limit);
    } while (!memory && until < limit && !atomic_load(&run->calls.stop));
    dl_local_lend(run->local, slot, memory);
    run->room.missed = !memory;
    return memory != NULL;
}

static void end_slot(void *user, int slot)
{
    diloco_run *run = user;
    if (dl_local_borrows(run->local, slot)) dl_exec_give_back(run->exec);
}

/* Begins a slot whose memory is free, or returns DL_NO_SLOT. */
static int slot_for_fills(diloco_run *run)
{
    const int slot = dl_driver_spare_slot(run->driver);
    const bool usable = slot != DL_NO_SLOT && dl_local_is_reserved(run->local, slot);
    return usable && !holds_restored(run) && begin_slot(run, slot) ? slot : DL_NO_SLOT;
}

/* Puts private pieces with a fill together. The memory of a copy is there already, so it is
 * preferred: otherwise their own would be a second one. */
static diloco_status fill_pieces(diloco_run *run, int slot)
{
    const dl_local_copying args = copying_of(run, NULL);
    if (holds_restored(run)) return DILOCO_OK;
    if (slot == DL_NO_SLOT) return dl_local_fill_in_place(args.privates, args.n_privates);
    return dl_local_fill(run->local, slot, &args);
}

/* Saves what P16 lists. Tensors are pulled from a device and private pieces with a fill are put
 * together before the lock is taken, since that is slow and only the trainer changes them. Returns
 * DILOCO_EFULL if the disk is full; the caller retries (driver.c: save). */
static diloco_status save_with(diloco_run *run, int slot)
{
    const dl_run_model *m = &run->model;
    DL_TRY(pull_all(run));
    DL_TRY(fill_pieces(run, slot));
    dl_local_facts f;
    dl_driver_hold(run->driver);
    diloco_status status = facts_and_captures(&f, run);
    const dl_local_copying args = copying_of(run, &f);
    if (!status && slot == DL_NO_SLOT)
        status =
            dl_local_save(run->local, &f, m->tensors, m->n_tensors, m->privates, m->n_privates);
    else if (!status)
        status = dl_local_save_filled(run->local, slot, &args);
    dl_driver_release(run->driver);
    return status;
}

static diloco_status save_local(diloco_run *run)
{
    const int slot = slot_for_fills(run);
    const diloco_status status = save_with(run, slot);
    if (slot != DL_NO_SLOT) end_slot(run, slot);
    return status;
}

/* Clients have a private state each, and their process has none. */
static bool keeps_state(const diloco_run *run)
{
    return run->local && dl_run_kind_of(&run->config)->processes;
}

/* A save beside training may still be writing the same file, so it is awaited first. */
diloco_status dl_run_save_local(diloco_run *run)
{
    if (!keeps_state(run)) return DILOCO_OK;
    DL_TRY(dl_driver_begin_save(run->driver));
    const diloco_status status = save_local(run);
    dl_driver_end_save(run->driver, !status);
    return status;
}

/* Saves the local state at a due point (P16). Gradients are a function of the shared state and the
 * position, so runs of gradients save nothing here. */
static diloco_status save_at_due_point(void *user)
{
    diloco_run *run = user;
    return run->model.has_gradients ? DILOCO_OK : dl_run_save_local(run);
}

/* ---- saves beside training: the trainer copies, and the saver's thread writes the copy ---- */

static bool has_room(void *user, int slot)
{
    const diloco_run *run = user;
    return dl_local_has_room(run->local, slot, dl_exec_later(run->exec),
                             dl_exec_lendable(run->exec), run->pools.trainer);
}

static diloco_status fill_for_save(void *user, int slot)
{
    diloco_run *run = user;
    const dl_local_copying args = copying_of(run, NULL);
    return dl_local_fill(run->local, slot, &args);
}

/* Copies what P16 lists, except what is filled and the tensors of the fragment: the capture that
 * follows reads them, and copies them in the same pass. */
static diloco_status copy_for_save(void *user, int slot, int fragment)
{
    diloco_run *run = user;
    for (size_t i = 0; i < run->model.n_tensors; i++)
        run->room.places[i] = run->file.manifest.tensors[i].fragment == fragment ? run : NULL;
    dl_local_facts f;
    DL_TRY(facts_and_captures(&f, run));
    const dl_local_copying args = copying_of(run, &f);
    DL_TRY(dl_local_copy(run->local, slot, &args));
    dl_exec_copy_to(run->exec, run->room.places);
    return DILOCO_OK;
}

static void copy_rest(void *user, int slot)
{
    diloco_run *run = user;
    const dl_local_copying args = copying_of(run, NULL);
    dl_exec_copy_to(run->exec, NULL);
    dl_local_copy_rest(run->local, slot, &args);
}

static diloco_status write_copy(void *user, int slot)
{
    const diloco_run *run = user;
    return dl_local_write(run->local, slot);
}

static bool can_save_beside(const diloco_run *run)
{
    return keeps_state(run) && run->join.beside && run->config.save_beside &&
           !run->model.has_gradients;
}

size_t dl_run_lent_len(const diloco_run *run)
{
    size_t len = 0;
    for (size_t i = 0; i < run->model.n_privates && can_save_beside(run); i++)
        len = dl_size_max(len, run->model.privates[i].len);
    return len;
}

/* Prepares for saves beside training. The free memory is shared with the other replicas of this
 * machine, where their number is set. Captures are in flight at a due point only if several may be
 * in flight at a time. */
static diloco_status prepare_copies(diloco_run *run)
{
    const dl_run_model *m = &run->model;
    dl_schedule schedule;
    DL_TRY(dl_schedule_of(&schedule, &run->config, run->file.manifest.n_fragments));
    const int64_t n_sharing = run->config.local_replicas;
    const dl_local_copied_parts parts = {.tensors = m->tensors,
                                         .n_tensors = m->n_tensors,
                                         .privates = m->privates,
                                         .n_privates = m->n_privates,
                                         .n_sharing = n_sharing > 1 ? (size_t)n_sharing : 1,
                                         .in_flight = dl_schedule_ahead(&schedule) > 1};
    return dl_local_prepare_copies(run->local, &parts);
}

diloco_status dl_run_set_saves(diloco_run *run, dl_driver_args *args)
{
    args->saves = (dl_driver_saves){.save = save_at_due_point};
    if (!can_save_beside(run)) return DILOCO_OK;
    DL_TRY(prepare_copies(run));
    args->saves.has_room = has_room;
    args->saves.begin = begin_slot;
    args->saves.end = end_slot;
    args->saves.pull = pull_all;
    args->saves.fill = fill_for_save;
    args->saves.copy = copy_for_save;
    args->saves.rest = copy_rest;
    args->saves.write = write_copy;
    return DILOCO_OK;
}
