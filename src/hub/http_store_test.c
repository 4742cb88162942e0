/* http_store_test.c - the store suite over a hub: the client (store/http/http.c) and the server
 * together. Also the cases of a store with a server: no token, a hub that goes and comes. */
#include "hub/hub.h"

#include "check.h"
#include "http_script.h"
#include "hub/cert.h"
#include "store_suite.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dl_hub *hub;
static char folder[512];

static void serve(const dl_hub_options *more)
{
    dl_hub_options options = more ? *more : (dl_hub_options){0};
    options.dir = folder;
    if (!options.listen) options.listen = "127.0.0.1:0";
    CHECK_OK(dl_hub_start(&hub, &options));
}

static void stop(void)
{
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
    hub = NULL;
}

static dl_store *open_store(const char *url)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    return store;
}

/* ---- the suite */

static void make_http(char url[512])
{
    store_make_folder(folder);
    serve(NULL);
    CHECK(snprintf(url, 512, "%s/run", dl_hub_url(hub)) < 512);
}

static void destroy_http(const char *url)
{
    (void)url;
    stop();
    store_remove_folder(folder);
}

static const store_row row_http = {"http", make_http, open_store, destroy_http, true};

/* ---- around it */

static char url[600];

static int set_up(void **state)
{
    (void)state;
    store_make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (hub) stop();
    store_remove_folder(folder);
    return 0;
}

static const char *run_url(const char *path)
{
    snprintf(url, sizeof url, "%s/%s", dl_hub_url(hub), path);
    return url;
}

TEST(a_run_at_the_hub_is_a_folder_on_its_disk)
{
    char path[700];
    dl_store *remote, *local;
    serve(NULL);
    remote = open_store(run_url("team/r-1"));
    store_must_create(remote, "c/1/r0.0", "of the remote");
    snprintf(path, sizeof path, "%s/team/r-1", folder);
    CHECK_OK(dl_store_open(&local, path, false));
    store_must_hold(local, "c/1/r0.0", "of the remote");
    store_must_create(local, "c/1/r1.0", "of the local");
    store_must_hold(remote, "c/1/r1.0", "of the local");
    CHECK_STR("c/1/r0.0 c/1/r1.0 ", store_keys(remote, "", NULL));
    CHECK_STR("c/1/r1.0 ", store_keys(remote, "c/", "c/1/r0.0"));
    dl_store_close(local);
    dl_store_close(remote);
}

TEST(an_object_of_many_ranges_comes_back_whole_and_in_order)
{
    enum { RANGE = 4 << 20 };
    static const size_t lengths[] = {0, 1, RANGE - 1, RANGE, RANGE + 1, 5 * RANGE + 12345};
    unsigned char *data = malloc(6 * RANGE);
    dl_buf back;
    CHECK(data != NULL);
    for (size_t i = 0; i < 6 * RANGE; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 23);
    serve(NULL);
    dl_store *store = open_store(run_url("ranges"));
    dl_buf_init(&back, 6 * RANGE);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char key[32];
        const dl_span span = {data, lengths[i]};
        snprintf(key, sizeof key, "c/1/r%zu.0", i);
        CHECK_OK(dl_store_create(store, key, &span, 1, NULL, DL_NEVER));
        dl_buf_clear(&back);
        CHECK_OK(dl_store_get(store, &back, key, DL_NEVER));
        CHECK_INT(lengths[i], back.len);
        CHECK(!lengths[i] || !memcmp(data, back.data, back.len));
    }
    dl_store_close(store);
    dl_buf_deinit(&back);
    free(data);
}

/* docs/hub.md: the answer to an object has the digest of what has arrived. */
TEST(p8_a_hub_reports_the_received_digest_and_an_answer_without_it_confirms_nothing)
{
#define CREATED "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n"
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        CREATED "X-Diloco-Digest: 00000000000000000000000000000000\r\n\r\n", CREATED "\r\n"};
    http_script other;
    const dl_span spans[] = {{"he", 2}, {"llo", 3}};
    serve(NULL);
    dl_store *store = open_store(run_url("team"));
    CHECK_OK(dl_store_create(store, "c/1/r0.0", spans, 2, NULL, DL_NEVER));
    CHECK(dl_store_vouches(store));
    dl_store_close(store);

    script_start(&other, answers, 3);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/run", other.port);
    store = open_store(url);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_store_create(store, "c/1/r0.0", spans, 2, NULL, DL_NEVER));
        CHECK(!dl_store_vouches(store));
    }
    dl_store_close(store);
    script_stop(&other);
}

static diloco_status no_key(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    return DILOCO_OK;
}

TEST(a_listing_that_continues_without_a_key_is_refused)
{
#define MORE "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmore\n"
    static const char *const answers[] = {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", MORE,
                                          MORE};
    http_script other;
    script_start(&other, answers, 3);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/run", other.port);
    dl_store *store = open_store(url);
    CHECK_STATUS(DILOCO_EPROTO, dl_store_list(store, "log/", NULL, no_key, NULL, DL_NEVER));
    dl_store_close(store);
    script_stop(&other);
}

