/* exec.c - see exec.h. One function per request; `handlers` below is the table.
 *
 * Memory: the two copies of the state; one encoded own contribution, or two if uploads are
 * pipelined. A capture for each contribution in flight; if there is one at a time, it is in the
 * copy of the state that is free between entries. A slot for each held contribution, made when it
 * is first needed and kept. */
#include "exchange/exec_parts.h"

#include "base/clock.h"
#include "base/own.h"
#include "log/fields.h"
#include "outer/fragment_state.h"
#include "protocol/async/async.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- create and destroy ------------------------------------------------------------------ */

static size_t n_fragments(const dl_exec *x)
{
    return (size_t)x->a.run->manifest.n_fragments;
}

static size_t n_floats(const dl_fragment_shape *s)
{
    return s->n_trained + s->n_averaged;
}

/* Returns the largest of each number over all fragments. */
static dl_fragment_shape largest(const dl_exec *x)
{
    dl_fragment_shape most = {0};
    for (size_t f = 0; f < n_fragments(x); f++) {
        const dl_fragment_shape *s = &x->a.run->manifest.fragments[f];
        most.n_trained = dl_size_max(most.n_trained, n_floats(s));
        most.n_integers = dl_size_max(most.n_integers, s->n_integers);
        most.n_booleans = dl_size_max(most.n_booleans, s->n_booleans);
    }
    return most;
}

/* Returns the bytes that encoding any fragment needs. */
static size_t payload_room(const dl_exec *x)
{
    size_t room = 0;
    for (size_t f = 0; f < n_fragments(x); f++)
        room = dl_size_max(room, x->forms[f].room);
    return room;
}

/* The arrays of all captures are adjacent, so one private array saves them all. A capture that
 * shares the free copy of the state has no array: dl_exec_capture sets its `g`. */
static void lay_out_captures(dl_exec *x, dl_arena *arena)
{
    const dl_fragment_shape most = largest(x);
    const size_t n = x->capture.n;
    const size_t discrete = most.n_integers * sizeof(int64_t) + most.n_booleans;
    const size_t floats = x->capture.shares_next ? 0 : n * most.n_trained;
    x->capture.at = DL_ARENA_ARRAY(arena, dl_capture, n);
    if (x->upload.pipelined) x->upload.sent.discrete = dl_arena_take(arena, discrete);
    float *g = DL_ARENA_ARRAY(arena, float, floats);
    unsigned char *d = dl_arena_take(arena, n * discrete);
    const size_t room = x->capture.encodes ? payload_room(x) : 0;
    unsigned char *payload = room ? dl_arena_take(arena, n * room) : NULL;
    x->capture.away = DL_ARENA_ARRAY(arena, bool, n);
    x->capture.heads = dl_arena_take(arena, n * DL_CONTRIBUTION_HEADER);
    if (!x->capture.at) return; /* a plan measures the memory only */
    for (size_t i = 0; i < n; i++) {
        x->capture.at[i].g = g + i * most.n_trained;
        x->capture.at[i].discrete = d + i * discrete;
        if (room) x->capture.at[i].payload = payload + i * room;
    }
    /* Otherwise nothing is in flight when the state is saved, or a resume drops it. */
    x->capture.keeps_in_flight = x->mode->keeps_in_flight && !x->capture.shares_next;
    if (!x->capture.keeps_in_flight) return;
    const bool *in_use = &x->capture.in_flight;
    const dl_exec_private all[] = {
        {"diloco.under_way", g, floats * sizeof *g, true, in_use},
        {"diloco.under_way_discrete", d, n * discrete, false, in_use},
        {"diloco.under_way_heads", x->capture.heads, n * DL_CONTRIBUTION_HEADER, false, in_use}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].len) x->capture.privates[x->capture.n_privates++] = all[i];
}

