/* contribute.c - a replica's own contribution: encode its capture, upload it.
 *
 * A capture does not change until its entry is adopted, so a repeated request gives the same bytes.
 * A later generation gets the same bytes too, because captures are saved with the local state
 * (P16). The residual, and an eager momentum, then move on as if the process had not been
 * restarted. */
#include "exchange/exec_parts.h"

#include "base/rng.h"
#include "exchange/generations.h"

#include <math.h>
#include <string.h>

enum { RENEWALS_MAX = 23 }; /* 2^23 is about DL_GENERATION_MAX */

/* A capture that an earlier generation made from a state that the log does not have is not sent
 * (P3). A base that is older by one is valid where rounds overlap, since such a round may begin
 * from the state before (P21.4). */
static bool fits_the_log(const dl_exec *x, const dl_request *request, const dl_capture *c)
{
    const dl_fragment_state *now = &x->state.now[request->fragment];
    const bool lags = x->schedule.overlap != DL_OVERLAP_STEPS;
    return !c->restored || dl_hash_equal(c->base, now->digest) ||
           (lags && dl_hash_equal(c->base, now->before));
}

/* Returns this replica's capture for an entry, or an empty one, which has no samples. */
static dl_capture captured_or_nothing(const dl_exec *x, const dl_request *request)
{
    const dl_capture *c = dl_exec_captured(x, request->entry);
    if (c && !request->contribute.announce && fits_the_log(x, request, c)) return *c;
    return (dl_capture){
        .entry = request->entry, .base = x->state.now[request->fragment].digest, .stats.loss = NAN};
}

bool dl_exec_sends_values(const dl_exec *x)
{
    return x->mode->may_send_values && x->a.run->config.payload == DL_PAYLOAD_WEIGHTS;
}

/* The name of an object: one generation's contribution to an entry, which is of this fragment. */
typedef struct object_name {
    uint64_t entry;
    uint32_t fragment;
    dl_generation generation;
} object_name;

/* Fills the header for one object from its capture. A contribution without samples is empty: no
 * arrays and no norm. Its sample range is empty, and its base may be any state (P9.6). */
static dl_contribution describe(const dl_exec *x, const object_name *name, const dl_capture *from,
                                size_t payload_len)
{
    const dl_fragment_shape *s = &x->a.run->manifest.fragments[name->fragment];
    const bool assigned = from->assigned.n > 0; /* assigned chunks are no range of samples */
    dl_contribution c = {.generation = name->generation,
                         .entry = name->entry,
                         .fragment = name->fragment,
                         .stats = from->stats,
                         .norm = from->norm,
                         .base = from->base,
                         .manifest = x->a.run->manifest.digest,
                         .n_floats = s->n_trained + s->n_averaged,
                         .n_integers = s->n_integers,
                         .n_booleans = s->n_booleans,
                         .payload_len = payload_len,
                         .assigned = from->assigned};
    if (assigned) c.stats.shard = c.stats.first_sample = c.stats.end_sample = 0;
    const dl_slicing slices = dl_exec_slicing(x, name->fragment);
    if (slices.n && c.stats.samples) c.slices = slices.n, c.bulk = dl_slices_bytes(&slices);
    if (c.stats.samples == 0) {
        c.stats.end_sample = c.stats.first_sample;
        c.n_floats = c.n_integers = c.n_booleans = 0;
        c.norm = 0;
    }
    memcpy(c.run, x->a.run->id, sizeof c.run);
    const char *codec =
        dl_exec_sends_values(x) ? DL_CODEC_WEIGHTS : x->forms[name->fragment].codec->name;
    memcpy(c.codec, codec, strlen(codec) + 1);
    return c;
}

/* The earlier generations that may have contributed: every smaller number. Where numbers are random
 * (dl_run_claim_generation), only those that a listing shows. */
enum { FORMER_MAX = 64 };
typedef struct former_generations {
    const dl_generation *self;
    bool listed;
    uint32_t at[FORMER_MAX]; /* ascending */
    size_t n;
} former_generations;

