/* corpus.h - files that are read as one row of tokens, and the kinds of file there are.
 *
 * A path list is "a,b,c": files and folders, blanks after a comma ignored (so a name with a
 * comma can only come in through its folder). A folder stands for the files below it that its
 * kind takes, in byte order of names, folder by folder; hidden names and links to folders are
 * passed over. The files are mapped: bytes are read from disk when they are used, and a file
 * that is cut short meanwhile kills the process (SIGBUS). */
#ifndef DL_DATA_CORPUS_H
#define DL_DATA_CORPUS_H

#include "base/file.h"
#include "base/hash.h"

/* One kind of file; a row of data.c. */
typedef struct dl_source_kind {
    const char *name;            /* data.datasource */
    const char *const *suffixes; /* the files it takes from a folder; NULL after the last */

    /* Find the tokens in a mapped file: n of them, the first at byte `offset`. DILOCO_EPROTO,
     * without the path, which the caller puts before it. */
    diloco_status (*find)(size_t *offset, size_t *n, const dl_map *map);

    void (*read)(int32_t *out, const unsigned char *tokens, size_t first, size_t n);

    /* The largest token that comes, or may come. n > 0. */
    int32_t (*largest)(const unsigned char *tokens, size_t n);
} dl_source_kind;

/* The list of sources. A new one is a file that defines dl_source_<name>, and its line here. */
// clang-format off
#define DL_SOURCES(X) \
    X(text) \
    X(tokens)
// clang-format on

#define DL_DECLARE(name) extern const dl_source_kind dl_source_##name;
DL_SOURCES(DL_DECLARE)
#undef DL_DECLARE

typedef struct dl_corpus_file {
    char *path; /* owned */
    dl_map map;
    size_t offset;  /* of its first token, in bytes */
    uint64_t first; /* number of its first token in the row */
    size_t n;       /* tokens; 0 is possible */
} dl_corpus_file;

typedef struct dl_corpus {
    const dl_source_kind *kind;
    dl_corpus_file *files;
    size_t n_files, cap;
    uint64_t n; /* tokens */
} dl_corpus;

/* Map all that `list` names. `option` is the option's name, for the text of errors.
 * DILOCO_EINVAL: an empty list or name, a folder without files to take, neither file nor
 * folder, no token at all. DILOCO_ENOENT, DILOCO_EIO, DILOCO_ENOMEM; DILOCO_EPROTO from the
 * kind. On error there is nothing to close. */
DL_MUST_CHECK diloco_status dl_corpus_open(dl_corpus *out, const dl_source_kind *kind,
                                           const char *list, const char *option);
void dl_corpus_close(dl_corpus *corpus); /* zeroed is fine */

/* Tokens first … first+n-1, all inside. Any thread. */
void dl_corpus_read(const dl_corpus *corpus, int32_t *out, uint64_t first, size_t n);

/* Every token below `vocab`? DILOCO_EINVAL names the first file with a larger one. *largest is
 * raised to what was seen. Reads all of a token shard once. */
DL_MUST_CHECK diloco_status dl_corpus_check_vocab(const dl_corpus *corpus, size_t vocab,
                                                  int32_t *largest);

/* Add the size and the first and last MiB of a file. */
void dl_map_digest(const dl_map *map, dl_digest_stream *digest);
/* The same of every file, in order. */
void dl_corpus_digest(const dl_corpus *corpus, dl_digest_stream *digest);

#endif
