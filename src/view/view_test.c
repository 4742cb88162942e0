/* view_test.c - a view's answers: shared by viewers, of one run at a time, never of another. */
#include "view/points.h"

#include "base/json.h"
#include "toy_run.h"
#include "view/parts.h"

static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    if (!strcmp(name, "none")) return false;
    snprintf(url, DL_VIEW_URL, "%s/%s", (const char *)user, name);
    return true;
}

static void train(const char *folder, const char *name, const char *rounds)
{
    toy all[2];
    char store[1200];
    snprintf(store, sizeof store, "%s/%s", folder, name);
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "trainer.rounds", rounds);
    toy_live_all(all, 2);
    for (int i = 0; i < 2; i++)
        TOY_OK(all[i]);
}

static dl_json_value parsed(dl_buf *text)
{
    dl_json_value v = {0};
    CHECK_OK(dl_json_parse(&v, text->data, text->len));
    return v;
}

static uint64_t count(dl_json_value v, const char *key)
{
    uint64_t n = 0;
    CHECK_OK(dl_json_read_u64(&n, v, key, UINT64_MAX));
    return n;
}

/* A view reads for a limited time before it answers, and a loaded machine may need more of it. */
static void read_all(dl_view *view)
{
    uint64_t entries;
    bool grown, more = true;
    while (more)
        CHECK_OK(dl_view_follow(view, &entries, &grown, &more));
}

/* In memory: an upload to a busy disk may be reported as slow. */
TEST(a_finished_run_has_its_curve_its_lanes_and_its_replicas)
{
    const char *folder = "mem:/"; /* of mem://a */
    dl_views *views;
    dl_view *view;
    dl_buf out;
    toy_keep("mem://a");
    train(folder, "a", "5");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    read_all(view);
    CHECK_OK(dl_view_run_json(&out, view, &(dl_view_part){.points = 100}));
    const dl_json_value run = parsed(&out);
    CHECK(dl_json_is(dl_json_get(run, "state"), "complete"));
    CHECK_INT(5, count(run, "entries"));
    CHECK_INT(2, count(run, "n_replicas"));
    const dl_json_value curves = dl_json_get(run, "curves");
    CHECK_INT(5, dl_json_count(dl_json_get(curves, "loss")));
    CHECK_INT(5, dl_json_count(dl_json_get(curves, "time")));
    const dl_json_value lanes = dl_json_get(run, "lanes");
    CHECK_INT(2, dl_json_count(dl_json_get(lanes, "rows")));
    CHECK_INT(5, count(lanes, "to"));
    CHECK_INT(5, count(dl_json_get(run, "verification"), "chained"));
    CHECK_INT(0, dl_json_count(dl_json_get(run, "findings")));
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST(a_curve_is_no_longer_than_asked_for)
{
    const char *folder = scratch_path("view-points");
    dl_views *views;
    dl_view *view;
    dl_buf out;
    train(folder, "a", "7");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    read_all(view);
    CHECK_OK(
        dl_view_run_json(&out, view, &(dl_view_part){.points = 3, .from = 2, .to = 6, .bins = 2}));
    const dl_json_value run = parsed(&out), curves = dl_json_get(run, "curves");
    CHECK_INT(3, count(curves, "per_point"));
    CHECK_INT(3, dl_json_count(dl_json_get(curves, "loss")));
    CHECK_INT(2, count(dl_json_get(run, "lanes"), "per_bin"));
    CHECK_INT(2, count(dl_json_get(run, "lanes"), "from"));
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST(viewers_of_a_run_share_one_view)
{
    const char *folder = scratch_path("view-shared");
    dl_views *views;
    dl_view *a, *b, *other;
    train(folder, "a", "1");
    train(folder, "b", "1");
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&a, views, "a"));
    CHECK_OK(dl_views_get(&b, views, "a"));
    CHECK_OK(dl_views_get(&other, views, "b"));
    CHECK(a == b);
    CHECK(a != other);
    dl_view_let_go(a), dl_view_let_go(b), dl_view_let_go(other);
    dl_views_destroy(views);
}

TEST(a_run_that_is_not_there_is_not_found_and_is_found_once_it_is)
{
    const char *folder = scratch_path("view-late");
    dl_views *views;
    dl_view *view;
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_STATUS(DILOCO_ENOENT, dl_views_get(&view, views, "none"));
    CHECK_STATUS(DILOCO_ENOENT, dl_views_get(&view, views, "a"));
    train(folder, "a", "1");
    CHECK_OK(dl_views_get(&view, views, "a"));
    dl_view_let_go(view);
    dl_views_destroy(views);
}

