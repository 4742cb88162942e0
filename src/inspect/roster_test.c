/* roster_test.c - runs whose members have keys: membership, signatures, and attacks by an
 * untrusted peer. The peer has a key of its own, or objects that others have signed. */
#include "base/clock.h"
#include "log/fields.h"
#include "log/keyring.h"
#include "run/open.h"
#include "state/state.h"
#include "toy_keys.h"

#if DL_CRYPTO

TEST(runs_of_keys_come_to_the_bits_of_a_run_of_trust)
{
    toy all[CREW];
    char url[64];
    toy_keep("mem://trusted");
    toy_crew(all, CREW, "mem://trusted", "none");
    toy_set_all(all, CREW, "run.on_missing", "wait");
    toy_live_all(all, CREW);
    const diloco_verify_report want = verified("mem://trusted");
    for (size_t p = 0; p < 3; p++) {
        snprintf(url, sizeof url, "mem://%s", policies[p]);
        crew_of(all, url, policies[p]);
        create_and_invite(all, url, policies[p]);
        toy_live_all(all, CREW);
        for (int i = 0; i < CREW; i++)
            TOY_OK(all[i]);
        const diloco_verify_report got = verified(url);
        CHECK_STR(want.digest, got.digest);
        CHECK_INT(0, got.voids);
    }
}

TEST(where_one_combines_for_all_his_sum_is_signed_too)
{
    toy all[CREW];
    crew_of(all, "mem://leader", "closed");
    toy_set_all(all, CREW, "server.diloco.exchange", "leader");
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++)
        TOY_OK(all[i]);
    CHECK_INT(0, verified("mem://leader").voids);
}

TEST(async_runs_of_keys_are_closed_by_committers_alone)
{
    toy all[CREW];
    crew_of(all, "mem://async", "open");
    toy_set_all(all, CREW, "server.diloco.schedule", "async");
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++)
        TOY_OK(all[i]);
    CHECK_INT(0, verified("mem://async").voids);
}

/* ---- membership ----------------------------------------------------------------------------- */

static void check_refused(toy *t, const char *part, const char *way_out)
{
    CHECK_STATUS(DILOCO_EREFUSED, toy_live(t));
    CHECK_CONTAINS(part, t->text);
    CHECK_CONTAINS(way_out, t->text);
}

static toy newcomer_of(const char *name, const char *url, const char *key)
{
    toy t = toy_of(name, url);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.key", key_of(key));
    return t;
}

TEST(a_member_that_a_closed_list_does_not_have_is_refused_by_name)
{
    toy all[CREW];
    char key[DL_PUBLIC_TEXT];
    crew_of(all, "mem://list", "closed");
    create(&all[0]);
    toy mallory = newcomer_of("r3", "mem://list", "mallory");
    check_refused(&mallory, "r3 with the key", "a new run is needed");
    public_of(key, "mallory");
    CHECK_CONTAINS(key, mallory.text);
    mallory = newcomer_of("r1", "mem://list", "mallory");
    check_refused(&mallory, "belongs to another key", "run.key");
}

TEST(a_name_belongs_to_the_key_that_it_began_with)
{
    toy all[CREW];
    crew_of(all, "mem://names", "open");
    toy_live_all(all, CREW);
    toy again = newcomer_of("r1", "mem://names", "r1");
    CHECK_OK(toy_live(&again));
    CHECK_INT(1, again.end.generation);
    toy mallory = newcomer_of("r1", "mem://names", "mallory");
    check_refused(&mallory, "the name r1 belongs to another key", "another name");
}

