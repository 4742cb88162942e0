/* prepare.h - encodes texts into token shards (tokens.c), on all cores. After a kill the same call
 * continues.
 *
 * Files are cut between words (dl_word_border) into parts of about 16 MiB. Each part becomes a
 * shard, with the end token before the first part of a file. Shards are made in <out>.part, where
 * each has its name only when it is whole; at the end the folder is renamed to <out>.
 * <out>/prepare.json has the digests of text and tokenizer. A call with others is refused. */
#ifndef DL_DATA_PREPARE_H
#define DL_DATA_PREPARE_H

#include "data/bpe.h"

/* All is borrowed during the call. */
typedef struct dl_prepare {
    const char *text; /* a path list, as data.train_path */
    const dl_bpe *bpe;
    const char *out; /* the folder to make; without a comma in its path */
    int n_threads;   /* at least 1; 256 are used at most */
    /* NULL, or called on the caller's thread with bytes of text. */
    void (*on_progress)(void *user, uint64_t done, uint64_t total);
    void *user;
} dl_prepare;

typedef struct dl_prepared {
    uint64_t bytes, tokens, shards;
    uint64_t found; /* shards that were there already */
} dl_prepared;

/* Makes the shards that are missing. Returns DILOCO_EDIFFERS if the folder holds, or was begun
 * with, another text or tokenizer. Returns DILOCO_EINVAL for no text or an unusable path. Also
 * returns DILOCO_ENOENT, DILOCO_EIO, DILOCO_EFULL and DILOCO_ENOMEM. Whole shards remain after an
 * error. */
DL_MUST_CHECK diloco_status dl_prepare_run(dl_prepared *out, const dl_prepare *what);

#endif
