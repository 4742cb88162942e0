/* own_names_test.c - the names that a closed roster gives to one key, among forged objects. */
#include "toy_run.h"

#include <diloco/inspect.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#if DL_CRYPTO

#include "base/signature.h"

static const char *key_of(const char *file)
{
    const char *path = scratch_path(file);
    const diloco_status status = dl_signer_make(path);
    CHECK(!status || status == DILOCO_EEXIST);
    return path;
}

/* r0 and r1 of our key, r2 of another's. */
static const char *members_file(void)
{
    char text[1024] = "", key[DL_PUBLIC_TEXT];
    dl_signer *signer;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dl_signer_open(&signer, key_of(i < 2 ? "ours.pem" : "theirs.pem")));
        dl_public_text(key, dl_signer_public(signer));
        dl_signer_close(signer);
        snprintf(text + strlen(text), sizeof text - strlen(text), "r%d %s\n", i, key);
    }
    return scratch_write("members", text, strlen(text));
}

static void put_junk(const char *url, const char *key)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_create(store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    dl_store_close(store);
}

/* "r0 begun beats, r1" */
static diloco_status note(void *user, const char *replica, bool begun, bool beats)
{
    char *text = user;
    snprintf(text + strlen(text), 64, "%s%s%s%s", *text ? ", " : "", replica, begun ? " begun" : "",
             beats ? " beats" : "");
    return DILOCO_OK;
}

static void check_names(const char *expected, const char *url, bool watch)
{
    char text[256] = "";
    CHECK_OK(diloco_own_names(url, key_of("ours.pem"), watch, note, text));
    CHECK_STR(expected, text);
}

static toy r0_of(const char *roster, const char *store, const char *patience)
{
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.roster", roster);
    toy_set(&t, "run.key", key_of("ours.pem"));
    toy_set(&t, "run.heartbeat", "0.05");
    toy_set(&t, "run.patience", patience);
    if (!strcmp(roster, "closed")) toy_set(&t, "run.members", members_file());
    return t;
}

TEST(own_names_have_begun_where_the_key_has_signed_it_and_beat_whatever_end_says)
{
    const char *url = "mem://own_names";
    toy t = r0_of("closed", url, "240"); /* the first new heartbeat ends a watch */
    toy_keep(url);
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    put_junk(url, "gen/r1.0000");
    put_junk(url, "gen/r0.0007");
    check_names("r0, r1", url, false);
    check_names("r0, r1", url, true);
    CHECK_OK(diloco_run_join(t.run));
    put_junk(url, "end/r0.0000");
    check_names("r0 begun, r1", url, false);
    check_names("r0 begun beats, r1", url, true);
    toy_close(&t);
}

TEST(own_name_without_a_process_has_begun_and_does_not_beat)
{
    const char *url = "mem://own_ended";
    toy t = r0_of("closed", url, "1");
    toy_keep(url);
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_OK(diloco_run_join(t.run));
    put_junk(url, "end/r0.0000");
    toy_close(&t);
    check_names("r0 begun, r1", url, true);
}

/* A process without the key changes the heartbeat of a name again and again. */
static void *forge(void *stop_it)
{
    dl_store *store;
    char text[64];
    CHECK_OK(dl_store_open(&store, "mem://own_forged", false));
    for (int i = 0; !atomic_load((atomic_bool *)stop_it); i++) {
        snprintf(text, sizeof text, "{\"replica\":\"r0\",\"beat\":%d}", i);
        CHECK_OK(dl_store_put(store, "hb/r0.0000", text, strlen(text), DL_NEVER));
        usleep(10000);
    }
    dl_store_close(store);
    return NULL;
}

TEST(own_name_whose_heartbeat_another_writer_changes_does_not_beat)
{
    const char *url = "mem://own_forged";
    pthread_t thread;
    atomic_bool stop_it = false;
    toy t = r0_of("closed", url, "1");
    toy_keep(url);
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_OK(diloco_run_join(t.run));
    toy_close(&t);
    CHECK_INT(0, pthread_create(&thread, NULL, forge, &stop_it));
    check_names("r0 begun, r1", url, true);
    atomic_store(&stop_it, true);
    pthread_join(thread, NULL);
}

static diloco_status stop(void *user, const char *replica, bool begun, bool beats)
{
    (void)replica, (void)begun, (void)beats;
    ++*(int *)user;
    return DILOCO_ECLOSED;
}

TEST(own_names_are_refused_by_an_open_roster_and_the_walk_stops_on_request)
{
    int n = 0;
    toy t = r0_of("closed", "mem://listed", "1");
    toy_keep("mem://listed");
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_STATUS(DILOCO_ECLOSED,
                 diloco_own_names("mem://listed", key_of("ours.pem"), false, stop, &n));
    CHECK_INT(1, n);
    toy_close(&t);
    t = r0_of("open", "mem://unlisted", "1");
    toy_keep("mem://unlisted");
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_STATUS(DILOCO_EREFUSED,
                 diloco_own_names("mem://unlisted", key_of("ours.pem"), false, stop, &n));
    CHECK_CONTAINS("open", diloco_error_text());
    toy_close(&t);
}

TEST_MAIN(own_names_have_begun_where_the_key_has_signed_it_and_beat_whatever_end_says,
          own_name_without_a_process_has_begun_and_does_not_beat,
          own_name_whose_heartbeat_another_writer_changes_does_not_beat,
          own_names_are_refused_by_an_open_roster_and_the_walk_stops_on_request)

#else

TEST(own_names_need_keys)
{
    CHECK(!DL_CRYPTO);
}

TEST_MAIN(own_names_need_keys)

#endif
