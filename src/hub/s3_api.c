/* s3_api.c - which operation a request is.
 *
 * Begin with operations[] and dl_hub_s3_begin. Objects are read, put and deleted by object.c;
 * this file adds S3's XML, the operations on buckets, and deleting several keys. */
#include "hub/s3_api.h"

#include "base/text.h"
#include "store/http/xml.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* Bytes of one reply in XML, and keys in one DeleteObjects (as S3 has it). */
enum { XML_MAX = 4 << 20, DELETE_MAX = 1000 };

/* ---- XML */

/* Control characters are written as numbers, since XML 1.0 has no other form for most of them. */
diloco_status dl_hub_s3_add_text(dl_buf *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '&'   ? "&amp;"
                         : *text == '<' ? "&lt;"
                         : *text == '>' ? "&gt;"
                                        : NULL;
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            DL_TRY(dl_buf_addf(out, "&#x%x;", (unsigned)*text));
        else
            DL_TRY(as ? dl_buf_add(out, as, strlen(as)) : dl_buf_add(out, text, 1));
    }
    return DILOCO_OK;
}

dl_response dl_hub_s3_response(dl_http_request *r, dl_buf *out, diloco_status status)
{
    dl_response reply = status ? dl_refuse_failed(r, status)
                               : dl_response_text(200, "application/xml", out->data, out->len);
    dl_buf_deinit(out);
    return reply;
}

/* S3's error document. Without memory the reply has the status alone. */
dl_response dl_hub_s3_refuse(unsigned status, const char *code, const char *message)
{
    dl_buf out;
    dl_buf_init(&out, XML_MAX);
    diloco_status failed = dl_buf_addf(&out, DL_S3_XML "<Error><Code>%s</Code><Message>",
                                       *code           ? code
                                       : status == 503 ? "ServiceUnavailable"
                                                       : "InvalidRequest");
    if (!failed) failed = dl_hub_s3_add_text(&out, message);
    if (!failed) failed = dl_buf_addf(&out, "</Message></Error>\n");
    dl_response reply = failed ? dl_response_empty(status)
                               : dl_response_text(status, "application/xml", out.data, out.len);
    dl_buf_deinit(&out);
    return reply;
}

void dl_hub_s3_date(char out[32], int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&t, &tm)) memset(&tm, 0, sizeof tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
}

/* ---- bodies */

/* Read the body into r->body.text, at most DL_TEXT_BODY_MAX bytes, and call `finish` then. */
dl_response dl_hub_s3_read_text(dl_http_request *r, dl_handler finish)
{
    dl_response refusal = dl_hub_s3_prepare_body(r);
    if (refusal.response) return refusal;
    r->body.kind = DL_BODY_TEXT;
    r->finish = finish;
    return (dl_response){0};
}

static dl_response put(dl_http_request *r)
{
    dl_response refusal = dl_hub_s3_prepare_body(r);
    return refusal.response ? refusal : dl_object_put(r);
}

/* ---- deleting several */

/* One DeleteObjects in progress. Keys are deleted while the body is parsed, and the reply grows
 * in `out`. */
typedef struct deletion {
    dl_http_request *r;
    dl_buf out; /* the reply */
    size_t n;   /* keys so far */
    bool quiet; /* only errors are reported */
} deletion;

/* Delete one key by the same function as DELETE, so the log stays protected. `key` is the
 * parser's and is borrowed for the call. "Quiet" leaves successes out of the reply. */
static diloco_status delete_one(deletion *d, const char *key)
{
    d->r->key = key;
    dl_response reply = dl_store_key_ok(key) ? dl_object_delete(d->r)
                                             : dl_refuse(d->r, 400, "InvalidArgument", "no key");
    if (reply.response) MHD_destroy_response(reply.response);
    d->r->key = "";
    if (reply.status == 204 && d->quiet) return DILOCO_OK;
    DL_TRY(dl_buf_addf(&d->out, reply.status == 204 ? "<Deleted><Key>" : "<Error><Key>"));
    DL_TRY(dl_hub_s3_add_text(&d->out, key));
    return dl_buf_addf(&d->out, reply.status == 204
                                    ? "</Key></Deleted>"
                                    : "</Key><Code>AccessDenied</Code><Message>not deleted"
                                      "</Message></Error>");
}

