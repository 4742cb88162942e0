/* contribution.h - one replica's encoded pseudo-gradient for one entry, as an object.
 *
 *     header   DL_CONTRIBUTION_HEADER bytes, little-endian, offsets in docs/formats.md
 *     payload  of the codec, for the fragment's f32 array; compressed if the run says so (pack.h)
 *     integers i64[n_integers], booleans u8[n_booleans]: values after training
 *
 * In a run with keys, DL_CONTRIBUTION_PROOF bytes follow the header: the key and its signature of
 * the header. The header then also holds a cryptographic hash of the body.
 *
 * Bytes arrive in pieces from a store, go to memory or a spool file, and are hashed on the way. A
 * reader gets only whole, checked contributions. */
#ifndef DL_LOG_CONTRIBUTION_H
#define DL_LOG_CONTRIBUTION_H

#include "log/layout.h"
#include "log/pack.h"
#include "log/signed.h"
#include "log/train_stats.h"
#include "outer/outer_step.h"

enum { DL_CONTRIBUTION_HEADER = 512, DL_CONTRIBUTION_PROOF = 32 + 64 };
typedef enum dl_packing { DL_PACKING_NONE = 0, DL_PACKING_ZSTD = 1 } dl_packing;

/* The chunks of the common data that a contribution was trained on (data_assignment.h). n is 0 if
 * the run does not assign data. */
enum { DL_ASSIGNED_MAX = 16 };
typedef struct dl_assigned {
    uint64_t n, len; /* chunks, of len samples each */
    /* the first sample of each: of the assignments of the n entries up to the contribution's own */
    uint64_t first[DL_ASSIGNED_MAX];
} dl_assigned;
typedef struct dl_ledger dl_ledger;

typedef struct dl_contribution {
    char run[33];
    dl_generation generation;
    uint64_t entry;
    uint32_t fragment;
    char codec[DL_REPLICA_MAX + 1];
    dl_train_stats stats;
    double norm;      /* of the pseudo-gradient before encoding */
    dl_hash base;     /* digest of the fragment's state from which it was trained */
    dl_hash manifest; /* digest of the model's manifest */
    uint64_t n_floats, n_integers, n_booleans;
    uint64_t payload_len;
    dl_hash body;          /* dl_digest_bytes of all bytes after the header */
    uint64_t packing;      /* a dl_packing */
    uint64_t unpacked_len; /* bytes of the uncompressed payload; 0 without packing */
    dl_assigned assigned;
    bool is_signed;   /* its proof follows the header */
    dl_strong strong; /* if signed: of all bytes after header and proof */
    /* If not 0, payload, integers and booleans are in this many objects under b/. The body is then
     * the table of their digests, and counts as the payload (slices.h). */
    uint64_t slices;
    uint64_t bulk; /* total bytes of these; not in the header, since the reader knows it */
} dl_contribution;

/* The header ends with an XXH3-128 of the bytes before it. The reader returns DILOCO_EPROTO if it
 * is truncated, damaged or no contribution, and DILOCO_EDIFFERS if it has another format version.
 */
void dl_contribution_write_header(unsigned char out[DL_CONTRIBUTION_HEADER],
                                  const dl_contribution *c);
DL_MUST_CHECK diloco_status dl_contribution_read_header(dl_contribution *out,
                                                        const unsigned char *bytes, size_t len);
/* Returns true if it has no samples, and so no body: its replica skips the entry (P9). A combined
 * update and a node's model have no samples but a body, so they are not empty. */
bool dl_contribution_is_empty(const dl_contribution *c);
/* Reads the header of an object in a store. Also returns store errors. */
DL_MUST_CHECK diloco_status dl_contribution_look(dl_contribution *out, dl_store *store,
                                                 const char *key, dl_time until);

/* Sets *out to whether that key signed the object as that generation's contribution to the entry.
 * It is false if the object does not exist. Reads the header and its proof. Returns store errors.
 */
DL_MUST_CHECK diloco_status dl_contribution_is_by(bool *out, dl_store *store, const char *run,
                                                  uint64_t entry, const dl_generation *generation,
                                                  const dl_public *key, dl_time until);

/* Signs `body`, the parts after the header: sets is_signed and strong, and writes header and proof.
 */
DL_MUST_CHECK diloco_status
dl_contribution_sign(unsigned char out[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF],
                     dl_contribution *c, const dl_signer *signer, const dl_span *body, size_t n);

/* Returns why a contribution's assigned samples are refused, or NULL. */
typedef const char *(*dl_assigned_rule)(const dl_ledger *ledger, const dl_contribution *facts);

