/* log_length.c - diloco_log_length: the number of entries of a log, without a listing.
 *
 * Listing log/ of a folder reads all names in it, so its time grows with the log. The log has no
 * gaps (P4), so a search from the newest snapshot on finds its end with few reads. */
#include "inspect/reader.h"

#include <string.h>

static diloco_status is_there(bool *there, dl_buf *text, const dl_reader *r, uint64_t entry)
{
    dl_buf_clear(text);
    const diloco_status status = dl_entry_get(text, r->store, entry, dl_reader_limit());
    *there = !status;
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Write the number of entries, of which the first `low` are known to be there. Steps double until
 * an entry is missing; then the interval is halved. */
static diloco_status search_end(uint64_t *n, dl_buf *text, const dl_reader *r, uint64_t low,
                                uint64_t total)
{
    uint64_t high = total; /* it is not there, and neither is any after it */
    bool there = true;
    for (uint64_t step = 1; there && low < high; step *= 2) {
        const uint64_t at = high - low < step ? high - 1 : low + step - 1;
        DL_TRY(is_there(&there, text, r, at));
        if (there)
            low = at + 1;
        else
            high = at;
    }
    while (low < high) {
        const uint64_t at = low + (high - low) / 2;
        DL_TRY(is_there(&there, text, r, at));
        if (there)
            low = at + 1;
        else
            high = at;
    }
    *n = low;
    return DILOCO_OK;
}

/* Return DILOCO_EPROTO if the object is no entry of this run, or missing. */
static diloco_status must_be_ours(dl_buf *text, const dl_reader *r, uint64_t at)
{
    dl_entry entry;
    bool there = false;
    DL_TRY(dl_reader_entry_init(&entry, r));
    diloco_status status = is_there(&there, text, r, at);
    if (!status && !there)
        status = dl_fail(DILOCO_EPROTO, "entry %llu is missing", (unsigned long long)at);
    if (!status) status = dl_reader_entry(&entry, text, r, at);
    dl_entry_deinit(&entry);
    return status;
}

/* The search may have ended at junk after the log's end, and in a run without keys the snapshot may
 * be another writer's. The last entry shows that, and the log is listed instead. */
static diloco_status length_of(uint64_t *n, const dl_reader *r)
{
    uint64_t total;
    dl_snapshot_log log;
    dl_buf text;
    DL_TRY(dl_reader_total(&total, r));
    DL_TRY(dl_snapshot_read_log(&log, r->store, &r->file, dl_reader_limit()));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status = search_end(n, &text, r, log.entry, total);
    if (!status && *n > 0) status = must_be_ours(&text, r, *n - 1);
    dl_buf_deinit(&text);
    return status == DILOCO_EPROTO ? dl_reader_length(n, r) : status;
}

diloco_status diloco_log_length(uint64_t *n, const char *url)
{
    dl_reader r;
    uint64_t found = 0;
    *n = 0;
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = length_of(&found, &r);
    dl_reader_close(&r);
    if (!status) *n = found;
    return status;
}
