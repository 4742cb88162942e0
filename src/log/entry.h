/* entry.h - log/<e>.json: a commit or an abort, and the control state that entries fold.
 *
 * An entry is small JSON (docs/formats.md); everything a reader needs to compute state(e+1)
 * from state(e) and the contributions it names is in it. Float scalars are written as bit
 * patterns (PROTOCOL P2). */
#ifndef DL_LOG_ENTRY_H
#define DL_LOG_ENTRY_H

#include "base/json.h"
#include "combine/combine.h"
#include "log/identity.h"
#include "log/layout.h"
#include "log/train_stats.h"
#include "outer/outer.h"
#include "tensor/manifest.h"

enum { DL_ENTRY_TEXT_MAX = 4 << 20, DL_REASON_MAX = 95, DL_HELD_MAX = 15, DL_WORD_MAX = 15 };

typedef struct dl_member {
    dl_generation generation;
    uint64_t entry; /* under which the contribution is stored: this one, or an earlier one (P20) */
    dl_hash body;   /* the contribution's body digest */
    uint64_t raw;   /* raw weight */
    float weight;   /* normalised */
    dl_train_stats stats; /* steps, samples, tokens and loss are stored */
    uint64_t bytes;       /* of the object */
    uint32_t held; /* data_assignment.h: number of earlier entries whose dealt data it also used */
} dl_member;

/* A contribution that a commit does not count, and why: a word of judge.h. */
typedef struct dl_rejected {
    dl_generation generation;
    uint64_t bytes; /* bytes of the object */
    char reason[DL_WORD_MAX + 1];
} dl_rejected;

/* The digest of the bans after an entry (bans.h), in a run that bans. */
typedef struct dl_entry_bans {
    bool there;
    dl_hash digest;
} dl_entry_bans;

/* The data that an entry deals (data_assignment.h). */
typedef struct dl_entry_assignment {
    bool there;      /* else data is local */
    uint64_t cursor; /* after the newest deal that it makes, */
    uint64_t len;    /* samples in a chunk */
    dl_hash ledger;  /* of the whole ledger after it */
} dl_entry_assignment;

/* The combined update of the members, by the entry's committer, under x/ (P19). */
typedef struct dl_combined_at {
    bool there; /* else every reader combines */
    dl_generation generation;
    dl_hash body;
    uint64_t bytes;  /* of the object, */
    uint64_t slices; /* or the number of slices, each combined by another member as `life` has
                      * planned; body is the digest of their digests. 0: one object */
} dl_combined_at;

typedef struct dl_roster {
    char (*names)[DL_REPLICA_MAX + 1]; /* in dl_replica_compare order */
    uint32_t *misses;                  /* entries in a row that did not count it */
    size_t n, cap;
} dl_roster;

/* The terms of an entry, decided L entries before it (P9). */
typedef struct dl_terms {
    dl_roster roster;
    float lr, mu;
} dl_terms;

typedef struct dl_entry {
    bool commit; /* else abort */
    char run[33];
    uint64_t entry;
    uint32_t fragment;
    uint64_t position;
    dl_generation committer;
    dl_hash prev; /* dl_hash_bytes of log/<e-1>.json; of run.json for entry 0. After an unreadable
                   * entry it is dl_entry_unreadable_digest. */
    dl_hash base,
        result; /* state digests of the fragment; an abort has result = base, unless emptied */
    dl_member
        *members; /* [n_members], in dl_generation_compare order; of an abort: those present */
    size_t n_members, cap_members;
    dl_rejected *rejected;   /* [n_rejected], likewise in order; of a commit */
    size_t n_rejected;       /* with the members at most cap_members */
    dl_combined_at combined; /* of a commit */
    struct {
        float value[DL_OUTER_MAX_SCALARS]; /* in the order of the outer optimizer's row */
        bool wrong;                        /* not that optimizer's; dl_entry_read_at sets it */
    } scalars;
    struct { /* of an abort; zero in a commit */
        char reason[DL_REASON_MAX + 1];
        bool emptied;   /* it has no members, and zeroes the outer vectors (plato_compat) */
        bool takeover;  /* its committer becomes the single one (P26) */
        uint64_t voids; /* by an operator: 1 + the entry that it voids (P7); 0: it voids none */
    } abort;
    double simulated_s; /* that the round took in simulated time (simulated_time.h); else 0 */
    double loss;        /* mean of the members' */
    uint64_t snapshot;  /* newest snapshot the committer knows of */
    dl_roster roster;   /* for entry e + L */
    struct {            /* for entry e + L */
        float lr, mu;
    } next;
    dl_entry_assignment assignment;
    dl_entry_bans bans;
    bool last; /* no entry follows */
} dl_entry;

