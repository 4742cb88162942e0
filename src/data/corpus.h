/* corpus.h - files that are read as one row of tokens, and the kinds of file there are.
 *
 * A path list is "a,b,c": files and folders, blanks after a comma ignored (so a name with a
 * comma can only come in through its folder). A folder stands for the files below it that its
 * kind takes, in byte order of names, folder by folder; hidden names and links to folders are
 * passed over. The files are mapped: bytes are read from disk when they are used, and a file
 * that is cut short meanwhile kills the process (SIGBUS).
 *
 * The files of a path may be still arriving (data/arrivals.h). Their tokens are read only after
 * dl_corpus_await. */
#ifndef DL_DATA_CORPUS_H
#define DL_DATA_CORPUS_H

#include "base/hash.h"
#include "data/arrivals.h"

/* One kind of file; a row of data.c. */
typedef struct dl_source_kind {
    const char *name;            /* data.datasource */
    const char *const *suffixes; /* the files it takes from a folder; NULL after the last */

    /* Finds the tokens in a mapped file: n of them, the first at byte `offset`. Returns
     * DILOCO_EPROTO, without the path, which the caller adds. */
    diloco_status (*find)(size_t *offset, size_t *n, const dl_map *map);

    /* Reads n tokens of a file from the first-th on. tokens: the address of `offset`. */
    void (*read)(int32_t *out, const unsigned char *tokens, size_t first, size_t n);

    /* Returns the largest token that the file has, or may have. n > 0. */
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

/* Returns true for the name of the source of token shards. */
bool dl_source_is_shards(const char *name);

typedef struct dl_corpus_file {
    char *path; /* owned */
    dl_map map;
    size_t offset;  /* of its first token, in bytes */
    uint64_t first; /* number of its first token in the row */
    size_t n;       /* tokens; 0 is possible */
    void *arriving; /* NULL: the file is whole; else the handle of data/arrivals.h */
} dl_corpus_file;

/* All files of a path list. Its memory is the list; the tokens stay in the files. */
typedef struct dl_corpus {
    const dl_source_kind *kind;
    dl_corpus_file *files;
    size_t n_files, cap;
    uint64_t n; /* tokens */
    /* Of files that are still arriving; NULL: all files are whole. */
    const dl_arrivals *arrivals;
} dl_corpus;

/* Maps all files that `list` names. `option` is the option's name, for the text of errors. Returns
 * DILOCO_EINVAL for an empty list or name, a folder without files of the kind, a path that is
 * neither file nor folder, and no token at all. Also returns DILOCO_ENOENT, DILOCO_EIO,
 * DILOCO_ENOMEM, and DILOCO_EPROTO from the kind. After an error nothing needs to be closed. */
DL_MUST_CHECK diloco_status dl_corpus_open(dl_corpus *out, const dl_source_kind *kind,
                                           const char *list, const char *option);
void dl_corpus_close(dl_corpus *corpus); /* zeroed is fine */

/* Reads tokens first … first+n-1, which must all exist and have arrived. Any thread. */
void dl_corpus_read(const dl_corpus *corpus, int32_t *out, uint64_t first, size_t n);

/* dl_corpus_want asks for tokens first … first+n-1, as far as they exist, of files that are still
 * arriving; `now` is that of dl_arrivals. dl_corpus_await waits for them, and checks that they are
 * below `vocab`. It returns DILOCO_EINVAL, which names the file, and the errors of dl_arrivals.
 * With whole files both do nothing. */
void dl_corpus_want(const dl_corpus *corpus, uint64_t first, uint64_t n, bool now);
DL_MUST_CHECK diloco_status dl_corpus_await(const dl_corpus *corpus, uint64_t first, size_t n,
                                            size_t vocab);

/* Checks that every token of the whole files is below `vocab`. DILOCO_EINVAL names the first file
 * with a larger one. *largest is raised to the largest token seen. Reads all of a token shard
 * once. */
DL_MUST_CHECK diloco_status dl_corpus_check_vocab(const dl_corpus *corpus, size_t vocab,
                                                  int32_t *largest);

/* Adds the size and the first and last MiB of a file to a digest. */
void dl_map_digest(const dl_map *map, dl_digest_stream *digest);
/* The same of every file, in order. */
void dl_corpus_digest(const dl_corpus *corpus, dl_digest_stream *digest);

#endif
