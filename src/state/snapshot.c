/* snapshot.c - snapshots and theta0 in the store (declared in state.h). snapshot_write.c writes
 * them.
 *
 *     snap/<e>/<replica>.<g>/state.safetensors   the image
 *     snap/<e>/<replica>.<g>/manifest.json       "diloco-snapshot", written last: without it there
 *                                                is no snapshot
 *
 * If the run's objects are signed, a committer signs the manifest, which has the hash of the image
 * (docs/formats.md, Signatures).
 *
 * A reader lists the manifests, sorts them, and takes the first whole snapshot. Its manifest is
 * this run's, its image has the length and digest in the manifest, and every fragment of the loaded
 * state has the digest that the log reached. Other snapshots are skipped with a warning, because an
 * older one, or theta0, gives the same run. An unreachable store is an error, not a reason to skip.
 */
#include "base/log.h"
#include "log/fields.h"
#include "protocol/logical_clients.h"
#include "state/snapshot_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = DL_ENTRY_TEXT_MAX };

/* ---- reading a manifest */

typedef dl_snapshot_name found;
typedef dl_snapshot_listing listing;

/* Checks that a committer signed this snapshot. Otherwise an untrusted peer wrote it, and it
 * returns EREFUSED. Both the key and the statement have to fit: the run, the entry and the writer's
 * generation are signed. */
static diloco_status must_be_signed(const dl_buf *text, const dl_runfile *run, const found *which)
{
    dl_public key;
    const dl_statement what = dl_snapshot_statement(run->id, which->entry, &which->generation);
    if (!dl_snapshot_is_signed(run)) return DILOCO_OK;
    const diloco_status status = dl_sealed_signer(&key, text->data, text->len, &what);
    if (status == DILOCO_EPROTO) return dl_fail(DILOCO_EREFUSED, "%s", diloco_error_text());
    DL_TRY(status);
    if (dl_identity_may_commit(&run->identity, &key, which->generation.replica)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED, "it is signed by a key that may not write snapshots");
}

/* A manifest of another format version is no snapshot for this program. Anyone may have written it,
 * so it stops no reader. */
static diloco_status open_sealed(dl_json_value *root, const dl_buf *text)
{
    const diloco_status status = dl_sealed_open(root, text->data, text->len, DL_SNAPSHOT_FORMAT);
    return status == DILOCO_EDIFFERS ? dl_fail(DILOCO_EPROTO, "%s", diloco_error_text()) : status;
}

/* Opens the manifest as JSON in *text, and checks that it is this snapshot's, of this run and
 * model. Every check precedes the read of the image, which may be gigabytes. Returns DILOCO_ENOENT
 * if there is no manifest, and so no snapshot. */
