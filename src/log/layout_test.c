/* layout_test.c - every name is made and read back, sorts as its numbers do, and
 * has exactly one spelling. Other keys in a listing are not taken for ours. */
#include "log/layout.h"

#include "check.h"

static dl_generation generation_of(const char *replica, uint32_t number)
{
    dl_generation generation = {.number = number};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    return generation;
}

TEST(names_follow_the_layout)
{
    dl_generation r0 = generation_of("r0", 3);
    dl_key key;
    dl_key_gen(key, &r0);
    CHECK_STR("gen/r0.0003", key);
    dl_key_end(key, &r0);
    CHECK_STR("end/r0.0003", key);
    dl_key_heartbeat(key, &r0);
    CHECK_STR("hb/r0.0003", key);
    dl_key_entry(key, 12);
    CHECK_STR("log/0000000012.json", key);
    dl_key_contribution(key, 12, &r0);
    CHECK_STR("c/0000000012/r0.0003", key);
    dl_key_contributions(key, 12);
    CHECK_STR("c/0000000012/", key);
    dl_key_combined(key, 12, &r0);
    CHECK_STR("x/0000000012/r0.0003", key);
    dl_key_snapshot(key, 12, &r0, "manifest.json");
    CHECK_STR("snap/0000000012/r0.0003/manifest.json", key);
    dl_key_record(key, &r0, 7);
    CHECK_STR("rec/r0.0003/0000000007.jsonl.zst", key);
    dl_key_output(key, "diloco-1f0c2ab9-r3-g0", 1, 7);
    CHECK_STR("out/diloco-1f0c2ab9-r3-g0/0000000001-0000000007.zst", key);
    dl_key_theta0(key, dl_hash_bytes("x", 1));
    CHECK_CONTAINS("theta0/", key);
    CHECK_CONTAINS(".safetensors", key);
    CHECK_INT(7 + DL_HASH_HEX + 12, strlen(key));
}

TEST(names_are_read_back)
{
    static const uint64_t entries[] = {0, 9, 9999999999u, 10000000000u, UINT64_MAX};
    static const uint32_t generations[] = {0, 9999, 10000, 9999999};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        for (size_t k = 0; k < sizeof generations / sizeof *generations; k++) {
            dl_generation generation =
                              generation_of("A-long_name-of-31-bytes-0123456", generations[k]),
                          back;
            uint64_t entry;
            dl_key key;
            dl_key_contribution(key, entries[i], &generation);
            CHECK(dl_key_parse_contribution(&entry, &back, key));
            CHECK(entry == entries[i] && dl_generation_equal(&generation, &back));
            dl_key_snapshot(key, entries[i], &generation, "manifest.json");
            CHECK(dl_key_parse_snapshot(&entry, &back, key));
            CHECK(entry == entries[i] && dl_generation_equal(&generation, &back));
            dl_key_record(key, &generation, entries[i]);
            CHECK(dl_key_parse_record(&back, &entry, key));
            CHECK(entry == entries[i] && dl_generation_equal(&generation, &back));
            dl_key_entry(key, entries[i]);
            CHECK(dl_key_parse_entry(&entry, key));
            CHECK(entry == entries[i]);
            dl_key_heartbeat(key, &generation);
            CHECK(dl_key_parse_generation(&back, key, "hb/"));
            CHECK(dl_generation_equal(&generation, &back));
        }
    }
}

TEST(a_name_has_one_spelling)
{
    static const char *const generations[] = {"",
                                              "hb/",
                                              "hb/r0",
                                              "hb/r0.",
                                              "hb/r0.1",
                                              "hb/r0.001",
                                              "hb/r0.00001",
                                              "hb/.0001",
                                              "hb/r0.0001x",
                                              "hb/r0.0001/",
                                              "hb/r 0.01",
                                              "hb/r0.-001",
                                              "hb/r0.+001",
                                              "hb/r0. 001",
                                              "hb/r0.10000000",
                                              "gen/r0.00",
                                              "hb/a/b.0001",
                                              "hb/r0.0.0001",
                                              "hb/r0.18446744073709551617",
                                              "hb/a-name-of-thirty-two-bytes-01234.0001"};
    dl_generation generation = generation_of("kept", 1);
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        CHECK(!dl_key_parse_generation(&generation, generations[i], "hb/"));
    CHECK_STR("kept", generation.replica);

    static const char *const entries[] = {"log/12.json",
                                          "log/00000000012.json",
                                          "log/0000000012.jsonx",
                                          "log/0000000012",
                                          "log/.json",
                                          "lag/0000000012.json",
                                          "log/000000001a.json",
                                          "log/99999999999999999999.json",
                                          "log/-000000012.json"};
    uint64_t entry = 5;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        CHECK(!dl_key_parse_entry(&entry, entries[i]));

    static const char *const contributions[] = {
        "c/12/r0.0003",          "c/0000000012",         "c/0000000012/",
        "c/0000000012/r0.3",     "x/0000000012/r0.0003", "c/0000000012/r0.0003/more",
        "c/00000000012/r0.0003", "c/0000000012r0.0003"};
    for (size_t i = 0; i < sizeof contributions / sizeof *contributions; i++)
        CHECK(!dl_key_parse_contribution(&entry, &generation, contributions[i]));

    static const char *const snapshots[] = {
        "snap/0000000012/r0.0003", "snap/0000000012/r0.0003/state.safetensors",
        "snap/0000000012/r0.0003/manifest.json/x", "snap/12/r0.0003/manifest.json"};
    for (size_t i = 0; i < sizeof snapshots / sizeof *snapshots; i++)
        CHECK(!dl_key_parse_snapshot(&entry, &generation, snapshots[i]));
    static const char *const records[] = {"rec/",
                                          "rec/r0.0003",
                                          "rec/r0.0003/",
                                          "rec/r0.0003/1.jsonl.zst",
                                          "rec/0000000001.jsonl.zst",
                                          "rec/r0.0003/0000000001.jsonl",
                                          "rec/r0.3/0000000001.jsonl.zst"};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        CHECK(!dl_key_parse_record(&generation, &entry, records[i]));
    CHECK_INT(5, entry);
}

