/* run_events_test.c - the record: every line is JSON with the names of docs/architecture.md section
 * 9, and its measurements equal values computed by hand. */
#include "toy_run.h"

#include "base/json.h"
#include "run/run_events.h"
#include <diloco/log.h>

#include <sys/stat.h>

/* ---- reading lines ---------------------------------------------------------------------- */

/* Returns the k-th line of that event in a record, parsed, or MISSING if there are fewer. */
static dl_json_value line_of(const char *record, const char *event, int k)
{
    char part[64];
    snprintf(part, sizeof part, "{\"event\":\"%s\"", event);
    for (const char *at = record; *at; at = strchr(at, '\n') + 1) {
        const size_t len = (size_t)(strchr(at, '\n') - at);
        dl_json_value v;
        CHECK_OK(dl_json_parse(&v, at, len));
        if (!strncmp(at, part, strlen(part)) && k-- == 0) return v;
    }
    return (dl_json_value){.type = DL_JSON_MISSING};
}

static double number(dl_json_value line, const char *key)
{
    double x = NAN;
    CHECK_OK(dl_json_read_f64(&x, line, key));
    return x;
}

static void must_have(const char *record, const char *event, const char *names)
{
    char names_left[512], *next = names_left;
    const dl_json_value line = line_of(record, event, 0);
    if (line.type == DL_JSON_MISSING) CHECK_FAIL("no line of event %s", event);
    snprintf(names_left, sizeof names_left, "%s", names);
    for (char *name; (name = strsep(&next, " "));)
        if (dl_json_get(line, name).type == DL_JSON_MISSING)
            CHECK_FAIL("event %s has no %s", event, name);
}

/* ---- a run ------------------------------------------------------------------------------ */

/* r0 moves w[0] by -3, r1 moves w[1] by -4. */
static double move_apart(toy *t, const diloco_run_info *now)
{
    (void)now;
    if (t->name[1] == '0')
        t->w[0] -= 3;
    else
        t->w[1] -= 4;
    return t->name[1] == '0' ? 1 : 2;
}

TEST(a_commit_has_the_values_computed_by_hand)
{
    toy all[2];
    toy_crew(all, 2, "mem://by-hand", "none");
    toy_set_all(all, 2, "trainer.rounds", "1");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    for (int r = 0; r < 2; r++) {
        all[r].step = move_apart;
        toy_keep_record(&all[r]);
    }
    const double began = dl_clock_wall();
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        const dl_json_value commit = line_of(all[r].record, "commit", 0);
        CHECK_NEAR(0, number(commit, "entry"), 0);
        CHECK_NEAR(1.5, number(commit, "inner_loss"), 1e-12);
        CHECK_NEAR(2.5, number(commit, "aggregated_grad_norm"), 1e-6); /* of (1.5, 2) */
        CHECK_NEAR(0, number(commit, "peer_grad_similarity"), 1e-6); /* they are at right angles */
        CHECK_NEAR(r ? 0.8 : 0.6, number(commit, "own_similarity"), 1e-6);
        CHECK_NEAR(2.5, number(commit, "weight_divergence"), 1e-6); /* of (1.5, -2), twice */
        CHECK_CONTAINS("\"members\":[\"r0\",\"r1\"]", all[r].record);
        CHECK_CONTAINS("\"weights\":[0.5,0.5]", all[r].record);
        CHECK_CONTAINS("\"missing\":[]", all[r].record);
        CHECK(number(commit, "time") >= number(line_of(all[r].record, "run", 0), "time"));
        CHECK(number(line_of(all[r].record, "run", 0), "time") >= began);
        const dl_json_value c = line_of(all[r].record, "contribution", 0);
        CHECK_NEAR(r ? 4 : 3, number(c, "pseudo_grad_norm"), 1e-6);
        CHECK_NEAR(512 + 4 * TOY_N, number(c, "bytes"), 0);
        free(all[r].record);
    }
}

