/* machine.c - see machine.h for the diagram.
 *
 * Invariants
 *  1. control is advanced in one place (folded), once per entry, in log order (P4).
 *  2. `have` tells of the contributions of control->entry only; it is cleared when it moves.
 *  3. An entry is decided by its create-once name alone: a draft is nothing until read back (P5).
 *  4. No time-out leads to a local step: past a deadline there is a draft or more waiting (P12). */
#include "run/machine.h"

#include "base/arena.h"
#include "run/fold.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WATCHED = 4096, MAX_REJOINS = 3, MAX_DOUBTS = 2 };

static const double AUTO_DEADLINE_MIN_S = 10;
static const dl_time POLL = DL_SECOND / 2; /* longest wait between looks */

typedef enum phase {
    CATCH_UP, /* reading entries that are there already */
    TRAINING,
    SAVING,
    LATE_CHECK, /* at the due point: does the entry stand without us? */
    CONTRIBUTING,
    LISTING,
    FETCHING, /* what the listing found */
    LOOKING,  /* log/<e>, between listings */
    WATCHING,
    WAITING,
    DRAFTING, /* computing the draft */
    CREATING,
    READING_BACK,
    FOLD_FETCHING, /* what the entry names and we do not have */
    FOLD_COMPUTING,
    ADOPTING,
    CATCH_UP_ADOPTING,
    SNAPSHOTTING,
    ENDING,
    OVER
} phase;

typedef enum worth { NEW, GOOD, BAD } worth;

/* One contribution of the open entry; its index is its slot. */
typedef struct known {
    dl_life life;
    size_t len;
    worth           worth;
    unsigned n_doubts; /* how often it was refused: read again before it is called bad (P7) */
    dl_contribution facts;
    double norm2;
} known;

typedef struct watched {
    dl_life life;
    dl_hash content;
    dl_time changed; /* when we first saw this content */
    bool ended;
} watched;

struct dl_machine {
    dl_machine_args a;
    dl_time now;
    phase phase;
    dl_hash digest; /* of the fragment now */
    uint64_t n_commits;
    uint64_t position;
    uint64_t local_entry; /* local tensors are valid before this entry */
    bool local_valid;     /* there is local training worth keeping */
    bool must_adopt;      /* caught-up entries have left the local tensors behind */
    bool missed;          /* a commit passed this replica over since it last adopted */
    bool timely;          /* folding the entry we contributed to, at its due point */
    bool resumed_due;     /* saved at the due point of local_entry */

    known *have; /* [cap_have] */
    size_t n_have, cap_have, fetching;
    watched *watch; /* [MAX_WATCHED] */
    size_t n_watch;
    bool *silent; /* [max_members], of the roster */

    dl_entry draft, entry;           /* ours; the one being folded */
    size_t *slots;                   /* [max_members] of the entry's members */
    dl_member_facts *facts;   /* [max_members], and the weights made from them */
    uint64_t        *raw;
    float           *weight;
    bool drafted, created, computed; /* about control->entry */
    dl_hash draft_result;
    dl_hash entry_digest, suspect; /* of its text; of a text that was read again before judging */
    unsigned n_recomputed; /* of the entry being folded */
    size_t fold_member;    /* next member to make sure of */
    uint64_t rejoined_at;  /* 1 + the last entry that made us begin again; 0: none */
    unsigned n_gone; /* fresh starts since an entry was folded, because of ENOENT */

    dl_time train_began, due_at, put_took, start_at;
    double round_s;
    uint64_t bytes_since_snapshot, snapshot_known;
    dl_time snapshot_at;
    dl_arena arena;
};

uint64_t dl_machine_position(const dl_machine *m) { return m->position; }
uint64_t dl_due(uint64_t entry, uint64_t interval)
{
    return (entry + 1) * interval;
}

/* ---- making and unmaking ---------------------------------------------------------------- */

static void layout(dl_machine *m, dl_arena *arena)
{
    m->have = DL_ARENA_ARRAY(arena, known, m->cap_have);
    m->watch = DL_ARENA_ARRAY(arena, watched, MAX_WATCHED);
    m->silent = DL_ARENA_ARRAY(arena, bool, m->a.max_members);
    m->slots = DL_ARENA_ARRAY(arena, size_t, m->a.max_members);
    m->facts  = DL_ARENA_ARRAY(arena, dl_member_facts, m->a.max_members);
    m->raw    = DL_ARENA_ARRAY(arena, uint64_t, m->a.max_members);
    m->weight = DL_ARENA_ARRAY(arena, float, m->a.max_members);
}

