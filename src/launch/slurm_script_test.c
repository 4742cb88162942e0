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

/* Run rank 3 of generation 0 with this file as its program; the rank's files are in `dir`. With
 * `changed` the installed program is damaged first. */
static void run_file(dl_command_result *result, const char *dir, const char *file, bool changed)
{
    static dl_config config;
    char digest[DL_PROGRAM_DIGEST + 1], path[PATH_MAX];
    dl_buf script;
    dl_config_init(&config);
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = dir,
                                 .program = file,
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

static void run_script(dl_command_result *result, const char *dir, bool changed)
{
    run_file(result, dir, scratch_write("program", program, sizeof program - 1), changed);
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

/* The first 20 bytes of an ELF file of x86_64: EM_X86_64 is 62, and the order is little-endian. */
static const char x86_64[20] = {'\x7f', 'E', 'L', 'F', 2, 1, 1, [16] = 2, [18] = 62};

/* Put a `uname` first in PATH that answers for this architecture. */
static void use_uname(const char *machine)
{
    char path[2 * PATH_MAX], text[128];
    const char *before = getenv("PATH");
    const int n =
        snprintf(text, sizeof text,
                 "#!/bin/sh\ncase $1 in -n) echo node7 ;; *) echo Linux %s ;; esac\n", machine);
    CHECK(chmod(scratch_write("bin/uname", text, (size_t)n), 0700) == 0);
    if (before && strstr(before, scratch_path("bin")) == before) return;
    snprintf(path, sizeof path, "%s:%s", scratch_path("bin"), before ? before : "");
    CHECK(setenv("PATH", path, 1) == 0);
}

TEST(program_for_another_architecture_is_named_and_its_exit_code_is_written)
{
    dl_command_result result;
    const char *dir = scratch_folder("other"), *file = scratch_write("elf", x86_64, sizeof x86_64);
    scratch_folder("bin");
    use_uname("riscv64");
    run_file(&result, dir, file, false);
    CHECK_STR("node7 is a machine of Linux riscv64, and the program is for Linux x86_64: set "
              "launch.binary to a diloco that was built for it\n",
              dl_buf_str(&result.out));
    CHECK_INT(3, result.exit_code);
    CHECK_STR("exit 3 0\n", contents(dir, "diloco-1f0c2ab9-r3-g0/exit"));
    dl_buf_deinit(&result.out);
    /* A node of the program's own architecture comes as far as the digest. */
    use_uname("x86_64");
    run_file(&result, dir, file, true);
    CHECK_STR("the program was changed\n", dl_buf_str(&result.out));
    dl_buf_deinit(&result.out);
}

/* A wheel has it in its name. The program is not read before. */
TEST(wheel_for_another_architecture_is_named_on_the_node)
{
    static dl_config config;
    dl_command_result result;
    dl_buf script;
    dl_config_init(&config);
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = scratch_folder("wheel"),
                                 .program = "diloco-0.2-py3-none-manylinux_2_28_x86_64.whl",
                                 .argv = arguments,
                                 .env = none,
                                 .secrets = none};
    use_uname("riscv64");
    dl_buf_init(&script, 1 << 16);
    CHECK_OK(dl_slurm_script(&script, &spec, 0, "1234"));
    const char *const argv[] = {"env", "SLURM_ARRAY_TASK_ID=3", "sh",
                                "-c",  dl_buf_str(&script),     NULL};
    CHECK_OK(dl_command_do(&result, &(dl_command_run){.argv = argv}));
    CHECK_CONTAINS("node7 is a machine of Linux riscv64, and the program is for Linux x86_64",
                   dl_buf_str(&result.out));
    CHECK_INT(3, result.exit_code);
    CHECK_STR("exit 3 0\n", contents(spec.dir, "diloco-1f0c2ab9-r3-g0/exit"));
    dl_buf_deinit(&result.out);
    dl_buf_deinit(&script);
}

TEST_MAIN(program_is_found_whatever_the_name_of_its_folder, changed_program_is_not_run,
          program_for_another_architecture_is_named_and_its_exit_code_is_written,
          wheel_for_another_architecture_is_named_on_the_node)
