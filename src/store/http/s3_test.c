/* s3_test.c - the S3 store against a scripted server: its requests, and its reaction to each
 * answer. tests/servers has the real ones. */
#include "store/wrap/layers.h"

#include "check.h"
#include "http_script.h"

#include <time.h>

#define LIST_HEAD                                                                                  \
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define ONE_KEY                                                                                    \
    LIST_HEAD "<IsTruncated>false</IsTruncated><Contents><Key>p/run.json</Key><Size>2</Size>"      \
              "<ETag>\"e\"</ETag></Contents></ListBucketResult>"
#define ERROR(code) "<Error><Code>" code "</Code><Message>in words</Message></Error>"

enum { MAX_ANSWERS = 24 };
static char *responses[MAX_ANSWERS];
static size_t n_responses;
static http_script server;

/* The next answer: "404 Not Found", more header lines each with its "\r\n", a body. */
static void will_answer(const char *status, const char *headers, const char *body)
{
    CHECK(n_responses < MAX_ANSWERS);
    CHECK(asprintf(&responses[n_responses++], "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s",
                   status, headers, strlen(body), body) > 0);
}

/* Stop the server, and keep only the answer to an open. */
static void start_over(void)
{
    script_stop(&server);
    while (n_responses > 1)
        free(responses[--n_responses]);
}

/* A store whose open finds one key; then the answers of `will_answer` come. */
static dl_store *open_bucket_at(const char *options, bool unguarded)
{
    char url[512];
    dl_store *store;
    script_start(&server, (const char *const *)responses, n_responses);
    snprintf(url, sizeof url, "s3://bucket/p?endpoint=http://127.0.0.1:%d%s", server.port, options);
    const dl_store_address address = {.url = url, .unguarded = unguarded};
    CHECK_OK(dl_store_open_at(&store, &address, false));
    return store;
}

static dl_store *open_bucket(const char *options)
{
    return open_bucket_at(options, false);
}

static int set_up(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "very/secret", 1);
    unsetenv("AWS_SESSION_TOKEN");
    n_responses = 0;
    will_answer("200 OK", "", ONE_KEY);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    script_stop(&server);
    for (size_t i = 0; i < n_responses; i++)
        free(responses[i]);
    return 0;
}

static diloco_status create(dl_store *store, bool *taken)
{
    dl_span span = {"hello", 5};
    return dl_store_create(store, "log/1.json", &span, 1, taken, DL_NEVER);
}

/* ---- the request that is sent */

TEST(a_create_is_one_signed_conditional_put)
{
    bool taken;
    setenv("AWS_SESSION_TOKEN", "the-token", 1);
    will_answer("200 OK", "", "");
    dl_store *store = open_bucket("&region=eu-west-3");
    CHECK_OK(create(store, &taken));
    CHECK(!taken);
    dl_store_close(store);
    const char *list = server.requests[0], *put = server.requests[1];
    CHECK_CONTAINS("GET /bucket?encoding-type=url&list-type=2&max-keys=1&prefix=p%2F HTTP/1.1\r\n",
                   list);
    CHECK_CONTAINS("PUT /bucket/p/log/1.json HTTP/1.1\r\n", put);
    CHECK_CONTAINS("\r\nIf-None-Match: *\r\n", put);
    CHECK_CONTAINS("\r\nx-amz-security-token: the-token\r\n", put);
    CHECK_CONTAINS("\r\nx-amz-content-sha256: "
                   "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\r\n",
                   put);
    CHECK_CONTAINS("Credential=AKID/", put);
    CHECK_CONTAINS("/eu-west-3/s3/aws4_request,SignedHeaders=host;if-none-match;"
                   "x-amz-content-sha256;x-amz-date;x-amz-security-token,Signature=",
                   put);
    CHECK(!strstr(put, "very/secret"));
}

