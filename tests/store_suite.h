/* store_suite.h - the tests that every store passes (store.h is what they hold it to).
 *
 * A store is stamped with one row: how to make a new empty one, how to open one more handle
 * of it, and how to get rid of it. */
#ifndef DL_TESTS_STORE_SUITE_H
#define DL_TESTS_STORE_SUITE_H

#include "store/store.h"

typedef struct store_row {
    const char *name; /* "file", … before each test's name */
    void (*make)(char url[512]);
    dl_store *(*open)(const char *url); /* a new handle; fails the test itself */
    void (*destroy)(const char *url);   /* all handles are closed */
    bool framed;                        /* bytes are counted with what the network adds */
} store_row;

/* Run all tests over the row; returns the number of failures. */
int store_suite_run(const store_row *row);

/* Stores that store_test.c and others share. The folder is made under TMPDIR or /tmp. */
extern const store_row store_row_file, store_row_mem;

/* A new folder, and its removal with all that is in it. */
void store_make_folder(char path[512]);
void store_remove_folder(const char *path);

/* Shorthands: fail the test on any error. `text` is a C string. */
void store_must_create(dl_store *store, const char *key, const char *text);
void store_must_hold(dl_store *store, const char *key, const char *text);

/* All keys, each followed by " ", in the order in which they were listed. */
const char *store_keys(dl_store *store, const char *prefix, const char *after);

#endif
