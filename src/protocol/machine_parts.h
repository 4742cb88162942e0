/* machine_parts.h - the structure of the machine, which only its own source files use.
 *
 *     machine.c        begin, choose the next request, and train
 *     phases.c         the table of phases: requests, handlers and names
 *     gather.c         before the entry: contribute, and collect contributions
 *     propose.c        close it: draft the entry, and create its name
 *     async_phases.c   asynchronous runs: the phases that differ (mode.h)
 *     topology_*.c     exchange topologies: the replies that differ (topology_rules.h)
 *     apply.c          the entry is in the log: judge it, and compute it
 *     advance.c        the log advances by it */
#ifndef DL_PROTOCOL_MACHINE_PARTS_H
#define DL_PROTOCOL_MACHINE_PARTS_H

#include "base/arena.h"
#include "protocol/candidates.h"
#include "protocol/judge.h"
#include "protocol/liveness.h"
#include "protocol/machine.h"
#include "protocol/mode.h"
#include "protocol/proposal.h"
#include "protocol/topology/topology_rules.h"
#include "protocol/void/unreadable.h"

enum { MAX_REFUSED_READS = 2 }; /* refused readings of an object before one is believed */

typedef enum dl_phase {
    DL_CATCHING_UP, /* reading entries that exist already */
    DL_TRAINING,
    DL_SOUNDING,   /* passed over: have the others reached the due point of the open entry? */
    DL_ALIGNING,   /* they have not: waiting until they do */
    DL_TIMING,     /* async: reading the speeds of all replicas */
    DL_LATE_CHECK, /* after the due point: was the entry committed without us? */
    DL_CONTRIBUTING,
    DL_PIPELINING, /* contributing to a later entry than the open one */
    DL_CONFIRMING, /* the open entry's pipelined upload is still in flight */
    DL_LISTING,
    DL_FETCHING,   /* reading the contributions of the listing */
    DL_ANNOUNCING, /* announcing, then training */
    DL_MEASURING,  /* how far the log has grown, while this replica reads it */
    DL_LOOKING,    /* at log/<e>, between listings */
    DL_WATCHING,
    DL_WAITING,
    DL_JUDGING,     /* the draft's members, before they are used */
    DL_SERVING,     /* combining slices of others' plans, before an entry is closed */
    DL_COMBINING,   /* combining the draft's members for all; sharded: planning that */
    DL_READING_OWN, /* reading that update back */
    DL_AWAITING,    /* waiting for slices that are missing: */
    DL_AWAITING_LOOK,
    DL_AWAITING_SERVE,
    DL_DRAFTING, /* computing the draft */
    DL_CREATING,
    DL_READING_BACK,
    DL_HALF_READ,      /* waiting for the rest of what a store showed too early */
    DL_FINDING_VOID,   /* looking for a decision that the open entry is void */
    DL_APPLY_FETCHING, /* fetching what the entry names and we do not have */
    DL_APPLY_JUDGING,
    DL_APPLY_COMBINED, /* fetching its committer's combined update */
    DL_APPLY_COMBINING,
    DL_APPLY_COMPUTING,
    DL_SWAPPING,
    DL_SNAPSHOTTING,
    DL_ENDING,
    DL_OVER
} dl_phase;

/* The log's decisions, by fragment. */
typedef struct dl_machine_log {
    dl_hash *digest;     /* [P] of the state */
    uint64_t *n_commits; /* [P] */
    uint64_t n_commits_all;
    bool behind; /* there may be more entries: read before training */
} dl_machine_log;

enum { DL_MACHINE_TAKEN_MAX = 32 }; /* the most announcements to entries that have not closed */

/* This replica's own part in the log. */
typedef struct dl_machine_self {
    uint64_t n_put;   /* entries [0, n_put) need no more contributions of this replica */
    uint64_t sending; /* 1 + the one of these that is in flight; 0: no upload is */
    bool has_bases;   /* resumed, and not compared yet */
    dl_hash *bases;   /* [P] the states that the saved parameters rest on */
    /* The entry whose state they are; the saved state knows the entries before it. 0: nothing was
     * saved. */
    uint64_t bases_at;
    uint64_t announce_at; /* no entry waits for this replica: no announcement before this entry */
    uint64_t announced;   /* 1 + the entry of the last announcement; 0: not yet */
    /* Entries from the open one on to which this process has announced itself (P9). It uploads
     * nothing else to them. */
    uint64_t taken[DL_MACHINE_TAKEN_MAX];
    size_t n_taken;
    /* The log moved on without this replica: it trains from the others' next due point on (P13),
     * and waits for that no longer than align_until; 0: it does not wait yet. */
    bool out_of_step;
    dl_time align_until;
    uint64_t align_from; /* the open entry when it began to wait */
    uint64_t untouched;  /* 1 + an entry that it saw without a contribution of another; 0: none */
    unsigned n_late;     /* due points in a row whose entry had closed */
    unsigned n_announcements; /* announcements since an entry counted this replica */
    uint64_t read_from;       /* when it fell out of step: the open entry, */
    dl_time read_since;       /* and the time; */
    double entry_s;           /* and how long it took for reading an entry since */
    uint64_t measure_at;      /* the log is not measured before this entry */
    uint64_t backlog;   /* 1 + the unread entries at the last measurement; 0: not measured yet */
    uint64_t own_since; /* from this entry on this replica has captures to lose */
    dl_time
        grace_over;   /* async: the end of the grace after the own entry; 0: it is not committed */
    bool own_damaged; /* async: the store does not return this replica's contribution */
} dl_machine_self;

