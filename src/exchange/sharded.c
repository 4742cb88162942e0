/* sharded.c - every member combines one slice for all (P19):
 *
 *      member     uploads its contribution in slices, b/<e>/<i>/, then the table of their digests
 *      planner    reads the tables when it is its turn, and creates x/<e>/plan/, a draft that names
 *                 no result
 *      owner      of a slice: reads that slice of every member, combines, and creates x/<e>/<i>/.
 *                 With a combiner or checks that measure members, it does so once all slices are
 *                 measured (sharded_measure.c).
 *      planner    reads all of x/<e>/, steps, and creates log/<e> with the digest of all slices
 *      replica    reads log/<e> and all of x/<e>/, and steps
 *
 * The entry's digest defines G, as with a leader. A slice is a function of the plan, so another
 * replica that combines it gets the same bytes. A plan is sealed as an entry is. An owner does not
 * combine a slice if a contribution to it is missing, damaged or not finite. If a slice does not
 * arrive, the planner reads and judges all contributions itself. It does the same if the
 * owners of a slice differ, which shows that one of them is Byzantine. It also does so if the
 * members' norms or dot products show that a check rejects one.
 *
 * Where the store confirms uploads by checksum (P8), no replica reads its own objects back. An
 * owner copies its slice of its own contribution from the payload, and its combined slice from
 * `serving`. It checks both against their digests. */
#include "exchange/sharded_parts.h"

#include "base/log.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static dl_slicing slicing(const dl_exec *x, uint32_t fragment)
{
    return dl_slicing_of(&x->forms[fragment], x->a.run->manifest.fragments[fragment],
                         (size_t)x->a.run->config.replicas);
}

/* The number of slices follows from run.replicas, so it is the same for every entry and replica. */
static diloco_status prepare(dl_exec *x)
{
    const int n = x->a.run->manifest.n_fragments;
    DL_TRY(dl_exec_prepare_combined(x));
    x->combine.slices = calloc((size_t)n, sizeof *x->combine.slices);
    if (!x->combine.slices) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    for (int f = 0; f < n; f++)
        x->combine.slices[f] = slicing(x, (uint32_t)f).n;
    DL_TRY(dl_topology_n_owners(&x->combine.n_owners, &x->a.run->config));
    return dl_measures_prepare(x);
}

/* ---- owners and witnesses -------------------------------------------------------------------- */

/* `spans` has room for one more, the digest, by which a reader checks the object. */
diloco_status dl_service_put(const dl_service *v, dl_owned_key name, dl_span *spans, size_t n,
                             const dl_hash *digest)
{
    dl_key key;
    name(key, v->plan->entry, v->slice, v->owner, v->planner);
    if (v->nth > 0) n = 0;
    spans[n] = (dl_span){digest->bytes, sizeof digest->bytes};
    return dl_store_create(v->x->a.store, key, spans, n + 1, NULL, v->until);
}

/* A witness's object is one digest; another length counts as a different result. */
static diloco_status witness_agrees(bool *differ, dl_hash got, const dl_generation *first,
                                    const dl_generation *witness, const char *key, dl_store *store,
                                    dl_time until)
{
    dl_buf said;
    dl_buf_init(&said, sizeof got);
    diloco_status status = dl_store_get(store, &said, key, until);
    *differ = !status && (said.len != sizeof got || memcmp(said.data, got.bytes, sizeof got) != 0);
    if (*differ)
        status =
            dl_fail(DILOCO_EPROTO, "%s and %s differ: %s", first->replica, witness->replica, key);
    dl_buf_deinit(&said);
    return status;
}

/* The owners follow from the entry's number and members, so no replica can choose its slice
 * (P19.3). */
