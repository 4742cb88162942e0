/* entry.c - an entry as JSON.
 *
 * The conditions on an entry are in one place, `check`; the writer and the reader both call it,
 * so nothing is ever written that others would refuse to read.
 *
 * 1. Members ascend in dl_generation_compare order and no replica is there twice.
 * 2. Weights are finite and in [0, 1]; scalars and the next lr and mu are finite.
 * 3. A commit has a member. An abort has a reason and changes nothing: result is base.
 * 4. The roster ascends in dl_replica_compare order.
 * 5. Only a commit names a combined update, or rejects.
 * 6. The rejected ascend like the members; no replica is there twice, or among the members. */
#include "log/entry.h"

#include "log/fields.h"
#include "tensor/cut.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char format[] = "diloco-entry";

/* ---- memory */

/* The four arrays are in one allocation, in descending order of alignment. The multiplication is
 * checked, since max_members may come from an option. */
diloco_status dl_entry_init(dl_entry *out, size_t max_members)
{
    *out = (dl_entry){0};
    size_t name = sizeof *out->roster.names, misses = sizeof *out->roster.misses, bytes;
    const size_t each = sizeof(dl_member) + sizeof(dl_rejected) + name + misses;
    if (!dl_size_mul(&bytes, max_members, each)) bytes = SIZE_MAX;
    out->members = calloc(1, dl_size_max(bytes, 1));
    if (!out->members) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu members", max_members);
    out->rejected = (dl_rejected *)(void *)(out->members + max_members);
    out->roster.misses = (uint32_t *)(void *)(out->rejected + max_members);
    out->roster.names = (void *)(out->roster.misses + max_members);
    out->cap_members = out->roster.cap = max_members;
    return DILOCO_OK;
}

void dl_entry_deinit(dl_entry *entry)
{
    free(entry->members);
    *entry = (dl_entry){0};
}

/* ---- roster */

/* A binary search. *index is set also if the name is missing. */
bool dl_roster_has(const dl_roster *roster, const char *name, size_t *index)
{
    size_t low = 0, high = roster->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = dl_replica_compare(roster->names[middle], name);
        if (order == 0)
            low = high = middle;
        else if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (index) *index = low; /* where it is, or belongs */
    return low < roster->n && strcmp(roster->names[low], name) == 0;
}

/* The order is kept at all times, because the roster is part of the agreed state (P1). */
bool dl_roster_add(dl_roster *roster, const char *name, uint32_t misses)
{
    size_t at;
    DL_ASSERT(dl_replica_name_ok(name));
    if (!dl_roster_has(roster, name, &at)) {
        if (roster->n == roster->cap) return false;
        size_t behind = roster->n++ - at;
        memmove(roster->names + at + 1, roster->names + at, behind * sizeof *roster->names);
        memmove(roster->misses + at + 1, roster->misses + at, behind * sizeof *roster->misses);
        memset(roster->names[at], 0, sizeof *roster->names);
        memcpy(roster->names[at], name, strlen(name));
    }
    roster->misses[at] = misses;
    return true;
}

void dl_roster_copy(dl_roster *to, const dl_roster *from)
{
    DL_ASSERT(from->n <= to->cap);
    if (from->n) {
        memcpy(to->names, from->names, from->n * sizeof *from->names);
        memcpy(to->misses, from->misses, from->n * sizeof *from->misses);
    }
    to->n = from->n;
}

void dl_roster_write(dl_json *j, const dl_roster *roster)
{
    dl_json_array(j, "roster");
    for (size_t i = 0; i < roster->n; i++)
        dl_json_str(j, NULL, roster->names[i]);
    dl_json_end(j);
    dl_json_array(j, "misses");
    for (size_t i = 0; i < roster->n; i++)
        dl_json_u64(j, NULL, roster->misses[i]);
    dl_json_end(j);
}

