/* combined.c - the combined update of an entry's members, computed by one replica for all (P19). It
 * is an object under x/ with the form of a contribution: its payload is G as float32, and its
 * integers and booleans are the new values.
 *
 * A replica holds one combined update at a time, in a slot of its own. */
#include "exchange/exec_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Makes a second set of forms, with codec f32: a combined update is not quantised a second time.
 * Also called by `sharded`. */
diloco_status dl_exec_prepare_combined(dl_exec *x)
{
    const dl_manifest *manifest = &x->a.run->manifest;
    dl_config plain = x->a.run->config;
    DL_TRY(dl_config_set(&plain, "server.diloco.codec", "f32", "run"));
    x->combine.plain = calloc((size_t)manifest->n_fragments, sizeof *x->combine.plain);
    if (!x->combine.plain) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    for (int f = 0; f < manifest->n_fragments; f++)
        DL_TRY(dl_codec_form_init(&x->combine.plain[f], &plain, manifest, f));
    return DILOCO_OK;
}

/* The slot has room for the update of any fragment. It is made at the first update, since many
 * replicas never need one. */
diloco_status dl_exec_make_combined_slot(dl_exec *x, dl_slot **slot)
{
    size_t most = 0;
    if (*slot) return DILOCO_OK;
    for (int f = 0; f < x->a.run->manifest.n_fragments; f++)
        most = dl_size_max(most, dl_contribution_body_max(&x->combine.plain[f],
                                                          x->a.run->manifest.fragments[f], false));
    return dl_slot_create(slot, most, x->a.spool_dir);
}

/* Returns the addresses of a fragment's parts in the slot. They have the order of the object. */
dl_combined dl_exec_combined_parts(const dl_exec *x, dl_slot *slot, uint32_t fragment)
{
    unsigned char *base = dl_slot_bytes(slot);
    unsigned char *integers = base + x->combine.plain[fragment].n * sizeof(float);
    const size_t n_integers = x->a.run->manifest.fragments[fragment].n_integers;
    return (dl_combined){.g = (float *)(void *)base,
                         .integers = integers,
                         .booleans = integers + n_integers * sizeof(int64_t)};
}

static size_t body_bytes(const dl_exec *x, uint32_t fragment)
{
    return dl_contribution_body_max(&x->combine.plain[fragment],
                                    x->a.run->manifest.fragments[fragment], false);
}

static size_t head_bytes(const dl_exec *x)
{
    return DL_CONTRIBUTION_HEADER + (x->ring ? DL_CONTRIBUTION_PROOF : 0);
}

/* The header of a combined update. It names the entry's base, so an update from another state is
 * refused. */
static dl_contribution describe(const dl_exec *x, const dl_request *request, dl_hash body,
                                double norm)
{
    const dl_fragment_shape *s = &x->a.run->manifest.fragments[request->fragment];
    dl_contribution c = {.generation = x->a.self,
                         .entry = request->entry,
                         .fragment = request->fragment,
                         .codec = DL_CODEC_COMBINED,
                         .stats.position = request->step.draft->position,
                         .stats.loss = request->step.draft->loss,
                         .norm = norm,
                         .base = request->step.draft->base,
                         .manifest = x->a.run->manifest.digest,
                         .n_floats = x->combine.plain[request->fragment].n,
                         .n_integers = s->n_integers,
                         .n_booleans = s->n_booleans,
                         .payload_len = x->combine.plain[request->fragment].n * sizeof(float),
                         .body = body};
    memcpy(c.run, x->a.run->id, sizeof c.run);
    return c;
}

/* The store is asked once: a repeated create of the same bytes succeeds. In a run with keys a taken
 * name may hold junk, and then every replica reads the members (P6.6). */
static diloco_status put_combined(dl_exec *x, const dl_request *request, dl_hash body,
                                  dl_time until)
{
    dl_key key;
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
    const double norm = x->facts.outer.aggregated_norm;
    dl_contribution c = describe(x, request, body, isfinite(norm) ? norm : 0);
    const dl_span spans[] = {
        {header, head_bytes(x)},
        {dl_slot_bytes(x->combine.slot), body_bytes(x, request->fragment)},
    };
    if (x->ring)
        DL_TRY(dl_contribution_sign(header, &c, x->a.signer, spans + 1, 1));
    else
        dl_contribution_write_header(header, &c);
    dl_key_combined(key, request->entry, &x->a.self);
    const diloco_status status = dl_store_create(x->a.store, key, spans, 2, NULL, until);
    x->combine.confirmed = !status && dl_store_vouches(x->a.store);
    if (status == DILOCO_EEXIST && x->ring) return status; /* perhaps junk: read the members */
    if (status == DILOCO_EEXIST)
        return dl_fail(DILOCO_EFENCED, "%s holds other bytes: another process runs as %s; stop one",
                       key, x->a.self.replica);
    return status;
}

