/* skypilot_test.c - the exit codes of `sky jobs logs`, the jobs that are stopped, and the errors of
 * `sky`, by a script in its place. */
#include "launch/executor_rows.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static diloco_status count_line(void *user, const char *line, size_t len)
{
    (void)line, (void)len;
    ++*(int *)user;
    return DILOCO_OK;
}

/* Read the output of a job; `sky` prints two lines and ends with this code. */
static diloco_status read_logs(int *lines, int code)
{
    char script[256];
    dl_job job;
    const dl_launch_spec spec = {.run = "1f0c2ab9"};
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, "17");
    snprintf(script, sizeof script,
             "#!/bin/sh\nif [ \"$2\" = queue ]; then\n"
             "echo '[{\"job_id\":17,\"job_name\":\"%s\",\"status\":\"RUNNING\"}]'\n"
             "else echo one; echo two; exit %d; fi\n",
             job.name, code);
    CHECK_INT(0, chmod(scratch_write("bin/sky", script, strlen(script)), 0700));
    *lines = 0;
    return dl_executor_skypilot.logs(&spec, &job, false, count_line, lines);
}

TEST(exit_code_that_is_the_state_of_the_job_is_no_error_of_its_logs)
{
    static const int of_the_job[] = {0, 100, 101, 103}; /* succeeded, failed, runs, cancelled */
    int lines;
    CHECK_INT(0, mkdir(scratch_path("bin"), 0700));
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    for (size_t i = 0; i < sizeof of_the_job / sizeof *of_the_job; i++) {
        CHECK_OK(read_logs(&lines, of_the_job[i]));
        CHECK_INT(2, lines);
    }
    CHECK_STATUS(DILOCO_EIO, read_logs(&lines, 102)); /* there is no such job */
    CHECK_STATUS(DILOCO_EIO, read_logs(&lines, 1));
}

TEST(job_of_another_name_is_neither_stopped_nor_read)
{
    static const char *const names[] = {"database", "diloco-1f0c2ab9-r0-g0"};
    const dl_launch_spec spec = {.run = "1f0c2ab9"};
    char script[PATH_MAX + 256];
    dl_job job;
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, "17");
    CHECK_INT(0, setenv("PATH", scratch_folder("stop"), 1));
    for (int own = 0; own < 2; own++) {
        snprintf(script, sizeof script,
                 "#!/bin/sh\nif [ \"$2\" = queue ]; then\n"
                 "echo '[{\"job_id\":17,\"job_name\":\"%s\",\"status\":\"RUNNING\"}]'\n"
                 "elif [ \"$1\" = jobs ]; then echo \"$*\" >'%s'; fi\n",
                 names[own], scratch_path("cancelled"));
        CHECK_INT(0, chmod(scratch_write("stop/sky", script, strlen(script)), 0700));
        CHECK_STATUS(own ? DILOCO_OK : DILOCO_EREFUSED,
                     dl_executor_skypilot.cancel(&spec, &job, 1));
        if (!own) CHECK_CONTAINS("another job, database", diloco_error_text());
        CHECK_INT(own ? 0 : -1, access(scratch_path("cancelled"), F_OK));
        int lines = 0;
        CHECK_STATUS(own ? DILOCO_OK : DILOCO_EREFUSED,
                     dl_executor_skypilot.logs(&spec, &job, false, count_line, &lines));
        CHECK_OK(dl_executor_skypilot.poll(&spec, &job, 1));
        CHECK_INT(own ? DL_JOB_RUNNING : DL_JOB_LOST, job.state);
        if (!own) CHECK_CONTAINS("not ours", job.message);
        if (!own) CHECK_CONTAINS("another job, database", job.message);
        dl_job found = job;
        found.id[0] = '\0';
        CHECK_OK(dl_executor_skypilot.find(&spec, &found, 1));
        CHECK_STR(own ? "17" : "", found.id);
    }
}

/* The output of `sky --version`. */
static const char *version = "skypilot, version 0.14.1";

/* Launch a job. `sky` prints its messages, and ends with `words` on stderr as SkyPilot 0.14.1 does:
 * its queue before there is a jobs controller, and its launch if `words` are not "". */
