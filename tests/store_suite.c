/* store_suite.c - the tests of store_suite.h. Threads report through return values; only
 * the main thread checks. Nothing here depends on how long something takes: a wait that is
 * never woken is cut by the time limit of the test program. */
#include "store_suite.h"

#include "base/hash.h"
#include "check.h"
#include "store/kind.h"

#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static const store_row *row;
static char url[512];
static dl_store *store, *other; /* two handles of one new, empty store */

/* ---- folders and shorthands */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void store_make_folder(char path[512])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 512, "%s/diloco-store-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    CHECK(mkdtemp(path) != NULL);
}

void store_remove_folder(const char *path)
{
    CHECK_INT(0, nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS));
}

static dl_span text_span(const char *text)
{
    return (dl_span){text, strlen(text)};
}

void store_must_create(dl_store *s, const char *key, const char *text)
{
    dl_span span = text_span(text);
    CHECK_OK(dl_store_create(s, key, &span, 1, NULL, DL_NEVER));
}

void store_must_hold(dl_store *s, const char *key, const char *text)
{
    dl_buf buf;
    dl_buf_init(&buf, 1 << 24);
    CHECK_OK(dl_store_get(s, &buf, key, DL_NEVER));
    CHECK_STR(text, dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

static diloco_status note_key(void *context, const char *key, size_t len)
{
    (void)len;
    return dl_buf_addf(context, "%s ", key);
}

const char *store_keys(dl_store *s, const char *prefix, const char *after)
{
    static char keys[8192];
    dl_buf buf;
    dl_buf_init(&buf, sizeof keys - 1);
    CHECK_OK(dl_store_list(s, prefix, after, note_key, &buf, DL_NEVER));
    memcpy(keys, dl_buf_str(&buf), buf.len + 1);
    dl_buf_deinit(&buf);
    return keys;
}

/* ---- the rows that every build has */

static dl_store *open_url(const char *u)
{
    dl_store *s;
    CHECK_OK(dl_store_open(&s, u, true));
    return s;
}

static void make_file(char out[512])
{
    char path[512];
    store_make_folder(path);
    CHECK(snprintf(out, 512, "file://%s", path) < 512);
}

static void destroy_file(const char *u)
{
    store_remove_folder(u + strlen("file://"));
}

static void make_mem(char out[512])
{
    strcpy(out, "mem://suite");
}
static void destroy_mem(const char *u)
{
    dl_store *s;
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&s, u, false)); /* gone with its last handle */
}

const store_row store_row_file = {"file", make_file, open_url, destroy_file, false};
const store_row store_row_mem = {"mem", make_mem, open_url, destroy_mem, false};

static int set_up(void **state)
{
    (void)state;
    row->make(url);
    store = row->open(url);
    other = row->open(url);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dl_store_close(store);
    dl_store_close(other);
    row->destroy(url);
    return 0;
}

/* ---- creating and reading */

TEST(an_object_is_its_spans_one_after_the_other)
{
    dl_span spans[] = {text_span("one "), {NULL, 0}, text_span("two"), {"", 0}};
    bool taken = true;
    CHECK_OK(dl_store_create(store, "c/0000000001/r0.0", spans, 4, &taken, DL_NEVER));
    CHECK(!taken);
    store_must_hold(other, "c/0000000001/r0.0", "one two");
}

TEST(an_empty_object_is_an_object)
{
    dl_buf buf;
    dl_buf_init(&buf, 8);
    CHECK_OK(dl_store_create(store, "empty", NULL, 0, NULL, DL_NEVER));
    CHECK_OK(dl_store_get(other, &buf, "empty", DL_NEVER));
    CHECK_INT(0, buf.len);
    CHECK_STR("empty ", store_keys(other, "", NULL));
    dl_buf_deinit(&buf);
}

