/* unnamed_test.c - replicas that a launcher has announced and not recorded as started. */
#include "launch/supervisor.h"
#include "launch/unnamed.h"

#include "launch_world.h"

/* Announce r0 and r1 as another launcher, which was killed after it started r0. */
static fixture *begin_half_started(const char *name)
{
    static const uint32_t ranks[] = {0, 1};
    fixture *f = begin(name, 2, "0");
    CHECK_OK(dl_book_start(&f->book, ranks, 2, 0, ""));
    memset(f->book.by, '0', 32);
    launches[0][0] = 1;
    fate[0][0] = DL_JOB_RUNNING;
    return f;
}

/* Let the launcher that announced r0 and r1 have had its time. */
static void abandon(fixture *f)
{
    for (int r = 0; r < 2; r++)
        f->book.ranks[r].start_seen -= 61 * DL_SECOND;
}

static int waits; /* lines that say that a command waits for another launcher */
static void (*during_wait)(void);

/* The command waits: let that launcher have had its time. */
static void end_wait(void *user, const char *line)
{
    if (!strstr(line, "waiting for it, at most 60 s")) return;
    const fixture *f = user;
    waits++;
    CHECK_INT(DL_JOB_PENDING, f->book.ranks[1].job.state); /* it may be started now */
    CHECK_INT(0, launches[1][0]);
    if (during_wait) during_wait();
    during_wait = NULL;
    abandon(user);
}

static void abandon_during_wait(fixture *f)
{
    waits = 0;
    f->control.user = f;
    f->control.on_notice = end_wait;
}

TEST(cancel_stops_a_replica_that_was_started_and_not_recorded)
{
    fixture *f = begin_half_started("half");
    abandon_during_wait(f);
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(1, waits);
    CHECK_INT(1, cancels[0]);
    CHECK_INT(DL_JOB_LOST, f->book.ranks[1].job.state);
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_control_follow(&f->control));
    CHECK_INT(DL_JOB_CANCELLED, f->book.ranks[0].job.state);
    CHECK_INT(0, launches[1][0]);
    dl_book_close(&f->book);
}

/* The backend does not keep names apart, so that taking over early would start a replica twice. */
TEST(announcement_is_taken_over_by_this_clock_alone)
{
    static const double differs[] = {-3600, 3600}; /* the clock of the other launcher */
    dl_executor careless = fake;
    careless.caps.exactly_once = false;
    for (int i = 0; i < 2; i++) {
        fixture *f = begin_half_started(i ? "ahead" : "behind");
        f->control.executor = &careless;
        for (int r = 0; r < 2; r++)
            f->book.ranks[r].started_at += differs[i];
        abandon_during_wait(f);
        CHECK_OK(dl_control_start(&f->control));
        CHECK_INT(1, waits);
        CHECK_INT(1, launches[1][0]);
        dl_book_close(&f->book);
    }
}

TEST(launcher_that_looks_once_takes_over_an_old_announcement)
{
    dl_executor careless = fake;
    careless.caps.exactly_once = false;
    fixture *f = begin("old-start", 2, "0");
    add_record(&f->book, "{\"format\":1,\"what\":\"start\",\"at\":1000,\"by\":\"another\","
                         "\"generation\":0,\"ranks\":[0,1],\"why\":\"\"}");
    open_again(f, "old-start");
    f->control.executor = &careless;
    abandon_during_wait(f);
    CHECK_OK(dl_control_start(&f->control));
    CHECK_INT(1, waits);
    CHECK_INT(1, launches[0][0] * launches[1][0]);
    stop = 1; /* nothing is left to wait for */
    CHECK_OK(dl_control_start(&f->control));
    dl_book_close(&f->book);
}

TEST(poll_names_a_replica_whose_launcher_ended_before_it_recorded_the_start)
{
    fixture *f = begin_half_started("named");
    CHECK_OK(dl_control_poll(&f->control));
    CHECK_CONTAINS("it may run", f->book.ranks[0].job.message);
    dl_book_close(&f->book);
}

TEST(collect_after_a_cancel_stops_a_replica_that_was_not_recorded_and_ends)
{
    fixture *f = begin_half_started("collect-half");
    CHECK_OK(dl_book_cancel(&f->book));
    abandon(f);
    CHECK_OK(dl_control_collect(&f->control, 60));
    CHECK_INT(1, cancels[0]);
    CHECK_INT(DL_JOB_CANCELLED, f->book.ranks[0].job.state);
    CHECK_INT(DL_JOB_LOST, f->book.ranks[1].job.state);
    dl_book_close(&f->book);
}

