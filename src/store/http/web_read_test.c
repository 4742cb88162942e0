/* web_read_test.c - ranges into one stream, against a server that holds one object and misbehaves
 * on request. */
#include "store/http/web_read.h"

#include "check.h"
#include "http_script.h"

static atomic_bool aborted;

typedef struct reader {
    dl_web_position at;
    int port;
    char got[64];
    size_t announced, n_got, n_begin;
} reader;

static diloco_status prepare(void *context, dl_web_exchange *x, const char *range,
                             const char *if_match)
{
    reader *r = context;
    x->method = "GET";
    x->what = "the object";
    if (range) DL_TRY(dl_web_header(x, "Range: %s", range));
    if (if_match) DL_TRY(dl_web_header(x, "If-Match: %s", if_match));
    return dl_buf_addf(&x->url, "http://127.0.0.1:%d/o", r->port);
}

static diloco_status refused(void *context, dl_web_exchange *x)
{
    (void)context;
    return dl_web_unexpected(x);
}

static diloco_status on_begin(void *context, size_t len)
{
    reader *r = context;
    r->announced = len;
    r->n_begin++;
    return DILOCO_OK;
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    reader *r = context;
    CHECK(r->n_got + len < sizeof r->got);
    memcpy(r->got + r->n_got, data, len);
    r->n_got += len;
    return DILOCO_OK;
}

/* Reads the script's object in ranges of 4 bytes, from `at` on. */
static diloco_status read_from(reader *r, http_script *server, size_t width, dl_web_position at)
{
    dl_web *web;
    dl_web_options options = {.tries = 3};
    dl_web_source source = {
        .range = 4, .width = width, .context = r, .prepare = prepare, .refused = refused};
    *r = (reader){.port = server->port, .at = at};
    source.at = &r->at;
    CHECK_OK(dl_web_create(&web, &options, &aborted));
    diloco_status status = dl_web_read(web, &source, (dl_sink){r, on_begin, on_piece}, DL_NEVER);
    dl_web_destroy(web);
    return status;
}

static diloco_status read_script(reader *r, http_script *server, size_t width)
{
    return read_from(r, server, width, (dl_web_position){.begin = 0});
}

#define SCRIPT(...)                                                                                \
    static const char *const script[] = {__VA_ARGS__};                                             \
    http_script server;                                                                            \
    reader r;                                                                                      \
    script_start(&server, script, sizeof script / sizeof *script)

#define PART(range, length, bytes)                                                                 \
    "HTTP/1.1 206 Partial\r\nETag: \"v1\"\r\nContent-Range: bytes " range                          \
    "\r\nContent-Length: " length "\r\n\r\n" bytes

TEST(ranges_of_an_object_are_of_the_version_first_seen)
{
    SCRIPT(PART("0-3/10", "4", "0123"), PART("4-7/10", "4", "4567"), PART("8-9/10", "2", "89"));
    CHECK_OK(read_script(&r, &server, 1));
    CHECK_STR("0123456789", r.got);
    CHECK_INT(10, r.announced);
    CHECK_INT(1, r.n_begin);
    CHECK_CONTAINS("\r\nRange: bytes=0-3\r\n", server.requests[0]);
    CHECK(!strstr(server.requests[0], "If-Match"));
    CHECK_CONTAINS("\r\nRange: bytes=4-7\r\n", server.requests[1]);
    CHECK_CONTAINS("\r\nIf-Match: \"v1\"\r\n", server.requests[1]);
    CHECK_CONTAINS("\r\nRange: bytes=8-11\r\n", server.requests[2]);
    script_stop(&server);
}

TEST(a_small_object_is_one_request)
{
    SCRIPT(PART("0-2/3", "3", "abc"), PART("0-3/4", "4", "abcd"));
    CHECK_OK(read_script(&r, &server, 4));
    CHECK_STR("abc", r.got);
    CHECK_OK(read_script(&r, &server, 4));
    CHECK_STR("abcd", r.got);
    CHECK_INT(2, server.n_requests);
    script_stop(&server);
}

