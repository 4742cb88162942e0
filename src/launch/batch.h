/* batch.h - a command that launch runs once for each rank, and its record in a store.
 *
 * A batch is no run: it has no log, and its ranks share nothing. Its store has the book (book.h)
 * and one object more, which is created once and never changed:
 *
 *     batch.json    {"format":1,"id":"<32 hex digits>","ranks":4,"command":["python","…","{rank}"]}
 *
 * The ranks may be the replicas of a run in another store (job.run), for example by a script with
 * PyTorch. The object then has that store's URL as its member "run". Others may have written it, so
 * a reader opens it only after dl_batch_run_is_near.
 *
 * The id takes the place of a run's id in the book and in the names of jobs. The command of the
 * store is only compared, and never run: others may be able to write to the store. One thread at a
 * time. */
#ifndef DL_LAUNCH_BATCH_H
#define DL_LAUNCH_BATCH_H

#include "launch/book.h"

#define DL_BATCH_KEY "batch.json"

typedef struct dl_batch {
    char id[33]; /* 32 hex digits */
    uint32_t ranks;
    dl_config_path run; /* URL of the run whose replicas the ranks are; "": they have none */
} dl_batch;

/* dl_batch_words reads job.command, a JSON array of texts, into words that end with NULL. The
 * caller frees *out with dl_argv_free. Returns DILOCO_EINVAL if the text is no such array, or has
 * no word; *out is NULL then. */
DL_MUST_CHECK diloco_status dl_batch_words(char ***out, const char *command);

/* dl_batch_open reads the batch in the store at `url`, or creates it with these words and this run
 * ("": none). Returns DILOCO_EREFUSED if the store has a batch of another command, another number
 * of ranks or another run, and errors of the store. */
DL_MUST_CHECK diloco_status dl_batch_open(dl_batch *out, const char *url, uint32_t ranks,
                                          char *const *words, const char *run);
/* dl_batch_read reads the batch in the store at `url`. Returns DILOCO_ENOENT if the store has none,
 * DILOCO_EPROTO if the object is invalid, and errors of the store. */
DL_MUST_CHECK diloco_status dl_batch_read(dl_batch *out, const char *url);

/* dl_batch_remove deletes the batch and its book from the store at `url`; *n counts the objects.
 * Returns DILOCO_EREFUSED if a rank is not over, by the book, and errors of the store. A call that
 * failed may be repeated. */
DL_MUST_CHECK diloco_status dl_batch_remove(uint64_t *n, const char *url);

/* Returns true if the run at `run` may be opened by a reader of the store at `url`. Both have to be
 * paths, or URLs with the same scheme, authority and query. A query may name a server. So a forged
 * record gets no credentials that the store itself does not get. */
bool dl_batch_run_is_near(const char *run, const char *url);

/* Returns true if every rank of the book has succeeded. */
bool dl_batch_is_complete(const dl_book *book);

#endif
