/* runfile_test.c - run.json gives a replica the options and tensors it was begun with, and
 * says which of them another replica has different. */
#include "log/runfile.h"

#include "check.h"
#include "log/fields.h"
#include "sanitized.h"

#define RUN "0123456789abcdef0123456789abcdef"

static const diloco_tensor tensors[] = {
    {"embed", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {7, 3}, 0},
    {"scale", NULL, DILOCO_F32, DILOCO_FROZEN, 1, {5}, 1},
    {"counts", NULL, DILOCO_I64, DILOCO_BUFFER, 0, {0}, 0},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static dl_runfile a_runfile(void)
{
    dl_runfile file = {.id = RUN, .program = DILOCO_VERSION};
    dl_config_init(&file.config);
    CHECK_OK(dl_config_set(&file.config, "trainer.local_steps_per_round", "50", "--set"));
    CHECK_OK(dl_config_set(&file.config, "server.diloco.outer_learning_rate", "0.1", "run.toml"));
    CHECK_OK(dl_config_set(&file.config, "run.threads", "3", "--set"));
    CHECK_OK(dl_options_digest(&file.config_digest, dl_config_table, &file.config));
    CHECK_OK(dl_manifest_init(&file.manifest, tensors, N_TENSORS, false));
    file.theta0 = dl_hash_bytes("theta0", 6);
    file.theta0_file = dl_hash_bytes("file", 4);
    return file;
}

static dl_buf written(const dl_runfile *file)
{
    dl_buf text;
    dl_buf_init(&text, DL_RUNFILE_MAX);
    CHECK_OK(dl_runfile_write(&text, file));
    return text;
}

TEST(a_run_reads_back_with_its_options_and_tensors)
{
    dl_runfile file = a_runfile(), back;
    strcpy(file.data_digest, RUN);
    strcpy(file.creator, "r0");
    dl_buf text = written(&file);
    CHECK_OK(dl_runfile_read(&back, text.data, text.len));
    CHECK_STR(RUN, back.id);
    CHECK_STR(DILOCO_VERSION, back.program);
    CHECK_STR("r0", back.creator);
    CHECK_STR(RUN, back.data_digest);
    CHECK(dl_hash_equal(file.theta0, back.theta0));
    CHECK(dl_hash_equal(file.theta0_file, back.theta0_file));
    CHECK(dl_hash_equal(file.config_digest, back.config_digest));
    CHECK(dl_hash_equal(file.manifest.digest, back.manifest.digest));
    CHECK_INT(N_TENSORS, back.manifest.n_tensors);
    CHECK_INT(50, back.config.local_steps);
    CHECK(back.config.outer_lr == 0.1);
    CHECK_INT(0, back.config.threads); /* a machine's own: not in the run */
    CHECK_STR("run", dl_config_origin(&back.config, "trainer.local_steps_per_round"));
    CHECK_STR("run", dl_config_origin(&back.config, "run.seed"));
    CHECK_STR("default", dl_config_origin(&back.config, "run.threads"));

    dl_buf again = written(&back);
    CHECK_INT(text.len, again.len);
    CHECK_BYTES(text.data, again.data, text.len);
    dl_buf_deinit(&again);
    dl_buf_deinit(&text);
    dl_runfile_deinit(&back);
    dl_runfile_deinit(&file);
}

TEST(regions_follow_the_runs_own_option)
{
    dl_runfile file = a_runfile(), back;
    CHECK_OK(dl_config_set(&file.config, "server.diloco.apply_outer_optimizer_to", "all_floating",
                           "--set"));
    CHECK_OK(dl_options_digest(&file.config_digest, dl_config_table, &file.config));
    dl_buf text = written(&file);
    CHECK_OK(dl_runfile_read(&back, text.data, text.len));
    CHECK_INT(DL_TRAINED, back.manifest.tensors[1].region);
    dl_buf_deinit(&text);
    dl_runfile_deinit(&back);
    dl_runfile_deinit(&file);
}

TEST(every_flipped_bit_and_every_cut_is_found)
{
    dl_runfile file = a_runfile(), back;
    dl_buf text = written(&file);
    for (size_t i = 0; i < text.len; i++) {
        CHECK_STATUS(DILOCO_EPROTO, dl_runfile_read(&back, text.data, i));
        if (i >= text.len - 35 && i < text.len - 3) continue; /* the seal's digits: fields_test */
        for (int bit = SANITIZED ? (int)i % 8 : 0; bit < 8; bit += SANITIZED ? 8 : 1) {
            text.data[i] ^= (unsigned char)(1 << bit);
            CHECK_STATUS(DILOCO_EPROTO, dl_runfile_read(&back, text.data, text.len));
            text.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    CHECK(back.manifest.tensors == NULL);
    dl_buf_deinit(&text);
    dl_runfile_deinit(&file);
}

/* The text with `from` replaced by `to`, sealed again. */
static void check_edited(diloco_status expected, const char *from, const char *to, const char *part)
{
    dl_runfile file = a_runfile(), back;
    dl_buf text = written(&file), edited;
    dl_buf_init(&edited, DL_RUNFILE_MAX);
    const char *all = dl_buf_str(&text), *at = strstr(all, from), *seal = strstr(all, ",\"check\"");
    CHECK(at && seal && at < seal);
    CHECK_OK(dl_buf_add(&edited, all, (size_t)(at - all)));
    CHECK_OK(dl_buf_add(&edited, to, strlen(to)));
    at += strlen(from);
    CHECK_OK(dl_buf_add(&edited, at, (size_t)(seal - at)));
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_hash_bytes(edited.data, edited.len));
    CHECK_OK(dl_buf_addf(&edited, ",\"check\":\"%s\"}\n", hex));
    CHECK_STATUS(expected, dl_runfile_read(&back, edited.data, edited.len));
    if (expected) CHECK_CONTAINS(part, diloco_error_text());
    dl_runfile_deinit(&back);
    dl_buf_deinit(&edited);
    dl_buf_deinit(&text);
    dl_runfile_deinit(&file);
}

TEST(run_of_another_program_is_distinguished_from_damage)
{
    check_edited(DILOCO_OK, "\"version\":1", "\"version\":1,\"later\":[]", "");
    check_edited(DILOCO_EDIFFERS, "\"version\":1", "\"version\":2", "version 2");
    check_edited(DILOCO_EDIFFERS, "\"version\":1", "\"version\":2", "version 1");
    check_edited(DILOCO_EDIFFERS, "\"options\":{", "\"options\":{\"run.later\":\"1\",",
                 "run.later");
    check_edited(DILOCO_EDIFFERS, "\"run.seed\":\"1\",", "", "run.seed");
    /* by its alias, or one that need not agree: not how a run is written */
    check_edited(DILOCO_EDIFFERS, "\"options\":{", "\"options\":{\"sync_every\":\"1\",",
                 "sync_every");
    check_edited(DILOCO_EDIFFERS, "\"options\":{", "\"options\":{\"run.threads\":\"1\",",
                 "run.threads");
}

TEST(untrusted_text_is_refused_by_the_name_of_the_wrong_member)
{
    check_edited(DILOCO_EPROTO, "diloco-run", "diloco-entry", "diloco-entry");
    check_edited(DILOCO_EPROTO, RUN, "0123", "run");
    check_edited(DILOCO_EPROTO, "\"program\":\"" DILOCO_VERSION "\"",
                 "\"program\":\"a version that is far longer than 31 bytes\"", "program");
    check_edited(DILOCO_EPROTO, "\"theta0\":\"", "\"creator\":\"a\\nb\",\"theta0\":\"", "creator");
    check_edited(DILOCO_EPROTO, "\"theta0\":\"", "\"creator\":7,\"theta0\":\"", "creator");
    check_edited(DILOCO_EPROTO, "\"theta0\":\"", "\"theta0\":\"0", "theta0");
    check_edited(DILOCO_EPROTO, "\"theta0_file\"", "\"theta0_fil\"", "theta0_file");
    check_edited(DILOCO_EPROTO, "\"data_digest\":\"\"", "\"data_digest\":1", "data_digest");
    check_edited(DILOCO_EPROTO, "\"options\":{", "\"options\":1,\"o\":{", "options");
    check_edited(DILOCO_EPROTO, "\"run.seed\":\"1\"", "\"run.seed\":1", "run.seed");
    check_edited(DILOCO_EPROTO, "\"run.seed\":\"1\"", "\"run.seed\":\"-1\"", "run.seed");
    check_edited(DILOCO_EPROTO, "\"run.seed\":\"1\"", "\"run.seed\":\"2\"", "config_digest");
    check_edited(DILOCO_EPROTO, "\"tensors\":[", "\"tensors\":1,\"t\":[", "manifest");
    check_edited(DILOCO_EPROTO, "\"shape\":[7,3]", "\"shape\":[7,-1]", "manifest");
    check_edited(DILOCO_EPROTO, "\"shape\":[7,3]", "\"shape\":[3,7]", "manifest_digest");
}

TEST(options_not_given_are_taken_from_the_run)
{
    dl_runfile file = a_runfile();
    dl_config here;
    dl_config_init(&here);
    CHECK_OK(dl_config_set(&here, "run.threads", "2", "--set"));
    CHECK_OK(dl_runfile_matches(&file, &here, &file.manifest, NULL));
    dl_runfile_take(&here, &file);
    CHECK_INT(50, here.local_steps);
    CHECK(here.outer_lr == 0.1);
    CHECK_INT(2, here.threads);
    CHECK_STR("run", dl_config_origin(&here, "server.diloco.codec"));
    CHECK_STR("--set", dl_config_origin(&here, "run.threads"));
    dl_hash digest;
    CHECK_OK(dl_options_digest(&digest, dl_config_table, &here));
    CHECK(dl_hash_equal(digest, file.config_digest));
    dl_runfile_deinit(&file);
}

TEST(options_that_differ_are_named_with_both_values_and_their_origin)
{
    dl_runfile file = a_runfile();
    dl_config here;
    dl_config_init(&here);
    CHECK_OK(dl_config_set(&here, "trainer.local_steps_per_round", "40", "--set"));
    CHECK_OK(dl_config_set(&here, "outer_lr", "0.1", "--set")); /* as in the run */
    CHECK_OK(dl_config_set(&here, "data.tokenizer", "bpe", "run.toml:7:1"));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_runfile_matches(&file, &here, &file.manifest, NULL));
    CHECK_STR("trainer.local_steps_per_round is 50 in the run, 40 here (--set)\n"
              "data.tokenizer is byte in the run, bpe here (run.toml:7:1)",
              diloco_error_text());
    dl_runfile_deinit(&file);
}

TEST(a_replica_of_another_program_series_is_refused_and_one_of_the_same_is_not)
{
    dl_runfile file = a_runfile();
    dl_config here;
    dl_config_init(&here);
    strcpy(file.program, DILOCO_VERSION "7"); /* a later patch of this series */
    CHECK_OK(dl_runfile_matches(&file, &here, &file.manifest, NULL));
    strcpy(file.program, "77.0.0");
    CHECK_STATUS(DILOCO_EDIFFERS, dl_runfile_matches(&file, &here, &file.manifest, NULL));
    CHECK_STR("the run was begun by diloco 77.0.0, this program is " DILOCO_VERSION,
              diloco_error_text());
    dl_runfile_deinit(&file);
}

TEST(at_most_8_lines_are_listed)
{
    static const char *const names[] = {
        "run.seed",      "run.replicas",         "run.min_replicas",   "trainer.rounds",
        "run.deadline",  "run.patience",         "trainer.batch_size", "run.quorum",
        "run.heartbeat", "trainer.gradient_clip"};
    dl_runfile file = a_runfile();
    dl_config here;
    dl_config_init(&here);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_OK(dl_config_set(&here, names[i], i == 7 ? "0.25" : "77", "--set"));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_runfile_matches(&file, &here, &file.manifest, NULL));
    CHECK_CONTAINS("\nand 2 more", diloco_error_text());
    size_t lines = 1;
    for (const char *c = diloco_error_text(); *c; c++)
        lines += *c == '\n';
    CHECK_INT(9, lines);
    dl_runfile_deinit(&file);
}

