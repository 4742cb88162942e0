/* status.c - diloco_run_status_read: who takes part, who is alive, how far the log is. The
 * living are told from the dead by watching: no clock of another machine is believed (P11). */
#include "base/json.h"
#include "run/reader.h"
#include "run/way.h"

#include <stdio.h>
#include <string.h>

typedef struct watcher {
    diloco_run_status *out;
    dl_hash content[256]; /* of out->replicas[i]'s heartbeat */
} watcher;

static size_t replica_index(diloco_run_status *s, const char *name)
{
    size_t at = 0;
    while (at < s->n_replicas && dl_replica_compare(s->replicas[at].replica, name) < 0)
        at++;
    if (at < s->n_replicas && !strcmp(s->replicas[at].replica, name)) return at;
    if (s->n_replicas == sizeof s->replicas / sizeof s->replicas[0]) return SIZE_MAX;
    memmove(s->replicas + at + 1, s->replicas + at, (s->n_replicas - at) * sizeof s->replicas[0]);
    s->n_replicas++;
    s->replicas[at] = (diloco_replica_status){.generation = 0};
    snprintf(s->replicas[at].replica, sizeof s->replicas[at].replica, "%s", name);
    return at;
}

static diloco_status found_gen(void *context, const char *key, size_t len)
{
    watcher *w = context;
    dl_life life;
    (void)len;
    if (!dl_key_parse_life(&life, key, "gen/")) return DILOCO_OK;
    const size_t i = replica_index(w->out, life.replica);
    if (i != SIZE_MAX && life.generation >= w->out->replicas[i].generation)
        w->out->replicas[i].generation = life.generation;
    return DILOCO_OK;
}

static diloco_status found_end(void *context, const char *key, size_t len)
{
    watcher *w = context;
    dl_life life;
    (void)len;
    if (!dl_key_parse_life(&life, key, "end/")) return DILOCO_OK;
    const size_t i = replica_index(w->out, life.replica);
    if (i != SIZE_MAX && w->out->replicas[i].generation == life.generation)
        w->out->replicas[i].ended = true;
    return DILOCO_OK;
}

static void read_life(diloco_replica_status *r, dl_store *store, dl_buf *text)
{
    dl_life life = {.generation = r->generation};
    dl_key key;
    dl_json_value json;
    memcpy(life.replica, r->replica, sizeof life.replica);
    dl_key_gen(key, &life);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, dl_reader_limit()) == DILOCO_OK &&
        dl_json_parse(&json, text->data, text->len) == DILOCO_OK)
        (void)!dl_json_read_str(r->host, sizeof r->host, json, "host");
}

/* A heartbeat's numbers; true: its content is not *content any more, which becomes what it is. */
static bool heartbeat_changed(dl_hash *content, diloco_replica_status *r, dl_store *store,
                              dl_buf *text)
{
    dl_life life = {.generation = r->generation};
    dl_key key;
    dl_json_value json;
    memcpy(life.replica, r->replica, sizeof life.replica);
    dl_key_heartbeat(key, &life);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, dl_reader_limit())) return false;
    r->seen = true;
    if (dl_json_parse(&json, text->data, text->len) == DILOCO_OK) {
        (void)!dl_json_read_u64(&r->step, json, "step", UINT64_MAX);
        (void)!dl_json_read_u64(&r->entry, json, "entry", UINT64_MAX);
        (void)!dl_json_read_u64(&r->position, json, "position", UINT64_MAX);
        (void)!dl_json_read_f64(&r->steps_per_s, json, "steps_per_s");
    }
    const dl_hash now = dl_hash_bytes(text->data, text->len);
    const bool changed = !dl_hash_equal(now, *content);
    *content = now;
    return changed;
}

/* An entry that names no update was moved by allgather, whatever the run's way. */
static void take_volume(diloco_run_status *out, const diloco_log_entry *entry)
{
    const double n = (double)entry->n_members, each = (double)entry->bytes / n;
    const dl_way way = entry->combined_by[0] ? DL_WAY_LEADER : DL_WAY_ALLGATHER;
    const dl_volume v = dl_way_volume(way, n, each, (double)entry->combined_bytes);
    out->entry_written = (uint64_t)v.written;
    out->entry_read = (uint64_t)v.read;
}

static diloco_status count_kind(void *user, const diloco_log_entry *entry)
{
    diloco_run_status *out = user;
    if (entry->commit)
        out->commits++;
    else
        out->aborts++;
    if (entry->commit) take_volume(out, entry);
    out->entries = entry->entry + 1;
    return DILOCO_OK;
}

static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    diloco_run_status *out = context;
    uint64_t entry;
    dl_life life;
    (void)len;
    if (dl_key_parse_snapshot(&entry, &life, key) && entry > out->snapshot) out->snapshot = entry;
    return DILOCO_OK;
}

static diloco_status watch_replicas(dl_reader *r, watcher *w, double watch_s)
{
    DL_TRY(dl_store_list(r->store, "gen/", NULL, found_gen, w, dl_reader_limit()));
    DL_TRY(dl_store_list(r->store, "end/", NULL, found_end, w, dl_reader_limit()));
    dl_buf text;
    dl_buf_init(&text, 65536);
    for (size_t i = 0; i < w->out->n_replicas; i++) {
        read_life(&w->out->replicas[i], r->store, &text);
        (void)heartbeat_changed(&w->content[i], &w->out->replicas[i], r->store, &text);
    }
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(watch_s));
    size_t quiet = w->out->n_replicas;
    while (quiet > 0 && dl_clock_now() < until) {
        dl_clock_sleep(50 * DL_MILLISECOND);
        quiet = 0;
        for (size_t i = 0; i < w->out->n_replicas; i++) {
            diloco_replica_status *one = &w->out->replicas[i];
            if (one->alive || one->ended || !one->seen) continue;
            one->alive = heartbeat_changed(&w->content[i], one, r->store, &text);
            quiet += !one->alive;
        }
    }
    dl_buf_deinit(&text);
    return DILOCO_OK;
}

static diloco_status fill_status(dl_reader *r, diloco_run_status *out, double watch_s)
{
    const dl_runfile *f = &r->file;
    snprintf(out->run, sizeof out->run, "%s", f->id);
    snprintf(out->preset, sizeof out->preset, "%s", f->config.preset);
    snprintf(out->program, sizeof out->program, "%s", f->program);
    snprintf(out->model, sizeof out->model, "%s", f->config.model);
    dl_hash_to_hex(out->config_digest, f->config_digest);
    out->parameters = f->manifest.n_parameters;
    out->entries_total = (uint64_t)f->config.rounds;
    dl_way way;
    DL_TRY(dl_way_of(&way, &f->config, &f->manifest));
    snprintf(out->exchange, sizeof out->exchange, "%s", dl_way_names[way]);
    DL_TRY(dl_reader_walk(r, 0, count_kind, out));
    out->done = out->entries >= out->entries_total;
    DL_TRY(dl_store_list(r->store, "snap/", NULL, found_snapshot, out, dl_reader_limit()));
    watcher w = {.out = out};
    return watch_replicas(r, &w, watch_s);
}

diloco_status diloco_run_status_read(diloco_run_status *out, const char *url, double watch_s)
{
    dl_reader r;
    memset(out, 0, sizeof *out);
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = fill_status(&r, out, watch_s);
    dl_reader_close(&r);
    return status;
}