TEST(an_empty_object_has_no_range)
{
    SCRIPT("HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    CHECK_OK(read_script(&r, &server, 4));
    CHECK_INT(1, r.n_begin);
    CHECK_INT(0, r.announced);
    CHECK(!strstr(server.requests[1], "Range"));
    script_stop(&server);
}

TEST(a_range_of_an_empty_object_is_empty)
{
    SCRIPT(PART("0-0/0", "1", "0"), "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n012");
    CHECK_OK(read_script(&r, &server, 4));
    CHECK_INT(1, r.n_begin);
    CHECK_STR("012", r.got);
    CHECK(!strstr(server.requests[1], "Range"));
    script_stop(&server);
}

TEST(a_server_without_ranges_sends_all_at_once)
{
    SCRIPT("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
    CHECK_OK(read_script(&r, &server, 4));
    CHECK_STR("0123456789", r.got);
    CHECK_INT(1, server.n_requests);
    script_stop(&server);
}

TEST(a_broken_range_resumes_where_it_stopped)
{
    SCRIPT(PART("0-3/10", "4", "0123"), "!" PART("4-7/10", "4", "45"), PART("6-7/10", "2", "67"),
           PART("8-9/10", "2", "89"));
    CHECK_OK(read_script(&r, &server, 1));
    CHECK_STR("0123456789", r.got);
    CHECK_CONTAINS("\r\nRange: bytes=6-7\r\n", server.requests[2]);
    script_stop(&server);
}

TEST(a_read_from_a_position_gets_the_rest_of_that_version)
{
    static const dl_web_position at = {.begin = 3, .etag = "\"v1\""};
    SCRIPT(PART("3-6/10", "4", "3456"), PART("7-9/10", "3", "789"),
           "HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 206 Partial\r\nETag: \"v2\"\r\nContent-Range: bytes 3-6/10"
           "\r\nContent-Length: 4\r\n\r\n3456");
    CHECK_OK(read_from(&r, &server, 1, at));
    CHECK_STR("3456789", r.got);
    CHECK_INT(10, r.announced);
    CHECK_CONTAINS("\r\nRange: bytes=3-6\r\n", server.requests[0]);
    CHECK_CONTAINS("\r\nIf-Match: \"v1\"\r\n", server.requests[0]);
    CHECK_CONTAINS("\r\nRange: bytes=7-10\r\n", server.requests[1]);
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, at));
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, at));
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, at)); /* a server without If-Match */
    CHECK_CONTAINS("changed while it was read", diloco_error_text());
    CHECK_INT(0, r.n_got);
    script_stop(&server);
}

TEST(a_read_of_a_version_from_the_beginning_gets_that_version_only)
{
    static const dl_web_position at = {.etag = "\"v1\""};
    SCRIPT(PART("0-2/3", "3", "abc"), "HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 3\r\n\r\nabc");
    CHECK_OK(read_from(&r, &server, 1, at));
    CHECK_STR("abc", r.got);
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, at));
    CHECK_CONTAINS("changed while it was read", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, at)); /* without an ETag */
    CHECK_INT(0, r.n_got);
    script_stop(&server);
}

TEST(a_read_up_to_a_position_asks_for_no_byte_after_it)
{
    SCRIPT(PART("2-5/20", "4", "2345"), PART("6-8/20", "3", "678"),
           "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", PART("8-9/10", "2", "89"));
    CHECK_OK(read_from(&r, &server, 1, (dl_web_position){.begin = 2, .end = 9, .etag = "\"v1\""}));
    CHECK_STR("2345678", r.got);
    CHECK_INT(20, r.announced);
    CHECK_CONTAINS("\r\nRange: bytes=2-5\r\n", server.requests[0]);
    CHECK_CONTAINS("\r\nRange: bytes=6-8\r\n", server.requests[1]);
    /* A server without ranges would send all of a large object. */
    CHECK_STATUS(DILOCO_EPROTO, read_from(&r, &server, 1, (dl_web_position){.end = 4}));
    CHECK_CONTAINS("does not do ranges", diloco_error_text());
    CHECK_STR("", r.at.etag);
    /* The object ends before the position. */
    CHECK_OK(read_from(&r, &server, 1, (dl_web_position){.begin = 8, .end = 12, .etag = "\"v1\""}));
    CHECK_STR("89", r.got);
    script_stop(&server);
}

TEST(the_version_that_was_read_is_reported)
{
    SCRIPT(PART("0-2/3", "3", "abc"));
    CHECK_OK(read_script(&r, &server, 1));
    CHECK_STR("\"v1\"", r.at.etag);
    script_stop(&server);
}

TEST(parts_of_two_objects_never_mix)
{
    static const char *const second[] = {
        "HTTP/1.1 412 Changed\r\nContent-Length: 0\r\n\r\n",
        PART("4-7/11", "4", "4567"), /* another length */
        PART("3-6/10", "4", "3456"), /* other bytes than asked for */
        PART("4-5/10", "2", "45"),   /* fewer */
        "HTTP/1.1 206 Partial\r\nContent-Length: 4\r\n\r\n4567",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
    };
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        const char *responses[] = {PART("0-3/10", "4", "0123"), second[i]};
        http_script server;
        reader r;
        script_start(&server, responses, 2);
        CHECK_STATUS(DILOCO_EPROTO, read_script(&r, &server, 1));
        CHECK_CONTAINS("the object", diloco_error_text());
        script_stop(&server);
    }
}

