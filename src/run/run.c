/* run.c - the public handle of run.h: registration, creating and joining, counting steps, the
 * private state. The protocol itself is machine.c, its life driver.c. */
#include <diloco/run.h>

#include "base/clock.h"
#include "run/driver.h"
#include "run/local.h"
#include "run/open.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PRIVATES = 64, SPARE_MEMBERS = 64 };

struct diloco_run {
    dl_config      config;
    char           replica[DL_REPLICA_MAX + 1];
    diloco_tensor *tensors; /* owned, with owned names; data is the caller's */
    const float  **gradients; /* [n_tensors], NULL where there is none */
    size_t         n_tensors;
    bool           has_gradients;
    dl_private     privates[MAX_PRIVATES];
    char          *private_names[MAX_PRIVATES];
    size_t         n_privates;
    char           data_digest[DL_HASH_HEX + 1];

    dl_store   *store;
    dl_runfile  file;
    dl_hash     file_digest;
    dl_life     self;
    dl_local   *local; /* NULL: nothing is kept (run.state_dir = "none") */
    dl_pool    *pool;
    dl_exec    *exec;
    dl_driver  *driver;
    dl_record   record;
    double (*lr)(void *user, uint64_t entry);
    void       *lr_user;
    atomic_bool interrupted;
    bool        created, resumed, due; /* due: an exchange is under way */

    /* Counters. Those of `work` run since the base. */
    uint64_t     step, position, tokens, next_sample;
    double       loss_sum;
    dl_exec_work work;
    diloco_step_report last; /* as counted by the last step */
    dl_time      joined, trained_since;
    dl_time      training; /* time between exchanges */
};

/* ---- registration ----------------------------------------------------------------------- */

diloco_status diloco_run_open(diloco_run **out, const diloco_config *config, const char *replica)
{
    *out = NULL;
    DL_TRY(dl_isa_check());
    if (!dl_replica_name_ok(replica))
        return dl_fail(DILOCO_EINVAL,
                       "a replica's name is 1 to %d of letters, digits, _ and -: \"%s\" is not",
                       DL_REPLICA_MAX, replica);
    if (!config->store[0])
        return dl_fail(DILOCO_EINVAL, "run.store is not set: name a folder for the run's log");
    DL_TRY(dl_run_check(config));
    diloco_run *run = calloc(1, sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "no memory for a run");
    run->config = *config;
    memcpy(run->replica, replica, strlen(replica) + 1);
    dl_record_init(&run->record);
    *out = run;
    return DILOCO_OK;
}

static diloco_status must_not_be_joined(const diloco_run *run)
{
    if (!run->driver) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "register everything before diloco_run_join");
}

diloco_status diloco_run_tensor(diloco_run *run, const diloco_tensor *tensor)
{
    DL_TRY(must_not_be_joined(run));
    if (!tensor->name || !tensor->data)
        return dl_fail(DILOCO_EINVAL, "a tensor needs a name and a place");
    const size_t   n = run->n_tensors + 1;
    diloco_tensor *t = realloc(run->tensors, n * sizeof *t);
    if (t) run->tensors = t;
    const float **g = realloc(run->gradients, n * sizeof *g);
    if (g) run->gradients = g;
    char *name = strdup(tensor->name);
    if (!t || !g || !name) {
        free(name);
        return dl_fail(DILOCO_ENOMEM, "no memory for tensor %s", tensor->name);
    }
    t[n - 1]       = *tensor;
    t[n - 1].name  = name;
    g[n - 1]       = NULL;
    run->n_tensors = n;
    return DILOCO_OK;
}

diloco_status diloco_run_gradient(diloco_run *run, const char *tensor, const float *gradient)
{
    DL_TRY(must_not_be_joined(run));
    for (size_t i = 0; i < run->n_tensors; i++) {
        if (strcmp(run->tensors[i].name, tensor) != 0) continue;
        if (run->tensors[i].dtype != DILOCO_F32)
            return dl_fail(DILOCO_EINVAL, "tensor %s is not f32: it has no gradient", tensor);
        run->gradients[i]  = gradient;
        run->has_gradients = true;
        return DILOCO_OK;
    }
    return dl_fail(DILOCO_EINVAL, "register tensor %s before its gradient", tensor);
}