/* Adds an earlier generation that the listing shows. Keys ascend, so `at` does. */
static diloco_status found_former(void *context, const char *key, size_t len)
{
    former_generations *l = context;
    uint64_t entry;
    dl_generation generation;
    (void)len;
    if (dl_key_parse_contribution(&entry, &generation, key) && l->n < FORMER_MAX &&
        !strcmp(generation.replica, l->self->replica) && generation.number < l->self->number)
        l->at[l->n++] = generation.number;
    return DILOCO_OK;
}

/* With a single committer, generations have random numbers (P26.2), and only a listing finds
 * them. */
static diloco_status list_former(former_generations *l, dl_exec *x, uint64_t entry, dl_time until)
{
    dl_key folder;
    *l = (former_generations){.self = &x->a.self, .listed = x->a.run->config.single_committer[0]};
    if (!l->listed) return DILOCO_OK;
    dl_key_contributions(folder, entry);
    return dl_store_list(x->a.store, folder, NULL, found_former, l, until);
}

/* Returns the newest generation before *g in *g, or false if no earlier one exists. */
static bool generation_before(former_generations *l, uint32_t *g)
{
    if (l->listed) return l->n > 0 && (*g = l->at[--l->n], true);
    return *g > 0 && ((*g)--, true);
}

/* P15: looks for the same contribution by an earlier generation of this replica. It is called for
 * the first contribution of this generation, and for captures that an earlier one had in flight.
 * Any contribution of those is ours. A former object counts as ours if it has the same body and
 * base, so the entry may name either. An empty contribution gives way to any that has samples. */
static diloco_status find_former(dl_exec *x, const object_name *name, const dl_contribution *ours,
                                 bool nothing, dl_reply *reply, dl_time until)
{
    former_generations former;
    uint32_t g = x->a.self.number;
    DL_TRY(list_former(&former, x, name->entry, until));
    while (!reply->contribute.taken && generation_before(&former, &g)) {
        dl_generation generation = x->a.self;
        generation.number = g;
        dl_key key;
        dl_key_contribution(key, name->entry, &generation);
        dl_contribution c;
        const diloco_status status = dl_contribution_look(&c, x->a.store, key, until);
        if (dl_store_may_recover(x->a.store, status)) return status;
        if (status) continue; /* it does not exist, or no replica can have counted it */
        reply->contribute.taken =
            nothing ? c.stats.samples > 0
                    : dl_hash_equal(c.body, ours->body) && dl_hash_equal(c.base, ours->base);
        reply->contribute.takes_over = generation;
    }
    return DILOCO_OK;
}

/* The digest covers all spans after the header, and is the body that entries name. Header and spans
 * stay valid until the next object is made. */
static void make_header(dl_exec *x, size_t *n_spans, dl_contribution *c, unsigned char *header)
{
    dl_digest_stream digest;
    dl_digest_begin(&digest);
    x->facts.own.bytes = DL_CONTRIBUTION_HEADER + c->bulk;
    for (size_t i = 1; i < *n_spans; i++) {
        dl_digest_add(&digest, x->upload.spans[i].data, x->upload.spans[i].len);
        x->facts.own.bytes += x->upload.spans[i].len;
    }
    c->body = dl_digest_end(&digest);
    dl_contribution_write_header(header, c);
    x->upload.spans[0] = (dl_span){header, DL_CONTRIBUTION_HEADER};
}

/* Encodes a capture into the upload's payload, or copies the payload that a device has encoded. */
static diloco_status encode(dl_exec *x, size_t *len, const dl_codec_form *form,
                            const dl_capture *from)
{
    unsigned char *out = x->upload.payload + x->upload.gap;
    if (!from->encoded) return dl_codec_encode(form, out, len, from->g, x->a.pool);
    *len = form->bound;
    memcpy(out, from->payload, *len);
    return DILOCO_OK;
}

