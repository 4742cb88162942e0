/* checks_test.c - everything refused or warned about before training, with its sentence. */
#include "presets/checks.h"

#include "presets/contract.h"
#include "train_fixture.h"

/* A sound configuration with one or two values changed is refused, and the text names the cause
 * and the way out. */
static void refused(diloco_status status, const char *part, const char *way_out, const char *preset,
                    const char *const *changes)
{
    dl_config *config = fixture_config(preset);
    CHECK_OK(dl_check_config(config));
    for (; *changes; changes += 2)
        set(config, changes[0], changes[1]);
    CHECK_STATUS(status, dl_check_config(config));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_CONTAINS(way_out, diloco_error_text());
    free(config);
}
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(unknown_names_are_answered_with_the_nearest_and_their_place)
{
    static const char *const rows[][3] = {
        {"server.diloco.outer_optimizer", "nesterv", "did you mean nesterov;"},
        {"server.diloco.combiner", "men", "did you mean mean;"},
        {"server.diloco.codec", "f23", "f32"},
        {"server.diloco.aggregation_weighting", "uniforn", "did you mean uniform;"},
        {"trainer.optimizer", "adamv", "did you mean adamw;"},
        {"trainer.lr_scheduler", "cosin", "did you mean cosine;"},
        {"trainer.model_name", "gptt", "did you mean gpt;"},
        {"data.datasource", "texts", "did you mean text;"},
        {"data.tokenizer", "bytes", "did you mean byte;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        refused(DILOCO_EINVAL, rows[i][0], rows[i][2], "diloco", CHANGES(rows[i][0], rows[i][1]));
        CHECK_CONTAINS("test: ", diloco_error_text()); /* the origin */
        CHECK_CONTAINS("there is: ", diloco_error_text());
    }
}

TEST(parts_of_a_callers_own_are_refused_by_name)
{
    static const char *const options[] = {"server.diloco.outer_optimizer", "server.diloco.combiner",
                                          "server.diloco.codec"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        refused(DILOCO_EREFUSED, options[i], "user:mine is supplied by a program", "diloco",
                CHANGES(options[i], "user:mine"));
    refused(DILOCO_EINVAL, "no such device", "set cpu, cuda or cuda:N", "diloco",
            CHANGES("trainer.device", "gpu"));
    refused(DILOCO_EINVAL, "names 2 cards", "set a multiple of 2", "diloco",
            CHANGES("trainer.device", "cuda:0,1", "trainer.gradient_accumulation_steps", "3"));
    refused(DILOCO_EREFUSED, "trainer.gradient_bucket_bytes = 1024", "name several cards", "diloco",
            CHANGES("trainer.device", "cuda:1", "trainer.gradient_bucket_bytes", "1024"));
    refused(DILOCO_EREFUSED, "trainer.zero_stage = 1", "name several cards", "diloco",
            CHANGES("trainer.device", "cuda", "trainer.zero_stage", "1"));
    refused(DILOCO_EINVAL, "trainer.model_name", "there is: ", "diloco",
            CHANGES("trainer.model_name", "user:mine"));
}

TEST(exchange_on_a_card_is_refused_where_it_has_no_functions)
{
#define ON_CARD(...)                                                                               \
    CHANGES("trainer.device", "cuda", "trainer.device_exchange", "true", __VA_ARGS__)
    refused(DILOCO_EREFUSED, "trainer.device_exchange is an option of a card", "leave it false",
            "diloco", CHANGES("trainer.device_exchange", "true"));
    refused(DILOCO_EREFUSED, "trainer.device_exchange = true", "exchanges gradients",
            "data_parallel", ON_CARD("trainer.rounds", "3"));
    refused(DILOCO_EREFUSED, "trainer.device_exchange = true", "server.diloco.overlap of one round",
            "eager", ON_CARD("trainer.rounds", "3"));
    refused(DILOCO_EREFUSED, "trainer.device_exchange = true", "clients.total_clients", "federated",
            ON_CARD("trainer.rounds", "3"));
    refused(DILOCO_EREFUSED, "trainer.device_exchange = true", "mixes parameters on the host",
            "noloco", ON_CARD("trainer.rounds", "3"));
#undef ON_CARD
}

TEST(options_that_only_a_log_decides_are_refused_without_one)
{
    static const char *const of_logs[][2] = {{"clients.total_clients", "4"},
                                             {"data.deal", "log"},
                                             {"server.diloco.fragments", "2"},
                                             {"server.diloco.schedule", "async"},
                                             {"server.diloco.overlap", "eager"},
                                             {"server.diloco.overlap_steps", "1"},
                                             {"server.diloco.local_mix", "0.5"},
                                             {"server.diloco.error_feedback", "0.9"},
                                             {"server.diloco.compression", "zstd"},
                                             {"server.diloco.exchange", "leader"},
                                             {"run.on_missing", "abort"},
                                             {"run.on_uncounted", "keep"},
                                             {"run.close_at", "2"},
                                             {"run.single_committer", "r0"},
                                             {"run.coord", "etcd://h:1/r"},
                                             {"trainer.target_accuracy", "0.9"},
                                             {"combiner", "centered_clip"},
                                             {"run.roster", "open"},
                                             {"check.norm", "3"},
                                             {"check.ban_after", "2"}};
    for (size_t i = 0; i < sizeof of_logs / sizeof of_logs[0]; i++)
        refused(DILOCO_EREFUSED, "is decided by a log", "swarm.consensus = \"log\"", "swarm",
                CHANGES(of_logs[i][0], of_logs[i][1]));
}

TEST(nodes_that_could_never_exchange_are_refused)
{
    refused(DILOCO_EINVAL, "no round could move", "raise run.replicas", "swarm",
            CHANGES("run.replicas", "3"));
    refused(DILOCO_EREFUSED, "swarm.min_peers allows 3", "robust_fallback", "swarm",
            CHANGES("swarm.min_peers", "3"));
    refused(DILOCO_EREFUSED, "would round", "leave it f32", "noloco", CHANGES("codec", "int8"));
    refused(DILOCO_EREFUSED, "NoLoCo's step", "momentum", "noloco",
            CHANGES("server.diloco.outer_optimizer", "nesterov"));
    refused(DILOCO_EREFUSED, "a round has two", "lower", "noloco",
            CHANGES("swarm.min_peers", "3", "run.replicas", "3"));
    refused(DILOCO_EREFUSED, "at most 64", "fewer", "swarm", CHANGES("run.replicas", "65"));
    refused(DILOCO_EREFUSED, "folder of this machine's nodes", "name one", "noloco",
            CHANGES("run.store", "http://h:1/x"));
    refused(DILOCO_EINVAL, "go together", "both", "noloco", CHANGES("swarm.cert", "a.pem"));
}

TEST(ways_of_overlapping_that_cannot_be_faithful_are_refused)
{
    refused(DILOCO_EREFUSED, "eager", "delayed", "eager",
            CHANGES("server.diloco.outer_optimizer", "adam"));
    refused(DILOCO_EREFUSED, "combiner median no replica knows its share", "delayed", "eager",
            CHANGES("combiner", "median", "run.replicas", "3", "run.min_replicas", "3"));
    refused(DILOCO_EREFUSED, "none waits", "wait", "async",
            CHANGES("run.replicas", "2", "run.on_missing", "abort"));
    refused(DILOCO_EREFUSED, "exchanges the whole gradient", "diloco", "data_parallel",
            CHANGES("server.diloco.overlap_steps", "1"));
}

TEST(options_without_effect_are_warned_about_and_leave_a_run_faithful)
{
    dl_config *config = fixture_config("federated");
    set(config, "clients.total_clients", "4");
    CHECK_STR("faithful", dl_contract_name(config));
    set(config, "clients.random_seed", "7"); /* of simulated clients */
    CHECK_STR("faithful", dl_contract_name(config));
    set(config, "server.diloco.codec", "int8");
    CHECK_STR("unfaithful", dl_contract_name(config));
    set(config, "preset", "fedavg");
    CHECK_STR("none", dl_contract_name(config));
    free(config);
}

static void add_warning(void *user, const char *code, const char *text)
{
    CHECK_OK(dl_buf_addf(user, "%s: %s\n", code, text));
}

static const char *warnings_of(dl_buf *out, const dl_config *config)
{
    dl_buf_clear(out);
    dl_check_warnings(config, add_warning, out);
    return dl_buf_str(out);
}

/* As a file of --print-config does. */
static void write_all(dl_config *config)
{
    dl_buf value;
    dl_buf_init(&value, 1 << 20);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        dl_buf_clear(&value);
        CHECK_OK(dl_option_text(&value, row, config));
        CHECK_OK(dl_config_set(config, row->name, dl_buf_str(&value), "printed.toml:1:1"));
    }
    dl_buf_deinit(&value);
}

TEST(a_value_written_down_that_is_there_anyhow_is_not_warned_about)
{
    dl_buf before, after;
    const diloco_preset *preset;
    dl_buf_init(&before, 1 << 20), dl_buf_init(&after, 1 << 20);
    for (size_t i = 0; (preset = diloco_preset_at(i)); i++) {
        dl_config *config = fixture_config(preset->name);
        warnings_of(&before, config);
        write_all(config);
        CHECK_STR(dl_buf_str(&before), warnings_of(&after, config));
        free(config);
    }
    dl_buf_deinit(&before), dl_buf_deinit(&after);
}

/* The schedule of a run that extends another one is longer than the run. */
TEST(a_warm_up_is_compared_with_the_end_of_an_extended_run)
{
    dl_buf said;
    dl_config *config = fixture_config("diloco"); /* of 8 steps */
    dl_buf_init(&said, 1 << 20);
    set(config, "parameters.learning_rate.warmup_steps", "10");
    CHECK_CONTAINS("is the whole run of 8 steps", warnings_of(&said, config));
    set(config, "trainer.first_step", "4");
    CHECK(!strstr(warnings_of(&said, config), "warmup_steps"));
    dl_buf_deinit(&said);
    free(config);
}

TEST(dropping_inner_moments_is_refused_as_unfaithful)
{
    refused(DILOCO_EREFUSED, "trainer.preserve_optimizer_state", "leave it true", "diloco",
            CHANGES("trainer.preserve_optimizer_state", "false"));
}

TEST(a_run_without_a_store_is_refused)
{
    refused(DILOCO_EINVAL, "run.store is empty", "--store", "diloco", CHANGES("run.store", ""));
}

TEST(more_steps_than_can_be_counted_are_refused)
{
    refused(DILOCO_EINVAL, "trainer.rounds", "lower one", "diloco",
            CHANGES("trainer.rounds", "1000000000000000", "trainer.local_steps_per_round",
                    "1000000000000000"));
}

TEST(no_local_steps_are_those_of_epochs_which_clients_have)
{
    dl_config *config = fixture_config("federated");
    refused(DILOCO_EINVAL, "trainer.epochs", "a number of steps", "diloco",
            CHANGES("trainer.local_steps_per_round", "0", "trainer.epochs", "2"));
    refused(DILOCO_EINVAL, "trainer.epochs", "a number of steps", "federated",
            CHANGES("trainer.local_steps_per_round", "0"));
    set(config, "trainer.local_steps_per_round", "0");
    set(config, "trainer.epochs", "2");
    CHECK_OK(dl_check_config(config));
    free(config);
}

TEST(fed_4_diloco_is_an_alias_of_fedavg_and_an_unknown_algorithm_gets_the_list_of_valid_ones)
{
    dl_config *config = fixture_config("diloco");
    set(config, "algorithm.type", "fedavg");
    CHECK_OK(dl_check_config(config));
    free(config);
    refused(DILOCO_EINVAL, "algorithm.type = \"diloco\"", "the only algorithm is fedavg", "diloco",
            CHANGES("algorithm.type", "diloco"));
}

TEST(fed_43_a_trainer_that_does_not_count_steps_is_refused)
{
    refused(DILOCO_EREFUSED, "trainer.type = \"diff_privacy\"", "counts completed optimizer steps",
            "diloco", CHANGES("trainer.type", "diff_privacy"));
    refused(DILOCO_EREFUSED, "clients.type = \"split_learning\"", "take that", "diloco",
            CHANGES("clients.type", "split_learning"));
}

TEST(fed_5_a_value_that_is_unknown_or_out_of_range_is_refused_by_its_key)
{
    static const char *const rows[][2] = {
        {"server.diloco.outer_momentum", "1.0"},
        {"server.diloco.outer_momentum", "-0.1"},
        {"server.diloco.outer_learning_rate", "-0.1"},
        {"server.diloco.apply_outer_optimizer_to", "buffers"},
        {"trainer.local_steps_per_round", "-1"},
        {"clients.total_clients", "-1"},
    };
    dl_config *config = fixture_config("diloco");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_config_set(config, rows[i][0], rows[i][1], "a.toml:3:1"));
        CHECK_CONTAINS(rows[i][0], diloco_error_text());
        CHECK_CONTAINS("a.toml:3:1", diloco_error_text());
    }
    free(config);
    refused(DILOCO_EINVAL, "server.diloco.outer_optimizer: \"rmsprop\"", "there is: nesterov",
            "diloco", CHANGES("server.diloco.outer_optimizer", "rmsprop"));
    refused(DILOCO_EINVAL, "server.diloco.aggregation_weighting: \"samples\"", "num_samples",
            "diloco", CHANGES("server.diloco.aggregation_weighting", "samples"));
}

