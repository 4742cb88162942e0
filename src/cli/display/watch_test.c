/* watch_test.c - a run on a screen of text. */
#include "cli/display/watch.h"
#include "toy_run.h"

static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)name;
    snprintf(url, DL_VIEW_URL, "%s", (const char *)user);
    return true;
}

static void train(const char *store, int n, const char *rounds)
{
    toy all[8];
    toy_crew(all, n, store, "none");
    toy_set_all(all, n, "trainer.rounds", rounds);
    toy_live_all(all, n);
    for (int i = 0; i < n; i++)
        TOY_OK(all[i]);
}

static size_t width(const char *line)
{
    size_t n = 0;
    for (; *line; line++)
        n += ((unsigned char)*line & 0xC0) != 0x80;
    return n;
}

/* The frame, as one text; every line fits. */
static char *drawn(const char *store, int columns, int lines, bool utf8)
{
    static char text[DL_SCREEN_MAX_LINES * DL_SCREEN_LINE];
    static dl_watch_frame frame;
    dl_views *views;
    dl_view *view;
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)store));
    CHECK_OK(dl_views_get(&view, views, "toy"));
    do
        CHECK_OK(dl_watch_draw(&frame, view, columns, lines, utf8));
    while (frame.reading);
    CHECK(frame.n <= lines);
    text[0] = 0;
    for (int i = 0; i < frame.n; i++) {
        CHECK(width(frame.lines[i]) <= (size_t)columns);
        strcat(strcat(text, frame.lines[i]), "\n");
    }
    dl_view_let_go(view);
    dl_views_destroy(views);
    return text;
}

/* In memory: an upload to a busy disk may be reported as slow. */
TEST(a_finished_run_has_its_loss_its_replicas_and_the_counted_ones)
{
    const char *store = "mem://watch";
    toy_keep(store);
    train(store, 2, "5");
    const char *text = drawn(store, 80, 24, true);
    CHECK_CONTAINS("toy: complete, 0 of 2 replicas alive\n", text);
    CHECK_CONTAINS("5 of 5 entries (0 aborted)", text);
    CHECK_CONTAINS("well: no replica is lost, slow or rejected\n", text);
    CHECK_CONTAINS("\nr0        ended", text);
    CHECK_CONTAINS(" +++++\n", text);
    CHECK_CONTAINS("    norm   cos counted\n", text);
    CHECK_CONTAINS("loss ▁", text);
    CHECK_CONTAINS("loss _", drawn(store, 80, 24, false));
}

TEST(replicas_that_do_not_fit_are_counted)
{
    const char *store = scratch_path("watch-many");
    train(store, 8, "1");
    CHECK_CONTAINS("\nand 4 more replicas\n", drawn(store, 80, 14, true));
    CHECK_CONTAINS("\nr7        ended", drawn(store, 80, 24, true));
}

/* As if the run had continued without r1: it has a heartbeat, and has not ended. */
static void lose_r1(const char *store)
{
    char key[700];
    snprintf(key, sizeof key, "%s/end/r1.0000", store);
    CHECK_INT(0, remove(key));
    snprintf(key, sizeof key, "%s/hb/r1.0000", store);
    FILE *beat = fopen(key, "w");
    CHECK(beat);
    fputs("{\"replica\":\"r1\",\"generation\":0,\"beat\":1,\"step\":7,\"time\":1}", beat);
    fclose(beat);
}

TEST(complete_run_with_a_lost_replica_is_not_said_to_have_lost_none)
{
    const char *store = scratch_path("watch-lost-complete");
    train(store, 3, "2");
    lose_r1(store);
    const char *text = drawn(store, 80, 24, true);
    CHECK_CONTAINS("\ncomplete; 1 replica was lost before the end\n", text);
    CHECK_CONTAINS("\nr1        LOST", text);
    CHECK(!strstr(text, "no replica is lost"));
}

TEST(a_lost_replica_comes_first_and_is_named)
{
    char end[700];
    const char *store = scratch_path("watch-lost");
    train(store, 3, "2");
    lose_r1(store); /* and the log is not at its end */
    snprintf(end, sizeof end, "%s/log/0000000001.json", store);
    CHECK_INT(0, remove(end));
    const char *text = drawn(store, 80, 24, true);
    CHECK_CONTAINS("attention: r1 is lost: no new heartbeat for 11 s or more; its last was at step",
                   text);
    CHECK(strstr(text, "\nr1        LOST") < strstr(text, "\nr0        ended"));
    CHECK(strstr(text, "\nr1        LOST"));
}

TEST_MAIN(a_finished_run_has_its_loss_its_replicas_and_the_counted_ones,
          replicas_that_do_not_fit_are_counted,
          complete_run_with_a_lost_replica_is_not_said_to_have_lost_none,
          a_lost_replica_comes_first_and_is_named)
