/* gossip.c - a node without a log from its start to its end: training, its node (node.h) and its
 * lines to the others (wire.h).
 *
 *     run.json --> model, data --> own folder --> resume, or begin --> serve --> lines
 *     loop: the node's next action: train, step, publish, agree, copy, wait
 *
 * 1. The node is changed with the lines' lock held; tensors are used by this thread alone. This
 *    thread may read members that only it changes (round, phase, rules) without the lock.
 * 2. After an outer step the local tensors are theta. A round that passed without one leaves both:
 *    the next contribution is measured from the same theta. */
#include "gossip/gossip.h"

#include "base/log.h"
#include "gossip/node_parts.h"
#include "protocol/logical_clients.h"
#include "run/open.h"
#include "train/opening.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE (50 * DL_MILLISECOND) /* between looks at whether to stop */

static uint64_t positions(const dl_gossip_process *l)
{
    return (uint64_t)dl_gossip_config(l)->rounds * dl_gossip_round_steps(l);
}

static diloco_run_info now_of(const dl_gossip_process *l)
{
    return (diloco_run_info){.generation = l->home.generation.number,
                             .entry = l->node.round,
                             .entries = (uint64_t)dl_gossip_config(l)->rounds,
                             .position = l->trained.position,
                             .positions = positions(l),
                             .fragments = 1,
                             .step = l->trained.steps,
                             .sample = l->trained.next_sample,
                             .shard = (int)l->trained.shard,
                             .resumed = l->resumed};
}

void dl_gossip_progress(dl_gossip_process *l, const char *phase)
{
    l->base.now = now_of(l);
    dl_replica_progress(&l->base, phase);
}

/* ---- the inner loop ----------------------------------------------------------------------- */

/* Adds a step to this round's work and to the node's totals. */
static void count_step(dl_gossip_process *l, const dl_step_facts *facts)
{
    dl_local_fragment *work = &l->trained.work;
    if (work->stats.steps == 0) work->stats.first_sample = l->trained.next_sample;
    work->stats.steps++;
    work->stats.samples += facts->samples;
    work->stats.tokens += facts->tokens;
    work->loss_sum += facts->loss;
    l->trained.next_sample += facts->samples;
    l->trained.tokens += facts->tokens;
    l->trained.steps++;
    l->trained.position++;
}

static diloco_status look_for_divergence(dl_gossip_process *l, double loss)
{
    char text[DL_DIVERGENCE_NORMS + 512];
    if (!dl_divergence_step(&l->trained.divergence, loss, text, sizeof text)) return DILOCO_OK;
    dl_log(DILOCO_LOG_WARN, "%s: %s", l->base.name, text);
    return dl_recorder_warn(&l->base.recorder, "divergence", text);
}

static diloco_status take_step(dl_gossip_process *l)
{
    dl_step_facts facts;
    double lr;
    l->base.now = now_of(l);
    DL_TRY(dl_replica_step(&facts, &lr, &l->base, (size_t)l->trained.shard));
    count_step(l, &facts);
    dl_gossip_progress(l, "train");
    DL_TRY(dl_recorder_check_step(&l->base.recorder, &facts, l->trained.steps, -1));
    DL_TRY(look_for_divergence(l, facts.loss));
    return dl_recorder_step(&l->base.recorder, &facts, lr, l->trained.steps, l->trained.position,
                            l->state.control.entry);
}

/* After a step its model is not saved until it is agreed on. A node that stops then does not wait
 * for the agreement: it resumes from the step, and the others agree without it. */
static diloco_status save_here(dl_gossip_process *l)
{
    dl_wire_lock(l->wire);
    const bool owes_agreement =
        l->node.phase >= DL_PHASE_PUBLISH && l->node.phase <= DL_PHASE_AGREE;
    const uint64_t next = l->node.round + 1;
    dl_wire_unlock(l->wire);
    if (!owes_agreement) return dl_gossip_save_private(l);
    l->state.control.entry = next;
    return dl_gossip_save_round(l);
}

