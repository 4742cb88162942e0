/* listing.c - LIST: the contributions under c/<entry>/ that are worth reading. EXTENT: the entries
 * of the log.
 *
 * Anyone who can write to the store can put any number of objects there, and the exchange has space
 * for a fixed number. A *named* replica is one that a known roster names, or this replica. So is
 * one on the list of a closed roster, if there are places for the whole list. Three rules keep
 * space for those:
 *
 *  1. Only the newest NEWEST_MAX generations of a replica are listed, and places are reserved for
 * all named replicas. Other names share the remaining places.
 *  2. In a run with keys an object is listed once its header was found to be signed by its
 *     replica's key. Each listing checks LOOKS_NAMED unknown objects of named replicas and
 *     LOOKS_OTHER of others, first one of each replica. The result is kept, since objects do not
 *     change, so the next listing checks the next ones. The newest generation that is known to have
 *     contributed needs no check.
 *  3. In a run without keys an object is ignored once it was read twice as junk, which makes space
 *     for the next ones. An asynchronous run does not ignore it, since no later entry would forget
 *     it.
 *
 * A listing therefore costs a bounded number of requests, however many objects there are. */
#include "exchange/exec_parts.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { NEWEST_MAX = 2, LOOKS_NAMED = 64, LOOKS_OTHER = 16, CHECKED_BITS = 17 };
enum { FOUR_DIGITS = 9999 };
enum { CHECKED_CAP = 1 << CHECKED_BITS, CHECKED_MAX = CHECKED_CAP / 4 * 3 };

/* The last two bits of a row of `checked`. */
enum { UNCHECKED = 0, FORGED = 1, SIGNED = 3, VERDICT = 3 };

/* Objects whose signature has to be checked after the listing. `cap` is at most LOOKS_NAMED. The
 * first `n_first` are of one replica each, drawn from `n_replicas`. */
typedef struct candidates {
    size_t n, cap, n_first, n_replicas;
    dl_listed at[LOOKS_NAMED];
    dl_generation last; /* of the last object that was a candidate */
} candidates;

struct dl_lister {
    /* [CHECKED_CAP] hashes of keys, and whether their replica has signed the object; 0: free */
    uint64_t *checked;
    uint64_t seed; /* of these hashes: random, so an attacker cannot choose colliding names */
    size_t n_checked;
    uint64_t checked_for; /* the entry of these objects, if forgets_junk */
    dl_rng drawing;       /* of the replicas of which an object is checked */
    dl_generation *known; /* [n_known] the newest generation of each replica that signed an object,
                           * in the order of a listing */
    size_t n_known, cap_known, known_at; /* known_at: the row that was found last */
    size_t n_other, other_room;          /* places of unnamed replicas */
    size_t awaited_at;                   /* the row of a roster that was found last */
    bool has_list;                       /* there are places for the whole list of a closed run */
    bool listing;                        /* objects come in the order of their keys */
    bool in_order;
    candidates named, other;
    size_t n_passed_over; /* by the last listing */
};

/* ---- create and destroy ------------------------------------------------------------------ */

diloco_status dl_lister_create(dl_exec *x)
{
    dl_lister *l = x->collect.lister = calloc(1, sizeof *l);
    if (!l) return dl_fail(DILOCO_ENOMEM, "out of memory for the list of contributions");
    l->named.cap = LOOKS_NAMED;
    l->other.cap = LOOKS_OTHER;
    l->cap_known = x->collect.n_slots;
    if (x->ring) l->known = calloc(l->cap_known, sizeof *l->known);
    l->checked = calloc(CHECKED_CAP, sizeof *l->checked);
    if ((!l->known && x->ring) || !l->checked)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the list of contributions");
    DL_TRY(dl_random_bytes(&l->seed, sizeof l->seed));
    dl_rng_init(&l->drawing, l->seed, DL_STREAM(DL_STREAM_JITTER, 2), 0);
    return DILOCO_OK;
}

void dl_lister_destroy(dl_exec *x)
{
    if (!x->collect.lister) return;
    free(x->collect.lister->known);
    free(x->collect.lister->checked);
    free(x->collect.lister);
}

