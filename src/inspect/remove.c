/* remove.c - diloco_run_remove: every object of a run, and no other.
 *
 * run.json is removed first and the log last. A store that keeps runs (a hub) then refuses before
 * anything is gone. An interrupted removal leaves a log without run.json. Such a store is never
 * taken for a run that has lost entries, and no new run is created over the old objects
 * (run/open.h, dl_run_is_rest). A repeated call recognizes it by the log and continues.
 *
 * A run with a coordination store has objects in two stores. Those of the coordination store, which
 * has the log, are removed first and in that order. In the other store run.json is removed last,
 * since it names the coordination store. Until then no run can be created with the two stores. */
#include "base/config.h"
#include "log/beating.h"
#include "log/layout.h"
#include "run/open.h"
#include <diloco/inspect.h>

#include <string.h>

/* Bytes of the names below one folder, and of all heartbeats. WATCH_S: two of the default
 * heartbeats, and one second. */
enum { KEYS_MAX = 1 << 30, BEATS_MAX = 1 << 28, WATCH_S = 11 };

/* Every folder that a run may have, in the order of removal: heartbeats first, so that a repeated
 * call does not watch them, and the log last. A new folder of a run is one more row. */
static const char *const folders[] = {"hb/",    "c/",      "x/",     "b/",      "snap/",
                                      "gen/",   "end/",    "rec/",   "theta0/", "invite/",
                                      "admit/", "launch/", "probe/", "out/",    "log/"};

/* Return true if a key below `folder` has the form of a run's. The store may hold other objects
 * too, and these stay. gen/, hb/ and end/ have generations; c/, x/, b/ and snap/ have entries;
 * others have plain names. */
static bool is_a_runs(const char *key, const char *folder)
{
    uint64_t number, process;
    dl_generation generation;
    char job[DL_OUTPUT_JOB_MAX + 1];
    const char *name = key + strlen(folder);
    if (strchr("gh", *folder) || strcmp(folder, "end/") == 0)
        return dl_key_parse_generation(&generation, key, folder);
    if (strcmp(folder, "log/") == 0) return dl_key_parse_entry(&number, key);
    if (strcmp(folder, "rec/") == 0) return dl_key_parse_record(&generation, &number, key);
    if (strcmp(folder, "out/") == 0) return dl_key_parse_output(job, &process, &number, key);
    if (strchr("cxbs", *folder)) return dl_key_entry_of(&number, key);
    return !strchr(name, '/');
}

/* The names that were found below one folder. */
typedef struct found {
    dl_buf keys; /* each with its zero byte */
    const char *folder;
} found;

static diloco_status on_key(void *context, const char *key, size_t len)
{
    found *f = context;
    (void)len;
    return is_a_runs(key, f->folder) ? dl_buf_add(&f->keys, key, strlen(key) + 1) : DILOCO_OK;
}

static dl_time limit(void)
{
    return dl_time_after(dl_clock_now(), 3600 * DL_SECOND);
}

/* Collect the run's names below one folder. A store's handle is not used from within its listing.
 */
static diloco_status find(found *f, dl_store *store, const char *folder)
{
    f->folder = folder;
    dl_buf_init(&f->keys, KEYS_MAX);
    return dl_store_list(store, folder, NULL, on_key, f, limit());
}

/* Returns the name at *at and moves *at to the next one; NULL after the last. */
static const char *next_key(const found *f, size_t *at)
{
    if (*at == f->keys.len) return NULL;
    const char *key = (const char *)f->keys.data + *at;
    *at += strlen(key) + 1;
    return key;
}

/* *n counts what was removed before an error, too. */
static diloco_status remove_below(dl_store *store, const char *folder, uint64_t *n)
{
    found f;
    size_t at = 0;
    diloco_status status = find(&f, store, folder);
    for (const char *key; !status && (key = next_key(&f, &at));) {
        status = dl_store_delete(store, key, limit());
        *n += !status;
    }
    dl_buf_deinit(&f.keys);
    return status;
}

static diloco_status remove_folders(dl_store *store, uint64_t *n)
{
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && i < sizeof folders / sizeof *folders; i++)
        status = remove_below(store, folders[i], n);
    return status;
}

