/* loop_test.c - options, registering, the schedule, and traces worked by hand.
 *
 * Traces: every step moves every element by -2; outer SGD of rate 2, so theta <- theta - 2 g. All
 * numbers are exact in float32. */
#include "loop_world.h"

static diloco_status try_options(diloco_loop_options options)
{
    static world_member m;
    diloco_loop *loop;
    diloco_communicator c = world_communicator(&m);
    options.size = sizeof options;
    diloco_status status = diloco_loop_create(&loop, &options, &c);
    diloco_loop_destroy(loop);
    return status;
}

static void check_refused(const char *words, diloco_loop_options options)
{
    CHECK_STATUS(DILOCO_EINVAL, try_options(options));
    CHECK_CONTAINS(words, diloco_error_text());
}

TEST(lib_8_the_schedule_s_limits_are_errors_by_name)
{
    CHECK_OK(try_options((diloco_loop_options){.sync_every = 1}));
    check_refused("sync_every = 0", (diloco_loop_options){.fragments = 1});
    check_refused("sync_every = 2 is less than the 3 fragments",
                  (diloco_loop_options){.fragments = 3, .sync_every = 2});
    check_refused("sync_every = 7 is not a multiple",
                  (diloco_loop_options){.fragments = 2, .sync_every = 7});
    check_refused("fragment_sync_delay = 3",
                  (diloco_loop_options){.fragments = 2, .sync_every = 6, .fragment_sync_delay = 3});
    CHECK_OK(try_options(
        (diloco_loop_options){.fragments = 2, .sync_every = 6, .fragment_sync_delay = 2}));
}

TEST(lib_8_other_options_out_of_range_are_errors_by_name)
{
    check_refused("fragment_update_alpha = 1.5",
                  (diloco_loop_options){.sync_every = 1, .fragment_update_alpha = 1.5});
    check_refused("fragment_update_alpha = -0.1",
                  (diloco_loop_options){.sync_every = 1, .fragment_update_alpha = -0.1});
    check_refused("fragment_update_alpha = nan",
                  (diloco_loop_options){.sync_every = 1, .fragment_update_alpha = (double)NAN});
    check_refused("bucket_bytes = 3", (diloco_loop_options){.sync_every = 1, .bucket_bytes = 3});
    check_refused("n_threads = -1", (diloco_loop_options){.sync_every = 1, .n_threads = -1});
    diloco_config *config = world_outer("nonsense", "1");
    check_refused("nonsense", (diloco_loop_options){.sync_every = 1, .config = config});
    diloco_config_destroy(config);
    config = world_outer("muon", "1");
    check_refused("steps whole matrices", (diloco_loop_options){.sync_every = 1, .config = config});
    diloco_config_destroy(config);
    config = world_outer("sgd", "1");
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_lr_schedule", "cosine", NULL));
    check_refused("set trainer.rounds", (diloco_loop_options){.sync_every = 1, .config = config});
    diloco_config_destroy(config);
}

static diloco_status copy_nothing(void *user, float *host, size_t tensor, size_t first, size_t n)
{
    (void)user, (void)host, (void)tensor, (void)first, (void)n;
    return DILOCO_OK;
}

TEST(functions_that_are_missing_are_named)
{
    diloco_loop *loop;
    diloco_loop_options options = {.size = sizeof options, .sync_every = 1};
    diloco_communicator c = {.size = sizeof c, .wait = world_wait};
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_create(&loop, &options, &c));
    CHECK_CONTAINS("no all_reduce function", diloco_error_text());
    c = (diloco_communicator){.size = sizeof c, .all_reduce = world_all_reduce};
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_create(&loop, &options, &c));
    CHECK_CONTAINS("no wait function", diloco_error_text());
    diloco_loop_copy copy = {.size = sizeof copy, .read = copy_nothing};
    check_refused("no write function", (diloco_loop_options){.sync_every = 1, .copy = &copy});
}

/* ---- tensors */

static void check_tensor_refused(const char *words, diloco_loop *loop, diloco_tensor t)
{
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_tensor(loop, &t));
    CHECK_CONTAINS(words, diloco_error_text());
}