static double size_of(const char *store, const char *key)
{
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", store, key);
    CHECK_INT(0, stat(path, &st));
    return (double)st.st_size;
}

static diloco_status note_key(void *context, const char *key, size_t len)
{
    (void)len;
    memcpy(context, key, strlen(key) + 1);
    return DILOCO_OK;
}

TEST(recorded_bytes_are_those_on_the_wire)
{
    const char *store = scratch_path("bytes");
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.rounds", "2");
    toy_keep_record(&t);
    toy_live(&t);
    TOY_OK(t);

    dl_store *opened;
    dl_key theta0;
    CHECK_OK(dl_store_open(&opened, store, false));
    CHECK_OK(dl_store_list(opened, "theta0/", NULL, note_key, theta0, DL_NEVER));
    dl_store_close(opened);
    const double run = size_of(store, "run.json") + size_of(store, theta0);
    const double entry =
        size_of(store, "c/0000000000/r0.0000") + size_of(store, "log/0000000000.json");
    const double next =
        size_of(store, "c/0000000001/r0.0000") + size_of(store, "log/0000000001.json");

    const dl_json_value first = line_of(t.record, "commit", 0),
                        second = line_of(t.record, "commit", 1);
    CHECK_NEAR(run + size_of(store, "gen/r0.0000") + entry, number(first, "bytes_sent"), 0);
    CHECK_NEAR(run + entry, number(first, "bytes_received"), 0);
    CHECK_NEAR(next, number(second, "bytes_sent"), 0);
    CHECK_NEAR(next, number(second, "bytes_received"), 0);

    const dl_json_value end = line_of(t.record, "end", 0);
    CHECK_NEAR((double)t.end.bytes_sent, number(end, "bytes_sent"), 0);
    CHECK_NEAR((double)t.end.bytes_received, number(end, "bytes_received"), 0);
    CHECK_NEAR(6, number(end, "steps"), 0);
    CHECK_NEAR(60, number(end, "tokens"), 0);
    CHECK_NEAR(4.0 * TOY_N * 6, number(end, "data_parallel_bytes"), 0);
    CHECK_NEAR(4.0 * TOY_N * 6 / (double)t.end.bytes_sent, number(end, "reduction"), 1e-9);
    CHECK(number(end, "utilization") >= 0 && number(end, "utilization") <= 1);
    free(t.record);
}

/* Reads a part's lines. */
static void read_part(dl_buf *text, dl_store *store, int part)
{
    char key[64];
    dl_buf frame;
    dl_buf_init(&frame, 1 << 20);
    dl_buf_clear(text);
    snprintf(key, sizeof key, "rec/r0.0000/%010d.jsonl.zst", part);
    CHECK_OK(dl_store_get(store, &frame, key, DL_NEVER));
    CHECK_OK(dl_unzip(text, frame.data, frame.len));
    dl_buf_deinit(&frame);
}

TEST(the_store_holds_the_same_lines_as_the_sink)
{
    toy t = toy_of("r0", "mem://lines");
    dl_store *store;
    dl_buf text;
    toy_keep("mem://lines");
    toy_set(&t, "run.state_dir", "none");
    toy_keep_record(&t);
    toy_live(&t);
    TOY_OK(t);
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_store_open(&store, "mem://lines", false));
    read_part(&text, store, 0);
    const size_t before = text.len;
    CHECK_BYTES(t.record, text.data, before);
    read_part(&text, store, 1); /* the line that counts part 0, too */
    CHECK_INT(t.record_len, before + text.len);
    CHECK_BYTES(t.record + before, text.data, text.len);
    CHECK_CONTAINS("{\"event\":\"traffic\",\"replica\":\"r0\"", t.record + before);
    dl_buf_deinit(&text);
    dl_store_close(store);
    free(t.record);
}