/* Writes header, payload, integers and booleans of `name` to x->upload.spans, and their number to
 * *n_spans. Encodes into the upload's payload, and compresses in place if the run says so; `gap` is
 * the room for that. A sliced contribution's object is only the table of digests: its slices are
 * uploaded on their own. Returns DILOCO_ENUMERIC of the codec. The former object in memory is lost
 * from the first line on, hence entry_and_1 = 0. */
static diloco_status make_object(dl_exec *x, size_t *n_spans, const object_name *name,
                                 dl_contribution *c, unsigned char header[DL_CONTRIBUTION_HEADER],
                                 const dl_capture *from)
{
    const dl_codec_form *form = &x->forms[name->fragment];
    size_t raw, len;
    x->upload.made.entry_and_1 = 0;
    if (!from->stats.samples) {
        *n_spans = 1;
        *c = describe(x, name, from, 0);
        make_header(x, n_spans, c, header);
        return DILOCO_OK;
    }
    DL_TRY(encode(x, &raw, form, from));
    len = x->packer ? dl_pack(x->packer, x->upload.payload, x->upload.gap, raw, form->codec->width)
                    : raw;
    *c = describe(x, name, from, len);
    c->packing = x->packer ? DL_PACKING_ZSTD : DL_PACKING_NONE;
    c->unpacked_len = x->packer ? raw : 0;
    size_t discrete = c->n_integers * sizeof(int64_t) + c->n_booleans;
    const unsigned char *body = x->upload.payload;
    if (c->slices) {
        c->payload_len = len = dl_exec_make_table(x, name->fragment, from->discrete);
        body = (const unsigned char *)x->upload.table;
        discrete = 0;
    }
    x->upload.spans[1] = (dl_span){body, len};
    x->upload.spans[2] = (dl_span){from->discrete, discrete};
    *n_spans = discrete ? 3 : 2;
    make_header(x, n_spans, c, header);
    return DILOCO_OK;
}

/* Signs the object that make_object made, if the run has keys. */
static diloco_status sign_object(dl_exec *x, dl_contribution *c, unsigned char *header,
                                 size_t n_spans)
{
    if (!x->ring) return DILOCO_OK;
    x->upload.spans[0].len += DL_CONTRIBUTION_PROOF;
    x->facts.own.bytes += DL_CONTRIBUTION_PROOF;
    return dl_contribution_sign(header, c, x->a.signer, x->upload.spans + 1, n_spans - 1);
}

/* Sets the facts for the record's line: the capture's, and the time of encoding and signing. */
static void measure(dl_exec *x, const object_name *name, const dl_capture *from, dl_time began)
{
    x->facts.own.norm = from->norm;
    x->facts.own.fragment = name->fragment;
    x->facts.own.stats = from->stats;
    x->facts.own.encode_s = dl_seconds(dl_clock_now() - began);
}

/* Uploads an object. Returns DILOCO_EEXIST if the name holds other bytes. The measured time
 * includes the second attempt. `confirmed` is set only if the store answered with the digest of the
 * sent bytes (P8.2). */
static diloco_status put(dl_own_facts *facts, bool *confirmed, dl_store *store, uint64_t entry,
                         const dl_generation *generation, const dl_span *spans, size_t n_spans,
                         dl_time until)
{
    dl_key key;
    const dl_time began = dl_clock_now();
    dl_key_contribution(key, entry, generation);
    diloco_status status = dl_store_create(store, key, spans, n_spans, NULL, until);
    if (status == DILOCO_EEXIST) /* the bytes read back for the comparison may have been damaged */
        status = dl_store_create(store, key, spans, n_spans, NULL, until);
    facts->put_s = dl_seconds(dl_clock_now() - began);
    *confirmed = !status && dl_store_vouches(store);
    return status;
}

/* ---- a name that exists already ------------------------------------------------------------ */

/* If our own object name holds different bytes, another process is running under this replica's
 * identity. In a run with keys those bytes are signed. Returns DILOCO_EEXIST if they are not: then
 * the name holds junk, and this replica needs another generation. */
