/* processes_test.c - processes that end in every way, played by a shell. The shell gets the
 * replica's name as $0, its settings at descriptor 3 and its events at 4. */
#include "cli/crew/processes.h"

#include "check.h"

#include <signal.h>
#include <unistd.h>

static const dl_replica_name names[2] = {"r0", "r1"};
static char heard[4096], notices[1024];
static int signal_at_event; /* not 0: raise it here at each event "ready" */

static void on_event(void *user, size_t replica, dl_json_value event)
{
    char kind[32];
    size_t used = strlen(heard);
    (void)user;
    CHECK_OK(dl_json_read_str(kind, sizeof kind, event, "event"));
    snprintf(heard + used, sizeof heard - used, "%zu:%s;", replica, kind);
    if (signal_at_event && strcmp(kind, "ready") == 0) raise(signal_at_event);
}

static void on_notice(void *user, const char *line)
{
    size_t used = strlen(notices);
    (void)user;
    snprintf(notices + used, sizeof notices - used, "%s;", line);
}

static diloco_status run(const char *script, size_t n, int64_t restarts)
{
    const char *const command[] = {"/bin/sh", "-c", script, NULL};
    dl_buf settings;
    dl_buf_init(&settings, 100);
    CHECK_OK(dl_buf_addf(&settings, "hello"));
    const dl_launch plan = {.command = command,
                            .names = names,
                            .n = n,
                            .settings = &settings,
                            .restarts = restarts,
                            .on_event = on_event,
                            .on_notice = on_notice};
    heard[0] = notices[0] = '\0';
    diloco_status status = dl_launch_run(&plan);
    dl_buf_deinit(&settings);
    return status;
}

#define SAY(event)   "echo '{\"event\":\"" event "\"}' >&4; "
#define EXIT(status) "echo '{\"event\":\"exit\",\"status\":" #status ",\"text\":\"why\"}' >&4; "

TEST(settings_and_events_reach_the_other_side)
{
    CHECK_OK(run("echo \"{\\\"event\\\":\\\"$(cat /proc/self/fd/3)-$0\\\"}\" >&4; " EXIT(0), 2, 0));
    CHECK_CONTAINS("0:hello-r0;", heard);
    CHECK_CONTAINS("1:hello-r1;", heard);
}

TEST(a_line_may_come_in_pieces)
{
    CHECK_OK(run("printf '{\"event\":' >&4; sleep 0.05; printf '\"a\"}\\n{\"event\":\"b\"}\\n' "
                 ">&4; " EXIT(0),
                 1, 0));
    CHECK_STR("0:a;0:b;", heard);
}

TEST(a_failure_stops_the_others_and_is_the_launchs)
{
    CHECK_STATUS(DILOCO_EUNREACHABLE,
                 run("stop() { " SAY("stopped") EXIT(4) "exit; }; case $0 in r0) " EXIT(
                         3) ";; *) "
                            "trap stop TERM; while :; do sleep 0.02; done;; esac",
                     2, 0));
    CHECK_STR("r0: why", diloco_error_text());
}

TEST(an_end_without_a_word_is_a_failure)
{
    CHECK_STATUS(DILOCO_EIO, run("exit 7", 1, 0));
    CHECK_STR("r0: ended with code 7 and no error message", diloco_error_text());
}

TEST(output_that_is_not_json_is_a_failure)
{
    CHECK_STATUS(DILOCO_EPROTO, run("echo nonsense >&4", 1, 0));
}

TEST(a_killed_replica_is_started_again)
{
    char mark[] = "/tmp/dl_launch_XXXXXX", script[256];
    int fd = mkstemp(mark);
    CHECK(fd >= 0);
    close(fd);
    snprintf(script, sizeof script,
             "if [ -e %s ]; then rm %s; kill -9 $$; fi; " SAY("alive") EXIT(0), mark, mark);
    CHECK_OK(run(script, 1, 1));
    CHECK_STR("0:alive;", heard);
    CHECK_CONTAINS("r0 was killed by signal 9 (Killed); started again, 1 of 1;", notices);
    CHECK(access(mark, F_OK) != 0);
}

TEST(restarts_are_counted)
{
    CHECK_STATUS(DILOCO_EIO, run(SAY("try") "kill -9 $$", 1, 2));
    CHECK_STR("0:try;0:try;0:try;", heard);
    CHECK_CONTAINS("r0: killed by signal 9 (Killed) after 2 restarts", diloco_error_text());
}

TEST(the_first_interrupt_asks_and_the_replicas_end_by_themselves)
{
    signal_at_event = SIGINT;
    CHECK_STATUS(DILOCO_EINTERRUPTED,
                 run("stop() { " SAY("saved") EXIT(4) "exit; }; trap stop TERM; " SAY(
                         "ready") "while :; do sleep 0.02; done",
                     1, 3));
    signal_at_event = 0;
    CHECK_STR("0:ready;0:saved;", heard);
    CHECK_CONTAINS("stopping", notices);
}

