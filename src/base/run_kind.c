/* run_kind.c - see run_kind.h. */
#include "base/run_kind.h"

#include <string.h>

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

const char *dl_run_no_common_step(const dl_config *config)
{
    if (config->consensus == DL_CONSENSUS_NONE)
        return "swarm.consensus = \"none\": each node counts its own steps";
    return dl_run_kind_of(config)->no_common_step;
}

const char *dl_run_no_extension(const dl_config *config)
{
    const char *why = dl_run_no_common_step(config);
    if (why) return why;
    if (config->deal == DL_DEAL_LOG)
        return "data.deal = \"log\": the log of a run assigns its samples from the first one on";
    if (config->outer_lr_schedule != DL_OUTER_LR_CONSTANT)
        return "server.diloco.outer_lr_schedule: it counts the rounds of one run";
    return NULL;
}

static bool is_listed(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

/* The digest of a tokenizer is not known before its file is read. */
static bool orders_samples(const dl_option *row)
{
    static const char *const others[] = {"trainer.batch_size",
                                         "trainer.gradient_accumulation_steps",
                                         "run.replicas",
                                         "run.seed",
                                         "parameters.model.context",
                                         NULL};
    if (!(row->flags & DL_OPTION_AGREE) || row->flags & DL_OPTION_FIXED) return false;
    return is_listed(row->name, others) || !strncmp(row->name, "data.", 5);
}

const dl_option *dl_run_samples_differ(const dl_config *a, const dl_config *b)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (orders_samples(row) && !dl_option_equal(row, a, b)) return row;
    }
    return NULL;
}

bool dl_run_counts_commits(const dl_config *config)
{
    static const char *const names[] = {"adam", "adamw",         "delayed_nesterov",
                                        "muon", "schedule_free", NULL};
    return is_listed(config->outer_optimizer, names);
}
