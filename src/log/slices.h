/* slices.h - a fragment in slices, each of which another member combines (docs/protocol.md P19).
 *
 * Slice i holds whole blocks of 4096 elements of the fragment's f32 array, as evenly as that goes;
 * integers and booleans belong to slice 0. As many slices as the run has replicas, but none without
 * a block, at most DL_SLICES_MAX: a function of what must agree.
 *
 *     b/<e>/<i>/<life>              a slice of a contribution: the bytes of its payload that decode
 *                                   reads for it (codec.h: ranges), then what is not f32; its
 *                                   digest is in the table that c/<e>/<life> is
 *     x/<e>/<i>/<owner>=<planner>   G of it as float32, then new values of what is not f32, then
 *                                   the digest of those bytes; of the second owner and those
 *                                   behind it that digest alone
 *
 * Pure but for the two readers. */
#ifndef DL_LOG_SLICES_H
#define DL_LOG_SLICES_H

#include "log/contribution.h"

typedef struct dl_slicing {
    const dl_codec_form *form;
    dl_fragment_shape shape;
    size_t n;
} dl_slicing;

dl_slicing dl_slicing_of(const dl_codec_form *form, dl_fragment_shape shape, size_t n_replicas);
void dl_slice_floats(size_t *first, size_t *count, const dl_slicing *s, size_t i);
/* Who of n_members owns it: another one each entry. Where several do, they are the ones from there
 * on: the nth, below n_members. */
size_t dl_slice_owner(size_t i, size_t nth, uint64_t entry, size_t n_members);

enum { DL_SLICE_SPANS = DL_CODEC_RANGES + 1 };

/* A buffer that a slice is a part of, or goes to. */
typedef struct dl_slice_part {
    unsigned char *data;
    size_t len;
} dl_slice_part;

/* Its parts of a payload and of what is not f32; how many. */
size_t dl_slice_parts(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i,
                      unsigned char *payload, unsigned char *discrete);
/* … of a combined update: G, then integers and booleans (discrete). */
size_t dl_slice_combined(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i, float *g,
                         unsigned char *discrete);
dl_hash dl_slice_digest(const dl_slice_part *parts, size_t n);
uint64_t dl_slices_bytes(const dl_slicing *s); /* of all slices of a contribution */

/* Read an object of exactly so many bytes into those parts, and compare their digest: with *want,
 * or, want NULL, with the 16 bytes that follow them, into *got. DILOCO_EPROTO: *reason
 * "truncated", "shape" or "checksum". DILOCO_ENOENT. Store errors as they are. */
DL_MUST_CHECK diloco_status dl_slice_read(const dl_slice_part *parts, size_t n, const dl_hash *want,
                                          dl_hash *got, const char **reason, dl_store *store,
                                          const char *key, dl_time until);

/* What lies behind each other in a slot: payload, and what is not f32. */
dl_contribution_data dl_slices_data(const dl_slicing *s, unsigned char *base);

/* All slices of a contribution, and whether they fit together: payload[form->bound], discrete
 * behind it. Errors as of the reader of one. */
DL_MUST_CHECK diloco_status dl_slices_read(const dl_slicing *s, unsigned char *payload,
                                           const dl_hash *table, uint64_t entry,
                                           const dl_life *life, const char **reason,
                                           dl_store *store, dl_time until);

#endif
