/* logged_names.h - the replicas that the log names: counted members and names of rosters. A writer
 * of the store can create gen/ objects under invented names, but cannot make a commit name them. So
 * a status with limited room prefers the names of the log. */
#ifndef DL_INSPECT_LOGGED_NAMES_H
#define DL_INSPECT_LOGGED_NAMES_H

#include "log/entry.h"

/* The most names; a further one replaces the name that was named least recently. */
enum { DL_LOGGED_NAMES_MAX = 1024 };

/* Zeroes are an empty list. Row i of both arrays is of one name, in dl_replica_compare order. */
typedef struct dl_logged_names {
    char names[DL_LOGGED_NAMES_MAX][DL_REPLICA_MAX + 1];
    uint64_t since[DL_LOGGED_NAMES_MAX]; /* 1 + the newest entry that names it */
    size_t n;
} dl_logged_names;

/* Adds a name that `entry` names. */
void dl_logged_names_add(dl_logged_names *names, const char *name, uint64_t entry);
/* Adds the members and the roster of a commit. */
void dl_logged_names_add_commit(dl_logged_names *names, const dl_entry *entry);

/* Returns 1 + the newest entry that names the replica, or 0 if none does. */
uint64_t dl_logged_names_since(const dl_logged_names *names, const char *name);

#endif
