/* settings_test.c - where values come from, which one wins, and what is refused with its place. */
#include "cli/settings/settings.h"

#include "check.h"
#include "scratch.h"
#include <diloco/train.h>

static dl_config config;

/* Load a file of this text with the flags of a command line after "train run.toml". */
static diloco_status load(const char *toml, const char *flags)
{
    static char words[512];
    static char *argv[16];
    dl_args args;
    int n = 3;
    char *next = NULL;
    argv[2] = (char[]){"run.toml"};
    scratch_write("run.toml", toml, strlen(toml));
    CHECK_INT(0, chdir(scratch_root)); /* places then read "run.toml:…" */
    snprintf(words, sizeof words, "%s", flags);
    for (char *word = strtok_r(words, " ", &next); word; word = strtok_r(NULL, " ", &next))
        argv[n++] = word;
    CHECK_OK(dl_args_parse(&args, dl_command_find("train"), n, argv, 2));
    return dl_settings_load(&config, &args);
}

static void check_refused(const char *part, const char *toml, const char *flags)
{
    CHECK_STATUS(DILOCO_EINVAL, load(toml, flags));
    CHECK_CONTAINS(part, diloco_error_text());
}

static void check_origin(const char *expected, const char *name)
{
    CHECK_STR(expected, dl_config_origin(&config, name));
}

TEST(later_places_win_and_every_value_remembers_its_own)
{
    CHECK_OK(load("preset = \"fedavg\"\n[trainer]\nrounds = 7\nbatch_size = 3\n",
                  "--set trainer.batch_size=4 --seed 9"));
    CHECK_INT(7, config.rounds);
    CHECK_INT(4, config.batch_size);
    CHECK_INT(9, config.seed);
    CHECK_STR("sgd", config.outer_optimizer);
    check_origin("run.toml:1:10", "preset");
    check_origin("run.toml:3:10", "trainer.rounds");
    check_origin("--set", "trainer.batch_size");
    check_origin("--seed", "run.seed");
    check_origin("preset fedavg", "server.diloco.outer_optimizer");
    check_origin("default", "trainer.optimizer");
}

TEST(the_file_outranks_its_preset_and_a_flag_outranks_the_files_preset)
{
    CHECK_OK(load("server.diloco.outer_learning_rate = 0.5\npreset = \"fedavg\"\n", ""));
    CHECK_NEAR(0.5, config.outer_lr, 0);
    CHECK_STR("fedavg", config.preset);
    CHECK_OK(load("preset = \"fedavg\"\n", "--preset single"));
    CHECK_STR("single", config.preset);
    check_origin("--preset", "preset");
    check_origin("preset single", "server.diloco.outer_optimizer");
    CHECK_OK(load("preset = \"fedavg\"\n", "--set preset=single"));
    CHECK_STR("single", config.preset);
    check_origin("preset single", "run.replicas");
}

TEST(the_defaults_are_the_values_of_preset_diloco)
{
    dl_config defaults, preset;
    dl_buf a, b;
    dl_config_init(&defaults);
    dl_config_init(&preset);
    CHECK_OK(diloco_preset_apply(&preset, "diloco"));
    dl_buf_init(&a, 4096), dl_buf_init(&b, 4096);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        dl_buf_clear(&a), dl_buf_clear(&b);
        CHECK_OK(dl_option_text(&a, &dl_config_table.rows[i], &defaults));
        CHECK_OK(dl_option_text(&b, &dl_config_table.rows[i], &preset));
        CHECK_STR(dl_buf_str(&a), dl_buf_str(&b));
    }
    dl_buf_deinit(&a), dl_buf_deinit(&b);
}

TEST(unknown_names_are_reported_with_line_column_and_the_nearest)
{
    check_refused("run.toml:3:1: there is no option trainer.bacth_size; did you mean "
                  "trainer.batch_size?",
                  "[trainer]\nrounds = 2\nbacth_size = 3\n", "");
    check_refused("--set: there is no option trainer.bacth_size; did you mean", "",
                  "--set trainer.bacth_size=3");
}

