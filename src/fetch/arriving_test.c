/* arriving_test.c - blocks of a file that arrives, seen by two handles; damaged blocks and records.
 */
#include "fetch/arriving.h"

#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

enum { BLOCK = DL_ARRIVING_BLOCK, LEN = 2 * BLOCK + 100 };

static unsigned char bytes[LEN];

static const char *path(void)
{
    return scratch_path("shard");
}

static const char *record(void)
{
    return scratch_path("record");
}

static dl_arriving *begin(void)
{
    dl_arriving *a;
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    CHECK_OK(dl_arriving_create(path(), record(), LEN, "\"v1\""));
    CHECK_OK(dl_arriving_open(&a, path(), record()));
    return a;
}

static void put(dl_arriving *a, size_t block)
{
    CHECK_OK(dl_arriving_put(a, block, bytes + block * BLOCK));
}

static void overwrite(const char *file, size_t at, const char *text)
{
    const int fd = open(file, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, text, strlen(text), (off_t)at) == (ssize_t)strlen(text));
    close(fd);
}

TEST(blocks_arrive_in_any_order_and_every_handle_sees_them)
{
    dl_arriving *a = begin(), *b;
    CHECK_OK(dl_arriving_open(&b, path(), record()));
    CHECK_INT(3, dl_arriving_blocks(b));
    CHECK_INT(100, dl_arriving_block_len(b, 2));
    CHECK_STR("\"v1\"", dl_arriving_version(b));
    CHECK_INT(LEN, dl_arriving_map(b)->len);
    put(a, 2);
    put(a, 0);
    CHECK(dl_arriving_has(b, 0) && !dl_arriving_has(b, 1) && dl_arriving_has(b, 2));
    CHECK_INT(BLOCK + 100, dl_arriving_bytes(b));
    CHECK_BYTES(bytes + 2 * BLOCK, dl_arriving_map(b)->data + 2 * BLOCK, 100);
    put(b, 1);
    dl_hash digest;
    CHECK_OK(dl_arriving_finish(&digest, a));
    CHECK(dl_hash_equal(dl_digest_bytes(bytes, LEN), digest));
    dl_arriving_close(a);
    dl_arriving_close(b);
}

TEST(a_block_that_does_not_fit_its_digest_has_not_arrived)
{
    dl_hash digest;
    dl_arriving *a = begin();
    for (size_t i = 0; i < 3; i++)
        put(a, i);
    overwrite(path(), BLOCK + 7, "damage");
    CHECK_STATUS(DILOCO_EPROTO, dl_arriving_finish(&digest, a));
    CHECK_CONTAINS("the bytes from 262144 on are not those that arrived", diloco_error_text());
    CHECK_OK(dl_arriving_verify(a));
    CHECK(dl_arriving_has(a, 0) && !dl_arriving_has(a, 1) && dl_arriving_has(a, 2));
    put(a, 1);
    CHECK_OK(dl_arriving_finish(&digest, a));
    dl_arriving_close(a);
}

TEST(a_block_is_checked_before_it_is_read)
{
    dl_arriving *a = begin();
    put(a, 1);
    CHECK(dl_arriving_check(a, 1) && !dl_arriving_check(a, 0));
    overwrite(path(), BLOCK, "damage");
    CHECK(dl_arriving_has(a, 1) && !dl_arriving_check(a, 1));
    CHECK(!dl_arriving_has(a, 1));
    dl_arriving_close(a);
}

TEST(a_spoiled_file_is_not_opened_again)
{
    dl_arriving *a = begin(), *b;
    CHECK(!dl_arriving_is_spoiled(a));
    CHECK_OK(dl_arriving_open(&b, path(), record()));
    dl_arriving_spoil(a);
    CHECK(dl_arriving_is_spoiled(b));
    dl_arriving_close(a);
    dl_arriving_close(b);
    CHECK_STATUS(DILOCO_EPROTO, dl_arriving_open(&a, path(), record()));
    CHECK(!a);
}

TEST(a_new_file_does_not_disturb_the_readers_of_the_old_one)
{
    dl_arriving *a = begin(), *b;
    put(a, 0);
    CHECK(dl_arriving_is_at(a, path()));
    CHECK_OK(dl_arriving_create(path(), record(), BLOCK, "\"v2\""));
    CHECK(!dl_arriving_is_at(a, path()));
    CHECK_OK(dl_arriving_open(&b, path(), record()));
    CHECK(dl_arriving_has(a, 0) && !dl_arriving_has(b, 0));
    CHECK_BYTES(bytes, dl_arriving_map(a)->data, BLOCK);
    CHECK_STATUS(DILOCO_ENOENT, dl_arriving_put(a, 1, bytes + BLOCK));
    dl_arriving_spoil(a);
    CHECK(!dl_arriving_is_spoiled(b) && dl_file_exists(record()));
    dl_arriving_close(a);
    dl_arriving_close(b);
}

TEST(damaged_records_and_missing_files_are_refused)
{
    static const struct {
        size_t at;
        const char *text;
    } damages[] = {{0, "x"}, {18, "9"}, {26, "1"}, {32, "\n"}};
    dl_arriving *a = begin();
    dl_arriving_close(a);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        CHECK_OK(dl_arriving_create(path(), record(), LEN, "\"v1\""));
        overwrite(record(), damages[i].at, damages[i].text);
        CHECK_STATUS(DILOCO_EPROTO, dl_arriving_open(&a, path(), record()));
    }
    CHECK_OK(dl_arriving_create(path(), record(), LEN, "\"v1\""));
    CHECK(truncate(record(), 1024 + 8) == 0);
    CHECK_STATUS(DILOCO_EPROTO, dl_arriving_open(&a, path(), record()));
    CHECK(unlink(record()) == 0);
    CHECK_STATUS(DILOCO_ENOENT, dl_arriving_open(&a, path(), record()));
}

TEST(a_block_that_the_disk_refuses_has_not_arrived)
{
    struct rlimit old, less;
    dl_arriving *a = begin();
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    less = old;
    less.rlim_cur = BLOCK + BLOCK / 2;
    CHECK(setrlimit(RLIMIT_FSIZE, &less) == 0);
    const diloco_status status = dl_arriving_put(a, 1, bytes + BLOCK);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_STATUS(DILOCO_EIO, status);
    CHECK(!dl_arriving_has(a, 1));
    put(a, 1);
    CHECK(dl_arriving_has(a, 1));
    dl_arriving_close(a);
}

TEST_MAIN(blocks_arrive_in_any_order_and_every_handle_sees_them,
          a_block_that_does_not_fit_its_digest_has_not_arrived,
          a_block_is_checked_before_it_is_read, a_spoiled_file_is_not_opened_again,
          a_new_file_does_not_disturb_the_readers_of_the_old_one,
          damaged_records_and_missing_files_are_refused,
          a_block_that_the_disk_refuses_has_not_arrived)