TEST(a_heartbeat_slower_than_a_third_of_patience_is_refused)
{
    refused(DILOCO_EINVAL, "run.heartbeat", "at most a third", "diloco",
            CHANGES("run.heartbeat", "4", "run.patience", "9"));
}

TEST(counts_of_replicas_that_contradict_are_refused)
{
    refused(DILOCO_EINVAL, "run.min_replicas", "run.replicas (2)", "diloco",
            CHANGES("run.replicas", "2", "run.min_replicas", "3"));
    refused(DILOCO_EINVAL, "run.track", "tensorboard:DIR, csv:FILE, or leave it empty", "diloco",
            CHANGES("run.track", "tensorboard:"));
    refused(DILOCO_EINVAL, "run.local_replicas", "raise run.replicas", "diloco",
            CHANGES("run.replicas", "2", "run.local_replicas", "3"));
    refused(DILOCO_EREFUSED, "run.replicas = 5000", "at most 4096", "diloco",
            CHANGES("run.replicas", "5000"));
}

TEST(a_quorum_of_0_is_refused)
{
    refused(DILOCO_EINVAL, "run.quorum = 0", "above 0", "diloco",
            CHANGES("run.quorum", "0", "run.on_missing", "commit_partial"));
}

TEST(data_parallel_exchanges_every_step_with_adamw_muon_or_plain_sgd_or_not_at_all)
{
    refused(DILOCO_EREFUSED, "trainer.local_steps_per_round is 7", "its phases", "data_parallel",
            CHANGES("trainer.local_steps_per_round", "7"));
    refused(DILOCO_EREFUSED, "\"nesterov\"", "set both to the same", "data_parallel",
            CHANGES("server.diloco.outer_optimizer", "nesterov"));
    refused(DILOCO_EREFUSED, "\"sgd\"", "set both to the same", "data_parallel",
            CHANGES("trainer.optimizer", "sgd"));
    refused(DILOCO_EREFUSED, "\"muon\"", "set both to the same", "data_parallel",
            CHANGES("trainer.optimizer", "muon"));
    refused(DILOCO_EREFUSED, "\"adamw\"", "set both to the same", "data_parallel",
            CHANGES("server.diloco.outer_optimizer", "muon"));
    refused(DILOCO_EREFUSED, "\"qhadamw\"", "set both to the same", "data_parallel",
            CHANGES("trainer.optimizer", "qhadamw"));
    refused(DILOCO_EREFUSED, "plain rule", "take adamw", "data_parallel",
            CHANGES("trainer.optimizer", "sgd", "server.diloco.outer_optimizer", "sgd"));
    refused(DILOCO_EREFUSED, "decays tensors of two or more", "weight_decay 0", "data_parallel",
            CHANGES("parameters.optimizer.decay_of", "all"));
    dl_config *config = fixture_config("data_parallel");
    set(config, "trainer.optimizer", "sgd");
    set(config, "server.diloco.outer_optimizer", "sgd");
    set(config, "parameters.optimizer.weight_decay", "0");
    CHECK_OK(dl_check_config(config));
    set(config, "trainer.optimizer", "muon");
    set(config, "server.diloco.outer_optimizer", "muon");
    set(config, "parameters.optimizer.weight_decay", "0.1");
    CHECK_OK(dl_check_config(config));
    free(config);
    refused(DILOCO_EREFUSED, "takes gradients", "or that preset", "diloco",
            CHANGES("server.diloco.outer_optimizer", "adamw"));
    refused(DILOCO_EREFUSED, "\"muon\" is the optimizer", "or that preset", "muloco",
            CHANGES("server.diloco.outer_optimizer", "muon"));
}

