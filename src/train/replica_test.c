/* replica_test.c - one process of a replica: its record, its evaluations, its stops, resumes and
 * refusals. */
#include "nn/inner.h"
#include "private_sync.h"
#include "protocol/proposal.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static dl_config *two_replicas(void)
{
    dl_config *config = fixture_config("diloco");
    set(config, "run.replicas", "2");
    return config;
}

static diloco_status train(const dl_config *config, const char *name, fixture_record *record)
{
    diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                .on_record = fixture_on_record,
                                .user = record,
                                .stop = &record->stop};
    return diloco_train(config, name, &hooks);
}

/* ---- two replicas */

TEST(replicas_on_different_data_move_and_agree_after_every_entry)
{
    fixture_record records[2] = {{0}};
    dl_config *config = two_replicas();
    fixture_train(config, records, 2);
    char last[33] = "";
    for (size_t e = 0; e < 2; e++) {
        char digest[2][33];
        double norm =
            fixture_number(fixture_nth(&records[0], "contribution", e), "pseudo_grad_norm");
        for (size_t k = 0; k < 2; k++)
            CHECK_OK(dl_json_read_str(digest[k], sizeof digest[k],
                                      fixture_nth(&records[k], "commit", e), "digest"));
        CHECK_STR(digest[0], digest[1]);
        for (size_t k = 0; k < 2; k++) { /* SWM-7: H is 4, not 3 and not 5 */
            const dl_json_value c = fixture_nth(&records[k], "contribution", e);
            CHECK_INT(4 * (e + 1), fixture_whole(c, "step"));
            CHECK_INT(4 * (e + 1), fixture_whole(c, "position"));
        }
        CHECK(strcmp(last, digest[0]) != 0);
        snprintf(last, sizeof last, "%s", digest[0]);
        CHECK(norm > 0);
        CHECK(norm != fixture_number(fixture_nth(&records[1], "contribution", e),
                                     "pseudo_grad_norm")); /* other data */
    }
    for (size_t k = 0; k < 2; k++)
        fixture_record_free(&records[k]);
    free(config);
}

TEST(each_due_entry_is_evaluated_by_one_replica_and_the_last_always)
{
    fixture_record records[2] = {{0}};
    dl_config *config = two_replicas();
    set(config, "trainer.rounds", "5");
    set(config, "trainer.local_steps_per_round", "1");
    set(config, "trainer.eval_every", "2");
    fixture_train(config, records, 2);
    bool evaluated[6] = {false};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < fixture_count(&records[k], "eval"); i++) {
            uint64_t entry = fixture_whole(fixture_nth(&records[k], "eval", i), "entry");
            CHECK(!evaluated[entry]);
            evaluated[entry] = true;
        }
    static const bool expected[6] = {false, false, true, false, true, true};
    CHECK_BYTES(expected, evaluated, sizeof expected);
    for (size_t k = 0; k < 2; k++)
        fixture_record_free(&records[k]);
    free(config);
}

/* ---- the record */

TEST(the_record_has_the_fields_of_the_design)
{
    static const struct {
        const char *event;
        const char *fields[24];
    } rows[] = {
        {"run",
         {"run", "config_digest", "preset", "params", "fragments", "local_steps", "outer_optimizer",
          "outer_learning_rate", "outer_momentum"}},
        {"trainer",
         {"replica", "shard", "threads", "isa", "program", "data_digest", "resumed", "optimizer",
          "learning_rate", "batch_size", "gradient_accumulation_steps"}},
        {"step",
         {"replica", "step", "tokens", "samples", "loss", "lr", "grad_norm", "tokens_per_s"}},
        {"contribution",
         {"replica", "entry", "fragment", "step", "pseudo_grad_norm", "bytes", "encode_s", "put_s",
          "codec"}},
        {"commit",
         {"entry", "fragment", "members", "missing", "weights", "norms", "inner_loss", "outer_lr",
          "aggregated_grad_norm", "peer_grad_similarity", "weight_divergence", "bytes_sent",
          "bytes_received", "wait_s", "exchange_s", "outer_s", "digest"}},
        {"eval", {"entry", "step", "loss", "perplexity", "loss_after_sync"}},
        {"end",
         {"entry", "steps", "tokens", "bytes_sent", "bytes_received", "data_parallel_bytes",
          "reduction", "utilization", "digest"}},
    };
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    fixture_train(config, &record, 1);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        dl_json_value event = fixture_nth(&record, rows[r].event, 0);
        for (size_t f = 0; rows[r].fields[f]; f++)
            if (dl_json_get(event, rows[r].fields[f]).type == DL_JSON_MISSING)
                CHECK_FAIL("\"%s\" has no \"%s\"", rows[r].event, rows[r].fields[f]);
    }
    dl_json_value eval = fixture_nth(&record, "eval", 1);
    CHECK_NEAR(exp(fixture_number(eval, "loss")), fixture_number(eval, "perplexity"), 1e-4);
    double after = fixture_number(eval, "loss_after_sync");
    CHECK(after > 1 && after < 6); /* ln 256 = 5.5 at the start */
    double utilization = fixture_number(fixture_nth(&record, "end", 0), "utilization");
    CHECK(utilization > 0 && utilization <= 1);
    fixture_record_free(&record);
    free(config);
}