TEST(an_invitation_lets_in_one_replica_once_and_not_for_ever)
{
    toy all[CREW], newcomer, second;
    crew_of(all, "mem://guests", "invited");
    create(&all[0]);
    newcomer = newcomer_of("r7", "mem://guests", "guest");
    check_refused(&newcomer, "by invitation only", "diloco invite");

    const char *good = invite("mem://guests", "r0", 3600);
    newcomer = newcomer_of("r7", "mem://guests", "guest");
    toy_set(&newcomer, "run.invitation", good);
    CHECK_OK(toy_open(&newcomer));
    CHECK_OK(diloco_run_join(newcomer.run));
    toy_close(&newcomer);
    second = newcomer_of("r8", "mem://guests", "second");
    toy_set(&second, "run.invitation", good);
    check_refused(&second, "used already", "another");
    second = newcomer_of("r8", "mem://guests", "guest"); /* his key, another name */
    toy_set(&second, "run.invitation", good);
    check_refused(&second, "used already", "another");

    second = newcomer_of("r8", "mem://guests", "second");
    toy_set(&second, "run.invitation", invite("mem://guests", "r0", -1));
    check_refused(&second, "expired", "another");
    second = newcomer_of("r8", "mem://guests", "second");
    toy_set(&second, "run.invitation", invite("mem://guests", "mallory", 3600));
    check_refused(&second, "another run", "invitation");
    crew_of(all, "mem://guests2", "invited");
    create(&all[0]);
    second = newcomer_of("r8", "mem://guests", "second");
    toy_set(&second, "run.invitation", invite("mem://guests2", "r0", 3600));
    check_refused(&second, "another run", "invitation");

    newcomer =
        newcomer_of("r7", "mem://guests", "guest"); /* an admitted replica needs it no more */
    CHECK_OK(toy_open(&newcomer));
    CHECK_OK(diloco_run_join(newcomer.run));
    toy_close(&newcomer);
}

/* A party that can write to the store puts its own run there: one that asks no replica for a key,
 * or that trusts the guest's. */
TEST(an_invitation_is_to_one_run_whatever_the_store_shows)
{
    toy owner, newcomer;
    char line[DL_PUBLIC_TEXT + 1];
    const char *urls[] = {"mem://theirs", "mem://trusting"};
    toy_keep("mem://ours");
    owner = newcomer_of("r0", "mem://ours", "r0");
    toy_set(&owner, "run.roster", "invited");
    create(&owner);
    const char *good = invite("mem://ours", "r0", 3600);
    public_of(line, "guest");
    strcat(line, "\n");
    const char *committers = scratch_write("guests", line, strlen(line));
    for (int i = 0; i < 2; i++) {
        toy_keep(urls[i]);
        toy mallory = newcomer_of("r0", urls[i], "mallory");
        if (i) toy_set(&mallory, "run.roster", "invited");
        if (i) toy_set(&mallory, "run.committers", committers);
        create(&mallory);
        newcomer = newcomer_of("r7", urls[i], "guest");
        toy_set(&newcomer, "run.invitation", good);
        check_refused(&newcomer, "another run", "owner");
    }
    newcomer = newcomer_of("r7", "mem://theirs", "guest");
    toy_set(&newcomer, "run.invitation", "/nonexistent");
    CHECK_STATUS(DILOCO_ENOENT, toy_live(&newcomer)); /* not ignored */
}

TEST(a_list_of_committers_names_one_that_can_close_entries)
{
    toy t;
    char text[DL_PUBLIC_TEXT + 1];
    toy_keep("mem://nobody");
    t = newcomer_of("r0", "mem://nobody", "r0");
    toy_set(&t, "run.roster", "invited");
    toy_set(&t, "run.committers", scratch_write("none", "# nobody\n", 9));
    CHECK_STATUS(DILOCO_EINVAL, toy_live(&t));
    CHECK_CONTAINS("lists no committer", t.text);
    public_of(text, "mallory");
    t = newcomer_of("r0", "mem://nobody", "r0");
    toy_set(&t, "run.roster", "closed");
    toy_set(&t, "run.members", members_file(2));
    toy_set(&t, "run.committers", scratch_write("other", text, strlen(text)));
    CHECK_STATUS(DILOCO_EINVAL, toy_live(&t));
    CHECK_CONTAINS("no key of a member", t.text);
}

