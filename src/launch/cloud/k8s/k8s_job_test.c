/* k8s_job_test.c - the state of a replica from a Job of Kubernetes and its pods. */
#include "launch/cloud/k8s/k8s_job.h"

#include "check.h"

#include <string.h>

#define NOTE      "\"annotations\":{\"batch.kubernetes.io/job-completion-index\":\"1\"}"
#define POD(rest) "{\"items\":[{\"metadata\":{\"name\":\"p\"," NOTE "}," rest "}]}"
#define ENDED(state)                                                                               \
    POD("\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{"                     \
        "\"terminated\":" state "}}]}")

static dl_json_value parse(const char *text)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, text, strlen(text)));
    return value;
}

/* Index 1 of a Job with these texts. */
static dl_job seen(const char *kube_job, const char *pods)
{
    dl_job job;
    dl_job_init(&job, "1f0c2ab9000000000000000000000000", 1, 0);
    dl_k8s_set(&job, 1, parse(kube_job), parse(pods));
    return job;
}

TEST(an_index_is_found_in_a_list_of_ranges)
{
    CHECK(dl_k8s_lists_index("1,3-5", 1));
    CHECK(dl_k8s_lists_index("1,3-5", 4));
    CHECK(!dl_k8s_lists_index("1,3-5", 2));
    CHECK(!dl_k8s_lists_index("1,3-5", 6));
    CHECK(!dl_k8s_lists_index("", 0));
    CHECK(!dl_k8s_lists_index("x,0", 0));
    CHECK(!dl_k8s_lists_index("5-3", 4));
}

TEST(an_index_is_over_when_it_is_listed_as_completed_or_failed)
{
    const dl_json_value job =
        parse("{\"status\":{\"completedIndexes\":\"0\",\"failedIndexes\":\"2-3\"}}");
    CHECK(dl_k8s_is_over(job, 0));
    CHECK(!dl_k8s_is_over(job, 1));
    CHECK(dl_k8s_is_over(job, 3));
    CHECK(!dl_k8s_is_over(parse("{}"), 0));
}

TEST(a_completed_index_has_succeeded_without_a_pod)
{
    const dl_job job = seen("{\"status\":{\"completedIndexes\":\"0-2\"}}", "{\"items\":[]}");
    CHECK_INT(DL_JOB_SUCCEEDED, job.state);
    CHECK_INT(0, job.exit_code);
}

TEST(a_failed_index_has_the_exit_code_of_its_pod)
{
    static const char failed[] = "{\"status\":{\"failedIndexes\":\"1\"}}";
    dl_job job = seen(failed, ENDED("{\"exitCode\":3}"));
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_INT(3, job.exit_code);
    job = seen(failed, ENDED("{\"exitCode\":137}"));
    CHECK_INT(DL_JOB_LOST, job.state);
    job = seen(failed, ENDED("{\"exitCode\":137,\"reason\":\"OOMKilled\"}"));
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_CONTAINS("launch.memory", job.message);
    job = seen(failed, "{\"items\":[]}");
    CHECK_INT(DL_JOB_LOST, job.state);
    CHECK_CONTAINS("its pod is gone", job.message);
}

TEST(a_deadline_is_the_time_limit)
{
    const dl_job job = seen("{\"status\":{\"conditions\":[{\"type\":\"Failed\",\"status\":\"True\","
                            "\"reason\":\"DeadlineExceeded\"}]}}",
                            "{\"items\":[]}");
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_CONTAINS("launch.timeout", job.message);
}

TEST(a_pod_that_waits_names_its_reason)
{
    dl_job job = seen("{\"status\":{}}", "{\"items\":[]}");
    CHECK_INT(DL_JOB_PENDING, job.state);
    job = seen("{}", POD("\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{"
                         "\"waiting\":{\"reason\":\"ErrImagePull\",\"message\":\"no x\"}}}]}"));
    CHECK_INT(DL_JOB_STARTING, job.state);
    CHECK_CONTAINS("ErrImagePull: no x", job.message);
    job = seen("{}", POD("\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":"
                         "\"PodScheduled\",\"message\":\"0/3 nodes\"}]}"));
    CHECK_INT(DL_JOB_PENDING, job.state);
    CHECK_CONTAINS("0/3 nodes", job.message);
}

TEST(an_unknown_phase_is_named_and_counts_as_silence)
{
    dl_job job = seen("{}", POD("\"status\":{\"phase\":\"Running\"}"));
    CHECK_INT(DL_JOB_RUNNING, job.state);
    job = seen("{}", POD("\"status\":{\"phase\":\"Dreaming\"}"));
    CHECK(job.silent);
    CHECK_CONTAINS("Dreaming", job.message);
}

TEST_MAIN(an_index_is_found_in_a_list_of_ranges,
          an_index_is_over_when_it_is_listed_as_completed_or_failed,
          a_completed_index_has_succeeded_without_a_pod,
          a_failed_index_has_the_exit_code_of_its_pod, a_deadline_is_the_time_limit,
          a_pod_that_waits_names_its_reason, an_unknown_phase_is_named_and_counts_as_silence)