/* Above one piece and not a multiple of it: the last short piece is where a mistake shows. */
TEST(a_large_object_comes_back_bit_by_bit)
{
    size_t n = dl_size_min((3u << 20) + 12345, dl_store_max_object(store));
    unsigned char *bytes = malloc(n);
    dl_buf buf;
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    dl_span span = {bytes, n};
    dl_buf_init(&buf, n);
    CHECK_OK(dl_store_create(store, "b/large", &span, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_get(other, &buf, "b/large", DL_NEVER));
    CHECK_INT(n, buf.len);
    CHECK(!memcmp(bytes, buf.data, n));
    bool taken; /* and compares as equal, piece by piece against other spans */
    dl_span halves[] = {{bytes, n / 2}, {bytes + n / 2, n - n / 2}};
    CHECK_OK(dl_store_create(other, "b/large", halves, 2, &taken, DL_NEVER));
    CHECK(taken);
    bytes[n - 1] ^= 1;
    CHECK_STATUS(DILOCO_EEXIST, dl_store_create(other, "b/large", halves, 2, &taken, DL_NEVER));
    dl_buf_deinit(&buf);
    free(bytes);
}

TEST(a_taken_name_is_success_for_equal_bytes_only)
{
    dl_span first = text_span("first"), longer = text_span("first!"), second = text_span("secnd");
    bool taken;
    store_must_create(store, "log/0000000001.json", "first");
    CHECK_OK(dl_store_create(other, "log/0000000001.json", &first, 1, &taken, DL_NEVER));
    CHECK(taken);
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_store_create(other, "log/0000000001.json", &second, 1, &taken, DL_NEVER));
    CHECK(taken);
    CHECK_CONTAINS("log/0000000001.json", diloco_error_text());
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_store_create(other, "log/0000000001.json", &longer, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_store_create(other, "log/0000000001.json", NULL, 0, NULL, DL_NEVER));
    store_must_hold(store, "log/0000000001.json", "first");
}

TEST(put_makes_and_replaces)
{
    CHECK_OK(dl_store_put(store, "hb/r0.0", "step 1", 6, DL_NEVER));
    store_must_hold(other, "hb/r0.0", "step 1");
    CHECK_OK(dl_store_put(other, "hb/r0.0", "2", 1, DL_NEVER));
    store_must_hold(store, "hb/r0.0", "2");
    CHECK_OK(dl_store_put(store, "hb/r0.0", NULL, 0, DL_NEVER));
    store_must_hold(other, "hb/r0.0", "");
}

TEST(get_appends_and_leaves_the_buffer_alone_on_error)
{
    dl_buf buf;
    dl_buf_init(&buf, 10);
    store_must_create(store, "a", "1234");
    CHECK_OK(dl_buf_add(&buf, ">>", 2));
    CHECK_OK(dl_store_get(store, &buf, "a", DL_NEVER));
    CHECK_STR(">>1234", dl_buf_str(&buf));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &buf, "b", DL_NEVER));
    CHECK_CONTAINS("b is not in", diloco_error_text());
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &buf, "a/b/c", DL_NEVER));
    store_must_create(store, "long", "12345");
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "long", DL_NEVER));
    CHECK_CONTAINS("long", diloco_error_text());
    CHECK_STR(">>1234", dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

typedef struct listener {
    size_t announced, got, n_begin, n_piece, max_piece;
    diloco_status at_begin, at_piece;
} listener;

static diloco_status listen_begin(void *context, size_t len)
{
    listener *l = context;
    l->announced = len;
    l->n_begin++;
    return l->at_begin;
}

static diloco_status listen_piece(void *context, const void *data, size_t len)
{
    listener *l = context;
    (void)data;
    l->got += len;
    l->n_piece++;
    l->max_piece = dl_size_max(l->max_piece, len);
    return l->at_piece;
}

/* Bytes of an object that no store gives in one piece. */
static size_t several_pieces(void)
{
    return dl_size_min(2500000, dl_store_max_object(store));
}

TEST(a_sink_hears_the_length_first_and_can_stop_the_read)
{
    listener l = {0};
    dl_sink sink = {&l, listen_begin, listen_piece};
    const size_t n = several_pieces();
    void *bytes = calloc(1, n);
    CHECK(bytes != NULL);
    dl_span span = {bytes, n};
    CHECK_OK(dl_store_create(store, "b", &span, 1, NULL, DL_NEVER));
    free(bytes);

    CHECK_OK(dl_store_read(store, "b", sink, DL_NEVER));
    CHECK_INT(1, l.n_begin);
    CHECK_INT(n, l.announced);
    CHECK_INT(n, l.got);
    CHECK(l.max_piece <= 1 << 20);

    l = (listener){.at_begin = DILOCO_EREFUSED};
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_read(store, "b", sink, DL_NEVER));
    CHECK_INT(0, l.n_piece);
    l = (listener){.at_piece = DILOCO_ENUMERIC};
    CHECK_STATUS(DILOCO_ENUMERIC, dl_store_read(store, "b", sink, DL_NEVER));
    CHECK_INT(1, l.n_piece);

    l = (listener){0};
    sink.begin = NULL;
    CHECK_OK(dl_store_read(store, "b", sink, DL_NEVER));
    CHECK_INT(n, l.got);
}