/* A hostile program that does not look at the clock. */
static void begin_as(dl_store *store, const dl_runfile *run, const char *name, const char *key,
                     const char *file)
{
    dl_buf text;
    dl_json j;
    size_t start;
    dl_key place;
    dl_invitation i;
    char invitation[DL_INVITATION_TEXT] = "";
    dl_generation generation = {.number = 0};
    dl_signer *signer = signer_of(key);
    const dl_statement what = {.kind = "life", .run = run->id, .generation = &generation};
    FILE *f = fopen(file, "r");
    CHECK(f && fgets(invitation, sizeof invitation, f));
    fclose(f);
    CHECK_OK(dl_invitation_read(&i, invitation, strlen(invitation)));
    snprintf(generation.replica, sizeof generation.replica, "%s", name);
    dl_buf_init(&text, 4096);
    dl_sealed_begin(&j, &start, &text, "diloco-life");
    dl_json_str(&j, "run", run->id);
    dl_json_str(&j, "replica", name);
    dl_json_u64(&j, "generation", 0);
    dl_json_str(&j, "invitation", i.id);
    CHECK_OK(dl_sealed_end(&j, start));
    CHECK_OK(dl_sealed_sign(&text, start, signer, &what));
    dl_key_gen(place, &generation);
    CHECK_OK(dl_store_create(store, place, &(dl_span){text.data, text.len}, 1, NULL, DL_NEVER));
    CHECK_OK(dl_members_use_invitation(store, run, signer, name, invitation, DL_NEVER));
    dl_buf_deinit(&text);
    dl_signer_close(signer);
}

static void check_key(dl_store *store, const dl_runfile *run, const char *as, const char *name,
                      const char *refusal)
{
    dl_keyring *ring;
    const dl_public *key;
    const char *why;
    dl_signer *signer = as ? signer_of(as) : NULL;
    CHECK_OK(dl_keyring_create(&ring, store, run, signer));
    CHECK_OK(dl_keyring_find(&key, &why, ring, name, DL_NEVER));
    CHECK((key == NULL) == (refusal != NULL));
    if (refusal) CHECK_CONTAINS(refusal, why);
    dl_keyring_destroy(ring);
    dl_signer_close(signer);
}

TEST(a_committer_admits_by_its_own_clock_and_stays_with_it)
{
    toy all[CREW];
    dl_runfile run;
    dl_hash digest;
    crew_of(all, "mem://clock", "invited");
    create(&all[0]);
    dl_store *store = store_of("mem://clock");
    read_run(&run, &digest, store);
    begin_as(store, &run, "late", "guest", invite("mem://clock", "r0", -1));
    check_key(store, &run, "r0", "late", "had expired");
    begin_as(store, &run, "early", "guest", invite("mem://clock", "r0", 60));
    check_key(store, &run, "r0", "early", NULL);
    dl_buf admission;
    dl_buf_init(&admission, 4096);
    CHECK_OK(dl_store_get(store, &admission, "admit/early", DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &admission, "admit/late", DL_NEVER));
    dl_buf_deinit(&admission);
    check_key(store, &run, NULL, "early", NULL);
    check_key(store, &run, "r0", "nobody", "");
    begin_as(store, &run, "other", "guest", invite("mem://clock", "mallory", 60));
    check_key(store, &run, "r0", "other", "another replica used its invitation");
    dl_runfile_deinit(&run);
    dl_store_close(store);
}

static void put_text(dl_store *store, const char *key, const char *text)
{
    const dl_span span = {text, strlen(text)};
    CHECK_OK(dl_store_create(store, key, &span, 1, NULL, DL_NEVER));
}

TEST(a_committer_meets_a_new_replica_before_its_first_contribution)
{
    toy all[CREW];
    dl_runfile run;
    dl_hash digest;
    dl_keyring *ring;
    dl_buf admission;
    crew_of(all, "mem://meet", "invited");
    create(&all[0]);
    dl_store *store = store_of("mem://meet");
    dl_signer *signer = signer_of("r0");
    read_run(&run, &digest, store);
    for (int i = 0; i < 100; i++) { /* any writer can put that there */
        char key[64];
        snprintf(key, sizeof key, "gen/a%d.0000", i);
        put_text(store, key, "junk");
    }
    begin_as(store, &run, "guest", "guest", invite("mem://meet", "r0", 60));
    begin_as(store, &run, "late", "late", invite("mem://meet", "r0", -1));
    CHECK(dl_members_admits(&run, signer));
    CHECK_OK(dl_keyring_create(&ring, store, &run, signer));
    CHECK_OK(dl_keyring_meet(ring, DL_NEVER));
    CHECK_OK(dl_keyring_meet(ring, DL_NEVER)); /* the first were all junk */
    dl_buf_init(&admission, 4096);
    CHECK_OK(dl_store_get(store, &admission, "admit/guest", DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &admission, "admit/late", DL_NEVER));
    dl_keyring_destroy(ring);
    dl_signer_close(signer);

    toy late = newcomer_of("late", "mem://meet", "late"); /* it would train for nothing */
    check_refused(&late, "expired before a committer read it", "another name");
    dl_buf_deinit(&admission);
    dl_runfile_deinit(&run);
    dl_store_close(store);
}

