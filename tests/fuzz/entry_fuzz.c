/* entry_fuzz.c - an entry that reads must write, and what was written must read to the same
 * text. The input is tried as it is and with a seal after it. */
#include "log/entry.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMBERS = 8 };

static void check(const void *text, size_t len)
{
    const dl_outer *outer = dl_outer_find("nesterov");
    dl_entry entry;
    dl_buf first, second;
    dl_buf_init(&first, DL_ENTRY_TEXT_MAX);
    dl_buf_init(&second, DL_ENTRY_TEXT_MAX);
    if (dl_entry_init(&entry, MEMBERS)) abort();
    if (!dl_entry_read(&entry, text, len, outer)) {
        if (dl_entry_write(&first, &entry, outer)) abort();
        if (dl_entry_read(&entry, first.data, first.len, outer)) abort();
        if (dl_entry_write(&second, &entry, outer)) abort();
        if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
    }
    dl_entry_deinit(&entry);
    dl_buf_deinit(&first);
    dl_buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_buf sealed;
    char hex[DL_HASH_HEX + 1];
    check(data, size);
    dl_buf_init(&sealed, DL_ENTRY_TEXT_MAX);
    dl_hash_to_hex(hex, dl_hash_bytes(data, size));
    if (dl_buf_add(&sealed, data, size) || dl_buf_addf(&sealed, ",\"check\":\"%s\"}\n", hex))
        abort();
    check(sealed.data, sealed.len);
    dl_buf_deinit(&sealed);
    return 0;
}
