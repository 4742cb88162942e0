/* modal_test.c - answers of the script that `modal run` gets, by a script in the place of modal. */
#include "launch/executor_rows.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};

/* Poll one job; `modal` prints this answer. */
static diloco_status poll_with(dl_job *job, const char *answer)
{
    static dl_config config;
    char script[1024];
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .secrets = none};
    dl_config_init(&config);
    dl_job_init(job, spec.run, 0, 0);
    strcpy(job->id, "sb-1");
    snprintf(script, sizeof script,
             "#!/bin/sh\nwhile read -r line; do :; done\necho '{\"answers\":[%s]}'\n", answer);
    CHECK_INT(0, chmod(scratch_write("bin/modal", script, strlen(script)), 0700));
    return dl_executor_modal.poll(&spec, job, 1);
}

TEST(error_of_any_length_is_an_error)
{
    char answer[600], words[451];
    dl_job job;
    CHECK_INT(0, setenv("PATH", scratch_folder("bin"), 1));
    CHECK_OK(poll_with(&job, "{\"id\":\"sb-1\",\"code\":null}"));
    CHECK_INT(DL_JOB_RUNNING, job.state);
    CHECK_STATUS(DILOCO_EUNREACHABLE, poll_with(&job, "{\"error\":\"\",\"again\":true}"));
    CHECK_INT(DL_JOB_PENDING, job.state);
    memset(words, 'x', sizeof words);
    words[sizeof words - 1] = '\0';
    snprintf(answer, sizeof answer, "{\"error\":\"%s\",\"again\":false}", words);
    CHECK_STATUS(DILOCO_EREFUSED, poll_with(&job, answer));
    CHECK_CONTAINS("modal: xxx", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, poll_with(&job, "{\"error\":\"No image.\",\"again\":false}"));
    CHECK_STR("diloco-1f0c2ab9-r0-g0: modal: No image", diloco_error_text());
}

static diloco_status drop_line(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
    return DILOCO_OK;
}

TEST(sandbox_of_another_name_is_neither_stopped_nor_read)
{
    static dl_config config;
    static const char script[] =
        "#!/bin/sh\nfound=\n"
        "while read -r line; do\n"
        "case $line in *'name\\\":\\\"diloco-1f0c2ab9-r0-g0'*) found=1; esac\n"
        "done\n"
        "[ -n \"$found\" ] && echo '{\"answers\":[{\"other\":true}]}'\n";
    dl_job job;
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .secrets = none};
    dl_config_init(&config);
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, "sb-1");
    CHECK_INT(0, setenv("PATH", scratch_folder("stop"), 1));
    CHECK_INT(0, chmod(scratch_write("stop/modal", script, strlen(script)), 0700));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_modal.cancel(&spec, &job, 1));
    CHECK_CONTAINS("sb-1 for it, but that is another job", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_modal.logs(&spec, &job, false, drop_line, NULL));
    CHECK_CONTAINS("neither stopped nor read", diloco_error_text());
    CHECK_OK(dl_executor_modal.poll(&spec, &job, 1));
    CHECK_INT(DL_JOB_LOST, job.state);
    CHECK_CONTAINS("not ours", job.message);
}

TEST_MAIN(error_of_any_length_is_an_error, sandbox_of_another_name_is_neither_stopped_nor_read)