TEST(resumed_record_counts_steps_of_all_generations)
{
    toy t = toy_of("r0", scratch_path("reduction"));
    toy_set(&t, "run.state_dir", scratch_path("reduction.state"));
    toy_keep_record(&t);
    t.stop_after = 7;
    toy_live(&t);
    TOY_OK(t);
    toy_live(&t);
    TOY_OK(t);
    const dl_json_value end = line_of(t.record, "end", 0);
    CHECK_NEAR(12, number(end, "steps"), 0);
    CHECK_NEAR(50, number(end, "tokens"), 0);
    CHECK_NEAR(4.0 * TOY_N * 5 / (double)t.end.bytes_sent, number(end, "reduction"), 1e-9);
    free(t.record);
}

/* ---- every kind of line ----------------------------------------------------------------- */

TEST(every_event_has_the_names_of_the_design)
{
    toy sink = {.name = "r0"};
    dl_record r;
    dl_entry e;
    dl_roster roster;
    const dl_generation generation = {.replica = "r1", .number = 2};
    const dl_event_context c = {.replica = "r0", .codec = "f32"};
    const dl_exec_facts facts = {.own.norm = 1,
                                 .outer = {.similarity = (double)NAN, .combiner = "mean"}};
    static dl_runfile run = {.id = "0123"};
    dl_config_init(&run.config);
    toy_keep_record(&sink);
    dl_record_init(&r);
    r.sink = toy_hear;
    r.user = &sink;
    CHECK_OK(dl_entry_init(&e, 4));
    roster = e.roster;
    CHECK(dl_roster_add(&roster, "r0", 0) && dl_roster_add(&roster, "r7", 1));
    e.members[0].generation = (dl_generation){.replica = "r0"};
    e.n_members = 1;
    e.committer = generation;
    snprintf(e.abort.reason, sizeof e.abort.reason, "silent: \"r7\"\n");

    dl_event_run(&r, &run, &generation, 3, DL_TOPOLOGY_LEADER);
    dl_event_contribution(&r, &c, 3, &facts.own);
    dl_event_commit(&r, &c, &e, &roster, &facts, true);
    dl_event_probe(&r, &c, &e, (const double[]){2.5, 3});
    dl_event_adopt(&r, "r0", &(dl_adopt_facts){.entry = 3, .takes = "mix"});
    dl_event_abort(&r, &c, &e);
    dl_event_dispute(&r, &c, 3, (dl_hash){{1}}, (dl_hash){{2}}, &generation, "result");
    dl_event_reject(&r, &c, 3, &generation, "checksum");
    dl_event_warn(&r, &c, "late", "entry 3 \xe2\x80\x94 \"quoted\"");
    dl_event_end(&r, &c, &(dl_end_facts){.entry = 4, .throughput_ratio = 0.5});
    dl_event_traffic(&r, "r0", (const uint64_t[DL_N_TRAFFIC]){[DL_TRAFFIC_LOG] = 3, [0] = 1},
                     (const uint64_t[DL_N_TRAFFIC]){[DL_TRAFFIC_OTHER] = 7});

    must_have(sink.record, "run",
              "run config_digest preset params fragments local_steps outer_optimizer "
              "outer_learning_rate outer_momentum");
    must_have(sink.record, "contribution",
              "replica entry fragment step pseudo_grad_norm bytes encode_s put_s codec");
    must_have(sink.record, "commit",
              "entry fragment members missing weights norms inner_loss outer_lr combiner "
              "combiner_fallback "
              "tolerated aggregated_grad_norm "
              "peer_grad_similarity weight_divergence own_similarity bytes_sent bytes_received "
              "wait_s exchange_s "
              "outer_s deadline_s up_bps down_bps request_s digest");
    must_have(sink.record, "probe", "replica entry loss members losses");
    CHECK_CONTAINS("\"losses\":[3", sink.record);
    must_have(sink.record, "adopt",
              "replica entry fragment taken_at position takes wait_s "
              "overlap_steps overlap_proposed");
    must_have(sink.record, "abort", "entry fragment reason present");
    must_have(sink.record, "dispute", "entry claimed computed");
    must_have(sink.record, "reject", "entry replica reason");
    must_have(sink.record, "warn", "code text");
    must_have(sink.record, "end",
              "entry steps tokens bytes_sent bytes_received data_parallel_bytes reduction "
              "heartbeats heartbeat_s_max utilization throughput_ratio digest");
    must_have(sink.record, "traffic", "replica bytes_sent bytes_received sent received");
    CHECK_CONTAINS("\"bytes_sent\":4,\"bytes_received\":7,\"sent\":{\"probe\":1,", sink.record);
    CHECK_CONTAINS("\"missing\":[\"r7\"]", sink.record);
    CHECK_CONTAINS("\"peer_grad_similarity\":null", sink.record);
    CHECK_CONTAINS("\"replica\":\"r1.0002\"", sink.record);
    CHECK_CONTAINS("\"reduction\":null", sink.record); /* nothing was sent */
    dl_record_deinit(&r);
    dl_entry_deinit(&e);
    free(sink.record);
}