static float *lay_out_floats(dl_exec *x, dl_arena *arena, const char *name)
{
    size_t all = 0;
    for (size_t f = 0; f < n_fragments(x); f++)
        all += n_floats(&x->a.run->manifest.fragments[f]);
    float *floats = DL_ARENA_ARRAY(arena, float, all);
    if (floats)
        x->capture.privates[x->capture.n_privates++] =
            (dl_exec_private){.name = name, .data = floats, .len = all * sizeof *floats, true};
    return floats;
}

/* Lays out the arrays that are saved with the local tensors. */
static void lay_out_beside(dl_exec *x, dl_arena *arena)
{
    const size_t n = n_fragments(x);
    const bool rounds = x->schedule.overlap != DL_OVERLAP_STEPS;
    const bool eager = x->schedule.overlap == DL_OVERLAP_EAGER;
    size_t all = 0;
    x->capture.f32_at = DL_ARENA_ARRAY(arena, size_t, n + 1);
    for (size_t f = 0; f <= n; f++) {
        if (x->capture.f32_at) x->capture.f32_at[f] = all;
        if (f < n) all += n_floats(&x->a.run->manifest.fragments[f]);
    }
    if (x->a.run->config.error_feedback > 0)
        x->capture.residual = lay_out_floats(x, arena, "diloco.residual");
    if (rounds) x->capture.start = lay_out_floats(x, arena, "diloco.round_start");
    if (eager) x->capture.own_momentum = lay_out_floats(x, arena, "diloco.own_momentum");
    if (eager) x->capture.share = DL_ARENA_ARRAY(arena, float, largest(x).n_trained);
    if (eager) x->capture.share_payload = dl_arena_take(arena, payload_room(x));
    if (rounds) x->capture.start_base = DL_ARENA_ARRAY(arena, dl_hash, n);
    if (x->capture.start_base)
        x->capture.privates[x->capture.n_privates++] =
            (dl_exec_private){.name = "diloco.round_base",
                              .data = x->capture.start_base,
                              .len = n * sizeof *x->capture.start_base};
}

static void lay_out_trainer(dl_exec *x, dl_arena *arena)
{
    const size_t room = payload_room(x);
    if (x->packer) x->upload.gap = dl_pack_gap(room);
    x->capture.local = DL_ARENA_ARRAY(arena, dl_local_tensor, x->a.n_tensors);
    x->capture.tensor_of = DL_ARENA_ARRAY(arena, size_t, x->a.n_tensors);
    x->capture.first = DL_ARENA_ARRAY(arena, size_t, n_fragments(x) + 1);
    x->capture.norm2 = DL_ARENA_ARRAY(arena, double, largest(x).n_trained / DL_BLOCK + 1);
    if (x->a.moves) x->capture.theta_on_device = DL_ARENA_ARRAY(arena, dl_hash, n_fragments(x));
    x->upload.payload = dl_arena_take(arena, x->upload.gap + room);
    if (x->upload.pipelined) x->upload.sent.payload = dl_arena_take(arena, x->upload.gap + room);
    lay_out_beside(x, arena);
    lay_out_captures(x, arena);
}

/* Lays out all arrays once. The first call has an empty arena and only measures; the second assigns
 * the addresses. */
static void layout(dl_exec *x, dl_arena *arena)
{
    const size_t m = x->a.max_members;
    if (x->a.tensors) lay_out_trainer(x, arena);
    x->collect.slots = DL_ARENA_ARRAY(arena, dl_slot *, x->collect.n_slots);
    x->collect.held = DL_ARENA_ARRAY(arena, dl_contribution_data, x->collect.n_slots);
    x->apply.members = DL_ARENA_ARRAY(arena, dl_contribution_data, m);
    x->apply.weight = DL_ARENA_ARRAY(arena, float, m);
    x->apply.raw = DL_ARENA_ARRAY(arena, uint64_t, m);
    x->apply.probed = DL_ARENA_ARRAY(arena, double, m + 1);
    x->collect.listed = DL_ARENA_ARRAY(arena, dl_listed, x->collect.n_slots);
    x->collect.seen = DL_ARENA_ARRAY(arena, dl_seen, x->collect.cap_seen);
    if (x->ring) x->collect.beating = DL_ARENA_ARRAY(arena, dl_beating_row, x->collect.cap_seen);
    x->upload.spans = DL_ARENA_ARRAY(arena, dl_span, 3);
}