static diloco_status open_manifest(dl_json_value *root, dl_buf *text, dl_store *store,
                                   const found *which, const dl_runfile *run, dl_time until)
{
    const dl_manifest *manifest = &run->manifest;
    dl_key key;
    char theirs[DL_HASH_HEX + 1];
    uint64_t entry;
    dl_generation generation;
    dl_hash model;
    dl_key_snapshot(key, which->entry, &which->generation, "manifest.json");
    DL_TRY(dl_store_get(store, text, key, until));
    DL_TRY(open_sealed(root, text));
    DL_TRY(must_be_signed(text, run, which));
    DL_TRY(dl_json_read_run(theirs, *root));
    DL_TRY(dl_json_read_u64(&entry, *root, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_generation(&generation, *root, "life"));
    DL_TRY(dl_json_read_hash(&model, *root, "manifest_digest"));
    if (strcmp(theirs, run->id) != 0)
        return dl_fail(DILOCO_EPROTO, "it belongs to run %s, this is run %s", theirs, run->id);
    if (entry != which->entry || !dl_generation_equal(&generation, &which->generation))
        return dl_fail(DILOCO_EPROTO, "it is another snapshot's manifest");
    if (!dl_hash_equal(model, manifest->digest))
        return dl_fail(DILOCO_EPROTO, "it is of another model");
    if (dl_json_count(dl_json_get(*root, "fragments")) != (size_t)manifest->n_fragments)
        return dl_fail(DILOCO_EPROTO, "it does not have %d fragments", manifest->n_fragments);
    return DILOCO_OK;
}

/* Checks that the image has the length and digest that the manifest names. The signed hash is
 * compared too where the run has keys, since the fast hash does not resist an attacker. */
static diloco_status check_image(dl_json_value root, const dl_image_facts *image,
                                 const dl_runfile *run)
{
    uint64_t stored_bytes;
    dl_hash stored;
    DL_TRY(dl_json_read_u64(&stored_bytes, root, "bytes", SIZE_MAX));
    DL_TRY(dl_json_read_hash(&stored, root, "digest"));
    bool same = image->bytes == stored_bytes && dl_hash_equal(image->digest, stored);
    if (dl_snapshot_is_signed(run)) {
        char strong[DL_STRONG_HEX + 1], ours[DL_STRONG_HEX + 1];
        DL_TRY(dl_json_read_str(strong, sizeof strong, root, "strong"));
        dl_hex(ours, image->strong.bytes, sizeof image->strong.bytes);
        same = same && !strcmp(strong, ours);
    }
    if (same) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO,
                   "state.safetensors is damaged: it is not what the manifest names");
}

/* The number of later entries is L - 1, which follows from the schedule. The arrays have exactly
 * that room. */
static diloco_status read_later(dl_control *c, dl_json_value root)
{
    dl_json_value later = dl_json_get(root, "later");
    if (dl_json_count(later) != c->n_later)
        return dl_fail(DILOCO_EPROTO, "\"later\" does not list %zu entries", c->n_later);
    for (dl_json_iter it = dl_json_each(later); dl_json_next(&it);) {
        dl_terms *t = &c->later[it.index];
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "later entry %zu is not an object", it.index);
        DL_TRY(dl_json_read_finite_bits(&t->lr, it.value, "lr"));
        DL_TRY(dl_json_read_finite_bits(&t->mu, it.value, "mu"));
        DL_TRY(dl_roster_read(&t->roster, it.value));
    }
    return DILOCO_OK;
}

/* P26: a single committer is named with its generation, or by its name alone if any generation may
 * commit. */
static diloco_status read_committer(dl_generation *out, dl_json_value root)
{
    char text[DL_GENERATION_TEXT];
    *out = (dl_generation){.number = DL_GENERATION_ANY};
    if (dl_json_get(root, "committer").type == DL_JSON_MISSING) return DILOCO_OK;
    DL_TRY(dl_json_read_str(text, sizeof text, root, "committer"));
    if (strchr(text, '.')) return dl_json_read_generation(out, root, "committer");
    if (!dl_replica_name_ok(text))
        return dl_fail(DILOCO_EPROTO, "\"committer\" is no name of a replica");
    memcpy(out->replica, text, strlen(text) + 1);
    return DILOCO_OK;
}

/* Reads what write_control writes (snapshot_write.c). The ledger and the bans exist only in runs
 * that need them. */
static diloco_status read_control(dl_control *c, dl_json_value root)
{
    DL_TRY(dl_json_read_u64(&c->entry, root, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_hash(&c->prev, root, "prev"));
    DL_TRY(dl_json_read_u64(&c->n_aborts, root, "aborts", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&c->snapshot, root, "snapshot", UINT64_MAX));
    DL_TRY(dl_json_read_finite_bits(&c->lr, root, "lr"));
    DL_TRY(dl_json_read_finite_bits(&c->mu, root, "mu"));
    DL_TRY(dl_json_read_bool(&c->last, root, "last"));
    if (c->snapshot < c->entry) c->snapshot = c->entry; /* this snapshot */
    DL_TRY(read_later(c, root));
    if (c->ledger) DL_TRY(dl_ledger_read(c->ledger, root, c->entry));
    if (c->bans) DL_TRY(dl_bans_read(c->bans, root));
    DL_TRY(read_committer(&c->committer, root));
    return dl_roster_read(&c->roster, root);
}

static diloco_status read_fragments(dl_state *state, dl_json_value root)
{
    for (dl_json_iter it = dl_json_each(dl_json_get(root, "fragments")); dl_json_next(&it);) {
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "fragment %zu is not an object", it.index);
        dl_fragment_state *f = &state->now[it.index];
        DL_TRY(dl_json_read_u64(&f->n_commits, it.value, "commits", UINT64_MAX));
        DL_TRY(dl_json_read_hash(&f->before, it.value, "before"));
    }
    return DILOCO_OK;
}

