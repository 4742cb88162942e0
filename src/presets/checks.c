/* checks.c - refusals and warnings before training. Each is a function of the configuration
 * alone and its sentence ends with the way out; the tables at their ends are the list. Data and
 * model say themselves what they cannot do (dl_data_open, dl_model_plan_for). */
#include "presets/checks.h"

#include "base/log.h"
#include "base/run_kind.h"
#include "base/sized.h"
#include "codec/codec.h"
#include "combine/combine.h"
#include "model/model.h"
#include "nn/inner.h"
#include "outer/outer.h"
#include "presets/checks_parts.h"
#include "presets/choices.h"
#include "presets/fragments.h"
#include "presets/local_steps.h"
#include "presets/presets.h"
#include "protocol/data_assignment.h"
#include "protocol/logical_clients.h"
#include "run/open.h"
#include "tensor/isa.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t dl_positions(const dl_config *config)
{
    dl_schedule schedule;
    const uint64_t rounds = (uint64_t)config->rounds;
    if (dl_schedule_of(&schedule, config, 1)) /* refused elsewhere */
        return rounds * (uint64_t)(config->local_steps ? config->local_steps : 1);
    return dl_schedule_steps(&schedule, rounds);
}

/* ---- refusals */

/* The order decides which of several errors is reported. Names come first, since later checks find
 * rows of tables by them. Runs without a log come before the checks of those with one. */
diloco_status dl_check_config(const dl_config *config)
{
    DL_TRY(dl_isa_check());
    DL_TRY(dl_preset_check(config->preset));
    DL_TRY(dl_choices_check(config));
    for (size_t i = 0; dl_swarm_refusals[i]; i++)
        DL_TRY(dl_swarm_refusals[i](config));
    DL_TRY(dl_run_check(config)); /* the outer loop alone */
    for (size_t i = 0; dl_refusals[i]; i++)
        DL_TRY(dl_refusals[i](config));
    for (size_t i = 0; dl_contract_refusals[i]; i++)
        DL_TRY(dl_contract_refusals[i](config));
    return DILOCO_OK;
}

/* The number of fragments may depend on the model, so the schedule is checked again with the real
 * one. */
diloco_status dl_check_model(const dl_config *config, const dl_sample *sample)
{
    dl_manifest manifest;
    dl_schedule schedule;
    DL_TRY(dl_fragments_manifest(&manifest, config, sample));
    diloco_status status = dl_schedule_of(&schedule, config, manifest.n_fragments);
    dl_manifest_deinit(&manifest);
    return status;
}

/* ---- warnings: each writes its sentence, or nothing where there is no cause */

/* Without a step after the warmup the learning rate of the configuration is never used. */
static void warn_warmup(warning *out, const dl_config *config)
{
    if (!dl_schedule_warms_up(config)) return;
    if (config->local_steps == 0) return; /* of clients, whose data says how many there are */
    const uint64_t end = (uint64_t)config->first_step + dl_positions(config);
    if ((uint64_t)config->warmup_steps < end) return;
    say(out,
        "parameters.learning_rate.warmup_steps = %" PRId64 " is the whole run of %" PRIu64
        " steps: the learning rate never reaches parameters.optimizer.lr",
        config->warmup_steps, end);
}

static void warn_decay(warning *out, const dl_config *config)
{
    const uint64_t end = (uint64_t)config->first_step + dl_positions(config);
    if (!is(config->lr_scheduler, "wsd") || config->local_steps == 0 ||
        (uint64_t)config->decay_steps <= end)
        return;
    say(out,
        "parameters.learning_rate.decay_steps = %" PRId64 " is more than the run's %" PRIu64
        " steps",
        config->decay_steps, end);
}

static void warn_rewarm(warning *out, const dl_config *config)
{
    if (dl_preset_is(config, "data_parallel") || config->rewarm_steps <= config->local_steps)
        return;
    say(out,
        "parameters.learning_rate.rewarm_steps = %" PRId64 " is more than "
        "trainer.local_steps_per_round = %" PRId64
        ": a joiner's first contribution counts before it is warm",
        config->rewarm_steps, config->local_steps);
}

static void warn_z_loss(warning *out, const dl_config *config)
{
    if (config->z_loss <= 0.01) return;
    say(out,
        "parameters.model.z_loss = %g pulls on the logits as hard as the loss does: 2501.18512 "
        "uses 1e-4",
        config->z_loss);
}

