/* slurm_script_test.c - the script of a Slurm job, run by a shell without Slurm. */
#include "launch/slurm_script.h"

#include "check.h"
#include "launch/command.h"
#include "launch/program.h"
#include "scratch.h"

static const char run[] = "1f0c2ab9000000000000000000000000";
static const char *const arguments[] = {"join", "{rank}", "part-{rank}-of it's {rank}", NULL};
static const char *const none[] = {NULL};

/* A replica that writes its rank and its arguments into its working folder. */
static const char program[] =
    "#!/bin/sh\nprintf %s \"$DILOCO_RANK\" >rank\nprintf '%s;' \"$@\" >arguments\n";

static const char *contents(const char *dir, const char *name)
{
    static char text[256];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Run rank 3 of generation 0, whose files are in `dir`. */
static void run_script(dl_command_result *result, const char *dir, bool changed)
{
    static dl_config config;
    char digest[DL_PROGRAM_DIGEST + 1], path[PATH_MAX];
    dl_buf script;
    dl_config_init(&config);
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = dir,
                                 .program = scratch_write("program", program, sizeof program - 1),
                                 .argv = arguments,
                                 .env = none,
                                 .secrets = none};
    CHECK_OK(dl_program_digest(digest, spec.program));
    CHECK_OK(dl_program_install(&spec, digest));
    snprintf(path, sizeof path, "%s/bin/%s/diloco", dir, digest);
    if (changed) CHECK(truncate(path, 1) == 0);
    dl_buf_init(&script, 1 << 16);
    CHECK_OK(dl_slurm_script(&script, &spec, 0, digest));
    const char *const argv[] = {"env", "SLURM_ARRAY_TASK_ID=3", "sh",
                                "-c",  dl_buf_str(&script),     NULL};
    CHECK_OK(dl_command_do(result, &(dl_command_run){.argv = argv}));
    dl_buf_deinit(&script);
}

TEST(program_is_found_whatever_the_name_of_its_folder)
{
    static const char *const names[] = {"plain", "new\nline", "back\\slash", "it's $one"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dl_command_result result;
        const char *dir = scratch_folder(names[i]);
        run_script(&result, dir, false);
        CHECK_STR("", dl_buf_str(&result.out));
        CHECK_INT(0, result.exit_code);
        CHECK_STR("3", contents(dir, "rank"));
        CHECK_STR("join;3;part-3-of it's 3;", contents(dir, "arguments"));
        CHECK_STR("exit 0 0\n", contents(dir, "diloco-1f0c2ab9-r3-g0/exit"));
        dl_buf_deinit(&result.out);
    }
}

TEST(changed_program_is_not_run)
{
    dl_command_result result;
    run_script(&result, scratch_folder("changed"), true);
    CHECK_STR("the program was changed\n", dl_buf_str(&result.out));
    CHECK_INT(1, result.exit_code);
    dl_buf_deinit(&result.out);
}

TEST_MAIN(program_is_found_whatever_the_name_of_its_folder, changed_program_is_not_run)
