/* watch_signed_test.c - P11.2, P11.4: in a run with keys a replica is as alive as what its key has
 * signed, however many names others create. */
#include "base/clock.h"
#include "exchange/exec_parts.h"
#include "exchange/generations.h"
#include "log/signed_beat.h"
#include "run/open.h"

#include "check.h"
#include "scratch.h"

#if DL_CRYPTO

enum { CREW = 3, N = 4, LISTED_MAX = 1024 };

typedef struct world {
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_store *store;
    float w[N];
    diloco_tensor tensor;
    dl_signer *signers[CREW];
    dl_generation generations[CREW];
    dl_exec *exec;            /* r0's */
    dl_watch_request watched; /* of the next look */
    dl_reply reply;
} world;

/* The kinds of runs. `listed` names more than the crew are in a closed list, before the crew. */
typedef struct kind {
    const char *roster;
    bool async;
    int listed;
} kind;
static const kind kinds[] = {{"closed", false, 0},
                             {"open", false, 0},
                             {"invited", false, 0},
                             {"closed", true, 0},
                             {"open", true, 0}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static void set(world *w, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&w->config, name, value, "test"));
}

/* The names a0000 and so on are the first in any listing. */
static const char *members_file(const world *w, int listed)
{
    static char text[LISTED_MAX * (DL_PUBLIC_TEXT + 8)];
    char key[DL_PUBLIC_TEXT];
    size_t at = 0;
    for (int i = -listed; i < CREW; i++) {
        dl_public_text(key, dl_signer_public(w->signers[i < 0 ? 0 : i]));
        at += (size_t)(i < 0 ? snprintf(text + at, sizeof text - at, "a%04d %s\n", -i, key)
                             : snprintf(text + at, sizeof text - at, "r%d %s\n", i, key));
        CHECK(at < sizeof text);
    }
    return scratch_write("members", text, at);
}

/* The entry waits for r0, r1 and r2. */
static void take_roster(world *w)
{
    dl_roster *roster = &dl_exec_state(w->exec)->control.roster;
    roster->n = CREW;
    for (int i = 0; i < CREW; i++)
        snprintf(roster->names[i], sizeof roster->names[i], "r%d", i);
}

/* An unused invitation by r0, the owner. */
static void take_invitation(world *w)
{
    static int n;
    char text[DL_INVITATION_TEXT], name[32];
    const uint64_t expires = (uint64_t)dl_clock_wall() + 3600;
    CHECK_OK(dl_invitation_make(text, w->file.id, expires, w->signers[0]));
    snprintf(name, sizeof name, "invitation%d", n++);
    CHECK_OK(dl_config_set(&w->file.config, "run.invitation",
                           scratch_write(name, text, strlen(text)), "test"));
}

/* A run of r0, r1 and r2, of which each has claimed a generation. */
static void make_world(world *w, const char *url, const kind *of)
{
    char name[16];
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    for (int i = 0; i < CREW; i++)
        CHECK_OK(dl_signer_generate(&w->signers[i]));
    set(w, "run.store", url);
    set(w, "run.roster", of->roster);
    if (!strcmp(of->roster, "closed")) set(w, "run.members", members_file(w, of->listed));
    if (of->async) set(w, "server.diloco.schedule", "async");
    w->tensor = (diloco_tensor){.name = "w", .data = w->w, .n_dims = 1, .shape = {N}};
    const dl_run_creation what = {.config = &w->config,
                                  .tensors = &w->tensor,
                                  .n_tensors = 1,
                                  .data_digest = "",
                                  .signer = w->signers[0]};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &w->digest, w->store, &what));
    for (int i = 0; i < CREW; i++) {
        snprintf(name, sizeof name, "r%d", i);
        if (i > 0 && !strcmp(of->roster, "invited")) take_invitation(w);
        CHECK_OK(dl_run_claim_generation(&w->generations[i], w->store, name, &w->file,
                                         &w->file.config, w->signers[i]));
    }
    const dl_exec_args args = {.store = w->store,
                               .run = &w->file,
                               .self = w->generations[0],
                               .signer = w->signers[0],
                               .tensors = &w->tensor,
                               .n_tensors = 1,
                               .max_members = CREW,
                               .n_copies = 2,
                               .n_fetchers = 1};
    CHECK_OK(dl_exec_create(&w->exec, &args));
    CHECK_OK(dl_snapshot_read_newest(dl_exec_state(w->exec), w->store, &w->file, w->digest,
                                     UINT64_MAX, NULL, DL_NEVER));
    take_roster(w);
}

static void end_world(world *w)
{
    dl_exec_destroy(w->exec);
    for (int i = 0; i < CREW; i++)
        dl_signer_close(w->signers[i]);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

static const char *url_of(const char *name, size_t i)
{
    static char url[64];
    snprintf(url, sizeof url, "mem://%s%zu", name, i);
    return url;
}

/* Writes the heartbeat or the end of a generation, with that member's signature, under a name. */
static void put_signed(world *w, int by, const dl_heartbeat_kind *sign, const dl_generation *of,
                       uint64_t beat, const char *key)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer writer;
    dl_heartbeat_begin(&writer, &text, sign, w->signers[by], w->file.id, of);
    dl_json_u64(&writer.json, "beat", beat);
    dl_json_f64(&writer.json, "steps_per_s", 2.5);
    CHECK_OK(dl_heartbeat_end(&writer));
    CHECK_OK(dl_store_put(w->store, key, text.data, text.len, DL_NEVER));
}

