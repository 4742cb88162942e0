/* byte.c - the byte tokenizer: token i is byte i. It has neither file nor state: `self` is NULL. */
#include "data/tokenizer.h"

#include <string.h>

static int32_t count(const void *self)
{
    (void)self;
    return 256;
}

static const char *text(const void *self, size_t *len, int32_t token)
{
#define ROW(x)                                                                                     \
    x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7, x + 8, x + 9, x + 10, x + 11, x + 12,      \
        x + 13, x + 14, x + 15
    static const unsigned char bytes[256] = {
        ROW(0x00), ROW(0x10), ROW(0x20), ROW(0x30), ROW(0x40), ROW(0x50), ROW(0x60), ROW(0x70),
        ROW(0x80), ROW(0x90), ROW(0xa0), ROW(0xb0), ROW(0xc0), ROW(0xd0), ROW(0xe0), ROW(0xf0)};
#undef ROW
    (void)self;
    *len = 1;
    return (const char *)&bytes[token];
}

static diloco_status encode(const void *self, int32_t *tokens, size_t *n, const char *from,
                            size_t len)
{
    (void)self;
    *n = len;
    for (size_t i = 0; i < len; i++)
        tokens[i] = (unsigned char)from[i];
    return DILOCO_OK;
}

bool dl_tokenizer_has_file(const char *name)
{
    return strcmp(name, dl_tokenizer_byte.name) != 0;
}

const dl_tokenizer dl_tokenizer_byte = {.name = "byte", .n = count, .text = text, .encode = encode};
