/* tokenizer.h - how text becomes tokens and tokens become text. One file and one row of
 * data.c each. */
#ifndef DL_DATA_TOKENIZER_H
#define DL_DATA_TOKENIZER_H

#include "base/hash.h"

typedef struct dl_tokenizer {
    const char *name; /* data.tokenizer */

    /* From the file data.tokenizer_path. NULL: it needs none, and self is NULL. */
    diloco_status (*open)(void **self, const char *path);
    void (*close)(void *self);
    dl_hash (*digest)(const void *self); /* equal files, equal tokens */

    int32_t (*n)(const void *self); /* its tokens are 0 … n-1 */
    /* Bytes of a token of its own; valid as long as self. */
    const char *(*text)(const void *self, size_t *len, int32_t token);
    /* Tokens of a text, of which there are at most len. DILOCO_ENOMEM. */
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

#endif
