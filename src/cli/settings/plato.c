/* plato.c - one row a key of Plato's that is no option, one a value that it spells otherwise.
 *
 * docs/contract.md says which of its settings are the same here. Nothing of a Plato file is ignored
 * in silence: a key is an option, has a row here, or is an error. The calls have an order:
 * dl_plato_preset and dl_plato_server choose the preset, dl_plato_takes and dl_plato_translate see
 * each key, and dl_plato_finish follows all flags. */
#include "cli/settings/plato.h"
#include "base/run_kind.h"

#include <stdio.h>
#include <string.h>

/* ---- keys */

/* The keys that are no option. `fine` is the value that asks for nothing; "*" is any, as it
 * cannot change the result; NULL means that no value is. A key that ends with '.' is all below
 * it. `instead` is the way out. */
static const struct {
    const char *key, *fine, *instead;
} keys[] = {
    {"general.debug", "false",
     "run.on_missing = \"commit_partial\" commits without replicas "
     "that are gone"},

    {"clients.do_test", "false", "the server's evaluation of the shared model is the accuracy"},
    {"clients.comm_simulation", "*", NULL},
    {"clients.compute_comm_time", "*", NULL},
    {"clients.sleep_simulation", "*", NULL}, /* no client sleeps */
    {"clients.participating_clients_ratio", NULL, "clients.per_round is how many take part"},

    {"server.address", "*", NULL},
    {"server.port", "*", NULL},
    {"server.ping_interval", "*", NULL},
    {"server.ping_timeout", "*", NULL},
    {"server.simulate_wall_time", "*", NULL},
    {"server.model_path", "*", NULL},
    {"server.checkpoint_path", "*", NULL},
    {"server.periodic_interval", "*", NULL},
    {"server.staleness_bound", "*", NULL},
    {"server.minimum_clients_aggregated", "*", NULL},
    {"server.minimum_edges_aggregated", "*", NULL},
    {"server.request_update", "*", NULL},
    {"server.edge_downlink_bandwidth", "*", NULL},
    {"server.edge_uplink_bandwidth", "*", NULL},
    {"server.disable_clients", "false", "--set run.role=server starts a server alone"},
    {"server.s3_endpoint_url", NULL, "run.store = \"s3://BUCKET/RUN\" keeps the run in a bucket"},
    {"server.s3_bucket", NULL, "run.store = \"s3://BUCKET/RUN\" keeps the run in a bucket"},

    {"data.download", "*", NULL},
    {"data.testset_sampler", NULL,
     "it chooses the samples of clients' own tests (clients.do_test); omit it"},
    {"data.testset_size", NULL,
     "it is a random sample; trainer.eval_batches takes the first batches of the test set"},
    {"data.partition_distribution.", NULL, "data.sampler = \"distribution_noniid\" has such sizes"},
    {"data.anchor_classes", NULL, "take data.sampler = \"label_quantity_noniid\""},
    {"data.consistent_clients_size", NULL, "take data.sampler = \"label_quantity_noniid\""},
    {"data.keep_anchor_classes_size", NULL, "take data.sampler = \"label_quantity_noniid\""},
    {"data.split_parameter", NULL, "data.train_path and data.test_path name the files"},
    {"data.train_split", NULL, "data.train_path and data.test_path name the files"},
    {"data.test_split", NULL, "data.train_path and data.test_path name the files"},
    {"data.dataset_kwargs.", NULL, "data.train_path and data.test_path name the files"},
    {"data.train_kwargs.", NULL, "data.train_path and data.test_path name the files"},
    {"data.test_kwargs.", NULL, "data.train_path and data.test_path name the files"},

    {"trainer.max_concurrency", "*", NULL},
    {"trainer.parallelized", "*", NULL},
    {"trainer.loss_criterion", "CrossEntropyLoss", "the loss is the model's, cross-entropy"},
    {"trainer.model_type", NULL, "trainer.model_name is enough"},
    {"trainer.global_lr_scheduler", NULL, "server.diloco.outer_lr_schedule is the server's"},
    {"trainer.target_perplexity", NULL, "the run ends after trainer.rounds"},
    {"trainer.bf16", "false", "take trainer.precision = \"bf16\", which needs a card"},
    {"trainer.fp16", "false", "training is in float32"},

    {"algorithm.cross_silo", "false", "one server or none: there are no edge servers"},
    {"algorithm.local_rounds", NULL, "one server or none: there are no edge servers"},

    {"parameters.optimizer.amsgrad", "false", "omit it"},
    {"parameters.optimizer.nesterov", "false", "the inner sgd has plain momentum"},
    {"parameters.loss_criterion.", NULL, "the loss is the model's, cross-entropy"},

    {"results.record_clients_accuracy", "false", "the record has each client's loss"},
};