diloco_status diloco_run_private(diloco_run *run, const char *name, void *data, size_t len)
{
    DL_TRY(must_not_be_joined(run));
    if (run->n_privates == MAX_PRIVATES)
        return dl_fail(DILOCO_EINVAL, "more than %d private pieces", MAX_PRIVATES);
    char *copy = strdup(name);
    if (!copy) return dl_fail(DILOCO_ENOMEM, "no memory for %s", name);
    run->private_names[run->n_privates] = copy;
    run->privates[run->n_privates++]    = (dl_private){.name = copy, .data = data, .len = len};
    return DILOCO_OK;
}

diloco_status diloco_run_data_digest(diloco_run *run, const char *hex)
{
    dl_hash ignored;
    if (!dl_hash_from_hex(&ignored, hex, strlen(hex)))
        return dl_fail(DILOCO_EINVAL, "a data digest is %d hex digits", DL_HASH_HEX);
    memcpy(run->data_digest, hex, DL_HASH_HEX + 1);
    return DILOCO_OK;
}

void diloco_run_on_record(diloco_run *run, diloco_record_fn fn, void *user)
{
    run->record.sink = fn;
    run->record.user = user;
}

void diloco_run_record(diloco_run *run, const char *line, size_t len)
{
    dl_record_line(&run->record, line, len);
}

void diloco_run_on_lr(diloco_run *run, double (*fn)(void *user, uint64_t entry), void *user)
{
    run->lr      = fn;
    run->lr_user = user;
}

void diloco_run_interrupt(diloco_run *run) { atomic_store(&run->interrupted, true); }

/* ---- creating and joining --------------------------------------------------------------- */

diloco_status diloco_run_create(diloco_run *run)
{
    if (run->created) return DILOCO_OK;
    if (run->n_tensors == 0)
        return dl_fail(DILOCO_EINVAL, "no tensors are registered: there is nothing to train");
    const dl_run_creation what = {.config      = &run->config,
                                  .tensors     = run->tensors,
                                  .n_tensors   = run->n_tensors,
                                  .data_digest = run->data_digest};
    if (!run->store) DL_TRY(dl_store_open(&run->store, run->config.store, true));
    DL_TRY(dl_run_create_or_read(&run->file, &run->file_digest, run->store, &what));
    dl_runfile_take(&run->config, &run->file);
    run->created = true;
    return DILOCO_OK;
}

/* run.state_dir, or beside a folder that is the store. */
static diloco_status open_local(diloco_run *run)
{
    dl_config_path dir;
    if (strcmp(run->config.state_dir, "none") == 0) return DILOCO_OK;
    DL_TRY(dl_run_state_dir(dir, &run->config));
    return dl_local_open(&run->local, dir, run->replica);
}

static void warn_if_machine_differs(diloco_run *run, const dl_local_facts *facts)
{
    const dl_event_context c   = {.replica = run->replica};
    const char            *isa = dl_isa_name(dl_isa_chosen());
    char                   text[256];
    if (strcmp(facts->isa, isa) == 0 && facts->threads == (uint32_t)dl_pool_size(run->pool)) return;
    snprintf(text, sizeof text,
             "saved on %s with %u threads, resumed on %s with %d: the run goes on correctly, its "
             "training is not bit for bit what it would have been",
             facts->isa, facts->threads, isa, dl_pool_size(run->pool));
    dl_event_warn(&run->record, &c, "machine", text);
}

