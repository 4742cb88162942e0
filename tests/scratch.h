/* scratch.h - a folder for a test's files, gone when the test program ends.
 *
 *     const char *path = scratch_write("corpus.txt", "text", 4);
 *
 * Paths are valid until the program ends. A failure here ends the program. */
#ifndef DL_TESTS_SCRATCH_H
#define DL_TESTS_SCRATCH_H

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_root[PATH_MAX];

static inline void scratch_need(int ok, const char *what)
{
    if (ok) return;
    perror(what);
    exit(1);
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
                                     struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void scratch_remove(void)
{
    nftw(scratch_root, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a name in the folder; nothing is made but the folder. */
static inline char *scratch_path(const char *name)
{
    if (!scratch_root[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch_root, sizeof scratch_root, "%s/diloco-test-XXXXXX",
                 tmp && *tmp ? tmp : "/tmp");
        scratch_need(mkdtemp(scratch_root) != NULL, scratch_root);
        atexit(scratch_remove);
    }
    static char *paths[4096];
    static size_t n;
    scratch_need(n < sizeof paths / sizeof paths[0], "too many paths");
    scratch_need(asprintf(&paths[n], "%s/%s", scratch_root, name) >= 0, name);
    return paths[n++];
}

static inline char *scratch_folder(const char *name)
{
    char *path = scratch_path(name);
    scratch_need(mkdir(path, 0777) == 0, path);
    return path;
}

/* Write a file, replacing its content. */
static inline char *scratch_write(const char *name, const void *data, size_t len)
{
    char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    scratch_need(fwrite(data, 1, len, file) == len, path);
    scratch_need(fclose(file) == 0, path);
    return path;
}

/* Write a text file below a folder of the scratch folder, making the folders between. */
static inline void scratch_write_below(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        scratch_need(mkdir(path, 0777) == 0 || errno == EEXIST, path);
    }
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    scratch_need(fputs(text, file) >= 0, path);
    scratch_need(fclose(file) == 0, path);
}

#endif