/* Compares the digests that were computed from the loaded tensors with the manifest's. */
static diloco_status check_digests(const dl_state *state, dl_json_value root)
{
    for (dl_json_iter it = dl_json_each(dl_json_get(root, "fragments")); dl_json_next(&it);) {
        dl_hash stored;
        DL_TRY(dl_json_read_hash(&stored, it.value, "digest"));
        if (!dl_hash_equal(stored, state->now[it.index].digest))
            return dl_fail(DILOCO_EPROTO, "fragment %zu has not the digest that the manifest names",
                           it.index);
    }
    return DILOCO_OK;
}

/* A snapshot follows the log if prev is the digest of the entry before it, and that entry gave this
 * state. A snapshot after a void entry is skipped: it may have the void entry's state (P7). The
 * entry before it names the digests of the fragment that it changed, of the ledger and of the bans.
 * Each is compared, because a snapshot may be of a state that the log never reached. */
static diloco_status check_log(const dl_state *state, dl_store *store, const dl_runfile *run,
                               dl_time until)
{
    const dl_control *c = &state->control;
    if (c->entry == 0) return dl_fail(DILOCO_EPROTO, "it follows no entry");
    dl_key key;
    dl_buf text;
    dl_entry before;
    const dl_entry_place place = dl_runfile_place(run, c->entry - 1);
    dl_key_entry(key, place.number);
    DL_TRY(dl_entry_init(&before, dl_clients_max_members(&run->config)));
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = dl_store_get(store, &text, key, until);
    if (!status && !dl_hash_equal(dl_hash_bytes(text.data, text.len), c->prev))
        status = dl_fail(DILOCO_EPROTO, "prev is not the digest of %s", key);
    if (!status) status = dl_entry_read_at(&before, text.data, text.len, &place);
    if (!status && before.scalars.wrong)
        status = dl_fail(DILOCO_EPROTO, "%s has scalars of another outer optimizer", key);
    if (!status && before.fragment >= (uint32_t)state->manifest->n_fragments)
        status = dl_fail(DILOCO_EPROTO, "%s is of fragment %u", key, (unsigned)before.fragment);
    if (!status && !dl_hash_equal(before.result, state->now[before.fragment].digest))
        status = dl_fail(DILOCO_EPROTO, "it is not the result of %s", key);
    if (!status && c->ledger &&
        !dl_hash_equal(dl_ledger_assignment(c->ledger).ledger, before.assignment.ledger))
        status = dl_fail(DILOCO_EPROTO, "its ledger of the data is not that of %s", key);
    if (!status && c->bans && !dl_hash_equal(dl_bans_digest(c->bans), before.bans.digest))
        status = dl_fail(DILOCO_EPROTO, "its bans are not those after %s", key);
    dl_buf_deinit(&text);
    dl_entry_deinit(&before);
    return status;
}

/* ---- reading a state */

/* Data goes directly into the state's tensors. After an error they are unspecified, and the caller
 * loads another state. */
