/* inspect.c - include/diloco/inspect.h: readers of the log. They write nothing but the probe. */
#include <diloco/inspect.h>

#include "base/json.h"
#include "base/log.h"
#include "run/fold.h"
#include "run/open.h"
#include "run/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READER_MEMBERS = 1024 };

/* A run opened for reading. */
typedef struct reader {
    dl_store  *store;
    dl_runfile file;
    dl_hash    digest; /* of run.json */
    dl_pool   *pool;
    dl_exec   *exec;
} reader;

static dl_time limit(void) { return dl_time_after(dl_clock_now(), 3600 * DL_SECOND); }

static void reader_close(reader *r)
{
    dl_exec_destroy(r->exec);
    dl_pool_destroy(r->pool);
    dl_runfile_deinit(&r->file);
    dl_store_close(r->store);
}

static diloco_status reader_open(reader *r, const char *url)
{
    memset(r, 0, sizeof *r);
    DL_TRY(dl_isa_check());
    DL_TRY(dl_store_open(&r->store, url, false));
    const diloco_status status = dl_run_read(&r->file, &r->digest, r->store);
    if (status) reader_close(r);
    return status;
}

static diloco_status reader_exec(reader *r, int n_threads)
{
    DL_TRY(dl_pool_create(&r->pool, n_threads));
    const dl_exec_args args = {.store       = r->store,
                               .run         = &r->file,
                               .run_digest  = r->digest,
                               .max_members = READER_MEMBERS,
                               .n_copies    = 2, /* a void entry leaves the state as it was */
                               .pool        = r->pool};
    return dl_exec_create(&r->exec, &args);
}

/* ---- the log ---------------------------------------------------------------------------- */

/* The log's length: entries are found by number, since it has no gaps. */
static diloco_status count_found(void *context, const char *key, size_t len)
{
    uint64_t *n = context, entry;
    (void)len;
    if (dl_key_parse_entry(&entry, key) && entry + 1 > *n) *n = entry + 1;
    return DILOCO_OK;
}

static diloco_status log_length(uint64_t *n, dl_store *store)
{
    *n = 0;
    return dl_store_list(store, "log/", NULL, count_found, n, limit());
}

typedef struct entry_view {
    dl_entry    entry;
    char      (*lives)[DL_LIFE_TEXT];
    const char **members, **roster;
    float       *weights;
    dl_buf       text;
} entry_view;

static void view_deinit(entry_view *v)
{
    dl_entry_deinit(&v->entry);
    dl_buf_deinit(&v->text);
    free(v->lives);
    free(v->members);
    free(v->roster);
    free(v->weights);
}

static diloco_status view_init(entry_view *v)
{
    memset(v, 0, sizeof *v);
    dl_buf_init(&v->text, DL_ENTRY_TEXT_MAX);
    v->lives   = calloc(DL_MAX_MEMBERS, sizeof *v->lives);
    v->members = calloc(DL_MAX_MEMBERS, sizeof *v->members);
    v->roster  = calloc(DL_MAX_MEMBERS, sizeof *v->roster);
    v->weights = calloc(DL_MAX_MEMBERS, sizeof *v->weights);
    diloco_status status = dl_entry_init(&v->entry, DL_MAX_MEMBERS);
    if (!status && (!v->lives || !v->members || !v->roster || !v->weights))
        status = dl_fail(DILOCO_ENOMEM, "no memory to read the log");
    if (status) view_deinit(v);
    return status;
}

static diloco_status read_entry_text(entry_view *v, dl_store *store, uint64_t e)
{
    dl_key key;
    dl_key_entry(key, e);
    dl_buf_clear(&v->text);
    return dl_store_get(store, &v->text, key, limit());
}

