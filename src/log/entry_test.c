/* entry_test.c - an entry reads back equal to the bit. The writer refuses an entry that breaks a
 * rule at the top of entry.c. The reader refuses it, too, when it is written around the writer. */
#include "log/entry.h"

#include "check.h"
#include "count_alloc.h"
#include "log/fields.h"

#define RUN "0123456789abcdef0123456789abcdef"

/* Needs all of 64-bit integers: no double holds it. */
#define RAW ((UINT64_C(1) << 60) + 3)

static const dl_outer *nesterov(void)
{
    const dl_outer *outer = dl_outer_find("nesterov");
    CHECK(outer != NULL);
    return outer;
}

static dl_generation generation_of(const char *replica, uint32_t number)
{
    dl_generation generation = {.number = number};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    return generation;
}

static dl_entry an_entry(void)
{
    dl_entry e;
    static const char *const names[] = {"r0", "r2", "r10"};
    CHECK_OK(dl_entry_init(&e, 4));
    e.commit = true;
    strcpy(e.run, RUN);
    e.entry = 12;
    e.fragment = 3;
    e.position = 18446744073709551615u;
    e.committer = generation_of("r10", 9999999);
    e.prev = dl_hash_bytes("prev", 4);
    e.base = dl_hash_bytes("base", 4);
    e.result = dl_hash_bytes("result", 6);
    for (size_t i = 0; i < 3; i++) {
        e.members[i] = (dl_member){.generation = generation_of(names[i], (uint32_t)i),
                                   .body = dl_hash_bytes(names[i], 2),
                                   .raw = i == 2 ? RAW : i + 1,
                                   .weight = 1.0f / 3,
                                   .stats.steps = 500,
                                   .stats.samples = 4000,
                                   .stats.tokens = 4096000,
                                   .bytes = 123456789012,
                                   .stats.loss = i ? 1.0 / 3 : NAN};
        CHECK(dl_roster_add(&e.roster, names[2 - i], (uint32_t)i));
    }
    e.n_members = 3;
    for (int i = 0; i < DL_OUTER_MAX_SCALARS; i++)
        e.scalars.value[i] = 0.1f * (float)(i + 1);
    e.loss = 2.25;
    e.snapshot = 8;
    e.next.lr = 0.7f;
    e.next.mu = 0.9f;
    return e;
}

static dl_buf written(const dl_entry *e)
{
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_OK(dl_entry_write(&text, e, nesterov()));
    return text;
}