TEST(values_out_of_range_or_of_another_type_are_refused_with_their_place)
{
    check_refused("run.toml:2:25: trainer.local_steps_per_round = \"-1\" is not a whole number",
                  "[trainer]\nlocal_steps_per_round = -1\n", "");
    check_refused("run.toml:1:22: trainer.batch_size is a whole number, without quotes",
                  "trainer.batch_size = \"8\"\n", "");
    check_refused("a whole number, without quotes", "trainer.batch_size = 8.5\n", "");
    check_refused("text in quotes", "run.store = 3\n", "");
    check_refused("true or false", "parameters.model.tied = 1\n", "");
    check_refused("text in quotes", "run.store = [\"a\"]\n", "");
    check_refused("is not one of wait", "run.on_missing = \"wiat\"\n", "");
    CHECK_OK(load("parameters.optimizer.lr = 1\n", "")); /* a whole number is a number */
}

TEST(text_that_is_not_toml_is_refused_with_its_place)
{
    check_refused("run.toml:2:", "[trainer]\nrounds = = 3\n", "");
    check_refused("run.toml:1:13: dates and times", "run.store = 2024-01-01\n", "");
}

TEST(a_list_of_paths_becomes_one_text)
{
    CHECK_OK(load("data.train_path = [\"a.txt\", \"b\"]\n", ""));
    CHECK_STR("a.txt,b", config.train_path);
    check_refused("run.toml:1:25: a comma separates", "data.train_path = [\"a\", \"b,c\"]\n", "");
}

TEST(a_command_keeps_its_words)
{
    CHECK_OK(load("job.command = [\"sh\", \"-c\", \"echo a,b\"]\n", ""));
    CHECK_STR("[\"sh\",\"-c\",\"echo a,b\"]", config.job_command);
    check_refused("run.toml:1:15: job.command is a list of words", "job.command = 3\n", "");
}

TEST(an_option_and_its_alias_cannot_both_be_in_the_file)
{
    check_refused("run.toml:3:25: trainer.local_steps_per_round (also sync_every) is given "
                  "already at run.toml:1:14; keep one",
                  "sync_every = 5\n[trainer]\nlocal_steps_per_round = 5\n", "");
}

TEST(flags_that_contradict_each_other_are_refused)
{
    check_refused("--store and --set run.store contradict", "", "--set run.store=a --store b");
    check_refused("--set: store \"\" names no place", "", "--set run.store=");
    check_refused("--preset and --set preset contradict", "",
                  "--set preset=fedavg --preset single");
    CHECK_OK(load("", "--set run.seed=5 --seed 5"));
    check_refused("--replicas and --set run.local_replicas contradict", "",
                  "--set run.local_replicas=2 --replicas 3");
}

TEST(replicas_is_the_local_number_and_the_default_of_the_whole_run)
{
    CHECK_OK(load("", "--replicas 4"));
    CHECK_INT(4, config.replicas);
    CHECK_INT(4, config.local_replicas);
    CHECK_OK(load("run.replicas = 8\n", "--replicas 4"));
    CHECK_INT(8, config.replicas);
    CHECK_INT(4, config.local_replicas);
    CHECK_OK(load("run.replicas = 2\n", "--replicas 4"));
    CHECK_INT(4, config.replicas);
    check_origin("--replicas", "run.replicas");
    CHECK_OK(load("preset = \"single\"\n", "--replicas 4"));
    CHECK_INT(4, config.replicas);
    check_refused("contradict", "", "--set run.replicas=2 --replicas 4");
    check_refused("at least one", "", "--replicas 0");
    check_refused("is not a whole number", "", "--replicas x");
}

/* A folder of this machine there. */
static void check_beside(const char *folder, const char *path)
{
    char host[64] = "", expected[128];
    CHECK_INT(0, gethostname(host, sizeof host - 1));
    snprintf(expected, sizeof expected, "%s%s", folder, host);
    CHECK_STR(expected, path);
}

TEST(the_store_is_named_after_the_file_and_the_private_state_is_beside_it)
{
    CHECK_OK(load("", ""));
    CHECK_STR("runs/run", config.store);
    check_beside("runs/run.local/", config.state_dir);
    CHECK_OK(load("run.store = \"file:///data/x/\"\n", ""));
    check_beside("/data/x.local/", config.state_dir);
    CHECK_OK(load("run.store = \"https://hub:8765/team/x/\"\n", ""));
    check_beside("runs/hub-8765-team-x.local/", config.state_dir);
    CHECK_OK(load("run.store = \"mem://x\"\n", ""));
    CHECK_STR("", config.state_dir);
    CHECK_OK(load("run.state_dir = \"here\"\n", ""));
    CHECK_STR("here", config.state_dir);
}

