/* node_state.c - the saved state of a node, and the state that it begins from.
 *
 * A round's end is durable before it is announced: first the model under snap/, then the private
 * state (state/private_state.h), whose `entry` is the round. A generation that was killed between
 * the two resumes the round before, from the model before it, and contributes to it again as a new
 * generation. */
#include "gossip/node_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- private state ------------------------------------------------------------------------ */

diloco_status dl_gossip_list_privates(dl_gossip_process *l)
{
    DL_TRY(dl_step_list(&l->base.step, l->model.privates, DL_HOME_PRIVATES - 2,
                        &l->model.n_privates, true));
    l->model.privates[l->model.n_privates++] = (dl_private){
        .name = "inner.steps", .data = &l->base.inner_steps, .len = sizeof l->base.inner_steps};
    l->model.privates[l->model.n_privates++] = (dl_private){
        .name = "inner.rewarming", .data = &l->base.rewarming, .len = sizeof l->base.rewarming};
    return DILOCO_OK;
}

diloco_status dl_gossip_pull_tensors(dl_gossip_process *l)
{
    DL_TRY(dl_staging_pull(&l->base.setup.staged_parameters));
    return dl_staging_pull(&l->base.setup.staged_counters);
}

static void push_tensors(dl_gossip_process *l)
{
    dl_staging_push(&l->base.setup.staged_parameters);
    dl_staging_push(&l->base.setup.staged_counters);
}

void dl_gossip_adopt(dl_gossip_process *l)
{
    dl_mix_adopt(&l->state, l->model.data);
    push_tensors(l);
}

diloco_status dl_gossip_save_private(dl_gossip_process *l)
{
    dl_pace_fragment pace = {.since = 0};
    dl_local_facts f = {.pace = {.position = l->trained.position,
                                 .applied = l->state.control.entry,
                                 .fragments = &pace},
                        .generation = l->home.generation.number,
                        .step = l->trained.steps,
                        .shard = l->trained.shard,
                        .next_sample = l->trained.next_sample,
                        .fragments = &l->trained.work,
                        .n_fragments = 1,
                        .manifest = l->run.manifest.digest,
                        .threads = (uint32_t)dl_gossip_config(l)->threads};
    l->base.inner_steps = dl_inner_steps(l->base.step.inner);
    l->trained.work.base = l->state.now[0].digest;
    memcpy(f.run, l->run.id, sizeof f.run);
    snprintf(f.replica, sizeof f.replica, "%s", l->base.name);
    snprintf(f.isa, sizeof f.isa, "%s", diloco_isa());
    snprintf(f.program, sizeof f.program, "%s", diloco_version());
    DL_TRY(dl_gossip_pull_tensors(l));
    DL_TRY(dl_staging_pull(&l->base.step.vectors));
    return dl_local_save(l->home.local, &f, l->model.tensors, l->model.n_tensors, l->model.privates,
                         l->model.n_privates);
}

/* ---- the model that a generation begins from ----------------------------------------------------
 */

static diloco_status load_private(dl_gossip_process *l, uint64_t *round)
{
    dl_pace_fragment pace;
    dl_pace_capture captures[1];
    dl_local_facts f = {.pace = {.captures = captures, .fragments = &pace},
                        .fragments = &l->trained.work,
                        .n_fragments = 1};
    DL_TRY(dl_local_load(l->home.local, &f, l->run.id, l->run.manifest.digest, l->model.tensors,
                         l->model.n_tensors, l->model.privates, l->model.n_privates, true));
    push_tensors(l);
    dl_staging_push(&l->base.step.vectors);
    *round = f.pace.applied;
    l->trained.position = f.pace.position;
    l->trained.steps = f.step;
    l->trained.next_sample = f.next_sample;
    l->home.generation.number = f.generation + 1;
    dl_inner_set_steps(l->base.step.inner, l->base.inner_steps);
    return DILOCO_OK;
}

/* Loads the private state and the model that it belongs to. *resumed is false if none is saved. A
 * private state without its model is an error: moments of another model would be applied to it. */
diloco_status dl_gossip_resume(dl_gossip_process *l, bool *resumed)
{
    uint64_t round;
    *resumed = false;
    diloco_status status = load_private(l, &round);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    if (status == DILOCO_EPROTO || status == DILOCO_EDIFFERS)
        return dl_fail_context(status, "move %s away to join without it", l->home.dir);
    DL_TRY(status);
    status = dl_snapshot_read_newest(&l->state, l->home.store, &l->run, l->run_digest, round,
                                     l->base.setup.pool, DL_NEVER);
    const bool fits = !status && l->state.control.entry == round &&
                      dl_hash_equal(l->state.now[0].digest, l->trained.work.base);
    if (!fits)
        return dl_fail(status ? status : DILOCO_EPROTO,
                       "the model of round %" PRIu64
                       ", to which the private state in %s belongs, is missing: move that folder "
                       "away to join again from a neighbour's model",
                       round, l->home.dir);
    *resumed = l->resumed = true;
    return DILOCO_OK;
}

/* Loads the run's first model, if this machine has it; a node that joined by an address does not.
 */
diloco_status dl_gossip_begin(dl_gossip_process *l, bool *blank)
{
    dl_store *shared;
    DL_TRY(dl_store_open(&shared, dl_gossip_config(l)->store, false));
    const diloco_status status = dl_snapshot_read_newest(&l->state, shared, &l->run, l->run_digest,
                                                         0, l->base.setup.pool, DL_NEVER);
    dl_store_close(shared);
    *blank = status == DILOCO_ENOENT;
    if (*blank) return DILOCO_OK;
    DL_TRY(status);
    dl_gossip_adopt(l);
    return DILOCO_OK;
}

/* Saves the state before l->state.control.entry durably, and then announces it. */
diloco_status dl_gossip_save_round(dl_gossip_process *l)
{
    DL_TRY(dl_home_put_model(&l->home, &l->state, &l->run));
    DL_TRY(dl_gossip_save_private(l));
    dl_wire_lock(l->wire);
    l->node.self.state = l->state.control.entry;
    l->node.self.digest = l->state.now[0].digest;
    l->node.self.step = l->trained.steps;
    dl_wire_changed(l->wire);
    dl_wire_unlock(l->wire);
    return DILOCO_OK;
}