TEST(an_invalid_admission_keeps_no_replica_out)
{
    toy all[CREW];
    dl_runfile run;
    dl_hash digest;
    crew_of(all, "mem://junk", "invited");
    create(&all[0]);
    dl_store *store = store_of("mem://junk");
    read_run(&run, &digest, store);
    put_text(store, "admit/guest", "junk");
    begin_as(store, &run, "guest", "guest", invite("mem://junk", "r0", 60));
    check_key(store, &run, "r0", "guest", NULL);
    put_text(store, "admit/late", "junk");
    begin_as(store, &run, "late", "late", invite("mem://junk", "r0", -1));
    check_key(store, &run, "r0", "late", "had expired");
    dl_runfile_deinit(&run);
    dl_store_close(store);
}

/* ---- objects of an untrusted peer -------------------------------------------------------------
 */

enum { TOO_LONG = 0, WRONG_PREV = 1, CROWDED = 2 }; /* as a version */

/* Adds more names to the roster than an entry of the run may have. */
static void crowd(dl_entry *e)
{
    char name[16];
    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "n%d", i);
        CHECK(dl_roster_add(&e->roster, name, 0));
    }
}

/* An abort that fits the log in everything but perhaps its format's version, its prev or its
 * roster, as log/<1>. */
static void put_abort(dl_store *store, const char *signed_by, char version)
{
    dl_buf text;
    dl_entry e;
    dl_runfile run;
    dl_hash digest;
    read_run(&run, &digest, store);
    const dl_outer *outer = dl_outer_find(run.config.outer_optimizer);
    CHECK_OK(dl_entry_init(&e, 128));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_OK(dl_store_get(store, &text, "log/0000000000.json", DL_NEVER));
    CHECK_OK(dl_entry_read(&e, text.data, text.len, outer));
    e.prev = dl_hash_bytes(text.data, text.len);
    if (version == WRONG_PREV) e.prev.bytes[0] ^= 1;
    if (version == CROWDED) crowd(&e);
    e.base = e.result;
    e.entry = 1;
    e.position += 3;
    e.commit = e.last = false;
    e.n_members = 0;
    if (signed_by) snprintf(e.committer.replica, sizeof e.committer.replica, "%s", signed_by);
    snprintf(e.abort.reason, sizeof e.abort.reason, "because I say so");
    dl_buf_clear(&text);
    CHECK_OK(dl_entry_write(&text, &e, outer));
    if (version >= '0')
        *(strstr((char *)text.data, "\"version\":1") + strlen("\"version\":")) = version;
    if (signed_by) {
        dl_signer *signer = signer_of(signed_by);
        const dl_statement what = dl_entry_statement(&e);
        CHECK_OK(dl_sealed_sign(&text, 0, signer, &what));
        dl_signer_close(signer);
    }
    CHECK_OK(dl_store_create(store, "log/0000000001.json", &(dl_span){text.data, text.len}, 1, NULL,
                             DL_NEVER));
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
    dl_runfile_deinit(&run);
}

/* Zeros, one more than an entry may have. */
static void put_too_long(dl_store *store)
{
    const size_t len = DL_ENTRY_TEXT_MAX + 1;
    void *zeros = calloc(1, len);
    CHECK(zeros != NULL);
    CHECK_OK(
        dl_store_create(store, "log/0000000001.json", &(dl_span){zeros, len}, 1, NULL, DL_NEVER));
    free(zeros);
}