static void beat(world *w, int i, uint64_t n)
{
    dl_key key;
    dl_key_heartbeat(key, &w->generations[i]);
    put_signed(w, i, &dl_heartbeat_alive, &w->generations[i], n, key);
}

/* Returns what a look sees of r<i>, or NULL. */
static const dl_seen *look(world *w, int i)
{
    const dl_request watch = {.kind = DL_REQUEST_WATCH, .watch = w->watched};
    w->reply = (dl_reply){.status = DILOCO_OK};
    dl_exec_do(w->exec, &watch, &w->reply, DL_NEVER);
    CHECK_OK(w->reply.status);
    for (size_t k = 0; k < w->reply.watch.n_seen; k++)
        if (!strcmp(w->reply.watch.seen[k].generation.replica, w->generations[i].replica))
            return &w->reply.watch.seen[k];
    return NULL;
}

static void put_text(world *w, const char *key, const char *text)
{
    CHECK_OK(dl_store_put(w->store, key, text, strlen(text), DL_NEVER));
}

static void check_heartbeats(const char *url, const kind *of)
{
    world w;
    char big[8192];
    make_world(&w, url, of);
    CHECK(look(&w, 1) == NULL);
    put_text(&w, "hb/r1.0000", "{\"replica\":\"r1\",\"generation\":0,\"beat\":7}");
    CHECK(look(&w, 1) == NULL);
    memset(big, ' ', sizeof big);
    CHECK_OK(dl_store_put(w.store, "hb/r1.0000", big, sizeof big, DL_NEVER));
    CHECK(look(&w, 1) == NULL);
    put_signed(&w, 2, &dl_heartbeat_alive, &w.generations[1], 7, "hb/r1.0000"); /* r2's key */
    CHECK(look(&w, 1) == NULL);
    put_signed(&w, 1, &dl_heartbeat_ended, &w.generations[1], 7, "hb/r1.0000"); /* another kind */
    CHECK(look(&w, 1) == NULL);
    beat(&w, 1, 7);
    const dl_seen *seen = look(&w, 1);
    CHECK(seen && seen->generation.number == 0 && seen->beat == 8 && !seen->ended);
    put_signed(&w, 1, &dl_heartbeat_alive, &w.generations[1], 9, "hb/r1.0001"); /* a copy */
    seen = look(&w, 1);
    CHECK(seen && seen->generation.number == 0 && seen->beat == 8);
    put_text(&w, "hb/r1.0000", "junk"); /* no party can make it alive, but anyone can hide it */
    CHECK(look(&w, 1) == NULL);
    put_text(&w, "hb/zz.0000", "junk"); /* it is not named */
    CHECK(look(&w, 1) == NULL);
    CHECK_INT(0, w.reply.watch.n_seen);
    end_world(&w);
}

TEST(p11_only_a_heartbeat_of_its_key_shows_a_replica)
{
    for (size_t i = 0; i < N_KINDS; i++)
        check_heartbeats(url_of("signed-beats", i), &kinds[i]);
}

/* Names of later generations may be anyone's. */
static void check_newest(const char *url, const kind *of)
{
    world w;
    char key[32];
    make_world(&w, url, of);
    beat(&w, 1, 3);
    CHECK_INT(0, look(&w, 1)->generation.number);
    for (int g = 10; g < 300; g += 10) {
        snprintf(key, sizeof key, "hb/r1.%04d", g);
        put_text(&w, key, "junk");
    }
    put_text(&w, "hb/r1.9999999", "junk");
    CHECK_INT(0, look(&w, 1)->generation.number);
    w.generations[1].number = 1; /* the lowest name is read at each look */
    beat(&w, 1, 0);
    CHECK_INT(1, look(&w, 1)->generation.number);
    w.generations[1].number = 155; /* in the middle it is drawn sooner or later */
    beat(&w, 1, 0);
    int looks = 0;
    while (look(&w, 1)->generation.number != 155)
        CHECK(looks++ < 10000);
    CHECK_INT(155, look(&w, 1)->generation.number); /* and kept */
    end_world(&w);
}

TEST(p11_the_newest_generation_is_the_newest_that_has_signed_a_heartbeat)
{
    for (size_t i = 0; i < N_KINDS; i++)
        check_newest(url_of("signed-generations", i), &kinds[i]);
}

