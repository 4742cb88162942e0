/* inspect.c - include/diloco/inspect.h: the log as it is, settings, theta.
 *
 * run_status.c and verify.c are the other two parts. Readers write nothing but the probe. All of
 * them begin with dl_reader_open; only what replays calls dl_reader_exec as well. */
#include "base/log.h"
#include "base/sized.h"
#include "inspect/reader.h"
#include "inspect/replay.h"
#include "protocol/logical_clients.h"
#include "run/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An hour: long enough for a snapshot over a slow link, and no hang for ever. */
dl_time dl_reader_limit(void)
{
    return dl_time_after(dl_clock_now(), 3600 * DL_SECOND);
}

void dl_reader_close(dl_reader *r)
{
    dl_exec_destroy(r->exec);
    dl_pool_destroy(r->pool);
    dl_runfile_deinit(&r->file);
    dl_store_close(r->store);
}

/* Open the run's coordination store beside its own. run.json in the store names it. After both
 * are opened run.json is read again, through both, so it is that of the run. */
static diloco_status take_coord(dl_reader *r, const char *url)
{
    dl_run_coord coord;
    DL_TRY(dl_run_may_ask_coord(url, &r->file.config));
    const dl_store_address both = dl_run_address(coord, url, &r->file.config);
    dl_runfile_deinit(&r->file);
    dl_store_close(r->store);
    r->store = NULL;
    DL_TRY(dl_store_open_at(&r->store, &both, false));
    return dl_run_read(&r->file, &r->digest, r->store);
}

/* An instruction set that DILOCO_ISA names and this machine lacks is refused first. After an
 * error nothing is open. */
diloco_status dl_reader_open(dl_reader *r, const char *url)
{
    memset(r, 0, sizeof *r);
    DL_TRY(dl_isa_check());
    DL_TRY(dl_store_open(&r->store, url, false));
    diloco_status status = dl_run_read(&r->file, &r->digest, r->store);
    if (!status && r->file.config.coord[0]) status = take_coord(r, url);
    if (status) dl_reader_close(r);
    return status;
}

/* Allocate what a replay needs: threads, and two copies of the state. After an error
 * dl_reader_close releases the rest. */
diloco_status dl_reader_exec(dl_reader *r, int n_threads)
{
    DL_TRY(dl_pool_create(&r->pool, n_threads));
    const dl_exec_args args = {.store = r->store,
                               .run = &r->file,
                               .run_digest = r->digest,
                               .max_members = dl_clients_max_members(&r->file.config),
                               .n_copies = 2, /* a void entry leaves the state as it was */
                               .pool = r->pool};
    return dl_exec_create(&r->exec, &args);
}

/* ---- the log ---------------------------------------------------------------------------- */

/* Write the number of entries that a complete run has, by its configuration. */
diloco_status dl_reader_total(uint64_t *n, const dl_reader *r)
{
    dl_schedule s;
    DL_TRY(dl_schedule_of(&s, &r->file.config, r->file.manifest.n_fragments));
    *n = dl_schedule_entries(&s, (uint64_t)r->file.config.rounds);
    return DILOCO_OK;
}

diloco_status dl_reader_entry_init(dl_entry *out, const dl_reader *r)
{
    return dl_entry_init(out, dl_clients_max_members(&r->file.config));
}

/* Read and check an entry's text by the run's rules. An outer optimizer of the caller's own is
 * not known here. */
diloco_status dl_reader_entry(dl_entry *out, const dl_buf *text, const dl_reader *r,
                              uint64_t number)
{
    const dl_entry_place place = dl_runfile_place(&r->file, number);
    return dl_entry_read_at(out, text->data, text->len, &place);
}

/* An entry, and the memory that a diloco_log_entry of it points into. One view serves a whole
 * walk: arrays have room for any entry. */
typedef struct view {
    dl_entry entry;
    char (*generations)[DL_GENERATION_TEXT]; /* [DL_MAX_MEMBERS], owned: members, then those
                                                rejected */
    const char **members, **roster, **rejected, **rejected_for; /* [DL_MAX_MEMBERS] each, owned */
    float *weights;                                             /* [DL_MAX_MEMBERS], owned */
    char base[DL_HASH_HEX + 1], result[DL_HASH_HEX + 1], prev[DL_HASH_HEX + 1]; /* as hex */
    char committer[DL_GENERATION_TEXT], combined_by[DL_GENERATION_TEXT], reason[256];
    dl_buf text; /* of the entry, as stored */
} view;