static void check_model(const char *creator, const char *replica, const diloco_tensor *list,
                        size_t n, const char *part)
{
    dl_runfile file = a_runfile();
    strcpy(file.creator, creator);
    dl_config here;
    dl_manifest manifest;
    dl_config_init(&here);
    CHECK_OK(dl_manifest_init(&manifest, list, n, false));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_runfile_matches(&file, &here, &manifest, replica));
    CHECK_CONTAINS(part, diloco_error_text());
    dl_manifest_deinit(&manifest);
    dl_runfile_deinit(&file);
}

TEST(the_first_tensor_that_differs_is_named_with_both_replicas)
{
    diloco_tensor other[N_TENSORS];
    memcpy(other, tensors, sizeof tensors);
    check_model("r0", "r12", tensors, N_TENSORS - 1,
                "the model in the run that replica r0 created has 3 tensors, the model on replica "
                "r12 has 2");
    check_model("", NULL, tensors, N_TENSORS - 1,
                "the model in the run has 3 tensors, the model here has 2");
    other[0].shape[1] = 4;
    check_model("r0", "r12", other, N_TENSORS,
                "tensor 0 is embed F32 parameter [7, 3] in fragment 0 in the run that replica r0 "
                "created, embed F32 parameter [7, 4] in fragment 0 on replica r12");
    other[0] = tensors[0];
    other[2].name = "count";
    check_model("", NULL, other, N_TENSORS,
                "tensor 2 is counts I64 buffer [] in fragment 0 in the run");
    other[2] = tensors[2];
    other[1].role = DILOCO_BUFFER;
    check_model("", NULL, other, N_TENSORS, "scale F32 buffer [5] in fragment 1 here");
}

TEST_MAIN(a_run_reads_back_with_its_options_and_tensors, regions_follow_the_runs_own_option,
          every_flipped_bit_and_every_cut_is_found,
          run_of_another_program_is_distinguished_from_damage,
          untrusted_text_is_refused_by_the_name_of_the_wrong_member,
          a_replica_of_another_program_series_is_refused_and_one_of_the_same_is_not,
          options_not_given_are_taken_from_the_run,
          options_that_differ_are_named_with_both_values_and_their_origin,
          at_most_8_lines_are_listed, the_first_tensor_that_differs_is_named_with_both_replicas)
