/* file_store.h - shared declarations of the folder store's files: file_store.c (objects),
 * file_upload.c, file_list.c and file_wait.c. The hub uses it too: it writes bodies as they arrive
 * and serves objects by descriptor. For that a dl_file_store of root and aborted alone is enough,
 * and the keys are the caller's to check. */
#ifndef DL_STORE_FILE_STORE_H
#define DL_STORE_FILE_STORE_H

#include "store/kind.h"
#include <limits.h>
#include <sys/stat.h>

#define DL_FILE_TMP ".tmp" /* in the root; no key begins with a dot */

typedef struct dl_file_store {
    char *root; /* owned; looked up again by each call, so that it may come back */
    const atomic_bool *aborted;
    bool marked;          /* the root has had a .tmp/: without it, it is not our root */
    unsigned char *piece; /* owned, DL_STORE_PIECE: file contents, folder entries */

    dl_buf names; /* of a listing in flight: zero-terminated, folders end with '/' */
    dl_buf order; /* uint32_t offsets into names, sorted folder by folder */

    int notify;     /* inotify; -1: none */
    dl_buf watched; /* the prefixes it is for, zero-terminated */
    bool told_deaf; /* it was logged that there is no inotify to be had */
} dl_file_store;

/* Words an errno: "<what> <key> in store <root>: …", and what to do about it. */
diloco_status dl_file_store_fail(const dl_file_store *fs, int error, const char *what,
                                 const char *key);

/* Open the folder of a key (the part before its last '/'), not following a symbolic link
 * below the root. Returns DILOCO_ENOENT if the folder does not exist or is no folder. `make`: make
 * it then, durably. DILOCO_EUNREACHABLE: the root is gone. *leaf (may be NULL) points into the key,
 * after the last '/'. */
DL_MUST_CHECK diloco_status dl_file_store_folder(dl_file_store *fs, const char *key, bool make,
                                                 int *out, const char **leaf);

/* The root's .tmp/, made when it is not there. */
DL_MUST_CHECK diloco_status dl_file_store_tmp(dl_file_store *fs, const char *key, int *out);
/* fsync; -1 and errno. A file system with nothing to sync in folders is fine. */
int dl_file_store_sync_folder(int fd);

/* An object open for reading. DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_file_store_object(dl_file_store *fs, const char *key, int *out,
                                                 struct stat *st);

/* ---- an object on its way in (file_upload.c). begin first, discard last, in any case. The
 * key is for the error texts until it is published. */
typedef struct dl_upload {
    int dir; /* .tmp/; -1: there is nothing to discard */
    int fd;  /* open for writing; -1 after finish */
    char name[NAME_MAX + 1];
} dl_upload;
DL_MUST_CHECK diloco_status dl_upload_begin(dl_upload *u, dl_file_store *fs, const char *key);
DL_MUST_CHECK diloco_status dl_upload_add(dl_upload *u, const dl_file_store *fs, const char *key,
                                          const void *data, size_t len, dl_time until);
DL_MUST_CHECK diloco_status dl_upload_finish(dl_upload *u, const dl_file_store *fs,
                                             const char *key);
/* *taken: the name is there already, and stays as it is. taken == NULL: replaces. */
DL_MUST_CHECK diloco_status dl_upload_publish(const dl_upload *u, dl_file_store *fs,
                                              const char *key, bool *taken);
void dl_upload_discard(dl_upload *u);
/* Remove what killed processes left; closes the descriptor of .tmp/. */
void dl_upload_clean(int tmp);

diloco_status dl_file_store_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until);
diloco_status dl_file_store_wait(void *self, const char *const *prefixes, size_t n, dl_time until);

#endif
