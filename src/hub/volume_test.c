/* volume_test.c - what a run moves through a hub is what P19 says, HTTP included. */
#include "volume.h"

#include "hub/hub.h"

static void check_through_hub(dl_way way)
{
    dl_hub *hub;
    char url[300];
    const dl_hub_options options = {.dir = scratch_path(dl_way_names[way]),
                                    .listen = "127.0.0.1:0"};
    CHECK_OK(dl_hub_start(&hub, &options));
    snprintf(url, sizeof url, "%s/run", dl_hub_url(hub));
    check_volume(url, way, "f32");
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
}

TEST(p19_what_everybody_moves_through_a_hub_is_what_the_formula_says)
{
    check_through_hub(DL_WAY_ALLGATHER);
}

TEST(p19_what_a_leader_saves_is_what_the_formula_says)
{
    check_through_hub(DL_WAY_LEADER);
}

TEST_MAIN(p19_what_everybody_moves_through_a_hub_is_what_the_formula_says,
          p19_what_a_leader_saves_is_what_the_formula_says)
