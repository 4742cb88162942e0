/* slices.h - a fragment in slices, each of which another member combines (docs/protocol.md P19).
 *
 * Slice i holds whole blocks of 4096 elements of the fragment's f32 array, distributed evenly;
 * integers and booleans belong to slice 0. There is a slice for each replica of the run, but none
 * without a block, and at most DL_SLICES_MAX. So their number is a function of options that must
 * agree.
 *
 *     b/<e>/<i>/<replica>.<g>       a slice of a contribution: the bytes of its payload that its
 *                                   decoder reads (codec.h: ranges), then its integers and
 *                                   booleans; c/<e>/<replica>.<g> has the table of their digests
 *     x/<e>/<i>/<owner>=<planner>   G of it as float32, then new integers and booleans, then the
 *                                   digest of those bytes; of the second and later owners only
 *                                   that digest
 *
 * Pure except for the two readers. */
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
/* Returns the nth owner of slice i among n_members; the owner changes with each entry. Several
 * owners of a slice are consecutive members. n is below n_members. */
size_t dl_slice_owner(size_t i, size_t nth, uint64_t entry, size_t n_members);

enum { DL_SLICE_SPANS = DL_CODEC_RANGES + 1 };

/* A buffer that holds a part of a slice. */
typedef struct dl_slice_part {
    unsigned char *data;
    size_t len;
} dl_slice_part;

/* Returns how many parts a slice has of a payload and of integers and booleans, and sets out[] to
 * them. */
size_t dl_slice_parts(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i,
                      unsigned char *payload, unsigned char *discrete);
/* Does the same for a combined update: G, then integers and booleans (discrete). */
size_t dl_slice_combined(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i, float *g,
                         unsigned char *discrete);
dl_hash dl_slice_digest(const dl_slice_part *parts, size_t n);
uint64_t dl_slices_bytes(const dl_slicing *s); /* of all slices of a contribution */

/* Reads an object of exactly the parts' length, and compares their digest with *want. If want is
 * NULL, it compares with the 16 bytes after the parts, and sets *got. Returns DILOCO_EPROTO and
 * *reason "truncated", "shape" or "checksum". Returns DILOCO_ENOENT, and store errors as they are.
 */
DL_MUST_CHECK diloco_status dl_slice_read(const dl_slice_part *parts, size_t n, const dl_hash *want,
                                          dl_hash *got, const char **reason, dl_store *store,
                                          const char *key, dl_time until);

/* Returns the parts of a contribution in a slot: the payload, followed by integers and booleans. */
dl_contribution_data dl_slices_data(const dl_slicing *s, unsigned char *base);

/* Reads all slices of a contribution and checks that they match: payload[form->bound], then
 * discrete. Returns the errors of dl_slice_read. */
DL_MUST_CHECK diloco_status dl_slices_read(const dl_slicing *s, unsigned char *payload,
                                           const dl_hash *table, uint64_t entry,
                                           const dl_generation *generation, const char **reason,
                                           dl_store *store, dl_time until);

#endif
