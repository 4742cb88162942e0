/* fetch.c - reads and checks contributions, several at a time if there are fetchers. A replica does
 * not read its own contribution if the store confirmed its upload (P8).
 *
 * The caller's thread reads the contribution that a FETCH names. Meanwhile fetchers read those that
 * the machine will request next (its `ahead`), each with its own store handle and packer. They are
 * kept until requested. Every read has ended when the request is answered, so no read runs outside
 * a FETCH. Any other request drops what was kept. Each contribution is stored in the slot that the
 * machine assigned. So neither the number of readers nor their order changes a bit of the result.
 *
 * Memory: the slots, which the contributions need in any case. Each fetcher's handle holds buffers
 * (over HTTP, ranges that arrived early: 4 of 4 MiB), and a packer if payloads are compressed. */
#include "exchange/exec_parts.h"

#include "base/clock.h"
#include "log/fields.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result of one read. */
typedef struct fetched {
    bool there, whole, forged;
    uint64_t n_forgotten; /* of the fetchers when it was read */
    uint64_t entry;
    dl_generation generation;
    diloco_status status;
    const char *reason;
    /* why it was not read from its owner; NULL: it was, or the owner was not asked */
    const char *peer;
    dl_contribution facts;
    char text[512]; /* of the error */
} fetched;

typedef struct fetcher {
    dl_store *store;   /* its own, except the first fetcher's; NULL: not opened yet */
    dl_packer *packer; /* likewise */
    /* the current read */
    dl_slot *slot; /* NULL: none to read */
    dl_contribution_expect expect;
    dl_public key; /* of expect */
    dl_contribution_data *data;
    dl_peers *peers;
    double down_bps; /* of the link, during these reads */
    bool fresh;      /* read from the store alone */
    fetched *out;
} fetcher;

/* The first fetcher is the caller's own thread, with its handle and packer. `kept` has a row for
 * each slot; a row is valid until it is requested or until a request of another kind comes. Such a
 * request only counts `n_forgotten`, since a large run has thousands of rows. */
struct dl_fetchers {
    dl_pool *pool;
    size_t n, n_busy;
    fetcher *at;   /* [n] */
    fetched *kept; /* [n_slots] */
    uint64_t n_forgotten;
    dl_time until;
    double down_bps;
};

/* Smaller amounts give poor measurements. */
static const double TIMED_BYTES = 256 << 10;

/* ---- create and destroy ------------------------------------------------------------------ */

/* Only the table is made here; handles are opened at the first read. After an error
 * dl_fetchers_destroy releases what exists. */
diloco_status dl_fetchers_create(dl_exec *x)
{
    dl_fetchers *f = x->collect.fetchers = calloc(1, sizeof *f);
    if (!f) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    f->n = dl_size_max(1, dl_size_min((size_t)x->a.n_fetchers, x->a.max_members));
    f->at = calloc(f->n, sizeof *f->at);
    f->kept = calloc(x->collect.n_slots, sizeof *f->kept);
    if (!f->at || !f->kept) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    f->at[0].store = x->a.store;
    f->at[0].packer = x->packer;
    return f->n > 1 ? dl_pool_create(&f->pool, (int)f->n) : DILOCO_OK;
}

void dl_fetchers_destroy(dl_exec *x)
{
    dl_fetchers *f = x->collect.fetchers;
    if (!f) return;
    for (size_t i = 1; f->at && i < f->n; i++) {
        dl_packer_destroy(f->at[i].packer);
        dl_store_close(f->at[i].store);
    }
    dl_pool_destroy(f->pool);
    free(f->at);
    free(f->kept);
    free(f);
}

/* A store that does not open existed when the run began, so it is unreachable for now and the
 * request is retried. */
static diloco_status open_own(dl_store **out, const dl_store_address *address)
{
    const diloco_status status = dl_store_open_at(out, address, false);
    if (status != DILOCO_ENOENT) return status;
    char why[512];
    snprintf(why, sizeof why, "%s", diloco_error_text());
    return dl_fail(DILOCO_EUNREACHABLE, "%s", why);
}

/* Opens its handle and packer when they are first needed. */
static diloco_status make_ready(dl_exec *x, fetcher *f)
{
    if (!f->store) DL_TRY(open_own(&f->store, dl_store_address_of(x->a.store)));
    dl_store_count_into(f->store, dl_store_tally(x->a.store));
    if (x->packer && !f->packer) DL_TRY(dl_packer_create(&f->packer));
    return DILOCO_OK;
}