/* At most one sentence: the first that applies is the most serious. */
static void warn_outer_lr(warning *out, const dl_config *config)
{
    if (dl_preset_is(config, "data_parallel")) return; /* its row warns */
    if (config->outer_lr > dl_outer_find(config->outer_optimizer)->most_lr) {
        say(out,
            "server.diloco.outer_learning_rate = %g overshoots the mean of the replicas; "
            "for %s at most %g is advised (2311.08105 found 0.7 best of 0.1 to 1 for nesterov)",
            config->outer_lr, config->outer_optimizer,
            dl_outer_find(config->outer_optimizer)->most_lr);
    } else if (config->outer_lr == 0) {
        say(out, "server.diloco.outer_learning_rate = 0: the shared model never moves");
    } else if (config->outer_lr >= 0.7 && overlaps(config)) {
        say(out,
            "server.diloco.outer_learning_rate = %g with fragments or overlap: 0.7 is DiLoCo's "
            "(2311.08105), for one fragment without overlap; Streaming DiLoCo (2501.18512, section "
            "3) tuned 0.4",
            config->outer_lr);
    }
}

static void warn_overlap(warning *out, const dl_config *config)
{
    if (config->overlap_steps > 5 && config->overlap == DL_OVERLAP_STEPS)
        say(out,
            "server.diloco.overlap_steps = %" PRId64
            ": 2501.18512 (section 4) advises at most 5; beyond that the loss rises",
            config->overlap_steps);
}

static void warn_async(warning *out, const dl_config *config)
{
    const bool one_by_one = dl_run_kind_of(config)->one_by_one;
    if (one_by_one && !is(config->outer_optimizer, "delayed_nesterov") &&
        !is(config->outer_optimizer, "sgd"))
        say(out,
            "server.diloco.schedule = \"async\" with outer_optimizer %s: momentum of movements "
            "that are applied one by one raises the loss, also at equal speeds (2401.09135): take "
            "delayed_nesterov",
            config->outer_optimizer);
}

static bool lists(const char *const *options, const char *name)
{
    for (; options && *options; options++)
        if (is(*options, name)) return true;
    return false;
}

/* A person set it, and not to 0, which asks for nothing. */
static bool asked_for(const dl_config *config, const char *name)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    const char *field = (const char *)config + row->offset;
    if (!by_hand(config, name)) return false;
    if (row->type == DL_OPTION_REAL) return *(const double *)(const void *)field != 0;
    if (row->type == DL_OPTION_INT) return *(const int64_t *)(const void *)field != 0;
    return true;
}

/* The options that row i of a table reads; NULL after the last row. */
typedef const char *const *(*options_at)(size_t i);

static bool listed_by_any(options_at at, const char *name)
{
    for (size_t i = 0; at(i); i++)
        if (lists(at(i), name)) return true;
    return false;
}

/* One sentence about options of other rows, given for a row that does not read them. */
static void warn_unread(warning *out, const dl_config *config, options_at at,
                        const char *const *read, const char *of_row)
{
    option_names names = {""};
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *name = dl_config_table.rows[i].name;
        if (listed_by_any(at, name) && !lists(read, name) && asked_for(config, name))
            add_name(&names, name);
    }
    if (names.text[0]) say(out, "no effect with %s: %s", of_row, names.text);
}

static const char *const *outer_options_at(size_t i)
{
    const dl_outer *row = dl_outer_at(i);
    return row ? row->options : NULL;
}

static void warn_outer_options(warning *out, const dl_config *config)
{
    char of_row[64];
    snprintf(of_row, sizeof of_row, "outer optimizer %s", config->outer_optimizer);
    warn_unread(out, config, outer_options_at, dl_outer_find(config->outer_optimizer)->options,
                of_row);
}

static const char *const *combiner_options_at(size_t i)
{
    static const char *const pairs[] = {"server.diloco.bucket_size", NULL}; /* of bucketing */
    const dl_combiner *row = dl_combiner_at(i);
    if (row) return row->options;
    return i && dl_combiner_at(i - 1) ? pairs : NULL;
}

/* Pre-aggregation reads options of its own beside the combiner's. */
static void warn_combiner_options(warning *out, const dl_config *config)
{
    const dl_combiner *row = dl_combiner_find(config->combiner);
    const char *read[DL_COMBINE_MAX_OPTIONS + 2] = {NULL};
    char of_row[64];
    size_t n = 0;
    for (; row->options[n]; n++)
        read[n] = row->options[n];
    if (config->pre_aggregation == DL_MIX_NNM) read[n] = "server.diloco.byzantine";
    if (config->pre_aggregation == DL_MIX_BUCKETING) read[n] = "server.diloco.bucket_size";
    snprintf(of_row, sizeof of_row, "combiner %s", config->combiner);
    warn_unread(out, config, combiner_options_at, read, of_row);
}

static void warn_weighting(warning *out, const dl_config *config)
{
    if (dl_combiner_find(config->combiner)->ignores_weights && !is(config->weighting, "uniform"))
        say(out,
            "server.diloco.aggregation_weighting = \"%s\" has no effect with combiner %s, for "
            "which all members count the same, because a malicious member could report any "
            "weight",
            config->weighting, config->combiner);
}