TEST(a_delayed_nesterov_that_applies_more_momentum_than_there_is_is_refused)
{
    refused(DILOCO_EINVAL, "server.diloco.outer_c = 0.3", "at most 1 / N = 0.25", "diloco",
            CHANGES("server.diloco.outer_optimizer", "delayed_nesterov", "outer_c", "0.3",
                    "outer_buffer", "4"));
}

TEST(swm19_a_combiner_without_its_members_is_refused_before_training)
{
    refused(DILOCO_EREFUSED, "trimmed_mean needs 5 members", "robust_fallback = \"mean\"", "diloco",
            CHANGES("combiner", "trimmed_mean", "run.replicas", "8", "run.min_replicas", "4"));
    refused(DILOCO_EREFUSED, "krum needs 7 members, and run.replicas is 6", "combiner mean",
            "diloco",
            CHANGES("combiner", "krum", "byzantine", "2", "run.replicas", "6", "robust_fallback",
                    "mean"));
    refused(DILOCO_EREFUSED, "run.close_at closes entries with 2", "raise it", "diloco",
            CHANGES("combiner", "median", "run.replicas", "4", "run.min_replicas", "3",
                    "run.close_at", "2"));
    refused(DILOCO_EREFUSED, "median needs 9 members", "raise it", "diloco",
            CHANGES("combiner", "median", "byzantine", "4", "run.replicas", "9"));
    refused(DILOCO_EREFUSED, "pre_aggregation", "leave it \"none\"", "diloco",
            CHANGES("pre_aggregation", "nnm"));
}

