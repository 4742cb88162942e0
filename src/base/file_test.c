/* file_test.c - whole files, in a folder of their own. */
#include "base/file.h"

#include "base/thread.h"
#include "check.h"
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char *folder; /* of the test that runs */

static const char *at(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int n_files(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void write_text(const char *path, const char *text)
{
    CHECK_OK(dl_file_write(path, &(dl_span){text, strlen(text)}, 1));
}

static void check_content(const char *path, const char *text)
{
    dl_buf buf;
    dl_buf_init(&buf, 1 << 20);
    CHECK_OK(dl_file_read(&buf, path));
    CHECK_STR(text, dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

TEST(spans_are_cut_across_their_borders)
{
    static const char *const cuts[] = {"one ", "two", "e tw"};
    static const size_t skips[] = {0, 4, 2};
    const dl_span spans[] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    CHECK_INT(7, dl_spans_len(spans, 3));
    for (size_t i = 0; i < 3; i++) {
        char text[8] = "";
        dl_span some[3];
        const size_t n = dl_spans_cut(some, spans, 3, skips[i], 4); /* the second has fewer left */
        CHECK_INT(i < 2 ? 1 : 2, n);
        for (size_t k = 0; k < n; k++)
            strncat(text, some[k].data, some[k].len);
        CHECK_STR(cuts[i], text);
    }
    CHECK_INT(0, dl_spans_cut(NULL, spans, 3, 7, 4));
}

TEST(spans_are_written_in_sequence_and_replace_the_file)
{
    folder = scratch_folder("1");
    dl_span spans[] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    write_text(at("f"), "a longer text from before");
    CHECK_OK(dl_file_write(at("f"), spans, 3));
    check_content(at("f"), "one two");
    CHECK_OK(dl_file_write(at("empty"), NULL, 0));
    check_content(at("empty"), "");
    CHECK_INT(2, n_files());
}

/* A write of `len` bytes, of which the system takes `most`, in the scratch folder. */
static void check_cut_off(diloco_status (*write)(const char *, const dl_span *, size_t), size_t len,
                          rlim_t most)
{
    unsigned char *bytes = calloc(1, len);
    assert_non_null(bytes);
    write_text(at("f"), "old");
    struct rlimit before, small = {most, 0};
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &before));
    small.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &small));
    const diloco_status status = write(at("f"), &(dl_span){bytes, len}, 1);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &before));
    signal(SIGXFSZ, handler);
    CHECK_STATUS(DILOCO_EIO, status);
    CHECK_CONTAINS("write", diloco_error_text());
    check_content(at("f"), "old");
    CHECK_INT(1, n_files());
    free(bytes);
}

TEST(a_failed_write_leaves_the_old_file_and_no_sibling)
{
    folder = scratch_folder("2");
    check_cut_off(dl_file_write, 8192, 4096);

    CHECK_OK(dl_dir_make(at("taken"))); /* a rename that cannot be */
    CHECK_STATUS(DILOCO_EIO, dl_file_write(at("taken"), NULL, 0));
    CHECK_INT(2, n_files());
}

/* Bytes of a pattern without a period of 2. */
static void fill(unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)((i * 2654435761u) >> 13);
}

static diloco_status write_once(const char *path, const dl_span *spans, size_t n)
{
    return dl_file_write_once(path, spans, n, NULL, NULL);
}