static void check_ends(const char *url, const kind *of)
{
    world w;
    make_world(&w, url, of);
    beat(&w, 1, 3);
    put_text(&w, "end/r1.0000", "{}");
    CHECK(!look(&w, 1)->ended);
    put_signed(&w, 1, &dl_heartbeat_alive, &w.generations[1], 7, "end/r1.0000");
    CHECK(!look(&w, 1)->ended);
    put_signed(&w, 1, &dl_heartbeat_ended, &w.generations[1], 0, "end/r1.0000");
    CHECK(look(&w, 1)->ended);
    put_text(&w, "hb/r1.0000", "junk"); /* a hidden heartbeat does not hide the end */
    CHECK(look(&w, 1) && look(&w, 1)->ended);
    CHECK(look(&w, 2) == NULL);
    end_world(&w);
}

TEST(p11_only_an_end_of_its_key_ends_a_generation)
{
    for (size_t i = 0; i < N_KINDS; i++)
        check_ends(url_of("signed-ends", i), &kinds[i]);
}

/* Anyone may create names in hb/, also those of listed members that have never run. */
TEST(p11_a_replica_of_the_roster_is_seen_among_more_names_than_rows)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        kind crowded = kinds[i];
        world w;
        char key[32];
        if (!strcmp(crowded.roster, "closed")) crowded.listed = 700;
        make_world(&w, url_of("signed-crowd", i), &crowded);
        for (int n = 1; n <= 700; n++) {
            snprintf(key, sizeof key, "hb/a%04d.0000", n);
            put_text(&w, key, "junk");
        }
        for (int member = 0; member < CREW; member++)
            beat(&w, member, 4);
        for (int look_n = 0; look_n < 2; look_n++)
            for (int member = 0; member < CREW; member++)
                CHECK(look(&w, member));
        end_world(&w);
    }
}

/* Members of a closed list that no entry waits for sign heartbeats, too. They take no row from
 * those of the roster, also if they had it first. */
TEST(p11_signed_heartbeats_of_further_members_take_no_row_of_the_roster)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        kind crowded = kinds[i];
        world w;
        dl_key key;
        dl_generation other = {.number = 0};
        if (strcmp(crowded.roster, "closed") != 0) continue;
        crowded.listed = 700;
        make_world(&w, url_of("signed-list", i), &crowded);
        for (int n = 1; n <= 700; n++) {
            snprintf(other.replica, sizeof other.replica, "a%04d", n);
            dl_key_heartbeat(key, &other);
            put_signed(&w, 0, &dl_heartbeat_alive, &other, 1, key);
        }
        CHECK(!look(&w, 2));
        for (int member = 0; member < CREW; member++)
            beat(&w, member, 4);
        for (int member = 0; member < CREW; member++)
            CHECK(look(&w, member));
        CHECK(w.reply.watch.n_seen > CREW); /* a few others are seen */
        end_world(&w);
    }
}

TEST(p11_an_async_replica_sees_the_speed_of_one_that_has_never_counted)
{
    world w;
    const kind async = {"open", true, 0}, rounds = {"open", false, 0};
    make_world(&w, "mem://signed-speed", &async);
    dl_exec_state(w.exec)->control.roster.n = 2;
    beat(&w, 2, 4);
    const dl_seen *seen = look(&w, 2);
    CHECK(seen && seen->steps_per_s == 2.5);
    end_world(&w);
    make_world(&w, "mem://signed-no-speed", &rounds);
    dl_exec_state(w.exec)->control.roster.n = 2;
    beat(&w, 2, 4);
    CHECK(!look(&w, 2)); /* no entry waits for it */
    end_world(&w);
}

/* Of three replicas that an entry waits for, r1 has contributed. */
static void check_present(const char *url, const kind *of)
{
    world w;
    const bool present[CREW] = {false, true, false};
    make_world(&w, url, of);
    for (int i = 1; i < CREW; i++)
        beat(&w, i, 4);
    CHECK(look(&w, 1) && look(&w, 2));
    w.watched =
        (dl_watch_request){.roster = &dl_exec_state(w.exec)->control.roster, .present = present};
    CHECK(!look(&w, 1));
    CHECK(look(&w, 2));
    end_world(&w);
}

TEST(p11_heartbeats_of_present_replicas_are_not_read)
{
    for (size_t i = 0; i < N_KINDS; i++)
        check_present(url_of("present", i), &kinds[i]);
}

TEST_MAIN(p11_only_a_heartbeat_of_its_key_shows_a_replica,
          p11_the_newest_generation_is_the_newest_that_has_signed_a_heartbeat,
          p11_only_an_end_of_its_key_ends_a_generation,
          p11_a_replica_of_the_roster_is_seen_among_more_names_than_rows,
          p11_signed_heartbeats_of_further_members_take_no_row_of_the_roster,
          p11_an_async_replica_sees_the_speed_of_one_that_has_never_counted,
          p11_heartbeats_of_present_replicas_are_not_read)

#else

TEST(a_build_without_openssl_has_no_keys_to_sign_heartbeats)
{
    dl_signer *signer;
    CHECK_STATUS(DILOCO_EREFUSED, dl_signer_generate(&signer));
}

TEST_MAIN(a_build_without_openssl_has_no_keys_to_sign_heartbeats)

#endif
