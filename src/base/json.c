/* json.c - the writer, and the typed reading of values. The grammar is json_parse.c. */
#include "base/json_parse.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- writing
 *
 * Every value passes through `begin`, which puts the comma and the key. After the first
 * error nothing is written. */

void dl_json_init(dl_json *j, dl_buf *buf)
{
    *j = (dl_json){.buf = buf};
}

static void add(dl_json *j, const char *text, size_t len)
{
    if (!j->status) j->status = dl_buf_add(j->buf, text, len);
}

/* One character of a string: as it is, or escaped. */
static void add_char(dl_json *j, const char *c, size_t len)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = memchr(escaped, *c, sizeof escaped - 1);
    if (found) {
        char pair[2] = {'\\', letters[found - escaped]};
        add(j, pair, 2);
    } else if ((unsigned char)*c < 0x20) {
        if (!j->status) j->status = dl_buf_addf(j->buf, "\\u%04x", (unsigned)*c);
    } else {
        add(j, c, len);
    }
}

/* Text that is not UTF-8 is an error, so a writer never makes a text that a reader would refuse. */
static void add_string(dl_json *j, const char *s, size_t len)
{
    uint32_t code;
    add(j, "\"", 1);
    for (size_t at = 0, n; at < len && !j->status; at += n) {
        n = dl_utf8_char(&code, s + at, len - at);
        if (n == 0) {
            j->status = dl_fail(DILOCO_EINVAL, "text for JSON is not UTF-8 at byte %zu", at);
            return;
        }
        add_char(j, s + at, n);
    }
    add(j, "\"", 1);
}

/* The two bit fields have a bit for each depth: whether a comma is due, and whether the level is an
 * array. A key where none belongs is a bug. */
static void begin(dl_json *j, const char *key)
{
    uint64_t bit = (uint64_t)1 << j->depth;
    bool in_object = j->depth > 0 && !(j->array & bit);
    DL_ASSERT(in_object == (key != NULL));
    DL_ASSERT(j->depth > 0 || !j->not_first); /* one outermost value */
    if (j->not_first & bit) add(j, ",", 1);
    j->not_first |= bit;
    if (key) {
        add_string(j, key, strlen(key));
        add(j, ":", 1);
    }
}

/* Depth is limited, so the bit fields suffice. Exceeding it is a bug of the writer, since no
 * outside data decides its depth. */
static void open_container(dl_json *j, const char *key, bool array)
{
    DL_ASSERT(j->depth < DL_JSON_DEPTH);
    begin(j, key);
    add(j, array ? "[" : "{", 1);
    uint64_t bit = (uint64_t)1 << ++j->depth;
    j->not_first &= ~bit;
    j->array = array ? j->array | bit : j->array & ~bit;
}

void dl_json_object(dl_json *j, const char *key)
{
    open_container(j, key, false);
}

void dl_json_array(dl_json *j, const char *key)
{
    open_container(j, key, true);
}

/* The innermost container is closed, whichever kind it is. */
void dl_json_end(dl_json *j)
{
    DL_ASSERT(j->depth > 0);
    add(j, j->array >> j->depth & 1 ? "]" : "}", 1);
    j->depth--;
}

void dl_json_str(dl_json *j, const char *key, const char *value)
{
    if (value)
        dl_json_strn(j, key, value, strlen(value));
    else
        dl_json_null(j, key);
}

void dl_json_strn(dl_json *j, const char *key, const char *value, size_t len)
{
    begin(j, key);
    add_string(j, value, len);
}

void dl_json_i64(dl_json *j, const char *key, int64_t value)
{
    begin(j, key);
    if (!j->status) j->status = dl_buf_addf(j->buf, "%" PRId64, value);
}

void dl_json_u64(dl_json *j, const char *key, uint64_t value)
{
    begin(j, key);
    if (!j->status) j->status = dl_buf_addf(j->buf, "%" PRIu64, value);
}

/* JSON has no NaN and no infinity, so both become null. */
void dl_json_f64(dl_json *j, const char *key, double value)
{
    char text[32] = "null";
    if (isfinite(value)) dl_text_from_f64(text, value);
    begin(j, key);
    add(j, text, strlen(text));
}

/* The bit pattern as hex is exact, and no reader has to parse a decimal (P2.1). */
void dl_json_f32_bits(dl_json *j, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    begin(j, key);
    if (!j->status) j->status = dl_buf_addf(j->buf, "\"%08" PRIx32 "\"", bits);
}

void dl_json_bool(dl_json *j, const char *key, bool value)
{
    const char *text = value ? "true" : "false";
    begin(j, key);
    add(j, text, strlen(text));
}

void dl_json_null(dl_json *j, const char *key)
{
    begin(j, key);
    add(j, "null", 4);
}

diloco_status dl_json_done(dl_json *j)
{
    DL_ASSERT(j->status || (j->depth == 0 && j->not_first));
    return j->status;
}

/* ---- typed reading
 *
 * dl_json_read_x looks the member up and is dl_json_as_x with the key for its errors. */

static const char *type_name(dl_json_type type)
{
    static const char *const names[] = {
        [DL_JSON_MISSING] = "missing",    [DL_JSON_NULL] = "null",
        [DL_JSON_BOOL] = "a truth value", [DL_JSON_NUMBER] = "a number",
        [DL_JSON_STRING] = "a string",    [DL_JSON_ARRAY] = "an array",
        [DL_JSON_OBJECT] = "an object",
    };
    return names[type];
}