/* Call it from the thread that calls dl_exec_do, when no read is in flight: the handles' counters
 * are not atomic. */
dl_store_counters dl_exec_traffic(const dl_exec *x)
{
    dl_store_counters all = dl_store_counts(x->a.store);
    for (size_t i = 1; i < x->collect.fetchers->n; i++) {
        if (!x->collect.fetchers->at[i].store) continue;
        const dl_store_counters c = dl_store_counts(x->collect.fetchers->at[i].store);
        all.bytes_sent += c.bytes_sent;
        all.bytes_received += c.bytes_received;
        all.n_get += c.n_get;
        all.billed_reads += c.billed_reads;
        all.billed_writes += c.billed_writes;
    }
    if (!x->a.peers) return all;
    const dl_peers_counts lines = dl_peers_count(x->a.peers);
    all.bytes_sent += lines.sent;
    all.bytes_received += lines.received;
    return all;
}

/* Several reads at a time measure the link better than one that waits for each answer, so the
 * larger value counts. */
dl_store_speed dl_exec_speed(const dl_exec *x)
{
    dl_store_speed speed = dl_store_speed_now(x->a.store);
    if (x->collect.fetchers->down_bps > speed.down_bps)
        speed.down_bps = x->collect.fetchers->down_bps;
    return speed;
}

/* ---- one read ---------------------------------------------------------------------------- */

float dl_exec_element_bound(const dl_exec *x)
{
    const dl_config *config = &x->a.run->config;
    return config->check_element > 0 ? (float)config->check_element : DL_ELEMENT_BOUND;
}

static dl_train_bounds bounds_of(const dl_exec *x, const dl_request *request)
{
    if (!x->mode->bounds) return (dl_train_bounds){.due = 0};
    return x->mode->bounds(x, request->entry, request->fragment);
}

/* Where the overlap is one round, a round begins from the state before the entry in flight, or from
 * the newest state (P21). Returns all that a contribution to this request's entry must match.
 * Reader and committer derive it from the same state, so every replica accepts the same
 * contributions. */
static dl_contribution_expect expectation(const dl_exec *x, const dl_request *request)
{
    const dl_fragment_state *now = &x->state.now[request->fragment];
    const bool lags = x->schedule.overlap != DL_OVERLAP_STEPS, values = dl_exec_sends_values(x);
    const dl_slicing slices = dl_exec_slicing(x, request->fragment);
    return (dl_contribution_expect){.run = x->a.run->id,
                                    .entry = request->entry,
                                    .fragment = request->fragment,
                                    .generation = request->fetch.generation,
                                    .base = now->digest,
                                    .also_base = lags ? now->before : now->digest,
                                    .manifest = x->a.run->manifest.digest,
                                    .shape = x->a.run->manifest.fragments[request->fragment],
                                    .form = &x->forms[request->fragment],
                                    .codec = values ? DL_CODEC_WEIGHTS : NULL,
                                    .before = values ? now->theta : NULL,
                                    .packer = x->packer,
                                    .ledger = x->state.control.ledger,
                                    .refuses = dl_ledger_refuses,
                                    .claims = bounds_of(x, request),
                                    .bound = dl_exec_element_bound(x),
                                    .slices = slices.n,
                                    .bulk = slices.n ? dl_slices_bytes(&slices) : 0,
                                    .tensors = &x->a.run->manifest};
}

/* Returns the bytes that a contribution to any fragment may need. */
static size_t slot_bytes(const dl_exec *x)
{
    size_t most = 0;
    for (int f = 0; f < x->a.run->manifest.n_fragments; f++)
        most = dl_size_max(dl_size_max(most, DL_SLICES_MAX * sizeof(dl_hash)),
                           dl_contribution_body_max(&x->forms[f], x->a.run->manifest.fragments[f],
                                                    x->packer != NULL));
    return most;
}

diloco_status dl_exec_make_slot(dl_exec *x, size_t i)
{
    return x->collect.slots[i]
               ? DILOCO_OK
               : dl_slot_create(&x->collect.slots[i], slot_bytes(x), x->a.spool_dir);
}

