/* rest.h - the REST client that executors share: JSON over the HTTP client of the stores.
 *
 * A call is written (method, path, body), made, and answered. A refusal by the backend is an
 * answer, not an error of the call. Credentials are a bearer token, AWS keys, or headers of the
 * row's own. They are in the headers alone; an error text has no header, and secrets in it become
 * ***. */
#ifndef DL_LAUNCH_CLOUD_REST_H
#define DL_LAUNCH_CLOUD_REST_H

#include "base/json.h"
#include "launch/executor.h"
#include "store/http/credentials.h"

enum { DL_REST_BASE = 1024, DL_REST_WHAT = 160, DL_REST_WHY = 512, DL_REST_BODY = 4 << 20 };

typedef struct dl_rest {
    const char *name;             /* the backend, for a person: "Kubernetes"; borrowed */
    const dl_launch_spec *spec;   /* borrowed */
    char base[DL_REST_BASE];      /* URL before every path, without a '/' at its end */
    dl_credentials who;           /* token: "Authorization: Bearer"; access: signed for AWS */
    char project[DL_REST_BASE];   /* launch.project or what the credentials say: for the row */
    char region[64], service[32]; /* of the signature */
    char headers[2][512];         /* "Name: value" of every call; "": unused */
    const char *ca_file;          /* PEM, borrowed; NULL: the system's authorities */
    dl_buf cert, key;             /* PEM of a client certificate; empty: no certificate */
    dl_web *web, *once;           /* opened by the first call; `once` never repeats one */
} dl_rest;

/* `base` is launch.endpoint where that is given. DILOCO_EINVAL: it is no http(s) URL. */
DL_MUST_CHECK diloco_status dl_rest_init(dl_rest *rest, const dl_launch_spec *spec,
                                         const char *name, const char *base);
/* The same at `base`, whatever launch.endpoint says. */
DL_MUST_CHECK diloco_status dl_rest_init_at(dl_rest *rest, const dl_launch_spec *spec,
                                            const char *name, const char *base);
void dl_rest_deinit(dl_rest *rest); /* zeroed is fine; clears the credentials */

/* ---- a call */

typedef struct dl_rest_call {
    const char *method;
    dl_buf path;         /* after the base, query included */
    dl_buf body;         /* empty: no body */
    dl_json json;        /* writes into body */
    const char *type;    /* NULL: application/json */
    const char *target;  /* X-Amz-Target; NULL: none */
    const char *service; /* other than rest->service; NULL: that one */
    bool once;           /* must not be repeated by itself: it would have its effect twice */
    bool quiet_ends; /* of lines: the backend keeps the connection open, so silence is the end */
    int64_t date;    /* of lines: when the backend answered, seconds since 1970; 0: not known */
    char what[DL_REST_WHAT]; /* for a person: "training job diloco-…" */
} dl_rest_call;

void dl_rest_call_init(dl_rest_call *call, const char *method, const char *what);
void dl_rest_call_deinit(dl_rest_call *call);
/* Append to the path, as printf does. */
DL_MUST_CHECK diloco_status dl_rest_path(dl_rest_call *call, const char *format, ...)
    DL_PRINTF(2, 3);
/* Append one segment of the path, escaped. */
DL_MUST_CHECK diloco_status dl_rest_segment(dl_rest_call *call, const char *text);

typedef struct dl_rest_response {
    int status;
    dl_buf text;
    dl_json_value json;    /* MISSING: the body is not JSON */
    char why[DL_REST_WHY]; /* of a refusal: the backend's own words */
} dl_rest_response;

static inline bool dl_rest_is_good(const dl_rest_response *response)
{
    return response->status >= 200 && response->status < 300;
}

/* Make the call; the caller frees answer->text. Any HTTP status below 500, other than 408 and 429,
 * is DILOCO_OK. DILOCO_EUNREACHABLE: no connection, or the backend kept failing. */
DL_MUST_CHECK diloco_status dl_rest_do(dl_rest *rest, dl_rest_call *call,
                                       dl_rest_response *response);
/* The error of an answer that is no success, with the way out for missing credentials. */
diloco_status dl_rest_refused(const dl_rest *rest, const dl_rest_call *call,
                              const dl_rest_response *response);
/* Make the call, and turn every answer but a 2xx into its error. */
DL_MUST_CHECK diloco_status dl_rest_must(dl_rest *rest, dl_rest_call *call,
                                         dl_rest_response *response);
/* Make the call, and give each line of its body to fn as it arrives, in bounded memory. A 404 is
 * DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_rest_lines(dl_rest *rest, dl_rest_call *call, dl_job_line_fn fn,
                                          void *user);

/* Print the call to spec->dry. */
DL_MUST_CHECK diloco_status dl_rest_print(const dl_rest *rest, dl_rest_call *call);

/* A member of an object, or of objects in it: "status.stage". MISSING when absent. */
dl_json_value dl_rest_at(dl_json_value object, const char *path);
/* The same as text; "" when it is absent, no text, or does not fit. Returns out. */
const char *dl_rest_text(char *out, size_t cap, dl_json_value object, const char *path);

#endif