TEST(a_refusal_is_the_sources_to_word)
{
    SCRIPT("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
    CHECK_STATUS(DILOCO_ENOENT, read_script(&r, &server, 2));
    CHECK_INT(0, r.n_begin);
    script_stop(&server);
}

/* ---- several at once: a server with an object, whose ranges come back in any order */

enum { OBJECT = 64 << 10 };

typedef struct big {
    int port;
    unsigned char bytes[OBJECT];
    size_t n;
} big;

static diloco_status prepare_big(void *context, dl_web_exchange *x, const char *range,
                                 const char *if_match)
{
    big *b = context;
    (void)if_match;
    x->method = "GET";
    x->what = "the object";
    DL_TRY(dl_web_header(x, "Range: %s", range));
    return dl_buf_addf(&x->url, "http://127.0.0.1:%d/o", b->port);
}

static diloco_status ignore_begin(void *context, size_t len)
{
    (void)context;
    return len == OBJECT ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "%zu bytes announced", len);
}

static diloco_status collect(void *context, const void *data, size_t len)
{
    big *b = context;
    if (len > OBJECT - b->n) return dl_fail(DILOCO_EPROTO, "too many bytes");
    memcpy(b->bytes + b->n, data, len);
    b->n += len;
    return DILOCO_OK;
}

/* Answers any number of ranged GETs, one thread a connection, each after a pause of its own. */
static void *serve_connection(void *context)
{
    int fd = (int)(intptr_t)context;
    char request[4096], head[256];
    size_t have = 0;
    for (;;) {
        ssize_t n = recv(fd, request + have, sizeof request - 1 - have, 0);
        if (n <= 0) break;
        have += (size_t)n;
        request[have] = '\0';
        if (!strstr(request, "\r\n\r\n")) continue;
        size_t from = 0, to = 0;
        sscanf(strstr(request, "bytes="), "bytes=%zu-%zu", &from, &to);
        if (to >= OBJECT) to = OBJECT - 1;
        unsigned char body[OBJECT];
        for (size_t i = from; i <= to; i++)
            body[i - from] = (unsigned char)(i * 2654435761u >> 11);
        dl_clock_sleep((dl_time)((from / 1000 * 7) % 5) * DL_MILLISECOND);
        int len = snprintf(head, sizeof head,
                           "HTTP/1.1 206 P\r\nContent-Range: bytes %zu-%zu/%d\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           from, to, OBJECT, to - from + 1);
        send(fd, head, (size_t)len, MSG_NOSIGNAL);
        send(fd, body, to - from + 1, MSG_NOSIGNAL);
        have = 0;
    }
    close(fd);
    return NULL;
}

static void *serve(void *context)
{
    int listener = *(int *)context;
    pthread_t threads[64];
    size_t n = 0;
    for (int fd; n < 64 && (fd = accept(listener, NULL, NULL)) >= 0;)
        pthread_create(&threads[n++], NULL, serve_connection, (void *)(intptr_t)fd);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return NULL;
}

TEST(ranges_in_any_order_are_one_stream)
{
    static big b;
    dl_web *web;
    pthread_t thread;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(0, bind(listener, (struct sockaddr *)&at, sizeof at));
    CHECK_INT(0, listen(listener, 16));
    CHECK_INT(0, getsockname(listener, (struct sockaddr *)&at, &len));
    CHECK_INT(0, pthread_create(&thread, NULL, serve, &listener));
    for (size_t width = 1; width <= 7; width += 3) {
        dl_web_source source = {.range = 1000, /* no divisor of the length */
                                .width = width,
                                .context = &b,
                                .prepare = prepare_big,
                                .refused = refused};
        b.port = ntohs(at.sin_port);
        b.n = 0;
        CHECK_OK(dl_web_create(&web, NULL, &aborted));
        CHECK_OK(dl_web_read(web, &source, (dl_sink){&b, ignore_begin, collect}, DL_NEVER));
        dl_web_destroy(web);
        CHECK_INT(OBJECT, b.n);
        for (size_t i = 0; i < OBJECT; i++)
            if (b.bytes[i] != (unsigned char)(i * 2654435761u >> 11)) CHECK_INT(OBJECT, i);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
}

TEST_MAIN(ranges_of_an_object_are_of_the_version_first_seen, a_small_object_is_one_request,
          an_empty_object_has_no_range, a_range_of_an_empty_object_is_empty,
          a_server_without_ranges_sends_all_at_once, a_broken_range_resumes_where_it_stopped,
          a_read_from_a_position_gets_the_rest_of_that_version,
          a_read_of_a_version_from_the_beginning_gets_that_version_only,
          a_read_up_to_a_position_asks_for_no_byte_after_it, the_version_that_was_read_is_reported,
          parts_of_two_objects_never_mix, a_refusal_is_the_sources_to_word,
          ranges_in_any_order_are_one_stream)