static diloco_status check_roster(const dl_roster *roster, diloco_status status)
{
    for (size_t i = 0; i < roster->n; i++) {
        if (!dl_replica_name_ok(roster->names[i]))
            return dl_fail(status, "roster: %zu is not the name of a replica", i);
        if (i && dl_replica_compare(roster->names[i - 1], roster->names[i]) >= 0)
            return dl_fail(status, "roster: %s is not in order after %s", roster->names[i],
                           roster->names[i - 1]);
    }
    return DILOCO_OK;
}

/* The two arrays are read in parallel, and must have the same length. Names are checked at the end,
 * in one place with the writer's check. */
diloco_status dl_roster_read(dl_roster *out, dl_json_value object)
{
    dl_json_value names = dl_json_get(object, "roster"), misses = dl_json_get(object, "misses");
    if (names.type != DL_JSON_ARRAY || misses.type != DL_JSON_ARRAY)
        return dl_fail(DILOCO_EPROTO, "\"roster\" or \"misses\" is not an array");
    dl_json_iter name = dl_json_each(names), miss = dl_json_each(misses);
    for (out->n = 0; dl_json_next(&name); out->n++) {
        uint64_t value;
        if (out->n == out->cap)
            return dl_fail(DILOCO_EPROTO, "the roster has more than %zu replicas", out->cap);
        if (!dl_json_next(&miss)) return dl_fail(DILOCO_EPROTO, "fewer misses than replicas");
        DL_TRY(dl_json_as_str(out->names[out->n], sizeof *out->names, name.value));
        DL_TRY(dl_json_as_u64(&value, miss.value, UINT32_MAX));
        out->misses[out->n] = (uint32_t)value;
    }
    if (dl_json_next(&miss)) return dl_fail(DILOCO_EPROTO, "more misses than replicas");
    return check_roster(out, DILOCO_EPROTO);
}

/* ---- conditions */

/* A weight that is NaN fails the comparison, too. Readers use the weights as they are written
 * (P2.1), and their sum is not checked. */
static diloco_status check_members(const dl_entry *e, diloco_status status)
{
    for (size_t i = 0; i < e->n_members; i++) {
        const dl_member *m = &e->members[i], *before = i ? m - 1 : NULL;
        if (!(m->weight >= 0 && m->weight <= 1))
            return dl_fail(status, "weight %g of %s is not in [0, 1]", (double)m->weight,
                           m->generation.replica);
        if (before && strcmp(before->generation.replica, m->generation.replica) == 0)
            return dl_fail(status, "replica %s is counted twice", m->generation.replica);
        if (before && dl_generation_compare(before, m) >= 0)
            return dl_fail(status, "member %s is not in order after %s", m->generation.replica,
                           before->generation.replica);
    }
    return DILOCO_OK;
}

/* Returns whether it is a word of letters and hyphens, which may be shown on a terminal. */
static bool is_word(const char *text)
{
    for (const char *c = text; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && *c != '-') return false;
    return *text != 0;
}

/* Both lists ascend, so one walk finds a replica that is in both. */
static diloco_status check_rejected(const dl_entry *e, diloco_status status)
{
    if (!e->commit && e->n_rejected) return dl_fail(status, "an abort that rejects");
    if (e->n_rejected > e->cap_members - e->n_members)
        return dl_fail(status, "more than %zu members and rejected", e->cap_members);
    for (size_t i = 0, m = 0; i < e->n_rejected; i++) {
        const dl_rejected *r = &e->rejected[i];
        if (!is_word(r->reason)) return dl_fail(status, "the reason of a rejection is invalid");
        if (i && dl_replica_compare(r[-1].generation.replica, r->generation.replica) >= 0)
            return dl_fail(status, "rejected %s is not in order after %s", r->generation.replica,
                           r[-1].generation.replica);
        while (m < e->n_members &&
               dl_replica_compare(e->members[m].generation.replica, r->generation.replica) < 0)
            m++;
        if (m < e->n_members && !strcmp(e->members[m].generation.replica, r->generation.replica))
            return dl_fail(status, "%s is a member and rejected", r->generation.replica);
    }
    return DILOCO_OK;
}

