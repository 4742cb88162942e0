/* machine_parts.h - the inside of the machine, which its parts share and nobody else sees.
 *
 *     machine.c   beginning, what is to be done next, and training
 *     phases.c    the table of phases: requests, handlers and names
 *     gather.c    towards the entry: contribute, and collect what others have contributed
 *     propose.c    close it: draft what becomes of it, and create its name
 *     apply.c    the entry stands: judge it, compute it, fold it, adopt it */
#ifndef DL_PROTOCOL_MACHINE_PARTS_H
#define DL_PROTOCOL_MACHINE_PARTS_H

#include "base/arena.h"
#include "protocol/candidates.h"
#include "protocol/judge.h"
#include "protocol/liveness.h"
#include "protocol/machine.h"
#include "protocol/proposal.h"
#include "protocol/unreadable.h"

enum { MAX_UNREAD = 2 }; /* refused readings of an object before one is believed */

typedef enum dl_phase {
    DL_CATCHING_UP, /* reading entries that are there already */
    DL_TRAINING,
    DL_TIMING,     /* async: how fast is everybody? */
    DL_LATE_CHECK, /* behind the due point: does the entry stand without us? */
    DL_CONTRIBUTING,
    DL_PUTTING_AHEAD, /* contributing to a later entry than the open one */
    DL_CONFIRMING,    /* the open entry's was put ahead, and is still under way */
    DL_LISTING,
    DL_FETCHING, /* what the listing found */
    DL_KNOCKING, /* putting an empty one, where nobody waits for us, and going to train */
    DL_LOOKING,  /* at log/<e>, between listings */
    DL_WATCHING,
    DL_WAITING,
    DL_JUDGING,     /* the draft's members, before they are used */
    DL_SERVING,     /* combining slices of others' plans, before closing is thought of */
    DL_COMBINING,   /* the draft's members, for all; sharded: planning that */
    DL_READING_OWN, /* what came of it */
    DL_AWAITING,    /* slices that are not there yet: */
    DL_AWAITING_LOOK,
    DL_AWAITING_SERVE,
    DL_DRAFTING, /* computing the draft */
    DL_CREATING,
    DL_READING_BACK,
    DL_HALF_READ,     /* waiting for the rest of what a store showed too early */
    DL_FINDING_VOID,  /* looking for a decision that the open entry is void */
    DL_FOLD_FETCHING, /* what the entry names and we do not have */
    DL_FOLD_JUDGING,
    DL_FOLD_COMBINED, /* fetching what its committer has combined */
    DL_FOLD_COMBINING,
    DL_FOLD_COMPUTING,
    DL_SWAPPING,
    DL_SNAPSHOTTING,
    DL_ENDING,
    DL_OVER
} dl_phase;

struct dl_machine {
    dl_machine_args a;
    dl_arena arena;
    dl_time now;
    dl_phase phase;
    dl_request_kind requested; /* the kind of the open request */

    /* what the log has decided, by fragment */
    dl_hash *digest;
    uint64_t *n_commits;
    uint64_t n_commits_all;

    /* what this replica has to do with it */
    uint64_t n_put;     /* entries [0, n_put) need no contribution of ours any more */
    uint64_t sending;   /* 1 + the one of these that is still under way; 0: none */
    bool behind;        /* there may be more entries standing: look before training */
    bool has_bases;     /* resumed, and not compared yet: */
    dl_hash *bases;     /* [P] what the saved parameters rest on, */
    uint64_t bases_at;  /* before this entry; what was saved has seen those below. 0: nothing was */
    uint64_t knock_at;  /* nobody waits for us: no knock before this entry; */
    unsigned n_knocks;  /* so many since an entry counted us */
    uint64_t own_since; /* from this entry on this replica has something to lose */
    dl_time start_at, train_began, due_at, put_took;
    double round_s;      /* from one due point to the next */
    uint64_t train_from; /* position at train_began */
    dl_time grace_over;  /* async: behind our own entry; 0: it does not stand */
    bool own_damaged;    /* async: the store does not give back what we have put */

