/* parts_test.c - a long object to a hub in parts: at once or not at all, and what was sent is not
 * sent again. */
#include "hub_fixture.h"

#include "base/buf.h"
#include "hub/server.h"
#include "store/http/http_upload.h"
#include "store/store.h"
#include <diloco/log.h>

#include <stdatomic.h>

enum { PART = 100000, PARTS = 7, LEN = (PARTS - 1) * PART + 5 };

enum { BEGIN = 1, COMPLETE = 1, ABANDON = 1 }; /* requests beside those of parts */
static unsigned char data[LEN];
static atomic_bool never;
static const char *token;

static int requests;      /* that the client has made */
static int requests_left; /* then it breaks; below 0: never */

/* The hub may still be at what was in flight when the client broke. */
static void mend(void)
{
    while (atomic_load(&fixture.hub->in_flight))
        usleep(1000);
    requests = 0;
    requests_left = -1;
}

static diloco_status address(void *context, const char *key, dl_web_exchange *x)
{
    (void)context;
    x->what = "the object";
    if (requests_left >= 0 && requests_left-- == 0) return dl_fail(DILOCO_EUNREACHABLE, "cut");
    requests++;
    if (token) DL_TRY(dl_web_header(x, "Authorization: Bearer %s", token));
    return dl_buf_addf(&x->url, "%s/run/%s", dl_hub_url(fixture.hub), key);
}

static diloco_status refused(const dl_web_exchange *x)
{
    return dl_web_unexpected(x);
}

static diloco_status upload(dl_http_upload *u, dl_web *web, const char *key, bool *taken)
{
    const dl_http_object object = {key, NULL, address, refused};
    const dl_span spans[] = {{data, 12345}, {data + 12345, 0}, {data + 12345, LEN - 12345}};
    return dl_http_upload_run(u, web, &object, spans, 3, taken, DL_NEVER);
}

static void begin(dl_hub_options options)
{
    for (size_t i = 0; i < LEN; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 11);
    requests = 0;
    requests_left = -1;
    char path[400];
    CHECK(mkdir(fixture.dir, 0777) == 0);
    fixture_serve(options);
    dl_store *store;
    snprintf(path, sizeof path, "%s/run", fixture.dir);
    CHECK_OK(dl_store_open(&store, path, true));
    dl_store_close(store);
}

static void check_whole(const char *key)
{
    char path[400];
    dl_buf back;
    dl_store *store;
    snprintf(path, sizeof path, "%s/run", fixture.dir);
    CHECK_OK(dl_store_open(&store, path, false));
    dl_buf_init(&back, LEN);
    CHECK_OK(dl_store_get(store, &back, key, DL_NEVER));
    CHECK_INT(LEN, back.len);
    CHECK(!memcmp(data, back.data, LEN));
    dl_buf_deinit(&back);
    dl_store_close(store);
}

/* Uploads that the hub has parts of. */
static size_t kept(void)
{
    return count_files("hub/run/.multipart");
}

/* A part that was late is refused, and goes again, when the client has its answer already. The
 * test's own time limit is the bound. */
static void wait_until_none_kept(void)
{
    while (kept())
        usleep(1000);
}

TEST(parts_of_several_spans_become_one_readable_object)
{
    dl_http_upload u = {.part_bytes = PART};
    bool taken;
    dl_web *web;
    begin((dl_hub_options){0});
    CHECK_OK(dl_web_create(&web, NULL, &never));
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken));
    CHECK(!taken && !u.id[0]);
    CHECK(u.vouched); /* P8 */
    CHECK_INT(BEGIN + PARTS + COMPLETE, requests);
    check_whole("c/1/r0.0");
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken)); /* no part is sent for nothing */
    CHECK(taken);
    CHECK_INT(BEGIN + PARTS + COMPLETE + BEGIN, requests);
    dl_web_destroy(web);
    dl_http_upload_deinit(&u);
}

TEST(a_broken_upload_resumes_where_it_stopped)
{
    dl_http_upload u = {.part_bytes = PART};
    bool taken;
    dl_web *web;
    begin((dl_hub_options){0});
    requests_left = 6; /* to begin, and of five parts at least one has ended */
    CHECK_OK(dl_web_create(&web, NULL, &never));
    CHECK_STATUS(DILOCO_EUNREACHABLE, upload(&u, web, "c/1/r0.0", &taken));
    CHECK(u.id[0]);
    int there = 0;
    for (int i = 0; i < PARTS; i++)
        there += u.tags[i][0] != 0;
    CHECK(there > 0 && there < PARTS);
    mend();
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken));
    CHECK(!taken && u.vouched); /* of those that were there, too */
    CHECK_INT(PARTS - there + COMPLETE, requests);
    check_whole("c/1/r0.0");
    dl_web_destroy(web);
    dl_http_upload_deinit(&u);
}

