/* join.c - creates, joins and resumes a run, and loads the private state of a resume.
 *
 *     run.json --> lock and local state --> generation --> exchange, heartbeats
 *     --> newest snapshot, the entries after it --> train
 *
 * A failure on the way undoes everything before it, so that a caller may try again. */
#include "base/run_kind.h"
#include "run/handle.h"

#include "base/log.h"
#include "exchange/generations.h"
#include "protocol/logical_clients.h"
#include "run/open.h"
#include "run/own_trainer.h"
#include "run/resume_warnings.h"
#include "run/store_patience.h"
#include "state/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run whose objects are signed needs this machine's key, from its creation on, or as soon as
 * run.json shows it. */
static diloco_status take_key(diloco_run *run, dl_policy policy)
{
    if (policy == DL_TRUSTED || run->signer) return DILOCO_OK;
    return dl_run_signer(&run->signer, &run->config);
}

/* ---- waiting for the store --------------------------------------------------------------- */

static bool is_interrupted(const void *user)
{
    const diloco_run *run = user;
    return atomic_load(&run->calls.stop);
}

/* Waits before another attempt at a part of the join. The first wait is a warning in the record. */
static diloco_status wait_to_join(diloco_run *run, dl_patience *p)
{
    const dl_event_context context = {.replica = run->replica};
    if (p->first) dl_event_warn(&run->record, &context, "unreachable", diloco_error_text());
    dl_patience_pause(p, is_interrupted, run);
    return atomic_exchange(&run->calls.stop, false)
               ? dl_fail(DILOCO_EINTERRUPTED, "interrupted while joining the run")
               : DILOCO_OK;
}

/* ---- run.json ---------------------------------------------------------------------------- */

static diloco_status create_or_read(diloco_run *run, const dl_run_creation *what)
{
    dl_run_coord coord;
    const dl_store_address address = dl_run_address(coord, run->config.store, &run->config);
    if (!run->store) DL_TRY(dl_store_open_at(&run->store, &address, true));
    dl_store_count_into(run->store, &run->traffic);
    return dl_run_create_or_read(&run->file, &run->file_digest, run->store, what);
}

/* Returns whether the store has failed in a way that may recover, so that the run is there. A store
 * that could not be opened has counted no call. */
static bool store_failed(const diloco_run *run, const dl_patience *p, diloco_status status)
{
    const bool failed = run->store ? dl_patience_store_failed(p, run->store, status)
                                   : status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT ||
                                         status == DILOCO_EIO || status == DILOCO_EFULL;
    return failed && dl_run_was_here(&run->config, run->replica);
}

/* A process that is started again waits for a store that fails. The first process of a replica does
 * not, because its store may have been misspelled. */
static diloco_status wait_for_run(diloco_run *run, const dl_run_creation *what)
{
    dl_patience p = {0};
    for (;;) {
        if (run->store) dl_patience_call(&p, run->store);
        diloco_status status = create_or_read(run, what);
        const bool failed = store_failed(run, &p, status);
        if (!dl_patience_again(&p, failed, &status, run->config.store_timeout_s)) return status;
        DL_TRY(wait_to_join(run, &p));
    }
}

/* Creates run.json with theta0, or reads the existing one (public, run.h). A second call does
 * nothing, so a join after an explicit create costs no request. The device's values are pulled
 * first, because theta0 is hashed and uploaded from host memory. Options on which replicas must
 * agree are then taken from run.json (dl_runfile_take). Whether the run has keys may be known only
 * then, so take_key is called twice. */
