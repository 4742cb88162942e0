/* participants_test.c - P11.4: in a run with keys a status believes what replicas believe. */
#include "inspect/participants.h"
#include "inspect/run_status.h"
#include "toy_keys.h"

#if DL_CRYPTO

#include "exchange/generations.h"

/* A run that r0 has created and r1 has joined; r2 has not begun. */
typedef struct world {
    dl_reader reader;
    dl_store *store; /* mem:// */
    dl_status_book *book;
    dl_generation r1;
} world;

static void make_world(world *w, const char *name, const char *policy)
{
    toy all[CREW];
    char url[64];
    memset(w, 0, sizeof *w);
    snprintf(url, sizeof url, "mem://%s-%s", name, policy);
    crew_of(all, url, policy);
    create(&all[0]);
    CHECK_OK(dl_reader_open(&w->reader, url));
    CHECK_OK(dl_store_open(&w->store, url, false));
    CHECK_OK(dl_status_book_create(&w->book, &w->reader));
    dl_signer *signer = signer_of("r1");
    CHECK_OK(dl_run_claim_generation(&w->r1, w->store, "r1", &w->reader.file,
                                     &w->reader.file.config, signer));
    dl_signer_close(signer);
}

static void end_world(world *w)
{
    dl_status_book_destroy(w->book);
    dl_store_close(w->store);
    dl_reader_close(&w->reader);
}

static const diloco_replica_status *find(const diloco_run_status *s, const char *name)
{
    for (size_t i = 0; i < s->n_replicas; i++)
        if (!strcmp(s->replicas[i]->replica, name)) return s->replicas[i];
    return NULL;
}

/* Returns what a look sees of r1. */
static const diloco_replica_status *look(world *w)
{
    CHECK_OK(dl_status_book_look(w->book, &w->reader, -1));
    const diloco_replica_status *r1 = find(dl_status_book_run(w->book), "r1");
    CHECK(r1);
    return r1;
}

static void put_text(world *w, const char *key, const char *text)
{
    CHECK_OK(dl_store_put(w->store, key, text, strlen(text), DL_NEVER));
}

/* r1's heartbeat of long ago, signed by the key of that name. */
static void beat(world *w, const char *by, uint64_t n, const char *key)
{
    put_signed(w->store, &w->reader.file, by, &dl_heartbeat_alive, &w->r1, n, 1, key);
}

static const char *const rosters[] = {"open", "closed"};

TEST(p11_4_heartbeat_that_its_key_has_not_signed_shows_no_replica)
{
    for (int k = 0; k < 2; k++) {
        world w;
        make_world(&w, "unsigned", rosters[k]);
        CHECK(!look(&w)->seen);
        put_text(&w, "hb/r1.0000", "{\"beat\":1,\"step\":9,\"time\":1}");
        CHECK(!look(&w)->seen);
        put_text(&w, "hb/r1.0000", "{\"beat\":2,\"step\":9,\"time\":1}");
        CHECK(!look(&w)->alive && !look(&w)->seen && look(&w)->step == 0);
        beat(&w, "r2", 3, "hb/r1.0000");
        CHECK(!look(&w)->alive && !look(&w)->seen);
        beat(&w, "r1", 3, "hb/r1.0000");
        CHECK(look(&w)->seen && look(&w)->step == 3);
        end_world(&w);
    }
}

/* A page may watch a run for hours before a replica is started again. */
TEST(a_restarted_replica_is_alive_at_the_first_look_if_its_heartbeat_is_new)
{
    static dl_participants p;
    static diloco_replica_status replicas[DL_PARTICIPANTS_MAX];
    for (int newly = 0; newly < 2; newly++) {
        world w;
        make_world(&w, newly ? "restart" : "old-restart", "open");
        p = (dl_participants){.n = 0};
        CHECK_OK(dl_participants_create(&p, replicas, &w.reader));
        beat(&w, "r1", 5, "hb/r1.0000");
        CHECK_OK(dl_participants_look(&p));
        for (size_t i = 0; i < p.n; i++)
            p.rows[i].began -= 3600 * DL_SECOND;
        w.r1.number = 1;
        put_signed(w.store, &w.reader.file, "r1", &dl_heartbeat_alive, &w.r1, 0,
                   newly ? dl_clock_wall() : 1, "hb/r1.0001");
        CHECK_OK(dl_participants_look(&p));
        dl_participants_judge_by_age(&p, 60);
        const size_t r1 = dl_participants_row(&p, "r1");
        CHECK_INT(1, replicas[r1].generation);
        CHECK(replicas[r1].alive == (newly == 1));
        dl_participants_destroy(&p);
        end_world(&w);
    }
}

