/* slurm_test.c - the words that sbatch gets, by a dry run, and the tasks that scancel gets. */
#include "launch/executor_rows.h"

#include "check.h"
#include "scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

/* The output of a dry run with this option and launch.dir. The caller frees the text. */
static char *dry_run(const char *option, const char *value, const char *dir)
{
    static dl_config config;
    dl_job job;
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    CHECK(out);
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = dir,
                                 .program = scratch_write("program", "x", 1),
                                 .argv = none,
                                 .env = none,
                                 .secrets = none,
                                 .dry = out};
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, option, value, "test"));
    dl_job_init(&job, run, 0, 0);
    CHECK_OK(dl_executor_slurm.launch(&spec, &job, 1));
    CHECK_INT(0, fclose(out));
    return text;
}

TEST(time_limit_is_rounded_up_to_whole_minutes_and_no_further)
{
    static const struct {
        const char *option, *value, *word;
    } rows[] = {
        {"launch.timeout", "1", " --time=1 "},
        {"launch.timeout", "60", " --time=1 "},
        {"launch.timeout", "61", " --time=2 "},
        {"launch.timeout", "3600", " --time=60 "},
        {"launch.timeout", "3600.5", " --time=61 "},
        {"launch.grace", "30", " --signal=B:TERM@30 "},
        {"launch.grace", "31", " --signal=B:TERM@31 "},
        {"launch.grace", "30.1", " --signal=B:TERM@31 "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = dry_run(rows[i].option, rows[i].value, "/shared");
        CHECK_CONTAINS(rows[i].word, text);
        free(text);
    }
}

TEST(percent_of_the_folder_is_written_twice_for_slurm)
{
    char *text = dry_run("launch.cpus", "1", "/shared/100%u");
    CHECK_CONTAINS(" --chdir=/shared/100%u --output=/shared/100%%u/diloco-1f0c2ab9-r%a-g0/log ",
                   text);
    free(text);
}

TEST(folder_with_a_backslash_is_refused)
{
    static dl_config config;
    const dl_launch_spec spec = {.config = &config, .on = "", .dir = "/a\\b", .secrets = none};
    dl_config_init(&config);
    CHECK_STATUS(DILOCO_EINVAL, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("launch.dir = \"/a\\b\": Slurm writes no output", diloco_error_text());
}

TEST(machine_that_submits_no_jobs_is_refused_with_the_way_out)
{
    static dl_config config;
    const dl_launch_spec spec = {.config = &config, .on = "", .dir = "/a", .secrets = none};
    dl_config_init(&config);
    CHECK_INT(0, setenv("PATH", scratch_folder("alone"), 1));
    CHECK_INT(0, chmod(scratch_write("alone/sha256sum", "#!/bin/sh\n", 10), 0700));
    CHECK_STATUS(DILOCO_EINVAL, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("there is no program sbatch here: run diloco launch where jobs are submitted",
                   diloco_error_text());
}

/* Put a program of Slurm, a script of sh with these lines, before the others. */
static void replace(const char *name, const char *lines)
{
    char script[PATH_MAX + 512], path[32];
    snprintf(path, sizeof path, "bin/%s", name);
    snprintf(script, sizeof script, "#!/bin/sh\n%s\n", lines);
    CHECK_INT(0, chmod(scratch_write(path, script, strlen(script)), 0700));
}

/* The text of the file that scancel wrote; "" if it did not run. */
static const char *read_cancelled(void)
{
    static char text[256];
    FILE *file = fopen(scratch_path("cancelled"), "re");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = '\0';
    return text;
}

TEST(task_of_another_job_is_neither_stopped_nor_believed)
{
    static dl_config config;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = "/shared", .env = none, .secrets = none};
    dl_job jobs[2];
    char lines[PATH_MAX + 64];
    dl_config_init(&config);
    for (uint32_t i = 0; i < 2; i++) {
        dl_job_init(&jobs[i], run, i, 3);
        snprintf(jobs[i].id, sizeof jobs[i].id, "%u_%u", 17 + i, i);
    }
    scratch_folder("bin");
    snprintf(lines, sizeof lines, "echo \"$*\" >'%s'", scratch_path("cancelled"));
    replace("scancel", lines);
    replace("squeue", "echo '17_0|database|RUNNING|0|0|n1|None'\n"
                      "echo '18_1|diloco-1f0c2ab9-g3|RUNNING|0|0|n1|None'");
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.cancel(&spec, jobs, 2));
    CHECK_CONTAINS("diloco-1f0c2ab9-r0-g3", diloco_error_text());
    CHECK_CONTAINS("another job, database", diloco_error_text());
    CHECK_STR("18_1\n", read_cancelled());

    for (int i = 0; i < 2; i++)
        jobs[i].id[0] = '\0';
    CHECK_OK(dl_executor_slurm.find(&spec, jobs, 2));
    CHECK_STR("", jobs[0].id);
    CHECK_STR("18_1", jobs[1].id);
    for (int i = 0; i < 2; i++)
        strcpy(jobs[i].id, i ? "18_1" : "17_0");
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 2));
    CHECK_INT(DL_JOB_LOST, jobs[0].state);
    CHECK_CONTAINS("not ours", jobs[0].message);
    CHECK_CONTAINS("another job, database", jobs[0].message);
    CHECK_INT(DL_JOB_RUNNING, jobs[1].state);

    CHECK_INT(0, unlink(scratch_path("cancelled")));
    replace("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1");
    CHECK_OK(dl_executor_slurm.cancel(&spec, jobs, 1)); /* Slurm no longer has it */
    CHECK_STR("", read_cancelled());
}