/* When events happened on this replica, and how long they take. */
typedef struct dl_machine_timing {
    dl_time start_at, train_began, due_at, put_took;
    uint64_t train_from; /* position at train_began */
    double round_s;      /* from one due point to the next */
} dl_machine_timing;

/* The open entry: its contributions, and the draft of its text. Cleared when the log advances
 * (dl_machine_clear_entry). */
typedef struct dl_open {
    dl_candidate_table known;
    dl_watch watch;
    bool *silent, *present;  /* [max_members], of the roster */
    dl_simulated *simulated; /* [max_members], of the roster; NULL: time is not simulated */
    double simulated_s;      /* simulated length of the round */
    size_t fetching;         /* the listed contribution that is being read */
    dl_draft draft;
    dl_hash draft_result;
    bool computed;        /* draft_result is the draft's, and the state's free copy holds it */
    bool created;         /* the draft won its name */
    dl_time enough_at;    /* when run.close_at had contributed; DL_NEVER: not yet */
    double slack_s;       /* of the overlap, at that time */
    dl_ledger *scratch;   /* the ledger after an entry; NULL: the log does not assign data */
    dl_bans *bans;        /* the bans after an entry; NULL: no replica is ever banned */
    size_t rank;          /* replicas that have contributed and whose turn is before ours */
    bool by_all;          /* sharded: every replica combines this entry, as with allgather */
    dl_time slices_until; /* sharded: until then missing slices are waited for */
} dl_open;

/* The entry that is being applied, and how far its check has come. */
typedef struct dl_applying {
    dl_entry entry;
    size_t *slots;         /* [max_members] of its members */
    double *norms;         /* [max_members] of its members, for the record */
    dl_hash digest;        /* of its text */
    dl_hash suspect;       /* of a text that is read again before it is judged (P7) */
    unsigned n_unreadable; /* readings of the entry whose texts differ, and none can be read */
    size_t member;         /* the next member to make sure of; then of those it rejects */
    bool judged;           /* its verdicts were checked, or this replica need not check them */
    unsigned n_recomputed; /* computations from freshly read bytes */
    bool recombines;       /* this replica combines the members itself */
    bool disputed;         /* and the members do not give the entry's update */
} dl_applying;

/* Entries because of which this replica rejoined, or that it could not read (unreadable.h). */
typedef struct dl_rejoining {
    uint64_t rejoined_at;      /* 1 + the last entry whose base or ledger was not ours; 0: none */
    dl_unreadable *unreadable; /* [P] the last entry that names unreadable bytes */
    uint64_t started_for;      /* 1 + the last entry because of which the replica rejoined */
    unsigned n_starts;         /* how often it did for that one */
    /* an earlier generation of this replica built on an entry that this one treats as void */
    bool parted;
    uint64_t left_at; /* 1 + the open entry when it rejoined for a newer snapshot; 0: it did not */
    bool stays;       /* the snapshot that it found so was no newer, so it does not try again */
} dl_rejoining;

/* An operator's decisions (voided.h). */
typedef struct dl_voiding {
    dl_decisions decisions;
    uint64_t began_at;  /* entries of the state that this machine last began from */
    uint64_t look;      /* the entry that may be a decision */
    diloco_status lost; /* the machine fails with this if there is no decision */
    char lost_text[512];
} dl_voiding;

/* P25: when is a snapshot due? */
typedef struct dl_snapshot_policy {
    uint64_t bytes_since, known;
    dl_time at;
} dl_snapshot_policy;

struct dl_machine {
    dl_machine_args a;
    dl_arena arena;
    dl_time now;
    dl_phase phase;
    dl_request_kind requested;    /* the kind of the open request */
    dl_ahead ahead[DL_AHEAD_MAX]; /* of the last FETCH */
    dl_judge judge;               /* of the draft, or of the entry being applied */
    unsigned n_refused_reads;     /* refused readings of the combined update of either */