/* The values that a contribution must have to count in this entry. */
typedef struct dl_contribution_expect {
    const char *run;
    uint64_t entry;
    uint32_t fragment;
    dl_generation generation; /* from the key */
    dl_hash base;
    dl_hash also_base; /* another valid base; equal to `base` if there is no other */
    bool any_base;     /* any base is valid: without a log each node has its own */
    dl_hash manifest;
    dl_fragment_shape shape;
    const dl_codec_form *form;
    const dl_public *key; /* the key of its replica; NULL: contributions are not signed */
    const char *codec;    /* as the header names it; NULL: the form's */
    /* Payloads are values (DL_CODEC_WEIGHTS): they are subtracted from these to get movements.
     * NULL: payloads are movements. */
    const float *before;
    dl_packer *packer;        /* NULL: payloads are not compressed */
    const dl_ledger *ledger;  /* NULL: the run does not assign data */
    dl_assigned_rule refuses; /* with a ledger: judges the samples that the header names */
    dl_train_bounds claims;   /* the most that the replica can have done */
    float bound;              /* largest absolute value of an element */
    /* The number of slices and their total bytes; then only the table of their digests is read. 0:
     * the contribution is whole. */
    uint64_t slices, bulk;
    const dl_manifest *tensors; /* to name a bad element */
} dl_contribution_expect;

/* Returns the most bytes that can follow the header, which is also the size of a slot for it. */
size_t dl_contribution_body_max(const dl_codec_form *form, dl_fragment_shape shape, bool packed);

/* A slot has space for one contribution's body: memory, or (spool_dir not NULL) an unlinked, mapped
 * file in that folder. Its size is fixed, for the largest fragment and codec. Returns
 * DILOCO_ENOMEM, or DILOCO_EFULL, DILOCO_EIO or DILOCO_ENOENT of the file. The file's space is
 * allocated at once, so a full disk is an error here and not while a contribution arrives. */
typedef struct dl_slot dl_slot;
DL_MUST_CHECK diloco_status dl_slot_create(dl_slot **out, size_t max_bytes, const char *spool_dir);
void dl_slot_destroy(dl_slot *slot);
/* Returns its bytes; they begin at a page. */
unsigned char *dl_slot_bytes(dl_slot *slot);
size_t dl_slot_size(const dl_slot *slot);
/* Releases the memory of a slot in a file until it is read again, and records that in data->mapped.
 */
void dl_slot_let_go(const dl_slot *slot, dl_contribution_data *data);

/* The codec in the header of a client's values after training: f32 (FED-15). */
#define DL_CODEC_WEIGHTS "weights"
/* The codec in the header of a combined update under x/: f32. */
#define DL_CODEC_COMBINED "combined"
/* The codec in the header of a node's whole model under a/: f32 (docs/swarm.md). */
#define DL_CODEC_MODEL "model"

/* Reads the object and checks all of it: its length before memory is used, the header, every
 * expected field, the body's digest, and the codec's check (finite, within bounds). *facts and
 * *data are set only on OK; data points into the slot.
 * Returns DILOCO_EPROTO or DILOCO_ENUMERIC if it must not count; the text says why. *reason is then
 * a short word for the record ("truncated", "checksum", "base", "foreign", "shape", "codec",
 * "non-finite", "bound", "header", "dealt", "claim", "signature"), else "". Returns DILOCO_ENOENT,
 * and store errors as they are. A slot smaller than dl_contribution_body_max is a bug. */
DL_MUST_CHECK diloco_status dl_contribution_fetch(dl_contribution *facts,
                                                  dl_contribution_data *data, const char **reason,
                                                  dl_slot *slot, dl_store *store, const char *key,
                                                  const dl_contribution_expect *expect,
                                                  dl_time until);

/* Does the same for an object in memory, in n spans, without a store. */
DL_MUST_CHECK diloco_status dl_contribution_read(dl_contribution *facts, dl_contribution_data *data,
                                                 const char **reason, dl_slot *slot,
                                                 const dl_span *spans, size_t n,
                                                 const dl_contribution_expect *expect);

/* Returns whether a transfer may have caused a failed read with that `reason`. */
bool dl_contribution_is_damage(const char *reason);
/* Returns true if the object's header does not name this run and its replica. */
bool dl_contribution_is_junk(const char *reason);

/* Describes the element that the codec's check found: sets *reason as above, and the text. */
diloco_status dl_contribution_bad_element(const char **reason, const dl_contribution_expect *expect,
                                          const dl_contribution_data *data, size_t index);

#endif
