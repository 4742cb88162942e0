/* private_sync.h - for tests that replace fsync(2), to make the disk of a private state slow. */
#ifndef DL_TEST_PRIVATE_SYNC_H
#define DL_TEST_PRIVATE_SYNC_H

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns whether the file is a private state whose path ends so. */
static inline bool is_private_state(int fd, const char *end)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, end);
}

/* The C library's function. */
static inline int real_fsync(int fd)
{
    static int (*_Atomic real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}

#endif