TEST(p8_the_received_digest_is_compared_with_the_sent_bytes)
{
    static const struct {
        const char *headers;
        bool vouches;
    } tries[] = {
        {"ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n", true},
        {"ETag: 5d41402abc4b2a76b9719d911017c592\r\n", true}, /* Ceph RGW's */
        {"Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", true},  /* Azure's */
        {"ETag: \"0x8D\"\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", true},
        {"ETag: \"5d41402abc4b2a76b9719d911017c593\"\r\n", false},
        {"ETag: \"5d41402abc4b2a76b9719d911017c592-1\"\r\n", false}, /* of parts */
        {"ETag: \"\r\n", false},
        {"Content-MD5: XUFAKrxLKna5cZ2REBfFkQ==\r\n", false},
        {"", false},
    };
    enum { N = sizeof tries / sizeof *tries };
    for (int i = 0; i < N; i++)
        will_answer("200 OK", tries[i].headers, "");
    will_answer("412 Precondition Failed", "", "");
    will_answer("200 OK", "", "hello");
    dl_store *store = open_bucket("");
    CHECK(!dl_store_vouches(store));
    for (int i = 0; i < N; i++) {
        CHECK_OK(create(store, NULL));
        CHECK_INT(tries[i].vouches, dl_store_vouches(store));
    }
    CHECK_OK(create(store, NULL)); /* it is there, was read, and is the same */
    CHECK(dl_store_vouches(store));
    dl_store_close(store);
}

TEST(the_bucket_is_in_the_path_or_in_the_host)
{
    char url[512];
    dl_store *store;
    script_start(&server, (const char *const *)responses, n_responses);
    snprintf(url, sizeof url, "s3://127/p?style=host&endpoint=http://0.0.1:%d", server.port);
    CHECK_OK(dl_store_open(&store, url, false)); /* 127.0.0.1, by its bucket */
    dl_store_close(store);
    CHECK_CONTAINS("GET /?encoding-type=url&list-type=2", server.requests[0]);
    CHECK_CONTAINS("\r\nHost: 127.0.0.1:", server.requests[0]);
}

/* ---- the result of an answer to a create */

static diloco_status create_and_close(bool *taken)
{
    dl_store *store = open_bucket("");
    diloco_status status = create(store, taken);
    dl_store_close(store);
    return status;
}

TEST(taken_is_412_and_also_the_304_of_old_servers)
{
    bool taken;
    will_answer("412 Precondition Failed", "", ERROR("PreconditionFailed"));
    will_answer("206 Partial", "Content-Range: bytes 0-4/5\r\n", "hello");
    CHECK_OK(create_and_close(&taken));
    CHECK(taken);
    start_over();
    will_answer("304 Not Modified", "", "");
    will_answer("206 Partial", "Content-Range: bytes 0-4/5\r\n", "other");
    CHECK_STATUS(DILOCO_EEXIST, create_and_close(&taken));
    CHECK(taken);
}

TEST(a_conflict_and_a_slow_down_are_retried)
{
    bool taken;
    will_answer("409 Conflict", "", ERROR("ConditionalRequestConflict"));
    will_answer("503 Slow Down", "", ERROR("SlowDown"));
    will_answer("200 OK", "", "");
    CHECK_OK(create_and_close(&taken));
    CHECK(!taken);
    CHECK_INT(4, server.n_requests);
}

TEST(trouble_that_passes_is_tried_again_under_any_number)
{
    bool taken;
    will_answer("400 Bad Request", "", ERROR("RequestTimeout"));
    will_answer("520 Unknown", "", "<html/>");
    will_answer("200 OK", "", "");
    CHECK_OK(create_and_close(&taken));
    CHECK(!taken);
    CHECK_INT(4, server.n_requests);
}

TEST(a_put_that_was_cut_is_tried_again_and_its_own_bytes_are_success)
{
    bool taken;
    responses[n_responses++] = strdup("!");
    will_answer("412 Precondition Failed", "", "");
    will_answer("206 Partial", "Content-Range: bytes 0-4/5\r\n", "hello");
    CHECK_OK(create_and_close(&taken));
    CHECK(taken);
}

