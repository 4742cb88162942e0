/* handle_test.c - the handle of run.h: invalid arguments are refused by name, and calls have an
 * order. */
#include "toy_run.h"

static diloco_config *config_of(const char *store)
{
    diloco_config *c = diloco_config_create();
    CHECK(c != NULL);
    if (store) CHECK_OK(diloco_config_set(c, "run.store", store, NULL));
    return c;
}

TEST(impossible_options_are_refused_by_name)
{
    diloco_run *run;
    diloco_config *c = config_of(NULL);
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_open(&run, c, "r0"));
    CHECK_CONTAINS("run.store", diloco_error_text());
    CHECK(run == NULL);
    CHECK_OK(diloco_config_set(c, "run.store", "mem://refused", NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_open(&run, c, "a/b"));
    CHECK_CONTAINS("a/b", diloco_error_text());
    CHECK_OK(diloco_config_set(c, "run.heartbeat", "50", NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_open(&run, c, "r0"));
    CHECK_CONTAINS("run.heartbeat", diloco_error_text());
    CHECK_OK(diloco_config_set(c, "run.heartbeat", "5", NULL));
    CHECK_OK(diloco_config_set(c, "run.min_replicas", "3", NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_open(&run, c, "r0"));
    CHECK_CONTAINS("run.min_replicas", diloco_error_text());
    diloco_config_destroy(c);
}

TEST(calls_out_of_order_and_tensors_that_cannot_be_are_refused)
{
    diloco_run *run;
    float w[2] = {1, 2};
    int64_t n = 0;
    diloco_config *c = config_of("mem://order");
    diloco_tensor good = {.name = "w", .data = w, .n_dims = 1, .shape = {2}}, bad = good;
    diloco_tensor integer = {"n", &n, DILOCO_I64, DILOCO_BUFFER, 0, {0}, 0};
    void *place = w;
    CHECK_OK(diloco_config_set(c, "run.state_dir", "none", NULL));
    CHECK_OK(diloco_run_open(&run, c, "r0"));
    diloco_config_destroy(c);

    CHECK_STATUS(DILOCO_EINVAL, diloco_run_join(run)); /* nothing to train */
    CHECK_CONTAINS("no tensors", diloco_error_text());
    bad.data = NULL;
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_tensor(run, &bad));
    bad.data = (char *)w + 1;
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_tensor(run, &bad));
    CHECK_CONTAINS("not aligned", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_gradient(run, "w", w));
    CHECK_CONTAINS("register tensor w", diloco_error_text());
    CHECK_OK(diloco_run_tensor(run, &good));
    CHECK_OK(diloco_run_tensor(run, &integer));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_gradient(run, "n", w));
    CHECK_CONTAINS("whole numbers", diloco_error_text());

    char long_name[300] = {0};
    memset(long_name, 'x', sizeof long_name - 1);
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, long_name, w, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "", w, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "p", NULL, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, NULL, w, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "p", w, SIZE_MAX));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "p", w, ((size_t)1 << 47) + 1));
    CHECK_OK(diloco_run_private(run, "p", w, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "p", w, 4));
    CHECK_CONTAINS("twice", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_data_digest(run, "12"));

    CHECK_STATUS(DILOCO_EINVAL, diloco_step(run, NULL));
    CHECK_CONTAINS("needs diloco_run_join first", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_save(run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_leave(run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_theta(run, &place, 1));
    CHECK_OK(diloco_run_join(run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_join(run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_tensor(run, &good));
    CHECK_CONTAINS("before", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_private(run, "q", w, 4));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_theta(run, &place, 1)); /* of two tensors */
    CHECK_OK(diloco_run_leave(run));
    CHECK_OK(diloco_run_leave(run));
    diloco_run_close(run);
    diloco_run_close(NULL);
}

TEST(a_tensor_named_twice_is_refused_when_the_run_is_made)
{
    diloco_run *run;
    float w[2] = {1, 2};
    diloco_config *c = config_of("mem://twice");
    diloco_tensor t = {.name = "w", .data = w, .n_dims = 1, .shape = {2}};
    CHECK_OK(diloco_run_open(&run, c, "r0"));
    diloco_config_destroy(c);
    CHECK_OK(diloco_run_tensor(run, &t));
    CHECK_OK(diloco_run_tensor(run, &t));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_create(run));
    diloco_run_close(run);
}

TEST(a_first_value_or_a_movement_that_is_not_finite_is_named)
{
    toy t = toy_of("r0", "mem://nan");
    toy_set(&t, "run.state_dir", "none");
    t.w[5] = NAN;
    toy_live(&t);
    CHECK_INT(DILOCO_ENUMERIC, t.status);
    CHECK_CONTAINS("w[5]", t.text);
    t.w[5] = 0;
    t.inner_lr = INFINITY;
    toy_live(&t);
    CHECK_INT(DILOCO_ENUMERIC, t.status);
    CHECK_CONTAINS("w[0]", t.text);
}

/* An empty contribution in its place would close the entry without the steps of a resume. */
TEST(failed_capture_is_still_due_and_sends_nothing)
{
    dl_store *store;
    dl_buf object = {.max = 1 << 20};
    toy t = toy_of("r0", "mem://not_captured");
    toy_keep("mem://not_captured");
    toy_set(&t, "run.state_dir", "none");
    t.inner_lr = INFINITY;
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_join(t.run));
    CHECK_STATUS(DILOCO_ENUMERIC, toy_train(&t));
    CHECK_STATUS(DILOCO_ENUMERIC, diloco_step(t.run, NULL));
    CHECK_INT(0, diloco_run_now(t.run).entry);
    CHECK_OK(dl_store_open(&store, "mem://not_captured", false));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &object, "c/0000000000/r0.0000", DL_NEVER));
    dl_store_close(store);
    toy_close(&t);
}