/* SWM-2, SWM-4 */
TEST(the_record_names_the_settings_that_were_given)
{
    static const char *const given[][2] = {{"server.diloco.outer_learning_rate", "0.01"},
                                           {"server.diloco.outer_momentum", "0.99"},
                                           {"server.diloco.outer_optimizer", "momentum"},
                                           {"parameters.optimizer.lr", "0.002"},
                                           {"trainer.batch_size", "3"}};
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        set(config, given[i][0], given[i][1]);
    fixture_train(config, &record, 1);
    const dl_json_value run = fixture_nth(&record, "run", 0);
    const dl_json_value trainer = fixture_nth(&record, "trainer", 0);
    CHECK_NEAR(0.01, fixture_number(run, "outer_learning_rate"), 0);
    CHECK_NEAR(0.99, fixture_number(run, "outer_momentum"), 0);
    CHECK(dl_json_is(dl_json_get(run, "outer_optimizer"), "momentum"));
    CHECK_NEAR(0.01, fixture_number(fixture_nth(&record, "commit", 0), "outer_lr"), 1e-8);
    CHECK_NEAR(0.002, fixture_number(trainer, "learning_rate"), 0);
    CHECK_INT(3, fixture_whole(trainer, "batch_size"));
    CHECK_INT(3, fixture_whole(fixture_nth(&record, "step", 0), "samples"));
    fixture_record_free(&record);
    free(config);
}

/* A round of H steps sends the bytes of one all-reduce (architecture.md section 9), of a model of
 * realistic size: 70,000 parameters in float32. */
TEST(swm33_a_round_sends_the_bytes_of_one_all_reduce_and_at_most_a_twentieth_more)
{
    fixture_record records[2] = {{0}};
    dl_config *config = two_replicas();
    set(config, "parameters.model.channels", "64");
    fixture_train(config, records, 2);
    for (size_t k = 0; k < 2; k++) {
        const double once = 4 * fixture_number(fixture_nth(&records[k], "run", 0), "params");
        const dl_json_value end = fixture_nth(&records[k], "end", 0);
        const double sent = fixture_number(fixture_nth(&records[k], "commit", 1), "bytes_sent");
        CHECK_NEAR(once * 8, fixture_number(end, "data_parallel_bytes"), 0); /* two rounds of 4 */
        if (!(sent >= once && sent <= 1.05 * once))
            CHECK_FAIL("%g bytes sent in a round, %g by an all-reduce", sent, once);
        fixture_record_free(&records[k]);
    }
    free(config);
}

/* check.probe rejects no replica here, and the model ends with the same bits. */
TEST(p27_a_probe_measures_the_shared_model_and_leaves_the_replica_as_it_was)
{
    char digest[2][DL_HASH_HEX + 1];
    for (int probes = 0; probes < 2; probes++) {
        fixture_record record = {0};
        dl_config *config = fixture_config("diloco");
        set(config, "check.probe", probes ? "1000" : "0");
        fixture_train(config, &record, 1);
        CHECK_OK(dl_json_read_str(digest[probes], sizeof digest[probes],
                                  fixture_nth(&record, "end", 0), "digest"));
        CHECK_INT(2 * probes, fixture_count(&record, "probe"));
        if (probes) /* of theta before entry 1, after entry 0 */
            CHECK_NEAR(fixture_number(fixture_nth(&record, "eval", 0), "loss"),
                       fixture_number(fixture_nth(&record, "probe", 1), "loss"), 0);
        fixture_record_free(&record);
        free(config);
    }
    CHECK_STR(digest[0], digest[1]);
}