static void view_deinit(view *v)
{
    dl_entry_deinit(&v->entry);
    dl_buf_deinit(&v->text);
    free(v->generations);
    free(v->members);
    free(v->rejected);
    free(v->rejected_for);
    free(v->roster);
    free(v->weights);
}

/* Each array has room for the largest entry, so a walk allocates nothing. */
static diloco_status view_init(view *v, const dl_reader *r)
{
    memset(v, 0, sizeof *v);
    dl_buf_init(&v->text, DL_ENTRY_TEXT_MAX);
    v->generations = calloc(DL_MAX_MEMBERS, sizeof *v->generations);
    v->members = calloc(DL_MAX_MEMBERS, sizeof *v->members);
    v->roster = calloc(DL_MAX_MEMBERS, sizeof *v->roster);
    v->rejected = calloc(DL_MAX_MEMBERS, sizeof *v->rejected);
    v->rejected_for = calloc(DL_MAX_MEMBERS, sizeof *v->rejected_for);
    v->weights = calloc(DL_MAX_MEMBERS, sizeof *v->weights);
    diloco_status status = dl_reader_entry_init(&v->entry, r);
    if (!status && (!v->generations || !v->members || !v->roster || !v->weights || !v->rejected ||
                    !v->rejected_for))
        status = dl_fail(DILOCO_ENOMEM, "not enough memory to read the log");
    if (status) view_deinit(v);
    return status;
}

/* Make the public form of the entry that was read. It points into the view and is valid until
 * the next entry is read. */
static diloco_log_entry show(view *v)
{
    const dl_entry *e = &v->entry;
    uint64_t bytes = 0, steps = 0, samples = 0;
    for (size_t i = 0; i < e->n_members; i++) {
        dl_generation_text(v->generations[i], &e->members[i].generation);
        v->members[i] = v->generations[i];
        v->weights[i] = e->members[i].weight;
        bytes += e->members[i].bytes;
        steps += e->members[i].stats.steps;
        samples += e->members[i].stats.samples;
    }
    for (size_t i = 0; i < e->n_rejected; i++) { /* with the members at most DL_MAX_MEMBERS */
        char *generation = v->generations[e->n_members + i];
        dl_generation_text(generation, &e->rejected[i].generation);
        v->rejected[i] = generation;
        v->rejected_for[i] = e->rejected[i].reason;
    }
    for (size_t i = 0; i < e->roster.n; i++)
        v->roster[i] = e->roster.names[i];
    dl_hash_to_hex(v->base, e->base);
    dl_hash_to_hex(v->result, e->result);
    dl_hash_to_hex(v->prev, e->prev);
    dl_generation_text(v->committer, &e->committer);
    /* "" where each reader combined the contributions itself (allgather). */
    v->combined_by[0] = 0;
    if (e->combined.there) dl_generation_text(v->combined_by, &e->combined.generation);
    return (diloco_log_entry){.entry = e->entry,
                              .commit = e->commit,
                              .fragment = e->fragment,
                              .position = e->position,
                              .committer = v->committer,
                              .reason = e->abort.reason,
                              .n_members = e->n_members,
                              .members = v->members,
                              .weights = v->weights,
                              .roster = v->roster,
                              .n_roster = e->roster.n,
                              .loss = e->loss,
                              .bytes = bytes,
                              .combined_by = v->combined_by,
                              .combined_bytes = e->combined.there ? e->combined.bytes : 0,
                              .steps = steps,
                              .samples = samples,
                              .simulated_s = e->simulated_s,
                              .base = v->base,
                              .result = v->result,
                              .prev = v->prev,
                              .n_rejected = e->n_rejected,
                              .rejected = v->rejected,
                              .rejected_for = v->rejected_for};
}

/* A void entry: the run continues after it. The error text says why it is void. */
static diloco_log_entry show_void(view *v, uint64_t e)
{
    snprintf(v->reason, sizeof v->reason, "void: %s", diloco_error_text());
    return (diloco_log_entry){.entry = e,
                              .committer = "",
                              .reason = v->reason,
                              .members = v->members,
                              .weights = v->weights,
                              .roster = v->roster,
                              .combined_by = "",
                              .base = "",
                              .result = "",
                              .prev = ""};
}

/* Reads the entry, and sets r->text. Returns DILOCO_EPROTO if it is void. A commit's prev is left
 * to verify: if the run continued from the commit, the entry before it was changed since. */
