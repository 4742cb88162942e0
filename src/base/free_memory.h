/* free_memory.h - how much memory this process may still take. */
#ifndef DL_BASE_FREE_MEMORY_H
#define DL_BASE_FREE_MEMORY_H

#include <stddef.h>

/* Bytes that the machine has free, page cache included, and that the memory limits of this
 * process's cgroup and of those above it leave; SIZE_MAX where neither is known. */
size_t dl_memory_free(void);

/* The same, with its three places as arguments.
 *
 *   meminfo     /proc/meminfo
 *   membership  /proc/self/cgroup
 *   mount       /sys/fs/cgroup: version 2 itself, or version 1 with a folder "memory" */
size_t dl_memory_free_of(const char *meminfo, const char *membership, const char *mount);

#endif
