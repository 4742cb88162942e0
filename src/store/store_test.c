/* store_test.c - the suite over every store that needs no server, and what store.c and
 * probe.c do by themselves. */
#include "store/wrap/layers.h"

#include "check.h"
#include "scratch.h"
#include "store_suite.h"

/* ---- faulty with nothing to do passes the suite, too */

static dl_store *open_faultless(const char *url)
{
    dl_store *inner, *outer;
    CHECK_OK(dl_store_open(&inner, url, true));
    CHECK_OK(dl_store_faulty(&outer, inner, (dl_faults){.seed = 1}));
    return outer;
}

static void make_inner(char url[512])
{
    strcpy(url, "mem://inside-faulty");
}
static void destroy_inner(const char *url)
{
    store_row_mem.destroy(url);
}

static const store_row row_faulty = {"faulty", make_inner, open_faultless, destroy_inner, false};

/* ---- a bulk and a coord pass it together */

static const dl_store_address split_address = {.url = "mem://bulk", .coord = "mem://coord"};

static void make_split(char url[512])
{
    strcpy(url, split_address.url);
}

static dl_store *open_any(const char *url)
{
    dl_store *s;
    CHECK_OK(dl_store_open(&s, url, true));
    return s;
}

static dl_store *open_at(dl_store_address address)
{
    dl_store *s;
    CHECK_OK(dl_store_open_at(&s, &address, true));
    return s;
}

static dl_store *open_split(const char *url)
{
    (void)url;
    return open_at(split_address);
}

static void destroy_split(const char *url)
{
    (void)url;
    store_row_mem.destroy("mem://bulk");
    store_row_mem.destroy("mem://coord");
}

static const store_row row_split = {"split", make_split, open_split, destroy_split, true};

static diloco_status note_len(void *context, const char *key, size_t len)
{
    return dl_buf_addf(context, "%s %zu ", key, len);
}

static void check_lens(dl_store *s, const char *prefix, const char *expected)
{
    dl_buf out;
    dl_buf_init(&out, 1000);
    CHECK_OK(dl_store_list(s, prefix, NULL, note_len, &out, DL_NEVER));
    CHECK_STR(expected, out.len ? dl_buf_str(&out) : "");
    dl_buf_deinit(&out);
}

TEST(names_that_decide_are_stored_in_the_coord_and_bytes_in_the_bulk)
{
    dl_store *s = open_at(split_address), *bulk = open_any("mem://bulk"),
             *coord = open_any("mem://coord");
    store_must_create(s, "run.json", "{}");
    store_must_create(s, "log/0000000000.json", "entry");
    store_must_create(s, "gen/r0.0000", "life");
    store_must_create(s, "c/0000000000/r0.0000", "contribution");
    store_must_create(s, "snap/0000000001/r0.0000/manifest.json", "snapshot");
    CHECK_OK(dl_store_put(s, "hb/r0.0000", "beat", 4, DL_NEVER));
    CHECK_STR("c/0000000000/r0.0000 run.json snap/0000000001/r0.0000/manifest.json ",
              store_keys(bulk, "", NULL));
    CHECK_STR("c/0000000000/r0.0000 gen/r0.0000 hb/r0.0000 log/0000000000.json run.json ",
              store_keys(coord, "", NULL));
    store_must_hold(coord, "c/0000000000/r0.0000", "12");
    store_must_hold(s, "c/0000000000/r0.0000", "contribution");
    check_lens(s, "c/0000000000/", "c/0000000000/r0.0000 12 ");
    CHECK_OK(dl_store_delete(s, "c/0000000000/r0.0000", DL_NEVER));
    CHECK_STR("run.json snap/0000000001/r0.0000/manifest.json ", store_keys(bulk, "", NULL));
    check_lens(s, "c/", "");
    dl_store_close(s);
    dl_store_close(bulk);
    dl_store_close(coord);
}

