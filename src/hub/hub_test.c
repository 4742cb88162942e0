/* hub_test.c - the hub as its clients and untrusted peers see it: objects, listings, access and
 * names. hub_limits_test.c has the requests that are too long, too slow or too many. */
#include "hub_fixture.h"

#include <fcntl.h>

/* ---- main function */

TEST(an_object_is_made_once_read_in_ranges_and_deleted)
{
    fixture_serve(PLAIN);
    CHECK_INT(404, ask("HEAD /run"));
    CHECK_INT(404, ask_with("PUT /run/a", "If-None-Match: *\r\n", "0123456789"));
    make_run();
    CHECK_INT(200, ask("PUT /run")); /* there already */
    CHECK_INT(201, ask_with("PUT /run/a", "If-None-Match: *\r\n", "0123456789"));
    CHECK_INT(412, ask_with("PUT /run/a", "If-None-Match: *\r\n", "0123456789"));
    CHECK_INT(412, ask_with("PUT /run/a", "If-None-Match: *\r\n", "other"));
    CHECK_INT(400, ask_with("PUT /run/a", "If-None-Match: \"x\"\r\n", ""));
    CHECK_INT(400, ask_with("PUT /run/a", "If-Match: \"x\"\r\n", ""));
    CHECK_CONTAINS("\r\n\r\n0123456789",
                   client_ask("GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    const char *part =
        client_ask("GET /run/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=3-5\r\n\r\n");
    CHECK_INT(206, status_of(part));
    CHECK_CONTAINS("Content-Range: bytes 3-5/10\r\n", part);
    CHECK_CONTAINS("\r\n\r\n345", part);
    CHECK_INT(416, ask_with("GET /run/a", "Range: bytes=10-\r\n", ""));
    CHECK_INT(412, ask_with("GET /run/a", "If-Match: \"x\"\r\n", ""));
    CHECK_INT(200, ask("HEAD /run/a"));
    CHECK_INT(204, ask("DELETE /run/a"));
    CHECK_INT(204, ask("DELETE /run/a"));
    CHECK_INT(404, ask("GET /run/a"));
    CHECK_INT(404, ask("HEAD /run/a"));
}

TEST(an_etag_is_of_one_object_for_all_time)
{
    char request[300], etag[80];
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0", "", "one"));
    const char *at =
        strstr(client_ask("GET /run/hb/r0.0 HTTP/1.1\r\nHost: localhost\r\n\r\n"), "ETag: ");
    CHECK(at != NULL);
    CHECK_INT(1, sscanf(at, "ETag: %79s", etag));
    snprintf(request, sizeof request, "If-Match: %s\r\n", etag);
    CHECK_INT(200, ask_with("GET /run/hb/r0.0", request, ""));
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0", "", "two"));
    CHECK_INT(412, ask_with("GET /run/hb/r0.0", request, ""));
}

/* The ETag header of the answer to a request with its body. */
static void etag_of(char out[80], const char *request)
{
    const char *at = strstr(client_ask(request), "ETag: ");
    CHECK(at != NULL);
    CHECK_INT(1, sscanf(at, "ETag: %79s", out));
}

TEST(a_put_over_an_object_names_the_object)
{
    char first[80], second[80];
    static const char put[] =
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    fixture_serve(PLAIN);
    make_run();
    etag_of(first, put);
    etag_of(second, put);
    CHECK_STR(first, second);
    etag_of(second, "HEAD /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_STR(first, second);
}

TEST(requests_follow_each_other_on_one_connection)
{
    fixture_serve(PLAIN);
    make_run();
    int fd = client_open();
    for (int i = 0; i < 3; i++) { /* made, taken, taken: small refusals keep the connection */
        client_send_text(fd, "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\n"
                             "Content-Length: 3\r\n\r\nabc");
        CHECK_INT(i ? 412 : 201, status_of(client_read(fd, false)));
    }
    client_send_text(fd, "GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_CONTAINS("\r\n\r\nabc", client_read(fd, false));
    close(fd);
}

TEST(a_listing_comes_in_pages)
{
    fixture_serve(PLAIN);
    CHECK_INT(201, ask("PUT /run"));
    CHECK_INT(201, ask_with("PUT /run/more/a", "", "1"));
    CHECK_INT(201, ask_with("PUT /run/more/b", "", "22"));
    CHECK_INT(201, ask_with("PUT /run/more/c/d", "", "333"));
    static const char *const asked[][2] = {
        {"run=run", "\r\n\r\n1 more/a\n2 more/b\n3 more/c/d\nend\n"},
        {"run=run/more", "\r\n\r\n1 a\n2 b\n3 c/d\nend\n"},
        {"run=run%2Fmore&prefix=c/", "\r\n\r\n3 c/d\nend\n"},
        {"run=run/more&limit=2", "\r\n\r\n1 a\n2 b\nmore\n"},
        {"run=run/more&after=b", "\r\n\r\n3 c/d\nend\n"},
        {"run=run/none", "\r\n\r\nend\n"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char request[300];
        snprintf(request, sizeof request, "GET /list?%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 asked[i][0]);
        CHECK_CONTAINS(asked[i][1], client_ask(request));
    }
    CHECK_INT(404, ask("GET /list?run=nobody"));
    const char *bad[] = {"GET /list",
                         "GET /list?run=",
                         "GET /list?run=../x",
                         "GET /list?run=run&limit=0",
                         "GET /list?run=run&limit=x",
                         "GET /list?run=run&prefix=a",
                         "GET /list?run=run&prefix=../",
                         "GET /list?run=run/.tmp",
                         "GET /list?run=list",
                         "GET /list?run=run&after=.a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(400, ask(bad[i]));
    CHECK_INT(405, ask("PUT /list?run=run"));
}

static size_t count_lines(const char *request)
{
    const char *at = strstr(client_ask(request), "\r\n\r\n");
    size_t n = 0;
    CHECK(at);
    for (at += 4; (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

/* There is one line more than keys, with "more" or "end". */
TEST(a_page_has_a_thousand_keys_and_more_if_they_are_asked_for)
{
    char path[PATH_MAX];
    fixture_serve(PLAIN);
    CHECK_INT(201, ask("PUT /run"));
    for (int i = 0; i < 10010; i++) {
        snprintf(path, sizeof path, "%s/run/%05d", fixture.dir, i);
        const int fd = open(path, O_WRONLY | O_CREAT, 0666);
        CHECK(fd >= 0 && !close(fd));
    }
    CHECK_INT(1001, count_lines("GET /list?run=run HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK_INT(5001,
              count_lines("GET /list?run=run&limit=5000 HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK_INT(10001,
              count_lines("GET /list?run=run&limit=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

TEST(a_stream_reports_changes_under_its_prefixes)
{
    fixture_serve(PLAIN);
    make_run();
    int fd = client_open();
    client_send_text(
        fd, "GET /events?run=run&prefix=log/&prefix=c/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
    char text[4096] = "";
    size_t len = 0;
    bool said = false;
    while (!strstr(text, "data: c/1/r0.0\n\n") && len + 1 < sizeof text) {
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        CHECK(n > 0);
        text[len += (size_t)n] = '\0';
        if (said || !strstr(text, "event: open\ndata: run/\n\n")) continue;
        said = true; /* the subscription is active */
        CHECK_INT(201, ask_with("PUT /run/hb/r0.0", "", "x"));
        CHECK_INT(201, ask_with("PUT /run/log/0000000000.json", "", "x"));
        CHECK_INT(201, ask_with("PUT /run/c/1/r0.0", "", "x"));
    }
    CHECK_CONTAINS("Content-Type: text/event-stream\r\n", text);
    CHECK_CONTAINS("data: log/0000000000.json\n\n", text);
    CHECK(!strstr(text, "hb/"));
    close(fd);
    CHECK_INT(400, ask("GET /events"));
    CHECK_INT(404, ask("GET /events?run=nobody"));
}

/* The heartbeat in these metrics is at most as old as the test, which began `before` it. The number
 * has three digits, and the time of a file may be 10 ms early. */
static void check_beat_age(const char *text, dl_time before)
{
    static const char name[] =
        "\ndiloco_hub_heartbeat_age_seconds{run=\"run\",replica=\"r0.0001\"} ";
    const char *at = strstr(text, name);
    double age = -1;
    CHECK(at != NULL);
    CHECK_INT(1, sscanf(at + sizeof name - 1, "%lf\n", &age));
    CHECK(age >= 0 && age <= dl_seconds(dl_clock_now() - before) + 0.011);
}

TEST(metrics_and_health_and_status_answer)
{
    const dl_time before = dl_clock_now();
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/log/0000000041.json", "", "x"));
    CHECK_INT(201, ask_with("PUT /run/sub/log/0000000000.json", "", "x"));
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0000", "", "x"));
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0001", "", "x"));
    CHECK_CONTAINS("\r\n\r\nok\n", client_ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK_INT(201, ask_with("PUT /run/gen/r0.0000", "", "x")); /* kept, but no entries */
    CHECK_INT(201, ask_with("PUT /run/sub/in/admit/0123456789.json", "", "x"));
    const char *text = client_ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_CONTAINS("diloco_hub_requests_total{kind=\"put\",code=\"201\"} 6\n", text);
    CHECK_CONTAINS("diloco_hub_objects{bucket=\"run\"} 6\n", text);
    CHECK_CONTAINS("diloco_hub_log_entries{run=\"run\"} 42\n", text);
    CHECK_CONTAINS("diloco_hub_log_entries{run=\"run/sub\"} 1\n", text);
    size_t n_runs = 0;
    for (const char *at = text; (at = strstr(at, "\ndiloco_hub_log_entries{")); at++)
        n_runs++;
    CHECK_INT(2, n_runs);
    check_beat_age(text, before);
    CHECK(!strstr(text, "r0.0000"));
    CHECK_INT(404, ask("GET /status.json?run=run")); /* no run.json in it */
    CHECK_INT(400, ask("GET /status.json"));
    CHECK_INT(405, ask("POST /metrics"));
    CHECK_INT(405, ask("PATCH /run/a"));
    CHECK_INT(405, ask("OPTIONS /run"));
}

/* ---- access */

static const char *metrics(void)
{
    return client_ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(a_scrape_walks_no_folder)
{
    char path[700];
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/log/0000000000.json", "", "1234"));
    CHECK_INT(201, ask_with("PUT /run/a", "", "123"));
    CHECK_INT(201, ask_with("PUT /run/a", "", "123"));
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0000", "", "12"));
    CHECK_INT(201, ask_with("PUT /run/hb/r0.0000", "", "123456"));
    snprintf(path, sizeof path, "%s/run/by-hand", fixture.dir);
    CHECK_OK(dl_file_write(path, &(dl_span){"xyz", 3}, 1)); /* seen by a walk only */
    CHECK_CONTAINS("diloco_hub_objects{bucket=\"run\"} 3\n", metrics());
    CHECK_CONTAINS("diloco_hub_object_bytes{bucket=\"run\"} 13\n", metrics());
    CHECK_INT(204, ask("DELETE /run/a"));
    CHECK_INT(204, ask("DELETE /run/a"));
    CHECK_INT(204, ask("DELETE /run/hb/r0.0000"));
    CHECK_CONTAINS("diloco_hub_objects{bucket=\"run\"} 1\n", metrics());
    CHECK(!strstr(metrics(), "heartbeat_age"));
    fixture_stop();
    fixture_serve(PLAIN); /* the next one walks once, beside its requests */
    while (!strstr(metrics(), "diloco_hub_objects{bucket=\"run\"} 2\n"))
        usleep(10000);
    CHECK_CONTAINS("diloco_hub_object_bytes{bucket=\"run\"} 7\n", metrics());
    CHECK_CONTAINS("diloco_hub_log_entries{run=\"run\"} 1\n", metrics());
}

TEST(an_answer_that_is_cut_is_counted_as_such_and_an_open_stream_as_one)
{
    enum { LEN = 32 << 20 };
    char path[700], *big = calloc(1, LEN);
    fixture_serve(PLAIN);
    make_run();
    snprintf(path, sizeof path, "%s/run/big", fixture.dir);
    CHECK_OK(dl_file_write(path, &(dl_span){big, LEN}, 1));
    int stream = client_open(), cut = client_open();
    client_send_text(stream, "GET /events?run=run HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!strstr(metrics(), "diloco_hub_event_streams 1\n"))
        usleep(10000);
    client_send_text(cut, "GET /run/big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_INT(1, recv(cut, big, 1, 0));
    close(cut);
    while (!strstr(metrics(), "diloco_hub_cut_requests_total 1\n"))
        usleep(10000);
    CHECK_CONTAINS("diloco_hub_sent_bytes_total 0\n", metrics());
    close(stream);
    while (!strstr(metrics(), "diloco_hub_event_streams 0\n"))
        usleep(10000);
    CHECK_CONTAINS("diloco_hub_cut_requests_total 1\n", metrics());
    free(big);
}

TEST(without_a_token_only_health_answers)
{
    char tokens[700];
    fixture_write("tokens", "correct-horse-battery\n\n# old\nsecond-token-of-ours\n");
    snprintf(tokens, sizeof tokens, "%s/tokens", fixture.root);
    fixture_serve((dl_hub_options){.token_file = tokens});
    CHECK_INT(200, ask("GET /healthz"));
    const char *targets[] = {"GET /metrics",
                             "PUT /run",
                             "GET /run/a",
                             "GET /list?run=run",
                             "GET /events?run=run",
                             "GET /status.json?run=run",
                             "GET /"};
    const char *wrong[] = {"",
                           "Authorization: Bearer\r\n",
                           "Authorization: Bearer correct-horse-batterY\r\n",
                           "Authorization: Bearer correct-horse-batter\r\n",
                           "Authorization: Bearer correct-horse-battery2\r\n",
                           "Authorization: Basic Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5\r\n",
                           "Authorization: Bearer # old\r\n"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            CHECK_INT(401, ask_with(targets[i], wrong[k], ""));
    CHECK_INT(0, count_files("hub"));
    CHECK_INT(201, ask_with("PUT /run", "Authorization: Bearer correct-horse-battery\r\n", ""));
    CHECK_INT(200, ask_with("GET /metrics", "authorization: bearer second-token-of-ours\r\n", ""));
}

TEST(a_file_of_tokens_is_read_strictly)
{
    static const char *const bad[] = {"", "# only this\n", "tooshort\n",
                                      "with a space inside it\n"};
    char path[700];
    dl_hub *hub;
    snprintf(path, sizeof path, "%s/tokens", fixture.root);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fixture_write("tokens", bad[i]);
        dl_hub_options options = {.dir = fixture.dir, .listen = "127.0.0.1:0", .token_file = path};
        CHECK_STATUS(DILOCO_EINVAL, dl_hub_start(&hub, &options));
        CHECK(!strstr(diloco_error_text(), "tooshort"));
    }
    dl_hub_options none = {.dir = fixture.dir, .listen = "127.0.0.1:0", .token_file = "/nowhere/x"};
    CHECK_STATUS(DILOCO_ENOENT, dl_hub_start(&hub, &none));
}

TEST(it_listens_beyond_loopback_only_with_tls_or_on_request)
{
    dl_hub *hub;
    dl_hub_options options = {.dir = fixture.dir, .listen = "0.0.0.0:0"};
    CHECK_STATUS(DILOCO_EREFUSED, dl_hub_start(&hub, &options));
    options.listen = ":0";
    CHECK_STATUS(DILOCO_EREFUSED, dl_hub_start(&hub, &options));
    options.insecure = true;
    CHECK_OK(dl_hub_start(&hub, &options));
    dl_hub_stop(hub, 0, NULL);
    const char *bad[] = {"", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "a b:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.listen = bad[i];
        CHECK_STATUS(DILOCO_EINVAL, dl_hub_start(&hub, &options));
    }
    options = (dl_hub_options){.dir = fixture.dir, .listen = "127.0.0.1:0", .cert_file = "/x"};
    CHECK_STATUS(DILOCO_EINVAL, dl_hub_start(&hub, &options)); /* without its key */
    options.key_file = "/x";
    CHECK_STATUS(DILOCO_ENOENT, dl_hub_start(&hub, &options));
    options.cert_file = options.key_file = "/etc/hostname";
    CHECK_STATUS(DILOCO_EIO, dl_hub_start(&hub, &options));
}

TEST(an_open_hub_answers_to_the_names_of_this_machine_only)
{
    static const char *const right[] = {"localhost", "LOCALHOST:80", "127.0.0.1:1",
                                        "127.1.2.3", "[::1]:8000",   "[0:0:0:0:0:0:0:1]"};
    static const char *const wrong[] = {"evil.example",
                                        "127.0.0.1.evil.example",
                                        "localhost.evil",
                                        "",
                                        "[::1",
                                        "127.1.2.3.4",
                                        "127.",
                                        "localhost/evil.example",
                                        "evil.example@localhost"};
    char request[200];
    fixture_serve(PLAIN);
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        snprintf(request, sizeof request, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", right[i]);
        CHECK_INT(200, status_of(client_ask(request)));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(request, sizeof request, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", wrong[i]);
        CHECK_INT(421, status_of(client_ask(request)));
    }
}

/* ---- tricks with paths */

TEST(no_path_leads_out_of_the_folder)
{
    static const char *const tricks[] = {"/../secret",
                                         "/run/../../secret",
                                         "/%2e%2e/secret",
                                         "/run/%2e%2e/%2e%2e/secret",
                                         "/run/..%2f..%2fsecret",
                                         "//secret",
                                         "/run//a",
                                         "/run/./a",
                                         "/run/.tmp/a",
                                         "/.tmp/a",
                                         "/run/.multipart/a",
                                         "/run/a/",
                                         "/run/a%00b",
                                         "/run/%",
                                         "/run/%zz",
                                         "/run/a%0ab",
                                         "/run/\\..\\secret",
                                         "/run/a%5cb",
                                         "/run/~root",
                                         "/metrics/a",
                                         "/healthz/a",
                                         "/list/a",
                                         "/events/a",
                                         "/status.json/a",
                                         "/run/%c0%ae%c0%ae/secret",
                                         "/run/a b",
                                         "/run/a;b",
                                         "/run/-rf/../../../secret",
                                         "http://localhost/run/a",
                                         "*",
                                         "run/a",
                                         "/link/secret"};
    char link_path[700];
    fixture_write("secret", "untouched");
    fixture_serve(PLAIN);
    make_run();
    snprintf(link_path, sizeof link_path, "%s/link", fixture.dir);
    CHECK_INT(0, symlink(fixture.root, link_path)); /* a link is no bucket */
    for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) {
        static const char *const methods[] = {"GET", "PUT", "DELETE", "HEAD"};
        for (size_t m = 0; m < 4; m++) {
            char line[300];
            snprintf(line, sizeof line, "%s %s", methods[m], tricks[i]);
            int status = ask_with(line, "", m == 1 ? "stolen" : "");
            if (status < 400 || status >= 500) /* 0: cut without an answer */
                if (status) CHECK_FAIL("%s answers %d", line, status);
        }
    }
    static const char raw[] = "PUT /run/a\0b HTTP/1.1\r\nHost: localhost\r\n"
                              "Content-Length: 1\r\n\r\nx";
    int fd = client_open();
    client_send(fd, raw, sizeof raw - 1);
    client_read(fd, false);
    close(fd);
    CHECK_INT(204, ask("DELETE /run/a")); /* a raw zero byte ends a path, and that is all */
    CHECK_INT(2, count_files("hub"));     /* run and link */
    CHECK_INT(2, count_files(""));        /* hub and secret */
    CHECK_INT(1, count_files("hub/run"));
    CHECK_INT(0, count_files("hub/run/.tmp"));
    dl_buf text;
    char secret[700];
    dl_buf_init(&text, 100);
    snprintf(secret, sizeof secret, "%s/secret", fixture.root);
    CHECK_OK(dl_file_read(&text, secret));
    CHECK_STR("untouched", dl_buf_str(&text));
    dl_buf_deinit(&text);
}

TEST(names_of_the_hubs_own_are_no_runs)
{
    fixture_serve(PLAIN);
    CHECK_INT(405, ask("PUT /metrics"));
    CHECK_INT(400, ask("PUT /.git"));
    CHECK_INT(400, ask("PUT /a%20b"));
    CHECK_INT(0, count_files("hub"));
}

TEST(a_put_below_an_object_or_above_one_is_409)
{
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/b", "", "object"));
    CHECK_INT(201, ask_with("PUT /run/folder/x", "", "object"));
    CHECK_INT(409, ask_with("PUT /run/b/x", "", "below"));
    CHECK_INT(409, ask_with("PUT /run/b/x/y", "If-None-Match: *\r\n", "below"));
    CHECK_INT(409, ask_with("PUT /run/folder", "", "above"));
    CHECK_INT(409, ask_with("PUT /run/folder", "If-None-Match: *\r\n", "above"));
    CHECK_INT(409, ask("POST /run/b/x?uploads"));
    CHECK_CONTAINS("\r\n\r\nobject", client_ask("GET /run/b HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK_INT(0, count_files("hub/run/.tmp"));
}

/* A run has a folder, or an object, under these names: see docs/formats.md. */
TEST(a_name_that_no_run_can_use_is_409)
{
    static const char *const wrong[] = {
        "log",
        "log/0000000007.json/x",
        "c",
        "c/0000000007",
        "c/0000000007/r0.0/x",
        "x/0000000007",
        "x/0000000007/plan",
        "x/7/0003",
        "b/7/0003",
        "snap/7/r0.0000",
        "rec/r0.0000",
        "hb/r0.0000/x",
        "run.json/x",
        "end",
        "invite",
    };
    char request[100];
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/log/0000000008.json/x", "", "not a run's yet"));
    CHECK_INT(201, ask_with("PUT /run/run.json", "", "{}"));
    CHECK_INT(201, ask_with("PUT /run/deep/run.json", "", "{}"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(request, sizeof request, "PUT /run/%s", wrong[i]);
        CHECK_INT(409, ask_with(request, "", "junk"));
        CHECK_INT(409, ask_with(request, "If-None-Match: *\r\n", "junk"));
        snprintf(request, sizeof request, "PUT /run/deep/%s", wrong[i]);
        CHECK_INT(409, ask_with(request, "", "junk"));
        snprintf(request, sizeof request, "POST /run/%s?uploads", wrong[i]);
        CHECK_INT(409, ask(request));
    }
    CHECK_INT(201, ask_with("PUT /run/log/0000000007.json", "", "entry"));
    CHECK_INT(201, ask_with("PUT /run/x/7/plan/r0.0000", "", "plan"));
    CHECK_INT(201, ask_with("PUT /run/notes/of/mine", "", "free"));
    CHECK_INT(201, ask_with("PUT /run/log/run.json", "", "no run of its own"));
    CHECK_INT(409, ask_with("PUT /run/log/0000000009.json/x", "", "junk"));
}

TEST(a_file_where_a_run_keeps_a_folder_is_replaced_by_it)
{
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(201, ask_with("PUT /run/c/0000000007", "", "before it was a run"));
    CHECK_INT(201, ask_with("PUT /run/run.json", "", "{}"));
    CHECK_INT(201, ask_with("PUT /run/c/0000000007/r0.0000", "If-None-Match: *\r\n", "mine"));
    CHECK_CONTAINS("\r\n\r\nmine", client_ask("GET /run/c/0000000007/r0.0000 HTTP/1.1\r\n"
                                              "Host: localhost\r\n\r\n"));
}

/* ---- stopping, and a folder that goes */

TEST(stopping_cuts_unfinished_requests_and_leaves_no_partial_object)
{
    fixture_serve(PLAIN);
    make_run();
    int upload = client_open(), stream = client_open(), idle = client_open();
    client_send_text(upload,
                     "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf");
    client_send_text(stream, "GET /events?run=run HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!count_files("hub/run/.tmp"))
        usleep(10000);
    fixture_stop();
    CHECK(status_of(client_read(upload, false)) != 201);
    CHECK_INT(0, count_files("hub/run/.tmp"));
    CHECK_INT(1, count_files("hub/run"));
    close(upload), close(stream), close(idle);
}

TEST(a_folder_that_goes_is_missed_and_used_again_when_it_is_back)
{
    char away[340];
    fixture_serve(PLAIN);
    make_run();
    snprintf(away, sizeof away, "%s/away", fixture.root);
    CHECK_INT(0, rename(fixture.dir, away));
    CHECK_INT(503, ask("GET /healthz"));
    CHECK_INT(503, ask("GET /run/a"));
    CHECK_INT(0, mkdir(fixture.dir, 0777)); /* an empty mount point */
    CHECK_INT(503, ask("PUT /run"));
    CHECK_INT(0, rmdir(fixture.dir));
    CHECK_INT(0, rename(away, fixture.dir));
    CHECK_INT(200, ask("PUT /run"));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        HUB_TEST(an_object_is_made_once_read_in_ranges_and_deleted),
        HUB_TEST(an_etag_is_of_one_object_for_all_time),
        HUB_TEST(a_put_over_an_object_names_the_object),
        HUB_TEST(requests_follow_each_other_on_one_connection),
        HUB_TEST(a_listing_comes_in_pages),
        HUB_TEST(a_page_has_a_thousand_keys_and_more_if_they_are_asked_for),
        HUB_TEST(a_stream_reports_changes_under_its_prefixes),
        HUB_TEST(metrics_and_health_and_status_answer),
        HUB_TEST(a_scrape_walks_no_folder),
        HUB_TEST(an_answer_that_is_cut_is_counted_as_such_and_an_open_stream_as_one),
        HUB_TEST(without_a_token_only_health_answers),
        HUB_TEST(a_file_of_tokens_is_read_strictly),
        HUB_TEST(it_listens_beyond_loopback_only_with_tls_or_on_request),
        HUB_TEST(an_open_hub_answers_to_the_names_of_this_machine_only),
        HUB_TEST(no_path_leads_out_of_the_folder),
        HUB_TEST(names_of_the_hubs_own_are_no_runs),
        HUB_TEST(a_put_below_an_object_or_above_one_is_409),
        HUB_TEST(a_name_that_no_run_can_use_is_409),
        HUB_TEST(a_file_where_a_run_keeps_a_folder_is_replaced_by_it),
        HUB_TEST(stopping_cuts_unfinished_requests_and_leaves_no_partial_object),
        HUB_TEST(a_folder_that_goes_is_missed_and_used_again_when_it_is_back),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
