/* bpe_tokenizer.c - byte-pair encoding (bpe.h) as a tokenizer of data.tokenizer. An encoder is made
 * for each text, so that any thread may encode; texts here are prompts and held-out files. */
#include "data/bpe.h"
#include "data/tokenizer.h"

static diloco_status open_file(void **self, const char *path)
{
    dl_bpe *bpe;
    diloco_status status = dl_bpe_open(&bpe, path);
    *self = bpe;
    return status;
}

static void close_file(void *self)
{
    dl_bpe_close(self);
}

static dl_hash digest(const void *self)
{
    return dl_bpe_digest(self);
}

static int32_t count(const void *self)
{
    return dl_bpe_n(self);
}

static const char *text(const void *self, size_t *len, int32_t token)
{
    return dl_bpe_token(self, token, len);
}

static diloco_status encode(const void *self, int32_t *tokens, size_t *n, const char *from,
                            size_t len)
{
    dl_bpe_encoder *encoder;
    DL_TRY(dl_bpe_encoder_create(&encoder, self));
    diloco_status status = dl_bpe_encode(encoder, tokens, n, from, 0, len, len);
    dl_bpe_encoder_destroy(encoder);
    return status;
}

const dl_tokenizer dl_tokenizer_bpe = {.name = "bpe",
                                       .open = open_file,
                                       .close = close_file,
                                       .digest = digest,
                                       .n = count,
                                       .text = text,
                                       .encode = encode};
