/* run_options.h - options of [run]: the log, its store, and the replicas that take part. */
#ifndef DL_BASE_OPTIONS_RUN_OPTIONS_H
#define DL_BASE_OPTIONS_RUN_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_POLICIES(X) \
    X(DL_TRUSTED, "trusted") \
    X(DL_OPEN, "open") \
    X(DL_INVITED, "invited") \
    X(DL_CLOSED, "closed")

#define DL_MISSINGS(X) \
    X(DL_MISSING_WAIT, "wait") \
    X(DL_MISSING_COMMIT_PARTIAL, "commit_partial") \
    X(DL_MISSING_ABORT, "abort")

#define DL_UNCOUNTEDS(X) \
    X(DL_UNCOUNTED_ADOPT, "adopt") \
    X(DL_UNCOUNTED_KEEP, "keep")

#define DL_RETAINS(X) \
    X(DL_RETAIN_RECENT, "recent") \
    X(DL_RETAIN_ALL, "all")

#define DL_SPOOLS(X) \
    X(DL_SPOOL_AUTO, "auto") \
    X(DL_SPOOL_MEMORY, "memory") \
    X(DL_SPOOL_DISK, "disk")

#define DL_OFFLOADS(X) \
    X(DL_OFFLOAD_NONE, "none") \
    X(DL_OFFLOAD_MEMORY, "memory") \
    X(DL_OFFLOAD_DISK, "disk")

#define DL_ROLES(X) \
    X(DL_ROLE_BOTH, "both") \
    X(DL_ROLE_SERVER, "server") \
    X(DL_ROLE_WORKER, "worker")

#define DL_RUN_CHOICES(X) \
    X(dl_policy, DL_POLICIES) \
    X(dl_missing_choice, DL_MISSINGS) \
    X(dl_uncounted_choice, DL_UNCOUNTEDS) \
    X(dl_retain_choice, DL_RETAINS) \
    X(dl_spool_choice, DL_SPOOLS) \
    X(dl_offload_choice, DL_OFFLOADS) \
    X(dl_role_choice, DL_ROLES)
// clang-format on

DL_RUN_CHOICES(DL_CHOICE)

#endif
