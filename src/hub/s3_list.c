/* s3_list.c - ListObjects, versions 1 and 2, and ListBuckets.
 *
 * Any text may be a prefix or a place to begin after; dl_store_list knows whole folders and
 * keys. So the walk is over the folder that holds the prefix, and keys before the place or beside
 * the prefix are passed over here. With the delimiter "/", keys that share the text up to the next
 * one become one CommonPrefix. It counts like a key, and a listing can begin after it. */
#include "base/text.h"
#include "hub/s3_api.h"
#include "store/http/web.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a page: each key with its XML, and the texts of the request that are repeated,
 * escaped. */
enum { PAGE_BYTES = DL_LIST_PAGE * (DL_KEY_MAX + 300) + 8 * DL_TARGET_MAX };

/* One listing in progress. Texts are borrowed from the request. */
typedef struct listing {
    dl_http_request *r;
    const char *prefix, *after; /* prefix of keys; the key or text to begin after */
    bool delimited, version2, escaped, truncated;
    size_t n, limit;           /* keys so far; keys at most */
    char last[DL_KEY_MAX + 2]; /* the last key or CommonPrefix of the answer */
    dl_buf contents;
} listing;

/* Add a CommonPrefix: the first `len` bytes of the key. It needs no escaping, since a key has
 * only letters, digits and ._=-/. */
static diloco_status write_prefix(listing *l, const char *key, size_t len)
{
    memcpy(l->last, key, len);
    l->last[len] = '\0';
    return dl_buf_addf(&l->contents, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>",
                       l->last);
}

/* Add one key. Its size is the store's; time and ETag are read from the file. */
static diloco_status write_key(listing *l, const char *key, size_t size)
{
    char path[sizeof l->r->root + DL_KEY_MAX + 2], date[32];
    struct stat st;
    dl_etag etag;
    snprintf(path, sizeof path, "%s/%s", l->r->root, key);
    if (lstat(path, &st)) return DILOCO_OK; /* deleted meanwhile */
    dl_etag_of(etag, &st);
    dl_hub_s3_date(date, st.st_mtim.tv_sec);
    strcpy(l->last, key);
    return dl_buf_addf(&l->contents,
                       "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>%s</ETag>"
                       "<Size>%zu</Size><StorageClass>STANDARD</StorageClass></Contents>",
                       key, date, etag, size);
}

/* Called for each key of the folder in byte order. Returns DILOCO_ECLOSED to end the walk: past
 * the prefix, or at the limit. */
static diloco_status see(void *context, const char *key, size_t size)
{
    listing *l = context;
    size_t prefix_len = strlen(l->prefix), last_len = strlen(l->last);
    if (strncmp(key, l->prefix, prefix_len) != 0)
        return strcmp(key, l->prefix) < 0 ? DILOCO_OK : DILOCO_ECLOSED; /* after it: done */
    /* Keys below the last CommonPrefix are a part of it and add nothing. */
    bool in_told = last_len && l->last[last_len - 1] == '/' && !strncmp(key, l->last, last_len);
    if (strcmp(key, l->after) <= 0 || (l->delimited && in_told)) return DILOCO_OK;
    if (l->n == l->limit) {
        l->truncated = l->limit > 0; /* of no keys asked nothing is left */
        return DILOCO_ECLOSED;
    }
    l->n++;
    const char *slash = l->delimited ? strchr(key + prefix_len, '/') : NULL;
    return slash ? write_prefix(l, key, (size_t)(slash + 1 - key)) : write_key(l, key, size);
}

/* Walk the folder that holds the prefix. A prefix with a component that no key has is an empty
 * listing, not an error. */
static diloco_status walk(listing *l)
{
    char folder[DL_KEY_MAX + 2];
    dl_store *store;
    const char *slash = strrchr(l->prefix, '/');
    size_t len = slash ? (size_t)(slash + 1 - l->prefix) : 0;
    if (len > DL_KEY_MAX) return DILOCO_OK; /* no key is that long */
    memcpy(folder, l->prefix, len);
    folder[len] = '\0';
    if (len) {
        folder[len - 1] = '\0';
        if (!dl_store_key_ok(folder)) return DILOCO_OK; /* no key is in there */
        folder[len - 1] = '/';
    }
    DL_TRY(dl_hub_bucket_open(&store, l->r, false));
    diloco_status status =
        /* The place to begin after may be any text. Only a valid key lets the store skip;
         * otherwise see() passes over what is before it. */
        dl_store_list(store, folder, dl_store_key_ok(l->after) ? l->after : NULL, see, l, DL_NEVER);
    dl_store_close(store);
    return status == DILOCO_ECLOSED ? DILOCO_OK : status;
}

/* Repeat a value of the request. */
static diloco_status echo(const listing *l, dl_buf *out, const char *name, const char *value)
{
    DL_TRY(dl_buf_addf(out, "<%s>", name));
    DL_TRY(l->escaped ? dl_web_escape(out, value, true) : dl_hub_s3_add_text(out, value));
    return dl_buf_addf(out, "</%s>", name);
}