TEST(unannounced_bytes_have_no_owner_until_their_writer_retries)
{
    dl_store *s = open_at(split_address), *bulk = open_any("mem://bulk");
    store_must_create(bulk, "c/0000000000/r0.0000", "contribution"); /* killed after that */
    check_lens(s, "c/", "");
    dl_buf text;
    dl_buf_init(&text, 64);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(s, &text, "c/0000000000/r0.0000", DL_NEVER));
    dl_buf_deinit(&text);
    const dl_span other = {"other", 5};
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_store_create(s, "c/0000000000/r0.0000", &other, 1, NULL, DL_NEVER));
    check_lens(s, "c/", "");
    store_must_create(s, "c/0000000000/r0.0000", "contribution");
    check_lens(s, "c/", "c/0000000000/r0.0000 12 ");
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_store_create(s, "c/0000000000/r0.0000", &other, 1, NULL, DL_NEVER));
    dl_store_close(s);
    dl_store_close(bulk);
}

TEST(an_invalid_announcement_hides_only_its_own_name)
{
    dl_store *s = open_at(split_address), *coord = open_any("mem://coord");
    dl_buf text;
    store_must_create(s, "c/0000000000/r1.0000", "contribution");
    store_must_create(coord, "c/0000000000/r0.0000", "twelve");
    store_must_create(coord, "c/0000000000/r2.0000", "12345678901234567890123456789");
    store_must_create(coord, "c/0000000000/r3.0000", "");
    check_lens(s, "c/", "c/0000000000/r1.0000 12 ");
    dl_buf_init(&text, 64);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(s, &text, "c/0000000000/r0.0000", DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(s, &text, "c/0000000000/r2.0000", DL_NEVER));
    dl_buf_deinit(&text);
    dl_store_close(s);
    dl_store_close(coord);
}

TEST(the_coord_says_which_run_it_is_and_the_bulk_has_a_copy)
{
    dl_store *s = open_at(split_address), *bulk = open_any("mem://bulk"),
             *coord = open_any("mem://coord");
    const dl_span mine = {"mine", 4};
    bool taken;
    store_must_create(coord, "run.json", "theirs"); /* killed before the copy */
    CHECK_STATUS(DILOCO_EEXIST, dl_store_create(s, "run.json", &mine, 1, &taken, DL_NEVER));
    CHECK(taken);
    store_must_hold(bulk, "run.json", "theirs");
    CHECK_OK(dl_store_put(bulk, "run.json", "another", 7, DL_NEVER));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_store_create(s, "run.json", &mine, 1, &taken, DL_NEVER));
    dl_store_close(s);
    CHECK_STATUS(DILOCO_EDIFFERS, dl_store_open_at(&s, &split_address, true));
    CHECK_CONTAINS("hold two different runs", diloco_error_text());
    dl_store_close(bulk);
    dl_store_close(coord);
}

/* ---- a store that looks before it writes */

TEST(p26_an_unguarded_store_keeps_the_first_of_those_that_come_one_by_one)
{
    dl_store *s = open_at((dl_store_address){.url = "mem://plain", .unguarded = true}),
             *inner = open_any("mem://plain");
    const dl_span one = {"one", 3}, two = {"two", 3};
    bool taken;
    CHECK_OK(dl_store_create(s, "a", &one, 1, &taken, DL_NEVER));
    CHECK(!taken);
    CHECK_OK(dl_store_create(s, "a", &one, 1, &taken, DL_NEVER));
    CHECK(taken);
    CHECK_STATUS(DILOCO_EEXIST, dl_store_create(s, "a", &two, 1, &taken, DL_NEVER));
    store_must_hold(inner, "a", "one");
    CHECK_STR("mem://plain unguarded", dl_store_url(s));
    dl_store_close(s);
    dl_store_close(inner);
}

TEST(address_of_a_handle_opens_the_same_store_with_its_layers)
{
    dl_store *s = open_at((dl_store_address){"mem://bulk", "mem://coord", .unguarded = true});
    dl_store *faulty;
    store_must_create(s, "log/0000000000.json", "entry");
    CHECK_OK(dl_store_faulty(&faulty, s, (dl_faults){.seed = 1}));
    dl_store *again = open_at(*dl_store_address_of(faulty));
    store_must_hold(again, "log/0000000000.json", "entry");
    CHECK_STR("mem://bulk unguarded with mem://coord", dl_store_url(again));
    dl_store_close(faulty);
    dl_store_close(again);
}

/* ---- urls */

