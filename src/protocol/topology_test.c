/* topology_test.c - P19: the topology that `auto` chooses, and a machine where one replica combines
 * for all. leader_test.c has the same with real runs. */
#include "machine_world.h"

/* ---- the formulas ------------------------------------------------------------------------ */

static double volume(dl_topology_kind topology, double n, double s, double f)
{
    const dl_volume v = dl_topology_volume(topology, n, s, f, true);
    return v.written + v.read;
}

TEST(p19_the_volumes_are_those_of_the_protocol)
{
    CHECK_NEAR(8 + 64, volume(DL_TOPOLOGY_ALLGATHER, 8, 1, 1), 0);
    CHECK_NEAR(8 + 1 + 8 + 8, volume(DL_TOPOLOGY_LEADER, 8, 1, 1), 0);
    CHECK_NEAR(8 + 8, dl_topology_volume(DL_TOPOLOGY_LEADER, 8, 1, 1, true).read, 0);
    CHECK_NEAR(64 - 8, dl_topology_volume(DL_TOPOLOGY_ALLGATHER, 8, 1, 1, false).read, 0); /* P8 */
    CHECK_NEAR(7 + 7, dl_topology_volume(DL_TOPOLOGY_LEADER, 8, 1, 1, false).read, 0);
    CHECK_NEAR(7 + 7, dl_topology_volume(DL_TOPOLOGY_SHARDED, 8, 1, 1, false).read, 0);
    CHECK_NEAR(volume(DL_TOPOLOGY_LEADER, 8, 1, 1), volume(DL_TOPOLOGY_SHARDED, 8, 1, 1), 0);
    CHECK_NEAR(1 + 8, dl_topology_busiest(DL_TOPOLOGY_ALLGATHER, 8, 1, 1), 0);
    CHECK_NEAR(1 + 1 + 8 + 1, dl_topology_busiest(DL_TOPOLOGY_LEADER, 8, 1, 1), 0);
    CHECK_NEAR(1 + 0.125 + 1 + 1, dl_topology_busiest(DL_TOPOLOGY_SHARDED, 8, 1, 1), 0);
}

/* Returns the topology of a run with that many replicas and a model of n floats. */
static dl_topology_kind topology_of(const char *replicas, size_t n, const char *codec,
                                    const char *exchange, const char *schedule)
{
    static dl_config config;
    dl_manifest manifest;
    dl_topology_kind topology;
    const diloco_tensor t = {.name = "w", .n_dims = 1, .shape = {n}};
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.replicas", replicas, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.codec", codec, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.exchange", exchange, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.schedule", schedule, "test"));
    CHECK_OK(dl_manifest_init(&manifest, &t, 1, false));
    CHECK_OK(dl_topology_choose(&topology, &config, &manifest));
    dl_manifest_deinit(&manifest);
    return topology;
}

TEST(p19_auto_chooses_the_topology_that_moves_the_fewest_bytes)
{
    enum { BIG = 10 << 20 };
    CHECK_INT(DL_TOPOLOGY_SHARDED, topology_of("8", BIG, "f32", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_LEADER,
              topology_of("8", BIG, "prune", "auto", "offset")); /* it cannot be sliced */
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("2", BIG, "bf16", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_ALLGATHER,
              topology_of("8", BIG, "int4", "auto", "offset")); /* up to about 9 */
    CHECK_INT(DL_TOPOLOGY_SHARDED, topology_of("12", BIG, "int4", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("8", 500000, "f32", "auto", "offset")); /* small */
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("8", BIG, "f32", "auto", "async"));
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("8", BIG, "f32", "allgather", "offset"));
    CHECK_INT(DL_TOPOLOGY_LEADER, topology_of("2", 10, "f32", "leader", "offset"));
}

