/* traffic.h - the bytes that a replica moves, by the kind of object that they were moved for. */
#ifndef DL_LOG_TRAFFIC_H
#define DL_LOG_TRAFFIC_H

#include "store/store.h"

typedef enum dl_traffic {
    DL_TRAFFIC_PROBE,         /* probe/ */
    DL_TRAFFIC_FIRST_MODEL,   /* theta0/ */
    DL_TRAFFIC_CONTRIBUTIONS, /* c/, b/, x/, and those read from members */
    DL_TRAFFIC_LOG,           /* log/ */
    DL_TRAFFIC_HEARTBEATS,    /* hb/ */
    DL_TRAFFIC_RECORDS,       /* rec/ */
    DL_TRAFFIC_SNAPSHOTS,     /* snap/ */
    DL_TRAFFIC_OTHER, /* run.json, gen/, end/, invite/, admit/, and waiting for any change */
    DL_N_TRAFFIC
} dl_traffic;

/* The names in the record: "probe", "first_model", … */
extern const char *const dl_traffic_names[DL_N_TRAFFIC];

/* Returns the kind of a key, or of a folder that is listed. For dl_moved. */
unsigned dl_traffic_kind(const char *key);

#endif
