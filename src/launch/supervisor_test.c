/* supervisor_test.c - which replicas are started when. */
#include "launch/supervisor.h"

#include "launch_world.h"

TEST(each_rank_is_started_once_and_the_run_ends_when_the_store_says_so)
{
    fixture *f = begin("once", 3, "0");
    for (int r = 0; r < 3; r++)
        fate[r][0] = DL_JOB_SUCCEEDED;
    run_is_done_after = 1;
    CHECK_OK(dl_control_follow(&f->control));
    for (int r = 0; r < 3; r++)
        CHECK_INT(1, launches[r][0]);
    CHECK_INT(0, launches[3][0]);
    dl_book_close(&f->book);
}

TEST(a_lost_replica_is_started_again_with_the_next_generation)
{
    fixture *f = begin("lost", 2, "3");
    fate[0][0] = DL_JOB_SUCCEEDED;
    fate[1][0] = fate[1][1] = DL_JOB_LOST;
    fate[1][2] = DL_JOB_SUCCEEDED;
    run_is_done_after = 3;
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(1, launches[1][0] * launches[1][1] * launches[1][2]);
    CHECK_INT(0, launches[1][3] + launches[0][1]);
    dl_book_close(&f->book);
}

TEST(restarts_have_an_end_that_names_the_replica)
{
    fixture *f = begin("end", 1, "2");
    fate[0][0] = fate[0][1] = fate[0][2] = DL_JOB_LOST;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("r0: LOST: fate", diloco_error_text());
    CHECK_INT(1, launches[0][2]);
    CHECK_INT(0, launches[0][3]);
    CHECK(dl_control_is_stuck(&f->control));
    dl_book_close(&f->book);
}

TEST(a_failed_replica_is_not_started_again_unless_its_store_was_unreachable)
{
    fixture *f = begin("failed", 2, "1");
    fate[0][0] = fate[1][0] = DL_JOB_FAILED;
    codes[0][0] = 1;
    codes[1][0] = 4;
    fate[1][1] = DL_JOB_SUCCEEDED;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("r0: FAILED", diloco_error_text());
    CHECK_INT(0, launches[0][1]);
    CHECK_INT(1, launches[1][1]);
    dl_book_close(&f->book);
}

/* Let this many seconds pass for r0, which has ended. */
static void pass_time(fixture *f, double seconds)
{
    f->book.ranks[0].end_seen -= dl_time_from_seconds(seconds);
}

TEST(pause_after_each_end_by_an_unreachable_store_is_twice_the_one_before)
{
    fixture *f = begin("pause", 1, "2");
    CHECK_OK(dl_config_set(&f->config, "launch.poll", "100", "test"));
    fate[0][0] = fate[0][1] = DL_JOB_FAILED;
    codes[0][0] = codes[0][1] = 4;
    for (int g = 0; g < 2; g++) {
        const int pause = 800 << g;
        CHECK_OK(dl_control_start(&f->control));
        CHECK_INT(1, launches[0][g]);
        CHECK_OK(dl_control_poll(&f->control));
        CHECK_INT(DL_JOB_FAILED, f->book.ranks[0].job.state);
        pass_time(f, pause - 90);
        CHECK_OK(dl_control_start(&f->control));
        CHECK_INT(0, launches[0][g + 1]);
        pass_time(f, 90);
    }
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, launches[0][2]);
    dl_book_close(&f->book);
}

TEST(exit_codes_do_not_complete_a_run_and_do_not_fail_a_complete_one)
{
    fixture *f = begin("codes", 1, "0");
    fate[0][0] = DL_JOB_SUCCEEDED;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("the run is not complete", diloco_error_text());
    dl_book_close(&f->book);

    f = begin("codes2", 1, "0");
    fate[0][0] = DL_JOB_FAILED;
    run_is_done_after = 1;
    CHECK_OK(dl_control_follow(&f->control));
    dl_book_close(&f->book);
}