diloco_status dl_witnesses_agree(bool *differ, const dl_exec *x, const dl_entry *plan,
                                 const dl_generation *planner, size_t i, dl_owned_key name,
                                 dl_hash got, dl_store *store, dl_time until)
{
    const dl_generation *first =
        &plan->members[dl_slice_owner(i, 0, plan->entry, plan->n_members)].generation;
    for (size_t nth = 1; nth < dl_size_min(x->combine.n_owners, plan->n_members); nth++) {
        const size_t owner = dl_slice_owner(i, nth, plan->entry, plan->n_members);
        dl_key key;
        name(key, plan->entry, i, &plan->members[owner].generation, planner);
        DL_TRY(witness_agrees(differ, got, first, &plan->members[owner].generation, key, store,
                              until));
    }
    return DILOCO_OK;
}

static void begin_gathering(dl_gathered *g, uint64_t entry, const dl_generation *planner)
{
    if (g->entry == entry && dl_generation_equal(&g->planner, planner)) return;
    memset(g, 0, sizeof *g);
    g->entry = entry;
    g->planner = *planner;
}

/* Only its planner acts on a plan that yields no update. */
static bool drop_own(dl_exec *x, uint64_t entry, const dl_generation *planner)
{
    if (!dl_generation_equal(planner, &x->a.self)) return false;
    begin_gathering(&x->combine.gathered, entry, planner);
    x->combine.gathered.disputed = true;
    return true;
}

diloco_status dl_exec_drop_plan(dl_exec *x, uint64_t entry, const dl_generation *planner)
{
    if (drop_own(x, entry, planner))
        dl_log(DILOCO_LOG_INFO, "entry %llu: every replica reads all members: %s",
               (unsigned long long)entry, diloco_error_text());
    return DILOCO_EPROTO;
}

diloco_status dl_exec_dispute(dl_exec *x, uint64_t entry, const dl_generation *planner)
{
    if (!drop_own(x, entry, planner)) return DILOCO_EPROTO;
    dl_log(DILOCO_LOG_WARN,
           "entry %llu: owners of a slice gave false results, every replica "
           "reads all members: %s",
           (unsigned long long)entry, diloco_error_text());
    return DILOCO_EPROTO;
}

/* ---- own objects, without reading them back (P8) ------------------------------------------------
 */

/* Returns false if the bytes do not have that digest; the contents of `to` are then invalid. P8.4:
 * bytes in memory are used only under the digest that they had when they were sent. */
static bool copy_slice(const dl_slice_part *to, const dl_slice_part *from, size_t n, dl_hash digest)
{
    for (size_t k = 0; k < n; k++)
        memcpy(to[k].data, from[k].data, to[k].len);
    return dl_hash_equal(dl_slice_digest(to, n), digest);
}

/* Copies a slice of the capture's encoding, if that is still in memory. The digest of the table
 * shows it, since the member's body is that digest. */
static bool copy_made(const dl_slice_part *to, size_t n, const dl_service *v,
                      unsigned char *payload, const dl_hash *table, const dl_capture *c)
{
    dl_slice_part from[DL_SLICE_SPANS];
    dl_slice_parts(from, &v->s, v->slice, payload, c->discrete);
    return dl_hash_equal(dl_digest_bytes(table, v->s.n * sizeof *table), c->body) &&
           copy_slice(to, from, n, table[v->slice]);
}

/* Copies the slice of this generation's own contribution into its slot. */
static bool recall_member(const dl_slice_part *to, size_t n, const dl_service *v,
                          const dl_member *member)
{
    const dl_exec *x = v->x;
    const dl_sent *sent = &x->upload.sent;
    const dl_capture *c = dl_exec_captured(x, member->entry);
    return c && c->confirmed && member->entry >= x->collect.disputed &&
           dl_generation_equal(&member->generation, &x->a.self) &&
           dl_hash_equal(member->body, c->body) &&
           (copy_made(to, n, v, x->upload.payload, x->upload.table, c) ||
            (sent->payload && copy_made(to, n, v, sent->payload, sent->table, c)));
}

/* ---- combining a slice for all ----------------------------------------------------------------
 */

/* Reads the table whose digest the entry's member names as its body. The planner has checked the
 * header. The table's length is checked before it is copied, and its digest has to be the body that
 * the plan names. */
