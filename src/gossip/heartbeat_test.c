/* heartbeat_test.c - a heartbeat reads back, and a damaged one does not. */
#include "gossip/heartbeat.h"

#include "store/kind.h"

#include "check.h"

static dl_beat example(void)
{
    return (dl_beat){.run = "0123456789abcdef0123456789abcdef",
                     .generation = {.replica = "r3", .number = 2},
                     .id = "00000000000000000000000000000007",
                     .address = "https://a.example:8800",
                     .contributed = 12,
                     .state = 11,
                     .stepped = 10,
                     .ignored = 1,
                     .step = 600,
                     .divergence = 0.5,
                     .done = true};
}

TEST(a_written_heartbeat_reads_back)
{
    const dl_beat b = example();
    dl_beat back;
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &b));
    CHECK_OK(dl_beat_read(&back, text.data, text.len));
    CHECK_STR(b.address, back.address);
    CHECK_STR("r3", back.generation.replica);
    CHECK_INT(12, back.contributed);
    CHECK_INT(1, back.ignored);
    CHECK(back.done && back.divergence == 0.5);
    dl_buf_deinit(&text);
}

TEST(one_flipped_byte_anywhere_is_refused_and_nothing_is_written)
{
    const dl_beat b = example();
    dl_beat back = {.step = 42};
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &b));
    for (size_t i = 0; i + 1 < text.len; i++) {
        text.data[i] ^= 1;
        CHECK(dl_beat_read(&back, text.data, text.len) != DILOCO_OK);
        text.data[i] ^= 1;
    }
    for (size_t len = 0; len + 1 < text.len; len++)
        CHECK(dl_beat_read(&back, text.data, len) != DILOCO_OK);
    CHECK_INT(42, back.step);
    dl_buf_deinit(&text);
}

TEST(a_heartbeat_with_an_invalid_address_is_refused)
{
    dl_beat b = example(), back;
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    snprintf(b.address, sizeof b.address, "file:///etc/passwd");
    CHECK_OK(dl_beat_write(&text, &b));
    CHECK_STATUS(DILOCO_EPROTO, dl_beat_read(&back, text.data, text.len));
    dl_buf_deinit(&text);
}

static bool take_two(void *n, const dl_beat *known)
{
    (void)known;
    return ++*(int *)n < 2;
}

/* With five heartbeats, r0 to r4. */
static dl_store *open_known(void)
{
    const dl_beat b = example();
    dl_store *store;
    dl_buf text;
    dl_key key;
    CHECK_OK(dl_store_open(&store, "mem://known", true));
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &b));
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%d", i);
        dl_key_known(key, name);
        CHECK_OK(dl_store_put(store, key, text.data, text.len, DL_NEVER));
    }
    dl_buf_deinit(&text);
    return store;
}

/* Each heartbeat is a request of its own. */
TEST(reading_whom_a_store_knows_stops_where_the_reader_has_enough)
{
    int n = 0;
    dl_store *store = open_known();
    const uint64_t before = dl_store_counts(store).n_get;
    CHECK_OK(dl_beats_known(store, 0, DL_SECOND, NULL, take_two, &n));
    CHECK_INT(2, n);
    CHECK_INT(2, dl_store_counts(store).n_get - before);
    dl_store_close(store);
}

static bool take_all(void *n, const dl_beat *known)
{
    (void)known;
    ++*(int *)n;
    return true;
}

static bool is_second(void *context, const char *name)
{
    (void)context;
    return !strcmp(name, "r1");
}

TEST(a_name_that_the_reader_knows_is_not_read)
{
    int n = 0;
    dl_store *store = open_known();
    const uint64_t before = dl_store_counts(store).n_get;
    CHECK_OK(dl_beats_known(store, 0, DL_SECOND, is_second, take_all, &n));
    CHECK_INT(4, n);
    CHECK_INT(4, dl_store_counts(store).n_get - before);
    dl_store_close(store);
}

/* Notes the names in the order in which they are considered. */
static bool note_name(void *names, const char *name)
{
    strcat(names, name);
    return false;
}

static bool take(void *names, const dl_beat *known)
{
    (void)names, (void)known;
    return true;
}

TEST(a_list_of_names_is_read_from_the_chosen_one_on)
{
    char names[64] = "";
    dl_store *store = open_known();
    CHECK_OK(dl_beats_known(store, 8, DL_SECOND, note_name, take, names));
    CHECK_STR("r3r4r0r1r2", names);
    dl_store_close(store);
}

/* Delays of years: the listing and the first name have none with this seed. */
TEST(a_store_that_does_not_answer_for_one_name_is_not_read_further)
{
    char names[64] = "";
    dl_store *store;
    CHECK_OK(dl_store_faulty(&store, open_known(),
                             (dl_faults){.seed = 4, .p_delay = 0.5, .delay_s = 1e9}));
    CHECK_OK(dl_beats_known(store, 0, DL_SECOND, note_name, take, names));
    CHECK_STR("r0r1", names);
    dl_store_close(store);
}

TEST_MAIN(a_list_of_names_is_read_from_the_chosen_one_on,
          a_store_that_does_not_answer_for_one_name_is_not_read_further,
          a_name_that_the_reader_knows_is_not_read,
          reading_whom_a_store_knows_stops_where_the_reader_has_enough,
          a_written_heartbeat_reads_back,
          one_flipped_byte_anywhere_is_refused_and_nothing_is_written,
          a_heartbeat_with_an_invalid_address_is_refused)
