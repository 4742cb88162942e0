/* holdings.c - see holdings.h.
 *
 * A walk of a bucket and changes in it may overlap. Its counts are taken if no change was pending
 * when it began and none has begun since. Otherwise it is made again, three times. A bucket that
 * was counted before keeps the counts that its changes have made. So counts are exact for traffic
 * through the hub once a walk was undisturbed. */
#include "hub/holdings.h"

#include "base/log.h"
#include "hub/object_keys.h"
#include "store/store.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Walks of one bucket before its counts are left as they are. Bytes of a run's name
 * "bucket/path". */
enum { TRIES = 3, RUN_MAX = DL_BUCKET_MAX + DL_KEY_MAX + 2 };

void dl_holdings_init(dl_holdings *t)
{
    *t = (dl_holdings){.n_buckets = 0};
    pthread_mutex_init(&t->lock, NULL);
}

void dl_holdings_deinit(dl_holdings *t)
{
    for (size_t i = 0; i < t->n_buckets; i++)
        free(t->buckets[i].name);
    for (size_t i = 0; i < t->n_runs; i++)
        free(t->runs[i].run);
    for (size_t i = 0; i < t->n_beats; i++)
        free(t->beats[i].run), free(t->beats[i].replica);
    free(t->buckets), free(t->runs), free(t->beats);
    pthread_mutex_destroy(&t->lock);
}

/* ---- rows, under the lock; without memory a row is left out */

/* Add one zeroed row of `size` bytes and return it, or NULL if there is no memory. `rows` is the
 * address of the array, which may move. */
static void *add_row(void *rows, size_t *n, size_t size)
{
    char **array = rows;
    char *more = realloc(*array, (*n + 1) * size);
    if (!more) return NULL;
    *array = more;
    return memset(more + size * (*n)++, 0, size);
}

/* Return the bucket's row and make a row if the bucket has no row yet. Returns NULL without
 * memory; the bucket is missing in /metrics until the next walk. */
static dl_holdings_bucket *find_bucket(dl_holdings *t, const char *name)
{
    for (size_t i = 0; i < t->n_buckets; i++)
        if (!strcmp(t->buckets[i].name, name)) return &t->buckets[i];
    char *copy = strdup(name);
    dl_holdings_bucket *b = copy ? add_row(&t->buckets, &t->n_buckets, sizeof *b) : NULL;
    if (b)
        b->name = copy;
    else
        free(copy);
    return b;
}

/* Write the run's name "bucket/more" of a key "<more>/<folder>/<leaf>". The caller has checked
 * that the key has this form. */
static void run_of(char out[RUN_MAX], const char *bucket, const char *key, const char *folder)
{
    const size_t len = (size_t)(strrchr(key, '/') - key) - strlen(folder);
    snprintf(out, RUN_MAX, "%s%s%.*s", bucket, len ? "/" : "", len ? (int)len - 1 : 0, key);
}

/* Raise the run's number of entries to that of an entry's key, log/<10 digits>.json. The number
 * never falls, since the log has no gaps and loses no name (P4, P25). */
static void see_entry(dl_holdings *t, const char *bucket, const char *key)
{
    char run[RUN_MAX];
    const uint64_t entries = strtoull(strrchr(key, '/') + 1, NULL, 10) + 1;
    dl_holdings_run *row = NULL;
    run_of(run, bucket, key, "log");
    for (size_t i = 0; i < t->n_runs && !row; i++)
        if (!strcmp(t->runs[i].run, run)) row = &t->runs[i];
    if (!row) {
        char *copy = strdup(run);
        row = copy ? add_row(&t->runs, &t->n_runs, sizeof *row) : NULL;
        if (!row) {
            free(copy);
            return;
        }
        row->run = copy;
    }
    if (entries > row->entries) row->entries = entries;
}

static void free_beat(dl_holdings *t, size_t i)
{
    free(t->beats[i].run), free(t->beats[i].replica);
    t->beats[i] = t->beats[--t->n_beats];
}

/* Return true if two names such as "r0.0000" and "r0.0001" are of one replica. */
static bool same_replica(const char *a, const char *b)
{
    const char *dot = strrchr(a, '.');
    return dot && !strncmp(a, b, (size_t)(dot - a) + 1);
}