    /* the open entry, cleared when it moves */
    dl_known_table known;
    dl_watch watch;
    bool *silent;            /* [max_members], of the roster */
    dl_simulated *simulated; /* [max_members], of the roster; NULL: time is not simulated */
    double simulated_s;      /* that the round takes */
    size_t fetching;         /* the listed one that is being read */
    dl_ahead ahead[DL_AHEAD_MAX];
    dl_draft draft;
    dl_hash draft_result;
    bool computed;        /* draft_result is the draft's, and the state's free copy holds it */
    bool created;         /* the draft won its name */
    dl_time enough_at;    /* run.close_at were there; DL_NEVER: not yet */
    double slack_s;       /* left of the overlap then */
    dl_ledger *scratch;   /* of what an entry would make of the ledger; NULL: data is not dealt */
    dl_bans *bans;        /* … of the bans; NULL: nobody is banned */
    size_t rank;          /* whose turn it is before ours, of those that have contributed */
    bool by_all;          /* sharded: this one goes as by allgather */
    dl_time slices_until; /* … then, if not all are there */

    dl_judge judge; /* of the draft, or of the entry being followed */

    /* the entry being followed */
    dl_entry entry;
    size_t *slots;         /* [max_members] of its members */
    double *norms;         /* [max_members] likewise, for the record */
    dl_hash entry_digest;  /* of its text */
    dl_hash suspect;       /* of a text that is read again before it is judged (P7) */
    size_t fold_member;    /* next member to make sure of; behind them, of what was rejected */
    bool judged;           /* its verdicts are what its contributions give, or not ours to say */
    unsigned n_recomputed; /* from freshly read bytes */
    unsigned n_unread;     /* refused readings of what is combined */
    bool recombines;       /* … which is combined here from the members */
    bool disputed;         /* … and they do not give it */
    uint64_t rejoined_at;  /* 1 + the last entry that made us begin again; 0: none */
    dl_unread *unread;     /* [P] entries that name what cannot be read, */
    uint64_t started_for;  /* behind the last of these for whose sake we began again, */
    unsigned n_starts;     /* so often; */
    bool parted;           /* … held void by us, while our former life had gone on from it */

    /* an operator's decisions (voided.h) */
    dl_decisions decisions;
    uint64_t began_at;  /* entries of the state that this machine began or last began again from */
    uint64_t void_look; /* the entry that may be a decision */
    diloco_status lost; /* with which we fail if there is none */
    char lost_text[512];

    /* P25: when is a snapshot due? */
    uint64_t bytes_since_snapshot, snapshot_known;
    dl_time snapshot_at;
};

/* ---- of machine.c ---- */

static inline uint64_t dl_open_entry(const dl_machine *m)
{
    return m->a.control->entry;
}

static inline bool dl_machine_is_async(const dl_machine *m)
{
    return m->a.pace->schedule.async;
}

/* A request of the open entry, after whose answer the machine is in `next`. */
dl_request dl_machine_request(dl_machine *m, dl_request_kind kind, dl_phase next);
dl_request dl_machine_fail(dl_machine *m, diloco_status status); /* its text is set */
dl_request dl_machine_fetch(dl_machine *m, const dl_known *known, dl_phase next, bool fresh);
/* That one will be fetched next; false: so many are not read at a time. */
bool dl_machine_look_ahead(dl_machine *m, dl_request *fetch, const dl_known *known);
dl_request dl_machine_go_on(dl_machine *m); /* with what is to be done next */
bool dl_machine_is_over(const dl_machine *m);
/* Are contributions read as a whole now, and not the tables of their slices alone? */
bool dl_machine_reads_whole(const dl_machine *m);
uint32_t dl_machine_fragment(const dl_machine *m); /* of the open entry */
void dl_machine_compare_bases(dl_machine *m);
void dl_machine_note(dl_machine *m, dl_note note);
void dl_machine_clear_entry(dl_machine *m);