enum { LENT_MORE = 1 << 20 }; /* bytes of tables beside moments, such as options as text */

/* In the order of fragments, and of regions within a fragment. */
static void list_local_tensors(dl_exec *x)
{
    const dl_manifest *m = &x->a.run->manifest;
    size_t n = 0;
    for (size_t f = 0; f < n_fragments(x); f++) {
        x->capture.first[f] = n;
        for (int region = 0; region < DL_N_REGIONS; region++)
            for (size_t i = 0; i < x->a.n_tensors; i++) {
                const dl_manifest_tensor *t = &m->tensors[i];
                if (t->fragment != (int)f || t->region != (dl_region)region) continue;
                x->capture.tensor_of[n] = i;
                x->capture.local[n++] = (dl_local_tensor){.data = x->a.tensors[i].data,
                                                          .begin = t->offset,
                                                          .count = t->count,
                                                          .region = t->region};
            }
    }
    x->capture.first[n_fragments(x)] = n;
}

static diloco_status make_forms(dl_exec *x)
{
    const dl_manifest *manifest = &x->a.run->manifest;
    x->forms = calloc((size_t)manifest->n_fragments, sizeof *x->forms);
    if (!x->forms) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    for (int f = 0; f < manifest->n_fragments; f++)
        DL_TRY(dl_codec_form_init(&x->forms[f], &x->a.run->config, manifest, f));
    return DILOCO_OK;
}

static diloco_status make_probing(dl_exec *x)
{
    const dl_probing_args args = {.manifest = &x->a.run->manifest,
                                  .forms = x->forms,
                                  .measure = x->a.probe,
                                  .user = x->a.probe_user};
    return dl_probing_create(&x->apply.probing, &args);
}

/* Each replica of the known rosters, and this one, has two rows: for its heartbeat and its end. */
static size_t room_for_seen(size_t max_members, size_t n_rosters)
{
    const size_t awaited = 1 + n_rosters * max_members;
    return dl_size_max(8 * max_members, 2 * awaited + DL_EXEC_SEEN_OTHER);
}

/* `next` may be lent if it is in memory, is one piece, and no entry is computed between a due point
 * and the upload of its contribution. Returns the bytes that it should have. A much larger copy of
 * the state would cost more than it saves. */
static size_t lent_len(dl_exec *x, const dl_outer *outer)
{
    const size_t len = dl_state_bytes(&x->a.run->manifest, outer, 1);
    x->lending.possible = x->a.beside && x->capture.n == 1 && x->mode->may_share_next &&
                          x->a.n_copies == 2 && n_fragments(x) == 1 && !x->a.offload_dir;
    return x->lending.possible && x->a.lent_len <= len + len / 16 + LENT_MORE ? x->a.lent_len : 0;
}

/* The order matters: forms give the sizes of payloads, and the schedule gives the number of
 * captures. Both precede the layout. The topology comes last, because it needs slots and forms.
 * After an error dl_exec_destroy releases what exists. */