TEST(lines_that_the_store_does_not_take_are_kept_for_the_next_time)
{
    static const char line[] = "{\"event\":\"x\"}", kept[] = "{\"event\":\"x\"}\n";
    const char *url = scratch_path("record"), *away = scratch_path("record-away");
    const dl_generation generation = {.replica = "r0"};
    dl_record r;
    dl_store *store;
    dl_buf text;
    dl_record_init(&r);
    dl_buf_init(&text, 4096);
    CHECK_OK(dl_store_open(&store, url, true));
    dl_record_line(&r, line, sizeof line - 1);
    dl_record_flush(&r, store, &generation, false, DL_NEVER); /* not yet: neither old nor much */
    CHECK_STATUS(DILOCO_ENOENT,
                 dl_store_get(store, &text, "rec/r0.0000/0000000000.jsonl.zst", DL_NEVER));
    CHECK_INT(0, rename(url, away));
    dl_record_flush(&r, store, &generation, true, DL_NEVER);
    CHECK_INT(0, rename(away, url));
    dl_record_line(&r, line, sizeof line - 1);
    dl_record_flush(&r, store, &generation, true, DL_NEVER);
    for (int part = 0; part < 2; part++) { /* lines kept from before are first, unchanged */
        read_part(&text, store, part);
        CHECK_INT(sizeof kept - 1, text.len);
        CHECK_BYTES(kept, text.data, text.len);
    }
    dl_buf_deinit(&text);
    dl_record_deinit(&r);
    dl_store_close(store);
}

static void count_losses(void *user, diloco_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "record are lost")) ++*(int *)user;
}

TEST(many_lost_lines_are_one_warning_until_there_is_room_again)
{
    enum { LINE = 1 << 20, FIT = 15, LINES = 30 };
    const dl_generation generation = {.replica = "r0"};
    char *line = malloc(LINE);
    int n_warnings = 0;
    dl_record r;
    dl_store *store;
    CHECK(line);
    memset(line, 'x', LINE);
    diloco_log_set(count_losses, &n_warnings, DILOCO_LOG_WARN);
    dl_record_init(&r);
    CHECK_OK(dl_store_open(&store, scratch_path("full-record"), true));
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < LINES; i++)
            dl_record_line(&r, line, LINE);
        CHECK_INT(round, n_warnings);
        CHECK_INT(FIT * (LINE + 1), r.part.len);
        dl_record_flush(&r, store, &generation, true, DL_NEVER);
        CHECK_INT(0, r.part.len);
    }
    diloco_log_set(NULL, NULL, DILOCO_LOG_ERROR);
    dl_record_deinit(&r);
    dl_store_close(store);
    free(line);
}

TEST_MAIN(a_commit_has_the_values_computed_by_hand, recorded_bytes_are_those_on_the_wire,
          the_store_holds_the_same_lines_as_the_sink,
          resumed_record_counts_steps_of_all_generations, every_event_has_the_names_of_the_design,
          lines_that_the_store_does_not_take_are_kept_for_the_next_time,
          many_lost_lines_are_one_warning_until_there_is_room_again)