TEST(a_probe_without_held_out_data_is_refused)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "check.probe", "1.5");
    set(config, "data.test_fraction", "0");
    CHECK_STATUS(DILOCO_EINVAL, train(config, "r0", &record));
    CHECK_CONTAINS("needs held-out data", diloco_error_text());
    fixture_record_free(&record);
    free(config);
}

TEST(the_record_file_has_the_same_lines)
{
    fixture_record record = {0};
    dl_buf file;
    char *path = scratch_path("record.jsonl");
    dl_config *config = fixture_config("diloco");
    set(config, "run.record", path);
    fixture_train(config, &record, 1);
    dl_buf_init(&file, 1 << 20);
    CHECK_OK(dl_file_read(&file, path));
    size_t at = 0;
    for (size_t i = 0; i < record.n; i++) {
        size_t len = strlen(record.lines[i]);
        CHECK(at + len < file.len);
        CHECK_BYTES(record.lines[i], file.data + at, len);
        CHECK(file.data[at + len] == '\n');
        at += len + 1;
    }
    CHECK_INT(file.len, at);
    dl_buf_deinit(&file);
    fixture_record_free(&record);
    free(config);
}

TEST(a_record_that_cannot_be_opened_stops_before_training)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "run.record", scratch_path("no-such-folder/record.jsonl"));
    CHECK_STATUS(DILOCO_ENOENT, train(config, "r0", &record));
    CHECK_CONTAINS("no-such-folder", diloco_error_text());
    free(config);
}

TEST(warnings_are_in_the_record)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "server.diloco.outer_learning_rate", "1.5");
    fixture_train(config, &record, 1);
    CHECK(dl_json_is(dl_json_get(fixture_nth(&record, "warn", 0), "code"), "outer_learning_rate"));
    fixture_record_free(&record);
    free(config);
}

/* ---- contributions that are dropped */

enum { DROP_CREW = 4, DROP_ROUNDS = 10 };

static diloco_status count_members(void *user, const diloco_log_entry *entry)
{
    size_t *n = user;
    *n += entry->commit ? entry->n_members : 0;
    return DILOCO_OK;
}

/* Returns the validation loss at the end, and how many contributions the entries counted. */
static double loss_with(const char *drop, const char *on_uncounted, size_t *n_counted)
{
    fixture_record records[DROP_CREW] = {{0}};
    double loss = NAN;
    char digest[33] = "";
    dl_config *config = fixture_config("diloco");
    set(config, "run.replicas", "4");
    set(config, "trainer.rounds", "10");
    set(config, "parameters.optimizer.lr", "1e-2");
    set(config, "run.drop", drop);
    set(config, "run.on_uncounted", on_uncounted);
    fixture_train(config, records, DROP_CREW);
    *n_counted = 0;
    CHECK_OK(diloco_log_walk(config->store, 0, count_members, n_counted));
    for (size_t r = 0; r < DROP_CREW; r++) {
        char own[33];
        CHECK_OK(dl_json_read_str(own, sizeof own, fixture_nth(&records[r], "end", 0), "digest"));
        if (r == 0) memcpy(digest, own, sizeof digest);
        CHECK_STR(digest, own);
        for (size_t i = 0; i < records[r].n; i++) {
            const dl_json_value eval = fixture_event(&records[r], i, "eval");
            if (eval.type == DL_JSON_OBJECT && fixture_number(eval, "entry") == DROP_ROUNDS)
                loss = fixture_number(eval, "loss");
        }
        fixture_record_free(&records[r]);
    }
    free(config);
    return loss;
}

