/* object_keys.h - the kinds of objects of a run that a hub treats differently, by their keys. */
#ifndef DL_HUB_OBJECT_KEYS_H
#define DL_HUB_OBJECT_KEYS_H

#include <stdbool.h>

enum { DL_BUCKET_MAX = 255 }; /* bytes of a bucket's name */

/* Returns whether a plain PUT may replace the object: only a heartbeat. */
bool dl_key_is_heartbeat(const char *key);
/* Returns whether the key ends with log/<10 digits>.json. */
bool dl_key_is_entry(const char *key);
/* Returns whether the object is never deleted (docs/hub.md). */
bool dl_key_is_kept(const char *key);

#endif
