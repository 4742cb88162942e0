/* store_bill_test.c - the cost of a store: recorded exchanges, and an estimate of the rest. */
#include "cli/launch/store_bill.h"

#include "check.h"
#include "cli/plan/plan_pages.h"
#include "scratch.h"

#include <stdio.h>
#include <string.h>

static const dl_prices prices = {.date = "2026-01-31",
                                 .currency = "EUR",
                                 .egress_per_gb = 2,
                                 .ingress_per_gb = 1,
                                 .put_per_1000 = 100,
                                 .get_per_1000 = 10};

/* An hour of 2 replicas with 10^9 parameters. */
static dl_store_use use_of(double heartbeat_s, double snapshot_s, double processes)
{
    return (dl_store_use){.parameters = 1e9,
                          .heartbeat_s = heartbeat_s,
                          .snapshot_s = snapshot_s,
                          .machine_s = 7200,
                          .replicas = 2,
                          .processes = processes};
}

TEST(exchanges_cost_what_was_recorded)
{
    dl_store_bill bill;
    char text[DL_STORE_BILL_TEXT];
    dl_store_use use = {.exchanges = {.written = 3e9, .read = 5e9, .writes = 200, .reads = 400}};
    dl_store_bill_of(&bill, &use, &prices);
    CHECK_NEAR(3 + 10 + 20 + 4, bill.recorded, 1e-9);
    CHECK_NEAR(0, bill.estimated, 1e-9);
    CHECK_STR("8.0 GB and 600 requests of exchanges recorded so far, 37.00 EUR; other requests and "
              "bytes: about 0.00 EUR (estimate)",
              dl_store_bill_text(text, &bill, &prices));
}

TEST(heartbeats_snapshots_and_first_models_are_estimated)
{
    dl_store_bill bill;
    dl_store_use use = use_of(5, 0, 0);
    dl_store_bill_of(&bill, &use, &prices);
    CHECK_NEAR(1440 * 0.1, bill.estimated, 1e-9); /* one put of each replica in 5 s */
    use = use_of(0, 600, 0);
    dl_store_bill_of(&bill, &use, &prices);
    CHECK_NEAR(6 * (8 + 0.3), bill.estimated, 1e-9); /* 8 GB and 3 puts each */
    use = use_of(0, 0, 3);
    dl_store_bill_of(&bill, &use, &prices);
    CHECK_NEAR(3 * (8 + 0.01), bill.estimated, 1e-9); /* 4 GB are read by each process */
    use = use_of(0, 0, 0);
    use.records = (dl_billed){.written = 1e9, .writes = 10};
    dl_store_bill_of(&bill, &use, &prices);
    CHECK_NEAR(1 + 1, bill.estimated, 1e-9);
    CHECK_NEAR(0, bill.recorded, 1e-9);
}

TEST(store_without_a_run_has_no_bill_yet)
{
    dl_store_meter *meter;
    dl_store_bill bill;
    dl_book_rank ranks[DL_JOBS_MAX] = {{.started = true, .ended_at = 1}};
    const dl_book book = {.ranks = ranks};
    CHECK_OK(dl_store_meter_create(&meter, scratch_path("absent"), &prices));
    CHECK_OK(dl_store_meter_read(meter));
    dl_store_meter_bill(&bill, meter, &book);
    CHECK(bill.recorded == 0 && bill.estimated == 0);
    dl_store_meter_destroy(meter);
}

/* Read a price table with these lines. */
static dl_prices table(const char *lines)
{
    dl_prices p;
    const char *path = scratch_path("prices.toml");
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "date = \"2026-01-31\"\n%s", lines) > 0);
    CHECK(fclose(f) == 0);
    CHECK_OK(dl_plan_prices(&p, path));
    return p;
}

TEST(prices_that_the_table_lacks_are_named)
{
    char text[DL_STORE_UNPRICED];
    dl_prices p = table("machine_hour = 1\nput_per_1000 = 1\nget_per_1000 = 1\n"
                        "ingress_per_gb = 0\n");
    CHECK_STR("p.toml has no egress_per_gb: the cost of the store is counted without it",
              dl_store_unpriced_text(text, &p, "p.toml", "s3://bucket/run"));
    CHECK_STR("", dl_store_unpriced_text(text, &p, "p.toml", "/mnt/run"));
    CHECK_STR("", dl_store_unpriced_text(text, &p, "p.toml", "file:///mnt/run"));
    CHECK(dl_store_is_priced(&p));
    p = table("machine_hour = 1\n");
    CHECK_STR("p.toml has no egress_per_gb, ingress_per_gb, put_per_1000, get_per_1000: the cost "
              "of the store is not counted",
              dl_store_unpriced_text(text, &p, "p.toml", "https://hub.example/run"));
    CHECK(!dl_store_is_priced(&p) && !dl_plan_missing_price(&p, false, 0));
    p = table("egress_per_gb = 0\n");
    CHECK_STR("machine_hour", dl_plan_missing_price(&p, false, 0));
}

TEST_MAIN(exchanges_cost_what_was_recorded, heartbeats_snapshots_and_first_models_are_estimated,
          store_without_a_run_has_no_bill_yet, prices_that_the_table_lacks_are_named)