/* Values of options that are Plato's or torch's, with the way out. word: one word of the
 * option's list. */
static const struct {
    const char *key, *word, *instead;
} values[] = {
    {"trainer.optimizer", "Adagrad", "take AdamW, or SGD"},
    {"trainer.optimizer", "Adadelta", "take AdamW, or SGD"},
    {"trainer.optimizer", "sgdm",
     "it is an outer optimizer; take SGD with parameters.optimizer.momentum = 0.9"},
    {"trainer.lr_scheduler", "ExponentialLR", "take cosine, linear or wsd"},
    {"trainer.lr_scheduler", "CosineAnnealingLR", "take cosine, which ends with the run"},
    {"trainer.lr_scheduler", "ReduceLROnPlateau", "take constant, or cosine"},
    {"results.types", "comm_time",
     "elapsed_time includes the simulated transfers (clients.bandwidth); comm_overhead has the "
     "megabytes that were exchanged"},
    {"results.types", "processing_time", "take elapsed_time"},
};

/* Return the way out for a value that is not built here, or NULL. Only a whole word of a list
 * counts. */
static const char *instead_of(const char *key, const char *text)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const size_t len = strlen(values[i].word);
        const char *at = strcmp(values[i].key, key) == 0 ? strstr(text, values[i].word) : NULL;
        if (at && (at == text || strchr(", ", at[-1])) && (!at[len] || strchr(", ", at[len])))
            return values[i].instead;
    }
    return NULL;
}

/* Torch's optimizers that add the decay to the gradient, where those here decouple it. */
static const dl_plato_coupled coupled[] = {
    {"Adam", "AdamW", false}, {"RMSprop", "rmsprop", false}, {"SGD", "sgd", true}};

/* Return the row of the optimizer, or NULL. */
static const dl_plato_coupled *coupled_of(const char *optimizer)
{
    for (size_t i = 0; i < sizeof coupled / sizeof coupled[0]; i++)
        if (strcmp(coupled[i].name, optimizer) == 0) return &coupled[i];
    return NULL;
}

/* Return true if the row is about the key. */
static bool answers(const char *row, const char *key)
{
    size_t len = strlen(row);
    return row[len - 1] == '.' ? strncmp(row, key, len) == 0 : strcmp(row, key) == 0;
}

/* Keys without use are listed in one warning, and not in one each. */
static void note(dl_plato *plato, const char *key)
{
    size_t used = strlen(plato->unused);
    snprintf(plato->unused + used, sizeof plato->unused - used, "%s%s", used ? ", " : "", key);
}

/* The text is as the file has it. Returns true for a key that needs nothing more, also if it is
 * refused. */
bool dl_plato_takes(diloco_status *status, dl_plato *plato, const char *key, const char *text,
                    const char *at)
{
    *status = DILOCO_OK;
    if (strcmp(key, "data.datasource") == 0 && strcmp(text, "Torchvision") == 0)
        return plato->torchvision = true;
    if (strcmp(key, "trainer.optimizer") == 0) plato->coupled = coupled_of(text);
    const char *instead = instead_of(key, text);
    if (instead) {
        *status = dl_fail(DILOCO_EREFUSED, "%s: %s = %.100s is Plato's, and not built here: %s", at,
                          key, text, instead);
        return true;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!answers(keys[i].key, key)) continue;
        bool any = keys[i].fine && strcmp(keys[i].fine, "*") == 0;
        if (any)
            note(plato, key);
        else if (!keys[i].fine || strcmp(keys[i].fine, text) != 0)
            *status = dl_fail(DILOCO_EREFUSED, "%s: %s = %.100s is Plato's, and not built here: %s",
                              at, key, text, keys[i].instead);
        return true;
    }
    return false;
}

/* ---- words */

/* Return true for "5ep": a whole number of epochs. */
static bool is_epochs(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    return n > 0 && strcmp(text + n, "ep") == 0;
}

/* The names in a file are exchanged before the option table sees them, so that the table has one
 * name for each. */
