/* s3_claim.c - see s3_claim.h. Only the form is checked; s3_sign.c checks the signature itself.
 * Each text is copied into a buffer of fixed size and refused if it is longer. */
#include "hub/s3_claim.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* A week, S3's own limit for a presigned URL. */
enum { EXPIRES_MAX_S = 7 * 86400 };

static const char algorithm[] = "AWS4-HMAC-SHA256";

/* The value of "<name>=" in a header's list; up to the next comma. */
static bool part_of(char *out, size_t cap, const char *header, const char *name)
{
    const char *at = strstr(header, name);
    if (!at) return false;
    at += strlen(name);
    size_t len = strcspn(at, ", ");
    if (len >= cap) return false;
    memcpy(out, at, len);
    out[len] = '\0';
    return true;
}

static bool copy(char *out, size_t cap, const char *text)
{
    if (!text || strlen(text) >= cap) return false;
    strcpy(out, text);
    return true;
}

/* Cut "<access>/<day>/<region>/s3/aws4_request" in place. Any other number of parts is refused.
 * An access key has no '/' in it (auth.h). */
static bool cut_scope(dl_hub_s3_claim *c)
{
    const char *parts[5];
    size_t n = 0;
    for (char *at = c->scope; at && n < 5; n++) {
        parts[n] = at;
        at = strchr(at, '/');
        if (at) *at++ = '\0';
        if (n == 4 && at) return false;
    }
    if (n != 5 || strcmp(parts[4], "aws4_request") != 0) return false;
    c->access = parts[0], c->day = parts[1], c->region = parts[2], c->service = parts[3];
    return strcmp(c->service, "s3") == 0;
}

/* Cut the list of signed headers at ';'. The Host header has to be among them, or a signature
 * would hold at another server. */
static bool cut_names(dl_hub_s3_claim *c)
{
    c->n_headers = 0;
    for (char *at = c->names; at;) {
        if (c->n_headers == DL_SIGV4_PAIRS) return false;
        c->headers[c->n_headers++] = at;
        at = strchr(at, ';');
        if (at) *at++ = '\0';
    }
    return dl_hub_s3_claim_signs(c, "host");
}

bool dl_hub_s3_claim_signs(const dl_hub_s3_claim *c, const char *header)
{
    for (size_t i = 0; i < c->n_headers; i++)
        if (strcasecmp(c->headers[i], header) == 0) return true;
    return false;
}

/* Fields may come in any order. Each is looked for by its name, and a missing one makes the
 * claim invalid. */
bool dl_hub_s3_claim_header(dl_hub_s3_claim *c, const char *authorization)
{
    size_t len = sizeof algorithm - 1;
    if (strncmp(authorization, algorithm, len) != 0 || authorization[len] != ' ') return false;
    c->expires = -1;
    c->date = NULL;
    return part_of(c->scope, sizeof c->scope, authorization, "Credential=") &&
           part_of(c->names, sizeof c->names, authorization, "SignedHeaders=") &&
           part_of(c->signature, sizeof c->signature, authorization, "Signature=") &&
           cut_scope(c) && cut_names(c);
}

/* The expiry is bounded, so no URL is valid for ever. */
bool dl_hub_s3_claim_query(dl_hub_s3_claim *c, const dl_target *t)
{
    const char *expires = dl_target_param(t, "X-Amz-Expires");
    const char *which = dl_target_param(t, "X-Amz-Algorithm");
    uint64_t seconds;
    if (!which || strcmp(which, algorithm) != 0 || !expires ||
        !dl_text_to_u64(&seconds, expires, strlen(expires)) || seconds > EXPIRES_MAX_S)
        return false;
    c->expires = (int64_t)seconds;
    c->date = dl_target_param(t, "X-Amz-Date");
    return c->date && copy(c->scope, sizeof c->scope, dl_target_param(t, "X-Amz-Credential")) &&
           copy(c->names, sizeof c->names, dl_target_param(t, "X-Amz-SignedHeaders")) &&
           copy(c->signature, sizeof c->signature, dl_target_param(t, "X-Amz-Signature")) &&
           cut_scope(c) && cut_names(c);
}

/* The form is checked by character before sscanf, which would skip spaces and accept signs. */
int64_t dl_hub_s3_seconds(const char *date)
{
    struct tm tm = {0};
    if (!date || strlen(date) != 16 || strspn(date, "0123456789TZ") != 16 || date[8] != 'T' ||
        date[15] != 'Z' ||
        sscanf(date, "%4d%2d%2dT%2d%2d%2dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) != 6)
        return -1;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return timegm(&tm);
}
