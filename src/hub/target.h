/* target.h - the target of a request, "/run/c/1/r0.0?list-type=2&prefix=a%2Fb", taken apart.
 *
 * Done here, not by the HTTP library, because its decoding ends a path silently at %00 and
 * because a signature covers every parameter. */
#ifndef DL_HUB_TARGET_H
#define DL_HUB_TARGET_H

#include "base/size.h"
#include "base/status.h"

enum { DL_TARGET_MAX = 4096, DL_TARGET_PARAMS = 32 };

/* A parameter of the query. Both texts point into the target. */
typedef struct dl_param {
    const char *name, *value; /* decoded; "" where there is no '=' */
} dl_param;

/* A parsed target. It points into itself, so it must not be copied. */
typedef struct dl_target {
    const char *path; /* decoded; begins with '/' */
    dl_param params[DL_TARGET_PARAMS];
    size_t n_params;
    char text[DL_TARGET_MAX + 1]; /* the text that the others point into */
} dl_target;

/* DILOCO_EPROTO: longer than DL_TARGET_MAX, not "/…", more than DL_TARGET_PARAMS parameters, a '%'
 * without two hex digits, a zero byte or another control character, in the path more than ASCII. */
DL_MUST_CHECK diloco_status dl_target_parse(dl_target *out, const char *raw);

/* The first parameter of that name; NULL: none. */
const char *dl_target_param(const dl_target *target, const char *name);
bool dl_target_has(const dl_target *target, const char *name);

/* "bytes=FIRST-LAST", "bytes=FIRST-" or "bytes=-N" of an object of `len` bytes (RFC 9110, 14.2).
 * A range has one piece. An unknown form is no range: all of the object. */
typedef enum dl_range { DL_RANGE_NONE, DL_RANGE_PART, DL_RANGE_BEYOND } dl_range;
dl_range dl_range_parse(uint64_t *begin, uint64_t *n, const char *header, uint64_t len);

#endif
