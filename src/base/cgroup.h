/* cgroup.h - the folders of the cgroups that limit this process. */
#ifndef DL_BASE_CGROUP_H
#define DL_BASE_CGROUP_H

/* Reads the limits of one folder. */
typedef void (*dl_cgroup_fn)(void *user, const char *folder);

/* Calls fn with the folder of this process's cgroup and with each folder above it, up to the mount.
 * Of version 1 only the hierarchy with that controller counts. A folder may not exist.
 *
 *   membership  /proc/self/cgroup: one line a hierarchy, "<id>:<controllers>:<path>"
 *   mount       /sys/fs/cgroup: version 2 itself, or version 1 with a folder a controller, and
 *               perhaps version 2 in the folder "unified" beside them (a hybrid layout)
 *   controller  "cpu", "memory" */
void dl_cgroup_walk(const char *membership, const char *mount, const char *controller,
                    dl_cgroup_fn fn, void *user);

#endif
