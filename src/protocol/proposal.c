/* proposal.c - see proposal.h. */
#include "protocol/proposal.h"

#include "base/rng.h"
#include "log/claims.h"
#include "protocol/control_apply.h"
#include "protocol/judge.h"
#include "protocol/mode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void dl_draft_layout(dl_draft *draft, dl_arena *arena, size_t max_members)
{
    draft->slots = DL_ARENA_ARRAY(arena, size_t, max_members);
    draft->facts = DL_ARENA_ARRAY(arena, dl_member_facts, max_members);
    draft->raw = DL_ARENA_ARRAY(arena, uint64_t, max_members);
    draft->weight = DL_ARENA_ARRAY(arena, float, max_members);
}

/* Inserts a member in the order of generations; it is an insertion, since qsort may allocate. */
static void put_member(dl_entry *d, const dl_member *member)
{
    DL_ASSERT(d->n_members < d->cap_members);
    size_t at = d->n_members++;
    for (; at > 0 && dl_generation_compare(&d->members[at - 1].generation, &member->generation) > 0;
         at--)
        d->members[at] = d->members[at - 1];
    d->members[at] = *member;
}

static dl_member member_of(const dl_candidate *k)
{
    return (dl_member){.generation = k->generation,
                       .entry = k->entry,
                       .body = k->facts.body,
                       .stats = k->facts.stats,
                       .bytes = k->len + k->facts.bulk,
                       .held = k->facts.assigned.n ? (uint32_t)(k->facts.assigned.n - 1) : 0};
}

/* The refused ones kept their places until here: a replica that took one would not have been judged
 * with the others. */
static void leave_out_refused(dl_entry *d, const dl_candidate_table *known)
{
    size_t left = 0;
    for (size_t i = 0; i < d->n_members; i++) {
        const dl_candidate *k = dl_candidate_find(known, &d->members[i].generation);
        DL_ASSERT(k);
        if (!k->refused) d->members[left++] = d->members[i];
    }
    d->n_members = left;
}

bool dl_draft_drops(const dl_config *config, uint64_t entry, const char *replica)
{
    dl_rng rng;
    uint32_t name;
    if (config->drop == 0) return false;
    const dl_hash hash = dl_hash_bytes(replica, strlen(replica));
    memcpy(&name, hash.bytes, sizeof name);
    dl_rng_init(&rng, (uint64_t)config->seed, DL_STREAM(DL_STREAM_DROPS, name), entry);
    return dl_rng_f64(&rng) < config->drop;
}

/* A dropped replica was present: the next entry waits for it as for a member. */
static void await_dropped(dl_entry *d, const dl_candidate_table *known, const dl_config *config)
{
    for (size_t i = 0; i < known->n; i++) {
        const dl_candidate *k = &known->at[i];
        if (k->validity == DL_VALID && dl_draft_drops(config, d->entry, k->generation.replica))
            dl_roster_add(&d->roster, k->generation.replica, 0);
    }
}

/* The next entry waits for a replica that skips this one (P9). */
static void await_passing(dl_entry *d, const dl_candidate_table *known)
{
    size_t at;
    for (size_t i = 0; i < known->n; i++) {
        const char *name = known->at[i].generation.replica;
        if (dl_candidate_skips(known, name) && !dl_roster_has(&d->roster, name, &at))
            dl_roster_add(&d->roster, name, 0);
    }
}

void dl_draft_next_roster(dl_entry *d, const dl_draft_source *from)
{
    dl_control_next_roster(&d->roster, from->args->control, d, from->silent);
    await_dropped(d, from->known, from->args->config);
    await_passing(d, from->known);
}

static void put_members(dl_draft *draft, const dl_candidate_table *known, const dl_machine_args *a)
{
    dl_entry *d = &draft->entry;
    const dl_ledger *ledger = a->control->ledger;
    d->n_members = 0;
    for (size_t i = 0; i < known->n && d->n_members < d->cap_members; i++) {
        const dl_candidate *k = &known->at[i];
        if (dl_draft_drops(a->config, d->entry, k->generation.replica)) continue;
        const bool refused = k->validity == DL_VALID && dl_candidate_is_refused(known, k);
        if (!dl_candidate_counts(known, k) && !refused) continue;
        const dl_member member = member_of(k);
        if (!ledger || dl_ledger_has_room(ledger, d, &member)) put_member(d, &member);
    }
    leave_out_refused(d, known);
    dl_candidate_slots(draft->slots, known, d);
}