TEST(version_of_sbatch_is_found_unless_requests_go_to_an_endpoint)
{
    static dl_config config;
    char text[DL_FOUND_MAX + 1];
    const dl_launch_spec spec = {.config = &config, .on = "", .dir = "/a", .secrets = none};
    dl_config_init(&config);
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    dl_executor_slurm.found(text, NULL);
    CHECK_STR("", text);
    replace("sbatch", "[ \"$*\" = --version ] && printf 'slurm-wlm 22.05.8\\nmore'");
    dl_executor_slurm.found(text, NULL);
    CHECK_STR("slurm-wlm 22.05.8", text);
    dl_executor_slurm.found(text, &spec);
    CHECK_STR("slurm-wlm 22.05.8", text);
    replace("sbatch", "printf 'slurm\\033[31m'");
    dl_executor_slurm.found(text, &spec);
    CHECK_STR("slurm", text);
    replace("sbatch", "echo slurm-wlm 22.05.8; exit 1");
    dl_executor_slurm.found(text, &spec);
    CHECK_STR("", text);
    if (!dl_executor_uses(&dl_executor_slurm, "endpoint")) return;
    replace("sbatch", "echo slurm-wlm 22.05.8");
    CHECK_OK(dl_config_set(&config, "launch.endpoint", "http://127.0.0.1:1", "test"));
    dl_executor_slurm.found(text, &spec);
    CHECK_STR("", text);
}

/* By a script in place of sbatch, with the words of Slurm 22.05. */
TEST(limit_account_and_partition_are_refused_with_the_way_out)
{
    static dl_config config;
    char path[PATH_MAX + 32];
    dl_job job;
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = scratch_path("limits"),
                                 .program = scratch_write("program", "x", 1),
                                 .argv = none,
                                 .env = none,
                                 .secrets = none};
    dl_config_init(&config);
    dl_job_init(&job, run, 0, 0);
    CHECK(!mkdir(scratch_path("bin"), 0700) || errno == EEXIST);
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", scratch_path("bin"));
    replace("squeue", "echo '9_0|other|PENDING|0|0||AssocMaxJobsLimit'");
    replace("sbatch",
            "echo 'sbatch: error: AssocMaxSubmitJobLimit\n"
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
            "(job submit limit, user'\"'\"'s size and/or time limits)' >&2\nexit 1");
    CHECK_INT(0, setenv("PATH", path, 1));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.launch(&spec, &job, 1));
    CHECK_CONTAINS("sbatch: error: AssocMaxSubmitJobLimit; Batch job submission failed: Job",
                   diloco_error_text());
    CHECK_CONTAINS("time limits); sacctmgr show assoc, or show qos", diloco_error_text());
    CHECK_STR("", job.id);
    replace("sbatch", "echo 'sbatch: error: QOSMaxCpuPerJobLimit\n"
                      "sbatch: error: Batch job submission failed: Job violates accounting/QOS "
                      "policy' >&2\nexit 1");
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.launch(&spec, &job, 1));
    CHECK_CONTAINS("or for less by launch.cpus", diloco_error_text());
    replace("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account or "
                      "account/partition combination specified' >&2\nexit 1");
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.launch(&spec, &job, 1));
    CHECK_CONTAINS("combination specified; set launch.account to an account", diloco_error_text());
    replace("sbatch", "echo 'sbatch: error: invalid partition specified: nowhere\n"
                      "sbatch: error: Batch job submission failed: Invalid partition name "
                      "specified' >&2\nexit 1");
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.launch(&spec, &job, 1));
    CHECK_CONTAINS("nowhere; Batch job submission failed: Invalid partition name specified; check "
                   "launch.queue",
                   diloco_error_text());

    strcpy(job.id, "9_0");
    replace("squeue", "echo '9_0|diloco-1f0c2ab9-g0|PENDING|0|0||AssocMaxJobsLimit'");
    CHECK_OK(dl_executor_slurm.poll(&spec, &job, 1));
    CHECK_STR("PENDING", dl_job_state_name(job.state));
    CHECK_STR("AssocMaxJobsLimit, a limit of the association: it starts once other jobs end or the "
              "limit is raised (sacctmgr show assoc)",
              job.message);
    replace("squeue", "echo '9_0|diloco-1f0c2ab9-g0|PENDING|0|0||QOSMaxCpuPerJobLimit'");
    CHECK_OK(dl_executor_slurm.poll(&spec, &job, 1));
    CHECK_STR("QOSMaxCpuPerJobLimit: it does not fit a limit of the QOS, and waits until that is "
              "changed (sacctmgr show qos)",
              job.message);
    replace("squeue", "echo '9_0|diloco-1f0c2ab9-g0|PENDING|0|0||QOSNotAllowed'");
    CHECK_OK(dl_executor_slurm.poll(&spec, &job, 1));
    CHECK_STR("QOSNotAllowed", job.message);
}