diloco_status dl_machine_create(dl_machine **out, const dl_machine_args *args)
{
    *out = NULL;
    dl_machine *m = calloc(1, sizeof *m);
    if (!m) return dl_fail(DILOCO_ENOMEM, "no memory for the protocol's state");
    m->a = *args;
    m->cap_have = 2 * args->max_members;

    dl_arena measure = {0};
    layout(m, &measure);
    diloco_status status = dl_arena_init(&m->arena, measure.used);
    if (!status) {
        layout(m, &m->arena);
        status = dl_entry_init(&m->draft, args->max_members);
    }
    if (!status) status = dl_entry_init(&m->entry, args->max_members);
    if (status) {
        dl_machine_destroy(m);
        return status;
    }
    *out = m;
    return DILOCO_OK;
}

void dl_machine_destroy(dl_machine *m)
{
    if (!m) return;
    dl_entry_deinit(&m->draft);
    dl_entry_deinit(&m->entry);
    dl_arena_deinit(&m->arena);
    free(m);
}

/* ---- small words ------------------------------------------------------------------------ */

static uint64_t open_entry(const dl_machine *m)
{
    return m->a.control->entry;
}
static bool is(const char *option, const char *value)
{
    return strcmp(option, value) == 0;
}
static bool before_first_roster(const dl_machine *m)
{
    return open_entry(m) == 0;
} /* L = 1 */

static void note(dl_machine *m, dl_note n)
{
    if (m->a.note) m->a.note(m->a.note_user, &n);
}

static dl_ask ask(dl_machine *m, dl_ask_kind kind, phase next)
{
    m->phase = next;
    return (dl_ask){.kind = kind, .entry = open_entry(m), .position = m->position};
}

static dl_ask fail(dl_machine *m, diloco_status status)
{
    dl_ask a = ask(m, DL_ASK_FAIL, OVER);
    a.status = status;
    return a;
}

static dl_ask train(dl_machine *m)
{
    m->train_began = m->now;
    dl_ask a = ask(m, DL_ASK_TRAIN, TRAINING);
    a.position = dl_due(open_entry(m), m->a.interval);
    return a;
}

static dl_ask list(dl_machine *m)
{
    return ask(m, DL_ASK_LIST, LISTING);
}

/* ---- contributions ---------------------------------------------------------------------- */

static known *find_known(dl_machine *m, const dl_life *life)
{
    for (size_t i = 0; i < m->n_have; i++)
        if (dl_life_equal(&m->have[i].life, life)) return &m->have[i];
    return NULL;
}

static known *add_known(dl_machine *m, const dl_life *life, size_t len)
{
    known *k = find_known(m, life);
    if (k || m->n_have == m->cap_have) return k;
    k = &m->have[m->n_have++];
    *k = (known){.life = *life, .len = len};
    return k;
}

/* The contribution that counts for a replica: its newest valid one (P15). */
static bool superseded(const dl_machine *m, const known *k)
{
    for (size_t i = 0; i < m->n_have; i++) {
        const known *other = &m->have[i];
        if (other->worth == GOOD && !strcmp(other->life.replica, k->life.replica) &&
            other->life.generation > k->life.generation)
            return true;
    }
    return false;
}

static bool counts(const dl_machine *m, const known *k)
{
    return k->worth == GOOD && k->facts.samples > 0 && !superseded(m, k);
}

static size_t n_counting(const dl_machine *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_have; i++)
        n += counts(m, &m->have[i]);
    return n;
}

static bool is_there(const dl_machine *m, const char *replica)
{
    for (size_t i = 0; i < m->n_have; i++)
        if (counts(m, &m->have[i]) && !strcmp(m->have[i].life.replica, replica)) return true;
    return false;
}

static size_t n_missing(const dl_machine *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->a.control->roster.n; i++)
        n += !is_there(m, m->a.control->roster.names[i]);
    return n;
}

static void clear_entry(dl_machine *m)
{
    m->n_have = 0;
    m->drafted = m->created = m->computed = m->timely = false;
    m->n_recomputed = 0;
    memset(m->silent, 0, m->a.max_members * sizeof m->silent[0]);
}

/* ---- the draft -------------------------------------------------------------------------- */

/* Into its place by life; an insertion, since qsort may allocate. */
static void put_member(dl_entry *d, const dl_member *member)
{
    size_t at = d->n_members++;
    for (; at > 0 && dl_life_compare(&d->members[at - 1].life, &member->life) > 0; at--)
        d->members[at] = d->members[at - 1];
    d->members[at] = *member;
}

