/* cores.c - how many threads can run at once.
 *
 * A container may see its cgroup under the host's path while only its own
 * subtree is mounted. So missing paths are passed over. Going up from the path to the mount meets
 * the container's own limit in either case. */
#include "base/cores.h"

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

/* The least limit of `root`/`below` and every folder above it up to `root`. */
static int least_upwards(const char *root, const char *below)
{
    char folder[4096];
    int len = snprintf(folder, sizeof folder, "%s%s", root, below), least = INT_MAX;
    if (len < 0 || (size_t)len >= sizeof folder) return INT_MAX;
    for (size_t root_len = strlen(root);; *strrchr(folder, '/') = 0) {
        int cores = folder_cores(folder);
        if (cores < least) least = cores;
        if (strlen(folder) <= root_len) return least;
    }
}

/* Returns whether the list of a version 1 hierarchy has the controller "cpu". */
static bool has_cpu(const char *controllers)
{
    char list[256];
    snprintf(list, sizeof list, ",%s,", controllers);
    return strstr(list, ",cpu,") != NULL;
}

/* A version 2 line has no controllers. A version 1 line counts if it has the controller "cpu". The
 * least limit of all counts. */
int dl_cgroup_cores(const char *membership, const char *mount)
{
    FILE *f = fopen(membership, "re");
    if (!f) return INT_MAX; /* no cgroups here */
    int least = INT_MAX;
    char line[4096], cpu_mount[1024];
    snprintf(cpu_mount, sizeof cpu_mount, "%s/cpu", mount);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers) path = strchr(++controllers, ':');
        if (!path || path[1] != '/') continue;
        *path++ = 0;
        int cores = INT_MAX;
        if (!*controllers) cores = least_upwards(mount, path);
        if (has_cpu(controllers)) cores = least_upwards(cpu_mount, path);
        if (cores < least) least = cores;
    }
    fclose(f);
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
