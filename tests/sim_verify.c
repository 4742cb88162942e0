/* sim_verify.c - the cluster simulation remembers which signatures hold.
 *
 * All replicas of a simulation are in one process, so each of N replicas would verify the same N
 * heartbeats. Whether a signature holds depends on its bytes alone, so each is verified once. The
 * linker directs the library's calls of dl_verify here (--wrap). */
#include "base/hash.h"
#include "base/signature.h"

#include <string.h>

enum { ROWS = 1 << 16 }; /* a newer signature replaces an older one of the same row */

static struct {
    dl_hash of; /* signature, key and text */
    bool used, holds;
} rows[ROWS];

bool __real_dl_verify(const dl_signature *signature, const dl_public *key, const void *data,
                      size_t len);
bool __wrap_dl_verify(const dl_signature *signature, const dl_public *key, const void *data,
                      size_t len);

bool __wrap_dl_verify(const dl_signature *signature, const dl_public *key, const void *data,
                      size_t len)
{
    const struct {
        dl_signature signature;
        dl_public key;
        dl_hash text;
    } what = {*signature, *key, dl_hash_bytes(data, len)};
    const dl_hash of = dl_hash_bytes(&what, sizeof what);
    const size_t row = (size_t)of.bytes[0] << 8 | of.bytes[1];
    if (!rows[row].used || !dl_hash_equal(rows[row].of, of)) {
        rows[row].of = of;
        rows[row].used = true;
        rows[row].holds = __real_dl_verify(signature, key, data, len);
    }
    return rows[row].holds;
}
