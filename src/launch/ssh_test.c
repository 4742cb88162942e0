/* ssh_test.c - the commands that are sent to a host, run by a shell of this machine: a script named
 * ssh is first in PATH. */
#include "launch/executor.h"
#include "launch/program.h"

#include "check.h"
#include "scratch.h"

#include <sys/stat.h>

static const char *const arguments[] = {"join", NULL};
static const char *const none[] = {NULL};

/* This program is also the one that is uploaded. The variable makes it answer as `diloco host`
 * does, before a test begins. */
static const char ssh[] = "#!/bin/sh\nfor last; do :; done\nSSH_TEST_HOST=1 exec sh -c \"$last\"\n";

__attribute__((constructor)) static void answer(void)
{
    char bytes[4096];
    if (!getenv("SSH_TEST_HOST")) return;
    while (read(STDIN_FILENO, bytes, sizeof bytes) > 0)
        ;
    puts("{\"format\":1,\"jobs\":[{\"name\":\"diloco-1f0c2ab9-r0-g0\",\"state\":\"RUNNING\","
         "\"code\":-1,\"message\":\"\"}]}");
    fflush(stdout);
    _exit(0);
}

/* Put the script first in PATH. */
static void use_script(void)
{
    const char *before = getenv("PATH");
    char path[2 * PATH_MAX];
    if (before && strstr(before, scratch_path("bin")) == before) return;
    scratch_folder("bin");
    CHECK(chmod(scratch_write("bin/ssh", ssh, sizeof ssh - 1), 0700) == 0);
    snprintf(path, sizeof path, "%s:%s", scratch_path("bin"), before ? before : "");
    CHECK(setenv("PATH", path, 1) == 0);
}

TEST(program_is_found_whatever_the_name_of_its_folder)
{
    static const char *const names[] = {"plain", "new\nline", "back\\slash", "it's $one"};
    static dl_config config;
    char self[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const dl_executor *executor;
    dl_launch_spec spec = {.run = "1f0c2ab9000000000000000000000000",
                           .config = &config,
                           .program = self,
                           .argv = arguments,
                           .env = none,
                           .secrets = none};
    use_script();
    dl_config_init(&config);
    CHECK_OK(dl_executor_find(&executor, &spec.on, "ssh://host"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dl_job job;
        spec.dir = scratch_path(names[i]);
        dl_job_init(&job, spec.run, 0, 0);
        CHECK_OK(executor->launch(&spec, &job, 1));
        CHECK_INT(DL_JOB_RUNNING, job.state);
        CHECK_CONTAINS("host ", job.id);
    }
}

/* `cd dir/…` would go to the folder of CDPATH. */
TEST(program_is_stored_below_the_login_folder_although_cdpath_has_its_path)
{
    static dl_config config;
    char self[PATH_MAX] = "", digest[DL_PROGRAM_DIGEST + 1], other[PATH_MAX + 128], here[PATH_MAX];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const dl_executor *executor;
    dl_job job;
    dl_launch_spec spec = {.run = "1f0c2ab9000000000000000000000000",
                           .config = &config,
                           .dir = "dir",
                           .program = self,
                           .argv = arguments,
                           .env = none,
                           .secrets = none};
    use_script();
    dl_config_init(&config);
    CHECK_OK(dl_executor_find(&executor, &spec.on, "ssh://host"));
    CHECK_OK(dl_program_digest(digest, self));
    snprintf(other, sizeof other, "%s/dir/bin/%s", scratch_path("other"), digest);
    CHECK_OK(dl_dir_make(other));
    CHECK(setenv("CDPATH", scratch_path("other"), 1) == 0);
    CHECK(getcwd(here, sizeof here));
    CHECK(chdir(scratch_folder("login")) == 0);
    dl_job_init(&job, spec.run, 0, 0);
    CHECK_OK(executor->launch(&spec, &job, 1));
    CHECK_INT(DL_JOB_RUNNING, job.state);
    CHECK(chdir(here) == 0);
    CHECK(unsetenv("CDPATH") == 0);
}

TEST_MAIN(program_is_found_whatever_the_name_of_its_folder,
          program_is_stored_below_the_login_folder_although_cdpath_has_its_path)