static void put_members(dl_machine *m, dl_entry *d)
{
    d->n_members = 0;
    for (size_t i = 0; i < m->n_have && d->n_members < d->cap_members; i++) {
        const known *k = &m->have[i];
        if (!counts(m, k)) continue;
        put_member(d, &(dl_member){.life    = k->life,
                                   .body    = k->facts.body,
                                   .steps   = k->facts.steps,
                                   .samples = k->facts.samples,
                                   .tokens  = k->facts.tokens,
                                   .bytes   = k->len,
                                   .loss    = k->facts.loss});
    }
    for (size_t i = 0; i < d->n_members; i++)
        m->slots[i] = (size_t)(find_known(m, &d->members[i].life) - m->have);
}

static diloco_status put_weights(dl_machine *m, dl_entry *d)
{
    for (size_t i = 0; i < d->n_members; i++) {
        const dl_member *member = &d->members[i];
        m->facts[i] = (dl_member_facts){member->samples, member->steps, member->tokens,
                                        m->have[m->slots[i]].norm2};
    }
    DL_TRY(dl_weights(m->raw, m->weight, m->a.weighting, m->facts, d->n_members));
    for (size_t i = 0; i < d->n_members; i++) {
        d->members[i].raw    = m->raw[i];
        d->members[i].weight = m->weight[i];
    }
    return DILOCO_OK;
}

static double mean_loss(const dl_entry *d)
{
    double sum = 0;
    for (size_t i = 0; i < d->n_members; i++)
        sum += d->members[i].loss;
    return d->n_members ? sum / (double)d->n_members : NAN;
}

static void put_scalars(dl_machine *m, dl_entry *d)
{
    const dl_config *c = m->a.config;
    const dl_outer_settings s = {.lr = (double)m->a.control->lr,
                                 .mu = (double)m->a.control->mu,
                                 .beta1 = c->beta1,
                                 .beta2 = c->beta2,
                                 .eps = c->eps,
                                 .weight_decay = c->weight_decay,
                                 .n_commits = m->n_commits};
    memset(d->scalars, 0, sizeof d->scalars);
    m->a.outer->scalars(d->scalars, &s);
}

static void begin_draft(dl_machine *m, bool commit)
{
    dl_entry *d = &m->draft;
    d->commit = commit;
    d->entry = open_entry(m);
    d->fragment = 0;
    d->position = dl_due(d->entry, m->a.interval);
    d->committer = m->a.self;
    d->prev = m->a.control->prev;
    d->base = d->result = m->digest;
    d->snapshot = m->snapshot_known;
    d->next_lr = (float)(m->a.lr ? m->a.lr(m->a.lr_user, d->entry + 1) : m->a.config->outer_lr);
    d->next_mu = (float)m->a.config->outer_mu;
    d->last = d->entry + 1 >= m->a.entries;
    d->reason[0] = 0;
    snprintf(d->run, sizeof d->run, "%s", m->a.run);
    put_members(m, d);
    d->loss = mean_loss(d);
    dl_fold_next_roster(&d->roster, m->a.control, d, m->silent);
    m->drafted = true;
}

static dl_ask create(dl_machine *m)
{
    dl_ask a = ask(m, DL_ASK_CREATE, CREATING);
    a.draft = &m->draft;
    return a;
}

static dl_ask draft_abort(dl_machine *m, const char *reason)
{
    begin_draft(m, false);
    snprintf(m->draft.reason, sizeof m->draft.reason, "%s", reason);
    return create(m);
}

static dl_ask draft_commit(dl_machine *m)
{
    begin_draft(m, true);
    if (put_weights(m, &m->draft)) return draft_abort(m, diloco_error_text());
    put_scalars(m, &m->draft);
    dl_ask a = ask(m, DL_ASK_COMPUTE, DRAFTING);
    a.draft = &m->draft;
    a.slots = m->slots;
    return a;
}

/* ---- closing: P9, P10, P11 -------------------------------------------------------------- */

static dl_time deadline(const dl_machine *m)
{
    const double given = m->a.config->deadline_s;
    double s =
        given > 0 ? given : fmax(AUTO_DEADLINE_MIN_S, m->round_s) + 4 * dl_seconds(m->put_took);
    const uint64_t doublings = m->a.control->n_aborts < 16 ? m->a.control->n_aborts : 16;
    return dl_time_after(m->due_at, dl_time_from_seconds(s * (double)(UINT64_C(1) << doublings)));
}

static bool all_there(const dl_machine *m)
{
    const size_t n = n_counting(m);
    if (n == 0) return false;
    if (before_first_roster(m)) {
        if (n >= (size_t)m->a.config->replicas) return true;
        const dl_time patience = dl_time_from_seconds(m->a.config->start_timeout_s);
        return m->now >= dl_time_after(m->start_at, patience) &&
               n >= (size_t)m->a.config->min_replicas;
    }
    return n_missing(m) == 0;
}

