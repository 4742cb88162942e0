/* cores.h - the cgroup part of dl_cores, with its two places as arguments. */
#ifndef DL_BASE_CORES_H
#define DL_BASE_CORES_H

/* Cores that the CPU quota of this process's cgroup and of those above it allows, rounded
 * up; INT_MAX without a quota.
 *
 *   membership  /proc/self/cgroup: one line a hierarchy, "<id>:<controllers>:<path>"
 *   mount       /sys/fs/cgroup: version 2 itself, or version 1 with a folder "cpu" */
int dl_cgroup_cores(const char *membership, const char *mount);

#endif
