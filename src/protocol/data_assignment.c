/* data_assignment.c - see data_assignment.h.
 *
 * Invariants
 *  1. assignments[d mod n] is of entry d, for first <= d < next; next = entry + ahead.
 *  2. `returned` ascends, no two of its ranges touch, and the last ends before the cursor:
 *     returning the range just below the cursor moves the cursor back.
 *  3. Chunks of unsettled assignments and returned ranges are disjoint, and all are below the
 * cursor. */
#include "protocol/data_assignment.h"

#include "base/arena.h"
#include "base/run_kind.h"
#include "protocol/logical_clients.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HELD = DL_ASSIGNED_MAX }; /* a contribution lists at most this many chunks */
_Static_assert(DL_HELD_MAX + 1 == DL_ASSIGNED_MAX, "the chunks that a member reports, and its "
                                                   "contribution's");

typedef struct range {
    uint64_t first, end;
} range;

typedef struct assignment {
    uint64_t len;    /* samples of a chunk */
    uint64_t *first; /* [slots.n + unlisted] of each slot's chunk */
    dl_roster slots;
} assignment;

struct dl_ledger {
    dl_schedule schedule;
    uint64_t a_step; /* samples */
    size_t ahead, max_held, unlisted, cap_slots;
    bool exact;

    uint64_t entry; /* the number of applied entries */
    uint64_t first; /* unsettled assignment */
    uint64_t cursor;
    range *returned; /* [cap_returned] */
    size_t n_returned, cap_returned;
    assignment *assignments; /* [n_assignments] */
    size_t n_assignments;
    bool *taken; /* [cap_slots] scratch */
    dl_arena arena;
};

/* ---- create and destroy ----------------------------------------------------------------- */

bool dl_assignment_is_exact(const dl_config *c)
{
    return c->fragments == 1 && c->overlap_steps == 0 && c->overlap == DL_OVERLAP_STEPS &&
           c->local_mix == 0 && c->on_uncounted == DL_UNCOUNTED_ADOPT;
}

static void layout(dl_ledger *l, dl_arena *arena, size_t max_members)
{
    l->returned = DL_ARENA_ARRAY(arena, range, l->cap_returned);
    l->assignments = DL_ARENA_ARRAY(arena, assignment, l->n_assignments);
    l->taken = DL_ARENA_ARRAY(arena, bool, l->cap_slots);
    for (size_t i = 0; i < l->n_assignments; i++) {
        assignment measured, *d = l->assignments ? &l->assignments[i] : &measured;
        d->first = DL_ARENA_ARRAY(arena, uint64_t, l->cap_slots);
        d->slots.names = dl_arena_take_array(arena, max_members, sizeof *d->slots.names);
        d->slots.misses = DL_ARENA_ARRAY(arena, uint32_t, max_members);
        d->slots.cap = max_members;
    }
}

/* If every step is sent, the contribution may be its gradient alone (P22), which has nothing of the
 * steps before. */
static size_t most_held(const dl_config *c, bool exact)
{
    return exact && c->local_steps > 1 ? MAX_HELD : 1;
}

diloco_status dl_ledger_create(dl_ledger **out, const dl_config *c, const dl_schedule *schedule,
                               size_t max_members)
{
    dl_arena measure = {0};
    *out = NULL;
    if (c->deal != DL_DEAL_LOG) return DILOCO_OK;
    const dl_run_kind *kind = dl_run_kind_of(c);
    if (kind->one_by_one) return dl_fail(DILOCO_EREFUSED, "%s", kind->no_deal);
    dl_ledger *l = calloc(1, sizeof *l);
    if (!l) return dl_fail(DILOCO_ENOMEM, "out of memory for the deal of the data");
    l->schedule = *schedule;
    l->a_step = (uint64_t)c->batch_size * (uint64_t)c->accumulation;
    l->exact = dl_assignment_is_exact(c) && schedule->n_fragments == 1;
    /* with overlap, training for an entry begins before the one L earlier is applied */
    l->ahead = dl_schedule_ahead(schedule) + (schedule->delay > 0);
    l->max_held = most_held(c, l->exact);
    l->unlisted = dl_clients_max_members(c);
    l->cap_slots = max_members + l->unlisted;
    l->n_assignments = l->ahead + l->max_held;
    l->cap_returned = l->n_assignments * l->cap_slots + 1;
    layout(l, &measure, max_members);
    const diloco_status status = dl_arena_init(&l->arena, measure.used);
    if (status) {
        free(l);
        return dl_fail_context(status, "deal of the data");
    }
    layout(l, &l->arena, max_members);
    dl_ledger_begin(l);
    *out = l;
    return DILOCO_OK;
}

