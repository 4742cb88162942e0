/* web_read.c - ranges into one stream.
 *
 * Range i is bytes [i * range, (i + 1) * range) of the object, counted from the position that the
 * read begins at. The batch is of one exchange until
 * the head of its answer gives the length; then it grows to all. `turn` is the range whose bytes go
 * straight to the sink; a later one is kept in early[i % width] until its turn. A batch begins
 * range i only when all below i - width + 1 are finished, so width places are enough.
 *
 *  1. the sink hears the length once, and then each byte once, in order;
 *  2. every answer but the first was asked for with If-Match on the first one's ETag, and its
 *     Content-Range is what was asked for. */
#include "store/http/web_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const dl_web_source *source;
    dl_sink sink;
    dl_web_position own; /* where `at` is when the caller has none */
    dl_web_position *at; /* its etag is "": none yet, or the server has none */
    bool known;          /* the length is, and the sink has heard it */
    bool given;          /* the caller names the object by its ETag */
    size_t total, limit; /* the object's length; where this read ends */
    dl_web_batch batch;  /* exchange i is range i */
    bool whole;          /* all of it in one answer: of an empty object no range can be had */
    bool empty;          /* the server says that there is no byte 0 */

    size_t turn;
    dl_buf early[DL_WEB_WIDTH];
    bool complete[DL_WEB_WIDTH]; /* that range is finished, and waits for its turn */
} reading;

/* ---- the range and object of an answer */

/* "bytes 0-99/1234"; "bytes 0-0/0" of an empty object, which has no range (RFC 9110, 14.4), is what
 * s3rver says of one that it is still writing. */
static bool parse_range(const char *text, size_t *begin, size_t *total)
{
    unsigned long long a, b, n;
    if (!text || sscanf(text, "bytes %llu-%llu/%llu", &a, &b, &n) != 3) return false;
    *begin = (size_t)a;
    *total = (size_t)n;
    return a <= b && (b < n || n == 0);
}

/* The first answer fixes length and ETag. Later ones have to agree, so ranges of two objects never
 * mix. */
static diloco_status learn(reading *r, dl_web_exchange *x, size_t total)
{
    const char *etag = dl_web_response_header(x, "ETag");
    /* A server may ignore If-Match. */
    if (etag && r->at->etag[0] && strcmp(etag, r->at->etag) != 0)
        return dl_fail(DILOCO_EPROTO, "%s changed while it was read", x->what);
    if (r->known) {
        if (total == r->total) return DILOCO_OK;
        return dl_fail(DILOCO_EPROTO, "%s: %zu bytes long at first, %zu now", x->what, r->total,
                       total);
    }
    const size_t begin = r->at->begin;
    if (r->given && (begin >= total || !etag))
        return dl_fail(DILOCO_EPROTO, "%s is not the object that a part is there of", x->what);
    r->known = true;
    r->total = total;
    r->limit = r->at->end ? dl_size_min(r->at->end, total) : total;
    if (!r->whole && total > 0) r->batch.n = (r->limit - begin - 1) / r->source->range + 1;
    /* A weak one matches nothing. */
    if (etag && strncmp(etag, "W/", 2) && strlen(etag) < sizeof r->at->etag)
        strcpy(r->at->etag, etag);
    return r->sink.begin(r->sink.context, total);
}

/* The first byte of a range. */
static size_t first_of(const reading *r, size_t index)
{
    return r->at->begin + index * r->source->range;
}

/* Looks at the head when its first byte (or its end) comes. */
static diloco_status check_head(reading *r, dl_web_exchange *x)
{
    size_t asked = first_of(r, x->index) + x->delivered, begin = 0, total;
    if (x->status == 206) {
        if (!parse_range(dl_web_response_header(x, "Content-Range"), &begin, &total) ||
            begin != asked)
            return dl_fail(DILOCO_EPROTO, "%s: the server sent other bytes than it was asked for",
                           x->what);
        r->empty = total == 0 && !r->known && !r->at->begin;
        if (r->empty) return DILOCO_OK;
    } else { /* 200: it does not do ranges, which serves for the first one */
        r->whole = true;
        const char *len = dl_web_response_header(x, "Content-Length");
        if (!len) return dl_fail(DILOCO_EPROTO, "%s: the server gives no length", x->what);
        total = strtoull(len, NULL, 10);
        if (asked != 0 || (r->at->end && r->at->end < total))
            return dl_fail(DILOCO_EPROTO, "%s: the server does not do ranges", x->what);
    }
    return learn(r, x, total);
}

/* ---- bytes */

typedef struct lane { /* of one exchange: its ETag and range, set again for each try */
    reading *r;
    dl_web_exchange *x;
    bool looked;
} lane;

