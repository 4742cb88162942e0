/* node.h - one node of a run without a log: the members that it knows, its partners, and its next
 * action. A state machine: no I/O, no clock, no tensors.
 *
 * A *round* r is H inner steps and an exchange. The node publishes its contribution to round r,
 * takes those of the others as they come, and at the latest at the deadline continues:
 *
 *     START --members found--> TRAIN --dl_node_trained--> EXCHANGE --all came, or deadline--+
 *       |                       ^                           |                             |
 *       | others are ahead      |        fewer than min_peers: PASS       enough: STEP    |
 *       v                       |                           v                             v
 *      COPY --dl_node_copied--> +<--dl_node_agreed-- AGREE <--every agree_every rounds-- stepped
 *                               |
 *                               +-- last round --> LINGER (others still fetch) --> END
 *
 * Invariants:
 *  1. STEP is asked for with at least min_peers members, this node included, and each of them once:
 *     no time-out makes a node step alone.
 *  2. A node waits only for members heard from within `patience`. It waits again for a member that
 *     missed a deadline once that member was in time; its objects are taken before that, too. An
 *     agreement waits for it too, unless it is more than a round late. A member that reports a
 *     contribution and misses the deadline all the same is not waited for in the next 1, 2, 4, …
 *     DL_NODE_PAUSE rounds, until an object of it comes.
 *  3. A round of another number is never combined with this one.
 *  4. At most DL_NODE_MAX members are known; a new member replaces a silent one.
 *
 * Rounds are numbered from 0 and pass at each node by themselves, so two nodes can be at different
 * ones. The later one finds the objects that it needs kept at the other. With more than
 * DL_NODE_BEHIND rounds between them (pairs: DL_NODE_KEEP) it copies that one's model, and
 * continues at its round. */
#ifndef DL_GOSSIP_NODE_H
#define DL_GOSSIP_NODE_H

#include "base/clock.h"
#include "gossip/heartbeat.h"

/* Contributions are kept DL_NODE_KEEP rounds. A node that begins a round while another has trained
 * for one more than DL_NODE_BEHIND rounds later would stay late, and no node would count it. */
enum { DL_NODE_MAX = 64, DL_NODE_KEEP = 4, DL_NODE_BEHIND = 1, DL_NODE_PAUSE = 16 };

/* The run's rules, from its options. They do not change, except that the owner may set `deadline`
 * before an exchange, and that a wire raises `grace` to what its lines need. */
typedef struct dl_node_rules {
    uint64_t seed;                /* run.seed, for the draw of partners */
    bool pairs;                   /* swarm.exchange = "pairs" */
    size_t min_peers, expected;   /* members that a step needs; that the first round waits for */
    uint64_t rounds, agree_every; /* of the run; 0: no agreements */
    dl_time start;                /* how long it waits for them */
    dl_time patience;             /* silent: not heard from for this long */
    dl_time deadline;             /* of an exchange, and of lingering */
    dl_time grace;                /* how long it still serves when all are done */
} dl_node_rules;

/* The owner's next action, and the call that reports its end. */
typedef enum dl_todo {
    DL_TODO_WAIT,    /* until dl_node.until, unless something is heard */
    DL_TODO_COPY,    /* take dl_node.source's model --> dl_node_copied */
    DL_TODO_TRAIN,   /* H steps, publish the contribution --> dl_node_trained */
    DL_TODO_STEP,    /* the outer step with the members that came --> dl_node_stepped */
    DL_TODO_PASS,    /* none: theta stays --> dl_node_stepped */
    DL_TODO_PUBLISH, /* the model, to agree on --> dl_node_published */
    DL_TODO_AGREE,   /* combine the models that came --> dl_node_agreed */
    DL_TODO_APART,   /* too few to agree --> dl_node_agreed */
    DL_TODO_END,
    DL_TODO_ALONE /* START: fewer than min_peers were found in time */
} dl_todo;

/* The object that a line to a member should fetch next. */
typedef enum dl_object {
    DL_OBJECT_NONE,
    DL_OBJECT_CONTRIBUTION, /* to round `round` */
    DL_OBJECT_MODEL         /* to agree on after it */
} dl_object;
typedef struct dl_want {
    dl_object object;
    uint64_t round;
    dl_time until;
} dl_want;

/* Why something was not counted. */
typedef enum dl_ignored {
    DL_IGNORED_OLD,       /* of an earlier round */
    DL_IGNORED_FUTURE,    /* of a later one */
    DL_IGNORED_FOREIGN,   /* of another run, model or sender */
    DL_IGNORED_DUPLICATE, /* a second one of a name */
    DL_IGNORED_DAMAGED,   /* truncated, not finite, another shape, … */
    DL_N_IGNORED
} dl_ignored;
extern const char *const dl_ignored_names[DL_N_IGNORED];