TEST(a_file_that_is_not_there_is_said_so)
{
    dl_args args = {.command = dl_command_find("train"), .target = "none.toml"};
    CHECK_STATUS(DILOCO_EINVAL, dl_settings_load(&config, &args));
    CHECK_CONTAINS("none.toml: there is no such configuration file", diloco_error_text());
    CHECK(dl_is_config_file("none.toml"));
    CHECK(!dl_is_config_file("none"));
    CHECK(!dl_is_config_file("."));
}

TEST(settings_reach_another_process_with_their_places)
{
    dl_buf text;
    dl_config copy;
    CHECK_OK(load("[trainer]\nrounds = 7\n[parameters.optimizer]\nlr = 1.1e-3\n",
                  "--set run.store=a\"b"));
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_settings_write(&text, &config));
    CHECK_OK(dl_settings_read(&copy, text.data, text.len));
    CHECK_BYTES(&config, &copy, offsetof(dl_config, origins));
    for (size_t i = 0; i < dl_config_table.n; i++)
        CHECK_STR(config.origins[i].text, copy.origins[i].text);
    CHECK_STATUS(DILOCO_EPROTO, dl_settings_read(&copy, text.data, text.len - 1));
    CHECK_STATUS(DILOCO_EINVAL, dl_settings_read(&copy, "[[\"run.sed\",\"1\",\"x\"]]", 21));
    dl_buf_deinit(&text);
}

/* ---- Plato's files */

TEST(a_file_includes_another_beside_it_and_wins)
{
    const char *iid =
        "datasource = \"Torchvision\"\ndataset_name = \"MNIST\"\npartition_size = 20000\n"
        "sampler = \"iid\"\n";
    scratch_write("iid.toml", iid, strlen(iid));
    CHECK_OK(load("[data]\ninclude = \"iid.toml\"\npartition_size = 1000\n", ""));
    CHECK_STR("MNIST", config.datasource);
    CHECK_STR("iid", config.sampler);
    CHECK_INT(1000, config.partition_size);
    CHECK_STR("data", config.train_path);
    check_origin("run.toml:3:18", "data.partition_size");
    check_origin("iid.toml:4:11", "data.sampler");
    check_refused("no such configuration file", "[data]\ninclude = \"none.toml\"\n", "");
    check_refused("names one other file", "[data]\ninclude = [\"iid.toml\"]\n", "");
}

TEST(an_included_file_includes_further_files_and_wins_over_them)
{
    const char *middle = "include = \"inner.toml\"\nsampler = \"iid\"\n";
    const char *inner = "sampler = \"noniid\"\npartition_size = 20000\n";
    scratch_write("middle.toml", middle, strlen(middle));
    scratch_write("inner.toml", inner, strlen(inner));
    CHECK_OK(load("[data]\ninclude = \"middle.toml\"\n", ""));
    CHECK_STR("iid", config.sampler);
    CHECK_INT(20000, config.partition_size);
    check_origin("inner.toml:2:18", "data.partition_size");
}

TEST(files_that_include_each_other_or_too_many_are_refused)
{
    const char *loop = "include = \"./loop.toml\"\n";
    scratch_write("loop.toml", loop, strlen(loop));
    check_refused("loop.toml includes itself", "[data]\ninclude = \"loop.toml\"\n", "");
    for (int i = 0; i < 12; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "deep%d.toml", i);
        snprintf(text, sizeof text, "include = \"deep%d.toml\"\n", i + 1);
        scratch_write(name, text, strlen(text));
    }
    check_refused("at most 8 files", "[data]\ninclude = \"deep0.toml\"\n", "");
}