TEST(swm23_top_k_under_a_combiner_that_sorts_elements_is_refused)
{
    refused(DILOCO_EREFUSED, "combiner trimmed_mean sorts the values", "take a dense codec",
            "diloco",
            CHANGES("combiner", "trimmed_mean", "codec", "topk", "run.replicas", "5",
                    "run.min_replicas", "5"));
    refused(DILOCO_EREFUSED, "codec topk", "geometric_median", "diloco",
            CHANGES("combiner", "median", "codec", "topk", "run.replicas", "3", "run.min_replicas",
                    "3"));
    dl_config *config = fixture_config("diloco"); /* the named ways out */
    set(config, "run.replicas", "5");
    set(config, "run.min_replicas", "5");
    set(config, "codec", "topk");
    set(config, "combiner", "krum");
    CHECK_OK(dl_check_config(config));
    set(config, "codec", "int8");
    set(config, "combiner", "trimmed_mean");
    CHECK_OK(dl_check_config(config));
    free(config);
}

TEST(preset_single_is_one_replica)
{
    refused(DILOCO_EREFUSED, "run.replicas is 2", "take preset diloco", "single",
            CHANGES("run.replicas", "2"));
}

TEST(momentum_of_an_optimizer_that_has_none_is_refused)
{
    refused(DILOCO_EINVAL, "which has muon_momentum", "take sgd", "muloco",
            CHANGES("parameters.optimizer.momentum", "0.9"));
    refused(DILOCO_EINVAL, "parameters.optimizer.momentum", "take sgd", "diloco",
            CHANGES("parameters.optimizer.momentum", "0.9"));
}