TEST(refusals_are_worded_by_name)
{
    static const struct {
        const char *answer, *code;
        diloco_status status;
        const char *part;
    } cases[] = {
        {"501 Not Implemented", ERROR("NotImplemented"), DILOCO_EREFUSED, "single_committer"},
        {"403 Forbidden", ERROR("AccessDenied"), DILOCO_EREFUSED, "docs/stores.md"},
        {"403 Forbidden", ERROR("InvalidAccessKeyId"), DILOCO_EREFUSED, "know that access key"},
        {"403 Forbidden", ERROR("SignatureDoesNotMatch"), DILOCO_EREFUSED, "secret key does not"},
        {"403 Forbidden", ERROR("RequestTimeTooSkewed"), DILOCO_EREFUSED, "clock skew"},
        {"404 Not Found", ERROR("NoSuchBucket"), DILOCO_EUNREACHABLE, "no such bucket"},
        {"301 Moved", ERROR("PermanentRedirect"), DILOCO_EINVAL, "region=eu-north-1"},
        {"307 Temporary", ERROR("TemporaryRedirect"), DILOCO_EINVAL, "region=eu-north-1"},
        {"400 Bad", ERROR("EntityTooLarge"), DILOCO_EIO, "400 (EntityTooLarge: in words)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool taken;
        if (i) start_over();
        will_answer(cases[i].answer, "x-amz-bucket-region: eu-north-1\r\n", cases[i].code);
        CHECK_STATUS(cases[i].status, create_and_close(&taken));
        CHECK_CONTAINS(cases[i].part, diloco_error_text());
        CHECK(!strstr(diloco_error_text(), "very/secret"));
    }
}

/* ---- clock and credentials */

TEST(the_store_s_clock_corrects_a_wrong_one)
{
    bool taken;
    will_answer("403 Forbidden", "Date: Tue, 01 Jan 2030 00:00:00 GMT\r\n",
                ERROR("RequestTimeTooSkewed"));
    will_answer("200 OK", "", "");
    CHECK_OK(create_and_close(&taken));
    CHECK_CONTAINS("\r\nx-amz-date: 20300101T0000", server.requests[2]);
}

TEST(expired_credentials_are_read_again)
{
    bool taken;
    setenv("AWS_SESSION_TOKEN", "old", 1);
    will_answer("400 Bad Request", "", ERROR("ExpiredToken"));
    will_answer("200 OK", "", "");
    dl_store *store = open_bucket("");
    setenv("AWS_SESSION_TOKEN", "new", 1);
    CHECK_OK(create(store, &taken));
    CHECK_CONTAINS("x-amz-security-token: old\r\n", server.requests[1]);
    CHECK_CONTAINS("x-amz-security-token: new\r\n", server.requests[2]);
    dl_store_close(store);
}

TEST(credentials_that_stay_expired_are_named)
{
    bool taken;
    will_answer("400 Bad Request", "", ERROR("ExpiredToken"));
    will_answer("400 Bad Request", "", ERROR("ExpiredToken"));
    CHECK_STATUS(DILOCO_EREFUSED, create_and_close(&taken));
    CHECK_CONTAINS("session token has expired", diloco_error_text());
}

/* From an endpoint of the container's kind, at the same server: valid for that many seconds. */
static void will_hand_out(const char *token, int seconds)
{
    static char text[512];
    char at[64];
    time_t until = time(NULL) + seconds;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime(&until));
    snprintf(text, sizeof text,
             "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"%s\",\"Expiration\":"
             "\"%s\"}",
             token, at);
    will_answer("200 OK", "", text);
}

static dl_store *open_with_endpoint(void)
{
    char url[512], home[] = "/nonexistent", where[64];
    dl_store *store;
    unsetenv("AWS_ACCESS_KEY_ID");
    setenv("HOME", home, 1);
    script_start(&server, (const char *const *)responses, n_responses);
    snprintf(where, sizeof where, "http://127.0.0.1:%d/creds", server.port);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", where, 1);
    snprintf(url, sizeof url, "s3://bucket/p?endpoint=http://127.0.0.1:%d", server.port);
    CHECK_OK(dl_store_open(&store, url, false));
    return store;
}

