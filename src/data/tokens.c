/* tokens.c - token shards as llm.c writes them (dev/data/data_common.py, "gpt-2" format):
 *
 *     offset 0     i32  magic 20240520
 *            4     i32  version 1
 *            8     i32  n, the number of tokens
 *           12     i32[253] nothing
 *         1024     u16[n]   tokens
 *
 * little-endian, and not a byte more. */
#include "data/corpus.h"

enum { MAGIC = 20240520, VERSION = 1, HEADER_BYTES = 1024 };

static const char *const suffixes[] = {".bin", NULL};

static uint32_t u32_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint16_t token_at(const unsigned char *tokens, size_t i)
{
    return (uint16_t)(tokens[2 * i] | tokens[2 * i + 1] << 8);
}

static diloco_status find(size_t *offset, size_t *n, const dl_map *map)
{
    if (map->len < HEADER_BYTES)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are too few for a token shard's header of %d",
                       map->len, HEADER_BYTES);
    uint32_t magic = u32_at(map->data), version = u32_at(map->data + 4),
             count = u32_at(map->data + 8);
    if (magic != MAGIC)
        return dl_fail(DILOCO_EPROTO,
                       "not a token shard: it begins with %u, not with the magic number %d", magic,
                       MAGIC);
    if (version != VERSION)
        return dl_fail(DILOCO_EPROTO, "token shard of version %u; only version %d can be read",
                       version, VERSION);
    if (count > INT32_MAX || map->len - HEADER_BYTES != 2 * (size_t)count)
        return dl_fail(DILOCO_EPROTO,
                       "token shard is damaged: its header says %u tokens, its %zu bytes hold %zu",
                       count, map->len, (map->len - HEADER_BYTES) / 2);
    *offset = HEADER_BYTES;
    *n = count;
    return DILOCO_OK;
}

static void read_tokens(int32_t *out, const unsigned char *tokens, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = token_at(tokens, first + i);
}

static int32_t largest(const unsigned char *tokens, size_t n)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t token = token_at(tokens, i);
        if (token > most) most = token;
    }
    return most;
}

const dl_source_kind dl_source_tokens = {"tokens", suffixes, find, read_tokens, largest};
