/* unread.c - options that only some values of another option read: said where a person gave one
 * and the value does not read it. One row an option, one sentence for all of another option. */
#include "train/checks_parts.h"

typedef struct reading {
    const char *option, *readers; /* readers: with "|" before, between and behind them */
} reading;

typedef struct chooser {
    const char *option, *value;
    const reading *rows; /* up to one without option */
} chooser;

static void warn_unread(warning *out, const dl_config *config, chooser of)
{
    char names[384] = "", value[DL_OPTION_NAME_MAX + 3];
    snprintf(value, sizeof value, "|%s|", of.value);
    for (const reading *row = of.rows; row->option; row++) {
        if (!by_hand(config, row->option) || strstr(row->readers, value)) continue;
        const size_t used = strlen(names), len = strlen(row->readers);
        snprintf(names + used, sizeof names - used, "%s%s (of %.*s)", used ? ", " : "", row->option,
                 (int)len - 2, row->readers + 1);
    }
    if (names[0]) say(out, "no effect with %s = \"%s\": %s", of.option, of.value, names);
}

static void warn_inner(warning *out, const dl_config *config)
{
    static const reading rows[] = {{"parameters.optimizer.beta1", "|adamw|muon|"},
                                   {"parameters.optimizer.beta2", "|adamw|muon|"},
                                   {"parameters.optimizer.eps", "|adamw|muon|"},
                                   {NULL, NULL}};
    warn_unread(out, config, (chooser){"trainer.optimizer", config->optimizer, rows});
}

static void warn_schedule(warning *out, const dl_config *config)
{
    static const reading rows[] = {
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

const warning_row dl_unread_warnings[] = {
    {"inner_options", warn_inner},
    {"schedule_options", warn_schedule},
    {"sampler_options", warn_sampler},
    {"model_options", warn_model},
    {NULL, NULL},
};