void dl_ledger_destroy(dl_ledger *l)
{
    if (!l) return;
    dl_arena_deinit(&l->arena);
    free(l);
}

bool dl_ledger_is_exact(const dl_ledger *l)
{
    return l->exact;
}

/* ---- slots ------------------------------------------------------------------------------ */

static assignment *assignment_of(const dl_ledger *l, uint64_t entry)
{
    return &l->assignments[entry % l->n_assignments];
}

static uint64_t next(const dl_ledger *l)
{
    return l->entry + l->ahead;
}

static size_t n_slots(const dl_ledger *l, const assignment *d)
{
    return d->slots.n + l->unlisted;
}

/* Returns the number in a name ("r12" has 12), or a hash of a name without a number. */
static uint64_t number_of(const char *replica)
{
    const char *digits = replica + strcspn(replica, "0123456789");
    uint64_t n;
    if (*digits) return strtoull(digits, NULL, 10);
    const dl_hash hash = dl_hash_bytes(replica, strlen(replica));
    n = 0;
    for (int i = 0; i < 8; i++)
        n = n << 8 | hash.bytes[i];
    return n;
}

static size_t slot_of(const dl_ledger *l, const assignment *d, const char *replica)
{
    size_t rank;
    if (dl_roster_has(&d->slots, replica, &rank)) return rank;
    return d->slots.n + (size_t)(number_of(replica) % l->unlisted);
}

bool dl_ledger_chunk(const dl_ledger *l, uint64_t entry, const char *replica, uint64_t *first,
                     uint64_t *len)
{
    if (entry < l->first || entry >= next(l)) return false;
    const assignment *d = assignment_of(l, entry);
    *first = d->first[slot_of(l, d, replica)];
    *len = d->len;
    return true;
}

static uint64_t due_before(const dl_ledger *l, uint64_t entry)
{
    return entry ? dl_schedule_capture(&l->schedule, entry - 1) : 0;
}

bool dl_ledger_sample(const dl_ledger *l, uint64_t entry, const char *replica, uint64_t position,
                      uint64_t *sample)
{
    uint64_t len;
    const uint64_t from = due_before(l, entry);
    if (!dl_ledger_chunk(l, entry, replica, sample, &len) || position < from) return false;
    *sample += (position - from) * l->a_step;
    return true;
}

/* ---- samples ---------------------------------------------------------------------------- */

uint64_t dl_ledger_cursor(const dl_ledger *l)
{
    return l->cursor;
}

uint64_t dl_ledger_open(const dl_ledger *l)
{
    uint64_t n = 0;
    for (size_t i = 0; i < l->n_returned; i++)
        n += l->returned[i].end - l->returned[i].first;
    for (uint64_t e = l->first; e < next(l); e++)
        n += n_slots(l, assignment_of(l, e)) * assignment_of(l, e)->len;
    return n;
}

static void remove_range(dl_ledger *l, size_t i)
{
    l->n_returned--;
    memmove(l->returned + i, l->returned + i + 1, (l->n_returned - i) * sizeof l->returned[0]);
}