TEST(alg_11_with_half_of_the_contributions_dropped_the_loss_is_within_5_percent)
{
    size_t all, adopted, kept, expected = 0;
    dl_config *config = fixture_config("diloco");
    set(config, "run.drop", "0.5");
    for (uint64_t e = 0; e < DROP_ROUNDS; e++)
        for (int r = 0; r < DROP_CREW; r++)
            expected += !dl_draft_drops(config, e, (const char *[]){"r0", "r1", "r2", "r3"}[r]);
    free(config);
    const double whole = loss_with("0", "adopt", &all);
    const double adopt = loss_with("0.5", "adopt", &adopted);
    const double keep = loss_with("0.5", "keep", &kept);
    CHECK_INT(DROP_CREW * DROP_ROUNDS, all);
    CHECK_INT(expected, adopted); /* and none is skipped for another reason */
    CHECK_INT(expected, kept);
    CHECK(all / 4 < expected && expected < all * 3 / 4);
    CHECK(whole < 0.8 * log(256)); /* it has trained, */
    if (!(adopt < 1.05 * whole && keep < 1.05 * whole))
        CHECK_FAIL("losses %.4f, %.4f, %.4f", whole, adopt, keep);
}

/* ---- the schedule */

TEST(the_schedule_goes_by_position_and_continues_across_entries)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "parameters.learning_rate.warmup_steps", "3");
    fixture_train(config, &record, 1);
    for (uint64_t i = 0; i < 8; i++) {
        double lr;
        CHECK_OK(dl_schedule_lr(&lr, config, i, 8, 0));
        CHECK_NEAR(lr, fixture_number(fixture_nth(&record, "step", i), "lr"), 1e-12);
    }
    fixture_record_free(&record);
    free(config);
}

static void check_lr(const fixture_record *record, size_t k, uint64_t position,
                     const dl_config *config, double factor)
{
    double lr;
    CHECK_OK(dl_schedule_lr(&lr, config, position, 12, 0));
    CHECK_NEAR(lr * factor, fixture_number(fixture_nth(record, "step", k), "lr"), 1e-12);
}

/* One replica loses its private state after the first entry, and is stopped again during its
 * warm-up. */
TEST(joining_replica_without_moments_warms_up_and_resumes_its_warmup)
{
    fixture_record first = {.stop_at = 6}, joined = {.stop_at = 6}, resumed = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.rounds", "3");
    set(config, "parameters.learning_rate.rewarm_steps", "4");
    set(config, "run.state_dir", scratch_path("lost"));
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(config, "r0", &first));
    for (uint64_t i = 0; i < 5; i++)
        check_lr(&first, i, i, config, 1); /* the first step of a run is no join */

    set(config, "run.state_dir", scratch_path("found"));
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(config, "r0", &joined));
    CHECK_INT(2, fixture_count(&joined, "step"));
    check_lr(&joined, 0, 4, config, 0.25);
    check_lr(&joined, 1, 5, config, 0.5);

    CHECK_OK(train(config, "r0", &resumed));
    check_lr(&resumed, 0, 6, config, 0.75);
    for (uint64_t i = 1; i < 6; i++)
        check_lr(&resumed, i, 6 + i, config, 1);
    fixture_record_free(&first), fixture_record_free(&joined), fixture_record_free(&resumed);
    free(config);
}

/* ---- stop and resume */

static void check_equal_theta(const dl_config *a, const dl_config *b)
{
    size_t n;
    float *expected = fixture_theta(a, &n), *theta = fixture_theta(b, &n);
    CHECK_BYTES(expected, theta, n * sizeof *theta);
    free(expected), free(theta);
}

static void check_resumes_bitwise(const char *preset, const char *H, const char *rounds,
                                  uint64_t stop_at)
{
    fixture_record whole = {0}, first = {.stop_at = stop_at}, second = {0};
    dl_config *a = fixture_config(preset), *b = fixture_config(preset);
    for (int k = 0; k < 2; k++) {
        set(k ? b : a, "trainer.rounds", rounds);
        set(k ? b : a, "trainer.local_steps_per_round", H);
    }
    fixture_train(a, &whole, 1);
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(b, "r0", &first));
    CHECK_CONTAINS("the same command resumes", diloco_error_text());
    CHECK_OK(train(b, "r0", &second));

    uint64_t n_first = fixture_count(&first, "step"), n_second = fixture_count(&second, "step");
    CHECK_INT(stop_at, n_first);
    /* A data-parallel step that is stopped during its exchange is repeated. */
    uint64_t again = n_first + n_second - fixture_count(&whole, "step");
    CHECK(again <= (strcmp(preset, "data_parallel") == 0));
    check_equal_theta(a, b);
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
}

