/* free_memory.c - see free_memory.h.
 *
 * A cgroup counts the page cache of its files as used. The kernel drops its inactive part before it
 * refuses memory, so that part is free here. */
#include "base/free_memory.h"

#include "base/cgroup.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct cgroup_files {
    const char *limit, *used, *stat, *cache;
} cgroup_files;

/* A row is a version of cgroups: the files of a cgroup, and the name of the inactive cache in the
 * statistics. */
static const cgroup_files versions[] = {
    {"memory.max", "memory.current", "memory.stat", "inactive_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"},
};

/* The number after `name` at the start of a line; an empty name: the file's first number. */
static bool read_number(uint64_t *out, const char *path, const char *name)
{
    char line[256];
    FILE *f = fopen(path, "re");
    bool found = false;
    const size_t len = strlen(name);
    while (f && !found && fgets(line, sizeof line, f))
        found = !strncmp(line, name, len) && sscanf(line + len, "%" SCNu64, out) == 1;
    if (f) fclose(f);
    return found;
}

/* Reads a number of a file in a folder; false if there is no such file or number. */
static bool read_in(uint64_t *out, const char *folder, const char *file, const char *name)
{
    char path[4200];
    const int len = snprintf(path, sizeof path, "%s/%s", folder, file);
    return len > 0 && (size_t)len < sizeof path && read_number(out, path, name);
}

/* Returns SIZE_MAX if the cgroup has no limit or is of the other version. */
static size_t left_by(const char *cgroup, const cgroup_files *f)
{
    uint64_t limit, used, cache = 0;
    if (!read_in(&limit, cgroup, f->limit, "") || !read_in(&used, cgroup, f->used, ""))
        return SIZE_MAX; /* "max": no limit */
    (void)read_in(&cache, cgroup, f->stat, f->cache);
    used -= used < cache ? used : cache;
    const uint64_t left = limit > used ? limit - used : 0;
    return left < SIZE_MAX ? (size_t)left : SIZE_MAX;
}

static void take_least(void *least, const char *folder)
{
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        *(size_t *)least = dl_size_min(*(size_t *)least, left_by(folder, &versions[i]));
}

/* The smallest of the machine's free memory and the cgroups' limits counts. */
size_t dl_memory_free_of(const char *meminfo, const char *membership, const char *mount)
{
    uint64_t kib;
    size_t least = SIZE_MAX, bytes;
    if (read_number(&kib, meminfo, "MemAvailable:") && dl_size_mul(&bytes, (size_t)kib, 1024))
        least = bytes;
    dl_cgroup_walk(membership, mount, "memory", take_least, &least);
    return least;
}

size_t dl_memory_free(void)
{
    return dl_memory_free_of("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup");
}