static diloco_status check_reason(const dl_entry *e, diloco_status status)
{
    if (!*e->abort.reason) return dl_fail(status, "an abort without a reason");
    for (const char *c = e->abort.reason; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) /* it reaches terminals */
            return dl_fail(status, "the reason has a control character");
    return DILOCO_OK;
}

/* The divisor of an integer mean, and its bound (outer_step.c). A sum of 2^63 or more cannot be a
 * divisor (P2.1). Every check here is made before the sum is used. */
static diloco_status check_raw(const dl_entry *e, diloco_status status)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->n_members; i++)
        if (__builtin_add_overflow(sum, e->members[i].raw, &sum) || sum > INT64_MAX)
            return dl_fail(status, "the raw weights sum to 2^63 or more");
    return sum ? DILOCO_OK : dl_fail(status, "the raw weights sum to 0");
}

static diloco_status check_scalars(const dl_entry *e, const dl_outer *outer, diloco_status status)
{
    for (int i = 0; outer && i < outer->n_scalars; i++)
        if (!isfinite(e->scalars.value[i]))
            return dl_fail(status, "scalar %s is not finite", outer->scalar_names[i]);
    return DILOCO_OK;
}

/* `status` is what a violation returns: DILOCO_EINVAL to the writer, which has a bug, and
 * DILOCO_EPROTO to a reader. A new condition belongs here, and in the list at the top. */
static diloco_status check(const dl_entry *e, diloco_status status)
{
    DL_TRY(check_members(e, status));
    DL_TRY(check_rejected(e, status));
    if (e->commit && e->n_members) DL_TRY(check_raw(e, status));
    if (e->commit && e->n_members == 0) return dl_fail(status, "a commit without members");
    if (e->abort.emptied && (e->commit || e->n_members > 0))
        return dl_fail(status, "it empties the momentum, and commits or has members");
    if (!e->commit && !e->abort.emptied && !dl_hash_equal(e->base, e->result))
        return dl_fail(status, "an abort whose result is not its base");
    if (e->commit && e->abort.takeover) return dl_fail(status, "a takeover that commits");
    if (e->abort.voids && (e->commit || e->abort.emptied || e->abort.voids > e->entry))
        return dl_fail(status, "it voids an entry, but is not a later abort");
    if (!e->commit) DL_TRY(check_reason(e, status));
    if (!e->commit && e->combined.there)
        return dl_fail(status, "an abort that names a combined update");
    if (!isfinite(e->next.lr) || !isfinite(e->next.mu))
        return dl_fail(status, "the next lr or mu is not finite");
    return check_roster(&e->roster, status);
}

/* ---- writing */

/* The contribution's entry is written only where it is another one (P20), so entries of rounds stay
 * short. */
static void write_member(dl_json *j, const dl_member *m, uint64_t entry)
{
    dl_json_object(j, NULL);
    dl_json_generation(j, "life", &m->generation);
    if (m->entry != entry) dl_json_u64(j, "entry", m->entry);
    dl_json_hash(j, "body", m->body);
    dl_json_u64(j, "raw", m->raw);
    dl_json_f32_bits(j, "weight", m->weight);
    dl_json_u64(j, "steps", m->stats.steps);
    dl_json_u64(j, "samples", m->stats.samples);
    dl_json_u64(j, "tokens", m->stats.tokens);
    dl_json_u64(j, "bytes", m->bytes);
    dl_json_f64(j, "loss", m->stats.loss);
    if (m->held) dl_json_u64(j, "held", m->held);
    dl_json_end(j);
}

static void write_rejected(dl_json *j, const dl_entry *e)
{
    if (!e->n_rejected) return;
    dl_json_array(j, "rejected");
    for (size_t i = 0; i < e->n_rejected; i++) {
        dl_json_object(j, NULL);
        dl_json_generation(j, "life", &e->rejected[i].generation);
        dl_json_u64(j, "bytes", e->rejected[i].bytes);
        dl_json_str(j, "reason", e->rejected[i].reason);
        dl_json_end(j);
    }
    dl_json_end(j);
}

