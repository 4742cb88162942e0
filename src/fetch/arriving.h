/* arriving.h - a file of the cache that is read while it arrives, in blocks and in any order.
 *
 * The file has its full length from the start; blocks that have not arrived are holes. A second
 * file, the record, has the length, the version of the object, and 8 bytes for each block. These
 * are 0, or a digest of the block's bytes, which is written after the bytes. So a process that is
 * killed leaves only blocks that are whole. After a power failure a block whose bytes did not reach
 * the disk does not fit its digest. Processes of one machine share both files: each sees what the
 * others have put. */
#ifndef DL_FETCH_ARRIVING_H
#define DL_FETCH_ARRIVING_H

#include "base/file.h"
#include "base/hash.h"

/* Small, since a sample of text has a few KiB, and samples are read in random order. */
enum { DL_ARRIVING_BLOCK = 256 << 10, DL_ARRIVING_VERSION = 256 };

typedef struct dl_arriving dl_arriving;

/* dl_arriving_create makes both files, with no block in them, and replaces older ones. `version` is
 * not empty and has no line break. Returns DILOCO_EFULL and DILOCO_EIO. */
DL_MUST_CHECK diloco_status dl_arriving_create(const char *path, const char *record, size_t len,
                                               const char *version);

/* dl_arriving_open opens the two files. Returns DILOCO_ENOENT if one is missing, and DILOCO_EPROTO
 * if the record is damaged, or spoiled. */
DL_MUST_CHECK diloco_status dl_arriving_open(dl_arriving **out, const char *path,
                                             const char *record);
void dl_arriving_close(dl_arriving *a); /* NULL is fine */

const dl_map *dl_arriving_map(const dl_arriving *a); /* of the full length; valid until close */
const char *dl_arriving_version(const dl_arriving *a);
size_t dl_arriving_blocks(const dl_arriving *a);
size_t dl_arriving_block_len(const dl_arriving *a, size_t block);
bool dl_arriving_has(const dl_arriving *a, size_t block); /* any thread */
size_t dl_arriving_bytes(const dl_arriving *a);           /* that have arrived */

/* dl_arriving_put writes a whole block. Any thread. Returns DILOCO_EFULL and DILOCO_EIO, and then
 * the block has not arrived. */
DL_MUST_CHECK diloco_status dl_arriving_put(dl_arriving *a, size_t block, const void *data);

/* dl_arriving_check returns true if a block fits its digest. Otherwise it has not arrived, and is
 * false. This shows damage, and a file system that shares the two files among machines and shows
 * their changes in another order. */
bool dl_arriving_check(dl_arriving *a, size_t block);

/* dl_arriving_verify reads all blocks that have arrived. A block that does not fit its digest
 * counts as not arrived afterwards. */
DL_MUST_CHECK diloco_status dl_arriving_verify(dl_arriving *a);

/* dl_arriving_finish sets the digest of a file whose blocks have all arrived. Its bytes are on the
 * disk afterwards. Returns DILOCO_EPROTO if a block does not fit its digest, and DILOCO_EIO. */
DL_MUST_CHECK diloco_status dl_arriving_finish(dl_hash *out, const dl_arriving *a);

/* dl_arriving_spoil makes every process stop using the file: the object has changed, or the file is
 * damaged. The next process that opens it gets DILOCO_EPROTO. */
void dl_arriving_spoil(dl_arriving *a);
bool dl_arriving_is_spoiled(const dl_arriving *a);

/* Returns true if the data is still the file at this path. */
bool dl_arriving_is_at(const dl_arriving *a, const char *path);

#endif
