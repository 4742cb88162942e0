/* bytes.c - unpacks gzip (RFC 1952) with zlib. The last four bytes of a gzip file give the length
 * of its contents. The file is untrusted, so the length is believed only up to DEFLATE's largest
 * ratio, 1032 bytes for one. The contents must have exactly that length. */
#include "data/bytes.h"

#include "base/size.h"

#include <stdlib.h>
#include <zlib.h>

/* Bytes of gzip's header and trailer at least; the largest ratio; zlib's windowBits for gzip. */
enum { HEAD = 10, TAIL = 8, MOST_FOR_ONE = 1032, GZIP_WINDOW = 15 + 16 };

/* The first two bytes show it, whatever the file's name is. */
static bool is_gzip(const dl_map *map)
{
    return map->len >= 2 && map->data[0] == 0x1f && map->data[1] == 0x8b;
}

/* Reads the length of the contents, if it is possible for a file of this size. */
static diloco_status contents_length(size_t *len, const dl_map *map)
{
    if (map->len < HEAD + TAIL)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are too few for a gzip file", map->len);
    const unsigned char *p = map->data + map->len - 4;
    *len = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (*len / MOST_FOR_ONE <= map->len) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO,
                   "the gzip file is cut short or damaged: it claims %zu bytes in %zu", *len,
                   map->len);
}

/* Unpacks the whole file at once into `len` bytes. zlib counts bytes in 32 bits. */
static diloco_status unpack(unsigned char *to, size_t len, const dl_map *map)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)map->data, .next_out = to};
    if (map->len > UINT32_MAX)
        return dl_fail(DILOCO_EPROTO, "a gzip file of more than 4 GiB: unpack it");
    z.avail_in = (unsigned)map->len;
    z.avail_out = (unsigned)len;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to unpack");
    int result = inflate(&z, Z_FINISH);
    diloco_status status = DILOCO_OK;
    if (result != Z_STREAM_END || z.avail_out != 0)
        status = dl_fail(DILOCO_EPROTO, "the gzip file is cut short or damaged%s%s",
                         z.msg ? ": " : "", z.msg ? z.msg : "");
    else if (z.avail_in != 0)
        status = dl_fail(DILOCO_EPROTO, "%u bytes follow the end of the gzip file's contents",
                         z.avail_in);
    inflateEnd(&z);
    return status;
}

static diloco_status open_gzip(dl_bytes *bytes)
{
    DL_TRY(contents_length(&bytes->len, &bytes->map));
    bytes->owned = malloc(dl_size_max(bytes->len, 1));
    bytes->data = bytes->owned;
    if (!bytes->owned) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes", bytes->len);
    return unpack(bytes->owned, bytes->len, &bytes->map);
}

diloco_status dl_bytes_open(dl_bytes *out, const char *path)
{
    *out = (dl_bytes){.data = NULL};
    DL_TRY(dl_map_open(&out->map, path));
    out->data = out->map.data;
    out->len = out->map.len;
    diloco_status status = is_gzip(&out->map) ? open_gzip(out) : DILOCO_OK;
    if (!status) return DILOCO_OK;
    dl_bytes_close(out);
    return dl_fail_context(status, "%s", path);
}

void dl_bytes_close(dl_bytes *bytes)
{
    free(bytes->owned);
    dl_map_close(&bytes->map);
    *bytes = (dl_bytes){.data = NULL};
}