static void write_assignment(dl_json *j, const dl_entry_assignment *assignment)
{
    if (!assignment->there) return;
    dl_json_object(j, "deal");
    dl_json_u64(j, "cursor", assignment->cursor);
    dl_json_u64(j, "each", assignment->len);
    dl_json_hash(j, "ledger", assignment->ledger);
    dl_json_end(j);
}

static void write_combined(dl_json *j, const dl_combined_at *c)
{
    dl_json_object(j, "combined");
    dl_json_generation(j, "life", &c->generation);
    dl_json_hash(j, "body", c->body);
    dl_json_u64(j, "bytes", c->bytes);
    if (c->slices) dl_json_u64(j, "slices", c->slices);
    dl_json_end(j);
}

/* `check` runs first, so a replica never publishes an entry that others would call void. Optional
 * members are left out at their usual value. A new member is optional, or the format's version
 * changes. */
diloco_status dl_entry_write(dl_buf *out, const dl_entry *entry, const dl_outer *outer)
{
    DL_ASSERT(dl_run_id_ok(entry->run));
    DL_TRY(check(entry, DILOCO_EINVAL));
    DL_TRY(check_scalars(entry, outer, DILOCO_EINVAL));
    dl_json j;
    size_t start;
    dl_sealed_begin(&j, &start, out, format);
    dl_json_str(&j, "kind", entry->commit ? "commit" : "abort");
    dl_json_str(&j, "run", entry->run);
    dl_json_u64(&j, "entry", entry->entry);
    dl_json_u64(&j, "fragment", entry->fragment);
    dl_json_u64(&j, "position", entry->position);
    dl_json_generation(&j, "committer", &entry->committer);
    dl_json_hash(&j, "prev", entry->prev);
    dl_json_hash(&j, "base", entry->base);
    dl_json_hash(&j, "result", entry->result);
    if (!entry->commit) dl_json_str(&j, "reason", entry->abort.reason);
    if (entry->abort.emptied) dl_json_bool(&j, "emptied", true);
    if (entry->abort.takeover) dl_json_bool(&j, "takeover", true);
    if (entry->abort.voids) dl_json_u64(&j, "voids", entry->abort.voids - 1);
    dl_json_array(&j, "members");
    for (size_t i = 0; i < entry->n_members; i++)
        write_member(&j, &entry->members[i], entry->entry);
    dl_json_end(&j);
    write_rejected(&j, entry);
    if (entry->combined.there) write_combined(&j, &entry->combined);
    dl_json_object(&j, "scalars");
    for (int i = 0; i < outer->n_scalars; i++)
        dl_json_f32_bits(&j, outer->scalar_names[i], entry->scalars.value[i]);
    dl_json_end(&j);
    dl_json_f64(&j, "loss", entry->loss);
    if (entry->simulated_s > 0) dl_json_f64(&j, "simulated_s", entry->simulated_s);
    dl_json_u64(&j, "snapshot", entry->snapshot);
    dl_roster_write(&j, &entry->roster);
    dl_json_f32_bits(&j, "next_lr", entry->next.lr);
    dl_json_f32_bits(&j, "next_mu", entry->next.mu);
    write_assignment(&j, &entry->assignment);
    if (entry->bans.there) dl_json_hash(&j, "bans", entry->bans.digest);
    dl_json_bool(&j, "last", entry->last);
    return dl_sealed_end(&j, start);
}

dl_statement dl_entry_statement(const dl_entry *entry)
{
    return (dl_statement){.kind = "entry",
                          .run = entry->run,
                          .entry = entry->entry,
                          .fragment = entry->fragment,
                          .generation = &entry->committer};
}

/* ---- reading */