void dl_plato_translate(const char **key, const char **text)
{
    static const struct {
        const char *key, *plato, *ours;
    } words[] = {
        {"trainer.optimizer", "AdamW", "adamw"},
        {"trainer.optimizer", "Adam", "adamw"},      /* without decay: dl_plato_finish */
        {"trainer.optimizer", "RMSprop", "rmsprop"}, /* likewise */
        {"trainer.optimizer", "SGD", "sgd"},
        {"server.diloco.outer_optimizer", "sgdm", "momentum"},
    };
    if (strcmp(*key, "parameters.learning_rate.warmup_steps") == 0 && is_epochs(*text))
        *key = "parameters.learning_rate.warmup_epochs";
    if (strcmp(*key, "data.dataset_name") == 0 || strcmp(*key, "data.dataset") == 0)
        *key = "data.datasource";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].key, *key) == 0 && strcmp(words[i].plato, *text) == 0)
            *text = words[i].ours;
}

/* ---- derived values */

/* A file with clients and without a server.type is one of FedAvg, as with Plato. */
const char *dl_plato_preset(const char *server_type, bool clients)
{
    if (*server_type == '\0') return clients ? "fedavg" : NULL;
    return clients && strcmp(server_type, "diloco") == 0 ? "federated" : server_type;
}

/* Types that are known and not built get an answer of their own; any other is left to the option
 * table. */
diloco_status dl_plato_server(const char *type)
{
    static const char *const others[] = {
        "fedavg_cross_silo",   "fedavg_gan",        "fedavg_he",      "fedavg_personalized",
        "fedavg_mpc_additive", "fedavg_mpc_shamir", "split_learning", "pfedgraph"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], type) == 0)
            return dl_fail(DILOCO_EREFUSED,
                           "server.type = \"%s\" is Plato's, and not built here: take diloco, "
                           "fedavg, fedavgm, fedprox, fedadam, fedyogi or fedadagrad",
                           type);
    return DILOCO_OK;
}

/* Return true if the option was set by a person, and not by default or preset. */
static bool by_hand(const dl_config *config, const char *option)
{
    const char *from = dl_config_origin(config, option);
    return strcmp(from, "default") != 0 && strncmp(from, "preset ", 7) != 0;
}

/* Set H to whole epochs. Without a number of steps a client of FedAvg trains those. */
static diloco_status whole_epochs(dl_config *config)
{
    if (!dl_run_kind_of(config)->has_epochs || config->epochs == 0 ||
        by_hand(config, "trainer.local_steps_per_round") ||
        strcmp(config->preset, "federated") == 0)
        return DILOCO_OK;
    return dl_config_set(config, "trainer.local_steps_per_round", "0", "trainer.epochs");
}

/* Set the decay to 0 for an optimizer of torch that would add it to the gradient. Without decay it
 * is the optimizer here; with decay it is another algorithm. Plain SGD makes the same step in both
 * ways, if every tensor decays. */
static diloco_status without_decay(dl_config *config, const dl_plato *plato)
{
    static const char option[] = "parameters.optimizer.weight_decay";
    static const char all[] = "parameters.optimizer.decay_of";
    if (!plato->coupled) return DILOCO_OK;
    if (!by_hand(config, option)) return dl_config_set(config, option, "0", "trainer.optimizer");
    const bool same = plato->coupled->same_without_momentum && config->momentum <= 0;
    if (config->weight_decay <= 0) return DILOCO_OK;
    if (same && !by_hand(config, all))
        return dl_config_set(config, all, "all", "trainer.optimizer"); /* as torch's */
    if (same && config->decayed == DL_DECAYED_ALL) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.optimizer = \"%s\" with %s = %g adds the decay to the gradient, "
                   "which is not built here: take %s, which decouples it, or %s = 0",
                   plato->coupled->name, option, config->weight_decay, plato->coupled->decoupled,
                   option);
}

/* The derived values follow when all is read, since a flag may still change what they depend on. */
diloco_status dl_plato_finish(dl_config *config, const dl_plato *plato)
{
    const char *type = dl_server_choice_names[config->server_type];
    bool given = dl_config_given(config, "server.type");
    const char *preset = dl_plato_preset(given ? type : "", dl_config_federated(config));
    if (preset && given && strcmp(preset, config->preset) != 0)
        return dl_fail(
            DILOCO_EINVAL,
            "server.type = \"%s\" (%s) is preset %s, and preset is \"%s\" (%s): keep one", type,
            dl_config_origin(config, "server.type"), preset, config->preset,
            dl_config_origin(config, "preset"));
    if (plato->torchvision && !dl_config_given(config, "data.datasource"))
        return dl_fail(DILOCO_EINVAL, "data.datasource = \"Torchvision\" needs data.dataset_name: "
                                      "MNIST or CIFAR10");
    if (plato->torchvision && !config->train_path[0])
        DL_TRY(dl_config_set(config, "data.train_path", "data", "chosen"));
    DL_TRY(without_decay(config, plato));
    return whole_epochs(config);
}