static diloco_status fenced(const dl_exec *x, diloco_status status, dl_store *store, uint64_t entry,
                            const dl_generation *generation, dl_time until)
{
    bool signed_by_us = true;
    if (status != DILOCO_EEXIST) return status;
    if (x->ring && x->a.signer)
        DL_TRY(dl_contribution_is_by(&signed_by_us, store, x->a.run->id, entry, generation,
                                     dl_signer_public(x->a.signer), until));
    if (!signed_by_us)
        return dl_fail(DILOCO_EEXIST,
                       "the object name of contribution %llu of %s.%04u holds bytes that this "
                       "replica's key has not signed",
                       (unsigned long long)entry, generation->replica,
                       (unsigned)generation->number);
    return dl_fail(DILOCO_EFENCED,
                   "the store holds this replica's contribution to entry %llu with other bytes: "
                   "another process runs as %s; stop one",
                   (unsigned long long)entry, x->a.self.replica);
}

/* Claims a later generation: first the next number, then numbers at random from a range that
 * doubles. An attacker that creates n names in advance costs about log2(n) generations. Returns
 * DILOCO_EFENCED if gen/ has a later generation that this replica's key has signed: another process
 * is running. P6.3 has the bound. */
static diloco_status renew(dl_exec *x, unsigned n)
{
    dl_generation newest = x->a.self, next = x->a.self;
    uint32_t random, from = x->a.self.number + 1;
    if (dl_random_bytes(&random, sizeof random)) random = 0;
    from += random % (UINT32_C(1) << dl_size_min(n, RENEWALS_MAX));
    /* A claim without an answer may have created the name; then it is ours. */
    if (x->upload.claimed > newest.number) newest.number = x->upload.claimed;
    const diloco_status status =
        dl_run_claim_next(&next, x->a.store, &newest, from, x->a.run, x->a.signer);
    if (next.number > x->upload.claimed) x->upload.claimed = next.number;
    if (!status) x->a.self.number = next.number;
    return status;
}

dl_generation dl_exec_self(const dl_exec *x)
{
    return x->a.self;
}

/* ---- pipelined uploads -------------------------------------------------------------------- */

bool dl_exec_puts_ahead(const dl_exec *x)
{
    return x->upload.pipelined;
}

/* Keeps the object in x->upload.spans, header first, unchanged until it is sent. The two payloads
 * are swapped; the other parts are small and are copied. The contribution's memory then belongs to
 * the uploading thread, until dl_exec_sent. Swapping leaves the exchange a payload for its next
 * object. */
static void keep_to_send(dl_exec *x, const object_name *name, size_t n_spans,
                         const unsigned char *discrete)
{
    const dl_fragment_shape *shape = &x->a.run->manifest.fragments[name->fragment];
    dl_sent *s = &x->upload.sent;
    unsigned char *free_payload = s->payload;
    x->upload.made.entry_and_1 = 0;
    s->payload = x->upload.payload;
    x->upload.payload = free_payload;
    s->entry = name->entry;
    s->generation = name->generation;
    s->facts = x->facts.own;
    s->n_spans = n_spans;
    memcpy(s->spans, x->upload.spans, n_spans * sizeof *s->spans);
    memcpy(s->header, x->upload.spans[0].data, x->upload.spans[0].len);
    s->spans[0].data = s->header;
    s->spans[2].data = s->discrete;
    memcpy(s->discrete, discrete, shape->n_integers * sizeof(int64_t) + shape->n_booleans);
    s->slicing = dl_exec_slicing(x, name->fragment);
    if (!s->slicing.n) return;
    memcpy(s->table, x->upload.table, sizeof s->table);
    s->spans[1].data = s->table;
}

diloco_status dl_exec_await_saved(const dl_exec *x, uint64_t entry)
{
    return x->a.await_saved ? x->a.await_saved(x->a.saved_user, entry) : DILOCO_OK;
}