/* ---- known results of checks -------------------------------------------------------------- */

/* Returns a hash of 62 bits of an object's key; the others are for the verdict. A collision would
 * make a valid object look forged; at a full table its chance is about 2^-45. */
static uint64_t hash_of(const dl_lister *l, const char *key)
{
    return dl_hash_seeded(key, strlen(key), l->seed) | VERDICT;
}

/* Returns the hash's place in `checked`, or the free place for it. Open addressing with linear
 * steps. At most three quarters of the table are used, so a search ends. */
static uint64_t *checked_place(const dl_lister *l, uint64_t hash)
{
    size_t at = (size_t)(hash >> (64 - CHECKED_BITS));
    while (l->checked[at] && (l->checked[at] | VERDICT) != hash)
        at = (at + 1) % CHECKED_CAP;
    return &l->checked[at];
}

/* Without checked objects, which is the usual case, nothing is hashed. */
static int verdict_of(const dl_lister *l, const char *key)
{
    return l->n_checked ? (int)(*checked_place(l, hash_of(l, key)) & VERDICT) : UNCHECKED;
}

static void forget_checked(dl_lister *l)
{
    memset(l->checked, 0, CHECKED_CAP * sizeof *l->checked);
    l->n_checked = 0;
}

/* A full table is emptied, and the objects in it are checked again. So memory is bounded, whatever
 * an attacker creates. */
static void remember_checked(dl_lister *l, const dl_listed *o, uint64_t verdict)
{
    dl_key key;
    dl_key_contribution(key, o->entry, &o->generation);
    if (l->n_checked == CHECKED_MAX) forget_checked(l);
    const uint64_t hash = hash_of(l, key);
    uint64_t *place = checked_place(l, hash);
    l->n_checked += *place == 0;
    *place = (hash & ~(uint64_t)VERDICT) | verdict;
}

void dl_exec_note_forged(dl_exec *x, uint64_t entry, const dl_generation *generation)
{
    const dl_listed o = {.entry = entry, .generation = *generation};
    remember_checked(x->collect.lister, &o, FORGED);
}

