/* target.c - decoding in place: the output is never longer than the input. */
#include "hub/target.h"

#include "base/text.h"

#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decode percent-encoding in place. Returns false for '%' without two hex digits and for control
 * characters, a zero byte included. A query may hold any text, and '+' for a space there; a path
 * is ASCII. */
static bool decode(char *text, bool query)
{
    char *out = text;
    for (const char *at = text; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '%') {
            /* hex() of the byte after the end is -1, so a '%' at the end never reads past it. */
            int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
            if (low < 0) return false;
            c = (unsigned char)(high << 4 | low);
            at += 2;
        } else if (query && c == '+') {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f || (c > 0x7f && !query)) return false;
        *out++ = (char)c;
    }
    *out = '\0';
    return true;
}

/* The parameter is cut before it is decoded, so an encoded '=' or '&' is part of the value. */
static bool decode_param(dl_param *param, char *text)
{
    char *value = strchr(text, '=');
    if (value) *value++ = '\0';
    param->name = text;
    param->value = value ? value : "";
    return decode(text, true) && (!value || decode(value, true));
}

/* Copy the target, cut it at '?' and '&', and decode each piece once. Decoding twice would let
 * "%252f" become a '/'. */
diloco_status dl_target_parse(dl_target *out, const char *raw)
{
    size_t len = strnlen(raw, DL_TARGET_MAX + 1);
    out->n_params = 0;
    out->path = "/";
    if (len > DL_TARGET_MAX)
        return dl_fail(DILOCO_EPROTO, "the target is longer than %d bytes", DL_TARGET_MAX);
    memcpy(out->text, raw, len + 1);
    char *query = strchr(out->text, '?');
    if (query) *query++ = '\0';
    if (out->text[0] != '/' || !decode(out->text, false))
        return dl_fail(DILOCO_EPROTO, "the target is not a path that begins with '/'");
    for (char *next = NULL; query && *query; query = next) {
        next = strchr(query, '&');
        if (next) *next++ = '\0';
        if (out->n_params == DL_TARGET_PARAMS || !decode_param(&out->params[out->n_params], query))
            return dl_fail(DILOCO_EPROTO, "the query has too many parameters, or one that is not "
                                          "percent-encoded");
        out->n_params++;
    }
    out->path = out->text;
    return DILOCO_OK;
}

const char *dl_target_param(const dl_target *target, const char *name)
{
    for (size_t i = 0; i < target->n_params; i++)
        if (strcmp(target->params[i].name, name) == 0) return target->params[i].value;
    return NULL;
}

bool dl_target_has(const dl_target *target, const char *name)
{
    return dl_target_param(target, name) != NULL;
}

/* Integers are parsed strictly, so no sign, space or overflow passes. A range that goes past the
 * end is cut to the object's length. */
dl_range dl_range_parse(uint64_t *begin, uint64_t *n, const char *header, uint64_t len)
{
    static const char unit[] = "bytes=";
    uint64_t first = 0, last = 0;
    *begin = 0;
    *n = len;
    if (!header || strncmp(header, unit, sizeof unit - 1) != 0) return DL_RANGE_NONE;
    const char *from = header + sizeof unit - 1, *dash = strchr(from, '-');
    if (!dash) return DL_RANGE_NONE;
    bool has_first = dl_text_to_u64(&first, from, (size_t)(dash - from));
    bool has_last = dl_text_to_u64(&last, dash + 1, strlen(dash + 1));
    if ((!has_first && dash != from) || (!has_last && dash[1])) return DL_RANGE_NONE;
    if (!has_first && !has_last) return DL_RANGE_NONE;
    if (!has_first) { /* the last N bytes */
        *n = last < len ? last : len;
        *begin = len - *n;
        return *n ? DL_RANGE_PART : DL_RANGE_BEYOND;
    }
    if (has_last && last < first) return DL_RANGE_NONE;
    if (first >= len) return DL_RANGE_BEYOND;
    if (!has_last || last >= len) last = len - 1;
    *begin = first;
    *n = last - first + 1;
    return DL_RANGE_PART;
}