static dl_ask wait_until(dl_machine *m, dl_time until)
{
    dl_ask a = ask(m, DL_ASK_WAIT, WAITING);
    a.until = until < dl_time_after(m->now, POLL) ? until : dl_time_after(m->now, POLL);
    return a;
}

/* Names of the silent for an abort's reason, as many as fit. */
static void word_silent(const dl_machine *m, char *out, size_t cap)
{
    int len = snprintf(out, cap, "silent:");
    for (size_t i = 0; i < m->a.control->roster.n && len > 0 && (size_t)len < cap; i++)
        if (m->silent[i])
            len += snprintf(out + len, cap - (size_t)len, " %s", m->a.control->roster.names[i]);
}

/* Its contribution is there and will never be valid: no use in waiting for it. */
static bool is_hopeless(const dl_machine *m, const char *replica)
{
    for (size_t i = 0; i < m->n_have; i++)
        if (m->have[i].worth == BAD && !strcmp(m->have[i].life.replica, replica)) return true;
    return false;
}

/* Past the deadline and the heartbeats are looked at. */
static dl_ask close_or_wait(dl_machine *m)
{
    const dl_roster *roster = &m->a.control->roster;
    size_t n_silent = 0, missing = n_missing(m);
    for (size_t i = 0; i < roster->n; i++)
        n_silent += m->silent[i] && !is_there(m, roster->names[i]);

    if (is(m->a.config->on_missing, "commit_partial")) {
        const double needed = ceil(m->a.config->quorum * (double)roster->n);
        if ((double)n_counting(m) >= fmax(needed, 1)) return draft_commit(m);
        return draft_abort(m, "no quorum at the deadline");
    }
    if (is(m->a.config->on_missing, "abort"))
        return draft_abort(m, "not all were there at the deadline");
    if (n_silent == missing) { /* wait: for the slow, never for the silent */
        char reason[DL_REASON_MAX + 1];
        word_silent(m, reason, sizeof reason);
        return draft_abort(m, reason);
    }
    const double patience = m->a.config->patience_s;
    return wait_until(m, dl_time_after(m->now, dl_time_from_seconds(patience / 4)));
}

static dl_ask decide(dl_machine *m)
{
    if (all_there(m)) return draft_commit(m);
    if (before_first_roster(m) || m->now < deadline(m))
        return wait_until(m, before_first_roster(m) ? DL_NEVER : deadline(m));
    return ask(m, DL_ASK_WATCH, WATCHING);
}

static watched *find_watched(dl_machine *m, const char *replica)
{
    watched *newest = NULL;
    for (size_t i = 0; i < m->n_watch; i++) {
        watched *w = &m->watch[i];
        if (strcmp(w->life.replica, replica) != 0) continue;
        if (!newest || w->life.generation > newest->life.generation) newest = w;
    }
    return newest;
}

static watched *watch_life(dl_machine *m, const dl_life *life, dl_hash content)
{
    for (size_t i = 0; i < m->n_watch; i++)
        if (dl_life_equal(&m->watch[i].life, life)) return &m->watch[i];
    if (m->n_watch == MAX_WATCHED) return NULL;
    watched *w = &m->watch[m->n_watch++];
    *w = (watched){.life = *life, .content = content, .changed = m->now};
    return w;
}

static void see_heartbeats(dl_machine *m, const dl_event *event)
{
    for (size_t i = 0; i < event->n_seen; i++) {
        const dl_seen *seen = &event->seen[i];
        watched *w = watch_life(m, &seen->life, seen->content);
        if (!w) continue;
        w->ended |= seen->ended;
        if (dl_hash_equal(w->content, seen->content)) continue;
        w->content = seen->content;
        w->changed = m->now;
    }
    const dl_roster *roster = &m->a.control->roster;
    const dl_time patience = dl_time_from_seconds(m->a.config->patience_s);
    for (size_t i = 0; i < roster->n; i++) {
        watched *w = find_watched(m, roster->names[i]);
        if (!w) { /* no heartbeat at all: watch its absence */
            dl_life none = {.generation = 0};
            snprintf(none.replica, sizeof none.replica, "%s", roster->names[i]);
            w = watch_life(m, &none, (dl_hash){{0}});
        }
        const bool quiet = w && (w->ended || m->now >= dl_time_after(w->changed, patience));
        if (quiet && !m->silent[i] && !is_there(m, roster->names[i]))
            note(m, (dl_note){.kind = DL_NOTE_SILENT, .life = w->life});
        m->silent[i] = quiet || is_hopeless(m, roster->names[i]);
    }
}

/* ---- folding ---------------------------------------------------------------------------- */

