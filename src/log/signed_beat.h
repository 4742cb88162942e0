/* signed_beat.h - the heartbeat of a generation, and its end (docs/formats.md, "gen/, hb/, end/").
 *
 * In a run with keys both are sealed and signed, so that only the replica itself can seem alive or
 * say that it has stopped. In other runs they are plain JSON. */
#ifndef DL_LOG_SIGNED_BEAT_H
#define DL_LOG_SIGNED_BEAT_H

#include "base/json.h"
#include "log/signed.h"

typedef struct dl_heartbeat_kind {
    const char *format, *kind; /* of the sealed object, and of its statement */
} dl_heartbeat_kind;
extern const dl_heartbeat_kind dl_heartbeat_alive, dl_heartbeat_ended;

/* An object that is written into a buffer. */
typedef struct dl_heartbeat_writer {
    dl_json json; /* its members are added to this */
    dl_buf *text;
    size_t start;
    const dl_heartbeat_kind *kind;
    const dl_signer *signer;
    const char *run;
    const dl_generation *generation;
} dl_heartbeat_writer;

/* Begins it with `replica` and `generation`. All pointers are borrowed. */
void dl_heartbeat_begin(dl_heartbeat_writer *w, dl_buf *text, const dl_heartbeat_kind *kind,
                        const dl_signer *signer, const char *run, const dl_generation *generation);
DL_MUST_CHECK diloco_status dl_heartbeat_end(dl_heartbeat_writer *w);

/* Opens an untrusted text. Returns false if that key has not signed it for this generation. */
bool dl_heartbeat_read(dl_json_value *out, const dl_buf *text, const dl_heartbeat_kind *kind,
                       const dl_public *key, const char *run, const dl_generation *generation);

#endif