diloco_status diloco_run_create(diloco_run *run)
{
    if (run->created) return DILOCO_OK;
    if (run->model.n_tensors == 0)
        return dl_fail(DILOCO_EINVAL, "no tensors are registered: there is nothing to train");
    DL_TRY(dl_run_make_mirrors(run));
    DL_TRY(dl_mirrors_pull(run->model.mirrors, DL_ALL_FRAGMENTS, run->pools.trainer));
    DL_TRY(take_key(run, run->config.roster));
    const dl_run_creation what = {.config = &run->config,
                                  .tensors = run->model.tensors,
                                  .n_tensors = run->model.n_tensors,
                                  .data_digest = run->data_digest,
                                  .replica = run->replica,
                                  .base = &run->model.base,
                                  .signer = run->signer,
                                  .tally = &run->traffic};
    DL_TRY(wait_for_run(run, &what));
    dl_run_note_unread(run);
    dl_runfile_take(&run->config, &run->file);
    DL_TRY(take_key(run, run->file.identity.policy));
    run->created = true;
    return DILOCO_OK;
}

/* ---- claiming --------------------------------------------------------------------------- */

static diloco_status claim_once(diloco_run *run)
{
    return dl_run_claim_generation(&run->self, run->store, run->replica, &run->file, &run->config,
                                   run->signer);
}

static diloco_status confirm_once(diloco_run *run)
{
    return dl_run_confirm_claim(&run->self, run->store, &run->file, run->signer);
}

/* Calls `attempt` until the store does not fail. */
static diloco_status attempt_again(diloco_run *run, diloco_status (*attempt)(diloco_run *run))
{
    dl_patience p = {0};
    for (;;) {
        dl_patience_call(&p, run->store);
        diloco_status status = attempt(run);
        const bool failed = dl_patience_store_failed(&p, run->store, status);
        if (!dl_patience_again(&p, failed, &status, run->config.store_timeout_s)) return status;
        DL_TRY(wait_to_join(run, &p));
    }
}

/* Claims this replica's generation. A claim that failed has had no effect, or has used a number. In
 * the second case a new name is refused as another replica's, and the caller chooses a free one. */
static diloco_status claim(diloco_run *run)
{
    DL_TRY(attempt_again(run, claim_once));
    return attempt_again(run, confirm_once);
}

/* ---- local state ------------------------------------------------------------------------ */

/* Opens the folder of the local state. A disk that has become full or read-only since an earlier
 * process of this replica is waited for, as a store is. */
static diloco_status open_state(diloco_run *run)
{
    const char *folder = run->folders.local_dir;
    dl_patience p = {0};
    for (;;) {
        diloco_status status = dl_local_open(&run->local, folder, run->replica);
        const bool failed =
            status == DILOCO_EFULL || (status && dl_local_is_read_only(folder, run->replica));
        if (!dl_patience_again(&p, failed, &status, run->config.store_timeout_s)) return status;
        DL_TRY(wait_to_join(run, &p));
    }
}

/* Opens run.state_dir, or a folder beside a store that is a folder. */
static diloco_status open_local(diloco_run *run)
{
    if (strcmp(run->config.state_dir, "none") == 0) return DILOCO_OK;
    DL_TRY(dl_run_state_dir(run->folders.local_dir, &run->config));
    const diloco_status status = open_state(run);
    if (status != DILOCO_EINVAL || !run->config.first_generation) return status;
    /* a process on this machine has the lock */
    return dl_run_refuse_twin(run->replica, run->store);
}

/* Restores the trainer's counters from the saved facts. Position, step, shard and end of the
 * samples are the same for all fragments. They are saved once and copied into each fragment's
 * statistics. The mean loss is derived from its sum. */
static void take_progress(diloco_run *run, const dl_local_facts *f)
{
    run->trained.at =
        (dl_progress){.step = f->step, .shard = f->shard, .next_sample = f->next_sample};
    run->trained.position = f->pace.position;
    for (size_t i = 0; i < run->trained.n_fragments; i++) {
        const dl_local_fragment *p = &f->fragments[i];
        run->trained.loss_sum[i] = p->loss_sum;
        dl_train_stats *w = &run->trained.work[i];
        *w = p->stats;
        w->step = f->step;
        w->shard = f->shard;
        w->end_sample = f->next_sample;
        w->position = f->pace.position;
        w->loss = p->stats.steps ? dl_mean_loss(p->loss_sum, p->stats.steps) : 0;
        run->room.bases[i] = p->base;
    }
}

