/* cores.c - how many threads can run at once. */
#include "base/cores.h"

#include "base/cgroup.h"
#include "base/thread.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* First line of a file, or false. Files of /proc and /sys have no size, so they are read by
 * line. */
static bool read_line(char *line, int size, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool got = fgets(line, size, f) != NULL;
    fclose(f);
    return got;
}

/* Returns the quota in cores, rounded up: half a core still runs one thread. INT_MAX: no quota. */
static int quota_cores(long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0) return INT_MAX;
    long long cores = quota_us / period_us + (quota_us % period_us != 0);
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

/* Limit of one folder of the hierarchy: version 2 "cpu.max" holds "max 100000" or
 * "<quota> <period>"; version 1 has a file for each. */
static int folder_cores(const char *folder)
{
    char path[4200], line[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(line, sizeof line, path) && sscanf(line, "%lld %lld", &quota, &period) == 2)
        return quota_cores(quota, period);

    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(line, sizeof line, path) || sscanf(line, "%lld", &quota) != 1) return INT_MAX;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_line(line, sizeof line, path) || sscanf(line, "%lld", &period) != 1) return INT_MAX;
    return quota_cores(quota, period);
}

static void take_least(void *least, const char *folder)
{
    const int cores = folder_cores(folder);
    if (cores < *(int *)least) *(int *)least = cores;
}

/* The least limit of all folders counts. */
int dl_cgroup_cores(const char *membership, const char *mount)
{
    int least = INT_MAX;
    dl_cgroup_walk(membership, mount, "cpu", take_least, &least);
    return least;
}

/* The affinity mask and the quota both limit; the smaller one counts. */
int dl_cores(void)
{
    cpu_set_t mask[8]; /* 8192 cores; the kernel refuses a mask shorter than its own */
    int quota = dl_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup");
    if (sched_getaffinity(0, sizeof mask, mask)) return 1;
    int allowed = CPU_COUNT_S(sizeof mask, mask);
    int cores = quota < allowed ? quota : allowed;
    return cores > DL_POOL_MAX ? DL_POOL_MAX : cores > 1 ? cores : 1;
}