static void warn_codec(warning *out, const dl_config *config)
{
    const dl_codec *codec = dl_codec_find(config->codec);
    option_names names = {""};
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *option = dl_config_table.rows[i].name;
        if (strncmp(option, "server.diloco.codec_", 20) != 0 || !by_hand(config, option)) continue;
        if (!lists(codec->options, option)) add_name(&names, option);
    }
    if (names.text[0]) say(out, "no effect with codec %s: %s", codec->name, names.text);
}

static void warn_error_feedback(warning *out, const dl_config *config)
{
    if (config->error_feedback > 0 && !dl_codec_find(config->codec)->lossy)
        say(out, "server.diloco.error_feedback has no effect with codec %s, which is exact",
            config->codec);
}

/* 2508.15706 section 4 and the ablations of 2501.18512 show that these leave out most of it. */
static void warn_no_feedback(warning *out, const dl_config *config)
{
    if (config->error_feedback == 0 && (is(config->codec, "topk") || is(config->codec, "sign")))
        say(out,
            "codec %s without server.diloco.error_feedback loses what it leaves out for good, and "
            "the loss is clearly worse: 0.95 in 2508.15706",
            config->codec);
}

/* The preset is the baseline of comparisons, so it has to be the exact algorithm. */
static void warn_lossy_gradients(warning *out, const dl_config *config)
{
    if (dl_preset_is(config, "data_parallel") && dl_codec_find(config->codec)->lossy)
        say(out,
            "preset data_parallel with codec %s is no longer the baseline that others are compared "
            "with, which sends float32",
            config->codec);
}

/* The overlaps "eager" and "delayed" are of whole rounds; DL_OVERLAP_STEPS counts steps. */
static bool by_rounds(const dl_config *config)
{
    return config->overlap != DL_OVERLAP_STEPS;
}

static void warn_local_mix(warning *out, const dl_config *config)
{
    if (config->local_mix == 1 && !by_rounds(config))
        say(out, "server.diloco.local_mix = 1 keeps a replica's own parameters whole: the "
                 "others' updates never reach it");
}

static void warn_on_uncounted(warning *out, const dl_config *config)
{
    if (config->on_uncounted == DL_UNCOUNTED_KEEP && dl_run_kind_of(config)->one_by_one)
        say(out,
            "run.on_uncounted = \"keep\" has no effect with server.diloco.schedule = \"async\": "
            "a replica waits for the entry that counts it");
}

/* The own share is added a round earlier than the rest. With a changing outer learning rate the two
 * parts of one movement get different factors. */
static void warn_eager(warning *out, const dl_config *config)
{
    if (config->overlap == DL_OVERLAP_EAGER && config->outer_lr_schedule != DL_OUTER_LR_CONSTANT)
        say(out,
            "server.diloco.overlap = \"eager\" with outer_lr_schedule \"%s\": a replica's own "
            "share "
            "equals the paper's (2502.12996) at a constant outer learning rate only",
            dl_outer_lr_choice_names[config->outer_lr_schedule]);
}

static void warn_delayed_nesterov(warning *out, const dl_config *config)
{
    if (is(config->outer_optimizer, "delayed_nesterov") && !dl_run_kind_of(config)->one_by_one)
        say(out,
            "outer optimizer delayed_nesterov is for movements that come one by one "
            "(2401.09135), and moves the model by 1 / server.diloco.outer_buffer of each; with "
            "entries of all replicas take nesterov");
}

/* Slack is a part of the overlap's time. */
static void warn_grace(warning *out, const dl_config *config)
{
    const bool closes = config->close_at > 0;
    if (config->grace_slack > 0 && (!closes || (config->overlap_steps == 0 && !by_rounds(config))))
        say(out, "run.grace_slack has no effect without run.close_at and an overlap: there is no "
                 "slack");
}

static void warn_eval(warning *out, const dl_config *config)
{
    bool own = dl_datasource_has_images(config->datasource); /* its folder may hold a test set */
    if (config->test_fraction == 0 && !config->test_path[0] && !own)
        say(out, "data.test_fraction is 0 and data.test_path is empty: nothing is held out, so "
                 "the shared model will not be evaluated");
}

/* PROTOCOL P18: the guarantees of assigned data. */
static void warn_deal(warning *out, const dl_config *config)
{
    if (config->deal == DL_DEAL_LOG && !dl_assignment_is_exact(config))
        say(out, "data.deal = \"log\": a sample is dealt once in an epoch, and it counts exactly "
                 "once only with one fragment, no overlap, server.diloco.local_mix = 0 and "
                 "run.on_uncounted = \"adopt\"");
}