/* Slurm removes a task that waits from its array, and keeps no record of it (22.05). Rank 1 has
 * succeeded before. */
TEST(task_that_is_cancelled_while_it_waits_is_cancelled_and_not_lost)
{
    static dl_config config;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = scratch_root, .env = none, .secrets = none};
    dl_job jobs[2];
    char lines[PATH_MAX + 64];
    dl_config_init(&config);
    CHECK(!mkdir(scratch_path("bin"), 0700) || errno == EEXIST);
    for (uint32_t i = 0; i < 2; i++) {
        dl_job_init(&jobs[i], run, i, 7);
        snprintf(jobs[i].id, sizeof jobs[i].id, "17_%u", i);
        scratch_folder(jobs[i].name);
    }
    scratch_write("diloco-1f0c2ab9-r1-g7/exit", "exit 0 0\n", 9);
    snprintf(lines, sizeof lines, "echo \"$*\" >'%s'", scratch_path("waiting"));
    replace("scancel", lines);
    replace("sacct", "");
    snprintf(lines, sizeof lines,
             "[ -e '%s' ] || echo '17_0|diloco-1f0c2ab9-g7|PENDING|0|0||Priority'",
             scratch_path("waiting"));
    replace("squeue", lines);
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    CHECK_OK(dl_executor_slurm.cancel(&spec, jobs, 2));
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 2));
    CHECK_STR("CANCELLED", dl_job_state_name(jobs[0].state));
    CHECK_STR("SUCCEEDED", dl_job_state_name(jobs[1].state));
    scratch_write("diloco-1f0c2ab9-r0-g7/exit", "exit 130 0\n", 11);
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_STR("CANCELLED", dl_job_state_name(jobs[0].state));
}

/* By scancel of a person. A task that has begun was not cancelled so, nor was one of an array that
 * the controller does not have: it may have lost its state. The poll
 * needs no answer about arrays. */
TEST(task_that_another_cancels_while_it_waits_is_cancelled_if_slurm_has_its_array)
{
    static dl_config config;
    static const char *const states[] = {"CANCELLED", "LOST", "LOST", "LOST"};
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = scratch_root, .env = none, .secrets = none};
    dl_job jobs[4];
    dl_config_init(&config);
    CHECK(!mkdir(scratch_path("bin"), 0700) || errno == EEXIST);
    for (uint32_t i = 0; i < 4; i++) {
        dl_job_init(&jobs[i], run, i, 8);
        snprintf(jobs[i].id, sizeof jobs[i].id, "%s_%u", i == 2 ? "171" : "17", i);
        scratch_folder(jobs[i].name);
    }
    scratch_write("diloco-1f0c2ab9-r1-g8/log", "x", 1);
    replace("sacct", "");
    replace("squeue",
            "case \"$*\" in *--name=*) echo '17|diloco-1f0c2ab9-g8|CANCELLED|0|0||None' ;; esac");
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    dl_job_set(&jobs[3], DL_JOB_RUNNING, -1, "seen before, and has no log yet");
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 4));
    for (size_t i = 0; i < 4; i++)
        CHECK_STR(states[i], dl_job_state_name(jobs[i].state));
    dl_job_init(&jobs[0], run, 0, 8);
    strcpy(jobs[0].id, "17_0");
    replace("squeue", "case \"$*\" in *--name=*) exit 1 ;; esac");
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_STR("LOST", dl_job_state_name(jobs[0].state));
}

