/* node.c - see node.h for the states and the invariants.
 *
 * Every decision follows from the heartbeats, the objects that arrived and the time that the caller
 * passes. So sim_test.c can play many nodes in virtual time. A member's place in the table does not
 * change while it is known; a set is put into the order of names only where the order counts. */
#include "gossip/node.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = DL_NODE_MAX };

const char *const dl_ignored_names[DL_N_IGNORED] = {"old", "future", "foreign", "duplicate",
                                                    "damaged"};

void dl_node_init(dl_node *n, const dl_node_rules *rules, const dl_beat *self, uint64_t round,
                  dl_time now)
{
    *n = (dl_node){.rules = *rules, .self = *self, .round = round, .began = now, .partner = NONE};
    n->self.contributed = n->self.state = round;
}

void dl_node_ignored(dl_node *n, dl_ignored why)
{
    n->ignored[why]++;
    n->self.ignored++;
}

/* ---- members */

bool dl_node_is_live(const dl_node *n, size_t i, dl_time now)
{
    return now - n->members[i].heard < n->rules.patience;
}

/* Returns the place of the member with this name, with *known; or else a place for it: a free one,
 * or that of a silent member. Returns NONE if there is no room. */
static size_t place_of(const dl_node *n, const char *name, bool *known, dl_time now)
{
    size_t silent = NONE;
    *known = true;
    for (size_t i = 0; i < n->n_members; i++) {
        if (!strcmp(n->members[i].beat.generation.replica, name)) return i;
        if (!dl_node_is_live(n, i, now)) silent = i;
    }
    *known = false;
    return n->n_members < DL_NODE_MAX ? n->n_members : silent;
}

size_t dl_node_heard(dl_node *n, const dl_beat *b, dl_time now)
{
    bool known;
    if (!strcmp(b->id, n->self.id)) return NONE; /* this node's own address */
    if (strcmp(b->run, n->self.run) != 0) {
        dl_node_ignored(n, DL_IGNORED_FOREIGN);
        return NONE;
    }
    const size_t i = place_of(n, b->generation.replica, &known, now);
    if (i == NONE) return NONE;
    dl_node_member *m = &n->members[i];
    const bool taken = known && strcmp(m->beat.id, b->id) != 0 && dl_node_is_live(n, i, now);
    if (taken || !strcmp(b->generation.replica, n->self.generation.replica) ||
        (known && !taken && m->beat.generation.number > b->generation.number &&
         !strcmp(m->beat.id, b->id))) {
        dl_node_ignored(n, DL_IGNORED_DUPLICATE);
        return NONE;
    }
    if (!known || strcmp(m->beat.id, b->id) != 0) *m = (dl_node_member){.late = false};
    const uint64_t contributed = m->beat.contributed; /* perhaps by an object of its */
    m->beat = *b;
    if (m->beat.contributed < contributed) m->beat.contributed = contributed;
    m->heard = now;
    m->no_copy = false; /* a new heartbeat may mean that its model can be read now */
    if (i == n->n_members) n->n_members++;
    return i;
}

/* Returns true if the member still has its object of this round; it keeps DL_NODE_KEEP rounds. */
static bool in_reach(const dl_node *n, size_t i)
{
    return n->members[i].beat.contributed <= n->round + DL_NODE_KEEP;
}

/* Returns true while objects of others are wanted. */
static bool collects(const dl_node *n)
{
    return n->phase == DL_PHASE_EXCHANGE || n->phase == DL_PHASE_MODELS;
}

/* Returns true if this member's object may take part in the exchange in flight. A contribution of
 * pairs comes from the partner alone; an agreement is of all. */
static bool takes_part(const dl_node *n, size_t i, dl_time now)
{
    if (!collects(n) || !dl_node_is_live(n, i, now)) return false;
    return !n->rules.pairs || n->phase == DL_PHASE_MODELS || i == n->partner;
}

dl_want dl_node_wants(const dl_node *n, size_t i, dl_time now)
{
    const dl_node_member *m = &n->members[i];
    const dl_want nothing = {.object = DL_OBJECT_NONE};
    if (i >= n->n_members || !takes_part(n, i, now) || m->got || m->refuse || !in_reach(n, i))
        return nothing;
    return (dl_want){.object =
                         n->phase == DL_PHASE_MODELS ? DL_OBJECT_MODEL : DL_OBJECT_CONTRIBUTION,
                     .round = n->round,
                     .until = n->until};
}

