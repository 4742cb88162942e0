/* sim_referee.c - the invariants of a simulated cluster (the list at the top of cluster_sim.c), and
 * the events that must have happened in it. */
#include "exchange/exec_parts.h"
#include "inspect/replay.h"
#include "protocol/logical_clients.h"
#include "sim.h"
#include "tensor/cut.h"
#include "tensor/kernels.h"

#include <math.h>
#include <string.h>

uint64_t sim_happened[SIM_N_HAPPENINGS];

static const char *const happenings[] = {
#define X(name, text) text,
    SIM_HAPPENINGS(X)
#undef X
};

void sim_print_happenings(void)
{
    for (int i = 0; i < SIM_N_HAPPENINGS; i++)
        printf("%8llu %s\n", (unsigned long long)sim_happened[i], happenings[i]);
}

bool sim_all_happened(const char *topology)
{
    bool all = true;
    const int n = !strcmp(topology, "allgather") ? SIM_FIRST_OF_LEADER
                  : !strcmp(topology, "leader")  ? SIM_FIRST_OF_SHARDED
                                                 : SIM_N_HAPPENINGS;
    for (int i = 0; i < n; i++) {
        const bool wide = (size_t)N_FLOATS > DL_BLOCK;
        const bool whole =
            i == SIM_PROBED || i == SIM_APPLIED_BESIDE; /* not of what is in slices */
        const bool keyed =
            i == SIM_INTRUDED || i == SIM_FORGED_BEAT || i == SIM_RENEWED || i == SIM_PASSED_OVER;
        const bool open = i == SIM_RENAMED; /* a roster for allgather alone */
        if (sim_happened[i] || ((whole || keyed) && !strcmp(topology, "sharded"))) continue;
        if (open && strcmp(topology, "allgather") != 0) continue;
        if (i == SIM_UNREADABLE && n != SIM_FIRST_OF_LEADER) continue; /* one reads it, for all */
        if (i == (wide ? SIM_LIE_FOUND : SIM_DIED_BETWEEN)) continue;  /* sim_net.c says why */
        fprintf(stderr, "not once: %s\n", happenings[i]);
        all = false;
    }
    return all;
}

/* Tensors, and the replicas that the next entry waits for. The bytes after a name's end may be
 * anything, such as those of a longer name. */
static dl_hash state_hash(const dl_state *state)
{
    struct {
        dl_hash tensors, names, misses;
    } of = {.tensors = dl_state_digest_all(state)};
    const dl_roster *r = &state->control.roster;
    for (size_t i = 0; i < r->n; i++) {
        const dl_hash both[] = {of.names, dl_hash_bytes(r->names[i], strlen(r->names[i]))};
        of.names = dl_hash_bytes(both, sizeof both);
    }
    of.misses = dl_hash_bytes(r->misses, r->n * sizeof *r->misses);
    return dl_hash_bytes(&of, sizeof of);
}

void sim_check_digest(replica *r)
{
    sim *s = r->sim;
    const dl_state *state = dl_exec_state(r->exec);
    const uint64_t e = state->control.entry;
    const dl_hash all = state_hash(state);
    if (r->kind.byzantine || e > ENTRIES) return;
    if (s->truth.known[e] && !dl_hash_equal(s->truth.digest[e], all))
        DIE(s, "I1: %s has another state after %llu entries", r->name, (unsigned long long)e);
    s->truth.known[e] = true;
    s->truth.digest[e] = all;
}

void sim_check_moved(replica *r, const dl_request *swap)
{
    sim_check_digest(r);
    if (r->kind.byzantine) return;
    r->sim->truth.moved[swap->entry] = dl_exec_state(r->exec)->now[swap->fragment].digest;
    r->sim->truth.has_moved[swap->entry] = true;
}

/* ---- generations and heartbeats */

void sim_see_generations(replica *r, const dl_reply *listing)
{
    for (size_t i = 0; i < listing->list.n_listed; i++) {
        const dl_generation *generation = &listing->list.listed[i].generation;
        if (!strcmp(generation->replica, r->name) && generation->number > r->generation.number)
            r->now.saw_later = true;
    }
}

void sim_check_generation(const replica *r)
{
    if (r->now.saw_later)
        DIE(r->sim, "I7: %s.%u goes on, though it has seen a later life of its own", r->name,
            (unsigned)r->generation.number);
}

