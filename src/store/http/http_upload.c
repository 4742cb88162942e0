/* http_upload.c - see http_upload.h.
 *
 *     begin      POST ?uploads, If-None-Match: *          an id; 412: the name is taken
 *     send       PUT ?partNumber=N&uploadId=ID            each part that is not there yet: its ETag
 *     complete   POST ?uploadId=ID, If-None-Match: *      the list of ETags; 412: taken
 *     abandon    DELETE ?uploadId=ID                      its parts go
 *
 * The hub removes an upload that does not end within a week; until then its parts take disk space.
 * If the answer to a completion was lost, the retry finds the upload gone, and compares the object
 * at the name. */
#include "store/http/http_upload.h"

#include "store/http/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 4, PARTS_MAX = 5000, PART_BYTES = 2 << 20, LINE_MAX = 160 };

/* The hub copies and syncs all of it before it answers. */
static const dl_time COMPLETE_PATIENCE = 300 * DL_SECOND;

/* One attempt at an upload. Its id and tags are in `u`, so that a later attempt resumes. */
typedef struct run {
    dl_http_upload *u;
    dl_web *web;
    const dl_http_object *object;
    const dl_span *spans;
    size_t n_spans;
    size_t part_bytes;
    size_t *missing;        /* numbers of the parts to send */
    dl_span *lanes;         /* [WIDTH * n_spans]: the parts in flight */
    dl_span list;           /* the body of completing */
    bool taken, gone, over; /* over: to continue would have the same result */
} run;

static void forget(dl_http_upload *u)
{
    free(u->tags);
    u->tags = NULL;
    u->id[0] = '\0';
}

void dl_http_upload_deinit(dl_http_upload *upload)
{
    forget(upload);
}

static bool right(const dl_web_exchange *x)
{
    return x->status >= 200 && x->status <= 299;
}

static dl_hash digest_of(const dl_span *spans, size_t n)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (size_t i = 0; i < n; i++)
        dl_digest_add(&stream, spans[i].data, spans[i].len);
    return dl_digest_end(&stream);
}

/* Returns whether the hub's digest of the received bytes is the digest of the sent ones (P8.2). */
bool dl_http_took(const dl_web_exchange *x)
{
    const char *reported = dl_web_response_header(x, "X-Diloco-Digest");
    dl_hash digest;
    return reported && dl_hash_from_hex(&digest, reported, strlen(reported)) &&
           dl_hash_equal(digest, digest_of(x->body, x->n_body));
}

static diloco_status address(const run *r, dl_web_exchange *x)
{
    return r->object->address(r->object->context, r->u->key, x);
}

static diloco_status ask(run *r, diloco_status (*prepare)(void *, dl_web_exchange *),
                         diloco_status (*finish)(void *, dl_web_exchange *), dl_time until)
{
    const dl_web_batch one = {
        .n = 1, .width = 1, .context = r, .prepare = prepare, .finish = finish};
    return dl_web_run(r->web, &one, until);
}

/* ---- beginning */

static diloco_status prepare_begin(void *context, dl_web_exchange *x)
{
    const run *r = context;
    DL_TRY(address(r, x));
    x->method = "POST";
    DL_TRY(dl_web_header(x, "If-None-Match: *"));
    return dl_buf_addf(&x->url, "?uploads=");
}

static diloco_status note_id(void *context, const char *path, const char *text)
{
    dl_http_upload *u = context;
    if (!strcmp(path, "UploadId")) snprintf(u->id, sizeof u->id, "%s", text);
    return DILOCO_OK;
}

/* The id becomes part of later urls, so anything but hex digits is refused. */
static diloco_status begun(void *context, dl_web_exchange *x)
{
    run *r = context;
    r->taken = x->status == 412;
    r->u->none = x->status == 405; /* a hub of before */
    if (r->taken || r->u->none) return DILOCO_OK;
    if (!right(x)) return r->object->refused(x);
    DL_TRY(dl_xml_walk(x->text.data, x->text.len, "InitiateMultipartUploadResult", note_id, r->u,
                       x->what));
    if (r->u->id[0] && strspn(r->u->id, "0123456789abcdef") == strlen(r->u->id)) return DILOCO_OK;
    r->u->id[0] = '\0';
    return dl_fail(DILOCO_EPROTO, "%s: an upload began without an id", x->what);
}

/* `vouched` starts as true, and a part without its digest clears it. */
static diloco_status begin(run *r, dl_time until)
{
    dl_http_upload *u = r->u;
    forget(u);
    u->vouched = true;
    u->tags = calloc(u->n_parts, sizeof *u->tags);
    if (!u->tags)
        return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to upload it", r->object->key);
    return ask(r, prepare_begin, begun, until);
}

/* ---- parts */

static diloco_status prepare_part(void *context, dl_web_exchange *x)
{
    const run *r = context;
    const size_t part = r->missing[x->index];
    dl_span *lane = r->lanes + x->index % WIDTH * r->n_spans;
    DL_TRY(address(r, x));
    x->method = "PUT";
    x->body = lane;
    x->n_body = dl_spans_cut(lane, r->spans, r->n_spans, part * r->part_bytes, r->part_bytes);
    return dl_buf_addf(&x->url, "?partNumber=%zu&uploadId=%s", part + 1, r->u->id);
}

/* 404 means that the hub has lost the upload; any other refusal would come again (`over`). */
static diloco_status part_sent(void *context, dl_web_exchange *x)
{
    run *r = context;
    char *tag = r->u->tags[r->missing[x->index]];
    const char *etag = dl_web_response_header(x, "ETag");
    r->gone |= x->status == 404;
    r->over |= !right(x) && x->status != 404;
    if (!right(x)) return r->object->refused(x);
    if (!etag || !*etag || strlen(etag) >= sizeof *r->u->tags || strpbrk(etag, "<>&"))
        return dl_fail(DILOCO_EPROTO, "%s: a part came back without an ETag", x->what);
    strcpy(tag, etag);
    r->u->vouched &= dl_http_took(x);
    return DILOCO_OK;
}