/* ---- keys */

static const char long_component[] = /* 256 bytes */
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/* Stores that cannot read parts say so, and their users read whole objects. */
TEST(a_part_is_read_of_the_version_that_was_seen_first)
{
    static const char text[] = "0123456789";
    dl_store_part part = {.begin = 2, .end = 5};
    listener l = {0};
    const dl_sink sink = {&l, listen_begin, listen_piece};
    if (!dl_store_reads_parts(store)) return;
    CHECK_OK(dl_store_put(store, "a", text, 10, DL_NEVER));
    CHECK_OK(dl_store_read_part(store, "a", &part, sink, DL_NEVER));
    CHECK_INT(10, l.announced);
    CHECK_INT(3, l.got);
    CHECK(part.version[0]);
    part.begin = 8, part.end = 30;
    CHECK_OK(dl_store_read_part(store, "a", &part, sink, DL_NEVER));
    CHECK_INT(5, l.got);
    CHECK_OK(dl_store_put(store, "a", "another one", 11, DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, dl_store_read_part(store, "a", &part, sink, DL_NEVER));
    /* A server may compare the version before it looks for an object. */
    const diloco_status gone = dl_store_read_part(store, "none", &part, sink, DL_NEVER);
    CHECK(gone == DILOCO_ENOENT || gone == DILOCO_EPROTO);
    part = (dl_store_part){.end = 3};
    CHECK_STATUS(DILOCO_ENOENT, dl_store_read_part(store, "none", &part, sink, DL_NEVER));
    CHECK_INT(5, l.got);
}

TEST(no_key_leaves_the_store)
{
    const char *bad[] = {"",     "/",     "/a",     "a/",    "a//b",        ".",        "..",
                         "../a", "a/..",  "a/../b", "a/./b", ".tmp",        ".a",       "a/.b",
                         "a b",  "a\n",   "a\\b",   "a:b",   "a%2f",        "\xc3\xa4", "a*",
                         "~a",   "a\x7f", "a,b",    "a+b",   long_component};
    dl_buf buf;
    dl_span span = text_span("x");
    dl_buf_init(&buf, 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_store_create(store, bad[i], &span, 1, NULL, DL_NEVER));
        CHECK_STATUS(DILOCO_EINVAL, dl_store_put(store, bad[i], "x", 1, DL_NEVER));
        CHECK_STATUS(DILOCO_EINVAL, dl_store_get(store, &buf, bad[i], DL_NEVER));
        CHECK_STATUS(DILOCO_EINVAL, dl_store_delete(store, bad[i], DL_NEVER));
        if (*bad[i])
            CHECK_STATUS(DILOCO_EINVAL, dl_store_list(store, "", bad[i], note_key, &buf, DL_NEVER));
    }
    CHECK_STR("", store_keys(store, "", NULL));
    dl_buf_deinit(&buf);
}

TEST(the_longest_key_works_and_a_longer_one_is_refused)
{
    char key[DL_KEY_MAX + 2];
    memset(key, 'k', sizeof key);
    key[200] = key[400] = '/';
    key[DL_KEY_MAX] = '\0';
    store_must_create(store, key, "deep");
    store_must_hold(other, key, "deep");
    CHECK_CONTAINS(key, store_keys(other, "", NULL));
    CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    key[DL_KEY_MAX] = 'k';
    key[DL_KEY_MAX + 1] = '\0';
    CHECK_STATUS(DILOCO_EINVAL, dl_store_put(store, key, "x", 1, DL_NEVER));
}

TEST(a_prefix_is_a_whole_folder)
{
    const char *bad[] = {"a", "/", "a/b", "a//", "../", ".tmp/", "a/../", long_component};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_store_list(store, bad[i], NULL, note_key, NULL, DL_NEVER));
        CHECK_STATUS(DILOCO_EINVAL, dl_store_wait(store, &bad[i], 1, false, DL_NEVER));
    }
}