static diloco_status stop_here(void *user)
{
    dl_gossip_process *l = user;
    DL_TRY(save_here(l));
    return dl_fail(DILOCO_EINTERRUPTED,
                   "%s stopped at step %" PRIu64 " of %" PRIu64
                   " with its state saved: the same command resumes here",
                   l->base.name, l->trained.position, positions(l));
}

/* ---- this node's objects ------------------------------------------------------------------ */

/* Makes this node's object of the round and stores it where others fetch it. The caller announces
 * it afterwards, under the lock: a heartbeat must not report an object that is not stored yet. */
static diloco_status publish(dl_gossip_process *l, dl_object object)
{
    dl_span spans[3];
    size_t n_spans;
    const dl_local_fragment *work = &l->trained.work;
    dl_contribution *c = object == DL_OBJECT_MODEL ? &l->exchange.own_model : &l->exchange.own;
    *c = (dl_contribution){
        .generation = l->home.generation, .entry = l->node.round, .stats = work->stats};
    c->stats.position = l->trained.position;
    c->stats.step = l->trained.steps;
    c->stats.shard = l->trained.shard;
    c->stats.end_sample = l->trained.next_sample;
    c->stats.loss = dl_mean_loss(work->loss_sum, work->stats.steps);
    if (!work->stats.steps) c->stats.first_sample = c->stats.end_sample;
    memcpy(c->run, l->run.id, sizeof c->run);
    DL_TRY(dl_gossip_pull_tensors(l));
    DL_TRY(dl_mix_own(l->mix, object, &l->state, l->model.data, c, &l->exchange.input, spans,
                      &n_spans));
    return dl_home_put(&l->home, object, l->node.round, c, spans, n_spans);
}