/* Combines the members of the draft into the slot. facts.outer then has their norms and
 * similarities, which readers of the update cannot measure. */
diloco_status dl_exec_combine_here(dl_exec *x, const dl_request *request)
{
    const dl_outer_step_args args = dl_exec_step_args(x, request);
    DL_TRY(dl_exec_make_combined_slot(x, &x->combine.slot));
    dl_combined parts = dl_exec_combined_parts(x, x->combine.slot, request->fragment);
    DL_TRY(dl_outer_combine(&parts, &x->state.now[request->fragment], &args, &x->facts.outer,
                            x->apply.scratch, x->a.pool));
    x->combine.here = true;
    x->combine.confirmed = false;
    return DILOCO_OK;
}

/* An audit combines without uploading, and compares the digest with the entry's (P19.26). */
static diloco_status combine(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    DL_TRY(dl_exec_combine_here(x, request));
    reply->combined.len = head_bytes(x) + body_bytes(x, request->fragment);
    reply->combined.result =
        dl_digest_bytes(dl_slot_bytes(x->combine.slot), body_bytes(x, request->fragment));
    return request->step.put ? put_combined(x, request, reply->combined.result, until) : DILOCO_OK;
}

/* This replica's own combined update is in the slot and is valid, so it is not read (P8). Its body
 * is hashed and checked again, since the slot may have been used for another entry. */
static bool is_held(dl_exec *x, const dl_request *request, const dl_contribution_expect *expect)
{
    const dl_combined_at *named = &request->step.draft->combined;
    const unsigned char *body = dl_slot_bytes(x->combine.slot);
    size_t index;
    double norm2;
    return x->combine.confirmed && dl_generation_equal(&named->generation, &x->a.self) &&
           dl_hash_equal(dl_digest_bytes(body, body_bytes(x, request->fragment)), named->body) &&
           !dl_codec_check(expect->form, body, expect->form->n * sizeof(float), expect->bound,
                           &index, &norm2);
}

/* Reads the update that the entry names, and checks it as a contribution is checked. `bound` is
 * only finiteness, since a sum may exceed the bound of a member's element. Returns DILOCO_EPROTO
 * with a reason if it is not the named one. */
static diloco_status collect(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    const dl_combined_at *named = &request->step.draft->combined;
    dl_contribution_expect expect = {.run = x->a.run->id,
                                     .entry = request->entry,
                                     .fragment = request->fragment,
                                     .generation = named->generation,
                                     .base = request->step.draft->base,
                                     .also_base = request->step.draft->base,
                                     .manifest = x->a.run->manifest.digest,
                                     .shape = x->a.run->manifest.fragments[request->fragment],
                                     .form = &x->combine.plain[request->fragment],
                                     .codec = DL_CODEC_COMBINED,
                                     .bound = FLT_MAX,
                                     .tensors = &x->a.run->manifest};
    dl_contribution_data data; /* the parts of the slot, never compressed */
    dl_key key;
    DL_TRY(dl_exec_make_combined_slot(x, &x->combine.slot));
    DL_TRY(
        dl_exec_key_of(&expect.key, &reply->combined.reason, x, named->generation.replica, until));
    x->combine.here = x->combine.here && dl_generation_equal(&named->generation, &x->a.self);
    if (is_held(x, request, &expect)) return DILOCO_OK;
    x->combine.confirmed = false;
    dl_key_combined(key, request->entry, &named->generation);
    DL_TRY(dl_contribution_fetch(&x->collect.fetched, &data, &reply->combined.reason,
                                 x->combine.slot, x->a.store, key, &expect, until));
    if (dl_hash_equal(x->collect.fetched.body, named->body)) return DILOCO_OK;
    reply->combined.reason = "checksum";
    return dl_fail(DILOCO_EPROTO, "%s is not what entry %llu names", key,
                   (unsigned long long)request->entry);
}

/* Computes the outer step from the update in the slot instead of the members. */
diloco_status dl_exec_compute_combined(dl_exec *x, dl_fragment_state *next,
                                       const dl_request *request)
{
    dl_outer_step_facts facts;
    dl_outer_step_args args = dl_exec_step_args(x, request);
    const dl_combined parts = dl_exec_combined_parts(x, x->combine.slot, request->fragment);
    args.combined = &parts;
    DL_TRY(dl_outer_step(next, &x->state.now[request->fragment], &args, &facts, x->apply.scratch,
                         x->a.pool));
    if (!x->combine.here) x->facts.outer = facts; /* the replica that combines measures more */
    x->combine.here = false;
    return DILOCO_OK;
}

const dl_exec_topology dl_exec_leader = {
    .prepare = dl_exec_prepare_combined,
    .collect = collect,
    .combine = combine,
};