/* Note the heartbeat of a replica's newest generation; one of an older generation is left out.
 * `at` NULL means that the heartbeat was removed. Generations have the same number of digits, so
 * names are compared as text. */
static void see_beat(dl_holdings *t, const char *bucket, const char *key, const struct timespec *at)
{
    char run[RUN_MAX];
    const char *replica = strrchr(key, '/') + 1;
    run_of(run, bucket, key, "hb");
    for (size_t i = 0; i < t->n_beats; i++) {
        dl_holdings_beat *b = &t->beats[i];
        if (strcmp(b->run, run) || !same_replica(b->replica, replica)) continue;
        const int order = strcmp(replica, b->replica);
        if (order < 0 || (!at && order > 0)) return;
        if (at && !order) {
            b->at = *at;
            return;
        }
        free_beat(t, i);
        break;
    }
    if (!at) return;
    char *copy = strdup(run), *name = strdup(replica);
    dl_holdings_beat *b = copy && name ? add_row(&t->beats, &t->n_beats, sizeof *b) : NULL;
    if (b)
        *b = (dl_holdings_beat){copy, name, *at};
    else
        free(copy), free(name);
}

/* Return true if the run is in the bucket: "bucket" itself or "bucket/…". */
static bool is_of(const char *run, const char *bucket)
{
    const size_t len = strlen(bucket);
    return !strncmp(run, bucket, len) && (!run[len] || run[len] == '/');
}

/* Remove the rows of the bucket's runs. The last row takes the place of a removed one, so the
 * loops go downwards. */
static void forget_runs(dl_holdings *t, const char *bucket)
{
    for (size_t i = t->n_runs; i-- > 0;)
        if (is_of(t->runs[i].run, bucket)) {
            free(t->runs[i].run);
            t->runs[i] = t->runs[--t->n_runs];
        }
    for (size_t i = t->n_beats; i-- > 0;)
        if (is_of(t->beats[i].run, bucket)) free_beat(t, i);
}

/* `bucket` may be the name in its row, which is gone afterwards. */
static void forget_bucket(dl_holdings *t, const char *bucket)
{
    forget_runs(t, bucket);
    for (size_t i = 0; i < t->n_buckets; i++) {
        if (strcmp(t->buckets[i].name, bucket) != 0) continue;
        free(t->buckets[i].name);
        t->buckets[i] = t->buckets[--t->n_buckets];
        return;
    }
}

/* ---- changes */

/* A new bucket is empty, so its counts are known without a walk. */
void dl_holdings_made(dl_holdings *t, const char *bucket)
{
    pthread_mutex_lock(&t->lock);
    dl_holdings_bucket *b = find_bucket(t, bucket);
    if (b) b->counted = b->walked = true; /* with zeros, or what a quicker maker has counted */
    pthread_mutex_unlock(&t->lock);
}

void dl_holdings_removed(dl_holdings *t, const char *bucket)
{
    pthread_mutex_lock(&t->lock);
    forget_bucket(t, bucket);
    pthread_mutex_unlock(&t->lock);
}

/* Changes are bracketed by begin and end. A walk is exact only if no bracket was open during it. */
void dl_holdings_begin(dl_holdings *t, const char *bucket)
{
    pthread_mutex_lock(&t->lock);
    dl_holdings_bucket *b = find_bucket(t, bucket);
    if (b) b->n_changes++, b->pending++;
    pthread_mutex_unlock(&t->lock);
}

/* Apply one finished change to the counts. Sums are unsigned and may wrap before the first walk,
 * which then replaces them. */
void dl_holdings_end(dl_holdings *t, const char *bucket, const char *key, int64_t now,
                     int64_t before)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    pthread_mutex_lock(&t->lock);
    dl_holdings_bucket *b = find_bucket(t, bucket);
    if (b && b->pending) b->pending--;
    if (b) b->objects += (uint64_t)(now >= 0) - (uint64_t)(before >= 0);
    if (b) b->bytes += (uint64_t)(now > 0 ? now : 0) - (uint64_t)(before > 0 ? before : 0);
    if (now >= 0 && dl_key_is_entry(key)) see_entry(t, bucket, key);
    if ((now >= 0 || before >= 0) && dl_key_is_heartbeat(key))
        see_beat(t, bucket, key, now >= 0 ? &at : NULL);
    pthread_mutex_unlock(&t->lock);
}

/* ---- the walk */