/* ---- listing */

static const char *const tree[] = {/* ascending byte order: - . / 0 = A _ a */
                                   "a-b",  "a.b/x", "a/-", "a/0/y", "a/00", "a/A", "a/b/c/d",
                                   "a/b0", "a0",    "a=",  "aA/z",  "a_",   "aa"};
enum { N_TREE = sizeof tree / sizeof *tree };

static void make_tree(void)
{
    for (size_t i = 0; i < N_TREE; i++) /* in some other order */
        store_must_create(store, tree[(i * 5 + 3) % N_TREE], tree[(i * 5 + 3) % N_TREE]);
}

TEST(a_listing_is_in_ascending_byte_order_of_whole_keys)
{
    make_tree();
    CHECK_STR("a-b a.b/x a/- a/0/y a/00 a/A a/b/c/d a/b0 a0 a= aA/z a_ aa ",
              store_keys(other, "", NULL));
    CHECK_STR("a/- a/0/y a/00 a/A a/b/c/d a/b0 ", store_keys(other, "a/", NULL));
    CHECK_STR("a/b/c/d ", store_keys(other, "a/b/", NULL));
    CHECK_STR("", store_keys(other, "nobody/wrote/", NULL));
    CHECK_STR("", store_keys(other, "aa/", NULL));
}

TEST(a_listing_starts_after_the_given_key)
{
    make_tree();
    for (size_t i = 0; i < N_TREE; i++) {
        dl_buf expected;
        dl_buf_init(&expected, 1024);
        for (size_t k = i + 1; k < N_TREE; k++)
            CHECK_OK(dl_buf_addf(&expected, "%s ", tree[k]));
        CHECK_STR(dl_buf_str(&expected), store_keys(other, "", tree[i]));
        dl_buf_deinit(&expected);
    }
    CHECK_STR("a/b/c/d a/b0 ", store_keys(other, "a/", "a/b/c/c")); /* not there itself */
    CHECK_STR("a/b0 ", store_keys(other, "a/", "a/b/c/d/e"));
    CHECK_STR("", store_keys(other, "a/", "zzz"));
    CHECK_STR("a/b/c/d ", store_keys(other, "a/b/", "a-b")); /* before the prefix: all */
}

static diloco_status check_size(void *context, const char *key, size_t len)
{
    ++*(size_t *)context;
    return len == strlen(key) ? DILOCO_OK : DILOCO_EPROTO;
}

static diloco_status stop_at_third(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    return ++*(size_t *)context == 3 ? DILOCO_EFENCED : DILOCO_OK;
}

TEST(a_listing_gives_sizes_and_stops_on_request)
{
    size_t n = 0;
    make_tree();
    CHECK_OK(dl_store_list(other, "", NULL, check_size, &n, DL_NEVER));
    CHECK_INT(N_TREE, n);
    n = 0;
    CHECK_STATUS(DILOCO_EFENCED, dl_store_list(other, "", NULL, stop_at_third, &n, DL_NEVER));
    CHECK_INT(3, n);
    CHECK_STR("a/b/c/d ", store_keys(other, "a/b/", NULL)); /* a stopped walk leaves nothing */
}

TEST(a_folder_of_many_is_listed_in_order)
{
    char key[32];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "log/%010u.json", i * 77 % 300);
        CHECK_OK(dl_store_put(store, key, "x", 1, DL_NEVER));
    }
    const char *keys = store_keys(other, "log/", NULL);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "log/%010u.json ", i);
        CHECK(!strncmp(keys, key, strlen(key)));
        keys += strlen(key);
    }
    CHECK_STR("", keys);
}

/* ---- deleting */

TEST(deleting_is_final_and_may_repeat)
{
    store_must_create(store, "c/1/r0.0", "x");
    store_must_create(store, "c/1/r1.0", "y");
    CHECK_OK(dl_store_delete(other, "c/1/r0.0", DL_NEVER));
    CHECK_OK(dl_store_delete(other, "c/1/r0.0", DL_NEVER));
    CHECK_OK(dl_store_delete(other, "c/2/never", DL_NEVER));
    CHECK_STR("c/1/r1.0 ", store_keys(store, "", NULL));
    CHECK_OK(dl_store_delete(other, "c/1/r1.0", DL_NEVER));
    CHECK_STR("", store_keys(store, "", NULL));
    store_must_create(store, "c/1/r0.0", "other bytes");
    store_must_hold(other, "c/1/r0.0", "other bytes");
}

