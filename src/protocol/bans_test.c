/* bans_test.c - which replicas are banned, and for how long: P27. */
#include "protocol/bans.h"

#include "check.h"

typedef struct scene {
    dl_config config;
    dl_bans *bans, *scratch;
    dl_entry entry;
} scene;

static void open_scene(scene *s, const char *after, const char *entries)
{
    memset(s, 0, sizeof *s);
    dl_config_init(&s->config);
    CHECK_OK(dl_config_set(&s->config, "check.ban_after", after, "test"));
    CHECK_OK(dl_config_set(&s->config, "check.ban_entries", entries, "test"));
    CHECK_OK(dl_bans_create(&s->bans, &s->config, 4));
    CHECK_OK(dl_bans_create(&s->scratch, &s->config, 4));
    CHECK_OK(dl_entry_init(&s->entry, 4));
    s->entry.commit = true;
}

static void close_scene(scene *s)
{
    dl_bans_destroy(s->bans);
    dl_bans_destroy(s->scratch);
    dl_entry_deinit(&s->entry);
}

static void name(dl_generation *generation, const char *replica)
{
    *generation = (dl_generation){.number = 0};
    snprintf(generation->replica, sizeof generation->replica, "%s", replica);
}

/* The next entry counts `member` and rejects `rejected`. */
static void next(scene *s, const char *member, const char *rejected, const char *reason)
{
    dl_entry *e = &s->entry;
    e->n_members = e->n_rejected = 0;
    name(&e->members[e->n_members++].generation, member);
    if (rejected) {
        name(&e->rejected[0].generation, rejected);
        snprintf(e->rejected[e->n_rejected++].reason, sizeof e->rejected[0].reason, "%s", reason);
    }
}

static void apply(scene *s)
{
    dl_bans_apply(s->bans, s->entry.entry, &s->entry);
    s->entry.entry++;
}

TEST(no_replica_is_banned_without_a_limit)
{
    scene s;
    open_scene(&s, "0", "3");
    CHECK(s.bans == NULL && !dl_bans_has(NULL, "a") && dl_bans_n(NULL) == 0);
    next(&s, "b", "a", "norm");
    CHECK(dl_bans_void_reason(NULL, NULL, &s.entry) == NULL);
    s.entry.bans.there = true;
    CHECK_CONTAINS("this run has none", dl_bans_void_reason(NULL, NULL, &s.entry));
    close_scene(&s);
}

TEST(p27_replica_is_banned_for_ban_entries_after_ban_after_rejections)
{
    scene s;
    open_scene(&s, "2", "3");
    next(&s, "b", "a", "norm"), apply(&s);
    CHECK(!dl_bans_has(s.bans, "a"));
    next(&s, "b", NULL, NULL), apply(&s); /* not consecutive */
    next(&s, "b", "a", "non-finite"), apply(&s);
    CHECK(dl_bans_has(s.bans, "a") && !dl_bans_has(s.bans, "b"));
    CHECK_INT(6, dl_bans_until(s.bans, "a")); /* entries 3, 4 and 5 go without it */
    CHECK_INT(1, dl_bans_n(s.bans));
    for (int e = 3; e < 6; e++) {
        CHECK(dl_bans_has(s.bans, "a"));
        next(&s, "b", NULL, NULL), apply(&s);
    }
    CHECK(!dl_bans_has(s.bans, "a") && s.bans->n == 0); /* and starts without strikes */
    next(&s, "b", "a", "norm"), apply(&s);
    CHECK(!dl_bans_has(s.bans, "a"));
    close_scene(&s);
}

TEST(p27_voids_pass_time_and_copies_are_no_strikes)
{
    scene s;
    open_scene(&s, "1", "1");
    next(&s, "b", "a", "copy"), apply(&s);
    CHECK(!dl_bans_has(s.bans, "a"));
    next(&s, "b", "a", "zero"), apply(&s);
    CHECK(dl_bans_has(s.bans, "a"));
    dl_bans_apply(s.bans, 2, NULL);
    CHECK(!dl_bans_has(s.bans, "a"));
    close_scene(&s);
}

TEST(full_table_gives_no_more_strikes)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    scene s;
    open_scene(&s, "1", "9");
    for (size_t i = 0; i < 5; i++)
        next(&s, "x", names[i], "norm"), apply(&s);
    CHECK(dl_bans_has(s.bans, "d") && !dl_bans_has(s.bans, "e"));
    close_scene(&s);
}

/* The last byte shows that entry e counted this contribution of "a". */
static dl_hash body_of(unsigned char e)
{
    return (dl_hash){.bytes = {[0] = e}};
}

static void open_memory(scene *s, const char *repeat)
{
    open_scene(s, "0", "3");
    CHECK_OK(dl_config_set(&s->config, "check.repeat", repeat, "test"));
    CHECK_OK(dl_bans_create(&s->bans, &s->config, 4));
    CHECK_OK(dl_bans_create(&s->scratch, &s->config, 4));
}

static void count(scene *s, const char *replica, unsigned char e)
{
    next(s, replica, "r", "norm");
    s->entry.members[0].body = body_of(e);
    apply(s);
}