/* A heartbeat counts as seen when it is put just now and its name is old enough for any listing. */
void sim_check_removal(const sim *s, const char *key)
{
    uint64_t entry;
    dl_generation generation;
    if (s->schedule.async || !dl_key_parse_contribution(&entry, &generation, key)) return;
    for (size_t i = 0; i < s->n_slots; i++) {
        const replica *r = &s->replicas[i];
        const bool beats =
            r->now.alive && dl_generation_equal(&r->beat.generation, &r->generation) &&
            !r->kind.has_twin && r->beat.last == s->now && s->now - r->beat.first > SIM_STALEST;
        if (beats && r->beat.entry <= entry)
            DIE(s, "I8: %s is removed, and %s has just said that it is at entry %llu", key, r->name,
                (unsigned long long)r->beat.entry);
    }
}

/* A replica whose own has counted trains on when the grace is over (P20): it needs no other
 * entry. */
void sim_check_wait(const replica *r)
{
    const dl_pace *p = &r->pace;
    if (r->request.kind != DL_REQUEST_WAIT || r->request.wait.until != DL_NEVER ||
        !p->schedule.async)
        return;
    if (p->n_captured > p->next_adopt && p->captures[0].counted)
        DIE(r->sim, "I4: %s waits for an entry, and entry %llu is behind its own", r->name,
            (unsigned long long)r->request.entry);
}

void sim_check_ends(const sim *s)
{
    for (size_t i = 0; i < s->n; i++) {
        bool ended = false;
        for (size_t k = i; k < s->n_slots; k++)
            ended |= (s->replicas[k].now.ended || s->replicas[k].now.lost) &&
                     !strcmp(s->replicas[k].name, s->replicas[i].name);
        if (!ended) DIE(s, "I4: no life of %s comes to the end", s->replicas[i].name);
    }
}

void sim_check_base(const replica *r, uint64_t entry, dl_hash began)
{
    const dl_capture *c = dl_exec_captured(r->exec, entry);
    if (r->kind.byzantine) return; /* it may have voided a valid entry */
    if (r->sim->config.on_uncounted == DL_UNCOUNTED_KEEP)
        return; /* continues from its own parameters */
    if (!c || !dl_hash_equal(began, c->base))
        DIE(r->sim, "I6: what %s takes for entry %llu began from another state than it says",
            r->name, (unsigned long long)entry);
}

/* A flipped read is damaged, not changed: its check does not fit. So an entry and its members are
 * the same when it is adopted as when it was read first (ALG-29). */
void sim_check_text(sim *s, uint64_t e, const void *text, size_t len)
{
    const dl_hash digest = dl_hash_bytes(text, len);
    if (e >= ENTRIES || (s->truth.read[e] && dl_hash_equal(s->truth.text[e], digest))) return;
    const dl_entry_place place = dl_runfile_place(&s->file, e);
    if (dl_entry_read_at(&s->truth.entry, text, len, &place)) return;
    if (s->truth.read[e]) DIE(s, "I2: entry %llu changed", (unsigned long long)e);
    s->truth.read[e] = true;
    s->truth.text[e] = digest;
}

void sim_audit(sim *s)
{
    dl_exec *exec;
    dl_replay_report report;
    const dl_exec_args args = {.store = s->store,
                               .run = &s->file,
                               .run_digest = s->file_digest,
                               .max_members = dl_clients_max_members(&s->config),
                               .n_copies = 2};
    const bool all = s->file.config.retain == DL_RETAIN_ALL;
    if (dl_exec_create(&exec, &args)) DIE(s, "I5: %s", diloco_error_text());
    dl_state *state = dl_exec_state(exec);
    uint64_t first = 0;
    diloco_status got = DILOCO_OK;
    if (all)
        got = dl_snapshot_read_newest(state, s->store, &s->file, s->file_digest, 0, NULL, DL_NEVER);
    if (!got && all) got = dl_replay(&report, exec, &s->file, true, ENTRIES, NULL, NULL);
    if (!all)
        got = dl_snapshot_read_oldest(state, s->store, &s->file, s->file_digest, 0, NULL, DL_NEVER);
    if (!got && !all) got = dl_replay_kept(&report, &first, exec, ENTRIES, NULL, NULL, DL_NEVER);
    if (got) DIE(s, "I5: the audit stops: %s", diloco_error_text());
    if (state->control.entry != ENTRIES)
        DIE(s, "I5: the audit ends at %llu", (unsigned long long)state->control.entry);
    if (!dl_hash_equal(state_hash(state), s->truth.digest[ENTRIES]))
        DIE(s, "I5: the audit gives another state");
    const dl_ledger *ledger = state->control.ledger;
    if (s->kind.exact && s->count.all &&
        s->count.samples + dl_ledger_open(ledger) != dl_ledger_cursor(ledger))
        DIE(s, "I3: %llu samples were counted, %llu of %llu dealt ones were not",
            (unsigned long long)s->count.samples, (unsigned long long)dl_ledger_open(ledger),
            (unsigned long long)dl_ledger_cursor(ledger));
    if (all && (report.disputes < s->lies.n_captured ||
                report.disputes > s->lies.n_captured + s->lies.n_maybe))
        DIE(s, "P19: the audit disputes %llu updates of %llu", (unsigned long long)report.disputes,
            (unsigned long long)s->lies.n_captured);
    sim_happened[SIM_LIE_FOUND] += report.disputes;
    dl_exec_destroy(exec);
}

