/* mute_member_test.c - a member with a key that keeps its heartbeat and contributes nothing, in
 * runs of keys. It has contributed to entry 0, so it is in the roster of the next. run.on_missing
 * decides what it costs the others (P10). */
#include "toy_run.h"

#if DL_CRYPTO

#include "toy_keys.h"

static atomic_int n_ended;     /* of r0 and r1 */
static atomic_bool waited_for; /* the mute member has beaten BEATS times, and entry 1 is open */
enum { MUTE = 2, BEATS = 20 };

/* run.deadline, in seconds. */
#define DEADLINE_S "0.05"

/* A crew whose r0 and r1 may commit. In each entry they wait DEADLINE_S for the mute member. */
static void mute_crew(toy *all, const char *url, const char *policy, const char *on_missing)
{
    crew_of(all, url, policy);
    toy_set_all(all, CREW, "run.on_missing", on_missing);
    /* A slow machine commits entries of one member, too. */
    if (!strcmp(on_missing, "commit_partial")) toy_set_all(all, CREW, "run.quorum", "0.1");
    toy_set_all(all, CREW, "run.deadline", DEADLINE_S);
    toy_set_all(all, CREW, "run.patience", "600"); /* it is never silent */
    if (!strcmp(policy, "closed")) toy_set_all(all, CREW, "run.committers", committers_file(2));
    create_and_invite(all, url, policy);
    atomic_store(&n_ended, 0);
    atomic_store(&waited_for, false);
}

static void *live_and_count(void *context)
{
    toy_live(context);
    atomic_fetch_add(&n_ended, 1);
    return NULL;
}

static void live(toy *all)
{
    for (int i = 0; i < CREW; i++)
        if (pthread_create(&all[i].thread, NULL, live_and_count, &all[i])) abort();
    for (int i = 0; i < CREW; i++)
        pthread_join(all[i].thread, NULL);
}

/* Its first step after entry 0 lasts until the others have ended. */
static double hold_to_the_end(toy *t, const diloco_run_info *now)
{
    while (now->entry > 0 && atomic_load(&n_ended) < MUTE)
        usleep(1000);
    return toy_step(t, now);
}

/* Waits until an object has had n versions. */
static void await_versions(dl_store *store, const char *key, int n)
{
    dl_buf last, next;
    dl_buf_init(&last, 1 << 16);
    dl_buf_init(&next, 1 << 16);
    while (n > 0) {
        dl_buf_clear(&next);
        const diloco_status status = dl_store_get(store, &next, key, DL_NEVER);
        if (status && status != DILOCO_ENOENT) abort();
        if (!status && (next.len != last.len || memcmp(next.data, last.data, next.len))) {
            dl_buf_clear(&last);
            if (dl_buf_add(&last, next.data, next.len)) abort();
            n--;
        }
        usleep(1000);
    }
    dl_buf_deinit(&last);
    dl_buf_deinit(&next);
}

/* Its first step after entry 0 lasts for BEATS of its heartbeats after both others have contributed
 * to entry 1. */
static double hold_for_a_while(toy *t, const diloco_run_info *now)
{
    dl_store *store = t->user;
    if (!now->entry || !store) return toy_step(t, now);
    t->user = NULL;
    await_versions(store, "c/0000000001/r0.0000", 1);
    await_versions(store, "c/0000000001/r1.0000", 1);
    await_versions(store, "hb/r2.0000", BEATS);
    dl_buf text;
    dl_buf_init(&text, 1 << 16);
    atomic_store(&waited_for,
                 dl_store_get(store, &text, "log/0000000001.json", DL_NEVER) == DILOCO_ENOENT);
    dl_buf_deinit(&text);
    return toy_step(t, now);
}

/* A number of a line of the record. */
static double number_of(const char *line, const char *name)
{
    char member[32];
    snprintf(member, sizeof member, "\"%s\":", name);
    const char *at = strstr(line, member);
    CHECK(at);
    return strtod(at + strlen(member), NULL);
}

/* Returns the number of commits that the mute member was missing in, by the lines of the record of
 * a replica. Each of them waited for one deadline, which no abort has doubled. The replica that
 * created the entry needed at least that long for it. */
static size_t deadlines_of(const toy *t)
{
    size_t n = 0;
    for (const char *at = t->record; (at = strstr(at, "\"event\":\"commit\"")); at++) {
        char *line = strndup(at, strcspn(at, "\n")), self[32];
        char *missing = strstr(line, "\"missing\":[");
        CHECK(missing);
        const bool is_late = memmem(missing, strcspn(missing, "]"), "\"r2\"", 4);
        snprintf(self, sizeof self, "\"committer\":\"%s.0000\"", t->name);
        if (is_late) {
            CHECK_NEAR(strtod(DEADLINE_S, NULL), number_of(line, "deadline_s"), 1e-6);
            const double took = number_of(line, "wait_s") + number_of(line, "exchange_s");
            CHECK(took >= strtod(DEADLINE_S, NULL) || !strstr(line, self));
        }
        n += is_late;
        free(line);
    }
    return n;
}

TEST(mute_member_costs_a_deadline_with_commit_partial)
{
    for (size_t p = 0; p < 3; p++) {
        toy all[CREW];
        char url[64];
        snprintf(url, sizeof url, "mem://mute-partial-%s", policies[p]);
        mute_crew(all, url, policies[p], "commit_partial");
        all[MUTE].step = hold_to_the_end;
        toy_keep_record(&all[0]);
        toy_keep_record(&all[1]);
        live(all);
        for (int i = 0; i < MUTE; i++) {
            TOY_OK(all[i]);
            CHECK(deadlines_of(&all[i]) >= 1);
            CHECK(!strstr(all[i].record, "\"event\":\"abort\""));
            free(all[i].record);
        }
        const diloco_verify_report got = verified(url);
        CHECK_INT(4, got.commits);
        CHECK_INT(0, got.aborts);
    }
}

TEST(mute_member_is_waited_for_with_wait)
{
    for (size_t p = 0; p < 3; p++) {
        toy all[CREW];
        char url[64];
        snprintf(url, sizeof url, "mem://mute-wait-%s", policies[p]);
        mute_crew(all, url, policies[p], "wait");
        dl_store *store = store_of(url);
        all[MUTE].step = hold_for_a_while;
        all[MUTE].user = store;
        live(all);
        for (int i = 0; i < CREW; i++)
            TOY_OK(all[i]);
        CHECK(atomic_load(&waited_for));
        CHECK_INT(4, verified(url).commits);
        dl_store_close(store);
    }
}

/* The run ends, but no entry commits while the member is mute. */
TEST(mute_member_costs_the_entries_with_abort)
{
    for (size_t p = 0; p < 3; p++) {
        toy all[CREW];
        char url[64];
        snprintf(url, sizeof url, "mem://mute-abort-%s", policies[p]);
        mute_crew(all, url, policies[p], "abort");
        all[MUTE].step = hold_to_the_end;
        live(all);
        TOY_OK(all[0]);
        TOY_OK(all[1]);
        const diloco_verify_report got = verified(url);
        CHECK_INT(1, got.commits);
        CHECK_INT(3, got.aborts);
    }
}

TEST_MAIN(mute_member_costs_a_deadline_with_commit_partial, mute_member_is_waited_for_with_wait,
          mute_member_costs_the_entries_with_abort)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
