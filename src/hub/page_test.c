/* page_test.c - the page: access, answers, and that it changes nothing. */
#include "hub_fixture.h"
#include "toy_run.h"

static void train(const char *store)
{
    toy all[2];
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "trainer.rounds", "3");
    toy_live_all(all, 2);
    for (int i = 0; i < 2; i++)
        TOY_OK(all[i]);
}

static const char *run_folder(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", fixture.dir, name);
    return path;
}

static const char *get(const char *target)
{
    static char request[700];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
    return client_ask(request);
}

/* The answer of a view that has read the whole run: each answer reads for a limited time before. */
static const char *get_run(const char *target)
{
    const char *reply = get(target);
    while (strstr(reply, "\"reading\":true"))
        reply = get(target);
    return reply;
}

TEST(the_page_runs_its_own_scripts_only_and_sends_nothing_elsewhere)
{
    fixture_serve((dl_hub_options){.page = true});
    const char *reply = get("/");
    CHECK_INT(200, status_of(reply));
    CHECK_CONTAINS(
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self';",
        reply);
    CHECK_CONTAINS("X-Content-Type-Options: nosniff\r\n", reply);
    CHECK_CONTAINS("frame-ancestors 'none'", reply);
    CHECK_CONTAINS("<script src=\"/.page/page.js\" defer></script>", reply);
    CHECK(!strstr(reply, "https://"));
    CHECK_INT(200, ask("GET /.page/page.js"));
    CHECK_INT(200, ask("HEAD /.page/page.css"));
    CHECK_INT(404, status_of(get("/.page/run?run=none")));
    CHECK_INT(400, status_of(get("/.page/run")));
    CHECK_INT(400, status_of(get("/.page/run?run=a&points=many")));
    CHECK_INT(400, ask("GET /.page/other"));
    static const char *const targets[] = {"/", "/.page/page.js", "/.page/runs", "/.page/run?run=a"};
    static const char *const methods[] = {"PUT", "POST", "DELETE"};
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            char what[64];
            snprintf(what, sizeof what, "%s %s", methods[m], targets[t]);
            CHECK_INT(405, ask(what));
        }
}

TEST(a_hub_has_no_page_unless_asked_for)
{
    fixture_serve((dl_hub_options){.dir = NULL});
    CHECK_INT(404, ask("GET /"));
    CHECK_INT(400, ask("GET /.page/runs"));
}

TEST(a_run_in_the_folder_is_listed_and_shown)
{
    train(run_folder("mine"));
    fixture_serve((dl_hub_options){.page = true});
    while (!strstr(get("/.page/runs"), "\"name\":\"mine\"")) /* until the first walk has seen it */
        usleep(10000);
    const char *reply = get_run("/.page/run?run=mine&points=10");
    CHECK_INT(200, status_of(reply));
    CHECK_CONTAINS("\"state\":\"complete\"", reply);
    CHECK_CONTAINS("\"entry\":[0,1,2]", reply);
    CHECK_CONTAINS("\"entries\":[{\"entry\":1,", get("/.page/entries?run=mine&from=1&n=1"));
    CHECK_CONTAINS("\"name\":\"trainer.rounds\",\"value\":\"3\"", get("/.page/settings?run=mine"));
    CHECK_INT(404, status_of(get("/.page/run?run=../mine")));
    CHECK_INT(404, status_of(get("/.page/run?run=/")));
    CHECK_INT(404, status_of(get("/.page/run?run=mine/more")));
}

TEST(a_run_that_is_a_symbolic_link_is_not_shown)
{
    char link[700];
    train(scratch_path("outside"));
    fixture_serve((dl_hub_options){.page = true});
    snprintf(link, sizeof link, "%s/out", fixture.dir);
    CHECK_INT(0, symlink(scratch_path("outside"), link));
    CHECK_INT(404, status_of(get("/.page/run?run=out")));
}

TEST(the_page_s_data_takes_a_token_where_the_hub_has_any)
{
    static const char *const data[] = {"GET /.page/runs", "GET /.page/run?run=mine",
                                       "GET /.page/entries?run=mine",
                                       "GET /.page/settings?run=mine", "GET /events?run=mine"};
    train(run_folder("mine"));
    fixture_serve((dl_hub_options){.page = true, .token = "correct-horse-battery"});
    CHECK_INT(200, ask("GET /"));
    CHECK_INT(200, ask("GET /.page/page.js"));
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        CHECK_INT(401, ask(data[i]));
        CHECK_INT(401, ask_with(data[i], "Authorization: Bearer correct-horse-batterY\r\n", ""));
    }
    CHECK_INT(200, ask_with("GET /.page/run?run=mine",
                            "Authorization: Bearer correct-horse-battery\r\n", ""));
}

static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    snprintf(url, DL_VIEW_URL, "%s", (const char *)user);
    return !strcmp(name, "shown");
}

