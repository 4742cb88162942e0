/* traffic.c - see traffic.h. */
#include "log/traffic.h"

#include <string.h>

_Static_assert((int)DL_N_TRAFFIC <= (int)DL_MOVED_KINDS, "a tally has room for each kind");

const char *const dl_traffic_names[DL_N_TRAFFIC] = {
    [DL_TRAFFIC_PROBE] = "probe",
    [DL_TRAFFIC_FIRST_MODEL] = "first_model",
    [DL_TRAFFIC_CONTRIBUTIONS] = "contributions",
    [DL_TRAFFIC_LOG] = "log",
    [DL_TRAFFIC_HEARTBEATS] = "heartbeats",
    [DL_TRAFFIC_RECORDS] = "records",
    [DL_TRAFFIC_SNAPSHOTS] = "snapshots",
    [DL_TRAFFIC_OTHER] = "other",
};

/* A row is a folder of the store and its kind. A new folder without a row counts as
 * DL_TRAFFIC_OTHER. */
unsigned dl_traffic_kind(const char *key)
{
    static const struct {
        const char *folder;
        dl_traffic kind;
    } folders[] = {
        {"probe/", DL_TRAFFIC_PROBE},     {"theta0/", DL_TRAFFIC_FIRST_MODEL},
        {"c/", DL_TRAFFIC_CONTRIBUTIONS}, {"b/", DL_TRAFFIC_CONTRIBUTIONS},
        {"x/", DL_TRAFFIC_CONTRIBUTIONS}, {"log/", DL_TRAFFIC_LOG},
        {"hb/", DL_TRAFFIC_HEARTBEATS},   {"rec/", DL_TRAFFIC_RECORDS},
        {"snap/", DL_TRAFFIC_SNAPSHOTS},
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (!strncmp(key, folders[i].folder, strlen(folders[i].folder))) return folders[i].kind;
    return DL_TRAFFIC_OTHER;
}
