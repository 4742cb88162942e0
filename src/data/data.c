/* data.c - the cut: which samples belong to validation and to a shard, and in which order a shard's
 * samples are read. Sources and tokenizers are tables of functions in files of their own.
 *
 *     items       |<---------------- n_train ---------------->|<--- n_test --->|
 *     contiguous  |<- shard 0 ->|<- shard 1 ->|<- shard 2 ->| . (rest unused)
 *     shard       [s 0   ][s 1   ][s 2   ]. .       sample s begins at item s * stride
 *
 * An item is a token or an image. A sample of tokens has T + 1 items at a stride of T; a sample of
 * images is one image. Samplers other than contiguous and whole number the samples of the whole
 * training part (partition.h).
 *
 * The order of an epoch is a permutation computed point by point (dl_rng_permute), so nothing
 * is stored and any position is reached at once. Its key is a draw of (seed, shard, epoch). */
#include "data/data.h"

#include "base/rng.h"
#include "data/augment.h"
#include "data/corpus.h"
#include "data/images.h"
#include "data/partition.h"
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A source has either tokens or images. */
static const struct {
    const dl_source_kind *tokens;
    const dl_image_kind *images;
} sources[] = {
#define TOKENS(name) {.tokens = &dl_source_##name},
#define IMAGES(name) {.images = &dl_images_##name},
    DL_SOURCES(TOKENS) DL_IMAGE_SETS(IMAGES)};
#define ROW(name) &dl_tokenizer_##name,
static const dl_tokenizer *const tokenizers[] = {DL_TOKENIZERS(ROW)};

enum {
    N_SOURCES = sizeof sources / sizeof sources[0],
    N_TOKENIZERS = sizeof tokenizers / sizeof tokenizers[0]
};

typedef struct piece { /* a shard */
    uint64_t first;    /* item of its first sample, where they come one after the other */
    uint64_t n;        /* samples */
} piece;

typedef struct text_coding {
    const dl_tokenizer *tokenizer;
    void *words; /* owned; the opened tokenizer, or NULL if it needs no file */
    char tokenizer_digest[DL_HASH_HEX + 1]; /* "": it has no file */
    bool spoken;                            /* the tokenizer knows every token of the data */
} text_coding;

/* Nothing changes after opening, except `list` and `taken` in dl_data_take(). */
struct dl_data {
    dl_sample sample;
    const dl_image_kind *kind; /* NULL: tokens */

    dl_corpus train, own_test; /* own_test: of data.test_path, else zeroed */
    const dl_corpus *test;     /* where the validation part is: one of the two */
    text_coding text;

    dl_images images, own_test_images; /* likewise for images */
    const dl_images *test_images;

    bool whole, augment; /* every shard is all of the training part; data.augment */
    uint64_t seed;       /* run.seed; the sampler has data.random_seed */
    size_t stride;       /* items from a sample to the next */
    size_t limit;        /* tokens of files that are still arriving are below it */
    uint64_t n_train, test_first, n_test; /* items */
    piece *shards;                        /* owned */
    size_t n_shards;
    dl_partition *partition; /* owned; NULL: samples of a shard come one after the other */
    uint32_t *list;          /* owned; of the shard taken, where the partition is listed */
    size_t taken, list_room; /* the shard in `list`, SIZE_MAX: none; samples that fit into it */
    char digest[DL_HASH_HEX + 1];
};

const char *dl_datasource_name_at(size_t i)
{
    if (i >= N_SOURCES) return NULL;
    return sources[i].images ? sources[i].images->name : sources[i].tokens->name;
}

bool dl_datasource_has_images(const char *name)
{
    for (size_t i = 0; i < N_SOURCES; i++)
        if (sources[i].images && strcmp(sources[i].images->name, name) == 0) return true;
    return false;
}

const char *dl_tokenizer_name_at(size_t i)
{
    return i < N_TOKENIZERS ? tokenizers[i]->name : NULL;
}

/* ---- opening */