TEST(a_folder_may_have_the_name_of_a_layer_pattern)
{
    const char *const names[] = {"ours with theirs", "kept unguarded"};
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path(names[i]);
        dl_store *s = open_any(path);
        store_must_create(s, "a", "one");
        CHECK_STR(path, dl_store_url(s));
        dl_store_close(s);
        char object[4096];
        snprintf(object, sizeof object, "%s/a", path);
        CHECK_INT(0, access(object, R_OK));
    }
}

TEST(the_server_of_a_url_is_reported)
{
    static const char *const of[][2] = {
        {"http://host:1/run", "http://host:1"},
        {"https://host/a/b", "https://host"},
        {"s3://b/p?part_mib=8&endpoint=http://host:9000", "http://host:9000"},
        {"s3://b?endpoint=https://host/x&region=r", "https://host"},
        {"az://c?endpoint=http%3A%2F%2fhost", "http://host"},
        {"s3://b?ca=endpoint=:///x&endpoint=http://host", "http://host"},
        {"s3://b/endpoint=/x?pin=://h/&endpoint=http://host", "http://host"},
        {"s3://b?endpoint=", "nowhere"},
        {"s3://b?endpoint=://", "://"},
        {"s3://b?endpoint=http://h%6Fst", "http://host"},
        {"s3://b?endpoint=x%a", "nowhere"},
        {"s3://b?endpoint=http://h%+1", "nowhere"},
        {"s3://b?endpoint=http://h% 5", "nowhere"},
        {"s3://b?endpoint=http://h%00.example", "nowhere"},
        {"s3://b/p", ""},
        {"s3://b/p?endpoints=x", ""},
        {"etcd://host:2379/run", ""},
        {"mem://x", ""},
        {"/a/folder", ""},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char server[DL_STORE_SERVER];
        dl_store_server(server, sizeof server, of[i][0]);
        CHECK_STR(of[i][1], server);
    }
}

static void check_refused(diloco_status expected, const char *url, const char *part)
{
    dl_store *store = NULL;
    CHECK_STATUS(expected, dl_store_open(&store, url, true));
    CHECK(store == NULL);
    CHECK_CONTAINS(part, diloco_error_text());
}

TEST(unknown_stores_are_refused_by_name_with_the_known_ones)
{
    check_refused(DILOCO_EINVAL, "ftp://host/x", "no ftp:// stores");
    check_refused(DILOCO_EINVAL, "s4://bucket/x", "no s4:// stores; known are file://, mem://");
    check_refused(DILOCO_EINVAL, "files:///x", "no files:// stores");
    check_refused(DILOCO_EINVAL, "fil:///x", "no fil:// stores");
    check_refused(DILOCO_EINVAL, "://x", "no :// stores");
}

#if DL_CLOUD
/* The hosts are of the reserved domain .invalid, which no resolver knows. */
TEST(a_password_of_etcd_does_not_go_unencrypted_to_a_name_that_begins_like_this_machine)
{
    static const char *const hosts[] = {"localhost.invalid:2379", "127.0.0.1.invalid:2379"};
    char url[80];
    setenv("DILOCO_ETCD_USER", "user", 1);
    setenv("DILOCO_ETCD_PASSWORD", "password", 1);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        setenv("DILOCO_ETCD_HOSTS", hosts[i], 1);
        snprintf(url, sizeof url, "etcd://%s/run", hosts[i]);
        check_refused(DILOCO_EREFUSED, url, "a password goes over etcds:// only");
    }
    unsetenv("DILOCO_ETCD_USER");
    unsetenv("DILOCO_ETCD_PASSWORD");
    unsetenv("DILOCO_ETCD_HOSTS");
}
#else
TEST(a_store_that_this_build_leaves_out_is_refused_by_name)
{
    check_refused(DILOCO_EREFUSED, "s3://bucket/x", "s3:// stores are left out");
    check_refused(DILOCO_EREFUSED, "hf://buckets/a/b/c", "hf:// stores are left out");
}
#endif

TEST(a_url_names_a_place)
{
    check_refused(DILOCO_EINVAL, "", "names no place");
    check_refused(DILOCO_EINVAL, "file://", "names no place");
    check_refused(DILOCO_EINVAL, "mem://", "names no place");
    check_refused(DILOCO_EINVAL, "file://relative/path", "absolute path");
    check_refused(DILOCO_EINVAL, "mem://a b", "letters, digits");
}