/* Of all that a client does, fedavg changes nothing. */
TEST(presets_of_the_federated_family_leave_the_clients_trainer_as_it_is)
{
    static const char *const family[] = {"fedavg",  "fedavgm", "fedprox",
                                         "fedadam", "fedyogi", "fedadagrad"};
    static const char *const options[] = {"trainer.optimizer",
                                          "parameters.optimizer.lr",
                                          "parameters.optimizer.weight_decay",
                                          "parameters.optimizer.decay_of",
                                          "trainer.lr_scheduler",
                                          "trainer.gradient_clip",
                                          "trainer.eval_batches",
                                          "data.sampler"};
    char flags[64];
    for (size_t i = 0; i < sizeof family / sizeof family[0]; i++) {
        CHECK_OK(load("clients.total_clients = 10\n", "--preset federated"));
        const dl_config federated = config;
        snprintf(flags, sizeof flags, "--preset %s", family[i]);
        CHECK_OK(load("clients.total_clients = 10\n", flags));
        CHECK_STR(family[i], config.preset);
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
            const dl_option *row = dl_option_find(dl_config_table, options[k]);
            dl_buf a, b;
            dl_buf_init(&a, 4096), dl_buf_init(&b, 4096);
            CHECK_OK(dl_option_text(&a, row, &federated));
            CHECK_OK(dl_option_text(&b, row, &config));
            CHECK_STR(dl_buf_str(&a), dl_buf_str(&b));
            dl_buf_deinit(&a), dl_buf_deinit(&b);
        }
        CHECK_OK(load("", flags)); /* without clients it is of replicas, as it was */
        CHECK_STR("cosine", config.lr_scheduler);
    }
}

TEST(server_type_and_clients_name_the_preset)
{
    CHECK_OK(load("[clients]\ntotal_clients = 5\n[server]\ntype = \"diloco\"\n", ""));
    CHECK_STR("federated", config.preset);
    CHECK_STR("nesterov", config.outer_optimizer);
    CHECK_OK(load("[clients]\ntotal_clients = 5\n[trainer]\nepochs = 3\n", ""));
    CHECK_STR("fedavg", config.preset);
    CHECK_STR("num_samples", config.weighting);
    CHECK_INT(0, config.local_steps); /* whole epochs */
    CHECK_NEAR(0, config.gradient_clip, 0);
    CHECK_OK(load("", "--set server.type=fedyogi --set clients.total_clients=3"));
    CHECK_STR("fedyogi", config.preset);
    CHECK_OK(load("server.type = \"diloco\"\n", ""));
    CHECK_STR("diloco", config.preset);
    CHECK_STATUS(DILOCO_EREFUSED, load("server.type = \"split_learning\"\n", ""));
    CHECK_CONTAINS("server.type = \"split_learning\" is Plato's", diloco_error_text());
    check_refused("server.type: preset: \"dilco\" is unknown; did you mean diloco",
                  "server.type = \"dilco\"\n", "");
    check_refused("keep one", "preset = \"fedavg\"\nserver.type = \"diloco\"\n", "");
}

