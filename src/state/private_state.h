/* private_state.h - a replica's private state, which is stored beside the run and never in it
 * (PROTOCOL P16).
 *
 * It is one safetensors file, replaced atomically. It has the trainer's tensors, its private
 * vectors (inner moments, …), and in the metadata the run, replica, position and counters. A lock
 * file beside it keeps a second process from running as the same replica. */
#ifndef DL_STATE_PRIVATE_STATE_H
#define DL_STATE_PRIVATE_STATE_H

#include "base/hash.h"
#include "base/thread.h"
#include "state/local_facts.h"
#include <diloco/tensor.h>

/* Bytes that the trainer saves and never sends: name, place, length. */
typedef struct dl_private {
    const char *name;
    void *data;
    size_t len; /* bytes; saved as U8[len], or F32[len/4] when f32 */
    bool f32;
    /* Writes the bytes to `to`, which is `data` or a copy of it, when they are saved. NULL: `data`
     * has them. */
    diloco_status (*fill)(void *user, void *to);
    void *user;
    /* NULL: always. Where it is false, a save leaves the bytes out. A load that does not find them
     * sets zeros. The privates that have it are in the file together, or not at all. */
    const bool *in_use;
} dl_private;

typedef struct dl_local dl_local;

/* Copies this replica's privates from the state folder of another run, all of them or none. Only
 * reads, and takes no lock. Returns false, and copies nothing, if there is no valid file, or if one
 * of them is missing there or has another length. */
bool dl_local_inherit(const char *state_dir, const char *replica, const dl_private *privates,
                      size_t n);

/* Returns whether an earlier process of this replica has had its state in the folder. */
bool dl_local_exists(const char *state_dir, const char *replica);
/* Returns whether it has, and the folder is on a read-only file system now. */
bool dl_local_is_read_only(const char *state_dir, const char *replica);

/* Creates the folder and takes the lock. Returns DILOCO_EINVAL if another process holds it; the
 * text has its pid. */
DL_MUST_CHECK diloco_status dl_local_open(dl_local **out, const char *state_dir,
                                          const char *replica);
/* Records in the folder that another machine claimed the name first, or removes that record, since
 * this one has claimed it. `local` NULL: does nothing. Host names do not distinguish machines: two
 * may have the same. */
void dl_local_note_claim(dl_local *local, bool lost);
#define DL_LOCAL_LOST "lost"
void dl_local_close(dl_local *local);

/* Calls each `fill` with the `data` of its private, before dl_local_save. Leave it out where `data`
 * has what a load has put there, and the caller has not seen it yet. Returns what a `fill`
 * returned. */
DL_MUST_CHECK diloco_status dl_local_fill_in_place(const dl_private *privates, size_t n);

/* Saves atomically; allocates nothing after the first call. The bytes of each private are in its
 * `data`. Returns DILOCO_ENUMERIC if a tensor has a value that is not finite; the file is unchanged
 * then. */
DL_MUST_CHECK diloco_status dl_local_save(dl_local *local, const dl_local_facts *facts,
                                          const diloco_tensor *tensors, size_t n_tensors,
                                          const dl_private *privates, size_t n_privates);

/* A save in two halves, so that the second can run beside training: copy what dl_local_save would
 * write, then write the copy. There may be two copies, in slots 0 and 1. dl_local_prepare_copies is
 * called once, for these tensors and privates, and takes no memory for the copies. n_sharing
 * replicas share the free memory. in_flight: most saves have the privates that may be left out. */
enum { DL_LOCAL_COPIES = 2 };
typedef struct dl_local_copied_parts {
    const diloco_tensor *tensors;
    size_t n_tensors;
    const dl_private *privates;
    size_t n_privates;
    size_t n_sharing;
    bool in_flight;
} dl_local_copied_parts;
DL_MUST_CHECK diloco_status dl_local_prepare_copies(dl_local *local,
                                                    const dl_local_copied_parts *parts);
/* After dl_local_prepare_copies. Takes the memory of a slot, if it is not taken yet. `later` is the
 * number of bytes that this process will take for other arrays. If there is too little memory, slot
 * 0 takes less and borrows the rest, up to `lendable` bytes that the process has already. Returns
 * false, with an error text, if the copy would be more than this replica's share of half of the
 * free memory. Returns false, too, if its share of the free memory is too small for the copy and
 * `later`. */
bool dl_local_has_room(dl_local *local, int slot, size_t later, size_t lendable, dl_pool *pool);
/* Returns whether a slot borrows memory. Then set it before each copy. It is `lendable` bytes at a
 * multiple of 64, in use until the copy is written. */
bool dl_local_borrows(const dl_local *local, int slot);
void dl_local_lend(dl_local *local, int slot, void *memory);
bool dl_local_is_reserved(const dl_local *local, int slot); /* its memory is taken */

/* places [n_tensors]: NULL, or non-NULL for each tensor that the caller copies itself. They then
 * have the place of such a tensor in the copy, and NULL for the others. */
typedef struct dl_local_copying {
    const dl_local_facts *facts;
    const diloco_tensor *tensors;
    size_t n_tensors;
    const dl_private *privates;
    size_t n_privates;
    bool restored; /* the `data` of all privates has their bytes, and no `fill` is called */
    void **places;
    dl_pool *pool;
} dl_local_copying;

/* Calls each `fill` with its place in the copy, at a multiple of 64 bytes, unless `restored`. After
 * dl_local_has_room, and before dl_local_copy, with the same tensors and privates. It reads no
 * facts and no places. Privates with `in_use` are after those with `fill`. Returns what a `fill`
 * returned. */
DL_MUST_CHECK diloco_status dl_local_fill(dl_local *local, int slot, const dl_local_copying *args);
/* Copies the rest: all that dl_local_fill has not written. */
DL_MUST_CHECK diloco_status dl_local_copy(dl_local *local, int slot, const dl_local_copying *args);
/* Copies the tensors whose place is not NULL yet, and sets it to NULL. */
void dl_local_copy_rest(dl_local *local, int slot, const dl_local_copying *args);
/* Saves as dl_local_save does, and uses the slot only for what dl_local_fill has written there: no
 * `fill` writes to its private's own `data`. While nothing else uses the slot. */
DL_MUST_CHECK diloco_status dl_local_save_filled(dl_local *local, int slot,
                                                 const dl_local_copying *args);
/* Atomic, and may be repeated after an error. Returns DILOCO_ENUMERIC as dl_local_save does. On any
 * thread, while no other function works on the slot, or on the folder's file. */
DL_MUST_CHECK diloco_status dl_local_write(dl_local *local, int slot);

/* Loads the saved state. The caller sets facts->fragments, n_fragments, pace.takes and
 * pace.fragments. Returns DILOCO_ENOENT if nothing was saved. Returns DILOCO_EPROTO if the file is
 * truncated, bit-flipped (a digest is in the metadata) or foreign; the tensors are unchanged then.
 * Returns DILOCO_EDIFFERS if it is of another run or model. load_tensors false: loads only the
 * privates and the facts. */
DL_MUST_CHECK diloco_status dl_local_load(dl_local *local, dl_local_facts *facts, const char *run,
                                          dl_hash manifest, const diloco_tensor *tensors,
                                          size_t n_tensors, const dl_private *privates,
                                          size_t n_privates, bool load_tensors);

#endif