/* Sends only the parts that have no tag yet, so an upload resumes where it was cut. */
static diloco_status send_missing(run *r, dl_time until)
{
    dl_web_batch batch = {
        .width = WIDTH, .context = r, .prepare = prepare_part, .finish = part_sent};
    for (size_t i = 0; i < r->u->n_parts; i++)
        if (!r->u->tags[i][0]) r->missing[batch.n++] = i;
    return batch.n ? dl_web_run(r->web, &batch, until) : DILOCO_OK;
}

/* ---- completing */

static diloco_status prepare_complete(void *context, dl_web_exchange *x)
{
    const run *r = context;
    DL_TRY(address(r, x));
    x->method = "POST";
    x->body = &r->list;
    x->n_body = 1;
    x->patience = COMPLETE_PATIENCE;
    DL_TRY(dl_web_header(x, "If-None-Match: *"));
    return dl_buf_addf(&x->url, "?uploadId=%s", r->u->id);
}

/* 404 counts as taken: the first completion may have succeeded, and store.c compares. */
static diloco_status completed(void *context, dl_web_exchange *x)
{
    run *r = context;
    r->taken = x->status == 412 || x->status == 404;
    r->over = !right(x);
    return r->taken || right(x) ? DILOCO_OK : r->object->refused(x);
}

static diloco_status write_list(dl_buf *out, const dl_http_upload *u)
{
    DL_TRY(dl_buf_addf(out, "<CompleteMultipartUpload>"));
    for (size_t i = 0; i < u->n_parts; i++)
        DL_TRY(dl_buf_addf(out, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1,
                           u->tags[i]));
    return dl_buf_addf(out, "</CompleteMultipartUpload>");
}

/* The list has a line for each part, with its ETag, in order. */
static diloco_status complete(run *r, dl_time until)
{
    dl_buf list;
    dl_buf_init(&list, PARTS_MAX * LINE_MAX);
    diloco_status status = write_list(&list, r->u);
    r->list = (dl_span){list.data, list.len};
    if (!status) status = ask(r, prepare_complete, completed, until);
    dl_buf_deinit(&list);
    return status;
}

/* ---- abandoning */

static diloco_status prepare_abandon(void *context, dl_web_exchange *x)
{
    const run *r = context;
    DL_TRY(address(r, x));
    x->method = "DELETE";
    return dl_buf_addf(&x->url, "?uploadId=%s", r->u->id);
}

/* Whatever it says: it may have ended by itself, and a week later it is gone anyway. */
static diloco_status abandoned(void *context, dl_web_exchange *x)
{
    (void)context, (void)x;
    return DILOCO_OK;
}

static diloco_status abandon(run *r, dl_time until)
{
    if (r->u->id[0]) DL_TRY(ask(r, prepare_abandon, abandoned, until));
    forget(r->u);
    return DILOCO_OK;
}

/* ---- all of it */

/* Is it the object that the kept upload is of? */
static bool resumes(dl_http_upload *u, const char *key, dl_hash digest, size_t len)
{
    return u->id[0] && u->len == len && !strcmp(u->key, key) && dl_hash_equal(u->digest, digest);
}

/* Long objects get longer parts, so that there are at most PARTS_MAX. */
static diloco_status prepare_run(run *r, size_t *len, dl_hash *digest)
{
    *len = dl_spans_len(r->spans, r->n_spans);
    *digest = digest_of(r->spans, r->n_spans);
    r->part_bytes = dl_size_max(r->u->part_bytes ? r->u->part_bytes : PART_BYTES,
                                dl_size_round_up(*len / PARTS_MAX + 1, 1 << 10));
    r->missing = calloc(*len / r->part_bytes + 1, sizeof *r->missing);
    r->lanes = calloc(WIDTH * (r->n_spans + 1), sizeof *r->lanes);
    if (r->missing && r->lanes) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to upload it", r->object->key);
}

/* A kept upload of the same object continues. One of another object is abandoned first. */
static diloco_status go(run *r, dl_time until)
{
    dl_http_upload *u = r->u;
    size_t len;
    dl_hash digest;
    DL_TRY(prepare_run(r, &len, &digest));
    if (!resumes(u, r->object->key, digest, len)) {
        DL_TRY(abandon(r, until));
        snprintf(u->key, sizeof u->key, "%s", r->object->key);
        u->digest = digest;
        u->len = len;
        u->n_parts = len / r->part_bytes + (len % r->part_bytes != 0);
        DL_TRY(begin(r, until));
        if (r->taken || u->none) return DILOCO_OK;
    }
    diloco_status status = send_missing(r, until);
    if (!status) status = complete(r, until);
    if (r->over) DL_TRY(abandon(r, until));
    return status;
}

diloco_status dl_http_upload_run(dl_http_upload *upload, dl_web *web, const dl_http_object *object,
                                 const dl_span *spans, size_t n_spans, bool *taken, dl_time until)
{
    run r = {.u = upload, .web = web, .object = object, .spans = spans, .n_spans = n_spans};
    diloco_status status = go(&r, until);
    *taken = r.taken;
    if (!status || r.gone) forget(upload);
    if (status && r.gone)
        status =
            dl_fail(DILOCO_EUNREACHABLE, "%s: the hub has lost its parts; try again", object->key);
    free(r.missing);
    free(r.lanes);
    return status;
}