/* Finds the row whose name is `name`. The text of DILOCO_EINVAL lists the known names. */
static diloco_status find_row(size_t *row, const char *(*name_at)(size_t), const char *name,
                              const char *option)
{
    char known[256] = "";
    for (size_t i = 0; name_at(i); i++) {
        if (strcmp(name_at(i), name) == 0) {
            *row = i;
            return DILOCO_OK;
        }
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", name_at(i));
    }
    return dl_fail(DILOCO_EINVAL, "%s: \"%s\" is unknown; there is: %s", option, name, known);
}

/* Finds and opens the tokenizer. The byte tokenizer has no file, so `open` is NULL. Text is read as
 * bytes, so that another tokenizer's tokens must come from shards. */
static diloco_status find_tokenizer(dl_data *data, const dl_config *config)
{
    size_t row;
    DL_TRY(find_row(&row, dl_tokenizer_name_at, config->tokenizer, "data.tokenizer"));
    const dl_tokenizer *t = data->text.tokenizer = tokenizers[row];
    if (!t->open) return DILOCO_OK;
    if (strcmp(config->datasource, dl_source_text.name) == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "data.datasource = \"text\" gives bytes, and data.tokenizer is \"%s\": "
                       "encode the text with diloco data prepare, and train on its folder with "
                       "data.datasource = \"tokens\"",
                       t->name);
    if (!*config->tokenizer_path)
        return dl_fail(DILOCO_EINVAL, "data.tokenizer = \"%s\" needs data.tokenizer_path, its file",
                       t->name);
    DL_TRY(t->open(&data->text.words, config->tokenizer_path));
    dl_hash_to_hex(data->text.tokenizer_digest, t->digest(data->text.words));
    return DILOCO_OK;
}

static size_t n_words(const dl_data *data)
{
    return (size_t)data->text.tokenizer->n(data->text.words);
}

/* Finds the source, and sets everything that follows from the options alone. */
static diloco_status find_source(dl_data *data, size_t *row, const dl_config *config)
{
    DL_TRY(find_row(row, dl_datasource_name_at, config->datasource, "data.datasource"));
    data->kind = sources[*row].images;
    data->stride = data->kind ? 1 : (size_t)config->context;
    data->whole = dl_sampler_gives_all(config->sampler) || config->deal == DL_DEAL_LOG;
    data->taken = SIZE_MAX;
    data->augment = config->augment;
    data->seed = (uint64_t)config->seed;
    if (data->kind)
        data->sample = data->kind->sample;
    else
        DL_TRY(find_tokenizer(data, config));
    return DILOCO_OK;
}

/* Opens text or token files. Without data.test_path the validation part is cut off later. */
static diloco_status open_corpora(dl_data *data, const dl_source_kind *kind,
                                  const dl_config *config)
{
    DL_TRY(dl_corpus_open(&data->train, kind, config->train_path, "data.train_path"));
    data->n_train = data->train.n;
    if (!config->test_path[0]) return DILOCO_OK;
    DL_TRY(dl_corpus_open(&data->own_test, kind, config->test_path, "data.test_path"));
    data->n_test = data->own_test.n;
    return DILOCO_OK;
}

/* Opens the set's training and test files. A set without test files is cut, unless data.test_path
 * named a folder for them. */
static diloco_status open_images(dl_data *data, const dl_config *config)
{
    bool own = config->test_path[0] != 0;
    const char *test_path = own ? config->test_path : config->train_path;
    DL_TRY(dl_images_open(&data->images, data->kind, config->train_path, "data.train_path", false));
    if (data->images.n == 0)
        return dl_fail(DILOCO_EINVAL,
                       "data.train_path: %s has no training images: datasource "
                       "\"%s\" looks for %s. %s",
                       config->train_path, data->kind->name, data->kind->files, data->kind->fetch);
    DL_TRY(dl_images_open(&data->own_test_images, data->kind, test_path,
                          own ? "data.test_path" : "data.train_path", true));
    data->n_train = data->images.n;
    data->n_test = data->own_test_images.n;
    if (data->n_test || !own) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "data.test_path: %s has no test images: datasource \"%s\" looks "
                   "for %s",
                   config->test_path, data->kind->name, data->kind->files);
}

