/* s3_multipart.c - an object in parts, which become one when they are all there.
 *
 *     <bucket>/.multipart/<id>/key      the key it will have
 *     <bucket>/.multipart/<id>/00001    a part, whole; a part sent again replaces it
 *
 * Completing copies the parts into one upload and publishes that like any other: so the object
 * is there at once or not at all, and a condition on it holds. A part's temporary file is
 * renamed to its place, so a cut part leaves nothing. */
#include "base/log.h"
#include "base/text.h"
#include "hub/s3_api.h"
#include "store/http/xml.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An id is 16 random bytes in hex. Numbers of parts are S3's. */
enum {
    ID_LEN = 32,
    PARTS_MAX = 10000,
    PATH_BYTES = 64, /* ".multipart/<id>/00001" */
    XML_MAX = 4 << 20,
    KEPT_S = 7 * 86400 /* seconds; an upload that is never completed is removed after a week */
};

typedef char part_path[PATH_BYTES];

/* ---- uploads */

/* An id becomes a part of a path, so only hex digits are accepted. */
static bool id_ok(const char *id)
{
    return id && strlen(id) == ID_LEN && strspn(id, "0123456789abcdef") == ID_LEN;
}

/* Write the path of a file of the upload, below the bucket. Both texts are cut to their length,
 * so the buffer always suffices. */
static void path_of(part_path out, const char *id, const char *name)
{
    snprintf(out, PATH_BYTES, DL_S3_MULTIPART "/%.*s/%.16s", ID_LEN, id, name);
}

