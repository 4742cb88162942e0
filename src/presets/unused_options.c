/* unused_options.c - options that only some values of another option read: said where a person gave
 * one and the value does not read it. One row an option, one sentence for all of another option. */
#include "presets/checks_parts.h"

typedef struct reading {
    const char *option, *readers; /* readers: with "|" before, between and behind them */
} reading;

typedef struct chooser {
    const char *option, *value;
    const reading *rows; /* up to one without option */
} chooser;

static void warn_unread(warning *out, const dl_config *config, chooser of)
{
    option_names names = {""};
    char value[DL_OPTION_NAME_MAX + 3], name[2 * DL_OPTION_NAME_MAX];
    snprintf(value, sizeof value, "|%s|", of.value);
    for (const reading *row = of.rows; row->option; row++) {
        if (!by_hand(config, row->option) || strstr(row->readers, value)) continue;
        snprintf(name, sizeof name, "%s (of %.*s)", row->option, (int)strlen(row->readers) - 2,
                 row->readers + 1);
        add_name(&names, name);
    }
    if (names.text[0]) say(out, "no effect with %s = \"%s\": %s", of.option, of.value, names.text);
}

static void warn_inner(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"parameters.optimizer.beta1", "|adamw|qhadamw|muon|"},
                                   {"parameters.optimizer.beta2", "|adamw|qhadamw|muon|"},
                                   {"parameters.optimizer.eps", "|adamw|qhadamw|muon|"},
                                   {"parameters.optimizer.momentum_weight", "|qhadamw|"},
                                   {"parameters.optimizer.muon_lr", "|muon|"},
                                   {"parameters.optimizer.muon_momentum", "|muon|"},
                                   {"parameters.optimizer.muon_nesterov", "|muon|"},
                                   {"parameters.optimizer.muon_steps", "|muon|"},
                                   {NULL, NULL}};
    warn_unread(out, config, (chooser){"trainer.optimizer", config->optimizer, rows});
}

static void warn_schedule(warning *out, const dl_config *config)
{
    static const reading rows[] = {
        {"parameters.learning_rate.warmup_steps", "|constant|linear|cosine|wsd|LambdaLR|"},
        {"parameters.learning_rate.warmup_epochs", "|constant|linear|cosine|wsd|LambdaLR|"},
        {"parameters.learning_rate.decay_steps", "|wsd|"},
        {"parameters.learning_rate.min_ratio", "|linear|cosine|wsd|"},
        {"parameters.learning_rate.gamma", "|LambdaLR|MultiStepLR|"},
        {"parameters.learning_rate.milestone_steps", "|LambdaLR|MultiStepLR|"},
        {NULL, NULL}};
    warn_unread(out, config, (chooser){"trainer.lr_scheduler", config->lr_scheduler, rows});
}

static void warn_sampler(warning *out, const dl_config *config)
{
    static const reading rows[] = {
        {"data.partition_size", "|iid|noniid|mixed|orthogonal|"},
        {"data.concentration", "|noniid|mixed|orthogonal|"},
        {"data.label_concentration", "|distribution_noniid|"},
        {"data.client_quantity_concentration", "|sample_quantity_noniid|distribution_noniid|"},
        {"data.min_partition_size", "|sample_quantity_noniid|distribution_noniid|"},
        {"data.per_client_classes_size", "|label_quantity_noniid|"},
        {"data.institution_class_ids", "|orthogonal|"},
        {"data.label_distribution", "|orthogonal|"},
        {"algorithm.total_silos", "|orthogonal|"},
        {"data.non_iid_clients", "|mixed|"},
        {NULL, NULL}};
    warn_unread(out, config, (chooser){"data.sampler", config->sampler, rows});
}

static void warn_model(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"parameters.model.layers", "|gpt|"},
                                   {"parameters.model.heads", "|gpt|"},
                                   {"parameters.model.kv_heads", "|gpt|"},
                                   {"parameters.model.head_dim", "|gpt|"},
                                   {"parameters.model.channels", "|gpt|"},
                                   {"parameters.model.ffn", "|gpt|"},
                                   {"parameters.model.context", "|gpt|"},
                                   {"parameters.model.tied", "|gpt|"},
                                   {"parameters.model.qk_norm", "|gpt|"},
                                   {"parameters.model.z_loss", "|gpt|"},
                                   {"parameters.model.num_classes", "|lenet5|resnet_18|mlp|"},
                                   {"parameters.model.in_channels", "|lenet5|resnet_18|mlp|"},
                                   {"parameters.model.hidden", "|mlp|"},
                                   {NULL, NULL}};
    warn_unread(out, config, (chooser){"trainer.model_name", config->model, rows});
}

static void warn_rope(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"parameters.model.rope_factor", "|linear|llama3|"},
                                   {"parameters.model.rope_low_freq_factor", "|llama3|"},
                                   {"parameters.model.rope_high_freq_factor", "|llama3|"},
                                   {"parameters.model.rope_original_context", "|llama3|"},
                                   {NULL, NULL}};
    warn_unread(out, config,
                (chooser){"parameters.model.rope_scaling",
                          dl_rope_scaling_names[config->rope_scaling], rows});
}

static void warn_tokenizer(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"data.tokenizer_path", "|bpe|"}, {NULL, NULL}};
    warn_unread(out, config, (chooser){"data.tokenizer", config->tokenizer, rows});
}

static void warn_exchange(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"server.diloco.slice_owners", "|sharded|auto|"}, {NULL, NULL}};
    warn_unread(
        out, config,
        (chooser){"server.diloco.exchange", dl_exchange_choice_names[config->exchange], rows});
}

static void warn_missing(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"run.quorum", "|commit_partial|"}, {NULL, NULL}};
    warn_unread(out, config,
                (chooser){"run.on_missing", dl_missing_choice_names[config->on_missing], rows});
}

/* What is of runs without a log, and what only a log, its store and its outer state have. */
static void warn_consensus(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"swarm.exchange", "|none|"},
                                   {"swarm.min_peers", "|none|"},
                                   {"swarm.agree_every", "|none|"},
                                   {"swarm.bootstrap", "|none|"},
                                   {"swarm.listen", "|none|"},
                                   {"swarm.address", "|none|"},
                                   {"swarm.cert", "|none|"},
                                   {"swarm.key", "|none|"},
                                   {"swarm.insecure", "|none|"},
                                   {"run.min_replicas", "|log|"},
                                   {"run.retain", "|log|"},
                                   {"run.snapshot_every", "|log|"},
                                   {"run.fetchers", "|log|"},
                                   {"run.spool", "|log|"},
                                   {"run.spool_mb", "|log|"},
                                   {"run.offload", "|log|"},
                                   {NULL, NULL}};
    warn_unread(out, config,
                (chooser){"swarm.consensus", dl_consensus_choice_names[config->consensus], rows});
}

static void warn_peers(warning *out, const dl_config *config)
{
    static const reading rows[] = {
        {"run.peers_listen", "|true|"}, {"run.peers_address", "|true|"}, {NULL, NULL}};
    warn_unread(out, config, (chooser){"run.peers", config->peers ? "true" : "false", rows});
}

const warning_row dl_unread_warnings[] = {
    {"inner_options", warn_inner},
    {"schedule_options", warn_schedule},
    {"sampler_options", warn_sampler},
    {"model_options", warn_model},
    {"rope_options", warn_rope},
    {"tokenizer_options", warn_tokenizer},
    {"exchange_options", warn_exchange},
    {"missing_options", warn_missing},
    {"swarm_options", warn_consensus},
    {"peers_options", warn_peers},
    {NULL, NULL},
};