/* Loads the saved state, if there is any. Returns OK and leaves *facts empty if nothing was saved:
 * the replica joins with the shared model. A damaged or foreign file is an error and not a reason
 * to join without it. The operator decides, since moving it away loses the inner moments. Captures
 * in flight are unpacked here, before the driver's first REJOIN reads the log. */
static diloco_status load_local(diloco_run *run, dl_local_facts *facts)
{
    if (!run->local) return DILOCO_OK;
    const diloco_status status = dl_local_load(
        run->local, facts, run->file.id, run->file.manifest.digest, run->model.tensors,
        run->model.n_tensors, run->model.privates, run->model.n_privates, true);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    if (status == DILOCO_EPROTO || status == DILOCO_EDIFFERS) {
        char why[512];
        snprintf(why, sizeof why, "%s", diloco_error_text());
        return dl_fail(status, "%s; move %s/%s away to join without it", why,
                       run->folders.local_dir, run->replica);
    }
    DL_TRY(status);
    DL_TRY(dl_run_push_restored(run));
    run->join.resumed = true;
    take_progress(run, facts);
    return dl_exec_unpack_in_flight(run->exec);
}

/* ---- joining ---------------------------------------------------------------------------- */

/* Returns the number of threads of a pool: run.threads, or this process's part of the cores.
 * Replicas of one run on one machine divide the cores among them. */
static int threads_of(const dl_config *c)
{
    const int64_t local = c->local_replicas ? c->local_replicas : c->replicas;
    if (c->threads) return (int)c->threads;
    return (int)dl_size_max(1, (size_t)dl_cores() / (size_t)local);
}

/* The shard is the number in the replica's name ("r3"). So a replica keeps its shard in all its
 * generations, and machines need not agree on it. */
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

/* Lines to members do not share one link as a store's do, so all are read at once unless the option
 * says otherwise. */
static int fetchers_of(const diloco_run *run)
{
    enum { MOST = 16 };
    const int64_t given = run->config.fetchers, others = run->config.replicas;
    if (!run->peers || dl_config_given(&run->config, "run.fetchers")) return (int)given;
    return (int)(others < given ? given : others < MOST ? others : MOST);
}

static diloco_status await_saved(void *user, uint64_t entry)
{
    const diloco_run *run = user;
    return dl_driver_await_saved(run->driver, entry);
}

/* Creates the exchange with two copies of the state. One is the current state, which the trainer
 * may read, and the other is the result of the entry that is being computed. */
static diloco_status make_exec(diloco_run *run)
{
    const dl_exec_args args = {
        .store = run->store,
        .run = &run->file,
        .run_digest = run->file_digest,
        .self = run->self,
        .tensors = run->model.tensors,
        .mirrors = run->model.mirrors,
        .gradient_mirrors = run->model.gradient_mirrors,
        .moves = run->model.moves.prepare ? &run->model.moves : NULL,
        .gradients = run->model.has_gradients ? run->model.gradients : NULL,
        .n_tensors = run->model.n_tensors,
        .max_members = dl_clients_max_members(&run->config),
        .spool_dir = dl_run_spool_dir(run->folders.spool, &run->config, &run->file),
        .offload_dir = dl_run_offload_dir(run->folders.offload, &run->config),
        .n_copies = 2,
        .signer = run->signer,
        .beside = run->join.beside,
        .lent_len = dl_run_lent_len(run),
        .n_fetchers = fetchers_of(run),
        .peers = run->peers,
        .await_saved = await_saved,
        .saved_user = run,
        .probe = run->config.check_probe > 0 ? run->hooks.probe : NULL,
        .probe_user = run->hooks.probe_user,
        .pool = run->pools.exchange,
        .trainer_pool = run->pools.trainer};
    return dl_exec_create(&run->exec, &args);
}

/* Adapts the federated worker's callback to the driver's, whose `user` is the run. */
static diloco_status work_for_clients(void *user, bool *worked)
{
    diloco_run *run = user;
    return run->workers.worker_hooks.work(run->workers.worker_hooks.user, worked);
}

