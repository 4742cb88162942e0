/* hash.h - XXH3-128 (libxxhash) and the tree digest of PROTOCOL B4.
 *
 * These find accidents, not adversaries.
 *
 *     leaf k  = XXH3-128 of bytes [k MiB, (k+1) MiB) of the data
 *     digest  = XXH3-128 of the leaves' canonical 16 bytes in order
 *               (of nothing, for no bytes)
 *
 * The fused pass of src/outer takes the leaf hashes while the memory is in cache;
 * dl_digest is the same function over memory at rest. */
#ifndef DL_BASE_HASH_H
#define DL_BASE_HASH_H

#include "base/size.h"
#include "base/status.h"

enum { DL_LEAF_BYTES = 1 << 20, DL_HASH_HEX = 32 };

typedef struct dl_hash {
    unsigned char bytes[16]; /* XXH128's canonical (big-endian) form */
} dl_hash;

dl_hash dl_hash_bytes(const void *data, size_t n);
/* XXH3-64 with a seed, for tables with foreign keys. With a random seed that never leaves the
 * process, an attacker cannot choose keys that collide. */
uint64_t dl_hash_seeded(const void *data, size_t n, uint64_t seed);
dl_hash dl_digest_bytes(const void *data, size_t n);
dl_hash dl_digest_leaves(const dl_hash *leaves, size_t n_leaves); /* the tree's upper level */

bool dl_hash_equal(dl_hash a, dl_hash b);
bool dl_hash_is_zero(dl_hash a);

/* 32 lower-case hex digits and a zero byte. */
void dl_hash_to_hex(char hex[DL_HASH_HEX + 1], dl_hash hash);
/* false, and *hash unspecified, unless `hex` is exactly 32 lower-case hex digits: a hash has one
 * text, so that a text that carries its own hash has no other form. */
bool dl_hash_from_hex(dl_hash *hash, const char *hex, size_t len);

/* The tree digest of data that comes in pieces. Allocates nothing: the upper level is
 * itself taken as a stream. About 1.2 KB; the state is opaque. */
typedef struct dl_digest_stream {
    _Alignas(64) unsigned char state[1280];
} dl_digest_stream;
void dl_digest_begin(dl_digest_stream *stream);
void dl_digest_add(dl_digest_stream *stream, const void *data, size_t n);
dl_hash dl_digest_end(dl_digest_stream *stream);

#endif
