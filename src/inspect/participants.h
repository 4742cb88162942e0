/* participants.h - the replicas of a run as a status shows them, and which of them are alive.
 *
 * Liveness is judged by watching: no clock of another machine is believed (P11). In a run with keys
 * a reader believes what replicas believe (P11.4). Only a heartbeat or an end counts that the
 * replica's key has signed. The newest generation is the newest that has signed a heartbeat. In a
 * run without keys it is the newest in gen/. */
#ifndef DL_INSPECT_PARTICIPANTS_H
#define DL_INSPECT_PARTICIPANTS_H

#include "inspect/logged_names.h"
#include "inspect/reader.h"
#include "log/beating.h"
#include "log/keyring.h"

/* Replicas in a status; further ones are left out, those that the log does not name first. The
 * arrays have a fixed size, so a follower allocates nothing for a look. */
enum { DL_PARTICIPANTS_MAX = 256 };

typedef diloco_status (*dl_participants_heard_fn)(void *user, const dl_generation *generation);

/* A replica's state beside its public status. */
typedef struct dl_participant {
    dl_beating of;   /* in a run with keys */
    uint64_t beat;   /* of its signed heartbeats: the highest so far */
    dl_hash content; /* of its heartbeat, in a run without keys */
    dl_time changed; /* when a look first found its heartbeat changed; 0: at the first look */
    dl_time began;   /* when its generation was first seen */
    bool known;      /* its generation was read */
    bool begun;      /* its name is in gen/ */
} dl_participant;

/* Rows are in the order of the replicas' names. Row i of both arrays is of the same replica. */
typedef struct dl_participants {
    const dl_reader *reader;         /* borrowed */
    dl_keyring *ring;                /* owned; NULL: the run has no keys */
    diloco_replica_status *replicas; /* [DL_PARTICIPANTS_MAX], borrowed */
    dl_participant rows[DL_PARTICIPANTS_MAX];
    size_t n;                        /* rows in use */
    dl_logged_names logged;          /* empty for logical clients, which have no rows */
    size_t n_begun;                  /* names in gen/, as far as the listing is read */
    char newest[DL_REPLICA_MAX + 1]; /* the last of them */
    dl_participants_heard_fn heard;  /* of generations in gen/; NULL: not called */
    void *user;                      /* of heard */
    dl_rng drawing;                  /* of the names that a look reads */
} dl_participants;

/* `out` is zero, so it has no row. `replicas` has space for DL_PARTICIPANTS_MAX. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_participants_create(dl_participants *out,
                                                   diloco_replica_status *replicas,
                                                   const dl_reader *reader);
void dl_participants_destroy(dl_participants *p); /* of zeroes is fine */

/* Returns the row of that name; a new one is put in its place in order. SIZE_MAX: there is no room.
 * Rows may move, so indexes are valid only until the next call. */
size_t dl_participants_row(dl_participants *p, const char *name);
/* Returns the number of names in gen/ without a row. */
size_t dl_participants_left_out(const dl_participants *p);

/* Lists gen/ and end/, with keys hb/ too, and reads each replica's heartbeat. Objects that cannot
 * be read are left out; a failed listing is an error. */
DL_MUST_CHECK diloco_status dl_participants_look(dl_participants *p);
/* Reads heartbeats again until all that were seen have changed, or watch_s seconds are over. A
 * replica whose heartbeat has changed is alive. */
void dl_participants_watch(dl_participants *p, double watch_s);
/* Judges without waiting. A heartbeat that was seen to change is judged by when it changed. One
 * that never was may have been written just now: its own time counts until its generation was
 * watched for alive_s, as long as a live replica needs. */
void dl_participants_judge_by_age(dl_participants *p, double alive_s);

#endif