static diloco_log_entry show(entry_view *v)
{
    static _Thread_local char base[DL_HASH_HEX + 1], result[DL_HASH_HEX + 1], prev[DL_HASH_HEX + 1];
    static _Thread_local char committer[DL_LIFE_TEXT];
    const dl_entry           *e = &v->entry;
    uint64_t                  bytes = 0;
    for (size_t i = 0; i < e->n_members; i++) {
        dl_life_text(v->lives[i], &e->members[i].life);
        v->members[i] = v->lives[i];
        v->weights[i] = e->members[i].weight;
        bytes += e->members[i].bytes;
    }
    for (size_t i = 0; i < e->roster.n; i++)
        v->roster[i] = e->roster.names[i];
    dl_hash_to_hex(base, e->base);
    dl_hash_to_hex(result, e->result);
    dl_hash_to_hex(prev, e->prev);
    dl_life_text(committer, &e->committer);
    return (diloco_log_entry){.entry     = e->entry,
                              .commit    = e->commit,
                              .fragment  = e->fragment,
                              .position  = e->position,
                              .committer = committer,
                              .reason    = e->reason,
                              .n_members = e->n_members,
                              .members   = v->members,
                              .weights   = v->weights,
                              .roster    = v->roster,
                              .n_roster  = e->roster.n,
                              .loss      = e->loss,
                              .bytes     = bytes,
                              .base      = base,
                              .result    = result,
                              .prev      = prev};
}

static diloco_status walk(reader *r, uint64_t from, diloco_log_entry_fn fn, void *user)
{
    entry_view v;
    DL_TRY(view_init(&v));
    diloco_status   status = DILOCO_OK;
    const dl_outer *outer  = dl_outer_find(r->file.config.outer_optimizer);
    for (uint64_t e = from; !status; e++) {
        status = read_entry_text(&v, r->store, e);
        if (status == DILOCO_ENOENT) {
            status = DILOCO_OK;
            break;
        }
        if (!status) status = dl_entry_read(&v.entry, v.text.data, v.text.len, outer);
        if (status) {
            status = dl_fail_context(status, "entry %llu", (unsigned long long)e);
            break;
        }
        const diloco_log_entry shown = show(&v);
        status                       = fn(user, &shown);
    }
    view_deinit(&v);
    return status;
}

diloco_status diloco_log_walk(const char *url, uint64_t from, diloco_log_entry_fn fn, void *user)
{
    reader r;
    DL_TRY(reader_open(&r, url));
    const diloco_status status = walk(&r, from, fn, user);
    reader_close(&r);
    return status;
}

/* ---- settings and status ---------------------------------------------------------------- */

diloco_status diloco_run_config(diloco_config *config, const char *url)
{
    reader r;
    DL_TRY(reader_open(&r, url));
    dl_runfile_take(config, &r.file);
    const diloco_status status = dl_config_set(config, "run.store", url, "command line");
    reader_close(&r);
    return status;
}

typedef struct watcher {
    diloco_run_status *out;
    dl_hash            content[256]; /* of out->replicas[i]'s heartbeat */
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
    dl_life  life;
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
    dl_life  life;
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
    dl_key  key;
    dl_json_value json;
    memcpy(life.replica, r->replica, sizeof life.replica);
    dl_key_gen(key, &life);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, limit()) == DILOCO_OK &&
        dl_json_parse(&json, text->data, text->len) == DILOCO_OK)
        (void)!dl_json_read_str(r->host, sizeof r->host, json, "host");
}

/* A heartbeat's numbers, and whether its content is not `before`. */
static dl_hash read_heartbeat(diloco_replica_status *r, dl_store *store, dl_buf *text)
{
    dl_life       life = {.generation = r->generation};
    dl_key        key;
    dl_json_value json;
    memcpy(life.replica, r->replica, sizeof life.replica);
    dl_key_heartbeat(key, &life);
    dl_buf_clear(text);
    if (dl_store_get(store, text, key, limit())) return (dl_hash){{0}};
    r->seen = true;
    if (dl_json_parse(&json, text->data, text->len) == DILOCO_OK) {
        (void)!dl_json_read_u64(&r->step, json, "step", UINT64_MAX);
        (void)!dl_json_read_u64(&r->entry, json, "entry", UINT64_MAX);
        (void)!dl_json_read_u64(&r->position, json, "position", UINT64_MAX);
        (void)!dl_json_read_f64(&r->steps_per_s, json, "steps_per_s");
    }
    return dl_hash_bytes(text->data, text->len);
}

static diloco_status count_kind(void *user, const diloco_log_entry *entry)
{
    diloco_run_status *out = user;
    if (entry->commit) out->commits++;
    else out->aborts++;
    out->entries = entry->entry + 1;
    return DILOCO_OK;
}

static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    diloco_run_status *out = context;
    uint64_t           entry;
    dl_life            life;
    (void)len;
    if (dl_key_parse_snapshot(&entry, &life, key) && entry > out->snapshot) out->snapshot = entry;
    return DILOCO_OK;
}