/* Returns the first range after `sample`. */
static size_t find_range(const dl_ledger *l, uint64_t sample)
{
    size_t low = 0, high = l->n_returned;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (l->returned[middle].first > sample)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void give_back(dl_ledger *l, uint64_t first, uint64_t len)
{
    size_t i = find_range(l, first);
    range *at = l->returned;
    const uint64_t end = first + len;
    if (len == 0) return;
    DL_ASSERT(end <= l->cursor); /* invariant 3 */
    if (i > 0 && at[i - 1].end == first) {
        at[--i].end = end;
    } else if (i < l->n_returned && at[i].first == end) {
        at[i].first = first;
    } else {
        if (l->n_returned == l->cap_returned) return; /* never if assignments are exact: layout */
        memmove(at + i + 1, at + i, (l->n_returned - i) * sizeof at[0]);
        at[i] = (range){first, end};
        l->n_returned++;
    }
    if (i + 1 < l->n_returned && at[i].end == at[i + 1].first) {
        at[i].end = at[i + 1].end;
        remove_range(l, i + 1);
    }
    DL_ASSERT(l->n_returned > 0 && l->n_returned <= l->cap_returned);
    if (at[l->n_returned - 1].end == l->cursor) l->cursor = at[--l->n_returned].first;
}

static uint64_t take_chunk(dl_ledger *l, uint64_t len)
{
    for (size_t i = 0; i < l->n_returned; i++) {
        range *r = &l->returned[i];
        const uint64_t first = r->first;
        if (r->end - first < len) continue;
        r->first += len;
        if (r->first == r->end) remove_range(l, i);
        return first;
    }
    l->cursor += len;
    DL_ASSERT(l->cursor >= len);
    return l->cursor - len;
}

static void assign(dl_ledger *l, uint64_t entry, const dl_roster *slots)
{
    assignment *d = assignment_of(l, entry);
    dl_roster_copy(&d->slots, slots);
    d->len = (dl_schedule_capture(&l->schedule, entry) - due_before(l, entry)) * l->a_step;
    for (size_t i = 0; i < n_slots(l, d); i++)
        d->first[i] = take_chunk(l, d->len);
}

void dl_ledger_begin(dl_ledger *l)
{
    const dl_roster nobody = {.n = 0};
    l->entry = l->first = l->cursor = 0;
    l->n_returned = 0;
    for (uint64_t e = 0; e < l->ahead; e++)
        assign(l, e, &nobody);
}

void dl_ledger_copy(dl_ledger *to, const dl_ledger *from)
{
    DL_ASSERT(to->n_assignments == from->n_assignments && to->cap_returned >= from->n_returned);
    to->entry = from->entry;
    to->first = from->first;
    to->cursor = from->cursor;
    to->n_returned = from->n_returned;
    memcpy(to->returned, from->returned, from->n_returned * sizeof from->returned[0]);
    for (uint64_t e = from->first; e < next(from); e++) {
        const assignment *d = assignment_of(from, e);
        assignment *t = assignment_of(to, e);
        t->len = d->len;
        dl_roster_copy(&t->slots, &d->slots);
        memcpy(t->first, d->first, n_slots(from, d) * sizeof d->first[0]);
    }
}

/* ---- folding ---------------------------------------------------------------------------- */

/* Returns whether the member used its chunk of that assignment. Only exact ones use earlier ones.
 */
static bool used(const dl_member *m, uint64_t entry, uint64_t of)
{
    return of <= entry && of + m->held >= entry;
}

static void settle(dl_ledger *l, uint64_t of, const dl_entry *entry)
{
    const assignment *d = assignment_of(l, of);
    const size_t n = n_slots(l, d);
    DL_ASSERT(n <= l->cap_slots);
    memset(l->taken, 0, n * sizeof l->taken[0]);
    for (size_t i = 0; entry && i < entry->n_members; i++)
        if (used(&entry->members[i], entry->entry, of))
            l->taken[slot_of(l, d, entry->members[i].generation.replica)] = true;
    for (size_t i = 0; i < n; i++)
        if (!l->taken[i] && (l->exact || i >= d->slots.n)) give_back(l, d->first[i], d->len);
}

void dl_ledger_apply(dl_ledger *l, const dl_entry *entry, const dl_roster *newest)
{
    const bool commit = entry && entry->commit;
    DL_ASSERT(l->first <= l->entry);
    const bool settles = commit || !l->exact || l->entry + 1 - l->first >= l->max_held;
    for (; settles && l->first <= l->entry; l->first++)
        settle(l, l->first, commit || !l->exact ? entry : NULL);
    DL_ASSERT(next(l) - l->first < l->n_assignments); /* its place is free */
    assign(l, next(l), newest);
    l->entry++;
    DL_ASSERT(l->first <= l->entry && next(l) - l->first <= l->n_assignments); /* invariant 1 */
}

bool dl_ledger_holds(const dl_ledger *l)
{
    return l->first < l->entry;
}

/* ---- contributions and members ---------------------------------------------------------- */

void dl_ledger_list(const dl_ledger *l, uint64_t entry, const char *replica, uint64_t samples,
                    dl_assigned *out)
{
    *out = (dl_assigned){.n = 0};
    if (samples == 0 || entry < l->first || entry >= next(l)) return;
    const uint64_t len = assignment_of(l, entry)->len, whole = l->exact ? samples / len : 1;
    const uint64_t there = entry + 1 - l->first, n = whole < there ? whole : there;
    out->n = n < DL_ASSIGNED_MAX ? n : DL_ASSIGNED_MAX;
    for (uint64_t i = 0; i < out->n; i++)
        (void)dl_ledger_chunk(l, entry + 1 - out->n + i, replica, &out->first[i], &out->len);
}

const char *dl_ledger_refuses(const dl_ledger *l, const dl_contribution *c)
{
    dl_assigned ours;
    if (c->stats.samples == 0)
        return c->assigned.n ? "it uses samples that it has not trained on" : NULL;
    if (c->assigned.n == 0) return "it does not say which of the dealt samples it used";
    if (c->entry + 1 - l->first < c->assigned.n || (!l->exact && c->assigned.n > 1))
        return "it uses samples that have counted or were returned";
    const uint64_t len = assignment_of(l, c->entry)->len;
    if (c->assigned.len != len || (l->exact && c->stats.samples != c->assigned.n * len))
        return "it does not use its samples whole";
    dl_ledger_list(l, c->entry, c->generation.replica, l->exact ? c->stats.samples : 1, &ours);
    for (uint64_t i = 0; i < ours.n; i++)
        if (ours.first[i] != c->assigned.first[i])
            return "it uses samples that were not dealt to it";
    return NULL;
}

static bool share_a_slot(const dl_ledger *l, uint64_t entry, const dl_member *a, const dl_member *b)
{
    const uint64_t held = a->held < b->held ? a->held : b->held;
    for (uint64_t i = 0; i <= held; i++) {
        const assignment *d = assignment_of(l, entry - i);
        if (slot_of(l, d, a->generation.replica) == slot_of(l, d, b->generation.replica))
            return true;
    }
    return false;
}

static bool has_room(const dl_ledger *l, const dl_entry *entry, size_t n, const dl_member *member)
{
    if (dl_roster_has(&assignment_of(l, entry->entry)->slots, member->generation.replica, NULL) &&
        member->held == 0)
        return true; /* no other member has that slot */
    for (size_t i = 0; i < n; i++)
        if (share_a_slot(l, entry->entry, &entry->members[i], member)) return false;
    return true;
}

bool dl_ledger_has_room(const dl_ledger *l, const dl_entry *entry, const dl_member *member)
{
    return has_room(l, entry, entry->n_members, member);
}

/* ---- an entry's record of it -------------------------------------------------------------- */

static void hash_u64(dl_digest_stream *s, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    dl_digest_add(s, bytes, sizeof bytes);
}

static dl_hash hash_of(const dl_ledger *l)
{
    dl_digest_stream s;
    dl_digest_begin(&s);
    hash_u64(&s, l->cursor);
    hash_u64(&s, l->n_returned);
    for (size_t i = 0; i < l->n_returned; i++) {
        hash_u64(&s, l->returned[i].first);
        hash_u64(&s, l->returned[i].end);
    }
    for (uint64_t e = l->first; e < next(l); e++) {
        const assignment *d = assignment_of(l, e);
        hash_u64(&s, e);
        hash_u64(&s, d->len);
        for (size_t i = 0; i < d->slots.n; i++)
            dl_digest_add(&s, d->slots.names[i], strlen(d->slots.names[i]) + 1);
        for (size_t i = 0; i < n_slots(l, d); i++)
            hash_u64(&s, d->first[i]);
    }
    return dl_digest_end(&s);
}

dl_entry_assignment dl_ledger_assignment(const dl_ledger *l)
{
    return (dl_entry_assignment){.there = true,
                                 .cursor = l->cursor,
                                 .len = assignment_of(l, next(l) - 1)->len,
                                 .ledger = hash_of(l)};
}

static const char *members_reason(const dl_ledger *l, const dl_entry *e)
{
    const uint64_t most = l->exact ? e->entry - l->first : 0;
    for (size_t i = 0; i < e->n_members; i++)
        if (e->members[i].held > most)
            return "it counts samples that have counted or were returned";
    for (size_t i = 1; i < e->n_members; i++)
        if (!has_room(l, e, i, &e->members[i])) return "it counts samples twice";
    return NULL;
}

bool dl_ledger_gives(const dl_ledger *l, dl_ledger *scratch, const dl_entry *e)
{
    dl_ledger_copy(scratch, l);
    dl_ledger_apply(scratch, e, &e->roster);
    const dl_entry_assignment ours = dl_ledger_assignment(scratch);
    return e->assignment.there && ours.cursor == e->assignment.cursor &&
           ours.len == e->assignment.len && dl_hash_equal(ours.ledger, e->assignment.ledger);
}

const char *dl_ledger_void_reason(const dl_ledger *l, dl_ledger *scratch, const dl_entry *e)
{
    if (!e->assignment.there) return "it deals no data";
    const char *why = members_reason(l, e);
    if (why) return why;
    return dl_ledger_gives(l, scratch, e) ? NULL : "its deal is not what the ledger gives";
}

/* ---- in snapshots: consecutive chunks as one run -------------------------------------------- */

static void write_pair(dl_json *j, uint64_t a, uint64_t b)
{
    dl_json_array(j, NULL);
    dl_json_u64(j, NULL, a);
    dl_json_u64(j, NULL, b);
    dl_json_end(j);
}

static void write_assignment(dl_json *j, const dl_ledger *l, const assignment *d)
{
    dl_json_object(j, NULL);
    dl_json_u64(j, "each", d->len);
    dl_roster_write(j, &d->slots);
    dl_json_array(j, "chunks");
    for (size_t i = 0, n; i < n_slots(l, d); i += n) {
        for (n = 1; i + n < n_slots(l, d) && d->first[i + n] == d->first[i] + n * d->len;)
            n++;
        write_pair(j, d->first[i], n);
    }
    dl_json_end(j);
    dl_json_end(j);
}

void dl_ledger_write(dl_json *j, const dl_ledger *l)
{
    dl_json_object(j, "ledger");
    dl_json_u64(j, "cursor", l->cursor);
    dl_json_array(j, "returned");
    for (size_t i = 0; i < l->n_returned; i++)
        write_pair(j, l->returned[i].first, l->returned[i].end);
    dl_json_end(j);
    dl_json_u64(j, "first", l->first);
    dl_json_array(j, "deals");
    for (uint64_t e = l->first; e < next(l); e++)
        write_assignment(j, l, assignment_of(l, e));
    dl_json_end(j);
    dl_json_end(j);
}

static diloco_status read_pair(uint64_t *a, uint64_t *b, dl_json_value pair)
{
    dl_json_iter it = dl_json_each(pair);
    if (pair.type != DL_JSON_ARRAY || dl_json_count(pair) != 2)
        return dl_fail(DILOCO_EPROTO, "the ledger: not a pair of numbers");
    (void)dl_json_next(&it);
    DL_TRY(dl_json_as_u64(a, it.value, UINT64_MAX));
    (void)dl_json_next(&it);
    return dl_json_as_u64(b, it.value, UINT64_MAX);
}

static diloco_status read_returned(dl_ledger *l, dl_json_value array)
{
    l->n_returned = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it); l->n_returned++) {
        range *r = &l->returned[l->n_returned];
        if (l->n_returned == l->cap_returned)
            return dl_fail(DILOCO_EPROTO, "the ledger: too many ranges");
        DL_TRY(read_pair(&r->first, &r->end, it.value));
        if (r->first >= r->end || r->end >= l->cursor || (it.index && r->first <= r[-1].end))
            return dl_fail(DILOCO_EPROTO, "the ledger: returned ranges do not ascend");
    }
    return DILOCO_OK;
}