static diloco_status take_memory(dl_exec *x)
{
    dl_arena measure = {0};
    DL_TRY(make_forms(x));
    if (x->a.run->config.compression == DL_COMPRESSION_ZSTD) DL_TRY(dl_packer_create(&x->packer));
    DL_TRY(dl_schedule_of(&x->schedule, &x->a.run->config, x->a.run->manifest.n_fragments));
    x->mode = dl_exec_mode_of(&x->schedule, &x->a.run->config);
    const size_t ahead = dl_schedule_ahead(&x->schedule);
    x->capture.n = ahead;
    x->collect.cap_seen = room_for_seen(x->a.max_members, ahead);
    x->capture.shares_next = ahead == 1 && !x->a.beside && x->mode->may_share_next &&
                             x->a.run->config.error_feedback == 0;
    x->capture.encodes = dl_exec_encodes_on_device(x);
    x->capture.largest = largest(x).n_trained;
    DL_TRY(dl_topology_choose(&x->combine.topology_kind, &x->a.run->config, &x->a.run->manifest));
    x->combine.topology = dl_exec_topology_of(x->combine.topology_kind);
    x->upload.pipelined = ahead > 1 && x->a.beside && x->a.tensors;
    layout(x, &measure);
    DL_TRY(dl_arena_init(&x->arena, measure.used));
    layout(x, &x->arena);
    if (x->a.tensors) list_local_tensors(x);
    DL_TRY(dl_exec_prepare_device(x));
    const dl_outer *outer = dl_outer_of(&x->a.run->config);
    if (!outer) return dl_no_row("outer optimizer", x->a.run->config.outer_optimizer);
    const dl_state_args state = {.manifest = &x->a.run->manifest,
                                 .outer = outer,
                                 .max_members = x->a.max_members,
                                 .n_copies = x->a.n_copies,
                                 .ahead = ahead,
                                 .folder = x->a.offload_dir,
                                 .copy_len = lent_len(x, outer)};
    DL_TRY(dl_state_init_as(&x->state, &state));
    DL_TRY(dl_state_assign_data(&x->state, &x->a.run->config, &x->schedule, x->a.max_members));
    DL_TRY(dl_fetchers_create(x));
    DL_TRY(dl_lister_create(x));
    if (x->a.probe) DL_TRY(make_probing(x));
    dl_combine_rule rule;
    DL_TRY(dl_combine_rule_of(&rule, &x->a.run->config));
    DL_TRY(dl_outer_scratch_create(&x->apply.scratch, &x->a.run->manifest, &rule, x->a.max_members,
                                   dl_pool_size(x->a.pool)));
    DL_TRY(dl_outer_scratch_reserve(x->apply.scratch, &x->a.run->manifest, outer));
    return x->combine.topology->prepare(x);
}

diloco_status dl_exec_create(dl_exec **out, const dl_exec_args *args)
{
    *out = NULL;
    dl_exec *x = calloc(1, sizeof *x);
    if (!x) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    x->a = *args;
    x->collect.n_slots = 2 * args->max_members;
    pthread_mutex_init(&x->lending.lock, NULL);
    dl_cond_init(&x->lending.changed);
    dl_buf_init(&x->text, DL_ENTRY_TEXT_MAX);

    diloco_status status = dl_entry_init(&x->entry, args->max_members);
    if (!status && args->run->identity.policy != DL_TRUSTED)
        status = dl_keyring_create(&x->ring, args->store, args->run, args->signer);
    if (!status) status = take_memory(x);
    if (status) {
        dl_exec_destroy(x);
        return status;
    }
    *out = x;
    return DILOCO_OK;
}

void dl_exec_destroy(dl_exec *x)
{
    if (!x) return;
    for (size_t i = 0; x->collect.slots && i < x->collect.n_slots; i++)
        dl_slot_destroy(x->collect.slots[i]);
    for (int f = 0; x->forms && f < x->a.run->manifest.n_fragments; f++)
        dl_codec_form_deinit(&x->forms[f]);
    for (int f = 0; x->combine.plain && f < x->a.run->manifest.n_fragments; f++)
        dl_codec_form_deinit(&x->combine.plain[f]);
    free(x->forms);
    free(x->combine.plain);
    free(x->combine.slices);
    dl_measures_deinit(x);
    dl_slot_destroy(x->combine.slot);
    dl_slot_destroy(x->combine.serving);
    dl_fetchers_destroy(x);
    dl_lister_destroy(x);
    dl_keyring_destroy(x->ring);
    dl_collector_deinit(&x->apply.collector);
    dl_probing_destroy(x->apply.probing);
    dl_packer_destroy(x->packer);
    dl_outer_scratch_destroy(x->apply.scratch);
    dl_state_deinit(&x->state);
    pthread_cond_destroy(&x->lending.changed);
    pthread_mutex_destroy(&x->lending.lock);
    dl_buf_deinit(&x->text);
    dl_entry_deinit(&x->entry);
    dl_arena_deinit(&x->arena);
    free(x);
}