TEST(a_large_file_is_written_once_and_whole)
{
    enum {
        LEN = (17 << 20) + 4099
    }; /* more than is written through the cache, to no block's end */
    folder = scratch_folder("9");
    unsigned char *bytes = malloc(LEN);
    assert_non_null(bytes);
    fill(bytes, LEN);
    const dl_span spans[] = {
        {bytes, 1}, {bytes + 1, 5000003}, {NULL, 0}, {bytes + 5000004, LEN - 5000004}};
    dl_map map;
    for (size_t cut = 0; cut < 2; cut++) { /* the second file ends with a block */
        const size_t len = LEN - cut * 3;
        const dl_span some[] = {spans[0], spans[1], spans[2], {spans[3].data, len - 5000004}};
        CHECK_OK(write_once(at("f"), some, 4));
        CHECK_OK(dl_map_open(&map, at("f")));
        CHECK_INT(len, map.len);
        assert_memory_equal(bytes, map.data, len);
        dl_map_close(&map);
    }
    CHECK_OK(write_once(at("f"), &(dl_span){"short", 5}, 1));
    check_content(at("f"), "short");
    CHECK_INT(1, n_files());
    free(bytes);
}

static void *nothing(void *context)
{
    return context;
}

/* Writes `f` here without the right to start a thread. The superuser has no such limit, so it
 * becomes another user. Returns the exit status. */
static int write_without_threads(const dl_span *span)
{
    const struct rlimit none = {0, 0};
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) return 2;
    if (setrlimit(RLIMIT_NPROC, &none)) return 3;
    pthread_t thread;
    if (!dl_thread_start(&thread, nothing, NULL)) return 4;
    return dl_file_write_once("f", span, 1, NULL, NULL) ? 5 : 0;
}

TEST(a_large_file_is_written_without_a_second_thread)
{
    enum { LEN = 17 << 20 };
    folder = scratch_folder("13");
    dl_map map;
    int status;
    unsigned char *bytes = malloc(LEN);
    assert_non_null(bytes);
    fill(bytes, LEN);
    CHECK_INT(0, chmod(folder, 0777));
    const pid_t child = fork();
    if (child == 0) _exit(chdir(folder) ? 1 : write_without_threads(&(dl_span){bytes, LEN}));
    CHECK_INT(child, waitpid(child, &status, 0));
    CHECK_INT(0, status);
    CHECK_OK(dl_map_open(&map, at("f")));
    CHECK_INT(LEN, map.len);
    assert_memory_equal(bytes, map.data, LEN);
    dl_map_close(&map);
    free(bytes);
}

/* Returns how many open files have no name any more. */
static int n_nameless(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat of;
        n += !fstatat(dirfd(dir), e->d_name, &of, 0) && S_ISREG(of.st_mode) && of.st_nlink == 0;
    }
    closedir(dir);
    return n;
}

TEST(a_replaced_large_file_is_freed_beside_the_caller)
{
    enum { LEN = 17 << 20 };
    folder = scratch_folder("12");
    dl_file_freeing freeing = {0};
    unsigned char *bytes = calloc(1, LEN);
    assert_non_null(bytes);
    const dl_span span = {bytes, LEN}, small = {bytes, 5};
    const int before = n_nameless();
    CHECK_OK(dl_file_write_once(at("f"), &span, 1, NULL, &freeing));
    CHECK(!freeing.runs); /* nothing was replaced */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_file_write_once(at("f"), &span, 1, NULL, &freeing));
        CHECK(freeing.runs);
    }
    dl_file_freed(&freeing);
    CHECK_INT(before, n_nameless());
    CHECK_OK(dl_file_write_once(at("f"), &small, 1, NULL, &freeing));
    CHECK(!freeing.runs);
    CHECK_INT(1, n_files());
    free(bytes);
}

/* The system takes a part of the second piece, and not to a block's end. */
TEST(a_large_write_that_fails_leaves_the_old_file)
{
    folder = scratch_folder("10");
    check_cut_off(write_once, 20 << 20, (6 << 20) + 100);
}

/* It has seen `n` bytes, and refuses the one at `refuses`. */
typedef struct onlooker {
    unsigned char *bytes;
    const dl_span *spans;
    size_t n, refuses;
} onlooker;