static bool is_named(const dl_entry *d, const char *replica)
{
    for (size_t i = 0; i < d->n_members; i++)
        if (!strcmp(d->members[i].generation.replica, replica)) return true;
    for (size_t i = 0; i < d->n_rejected; i++)
        if (!strcmp(d->rejected[i].generation.replica, replica)) return true;
    return false;
}

static void put_rejected(dl_entry *d, const dl_candidate_table *known)
{
    d->n_rejected = 0;
    for (size_t i = 0; i < known->n && d->n_members + d->n_rejected < d->cap_members; i++) {
        const dl_candidate *k = &known->at[i];
        if (!dl_candidate_is_refused(known, k) || !dl_judge_names(k->refused)) continue;
        if (is_named(d, k->generation.replica)) continue;
        size_t at = d->n_rejected++;
        for (; at > 0 && dl_generation_compare(&d->rejected[at - 1].generation, &k->generation) > 0;
             at--)
            d->rejected[at] = d->rejected[at - 1];
        d->rejected[at] = (dl_rejected){.generation = k->generation, .bytes = k->len};
        snprintf(d->rejected[at].reason, sizeof d->rejected[at].reason, "%s", k->refused);
    }
    DL_ASSERT(d->n_members + d->n_rejected <= d->cap_members);
}

static void put_bans(dl_entry *d, const dl_draft_source *from)
{
    const dl_bans *bans = from->args->control->bans;
    d->bans = (dl_entry_bans){.there = bans != NULL};
    if (!bans) return;
    dl_bans_copy(from->bans, bans);
    dl_bans_apply(from->bans, d->entry, d);
    d->bans.digest = dl_bans_digest(from->bans);
}

/* Sets the data assignment: the ledger after the draft. */
static void put_assignment(dl_entry *d, const dl_draft_source *from)
{
    const dl_ledger *ledger = from->args->control->ledger;
    d->assignment = (dl_entry_assignment){.there = false};
    if (!ledger) return;
    dl_ledger_copy(from->scratch, ledger);
    dl_ledger_apply(from->scratch, d, &d->roster);
    d->assignment = dl_ledger_assignment(from->scratch);
}

/* Sets the common fields of a commit and an abort; lr, mu and the roster are those of entry e + L
 * (P9). */
static void begin(dl_draft *draft, const dl_draft_source *from, bool commit)
{
    dl_entry *d = &draft->entry;
    const dl_machine_args *a = from->args;
    d->commit = commit;
    d->entry = a->control->entry;
    d->fragment = from->fragment;
    d->position = dl_schedule_capture(&a->pace->schedule, d->entry);
    d->committer = a->self;
    d->prev = a->control->prev;
    d->base = d->result = from->base;
    d->snapshot = from->snapshot;
    const uint64_t later = d->entry + a->control->n_later + 1;
    d->next.lr =
        (float)(a->lr ? a->lr(a->lr_user, later)
                      : dl_outer_lr(a->config, dl_schedule_round(&a->pace->schedule, later)));
    d->next.mu = (float)a->config->outer_mu;
    memset(&d->scalars, 0, sizeof d->scalars);
    d->last = d->entry + 1 >= a->pace->entries;
    d->abort.reason[0] = 0;
    d->combined.there = false;
    d->abort.takeover = d->abort.emptied = false;
    d->abort.voids = 0;
    d->simulated_s = from->simulated_s;
    snprintf(d->run, sizeof d->run, "%s", a->run);
    put_members(draft, from->known, a);
    d->n_rejected = 0;
    if (commit && dl_judge_may_reject(a->config)) put_rejected(d, from->known);
    d->loss = dl_claims_mean_loss(d);
    dl_mode_of(a)->next_roster(d, from);
    put_assignment(d, from);
    put_bans(d, from);
}