static diloco_status read_image(dl_state *state, dl_image_facts *out, dl_store *store,
                                const dl_runfile *run, const char *key, dl_time until)
{
    dl_image_reader r;
    *out = (dl_image_facts){.bytes = 0};
    dl_image_reader_init(&r, state);
    diloco_status status = dl_snapshot_is_signed(run) ? dl_strong_begin(&r.strong) : DILOCO_OK;
    if (!status) status = dl_store_read(store, key, dl_image_sink(&r), until);
    if (!status) status = dl_image_reader_end(&r, &out->digest);
    out->bytes = r.total;
    if (!status && r.strong) {
        out->strong = dl_strong_end(r.strong);
        r.strong = NULL;
    }
    dl_image_reader_deinit(&r);
    return status;
}

/* Small things come first: control and counters, then the image, then the digests, then the log. */
static diloco_status load(dl_state *state, dl_json_value root, dl_store *store, const found *which,
                          const dl_runfile *run, dl_pool *pool, dl_time until)
{
    dl_key key;
    dl_image_facts image;
    DL_TRY(read_control(&state->control, root));
    DL_TRY(read_fragments(state, root));
    dl_key_snapshot(key, which->entry, &which->generation, "state.safetensors");
    DL_TRY(read_image(state, &image, store, run, key, until));
    DL_TRY(check_image(root, &image, run));
    dl_state_rehash(state, pool);
    DL_TRY(check_digests(state, root));
    /* there is no log to compare with */
    if (run->config.consensus == DL_CONSENSUS_NONE) return DILOCO_OK;
    return check_log(state, store, run, until);
}

static diloco_status read_snapshot(dl_state *state, dl_store *store, const found *which,
                                   const dl_runfile *run, dl_pool *pool, dl_time until)
{
    dl_buf text;
    dl_json_value root;
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = open_manifest(&root, &text, store, which, run, until);
    if (!status) status = load(state, root, store, which, run, pool, until);
    dl_buf_deinit(&text);
    return status;
}

/* The first L entries wait for no replica by name. Their lr is the option's until an entry sets
 * another (P9). */
static void begin_control(dl_control *c, const dl_runfile *run, dl_hash run_digest)
{
    c->entry = c->n_aborts = c->snapshot = 0;
    c->prev = run_digest;
    c->last = false;
    c->committer = (dl_generation){.number = DL_GENERATION_ANY};
    snprintf(c->committer.replica, sizeof c->committer.replica, "%s", run->config.single_committer);
    c->roster.n = 0;
    c->lr = (float)run->config.outer_lr;
    c->mu = (float)run->config.outer_mu;
    for (size_t i = 0; i < c->n_later; i++) {
        c->later[i].roster.n = 0;
        c->later[i].lr = c->lr;
        c->later[i].mu = c->mu;
    }
    if (c->ledger) dl_ledger_begin(c->ledger);
    if (c->bans) dl_bans_begin(c->bans);
}

/* State 0. Its name is the digest of its bytes, and run.json names the digest of its values, so
 * both are checked. */
static diloco_status read_theta0(dl_state *state, dl_store *store, const dl_runfile *run,
                                 dl_hash run_digest, dl_pool *pool, dl_time until)
{
    dl_key key;
    dl_image_facts image;
    begin_control(&state->control, run, run_digest);
    for (int f = 0; f < state->manifest->n_fragments; f++)
        state->now[f].n_commits = 0;
    dl_key_theta0(key, run->theta0_file);
    diloco_status status = read_image(state, &image, store, run, key, until);
    if (status) return dl_fail_context(status, "%s", key);
    if (!dl_hash_equal(image.digest, run->theta0_file) ||
        (dl_snapshot_is_signed(run) &&
         memcmp(image.strong.bytes, run->identity.theta0.bytes, sizeof image.strong.bytes) != 0))
        return dl_fail(DILOCO_EPROTO, "%s is damaged: its digest is not its name", key);
    dl_state_rehash(state, pool);
    for (int f = 0; f < state->manifest->n_fragments; f++)
        state->now[f].before = state->now[f].digest;
    if (!dl_hash_equal(dl_state_digest_all(state), run->theta0))
        return dl_fail(DILOCO_EPROTO, "%s is not the first state that run.json names", key);
    return DILOCO_OK;
}

/* ---- choosing one */

