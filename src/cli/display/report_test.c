/* report_test.c - the printed lines for the replicas' events. */
#include "cli/display/report.h"

#include "check.h"

static const dl_replica_name names[2] = {"r0", "r1"};
static dl_report report;
static char *text;
static size_t len;
static FILE *out;

static void begin(bool quiet, bool verbose)
{
    out = open_memstream(&text, &len);
    CHECK(out != NULL);
    CHECK_OK(dl_report_open(&report, names, 2, out, quiet, verbose));
}

/* Compare the printed text. */
static void end(const char *expected)
{
    fclose(out);
    dl_report_close(&report);
    CHECK_STR(expected, text);
    free(text);
}

static void say(size_t replica, const char *event)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, event, strlen(event)));
    dl_report_event(&report, replica, value);
}

TEST(an_entry_reported_by_two_replicas_is_one_line)
{
    const char commit[] = "{\"event\":\"commit\",\"entry\":3,\"members\":[\"r0\",\"r1\"],"
                          "\"missing\":[\"r2\"],\"inner_loss\":2.5,\"bytes_sent\":1600000,"
                          "\"wait_s\":1.5,\"exchange_s\":0.5,\"digest\":\"ab\"}";
    begin(false, false);
    say(0, commit);
    say(1, commit);
    say(1, "{\"event\":\"eval\",\"entry\":4,\"loss\":2.25,\"perplexity\":9.4877}");
    say(0, "{\"event\":\"eval\",\"entry\":4,\"loss\":2.25,\"perplexity\":9.4877}");
    say(0, "{\"event\":\"abort\",\"entry\":4,\"reason\":\"quorum\",\"present\":[\"r0\"]}");
    say(1, "{\"event\":\"abort\",\"entry\":4,\"reason\":\"quorum\",\"present\":[\"r0\"]}");
    CHECK_INT(1, report.commits);
    CHECK_INT(1, report.aborts);
    CHECK_NEAR(2.25, report.eval_loss, 0);
    end("entry 3: 2 replicas (1 missing), loss 2.5000, 1.6 MB sent by r0, 2.0 s\n"
        "after 4 entries: validation loss 2.2500, perplexity 9.488\n"
        "entry 4: aborted, quorum; 1 replicas had contributed\n");
}

/* Replicas evaluate in turns, and a slower one's result may be read after a later one. */
TEST(an_evaluation_that_comes_late_is_a_line_too_and_not_the_newest)
{
    const char first[] = "{\"event\":\"eval\",\"entry\":1,\"loss\":3.5,\"perplexity\":33.1155}",
               third[] = "{\"event\":\"eval\",\"entry\":3,\"loss\":2.25,\"perplexity\":9.4877}";
    begin(false, false);
    say(0, third);
    say(1, first);
    say(0, first);
    say(1, third);
    say(0, "{\"event\":\"eval\",\"entry\":100,\"loss\":2,\"perplexity\":7.3891}");
    say(1, third);
    CHECK_NEAR(2, report.eval_loss, 0);
    CHECK_NEAR(7.3891, report.perplexity, 0);
    end("after 3 entries: validation loss 2.2500, perplexity 9.488\n"
        "after 1 entry: validation loss 3.5000, perplexity 33.115\n"
        "after 100 entries: validation loss 2.0000, perplexity 7.389\n");
}

TEST(a_warning_comes_once_and_information_only_when_asked_for)
{
    begin(false, false);
    say(0, "{\"event\":\"log\",\"level\":1,\"text\":\"slow\"}");
    say(1, "{\"event\":\"log\",\"level\":1,\"text\":\"slow\"}");
    say(1, "{\"event\":\"log\",\"level\":2,\"text\":\"joined\"}");
    end("warning: slow\n");

    begin(false, true);
    say(1, "{\"event\":\"log\",\"level\":2,\"text\":\"joined\"}");
    end("joined\n");
}