    dl_machine_log log;
    dl_machine_self self;
    dl_machine_timing timing;
    dl_open open;
    dl_applying applying;
    dl_rejoining rejoining;
    dl_voiding voiding;
    dl_snapshot_policy snapshots;
};

/* ---- of machine.c ---- */

static inline uint64_t dl_open_entry(const dl_machine *m)
{
    return m->a.control->entry;
}

static inline dl_entry_place dl_machine_place(const dl_machine *m, uint64_t entry)
{
    return (dl_entry_place){
        .run = m->a.run, .number = entry, .outer = m->a.outer, .identity = m->a.identity};
}

static inline const dl_mode *dl_machine_mode(const dl_machine *m)
{
    return dl_mode_of(&m->a);
}

static inline const dl_topology *dl_machine_topology(const dl_machine *m)
{
    return dl_topology_of(m->a.topology);
}

/* Makes a request about the open entry; its reply is handled in phase `next`. */
dl_request dl_machine_request(dl_machine *m, dl_request_kind kind, dl_phase next);
dl_request dl_machine_fail(dl_machine *m, diloco_status status); /* its text is set */
dl_request dl_machine_fetch(dl_machine *m, const dl_candidate *known, dl_phase next, bool fresh);
/* Adds one that will be fetched next. Returns false if DL_AHEAD_MAX are there already. */
bool dl_machine_look_ahead(dl_machine *m, dl_request *fetch, const dl_candidate *known);
dl_request dl_machine_go_on(dl_machine *m); /* makes the next request */
dl_request dl_machine_train(dl_machine *m);
dl_request dl_machine_rejoin(dl_machine *m,
                             uint64_t before); /* from a snapshot of so few entries */
/* As far as this replica knows, there are no more entries. */
dl_request dl_machine_caught_up(dl_machine *m);
bool dl_machine_is_over(const dl_machine *m);
/* Returns whether contributions are read whole now, and not only the tables of their slices. */
bool dl_machine_reads_whole(const dl_machine *m);
uint32_t dl_machine_fragment(const dl_machine *m); /* of the open entry */
void dl_machine_compare_bases(dl_machine *m);
void dl_machine_note(dl_machine *m, dl_note note);
void dl_machine_clear_entry(dl_machine *m);