static bool same_members(const dl_entry *a, const dl_entry *b)
{
    if (a->commit != b->commit || a->n_members != b->n_members) return false;
    if (memcmp(a->scalars, b->scalars, sizeof a->scalars) != 0) return false;
    for (size_t i = 0; i < a->n_members; i++) {
        const dl_member *x = &a->members[i], *y = &b->members[i];
        if (!dl_hash_equal(x->body, y->body) || x->raw != y->raw ||
            memcmp(&x->weight, &y->weight, sizeof x->weight) != 0)
            return false;
    }
    return true;
}

static bool counts_self(const dl_machine *m, const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!strcmp(entry->members[i].life.replica, m->a.self.replica)) return true;
    return false;
}

static dl_ask look_on(dl_machine *m);

/* After an entry is folded and adopted as it has to be. */
static dl_ask after_fold(dl_machine *m, bool timely)
{
    if (timely && open_entry(m) < m->a.entries) return train(m);
    return look_on(m);
}

static bool snapshot_is_due(const dl_machine *m)
{
    if (open_entry(m) >= m->a.entries) return true;
    const dl_time every = dl_time_from_seconds(m->a.config->snapshot_s);
    if (m->now - m->snapshot_at >= every) return true;
    /* Not more often than ten a period, however small the model (P25). */
    return m->bytes_since_snapshot > 2 * m->a.snapshot_bytes &&
           m->now - m->snapshot_at >= every / 60;
}

static dl_ask snapshot(dl_machine *m)
{
    m->snapshot_known = open_entry(m);
    m->bytes_since_snapshot = 0;
    m->snapshot_at = m->now;
    dl_ask a = ask(m, DL_ASK_SNAPSHOT, SNAPSHOTTING);
    a.final = open_entry(m) >= m->a.entries;
    return a;
}

/* Invariant 1: the only place where the log moves on. */
static void folded(dl_machine *m, bool valid)
{
    if (valid) {
        if (m->entry.commit) {
            m->n_commits++;
            m->digest = m->entry.result;
        }
        for (size_t i = 0; i < m->entry.n_members; i++)
            m->bytes_since_snapshot += m->entry.members[i].bytes;
        dl_fold(m->a.control, &m->entry, m->entry_digest);
        if (m->a.control->snapshot > m->snapshot_known) {
            m->snapshot_known = m->a.control->snapshot;
            m->bytes_since_snapshot = 0;
            m->snapshot_at = m->now;
        }
    } else {
        dl_fold_void(m->a.control, &m->entry, m->entry_digest);
    }
    const uint64_t due = dl_due(m->entry.entry, m->a.interval);
    if (due > m->position) m->position = due;
}

static dl_ask fold_abort(dl_machine *m, bool valid)
{
    if (valid) note(m, (dl_note){.kind = DL_NOTE_ABORT, .entry = &m->entry});
    const bool timely = m->timely;
    folded(m, valid);
    clear_entry(m);
    return after_fold(m, timely);
}

static dl_ask fold_void(dl_machine *m, const char *why)
{
    note(m, (dl_note){.kind = DL_NOTE_VOID, .entry = &m->entry, .text = why});
    return fold_abort(m, false);
}

/* The computed state is the entry's: take it. */
static dl_ask fold_commit(dl_machine *m)
{
    const bool counted = counts_self(m, &m->entry);
    const bool adopt = counted || is(m->a.config->on_uncounted, "adopt");
    m->n_gone = 0;

    dl_ask a = ask(m, DL_ASK_ADOPT, ADOPTING);
    a.swap = true;
    if (m->timely) {
        a.to_local = adopt;
    } else if (!m->local_valid || m->entry.entry >= m->local_entry) {
        m->must_adopt |= adopt;
        m->missed |= !counted;
    }
    if (!counted && m->local_valid && m->entry.entry >= m->local_entry) {
        a.missed = true;
        note(m, (dl_note){.kind = DL_NOTE_LATE, .entry = &m->entry});
    }
    note(m, (dl_note){.kind = DL_NOTE_COMMIT, .entry = &m->entry, .counted = counted});
    return a;
}

static dl_ask dispute(dl_machine *m, dl_hash computed)
{
    note(m, (dl_note){.kind = DL_NOTE_DISPUTE,
                      .entry = &m->entry,
                      .claimed = m->entry.result,
                      .computed = computed});
    return fold_void(m, "its result is not what its members give");
}

static dl_ask fold_compute(dl_machine *m)
{
    for (size_t i = 0; i < m->entry.n_members; i++)
        m->slots[i] = (size_t)(find_known(m, &m->entry.members[i].life) - m->have);
    dl_ask a = ask(m, DL_ASK_COMPUTE, FOLD_COMPUTING);
    a.draft = &m->entry;
    a.slots = m->slots;
    return a;
}

