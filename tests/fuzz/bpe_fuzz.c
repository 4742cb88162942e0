/* bpe_fuzz.c - a tokenizer that reads encodes any text into tokens that give the text back. */
#include "data/bpe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "it's 1234  a\n\n\xff\xe6\x97\xa5<|endoftext|> \t(x) aaaaaaaabababab";
    dl_bpe *bpe;
    dl_bpe_encoder *encoder;
    int32_t tokens[sizeof text];
    size_t n, at = 0, len = sizeof text - 1;
    if (dl_bpe_read(&bpe, data, size)) return 0;
    if (dl_bpe_encoder_create(&encoder, bpe)) abort();
    if (dl_bpe_encode(encoder, tokens, &n, text, 0, len, len) || n > len) abort();
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        if (tokens[i] < 0 || tokens[i] >= dl_bpe_n(bpe)) abort();
        const char *token = dl_bpe_token(bpe, tokens[i], &bytes);
        if (bytes > len - at || memcmp(token, text + at, bytes) != 0) abort();
        at += bytes;
    }
    if (at != len) abort();
    dl_bpe_encoder_destroy(encoder);
    dl_bpe_close(bpe);
    return 0;
}
