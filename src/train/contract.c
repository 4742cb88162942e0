/* contract.c - refusals and warnings of runs with logical clients, and what has no effect without
 * them: Plato's DiLoCo contract as docs/contract.md has it. Rows of checks.c's tables.
 *
 * Where the combination can be had but is not the contract's, it is a warning; a run without one
 * of those is faithful, and its record says so. */
#include "train/checks.h"
#include "train/checks_parts.h"

/* ---- refusals */

static diloco_status check_algorithm(const dl_config *config)
{
    if (is(config->algorithm_type, "fedavg")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "algorithm.type = \"%s\": what clients and server exchange is one of: fedavg. "
                   "DiLoCo is asked for by server.type = \"diloco\", with algorithm.type = "
                   "\"fedavg\"",
                   config->algorithm_type);
}

static diloco_status check_trainer(const dl_config *config)
{
    if (is(config->trainer_type, "basic")) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "trainer.type = \"%s\": trainer.local_steps_per_round counts completed optimizer "
        "steps exactly, and only trainer \"basic\" does: take that",
        config->trainer_type);
}

static diloco_status check_client_type(const dl_config *config)
{
    if (is(config->client_type, "simple")) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "clients.type = \"%s\" is not DiLoCo's local work, which is that of \"simple\": "
                   "take that",
                   config->client_type);
}

const refusal dl_contract_refusals[] = {
    check_algorithm, check_trainer, check_client_type, dl_check_clients, NULL,
};

/* ---- warnings */

static void warn_no_clients(warning *out, const dl_config *config)
{
    static const char *const options[] = {"clients.per_round",
                                          "trainer.epochs",
                                          "data.stream",
                                          "trainer.target_accuracy",
                                          "server.diloco.plato_compat",
                                          "results.types",
                                          "results.result_path"};
    for (size_t i = 0; !dl_config_federated(config) && i < sizeof options / sizeof options[0]; i++)
        if (by_hand(config, options[i]))
            say(out, "%s has no effect without clients.total_clients", options[i]);
}

const warning_row dl_contract_warnings[] = {
    {"clients", warn_no_clients},
    {NULL, NULL},
};
