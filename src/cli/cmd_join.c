/* cmd_join.c - take part in an existing run.
 *
 * Settings that must agree come from the run. Only options of this machine may be set, such as the
 * path of its data. Everything that can be refused is refused before a process starts; then
 * crew/crew.h runs the replicas to their end. */
#include "cli/crew/crew.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "fetch/fetch_data.h"
#include <diloco/train.h>

/* Refuse to join without data. A path in the run would be one of the machine that created it. */
static diloco_status check_data(const dl_config *config)
{
    if (*config->train_path) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "the run does not record the path of this machine's copy of the "
                                  "data: add --set data.train_path=FILE");
}

/* The file or the run may name a number of local replicas; a joining machine runs one by
 * default. */
static diloco_status set_local_replicas(dl_config *config, const dl_args *args)
{
    const char *n = args->flags[DL_FLAG_REPLICAS];
    /* run.replicas is the run's and stays: a replica that joins may be one more than it says. */
    if (n) DL_TRY(dl_config_set(config, "run.local_replicas", n, "--replicas"));
    if (config->local_replicas > 0) return DILOCO_OK;
    if (n) return dl_fail(DILOCO_EINVAL, "--replicas %.20s: at least one is needed", n);
    return dl_config_set(config, "run.local_replicas", "1", "default of join");
}

/* Load the settings of the run. A run with a log is found by its URL, and a run without one by the
 * address of a node (--peer). --store names a folder only in the second case. */
static diloco_status find_settings(dl_config *config, const dl_args *args)
{
    if (dl_args_has(args, DL_FLAG_PEER)) return dl_swarm_settings(config, args);
    if (dl_args_has(args, DL_FLAG_STORE))
        return dl_fail(DILOCO_EINVAL, "--store goes with --peer; a run with a log is its URL");
    if (!args->target) return dl_fail(DILOCO_EINVAL, "join needs a URL; see diloco join --help");
    DL_TRY(dl_settings_of_run(config, args));
    if (!dl_swarm_is(config)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the run in %s has no log (swarm.consensus = \"none\"): join it by a node, "
                   "diloco join --peer HOST:PORT",
                   config->store);
}

/* Refuse --rank where it names nothing. It names one replica of a run with a log; elsewhere
 * members choose their names. */
static diloco_status check_rank(const dl_config *config, const dl_args *args)
{
    if (!dl_args_has(args, DL_FLAG_RANK)) return DILOCO_OK;
    if (dl_swarm_is(config))
        return dl_fail(DILOCO_EREFUSED, "--rank: nodes of a run without a log have names of their "
                                        "own");
    if (config->local_replicas != 1)
        return dl_fail(DILOCO_EINVAL, "--rank numbers one replica, and %lld are to run",
                       (long long)config->local_replicas);
    return DILOCO_OK;
}

/* --print-config stops before the data is looked for, so it works on a machine without a copy. */
static diloco_status cmd_join(const dl_args *args)
{
    dl_config config;
    DL_TRY(find_settings(&config, args));
    DL_TRY(set_local_replicas(&config, args));
    DL_TRY(check_rank(&config, args));
    if (dl_args_has(args, DL_FLAG_PRINT_CONFIG))
        return dl_settings_print(&config, dl_args_has(args, DL_FLAG_JSON));
    DL_TRY(check_data(&config));
    DL_TRY(dl_fetch_data(&config));
    DL_TRY(diloco_train_check(&config));
    return dl_crew_run(&config, args, true);
}

const dl_command dl_command_join = {
    .name = "join",
    .target = "[URL]",
    .summary = "take part in a run; its settings come from the run itself",
    .details = "The data is this machine's own copy: --set data.train_path=FILE. URL may be the\n"
               "join line that a hub printed; given as @FILE or on stdin as -, it does not\n"
               "appear in any list of processes. A run without a log is joined by the address of\n"
               "one of its nodes, --peer HOST:PORT. Then --store is the folder of this machine's\n"
               "nodes (default runs/swarm), and --set swarm.listen=HOST:PORT is the address that\n"
               "other nodes connect to.",
    .flags = DL_FLAGS(DL_FLAG_PEER, DL_FLAG_STORE, DL_FLAG_REPLICAS, DL_FLAG_ROLE, DL_FLAG_RECORD,
                      DL_FLAG_RUN_LINK, DL_FLAG_RANK, DL_FLAG_SET, DL_FLAG_PRINT_CONFIG,
                      DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_MACHINE,
    .run = cmd_join,
};