/* An object may arrive after its exchange, or a second time through another line. */
bool dl_node_still_wants(const dl_node *n, size_t i, dl_want w)
{
    const dl_object now = n->phase == DL_PHASE_MODELS ? DL_OBJECT_MODEL : DL_OBJECT_CONTRIBUTION;
    return collects(n) && w.object == now && w.round == n->round && !n->members[i].got &&
           !n->members[i].refuse;
}

bool dl_node_got(dl_node *n, size_t i, dl_want w)
{
    if (!dl_node_still_wants(n, i, w)) return false;
    n->members[i].got = true;
    if (w.object == DL_OBJECT_CONTRIBUTION && n->members[i].beat.contributed <= w.round)
        n->members[i].beat.contributed = w.round + 1; /* its heartbeat comes later */
    return true;
}

void dl_node_refused(dl_node *n, size_t i, dl_want w, dl_ignored why, bool struck)
{
    dl_node_ignored(n, why);
    if (!dl_node_still_wants(n, i, w)) return;
    n->members[i].refuse = true;
    n->members[i].struck = struck;
}

size_t dl_node_n_struck(const dl_node *n)
{
    size_t k = 0;
    for (size_t i = 0; i < n->n_members; i++)
        k += n->members[i].struck;
    return k;
}

/* ---- the set of a round */

/* A member by name. This node has the place NONE. */
typedef struct named {
    const char *name;
    size_t place;
} named;

static int by_name(const void *a, const void *b)
{
    return dl_replica_compare(((const named *)a)->name, ((const named *)b)->name);
}

/* Adds this node to the k members of `all`, and sorts them. Returns their number. */
static size_t sort_names(named *all, size_t k, const dl_node *n)
{
    all[k++] = (named){n->self.generation.replica, NONE};
    qsort(all, k, sizeof *all, by_name);
    return k;
}

size_t dl_node_set(const dl_node *n, size_t out[DL_NODE_MAX + 1])
{
    named all[DL_NODE_MAX + 1];
    size_t k = 0;
    for (size_t i = 0; i < n->n_members; i++)
        if (n->members[i].got) all[k++] = (named){n->members[i].beat.generation.replica, i};
    k = sort_names(all, k, n);
    for (size_t i = 0; i < k; i++)
        out[i] = all[i].place;
    return k;
}

/* The members of this exchange so far, with this node. */
static size_t n_here(const dl_node *n)
{
    size_t k = 1;
    for (size_t i = 0; i < n->n_members; i++)
        k += n->members[i].got;
    return k;
}

/* P23: the live members, in the order of names, shuffled by (seed, round). Neighbours are pairs,
 * and the last of an odd number has none. Nodes that know of different members may draw
 * differently: then one takes the other's parameters, and the other does not take its. */
static void draw_partner(dl_node *n, dl_time now)
{
    named all[DL_NODE_MAX + 1];
    size_t k = 0;
    for (size_t i = 0; i < n->n_members; i++) {
        const dl_node_member *m = &n->members[i];
        const bool there = (!m->late || m->beat.contributed > n->round) && n->round >= m->waited_at;
        if (dl_node_is_live(n, i, now) && there && in_reach(n, i))
            all[k++] = (named){m->beat.generation.replica, i};
    }
    k = sort_names(all, k, n);
    dl_rng rng;
    dl_rng_init(&rng, n->rules.seed, DL_STREAM(DL_STREAM_PAIRS, n->round), 0);
    for (size_t i = k; i > 1; i--) {
        const size_t j = (size_t)dl_rng_below(&rng, i);
        const named swap = all[i - 1];
        all[i - 1] = all[j];
        all[j] = swap;
    }
    n->partner = NONE;
    for (size_t i = 0; i < k; i++)
        if (all[i].place == NONE && (i ^ 1) < k) n->partner = all[i ^ 1].place;
    n->odd = n->partner == NONE && k > 1;
}

/* Begins an exchange of contributions or of models. Objects of an earlier one no longer count. */
static void begin_collecting(dl_node *n, dl_phase phase, dl_time now)
{
    n->phase = phase;
    n->began = now;
    n->until = dl_time_after(now, n->rules.deadline);
    for (size_t i = 0; i < n->n_members; i++)
        n->members[i].got = n->members[i].refuse = n->members[i].struck = false;
}

void dl_node_trained(dl_node *n, dl_time now)
{
    n->self.contributed = n->round + 1;
    n->fresh = n->blank = false;
    begin_collecting(n, DL_PHASE_EXCHANGE, now);
    n->odd = false;
    if (n->rules.pairs) draw_partner(n, now);
}

void dl_node_published(dl_node *n, dl_time now)
{
    begin_collecting(n, DL_PHASE_MODELS, now);
}