static diloco_status read_table(dl_hash *table, const dl_service *v, dl_store *store,
                                const dl_member *member)
{
    const size_t len = v->s.n * sizeof *table;
    dl_key key;
    dl_buf bytes;
    dl_buf_init(&bytes, DL_CONTRIBUTION_HEADER + len);
    dl_key_contribution(key, member->entry, &member->generation);
    diloco_status status = dl_store_get(store, &bytes, key, v->until);
    if (!status && bytes.len != DL_CONTRIBUTION_HEADER + len)
        status = dl_fail(DILOCO_EPROTO, "%s is no table of %zu slices", key, v->s.n);
    if (!status) memcpy(table, bytes.data + DL_CONTRIBUTION_HEADER, len);
    if (!status && !dl_hash_equal(dl_digest_bytes(table, len), member->body))
        status = dl_fail(DILOCO_EPROTO, "%s does not have the digest of the plan", key);
    dl_buf_deinit(&bytes);
    return status;
}

static bool is_plan(const dl_served *served, const dl_service *v)
{
    return served->entry == v->plan->entry && dl_generation_equal(&served->planner, v->planner);
}

/* Reads the slice of member m into slot m. Only the slice's elements are checked here, since the
 * rest of the slot is not filled. norm2 is that of the slice. */
static diloco_status read_member(void *context, dl_store *store, size_t m)
{
    const dl_service *v = context;
    const dl_member *member = &v->plan->members[m];
    dl_hash table[DL_SLICES_MAX], got;
    dl_slice_part parts[DL_SLICE_SPANS];
    const char *reason;
    size_t first, count;
    dl_key key;
    unsigned char *base = dl_slot_bytes(v->x->collect.slots[m]);
    const size_t n = dl_slice_parts(parts, &v->s, v->slice, base, base + v->s.form->bound);
    if (!recall_member(parts, n, v, member)) {
        DL_TRY(read_table(table, v, store, member));
        dl_key_slice(key, member->entry, v->slice, &member->generation);
        DL_TRY(dl_slice_read(parts, n, &table[v->slice], &got, &reason, store, key, v->until));
    }
    dl_slice_floats(&first, &count, &v->s, v->slice);
    v->x->collect.held[m] = dl_slices_data(&v->s, base);
    return dl_codec_check_part(v->s.form, base, dl_exec_element_bound(v->x), first, count,
                               &v->x->collect.held[m].norm2);
}

static diloco_status check_booleans(const dl_service *v)
{
    for (size_t m = 0; v->slice == 0 && m < v->plan->n_members; m++)
        for (size_t i = 0; i < v->s.shape.n_booleans; i++)
            if (v->x->collect.held[m].booleans[i] > 1)
                return dl_fail(DILOCO_EPROTO, "boolean %zu of %s is neither 0 nor 1", i,
                               v->plan->members[m].generation.replica);
    return DILOCO_OK;
}

/* The members' slots are shared with FETCH, hence `there`. The slice is kept, because it is needed
 * twice if it is measured first. */
diloco_status dl_service_read(dl_service *v)
{
    dl_sliced *held = &v->x->combine.sliced;
    if (held->there && held->slice == v->slice && is_plan(&held->plan, v)) return DILOCO_OK;
    held->there = false;
    DL_TRY(dl_fetchers_run(v->x, v->plan->n_members, read_member, v));
    DL_TRY(check_booleans(v));
    *held = (dl_sliced){true, {v->plan->entry, *v->planner}, v->slice};
    return DILOCO_OK;
}

dl_outer_step_args dl_service_args(const dl_service *v)
{
    size_t slots[DL_MAX_MEMBERS];
    for (size_t m = 0; m < v->plan->n_members; m++)
        slots[m] = m;
    const dl_request request = {.kind = DL_REQUEST_SERVE,
                                .fragment = v->plan->fragment,
                                .step = {.draft = v->plan, .slots = slots}};
    dl_outer_step_args args = dl_exec_step_args(v->x, &request);
    dl_slice_floats(&args.first, &args.count, &v->s, v->slice);
    return args;
}

