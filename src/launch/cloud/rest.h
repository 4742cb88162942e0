/* rest.h - the REST client that executors share: JSON over the HTTP client of the stores.
 *
 * A call is written (method, path, body), made, and answered. A refusal by the backend is an
 * answer, not an error of the call. The client repeats a call that got no answer, unless the call
 * says `once`.
 *
 * Credentials are a bearer token, AWS keys, or headers of the row's own. They are in the headers
 * alone. An error text has no header, and secrets in it become ***. All of them are overwritten in
 * memory when the client is closed. One thread at a time. */
#ifndef DL_LAUNCH_CLOUD_REST_H
#define DL_LAUNCH_CLOUD_REST_H

#include "base/json.h"
#include "launch/executor.h"
#include "store/http/credentials.h"

/* Bytes: of a base URL, of a call's description, of a backend's words, and of a body. Longer
 * descriptions and words are cut. */
enum { DL_REST_BASE = 1024, DL_REST_WHAT = 160, DL_REST_WHY = 512, DL_REST_BODY = 4 << 20 };

/* A client of one backend. dl_rest_init makes it, the row fills in credentials and headers, and
 * dl_rest_deinit frees it. */
typedef struct dl_rest {
    const char *name;           /* the backend, for a person: "Kubernetes"; borrowed */
    const dl_launch_spec *spec; /* borrowed */
    /* The URL before every path, without a '/' at its end and without credentials. It may have a
     * path of its own, as RunPod's has. */
    char base[DL_REST_BASE];
    /* With a token each call has "Authorization: Bearer", or the header token_header. With an
     * access key it is signed for AWS, and the token is that of a session. */
    dl_credentials who;
    const char *token_header; /* name of the token's header, borrowed; NULL: Authorization */
    /* launch.project or what the credentials say, for the row's paths. The meaning is the
     * backend's: a namespace, a project. */
    char project[DL_REST_BASE];
    char region[64], service[32]; /* of the signature */
    char headers[2][512];         /* "Name: value" of every call; "": unused */
    const char *ca_file;          /* PEM, borrowed; NULL: the system's authorities */
    dl_buf cert, key;             /* PEM of a client certificate; empty: no certificate */
    /* Connections, opened by the first call of their kind. `web` repeats calls that got no answer,
     * and `once` never repeats a call. */
    dl_web *web, *once;
} dl_rest;

/* dl_rest_init makes a client for `base`, or for launch.endpoint where that is given. It opens no
 * connection. Returns DILOCO_EINVAL if the address is no http(s) URL. */
DL_MUST_CHECK diloco_status dl_rest_init(dl_rest *rest, const dl_launch_spec *spec,
                                         const char *name, const char *base);
/* The same for `base` whatever launch.endpoint says: for the token service of a backend, which must
 * not be replaced with it. */
DL_MUST_CHECK diloco_status dl_rest_init_at(dl_rest *rest, const dl_launch_spec *spec,
                                            const char *name, const char *base);
/* Returns DILOCO_EINVAL unless the text may be part of a host's name, as regions are: lower-case
 * letters, digits and hyphens. A region may come from the book of launches. */
DL_MUST_CHECK diloco_status dl_rest_check_region(const char *region);
void dl_rest_deinit(dl_rest *rest); /* zeroed is fine; clears the credentials */

/* ---- a call */

/* One call. A row writes path and body, and the members that differ from their defaults. */
typedef struct dl_rest_call {
    const char *method;  /* "GET", "POST"; borrowed */
    dl_buf path;         /* after the base, query included; at most DL_WEB_URL bytes */
    dl_buf body;         /* empty: no body */
    dl_json json;        /* writes into body; its error is that of the call */
    const char *type;    /* NULL: application/json */
    const char *target;  /* X-Amz-Target; NULL: none */
    const char *service; /* other than rest->service; NULL: that one */
    /* The call must not be repeated by itself: it would have its effect twice. */
    bool once;
    /* A status by which the backend refuses requests, though others use it for failures that pass:
     * 500, or 429 for a quota. It is an answer then. 0: none. */
    int keeps;
    size_t most; /* bytes of the answer; 0: 16 MiB */
    /* Of dl_rest_lines: the backend keeps the connection open after the last line, so silence is
     * the end. */
    bool quiet_ends;
    /* Of dl_rest_lines: the longest silence; 0: 5 s with quiet_ends, a day without it. */
    dl_time quiet;
    /* The time at which the call ends by itself; 0: no limit with dl_rest_lines, two minutes
     * otherwise. */
    dl_time until;
    /* Of dl_rest_lines: when the backend answered, by its clock, seconds since 1970; 0: not
     * known. */
    int64_t date;
    char what[DL_REST_WHAT]; /* for a person: "training job diloco-…" */
} dl_rest_call;

/* `method` is borrowed; `what` describes the call's object for error texts. deinit also overwrites
 * the body, which may hold secrets. */