/* Tries all listed snapshots in turn. Returns DILOCO_ENOENT if no snapshot is whole. A failure of
 * the store ends the search at once: skipping a snapshot for it could choose an older one
 * needlessly. */
static diloco_status read_any(dl_state *state, listing *list, dl_pool *pool)
{
    for (;;) {
        found which;
        bool there;
        DL_TRY(dl_snapshot_next(&there, &which, list));
        if (!there) return dl_fail(DILOCO_ENOENT, "no snapshot is whole");
        const diloco_status status =
            read_snapshot(state, list->store, &which, list->run, pool, list->until);
        if (!dl_snapshot_is_damage(status)) return status;
        dl_log(DILOCO_LOG_WARN, "snapshot of entry %llu by %s.%04u skipped: %s",
               (unsigned long long)which.entry, which.generation.replica,
               (unsigned)which.generation.number, diloco_error_text());
    }
}

/* theta0 is used only if the caller asks for any entry from 0 on. */
static diloco_status read_one(dl_state *state, listing *list, dl_hash run_digest, dl_pool *pool)
{
    diloco_status status = dl_snapshot_list(list);
    if (!status) {
        status = read_any(state, list, pool);
        if (status == DILOCO_ENOENT && list->from == 0)
            status = read_theta0(state, list->store, list->run, run_digest, pool, list->until);
    }
    dl_buf_deinit(&list->found);
    return status;
}

diloco_status dl_snapshot_read_newest(dl_state *state, dl_store *store, const dl_runfile *run,
                                      dl_hash run_digest, uint64_t before, dl_pool *pool,
                                      dl_time until)
{
    listing list = {.store = store, .run = run, .until = until, .before = before, .newest = true};
    return read_one(state, &list, run_digest, pool);
}

diloco_status dl_snapshot_read_oldest(dl_state *state, dl_store *store, const dl_runfile *run,
                                      dl_hash run_digest, uint64_t from, dl_pool *pool,
                                      dl_time until)
{
    listing list = {.store = store, .run = run, .until = until, .from = from, .before = UINT64_MAX};
    return read_one(state, &list, run_digest, pool);
}

/* ---- the log before one */

/* The counts are bounded by the number of entries, so a manifest cannot claim more commits than
 * entries. */
static diloco_status read_log(dl_snapshot_log *out, dl_json_value root, dl_store *store,
                              dl_buf *text, dl_time until)
{
    dl_key key;
    dl_hash prev;
    DL_TRY(dl_json_read_u64(&out->entry, root, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&out->aborts, root, "aborts", out->entry));
    DL_TRY(dl_json_read_hash(&prev, root, "prev"));
    for (dl_json_iter it = dl_json_each(dl_json_get(root, "fragments")); dl_json_next(&it);) {
        uint64_t commits;
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "fragment %zu is not an object", it.index);
        DL_TRY(dl_json_read_u64(&commits, it.value, "commits", out->entry - out->commits));
        out->commits += commits;
    }
    if (out->entry == 0) return dl_fail(DILOCO_EPROTO, "it follows no entry");
    dl_key_entry(key, out->entry - 1);
    dl_buf_clear(text);
    DL_TRY(dl_store_get(store, text, key, until));
    if (dl_hash_equal(dl_hash_bytes(text->data, text->len), prev)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "prev is not the digest of %s", key);
}

static diloco_status read_log_of(dl_snapshot_log *out, dl_store *store, const found *which,
                                 const dl_runfile *run, dl_time until)
{
    dl_buf text;
    dl_json_value root;
    *out = (dl_snapshot_log){.entry = 0};
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = open_manifest(&root, &text, store, which, run, until);
    if (!status) status = read_log(out, root, store, &text, until);
    dl_buf_deinit(&text);
    if (status) *out = (dl_snapshot_log){.entry = 0};
    return status;
}

/* Tries the newest snapshot first. A damaged one is skipped, and out->entry stays 0 if none
 * fits. */