static diloco_status put_weights(dl_draft *draft, const dl_draft_source *from)
{
    dl_entry *d = &draft->entry;
    for (size_t i = 0; i < d->n_members; i++) {
        const dl_member *m = &d->members[i];
        const dl_candidate *k = &from->known->at[draft->slots[i]];
        const uint64_t samples = k->facts.stats.holds ? k->facts.stats.holds : m->stats.samples;
        draft->facts[i] = (dl_member_facts){samples, m->stats.steps, m->stats.tokens, k->norm2};
    }
    const bool cuts = dl_mode_of(from->args)->cuts_claims;
    const dl_weighting *rule = from->args->weighting;
    if (cuts) dl_claims_cut(draft->facts, d->n_members);
    DL_TRY(dl_weights_raw(draft->raw, rule, draft->facts, d->n_members));
    if (cuts) dl_claims_cut_weights(draft->raw, d->n_members);
    DL_TRY(dl_weights_share(draft->weight, draft->raw, rule, d->n_members));
    for (size_t i = 0; i < d->n_members; i++) {
        d->members[i].raw = draft->raw[i];
        d->members[i].weight = draft->weight[i];
    }
    return DILOCO_OK;
}

static void put_scalars(dl_entry *d, const dl_draft_source *from)
{
    dl_outer_settings s = dl_outer_settings_of(from->args->config);
    s.lr = (double)from->args->control->lr;
    s.mu = (double)from->args->control->mu;
    s.n_commits = from->n_commits;
    from->args->outer->scalars(d->scalars.value, &s);
}

diloco_status dl_draft_commit(dl_draft *draft, const dl_draft_source *from)
{
    begin(draft, from, true);
    if (draft->entry.n_members == 0 && from->args->config->drop > 0)
        return dl_fail(DILOCO_EINVAL, "run.drop has passed over all contributions");
    DL_TRY(put_weights(draft, from));
    put_scalars(&draft->entry, from);
    return DILOCO_OK;
}

void dl_draft_abort(dl_draft *draft, const dl_draft_source *from, const char *reason)
{
    begin(draft, from, false);
    snprintf(draft->entry.abort.reason, sizeof draft->entry.abort.reason, "%s", reason);
}

void dl_draft_takeover(dl_draft *draft, const dl_draft_source *from)
{
    const dl_generation *before = &from->args->control->committer, *self = &from->args->self;
    dl_draft_abort(draft, from, "");
    DL_ASSERT(before->replica[0]);
    draft->entry.abort.takeover = true;
    snprintf(draft->entry.abort.reason, sizeof draft->entry.abort.reason,
             "%s.%04u takes over from %s", self->replica, (unsigned)self->number, before->replica);
}

void dl_draft_void(dl_draft *draft, const dl_draft_source *from, uint64_t entry)
{
    dl_draft_abort(draft, from, "");
    DL_ASSERT(entry < draft->entry.entry);
    draft->entry.abort.voids = entry + 1;
    snprintf(draft->entry.abort.reason, sizeof draft->entry.abort.reason,
             "an operator voids entry %llu", (unsigned long long)entry);
}

/* Compares bits, not numbers, as entries have them (P2). */
static bool same_bits(const float *a, const float *b, size_t n)
{
    const unsigned char *x = (const void *)a, *y = (const void *)b;
    return memcmp(x, y, n * sizeof *a) == 0;
}

static bool same_rejected(const dl_entry *a, const dl_entry *b)
{
    if (a->n_rejected != b->n_rejected) return false;
    for (size_t i = 0; i < a->n_rejected; i++)
        if (!dl_generation_equal(&a->rejected[i].generation, &b->rejected[i].generation) ||
            strcmp(a->rejected[i].reason, b->rejected[i].reason) != 0)
            return false;
    return true;
}

bool dl_draft_same_step(const dl_entry *a, const dl_entry *b)
{
    if (a->commit != b->commit || a->n_members != b->n_members) return false;
    if (a->combined.there != b->combined.there) return false;
    if (a->combined.there && !dl_hash_equal(a->combined.body, b->combined.body)) return false;
    if (!same_rejected(a, b)) return false;
    if (!same_bits(a->scalars.value, b->scalars.value, DL_OUTER_MAX_SCALARS)) return false;
    for (size_t i = 0; i < a->n_members; i++) {
        const dl_member *x = &a->members[i], *y = &b->members[i];
        if (!dl_hash_equal(x->body, y->body) || x->raw != y->raw ||
            !same_bits(&x->weight, &y->weight, 1))
            return false;
    }
    return true;
}
