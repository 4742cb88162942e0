/* az.c - "az://container/prefix": Azure Blob Storage, by its REST API.
 *
 * "Authorize with Shared Key" of the Blob service's reference: the string to sign is
 *
 *     method, eleven headers of HTTP (each may be empty), \n between them; then each x-ms- header
 *     "name:value\n", sorted; then /account/path, and "\nname:value" for each part of the query
 *
 * signed with HMAC-SHA-256 under the account's key. With a SAS token the query says it all, with
 * a managed identity a bearer token does. Big objects are blocks, committed by a list; the service
 * removes blocks that are not committed within a week. */
#include "store/http/bucket.h"
#include "store/http/credentials.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define API_VERSION "2021-12-02"

enum { BLOCKS_MAX = 50000, KEY_BYTES = 128, SETTING = 512, SAS_MAX = 2048 };

/* An Azure store. Exactly one of key, sas and identity is used. */
typedef struct az_store {
    dl_bucket b;
    char account[128], base[SETTING]; /* base: "https://host[:port][/path]" */
    unsigned char key[KEY_BYTES];     /* of the account; key_len 0: none */
    size_t key_len;
    char sas[SAS_MAX]; /* "sv=…&sig=…"; "" */
    dl_credentials identity;
} az_store;

/* ---- our identity */

/* The value of "Name=value;" in a connection string. */
static bool part_of(char *out, size_t cap, const char *text, const char *name)
{
    size_t len = strlen(name);
    for (; text && *text; text += strcspn(text, ";") + (text[strcspn(text, ";")] == ';'))
        if (!strncasecmp(text, name, len) && text[len] == '=') {
            size_t n = strcspn(text + len + 1, ";");
            return n > 0 && n < cap && snprintf(out, cap, "%.*s", (int)n, text + len + 1) > 0;
        }
    *out = '\0';
    return false;
}

/* The first that is set: the variable, the part of the connection string. */
static bool setting(char *out, size_t cap, const char *variable, const char *part)
{
    const char *value = getenv(variable);
    if (value && *value && strlen(value) < cap) {
        strcpy(out, value);
        return true;
    }
    return part_of(out, cap, getenv("AZURE_STORAGE_CONNECTION_STRING"), part);
}

/* Returns DILOCO_EINVAL unless it is base64 of at most KEY_BYTES. */
static diloco_status decode_key(az_store *s, const char *text)
{
    size_t len = strlen(text), pad = 0;
    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    if (len % 4 || len / 4 * 3 > KEY_BYTES ||
        EVP_DecodeBlock(s->key, (const unsigned char *)text, (int)len) < 0)
        return dl_fail(DILOCO_EINVAL, "%s: the account key is not base64", s->b.label);
    s->key_len = len / 4 * 3 - pad;
    return DILOCO_OK;
}

/* The order: account key, SAS token, managed identity. Keys and tokens of the environment do not
 * expire here. */
static diloco_status renew(dl_bucket *b, dl_time until)
{
    az_store *s = (az_store *)b;
    char key[SETTING];
    dl_credentials identity;
    if (setting(key, sizeof key, "AZURE_STORAGE_KEY", "AccountKey")) {
        diloco_status status = decode_key(s, key);
        OPENSSL_cleanse(key, sizeof key);
        return status;
    }
    if (setting(s->sas, sizeof s->sas, "AZURE_STORAGE_SAS_TOKEN", "SharedAccessSignature")) {
        if (s->sas[0] == '?') memmove(s->sas, s->sas + 1, strlen(s->sas));
        return DILOCO_OK;
    }
    diloco_status status = dl_credentials_azure(&identity, b->web, until);
    if (status) return dl_fail_context(status, "%s", b->label);
    s->identity = identity;
    b->expires = s->identity.expires ? s->identity.expires + b->skew_s : 0; /* by our clock */
    return DILOCO_OK;
}

static bool expired(const char *code)
{
    return !strcmp(code, "InvalidAuthenticationInfo") || !strcmp(code, "AuthenticationFailed");
}

/* ---- requests */

static int by_name(const void *a, const void *b)
{
    return strcasecmp(((const dl_pair *)a)->name, ((const dl_pair *)b)->name);
}

static const char *header(const dl_pair *headers, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(headers[i].name, name)) return headers[i].value;
    return "";
}

/* `headers` sorted by name. The order of the lines is the service's. A header that was not sent is
 * an empty line. */