/* Reads a past entry into the scratch entry. An unreadable one (P7.9) sets *readable to false. */
static diloco_status read_past(dl_exec *x, bool *readable, uint64_t entry, dl_time until)
{
    const dl_entry_place place = dl_runfile_place(x->a.run, entry);
    dl_buf_clear(&x->text);
    DL_TRY(dl_entry_get(&x->text, x->a.store, entry, until));
    const diloco_status status = dl_entry_read_at(&x->entry, x->text.data, x->text.len, &place);
    *readable = !status;
    return status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* async: the state before entry b is the base that log/<b> names. An unreadable entry changes no
 * state, so the next readable one names it (P20.2). If none does, it is the newest state. That uses
 * no bytes that a writer without a key can change, so all replicas and audits agree. */
static diloco_status read_base(dl_exec *x, const dl_request *request,
                               dl_contribution_expect *expect, dl_time until)
{
    bool readable = false;
    if (!x->mode->names_bases) return DILOCO_OK;
    for (uint64_t e = request->entry; e < x->state.control.entry && !readable; e++)
        DL_TRY(read_past(x, &readable, e, until));
    if (readable) expect->base = expect->also_base = x->entry.base;
    return DILOCO_OK;
}

/* Reads the slices whose digests are in the table. A replica that reads a sliced contribution whole
 * puts the slices together in the slot. The table is copied out first, because the slices overwrite
 * it. Their elements and booleans are checked as those of a whole contribution are. */
static diloco_status read_slices(fetcher *f, dl_time until)
{
    dl_hash table[DL_SLICES_MAX];
    size_t index;
    fetched *out = f->out;
    const dl_slicing s = {f->expect.form, f->expect.shape, (size_t)f->expect.slices};
    unsigned char *base = dl_slot_bytes(f->slot);
    memcpy(table, base, s.n * sizeof *table);
    DL_TRY(dl_slices_read(&s, base, table, out->entry, &out->generation, &out->reason, f->store,
                          until));
    *f->data = dl_slices_data(&s, base);
    diloco_status status = dl_codec_check(s.form, f->data->payload, f->data->len, f->expect.bound,
                                          &index, &f->data->norm2);
    if (status == DILOCO_ENUMERIC)
        return dl_contribution_bad_element(&out->reason, &f->expect, f->data, index);
    for (size_t i = 0; i < s.shape.n_booleans && !status; i++)
        if (f->data->booleans[i] > 1)
            status = dl_fail(DILOCO_EPROTO, "boolean %zu is neither 0 nor 1", i);
    if (status) out->reason = "codec";
    return status;
}

/* Reads the contribution from its owner if run.peers is set, else from the store. A sliced one
 * yields its table. */
static diloco_status read_whole(fetcher *f, dl_time until)
{
    dl_key key;
    fetched *out = f->out;
    const dl_peers_want want = {.entry = out->entry,
                                .generation = out->generation,
                                .slot = f->slot,
                                .store = f->store,
                                .expect = &f->expect,
                                .down_bps = f->down_bps,
                                .store_only = f->fresh,
                                .until = until};
    if (f->peers)
        return dl_peers_read(f->peers, &out->facts, f->data, &out->reason, &out->peer, &want);
    dl_key_contribution(key, out->entry, &out->generation);
    return dl_contribution_fetch(&out->facts, f->data, &out->reason, f->slot, f->store, key,
                                 &f->expect, until);
}

/* Checks whose signature a rejected contribution has, in a run with keys. If the check fails,
 * nothing follows from it. The result separates a replica's own invalid object from an attacker's
 * under its name (P10.4). */
static void see_whose_it_is(fetcher *f, dl_time until)
{
    bool theirs;
    fetched *out = f->out;
    if (!f->expect.key) return;
    out->forged = !dl_contribution_is_by(&theirs, f->store, f->expect.run, out->entry,
                                         &out->generation, f->expect.key, until) &&
                  !theirs;
}

/* Runs on a fetcher's thread and writes only to its own row and slot. The error's text is copied,
 * since it belongs to this thread. */
static void read_one(fetcher *f, dl_time until)
{
    fetched *out = f->out;
    out->status = read_whole(f, until);
    const bool in_slices = !out->status && out->facts.slices;
    if (in_slices) f->data->norm2 = out->facts.norm * out->facts.norm;
    if (in_slices && out->whole) out->status = read_slices(f, until);
    if (out->status) snprintf(out->text, sizeof out->text, "%s", diloco_error_text());
    if (out->status == DILOCO_EPROTO) see_whose_it_is(f, until);
    /* A store that does not answer is asked again. */
    out->there = out->status == DILOCO_OK || out->status == DILOCO_EPROTO ||
                 out->status == DILOCO_ENUMERIC || out->status == DILOCO_ENOENT;
}

/* Finds the key that has to have signed it, in a run with keys. A contribution of a replica without
 * a key is rejected unread. */
static diloco_status expect_key(dl_exec *x, fetcher *f, dl_time until)
{
    const dl_public *key;
    fetched *out = f->out;
    const diloco_status status =
        dl_exec_key_of(&key, &out->reason, x, out->generation.replica, until);
    if (status && status != DILOCO_EPROTO) return status;
    out->status = status;
    out->there = status == DILOCO_EPROTO;
    if (status) snprintf(out->text, sizeof out->text, "%s", diloco_error_text());
    if (status) f->slot = NULL;
    if (key) f->key = *key;
    if (key && x->a.peers) dl_peers_know(x->a.peers, out->generation.replica, key);
    f->expect.key = key ? &f->key : NULL;
    return DILOCO_OK;
}

/* Sets a fetcher up for one read. It runs on the caller's thread, because keys, slots and the state
 * belong to that. If the contribution needs no read, f->slot is NULL afterwards: the key is
 * missing, or the bytes are in memory. */
static diloco_status prepare(dl_exec *x, fetcher *f, const dl_request *request, dl_time until)
{
    DL_TRY(dl_exec_make_slot(x, request->fetch.slot));
    f->slot = x->collect.slots[request->fetch.slot];
    f->data = &x->collect.held[request->fetch.slot];
    f->expect = expectation(x, request);
    f->expect.packer = f->packer;
    f->peers = x->a.peers;
    f->down_bps = dl_exec_speed(x).down_bps;
    f->fresh = request->fetch.fresh || request->entry < x->collect.disputed;
    f->out = &x->collect.fetchers->kept[request->fetch.slot];
    *f->out = (fetched){.n_forgotten = x->collect.fetchers->n_forgotten,
                        .entry = request->entry,
                        .generation = request->fetch.generation,
                        .whole = request->fetch.whole,
                        .reason = "base"};
    DL_TRY(read_base(x, request, &f->expect, until));
    DL_TRY(expect_key(x, f, until));
    if (f->slot && !f->fresh &&
        dl_exec_recall(x, &f->out->facts, f->data, f->slot, request, &f->expect)) {
        f->out->there = true;
        f->slot = NULL;
    }
    return DILOCO_OK;
}

/* ---- several at a time ------------------------------------------------------------------- */

/* Returns whether this contribution was read ahead, in the same form. */
static bool is_kept(const dl_exec *x, const dl_request *request)
{
    const fetched *k = &x->collect.fetchers->kept[request->fetch.slot];
    return k->there && k->n_forgotten == x->collect.fetchers->n_forgotten &&
           k->whole == request->fetch.whole && k->entry == request->entry &&
           dl_generation_equal(&k->generation, &request->fetch.generation);
}

void dl_exec_forget_fetched(dl_exec *x)
{
    x->collect.fetchers->n_forgotten++;
}

/* Gives each of n pieces of work to one of the fetchers. */
typedef struct errand {
    dl_fetchers *f;
    dl_errand_fn fn;
    void *context;
    size_t n, n_handles;
    pthread_mutex_t lock; /* guards the first error: */
    size_t failed;
    diloco_status status;
    char text[512];
} errand;

/* Piece i belongs to thread i mod n_handles. Each thread stops at its first error. Of all errors
 * the one with the smallest i is kept, so it depends less on timing. */
static void run_errand(void *context, int part, int n_parts)
{
    errand *e = context;
    (void)n_parts;
    for (size_t i = (size_t)part; (size_t)part < e->n_handles && i < e->n; i += e->n_handles) {
        const diloco_status status = e->fn(e->context, e->f->at[part].store, i);
        if (!status) continue;
        pthread_mutex_lock(&e->lock);
        if (i < e->failed) {
            e->failed = i;
            e->status = status;
            snprintf(e->text, sizeof e->text, "%s", diloco_error_text());
        }
        pthread_mutex_unlock(&e->lock);
        return;
    }
}

diloco_status dl_fetchers_run(dl_exec *x, size_t n, dl_errand_fn fn, void *context)
{
    dl_fetchers *f = x->collect.fetchers;
    errand e = {.f = f, .fn = fn, .context = context, .n = n, .failed = SIZE_MAX};
    e.n_handles = dl_size_min(n, f->n);
    for (size_t i = 0; i < e.n_handles; i++)
        DL_TRY(make_ready(x, &f->at[i]));
    pthread_mutex_init(&e.lock, NULL);
    dl_pool_run(f->pool, run_errand, &e);
    pthread_mutex_destroy(&e.lock);
    return e.status ? dl_fail(e.status, "%s", e.text) : DILOCO_OK;
}

static void read_part(void *context, int part, int n_parts)
{
    dl_fetchers *f = context;
    (void)n_parts;
    if ((size_t)part < f->n_busy) read_one(&f->at[part], f->until);
}

/* Measures the speed of the link while all fetchers read. A single read is already measured by its
 * own handle. The value is smoothed with the one before. */
static void measure(dl_fetchers *f, dl_time began)
{
    double bytes = 0;
    for (size_t i = 0; i < f->n_busy; i++)
        if (!f->at[i].out->status) bytes += (double)f->at[i].out->facts.payload_len;
    if (f->n_busy < 2 || bytes < TIMED_BYTES) return;
    const double bps = 8 * bytes / fmax(1e-6, dl_seconds(dl_clock_now() - began));
    f->down_bps = f->down_bps > 0 ? (f->down_bps + bps) / 2 : bps;
}

/* Adds one contribution to read, unless it is known without reading. */
static diloco_status add(dl_exec *x, const dl_request *request, dl_time until)
{
    dl_fetchers *f = x->collect.fetchers;
    DL_TRY(prepare(x, &f->at[f->n_busy], request, until));
    f->n_busy += f->at[f->n_busy].slot != NULL;
    return DILOCO_OK;
}

/* Reads the requested contribution and as many of the next ones as there are fetchers. Those that
 * are kept already are not read again. The slots of members are about to change, so a slice that
 * was held there is not valid any more. */
static diloco_status read_all(dl_exec *x, const dl_request *request, dl_time until)
{
    dl_fetchers *f = x->collect.fetchers;
    const dl_time began = dl_clock_now();
    f->until = until;
    x->combine.sliced.there = false;
    for (size_t i = 0; i < f->n; i++) /* at the first read, so that later ones allocate nothing */
        DL_TRY(make_ready(x, &f->at[i]));
    f->n_busy = 0;
    DL_TRY(add(x, request, until));
    for (size_t i = 0; i < request->fetch.n_ahead && f->n_busy < f->n; i++) {
        dl_request next = *request;
        next.entry = request->fetch.ahead[i].entry;
        next.fetch.generation = request->fetch.ahead[i].generation;
        next.fetch.slot = request->fetch.ahead[i].slot;
        if (!is_kept(x, &next)) DL_TRY(add(x, &next, until));
    }
    if (f->n_busy) dl_pool_run(f->pool, read_part, f);
    measure(f, began);
    return DILOCO_OK;
}

/* `fresh` ignores what is kept, since the caller doubts it (P7.4). The result is given once: a
 * second request reads again. In a run without keys an object that is junk at a second reading
 * gives up its slot (P9.15). */
diloco_status dl_exec_fetch(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    fetched *kept = &x->collect.fetchers->kept[request->fetch.slot];
    reply->fetch.reason = "base";
    if (request->fetch.fresh || !is_kept(x, request)) DL_TRY(read_all(x, request, until));
    kept->there = false;
    reply->fetch.reason = kept->reason;
    reply->fetch.peer = kept->peer;
    reply->fetch.forged = kept->forged;
    const bool is_junk = !x->ring && request->fetch.fresh && x->mode->forgets_junk &&
                         kept->status && dl_contribution_is_junk(kept->reason);
    if (kept->forged || is_junk) dl_exec_note_forged(x, request->entry, &request->fetch.generation);
    if (kept->status) return dl_fail(kept->status, "%s", kept->text);
    reply->fetch.facts = &kept->facts;
    reply->fetch.norm2 = x->collect.held[request->fetch.slot].norm2;
    return DILOCO_OK;
}
