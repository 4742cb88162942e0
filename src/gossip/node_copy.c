/* node_copy.c - copies a neighbour's model, for a node that is new or late.
 *
 * The copy is read into a state of its own, which replaces the node's only if it is whole, of this
 * run and ahead. The source is untrusted: a failure marks it, and the node chooses another. */
#include "gossip/node_parts.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

/* Reads the newest model at an address. *copy is owned by the caller after DILOCO_OK only. A round
 * beyond the run's last one is refused, since the node would count it as its own progress. */
static diloco_status read_model(dl_gossip_process *l, dl_state *copy, const char *address)
{
    dl_store *store;
    const dl_time until =
        dl_time_after(dl_clock_now(), dl_time_from_seconds(dl_gossip_config(l)->store_timeout_s));
    DL_TRY(dl_store_open_peer(&store, address, NULL));
    diloco_status status =
        dl_state_init(copy, &l->run.manifest, l->state.outer, DL_NODE_MAX + 1, 2, 1);
    if (!status) {
        status = dl_snapshot_read_newest(copy, store, &l->run, l->run_digest, UINT64_MAX,
                                         l->base.setup.pool, until);
        if (!status && copy->control.entry > (uint64_t)dl_gossip_config(l)->rounds)
            status =
                dl_fail(DILOCO_EPROTO, "its round %" PRIu64 " is above trainer.rounds = %" PRId64,
                        copy->control.entry, dl_gossip_config(l)->rounds);
        if (status) dl_state_deinit(copy);
    }
    dl_store_close(store);
    return status;
}

/* Continues from the copied model. The inner optimizer's moments stay, if the node has any; a node
 * that has not trained warms up its learning rate. The copy is saved before training continues. */
static diloco_status settle_copy(dl_gossip_process *l, const char *from)
{
    const uint64_t round = l->state.control.entry;
    char text[DL_ADDRESS_MAX + 96];
    snprintf(text, sizeof text, "copied the model before round %" PRIu64 " from %s", round, from);
    dl_log(DILOCO_LOG_INFO, "%s: %s", l->base.name, text);
    l->trained.position = round * dl_gossip_round_steps(l);
    if (l->trained.steps == 0 && round > 0)
        l->base.rewarming = (uint64_t)dl_gossip_config(l)->rewarm_steps;
    dl_gossip_start_round(l);
    dl_wire_lock(l->wire);
    dl_node_copied(&l->node, true, round, dl_clock_now());
    dl_wire_unlock(l->wire);
    DL_TRY(dl_recorder_warn(&l->base.recorder, "copied", text));
    return dl_gossip_save_round(l);
}

static diloco_status copy_failed(dl_gossip_process *l, const char *address)
{
    dl_log(DILOCO_LOG_WARN, "%s: the model at %s cannot be copied: %s", l->base.name, address,
           diloco_error_text());
    dl_wire_lock(l->wire);
    dl_node_copied(&l->node, false, 0, dl_clock_now());
    dl_wire_unlock(l->wire);
    return DILOCO_OK;
}

diloco_status dl_gossip_copy(dl_gossip_process *l)
{
    char address[DL_ADDRESS_MAX + 1];
    dl_state copy;
    dl_gossip_progress(l, "join");
    dl_wire_lock(l->wire);
    const uint64_t least = l->node.fresh ? 0 : l->node.round + 1;
    dl_wire_address(address, l->wire, l->node.source);
    dl_wire_unlock(l->wire);
    diloco_status status = *address
                               ? read_model(l, &copy, address)
                               : dl_fail(DILOCO_EUNREACHABLE, "the connection to it is closed");
    if (status == DILOCO_ENOMEM) return status;
    if (status) return copy_failed(l, address);
    if (copy.control.entry < least) {
        dl_fail(DILOCO_EPROTO, "its round %" PRIu64 " is not later than this node's",
                copy.control.entry);
        dl_state_deinit(&copy);
        return copy_failed(l, address);
    }
    dl_state_deinit(&l->state);
    l->state = copy;
    return settle_copy(l, address);
}