static const char *param(const dl_http_request *r, const char *name)
{
    const char *value = dl_target_param(&r->target, name);
    return value ? value : "";
}

/* The two versions differ in the names of their markers. With encoding-type=url repeated texts
 * are percent-encoded, since they may hold characters that XML has not. */
static diloco_status write_list(const listing *l, dl_buf *out)
{
    const dl_http_request *r = l->r;
    DL_TRY(dl_buf_addf(out,
                       DL_S3_XML "<ListBucketResult" DL_S3_XMLNS "><Name>%s</Name>"
                                 "<MaxKeys>%zu</MaxKeys><IsTruncated>%s</IsTruncated>",
                       r->bucket, l->limit, l->truncated ? "true" : "false"));
    DL_TRY(echo(l, out, "Prefix", l->prefix));
    if (l->delimited) DL_TRY(echo(l, out, "Delimiter", "/"));
    if (l->escaped) DL_TRY(dl_buf_addf(out, "<EncodingType>url</EncodingType>"));
    if (l->version2) {
        DL_TRY(dl_buf_addf(out, "<KeyCount>%zu</KeyCount>", l->n));
        if (*param(r, "start-after")) DL_TRY(echo(l, out, "StartAfter", param(r, "start-after")));
        if (*param(r, "continuation-token"))
            DL_TRY(echo(l, out, "ContinuationToken", param(r, "continuation-token")));
        if (l->truncated) DL_TRY(echo(l, out, "NextContinuationToken", l->last));
    } else {
        DL_TRY(echo(l, out, "Marker", param(r, "marker")));
        if (l->truncated) DL_TRY(echo(l, out, "NextMarker", l->last));
    }
    DL_TRY(dl_buf_add(out, l->contents.data, l->contents.len));
    return dl_buf_addf(out, "</ListBucketResult>\n");
}

dl_response dl_hub_s3_list(dl_http_request *r)
{
    const char *delimiter = param(r, "delimiter"), *limit = param(r, "max-keys");
    uint64_t n = DL_LIST_PAGE;
    listing l = {.r = r, .prefix = param(r, "prefix")};
    dl_buf out;
    r->kind = DL_KIND_LIST;
    l.version2 = strcmp(param(r, "list-type"), "2") == 0;
    l.after = param(r, l.version2 ? "continuation-token" : "marker");
    if (l.version2 && !*l.after) l.after = param(r, "start-after");
    l.escaped = strcmp(param(r, "encoding-type"), "url") == 0;
    l.delimited = *delimiter != '\0';
    if (*delimiter && strcmp(delimiter, "/") != 0)
        return dl_refuse(r, 501, "NotImplemented", "the delimiter is \"/\"");
    if (*limit && !dl_text_to_u64(&n, limit, strlen(limit)))
        return dl_refuse(r, 400, "InvalidArgument", "max-keys is a number");
    l.limit = n < DL_LIST_PAGE ? n : DL_LIST_PAGE;
    /* The place to begin after is the last one so far, so a listing that continues after a
     * CommonPrefix skips its keys. */
    if (strlen(l.after) <= DL_KEY_MAX) strcpy(l.last, l.after);
    dl_buf_init(&l.contents, PAGE_BYTES);
    dl_buf_init(&out, 2 * PAGE_BYTES);
    diloco_status status = walk(&l);
    if (!status) status = write_list(&l, &out);
    dl_buf_deinit(&l.contents);
    return dl_hub_s3_response(r, &out, status);
}

static diloco_status add_bucket(dl_http_request *r, dl_buf *out)
{
    struct stat st;
    char date[32];
    if (lstat(r->root, &st)) return DILOCO_OK;
    dl_hub_s3_date(date, st.st_mtim.tv_sec);
    return dl_buf_addf(out, "<Bucket><Name>%s</Name><CreationDate>%s</CreationDate></Bucket>",
                       r->bucket, date);
}

/* Folders whose names are no buckets are not shown, the hub's own among them. */
dl_response dl_hub_s3_list_buckets(dl_http_request *r)
{
    const char *rest;
    dl_buf out;
    dl_buf_init(&out, PAGE_BYTES);
    r->kind = DL_KIND_LIST;
    diloco_status status = dl_buf_addf(&out, DL_S3_XML "<ListAllMyBucketsResult" DL_S3_XMLNS
                                                       "><Owner><ID>hub</ID></Owner><Buckets>");
    DIR *dir = opendir(r->hub->dir);
    for (struct dirent *d; dir && !status && (d = readdir(dir));)
        if (dl_request_bucket(r, d->d_name, &rest) && !*rest && dl_hub_bucket_there(r))
            status = add_bucket(r, &out);
    if (dir) closedir(dir);
    if (!status) status = dl_buf_addf(&out, "</Buckets></ListAllMyBucketsResult>\n");
    return dl_hub_s3_response(r, &out, status);
}
