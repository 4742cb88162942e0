/* object_keys.c - see object_keys.h. */
#include "hub/object_keys.h"

#include <stddef.h>
#include <string.h>

/* Return true if the last folder of the key is `name`, as of ".../hb/r0.0". *leaf is then the
 * part after it. */
static bool is_in(const char *key, const char *name, const char **leaf)
{
    const char *slash = strrchr(key, '/');
    size_t len = strlen(name);
    if (!slash || (size_t)(slash - key) < len || memcmp(slash - len, name, len)) return false;
    *leaf = slash + 1;
    return slash - len == key || slash[-(ptrdiff_t)len - 1] == '/';
}

bool dl_key_is_heartbeat(const char *key)
{
    const char *leaf;
    return is_in(key, "hb", &leaf);
}

bool dl_key_is_entry(const char *key)
{
    const char *leaf;
    return is_in(key, "log", &leaf) && strspn(leaf, "0123456789") == 10 &&
           strcmp(leaf + 10, ".json") == 0;
}

bool dl_key_is_kept(const char *key)
{
    const char *leaf = strrchr(key, '/');
    if (strcmp(leaf ? leaf + 1 : key, "run.json") == 0) return true;
    if (is_in(key, "gen", &leaf) || is_in(key, "invite", &leaf) || is_in(key, "admit", &leaf))
        return true; /* the key of each name (docs/formats.md, Membership) */
    return dl_key_is_entry(key);
}