/* Anyone may write an old heartbeat again. */
TEST(p11_4_only_a_higher_number_shows_that_a_replica_is_alive)
{
    for (int k = 0; k < 2; k++) {
        world w;
        make_world(&w, "number", rosters[k]);
        beat(&w, "r1", 5, "hb/r1.0000");
        CHECK(look(&w)->seen && !look(&w)->alive);
        beat(&w, "r1", 4, "hb/r1.0000");
        CHECK(!look(&w)->alive && look(&w)->step == 5);
        put_text(&w, "hb/r1.0000", "junk");
        CHECK(!look(&w)->alive);
        beat(&w, "r1", 6, "hb/r1.0000");
        CHECK(look(&w)->alive && look(&w)->step == 6);
        put_text(&w, "hb/r1.0000", "junk");
        CHECK(look(&w)->alive); /* for as long as without a new one */
        end_world(&w);
    }
}

TEST(p11_4_forged_generation_does_not_replace_a_replica)
{
    for (int k = 0; k < 2; k++) {
        world w;
        make_world(&w, "generation", rosters[k]);
        beat(&w, "r1", 5, "hb/r1.0000");
        put_text(&w, "gen/r1.9999999", "junk");
        put_text(&w, "hb/r1.9999999", "{\"beat\":1,\"time\":1}");
        beat(&w, "r1", 9, "hb/r1.0007"); /* a copy */
        CHECK(look(&w)->seen && look(&w)->generation == 0);
        beat(&w, "r1", 6, "hb/r1.0000");
        CHECK(look(&w)->alive);
        w.r1.number = 8; /* its own; between forged ones it is drawn sooner or later */
        beat(&w, "r1", 0, "hb/r1.0008");
        for (int n = 0; look(&w)->generation != 8; n++)
            CHECK(n < 10000);
        CHECK(look(&w)->seen && !look(&w)->alive);
        end_world(&w);
    }
}

TEST(p11_4_only_an_end_of_its_key_ends_a_replica)
{
    for (int k = 0; k < 2; k++) {
        world w;
        make_world(&w, "end", rosters[k]);
        beat(&w, "r1", 5, "hb/r1.0000");
        put_text(&w, "end/r1.0000", "{}");
        CHECK(!look(&w)->ended);
        put_signed(w.store, &w.reader.file, "r2", &dl_heartbeat_ended, &w.r1, 0, 1, "end/r1.0000");
        CHECK(!look(&w)->ended);
        put_signed(w.store, &w.reader.file, "r1", &dl_heartbeat_ended, &w.r1, 0, 1, "end/r1.0000");
        CHECK(look(&w)->ended);
        end_world(&w);
    }
}

TEST(host_of_a_generation_that_its_key_has_not_signed_is_not_shown)
{
    for (int k = 0; k < 2; k++) {
        world w;
        make_world(&w, "host", rosters[k]);
        CHECK(look(&w)->host[0]);
        w.r1.number = 1;
        beat(&w, "r1", 5, "hb/r1.0001");
        put_text(&w, "gen/r1.0001", "{\"host\":\"forged\"}");
        CHECK_STR("", look(&w)->host);
        end_world(&w);
    }
}

TEST(name_that_a_closed_list_does_not_have_gets_no_row)
{
    world w;
    make_world(&w, "unlisted", "closed");
    put_text(&w, "gen/zz.0000", "{}");
    put_text(&w, "hb/zz.0000", "{\"beat\":1}");
    look(&w);
    CHECK(!find(dl_status_book_run(w.book), "zz"));
    CHECK_INT(0, dl_status_book_run(w.book)->n_left_out);
    end_world(&w);
}

TEST_MAIN(p11_4_heartbeat_that_its_key_has_not_signed_shows_no_replica,
          a_restarted_replica_is_alive_at_the_first_look_if_its_heartbeat_is_new,
          p11_4_only_a_higher_number_shows_that_a_replica_is_alive,
          p11_4_forged_generation_does_not_replace_a_replica,
          p11_4_only_an_end_of_its_key_ends_a_replica,
          host_of_a_generation_that_its_key_has_not_signed_is_not_shown,
          name_that_a_closed_list_does_not_have_gets_no_row)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