/* The cases that bench/topology.md measures and names. */
TEST(p19_auto_of_the_measured_sizes)
{
    enum { MB = 250000 }; /* of f32 */
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("2", 10 * MB, "f32", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_SHARDED, topology_of("4", 10 * MB, "f32", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("8", MB, "f32", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_ALLGATHER, topology_of("16", MB, "f32", "auto", "offset"));
    CHECK_INT(DL_TOPOLOGY_SHARDED, topology_of("17", MB, "f32", "auto", "offset"));
}

/* If members may be malicious, no single one is trusted. */
TEST(p19_robust_rule_gives_each_slice_f_plus_one_owners)
{
    static const struct {
        const char *combiner, *byzantine, *owners, *exchange;
        size_t n;
        dl_topology_kind topology;
    } rows[] = {
        {"mean", "1", "0", "leader", 1, DL_TOPOLOGY_LEADER},
        {"clipped_mean", "1", "0", "auto", 1, DL_TOPOLOGY_SHARDED},
        {"median", "1", "0", "auto", 2, DL_TOPOLOGY_SHARDED},
        {"median", "3", "0", "auto", 4, DL_TOPOLOGY_SHARDED},
        {"median", "3", "7", "auto", 7, DL_TOPOLOGY_ALLGATHER}, /* 64 read against 7 x 8 + 16 */
        {"krum", "2", "0", "sharded", 3, DL_TOPOLOGY_SHARDED},
        {"mean", "1", "5", "sharded", 5, DL_TOPOLOGY_SHARDED},
        {"mean", "1", "9", "sharded", 8, DL_TOPOLOGY_SHARDED}};
    const diloco_tensor t = {.name = "w", .n_dims = 1, .shape = {10 << 20}};
    dl_manifest manifest;
    CHECK_OK(dl_manifest_init(&manifest, &t, 1, false));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static dl_config config;
        dl_topology_kind topology;
        size_t n;
        dl_config_init(&config);
        CHECK_OK(dl_config_set(&config, "run.replicas", "8", "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.combiner", rows[i].combiner, "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.byzantine", rows[i].byzantine, "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.slice_owners", rows[i].owners, "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.exchange", rows[i].exchange, "test"));
        CHECK_OK(dl_topology_n_owners(&n, &config));
        CHECK_OK(dl_topology_choose(&topology, &config, &manifest));
        CHECK_INT(rows[i].n, n);
        CHECK_INT(rows[i].topology, topology);
    }
    dl_manifest_deinit(&manifest);
}

TEST(p19_run_that_cannot_be_sharded_is_refused_by_name)
{
    static const struct {
        const char *name, *value, *says;
    } rows[] = {{"server.diloco.codec", "topk", "codec topk cannot be cut"},
                {"server.diloco.codec", "prune", "codec prune cannot be cut"},
                {"server.diloco.compression", "zstd", "compressed ones cannot be cut"},
                {"server.diloco.rescale", "median_norm", "under combiner median measures"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static dl_config config;
        dl_config_init(&config);
        CHECK_OK(dl_config_set(&config, "server.diloco.combiner", "median", "test"));
        CHECK_OK(dl_config_set(&config, rows[i].name, rows[i].value, "test"));
        CHECK_STATUS(DILOCO_EREFUSED, dl_topology_can_shard(&config));
        CHECK_CONTAINS(rows[i].says, diloco_error_text());
    }
}

/* ---- one replica combines for all --------------------------------------------------------- */

/* r0 and r1 with an open entry: the turn is r1's in odd ones, r0's in even ones. */
static void make_led(world *w, uint64_t entry)
{
    make_world(w, entry);
    w->args.topology = DL_TOPOLOGY_LEADER;
}

/* Makes a correct entry of r1's that names the combined update of r0 and r1. */
static dl_entry led_by_r1(world *w, uint64_t number)
{
    static const char *const both[] = {"r0", "r1"};
    dl_entry e = entry_by(w, number, "r1", true, both, 2);
    e.combined =
        (dl_combined_at){.there = true, .generation = generation_of("r1", 0), .bytes = WORLD_BYTES};
    e.combined.body = update_of(&e);
    return e;
}

TEST(p19_replica_on_turn_combines_reads_back_and_names_the_update)
{
    world w;
    make_led(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    const dl_request *combine = until(&w, DL_REQUEST_COMBINE);
    CHECK(combine->step.put);
    CHECK_INT(2, combine->step.draft->n_members);
    next(&w, DL_REQUEST_FETCH_COMBINED);
    const dl_entry *draft = until(&w, DL_REQUEST_CREATE)->step.draft;
    CHECK(draft->combined.there && dl_hash_equal(draft->combined.body, update_of(draft)));
    CHECK_STR("r0", draft->combined.generation.replica);
    CHECK_INT(WORLD_BYTES, draft->combined.bytes);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.asked[DL_REQUEST_COMPUTE]); /* not once more for the entry */
    CHECK_INT(1, w.asked[DL_REQUEST_FETCH_COMBINED]);
    CHECK(w.counted);
    end_world(&w);
}

TEST(p19_other_replicas_read_the_log_and_the_named_update_only)
{
    world w;
    make_led(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    CHECK(until(&w, DL_REQUEST_WAIT)->wait.log_only);
    const dl_entry e = led_by_r1(&w, 1);
    write_entry(&w, &e);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0,
              w.asked[DL_REQUEST_LIST] + w.asked[DL_REQUEST_FETCH] + w.asked[DL_REQUEST_COMBINE]);
    CHECK_INT(1, w.asked[DL_REQUEST_FETCH_COMBINED]);
    CHECK_INT(1, w.asked[DL_REQUEST_COMPUTE]);
    CHECK(w.counted);
    end_world(&w);
}

TEST(p19_next_replica_takes_over_a_deadline_after_its_upload)
{
    world w;
    make_led(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    next(&w, DL_REQUEST_CONTRIBUTE);
    next(&w, DL_REQUEST_READ);
    const dl_time uploaded = w.now;
    CHECK_STR("r0", until(&w, DL_REQUEST_CREATE)->step.draft->committer.replica);
    CHECK_NEAR(100, dl_seconds(w.now - uploaded), 1); /* run.deadline */
    CHECK_INT(1, w.asked[DL_REQUEST_COMBINE]);
    end_world(&w);
}

TEST(p19_first_contributor_combines_before_there_is_a_roster)
{
    world w;
    make_led(&w, 0);
    put(&w, 0, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_CREATE); /* r0's turn is before r1's */
    CHECK_INT(1, w.asked[DL_REQUEST_COMBINE]);
    end_world(&w);
    make_led(&w, 0);
    w.args.self = generation_of("r2", 0);
    put(&w, 0, "r1", 0);
    join_run(&w);
    CHECK(!until(&w, DL_REQUEST_WAIT)->wait.log_only);
    CHECK(w.asked[DL_REQUEST_LIST] > 0);
    CHECK_INT(0, w.asked[DL_REQUEST_FETCH]);
    end_world(&w);
}

TEST(p19_an_update_that_the_store_does_not_give_back_is_not_named)
{
    world w;
    make_led(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    w.n_lost_combined = 3;
    CHECK(!until(&w, DL_REQUEST_CREATE)->step.draft->combined.there);
    CHECK_INT(3, w.asked[DL_REQUEST_FETCH_COMBINED]);
    next(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted);
    end_world(&w);
}

TEST(p19_an_update_that_cannot_be_read_is_combined_again_from_the_members)
{
    world w;
    make_led(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    const dl_entry e = led_by_r1(&w, 1);
    write_entry(&w, &e);
    w.n_lost_combined = 3;
    CHECK(!next(&w, DL_REQUEST_COMBINE)->step.put);
    CHECK_INT(2, w.asked[DL_REQUEST_FETCH]);
    next(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted);
    CHECK_INT(0, w.noted[DL_NOTE_DISPUTE] + w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p19_unreadable_update_that_members_do_not_give_needs_a_snapshot)
{
    world w;
    make_led(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    const dl_entry e = led_by_r1(&w, 1);
    write_entry(&w, &e);
    w.n_lost_combined = 1000;
    w.lies = true;
    for (int i = 0; i < 3; i++) {
        CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
        rejoin(&w);
    }
    CHECK_INT(DILOCO_EPROTO, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("the update that r1 combined", diloco_error_text());
    end_world(&w);
}

static void audit(world *w, bool forged)
{
    make_led(w, 1);
    w->args.reader = w->args.audits = true;
    put(w, 1, "r0", 0);
    put(w, 1, "r1", 0);
    const dl_entry e = led_by_r1(w, 1);
    write_entry(w, &e);
    w->lies = forged; /* the auditor's result differs */
    join_run(w);
    until(w, DL_REQUEST_TRAIN);
}

TEST(p19_an_audit_combines_itself)
{
    world w;
    audit(&w, false);
    CHECK_INT(1, w.asked[DL_REQUEST_COMBINE]);
    CHECK_INT(0, w.asked[DL_REQUEST_FETCH_COMBINED] + w.noted[DL_NOTE_DISPUTE]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    end_world(&w);
}

TEST(p19_audit_disputes_an_update_and_continues_from_it)
{
    world w;
    audit(&w, true);
    CHECK_INT(2, w.asked[DL_REQUEST_COMBINE]); /* the second time from freshly read bytes */
    CHECK_INT(2, w.n_fresh);
    CHECK_INT(1, w.noted[DL_NOTE_DISPUTE]);
    CHECK_INT(1, w.asked[DL_REQUEST_FETCH_COMBINED]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p19_an_audit_disputes_an_update_of_a_contribution_that_is_not_valid)
{
    world w;
    make_led(&w, 1);
    w.args.reader = w.args.audits = true;
    put(&w, 1, "r0", 0);
    world_put *bad = put(&w, 1, "r1", 0);
    bad->n_bad = -1;
    bad->why = "non-finite";
    const dl_entry e = led_by_r1(&w, 1);
    write_entry(&w, &e);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_DISPUTE]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]); /* no replica of the run has read the contribution */
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p19_entry_with_a_combined_update_is_void_in_allgather)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    capture(&w);
    const dl_entry e = led_by_r1(&w, 1);
    write_entry(&w, &e);
    w.digest[2] = w.digest[1];
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_CONTAINS("every replica combines", w.said);
    end_world(&w);
}

/* ---- each member combines a slice ---------------------------------------------------------- */

static const uint64_t slices_of[] = {4};

static void make_sharded(world *w, uint64_t entry)
{
    make_world(w, entry);
    w->args.topology = DL_TOPOLOGY_SHARDED;
    w->args.slices = slices_of;
}

static dl_entry planned_by_r1(world *w, uint64_t number)
{
    dl_entry e = led_by_r1(w, number);
    e.combined.slices = 4;
    return e;
}

TEST(p19_replica_on_turn_plans_and_names_the_slices)
{
    world w;
    make_sharded(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_FETCH);
    const unsigned reads = w.asked[DL_REQUEST_READ];
    const dl_request *combine = until(&w, DL_REQUEST_COMBINE);
    CHECK(combine->step.put);
    /* the first planner plans what is complete at once */
    CHECK_INT(reads, w.asked[DL_REQUEST_READ]);
    CHECK_INT(0, w.asked[DL_REQUEST_SERVE]);
    const dl_request *fetch = next(&w, DL_REQUEST_FETCH_COMBINED);
    CHECK(fetch->step.draft->combined.slices == 4 && fetch->step.draft->combined.bytes == 0);
    const dl_entry *draft = until(&w, DL_REQUEST_CREATE)->step.draft;
    CHECK(dl_hash_equal(draft->combined.body, update_of(draft)));
    CHECK_INT(WORLD_BYTES, draft->combined.bytes);
    next(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted);
    end_world(&w);
}

TEST(p19_a_later_planner_looks_and_serves_before_it_plans)
{
    world w;
    make_sharded(&w, 1); /* r1's turn, and r0's a deadline later */
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_FETCH);
    const unsigned reads = w.asked[DL_REQUEST_READ], served = w.asked[DL_REQUEST_SERVE];
    until(&w, DL_REQUEST_COMBINE);
    CHECK_INT(reads + 1, w.asked[DL_REQUEST_READ]);
    CHECK_INT(served + 1, w.asked[DL_REQUEST_SERVE]);
    end_world(&w);
}

TEST(p19_a_member_that_does_not_plan_is_woken_by_plans_and_by_no_slice)
{
    world w;
    make_sharded(&w, 1); /* r1's turn */
    put(&w, 1, "r1", 0);
    join_run(&w);
    CHECK(until(&w, DL_REQUEST_WAIT)->wait.for_plan);
    end_world(&w);
}

TEST(p19_slices_that_are_not_there_yet_are_waited_for_and_others_are_served_meanwhile)
{
    world w;
    make_sharded(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_COMBINE);
    w.n_lost_combined = 2;
    const dl_request *wait = next(&w, DL_REQUEST_WAIT);
    CHECK(wait->wait.log_only && !wait->wait.for_plan);
    const unsigned served = w.asked[DL_REQUEST_SERVE];
    CHECK(until(&w, DL_REQUEST_CREATE)->step.draft->combined.there);
    CHECK_INT(served + 2, w.asked[DL_REQUEST_SERVE]);
    CHECK_INT(3, w.asked[DL_REQUEST_FETCH_COMBINED]);
    end_world(&w);
}

TEST(p19_slices_that_do_not_come_in_a_deadline_make_an_entry_of_allgather)
{
    world w;
    make_sharded(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_COMBINE);
    const dl_time planned = w.now;
    w.n_lost_combined = 100000;
    const dl_request *whole = next(&w, DL_REQUEST_FETCH);
    CHECK_NEAR(100, dl_seconds(w.now - planned), 1); /* run.deadline */
    CHECK(whole->fetch.whole);
    CHECK(!until(&w, DL_REQUEST_CREATE)->step.draft->combined.there);
    next(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted);
    CHECK_INT(1, w.asked[DL_REQUEST_COMBINE]);
    end_world(&w);
}

TEST(p19_members_of_an_uncombinable_slice_are_read_whole_and_judged)
{
    world w;
    make_sharded(&w, 2);
    put(&w, 2, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_COMBINE);
    w.failing.status = DILOCO_EPROTO;
    w.failing.kind = DL_REQUEST_COMBINE;
    w.put[0].n_bad = -1; /* r1's, which is read whole now */
    w.put[0].why = "non-finite";
    const dl_entry *draft = until(&w, DL_REQUEST_CREATE)->step.draft;
    CHECK(draft->commit ? draft->n_members == 1 : true);
    CHECK(w.noted[DL_NOTE_REJECT] > 0);
    end_world(&w);
}

TEST(p19_reader_of_unreadable_slices_reads_the_members_whole)
{
    world w;
    make_sharded(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    const dl_entry e = planned_by_r1(&w, 1);
    write_entry(&w, &e);
    w.n_lost_combined = 3;
    CHECK(next(&w, DL_REQUEST_FETCH)->fetch.whole);
    CHECK(!until(&w, DL_REQUEST_COMBINE)->step.put);
    next(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted);
    end_world(&w);
}

TEST(p19_an_entry_of_other_slices_is_void)
{
    world w;
    make_sharded(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    const dl_entry e = led_by_r1(&w, 1); /* one object */
    write_entry(&w, &e);
    w.digest[2] = w.digest[1];
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_CONTAINS("other slices", w.said);
    end_world(&w);
}

TEST_MAIN(p19_the_volumes_are_those_of_the_protocol,
          p19_auto_chooses_the_topology_that_moves_the_fewest_bytes, p19_auto_of_the_measured_sizes,
          p19_robust_rule_gives_each_slice_f_plus_one_owners,
          p19_run_that_cannot_be_sharded_is_refused_by_name,
          p19_replica_on_turn_plans_and_names_the_slices,
          p19_a_later_planner_looks_and_serves_before_it_plans,
          p19_a_member_that_does_not_plan_is_woken_by_plans_and_by_no_slice,
          p19_slices_that_are_not_there_yet_are_waited_for_and_others_are_served_meanwhile,
          p19_slices_that_do_not_come_in_a_deadline_make_an_entry_of_allgather,
          p19_members_of_an_uncombinable_slice_are_read_whole_and_judged,
          p19_reader_of_unreadable_slices_reads_the_members_whole,
          p19_an_entry_of_other_slices_is_void,
          p19_replica_on_turn_combines_reads_back_and_names_the_update,
          p19_other_replicas_read_the_log_and_the_named_update_only,
          p19_next_replica_takes_over_a_deadline_after_its_upload,
          p19_first_contributor_combines_before_there_is_a_roster,
          p19_an_update_that_the_store_does_not_give_back_is_not_named,
          p19_an_update_that_cannot_be_read_is_combined_again_from_the_members,
          p19_unreadable_update_that_members_do_not_give_needs_a_snapshot,
          p19_an_audit_combines_itself, p19_audit_disputes_an_update_and_continues_from_it,
          p19_an_audit_disputes_an_update_of_a_contribution_that_is_not_valid,
          p19_entry_with_a_combined_update_is_void_in_allgather)