/* replies of its phases */
dl_request dl_machine_read_on(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_knocked(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_trained(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_timed(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_late_checked(dl_machine *m, const dl_reply *reply);
dl_request dl_machine_waited_for_rest(dl_machine *m, const dl_reply *reply);

/* ---- of phases.c ---- */

const char *dl_phase_name(dl_phase phase);
/* Returns true if a request of this kind may be open in the phase. */
bool dl_phase_waits_for(dl_phase phase, dl_request_kind kind);
/* Returns true if the handler of `from` may enter `to`. */
bool dl_phase_leads_to(dl_phase from, dl_phase to);
/* Runs the handler of the machine's phase. A failure that it does not deal with stops the machine.
 */
dl_request dl_phase_handle(dl_machine *m, const dl_reply *reply);
/* Says in one static word what came of a request. */
const char *dl_reply_word(const dl_reply *reply);

/* ---- of gather.c ---- */

/* The first entry that was taken and not put: the open one after a look at the log, a later one
 * before anything else is waited for. */
dl_request dl_gather_contribute(dl_machine *m);
dl_request dl_gather_list(dl_machine *m);
bool dl_gather_has_to_put(dl_machine *m); /* passes over what is mute */
bool dl_gather_may_put_ahead(dl_machine *m);
/* Does no entry that is told of wait for us, and is it time to ask for it (P9)? */
bool dl_gather_has_to_knock(const dl_machine *m);
dl_request dl_gather_knock(dl_machine *m);
/* The open entry is taken: put ours, then see who else is there. What was taken for later entries
 * is put where there would be waiting (wait_until): training may wait for the open one. */
dl_request dl_gather_collect(dl_machine *m);
dl_time dl_gather_deadline(const dl_machine *m);
bool dl_gather_has_roster(const dl_machine *m); /* the open entry */
/* From when on we look for contributions ourselves: a deadline behind each that comes before us.
 * This decides nothing but who works: the log's name is anybody's (P5). */
dl_time dl_gather_turn(const dl_machine *m);
bool dl_gather_is_our_turn(const dl_machine *m);
/* Take in a reading of a contribution; true: it has to be read again (P7). */
bool dl_gather_judge(dl_machine *m, dl_known *known, const dl_reply *reply);

/* answers of its phases */
dl_request dl_gather_contributed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_put_ahead(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_confirmed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_waited(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_listed(dl_machine *m, const dl_reply *reply);
dl_request dl_gather_fetched(dl_machine *m, const dl_reply *reply);

/* ---- of propose.c ---- */

/* Is all there that the open entry waits for, and may we close it? Then there is nothing to look
 * for first: creating it tells whether it stands (P5). */
bool dl_decide_is_complete(const dl_machine *m);
dl_request dl_decide_close(dl_machine *m);

/* answers of its phases */
dl_request dl_decide_looked(dl_machine *m, const dl_reply *reply); /* at log/<e> */
dl_request dl_decide_served(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_awaited(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_awaited_look(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_awaited_serve(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_watched(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_judged(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_read_own(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_drafted(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_created(dl_machine *m, const dl_reply *reply);
dl_request dl_decide_read_back(dl_machine *m, const dl_reply *reply);

/* ---- of apply.c: answers of its phases ---- */

dl_request dl_follow_text(dl_machine *m, const dl_reply *reply); /* log/<e> is there */
dl_request dl_follow_void(dl_machine *m, const char *why);       /* it is void */
dl_request dl_follow_without(
    dl_machine *m); /* from behind an entry that we cannot read, and others did */
dl_request dl_follow_fetched(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_judged(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_fetched_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_combined(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_computed(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_swapped(dl_machine *m, const dl_reply *reply);
dl_request dl_follow_snapshotted(dl_machine *m, const dl_reply *reply);

#endif
