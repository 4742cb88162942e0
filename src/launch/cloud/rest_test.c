/* rest_test.c - the words of a refusal that are shown to a person. */
#include "launch/cloud/rest.h"

#include "check.h"
#include "high_water.h"
#include "http_script.h"
#include "sanitized.h"

#include <stdlib.h>
#include <string.h>

static const char *const secrets[] = {"REST_TEST_SECRET", NULL};
static const char secret[] = "swordfish\nof-the-hub";

/* The Date of the server's answers, with its newline. */
static char date[64];

/* A client of a server that gives one answer. */
typedef struct scene {
    http_script script;
    dl_rest rest;
    dl_rest_call call;
} scene;

static void scene_begin(scene *s, const char *method, int status, const char *body)
{
    static char answer[4096];
    static dl_config config;
    static dl_launch_spec spec;
    static const char *const answers[] = {answer}; /* the server's thread reads them */
    char url[64];
    dl_config_init(&config);
    spec = (dl_launch_spec){.config = &config, .secrets = secrets};
    snprintf(answer, sizeof answer, "HTTP/1.1 %d No\r\n%sContent-Length: %zu\r\n\r\n%s", status,
             date, strlen(body), body);
    script_start(&s->script, answers, 1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s->script.port);
    CHECK_OK(dl_rest_init_at(&s->rest, &spec, "the fake", url));
    dl_rest_call_init(&s->call, method, "a test");
    CHECK_OK(dl_rest_path(&s->call, "/"));
}

static void scene_end(scene *s)
{
    dl_rest_call_deinit(&s->call);
    dl_rest_deinit(&s->rest);
    script_stop(&s->script);
}

/* The words of a refusal with this body. */
static void refusal(char why[DL_REST_WHY], const char *body)
{
    scene s;
    dl_rest_response response;
    CHECK(!setenv("REST_TEST_SECRET", secret, 1));
    scene_begin(&s, "GET", 400, body);
    CHECK_OK(dl_rest_do(&s.rest, &s.call, &response));
    CHECK_INT(400, response.status);
    memcpy(why, response.why, DL_REST_WHY);
    dl_buf_deinit(&response.text);
    scene_end(&s);
}

TEST(a_region_that_moves_the_host_to_another_domain_is_refused)
{
    CHECK_OK(dl_rest_check_region("europe-west4"));
    for (const char *const *bad =
             (const char *const[]){"", "x.example/", "evil.example", "a@b", "a b", "A", NULL};
         *bad; bad++)
        CHECK_STATUS(DILOCO_EINVAL, dl_rest_check_region(*bad));
}

/* A label of a name has at most 63 bytes, so the resolver refuses this name without a network. */
TEST(region_whose_host_does_not_resolve_is_named)
{
    static dl_config config;
    char region[64], url[128];
    dl_rest rest;
    dl_rest_call call;
    dl_rest_response response;
    const dl_launch_spec spec = {.config = &config, .secrets = secrets};
    memset(region, 'a', sizeof region - 1);
    region[sizeof region - 1] = '\0';
    snprintf(url, sizeof url, "http://%s-service.example", region);
    CHECK(!setenv("no_proxy", "*", 1));
    dl_config_init(&config);
    for (int set = 0; set < 2; set++) {
        if (set) CHECK_OK(dl_config_set(&config, "launch.region", region, "test"));
        CHECK_OK(dl_rest_init(&rest, &spec, "the fake", url));
        dl_rest_call_init(&call, "GET", "a test");
        call.once = true;
        CHECK_OK(dl_rest_path(&call, "/"));
        CHECK_STATUS(DILOCO_EUNREACHABLE, dl_rest_do(&rest, &call, &response));
        CHECK_INT(set, strstr(diloco_error_text(), "; check launch.region = \"aaa") != NULL);
        dl_rest_call_deinit(&call);
        dl_rest_deinit(&rest);
    }
}

TEST(text_that_is_not_json_is_cut_after_its_secrets_are_hidden)
{
    char body[512], why[DL_REST_WHY];
    memset(body, 'x', sizeof body);
    strcpy(body + 190, secret); /* across the 200 bytes that are shown */
    refusal(why, body);
    CHECK(!strstr(why, "sword"));
    CHECK_STR("xxx***", why + 187);
    strcpy(body + 10, " and\tmore");
    refusal(why, body);
    CHECK_STR("xxxxxxxxxx and more", why);
}