TEST(tensors_that_cannot_be_moved_are_errors_that_name_them)
{
    world w;
    float x[4];
    diloco_loop_options options = {.size = sizeof options, .sync_every = 1};
    world_begin(&w, 1, &options);
    diloco_loop *loop = w.members[0].loop;
    diloco_tensor good = {.name = "x", .data = x, .n_dims = 1, .shape = {4}}, bad;
    CHECK_OK(diloco_loop_tensor(loop, &good));
    check_tensor_refused("tensor x is registered already", loop, good);
    bad = good, bad.name = "x\ny";
    check_tensor_refused("tensor 1: byte 1 of its name is not printable ASCII", loop, bad);
    bad = good, bad.name = "\xc3\xa4";
    check_tensor_refused("tensor 1: byte 0 of its name is not printable ASCII", loop, bad);
    bad = (diloco_tensor){.name = "y", .data = x, .dtype = DILOCO_I64};
    check_tensor_refused("tensor y: the loop moves float32 parameters only", loop, bad);
    bad = (diloco_tensor){.name = "y", .data = x, .role = DILOCO_BUFFER};
    check_tensor_refused("tensor y: the loop moves float32 parameters only", loop, bad);
    bad = (diloco_tensor){.name = "y", .data = x, .fragment = 1};
    check_tensor_refused("tensor y: fragment 1 is not in 0 … 0", loop, bad);
    bad = (diloco_tensor){.name = "y", .n_dims = 1, .shape = {4}};
    check_tensor_refused("tensor y has no data", loop, bad);
    bad = (diloco_tensor){.name = "y", .data = x, .n_dims = 2, .shape = {SIZE_MAX, 2}};
    check_tensor_refused("tensor y: its shape overflows", loop, bad);
    bad = (diloco_tensor){.name = "y", .data = x, .n_dims = 5};
    check_tensor_refused("tensor y: 5 dimensions", loop, bad);
    bad = (diloco_tensor){.name = "", .data = x};
    check_tensor_refused("a tensor's name has", loop, bad);
    CHECK_OK(diloco_loop_start(loop));
    good.name = "late";
    check_tensor_refused("before diloco_loop_start", loop, good);
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_start(loop));
    world_end(&w);
}

TEST(a_fragment_without_tensors_is_an_error)
{
    world w;
    diloco_loop_options options = {.size = sizeof options, .fragments = 2, .sync_every = 2};
    world_begin(&w, 1, &options);
    world_tensor(&w.members[0], "a", 0, 3, 0);
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_start(w.members[0].loop));
    CHECK_CONTAINS("fragment 1 has no tensor", diloco_error_text());
    world_tensor(&w.members[0], "b", 3, 3, 1);
    CHECK_OK(diloco_loop_start(w.members[0].loop));
    world_end(&w);
}