/* `measured` has the sums of all slices where the rule needs them; else it is NULL. */
static diloco_status combine_slice(const dl_service *v, dl_combined *parts)
{
    dl_exec *x = v->x;
    dl_outer_step_facts facts;
    dl_outer_step_args args = dl_service_args(v);
    args.measured = x->combine.measures;
    return dl_outer_combine(parts, &x->state.now[v->plan->fragment], &args, &facts,
                            x->apply.scratch, x->a.pool);
}

static diloco_status put_combined_slice(const dl_service *v, const dl_combined *combined)
{
    dl_own_slices *own = &v->x->combine.own;
    dl_slice_part parts[DL_SLICE_SPANS];
    dl_span spans[DL_SLICE_SPANS + 1];
    const size_t n = dl_slice_combined(parts, &v->s, v->slice, combined->g, combined->integers);
    const dl_hash digest = dl_slice_digest(parts, n);
    for (size_t k = 0; k < n; k++)
        spans[k] = (dl_span){parts[k].data, parts[k].len};
    DL_TRY(dl_service_put(v, dl_key_combined_slice, spans, n, &digest));
    if (!is_plan(&own->plan, v)) *own = (dl_own_slices){.plan = {v->plan->entry, *v->planner}};
    if (v->nth > 0) return DILOCO_OK; /* a witness uploads only its digest */
    own->digest[v->slice] = digest;
    own->confirmed[v->slice] = dl_store_vouches(v->x->a.store);
    return DILOCO_OK;
}

static diloco_status serve_slice(dl_service *v)
{
    dl_exec *x = v->x;
    DL_TRY(dl_exec_make_combined_slot(x, &x->combine.serving));
    dl_combined parts = dl_exec_combined_parts(x, x->combine.serving, v->plan->fragment);
    DL_TRY(dl_service_read(v));
    DL_TRY(combine_slice(v, &parts));
    return put_combined_slice(v, &parts);
}

/* Calls fn for each slice of the plan that this replica owns. */
static diloco_status each_own(dl_service *v, diloco_status (*fn)(dl_service *v))
{
    const size_t n_members = v->plan->n_members, n = dl_size_min(v->x->combine.n_owners, n_members);
    for (v->slice = 0; v->slice < v->s.n; v->slice++)
        for (v->nth = 0; v->nth < n; v->nth++) {
            const size_t owner = dl_slice_owner(v->slice, v->nth, v->plan->entry, n_members);
            /* an earlier generation of ours counts, too */
            v->owner = &v->plan->members[owner].generation;
            if (!strcmp(v->owner->replica, v->x->a.self.replica)) DL_TRY(fn(v));
        }
    return DILOCO_OK;
}

static diloco_status count_own(dl_service *v)
{
    v->n_own++;
    return DILOCO_OK;
}

/* Measures this replica's slices once; sets *all if the others are measured, too. A planner waits
 * for all, because it has to know which members the checks reject. A planner without a slice
 * measures nothing, and still reads the measures if a check needs them. */
static diloco_status measure(bool *all, dl_service *v)
{
    dl_exec *x = v->x;
    DL_TRY(each_own(v, count_own));
    if (!v->n_own && !(x->combine.compared.numbers && dl_generation_equal(v->planner, &x->a.self)))
        return DILOCO_OK;
    if (!is_plan(&x->combine.measured, v)) DL_TRY(each_own(v, dl_measures_put));
    x->combine.measured = (dl_served){v->plan->entry, *v->planner};
    DL_TRY(dl_measures_gather(all, v));
    if (!*all || !x->combine.compared.numbers || !dl_measures_judge(v)) return DILOCO_OK;
    return dl_exec_drop_plan(x, v->plan->entry, v->planner);
}