void dl_rest_call_init(dl_rest_call *call, const char *method, const char *what);
void dl_rest_call_deinit(dl_rest_call *call);
/* Append to the path, as printf does. Nothing is escaped: `format` and its arguments must be valid
 * in a URL. Returns DILOCO_EINVAL if the text is too long. */
DL_MUST_CHECK diloco_status dl_rest_path(dl_rest_call *call, const char *format, ...)
    DL_PRINTF(2, 3);
/* Append one segment of the path or a value of the query, escaped. `text` may be anything. */
DL_MUST_CHECK diloco_status dl_rest_segment(dl_rest_call *call, const char *text);

/* A backend's answer. `json` points into `text`, so it is valid until that is freed. */
typedef struct dl_rest_response {
    int status; /* of HTTP */
    dl_buf text;
    dl_json_value json;    /* MISSING: the body is not JSON */
    char why[DL_REST_WHY]; /* of a refusal: the backend's own words, as part of a sentence */
    int64_t ahead_s;       /* this machine's clock minus the backend's; 0: not known */
} dl_rest_response;

/* Returns true for a 2xx. */
static inline bool dl_rest_is_good(const dl_rest_response *response)
{
    return response->status >= 200 && response->status < 300;
}

/* dl_rest_do makes the call. The caller frees response->text after success. Every answer that the
 * web client does not repeat (web.h) is DILOCO_OK, such as any status below 500 other than 408 and
 * 429, or the status call->keeps. A 429 that names no quota is repeated nevertheless, and so is a
 * 400 in which AWS says that requests come too fast. Returns
 * DILOCO_EUNREACHABLE if there is no connection, or if the backend failed in every try or for two
 * minutes. */
DL_MUST_CHECK diloco_status dl_rest_do(dl_rest *rest, dl_rest_call *call,
                                       dl_rest_response *response);
/* Returns the error of an answer that is no success, with the way out for missing credentials. */
diloco_status dl_rest_refused(const dl_rest *rest, const dl_rest_call *call,
                              const dl_rest_response *response);
/* Returns true if that error ends with a way out: for credentials, a quota, or the clock. */
bool dl_rest_has_advice(const dl_rest_response *response);
/* dl_rest_must makes the call, and turns every answer but a 2xx into its error. The caller frees
 * response->text after success only. */
DL_MUST_CHECK diloco_status dl_rest_must(dl_rest *rest, dl_rest_call *call,
                                         dl_rest_response *response);
/* dl_rest_lines makes the call, and gives each line of its body to fn as it arrives, in bounded
 * memory. Without call->until it has no time limit, so a log may be followed for days. Returns
 * DILOCO_ENOENT for a 404, the error of fn, or DILOCO_ETIMEDOUT at call->until. Returns
 * DILOCO_EUNREACHABLE if the connection breaks and call->quiet_ends is not set: lines that were
 * given cannot be taken back, so the call is not repeated. */
DL_MUST_CHECK diloco_status dl_rest_lines(dl_rest *rest, dl_rest_call *call, dl_job_line_fn fn,
                                          void *user);
/* dl_rest_token makes a call to a token service of OAuth 2.0, and sets token and end of its
 * validity. The answer is overwritten before it is freed, since it holds the token. Returns the
 * errors of dl_rest_must, or DILOCO_EPROTO if the answer holds no token. */
DL_MUST_CHECK diloco_status dl_rest_token(dl_credentials *out, dl_rest *rest, dl_rest_call *call);

/* Print the call to spec->dry, for --dry-run. X-Amz-Target is its only header, so no credentials
 * appear. */
DL_MUST_CHECK diloco_status dl_rest_print(const dl_rest *rest, dl_rest_call *call);

/* Returns a member of an object, or of objects in it: "status.stage". MISSING when absent. A name
 * that holds a dot cannot be reached. The result points into the same text as `object`. */
dl_json_value dl_rest_at(dl_json_value object, const char *path);
/* Writes such a member as text to out[cap] and returns out. It is "" when the member is absent, no
 * text or number, or does not fit: an id or a state that is cut would be another one. */
const char *dl_rest_text(char *out, size_t cap, dl_json_value object, const char *path);
/* The same for a sentence, which is cut to cap - 1 bytes, between two characters. */
const char *dl_rest_message(char *out, size_t cap, dl_json_value object, const char *path);
/* Returns a copy of such a text, which the caller frees, or NULL if the member is absent, no text,
 * or there is no memory. */
char *dl_rest_copy(dl_json_value object, const char *path);
/* dl_rest_give_line gives the first line of a text to fn. A value that is no text is ignored.
 * Returns DILOCO_ENOMEM, or the error of fn. */
DL_MUST_CHECK diloco_status dl_rest_give_line(dl_json_value text, dl_job_line_fn fn, void *user);

#endif
