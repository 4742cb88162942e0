/* ssh_hosts_test.c - a launch over ssh that fails in part, by a script in the place of ssh. */
#include "launch/executor_rows.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

/* A host that has the program, started r0, and could not start r1. */
static const char ssh[] =
    "#!/bin/sh\n"
    "case \"$*\" in *uname*) uname -sm; echo there; exit;; esac\n"
    "while read -r line; do :; done\n"
    "echo '{\"format\":1,\"jobs\":[{\"name\":\"diloco-1f0c2ab9-r0-g0\",\"state\":\"STARTING\","
    "\"code\":-1,\"message\":\"\"}],\"error\":\"No space left on device\"}'\n";

TEST(replica_that_was_started_before_another_failed_has_its_id)
{
    static dl_config config;
    char path[4096];
    dl_job jobs[2];
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "alice@a",
                                 .dir = "dir",
                                 .program = "/proc/self/exe",
                                 .argv = none,
                                 .env = none,
                                 .secrets = none};
    dl_config_init(&config);
    snprintf(path, sizeof path, "%s:%s", scratch_folder("bin"), getenv("PATH"));
    CHECK_INT(0, setenv("PATH", path, 1));
    CHECK_INT(0, chmod(scratch_write("bin/ssh", ssh, sizeof ssh - 1), 0700));
    for (uint32_t i = 0; i < 2; i++)
        dl_job_init(&jobs[i], run, i, 0);
    CHECK_STATUS(DILOCO_EIO, dl_executor_ssh.launch(&spec, jobs, 2));
    CHECK_CONTAINS("alice@a: No space left on device", diloco_error_text());
    CHECK(dl_executor_ssh.is_id(&jobs[0]));
    CHECK_CONTAINS("alice@a ", jobs[0].id);
    CHECK_STR("", jobs[1].id);
}

TEST_MAIN(replica_that_was_started_before_another_failed_has_its_id)
