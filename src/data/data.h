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

/* Open what data.* names, for n_shards > 0 shards.
 *
 * DILOCO_ENOENT, DILOCO_EIO: a path that is not there or cannot be read. DILOCO_EINVAL: no
 * path, no files in a folder, an unknown source or tokenizer, no data. So are a token that
 * parameters.model.vocab or the tokenizer has no place for, and fewer tokens than one sequence in a
 * shard or in the validation part. The text has the path, the length there is and the length
 * needed. DILOCO_EREFUSED: text with a tokenizer other than byte; it has to be prepared. Also the
 * errors of the tokenizer's file (bpe.h).
 * DILOCO_EPROTO: a file that is damaged or something else. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_data_open(dl_data **out, const dl_config *config, size_t n_shards);
/* Only what its samples are: no file is opened, there is nothing to train or validate on. The
 * vocabulary is parameters.model.vocab, or the tokenizer's. */
DL_MUST_CHECK diloco_status dl_data_open_words(dl_data **out, const dl_config *config);
void dl_data_close(dl_data *data); /* NULL is fine */

/* Describe a sample. Of tokens the classes are parameters.model.vocab, or where that is 0 the
 * number that the data needs: 256 for bytes, for token shards their largest token + 1. */
const dl_sample *dl_data_sample(const dl_data *data);
uint64_t dl_data_train_items(const dl_data *data); /* tokens or images, before the cut */
uint64_t dl_data_test_items(const dl_data *data);
uint64_t dl_data_samples(const dl_data *data, size_t shard); /* W: of one epoch; 0 without files */
/* Digest of the first and last MiB of every file, sizes and the order: shows that two
 * machines hold different data. In run.json. */
const char *dl_data_digest(const dl_data *data);

/* Draw the samples of a shard where data.sampler draws them by the shard (data/partition.h), so
 * that one shard's are held at a time. Call it before the first batch of that shard, and while no
 * thread reads. With other samplers it does nothing. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_data_take(dl_data *data, size_t shard);
/* Samples of the whole training part. */
uint64_t dl_data_all_samples(const dl_data *data);
/* Class of a sample of the whole training part; images only. */
int32_t dl_data_class(const dl_data *data, uint64_t sample);

/* Samples first … first+rows-1 of a shard, as base/sample.h says: rows inputs, rows targets (of
 * tokens the inputs shifted by one). Training images are augmented (data.augment). Any thread.
 * Pure: the same numbers, the same samples. Allocates nothing. */
void dl_data_batch(const dl_data *data, void *inputs, int32_t *targets, size_t shard,
                   uint64_t first, size_t rows);

/* Validation samples in order, without overlap of targets; the last window may be short: targets
 * past the end are -1 (and inputs 0). Returns the rows filled, 0 when past the end. Any thread. */
size_t dl_data_test_batch(const dl_data *data, void *inputs, int32_t *targets, uint64_t first,
                          size_t rows);
uint64_t dl_data_test_samples(const dl_data *data);

/* Text of a token, *len bytes without a zero after them, valid until close or until `room` goes.
 * Token shards do not name their tokenizer. Where the data has tokens that data.tokenizer
 * does not know, it is another one: text is then "<token>" and nothing can be encoded. */
const char *dl_data_token_text(const dl_data *data, size_t *len, char room[16], int32_t token);
/* Encode text into at most len tokens; *n of them. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_data_encode(const dl_data *data, int32_t *tokens, size_t *n,
                                           const char *text, size_t len);
/* Digest of the tokenizer's file; "" where it has none. */
const char *dl_data_tokenizer_digest(const dl_data *data);

const char *dl_datasource_name_at(size_t i); /* "text", "MNIST", …; NULL after the last */
/* Does this source give images? False for an unknown one. */
bool dl_datasource_has_images(const char *name);
const char *dl_tokenizer_name_at(size_t i); /* "byte", "bpe" */

#endif