TEST(a_server_that_shows_runs_is_no_store)
{
    static const char *const refused[] = {
        "PUT /run",       "PUT /shown/a",        "GET /shown/run.json",
        "GET /metrics",   "GET /list?run=shown", "GET /status.json?run=shown",
        "DELETE /shown/a"};
    const char *store = scratch_path("shown");
    train(store);
    fixture_serve((dl_hub_options){
        .viewed = url_of, .viewed_user = (void *)(uintptr_t)store, .names = "shown\0"});
    CHECK_INT(200, ask("GET /"));
    CHECK_CONTAINS("{\"runs\":[{\"name\":\"shown\",", get("/.page/runs"));
    CHECK_CONTAINS("\"state\":\"complete\"", get_run("/.page/run?run=shown"));
    CHECK_INT(404, status_of(get("/.page/run?run=other")));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_INT(404, ask(refused[i]));
}

/* A log grows by hand: the entry comes only after the subscription is there. */
TEST(a_viewer_gets_an_event_for_a_new_entry)
{
    const char *store = scratch_path("growing");
    char from[700], to[700];
    train(store);
    snprintf(from, sizeof from, "%s/log/0000000002.json", store);
    snprintf(to, sizeof to, "%s/held", store);
    CHECK_INT(0, rename(from, to));
    fixture_serve((dl_hub_options){
        .viewed = url_of, .viewed_user = (void *)(uintptr_t)store, .names = "shown\0"});
    CHECK_CONTAINS("\"entries\":2,", get_run("/.page/run?run=shown"));
    int fd = client_open();
    client_send_text(fd, "GET /events?run=shown&prefix=log/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
    char all[4096] = "";
    size_t len = 0;
    bool moved = false;
    while (!strstr(all, "data: log/0000000002.json")) {
        const ssize_t n = read(fd, all + len, sizeof all - 1 - len);
        CHECK(n > 0);
        all[len += (size_t)n] = 0;
        if (!moved && strstr(all, "event: open")) {
            CHECK_INT(0, rename(to, from));
            moved = true;
        }
    }
    close(fd);
}

/* ---- the store's requests */

enum { VIEWERS = 8, LOOKS = 40 };

static bool url_of_hub(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)user;
    snprintf(url, DL_VIEW_URL, "http://127.0.0.1:%d/%s", fixture.port, name);
    return true;
}

/* Requests of a kind that the hub has answered. */
static uint64_t requests(const char *kind)
{
    char row[96];
    uint64_t n = 0;
    snprintf(row, sizeof row, "diloco_hub_requests_total{kind=\"%s\",", kind);
    for (const char *at = get("/metrics"); (at = strstr(at, row));) {
        at = strchr(at, ' ');
        n += strtoull(at, NULL, 10);
    }
    return n;
}

static void *look_often(void *views)
{
    for (int i = 0; i < LOOKS; i++) {
        const dl_view_part part = {.to = 0};
        dl_view *view;
        dl_buf out;
        dl_buf_init(&out, DL_VIEW_JSON_MAX);
        CHECK_OK(dl_views_get(&view, views, "run"));
        CHECK_OK(dl_view_run_json(&out, view, &part));
        dl_buf_clear(&out);
        CHECK_OK(dl_view_entries_json(&out, view, 0, 50));
        CHECK_CONTAINS("\"entry\":2", dl_buf_str(&out));
        dl_view_let_go(view);
        dl_buf_deinit(&out);
    }
    return NULL;
}

/* The limits are rates, by the time that the test took: a look (four listings) every five seconds,
 * and one more look at the start. */
TEST(many_viewers_cause_the_store_requests_of_one)
{
    dl_views *views;
    pthread_t threads[VIEWERS];
    train(run_folder("run"));
    fixture_serve((dl_hub_options){.page = true});
    const uint64_t lists = requests("list"), gets = requests("get");
    const dl_time began = dl_clock_now();
    CHECK_OK(dl_views_create(&views, url_of_hub, NULL));
    for (int i = 0; i < VIEWERS; i++)
        CHECK_INT(0, pthread_create(&threads[i], NULL, look_often, views));
    for (int i = 0; i < VIEWERS; i++)
        CHECK_INT(0, pthread_join(threads[i], NULL));
    dl_views_destroy(views);
    const uint64_t s = (uint64_t)((dl_clock_now() - began) / DL_SECOND);
    CHECK(requests("list") - lists <= 4 * (2 + s / 5 + 1));
    /* Each object of a run of three entries and two replicas is read once for the view and once for
     * the entries in full. Then come the next entry and the replicas' objects, eight a second. */
    CHECK(requests("get") - gets <= 40 + 8 * (s + 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HUB_TEST(the_page_runs_its_own_scripts_only_and_sends_nothing_elsewhere),
        HUB_TEST(a_hub_has_no_page_unless_asked_for),
        HUB_TEST(a_run_in_the_folder_is_listed_and_shown),
        HUB_TEST(a_run_that_is_a_symbolic_link_is_not_shown),
        HUB_TEST(the_page_s_data_takes_a_token_where_the_hub_has_any),
        HUB_TEST(a_server_that_shows_runs_is_no_store),
        HUB_TEST(a_viewer_gets_an_event_for_a_new_entry),
        HUB_TEST(many_viewers_cause_the_store_requests_of_one),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
