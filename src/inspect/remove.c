/* remove.c - diloco_run_remove: every object of a run, and no other.
 *
 * The log is removed first: a store that keeps logs (a hub) refuses before anything is gone.
 * run.json is removed last, so that a removal that was interrupted can be repeated. A run with a
 * coordination store has objects in two stores: those of the coordination store go first, since
 * run.json in the other one names it. */
#include "base/config.h"
#include "log/layout.h"
#include <diloco/inspect.h>

#include <stdlib.h>
#include <string.h>

/* Bytes of the names below one folder. */
enum { KEYS_MAX = 1 << 30 };

/* Every folder that a run may have, in the order of removal: log/ first, as a hub refuses to
 * remove it. A new folder of a run is one more row. */
static const char *const folders[] = {"log/",    "c/",     "x/",      "b/",     "snap/",
                                      "gen/",    "hb/",    "end/",    "rec/",   "theta0/",
                                      "invite/", "admit/", "launch/", "probe/", "out/"};

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

/* List first and delete afterwards: a store's handle is not used from within its listing. *n
 * counts what was removed before an error, too. */
static diloco_status remove_below(dl_store *store, const char *folder, uint64_t *n)
{
    found f = {.folder = folder};
    dl_buf_init(&f.keys, KEYS_MAX);
    diloco_status status = dl_store_list(store, folder, NULL, on_key, &f, limit());
    for (size_t at = 0; !status && at < f.keys.len;) {
        const char *key = (const char *)f.keys.data + at;
        at += strlen(key) + 1;
        status = dl_store_delete(store, key, limit());
        *n += !status;
    }
    dl_buf_deinit(&f.keys);
    return status;
}

/* run.json is deleted last. It is what a repeated call, and any other reader, finds the run by. */
static diloco_status remove_all(const char *url, uint64_t *n)
{
    dl_store *store;
    DL_TRY(dl_store_open(&store, url, false));
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && i < sizeof folders / sizeof *folders; i++)
        status = remove_below(store, folders[i], n);
    if (!status) status = dl_store_delete(store, DL_KEY_RUN, limit());
    *n += !status;
    dl_store_close(store);
    return status;
}

/* Read run.json first: it names the coordination store. A repeated call finds it as long as
 * anything is left. */
diloco_status diloco_run_remove(uint64_t *n_objects, const char *url)
{
    dl_config *run = malloc(sizeof *run);
    *n_objects = 0;
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for the run's settings");
    dl_config_init(run);
    diloco_status status = diloco_run_config(run, url);
    if (!status && run->coord[0]) status = remove_all(run->coord, n_objects);
    if (!status) status = remove_all(url, n_objects);
    free(run);
    return status;
}
