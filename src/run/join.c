/* join.c - creating, joining and resuming a run, and the private state that a resume takes up.
 *
 *     run.json --> lock and local state --> a life --> exchange, heartbeats --> newest snapshot,
 *     the entries after it --> train
 *
 * Whatever fails before the end is taken back, so that a caller may try again. */
#include "run/handle.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

diloco_status diloco_run_create(diloco_run *run)
{
    if (run->created) return DILOCO_OK;
    if (run->n_tensors == 0)
        return dl_fail(DILOCO_EINVAL, "no tensors are registered: there is nothing to train");
    const dl_run_creation what = {.config = &run->config,
                                  .tensors = run->tensors,
                                  .n_tensors = run->n_tensors,
                                  .data_digest = run->data_digest};
    if (!run->store) DL_TRY(dl_store_open(&run->store, run->config.store, true));
    DL_TRY(dl_run_create_or_read(&run->file, &run->file_digest, run->store, &what));
    dl_runfile_take(&run->config, &run->file);
    run->created = true;
    return DILOCO_OK;
}

/* ---- local state ------------------------------------------------------------------------ */

/* run.state_dir, or beside a folder that is the store. */
static diloco_status open_local(diloco_run *run)
{
    if (strcmp(run->config.state_dir, "none") == 0) return DILOCO_OK;
    DL_TRY(dl_run_state_dir(run->local_dir, &run->config));
    return dl_local_open(&run->local, run->local_dir, run->replica);
}

static dl_progress progress_of(const dl_local_facts *f)
{
    dl_progress p = {.step = f->step,
                     .position = f->position,
                     .next_sample = f->next_sample,
                     .loss_sum = f->loss_sum,
                     .work = {.step = f->step,
                              .steps = f->steps,
                              .samples = f->samples,
                              .tokens = f->tokens,
                              .shard = f->shard,
                              .first_sample = f->first_sample,
                              .end_sample = f->next_sample,
                              .position = f->position}};
    if (f->steps) p.work.loss = f->loss_sum / (double)f->steps;
    return p;
}

/* Takes up what was saved, if there is something. */
static diloco_status load_local(diloco_run *run, dl_machine_start *start, dl_local_facts *facts)
{
    if (!run->local) return DILOCO_OK;
    const diloco_status status =
        dl_local_load(run->local, facts, run->file.id, run->file.manifest.digest, run->tensors,
                      run->n_tensors, run->privates, run->n_privates, true);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    if (status == DILOCO_EPROTO || status == DILOCO_EDIFFERS) {
        char why[512];
        snprintf(why, sizeof why, "%s", diloco_error_text());
        return dl_fail(status, "%s; move %s/%s away to join without it", why, run->local_dir,
                       run->replica);
    }
    DL_TRY(status);
    *start = (dl_machine_start){.resumed = true,
                                .due = facts->due,
                                .resumed_entry = facts->entry,
                                .resumed_position = facts->position,
                                .resumed_base = facts->base};
    run->resumed = true;
    run->at = progress_of(facts);
    return DILOCO_OK;
}

diloco_status dl_run_save_local(diloco_run *run, const dl_progress *p, uint64_t entry, bool due)
{
    if (!run->local) return DILOCO_OK;
    dl_local_facts f = {.entry = entry,
                        .position = p->position,
                        .step = p->step,
                        .steps = p->work.steps,
                        .samples = p->work.samples,
                        .tokens = p->work.tokens,
                        .shard = p->work.shard,
                        .first_sample = p->work.first_sample,
                        .next_sample = p->next_sample,
                        .loss_sum = p->loss_sum,
                        .due = due,
                        .base = dl_exec_state(run->exec)->now[0].digest,
                        .manifest = run->file.manifest.digest,
                        .threads = (uint32_t)dl_pool_size(run->pool)};
    memcpy(f.run, run->file.id, sizeof f.run);
    memcpy(f.replica, run->replica, sizeof f.replica);
    snprintf(f.isa, sizeof f.isa, "%s", dl_isa_name(dl_isa_chosen()));
    snprintf(f.program, sizeof f.program, "%s", DILOCO_VERSION);
    return dl_local_save(run->local, &f, run->tensors, run->n_tensors, run->privates,
                         run->n_privates);
}

/* At a due point (P16). Gradients are a function of the shared state and the position, so with
 * them there is nothing to lose. */
static diloco_status save_at_due_point(void *user, uint64_t entry, uint64_t position)
{
    diloco_run *run = user;
    (void)position; /* at.position, by then */
    if (run->has_gradients) return DILOCO_OK;
    DL_TRY(dl_run_save_local(run, &run->at, entry, true));
    run->due_saved = true;
    return DILOCO_OK;
}