static diloco_status load_local(diloco_run *run, dl_machine_start *start)
{
    dl_local_facts facts;
    if (!run->local) return DILOCO_OK;
    const diloco_status status =
        dl_local_load(run->local, &facts, run->file.id, run->file.manifest.digest, run->tensors,
                      run->n_tensors, run->privates, run->n_privates, true);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    DL_TRY(status);
    warn_if_machine_differs(run, &facts);
    *start = (dl_machine_start){.resumed          = true,
                                .due              = facts.due,
                                .resumed_entry    = facts.entry,
                                .resumed_position = facts.position};
    run->resumed     = true;
    run->step        = facts.step;
    run->position    = facts.position;
    run->next_sample = facts.next_sample;
    run->loss_sum    = facts.loss_sum;
    run->work        = (dl_exec_work){.step         = facts.step,
                                      .steps        = facts.steps,
                                      .samples      = facts.samples,
                                      .tokens       = facts.tokens,
                                      .shard        = facts.shard,
                                      .first_sample = facts.first_sample};
    return DILOCO_OK;
}

/* `undone`: as if the last step had not been counted. */
static diloco_status save_local(diloco_run *run, uint64_t entry, uint64_t position, bool due,
                                bool undone)
{
    if (!run->local) return DILOCO_OK;
    const diloco_step_report last = undone ? run->last : (diloco_step_report){0};
    dl_local_facts f = {.entry        = entry,
                        .position     = position - undone,
                        .step         = run->step - undone,
                        .steps        = run->work.steps - undone,
                        .samples      = run->work.samples - last.samples,
                        .tokens       = run->work.tokens - last.tokens,
                        .shard        = run->work.shard,
                        .first_sample = run->work.first_sample,
                        .next_sample  = run->next_sample - last.samples,
                        .loss_sum     = run->loss_sum - last.loss,
                        .due          = due,
                        .base         = dl_exec_state(run->exec)->now[0].digest,
                        .manifest     = run->file.manifest.digest,
                        .threads      = (uint32_t)dl_pool_size(run->pool)};
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
    return run->has_gradients ? DILOCO_OK : save_local(run, entry, position, true, false);
}

static diloco_status make_exec(diloco_run *run)
{
    const size_t members = dl_size_min((size_t)run->config.replicas + SPARE_MEMBERS, DL_MAX_MEMBERS);
    dl_config_path     spool;
    const dl_exec_args args = {.store       = run->store,
                               .run         = &run->file,
                               .run_digest  = run->file_digest,
                               .self        = run->self,
                               .tensors     = run->tensors,
                               .gradients   = run->has_gradients ? run->gradients : NULL,
                               .n_tensors   = run->n_tensors,
                               .max_members = members,
                               .spool_dir   = dl_run_spool_dir(spool, &run->config, &run->file),
                               .n_copies    = 2,
                               .pool        = run->pool};
    DL_TRY(dl_exec_create(&run->exec, &args));
    return dl_snapshot_read_newest(dl_exec_state(run->exec), run->store, &run->file,
                                   run->file_digest, UINT64_MAX, run->pool,
                                   dl_time_after(dl_clock_now(), 3600 * DL_SECOND));
}

static diloco_status make_driver(diloco_run *run)
{
    const dl_driver_args args = {.url             = run->config.store,
                                 .store           = run->store,
                                 .exec            = run->exec,
                                 .record          = &run->record,
                                 .run             = &run->file,
                                 .self            = run->self,
                                 .store_timeout_s = run->config.store_timeout_s,
                                 .lr              = run->lr,
                                 .lr_user         = run->lr_user,
                                 .save            = save_at_due_point,
                                 .save_user       = run,
                                 .work            = &run->work,
                                 .interrupted     = &run->interrupted};
    return dl_driver_create(&run->driver, &args);
}

static int threads_of(const dl_config *c)
{
    const int64_t local = c->local_replicas ? c->local_replicas : c->replicas;
    if (c->threads) return (int)c->threads;
    return (int)dl_size_max(1, (size_t)dl_cores() / (size_t)local);
}

/* The shard is the number in the replica's name where it has one ("r3"), so that a replica
 * keeps its shard through all its lives and machines need not talk about it. */
static uint64_t shard_of(const diloco_run *run)
{
    const char *digits = run->replica + strcspn(run->replica, "0123456789");
    return strtoull(digits, NULL, 10) % (uint64_t)run->config.replicas;
}

