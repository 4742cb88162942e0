/* hub_limits_test.c - requests that are too long, too slow, too many or malformed: the hub keeps
 * its memory and files within bounds, drops the others, and answers every correct request. */
#include "hub_fixture.h"
#include "sanitized.h"

#include <sys/resource.h>

static size_t resident_bytes(void)
{
    size_t total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL);
    CHECK_INT(2, fscanf(f, "%zu %zu", &total, &resident));
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(a_flood_of_headers_is_cut_and_others_are_served)
{
    static char flood[4 << 20];
    fixture_serve(PLAIN);
    size_t before = resident_bytes(),
           len = (size_t)sprintf(flood, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
    while (len + 64 < sizeof flood)
        len += (size_t)sprintf(flood + len, "X-%zu: %040d\r\n", len, 1);
    for (int i = 0; i < 8; i++) {
        int fd = client_open();
        client_send(fd, flood, len);
        int status = status_of(client_read(fd, false));
        CHECK(status == 0 || status == 413 || status == 431 || status == 400);
        close(fd);
        CHECK_INT(200, ask("GET /healthz"));
    }
    memset(flood, 'a', sizeof flood);
    memcpy(flood, "GET /", 5);
    int fd = client_open();
    client_send(fd, flood, sizeof flood);
    CHECK(status_of(client_read(fd, false)) != 200);
    close(fd);
    CHECK_INT(200, ask("GET /healthz"));
    CHECK(SANITIZED || resident_bytes() < before + (32u << 20));
}

TEST(an_object_that_is_too_long_is_refused_and_leaves_nothing)
{
    static char body[200000];
    fixture_serve((dl_hub_options){.max_object = 1000});
    make_run();
    memset(body, 'x', sizeof body - 1);
    body[1000] = '\0';
    CHECK_INT(201, ask_with("PUT /run/fits", "", body));
    body[1000] = 'x';
    CHECK_INT(413, ask_with("PUT /run/a", "", body));
    CHECK_INT(413, status_of(client_ask("PUT /run/a HTTP/1.1\r\nHost: localhost\r\n"
                                        "Content-Length: 99999999999\r\n\r\n")));
    CHECK_INT(413, status_of(client_ask("PUT /run/a HTTP/1.1\r\nHost: localhost\r\n"
                                        "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")));
    int fd = client_open(); /* without saying how long */
    client_send_text(
        fd, "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client_send_text(fd, "30d40\r\n");
    body[sizeof body - 1] = 'x';
    client_send(fd, body, sizeof body);
    client_send_text(fd, "\r\n0\r\n\r\n");
    CHECK_INT(413, status_of(client_read(fd, false)));
    close(fd);
    CHECK_INT(0, count_files("hub/run/.tmp"));
    CHECK_INT(404, ask("GET /run/a"));
}

/* Until the hub has noticed: it does so by itself, and the test's time limit is the bound. */
static void wait_until_empty(const char *folder)
{
    while (count_files(folder))
        usleep(10000);
}

TEST(a_body_that_is_cut_leaves_nothing)
{
    static const char *const cut[] = {
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nonly this",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
        "chunked\r\n\r\n5\r\nhello\r\n",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX0",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffffff\r\nx",
        "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"};
    fixture_serve(PLAIN);
    make_run();
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        int fd = client_open();
        client_send_text(fd, cut[i]);
        shutdown(fd, SHUT_WR);
        CHECK(status_of(client_read(fd, false)) != 201);
        close(fd);
        wait_until_empty("hub/run/.tmp");
        CHECK_INT(404, ask("GET /run/a"));
    }
}

TEST(a_body_that_trickles_is_cut)
{
    fixture_serve((dl_hub_options){.slow = DL_SECOND / 5, .stalled = 3600 * DL_SECOND});
    make_run();
    int fd = client_open();
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    client_send_text(fd,
                     "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
    while (poll(&ended, 1, 20) == 0) /* a byte now and then, for ever */
        client_send_text(fd, "x");
    close(fd);
    wait_until_empty("hub/run/.tmp");
}

/* The whole of what a connection answers until it ends. */
static const char *all_answers(const char *request)
{
    static char text[8192];
    size_t len = 0;
    int fd = client_open();
    client_send_text(fd, request);
    for (ssize_t n; len + 1 < sizeof text; len += (size_t)n)
        if ((n = recv(fd, text + len, sizeof text - 1 - len, 0)) <= 0) break;
    text[len] = '\0';
    close(fd);
    return text;
}

TEST(a_header_name_with_a_space_is_refused_and_the_connection_ends)
{
    static const char *const names[] = {"Content-Length ", "Transfer-Encoding ", "X\tY", "X(Y"};
    char request[300];
    fixture_serve(PLAIN);
    make_run();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(request, sizeof request,
                 "PUT /run/a HTTP/1.1\r\nHost: localhost\r\n%s: 5\r\nContent-Length: 0\r\n\r\n"
                 "PUT /run/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Content-Length: 0\r\n\r\n",
                 names[i]);
        const char *answers = all_answers(request);
        CHECK_INT(400, status_of(answers));
        CHECK(!strstr(answers + 1, "HTTP/1.1 "));
        CHECK_INT(404, ask("HEAD /run/a"));
        CHECK_INT(404, ask("HEAD /run/b"));
    }
}

TEST(a_put_without_a_length_is_411)
{
    fixture_serve(PLAIN);
    make_run();
    CHECK_INT(411, status_of(client_ask("PUT /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n")));
    CHECK_INT(404, ask("HEAD /run/a"));
    CHECK_INT(201, status_of(client_ask("PUT /run/a HTTP/1.1\r\nHost: localhost\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n"
                                        "3\r\nabc\r\n0\r\n\r\n")));
    CHECK_INT(201, status_of(client_ask("PUT /more HTTP/1.1\r\nHost: localhost\r\n\r\n")));
}

TEST(a_body_that_stops_coming_is_cut)
{
    fixture_serve((dl_hub_options){.stalled = DL_SECOND});
    make_run();
    int fd = client_open();
    client_send_text(fd,
                     "PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx");
    CHECK_INT(0, status_of(client_read(fd, false)));
    close(fd);
    wait_until_empty("hub/run/.tmp");
}

TEST(a_silent_client_and_one_that_trickles_a_header_are_disconnected)
{
    fixture_serve((dl_hub_options){.unauthenticated = DL_SECOND / 10, .idle = DL_SECOND / 10});
    int silent = client_open(), trickling = client_open(), served = client_open();
    client_send_text(served, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_INT(200, status_of(client_read(served, false)));
    CHECK_STR("", client_read(silent, false));
    CHECK_STR("", client_read(served, false));
    struct pollfd ended = {.fd = trickling, .events = POLLIN};
    client_send_text(trickling, "GET /healthz HTTP/1.1\r\nX: ");
    while (poll(&ended, 1, 20) == 0)
        client_send_text(trickling, "y");
    close(silent), close(trickling), close(served);
}

/* Says `text` again and again, takes what comes, until the other end is gone. */
static void ask_until_hung_up_on(const char *first, const char *text)
{
    char answers[4096];
    int fd = client_open();
    struct pollfd heard = {.fd = fd, .events = POLLIN};
    client_send_text(fd, first);
    for (;;) {
        if (poll(&heard, 1, 20) && recv(fd, answers, sizeof answers, 0) <= 0) break;
        client_send_text(fd, text);
    }
    close(fd);
}

TEST(an_unauthenticated_connection_is_closed_whatever_it_asks_for)
{
    static const char health[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                      refused[] = "GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char tokens[700];
    fixture_write("tokens", "correct-horse-battery\n");
    snprintf(tokens, sizeof tokens, "%s/tokens", fixture.root);
    fixture_serve((dl_hub_options){.token_file = tokens, .unauthenticated = DL_SECOND / 2});
    ask_until_hung_up_on(health, health);
    ask_until_hung_up_on(refused, refused);
    ask_until_hung_up_on("PUT /run/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n",
                         "x");
    int friend = client_open();
    client_send_text(friend, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                             "Authorization: Bearer correct-horse-battery\r\n\r\n");
    CHECK_INT(200, status_of(client_read(friend, false)));
    struct pollfd ended = {.fd = friend, .events = POLLIN};
    CHECK_INT(0, poll(&ended, 1, 3000));
    close(friend);
}

/* A connection from that loopback address. */
static int client_from(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(fixture.port)}, from = to;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_port = 0;
    CHECK_INT(1, inet_pton(AF_INET, address, &from.sin_addr));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK_INT(0, bind(fd, (struct sockaddr *)&from, sizeof from));
    CHECK_INT(0, connect(fd, (struct sockaddr *)&to, sizeof to));
    return fd;
}

static const char with_token[] = "GET /list?run=run HTTP/1.1\r\nHost: localhost\r\n"
                                 "Authorization: Bearer correct-horse-battery\r\n\r\n";

TEST(unauthenticated_connections_of_one_address_keep_out_no_client)
{
    enum { MAX = 32, OF_ONE = MAX / 4, FLOOD = 3 * MAX };
    int flood[FLOOD];
    char tokens[700];
    fixture_write("tokens", "correct-horse-battery\n");
    snprintf(tokens, sizeof tokens, "%s/tokens", fixture.root);
    fixture_serve((dl_hub_options){.token_file = tokens,
                                   .max_connections = MAX,
                                   .unauthenticated = 3600 * DL_SECOND,
                                   .idle = 3600 * DL_SECOND});
    CHECK_INT(201, ask_with("PUT /run", "Authorization: Bearer correct-horse-battery\r\n", ""));
    int other = client_from("127.0.0.2"), member = client_open();
    client_send_text(member, with_token);
    CHECK_INT(200, status_of(client_read(member, false)));
    for (int i = 0; i < FLOOD; i++)
        flood[i] = client_from("127.0.0.3");
    /* The oldest of the address are closed, one for each that comes. */
    for (int i = 0; i < FLOOD - OF_ONE; i++)
        CHECK_STR("", client_read(flood[i], false));
    client_send_text(other, with_token);
    CHECK_INT(200, status_of(client_read(other, false)));
    client_send_text(member, with_token);
    CHECK_INT(200, status_of(client_read(member, false)));
    int late = client_from("127.0.0.3"); /* of the flood's address, with a token */
    client_send_text(late, with_token);
    CHECK_INT(200, status_of(client_read(late, false)));
    CHECK_STR("", client_read(flood[FLOOD - OF_ONE], false));
    struct pollfd open_still = {.fd = flood[FLOOD - 1], .events = POLLIN};
    CHECK_INT(0, poll(&open_still, 1, 0));
    for (int i = 0; i < FLOOD; i++)
        close(flood[i]);
    close(other), close(member), close(late);
}

TEST(a_thousand_idle_connections_cost_little_and_block_no_client)
{
    enum { MANY = 1000 };
    static int fds[MANY];
    struct rlimit files;
    CHECK_INT(0, getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int n = files.rlim_max < 5000 ? (int)(files.rlim_max / 5) : MANY;
    if (n < MANY) printf("left out: %d idle connections instead of %d (ulimit -n)\n", n, MANY);
    fixture_serve((dl_hub_options){.max_connections = (unsigned)n * 3 / 2});
    make_run();
    size_t before = resident_bytes();
    for (int i = 0; i < n; i++) {
        char from[16];
        snprintf(from, sizeof from, "127.0.1.%d", 1 + i % 8);
        fds[i] = client_from(from);
        if (i % 2) client_send_text(fds[i], "GET /run/x HTTP/1.1\r\nHost: ");
    }
    CHECK_INT(201, ask_with("PUT /run/a", "If-None-Match: *\r\n", "served"));
    CHECK_INT(200, ask("GET /run/a"));
    size_t grown = resident_bytes() - before;
    CHECK(SANITIZED || grown < (size_t)n * (100u << 10));
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        HUB_TEST(a_flood_of_headers_is_cut_and_others_are_served),
        HUB_TEST(an_object_that_is_too_long_is_refused_and_leaves_nothing),
        HUB_TEST(a_body_that_is_cut_leaves_nothing),
        HUB_TEST(a_body_that_trickles_is_cut),
        HUB_TEST(a_header_name_with_a_space_is_refused_and_the_connection_ends),
        HUB_TEST(a_put_without_a_length_is_411),
        HUB_TEST(a_body_that_stops_coming_is_cut),
        HUB_TEST(a_silent_client_and_one_that_trickles_a_header_are_disconnected),
        HUB_TEST(an_unauthenticated_connection_is_closed_whatever_it_asks_for),
        HUB_TEST(unauthenticated_connections_of_one_address_keep_out_no_client),
        HUB_TEST(a_thousand_idle_connections_cost_little_and_block_no_client),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
