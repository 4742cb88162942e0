/* federated_worker.c - see federated_worker.h. The pace of such a process is that of a replica that
 * skips all training. It is at the due point at once, its captures are mute (pace.h), and to adopt
 * is to receive theta. */
#include "run/federated_worker.h"

#include "protocol/logical_clients.h"
#include "run/handle.h"

#include <stdlib.h>
#include <string.h>

static dl_time limit(const diloco_run *run)
{
    return dl_time_after(dl_clock_now(), dl_time_from_seconds(run->config.store_timeout_s));
}

const dl_config *dl_run_config(const diloco_run *run)
{
    return &run->config;
}

const dl_private *dl_run_privates(const diloco_run *run, size_t *n)
{
    *n = run->model.n_privates;
    return run->model.privates;
}

void dl_run_set_worker_hooks(diloco_run *run, const dl_worker_hooks *worker_hooks)
{
    run->workers.worker_hooks = *worker_hooks;
}

/* The position moves to the next due point without a step (P13.7). `due` stays set after an
 * interrupt, as in diloco_step. */
diloco_status dl_run_round(diloco_run *run)
{
    if (diloco_run_done(run)) return DILOCO_OK;
    run->trained.due = true;
    const uint64_t until = dl_driver_train_until(run->driver);
    if (until != UINT64_MAX) dl_driver_pass_to(run->driver, until);
    DL_TRY(dl_driver_stop(run->driver));
    run->trained.due = false;
    dl_run_go_on(run);
    dl_record_deliver(&run->record);
    if (diloco_run_done(run)) dl_run_end_line(run);
    return DILOCO_OK;
}

void dl_run_leave(diloco_run *run)
{
    if (diloco_run_done(run)) return; /* it has theta already */
    dl_run_end_line(run);
    dl_record_deliver(&run->record);
}

const dl_runfile *dl_run_file(const diloco_run *run)
{
    return &run->file;
}

float *dl_run_residual(const diloco_run *run, size_t *n)
{
    return dl_exec_residual(run->exec, n);
}

static const dl_control *control(const diloco_run *run)
{
    return &dl_exec_state(run->exec)->control;
}

const dl_roster *dl_run_sampled(const diloco_run *run)
{
    return &control(run)->roster;
}

uint64_t dl_run_open_entry(const diloco_run *run)
{
    return control(run)->entry;
}

bool dl_run_has_contribution(const diloco_run *run, const char *client)
{
    size_t n;
    const dl_listed *listed = dl_exec_listed(run->exec, &n);
    for (size_t i = 0; i < n; i++)
        if (listed[i].entry == control(run)->entry && !strcmp(listed[i].generation.replica, client))
            return true;
    return false;
}

void dl_run_load_theta(diloco_run *run)
{
    dl_exec_adopt(run->exec, 0, 0);
}

/* The steps and tokens of clients count as those of their worker. A contribution that was already
 * there is not written to the record again. */
diloco_status dl_run_put_client(diloco_run *run, bool *first, const dl_exec_client *client)
{
    const dl_train_stats *stats = client->stats;
    const dl_event_context context = {.replica = client->generation.replica,
                                      .codec = run->config.codec};
    DL_TRY(dl_exec_put_client(run->exec, first, client, limit(run)));
    run->trained.at.step += stats->steps;
    run->trained.generation_steps += stats->steps;
    run->trained.generation_tokens += stats->tokens;
    if (*first)
        dl_event_contribution(&run->record, &context, control(run)->entry,
                              &dl_exec_measured(run->exec)->own);
    return DILOCO_OK;
}

/* It asks for the entry's text alone, and applies nothing. The machine reads it again later. */
diloco_status dl_run_is_late(diloco_run *run, bool *late)
{
    const dl_request read = {.kind = DL_REQUEST_READ, .entry = control(run)->entry};
    dl_reply reply = {.now = dl_clock_now()};
    dl_exec_do(run->exec, &read, &reply, limit(run));
    *late = reply.read.text != NULL;
    return reply.status;
}

