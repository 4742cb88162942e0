/* runfile_fuzz.c - a run.json that reads must match itself, write, and read back to the same
 * text. The input is tried as it is and with a seal after it. */
#include "log/runfile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const void *text, size_t len)
{
    dl_runfile file, again;
    dl_buf first, second;
    if (dl_runfile_read(&file, text, len)) return;
    dl_buf_init(&first, DL_RUNFILE_MAX);
    dl_buf_init(&second, DL_RUNFILE_MAX);
    dl_config here;
    dl_config_init(&here);
    dl_runfile_take(&here, &file);
    if (dl_runfile_matches(&file, &here, &file.manifest, file.creator)) abort();
    if (dl_runfile_write(&first, &file)) abort();
    if (dl_runfile_read(&again, first.data, first.len)) abort();
    if (dl_runfile_write(&second, &again)) abort();
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
    dl_runfile_deinit(&again);
    dl_runfile_deinit(&file);
    dl_buf_deinit(&first);
    dl_buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_buf sealed;
    char hex[DL_HASH_HEX + 1];
    check(data, size);
    dl_buf_init(&sealed, DL_RUNFILE_MAX);
    dl_hash_to_hex(hex, dl_hash_bytes(data, size));
    if (dl_buf_add(&sealed, data, size) || dl_buf_addf(&sealed, ",\"check\":\"%s\"}\n", hex))
        abort();
    check(sealed.data, sealed.len);
    dl_buf_deinit(&sealed);
    return 0;
}