/* The number of samples in n items. The last window of tokens needs an item after its stride. */
static uint64_t samples_of(const dl_data *data, uint64_t n)
{
    if (data->kind) return n;
    return n ? (n - 1) / data->stride : 0;
}

static int32_t class_of(const void *data, uint64_t sample)
{
    return dl_data_class(data, sample);
}

/* Divides the samples by the sampler. `partition` stays NULL for contiguous and whole. */
static diloco_status cut(dl_data *data, const dl_config *config, size_t n_shards)
{
    const dl_partition_data all = {.n = samples_of(data, data->n_train),
                                   .n_classes = data->kind ? data->sample.classes : 0,
                                   .class_of = class_of,
                                   .user = data};
    if (all.n == 0) return DILOCO_OK; /* nothing to deal: the shards stay empty, and are refused */
    DL_TRY(dl_partition_create(&data->partition, config, &all, n_shards));
    for (size_t i = 0; data->partition && i < n_shards; i++)
        data->shards[i] = (piece){.n = dl_partition_size(data->partition, i)};
    return DILOCO_OK;
}

/* Chooses the validation part and makes the shards. A part that is cut off is the end of the
 * training data, so that it does not depend on the number of shards. */
static diloco_status split(dl_data *data, const dl_config *config, size_t n_shards)
{
    bool own = data->n_test > 0;
    data->test = own ? &data->own_test : &data->train;
    data->test_images = own ? &data->own_test_images : &data->images;
    if (!own) {
        data->n_test = (uint64_t)((double)data->n_train * config->test_fraction);
        data->test_first = data->n_train -= data->n_test;
    }
    data->shards = calloc(n_shards, sizeof *data->shards);
    if (!data->shards) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu shards", n_shards);
    data->n_shards = n_shards;
    uint64_t each = data->whole ? data->n_train : data->n_train / n_shards;
    for (size_t i = 0; i < n_shards; i++)
        data->shards[i] = (piece){.first = data->whole ? 0 : i * each, .n = samples_of(data, each)};
    return cut(data, config, n_shards);
}

/* Refuses too little data. Shards without a partition have one length, and a sampler refuses
 * clients without a sample itself, so that the first shard is enough. */
static diloco_status check_tokens(const dl_data *data, const dl_config *config)
{
    bool own = data->own_test.n_files > 0;
    uint64_t each = data->whole ? data->n_train : data->n_train / data->n_shards;
    if (data->shards[0].n == 0)
        return dl_fail(DILOCO_EINVAL,
                       "data.train_path: %s has %" PRIu64 " tokens for training, %" PRIu64
                       " for each of %zu shards, but one sequence needs %zu "
                       "(parameters.model.context + 1): give more data, or lower run.replicas or "
                       "the context",
                       config->train_path, data->n_train, each, data->n_shards, data->stride + 1);
    bool none = !own && config->test_fraction == 0; /* asked for */
    if (data->n_test <= data->stride && !none)
        return dl_fail(DILOCO_EINVAL,
                       "%s: %s has %" PRIu64 " tokens for validation, but one sequence needs %zu "
                       "(parameters.model.context + 1): give more data%s, or lower the context",
                       own ? "data.test_path" : "data.test_fraction",
                       own ? config->test_path : config->train_path, data->n_test, data->stride + 1,
                       own ? "" : ", raise the fraction");
    return DILOCO_OK;
}

/* Refuses too few images. A set that is cut must have at least one for validation, unless
 * data.test_fraction is 0. */
static diloco_status check_images(const dl_data *data, const dl_config *config)
{
    if (data->shards[0].n == 0)
        return dl_fail(DILOCO_EINVAL,
                       "data.train_path: %s has %" PRIu64 " images for training, too few for %zu "
                       "shards: give more data, or lower run.replicas",
                       config->train_path, data->n_train, data->n_shards);
    if (data->n_test > 0 || config->test_fraction == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "data.test_fraction: %g of the %" PRIu64 " images of %s is less than one image: "
                   "give more data, or raise the fraction",
                   config->test_fraction, data->n_train, config->train_path);
}