TEST(a_run_stopped_between_entries_resumes_bitwise)
{
    check_resumes_bitwise("diloco", "4", "2", 6);
}

TEST(a_run_stopped_before_its_first_entry_resumes_bitwise)
{
    check_resumes_bitwise("diloco", "4", "2", 1);
}

TEST(a_run_stopped_at_a_due_point_resumes_bitwise)
{
    check_resumes_bitwise("diloco", "4", "2", 4);
}

static void exit_after_the_due_point(void *user, const diloco_progress *progress)
{
    (void)user;
    if (progress->position == 6) _exit(42);
}

/* The state saved at the due point is the run's own work: the process is killed. */
TEST(a_run_killed_between_entries_resumes_bitwise_from_its_due_point)
{
    int status;
    size_t n;
    fixture_record whole = {0}, second = {0};
    dl_config *a = fixture_config("diloco"), *b = fixture_config("diloco");
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const diloco_train_hooks hooks = {.on_progress = exit_after_the_due_point};
        _exit(diloco_train(b, "r0", &hooks) ? 2 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    fixture_train(a, &whole, 1);
    CHECK_OK(train(b, "r0", &second));
    CHECK_INT(4, fixture_count(&second, "step"));
    float *expected = fixture_theta(a, &n), *theta = fixture_theta(b, &n);
    CHECK_BYTES(expected, theta, n * sizeof *theta);
    free(expected), free(theta);
    fixture_record_free(&whole), fixture_record_free(&second);
    free(a), free(b);
}

/* Opening the folder of the store is an I/O error (ELOOP) until the replica waits for it. */
static void unblock_once_it_waits(void *user, diloco_log_level level, const char *line)
{
    (void)level;
    const char *store = user;
    if (!strstr(line, "waits for its store")) return;
    CHECK_INT(0, unlink(store));
    CHECK_INT(0, rename(scratch_path("blocked-away"), store));
}

TEST(restarted_replica_waits_for_a_store_whose_settings_cannot_be_read)
{
    fixture_record first = {.stop_at = 6}, second = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "run.state_dir", scratch_path("blocked.state"));
    set(config, "run.store_timeout", "100000");
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(config, "r0", &first));
    CHECK_INT(0, rename(config->store, scratch_path("blocked-away")));
    CHECK_INT(0, symlink(config->store, config->store));
    diloco_log_set(unblock_once_it_waits, config->store, DILOCO_LOG_WARN);
    CHECK_OK(train(config, "r0", &second));
    diloco_log_set(NULL, NULL, DILOCO_LOG_WARN);
    CHECK_INT(2, fixture_count(&second, "step"));
    fixture_record_free(&first), fixture_record_free(&second);
    free(config);
}

TEST(data_parallel_resumes_bitwise)
{
    check_resumes_bitwise("data_parallel", "1", "6", 3);
}

TEST(a_run_that_has_ended_is_done_at_once)
{
    fixture_record record = {0}, again = {0};
    dl_config *config = fixture_config("diloco");
    fixture_train(config, &record, 1);
    fixture_train(config, &again, 1);
    CHECK_INT(0, fixture_count(&again, "step"));
    fixture_record_free(&record), fixture_record_free(&again);
    free(config);
}

/* Of the replica whose disk is slow; NULL: none is. */
static fixture_record *_Atomic slow_disk;

/* Replaces the C library's function. The first save lasts until well after the stop, six times as
 * long as the interval in which the flag is looked at. */
__attribute__((visibility("default"))) int fsync(int fd)
{
    if (is_private_state(fd, "local.safetensors")) {
        fixture_record *record = atomic_exchange(&slow_disk, NULL);
        for (int ms = 0; record && ms < 20000; ms++) {
            if (__atomic_load_n(&record->stop, __ATOMIC_RELAXED) && ms < 19700) ms = 19700;
            dl_clock_sleep(DL_MILLISECOND);
        }
    }
    return real_fsync(fd);
}