/* Called by the XML walk for each element's text. DELETE_MAX bounds the work of one request. */
static diloco_status on_delete(void *context, const char *path, const char *text)
{
    deletion *d = context;
    if (strcmp(path, "Quiet") == 0) d->quiet = strcmp(text, "true") == 0;
    if (strcmp(path, "Object/Key") != 0) return DILOCO_OK;
    if (++d->n > DELETE_MAX) return dl_fail(DILOCO_EPROTO, "more than %d keys", DELETE_MAX);
    return delete_one(d, text);
}

/* Keys are deleted while the list is parsed. A fault of the list ends it, and the keys before it
 * stay deleted, as in S3. */
static dl_response delete_finish(dl_http_request *r)
{
    deletion d = {.r = r};
    dl_buf_init(&d.out, XML_MAX);
    diloco_status status = dl_buf_addf(&d.out, DL_S3_XML "<DeleteResult" DL_S3_XMLNS ">");
    if (!status)
        status = dl_xml_walk(r->body.text.data, r->body.text.len, "Delete", on_delete, &d,
                             "the keys to delete");
    if (!status) status = dl_buf_addf(&d.out, "</DeleteResult>\n");
    return dl_hub_s3_response(r, &d.out, status);
}

/* S3's clients send a checksum of this list. It is checked before any key is deleted. */
static dl_response delete_several(dl_http_request *r)
{
    r->kind = DL_KIND_DELETE;
    dl_response refusal = dl_hub_s3_prepare_checksum(r);
    return refusal.response ? refusal : dl_hub_s3_read_text(r, delete_finish);
}

/* ---- buckets */

static dl_response location(dl_http_request *r)
{
    static const char text[] = DL_S3_XML "<LocationConstraint" DL_S3_XMLNS "/>\n";
    r->kind = DL_KIND_BUCKET;
    return dl_response_text(200, "application/xml", text, sizeof text - 1);
}

/* Versioning is off, which S3 says by an empty document. */
static dl_response versioning(dl_http_request *r)
{
    static const char text[] = DL_S3_XML "<VersioningConfiguration" DL_S3_XMLNS "/>\n";
    r->kind = DL_KIND_BUCKET;
    return dl_response_text(200, "application/xml", text, sizeof text - 1);
}

static dl_response head_bucket(dl_http_request *r)
{
    r->kind = DL_KIND_BUCKET;
    return dl_response_empty(200);
}

/* Return true if only the hub's own files are there. Any other entry counts as content, files
 * that no key can name included. So a bucket is never removed with them. */
static bool is_empty(const char *root)
{
    DIR *folder = opendir(root);
    bool empty = folder != NULL;
    for (struct dirent *d; empty && (d = readdir(folder));)
        empty = !strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
                !strcmp(d->d_name, DL_FILE_TMP) || !strcmp(d->d_name, DL_S3_MULTIPART);
    if (folder) closedir(folder);
    return empty;
}

static bool remove_below(const char *root, const char *name)
{
    char path[PATH_MAX + DL_BUCKET_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return rmdir(path) == 0 || errno == ENOENT;
}

/* Remove the bucket if it is empty; rmdir itself makes sure of that. A folder that stays gets
 * its .tmp/ back, without which open handles would take the store for gone. */
static dl_response remove_bucket(dl_http_request *r)
{
    char tmp[sizeof r->root + 16];
    r->kind = DL_KIND_BUCKET;
    if (is_empty(r->root) && remove_below(r->root, DL_S3_MULTIPART)) {
        if (remove_below(r->root, DL_FILE_TMP) && rmdir(r->root) == 0) {
            dl_holdings_removed(&r->hub->tally, r->bucket);
            return dl_response_empty(204);
        }
        snprintf(tmp, sizeof tmp, "%s/" DL_FILE_TMP, r->root);
        (void)mkdir(tmp, 0777); /* another thread was faster */
    }
    return dl_refuse(r, 409, "BucketNotEmpty", "the bucket is not empty");
}

/* ---- which operation */

/* The operations of S3. The first row whose method, kind of path and `param` fit is taken.
 * `param` has to be in the query; NULL fits any query, so such rows come last. A new operation
 * is one row. */
static const struct operation {
    const char *method, *param;
    bool of_key; /* true: of an object, false: of a bucket */
    dl_handler begin;
} operations[] = {
    {"GET", "location", false, location},
    {"GET", "versioning", false, versioning},
    {"GET", "uploads", false, dl_multipart_uploads},
    {"POST", "delete", false, delete_several},
    {"GET", NULL, false, dl_hub_s3_list},
    {"HEAD", NULL, false, head_bucket},
    {"DELETE", NULL, false, remove_bucket},
    {"GET", "uploadId", true, dl_multipart_parts},
    {"PUT", "uploadId", true, dl_multipart_part},
    {"POST", "uploads", true, dl_multipart_create},
    {"POST", "uploadId", true, dl_multipart_complete},
    {"DELETE", "uploadId", true, dl_multipart_abort},
    {"GET", NULL, true, dl_object_get},
    {"HEAD", NULL, true, dl_object_get},
    {"PUT", NULL, true, put},
    {"DELETE", NULL, true, dl_object_delete},
};

/* Return true if the request asks for a feature that a hub lacks, by a parameter or by copying.
 * It is refused, because ignoring "acl" or "versionId" would do something else than was asked. */
static bool asks_for_more(const dl_http_request *r)
{
    static const char names[] =
        " accelerate acl analytics attributes cors encryption intelligent-tiering inventory "
        "legal-hold lifecycle logging metadataConfiguration metadataTable metrics notification "
        "object-lock ownershipControls policy policyStatus publicAccessBlock replication "
        "requestPayment restore retention select session tagging torrent versionId versions "
        "website ";
    char word[64];
    /* Names are looked for with a space on each side, so only a whole word matches. No name in
     * the list is as long as word[]. */
    for (size_t i = 0; i < r->target.n_params; i++) {
        int len = snprintf(word, sizeof word, " %s ", r->target.params[i].name);
        if ((size_t)len < sizeof word && strstr(names, word)) return true;
    }
    return dl_request_header(r, "x-amz-copy-source") != NULL;
}

/* A path without a key is a bucket's. */
static const struct operation *find_operation(const dl_http_request *r)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct operation *o = &operations[i];
        if (strcmp(o->method, r->method) == 0 && o->of_key == (*r->key != '\0') &&
            (!o->param || dl_target_has(&r->target, o->param)))
            return o;
    }
    return NULL;
}

