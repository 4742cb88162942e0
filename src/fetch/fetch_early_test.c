/* fetch_early_test.c - a token shard of a file:// store that is read while it arrives: its samples
 * are those of the whole file. Damage, a change of the object, and tokens beyond the vocabulary. */
#include "fetch/fetch_early.h"

#include "check.h"
#include "data/data.h"
#include "fetch/fetch_data.h"
#include "scratch.h"

#include <fcntl.h>
#include <glob.h>

/* Tokens of 16 bits; 3 MiB and a header. The middle is a region that opening does not fetch. */
enum { TOKENS = 3 << 19, HEADER = 1024, CONTEXT = 16, ROWS = 8, MIDDLE = HEADER + (3 << 19) };

static dl_config config;

static void put_shard(const char *name)
{
    unsigned char *bytes = calloc(1, HEADER + 2 * TOKENS);
    const uint32_t head[] = {20240520, 1, TOKENS};
    CHECK(bytes != NULL);
    for (size_t i = 0; i < 12; i++)
        bytes[i] = (unsigned char)(head[i / 4] >> 8 * (i % 4));
    for (size_t i = 0; i < TOKENS; i++)
        bytes[HEADER + 2 * i] = (unsigned char)((i * 2654435761u >> 13) % 200);
    scratch_write(name, bytes, HEADER + 2 * TOKENS);
    free(bytes);
}

/* It gets another time of change, too: the file system's clock may not have moved since. */
static void overwrite(const char *path, size_t at, const char *text)
{
    const struct timespec times[] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    const int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, text, strlen(text), (off_t)at) == (ssize_t)strlen(text));
    CHECK(futimens(fd, times) == 0);
    close(fd);
}

/* Settings for the object in the store; the cache is empty unless `cache` was used before. */
static void set_up(const char *cache, const char *vocab)
{
    char url[PATH_MAX + 16];
    snprintf(url, sizeof url, "file://%s/shards/", scratch_path("."));
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "data.datasource", "tokens", "--set"));
    CHECK_OK(dl_config_set(&config, "data.cache", scratch_path(cache), "--set"));
    CHECK_OK(dl_config_set(&config, "data.train_path", url, "--set"));
    CHECK_OK(dl_config_set(&config, "parameters.model.vocab", vocab, "--set"));
    CHECK_OK(dl_config_set(&config, "parameters.model.context", "16", "--set"));
}

static void begin(const char *cache)
{
    static bool is_made;
    if (!is_made) scratch_folder("shards");
    is_made = true;
    put_shard("shards/a.bin");
    set_up(cache, "256");
}