/* Sets the limit of tokens that nothing has read yet, and raises *largest to the largest below. */
static diloco_status set_limit(dl_data *data, size_t limit, int32_t *largest)
{
    data->limit = data->text.words ? dl_size_min(limit, n_words(data)) : limit;
    if (!data->train.arrivals && !data->own_test.arrivals) return DILOCO_OK;
    *largest = (int32_t)dl_size_min(data->limit - 1, INT32_MAX);
    if (data->limit < SIZE_MAX) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "the largest token of data that is still arriving is not known: "
                                  "set parameters.model.vocab");
}

/* Sets the vocabulary. It reads every token once, to find the largest; a later token beyond the
 * vocabulary would index past the embedding. */
static diloco_status set_tokens(dl_data *data, const dl_config *config)
{
    int32_t largest = 0;
    size_t given = (size_t)config->vocab, limit = given ? given : SIZE_MAX;
    DL_TRY(dl_corpus_check_vocab(&data->train, limit, &largest));
    DL_TRY(dl_corpus_check_vocab(&data->own_test, limit, &largest));
    DL_TRY(set_limit(data, limit, &largest));
    data->text.spoken = (size_t)largest < n_words(data);
    if (!data->text.spoken && data->text.words)
        return dl_fail(DILOCO_EINVAL,
                       "the data has tokens up to %d, and %s has %zu: the data was encoded with "
                       "another tokenizer",
                       largest, config->tokenizer_path, n_words(data));
    size_t needed = data->text.words ? n_words(data) : (size_t)largest + 1;
    data->sample = dl_sample_tokens(given ? given : needed, (size_t)config->context);
    return DILOCO_OK;
}

/* The bar separates training files from test files: the same files divided otherwise are other
 * data. */
static void set_digest(dl_data *data)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_corpus_digest(&data->train, &stream);
    dl_images_digest(&data->images, &stream);
    dl_digest_add(&stream, "|", 1);
    dl_corpus_digest(&data->own_test, &stream);
    dl_images_digest(&data->own_test_images, &stream);
    dl_hash_to_hex(data->digest, dl_digest_end(&stream));
}

/* Files are opened before shards are cut, as their length decides the cut. */
static diloco_status open_data(dl_data *data, const dl_config *config, size_t n_shards)
{
    size_t row;
    DL_TRY(find_source(data, &row, config));
    DL_TRY(data->kind ? open_images(data, config)
                      : open_corpora(data, sources[row].tokens, config));
    DL_TRY(split(data, config, n_shards));
    DL_TRY(data->kind ? check_images(data, config) : check_tokens(data, config));
    if (!data->kind) DL_TRY(set_tokens(data, config));
    set_digest(data);
    return DILOCO_OK;
}

static diloco_status open_words(dl_data *data, const dl_config *config)
{
    size_t row;
    DL_TRY(find_source(data, &row, config));
    if (data->kind) return DILOCO_OK;
    size_t vocab = config->vocab ? (size_t)config->vocab : n_words(data);
    data->sample = dl_sample_tokens(vocab, (size_t)config->context);
    /* A text has only tokens that its tokenizer knows, however many the model has room for. */
    data->text.spoken =
        data->text.words || vocab <= n_words(data) || sources[row].tokens == &dl_source_text;
    return DILOCO_OK;
}

static diloco_status open_either(dl_data **out, const dl_config *config, size_t n_shards)
{
    *out = NULL;
    dl_data *data = calloc(1, sizeof *data);
    if (!data) return dl_fail(DILOCO_ENOMEM, "out of memory for the data's table");
    diloco_status status = n_shards ? open_data(data, config, n_shards) : open_words(data, config);
    if (status) {
        dl_data_close(data);
        return status;
    }
    *out = data;
    return DILOCO_OK;
}

diloco_status dl_data_open(dl_data **out, const dl_config *config, size_t n_shards)
{
    DL_ASSERT(n_shards > 0 && config->context > 0);
    return open_either(out, config, n_shards);
}

diloco_status dl_data_open_words(dl_data **out, const dl_config *config)
{
    return open_either(out, config, 0);
}

