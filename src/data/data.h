/* data.h - training data: samples cut into disjoint shards, read as a stream whose position is one
 * number.
 *
 * A source (text, tokens, MNIST, CIFAR10: one row of data.c each) gives samples of a kind
 * (base/sample.h). The validation part comes from data.test_path, or it is the test files
 * beside an image set's training files, or it is cut from the end (data.test_fraction; 0 leaves
 * none). The training part is cut into n_shards pieces by data.sampler: contiguous ones of equal
 * length, or as data/partition.h says. With whole, or data.deal = log, every shard is all of it;
 * dealt samples are those of shard 0. Of tokens a piece is cut into windows of T + 1 that overlap
 * by one, T = parameters.model.context. A window, or an image, is a *sample*. The rest after the
 * last whole shard or window is not used.
 *
 *     sample i of shard k, epoch i / W:  permute(i mod W; seed, shard, epoch) of the shard's W
 *
 * so every sample comes once before any comes twice, the order differs in every epoch and
 * shard, and the position i is all there is to save (PROTOCOL P16, P18). The draws of augmentation
 * are functions of (seed, shard, i) too.
 *
 * Files stay mapped while the data is open (those packed with gzip are unpacked into memory), and
 * their pages are read when they are used. They must not be cut short meanwhile: the system kills
 * a process (SIGBUS) that touches a page after the end of its file. Replace them by renaming. */
#ifndef DL_DATA_DATA_H
#define DL_DATA_DATA_H

#include "base/config.h"
#include "base/file.h"
#include "base/sample.h"

typedef struct dl_data dl_data;

/* Opens the data that the options data.* name, for n_shards > 0 shards.
 *
 * Returns DILOCO_ENOENT or DILOCO_EIO if a path does not exist or cannot be read. Returns
 * DILOCO_EINVAL for no path, no files in a folder, an unknown source or tokenizer, and no data. It
 * also does for a token that parameters.model.vocab or the tokenizer has no place for, except in
 * files that are still arriving, which dl_data_await checks. So it does
 * if a shard or the validation part has fewer tokens than one sequence; the text has the path and
 * both lengths. Returns DILOCO_EREFUSED for text with a tokenizer other than byte, which has to be
 * prepared first, DILOCO_EPROTO for a file that is damaged or of another kind, and DILOCO_ENOMEM.
 * Also returns the errors of the tokenizer's file (bpe.h). */
DL_MUST_CHECK diloco_status dl_data_open(dl_data **out, const dl_config *config, size_t n_shards);
/* Opens the description of samples and the tokenizer alone. No data file is opened, and there is
 * nothing to train or validate on. The vocabulary is parameters.model.vocab, or the tokenizer's. */
DL_MUST_CHECK diloco_status dl_data_open_words(dl_data **out, const dl_config *config);
void dl_data_close(dl_data *data); /* NULL is fine */

/* Describes a sample. The classes of tokens are parameters.model.vocab. If that is 0, they are the
 * number that the data needs: 256 for bytes, and for token shards their largest token + 1. */
const dl_sample *dl_data_sample(const dl_data *data);
uint64_t dl_data_train_items(const dl_data *data); /* tokens or images, before the cut */
uint64_t dl_data_test_items(const dl_data *data);
uint64_t dl_data_samples(const dl_data *data, size_t shard); /* W: of one epoch; 0 without files */
/* Returns a digest of every file's size, first and last MiB, in order. It is stored in run.json,
 * and shows that two machines hold different data. Files that differ only in their middle are not
 * seen. */
const char *dl_data_digest(const dl_data *data);

/* Draws the samples of a shard if data.sampler draws them by the shard (data/partition.h), so that
 * one shard's are held at a time. Call it before the first batch of that shard, and while no thread
 * reads. With other samplers it does nothing. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_data_take(dl_data *data, size_t shard);
/* Returns the number of samples of the whole training part. */
uint64_t dl_data_all_samples(const dl_data *data);
/* Returns the class of a sample of the whole training part; for images only. */
int32_t dl_data_class(const dl_data *data, uint64_t sample);

/* dl_data_await waits until these samples have arrived, if files of the data are still arriving
 * (data/arrivals.h), and asks for the ones after them. dl_data_await_test does
 * this for validation samples. Call one of them before each read. Returns DILOCO_EINVAL for a token
 * beyond the vocabulary, and the errors of dl_arrivals. One thread at a time. With whole files both
 * do nothing. */
DL_MUST_CHECK diloco_status dl_data_await(const dl_data *data, size_t shard, uint64_t first,
                                          size_t rows);
DL_MUST_CHECK diloco_status dl_data_await_test(const dl_data *data, uint64_t first, size_t rows);

/* Reads samples first … first+rows-1 of a shard, in the layout of base/sample.h: rows inputs and
 * rows targets. Targets of tokens are the inputs shifted by one. Training images are augmented
 * (data.augment). Any thread. Equal arguments give equal samples. Allocates nothing. */
void dl_data_batch(const dl_data *data, void *inputs, int32_t *targets, size_t shard,
                   uint64_t first, size_t rows);

/* Reads validation samples in order, without overlap of targets. The last window may be short: its
 * targets past the end are -1, which a loss ignores, and its inputs are 0. Returns the number of
 * rows that were filled, and 0 past the end. Any thread. */
size_t dl_data_test_batch(const dl_data *data, void *inputs, int32_t *targets, uint64_t first,
                          size_t rows);
uint64_t dl_data_test_samples(const dl_data *data);

/* Returns the text of a token: *len bytes without a zero after them, valid as long as the data and
 * `room` are. Token shards do not name their tokenizer. If the data has tokens that data.tokenizer
 * does not know, another one made it. The text is then "<token>", and nothing can be encoded. */
const char *dl_data_token_text(const dl_data *data, size_t *len, char room[16], int32_t token);
/* Encodes text into at most len tokens; *n is their number. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_data_encode(const dl_data *data, int32_t *tokens, size_t *n,
                                           const char *text, size_t len);
/* Returns the digest of the tokenizer's file, or "" if it has none. */
const char *dl_data_tokenizer_digest(const dl_data *data);

const char *dl_datasource_name_at(size_t i); /* "text", "MNIST", …; NULL after the last */
/* Returns true if this source gives images, and false for an unknown one. */
bool dl_datasource_has_images(const char *name);
const char *dl_tokenizer_name_at(size_t i); /* "byte", "bpe" */

#endif
