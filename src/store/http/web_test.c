/* web_test.c - the HTTP client against a server that follows a script. */
#include "store/http/web.h"

#include "check.h"
#include "http_script.h"

/* One exchange whose request and expectations are in a struct; `run_one` runs it. */
typedef struct asked {
    const char *method, *path, *header, *body;
    dl_sink sink;
    bool resumes;
    size_t max_text;
    int again; /* how often finish is not content */
    int port;

    int status; /* of the answer */
    char text[256], etag[64];
    dl_time trip;
    size_t delivered[8]; /* at each try */
    int n_tries;
} asked;

static atomic_bool aborted;

static diloco_status prepare(void *context, dl_web_exchange *x)
{
    asked *a = context;
    static dl_span span;
    x->method = a->method;
    x->what = "the thing";
    x->sink = a->sink;
    x->resumes = a->resumes;
    if (a->body) {
        span = (dl_span){a->body, strlen(a->body)};
        x->body = &span;
        x->n_body = 1;
    }
    if (a->n_tries < 8) a->delivered[a->n_tries] = x->delivered;
    a->n_tries++;
    if (a->header) DL_TRY(dl_web_header(x, "X-Header: %s", a->header));
    return dl_buf_addf(&x->url, "http://127.0.0.1:%d%s", a->port, a->path);
}

static diloco_status finish(void *context, dl_web_exchange *x)
{
    asked *a = context;
    a->status = x->status;
    const char *etag = dl_web_response_header(x, "etag");
    snprintf(a->etag, sizeof a->etag, "%s", etag ? etag : "none");
    snprintf(a->text, sizeof a->text, "%s", x->text.len ? dl_buf_str(&x->text) : "");
    x->again = a->again-- > 0;
    return x->status >= 200 && x->status <= 299 ? DILOCO_OK : dl_web_unexpected(x);
}

static diloco_status run_until(asked *a, const http_script *script, dl_time until)
{
    dl_web *web;
    dl_web_options options = {.tries = 3};
    dl_web_batch batch = {.n = 1,
                          .width = 1,
                          .max_text = a->max_text,
                          .context = a,
                          .prepare = prepare,
                          .finish = finish};
    a->port = script->port;
    CHECK_OK(dl_web_create(&web, &options, &aborted));
    CHECK(dl_web_trip(web) == 0); /* nothing went over it yet */
    diloco_status status = dl_web_run(web, &batch, until);
    a->trip = dl_web_trip(web);
    dl_web_destroy(web);
    return status;
}

static diloco_status run_one(asked *a, const http_script *script)
{
    return run_until(a, script, DL_NEVER);
}

