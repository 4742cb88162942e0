/* fields.c - the seal is written compactly by json.c, so it is always the same 45 bytes at
 * the end, and finding it needs no parsing. */
#include "log/fields.h"

#include <math.h>
#include <string.h>

static const char seal_head[] = ",\"check\":\"", seal_tail[] = "\"}\n";
enum { SEAL_HEAD = sizeof seal_head - 1, SEAL_TAIL = sizeof seal_tail - 1 };
_Static_assert(DL_SEAL == SEAL_HEAD + DL_HASH_HEX + SEAL_TAIL, "the seal's length");

void dl_sealed_begin(dl_json *j, size_t *start, dl_buf *out, const char *format)
{
    *start = out->len;
    dl_json_init(j, out);
    dl_json_object(j, NULL);
    dl_json_str(j, "format", format);
    dl_json_i64(j, "version", DL_FORMAT_VERSION);
}

/* The hash is of the text so far, which lacks the closing brace. */
diloco_status dl_sealed_end(dl_json *j, size_t start)
{
    dl_buf *out = j->buf;
    if (!j->status) dl_json_hash(j, "check", dl_hash_bytes(out->data + start, out->len - start));
    dl_json_end(j);
    diloco_status status = dl_json_done(j);
    if (!status) status = dl_buf_add(out, "\n", 1);
    if (status) out->len = start;
    return status;
}

/* Looks at the last 45 bytes only. A truncated or changed text fails here, before it is parsed. */
static bool seal_fits(const char *text, size_t len)
{
    if (len < DL_SEAL) return false;
    const char *seal = text + len - DL_SEAL;
    dl_hash hash;
    return memcmp(seal, seal_head, SEAL_HEAD) == 0 &&
           memcmp(text + len - SEAL_TAIL, seal_tail, SEAL_TAIL) == 0 &&
           dl_hash_from_hex(&hash, seal + SEAL_HEAD, DL_HASH_HEX) &&
           dl_hash_equal(hash, dl_hash_bytes(text, len - DL_SEAL));
}

/* The version is read last, so an intact object of a later program is reported as such and not as
 * damage. */
diloco_status dl_sealed_open(dl_json_value *out, const void *text, size_t len, const char *format)
{
    char found[32];
    uint64_t version;
    if (!seal_fits(text, len))
        return dl_fail(DILOCO_EPROTO, "%zu bytes are not a whole, undamaged %s", len, format);
    DL_TRY(dl_json_parse(out, text, len));
    DL_TRY(dl_json_read_str(found, sizeof found, *out, "format"));
    if (strcmp(found, format) != 0)
        return dl_fail(DILOCO_EPROTO, "found a %s where a %s was expected", found, format);
    DL_TRY(dl_json_read_u64(&version, *out, "version", UINT32_MAX));
    if (version != DL_FORMAT_VERSION)
        return dl_fail(DILOCO_EDIFFERS,
                       "this %s has format version %u, this program (%s) reads version %d: use the "
                       "program that the run was begun with",
                       format, (unsigned)version, DILOCO_VERSION, DL_FORMAT_VERSION);
    return DILOCO_OK;
}

/* ---- members */

void dl_json_hash(dl_json *j, const char *key, dl_hash hash)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, hash);
    dl_json_strn(j, key, hex, DL_HASH_HEX);
}

void dl_json_generation(dl_json *j, const char *key, const dl_generation *generation)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    dl_json_str(j, key, text);
}

diloco_status dl_json_read_hash(dl_hash *out, dl_json_value object, const char *key)
{
    char hex[DL_HASH_HEX + 1];
    DL_TRY(dl_json_read_str(hex, sizeof hex, object, key));
    if (dl_hash_from_hex(out, hex, strlen(hex))) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"%s\" is not %d hex digits", key, DL_HASH_HEX);
}

diloco_status dl_json_read_generation(dl_generation *out, dl_json_value object, const char *key)
{
    char text[DL_GENERATION_TEXT];
    DL_TRY(dl_json_read_str(text, sizeof text, object, key));
    if (dl_generation_parse(out, text, strlen(text))) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"%s\" is not a replica with its generation", key);
}

/* The id becomes part of names and paths, so nothing but hex digits is accepted. */
bool dl_run_id_ok(const char *id)
{
    return strnlen(id, DL_HASH_HEX + 1) == DL_HASH_HEX &&
           strspn(id, "0123456789abcdef") == DL_HASH_HEX;
}

diloco_status dl_json_read_run(char out[DL_HASH_HEX + 1], dl_json_value object)
{
    DL_TRY(dl_json_read_str(out, DL_HASH_HEX + 1, object, "run"));
    if (dl_run_id_ok(out)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"run\" is not %d hex digits", DL_HASH_HEX);
}

diloco_status dl_json_read_f64_or_nan(double *out, dl_json_value object, const char *key)
{
    if (dl_json_get(object, key).type != DL_JSON_NULL) return dl_json_read_f64(out, object, key);
    *out = NAN;
    return DILOCO_OK;
}

diloco_status dl_json_read_finite_bits(float *out, dl_json_value object, const char *key)
{
    DL_TRY(dl_json_read_f32_bits(out, object, key));
    if (isfinite(*out)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"%s\" is not finite", key);
}

diloco_status dl_json_read_u32(uint32_t *out, dl_json_value object, const char *key, uint32_t max)
{
    uint64_t value;
    DL_TRY(dl_json_read_u64(&value, object, key, max));
    *out = (uint32_t)value;
    return DILOCO_OK;
}
