/* sim.h - the parts of the cluster simulation. cluster_sim.c makes a cluster and runs it.
 * sim_generation.c lets a replica begin and end, and sim_play.c takes its turns. sim_net.c is
 * between it and the store. sim_intruder.c writes without a key, sim_count.c counts events,
 * sim_referee.c judges. sim_goodput.c measures the time that is not lost to failures, and
 * sim_loss.c what the rest is spent on. */
#ifndef DL_TESTS_SIM_H
#define DL_TESTS_SIM_H

#include "base/rng.h"
#include "exchange/exec.h"
#include "log/layout.h"
#include "run/due_points.h"

#include <stdio.h>
#include <stdlib.h>

/* A wide simulation has fragments of several slices (P19), so of several blocks. */
#ifndef SIM_FLOATS
#define SIM_FLOATS   24
#define SIM_REPLICAS 256
#endif

/* How long a log is; a simulation of goodput has a longer one. */
#ifndef SIM_ENTRIES
#define SIM_ENTRIES 8
#endif
#ifndef SIM_FRAGMENTS
#define SIM_FRAGMENTS 4
#endif

enum {
    N_FLOATS = SIM_FLOATS,
    ENTRIES = SIM_ENTRIES,
    MAX_FRAGMENTS = SIM_FRAGMENTS,
    MAX_REPLICAS = SIM_REPLICAS
};
enum {
    SIM_SLOTS = 2 * MAX_REPLICAS,
    SIM_MAX_LATE = 256,
    SIM_RECENT = 256,
    SIM_MOVES = 8,    /* last moves of each machine that a failure prints */
    SIM_STALEST = 20, /* seconds */
    SIM_QUIET = 2000, /* virtual seconds until the faults stop */
    MAX_LIES = 64
};

#define SIM_IN_FLIGHT                                                                              \
    (N_FLOATS * 4 > DL_CONTRIBUTION_HEADER ? N_FLOATS * 4 : DL_CONTRIBUTION_HEADER)
#define SIM_BAN_AFTER   "1"
#define SIM_BAN_ENTRIES "2"

