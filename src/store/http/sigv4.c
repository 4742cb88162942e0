/* sigv4.c - canonical request, string to sign, key, signature: the four steps of the
 * specification, in that order.
 *
 *     canonical   method \n path \n query \n each header "name:value" \n \n names \n payload
 *     to sign     AWS4-HMAC-SHA256 \n date \n scope \n hex(SHA-256(canonical))
 *     key         HMAC(HMAC(HMAC(HMAC("AWS4" secret, day), region), service), "aws4_request")
 *     signature   hex(HMAC(key, to sign))
 *
 * with scope = day/region/service/aws4_request. */
#include "store/http/sigv4.h"

#include "store/http/web.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { SHA = 32, DAY = 8, TEXT_MAX = 64 << 10 };

/* Writes the time as the signature wants it, in UTC: 20260131T120000Z. */
void dl_sigv4_date(char out[DL_SIGV4_DATE], int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, DL_SIGV4_DATE, "%Y%m%dT%H%M%SZ", &tm);
}

/* ---- hashes */

static diloco_status no_hash(void)
{
    return dl_fail(DILOCO_ENOMEM, "OpenSSL could not compute a SHA-256");
}

static void to_hex(char *out, const unsigned char hash[SHA])
{
    for (size_t i = 0; i < SHA; i++)
        sprintf(out + 2 * i, "%02x", hash[i]);
}

static diloco_status hash_spans(unsigned char *out, const EVP_MD *kind, const dl_span *spans,
                                size_t n)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md && EVP_DigestInit_ex(md, kind, NULL);
    for (size_t i = 0; i < n && ok; i++)
        ok = EVP_DigestUpdate(md, spans[i].data, spans[i].len);
    ok = ok && EVP_DigestFinal_ex(md, out, NULL);
    EVP_MD_CTX_free(md);
    return ok ? DILOCO_OK : no_hash();
}

diloco_status dl_sha256_hex(char out[DL_SHA256_HEX], const dl_span *spans, size_t n)
{
    unsigned char hash[SHA];
    DL_TRY(hash_spans(hash, EVP_sha256(), spans, n));
    to_hex(out, hash);
    return DILOCO_OK;
}

diloco_status dl_md5(unsigned char out[DL_MD5], const dl_span *spans, size_t n)
{
    return hash_spans(out, EVP_md5(), spans, n);
}

diloco_status dl_hmac_sha256(unsigned char out[SHA], const void *key, size_t key_len,
                             const void *data, size_t len)
{
    return HMAC(EVP_sha256(), key, (int)key_len, data, len, out, NULL) ? DILOCO_OK : no_hash();
}

static diloco_status hmac_text(unsigned char out[SHA], const unsigned char key[SHA],
                               const char *text)
{
    return dl_hmac_sha256(out, key, SHA, text, strlen(text));
}

/* ---- queries */

/* Sorted by escaped name, then by escaped value. */
static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "name=value", escaped. A byte below all that escaping leaves stands for the '=' until the
 * pairs are sorted: so "a=1" comes before "a-b=1" as "a" does before "a-b". */
static diloco_status escape_pair(char **out, const dl_pair *pair)
{
    dl_buf text;
    dl_buf_init(&text, DL_WEB_URL);
    diloco_status status = dl_web_escape(&text, pair->name, false);
    if (!status) status = dl_buf_add(&text, "\x01", 1);
    if (!status) status = dl_web_escape(&text, pair->value, false);
    const char *str = status ? NULL : dl_buf_str(&text);
    *out = str ? strdup(str) : NULL;
    dl_buf_deinit(&text);
    return status || *out ? status : dl_fail(DILOCO_ENOMEM, "out of memory for a query");
}

/* The service sorts by the escaped text, so escaping comes first. */
diloco_status dl_sigv4_query(dl_buf *out, const dl_pair *query, size_t n)
{
    char *pairs[DL_SIGV4_PAIRS] = {NULL};
    diloco_status status = DILOCO_OK;
    DL_ASSERT(n <= DL_SIGV4_PAIRS);
    for (size_t i = 0; i < n && !status; i++)
        status = escape_pair(&pairs[i], &query[i]);
    if (!status) qsort(pairs, n, sizeof *pairs, compare_texts);
    for (size_t i = 0; i < n && !status; i++) {
        *strchr(pairs[i], '\x01') = '=';
        status = dl_buf_addf(out, "%s%s", i ? "&" : "", pairs[i]);
    }
    for (size_t i = 0; i < n; i++)
        free(pairs[i]);
    return status;
}

/* ---- headers */

static int by_name(const void *a, const void *b)
{
    return strcasecmp(((const dl_pair *)a)->name, ((const dl_pair *)b)->name);
}

/* Only ASCII is changed, so the locale does not matter. */
static diloco_status add_lower(dl_buf *out, const char *text)
{
    for (; *text; text++) {
        char c = (char)tolower((unsigned char)*text);
        DL_TRY(dl_buf_add(out, &c, 1));
    }
    return DILOCO_OK;
}