void sim_count_shared_slot(const replica *r, const dl_entry *entry)
{
    uint64_t mine, theirs, len;
    const dl_ledger *l = dl_exec_state(r->exec)->control.ledger;
    for (size_t i = 0; l && i < entry->n_members; i++)
        if (strcmp(entry->members[i].generation.replica, r->name) != 0 &&
            dl_ledger_chunk(l, entry->entry, r->name, &mine, &len) &&
            dl_ledger_chunk(l, entry->entry, entry->members[i].generation.replica, &theirs, &len))
            sim_happened[SIM_SHARED_SEAT] += mine == theirs;
}

/* The floats that were sent, after the header, or slice by slice; and the expected header. */
static diloco_status read_sent(dl_hash *body, dl_buf *bytes, const replica *r, uint64_t entry,
                               const dl_contribution *c, const dl_generation *generation,
                               size_t head)
{
    dl_hash table[DL_SLICES_MAX];
    if (c->slices == 0) {
        *body = dl_digest_bytes(bytes->data + head, c->n_floats * sizeof(float));
        return DILOCO_OK;
    }
    bytes->len = head;
    for (size_t i = 0; i < c->slices; i++) {
        const size_t at = bytes->len;
        dl_key key;
        dl_key_slice(key, entry, i, generation);
        DL_TRY(dl_store_get(r->sim->store, bytes, key, DL_NEVER));
        table[i] = dl_digest_bytes(bytes->data + at, bytes->len - at);
    }
    *body = dl_digest_bytes(table, c->slices * sizeof *table);
    return DILOCO_OK;
}

/* The header's norm was taken with the movement, the payload is what was encoded later. */
void sim_check_sent(const replica *r, uint64_t entry, const dl_generation *generation)
{
    dl_key key;
    dl_buf bytes;
    dl_contribution c;
    dl_key_contribution(key, entry, generation);
    dl_buf_init(&bytes, 1 << 20);
    const diloco_status got = dl_store_get(r->sim->store, &bytes, key, DL_NEVER);
    if (got || dl_contribution_read_header(&c, bytes.data, bytes.len)) {
        if (!got && strstr(diloco_error_text(), "possible value"))
            DIE(r->sim, "I9: %s of %s: %s", key, r->name, diloco_error_text());
        dl_buf_deinit(&bytes); /* cut off, or flipped on the way */
        return;
    }
    dl_hash body;
    const size_t head = DL_CONTRIBUTION_HEADER + (c.is_signed ? DL_CONTRIBUTION_PROOF : 0);
    if (read_sent(&body, &bytes, r, entry, &c, generation, head))
        DIE(r->sim, "I9: %s", diloco_error_text());
    const float *g = (const float *)(bytes.data + head);
    const double norm = sqrt(dl_norm2(g, c.n_floats));
    const bool whole = dl_hash_equal(c.body, body);
    if (whole && !(fabs(norm - c.norm) <= 1e-6 * c.norm))
        DIE(r->sim, "I9: %s took a movement of norm %g for entry %llu and sends one of %g", r->name,
            c.norm, (unsigned long long)entry, norm);
    dl_buf_deinit(&bytes);
}

/* I3: ranges of samples that counted, by shard, do not overlap. */
typedef struct ranges {
    sim *s;
    uint64_t end[MAX_REPLICAS];
    uint64_t assigned[ENTRIES * MAX_REPLICAS * DL_ASSIGNED_MAX][2];
    size_t n_assigned;
} ranges;

/* One fragment, waited for: an entry is of the state before it, and of the samples after it. */
static bool in_order(const sim *s)
{
    return s->n_fragments == 1 && s->schedule.delay == 0 && !s->schedule.async;
}