/* Events that have to happen, so that the invariants are tested: each in many seeds. */
#define SIM_HAPPENINGS(X)                                                                          \
    X(UNREACHABLE, "calls that the store did not answer")                                          \
    X(CUT, "requests of a replica that was cut off from the store")                                \
    X(LOST, "requests that were lost on the way")                                                  \
    X(UNKNOWN, "requests that were done, and not answered")                                        \
    X(DELAYED, "writes that arrived after their writer had given them up")                         \
    X(LATE_CREATED, "objects that such a write created")                                           \
    X(REORDERED, "writes that arrived behind a later one of the same writer")                      \
    X(TWICE, "writes that arrived twice")                                                          \
    X(STALE, "objects that a stale listing left out")                                              \
    X(SKEWED, "generations whose clock was more than an hour off")                                 \
    X(PAUSED, "replicas paused for longer than run.patience")                                      \
    X(TWIN, "replicas started again elsewhere while they were only paused")                        \
    X(FENCED, "generations that stopped because of a later one")                                   \
    X(SLOW, "stretches of training longer than run.patience")                                      \
    X(LIE, "contributions that a liar damaged")                                                    \
    X(LIE_BASE, "contributions that name a state that never was")                                  \
    X(LIE_STEPS, "contributions that claim all steps of the run")                                  \
    X(READ_AFRESH, "contributions read again because a reading was damaged or doubted")            \
    X(LATE_JOINER, "replicas that joined after the first entry")                                   \
    X(ANNOUNCED, "announcements of a replica that no entry waited for")                            \
    X(FROM_SNAPSHOT, "generations that began from a snapshot")                                     \
    X(LOST_STATE, "replicas that lost their local state")                                          \
    X(STOPPED, "generations that stopped cleanly at any moment, and announced it")                 \
    X(SAVED_BEHIND, "generations that saved before they took over what they had missed")           \
    X(TAKEOVER, "contributions of a former life taken over")                                       \
    X(APPLIED_BESIDE, "entries folded while a contribution was under way")                         \
    X(LOST_RACE, "entries that somebody else had created first")                                   \
    X(EARLY_START, "first entries with fewer than run.replicas")                                   \
    X(PARTIAL, "commits without all of the roster (commit_partial)")                               \
    X(NO_QUORUM, "aborts for want of a quorum (commit_partial)")                                   \
    X(ABORT_RULE, "aborts because somebody was missing (abort)")                                   \
    X(SILENT, "aborts because the missing were silent (wait)")                                     \
    X(HELD, "contributions made also of what was dealt for aborted entries")                       \
    X(SHARED_SEAT, "guests passed over because another sat on the same seat")                      \
    X(AHEAD, "contributions put while an earlier entry was open")                                  \
    X(TRAINED_BESIDE, "steps taken while a contribution moved")                                    \
    X(MUTE, "due points that a joiner had too little for")                                         \
    X(RESUMED_IN_FLIGHT, "generations that began with contributions in flight")                    \
    X(LATE_ADOPT, "replicas passed over that took the shared model (adopt)")                       \
    X(LATE_KEEP, "replicas passed over that trained on (keep)")                                    \
    X(BOAST, "movements that a liar made too long")                                                \
    X(JUDGED, "contributions rejected by a commit")                                                \
    X(PROBED, "drafts whose members a committer measured, each by its own measure")                \
    X(BANNED, "replicas banned")                                                                   \
    X(FALSE_NEWS, "announcements and stops that were not true")                                    \
    X(INTRUDED, "objects that a writer without a key created")                                     \
    X(FORGED_BEAT, "heartbeats that it wrote for a replica that had stopped for good")             \
    X(RENEWED, "replicas that went on as a later generation, for junk at their names")             \
    X(RENAMED, "replicas that took another name, as another writer had created theirs first")      \
    X(PASSED_OVER, "listings that passed over junk")                                               \
    X(DISPUTE, "results disputed")                                                                 \
    X(VOID, "entries found void")                                                                  \
    X(UNREADABLE, "entries void since they count what cannot be read")                             \
    X(REJECT, "contributions refused")                                                             \
    X(REJOIN_BASE, "fresh starts because of an entry on another base")                             \
    X(REJOIN_GONE, "fresh starts because contributions were collected")                            \
    X(COMBINED, "updates that a leader combined for all")                                          \
    X(TOOK_COMBINED, "updates taken as another has combined them")                                 \
    X(RECOMBINED, "updates combined again, for they were not to be had")                           \
    X(OUT_OF_TURN, "entries of a leader whose turn it was not")                                    \
    X(LIE_FOUND, "updates of a liar that the audit disputes")                                      \
    X(SERVED, "plans of others whose slices were combined")                                        \
    X(BY_ALL, "sharded entries that everybody combined, for slices did not come")                  \
    X(DIED_BETWEEN, "owners that died when they had measured their slices and not combined them")

typedef enum sim_happening {
#define X(name, text) SIM_##name,
    SIM_HAPPENINGS(X)
#undef X
        SIM_N_HAPPENINGS,
    SIM_FIRST_OF_LEADER = SIM_COMBINED, /* from here on where not every replica combines, */
    SIM_FIRST_OF_SHARDED = SIM_SERVED   /* and from here on where each combines a slice */
} sim_happening;

extern uint64_t sim_happened[SIM_N_HAPPENINGS]; /* over all seeds */

typedef struct local_state { /* the contents of a replica's disk */
    bool there;
    dl_pace_saved pace;
    dl_pace_capture captures[DL_PACE_MAX_CAPTURES];
    dl_pace_fragment fragments[MAX_FRAGMENTS];
    dl_hash bases[MAX_FRAGMENTS], rests_on[MAX_FRAGMENTS];
    float w[N_FLOATS];
    uint64_t step, next_sample;
    dl_train_stats work[MAX_FRAGMENTS];
    /* the exec's privates: up to MAX_FRAGMENTS + 1 headers and movements of contributions in
     * flight */
    unsigned char own[DL_EXEC_MAX_PRIVATES][(MAX_FRAGMENTS + 1) * SIM_IN_FLIGHT];
} local_state;

typedef struct sim_skew {
    double began, rate;
} sim_skew;