/* The time for the store begins after this wait. */
static diloco_status await_saved(const dl_exec *x, uint64_t entry, dl_time *until)
{
    const dl_time began = dl_clock_now();
    DL_TRY(dl_exec_await_saved(x, entry));
    *until = dl_time_after(*until, dl_clock_now() - began);
    return DILOCO_OK;
}

/* Slices come first, so the object that announces them is complete. It reads nothing of `x` but
 * `sent` and what never changes, since the exchange works at the same time. */
diloco_status dl_exec_send(dl_exec *x, dl_store *store, dl_time until)
{
    dl_sent *s = &x->upload.sent;
    dl_slices_put slices = {.slicing = s->slicing,
                            .entry = s->entry,
                            .generation = s->generation,
                            .payload = s->payload,
                            .discrete = s->discrete,
                            .until = until};
    DL_TRY(dl_slices_send(&slices, store));
    const diloco_status status =
        put(&s->facts, &s->confirmed, store, s->entry, &s->generation, s->spans, s->n_spans, until);
    s->confirmed &= dl_slices_are_confirmed(&slices);
    return fenced(x, status, store, s->entry, &s->generation, until);
}

void dl_exec_sent(dl_exec *x)
{
    x->facts.own = x->upload.sent.facts;
    dl_capture *c = dl_exec_captured(x, x->upload.sent.entry);
    if (c) c->confirmed = x->upload.sent.confirmed;
    if (x->a.peers) dl_peers_show(x->a.peers, x->upload.sent.entry, &x->upload.sent.generation);
}

/* Makes the object, looks for an earlier generation's, and uploads it or hands it over for a
 * pipelined upload. The private state may still be saved while the object is made. It is durable
 * before the upload: a killed process would otherwise resume from a state without the capture that
 * the contribution came from (P16). For a pipelined upload its own thread waits. A repeated request
 * makes the same bytes. The upload is shown to peers only after the store has it (P8.3). `body` is
 * kept before the upload, since the entry may name it even if the answer is lost. */
static diloco_status contribute(dl_exec *x, const dl_request *request, dl_reply *reply,
                                dl_time until)
{
    const dl_time began = dl_clock_now();
    const object_name name = {request->entry, request->fragment, x->a.self};
    dl_capture from = captured_or_nothing(x, request);
    const bool nothing = !from.g;
    dl_contribution c;
    size_t n_spans;
    DL_TRY(make_object(x, &n_spans, &name, &c, x->upload.made.header, &from));
    DL_TRY(sign_object(x, &c, x->upload.made.header, n_spans));
    x->upload.made.n_spans = n_spans;
    x->upload.made.entry_and_1 = 1 + request->entry;
    measure(x, &name, &from, began);
    const bool pipelines =
        request->contribute.pipelined && x->upload.pipelined && !dl_contribution_is_empty(&c);
    if (!nothing) dl_exec_captured(x, request->entry)->body = c.body;
    if (!pipelines) DL_TRY(await_saved(x, request->entry, &until));
    if (nothing || from.restored || !x->upload.contributed)
        DL_TRY(find_former(x, &name, &c, nothing, reply, until));
    if (!nothing) x->upload.contributed = true;
    if (reply->contribute.taken) return DILOCO_OK;

    if (x->a.peers) dl_peers_keep(x->a.peers, request->entry, x->upload.spans, n_spans);
    if (pipelines) {
        keep_to_send(x, &name, n_spans, from.discrete);
        reply->sending = 1 + request->entry;
        return DILOCO_OK;
    }
    dl_slices_put slices = {.slicing = dl_exec_slicing(x, request->fragment),
                            .entry = request->entry,
                            .generation = name.generation,
                            .payload = x->upload.payload,
                            .discrete = from.discrete,
                            .until = until};
    if (c.slices) DL_TRY(dl_exec_put_slices(x, &slices));
    bool confirmed;
    const diloco_status status = put(&x->facts.own, &confirmed, x->a.store, request->entry,
                                     &name.generation, x->upload.spans, n_spans, until);
    if (!status && x->a.peers) dl_peers_show(x->a.peers, request->entry, &name.generation);
    if (!nothing)
        dl_exec_captured(x, request->entry)->confirmed =
            confirmed && dl_slices_are_confirmed(&slices);
    return fenced(x, status, x->a.store, request->entry, &name.generation, until);
}

