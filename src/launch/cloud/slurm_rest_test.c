/* slurm_rest_test.c - requests to slurmrestd, and its answers in the forms of two versions. */
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";
/* {"exp":4102444800,"iat":1,"sun":"alice"} and the same with an end in 2001. */
static const char token[] = "eyJhbGciOiJIUzI1NiJ9."
                            "eyJleHAiOjQxMDI0NDQ4MDAsImlhdCI6MSwic3VuIjoiYWxpY2UifQ.swordfish";
static const char expired[] = "eyJhbGciOiJIUzI1NiJ9."
                              "eyJleHAiOjEwMDAwMDAwMDAsImlhdCI6MSwic3VuIjoiYWxpY2UifQ.swordfish";

enum { N_JOBS = 5 };
static dl_config config;
static dl_job jobs[N_JOBS];
static http_script server;
static char texts[8][4096];
static const char *answers[8];
static size_t n_answers;

/* Append the next answer of the server. */
static void will_answer(const char *status, const char *body)
{
    CHECK(n_answers < 8);
    snprintf(texts[n_answers], sizeof texts[0], "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
             status, strlen(body), body);
    answers[n_answers] = texts[n_answers];
    n_answers++;
}

static void has_version(bool plain)
{
    n_answers = 0;
    if (plain) will_answer("404 NOT FOUND", "Unable find requested URL.");
    will_answer("200 OK", "{\"errors\":[]}");
}

/* A launch of ranks 0 to 4 in generation 3, submitted as job 17, with this server. */
static dl_launch_spec with_server(void)
{
    char url[64];
    script_start(&server, answers, n_answers);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_INT(0, setenv("SLURM_JWT", token, 1));
    for (uint32_t i = 0; i < N_JOBS; i++) {
        dl_job_init(&jobs[i], run, i, 3);
        snprintf(jobs[i].id, sizeof jobs[i].id, "17_%u", i);
    }
    return (dl_launch_spec){.run = run,
                            .config = &config,
                            .on = "",
                            .dir = scratch_root,
                            .argv = none,
                            .env = none,
                            .secrets = none};
}

/* Stop the server, which must have got every request that has an answer. */
static void end_server(void)
{
    CHECK_INT((long long)n_answers, (long long)atomic_load(&server.n_requests));
    script_stop(&server);
}

/* Poll all jobs; their folders exist, with output, and with the exit file of rank 3. */
static void poll_all(void)
{
    for (uint32_t i = 0; i < N_JOBS; i++) {
        char name[64];
        snprintf(name, sizeof name, "diloco-1f0c2ab9-r%u-g3", i);
        CHECK(!mkdir(scratch_path(name), 0700) || errno == EEXIST);
        strcat(name, "/log");
        scratch_write(name, "x", 1);
    }
    scratch_write("diloco-1f0c2ab9-r3-g3/exit", "exit 0 2\n", 9);
    const dl_launch_spec spec = with_server();
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, N_JOBS));
    end_server();
}

#define NAMED "\"name\":\"diloco-1f0c2ab9-g3\",\"array_job_id\":"

TEST(states_of_v0_0_38_are_words_and_ranks_that_wait_share_a_record)
{
    has_version(true);
    will_answer("200 OK",
                "{\"jobs\":[{" NAMED "17,\"array_task_id\":1,\"array_task_string\":\"\","
                "\"job_state\":\"RUNNING\",\"restart_cnt\":1,\"nodes\":\"n7\",\"exit_code\":0},"
                "{" NAMED "17,\"array_task_id\":null,\"array_task_string\":\"0,2-4:2%3\","
                "\"job_state\":\"PENDING\",\"state_reason\":\"Resources\",\"exit_code\":0},"
                "{" NAMED
                "17,\"array_task_id\":3,\"job_state\":\"COMPLETED\",\"restart_cnt\":2}]}");
    poll_all();
    CHECK_STR("PENDING", dl_job_state_name(jobs[0].state));
    CHECK_STR("Resources", jobs[0].message);
    CHECK_STR("RUNNING", dl_job_state_name(jobs[1].state));
    CHECK_STR("on n7, requeued by Slurm: restart 1", jobs[1].message);
    CHECK_STR("PENDING", dl_job_state_name(jobs[2].state));
    CHECK_STR("SUCCEEDED", dl_job_state_name(jobs[3].state));
    CHECK_STR("PENDING", dl_job_state_name(jobs[4].state));
}