/* Returns the first row whose name is not before that one. */
static size_t known_place(const dl_lister *l, const char *replica)
{
    size_t low = 0, high = l->n_known;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (dl_replica_listed_order(l->known[middle].replica, replica) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_known_at(const dl_lister *l, size_t at, const char *replica)
{
    return at < l->n_known && !strcmp(l->known[at].replica, replica);
}

/* The row that was found last is likely, or the next one. */
static dl_generation *known_of(dl_lister *l, const char *replica)
{
    size_t at = l->known_at;
    if (!is_known_at(l, at, replica) && !is_known_at(l, ++at, replica))
        at = known_place(l, replica);
    if (!is_known_at(l, at, replica)) return NULL;
    l->known_at = at;
    return &l->known[at];
}

static void remember_signed(dl_lister *l, const dl_generation *generation)
{
    dl_generation *known = known_of(l, generation->replica);
    if (known) {
        if (generation->number > known->number) *known = *generation;
        return;
    }
    if (l->n_known == l->cap_known) l->n_known = 0; /* they are found again */
    const size_t at = known_place(l, generation->replica);
    memmove(&l->known[at + 1], &l->known[at], (l->n_known++ - at) * sizeof *l->known);
    l->known[at] = *generation;
}

/* ---- whether an object is signed ---------------------------------------------------------- */

static bool is_own(const dl_exec *x, const dl_generation *generation)
{
    return !strcmp(generation->replica, x->a.self.replica);
}

/* A listing has its names in order, so the row after the last one is likely. */
static bool is_on_roster(const dl_exec *x, const char *replica)
{
    const dl_roster *roster = &x->state.control.roster;
    size_t *at = &x->collect.lister->awaited_at;
    for (size_t i = *at; i < roster->n && i < *at + 2; i++)
        if (!strcmp(roster->names[i], replica)) return *at = i, true;
    return dl_roster_has(roster, replica, at);
}

/* The rosters of the next entries count, too: their replicas are about to contribute. */
bool dl_exec_is_awaited(const dl_exec *x, const dl_generation *generation)
{
    const dl_control *c = &x->state.control;
    bool awaited = is_own(x, generation) || is_on_roster(x, generation->replica);
    for (size_t i = 0; i < c->n_later && !awaited; i++)
        awaited = dl_roster_has(&c->later[i].roster, generation->replica, NULL);
    return awaited;
}

bool dl_exec_is_named(const dl_exec *x, const dl_generation *generation)
{
    const dl_identity *identity = &x->a.run->identity;
    return dl_exec_is_awaited(x, generation) ||
           (identity->policy == DL_CLOSED &&
            dl_identity_member(identity, generation->replica) != NULL);
}

/* Returns an upper bound, since the rosters overlap. */
size_t dl_exec_n_awaited(const dl_exec *x)
{
    const dl_control *c = &x->state.control;
    size_t n = 1 + c->roster.n;
    for (size_t i = 0; i < c->n_later; i++)
        n += c->later[i].roster.n;
    return n;
}

static bool has_places(const dl_exec *x, const dl_generation *generation)
{
    return x->collect.lister->has_list ? dl_exec_is_named(x, generation)
                                       : dl_exec_is_awaited(x, generation);
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* Compares by key. Almost always the replicas' names decide, or numbers of four digits. Other keys
 * are formatted. */
static int compare(const void *a, const void *b)
{
    const dl_listed *x = a, *y = b;
    if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
    const int order = dl_replica_listed_order(x->generation.replica, y->generation.replica);
    if (order) return order;
    if (x->generation.number <= FOUR_DIGITS && y->generation.number <= FOUR_DIGITS)
        return (int)x->generation.number - (int)y->generation.number;
    dl_key first_key, second_key;
    dl_key_contribution(first_key, x->entry, &x->generation);
    dl_key_contribution(second_key, y->entry, &y->generation);
    return strcmp(first_key, second_key);
}

/* Returns the place of the oldest of NEWEST_MAX listed generations of that replica, or NULL if
 * fewer are listed. */
static dl_listed *oldest_of(const dl_exec *x, const dl_listed *o)
{
    dl_listed *oldest = NULL;
    size_t n = 0;
    for (size_t i = x->collect.n_listed; i-- > 0;) {
        dl_listed *it = &x->collect.listed[i];
        const bool same =
            it->entry == o->entry && !strcmp(it->generation.replica, o->generation.replica);
        if (!same && x->collect.lister->listing) break; /* one replica's keys are adjacent */
        if (!same) continue;
        if (!oldest || it->generation.number < oldest->generation.number) oldest = it;
        n++;
    }
    return n < NEWEST_MAX ? NULL : oldest;
}

/* Lists an object. Returns false if there is no space, or NEWEST_MAX newer ones of its replica are
 * listed. A newer generation replaces the oldest listed one of its replica. */
static bool take(dl_exec *x, const dl_listed *o, bool named)
{
    dl_lister *l = x->collect.lister;
    dl_listed *oldest = oldest_of(x, o);
    if (oldest) {
        if (o->generation.number < oldest->generation.number) return false;
        l->in_order = false;
        return *oldest = *o, true;
    }
    if (x->collect.n_listed == x->collect.n_slots || (!named && l->n_other == l->other_room))
        return false;
    l->n_other += !named;
    if (x->collect.n_listed && compare(&x->collect.listed[x->collect.n_listed - 1], o) > 0)
        l->in_order = false;
    x->collect.listed[x->collect.n_listed++] = *o;
    return true;
}

/* Keeps the first object of a replica for a check after the listing. If there is no space, it takes
 * the place of one that is not its replica's first, or of a random one. So names of some replicas,
 * with any number of objects, cannot use up the checks for ever. */
static bool keep_first(candidates *c, dl_rng *drawing, const dl_listed *o)
{
    c->n_replicas++;
    if (c->n_first == c->cap) {
        const uint64_t at = dl_rng_below(drawing, c->n_replicas);
        if (at < c->cap) c->at[at] = *o;
        return at < c->cap;
    }
    if (c->n < c->cap) c->at[c->n++] = c->at[c->n_first];
    c->at[c->n_first++] = *o;
    return true;
}

/* Keeps an object for a check. One replica's objects are adjacent in a listing. */
static bool keep(candidates *c, dl_rng *drawing, const dl_listed *o)
{
    const bool first = c->n_replicas == 0 || strcmp(c->last.replica, o->generation.replica) != 0;
    c->last = o->generation;
    if (first) return keep_first(c, drawing, o);
    if (c->n == c->cap) return false;
    c->at[c->n++] = *o;
    return true;
}

/* Lists an object whose signature was checked, or keeps it for a check. Returns false if it is
 * ignored. */
static bool take_or_keep(dl_exec *x, const dl_listed *o, const char *key, bool named)
{
    dl_lister *l = x->collect.lister;
    const dl_generation *known = known_of(l, o->generation.replica);
    if (x->a.run->identity.policy == DL_CLOSED && !dl_exec_is_named(x, &o->generation))
        return false;
    const int verdict = verdict_of(l, key);
    if (verdict == FORGED) return false;
    if (verdict == SIGNED || dl_generation_equal(&o->generation, &x->a.self) ||
        (known && dl_generation_equal(&o->generation, known)))
        return take(x, o, named);
    return keep(named ? &l->named : &l->other, &l->drawing, o);
}

/* Called for each key of the listing. Malformed names are skipped. The store's failure to list, and
 * not a single object, is an error. */
static diloco_status found_contribution(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_listed o = {.len = len};
    if (!dl_key_parse_contribution(&o.entry, &o.generation, key)) return DILOCO_OK;
    if (x->mode->is_of_use && !x->mode->is_of_use(x, &o)) return DILOCO_OK;
    const bool named = has_places(x, &o.generation);
    const bool taken = x->ring ? take_or_keep(x, &o, key, named)
                               : verdict_of(x->collect.lister, key) != FORGED && take(x, &o, named);
    x->collect.lister->n_passed_over += !taken;
    return DILOCO_OK;
}

static bool is_listed(const dl_exec *x, const dl_listed *o)
{
    for (size_t i = 0; i < x->collect.n_listed; i++)
        if (x->collect.listed[i].entry == o->entry &&
            !strcmp(x->collect.listed[i].generation.replica, o->generation.replica))
            return true;
    return false;
}

/* Reads one header, checks its signature, and keeps the result. A replica without a key counts like
 * a forged object. */
static diloco_status look_at(dl_exec *x, const dl_listed *o, bool named, dl_time until)
{
    const dl_public *key;
    const char *reason;
    bool theirs = false;
    const diloco_status status = dl_exec_key_of(&key, &reason, x, o->generation.replica, until);
    if (status && status != DILOCO_EPROTO) return status;
    if (!status)
        DL_TRY(dl_contribution_is_by(&theirs, x->a.store, x->a.run->id, o->entry, &o->generation,
                                     key, until));
    remember_checked(x->collect.lister, o, theirs ? SIGNED : FORGED);
    if (theirs) {
        remember_signed(x->collect.lister, &o->generation);
        theirs = take(x, o, named);
    }
    x->collect.lister->n_passed_over += !theirs;
    return DILOCO_OK;
}

/* Checks first the objects of replicas of which none is listed yet. So an attacker's many
 * generations of one name cannot use up the checks of a listing. */
static diloco_status look_at_all(dl_exec *x, const candidates *c, bool named, dl_time until)
{
    bool done[LOOKS_NAMED] = {false};
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < c->n; i++) {
            if (done[i] || (!again && is_listed(x, &c->at[i]))) continue;
            done[i] = true;
            DL_TRY(look_at(x, &c->at[i], named, until));
        }
    return DILOCO_OK;
}

/* ---- the request --------------------------------------------------------------------------- */

static void forget_candidates(candidates *c)
{
    c->n = c->n_first = c->n_replicas = 0;
}

/* Empties the list, and reserves NEWEST_MAX slots for each named replica (P9.13). Results for
 * another entry are forgotten where no later entry can name its objects. */
static void begin(dl_exec *x, uint64_t entry)
{
    dl_lister *l = x->collect.lister;
    const size_t awaited = NEWEST_MAX * dl_exec_n_awaited(x);
    const size_t list = NEWEST_MAX * x->a.run->identity.n_members;
    l->has_list = list <= x->collect.n_slots;
    const size_t wanted = l->has_list ? dl_size_max(awaited, list) : awaited;
    const size_t reserved = dl_size_min(x->collect.n_slots, wanted);
    if (x->mode->forgets_junk && l->checked_for != entry && l->n_checked) forget_checked(l);
    l->checked_for = entry;
    l->other_room = x->collect.n_slots - reserved;
    l->n_other = l->n_passed_over = 0;
    forget_candidates(&l->named);
    forget_candidates(&l->other);
    l->listing = l->in_order = true;
    x->collect.n_listed = 0;
}

/* An asynchronous run lists all of c/, from the oldest base that may still count. The result is
 * sorted by key, whatever order the checks had, so every replica sees one order. */
diloco_status dl_exec_list(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    dl_key prefix, after;
    dl_lister *l = x->collect.lister;
    const uint64_t oldest = x->mode->oldest ? x->mode->oldest(x, request->list.own) : 0;
    dl_exec_listed_under(prefix, x, request->entry);
    dl_key_contributions(after, oldest);
    after[strlen(after) - 1] = 0; /* sorts before all keys with this prefix */
    begin(x, request->entry);
    const diloco_status status =
        dl_store_list(x->a.store, prefix, oldest ? after : NULL, found_contribution, x, until);
    l->listing = false;
    DL_TRY(status);
    DL_TRY(look_at_all(x, &l->named, true, until));
    DL_TRY(look_at_all(x, &l->other, false, until));
    if (!l->in_order)
        qsort(x->collect.listed, x->collect.n_listed, sizeof *x->collect.listed, compare);
    reply->list.listed = x->collect.listed;
    reply->list.n_listed = x->collect.n_listed;
    return DILOCO_OK;
}

size_t dl_exec_passed_over(const dl_exec *x)
{
    return x->collect.lister->n_passed_over;
}

/* ---- the log ----------------------------------------------------------------------------- */

typedef struct extent {
    uint64_t first, n, most;
    uint64_t newest; /* entries of the newest snapshot; 0: it has at most `first` */
    bool ended;
} extent;

static diloco_status found_entry(void *context, const char *key, size_t len)
{
    extent *x = context;
    uint64_t entry;
    (void)len;
    if (!dl_key_parse_entry(&entry, key) || entry < x->first + x->n) return DILOCO_OK;
    x->n += entry == x->first + x->n;
    x->ended = entry >= x->first + x->n || x->n == x->most; /* a gap ends the log */
    return x->ended ? DILOCO_ECLOSED : DILOCO_OK;
}

/* A snapshot of more entries than the log has is junk. */
static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    extent *x = context;
    uint64_t entry;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_snapshot(&entry, &generation, key) || entry <= x->first) return DILOCO_OK;
    if (x->n < x->most && entry > x->first + x->n) return DILOCO_OK;
    if (entry > x->newest) x->newest = entry;
    return DILOCO_OK;
}

diloco_status dl_exec_extent(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    extent found = {.first = request->entry, .most = request->extent.most};
    dl_key before;
    if (request->entry) dl_key_entry(before, request->entry - 1);
    const diloco_status status = dl_store_list(x->a.store, "log/", request->entry ? before : NULL,
                                               found_entry, &found, until);
    if (!found.ended) DL_TRY(status);
    dl_key_snapshot(before, request->entry, &x->a.self, "manifest.json");
    DL_TRY(dl_store_list(x->a.store, "snap/", before, found_snapshot, &found, until));
    reply->extent.n = found.n;
    reply->extent.newest = found.newest;
    return DILOCO_OK;
}
