/* client_checks.c - refusals of a federated run (docs/federated.md); see checks.c. A new refusal
 * is a function here and a line in dl_check_clients. */
#include "combine/combine.h"
#include "presets/checks.h"
#include "presets/checks_parts.h"
#include "presets/presets.h"
#include "protocol/logical_clients.h"

#include <inttypes.h>

/* An entry has at most DL_MAX_MEMBERS members, so no more clients can be sampled in a round. */
static diloco_status check_client_counts(const dl_config *config)
{
    if (config->per_round > config->total_clients)
        return dl_fail(DILOCO_EINVAL,
                       "clients.per_round = %" PRId64
                       " is more than clients.total_clients = %" PRId64
                       ": lower it, or leave it 0 for all",
                       config->per_round, config->total_clients);
    if (dl_clients_per_round(config) > DL_MAX_MEMBERS)
        return dl_fail(DILOCO_EREFUSED,
                       "clients.per_round asks %zu clients, and an entry has at most %d members: "
                       "take fewer a round",
                       dl_clients_per_round(config), DL_MAX_MEMBERS);
    return DILOCO_OK;
}

/* A client begins each round from the shared model. So overlapping rounds, or keeping parameters
 * between them, has no meaning for it. */
static diloco_status check_client_loop(const dl_config *config)
{
    if (config->fragments != 1 || config->overlap_steps > 0 ||
        config->overlap != DL_OVERLAP_STEPS || config->schedule == DL_SCHEDULE_ASYNC ||
        config->local_steps_phases[0])
        return dl_fail(
            DILOCO_EREFUSED,
            "clients.total_clients: an entry of logical clients is one fragment, for which all "
            "clients of a round wait; server.diloco.fragments, overlap, schedule \"async\" and "
            "trainer.local_steps_phases are for replicas: omit them");
    if (dl_preset_is(config, "data_parallel") || dl_preset_is(config, "single"))
        return dl_fail(DILOCO_EREFUSED,
                       "preset %s has no logical clients: leave clients.total_clients 0, or take "
                       "preset federated or fedavg",
                       config->preset);
    if (config->local_mix > 0 || config->on_uncounted == DL_UNCOUNTED_KEEP)
        return dl_fail(DILOCO_EREFUSED,
                       "clients.total_clients: a client begins every round from the shared model, "
                       "so it keeps no parameters of its own: leave server.diloco.local_mix 0 and "
                       "run.on_uncounted \"adopt\"");
    return DILOCO_OK;
}

/* plato_compat sets the outer vectors to zero after a round without an eligible client (P10.6).
 * Other rows' vectors are more than a momentum: a mean of the past, a count's correction. */
static diloco_status check_plato_compat(const dl_config *config)
{
    const char *outer = config->outer_optimizer;
    if (!config->plato_compat || dl_outer_find(outer)->linear) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "server.diloco.plato_compat = true empties the outer momentum in a round without "
        "an eligible client, and %s keeps more than that: take nesterov, momentum or "
        "sgd, or leave it false",
        outer);
}

/* The payload "weights" is parameters, as Plato sends them, and codecs but f32 are made for
 * movements. */
static diloco_status check_client_payload(const dl_config *config)
{
    if (config->payload == DL_PAYLOAD_DELTA || is(config->codec, "f32")) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "clients.payload = \"weights\" sends values as they are, and codec %s writes "
                   "movements, in fewer bits: leave server.diloco.codec \"f32\", or send \"delta\"",
                   config->codec);
}

/* A replica derives its deadline from its own rounds (P10); the process of a federated run
 * trains nothing and has none. */
static diloco_status check_client_waiting(const dl_config *config)
{
    if (config->on_missing == DL_MISSING_WAIT || config->deadline_s > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "run.on_missing = \"%s\" with clients.total_clients closes a round at its "
                   "deadline, which nothing measures for it: set run.deadline in seconds, or leave "
                   "\"wait\"",
                   dl_missing_choice_names[config->on_missing]);
}

/* PROTOCOL P24: private state is not stored beside the contributions, where every replica could
 * read it. The comparison is by text, so it finds the same place only in the same spelling. */
static diloco_status check_client_state(const dl_config *config)
{
    const size_t len = strlen(config->store);
    if (!config->client_state[0] && is(config->state_dir, "none"))
        return dl_fail(
            DILOCO_EREFUSED,
            "run.state_dir = \"none\" leaves no place for the clients' inner state, which "
            "has to be kept from round to round: set clients.state, or a folder");
    if (config->client_state[0] && strncmp(config->client_state, config->store, len) == 0 &&
        (!config->client_state[len] || config->client_state[len] == '/'))
        return dl_fail(
            DILOCO_EREFUSED,
            "clients.state = \"%s\" is in the run's own store, which every replica reads: name "
            "a place that only workers can read",
            config->client_state);
    return DILOCO_OK;
}

/* In order: is it a federated run at all, then each of the checks above. */
diloco_status dl_check_clients(const dl_config *config)
{
    if (!dl_config_federated(config)) {
        if (!dl_preset_is(config, "federated")) return DILOCO_OK;
        return dl_fail(DILOCO_EINVAL, "preset federated has logical clients, and "
                                      "clients.total_clients is 0: set how many there are");
    }
    DL_TRY(check_client_counts(config));
    DL_TRY(check_client_loop(config));
    DL_TRY(check_plato_compat(config));
    DL_TRY(check_client_payload(config));
    DL_TRY(check_client_waiting(config));
    return check_client_state(config);
}