TEST(a_replica_without_an_answer_is_lost_after_the_limit)
{
    fixture *f = begin("silent", 1, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_RUNNING;
    silent[0] = true;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("r0: LOST: no answer for 0 s", diloco_error_text());
    dl_book_close(&f->book);
}

/* Counts the lines with this text, and keeps the last one. */
static const char *counted_text;
static char last_notice[256];
static int counted;
static void count_notices(void *user, const char *line)
{
    (void)user;
    if (!strstr(line, counted_text)) return;
    counted++;
    snprintf(last_notice, sizeof last_notice, "%s", line);
}

static void count_in(fixture *f, const char *text)
{
    f->control.on_notice = count_notices;
    counted_text = text;
    counted = 0;
}

TEST(replica_that_waits_for_a_machine_is_reported_once_and_not_given_up)
{
    fixture *f = begin("waits", 1, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "1000", "test"));
    count_in(f, "It is not given up");
    fate[0][0] = DL_JOB_PENDING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_INT(0, counted);
    f->book.ranks[0].waits_since -= 1000 * DL_SECOND;
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_INT(1, counted);
    CHECK_CONTAINS("r0: PENDING for 1000 s: fate", last_notice);
    CHECK_INT(DL_JOB_PENDING, f->book.ranks[0].job.state);
    fate[0][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_INT(0, (int)f->book.ranks[0].waits_since);
    dl_book_close(&f->book);
}

TEST(a_backend_that_fails_for_300_looks_costs_no_replica)
{
    fixture *f = begin("outage", 2, "3");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = fate[1][0] = DL_JOB_SUCCEEDED;
    outage = 300;
    run_is_done_after = 1;
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(0, outage);
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(0, launches[0][1] + launches[1][1] + cancels[0] + cancels[1]);
    dl_book_close(&f->book);
}

TEST(a_launch_that_the_backend_refuses_is_recorded_and_can_be_repeated)
{
    fixture *f = begin("refuse", 1, "0");
    launch_fails = DILOCO_EREFUSED;
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_INT(DL_JOB_FAILED, f->book.ranks[0].job.state);
    CHECK_CONTAINS("the fake has no machine", f->book.ranks[0].job.message);
    launch_fails = DILOCO_OK;
    fate[0][1] = DL_JOB_SUCCEEDED;
    run_is_done_after = 1;
    CHECK(dl_control_is_stuck(&f->control));
    CHECK_OK(dl_book_begin(&f->book, &f->spec, "fake", 1, 1));
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(1, launches[0][1]);
    dl_book_close(&f->book);
}

/* A launch of at least 2 and at most 3 replicas, of which the backend grants some. */
static fixture *begin_with(const char *name, uint32_t n)
{
    fixture *f = begin(name, 3, "0");
    CHECK_OK(dl_book_scale(&f->book, 2, 3));
    fate[0][0] = fate[1][0] = fate[2][1] = DL_JOB_RUNNING;
    granted = n;
    return f;
}

TEST(launch_goes_on_with_enough_replicas_and_asks_for_the_others_after_a_pause)
{
    fixture *f = begin_with("enough", 2);
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, launches[0][0] * launches[1][0]);
    CHECK_INT(DL_JOB_FAILED, f->book.ranks[2].job.state);
    CHECK_CONTAINS("quota", f->book.ranks[2].job.message);
    CHECK(dl_control_is_stuck(&f->control)); /* the same command asks at once */
    granted = RANKS;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(0, launches[2][1]);
    f->book.ranks[2].end_seen -= 60 * DL_SECOND;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, launches[2][1]);
    CHECK_INT(0, launches[0][1] + launches[1][1]);
    dl_book_close(&f->book);
}

TEST(complete_run_does_not_ask_for_refused_replicas_again)
{
    fixture *f = begin_with("granted", 2);
    fate[0][0] = fate[1][0] = DL_JOB_SUCCEEDED;
    run_is_done_after = 1;
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(0, launches[2][0] + launches[2][1]);
    dl_book_close(&f->book);
}

TEST(launch_ends_when_the_backend_grants_fewer_replicas_than_are_wanted_at_least)
{
    fixture *f = begin_with("too-few", 1);
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_CONTAINS("quota", diloco_error_text());
    CHECK_INT(1, (int)dl_book_alive(&f->book));
    CHECK(dl_control_is_stuck(&f->control));
    dl_book_close(&f->book);
}