TEST(a_commit_reads_back_equal)
{
    dl_entry e = an_entry(), back;
    e.simulated_s = 1.0 / 3;
    dl_buf text = written(&e), again;
    CHECK_OK(dl_entry_init(&back, 3));
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK(back.commit && back.entry == 12 && back.fragment == 3 && back.position == UINT64_MAX);
    CHECK_INT(3, back.n_members);
    CHECK_INT(3, back.roster.n);
    CHECK_STR("r2", back.roster.names[1]);
    CHECK_INT(0, back.roster.misses[2]); /* r10 was put in first */
    CHECK(isnan(back.members[0].stats.loss) && back.members[1].stats.loss == 1.0 / 3);
    CHECK(back.members[2].weight == 1.0f / 3 && back.members[2].raw == RAW);
    CHECK(back.next.lr == 0.7f && back.next.mu == 0.9f && !back.last);
    CHECK(back.simulated_s == e.simulated_s);
    again = written(&back); /* and everything else by its text */
    CHECK_INT(text.len, again.len);
    CHECK_BYTES(text.data, again.data, text.len);
    dl_buf_deinit(&again);
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

TEST(an_entry_that_names_a_combined_update_reads_back)
{
    dl_entry e = an_entry(), back;
    e.combined = (dl_combined_at){
        .there = true, .generation = generation_of("r2", 4), .body = e.base, .bytes = 123456789012};
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_init(&back, 3));
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK(back.combined.there && back.combined.bytes == 123456789012);
    CHECK(dl_generation_equal(&e.combined.generation, &back.combined.generation));
    CHECK_BYTES(e.base.bytes, back.combined.body.bytes, sizeof e.base.bytes);
    dl_buf again = written(&back);
    CHECK_BYTES(text.data, again.data, text.len);
    e.commit = false;
    e.result = e.base;
    strcpy(e.abort.reason, "silent");
    CHECK_STATUS(DILOCO_EINVAL, dl_entry_write(&again, &e, nesterov()));
    CHECK_CONTAINS("names a combined update", diloco_error_text());
    dl_buf_deinit(&again);
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

TEST(an_abort_reads_back_with_its_reason)
{
    dl_entry e = an_entry(), back;
    e.commit = false;
    e.result = e.base;
    e.n_members = 0;
    e.last = true;
    strcpy(e.abort.reason, "2 of 4 before the deadline; \xc3\xa9 is text too");
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_init(&back, 4));
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK(!back.commit && back.last);
    CHECK_INT(0, back.n_members);
    CHECK_STR(e.abort.reason, back.abort.reason);
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

/* Written by the first program with format version 1: every later one reads it. */
TEST(an_entry_of_version_1_is_still_read)
{
    static const char text[] =
        "{\"format\":\"diloco-entry\",\"version\":1,\"kind\":\"commit\","
        "\"run\":\"0123456789abcdef0123456789abcdef\",\"entry\":0,\"fragment\":0,"
        "\"position\":0,\"committer\":\"r0.0000\","
        "\"prev\":\"00000000000000000000000000000000\","
        "\"base\":\"00000000000000000000000000000000\","
        "\"result\":\"00000000000000000000000000000000\",\"members\":[{\"life\":\"r0.0000\","
        "\"body\":\"00000000000000000000000000000000\",\"raw\":1,\"weight\":\"3f000000\","
        "\"steps\":0,\"samples\":0,\"tokens\":0,\"bytes\":0,\"loss\":0},"
        "{\"life\":\"r10.0000\",\"body\":\"00000000000000000000000000000000\",\"raw\":0,"
        "\"weight\":\"00000000\",\"steps\":0,\"samples\":0,\"tokens\":0,\"bytes\":0,"
        "\"loss\":0}],\"scalars\":{\"lr\":\"00000000\",\"mu\":\"00000000\"},\"loss\":0,"
        "\"snapshot\":0,\"roster\":[\"r0\",\"r2\"],\"misses\":[1,0],\"next_lr\":\"00000000\","
        "\"next_mu\":\"00000000\",\"last\":false,"
        "\"check\":\"aa59f246dda87b7cc4a3ffc8c337624e\"}\n";
    dl_entry back;
    CHECK_OK(dl_entry_init(&back, 2));
    CHECK_OK(dl_entry_read(&back, text, sizeof text - 1, nesterov()));
    CHECK_INT(2, back.n_members);
    CHECK_STR("r10", back.members[1].generation.replica);
    CHECK(back.members[0].weight == 0.5f);
    CHECK_INT(1, back.roster.misses[0]);
    dl_buf again = written(&back);
    CHECK_INT(sizeof text - 1, again.len);
    CHECK_BYTES(text, again.data, again.len);
    dl_buf_deinit(&again);
    dl_entry_deinit(&back);
}

/* ---- refusals of the writer */

static void check_refused(dl_entry *e, const char *part)
{
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_STATUS(DILOCO_EINVAL, dl_entry_write(&text, e, nesterov()));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_INT(0, text.len);
    dl_buf_deinit(&text);
    dl_entry_deinit(e);
}

TEST(fed_17_abort_without_members_may_name_its_resulting_state)
{
    dl_entry e = an_entry(), back;
    e.commit = false;
    e.abort.emptied = true;
    strcpy(e.abort.reason, "nobody has trained on it");
    check_refused(&e, "it empties the momentum, and commits or has members");
    e = an_entry(); /* the former is freed */
    e.abort.emptied = true;
    check_refused(&e, "it empties the momentum, and commits or has members");

    e = an_entry();
    e.commit = false;
    e.abort.emptied = true;
    e.n_members = 0;
    strcpy(e.abort.reason, "nobody has trained on it");
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_init(&back, 4));
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK(back.abort.emptied && !back.commit && !dl_hash_equal(back.base, back.result));
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

TEST(entry_that_no_reader_accepts_is_not_written)
{
    dl_entry e = an_entry();
    dl_member kept = e.members[0];
    e.members[0] = e.members[1];
    e.members[1] = kept;
    check_refused(&e, "member r0 is not in order after r2");

    e = an_entry();
    e.members[1].generation = generation_of("r0", 7);
    check_refused(&e, "replica r0 is counted twice");

    e = an_entry();
    e.members[1].weight = NAN;
    check_refused(&e, "weight");
    e = an_entry();
    e.members[1].weight = 1.5f;
    check_refused(&e, "weight");

    e = an_entry();
    e.scalars.value[0] = INFINITY;
    check_refused(&e, "scalar");
    e = an_entry();
    e.next.mu = NAN;
    check_refused(&e, "next");

    e = an_entry();
    e.n_members = 0;
    check_refused(&e, "without members");

    e = an_entry();
    e.commit = false;
    strcpy(e.abort.reason, "why");
    check_refused(&e, "result is not its base");
    e = an_entry();
    e.commit = false;
    e.result = e.base;
    check_refused(&e, "without a reason");
    e.commit = false;

    e = an_entry();
    e.commit = false;
    e.result = e.base;
    strcpy(e.abort.reason, "clear\x1b[2J");
    check_refused(&e, "control character");

    e = an_entry();
    strcpy(e.roster.names[1], "r0");
    check_refused(&e, "roster");
}

/* ---- refusals of the reader: the text with `from` replaced by `to`, sealed again */

static void check_edited(diloco_status expected, const char *from, const char *to, const char *part)
{
    dl_entry e = an_entry(), back;
    dl_buf text = written(&e), edited;
    dl_buf_init(&edited, DL_ENTRY_TEXT_MAX);
    const char *all = dl_buf_str(&text), *at = strstr(all, from), *seal = strstr(all, ",\"check\"");
    CHECK(at && seal && at < seal);
    CHECK_OK(dl_buf_add(&edited, all, (size_t)(at - all)));
    CHECK_OK(dl_buf_add(&edited, to, strlen(to)));
    at += strlen(from);
    CHECK_OK(dl_buf_add(&edited, at, (size_t)(seal - at)));
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_hash_bytes(edited.data, edited.len));
    CHECK_OK(dl_buf_addf(&edited, ",\"check\":\"%s\"}\n", hex));

    CHECK_OK(dl_entry_init(&back, 3));
    CHECK_STATUS(expected, dl_entry_read(&back, edited.data, edited.len, nesterov()));
    if (expected) CHECK_CONTAINS(part, diloco_error_text());
    /* in a log, scalars alone make no entry unreadable: a reader may not know the optimizer */
    const bool scalars = strstr(from, "scalars") != NULL;
    const diloco_status in_log = scalars ? DILOCO_OK : expected;
    dl_entry_place place = {.run = e.run, .number = e.entry, .outer = nesterov()};
    CHECK_STATUS(in_log, dl_entry_read_at(&back, edited.data, edited.len, &place));
    if (!in_log) CHECK(back.scalars.wrong == scalars);
    place.outer = NULL;
    CHECK_STATUS(in_log, dl_entry_read_at(&back, edited.data, edited.len, &place));
    if (!in_log) CHECK(!back.scalars.wrong);
    place.number++; /* of any version */
    CHECK_STATUS(DILOCO_EPROTO, dl_entry_read_at(&back, edited.data, edited.len, &place));
    place = (dl_entry_place){.run = "another", .number = e.entry};
    CHECK_STATUS(DILOCO_EPROTO, dl_entry_read_at(&back, edited.data, edited.len, &place));
    dl_entry_deinit(&back);
    dl_buf_deinit(&edited);
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
}