static diloco_status string_to_sign(dl_buf *out, const az_store *s, const dl_bucket_request *r,
                                    const char *path, const dl_pair *headers, size_t n)
{
    static const char *const standard[] = {"If-Modified-Since", "If-Match", "If-None-Match",
                                           "If-Unmodified-Since", "Range"};
    dl_pair query[DL_BUCKET_PAIRS];
    size_t len = 0;
    for (size_t i = 0; i < r->n_body; i++)
        len += r->body[i].len;
    DL_TRY(dl_buf_addf(out, "%s\n\n\n", r->method)); /* no encoding, no language */
    DL_TRY(len ? dl_buf_addf(out, "%zu", len) : DILOCO_OK);
    DL_TRY(dl_buf_addf(out, "\n\n\n\n")); /* no MD5, no type, no date: x-ms-date has it */
    for (size_t i = 0; i < sizeof standard / sizeof *standard; i++)
        DL_TRY(dl_buf_addf(out, "%s\n", header(headers, n, standard[i])));
    for (size_t i = 0; i < n; i++)
        if (!strncmp(headers[i].name, "x-ms-", 5))
            DL_TRY(dl_buf_addf(out, "%s:%s\n", headers[i].name, headers[i].value));
    DL_TRY(dl_buf_addf(out, "/%s%s", s->account, path));
    memcpy(query, r->query, sizeof query);
    qsort(query, r->n_query, sizeof *query, by_name);
    for (size_t i = 0; i < r->n_query; i++)
        DL_TRY(dl_buf_addf(out, "\n%s:%s", query[i].name, query[i].value));
    return DILOCO_OK;
}

/* Adds the Authorization header: an HMAC in base64 under the account's key. */
static diloco_status sign(const az_store *s, dl_web_exchange *x, const dl_bucket_request *r,
                          const char *path, const dl_pair *headers, size_t n)
{
    dl_buf text;
    unsigned char hash[32];
    char base64[48];
    dl_buf_init(&text, 16 << 10);
    diloco_status status = string_to_sign(&text, s, r, path, headers, n);
    if (!status) status = dl_hmac_sha256(hash, s->key, s->key_len, text.data, text.len);
    if (!status) {
        EVP_EncodeBlock((unsigned char *)base64, hash, sizeof hash);
        status = dl_web_header(x, "Authorization: SharedKey %s:%s", s->account, base64);
    }
    dl_buf_deinit(&text);
    return status;
}

/* The date is the service's, as far as its clock is known (skew_s). */
static diloco_status add_headers(const az_store *s, dl_web_exchange *x, const dl_bucket_request *r,
                                 const char *path)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = (time_t)dl_bucket_now(&s->b);
    struct tm t;
    char date[64];
    dl_pair headers[DL_BUCKET_PAIRS + 4];
    size_t n = 0;
    gmtime_r(&now, &t); /* strftime would speak the user's language */
    snprintf(date, sizeof date, "%s, %02d %s %d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday,
             months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    headers[n++] = (dl_pair){"x-ms-date", date};
    headers[n++] = (dl_pair){"x-ms-version", API_VERSION};
    if (!strcmp(r->method, "PUT") && !r->n_query) /* not of blocks and their list */
        headers[n++] = (dl_pair){"x-ms-blob-type", "BlockBlob"};
    for (size_t i = 0; i < r->n_headers; i++)
        headers[n++] = r->headers[i];
    qsort(headers, n, sizeof *headers, by_name);
    for (size_t i = 0; i < n; i++)
        DL_TRY(dl_web_header(x, "%s: %s", headers[i].name, headers[i].value));
    if (s->key_len) return sign(s, x, r, path, headers, n);
    return s->sas[0] ? DILOCO_OK : dl_web_header(x, "Authorization: Bearer %s", s->identity.token);
}

/* The path that is signed is the one in the url, escapes included. Names are escaped, so no key can
 * add a query. */
static diloco_status dress(dl_bucket *b, dl_web_exchange *x, const dl_bucket_request *r)
{
    const az_store *s = (const az_store *)b;
    DL_TRY(dl_buf_addf(&x->url, "%s/%s", s->base, b->bucket));
    if (r->name) {
        DL_TRY(dl_buf_add(&x->url, "/", 1));
        DL_TRY(dl_web_escape(&x->url, b->prefix, true));
        DL_TRY(dl_web_escape(&x->url, r->name, true));
    }
    const char *url = dl_buf_str(&x->url), *host = url ? strstr(url, "://") : NULL;
    if (!host) return dl_fail(DILOCO_ENOMEM, "%s: out of memory for a request", b->label);
    char path[DL_WEB_URL];
    snprintf(path, sizeof path, "%s", host + 3 + strcspn(host + 3, "/"));
    if (r->n_query || s->sas[0]) DL_TRY(dl_buf_add(&x->url, "?", 1));
    DL_TRY(dl_sigv4_query(&x->url, r->query, r->n_query));
    if (s->sas[0] && !s->key_len)
        DL_TRY(dl_buf_addf(&x->url, "%s%s", r->n_query ? "&" : "", s->sas));
    return add_headers(s, x, r, path);
}

/* The service cannot begin a listing after a name; bucket.c leaves out earlier names. */
static void list(dl_bucket_request *r, const char *prefix, const char *after, const char *marker,
                 const char *max)
{
    (void)after;
    dl_bucket_query(r, "restype", "container");
    dl_bucket_query(r, "comp", "list");
    dl_bucket_query(r, "maxresults", max);
    if (*prefix) dl_bucket_query(r, "prefix", prefix);
    if (*marker) dl_bucket_query(r, "marker", marker);
}

/* ---- blocks */

typedef struct blocks {
    char id[16]; /* of the block being prepared */
} blocks;

