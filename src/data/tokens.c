/* tokens.c - token shards as llm.c writes them (dev/data/data_common.py, formats "gpt-2" and
 * "llama-3"):
 *
 *     offset 0     i32  magic 20240520, or 20240801
 *            4     i32  version 1, or 7
 *            8     i32  n, the number of tokens
 *           12     i32[253] nothing
 *         1024     u16[n], or u32[n]   tokens
 *
 * little-endian, and not a byte more. */
#include "data/corpus.h"

#include <string.h>

enum { HEADER_BYTES = 1024 };

static const struct {
    uint32_t magic, version;
    size_t width; /* bytes of a token */
} kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const char *const suffixes[] = {".bin", NULL};

static uint32_t u32_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Both kinds have the same header in front of their tokens. */
static bool is_wide(const unsigned char *tokens)
{
    return u32_at(tokens - HEADER_BYTES) == kinds[1].magic;
}

static uint32_t token_at(const unsigned char *tokens, size_t i, bool wide)
{
    if (wide) return u32_at(tokens + 4 * i);
    return (uint32_t)(tokens[2 * i] | tokens[2 * i + 1] << 8);
}

/* Checks the header of an untrusted file. The count and the length must agree. */
static diloco_status find(size_t *offset, size_t *n, const dl_map *map)
{
    if (map->len < HEADER_BYTES)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are too few for a token shard's header of %d",
                       map->len, HEADER_BYTES);
    uint32_t magic = u32_at(map->data), version = u32_at(map->data + 4),
             count = u32_at(map->data + 8);
    size_t k = magic == kinds[1].magic, width = kinds[k].width;
    if (magic != kinds[k].magic)
        return dl_fail(DILOCO_EPROTO,
                       "not a token shard: it begins with %u, not with the magic number %u or %u",
                       magic, kinds[0].magic, kinds[1].magic);
    if (version != kinds[k].version)
        return dl_fail(DILOCO_EPROTO, "token shard of version %u; only version %u can be read",
                       version, kinds[k].version);
    if (count > INT32_MAX || map->len - HEADER_BYTES != width * count)
        return dl_fail(DILOCO_EPROTO,
                       "token shard is damaged: its header says %u tokens, its %zu bytes hold %zu",
                       count, map->len, (map->len - HEADER_BYTES) / width);
    *offset = HEADER_BYTES;
    *n = count;
    return DILOCO_OK;
}

static void read_tokens(int32_t *out, const unsigned char *tokens, size_t first, size_t n)
{
    bool wide = is_wide(tokens);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)token_at(tokens, first + i, wide);
}

/* A token beyond int32 is reported as INT32_MAX, which no vocabulary has a place for. */
static int32_t largest(const unsigned char *tokens, size_t n)
{
    bool wide = is_wide(tokens);
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t token = token_at(tokens, i, wide);
        if (token > most) most = token;
    }
    return most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

bool dl_source_is_shards(const char *name)
{
    return strcmp(name, dl_source_tokens.name) == 0;
}

const dl_source_kind dl_source_tokens = {"tokens", suffixes, find, read_tokens, largest};
