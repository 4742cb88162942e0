/* host_test.c - processes of this machine that are asked to stop. */
#include "base/clock.h"
#include "launch/host.h"

#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <signal.h>

static const char *const none[] = {NULL};

/* Wait until the job has this state. */
static void wait_for(dl_job *job, const char *dir, dl_job_state state)
{
    const dl_time due = dl_clock_now() + 60 * DL_SECOND;
    for (;;) {
        CHECK_OK(dl_host_poll(dir, job));
        if (job->state == state) return;
        if (dl_clock_now() > due) CHECK_FAIL("the replica is %s", dl_job_state_name(job->state));
        dl_clock_sleep(10 * DL_MILLISECOND);
    }
}

static void start_sleep(dl_job *job, const char *dir)
{
    static const char *const argv[] = {"/bin/sleep", "600", NULL};
    dl_job_init(job, "1f0c2ab9", 0, 0);
    CHECK_OK(dl_host_start_one(
        &(dl_host_start){.dir = dir, .name = job->name, .argv = argv, .env = none, .grace_s = 60}));
}

TEST(replica_that_is_asked_to_stop_ends)
{
    dl_job job;
    const char *dir = scratch_folder("stop");
    start_sleep(&job, dir);
    wait_for(&job, dir, DL_JOB_RUNNING);
    CHECK_OK(dl_host_cancel(dir, job.name));
    wait_for(&job, dir, DL_JOB_CANCELLED);
}

TEST(replica_of_a_launcher_that_ignores_the_end_of_children_ends)
{
    dl_job job;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    const char *dir = scratch_folder("ignore");
    CHECK_INT(0, sigaction(SIGCHLD, &ignore, &before));
    start_sleep(&job, dir);
    CHECK_INT(0, sigaction(SIGCHLD, &before, NULL));
    wait_for(&job, dir, DL_JOB_RUNNING);
    CHECK_OK(dl_host_cancel(dir, job.name));
    wait_for(&job, dir, DL_JOB_CANCELLED);
}

/* The keeper was killed, a process of the replica has the lock, and the keeper's number is that of
 * another process: this one. */
TEST(process_that_has_the_number_of_a_killed_keeper_gets_no_signal)
{
    char text[32];
    sigset_t term, pending;
    dl_job job;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const char *dir = scratch_folder("reused");
    dl_job_init(&job, "1f0c2ab9", 0, 0);
    scratch_folder("reused/diloco-1f0c2ab9-r0-g0");
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    scratch_write("reused/diloco-1f0c2ab9-r0-g0/pid", text, strlen(text));
    const char *path = scratch_write("reused/diloco-1f0c2ab9-r0-g0/lock", "", 0);
    const int low = open(path, O_RDWR | O_CLOEXEC), lock = fcntl(low, F_DUPFD_CLOEXEC, 64);
    CHECK(low >= 0 && lock >= 0);
    CHECK_INT(0, close(low));
    CHECK_INT(0, fcntl(lock, F_OFD_SETLK, &whole));
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    CHECK_INT(0, sigprocmask(SIG_BLOCK, &term, NULL));
    CHECK_OK(dl_host_poll(dir, &job));
    CHECK_INT(DL_JOB_RUNNING, job.state);
    CHECK_OK(dl_host_cancel(dir, job.name));
    CHECK_INT(0, sigpending(&pending));
    CHECK_INT(0, sigismember(&pending, SIGTERM));
    CHECK_INT(0, close(lock));
    CHECK_OK(dl_host_poll(dir, &job));
    CHECK_INT(DL_JOB_CANCELLED, job.state);
}

TEST_MAIN(replica_that_is_asked_to_stop_ends,
          replica_of_a_launcher_that_ignores_the_end_of_children_ends,
          process_that_has_the_number_of_a_killed_keeper_gets_no_signal)
