/* tokenizer.h - how text becomes tokens and tokens become text. One file and one row of
 * data.c each. */
#ifndef DL_DATA_TOKENIZER_H
#define DL_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

typedef struct dl_tokenizer {
    const char *name; /* data.tokenizer */
    int32_t n;        /* its tokens are 0 … n-1 */
    /* Text of a token of its own into out, its length. */
    size_t (*text)(char out[64], int32_t token);
    /* Tokens of the text's beginning, at most cap; their number. */
    size_t (*encode)(int32_t *tokens, size_t cap, const char *text, size_t len);
} dl_tokenizer;

extern const dl_tokenizer dl_tokenizer_byte;

#endif
