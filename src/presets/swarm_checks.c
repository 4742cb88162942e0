/* swarm_checks.c - refusals and warnings of runs without a log (docs/swarm.md), in which nothing is
 * decided for all. */
#include "combine/combine.h"
#include "presets/checks_parts.h"

#include <inttypes.h>

/* The most nodes of a run without a log. Each keeps a heartbeat of every other one. */
enum { NODES_MAX = 64 };

/* These runs have no log, so every node has a model of its own (P23). */
static bool no_log(const dl_config *c)
{
    return c->consensus == DL_CONSENSUS_NONE;
}

static bool pairs(const dl_config *c)
{
    return no_log(c) && c->swarm_exchange == DL_SWARM_PAIRS;
}

/* Features that need a log and are in no row: a combiner that keeps the last update, and
 * gradients. */
static diloco_status check_logged(const dl_config *c)
{
    const char *what = NULL;
    if (dl_combiner_find(c->combiner)->keeps) what = "server.diloco.combiner = \"centered_clip\"";
    if (is(c->preset, "data_parallel")) what = "preset data_parallel";
    if (!what || !no_log(c)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s is decided by a log, and a run with swarm.consensus = \"none\" has no log: "
                   "choose another, or take swarm.consensus = \"log\"",
                   what);
}

/* The store is the folder of this machine's nodes, and each node serves its own objects. So the
 * URL of a server is refused. */
static diloco_status check_folder(const dl_config *c)
{
    if (!no_log(c) || !strstr(c->store, "://") || !strncmp(c->store, "file://", 7))
        return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "run.store = \"%s\": without a log (swarm.consensus = \"none\") it is the "
                   "folder of this machine's nodes; name one",
                   c->store);
}

/* NoLoCo (arXiv:2506.10911) mixes parameters of two nodes, so the payload is exact and its step
 * is that of momentum or sgd. */
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

/* With counts that exclude each other no round could move a model. */
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

/* dl_check_needs is the first: it covers all options that need a log by a condition in their
 * row. */
const refusal dl_swarm_refusals[] = {dl_check_needs, check_logged, check_folder,
                                     check_pairs,    check_nodes,  NULL};

/* An exchange without a log never repairs a difference between nodes; agreeing now and then
 * does. */
static void warn_apart(warning *out, const dl_config *c)
{
    if (no_log(c) && !pairs(c) && c->agree_every == 0)
        say(out, "swarm.agree_every = 0 with swarm.exchange = \"all\": a node that misses an "
                 "exchange never agrees with the others again");
}

const warning_row dl_swarm_warnings[] = {{"swarm_apart", warn_apart}, {NULL, NULL}};