/* Poll ranks 0 to 4, which the queue has forgotten, with these lines of sacct. Rank 0 and 4 have an
 * exit file. */
static const dl_job *poll_forgotten(const char *sacct)
{
    static dl_job jobs[5];
    static dl_config config;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = scratch_root, .env = none, .secrets = none};
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.timeout", "3600", "test"));
    for (uint32_t i = 0; i < 5; i++) {
        dl_job_init(&jobs[i], run, i, 3);
        snprintf(jobs[i].id, sizeof jobs[i].id, "17_%u", i);
        CHECK(!mkdir(scratch_path(jobs[i].name), 0700) || errno == EEXIST);
    }
    scratch_write("diloco-1f0c2ab9-r0-g3/exit", "exit 130 0\n", 11);
    scratch_write("diloco-1f0c2ab9-r4-g3/exit", "exit 0 1\n", 9);
    CHECK(!mkdir(scratch_path("bin"), 0700) || errno == EEXIST);
    replace("squeue", "");
    replace("sacct", sacct);
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 5));
    return jobs;
}

TEST(accounting_tells_how_a_forgotten_task_ended)
{
    const dl_job *jobs =
        poll_forgotten("echo '17_0|diloco-1f0c2ab9-g3|CANCELLED by 1000|0:0|low|n1|None'\n"
                       "echo '17_1|diloco-1f0c2ab9-g3|TIMEOUT|0:0|low|n1|None'\n"
                       "echo '17_2|diloco-1f0c2ab9-g3|RUNNING|0:0|low|n1|None'\n"
                       "echo '17_3|diloco-1f0c2ab9-g3|FAILED|1:0|low|n1|None'\n"
                       "echo '17_4|diloco-1f0c2ab9-g3|COMPLETED|0:0|low|n1|None'");
    CHECK_INT(DL_JOB_CANCELLED, jobs[0].state); /* though its file has a replica's end */
    CHECK_INT(DL_JOB_FAILED, jobs[1].state);
    CHECK_INT(DL_JOB_LOST, jobs[2].state);
    CHECK_CONTAINS("no longer has", jobs[2].message);
    CHECK_INT(DL_JOB_LOST, jobs[3].state);
    CHECK_CONTAINS("ended with 1 before its script", jobs[3].message);
    CHECK_INT(DL_JOB_SUCCEEDED, jobs[4].state);
}

TEST(forgotten_task_is_known_by_its_file_alone_without_accounting)
{
    const dl_job *jobs = poll_forgotten("echo 'Slurm accounting storage is disabled' >&2\nexit 1");
    CHECK_INT(DL_JOB_LOST, jobs[0].state);
    CHECK_INT(130, jobs[0].exit_code);
    CHECK_INT(DL_JOB_LOST, jobs[1].state);
    CHECK_INT(DL_JOB_SUCCEEDED, jobs[4].state);
}

TEST_MAIN(time_limit_is_rounded_up_to_whole_minutes_and_no_further,
          percent_of_the_folder_is_written_twice_for_slurm, folder_with_a_backslash_is_refused,
          machine_that_submits_no_jobs_is_refused_with_the_way_out,
          task_of_another_job_is_neither_stopped_nor_believed,
          version_of_sbatch_is_found_unless_requests_go_to_an_endpoint,
          limit_account_and_partition_are_refused_with_the_way_out,
          task_that_is_cancelled_while_it_waits_is_cancelled_and_not_lost,
          task_that_another_cancels_while_it_waits_is_cancelled_if_slurm_has_its_array,
          accounting_tells_how_a_forgotten_task_ended,
          forgotten_task_is_known_by_its_file_alone_without_accounting)