/* ---- from round to round */

/* Counts one more deadline that passed although the member had reported a contribution. The pause
 * in which it is not waited for doubles, up to DL_NODE_PAUSE rounds. */
static void stalled(const dl_node *n, dl_node_member *m)
{
    const uint64_t pause = m->stalls < 4 ? UINT64_C(1) << m->stalls : DL_NODE_PAUSE;
    m->stalls++;
    m->waited_at = n->round + 1 + pause;
}

/* Notes at the end of an exchange which members were in time. Only an exchange that ran to its
 * deadline counts against a member that had reported a contribution. */
static void note_late(dl_node *n, dl_time now)
{
    for (size_t i = 0; i < n->n_members; i++) {
        dl_node_member *m = &n->members[i];
        if (m->got) {
            m->late = false;
            m->stalls = 0;
            m->waited_at = 0;
        } else if (takes_part(n, i, now) && !m->refuse) {
            m->late = true;
            if (n->phase == DL_PHASE_EXCHANGE && now >= n->until && n->round >= m->waited_at &&
                m->beat.contributed > n->round)
                stalled(n, m);
        }
    }
}

/* Begins the round of n->round, or the time after the last one. */
static void begin_round(dl_node *n, dl_time now)
{
    const bool over = n->round >= n->rules.rounds;
    n->phase = over ? DL_PHASE_LINGER : DL_PHASE_COPY; /* COPY looks whether it has to */
    n->self.done = over;
    n->began = now;
    n->until = dl_time_after(now, n->rules.deadline);
}

void dl_node_stepped(dl_node *n, bool stepped, dl_time now)
{
    n->self.stepped += stepped;
    const uint64_t every = n->rules.agree_every;
    if (every && (n->round + 1) % every == 0) {
        n->phase = DL_PHASE_PUBLISH;
        return;
    }
    n->round++;
    begin_round(n, now);
}

void dl_node_agreed(dl_node *n, bool agreed, dl_time now)
{
    n->due++;
    n->agreed += agreed;
    n->round++;
    begin_round(n, now);
}

void dl_node_copied(dl_node *n, bool copied, uint64_t round, dl_time now)
{
    if (!copied) {
        n->members[n->source].no_copy = true;
        return;
    }
    n->round = n->self.contributed = round;
    n->blank = false;
    if (round == 0 && n->fresh) { /* the run has not begun: its first round waits for all */
        n->phase = DL_PHASE_START;
        return;
    }
    n->fresh = false;
    begin_round(n, now);
}

/* ---- the member to copy */

static size_t n_live(const dl_node *n, dl_time now)
{
    size_t k = 1;
    for (size_t i = 0; i < n->n_members; i++)
        k += dl_node_is_live(n, i, now);
    return k;
}

/* Returns true if another live member is at this node's round and may wait for it. Also returns
 * true while members that the start waits for have not been heard from. */
static bool in_company(const dl_node *n, dl_time now)
{
    if (n->phase == DL_PHASE_START && now < dl_time_after(n->began, n->rules.start) &&
        n_live(n, now) < n->rules.expected)
        return true;
    for (size_t i = 0; i < n->n_members; i++)
        if (dl_node_is_live(n, i, now) && n->members[i].beat.state == n->round) return true;
    return false;
}

/* Returns true if this member's model should replace this node's own. A node that has not trained
 * loses nothing, so any lead is enough for it, unless other members are at its own round. */
static bool is_ahead(const dl_node *n, size_t i, dl_time now)
{
    const dl_node_member *m = &n->members[i];
    if (!dl_node_is_live(n, i, now) || m->no_copy) return false;
    if (n->blank) return true;
    const uint64_t most = n->rules.pairs ? DL_NODE_KEEP : DL_NODE_BEHIND; /* pairs pass at once */
    return m->beat.state > n->round &&
           ((n->fresh && !in_company(n, now)) || m->beat.contributed > n->round + most);
}

/* The number of members that report the same model as member i. */
static size_t n_alike(const dl_node *n, size_t i, dl_time now)
{
    size_t k = 0;
    for (size_t j = 0; j < n->n_members; j++)
        k += is_ahead(n, j, now) && n->members[j].beat.state == n->members[i].beat.state &&
             dl_hash_equal(n->members[j].beat.digest, n->members[i].beat.digest);
    return k;
}

/* Chooses the newest model; of several the one that most members report, so that a single malicious
 * node is not copied where others agree. */