diloco_status dl_snapshot_read_log(dl_snapshot_log *out, dl_store *store, const dl_runfile *run,
                                   dl_time until)
{
    listing list = {
        .store = store, .run = run, .until = until, .before = UINT64_MAX, .newest = true};
    bool there = true;
    *out = (dl_snapshot_log){.entry = 0};
    diloco_status status = dl_snapshot_list(&list);
    while (!status && there && out->entry == 0) {
        found which;
        status = dl_snapshot_next(&there, &which, &list);
        if (status || !there) break;
        status = read_log_of(out, store, &which, run, until);
        if (dl_snapshot_is_damage(status)) status = DILOCO_OK;
    }
    dl_buf_deinit(&list.found);
    return status;
}

/* ---- verifying */

typedef struct passing {
    dl_digest_stream stream;
    dl_strong_stream *strong; /* NULL: not needed */
    size_t bytes;
} passing;

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    passing *p = context;
    dl_digest_add(&p->stream, data, len);
    if (p->strong) dl_strong_add(p->strong, data, len);
    p->bytes += len;
    return DILOCO_OK;
}

/* Hashes the image as it arrives, so verifying needs no memory of the model's size. */
static diloco_status verify_image(dl_json_value root, dl_store *store, const dl_runfile *run,
                                  const char *key, dl_time until)
{
    passing p = {.bytes = 0};
    if (dl_snapshot_is_signed(run)) DL_TRY(dl_strong_begin(&p.strong));
    dl_digest_begin(&p.stream);
    const diloco_status status = dl_store_read(store, key, (dl_sink){&p, NULL, on_piece}, until);
    dl_image_facts image = {.bytes = p.bytes, .digest = dl_digest_end(&p.stream)};
    if (p.strong) image.strong = dl_strong_end(p.strong);
    return status ? status : check_image(root, &image, run);
}

/* The replica that created the entry before a snapshot writes the snapshot (P25). If the log names
 * another committer, or there is no entry before it, no replica of the run has written it. If the
 * entry cannot be read, the snapshot counts as damaged and not as forged. */
static bool is_forged(dl_store *store, const found *which, const dl_runfile *run, dl_time until)
{
    if (which->entry == 0) return true;
    dl_buf text;
    dl_entry before;
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = dl_entry_init(&before, dl_clients_max_members(&run->config));
    const dl_entry_place place = dl_runfile_place(run, which->entry - 1);
    if (!status) status = dl_entry_get(&text, store, place.number, until);
    if (!status) status = dl_entry_read_at(&before, text.data, text.len, &place);
    const bool forged = !status && !dl_generation_equal(&before.committer, &which->generation);
    dl_entry_deinit(&before);
    dl_buf_deinit(&text);
    return forged;
}

/* The difference matters to an audit: a damaged snapshot is the store's fault, a forged one an
 * attacker's. */
diloco_status dl_snapshot_verify(dl_store *store, uint64_t entry, const dl_generation *generation,
                                 const dl_runfile *run, dl_time until)
{
    dl_buf text;
    dl_json_value root;
    dl_key key;
    found which = {entry, *generation};
    dl_buf_init(&text, TEXT_MAX);
    dl_key_snapshot(key, entry, generation, "state.safetensors");
    diloco_status status = open_manifest(&root, &text, store, &which, run, until);
    /* In a run with keys an unreadable manifest is one that no committer has signed. */
    if (status == DILOCO_EPROTO && dl_snapshot_is_signed(run))
        status = dl_fail_context(DILOCO_EREFUSED, "void");
    if (!status) status = verify_image(root, store, run, key, until);
    if (status == DILOCO_EPROTO && !dl_snapshot_is_signed(run) &&
        is_forged(store, &which, run, until))
        status = dl_fail(DILOCO_EREFUSED,
                         "it is damaged, and %s.%04u did not create the entry before it",
                         generation->replica, (unsigned)generation->number);
    dl_buf_deinit(&text);
    return status ? dl_fail_context(status, "snapshot of entry %llu", (unsigned long long)entry)
                  : DILOCO_OK;
}