TEST(an_object_does_not_resume_with_the_parts_of_another)
{
    dl_http_upload u = {.part_bytes = PART};
    bool taken;
    dl_web *web;
    begin((dl_hub_options){0});
    requests_left = 6;
    CHECK_OK(dl_web_create(&web, NULL, &never));
    CHECK_STATUS(DILOCO_EUNREACHABLE, upload(&u, web, "c/1/r0.0", &taken));
    mend();
    data[LEN - 1] ^= 1;
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken));
    CHECK_INT(ABANDON + BEGIN + PARTS + COMPLETE, requests);
    check_whole("c/1/r0.0");
    wait_until_none_kept();
    requests_left = 6;
    CHECK_STATUS(DILOCO_EUNREACHABLE, upload(&u, web, "c/2/r0.0", &taken));
    mend();
    CHECK_INT(1, kept());
    CHECK_OK(upload(&u, web, "c/3/r0.0", &taken));
    check_whole("c/3/r0.0");
    wait_until_none_kept();
    dl_web_destroy(web);
    dl_http_upload_deinit(&u);
}

TEST(parts_of_an_object_that_will_not_be_made_do_not_stay_on_the_hub)
{
    dl_http_upload u = {.part_bytes = PART}, other = {.part_bytes = PART};
    bool taken;
    dl_web *web;
    begin((dl_hub_options){.max_object = LEN});
    requests_left = 6;
    CHECK_OK(dl_web_create(&web, NULL, &never));
    CHECK_STATUS(DILOCO_EUNREACHABLE, upload(&u, web, "c/1/r0.0", &taken));
    mend();
    CHECK_OK(upload(&other, web, "c/1/r0.0", &taken));
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken)); /* the race is lost */
    CHECK(taken);
    wait_until_none_kept();
    static const uint64_t limits[] = {LEN - 1, PART - 1}; /* of the whole, and of a part */
    for (int i = 0; i < 2; i++) {
        fixture.hub->options.max_object = limits[i];
        CHECK_STATUS(DILOCO_EIO, upload(&u, web, "c/2/r0.0", &taken));
        wait_until_none_kept();
    }
    dl_web_destroy(web);
    dl_http_upload_deinit(&u);
    dl_http_upload_deinit(&other);
}

TEST(parts_need_a_token_where_the_hub_has_one_and_a_hub_that_lost_them_is_asked_again)
{
    dl_http_upload u = {.part_bytes = PART};
    char path[400];
    bool taken;
    dl_web *web;
    fixture_write("tokens", "a-token-of-at-least-16-bytes\n");
    snprintf(path, sizeof path, "%s/tokens", fixture.root);
    begin((dl_hub_options){.token_file = path});
    CHECK_OK(dl_web_create(&web, NULL, &never));
    CHECK_STATUS(DILOCO_EREFUSED, upload(&u, web, "c/1/r0.0", &taken));
    token = "a-token-of-at-least-16-bytes";
    strcpy(u.key, "c/1/r0.0");
    strcpy(u.id, "00000000000000000000000000000000"); /* swept, say */
    u.len = LEN;
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, data, LEN);
    u.digest = dl_digest_end(&stream);
    u.n_parts = PARTS;
    if (!u.tags) u.tags = calloc(PARTS, sizeof *u.tags);
    CHECK_STATUS(DILOCO_EUNREACHABLE, upload(&u, web, "c/1/r0.0", &taken));
    CHECK_CONTAINS("has lost its parts", diloco_error_text());
    CHECK_OK(upload(&u, web, "c/1/r0.0", &taken));
    check_whole("c/1/r0.0");
    token = NULL;
    dl_web_destroy(web);
    dl_http_upload_deinit(&u);
}

#define HUB(test) cmocka_unit_test_setup_teardown(test, fixture_set_up, fixture_tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HUB(parts_of_several_spans_become_one_readable_object),
        HUB(a_broken_upload_resumes_where_it_stopped),
        HUB(an_object_does_not_resume_with_the_parts_of_another),
        HUB(parts_of_an_object_that_will_not_be_made_do_not_stay_on_the_hub),
        HUB(parts_need_a_token_where_the_hub_has_one_and_a_hub_that_lost_them_is_asked_again),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