TEST(of_very_many_entries_not_every_one_is_a_line)
{
    begin(false, false);
    say(0, "{\"event\":\"progress\",\"entries\":101}");
    for (int i = 0; i < 3; i++) {
        char commit[64];
        snprintf(commit, sizeof commit, "{\"event\":\"commit\",\"entry\":%d}", i);
        say(0, commit);
    }
    CHECK_INT(3, report.commits);
    report.entry_reported -= 2 * DL_SECOND;
    say(0, "{\"event\":\"commit\",\"entry\":3}");
    end("entry 0: 0 replicas, loss -, 0 B sent by r0, -\nentry 3: 0 replicas, loss -, 0 B sent by "
        "r0, -\n");
}

TEST(damage_is_reported)
{
    begin(false, false);
    say(0, "{\"event\":\"reject\",\"entry\":1,\"replica\":\"r7.0000\",\"reason\":\"its "
           "checksum\"}");
    say(0, "{\"event\":\"dispute\",\"entry\":2,\"claimed\":\"aa\",\"computed\":\"bb\"}");
    end("entry 1: contribution of r7.0000 rejected: its checksum\n"
        "entry 2: void, its committer claims the digest aa; it is bb\n");
}

TEST(quiet_is_quiet)
{
    begin(true, false);
    say(0, "{\"event\":\"commit\",\"entry\":0,\"members\":[]}");
    dl_report_print(&report, "a line");
    dl_report_summary(&report, "store");
    end("");
}

TEST(strange_events_change_nothing)
{
    begin(false, false);
    say(0, "{\"event\":\"later\"}");
    say(0, "{}");
    say(0, "[]");
    say(0, "{\"event\":\"progress\",\"step\":\"x\",\"phase\":7}");
    CHECK_INT(0, report.views[0].step);
    CHECK_STR("", report.views[0].phase);
    end("");
}

TEST(the_summary_counts_this_process_only)
{
    begin(false, false);
    say(0, "{\"event\":\"trainer\",\"step\":50}");
    say(0, "{\"event\":\"progress\",\"entry\":10,\"entries\":10}");
    say(0, "{\"event\":\"end\",\"steps\":100,\"tokens\":1000,\"bytes_sent\":1000000,"
           "\"bytes_received\":3000000,\"data_parallel_bytes\":40000000,\"digest\":\"abc\"}");
    dl_report_summary(&report, "runs/x");
    fclose(out);
    dl_report_close(&report);
    CHECK_CONTAINS("done: 10 entries, 50 steps and 1,000 tokens here, ", text);
    CHECK_CONTAINS("exchanged by 2 replicas here: sent 1.0 MB, received 3.0 MB; a data-parallel "
                   "run sends 20.0 MB for as many "
                   "steps, 20 times as much\n",
                   text);
    CHECK_CONTAINS("state abc; check it: diloco verify runs/x\n", text);
    free(text);
}

TEST(the_summary_counts_all_that_was_moved_by_kind)
{
    begin(false, false);
    for (size_t i = 0; i < 2; i++)
        say(i, "{\"event\":\"traffic\",\"bytes_sent\":4100000,\"bytes_received\":3000000,"
               "\"sent\":{\"probe\":4000000,\"log\":100000},"
               "\"received\":{\"probe\":3000000,\"log\":0}}");
    dl_report_summary(&report, "runs/x");
    fclose(out);
    dl_report_close(&report);
    CHECK_CONTAINS("all traffic: sent 8.2 MB, received 6.0 MB (probe 8.0 MB sent, "
                   "6.0 MB received; log 200 kB sent, 0 B received)\n",
                   text);
    free(text);
}

/* As of nodes without a log. */
TEST(traffic_that_lacks_the_exchange_is_not_shown)
{
    begin(false, false);
    say(0, "{\"event\":\"traffic\",\"bytes_sent\":10,\"bytes_received\":0,\"sent\":{\"probe\":10},"
           "\"received\":{}}");
    say(0, "{\"event\":\"end\",\"steps\":100,\"bytes_sent\":1000,\"bytes_received\":3000}");
    dl_report_summary(&report, "runs/x");
    fclose(out);
    dl_report_close(&report);
    CHECK(!strstr(text, "all traffic"));
    free(text);
}