static void warn_threads(warning *out, const dl_config *config)
{
    int64_t wanted = config->threads * dl_local_replicas(config);
    if (by_hand(config, "run.threads") && wanted > dl_cores())
        say(out,
            "run.threads = %" PRId64 " for %" PRId64
            " local replicas is more than this machine's %d cores, so they slow each other down; 0 "
            "divides the cores evenly",
            config->threads, dl_local_replicas(config), dl_cores());
}

static const warning_row warnings[] = {
    {"warmup", warn_warmup},                     /* warm-up is as long as the run */
    {"decay", warn_decay},                       /* decay is longer than the run */
    {"rewarm", warn_rewarm},                     /* a joiner counts before it is warm */
    {"z_loss", warn_z_loss},                     /* outweighs the loss */
    {"outer_learning_rate", warn_outer_lr},      /* overshoots, or never moves */
    {"overlap", warn_overlap},                   /* longer than the paper advises */
    {"async", warn_async},                       /* momentum of single movements */
    {"codec", warn_codec},                       /* options of other codecs */
    {"error_feedback", warn_error_feedback},     /* of an exact codec */
    {"no_feedback", warn_no_feedback},           /* a codec that needs it */
    {"lossy_gradients", warn_lossy_gradients},   /* no longer the baseline */
    {"local_mix", warn_local_mix},               /* nothing is adopted */
    {"on_uncounted", warn_on_uncounted},         /* of an asynchronous run */
    {"eager", warn_eager},                       /* differs from the paper's rule */
    {"delayed_nesterov", warn_delayed_nesterov}, /* in a synchronous run */
    {"grace", warn_grace},                       /* slack without an overlap */
    {"outer_options", warn_outer_options},       /* of other outer optimizers */
    {"combiner_options", warn_combiner_options}, /* of other combiners */
    {"aggregation_weighting", warn_weighting},   /* ignored by the combiner */
    {"no_validation", warn_eval},                /* nothing to evaluate on */
    {"deal", warn_deal},                         /* weaker than exactly once per epoch */
    {"threads", warn_threads},                   /* more than there are cores */
};

static void warn(const warning_row *row, const dl_config *config, dl_warn_fn fn, void *user)
{
    warning out = {""};
    row->check(&out, config);
    if (out.text[0]) fn(user, row->code, out.text);
}

/* The order of the tables is that of the record's lines. */
void dl_check_warnings(const dl_config *config, dl_warn_fn fn, void *user)
{
    for (size_t i = 0; i < sizeof warnings / sizeof warnings[0]; i++)
        warn(&warnings[i], config, fn, user);
    dl_warn_unused(config, fn, user);
    for (const warning_row *row = dl_contract_warnings; row->code; row++)
        warn(row, config, fn, user);
    for (const warning_row *row = dl_swarm_warnings; row->code; row++)
        warn(row, config, fn, user);
}

/* ---- the public checks */

static void log_warning(void *user, const char *code, const char *text)
{
    (void)user, (void)code;
    dl_log(DILOCO_LOG_WARN, "%s", text);
}

/* Errors that need data or model come after those of the configuration alone. The data is opened
 * and closed again; no model is allocated. */
diloco_status diloco_train_check(const diloco_config *config)
{
    dl_data *data;
    dl_model_plan plan;
    DL_TRY(dl_check_config(config));
    DL_TRY(dl_data_open(&data, config, dl_clients_shards(config)));
    const dl_sample sample = *dl_data_sample(data);
    const diloco_status status = dl_local_steps_check(config, data);
    dl_data_close(data);
    const dl_graph_target target = {.max_rows = (size_t)config->batch_size, .n_threads = 1};
    DL_TRY(status ? status : dl_model_plan_for(&plan, config, &sample, &target));
    DL_TRY(dl_check_model(config, &sample));
    dl_check_warnings(config, log_warning, NULL);
    return DILOCO_OK;
}

static diloco_status report_data(diloco_data_report *out, const diloco_config *config)
{
    dl_data *data;
    DL_TRY(dl_data_open(&data, config, dl_clients_shards(config)));
    const dl_sample *sample = dl_data_sample(data);
    out->train_tokens = dl_data_train_items(data);
    out->test_tokens = dl_data_test_items(data);
    out->samples_per_shard = dl_data_samples(data, 0);
    out->shards = dl_clients_shards(config);
    out->vocab = (uint32_t)sample->classes;
    out->context = (uint32_t)sample->length;
    out->channels = (uint32_t)sample->channels;
    out->height = (uint32_t)sample->height;
    out->width = (uint32_t)sample->width;
    snprintf(out->digest, sizeof out->digest, "%s", dl_data_digest(data));
    dl_data_close(data);
    return DILOCO_OK;
}

diloco_status diloco_data_check_sized(diloco_data_report *out, size_t size,
                                      const diloco_config *config)
{
    diloco_data_report report = {.train_tokens = 0};
    const diloco_status status = report_data(&report, config);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
