/* json.h - JSON written into a buffer and read from one, without allocating.
 *
 * Own code because a sync and a training step allocate nothing (jansson builds a tree
 * on the heap). RFC 8259; numbers are kept as text until asked for, so 64-bit integers
 * are exact; strings must be UTF-8; depth is limited to 32. */
#ifndef DL_BASE_JSON_H
#define DL_BASE_JSON_H

#include "base/buf.h"

enum { DL_JSON_DEPTH = 32, DL_JSON_MEMBERS = 262144 };

/* ---- writing: keys and values in order; the commas are put where they belong. An
 * error (memory, the buffer's maximum) sticks and is returned by dl_json_done. NaN and
 * infinities are written as null. Keys and strings are escaped; DILOCO_EINVAL when they are
 * not UTF-8. NULL key: in an array, or the outermost value. */
typedef struct dl_json {
    dl_buf *buf; /* borrowed */
    diloco_status status;
    int depth;          /* containers open; the levels are 0 (outermost) to DL_JSON_DEPTH */
    uint64_t not_first; /* bit d: the level d has a value already */
    uint64_t array;     /* bit d: the level d is an array */
} dl_json;

void dl_json_init(dl_json *j, dl_buf *buf);
void dl_json_object(dl_json *j, const char *key);
void dl_json_array(dl_json *j, const char *key);
void dl_json_end(dl_json *j); /* closes the innermost object or array */
void dl_json_str(dl_json *j, const char *key, const char *value); /* NULL: null */
void dl_json_strn(dl_json *j, const char *key, const char *value, size_t len);
void dl_json_i64(dl_json *j, const char *key, int64_t value);
void dl_json_u64(dl_json *j, const char *key, uint64_t value);
void dl_json_f64(dl_json *j, const char *key,
                 double value); /* %.9g, or %.17g where that is inexact */
void dl_json_f32_bits(dl_json *j, const char *key, float value); /* "3f333333" (PROTOCOL P2) */
void dl_json_bool(dl_json *j, const char *key, bool value);
void dl_json_null(dl_json *j, const char *key);
/* All containers closed and nothing failed? Else the first error. */
DL_MUST_CHECK diloco_status dl_json_done(dl_json *j);

/* ---- reading: a value is a place in the text. dl_json_parse checks the whole
 * text once: grammar, depth, UTF-8, nothing after the value, at most DL_JSON_MEMBERS in one object
 * and no key twice. After that the others cannot run off it. Looking a key up scans its object:
 * meant for small objects. */
typedef enum dl_json_type {
    DL_JSON_MISSING,
    DL_JSON_NULL,
    DL_JSON_BOOL,
    DL_JSON_NUMBER,
    DL_JSON_STRING,
    DL_JSON_ARRAY,
    DL_JSON_OBJECT
} dl_json_type;

typedef struct dl_json_value {
    const char *at; /* borrowed from the text; first byte of the value */
    const char *end;
    dl_json_type type;
    const struct dl_json_index *index; /* NULL, or an object's members */
} dl_json_value;

/* DILOCO_EPROTO, with line and column (in bytes, both from 1). */
DL_MUST_CHECK diloco_status dl_json_parse(dl_json_value *out, const void *text, size_t len);

dl_json_value dl_json_get(dl_json_value object, const char *key); /* MISSING when absent */
/* The members of an object that is asked for most of its keys: one walk for all of them. Returns
 * the object with the index, which has to outlive it. An object of more members than fit is
 * walked for each key, as without an index. */
enum { DL_JSON_INDEX_MAX = 48 };
typedef struct dl_json_index {
    dl_json_value key[DL_JSON_INDEX_MAX], value[DL_JSON_INDEX_MAX];
    size_t n;
} dl_json_index;
dl_json_value dl_json_indexed(dl_json_index *index, dl_json_value object);
/* Is it a string of these characters? (An iterator's key, say.) */
bool dl_json_is(dl_json_value string, const char *text);

/* Walk: `dl_json_iter it = dl_json_each(v); while (dl_json_next(&it)) use(it.key, it.value)`. */
typedef struct dl_json_iter {
    dl_json_value key, value; /* key: a STRING in an object, MISSING in an array */
    const char *next, *end;
    size_t index; /* of `value`, from 0 */
    bool object, started;
} dl_json_iter;
dl_json_iter dl_json_each(dl_json_value container); /* of anything else: nothing to walk */
bool dl_json_next(dl_json_iter *it);
size_t dl_json_count(dl_json_value container);

/* Typed reading of a member of an object; DILOCO_EPROTO names the key when it is absent, of
 * another type or out of range. So it does for a string that does not fit with its zero byte. */
DL_MUST_CHECK diloco_status dl_json_read_i64(int64_t *out, dl_json_value object, const char *key,
                                             int64_t min, int64_t max);
DL_MUST_CHECK diloco_status dl_json_read_u64(uint64_t *out, dl_json_value object, const char *key,
                                             uint64_t max);
DL_MUST_CHECK diloco_status dl_json_read_f64(double *out, dl_json_value object, const char *key);
DL_MUST_CHECK diloco_status dl_json_read_f32_bits(float *out, dl_json_value object,
                                                  const char *key);
DL_MUST_CHECK diloco_status dl_json_read_bool(bool *out, dl_json_value object, const char *key);
DL_MUST_CHECK diloco_status dl_json_read_str(char *out, size_t cap, dl_json_value object,
                                             const char *key);

/* The same for a value without a key (an array's element). */
DL_MUST_CHECK diloco_status dl_json_as_str(char *out, size_t cap, dl_json_value value);
DL_MUST_CHECK diloco_status dl_json_as_u64(uint64_t *out, dl_json_value value, uint64_t max);
DL_MUST_CHECK diloco_status dl_json_as_f64(double *out, dl_json_value value);

#endif