TEST(backend_that_does_not_answer_a_creation_is_asked_until_it_does)
{
    fixture *f = begin("no-answer", 1, "0");
    fate[0][0] = DL_JOB_RUNNING;
    launch_fails = DILOCO_EUNREACHABLE;
    for (int look = 0; look < 300; look++) {
        CHECK_STATUS(DILOCO_EUNREACHABLE, dl_control_start(&f->control));
        CHECK_INT(DL_JOB_PENDING, f->book.ranks[0].job.state);
    }
    launch_fails = DILOCO_OK;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(0, f->book.ranks[0].lost);
    dl_book_close(&f->book);
}

TEST(refused_replica_is_asked_for_again_while_another_one_runs)
{
    fixture *f = begin_with("one-left", 2);
    CHECK_OK(dl_control_start(&f->control));
    fate[1][0] = DL_JOB_FAILED; /* for good, and its quota is free */
    codes[1][0] = 1;
    granted = RANKS;
    f->book.ranks[2].end_seen -= 60 * DL_SECOND;
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, launches[2][1]);
    CHECK_INT(0, launches[1][1]);
    dl_book_close(&f->book);
}

TEST(refused_restart_ends_no_launch_before_launch_restarts)
{
    fixture *f = begin("refused-again", 2, "1");
    fate[0][0] = DL_JOB_LOST;
    fate[1][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    granted = 0;
    for (uint32_t g = 1; g < 4; g++) { /* r1 runs, so there is no limit */
        CHECK_OK(dl_control_start(&f->control));
        CHECK_INT(g, f->book.ranks[0].job.generation);
        CHECK_INT(DL_JOB_FAILED, f->book.ranks[0].job.state);
        f->book.ranks[0].end_seen -= (60 << g) * DL_SECOND;
    }
    dl_book_close(&f->book);

    f = begin("alone", 1, "1");
    fate[0][0] = DL_JOB_LOST;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    granted = 0;
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_INT(1, f->book.ranks[0].job.generation);
    dl_book_close(&f->book);
}

TEST(an_announced_start_is_launched_by_the_next_launcher)
{
    fixture *f = begin("open", 2, "0");
    const uint32_t ranks[] = {0, 1};
    CHECK_OK(dl_book_start(&f->book, ranks, 2, 0, ""));
    memset(f->book.by, '0', 32); /* the next one */
    fate[0][0] = fate[1][0] = DL_JOB_SUCCEEDED;
    run_is_done_after = 1;
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(1, launches[1][0]);
    dl_book_close(&f->book);
}

static int64_t processes[8]; /* of r0, at each look; the last one stays */
static int looks_at_processes;

/* The run counts the processes of r0. */
static diloco_status count_processes(void *user, bool *done)
{
    const fixture *f = user;
    *done = false;
    f->book.ranks[0].processes = processes[looks_at_processes];
    looks_at_processes += looks_at_processes < 7;
    return DILOCO_OK;
}

/* Follow r0, whose container the backend starts again without end, and check that it is given up
 * with this word. */
static void check_container(const char *name, const char *lost_after, const int64_t counts[8],
                            const char *word)
{
    dl_executor forever = fake;
    fixture *f = begin(name, 1, "1");
    forever.caps.must_be_stopped = true;
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", lost_after, "test"));
    for (int g = 0; g < GENERATIONS; g++)
        fate[0][g] = DL_JOB_RUNNING;
    memcpy(processes, counts, sizeof processes);
    looks_at_processes = 0;
    f->control.executor = &forever;
    f->control.user = f;
    f->control.is_done = count_processes;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS(word, diloco_error_text());
    CHECK_INT(1, launches[0][1]);
    CHECK_INT(0, launches[0][2]);
    CHECK(stopped[0][0] && stopped[0][1]);
    dl_book_close(&f->book);
}

TEST(container_whose_replica_does_not_begin_is_given_up_after_the_limit)
{
    static const int64_t none_begin[8] = {0};
    check_container("no-begin", "0.1", none_begin, "its replica has not begun for 0 s");
}

TEST(container_that_is_started_more_often_than_restarts_permit_is_given_up)
{
    static const int64_t many[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    check_container("again", "600", many, "its container has been started 3 times");
}

TEST(launcher_that_looks_once_starts_a_failed_replica_after_its_pause)
{
    static const double differs[] = {-700.05, 700, -900, 900}; /* the recorded end, from now on */
    char record[256];
    for (int i = 0; i < 4; i++) {
        const char *name = (const char *[]){"p0", "p1", "p2", "p3"}[i];
        fixture *f = begin(name, 1, "2");
        CHECK_OK(dl_config_set(&f->config, "launch.poll", "100", "test"));
        CHECK_OK(dl_control_start(&f->control));
        snprintf(record, sizeof record,
                 "{\"format\":1,\"what\":\"state\",\"at\":%.3f,\"by\":\"another\",\"rank\":0,"
                 "\"generation\":0,\"state\":\"FAILED\",\"code\":4,\"message\":\"old\"}",
                 dl_clock_wall() + differs[i]);
        add_record(&f->book, record);
        open_again(f, name);
        CHECK_INT(DL_JOB_FAILED, f->book.ranks[0].job.state);
        count_in(f, "r0: FAILED: old. It may be started again after a pause");
        CHECK_OK(dl_control_start(&f->control));
        CHECK_INT(i >= 2, launches[0][1]); /* the pause is 800 s */
        CHECK_INT(i < 2, counted);
        if (i == 0) CHECK_CONTAINS("the same command starts it in 100 s or later", last_notice);
        dl_book_close(&f->book);
    }
}

static dl_book other; /* the same book, by another launcher */

/* Another launcher cancels while this one starts r0, and finds it not started yet. */
static void cancel_now(void)
{
    dl_job job;
    dl_job_init(&job, run, 0, 0);
    dl_job_set(&job, DL_JOB_LOST, -1, "no job has its name");
    CHECK_OK(dl_book_read(&other));
    CHECK_OK(dl_book_cancel(&other));
    CHECK_OK(dl_book_state(&other, &job));
}

TEST(replica_that_is_started_during_a_cancel_is_stopped)
{
    fixture *f = begin("race", 1, "0");
    fate[0][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_book_open(&other, scratch_path("race"), run, &fake));
    during_launch = cancel_now;
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_control_follow(&f->control));
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(1, cancels[0]);
    dl_book_close(&other);
    dl_book_close(&f->book);
}

TEST(cancel_stops_all_replicas_and_ends_the_launches_that_follow)
{
    fixture *f = begin("cancel", 2, "5");
    fate[0][0] = fate[1][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(1, cancels[0]);
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_control_follow(&f->control));
    CHECK_INT(DL_JOB_CANCELLED, f->book.ranks[1].job.state);
    CHECK_INT(0, launches[0][1]);
    dl_book_close(&f->book);
}

TEST(ranks_above_the_wanted_number_are_stopped)
{
    fixture *f = begin("scale", 3, "0");
    for (int r = 0; r < 3; r++)
        fate[r][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_book_scale(&f->book, 1, 2));
    CHECK_OK(dl_control_stop_surplus(&f->control));
    CHECK_INT(0, cancels[1]);
    CHECK_INT(1, cancels[2]);
    dl_book_close(&f->book);
}

TEST(surplus_replica_without_an_answer_leaves_none_after_it_running)
{
    fixture *f = begin("surplus", 3, "0");
    for (int r = 0; r < 3; r++)
        fate[r][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_book_scale(&f->book, 1, 1));
    silent[1] = true;
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_control_stop_surplus(&f->control));
    CHECK_INT(1, unanswered[1]);
    CHECK_INT(1, cancels[2]);
    dl_book_close(&f->book);
}

