/* beating.h - the heartbeats of a replica in a run with keys (P11.4). Only a heartbeat or an end
 * counts that the replica's key has signed. So no party without that key can make it seem alive or
 * gone.
 *
 * Anyone may create hb/<replica>.<n> with any n. So a replica's newest generation is the newest
 * that has signed a heartbeat, not the highest name. Each look reads the heartbeat of that
 * generation and up to four of the later names. The highest is right unless another writer has
 * created names. The others are the lowest, and two at random. */
#ifndef DL_LOG_BEATING_H
#define DL_LOG_BEATING_H

#include "base/rng.h"
#include "log/signed_beat.h"
#include "store/store.h"

enum { DL_BEATING_LATER = 4, DL_HEARTBEAT_MAX = 4096 };

typedef struct dl_beating {
    dl_generation generation; /* the newest that has signed a heartbeat, */
    bool signed_once;         /* if there is one; otherwise it only has the name */
    bool end_listed;          /* end/ has this generation */
    uint64_t beat;            /* of the heartbeat that was read last; 0: none */
    dl_hash content;          /* of that one */
    uint64_t n_later;         /* later generations in hb/ */
    uint32_t later[DL_BEATING_LATER];
} dl_beating;

/* Begins a look: the names of the last one are forgotten. */
void dl_beating_look(dl_beating *row);
/* Notes that hb/ has this generation of the replica. */
void dl_beating_note_heartbeat(dl_beating *row, dl_rng *drawing, uint32_t number);
/* Notes that end/ has it. Only an end of the newest generation counts. */
void dl_beating_note_end(dl_beating *row, uint32_t number);

/* Where to read, and what was read. The text and its JSON are valid until the next read. */
typedef struct dl_beat_reader {
    dl_store *store;
    const char *run;      /* its id */
    const dl_public *key; /* of the replica */
    dl_time until;
    unsigned char bytes[DL_HEARTBEAT_MAX];
    dl_buf text;
    uint64_t beat;      /* 1 + the number of a signed heartbeat, so never 0 */
    bool changed;       /* it is not the row's last one; only then `json` is set */
    dl_json_value json; /* of a signed object */
} dl_beat_reader;

/* Reads the newest heartbeat that the key has signed. Sets *there to whether there is one at
 * present. row->generation is then its generation. Returns the store's errors, but no error for an
 * object that is missing or damaged. */
DL_MUST_CHECK diloco_status dl_beating_read(bool *there, dl_beating *row, dl_beat_reader *r);
/* Reads only the heartbeat of row->generation. */
DL_MUST_CHECK diloco_status dl_beating_read_again(bool *there, dl_beating *row, dl_beat_reader *r);
/* Sets *ended to whether the key has signed the end of row->generation. Reads nothing unless end/
 * was listed with it. */
DL_MUST_CHECK diloco_status dl_beating_read_end(bool *ended, const dl_beating *row,
                                                dl_beat_reader *r);

#endif