/* Without blanks around it, and one for several inside. */
static diloco_status add_trimmed(dl_buf *out, const char *text)
{
    bool blank = false, begun = false;
    for (; *text; text++) {
        bool is_blank = *text == ' ' || *text == '\t';
        if (!is_blank) {
            if (blank && begun) DL_TRY(dl_buf_add(out, " ", 1));
            DL_TRY(dl_buf_add(out, text, 1));
            begun = true;
        }
        blank = is_blank;
    }
    return DILOCO_OK;
}

static diloco_status signed_names(dl_buf *out, const dl_pair *sorted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) DL_TRY(dl_buf_add(out, ";", 1));
        DL_TRY(add_lower(out, sorted[i].name));
    }
    return DILOCO_OK;
}

/* ---- the four steps */

/* Headers are sorted by lower-case name, and the body's hash is the last line. */
static diloco_status canonical(dl_buf *out, const dl_sigv4_request *r, const dl_pair *sorted)
{
    DL_TRY(dl_buf_addf(out, "%s\n%s\n", r->method, r->path));
    DL_TRY(dl_sigv4_query(out, r->query, r->n_query));
    DL_TRY(dl_buf_add(out, "\n", 1));
    for (size_t i = 0; i < r->n_headers; i++) {
        DL_TRY(add_lower(out, sorted[i].name));
        DL_TRY(dl_buf_add(out, ":", 1));
        DL_TRY(add_trimmed(out, sorted[i].value));
        DL_TRY(dl_buf_add(out, "\n", 1));
    }
    DL_TRY(dl_buf_add(out, "\n", 1));
    DL_TRY(signed_names(out, sorted, r->n_headers));
    return dl_buf_addf(out, "\n%s", r->payload);
}

/* "aws4_request" */
static void ending(char out[24], const dl_sigv4_scope *scope)
{
    snprintf(out, 24, "%.8s_request", scope->vendor);
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

/* The key is valid for one day, region and service. The buffer with the secret is cleared. */
static diloco_status derive(unsigned char key[SHA], const dl_sigv4_scope *scope, const char *date)
{
    dl_buf first;
    char day[DAY + 1], end[24];
    snprintf(day, sizeof day, "%.8s", date);
    ending(end, scope);
    dl_buf_init(&first, TEXT_MAX);
    diloco_status status = dl_buf_addf(&first, "%s%s", scope->vendor, scope->secret);
    if (!status) status = dl_hmac_sha256(key, first.data, first.len, day, DAY);
    if (!status) status = hmac_text(key, key, scope->region);
    if (!status) status = hmac_text(key, key, scope->service);
    if (!status) status = hmac_text(key, key, end);
    OPENSSL_cleanse(first.data, first.len);
    dl_buf_deinit(&first);
    return status;
}

/* `text` is used twice: for the canonical request, then for the string to sign. */
static diloco_status sign(char signature[DL_SHA256_HEX], dl_buf *text, const dl_sigv4_scope *scope,
                          const dl_sigv4_request *r, const dl_pair *sorted)
{
    char hash[DL_SHA256_HEX], end[24];
    unsigned char key[SHA];
    ending(end, scope);
    DL_TRY(canonical(text, r, sorted));
    DL_TRY(dl_sha256_hex(hash, &(dl_span){text->data, text->len}, 1));
    dl_buf_clear(text);
    DL_TRY(dl_buf_addf(text, "%s-HMAC-SHA256\n%s\n%.8s/%s/%s/%s\n%s", scope->vendor, r->date,
                       r->date, scope->region, scope->service, end, hash));
    DL_TRY(derive(key, scope, r->date));
    diloco_status status = dl_hmac_sha256(key, key, SHA, text->data, text->len);
    if (!status) to_hex(signature, key);
    OPENSSL_cleanse(key, sizeof key);
    return status;
}

/* Appends the whole value of the Authorization header. `r` is not changed; the headers are sorted
 * in a copy. */
diloco_status dl_sigv4_sign(dl_buf *out, const dl_sigv4_scope *scope, const dl_sigv4_request *r)
{
    dl_pair sorted[DL_SIGV4_PAIRS];
    char signature[DL_SHA256_HEX], end[24];
    dl_buf text;
    DL_ASSERT(r->n_headers <= DL_SIGV4_PAIRS);
    memcpy(sorted, r->headers, r->n_headers * sizeof *sorted);
    qsort(sorted, r->n_headers, sizeof *sorted, by_name);
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = sign(signature, &text, scope, r, sorted);
    dl_buf_deinit(&text);
    if (status) return status;
    ending(end, scope);
    DL_TRY(dl_buf_addf(out, "%s-HMAC-SHA256 Credential=%s/%.8s/%s/%s/%s,SignedHeaders=",
                       scope->vendor, scope->access, r->date, scope->region, scope->service, end));
    DL_TRY(signed_names(out, sorted, r->n_headers));
    return dl_buf_addf(out, ",Signature=%s", signature);
}