void dl_data_close(dl_data *data)
{
    if (!data) return;
    dl_corpus_close(&data->train);
    dl_corpus_close(&data->own_test);
    dl_images_close(&data->images);
    dl_images_close(&data->own_test_images);
    dl_partition_destroy(data->partition);
    if (data->text.words) data->text.tokenizer->close(data->text.words);
    free(data->shards);
    free(data->list);
    free(data);
}

/* ---- description */

const dl_sample *dl_data_sample(const dl_data *data)
{
    return &data->sample;
}

uint64_t dl_data_train_items(const dl_data *data)
{
    return data->n_train;
}

uint64_t dl_data_test_items(const dl_data *data)
{
    return data->n_test;
}

uint64_t dl_data_samples(const dl_data *data, size_t shard)
{
    return shard < data->n_shards ? data->shards[shard].n : 0;
}

uint64_t dl_data_all_samples(const dl_data *data)
{
    return samples_of(data, data->n_train);
}

const char *dl_data_digest(const dl_data *data)
{
    return data->digest;
}

/* The room of the largest shard so far is kept. */
static diloco_status make_room(dl_data *data, uint64_t n)
{
    uint32_t *list = realloc(data->list, n * sizeof *list);
    if (!list)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the %" PRIu64 " samples of a shard", n);
    data->list = list;
    data->list_room = n;
    return DILOCO_OK;
}

diloco_status dl_data_take(dl_data *data, size_t shard)
{
    DL_ASSERT(shard < data->n_shards);
    if (!data->partition || !dl_partition_listed(data->partition) || data->taken == shard)
        return DILOCO_OK;
    if (data->shards[shard].n > data->list_room) DL_TRY(make_room(data, data->shards[shard].n));
    dl_partition_list(data->list, data->partition, shard);
    data->taken = shard;
    return DILOCO_OK;
}

int32_t dl_data_class(const dl_data *data, uint64_t sample)
{
    int32_t label;
    DL_ASSERT(data->kind && sample < data->n_train);
    (void)dl_images_at(&data->images, sample, &label);
    return label;
}

/* ---- the stream */

/* Returns the first item of sample `i` of a shard, counted over all epochs. It takes constant time,
 * so a resumed run begins at any position at once. */
static uint64_t sample_begin(const dl_data *data, size_t shard, uint64_t i)
{
    const piece *s = &data->shards[shard];
    uint64_t stream = DL_STREAM(DL_STREAM_DATA, shard), epoch = i / s->n;
    uint32_t draw[4];
    dl_philox(draw, data->seed, stream, epoch);
    uint64_t key = draw[0] | (uint64_t)draw[1] << 32;
    uint64_t place = dl_rng_permute(i % s->n, s->n, key, stream);
    if (!data->partition) return s->first + place * data->stride;
    bool listed = dl_partition_listed(data->partition);
    DL_ASSERT(!listed || data->taken == shard);
    return data->stride *
           (listed ? data->list[place] : dl_partition_at(data->partition, shard, place));
}

/* Reads a window of T + 1 tokens as T inputs and their T targets, the next tokens. */
static void read_tokens(const dl_data *data, int32_t *input, int32_t *target, uint64_t begin)
{
    dl_corpus_read(&data->train, input, begin, data->stride);
    dl_corpus_read(&data->train, target, begin + 1, data->stride);
}

/* Reads the image at `begin`. shard and number, the sample's position, key the augmentation. */
static void read_image(const dl_data *data, unsigned char *input, int32_t *target, uint64_t begin,
                       size_t shard, uint64_t number)
{
    const dl_image_kind *kind = data->kind;
    const unsigned char *pixels = dl_images_at(&data->images, begin, target);
    if (data->augment && (kind->crop_pad || kind->mirror))
        dl_augment(input, pixels, &data->sample, kind->crop_pad, kind->mirror, data->seed, shard,
                   number);
    else
        memcpy(input, pixels, dl_sample_bytes(&data->sample));
}