TEST(a_lost_replica_is_not_started_again_once_the_budget_is_used)
{
    fixture *f = begin("budget", 1, "5");
    fate[0][0] = DL_JOB_LOST;
    f->control.budget = 1e-9;
    f->control.machine_hour = 3600;
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_CONTAINS("launch.budget is used up", diloco_error_text());
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(0, launches[0][1]);
    dl_book_close(&f->book);
}

/* The store becomes more expensive at the second look. */
static double store_cost;
static diloco_status cost_more(void *user, bool *done)
{
    static int looks;
    (void)user;
    *done = false;
    if (++looks == 2) store_cost = 7.5;
    return DILOCO_OK;
}

TEST(cost_of_the_store_is_part_of_the_budget)
{
    fixture *f = begin("dear", 1, "5");
    fate[0][0] = DL_JOB_LOST;
    f->control.budget = 7.25;
    f->control.machine_hour = 1e-9;
    f->control.store_cost = &store_cost;
    f->control.is_done = cost_more;
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_CONTAINS("launch.budget is used up (machine time 0.00, store 7.50, of 7.25)",
                   diloco_error_text());
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(0, launches[0][1]);
    dl_book_close(&f->book);
}

TEST(launcher_that_looks_once_says_that_the_budget_is_used_up)
{
    static const double dear = 8;
    fixture *f = begin("looks", 2, "5");
    fate[0][0] = fate[1][0] = DL_JOB_RUNNING;
    f->control.budget = 7;
    f->control.store_cost = &dear;
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_start(&f->control));
    CHECK_CONTAINS("launch.budget is used up (machine time 0.00, store 8.00, of 7.00)",
                   diloco_error_text());
    CHECK_INT(0, launches[0][0] + launches[1][0]);
    /* Without a missing replica there is nothing to refuse. */
    f->control.budget = 9;
    CHECK_OK(dl_control_start(&f->control));
    f->control.budget = 7;
    CHECK_OK(dl_control_start(&f->control));
    dl_book_close(&f->book);
}

