/* web_data_test.c - objects and lists of web addresses, from a server that follows a script, and a
 * download that an earlier process has begun. */
#include "fetch/web_data.h"

#include "check.h"
#include "fetch/fetch_data.h"
#include "http_script.h"
#include "scratch.h"

#include <glob.h>

typedef struct received {
    char bytes[64], names[256];
    size_t n;
} received;

static received got;

static diloco_status on_begin(void *context, size_t len)
{
    (void)context, (void)len;
    return DILOCO_OK;
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    (void)context;
    CHECK(got.n + len < sizeof got.bytes);
    memcpy(got.bytes + got.n, data, len);
    got.n += len;
    return DILOCO_OK;
}

static diloco_status on_name(void *context, const char *name, size_t len)
{
    const size_t used = strlen(got.names);
    (void)context;
    snprintf(got.names + used, sizeof got.names - used, "%s:%zu ", name, len);
    return DILOCO_OK;
}

#define SCRIPT(...)                                                                                \
    static const char *const script[] = {__VA_ARGS__};                                             \
    http_script server;                                                                            \
    got = (received){.n = 0};                                                                      \
    script_start(&server, script, sizeof script / sizeof *script)

#define WHOLE                                                                                      \
    "HTTP/1.1 206 Partial\r\nETag: \"v1\"\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10"    \
    "\r\n\r\n0123456789"
#define LIST(link, length, json)                                                                   \
    "HTTP/1.1 200 OK\r\n" link "Content-Length: " length "\r\n\r\n" json

static diloco_status read_at(const char *prefix, const char *key)
{
    dl_web_data *data;
    dl_web_position at = {.begin = 0};
    CHECK_OK(dl_web_data_open(&data, prefix));
    const diloco_status status =
        dl_web_data_read(data, key, &at, (dl_sink){NULL, on_begin, on_piece});
    dl_web_data_close(data);
    return status;
}

static diloco_status list_at(const char *prefix)
{
    dl_web_data *data;
    CHECK_OK(dl_web_data_open(&data, prefix));
    const diloco_status status = dl_web_data_list(data, on_name, NULL);
    dl_web_data_close(data);
    return status;
}

static void use_endpoint(const http_script *server)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server->port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("HF_TOKEN", "hf_secret", 1);
}

TEST(an_object_of_a_web_address_keeps_the_address_query)
{
    char prefix[64];
    SCRIPT(WHOLE);
    snprintf(prefix, sizeof prefix, "http://127.0.0.1:%d/shards?key=1", server.port);
    setenv("HF_TOKEN", "hf_secret", 1);
    CHECK_OK(read_at(prefix, "a.txt"));
    CHECK_STR("0123456789", got.bytes);
    CHECK_CONTAINS("GET /shards/a.txt?key=1 HTTP/1.1\r\n", server.requests[0]);
    CHECK(!strstr(server.requests[0], "hf_secret"));
    CHECK_STATUS(DILOCO_EINVAL, list_at(prefix));
    CHECK_CONTAINS("HTTP has no listing", diloco_error_text());
    script_stop(&server);
}

TEST(a_file_of_a_data_set_is_read_at_its_revision_with_the_token)
{
    SCRIPT(WHOLE);
    use_endpoint(&server);
    CHECK_OK(read_at("hf://datasets/alice/words@v1.0/deep/er", "a.txt"));
    CHECK_STR("0123456789", got.bytes);
    CHECK_CONTAINS("GET /datasets/alice/words/resolve/v1.0/deep/er/a.txt HTTP/1.1\r\n",
                   server.requests[0]);
    CHECK_CONTAINS("Authorization: Bearer hf_secret\r\n", server.requests[0]);
    script_stop(&server);
}

TEST(a_file_and_the_list_of_a_model_are_read_at_their_own_paths)
{
    SCRIPT(WHOLE,
           LIST("", "54", "[{\"type\":\"file\",\"path\":\"config.json\",\"size\":4}]       "));
    use_endpoint(&server);
    CHECK_OK(read_at("hf://models/alice/tiny@v2", "model.safetensors"));
    CHECK_CONTAINS("GET /alice/tiny/resolve/v2/model.safetensors HTTP/1.1\r\n", server.requests[0]);
    CHECK_OK(list_at("hf://models/alice/tiny"));
    CHECK_STR("config.json:4 ", got.names);
    CHECK_CONTAINS("GET /api/models/alice/tiny/tree/main HTTP/1.1\r\n", server.requests[1]);
    CHECK_CONTAINS("Authorization: Bearer hf_secret\r\n", server.requests[1]);
    script_stop(&server);
}

/* The second page is named by a header; a folder and an odd name are no files of the prefix. */
TEST(a_list_of_a_data_set_has_all_pages)
{
    static char first[512];
    static const char *script[2];
    http_script server;
    got = (received){.n = 0};
    script[0] = first;
    script[1] = LIST("", "47", "[{\"type\":\"file\",\"path\":\"b.txt\",\"size\":4}]      ");
    script_start(&server, script, 2);
    snprintf(first, sizeof first,
             LIST("Link: <http://127.0.0.1:%d/api/next?cursor=x>; rel=\"next\"\r\n", "133",
                  "[{\"type\":\"directory\",\"path\":\"deep\",\"size\":0},"
                  "{\"type\":\"file\",\"path\":\"a.txt\",\"size\":3},"
                  "{\"type\":\"file\",\"path\":\".odd\",\"size\":1}]         "),
             server.port);
    use_endpoint(&server);
    CHECK_OK(list_at("hf://datasets/alice/words"));
    CHECK_STR("a.txt:3 b.txt:4 ", got.names);
    CHECK_CONTAINS("GET /api/datasets/alice/words/tree/main HTTP/1.1\r\n", server.requests[0]);
    CHECK_CONTAINS("GET /api/next?cursor=x HTTP/1.1\r\n", server.requests[1]);
    script_stop(&server);
}

