/* tracker_test.c - the bytes of an event file, and what is left out. That TensorBoard reads them is
 * tests/e2e/track.sh. */
#include "train/tracker.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

#include <dirent.h>

TEST(the_checksum_is_the_masked_castagnoli_crc)
{
    /* RFC 3720, B.4: CRC-32C of 32 zeros is 8a9136aa, of "123456789" e3069283. */
    static const unsigned char zeros[32];
    const uint32_t of_zeros = 0x8a9136aau, of_digits = 0xe3069283u;
    CHECK_INT((of_zeros >> 15 | of_zeros << 17) + 0xa282ead8u, dl_tracker_crc(zeros, 32));
    CHECK_INT((of_digits >> 15 | of_digits << 17) + 0xa282ead8u, dl_tracker_crc("123456789", 9));
}

static void feed(dl_tracker *t)
{
    static const char *const lines[] = {
        "{\"event\":\"step\",\"step\":7,\"loss\":2.5,\"lr\":0.1,\"grad_norm\":1,\"tokens_per_s\":"
        "9}",
        "{\"event\":\"commit\",\"entry\":3,\"members\":[\"r0\",\"r1\"],\"norms\":[1,3],"
        "\"inner_loss\":null}",
        "{\"event\":\"eval\",\"step\":7,\"loss\":2.25}",
        "{\"event\":\"step\"}",
        "damaged",
        ""};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        dl_tracker_line(t, lines[i], strlen(lines[i]));
}

static void read_file(dl_buf *out, const char *path)
{
    dl_buf_init(out, 1 << 20);
    CHECK_OK(dl_file_read(out, path));
}

TEST(a_csv_file_has_a_line_for_each_number)
{
    char where[1100];
    dl_tracker t;
    dl_buf text;
    const char *path = scratch_path("curves.csv");
    snprintf(where, sizeof where, "csv:%s", path);
    CHECK_OK(dl_tracker_open(&t, where, "r0"));
    feed(&t);
    dl_tracker_close(&t);
    read_file(&text, path);
    const char *all = dl_buf_str(&text);
    CHECK(!strncmp(all, "seconds,replica,tag,step,value\n", 31));
    CHECK_CONTAINS(",r0,loss/step,7,2.5\n", all);
    CHECK_CONTAINS(",r0,entry/members,3,2\n", all);
    CHECK_CONTAINS(",r0,loss/validation,7,2.25\n", all);
    CHECK(!strstr(all, "loss/entry")); /* null: not reported */
    dl_buf_deinit(&text);
}

/* Each record: its length, the checksum of that, its bytes, their checksum. */
TEST(an_event_file_is_whole_records_with_their_checksums)
{
    char where[1100], folder[1100], path[1400];
    dl_tracker t;
    dl_buf bytes;
    size_t n = 0, at = 0;
    const char *dir = scratch_path("events");
    snprintf(where, sizeof where, "tensorboard:%s", dir);
    CHECK_OK(dl_tracker_open(&t, where, "r0"));
    feed(&t);
    dl_tracker_close(&t);
    snprintf(folder, sizeof folder, "%s/r0", dir);
    DIR *d = opendir(folder);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "events.out.tfevents.", 20))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    closedir(d);
    read_file(&bytes, path);
    for (; at < bytes.len; n++) {
        uint64_t len;
        uint32_t crc;
        CHECK(bytes.len - at >= 16);
        memcpy(&len, bytes.data + at, 8); /* little-endian, as the machines that run this */
        memcpy(&crc, bytes.data + at + 8, 4);
        CHECK_INT(dl_tracker_crc(bytes.data + at, 8), crc);
        CHECK(len <= bytes.len - at - 16);
        memcpy(&crc, bytes.data + at + 12 + len, 4);
        CHECK_INT(dl_tracker_crc(bytes.data + at + 12, (size_t)len), crc);
        at += 16 + (size_t)len;
    }
    CHECK_INT(1 + 4 + 2 + 1, n); /* the version; step; members and norms; evaluation */
    dl_buf_deinit(&bytes);
}

TEST(unknown_tracker_is_refused_by_name)
{
    static const char *const wrong[] = {"tensorboard", "tensorboard:", "csv:", "wandb:x", "DIR"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dl_tracker t;
        CHECK_STATUS(DILOCO_EINVAL, dl_tracker_open(&t, wrong[i], "r0"));
        CHECK_CONTAINS("run.track", diloco_error_text());
        dl_tracker_close(&t);
    }
}

TEST_MAIN(the_checksum_is_the_masked_castagnoli_crc, a_csv_file_has_a_line_for_each_number,
          an_event_file_is_whole_records_with_their_checksums, unknown_tracker_is_refused_by_name)
