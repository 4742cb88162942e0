/* store_patience_test.c - which failures of a store are repeated, and how the last one ends. */
#include "run/store_patience.h"

#include "check.h"
#include "scratch.h"

static bool no_stop(const void *user)
{
    (void)user;
    return false;
}

static bool again(dl_patience *p, const dl_store *store, diloco_status *status, double limit_s)
{
    return dl_patience_again(p, dl_patience_store_failed(p, store, *status), status, limit_s);
}

/* Writes a key whose folder is a file, which is DILOCO_EIO. */
static diloco_status fail_of(dl_store *store)
{
    const dl_span span = {"1", 1};
    return dl_store_create(store, "log/x", &span, 1, NULL,
                           dl_time_after(dl_clock_now(), DL_SECOND));
}

static dl_store *opened(const char *url, dl_moved *tally)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    dl_store_count_into(store, tally);
    return store;
}

static unsigned kind_of(const char *key)
{
    (void)key;
    return 0;
}

TEST(a_series_of_failures_is_reported_once_and_ends_with_the_first_success)
{
    dl_moved tally = {.kind_of = kind_of};
    dl_store *store = opened("mem://patience", &tally);
    dl_patience p = {0};
    diloco_status status = DILOCO_EUNREACHABLE;
    CHECK(again(&p, store, &status, 1000));
    CHECK(p.first);
    CHECK(again(&p, store, &status, 1000));
    CHECK(!p.first);
    status = DILOCO_OK;
    CHECK(!again(&p, store, &status, 1000));
    status = DILOCO_EUNREACHABLE;
    CHECK(again(&p, store, &status, 1000));
    CHECK(p.first);
    dl_store_close(store);
}

static diloco_status ignore(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    return DILOCO_OK;
}

static diloco_status list_late(dl_store *store)
{
    return dl_store_list(store, "log/", NULL, ignore, NULL, 1);
}

TEST(a_call_whose_time_is_over_is_repeated_once_at_least)
{
    dl_moved tally = {.kind_of = kind_of};
    dl_store *store = opened("mem://late", &tally);
    const dl_span span = {"1", 1};
    dl_patience p = {0};
    for (int n = 0; n < 2; n++) {
        dl_patience_call(&p, store);
        diloco_status status = dl_store_create(store, "log/x", &span, 1, NULL, 1);
        CHECK_INT(DILOCO_ETIMEDOUT, status);
        CHECK_INT(!n, again(&p, store, &status, 0));
        CHECK_INT(n ? DILOCO_EUNREACHABLE : DILOCO_ETIMEDOUT, status);
        dl_patience_call(&p, store);
        CHECK(dl_patience_store_failed(&p, store, list_late(store)));
        dl_clock_sleep(DL_MILLISECOND);
    }
    dl_store_close(store);
}

TEST(an_io_error_is_repeated_if_a_call_of_the_store_had_it)
{
    dl_moved tally = {.kind_of = kind_of};
    const char *folder = scratch_path("io");
    dl_store *store = opened(folder, &tally);
    char *blocked;
    CHECK(asprintf(&blocked, "%s/log", folder) > 0);
    fclose(fopen(blocked, "w"));
    dl_patience p = {0};

    dl_patience_call(&p, store);
    diloco_status status = dl_fail(DILOCO_EIO, "a device of the caller");
    CHECK(!again(&p, store, &status, 1000));
    CHECK_INT(DILOCO_EIO, status);

    dl_patience_call(&p, store);
    status = fail_of(store);
    CHECK_INT(DILOCO_EIO, status);
    CHECK(again(&p, store, &status, 1000));
    CHECK_INT(DILOCO_EIO, status);
    dl_patience_pause(&p, no_stop, NULL);

    dl_patience_call(&p, store);
    status = fail_of(store);
    CHECK(!again(&p, store, &status, 0)); /* the time is over */
    CHECK_INT(DILOCO_EUNREACHABLE, status);
    CHECK_CONTAINS("is in the way", diloco_error_text());
    dl_store_close(store);
    free(blocked);
}

TEST_MAIN(a_series_of_failures_is_reported_once_and_ends_with_the_first_success,
          a_call_whose_time_is_over_is_repeated_once_at_least,
          an_io_error_is_repeated_if_a_call_of_the_store_had_it)
