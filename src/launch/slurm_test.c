/* slurm_test.c - the words that sbatch gets, by a dry run. */
#include "launch/executor_rows.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

/* The output of a dry run with this option. The caller frees the text. */
static char *dry_run(const char *option, const char *value)
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
                                 .dir = "/shared",
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
        char *text = dry_run(rows[i].option, rows[i].value);
        CHECK_CONTAINS(rows[i].word, text);
        free(text);
    }
}

TEST_MAIN(time_limit_is_rounded_up_to_whole_minutes_and_no_further)