TEST(states_of_v0_0_40_are_arrays_and_numbers_are_objects)
{
#define SET(number) "{\"set\":true,\"infinite\":false,\"number\":" number "}"
    has_version(false);
    will_answer(
        "200 OK",
        "{\"jobs\":[{" NAMED SET("17") ",\"array_task_id\":" SET(
            "0") ",\"job_state\":[\"RUNNING\",\"CONFIGURING\"],\"restart_cnt\":0},"
                 "{" NAMED SET("17") ",\"array_task_id\":" SET(
                     "1") ",\"job_state\":[\"CANCELLED\",\"COMPLETING\"],\"restart_cnt\":0,"
                          "\"nodes\":\"n1\"},"
                          "{" NAMED SET("17") ",\"array_task_id\":" SET(
                              "2") ",\"job_state\":[\"FAILED\",\"POWER_UP_NODE\"],\"restart_cnt\":"
                                   "0,\"exit_code\":"
                                   "{\"status\":[\"SIGNALED\"],\"return_code\":{\"set\":false,"
                                   "\"number\":0},"
                                   "\"signal\":{\"id\":" SET(
                                       "9") ",\"name\":\"KILL\"}}},"
                                            "{" NAMED SET("17") ",\"array_task_id\":{\"set\":false,"
                                                                "\"number\":0},"
                                                                "\"array_task_string\":\"0,1,...\","
                                                                "\"job_state\":[\"PENDING\"]}]}");
    poll_all();
    CHECK_STR("STARTING", dl_job_state_name(jobs[0].state));
    CHECK_STR("RUNNING", dl_job_state_name(jobs[1].state));
    CHECK_STR("LOST", dl_job_state_name(jobs[2].state));
    CHECK_STR("ended with 137 before its script could report it", jobs[2].message);
    CHECK_STR("PENDING", dl_job_state_name(jobs[3].state)); /* the list was cut */
    CHECK_STR("PENDING", dl_job_state_name(jobs[4].state));
}

TEST(task_that_is_held_while_it_waits_says_how_it_is_released)
{
    has_version(true);
    will_answer("200 OK",
                "{\"jobs\":[{" NAMED "17,\"array_task_id\":null,\"array_task_string\":\"0,2\","
                "\"job_state\":\"PENDING\",\"state_reason\":\"JobHeldUser\"},"
                "{" NAMED "17,\"array_task_id\":null,\"array_task_string\":\"1,3-4\","
                "\"job_state\":\"PENDING\",\"state_reason\":\"JobHeldAdmin\"}]}");
    poll_all();
    for (size_t i = 0; i < 2; i++) {
        CHECK_STR("PENDING", dl_job_state_name(jobs[i].state));
        CHECK_CONTAINS(i ? "JobHeldAdmin: held by an administrator" : "JobHeldUser: held; ",
                       jobs[i].message);
        CHECK_CONTAINS("scontrol release", jobs[i].message);
    }
}