TEST(numbers_of_output_have_10_digits)
{
    static const char *const names[] = {"out/j/1-0000000000.zst",
                                        "out/j/0000000001-0.zst",
                                        "out/j/0000000001-0000000000",
                                        "out/j/0000000001.zst",
                                        "out/j/00000000010000000000.zst",
                                        "out/j/10000000000-0000000000.zst",
                                        "out/j/0000000001-10000000000.zst",
                                        "out/j/18446744073709551615-0000000000.zst",
                                        "out/j/18446744073709551617-0000000000.zst",
                                        "out/j.k/0000000001-0000000000.zst"};
    char job[DL_OUTPUT_JOB_MAX + 1];
    uint64_t process, part;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(!dl_key_parse_output(job, &process, &part, names[i]));
    CHECK(dl_key_parse_output(job, &process, &part, "out/j/9999999999-0000000007.zst"));
    CHECK_STR("j", job);
    CHECK(process == 9999999999u && part == 7);
}

TEST(a_replica_name_is_1_to_31_plain_characters)
{
    CHECK(dl_replica_name_ok("r"));
    CHECK(dl_replica_name_ok("gpu-host_07"));
    CHECK(dl_replica_name_ok("0123456789012345678901234567890"));
    CHECK(!dl_replica_name_ok("01234567890123456789012345678901"));
    static const char *const bad[] = {"", "a.b", "a/b", "..", "a b", "a\n", "\xc3\xa9", "a:b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!dl_replica_name_ok(bad[i]));
}

TEST(replicas_sort_by_the_numbers_in_their_names)
{
    static const char *const order[] = {"-",
                                        "0",
                                        "1",
                                        "02",
                                        "2",
                                        "10",
                                        "A",
                                        "a",
                                        "a-",
                                        "a0",
                                        "a00",
                                        "a0b",
                                        "a1",
                                        "a9-2",
                                        "a9-10",
                                        "a10",
                                        "a99999999999999999999999999",
                                        "a100000000000000000000000000",
                                        "aa",
                                        "b"};
    /* a0 and a00 differ only by zeros in front; plain text order decides */
    size_t n = sizeof order / sizeof *order;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            int got = dl_replica_compare(order[i], order[k]);
            if ((got > 0) - (got < 0) != (i > k) - (i < k))
                CHECK_FAIL("%s against %s gives %d", order[i], order[k], got);
        }
}

/* The keys of these replicas, as a listing has them. */
TEST(replicas_have_the_order_of_their_keys)
{
    static const char *const order[] = {"a-", "a-9", "a", "a0", "a10", "a9", "aA", "a_", "aa", "b"};
    const size_t n = sizeof order / sizeof *order;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            const dl_generation a = generation_of(order[i], 3), b = generation_of(order[k], 3);
            dl_key first, second;
            dl_key_heartbeat(first, &a);
            dl_key_heartbeat(second, &b);
            const int wanted = strcmp(first, second),
                      got = dl_replica_listed_order(order[i], order[k]);
            CHECK_INT((wanted > 0) - (wanted < 0), (got > 0) - (got < 0));
            CHECK_INT((i > k) - (i < k), (got > 0) - (got < 0));
        }
}

TEST(generations_of_a_replica_sort_by_number)
{
    dl_generation a = generation_of("r2", 9), b = generation_of("r2", 10),
                  c = generation_of("r10", 0);
    CHECK(dl_generation_compare(&a, &b) < 0 && dl_generation_compare(&b, &a) > 0);
    CHECK(dl_generation_compare(&b, &c) < 0);
    CHECK_INT(0, dl_generation_compare(&a, &a));
    CHECK(!dl_generation_equal(&a, &b) && dl_generation_equal(&a, &a));
}

TEST_MAIN(names_follow_the_layout, names_are_read_back, a_name_has_one_spelling,
          numbers_of_output_have_10_digits, a_replica_name_is_1_to_31_plain_characters,
          replicas_sort_by_the_numbers_in_their_names, replicas_have_the_order_of_their_keys,
          generations_of_a_replica_sort_by_number)