TEST(credentials_do_until_they_expire_while_their_endpoint_fails)
{
    bool taken;
    free(responses[--n_responses]); /* credentials come first */
    will_hand_out("first", 100);    /* so that they are due at once */
    will_answer("200 OK", "", ONE_KEY);
    will_answer("200 OK", "", "");
    will_answer("400 Bad Request", "", ERROR("ExpiredToken"));
    will_answer("404 Not Found", "", ""); /* the endpoint */
    will_answer("404 Not Found", "", "");
    will_hand_out("second", 3600);
    will_answer("200 OK", "", "");
    dl_store *store = open_with_endpoint();
    CHECK_OK(create(store, &taken)); /* asked for once, not at every request */
    CHECK_CONTAINS("x-amz-security-token: first\r\n", server.requests[2]);
    CHECK_STATUS(DILOCO_EUNREACHABLE, create(store, &taken)); /* and not for good */
    CHECK_CONTAINS("the credentials have expired", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, create(store, &taken));
    CHECK_OK(create(store, &taken));
    CHECK_CONTAINS("x-amz-security-token: second\r\n", server.requests[7]);
    dl_store_close(store);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

/* ---- listing */

static diloco_status note_key(void *context, const char *key, size_t len)
{
    return dl_buf_addf(context, "%s %zu,", key, len);
}

TEST(a_listing_continues_after_its_last_key_and_shows_only_our_keys)
{
    dl_buf keys;
    will_answer("200 OK", "",
                LIST_HEAD "<IsTruncated>true</IsTruncated>"
                          "<Contents><Key>p/.b/x/1</Key><Size>9</Size></Contents>"
                          "<Contents><Key>p/a b</Key><Size>9</Size></Contents>"
                          "<Contents><Key>p/a/1</Key><Size>7</Size></Contents></ListBucketResult>");
    will_answer("200 OK", "",
                LIST_HEAD "<IsTruncated>true</IsTruncated>"
                          "<Contents><Key>p/b</Key><Size>0</Size></Contents></ListBucketResult>");
    will_answer("200 OK", "", LIST_HEAD "<IsTruncated>false</IsTruncated></ListBucketResult>");
    dl_store *store = open_bucket("");
    dl_buf_init(&keys, 1000);
    CHECK_OK(dl_store_list(store, "", NULL, note_key, &keys, DL_NEVER));
    CHECK_STR("a/1 7,b 0,", dl_buf_str(&keys));
    CHECK_CONTAINS("&start-after=p%2Fa%2F1 ", server.requests[2]);
    CHECK_CONTAINS("&start-after=p%2Fb ", server.requests[3]);
    dl_buf_deinit(&keys);
    dl_store_close(store);
}

TEST(a_foreign_key_with_a_control_character_does_not_end_a_listing)
{
    dl_buf keys;
    will_answer("200 OK", "",
                LIST_HEAD "<IsTruncated>true</IsTruncated>"
                          "<Contents><Key>p/%01+x</Key><Size>9</Size></Contents>"
                          "<Contents><Key>p/a%2F1</Key><Size>7</Size></Contents>"
                          "<Contents><Key>p/a%2F1%00</Key><Size>8</Size></Contents>"
                          "<EncodingType>url</EncodingType></ListBucketResult>");
    /* A service that does not know encoding-type: a text that looks like an escape is part of the
     * key. */
    will_answer("200 OK", "",
                LIST_HEAD
                "<IsTruncated>false</IsTruncated>"
                "<Contents><Key>p/b</Key><Size>1</Size></Contents>"
                "<Contents><Key>p/c%2Fd</Key><Size>9</Size></Contents></ListBucketResult>");
    dl_store *store = open_bucket("");
    dl_buf_init(&keys, 1000);
    CHECK_OK(dl_store_list(store, "", NULL, note_key, &keys, DL_NEVER));
    CHECK_STR("a/1 7,b 1,", dl_buf_str(&keys));
    CHECK_CONTAINS("encoding-type=url&", server.requests[1]);
    CHECK_CONTAINS("&start-after=p%2Fa%2F1%2500 ", server.requests[2]);
    dl_buf_deinit(&keys);
    dl_store_close(store);
}

TEST(a_forged_listing_is_refused)
{
    static const char *const bodies[] = {
        LIST_HEAD "<IsTruncated>true</IsTruncated></ListBucketResult>", /* after no key */
        LIST_HEAD "<Contents><Key>q/a</Key></Contents></ListBucketResult>",
        LIST_HEAD "<Contents><Key>p/b</Key></Contents><Contents><Key>p/a</Key></Contents>"
                  "</ListBucketResult>",
        "<Other/>",
        "no xml",
        LIST_HEAD "<IsTruncated>true</IsTruncated><Contents><Key>p/.x</Key></Contents>"
                  "</ListBucketResult>", /* for ever the same, and nothing of ours */
    };
    dl_buf keys;
    dl_buf_init(&keys, 1000);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        if (i) start_over();
        will_answer("200 OK", "", bodies[i]);
        will_answer("200 OK", "", bodies[i]);
        dl_store *store = open_bucket("");
        CHECK_STATUS(DILOCO_EPROTO, dl_store_list(store, "", NULL, note_key, &keys, DL_NEVER));
        dl_store_close(store);
    }
    dl_buf_deinit(&keys);
}