static diloco_status read_member(dl_member *m, uint64_t entry, dl_json_value plain)
{
    dl_json_index index;
    const dl_json_value object = dl_json_indexed(&index, plain);
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "it is not an object");
    DL_TRY(dl_json_read_generation(&m->generation, object, "life"));
    m->entry = entry;
    if (dl_json_get(object, "entry").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_u64(&m->entry, object, "entry", UINT32_MAX));
    DL_TRY(dl_json_read_hash(&m->body, object, "body"));
    DL_TRY(dl_json_read_u64(&m->raw, object, "raw", UINT64_MAX));
    DL_TRY(dl_json_read_f32_bits(&m->weight, object, "weight"));
    DL_TRY(dl_json_read_u64(&m->stats.steps, object, "steps", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&m->stats.samples, object, "samples", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&m->stats.tokens, object, "tokens", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&m->bytes, object, "bytes", UINT64_MAX));
    m->held = 0;
    if (dl_json_get(object, "held").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_u32(&m->held, object, "held", DL_HELD_MAX));
    return dl_json_read_f64_or_nan(&m->stats.loss, object, "loss");
}

static diloco_status read_assignment(dl_entry_assignment *out, dl_json_value root)
{
    dl_json_value object = dl_json_get(root, "deal");
    *out = (dl_entry_assignment){.there = object.type != DL_JSON_MISSING};
    if (!out->there) return DILOCO_OK;
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "\"deal\" is not an object");
    DL_TRY(dl_json_read_u64(&out->cursor, object, "cursor", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&out->len, object, "each", UINT64_MAX));
    return dl_json_read_hash(&out->ledger, object, "ledger");
}

/* The number is compared with the room before each row, since the list is untrusted. */
static diloco_status read_members(dl_entry *out, dl_json_value array)
{
    if (array.type != DL_JSON_ARRAY) return dl_fail(DILOCO_EPROTO, "\"members\" is not an array");
    out->n_members = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it); out->n_members++) {
        if (out->n_members == out->cap_members)
            return dl_fail(DILOCO_EPROTO, "more than %zu members", out->cap_members);
        diloco_status status = read_member(&out->members[out->n_members], out->entry, it.value);
        if (status) return dl_fail_context(status, "member %zu", it.index);
    }
    return DILOCO_OK;
}

static diloco_status read_rejected(dl_entry *out, dl_json_value root)
{
    const dl_json_value array = dl_json_get(root, "rejected");
    out->n_rejected = 0;
    if (array.type == DL_JSON_MISSING) return DILOCO_OK;
    if (array.type != DL_JSON_ARRAY) return dl_fail(DILOCO_EPROTO, "\"rejected\" is not an array");
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it); out->n_rejected++) {
        if (out->n_rejected == out->cap_members)
            return dl_fail(DILOCO_EPROTO, "more than %zu are rejected", out->cap_members);
        dl_rejected *r = &out->rejected[out->n_rejected];
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "rejected %zu is not an object", it.index);
        DL_TRY(dl_json_read_generation(&r->generation, it.value, "life"));
        DL_TRY(dl_json_read_u64(&r->bytes, it.value, "bytes", UINT64_MAX));
        DL_TRY(dl_json_read_str(r->reason, sizeof r->reason, it.value, "reason"));
    }
    return DILOCO_OK;
}

/* slices is bounded, because readers have arrays of that size. */
static diloco_status read_combined(dl_combined_at *out, dl_json_value root)
{
    dl_json_value object = dl_json_get(root, "combined");
    *out = (dl_combined_at){.there = object.type != DL_JSON_MISSING};
    if (!out->there) return DILOCO_OK;
    if (object.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"combined\" is not an object");
    DL_TRY(dl_json_read_generation(&out->generation, object, "life"));
    DL_TRY(dl_json_read_hash(&out->body, object, "body"));
    if (dl_json_get(object, "slices").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_u64(&out->slices, object, "slices", DL_SLICES_MAX));
    return dl_json_read_u64(&out->bytes, object, "bytes", UINT64_MAX);
}

static diloco_status read_kind(bool *commit, dl_json_value root)
{
    char kind[16];
    DL_TRY(dl_json_read_str(kind, sizeof kind, root, "kind"));
    *commit = strcmp(kind, "commit") == 0;
    if (*commit || strcmp(kind, "abort") == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"kind\" is %s, neither commit nor abort", kind);
}