TEST(a_next_page_at_another_server_does_not_get_the_token)
{
    SCRIPT(LIST("Link: <http://127.0.0.1:1/api/next>; rel=\"next\"\r\n", "2", "[]"));
    use_endpoint(&server);
    CHECK_STATUS(DILOCO_EPROTO, list_at("hf://datasets/alice/words"));
    CHECK_CONTAINS("another server", diloco_error_text());
    script_stop(&server);
}

TEST(addresses_that_are_none_are_refused)
{
    static const char *const bad[] = {"hf://datasets/alice",   "hf://datasets//words",
                                      "hf://datasets/alice/",  "hf://datasets/alice/words@",
                                      "hf://datasets/a/b?c=d", "hf://models/alice"};
    dl_web_data *data;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_web_data_open(&data, bad[i]));
        CHECK(!data);
    }
    CHECK(dl_web_data_has("https://example/x") && dl_web_data_has("hf://datasets/a/b/c"));
    CHECK(dl_web_data_has("http://127.0.0.1:80/x") && !dl_web_data_has("http://example/x"));
    CHECK(!dl_web_data_has("hf://buckets/a/b"));
    CHECK_STATUS(DILOCO_EINVAL, read_at("http://127.0.0.1:1/x", "..%2f"));
    setenv("HF_ENDPOINT", "http://example", 1);
    setenv("HF_TOKEN", "hf_secret", 1);
    CHECK_STATUS(DILOCO_EREFUSED, dl_web_data_open(&data, "hf://datasets/a/b"));
}

/* ---- a download that was stopped */

static dl_config config;

static diloco_status fetch(const http_script *server)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/shards/a.txt", server->port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "data.cache", scratch_path("cache"), "--set"));
    CHECK_OK(dl_config_set(&config, "data.train_path", url, "--set"));
    return dl_fetch_data(&config);
}

static void put(const char *path, const char *text)
{
    const dl_span span = {text, strlen(text)};
    CHECK_OK(dl_file_write(path, &span, 1));
}

/* Leave the files of a process that has received `part` and was stopped. */
static void leave_part(const char *note, const char *part)
{
    char pattern[PATH_MAX], path[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", scratch_path("cache"));
    CHECK_INT(0, glob(pattern, 0, NULL, &found));
    snprintf(path, sizeof path, "%s/files/a.txt", found.gl_pathv[0]);
    CHECK(unlink(path) == 0);
    snprintf(path, sizeof path, "%s/part.of", found.gl_pathv[0]);
    put(path, note);
    snprintf(path, sizeof path, "%s/part", found.gl_pathv[0]);
    put(path, part);
    globfree(&found);
}

static void check_fetched(const char *want)
{
    dl_buf text;
    dl_buf_init(&text, 64);
    CHECK_OK(dl_file_read(&text, config.train_path));
    CHECK_STR(want, dl_buf_str(&text));
    dl_buf_deinit(&text);
}

#define REST                                                                                       \
    "HTTP/1.1 206 Partial\r\nETag: \"v1\"\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5"     \
    "\r\n\r\n56789"
#define CHANGED                                                                                    \
    "HTTP/1.1 206 Partial\r\nETag: \"v2\"\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5"     \
    "\r\n\r\nvwxyz"

TEST(a_download_continues_where_an_earlier_process_has_stopped)
{
    SCRIPT(WHOLE, REST, WHOLE, CHANGED, WHOLE, "HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n",
           WHOLE);
    CHECK_OK(fetch(&server));
    check_fetched("0123456789");
    /* Six bytes are noted; the last of them and those after it are read again. */
    leave_part("a.txt\n\"v1\"\n6\n", "012345junk");
    CHECK_OK(fetch(&server));
    check_fetched("0123456789");
    CHECK_CONTAINS("\r\nRange: bytes=5-", server.requests[1]);
    CHECK_CONTAINS("\r\nIf-Match: \"v1\"\r\n", server.requests[1]);
    /* A part of another object is not used. */
    leave_part("b.txt\n\"v1\"\n6\n", "abcdef");
    CHECK_OK(fetch(&server));
    check_fetched("0123456789");
    CHECK_CONTAINS("\r\nRange: bytes=0-", server.requests[2]);
    /* The object has changed: it is read from its beginning. */
    leave_part("a.txt\n\"v1\"\n6\n", "abcdef");
    CHECK_OK(fetch(&server));
    check_fetched("0123456789");
    CHECK_CONTAINS("\r\nRange: bytes=0-", server.requests[4]);
    leave_part("a.txt\n\"v0\"\n6\n", "abcdef");
    CHECK_OK(fetch(&server));
    check_fetched("0123456789");
    CHECK_INT(7, server.n_requests);
    script_stop(&server);
}

TEST_MAIN(an_object_of_a_web_address_keeps_the_address_query,
          a_file_of_a_data_set_is_read_at_its_revision_with_the_token,
          a_file_and_the_list_of_a_model_are_read_at_their_own_paths,
          a_list_of_a_data_set_has_all_pages, a_next_page_at_another_server_does_not_get_the_token,
          addresses_that_are_none_are_refused,
          a_download_continues_where_an_earlier_process_has_stopped)
