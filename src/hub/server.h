/* server.h - shared declarations of the hub's files: the hub, a request in flight, its answer.
 *
 * A connection has a thread of its own (libmicrohttpd's), which reads a body to disk, syncs and
 * answers: so a heartbeat never waits for another's transfer or fsync. */
#ifndef DL_HUB_SERVER_H
#define DL_HUB_SERVER_H

#include "base/buf.h"
#include "base/hash.h"
#include "hub/auth.h"
#include "hub/checksum.h"
#include "hub/chunks.h"
#include "hub/event_stream.h"
#include "hub/holdings.h"
#include "hub/hub.h"
#include "hub/metrics.h"
#include "hub/object_keys.h"
#include "hub/target.h"
#include "store/file_store.h"
#include "store/store.h"

#include <microhttpd.h>
#include <openssl/evp.h>

/* Bytes of a body that is kept in memory, keys in one page of a listing. */
enum { DL_TEXT_BODY_MAX = 1 << 20, DL_LIST_PAGE = 1000 };

typedef struct dl_connection dl_connection;
typedef struct dl_http_request dl_http_request;

/* A hub. Fields without a lock are written at the start only, or are atomic; auth, events and
 * tally say their own rule. */
struct dl_hub {
    dl_hub_options options; /* with their defaults filled in; texts not kept */
    char dir[PATH_MAX];     /* absolute */
    dev_t device;           /* of dir, at start: another folder in its place is not ours */
    ino_t inode;
    char url[320];                /* for clients, without a path */
    bool tls, loopback, any_host; /* any_host: the Host header is not looked at */
    dl_auth auth;
    dl_events events;      /* lock of its own */
    dl_metrics metrics;    /* atomic */
    dl_holdings tally;     /* lock of its own */
    dl_views *views;       /* NULL: no page */
    atomic_bool stopping;  /* no new requests */
    atomic_bool never;     /* stays false: an argument of dl_file_store */
    atomic_uint in_flight; /* requests */
    struct MHD_Daemon *daemon;

    pthread_t reaper, counter; /* counter: of the folders, or of new entries (page.c) */
    pthread_mutex_t lock;      /* guards connections */
    pthread_cond_t stop;
    dl_connection *connections; /* guarded by lock */
};

/* ---- an answer; response NULL: none yet, send the body */

/* A reply in the making. It is passed by value; the response belongs to the holder. */
typedef struct dl_response {
    unsigned status;               /* of HTTP */
    struct MHD_Response *response; /* owned until it is queued */
} dl_response;

/* A handler judges a request and returns its reply, or sets request->finish and returns response
 * NULL. */
typedef dl_response (*dl_handler)(dl_http_request *request);

/* Text of that type; copied. */
dl_response dl_response_text(unsigned status, const char *type, const void *text, size_t len);
dl_response dl_response_empty(unsigned status);
void dl_response_header(dl_response reply, const char *name, const char *value);
/* The error: a line of text, or S3's XML with that code. */
dl_response dl_refuse(dl_http_request *r, unsigned status, const char *code, const char *format,
                      ...) DL_PRINTF(4, 5);
/* A failure of the folder's; its own words go to the log, not to the client. */
dl_response dl_refuse_failed(dl_http_request *r, diloco_status status);

/* ---- a request */

typedef enum dl_body_kind {
    DL_BODY_NONE, /* the body is thrown away, up to DL_TEXT_BODY_MAX */
    DL_BODY_FILE, /* into `upload` */
    DL_BODY_TEXT  /* into `text`, up to DL_TEXT_BODY_MAX */
} dl_body_kind;

/* The body of one request. All of it belongs to the request and is freed by dl_request_end. */
typedef struct dl_body {
    dl_body_kind kind;
    dl_time began;        /* when the first piece was awaited */
    uint64_t received;    /* as it came over the wire */
    uint64_t len;         /* of the object */
    diloco_status status; /* the first failure; later bytes are thrown away */
    bool too_long;
    dl_upload upload; /* upload.dir -1: none */
    dl_buf text;
    EVP_MD_CTX *sha256, *md5; /* NULL: not asked for */
    dl_digest_stream *digest; /* likewise; of what is not S3's */
    dl_chunks *chunks;        /* aws-chunked framing to take off; NULL: none */
    dl_checksum checksum;
    const char *checksum_value; /* the expected digest; NULL: it is in the trailer */
    uint64_t decoded;           /* x-amz-decoded-content-length, where there is framing */
} dl_body;

/* One request. Only its connection's thread uses it, so it has no lock. */
struct dl_http_request {
    dl_hub *hub;
    dl_connection *connection;
    struct MHD_Connection *mhd;
    char method[8];              /* cut if it is longer, and then not known */
    diloco_status target_status; /* of parsing the target; refused in begin() */
    dl_target target;
    dl_time began;            /* for the log */
    bool begun, s3;           /* s3: signed so, and answered so */
    const char *payload_hash; /* of x-amz-content-sha256; NULL: none */
    dl_kind kind;

    char bucket[DL_BUCKET_MAX + 1]; /* "": the path names none */
    const char *key;                /* in the bucket; "" for the bucket itself */
    char root[PATH_MAX + DL_BUCKET_MAX + 2];
    dl_file_store folder; /* of root and aborted only */

