/* prepare.h - texts into token shards (tokens.c), on all cores, to be continued with after a kill.
 *
 * Files are cut where two words meet (dl_word_border) into parts of about 16 MiB, each a shard of
 * its own, with the end token before the first part of a file. Shards are made in <out>.part, each
 * there only when it is whole; at the end the folder gets its name. <out>/prepare.json says what
 * went in: another text or tokenizer is refused, the same continues or is done already. */
#ifndef DL_DATA_PREPARE_H
#define DL_DATA_PREPARE_H

#include "data/bpe.h"

typedef struct dl_prepare {
    const char *text; /* a path list, as data.train_path */
    const dl_bpe *bpe;
    const char *out;
    int n_threads;
    void (*on_progress)(void *user, uint64_t done, uint64_t total); /* bytes; or NULL */
    void *user;
} dl_prepare;

typedef struct dl_prepared {
    uint64_t bytes, tokens, shards;
    uint64_t found; /* shards that were there already */
} dl_prepared;

/* DILOCO_EDIFFERS: the folder holds, or was begun with, other text or another tokenizer.
 * DILOCO_ENOENT, DILOCO_EIO, DILOCO_EFULL, DILOCO_EINVAL (no text), DILOCO_ENOMEM: whole shards
 * stay. */
DL_MUST_CHECK diloco_status dl_prepare_run(dl_prepared *out, const dl_prepare *what);

#endif
