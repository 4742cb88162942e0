/* data.c - the cut: which tokens belong to validation, to a shard, to a window, and in which
 * order the windows come.
 *
 *     corpus      |<---------------- n_train ---------------->|<--- n_test --->|
 *     contiguous  |<- shard 0 ->|<- shard 1 ->|<- shard 2 ->| . (rest unused)
 *     shard       [w 0   ][w 1   ][w 2   ]. .                 window w begins at w T, has T + 1
 *
 * The order of an epoch is a permutation computed point by point (dl_rng_permute), so nothing
 * is stored and any position is reached at once. Its key is a draw of (seed, shard, epoch). */
#include "data/data.h"

#include "base/rng.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_source_kind *const sources[] = {&dl_source_text, &dl_source_tokens};
static const dl_tokenizer *const tokenizers[] = {&dl_tokenizer_byte};

enum {
    N_SOURCES = sizeof sources / sizeof sources[0],
    N_TOKENIZERS = sizeof tokenizers / sizeof tokenizers[0]
};

struct dl_data {
    dl_corpus train, own_test; /* own_test: of data.test_path, else zeroed */
    const dl_corpus *test;     /* where the validation part is: one of the two */
    const dl_tokenizer *tokenizer;
    bool spoken; /* the tokenizer knows every token of the data */
    bool whole;
    uint64_t seed;
    size_t T, vocab, n_shards;
    uint64_t n_train, test_first, n_test; /* tokens */
    uint64_t shard_tokens, windows;       /* of one shard */
    char digest[DL_HASH_HEX + 1];
};

const char *dl_datasource_name_at(size_t i)
{
    return i < N_SOURCES ? sources[i]->name : NULL;
}

const char *dl_tokenizer_name_at(size_t i)
{
    return i < N_TOKENIZERS ? tokenizers[i]->name : NULL;
}

/* ---- opening */

/* The row whose name `name_at` gives as `name`; DILOCO_EINVAL lists those there are. */
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

static diloco_status find_tokenizer(dl_data *data, const dl_config *config)
{
    size_t row;
    DL_TRY(find_row(&row, dl_tokenizer_name_at, config->tokenizer, "data.tokenizer"));
    data->tokenizer = tokenizers[row];
    return DILOCO_OK;
}

static diloco_status open_corpora(dl_data *data, const dl_config *config)
{
    size_t source;
    DL_TRY(find_row(&source, dl_datasource_name_at, config->datasource, "data.datasource"));
    DL_TRY(find_tokenizer(data, config));
    DL_TRY(dl_corpus_open(&data->train, sources[source], config->train_path, "data.train_path"));
    if (!config->test_path[0]) return DILOCO_OK;
    return dl_corpus_open(&data->own_test, sources[source], config->test_path, "data.test_path");
}

static void split(dl_data *data, double test_fraction)
{
    if (data->own_test.n_files) {
        data->test = &data->own_test;
        data->n_test = data->own_test.n;
        data->n_train = data->train.n;
    } else {
        data->test = &data->train;
        data->n_test = (uint64_t)((double)data->train.n * test_fraction);
        data->n_train = data->test_first = data->train.n - data->n_test;
    }
    data->shard_tokens = data->whole ? data->n_train : data->n_train / data->n_shards;
    data->windows = data->shard_tokens ? (data->shard_tokens - 1) / data->T : 0;
}

static diloco_status check_lengths(const dl_data *data, const dl_config *config)
{
    bool own = data->own_test.n_files > 0;
    if (data->shard_tokens <= data->T)
        return dl_fail(DILOCO_EINVAL,
                       "data.train_path: %s has %" PRIu64 " tokens for training, %" PRIu64
                       " for each of %zu shards, but one sequence needs %zu "
                       "(parameters.model.context + 1): give more data, or lower run.replicas or "
                       "the context",
                       config->train_path, data->n_train, data->shard_tokens, data->n_shards,
                       data->T + 1);
    bool none = !own && config->test_fraction == 0; /* asked for */
    if (data->n_test <= data->T && !none)
        return dl_fail(DILOCO_EINVAL,
                       "%s: %s has %" PRIu64 " tokens for validation, but one sequence needs %zu "
                       "(parameters.model.context + 1): give more data%s, or lower the context",
                       own ? "data.test_path" : "data.test_fraction",
                       own ? config->test_path : config->train_path, data->n_test, data->T + 1,
                       own ? "" : ", raise the fraction");
    return DILOCO_OK;
}

static diloco_status set_vocab(dl_data *data, const dl_config *config)
{
    int32_t largest = 0;
    size_t given = (size_t)config->vocab, limit = given ? given : SIZE_MAX;
    DL_TRY(dl_corpus_check_vocab(&data->train, limit, &largest));
    DL_TRY(dl_corpus_check_vocab(&data->own_test, limit, &largest));
    data->vocab = given ? given : (size_t)largest + 1;
    data->spoken = largest < data->tokenizer->n;
    return DILOCO_OK;
}

