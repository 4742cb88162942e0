/* ssh_hosts_test.c - the hosts of ssh://, and a launch that fails in part, by a script in the place
 * of ssh. */
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

/* A host whose `uname` is $UNAME, and whose pip refuses every wheel. */
static const char refuses[] =
    "#!/bin/sh\n"
    "case \"$*\" in *uname*) echo \"$UNAME\"; exit;; esac\n"
    "while read -r line; do :; done\n"
    "echo 'ERROR: it is not a supported wheel on this platform.' >&2\nexit 3\n";

TEST(wheel_that_the_host_cannot_install_is_refused_with_the_way_out)
{
    static dl_config config;
    static const char name[] = "diloco-0.2-py3-none-manylinux_2_28_x86_64.whl";
    dl_job job;
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "a",
                                 .dir = "dir",
                                 .program = scratch_write(name, "x", 1),
                                 .argv = none,
                                 .env = none,
                                 .secrets = none};
    dl_config_init(&config);
    CHECK_INT(0, chmod(scratch_write("bin/ssh", refuses, sizeof refuses - 1), 0700));
    for (int other = 0; other < 2; other++) {
        CHECK_INT(0, setenv("UNAME", other ? "Linux riscv64" : "Linux x86_64", 1));
        dl_job_init(&job, run, 0, 0);
        CHECK_STATUS(DILOCO_EREFUSED, dl_executor_ssh.launch(&spec, &job, 1));
        CHECK_CONTAINS(other
                           ? "a is a machine of Linux riscv64, and the program is for Linux x86_64"
                           : "a: ERROR: it is not a supported wheel on this platform: set "
                             "launch.binary to a wheel for its architecture and its glibc",
                       diloco_error_text());
    }
}

/* Returns the status of the check of these hosts. */
static diloco_status check_hosts(const char *hosts)
{
    static dl_config config;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = hosts, .dir = "dir", .program = "/proc/self/exe"};
    dl_config_init(&config);
    return dl_executor_ssh.check(&spec);
}

TEST(ipv6_address_is_written_in_brackets_with_or_without_a_port)
{
    static const char *const good[] = {"[::1]", "[::1]:2222", "alice@[2001:db8::1],b",
                                       "alice@[fe80::1%eth0]:22"};
    static const char *const bad[] = {"::1",     "alice@fe80::1", "[::1", "::1]",
                                      "[::1]x",  "[::1]:",        "[]",   "[-oProxy:]",
                                      "[a]:22x", "a[::1]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_OK(check_hosts(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, check_hosts(bad[i]));
        CHECK_CONTAINS("brackets", diloco_error_text());
    }
}

/* The words of the first command for this host, by a dry run. The caller frees the text. */
static char *words_for(const char *host)
{
    static dl_config config;
    char *text = NULL;
    size_t len;
    dl_job job;
    FILE *out = open_memstream(&text, &len);
    CHECK(out);
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = host,
                                 .dir = "dir",
                                 .program = "/proc/self/exe",
                                 .argv = none,
                                 .env = none,
                                 .secrets = none,
                                 .dry = out};
    dl_config_init(&config);
    dl_job_init(&job, run, 0, 0);
    CHECK_OK(dl_executor_ssh.launch(&spec, &job, 1));
    CHECK_INT(0, fclose(out));
    return text;
}

TEST(ssh_gets_an_ipv6_address_without_brackets)
{
    char *text = words_for("alice@[2001:db8::1]:2222");
    CHECK_CONTAINS(" -p 2222 -- alice@2001:db8::1 ", text);
    free(text);
    text = words_for("[::1]");
    CHECK_CONTAINS(" -- ::1 ", text);
    free(text);
}

TEST_MAIN(replica_that_was_started_before_another_failed_has_its_id,
          wheel_that_the_host_cannot_install_is_refused_with_the_way_out,
          ipv6_address_is_written_in_brackets_with_or_without_a_port,
          ssh_gets_an_ipv6_address_without_brackets)