    dl_body body;
    dl_handler finish; /* when the body is whole */
    dl_response held;  /* until the body was thrown away */
    unsigned status;   /* answered; 0: not yet */
    uint64_t sent;     /* object bytes in the answer */
};

const char *dl_request_header(const dl_http_request *r, const char *name); /* NULL: none */

/* From here to the reply the connection has no time limit. */
void dl_request_untimed(const dl_http_request *r);

/* The Ed25519 key that the client has shown that it has; false: none. */
bool dl_request_peer(dl_public *out, const dl_http_request *r);

/* A handle of the bucket's store. */
DL_MUST_CHECK diloco_status dl_hub_bucket_open(dl_store **out, const dl_http_request *r,
                                               bool create);
/* Is the bucket there? Else a refusal. */
bool dl_hub_bucket_there(const dl_http_request *r);
dl_response dl_refuse_no_bucket(dl_http_request *r);
/* May that name be a bucket? Not those of the hub's own paths. */
bool dl_hub_bucket_name_ok(const char *name);
/* Split "bucket/rest" of a ?run= parameter (or of the path) into r->bucket, r->root and *rest. */
bool dl_request_bucket(dl_http_request *r, const char *path, const char **rest);

/* ---- handlers */

dl_response dl_object_begin(dl_http_request *r); /* object.c: GET, HEAD, PUT, DELETE of a key */
dl_response dl_object_get(dl_http_request *r);
dl_response dl_object_put(dl_http_request *r);
dl_response dl_object_delete(dl_http_request *r);
dl_response dl_hub_bucket_begin(dl_http_request *r); /* object.c: PUT, HEAD of a bucket */
dl_response dl_hub_bucket_make(dl_http_request *r);
dl_response dl_list_begin(dl_http_request *r);    /* list.c: /list */
dl_response dl_events_begin(dl_http_request *r);  /* list.c: /events */
dl_response dl_status_begin(dl_http_request *r);  /* status_page.c: /status.json */
dl_response dl_metrics_begin(dl_http_request *r); /* overview.c: /metrics */

/* page.c: the page, its data, and the list of runs. */
dl_response dl_page_begin(dl_http_request *r);
dl_response dl_page_runs_begin(dl_http_request *r);
dl_response dl_page_run_begin(dl_http_request *r);
dl_response dl_page_entries_begin(dl_http_request *r);
dl_response dl_page_settings_begin(dl_http_request *r);
/* With options.page or .viewed: prepare, and free. */
DL_MUST_CHECK diloco_status dl_page_open(dl_hub *hub);
void dl_page_close(dl_hub *hub);
/* With options.viewed: once a second, report new entries to the pages that wait for events. */
void dl_page_report(dl_hub *hub);

dl_response dl_hub_s3_begin(
    dl_http_request *r); /* s3_api.c: whatever is signed as S3 asks for it */

/* s3_body.c: true: the request asks for encryption, which a hub does not have; *refusal says so. */
bool dl_hub_s3_asks_to_encrypt(dl_http_request *r, dl_response *refusal);
/* s3_api.c: objects in parts by S3's requests, for every client that is welcome. */
bool dl_hub_is_of_parts(const dl_http_request *r);
dl_response dl_hub_parts_begin(dl_http_request *r);
/* s3_multipart.c: remove uploads of the bucket in that folder that are older than a week. */
void dl_multipart_clean(const char *root);

/* Write what is in `upload` under the key; true: it is there, and *st is of it. false: *answer says
 * why not. */
bool dl_object_publish(dl_http_request *r, dl_upload *upload, const char *key, struct stat *st,
                       dl_response *reply);
/* Does the key hold the bytes of a finished upload? Then *st is of what is there. */
bool dl_object_is_the_same(dl_http_request *r, const dl_upload *upload, const char *key,
                           struct stat *st);
bool dl_object_is_there(dl_http_request *r);
/* true: an object has the name of one of the key's folders, or a folder the key's name; *refusal
 * says so. */
bool dl_object_is_blocked(dl_http_request *r, const char *key, dl_response *refusal);
/* Does the request say where its body ends? Else *refusal. */
bool dl_object_has_length(dl_http_request *r, dl_response *refusal);
/* The strong validator of an object: changes whenever the object does. */
typedef char dl_etag[64];
void dl_etag_of(dl_etag out, const struct stat *st);
void dl_http_date(char out[40], int64_t seconds);

/* request.c, for hub.c: the callbacks of libmicrohttpd. */
void *dl_request_create(dl_hub *hub, const char *target, struct MHD_Connection *mhd);
enum MHD_Result dl_request_step(dl_http_request *r, const char *method, const char *data,
                                size_t *len);
void dl_request_end(dl_http_request *r, bool whole); /* the answer went out whole */

/* hub.c, for request.c. */
bool dl_hub_needs_keys(const dl_hub *hub); /* of clients' certificates */
/* Returns true while more than three quarters of the connections are in use. */
bool dl_hub_is_crowded(const dl_hub *hub);
void dl_connection_busy(dl_connection *c, bool busy);
void dl_connection_welcome(dl_connection *c); /* it has shown that it may */
int dl_connection_fd(const dl_connection *c);

#endif