bool dl_hub_is_of_parts(const dl_http_request *r)
{
    return dl_target_has(&r->target, "uploads") || dl_target_has(&r->target, "uploadId");
}

dl_response dl_hub_parts_begin(dl_http_request *r)
{
    const struct operation *o = find_operation(r);
    r->payload_hash = "UNSIGNED-PAYLOAD"; /* the connection guards it, as it does a whole object */
    if (o && o->param) return o->begin(r);
    return dl_refuse(r, 405, "MethodNotAllowed", "%s does not apply here", r->method);
}

/* Return true for a key that a bucket's client uses for big objects, or for all objects with
 * halves=yes (bucket_bulk.c). */
static bool is_published_by_pointer(const char *key)
{
    return !strncmp(key, ".b/", 3) || strstr(key, "/.b/");
}

/* No such object exists. Any client may have stored a pointer to one, and readers follow it. An
 * error other than 404 would stop them. */
static dl_response hidden(dl_http_request *r)
{
    if (!strcmp(r->method, "GET") || !strcmp(r->method, "HEAD"))
        return dl_refuse(r, 404, "NoSuchKey", "there is no such object");
    if (!strcmp(r->method, "DELETE")) return dl_response_empty(204);
    return dl_refuse(r, 400, "InvalidArgument",
                     "a hub stores no object below .b/: use the hub's own http url, or remove "
                     "halves=yes and raise part_mib to half of the largest object");
}

/* Check the path, then the features, then the bucket. So a request that a hub does not support
 * gets the same reply whether the bucket exists or not. */
dl_response dl_hub_s3_begin(dl_http_request *r)
{
    const char *path = r->target.path + 1;
    if (!*path && strcmp(r->method, "GET") == 0) return dl_hub_s3_list_buckets(r);
    if (!dl_request_bucket(r, path, &r->key))
        return dl_refuse(r, 400, "InvalidBucketName", "that is not the name of a bucket");
    if (is_published_by_pointer(r->key)) return hidden(r);
    if (*r->key && !dl_store_key_ok(r->key))
        return dl_refuse(r, 400, "InvalidArgument",
                         "a key is 1 to %d bytes in components of letters, digits and ._=- that do "
                         "not begin with a dot",
                         DL_KEY_MAX);
    if (asks_for_more(r)) return dl_refuse(r, 501, "NotImplemented", "a hub does not do that");
    if (!*r->key && strcmp(r->method, "PUT") == 0) {
        r->finish = dl_hub_bucket_make;
        return (dl_response){0};
    }
    if (!dl_hub_bucket_there(r)) return dl_refuse_no_bucket(r);
    const struct operation *o = find_operation(r);
    if (!o) return dl_refuse(r, 405, "MethodNotAllowed", "%s does not apply here", r->method);
    return o->begin(r);
}
