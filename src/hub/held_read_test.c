/* held_read_test.c - reads at a node's hub that wait for their object (RFC 7240, 4.3). */
#include "store/store.h"

#include "hub/server.h"
#include "hub_fixture.h"

#define KEY "c/0000000003/r0.0000"

static void serve_node(dl_store **out)
{
    char bucket[400];
    snprintf(bucket, sizeof bucket, "%s/run", fixture.dir);
    CHECK_OK(dl_store_open(out, bucket, true));
    fixture_serve((dl_hub_options){.node = "r0"});
}

/* Sends a read of KEY. Returns the connection. */
static int ask_and_wait(const char *prefer)
{
    char request[300];
    const int fd = client_open();
    snprintf(request, sizeof request,
             "GET /run/" KEY " HTTP/1.1\r\nHost: localhost\r\nPrefer: %s\r\n\r\n", prefer);
    client_send_text(fd, request);
    return fd;
}

static bool has_reply(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 300) > 0;
}

static void make(dl_store *store, const char *key)
{
    char path[200];
    CHECK_OK(dl_store_put(store, key, "moved", 5, DL_NEVER));
    snprintf(path, sizeof path, "run/%s", key);
    dl_hub_report(fixture.hub, path);
}

TEST(a_read_that_prefers_to_wait_gets_an_object_that_comes_later)
{
    dl_store *store;
    serve_node(&store);
    const int fd = ask_and_wait("wait=20");
    CHECK(!has_reply(fd));
    make(store, "c/0000000002/r0.0000");
    CHECK(!has_reply(fd));
    make(store, KEY);
    const char *answer = client_read(fd, false);
    CHECK_INT(200, status_of(answer));
    CHECK_CONTAINS("\r\n\r\nmoved", answer);
    close(fd);
    const int again = ask_and_wait("wait=20");
    CHECK_INT(200, status_of(client_read(again, false)));
    close(again);
    dl_store_close(store);
}

TEST(a_wait_ends_with_404_when_its_time_is_over)
{
    dl_store *store;
    serve_node(&store);
    const dl_time began = dl_clock_now();
    const int fd = ask_and_wait("wait=1");
    CHECK_INT(404, status_of(client_read(fd, false)));
    CHECK(dl_clock_now() - began >= DL_SECOND);
    client_send_text(fd, "GET /run/me/id HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_INT(404, status_of(client_read(fd, false))); /* the connection is still open */
    close(fd);
    dl_store_close(store);
}

/* A held read would outlast the 20 s of client_read. */
TEST(other_reads_and_other_hubs_do_not_wait)
{
    static const char *const others[] = {"wait=0", "wait=x",        "wait=-1",
                                         "wait=",  "respond-async", "wait=99999999999999999999"};
    dl_store *store;
    serve_node(&store);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const int fd = ask_and_wait(others[i]);
        CHECK_INT(404, status_of(client_read(fd, false)));
        close(fd);
    }
    fixture_stop();
    fixture_serve(PLAIN);
    const int fd = ask_and_wait("wait=30");
    CHECK_INT(404, status_of(client_read(fd, false)));
    close(fd);
    dl_store_close(store);
}

static void await_held(unsigned n)
{
    while (atomic_load(&fixture.hub->metrics.held) != n)
        usleep(10000);
}

/* The hold is 30 s, and a client of this file gives up after 20 s. */
TEST(a_hub_that_stops_answers_reads_that_wait)
{
    dl_store *store;
    serve_node(&store);
    const int fd = ask_and_wait("wait=30");
    await_held(1);
    const dl_time began = dl_clock_now();
    fixture_stop();
    CHECK_INT(404, status_of(client_read(fd, false)));
    CHECK(dl_clock_now() - began < 20 * DL_SECOND);
    close(fd);
    dl_store_close(store);
}

TEST(a_read_that_waits_is_no_event_stream_and_ends_with_its_connection)
{
    dl_store *store;
    serve_node(&store);
    const int fd = ask_and_wait("wait=30");
    await_held(1);
    const char *metrics = client_ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_CONTAINS("diloco_hub_event_streams 0\n", metrics);
    CHECK_CONTAINS("diloco_hub_held_reads 1\n", metrics);
    close(fd);
    await_held(0);
    dl_store_close(store);
}

/* Of 8 connections 6 may wait. The seventh is answered at once: its reply comes before the 20 s of
 * client_read are over. */
TEST(reads_that_wait_leave_a_quarter_of_the_connections)
{
    enum { MAX = 8, HELD = MAX / 4 * 3 };
    int held[HELD];
    dl_store *store;
    char bucket[400];
    snprintf(bucket, sizeof bucket, "%s/run", fixture.dir);
    CHECK_OK(dl_store_open(&store, bucket, true));
    fixture_serve((dl_hub_options){.node = "r0", .max_connections = MAX});
    for (unsigned i = 0; i < HELD; i++) {
        held[i] = ask_and_wait("wait=30");
        await_held(i + 1);
    }
    const int fd = ask_and_wait("wait=30");
    CHECK_INT(404, status_of(client_read(fd, false)));
    CHECK_INT(HELD, atomic_load(&fixture.hub->metrics.held));
    make(store, KEY);
    for (int i = 0; i < HELD; i++) {
        CHECK_INT(200, status_of(client_read(held[i], false)));
        close(held[i]);
    }
    close(fd);
    dl_store_close(store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HUB_TEST(a_read_that_prefers_to_wait_gets_an_object_that_comes_later),
        HUB_TEST(a_wait_ends_with_404_when_its_time_is_over),
        HUB_TEST(other_reads_and_other_hubs_do_not_wait),
        HUB_TEST(a_hub_that_stops_answers_reads_that_wait),
        HUB_TEST(a_read_that_waits_is_no_event_stream_and_ends_with_its_connection),
        HUB_TEST(reads_that_wait_leave_a_quarter_of_the_connections),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