static dl_ask fetch(dl_machine *m, known *k, phase next, bool fresh)
{
    dl_ask a = ask(m, DL_ASK_FETCH, next);
    a.life = k->life;
    a.slot = (size_t)(k - m->have);
    a.fresh = fresh;
    return a;
}

/* Make sure of each member's contribution, then compute. */
static dl_ask fold_gather(dl_machine *m)
{
    for (; m->fold_member < m->entry.n_members; m->fold_member++) {
        const dl_member *member = &m->entry.members[m->fold_member];
        known *k = add_known(m, &member->life, member->bytes);
        if (!k) {
            dl_fail(DILOCO_EPROTO, "entry %llu names more contributions than fit",
                    (unsigned long long)open_entry(m));
            return fail(m, DILOCO_EPROTO);
        }
        const bool ready = k->worth == GOOD && dl_hash_equal(k->facts.body, member->body);
        if (!ready || m->n_recomputed) return fetch(m, k, FOLD_FETCHING, m->n_recomputed > 0);
    }
    return fold_compute(m);
}

/* Begin again from a snapshot of `before` entries or fewer. */
static dl_ask rejoin(dl_machine *m, uint64_t before)
{
    dl_ask a = ask(m, DL_ASK_REJOIN, OVER);
    a.entry = before;
    return a;
}

/* What the entry names was collected behind a snapshot that we have not seen. */
static dl_ask contribution_gone(dl_machine *m)
{
    if (!m->a.reader && m->n_gone++ < MAX_REJOINS) return rejoin(m, UINT64_MAX);
    dl_fail(DILOCO_ENOENT, "entry %llu needs contributions that are gone from the store",
            (unsigned long long)open_entry(m));
    return fail(m, DILOCO_ENOENT);
}

/* Judge only what reads the same twice (P7): the first reading may be what is damaged. */
static bool is_suspect(dl_machine *m)
{
    if (dl_hash_equal(m->suspect, m->entry_digest)) return false;
    m->suspect = m->entry_digest;
    return true;
}

/* An entry that nobody can read counts as an abort of nobody's. */
static dl_ask fold_unreadable(dl_machine *m)
{
    m->entry.n_members = 0;
    m->entry.committer = (dl_life){.generation = 0};
    m->entry.entry = open_entry(m);
    m->entry.commit = false;
    return fold_void(m, diloco_error_text());
}

/* log/<e> is there: whoever wrote it decided. */
static dl_ask fold_text(dl_machine *m, const dl_event *event)
{
    m->entry_digest = dl_hash_bytes(event->text, event->text_len);
    m->fold_member = 0;
    m->n_recomputed = 0;
    const bool readable = !dl_entry_read(&m->entry, event->text, event->text_len, m->a.outer);
    const char *why =
        readable ? dl_fold_void_reason(m->a.control, &m->entry, m->a.run, m->digest) : NULL;
    if ((!readable || why) && is_suspect(m)) return ask(m, DL_ASK_READ, READING_BACK);
    if (!readable) return fold_unreadable(m);

    /* A base that is not ours: one of us is wrong, and a replay tells who (P7). */
    const bool other_base = why && !dl_hash_equal(m->entry.base, m->digest);
    if (other_base && !m->a.reader && m->rejoined_at <= open_entry(m)) {
        m->rejoined_at = open_entry(m) + 1; /* once an entry, so this comes to an end */
        return rejoin(m, open_entry(m) ? open_entry(m) - 1 : 0);
    }
    if (why) return fold_void(m, why);
    if (!m->entry.commit) return fold_abort(m, true);
    if (m->computed && same_members(&m->entry, &m->draft) &&
        dl_hash_equal(m->entry.result, m->draft_result))
        return fold_commit(m);
    return fold_gather(m);
}

/* ---- catching up ------------------------------------------------------------------------ */

static dl_ask finish(dl_machine *m)
{
    return ask(m, DL_ASK_DONE, ENDING);
}

/* Read the next entry, or end. */
static dl_ask look_on(dl_machine *m)
{
    if (open_entry(m) < m->a.entries) return ask(m, DL_ASK_READ, CATCH_UP);
    if (!m->must_adopt) return finish(m);
    dl_ask a = ask(m, DL_ASK_ADOPT, CATCH_UP_ADOPTING);
    a.to_local = true;
    m->must_adopt = false;
    return a;
}

