/* status_json.h - a run's status as one JSON object: `diloco status --json`, /status.json. */
#ifndef DL_HUB_STATUS_JSON_H
#define DL_HUB_STATUS_JSON_H

#include "base/json.h"
#include <diloco/inspect.h>

/* `store`: how it is reached. */
void dl_status_json(dl_json *json, const diloco_run_status *run, const char *store);
const char *dl_replica_state(const diloco_replica_status *replica); /* "alive", "ended", … */

#endif