static diloco_status watch_replicas(reader *r, watcher *w, double watch_s)
{
    DL_TRY(dl_store_list(r->store, "gen/", NULL, found_gen, w, limit()));
    DL_TRY(dl_store_list(r->store, "end/", NULL, found_end, w, limit()));
    dl_buf text;
    dl_buf_init(&text, 65536);
    for (size_t i = 0; i < w->out->n_replicas; i++) {
        read_life(&w->out->replicas[i], r->store, &text);
        w->content[i] = read_heartbeat(&w->out->replicas[i], r->store, &text);
    }
    const dl_time until = dl_time_after(dl_clock_now(), dl_time_from_seconds(watch_s));
    size_t        quiet = w->out->n_replicas;
    while (quiet > 0 && dl_clock_now() < until) {
        dl_clock_sleep(50 * DL_MILLISECOND);
        quiet = 0;
        for (size_t i = 0; i < w->out->n_replicas; i++) {
            diloco_replica_status *one = &w->out->replicas[i];
            if (one->alive || one->ended || !one->seen) continue;
            one->alive = !dl_hash_equal(w->content[i], read_heartbeat(one, r->store, &text));
            quiet += !one->alive;
        }
    }
    dl_buf_deinit(&text);
    return DILOCO_OK;
}

static diloco_status fill_status(reader *r, diloco_run_status *out, double watch_s)
{
    const dl_runfile *f = &r->file;
    snprintf(out->run, sizeof out->run, "%s", f->id);
    snprintf(out->preset, sizeof out->preset, "%s", f->config.preset);
    snprintf(out->program, sizeof out->program, "%s", f->program);
    snprintf(out->model, sizeof out->model, "%s", f->config.model);
    dl_hash_to_hex(out->config_digest, f->config_digest);
    out->parameters    = f->manifest.n_parameters;
    out->entries_total = (uint64_t)f->config.rounds;
    DL_TRY(walk(r, 0, count_kind, out));
    out->done = out->entries >= out->entries_total;
    DL_TRY(dl_store_list(r->store, "snap/", NULL, found_snapshot, out, limit()));
    watcher w = {.out = out};
    return watch_replicas(r, &w, watch_s);
}

diloco_status diloco_run_status_read(diloco_run_status *out, const char *url, double watch_s)
{
    reader r;
    memset(out, 0, sizeof *out);
    DL_TRY(reader_open(&r, url));
    const diloco_status status = fill_status(&r, out, watch_s);
    reader_close(&r);
    return status;
}

/* ---- verifying -------------------------------------------------------------------------- */

/* prev of every entry before `end` is the digest of the text before it. */
static diloco_status check_chain(reader *r, diloco_verify_report *out, uint64_t end)
{
    entry_view v;
    DL_TRY(view_init(&v));
    const dl_outer *outer  = dl_outer_find(r->file.config.outer_optimizer);
    dl_hash         before = r->digest;
    diloco_status   status = DILOCO_OK;
    for (uint64_t e = 0; e < end && !status; e++) {
        status = read_entry_text(&v, r->store, e);
        if (status == DILOCO_ENOENT)
            status = dl_fail(DILOCO_EPROTO, "entry %llu is missing: the log has a gap",
                             (unsigned long long)e);
        if (status) break;
        const dl_hash digest = dl_hash_bytes(v.text.data, v.text.len);
        const diloco_status readable = dl_entry_read(&v.entry, v.text.data, v.text.len, outer);
        if (readable || !dl_hash_equal(v.entry.prev, before))
            status = dl_fail(DILOCO_EPROTO, "entry %llu: %s", (unsigned long long)e,
                             readable ? diloco_error_text()
                                      : "prev is not the digest of the entry before it");
        before = digest;
        out->chained += !status;
    }
    view_deinit(&v);
    return status;
}

static diloco_status found_any(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    *(bool *)context = true;
    return DILOCO_ECLOSED; /* one is enough */
}

/* From theta0 where the first contributions are kept, else from the oldest snapshot. */
static diloco_status load_oldest(reader *r)
{
    dl_key prefix;
    bool   kept = false;
    dl_key_contributions(prefix, 0);
    const diloco_status status = dl_store_list(r->store, prefix, NULL, found_any, &kept, limit());
    if (status && status != DILOCO_ECLOSED) return status;
    dl_state *state = dl_exec_state(r->exec);
    if (kept)
        return dl_snapshot_read_newest(state, r->store, &r->file, r->digest, 0, r->pool, limit());
    return dl_snapshot_read_oldest(state, r->store, &r->file, r->digest, r->pool, limit());
}