TEST(long_reason_is_cut_after_its_secrets_are_hidden)
{
    char body[2048], why[DL_REST_WHY], words[DL_REST_WHY + 200];
    memset(words, 'x', sizeof words);
    words[sizeof words - 1] = '\0';
    memcpy(words + DL_REST_WHY - 6, "swordfish\\n", 11); /* the limit is within the secret */
    memcpy(words + DL_REST_WHY + 5, "of-the-hub", 10);
    snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\"}}", words);
    refusal(why, body);
    CHECK_INT(DL_REST_WHY - 1, strlen(why));
    CHECK(!strstr(why, "sword"));
    CHECK_STR("x***xx", why + DL_REST_WHY - 7);
}

TEST(first_error_of_an_array_is_quoted_without_the_secrets_that_json_escapes)
{
    char why[DL_REST_WHY];
    refusal(why, "[{\"error\":\"no swordfish\\nof-the-hub here\"},{\"error\":\"later\"}]");
    CHECK_STR("no *** here", why);
    refusal(why, "[{\"loc\":[\"sword\"],\"msg\":\"\\u0073wordfish\\u000aof-the-hub\"}]");
    CHECK_STR("***", why);
    refusal(why, "[[\"swordfish\\nof-the-hub\"]]");
    CHECK_STR("", why);
}

/* The status of a creation that is refused so, and its error's text in diloco_error_text. */
static diloco_status create(int status, int keeps, const char *body)
{
    scene s;
    dl_rest_response response;
    scene_begin(&s, "POST", status, body);
    s.call.once = true;
    s.call.keeps = keeps;
    const diloco_status result = dl_rest_must(&s.rest, &s.call, &response);
    scene_end(&s);
    return result;
}

TEST(quota_is_refused_with_the_way_out_and_a_rate_of_requests_is_not)
{
    static const char machines[] = "{\"error\":{\"message\":\"exceed quota limits: h200_gpus\"}}",
                      requests[] = "{\"error\":{\"message\":\"Quota exceeded for quota metric "
                                   "'Requests' and limit 'Requests per minute'\"}}",
                      aws[] = "{\"__type\":\"ResourceLimitExceeded\",\"message\":\"0 Instances\"}",
                      other[] = "{\"__type\":\"ValidationException\",\"message\":\"no\"}";
    CHECK_STATUS(DILOCO_EREFUSED, create(429, 429, machines));
    CHECK_CONTAINS("exceed quota limits: h200_gpus; ask for a higher quota", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, create(429, 429, requests));
    CHECK_STATUS(DILOCO_EUNREACHABLE, create(429, 0, machines));
    CHECK_STATUS(DILOCO_EREFUSED, create(403, 0, machines));
    CHECK_CONTAINS("exceed quota limits: h200_gpus; ask for a higher quota", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, create(400, 0, aws));
    CHECK_CONTAINS("0 Instances; ask for a higher quota", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, create(400, 0, other));
    CHECK(!strstr(diloco_error_text(), "quota"));
}

/* The first two kinds are refusals. */
TEST(rate_of_requests_that_aws_answers_with_400_may_pass)
{
    static const char *const kinds[] = {"ResourceLimitExceeded",
                                        "NotThrottlingException",
                                        "Throttling",
                                        "ThrottlingException",
                                        "TooManyRequestsException",
                                        "RequestLimitExceeded",
                                        "com.amazonaws.sagemaker#ThrottlingException"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"__type\":\"%s\",\"message\":\"Rate exceeded\"}", kinds[i]);
        CHECK_STATUS(i < 2 ? DILOCO_EREFUSED : DILOCO_EUNREACHABLE, create(400, 0, body));
        CHECK_CONTAINS("Rate exceeded", diloco_error_text());
    }
    CHECK_STATUS(DILOCO_EREFUSED, create(403, 0, "{\"__type\":\"Throttling\"}"));
}

TEST(full_stop_of_the_backend_does_not_end_our_sentence)
{
    CHECK_STATUS(DILOCO_EREFUSED, create(403, 0, "{\"message\":\"User alice may not. \"}"));
    CHECK_CONTAINS("403: User alice may not; check the credentials", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, create(400, 0, "Bad request.\n"));
    CHECK_STR("a test: the fake answered 400: Bad request", diloco_error_text());
}