TEST(muons_learning_rate_needs_the_schedule_it_follows)
{
    refused(DILOCO_EINVAL, "parameters.optimizer.muon_lr = 0.1", "above 0", "muloco",
            CHANGES("parameters.optimizer.muon_lr", "0.1", "parameters.optimizer.lr", "0"));
}

/* ---- warnings */

typedef struct seen {
    char codes[256], text[512];
} seen;

static void see(void *user, const char *code, const char *text)
{
    seen *s = user;
    size_t len = strlen(s->codes);
    snprintf(s->codes + len, sizeof s->codes - len, "%s ", code);
    snprintf(s->text, sizeof s->text, "%s", text);
}

static void warned(const char *code, const char *part, const char *preset,
                   const char *const *changes)
{
    seen s = {"", ""};
    dl_config *config = fixture_config(preset);
    dl_check_warnings(config, see, &s);
    CHECK_STR("", s.codes);
    for (; *changes; changes += 2)
        set(config, changes[0], changes[1]);
    CHECK_OK(dl_check_config(config));
    dl_check_warnings(config, see, &s);
    CHECK_STR(code, strtok(s.codes, " "));
    CHECK_CONTAINS(part, s.text);
    free(config);
}

TEST(unlikely_settings_are_warned_about_once_each)
{
    warned("warmup", "the whole run of 8 steps", "diloco",
           CHANGES("parameters.learning_rate.warmup_steps", "8"));
    warned("decay", "more than the run's 8 steps", "diloco",
           CHANGES("parameters.learning_rate.decay_steps", "9", "trainer.lr_scheduler", "wsd"));
    warned("rewarm", "before it is warm", "diloco",
           CHANGES("parameters.learning_rate.rewarm_steps", "5"));
    warned("z_loss", "1e-4", "diloco", CHANGES("parameters.model.z_loss", "0.1"));
    warned("outer_learning_rate", "overshoots", "diloco",
           CHANGES("server.diloco.outer_learning_rate", "1.5"));
    /* ALG-7: .7 is of one fragment that is waited for */
    warned("outer_learning_rate", "Streaming DiLoCo (2501.18512, section 3) tuned 0.4", "streaming",
           CHANGES("server.diloco.outer_learning_rate", "0.7"));
    warned("outer_learning_rate", "0.7 is DiLoCo's (2311.08105)", "diloco",
           CHANGES("server.diloco.overlap_steps", "1"));
    /* ALG-20 */
    warned("overlap", "2501.18512 (section 4) advises at most 5", "diloco",
           CHANGES("trainer.local_steps_per_round", "8", "server.diloco.overlap_steps", "6",
                   "server.diloco.outer_learning_rate", "0.4"));
    warned("outer_learning_rate", "never moves", "diloco",
           CHANGES("server.diloco.outer_learning_rate", "0"));
    warned("outer_learning_rate", "at most 2", "diloco",
           CHANGES("server.diloco.outer_optimizer", "schedule_free",
                   "server.diloco.outer_learning_rate", "2.1"));
    warned("aggregation_weighting", "a malicious member could report any weight", "diloco",
           CHANGES("combiner", "median", "run.local_replicas", "1", "run.replicas", "3",
                   "run.min_replicas", "3", "server.diloco.aggregation_weighting", "num_samples"));
    warned("no_validation", "not be evaluated", "diloco", CHANGES("data.test_fraction", "0"));
    warned("threads", "slow each other down", "diloco", CHANGES("run.threads", "256"));
}