/* Another node. */
typedef struct dl_node_member {
    dl_beat beat;    /* its newest heartbeat; `contributed` may be newer, from an object of it */
    dl_time heard;   /* when that heartbeat arrived */
    bool late;       /* it let the last deadline pass */
    unsigned stalls; /* deadlines in a row for which it said to have contributed, and sent none */
    uint64_t waited_at; /* rounds before this one do not wait for it */
    bool got;           /* its object of this exchange is there */
    bool refuse;        /* it was there, and is not to be counted */
    bool struck;  /* ignored for a fault that only its sender can have caused: not finite, beyond
                   * the bound */
    bool no_copy; /* its model could not be copied */
} dl_node_member;

typedef enum dl_phase {
    DL_PHASE_START,
    DL_PHASE_COPY,
    DL_PHASE_TRAIN,
    DL_PHASE_EXCHANGE,
    DL_PHASE_STEP,
    DL_PHASE_PUBLISH,
    DL_PHASE_MODELS,
    DL_PHASE_AGREE,
    DL_PHASE_LINGER,
    DL_PHASE_END
} dl_phase;

typedef struct dl_node {
    dl_node_rules rules;
    dl_beat self;   /* generation, id, run, address are its owner's; the counters are the node's */
    uint64_t round; /* in progress; the run's number of rounds once all are over */
    dl_phase phase;
    bool fresh;           /* it trained nothing yet: a member that is ahead is copied */
    bool blank;           /* and its model is not the one that the run begins with */
    dl_time began, until; /* the phase; the deadline of waiting in it */
    size_t partner;       /* pairs: of this round; DL_NODE_MAX: none */
    bool odd;             /* pairs: none, because the number of members is odd */
    size_t source;        /* the member to copy from */
    uint64_t ignored[DL_N_IGNORED];
    uint64_t due, agreed; /* agreements that were due since dl_node_init; that changed the model */
    dl_node_member members[DL_NODE_MAX];
    size_t n_members;
} dl_node;

/* Initializes a node at the beginning of `round`. The caller sets `fresh` and `blank` afterwards;
 * with neither the node continues from its own model. `self` is copied. */
void dl_node_init(dl_node *node, const dl_node_rules *rules, const dl_beat *self, uint64_t round,
                  dl_time now);

/* ---- reports to the node */

/* Takes a member's heartbeat from its own address. Returns the member's place, or DL_NODE_MAX if
 * the heartbeat is not accepted. It is not if it is this node's own, of another run or of an
 * earlier generation, if another live node has its name, or if there is no room. */
size_t dl_node_heard(dl_node *node, const dl_beat *beat, dl_time now);
/* Reports that the wanted object of a member is there, whole and checked. Returns false if it is no
 * longer wanted, and must then not be combined. */
bool dl_node_got(dl_node *node, size_t member, dl_want want);
/* Reports that the wanted object is there and must not be used. struck: only its sender can have
 * made it so. */
void dl_node_refused(dl_node *node, size_t member, dl_want want, dl_ignored why, bool struck);
/* Counts an object or heartbeat of another node that is not used. */
void dl_node_ignored(dl_node *node, dl_ignored why);

/* ---- the node's answers */

/* Returns the owner's next action. The owner reports its end by the call that dl_todo names, before
 * it asks for another. */
dl_todo dl_node_next(dl_node *node, dl_time now);
/* Returns the object that a line should fetch of a member now. */
dl_want dl_node_wants(const dl_node *node, size_t member, dl_time now);
/* Returns true if an object that a line is fetching would still be taken. Silence of the member
 * does not make it false. */
bool dl_node_still_wants(const dl_node *node, size_t member, dl_want want);
bool dl_node_is_live(const dl_node *node, size_t member, dl_time now);
/* Sets `out` to the places of the members that a step or an agreement combines, in the order of
 * names. This node is among them with place DL_NODE_MAX. Returns their number. */
size_t dl_node_set(const dl_node *node, size_t out[DL_NODE_MAX + 1]);

/* Returns the number of members whose object of this exchange was refused and struck. */
size_t dl_node_n_struck(const dl_node *node);

/* Reports that an action has ended. copied, false: the source failed, and another is chosen. round:
 * that of the copied model. stepped and agreed: the model was changed. */
void dl_node_copied(dl_node *node, bool copied, uint64_t round, dl_time now);
void dl_node_trained(dl_node *node, dl_time now);
void dl_node_stepped(dl_node *node, bool stepped, dl_time now);
void dl_node_published(dl_node *node, dl_time now);
void dl_node_agreed(dl_node *node, bool agreed, dl_time now);

#endif