/* Dealt chunks overlap with no other that counted. */
static void check_assigned(ranges *r, const dl_contribution *c)
{
    for (uint64_t i = 0; i < c->assigned.n; i++) {
        const uint64_t first = c->assigned.first[i], end = first + c->assigned.len;
        for (size_t k = 0; k < r->n_assigned; k++)
            if (first < r->assigned[k][1] && r->assigned[k][0] < end)
                DIE(r->s, "I3: dealt samples [%llu, %llu) count twice, again in entry %llu by %s",
                    (unsigned long long)first, (unsigned long long)end,
                    (unsigned long long)c->entry, c->generation.replica);
        r->assigned[r->n_assigned][0] = first;
        r->assigned[r->n_assigned++][1] = end;
        r->s->count.samples += end - first;
    }
}

static void check_member(ranges *r, uint64_t e, dl_hash base, const dl_generation *generation)
{
    sim *s = r->s;
    dl_key key;
    dl_buf bytes;
    dl_contribution c;
    dl_key_contribution(key, e, generation);
    dl_buf_init(&bytes, 1 << 20);
    diloco_status got = dl_store_get(s->store, &bytes, key, DL_NEVER);
    if (!got) got = dl_contribution_read_header(&c, bytes.data, bytes.len);
    /* The writer without a key may create a name again that has been collected. */
    if (got && got != DILOCO_ENOENT && !s->kind.keyed) DIE(s, "I3: %s", diloco_error_text());
    if (got == DILOCO_OK) {
        check_assigned(r, &c);
        if (in_order(s) && !dl_hash_equal(c.base, base))
            DIE(s, "I6: entry %llu counts what %s began from another state", (unsigned long long)e,
                generation->replica);
        if (!s->kind.assigned && c.stats.first_sample < r->end[c.stats.shard])
            DIE(s,
                "I3: samples of shard %llu count twice: entry %llu has [%llu, %llu), counted "
                "before %llu",
                (unsigned long long)c.stats.shard, (unsigned long long)e,
                (unsigned long long)c.stats.first_sample, (unsigned long long)c.stats.end_sample,
                (unsigned long long)r->end[c.stats.shard]);
        r->end[c.stats.shard] = c.stats.end_sample;
    }
    s->count.all &= got == DILOCO_OK;
    dl_buf_deinit(&bytes);
}

bool sim_is_honest(const sim *s, const char *name)
{
    for (size_t i = 0; i < s->n_slots; i++)
        if (!strcmp(s->replicas[i].name, name)) return !s->replicas[i].kind.byzantine;
    return false;
}

void sim_check_refused(const replica *r, const dl_reply *fetched)
{
    sim *s = r->sim;
    const char *of = r->request.fetch.generation.replica;
    if (s->kind.keyed || s->kind.announcer || fetched->status != DILOCO_EPROTO) return;
    /* A malicious replica may have accepted an entry of its own that is void for the others. */
    if (r->kind.byzantine || !sim_is_honest(s, of)) return;
    if (strcmp(fetched->fetch.reason, "foreign") != 0) return;
    DIE(s, "I12: %s refuses a contribution of %s to entry %llu: %s", r->name, of,
        (unsigned long long)r->request.entry, diloco_error_text());
}

/* I11, from the log alone: no member claims more steps than the positions since the commit before
 * it. A fragment's last commit is not known to a reader that joined later, so with several
 * fragments only their number counts. */
static void check_steps(const sim *s, const dl_entry *entry, const uint64_t *n_commits,
                        uint64_t last)
{
    const uint64_t P = s->n_fragments, n = n_commits[entry->fragment];
    const uint64_t first = P == 1 ? last : entry->fragment + P * (n - 1);
    const bool keep = s->config.on_uncounted == DL_UNCOUNTED_KEEP;
    const uint64_t from = n && !keep ? dl_schedule_capture(&s->schedule, first) : 0;
    for (size_t i = 0; i < entry->n_members; i++)
        if (entry->members[i].stats.steps > entry->position - from)
            DIE(s, "I11: entry %llu counts %s with %llu steps since position %llu",
                (unsigned long long)entry->entry, entry->members[i].generation.replica,
                (unsigned long long)entry->members[i].stats.steps, (unsigned long long)from);
}

/* I10, checked from the log by this code alone. */
typedef struct outlaws {
    char names[MAX_REPLICAS * ENTRIES][DL_REPLICA_MAX + 1];
    uint64_t until[MAX_REPLICAS * ENTRIES];
    size_t n;
} outlaws;