static diloco_status entry_1_is_void(void *user, const diloco_log_entry *e)
{
    if (e->entry != 1) return DILOCO_OK;
    CHECK(!e->commit);
    CHECK_CONTAINS("void", e->reason);
    CHECK_CONTAINS((const char *)user, e->reason);
    return DILOCO_OK;
}

/* A run of r0 alone, with state, in the store mem://NAME_POLICY. */
static toy single_of(char url[64], const char *name, const char *policy)
{
    snprintf(url, 64, "mem://%s_%s", name, policy);
    toy_keep(url);
    toy t = toy_of("r0", url);
    toy_set(&t, "run.state_dir", scratch_folder(url + strlen("mem://")));
    toy_set(&t, "run.roster", policy);
    if (strcmp(policy, "trusted") != 0) toy_set(&t, "run.key", key_of("r0"));
    if (!strcmp(policy, "closed")) toy_set(&t, "run.members", members_file(1));
    return t;
}

/* A run of one, whose entry 1 another party puts: it continues to its end. Returns the report of
 * verify. */
static diloco_verify_report run_with_entry(const char *name, const char *policy,
                                           const char *signed_by, char version, char *said)
{
    char url[64];
    diloco_verify_report report;
    toy t = single_of(url, name, policy);
    t.stop_after = 4;
    CHECK_OK(toy_live(&t));
    dl_store *store = store_of(url);
    if (version == TOO_LONG)
        put_too_long(store);
    else
        put_abort(store, signed_by, version);
    t.stop_after = 0;
    CHECK_OK(toy_live(&t));
    dl_store_close(store);
    CHECK_OK(diloco_verify(&report, url, 1, NULL, NULL));
    if (said) CHECK_OK(diloco_log_walk(url, 0, entry_1_is_void, said));
    return report;
}

static void check_forged_entries(const char *policy)
{
    char *const forged = "may not create", *const unsigned_one = "is not signed";
    CHECK_INT(1, run_with_entry("forged", policy, "mallory", '1', forged).voids);
    /* of another format, and no committer signed it */
    CHECK_INT(1, run_with_entry("newer", policy, "mallory", '2', forged).voids);
    CHECK_INT(1, run_with_entry("unsigned", policy, NULL, '1', unsigned_one).voids);
    CHECK_INT(1, run_with_entry("too_long", policy, NULL, TOO_LONG, "longer than").voids);
    const diloco_verify_report honest = run_with_entry("honest", policy, "r0", '1', NULL);
    CHECK_INT(0, honest.voids); /* so it is the signature that it failed for */
    CHECK_INT(1, honest.aborts);
}

TEST(p7_an_entry_without_a_committer_s_signature_is_void_and_the_run_continues)
{
    for (size_t p = 0; p < 3; p++)
        check_forged_entries(policies[p]);
}

/* r1 has a part in entry 0, so it is a member, and it begins entry 1 by creating it. */
static double commit_as_member(toy *t, const diloco_run_info *now)
{
    if (t->user && now->entry == 1) {
        dl_store *store = store_of(t->user);
        put_abort(store, t->name, '1');
        dl_store_close(store);
        t->user = NULL;
    }
    return toy_step(t, now);
}

static void check_all_heard(toy *all, const char *part)
{
    for (int i = 0; i < CREW; i++) {
        TOY_OK(all[i]);
        CHECK_CONTAINS(part, all[i].record);
    }
}

/* r0 alone may commit. The replicas read r1's entry while they run. Later processes without saved
 * state read it again. */
static void check_entry_of_a_member(const char *policy)
{
    toy all[CREW];
    char url[64], forged[] = "may not create";
    snprintf(url, sizeof url, "mem://member_%s", policy);
    crew_of(all, url, policy);
    toy_set_all(all, CREW, "run.committers", committers_file(1));
    create_and_invite(all, url, policy);
    all[1].step = commit_as_member;
    all[1].user = url;
    for (int i = 0; i < CREW; i++) {
        all[i].stop_after = 8;
        toy_keep_record(&all[i]);
    }
    toy_live_all(all, CREW);
    check_all_heard(all, forged);
    for (int i = 0; i < CREW; i++)
        all[i].stop_after = 0;
    toy_live_all(all, CREW);
    check_all_heard(all, forged);
    CHECK_INT(1, verified(url).voids);
    CHECK_OK(diloco_log_walk(url, 0, entry_1_is_void, forged));
    for (int i = 0; i < CREW; i++)
        free(all[i].record);
}