/* Each renewal makes and signs the object again, because its name has the generation. RENEWALS_MAX
 * attempts reach the highest number, so the loop is bounded. */
diloco_status dl_exec_contribute(dl_exec *x, const dl_request *request, dl_reply *reply,
                                 dl_time until)
{
    diloco_status status = contribute(x, request, reply, until);
    for (unsigned n = 0; status == DILOCO_EEXIST && n < RENEWALS_MAX; n++) {
        DL_TRY(renew(x, n));
        status = contribute(x, request, reply, until);
    }
    return status;
}

/* ---- the own contribution, without reading it back --------------------------------------------
 */

/* The bytes that were sent may still be in memory; the header's digest shows whether they are. */
static bool is_made(const dl_exec *x, dl_contribution *facts, dl_contribution_data *data,
                    dl_slot *slot, const dl_request *request, const dl_contribution_expect *expect)
{
    const char *reason;
    return x->upload.made.entry_and_1 == 1 + request->entry &&
           !dl_contribution_read(facts, data, &reason, slot, x->upload.spans,
                                 x->upload.made.n_spans, expect);
}

/* The capture's memory may hold the next state by now; the digest shows whether it does. The facts
 * for the record remain those of the upload. */
static bool make_again(dl_exec *x, size_t *n_spans, unsigned char *header, const object_name *name,
                       const dl_capture *from)
{
    dl_contribution c;
    const dl_own_facts facts = x->facts.own;
    const bool same = !make_object(x, n_spans, name, &c, header, from) &&
                      dl_hash_equal(c.body, from->body) && !sign_object(x, &c, header, *n_spans);
    x->facts.own = facts;
    return same;
}

/* Slices are excluded: they have their own way (sharded.c: recall_member). The bytes pass the same
 * checks as those from the store. */
bool dl_exec_recall(dl_exec *x, dl_contribution *facts, dl_contribution_data *data, dl_slot *slot,
                    const dl_request *request, const dl_contribution_expect *expect)
{
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
    size_t n_spans;
    const char *reason; /* if it is invalid, the read from the store gives the reason */
    const dl_capture *c = dl_exec_captured(x, request->entry);
    if (!c || !c->confirmed || expect->slices ||
        !dl_generation_equal(&request->fetch.generation, &x->a.self))
        return false;
    const object_name name = {request->entry, request->fragment, x->a.self};
    return is_made(x, facts, data, slot, request, expect) ||
           (make_again(x, &n_spans, header, &name, c) &&
            !dl_contribution_read(facts, data, &reason, slot, x->upload.spans, n_spans, expect));
}

/* Replaces the captured movement by the values at its end, which the capture has already checked.
 */
static void put_values(dl_exec *x, dl_capture *c)
{
    for (size_t i = x->capture.first[c->fragment]; i < x->capture.first[c->fragment + 1]; i++) {
        const dl_local_tensor *t = &x->capture.local[i];
        if (t->region != DL_TRAINED && t->region != DL_AVERAGED) continue;
        DL_ASSERT(x->a.tensors[x->capture.tensor_of[i]].dtype ==
                  DILOCO_F32); /* every client model is */
        memcpy(c->g + t->begin, t->data, t->count * sizeof *c->g);
    }
}

/* The private state is made durable before the upload (`keep`), under the digest of the body (P24).
 * The residual must be advanced before that, although the entry may not count the client. If it
 * does not, the next worker reads an older state. DILOCO_EEXIST is no error: another worker has
 * trained the same client first. */