/* A range whose turn has not come is kept, and never handed on out of order. */
static diloco_status on_piece(void *context, const void *data, size_t len)
{
    lane *l = context;
    reading *r = l->r;
    if (!l->looked) {
        size_t delivered = l->x->delivered; /* this piece is counted in it already */
        l->x->delivered -= len;
        diloco_status status = check_head(r, l->x);
        l->x->delivered = delivered;
        if (status) return status;
        l->looked = true;
    }
    if (r->empty) return DILOCO_OK;
    const size_t range = l->x->index;
    if (range == r->turn) return r->sink.piece(r->sink.context, data, len);
    return dl_buf_add(&r->early[range % r->source->width], data, len);
}

/* Hand on what came early: of complete ranges, and of the one whose turn it is then. */
static diloco_status advance(reading *r)
{
    for (;;) {
        size_t place = ++r->turn % r->source->width;
        dl_buf *early = &r->early[place];
        for (size_t at = 0; at < early->len; at += DL_STORE_PIECE)
            DL_TRY(r->sink.piece(r->sink.context, early->data + at,
                                 dl_size_min(early->len - at, DL_STORE_PIECE)));
        dl_buf_clear(early);
        if (!r->complete[place]) return DILOCO_OK;
        r->complete[place] = false;
    }
}

/* ---- requests */

typedef struct batch_context {
    reading *r;
    lane lanes[DL_WEB_WIDTH];
} batch_context;

/* A retry asks for the rest of its range only. */
static diloco_status prepare(void *context, dl_web_exchange *x)
{
    batch_context *c = context;
    reading *r = c->r;
    char range[64];
    size_t begin = first_of(r, x->index), end = begin + r->source->range;
    if (r->at->end) end = dl_size_min(end, r->at->end);
    snprintf(range, sizeof range, "bytes=%zu-%zu", begin + x->delivered, end - 1);
    lane *l = &c->lanes[x->index % DL_WEB_WIDTH];
    *l = (lane){r, x, false};
    DL_TRY(r->source->prepare(r->source->context, x, r->whole ? NULL : range,
                              r->at->etag[0] ? r->at->etag : NULL));
    x->sink = (dl_sink){.context = l, .piece = on_piece};
    x->resumes = !r->whole;
    return DILOCO_OK;
}

/* A range is complete only if exactly its bytes have arrived. */
static diloco_status finish(void *context, dl_web_exchange *x)
{
    batch_context *c = context;
    reading *r = c->r;
    if (x->status == 412 && (r->known || r->given))
        return dl_fail(DILOCO_EPROTO, "%s changed while it was read", x->what);
    if (x->status == 416 && !r->known && r->given)
        return dl_fail(DILOCO_EPROTO, "%s is shorter than it was", x->what);
    if (x->status == 416 && !r->known && !x->delivered) {
        r->empty = true;
        return DILOCO_OK;
    }
    if (x->status != 200 && x->status != 206) return r->source->refused(r->source->context, x);
    if (!c->lanes[x->index % DL_WEB_WIDTH].looked) DL_TRY(check_head(r, x)); /* of no bytes */
    if (r->empty) return DILOCO_OK;
    size_t range = x->index, begin = first_of(r, range);
    size_t len = r->whole ? r->total : dl_size_min(r->limit - begin, r->source->range);
    if (x->delivered != len)
        return dl_fail(DILOCO_EPROTO, "%s: %zu bytes came for %zu asked", x->what, x->delivered,
                       len);
    if (range == r->turn) return advance(r);
    r->complete[range % r->source->width] = true;
    return DILOCO_OK;
}

static diloco_status run(reading *r, dl_web *web, dl_time until)
{
    batch_context context = {.r = r};
    r->batch = (dl_web_batch){.n = 1,
                              .width = r->source->width,
                              .context = &context,
                              .prepare = prepare,
                              .finish = finish};
    return dl_web_run(web, &r->batch, until);
}

/* An object of no bytes has no range, so it is asked for a second time as a whole. */
diloco_status dl_web_read(dl_web *web, const dl_web_source *source, dl_sink sink, dl_time until)
{
    reading r = {.source = source, .sink = sink};
    r.at = source->at ? source->at : &r.own;
    r.given = r.at->begin > 0 || r.at->etag[0];
    for (size_t i = 0; i < source->width; i++)
        dl_buf_init(&r.early[i], source->range);
    diloco_status status = run(&r, web, until);
    if (!status && r.empty) {
        r.whole = true;
        r.empty = false;
        status = run(&r, web, until);
    }
    for (size_t i = 0; i < source->width; i++)
        dl_buf_deinit(&r.early[i]);
    return status;
}