/* Allocates space for max_members members and as many roster names, in one allocation. */
DL_MUST_CHECK diloco_status dl_entry_init(dl_entry *out, size_t max_members);
void dl_entry_deinit(dl_entry *entry);

bool dl_roster_has(const dl_roster *roster, const char *name, size_t *index);
/* Adds a name in order, or sets its misses. Returns false if the roster is full. */
bool dl_roster_add(dl_roster *roster, const char *name, uint32_t misses);
void dl_roster_copy(dl_roster *to, const dl_roster *from); /* a bug if it does not fit */

/* Write the roster as the members "roster" and "misses" of the open object, and read it; the reader
 * returns DILOCO_EPROTO. */
void dl_roster_write(dl_json *j, const dl_roster *roster);
DL_MUST_CHECK diloco_status dl_roster_read(dl_roster *out, dl_json_value object);

/* Returns the statement that an entry's signature signs, in the name of its committer's generation.
 */
dl_statement dl_entry_statement(const dl_entry *entry);

/* Appends the text. Returns DILOCO_EINVAL if no reader would accept it. Examples: members out of
 * order, a replica twice, a number that is not finite, an abort that changes something or has no
 * reason. */
DL_MUST_CHECK diloco_status dl_entry_write(dl_buf *out, const dl_entry *entry,
                                           const dl_outer *outer);
/* Reads the bytes of an untrusted peer. Returns DILOCO_EPROTO, or DILOCO_EDIFFERS if they have
 * another format version. Fills an initialized entry, whose content is unspecified after an error.
 * Allocates nothing. outer NULL: the optimizer is not known here, so its scalars are not read. */
DL_MUST_CHECK diloco_status dl_entry_read(dl_entry *out, const void *text, size_t len,
                                          const dl_outer *outer);
/* An entry's place: its run and its number. */
typedef struct dl_entry_place {
    const char *run; /* its id */
    uint64_t number;
    const dl_outer *outer;       /* of dl_entry_read */
    const dl_identity *identity; /* NULL: the run has no keys */
} dl_entry_place;

/* Reads the entry of that place in a run's log. It returns DILOCO_EPROTO if the entry is unreadable
 * (P7.9), which has to be the same for every reader. So `out` has to have the run's room
 * (dl_clients_max_members), and wrong scalars only set out->scalars.wrong: a reader may not know
 * the optimizer. A copy of another entry, which anyone can write, is unreadable. If members have
 * keys, so is an entry, of any version, that no committer signed. */
DL_MUST_CHECK diloco_status dl_entry_read_at(dl_entry *out, const void *text, size_t len,
                                             const dl_entry_place *place);

/* Returns the `prev` of an entry that follows an unreadable one: the digest of an empty object. So
 * it is the same for all readers, even if another writer has changed the bytes meanwhile (P7.1). */
dl_hash dl_entry_unreadable_digest(void);

/* Appends the bytes of log/<entry>.json, at most DL_ENTRY_TEXT_MAX. It appends none for an object
 * that is too long for an entry or unreadable. dl_entry_read then refuses the text. Returns
 * DILOCO_ENOENT if the object does not exist, or a store error. */
DL_MUST_CHECK diloco_status dl_entry_get(dl_buf *text, dl_store *store, uint64_t entry,
                                         dl_time until);

#endif