TEST(partition_size_warns_with_each_sampler_that_ignores_it)
{
    static const char *const ignoring[] = {"contiguous", "sample_quantity_noniid",
                                           "label_quantity_noniid", "distribution_noniid"};
    for (size_t i = 0; i < sizeof ignoring / sizeof *ignoring; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "no effect with data.sampler = \"%s\": data.partition_size (needs "
                 "iid|noniid|mixed|orthogonal)",
                 ignoring[i]);
        warned("sampler_options", text, "federated",
               CHANGES("data.sampler", ignoring[i], "data.partition_size", "9"));
    }
}

TEST(options_without_effect_are_named)
{
    warned("schedule_options",
           "\"MultiStepLR\": parameters.learning_rate.warmup_steps (needs constant|linear|",
           "diloco",
           CHANGES("parameters.learning_rate.warmup_steps", "2", "trainer.lr_scheduler",
                   "MultiStepLR", "parameters.learning_rate.milestone_steps", "4"));
    warned("rewarm", "no effect with preset = \"data_parallel\": parameters.learning_rate.rewarm",
           "data_parallel", CHANGES("parameters.learning_rate.rewarm_steps", "1"));
    warned("inner_options", "\"adamw\": parameters.optimizer.muon_steps (needs muon)", "diloco",
           CHANGES("parameters.optimizer.muon_steps", "3"));
    warned("rope_options",
           "parameters.model.rope_scaling = \"none\": parameters.model.rope_factor (needs ",
           "diloco", CHANGES("parameters.model.rope_factor", "4"));
    warned("rope_options", "rope_original_context (needs llama3)", "diloco",
           CHANGES("parameters.model.rope_scaling", "linear",
                   "parameters.model.rope_original_context", "64"));
    warned("inner_options",
           "no effect with trainer.optimizer = \"sgd\": parameters.optimizer.eps (needs "
           "adamw|qhadamw|muon|rmsprop)",
           "diloco", CHANGES("trainer.optimizer", "sgd", "parameters.optimizer.eps", "0.1"));
    warned("schedule_options", "\"cosine\": parameters.learning_rate.decay_steps (needs wsd)",
           "diloco", CHANGES("parameters.learning_rate.decay_steps", "2"));
    warned("sampler_options",
           "\"contiguous\": data.concentration (needs noniid|mixed|orthogonal), "
           "data.non_iid_clients (needs mixed)",
           "diloco", CHANGES("data.concentration", "0.5", "data.non_iid_clients", "1,"));
    warned("model_options", "\"gpt\": parameters.model.hidden (needs mlp)", "diloco",
           CHANGES("parameters.model.hidden", "64"));
    warned("outer_learning_rate", "no effect", "data_parallel",
           CHANGES("server.diloco.outer_learning_rate", "0.5"));
    warned("codec", "no effect with codec f32: server.diloco.codec_keep", "diloco",
           CHANGES("server.diloco.codec_keep", "0.1"));
    warned("error_feedback", "f32, which is exact", "diloco",
           CHANGES("server.diloco.error_feedback", "0.95"));
    warned("outer_options", "optimizer sgd: server.diloco.outer_momentum", "fedavg",
           CHANGES("server.diloco.outer_momentum", "0.9"));
    warned("outer_options", "adam: server.diloco.outer_momentum, server.diloco.outer_beta",
           "diloco",
           CHANGES("server.diloco.outer_optimizer", "adam", "server.diloco.outer_beta1", "0.8",
                   "outer_beta", "0.2", "outer_momentum", "0.5"));
    warned("outer_options", "fedadagrad: server.diloco.outer_beta2", "diloco",
           CHANGES("server.diloco.outer_optimizer", "fedadagrad", "outer_beta2", "0.9"));
    warned("outer_options", "adamw: server.diloco.outer_eps", "data_parallel",
           CHANGES("outer_eps", "0.2"));
    warned("outer_lr_schedule", "outer_min_ratio", "diloco", CHANGES("outer_min_ratio", "0.2"));
    warned("outer_lr_schedule", "trainer.lr_scheduler", "data_parallel",
           CHANGES("outer_lr_schedule", "cosine"));
    warned("combiner_options", "combiner mean: server.diloco.trim, server.diloco.bucket_size",
           "diloco", CHANGES("trim", "0.1", "bucket_size", "3"));
    warned("exchange_options", "no effect with server.diloco.exchange = \"leader\"", "diloco",
           CHANGES("slice_owners", "2", "exchange", "leader"));
    warned("combiner_options", "combiner krum: server.diloco.trim", "diloco",
           CHANGES("combiner", "krum", "run.local_replicas", "1", "run.replicas", "5",
                   "run.min_replicas", "5", "trim", "0.1", "byzantine", "1"));
    warned("combiner_options", "combiner trimmed_mean: server.diloco.byzantine", "diloco",
           CHANGES("combiner", "trimmed_mean", "run.local_replicas", "1", "run.replicas", "5",
                   "run.min_replicas", "3", "robust_fallback", "mean", "byzantine", "2"));
    warned("missing_options", "\"wait\": run.quorum (needs commit_partial)", "diloco",
           CHANGES("run.quorum", "0.7"));
    warned("tokenizer_options", "data.tokenizer = \"byte\": data.tokenizer_path (needs bpe)",
           "diloco", CHANGES("data.tokenizer_path", "some.json"));
    /* each that has none is named, not the last of them alone */
    warned("waiting",
           "\"async\": run.deadline, run.close_at, server.diloco.aggregation_weighting "
           "(each contribution is an entry of its own, and no replica waits)",
           "async",
           CHANGES("run.deadline", "20", "run.close_at", "1", "server.diloco.aggregation_weighting",
                   "steps"));
    warned("waiting", "run.quorum, run.on_missing (each contribution", "async",
           CHANGES("run.on_missing", "commit_partial", "run.quorum", "0.7"));
    warned("local_mix", "\"eager\": server.diloco.local_mix (needs steps; with another overlap a",
           "eager", CHANGES("server.diloco.local_mix", "0.5"));
    warned("on_uncounted", "\"delayed\": run.on_uncounted (needs steps; with another overlap the",
           "delayed", CHANGES("run.on_uncounted", "keep"));
    warned("on_uncounted", "waits for the entry that counts it", "async",
           CHANGES("run.on_uncounted", "keep"));
    warned("clients", "clients.total_clients: run.role, clients.state, trainer.epochs", "diloco",
           CHANGES("clients.state", "some", "run.role", "server", "trainer.epochs", "2"));
}