TEST(p7_a_member_that_may_not_commit_creates_no_entry)
{
    for (size_t p = 0; p < 3; p++)
        check_entry_of_a_member(policies[p]);
}

TEST(p7_an_abort_with_a_wrong_prev_is_void_for_replicas_verify_and_log)
{
    for (size_t p = 0; p < 3; p++)
        CHECK_INT(1, run_with_entry("prev", policies[p], "r0", WRONG_PREV, "prev").voids);
    CHECK_INT(1, run_with_entry("prev", "trusted", NULL, WRONG_PREV, "prev").voids);
}

/* Replicas have no room for it, so it is unreadable for readers with more memory, too. */
TEST(p7_an_entry_with_more_names_than_the_run_may_have_is_unreadable_for_all)
{
    for (size_t p = 0; p < 4; p++) {
        const char *policy = p < 3 ? policies[p] : "trusted", *by = p < 3 ? "r0" : NULL;
        CHECK_INT(1, run_with_entry("crowded", policy, by, CROWDED, "more than").voids);
    }
}

/* A replica has read the forged entry. Then its writer changes it, before others read it. */
static void change_what_was_void(toy *t, diloco_run *run, const char *line)
{
    (void)run;
    if (!strstr(line, "\"code\":\"void\"")) return;
    dl_store *store = store_of(t->user);
    CHECK_OK(dl_store_put(store, "log/0000000001.json", t->name, strlen(t->name), DL_NEVER));
    dl_store_close(store);
}

TEST(p7_a_forged_entry_that_changes_after_it_was_read_is_void_for_all)
{
    toy all[CREW];
    char url[64];
    for (size_t p = 0; p < 4; p++) {
        const char *policy = p < 3 ? policies[p] : "trusted";
        snprintf(url, sizeof url, "mem://changes_%s", policy);
        if (p < 3) crew_of(all, url, policy);
        if (p == 3) toy_keep(url), toy_crew(all, CREW, url, "none");
        toy_set_all(all, CREW, "run.on_missing", "wait");
        create_and_invite(all, url, policy);
        dl_store *store = store_of(url);
        CHECK_OK(dl_store_create(store, "log/0000000001.json", &(dl_span){"junk", 4}, 1, NULL,
                                 DL_NEVER));
        dl_store_close(store);
        for (int i = 0; i < CREW; i++) {
            all[i].heard = change_what_was_void;
            all[i].user = url;
        }
        toy_live_all(all, CREW);
        for (int i = 0; i < CREW; i++)
            TOY_OK(all[i]);
        CHECK_INT(1, verified(url).voids);
    }
}

/* ---- a writer without a key ------------------------------------------------------ */

