/* object_keys.h - the kinds of objects of a run that a hub treats differently, by their keys. */
#ifndef DL_HUB_OBJECT_KEYS_H
#define DL_HUB_OBJECT_KEYS_H

#include <stdbool.h>

enum { DL_BUCKET_MAX = 255 }; /* bytes of a bucket's name */

/* May a plain PUT replace it? Heartbeats only. */
bool dl_key_is_heartbeat(const char *key);
bool dl_key_is_entry(const char *key); /* ends with log/<10 digits>.json */
/* May it be deleted? Not run.json and the entries of a log. */
bool dl_key_is_kept(const char *key);

#endif