/* No entry to read any more: train, or send what was ready when the former life ended. */
static dl_ask caught_up(dl_machine *m)
{
    if (m->local_valid && m->local_entry > open_entry(m)) {
        dl_fail(DILOCO_EDIFFERS,
                "this replica's saved state is for entry %llu, the log has only %llu: the store "
                "lost entries; move the state folder away to join as a new replica",
                (unsigned long long)m->local_entry, (unsigned long long)open_entry(m));
        return fail(m, DILOCO_EDIFFERS);
    }
    if (m->must_adopt) {
        dl_ask a = ask(m, DL_ASK_ADOPT, CATCH_UP_ADOPTING);
        a.to_local = true;
        a.missed = m->missed;
        m->resumed_due = m->must_adopt = m->missed = m->local_valid = false;
        return a;
    }
    const bool due = m->resumed_due && m->local_valid && m->local_entry == open_entry(m);
    m->resumed_due = false;
    m->local_valid = true;
    m->local_entry = open_entry(m);
    if (due) {
        m->position = dl_due(open_entry(m), m->a.interval);
        m->due_at = m->now;
        return ask(m, DL_ASK_CONTRIBUTE, CONTRIBUTING);
    }
    return train(m);
}

dl_ask dl_machine_begin(dl_machine *m, const dl_machine_start *start)
{
    m->now = start->now;
    m->start_at = start->now;
    m->snapshot_at = start->now;
    m->digest = start->digest;
    m->n_commits = start->n_commits;
    m->snapshot_known = m->a.control->snapshot;
    m->local_valid = start->resumed;
    m->local_entry = start->resumed_entry;
    m->resumed_due = start->resumed && start->due;
    m->must_adopt = !start->resumed || start->resumed_entry < open_entry(m);
    m->missed = start->resumed && start->resumed_entry < open_entry(m);
    m->position = open_entry(m) ? dl_due(open_entry(m) - 1, m->a.interval) : 0;
    if (start->resumed && start->resumed_position > m->position &&
        start->resumed_entry >= open_entry(m))
        m->position = start->resumed_position;
    if (m->a.lr && open_entry(m) == 0) m->a.control->lr = (float)m->a.lr(m->a.lr_user, 0);
    clear_entry(m);
    return look_on(m);
}

/* ---- answers, one function a phase ------------------------------------------------------ */

static dl_ask trained(dl_machine *m)
{
    m->position = dl_due(open_entry(m), m->a.interval);
    m->round_s = dl_seconds(m->now - m->train_began);
    m->due_at = m->now;
    return ask(m, DL_ASK_SAVE, SAVING);
}

static dl_ask late_checked(dl_machine *m, const dl_event *event)
{
    m->local_valid = true;
    m->local_entry = open_entry(m);
    if (event->text) return fold_text(m, event); /* it stands without us: P13 */
    return ask(m, DL_ASK_CONTRIBUTE, CONTRIBUTING);
}

static dl_ask contributed(dl_machine *m)
{
    m->put_took = m->now - m->due_at;
    m->due_at = m->now; /* P11: the deadline runs from our own upload */
    m->timely = true;
    note(m, (dl_note){.kind = DL_NOTE_DEADLINE, .seconds = dl_seconds(deadline(m) - m->now)});
    return list(m);
}

static dl_ask fetch_next(dl_machine *m)
{
    for (; m->fetching < m->n_have; m->fetching++)
        if (m->have[m->fetching].worth == NEW)
            return fetch(m, &m->have[m->fetching], FETCHING, false);
    return ask(m, DL_ASK_READ, LOOKING);
}

static dl_ask listed(dl_machine *m, const dl_event *event)
{
    for (size_t i = 0; i < event->n_listed; i++) {
        const dl_listed *l = &event->listed[i];
        add_known(m, &l->life, l->len);
        if (!strcmp(l->life.replica, m->a.self.replica) &&
            l->life.generation > m->a.self.generation) {
            dl_fail(DILOCO_EFENCED, "replica %s has a later life (%u after %u): this one stops",
                    l->life.replica, l->life.generation, m->a.self.generation);
            return fail(m, DILOCO_EFENCED);
        }
    }
    m->fetching = 0;
    return fetch_next(m);
}

static bool refused(diloco_status s)
{
    return s == DILOCO_EPROTO || s == DILOCO_ENUMERIC;
}

/* True when it has to be read again: what is wrong may be the way here. */
static bool judge(dl_machine *m, known *k, const dl_event *event)
{
    if (!event->status) {
        k->worth = GOOD;
        k->facts = *event->facts;
        k->norm2 = event->norm2;
        return false;
    }
    if (k->n_doubts++ < MAX_DOUBTS) return true;
    k->worth = BAD;
    note(m, (dl_note){.kind = DL_NOTE_REJECT, .life = k->life, .text = event->reason});
    return false;
}

static dl_ask fetched(dl_machine *m, const dl_event *event)
{
    if (event->status && !refused(event->status)) return fail(m, event->status);
    known *k = &m->have[m->fetching];
    if (judge(m, k, event)) return fetch(m, k, FETCHING, true);
    return fetch_next(m);
}