static diloco_status see(void *context, size_t span, size_t from, size_t len)
{
    onlooker *o = context;
    CHECK(len > 0 && len <= DL_FILE_SEEN);
    CHECK(o->bytes + o->n == (const unsigned char *)o->spans[span].data + from);
    if (o->refuses - o->n < len) return dl_fail(DILOCO_ENUMERIC, "byte %zu", o->refuses);
    o->n += len;
    return DILOCO_OK;
}

static void see_end(void *context)
{
    onlooker *o = context;
    memcpy(o->bytes, "end", 3);
}

static void check_seen(unsigned char *bytes, size_t len)
{
    const dl_span spans[] = {{bytes, 10},
                             {bytes + 10, len / 3},
                             {bytes + 10 + len / 3, 0},
                             {bytes + 10 + len / 3, len - 10 - len / 3}};
    onlooker o = {bytes, spans, 0, SIZE_MAX};
    const dl_file_viewer viewer = {see, see_end, &o};
    dl_map map;
    fill(bytes, len);
    CHECK_OK(dl_file_write_once(at("f"), spans, 4, &viewer, NULL));
    CHECK_INT(len, o.n);
    CHECK_INT(0, memcmp(bytes, "end", 3));
    CHECK_OK(dl_map_open(&map, at("f")));
    CHECK_INT(len, map.len);
    assert_memory_equal(bytes, map.data, len);
    dl_map_close(&map);
    write_text(at("f"), "old");
    o.n = 0;
    o.refuses = len - 1;
    CHECK_STATUS(DILOCO_ENUMERIC, dl_file_write_once(at("f"), spans, 4, &viewer, NULL));
    check_content(at("f"), "old");
    CHECK_INT(1, n_files());
}

/* Small files go through the cache. The last one is of whole pieces. */
TEST(all_bytes_are_seen_before_the_first_ones_are_written)
{
    static const size_t lens[] = {300000, (17 << 20) + 4099, 20 << 20};
    folder = scratch_folder("11");
    unsigned char *bytes = malloc(20 << 20);
    assert_non_null(bytes);
    for (size_t i = 0; i < 3; i++)
        check_seen(bytes, lens[i]);
    free(bytes);
}

TEST(a_full_disk_is_named_so)
{
    if (access("/dev/full", W_OK)) skip();
    int fd = open("/dev/full", O_WRONLY);
    CHECK_STATUS(DILOCO_EFULL, dl_fd_write(fd, &(dl_span){"x", 1}, 1, "/dev/full"));
    close(fd);
    CHECK_CONTAINS("/dev/full", diloco_error_text());
    CHECK_STATUS(DILOCO_EFULL, dl_fail_errno(EDQUOT, "write", "x"));
}

TEST(missing_folders_and_files_are_named_so)
{
    dl_buf buf;
    dl_map map;
    folder = scratch_folder("3");
    dl_buf_init(&buf, 100);
    CHECK_STATUS(DILOCO_ENOENT, dl_file_read(&buf, at("nothing")));
    CHECK_CONTAINS("nothing", diloco_error_text());
    CHECK_CONTAINS(strerror(ENOENT), diloco_error_text());
    CHECK_STATUS(DILOCO_ENOENT, dl_map_open(&map, at("nothing")));
    CHECK_STATUS(DILOCO_ENOENT, dl_file_write(at("no/f"), NULL, 0));
    CHECK_STATUS(DILOCO_ENOENT, dl_dir_sync(at("no")));
    CHECK_STATUS(DILOCO_EIO, dl_file_read(&buf, folder));
    CHECK_STATUS(DILOCO_EIO, dl_map_open(&map, folder));
    dl_buf_deinit(&buf);
}

