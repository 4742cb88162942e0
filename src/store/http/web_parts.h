/* web_parts.h - the inside of a dl_web: shared by web.c, which has the loop, and web_response.c. */
#ifndef DL_STORE_HTTP_WEB_PARTS_H
#define DL_STORE_HTTP_WEB_PARTS_H

#include "base/rng.h"
#include "store/http/web.h"

#include <curl/curl.h>

enum { TROUBLE_MAX = 400 };

/* One exchange in flight, with its own curl handle. Slots are reused, so connections and buffers
 * stay. */
typedef struct dl_web_slot {
    dl_web_exchange x;
    dl_web *web;
    CURL *easy;
    struct curl_slist *headers;
    enum { FREE, DUE, RUNNING } state;
    dl_time due;
    dl_time ease_at;           /* the line is looked at */
    dl_buf elsewhere;          /* where a redirection leads; empty: to where `prepare` says */
    int hops;                  /* redirections that were followed */
    bool begun;                /* the sink has heard the length */
    size_t span, offset;       /* the part of the body that was sent */
    char trouble[TROUBLE_MAX]; /* why the last try was not the last */
    char error[CURL_ERROR_SIZE];
} dl_web_slot;

/* One thread uses it. The fields of the batch are valid during dl_web_run. */
struct dl_web {
    CURLM *multi;
    const atomic_bool *aborted;
    char *ca_file, *pin, *cert, *key; /* owned; NULL: none */
    int tries;
    dl_time patience;
    dl_rng jitter;
    dl_web_traffic traffic;
    dl_time trip;

    /* of the batch in flight */
    const dl_web_batch *batch;
    diloco_status failure;
    size_t next, lowest;     /* exchanges begun; the first one not finished */
    bool done[DL_WEB_WIDTH]; /* is lowest + k finished? */
    dl_web_slot slots[DL_WEB_WIDTH];
};

/* ---- web_response.c ---- */

DL_MUST_CHECK diloco_status dl_web_add_header(dl_web_slot *s, const char *line);
/* The server's explanation in one line without control characters. */
void dl_web_excerpt(char out[TROUBLE_MAX], const dl_web_exchange *x);

/* ---- web_redirect.c ---- */

/* Set *yes if the answer is a redirection to be followed; s->elsewhere then has its address. */
DL_MUST_CHECK diloco_status dl_web_note_redirect(dl_web_slot *s, bool *yes);
/* Replace url and headers that `prepare` has written by those of s->elsewhere, if it is set. */
DL_MUST_CHECK diloco_status dl_web_apply_redirect(dl_web_slot *s);
void dl_web_forget_redirect(dl_web_slot *s);

#endif
