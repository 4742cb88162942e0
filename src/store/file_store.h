/* file_store.h - what the three files of the folder store share: file.c (objects),
 * file_list.c and file_wait.c. */
#ifndef DL_STORE_FILE_STORE_H
#define DL_STORE_FILE_STORE_H

#include "store/kind.h"

#define DL_FILE_TMP ".tmp" /* in the root; no key begins with a dot */

typedef struct dl_file_store {
    char *root; /* owned; looked up anew by each call, so that it may come back */
    const atomic_bool *aborted;
    bool marked;          /* the root has had a .tmp/: without it, it is not our root */
    unsigned char *piece; /* owned, DL_STORE_PIECE: file contents, folder entries */

    dl_buf names; /* of a listing under way: zero-terminated, folders with '/' behind */
    dl_buf order; /* uint32_t offsets into names, sorted folder by folder */

    int notify;     /* inotify; -1: none */
    dl_buf watched; /* the prefixes it is for, zero-terminated */
    bool told_deaf; /* it was logged that there is no inotify to be had */
} dl_file_store;

/* Words an errno: "<what> <key> in store <root>: …", and what to do about it. */
diloco_status dl_file_store_fail(const dl_file_store *fs, int error, const char *what,
                                 const char *key);

/* Open the folder of a key (the part before its last '/'), not following a symbolic link
 * below the root. DILOCO_ENOENT: there is none, or what stands there is no folder. `make`:
 * make it then, durably. DILOCO_EUNREACHABLE: the root is gone. *leaf (may be NULL) points
 * into the key, behind the last '/'. */
DL_MUST_CHECK diloco_status dl_file_store_folder(dl_file_store *fs, const char *key, bool make,
                                                 int *out, const char **leaf);

diloco_status dl_file_store_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until);
diloco_status dl_file_store_wait(void *self, const char *const *prefixes, size_t n, dl_time until);

#endif