static diloco_status launch_first(dl_job *job, const char *words)
{
    static dl_config config;
    static const char *const none[] = {NULL};
    char script[2 * PATH_MAX];
    const dl_launch_spec spec = {.run = "1f0c2ab9",
                                 .config = &config,
                                 .program = "diloco",
                                 .argv = none,
                                 .env = none,
                                 .secrets = none};
    const char *mark = scratch_path("launched");
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.image", "r0-g0/diloco-1f0c2ab9-r0-g0", "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "aws/moon-1", "test"));
    dl_job_init(job, spec.run, 0, 0);
    snprintf(
        script, sizeof script,
        "#!/bin/sh\nprintf '\\033[32m\\342\\234\\223 SkyPilot API server started.\\033[0m\\n'\n"
        "if [ \"$1\" = --version ]; then echo '%s'\nelif [ $2 = launch ]; then\nprintf '%s' >&2; [ "
        "-z '%s' ] || exit 1; : >'%s'\n"
        "elif [ -e '%s' ]; then\n"
        "echo '[{\"job_id\":17,\"job_name\":\"%s\",\"status\":\"PENDING\"}]'\nelse\n"
        "echo 'sky.exceptions.ClusterNotUpError: No in-progress managed jobs.' >&2; exit 1; fi\n",
        version, words, words, mark, mark, job->name);
    CHECK_INT(0, chmod(scratch_write("first/sky", script, strlen(script)), 0700));
    return dl_executor_skypilot.launch(&spec, job, 1);
}

TEST(first_job_is_launched_though_there_is_no_jobs_controller_yet)
{
    dl_job job;
    CHECK_INT(0, setenv("PATH", scratch_folder("first"), 1));
    CHECK_OK(launch_first(&job, ""));
    CHECK_STR("17", job.id);
    CHECK_INT(0, unlink(scratch_path("launched")));
}

/* The last one has more digits than any integer. */
TEST(version_that_is_not_known_launches_nothing_and_is_named)
{
    static const char *const rows[][2] = {
        {"skypilot, version 0.15.0", "SkyPilot 0.15 is not known here"},
        {"skypilot, version 0.13.9", "SkyPilot 0.13 is not known here"},
        {"skypilot, version 0.140.0", "SkyPilot 0.140 is not known here"},
        {"skypilot, version 1.0.0.dev20260101", "SkyPilot 1.0 is not known here"},
        {"skypilot, version 1.14", "SkyPilot 1.14 is not known here"},
        {"skypilot, version unknown", "sky --version printed no version of SkyPilot"},
        {"skypilot, version 0.", "sky --version printed no version of SkyPilot"},
        {"skypilot, version 0.42949672960000000000014", "42949672960000000000014 is not known"},
    };
    dl_job job;
    CHECK_INT(0, setenv("PATH", scratch_path("first"), 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        version = rows[i][0];
        CHECK_STATUS(DILOCO_EREFUSED, launch_first(&job, ""));
        CHECK_CONTAINS(rows[i][1], diloco_error_text());
        CHECK_CONTAINS(": pip install 'skypilot==0.14.*'", diloco_error_text());
        CHECK_INT(-1, access(scratch_path("launched"), F_OK));
    }
    version = "skypilot, version 0.14.1";
}

TEST(launch_without_an_enabled_cloud_names_the_command_that_shows_them)
{
    dl_job job;
    CHECK_INT(0, setenv("PATH", scratch_path("first"), 1));
    CHECK_STATUS(DILOCO_EREFUSED,
                 launch_first(&job,
                              "sky.exceptions.NoCloudAccessError: Cloud access is not set up. "
                              "Run: \\033[1msky check\\033[0m\\n"));
    CHECK_STR(
        "diloco-1f0c2ab9-r0-g0: SkyPilot has no enabled cloud: run  sky check  to see what each "
        "cloud needs",
        diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED,
                 launch_first(&job, "a warning\\nsky.exceptions.ResourcesUnavailableError: Task "
                                    "requires AWS which is not enabled.\\nTo fix: run: "
                                    "\\033[1msky check aws\\033[0m.\\n"));
    CHECK_STR("diloco-1f0c2ab9-r0-g0: sky ended with exit code 1: sky.exceptions."
              "ResourcesUnavailableError: Task requires AWS which is not enabled. To fix: run: sky "
              "check aws",
              diloco_error_text());
}

/* The error's own text has the job's name, which the last part of this image is as well. */
TEST(option_is_named_only_if_the_words_of_sky_repeat_its_value)
{
    dl_job job;
    CHECK_INT(0, setenv("PATH", scratch_path("first"), 1));
    CHECK_STATUS(DILOCO_EREFUSED, launch_first(&job, "ValueError: out of order\\n"));
    CHECK(!strstr(diloco_error_text(), "; check"));
    CHECK_STATUS(DILOCO_EREFUSED, launch_first(&job, "ValueError: no region moon-1.\\n"));
    CHECK_CONTAINS("; check launch.region", diloco_error_text());
}

TEST_MAIN(job_of_another_name_is_neither_stopped_nor_read,
          exit_code_that_is_the_state_of_the_job_is_no_error_of_its_logs,
          first_job_is_launched_though_there_is_no_jobs_controller_yet,
          version_that_is_not_known_launches_nothing_and_is_named,
          launch_without_an_enabled_cloud_names_the_command_that_shows_them,
          option_is_named_only_if_the_words_of_sky_repeat_its_value)