/* After an exchange: where training goes on, and a fresh count of what it does. */
static void begin_interval(diloco_run *run)
{
    const uint64_t to = dl_driver_position(run->driver);
    if (to > run->position) { /* passed over: the samples of skipped steps are skipped too (P13) */
        const uint64_t a_step = (uint64_t)(run->config.batch_size * run->config.accumulation);
        run->next_sample += (to - run->position) * a_step;
    }
    run->position      = to;
    run->trained_since = dl_clock_now();
    dl_driver_tell_step(run->driver, run->step, run->position);
}

static void clear_work(diloco_run *run)
{
    const uint64_t shard = run->work.shard;
    run->work            = (dl_exec_work){.shard = shard, .step = run->step, .first_sample = run->next_sample};
    run->loss_sum        = 0;
}

static void end_line(diloco_run *run)
{
    const dl_driver_facts  f     = dl_driver_facts_now(run->driver);
    const double           wall  = dl_seconds(dl_clock_now() - run->joined);
    const dl_state        *state = dl_exec_state(run->exec);
    const dl_event_context c     = {.replica = run->replica};
    const dl_end_facts     end   = {.entry          = state->control.entry,
                                    .steps          = run->step,
                                    .tokens         = run->tokens,
                                    .bytes_sent     = f.bytes_sent,
                                    .bytes_received = f.bytes_received,
                                    .n_floats       = run->file.manifest.n_parameters,
                                    .utilization = wall > 0 ? dl_seconds(run->training) / wall : 0,
                                    .digest      = dl_state_digest_all(state)};
    dl_event_end(&run->record, &c, &end);
}

diloco_status diloco_run_join(diloco_run *run)
{
    DL_TRY(must_not_be_joined(run));
    DL_TRY(diloco_run_create(run));
    DL_TRY(dl_pool_create(&run->pool, threads_of(&run->config)));
    DL_TRY(open_local(run));
    DL_TRY(dl_run_claim_life(&run->self, run->store, run->replica, &run->file));
    dl_machine_start start = {.resumed = false};
    run->joined            = dl_clock_now();
    run->work.shard        = shard_of(run);
    DL_TRY(load_local(run, &start));
    DL_TRY(make_exec(run));
    DL_TRY(make_driver(run));
    dl_event_run(&run->record, &run->file, &run->self, dl_exec_state(run->exec)->control.entry);
    DL_TRY(dl_driver_begin(run->driver, &start));
    /* What was trained before is still to be sent, unless the log went on without it. */
    const bool kept = run->resumed && !dl_driver_adopted(run->driver);
    if (!kept && !run->resumed) run->step = dl_driver_position(run->driver);
    begin_interval(run);
    if (!kept) clear_work(run);
    if (diloco_run_done(run)) end_line(run);
    return DILOCO_OK;
}

/* ---- stepping --------------------------------------------------------------------------- */

static void count(diloco_run *run, const diloco_step_report *report)
{
    run->step++;
    run->position++;
    run->tokens += report->tokens;
    run->next_sample += report->samples;
    run->loss_sum += report->loss;
    run->last      = *report;
    run->work.step = run->step;
    run->work.steps++;
    run->work.samples += report->samples;
    run->work.tokens += report->tokens;
    run->work.end_sample = run->next_sample;
    run->work.position   = run->position;
    run->work.loss       = run->loss_sum / (double)run->work.steps;
    dl_driver_tell_step(run->driver, run->step, run->position);
}

diloco_status diloco_step(diloco_run *run, const diloco_step_report *report)
{
    if (!run->driver) return dl_fail(DILOCO_EINVAL, "diloco_step before diloco_run_join");
    if (diloco_run_done(run)) return DILOCO_OK;
    if (report && run->due)
        return dl_fail(DILOCO_EINVAL, "an exchange is under way: call diloco_step with NULL");
    if (report) count(run, report);
    if (run->position < dl_driver_train_until(run->driver)) return DILOCO_OK;

    if (!run->due) run->training += dl_clock_now() - run->trained_since;
    run->due = true;
    DL_TRY(dl_driver_exchange(run->driver));
    run->due = false;
    begin_interval(run);
    /* After an abort what was trained stays, and is sent with the next entry. */
    if (dl_driver_adopted(run->driver)) clear_work(run);
    if (diloco_run_done(run)) end_line(run);
    return DILOCO_OK;
}