/* Reads an earlier entry into `e`, and sets *readable to whether replicas can read it. */
static diloco_status read_past(diloco_run *run, dl_entry *e, bool *readable, uint64_t entry)
{
    const dl_entry_place place = dl_runfile_place(&run->file, entry);
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status = dl_entry_get(&text, run->store, entry, limit(run));
    if (!status) status = dl_entry_read_at(e, text.data, text.len, &place);
    *readable = !status;
    dl_buf_deinit(&text);
    return status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* The `prev` of the next entry shows whether the creator of that could read this one, which is
 * unreadable now. If it could, its clients cannot be found any more. */
static diloco_status was_never_read(diloco_run *run, dl_entry *e, uint64_t entry)
{
    dl_hash prev = control(run)->prev;
    bool readable = true;
    if (entry + 1 < control(run)->entry) {
        DL_TRY(read_past(run, e, &readable, entry + 1));
        prev = e->prev;
    }
    if (!readable || dl_hash_equal(prev, dl_entry_unreadable_digest())) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO,
                   "log/%010llu.json was damaged in the store after replicas had read it: put a "
                   "sound copy of that file back",
                   (unsigned long long)entry);
}

static diloco_status find_member(diloco_run *run, dl_entry *e, bool *counted, dl_member *member,
                                 uint64_t entry, const char *client)
{
    bool readable;
    DL_TRY(read_past(run, e, &readable, entry));
    if (!readable) return was_never_read(run, e, entry);
    for (size_t i = 0; e->commit && i < e->n_members; i++) {
        if (strcmp(e->members[i].generation.replica, client) != 0) continue;
        *member = e->members[i];
        *counted = true;
    }
    return DILOCO_OK;
}

/* The entry is read from the store, since the state keeps no members of past entries. An abort
 * counts no client, and neither does an unreadable entry (P24). */
diloco_status dl_run_member(diloco_run *run, bool *counted, dl_member *member, uint64_t entry,
                            const char *client)
{
    dl_entry e;
    *counted = false;
    DL_TRY(dl_entry_init(&e, dl_clients_max_members(&run->config)));
    const diloco_status status = find_member(run, &e, counted, member, entry, client);
    dl_entry_deinit(&e);
    return status;
}

/* Lists heartbeats and end objects, and updates the watch. The table is allocated at the first
 * call, because only workers use it. */
static diloco_status watch_generations(diloco_run *run, dl_reply *reply)
{
    const dl_request request = {.kind = DL_REQUEST_WATCH};
    if (!run->workers.watch.at)
        run->workers.watch.at = calloc(DL_WATCH_MAX, sizeof *run->workers.watch.at);
    if (!run->workers.watch.at)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to watch the other workers");
    reply->now = dl_clock_now();
    dl_exec_do(run->exec, &request, reply, limit(run));
    DL_TRY(reply->status);
    dl_watch_see(&run->workers.watch, reply->watch.seen, reply->watch.n_seen, reply->now);
    return DILOCO_OK;
}

/* A worker that was just seen for the first time counts as alive, as in P11. */
static bool is_live_worker(diloco_run *run, const char *name, dl_time now)
{
    dl_generation whose;
    const dl_time patience = dl_time_from_seconds(run->config.patience_s);
    return name[0] == run->self.replica[0] &&
           !dl_watch_is_silent(&run->workers.watch, name, now, patience, &whose);
}

/* Every worker computes its place from the same names, so they divide the clients without a
 * message. Workers that see different sets may train one client twice, which costs time only: equal
 * names count once. */
diloco_status dl_run_live_workers(diloco_run *run, size_t *place, size_t *n)
{
    dl_reply reply;
    *place = 0;
    *n = 1;
    DL_TRY(watch_generations(run, &reply));
    for (size_t i = 0; i < reply.watch.n_seen; i++) {
        const char *name = reply.watch.seen[i].generation.replica;
        const int order = dl_replica_compare(name, run->self.replica);
        if (order == 0 || !is_live_worker(run, name, reply.now)) continue;
        *place += order < 0;
        *n += 1;
    }
    return DILOCO_OK;
}
