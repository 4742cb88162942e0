/* run_kind.c - see run_kind.h. */
#include "base/run_kind.h"

static const dl_run_kind rounds = {.processes = true};

static const dl_run_kind async = {
    .one_by_one = true,
    .processes = true,
    .no_checks = "check.* compares the contributions to an entry, and with "
                 "server.diloco.schedule = \"async\" each is one: omit the section, "
                 "or take schedule \"offset\"",
    .no_deal = "data.deal = \"log\" deals samples from due point to due point, and "
               "server.diloco.schedule = \"async\" has none: take data.deal \"local\", or "
               "schedule \"offset\"",
    .no_exchange = "combines what several have contributed, and with server.diloco.schedule = "
                   "\"async\" each contribution is an entry: leave it \"auto\", or take schedule "
                   "\"offset\"",
    .no_drop = "with server.diloco.schedule = \"async\" a replica waits for the entry that counts "
               "its own",
    .no_common_step = "server.diloco.schedule = \"async\": each replica counts its own steps",
};

static const dl_run_kind clients = {
    .has_epochs = true,
    .no_checks = "check.* judges replicas, and logical clients (clients.total_clients) come "
                 "and go with the draw: omit the section",
    .no_deal = "clients.total_clients gives each client data of its own, and data.deal = \"log\" "
               "deals the samples of all the data to all: omit one of them",
    .no_exchange = "goes round the members of an entry, and with clients.total_clients these are "
                   "clients, not processes: leave it \"auto\"",
    .no_drop = "clients.dropout is that of logical clients",
    .no_common_step = "clients.total_clients: clients count their own steps",
};

const dl_run_kind *dl_run_kind_of(const dl_config *config)
{
    if (config->schedule == DL_SCHEDULE_ASYNC) return &async;
    return dl_config_federated(config) ? &clients : &rounds;
}

const char *dl_run_no_extension(const dl_config *config)
{
    const dl_run_kind *kind = dl_run_kind_of(config);
    if (kind->no_common_step) return kind->no_common_step;
    if (config->consensus == DL_CONSENSUS_NONE)
        return "swarm.consensus = \"none\": each node counts its own steps";
    if (config->deal == DL_DEAL_LOG)
        return "data.deal = \"log\": the log of a run assigns its samples from the first one on";
    if (config->outer_lr_schedule != DL_OUTER_LR_CONSTANT)
        return "server.diloco.outer_lr_schedule: it counts the rounds of one run";
    return NULL;
}
