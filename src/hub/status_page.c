/* status_page.c - /status.json: the output of `diloco status --json`, from the files themselves.
 *
 * A replica is alive if its heartbeat was written recently. The hub wrote it, so the time is its
 * own. In a run with keys only a heartbeat counts that the replica's key has signed. Anyone may
 * write an old one again, and this page keeps nothing between requests. So there the heartbeat's
 * own time has to fit, too, as far as clocks may differ. */
#include "hub/server.h"
#include "hub/status_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { JSON_MAX = 4 << 20, CLOCKS_DIFFER_S = 60 };

/* `st` is of the heartbeat's file. */
static bool is_alive(const diloco_replica_status *r, const struct stat *st, double alive_s,
                     bool has_keys)
{
    const double written = (double)st->st_mtime;
    const bool fits = r->seen && fabs(written - r->beat_time) < alive_s + CLOCKS_DIFFER_S;
    return !r->ended && (double)time(NULL) - written < alive_s && (!has_keys || fits);
}

/* Replace `alive` by the age of the heartbeat's file. `folder` is the run's place on the disk. */
static void see_heartbeats(const char *folder, const diloco_run_status *run, bool has_keys)
{
    char path[PATH_MAX + 64];
    struct stat st;
    for (size_t i = 0; i < run->n_replicas; i++) {
        diloco_replica_status *r = run->replicas[i];
        snprintf(path, sizeof path, "%s/hb/%s.%04u", folder, r->replica, (unsigned)r->generation);
        r->alive = lstat(path, &st) == 0 && is_alive(r, &st, run->alive_s, has_keys);
    }
}

static dl_response reply_json(dl_http_request *r, const diloco_run_status *run,
                              const dl_roster_view *roster, const char *store)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, JSON_MAX);
    dl_json_init(&json, &out);
    dl_status_json(&json, run, roster, store);
    diloco_status status = dl_json_done(&json);
    if (!status) status = dl_buf_add(&out, "\n", 1);
    dl_response reply = status ? dl_refuse_failed(r, status)
                               : dl_response_text(200, "application/json", out.data, out.len);
    dl_response_header(reply, "Cache-Control", "no-store");
    dl_buf_deinit(&out);
    return reply;
}

/* Read the run by the same functions as `diloco status`, through the folder itself. Returns 404
 * if the bucket has no run there. */
dl_response dl_status_begin(dl_http_request *r)
{
    const char *name = dl_target_param(&r->target, "run"), *rest = "";
    char url[PATH_MAX + 8], store[1024];
    if (!name || !dl_request_bucket(r, name, &rest) || (*rest && !dl_store_key_ok(rest)))
        return dl_refuse(r, 400, "",
                         "/status.json?run=RUN names a run: RUN is the path in its URL");
    if (!dl_hub_bucket_there(r)) return dl_refuse_no_bucket(r);
    int len = snprintf(url, sizeof url, "file://%s%s%s", r->root, *rest ? "/" : "", rest);
    if ((size_t)len >= sizeof url) return dl_refuse(r, 400, "", "the path of the run is too long");
    snprintf(store, sizeof store, "%s/%s", r->hub->url, name);

    dl_roster_view roster;
    diloco_run_status run;
    diloco_status status = diloco_run_status_read(&run, url, 0);
    if (!status) status = dl_roster_view_read(&roster, url);
    if (!status) see_heartbeats(url + strlen("file://"), &run, roster.owner[0]);
    /* EDIFFERS: there is a log without run.json, as while a run is removed. */
    dl_response reply = status == DILOCO_ENOENT || status == DILOCO_EDIFFERS
                            ? dl_refuse(r, 404, "", "there is no run in %s", name)
                        : status ? dl_refuse_failed(r, status)
                                 : reply_json(r, &run, &roster, store);
    diloco_run_status_free(&run);
    return reply;
}