TEST(a_plain_path_is_the_same_store_as_its_file_url)
{
    char path[512], url[600];
    dl_store *plain, *file;
    store_make_folder(path);
    snprintf(url, sizeof url, "file://%s/", path);
    CHECK_OK(dl_store_open(&plain, path, true));
    CHECK_OK(dl_store_open(&file, url, false));
    CHECK_STR(url, dl_store_url(file));
    store_must_create(plain, "a", "x");
    store_must_hold(file, "a", "x");
    dl_store_close(plain);
    dl_store_close(file);
    store_remove_folder(path);
}

TEST(a_missing_store_is_made_only_when_asked)
{
    dl_store *first, *second;
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&first, "mem://m", false));
    CHECK_OK(dl_store_open(&first, "mem://m", true));
    CHECK_OK(dl_store_open(&second, "mem://m", false));
    store_must_create(first, "a", "x");
    dl_store_close(first);
    store_must_hold(second, "a", "x"); /* exists as long as its last handle */
    dl_store_close(second);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&first, "mem://m", false));
    dl_store_close(NULL);
}

TEST(mem_stores_of_different_names_are_different)
{
    dl_store *a, *b;
    CHECK_OK(dl_store_open(&a, "mem://a", true));
    CHECK_OK(dl_store_open(&b, "mem://b", true));
    store_must_create(a, "k", "of a");
    store_must_create(b, "k", "of b");
    store_must_hold(a, "k", "of a");
    dl_store_close(b);
    dl_store_close(a);
}

/* ---- results of a kind are checked */

typedef struct faulty {
    int dummy;
} faulty;

static size_t faulty_announces, faulty_gives;
static const char *const *faulty_keys; /* until NULL */

static void faulty_close(void *self)
{
    (void)self;
}

static diloco_status faulty_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    (void)self, (void)key, (void)until;
    DL_TRY(sink.begin(sink.context, faulty_announces));
    for (size_t i = 0; i < faulty_gives; i++)
        DL_TRY(sink.piece(sink.context, "x", 1));
    return DILOCO_OK;
}

static diloco_status faulty_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until)
{
    (void)self, (void)prefix, (void)after, (void)until;
    for (const char *const *key = faulty_keys; *key; key++)
        DL_TRY(found(context, *key, 1));
    return DILOCO_OK;
}

static const dl_store_kind faulty_kind = {.scheme = "liar",
                                          .size = sizeof(faulty),
                                          .close = faulty_close,
                                          .read = faulty_read,
                                          .list = faulty_list};

static dl_store *open_faulty(void)
{
    void *self;
    const atomic_bool *aborted;
    dl_store *store;
    CHECK_OK(dl_store_wrap(&store, &faulty_kind, "liar://", &self, &aborted));
    return store;
}

TEST(an_object_of_another_length_than_announced_is_refused)
{
    dl_store *store = open_faulty();
    dl_buf buf;
    dl_buf_init(&buf, 100);
    faulty_announces = 5;
    faulty_gives = 4;
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "k", DL_NEVER));
    CHECK_CONTAINS("ended after 4 of 5 bytes", diloco_error_text());
    faulty_gives = 6;
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "k", DL_NEVER));
    CHECK_CONTAINS("longer than the 5 bytes announced", diloco_error_text());
    CHECK_INT(0, buf.len);
    faulty_announces = SIZE_MAX; /* refused before any memory is asked for */
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "k", DL_NEVER));
    CHECK(buf.cap <= 100);
    dl_buf_deinit(&buf);
    dl_store_close(store);
}

static diloco_status ignore(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    return DILOCO_OK;
}

static void check_refuses_lists(dl_store *store)
{
    static const char *const lists[][3] = {{"c/b", "c/a"}, {"c/a", "c/a"}, {"d/a"}, {"c/../d"},
                                           {"c/"},         {"c"},          {"c/0"} /* = after */};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        faulty_keys = lists[i];
        CHECK_STATUS(DILOCO_EPROTO, dl_store_list(store, "c/", "c/0", ignore, NULL, DL_NEVER));
    }
}

TEST(a_listing_out_of_order_or_place_is_refused)
{
    dl_store *store = open_faulty();
    check_refuses_lists(store);
    dl_store_close(store);
}