/* ---- data and model */

static void train_check_refuses(const char *part, const char *name, const char *value)
{
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_check(config));
    set(config, name, value);
    CHECK(diloco_train_check(config) != DILOCO_OK);
    CHECK_CONTAINS(part, diloco_error_text());
    free(config);
}

TEST(data_and_model_that_cannot_be_are_found_before_training)
{
    train_check_refuses("data.train_path", "data.train_path", "");
    train_check_refuses("no-such-file", "data.train_path", "/no-such-file");
    train_check_refuses("parameters.model.context", "parameters.model.context", "100000");
    train_check_refuses("heads", "parameters.model.heads", "3");
}

TEST(data_is_reported_as_it_will_be_cut)
{
    diloco_data_report report;
    dl_config *config = fixture_config("diloco");
    set(config, "run.replicas", "2");
    CHECK_OK(diloco_data_check(&report, config));
    CHECK_INT(2, report.shards);
    CHECK_INT(256, report.vocab);
    CHECK_INT(16, report.context);
    CHECK_INT((report.train_tokens / 2 - 1) / 16, report.samples_per_shard);
    CHECK(report.test_tokens > 0);
    CHECK_INT(32, strlen(report.digest));
    set(config, "data.train_path", "/no-such-file");
    CHECK_STATUS(DILOCO_ENOENT, diloco_data_check(&report, config));
    free(config);
}