TEST(images_are_not_called_tokens)
{
    begin(false, false);
    say(0, "{\"event\":\"trainer\",\"step\":0,\"data\":\"images\"}");
    say(0, "{\"event\":\"eval\",\"entry\":1,\"loss\":0.5,\"accuracy\":0.87654}");
    say(0, "{\"event\":\"end\",\"steps\":10,\"tokens\":640}");
    dl_report_summary(&report, "runs/x");
    CHECK_NEAR(0.87654, report.accuracy, 0);
    fclose(out);
    dl_report_close(&report);
    CHECK_CONTAINS("after 1 entry: validation loss 0.5000, accuracy 87.65 %\n", text);
    CHECK_CONTAINS("10 steps and 640 images here, ", text);
    free(text);
}

TEST(a_live_line_has_all_that_fits)
{
    char line[DL_SCREEN_LINE];
    dl_replica_view view = {.phase = "train",
                            .position = 1240,
                            .positions = 5000,
                            .entry = 4,
                            .entries = 10,
                            .loss = 2.3104,
                            .tokens_per_s = 34120,
                            .eta_s = 80};
    dl_report_line(line, "r0", &view, "tok", 120);
    CHECK_STR("r0   step 1,240/5,000   loss 2.310   34.1k tok/s  entry  4/10  train     1 min 20 s "
              "left",
              line);
    dl_report_line(line, "r0", &view, "tok", 80); /* the time left before the phase */
    CHECK_STR("r0   step 1,240/5,000   loss 2.310   34.1k tok/s  entry  4/10  1 min 20 s left",
              line);
    dl_report_line(line, "r0", &view, "tok", 60);
    CHECK_STR("r0 1,240/5,000 loss 2.310  1 min 20 s left", line);
    dl_report_line(line, "r0", &view, "tok", 40);
    CHECK_STR("r0 1,240/5,000 loss 2.310  1 min 20 s", line);
    dl_report_line(line, "r0", &view, "tok", 20);
    CHECK_STR("r0 1,240/5,000 loss 2.310", line); /* the screen cuts it */
    dl_replica_view waits = view;
    waits.eta_s = -1;
    strcpy(waits.phase, "waits 11 s");
    dl_report_line(line, "r0", &waits, "tok", 40);
    CHECK_STR("r0 1,240/5,000 loss 2.310  waits 11 s", line);
    view = (dl_replica_view){.phase = "join", .loss = (double)NAN, .eta_s = -1};
    dl_report_line(line, "r0", &view, "tok", 120);
    CHECK_CONTAINS("step -             loss -", line);
    CHECK(!strstr(line, "left"));
}

TEST(without_a_terminal_the_time_left_is_a_line_ever_more_rarely)
{
    const char train[] = "{\"event\":\"progress\",\"position\":12,\"positions\":10000,"
                         "\"eta_s\":250000,\"phase\":\"train\"}";
    begin(false, false);
    say(0, train); /* not known yet */
    report.begun -= 11 * DL_SECOND;
    say(0, train);
    say(1, train);
    report.begun -= 8 * DL_SECOND;
    say(0, train);
    report.begun -= 8 * DL_SECOND;
    say(0, train);
    report.begun -= 100 * DL_SECOND;
    say(0, "{\"event\":\"progress\",\"eta_s\":-1,\"phase\":\"wait\"}");
    say(0, "{\"event\":\"progress\",\"eta_s\":0,\"phase\":\"done\"}");
    end("about 2 days 21 h left, at step 12 of 10,000\n"
        "about 2 days 21 h left, at step 12 of 10,000\n");
}

/* A round of whole epochs is one position of the run. */
TEST(the_time_left_of_whole_epochs_is_in_rounds)
{
    begin(false, false);
    report.begun -= 11 * DL_SECOND;
    say(0, "{\"event\":\"progress\",\"position\":2,\"positions\":10,\"entry\":2,\"entries\":10,"
           "\"eta_s\":250000,\"phase\":\"train\"}");
    end("about 2 days 21 h left, at round 2 of 10\n");
}

static void look(void)
{
    dl_report_wait(&report, "runs/x", 1);
}