TEST(untrusted_text_is_refused_by_the_name_of_the_wrong_member)
{
    check_edited(DILOCO_OK, "\"version\":1", "\"version\":1,\"later\":{\"a\":[1]}", "");
    check_edited(DILOCO_EDIFFERS, "\"version\":1", "\"version\":2", "version 2");
    check_edited(DILOCO_EPROTO, "diloco-entry", "diloco-run", "diloco-run");
    check_edited(DILOCO_EPROTO, "\"commit\"", "\"commit!\"", "kind");
    check_edited(DILOCO_EPROTO, RUN, "xyz", "run");
    check_edited(DILOCO_EPROTO, "\"entry\":12", "\"entry\":-1", "entry");
    check_edited(DILOCO_EPROTO, "\"fragment\":3", "\"fragment\":4096", "fragment");
    check_edited(DILOCO_EPROTO, "\"r10.9999999\"", "\"r10.10000000\"", "committer");
    check_edited(DILOCO_EPROTO, "\"prev\":\"", "\"prev\":\"0", "prev");
    check_edited(DILOCO_EPROTO, "\"base\"", "\"bass\"", "\"base\" is missing");
    check_edited(DILOCO_EPROTO, "\"members\":[", "\"members\":[1,", "member 0");
    check_edited(DILOCO_EPROTO, "\"r2.0001\"", "\"r0.0001\"", "replica r0 is counted twice");
    check_edited(DILOCO_EPROTO, "\"r2.0001\"", "\"r11.0001\"", "not in order after");
    check_edited(DILOCO_EPROTO, "\"weight\":\"3eaaaaab\"", "\"weight\":\"7fc00000\"", "weight");
    check_edited(DILOCO_EPROTO, "\"weight\":\"3eaaaaab\"", "\"weight\":0.5", "weight");
    check_edited(DILOCO_EPROTO, "\"raw\":1152921504606846979", "\"raw\":18446744073709551616",
                 "raw");
    check_edited(DILOCO_EPROTO, "\"scalars\":{\"lr\"", "\"scalars\":{\"rl\"", "lr");
    check_edited(DILOCO_EPROTO, "\"next_lr\":\"3f333333\"", "\"next_lr\":\"ff800000\"", "next");
    check_edited(DILOCO_EPROTO, "\"roster\":[\"r0\"", "\"roster\":[\"r3\"", "roster");
    check_edited(DILOCO_EPROTO, "\"roster\":[\"r0\"", "\"roster\":[\"r/0\"", "roster");
    check_edited(DILOCO_EPROTO, "\"roster\":[\"r0\"", "\"roster\":[\"a\",\"b\",\"r0\"",
                 "more than 3");
    check_edited(DILOCO_EPROTO, "\"misses\":[", "\"misses\":[0,", "more misses");
    check_edited(DILOCO_EPROTO, "\"last\":false", "\"last\":0", "last");
    check_edited(DILOCO_EPROTO, "\"loss\":2.25", "\"loss\":\"2\"", "loss");
}