static diloco_status read_chunks(const dl_ledger *l, assignment *d, dl_json_value array)
{
    const size_t want = n_slots(l, d);
    size_t n = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        uint64_t first, many;
        DL_TRY(read_pair(&first, &many, it.value));
        if (many > want - n) return dl_fail(DILOCO_EPROTO, "the ledger: more chunks than slots");
        for (uint64_t i = 0; i < many; i++)
            d->first[n++] = first + i * d->len;
    }
    return n == want ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "the ledger: fewer chunks than slots");
}

static diloco_status read_assignment(dl_ledger *l, assignment *d, dl_json_value object)
{
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "the ledger: no deal");
    DL_TRY(dl_json_read_u64(&d->len, object, "each", UINT64_MAX));
    DL_TRY(dl_roster_read(&d->slots, object));
    return read_chunks(l, d, dl_json_get(object, "chunks"));
}

diloco_status dl_ledger_read(dl_ledger *l, dl_json_value object, uint64_t entry)
{
    dl_json_value root = dl_json_get(object, "ledger");
    if (root.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "it has no ledger of the data");
    dl_json_value assignments = dl_json_get(root, "deals");
    l->entry = entry;
    DL_TRY(dl_json_read_u64(&l->cursor, root, "cursor", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&l->first, root, "first", entry));
    DL_TRY(read_returned(l, dl_json_get(root, "returned")));
    if (next(l) - l->first > l->n_assignments || dl_json_count(assignments) != next(l) - l->first)
        return dl_fail(DILOCO_EPROTO, "the ledger: not the deals from %llu on",
                       (unsigned long long)l->first);
    for (dl_json_iter it = dl_json_each(assignments); dl_json_next(&it);)
        DL_TRY(read_assignment(l, assignment_of(l, l->first + it.index), it.value));
    return DILOCO_OK;
}