/* The error names the key and both types, for people who write such a file by hand. */
static diloco_status check_type(dl_json_value value, dl_json_type type, const char *key)
{
    if (value.type == type) return DILOCO_OK;
    if (value.type == DL_JSON_MISSING) return dl_fail(DILOCO_EPROTO, "\"%s\" is missing", key);
    return dl_fail(DILOCO_EPROTO, "\"%s\" is %s, not %s", key, type_name(value.type),
                   type_name(type));
}

/* The number's own text, at most 40 bytes of it, for "%.*s". */
#define NUMBER_TEXT(value) (int)dl_size_min((size_t)((value).end - (value).at), 40), (value).at

/* Numbers are text until here, so 64-bit integers keep every digit. "1.0" and "1e3" are no whole
 * numbers. */
static diloco_status as_u64(uint64_t *out, dl_json_value value, uint64_t max, const char *key)
{
    uint64_t got;
    DL_TRY(check_type(value, DL_JSON_NUMBER, key));
    if (!dl_text_to_u64(&got, value.at, (size_t)(value.end - value.at)) || got > max)
        return dl_fail(DILOCO_EPROTO, "\"%s\" is %.*s, not a whole number from 0 to %" PRIu64, key,
                       NUMBER_TEXT(value), max);
    *out = got;
    return DILOCO_OK;
}

/* A number beyond a double's range is refused, so no infinity enters this way. */
static diloco_status as_f64(double *out, dl_json_value value, const char *key)
{
    DL_TRY(check_type(value, DL_JSON_NUMBER, key));
    if (!dl_text_to_f64(out, value.at, (size_t)(value.end - value.at)))
        return dl_fail(DILOCO_EPROTO, "\"%s\" is %.*s, which is too large or too long", key,
                       NUMBER_TEXT(value));
    return DILOCO_OK;
}

/* Decodes twice: first only the length, so nothing is written if it does not fit. A zero byte would
 * end the C string early, so it is refused. */
static diloco_status as_str(char *out, size_t cap, dl_json_value value, const char *key)
{
    DL_TRY(check_type(value, DL_JSON_STRING, key));
    size_t len = 0, n;
    const char *at = value.at + 1;
    uint32_t code;
    for (; dl_json_char(&code, &at); len += n) { /* first only measured: out may stay as it is */
        char utf8[4];
        n = dl_utf8_put(utf8, code);
        if (code == 0) return dl_fail(DILOCO_EPROTO, "\"%s\" has a zero byte", key);
    }
    if (len >= cap)
        return dl_fail(DILOCO_EPROTO, "\"%s\" has %zu bytes; at most %zu may be", key, len,
                       cap ? cap - 1 : 0);
    for (at = value.at + 1, len = 0; dl_json_char(&code, &at);) {
        char utf8[4];
        n = dl_utf8_put(utf8, code);
        memcpy(out + len, utf8, n);
        len += n;
    }
    out[len] = 0;
    return DILOCO_OK;
}

diloco_status dl_json_read_i64(int64_t *out, dl_json_value object, const char *key, int64_t min,
                               int64_t max)
{
    dl_json_value value = dl_json_get(object, key);
    int64_t got;
    DL_TRY(check_type(value, DL_JSON_NUMBER, key));
    if (!dl_text_to_i64(&got, value.at, (size_t)(value.end - value.at)) || got < min || got > max)
        return dl_fail(DILOCO_EPROTO,
                       "\"%s\" is %.*s, not a whole number from %" PRId64 " to %" PRId64, key,
                       NUMBER_TEXT(value), min, max);
    *out = got;
    return DILOCO_OK;
}

diloco_status dl_json_read_u64(uint64_t *out, dl_json_value object, const char *key, uint64_t max)
{
    return as_u64(out, dl_json_get(object, key), max, key);
}

diloco_status dl_json_read_f64(double *out, dl_json_value object, const char *key)
{
    return as_f64(out, dl_json_get(object, key), key);
}

/* Exactly 8 lower-case hex digits: each value has one text. */
diloco_status dl_json_read_f32_bits(float *out, dl_json_value object, const char *key)
{
    dl_json_value value = dl_json_get(object, key);
    DL_TRY(check_type(value, DL_JSON_STRING, key));
    uint32_t bits = 0;
    bool fits = value.end - value.at == 10; /* with its quotes */
    for (const char *c = value.at + 1; fits && c < value.end - 1; c++) {
        fits = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'f');
        bits = bits << 4 | (uint32_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
    }
    if (!fits) return dl_fail(DILOCO_EPROTO, "\"%s\" is not 8 hex digits of a float32", key);
    memcpy(out, &bits, sizeof *out);
    return DILOCO_OK;
}

diloco_status dl_json_read_bool(bool *out, dl_json_value object, const char *key)
{
    dl_json_value value = dl_json_get(object, key);
    DL_TRY(check_type(value, DL_JSON_BOOL, key));
    *out = *value.at == 't';
    return DILOCO_OK;
}

diloco_status dl_json_read_str(char *out, size_t cap, dl_json_value object, const char *key)
{
    return as_str(out, cap, dl_json_get(object, key), key);
}

diloco_status dl_json_as_str(char *out, size_t cap, dl_json_value value)
{
    return as_str(out, cap, value, "an element");
}

diloco_status dl_json_as_u64(uint64_t *out, dl_json_value value, uint64_t max)
{
    return as_u64(out, value, max, "an element");
}

diloco_status dl_json_as_f64(double *out, dl_json_value value)
{
    return as_f64(out, value, "an element");
}