TEST(more_members_than_there_is_room_for_are_refused)
{
    dl_entry e = an_entry(), back;
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_init(&back, 2));
    CHECK_STATUS(DILOCO_EPROTO, dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK_CONTAINS("more than 2 members", diloco_error_text());
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

TEST(every_flipped_bit_and_every_cut_is_found)
{
    dl_entry e = an_entry(), back;
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_init(&back, 4));
    for (size_t i = 0; i < text.len; i++) {
        CHECK_STATUS(DILOCO_EPROTO, dl_entry_read(&back, text.data, i, nesterov()));
        if (i >= text.len - 35 && i < text.len - 3) continue; /* the seal's digits: fields_test */
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] ^= (unsigned char)(1 << bit);
            CHECK_STATUS(DILOCO_EPROTO, dl_entry_read(&back, text.data, text.len, nesterov()));
            text.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

TEST(reading_and_writing_again_allocate_nothing)
{
    if (!count_alloc_works()) {
        print_message("left out: a sanitizer counts for itself\n");
        skip();
    }
    dl_entry e = an_entry(), back;
    dl_buf text = written(&e);
    const dl_outer *outer = nesterov();
    CHECK_OK(dl_entry_init(&back, 4));
    size_t before = count_alloc();
    diloco_status status = dl_entry_read(&back, text.data, text.len, outer);
    dl_buf_clear(&text);
    if (!status) status = dl_entry_write(&text, &back, outer);
    CHECK_INT(before, count_alloc());
    CHECK_OK(status);
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&e);
}

/* ---- rosters */

TEST(a_roster_keeps_its_order_and_its_size)
{
    dl_entry e, other;
    size_t at;
    CHECK_OK(dl_entry_init(&e, 3));
    CHECK_OK(dl_entry_init(&other, 3));
    CHECK(dl_roster_add(&e.roster, "r10", 1) && dl_roster_add(&e.roster, "r9", 2));
    CHECK(dl_roster_add(&e.roster, "r1", 3));
    CHECK(!dl_roster_add(&e.roster, "r11", 0));
    CHECK(dl_roster_add(&e.roster, "r9", 0));
    CHECK_STR("r1", e.roster.names[0]);
    CHECK_STR("r9", e.roster.names[1]);
    CHECK_STR("r10", e.roster.names[2]);
    CHECK_INT(0, e.roster.misses[1]);
    CHECK(dl_roster_has(&e.roster, "r10", &at));
    CHECK_INT(2, at);
    CHECK(!dl_roster_has(&e.roster, "r2", NULL));
    CHECK(!dl_roster_has(&e.roster, "r09", NULL)); /* sorts next to r9, but is another name */
    dl_roster_copy(&other.roster, &e.roster);
    CHECK_INT(3, other.roster.n);
    CHECK_STR("r10", other.roster.names[2]);
    CHECK_INT(1, other.roster.misses[2]);
    dl_entry_deinit(&other);
    dl_entry_deinit(&e);
}