diloco_status dl_exec_put_client(dl_exec *x, bool *first, const dl_exec_client *client,
                                 dl_time until)
{
    const dl_time began = dl_clock_now();
    const object_name name = {.entry = x->state.control.entry, .generation = client->generation};
    unsigned char header[DL_CONTRIBUTION_HEADER];
    dl_contribution c;
    size_t n_spans;
    DL_TRY(dl_exec_capture(x, name.entry, name.fragment, client->stats));
    dl_capture *from = dl_exec_captured(x, name.entry);
    if (dl_exec_sends_values(x)) put_values(x, from);
    /* the client's residual: saved with its state before it is known to count */
    dl_exec_leave_out(x, from);
    DL_TRY(make_object(x, &n_spans, &name, &c, header, from));
    measure(x, &name, from, began);
    DL_TRY(client->keep(client->user, c.body));
    bool confirmed; /* the next client reuses the memory of this one */
    const diloco_status status = put(&x->facts.own, &confirmed, x->a.store, name.entry,
                                     &name.generation, x->upload.spans, n_spans, until);
    *first = status != DILOCO_EEXIST;
    return *first ? status : DILOCO_OK;
}

/* ---- saved and restored ------------------------------------------------------------------ */

/* A capture's facts are saved as the header of its contribution. An empty slot has zeros, which no
 * header begins with. */
diloco_status dl_exec_pack_in_flight(dl_exec *x, uint64_t next_adopt)
{
    x->capture.in_flight = false;
    for (size_t i = 0; i < x->capture.n; i++) {
        dl_capture *c = &x->capture.at[i];
        const object_name of = {
            .entry = c->entry, .fragment = c->fragment, .generation = x->a.self};
        unsigned char *head = x->capture.heads + i * DL_CONTRIBUTION_HEADER;
        memset(head, 0, DL_CONTRIBUTION_HEADER);
        if (!c->there || c->entry < next_adopt || !x->capture.keeps_in_flight) continue;
        x->capture.in_flight = true;
        DL_TRY(dl_exec_fetch_values(x, c));
        const dl_contribution facts = describe(x, &of, c, 0);
        dl_contribution_write_header(head, &facts);
    }
    return DILOCO_OK;
}

/* The saved header is checked like one from the store. The object is made once to learn its body,
 * which the saved header lacks. */
static diloco_status unpack(dl_exec *x, size_t i, const unsigned char *head)
{
    dl_capture *c = &x->capture.at[i];
    dl_contribution f;
    DL_TRY(dl_contribution_read_header(&f, head, DL_CONTRIBUTION_HEADER));
    if (f.entry % x->capture.n != i || f.fragment >= (uint32_t)x->a.run->manifest.n_fragments)
        return dl_fail(DILOCO_EPROTO, "the saved in-flight contribution is invalid");
    c->there = c->restored = true;
    c->confirmed = c->encoded = x->capture.away[i] = false;
    c->entry = f.entry;
    c->fragment = f.fragment;
    c->base = f.base;
    c->norm = f.norm;
    c->assigned = f.assigned;
    c->stats = f.stats;
    /* The entry may have counted it since; its member then names this body. */
    const object_name of = {.entry = c->entry, .fragment = c->fragment, .generation = x->a.self};
    unsigned char again[DL_CONTRIBUTION_HEADER];
    size_t n_spans;
    DL_TRY(make_object(x, &n_spans, &of, &f, again, c));
    c->body = f.body;
    return DILOCO_OK;
}

/* Marks the captures so that the first REJOIN keeps them. */
diloco_status dl_exec_unpack_in_flight(dl_exec *x)
{
    for (size_t i = 0; i < x->capture.n && x->capture.keeps_in_flight; i++) {
        const unsigned char *head = x->capture.heads + i * DL_CONTRIBUTION_HEADER;
        if (head[0]) DL_TRY(unpack(x, i, head));
    }
    x->capture.unpacked = true;
    return DILOCO_OK;
}