TEST(reading_appends_up_to_the_maximum_and_not_beyond)
{
    dl_buf buf;
    folder = scratch_folder("4");
    write_text(at("f"), "0123456789");
    dl_buf_init(&buf, 20);
    CHECK_OK(dl_file_read(&buf, at("f")));
    CHECK_OK(dl_file_read(&buf, at("f")));
    CHECK_INT(20, buf.len);
    dl_buf_deinit(&buf);
    dl_buf_init(&buf, 19);
    CHECK_OK(dl_file_read(&buf, at("f")));
    CHECK_STATUS(DILOCO_EPROTO, dl_file_read(&buf, at("f")));
    CHECK_STR("0123456789", dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

TEST(a_file_without_a_size_is_read_to_its_end)
{
    dl_buf buf; /* files in /proc report a size of 0 */
    dl_buf_init(&buf, 1 << 20);
    if (dl_file_read(&buf, "/proc/self/status")) skip();
    CHECK_CONTAINS("Name:", dl_buf_str(&buf));
    dl_buf_deinit(&buf);
    dl_buf_init(&buf, 10);
    CHECK_STATUS(DILOCO_EPROTO, dl_file_read(&buf, "/proc/self/status"));
    CHECK_CONTAINS("/proc/self/status", diloco_error_text());
    CHECK_INT(0, buf.len);
    dl_buf_deinit(&buf);
}

TEST(a_map_shows_the_file)
{
    dl_map map;
    folder = scratch_folder("5");
    write_text(at("f"), "mapped");
    CHECK_OK(dl_map_open(&map, at("f")));
    CHECK_INT(6, map.len);
    CHECK_BYTES("mapped", map.data, 6);
    dl_map_close(&map);
    CHECK(!map.data);
    dl_map_close(&map);
    write_text(at("empty"), "");
    CHECK_OK(dl_map_open(&map, at("empty")));
    CHECK(!map.data && map.len == 0);
    dl_map_close(&map);
}

TEST(folders_are_made_with_their_parents_and_again)
{
    folder = scratch_folder("6");
    CHECK_OK(dl_dir_make(at("a/b//c/")));
    CHECK_OK(dl_dir_make(at("a/b/c")));
    CHECK(dl_file_exists(at("a/b/c")));
    CHECK(!dl_file_exists(at("a/b/d")));
    CHECK_OK(dl_dir_sync(at("a/b")));
    CHECK_OK(dl_dir_make("/"));
    write_text(at("f"), "");
    CHECK_STATUS(DILOCO_EIO, dl_dir_make(at("f")));
    CHECK_STATUS(DILOCO_EIO, dl_dir_make(at("f/below")));
    CHECK_STATUS(DILOCO_ENOENT, dl_dir_make(""));
}

TEST(names_that_are_too_long_are_refused)
{
    char long_path[5000];
    memset(long_path, 'a', sizeof long_path);
    long_path[sizeof long_path - 1] = 0;
    CHECK_STATUS(DILOCO_EIO, dl_file_write(long_path, NULL, 0));
    CHECK_STATUS(DILOCO_EIO, dl_dir_make(long_path));
}

TEST(a_name_without_a_folder_is_written_here)
{
    char before[1024];
    folder = scratch_folder("7");
    CHECK(getcwd(before, sizeof before));
    CHECK_INT(0, chdir(folder));
    write_text("here", "x");
    CHECK_INT(0, chdir(before));
    check_content(at("here"), "x");
}

TEST_MAIN(spans_are_cut_across_their_borders, spans_are_written_in_sequence_and_replace_the_file,
          a_large_file_is_written_once_and_whole, a_replaced_large_file_is_freed_beside_the_caller,
          a_large_file_is_written_without_a_second_thread,
          a_large_write_that_fails_leaves_the_old_file,
          all_bytes_are_seen_before_the_first_ones_are_written,
          a_failed_write_leaves_the_old_file_and_no_sibling, a_full_disk_is_named_so,
          missing_folders_and_files_are_named_so, reading_appends_up_to_the_maximum_and_not_beyond,
          a_file_without_a_size_is_read_to_its_end, a_map_shows_the_file,
          folders_are_made_with_their_parents_and_again, names_that_are_too_long_are_refused,
          a_name_without_a_folder_is_written_here)