/* One walk of one bucket. It collects into `seen`, so the hub's counters stay usable meanwhile. */
typedef struct walk {
    dl_holdings seen; /* of one bucket; its own, so not locked */
    const char *root, *bucket;
    uint64_t objects, bytes;     /* so far */
    bool (*stop)(void *context); /* true ends the walk */
    void *context;
} walk;

/* Called for each object of the bucket. A stopping hub ends the walk by DILOCO_ECLOSED. */
static diloco_status see(void *context, const char *key, size_t len)
{
    walk *w = context;
    char path[PATH_MAX + DL_KEY_MAX + 2];
    struct stat st;
    if (w->stop(w->context)) return DILOCO_ECLOSED;
    w->objects++;
    w->bytes += len;
    if (dl_key_is_entry(key)) see_entry(&w->seen, w->bucket, key);
    if (!dl_key_is_heartbeat(key)) return DILOCO_OK;
    snprintf(path, sizeof path, "%s/%s", w->root, key);
    if (!lstat(path, &st)) see_beat(&w->seen, w->bucket, key, &st.st_mtim);
    return DILOCO_OK;
}

/* Replace the known counts of the bucket's runs by those of the walk. */
static void take_runs(dl_holdings *t, walk *w)
{
    forget_runs(t, w->bucket);
    for (size_t i = 0; i < w->seen.n_runs; i++) {
        dl_holdings_run *row = add_row(&t->runs, &t->n_runs, sizeof *row);
        if (row) *row = w->seen.runs[i], w->seen.runs[i].run = NULL;
    }
    for (size_t i = 0; i < w->seen.n_beats; i++) {
        dl_holdings_beat *row = add_row(&t->beats, &t->n_beats, sizeof *row);
        if (row) *row = w->seen.beats[i], w->seen.beats[i] = (dl_holdings_beat){.run = NULL};
    }
}

/* Walk the bucket once. Returns true if it need not be walked again: nothing changed meanwhile,
 * or the walk failed. On the `last` try the counts are taken all the same where the bucket had
 * none, since rough counts are better than no row. */
static bool walk_once(dl_holdings *t, walk *w, bool last)
{
    char url[PATH_MAX + 8];
    dl_store *store;
    /* The counter of changes is read before the walk and compared after it. The lock is free in
     * between, so traffic is never held up. */
    pthread_mutex_lock(&t->lock);
    dl_holdings_bucket *b = find_bucket(t, w->bucket);
    const uint64_t before = b ? b->n_changes : 0;
    bool quiet = b && !b->pending;
    pthread_mutex_unlock(&t->lock);
    dl_holdings_init(&w->seen);
    w->objects = w->bytes = 0;
    snprintf(url, sizeof url, "file://%s", w->root);
    diloco_status status = dl_store_open(&store, url, false);
    if (!status) {
        status = dl_store_list(store, "", NULL, see, w, DL_NEVER);
        dl_store_close(store);
    }
    pthread_mutex_lock(&t->lock);
    b = find_bucket(t, w->bucket);
    quiet = quiet && b && b->n_changes == before;
    if (!status && b && (quiet || (last && !b->counted))) {
        b->objects = w->objects, b->bytes = w->bytes;
        b->counted = true;
        take_runs(t, w);
    }
    if (b) b->walked = true;
    pthread_mutex_unlock(&t->lock);
    dl_holdings_deinit(&w->seen);
    if (status && status != DILOCO_ECLOSED)
        dl_log(DILOCO_LOG_WARN, "metrics of %s: %s", w->bucket, diloco_error_text());
    return status || quiet;
}

/* Before a walk of all folders: mark every bucket as not seen. With `forget`, after it: drop the
 * buckets that were not seen. One with a change pending stays, since it may just have been made. */
static void set_walked(dl_holdings *t, bool forget)
{
    pthread_mutex_lock(&t->lock);
    for (size_t i = t->n_buckets; i-- > 0;) {
        if (forget && !t->buckets[i].walked && !t->buckets[i].pending)
            forget_bucket(t, t->buckets[i].name);
        else
            t->buckets[i].walked = false;
    }
    pthread_mutex_unlock(&t->lock);
}

/* Folders that are no buckets, such as .hub, are skipped. After an early stop nothing is
 * forgotten, because the walk has not seen all buckets. */
