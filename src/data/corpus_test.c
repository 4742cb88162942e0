/* corpus_test.c - path lists, and the row of tokens they become. */
#include "data/corpus.h"

#include "check.h"
#include "scratch.h"

#include <sys/stat.h>

static dl_corpus open_text(const char *list)
{
    dl_corpus corpus;
    CHECK_OK(dl_corpus_open(&corpus, &dl_source_text, list, "data.train_path"));
    return corpus;
}

/* The corpus is exactly this text, whichever way it is read. */
static void check_text(const dl_corpus *corpus, const char *text)
{
    size_t n = strlen(text);
    int32_t tokens[64];
    CHECK_INT(n, corpus->n);
    for (size_t first = 0; first <= n; first++) {
        for (size_t len = 0; len <= n - first; len++) {
            dl_corpus_read(corpus, tokens, first, len);
            for (size_t i = 0; i < len; i++)
                CHECK_INT(text[first + i], tokens[i]);
        }
    }
}

static void check_refused(diloco_status status, const char *list, const char *part)
{
    dl_corpus corpus;
    CHECK_STATUS(status, dl_corpus_open(&corpus, &dl_source_text, list, "data.train_path"));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(corpus.files == NULL);
}

TEST(one_file_is_its_bytes)
{
    dl_corpus corpus = open_text(scratch_write("one", "h\xc3\xa9", 3));
    int32_t tokens[3];
    dl_corpus_read(&corpus, tokens, 0, 3);
    CHECK(tokens[0] == 'h' && tokens[1] == 0xc3 && tokens[2] == 0xa9);
    dl_corpus_close(&corpus);
}

TEST(a_list_is_read_in_its_order_over_empty_files)
{
    const char *b = scratch_write("b", "bcd", 3), *none = scratch_write("none", "", 0),
               *a = scratch_write("a", "a", 1);
    char list[4 * PATH_MAX];
    snprintf(list, sizeof list, "%s,%s, %s,%s,%s,%s", none, b, none, none, a, none);
    dl_corpus corpus = open_text(list);
    CHECK_INT(6, corpus.n_files);
    check_text(&corpus, "bcda");
    dl_corpus_close(&corpus);
}

TEST(a_folder_is_its_text_files_in_byte_order_with_folders_inside)
{
    const char *root = scratch_folder("tree");
    scratch_folder("tree/m");
    scratch_folder("tree/.git");
    scratch_write("tree/z.txt", "5", 1);
    scratch_write("tree/a.md", "2", 1);
    scratch_write("tree/B.c", "1", 1); /* before "a" in bytes, after it in most locales */
    scratch_write("tree/m/x.h", "3", 1);
    scratch_write("tree/m.h", "4", 1);
    scratch_write("tree/picture.png", "no", 2);
    scratch_write("tree/.hidden.txt", "no", 2);
    scratch_write("tree/.git/x.txt", "no", 2);
    scratch_write("tree/.txt", "no", 2);
    dl_corpus corpus = open_text(root);
    check_text(&corpus, "12345");
    dl_corpus_close(&corpus);
}

TEST(links_to_files_are_followed_and_links_to_folders_are_not)
{
    const char *root = scratch_folder("links");
    const char *target = scratch_write("target", "x", 1);
    CHECK_INT(0, symlink(target, scratch_path("links/file.txt")));
    CHECK_INT(0, symlink(".", scratch_path("links/loop.txt")));
    CHECK_INT(0, mkfifo(scratch_path("links/pipe.txt"), 0666)); /* opening it would block */
    dl_corpus corpus = open_text(root);
    check_text(&corpus, "x");
    dl_corpus_close(&corpus);
}

TEST(a_dangling_link_in_a_folder_is_an_error)
{
    const char *root = scratch_folder("dangling");
    CHECK_INT(0, symlink("nowhere", scratch_path("dangling/a.txt")));
    check_refused(DILOCO_ENOENT, root, "dangling/a.txt");
}

TEST(a_missing_path_is_named)
{
    check_refused(DILOCO_ENOENT, "/nowhere/at/all.txt", "/nowhere/at/all.txt");
    check_refused(DILOCO_ENOENT, "/nowhere/at/all.txt", "data.train_path");
}

