/* run_keys.c - see run_keys.h. A key is compared with one pattern after another, component by
 * component. */
#include "store/run_keys.h"

#include <stdbool.h>
#include <string.h>

/* A component of a pattern: `*` anything, `@` a replica's generation or generations (these have a
 * dot), `#` a number; else the text itself. */
static const char *const patterns[] = {
    "run.json", "theta0/*",   "gen/*",      "hb/*",
    "end/*",    "invite/*",   "admit/*",    "log/*",
    "c/*/*",    "b/*/*/*",    "snap/*/*/*", "rec/*/*",
    "x/*/@",    "x/*/plan/*", "x/*/#/*",    "x/*/measured/*/*",
};

static size_t component_len(const char *at)
{
    return strcspn(at, "/");
}

static bool fits(const char *pattern, const char *name)
{
    const size_t len = component_len(name);
    switch (*pattern) {
    case '*':
        return true;
    case '@':
        return memchr(name, '.', len) != NULL;
    case '#':
        return strspn(name, "0123456789") == len;
    default:
        return component_len(pattern) == len && memcmp(pattern, name, len) == 0;
    }
}

static const char *next(const char *at)
{
    at += component_len(at);
    return *at ? at + 1 : at;
}

static dl_key_shape shape_by(const char *pattern, const char *key)
{
    if (!fits(pattern, key)) return DL_KEY_FREE;
    while (*pattern && *key && fits(pattern, key)) {
        pattern = next(pattern);
        key = next(key);
    }
    if (*key) return DL_KEY_WRONG;
    return *pattern ? DL_KEY_FOLDER : DL_KEY_OBJECT;
}

dl_key_shape dl_run_key_shape(const char *key)
{
    dl_key_shape shape = DL_KEY_FREE;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const dl_key_shape by = shape_by(patterns[i], key);
        if (by == DL_KEY_OBJECT || by == DL_KEY_FOLDER) return by;
        if (by == DL_KEY_WRONG) shape = by;
    }
    return shape;
}