/* Trains to the end of the round. After an interruption the same call continues at the position. */
static diloco_status do_train(dl_gossip_process *l)
{
    const uint64_t end = (l->node.round + 1) * dl_gossip_round_steps(l);
    const dl_time began = dl_clock_now();
    while (l->trained.position < end) {
        DL_TRY(take_step(l));
        if (dl_replica_asked_to_stop(&l->base)) return DILOCO_EINTERRUPTED;
    }
    dl_gossip_progress(l, "exchange");
    l->exchange.train_s = dl_seconds(dl_clock_now() - began);
    DL_TRY(publish(l, DL_OBJECT_CONTRIBUTION));
    dl_wire_lock(l->wire);
    l->exchange.trained_at = dl_clock_now();
    l->node.self.step = l->trained.steps;
    /* A deadline derives itself: twice what a round's steps take, at least a sixth of patience. */
    if (dl_gossip_config(l)->deadline_s <= 0)
        l->node.rules.deadline = dl_time_from_seconds(
            fmax(2 * l->exchange.train_s, dl_gossip_config(l)->patience_s / 6));
    dl_node_trained(&l->node, l->exchange.trained_at);
    dl_wire_changed(l->wire);
    dl_wire_unlock(l->wire);
    return DILOCO_OK;
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Lists the received objects by name, with this node's own, for a step or an agreement. *n_struck:
 * members whose object was refused for a fault of their own. */
static size_t inputs_of(dl_gossip_process *l, dl_mix_input *inputs, size_t *n_struck)
{
    size_t set[DL_NODE_MAX + 1];
    dl_wire_lock(l->wire);
    const size_t n = dl_node_set(&l->node, set);
    for (size_t i = 0; i < n; i++)
        inputs[i] = set[i] == DL_NODE_MAX ? l->exchange.input : dl_wire_input(l->wire, set[i]);
    *n_struck = dl_node_n_struck(&l->node);
    dl_wire_unlock(l->wire);
    return n;
}

void dl_gossip_start_round(dl_gossip_process *l)
{
    dl_gossip_adopt(l);
    l->trained.work = (dl_local_fragment){.stats.first_sample = l->trained.next_sample};
}

/* Evaluates as a run with a log does: in turn, every eval_every rounds. After the last round each
 * node evaluates, because each has a model of its own. */
static diloco_status evaluate(void *user)
{
    dl_score held_out, next;
    dl_gossip_process *l = user;
    dl_replica *b = &l->base;
    const dl_config *c = dl_gossip_config(l);
    const uint64_t turn = dl_replica_evaluation_turn(b);
    if (!dl_replica_evaluation_due(b)) return DILOCO_OK;
    if (b->now.entry != b->now.entries && turn % (uint64_t)c->replicas != l->trained.shard)
        return DILOCO_OK;
    dl_replica_progress(b, "eval");
    DL_TRY(dl_evaluate(&held_out, &b->setup, (uint64_t)c->eval_batches));
    DL_TRY(dl_evaluate_samples(&next, &b->setup, (size_t)l->trained.shard, l->trained.next_sample,
                               (size_t)c->batch_size));
    return dl_replica_record_eval(b, &held_out, &next);
}

/* Ends an exchange, with or without a change of the model: records it, informs the node, and saves
 * the round once no agreement is left. facts: NULL if not stepped. outer_s: seconds of the step. */
static diloco_status finish(dl_gossip_process *l, const char *event, bool stepped,
                            const dl_mix_facts *facts, double outer_s)
{
    const uint64_t round = l->node.round;
    dl_wire_lock(l->wire);
    const diloco_status status = dl_gossip_record_exchange(l, event, stepped, facts, outer_s);
    if (stepped) l->node.self.divergence = facts->outer.divergence;
    if (!strcmp(event, "round"))
        dl_node_stepped(&l->node, stepped, dl_clock_now());
    else
        dl_node_agreed(&l->node, stepped, dl_clock_now());
    dl_wire_unlock(l->wire);
    DL_TRY(status);
    if (stepped) dl_gossip_start_round(l);
    if (l->node.round == round) return DILOCO_OK; /* there is still to agree */
    l->state.control.entry = l->node.round;
    return dl_gossip_save_round(l);
}

/* Begins the check whether the loss after this step is far above the loss before it. */
static void begin_divergence(dl_gossip_process *l, const dl_mix_input *inputs, size_t n)
{
    const dl_config *c = dl_gossip_config(l);
    dl_divergence now = {.entry = l->node.round, .lr = c->outer_lr, .mu = c->outer_mu};
    for (size_t i = 0; i < n; i++) {
        now.inner += inputs[i].facts->stats.loss / (double)n;
        dl_divergence_norm(&now, inputs[i].facts->generation.replica, inputs[i].facts->norm);
    }
    dl_divergence_adopt(&l->trained.divergence, &now);
}

/* A step that cannot be made is skipped: theta stays, and a warning says so. */
static diloco_status report_no_step(dl_gossip_process *l, diloco_status status)
{
    if (status != DILOCO_ENUMERIC && status != DILOCO_EINVAL) return status;
    char text[512];
    snprintf(text, sizeof text, "round %" PRIu64 " did not change this node's model: %s",
             l->node.round, diloco_error_text());
    dl_log(DILOCO_LOG_WARN, "%s: %s", l->base.name, text);
    return dl_recorder_warn(&l->base.recorder, "round", text);
}

/* The record and the log say that the agreement of this round did not happen. */
static diloco_status agreement_missed(dl_gossip_process *l)
{
    char text[192];
    size_t set[DL_NODE_MAX + 1];
    dl_wire_lock(l->wire);
    const size_t n = dl_node_set(&l->node, set);
    dl_wire_unlock(l->wire);
    snprintf(text, sizeof text,
             "agreement of round %" PRIu64 " not made: %zu of the %zu models that it needs "
             "(swarm.min_peers) arrived; this node keeps its own model",
             l->node.round, n, l->node.rules.min_peers);
    dl_log(DILOCO_LOG_WARN, "%s: %s", l->base.name, text);
    DL_TRY(dl_recorder_warn(&l->base.recorder, "agreement", text));
    return finish(l, "agreement", false, NULL, 0);
}

/* Warns that members were too few for the robust combiner, so that their mean was used. */
static diloco_status warn_fallback(dl_gossip_process *l, size_t n)
{
    char text[256];
    snprintf(text, sizeof text,
             "round %" PRIu64 ": %zu members are too few for combiner %s: their weighted mean is "
             "taken, and one hostile member decides it",
             l->node.round, n, dl_gossip_config(l)->combiner);
    dl_log(DILOCO_LOG_WARN, "%s: %s", l->base.name, text);
    return dl_recorder_warn(&l->base.recorder, "combiner_fallback", text);
}

static diloco_status do_step(dl_gossip_process *l, bool agree)
{
    dl_mix_input inputs[DL_NODE_MAX + 1];
    dl_mix_facts facts = {.n_alike = 0};
    size_t struck;
    const size_t n = inputs_of(l, inputs, &struck);
    const dl_time began = dl_clock_now();
    diloco_status status =
        agree ? dl_mix_agree(l->mix, &l->state, inputs, n, struck, l->node.round, &facts)
              : dl_mix_step(l->mix, &l->state, inputs, n, struck, l->node.round, &facts);
    const bool stepped = !status;
    if (status) DL_TRY(report_no_step(l, status));
    if (stepped && !agree) begin_divergence(l, inputs, n);
    if (stepped && facts.outer.fell_back) DL_TRY(warn_fallback(l, n));
    return finish(l, agree ? "agreement" : "round", stepped, &facts,
                  dl_seconds(dl_clock_now() - began));
}

static diloco_status do_publish(dl_gossip_process *l)
{
    dl_gossip_progress(l, "exchange");
    DL_TRY(publish(l, DL_OBJECT_MODEL));
    dl_wire_lock(l->wire);
    l->exchange.trained_at = dl_clock_now();
    dl_node_published(&l->node, l->exchange.trained_at);
    dl_wire_changed(l->wire);
    dl_wire_unlock(l->wire);
    return DILOCO_OK;
}

/* ---- the loop ----------------------------------------------------------------------------- */

/* Waits at most SLICE, so that the loop can look whether it is asked to stop. */
static diloco_status wait(dl_gossip_process *l)
{
    dl_wire_lock(l->wire);
    const dl_time slice = dl_time_after(dl_clock_now(), SLICE);
    dl_wire_wait(l->wire, l->node.until < slice ? l->node.until : slice);
    dl_wire_unlock(l->wire);
    dl_gossip_progress(l, "wait");
    return DILOCO_OK;
}

static diloco_status too_few(const dl_gossip_process *l)
{
    return dl_fail(DILOCO_EUNREACHABLE,
                   "%s found %zu of the %zu nodes that a round needs (swarm.min_peers) in %g s "
                   "(run.start_timeout): check the addresses, and that a node answers there",
                   l->base.name, l->node.n_members + 1, l->node.rules.min_peers,
                   dl_gossip_config(l)->start_timeout_s);
}

/* The change to `done` is announced at once, because others linger until they have read it. */
static dl_todo next_action(dl_gossip_process *l)
{
    dl_wire_lock(l->wire);
    const bool done = l->node.self.done;
    const dl_todo todo = dl_node_next(&l->node, dl_clock_now());
    if (l->node.self.done != done) dl_wire_changed(l->wire);
    dl_wire_unlock(l->wire);
    return todo;
}

static diloco_status do_action(dl_gossip_process *l, dl_todo todo)
{
    switch (todo) {
    case DL_TODO_WAIT:
        return wait(l);
    case DL_TODO_COPY:
        return dl_gossip_copy(l);
    case DL_TODO_TRAIN:
        return do_train(l);
    case DL_TODO_STEP:
        return do_step(l, false);
    case DL_TODO_PASS:
        return finish(l, "round", false, NULL, 0);
    case DL_TODO_PUBLISH:
        return do_publish(l);
    case DL_TODO_AGREE:
        return do_step(l, true);
    case DL_TODO_APART:
        return agreement_missed(l);
    case DL_TODO_ALONE:
        return too_few(l);
    case DL_TODO_END:
        l->over = true;
    }
    return DILOCO_OK;
}

/* A round that ended applied its entry if the tensors are theta. A copied model was evaluated by
 * its source. */
static diloco_status advance(void *user, bool *applied)
{
    dl_gossip_process *l = user;
    const dl_todo todo = next_action(l);
    const uint64_t round = l->node.round;
    DL_TRY(do_action(l, todo));
    l->base.now = now_of(l);
    *applied = todo != DL_TODO_COPY && l->node.round != round && !l->trained.work.stats.steps;
    return DILOCO_OK;
}

static bool over(const void *user)
{
    const dl_gossip_process *l = user;
    return l->over;
}

/* ---- a generation ------------------------------------------------------------------------- */

/* Returns the node's shard of the data: the number at the end of its name, so that r0, r1, … have a
 * shard each. A name without one is hashed; two nodes may then share a shard. */
static uint64_t shard_of(const char *name, uint64_t n_shards)
{
    const size_t len = strlen(name);
    size_t digits = len;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (digits < len) return strtoull(name + digits, NULL, 10) % n_shards;
    const dl_hash hash = dl_hash_bytes(name, len);
    return hash.bytes[0] % n_shards;
}

/* Makes the state, the step and the arithmetic for the model, which must be the run's. */
static diloco_status open_model(dl_gossip_process *l)
{
    l->model.tensors = l->base.setup.tensors;
    l->model.n_tensors = l->base.setup.n_tensors;
    l->model.data = calloc(l->model.n_tensors, sizeof *l->model.data);
    if (!l->model.data)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", l->model.n_tensors);
    dl_manifest manifest;
    const dl_config *c = dl_gossip_config(l);
    DL_TRY(dl_manifest_init(&manifest, l->model.tensors, l->model.n_tensors,
                            c->apply_to == DL_APPLY_ALL_FLOATING));
    const diloco_status status = dl_runfile_matches(&l->run, c, &manifest, l->base.name);
    dl_manifest_deinit(&manifest);
    DL_TRY(status);
    for (size_t i = 0; i < l->model.n_tensors; i++)
        l->model.data[i] = l->model.tensors[i].data;
    DL_TRY(dl_step_init(&l->base.step, &l->base.setup, false));
    DL_TRY(dl_gossip_list_privates(l));
    DL_TRY(dl_state_init(&l->state, &l->run.manifest, dl_outer_find(c->outer_optimizer),
                         DL_NODE_MAX + 1, 2, 1));
    return dl_mix_create(&l->mix, c, &l->run.manifest, l->base.setup.pool);
}

/* Without run.deadline the first deadline is run.patience; do_train() derives the later ones. */
static dl_node_rules rules_of(const dl_config *c)
{
    const double heartbeat = fmin(c->heartbeat_s, 0.25);
    return (dl_node_rules){
        .seed = (uint64_t)c->seed,
        .pairs = c->swarm_exchange == DL_SWARM_PAIRS,
        .min_peers = (size_t)c->min_peers,
        .expected = (size_t)(c->replicas < DL_NODE_MAX ? c->replicas : DL_NODE_MAX),
        .rounds = (uint64_t)c->rounds,
        .agree_every = (uint64_t)c->agree_every,
        .start = dl_time_from_seconds(c->start_timeout_s),
        .patience = dl_time_from_seconds(c->patience_s),
        .deadline = dl_time_from_seconds(c->deadline_s > 0 ? c->deadline_s : c->patience_s),
        .grace = 2 * dl_time_from_seconds(heartbeat)};
}

static void begin_node(dl_gossip_process *l, bool resumed, bool blank)
{
    const dl_node_rules rules = rules_of(dl_gossip_config(l));
    dl_beat self = {.generation = l->home.generation,
                    .digest = l->state.now[0].digest,
                    .step = l->trained.steps,
                    .divergence = NAN};
    memcpy(self.run, l->run.id, sizeof self.run);
    memcpy(self.id, l->home.id, sizeof self.id);
    memcpy(self.address, l->home.address, sizeof self.address);
    dl_node_init(&l->node, &rules, &self, l->state.control.entry, dl_clock_now());
    l->node.fresh = !resumed || (l->trained.steps == 0 && l->state.control.entry == 0);
    l->node.blank = blank;
}

static diloco_status open_lines(dl_gossip_process *l)
{
    const dl_config *c = dl_gossip_config(l);
    const dl_wire_args args = {.node = &l->node,
                               .mix = l->mix,
                               .home = l->home.bucket,
                               .beside = l->home.nodes,
                               .bootstrap = c->bootstrap,
                               .tls = c->cert[0] != '\0',
                               .heartbeat = dl_time_from_seconds(c->heartbeat_s),
                               .link = c->link,
                               .report = dl_home_report,
                               .user = &l->home};
    return dl_wire_create(&l->wire, &args);
}

/* The operation `join`. The folder is locked before the state is read, and served before others are
 * asked for anything: they answer to the address. */
static diloco_status join(void *user)
{
    dl_gossip_process *l = user;
    const dl_config *c = dl_gossip_config(l);
    bool resumed, blank = false;
    DL_TRY(dl_home_open(&l->home, c, l->base.name));
    DL_TRY(dl_gossip_resume(l, &resumed));
    if (!resumed) DL_TRY(dl_gossip_begin(l, &blank));
    l->trained.shard = shard_of(l->base.name, dl_clients_shards(c));
    DL_TRY(dl_data_take(l->base.setup.data, (size_t)l->trained.shard));
    DL_TRY(dl_home_serve(&l->home, c));
    begin_node(l, resumed, blank);
    DL_TRY(open_lines(l));
    l->base.now = now_of(l);
    dl_meter_begin(&l->base.meter, &l->base.now);
    DL_TRY(dl_gossip_record_begin(l));
    return blank ? DILOCO_OK : dl_gossip_save_round(l);
}

/* A swarm that asks for agreements and never made one has as many models as nodes. */
static diloco_status never_agreed(const dl_gossip_process *l)
{
    if (!l->node.due || l->node.agreed) return DILOCO_OK;
    return dl_fail(DILOCO_EUNREACHABLE,
                   "%s finished without one of its %" PRIu64 " agreements (swarm.agree_every = "
                   "%" PRId64 "): its model is its own. The record's \"agreement\" lines name the "
                   "members that were missing and count what was ignored",
                   l->base.name, l->node.due, dl_gossip_config(l)->agree_every);
}

static diloco_status open_node(void *user)
{
    dl_store *shared;
    dl_gossip_process *l = user;
    DL_TRY(dl_store_open(&shared, dl_gossip_config(l)->store, false));
    const diloco_status status = dl_run_read(&l->run, &l->run_digest, shared);
    dl_store_close(shared);
    DL_TRY(status);
    DL_TRY(open_model(l));
    l->base.now = now_of(l);
    return DILOCO_OK;
}

static diloco_status end(void *user)
{
    dl_gossip_process *l = user;
    DL_TRY(dl_gossip_record_end(l));
    return never_agreed(l);
}

static void close_node(void *user)
{
    dl_gossip_process *l = user;
    dl_wire_destroy(l->wire);
    dl_home_close(&l->home);
    dl_mix_destroy(l->mix);
    dl_state_deinit(&l->state);
    dl_runfile_deinit(&l->run);
    free(l->model.data);
}

static const dl_replica_ops ops = {.open = open_node,
                                   .join = join,
                                   .over = over,
                                   .advance = advance,
                                   .applied = evaluate,
                                   .stop = stop_here,
                                   .end = end,
                                   .close = close_node};

diloco_status dl_gossip_train(const dl_config *config, const char *name,
                              const diloco_train_hooks *hooks)
{
    dl_gossip_process *l = calloc(1, sizeof *l);
    if (!l) return dl_fail(DILOCO_ENOMEM, "out of memory for a node");
    l->base = (dl_replica){.name = name, .hooks = hooks, .ops = &ops, .user = l};
    const diloco_status status = dl_replica_live(&l->base, config);
    free(l);
    return status;
}
