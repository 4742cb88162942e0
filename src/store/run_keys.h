/* run_keys.h - the shape of a run's names (docs/formats.md, Names in the store).
 *
 * A folder cannot hold an object and a folder under one name. So one wrong object, such as a file
 * at c/0000000012, would keep every replica from contributing. A store therefore knows the shape of
 * the names, and nothing else of a run. */
#ifndef DL_STORE_RUN_KEYS_H
#define DL_STORE_RUN_KEYS_H

typedef enum dl_key_shape {
    DL_KEY_FREE,   /* its first component is no name of a run: anything */
    DL_KEY_OBJECT, /* a run keeps an object there */
    DL_KEY_FOLDER, /* a run keeps objects below it */
    DL_KEY_WRONG   /* neither, such as log/0000000012.json/x */
} dl_key_shape;

/* Return the shape of a key that is relative to its run. The key has been checked
 * (dl_store_key_ok). */
dl_key_shape dl_run_key_shape(const char *key);

#endif