/* Read <id>/key; false: there is no such upload. */
static bool read_key(char key[DL_KEY_MAX + 1], const dl_http_request *r, const char *id)
{
    part_path path;
    struct stat st;
    int fd;
    dl_file_store folder = r->folder;
    path_of(path, id, "key");
    if (!id_ok(id) || dl_file_store_object(&folder, path, &fd, &st)) return false;
    ssize_t n = read(fd, key, DL_KEY_MAX);
    close(fd);
    key[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Return the upload of the query, or NULL with *refusal set. It must be one of the key in the
 * path, so an id gives access to no other key. */
static const char *find_upload(dl_http_request *r, dl_response *refusal)
{
    char key[DL_KEY_MAX + 1];
    const char *id = dl_target_param(&r->target, "uploadId");
    r->kind = DL_KIND_MULTIPART;
    if (read_key(key, r, id) && strcmp(key, r->key) == 0) return id;
    *refusal = dl_refuse(r, 404, "NoSuchUpload", "there is no such upload of that key");
    return NULL;
}

/* Remove an upload. Its key goes first: a part that arrives meanwhile finds no upload at its
 * end, and is removed as well (part_finish). */
static void remove_upload(const char *root, const char *id)
{
    char path[PATH_MAX + 2 * NAME_MAX];
    snprintf(path, sizeof path, "%s/" DL_S3_MULTIPART "/%s", root, id);
    DIR *dir = opendir(path);
    if (dir) unlinkat(dirfd(dir), "key", 0);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.') unlinkat(dirfd(dir), d->d_name, 0);
    if (dir) closedir(dir);
    rmdir(path);
}

/* Call fn for each upload of the bucket, until it fails. `since` is the time when its folder
 * last changed. */
static diloco_status each_upload(const char *root,
                                 diloco_status (*fn)(void *context, const char *id, time_t since),
                                 void *context)
{
    char path[PATH_MAX + NAME_MAX];
    diloco_status status = DILOCO_OK;
    struct stat st;
    snprintf(path, sizeof path, "%s/" DL_S3_MULTIPART, root);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && !status && (d = readdir(dir));)
        if (id_ok(d->d_name) && fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            status = fn(context, d->d_name, st.st_mtime);
    if (dir) closedir(dir);
    return status;
}

static diloco_status remove_old(void *context, const char *id, time_t since)
{
    if (time(NULL) - since > KEPT_S) remove_upload(context, id);
    return DILOCO_OK;
}

void dl_multipart_clean(const char *root)
{
    if (each_upload(root, remove_old, (void *)(uintptr_t)root))
        dl_log(DILOCO_LOG_WARN, "old uploads of %s: %s", root, diloco_error_text());
}

/* ---- beginning */

/* The key is published like an object, so it is on the disk before the client learns the id. */
static diloco_status write_key(dl_http_request *r, const char *id)
{
    part_path path;
    dl_upload upload;
    path_of(path, id, "key");
    DL_TRY(dl_upload_begin(&upload, &r->folder, path));
    diloco_status status =
        dl_upload_add(&upload, &r->folder, path, r->key, strlen(r->key), DL_NEVER);
    if (!status) status = dl_upload_finish(&upload, &r->folder, path);
    if (!status) status = dl_upload_publish(&upload, &r->folder, path, NULL);
    dl_upload_discard(&upload);
    return status;
}

/* The id is random, because knowing it is enough to add parts to the upload. */
static dl_response create_finish(dl_http_request *r)
{
    unsigned char random[ID_LEN / 2];
    char id[ID_LEN + 1];
    dl_buf out;
    if (RAND_bytes(random, sizeof random) != 1)
        return dl_refuse(r, 500, "InternalError", "no random numbers");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    diloco_status status = write_key(r, id);
    if (status) return dl_refuse_failed(r, status);
    dl_buf_init(&out, XML_MAX);
    status = dl_buf_addf(&out,
                         DL_S3_XML "<InitiateMultipartUploadResult" DL_S3_XMLNS "><Bucket>%s"
                                   "</Bucket><Key>%s</Key><UploadId>%s</UploadId>"
                                   "</InitiateMultipartUploadResult>\n",
                         r->bucket, r->key, id);
    return dl_hub_s3_response(r, &out, status);
}

/* Refuse early what completing would refuse: a taken name, a blocked key. The upload would be
 * for nothing. */
dl_response dl_multipart_create(dl_http_request *r)
{
    dl_response refusal;
    r->kind = DL_KIND_MULTIPART;
    if (dl_request_header(r, "If-None-Match") && dl_object_is_there(r))
        return dl_refuse(r, 412, "PreconditionFailed", "an object of that name exists already");
    if (dl_object_is_blocked(r, r->key, &refusal)) return refusal;
    r->finish = create_finish;
    return (dl_response){0};
}

/* ---- parts */

/* Five digits, so that names in byte order are in the order of numbers. */
static bool part_name(char name[8], const char *text)
{
    uint64_t n;
    if (!text || !dl_text_to_u64(&n, text, strlen(text)) || n < 1 || n > PARTS_MAX) return false;
    snprintf(name, 8, "%05u", (unsigned)n);
    return true;
}

/* Publish a part. The same bytes again keep their ETag: a part that was late, and was sent once
 * more, may arrive last. */
static diloco_status publish_part(dl_http_request *r, const char *path, struct stat *st)
{
    dl_upload *upload = &r->body.upload;
    const struct stat ours = *st;
    bool taken = false;
    DL_TRY(dl_upload_finish(upload, &r->folder, path));
    DL_TRY(dl_upload_publish(upload, &r->folder, path, &taken));
    if (!taken || dl_object_is_the_same(r, upload, path, st)) return DILOCO_OK;
    *st = ours;
    /* Other bytes replace the part, as S3 has it. Only whole objects are never replaced. */
    return dl_upload_publish(upload, &r->folder, path, NULL);
}

/* The part is whole. The upload may have been completed or aborted since the request began, so
 * it is looked for again after publishing. */
static dl_response part_finish(dl_http_request *r)
{
    part_path path;
    char name[8];
    struct stat st;
    dl_etag etag;
    dl_response refusal;
    const char *id = find_upload(r, &refusal);
    if (!id || !part_name(name, dl_target_param(&r->target, "partNumber"))) return refusal;
    path_of(path, id, name);
    if (fstat(r->body.upload.fd, &st)) memset(&st, 0, sizeof st);
    const diloco_status status = publish_part(r, path, &st);
    if (status) return dl_refuse_failed(r, status);
    if (!find_upload(r, &refusal)) { /* it was ended meanwhile */
        remove_upload(r->root, id);
        return refusal;
    }
    dl_response reply = dl_response_empty(200);
    dl_etag_of(etag, &st);
    dl_response_header(reply, "ETag", etag);
    dl_hub_s3_repeat_checksum(r, reply);
    return reply;
}

/* Check the headers, then receive the part as an object is received (object.c). */
dl_response dl_multipart_part(dl_http_request *r)
{
    char name[8];
    dl_response refusal = {0};
    if (!find_upload(r, &refusal)) return refusal;
    if (!part_name(name, dl_target_param(&r->target, "partNumber")))
        return dl_refuse(r, 400, "InvalidArgument", "partNumber is 1 to %d", PARTS_MAX);
    if (!dl_object_has_length(r, &refusal)) return refusal;
    refusal = dl_hub_s3_prepare_body(r);
    if (!refusal.response) refusal = dl_hub_s3_prepare_checksum(r);
    if (refusal.response) return refusal;
    diloco_status status = dl_upload_begin(&r->body.upload, &r->folder, r->key);
    if (status) return dl_refuse_failed(r, status);
    r->body.kind = DL_BODY_FILE;
    r->finish = part_finish;
    return (dl_response){0};
}

/* ---- completing */

/* One CompleteMultipartUpload in progress. Parts are copied while the list is parsed, so the
 * list is never held as a whole. */
typedef struct completion {
    dl_http_request *r;
    const char *id;        /* of the upload */
    dl_upload upload;      /* of the whole object */
    uint64_t len;          /* of the parts so far, in bytes */
    char name[8], last[8]; /* of the part being read; of the one before */
    dl_etag etag;
    dl_checksum part, whole; /* of what the client gave one of */
    char part_value[DL_CHECKSUM_TEXT];
} completion;

/* Append `len` bytes of a part to the upload. The kernel copies where the file system can; it
 * may even share the blocks. */
static diloco_status copy_file(completion *c, int from, size_t len, const char *path)
{
    static const size_t most = 1u << 30;
    char block[1 << 16];
    while (len > 0) {
        ssize_t n = copy_file_range(from, NULL, c->upload.fd, NULL, len < most ? len : most, 0);
        if (n < 0 &&
            (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
            n = read(from, block, len < sizeof block ? len : sizeof block);
            if (n > 0)
                DL_TRY(dl_upload_add(&c->upload, &c->r->folder, path, block, (size_t)n, DL_NEVER));
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_file_store_fail(&c->r->folder, errno, "copy", path);
        if (n == 0) return dl_fail(DILOCO_EIO, "%s became shorter", path);
        len -= (size_t)n;
    }
    return DILOCO_OK;
}

/* Return true if two ETags are equal. Clients may put quotes around one, or not. */
static bool same_etag(const char *a, const char *b)
{
    char bare[sizeof(dl_etag)];
    snprintf(bare, sizeof bare, "%.*s", (int)strlen(b) - 2, b + 1);
    return strcmp(a, b) == 0 || strcmp(a, bare) == 0;
}

/* Add the part to the checksums that the client gave of it and of the whole. The bytes are read
 * once more, after the copy in the kernel. */
static diloco_status sum_part(completion *c, int fd, size_t len)
{
    char value[DL_CHECKSUM_TEXT];
    if (c->whole.kind) DL_TRY(dl_checksum_add_file(&c->whole, fd, len));
    if (!c->part.kind) return DILOCO_OK;
    DL_TRY(dl_checksum_add_file(&c->part, fd, len));
    dl_checksum_end(&c->part, value);
    dl_checksum_deinit(&c->part);
    if (!strcmp(value, c->part_value)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "part %s has another checksum: %s", c->last, value);
}

/* The <Part> element has ended: check it and append it. Ascending order is S3's rule, and makes
 * each part count once. */
static diloco_status add_part(completion *c)
{
    part_path path;
    struct stat st;
    dl_etag etag;
    int fd;
    if (!c->name[0] || strcmp(c->name, c->last) <= 0)
        return dl_fail(DILOCO_EPROTO, "the parts are not in ascending order");
    strcpy(c->last, c->name);
    path_of(path, c->id, c->name);
    diloco_status status = dl_file_store_object(&c->r->folder, path, &fd, &st);
    if (status == DILOCO_ENOENT) return dl_fail(DILOCO_EPROTO, "part %s was not uploaded", c->name);
    if (status) return status;
    dl_etag_of(etag, &st);
    c->len += (uint64_t)st.st_size;
    if (!same_etag(c->etag, etag))
        status = dl_fail(DILOCO_EPROTO, "part %s has another ETag", c->name);
    /* Checked before the copy, so the temporary file never grows past --max-object. */
    else if (c->len > c->r->hub->options.max_object)
        status = dl_fail(DILOCO_EPROTO, "the parts are longer than an object may be");
    else
        status = copy_file(c, fd, (size_t)st.st_size, path);
    if (!status) status = sum_part(c, fd, (size_t)st.st_size);
    close(fd);
    c->name[0] = c->etag[0] = '\0';
    return status;
}

/* Called by the XML walk: first for the elements of a <Part>, then for the <Part> itself.
 * Unknown elements are skipped. */
static diloco_status on_part(void *context, const char *path, const char *text)
{
    completion *c = context;
    if (strcmp(path, "Part/PartNumber") == 0 && !part_name(c->name, text))
        return dl_fail(DILOCO_EPROTO, "a PartNumber is 1 to %d", PARTS_MAX);
    if (strcmp(path, "Part/ETag") == 0) snprintf(c->etag, sizeof c->etag, "%s", text);
    if (strncmp(path, "Part/Checksum", strlen("Part/Checksum")) == 0) {
        const dl_checksum_kind *kind = dl_checksum_find(path + strlen("Part/"));
        if (!kind || c->part.kind)
            return dl_fail(DILOCO_EPROTO, "%s is not a checksum that a hub knows, or a second one",
                           path + strlen("Part/"));
        snprintf(c->part_value, sizeof c->part_value, "%s", text);
        return dl_checksum_begin(&c->part, kind);
    }
    return strcmp(path, "Part") == 0 ? add_part(c) : DILOCO_OK;
}

/* Publish the whole object and remove the parts. A taken name leaves the parts, so the client
 * may compare and abort. */
static dl_response publish(completion *c)
{
    dl_http_request *r = c->r;
    struct stat st;
    dl_etag etag;
    dl_response reply;
    dl_buf out;
    if (!dl_object_publish(r, &c->upload, r->key, &st, &reply)) return reply;
    remove_upload(r->root, c->id);
    dl_etag_of(etag, &st);
    dl_buf_init(&out, XML_MAX);
    diloco_status status =
        dl_buf_addf(&out,
                    DL_S3_XML "<CompleteMultipartUploadResult" DL_S3_XMLNS "><Location>%s/%s/%s"
                              "</Location><Bucket>%s</Bucket><Key>%s</Key><ETag>%s</ETag>"
                              "</CompleteMultipartUploadResult>\n",
                    r->hub->url, r->bucket, r->key, r->bucket, r->key, etag);
    return dl_hub_s3_response(r, &out, status);
}

/* Check the size and the checksum of the whole against the request. Returns DILOCO_EPROTO if one
 * differs. */
static diloco_status check_whole(completion *c, const char *want)
{
    char value[DL_CHECKSUM_TEXT];
    const char *size = dl_request_header(c->r, "x-amz-mp-object-size");
    uint64_t len;
    if (!c->last[0]) return dl_fail(DILOCO_EPROTO, "there is no part in the list");
    if (size && (!dl_text_to_u64(&len, size, strlen(size)) || len != c->len))
        return dl_fail(DILOCO_EPROTO, "the parts are not of x-amz-mp-object-size bytes");
    if (!c->whole.kind) return DILOCO_OK;
    dl_checksum_end(&c->whole, value);
    if (!strcmp(value, want)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "the object has another checksum: %s", value);
}

/* The list of parts has arrived. Nothing is under the key before publish(), so each error leaves
 * the upload as it was. */
static dl_response complete_finish(dl_http_request *r)
{
    completion c = {.r = r};
    const dl_checksum_kind *kind;
    const char *want;
    dl_response reply = dl_hub_s3_find_checksum(r, &kind, &want);
    if (reply.response) return reply;
    if (want && strchr(want, '-'))
        return dl_refuse(r, 501, "NotImplemented",
                         "a hub does not compute checksums of checksums (COMPOSITE)");
    c.id = find_upload(r, &reply);
    if (!c.id) return reply;
    if (dl_request_header(r, "If-None-Match")) r->kind = DL_KIND_CREATE;
    diloco_status status = dl_upload_begin(&c.upload, &r->folder, r->key);
    if (status) return dl_refuse_failed(r, status);
    if (kind) status = dl_checksum_begin(&c.whole, kind);
    if (!status)
        status = dl_xml_walk(r->body.text.data, r->body.text.len, "CompleteMultipartUpload",
                             on_part, &c, "the list of parts");
    if (!status) status = check_whole(&c, want);
    reply = status == DILOCO_EPROTO ? dl_refuse(r, 400, "InvalidPart", "%s", diloco_error_text())
            : status                ? dl_refuse_failed(r, status)
                                    : publish(&c);
    dl_upload_discard(&c.upload);
    dl_checksum_deinit(&c.part);
    dl_checksum_deinit(&c.whole);
    return reply;
}

dl_response dl_multipart_complete(dl_http_request *r)
{
    dl_response refusal = {0};
    return find_upload(r, &refusal) ? dl_hub_s3_read_text(r, complete_finish) : refusal;
}

/* Aborting twice is 404 the second time, as the upload is gone. */
dl_response dl_multipart_abort(dl_http_request *r)
{
    dl_response refusal;
    const char *id = find_upload(r, &refusal);
    if (!id) return refusal;
    remove_upload(r->root, id);
    return dl_response_empty(204);
}

/* ---- listing */

/* A lookup for each possible number keeps the parts in order without sorting. Parts that are not
 * there are skipped. */
static diloco_status add_parts(dl_buf *out, const dl_http_request *r, const char *id)
{
    for (unsigned n = 1; n <= PARTS_MAX; n++) {
        part_path path;
        char name[8], full[sizeof r->root + PATH_BYTES], date[32];
        struct stat st;
        dl_etag etag;
        snprintf(name, sizeof name, "%05u", n);
        path_of(path, id, name);
        snprintf(full, sizeof full, "%s/%s", r->root, path);
        if (lstat(full, &st)) continue;
        dl_etag_of(etag, &st);
        dl_hub_s3_date(date, st.st_mtim.tv_sec);
        DL_TRY(dl_buf_addf(out,
                           "<Part><PartNumber>%u</PartNumber><LastModified>%s</LastModified>"
                           "<ETag>%s</ETag><Size>%jd</Size></Part>",
                           n, date, etag, (intmax_t)st.st_size));
    }
    return DILOCO_OK;
}

dl_response dl_multipart_parts(dl_http_request *r)
{
    dl_buf out;
    dl_response refusal;
    const char *id = find_upload(r, &refusal);
    if (!id) return refusal;
    dl_buf_init(&out, XML_MAX);
    diloco_status status = dl_buf_addf(
        &out,
        DL_S3_XML "<ListPartsResult" DL_S3_XMLNS "><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s"
                  "</UploadId><MaxParts>%d</MaxParts><IsTruncated>false</IsTruncated>",
        r->bucket, r->key, id, PARTS_MAX);
    if (!status) status = add_parts(&out, r, id);
    if (!status) status = dl_buf_addf(&out, "</ListPartsResult>\n");
    return dl_hub_s3_response(r, &out, status);
}

typedef struct uploads {
    const dl_http_request *r;
    dl_buf *out;
} uploads;

static diloco_status add_upload(void *context, const char *id, time_t since)
{
    const uploads *u = context;
    char key[DL_KEY_MAX + 1], date[32];
    if (!read_key(key, u->r, id)) return DILOCO_OK;
    dl_hub_s3_date(date, since);
    return dl_buf_addf(u->out,
                       "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated>"
                       "</Upload>",
                       key, id, date);
}

/* All uploads are listed at once: they are few, and old ones are removed. */
dl_response dl_multipart_uploads(dl_http_request *r)
{
    dl_buf out;
    r->kind = DL_KIND_MULTIPART;
    dl_buf_init(&out, XML_MAX);
    diloco_status status =
        dl_buf_addf(&out,
                    DL_S3_XML "<ListMultipartUploadsResult" DL_S3_XMLNS "><Bucket>%s</Bucket>"
                              "<IsTruncated>false</IsTruncated>",
                    r->bucket);
    if (!status) status = each_upload(r->root, add_upload, &(uploads){r, &out});
    if (!status) status = dl_buf_addf(&out, "</ListMultipartUploadsResult>\n");
    return dl_hub_s3_response(r, &out, status);
}
