/* overview.c - /metrics: what was counted, and what the folders hold.
 *
 * The folders are walked once a scrape, a bucket at a time: every object is counted, a key that
 * ends in log/<10 digits>.json tells of a run (what stands before it), one in hb/ of a replica.
 * A row is written when the walk leaves what it is about; a listing is in order, so that is
 * when the next one begins. */
#include "base/log.h"
#include "hub/server.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_MAX = 16 << 20 };

/* The samples of one metric must stand together, so each has a text of its own. */
typedef enum row { OBJECTS, BYTES, ENTRIES, HEARTBEAT, N_ROWS } row;
static const struct {
    const char *name, *help;
} rows[N_ROWS] = {
    {"objects", "Objects in the bucket."},
    {"object_bytes", "Bytes of all objects in the bucket."},
    {"log_entries", "Entries in the log of the run."},
    {"heartbeat_age_seconds", "Since the replica's last heartbeat."},
};

typedef struct walk {
    dl_request *r;
    dl_buf text[N_ROWS];
    uint64_t n, bytes;
    char run[DL_KEY_MAX + 1]; /* of the log being walked; "" in none */
    size_t run_len;           /* SIZE_MAX: in none */
    uint64_t entries;
    char replica[DL_KEY_MAX + 1]; /* key of the newest heartbeat so far of a replica */
} walk;

/* "<run>log/<10 digits>.json": the length of <run>. */
static bool is_entry(const char *key, size_t *run_len, uint64_t *entry)
{
    const char *slash = strrchr(key, '/');
    if (!dl_key_is_entry(key)) return false;
    *run_len = (size_t)(slash - key) - strlen("log");
    *entry = strtoull(slash + 1, NULL, 10);
    return true;
}

/* The label of a run is its path without the last '/'. */
static diloco_status leave_log(walk *w)
{
    size_t len = w->run_len;
    if (len == SIZE_MAX) return DILOCO_OK;
    w->run_len = SIZE_MAX;
    return dl_buf_addf(&w->text[ENTRIES], "diloco_hub_log_entries{run=\"%s%s%.*s\"} %" PRIu64 "\n",
                       w->r->bucket, len ? "/" : "", (int)(len ? len - 1 : 0), w->run, w->entries);
}

static diloco_status leave_replica(walk *w)
{
    char path[sizeof w->r->root + DL_KEY_MAX + 2];
    struct stat st;
    const char *leaf = strrchr(w->replica, '/');
    if (!leaf) return DILOCO_OK;
    size_t run_len = (size_t)(leaf - w->replica) - strlen("hb");
    snprintf(path, sizeof path, "%s/%s", w->r->root, w->replica);
    bool gone = lstat(path, &st) != 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)(now.tv_sec - st.st_mtim.tv_sec) +
                 1e-9 * (double)(now.tv_nsec - st.st_mtim.tv_nsec);
    diloco_status status =
        gone ? DILOCO_OK
             : dl_buf_addf(
                   &w->text[HEARTBEAT],
                   "diloco_hub_heartbeat_age_seconds{run=\"%s%s%.*s\",replica=\"%s\"} %.3f\n",
                   w->r->bucket, run_len ? "/" : "", (int)(run_len ? run_len - 1 : 0), w->replica,
                   leaf + 1, age);
    w->replica[0] = '\0';
    return status;
}

/* Of two keys "…/r0.0000" and "…/r0.0001": one replica's? */
static bool same_replica(const char *a, const char *b)
{
    const char *dot = strrchr(a, '.');
    return dot && strncmp(a, b, (size_t)(dot - a) + 1) == 0;
}

static diloco_status see(void *context, const char *key, size_t len)
{
    walk *w = context;
    size_t run_len;
    uint64_t entry;
    w->n++;
    w->bytes += len;
    if (is_entry(key, &run_len, &entry)) {
        if (run_len != w->run_len || memcmp(key, w->run, run_len)) DL_TRY(leave_log(w));
        memcpy(w->run, key, run_len);
        w->run_len = run_len;
        w->entries = entry + 1;
    }
    if (dl_key_is_heartbeat(key)) {
        if (!same_replica(w->replica, key)) DL_TRY(leave_replica(w));
        strcpy(w->replica, key);
    }
    return DILOCO_OK;
}

static diloco_status walk_bucket(walk *w)
{
    dl_store *store;
    w->n = w->bytes = 0;
    w->run_len = SIZE_MAX;
    w->replica[0] = '\0';
    DL_TRY(dl_hub_bucket_open(&store, w->r, false));
    diloco_status status = dl_store_list(store, "", NULL, see, w, DL_NEVER);
    dl_store_close(store);
    if (!status) status = leave_log(w);
    if (!status) status = leave_replica(w);
    if (status) return status;
    DL_TRY(dl_buf_addf(&w->text[OBJECTS], "diloco_hub_objects{bucket=\"%s\"} %" PRIu64 "\n",
                       w->r->bucket, w->n));
    return dl_buf_addf(&w->text[BYTES], "diloco_hub_object_bytes{bucket=\"%s\"} %" PRIu64 "\n",
                       w->r->bucket, w->bytes);
}

/* A bucket that cannot be read is left out, and the log says so. */
static void walk_all(walk *w)
{
    DIR *dir = opendir(w->r->hub->dir);
    const char *rest;
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (dl_request_bucket(w->r, d->d_name, &rest) && !*rest && dl_hub_bucket_there(w->r) &&
            walk_bucket(w))
            dl_log(DILOCO_LOG_WARN, "metrics of %s: %s", w->r->bucket, diloco_error_text());
    if (dir) closedir(dir);
}

static diloco_status write_all(dl_buf *out, walk *w)
{
    dl_hub *hub = w->r->hub;
    DL_TRY(dl_metrics_write(out, &hub->metrics, dl_events_count(&hub->events)));
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!w->text[i].len) continue;
        DL_TRY(dl_buf_addf(out, "# HELP diloco_hub_%s %s\n# TYPE diloco_hub_%s gauge\n",
                           rows[i].name, rows[i].help, rows[i].name));
        DL_TRY(dl_buf_add(out, w->text[i].data, w->text[i].len));
    }
    return DILOCO_OK;
}

dl_answer dl_metrics_begin(dl_request *r)
{
    dl_buf out;
    walk *w = calloc(1, sizeof *w);
    if (!w) return dl_refuse(r, 500, "", "no memory");
    w->r = r;
    dl_buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < N_ROWS; i++)
        dl_buf_init(&w->text[i], TEXT_MAX);
    walk_all(w);
    diloco_status status = write_all(&out, w);
    dl_answer answer = status ? dl_refuse_failed(r, status)
                              : dl_answer_text(200, "text/plain; version=0.0.4", out.data, out.len);
    for (size_t i = 0; i < N_ROWS; i++)
        dl_buf_deinit(&w->text[i]);
    dl_buf_deinit(&out);
    free(w);
    return answer;
}