void dl_holdings_walk(dl_holdings *t, const char *dir, bool (*is_bucket)(const char *name),
                      bool (*stop)(void *context), void *context)
{
    char root[PATH_MAX];
    struct stat st;
    set_walked(t, false);
    DIR *folder = opendir(dir);
    if (!folder) return;
    for (struct dirent *d; !stop(context) && (d = readdir(folder));) {
        walk w = {.root = root, .bucket = d->d_name, .stop = stop, .context = context};
        const int len = snprintf(root, sizeof root, "%s/%s", dir, d->d_name);
        if ((size_t)len >= sizeof root || !is_bucket(d->d_name)) continue;
        if (lstat(root, &st) || !S_ISDIR(st.st_mode)) continue;
        for (int i = 1; i <= TRIES; i++)
            if (walk_once(t, &w, i == TRIES)) break;
    }
    closedir(folder);
    if (!stop(context)) set_walked(t, true);
}

/* ---- writing */

/* Append a name unless it is there. The list is short (one name a run), so a linear search will
 * do. */
static diloco_status add_name(dl_buf *out, const char *run)
{
    const char *all = (const char *)out->data;
    for (size_t at = 0; at < out->len; at += strlen(all + at) + 1)
        if (!strcmp(all + at, run)) return DILOCO_OK;
    return dl_buf_add(out, run, strlen(run) + 1);
}

/* A run without an entry yet is found by its heartbeats. */
diloco_status dl_holdings_names(dl_buf *out, dl_holdings *t)
{
    diloco_status status = DILOCO_OK;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_runs && !status; i++)
        status = add_name(out, t->runs[i].run);
    for (size_t i = 0; i < t->n_beats && !status; i++)
        status = add_name(out, t->beats[i].run);
    pthread_mutex_unlock(&t->lock);
    return status;
}

static diloco_status head(dl_buf *out, const char *name, const char *help)
{
    return dl_buf_addf(out, "# HELP diloco_hub_%s %s\n# TYPE diloco_hub_%s gauge\n", name, help,
                       name);
}

/* Write one gauge of all counted buckets. The head is written only if a row follows. */
static diloco_status write_buckets(dl_buf *out, const dl_holdings *t, const char *name,
                                   const char *help, bool bytes)
{
    bool any = false;
    for (size_t i = 0; i < t->n_buckets; i++) {
        const dl_holdings_bucket *b = &t->buckets[i];
        if (!b->counted) continue;
        if (!any) DL_TRY(head(out, name, help));
        any = true;
        DL_TRY(dl_buf_addf(out, "diloco_hub_%s{bucket=\"%s\"} %" PRIu64 "\n", name, b->name,
                           bytes ? b->bytes : b->objects));
    }
    return DILOCO_OK;
}

/* Names of buckets, runs and replicas are keys, so they need no escaping in a label. */
static diloco_status write_rows(dl_buf *out, const dl_holdings *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    DL_TRY(write_buckets(out, t, "objects", "Objects in the bucket.", false));
    DL_TRY(write_buckets(out, t, "object_bytes", "Bytes of all objects in the bucket.", true));
    if (t->n_runs) DL_TRY(head(out, "log_entries", "Entries in the log of the run."));
    for (size_t i = 0; i < t->n_runs; i++)
        DL_TRY(dl_buf_addf(out, "diloco_hub_log_entries{run=\"%s\"} %" PRIu64 "\n", t->runs[i].run,
                           t->runs[i].entries));
    if (t->n_beats)
        DL_TRY(head(out, "heartbeat_age_seconds", "Since the replica's last heartbeat."));
    for (size_t i = 0; i < t->n_beats; i++) {
        const dl_holdings_beat *b = &t->beats[i];
        DL_TRY(dl_buf_addf(
            out, "diloco_hub_heartbeat_age_seconds{run=\"%s\",replica=\"%s\"} %.3f\n", b->run,
            b->replica,
            (double)(now.tv_sec - b->at.tv_sec) + 1e-9 * (double)(now.tv_nsec - b->at.tv_nsec)));
    }
    return DILOCO_OK;
}

diloco_status dl_holdings_write(dl_buf *out, dl_holdings *t)
{
    pthread_mutex_lock(&t->lock);
    const diloco_status status = write_rows(out, t);
    pthread_mutex_unlock(&t->lock);
    return status;
}
