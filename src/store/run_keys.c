/* run_keys.c - see run_keys.h. A key is compared with one pattern after another, component by
 * component. */
#include "store/run_keys.h"

#include <stdbool.h>
#include <string.h>

/* A component of a pattern: `*` anything, `@` a replica's generation or generations (these have a
 * dot), `#` a number; else the text itself. */
/* A row is the form of a run's keys in one folder. A new kind of object in a run needs a row here,
 * or stores treat its key as free. */
static const char *const patterns[] = {
    "run.json",         "theta0/*", "gen/*", "hb/*",       "end/*",
    "invite/*",         "admit/*",  "log/*", "c/*/*",      "b/*/*/*",
    "snap/*/*/*",       "rec/*/*",  "x/*/@", "x/*/plan/*", "x/*/#/*",
    "x/*/measured/*/*", "out/*/*",
};

static size_t component_len(const char *at)
{
    return strcspn(at, "/");
}

/* Returns whether one component of a key fits one of a pattern. */
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

/* Walks pattern and key in parallel. If both end together, the key is an object. A rest of the
 * pattern makes it a folder, and a rest of the key makes it wrong. */
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

/* One pattern that fits suffices, since x/ has several forms. */
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
