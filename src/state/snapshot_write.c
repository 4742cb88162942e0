/* snapshot_write.c - writing a snapshot (declared in state.h): the image, then its manifest. */
#include "state/snapshot_parts.h"

#include "log/fields.h"

#include <stdlib.h>

enum { TEXT_MAX = DL_ENTRY_TEXT_MAX };

/* P26: the name alone, of any generation. */
static void write_committer(dl_json *j, const dl_generation *committer)
{
    if (!committer->replica[0]) return;
    if (committer->number == DL_GENERATION_ANY)
        dl_json_str(j, "committer", committer->replica);
    else
        dl_json_generation(j, "committer", committer);
}

/* Everything of the control state (P1) that the next entry needs. snapshot.c reads it; a new member
 * is added to both. */
static void write_control(dl_json *j, const dl_control *c)
{
    dl_json_u64(j, "entry", c->entry);
    dl_json_hash(j, "prev", c->prev);
    dl_json_u64(j, "aborts", c->n_aborts);
    dl_json_u64(j, "snapshot", c->snapshot);
    dl_json_f32_bits(j, "lr", c->lr);
    dl_json_f32_bits(j, "mu", c->mu);
    dl_json_bool(j, "last", c->last);
    write_committer(j, &c->committer);
    dl_roster_write(j, &c->roster);
    dl_json_array(j, "later");
    for (size_t i = 0; i < c->n_later; i++) {
        dl_json_object(j, NULL);
        dl_json_f32_bits(j, "lr", c->later[i].lr);
        dl_json_f32_bits(j, "mu", c->later[i].mu);
        dl_roster_write(j, &c->later[i].roster);
        dl_json_end(j);
    }
    dl_json_end(j);
    if (c->ledger) dl_ledger_write(j, c->ledger);
    if (c->bans) dl_bans_write(j, c->bans);
}

/* In a run with keys the committer signs the text, under its generation's name. */
static diloco_status write_manifest(dl_buf *out, const dl_state *state, const dl_runfile *run,
                                    const dl_generation *generation, const dl_signer *signer,
                                    const dl_image_facts *image)
{
    dl_json j;
    size_t start;
    dl_sealed_begin(&j, &start, out, DL_SNAPSHOT_FORMAT);
    dl_json_str(&j, "run", run->id);
    dl_json_generation(&j, "life", generation);
    dl_json_hash(&j, "manifest_digest", state->manifest->digest);
    dl_json_u64(&j, "bytes", image->bytes);
    dl_json_hash(&j, "digest", image->digest);
    if (dl_snapshot_is_signed(run)) {
        char hex[DL_STRONG_HEX + 1];
        dl_hex(hex, image->strong.bytes, sizeof image->strong.bytes);
        dl_json_str(&j, "strong", hex);
    }
    write_control(&j, &state->control);
    dl_json_array(&j, "fragments");
    for (int f = 0; f < state->manifest->n_fragments; f++) {
        dl_json_object(&j, NULL);
        dl_json_hash(&j, "digest", state->now[f].digest);
        dl_json_hash(&j, "before", state->now[f].before);
        dl_json_u64(&j, "commits", state->now[f].n_commits);
        dl_json_end(&j);
    }
    dl_json_end(&j);
    DL_TRY(dl_sealed_end(&j, start));
    const dl_statement what = dl_snapshot_statement(run->id, state->control.entry, generation);
    return dl_snapshot_is_signed(run) ? dl_sealed_sign(out, start, signer, &what) : DILOCO_OK;
}

/* Computes length and hashes of the image in one pass over the state's memory. */
static diloco_status facts_of(dl_image_facts *out, const dl_span *spans, size_t n, bool strong)
{
    dl_digest_stream stream;
    dl_strong_stream *also = NULL;
    if (strong) DL_TRY(dl_strong_begin(&also));
    dl_digest_begin(&stream);
    *out = (dl_image_facts){.bytes = 0};
    for (size_t i = 0; i < n; i++) {
        dl_digest_add(&stream, spans[i].data, spans[i].len);
        if (also) dl_strong_add(also, spans[i].data, spans[i].len);
        out->bytes += spans[i].len;
    }
    out->digest = dl_digest_end(&stream);
    if (also) out->strong = dl_strong_end(also);
    return DILOCO_OK;
}

/* Returns whether the sent image is still the one that the manifest will name. The state's memory
 * could have been damaged during the upload. Then the confirmation would be for other bytes than
 * the manifest names. */
static bool is_image(const dl_image_facts *image, const dl_span *spans, size_t n)
{
    dl_image_facts again;
    return !facts_of(&again, spans, n, false) && dl_hash_equal(again.digest, image->digest);
}

/* The manifest is created only after the image, so a crash in between leaves no snapshot
 * (snapshot.c). Its name appears once the image is whole. */
static diloco_status put(bool *confirmed, dl_store *store, const dl_state *state,
                         const dl_runfile *run, const dl_generation *generation,
                         const dl_signer *signer, const dl_span *spans, size_t n_spans,
                         dl_time until)
{
    dl_key key;
    dl_buf text;
    dl_image_facts image;
    DL_TRY(facts_of(&image, spans, n_spans, dl_snapshot_is_signed(run)));
    dl_key_snapshot(key, state->control.entry, generation, "state.safetensors");
    DL_TRY(dl_store_create(store, key, spans, n_spans, NULL, until));
    *confirmed = dl_store_vouches(store) && is_image(&image, spans, n_spans);

    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = write_manifest(&text, state, run, generation, signer, &image);
    dl_key_snapshot(key, state->control.entry, generation, "manifest.json");
    if (!status)
        status = dl_store_create(store, key, &(dl_span){text.data, text.len}, 1, NULL, until);
    *confirmed = *confirmed && !status && dl_store_vouches(store);
    dl_buf_deinit(&text);
    return status;
}

diloco_status dl_snapshot_write(bool *confirmed, dl_store *store, const dl_state *state,
                                const dl_runfile *run, const dl_generation *generation,
                                const dl_signer *signer, dl_time until)
{
    bool ignored;
    dl_buf header;
    size_t n_spans, cap = dl_state_image_spans(state);
    dl_span *spans = calloc(cap, sizeof *spans);
    if (!spans) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu spans", cap);
    dl_buf_init(&header, DL_ST_HEADER_MAX);
    diloco_status status = dl_state_image(&header, spans, cap, &n_spans, state, &run->config);
    if (!status)
        status = put(confirmed ? confirmed : &ignored, store, state, run, generation, signer, spans,
                     n_spans, until);
    dl_buf_deinit(&header);
    free(spans);
    return status ? dl_fail_context(status, "snapshot") : DILOCO_OK;
}