/* ---- time, abort, waiting */

TEST(past_its_time_a_call_does_nothing)
{
    dl_time past = dl_clock_now() - 1;
    dl_span span = text_span("x");
    dl_buf buf;
    const char *all = "";
    dl_buf_init(&buf, 100);
    store_must_create(store, "old", "x");
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_create(store, "new", &span, 1, NULL, past));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_put(store, "new", "x", 1, past));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_get(store, &buf, "old", past));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_list(store, "", NULL, note_key, &buf, past));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_delete(store, "old", past));
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_wait(store, &all, 1, false, past));
    CHECK_STR("old ", store_keys(store, "", NULL));
    dl_buf_deinit(&buf);
}

TEST(after_abort_every_call_is_closed)
{
    dl_span span = text_span("x");
    dl_buf buf;
    const char *all = "";
    dl_buf_init(&buf, 100);
    store_must_create(store, "old", "x");
    dl_store_abort(store);
    dl_store_abort(store);
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_create(store, "new", &span, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_put(store, "new", "x", 1, DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_get(store, &buf, "old", DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_list(store, "", NULL, note_key, &buf, DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_delete(store, "old", DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_wait(store, &all, 1, false, DL_NEVER));
    CHECK_STR("old ", store_keys(other, "", NULL)); /* other handles continue */
    dl_buf_deinit(&buf);
}

static diloco_status abort_at_first_piece(void *context, const void *data, size_t len)
{
    (void)data, (void)len;
    dl_store_abort(context);
    return DILOCO_OK;
}

TEST(abort_stops_a_read_between_two_pieces)
{
    void *bytes = calloc(1, several_pieces());
    CHECK(bytes != NULL);
    CHECK_OK(dl_store_put(store, "b", bytes, several_pieces(), DL_NEVER));
    free(bytes);
    dl_sink sink = {store, NULL, abort_at_first_piece};
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_read(store, "b", sink, DL_NEVER));
}

/* Wait until it fails. */
static void *wait_for_ever(void *result)
{
    const char *prefixes[] = {"log/", "c/0000000001/"};
    while (!(*(diloco_status *)result = dl_store_wait(other, prefixes, 2, false, DL_NEVER)))
        ;
    return NULL;
}

TEST(abort_ends_a_wait)
{
    pthread_t thread;
    diloco_status result = DILOCO_OK;
    CHECK_INT(0, pthread_create(&thread, NULL, wait_for_ever, &result));
    dl_clock_sleep(50 * DL_MILLISECOND); /* likely asleep by now; right either way */
    dl_store_abort(other);
    pthread_join(thread, NULL);
    CHECK_INT(DILOCO_ECLOSED, result);
}

TEST(a_wait_ends_at_its_time)
{
    const char *prefix = "log/";
    diloco_status status;
    dl_time until = dl_clock_now() + 150 * DL_MILLISECOND;
    while (!(status = dl_store_wait(store, &prefix, 1, false, until)))
        ;
    CHECK_STATUS(DILOCO_ETIMEDOUT, status);
    CHECK(dl_clock_now() >= until);
}

/* Look and wait in turn until 20 objects of the main thread were seen. */
static void *see_twenty(void *result)
{
    const char *prefix = "c/0000000007/";
    dl_buf keys;
    dl_buf_init(&keys, 4096);
    diloco_status status;
    size_t n = 0;
    do {
        size_t before = n;
        dl_buf_clear(&keys);
        status = dl_store_list(other, prefix, NULL, note_key, &keys, DL_NEVER);
        n = 0;
        for (size_t i = 0; i < keys.len; i++)
            n += keys.data[i] == ' ';
        if (!status && n < 20) status = dl_store_wait(other, &prefix, 1, n > before, DL_NEVER);
    } while (!status && n < 20);
    dl_buf_deinit(&keys);
    *(diloco_status *)result = status;
    return NULL;
}

TEST(a_waiting_reader_sees_objects_that_others_create)
{
    pthread_t thread;
    diloco_status result = DILOCO_EIO;
    CHECK_INT(0, pthread_create(&thread, NULL, see_twenty, &result));
    for (int i = 0; i < 20; i++) {
        char key[40];
        snprintf(key, sizeof key, "c/0000000007/r%d.0", i);
        store_must_create(store, key, key);
    }
    pthread_join(thread, NULL);
    CHECK_INT(DILOCO_OK, result);
}

/* ---- counters */

/* Exactly these object bytes; in layers or over a network more: heads, a second look. */
static void check_bytes(uint64_t expected, uint64_t counted)
{
    if (row->framed)
        CHECK(counted >= expected && counted < expected + 50000);
    else
        CHECK_INT(expected, counted);
}

TEST(counters_count_object_bytes_and_calls)
{
    dl_buf buf;
    dl_span spans[] = {text_span("12345"), text_span("678")};
    dl_buf_init(&buf, 100);
    CHECK_OK(dl_store_create(store, "a", spans, 2, NULL, DL_NEVER));
    CHECK_OK(dl_store_put(store, "b", "1234", 4, DL_NEVER));
    CHECK_OK(dl_store_get(store, &buf, "a", DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &buf, "c", DL_NEVER));
    store_keys(store, "", NULL);
    CHECK_OK(dl_store_delete(store, "b", DL_NEVER));
    dl_store_counters n = dl_store_counts(store);
    check_bytes(12, n.bytes_sent);
    check_bytes(8, n.bytes_received);
    CHECK_INT(1, n.n_create);
    CHECK_INT(1, n.n_put);
    CHECK_INT(2, n.n_get);
    CHECK_INT(1, n.n_list);
    CHECK_INT(1, n.n_delete);

    bool taken; /* a lost create sends nothing, but reads to compare */
    CHECK_OK(dl_store_create(store, "a", spans, 2, &taken, DL_NEVER));
    check_bytes(12, dl_store_counts(store).bytes_sent);
    check_bytes(16, dl_store_counts(store).bytes_received);
    if (!row->framed) CHECK_INT(0, dl_store_counts(other).bytes_received);
    dl_buf_deinit(&buf);
}

/* ---- several at once */

enum { N_RACERS = 8, N_RACES = 10 };

typedef struct racer {
    dl_store *store;
    int index, n_won;
    bool failed;
    atomic_int *arrived;
} racer;

static void *race_for_names(void *context)
{
    racer *r = context;
    for (int i = 0; i < N_RACES; i++) {
        char key[40], mine[40];
        bool taken;
        snprintf(key, sizeof key, "log/%010d.json", i);
        snprintf(mine, sizeof mine, "of racer %d", r->index);
        dl_span span = text_span(mine);
        atomic_fetch_add(r->arrived, 1);
        while (atomic_load(r->arrived) < N_RACERS * (i + 1))
            sched_yield();
        diloco_status status = dl_store_create(r->store, key, &span, 1, &taken, DL_NEVER);
        r->n_won += !status && !taken;
        r->failed |= status ? status != DILOCO_EEXIST || !taken : taken;
    }
    return NULL;
}

TEST(of_concurrent_creates_of_a_name_exactly_one_wins)
{
    pthread_t threads[N_RACERS];
    racer racers[N_RACERS];
    atomic_int arrived = 0;
    int won = 0;
    for (int i = 0; i < N_RACERS; i++) {
        racers[i] = (racer){row->open(url), i, 0, false, &arrived};
        CHECK_INT(0, pthread_create(&threads[i], NULL, race_for_names, &racers[i]));
    }
    for (int i = 0; i < N_RACERS; i++) {
        pthread_join(threads[i], NULL);
        dl_store_close(racers[i].store);
        won += racers[i].n_won;
        CHECK(!racers[i].failed);
    }
    CHECK_INT(N_RACES, won);
}

/* Puts objects of 1 to 200000 equal bytes. */
static void *put_for_ever(void *stop)
{
    unsigned char *bytes = malloc(200000);
    for (unsigned i = 0; bytes && !atomic_load((atomic_bool *)stop); i++) {
        size_t n = 1 + (size_t)i * 7919 % 200000;
        memset(bytes, (int)(i & 0xff), n);
        if (dl_store_put(other, "hb/r0.0", bytes, n, DL_NEVER)) break;
    }
    free(bytes);
    return NULL;
}

TEST(a_reader_during_a_replacement_sees_the_old_or_the_new_object)
{
    pthread_t thread;
    atomic_bool stop = false;
    dl_buf buf;
    bool torn = false;
    dl_buf_init(&buf, 200000);
    CHECK_OK(dl_store_put(store, "hb/r0.0", "x", 1, DL_NEVER));
    CHECK_INT(0, pthread_create(&thread, NULL, put_for_ever, &stop));
    diloco_status status = DILOCO_OK;
    for (int i = 0; i < 200 && !status; i++) {
        dl_buf_clear(&buf);
        status = dl_store_get(store, &buf, "hb/r0.0", DL_NEVER);
        for (size_t k = 1; k < buf.len; k++)
            torn |= buf.data[k] != buf.data[0];
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    CHECK_STATUS(DILOCO_OK, status);
    CHECK(!torn);
    dl_buf_deinit(&buf);
}

/* Creates and deletes one key, so that the folders above it come and go as well. */
static void *come_and_go(void *stop)
{
    diloco_status status = DILOCO_OK;
    dl_span span = text_span("x");
    while (!status && !atomic_load((atomic_bool *)stop)) {
        status = dl_store_create(other, "c/1/passing", &span, 1, NULL, DL_NEVER);
        if (!status) status = dl_store_delete(other, "c/1/passing", DL_NEVER);
    }
    return (void *)(uintptr_t)status;
}

TEST(creates_and_listings_succeed_during_deletes)
{
    pthread_t thread;
    atomic_bool stop = false;
    void *result;
    CHECK_INT(0, pthread_create(&thread, NULL, come_and_go, &stop));
    diloco_status status = DILOCO_OK;
    dl_span span = text_span("y");
    for (int i = 0; i < 100 && !status; i++) {
        size_t n = 0;
        status = dl_store_create(store, "c/1/staying", &span, 1, NULL, DL_NEVER);
        if (!status) status = dl_store_list(store, "c/", NULL, stop_at_third, &n, DL_NEVER);
        if (!status && n == 0) status = dl_fail(DILOCO_ENOENT, "what was created is not listed");
        if (!status) status = dl_store_delete(store, "c/1/staying", DL_NEVER);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &result);
    CHECK_STATUS(DILOCO_OK, status);
    CHECK_INT(DILOCO_OK, (uintptr_t)result);
}

/* ---- */

#define SUITE(test)                                                                                \
    {                                                                                              \
#test, test, set_up, tear_down, NULL                                                       \
    }

int store_suite_run(const store_row *r)
{
    static const struct CMUnitTest tests[] = {
        SUITE(an_object_is_its_spans_one_after_the_other),
        SUITE(an_empty_object_is_an_object),
        SUITE(a_large_object_comes_back_bit_by_bit),
        SUITE(a_taken_name_is_success_for_equal_bytes_only),
        SUITE(put_makes_and_replaces),
        SUITE(get_appends_and_leaves_the_buffer_alone_on_error),
        SUITE(a_sink_hears_the_length_first_and_can_stop_the_read),
        SUITE(a_part_is_read_of_the_version_that_was_seen_first),
        SUITE(no_key_leaves_the_store),
        SUITE(the_longest_key_works_and_a_longer_one_is_refused),
        SUITE(a_prefix_is_a_whole_folder),
        SUITE(a_listing_is_in_ascending_byte_order_of_whole_keys),
        SUITE(a_listing_starts_after_the_given_key),
        SUITE(a_listing_gives_sizes_and_stops_on_request),
        SUITE(a_folder_of_many_is_listed_in_order),
        SUITE(deleting_is_final_and_may_repeat),
        SUITE(past_its_time_a_call_does_nothing),
        SUITE(after_abort_every_call_is_closed),
        SUITE(abort_stops_a_read_between_two_pieces),
        SUITE(abort_ends_a_wait),
        SUITE(a_wait_ends_at_its_time),
        SUITE(a_waiting_reader_sees_objects_that_others_create),
        SUITE(counters_count_object_bytes_and_calls),
        SUITE(of_concurrent_creates_of_a_name_exactly_one_wins),
        SUITE(a_reader_during_a_replacement_sees_the_old_or_the_new_object),
        SUITE(creates_and_listings_succeed_during_deletes),
    };
    row = r;
    print_message("the store suite over %s\n", row->name);
    return cmocka_run_group_tests_name(row->name, tests, NULL, NULL);
}