TEST(a_missing_run_is_made_only_when_asked)
{
    dl_store *store;
    serve(NULL);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&store, run_url("none"), false));
    CHECK_CONTAINS("/none", diloco_error_text());
    dl_store_close(open_store(run_url("none")));
    CHECK_OK(dl_store_open(&store, run_url("none"), false));
    dl_store_close(store);
}

TEST(a_url_is_host_port_and_a_run)
{
    const char *bad[] = {
        "http://127.0.0.1:1",        "http://127.0.0.1:1/",      "http:///run",
        "http://127.0.0.1:1/../x",   "http://127.0.0.1:1/a//b",  "http://127.0.0.1:1/.tmp",
        "http://user@127.0.0.1:1/a", "http://127.0.0.1:1/a%2fb", "http://127.0.0.1:1/a?b"};
    dl_store *store;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_store_open(&store, bad[i], true));
        CHECK_CONTAINS("HOST:PORT/RUN", diloco_error_text());
    }
}

static void write_file(char path[600], const char *name, const char *text)
{
    snprintf(path, 600, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(0, fclose(f));
}

TEST(a_hub_with_tokens_asks_for_one)
{
    char tokens[600];
    dl_store *store;
    write_file(tokens, "tokens", "# ours\nthe-first-token-of-two\nthe-second-token-of-two\n");
    serve(&(dl_hub_options){.token_file = tokens});
    run_url("run");
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, url, true));
    CHECK_CONTAINS("DILOCO_HUB_TOKEN", diloco_error_text());
    setenv("DILOCO_HUB_TOKEN", "the-second-token-of-twO", 1);
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, url, true));
    CHECK(!strstr(diloco_error_text(), "twO")); /* no secret in a text */
    setenv("DILOCO_HUB_TOKEN", "the-second-token-of-two", 1);
    store = open_store(url);
    store_must_create(store, "a", "x");
    dl_store_close(store);
    unsetenv("DILOCO_HUB_TOKEN");
    setenv("DILOCO_HUB_TOKEN_FILE", tokens, 1); /* its first line is no token */
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, url, true));
    write_file(tokens, "one", "the-first-token-of-two\n");
    setenv("DILOCO_HUB_TOKEN_FILE", tokens, 1);
    store = open_store(url);
    store_must_hold(store, "a", "x");
    dl_store_close(store);
    unsetenv("DILOCO_HUB_TOKEN_FILE");
}

TEST(over_tls_a_client_trusts_only_the_certificate_or_the_pin)
{
    char cert[600], key[600], fingerprint[DL_CERT_PRINT], pin[DL_CERT_PIN];
    dl_store *store;
    snprintf(cert, sizeof cert, "%s/hub.pem", folder);
    snprintf(key, sizeof key, "%s/hub.key", folder);
    CHECK_OK(dl_cert_make(cert, key, NULL, fingerprint, pin));
    CHECK_INT(95, strlen(fingerprint));
    char unused[DL_CERT_PRINT], other[DL_CERT_PIN];
    CHECK_STATUS(DILOCO_EEXIST, dl_cert_make(cert, key, NULL, unused, other));
    serve(&(dl_hub_options){.cert_file = cert, .key_file = key});
    run_url("run");
    CHECK_CONTAINS("https://127.0.0.1:", url);
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, url, true));
    setenv("DILOCO_HUB_PIN", "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 1);
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, url, true));
    setenv("DILOCO_HUB_PIN", pin, 1);
    store = open_store(url);
    store_must_create(store, "a", "x");
    dl_store_close(store);
    unsetenv("DILOCO_HUB_PIN");
    setenv("DILOCO_HUB_CA", cert, 1);
    store = open_store(url);
    store_must_hold(store, "a", "x");
    dl_store_close(store);
    unsetenv("DILOCO_HUB_CA");
    setenv("SSL_CERT_FILE", cert, 1);
    store = open_store(url);
    store_must_hold(store, "a", "x");
    dl_store_close(store);
    unsetenv("SSL_CERT_FILE");
}

/* Serves at a port outside the range from which the system assigns ports. No other program gets the
 * port of such a hub while it is down. */
static void serve_at_a_port_of_its_own(void)
{
    static char address[32];
    unsigned port = (unsigned)getpid() + (unsigned)dl_clock_now();
    const dl_hub_options options = {.dir = folder, .listen = address};
    diloco_status status;
    do {
        snprintf(address, sizeof address, "127.0.0.1:%u", 12000 + port++ % 20000);
        status = dl_hub_start(&hub, &options);
    } while (status == DILOCO_EIO); /* another program listens there */
    CHECK_OK(status);
}

static void *wait_once(void *context)
{
    const char *prefix = "log/";
    diloco_status status;
    do /* not progress: later and later, without a notice */
        status = dl_store_wait(context, &prefix, 1, false, DL_NEVER);
    while (!status);
    return (void *)(uintptr_t)status;
}