/* Uses of a learner's time where chips fail (sim_loss.c). */
#define SIM_SPENDINGS(X)                                                                           \
    X(COUNTED, "steps that count")                                                                 \
    X(REPAIR, "repair")                                                                            \
    X(UNSAVED, "steps since the last save")                                                        \
    X(OVERTAKEN, "saved steps on fragments that the log has moved on")                             \
    X(PARTIAL, "steps of less than an interval (P14)")                                             \
    X(LATE, "contributions that came too late")                                                    \
    X(RETURN, "a return, from the end of the repair to the first step")                            \
    X(WAITING, "waiting for entries")                                                              \
    X(ENDED, "steps that the end of the run cut off")

typedef enum sim_spent {
#define X(name, text) SIM_SPENT_##name,
    SIM_SPENDINGS(X)
#undef X
        SIM_N_SPENT,
    SIM_SPENT_TRAINING = SIM_N_SPENT
} sim_spent;

typedef struct sim_time {
    sim_spent doing;
    double since; /* the end of the last step, or the beginning of what it does */
    double seconds[SIM_N_SPENT];
    uint16_t *cells;             /* [max_steps * MAX_FRAGMENTS], each step's in each fragment */
    size_t first[MAX_FRAGMENTS]; /* all cells before it have their cause */
    size_t n_steps, max_steps;   /* of all generations */
    size_t n_saved, n_lost;      /* the last failure lost the steps [n_saved, n_lost) */
    bool returns;                /* it has contributed nothing since the last failure */
} sim_time;

/* The next moments of a replica's parts, in virtual seconds; INFINITY: never. Each event searches
 * all of them, so they are outside the replicas, which are 100 KB each. */
typedef struct sim_moments {
    double exchange, trainer, upload;
    double failure; /* sim_goodput.c */
    double beat;    /* put when a reader looks from then on */
} sim_moments;

typedef struct replica {
    char name[DL_REPLICA_MAX + 1];
    const dl_signer *signer; /* NULL: nothing is signed */
    struct {
        bool byzantine, sleeper, has_twin;
    } kind;
    struct {
        bool alive, done, ended, lost, has_trained, saw_later;
    } now;
    struct {
        sim_moments *at;
        double speed;   /* virtual seconds of a step */
        sim_skew clock; /* of this generation */
    } time;
    struct {
        bool active;    /* up to `until`; else it waits for an entry */
        uint64_t until; /* a position */
    } trainer;
    struct {                    /* pipelined */
        uint64_t unsent;        /* dl_reply's, for the next answer */
        uint64_t sending, sent; /* 1 + its entry; 1 + the one before it; 0: none */
    } upload;
    struct {
        double first, last; /* moments; `first` is of `life` */
        uint64_t entry, n;
        dl_generation generation;
    } beat;
    struct {
        double cut_until, paused_until;
    } fault;
    struct {
        bool told; /* it is ended by a change; else it looks now and then */
        uint64_t n, until_n;
    } wait;
    struct {
        uint64_t writes, crashes, renames;
    } count;
    dl_generation generation;
    dl_store *store;
    dl_exec *exec;
    dl_machine *machine;
    dl_request request;
    struct {
        dl_transition moves[SIM_MOVES]; /* a ring of the machine's last moves */
        size_t n;
    } trace;
    struct {
        float w[N_FLOATS];
        dl_hash rests_on[MAX_FRAGMENTS]; /* I6: the state that w was last taken from */
        diloco_tensor tensors[MAX_FRAGMENTS];
        dl_arena arena;
    } model;
    dl_pace pace;
    struct {
        uint64_t step, next_sample, shard;
    } data;
    struct {
        uint64_t n_fetched; /* one after the other */
        bool missed;        /* something changed while it did not wait */
    } calm;
    dl_train_stats work[MAX_FRAGMENTS];
    local_state disk;
    sim_time spent;
    struct sim *sim;
} replica;

typedef struct sim_late { /* a write in flight */
    double at;
    int kind;
    replica *writer;
    uint64_t n_writes; /* of the writer, when it was sent */
    dl_buf bytes;
    dl_key key;
} sim_late;

typedef struct sim_recent { /* an object that was created a short while ago */
    double at;
    dl_hash key;
} sim_recent;

/* A cluster whose requests all take the same time, and which fails only by the failures of chips.
 */
