/* node_record.c - the record of a node without a log: docs/architecture.md section 9, with "round"
 * and "agreement" where a run with a log has "commit". Every line of an exchange says that nothing
 * was decided for all: "consensus":"none". */
#include "gossip/node_parts.h"

#include "run/run_events.h"

#include <math.h>

diloco_status dl_gossip_record_begin(dl_gossip_process *l)
{
    dl_json *j = dl_recorder_begin(&l->base.recorder, "run");
    dl_json_str(j, "run", l->run.id);
    dl_json_str(j, "consensus", "none");
    dl_json_str(j, "exchange", dl_swarm_exchange_choice_names[dl_gossip_config(l)->swarm_exchange]);
    dl_json_str(j, "preset", dl_gossip_config(l)->preset);
    dl_json_str(j, "address", l->home.address);
    dl_json_u64(j, "params", l->run.manifest.n_parameters);
    dl_json_u64(j, "fragments", 1);
    dl_event_put_outer(j, dl_gossip_config(l));
    if (dl_gossip_config(l)->link[0]) dl_json_str(j, "link", dl_gossip_config(l)->link);
    DL_TRY(dl_recorder_end(&l->base.recorder));
    return dl_replica_record_trainer(&l->base);
}

/* Its members, and the live nodes that were not in it, by name. */
static void record_members(dl_gossip_process *l, dl_json *j)
{
    size_t set[DL_NODE_MAX + 1];
    const dl_node *n = &l->node;
    const dl_time now = dl_clock_now();
    const size_t k = dl_node_set(n, set);
    dl_json_array(j, "members");
    for (size_t i = 0; i < k; i++)
        dl_json_str(j, NULL,
                    set[i] == DL_NODE_MAX ? l->base.name
                                          : n->members[set[i]].beat.generation.replica);
    dl_json_end(j);
    dl_json_array(j, "missing");
    for (size_t i = 0; i < n->n_members; i++)
        if (!n->members[i].got && (n->members[i].late || !dl_node_is_live(n, i, now)) &&
            (!n->rules.pairs || i == n->partner))
            dl_json_str(j, NULL, n->members[i].beat.generation.replica);
    dl_json_end(j);
    dl_json_object(j, "ignored");
    for (int why = 0; why < DL_N_IGNORED; why++)
        dl_json_u64(j, dl_ignored_names[why], n->ignored[why]);
    dl_json_end(j);
}

/* The bytes that this node requested, and those that others read from it. */
static void traffic(const dl_gossip_process *l, uint64_t *sent, uint64_t *received)
{
    dl_wire_traffic(l->wire, sent, received);
    *sent += dl_hub_served(l->home.hub);
}

diloco_status dl_gossip_record_exchange(dl_gossip_process *l, const char *event, bool stepped,
                                        const dl_mix_facts *facts, double outer_s)
{
    uint64_t sent, received;
    char digest[DL_HASH_HEX + 1];
    const double exchange_s = dl_seconds(dl_clock_now() - l->exchange.trained_at) - outer_s;
    traffic(l, &sent, &received);
    dl_json *j = dl_recorder_begin(&l->base.recorder, event);
    dl_json_str(j, "consensus", "none");
    dl_json_u64(j, "round", l->node.round);
    dl_json_bool(j, "stepped", stepped);
    record_members(l, j);
    dl_json_f64(j, "inner_loss",
                dl_mean_loss(l->trained.work.loss_sum, l->trained.work.stats.steps));
    dl_json_f64(j, "pseudo_grad_norm", l->exchange.own.norm);
    dl_json_str(j, "combiner", stepped ? facts->outer.combiner : NULL);
    dl_json_bool(j, "combiner_fallback", stepped && facts->outer.fell_back);
    dl_json_u64(j, "tolerated", stepped ? facts->outer.tolerated : 0);
    dl_json_f64(j, "aggregated_grad_norm", stepped ? facts->outer.aggregated_norm : NAN);
    dl_json_f64(j, "peer_grad_similarity", stepped ? facts->outer.similarity : NAN);
    dl_json_f64(j, "weight_divergence", stepped ? facts->outer.divergence : NAN);
    dl_json_u64(j, "same_model", stepped ? facts->n_alike : 1);
    dl_json_u64(j, "bytes_sent", sent - l->exchange.bytes_sent);
    dl_json_u64(j, "bytes_received", received - l->exchange.bytes_received);
    dl_json_f64(j, "exchange_s", exchange_s);
    dl_json_f64(j, "outer_s", outer_s);
    dl_hash_to_hex(digest, l->state.now[0].digest);
    dl_json_str(j, "digest", digest);
    l->exchange.bytes_sent = sent;
    l->exchange.bytes_received = received;
    return dl_recorder_end(&l->base.recorder);
}

diloco_status dl_gossip_record_end(dl_gossip_process *l)
{
    uint64_t sent, received;
    char digest[DL_HASH_HEX + 1];
    dl_hash_to_hex(digest, l->state.now[0].digest);
    dl_wire_lock(l->wire);
    traffic(l, &sent, &received);
    dl_wire_unlock(l->wire);
    dl_json *j = dl_recorder_begin(&l->base.recorder, "end");
    dl_json_str(j, "consensus", "none");
    dl_json_u64(j, "entry", l->node.round);
    dl_json_u64(j, "steps", l->trained.steps);
    dl_json_u64(j, "stepped", l->node.self.stepped);
    dl_json_u64(j, "agreed", l->node.agreed);
    dl_json_u64(j, "tokens", l->trained.tokens);
    dl_json_u64(j, "bytes_sent", sent);
    dl_json_u64(j, "bytes_received", received);
    dl_json_f64(j, "data_parallel_bytes",
                4.0 * (double)l->run.manifest.n_parameters * (double)l->trained.steps);
    const double wall = dl_meter_wall(&l->base.meter);
    dl_json_f64(j, "utilization", wall > 0 ? l->base.meter.training_s / wall : NAN);
    dl_json_str(j, "model", digest);
    return dl_recorder_end(&l->base.recorder);
}