TEST(an_interval_without_samples_is_refused_and_not_waited_for)
{
    toy t = toy_of("r0", "mem://samples-none");
    toy_set(&t, "run.state_dir", "none");
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_join(t.run));
    const diloco_step_report none = {.loss = 1};
    CHECK_OK(diloco_step(t.run, &none));
    CHECK_OK(diloco_step(t.run, &none));
    CHECK_STATUS(DILOCO_EINVAL, diloco_step(t.run, &none));
    CHECK_CONTAINS("no samples", diloco_error_text());
    toy_close(&t);
}

/* Callers may be compiled with earlier or later headers (include/diloco/status.h). */
TEST(a_struct_of_another_size_is_taken_as_far_as_both_know_it)
{
    toy t = toy_of("r0", "mem://sizes");
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.local_steps_per_round", "9");
    CHECK_OK(toy_open(&t));

    struct later_tensor {
        diloco_tensor known;
        long more;
    } tensor = {{.name = "v", .data = t.moment, .n_dims = 1, .shape = {2}}, 1};
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_tensor_sized(t.run, &tensor.known, sizeof tensor));
    CHECK_CONTAINS("diloco_tensor of", diloco_error_text());
    tensor.more = 0;
    CHECK_OK(diloco_run_tensor_sized(t.run, &tensor.known, sizeof tensor));
    tensor.known.name = "u"; /* a scalar of fragment 0: fields after the known ones are not read */
    tensor.known.n_dims = 0;
    tensor.known.fragment = 7;
    CHECK_OK(diloco_run_tensor_sized(t.run, &tensor.known, offsetof(diloco_tensor, shape)));
    CHECK_OK(diloco_run_join(t.run));

    struct later_report {
        diloco_step_report known;
        double more;
    } report = {{.loss = 1, .samples = 5, .tokens = 6}, 0.5};
    CHECK_STATUS(DILOCO_EINVAL, diloco_step_sized(t.run, &report.known, sizeof report));
    CHECK_INT(0, diloco_run_now(t.run).step);
    CHECK_OK(diloco_step_sized(t.run, &report.known, offsetof(diloco_step_report, tokens)));
    CHECK_INT(1, diloco_run_now(t.run).step);
    CHECK_INT(5, diloco_run_now(t.run).sample);

    struct later_info {
        diloco_run_info known;
        uint64_t more;
    } info = {.more = 7};
    diloco_run_now_sized(t.run, &info.known, sizeof info);
    CHECK(info.known.step == 1 && info.more == 0);
    info.known.step = 77;
    diloco_run_now_sized(t.run, &info.known, offsetof(diloco_run_info, step));
    CHECK(info.known.positions == 36 && info.known.step == 77);
    toy_close(&t);
}

/* Runs five runs of two replicas each, and one that fails, in eleven threads. Their settings,
 * errors and states do not affect each other. */
TEST(any_number_of_runs_share_one_process)
{
    enum { RUNS = 5 };
    static toy all[2 * RUNS + 1];
    static char stores[RUNS][32], steps[RUNS][8];
    toy *lost = &all[2 * RUNS];
    for (size_t i = 0; i < RUNS; i++) {
        snprintf(stores[i], sizeof stores[i], "mem://many-%zu", i);
        snprintf(steps[i], sizeof steps[i], "%zu", 2 + i);
        toy_keep(stores[i]);
        toy_crew(all + 2 * i, 2, stores[i], "none");
        toy_set_all(all + 2 * i, 2, "trainer.local_steps_per_round", steps[i]);
    }
    *lost = toy_of("r0", "mem://many-lost");
    toy_set(lost, "run.state_dir", "none");
    lost->inner_lr = INFINITY;
    toy_live_all(all, 2 * RUNS + 1);
    for (size_t i = 0; i < RUNS; i++) {
        TOY_OK(all[2 * i]);
        TOY_OK(all[2 * i + 1]);
        CHECK_INT(4 * (2 + i), all[2 * i].end.position);
        CHECK(!memcmp(all[2 * i].theta, all[2 * i + 1].theta, sizeof all[0].theta));
        CHECK(i == 0 || memcmp(all[2 * i].theta, all[0].theta, sizeof all[0].theta) != 0);
    }
    CHECK_INT(DILOCO_ENUMERIC, lost->status);
    CHECK_CONTAINS("w[0]", lost->text);
}

TEST_MAIN(impossible_options_are_refused_by_name,
          calls_out_of_order_and_tensors_that_cannot_be_are_refused,
          a_tensor_named_twice_is_refused_when_the_run_is_made,
          a_first_value_or_a_movement_that_is_not_finite_is_named,
          failed_capture_is_still_due_and_sends_nothing,
          an_interval_without_samples_is_refused_and_not_waited_for,
          a_struct_of_another_size_is_taken_as_far_as_both_know_it,
          any_number_of_runs_share_one_process)