static bool find_source(dl_node *n, dl_time now)
{
    n->source = NONE;
    for (size_t i = 0; i < n->n_members; i++) {
        if (!is_ahead(n, i, now)) continue;
        const uint64_t state = n->members[i].beat.state;
        const uint64_t best = n->source == NONE ? 0 : n->members[n->source].beat.state;
        if (n->source == NONE || state > best ||
            (state == best && n_alike(n, i, now) > n_alike(n, n->source, now)))
            n->source = i;
    }
    return n->source != NONE;
}

/* ---- what to do */

/* Waits for members, copies a model that is ahead, or begins. After `rules.start` min_peers are
 * enough, and a node with fewer gives up. */
static dl_todo start(dl_node *n, dl_time now)
{
    const size_t live = n_live(n, now);
    const bool need_not_wait = !n->fresh || n->round > 0; /* it need not wait for the others */
    const bool over = now >= dl_time_after(n->began, n->rules.start);
    n->until = dl_time_after(n->began, n->rules.start);
    if (find_source(n, now)) {
        n->phase = DL_PHASE_COPY;
        return DL_TODO_COPY;
    }
    if (!n->blank &&
        (need_not_wait || live >= n->rules.expected || (over && live >= n->rules.min_peers))) {
        begin_round(n, now);
        return dl_node_next(n, now);
    }
    return over ? DL_TODO_ALONE : DL_TODO_WAIT;
}

/* Returns true if the exchange should wait for this member's object (invariant 2). */
static bool awaited(const dl_node *n, size_t i, dl_time now)
{
    const dl_node_member *m = &n->members[i];
    /* An agreement is of all members that are near; one that is rounds late will not come. */
    const bool may_come = n->phase == DL_PHASE_MODELS ? m->beat.contributed >= n->round : !m->late;
    return takes_part(n, i, now) && !m->got && !m->refuse && in_reach(n, i) &&
           n->round >= m->waited_at && (may_come || m->beat.contributed > n->round);
}

/* Returns true if the exchange is over: all awaited objects are here, or the deadline has passed. A
 * node without a partner, because their number is odd, does not wait for min_peers. */
static bool gathered(const dl_node *n, dl_time now)
{
    if (now >= n->until) return true;
    if (n_here(n) < n->rules.min_peers && !(n->odd && n->phase == DL_PHASE_EXCHANGE)) return false;
    for (size_t i = 0; i < n->n_members; i++)
        if (awaited(n, i, now)) return false;
    return true;
}

static dl_todo gather(dl_node *n, dl_time now)
{
    if (!gathered(n, now)) return DL_TODO_WAIT;
    note_late(n, now);
    n->phase = n->phase == DL_PHASE_MODELS ? DL_PHASE_AGREE : DL_PHASE_STEP;
    return dl_node_next(n, now);
}

/* Serves the others until all live members are done, and then for `grace` more, in which they can
 * read this node's last heartbeat. */
static dl_todo linger(dl_node *n, dl_time now)
{
    if (now >= n->until) {
        n->phase = DL_PHASE_END;
        return DL_TODO_END;
    }
    for (size_t i = 0; i < n->n_members; i++)
        if (dl_node_is_live(n, i, now) && !n->members[i].beat.done) return DL_TODO_WAIT;
    n->phase = DL_PHASE_END;
    n->until = dl_time_after(now, n->rules.grace);
    return DL_TODO_WAIT;
}

dl_todo dl_node_next(dl_node *n, dl_time now)
{
    const bool enough = n_here(n) >= n->rules.min_peers;
    switch (n->phase) {
    case DL_PHASE_START:
        return start(n, now);
    case DL_PHASE_COPY:
        if (find_source(n, now)) return DL_TODO_COPY;
        if (n->blank) {
            n->phase = DL_PHASE_START;
            return start(n, now);
        }
        n->phase = DL_PHASE_TRAIN;
        return DL_TODO_TRAIN;
    case DL_PHASE_TRAIN:
        return DL_TODO_TRAIN;
    case DL_PHASE_EXCHANGE:
    case DL_PHASE_MODELS:
        return gather(n, now);
    case DL_PHASE_STEP:
        return enough ? DL_TODO_STEP : DL_TODO_PASS;
    case DL_PHASE_PUBLISH:
        return DL_TODO_PUBLISH;
    case DL_PHASE_AGREE:
        return enough ? DL_TODO_AGREE : DL_TODO_APART;
    case DL_PHASE_LINGER:
        return linger(n, now);
    case DL_PHASE_END:
        return now >= n->until ? DL_TODO_END : DL_TODO_WAIT;
    }
    return DL_TODO_END;
}