/* The order of flags in the answer is that of their bits. */
TEST(flag_that_squeue_would_show_is_the_state)
{
    static const struct {
        const char *flags, *state;
    } rows[N_JOBS] = {
        {"[\"RUNNING\",\"COMPLETING\",\"REQUEUE_FED\"]", "RUNNING"},
        {"[\"CANCELLED\",\"COMPLETING\",\"REVOKED\",\"SIGNALING\"]", "RUNNING"},
        {"[\"PENDING\",\"REQUEUED\",\"CONFIGURING\",\"POWER_UP_NODE\"]", "STARTING"},
        {"[\"NODE_FAIL\",\"LAUNCH_FAILED\",\"REQUEUED\",\"REQUEUE_HOLD\"]", "PENDING"},
        {"[\"NODE_FAIL\",\"LAUNCH_FAILED\",\"RECONFIG_FAIL\"]", "LOST"},
    };
    char text[1024] = "{\"jobs\":[", *end = text + strlen(text);
    for (size_t i = 0; i < N_JOBS; i++)
        end += snprintf(end, (size_t)(text + sizeof text - end),
                        "%s{" NAMED "17,\"array_task_id\":%zu,\"job_state\":%s}", i ? "," : "", i,
                        rows[i].flags);
    strcpy(end, "]}");
    has_version(false);
    will_answer("200 OK", text);
    poll_all();
    for (size_t i = 0; i < N_JOBS; i++)
        CHECK_STR(rows[i].state, dl_job_state_name(jobs[i].state));
}

TEST(replica_that_saved_its_state_at_the_limit_of_a_partition_is_lost_and_not_failed)
{
    has_version(false);
    will_answer("200 OK", "{\"jobs\":[{" NAMED "17,\"array_task_id\":0,\"job_state\":[\"TIMEOUT\"],"
                          "\"restart_cnt\":0},{" NAMED "17,\"array_task_id\":1,"
                          "\"job_state\":[\"TIMEOUT\"],\"restart_cnt\":0}]}");
    CHECK(!mkdir(scratch_path("diloco-1f0c2ab9-r0-g3"), 0700) || errno == EEXIST);
    scratch_write("diloco-1f0c2ab9-r0-g3/exit", "exit 130 0\n", 11);
    poll_all();
    CHECK_STR("LOST", dl_job_state_name(jobs[0].state));
    CHECK_STR("stopped by its machine, state saved", jobs[0].message);
    CHECK_STR("FAILED", dl_job_state_name(jobs[1].state));
}

TEST(machine_without_the_folder_does_not_guess_how_a_replica_ended)
{
    has_version(false);
    will_answer("200 OK", "{\"jobs\":[{" NAMED "17,\"array_task_id\":0,\"job_state\":[\"TIMEOUT\"],"
                          "\"restart_cnt\":0},{" NAMED "17,\"array_task_id\":1,"
                          "\"job_state\":[\"FAILED\"],\"restart_cnt\":0}]}");
    dl_launch_spec spec = with_server();
    spec.dir = scratch_path("elsewhere");
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 2));
    end_server();
    CHECK(!dl_job_is_over(jobs[0].state) && jobs[0].silent);
    CHECK_CONTAINS("this machine has no folder", jobs[0].message);
    CHECK_STR("FAILED", dl_job_state_name(jobs[1].state)); /* though no exit code was given */
}

TEST(forgotten_job_has_the_state_of_its_exit_file_and_another_error_may_pass)
{
    has_version(true);
    will_answer("500 INTERNAL ERROR", "{\"jobs\":[],\"errors\":[{\"error_number\":2017,"
                                      "\"error\":\"Invalid job id specified\"}]}");
    poll_all();
    CHECK_STR("SUCCEEDED", dl_job_state_name(jobs[3].state));
    CHECK_STR("LOST", dl_job_state_name(jobs[4].state));

    n_answers = 2;
    will_answer("200 OK", "<html>a proxy's page</html>");
    const dl_launch_spec proxy = with_server();
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&proxy, jobs, N_JOBS));
    end_server();

    n_answers = 2;
    will_answer("500 INTERNAL ERROR",
                "{\"errors\":[{\"description\":\"Unable to find JobId=17\",\"error_number\":-1,"
                "\"error\":\"swordfish eyJhbGciOiJIUzI1NiJ9."
                "eyJleHAiOjQxMDI0NDQ4MDAsImlhdCI6MSwic3VuIjoiYWxpY2UifQ.swordfish\"}]}");
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&spec, jobs, N_JOBS));
    CHECK_CONTAINS("500: Unable to find JobId=17: swordfish ***;", diloco_error_text());
    end_server();
}