TEST_MAIN(unknown_names_are_answered_with_the_nearest_and_their_place,
          a_warm_up_is_compared_with_the_end_of_an_extended_run,
          parts_of_a_callers_own_are_refused_by_name,
          exchange_on_a_card_is_refused_where_it_has_no_functions,
          ways_of_overlapping_that_cannot_be_faithful_are_refused,
          options_that_only_a_log_decides_are_refused_without_one,
          nodes_that_could_never_exchange_are_refused,
          options_without_effect_are_warned_about_and_leave_a_run_faithful,
          a_value_written_down_that_is_there_anyhow_is_not_warned_about,
          dropping_inner_moments_is_refused_as_unfaithful, a_run_without_a_store_is_refused,
          more_steps_than_can_be_counted_are_refused,
          no_local_steps_are_those_of_epochs_which_clients_have,
          fed_4_diloco_is_an_alias_of_fedavg_and_an_unknown_algorithm_gets_the_list_of_valid_ones,
          fed_43_a_trainer_that_does_not_count_steps_is_refused,
          fed_5_a_value_that_is_unknown_or_out_of_range_is_refused_by_its_key,
          a_heartbeat_slower_than_a_third_of_patience_is_refused,
          counts_of_replicas_that_contradict_are_refused, a_quorum_of_0_is_refused,
          data_parallel_exchanges_every_step_with_adamw_muon_or_plain_sgd_or_not_at_all,
          a_delayed_nesterov_that_applies_more_momentum_than_there_is_is_refused,
          swm19_a_combiner_without_its_members_is_refused_before_training,
          swm23_top_k_under_a_combiner_that_sorts_elements_is_refused, preset_single_is_one_replica,
          momentum_of_an_optimizer_that_has_none_is_refused,
          muons_learning_rate_needs_the_schedule_it_follows,
          unlikely_settings_are_warned_about_once_each,
          partition_size_warns_with_each_sampler_that_ignores_it, options_without_effect_are_named,
          data_and_model_that_cannot_be_are_found_before_training,
          data_is_reported_as_it_will_be_cut)