static void warn_if_machine_differs(diloco_run *run, const dl_local_facts *facts)
{
    const dl_event_context c = {.replica = run->replica};
    const char *isa = dl_isa_name(dl_isa_chosen());
    const int threads = dl_pool_size(run->pool);
    char text[256];
    if (!run->resumed || (!strcmp(facts->isa, isa) && facts->threads == (uint32_t)threads)) return;
    snprintf(text, sizeof text,
             "saved on %s with %u threads, resumed on %s with %d: the run goes on correctly, its "
             "training is not bit for bit what it would have been",
             facts->isa, facts->threads, isa, threads);
    dl_event_warn(&run->record, &c, "machine", text);
}

/* ---- joining ---------------------------------------------------------------------------- */

static int threads_of(const dl_config *c)
{
    const int64_t local = c->local_replicas ? c->local_replicas : c->replicas;
    if (c->threads) return (int)c->threads;
    return (int)dl_size_max(1, (size_t)dl_cores() / (size_t)local);
}

/* The shard is the number in the replica's name ("r3"), so that a replica keeps its shard
 * through all its lives and machines need not talk about it. */
static uint64_t shard_of(const diloco_run *run)
{
    const char *digits = run->replica + strcspn(run->replica, "0123456789");
    if (!*digits && run->config.replicas > 1)
        dl_log(DILOCO_LOG_WARN,
               "replica %s has no number in its name and takes shard 0 of the data; call replicas "
               "r0, r1, … to give each its own",
               run->replica);
    return strtoull(digits, NULL, 10) % (uint64_t)run->config.replicas;
}

static diloco_status make_exec(diloco_run *run)
{
    const dl_exec_args args = {.store = run->store,
                               .run = &run->file,
                               .run_digest = run->file_digest,
                               .self = run->self,
                               .tensors = run->tensors,
                               .gradients = run->has_gradients ? run->gradients : NULL,
                               .n_tensors = run->n_tensors,
                               .max_members = dl_run_max_members(&run->config),
                               .spool_dir = dl_run_spool_dir(run->spool, &run->config, &run->file),
                               .n_copies = 2,
                               .pool = run->pool};
    return dl_exec_create(&run->exec, &args);
}

static diloco_status make_driver(diloco_run *run)
{
    const dl_driver_args args = {.url = run->config.store,
                                 .store = run->store,
                                 .exec = run->exec,
                                 .record = &run->record,
                                 .run = &run->file,
                                 .self = run->self,
                                 .store_timeout_s = run->config.store_timeout_s,
                                 .lr = run->lr,
                                 .lr_user = run->lr_user,
                                 .save = save_at_due_point,
                                 .save_user = run,
                                 .work = &run->at.work,
                                 .interrupted = &run->stop};
    return dl_driver_create(&run->driver, &args);
}

static diloco_status join(diloco_run *run)
{
    dl_machine_start start = {.resumed = false};
    dl_local_facts facts = {.threads = 0};
    run->began = dl_clock_now();
    run->at = (dl_progress){.work.shard = shard_of(run)};
    DL_TRY(dl_pool_create(&run->pool, threads_of(&run->config)));
    DL_TRY(open_local(run));
    DL_TRY(load_local(run, &start, &facts));
    DL_TRY(dl_run_claim_life(&run->self, run->store, run->replica, &run->file));
    DL_TRY(make_exec(run));
    DL_TRY(make_driver(run)); /* beats from here, before anything large is read (P25) */
    DL_TRY(dl_driver_begin(run->driver, &start));
    warn_if_machine_differs(run, &facts);
    /* What was trained before is still to be sent, unless the log went on without it. */
    dl_run_begin_interval(run, !run->resumed || dl_driver_adopted(run->driver));
    return DILOCO_OK;
}

diloco_status diloco_run_join(diloco_run *run)
{
    if (run->joined) return dl_fail(DILOCO_EINVAL, "diloco_run_join a second time");
    DL_TRY(diloco_run_create(run));
    const diloco_status status = join(run);
    if (status) {
        char why[1024];
        snprintf(why, sizeof why, "%s", diloco_error_text()); /* undoing may word over it */
        dl_run_unjoin(run);
        return dl_fail(status, "%s", why);
    }
    run->joined = true;
    if (diloco_run_done(run)) dl_run_end_line(run);
    return DILOCO_OK;
}

void dl_run_unjoin(diloco_run *run)
{
    dl_driver_destroy(run->driver);
    dl_exec_destroy(run->exec);
    dl_local_close(run->local);
    dl_pool_destroy(run->pool);
    run->driver = NULL;
    run->exec = NULL;
    run->local = NULL;
    run->pool = NULL;
    run->joined = run->resumed = false;
}