/* The lock on the state proves that the generation which saved it has ended, as have those that it
 * found ended itself. It may have ended before it took over from one of them. */
static dl_former_generations former_generations(const diloco_run *run, const dl_local_facts *facts)
{
    if (!run->join.resumed || facts->generation == DL_GENERATION_ANY)
        return (dl_former_generations){.n = 0};
    dl_former_generations formers = facts->formers;
    if (formers.n == DL_FORMER_GENERATIONS_MAX) { /* the oldest is forgotten */
        formers.n--;
        memmove(formers.at, formers.at + 1, formers.n * sizeof formers.at[0]);
    }
    formers.at[formers.n++] = facts->generation;
    return formers;
}

/* Returns whether this replica may close entries. In a run with keys, only the committers of
 * run.json may (P7.25). */
static bool may_commit(const diloco_run *run)
{
    const dl_identity *identity = &run->file.identity;
    return identity->policy == DL_TRUSTED ||
           dl_identity_may_commit(identity, dl_signer_public(run->signer), run->replica);
}

/* Checks that the run, as it was created, allows run.peers. Members read whole contributions of
 * each other, and a committer in a roster of keys reads from the store (P8). */
static diloco_status check_peers(const diloco_run *run)
{
    dl_topology_kind topology;
    DL_TRY(dl_topology_choose(&topology, &run->config, &run->file.manifest));
    if (topology != DL_TOPOLOGY_ALLGATHER)
        return dl_fail(DILOCO_EREFUSED,
                       "run.peers = true moves whole contributions between members, and this run "
                       "combines them by \"%s\": make it with server.diloco.exchange = "
                       "\"allgather\", or leave run.peers false",
                       dl_topology_names[topology]);
    if (run->file.identity.policy == DL_CLOSED && run->file.identity.n_committers == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "run.peers = true spares nothing where every member of a roster of keys "
                       "closes entries, since these read from the store: make the run with "
                       "run.committers, or leave run.peers false");
    return DILOCO_OK;
}

/* Starts serving this replica's contributions to other members, if run.peers is set. The served
 * objects are kept in the replica's state folder. `reads`: a replica that may commit in a run with
 * keys serves others, and itself reads from the store alone (P8.6). */
static diloco_status make_peers(diloco_run *run)
{
    if (!run->config.peers) return DILOCO_OK;
    DL_TRY(check_peers(run));
    const int len = snprintf(run->folders.served, sizeof run->folders.served, "%s/%s/peers",
                             run->folders.local_dir, run->replica);
    if (len < 0 || (size_t)len >= sizeof run->folders.served)
        return dl_fail(DILOCO_EINVAL, "run.state_dir is too long for run.peers");
    const bool trusted = run->file.identity.policy == DL_TRUSTED;
    const dl_peers_args args = {.config = &run->config,
                                .dir = run->folders.served,
                                .signer = run->signer,
                                .replica = run->replica,
                                .max_members = dl_clients_max_members(&run->config),
                                .reads = trusted || !may_commit(run)};
    return dl_peers_create(&run->peers, &args);
}

/* Creates the driver, and with it the heartbeats. `follows`: this replica leaves closing to others,
 * either by choice or because its key is not a committer's. */
static diloco_status make_driver(diloco_run *run, const dl_local_facts *facts)
{
    dl_driver_args args = {.store = run->store,
                           .exec = run->exec,
                           .record = &run->record,
                           .run = &run->file,
                           .self = run->self,
                           .formers = former_generations(run, facts),
                           .store_timeout_s = run->config.store_timeout_s,
                           .save_every = (uint64_t)run->config.save_every,
                           .early = run->join.early,
                           .beside = run->join.beside,
                           .lr = run->hooks.lr,
                           .lr_user = run->hooks.lr_user,
                           .on_wait = run->hooks.wait,
                           .fresh = dl_run_fresh,
                           .user = run,
                           .work = run->workers.worker_hooks.work ? work_for_clients : NULL,
                           .signer = run->signer,
                           .peers = run->peers,
                           .follows = run->workers.worker_hooks.follows || !may_commit(run),
                           .trace_protocol = run->config.trace_protocol,
                           .trained = run->trained.work,
                           .interrupted = &run->calls.stop};
    DL_TRY(dl_run_set_saves(run, &args));
    return dl_driver_create(&run->driver, &args);
}