void dl_data_batch(const dl_data *data, void *inputs, int32_t *targets, size_t shard,
                   uint64_t first, size_t rows)
{
    DL_ASSERT(shard < data->n_shards);
    unsigned char *input = inputs;
    for (size_t row = 0; row < rows; row++) {
        uint64_t begin = sample_begin(data, shard, first + row);
        if (data->kind)
            read_image(data, input, targets, begin, shard, first + row);
        else
            read_tokens(data, (int32_t *)(void *)input, targets, begin);
        input += dl_sample_bytes(&data->sample);
        targets += data->sample.length;
    }
}

/* ---- data that is still arriving */

enum { AHEAD = 256 }; /* samples after a batch that are asked for while it is computed */

diloco_status dl_data_await(const dl_data *data, size_t shard, uint64_t first, size_t rows)
{
    const dl_corpus *c = &data->train;
    const size_t len = data->stride + 1;
    if (!c->arrivals) return DILOCO_OK;
    for (size_t i = 0; i < rows + AHEAD; i++)
        dl_corpus_want(c, sample_begin(data, shard, first + i), len, i < rows);
    for (size_t i = 0; i < rows; i++)
        DL_TRY(dl_corpus_await(c, sample_begin(data, shard, first + i), len, data->limit));
    return DILOCO_OK;
}

diloco_status dl_data_await_test(const dl_data *data, uint64_t first, size_t rows)
{
    const dl_corpus *c = data->test;
    const uint64_t begin = first * data->stride, left = data->n_test - begin;
    const uint64_t at = data->test_first + begin;
    const size_t len = rows * data->stride + 1;
    if (data->kind || !c->arrivals || begin >= data->n_test) return DILOCO_OK;
    dl_corpus_want(c, at, len, true);
    dl_corpus_want(c, at + len, len, false);
    return dl_corpus_await(c, at, left < len ? (size_t)left : len, data->limit);
}

/* ---- validation: window w has the targets w T + 1 … w T + T */

uint64_t dl_data_test_samples(const dl_data *data)
{
    if (data->kind) return data->n_test;
    return data->n_test ? (data->n_test - 1 + data->stride - 1) / data->stride : 0;
}

/* Reads a window of the validation part. A short last window is padded. */
static void read_test_tokens(const dl_data *data, int32_t *input, int32_t *target, uint64_t window)
{
    size_t T = data->stride;
    uint64_t begin = window * T, left = data->n_test - 1 - begin;
    size_t n = left < T ? (size_t)left : T;
    dl_corpus_read(data->test, input, data->test_first + begin, n);
    dl_corpus_read(data->test, target, data->test_first + begin + 1, n);
    for (size_t t = n; t < T; t++)
        input[t] = 0, target[t] = -1;
}

size_t dl_data_test_batch(const dl_data *data, void *inputs, int32_t *targets, uint64_t first,
                          size_t rows)
{
    uint64_t samples = dl_data_test_samples(data);
    size_t bytes = dl_sample_bytes(&data->sample);
    unsigned char *input = inputs;
    if (first >= samples) return 0;
    if (rows > samples - first) rows = (size_t)(samples - first);
    for (size_t row = 0; row < rows; row++, input += bytes, targets += data->sample.length)
        if (data->kind)
            memcpy(input, dl_images_at(data->test_images, data->test_first + first + row, targets),
                   bytes);
        else
            read_test_tokens(data, (int32_t *)(void *)input, targets, first + row);
    return rows;
}

/* ---- text */

const char *dl_data_token_text(const dl_data *data, size_t *len, char room[16], int32_t token)
{
    if (data->text.spoken && token >= 0 && (size_t)token < n_words(data))
        return data->text.tokenizer->text(data->text.words, len, token);
    *len = (size_t)snprintf(room, 16, "<%" PRId32 ">", token);
    return room;
}

diloco_status dl_data_encode(const dl_data *data, int32_t *tokens, size_t *n, const char *text,
                             size_t len)
{
    *n = 0;
    return data->text.spoken ? data->text.tokenizer->encode(data->text.words, tokens, n, text, len)
                             : DILOCO_OK;
}

const char *dl_data_tokenizer_digest(const dl_data *data)
{
    return data->text.tokenizer_digest;
}
