/* bpe.h - byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; over bytes as in
 * GPT-2): text is cut into words (words.h), and a word into bytes. Of all neighbours in it the pair
 * of the lowest rank becomes one token, from the left, until no pair has a rank.
 *
 * Read from tokenizer.json of GPT-2's or Llama 3's kind or from tiktoken's ranks; trained on text
 * by bpe_train.c. A tokenizer is not written to once it is open: any thread. */
#ifndef DL_DATA_BPE_H
#define DL_DATA_BPE_H

#include "base/buf.h"
#include "base/hash.h"
#include "data/words.h"

/* A tokenizer in memory (bpe_table.h). */
typedef struct dl_bpe dl_bpe;

/* Opens a tokenizer from a file, or reads one from memory. The first byte shows its kind: '{' is a
 * tokenizer.json. tiktoken's ranks do not say how text is cut: up to 60,000 of them are cut as
 * GPT-2, up to 150,000 as cl100k. A token of ranks has at most 256 bytes. The bytes are untrusted.
 *
 * Returns DILOCO_ENOENT, DILOCO_EIO and DILOCO_ENOMEM, and DILOCO_EPROTO if it is damaged. Returns
 * DILOCO_EREFUSED if it asks for something that would give other tokens here; the text names it (a
 * normalizer, another way to cut words, an unknown-token fallback, …). */
DL_MUST_CHECK diloco_status dl_bpe_open(dl_bpe **out, const char *path);
DL_MUST_CHECK diloco_status dl_bpe_read(dl_bpe **out, const void *text, size_t len);
void dl_bpe_close(dl_bpe *bpe); /* NULL is fine */

int32_t dl_bpe_n(const dl_bpe *bpe); /* tokens are 0 … n-1; numbers without one are empty */
/* Returns the bytes of a token, 0 <= token < n; valid until close. */
const char *dl_bpe_token(const dl_bpe *bpe, int32_t token, size_t *len);
/* Returns the token that ends a text ("<|endoftext|>", "<|end_of_text|>"), or -1 if it has none. */
int32_t dl_bpe_end_token(const dl_bpe *bpe);
/* Returns the token that begins a text for a model ("<|begin_of_text|>"), or -1 if it has none. */
int32_t dl_bpe_begin_token(const dl_bpe *bpe);
/* Returns true if text may be cut at dl_word_border and its parts encoded alone. It may not if an
 * added token can cross such a border. */
bool dl_bpe_may_cut(const dl_bpe *bpe);
/* Returns the digest of the file. Equal files give equal tokens. */
dl_hash dl_bpe_digest(const dl_bpe *bpe);

/* ---- its parts, for writers of other formats */

typedef enum dl_bpe_kind {
    DL_BPE_NONE,    /* a number without a token */
    DL_BPE_BYTES,   /* bytes, and what merges from them */
    DL_BPE_ADDED,   /* found in a text literally */
    DL_BPE_SPECIAL, /* likewise, and no text itself */
} dl_bpe_kind;
/* Returns the kind of a token, 0 <= token < n. */
dl_bpe_kind dl_bpe_kind_of(const dl_bpe *bpe, int32_t token);

dl_word_rule dl_bpe_word_rule(const dl_bpe *bpe); /* how it cuts text */
/* Returns true if a word that is a token becomes that token, however its bytes would merge. */
bool dl_bpe_whole_words(const dl_bpe *bpe);

/* Lists the pairs that merge, in order of priority; the caller frees them. With tiktoken's ranks
 * several pairs may make one token; they follow one another. Returns DILOCO_ENOMEM. */
typedef struct dl_bpe_merge {
    int32_t rank, left, right;
} dl_bpe_merge;
DL_MUST_CHECK diloco_status dl_bpe_merges(dl_bpe_merge **out, size_t *n, const dl_bpe *bpe);

/* ---- encoding. An encoder is one thread's memory, with the words that it has encoded before. */

typedef struct dl_bpe_encoder dl_bpe_encoder;
/* Makes an encoder of about 2 MiB; the tokenizer is borrowed until it is destroyed. Returns
 * DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_bpe_encoder_create(dl_bpe_encoder **out, const dl_bpe *bpe);
void dl_bpe_encoder_destroy(dl_bpe_encoder *encoder); /* NULL is fine */

/* Encodes text[begin … end) of a text of len bytes, where a word or the text must end at `end`.
 * tokens has room for end - begin of them. Added tokens are found in the text. Bytes after `end`
 * are read, because they decide where a word ends. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_bpe_encode(dl_bpe_encoder *encoder, int32_t *tokens, size_t *n,
                                          const char *text, size_t begin, size_t end, size_t len);

/* ---- training (bpe_train.c) */

typedef struct dl_bpe_trained {
    uint64_t words, distinct; /* in the text */
    int32_t vocab; /* reached: less than asked for when no pair is left that comes twice */
} dl_bpe_trained;
/* A text to train on; the bytes are borrowed. */
typedef struct dl_text {
    const char *data;
    size_t len;
} dl_text;
/* Learns a vocabulary of `vocab` tokens (at least 257: the end token and the bytes) from texts. The
 * most frequent pair becomes a token; of equally frequent ones that of the smallest tokens. Hugging
 * Face's BpeTrainer with min_frequency 2 does the same. Appends a tokenizer.json to `out`. Returns
 * DILOCO_EINVAL if `vocab` is out of range, and DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_bpe_train(dl_buf *out, dl_bpe_trained *report, const dl_text *texts,
                                         size_t n_texts, dl_word_rule how, int32_t vocab);

/* ---- shared by the files of bpe_ */

/* The characters that represent bytes in a tokenizer.json: printable ones for themselves, the rest
 * for U+0100 and on (GPT-2's encoder.py, bytes_to_unicode). */
uint32_t dl_bpe_char_of(unsigned char byte);
/* Returns the byte that a character represents, or -1 if it represents none. */
int dl_bpe_byte_of(uint32_t code);

#endif