static void note_served(dl_exec *x, uint64_t entry, const dl_generation *planner)
{
    x->combine.served[x->combine.n_served++ % DL_SERVED_MAX] = (dl_served){entry, *planner};
}

/* Combines this replica's slices of a plan. If they are measured first, the other owners' measures
 * are needed, too; until they exist this plan is tried again. */
static diloco_status serve(dl_exec *x, const dl_entry *plan, const dl_generation *planner,
                           dl_time until)
{
    bool all = true;
    dl_service v = {.x = x,
                    .plan = plan,
                    .planner = planner,
                    .s = dl_exec_slicing(x, plan->fragment),
                    .until = until};
    for (size_t m = 0; m < plan->n_members; m++)
        DL_TRY(dl_exec_make_slot(x, m));
    if (dl_measures_are_wanted(x)) DL_TRY(measure(&all, &v));
    if (!all) return DILOCO_OK;
    DL_TRY(each_own(&v, serve_slice));
    note_served(x, plan->entry, planner);
    return DILOCO_OK;
}

/* ---- plans -------------------------------------------------------------------------------- */

/* The planner is usually an owner as well, and serves its own plan at once. */
static diloco_status plan_slices(dl_exec *x, const dl_request *request, dl_reply *reply,
                                 dl_time until)
{
    dl_key key;
    dl_key_plan(key, request->entry, &x->a.self);
    dl_buf_clear(&x->text);
    DL_TRY(dl_entry_write(&x->text, request->step.draft, x->state.outer));
    const dl_span span = {x->text.data, x->text.len};
    DL_TRY(dl_store_create(x->a.store, key, &span, 1, NULL, until));
    reply->combined.n_slices = dl_exec_slicing(x, request->fragment).n;
    return serve(x, request->step.draft, &x->a.self, until);
}

static bool was_served(const dl_exec *x, uint64_t entry, const dl_generation *planner)
{
    for (size_t i = 0; i < DL_SERVED_MAX && i < x->combine.n_served; i++)
        if (x->combine.served[i].entry == entry &&
            dl_generation_equal(&x->combine.served[i].planner, planner))
            return true;
    return false;
}

typedef struct plans {
    dl_exec *x;
    uint64_t entry;
    dl_generation at[DL_SERVED_MAX];
    size_t n;
} plans;

/* Collects the plans of this entry that were not handled yet. More than DL_SERVED_MAX plans of one
 * entry wait for the next look. */
static diloco_status found_plan(void *context, const char *key, size_t len)
{
    plans *p = context;
    uint64_t entry;
    dl_generation planner;
    (void)len;
    if (!dl_key_parse_plan(&entry, &planner, key) || entry != p->entry ||
        was_served(p->x, entry, &planner))
        return DILOCO_OK;
    if (p->n < DL_SERVED_MAX) p->at[p->n++] = planner;
    return DILOCO_OK;
}

/* Returns whether the plan is one of this entry and begins from our state. */
static bool fits(const dl_exec *x, const dl_request *request)
{
    const dl_entry *plan = &x->entry;
    return plan->commit && !strcmp(plan->run, x->a.run->id) && plan->entry == request->entry &&
           plan->fragment == request->fragment && plan->n_members <= x->collect.n_slots &&
           dl_hash_equal(plan->base, x->state.now[request->fragment].digest);
}

static diloco_status read_plan(dl_exec *x, const dl_request *request, const dl_generation *planner,
                               dl_time until)
{
    dl_key key;
    dl_key_plan(key, request->entry, planner);
    dl_buf_clear(&x->text);
    DL_TRY(dl_store_get(x->a.store, &x->text, key, until));
    DL_TRY(dl_entry_read(&x->entry, x->text.data, x->text.len, x->state.outer));
    return fits(x, request) ? DILOCO_OK
                            : dl_fail(DILOCO_EPROTO,
                                      "%s plans another entry, or begins from another state", key);
}

/* Serves each plan of the entry. Its planner handles a plan that cannot be served. A plan that was
 * damaged in transit is read again later. */