TEST(entries_and_settings_are_those_of_the_log_and_of_run_json)
{
    const char *folder = scratch_path("view-entries");
    dl_views *views;
    dl_view *view;
    dl_buf out;
    train(folder, "a", "4");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    read_all(view);
    CHECK_OK(dl_view_entries_json(&out, view, 1, 2));
    dl_json_iter it = dl_json_each(dl_json_get(parsed(&out), "entries"));
    for (uint64_t e = 1; e <= 2; e++) {
        CHECK(dl_json_next(&it));
        CHECK_INT(e, count(it.value, "entry"));
        CHECK_INT(2, dl_json_count(dl_json_get(it.value, "members")));
    }
    CHECK(!dl_json_next(&it));
    char file[1300];
    snprintf(file, sizeof file, "%s/a/log/0000000002.json", folder);
    CHECK_INT(0, remove(file)); /* it is not read again */
    dl_buf_clear(&out);
    CHECK_OK(dl_view_entries_json(&out, view, 2, 100));
    it = dl_json_each(dl_json_get(parsed(&out), "entries"));
    for (uint64_t e = 2; e <= 3; e++) {
        CHECK(dl_json_next(&it));
        CHECK_INT(e, count(it.value, "entry"));
    }
    CHECK(!dl_json_next(&it));
    dl_buf_clear(&out);
    CHECK_OK(dl_view_entries_json(&out, view, UINT64_MAX, UINT64_MAX));
    CHECK_STR("{\"entries\":[]}", dl_buf_str(&out));
    dl_buf_clear(&out);
    CHECK_OK(dl_view_settings_json(&out, view));
    CHECK_CONTAINS("{\"name\":\"trainer.rounds\",\"value\":\"4\"", dl_buf_str(&out));
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST(entry_whose_text_does_not_fit_is_an_error_each_time)
{
    const char *folder = scratch_path("view-large");
    dl_views *views;
    dl_view *view;
    dl_buf out;
    train(folder, "a", "3");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    const size_t most = view->entries[1].text.max;
    view->entries[1].text.max = 100;
    for (int i = 0; i < 2; i++) {
        dl_buf_clear(&out);
        CHECK(dl_view_entries_json(&out, view, 0, 3) != DILOCO_OK);
    }
    view->entries[1].text.max = most;
    dl_buf_clear(&out);
    CHECK_OK(dl_view_entries_json(&out, view, 0, 3));
    CHECK_INT(3, dl_json_count(dl_json_get(parsed(&out), "entries")));
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST(row_of_a_run_with_more_entries_than_its_total_has_no_time_left)
{
    const char *folder = scratch_path("view-total");
    dl_views *views;
    dl_view *view;
    dl_buf out;
    train(folder, "a", "4");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    read_all(view);
    /* The log has an entry more than the run's total, and its end was not seen. */
    diloco_run_status *run = (diloco_run_status *)(uintptr_t)dl_follower_status(view->follower);
    run->entries_total = 3;
    run->done = false;
    view->refreshed = dl_clock_now();
    CHECK_OK(dl_view_run_json(&out, view, &(dl_view_part){.points = 10}));
    double left = -1;
    CHECK_OK(dl_json_read_f64(&left, parsed(&out), "left_s"));
    CHECK_NEAR(0, left, 0);
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST(each_value_of_a_curve_is_given_once_and_a_late_one_in_a_line_of_its_own)
{
    const char *folder = scratch_path("view-curves");
    dl_views *views;
    dl_view *view;
    dl_buf out;
    dl_points points = {0};
    size_t n;
    train(folder, "a", "4");
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    CHECK_OK(dl_views_create(&views, url_of, (void *)(uintptr_t)folder));
    CHECK_OK(dl_views_get(&view, views, "a"));
    read_all(view);
    CHECK_OK(dl_points_add(&out, &n, &points, view));
    CHECK_INT(4, n);
    CHECK_CONTAINS("{\"entry\":3,\"time\":", dl_buf_str(&out));
    CHECK_CONTAINS("\"loss/entry\":", dl_buf_str(&out));
    dl_buf_clear(&out);
    CHECK_OK(dl_points_add(&out, &n, &points, view));
    CHECK_INT(0, n);
    CHECK_INT(0, out.len);
    view->model.marks[2].eval_loss = 1.5;
    view->model.marks[2].time = NAN;
    CHECK_OK(dl_points_add(&out, &n, &points, view));
    CHECK_INT(1, n);
    CHECK_STR("{\"entry\":2,\"values\":{\"loss/validation\":1.5}}\n", dl_buf_str(&out));
    dl_points_deinit(&points);
    dl_view_let_go(view);
    dl_views_destroy(views);
    dl_buf_deinit(&out);
}

TEST_MAIN(a_finished_run_has_its_curve_its_lanes_and_its_replicas,
          a_curve_is_no_longer_than_asked_for, viewers_of_a_run_share_one_view,
          a_run_that_is_not_there_is_not_found_and_is_found_once_it_is,
          entries_and_settings_are_those_of_the_log_and_of_run_json,
          entry_whose_text_does_not_fit_is_an_error_each_time,
          row_of_a_run_with_more_entries_than_its_total_has_no_time_left,
          each_value_of_a_curve_is_given_once_and_a_late_one_in_a_line_of_its_own)