/* The exchange's arrays of this replica are private, as inner moments are. They are appended after
 * the caller's privates, so that dl_run_unjoin can remove them by count. */
static diloco_status keep_exchanges_own(diloco_run *run)
{
    const dl_exec_private *p;
    for (size_t i = 0; (p = dl_exec_private_at(run->exec, i)); i++) {
        if (run->model.n_privates == DL_MAX_PRIVATES)
            return dl_fail(DILOCO_EINVAL, "more than %d private pieces",
                           DL_MAX_PRIVATES - DL_EXEC_MAX_PRIVATES);
        run->model.privates[run->model.n_privates++] = (dl_private){
            .name = p->name, .data = p->data, .len = p->len, .f32 = p->f32, .in_use = p->in_use};
        run->model.n_exchanges++;
    }
    return DILOCO_OK;
}

/* Derives from the schedule whether contributions move during training, and allocates the arrays
 * per fragment. A join that failed may be repeated; then the arrays exist already. They are freed
 * by diloco_run_close. */
static diloco_status take_memory(diloco_run *run)
{
    dl_schedule schedule;
    const size_t n = run->trained.n_fragments = (size_t)run->file.manifest.n_fragments;
    DL_TRY(dl_schedule_of(&schedule, &run->config, (int)n));
    run->join.beside = schedule.delay > 0 || run->join.split;
    run->join.early = schedule.early;
    if (run->trained.work) return DILOCO_OK; /* a second attempt */
    run->trained.work = calloc(n, sizeof *run->trained.work);
    run->trained.loss_sum = calloc(n, sizeof *run->trained.loss_sum);
    run->room.saved = calloc(n, sizeof *run->room.saved);
    run->room.bases = calloc(n, sizeof *run->room.bases);
    run->room.captures = calloc(DL_PACE_MAX_CAPTURES, sizeof *run->room.captures);
    run->room.paces = calloc(n, sizeof *run->room.paces);
    run->room.places = calloc(run->model.n_tensors, sizeof *run->room.places);
    if (run->trained.work && run->trained.loss_sum && run->room.saved && run->room.bases &&
        run->room.captures && run->room.paces && run->room.places)
        return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a run");
}

/* Sets the counters of a replica that has trained nothing. A loaded private state replaces them. An
 * extended run has used the samples before its first step. */
static void begin_progress(diloco_run *run)
{
    const uint64_t used = (uint64_t)run->config.first_step * dl_run_samples_a_step(run);
    run->trained.position = 0;
    run->trained.at = (dl_progress){.shard = shard_of(run), .next_sample = used};
    for (size_t f = 0; f < run->trained.n_fragments; f++)
        dl_run_fresh(run, (uint32_t)f);
}

/* A replica that may close an entry has to be able to measure what the run's checks need. */
static diloco_status must_be_able_to_probe(const diloco_run *run)
{
    if (run->config.check_probe <= 0 || !may_commit(run)) return DILOCO_OK;
    if (run->model.has_gradients)
        return dl_fail(DILOCO_EREFUSED,
                       "this run has check.probe, which moves the shared model as a contribution "
                       "says, and this program contributes gradients (diloco_run_gradient), not "
                       "movements: leave check.probe 0");
    if (run->join.split)
        return dl_fail(DILOCO_EREFUSED,
                       "this run has check.probe, which measures on the trainer's thread, and "
                       "after diloco_run_split the exchange has one of its own: do not split");
    if (run->hooks.probe) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "this run has check.probe: a replica that closes entries measures losses, and "
                   "this program has not said how (diloco_run_on_probe)");
}