/* By scancel of a person. The array has no task any more, so no record of one. */
TEST(task_that_another_cancels_while_it_waits_is_cancelled)
{
    has_version(true);
    will_answer("500 INTERNAL ERROR", "{\"jobs\":[],\"errors\":[{\"error_number\":2017}]}");
    will_answer("404 NOT FOUND", "");
    will_answer("200 OK", "{\"errors\":[]}");
    will_answer("200 OK",
                "{\"jobs\":[{" NAMED "17,\"array_task_id\":null,\"array_task_string\":\"\","
                "\"job_state\":\"CANCELLED\"}]}");
    dl_launch_spec spec = with_server();
    spec.dir = scratch_folder("waiting");
    scratch_folder("waiting/diloco-1f0c2ab9-r0-g3");
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    end_server();
    CHECK_STR("CANCELLED", dl_job_state_name(jobs[0].state));
}

TEST(limit_of_an_association_is_refused_with_the_way_out)
{
    has_version(true);
    will_answer(
        "500 INTERNAL ERROR",
        "{\"errors\":[{\"error_number\":2050,\"error\":\"Job violates accounting/QOS policy "
        "(job submit limit, user's size and/or time limits)\"}]}");
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, N_JOBS));
    CHECK_CONTAINS("time limits); sacctmgr show assoc, or show qos", diloco_error_text());
    end_server();
}

TEST(ids_of_earlier_launches_are_found_by_name_and_rank)
{
    has_version(true);
    will_answer("200 OK",
                "{\"jobs\":[{\"name\":\"database\",\"array_job_id\":16,\"array_task_id\":0},"
                "{" NAMED "18,\"array_task_id\":null,\"array_task_string\":\"1,4\"},"
                "{\"name\":\"diloco-1f0c2ab9-g3\",\"array_job_id\":0,\"job_id\":19}]}");
    const dl_launch_spec spec = with_server();
    for (uint32_t i = 0; i < N_JOBS; i++)
        jobs[i].id[0] = '\0';
    CHECK_OK(dl_executor_slurm.find(&spec, jobs, N_JOBS));
    CHECK_STR("", jobs[0].id);
    CHECK_STR("18_1", jobs[1].id);
    CHECK_STR("18_4", jobs[4].id);
    CHECK_CONTAINS("GET /slurm/v0.0.38/jobs HTTP", server.requests[2]);
    CHECK_CONTAINS("X-SLURM-USER-NAME: alice\r\n", server.requests[2]);
    CHECK_CONTAINS(".swordfish\r\n", server.requests[2]);
    CHECK(!strstr(server.requests[2], "Authorization"));
    end_server();
}

/* Stop tasks 0 and 1, with this version. Task 2 is not Slurm's any more, and 3 is another job. */
static void stop_jobs(bool plain)
{
    has_version(plain);
    will_answer("200 OK",
                "{\"jobs\":[{" NAMED "17,\"array_task_id\":0},{" NAMED "17,\"array_task_id\":1},"
                "{\"name\":\"database\",\"array_job_id\":17,\"array_task_id\":3}]}");
    if (plain) will_answer("404 NOT FOUND", "");
    will_answer("200 OK", "{\"errors\":[]}");
    if (plain)
        will_answer("500 INTERNAL ERROR", "{\"errors\":[{\"error_number\":2021}]}");
    else
        will_answer("200 OK", "{\"errors\":[]}");
    if (plain) will_answer("200 OK", "{\"errors\":[]}");
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.cancel(&spec, jobs, 4));
    CHECK_CONTAINS("another job, database", diloco_error_text());
}