static void put_junk(dl_store *store, const char *key)
{
    CHECK_OK(dl_store_create(store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
}

/* A party that can write creates n objects for each entry, <folder>/<entry>/<name><000 to
 * n-1><rest>, before a crew of that policy begins. */
typedef struct intrusion {
    const char *policy, *folder, *name;
    int n;
    const char *rest;
    const char *option, *value; /* of the run; NULL: the toy's */
} intrusion;

static void intrude(dl_store *store, const intrusion *how)
{
    dl_key key;
    for (unsigned e = 0; e < 4; e++)
        for (int i = 0; i < how->n; i++) {
            snprintf(key, sizeof key, "%s/%010u/%s%03d%s", how->folder, e, how->name, i, how->rest);
            put_junk(store, key);
        }
}

/* The run ends with no void entry. */
static diloco_verify_report run_with(const intrusion *how)
{
    static int n;
    toy all[CREW];
    char url[64];
    snprintf(url, sizeof url, "mem://intruded%d", n++);
    crew_of(all, url, how->policy);
    if (how->option) toy_set_all(all, CREW, how->option, how->value);
    create_and_invite(all, url, how->policy);
    dl_store *store = store_of(url);
    intrude(store, how);
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++)
        TOY_OK(all[i]);
    dl_store_close(store);
    const diloco_verify_report got = verified(url);
    CHECK_INT(0, got.voids);
    CHECK_INT(4, got.commits);
    return got;
}

/* It also ends in the bits of an undisturbed run, in each policy of keys. */
static void check_undisturbed(intrusion how)
{
    for (size_t p = 0; p < 3; p++) {
        how.policy = policies[p];
        CHECK_STR(verified("mem://trusted").digest, run_with(&how).digest);
    }
}

TEST(junk_in_c_takes_no_room_from_the_roster)
{
    intrusion how = {.folder = "c", .name = "a", .n = 200, .rest = ".0000"};
    check_undisturbed(how);
    how.policy = "trusted";
    CHECK_STR(verified("mem://trusted").digest, run_with(&how).digest);
}

static size_t times(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Every listing of an entry finds the junk again. r0 lists all four entries, because it alone
 * closes them. */
TEST(junk_in_c_is_reported_once_by_a_replica)
{
    static const char code[] = "\"code\":\"passed_over\"";
    toy all[CREW];
    crew_of(all, "mem://reported", "open");
    create(&all[0]);
    for (int i = 0; i < CREW; i++)
        toy_keep_record(&all[i]);
    dl_store *store = store_of("mem://reported");
    intrude(store, &(intrusion){.folder = "c", .name = "a", .n = 200, .rest = ".0000"});
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++) {
        TOY_OK(all[i]);
        CHECK(times(all[i].record, code) <= 1);
    }
    CHECK_INT(1, times(all[0].record, code));
    for (int i = 0; i < CREW; i++)
        free(all[i].record);
    dl_store_close(store);
}

TEST(p6_junk_at_its_own_names_does_not_fence_a_replica)
{
    check_undisturbed((intrusion){.folder = "c", .name = "r1.0", .n = 30, .rest = ""});
    check_undisturbed((intrusion){.folder = "c", .name = "r1.9", .n = 30, .rest = ""});
}

TEST(p6_junk_at_the_name_of_a_pipelined_upload_does_not_fence_a_replica)
{
    run_with(&(intrusion){.policy = "closed",
                          .folder = "c",
                          .name = "r1.0",
                          .n = 30,
                          .rest = "",
                          .option = "server.diloco.overlap_steps",
                          .value = "2"});
}

TEST(p19_junk_at_the_name_of_a_combined_update_does_not_fence_a_leader)
{
    run_with(&(intrusion){.policy = "closed",
                          .folder = "x",
                          .name = "r1.0",
                          .n = 1,
                          .rest = "",
                          .option = "server.diloco.exchange",
                          .value = "leader"});
}

static void check_junk_in_gen(const char *policy)
{
    char url[64];
    toy t = single_of(url, "generations", policy);
    t.stop_after = 4;
    CHECK_OK(toy_live(&t));
    dl_store *store = store_of(url);
    put_junk(store, "gen/r0.0001");
    put_junk(store, "gen/r0.9999999");
    t.stop_after = 2;
    CHECK_OK(toy_live(&t));
    CHECK_INT(2, t.end.generation);
    t.stop_after = 0;
    CHECK_OK(toy_live(&t));
    CHECK_INT(3, t.end.generation);
    dl_store_close(store);
}

TEST(p6_junk_in_gen_neither_ends_a_name_nor_moves_its_next_generation_far)
{
    for (size_t p = 0; p < 3; p++)
        check_junk_in_gen(policies[p]);
}

TEST(a_run_json_signed_by_another_key_is_void)
{
    toy all[CREW];
    dl_runfile run;
    dl_hash digest;
    dl_buf text;
    crew_of(all, "mem://owned", "open");
    create(&all[0]);
    dl_store *store = store_of("mem://owned");
    read_run(&run, &digest, store);
    dl_buf_init(&text, DL_RUNFILE_MAX);
    CHECK_OK(dl_runfile_write(&text, &run));
    dl_runfile other;
    CHECK_STATUS(DILOCO_EPROTO, dl_runfile_read(&other, text.data, text.len));
    CHECK_CONTAINS("not signed", diloco_error_text());
    dl_signer *mallory = signer_of("mallory");
    const dl_statement what = dl_runfile_statement(&run);
    CHECK_OK(dl_sealed_sign(&text, 0, mallory, &what));
    CHECK_STATUS(DILOCO_EPROTO, dl_runfile_read(&other, text.data, text.len));
    CHECK_CONTAINS("owner", diloco_error_text());
    dl_signer_close(mallory);
    dl_buf_deinit(&text);
    dl_runfile_deinit(&run);
    dl_store_close(store);
}

/* ---- refused combinations ---------------------------------------------------------------- */

static void check_combination(const char *roster, const char *option, const char *value,
                              const char *part)
{
    toy t = toy_of("r0", "mem://never");
    toy_set(&t, "run.roster", roster);
    toy_set(&t, "run.key", key_of("r0"));
    toy_set(&t, option, value);
    t.status = toy_open(&t);
    if (!t.status) t.status = diloco_run_create(t.run);
    CHECK(t.status == DILOCO_EREFUSED || t.status == DILOCO_EINVAL || t.status == DILOCO_ENOENT);
    CHECK_CONTAINS(part, diloco_error_text());
    toy_close(&t);
}

TEST(names_that_keys_cannot_hold_are_refused_by_name)
{
    for (size_t p = 0; p < 3; p++)
        check_combination(policies[p], "run.single_committer", "r0", "run.single_committer");
    check_combination("open", "server.diloco.exchange", "leader", "allgather");
    check_combination("invited", "server.diloco.exchange", "leader", "allgather");
    check_combination("closed", "run.state_dir", "none", "run.members");
    check_combination("closed", "run.members", scratch_write("empty", "#\n", 2), "no member");
    check_combination("closed", "run.members", scratch_write("bad", "r0 key\n", 7), "bad:1");
    check_combination("open", "run.committers", scratch_write("worse", "\nx\n", 3), "worse:2");
    check_combination("open", "run.committers", "/nowhere/at/all", "/nowhere/at/all");
    check_combination("open", "run.key", scratch_path("none.pem"), "none.pem");
}

TEST_MAIN(p7_a_forged_entry_that_changes_after_it_was_read_is_void_for_all,
          p7_an_entry_with_more_names_than_the_run_may_have_is_unreadable_for_all,
          runs_of_keys_come_to_the_bits_of_a_run_of_trust,
          where_one_combines_for_all_his_sum_is_signed_too,
          async_runs_of_keys_are_closed_by_committers_alone,
          a_member_that_a_closed_list_does_not_have_is_refused_by_name,
          a_name_belongs_to_the_key_that_it_began_with,
          an_invitation_lets_in_one_replica_once_and_not_for_ever,
          an_invitation_is_to_one_run_whatever_the_store_shows,
          a_list_of_committers_names_one_that_can_close_entries,
          a_committer_admits_by_its_own_clock_and_stays_with_it,
          a_committer_meets_a_new_replica_before_its_first_contribution,
          an_invalid_admission_keeps_no_replica_out,
          p7_an_entry_without_a_committer_s_signature_is_void_and_the_run_continues,
          p7_a_member_that_may_not_commit_creates_no_entry,
          p7_an_abort_with_a_wrong_prev_is_void_for_replicas_verify_and_log,
          junk_in_c_takes_no_room_from_the_roster, junk_in_c_is_reported_once_by_a_replica,
          p6_junk_at_its_own_names_does_not_fence_a_replica,
          p6_junk_at_the_name_of_a_pipelined_upload_does_not_fence_a_replica,
          p19_junk_at_the_name_of_a_combined_update_does_not_fence_a_leader,
          p6_junk_in_gen_neither_ends_a_name_nor_moves_its_next_generation_far,
          a_run_json_signed_by_another_key_is_void, names_that_keys_cannot_hold_are_refused_by_name)

#else

TEST(a_build_without_openssl_refuses_rosters_of_keys)
{
    toy t = toy_of("r0", "mem://never");
    toy_set(&t, "run.roster", "open");
    CHECK_OK(toy_open(&t));
    CHECK_STATUS(DILOCO_EREFUSED, diloco_run_create(t.run));
    toy_close(&t);
}

TEST_MAIN(a_build_without_openssl_refuses_rosters_of_keys)

#endif
