/* k8s_states_test.c - the state of a replica for each documented state of a pod and of a Job. These
 * are phases of pods, conditions, and reasons of pods and of containers. */
#include "launch/cloud/k8s/k8s_job.h"

#include "check.h"
#include "job_outcome.h"

#include <string.h>

/* The words of the API server, and the outcome of a poll (job_outcome.h). */
typedef struct row {
    const char *theirs, *outcome;
} row;

static dl_json_value parse(const char *text)
{
    dl_json_value value;
    if (dl_json_parse(&value, text, strlen(text))) CHECK_FAIL("no JSON: %s", text);
    return value;
}

/* Poll index 1 of a Job with this status, whose pod on node n7 has this status. */
static void check_pod(const char *theirs, const char *outcome, const char *kube_job,
                      const char *pod)
{
    char job_text[512], pods[1024];
    dl_job job;
    snprintf(job_text, sizeof job_text, "{\"status\":{%s}}", kube_job);
    snprintf(pods, sizeof pods,
             "{\"items\":[{\"metadata\":{\"annotations\":{\"batch.kubernetes.io/"
             "job-completion-index\":\"1\"}},\"spec\":{\"nodeName\":\"n7\"},\"status\":{%s}}]}",
             pod);
    dl_job_init(&job, "1f0c2ab9000000000000000000000000", 1, 0);
    dl_k8s_set(&job, 1, parse(job_text), parse(pods));
    check_outcome(theirs, outcome, &job);
}

TEST(each_phase_of_a_pod_has_its_state)
{
    static const row rows[] = {
        {"Pending", "PENDING"},
        {"Running", "RUNNING: on n7"},
        {"Succeeded", "RUNNING: its pod has ended, the Job does not say so yet"},
        {"Failed", "RUNNING: its pod has ended, the Job does not say so yet"},
        {"Unknown", "silent: the node n7 does not answer the cluster"},
        {"Dreaming", "silent: its pod is in phase Dreaming, which is not known here"},
        {"", "silent: its pod is in phase without a name"},
    };
    char status[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(status, sizeof status, "\"phase\":\"%s\"", rows[i].theirs);
        check_pod(rows[i].theirs, rows[i].outcome, "", status);
    }
}

/* The kubelet's reasons. A container of this project is never restarted in place, so there should
 * be no CrashLoopBackOff. A reason that is not known is shown as well. */
TEST(each_reason_of_a_container_that_waits_is_shown)
{
    static const char *const reasons[] = {
        "ContainerCreating",          "PodInitializing",      "ErrImagePull",
        "ImagePullBackOff",           "ErrImageNeverPull",    "InvalidImageName",
        "ImageInspectError",          "RegistryUnavailable",  "SignatureValidationFailed",
        "CreateContainerConfigError", "CreateContainerError", "PreCreateHookError",
        "PreStartHookError",          "PostStartHookError",   "RunContainerError",
        "CrashLoopBackOff",           "WaitingForGodot",
    };
    char status[256], outcome[128];
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(status, sizeof status,
                 "\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{"
                 "\"reason\":\"%s\",\"message\":\"no x.\"}}}]",
                 reasons[i]);
        snprintf(outcome, sizeof outcome, "STARTING: %s: no x", reasons[i]);
        check_pod(reasons[i], outcome, "", status);
    }
}

/* Reasons of the condition PodScheduled. Its message has the sentence. */
TEST(pod_that_is_not_scheduled_has_the_words_of_the_scheduler)
{
    static const char *const reasons[] = {"Unschedulable", "SchedulingGated", "SchedulerError"};
    char status[256];
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(status, sizeof status,
                 "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
                 "\"False\",\"reason\":\"%s\",\"message\":\"0/3 nodes are available.\"}]",
                 reasons[i]);
        check_pod(reasons[i], "PENDING: 0/3 nodes are available", "", status);
    }
}