static diloco_status remove_runfile(dl_store *store, uint64_t *n)
{
    DL_TRY(dl_store_delete(store, DL_KEY_RUN, limit()));
    ++*n;
    return DILOCO_OK;
}

/* Remove the store that has the log. */
static diloco_status remove_logged(dl_store *store, uint64_t *n)
{
    DL_TRY(remove_runfile(store, n));
    return remove_folders(store, n);
}

/* ---- the rest of a run, whose run.json is gone */

/* Append the heartbeat of every replica that has not said that it leaves. */
static diloco_status read_beats(dl_buf *out, dl_store *store)
{
    found f;
    size_t at = 0;
    dl_key end;
    dl_buf left, beat;
    dl_generation generation;
    diloco_status status = find(&f, store, "hb/");
    dl_buf_init(&left, KEYS_MAX);
    dl_buf_init(&beat, DL_HEARTBEAT_MAX);
    for (const char *key; !status && (key = next_key(&f, &at));) {
        if (!dl_key_parse_generation(&generation, key, "hb/")) continue;
        dl_key_end(end, &generation);
        dl_buf_clear(&left);
        dl_buf_clear(&beat);
        status = dl_store_get(store, &left, end, limit());
        if (status == DILOCO_ENOENT) status = dl_store_get(store, &beat, key, limit());
        if (status == DILOCO_ENOENT || status == DILOCO_EPROTO) status = DILOCO_OK;
        if (!status) status = dl_buf_add(out, beat.data, beat.len);
    }
    dl_buf_deinit(&beat);
    dl_buf_deinit(&left);
    dl_buf_deinit(&f.keys);
    return status;
}

/* Without run.json the run's heartbeat interval is unknown, so the default's is assumed. */
static diloco_status refuse_alive(dl_store *store, const char *url)
{
    dl_buf before, after;
    dl_buf_init(&before, BEATS_MAX);
    dl_buf_init(&after, BEATS_MAX);
    diloco_status status = read_beats(&before, store);
    if (!status && before.len) {
        dl_clock_sleep(WATCH_S * DL_SECOND);
        status = read_beats(&after, store);
        if (!status && (before.len != after.len || memcmp(before.data, after.data, before.len)))
            status = dl_fail(DILOCO_EREFUSED,
                             "a replica of the run that was in %s is alive: stop it first", url);
    }
    dl_buf_deinit(&after);
    dl_buf_deinit(&before);
    return status;
}

static diloco_status remove_rest(dl_store *store, const char *url, uint64_t *n)
{
    bool is_rest;
    DL_TRY(dl_run_is_rest(&is_rest, store));
    if (!is_rest) return dl_fail(DILOCO_ENOENT, "there is no run in %s", url);
    DL_TRY(refuse_alive(store, url));
    return remove_folders(store, n);
}

/* ---- */

/* Open both stores together first, which refuses two that hold different runs. */
static diloco_status remove_coord(const char *url, const dl_config *run, uint64_t *n)
{
    dl_run_coord coord;
    dl_store *store;
    DL_TRY(dl_run_may_ask_coord(url, run));
    const dl_store_address both = dl_run_address(coord, url, run);
    DL_TRY(dl_store_open_at(&store, &both, false));
    dl_store_close(store);
    DL_TRY(dl_store_open(&store, run->coord, false));
    const diloco_status status = remove_logged(store, n);
    dl_store_close(store);
    return status;
}

static diloco_status remove_from(dl_store *store, const char *url, uint64_t *n)
{
    dl_runfile file;
    dl_hash digest;
    diloco_status status = dl_run_read(&file, &digest, store);
    if (status == DILOCO_EDIFFERS) return remove_rest(store, url, n);
    if (status) return status;
    if (file.config.coord[0]) {
        status = remove_coord(url, &file.config, n);
        if (!status) status = remove_folders(store, n);
        if (!status) status = remove_runfile(store, n);
    } else {
        status = remove_logged(store, n);
    }
    dl_runfile_deinit(&file);
    return status;
}

/* Only run.json in the store itself is read, since that of the coordination store may be gone
 * already. */
diloco_status diloco_run_remove(uint64_t *n_objects, const char *url)
{
    dl_store *store;
    *n_objects = 0;
    DL_TRY(dl_store_open(&store, url, false));
    const diloco_status status = remove_from(store, url, n_objects);
    dl_store_close(store);
    return status;
}