/* All of one length, as the service wants it: base64 of six digits. */
static void block_id(char id[16], size_t index)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%06zu", index);
    EVP_EncodeBlock((unsigned char *)id, (const unsigned char *)digits, 6);
}

static diloco_status block_request(void *context, size_t index, dl_bucket_request *r)
{
    blocks *bl = context;
    block_id(bl->id, index);
    r->method = "PUT";
    dl_bucket_query(r, "comp", "block");
    dl_bucket_query(r, "blockid", bl->id);
    return DILOCO_OK;
}

/* The list makes the object. Until then its blocks are invisible. */
static diloco_status commit(dl_bucket *b, const char *name, size_t n, dl_time until)
{
    dl_buf body;
    char id[16];
    dl_bucket_request r = {.method = "PUT", .name = name};
    dl_bucket_query(&r, "comp", "blocklist");
    dl_buf_init(&body, BLOCKS_MAX * 64);
    diloco_status status =
        dl_buf_addf(&body, "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for (size_t i = 0; i < n && !status; i++) {
        block_id(id, i);
        status = dl_buf_addf(&body, "<Latest>%s</Latest>", id);
    }
    if (!status) status = dl_buf_addf(&body, "</BlockList>");
    dl_span span = {body.data, body.len};
    r.body = &span;
    r.n_body = 1;
    if (!status) status = dl_bucket_send_request(b, &r, NULL, NULL, 0, until);
    dl_buf_deinit(&body);
    return status;
}

/* Blocks are sent several at a time, and their list is committed at the end. */
static diloco_status upload(dl_bucket *b, const char *name, const dl_span *spans, size_t n_spans,
                            dl_time until)
{
    blocks bl;
    dl_bucket_cut cut = {.context = &bl, .request = block_request};
    dl_bucket_cut_up(&cut, b, spans, n_spans, BLOCKS_MAX);
    DL_TRY(dl_bucket_send(b, name, &cut, until));
    return commit(b, name, cut.n_parts, until);
}

/* ---- the row */

static const char *const options[] = {"account", NULL};

static const dl_dialect az = {
    .scheme = "az",
    .options = options,
    .if_absent = {"If-None-Match", "*"},
    .listing = {.root = "EnumerationResults",
                .entry = "Blobs/Blob",
                .key = "Blobs/Blob/Name",
                .size = "Blobs/Blob/Properties/Content-Length",
                .etag = "Blobs/Blob/Properties/Etag",
                .modified = "Blobs/Blob/Properties/Last-Modified",
                .marker = "NextMarker"},
    .dress = dress,
    .list = list,
    .renew = renew,
    .expired = expired,
    .upload = upload,
};

/* It becomes a part of a host's name, to which credentials go. */
static bool is_account(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

/* An endpoint may come from a url that another person wrote, so it is checked before credentials go
 * there. */
static diloco_status find_service(az_store *s)
{
    char suffix[128];
    const char *account = dl_bucket_option(&s->b, "account");
    const char *endpoint = dl_bucket_option(&s->b, "endpoint");
    const char *connection = getenv("AZURE_STORAGE_CONNECTION_STRING");
    if (account && strlen(account) < sizeof s->account)
        strcpy(s->account, account);
    else if (!setting(s->account, sizeof s->account, "AZURE_STORAGE_ACCOUNT", "AccountName"))
        return dl_fail(DILOCO_EINVAL,
                       "%s: the account is missing: add ?account=… to the URL, or set "
                       "AZURE_STORAGE_ACCOUNT",
                       s->b.label);
    if (!is_account(s->account))
        return dl_fail(DILOCO_EINVAL, "%s: that is no name of an account", s->b.label);
    if (endpoint && strlen(endpoint) < sizeof s->base)
        strcpy(s->base, endpoint);
    else if (!part_of(s->base, sizeof s->base, connection, "BlobEndpoint"))
        snprintf(s->base, sizeof s->base, "https://%s.blob.%s", s->account,
                 part_of(suffix, sizeof suffix, connection, "EndpointSuffix") ? suffix
                                                                              : "core.windows.net");
    size_t len = strlen(s->base);
    if (len && s->base[len - 1] == '/') s->base[len - 1] = '\0';
    if ((strncmp(s->base, "http://", 7) && strncmp(s->base, "https://", 8)) ||
        strpbrk(s->base, "@?#"))
        return dl_fail(DILOCO_EINVAL,
                       "%s: the endpoint is http(s)://host[:port][/account], without "
                       "user or query",
                       s->b.label);
    return DILOCO_OK;
}

static diloco_status az_open(void *self, const char *place, bool create, const atomic_bool *aborted)
{
    az_store *s = self;
    DL_TRY(dl_bucket_begin(&s->b, &az, place, aborted));
    DL_TRY(find_service(s));
    s->b.stale = true; /* so that the first request reads credentials */
    return dl_bucket_ready(&s->b, create);
}

const dl_store_kind dl_store_az = {
    .scheme = "az", .size = sizeof(az_store), .open = az_open, DL_BUCKET_KIND};