static diloco_status read_view(view *v, dl_reader *r, uint64_t e, const dl_hash *before)
{
    dl_buf_clear(&v->text);
    diloco_status status = dl_entry_get(&v->text, r->store, e, dl_reader_limit());
    if (!status) status = dl_reader_entry(&v->entry, &v->text, r, e);
    if (status && status != DILOCO_EPROTO) return status;
    r->text = status ? dl_entry_unreadable_digest() : dl_hash_bytes(v->text.data, v->text.len);
    if (status) return dl_fail_context(status, "it cannot be read");
    if (v->entry.scalars.wrong)
        return dl_fail(DILOCO_EPROTO, "its scalars are not those of the run's outer optimizer");
    if (before && !v->entry.commit && !dl_hash_equal(v->entry.prev, *before))
        return dl_fail(DILOCO_EPROTO, "its prev is not the digest of the entry before it");
    return status;
}

/* The walk ends at the first missing entry, since the log has no gaps (P4). Damaged texts are
 * shown as void; other errors of the store end the walk. */
diloco_status dl_reader_walk(dl_reader *r, uint64_t from, dl_reader_entry_fn fn, void *user)
{
    view v;
    uint64_t total;
    DL_TRY(dl_reader_total(&total, r));
    DL_TRY(view_init(&v, r));
    diloco_status status = DILOCO_OK;
    for (uint64_t e = from; e < total && !status; e++) {
        const dl_hash before = e ? r->text : r->digest;
        status = read_view(&v, r, e, e && e == from ? NULL : &before);
        /* DILOCO_ENOENT: the log has no gaps, so this is its end */
        if (status && status != DILOCO_EPROTO) break;
        const diloco_log_entry shown = status ? show_void(&v, e) : show(&v);
        status = fn(user, status ? NULL : &v.entry, &shown);
    }
    view_deinit(&v);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* The caller's function and its argument. */
typedef struct teller {
    diloco_log_entry_fn fn;
    void *user;
} teller;

static diloco_status report_entry(void *user, const dl_entry *entry, const diloco_log_entry *shown)
{
    const teller *t = user;
    (void)entry;
    return t->fn(t->user, shown);
}

/* The public form of dl_reader_walk: entries as a program sees them. */
diloco_status diloco_log_walk(const char *url, uint64_t from, diloco_log_entry_fn fn, void *user)
{
    dl_reader r;
    teller t = {fn, user};
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = dl_reader_walk(&r, from, report_entry, &t);
    dl_reader_close(&r);
    return status;
}

/* ---- settings --------------------------------------------------------------------------- */

/* The settings of the run as run.json has them, with the URL by which it was reached as
 * run.store. */
diloco_status diloco_run_config(diloco_config *config, const char *url)
{
    dl_reader r;
    dl_run_name_coord(config);
    DL_TRY(dl_reader_open(&r, url));
    dl_runfile_take(config, &r.file);
    const diloco_status status = dl_config_set(config, "run.store", url, "command line");
    dl_reader_close(&r);
    return status;
}

diloco_status diloco_base_walk(const char *url, diloco_base_fn fn, void *user)
{
    dl_reader r;
    DL_TRY(dl_reader_open(&r, url));
    const dl_base *base = &r.file.base;
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < base->n && !status; i++)
        status = fn(user, base->tensors[i].name, base->tensors[i].kind);
    dl_reader_close(&r);
    return status;
}

/* ---- theta ------------------------------------------------------------------------------ */

/* Copy the state as one safetensors file. The spans point into the state, so the bytes are
 * copied before it is released. */
static diloco_status copy_image(dl_buf *out, const dl_state *state, const dl_config *config)
{
    const size_t cap = dl_state_image_spans(state);
    dl_span *spans = calloc(cap, sizeof *spans);
    dl_buf header;
    size_t n = 0, bytes = 0;
    if (!spans) return dl_fail(DILOCO_ENOMEM, "out of memory for the list of tensors");
    dl_buf_init(&header, DL_RUNFILE_MAX);
    diloco_status status = dl_state_image(&header, spans, cap, &n, state, config);
    for (size_t i = 0; i < n; i++)
        bytes += spans[i].len;
    if (!status) status = dl_buf_reserve(out, bytes);
    for (size_t i = 0; i < n && !status; i++)
        status = dl_buf_add(out, spans[i].data, spans[i].len);
    dl_buf_deinit(&header);
    free(spans);
    return status;
}

/* Put the parameters that are to be evaluated in the place of theta. They differ for some outer
 * optimizers (outer.h). */
