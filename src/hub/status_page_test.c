/* status_page_test.c - P11.4: /status.json believes signed heartbeats only, in a run with keys. */
#include "hub_fixture.h"
#include "toy_keys.h"

#if DL_CRYPTO

#include "exchange/generations.h"

/* A run in the hub's folder, of which r1 has begun a generation. */
typedef struct world {
    dl_store *store;
    dl_runfile file;
    dl_generation r1;
} world;

static void make_world(world *w)
{
    toy all[CREW];
    dl_hash digest;
    char path[400];
    snprintf(path, sizeof path, "%s/run", fixture.dir);
    crew_of(all, path, "open");
    create(&all[0]);
    w->store = store_of(path);
    read_run(&w->file, &digest, w->store);
    dl_signer *signer = signer_of("r1");
    CHECK_OK(dl_run_claim_generation(&w->r1, w->store, "r1", &w->file, &w->file.config, signer));
    dl_signer_close(signer);
    fixture_serve(PLAIN);
}

static void end_world(world *w)
{
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

/* Checks r1's state in the reply. It is the run's only replica. */
static void check_state(const char *state)
{
    char expected[64];
    snprintf(expected, sizeof expected, "\"replica\":\"r1\",\"generation\":0,\"state\":\"%s\"",
             state);
    CHECK_CONTAINS(expected, client_ask("GET /status.json?run=run HTTP/1.1\r\n"
                                        "Host: localhost\r\n\r\n"));
}

static void put_text(world *w, const char *key, const char *text)
{
    CHECK_OK(dl_store_put(w->store, key, text, strlen(text), DL_NEVER));
}

/* A heartbeat that is written now, and says that it was written at `time`. */
static void beat(world *w, const char *by, double time)
{
    put_signed(w->store, &w->file, by, &dl_heartbeat_alive, &w->r1, 5, time, "hb/r1.0000");
}

TEST(p11_4_heartbeat_in_the_status_of_a_hub_has_to_be_signed_and_new)
{
    world w;
    make_world(&w);
    check_state("not seen");
    put_text(&w, "hb/r1.0000", "{\"beat\":1}");
    check_state("not seen");
    beat(&w, "r2", dl_clock_wall());
    check_state("not seen");
    beat(&w, "r1", dl_clock_wall());
    check_state("alive");
    beat(&w, "r1", dl_clock_wall() + 30); /* its clock may differ */
    check_state("alive");
    beat(&w, "r1", dl_clock_wall() - 600); /* an old one, written again */
    check_state("silent");
    beat(&w, "r1", dl_clock_wall());
    put_text(&w, "hb/r1.9999999", "{\"beat\":1}");
    put_text(&w, "gen/r1.9999999", "{}");
    put_text(&w, "end/r1.0000", "{}");
    check_state("alive");
    end_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HUB_TEST(p11_4_heartbeat_in_the_status_of_a_hub_has_to_be_signed_and_new)};
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
