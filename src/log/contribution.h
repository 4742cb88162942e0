/* contribution.h - one replica's encoded pseudo-gradient for one entry, as an object.
 *
 *     header   DL_CONTRIBUTION_HEADER bytes, little-endian, offsets in docs/formats.md
 *     payload  of the codec, for the fragment's f32 array; packed where the run says so (pack.h)
 *     integers i64[n_integers], booleans u8[n_booleans]: values after training
 *
 * In a run whose objects are signed, DL_CONTRIBUTION_PROOF bytes behind the header: the key and its
 * signature of the header, which then also holds a hash of the body that no adversary can meet.
 *
 * Reading: bytes come in pieces from a store, go to memory or a spool file, and are hashed on
 * the way. Only whole, checked contributions are ever handed out. */
#ifndef DL_LOG_CONTRIBUTION_H
#define DL_LOG_CONTRIBUTION_H

#include "log/layout.h"
#include "log/pack.h"
#include "log/signed.h"
#include "log/train_stats.h"
#include "outer/outer_step.h"

enum { DL_CONTRIBUTION_HEADER = 512, DL_CONTRIBUTION_PROOF = 32 + 64 };
typedef enum dl_packing { DL_PACKING_NONE = 0, DL_PACKING_ZSTD = 1 } dl_packing;

/* Which chunks of the common data a contribution was made of (data_assignment.h); none where it is
 * not dealt.
 */
enum { DL_DEALT_MAX = 16 };
typedef struct dl_dealt {
    uint64_t n, len;              /* chunks, of len samples each */
    uint64_t first[DL_DEALT_MAX]; /* of each its first sample: of the deals of the n entries up to
                                   * the contribution's own */
} dl_dealt;
typedef struct dl_ledger dl_ledger;

typedef struct dl_contribution {
    char run[33];
    dl_life life;
    uint64_t entry;
    uint32_t fragment;
    char codec[DL_REPLICA_MAX + 1];
    dl_train_stats stats;
    double norm;      /* of the pseudo-gradient before encoding */
    dl_hash base;     /* state digest of the fragment it started from */
    dl_hash manifest; /* digest of the model's manifest */
    uint64_t n_floats, n_integers, n_booleans;
    uint64_t payload_len;
    dl_hash body;          /* dl_digest_bytes of all bytes behind the header */
    uint64_t packing;      /* a dl_packing */
    uint64_t unpacked_len; /* bytes of the payload once it is unpacked; 0 without packing */
    dl_dealt dealt;
    bool is_signed;   /* its proof stands behind the header */
    dl_strong strong; /* then: of all bytes behind header and proof */
    uint64_t slices;  /* payload, integers and booleans are in so many objects under b/: the body is
                       * the table of their digests, and the payload that (slices.h); else 0 */
    uint64_t bulk;    /* of these, bytes together; not in the header: the reader knows */
} dl_contribution;

/* The header ends with an XXH3-128 of the bytes before it. Read back: DILOCO_EPROTO: truncated,
 * damaged or no contribution; DILOCO_EDIFFERS: of another format version. */
void dl_contribution_write_header(unsigned char out[DL_CONTRIBUTION_HEADER],
                                  const dl_contribution *c);
DL_MUST_CHECK diloco_status dl_contribution_read_header(dl_contribution *out,
                                                        const unsigned char *bytes, size_t len);
/* Return true if it has no samples, and so no body: its replica skips the entry (P9). A combined
 * update and a node's model have no samples and a body, and are not empty. */
bool dl_contribution_is_empty(const dl_contribution *c);
/* … of an object in a store, of which no more is read. Store errors, too. */
DL_MUST_CHECK diloco_status dl_contribution_look(dl_contribution *out, dl_store *store,
                                                 const char *key, dl_time until);

/* Is the object of that generation's contribution to an entry signed by that key, as that? False
 * where the object is gone, too. Reads the header and its proof. Store errors. */
DL_MUST_CHECK diloco_status dl_contribution_is_by(bool *out, dl_store *store, const char *run,
                                                  uint64_t entry, const dl_life *life,
                                                  const dl_public *key, dl_time until);

/* Sign what `body` holds behind the header: fills in is_signed and strong, and writes header and
 * proof. */
DL_MUST_CHECK diloco_status
dl_contribution_sign(unsigned char out[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF],
                     dl_contribution *c, const dl_signer *signer, const dl_span *body, size_t n);