/* ---- unguarded */

TEST(p26_a_store_that_refuses_conditions_is_written_without)
{
    bool taken;
    will_answer("404 Not Found", "", ""); /* is it free? */
    will_answer("501 Not Implemented", "", "");
    will_answer("200 OK", "", "");
    will_answer("200 OK", "", "hello"); /* read back */
    will_answer("404 Not Found", "", "");
    will_answer("200 OK", "", "");
    will_answer("200 OK", "", "hello");
    dl_store *store = open_bucket_at("", true);
    CHECK_OK(create(store, &taken));
    CHECK(!taken);
    CHECK_CONTAINS("If-None-Match", server.requests[2]);
    CHECK_CONTAINS("PUT ", server.requests[3]);
    CHECK(!strstr(server.requests[3], "If-None-Match"));
    CHECK_OK(create(store, &taken)); /* not asked again for what it cannot do */
    CHECK_CONTAINS("PUT ", server.requests[6]);
    CHECK(!strstr(server.requests[6], "If-None-Match"));
    CHECK_INT(8, server.n_requests);
    const dl_store_counters counts = dl_store_counts(store); /* a list to open, and the PUTs */
    CHECK_INT(4, counts.billed_writes);
    CHECK_INT(4, counts.billed_reads);
    dl_store_close(store);
}

/* ---- urls */

TEST(urls_that_cannot_be_are_refused_before_any_request)
{
    static const struct {
        const char *url, *part;
    } cases[] = {
        {"s3://key:secret@bucket/p", "must not contain credentials"},
        {"s3://bucket?endpoint=http://u:secret@host", "without user or path"},
        {"s3://bucket?endpoint=ftp://host", "http(s)://"},
        {"s3://bucket?endpoint=http://host/path", "without user or path"},
        {"s3://bucket?endpoint=http://host%a", "option endpoint has an invalid %-escape"},
        {"s3://bucket?endpoint=http://host%00", "option endpoint has an invalid %-escape"},
        {"s3://bucket/../p", "a prefix is"},
        {"s3:///p", "no name of a bucket"},
        {"s3://buck%et/p", "no name of a bucket"},
        {"s3://bucket?region=host.org/", "no name of a region"},
        {"s3://bucket?region=host.org%2F", "no name of a region"},
        {"s3://bucket?region=", "no name of a region"},
        {"s3://bucket?speed=9", "no option \"speed\""},
        {"s3://bucket?region=a&region=b", "is given twice"},
        {"s3://bucket?region", "option=value"},
        {"s3://bucket?part_mib=0", "part_mib=0 is not a number from 1"},
        {"s3://bucket?parallel=17", "from 1 to 16"},
        {"s3://bucket?halves=some", "neither yes nor no"},
        {"s3://bucket?style=round", "path or host"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dl_store *store;
        CHECK_STATUS(DILOCO_EINVAL, dl_store_open(&store, cases[i].url, true));
        CHECK_CONTAINS(cases[i].part, diloco_error_text());
        CHECK(!strstr(diloco_error_text(), "secret"));
    }
    script_start(&server, NULL, 0); /* for tear_down */
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE(a_create_is_one_signed_conditional_put),
        ONE(p8_the_received_digest_is_compared_with_the_sent_bytes),
        ONE(the_bucket_is_in_the_path_or_in_the_host),
        ONE(taken_is_412_and_also_the_304_of_old_servers),
        ONE(a_conflict_and_a_slow_down_are_retried),
        ONE(a_put_that_was_cut_is_tried_again_and_its_own_bytes_are_success),
        ONE(refusals_are_worded_by_name),
        ONE(the_store_s_clock_corrects_a_wrong_one),
        ONE(expired_credentials_are_read_again),
        ONE(credentials_that_stay_expired_are_named),
        ONE(trouble_that_passes_is_tried_again_under_any_number),
        ONE(credentials_do_until_they_expire_while_their_endpoint_fails),
        ONE(a_listing_continues_after_its_last_key_and_shows_only_our_keys),
        ONE(a_foreign_key_with_a_control_character_does_not_end_a_listing),
        ONE(a_forged_listing_is_refused),
        ONE(p26_a_store_that_refuses_conditions_is_written_without),
        ONE(urls_that_cannot_be_are_refused_before_any_request),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