/* replies of its phases */
dl_request dl_machine_read_on(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_announced(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_trained(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_late_checked(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_waited_for_rest(dl_machine *m, const dl_reply *reply);

/* ---- of async_phases.c ---- */

dl_request dl_async_timed(dl_machine *m, const dl_reply *reply);

/* ---- of phases.c ---- */

const char *dl_phase_name(dl_phase phase);
/* Returns true if a request of this kind may be open in the phase. */
bool dl_phase_waits_for(dl_phase phase, dl_request_kind kind);
/* Returns true if the handler of `from` may enter `to`. */
bool dl_phase_leads_to(dl_phase from, dl_phase to);
/* Calls the handler of the machine's phase. A failure that it does not handle stops the machine. */
dl_request dl_phase_handle(dl_machine *m, const dl_reply *reply);
/* Returns one static word for the result of a request. */
const char *dl_reply_text(const dl_reply *reply);

/* ---- of gather.c ---- */

/* Contributes the first capture that is not uploaded. That of the open entry follows a look at the
 * log; a later one goes before any wait. */
dl_request dl_gather_contribute(dl_machine *m);
dl_request dl_gather_request(dl_machine *m, uint64_t entry, dl_phase next); /* a CONTRIBUTE */
dl_request dl_gather_list(dl_machine *m);
dl_request dl_gather_fetch_next(dl_machine *m); /* the next listed one, or on to the entry */
bool dl_gather_has_to_put(dl_machine *m);       /* skips mute captures */
bool dl_gather_has_due(dl_machine *m);          /* in rounds */
bool dl_gather_may_pipeline(dl_machine *m);
/* The open entry is captured: contributes, then lists the others' contributions. Later captures are
 * uploaded when the machine would wait (wait_until), since training may wait for the open one. */
dl_request dl_gather_collect(dl_machine *m);
dl_time dl_gather_deadline(const dl_machine *m);
bool dl_gather_has_roster(const dl_machine *m); /* the open entry */
/* Returns a listed generation of this replica that is later than this process, or NULL (P6).
 * dl_gather_fenced stops the process for it. */
const dl_generation *dl_gather_newer(const dl_machine *m, const dl_reply *reply);
dl_request dl_gather_fenced(dl_machine *m, const dl_generation *by);
/* Returns when this replica begins to look for contributions: a deadline after each replica whose
 * turn is earlier. It decides only which replica works, since any may create the log's name (P5).
 */
dl_time dl_gather_turn(const dl_machine *m);
bool dl_gather_is_our_turn(const dl_machine *m);
bool dl_gather_is_first(const dl_machine *m); /* no other replica's turn is before ours */
/* Takes the result of a read of a contribution. Returns true if it has to be read again (P7). */
bool dl_gather_judge(dl_machine *m, dl_candidate *known, const dl_reply *reply);

/* replies of its phases */
dl_request dl_gather_contributed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_pipeline(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_confirmed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_waited(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_listed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_listed_all(dl_machine *m, const dl_reply *reply); /* in rounds */
dl_request dl_gather_fetched(dl_machine *m, const dl_reply *reply);

/* ---- of joining.c ---- */

/* Returns whether it is time to announce this replica (P9): no entry with a known roster waits for
 * it. */
bool dl_joining_has_to_announce(const dl_machine *m);
/* Returns whether this process has announced itself to the entry, which is not before the open one.
 */
bool dl_joining_has_announced(const dl_machine *m, uint64_t entry);
dl_request dl_joining_announce(dl_machine *m);
/* The log moved on without this replica: it reads the log, then trains from the others' next due
 * point on. */
void dl_joining_fall_out_of_step(dl_machine *m);
/* Returns whether it is time to measure the log, because this replica may read it more slowly than
 * it grows. dl_joining_measure makes that request. */
bool dl_joining_falls_back(const dl_machine *m);
dl_request dl_joining_measure(dl_machine *m);
/* Returns whether this replica, which was passed over, waits for the others' next due point before
 * it trains (P13). dl_joining_align makes the next request of that. dl_joining_passes_entry: the
 * open entry closes meanwhile. The replica trains from its end, or waits for the next one. */
void dl_joining_passes_entry(dl_machine *m);
bool dl_joining_has_to_align(const dl_machine *m);
dl_request dl_joining_align(dl_machine *m);

/* replies of its phases */
dl_request dl_joining_measured(dl_machine *m, const dl_reply *reply);
dl_request dl_joining_sounded(dl_machine *m, const dl_reply *reply);
dl_request dl_joining_aligned(dl_machine *m, const dl_reply *reply);

/* ---- of propose.c ---- */

/* Returns whether everything that the open entry waits for has arrived, and we may close it. Then
 * no look at the log is needed: creating the entry shows whether it exists (P5). */
bool dl_propose_is_complete(const dl_machine *m);
dl_request dl_propose_close(dl_machine *m);
bool dl_propose_may_create(const dl_machine *m); /* P26 */
dl_request dl_propose_draft_commit(dl_machine *m);
dl_request dl_propose_draft_abort(dl_machine *m, const char *reason);
dl_request dl_propose_wait_until(dl_machine *m, dl_time until);
/* Acts on the close rule's verdict on the open entry, if it is this replica's turn. */
dl_request dl_propose_look_to_close(dl_machine *m);
dl_request dl_propose_of_draft(dl_machine *m, dl_request_kind kind, dl_phase next);
dl_request dl_propose_compute(dl_machine *m); /* the draft's step, from what is held */

/* replies of its phases */
dl_request dl_propose_looked(dl_machine *m, const dl_reply *reply); /* at log/<e> */
dl_request dl_propose_served(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_watched(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_judged(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_read_own(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_drafted(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_created(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_read_back(dl_machine *m, const dl_reply *reply);

/* ---- of topology_sharded.c: replies of its phases ---- */

dl_request dl_propose_awaited(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_awaited_look(dl_machine *m, const dl_reply *reply);
dl_request dl_propose_awaited_serve(dl_machine *m, const dl_reply *reply);

/* ---- of apply.c: replies of its phases ---- */

dl_request dl_apply_text(dl_machine *m, const dl_reply *reply); /* log/<e> exists */
/* rejoins after an entry that we cannot read and others could */
dl_request dl_apply_without(dl_machine *m);
dl_request dl_apply_fetched(dl_machine *m, const dl_reply *reply);
dl_request dl_apply_judged(dl_machine *m, const dl_reply *reply);
dl_request dl_apply_fetched_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_apply_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_apply_computed(dl_machine *m, const dl_reply *reply);

/* ---- of advance.c ---- */

dl_request dl_apply_void(dl_machine *m, const char *why); /* the entry is void */
/* It is void since its committer claims what the members do not give. */
dl_request dl_apply_false(dl_machine *m, const char *why);
dl_request dl_apply_abort(dl_machine *m); /* it is a valid abort */
dl_request dl_apply_swap(dl_machine *m);  /* take the computed state, which is the entry's */

/* replies of its phases */
dl_request dl_apply_swapped(dl_machine *m, const dl_reply *reply);
dl_request dl_apply_snapshotted(dl_machine *m, const dl_reply *reply);

#endif