TEST(p27_repeat_keeps_counted_bodies_without_bans)
{
    scene s;
    open_memory(&s, "2");
    for (unsigned char e = 0; e < 3; e++)
        count(&s, "a", e);
    count(&s, "b", 9);
    CHECK(!dl_bans_has_counted(s.bans, "a", body_of(0)));
    CHECK(dl_bans_has_counted(s.bans, "a", body_of(1)));
    CHECK(dl_bans_has_counted(s.bans, "a", body_of(2)));
    CHECK(!dl_bans_has_counted(s.bans, "a", body_of(9)));
    CHECK(dl_bans_has_counted(s.bans, "b", body_of(9)));
    CHECK(!dl_bans_has_counted(NULL, "b", body_of(9)));
    CHECK(!dl_bans_has(s.bans, "r") && dl_bans_strikes(s.bans, "r") == 0);
    s.entry.commit = false; /* an abort's members were present, no more */
    count(&s, "b", 3);
    dl_bans_apply(s.bans, 5, NULL);
    CHECK(!dl_bans_has_counted(s.bans, "b", body_of(3)));
    dl_bans_begin(s.bans);
    CHECK(!dl_bans_has_counted(s.bans, "b", body_of(9)));
    close_scene(&s);
}

TEST(a_full_memory_loses_its_oldest)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    scene s;
    open_memory(&s, "1");
    for (unsigned char i = 0; i < 5; i++)
        count(&s, names[i], i);
    CHECK(!dl_bans_has_counted(s.bans, "a", body_of(0)));
    CHECK(dl_bans_has_counted(s.bans, "b", body_of(1)));
    CHECK(dl_bans_has_counted(s.bans, "e", body_of(4)));
    close_scene(&s);
}

TEST(p27_entry_with_a_banned_replica_or_other_bans_is_void)
{
    scene s;
    open_scene(&s, "1", "5");
    next(&s, "b", "a", "norm");
    CHECK_CONTAINS("not what follows", dl_bans_void_reason(s.bans, s.scratch, &s.entry));
    dl_bans_copy(s.scratch, s.bans);
    dl_bans_apply(s.scratch, 0, &s.entry);
    s.entry.bans = (dl_entry_bans){.there = true, .digest = dl_bans_digest(s.scratch)};
    CHECK(dl_bans_void_reason(s.bans, s.scratch, &s.entry) == NULL);
    apply(&s);
    next(&s, "a", NULL, NULL);
    CHECK_CONTAINS("counts a replica that is banned",
                   dl_bans_void_reason(s.bans, s.scratch, &s.entry));
    next(&s, "b", "a", "norm");
    CHECK_CONTAINS("rejects a replica that is banned",
                   dl_bans_void_reason(s.bans, s.scratch, &s.entry));
    s.entry.commit = false; /* an abort's members were present, no more */
    next(&s, "a", NULL, NULL);
    dl_bans_copy(s.scratch, s.bans);
    s.entry.bans.digest = dl_bans_digest(s.bans);
    CHECK(dl_bans_void_reason(s.bans, s.scratch, &s.entry) == NULL);
    close_scene(&s);
}

TEST(bans_survive_their_text_and_damaged_ones_are_refused)
{
    scene s;
    dl_buf text;
    dl_json j;
    dl_json_value root;
    open_memory(&s, "3");
    s.bans->after = 1;
    count(&s, "a", 7);
    next(&s, "b", "a", "norm"), apply(&s);
    next(&s, "b", "c", "bound"), apply(&s);
    dl_buf_init(&text, 1 << 16);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_bans_write(&j, s.bans);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_OK(dl_json_parse(&root, text.data, text.len));
    CHECK_OK(dl_bans_read(s.scratch, root));
    const dl_hash want = dl_bans_digest(s.bans), got = dl_bans_digest(s.scratch);
    CHECK_BYTES(want.bytes, got.bytes, sizeof want.bytes);
    CHECK(dl_bans_has_counted(s.scratch, "a", body_of(7)));
    s.scratch->cap = 1;
    CHECK_STATUS(DILOCO_EPROTO, dl_bans_read(s.scratch, root));
    s.scratch->cap = 4, s.scratch->cap_counted = 2;
    CHECK_STATUS(DILOCO_EPROTO, dl_bans_read(s.scratch, root));
    static const char *const bad[] = {
        "{}", "{\"bans\":[3]}", "{\"bans\":[{\"replica\":\"../x\",\"strikes\":1,\"until\":0}]}",
        "{\"bans\":[{\"replica\":\"a\",\"strikes\":-1,\"until\":0}]}"};
    static const char *const bad_counted[] = {
        "{\"bans\":[]}", "{\"bans\":[],\"counted\":[3]}",
        "{\"bans\":[],\"counted\":[{\"replica\":\"a\",\"body\":\"12\"}]}"};
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(dl_json_parse(&root, bad_counted[i], strlen(bad_counted[i])));
        CHECK_STATUS(DILOCO_EPROTO, dl_bans_read(s.bans, root));
    }
    s.bans->repeat = 0;
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(dl_json_parse(&root, bad[i], strlen(bad[i])));
        CHECK_STATUS(DILOCO_EPROTO, dl_bans_read(s.bans, root));
    }
    dl_buf_deinit(&text);
    close_scene(&s);
}

TEST_MAIN(no_replica_is_banned_without_a_limit,
          p27_replica_is_banned_for_ban_entries_after_ban_after_rejections,
          p27_voids_pass_time_and_copies_are_no_strikes, full_table_gives_no_more_strikes,
          p27_repeat_keeps_counted_bodies_without_bans, a_full_memory_loses_its_oldest,
          p27_entry_with_a_banned_replica_or_other_bans_is_void,
          bans_survive_their_text_and_damaged_ones_are_refused)
