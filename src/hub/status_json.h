/* status_json.h - a run's status as one JSON object: `diloco status --json`, /status.json. */
#ifndef DL_HUB_STATUS_JSON_H
#define DL_HUB_STATUS_JSON_H

#include "base/json.h"
#include <diloco/inspect.h>

/* The owner of a run and the keys of its names; the first 256 names. About 28 KiB; no heap
 * memory. */
typedef struct dl_roster_key {
    char replica[32], key[80]; /* as text */
} dl_roster_key;
typedef struct dl_roster_view {
    char roster[16], owner[80]; /* owner "": all are trusted */
    size_t n_keys;
    dl_roster_key keys[256];
} dl_roster_view;
DL_MUST_CHECK diloco_status dl_roster_view_read(dl_roster_view *out, const char *url);

/* `store`: how it is reached. */
void dl_status_json(dl_json *json, const diloco_run_status *run, const dl_roster_view *roster,
                    const char *store);
const char *dl_replica_state(const diloco_replica_status *replica); /* "alive", "ended", … */

#endif
