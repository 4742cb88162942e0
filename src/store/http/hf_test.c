/* hf_test.c - Storage Buckets of Hugging Face against scripted servers: the gateway, and the host
 * that reads are redirected to. */
#include "store/wrap/layers.h"

#include "check.h"
#include "http_script.h"

#define ANSWER(status, headers, body, length)                                                      \
    "HTTP/1.1 " status "\r\n" headers "Content-Length: " length "\r\n\r\n" body
#define ONE_KEY                                                                                    \
    ANSWER("200 OK", "",                                                                           \
           "<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"                          \
           "<Key>run/run.json</Key><Size>5</Size></Contents></ListBucketResult>",                  \
           "127")

static http_script gateway, other;
static char location[256];
static char text[64];

static diloco_status note_begin(void *user, size_t len)
{
    (void)user;
    (void)len;
    text[0] = '\0';
    return DILOCO_OK;
}

static diloco_status note(void *user, const void *data, size_t len)
{
    (void)user;
    snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)len, (const char *)data);
    return DILOCO_OK;
}

static diloco_status read_object(void)
{
    char url[256];
    dl_store *store;
    snprintf(url, sizeof url, "hf://buckets/alice/things/run?endpoint=http://127.0.0.1:%d",
             gateway.port);
    DL_TRY(dl_store_open(&store, url, false));
    const diloco_status status =
        dl_store_read(store, "run.json", (dl_sink){NULL, note_begin, note}, DL_NEVER);
    dl_store_close(store);
    return status;
}

static int set_up(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "HFAKTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "very/secret", 1);
    setenv("AWS_SESSION_TOKEN", "the-token", 1);
    return 0;
}

/* The gateway answers the open, and redirects the read to `where`. */
static diloco_status read_redirected(const char *where)
{
    static const char *responses[4];
    snprintf(location, sizeof location,
             "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", where);
    responses[0] = ONE_KEY;
    for (size_t i = 1; i < 4; i++)
        responses[i] = location;
    script_start(&gateway, responses, 4);
    const diloco_status status = read_object();
    script_stop(&gateway);
    return status;
}

TEST(requests_have_the_owner_in_their_path_and_are_signed_for_one_region)
{
    static const char *const responses[] = {ONE_KEY,
                                            ANSWER("200 OK", "ETag: \"e\"\r\n", "hello", "5")};
    script_start(&gateway, responses, 2);
    CHECK_OK(read_object());
    CHECK_STR("hello", text);
    CHECK_CONTAINS("GET /alice/things?encoding-type=url", gateway.requests[0]);
    CHECK_CONTAINS("GET /alice/things/run/run.json HTTP/1.1\r\n", gateway.requests[1]);
    CHECK_CONTAINS("Credential=HFAKTEST/", gateway.requests[1]);
    CHECK_CONTAINS("/us-east-1/s3/aws4_request", gateway.requests[1]);
    script_stop(&gateway);
}

TEST(a_redirected_read_takes_no_credentials_along)
{
    static const char *const responses[] = {ANSWER("200 OK", "ETag: \"e\"\r\n", "hello", "5")};
    char where[128];
    script_start(&other, responses, 1);
    snprintf(where, sizeof where, "http://localhost:%d/x?token=1", other.port);
    CHECK_OK(read_redirected(where));
    CHECK_STR("hello", text);
    CHECK_CONTAINS("GET /x?token=1 HTTP/1.1\r\n", other.requests[0]);
    CHECK_CONTAINS("\r\nRange: bytes=0-", other.requests[0]);
    CHECK(!strcasestr(other.requests[0], "authorization"));
    CHECK(!strcasestr(other.requests[0], "x-amz-"));
    CHECK(!strcasestr(other.requests[0], "HFAK"));
    script_stop(&other);
}

TEST(redirections_that_are_not_followed_are_refused)
{
    static const char *const wheres[] = {"/elsewhere", "ftp://127.0.0.1/x",
                                         "http://u:p@127.0.0.1/x", "file:///etc/passwd"};
    for (size_t i = 0; i < sizeof wheres / sizeof *wheres; i++) {
        CHECK_STATUS(DILOCO_EPROTO, read_redirected(wheres[i]));
        CHECK_CONTAINS("302", diloco_error_text());
    }
}

TEST(redirections_without_an_end_are_refused)
{
    char where[64], redirect[160];
    const char *responses[] = {ONE_KEY, redirect, redirect, redirect, redirect};
    script_start(&gateway, responses, 5);
    snprintf(where, sizeof where, "http://127.0.0.1:%d/again", gateway.port);
    snprintf(redirect, sizeof redirect,
             "HTTP/1.1 307 There\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", where);
    CHECK_STATUS(DILOCO_EPROTO, read_object());
    CHECK_INT(5, (int)gateway.n_requests);
    script_stop(&gateway);
}

TEST(keys_of_another_provider_are_not_sent)
{
    static const char *const responses[] = {ONE_KEY};
    setenv("AWS_ACCESS_KEY_ID", "AKIATEST", 1);
    script_start(&gateway, responses, 1);
    CHECK_STATUS(DILOCO_EREFUSED, read_object());
    CHECK_CONTAINS("does not begin with HFAK", diloco_error_text());
    CHECK_INT(0, (int)gateway.n_requests);
    script_stop(&gateway);
}

TEST(a_url_without_owner_and_bucket_is_refused_with_its_form)
{
    static const char *const urls[] = {"hf://datasets/alice/things", "hf://alice/things",
                                       "hf://buckets/alice",         "hf://buckets//things",
                                       "hf://buckets/../things/x",   "hf://buckets/a%2Fb/things"};
    dl_store *store;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_store_open(&store, urls[i], false));
        CHECK_CONTAINS("hf://buckets/OWNER/BUCKET", diloco_error_text());
    }
}

#define ONE(name) cmocka_unit_test_setup(name, set_up)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE(requests_have_the_owner_in_their_path_and_are_signed_for_one_region),
        ONE(a_redirected_read_takes_no_credentials_along),
        ONE(redirections_that_are_not_followed_are_refused),
        ONE(redirections_without_an_end_are_refused),
        ONE(keys_of_another_provider_are_not_sent),
        ONE(a_url_without_owner_and_bucket_is_refused_with_its_form),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