typedef struct sim_calm {
    double request_s;       /* 0: a storm instead */
    double slow_s;          /* that of the last replica (sim_slow.c); 0: as the others */
    bool mute;              /* it announces itself, and contributes nothing */
    bool late;              /* it joins before the first snapshot, with a long backlog */
    uint64_t counted;       /* entries of which it is a member */
    double taken_at;        /* when the last replica reached the last due point, */
    double slowest;         /* and the longest from there to an adoption */
    double step_s;          /* of a step */
    double chips, repair_s; /* sim_goodput.c */
    char **options;         /* "NAME=VALUE", up to a NULL; NULL: none */
    double grew_at;         /* when the log's last entry was created */
    bool is_over;           /* it has all entries */
    double goodput;
} sim_calm;

typedef struct sim {
    uint64_t seed;
    struct {
        const char *topology; /* server.diloco.exchange */
        bool checks; /* contributions are judged, and a malicious replica claims too much, too */
        bool assigned, exact; /* the log deals the data; each sample counts exactly once */
        bool announcer;       /* a writer announces what never comes (sim_announcer.c) */
        bool keyed;           /* members have keys, and a writer without one writes to the store */
        bool open;            /* keyed: the roster is open */
    } kind;
    dl_rng rng;
    double now, p_crash;
    dl_config config;
    dl_store *store; /* without faults: for the referee */
    dl_runfile file;
    dl_hash file_digest;
    replica replicas[SIM_SLOTS];
    sim_moments moments[SIM_SLOTS];
    size_t n, n_slots; /* replicas; with the twins of some */
    size_t n_fragments;
    dl_schedule schedule;
    diloco_tensor tensors[MAX_FRAGMENTS]; /* of the template; each replica has its own data */
    struct {                              /* of the referee */
        dl_hash digest[ENTRIES + 1];      /* I1: after this many entries */
        bool known[ENTRIES + 1];
        dl_hash moved[ENTRIES]; /* of its fragment, after a commit */
        bool has_moved[ENTRIES];
        dl_hash text[ENTRIES]; /* I2 */
        bool read[ENTRIES];
        dl_entry entry; /* read to see whether a text is damaged */
    } truth;
    struct {
        sim_late late[SIM_MAX_LATE];
        size_t n_late;
        sim_recent recent[SIM_RECENT]; /* a ring */
        size_t n_recent;
        double next_cut;
    } net;
    struct {                       /* of malicious replicas */
        dl_hash damaged[MAX_LIES]; /* keys of objects that one has damaged */
        uint64_t n_damaged;
        dl_hash bodies[MAX_LIES];    /* of their combined updates */
        uint64_t n_told, n_captured; /* number of updates; of those that the log has taken, */
        uint64_t n_maybe;            /* or has where an audit need not reproduce them */
    } lies;
    struct {
        uint64_t commits, aborts, crashes, too_long;
        uint64_t samples; /* of dealt data that counted */
        bool all;         /* all contributions were there to count them */
    } count;
    sim_calm calm;
    struct {
        dl_rng rng;
        double next;
    } intruder, announcer;
    struct {
        replica *of; /* it stops for good, without a word; NULL: none does */
        double at;
        dl_buf beats[2]; /* heartbeats of its last generation, which the intruder has kept */
        uint64_t n_forged;
    } loss;
} sim;