dl_state *dl_exec_state(dl_exec *x)
{
    return &x->state;
}

size_t dl_exec_later(const dl_exec *x)
{
    if (atomic_load(&x->apply.computed)) return 0;
    const bool in_memory = x->a.n_copies > 1 && !x->a.offload_dir;
    return x->arena.used + (in_memory ? dl_state_bytes(&x->a.run->manifest, x->state.outer, 1) : 0);
}

dl_topology_kind dl_exec_topology_kind(const dl_exec *x)
{
    return x->combine.topology_kind;
}
const uint64_t *dl_exec_slices(const dl_exec *x)
{
    return x->combine.slices;
}
const dl_exec_facts *dl_exec_measured(const dl_exec *x)
{
    return &x->facts;
}

const dl_listed *dl_exec_listed(const dl_exec *x, size_t *n)
{
    *n = x->collect.n_listed;
    return x->collect.listed;
}

/* ---- reading ---------------------------------------------------------------------------- */

static diloco_status do_read(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    dl_buf_clear(&x->text);
    DL_TRY(dl_buf_reserve(&x->text, 1)); /* an empty text is valid */
    const diloco_status status = dl_entry_get(&x->text, x->a.store, request->entry, until);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    reply->read.text = x->text.data;
    reply->read.text_len = x->text.len;
    return status;
}

diloco_status dl_exec_key_of(const dl_public **out, const char **reason, dl_exec *x,
                             const char *replica, dl_time until)
{
    const char *why;
    *out = NULL;
    if (!x->ring) return DILOCO_OK;
    DL_TRY(dl_keyring_find(out, &why, x->ring, replica, until));
    if (*out) return DILOCO_OK;
    *reason = "signature";
    return dl_fail(DILOCO_EPROTO, "%s has no key in this run: %s", replica, why);
}

static diloco_status probe(dl_exec *x, const dl_request *request, dl_reply *reply)
{
    DL_TRY(dl_probing_measure(x->apply.probing, x->apply.probed, &x->state, (int)request->fragment,
                              x->apply.members, request->judge.n_slots));
    reply->judge.probed = x->apply.probed;
    return DILOCO_OK;
}

/* The members' data are those of the slots that the machine names. Directions need every pair of
 * members, and are computed only if a check uses them. */
static diloco_status do_judge(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    (void)until;
    for (size_t i = 0; i < request->judge.n_slots; i++)
        x->apply.members[i] = x->collect.held[request->judge.slots[i]];
    if (request->judge.probe && x->apply.probing) DL_TRY(probe(x, request, reply));
    if (!request->judge.whole || !dl_config_checks_directions(&x->a.run->config)) return DILOCO_OK;
    const dl_outer_step_args args = {.manifest = &x->a.run->manifest,
                                     .fragment = (int)request->fragment,
                                     .form = &x->forms[request->fragment],
                                     .outer = x->state.outer,
                                     .n_members = request->judge.n_slots,
                                     .members = x->apply.members};
    reply->judge.gram = dl_outer_gram(&args, x->apply.scratch, x->a.pool);
    return DILOCO_OK;
}

/* ---- deciding --------------------------------------------------------------------------- */

/* Returns the number of members rejected for what only they can have done. */
static size_t n_struck(const dl_entry *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_rejected; i++)
        n += dl_bans_is_strike(e->rejected[i].reason);
    return n;
}