TEST(a_thousand_members_fit_into_the_longest_text)
{
    dl_entry e, back;
    CHECK_OK(dl_entry_init(&e, DL_MAX_MEMBERS));
    CHECK_OK(dl_entry_init(&back, DL_MAX_MEMBERS));
    dl_entry sample = an_entry();
    dl_member *members = e.members;
    dl_roster roster = e.roster;
    e = sample;
    e.members = members;
    e.roster = roster;
    e.cap_members = e.n_members = DL_MAX_MEMBERS;
    for (size_t i = 0; i < DL_MAX_MEMBERS; i++) {
        char name[DL_REPLICA_MAX + 1];
        snprintf(name, sizeof name, "a-name-of-thirty-one-bytes-%04zu", i);
        e.members[i] = sample.members[1];
        e.members[i].generation = generation_of(name, 9999999);
        CHECK(dl_roster_add(&e.roster, name, UINT32_MAX));
    }
    dl_buf text = written(&e);
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK_INT(DL_MAX_MEMBERS, back.n_members);
    CHECK_INT(DL_MAX_MEMBERS, back.roster.n);
    dl_buf_deinit(&text);
    dl_entry_deinit(&back);
    dl_entry_deinit(&sample);
    dl_entry_deinit(&e);
}

/* One more, r3, between the members. */
static dl_entry a_rejecting_entry(void)
{
    dl_entry e = an_entry();
    e.rejected[0] =
        (dl_rejected){.generation = generation_of("r3", 7), .bytes = 99, .reason = "non-finite"};
    e.n_rejected = 1;
    e.bans = (dl_entry_bans){.there = true, .digest = dl_hash_bytes("bans", 4)};
    return e;
}

TEST(p27_rejections_and_bans_read_back_equal)
{
    dl_entry e = a_rejecting_entry(), back;
    dl_buf text = written(&e), again;
    CHECK_OK(dl_entry_init(&back, 4));
    CHECK_OK(dl_entry_read(&back, text.data, text.len, nesterov()));
    CHECK_INT(1, back.n_rejected);
    CHECK(dl_generation_equal(&e.rejected[0].generation, &back.rejected[0].generation));
    CHECK_INT(99, back.rejected[0].bytes);
    CHECK_STR("non-finite", back.rejected[0].reason);
    CHECK(back.bans.there && dl_hash_equal(back.bans.digest, e.bans.digest));
    again = written(&back);
    CHECK_INT(text.len, again.len);
    CHECK_BYTES(text.data, again.data, text.len);
    dl_buf_deinit(&text), dl_buf_deinit(&again);
    dl_entry_deinit(&e), dl_entry_deinit(&back);
}

static void cannot_reject(dl_entry *e, const char *why)
{
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_STATUS(DILOCO_EINVAL, dl_entry_write(&text, e, nesterov()));
    CHECK_CONTAINS(why, diloco_error_text());
    dl_buf_deinit(&text);
    dl_entry_deinit(e);
}

TEST(p27_rejections_are_distinct_not_members_and_have_a_word)
{
    dl_entry e = a_rejecting_entry();
    e.rejected[0].generation = generation_of("r2", 8);
    cannot_reject(&e, "r2 is a member and rejected");
    e = a_rejecting_entry();
    e.rejected[1] = e.rejected[0];
    e.n_members = 2, e.n_rejected = 2;
    cannot_reject(&e, "rejected r3 is not in order after r3");
    e = a_rejecting_entry();
    e.rejected[1] = e.rejected[0];
    e.rejected[1].generation = generation_of("r4", 0);
    e.n_rejected = 2; /* with three members */
    cannot_reject(&e, "more than 4 members and rejected");
    e = a_rejecting_entry();
    strcpy(e.rejected[0].reason, "a\x1b[31m");
    cannot_reject(&e, "reason of a rejection is invalid");
    e = a_rejecting_entry();
    e.commit = false;
    e.result = e.base;
    strcpy(e.abort.reason, "silent");
    cannot_reject(&e, "an abort that rejects");
}

TEST_MAIN(p27_rejections_and_bans_read_back_equal,
          p27_rejections_are_distinct_not_members_and_have_a_word,
          fed_17_abort_without_members_may_name_its_resulting_state, a_commit_reads_back_equal,
          an_entry_that_names_a_combined_update_reads_back, an_entry_of_version_1_is_still_read,
          an_abort_reads_back_with_its_reason, entry_that_no_reader_accepts_is_not_written,
          untrusted_text_is_refused_by_the_name_of_the_wrong_member,
          more_members_than_there_is_room_for_are_refused, every_flipped_bit_and_every_cut_is_found,
          reading_and_writing_again_allocate_nothing, a_roster_keeps_its_order_and_its_size,
          a_thousand_members_fit_into_the_longest_text)
