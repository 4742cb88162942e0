/* tokenizer.h - the functions of a tokenizer: text to tokens, and tokens to text. A tokenizer has a
 * file of its own and a line in the list below. */
#ifndef DL_DATA_TOKENIZER_H
#define DL_DATA_TOKENIZER_H

#include "base/hash.h"

typedef struct dl_tokenizer {
    const char *name; /* data.tokenizer */

    /* Opens the file data.tokenizer_path. NULL: no file is needed, and self is NULL below. */
    diloco_status (*open)(void **self, const char *path);
    void (*close)(void *self);
    dl_hash (*digest)(const void *self); /* equal files, equal tokens */

    int32_t (*n)(const void *self); /* its tokens are 0 … n-1 */
    /* Returns the bytes of a token, 0 <= token < n; valid as long as self. */
    const char *(*text)(const void *self, size_t *len, int32_t token);
    /* Encodes a text into at most len tokens. Any thread. Returns DILOCO_ENOMEM. */
    diloco_status (*encode)(const void *self, int32_t *tokens, size_t *n, const char *text,
                            size_t len);
} dl_tokenizer;

/* The list of tokenizers. A new one is a file that defines dl_tokenizer_<name>, and its line here.
 */
// clang-format off
#define DL_TOKENIZERS(X) \
    X(byte) \
    X(bpe)
// clang-format on

#define DL_DECLARE(name) extern const dl_tokenizer dl_tokenizer_##name;
DL_TOKENIZERS(DL_DECLARE)
#undef DL_DECLARE

/* Returns false for the tokenizer of bytes, which needs no file, and true for any other name. */
bool dl_tokenizer_has_file(const char *name);

#endif
