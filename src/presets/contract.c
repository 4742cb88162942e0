/* contract.c - refusals and warnings of runs with logical clients, and what has no effect without
 * them: Plato's DiLoCo contract as docs/contract.md has it. Rows of checks.c's tables;
 * client_checks.c has what such a run cannot do at all.
 *
 * A setting that is allowed but not the contract's gives a warning whose code begins with
 * "unfaithful". A run of preset federated without such a warning is faithful, and its record says
 * so. */
#include "presets/contract.h"

#include "codec/codec.h"
#include "presets/checks.h"
#include "presets/checks_parts.h"
#include "presets/presets.h"
#include "presets/result_columns.h"

/* ---- refusals */

/* Plato names DiLoCo by its server; its algorithm stays fedavg. */
static diloco_status check_algorithm(const dl_config *config)
{
    if (is(config->algorithm_type, "fedavg")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "algorithm.type = \"%s\": the only algorithm is fedavg. For DiLoCo set "
                   "server.type = \"diloco\", with algorithm.type = \"fedavg\"",
                   config->algorithm_type);
}

/* Plato's trainer "basic" is the one whose steps this program counts. */
static diloco_status check_trainer(const dl_config *config)
{
    if (is(config->trainer_type, "basic")) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "trainer.type = \"%s\": trainer.local_steps_per_round counts completed optimizer "
        "steps exactly, and only trainer \"basic\" does: take that",
        config->trainer_type);
}

/* Other kinds of clients do other local work than DiLoCo's. */
static diloco_status check_client_type(const dl_config *config)
{
    if (is(config->client_type, "simple")) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "clients.type = \"%s\" is not DiLoCo's local work, which is that of \"simple\": "
                   "take that",
                   config->client_type);
}

/* Processors are Plato's filters on payloads. The manifest fixes the tensors of a contribution,
 * so a filter could only break it. */
static diloco_status check_processors(const dl_config *config)
{
    const bool out = config->outbound[0] != 0;
    if (!out && !config->inbound[0]) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "clients.%s_processors = \"%s\": contributions hold exactly the tensors of the model's "
        "manifest, and no filter may add optimizer state to them. Omit it; "
        "server.diloco.codec and compression make contributions smaller",
        out ? "outbound" : "inbound", out ? config->outbound : config->inbound);
}

/* With "restart" and H below an epoch a client would see only the beginning of its data. */
static diloco_status check_stream(const dl_config *config)
{
    if (config->stream == DL_STREAM_PERSISTENT) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "data.stream = \"%s\": a client that begins every round with the same samples "
                   "never sees the rest of its data where trainer.local_steps_per_round is less "
                   "than an epoch: leave it \"persistent\"",
                   dl_stream_choice_names[config->stream]);
}

/* The list ends with NULL. A new refusal is one more name. */
const refusal dl_contract_refusals[] = {
    check_algorithm, check_trainer,    check_client_type, check_processors,
    check_stream,    dl_results_check, dl_check_clients,  NULL,
};

/* ---- warnings */

/* The contract is that of preset federated; other presets with clients are other algorithms and
 * are never called unfaithful. */
static bool diloco(const dl_config *config)
{
    return dl_config_federated(config) && dl_preset_is(config, "federated");
}

/* Each of the following warns of one setting that the contract does not have. */
static void warn_optimizer(warning *out, const dl_config *config)
{
    const char *outer = config->outer_optimizer;
    if (diloco(config) && !is(outer, "nesterov") && !is(outer, "momentum") && !is(outer, "sgd"))
        say(out,
            "server.diloco.outer_optimizer = \"%s\" is not of Plato's contract, which has "
            "nesterov, "
            "momentum and sgd: the record says unfaithful",
            outer);
}

static void warn_weights(warning *out, const dl_config *config)
{
    if (diloco(config) && !is(config->weighting, "uniform") &&
        !is(config->weighting, "num_samples"))
        say(out,
            "server.diloco.aggregation_weighting = \"%s\" is not of Plato's contract, which has "
            "uniform and num_samples: the record says unfaithful",
            config->weighting);
}

static void warn_combiner(warning *out, const dl_config *config)
{
    if (diloco(config) && !is(config->combiner, "mean"))
        say(out,
            "server.diloco.combiner = \"%s\" is not of Plato's contract, which takes the mean of "
            "the clients: the record says unfaithful",
            config->combiner);
}

static void warn_wire(warning *out, const dl_config *config)
{
    if (diloco(config) && dl_codec_find(config->codec)->lossy)
        say(out,
            "server.diloco.codec = \"%s\" loses a part of what clients send, and Plato's contract "
            "has all of it: the record says unfaithful",
            config->codec);
}

static void warn_partial(warning *out, const dl_config *config)
{
    const bool early = config->close_at > 0 || config->on_missing != DL_MISSING_WAIT;
    if (diloco(config) && early)
        say(out,
            "%s closes a round before all of its clients have contributed, and Plato's contract "
            "counts every client that was selected: the record says unfaithful",
            config->close_at > 0 ? "run.close_at" : "run.on_missing");
}

static void warn_proximal(warning *out, const dl_config *config)
{
    if (diloco(config) && config->proximal_mu > 0)
        say(out,
            "trainer.proximal_mu = %g changes the clients' loss, which Plato's contract leaves as "
            "it is: the record says unfaithful",
            config->proximal_mu);
}

static void warn_lost(warning *out, const dl_config *config)
{
    if (diloco(config) && config->on_lost_state == DL_LOST_STATE_RESET)
        say(out, "clients.on_lost_state = \"reset\" resets a client's optimizer when its state is "
                 "lost, and Plato's contract keeps it: the record says unfaithful");
}

/* The list ends with NULL. A code that begins with "unfaithful" makes dl_contract_name say so. */
const warning_row dl_contract_warnings[] = {
    {"unfaithful_optimizer", warn_optimizer}, {"unfaithful_weighting", warn_weights},
    {"unfaithful_combiner", warn_combiner},   {"unfaithful_codec", warn_wire},
    {"unfaithful_waiting", warn_partial},     {"unfaithful_state", warn_lost},
    {"unfaithful_loss", warn_proximal},       {NULL, NULL},
};

/* Return the word for the record. It asks the warnings themselves, so the record and the
 * warnings cannot differ. */
const char *dl_contract_name(const dl_config *config)
{
    if (!diloco(config)) return "none";
    for (const warning_row *row = dl_contract_warnings; row->code; row++) {
        static const char kind[] = "unfaithful";
        warning text = {""};
        if (strncmp(row->code, kind, strlen(kind)) != 0) continue;
        row->check(&text, config);
        if (text.text[0]) return kind;
    }
    return "faithful";
}
