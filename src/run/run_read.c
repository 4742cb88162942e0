/* run_read.c - reads run.json, and recognizes a run that has lost it (open.h).
 *
 * Every log entry is created after run.json. So a store that has entries and no run.json holds the
 * rest of a run: run.json was lost, or a removal was interrupted (inspect/remove.c). A new run
 * there would find the names of its objects taken by the old ones. */
#include "log/layout.h"
#include "run/open.h"

static dl_time limit(void)
{
    return dl_time_after(dl_clock_now(), 3600 * DL_SECOND); /* for objects of the model's size */
}

/* Ends the listing at the first entry. Other names below log/ are not the run's. */
static diloco_status found_key(void *context, const char *key, size_t len)
{
    uint64_t entry;
    (void)context, (void)len;
    return dl_key_parse_entry(&entry, key) ? DILOCO_ECLOSED : DILOCO_OK;
}

static diloco_status has_entries(bool *has, dl_store *store)
{
    const diloco_status status = dl_store_list(store, "log/", NULL, found_key, NULL, limit());
    *has = status == DILOCO_ECLOSED;
    return *has ? DILOCO_OK : status;
}

/* Gets run.json. If the log has entries it is read once more, since another process may have
 * created the run, and entries, between the two requests. */
static diloco_status get_run(dl_buf *text, bool *is_rest, dl_store *store)
{
    bool has = false;
    *is_rest = false;
    diloco_status status = dl_store_get(store, text, DL_KEY_RUN, limit());
    if (status != DILOCO_ENOENT) return status;
    DL_TRY(has_entries(&has, store));
    if (!has) return dl_fail(DILOCO_ENOENT, "there is no run in %s", dl_store_url(store));
    status = dl_store_get(store, text, DL_KEY_RUN, limit());
    if (status != DILOCO_ENOENT) return status;
    *is_rest = true;
    return dl_fail(DILOCO_EDIFFERS,
                   "%s has a log but no run.json, which defines its run: restore run.json "
                   "(docs/how-to/lost-object.md), or remove what is left with diloco rm",
                   dl_store_url(store));
}

diloco_status dl_run_is_rest(bool *is_rest, dl_store *store)
{
    dl_buf text;
    dl_buf_init(&text, DL_RUNFILE_MAX);
    const diloco_status status = get_run(&text, is_rest, store);
    dl_buf_deinit(&text);
    return *is_rest || status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* The digest is that of the bytes as read. It is the `prev` of entry 0, so replicas with different
 * bytes cannot follow one log. */
diloco_status dl_run_read(dl_runfile *out, dl_hash *digest, dl_store *store)
{
    bool is_rest;
    dl_buf text;
    dl_buf_init(&text, DL_RUNFILE_MAX);
    diloco_status status = get_run(&text, &is_rest, store);
    if (!status) {
        *digest = dl_hash_bytes(text.data, text.len);
        status = dl_runfile_read(out, text.data, text.len);
        if (status) status = dl_fail_context(status, "run.json in %s", dl_store_url(store));
    }
    dl_buf_deinit(&text);
    return status;
}