/* r1 ends at the third look. */
static diloco_status end_r1_later(void *user, bool *done)
{
    static int looks;
    (void)user;
    *done = false;
    if (++looks == 3) fate[1][0] = DL_JOB_SUCCEEDED;
    return DILOCO_OK;
}

TEST(end_of_the_budget_is_reported_once_while_other_replicas_run)
{
    fixture *f = begin("spent", 2, "5");
    fate[0][0] = DL_JOB_LOST;
    fate[1][0] = DL_JOB_RUNNING;
    f->control.budget = 1e-9;
    f->control.machine_hour = 3600;
    f->control.is_done = end_r1_later;
    count_in(f, "no replica is started any more, and those that run continue");
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_INT(1, counted);
    dl_book_close(&f->book);
}

static void open_other(const char *name)
{
    CHECK_OK(dl_book_open(&other, scratch_path(name), run, &fake));
}

/* r1 is lost, and its next generation is announced. */
static void restart_r1(void)
{
    const uint32_t rank = 1;
    dl_job job = other.ranks[1].job;
    dl_job_set(&job, DL_JOB_LOST, -1, "lost");
    CHECK_OK(dl_book_state(&other, &job));
    CHECK_OK(dl_book_start(&other, &rank, 1, 1, ""));
}

TEST(generation_that_another_launcher_starts_during_a_poll_is_not_started_again)
{
    fixture *f = begin("during", 2, "5");
    fate[0][0] = fate[1][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    open_other("during");
    fate[0][0] = fate[1][0] = DL_JOB_LOST;
    during_poll = restart_r1;
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_INT(1, f->book.ranks[1].job.generation);
    CHECK_INT(DL_JOB_PENDING, f->book.ranks[1].job.state);
    CHECK_INT(1, f->book.ranks[1].lost);
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, f->book.ranks[1].job.generation);
    CHECK_INT(0, launches[1][2]);
    dl_book_close(&other);
    dl_book_close(&f->book);
}

static void end_r1(void)
{
    dl_job job = other.ranks[1].job;
    dl_job_set(&job, DL_JOB_SUCCEEDED, 0, "exit code 0");
    CHECK_OK(dl_book_state(&other, &job));
}

TEST(end_that_another_launcher_reports_during_a_poll_is_kept)
{
    fixture *f = begin("ends", 2, "5");
    fate[0][0] = fate[1][0] = DL_JOB_RUNNING;
    CHECK_OK(dl_control_start(&f->control));
    open_other("ends");
    during_poll = end_r1;
    CHECK_OK(dl_control_poll(&f->control)); /* r0 and r1 run */
    CHECK_INT(DL_JOB_RUNNING, f->book.ranks[0].job.state);
    CHECK_INT(DL_JOB_SUCCEEDED, f->book.ranks[1].job.state);
    dl_book_close(&other);
    dl_book_close(&f->book);
}