/* The exchange may use its pool while the trainer captures, copies and adopts. If contributions
 * move beside training, each of the two threads gets a pool of its own: a pool serves one caller at
 * a time. Otherwise both names refer to the same pool. */
static diloco_status make_pools(diloco_run *run)
{
    const int n_threads = threads_of(&run->config);
    DL_TRY(dl_pool_create(&run->pools.exchange, n_threads));
    run->pools.trainer = run->pools.exchange;
    return run->join.beside ? dl_pool_create(&run->pools.trainer, n_threads) : DILOCO_OK;
}

/* Carries out the join in the order of the picture above. The lock on the local state precedes the
 * claim of a generation, so two processes on one machine cannot both claim. The claim precedes
 * everything that writes under this name. Private state is loaded before the driver begins, because
 * REJOIN then reads the log from the entry that was saved. After an error the caller undoes it
 * (dl_run_unjoin). */
static diloco_status join(diloco_run *run)
{
    dl_local_facts facts;
    run->trained.began = dl_clock_now();
    DL_TRY(must_be_able_to_probe(run));
    DL_TRY(take_memory(run));
    facts = dl_run_facts_room(run);
    begin_progress(run);
    DL_TRY(make_pools(run));
    DL_TRY(open_local(run));
    /* The result is recorded even if the claim failed: a later start here must know that another
     * machine has the name. */
    const diloco_status claimed = claim(run);
    if (!claimed || (claimed == DILOCO_EFENCED && run->config.first_generation))
        dl_local_note_claim(run->local, claimed != DILOCO_OK);
    if (claimed) return claimed;
    DL_TRY(make_peers(run));
    DL_TRY(make_exec(run));
    DL_TRY(keep_exchanges_own(run));
    DL_TRY(load_local(run, &facts));
    DL_TRY(make_driver(run, &facts)); /* heartbeats begin here, before any large read (P25) */
    /* The first stop adopts the shared model, so no step may be counted before it has succeeded. */
    run->trained.due = true;
    DL_TRY(dl_driver_begin(run->driver, run->join.resumed ? &facts.pace : NULL, run->room.bases));
    DL_TRY(dl_run_check_devices(run));
    run->trained.due = false;
    dl_run_warn_of_resume(run, &facts);
    dl_run_warn_of_unread(run);
    dl_run_go_on(run);
    return DILOCO_OK;
}

/* Joins the run (public, run.h): creates it if necessary, then resumes or begins as a new replica.
 * After an error nothing of the join remains, and it may be called again. The record's sink is
 * called on the thread that joins. */
diloco_status diloco_run_join(diloco_run *run)
{
    if (run->join.joined) return dl_fail(DILOCO_EINVAL, "diloco_run_join was called before");
    run->record.owner = pthread_self();
    DL_TRY(diloco_run_create(run));
    const diloco_status status = join(run);
    if (status) {
        char why[1024];
        snprintf(why, sizeof why, "%s", diloco_error_text()); /* undoing may overwrite the text */
        dl_run_unjoin(run);
        return dl_fail(status, "%s", why);
    }
    run->join.joined = true;
    if (diloco_run_done(run)) dl_run_end_line(run);
    return DILOCO_OK;
}

/* The driver goes first, because its threads use everything else. The exchange's privates are
 * removed before the exchange, which owns their names. */
void dl_run_unjoin(diloco_run *run)
{
    dl_driver_destroy(run->driver);
    run->model.n_privates -= run->model.n_exchanges;
    run->model.n_exchanges = 0;
    dl_exec_destroy(run->exec);
    dl_peers_destroy(run->peers);
    dl_local_close(run->local);
    if (run->pools.trainer != run->pools.exchange) dl_pool_destroy(run->pools.trainer);
    dl_pool_destroy(run->pools.exchange);
    run->driver = NULL;
    run->exec = NULL;
    run->peers = NULL;
    run->local = NULL;
    run->pools.exchange = run->pools.trainer = NULL;
    run->join.joined = run->join.resumed = false;
}
