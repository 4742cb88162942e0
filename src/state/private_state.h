/* private_state.h - the private state of a replica, beside the run, never in it (PROTOCOL P16).
 *
 * One safetensors file, replaced atomically: the trainer's tensors as they are, its private
 * vectors (inner moments, …), and in the metadata the run, replica, position and counters.
 * A lock file beside it keeps a second process from living the same replica. */
#ifndef DL_STATE_PRIVATE_STATE_H
#define DL_STATE_PRIVATE_STATE_H

#include "base/hash.h"
#include "log/layout.h"
#include "log/train_stats.h"
#include "protocol/pace.h"
#include <diloco/tensor.h>

/* Bytes that the trainer wants kept and never sent: name, place, length. */
typedef struct dl_private {
    const char *name;
    void *data;
    size_t len; /* bytes; saved as U8[len], or F32[len/4] when f32 */
    bool f32;
} dl_private;

typedef struct dl_local_fragment {
    dl_train_stats stats;
    double loss_sum; /* over the steps since the base */
    dl_hash base;    /* digest of the state it rests on, at entry `pace.folded` */
} dl_local_fragment;

typedef struct dl_local_facts {
    char run[33];
    char replica[DL_REPLICA_MAX + 1];
    dl_pace_saved pace;
    uint32_t generation; /* of the generation that saved it; DL_LIFE_ANY: not told */
    uint64_t step, shard, next_sample;
    dl_local_fragment *fragments; /* [n_fragments], the caller's */
    size_t n_fragments;
    dl_hash manifest;
    char isa[16];
    uint32_t threads;
    char program[32];
} dl_local_facts;

typedef struct dl_local dl_local;

/* Copy the privates that this replica has left in the state folder of another run, all of them or
 * none. Only reads, and takes no lock. Returns false if there is no sound file, or if one of them
 * is missing there or has another length: nothing is copied then. */
bool dl_local_inherit(const char *state_dir, const char *replica, const dl_private *privates,
                      size_t n);

/* Make the folder, take the lock. DILOCO_EINVAL: another process holds it (its pid is named). */
DL_MUST_CHECK diloco_status dl_local_open(dl_local **out, const char *state_dir,
                                          const char *replica);
/* Note in the folder, beside a state if there is one, that another machine was quicker to take the
 * name, or remove that note, since this one has it now. `local` NULL: nothing. The host name does
 * not tell machines apart: two may have one. */
void dl_local_note_claim(dl_local *local, bool lost);
#define DL_LOCAL_LOST "lost"
void dl_local_close(dl_local *local);

/* Atomic; allocates nothing after the first. */
DL_MUST_CHECK diloco_status dl_local_save(dl_local *local, const dl_local_facts *facts,
                                          const diloco_tensor *tensors, size_t n_tensors,
                                          const dl_private *privates, size_t n_privates);

/* facts->fragments, n_fragments, pace.takes and pace.fragments are set by the caller.
 * DILOCO_ENOENT: none yet. DILOCO_EPROTO: truncated, bit-flipped (a digest is in the metadata)
 * or foreign: nothing was written to the tensors. DILOCO_EDIFFERS: of another run or model.
 * load_tensors false: only the privates and the facts. */
DL_MUST_CHECK diloco_status dl_local_load(dl_local *local, dl_local_facts *facts, const char *run,
                                          dl_hash manifest, const diloco_tensor *tensors,
                                          size_t n_tensors, const dl_private *privates,
                                          size_t n_privates, bool load_tensors);

#endif
