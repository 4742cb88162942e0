/* pack_fuzz.c - a packed payload of an untrusted peer: refused, or it gives the length that was
 * asked for, and that packs and unpacks to itself. The first two bytes are the length and the
 * width. The bytes after them may be a part of a record, too: refused, or a text no longer than
 * there is room. */
#include "log/pack.h"
#include "log/zstd_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dl_packer *packer;
    if (!packer && dl_packer_create(&packer)) abort();
    if (size < 2) return 0;
    const size_t len = 16 * (size_t)data[0], width = 1 + data[1] % 4, gap = dl_pack_gap(len);
    unsigned char *out = malloc(gap + len + 1), *want = malloc(len + 1);
    if (!out || !want) abort();
    if (dl_pack_open(packer, out, len, data + 2, size - 2, width) == DILOCO_OK) {
        memcpy(want, out, len);
        memmove(out + gap, out, len);
        const size_t packed = dl_pack(packer, out, gap, len, width);
        memmove(out + gap + len - packed, out, packed);
        if (dl_pack_open(packer, out, len, out + gap + len - packed, packed, width)) abort();
        if (memcmp(out, want, len) != 0) abort();
    }
    free(out);
    free(want);
    dl_buf text;
    dl_buf_init(&text, 1 + 16 * len);
    if (dl_unzip(&text, data + 2, size - 2) ? text.len != 0 : text.len > 1 + 16 * len) abort();
    dl_buf_deinit(&text);
    return 0;
}
