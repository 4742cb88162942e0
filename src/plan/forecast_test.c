/* forecast_test.c - volumes by PROTOCOL P19, times against closed forms and against the independent
 * program tests/goldens/plan_forecast.py, links as text. */
#include "plan/forecast.h"

#include "check.h"
#include "goldens/plan_forecast.h"

static const dl_plan_task task = {
    .parameters = 1e6, .step_s = 1, .steps = 1000, .replicas = 4, .link = {8e6, 8e6, 0}};

static dl_plan_choice blocking(uint32_t H, double bits)
{
    return (dl_plan_choice){.sync_every = H, .fragments = 1, .bits = bits};
}

/* The runs are shorter than what is walked whole; sums in another order: 1e-9 relative. */
TEST(forecasts_equal_those_of_the_independent_program)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dl_forecast f = dl_plan_forecast(&rows[i].task, &rows[i].choice, NULL);
        CHECK_NEAR(rows[i].wall_s, f.wall_s, 1e-9 * rows[i].wall_s);
        CHECK_NEAR(8 * rows[i].sent, f.bits_sent, 1e-9 * f.bits_sent);
        CHECK_NEAR(rows[i].read, f.bytes_read, 1e-9 * f.bytes_read);
        CHECK_NEAR(rows[i].task.steps * rows[i].task.step_s / rows[i].wall_s, f.utilization, 1e-9);
    }
}

/* S = F = 4e6 bytes, N = 4; no replica reads back a confirmed upload (P8). */
TEST(volumes_are_those_of_the_protocol)
{
    dl_plan_choice c = blocking(100, 32);
    double S = 4e6, F = 4e6;
    dl_plan_exchange x = dl_plan_exchange_of(&task, &c);
    CHECK_NEAR(4 * S, x.written, 1);
    CHECK_NEAR(4 * 3 * S, x.read, 1);
    c.exchange = DL_LEADER;
    x = dl_plan_exchange_of(&task, &c);
    CHECK_NEAR(4 * S + F, x.written, 1);
    CHECK_NEAR(3 * S + 3 * F, x.read, 1);
    c.exchange = DL_SHARDED;
    x = dl_plan_exchange_of(&task, &c);
    CHECK_NEAR(4 * S + F, x.written, 1);
    CHECK_NEAR(3 * (S + F), x.read, 1);
    CHECK_NEAR(S + F / 4, x.sent, 1);
    CHECK_NEAR(3 * (S + F) / 4, x.received, 1);
}

TEST(the_exchange_that_moves_least_depends_on_replicas_and_bits)
{
    dl_plan_task few = task, many = task;
    few.replicas = 2, many.replicas = 64;
    CHECK_INT(DL_ALLGATHER, dl_plan_cheapest(&few, blocking(100, 4)));
    /* as much as with a leader, and no replica as much as that one: as protocol/topology.c chooses
     */
    CHECK_INT(DL_SHARDED, dl_plan_cheapest(&many, blocking(100, 32)));
}

/* 4e6 bytes up, 12e6 down, at 1e6 bytes a second: 16 s for each 10 steps of 1 s. */
TEST(blocking_exchanges_take_the_time_of_their_bytes)
{
    dl_plan_choice c = blocking(10, 32);
    dl_forecast f = dl_plan_forecast(&task, &c, NULL);
    CHECK_NEAR(1000 + 100 * 16, f.wall_s, 1e-6);
    CHECK_NEAR(10.0 / 26, f.utilization, 1e-9);
    CHECK_NEAR(32e6, f.peak_bits, 1e-3);
    CHECK_NEAR(100 * 32e6, f.bits_sent, 1);
}

/* A round later is as fast as the slower of training and the link's busier direction: of five
 * replicas 16 s. */
TEST(an_overlap_of_a_whole_round_leaves_the_busier_direction)
{
    dl_plan_choice c = blocking(10, 32);
    dl_plan_task five = task;
    five.replicas = 5;
    c.tau = 10;
    dl_forecast f = dl_plan_forecast(&five, &c, NULL);
    CHECK_NEAR(16.0 * 100, f.wall_s, 16 + 10 + 4);
    CHECK(f.utilization > 0.6);
}

TEST(prices_count_bytes_requests_and_machine_hours)
{
    dl_plan_choice c = blocking(10, 32);
    dl_prices p = {.egress_per_gb = 1,
                   .ingress_per_gb = 10,
                   .put_per_1000 = 100,
                   .get_per_1000 = 1000,
                   .machine_hour = 1e4};
    dl_forecast f = dl_plan_forecast(&task, &c, &p);
    CHECK_NEAR(100 * 48e6, f.bytes_read, 1);
    CHECK_NEAR(100 * (2 * 4 + 4 * 3), f.n_get, 1e-6);
    /* contributions of 1.6e9 bytes are 100 times twice a snapshot of 8e6 */
    CHECK_NEAR(100 * 16e6 + 100 * 8e6, f.bytes_written, 1);
    CHECK_NEAR(100 * 12 + 100 * 3, f.n_put, 1e-6);
    CHECK_NEAR(4.8 + 10 * 2.4 + 100 * 1.5 + 1000 * 2.0 + 1e4 * 4 * 2600 / 3600, f.cost, 1e-6);
}