TEST(nothing_named_is_refused)
{
    check_refused(DILOCO_EINVAL, "", "data.train_path is not set");
    check_refused(DILOCO_EINVAL, ",", "empty name");
    char list[PATH_MAX];
    snprintf(list, sizeof list, "%s, ", scratch_write("something", "s", 1));
    check_refused(DILOCO_EINVAL, list, "empty name");
}

TEST(an_empty_file_is_no_data)
{
    const char *path = scratch_write("empty.txt", "", 0);
    check_refused(DILOCO_EINVAL, path, "no data");
    check_refused(DILOCO_EINVAL, path, "empty.txt");
}

TEST(a_folder_with_nothing_to_take_is_refused)
{
    const char *path = scratch_folder("barren");
    scratch_write("barren/picture.png", "no", 2);
    check_refused(DILOCO_EINVAL, path, "barren");
    check_refused(DILOCO_EINVAL, path, ".txt");
}

TEST(a_path_that_is_neither_file_nor_folder_is_refused)
{
    const char *path = scratch_path("pipe");
    CHECK_INT(0, mkfifo(path, 0666));
    check_refused(DILOCO_EINVAL, path, "neither a file nor a folder");
}

TEST(many_files_are_found_again)
{
    scratch_folder("many");
    char text[53] = "";
    for (int i = 0; i < 52; i++) {
        char name[32];
        text[i] = (char)((i < 26 ? 'A' : 'a' - 26) + i);
        snprintf(name, sizeof name, "many/%c.txt", text[i]);
        scratch_write(name, &text[i], 1);
    }
    dl_corpus corpus = open_text(scratch_path("many"));
    CHECK_INT(52, corpus.n_files);
    check_text(&corpus, text);
    dl_corpus_close(&corpus);
}

static void digest_of(char hex[DL_HASH_HEX + 1], const char *list)
{
    dl_corpus corpus = open_text(list);
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_corpus_digest(&corpus, &stream);
    dl_hash_to_hex(hex, dl_digest_end(&stream));
    dl_corpus_close(&corpus);
}

TEST(the_digest_sees_order_sizes_and_ends_but_not_names)
{
    const char *ab = scratch_write("ab", "ab", 2), *ab2 = scratch_write("ab2", "ab", 2),
               *ac = scratch_write("ac", "ac", 2), *a = scratch_write("a1", "a", 1),
               *bac = scratch_write("bac", "bac", 3);
    char first[DL_HASH_HEX + 1], other[DL_HASH_HEX + 1], list[2 * PATH_MAX + 2];
    digest_of(first, ab), digest_of(other, ab2);
    CHECK_STR(first, other);
    digest_of(other, ac);
    CHECK(strcmp(first, other) != 0);

    snprintf(list, sizeof list, "%s,%s", ab, ac), digest_of(first, list);
    snprintf(list, sizeof list, "%s,%s", ac, ab), digest_of(other, list);
    CHECK(strcmp(first, other) != 0);
    snprintf(list, sizeof list, "%s,%s", a, bac), digest_of(other, list); /* the same text */
    CHECK(strcmp(first, other) != 0);
}

TEST(the_digest_reads_the_first_and_last_mib_only)
{
    size_t n = 5u << 20;
    char *text = calloc(n, 1), first[DL_HASH_HEX + 1], other[DL_HASH_HEX + 1];
    CHECK(text != NULL);
    digest_of(first, scratch_write("big", text, n));
    text[n / 2] = 1;
    digest_of(other, scratch_write("big", text, n));
    CHECK_STR(first, other);
    text[n - (1u << 20)] = 1;
    digest_of(other, scratch_write("big", text, n));
    CHECK(strcmp(first, other) != 0);
    free(text);
}

TEST_MAIN(one_file_is_its_bytes, a_list_is_read_in_its_order_over_empty_files,
          a_folder_is_its_text_files_in_byte_order_with_folders_inside,
          links_to_files_are_followed_and_links_to_folders_are_not,
          a_dangling_link_in_a_folder_is_an_error, a_missing_path_is_named,
          nothing_named_is_refused, an_empty_file_is_no_data,
          a_folder_with_nothing_to_take_is_refused,
          a_path_that_is_neither_file_nor_folder_is_refused, many_files_are_found_again,
          the_digest_sees_order_sizes_and_ends_but_not_names,
          the_digest_reads_the_first_and_last_mib_only)