/* The path of the only file in a folder of the cache; "": none. */
static const char *cached(const char *cache, const char *kind)
{
    static char path[PATH_MAX];
    char pattern[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*/%s/*", scratch_path(cache), kind);
    const bool is = !glob(pattern, 0, NULL, &found);
    snprintf(path, sizeof path, "%s", is ? found.gl_pathv[0] : "");
    if (is) globfree(&found);
    return path;
}

/* Reads samples, and the first ones of the validation data, into out. */
static diloco_status read_samples(int32_t out[4][ROWS * CONTEXT], const dl_config *settings)
{
    dl_data *data;
    DL_TRY(dl_data_open(&data, settings, 2));
    diloco_status status = dl_data_await(data, 1, 5, ROWS);
    if (!status) dl_data_batch(data, out[0], out[1], 1, 5, ROWS);
    if (!status) status = dl_data_await_test(data, 3, ROWS);
    if (!status) CHECK_INT(ROWS, dl_data_test_batch(data, out[2], out[3], 3, ROWS));
    dl_data_close(data);
    return status;
}

static int32_t want[4][ROWS * CONTEXT], got[4][ROWS * CONTEXT];

TEST(samples_of_an_arriving_shard_are_those_of_the_whole_file)
{
    char digest[64];
    dl_data *data;
    dl_config whole;
    begin("equal");
    whole = config;
    CHECK_OK(dl_config_set(&whole, "data.train_path", scratch_path("shards"), "--set"));
    CHECK_OK(read_samples(want, &whole));
    CHECK_OK(dl_data_open(&data, &whole, 2));
    snprintf(digest, sizeof digest, "%s", dl_data_digest(data));
    dl_data_close(data);

    CHECK_OK(dl_fetch_data(&config));
    CHECK_STR("", cached("equal", "files"));
    CHECK(*cached("equal", "arriving"));
    CHECK_OK(dl_data_open(&data, &config, 2));
    CHECK_STR(digest, dl_data_digest(data));
    CHECK_INT(TOKENS, dl_data_train_items(data) + dl_data_test_items(data));
    dl_data_close(data);
    CHECK_OK(read_samples(got, &config));
    CHECK_BYTES(want, got, sizeof want);

    /* Another process gets the addresses, and reads the same. */
    dl_early_addresses(&config);
    CHECK_CONTAINS("file://", config.train_path);
    CHECK_OK(dl_fetch_ready(&config, &(dl_early_hooks){.fills = false}));
    CHECK(!strstr(config.train_path, "://"));
    CHECK_OK(read_samples(got, &config));
    CHECK_BYTES(want, got, sizeof want);
    dl_early_close();
    CHECK_STATUS(DILOCO_EINVAL,
                 read_samples(got, &config)); /* the folder of whole files is empty */
}

TEST(without_a_vocabulary_a_shard_is_completed_first)
{
    begin("complete");
    CHECK_OK(dl_fetch_data(&config));
    CHECK_OK(read_samples(want, &config));
    CHECK(*cached("complete", "blocks"));
    set_up("complete", "0");
    CHECK_OK(dl_fetch_data(&config));
    CHECK_STR("", cached("complete", "blocks"));
    CHECK_STR("", cached("complete", "arriving"));
    CHECK(*cached("complete", "files"));
    CHECK_OK(read_samples(got, &config));
    CHECK_BYTES(want, got, sizeof want);
}

TEST(a_damaged_block_is_fetched_again_at_the_next_start)
{
    begin("damaged");
    CHECK_OK(dl_fetch_data(&config));
    CHECK_OK(read_samples(want, &config));
    dl_early_close();
    overwrite(cached("damaged", "arriving"), 4000, "damage in the first block");
    set_up("damaged", "256");
    CHECK_OK(dl_fetch_data(&config));
    set_up("damaged", "0");
    CHECK_OK(dl_fetch_data(&config));
    CHECK_OK(read_samples(got, &config));
    CHECK_BYTES(want, got, sizeof want);
}

TEST(a_token_beyond_the_vocabulary_is_refused_when_it_is_read)
{
    begin("beyond");
    static char larger[800001];
    for (size_t i = 0; i < 800000; i++)
        larger[i] = i % 2 ? '\x12' : '\x34';
    overwrite(scratch_path("shards/a.bin"), MIDDLE - 400000, larger);
    CHECK_OK(dl_fetch_data(&config));
    CHECK_STATUS(DILOCO_EINVAL, read_samples(got, &config));
    CHECK_CONTAINS("a.bin has the token 4660, but the vocabulary has 256 tokens",
                   diloco_error_text());
    dl_early_close();
}

TEST(an_object_that_changes_is_an_error_and_then_fetched_again)
{
    begin("changed");
    CHECK_OK(dl_fetch_data(&config));
    overwrite(scratch_path("shards/a.bin"), 4000, "\x05");
    CHECK_STATUS(DILOCO_EPROTO, read_samples(got, &config));
    CHECK_CONTAINS("a.bin in store", diloco_error_text());
    CHECK_CONTAINS("changed while it was read", diloco_error_text());
    set_up("changed", "256");
    CHECK_OK(dl_fetch_data(&config));
    CHECK_OK(read_samples(got, &config));
    dl_early_close();
}

TEST_MAIN(samples_of_an_arriving_shard_are_those_of_the_whole_file,
          without_a_vocabulary_a_shard_is_completed_first,
          a_damaged_block_is_fetched_again_at_the_next_start,
          a_token_beyond_the_vocabulary_is_refused_when_it_is_read,
          an_object_that_changes_is_an_error_and_then_fetched_again)
