/* orphans_test.c - lost replicas that may still run, and are stopped. */
#include "launch/orphans.h"

#include "launch/supervisor.h"
#include "launch_world.h"

TEST(silent_replica_without_restarts_is_asked_to_stop_when_it_is_given_up)
{
    fixture *f = begin("given-up", 1, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_RUNNING;
    silent[0] = true;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_INT(1, unanswered[0]);
    CHECK_INT(0, launches[0][1]);
    dl_book_close(&f->book);
}

/* The looks that follow after r0 was given up end after a few. */
static diloco_status stop_soon(void *user, bool *done)
{
    static int looks;
    const fixture *f = user;
    *done = false;
    if (f->book.ranks[0].job.state == DL_JOB_LOST && ++looks == 5) stop = 1;
    return DILOCO_OK;
}

TEST(silent_replica_without_restarts_is_stopped_once_its_machine_answers_again)
{
    fixture *f = begin("comes-back", 2, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = fate[1][0] = DL_JOB_RUNNING;
    silent[0] = comes_back[0] = true;
    f->control.user = f;
    f->control.is_done = stop_soon;
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_control_follow(&f->control));
    CHECK_INT(DL_JOB_LOST, f->book.ranks[0].job.state);
    CHECK_INT(1, unanswered[0]);
    CHECK_INT(1, cancels[0]);
    CHECK_INT(0, cancels[1] + launches[0][1]);
    dl_book_close(&f->book);
}

static char last_notice[256];
static void keep_notice(void *user, const char *line)
{
    (void)user;
    snprintf(last_notice, sizeof last_notice, "%s", line);
}

TEST(cancel_stops_a_lost_replica_that_runs_on_and_names_one_that_does_not_answer)
{
    fixture *f = begin("cancel-lost", 1, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_RUNNING;
    silent[0] = true;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    dl_book_close(&f->book);
    CHECK_OK(
        dl_book_open(&f->book, scratch_path("cancel-lost"), run, &fake)); /* another launcher */
    f->control.on_notice = keep_notice;
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(2, unanswered[0]);
    CHECK_CONTAINS("r0", last_notice);
    CHECK_CONTAINS("may still run", last_notice);
    silent[0] = false;
    loses_output = true;
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(1, cancels[0]);
    CHECK_STR("r0: lost, and asked to stop (stopped, but its output is not kept)", last_notice);
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(1, cancels[0]); /* it has ended */
    dl_book_close(&f->book);
}

TEST(orphan_is_kept_until_its_executor_says_that_it_is_over)
{
    fixture *f = begin("kept", 1, "0");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_RUNNING;
    silent[0] = true;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    const dl_book_rank *r = &f->book.ranks[0];
    CHECK_OK(dl_orphans_poll(&f->control));
    CHECK_STR("id-diloco-1f0c2ab9-r0-g0", r->orphan.id);
    CHECK(!r->orphan_runs);
    silent[0] = false;
    CHECK_OK(dl_orphans_poll(&f->control));
    CHECK(*r->orphan.id && r->orphan_runs);
    fate[0][0] = DL_JOB_SUCCEEDED;
    CHECK_OK(dl_orphans_poll(&f->control));
    CHECK_STR("", r->orphan.id);
    dl_book_close(&f->book);
}

TEST(replica_that_fails_beside_its_orphan_is_started_again_after_the_orphan_has_ended)
{
    fixture *f = begin("orphan", 1, "1");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_RUNNING;
    silent[0] = true;
    fate[0][1] = DL_JOB_FAILED;
    codes[0][1] = 2;
    fate[0][2] = DL_JOB_SUCCEEDED;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("every replica ended with exit code 0", diloco_error_text());
    CHECK_INT(1, cancels[0]);
    CHECK(stopped[0][0]);
    CHECK_INT(1, launches[0][2]);
    dl_book_close(&f->book);
}

TEST(replica_that_fails_after_its_orphan_has_ended_is_not_started_again)
{
    fixture *f = begin("ended", 1, "1");
    CHECK_OK(dl_config_set(&f->config, "launch.lost_after", "0.1", "test"));
    fate[0][0] = DL_JOB_SUCCEEDED;
    silent[0] = true;
    fate[0][1] = DL_JOB_FAILED;
    codes[0][1] = 2;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control));
    CHECK_CONTAINS("r0: FAILED", diloco_error_text());
    CHECK_INT(0, cancels[0] + launches[0][2]);
    dl_book_close(&f->book);
}

TEST_MAIN(silent_replica_without_restarts_is_asked_to_stop_when_it_is_given_up,
          silent_replica_without_restarts_is_stopped_once_its_machine_answers_again,
          cancel_stops_a_lost_replica_that_runs_on_and_names_one_that_does_not_answer,
          replica_that_fails_beside_its_orphan_is_started_again_after_the_orphan_has_ended,
          replica_that_fails_after_its_orphan_has_ended_is_not_started_again,
          orphan_is_kept_until_its_executor_says_that_it_is_over)