static dl_replica_name given[2];
static diloco_status take_another(void *user, size_t replica)
{
    (void)user;
    if (!strcmp(given[replica], "r7")) return dl_fail(DILOCO_EUNREACHABLE, "no store");
    snprintf(given[replica], sizeof given[replica], strcmp(given[replica], "r0") ? "r7" : "r5");
    return DILOCO_OK;
}

/* Like run, but the first replica has a new name. */
static diloco_status run_new(const char *script)
{
    static const bool is_new[] = {true, false};
    const char *const command[] = {"/bin/sh", "-c", script, NULL};
    dl_buf settings;
    dl_buf_init(&settings, 100);
    const dl_launch plan = {.command = command,
                            .names = (const dl_replica_name *)given,
                            .is_new = is_new,
                            .n = 2,
                            .settings = &settings,
                            .on_event = on_event,
                            .on_notice = on_notice,
                            .on_taken = take_another};
    strcpy(given[0], "r0");
    strcpy(given[1], "r1");
    heard[0] = notices[0] = '\0';
    const diloco_status status = dl_launch_run(&plan);
    dl_buf_deinit(&settings);
    return status;
}

#define FENCED    "echo '{\"event\":\"exit\",\"status\":'$FENCED',\"text\":\"why\"}' >&4; "
#define AT(phase) "echo '{\"event\":\"progress\",\"phase\":\"" phase "\"}' >&4; "

TEST(a_new_name_that_another_was_quicker_to_take_is_given_up_for_the_next)
{
    char fenced[8];
    snprintf(fenced, sizeof fenced, "%d", (int)DILOCO_EFENCED);
    setenv("FENCED", fenced, 1);
    CHECK_OK(run_new(AT("join") "case $0$1 in r0--new) " FENCED ";; *) " EXIT(0) "esac"));
    CHECK_STR("r5", given[0]);
    CHECK_STR("r1", given[1]);
    CHECK_CONTAINS("took the name r0 first: this replica is now r5;", notices);
    /* not after the claim, not by a name that is its own, and not without an end */
    CHECK_STATUS(DILOCO_EFENCED,
                 run_new("case $0 in r0) " AT("train") FENCED ";; *) " EXIT(0) "esac"));
    CHECK_STR("r0", given[0]);
    CHECK_STATUS(DILOCO_EFENCED, run_new("case $0 in r1) " FENCED ";; *) " EXIT(0) "esac"));
    CHECK_STATUS(DILOCO_EUNREACHABLE, run_new("case $0 in r1) " EXIT(0) ";; *) " FENCED "esac"));
    CHECK_STR("r7: no store", diloco_error_text());
}

TEST(the_second_interrupt_kills)
{
    signal_at_event = SIGINT;
    CHECK_STATUS(DILOCO_EINTERRUPTED, run("again() { " SAY("ready") "}; trap again TERM; " SAY(
                                              "ready") "while :; do sleep 0.02; done",
                                          1, 3));
    signal_at_event = 0;
    CHECK_STR("0:ready;0:ready;", heard);
}

TEST(repeated_terminations_leave_time_to_save)
{
    signal_at_event = SIGTERM;
    CHECK_STATUS(DILOCO_EINTERRUPTED,
                 run("n=0; again() { n=$((n + 1)); " SAY("ready") "}; trap again TERM; " SAY(
                         "ready") "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.2; " SAY("saved")
                         EXIT(4),
                     1, 3));
    signal_at_event = 0;
    CHECK_STR("0:ready;0:ready;0:saved;", heard);
    raise(SIGTERM); /* until the process has ended */
}

TEST(a_replica_that_gets_a_signal_stops_all)
{
    CHECK_STATUS(DILOCO_EINTERRUPTED, run(EXIT(4), 1, 3));
    CHECK_STR("r0: why", diloco_error_text());
}

TEST(a_program_that_is_not_there_is_a_failure)
{
    const char *const command[] = {"/nowhere/diloco", NULL};
    dl_buf settings;
    dl_buf_init(&settings, 100);
    const dl_launch plan = {.command = command,
                            .names = names,
                            .n = 1,
                            .settings = &settings,
                            .on_event = on_event,
                            .on_notice = on_notice};
    CHECK_STATUS(DILOCO_EIO, dl_launch_run(&plan));
    CHECK_CONTAINS("code 127", diloco_error_text());
}

TEST_MAIN(settings_and_events_reach_the_other_side, a_line_may_come_in_pieces,
          a_failure_stops_the_others_and_is_the_launchs, an_end_without_a_word_is_a_failure,
          output_that_is_not_json_is_a_failure, a_killed_replica_is_started_again,
          restarts_are_counted,
          a_new_name_that_another_was_quicker_to_take_is_given_up_for_the_next,
          the_first_interrupt_asks_and_the_replicas_end_by_themselves, the_second_interrupt_kills,
          repeated_terminations_leave_time_to_save, a_replica_that_gets_a_signal_stops_all,
          a_program_that_is_not_there_is_a_failure)