/* Set the server's clock to this many seconds after this machine's. */
static void set_clock(int seconds)
{
    const time_t now = time(NULL) + seconds;
    CHECK(strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime(&now)) > 0);
}

TEST(refusal_by_a_server_of_another_time_names_the_clock)
{
    static const char body[] = "{\"message\":\"Signature expired\"}";
    set_clock(3600);
    CHECK_STATUS(DILOCO_EREFUSED, create(403, 0, body));
    CHECK_CONTAINS("Signature expired; set the clock of this machine, which is 3",
                   diloco_error_text());
    CHECK_CONTAINS(" s behind", diloco_error_text());
    set_clock(-3600);
    CHECK_STATUS(DILOCO_EREFUSED, create(400, 0, body));
    CHECK_CONTAINS(" s ahead", diloco_error_text());
    set_clock(0);
    CHECK_STATUS(DILOCO_EREFUSED, create(403, 0, body));
    CHECK_CONTAINS("check the credentials", diloco_error_text());
    date[0] = '\0';
}

TEST(message_that_is_too_long_is_cut_between_characters_and_a_long_id_is_refused)
{
    dl_json_value value;
    char out[8];
    static const char text[] = "{\"id\":\"12345678\",\"message\":\"12345\u00e4\u00f6\"}";
    CHECK_OK(dl_json_parse(&value, text, sizeof text - 1));
    CHECK_STR("", dl_rest_text(out, sizeof out, value, "id"));
    CHECK_STR("1234567", dl_rest_message(out, sizeof out, value, "id"));
    CHECK_STR("12345\xc3\xa4", dl_rest_message(out, sizeof out, value, "message"));
    CHECK_STR("12345", dl_rest_message(out, 7, value, "message"));
    CHECK_STR("", dl_rest_message(out, sizeof out, value, "absent"));
}

/* One text of JSON. The server has it in memory, too, before the measurement begins. */
TEST(large_answer_is_in_memory_once)
{
    enum { BYTES = 64 << 20 };
    static dl_config config;
    const dl_launch_spec spec = {.config = &config, .secrets = secrets};
    char url[64], *answer = malloc(BYTES + 256);
    const char *const answers[] = {answer};
    http_script script;
    dl_rest rest;
    dl_rest_call call;
    dl_rest_response response;
    CHECK(answer);
    const int head = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BYTES);
    memset(answer + head, 'x', BYTES);
    answer[head] = answer[head + BYTES - 1] = '"';
    answer[head + BYTES] = '\0';
    dl_config_init(&config);
    script_start(&script, answers, 1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    CHECK_OK(dl_rest_init_at(&rest, &spec, "the fake", url));
    dl_rest_call_init(&call, "GET", "a test");
    call.most = BYTES;
    CHECK_OK(dl_rest_path(&call, "/"));
    const uint64_t before = high_water();
    CHECK_OK(dl_rest_do(&rest, &call, &response));
    const uint64_t used = high_water() - before;
    CHECK_INT(BYTES, response.text.len);
    CHECK(response.json.type == DL_JSON_STRING);
    dl_buf_deinit(&response.text);
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&rest);
    script_stop(&script);
    free(answer);
    if (SANITIZED || !before)
        print_message("left out: the memory of an answer is not measured here\n");
    else
        CHECK(used < BYTES + BYTES / 2);
}

TEST_MAIN(a_region_that_moves_the_host_to_another_domain_is_refused,
          region_whose_host_does_not_resolve_is_named,
          text_that_is_not_json_is_cut_after_its_secrets_are_hidden,
          long_reason_is_cut_after_its_secrets_are_hidden,
          first_error_of_an_array_is_quoted_without_the_secrets_that_json_escapes,
          quota_is_refused_with_the_way_out_and_a_rate_of_requests_is_not,
          rate_of_requests_that_aws_answers_with_400_may_pass,
          full_stop_of_the_backend_does_not_end_our_sentence,
          refusal_by_a_server_of_another_time_names_the_clock,
          message_that_is_too_long_is_cut_between_characters_and_a_long_id_is_refused,
          large_answer_is_in_memory_once)