static void put_evaluated(dl_state *state)
{
    for (int f = 0; f < state->manifest->n_fragments; f++) {
        const float *from = dl_state_evaluated(state, f);
        if (from != state->now[f].theta)
            memcpy(state->now[f].theta, from,
                   state->manifest->fragments[f].n_trained * sizeof *from);
    }
}

static diloco_status found_any(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    return DILOCO_ECLOSED; /* one is enough */
}

/* Replay to the state after `entries` entries and write it as a file. Settings and manifest are
 * those of run.json, not the caller's. */
static diloco_status theta_image(dl_reader *r, dl_buf *out, uint64_t entries)
{
    uint64_t total;
    DL_TRY(dl_reader_total(&total, r));
    if (entries > total) entries = total;
    DL_TRY(dl_reader_exec(r, dl_cores()));
    dl_state *state = dl_exec_state(r->exec);
    dl_replay_report replayed;
    DL_TRY(dl_snapshot_read_newest(state, r->store, &r->file, r->digest, entries, r->pool,
                                   dl_reader_limit()));
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, false, entries, NULL, NULL));
    put_evaluated(state);
    return copy_image(out, state, &r->file.config);
}

diloco_status diloco_run_position(uint64_t *position, const char *url)
{
    dl_reader r;
    dl_schedule s;
    uint64_t n = 0;
    *position = 0;
    DL_TRY(dl_reader_open(&r, url));
    diloco_status status = dl_schedule_of(&s, &r.file.config, r.file.manifest.n_fragments);
    if (!status) status = dl_reader_length(&n, &r);
    if (!status) *position = dl_schedule_end(&s, n);
    dl_reader_close(&r);
    return status;
}

/* Refuse the folder that holds the nodes of a run without a log: it has their first model, and
 * no model of its own. A node's own folder has snapshots. */
static diloco_status must_have_a_model(const dl_reader *r, const char *url)
{
    if (r->file.config.consensus != DL_CONSENSUS_NONE) return DILOCO_OK;
    const diloco_status status =
        dl_store_list(r->store, "snap/", NULL, found_any, NULL, dl_reader_limit());
    if (status == DILOCO_ECLOSED) return DILOCO_OK;
    DL_TRY(status);
    return dl_fail(
        DILOCO_EREFUSED,
        "the run in %s has no log and no model for all (swarm.consensus = \"none\"): name "
        "a node's folder, STORE/nodes/NAME/served/run, or its address",
        url);
}

diloco_status diloco_theta_read(void **bytes, size_t *len, uint64_t *entry, const char *url,
                                uint64_t entries)
{
    dl_reader r;
    dl_buf image;
    *bytes = NULL;
    *len = 0;
    DL_TRY(dl_reader_open(&r, url));
    dl_buf_init(&image, PTRDIFF_MAX);
    diloco_status status = must_have_a_model(&r, url);
    if (!status) status = theta_image(&r, &image, entries);
    if (status) {
        dl_buf_deinit(&image);
    } else {
        *bytes = image.data; /* handed over; freed by diloco_free */
        *len = image.len;
        *entry = dl_exec_state(r.exec)->control.entry;
    }
    dl_reader_close(&r);
    return status;
}

void diloco_free(void *bytes)
{
    free(bytes);
}

/* ---- the store -------------------------------------------------------------------------- */

diloco_status diloco_store_link(const char *link)
{
    return dl_store_set_link(link);
}

/* Refuse a folder that does not exist, since the probe would make it: the path may be misspelt, or
 * not mounted. */
static diloco_status check_folder(const char *url)
{
    dl_store *store;
    if (strstr(url, "://") && strncmp(url, "file://", 7) != 0) return DILOCO_OK;
    DL_TRY(dl_store_open(&store, url, false));
    dl_store_close(store);
    return DILOCO_OK;
}

/* The report is written also after an error, as far as the probe came. */
diloco_status diloco_store_check_sized(diloco_store_report *out, size_t size, const char *url)
{
    dl_probe probe = {0};
    diloco_status status = check_folder(url);
    if (!status)
        status = dl_store_probe(&probe, &(dl_store_address){.url = url}, DL_PROBE_MOST, NULL,
                                dl_time_after(dl_clock_now(), 120 * DL_SECOND));
    const diloco_store_report report = {.create_ms = probe.create_ms,
                                        .read_ms = probe.read_ms,
                                        .write_mb_per_s = probe.write_mb_per_s,
                                        .read_mb_per_s = probe.read_mb_per_s,
                                        .winners = probe.winners};
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