#define SCRIPT(name, ...)                                                                          \
    static const char *const name##_responses[] = {__VA_ARGS__};                                   \
    http_script name;                                                                              \
    script_start(&name, name##_responses, sizeof name##_responses / sizeof *name##_responses)

#define OK_BODY(text, length) "HTTP/1.1 200 OK\r\nContent-Length: " length "\r\n\r\n" text
#define EMPTY(status)         "HTTP/1.1 " status "\r\nContent-Length: 0\r\n\r\n"

/* ---- a request and its answer */

TEST(a_request_arrives_as_it_was_asked_and_the_answer_comes_back)
{
    SCRIPT(server, "HTTP/1.1 201 Made\r\nETag: \"abc\"\r\nContent-Length: 5\r\n\r\nhello");
    asked a = {.method = "PUT", .path = "/b/k?x=1", .header = "v 1", .body = "the body"};
    CHECK_OK(run_one(&a, &server));
    CHECK_INT(201, a.status);
    CHECK_STR("\"abc\"", a.etag);
    CHECK_STR("hello", a.text);
    CHECK(a.trip > 0); /* the kernel's, of the line */
    script_stop(&server);
}

TEST(an_empty_header_is_absent)
{
    SCRIPT(server, "HTTP/1.1 200 OK\r\nETag:\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nETag:  \r\nContent-Length: 0\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        asked a = {.method = "GET", .path = "/k"};
        CHECK_OK(run_one(&a, &server));
        CHECK_STR("none", a.etag);
    }
    script_stop(&server);
}

TEST(sent_bytes_equal_the_prepared_bytes)
{
    SCRIPT(server, EMPTY("200 OK"), EMPTY("200 OK"), EMPTY("200 OK"));
    asked put = {.method = "PUT", .path = "/b/k?x=1", .header = "v 1", .body = "the body"};
    asked post = {.method = "POST", .path = "/p"}, gone = {.method = "DELETE", .path = "/../d"};
    CHECK_OK(run_one(&put, &server));
    CHECK_OK(run_one(&post, &server));
    CHECK_OK(run_one(&gone, &server));
    CHECK_CONTAINS("PUT /b/k?x=1 HTTP/1.1\r\n", server.requests[0]);
    CHECK_CONTAINS("X-Header: v 1\r\n", server.requests[0]);
    CHECK_CONTAINS("Content-Length: 8\r\n", server.requests[0]);
    CHECK_CONTAINS("\r\n\r\nthe body", server.requests[0]);
    CHECK(!strstr(server.requests[0], "Expect"));
    CHECK_CONTAINS("POST /p HTTP/1.1\r\n", server.requests[1]);
    CHECK_CONTAINS("Content-Length: 0\r\n", server.requests[1]);
    CHECK_CONTAINS("DELETE /../d HTTP/1.1\r\n", server.requests[2]); /* no path is tidied */
    CHECK(!strstr(server.requests[2], "Content-Length"));
    script_stop(&server);
}

TEST(a_header_with_a_line_break_is_refused)
{
    SCRIPT(server, EMPTY("200 OK"));
    asked a = {.method = "GET", .path = "/", .header = "x\r\nEvil: 1"};
    CHECK_STATUS(DILOCO_EINVAL, run_one(&a, &server));
    script_stop(&server);
}

TEST(an_error_outside_2xx_has_the_text_of_the_server)
{
    static const struct {
        const char *answer;
        diloco_status status;
        const char *part;
    } cases[] = {
        {"HTTP/1.1 404 Not\r\nContent-Length: 44\r\n\r\n<E><Code>NoSuchKey</Code><Message>gone</Mes"
         "sage>",
         DILOCO_ENOENT, "the thing: the server answered 404 (NoSuchKey"},
        {"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nno\n!", DILOCO_EREFUSED, "403 (no !)"},
        {"HTTP/1.1 507 Full\r\nContent-Length: 8\r\n\r\nfull up\n", DILOCO_EFULL, "507 (full up)"},
        {"HTTP/1.1 507 Full\r\nContent-Length: 2\r\n\r\n\r\n", DILOCO_EFULL, "(without a word)"},
        {EMPTY("401 Who"), DILOCO_EREFUSED, "401 (without a word)"},
        {EMPTY("507 Full"), DILOCO_EFULL, "507"},
        {EMPTY("418 Teapot"), DILOCO_EIO, "418"},
        {EMPTY("501 Not Implemented"), DILOCO_EPROTO, "501"},
        {EMPTY("301 Moved"), DILOCO_EPROTO, "301"},
        {"HTTP/1.1 308 Moved\r\nLocation: https://other/run\r\nContent-Length: 0\r\n\r\n",
         DILOCO_EPROTO, "308: it is at https://other/run; "},
        {"HTTP/1.1 302 No\r\nLocation: https://u:p@other\r\nContent-Length: 0\r\n\r\n",
         DILOCO_EPROTO, "302 (without a word)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_script server;
        script_start(&server, &cases[i].answer, 1);
        asked a = {.method = "GET", .path = "/"};
        CHECK_STATUS(cases[i].status, run_one(&a, &server));
        CHECK_CONTAINS(cases[i].part, diloco_error_text());
        CHECK_INT(1, a.n_tries);
        script_stop(&server);
    }
}

TEST(an_answer_that_is_longer_than_its_maximum_is_refused)
{
    SCRIPT(server, OK_BODY("12345", "5"), OK_BODY("123456", "6"));
    asked a = {.method = "GET", .path = "/", .max_text = 5};
    CHECK_OK(run_one(&a, &server));
    CHECK_STR("12345", a.text);
    CHECK_STATUS(DILOCO_EPROTO, run_one(&a, &server));
    CHECK_CONTAINS("longer than 5 bytes", diloco_error_text());
    script_stop(&server);
}

TEST(a_server_that_does_not_speak_http_is_refused)
{
    SCRIPT(server, "!SSH-2.0-OpenSSH_9.2\r\n");
    asked a = {.method = "GET", .path = "/"};
    CHECK_STATUS(DILOCO_EPROTO, run_one(&a, &server));
    CHECK_CONTAINS("does not speak HTTP", diloco_error_text());
    script_stop(&server);
}

/* ---- trying again */

TEST(transient_errors_are_retried)
{
    SCRIPT(server, EMPTY("503 Slow"), "!", OK_BODY("good", "4"));
    asked a = {.method = "PUT", .path = "/", .body = "once more"};
    CHECK_OK(run_one(&a, &server));
    CHECK_STR("good", a.text);
    CHECK_INT(3, server.n_requests); /* the second by libcurl: an old connection had died */
    CHECK_CONTAINS("\r\n\r\nonce more", server.requests[2]);
    script_stop(&server);
}

TEST(after_some_tries_the_server_counts_as_unreachable)
{
    static const char *const passing[] = {EMPTY("408 x"),
                                          EMPTY("429 x"),
                                          EMPTY("500 x"),
                                          EMPTY("502 x"),
                                          EMPTY("503 x"),
                                          EMPTY("504 x"),
                                          "!"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        const char *responses[] = {passing[i], passing[i], passing[i], OK_BODY("", "0")};
        http_script server;
        script_start(&server, responses, 4);
        asked a = {.method = "GET", .path = "/"};
        CHECK_STATUS(DILOCO_EUNREACHABLE, run_one(&a, &server));
        CHECK_CONTAINS("in 3 tries", diloco_error_text());
        CHECK_INT(3, a.n_tries);
        script_stop(&server);
    }
}

TEST(an_absent_peer_is_unreachable)
{
    http_script server;
    script_start(&server, NULL, 0);
    script_stop(&server); /* so no process listens at its port */
    asked a = {.method = "GET", .path = "/"};
    CHECK_STATUS(DILOCO_EUNREACHABLE, run_one(&a, &server));
    CHECK_CONTAINS("the thing", diloco_error_text());
}

TEST(finish_may_ask_for_another_try)
{
    SCRIPT(server, OK_BODY("<Error/>", "8"), OK_BODY("done", "4"));
    asked a = {.method = "POST", .path = "/", .again = 1};
    CHECK_OK(run_one(&a, &server));
    CHECK_STR("done", a.text);
    script_stop(&server);
}

TEST(an_answer_that_finish_always_refuses_is_unreachable_in_the_end)
{
    SCRIPT(server, OK_BODY("", "0"), OK_BODY("", "0"), OK_BODY("", "0"));
    asked a = {.method = "POST", .path = "/", .again = 99};
    CHECK_STATUS(DILOCO_EUNREACHABLE, run_one(&a, &server));
    CHECK_INT(3, a.n_tries);
    script_stop(&server);
}

/* ---- sinks */

typedef struct listener {
    size_t announced, got;
    diloco_status at_begin, at_piece;
} listener;

static diloco_status on_begin(void *context, size_t len)
{
    listener *l = context;
    l->announced = len;
    return l->at_begin;
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    (void)data;
    listener *l = context;
    l->got += len;
    return l->at_piece ? dl_fail(l->at_piece, "the sink's word") : DILOCO_OK;
}

TEST(a_sink_hears_the_length_and_then_the_bytes)
{
    SCRIPT(server, OK_BODY("0123456789", "10"), EMPTY("200 OK"), EMPTY("404 None"));
    listener l = {0};
    asked a = {.method = "GET", .path = "/", .sink = {&l, on_begin, on_piece}};
    CHECK_OK(run_one(&a, &server));
    CHECK_INT(10, l.announced);
    CHECK_INT(10, l.got);
    l = (listener){.announced = 99};
    CHECK_OK(run_one(&a, &server)); /* of no bytes, too */
    CHECK_INT(0, l.announced);
    l = (listener){.announced = 99};
    CHECK_STATUS(DILOCO_ENOENT, run_one(&a, &server)); /* but not of an error */
    CHECK_INT(99, l.announced);
    script_stop(&server);
}

TEST(a_sink_can_stop_the_answer)
{
    SCRIPT(server, OK_BODY("0123456789", "10"), OK_BODY("0123456789", "10"));
    listener l = {.at_begin = DILOCO_EREFUSED};
    asked a = {.method = "GET", .path = "/", .sink = {&l, on_begin, on_piece}};
    CHECK_STATUS(DILOCO_EREFUSED, run_one(&a, &server));
    l = (listener){.at_piece = DILOCO_ENUMERIC};
    CHECK_STATUS(DILOCO_ENUMERIC, run_one(&a, &server));
    CHECK_STR("the sink's word", diloco_error_text());
    script_stop(&server);
}

TEST(a_sink_with_begin_wants_a_length)
{
    SCRIPT(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    listener l = {0};
    asked a = {.method = "GET", .path = "/", .sink = {&l, on_begin, on_piece}};
    CHECK_STATUS(DILOCO_EPROTO, run_one(&a, &server));
    CHECK_INT(0, l.got);
    script_stop(&server);
}

TEST(only_a_caller_that_can_resume_a_broken_body_does)
{
    SCRIPT(server, "!" OK_BODY("01234", "10"), "!" OK_BODY("01234", "10"), OK_BODY("56789", "5"));
    listener l = {0};
    asked a = {.method = "GET", .path = "/", .sink = {&l, on_begin, on_piece}};
    CHECK_STATUS(DILOCO_EUNREACHABLE, run_one(&a, &server));
    CHECK_INT(1, a.n_tries);
    CHECK_CONTAINS("in 1 try", diloco_error_text());

    l = (listener){0};
    a.n_tries = 0;
    a.resumes = true;
    CHECK_OK(run_one(&a, &server));
    CHECK_INT(2, a.n_tries);
    CHECK_INT(5, a.delivered[1]);
    CHECK_INT(10, l.announced); /* once */
    CHECK_INT(10, l.got);
    script_stop(&server);
}

/* ---- time and abort */

TEST(a_server_that_does_not_answer_ends_at_until)
{
    SCRIPT(server, "?", EMPTY("503 x"), "?");
    asked a = {.method = "GET", .path = "/"};
    CHECK_STATUS(DILOCO_ETIMEDOUT, run_until(&a, &server, dl_clock_now() + 150 * DL_MILLISECOND));
    CHECK_CONTAINS("the thing", diloco_error_text());
    CHECK_STATUS(DILOCO_ETIMEDOUT, run_until(&a, &server, dl_clock_now() + 400 * DL_MILLISECOND));
    CHECK_STATUS(DILOCO_ETIMEDOUT, run_until(&a, &server, dl_clock_now() - 1));
    script_stop(&server);
}

static void *abort_soon(void *unused)
{
    (void)unused;
    dl_clock_sleep(50 * DL_MILLISECOND);
    atomic_store(&aborted, true);
    return NULL;
}

TEST(abort_ends_a_request)
{
    SCRIPT(server, "?");
    pthread_t thread;
    asked a = {.method = "GET", .path = "/"};
    CHECK_INT(0, pthread_create(&thread, NULL, abort_soon, NULL));
    CHECK_STATUS(DILOCO_ECLOSED, run_one(&a, &server));
    pthread_join(thread, NULL);
    atomic_store(&aborted, false);
    script_stop(&server);
}

/* ---- several */

typedef struct many {
    const http_script *server;
    bool prepared[10], finished[10];
    size_t width, worst_lead;
    size_t fail_at; /* index whose finish fails; 99: none */
} many;

static size_t lowest(const many *m)
{
    size_t i = 0;
    while (i < 10 && m->finished[i])
        i++;
    return i;
}

static diloco_status prepare_many(void *context, dl_web_exchange *x)
{
    many *m = context;
    m->prepared[x->index] = true;
    m->worst_lead = dl_size_max(m->worst_lead, x->index - lowest(m));
    x->method = "GET";
    x->what = "one of many";
    return dl_buf_addf(&x->url, "http://127.0.0.1:%d/%zu", m->server->port, x->index);
}

static diloco_status finish_many(void *context, dl_web_exchange *x)
{
    many *m = context;
    m->finished[x->index] = true;
    return x->index == m->fail_at ? dl_fail(DILOCO_ENUMERIC, "number %zu", x->index) : DILOCO_OK;
}

static diloco_status run_many(many *m, size_t width, dl_web_traffic *traffic)
{
    SCRIPT(server, OK_BODY("x", "1"), OK_BODY("x", "1"), OK_BODY("x", "1"), EMPTY("503 x"),
           OK_BODY("x", "1"), OK_BODY("x", "1"), OK_BODY("x", "1"), OK_BODY("x", "1"),
           OK_BODY("x", "1"), OK_BODY("x", "1"), OK_BODY("x", "1"));
    dl_web *web;
    dl_web_batch batch = {
        .n = 10, .width = width, .context = m, .prepare = prepare_many, .finish = finish_many};
    m->server = &server;
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    diloco_status status = dl_web_run(web, &batch, DL_NEVER);
    *traffic = dl_web_counts(web);
    dl_web_destroy(web);
    script_stop(&server);
    CHECK(atomic_load(&server.n_connections) <= width + 1);
    return status;
}

TEST(a_batch_runs_all_over_few_connections_and_never_too_far_ahead)
{
    for (size_t width = 1; width <= 4; width++) {
        many m = {.fail_at = 99};
        dl_web_traffic traffic;
        CHECK_OK(run_many(&m, width, &traffic));
        CHECK_INT(10, lowest(&m));
        CHECK(m.worst_lead < width);
        CHECK_INT(11, traffic.n_requests);
        CHECK(traffic.received > 11 * 30 && traffic.sent > 11 * 30); /* heads are counted */
    }
}

static size_t lengths(const char *const *texts, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += strlen(texts[i]);
    return sum;
}

TEST(counted_bytes_are_those_of_the_connection_with_each_head_and_body_once)
{
    enum { BODY = 1 << 20 };
    static const char *const responses[] = {EMPTY("503 x"), EMPTY("200 OK"), OK_BODY("123", "3"),
                                            EMPTY("200 OK")};
    http_script server;
    dl_web *web;
    char *body = calloc(1, BODY + 1);
    memset(body, 'b', BODY);
    script_start(&server, responses, 4);
    asked all[] = {{.method = "PUT", .path = "/k", .body = body}, /* twice, the first in vain */
                   {.method = "GET", .path = "/k"},
                   {.method = "POST", .path = "/p", .body = "a short one"}};
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    for (size_t i = 0; i < 3; i++) {
        const dl_web_batch batch = {
            .n = 1, .width = 1, .context = &all[i], .prepare = prepare, .finish = finish};
        all[i].port = server.port;
        CHECK_OK(dl_web_run(web, &batch, DL_NEVER));
    }
    const dl_web_traffic traffic = dl_web_counts(web);
    CHECK_INT(4, traffic.n_requests);
    CHECK_INT(lengths((const char *const *)server.requests, 4), traffic.sent);
    CHECK_INT(lengths(responses, 4), traffic.received);
    dl_web_destroy(web);
    script_stop(&server);
    free(body);
}

TEST(the_first_failure_ends_a_batch)
{
    many m = {.fail_at = 2};
    dl_web_traffic traffic;
    CHECK_STATUS(DILOCO_ENUMERIC, run_many(&m, 3, &traffic));
    CHECK_STR("number 2", diloco_error_text());
    CHECK(!m.finished[9]);
}

TEST(a_batch_of_nothing_is_done)
{
    dl_web *web;
    dl_web_batch batch = {.n = 0, .width = 1};
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    CHECK_OK(dl_web_run(web, &batch, DL_NEVER));
    dl_web_destroy(web);
    dl_web_destroy(NULL);
}

TEST(escaping_keeps_characters_that_urls_allow)
{
    dl_buf out;
    dl_buf_init(&out, 100);
    CHECK_OK(dl_web_escape(&out, "aZ0-._~/+= :%\xc3\xa4", true));
    CHECK_STR("aZ0-._~/%2B%3D%20%3A%25%C3%A4", dl_buf_str(&out));
    dl_buf_clear(&out);
    CHECK_OK(dl_web_escape(&out, "a/b", false));
    CHECK_STR("a%2Fb", dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST_MAIN(a_request_arrives_as_it_was_asked_and_the_answer_comes_back, an_empty_header_is_absent,
          sent_bytes_equal_the_prepared_bytes, a_header_with_a_line_break_is_refused,
          an_error_outside_2xx_has_the_text_of_the_server,
          an_answer_that_is_longer_than_its_maximum_is_refused,
          a_server_that_does_not_speak_http_is_refused, transient_errors_are_retried,
          after_some_tries_the_server_counts_as_unreachable, an_absent_peer_is_unreachable,
          finish_may_ask_for_another_try,
          an_answer_that_finish_always_refuses_is_unreachable_in_the_end,
          a_sink_hears_the_length_and_then_the_bytes, a_sink_can_stop_the_answer,
          a_sink_with_begin_wants_a_length, only_a_caller_that_can_resume_a_broken_body_does,
          a_server_that_does_not_answer_ends_at_until, abort_ends_a_request,
          a_batch_runs_all_over_few_connections_and_never_too_far_ahead,
          counted_bytes_are_those_of_the_connection_with_each_head_and_body_once,
          the_first_failure_ends_a_batch, a_batch_of_nothing_is_done,
          escaping_keeps_characters_that_urls_allow)