/* A wrapper passes keys on unchecked, because its own listing is checked. */
TEST(a_wrapped_listing_out_of_order_or_place_is_refused)
{
    dl_store *store;
    CHECK_OK(dl_store_faulty(&store, open_faulty(), (dl_faults){.seed = 1}));
    check_refuses_lists(store);
    dl_store_close(store);
}

TEST(a_kind_without_wait_sleeps_and_can_be_aborted)
{
    dl_store *store = open_faulty();
    const char *prefix = "c/";
    CHECK_OK(dl_store_wait(store, &prefix, 1, true, DL_NEVER)); /* returns to look again */
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_wait(store, &prefix, 1, true, dl_clock_now() + 1));
    dl_store_abort(store);
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_wait(store, &prefix, 1, true, DL_NEVER));
    dl_store_close(store);
}

/* A store whose every look is paid for, as a bucket's; a call waits for a millisecond at most, as
 * one does that has to hear an interrupt. How many calls until it says: look again? */
static int calls_until_a_look(dl_store *store, bool progress)
{
    const char *prefix = "c/";
    diloco_status status = DILOCO_ETIMEDOUT;
    int n = 0;
    for (; status == DILOCO_ETIMEDOUT && n < 100000; n++)
        status = dl_store_wait(store, &prefix, 1, progress && n == 0,
                               dl_time_after(dl_clock_now(), DL_MILLISECOND));
    CHECK_STATUS(DILOCO_OK, status);
    return n;
}

TEST(a_back_off_outlasts_calls_that_end_before_it)
{
    static const dl_store_kind paid = {.scheme = "paid",
                                       .size = 1,
                                       .pause_min = 20 * DL_MILLISECOND,
                                       .pause_max = 80 * DL_MILLISECOND,
                                       .close = faulty_close};
    void *self;
    const atomic_bool *aborted;
    dl_store *store;
    CHECK_OK(dl_store_wrap(&store, &paid, "paid://", &self, &aborted));
    CHECK(calls_until_a_look(store, true) <= 21); /* 15 to 20 ms: a quarter is jitter */
    const int second = calls_until_a_look(store, false), third = calls_until_a_look(store, false);
    CHECK(second >= 1 && second <= 41);
    CHECK(third >= 1 && third <= 81);
    for (int i = 0; i < 3; i++)
        CHECK(calls_until_a_look(store, false) <= 81);
    CHECK(calls_until_a_look(store, true) <= 21);
    dl_store_close(store);
}

/* ---- accepted values */

static void check_may_recover(const char *url, bool io)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    for (int layer = 0; layer < 2; layer++) { /* as it is, and with faults */
        CHECK(dl_store_may_recover(store, DILOCO_EUNREACHABLE));
        CHECK(dl_store_may_recover(store, DILOCO_EFULL));
        CHECK(dl_store_may_recover(store, DILOCO_EIO) == io);
        CHECK(!dl_store_may_recover(store, DILOCO_OK));
        CHECK(!dl_store_may_recover(store, DILOCO_ENOENT));
        CHECK(!dl_store_may_recover(store, DILOCO_EPROTO));
        CHECK(!dl_store_may_recover(store, DILOCO_EREFUSED));
        if (!layer) CHECK_OK(dl_store_faulty(&store, store, (dl_faults){.seed = 1}));
    }
    dl_store_close(store);
}

TEST(a_store_may_recover_from_silence_and_want_of_space_and_a_folder_from_io_errors)
{
    char url[512];
    store_row_file.make(url);
    check_may_recover(url, true);
    store_row_file.destroy(url);
    check_may_recover("mem://recovers", false);
}

/* ---- the probe */

static void check_probe(const store_row *row)
{
    char url[512];
    dl_probe probe;
    dl_store *store;
    row->make(url);
    store = row->open(url); /* keeps mem:// alive */
    CHECK_OK(
        dl_store_probe(&probe, &(dl_store_address){.url = url}, DL_PROBE_MOST, NULL, DL_NEVER));
    CHECK_INT(1, probe.winners);
    CHECK(probe.create_ms > 0 && probe.read_ms > 0);
    CHECK(probe.write_mb_per_s > 0 && probe.read_mb_per_s > 0);
    CHECK_STR("", store_keys(store, "", NULL));
    dl_store_close(store);
    row->destroy(url);
}