TEST(tasks_are_stopped_one_by_one_in_v0_0_38_and_by_a_list_later)
{
    stop_jobs(true);
    CHECK_CONTAINS("DELETE /slurm/v0.0.38/job/17_0 HTTP", server.requests[5]);
    CHECK_CONTAINS("DELETE /slurm/v0.0.38/job/17_1 HTTP", server.requests[6]);
    end_server();
    stop_jobs(false);
    CHECK_CONTAINS("DELETE /slurm/v0.0.40/jobs/ HTTP", server.requests[3]);
    CHECK_CONTAINS("{\"jobs\":[\"17_0\",\"17_1\"],\"signal\":\"KILL\"}", server.requests[3]);
    end_server();
}

TEST(task_of_a_list_that_is_not_stopped_is_named)
{
    has_version(false);
    will_answer("200 OK",
                "{\"jobs\":[{" NAMED "17,\"array_task_id\":0},{" NAMED "17,\"array_task_id\":1}]}");
    will_answer("200 OK", "{\"errors\":[]}");
    will_answer("200 OK",
                "{\"errors\":[],\"status\":[{\"step_id\":\"17_0\",\"error\":{\"code\":2021}},"
                "{\"step_id\":\"17_1\",\"error\":{\"code\":2002,\"string\":\"ESLURM_ACCESS_"
                "DENIED.\"}}]}");
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.cancel(&spec, jobs, 2));
    CHECK_STR("the jobs of Slurm: slurmrestd did not stop 17_1: error 2002 ESLURM_ACCESS_DENIED",
              diloco_error_text());
    end_server();
}

TEST(server_without_a_known_version_is_refused_by_the_names_of_its_versions)
{
    n_answers = 0;
    for (int i = 0; i < 5; i++)
        will_answer("404 NOT FOUND", "Unable find requested URL.");
    will_answer("200 OK",
                "{\"paths\":{\"\\/slurm\\/v0.0.36\\/ping\":{},\"\\/slurm\\/v0.0.36\\/jobs\":{},"
                "\"\\/slurm\\/v0.0.37\\/ping\":{},\"\\/slurmdb\\/v0.0.35\\/jobs\":{}}}");
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, N_JOBS));
    CHECK_CONTAINS("the server has the versions v0.0.36, v0.0.37 of Slurm's API, and this program "
                   "knows v0.0.40, v0.0.38, v0.0.42, v0.0.43, v0.0.41",
                   diloco_error_text());
    end_server();
}