/* Returns why a contribution's assigned samples are refused, or NULL. */
typedef const char *(*dl_dealt_rule)(const dl_ledger *ledger, const dl_contribution *facts);

/* What a contribution must say to be used for this entry. */
typedef struct dl_contribution_expect {
    const char *run;
    uint64_t entry;
    uint32_t fragment;
    dl_life life; /* from the key */
    dl_hash base;
    dl_hash also_base; /* another that will do; the same: none */
    bool any_base;     /* whichever will do: without a log each node has its own */
    dl_hash manifest;
    dl_fragment_shape shape;
    const dl_codec_form *form;
    const dl_public *key;    /* its replica's; NULL: contributions are not signed */
    const char *codec;       /* as the header names it; NULL: the form's */
    const float *before;     /* payloads are values (DL_CODEC_WEIGHTS), and this is what they are
                              * subtracted from to be movements; NULL: they are movements */
    dl_packer *packer;       /* NULL: payloads are not packed */
    const dl_ledger *ledger; /* NULL: the run does not assign data */
    dl_dealt_rule refuses;   /* with a ledger: judges the samples that the header names */
    uint64_t due;            /* the last position that it can have come to; 0: not known */
    float bound;             /* largest size of an element */
    uint64_t slices, bulk;   /* it is in so many slices, of so many bytes: then the table of their
                              * digests is all that is read; 0: it is whole */
    const dl_manifest *tensors; /* to name a bad element */
} dl_contribution_expect;

/* Most bytes that can stand behind the header, which is also what a slot for it needs. */
size_t dl_contribution_body_max(const dl_codec_form *form, dl_fragment_shape shape, bool packed);

/* Space for one contribution's body: memory, or (spool_dir not NULL) an unlinked file in that
 * folder that is mapped. Sized once, for the largest fragment and codec. DILOCO_ENOMEM;
 * DILOCO_EFULL, DILOCO_EIO, DILOCO_ENOENT of the file: its space is taken at once, so a full
 * disk is met here and not while a contribution arrives. */
typedef struct dl_slot dl_slot;
DL_MUST_CHECK diloco_status dl_slot_create(dl_slot **out, size_t max_bytes, const char *spool_dir);
void dl_slot_destroy(dl_slot *slot);
/* Its bytes, at the begin of a page. */
unsigned char *dl_slot_bytes(dl_slot *slot);
size_t dl_slot_size(const dl_slot *slot);
/* What is in a file takes no memory until it is read again, which data->mapped says. */
void dl_slot_let_go(const dl_slot *slot, dl_contribution_data *data);

/* The codec that the header of a client's values after training names: f32 of those (FED-15). */
#define DL_CODEC_WEIGHTS "weights"
/* The codec that the header of a combined update names: one of f32, under x/. */
#define DL_CODEC_COMBINED "combined"
/* The codec that the header of a node's whole model names: f32, under a/ (docs/swarm.md). */
#define DL_CODEC_MODEL "model"

/* Read the object and check all of it: length before memory, header, every expected field, body
 * digest, codec's check (finite, within bounds). *facts and *data are set only on OK; data
 * points into the slot. DILOCO_EPROTO or DILOCO_ENUMERIC: do not count it; the text says why;
 * *reason is a short word for the record ("truncated", "checksum", "base", "foreign", "shape",
 * "codec", "non-finite", "bound", "header", "dealt", "claim", "signature"), else "". DILOCO_ENOENT.
 * Store errors as they are. A slot that is smaller than dl_contribution_body_max of what is
 * expected is a bug. */
DL_MUST_CHECK diloco_status dl_contribution_fetch(dl_contribution *facts,
                                                  dl_contribution_data *data, const char **reason,
                                                  dl_slot *slot, dl_store *store, const char *key,
                                                  const dl_contribution_expect *expect,
                                                  dl_time until);

/* The same, of an object that is here, in n spans: no store is asked. */
DL_MUST_CHECK diloco_status dl_contribution_read(dl_contribution *facts, dl_contribution_data *data,
                                                 const char **reason, dl_slot *slot,
                                                 const dl_span *spans, size_t n,
                                                 const dl_contribution_expect *expect);

/* What is wrong with the element that the codec's check found: *reason as above, and the text. */
diloco_status dl_contribution_bad_element(const char **reason, const dl_contribution_expect *expect,
                                          const dl_contribution_data *data, size_t index);

#endif