typedef struct relay {
    diloco_verify_fn fn;
    void            *user;
    uint64_t         total;
} relay;

static void on_progress(void *user, uint64_t done)
{
    relay *p = user;
    if (p->fn) p->fn(p->user, done, p->total);
}

static diloco_status verify(reader *r, diloco_verify_report *out, int n_threads, relay *progress)
{
    DL_TRY(reader_exec(r, n_threads));
    DL_TRY(log_length(&out->entries, r->store));
    progress->total = out->entries;
    DL_TRY(check_chain(r, out, out->entries));
    DL_TRY(load_oldest(r));
    dl_state *state     = dl_exec_state(r->exec);
    out->first_replayed = state->control.entry;
    dl_replay_report replayed;
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, out->entries, on_progress, progress));
    out->replayed = replayed.replayed;
    out->commits  = replayed.commits;
    out->aborts   = replayed.aborts;
    out->voids    = replayed.voids;
    out->complete = out->entries >= (uint64_t)r->file.config.rounds;
    dl_hash_to_hex(out->digest, dl_state_digest_all(state));
    if (replayed.voids)
        return dl_fail(DILOCO_EPROTO, "%llu of the entries are void; the warnings name them",
                       (unsigned long long)replayed.voids);
    return DILOCO_OK;
}

diloco_status diloco_verify(diloco_verify_report *out, const char *url, int n_threads,
                            diloco_verify_fn progress, void *user)
{
    reader r;
    relay  p = {.fn = progress, .user = user};
    memset(out, 0, sizeof *out);
    DL_TRY(reader_open(&r, url));
    const diloco_status status = verify(&r, out, n_threads, &p);
    reader_close(&r);
    return status;
}

/* ---- theta ------------------------------------------------------------------------------ */

static diloco_status theta_image(reader *r, dl_buf *out, uint64_t entries)
{
    dl_state *state = dl_exec_state(r->exec);
    DL_TRY(dl_snapshot_read_newest(state, r->store, &r->file, r->digest, entries, r->pool, limit()));
    dl_replay_report replayed;
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, entries, NULL, NULL));

    const size_t cap   = dl_state_image_spans(state);
    dl_span     *spans = calloc(cap, sizeof *spans);
    dl_buf       header;
    size_t       n = 0;
    if (!spans) return dl_fail(DILOCO_ENOMEM, "no memory for the list of tensors");
    dl_buf_init(&header, DL_RUNFILE_MAX);
    diloco_status status = dl_state_image(&header, spans, cap, &n, state);
    for (size_t i = 0; i < n && !status; i++)
        status = dl_buf_add(out, spans[i].data, spans[i].len);
    dl_buf_deinit(&header);
    free(spans);
    return status;
}

diloco_status diloco_theta_read(void **bytes, size_t *len, uint64_t *entry, const char *url,
                                uint64_t entries)
{
    reader r;
    dl_buf image;
    *bytes = NULL;
    *len   = 0;
    DL_TRY(reader_open(&r, url));
    dl_buf_init(&image, PTRDIFF_MAX);
    diloco_status status = reader_exec(&r, dl_cores());
    if (!status) status = theta_image(&r, &image, entries);
    if (status) {
        dl_buf_deinit(&image);
    } else {
        *bytes = image.data; /* handed over; freed by diloco_free */
        *len   = image.len;
        *entry = dl_exec_state(r.exec)->control.entry;
    }
    reader_close(&r);
    return status;
}

void diloco_free(void *bytes) { free(bytes); }

diloco_status diloco_store_check(diloco_store_report *out, const char *url)
{
    dl_probe            probe = {0};
    const diloco_status status =
        dl_store_probe(&probe, url, dl_time_after(dl_clock_now(), 120 * DL_SECOND));
    *out = (diloco_store_report){.create_ms      = probe.create_ms,
                                 .read_ms        = probe.read_ms,
                                 .write_mb_per_s = probe.write_mb_per_s,
                                 .read_mb_per_s  = probe.read_mb_per_s,
                                 .winners        = probe.winners};
    return status;
}