TEST(the_probe_accepts_file_and_mem_and_cleans_up)
{
    check_probe(&store_row_file);
    check_probe(&store_row_mem);
}

static unsigned kind_of_probe(const char *key)
{
    return strncmp(key, "probe/", 6) ? 0 : 1;
}

/* 8 creates of one name and 5 small objects of 64 bytes, each read back, and the long ones. */
static void check_probe_moves(uint64_t long_bytes, size_t largest)
{
    dl_probe probe;
    dl_moved tally = {.kind_of = kind_of_probe};
    CHECK_OK(dl_store_probe(&probe, &(dl_store_address){.url = "mem://bounded"}, largest, &tally,
                            DL_NEVER));
    CHECK_INT(0, tally.sent[0] + tally.received[0]);
    CHECK_INT((1 + 5) * 64 + long_bytes, tally.sent[1]);
    CHECK((long_bytes > 0) == (probe.write_mb_per_s > 0));
}

TEST(the_probe_moves_no_object_longer_than_it_may)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, "mem://bounded", true)); /* keeps it alive */
    check_probe_moves(0, 0);
    check_probe_moves(0, DL_PROBE_LEAST - 1);
    check_probe_moves(DL_PROBE_LEAST, DL_PROBE_LEAST);
    check_probe_moves((256 << 10) + 300000, 300000);
    check_probe_moves((256 << 10) + (8 << 20), SIZE_MAX);
    dl_store_close(store);
}

static void check_tally(const dl_moved *tally, uint64_t sent, uint64_t received)
{
    CHECK_INT(sent, tally->sent[1]);
    CHECK_INT(received, tally->received[1]);
}