/* Reasons of the condition DisruptionTarget. Once the pod is gone, the Job replaces it. */
TEST(pod_that_the_cluster_takes_away_runs_with_the_reason)
{
    static const char *const reasons[] = {"PreemptionByScheduler", "DeletionByTaintManager",
                                          "EvictionByEvictionAPI", "DeletionByPodGC",
                                          "TerminationByKubelet"};
    char status[256], outcome[128];
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(status, sizeof status,
                 "\"phase\":\"Running\",\"conditions\":[{\"type\":\"DisruptionTarget\","
                 "\"status\":\"True\",\"reason\":\"%s\"}]",
                 reasons[i]);
        snprintf(outcome, sizeof outcome, "RUNNING: on n7; the cluster takes its pod away: %s",
                 reasons[i]);
        check_pod(reasons[i], outcome, "", status);
    }
    check_pod("DisruptionTarget False", "RUNNING: on n7", "",
              "\"phase\":\"Running\",\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":"
              "\"False\",\"reason\":\"x\"}]");
}

#define FAILED "\"failedIndexes\":\"1\""
#define END(end)                                                                                   \
    "\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{" end "}}}]"

/* The Job says that the index has failed. */
TEST(each_end_of_a_container_has_its_state)
{
    static const row rows[] = {
        {END("\"reason\":\"Error\",\"exitCode\":3,\"message\":\"own words\""),
         "FAILED: exit code 3"},
        {END("\"reason\":\"Error\",\"exitCode\":4"), "FAILED, again: exit code 4"},
        {END("\"reason\":\"Error\",\"exitCode\":130"),
         "LOST, again: stopped by its machine, state saved"},
        {END("\"reason\":\"Error\",\"exitCode\":137"), "LOST, again: killed by signal 9 (Killed)"},
        {END("\"reason\":\"OOMKilled\",\"exitCode\":137"),
         "FAILED: OOMKilled: it used more than launch.memory"},
        {END("\"reason\":\"StartError\",\"exitCode\":128,\"message\":\"no such file: diloco\""),
         "FAILED: StartError: no such file: diloco"},
        {END("\"reason\":\"ContainerCannotRun\",\"exitCode\":127,\"message\":\"no diloco\""),
         "FAILED: ContainerCannotRun: no diloco"},
        {END("\"reason\":\"ContainerStatusUnknown\",\"exitCode\":137"),
         "LOST, again: killed by signal 9 (Killed)"},
        {END("\"reason\":\"Dreaming\",\"exitCode\":5"), "FAILED: exit code 5"},
        {"\"phase\":\"Failed\"", "LOST, again: its pod is gone"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_pod(rows[i].theirs, rows[i].outcome, FAILED, rows[i].theirs);
}

/* The kubelet killed the pod, or refused it before its container existed. */
TEST(each_reason_of_a_failed_pod_is_shown)
{
    static const char *const reasons[] = {"Evicted",
                                          "NodeLost",
                                          "NodeAffinity",
                                          "NodeShutdown",
                                          "Terminated",
                                          "Preempting",
                                          "UnexpectedAdmissionError",
                                          "OutOfcpu",
                                          "OutOfmemory",
                                          "OutOfpods",
                                          "Dreaming"};
    char status[256], outcome[128];
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(outcome, sizeof outcome, "LOST, again: %s: too much", reasons[i]);
        for (int killed = 0; killed < 2; killed++) {
            snprintf(status, sizeof status, "\"reason\":\"%s\",\"message\":\"too much.\",%s",
                     reasons[i], killed ? END("\"exitCode\":137") : "\"phase\":\"Failed\"");
            check_pod(reasons[i], outcome, FAILED, status);
        }
    }
    check_pod("Evicted, state saved", "LOST, again: stopped by its machine, state saved", FAILED,
              "\"reason\":\"Evicted\"," END("\"exitCode\":130"));
}

#define TARGET                                                                                     \
    "\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":\"True\",\"reason\":"               \
    "\"TerminationByKubelet\"}],"
#define KILLED(reason) END("\"reason\":\"" reason "\",\"exitCode\":137")

/* A replica that used too much memory would do so again, unless its node evicted it. */
TEST(lack_of_memory_has_failed_and_an_eviction_is_lost)
{
    static const row rows[] = {
        {KILLED("OOMKilled"), "FAILED: OOMKilled: it used more than launch.memory"},
        {"\"reason\":\"Dreaming\"," KILLED("OOMKilled"),
         "FAILED: OOMKilled: it used more than launch.memory"},
        {"\"reason\":\"NodeShutdown\"," KILLED("OOMKilled"),
         "FAILED: OOMKilled: it used more than launch.memory"},
        {TARGET KILLED("OOMKilled"),
         "LOST, again: the cluster took its pod away: TerminationByKubelet"},
        {"\"reason\":\"Evicted\",\"message\":\"low on memory.\"," KILLED("OOMKilled"),
         "LOST, again: Evicted: low on memory"},
        {"\"reason\":\"Evicted\",\"message\":\"low on memory.\"," TARGET KILLED("OOMKilled"),
         "LOST, again: Evicted: low on memory"},
        {"\"reason\":\"Evicted\"," END("\"reason\":\"OOMKilled\",\"exitCode\":1"),
         "LOST, again: Evicted"},
        {TARGET KILLED("Error"),
         "LOST, again: the cluster took its pod away: TerminationByKubelet"},
        {"\"reason\":\"Evicted\",\"message\":\"low on disk.\"," END("\"exitCode\":143"),
         "LOST, again: Evicted: low on disk"},
        {"\"reason\":\"Evicted\"," END("\"exitCode\":3"), "FAILED: exit code 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_pod(rows[i].theirs, rows[i].outcome, FAILED, rows[i].theirs);
}

#define CONDITION(type, reason)                                                                    \
    "\"conditions\":[{\"type\":\"" type "\",\"status\":\"True\",\"reason\":\"" reason "\"}]"

/* Conditions of the Job. Its pod runs, or was removed. */
TEST(each_condition_of_a_job_has_its_state)
{
    static const row rows[] = {
        {CONDITION("Failed", "DeadlineExceeded"), "FAILED: launch.timeout is over"},
        {CONDITION("Failed", "FailedIndexes"), "LOST, again: its pod is gone: FailedIndexes"},
        {CONDITION("Failed", "BackoffLimitExceeded"),
         "LOST, again: its pod is gone: BackoffLimitExceeded"},
        {CONDITION("Failed", "MaxFailedIndexesExceeded"),
         "LOST, again: its pod is gone: MaxFailedIndexesExceeded"},
        {CONDITION("Failed", "PodFailurePolicy"), "LOST, again: its pod is gone: PodFailurePolicy"},
        {CONDITION("FailureTarget", "DeadlineExceeded"), "PENDING"}, /* its pods still end */
        {CONDITION("SuccessCriteriaMet", "CompletionsReached"), "PENDING"},
        {CONDITION("Suspended", "JobSuspended"), "PENDING: suspended: waits for its queue"},
        {CONDITION("Dreaming", "x"), "PENDING"},
        {CONDITION("Complete", "") ",\"completedIndexes\":\"0-1\"", "SUCCEEDED: exit code 0"},
        {"\"completedIndexes\":\"1\"", "SUCCEEDED: exit code 0"},
    };
    char text[512];
    dl_job job;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "{\"status\":{%s}}", rows[i].theirs);
        dl_job_init(&job, "1f0c2ab9000000000000000000000000", 1, 0);
        dl_k8s_set(&job, 1, parse(text), parse("{\"items\":[]}"));
        check_outcome(rows[i].theirs, rows[i].outcome, &job);
    }
}

TEST_MAIN(each_phase_of_a_pod_has_its_state, each_reason_of_a_container_that_waits_is_shown,
          pod_that_is_not_scheduled_has_the_words_of_the_scheduler,
          pod_that_the_cluster_takes_away_runs_with_the_reason,
          each_end_of_a_container_has_its_state, each_reason_of_a_failed_pod_is_shown,
          lack_of_memory_has_failed_and_an_eviction_is_lost, each_condition_of_a_job_has_its_state)