TEST(a_wait_of_all_local_replicas_is_reported_at_growing_intervals)
{
    const char train[] = "{\"event\":\"progress\",\"phase\":\"train\"}",
               waits[] = "{\"event\":\"progress\",\"entry\":3,\"phase\":\"exchange\"}";
    begin(false, false);
    say(0, waits);
    say(1, train);
    report.heard -= 11 * DL_SECOND;
    look(); /* r1 trains */
    say(1, waits);
    look();
    report.heard -= 11 * DL_SECOND;
    look();
    look();
    report.heard -= 8 * DL_SECOND;
    say(0, "{\"event\":\"log\",\"level\":2,\"text\":\"is no news\"}");
    look();
    report.heard -= 8 * DL_SECOND;
    look();
    say(0, waits);
    look();
    end("waiting for entry 3, with 1 replica elsewhere, 11 s so far; to see which replicas "
        "are missing: diloco "
        "status runs/x --why\n"
        "waiting for entry 3, with 1 replica elsewhere, 27 s so far; to see which replicas "
        "are missing: diloco "
        "status runs/x --why\n");
}

TEST(terminal_that_waits_names_the_missing_and_shows_no_time_left)
{
    const char waits[] = "{\"event\":\"progress\",\"entry\":3,\"phase\":\"exchange\",\"eta_s\":5}";
    begin(false, false);
    report.screen.live = true;
    say(0, waits);
    say(1, waits);
    fflush(out);
    CHECK_CONTAINS("5.0 s left", text);
    const size_t before = len;
    report.heard -= 11 * DL_SECOND;
    report.drawn = 0;
    look();
    dl_report_draw(&report);
    fclose(out);
    dl_report_close(&report);
    CHECK_CONTAINS("waiting for entry 3, with 1 replica elsewhere, 11 s so far; to see "
                   "which replicas are missing: diloco status runs/x --why",
                   text + before);
    const char *line = strstr(text + before, "waits 11 s");
    CHECK(line && !strstr(line, "left"));
    free(text);
}

TEST(suggested_commands_quote_the_store)
{
    begin(false, false);
    say(0, "{\"event\":\"progress\",\"entry\":3,\"phase\":\"exchange\"}");
    say(1, "{\"event\":\"progress\",\"entry\":3,\"phase\":\"exchange\"}");
    report.heard -= 11 * DL_SECOND;
    dl_report_wait(&report, "my runs/it's", 0);
    say(0, "{\"event\":\"end\",\"digest\":\"abc\"}");
    dl_report_summary(&report, "my runs/it's");
    fclose(out);
    dl_report_close(&report);
    CHECK_CONTAINS("diloco status 'my runs/it'\\''s' --why\n", text);
    CHECK_CONTAINS("diloco verify 'my runs/it'\\''s'\n", text);
    free(text);
}

TEST(quiet_report_prints_no_warning)
{
    char *heard;
    size_t heard_len;
    FILE *before = stderr;
    begin(true, false);
    stderr = open_memstream(&heard, &heard_len);
    CHECK(stderr != NULL);
    say(0, "{\"event\":\"log\",\"level\":1,\"text\":\"slow\"}");
    say(0, "{\"event\":\"log\",\"level\":0,\"text\":\"broken\"}");
    fclose(stderr);
    stderr = before;
    CHECK_STR("diloco: broken\n", heard);
    free(heard);
    end("");
}

TEST_MAIN(an_entry_reported_by_two_replicas_is_one_line,
          an_evaluation_that_comes_late_is_a_line_too_and_not_the_newest,
          a_warning_comes_once_and_information_only_when_asked_for,
          of_very_many_entries_not_every_one_is_a_line, damage_is_reported, quiet_is_quiet,
          strange_events_change_nothing, the_summary_counts_this_process_only,
          the_summary_counts_all_that_was_moved_by_kind,
          traffic_that_lacks_the_exchange_is_not_shown, images_are_not_called_tokens,
          without_a_terminal_the_time_left_is_a_line_ever_more_rarely,
          the_time_left_of_whole_epochs_is_in_rounds, a_live_line_has_all_that_fits,
          a_wait_of_all_local_replicas_is_reported_at_growing_intervals,
          terminal_that_waits_names_the_missing_and_shows_no_time_left,
          suggested_commands_quote_the_store, quiet_report_prints_no_warning)