static void check_bans(const sim *s, outlaws *o, const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        for (size_t k = 0; k < o->n; k++) {
            if (strcmp(o->names[k], entry->members[i].generation.replica) != 0) continue;
            if (entry->entry < o->until[k])
                DIE(s, "I10: entry %llu counts %s, which is banned until entry %llu",
                    (unsigned long long)entry->entry, o->names[k], (unsigned long long)o->until[k]);
        }
    for (size_t i = 0; i < entry->n_rejected; i++) {
        const char *why = entry->rejected[i].reason;
        if (strcmp(why, "norm") != 0 && strcmp(why, "cosine") != 0) continue;
        strcpy(o->names[o->n], entry->rejected[i].generation.replica);
        o->until[o->n++] = entry->entry + 1 + strtoull(SIM_BAN_ENTRIES, NULL, 10);
    }
}

static bool is_forged(const sim *s, const dl_combined_at *combined)
{
    for (size_t i = 0; combined->there && i < MAX_LIES && i < s->lies.n_told; i++)
        if (dl_hash_equal(combined->body, s->lies.bodies[i])) return true;
    return false;
}

static bool is_damaged_at(const sim *s, const dl_key key)
{
    const dl_hash hash = dl_hash_bytes(key, strlen(key));
    for (size_t i = 0; i < MAX_LIES && i < s->lies.n_damaged; i++)
        if (dl_hash_equal(s->lies.damaged[i], hash)) return true;
    return false;
}

static bool is_damaged(const sim *s, uint64_t entry, const dl_generation *generation)
{
    dl_key key;
    dl_key_contribution(key, entry, generation);
    bool any = is_damaged_at(s, key);
    for (size_t i = 0; i < DL_SLICES_MAX && !any; i++) {
        dl_key_slice(key, entry, i, generation);
        any = is_damaged_at(s, key);
    }
    return any;
}

/* The replica that combined it for all has read objects that no other can: only an audit reproduces
 * it. */
static bool counts_damage(const sim *s, const dl_entry *entry)
{
    bool any = false;
    for (size_t i = 0; i < entry->n_members; i++)
        any |= is_damaged(s, entry->members[i].entry, &entry->members[i].generation);
    return any;
}

/* which need not reproduce the rejected part: the update is without it. */
static bool rejects_damage(const sim *s, const dl_entry *entry)
{
    bool any = false;
    for (size_t i = 0; i < entry->n_rejected; i++)
        any |= is_damaged(s, entry->entry, &entry->rejected[i].generation);
    return any;
}

static void count_forged(sim *s, const dl_entry *entry, bool valid)
{
    const bool combined = entry->combined.there, forged = is_forged(s, &entry->combined);
    const bool seen = forged || (combined && counts_damage(s, entry));
    const bool all_look = strcmp(s->kind.topology, "allgather") == 0;
    s->lies.n_captured += valid && seen;
    s->lies.n_maybe += (!valid && seen) || (!seen && !all_look && rejects_damage(s, entry));
}

void sim_check_log(sim *s)
{
    dl_entry *entry = &s->truth.entry;
    dl_buf text;
    static ranges r;
    static outlaws o;
    uint64_t n_commits[MAX_FRAGMENTS] = {0}, last = 0;
    memset(&r, 0, sizeof r);
    o.n = 0;
    r.s = s;
    s->count.samples = 0;
    s->count.all = true;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    for (uint64_t e = 0; e < ENTRIES; e++) {
        dl_buf_clear(&text);
        if (dl_entry_get(&text, s->store, e, DL_NEVER))
            DIE(s, "I2: the log has a gap at %llu", (unsigned long long)e);
        sim_check_text(s, e, text.data, text.len);
        const dl_entry_place place = dl_runfile_place(&s->file, e);
        const diloco_status unread = dl_entry_read_at(entry, text.data, text.len, &place);
        if (unread && s->kind.keyed) continue; /* an intruder's: void */
        if (unread) DIE(s, "I2: %s", diloco_error_text());
        const bool valid =
            entry->commit && dl_hash_equal(entry->result, s->truth.moved[e]); /* not void */
        if (entry->commit && s->truth.has_moved[e] && !valid)
            DIE(s, "I1: entry %llu was taken up, and its result is another", (unsigned long long)e);
        if (valid) check_bans(s, &o, entry);
        if (valid && s->schedule.overlap == DL_OVERLAP_STEPS && !s->schedule.async)
            check_steps(s, entry, n_commits, last);
        if (valid) n_commits[entry->fragment]++, last = e;
        count_forged(s, entry, valid);
        if (!s->kind.assigned && !in_order(s))
            continue; /* dealt once (P18), or, async, by a replica's own position */
        for (size_t i = 0; valid && i < entry->n_members; i++)
            check_member(&r, e, entry->base, &entry->members[i].generation);
    }
    dl_buf_deinit(&text);
}