/* The weights are those of the entry and are not derived again (P2.1). */
dl_outer_step_args dl_exec_step_args(dl_exec *x, const dl_request *request)
{
    const dl_entry *e = request->step.draft;
    const bool combined = request->kind == DL_REQUEST_COMPUTE && e->combined.there;
    size_t own = 0;
    for (size_t i = 0; i < e->n_members; i++) {
        if (!combined) x->apply.members[i] = x->collect.held[request->step.slots[i]];
        x->apply.weight[i] = e->members[i].weight;
        x->apply.raw[i] = e->members[i].raw;
        if (!combined && dl_generation_equal(&e->members[i].generation, &x->a.self)) own = i + 1;
    }
    dl_outer_step_args args = {.manifest = &x->a.run->manifest,
                               .fragment = (int)request->fragment,
                               .form = &x->forms[request->fragment],
                               .outer = x->state.outer,
                               .n_members = e->n_members,
                               .n_rejected = n_struck(e),
                               .own = own,
                               .members = x->apply.members,
                               .weight = x->apply.weight,
                               .raw = x->apply.raw};
    memcpy(args.scalars, e->scalars.value, sizeof args.scalars);
    return args;
}

static diloco_status compute(dl_exec *x, dl_fragment_state *next, const dl_request *request)
{
    if (request->step.draft->combined.there) return dl_exec_compute_combined(x, next, request);
    const dl_outer_step_args args = dl_exec_step_args(x, request);
    return dl_outer_step(next, &x->state.now[request->fragment], &args, &x->facts.outer,
                         x->apply.scratch, x->a.pool);
}

/* A draft is computed into `next`, so a lost race leaves `now` as it was. A reader has one copy and
 * computes in place. */
static diloco_status do_compute(dl_exec *x, const dl_request *request, dl_reply *reply,
                                dl_time until)
{
    (void)until;
    dl_fragment_state *now = &x->state.now[request->fragment];
    dl_fragment_state *next = x->a.n_copies > 1 ? &x->state.next[request->fragment] : now;
    if (next != now) dl_exec_use_next(x, request->entry);
    const dl_time began = dl_clock_now();
    if (request->step.draft->commit)
        DL_TRY(compute(x, next, request));
    else
        dl_state_empty(next, now, x->a.run->manifest.fragments[request->fragment], x->state.outer,
                       x->a.pool);
    x->facts.compute_s = dl_seconds(dl_clock_now() - began);
    atomic_store(&x->apply.computed, true);
    reply->compute.result = next->digest;
    return DILOCO_OK;
}

/* A create without an answer may have succeeded. The machine reads the name back in any case
 * (P5.3). */
static diloco_status do_create(dl_exec *x, const dl_request *request, dl_reply *reply,
                               dl_time until)
{
    dl_key key;
    dl_key_entry(key, request->entry);
    dl_buf_clear(&x->text);
    DL_TRY(dl_entry_write(&x->text, request->step.draft, x->state.outer));
    if (x->ring) {
        const dl_statement what = dl_entry_statement(request->step.draft);
        DL_TRY(dl_sealed_sign(&x->text, 0, x->a.signer, &what));
    }
    const dl_span span = {x->text.data, x->text.len};
    const diloco_status status =
        dl_store_create(x->a.store, key, &span, 1, &reply->create.taken, until);
    return status == DILOCO_EEXIST ? DILOCO_OK : status; /* P5: losing is normal */
}

/* The residual advances here and nowhere else, once the entry has counted the contribution
 * (P17). */
static diloco_status do_swap(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    (void)reply, (void)until;
    if (x->a.n_copies > 1) dl_state_swap(&x->state, (int)request->fragment);
    if (request->swap.counted) dl_exec_settle(x, request);
    if (x->a.beside) dl_state_put_out(&x->state, (int)request->fragment); /* until it is adopted */
    return DILOCO_OK;
}

static diloco_status do_snapshot(dl_exec *x, const dl_request *request, dl_reply *reply,
                                 dl_time until)
{
    (void)request;
    x->apply.collector.now = reply->now;
    return dl_snapshot_and_collect(&x->apply.collector, x->a.store, &x->state, x->a.run, &x->a.self,
                                   x->a.signer, until);
}

/* Sets *out if the entry is a commit whose contributions were deleted (P25). Then no replay can
 * pass it, and an older snapshot is useless. */