TEST(a_stop_while_a_save_is_written_saves_and_resumes_bitwise)
{
    fixture_record whole = {0}, first = {.stop_at = 6}, second = {0};
    dl_config *a = fixture_config("diloco"), *b = fixture_config("diloco");
    for (int k = 0; k < 2; k++)
        set(k ? b : a, "server.diloco.overlap_steps", "3");
    fixture_train(a, &whole, 1);
    slow_disk = &first;
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(b, "r0", &first));
    CHECK_CONTAINS("the same command resumes", diloco_error_text());
    CHECK(!slow_disk);
    CHECK_OK(train(b, "r0", &second));
    CHECK_INT(fixture_count(&whole, "step"),
              fixture_count(&first, "step") + fixture_count(&second, "step"));
    check_equal_theta(a, b);
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
}

/* r0 waits for r1, which comes only after r0 was stopped. */
static void check_stopped_while_waiting(const char *preset)
{
    fixture_record whole[2] = {{0}}, waiting = {0}, rest[2] = {{0}};
    dl_config *a = fixture_config(preset), *b = fixture_config(preset);
    set(a, "run.replicas", "2"), set(b, "run.replicas", "2");
    fixture_train(a, whole, 2);
    waiting.stop_at = (uint64_t)b->local_steps;
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(b, "r0", &waiting));
    CHECK_CONTAINS("the same command resumes", diloco_error_text());
    fixture_train(b, rest, 2);
    check_equal_theta(a, b);
    fixture_record_free(&waiting);
    for (int k = 0; k < 2; k++)
        fixture_record_free(&whole[k]), fixture_record_free(&rest[k]);
    free(a), free(b);
}

TEST(a_replica_stopped_while_it_waits_for_others_resumes_bitwise)
{
    check_stopped_while_waiting("diloco");
}

TEST(a_data_parallel_replica_stopped_while_it_waits_resumes_bitwise)
{
    check_stopped_while_waiting("data_parallel");
}

static bool has_announced(const dl_config *config, const char *generation)
{
    char path[512];
    snprintf(path, sizeof path, "%s/end/%s", config->store, generation);
    return access(path, F_OK) == 0;
}

/* Two machines with one replica each stop in the second round. run.patience is longer than any test
 * may take, so r1 ends the run alone only if it has read that r0 has stopped. */
TEST(a_stop_is_announced_to_another_machine_which_waits_until_its_deadline_only)
{
    fixture_record stopped[2] = {{.stop_at = 5}, {.stop_at = 5}}, alone = {0}, again = {0};
    dl_config *config = two_replicas();
    set(config, "run.local_replicas", "1");
    set(config, "run.patience", "100000");
    set(config, "run.deadline", "0.05");
    set(config, "trainer.rounds", "3");
    const fixture_replica *replicas = fixture_run_all(config, stopped, 2);
    for (int k = 0; k < 2; k++)
        CHECK_STATUS(DILOCO_EINTERRUPTED, replicas[k].status);
    CHECK(has_announced(config, "r0.0000") && has_announced(config, "r1.0000"));
    CHECK_OK(train(config, "r1", &alone));
    CHECK_INT(1, fixture_count(&alone, "abort"));
    CHECK_OK(train(config, "r0", &again)); /* rejoins, and finds the run complete */
    CHECK_INT(0, fixture_count(&again, "dispute"));
    fixture_record_free(&alone), fixture_record_free(&again);
    for (int k = 0; k < 2; k++)
        fixture_record_free(&stopped[k]);
    free(config);
}

TEST(a_stop_of_every_replica_of_a_run_is_not_announced)
{
    fixture_record record = {.stop_at = 6};
    dl_config *config = fixture_config("diloco");
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(config, "r0", &record));
    CHECK(!has_announced(config, "r0.0000"));
    fixture_record_free(&record);
    free(config);
}

/* ---- creating and joining */

TEST(a_run_can_be_created_before_anyone_trains)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_create(config));
    CHECK_OK(diloco_train_create(config)); /* it is there */
    fixture_train(config, &record, 1);
    CHECK_INT(8, fixture_count(&record, "step"));
    fixture_record_free(&record);
    free(config);
}

TEST(another_run_in_the_store_is_refused_and_said_how_it_differs)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_create(config));
    set(config, "trainer.local_steps_per_round", "5");
    CHECK_STATUS(DILOCO_EDIFFERS, diloco_train_create(config));
    CHECK_STATUS(DILOCO_EDIFFERS, train(config, "r0", &record));
    CHECK_CONTAINS("trainer.local_steps_per_round", diloco_error_text());
    fixture_record_free(&record);
    free(config);
}