#define DIE(s, ...)                                                                                \
    do {                                                                                           \
        fprintf(stderr, "seed %llu at %.3f s: ", (unsigned long long)(s)->seed, (s)->now);         \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\nreplay: cluster_sim %llu 1 %zu %s\n", (unsigned long long)(s)->seed,    \
                (s)->n, (s)->kind.topology);                                                       \
        sim_print_moves(s);                                                                        \
        exit(1);                                                                                   \
    } while (0)

/* ---- cluster_sim.c ---- */

double sim_uniform(sim *s, double a, double b);
bool sim_chance(sim *s, double p);        /* never, once the faults stop */
void sim_notify(sim *s, const char *key); /* that object is new */

/* ---- sim_random.c ---- */

void sim_seed_random(uint64_t seed);

/* ---- sim_generation.c ---- */

dl_time sim_clock(const replica *r);                   /* its own, now */
double sim_moment_of(const replica *r, dl_time clock); /* the virtual second of a time on it */
void sim_come_alive(replica *r);
void sim_begin_machine(replica *r, bool resumed);
void sim_fresh(void *user, uint32_t fragment); /* of dl_stops; user: a replica */
void sim_save(replica *r);                     /* to its disk */
void sim_crash(replica *r);                    /* to come again later */
void sim_bury(replica *r);
void sim_beat_all(sim *s);

/* ---- sim_play.c ---- */

void sim_turn(replica *r); /* its earliest event: its trainer's, its exchange's, or its beginning */

/* ---- sim_count.c ---- */

void sim_count(sim_happening what, bool happened);
void sim_on_note(void *user, const dl_note *n);          /* user: a replica */
void sim_on_move(void *user, const dl_transition *move); /* user: a replica */
void sim_print_moves(const sim *s); /* the last moves of each replica, on stderr */
void sim_count_answer(const replica *r, const dl_reply *reply); /* to a request that was done */
void sim_count_request(const replica *r);                       /* of what is asked next */

/* ---- sim_net.c ---- */

/* Owns inner, and closes it when this fails. */
diloco_status sim_net(dl_store **out, dl_store *inner, replica *r);
replica *sim_replica(sim *s, size_t i); /* with no moment to come */
void sim_cut(sim *s);                   /* at its time, some of the replicas for some time */
void sim_deliver(sim *s);               /* late writes that arrive now */
void sim_drop_late(sim *s);             /* at the end */

/* ---- sim_intruder.c ---- */

const dl_signer *sim_signer(size_t i); /* of the i-th replica */
void sim_intrude(sim *s);              /* at its time, something that has no key */
bool sim_loses_one(const sim *s);
void sim_choose_loss(sim *s);
uint64_t sim_open_entry(const sim *s); /* of the replica that has read furthest */

/* ---- sim_announcer.c ---- */

void sim_announce(sim *s); /* at its time, one announcement or stop that is not true */

/* ---- sim_goodput.c ---- */

void sim_goodput_configure(sim *s);
void sim_goodput_plan_failure(replica *r);
void sim_goodput_fail(replica *r); /* at its time */
void sim_goodput_measure(sim *s);  /* at the end, into s->calm.goodput */

/* ---- sim_loss.c: nothing where no chips fail ---- */

void sim_loss_begin(replica *r, sim_spent doing); /* from now on */
void sim_loss_step(replica *r);                   /* a step is complete */
void sim_loss_save(replica *r);
void sim_loss_capture(replica *r, const dl_pace_capture *c);
void sim_loss_adopt(replica *r, const dl_adopted *adopted);
void sim_loss_jump(replica *r); /* before it */
void sim_loss_fail(replica *r);
void sim_loss_end(sim *s);                  /* when the log has its last entry */
void sim_loss_sum(sim *s, double *seconds); /* of all learners, [SIM_N_SPENT] */

/* ---- sim_slow.c ---- */

double sim_request_s(const replica *r); /* calm: seconds of its requests */
void sim_slow_configure(sim *s);
double sim_slow_joins_after(const sim *s); /* seconds */
bool sim_slow_is_mute(const replica *r);   /* its open request has no effect */
void sim_slow_announce(replica *r);        /* as often as it can, if it is mute */
void sim_slow_measure(sim *s);             /* at the end, into s->calm.counted */

/* ---- sim_referee.c ---- */

void sim_check_digest(replica *r);                        /* I1, in the current state */
void sim_check_moved(replica *r, const dl_request *swap); /* I1, after a SWAP */
/* I9, of what was put */
void sim_check_sent(const replica *r, uint64_t entry, const dl_generation *generation);
void sim_check_base(const replica *r, uint64_t entry, dl_hash began); /* I6, of what is taken */
bool sim_is_honest(const sim *s, const char *name);                /* and not an invented replica */
void sim_check_refused(const replica *r, const dl_reply *fetched); /* I12 */
void sim_check_text(sim *s, uint64_t e, const void *text, size_t len); /* I2, of a good reading */
void sim_see_generations(replica *r, const dl_reply *listing);         /* I7 */
void sim_check_generation(const replica *r);                           /* I7 */
void sim_check_removal(const sim *s, const char *key);                 /* I8 */
void sim_check_ends(const sim *s);                                     /* I4 */
void sim_check_wait(const replica *r);                                 /* I4, async */
void sim_check_log(sim *s); /* I1 to I3, I6, I10, at the end */
void sim_audit(sim *s);     /* I5, I3 of dealt data */
void sim_count_shared_slot(const replica *r, const dl_entry *entry);
void sim_print_happenings(void);
bool sim_all_happened(const char *topology); /* names what did not, on stderr */

#endif