TEST(launcher_ends_when_another_one_begins_with_another_executor)
{
    fixture *f = begin("begins", 1, "5");
    fate[0][0] = DL_JOB_SUCCEEDED;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_poll(&f->control));
    open_other("begins");
    CHECK_OK(dl_book_begin(&other, &f->spec, "slurm", 2, 2));
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_follow(&f->control));
    CHECK_CONTAINS("on slurm", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_start(&f->control));
    CHECK_STATUS(DILOCO_EREFUSED, dl_control_collect(&f->control, 60));
    CHECK_INT(0, launches[1][0]);
    dl_book_close(&other);
    dl_book_close(&f->book);
}

TEST(collect_keeps_the_secrets_of_a_replica_that_a_launch_may_start_again)
{
    fixture *f = begin("collect", 1, "1");
    fate[0][0] = DL_JOB_LOST;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_collect(&f->control, 60));
    CHECK_INT(0, finishes);
    run_is_done_after = 0; /* it is not started again */
    CHECK_OK(dl_control_collect(&f->control, 60));
    CHECK_INT(1, finishes);
    run_is_done_after = -1;
    CHECK_OK(dl_book_cancel(&f->book));
    CHECK_OK(dl_control_collect(&f->control, 60));
    CHECK_INT(2, finishes);
    dl_book_close(&f->book);

    f = begin("collect2", 1, "0");
    fate[0][0] = DL_JOB_LOST;
    f->control.is_done = NULL;
    CHECK_OK(dl_control_start(&f->control));
    CHECK_OK(dl_control_collect(&f->control, 60));
    CHECK_INT(1, finishes);
    dl_book_close(&f->book);
}

TEST(a_request_to_stop_leaves_the_replicas_alone)
{
    fixture *f = begin("stop", 1, "0");
    fate[0][0] = DL_JOB_RUNNING;
    stop = 1;
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_control_follow(&f->control));
    CHECK_INT(1, launches[0][0]);
    CHECK_INT(0, cancels[0]);
    dl_book_close(&f->book);
}

TEST_MAIN(each_rank_is_started_once_and_the_run_ends_when_the_store_says_so,
          a_lost_replica_is_started_again_with_the_next_generation,
          restarts_have_an_end_that_names_the_replica,
          a_failed_replica_is_not_started_again_unless_its_store_was_unreachable,
          pause_after_each_end_by_an_unreachable_store_is_twice_the_one_before,
          exit_codes_do_not_complete_a_run_and_do_not_fail_a_complete_one,
          a_replica_without_an_answer_is_lost_after_the_limit,
          replica_that_waits_for_a_machine_is_reported_once_and_not_given_up,
          a_backend_that_fails_for_300_looks_costs_no_replica,
          a_launch_that_the_backend_refuses_is_recorded_and_can_be_repeated,
          launch_goes_on_with_enough_replicas_and_asks_for_the_others_after_a_pause,
          complete_run_does_not_ask_for_refused_replicas_again,
          launch_ends_when_the_backend_grants_fewer_replicas_than_are_wanted_at_least,
          backend_that_does_not_answer_a_creation_is_asked_until_it_does,
          refused_replica_is_asked_for_again_while_another_one_runs,
          refused_restart_ends_no_launch_before_launch_restarts,
          an_announced_start_is_launched_by_the_next_launcher,
          container_whose_replica_does_not_begin_is_given_up_after_the_limit,
          container_that_is_started_more_often_than_restarts_permit_is_given_up,
          launcher_that_looks_once_starts_a_failed_replica_after_its_pause,
          replica_that_is_started_during_a_cancel_is_stopped,
          cancel_stops_all_replicas_and_ends_the_launches_that_follow,
          ranks_above_the_wanted_number_are_stopped,
          surplus_replica_without_an_answer_leaves_none_after_it_running,
          a_lost_replica_is_not_started_again_once_the_budget_is_used,
          cost_of_the_store_is_part_of_the_budget,
          launcher_that_looks_once_says_that_the_budget_is_used_up,
          end_of_the_budget_is_reported_once_while_other_replicas_run,
          generation_that_another_launcher_starts_during_a_poll_is_not_started_again,
          end_that_another_launcher_reports_during_a_poll_is_kept,
          launcher_ends_when_another_one_begins_with_another_executor,
          collect_keeps_the_secrets_of_a_replica_that_a_launch_may_start_again,
          a_request_to_stop_leaves_the_replicas_alone)