static diloco_status serve_plans(dl_exec *x, const dl_request *request, dl_reply *reply,
                                 dl_time until)
{
    dl_key folder;
    plans p = {.x = x, .entry = request->entry};
    const size_t before = x->combine.n_served;
    dl_key_plans(folder, request->entry);
    DL_TRY(dl_store_list(x->a.store, folder, NULL, found_plan, &p, until));
    for (size_t i = 0; i < p.n; i++) {
        diloco_status status = read_plan(x, request, &p.at[i], until);
        if (status == DILOCO_EPROTO || status == DILOCO_ENOENT) continue;
        if (!status) status = serve(x, &x->entry, &p.at[i], until);
        if (dl_store_may_recover(x->a.store, status)) return status;
        if (!status) continue;
        dl_log(DILOCO_LOG_INFO, "entry %llu: the slices that %s planned are skipped: %s",
               (unsigned long long)request->entry, p.at[i].replica, diloco_error_text());
        note_served(x, request->entry, &p.at[i]);
    }
    reply->serve.served = x->combine.n_served > before;
    return DILOCO_OK;
}

/* ---- collecting combined slices ----------------------------------------------------------------
 */

static dl_hash digest_of(const dl_hash *digests, size_t n)
{
    return dl_digest_bytes(digests, n * sizeof *digests);
}

dl_hash dl_exec_slices_digest(dl_exec *x, uint32_t fragment)
{
    const dl_slicing s = dl_exec_slicing(x, fragment);
    const dl_combined held = dl_exec_combined_parts(x, x->combine.slot, fragment);
    dl_slice_part parts[DL_SLICE_SPANS];
    dl_hash digests[DL_SLICES_MAX];
    for (size_t i = 0; i < s.n; i++)
        digests[i] = dl_slice_digest(parts, dl_slice_combined(parts, &s, i, held.g, held.integers));
    return digest_of(digests, s.n);
}

typedef struct gathering {
    dl_exec *x;
    const dl_entry *entry;
    dl_slicing s;
    const char *reason[DL_SLICES_MAX];
    bool differ[DL_SLICES_MAX]; /* the owners of a slice differ */
    dl_time until;
} gathering;

/* Before the entry names the result, its planner checks whether all owners of a slice agree. Later
 * the entry has settled it. */
static diloco_status read_witnesses(gathering *g, dl_store *store, size_t i)
{
    dl_exec *x = g->x;
    if (g->entry->combined.bytes > 0 || x->combine.gathered.agreed[i]) return DILOCO_OK;
    DL_TRY(dl_witnesses_agree(&g->differ[i], x, g->entry, &g->entry->combined.generation, i,
                              dl_key_combined_slice, x->combine.gathered.digest[i], store,
                              g->until));
    x->combine.gathered.agreed[i] = true;
    return DILOCO_OK;
}

/* Copies this replica's own slice of the update (P8). */
static bool recall_combined(const dl_slice_part *to, size_t n, const gathering *g, size_t i)
{
    const dl_exec *x = g->x;
    const dl_own_slices *own = &x->combine.own;
    dl_slice_part from[DL_SLICE_SPANS];
    if (!own->confirmed[i] || own->plan.entry != g->entry->entry ||
        !dl_generation_equal(&own->plan.planner, &g->entry->combined.generation))
        return false;
    const dl_combined held = dl_exec_combined_parts(x, x->combine.serving, g->entry->fragment);
    dl_slice_combined(from, &g->s, i, held.g, held.integers);
    return copy_slice(to, from, n, own->digest[i]);
}