TEST(platos_words_are_understood_and_its_other_keys_taken_or_refused_by_name)
{
    CHECK_OK(load("[trainer]\noptimizer = \"AdamW\"\nmax_concurrency = 7\n"
                  "[parameters.learning_rate]\nwarmup_steps = \"1000it\"\n"
                  "[server]\naddress = \"127.0.0.1\"\n[clients]\ndo_test = false\n",
                  "--set trainer.optimizer=SGD"));
    CHECK_STR("sgd", config.optimizer);
    CHECK_INT(1000, config.warmup_steps);
    CHECK_STATUS(DILOCO_EREFUSED, load("[clients]\ndo_test = true\n", ""));
    CHECK_CONTAINS("run.toml:2:11: clients.do_test = true is Plato's", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, load("", "--set trainer.bf16=true"));
    CHECK_CONTAINS("--set: trainer.bf16 = true", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, load("[data.train_kwargs]\nname = \"x\"\n", ""));
    CHECK_OK(load("clients.total_clients = 2\n[trainer]\noptimizer = \"Adam\"\n", ""));
    CHECK_STR("adamw", config.optimizer);
    CHECK_NEAR(0, config.weight_decay, 0);
    CHECK_OK(load("[trainer]\noptimizer = \"Adam\"\n", "--set trainer.optimizer=AdamW"));
    CHECK(config.weight_decay > 0);
    CHECK_STATUS(DILOCO_EREFUSED, load("[trainer]\noptimizer = \"Adam\"\n"
                                       "[parameters.optimizer]\nweight_decay = 0.1\n",
                                       ""));
    CHECK_CONTAINS("take AdamW", diloco_error_text());
    CHECK_OK(load("[trainer]\noptimizer = \"RMSprop\"\n"
                  "[parameters.optimizer]\nalpha = 0.9\ncentered = true\nmomentum = 0.5\n",
                  ""));
    CHECK_STR("rmsprop", config.optimizer);
    CHECK_NEAR(0, config.weight_decay, 0);
    CHECK_NEAR(0.9, config.rms_alpha, 0);
    CHECK(config.rms_centered);
    CHECK_STATUS(DILOCO_EREFUSED, load("[trainer]\noptimizer = \"RMSprop\"\n"
                                       "[parameters.optimizer]\nweight_decay = 0.1\n",
                                       ""));
    CHECK_CONTAINS("\"RMSprop\" with parameters.optimizer.weight_decay = 0.1", diloco_error_text());
    CHECK_OK(load("[trainer]\noptimizer = \"SGD\"\n", ""));
    CHECK_NEAR(0, config.weight_decay, 0);
    CHECK_OK(
        load("[trainer]\noptimizer = \"SGD\"\n[parameters.optimizer]\nweight_decay = 0.1\n", ""));
    CHECK_NEAR(0.1, config.weight_decay, 0);
    CHECK_INT(DL_DECAYED_ALL, config.decayed);
    CHECK_STATUS(DILOCO_EREFUSED, load("[trainer]\noptimizer = \"SGD\"\n[parameters.optimizer]\n"
                                       "weight_decay = 0.1\ndecay_of = \"matrices\"\n",
                                       ""));
    CHECK_STATUS(DILOCO_EREFUSED, load("[trainer]\noptimizer = \"SGD\"\n[parameters.optimizer]\n"
                                       "weight_decay = 0.1\nmomentum = 0.9\n",
                                       ""));
    CHECK_CONTAINS("take sgd, which decouples it", diloco_error_text());
    static const char *const refused[][2] = {
        {"trainer.optimizer=\"Adagrad\"", "take AdamW"},
        {"trainer.optimizer=\"sgdm\"", "an outer optimizer; take SGD"},
        {"trainer.lr_scheduler=\"CosineAnnealingLR\"", "cosine"},
        {"trainer.lr_scheduler=\"ReduceLROnPlateau\"", "constant"},
        {"results.types=\"round, comm_time\"", "elapsed_time includes"},
        {"data.testset_size=100", "trainer.eval_batches"},
        {"data.testset_sampler=\"iid\"", "clients.do_test"},
        {"clients.do_test=true", "accuracy"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_STATUS(DILOCO_EREFUSED, load(refused[i][0], ""));
        CHECK_CONTAINS("is Plato's", diloco_error_text());
        CHECK_CONTAINS(refused[i][1], diloco_error_text());
    }
    CHECK_OK(load("server.diloco.outer_optimizer = \"sgdm\"\n", ""));
    CHECK_STR("momentum", config.outer_optimizer);
    check_refused("needs data.dataset_name", "data.datasource = \"Torchvision\"\n", "");
}

TEST_MAIN(later_places_win_and_every_value_remembers_its_own,
          the_file_outranks_its_preset_and_a_flag_outranks_the_files_preset,
          the_defaults_are_the_values_of_preset_diloco,
          unknown_names_are_reported_with_line_column_and_the_nearest,
          values_out_of_range_or_of_another_type_are_refused_with_their_place,
          text_that_is_not_toml_is_refused_with_its_place, a_list_of_paths_becomes_one_text,
          a_command_keeps_its_words, an_option_and_its_alias_cannot_both_be_in_the_file,
          flags_that_contradict_each_other_are_refused,
          replicas_is_the_local_number_and_the_default_of_the_whole_run,
          the_store_is_named_after_the_file_and_the_private_state_is_beside_it,
          a_file_that_is_not_there_is_said_so, a_file_includes_another_beside_it_and_wins,
          an_included_file_includes_further_files_and_wins_over_them,
          files_that_include_each_other_or_too_many_are_refused,
          presets_of_the_federated_family_leave_the_clients_trainer_as_it_is,
          server_type_and_clients_name_the_preset,
          platos_words_are_understood_and_its_other_keys_taken_or_refused_by_name,
          settings_reach_another_process_with_their_places)