/* voids is stored as e and kept as e + 1, so 0 can mean that it is absent. */
static diloco_status read_head(dl_entry *out, dl_json_value root)
{
    uint32_t max_fragment = DL_MAX_FRAGMENTS - 1;
    DL_TRY(read_kind(&out->commit, root));
    DL_TRY(dl_json_read_run(out->run, root));
    DL_TRY(dl_json_read_u64(&out->entry, root, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_u32(&out->fragment, root, "fragment", max_fragment));
    DL_TRY(dl_json_read_u64(&out->position, root, "position", UINT64_MAX));
    DL_TRY(dl_json_read_generation(&out->committer, root, "committer"));
    DL_TRY(dl_json_read_hash(&out->prev, root, "prev"));
    DL_TRY(dl_json_read_hash(&out->base, root, "base"));
    DL_TRY(dl_json_read_hash(&out->result, root, "result"));
    memset(out->abort.reason, 0, sizeof out->abort.reason);
    out->abort.takeover = out->abort.emptied = false;
    out->abort.voids = 0;
    if (dl_json_get(root, "voids").type != DL_JSON_MISSING) {
        DL_TRY(dl_json_read_u64(&out->abort.voids, root, "voids", UINT64_MAX - 1));
        out->abort.voids++;
    }
    if (dl_json_get(root, "emptied").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_bool(&out->abort.emptied, root, "emptied"));
    if (dl_json_get(root, "takeover").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_bool(&out->abort.takeover, root, "takeover"));
    return out->commit
               ? DILOCO_OK
               : dl_json_read_str(out->abort.reason, sizeof out->abort.reason, root, "reason");
}

/* Scalars are read by the names of the outer optimizer's row. A reader without that row skips
 * them. */
static diloco_status read_scalars(dl_entry *out, dl_json_value scalars, const dl_outer *outer)
{
    for (int i = 0; outer && i < outer->n_scalars; i++)
        DL_TRY(dl_json_read_f32_bits(&out->scalars.value[i], scalars, outer->scalar_names[i]));
    return check_scalars(out, outer, DILOCO_EPROTO);
}

static diloco_status read_numbers(dl_entry *out, dl_json_value root)
{
    DL_TRY(dl_json_read_f64_or_nan(&out->loss, root, "loss"));
    out->simulated_s = 0;
    if (dl_json_get(root, "simulated_s").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_f64(&out->simulated_s, root, "simulated_s"));
    DL_TRY(dl_json_read_u64(&out->snapshot, root, "snapshot", UINT64_MAX));
    DL_TRY(dl_json_read_f32_bits(&out->next.lr, root, "next_lr"));
    DL_TRY(dl_json_read_f32_bits(&out->next.mu, root, "next_mu"));
    DL_TRY(read_assignment(&out->assignment, root));
    out->bans.there = dl_json_get(root, "bans").type != DL_JSON_MISSING;
    if (out->bans.there) DL_TRY(dl_json_read_hash(&out->bans.digest, root, "bans"));
    return dl_json_read_bool(&out->last, root, "last");
}

/* The seal is checked before anything else (fields.h). `check` follows when every array is
 * complete. The scalars come last, since they alone depend on the optimizer: *scalars is their
 * error. */
static diloco_status read_all(dl_entry *out, const void *text, size_t len, const dl_outer *outer,
                              diloco_status *scalars)
{
    dl_json_value root;
    *scalars = DILOCO_OK;
    memset(&out->scalars, 0, sizeof out->scalars);
    dl_json_index index;
    DL_TRY(dl_sealed_open(&root, text, len, format));
    root = dl_json_indexed(&index, root);
    DL_TRY(read_head(out, root));
    DL_TRY(read_members(out, dl_json_get(root, "members")));
    DL_TRY(read_rejected(out, root));
    DL_TRY(read_combined(&out->combined, root));
    DL_TRY(read_numbers(out, root));
    DL_TRY(dl_roster_read(&out->roster, root));
    DL_TRY(check(out, DILOCO_EPROTO));
    const dl_json_value object = dl_json_get(root, "scalars");
    if (object.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"scalars\" is not an object");
    *scalars = read_scalars(out, object, outer);
    return DILOCO_OK;
}

/* An empty text means an object that could not be read (dl_entry_get), and is void as garbage is
 * (P7.9). */
static diloco_status read_entry(dl_entry *out, const void *text, size_t len, const dl_outer *outer,
                                diloco_status *scalars)
{
    if (!len)
        return dl_fail(DILOCO_EPROTO,
                       "entry: its object is empty, longer than %d bytes, or cannot "
                       "be read",
                       DL_ENTRY_TEXT_MAX);
    const diloco_status status = read_all(out, text, len, outer, scalars);
    return status ? dl_fail_context(status, "entry") : DILOCO_OK;
}

diloco_status dl_entry_read(dl_entry *out, const void *text, size_t len, const dl_outer *outer)
{
    diloco_status scalars;
    DL_TRY(read_entry(out, text, len, outer, &scalars));
    return scalars ? dl_fail_context(scalars, "entry") : DILOCO_OK;
}

dl_hash dl_entry_unreadable_digest(void)
{
    return dl_hash_bytes("", 0);
}

/* Read the statement of a text without parsing the rest, which may be of another version. */
static diloco_status read_statement(dl_entry *out, const void *text, size_t len)
{
    dl_json_value root;
    DL_TRY(dl_json_parse(&root, text, len));
    DL_TRY(dl_json_read_run(out->run, root));
    DL_TRY(dl_json_read_u64(&out->entry, root, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_u32(&out->fragment, root, "fragment", UINT32_MAX));
    return dl_json_read_generation(&out->committer, root, "committer");
}

/* If several readings fail alike, the object, not the connection, is at fault. All readers then use
 * the empty text. */
enum { GET_TRIES = 3 };
diloco_status dl_entry_get(dl_buf *text, dl_store *store, uint64_t entry, dl_time until)
{
    dl_key key;
    diloco_status status = DILOCO_EPROTO;
    dl_key_entry(key, entry);
    for (int i = 0; i < GET_TRIES && status == DILOCO_EPROTO; i++)
        status = dl_store_get(store, text, key, until);
    return status == DILOCO_EPROTO ? DILOCO_OK : status;
}

static diloco_status check_signer(const dl_entry *entry, const void *text, size_t len,
                                  const dl_identity *identity)
{
    dl_public key;
    if (!identity || identity->policy == DL_TRUSTED) return DILOCO_OK;
    const dl_statement what = dl_entry_statement(entry);
    DL_TRY(dl_sealed_signer(&key, text, len, &what));
    return dl_identity_may_commit(identity, &key, entry->committer.replica)
               ? DILOCO_OK
               : dl_fail(DILOCO_EPROTO, "it is signed by a key that may not create entries");
}

/* An entry of another version stops the reader only if it is of this place, and a committer signed
 * it (P7.11). Otherwise anyone could stop a run with a forged version number, or with a copy. */
diloco_status dl_entry_read_at(dl_entry *out, const void *text, size_t len,
                               const dl_entry_place *place)
{
    diloco_status scalars;
    const diloco_status status = read_entry(out, text, len, place->outer, &scalars);
    if (status && status != DILOCO_EDIFFERS) return status;
    if (!status) out->scalars.wrong = scalars != DILOCO_OK;
    if (status) DL_TRY(read_statement(out, text, len));
    DL_TRY(check_signer(out, text, len, place->identity));
    if (out->entry != place->number || strcmp(out->run, place->run) != 0)
        return dl_fail(DILOCO_EPROTO, "it is a copy of entry %llu%s",
                       (unsigned long long)out->entry,
                       out->entry == place->number ? " of another run" : "");
    return status ? read_entry(out, text, len, place->outer, &scalars) : DILOCO_OK;
}