TEST(calls_out_of_order_are_errors)
{
    world w;
    diloco_loop_options options = {.size = sizeof options, .sync_every = 2};
    world_begin(&w, 1, &options);
    diloco_loop *loop = w.members[0].loop;
    diloco_loop_fragment view = {.size = sizeof view};
    char hex[33];
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_prepare(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_restore(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_view(loop, 0, &view));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_digest(loop, hex));
    world_tensor(&w.members[0], "a", 0, 3, 0);
    CHECK_OK(diloco_loop_start(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_perform(loop, NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_view(loop, 1, &view));
    CHECK_OK(diloco_loop_prepare(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_prepare(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_backup(loop));
    CHECK_STATUS(DILOCO_EINVAL, diloco_loop_save(loop, "nowhere"));
    CHECK_CONTAINS("fragment 0 is in flight", diloco_error_text());
    world_end(&w); /* in flight: waits for it */
    CHECK_INT(w.members[0].begun, w.members[0].waited);
}

/* ---- the schedule */

enum { P = 2, H = 6 };

/* Two fragments of three elements each, at 1. */
static void begin_trace(world *w, int delay, double alpha, diloco_config *config)
{
    diloco_loop_options options = {.size = sizeof options,
                                   .fragments = P,
                                   .sync_every = H,
                                   .fragment_sync_delay = (uint64_t)delay,
                                   .fragment_update_alpha = alpha,
                                   .config = config};
    world_begin(w, 1, &options);
    world_member *m = &w->members[0];
    for (int i = 0; i < 6; i++)
        m->w[i] = 1;
    world_tensor(m, "a", 0, 3, 0);
    world_tensor(m, "b", 3, 3, 1);
    CHECK_OK(diloco_loop_start(m->loop));
}

static void train(world_member *m, int n_steps)
{
    for (int s = 0; s < n_steps; s++) {
        for (int i = 0; i < 6; i++)
            m->w[i] -= 2;
        CHECK_OK(diloco_loop_step(m->loop));
    }
}

TEST(lib_9_fragments_fire_as_torchft_s_do_p_first_after_p_plus_1_intervals)
{
    for (int delay = 0; delay < H / P; delay++) {
        world w;
        begin_trace(&w, delay, 0, NULL);
        world_member *m = &w.members[0];
        for (int step = 1; step <= 3 * H; step++) {
            diloco_loop_info now = {.size = sizeof now};
            train(m, 1);
            diloco_loop_now(m->loop, &now);
            int prepared = (step + delay) / (H / P), performed = step / (H / P);
            CHECK_INT(prepared, m->quorums);
            CHECK_INT(performed, m->votes);
            CHECK_INT(performed, now.commits);
            CHECK_INT(step % (H / P), now.step);
            CHECK_INT(prepared > performed ? performed % P : -1, now.fragment);
        }
        world_end(&w);
    }
}

/* The first elements of both fragments after 3, 6 and 9 steps, and theta after 9. */
typedef struct trace {
    int delay;
    double alpha;
    double local[3][P], theta[P];
} trace;

static const trace traces[] = {
    /* 3: g 1+5; 6: g 1+11; 9: g -11+23 */
    {0, 0, {{-11, -5}, {-17, -23}, {-35, -29}}, {-35, -23}},
    /* half of the way back; 9: g -11+20 */
    {0, 0.5, {{-8, -5}, {-14, -17}, {-24.5, -23}}, {-29, -23}},
    /* communication has no effect on the replica; 9: g -11+17 */
    {0, 1, {{-5, -5}, {-11, -11}, {-17, -17}}, {-23, -23}},
    /* g is taken one step before; 2: 1+3; 5: 1+9; 8: -7+17 */
    {1, 0, {{-7, -5}, {-13, -19}, {-27, -25}}, {-27, -19}},
    /* 8: g -7+16 */
    {1, 0.5, {{-6, -5}, {-12, -15}, {-21.5, -21}}, {-25, -19}},
    /* 8: g -7+15 */
    {1, 1, {{-5, -5}, {-11, -11}, {-17, -17}}, {-23, -19}},
};

TEST(delay_and_alpha_follow_the_traces_worked_by_hand)
{
    diloco_config *config = world_outer("sgd", "2");
    for (size_t k = 0; k < sizeof traces / sizeof traces[0]; k++) {
        const trace *t = &traces[k];
        world w;
        begin_trace(&w, t->delay, t->alpha, config);
        for (int third = 0; third < 3; third++) {
            train(&w.members[0], 3);
            for (int f = 0; f < P; f++)
                for (int i = 0; i < 3; i++)
                    CHECK_NEAR(t->local[third][f], (double)w.members[0].w[3 * f + i], 0);
        }
        for (uint32_t f = 0; f < P; f++) {
            diloco_loop_fragment view = {.size = sizeof view};
            CHECK_OK(diloco_loop_view(w.members[0].loop, f, &view));
            CHECK_INT(3, view.n);
            CHECK_NEAR(t->theta[f], (double)view.theta[2], 0);
            CHECK_INT(f == 0 ? 2 : 1, *view.commits);
        }
        world_end(&w);
    }
    diloco_config_destroy(config);
}

TEST(lib_12_lib_25_the_sign_is_before_minus_after_and_the_step_goes_against_it)
{
    diloco_config *config = world_outer("sgd", "0.25");
    diloco_loop_options options = {.size = sizeof options, .sync_every = 1, .config = config};
    world w;
    world_begin(&w, 1, &options);
    world_tensor(&w.members[0], "x", 0, 1, 0);
    CHECK_OK(diloco_loop_start(w.members[0].loop));
    w.members[0].w[0] = 4; /* from 0: after - before is +4 */
    CHECK_OK(diloco_loop_prepare(w.members[0].loop));
    CHECK_NEAR(-4, (double)w.boxes[0].letters[0][0], 0);
    CHECK_OK(diloco_loop_perform(w.members[0].loop, NULL));
    CHECK_NEAR(1, (double)w.members[0].w[0], 0);
    world_end(&w);
    diloco_config_destroy(config);
}

TEST(a_cosine_gives_all_fragments_of_a_round_the_same_rate)
{
    diloco_config *config = world_outer("sgd", "1");
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_lr_schedule", "cosine", NULL));
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_min_ratio", "0", NULL));
    CHECK_OK(diloco_config_set(config, "trainer.rounds", "3", NULL));
    diloco_loop_options options = {
        .size = sizeof options, .sync_every = 2, .fragments = 2, .config = config};
    static const float adopted[] = {4, 4, 6, 6}; /* lr 1 in the first round, .5 in the second */
    world w;
    world_begin(&w, 1, &options);
    world_tensor(&w.members[0], "x", 0, 1, 0);
    world_tensor(&w.members[0], "y", 1, 1, 1);
    CHECK_OK(diloco_loop_start(w.members[0].loop));
    for (int e = 0; e < 4; e++) {
        w.members[0].w[e % 2] += 4;
        CHECK_OK(diloco_loop_prepare(w.members[0].loop));
        CHECK_OK(diloco_loop_perform(w.members[0].loop, NULL));
        CHECK_NEAR((double)adopted[e], (double)w.members[0].w[e % 2], 1e-6);
    }
    world_end(&w);
    diloco_config_destroy(config);
}

TEST(backup_and_restore_copy_all_fragments)
{
    world w;
    begin_trace(&w, 0, 0, NULL);
    world_member *m = &w.members[0];
    m->w[0] = 7, m->w[5] = 9;
    CHECK_OK(diloco_loop_restore(m->loop));
    CHECK_NEAR(1, (double)m->w[0], 0);
    CHECK_NEAR(1, (double)m->w[5], 0);
    m->w[0] = 7, m->w[5] = 9;
    CHECK_OK(diloco_loop_backup(m->loop));
    m->w[0] = m->w[5] = 0;
    CHECK_OK(diloco_loop_restore(m->loop));
    CHECK_NEAR(7, (double)m->w[0], 0);
    CHECK_NEAR(9, (double)m->w[5], 0);
    world_end(&w);
}

/* A caller that was compiled when the structs ended earlier. */
TEST(structs_of_an_older_caller_have_the_defaults_after_their_end)
{
    world_member m = {.w = {0}};
    world alone = {.n_members = 1};
    m.world = &alone;
    diloco_loop_options options = {
        .size = offsetof(diloco_loop_options, keep_local), .sync_every = 1, .keep_local = true};
    diloco_communicator c = world_communicator(&m);
    c.size = offsetof(diloco_communicator, start_quorum);
    CHECK_OK(diloco_loop_create(&m.loop, &options, &c));
    world_tensor(&m, "x", 0, 1, 0);
    CHECK_OK(diloco_loop_start(m.loop));
    m.w[0] = 1;
    CHECK_OK(diloco_loop_step(m.loop));
    CHECK_INT(0, m.quorums);
    CHECK_INT(0, m.votes);
    CHECK_NEAR(1.33, (double)m.w[0], 1e-6); /* Nesterov: 0.7 (1 + 0.9) of the way again */
    diloco_loop_destroy(m.loop);
}

TEST_MAIN(lib_8_the_schedule_s_limits_are_errors_by_name,
          lib_8_other_options_out_of_range_are_errors_by_name, functions_that_are_missing_are_named,
          tensors_that_cannot_be_moved_are_errors_that_name_them,
          a_fragment_without_tensors_is_an_error, calls_out_of_order_are_errors,
          lib_9_fragments_fire_as_torchft_s_do_p_first_after_p_plus_1_intervals,
          delay_and_alpha_follow_the_traces_worked_by_hand,
          lib_12_lib_25_the_sign_is_before_minus_after_and_the_step_goes_against_it,
          a_cosine_gives_all_fragments_of_a_round_the_same_rate,
          backup_and_restore_copy_all_fragments,
          structs_of_an_older_caller_have_the_defaults_after_their_end)