TEST(a_hub_that_comes_back_is_used_again)
{
    dl_hub_options again = {0};
    dl_store *store, *waiting;
    pthread_t thread;
    void *result;
    dl_span span = {"y", 1};
    serve_at_a_port_of_its_own();
    store = open_store(run_url("run"));
    waiting = open_store(url);
    store_must_create(store, "a", "x");
    CHECK_INT(0, pthread_create(&thread, NULL, wait_once, waiting));
    again.listen = strdup(strstr(dl_hub_url(hub), "127"));
    stop();
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_create(store, "b", &span, 1, NULL, DL_NEVER));
    serve(&again);
    store_must_hold(store, "a", "x");
    store_must_create(store, "b", "y");
    dl_store_abort(waiting);
    pthread_join(thread, &result);
    CHECK_INT(DILOCO_ECLOSED, (uintptr_t)result);
    dl_store_close(waiting);
    dl_store_close(store);
    free((void *)(uintptr_t)again.listen);
}

TEST(a_run_that_is_gone_is_unreachable_not_empty)
{
    char path[700], away[700];
    dl_buf buf;
    dl_store *store;
    serve(NULL);
    store = open_store(run_url("run"));
    store_must_create(store, "a", "x");
    snprintf(path, sizeof path, "%s/run", folder);
    snprintf(away, sizeof away, "%s/away", folder);
    CHECK_INT(0, rename(path, away));
    dl_buf_init(&buf, 8);
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_get(store, &buf, "a", DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_put(store, "hb/r0.0", "x", 1, DL_NEVER));
    CHECK_INT(0, rename(away, path));
    CHECK_OK(dl_store_get(store, &buf, "a", DL_NEVER));
    dl_buf_deinit(&buf);
    dl_store_close(store);
}

TEST(the_log_is_not_deleted_and_only_heartbeats_are_replaced)
{
    dl_store *store;
    serve(NULL);
    store = open_store(run_url("run"));
    store_must_create(store, "run.json", "x");
    store_must_create(store, "log/0000000000.json", "x");
    store_must_create(store, "log/0000000000.txt", "x");
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_delete(store, "run.json", DL_NEVER));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_delete(store, "log/0000000000.json", DL_NEVER));
    CHECK_OK(dl_store_delete(store, "log/0000000000.txt", DL_NEVER));
    CHECK_OK(dl_store_put(store, "run.json", "x", 1, DL_NEVER)); /* equal bytes */
    CHECK_STATUS(DILOCO_EIO, dl_store_put(store, "run.json", "y", 1, DL_NEVER));
    CHECK_CONTAINS("409", diloco_error_text());
    store_must_hold(store, "run.json", "x");
    dl_store_close(store);
}

TEST(the_probe_finds_the_hub_right)
{
    dl_probe probe;
    serve(NULL);
    CHECK_OK(dl_store_probe(&probe, &(dl_store_address){.url = run_url("run")}, DL_PROBE_MOST, NULL,
                            DL_NEVER));
    CHECK_INT(1, probe.winners);
}

/* Sockets of this process, which is both sides, that are connected over loopback; all have to send
 * by `sender`. */
static unsigned count_lines(const char *sender)
{
    enum { FILES = 256 };
    unsigned n = 0;
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_in peer;
        char name[16] = "";
        socklen_t len = sizeof peer, name_len = sizeof name;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) || peer.sin_family != AF_INET ||
            ntohl(peer.sin_addr.s_addr) >> 24 != 127)
            continue;
        CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_len));
        CHECK_STR(sender, name);
        n++;
    }
    return n;
}

/* Where BBR is the machine's habit a sixth of the hub's time would go into its timers. */
TEST(nothing_is_paced_within_a_machine)
{
    serve(NULL);
    dl_store *store = open_store(run_url("run"));
    store_must_create(store, "k", "over loopback");
    CHECK_INT(2, count_lines("reno"));
    dl_store_close(store);
}

#define WITH(test)                                                                                 \
    {                                                                                              \
#test, test, set_up, tear_down, NULL                                                       \
    }

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        WITH(a_run_at_the_hub_is_a_folder_on_its_disk),
        WITH(an_object_of_many_ranges_comes_back_whole_and_in_order),
        WITH(p8_a_hub_reports_the_received_digest_and_an_answer_without_it_confirms_nothing),
        WITH(a_listing_that_continues_without_a_key_is_refused),
        WITH(a_missing_run_is_made_only_when_asked),
        WITH(a_url_is_host_port_and_a_run),
        WITH(a_hub_with_tokens_asks_for_one),
        WITH(over_tls_a_client_trusts_only_the_certificate_or_the_pin),
        WITH(a_hub_that_comes_back_is_used_again),
        WITH(a_run_that_is_gone_is_unreachable_not_empty),
        WITH(the_log_is_not_deleted_and_only_heartbeats_are_replaced),
        WITH(the_probe_finds_the_hub_right),
        WITH(nothing_is_paced_within_a_machine),
    };
    if (argc > 1) return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
    int failed = store_suite_run(&row_http);
    return failed + cmocka_run_group_tests_name("around the hub", tests, NULL, NULL);
}