static diloco_status is_collected(dl_exec *x, bool *out, uint64_t entry, dl_time until)
{
    const dl_request log = {.kind = DL_REQUEST_READ, .entry = entry};
    const dl_request named = {.kind = DL_REQUEST_LIST, .entry = entry};
    dl_reply reply = {.kind = DL_REQUEST_READ}, listing = {.kind = DL_REQUEST_LIST};
    *out = false;
    if (entry == UINT64_MAX || x->mode->names_bases) return DILOCO_OK;
    DL_TRY(do_read(x, &log, &reply, until));
    const dl_entry_place place = dl_runfile_place(x->a.run, entry);
    if (!reply.read.text ||
        dl_entry_read_at(&x->entry, reply.read.text, reply.read.text_len, &place))
        return DILOCO_OK;
    DL_TRY(dl_exec_list(x, &named, &listing, until));
    *out = x->entry.commit && listing.list.n_listed == 0;
    return DILOCO_OK;
}

/* A peer's bytes may have led to this rejoin. So contributions up to the next entry are read from
 * the store alone from now on (P8.7). */
static diloco_status do_rejoin(dl_exec *x, const dl_request *request, dl_reply *reply,
                               dl_time until)
{
    bool collected;
    const uint64_t before = x->apply.loaded ? x->state.control.entry : request->entry;
    (void)reply;
    dl_exec_end_use(x);
    if (!x->capture.unpacked) dl_exec_forget(x);
    if (x->apply.loaded) x->collect.disputed = x->state.control.entry + 2;
    collected = false;
    if (!request->rejoin.voided) DL_TRY(is_collected(x, &collected, request->entry, until));
    DL_TRY(dl_snapshot_read_newest(&x->state, x->a.store, x->a.run, x->a.run_digest,
                                   collected ? UINT64_MAX : request->entry, x->a.pool, until));
    x->apply.loaded = true;
    dl_state_put_out_all(&x->state);
    /* The outcome of the entries in between is not known here. */
    if (x->state.control.entry > request->entry) dl_exec_forget(x);
    if (x->state.control.entry > before) dl_exec_clear_residual(x);
    x->capture.unpacked = false;
    return DILOCO_OK;
}

static diloco_status do_combine(dl_exec *x, const dl_request *request, dl_reply *reply,
                                dl_time until)
{
    DL_ASSERT(x->combine.topology->combine);
    return x->combine.topology->combine(x, request, reply, until);
}

static diloco_status do_fetch_combined(dl_exec *x, const dl_request *request, dl_reply *reply,
                                       dl_time until)
{
    DL_ASSERT(x->combine.topology->collect);
    return x->combine.topology->collect(x, request, reply, until);
}

static diloco_status do_serve(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    DL_ASSERT(x->combine.topology->serve);
    return x->combine.topology->serve(x, request, reply, until);
}

static const dl_exec_fn handlers[] = {
    [DL_REQUEST_READ] = do_read,
    [DL_REQUEST_EXTENT] = dl_exec_extent,
    [DL_REQUEST_CONTRIBUTE] = dl_exec_contribute,
    [DL_REQUEST_LIST] = dl_exec_list,
    [DL_REQUEST_FETCH] = dl_exec_fetch,
    [DL_REQUEST_JUDGE] = do_judge,
    [DL_REQUEST_COMBINE] = do_combine,
    [DL_REQUEST_FETCH_COMBINED] = do_fetch_combined,
    [DL_REQUEST_SERVE] = do_serve,
    [DL_REQUEST_COMPUTE] = do_compute,
    [DL_REQUEST_CREATE] = do_create,
    [DL_REQUEST_SWAP] = do_swap,
    [DL_REQUEST_WATCH] = dl_exec_watch,
    [DL_REQUEST_REJOIN] = do_rejoin,
    [DL_REQUEST_SNAPSHOT] = do_snapshot,
};

void dl_exec_do(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    DL_ASSERT((size_t)request->kind < sizeof handlers / sizeof handlers[0] &&
              handlers[request->kind]);
    *reply = (dl_reply){.kind = request->kind, .now = reply->now};
    if (request->kind != DL_REQUEST_FETCH) dl_exec_forget_fetched(x);
    reply->status = handlers[request->kind](x, request, reply, until);
}