bool diloco_run_done(const diloco_run *run) { return run->driver && dl_driver_done(run->driver); }

diloco_run_info diloco_run_now(const diloco_run *run)
{
    diloco_run_info info = {.position    = run->position,
                            .step        = run->step,
                            .sample      = run->next_sample,
                            .generation  = run->self.generation,
                            .shard       = (int)run->work.shard,
                            .resumed     = run->resumed,
                            .interrupted = atomic_load(&run->interrupted),
                            .entries     = (uint64_t)run->config.rounds,
                            .positions   = (uint64_t)run->config.rounds * (uint64_t)run->config.local_steps,
                            .loss_mean   = NAN};
    memcpy(info.run, run->file.id, sizeof info.run);
    if (!run->driver) return info;
    const dl_driver_facts f = dl_driver_facts_now(run->driver);
    info.entry              = dl_exec_state(run->exec)->control.entry;
    info.bytes_sent         = f.bytes_sent;
    info.bytes_received     = f.bytes_received;
    info.loss_mean          = f.loss;
    return info;
}

diloco_status diloco_run_theta(const diloco_run *run, void *const *data, size_t n)
{
    if (!run->exec) return dl_fail(DILOCO_EINVAL, "diloco_run_theta before diloco_run_join");
    if (n != run->n_tensors)
        return dl_fail(DILOCO_EINVAL, "%zu places for %zu tensors", n, run->n_tensors);
    const dl_fragment_state *s = dl_exec_state(run->exec)->now;
    for (size_t i = 0; i < n; i++) {
        const dl_manifest_tensor *t = &run->file.manifest.tensors[i];
        const dl_fragment_state  *f = &s[t->fragment];
        const void *from = t->region == DL_INTEGERS   ? (const void *)(f->integers + t->offset)
                           : t->region == DL_BOOLEANS ? (const void *)(f->booleans + t->offset)
                                                      : (const void *)(f->theta + t->offset);
        if (data[i]) memcpy(data[i], from, t->count * dl_dtype_size(t->dtype));
    }
    return DILOCO_OK;
}

/* ---- ending ----------------------------------------------------------------------------- */

diloco_status diloco_run_save(diloco_run *run)
{
    if (!run->driver) return dl_fail(DILOCO_EINVAL, "diloco_run_save before diloco_run_join");
    const uint64_t entry = dl_exec_state(run->exec)->control.entry;
    if (run->due && !run->has_gradients) return DILOCO_OK; /* saved at the due point */
    /* With gradients a step that is under way is done again: it is a function of the position. */
    return save_local(run, entry, run->position, false, run->due);
}

diloco_status diloco_run_leave(diloco_run *run)
{
    if (!run->driver) return dl_fail(DILOCO_EINVAL, "diloco_run_leave before diloco_run_join");
    dl_key key;
    dl_key_end(key, &run->self);
    static const char text[] = "{\"left\":true}";
    const dl_span     span   = {text, sizeof text - 1};
    return dl_store_create(run->store, key, &span, 1, NULL,
                           dl_time_after(dl_clock_now(), 10 * DL_SECOND));
}

void diloco_run_close(diloco_run *run)
{
    if (!run) return;
    if (run->driver) {
        dl_driver_settle(run->driver);
        dl_record_flush(&run->record, run->store, &run->self, true,
                        dl_time_after(dl_clock_now(), 10 * DL_SECOND));
    }
    dl_driver_destroy(run->driver);
    dl_exec_destroy(run->exec);
    dl_pool_destroy(run->pool);
    dl_local_close(run->local);
    dl_store_close(run->store);
    dl_runfile_deinit(&run->file);
    dl_record_deinit(&run->record);
    for (size_t i = 0; i < run->n_tensors; i++)
        free((void *)(uintptr_t)run->tensors[i].name);
    for (size_t i = 0; i < run->n_privates; i++)
        free(run->private_names[i]);
    free(run->tensors);
    free(run->gradients);
    free(run);
}