static diloco_status read_combined_slice(gathering *g, dl_store *store, size_t i)
{
    dl_exec *x = g->x;
    const dl_combined held = dl_exec_combined_parts(x, x->combine.slot, g->entry->fragment);
    const size_t owner = dl_slice_owner(i, 0, g->entry->entry, g->entry->n_members);
    dl_slice_part parts[DL_SLICE_SPANS];
    size_t first, count;
    dl_key key;
    if (x->combine.gathered.have[i]) return DILOCO_OK;
    const size_t n = dl_slice_combined(parts, &g->s, i, held.g, held.integers);
    dl_key_combined_slice(key, g->entry->entry, i, &g->entry->members[owner].generation,
                          &g->entry->combined.generation);
    if (recall_combined(parts, n, g, i))
        x->combine.gathered.digest[i] = x->combine.own.digest[i];
    else
        DL_TRY(dl_slice_read(parts, n, NULL, &x->combine.gathered.digest[i], &g->reason[i], store,
                             key, g->until));
    dl_slice_floats(&first, &count, &g->s, i);
    g->reason[i] = "non-finite";
    if (dl_first_bad(held.g + first, count, FLT_MAX) < count)
        return dl_fail(DILOCO_EPROTO, "%s holds values that are not finite", key);
    x->combine.gathered.have[i] = true;
    return DILOCO_OK;
}

static diloco_status gather_slice(void *context, dl_store *store, size_t i)
{
    DL_TRY(read_combined_slice(context, store, i));
    return read_witnesses(context, store, i);
}

static uint64_t combined_bytes(const dl_slicing *s)
{
    return s->form->n * sizeof(float) + s->shape.n_integers * sizeof(int64_t) +
           s->shape.n_booleans + s->n * sizeof(dl_hash);
}

/* Slices that arrived stay valid for the next attempt. If the digest is not the entry's, all of
 * them are read again, since any may be damaged. */
static diloco_status collect(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    DL_TRY(dl_exec_make_combined_slot(x, &x->combine.slot));
    const dl_combined_at *named = &request->step.draft->combined;
    gathering g = {.x = x,
                   .entry = request->step.draft,
                   .s = dl_exec_slicing(x, request->fragment),
                   .until = until};
    x->combine.here = false;
    reply->combined.reason = "shape";
    if (named->slices != g.s.n)
        return dl_fail(DILOCO_EPROTO, "entry %llu names %llu slices, the fragment has %zu",
                       (unsigned long long)request->entry, (unsigned long long)named->slices,
                       g.s.n);
    begin_gathering(&x->combine.gathered, request->entry, &named->generation);
    reply->combined.reason = "checksum";
    if (x->combine.gathered.disputed)
        return dl_fail(DILOCO_EPROTO,
                       "entry %llu: the owners of a slice published different results",
                       (unsigned long long)request->entry);
    const diloco_status status = dl_fetchers_run(x, g.s.n, gather_slice, &g);
    for (size_t i = 0; status == DILOCO_EPROTO && i < g.s.n; i++)
        if (g.differ[i]) return dl_exec_dispute(x, request->entry, &named->generation);
    if (status) return status;
    reply->combined.result = digest_of(x->combine.gathered.digest, g.s.n);
    reply->combined.len = combined_bytes(&g.s);
    if (named->bytes == 0 || dl_hash_equal(reply->combined.result, named->body)) return DILOCO_OK;
    memset(x->combine.gathered.have, 0, sizeof x->combine.gathered.have);
    memset(x->combine.own.confirmed, 0, sizeof x->combine.own.confirmed);
    return dl_fail(DILOCO_EPROTO, "the slices in x/ do not give the digest that entry %llu names",
                   (unsigned long long)request->entry);
}

/* A planner lets the owners combine; an audit combines all slices here. */
static diloco_status combine(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    if (request->step.put) return plan_slices(x, request, reply, until);
    DL_TRY(dl_exec_combine_here(x, request));
    memset(&x->combine.gathered, 0, sizeof x->combine.gathered); /* its slices were in that slot */
    reply->combined.result = dl_exec_slices_digest(x, request->fragment);
    return DILOCO_OK;
}

const dl_exec_topology dl_exec_sharded = {
    .prepare = prepare,
    .slicing = slicing,
    .serve = serve_plans,
    .collect = collect,
    .combine = combine,
};
