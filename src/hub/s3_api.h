/* s3_api.h - the S3 API on the same port, for the tools that speak it.
 *
 * A request is S3's when it is signed as S3 asks for it (SigV4, in the Authorization header
 * or in the query). Its bucket is the path's first component, the key the rest. Path style only.
 * docs/hub.md lists the operations; any other answers NotImplemented. */
#ifndef DL_HUB_S3_API_H
#define DL_HUB_S3_API_H

#include "hub/server.h"

bool dl_hub_s3_is_signed(const dl_http_request *r);
/* s3_sign.c: does the signature hold? Else *refusal. */
bool dl_hub_s3_is_welcome(dl_http_request *r, dl_response *refusal);
dl_response dl_hub_s3_refuse(unsigned status, const char *code, const char *message);

/* s3_body.c: read the headers about the body: its SHA-256, its MD5, framing to take off. A
 * refusal, or response NULL: continue. */
dl_response dl_hub_s3_prepare_body(dl_http_request *r);
/* The same of its x-amz-checksum-* header or trailer. Of the request that completes an upload such
 * a header is the whole object's. */
dl_response dl_hub_s3_prepare_checksum(dl_http_request *r);
/* The one x-amz-checksum-<kind> of the headers or of a signed query: *kind and *value, or NULL
 * both. A refusal where the kind is not known or there are two. */
dl_response dl_hub_s3_find_checksum(dl_http_request *r, const dl_checksum_kind **kind,
                                    const char **value);
/* The body is whole: is it what the headers say? Else *refusal. */
bool dl_hub_s3_check_body(dl_http_request *r, dl_response *refusal);
/* Repeat the checksum that was checked. */
void dl_hub_s3_repeat_checksum(const dl_http_request *r, dl_response reply);
/* `finish` of a body of XML. */
dl_response dl_hub_s3_read_text(dl_http_request *r, dl_handler finish);

/* Append text as XML's, "&" and its kin escaped. */
DL_MUST_CHECK diloco_status dl_hub_s3_add_text(dl_buf *out, const char *text);
/* The XML in `out` as an answer; frees it. `status`: that of filling it. */
dl_response dl_hub_s3_response(dl_http_request *r, dl_buf *out, diloco_status status);
/* "2026-01-31T12:00:00.000Z" */
void dl_hub_s3_date(char out[32], int64_t seconds);

dl_response dl_hub_s3_list(
    dl_http_request *r); /* s3_list.c: objects of a bucket, versions 1 and 2 */
dl_response dl_hub_s3_list_buckets(dl_http_request *r);

/* s3_multipart.c */
dl_response dl_multipart_create(dl_http_request *r);
dl_response dl_multipart_part(dl_http_request *r);
dl_response dl_multipart_complete(dl_http_request *r);
dl_response dl_multipart_abort(dl_http_request *r);
dl_response dl_multipart_parts(dl_http_request *r);
dl_response dl_multipart_uploads(dl_http_request *r);

#define DL_S3_XML       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define DL_S3_XMLNS     " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""
#define DL_S3_MULTIPART ".multipart" /* in the bucket's folder; no key begins with a dot */

#endif