TEST(token_is_needed_and_valid_and_does_not_leave_this_machine_in_clear_text)
{
    n_answers = 0;
    const dl_launch_spec spec = with_server();
    CHECK_OK(dl_executor_slurm.check(&spec));
    CHECK_INT(0, setenv("SLURM_JWT", expired, 1));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, N_JOBS));
    CHECK_CONTAINS("the token of SLURM_JWT has expired", diloco_error_text());
    CHECK_INT(0, unsetenv("SLURM_JWT"));
    CHECK_STATUS(DILOCO_EINVAL, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("SLURM_JWT is not", diloco_error_text());
    CHECK_INT(0, setenv("SLURM_JWT", token, 1));
    CHECK_OK(dl_config_set(&config, "launch.endpoint", "http://localhost.example:6820", "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("ssh -L 6820:HOST:6820", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "launch.endpoint", "https://slurm.example", "test"));
    CHECK_OK(dl_executor_slurm.check(&spec));
    end_server();
}

/* Write the file of SLURM_JWT_FILE, and name it. */
static void use_file(const char *text)
{
    CHECK_INT(0, setenv("SLURM_JWT_FILE", scratch_write("jwt", text, strlen(text)), 1));
}

TEST(token_of_a_file_is_read_again_so_that_a_new_one_is_used)
{
    char line[512];
    n_answers = 0;
    for (int i = 0; i < 2; i++) {
        will_answer("200 OK", "{\"errors\":[]}");
        will_answer("200 OK", "{\"jobs\":[]}");
    }
    const dl_launch_spec spec = with_server();
    CHECK_INT(0, setenv("SLURM_JWT", expired, 1)); /* the file precedes it */
    use_file("plain-token\n");
    CHECK_OK(dl_executor_slurm.check(&spec));
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    snprintf(line, sizeof line, "SLURM_JWT=%s\n", token); /* as scontrol token prints it */
    use_file(line);
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS("X-SLURM-USER-TOKEN: plain-token\r\n", server.requests[1]);
    CHECK_CONTAINS(".swordfish\r\n", server.requests[3]);
    CHECK_CONTAINS("X-SLURM-USER-NAME: alice\r\n", server.requests[3]);
    CHECK_INT(0, unsetenv("SLURM_JWT_FILE"));
    end_server();
}

/* The claims are {"exp":9999999999,"sun":"alice","uid":1000,"gid":1000,"id":{"gids":[1000]}}. */
TEST(token_with_an_identity_is_a_bearer_token)
{
    static const char identity[] = "eyJhbGciOiJIUzI1NiJ9."
                                   "eyJleHAiOjk5OTk5OTk5OTksInN1biI6ImFsaWNlIiwidWlkIjoxMDAwLCJnaWQ"
                                   "iOjEwMDAsImlkIjp7ImdpZHMiOlsxMDAwXX19"
                                   ".swordfish";
    has_version(true);
    will_answer("200 OK", "{\"jobs\":[]}");
    const dl_launch_spec spec = with_server();
    CHECK_INT(0, setenv("SLURM_JWT", identity, 1));
    CHECK_OK(dl_executor_slurm.find(&spec, jobs, 1));
    CHECK_CONTAINS("\r\nAuthorization: Bearer eyJhbGciOiJIUzI1NiJ9.", server.requests[2]);
    CHECK_CONTAINS(".swordfish\r\n", server.requests[2]);
    CHECK(!strstr(server.requests[2], "X-SLURM-USER"));
    end_server();
}

TEST(token_of_a_file_that_has_expired_is_waited_out_once_jobs_run)
{
    char words[8192];
    n_answers = 0;
    const dl_launch_spec spec = with_server();
    use_file(expired);
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("jwt (SLURM_JWT_FILE) has expired", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS("jwt (SLURM_JWT_FILE) has expired by this machine's clock: write a new one to "
                   "the file, as by  scontrol "
                   "token lifespan=SECONDS; jobs continue meanwhile",
                   diloco_error_text());
    use_file(""); /* it is just being written */
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS("(SLURM_JWT_FILE) has no token", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, dl_executor_slurm.check(&spec));
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    use_file(words);
    CHECK_OK(dl_executor_slurm.check(&spec)); /* 8191 bytes, the most */
    CHECK_INT(0, setenv("SLURM_JWT_FILE", scratch_path("nowhere"), 1));
    CHECK_STATUS(DILOCO_EINVAL, dl_executor_slurm.check(&spec));
    CHECK_CONTAINS("SLURM_JWT_FILE", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_INT(0, unsetenv("SLURM_JWT_FILE"));
    end_server();
}

/* The first test: in this process no token was accepted yet. */
TEST(refused_token_is_named_and_waited_out_only_once_another_was_accepted)
{
    static const char body[] = "{\"errors\":[{\"error\":\"Authentication failure\"}]}";
    n_answers = 0;
    will_answer("401 Unauthorized", body);
    will_answer("401 Unauthorized", body);
    will_answer("200 OK", "{\"errors\":[]}");
    will_answer("200 OK", "{\"jobs\":[]}");
    will_answer("401 Unauthorized", body);
    will_answer("401 Unauthorized", body);
    const dl_launch_spec spec = with_server();
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS(
        "answered 401: Authentication failure; check the credentials: set SLURM_JWT to a "
        "new token, as by  export $(scontrol token lifespan=SECONDS)",
        diloco_error_text());
    use_file("plain-token\n");
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS("write a new one to the file", diloco_error_text());
    CHECK_OK(dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_slurm.poll(&spec, jobs, 1));
    CHECK_CONTAINS("write a new one to the file", diloco_error_text());
    CHECK_INT(0, unsetenv("SLURM_JWT_FILE"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_executor_slurm.poll(&spec, jobs, 1));
    end_server();
}

TEST(job_is_described_in_the_form_of_the_later_versions)
{
    static const char *const options[][2] = {{"launch.gpus", "2"},     {"launch.memory", "1.5"},
                                             {"launch.cpus", "4"},     {"launch.queue", "low"},
                                             {"launch.grace", "30.1"}, {"launch.account", "lab"}};
    static const char *const members[] = {
        "POST http://127.0.0.1:6820/slurm/v0.0.40/job/submit\n",
        "\"name\":\"diloco-1f0c2ab9-g3\"",
        "\"array\":\"0,1,2,3,4\"",
        "\"open_mode\":[\"APPEND\"]",
        "\"environment\":[\"HOME=",
        "\"standard_output\":\"/s/100%%/diloco-1f0c2ab9-r%a-g3/log\"",
        "\"current_working_directory\":\"/s/100%\"",
        "\"cpus_per_task\":4",
        "\"tres_per_node\":\"gres/gpu:2\"",
        "\"memory_per_node\":{\"set\":true,\"number\":1500}",
        "\"partition\":\"low\"",
        "\"account\":\"lab\"",
        ("\"kill_warning_signal\":\"TERM\",\"kill_warning_flags\":[\"BATCH_JOB\"],"
         "\"kill_warning_delay\":{\"set\":true,\"number\":31}")};
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    CHECK(out);
    n_answers = 0;
    dl_launch_spec spec = with_server();
    end_server();
    spec.dir = "/s/100%";
    spec.program = scratch_write("program", "x", 1);
    spec.dry = out;
    CHECK_INT(0, setenv("HOME", "/home/alice", 1));
    CHECK_OK(dl_config_set(&config, "launch.endpoint", "http://127.0.0.1:6820", "test"));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        CHECK_OK(dl_config_set(&config, options[i][0], options[i][1], "test"));
    for (uint32_t i = 0; i < N_JOBS; i++)
        jobs[i].id[0] = '\0';
    CHECK_OK(dl_executor_slurm.launch(&spec, jobs, N_JOBS));
    CHECK_INT(0, fclose(out));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        CHECK_CONTAINS(members[i], text);
    CHECK(!strstr(text, "swordfish"));
    free(text);
}

TEST_MAIN(refused_token_is_named_and_waited_out_only_once_another_was_accepted,
          task_that_is_held_while_it_waits_says_how_it_is_released,
          states_of_v0_0_38_are_words_and_ranks_that_wait_share_a_record,
          states_of_v0_0_40_are_arrays_and_numbers_are_objects,
          flag_that_squeue_would_show_is_the_state,
          replica_that_saved_its_state_at_the_limit_of_a_partition_is_lost_and_not_failed,
          machine_without_the_folder_does_not_guess_how_a_replica_ended,
          forgotten_job_has_the_state_of_its_exit_file_and_another_error_may_pass,
          task_that_another_cancels_while_it_waits_is_cancelled,
          limit_of_an_association_is_refused_with_the_way_out,
          ids_of_earlier_launches_are_found_by_name_and_rank,
          tasks_are_stopped_one_by_one_in_v0_0_38_and_by_a_list_later,
          task_of_a_list_that_is_not_stopped_is_named,
          server_without_a_known_version_is_refused_by_the_names_of_its_versions,
          token_is_needed_and_valid_and_does_not_leave_this_machine_in_clear_text,
          token_of_a_file_is_read_again_so_that_a_new_one_is_used,
          token_with_an_identity_is_a_bearer_token,
          token_of_a_file_that_has_expired_is_waited_out_once_jobs_run,
          job_is_described_in_the_form_of_the_later_versions)