TEST(settings_not_given_are_the_runs)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco"), *bare = malloc(sizeof *bare);
    set(config, "trainer.gradient_accumulation_steps", "2");
    CHECK_OK(diloco_train_create(config));
    dl_config_init(bare);
    set(bare, "run.store", config->store);
    set(bare, "data.train_path", config->train_path);
    fixture_train(bare, &record, 1);
    CHECK_INT(8, fixture_count(&record, "step"));
    CHECK_INT(4, fixture_whole(fixture_nth(&record, "step", 0), "samples"));
    fixture_record_free(&record);
    free(config), free(bare);
}

/* ---- a number gone wrong */

TEST(steps_without_a_finite_gradient_warn_and_after_a_hundred_in_a_row_fail)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.local_steps_per_round", "200");
    set(config, "trainer.optimizer", "sgd");
    set(config, "trainer.gradient_clip", "0");
    set(config, "trainer.lr_scheduler", "constant");
    set(config, "parameters.optimizer.lr", "1e6");
    set(config, "parameters.optimizer.weight_decay", "1e3"); /* x -1e9 a step: soon infinite */
    CHECK_STATUS(DILOCO_ENUMERIC, train(config, "r0", &record));
    CHECK_CONTAINS("100 steps in a row", diloco_error_text());
    /* Its values may come back once or twice; the last hundred are the last steps there were. */
    const size_t n = fixture_count(&record, "warn"), n_steps = fixture_count(&record, "step");
    CHECK(n >= 100);
    for (size_t i = 0; i < 100; i++) {
        char text[256], step[32];
        dl_json_value warn = fixture_nth(&record, "warn", n - 100 + i);
        CHECK(dl_json_is(dl_json_get(warn, "code"), "gradient"));
        CHECK_OK(dl_json_read_str(text, sizeof text, warn, "text"));
        /* The hundredth ends the run before its own step line. */
        snprintf(step, sizeof step, "step %zu ", n_steps - 99 + 1 + i);
        CHECK_CONTAINS(step, text);
    }
    fixture_record_free(&record);
    free(config);
}

TEST_MAIN(restarted_replica_waits_for_a_store_whose_settings_cannot_be_read,
          replicas_on_different_data_move_and_agree_after_every_entry,
          each_due_entry_is_evaluated_by_one_replica_and_the_last_always,
          the_record_has_the_fields_of_the_design, the_record_names_the_settings_that_were_given,
          swm33_a_round_sends_the_bytes_of_one_all_reduce_and_at_most_a_twentieth_more,
          p27_a_probe_measures_the_shared_model_and_leaves_the_replica_as_it_was,
          a_probe_without_held_out_data_is_refused, the_record_file_has_the_same_lines,
          a_record_that_cannot_be_opened_stops_before_training, warnings_are_in_the_record,
          alg_11_with_half_of_the_contributions_dropped_the_loss_is_within_5_percent,
          the_schedule_goes_by_position_and_continues_across_entries,
          joining_replica_without_moments_warms_up_and_resumes_its_warmup,
          a_run_stopped_between_entries_resumes_bitwise,
          a_run_stopped_before_its_first_entry_resumes_bitwise,
          a_run_stopped_at_a_due_point_resumes_bitwise,
          a_stop_while_a_save_is_written_saves_and_resumes_bitwise,
          a_run_killed_between_entries_resumes_bitwise_from_its_due_point,
          data_parallel_resumes_bitwise, a_run_that_has_ended_is_done_at_once,
          a_replica_stopped_while_it_waits_for_others_resumes_bitwise,
          a_data_parallel_replica_stopped_while_it_waits_resumes_bitwise,
          a_stop_is_announced_to_another_machine_which_waits_until_its_deadline_only,
          a_stop_of_every_replica_of_a_run_is_not_announced,
          a_run_can_be_created_before_anyone_trains,
          another_run_in_the_store_is_refused_and_said_how_it_differs,
          settings_not_given_are_the_runs,
          steps_without_a_finite_gradient_warn_and_after_a_hundred_in_a_row_fail)
