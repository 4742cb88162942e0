/* command_test.c - the time limit of a program, and the state of this process beside it. */
#include "launch/command.h"

#include "check.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Run a line of a shell for at most `patience`. */
static diloco_status run_shell(dl_command_result *result, const char *line, dl_time patience)
{
    const char *const argv[] = {"sh", "-c", line, NULL};
    return dl_command_do(result, &(dl_command_run){.argv = argv, .patience = patience});
}

TEST(program_that_closes_its_output_and_runs_on_is_killed_after_the_patience)
{
    dl_command_result result;
    const dl_time begin = dl_clock_now();
    CHECK_STATUS(DILOCO_ETIMEDOUT,
                 run_shell(&result, "exec >&- 2>&-; sleep 20", 300 * DL_MILLISECOND));
    CHECK_CONTAINS("sh did not end in time", diloco_error_text());
    CHECK(dl_clock_now() - begin < 10 * DL_SECOND);
}

TEST(program_that_closes_its_output_and_ends_in_time_has_its_exit_code)
{
    dl_command_result result;
    CHECK_OK(run_shell(&result, "echo out; exec >&- 2>&-; sleep 0.1; exit 3", 20 * DL_SECOND));
    CHECK_INT(3, result.exit_code);
    CHECK_STR("out\n", dl_buf_str(&result.out));
    dl_buf_deinit(&result.out);
}

TEST(words_of_a_program_that_failed_end_without_a_full_stop)
{
    dl_command_result result;
    CHECK_OK(run_shell(&result, "echo 'it is unreachable. ' >&2; exit 1", 20 * DL_SECOND));
    CHECK_STR("it is unreachable", result.err);
    dl_buf_deinit(&result.out);
}

static volatile sig_atomic_t broken_pipes;
static void count_broken_pipe(int number)
{
    (void)number;
    broken_pipes++;
}

/* The handler of SIGPIPE while a program runs is the one from before. */
static diloco_status check_handler(void *user, const char *line, size_t len)
{
    struct sigaction now;
    (void)line, (void)len;
    sigaction(SIGPIPE, NULL, &now);
    *(bool *)user = now.sa_handler == count_broken_pipe;
    return DILOCO_OK;
}

TEST(program_that_reads_no_input_sends_no_signal_and_changes_no_handler)
{
    static char much[1 << 20];
    const char *const argv[] = {"sh", "-c", "exec <&-; echo line", NULL};
    struct sigaction count = {.sa_handler = count_broken_pipe}, before;
    bool kept = false;
    int exit_code;
    sigaction(SIGPIPE, &count, &before);
    memset(much, 'x', sizeof much);
    CHECK_OK(dl_command_lines(&exit_code, argv, much, sizeof much, check_handler, &kept));
    CHECK(kept);
    CHECK_INT(0, broken_pipes);
    CHECK_INT(0, raise(SIGPIPE)); /* it is not blocked afterwards */
    CHECK_INT(1, broken_pipes);
    sigaction(SIGPIPE, &before, NULL);
}

static int count_files(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        n++;
    if (folder) closedir(folder);
    return n;
}

TEST(pipes_are_closed_when_there_are_too_many_open_files)
{
    dl_command_result result;
    struct rlimit before, few;
    CHECK_INT(0, getrlimit(RLIMIT_NOFILE, &before));
    const int files = count_files(), lowest = dup(0);
    close(lowest);
    few = before;
    few.rlim_cur = (rlim_t)lowest + 5; /* two pipes of three */
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &few));
    const diloco_status status = run_shell(&result, "exit 0", DL_SECOND);
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &before));
    CHECK_STATUS(DILOCO_EIO, status);
    CHECK_INT(files, count_files());
}

TEST(exit_code_that_the_system_dropped_is_an_error_and_no_success)
{
    dl_command_result result;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    CHECK_INT(0, sigaction(SIGCHLD, &ignore, &before));
    const diloco_status status = run_shell(&result, "exit 3", 20 * DL_SECOND);
    CHECK_INT(0, sigaction(SIGCHLD, &before, NULL));
    CHECK_STATUS(DILOCO_EIO, status);
    CHECK_CONTAINS("SIGCHLD", diloco_error_text());
}

static diloco_status keep_line(void *user, const char *line, size_t len)
{
    snprintf(user, 128, "%.*s", (int)len, line);
    return DILOCO_OK;
}

TEST(program_does_not_ignore_the_end_of_its_children_because_this_process_does)
{
    static const char *const argv[] = {"grep", "SigIgn:", "/proc/self/status", NULL};
    char line[128] = "";
    int exit_code;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    CHECK_INT(0, sigaction(SIGCHLD, &ignore, &before));
    (void)!dl_command_lines(&exit_code, argv, NULL, 0, keep_line, line);
    CHECK_INT(0, sigaction(SIGCHLD, &before, NULL));
    const char *digits = strrchr(line, '\t');
    CHECK(digits);
    CHECK_INT(0, strtoull(digits, NULL, 16) & 1ULL << (SIGCHLD - 1));
}

TEST_MAIN(program_that_closes_its_output_and_runs_on_is_killed_after_the_patience,
          program_that_closes_its_output_and_ends_in_time_has_its_exit_code,
          words_of_a_program_that_failed_end_without_a_full_stop,
          program_that_reads_no_input_sends_no_signal_and_changes_no_handler,
          pipes_are_closed_when_there_are_too_many_open_files,
          exit_code_that_the_system_dropped_is_an_error_and_no_success,
          program_does_not_ignore_the_end_of_its_children_because_this_process_does)