TEST(complete_run_does_not_wait_for_a_replica_that_was_announced_and_not_started)
{
    fixture *f = begin_half_started("complete");
    abandon(f);
    run_is_done_after = 0;
    CHECK_OK(dl_control_follow(&f->control));
    CHECK_INT(DL_JOB_CANCELLED, f->book.ranks[0].job.state); /* no poll has seen it run */
    CHECK_INT(DL_JOB_LOST, f->book.ranks[1].job.state);
    CHECK_INT(0, launches[1][0]);
    dl_book_close(&f->book);
}

static dl_book other; /* the same book, by another launcher */

static void name_r1(void)
{
    dl_job job = other.ranks[1].job;
    launches[1][0]++;
    snprintf(job.id, sizeof job.id, "id-%s", job.name);
    CHECK_OK(dl_book_read(&other));
    CHECK_OK(dl_book_handles(&other, &job, 1));
}

TEST(cancel_stops_a_replica_whose_launcher_names_it_meanwhile)
{
    fixture *f = begin_half_started("named-late");
    CHECK_OK(dl_book_open(&other, scratch_path("named-late"), run, &fake));
    during_wait = name_r1;
    abandon_during_wait(f);
    CHECK_OK(dl_control_cancel(&f->control));
    CHECK_INT(1, waits);
    CHECK_INT(1, cancels[0]);
    CHECK_INT(1, cancels[1]);
    dl_book_close(&other);
    dl_book_close(&f->book);
}

static char notices[2][256];
static int n_notices;

/* Follow until there are two lines, of which the first one says that the launcher waits. */
static void end_after_report(void *user, const char *line)
{
    snprintf(notices[n_notices < 2 ? n_notices : 1], sizeof notices[0], "%s", line);
    if (++n_notices == 1) abandon(user);
}

TEST(launcher_that_follows_adopts_what_the_backend_has_and_says_why_it_waits_for_the_rest)
{
    dl_executor careless = fake;
    careless.caps.exactly_once = false;
    fixture *f = begin_half_started("follow-half");
    f->control.executor = &careless;
    f->control.user = f;
    f->control.on_notice = end_after_report;
    n_notices = 0;
    fate[0][0] = fate[1][0] = DL_JOB_SUCCEEDED;
    CHECK_STATUS(DILOCO_EIO, dl_control_follow(&f->control)); /* its store never says complete */
    CHECK_STR("r1: another launcher has announced the start and not recorded it: it is at work, or "
              "has ended; waiting for it, at most 60 s, so that none is started twice",
              notices[0]);
    CHECK_STR("id-diloco-1f0c2ab9-r0-g0", f->book.ranks[0].job.id);
    CHECK_INT(1, launches[0][0]); /* by the launcher that was killed */
    CHECK_INT(1, launches[1][0]);
    dl_book_close(&f->book);
}

TEST(wait_for_several_announced_replicas_is_one_line)
{
    fixture *f = begin_half_started("one-line");
    f->control.user = f;
    f->control.on_notice = end_after_report;
    n_notices = 0;
    dl_unnamed_report(&f->control, "none is left running");
    dl_unnamed_report(&f->control, "none is left running");
    CHECK_INT(1, n_notices);
    CHECK_CONTAINS("r0 and 1 more: another launcher", notices[0]);
    CHECK_CONTAINS("so that none is left running", notices[0]);
    dl_book_close(&f->book);
}

TEST_MAIN(cancel_stops_a_replica_that_was_started_and_not_recorded,
          announcement_is_taken_over_by_this_clock_alone,
          launcher_that_looks_once_takes_over_an_old_announcement,
          poll_names_a_replica_whose_launcher_ended_before_it_recorded_the_start,
          collect_after_a_cancel_stops_a_replica_that_was_not_recorded_and_ends,
          complete_run_does_not_wait_for_a_replica_that_was_announced_and_not_started,
          cancel_stops_a_replica_whose_launcher_names_it_meanwhile,
          launcher_that_follows_adopts_what_the_backend_has_and_says_why_it_waits_for_the_rest,
          wait_for_several_announced_replicas_is_one_line)
