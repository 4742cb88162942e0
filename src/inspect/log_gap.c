/* log_gap.c - the length of a log by a listing, and diloco_log_check_gap: entries that the store
 * has lost. A log has no gaps (P4). */
#include "inspect/reader.h"

/* How far the log continues without a gap, and the names after the first gap. A bounded number
 * of these is kept, as any writer may have put junk there. */
enum { BEHIND_MAX = 64 };
typedef struct extent {
    uint64_t n, total; /* entries in a row from 0; of the whole run */
    uint64_t behind[BEHIND_MAX];
    size_t n_behind; /* of those names */
} extent;

/* Called in the order of names. Entries have ten digits, so that is the order of numbers, and
 * the first other number is a gap. */
static diloco_status found_entry(void *context, const char *key, size_t len)
{
    extent *x = context;
    uint64_t entry;
    (void)len;
    if (!dl_key_parse_entry(&entry, key) || entry >= x->total) return DILOCO_OK;
    if (entry == x->n) return x->n++, DILOCO_OK;
    if (x->n_behind == BEHIND_MAX) return DILOCO_ECLOSED;
    x->behind[x->n_behind++] = entry;
    return DILOCO_OK;
}

/* Look whether the log has lost entries. An entry of this run after a gap shows that those
 * before it are lost: *n is then after it. Any writer may have put junk there, which changes
 * nothing. */
static diloco_status look_behind_gap(uint64_t *n, const extent *x, const dl_reader *r)
{
    dl_entry entry;
    dl_buf text;
    diloco_status status = DILOCO_OK;
    DL_TRY(dl_reader_entry_init(&entry, r));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    for (size_t i = 0; i < x->n_behind && !status; i++) {
        dl_buf_clear(&text);
        status = dl_entry_get(&text, r->store, x->behind[i], dl_reader_limit());
        if (!status) status = dl_reader_entry(&entry, &text, r, x->behind[i]);
        if (!status) *n = x->behind[i] + 1;
        if (status == DILOCO_EPROTO || status == DILOCO_ENOENT) status = DILOCO_OK;
    }
    dl_buf_deinit(&text);
    dl_entry_deinit(&entry);
    return status;
}

/* List the log from entry x->n on. *n is its length, also after a gap; x->n is then the first entry
 * that is missing. */
static diloco_status list_log(uint64_t *n, extent *x, const dl_reader *r)
{
    dl_key after;
    DL_TRY(dl_reader_total(&x->total, r));
    if (x->n > 0) dl_key_entry(after, x->n - 1);
    const diloco_status status =
        dl_store_list(r->store, "log/", x->n > 0 ? after : NULL, found_entry, x, dl_reader_limit());
    if (status && status != DILOCO_ECLOSED) return status;
    *n = x->n;
    return look_behind_gap(n, x, r);
}

/* Write the number of entries of the log. The listing begins at the newest snapshot, which
 * follows the log, so its cost does not grow with the run. */
diloco_status dl_reader_length(uint64_t *n, const dl_reader *r)
{
    dl_snapshot_log log;
    *n = 0;
    DL_TRY(dl_snapshot_read_log(&log, r->store, &r->file, dl_reader_limit()));
    extent x = {.n = log.entry};
    return list_log(n, &x, r);
}

/* A listing of a log that grows may leave out an entry and have the one after it. So the entry is
 * read once more after the later one was found. */
static diloco_status check_gap(const dl_reader *r, uint64_t next)
{
    extent x = {.n = next};
    uint64_t n;
    dl_buf text;
    DL_TRY(list_log(&n, &x, r));
    if (n == x.n) return DILOCO_OK;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    const diloco_status status = dl_entry_get(&text, r->store, x.n, dl_reader_limit());
    dl_buf_deinit(&text);
    if (status != DILOCO_ENOENT) return status;
    return dl_fail(DILOCO_EPROTO,
                   "entry %llu is missing, and entry %llu exists: the log has a gap. Restore "
                   "log/%010llu.json in the store",
                   (unsigned long long)x.n, (unsigned long long)n - 1, (unsigned long long)x.n);
}

diloco_status diloco_log_check_gap(const char *url, uint64_t next)
{
    dl_reader r;
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = check_gap(&r, next);
    dl_reader_close(&r);
    return status;
}