/* The first interval has an exchange of one fragment in three only: 2 are missing of 3e8. */
TEST(a_forecast_of_a_long_run_extends_its_first_rounds)
{
    dl_plan_choice c = {.sync_every = 10, .fragments = 3, .bits = 32};
    dl_plan_task longer = task;
    longer.steps = 1e9;
    dl_forecast f = dl_plan_forecast(&longer, &c, NULL);
    CHECK_NEAR((3e8 - 2) * 32e6 / 3, f.bits_sent, 1e3);
    CHECK_NEAR(1e9 + (3e8 - 2) * 16 / 3, f.wall_s, 1e-3);
}

TEST(every_method_has_a_codec_and_comes_with_its_presets_values)
{
    const dl_plan_method *m;
    for (size_t i = 0; (m = dl_plan_method_at(i)); i++) {
        CHECK(dl_plan_codec_find(m->codec) != NULL);
        dl_plan_choice c = dl_plan_default(m, 24, 3);
        CHECK(c.sync_every == m->sync_every && c.fragments >= 1);
        CHECK(c.tau <= c.sync_every);
    }
    CHECK_OK(dl_plan_method_find(&m, "streaming"));
    CHECK_INT(9, dl_plan_default(m, 24, 3).fragments); /* 8 and what is in no block */
    CHECK_STATUS(DILOCO_EINVAL, dl_plan_method_find(&m, "telepathy"));
    CHECK_CONTAINS("there is: data_parallel, diloco", diloco_error_text());
}

/* By docs/formats.md, of a chunk of 4096: k = round(keep * 4096) indices in the shortest code. */
static double topk_bits(double keep, double value_bits, double scale_bits)
{
    const size_t m = 4096, k = (size_t)(keep * 4096 + 0.5);
    size_t least = SIZE_MAX;
    for (size_t l = 0; l <= 12; l++) {
        size_t above = (m - 1) >> l, bits = k * l + (above ? k + above : 0);
        if (bits < least) least = bits;
    }
    return ((double)least + (double)k * value_bits + scale_bits) / (double)m;
}

TEST(bits_of_topk_are_those_of_its_format)
{
    static const char *const keeps[] = {"0.0003", "0.001", "0.015625", "0.05", "0.3", "1"};
    static const struct {
        const char *name;
        double bits, scale;
    } values[] = {{"2bit", 2, 0}, {"int8", 8, 32}, {"f32", 32, 0}};
    static dl_config config;
    const dl_plan_codec *topk = dl_plan_codec_find("topk");
    for (size_t i = 0; i < sizeof keeps / sizeof keeps[0]; i++)
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            const double want = topk_bits(atof(keeps[i]), values[j].bits, values[j].scale);
            dl_config_init(&config);
            CHECK_OK(dl_config_set(&config, "server.diloco.codec_keep", keeps[i], "test"));
            CHECK_OK(dl_config_set(&config, "server.diloco.codec_values", values[j].name, "test"));
            CHECK_NEAR(want, topk->bits_with(&config), 1.0 / 4096); /* no zero after the last */
        }
    CHECK_NEAR(10.0 / 64, topk->bits, 0);
}

TEST(links_are_read_in_words)
{
    dl_plan_link l;
    CHECK_OK(dl_plan_link_parse(&l, "--link", "50mbit,100ms"));
    CHECK_NEAR(50e6, l.up_bps, 1e-6);
    CHECK_NEAR(50e6, l.down_bps, 1e-6);
    CHECK_NEAR(0.1, l.latency_s, 1e-12);
    CHECK_OK(dl_plan_link_parse(&l, "--link", "1.5gbit"));
    CHECK_NEAR(1.5e9, l.up_bps, 1);
    CHECK_NEAR(0, l.latency_s, 0);
    CHECK_OK(dl_plan_link_parse(&l, "--link", "10mbit/50mbit"));
    CHECK_NEAR(50e6, l.down_bps, 1e-6);
    static const char *const wrong[] = {"", "50", "0mbit", "50mbit,1%", "100ms"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_STATUS(DILOCO_EINVAL, dl_plan_link_parse(&l, "--link", wrong[i]));
    CHECK_CONTAINS("50mbit,100ms", diloco_error_text());
}

TEST_MAIN(bits_of_topk_are_those_of_its_format, forecasts_equal_those_of_the_independent_program,
          volumes_are_those_of_the_protocol,
          the_exchange_that_moves_least_depends_on_replicas_and_bits,
          blocking_exchanges_take_the_time_of_their_bytes,
          an_overlap_of_a_whole_round_leaves_the_busier_direction,
          prices_count_bytes_requests_and_machine_hours,
          a_forecast_of_a_long_run_extends_its_first_rounds,
          every_method_has_a_codec_and_comes_with_its_presets_values, links_are_read_in_words)