static dl_ask looked(dl_machine *m, const dl_event *event)
{
    return event->text ? fold_text(m, event) : decide(m);
}

static dl_ask drafted(dl_machine *m, const dl_event *event)
{
    if (event->status == DILOCO_ENUMERIC) return draft_abort(m, diloco_error_text());
    if (event->status) return fail(m, event->status);
    m->draft.result = m->draft_result = event->result;
    m->computed = true;
    return create(m);
}

static dl_ask created(dl_machine *m, const dl_event *event)
{
    m->created = !event->taken;
    return ask(m, DL_ASK_READ, READING_BACK); /* P26, and P5: losing is normal */
}

static dl_ask read_back(dl_machine *m, const dl_event *event)
{
    if (event->text) return fold_text(m, event);
    dl_fail(DILOCO_EREFUSED,
            "the store took log/%llu and does not give it back: it cannot carry "
            "a run",
            (unsigned long long)open_entry(m));
    return fail(m, DILOCO_EREFUSED);
}

static dl_ask fold_fetched(dl_machine *m, const dl_event *event)
{
    known *k = find_known(m, &m->entry.members[m->fold_member].life);
    if (event->status == DILOCO_ENOENT) return contribution_gone(m);
    if (event->status && !refused(event->status)) return fail(m, event->status);
    if (judge(m, k, event)) return fetch(m, k, FOLD_FETCHING, true);
    if (k->worth == BAD || !dl_hash_equal(k->facts.body, m->entry.members[m->fold_member].body))
        return fold_void(m, "a contribution that it counts is not valid");
    m->fold_member++;
    return fold_gather(m);
}

static dl_ask fold_computed(dl_machine *m, const dl_event *event)
{
    if (event->status == DILOCO_ENUMERIC) return dispute(m, (dl_hash){{0}});
    if (event->status) return fail(m, event->status);
    if (dl_hash_equal(event->result, m->entry.result)) return fold_commit(m);
    if (m->n_recomputed++) return dispute(m, event->result);
    m->fold_member = 0; /* P7: judge from freshly read bytes */
    return fold_gather(m);
}

static dl_ask adopted(dl_machine *m)
{
    const bool timely = m->timely, ours = m->created;
    folded(m, true);
    clear_entry(m);
    if (timely) m->local_entry = open_entry(m);
    if (ours && snapshot_is_due(m)) {
        m->timely = timely; /* kept for after the snapshot */
        return snapshot(m);
    }
    return after_fold(m, timely);
}

static dl_ask snapshotted(dl_machine *m)
{
    const bool timely = m->timely;
    m->timely = false;
    return after_fold(m, timely);
}

/* Which failures of an ask are answers that its phase deals with. */
static bool phase_handles(phase p, diloco_status s)
{
    switch (p) {
    case FETCHING:
        return refused(s);
    case FOLD_FETCHING:
        return refused(s) || s == DILOCO_ENOENT;
    case DRAFTING:
    case FOLD_COMPUTING:
        return s == DILOCO_ENUMERIC;
    case SNAPSHOTTING:
        return true; /* there will be another */
    default:
        return false;
    }
}

dl_ask dl_machine_next(dl_machine *m, const dl_event *event)
{
    m->now = event->now;
    if (event->status && !phase_handles(m->phase, event->status)) return fail(m, event->status);

    switch (m->phase) {
    case CATCH_UP:
        return event->text ? fold_text(m, event) : caught_up(m);
    case TRAINING:
        return trained(m);
    case SAVING:
        return ask(m, DL_ASK_READ, LATE_CHECK);
    case LATE_CHECK:
        return late_checked(m, event);
    case CONTRIBUTING:
        return contributed(m);
    case LISTING:
        return listed(m, event);
    case FETCHING:
        return fetched(m, event);
    case LOOKING:
        return looked(m, event);
    case WATCHING:
        see_heartbeats(m, event);
        return close_or_wait(m);
    case WAITING:
        return list(m);
    case DRAFTING:
        return drafted(m, event);
    case CREATING:
        return created(m, event);
    case READING_BACK:
        return read_back(m, event);
    case FOLD_FETCHING:
        return fold_fetched(m, event);
    case FOLD_COMPUTING:
        return fold_computed(m, event);
    case ADOPTING:
        return adopted(m);
    case CATCH_UP_ADOPTING:
        return open_entry(m) < m->a.entries ? caught_up(m) : finish(m);
    case SNAPSHOTTING:
        return snapshotted(m);
    case ENDING:
    case OVER:
        break;
    }
    DL_ASSERT(!"an event without an open ask");
}
