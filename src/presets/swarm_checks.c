/* swarm_checks.c - refusals and warnings of runs without a log (docs/swarm.md): what nobody decides
 * cannot be asked for. */
#include "combine/combine.h"
#include "presets/checks_parts.h"
#include "protocol/judge.h"

#include <inttypes.h>

enum { NODES_MAX = 64 };

static bool no_log(const dl_config *c)
{
    return c->consensus == DL_CONSENSUS_NONE;
}

static bool pairs(const dl_config *c)
{
    return no_log(c) && c->swarm_exchange == DL_SWARM_PAIRS;
}

/* One row a thing that only a log can do: the option, whether it is asked for, and what would do.
 */
typedef struct logged {
    const char *option, *leave;
    bool asked;
} logged;

static diloco_status check_logged(const dl_config *c)
{
    const logged rows[] = {
        {"clients.total_clients", "0", dl_config_federated(c)},
        {"data.deal = \"log\"", "\"local\"", c->deal == DL_DEAL_LOG},
        {"server.diloco.fragments", "1", c->fragments != 1},
        {"server.diloco.schedule", "\"offset\"", c->schedule != DL_SCHEDULE_OFFSET},
        {"server.diloco.overlap", "\"steps\"", c->overlap != DL_OVERLAP_STEPS},
        {"trainer.local_steps_phases", "empty", c->local_steps_phases[0] != 0},
        {"server.diloco.overlap_steps", "0", c->overlap_steps > 0},
        {"server.diloco.local_mix", "0", c->local_mix > 0},
        {"server.diloco.error_feedback", "0", c->error_feedback > 0},
        {"server.diloco.compression", "\"none\"", c->compression != DL_COMPRESSION_NONE},
        {"server.diloco.exchange", "\"auto\"", c->exchange != DL_EXCHANGE_AUTO},
        {"run.on_missing", "\"wait\"", c->on_missing != DL_MISSING_WAIT},
        {"run.on_uncounted", "\"adopt\"", c->on_uncounted != DL_UNCOUNTED_ADOPT},
        {"run.close_at", "0", c->close_at > 0},
        {"run.drop", "0", c->drop > 0},
        {"run.single_committer", "empty", c->single_committer[0] != 0},
        {"run.coord", "empty", c->coord[0] != 0},
        {"run.roster", "\"trusted\"", c->roster != DL_TRUSTED},
        {"run.peers", "false", c->peers},
        {"run.trace_protocol", "false", c->trace_protocol},
        {"server.diloco.combiner = \"centered_clip\"", "another",
         dl_combiner_find(c->combiner)->keeps},
        {"trainer.target_accuracy", "0", c->target_accuracy > 0},
        {"check.*, what a log judges contributions by,", "at its defaults", dl_judge_is_on(c)},
        {"preset data_parallel", "another", is(c->preset, "data_parallel")},
    };
    for (size_t i = 0; no_log(c) && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].asked)
            return dl_fail(DILOCO_EREFUSED,
                           "%s is decided by a log, and with swarm.consensus = \"none\" there is "
                           "none: leave it %s, or take swarm.consensus = \"log\"",
                           rows[i].option, rows[i].leave);
    return DILOCO_OK;
}

static diloco_status check_folder(const dl_config *c)
{
    if (!no_log(c) || !strstr(c->store, "://") || !strncmp(c->store, "file://", 7))
        return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "run.store = \"%s\": without a log (swarm.consensus = \"none\") it is the "
                   "folder of this machine's nodes; name one",
                   c->store);
}

static diloco_status check_pairs(const dl_config *c)
{
    if (!pairs(c)) return DILOCO_OK;
    if (!is(c->codec, "f32"))
        return dl_fail(DILOCO_EREFUSED,
                       "swarm.exchange = \"pairs\" sends parameters, which codec %s would round: "
                       "leave it f32, or take swarm.exchange = \"all\"",
                       c->codec);
    if (!is(c->outer_optimizer, "momentum") && !is(c->outer_optimizer, "sgd"))
        return dl_fail(
            DILOCO_EREFUSED,
            "swarm.exchange = \"pairs\" makes NoLoCo's step (arXiv:2506.10911), which is "
            "server.diloco.outer_optimizer momentum or sgd, not %s: take one of those, or "
            "swarm.exchange = \"all\"",
            c->outer_optimizer);
    if (c->min_peers > 2)
        return dl_fail(DILOCO_EREFUSED,
                       "swarm.min_peers = %" PRId64 ", and with swarm.exchange = \"pairs\" a round "
                       "has two: lower it",
                       c->min_peers);
    return DILOCO_OK;
}

static diloco_status check_nodes(const dl_config *c)
{
    if (!no_log(c)) return DILOCO_OK;
    if (c->replicas > NODES_MAX)
        return dl_fail(DILOCO_EREFUSED,
                       "run.replicas = %" PRId64 ": without a log a node knows at most %d others; "
                       "take fewer",
                       c->replicas, NODES_MAX);
    if (c->min_peers > c->replicas)
        return dl_fail(DILOCO_EINVAL,
                       "swarm.min_peers = %" PRId64 " and run.replicas = %" PRId64
                       ": no round could move a model; raise run.replicas, or lower the other",
                       c->min_peers, c->replicas);
    if (!c->cert[0] != !c->cert_key[0])
        return dl_fail(DILOCO_EINVAL, "swarm.cert and swarm.key go together: give both");
    return DILOCO_OK;
}

const refusal dl_swarm_refusals[] = {check_logged, check_folder, check_pairs, check_nodes, NULL};

static void warn_apart(warning *out, const dl_config *c)
{
    if (no_log(c) && !pairs(c) && c->agree_every == 0)
        say(out, "swarm.agree_every = 0 with swarm.exchange = \"all\": what one node missed keeps "
                 "its model apart from the others' for good");
}

const warning_row dl_swarm_warnings[] = {{"swarm_apart", warn_apart}, {NULL, NULL}};