static void set_digest(dl_data *data)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_corpus_digest(&data->train, &stream);
    dl_digest_add(&stream, "|", 1);
    dl_corpus_digest(&data->own_test, &stream);
    dl_hash_to_hex(data->digest, dl_digest_end(&stream));
}

static diloco_status open_data(dl_data *data, const dl_config *config)
{
    DL_TRY(open_corpora(data, config));
    split(data, config->test_fraction);
    DL_TRY(check_lengths(data, config));
    DL_TRY(set_vocab(data, config));
    set_digest(data);
    return DILOCO_OK;
}

diloco_status dl_data_open(dl_data **out, const dl_config *config, size_t n_shards)
{
    DL_ASSERT(n_shards > 0 && config->context > 0);
    *out = NULL;
    dl_data *data = calloc(1, sizeof *data);
    if (!data) return dl_fail(DILOCO_ENOMEM, "no memory for the data's table");
    data->T = (size_t)config->context;
    data->n_shards = n_shards;
    data->whole = strcmp(config->partition, "whole") == 0;
    data->seed = (uint64_t)config->seed;
    diloco_status status = open_data(data, config);
    if (status) {
        dl_data_close(data);
        return status;
    }
    *out = data;
    return DILOCO_OK;
}

diloco_status dl_data_open_words(dl_data **out, const dl_config *config)
{
    *out = NULL;
    dl_data *data = calloc(1, sizeof *data);
    if (!data) return dl_fail(DILOCO_ENOMEM, "no memory for the data's table");
    diloco_status status = find_tokenizer(data, config);
    if (status) {
        dl_data_close(data);
        return status;
    }
    data->vocab = config->vocab ? (size_t)config->vocab : (size_t)data->tokenizer->n;
    data->spoken = data->vocab <= (size_t)data->tokenizer->n;
    *out = data;
    return DILOCO_OK;
}

void dl_data_close(dl_data *data)
{
    if (!data) return;
    dl_corpus_close(&data->train);
    dl_corpus_close(&data->own_test);
    free(data);
}

/* ---- what there is */

size_t dl_data_vocab(const dl_data *data)
{
    return data->vocab;
}

uint64_t dl_data_train_tokens(const dl_data *data)
{
    return data->n_train;
}

uint64_t dl_data_test_tokens(const dl_data *data)
{
    return data->n_test;
}

uint64_t dl_data_samples(const dl_data *data)
{
    return data->windows;
}

const char *dl_data_digest(const dl_data *data)
{
    return data->digest;
}

/* ---- the stream */

/* First token, in the corpus, of sample `i` of a shard. */
static uint64_t sample_begin(const dl_data *data, size_t shard, uint64_t i)
{
    uint64_t stream = DL_STREAM(DL_STREAM_DATA, shard), epoch = i / data->windows;
    uint32_t draw[4];
    dl_philox(draw, data->seed, stream, epoch);
    uint64_t key = draw[0] | (uint64_t)draw[1] << 32;
    uint64_t window = dl_rng_permute(i % data->windows, data->windows, key, stream);
    return (data->whole ? 0 : shard * data->shard_tokens) + window * data->T;
}

void dl_data_batch(const dl_data *data, int32_t *inputs, int32_t *targets, size_t shard,
                   uint64_t first, size_t rows)
{
    DL_ASSERT(shard < data->n_shards);
    for (size_t row = 0; row < rows; row++) {
        uint64_t begin = sample_begin(data, shard, first + row);
        dl_corpus_read(&data->train, inputs + row * data->T, begin, data->T);
        dl_corpus_read(&data->train, targets + row * data->T, begin + 1, data->T);
    }
}

/* ---- validation: window w has the targets w T + 1 … w T + T */

uint64_t dl_data_test_samples(const dl_data *data)
{
    return data->n_test ? (data->n_test - 1 + data->T - 1) / data->T : 0;
}

size_t dl_data_test_batch(const dl_data *data, int32_t *inputs, int32_t *targets, uint64_t first,
                          size_t rows)
{
    uint64_t windows = dl_data_test_samples(data);
    if (first >= windows) return 0;
    if (rows > windows - first) rows = (size_t)(windows - first);
    for (size_t row = 0; row < rows; row++) {
        uint64_t begin = (first + row) * data->T, left = data->n_test - 1 - begin;
        size_t n = left < data->T ? (size_t)left : data->T;
        int32_t *in = inputs + row * data->T, *out = targets + row * data->T;
        dl_corpus_read(data->test, in, data->test_first + begin, n);
        dl_corpus_read(data->test, out, data->test_first + begin + 1, n);
        for (size_t t = n; t < data->T; t++)
            in[t] = 0, out[t] = -1;
    }
    return rows;
}

/* ---- text */

size_t dl_data_token_text(const dl_data *data, char out[64], int32_t token)
{
    if (data->spoken && token >= 0 && token < data->tokenizer->n)
        return data->tokenizer->text(out, token);
    return (size_t)snprintf(out, 64, "<%" PRId32 ">", token);
}

size_t dl_data_encode(const dl_data *data, int32_t *tokens, size_t cap, const char *text,
                      size_t len)
{
    return data->spoken ? data->tokenizer->encode(tokens, cap, text, len) : 0;
}
