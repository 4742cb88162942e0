/* byte.c - the byte tokenizer: a token is a byte. */
#include "data/tokenizer.h"

static size_t text(char out[64], int32_t token)
{
    out[0] = (char)(unsigned char)token;
    return 1;
}

static size_t encode(int32_t *tokens, size_t cap, const char *from, size_t len)
{
    size_t n = len < cap ? len : cap;
    for (size_t i = 0; i < n; i++)
        tokens[i] = (unsigned char)from[i];
    return n;
}

const dl_tokenizer dl_tokenizer_byte = {"byte", 256, text, encode};