TEST(a_tally_sums_the_bytes_of_its_handles_by_kind)
{
    dl_moved tally = {.kind_of = kind_of_probe};
    dl_store *stores[2];
    dl_buf back;
    const dl_span span = {"12345", 5};
    dl_buf_init(&back, 100);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_store_open(&stores[i], "mem://tally", true));
        CHECK(!dl_store_tally(stores[i]));
        dl_store_count_into(stores[i], &tally);
        CHECK(dl_store_tally(stores[i]) == &tally);
    }
    CHECK_OK(dl_store_create(stores[0], "probe/a", &span, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_put(stores[0], "x", "123", 3, DL_NEVER));
    check_tally(&tally, 5, 0);
    CHECK_OK(dl_store_get(stores[1], &back, "probe/a", DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(stores[1], &back, "probe/b", DL_NEVER));
    check_tally(&tally, 5, 5);
    CHECK_INT(3, tally.sent[0]);
    dl_store_count_into(stores[0], NULL);
    CHECK_OK(dl_store_put(stores[0], "probe/c", "123", 3, DL_NEVER));
    check_tally(&tally, 5, 5);
    for (int i = 0; i < 2; i++)
        dl_store_close(stores[i]);
    dl_buf_deinit(&back);
}

static void check_probe_of_faulty(diloco_status expected, dl_faults faults, const char *part)
{
    dl_store *handles[DL_PROBE_HANDLES], *inner;
    dl_probe probe;
    for (int i = 0; i < DL_PROBE_HANDLES; i++) {
        CHECK_OK(dl_store_open(&inner, "mem://probed", true));
        CHECK_OK(dl_store_faulty(&handles[i], inner, faults));
    }
    CHECK_STATUS(expected, dl_store_probe_handles(&probe, handles, DL_PROBE_MOST, DL_NEVER));
    CHECK_CONTAINS(part, diloco_error_text());
    for (int i = 0; i < DL_PROBE_HANDLES; i++)
        dl_store_close(handles[i]);
}

TEST(the_probe_refuses_a_store_that_lets_several_win)
{
    check_probe_of_faulty(DILOCO_EREFUSED, (dl_faults){.win_every_create = true},
                          "let 8 of 8 concurrent creates of one name win");
    check_probe_of_faulty(DILOCO_EREFUSED, (dl_faults){.p_flip = 1}, "");
    check_probe_of_faulty(DILOCO_EUNREACHABLE, (dl_faults){.p_unreachable_before = 1},
                          "probing the store");
}

TEST(the_probe_of_a_store_that_cannot_be_opened_says_why)
{
    dl_probe probe;
    CHECK_STATUS(DILOCO_EINVAL, dl_store_probe(&probe, &(dl_store_address){.url = "s4://x"},
                                               DL_PROBE_MOST, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_probe(&probe, &(dl_store_address){.url = "mem://late"},
                                                  DL_PROBE_MOST, NULL, dl_clock_now() - 1));
}

typedef struct changing_walk {
    dl_store *store;
    char seen[32];
} changing_walk;

/* At the first key it deletes the second one, and creates a last one. */
static diloco_status change_meanwhile(void *context, const char *key, size_t len)
{
    changing_walk *w = context;
    (void)len;
    if (!*w->seen) {
        CHECK_OK(dl_store_delete(w->store, "k/b", DL_NEVER));
        CHECK_OK(dl_store_create(w->store, "k/e", &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    }
    strcat(strcat(w->seen, key), " ");
    return DILOCO_OK;
}

TEST(a_listing_in_memory_follows_changes)
{
    static const char *const keys[] = {"k/a", "k/b", "k/c", "k/d", "l"};
    changing_walk w = {.store = open_any("mem://changing")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK_OK(dl_store_create(w.store, keys[i], &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_list(w.store, "k/", NULL, change_meanwhile, &w, DL_NEVER));
    CHECK_STR("k/a k/c k/d k/e ", w.seen);
    dl_store_close(w.store);
}

static int own_tests(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_decide_are_stored_in_the_coord_and_bytes_in_the_bulk),
        cmocka_unit_test(unannounced_bytes_have_no_owner_until_their_writer_retries),
        cmocka_unit_test(an_invalid_announcement_hides_only_its_own_name),
        cmocka_unit_test(the_coord_says_which_run_it_is_and_the_bulk_has_a_copy),
        cmocka_unit_test(p26_an_unguarded_store_keeps_the_first_of_those_that_come_one_by_one),
        cmocka_unit_test(address_of_a_handle_opens_the_same_store_with_its_layers),
        cmocka_unit_test(a_folder_may_have_the_name_of_a_layer_pattern),
        cmocka_unit_test(the_server_of_a_url_is_reported),
        cmocka_unit_test(unknown_stores_are_refused_by_name_with_the_known_ones),
#if DL_CLOUD
        cmocka_unit_test(
            a_password_of_etcd_does_not_go_unencrypted_to_a_name_that_begins_like_this_machine),
#else
        cmocka_unit_test(a_store_that_this_build_leaves_out_is_refused_by_name),
#endif
        cmocka_unit_test(a_url_names_a_place),
        cmocka_unit_test(a_plain_path_is_the_same_store_as_its_file_url),
        cmocka_unit_test(a_missing_store_is_made_only_when_asked),
        cmocka_unit_test(mem_stores_of_different_names_are_different),
        cmocka_unit_test(a_listing_in_memory_follows_changes),
        cmocka_unit_test(an_object_of_another_length_than_announced_is_refused),
        cmocka_unit_test(a_listing_out_of_order_or_place_is_refused),
        cmocka_unit_test(a_wrapped_listing_out_of_order_or_place_is_refused),
        cmocka_unit_test(a_kind_without_wait_sleeps_and_can_be_aborted),
        cmocka_unit_test(a_back_off_outlasts_calls_that_end_before_it),
        cmocka_unit_test(the_probe_accepts_file_and_mem_and_cleans_up),
        cmocka_unit_test(
            a_store_may_recover_from_silence_and_want_of_space_and_a_folder_from_io_errors),
        cmocka_unit_test(the_probe_moves_no_object_longer_than_it_may),
        cmocka_unit_test(a_tally_sums_the_bytes_of_its_handles_by_kind),
        cmocka_unit_test(the_probe_refuses_a_store_that_lets_several_win),
        cmocka_unit_test(the_probe_of_a_store_that_cannot_be_opened_says_why),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv)
{
    if (argc > 1) return own_tests(argc, argv);
    return own_tests(argc, argv) + store_suite_run(&store_row_file) +
           store_suite_run(&store_row_mem) + store_suite_run(&row_faulty) +
           store_suite_run(&row_split);
}
